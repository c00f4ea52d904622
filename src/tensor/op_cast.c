/*
 * op_cast.c - conversions between element types: cast, comparisons, where, stop_gradient; and index
 * tensors read as int64. Called by the tape's thread.
 */
#include <math.h>
#include <string.h>
#include "tensor/internal.h"

/* Every numeric type goes through double. 64-bit integers above 2^53 are only compared and
 * gathered, never computed with. */
#define READ(TYPE)                                                                                 \
    for (size_t i = 0; i < n; i++)                                                                 \
    out[i] = (double)((const TYPE *)data)[i]

static bool read_doubles(const uni_tensor *x, size_t first, size_t n, double *out)
{
    const char *data = (const char *)x->data + first * uni_dtype_size(x->dtype);
    switch ((int)x->dtype) {
    case UNI_F32:
        READ(float);
        return true;
    case UNI_F64:
        READ(double);
        return true;
    case UNI_I8:
        READ(int8_t);
        return true;
    case UNI_I16:
        READ(int16_t);
        return true;
    case UNI_I32:
        READ(int32_t);
        return true;
    case UNI_I64:
        READ(int64_t);
        return true;
    case UNI_U8:
    case UNI_B8:
        READ(uint8_t);
        return true;
    case UNI_U16:
        READ(uint16_t);
        return true;
    case UNI_U32:
        READ(uint32_t);
        return true;
    case UNI_U64:
        READ(uint64_t);
        return true;
    default:
        return false;
    }
}

/* Saturates values out of range, and turns NaN into 0, to avoid an undefined conversion. */
static int64_t to_integer(double x, double low, double high)
{
    if (isnan(x))
        return 0;
    return x <= low    ? (int64_t)low
           : x >= high ? (high >= 9.2e18 ? INT64_MAX : (int64_t)high)
                       : (int64_t)x;
}

#define WRITE_INT(TYPE, LOW, HIGH)                                                                 \
    for (size_t i = 0; i < n; i++)                                                                 \
    ((TYPE *)data)[i] = (TYPE)to_integer(in[i], LOW, HIGH)

static bool write_doubles(uni_tensor *y, size_t first, size_t n, const double *in)
{
    char *data = (char *)y->data + first * uni_dtype_size(y->dtype);
    switch ((int)y->dtype) {
    case UNI_F32:
        for (size_t i = 0; i < n; i++)
            ((float *)(void *)data)[i] = (float)in[i];
        return true;
    case UNI_F64:
        memcpy(data, in, n * sizeof(double));
        return true;
    case UNI_I8:
        WRITE_INT(int8_t, INT8_MIN, INT8_MAX);
        return true;
    case UNI_I16:
        WRITE_INT(int16_t, INT16_MIN, INT16_MAX);
        return true;
    case UNI_I32:
        WRITE_INT(int32_t, INT32_MIN, INT32_MAX);
        return true;
    case UNI_I64:
        WRITE_INT(int64_t, -9.3e18, 9.3e18);
        return true;
    case UNI_U8:
        WRITE_INT(uint8_t, 0, UINT8_MAX);
        return true;
    case UNI_B8:
        for (size_t i = 0; i < n; i++)
            data[i] = in[i] != 0;
        return true;
    default:
        return false;
    }
}

#define BLOCK 512

static bool convert(const uni_tensor *x, uni_tensor *y)
{
    double block[BLOCK];
    for (size_t first = 0; first < x->count; first += BLOCK) {
        size_t n = x->count - first < BLOCK ? x->count - first : BLOCK;
        if (!read_doubles(x, first, n, block) || !write_doubles(y, first, n, block))
            return false;
    }
    return true;
}

/* Images are u8: the one conversion that every step needs. */
static void bytes_to_floats(const uint8_t *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i];
}

