/*
 * op_binary.c - a op b with broadcasting, and its gradient: dy times the slope, summed back into
 * the smaller shape.
 *
 * Shapes are first merged into as few axes as possible, so that (64, 256) + (256) is 64 runs of one
 * inner loop and (64, 256) + (64, 256) is a single run. Called by the tape's thread.
 */
#include <string.h>
#include "tensor/internal.h"

/* Merged axes of a broadcast: sizes of the result and strides of both sides (0 where broadcast). */
typedef struct pairing {
    int ndim;
    int64_t size[UNI_TENSOR_MAX_DIMS], a[UNI_TENSOR_MAX_DIMS], b[UNI_TENSOR_MAX_DIMS];
} pairing;

/* The result's shape; false when the shapes are incompatible. */
static bool broadcast_shape(const uni_tensor *a, const uni_tensor *b, int *ndim, int64_t *shape)
{
    *ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int i = 0; i < *ndim; i++) {
        int ia = i - (*ndim - a->ndim), ib = i - (*ndim - b->ndim);
        int64_t na = ia < 0 ? 1 : a->shape[ia], nb = ib < 0 ? 1 : b->shape[ib];
        if (na != nb && na != 1 && nb != 1)
            return false;
        shape[i] = na == 1 ? nb : na;
    }
    return true;
}

static void fill_strides(const uni_tensor *tensor, int ndim, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        int k = i - (ndim - tensor->ndim);
        int64_t n = k < 0 ? 1 : tensor->shape[k];
        strides[i] = n == 1 ? 0 : stride;
        stride *= n;
    }
}

static pairing pair(const uni_tensor *a, const uni_tensor *b, int ndim, const int64_t *shape)
{
    int64_t sa[UNI_TENSOR_MAX_DIMS], sb[UNI_TENSOR_MAX_DIMS];
    pairing p = { 0 };
    fill_strides(a, ndim, sa);
    fill_strides(b, ndim, sb);
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 1)
            continue;
        int last = p.ndim - 1;
        if (last >= 0 && p.a[last] == sa[i] * shape[i] && p.b[last] == sb[i] * shape[i]) {
            p.size[last] *= shape[i];
            p.a[last] = sa[i];
            p.b[last] = sb[i];
        } else {
            p.size[p.ndim] = shape[i];
            p.a[p.ndim] = sa[i];
            p.b[p.ndim++] = sb[i];
        }
    }
    if (p.ndim == 0) {
        p.size[0] = 1;
        p.ndim = 1;
    }
    return p;
}

typedef struct task {
    const uni__tensor_kernels *kernels;
    const pairing *p;
    uni_binary kind;
    int which; /* -1: forward */
    const float *a, *b, *dy;
    float *y;
} task;

/* One run of the last axis is one item. */
static void run(void *context, size_t begin, size_t end)
{
    const task *t = context;
    const pairing *p = t->p;
    int last = p->ndim - 1;
    size_t n = (size_t)p->size[last];
    for (size_t item = begin; item < end; item++) {
        int64_t offset_a = 0, offset_b = 0, rest = (int64_t)item;
        for (int i = last - 1; i >= 0; i--) {
            int64_t k = rest % p->size[i];
            rest /= p->size[i];
            offset_a += k * p->a[i];
            offset_b += k * p->b[i];
        }
        const float *a = t->a + offset_a, *b = t->b + offset_b;
        if (t->which < 0)
            t->kernels->binary(t->kind, a, p->a[last] != 0, b, p->b[last] != 0, t->y + item * n, n);
        else
            t->kernels->binary_backward(t->kind, t->which, a, p->a[last] != 0, b, p->b[last] != 0,
                                        t->dy + item * n, t->y + item * n, n);
    }
}

