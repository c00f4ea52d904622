/*
 * op_product.c - matrix products: the general batched one, and the dense layer's product with bias
 * and activation in one operation.
 *
 * The gradient of a weight is written straight into the flat gradient buffer. Called by the tape's
 * thread; its threads share batches of small products, one product each.
 */
#include <string.h>
#include "tensor/shared.h"
#include "base/slice.h"
#include "tensor/onednn.h"

/* ---- dense ---- */

typedef struct dense {
    int64_t rows, in, out;
    uni_activation activation;
} dense;

typedef struct bias_task {
    const uni__tensor_kernels *kernels;
    const float *y, *bias;
    float *data, *partial; /* partial: one row of sums per piece */
    size_t rows, cols, pieces;
    bool add;
    uni_activation kind;
} bias_task;

static void bias_run(void *context, size_t begin, size_t end)
{
    const bias_task *t = context;
    t->kernels->bias_activation(t->data + begin * t->cols, t->bias, end - begin, t->cols, t->kind);
}

static void bias_run_backward(void *context, size_t begin, size_t end)
{
    const bias_task *t = context;
    for (size_t piece = begin; piece < end; piece++) {
        size_t first = t->rows * piece / t->pieces, last = t->rows * (piece + 1) / t->pieces;
        t->kernels->bias_activation_backward(t->y + first * t->cols, t->data + first * t->cols,
                                             t->partial ? t->partial + piece * t->cols : NULL,
                                             t->add, last - first, t->cols, t->kind);
    }
}

void uni__bias_backward(uni_tape *tape, const float *y, float *dy, float *dbias, bool add,
                        size_t rows, size_t cols, uni_activation kind)
{
    if (kind == UNI_ACTIVATION_LINEAR && !dbias)
        return;
    size_t pieces = (size_t)uni__threads_for(tape, (double)(rows * cols) * 0.3);
    bias_task t = { tape->kernels, y, NULL, dy, dbias, rows, cols, pieces, add, kind };
    if (pieces > 1 && dbias) {
        t.add = false;
        t.partial = uni__scratch_floats(tape, pieces * cols);
        if (!t.partial)
            return;
    }
    uni__for(tape, pieces, 1, pieces > 1 ? 1e9 : 0, bias_run_backward, &t);
    if (pieces > 1 && dbias) {
        tape->kernels->reduce(UNI_REDUCE_SUM, t.partial, dbias, 1, pieces, cols, add);
        uni__release_floats(tape, t.partial, pieces * cols);
    }
}

uni__span uni__descent_rows(int64_t in, int index, int count)
{
    uni__span rows;
    uni__slice_of((size_t)in, 16, index, count, &rows.begin, &rows.end);
    return rows;
}

/* Rows of the kernel that stay in a cache while every replica's part is subtracted from them.
 * Smaller ones would stay in the second level, but a product of 512 rows has more overhead: 65
 * GFLOP/s, 76 with 4,096 rows (128 columns, 64 samples). */
#define TILE_WEIGHTS ((size_t)1 << 19)

/* Rows `mine` of a kernel of `out` columns, by the factors of all. */
static void descend_rows(uni_tape *tape, float *kernel, int64_t in, int64_t out, uni__span mine,
                         const uni__factors *all, int count, const uni__descent *how)
{
    size_t tile = TILE_WEIGHTS / (size_t)out > 16 ? TILE_WEIGHTS / (size_t)out : 16;
    for (size_t at = mine.begin; at < mine.end; at += tile) {
        uni__descent descent = *how;
        for (int r = 0; r < count; r++) {
            if (all[r].rows == 0)
                continue;
            uni__gemm(tape,
                      &(uni__product){ .transpose_a = true,
                                       .m = (int64_t)(at + tile < mine.end ? tile : mine.end - at),
                                       .n = out,
                                       .k = all[r].rows,
                                       .a = all[r].x + at,
                                       .lda = in,
                                       .b = all[r].dz,
                                       .ldb = out,
                                       .c = kernel + at * (size_t)out,
                                       .ldc = out,
                                       .descent = &descent });
            descent.keep = 1;
        }
    }
}

