/*
 * op_norm.c - batch and layer normalization.
 *
 * Batch statistics are (sum, count) and (sum of squared distances), in two passes, and go through
 * the step's sync if there is one: forward the sums, then the squares around the common mean;
 * backward the two sums of the gradient. So every replica normalizes with the same numbers, and
 * empty replicas take part with zeros. Called by the tape's thread; sync may block.
 */
#include <math.h>
#include <string.h>
#include "tensor/internal.h"
#include "base/options.h"

/* ---- layer ---- */

typedef struct layer_payload {
    size_t rows, cols;
    float *mean, *rstd;
} layer_payload;

typedef struct layer_task {
    const uni__tensor_kernels *kernels;
    const layer_payload *l;
    const float *x, *gamma, *beta, *dy;
    /* The sums have one row per piece. */
    float *y, *dgamma, *dbeta;
    float epsilon;
    bool add;
    size_t pieces;
} layer_task;

static void layer_run(void *context, size_t begin, size_t end)
{
    const layer_task *t = context;
    size_t at = begin * t->l->cols;
    t->kernels->layer_norm(t->x + at, t->gamma, t->beta, t->y + at, t->l->mean + begin,
                           t->l->rstd + begin, end - begin, t->l->cols, t->epsilon);
}

static void layer_run_backward(void *context, size_t begin, size_t end)
{
    const layer_task *t = context;
    const layer_payload *l = t->l;
    for (size_t piece = begin; piece < end; piece++) {
        size_t first = l->rows * piece / t->pieces, last = l->rows * (piece + 1) / t->pieces,
               at = first * l->cols;
        t->kernels->layer_norm_backward(
            t->x + at, t->gamma, l->mean + first, l->rstd + first, t->dy + at,
            t->y ? t->y + at : NULL, t->add, t->dgamma ? t->dgamma + piece * l->cols : NULL,
            t->dbeta ? t->dbeta + piece * l->cols : NULL, last - first, l->cols);
    }
}

static void sum_pieces(uni_tape *tape, uni_tensor *parameter, const float *sums, size_t pieces,
                       size_t cols)
{
    bool add = false;
    float *target = parameter ? uni__gradient_target(tape, parameter, &add) : NULL;
    if (target)
        tape->kernels->reduce(UNI_REDUCE_SUM, sums, target, 1, pieces, cols, add);
}

static void layer_backward(uni_tape *tape, uni__node *node)
{
    const layer_payload *l = (const layer_payload *)node->payload;
    uni_tensor *x = node->inputs[0], *gamma = node->inputs[1], *beta = node->inputs[2];
    size_t pieces = (size_t)uni__threads_for(tape, (double)(l->rows * l->cols));
    layer_task t = { .kernels = tape->kernels,
                     .l = l,
                     .x = f32(x),
                     .gamma = gamma ? f32(gamma) : NULL,
                     .dy = node->out->gradient,
                     .pieces = pieces };
    size_t bytes = pieces * l->cols * sizeof(float);
    if (gamma && gamma->needs_gradient && (t.dgamma = uni__scratch(tape, bytes)))
        memset(t.dgamma, 0, bytes);
    if (beta && beta->needs_gradient && (t.dbeta = uni__scratch(tape, bytes)))
        memset(t.dbeta, 0, bytes);
    t.y = uni__gradient_target(tape, x, &t.add);
    if (tape->error.code)
        return;
    double begin = uni__clock_begin(tape);
    uni__for(tape, pieces, 1, pieces > 1 ? 1e9 : 0, layer_run_backward, &t);
    uni__clock_end(tape, "layer_norm backward", begin, 0);
    if (t.dgamma)
        sum_pieces(tape, gamma, t.dgamma, pieces, l->cols);
    if (t.dbeta)
        sum_pieces(tape, beta, t.dbeta, pieces, l->cols);
    uni__release(tape, t.dgamma, bytes);
    uni__release(tape, t.dbeta, bytes);
}

static bool fits_channels(uni_tape *tape, const char *name, const uni_tensor *x,
                          const uni_tensor *parameter, size_t cols)
{
    if (!parameter || (parameter->dtype == UNI_F32 && parameter->count == cols))
        return true;
    uni_tape_fail(tape, UNI_ESHAPE, "%s: input of shape %s, but gamma or beta of shape %s", name,
                  uni__shape(tape, x), uni__shape(tape, parameter));
    return false;
}

