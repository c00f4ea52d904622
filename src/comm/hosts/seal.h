/*
 * seal.h - seals what MPI or UCX carries between hosts (`--encrypt`): XChaCha20-Poly1305 with a key
 * that the controller made for this attempt.
 *
 * A sealed message is the ciphertext, a 16-byte tag and a random 24-byte nonce. Its place
 * (communicator, kind, sender, receiver, number of the call and piece) is authenticated too, so a
 * message that is repeated, reordered or redirected does not open. Called on the communicator's
 * thread.
 */
#ifndef UNISONO_COMM_SEAL_H
#define UNISONO_COMM_SEAL_H

#include <unisono/status.h>

#include "comm/hosts/carrier.h"

#define UNI__DATA_KEY_BYTES 32

int uni__seal_new(uni__seal **out, const uint8_t key[UNI__DATA_KEY_BYTES],
                  uni_error *err) UNI_MUST_USE;
void uni__seal_free(uni__seal *seal); /* wipes the key */

#endif
