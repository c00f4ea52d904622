/*
 * op_attention.c - scaled dot-product attention for several heads as one operation. Heads are read
 * in place, with a row stride of heads * size, so nothing is transposed. The probabilities are kept
 * for the gradient. One (sample, head) is one piece of work; the tape's threads share the pieces.
 *
 *   q          (batch, time, heads * size)
 *   k and v    (batch, source, heads * size)
 *   result     (batch, time, heads * size)
 */
#include <math.h>
#include "tensor/onednn.h"

typedef struct attention {
    int64_t batch, time, source, heads, size, value_size;
    float scale;
    bool causal;
    const uint8_t *mask; /* [batch, time, source] or NULL */
} attention;

typedef struct payload {
    attention a;
    float *probabilities; /* [batch, heads, time, source] */
} payload;

typedef struct task {
    const uni__tensor_kernels *kernels;
    const attention *a;
    bool reference;
    const float *q, *k, *v, *dy;
    float *p, *y;
    float *dq, *dk, *dv;
    bool add_q, add_k, add_v; /* add to the existing values, or set them */
    /* [batch * heads, time, source]; a piece of work uses its first matrix for all of its heads */
    float *scratch;
    int status;
} task;

static void note(task *t, int status)
{
    if (status)
        __atomic_store_n(&t->status, status, __ATOMIC_RELAXED);
}

/* A row without any allowed source becomes uniform, as in Keras. */
#define FORBIDDEN (-1e9f)

static void mask_scores(const attention *a, int64_t sample, float *scores)
{
    for (int64_t i = 0; i < a->time; i++, scores += a->source) {
        for (int64_t j = i + 1; a->causal && j < a->source; j++)
            scores[j] = FORBIDDEN;
        const uint8_t *allowed = a->mask ? a->mask + (sample * a->time + i) * a->source : NULL;
        for (int64_t j = 0; allowed && j < a->source; j++)
            scores[j] = allowed[j] ? scores[j] : FORBIDDEN;
    }
}

static void run(void *context, size_t begin, size_t end)
{
    task *t = context;
    const attention *a = t->a;
    int64_t row = a->heads * a->size, value_row = a->heads * a->value_size;
    for (size_t item = begin; item < end; item++) {
        int64_t n = (int64_t)item / a->heads, h = (int64_t)item % a->heads;
        float *p = t->p + (int64_t)item * a->time * a->source;
        note(t, uni__gemm_here(t->reference,
                               &(uni__product){ .transpose_b = true,
                                                .m = a->time,
                                                .n = a->source,
                                                .k = a->size,
                                                .a = t->q + n * a->time * row + h * a->size,
                                                .lda = row,
                                                .b = t->k + n * a->source * row + h * a->size,
                                                .ldb = row,
                                                .c = p,
                                                .ldc = a->source }));
        t->kernels->scale(p, p, (size_t)(a->time * a->source), a->scale, 0);
        if (a->causal || a->mask)
            mask_scores(a, n, p);
        t->kernels->softmax(p, p, (size_t)a->time, (size_t)a->source);
        note(t, uni__gemm_here(
                    t->reference,
                    &(uni__product){ .m = a->time,
                                     .n = a->value_size,
                                     .k = a->source,
                                     .a = p,
                                     .lda = a->source,
                                     .b = t->v + n * a->source * value_row + h * a->value_size,
                                     .ldb = value_row,
                                     .c = t->y + n * a->time * value_row + h * a->value_size,
                                     .ldc = value_row }));
    }
}

static void run_backward(void *context, size_t begin, size_t end)
{
    task *t = context;
    const attention *a = t->a;
    int64_t row = a->heads * a->size, value_row = a->heads * a->value_size;
    for (size_t item = begin; item < end; item++) {
        int64_t n = (int64_t)item / a->heads, h = (int64_t)item % a->heads;
        int64_t at_q = n * a->time * row + h * a->size, at_k = n * a->source * row + h * a->size;
        int64_t at_v = n * a->source * value_row + h * a->value_size,
                at_y = n * a->time * value_row + h * a->value_size;
        const float *p = t->p + (int64_t)item * a->time * a->source;
        float *ds = t->scratch + (int64_t)begin * a->time * a->source;
        if (t->dv)
            note(t, uni__gemm_here(t->reference, &(uni__product){ .transpose_a = true,
                                                                  .add = t->add_v,
                                                                  .m = a->source,
                                                                  .n = a->value_size,
                                                                  .k = a->time,
                                                                  .a = p,
                                                                  .lda = a->source,
                                                                  .b = t->dy + at_y,
                                                                  .ldb = value_row,
                                                                  .c = t->dv + at_v,
                                                                  .ldc = value_row }));
        note(t, uni__gemm_here(t->reference, &(uni__product){ .transpose_b = true,
                                                              .m = a->time,
                                                              .n = a->source,
                                                              .k = a->value_size,
                                                              .a = t->dy + at_y,
                                                              .lda = value_row,
                                                              .b = t->v + at_v,
                                                              .ldb = value_row,
                                                              .c = ds,
                                                              .ldc = a->source }));
        t->kernels->softmax_backward(p, ds, ds, (size_t)a->time, (size_t)a->source);
        t->kernels->scale(ds, ds, (size_t)(a->time * a->source), a->scale, 0);
        if (t->dq)
            note(t, uni__gemm_here(t->reference, &(uni__product){ .add = t->add_q,
                                                                  .m = a->time,
                                                                  .n = a->size,
                                                                  .k = a->source,
                                                                  .a = ds,
                                                                  .lda = a->source,
                                                                  .b = t->k + at_k,
                                                                  .ldb = row,
                                                                  .c = t->dq + at_q,
                                                                  .ldc = row }));
        if (t->dk)
            note(t, uni__gemm_here(t->reference, &(uni__product){ .transpose_a = true,
                                                                  .add = t->add_k,
                                                                  .m = a->source,
                                                                  .n = a->size,
                                                                  .k = a->time,
                                                                  .a = ds,
                                                                  .lda = a->source,
                                                                  .b = t->q + at_q,
                                                                  .ldb = row,
                                                                  .c = t->dk + at_k,
                                                                  .ldc = row }));
    }
}