static void descend_together(uni_tape *tape, const dense *d, const float *x, float *kernel,
                             const float *dz)
{
    const uni__descent_peers *peers = tape->descent->peers;
    uni__factors all[UNI__DESCENT_MAX_PEERS];
    uni_error err = { 0 };
    int status =
        peers->meet(peers->context, &(uni__factors){ x, dz, d->rows }, d->in, d->out, all, &err);
    if (status == 0)
        descend_rows(tape, kernel, d->in, d->out,
                     uni__descent_rows(d->in, peers->index, peers->count), all, peers->count,
                     tape->descent);
    if (status == 0)
        status = peers->leave(peers->context, &err);
    if (status < 0)
        uni_tape_fail(tape, status, "%s", err.message);
}

int uni__tape_descend(uni_tape *tape, const uni__factored *what, const uni__factors *all, int count,
                      int index, const uni__descent *descent, uni_error *err)
{
    double begin = uni__clock_begin(tape);
    descend_rows(tape, uni_parameter_data(what->kernel), what->in, what->out,
                 uni__descent_rows(what->in, index, count), all, count, descent);
    uni__clock_end(tape, "dense backward weights", begin, 0);
    return uni_tape_status(tape, err);
}

static void dense_backward(uni_tape *tape, uni__node *node)
{
    const dense *d = (const dense *)node->payload;
    uni_tensor *x = node->inputs[0], *kernel = node->inputs[1], *bias = node->inputs[2];
    double flops = 2.0 * (double)d->rows * (double)d->in * (double)d->out;
    bool add = false;
    float *dz = d->activation == UNI_ACTIVATION_LINEAR ? node->out->gradient
                                                       : uni__gradient_take(tape, node);
    float *target = bias ? uni__gradient_target(tape, bias, &add) : NULL;
    double begin = uni__clock_begin(tape);
    uni__bias_backward(tape, f32(node->out), dz, target, add, (size_t)d->rows, (size_t)d->out,
                       d->activation);
    uni__clock_end(tape, "dense backward bias", begin, 0);
    if ((target = uni__gradient_target(tape, x, &add))) {
        begin = uni__clock_begin(tape);
        uni__gemm(tape, &(uni__product){ .transpose_b = true,
                                         .add = add,
                                         .m = d->rows,
                                         .n = d->in,
                                         .k = d->out,
                                         .a = dz,
                                         .lda = d->out,
                                         .b = f32(kernel),
                                         .ldb = d->out,
                                         .c = target,
                                         .ldc = d->in });
        uni__clock_end(tape, "dense backward data", begin, flops);
    }
    /* Last, because a kernel that descends has changed afterwards. */
    bool descends = uni__descends(tape, node, kernel);
    if (descends && tape->descent->keep_factors) {
        tape->factored[tape->num_factored++] =
            (uni__factored){ kernel->parameter, d->in, d->out, { f32(x), dz, d->rows } };
        if (node->out->gradient == dz && !node->out->watched)
            node->out->gradient = NULL; /* keeps it from being released */
        return;
    }
    if (descends && tape->descent->peers) {
        begin = uni__clock_begin(tape);
        descend_together(tape, d, f32(x), f32(kernel), dz);
        uni__clock_end(tape, "dense backward weights", begin, flops);
    } else if ((target = descends ? f32(kernel) : uni__gradient_target(tape, kernel, &add))) {
        begin = uni__clock_begin(tape);
        uni__gemm(tape, &(uni__product){ .transpose_a = true,
                                         .add = add,
                                         .m = d->in,
                                         .n = d->out,
                                         .k = d->rows,
                                         .a = f32(x),
                                         .lda = d->in,
                                         .b = dz,
                                         .ldb = d->out,
                                         .c = target,
                                         .ldc = d->out,
                                         .descent = descends ? tape->descent : NULL });
        uni__clock_end(tape, "dense backward weights", begin, flops);
    }
    if (d->activation != UNI_ACTIVATION_LINEAR)
        uni__release_floats(tape, dz, node->out->count);
}

