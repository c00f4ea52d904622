/*
 * seal.h - sealing of what MPI carries between hosts (`--encrypt`): XChaCha20-Poly1305 with a key that the controller made for this attempt.
 *
 * A sealed message is the cipher text, 16 bytes of tag and 24 of a random nonce. Where it belongs (communicator, kind, sender, receiver, number of the call and piece) is authenticated
 * with it, so that a message that is repeated, reordered or sent elsewhere does not open. The communicator's thread.
 */
#ifndef UNISONO_COMM_MPI_SEAL_H
#define UNISONO_COMM_MPI_SEAL_H

#include <unisono/status.h>

#include "comm/mpi/plugin.h"

#define UNI__DATA_KEY_BYTES 32

int uni__mpi_seal_new(uni__mpi_seal **out, const uint8_t key[UNI__DATA_KEY_BYTES],
                      uni_error *err) UNI_MUST_USE;
void uni__mpi_seal_free(uni__mpi_seal *seal); /* wipes the key */

#endif
