/* secure.c - proofs, keys and frames between hosts; the design and every byte are in secure.h. */
#include "group/secure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "group/keyring.h"

#define MAGIC_BYTES 8
#define ROLE_HOST 2u
#define FLAG_SEALED 1u
#define PROOF_BYTES 32
#define JOB_AT 8
#define EPHEMERAL_AT 24
#define KEY_AT 56
#define ROLE_AT 88
#define PROOF_AT (UNI__HELLO_BYTES - PROOF_BYTES)
#define STREAM_HEADER crypto_secretstream_xchacha20poly1305_HEADERBYTES
#define STREAM_EXTRA crypto_secretstream_xchacha20poly1305_ABYTES
#define SECRET_FILE_MIN 32
#define SECRET_FILE_MAX 65536

static const uint8_t challenge_magic[] = "UNISONO\4", hello_magic[] = "UNISONO\5",
                     reply_magic[] = "UNISONO\6";

/* ---- credentials ---- */

int uni__credentials_make_pair(uni__credentials *credentials, uni_error *err)
{
    if (sodium_init() < 0)
        return uni_error_set(err, UNI_EIO, "libsodium cannot be initialised");
    crypto_box_keypair(credentials->public_key, credentials->private_key);
    return 0;
}

int uni__credentials_new(uni__credentials *out, uni_error *err)
{
    memset(out, 0, sizeof *out);
    UNI_TRY(uni__credentials_make_pair(out, err));
    randombytes_buf(out->job, sizeof out->job);
    out->seal = true;
    return 0;
}

int uni__credentials_read_secret(uni__credentials *credentials, const char *path, uni_error *err)
{
    struct stat info;
    uint8_t *bytes = malloc(SECRET_FILE_MAX + 1);
    int fd = bytes ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0 || fstat(fd, &info) < 0) {
        int saved = bytes ? errno : ENOMEM;
        if (fd >= 0)
            close(fd);
        free(bytes);
        return uni_error_set_errno(err, saved, "cannot open the secret file %s", path);
    }
    ssize_t size = S_ISREG(info.st_mode) ? read(fd, bytes, SECRET_FILE_MAX + 1) : -1;
    close(fd);
    int status = 0;
    if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077))
        status = uni_error_set(err, UNI_EPERMISSION,
                               "the secret file %s must be a regular file of this user's that "
                               "others cannot read: chmod 600 it",
                               path);
    else if (size < SECRET_FILE_MIN || size > SECRET_FILE_MAX)
        status = uni_error_set(err, UNI_EINVAL,
                               "the secret file %s has %lld bytes: write %d to %d random ones "
                               "(head -c 32 /dev/urandom)",
                               path, (long long)info.st_size, SECRET_FILE_MIN, SECRET_FILE_MAX);
    else
        crypto_generichash(credentials->secret, sizeof credentials->secret, bytes,
                           (unsigned long long)size, NULL, 0);
    sodium_memzero(bytes, SECRET_FILE_MAX + 1);
    free(bytes);
    return status;
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
    crypto_box_keypair(secure->challenge + MAGIC_BYTES, secure->ephemeral);
    secure->challenge[MAGIC_BYTES + UNI__KEY_BYTES] = credentials->seal ? FLAG_SEALED : 0;
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

/* The three exchanges and all that was said, in the same order on both sides. A key of a small
 * order is refused by libsodium. */
static int derive_root(uni__secure *secure, uni_error *err)
{
    const uni__credentials *own = &secure->credentials;
    const uint8_t *controller_ephemeral = secure->challenge + MAGIC_BYTES,
                  *host_ephemeral = secure->hello + EPHEMERAL_AT,
                  *host_key = secure->hello + KEY_AT;
    uint8_t shared[3][crypto_scalarmult_BYTES];
    int bad;
    if (secure->is_controller)
        bad = crypto_scalarmult(shared[0], secure->ephemeral, host_ephemeral) |
              crypto_scalarmult(shared[1], own->private_key, host_ephemeral) |
              crypto_scalarmult(shared[2], secure->ephemeral, host_key);
    else
        bad = crypto_scalarmult(shared[0], secure->ephemeral, controller_ephemeral) |
              crypto_scalarmult(shared[1], secure->ephemeral, own->controller_key) |
              crypto_scalarmult(shared[2], own->private_key, controller_ephemeral);
    if (bad == 0) {
        static const char label[] = "unisono 2 root";
        crypto_generichash_state state;
        crypto_generichash_init(&state, own->secret, sizeof own->secret, sizeof secure->root);
        crypto_generichash_update(&state, (const uint8_t *)label, sizeof label);
        crypto_generichash_update(
            &state, secure->is_controller ? own->public_key : own->controller_key, UNI__KEY_BYTES);
        crypto_generichash_update(&state, secure->challenge, sizeof secure->challenge);
        crypto_generichash_update(&state, secure->hello, PROOF_AT);
        crypto_generichash_update(&state, shared[0], sizeof shared);
        crypto_generichash_final(&state, secure->root, sizeof secure->root);
        sodium_memzero(&state, sizeof state);
    }
    sodium_memzero(shared, sizeof shared);
    return bad == 0 ? 0 : uni_error_set(err, UNI_EPERMISSION, "it offers a key that hides nothing");
}

