/*
 * secure.h - a connection between hosts: proof of the job's secret both ways, then frames, sealed if asked for.
 *
 * Bytes in, bytes out: no socket and no loop in here (link.c has them), so that tests and the fuzzer drive it alone. Any thread; one at a
 * time per connection.
 *
 * The secret (32 random bytes) is made by the controller for each run and reaches the hosts in the launcher's environment. Before it is proved
 * nothing but fixed-size messages is read. All numbers little-endian:
 *
 *   challenge, controller -> host, 48 bytes:  "UNISONO\1", 32 nonce, u8 flags (1: encrypted), 7 zero
 *   hello,     host -> controller, 104 bytes: "UNISONO\2", 16 job, 32 nonce, u32 role (2: host agent), u32 rank, u32 attempt, u32 flags, 32 proof
 *   reply,     controller -> host, 40 bytes:  "UNISONO\3", 32 proof
 *
 * The host's proof is HMAC-SHA256 under the secret of a label, the challenge and the hello up to the proof; the controller's is that of another
 * label, the challenge and the whole hello. Both nonces, job, role, rank and attempt are thus in both proofs: nothing can be replayed or
 * reflected. Comparisons take constant time.
 *
 * Then frames: u32 size, u8 type, payload (size counts both). Encrypted: each direction has a key of its own (HMAC of a label, challenge and
 * hello) and is a secretstream (XChaCha20-Poly1305): first its 24 bytes of header, then u32 size and that many sealed bytes a frame.
 */
#ifndef UNISONO_GROUP_SECURE_H
#define UNISONO_GROUP_SECURE_H

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

#include "base/text.h"

#define UNI__SECRET_BYTES 32
#define UNI__JOB_BYTES 16
#define UNI__CHALLENGE_BYTES 48
#define UNI__HELLO_BYTES 104
#define UNI__REPLY_BYTES 40
#define UNI__SECURE_FRAME_MAX ((1u << 20) + 4096u)

typedef struct uni__credentials {
    uint8_t secret[UNI__SECRET_BYTES], job[UNI__JOB_BYTES];
    uint32_t attempt; /* of the run: agents of an earlier one are refused */
    bool encrypt;
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
    uint8_t challenge[UNI__CHALLENGE_BYTES], hello[UNI__HELLO_BYTES];
    uni__text in, out; /* out: for the caller to send and clear */
    uni__text opened, plain; /* the last frame that came; the next one to seal */
    size_t consumed; /* of in */
    crypto_secretstream_xchacha20poly1305_state push, pull;
} uni__secure;

/* A fresh secret and job. */
int uni__credentials_new(uni__credentials *out, uni_error *err) UNI_MUST_USE;
/* "SECRET" as hex, at least 65 bytes; and back. */
void uni__secret_to_text(const uni__credentials *credentials, char out[65]);
int uni__secret_from_text(uni__credentials *credentials, const char *text,
                          uni_error *err) UNI_MUST_USE;

int uni__secure_begin(uni__secure *secure, bool is_controller, const uni__credentials *credentials,
                      uint32_t rank, uni_error *err) UNI_MUST_USE;
void uni__secure_end(uni__secure *secure); /* wipes the keys */
static inline bool uni__secure_is_ready(const uni__secure *secure)
{
    return secure->stage == UNI__SECURE_READY;
}
/* Takes in what came. UNI_EPERMISSION when the other side did not prove itself: close at once, send nothing. */
int uni__secure_feed(uni__secure *secure, const void *data, size_t size,
                     uni_error *err) UNI_MUST_USE;
/* The next whole frame: 1, 0 for none yet, or an error. The payload is valid until the next call. */
int uni__secure_next(uni__secure *secure, int *type, const uint8_t **payload, size_t *size,
                     uni_error *err) UNI_MUST_USE;
/* Appends a frame to `out`: head and payload behind each other. */
int uni__secure_pack(uni__secure *secure, int type, const void *head, size_t head_size,
                     const void *payload, size_t size, uni_error *err) UNI_MUST_USE;

#endif
