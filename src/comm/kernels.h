/*
 * kernels.h - elementwise reductions: dst[i] = a[i] op b[i], for nine types and seven operations
 * (the bitwise ones for integers only).
 *
 * Each element is one operation in operand order and nothing is reassociated, so the plain build
 * and the AVX2 build give the same bits. dst may be a or b. Used by this module only.
 */
#ifndef UNISONO_COMM_KERNELS_H
#define UNISONO_COMM_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <unisono/comm.h>

typedef void (*uni__combine)(void *dst, const void *a, const void *b, size_t n);
/* Stores a op b in both dst and dst2: one pass for two ranks in place. */
typedef void (*uni__combine2)(void *dst, void *dst2, const void *a, const void *b, size_t n);
/* data[i] = data[i] / divisor */
typedef void (*uni__divide)(void *data, double divisor, size_t n);

/* The first two types are float32 and float64, the first four the floats. */
#define UNI__KERNEL_TYPES 9
#define UNI__KERNEL_FLOATS 4
#define UNI__KERNEL_OPS 7

typedef struct uni__kernels {
    const char *name; /* "base", "avx2" */
    /* By uni__kernel_type and uni__kernel_op; NULL: no such reduction. */
    uni__combine combine[UNI__KERNEL_TYPES][UNI__KERNEL_OPS];
    uni__combine2 combine2[2]; /* sum of float32 and float64 */
    uni__divide divide[UNI__KERNEL_FLOATS];
    /* memcpy by plain vector moves. glibc uses "rep movsb" from 2 KiB on, which is several times
     * slower into lines that another core holds (measured: docs/collectives.md). */
    void (*copy)(void *dst, const void *src, size_t bytes);
} uni__kernels;

extern const uni__kernels uni__kernels_base, uni__kernels_avx2;

/* The fastest for this machine. */
const uni__kernels *uni__kernels_best(void);
/* Row of `combine`, or -1 when this type cannot be reduced. */
int uni__kernel_type(uni_dtype dtype);
/* Whether elements of this type can be reduced so: the bitwise operations need integers, and only
 * floats have a mean. */
bool uni__kernel_reduces(uni_dtype dtype, uni_comm_op op);

/* out[o][i] = in[0][i] op ... op in[n-1][i], divided by divisor unless that is 0 or 1, for all
 * outputs. An output may be one of the inputs, at the same address. */
void uni__reduce_many(const uni__kernels *kernels, uni_dtype dtype, uni_comm_op op, double divisor,
                      const void *const *in, int num_in, void *const *out, int num_out,
                      size_t count);

/* Requests lines that another core holds and that will be written here, all at once, before the
 * first is needed. Call it with a few KiB at a time: a core has a limited number of requests under
 * way. */
static inline void uni__claim_lines(void *data, size_t bytes)
{
#if defined(__x86_64__)
    for (size_t i = 0; i < bytes; i += 64)
        __asm__ volatile("prefetchw %0" : : "m"(((char *)data)[i]));
#endif
}

#endif