static bool check_dense(uni_tape *tape, const uni_tensor *x, const uni_tensor *kernel,
                        const uni_tensor *bias)
{
    if (!uni__check_f32(tape, "dense", x) || !uni__check_f32(tape, "dense", kernel))
        return false;
    if (x->ndim < 1 || kernel->ndim != 2 || x->shape[x->ndim - 1] != kernel->shape[0]) {
        uni_tape_fail(tape, UNI_ESHAPE,
                      "dense: input of shape %s does not fit a kernel of shape %s",
                      uni__shape(tape, x), uni__shape(tape, kernel));
        return false;
    }
    if (bias && (bias->dtype != UNI_F32 || bias->ndim != 1 || bias->shape[0] != kernel->shape[1])) {
        uni_tape_fail(tape, UNI_ESHAPE, "dense: bias of shape %s does not fit a kernel of shape %s",
                      uni__shape(tape, bias), uni__shape(tape, kernel));
        return false;
    }
    return true;
}

uni_tensor *uni_op_dense(uni_tape *tape, uni_tensor *x, uni_tensor *kernel, uni_tensor *bias,
                         uni_activation activation)
{
    if (!uni__activation_in_place(activation))
        return uni_op_activation(tape, activation,
                                 uni_op_dense(tape, x, kernel, bias, UNI_ACTIVATION_LINEAR), 0);
    if (!check_dense(tape, x, kernel, bias))
        return NULL;
    dense d = { .in = kernel->shape[0], .out = kernel->shape[1], .activation = activation };
    d.rows = uni__shape_span(x->shape, 0, x->ndim - 1);
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->ndim - 1] = d.out;
    uni_tensor *out = uni__new(tape, UNI_F32, x->ndim, shape);
    if (!out)
        return NULL;
    double begin = uni__clock_begin(tape);
    uni__gemm(tape, &(uni__product){ .m = d.rows,
                                     .n = d.out,
                                     .k = d.in,
                                     .a = f32(x),
                                     .lda = d.in,
                                     .b = f32(kernel),
                                     .ldb = d.out,
                                     .c = f32(out),
                                     .ldc = d.out });
    bias_task t = { tape->kernels, NULL,      bias ? f32(bias) : NULL, f32(out),
                    NULL,          0,         (size_t)d.out,           0,
                    false,         activation };
    if (bias || activation != UNI_ACTIVATION_LINEAR)
        uni__for(tape, (size_t)d.rows, 1, (double)d.out * 0.3, bias_run, &t);
    uni__clock_end(tape, "dense", begin, 2.0 * (double)d.rows * (double)d.in * (double)d.out);
    dense *data = uni__tape_record(tape, "dense", out, 3, (uni_tensor *[]){ x, kernel, bias },
                                   dense_backward, sizeof *data);
    if (data)
        *data = d;
    return tape->error.code ? NULL : out;
}

/* ---- batched matmul ---- */

typedef struct batched {
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    int64_t batches;
    int ndim; /* batch axes of the result */
    int64_t size[UNI_TENSOR_MAX_DIMS]; /* sizes of these axes */
    /* Strides in matrices, 0 where broadcast. */
    int64_t a[UNI_TENSOR_MAX_DIMS], b[UNI_TENSOR_MAX_DIMS];
    bool a_shared, b_shared; /* any axis is broadcast */
} batched;

static void offsets(const batched *s, int64_t index, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int i = s->ndim - 1; i >= 0; i--) {
        int64_t k = index % s->size[i];
        index /= s->size[i];
        *a += k * s->a[i];
        *b += k * s->b[i];
    }
}

