/*
 * op_reduce.c - sum, mean, maximum and minimum over any set of axes, and the sum back into a
 * smaller shape that broadcasting needs.
 *
 * Axes are merged into alternating runs that are kept and runs that are reduced; each reduced run
 * is one pass over [outer, middle, inner]. Called by the tape's thread.
 */
#include <math.h>
#include <string.h>
#include "tensor/internal.h"

typedef struct runs {
    int count;
    int64_t size[UNI_TENSOR_MAX_DIMS + 1];
    bool reduced[UNI_TENSOR_MAX_DIMS + 1];
} runs;

static runs merge(int ndim, const int64_t *shape, const bool *reduced)
{
    runs r = { 0 };
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 1)
            continue;
        if (r.count && r.reduced[r.count - 1] == reduced[i]) {
            r.size[r.count - 1] *= shape[i];
        } else {
            r.size[r.count] = shape[i];
            r.reduced[r.count++] = reduced[i];
        }
    }
    return r;
}

typedef struct piece {
    const uni__tensor_kernels *kernels;
    uni_reduce kind;
    const float *x;
    float *y;
    size_t middle, inner;
    bool add;
} piece;

static void reduce_outer(void *context, size_t begin, size_t end)
{
    const piece *p = context;
    p->kernels->reduce(p->kind, p->x + begin * p->middle * p->inner, p->y + begin * p->inner,
                       end - begin, p->middle, p->inner, p->add);
}

/* Passes run from the last reduced run to the first; the last pass writes `out`. */
static void reduce_runs(uni_tape *tape, uni_reduce kind, const float *x, runs r, float *out,
                        bool add)
{
    float *temporary = NULL;
    size_t temporary_count = 0;
    for (int i = r.count - 1; i >= 0; i--) {
        if (!r.reduced[i])
            continue;
        bool final = true;
        size_t outer = 1, inner = 1;
        for (int k = 0; k < i; k++) {
            outer *= (size_t)r.size[k];
            final &= !r.reduced[k];
        }
        for (int k = i + 1; k < r.count; k++)
            inner *= (size_t)r.size[k];
        float *y = final ? out : uni__scratch_floats(tape, outer * inner);
        if (!y)
            return;
        piece p = { tape->kernels, kind, x, y, (size_t)r.size[i], inner, final && add };
        uni__for(tape, outer, 1, (double)(p.middle * inner) * 0.3, reduce_outer, &p);
        uni__release_floats(tape, temporary, temporary_count);
        if (final)
            return;
        temporary = y;
        temporary_count = outer * inner;
        x = y;
        r.size[i] = 1;
        r.reduced[i] = false;
    }
    size_t n = 1; /* nothing was reduced */
    for (int i = 0; i < r.count; i++)
        n *= (size_t)r.size[i];
    if (add)
        tape->kernels->add_in_place(out, x, n);
    else
        memcpy(out, x, n * sizeof(float));
}

void uni__sum_to(uni_tape *tape, const float *x, int from_ndim, const int64_t *from, int to_ndim,
                 const int64_t *to, float *out, bool add)
{
    bool reduced[UNI_TENSOR_MAX_DIMS];
    size_t n = uni__shape_count(to_ndim, to);
    for (int i = 0; i < from_ndim; i++) {
        int k = i - (from_ndim - to_ndim);
        reduced[i] = (k < 0 ? 1 : to[k]) != from[i];
    }
    if (uni__shape_count(from_ndim, from) == 0) {
        if (!add)
            memset(out, 0, n * sizeof(float));
        return;
    }
    reduce_runs(tape, UNI_REDUCE_SUM, x, merge(from_ndim, from, reduced), out, add);
}

typedef struct payload {
    uni_reduce kind;
    int ndim; /* of the result with all axes kept */
    int64_t shape[UNI_TENSOR_MAX_DIMS];
} payload;

/* The offset in the reduced result of element `index` of x. */
static int64_t reduced_offset(const uni_tensor *x, const payload *data, size_t index)
{
    int64_t offset = 0, stride = 1;
    for (int i = x->ndim - 1; i >= 0; i--) {
        int64_t k = (int64_t)(index % (size_t)x->shape[i]);
        index /= (size_t)x->shape[i];
        if (data->shape[i] != 1)
            offset += k * stride;
        stride *= data->shape[i];
    }
    return offset;
}

/*
 * The way back. x is walked in runs of its last axes, in which the result's index either stays or
 * counts along, so that an offset is computed once a run. Leading axes that are kept make blocks of
 * x and of the result that have nothing to do with each other, one or more for each part of the
 * loop.
 */
typedef struct way_back {
    const uni_tensor *x;
    const payload *data;
    const float *out, *dy;
    float *dx;
    float *shares; /* maximum and minimum: what each of the equals gets, by result */
    float factor; /* sum and mean */
    size_t run, block, out_block;
    bool stays; /* in a run */
    bool add;
} way_back;

static void find_runs(way_back *w, size_t *blocks)
{
    const int64_t *from = w->x->shape, *to = w->data->shape;
    bool known = false;
    w->run = *blocks = 1;
    for (int i = w->x->ndim - 1; i >= 0; i--) {
        bool reduced = to[i] != from[i];
        if (known && from[i] != 1 && reduced != w->stays)
            break;
        w->stays = from[i] != 1 ? reduced : w->stays;
        known |= from[i] != 1;
        w->run *= (size_t)from[i];
    }
    for (int i = 0; i < w->x->ndim && to[i] == from[i] && w->run < w->x->count; i++)
        *blocks *= (size_t)from[i];
    w->block = w->x->count / *blocks;
}