static void derive(const uni__secure *secure, const char *label, uint8_t out[32])
{
    crypto_generichash(out, 32, (const uint8_t *)label, strlen(label), secure->root,
                       sizeof secure->root);
}

/* Both sides know each other: each direction gets its key, and sends its header. What only the
 * greeting needed is forgotten. */
static int open_stream(uni__secure *secure, uni_error *err)
{
    uint8_t key[32], header[STREAM_HEADER];
    derive(secure, secure->is_controller ? "controller to host" : "host to controller", key);
    crypto_secretstream_xchacha20poly1305_init_push(&secure->push, header, key);
    sodium_memzero(key, sizeof key);
    sodium_memzero(secure->ephemeral, sizeof secure->ephemeral);
    sodium_memzero(secure->credentials.private_key, sizeof secure->credentials.private_key);
    sodium_memzero(secure->credentials.secret, sizeof secure->credentials.secret);
    uni__text_add(&secure->out, header, sizeof header);
    secure->stage = UNI__SECURE_HEADER;
    return secure->out.failed ? uni_error_set(err, UNI_ENOMEM, "no memory for a connection") : 0;
}

static int take_challenge(uni__secure *secure, const uint8_t *bytes, uni_error *err)
{
    uint8_t *hello = secure->hello;
    bool sealed = bytes[MAGIC_BYTES + UNI__KEY_BYTES] & FLAG_SEALED;
    if (memcmp(bytes, challenge_magic, MAGIC_BYTES) != 0)
        return uni_error_set(err, UNI_EPEER,
                             "what answers there is not a unisono controller of this release");
    if (sealed != secure->credentials.seal)
        return uni_error_set(err, UNI_EPERMISSION,
                             "the controller offers %s connection where the launcher said "
                             "otherwise: possible man in the middle",
                             sealed ? "a sealed" : "an unsealed");
    memcpy(secure->challenge, bytes, sizeof secure->challenge);
    memcpy(hello, hello_magic, MAGIC_BYTES);
    memcpy(hello + JOB_AT, secure->credentials.job, UNI__JOB_BYTES);
    crypto_box_keypair(hello + EPHEMERAL_AT, secure->ephemeral);
    memcpy(hello + KEY_AT, secure->credentials.public_key, UNI__KEY_BYTES);
    put_u32(hello + ROLE_AT, ROLE_HOST);
    put_u32(hello + ROLE_AT + 4, secure->rank);
    put_u32(hello + ROLE_AT + 8, secure->credentials.attempt);
    put_u32(hello + ROLE_AT + 12, sealed ? FLAG_SEALED : 0);
    UNI_TRY(derive_root(secure, err));
    derive(secure, "host proof", hello + PROOF_AT);
    uni__text_add(&secure->out, hello, UNI__HELLO_BYTES);
    secure->stage = UNI__SECURE_REPLY;
    return 0;
}

static int check_claims(const uni__secure *secure, const uint8_t *hello, uni_error *err)
{
    if (memcmp(hello, hello_magic, MAGIC_BYTES) != 0)
        return uni_error_set(err, UNI_EPEER, "it does not speak this release's protocol");
    if (sodium_memcmp(hello + JOB_AT, secure->credentials.job, UNI__JOB_BYTES) != 0)
        return uni_error_set(err, UNI_EPERMISSION, "it belongs to another job");
    if (get_u32(hello + ROLE_AT) != ROLE_HOST)
        return uni_error_set(err, UNI_EPERMISSION, "its role is not that of a host's agent");
    if (get_u32(hello + ROLE_AT + 8) != secure->credentials.attempt)
        return uni_error_set(err, UNI_EPERMISSION, "it is of attempt %u, and attempt %u is running",
                             get_u32(hello + ROLE_AT + 8), secure->credentials.attempt);
    return 0;
}

static int take_hello(uni__secure *secure, const uint8_t *hello, uni_error *err)
{
    uint8_t proof[PROOF_BYTES], reply[UNI__REPLY_BYTES];
    UNI_TRY(check_claims(secure, hello, err));
    uint32_t rank = get_u32(hello + ROLE_AT + 4);
    int known = uni__keyring_find(secure->credentials.ring, rank, hello + KEY_AT);
    if (known < 0)
        return uni_error_set(err, UNI_EPERMISSION,
                             "it has another key than the agent of rank %u announced", rank);
    secure->unannounced = known == 0;
    if (secure->unannounced)
        return 0;
    memcpy(secure->hello, hello, UNI__HELLO_BYTES);
    UNI_TRY(derive_root(secure, err));
    derive(secure, "host proof", proof);
    if (sodium_memcmp(proof, hello + PROOF_AT, sizeof proof) != 0)
        return uni_error_set(err, UNI_EPERMISSION,
                             "it cannot prove that it is the agent of rank %u: it repeats an "
                             "earlier greeting, or does not have the secret file",
                             rank);
    secure->rank = rank;
    memcpy(reply, reply_magic, MAGIC_BYTES);
    derive(secure, "controller proof", reply + MAGIC_BYTES);
    uni__text_add(&secure->out, reply, sizeof reply);
    return open_stream(secure, err);
}