uni_tensor *uni_op_layer_norm(uni_tape *tape, uni_tensor *x, uni_tensor *gamma, uni_tensor *beta,
                              int axes, float epsilon)
{
    if (!uni__check_f32(tape, "layer_norm", x))
        return NULL;
    if (axes < 1 || axes > x->ndim)
        return uni_tape_fail(tape, UNI_ESHAPE, "layer_norm: %d axes of shape %s", axes,
                             uni__shape(tape, x));
    layer_payload l = { .cols = (size_t)uni__shape_span(x->shape, x->ndim - axes, x->ndim) };
    l.rows = (size_t)uni__shape_span(x->shape, 0, x->ndim - axes);
    if (!fits_channels(tape, "layer_norm", x, gamma, l.cols) ||
        !fits_channels(tape, "layer_norm", x, beta, l.cols))
        return NULL;
    uni_tensor *out = uni__new_like(tape, x);
    l.mean = uni__scratch_floats(tape, l.rows);
    l.rstd = uni__scratch_floats(tape, l.rows);
    if (!out || !l.mean || !l.rstd)
        return NULL;
    layer_task t = { .kernels = tape->kernels,
                     .l = &l,
                     .x = f32(x),
                     .gamma = gamma ? f32(gamma) : NULL,
                     .beta = beta ? f32(beta) : NULL,
                     .y = f32(out),
                     .epsilon = epsilon };
    double begin = uni__clock_begin(tape);
    if (x->count)
        uni__for(tape, l.rows, 1, (double)l.cols, layer_run, &t);
    uni__clock_end(tape, "layer_norm", begin, 0);
    layer_payload *data =
        uni__tape_record(tape, "layer_norm", out, 3, (uni_tensor *[]){ x, gamma, beta },
                         layer_backward, sizeof *data);
    if (data)
        *data = l;
    return out;
}

/* ---- batch ---- */

typedef struct batch_payload {
    size_t rows, cols;
    float *mean, *rstd; /* [cols] */
    /* Rows of all replicas; 0: moving statistics were used. */
    double count;
} batch_payload;

typedef struct column_task {
    const uni__tensor_kernels *kernels;
    size_t rows, cols, pieces;
    const float *x, *dy, *center, *a, *b, *c;
    /* first, second: one row per piece. */
    float *first, *second, *out;
    bool add;
    int what; /* 0: moments, 1: products, 2: affine, 3: combine */
} column_task;

static void column_run(void *context, size_t begin, size_t end)
{
    const column_task *t = context;
    for (size_t piece = begin; piece < end; piece++) {
        size_t row = t->rows * piece / t->pieces, n = t->rows * (piece + 1) / t->pieces - row,
               at = row * t->cols;
        float *first = t->first + piece * t->cols, *second = t->second + piece * t->cols;
        if (t->what == 0)
            t->kernels->column_moments(t->x + at, t->center, first, second, n, t->cols);
        else if (t->what == 1)
            t->kernels->column_products(t->x + at, t->center, t->dy + at, first, second, n,
                                        t->cols);
        else if (t->what == 2)
            t->kernels->column_affine(t->x + at, t->a, t->b, t->out + at, n, t->cols);
        else
            t->kernels->column_combine(t->x + at, t->dy + at, t->a, t->b, t->c, t->out + at, t->add,
                                       n, t->cols);
    }
}

static void columns(uni_tape *tape, column_task *t)
{
    t->kernels = tape->kernels;
    t->pieces = (size_t)uni__threads_for(tape, (double)(t->rows * t->cols) * 0.5);
    uni__for(tape, t->pieces, 1, t->pieces > 1 ? 1e9 : 0, column_run, t);
}

/* first[cols], second[cols] = column sums over all replicas; extra (one number, may be NULL) is
 * summed as well. */