typedef enum product_part { PART_FORWARD, PART_A, PART_B } product_part;

typedef struct product_task {
    const batched *s;
    product_part part;
    const float *a, *b, *dy;
    float *out;
    bool add, reference;
    int status;
} product_task;

/* The product of one batch entry: the result, or the gradient of one side. */
static uni__product entry(const product_task *t, int64_t index)
{
    const batched *s = t->s;
    int64_t ia, ib, lda = s->transpose_a ? s->m : s->k, ldb = s->transpose_b ? s->k : s->n;
    offsets(s, index, &ia, &ib);
    const float *a = t->a + ia * s->m * s->k, *b = t->b + ib * s->k * s->n,
                *dy = t->dy + index * s->m * s->n;
    if (t->part == PART_FORWARD)
        return (uni__product){ s->transpose_a,
                               s->transpose_b,
                               false,
                               s->m,
                               s->n,
                               s->k,
                               a,
                               b,
                               t->out + index * s->m * s->n,
                               lda,
                               ldb,
                               s->n,
                               NULL };
    if (t->part == PART_A && !s->transpose_a) /* dA = dY op(B)^T */
        return (uni__product){ false, !s->transpose_b,           t->add, s->m, s->k, s->n, dy,
                               b,     t->out + ia * s->m * s->k, s->n,   ldb,  s->k, NULL };
    if (t->part == PART_A) /* A is stored k x m: dA = op(B) dY^T */
        return (uni__product){
            s->transpose_b, true, t->add, s->k, s->m, s->n, b, dy, t->out + ia * s->m * s->k, ldb,
            s->n,           s->m, NULL
        };
    if (!s->transpose_b) /* dB = op(A)^T dY */
        return (uni__product){ !s->transpose_a,           false, t->add, s->k, s->n, s->m, a, dy,
                               t->out + ib * s->k * s->n, lda,   s->n,   s->n, NULL };
    return (uni__product){
        true, s->transpose_a, t->add, s->n, s->k, s->m, dy, a, t->out + ib * s->k * s->n, s->n,
        lda,  s->k,           NULL
    };
}

static void product_run(void *context, size_t begin, size_t end)
{
    product_task *t = context;
    for (size_t i = begin; i < end; i++) {
        uni__product p = entry(t, (int64_t)i);
        int status = uni__gemm_here(t->reference, &p);
        if (status)
            __atomic_store_n(&t->status, status, __ATOMIC_RELAXED);
    }
}

static bool run_products(uni_tape *tape, product_task *t, bool in_order)
{
    const batched *s = t->s;
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    if (in_order || s->batches < tape->threads) {
        for (int64_t i = 0; i < s->batches; i++) {
            uni__product p = entry(t, i);
            if (!uni__gemm(tape, &p))
                return false;
        }
        return true;
    }
    uni__for(tape, (size_t)s->batches, 1, flops / 60.0, product_run, t);
    if (t->status)
        uni_tape_fail(tape, UNI_EINVAL, "oneDNN refused a matrix product (its status %d)",
                      t->status);
    return t->status == 0;
}

static void product_gradient(uni_tape *tape, uni__node *node, product_part part)
{
    const batched *s = (const batched *)node->payload;
    uni_tensor *side = node->inputs[part == PART_A ? 0 : 1];
    bool add = false, shared = part == PART_A ? s->a_shared : s->b_shared;
    float *target = uni__gradient_target(tape, side, &add);
    if (!target)
        return;
    if (shared && !add) { /* several batch entries add to one matrix */
        memset(target, 0, side->count * sizeof(float));
        add = true;
    }
    product_task t = { s,
                       part,
                       f32(node->inputs[0]),
                       f32(node->inputs[1]),
                       node->out->gradient,
                       target,
                       add,
                       tape->reference,
                       0 };
    double begin = uni__clock_begin(tape);
    run_products(tape, &t, shared);
    uni__clock_end(tape, "matmul backward", begin,
                   2.0 * (double)s->batches * (double)s->m * (double)s->n * (double)s->k);
}

