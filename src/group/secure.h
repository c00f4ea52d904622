/*
 * secure.h - a connection between hosts: both sides prove their identity, agree on fresh keys, and
 * then exchange frames that are always authenticated and sequenced, and sealed unless the operator
 * asked for --no-seal.
 *
 * Bytes in, bytes out: no socket and no loop in here (link.c has them), so that tests and the
 * fuzzer drive it alone. Any thread; one at a time per connection.
 *
 * Keys. Each attempt of a run has a key pair of the controller's, and each host's agent
 * makes one of its own; private keys never leave their process. Only public keys cross the
 * launcher's channel: the controller's in the environment of the agents, an agent's in a line that
 * it prints (keyring.h). A sniffer of that channel learns nothing that helps it to join or to read.
 * If the operator put the same secret file on every host (--secret-file), its hash is an input too,
 * and then even an attacker who changes what the launcher carries gets nowhere.
 *
 * Before the proof only messages of fixed size are read. All numbers little-endian:
 *
 *   challenge   controller -> host   48 bytes   "UNISONO\4", 32 ephemeral public key,
 *                                               u8 flags (1: sealed), 7 zero
 *   hello       host -> controller  136 bytes   "UNISONO\5", 16 job, 32 ephemeral public key,
 *                                               32 the agent's public key,
 *                                               u32 role (2: host agent), u32 rank,
 *                                               u32 attempt, u32 flags, 32 proof
 *   reply       controller -> host   40 bytes   "UNISONO\6", 32 proof
 *
 * Three X25519 exchanges (ephemeral with ephemeral, controller's with the host's ephemeral, agent's
 * with the controller's ephemeral) go with the controller's public key, the challenge and the hello
 * up to its proof into BLAKE2b, keyed with the secret file's hash. Proofs and the keys of both
 * directions are derived from the result. The ephemeral keys are fresh for each connection and
 * wiped when it stands: neither a captured greeting nor a key that is stolen later opens an earlier
 * connection.
 *
 * Then each direction is a secretstream (XChaCha20-Poly1305): 24 bytes of header, then frames. A
 * frame is u8 type and payload. Sealed: u32 size, that many sealed bytes. With --no-seal: u32 size,
 * the frame as it is, then the 17 bytes of an empty message that authenticates it. Either way a
 * frame that was changed, repeated, reordered or left out ends the connection.
 */
#ifndef UNISONO_GROUP_SECURE_H
#define UNISONO_GROUP_SECURE_H

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

#include "base/text.h"

#define UNI__KEY_BYTES 32
#define UNI__JOB_BYTES 16
#define UNI__CHALLENGE_BYTES 48
#define UNI__HELLO_BYTES 136
#define UNI__REPLY_BYTES 40
#define UNI__SECURE_FRAME_MAX ((1u << 20) + 4096u)

struct uni__keyring;

typedef struct uni__credentials {
    uint8_t job[UNI__JOB_BYTES];
    /* Of the run: agents of an earlier one are refused. */
    uint32_t attempt;
    bool seal;
    /* This side's own pair. */
    uint8_t public_key[UNI__KEY_BYTES], private_key[UNI__KEY_BYTES];
    /* A host's: the key that the controller must have. */
    uint8_t controller_key[UNI__KEY_BYTES];
    /* Hash of the operator's secret file; zero without one. */
    uint8_t secret[UNI__KEY_BYTES];
    /* The controller's: the agents that announced themselves so far. It must live as long as its
     * connections. */
    const struct uni__keyring *ring;
} uni__credentials;

typedef enum uni__secure_stage {
    UNI__SECURE_GREETING, /* the controller waits for hello, the host for the challenge */
    UNI__SECURE_REPLY, /* the host waits for the reply */
    UNI__SECURE_HEADER, /* both are proved; the peer's stream header is missing */
    UNI__SECURE_READY
} uni__secure_stage;

typedef struct uni__secure {
    uni__credentials credentials;
    bool is_controller;
    uint32_t rank; /* the host's first rank */
    uni__secure_stage stage;
    /* Controller: a whole hello is here, but its key was not announced yet. Feed nothing to try
     * again. */
    bool unannounced;
    uint8_t challenge[UNI__CHALLENGE_BYTES], hello[UNI__HELLO_BYTES];
    uint8_t ephemeral[UNI__KEY_BYTES]; /* private; wiped when the connection stands */
    uint8_t root[UNI__KEY_BYTES]; /* as well */
    uni__text in, out; /* out: for the caller to send and clear */
    uni__text opened, plain; /* the last frame that came; the next one to seal */
    size_t consumed; /* of in */
    uint64_t frames; /* that came */
    crypto_secretstream_xchacha20poly1305_state push, pull;
} uni__secure;

/* A fresh pair of keys, and a fresh job. */
int uni__credentials_new(uni__credentials *out, uni_error *err) UNI_MUST_USE;
/* A pair for an agent; the rest stays. */
int uni__credentials_make_pair(uni__credentials *credentials, uni_error *err) UNI_MUST_USE;
/* Mixes the operator's file in: at least 32 bytes, its owner's alone (mode 0600 or less). */
int uni__credentials_read_secret(uni__credentials *credentials, const char *path,
                                 uni_error *err) UNI_MUST_USE;

int uni__secure_begin(uni__secure *secure, bool is_controller, const uni__credentials *credentials,
                      uint32_t rank, uni_error *err) UNI_MUST_USE;
void uni__secure_end(uni__secure *secure); /* wipes the keys */
static inline bool uni__secure_is_ready(const uni__secure *secure)
{
    return secure->stage == UNI__SECURE_READY;
}
/* Takes in what came. UNI_EPERMISSION when the other side did not prove itself: close at once, send
 * nothing. */
int uni__secure_feed(uni__secure *secure, const void *data, size_t size,
                     uni_error *err) UNI_MUST_USE;
/* The next whole frame: 1, 0 for none yet, or an error. The payload is valid until the next
 * call. */
int uni__secure_next(uni__secure *secure, int *type, const uint8_t **payload, size_t *size,
                     uni_error *err) UNI_MUST_USE;
/* Appends a frame to `out`: head and payload behind each other. */
int uni__secure_pack(uni__secure *secure, int type, const void *head, size_t head_size,
                     const void *payload, size_t size, uni_error *err) UNI_MUST_USE;

#endif
