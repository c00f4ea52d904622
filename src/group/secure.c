/* secure.c - proofs and frames between hosts; the design and every byte are in secure.h. */
#include "group/secure.h"

#include <string.h>

#define MAGIC_BYTES 8
#define ROLE_HOST 2u
#define FLAG_ENCRYPTED 1u
#define PROOF_AT (UNI__HELLO_BYTES - crypto_auth_hmacsha256_BYTES)
#define STREAM_HEADER crypto_secretstream_xchacha20poly1305_HEADERBYTES
#define STREAM_EXTRA crypto_secretstream_xchacha20poly1305_ABYTES

static const uint8_t challenge_magic[] = "UNISONO\1", hello_magic[] = "UNISONO\2",
                     reply_magic[] = "UNISONO\3";

int uni__credentials_new(uni__credentials *out, uni_error *err)
{
    memset(out, 0, sizeof *out);
    if (sodium_init() < 0)
        return uni_error_set(err, UNI_EIO, "libsodium cannot be initialised");
    randombytes_buf(out->secret, sizeof out->secret);
    randombytes_buf(out->job, sizeof out->job);
    return 0;
}

void uni__secret_to_text(const uni__credentials *credentials, char out[65])
{
    sodium_bin2hex(out, 2 * UNI__SECRET_BYTES + 1, credentials->secret, UNI__SECRET_BYTES);
}

int uni__secret_from_text(uni__credentials *credentials, const char *text, uni_error *err)
{
    size_t size = 0;
    if (sodium_init() < 0 ||
        sodium_hex2bin(credentials->secret, UNI__SECRET_BYTES, text, strlen(text), NULL, &size,
                       NULL) != 0 ||
        size != UNI__SECRET_BYTES)
        return uni_error_set(err, UNI_EFORMAT, "the job's secret is not 64 hexadecimal digits");
    return 0;
}

/* HMAC-SHA256 of a label, the challenge and the first `hello_size` bytes of the hello. */
static void prove(const uni__secure *secure, const char *label, size_t hello_size, uint8_t out[32])
{
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, secure->credentials.secret, UNI__SECRET_BYTES);
    crypto_auth_hmacsha256_update(&state, (const uint8_t *)label, strlen(label) + 1);
    crypto_auth_hmacsha256_update(&state, secure->challenge, sizeof secure->challenge);
    crypto_auth_hmacsha256_update(&state, secure->hello, hello_size);
    crypto_auth_hmacsha256_final(&state, out);
    sodium_memzero(&state, sizeof state);
}

static void host_proof(const uni__secure *secure, uint8_t out[32])
{
    prove(secure, "unisono 1 host proof", PROOF_AT, out);
}

static void controller_proof(const uni__secure *secure, uint8_t out[32])
{
    prove(secure, "unisono 1 controller proof", UNI__HELLO_BYTES, out);
}

int uni__secure_begin(uni__secure *secure, bool is_controller, const uni__credentials *credentials,
                      uint32_t rank, uni_error *err)
{
    memset(secure, 0, sizeof *secure);
    if (sodium_init() < 0)
        return uni_error_set(err, UNI_EIO, "libsodium cannot be initialised");
    secure->credentials = *credentials;
    secure->is_controller = is_controller;
    secure->rank = rank;
    if (!is_controller)
        return 0;
    memcpy(secure->challenge, challenge_magic, MAGIC_BYTES);
    randombytes_buf(secure->challenge + MAGIC_BYTES, 32);
    secure->challenge[MAGIC_BYTES + 32] = credentials->encrypt ? FLAG_ENCRYPTED : 0;
    uni__text_add(&secure->out, secure->challenge, sizeof secure->challenge);
    return secure->out.failed ? uni_error_set(err, UNI_ENOMEM, "no memory for a connection") : 0;
}

void uni__secure_end(uni__secure *secure)
{
    uni__text_free(&secure->in);
    uni__text_free(&secure->out);
    uni__text_free(&secure->opened);
    uni__text_free(&secure->plain);
    sodium_memzero(secure, sizeof *secure);
}

/* ---- the greeting ---- */

static void put_u32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}