/* The gradient of sums and means is one number per result. */
static void spread(void *context, size_t begin, size_t end)
{
    const way_back *w = context;
    for (size_t first = begin * w->block; first < end * w->block; first += w->run) {
        const float *from = w->dy + reduced_offset(w->x, w->data, first);
        float *dx = w->dx + first;
        for (size_t i = 0; i < w->run; i++) {
            float v = from[w->stays ? 0 : i] * w->factor;
            dx[i] = w->add ? dx[i] + v : v;
        }
    }
}

static void count_equals(const way_back *w, size_t first)
{
    int64_t at = reduced_offset(w->x, w->data, first);
    const float *x = f32(w->x) + first, *out = w->out + at;
    float *shares = w->shares + at;
    size_t equal = 0;
    for (size_t i = 0; i < w->run && w->stays; i++)
        equal += x[i] == out[0];
    if (w->stays)
        shares[0] += (float)equal;
    for (size_t i = 0; i < w->run && !w->stays; i++)
        shares[i] += x[i] == out[i] ? 1.0f : 0.0f;
}

static void give_shares(const way_back *w, size_t first)
{
    int64_t at = reduced_offset(w->x, w->data, first);
    const float *x = f32(w->x) + first, *out = w->out + at, *shares = w->shares + at;
    float *dx = w->dx + first;
    for (size_t i = 0; i < w->run; i++) {
        size_t k = w->stays ? 0 : i;
        float v = x[i] == out[k] ? shares[k] : 0;
        dx[i] = w->add ? dx[i] + v : v;
    }
}

/* The gradient of a maximum or minimum is divided among the elements that are equal to it. */
static void share_among_equals(void *context, size_t begin, size_t end)
{
    const way_back *w = context;
    memset(w->shares + begin * w->out_block, 0, (end - begin) * w->out_block * sizeof(float));
    for (size_t first = begin * w->block; first < end * w->block; first += w->run)
        count_equals(w, first);
    for (size_t k = begin * w->out_block; k < end * w->out_block; k++)
        w->shares[k] = w->dy[k] / w->shares[k];
    for (size_t first = begin * w->block; first < end * w->block; first += w->run)
        give_shares(w, first);
}

static void backward(uni_tape *tape, uni__node *node)
{
    const payload *data = (const payload *)node->payload;
    uni_tensor *x = node->inputs[0];
    bool add = false;
    float *dx = uni__gradient_target(tape, x, &add);
    if (!dx || x->count == 0)
        return;
    double begin = uni__clock_begin(tape);
    size_t blocks = 1, results = node->out->count;
    bool most = data->kind != UNI_REDUCE_SUM && data->kind != UNI_REDUCE_MEAN;
    way_back w = { .x = x,
                   .data = data,
                   .out = f32(node->out),
                   .dy = node->out->gradient,
                   .dx = dx,
                   .add = add,
                   .factor =
                       data->kind == UNI_REDUCE_SUM ? 1.0f : (float)results / (float)x->count };
    find_runs(&w, &blocks);
    w.out_block = results / blocks;
    if (most && !(w.shares = uni__scratch_floats(tape, results)))
        return;
    uni__for(tape, blocks, 1, (double)w.block * 0.5, most ? share_among_equals : spread, &w);
    if (most)
        uni__release_floats(tape, w.shares, results);
    uni__clock_end(tape, "reduce backward", begin, (double)x->count);
}

uni_tensor *uni_op_reduce(uni_tape *tape, uni_reduce kind, uni_tensor *x, int num_axes,
                          const int *axes, bool keep_dims)
{
    bool reduced[UNI_TENSOR_MAX_DIMS] = { 0 };
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    payload kept = { .kind = kind };
    int ndim = 0;
    if (!uni__check_f32(tape, "reduce", x))
        return NULL;
    for (int i = 0; i < num_axes; i++) {
        int axis = uni__axis(tape, "reduce", x, axes[i]);
        if (axis < 0)
            return NULL;
        reduced[axis] = true;
    }
    kept.ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++) {
        reduced[i] |= num_axes == 0;
        kept.shape[i] = reduced[i] ? 1 : x->shape[i];
        if (!reduced[i] || keep_dims)
            shape[ndim++] = kept.shape[i];
    }
    uni_tensor *out = uni__new(tape, UNI_F32, ndim, shape);
    if (!out)
        return NULL;
    if (x->count == 0 && kind != UNI_REDUCE_SUM && out->count)
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "reduce: mean, max and min of no elements (shape %s)",
                             uni__shape(tape, x));
    double begin = uni__clock_begin(tape);
    if (x->count == 0)
        memset(out->data, 0, out->count * sizeof(float));
    else
        reduce_runs(tape, kind, f32(x), merge(x->ndim, x->shape, reduced), f32(out), false);
    uni__clock_end(tape, "reduce", begin, (double)x->count);
    payload *data = uni__tape_record(tape, "reduce", out, 1, &x, backward, sizeof *data);
    if (data)
        *data = kept;
    return out;
}
