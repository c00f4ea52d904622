/*
 * random.h - counter-based random numbers (Philox 4x32-10): the n-th number of a key is computed
 * directly, so results do not depend on the number of workers. Also a keyed permutation of [0, n)
 * in O(1) state. Pure functions; any thread.
 */
#ifndef UNISONO_BASE_RANDOM_H
#define UNISONO_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

UNI__SHARED void uni__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Uniform 64 bits for (key, stream, index); stream is for example (layer << 32 | step). */
UNI__SHARED uint64_t uni__random_u64(uint64_t key, uint64_t stream, uint64_t index);
double uni__random_unit(uint64_t key, uint64_t stream, uint64_t index); /* [0, 1), 53 bits */
double uni__random_normal(uint64_t key, uint64_t stream, uint64_t index); /* mean 0, variance 1 */
/* Position of `index` in a keyed permutation of [0, n): a bijection (Feistel with cycle
 * walking). */
uint64_t uni__random_permute(uint64_t key, uint64_t n, uint64_t index);
/* The same for each of `count` indices, in place: takes a third of the time per number. */
void uni__random_permute_all(uint64_t key, uint64_t n, uint64_t *indices, size_t count);
/* Bytes from the system's generator, for identities and secrets. */
UNI__SHARED int uni__random_system(void *out, size_t size);
/* 64 such bits that identify one object; from its address and the time if the system provides
 * none. */
UNI__SHARED uint64_t uni__random_id(const void *object);

#endif