static uint32_t get_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Both sides know each other: each direction gets its key, and sends its header when frames are sealed. */
static int open_streams(uni__secure *secure, uni_error *err)
{
    uint8_t key[32], header[STREAM_HEADER];
    if (!secure->credentials.encrypt) {
        secure->stage = UNI__SECURE_READY;
        return 0;
    }
    prove(secure,
          secure->is_controller ? "unisono 1 key controller to host"
                                : "unisono 1 key host to controller",
          UNI__HELLO_BYTES, key);
    crypto_secretstream_xchacha20poly1305_init_push(&secure->push, header, key);
    sodium_memzero(key, sizeof key);
    uni__text_add(&secure->out, header, sizeof header);
    secure->stage = UNI__SECURE_HEADER;
    return secure->out.failed ? uni_error_set(err, UNI_ENOMEM, "no memory for a connection") : 0;
}

static int take_challenge(uni__secure *secure, const uint8_t *bytes, uni_error *err)
{
    uint8_t *hello = secure->hello;
    bool encrypted = bytes[MAGIC_BYTES + 32] & FLAG_ENCRYPTED;
    if (memcmp(bytes, challenge_magic, MAGIC_BYTES) != 0)
        return uni_error_set(err, UNI_EPEER, "what answers there is not a unisono controller");
    if (encrypted != secure->credentials.encrypt)
        return uni_error_set(err, UNI_EPERMISSION,
                             "the controller's offer differs in encryption from what the launcher "
                             "said: somebody may be in between");
    memcpy(secure->challenge, bytes, sizeof secure->challenge);
    memcpy(hello, hello_magic, MAGIC_BYTES);
    memcpy(hello + 8, secure->credentials.job, UNI__JOB_BYTES);
    randombytes_buf(hello + 24, 32);
    put_u32(hello + 56, ROLE_HOST);
    put_u32(hello + 60, secure->rank);
    put_u32(hello + 64, secure->credentials.attempt);
    put_u32(hello + 68, encrypted ? FLAG_ENCRYPTED : 0);
    host_proof(secure, hello + PROOF_AT);
    uni__text_add(&secure->out, hello, UNI__HELLO_BYTES);
    secure->stage = UNI__SECURE_REPLY;
    return 0;
}

static int take_hello(uni__secure *secure, const uint8_t *hello, uni_error *err)
{
    uint8_t proof[32], reply[UNI__REPLY_BYTES];
    memcpy(secure->hello, hello, UNI__HELLO_BYTES);
    if (memcmp(hello, hello_magic, MAGIC_BYTES) != 0)
        return uni_error_set(err, UNI_EPEER, "it does not speak unisono's protocol");
    if (sodium_memcmp(hello + 8, secure->credentials.job, UNI__JOB_BYTES) != 0)
        return uni_error_set(err, UNI_EPERMISSION, "it belongs to another job");
    host_proof(secure, proof);
    if (sodium_memcmp(proof, hello + PROOF_AT, sizeof proof) != 0)
        return uni_error_set(err, UNI_EPERMISSION, "it does not know the job's secret");
    if (get_u32(hello + 56) != ROLE_HOST)
        return uni_error_set(err, UNI_EPERMISSION, "its role is not that of a host's agent");
    if (get_u32(hello + 64) != secure->credentials.attempt)
        return uni_error_set(err, UNI_EPERMISSION, "it is of attempt %u, and attempt %u is running",
                             get_u32(hello + 64), secure->credentials.attempt);
    secure->rank = get_u32(hello + 60);
    memcpy(reply, reply_magic, MAGIC_BYTES);
    controller_proof(secure, reply + MAGIC_BYTES);
    uni__text_add(&secure->out, reply, sizeof reply);
    return open_streams(secure, err);
}

static int take_reply(uni__secure *secure, const uint8_t *reply, uni_error *err)
{
    uint8_t proof[32];
    controller_proof(secure, proof);
    if (memcmp(reply, reply_magic, MAGIC_BYTES) != 0 ||
        sodium_memcmp(proof, reply + MAGIC_BYTES, sizeof proof) != 0)
        return uni_error_set(
            err, UNI_EPERMISSION,
            "the other side does not know the job's secret: it is not our controller");
    return open_streams(secure, err);
}

static int take_header(uni__secure *secure, const uint8_t *header, uni_error *err)
{
    uint8_t key[32];
    prove(secure,
          secure->is_controller ? "unisono 1 key host to controller"
                                : "unisono 1 key controller to host",
          UNI__HELLO_BYTES, key);
    int status = crypto_secretstream_xchacha20poly1305_init_pull(&secure->pull, header, key);
    sodium_memzero(key, sizeof key);
    secure->stage = UNI__SECURE_READY;
    return status == 0 ? 0 : uni_error_set(err, UNI_ECORRUPT, "a sealed stream begins wrongly");
}

