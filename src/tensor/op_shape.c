/*
 * op_shape.c - the same numbers in another shape or order: reshape, transpose, concat, slice,
 * split, pad, broadcast.
 *
 * Reshape and a slice of the first axis are views: they share memory, and the gradient of a reshape
 * is passed on without a copy. The others copy runs of adjacent floats. Called by the tape's
 * thread.
 */
#include <string.h>
#include "tensor/shared.h"
#include "tensor/internal.h"

/* ---- reshape ---- */

static void reshape_backward(uni_tape *tape, uni__node *node)
{
    uni__gradient_give(tape, node->inputs[0], uni__gradient_take(tape, node));
}

uni_tensor *uni_op_reshape(uni_tape *tape, uni_tensor *x, int ndim, const int64_t *shape)
{
    if (!x || tape->error.code)
        return NULL;
    int64_t wanted[UNI_TENSOR_MAX_DIMS], known = 1;
    int open = -1;
    bool good = ndim >= 0 && ndim <= UNI_TENSOR_MAX_DIMS;
    for (int i = 0; good && i < ndim; i++) {
        wanted[i] = shape[i];
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (shape[i] < 0 || __builtin_mul_overflow(known, shape[i], &known))
            good = false;
    }
    if (good && open >= 0) {
        good = known > 0 && (int64_t)x->count % known == 0;
        wanted[open] = good ? (int64_t)x->count / known : 0;
        known *= wanted[open];
    }
    if (!good || known != (int64_t)x->count) {
        char text[UNI__SHAPE_TEXT_SIZE];
        return uni_tape_fail(
            tape, UNI_ESHAPE, "reshape: %zu elements of shape %s do not fit into %s", x->count,
            uni__shape(tape, x),
            uni__shape_text(text, ndim > UNI_TENSOR_MAX_DIMS || ndim < 0 ? 0 : ndim, shape));
    }
    uni_tensor *out = uni__new_view(tape, x->dtype, ndim, wanted, x->data);
    uni__tape_record(tape, "reshape", out, 1, &x, reshape_backward, 0);
    return out;
}

/* ---- transpose ---- */

typedef struct order_payload {
    int ndim;
    int order[UNI_TENSOR_MAX_DIMS];
} order_payload;

typedef struct transpose_task {
    int ndim;
    int64_t size[UNI_TENSOR_MAX_DIMS], stride[UNI_TENSOR_MAX_DIMS]; /* of y's axes, in x */
    const float *x;
    float *y;
    bool add;
} transpose_task;

/* One item is a run of y's last axis. */
static void transpose_run(void *context, size_t begin, size_t end)
{
    const transpose_task *t = context;
    int last = t->ndim - 1;
    size_t n = (size_t)t->size[last];
    int64_t step = t->stride[last];
    for (size_t item = begin; item < end; item++) {
        int64_t offset = 0;
        size_t rest = item;
        for (int i = last - 1; i >= 0; i--) {
            offset += (int64_t)(rest % (size_t)t->size[i]) * t->stride[i];
            rest /= (size_t)t->size[i];
        }
        const float *from = t->x + offset;
        float *to = t->y + item * n;
        if (t->add)
            for (size_t i = 0; i < n; i++)
                to[i] += from[(int64_t)i * step];
        else if (step == 1)
            memcpy(to, from, n * sizeof(float));
        else
            for (size_t i = 0; i < n; i++)
                to[i] = from[(int64_t)i * step];
    }
}

static void transpose(uni_tape *tape, const float *x, const int64_t *shape, int ndim,
                      const int *order, float *y, bool add)
{
    int64_t strides[UNI_TENSOR_MAX_DIMS], stride = 1;
    transpose_task t = { .ndim = ndim, .x = x, .y = y, .add = add };
    size_t runs = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= shape[i];
    }
    for (int i = 0; i < ndim; i++) {
        t.size[i] = shape[order[i]];
        t.stride[i] = strides[order[i]];
        runs *= i < ndim - 1 ? (size_t)t.size[i] : 1;
    }
    double begin = uni__clock_begin(tape);
    if (t.size[ndim - 1])
        uni__for(tape, runs, 1, (double)t.size[ndim - 1], transpose_run, &t);
    uni__clock_end(tape, "transpose", begin, 0);
}

static void transpose_backward(uni_tape *tape, uni__node *node)
{
    const order_payload *data = (const order_payload *)node->payload;
    int inverse[UNI_TENSOR_MAX_DIMS];
    bool add = false;
    float *target = uni__gradient_target(tape, node->inputs[0], &add);
    for (int i = 0; i < data->ndim; i++)
        inverse[data->order[i]] = i;
    if (target)
        transpose(tape, node->out->gradient, node->out->shape, data->ndim, inverse, target, add);
}