uni_tensor *uni_op_cast(uni_tape *tape, uni_tensor *x, uni_dtype dtype)
{
    if (!x || tape->error.code)
        return NULL;
    if (x->dtype == dtype)
        return x;
    uni_tensor *out = dtype == UNI_STRING ? NULL : uni__new(tape, dtype, x->ndim, x->shape);
    if (out && dtype == UNI_F32 && x->dtype == UNI_U8) {
        bytes_to_floats(x->data, f32(out), x->count);
        return out;
    }
    if (!out || x->dtype == UNI_STRING || (x->count && !convert(x, out)))
        return uni_tape_fail(tape, UNI_EDTYPE, "cast: %s of shape %s cannot become %s",
                             x->dtype == UNI_STRING ? "text" : uni_dtype_name(x->dtype),
                             uni__shape(tape, x),
                             dtype == UNI_STRING ? "text" : uni_dtype_name(dtype));
    return out;
}

uni_tensor *uni__as_f32(uni_tape *tape, uni_tensor *x)
{
    return uni_op_cast(tape, x, UNI_F32);
}

uni_tensor *uni_op_stop_gradient(uni_tape *tape, uni_tensor *x)
{
    return x && !tape->error.code ? uni__new_view(tape, x->dtype, x->ndim, x->shape, x->data)
                                  : NULL;
}

const int64_t *uni__indices(uni_tape *tape, const char *operation, const uni_tensor *ids)
{
    if (!ids || tape->error.code)
        return NULL;
    if (ids->dtype == UNI_I64)
        return ids->data ? ids->data : uni__scratch(tape, 1);
    int64_t *out = uni__scratch(tape, ids->count * sizeof *out);
    if (!out)
        return NULL;
    if (ids->dtype == UNI_I32) {
        for (size_t i = 0; i < ids->count; i++)
            out[i] = ((const int32_t *)ids->data)[i];
        return out;
    }
    double block[BLOCK];
    for (size_t first = 0; first < ids->count; first += BLOCK) {
        size_t n = ids->count - first < BLOCK ? ids->count - first : BLOCK;
        if (ids->dtype == UNI_STRING || !read_doubles(ids, first, n, block)) {
            uni_tape_fail(tape, UNI_EDTYPE, "%s: indices must be whole numbers, not %s", operation,
                          ids->dtype == UNI_STRING ? "text" : uni_dtype_name(ids->dtype));
            return NULL;
        }
        for (size_t i = 0; i < n; i++) {
            if (!(fabs(block[i]) < 9e15) || floor(block[i]) != block[i]) {
                uni_tape_fail(tape, UNI_EINVAL,
                              "%s: index %g at position %zu is not a whole number", operation,
                              block[i], first + i);
                return NULL;
            }
            out[first + i] = (int64_t)block[i];
        }
    }
    return out;
}

/* ---- comparisons and where: broadcast by index, because they are not performance-critical ---- */

static bool broadcast(int count, uni_tensor *const *tensors, int *ndim, int64_t *shape)
{
    *ndim = 0;
    for (int t = 0; t < count; t++)
        *ndim = tensors[t]->ndim > *ndim ? tensors[t]->ndim : *ndim;
    for (int i = 0; i < *ndim; i++) {
        shape[i] = 1;
        for (int t = 0; t < count; t++) {
            int k = i - (*ndim - tensors[t]->ndim);
            int64_t n = k < 0 ? 1 : tensors[t]->shape[k];
            if (n != 1 && shape[i] != 1 && n != shape[i])
                return false;
            shape[i] = n == 1 ? shape[i] : n;
        }
    }
    return true;
}

static size_t source_index(const uni_tensor *x, int ndim, const int64_t *shape, size_t index)
{
    size_t offset = 0, stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        size_t k = index % (size_t)shape[i];
        int own = i - (ndim - x->ndim);
        index /= (size_t)shape[i];
        if (own < 0)
            continue;
        if (x->shape[own] != 1)
            offset += k * stride;
        stride *= (size_t)x->shape[own];
    }
    return offset;
}