int uni__secure_feed(uni__secure *secure, const void *data, size_t size, uni_error *err)
{
    if (secure->consumed > 0) {
        secure->in.size -= secure->consumed;
        memmove(secure->in.data, secure->in.data + secure->consumed, secure->in.size);
        secure->consumed = 0;
    }
    uni__text_add(&secure->in, data, size);
    if (secure->in.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory to receive a message");
    while (secure->stage != UNI__SECURE_READY) {
        size_t need = secure->stage == UNI__SECURE_HEADER  ? STREAM_HEADER
                      : secure->stage == UNI__SECURE_REPLY ? UNI__REPLY_BYTES
                      : secure->is_controller              ? UNI__HELLO_BYTES
                                                           : UNI__CHALLENGE_BYTES;
        const uint8_t *at = (const uint8_t *)secure->in.data + secure->consumed;
        if (secure->in.size - secure->consumed < need)
            return 0;
        if (secure->stage == UNI__SECURE_HEADER)
            UNI_TRY(take_header(secure, at, err));
        else if (secure->stage == UNI__SECURE_REPLY)
            UNI_TRY(take_reply(secure, at, err));
        else if (secure->is_controller)
            UNI_TRY(take_hello(secure, at, err));
        else
            UNI_TRY(take_challenge(secure, at, err));
        secure->consumed += need;
    }
    return 0;
}

/* ---- frames ---- */

int uni__secure_next(uni__secure *secure, int *type, const uint8_t **payload, size_t *size,
                     uni_error *err)
{
    size_t there = secure->in.size - secure->consumed;
    if (secure->stage != UNI__SECURE_READY || there < 4)
        return 0;
    const uint8_t *at = (const uint8_t *)secure->in.data + secure->consumed;
    uint32_t length = get_u32(at);
    size_t extra = secure->credentials.encrypt ? STREAM_EXTRA : 0;
    if (length < 1 + extra || length > UNI__SECURE_FRAME_MAX + extra)
        return uni_error_set(err, UNI_EFORMAT, "a frame of %u bytes is not possible", length);
    if (there < 4 + (size_t)length)
        return 0;
    at += 4;
    secure->consumed += 4 + (size_t)length;
    if (secure->credentials.encrypt) {
        unsigned long long opened = 0;
        uint8_t tag;
        uni__text_clear(&secure->opened);
        char *room = uni__text_reserve(&secure->opened, length);
        if (!room)
            return uni_error_set(err, UNI_ENOMEM, "no memory to receive a message");
        if (crypto_secretstream_xchacha20poly1305_pull(&secure->pull, (uint8_t *)room, &opened,
                                                       &tag, at, length, NULL, 0) != 0)
            return uni_error_set(err, UNI_ECORRUPT, "a sealed frame was changed on its way");
        at = (const uint8_t *)room;
        length = (uint32_t)opened;
    }
    *type = at[0];
    *payload = at + 1;
    *size = length - 1;
    return 1;
}

int uni__secure_pack(uni__secure *secure, int type, const void *head, size_t head_size,
                     const void *payload, size_t size, uni_error *err)
{
    size_t length = 1 + head_size + size;
    uint8_t byte = (uint8_t)type;
    if (length > UNI__SECURE_FRAME_MAX)
        return uni_error_set(err, UNI_ELIMIT, "a frame of %zu bytes is too large", length);
    uni__text *to = secure->credentials.encrypt ? &secure->plain : &secure->out;
    uint32_t prefix = (uint32_t)(length + (secure->credentials.encrypt ? STREAM_EXTRA : 0));
    uni__text_add(&secure->out, &prefix, sizeof prefix);
    if (secure->credentials.encrypt)
        uni__text_clear(&secure->plain);
    uni__text_add(to, &byte, 1);
    uni__text_add(to, head, head_size);
    uni__text_add(to, payload, size);
    char *room = secure->credentials.encrypt ? uni__text_reserve(&secure->out, prefix) : "";
    if (!room || to->failed || secure->out.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory to send a message");
    if (!secure->credentials.encrypt)
        return 0;
    crypto_secretstream_xchacha20poly1305_push(&secure->push, (uint8_t *)room, NULL,
                                               (const uint8_t *)secure->plain.data, length, NULL, 0,
                                               0);
    secure->out.size += prefix;
    return 0;
}
