/*
 * random.c - Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
 * 3", SC 2011), and a keyed permutation.
 *
 * The permutation is an alternating Feistel network on the b bits that n needs, split into two
 * parts of floor(b/2) and ceil(b/2) bits. Each round changes one part by a hash of the other, so
 * each round (and all of them together) is a bijection of [0, 2^b). Values at or above n go through
 * again ("cycle walking"). The walk follows a cycle of a bijection, so it returns below n, and
 * since 2^b < 2n that takes fewer than two tries on average. Pure functions; any thread.
 */
#include <errno.h>
#include <math.h>
#include <sys/random.h>
#include <unisono/status.h>
#include "base/clock.h"
#include "base/random.h"

#define PHILOX_ROUNDS 10
#define PERMUTE_ROUNDS 8

void uni__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void block(uint64_t key, uint64_t stream, uint64_t index, uint32_t out[4])
{
    const uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                                  (uint32_t)(stream >> 32) };
    const uint32_t words[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    uni__philox(counter, words, out);
}

uint64_t uni__random_u64(uint64_t key, uint64_t stream, uint64_t index)
{
    uint32_t out[4];
    block(key, stream, index, out);
    return (uint64_t)out[1] << 32 | out[0];
}

double uni__random_unit(uint64_t key, uint64_t stream, uint64_t index)
{
    return (double)(uni__random_u64(key, stream, index) >> 11) * 0x1p-53;
}

double uni__random_normal(uint64_t key, uint64_t stream, uint64_t index)
{
    uint32_t out[4];
    block(key, stream, index, out);
    /* Box-Muller. The radius needs (0, 1]: log(0) would be infinite. */
    uint64_t radius_bits = ((uint64_t)out[1] << 32 | out[0]) >> 11;
    uint64_t angle_bits = ((uint64_t)out[3] << 32 | out[2]) >> 11;
    double radius = sqrt(-2.0 * log((double)(radius_bits + 1) * 0x1p-53));
    return radius * cos(6.283185307179586476925 * ((double)angle_bits * 0x1p-53));
}

/* The finalizer of splitmix64: every input bit changes every output bit with probability about
 * 1/2. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* The function of one round. Round and half (at most 32 bits) must not overlap: with half + round
 * the rounds are shifted copies of one function and partly cancel out, which showed as too many
 * fixed points. */
static uint64_t hash_half(uint64_t seed, uint64_t round, uint64_t half)
{
    return mix(mix((round + 1) << 32 | half) ^ seed);
}

/* How the bits of an index below n are split. */
struct halves {
    int low_bits;
    uint64_t low_mask, high_mask;
};

static struct halves halve(uint64_t n)
{
    int bits = 64 - __builtin_clzll(n - 1);
    int low_bits = (bits + 1) / 2;
    return (struct halves){ .low_bits = low_bits,
                            .low_mask = ((uint64_t)1 << low_bits) - 1,
                            .high_mask = ((uint64_t)1 << (bits - low_bits)) - 1 };
}

uint64_t uni__random_permute(uint64_t key, uint64_t n, uint64_t index)
{
    if (n < 2)
        return 0;
    const struct halves h = halve(n);
    uint64_t low = index & h.low_mask, high = (index >> h.low_bits) & h.high_mask;
    uint64_t seed = mix(key + 0x9E3779B97F4A7C15u);
    do {
        for (uint64_t round = 0; round < PERMUTE_ROUNDS; round += 2) {
            low ^= hash_half(seed, round, high) & h.low_mask;
            high ^= hash_half(seed, round + 1, low) & h.high_mask;
        }
    } while ((high << h.low_bits | low) >= n);
    return high << h.low_bits | low;
}

/* Each round depends on the previous one, so a single index leaves most of the machine idle.
 * Several go through the rounds side by side, and an index that must walk on (its number is not
 * below n) goes along with the next ones. */
void uni__random_permute_all(uint64_t key, uint64_t n, uint64_t *indices, size_t count)
{
    enum { LANES = 4 };
    uint64_t low[LANES] = { 0 }, high[LANES] = { 0 };
    size_t place[LANES] = { 0 }, next = 0, live = 0;
    uint64_t seed = mix(key + 0x9E3779B97F4A7C15u);
    const struct halves h = halve(n < 2 ? 2 : n);
    for (size_t i = 0; n < 2 && i < count; i++)
        indices[i] = 0;
    while (n >= 2 && (live > 0 || next < count)) {
        for (; live < LANES && next < count; live++, next++) {
            low[live] = indices[next] & h.low_mask;
            high[live] = (indices[next] >> h.low_bits) & h.high_mask;
            place[live] = next;
        }
        for (uint64_t round = 0; round < PERMUTE_ROUNDS; round += 2) {
#pragma GCC unroll 4
            for (int i = 0; i < LANES; i++)
                low[i] ^= hash_half(seed, round, high[i]) & h.low_mask;
#pragma GCC unroll 4
            for (int i = 0; i < LANES; i++)
                high[i] ^= hash_half(seed, round + 1, low[i]) & h.high_mask;
        }
        size_t through = live;
        live = 0;
        for (size_t i = 0; i < through; i++) {
            uint64_t number = high[i] << h.low_bits | low[i];
            if (number < n) {
                indices[place[i]] = number;
                continue;
            }
            low[live] = low[i];
            high[live] = high[i];
            place[live++] = place[i];
        }
    }
}

uint64_t uni__random_id(const void *object)
{
    uint64_t id;
    return uni__random_system(&id, sizeof id) == 0
               ? id
               : uni__monotonic_ns() ^ (uint64_t)(uintptr_t)object << 16;
}

int uni__random_system(void *out, size_t size)
{
    char *at = out;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return UNI_EIO;
        at += got;
        size -= (size_t)got;
    }
    return 0;
}
