/* seal.c - see seal.h. */
#include "comm/hosts/seal.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define NONCE crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define TAG crypto_aead_xchacha20poly1305_ietf_ABYTES
/* Nonces are drawn from the kernel in batches. */
#define NONCES 64

typedef struct sealing {
    uint8_t key[UNI__DATA_KEY_BYTES], nonces[NONCES][NONCE];
    int left;
} sealing;

static void seal(void *context, const uni__seal_place *place, void *out, const void *in,
                 size_t size)
{
    sealing *it = context;
    if (it->left == 0) {
        randombytes_buf(it->nonces, sizeof it->nonces);
        it->left = NONCES;
    }
    const uint8_t *nonce = it->nonces[--it->left];
    uint8_t *bytes = out;
    crypto_aead_xchacha20poly1305_ietf_encrypt(bytes, NULL, in, size, (const uint8_t *)place,
                                               sizeof *place, NULL, nonce, it->key);
    memcpy(bytes + size + TAG, nonce, NONCE);
}

static int unseal(void *context, const uni__seal_place *place, void *out, const void *in,
                  size_t size)
{
    const sealing *it = context;
    const uint8_t *bytes = in;
    return crypto_aead_xchacha20poly1305_ietf_decrypt(out, NULL, NULL, bytes, size + TAG,
                                                      (const uint8_t *)place, sizeof *place,
                                                      bytes + size + TAG, it->key);
}

int uni__seal_new(uni__seal **out, const uint8_t key[UNI__DATA_KEY_BYTES], uni_error *err)
{
    _Static_assert(TAG + NONCE <= UNI__SEAL_MAX, "room for both");
    _Static_assert(sizeof(uni__seal_place) == 40, "no padding is authenticated");
    uni__seal *made = calloc(1, sizeof *made);
    sealing *it = calloc(1, sizeof *it);
    *out = NULL;
    if (!made || !it || sodium_init() < 0) {
        free(made);
        free(it);
        return uni_error_set(err, UNI_ENOMEM, "no memory to seal what goes to other hosts");
    }
    memcpy(it->key, key, sizeof it->key);
    *made = (uni__seal){ .context = it, .extra = TAG + NONCE, .seal = seal, .open = unseal };
    *out = made;
    return 0;
}

void uni__seal_free(uni__seal *made)
{
    if (!made)
        return;
    sodium_memzero(made->context, sizeof(sealing));
    free(made->context);
    free(made);
}