static bool column_sums(uni_tape *tape, column_task *t, float *first, float *second, float *extra)
{
    size_t pieces = (size_t)uni__threads_for(tape, (double)(t->rows * t->cols) * 0.5);
    size_t row = t->cols, total = 2 * row * pieces + 2 * row + 1;
    float *memory = uni__scratch_floats(tape, total);
    if (!memory)
        return false;
    memset(memory, 0, total * sizeof(float));
    t->first = memory + 2 * row + 1;
    t->second = t->first + row * pieces;
    columns(tape, t);
    tape->kernels->reduce(UNI_REDUCE_SUM, t->first, memory, 1, pieces, row, false);
    tape->kernels->reduce(UNI_REDUCE_SUM, t->second, memory + row, 1, pieces, row, false);
    memory[2 * row] = extra ? *extra : 0;
    const uni_sync *sync = tape->step.sync;
    uni_error err = { 0 };
    if (sync && sync->sum && sync->sum(sync->context, memory, 2 * row + 1, &err) < 0) {
        uni_tape_fail(tape, err.code, "batch_norm over all replicas: %s", err.message);
        return false;
    }
    memcpy(first, memory, row * sizeof(float));
    memcpy(second, memory + row, row * sizeof(float));
    if (extra)
        *extra = memory[2 * row];
    uni__release_floats(tape, memory, total);
    return true;
}

static bool batch_statistics(uni_tape *tape, const uni_tensor *x, batch_payload *b, float *variance)
{
    float count = (float)b->rows;
    column_task t = { .rows = b->rows, .cols = b->cols, .x = f32(x) };
    float *unused = uni__scratch_floats(tape, b->cols);
    if (!unused || !column_sums(tape, &t, b->mean, unused, &count))
        return false;
    b->count = count;
    for (size_t c = 0; c < b->cols; c++)
        b->mean[c] = count > 0 ? b->mean[c] / count : 0;
    t = (column_task){ .rows = b->rows, .cols = b->cols, .x = f32(x), .center = b->mean };
    if (!column_sums(tape, &t, unused, variance, NULL))
        return false;
    for (size_t c = 0; c < b->cols; c++)
        variance[c] = count > 0 ? variance[c] / count : 0;
    return true;
}

static void move_averages(const uni_tape *tape, const uni_batch_norm_options *options,
                          const batch_payload *b, const float *variance)
{
    if (tape->step.keep_state || b->count == 0)
        return;
    float *mean = uni_parameter_data(options->moving_mean),
          *moving = uni_parameter_data(options->moving_variance);
    for (size_t c = 0; c < b->cols; c++) {
        mean[c] = mean[c] * options->momentum + b->mean[c] * (1.0f - options->momentum);
        moving[c] = moving[c] * options->momentum + variance[c] * (1.0f - options->momentum);
    }
}

static void give_parameter(uni_tape *tape, uni_tensor *parameter, const float *sums,
                           const float *factor)
{
    bool add = false;
    float *target = parameter ? uni__gradient_target(tape, parameter, &add) : NULL;
    for (size_t c = 0; target && c < parameter->count; c++)
        target[c] = (add ? target[c] : 0) + sums[c] * (factor ? factor[c] : 1);
}

/* dx = gamma rstd (dy - mean(dy) - xhat mean(dy xhat)); with moving statistics gamma rstd dy */
static void batch_gradient(uni_tape *tape, uni__node *node, const float *sums,
                           const float *products)
{
    const batch_payload *b = (const batch_payload *)node->payload;
    const float *gamma = node->inputs[1] ? f32(node->inputs[1]) : NULL;
    column_task t = { .rows = b->rows,
                      .cols = b->cols,
                      .x = f32(node->inputs[0]),
                      .dy = node->out->gradient,
                      .what = 3 };
    t.out = uni__gradient_target(tape, node->inputs[0], &t.add);
    float *memory = uni__scratch_floats(tape, 3 * b->cols);
    if (!t.out || !memory)
        return;
    float *p = memory, *q = p + b->cols, *r = q + b->cols;
    for (size_t c = 0; c < b->cols; c++) {
        p[c] = b->rstd[c] * (gamma ? gamma[c] : 1);
        q[c] = b->count > 0 ? -p[c] * b->rstd[c] * b->rstd[c] * products[c] / (float)b->count : 0;
        r[c] = b->count > 0 ? -p[c] * sums[c] / (float)b->count - q[c] * b->mean[c] : 0;
    }
    t.a = p;
    t.b = q;
    t.c = r;
    columns(tape, &t);
    uni__release_floats(tape, memory, 3 * b->cols);
}

