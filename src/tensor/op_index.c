/*
 * op_index.c - selection by index: embedding, bags of embeddings, gather, one-hot, argmax. The
 * gradient of a selected row is added to its row in the order of the ids, so results do not depend
 * on threads. Called by the tape's thread.
 */
#include <string.h>
#include "tensor/internal.h"

typedef struct gather_payload {
    size_t outer, rows, inner; /* x[outer, rows, inner] */
    size_t count; /* of indices */
    const int64_t *indices;
} gather_payload;

typedef struct gather_task {
    const gather_payload *g;
    const float *x;
    float *y;
} gather_task;

static bool check_range(uni_tape *tape, const char *operation, const int64_t *indices, size_t count,
                        int64_t limit)
{
    for (size_t i = 0; i < count; i++)
        if (indices[i] < 0 || indices[i] >= limit) {
            uni_tape_fail(tape, UNI_EINVAL,
                          "%s: index %lld at position %zu is out of range [0, %lld)", operation,
                          (long long)indices[i], i, (long long)limit);
            return false;
        }
    return true;
}

static void gather_run(void *context, size_t begin, size_t end)
{
    const gather_task *t = context;
    const gather_payload *g = t->g;
    for (size_t item = begin; item < end; item++) {
        size_t o = item / g->count, i = item % g->count;
        memcpy(t->y + item * g->inner, t->x + (o * g->rows + (size_t)g->indices[i]) * g->inner,
               g->inner * sizeof(float));
    }
}

static void gather_backward(uni_tape *tape, uni__node *node)
{
    const gather_payload *g = (const gather_payload *)node->payload;
    uni_tensor *x = node->inputs[0];
    bool add = false;
    float *target = uni__gradient_target(tape, x, &add);
    if (!target)
        return;
    double begin = uni__clock_begin(tape);
    if (!add)
        memset(target, 0, x->count * sizeof(float));
    for (size_t item = 0; item < g->outer * g->count; item++) {
        size_t o = item / g->count, i = item % g->count;
        tape->kernels->add_in_place(target + (o * g->rows + (size_t)g->indices[i]) * g->inner,
                                    node->out->gradient + item * g->inner, g->inner);
    }
    uni__clock_end(tape, "gather backward", begin, 0);
}

static uni_tensor *gather(uni_tape *tape, const char *operation, uni_tensor *x, uni_tensor *ids,
                          int axis)
{
    if (!uni__check_f32(tape, operation, x) || !ids)
        return NULL;
    int at = uni__axis(tape, operation, x, axis), ndim = x->ndim - 1 + ids->ndim;
    if (at < 0)
        return NULL;
    if (ndim > UNI_TENSOR_MAX_DIMS)
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "%s: indices of shape %s from %s have too many dimensions", operation,
                             uni__shape(tape, ids), uni__shape(tape, x));
    gather_payload g = { .outer = (size_t)uni__shape_span(x->shape, 0, at),
                         .rows = (size_t)x->shape[at],
                         .inner = (size_t)uni__shape_span(x->shape, at + 1, x->ndim),
                         .count = ids->count };
    g.indices = uni__indices(tape, operation, ids);
    if (!g.indices || !check_range(tape, operation, g.indices, g.count, x->shape[at]))
        return NULL;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        shape[i] = i < at               ? x->shape[i]
                   : i < at + ids->ndim ? ids->shape[i - at]
                                        : x->shape[i - ids->ndim + 1];
    uni_tensor *out = uni__new(tape, UNI_F32, ndim, shape);
    if (!out)
        return NULL;
    gather_task t = { &g, f32(x), f32(out) };
    double begin = uni__clock_begin(tape);
    uni__for(tape, g.outer * g.count, 1, (double)g.inner * 0.3, gather_run, &t);
    uni__clock_end(tape, operation, begin, 0);
    gather_payload *data =
        uni__tape_record(tape, operation, out, 1, &x, gather_backward, sizeof *data);
    if (data)
        *data = g;
    return out;
}

uni_tensor *uni_op_gather(uni_tape *tape, uni_tensor *x, uni_tensor *indices, int axis)
{
    return gather(tape, "gather", x, indices, axis);
}

uni_tensor *uni_op_embedding(uni_tape *tape, uni_tensor *table, uni_tensor *ids)
{
    if (table && table->ndim != 2)
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "embedding: the table has shape %s; it must be (rows, size)",
                             uni__shape(tape, table));
    return gather(tape, "embedding", table, ids, 0);
}

/* ---- bags ---- */

typedef struct bag_payload {
    size_t bags, size;
    const int64_t *ids, *offsets;
    uni_combiner combiner;
} bag_payload;

static float bag_factor(uni_combiner combiner, int64_t count)
{
    if (combiner == UNI_COMBINER_SUM || count == 0)
        return 1.0f;
    return combiner == UNI_COMBINER_MEAN ? 1.0f / (float)count
                                         : 1.0f / __builtin_sqrtf((float)count);
}