static double item_cost(const attention *a)
{
    return 2.0 * (double)a->time * (double)a->source * (double)(a->size + a->value_size) / 40.0;
}

static void backward(uni_tape *tape, uni__node *node)
{
    const payload *data = (const payload *)node->payload;
    const attention *a = &data->a;
    uni_tensor *q = node->inputs[0], *k = node->inputs[1], *v = node->inputs[2];
    size_t items = (size_t)(a->batch * a->heads), count = items * (size_t)(a->time * a->source);
    task t = { .kernels = tape->kernels,
               .a = a,
               .reference = tape->reference,
               .q = f32(q),
               .k = f32(k),
               .v = f32(v),
               .dy = node->out->gradient,
               .p = data->probabilities };
    t.scratch = uni__scratch_floats(tape, count);
    /* One tensor may be all three: targets are taken in the order of the products, so that the
     * first one sets and the others add. */
    t.dv = uni__gradient_target(tape, v, &t.add_v);
    t.dq = uni__gradient_target(tape, q, &t.add_q);
    t.dk = uni__gradient_target(tape, k, &t.add_k);
    if (tape->error.code)
        return;
    double begin = uni__clock_begin(tape);
    uni__for(tape, items, 1, 2 * item_cost(a), run_backward, &t);
    uni__clock_end(tape, "attention backward", begin,
                   4.0 * (double)count * (double)(a->size + a->value_size));
    uni__release_floats(tape, t.scratch, count);
    if (t.status)
        uni_tape_fail(tape, UNI_EINVAL, "oneDNN refused a matrix product (its status %d)",
                      t.status);
}

static bool plan(uni_tape *tape, const uni_tensor *q, const uni_tensor *k, const uni_tensor *v,
                 int heads, const uni_tensor *mask, attention *a)
{
    bool good = q->ndim == 3 && k->ndim == 3 && v->ndim == 3 && heads > 0 &&
                q->shape[2] % heads == 0 && v->shape[2] % heads == 0 &&
                q->shape[0] == k->shape[0] && k->shape[0] == v->shape[0] &&
                k->shape[1] == v->shape[1] && q->shape[2] == k->shape[2] && k->shape[1] > 0;
    if (!good) {
        uni_tape_fail(tape, UNI_ESHAPE,
                      "attention: query %s, key %s and value %s do not fit together for %d heads",
                      uni__shape(tape, q), uni__shape(tape, k), uni__shape(tape, v), heads);
        return false;
    }
    *a = (attention){ .batch = q->shape[0],
                      .time = q->shape[1],
                      .source = k->shape[1],
                      .heads = heads,
                      .size = q->shape[2] / heads,
                      .value_size = v->shape[2] / heads };
    if (!mask)
        return true;
    if ((mask->dtype != UNI_B8 && mask->dtype != UNI_U8) || mask->ndim != 3 ||
        mask->shape[0] != a->batch || mask->shape[1] != a->time || mask->shape[2] != a->source) {
        uni_tape_fail(
            tape, UNI_ESHAPE,
            "attention: the mask must be bool of (batch, time, source), it is %s of shape %s",
            uni_dtype_name(mask->dtype), uni__shape(tape, mask));
        return false;
    }
    a->mask = mask->data;
    return true;
}

uni_tensor *uni_op_attention(uni_tape *tape, uni_tensor *q, uni_tensor *k, uni_tensor *v, int heads,
                             float scale, bool causal, uni_tensor *mask)
{
    attention a;
    if (!uni__check_f32(tape, "attention", q) || !uni__check_f32(tape, "attention", k) ||
        !uni__check_f32(tape, "attention", v) || !plan(tape, q, k, v, heads, mask, &a))
        return NULL;
    a.scale = scale != 0 ? scale : 1.0f / sqrtf((float)a.size);
    a.causal = causal;
    uni_tensor *out = uni__new(tape, UNI_F32, 3, (const int64_t[]){ a.batch, a.time, v->shape[2] });
    size_t items = (size_t)(a.batch * a.heads);
    float *p = uni__scratch_floats(tape, items * (size_t)(a.time * a.source));
    if (!out || !p)
        return NULL;
    task t = { .kernels = tape->kernels,
               .a = &a,
               .reference = tape->reference,
               .q = f32(q),
               .k = f32(k),
               .v = f32(v),
               .p = p,
               .y = f32(out) };
    double begin = uni__clock_begin(tape);
    uni__for(tape, items, 1, item_cost(&a), run, &t);
    uni__clock_end(tape, "attention", begin,
                   2.0 * (double)items * (double)(a.time * a.source) *
                       (double)(a.size + a.value_size));
    if (t.status)
        return uni_tape_fail(tape, UNI_EINVAL, "oneDNN refused a matrix product (its status %d)",
                             t.status);
    payload *data = uni__tape_record(tape, "attention", out, 3, (uni_tensor *[]){ q, k, v },
                                     backward, sizeof *data);
    if (data)
        *data = (payload){ a, p };
    return out;
}