static void matmul_backward(uni_tape *tape, uni__node *node)
{
    product_gradient(tape, node, PART_A);
    product_gradient(tape, node, PART_B);
}

/* Batch axes of both sides; false when they are incompatible. */
static bool pair_batches(const uni_tensor *a, const uni_tensor *b, batched *s)
{
    int na = a->ndim - 2, nb = b->ndim - 2;
    int64_t stride_a = 1, stride_b = 1;
    s->ndim = na > nb ? na : nb;
    s->batches = 1;
    for (int i = s->ndim - 1; i >= 0; i--) {
        int ia = i - (s->ndim - na), ib = i - (s->ndim - nb);
        int64_t da = ia < 0 ? 1 : a->shape[ia], db = ib < 0 ? 1 : b->shape[ib];
        if (da != db && da != 1 && db != 1)
            return false;
        s->size[i] = da == 1 ? db : da;
        s->a[i] = da == 1 ? 0 : stride_a;
        s->b[i] = db == 1 ? 0 : stride_b;
        s->a_shared |= da != s->size[i];
        s->b_shared |= db != s->size[i];
        stride_a *= da;
        stride_b *= db;
        s->batches *= s->size[i];
    }
    return true;
}

/* (batch, m, k) @ (k, n) is one product of batch * m rows. */
static void fold_rows(const uni_tensor *b, batched *s)
{
    if (b->ndim != 2 || s->transpose_a || s->ndim == 0)
        return;
    s->m *= s->batches;
    s->batches = 1;
    s->ndim = 0;
    s->b_shared = s->a_shared = false;
}

uni_tensor *uni_op_matmul(uni_tape *tape, uni_tensor *a, uni_tensor *b, bool transpose_a,
                          bool transpose_b)
{
    if (!uni__check_f32(tape, "matmul", a) || !uni__check_f32(tape, "matmul", b))
        return NULL;
    batched s = { .transpose_a = transpose_a, .transpose_b = transpose_b };
    bool fits = a->ndim >= 2 && b->ndim >= 2;
    if (fits) {
        s.m = a->shape[a->ndim - (transpose_a ? 1 : 2)];
        s.k = a->shape[a->ndim - (transpose_a ? 2 : 1)];
        s.n = b->shape[b->ndim - (transpose_b ? 2 : 1)];
        fits = s.k == b->shape[b->ndim - (transpose_b ? 1 : 2)] && pair_batches(a, b, &s);
    }
    if (!fits)
        return uni_tape_fail(tape, UNI_ESHAPE, "matmul: shapes %s%s and %s%s do not fit together",
                             uni__shape(tape, a), transpose_a ? " (transposed)" : "",
                             uni__shape(tape, b), transpose_b ? " (transposed)" : "");
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    int ndim = s.ndim + 2;
    memcpy(shape, s.size, sizeof(int64_t) * (size_t)s.ndim);
    shape[ndim - 2] = s.m;
    shape[ndim - 1] = s.n;
    uni_tensor *out = uni__new(tape, UNI_F32, ndim, shape);
    if (!out)
        return NULL;
    fold_rows(b, &s);
    product_task t = { &s,       PART_FORWARD, f32(a),          f32(b), f32(out),
                       f32(out), false,        tape->reference, 0 };
    double begin = uni__clock_begin(tape);
    bool good = run_products(tape, &t, false);
    uni__clock_end(tape, "matmul", begin,
                   2.0 * (double)s.batches * (double)s.m * (double)s.n * (double)s.k);
    batched *data = uni__tape_record(tape, "matmul", out, 2, (uni_tensor *[]){ a, b },
                                     matmul_backward, sizeof *data);
    if (data)
        *data = s;
    return good && !tape->error.code ? out : NULL;
}