static void bag_backward(uni_tape *tape, uni__node *node)
{
    const bag_payload *b = (const bag_payload *)node->payload;
    uni_tensor *table = node->inputs[0];
    bool add = false;
    float *target = uni__gradient_target(tape, table, &add);
    float *row = target ? uni__scratch_floats(tape, b->size) : NULL;
    if (!row)
        return;
    if (!add)
        memset(target, 0, table->count * sizeof(float));
    for (size_t i = 0; i < b->bags; i++) {
        float factor = bag_factor(b->combiner, b->offsets[i + 1] - b->offsets[i]);
        tape->kernels->scale(node->out->gradient + i * b->size, row, b->size, factor, 0);
        for (int64_t k = b->offsets[i]; k < b->offsets[i + 1]; k++)
            tape->kernels->add_in_place(target + (size_t)b->ids[k] * b->size, row, b->size);
    }
}

uni_tensor *uni_op_embedding_bag(uni_tape *tape, uni_tensor *table, uni_tensor *ids,
                                 uni_tensor *offsets, uni_combiner combiner)
{
    if (!uni__check_f32(tape, "embedding_bag", table) || !ids || !offsets)
        return NULL;
    if (table->ndim != 2 || offsets->ndim != 1 || offsets->shape[0] < 1)
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "embedding_bag: table of shape %s, offsets of shape %s",
                             uni__shape(tape, table), uni__shape(tape, offsets));
    bag_payload b = { .bags = (size_t)offsets->shape[0] - 1,
                      .size = (size_t)table->shape[1],
                      .combiner = combiner };
    b.ids = uni__indices(tape, "embedding_bag", ids);
    b.offsets = uni__indices(tape, "embedding_bag", offsets);
    if (!b.ids || !b.offsets ||
        !check_range(tape, "embedding_bag", b.ids, ids->count, table->shape[0]))
        return NULL;
    for (size_t i = 0; i <= b.bags; i++)
        if (b.offsets[i] < (i ? b.offsets[i - 1] : 0) || b.offsets[i] > (int64_t)ids->count)
            return uni_tape_fail(tape, UNI_EINVAL,
                                 "embedding_bag: offset %lld at position %zu does not fit %zu ids",
                                 (long long)b.offsets[i], i, ids->count);
    uni_tensor *out =
        uni__new(tape, UNI_F32, 2, (const int64_t[]){ (int64_t)b.bags, table->shape[1] });
    if (!out)
        return NULL;
    double begin = uni__clock_begin(tape);
    for (size_t i = 0; i < b.bags; i++) {
        float *row = f32(out) + i * b.size;
        memset(row, 0, b.size * sizeof(float));
        for (int64_t k = b.offsets[i]; k < b.offsets[i + 1]; k++)
            tape->kernels->add_in_place(row, f32(table) + (size_t)b.ids[k] * b.size, b.size);
        tape->kernels->scale(row, row, b.size,
                             bag_factor(combiner, b.offsets[i + 1] - b.offsets[i]), 0);
    }
    uni__clock_end(tape, "embedding_bag", begin, 0);
    bag_payload *data =
        uni__tape_record(tape, "embedding_bag", out, 1, &table, bag_backward, sizeof *data);
    if (data)
        *data = b;
    return out;
}

/* ---- one-hot and argmax: no gradient ---- */

uni_tensor *uni_op_one_hot(uni_tape *tape, uni_tensor *ids, int64_t depth)
{
    const int64_t *indices = uni__indices(tape, "one_hot", ids);
    if (!indices)
        return NULL;
    if (ids->ndim >= UNI_TENSOR_MAX_DIMS || depth < 1)
        return uni_tape_fail(tape, UNI_ESHAPE, "one_hot: %lld classes for indices of shape %s",
                             (long long)depth, uni__shape(tape, ids));
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    memcpy(shape, ids->shape, sizeof shape);
    shape[ids->ndim] = depth;
    uni_tensor *out = uni__new(tape, UNI_F32, ids->ndim + 1, shape);
    if (!out)
        return NULL;
    memset(out->data, 0, out->count * sizeof(float));
    for (size_t i = 0; i < ids->count; i++)
        if (indices[i] >= 0 && indices[i] < depth)
            f32(out)[i * (size_t)depth + (size_t)indices[i]] = 1;
    return out;
}

uni_tensor *uni_op_argmax(uni_tape *tape, uni_tensor *x, int axis)
{
    if (!uni__check_f32(tape, "argmax", x))
        return NULL;
    int at = uni__axis(tape, "argmax", x, axis), ndim = 0;
    if (at < 0)
        return NULL;
    if (x->shape[at] == 0)
        return uni_tape_fail(tape, UNI_ESHAPE, "argmax: axis %d of shape %s is empty", axis,
                             uni__shape(tape, x));
    int64_t shape[UNI_TENSOR_MAX_DIMS], size = x->shape[at],
                                        inner = uni__shape_span(x->shape, at + 1, x->ndim);
    for (int i = 0; i < x->ndim; i++)
        if (i != at)
            shape[ndim++] = x->shape[i];
    uni_tensor *out = uni__new(tape, UNI_I64, ndim, shape);
    for (size_t i = 0; out && i < out->count; i++) {
        const float *from =
            f32(x) + (i / (size_t)inner * (size_t)size) * (size_t)inner + i % (size_t)inner;
        int64_t best = 0;
        for (int64_t k = 1; k < size; k++)
            if (from[k * inner] > from[best * inner])
                best = k;
        ((int64_t *)out->data)[i] = best;
    }
    return out;
}