/* One long run is cut into pieces; many short ones are distributed. */
static void run_all(uni_tape *tape, const task *given, size_t count)
{
    task t = *given;
    const pairing *p = t.p;
    size_t n = (size_t)p->size[p->ndim - 1], runs = n ? count / n : 0;
    pairing cut;
    if (p->ndim == 1 && n >= 65536 && n % 1024 == 0) {
        cut = (pairing){ .ndim = 2,
                         .size = { (int64_t)(n / 1024), 1024 },
                         .a = { p->a[0] * 1024, p->a[0] },
                         .b = { p->b[0] * 1024, p->b[0] } };
        t.p = &cut;
        runs = n / 1024;
        n = 1024;
    }
    if (runs)
        uni__for(tape, runs, 1, (double)n * 0.3, run, &t);
}

typedef struct payload {
    uni_binary kind;
    pairing p;
} payload;

static void add_or_copy(uni_tape *tape, uni_tensor *tensor, const float *from)
{
    bool add = false;
    float *target = uni__gradient_target(tape, tensor, &add);
    if (target && add)
        tape->kernels->add_in_place(target, from, tensor->count);
    else if (target)
        memcpy(target, from, tensor->count * sizeof(float));
}

static void backward_side(uni_tape *tape, uni__node *node, int which, const float *dy)
{
    const payload *data = (const payload *)node->payload;
    uni_tensor *side = node->inputs[which], *out = node->out;
    bool plain = data->kind == UNI_BINARY_ADD || (data->kind == UNI_BINARY_SUB && which == 0);
    bool whole = side->count == out->count;
    const float *slope = dy;
    float *temporary = NULL;
    if (plain && whole) {
        add_or_copy(tape, side, dy);
        return;
    }
    if (!plain) {
        temporary = uni__scratch_floats(tape, out->count);
        if (!temporary)
            return;
        task t = { tape->kernels,        &data->p, data->kind, which, f32(node->inputs[0]),
                   f32(node->inputs[1]), dy,       temporary };
        run_all(tape, &t, out->count);
        slope = temporary;
    }
    if (whole) {
        uni__gradient_give(tape, side, temporary);
        return;
    }
    bool add = false;
    float *target = uni__gradient_target(tape, side, &add);
    if (target)
        uni__sum_to(tape, slope, out->ndim, out->shape, side->ndim, side->shape, target, add);
    uni__release_floats(tape, temporary, out->count);
}

static void backward(uni_tape *tape, uni__node *node)
{
    const payload *data = (const payload *)node->payload;
    uni_tensor *a = node->inputs[0], *b = node->inputs[1];
    float *dy = node->out->gradient;
    if (b->needs_gradient)
        backward_side(tape, node, 1, dy);
    if (!a->needs_gradient)
        return;
    bool pass_on = (data->kind == UNI_BINARY_ADD || data->kind == UNI_BINARY_SUB) &&
                   a->count == node->out->count;
    if (pass_on)
        uni__gradient_give(tape, a, uni__gradient_take(tape, node));
    else
        backward_side(tape, node, 0, dy);
}

uni_tensor *uni_op_binary(uni_tape *tape, uni_binary kind, uni_tensor *a, uni_tensor *b)
{
    static const char *const names[] = { "add",   "subtract", "multiply", "divide",
                                         "power", "maximum",  "minimum",  "squared difference" };
    int ndim = 0;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    const char *name = names[kind];
    if (!uni__check_f32(tape, name, a) || !uni__check_f32(tape, name, b))
        return NULL;
    if (!broadcast_shape(a, b, &ndim, shape))
        return uni_tape_fail(tape, UNI_ESHAPE, "%s: shapes %s and %s do not fit together", name,
                             uni__shape(tape, a), uni__shape(tape, b));
    uni_tensor *out = uni__new(tape, UNI_F32, ndim, shape);
    if (!out)
        return NULL;
    pairing p = pair(a, b, ndim, shape);
    double begin = uni__clock_begin(tape);
    task t = { tape->kernels, &p, kind, -1, f32(a), f32(b), NULL, f32(out) };
    run_all(tape, &t, out->count);
    uni__clock_end(tape, name, begin, (double)out->count);
    payload *data =
        uni__tape_record(tape, name, out, 2, (uni_tensor *[]){ a, b }, backward, sizeof *data);
    if (data) {
        data->kind = kind;
        data->p = p;
    }
    return out;
}