uni_tensor *uni_op_transpose(uni_tape *tape, uni_tensor *x, const int *order)
{
    bool seen[UNI_TENSOR_MAX_DIMS] = { 0 };
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    if (!uni__check_f32(tape, "transpose", x))
        return NULL;
    for (int i = 0; i < x->ndim; i++) {
        if (order[i] < 0 || order[i] >= x->ndim || seen[order[i]])
            return uni_tape_fail(tape, UNI_EINVAL,
                                 "transpose: the order of axes is not a permutation of shape %s",
                                 uni__shape(tape, x));
        seen[order[i]] = true;
        shape[i] = x->shape[order[i]];
    }
    if (x->ndim == 0)
        return x;
    uni_tensor *out = uni__new(tape, UNI_F32, x->ndim, shape);
    if (!out)
        return NULL;
    transpose(tape, f32(x), x->shape, x->ndim, order, f32(out), false);
    order_payload *data =
        uni__tape_record(tape, "transpose", out, 1, &x, transpose_backward, sizeof *data);
    if (data) {
        data->ndim = x->ndim;
        memcpy(data->order, order, sizeof(int) * (size_t)x->ndim);
    }
    return out;
}

/* ---- concat, slice, split ---- */

typedef struct cut_payload {
    size_t outer, inner; /* inner: bytes or floats after the axis */
    int64_t begin, size, whole;
} cut_payload;

/* into[outer, size, inner] (+)= from[outer, begin .. begin + size, inner], and the reverse */
static void copy_cut(const float *from, float *into, const cut_payload *c, bool add)
{
    size_t run = (size_t)c->size * c->inner;
    for (size_t o = 0; o < c->outer; o++) {
        const float *source = from + (o * (size_t)c->whole + (size_t)c->begin) * c->inner;
        if (!add)
            memcpy(into + o * run, source, run * sizeof(float));
        else
            for (size_t i = 0; i < run; i++)
                into[o * run + i] += source[i];
    }
}

static void paste_cut(const float *from, float *into, const cut_payload *c, bool add)
{
    size_t run = (size_t)c->size * c->inner;
    for (size_t o = 0; o < c->outer; o++) {
        float *target = into + (o * (size_t)c->whole + (size_t)c->begin) * c->inner;
        if (!add)
            memcpy(target, from + o * run, run * sizeof(float));
        else
            for (size_t i = 0; i < run; i++)
                target[i] += from[o * run + i];
    }
}

static cut_payload cut_of(const uni_tensor *whole, int axis, int64_t begin, int64_t size)
{
    return (cut_payload){ .outer = (size_t)uni__shape_span(whole->shape, 0, axis),
                          .inner = (size_t)uni__shape_span(whole->shape, axis + 1, whole->ndim),
                          .begin = begin,
                          .size = size,
                          .whole = whole->shape[axis] };
}

static void concat_backward(uni_tape *tape, uni__node *node)
{
    int axis = *(const int *)node->payload;
    int64_t begin = 0;
    for (int i = 0; i < node->num_inputs; i++) {
        uni_tensor *part = node->inputs[i];
        cut_payload c = cut_of(node->out, axis, begin, part->shape[axis]);
        bool add = false;
        float *target = uni__gradient_target(tape, part, &add);
        if (target)
            copy_cut(node->out->gradient, target, &c, add);
        begin += part->shape[axis];
    }
}

uni_tensor *uni_op_concat(uni_tape *tape, int count, uni_tensor *const *tensors, int axis)
{
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    if (count < 1)
        return uni_tape_fail(tape, UNI_EINVAL, "concat of no tensors");
    for (int i = 0; i < count; i++)
        if (!uni__check_f32(tape, "concat", tensors[i]))
            return NULL;
    const uni_tensor *first = tensors[0];
    int at = uni__axis(tape, "concat", first, axis);
    if (at < 0)
        return NULL;
    memcpy(shape, first->shape, sizeof shape);
    for (int i = 1; i < count; i++) {
        bool fits = tensors[i]->ndim == first->ndim;
        for (int k = 0; fits && k < first->ndim; k++)
            fits = k == at || tensors[i]->shape[k] == first->shape[k];
        if (!fits)
            return uni_tape_fail(tape, UNI_ESHAPE,
                                 "concat along axis %d: shapes %s and %s do not fit together", axis,
                                 uni__shape(tape, first), uni__shape(tape, tensors[i]));
        shape[at] += tensors[i]->shape[at];
    }
    uni_tensor *out = uni__new(tape, UNI_F32, first->ndim, shape);
    if (!out)
        return NULL;
    int64_t begin = 0;
    for (int i = 0; i < count; i++) {
        cut_payload c = cut_of(out, at, begin, tensors[i]->shape[at]);
        paste_cut(f32(tensors[i]), f32(out), &c, false);
        begin += tensors[i]->shape[at];
    }
    int *data =
        uni__tape_record(tape, "concat", out, count, tensors, concat_backward, sizeof *data);
    if (data)
        *data = at;
    return out;
}