static bool holds(uni_compare kind, double a, double b)
{
    switch (kind) {
    case UNI_COMPARE_EQUAL:
        return a == b;
    case UNI_COMPARE_NOT_EQUAL:
        return a != b;
    case UNI_COMPARE_LESS:
        return a < b;
    case UNI_COMPARE_LESS_EQUAL:
        return a <= b;
    case UNI_COMPARE_GREATER:
        return a > b;
    default:
        return a >= b;
    }
}

uni_tensor *uni_op_compare(uni_tape *tape, uni_compare kind, uni_tensor *a, uni_tensor *b)
{
    int ndim = 0;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    if (!a || !b || tape->error.code)
        return NULL;
    double probe;
    if (a->dtype != b->dtype || a->dtype == UNI_STRING ||
        (a->count && !read_doubles(a, 0, 1, &probe)))
        return uni_tape_fail(tape, UNI_EDTYPE,
                             "compare: %s against %s; both must be the same type of number",
                             a->dtype == UNI_STRING ? "text" : uni_dtype_name(a->dtype),
                             b->dtype == UNI_STRING ? "text" : uni_dtype_name(b->dtype));
    if (!broadcast(2, (uni_tensor *[]){ a, b }, &ndim, shape))
        return uni_tape_fail(tape, UNI_ESHAPE, "compare: shapes %s and %s do not fit together",
                             uni__shape(tape, a), uni__shape(tape, b));
    uni_tensor *out = uni__new(tape, UNI_B8, ndim, shape);
    for (size_t i = 0; out && i < out->count; i++) {
        double p, q;
        read_doubles(a, source_index(a, ndim, shape, i), 1, &p);
        read_doubles(b, source_index(b, ndim, shape, i), 1, &q);
        ((uint8_t *)out->data)[i] = holds(kind, p, q);
    }
    return out;
}

static void where_backward(uni_tape *tape, uni__node *node)
{
    const uni_tensor *condition = node->inputs[0], *out = node->out;
    for (int side = 1; side <= 2; side++) {
        uni_tensor *x = node->inputs[side];
        bool add = false;
        float *target = uni__gradient_target(tape, x, &add);
        if (!target)
            continue;
        if (!add)
            memset(target, 0, x->count * sizeof(float));
        for (size_t i = 0; i < out->count; i++) {
            bool yes = ((const uint8_t *)
                            condition->data)[source_index(condition, out->ndim, out->shape, i)];
            if (yes == (side == 1))
                target[source_index(x, out->ndim, out->shape, i)] += out->gradient[i];
        }
    }
}

uni_tensor *uni_op_where(uni_tape *tape, uni_tensor *condition, uni_tensor *a, uni_tensor *b)
{
    int ndim = 0;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    if (!condition || !uni__check_f32(tape, "where", a) || !uni__check_f32(tape, "where", b))
        return NULL;
    if (condition->dtype != UNI_B8 && condition->dtype != UNI_U8)
        return uni_tape_fail(tape, UNI_EDTYPE, "where: the condition must be bool, not %s",
                             uni_dtype_name(condition->dtype));
    uni_tensor *inputs[3] = { condition, a, b };
    if (!broadcast(3, inputs, &ndim, shape))
        return uni_tape_fail(tape, UNI_ESHAPE, "where: shapes %s, %s and %s do not fit together",
                             uni__shape(tape, condition), uni__shape(tape, a), uni__shape(tape, b));
    uni_tensor *out = uni__new(tape, UNI_F32, ndim, shape);
    for (size_t i = 0; out && i < out->count; i++) {
        bool yes = ((const uint8_t *)condition->data)[source_index(condition, ndim, shape, i)];
        const uni_tensor *from = yes ? a : b;
        f32(out)[i] = f32(from)[source_index(from, ndim, shape, i)];
    }
    uni__tape_record(tape, "where", out, 3, inputs, where_backward, 0);
    return out;
}
