/*
 * kernels.c - selects the kernels for this machine, and reduces many inputs into many outputs.
 *
 * Inputs are processed in blocks that stay in the first-level cache, always in rank order. This is
 * the only place that decides the order of floating-point additions. Any thread.
 */
#include "comm/kernels.h"

#include <math.h>
#include <string.h>

#define BLOCK_BYTES 4096

const uni__kernels *uni__kernels_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return &uni__kernels_avx2;
#endif
    return &uni__kernels_base;
}

int uni__kernel_type(uni_dtype dtype)
{
    static const uni_dtype types[UNI__KERNEL_TYPES] = { UNI_F32,  UNI_F64, UNI_F16,
                                                        UNI_BF16, UNI_I32, UNI_I64,
                                                        UNI_U8,   UNI_I8,  UNI_I16 };
    for (int i = 0; i < UNI__KERNEL_TYPES; i++)
        if (types[i] == dtype)
            return i;
    return -1;
}

/* The mean is a sum that is divided at the end. */
static int kernel_op(uni_comm_op op)
{
    switch (op) {
    case UNI_COMM_MIN:
        return 1;
    case UNI_COMM_MAX:
        return 2;
    case UNI_COMM_PRODUCT:
        return 3;
    case UNI_COMM_AND:
        return 4;
    case UNI_COMM_OR:
        return 5;
    case UNI_COMM_XOR:
        return 6;
    default:
        return 0;
    }
}

bool uni__kernel_reduces(uni_dtype dtype, uni_comm_op op)
{
    int type = uni__kernel_type(dtype);
    return type >= 0 && (op != UNI_COMM_MEAN || type < UNI__KERNEL_FLOATS) &&
           uni__kernels_base.combine[type][kernel_op(op)] != NULL;
}

static const void *at(const void *base, size_t offset)
{
    return (const char *)base + offset;
}

/* Reduces one block. All but the last input accumulate in `partial`, because an output may be an
 * input that is still needed. */
static void reduce_block(const uni__kernels *kernels, uni_dtype dtype, uni_comm_op op,
                         double divisor, const void *const *in, int num_in, void *const *out,
                         int num_out, size_t begin, size_t n)
{
    _Alignas(64) char partial[BLOCK_BYTES];
    size_t size = uni_dtype_size(dtype), offset = begin * size;
    int type = uni__kernel_type(dtype);
    uni__combine combine = kernels->combine[type][kernel_op(op)];
    char *first = (char *)out[0] + offset;
    const void *left = at(in[0], offset);
    for (int i = 1; i + 1 < num_in; i++) {
        combine(partial, left, at(in[i], offset), n);
        left = partial;
    }
    if (num_in > 1)
        combine(first, left, at(in[num_in - 1], offset), n);
    else
        memmove(first, left, n * size);
    if (divisor != 0 && divisor != 1)
        kernels->divide[type](first, divisor, n);
    for (int o = 1; o < num_out; o++)
        kernels->copy((char *)out[o] + offset, first, n * size);
}

void uni__reduce_many(const uni__kernels *kernels, uni_dtype dtype, uni_comm_op op, double divisor,
                      const void *const *in, int num_in, void *const *out, int num_out,
                      size_t count)
{
    int type = uni__kernel_type(dtype);
    bool plain = divisor == 0 || divisor == 1;
    if (type < 0 || num_out == 0 || count == 0)
        return;
    if (num_in == 2 && num_out == 1 && plain) {
        kernels->combine[type][kernel_op(op)](out[0], in[0], in[1], count);
        return;
    }
    if (num_in == 2 && num_out == 2 && type < 2 && kernel_op(op) == 0 && plain) {
        kernels->combine2[type](out[0], out[1], in[0], in[1], count);
        return;
    }
    size_t block = BLOCK_BYTES / uni_dtype_size(dtype);
    for (size_t done = 0; done < count; done += block)
        reduce_block(kernels, dtype, op, divisor, in, num_in, out, num_out, done,
                     count - done < block ? count - done : block);
}