static void slice_backward(uni_tape *tape, uni__node *node)
{
    uni_tensor *x = node->inputs[0];
    bool add = false;
    float *target = uni__gradient_target(tape, x, &add);
    if (!target)
        return;
    if (!add)
        memset(target, 0, x->count * sizeof(float));
    paste_cut(node->out->gradient, target, (const cut_payload *)node->payload, true);
}

uni_tensor *uni_op_slice(uni_tape *tape, uni_tensor *x, int axis, int64_t begin, int64_t size)
{
    if (!x || tape->error.code)
        return NULL;
    int at = uni__axis(tape, "slice", x, axis);
    if (at < 0)
        return NULL;
    if (size == -1)
        size = x->shape[at] - begin;
    if (begin < 0 || size < 0 || begin > x->shape[at] || size > x->shape[at] - begin)
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "slice: %lld elements from %lld do not exist on axis %d of shape %s",
                             (long long)size, (long long)begin, axis, uni__shape(tape, x));
    cut_payload c = cut_of(x, at, begin, size);
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[at] = size;
    uni_tensor *out = NULL;
    if (c.outer == 1) {
        size_t element = x->dtype == UNI_STRING ? sizeof(uni_string) : uni_dtype_size(x->dtype);
        out = uni__new_view(tape, x->dtype, x->ndim, shape,
                            (char *)x->data + (size_t)begin * c.inner * element);
    } else if (uni__check_f32(tape, "slice of an axis other than the first", x)) {
        out = uni__new(tape, UNI_F32, x->ndim, shape);
        if (out)
            copy_cut(f32(x), f32(out), &c, false);
    }
    cut_payload *data = uni__tape_record(tape, "slice", out, 1, &x, slice_backward, sizeof *data);
    if (data)
        *data = c;
    return out;
}

/* ---- pad and broadcast ---- */

typedef struct pad_payload {
    int64_t before[UNI_TENSOR_MAX_DIMS];
} pad_payload;

/* The offset in `big` of run number `run` of x's last axis. */
static size_t padded_offset(const uni_tensor *x, const uni_tensor *big, const int64_t *before,
                            size_t run)
{
    size_t offset = 0, stride = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        size_t k = 0;
        if (i < x->ndim - 1) {
            k = run % (size_t)x->shape[i];
            run /= (size_t)x->shape[i];
        }
        offset += (k + (size_t)before[i]) * stride;
        stride *= (size_t)big->shape[i];
    }
    return offset;
}

static void pad_backward(uni_tape *tape, uni__node *node)
{
    const pad_payload *data = (const pad_payload *)node->payload;
    uni_tensor *x = node->inputs[0];
    bool add = false;
    float *target = uni__gradient_target(tape, x, &add);
    size_t n = x->count ? (size_t)x->shape[x->ndim - 1] : 0;
    for (size_t run = 0; target && n && run < x->count / n; run++) {
        const float *from = node->out->gradient + padded_offset(x, node->out, data->before, run);
        for (size_t i = 0; i < n; i++)
            target[run * n + i] = (add ? target[run * n + i] : 0) + from[i];
    }
}

uni_tensor *uni_op_pad(uni_tape *tape, uni_tensor *x, const int64_t *before, const int64_t *after,
                       float value)
{
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    if (!uni__check_f32(tape, "pad", x) || x->ndim == 0)
        return x;
    for (int i = 0; i < x->ndim; i++) {
        if (before[i] < 0 || after[i] < 0)
            return uni_tape_fail(tape, UNI_EINVAL, "pad: negative padding on axis %d of shape %s",
                                 i, uni__shape(tape, x));
        shape[i] = x->shape[i] + before[i] + after[i];
    }
    uni_tensor *out = uni__new(tape, UNI_F32, x->ndim, shape);
    if (!out)
        return NULL;
    for (size_t i = 0; i < out->count; i++)
        f32(out)[i] = value;
    size_t n = x->count ? (size_t)x->shape[x->ndim - 1] : 0;
    for (size_t run = 0; n && run < x->count / n; run++)
        memcpy(f32(out) + padded_offset(x, out, before, run), f32(x) + run * n, n * sizeof(float));
    pad_payload *data = uni__tape_record(tape, "pad", out, 1, &x, pad_backward, sizeof *data);
    if (data)
        memcpy(data->before, before, sizeof(int64_t) * (size_t)x->ndim);
    return out;
}

uni_tensor *uni_op_broadcast(uni_tape *tape, uni_tensor *x, int ndim, const int64_t *shape)
{
    if (!uni__check_f32(tape, "broadcast", x))
        return NULL;
    uni_tensor *zeros = uni__new(tape, UNI_F32, ndim, shape);
    if (!zeros)
        return NULL;
    memset(zeros->data, 0, zeros->count * sizeof(float));
    uni_tensor *out = uni_op_add(tape, zeros, x);
    if (out && (out->ndim != ndim || out->count != zeros->count))
        return uni_tape_fail(tape, UNI_ESHAPE, "broadcast: shape %s does not fit into %s",
                             uni__shape(tape, x), uni__shape(tape, zeros));
    return out;
}