static void batch_backward(uni_tape *tape, uni__node *node)
{
    const batch_payload *b = (const batch_payload *)node->payload;
    float *sums = uni__scratch_floats(tape, b->cols),
          *products = uni__scratch_floats(tape, b->cols);
    float *own_sums = uni__scratch_floats(tape, b->cols),
          *own_products = uni__scratch_floats(tape, b->cols);
    if (!sums || !products || !own_sums || !own_products)
        return;
    double begin = uni__clock_begin(tape);
    column_task t = { .rows = b->rows,
                      .cols = b->cols,
                      .x = f32(node->inputs[0]),
                      .dy = node->out->gradient,
                      .center = b->mean,
                      .what = 1 };
    /* gamma and beta get only this replica's part: the strategy sums gradients later. */
    const uni_sync *sync = tape->step.sync;
    tape->step.sync = NULL;
    bool good = column_sums(tape, &t, own_sums, own_products, NULL);
    tape->step.sync = sync;
    if (good && sync && sync->sum && b->count > 0)
        good = column_sums(tape, &t, sums, products, NULL);
    if (good) {
        give_parameter(tape, node->inputs[1], own_products, b->rstd);
        give_parameter(tape, node->inputs[2], own_sums, NULL);
        bool together = sync && sync->sum && b->count > 0;
        batch_gradient(tape, node, together ? sums : own_sums, together ? products : own_products);
    }
    uni__clock_end(tape, "batch_norm backward", begin, 0);
}

uni_tensor *uni_op_batch_norm(uni_tape *tape, uni_tensor *x, uni_tensor *gamma, uni_tensor *beta,
                              const uni_batch_norm_options *options)
{
    UNI__TAPE_OPTIONS(uni_batch_norm_options, options, use_moving, tape);
    if (!uni__check_f32(tape, "batch_norm", x))
        return NULL;
    if (x->ndim < 2 || x->shape[x->ndim - 1] == 0)
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "batch_norm: shape %s; it must be (batch, ..., channels)",
                             uni__shape(tape, x));
    batch_payload b = { .cols = (size_t)x->shape[x->ndim - 1] };
    b.rows = x->count / b.cols;
    if (!fits_channels(tape, "batch_norm", x, gamma, b.cols) ||
        !fits_channels(tape, "batch_norm", x, beta, b.cols))
        return NULL;
    uni_tensor *out = uni__new_like(tape, x);
    float *memory = uni__scratch_floats(tape, 5 * b.cols);
    if (!out || !memory)
        return NULL;
    b.mean = memory;
    b.rstd = memory + b.cols;
    float *variance = memory + 2 * b.cols, *factor = memory + 3 * b.cols,
          *shift = memory + 4 * b.cols;
    double begin = uni__clock_begin(tape);
    if (tape->step.training && !options->use_moving) {
        if (!batch_statistics(tape, x, &b, variance))
            return NULL;
        move_averages(tape, options, &b, variance);
    } else {
        memcpy(b.mean, uni_parameter_data(options->moving_mean), b.cols * sizeof(float));
        memcpy(variance, uni_parameter_data(options->moving_variance), b.cols * sizeof(float));
    }
    for (size_t c = 0; c < b.cols; c++) {
        b.rstd[c] = 1.0f / sqrtf(variance[c] + options->epsilon);
        factor[c] = b.rstd[c] * (gamma ? f32(gamma)[c] : 1);
        shift[c] = (beta ? f32(beta)[c] : 0) - b.mean[c] * factor[c];
    }
    column_task t = { .rows = b.rows,
                      .cols = b.cols,
                      .x = f32(x),
                      .a = factor,
                      .b = shift,
                      .out = f32(out),
                      .what = 2 };
    columns(tape, &t);
    uni__clock_end(tape, "batch_norm", begin, 0);
    batch_payload *data =
        uni__tape_record(tape, "batch_norm", out, 3, (uni_tensor *[]){ x, gamma, beta },
                         batch_backward, sizeof *data);
    if (data)
        *data = b;
    return out;
}