static int take_reply(uni__secure *secure, const uint8_t *reply, uni_error *err)
{
    uint8_t proof[PROOF_BYTES];
    derive(secure, "controller proof", proof);
    if (memcmp(reply, reply_magic, MAGIC_BYTES) != 0 ||
        sodium_memcmp(proof, reply + MAGIC_BYTES, sizeof proof) != 0)
        return uni_error_set(
            err, UNI_EPERMISSION,
            "the other side cannot prove that it is our controller: possible man in the middle");
    return open_stream(secure, err);
}

static int take_header(uni__secure *secure, const uint8_t *header, uni_error *err)
{
    uint8_t key[32];
    derive(secure, secure->is_controller ? "host to controller" : "controller to host", key);
    int status = crypto_secretstream_xchacha20poly1305_init_pull(&secure->pull, header, key);
    sodium_memzero(key, sizeof key);
    sodium_memzero(secure->root, sizeof secure->root);
    secure->stage = UNI__SECURE_READY;
    return status == 0 ? 0 : uni_error_set(err, UNI_ECORRUPT, "a stream of frames begins wrongly");
}

int uni__secure_feed(uni__secure *secure, const void *data, size_t size, uni_error *err)
{
    if (secure->consumed > 0) {
        secure->in.size -= secure->consumed;
        memmove(secure->in.data, secure->in.data + secure->consumed, secure->in.size);
        secure->consumed = 0;
    }
    /* A host says no more than its hello before it is answered: a peer that is not proved takes
     * no memory. */
    if (secure->is_controller && secure->stage == UNI__SECURE_GREETING &&
        secure->in.size + size > UNI__HELLO_BYTES)
        return uni_error_set(err, UNI_EPEER, "it does not speak this release's protocol");
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
        if (secure->unannounced)
            return 0;
        secure->consumed += need;
    }
    return 0;
}

/* ---- frames ---- */

/* Opens or checks `size` bytes at *at; *size becomes those of the frame. */
static bool unseal(uni__secure *secure, const uint8_t **at, size_t *size)
{
    unsigned long long opened = 0;
    uint8_t tag;
    if (!secure->credentials.seal) {
        *size -= STREAM_EXTRA;
        return crypto_secretstream_xchacha20poly1305_pull(
                   &secure->pull, NULL, &opened, &tag, *at + *size, STREAM_EXTRA, *at, *size) == 0;
    }
    uint8_t *room = (uint8_t *)secure->opened.data;
    bool fine = crypto_secretstream_xchacha20poly1305_pull(&secure->pull, room, &opened, &tag, *at,
                                                           *size, NULL, 0) == 0;
    *at = room;
    *size = (size_t)opened;
    return fine;
}

int uni__secure_next(uni__secure *secure, int *type, const uint8_t **payload, size_t *size,
                     uni_error *err)
{
    size_t there = secure->in.size - secure->consumed;
    if (secure->stage != UNI__SECURE_READY || there < 4)
        return 0;
    const uint8_t *at = (const uint8_t *)secure->in.data + secure->consumed;
    size_t length = get_u32(at);
    if (length < 1 + STREAM_EXTRA || length > UNI__SECURE_FRAME_MAX + STREAM_EXTRA)
        return uni_error_set(err, UNI_EFORMAT,
                             "frame %llu claims %zu bytes, which is not possible: possible man "
                             "in the middle",
                             (unsigned long long)secure->frames + 1, length);
    if (there < 4 + length)
        return 0;
    at += 4;
    secure->consumed += 4 + length;
    secure->frames++;
    uni__text_clear(&secure->opened);
    if (!uni__text_reserve(&secure->opened, length))
        return uni_error_set(err, UNI_ENOMEM, "no memory to receive a message");
    if (!unseal(secure, &at, &length))
        return uni_error_set(err, UNI_ECORRUPT,
                             "frame %llu was changed, repeated, reordered or left out on its way: "
                             "possible man in the middle",
                             (unsigned long long)secure->frames);
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
    bool seal = secure->credentials.seal;
    uint32_t prefix = (uint32_t)(length + STREAM_EXTRA);
    uni__text *out = &secure->out, *to = seal ? &secure->plain : out;
    uni__text_add(out, &prefix, sizeof prefix);
    if (seal)
        uni__text_clear(to);
    uni__text_add(to, &byte, 1);
    uni__text_add(to, head, head_size);
    uni__text_add(to, payload, size);
    char *room = uni__text_reserve(out, prefix);
    if (!room || to->failed || out->failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory to send a message");
    const uint8_t *frame = (const uint8_t *)(seal ? to->data : out->data + out->size - length);
    crypto_secretstream_xchacha20poly1305_push(&secure->push, (uint8_t *)room, NULL, frame,
                                               seal ? length : 0, seal ? NULL : frame,
                                               seal ? 0 : length, 0);
    out->size += seal ? prefix : STREAM_EXTRA;
    return 0;
}
