/*
 * op_pool.c - maximum and average over windows of 1 or 2 spatial axes, channels last. The inner
 * loops run over channels. For the maximum, the index of the window's element (row * window width +
 * column) is kept. Averages divide by the number of elements that are not padding, as Keras does.
 * Called by the tape's thread; its threads share the samples.
 *
 *   x (batch, height, width, channels) -> y (batch, out_height, out_width, channels)
 */
#include <string.h>
#include "tensor/internal.h"
#include "base/options.h"

typedef struct pool {
    uni_pool kind;
    int64_t height, width, channels, out_height, out_width;
    int64_t window[2], stride[2], top, left;
} pool;

typedef struct payload {
    pool p;
    int32_t *where;
} payload;

typedef struct task {
    const uni__tensor_kernels *kernels;
    const pool *p;
    const float *x;
    float *y;
    int32_t *where;
} task;

/* The part of a window inside the image. */
typedef struct range {
    int64_t begin, end; /* window elements */
    int64_t first; /* position in x of element `begin` */
} range;

static range clip_window(int64_t out, int64_t stride, int64_t before, int64_t window, int64_t size)
{
    int64_t start = out * stride - before;
    range r = { start < 0 ? -start : 0, start + window > size ? size - start : window,
                start < 0 ? 0 : start };
    return r;
}

static void max_pixel(const task *t, const float *x, range rows, range cols, float *y,
                      int32_t *where)
{
    const pool *p = t->p;
    bool first = true;
    for (int64_t i = rows.begin; i < rows.end; i++)
        for (int64_t j = cols.begin; j < cols.end; j++) {
            const float *from =
                x + ((rows.first + i - rows.begin) * p->width + cols.first + j - cols.begin) *
                        p->channels;
            int32_t index = (int32_t)(i * p->window[1] + j);
            if (first) {
                memcpy(y, from, (size_t)p->channels * sizeof(float));
                for (int64_t c = 0; c < p->channels; c++)
                    where[c] = index;
                first = false;
            } else {
                t->kernels->max_merge(from, y, where, index, (size_t)p->channels);
            }
        }
}

static void average_pixel(const task *t, const float *x, range rows, range cols, float *y)
{
    const pool *p = t->p;
    memset(y, 0, (size_t)p->channels * sizeof(float));
    for (int64_t i = rows.begin; i < rows.end; i++)
        for (int64_t j = cols.begin; j < cols.end; j++)
            t->kernels->add_in_place(
                y,
                x + ((rows.first + i - rows.begin) * p->width + cols.first + j - cols.begin) *
                        p->channels,
                (size_t)p->channels);
    t->kernels->scale(y, y, (size_t)p->channels,
                      1.0f / (float)((rows.end - rows.begin) * (cols.end - cols.begin)), 0);
}

static void run(void *context, size_t begin, size_t end)
{
    const task *t = context;
    const pool *p = t->p;
    for (size_t item = begin; item < end; item++) { /* item: one row of results */
        size_t n = item / (size_t)p->out_height;
        int64_t oh = (int64_t)(item % (size_t)p->out_height);
        const float *x = t->x + n * (size_t)(p->height * p->width * p->channels);
        range rows = clip_window(oh, p->stride[0], p->top, p->window[0], p->height);
        for (int64_t ow = 0; ow < p->out_width; ow++) {
            range cols = clip_window(ow, p->stride[1], p->left, p->window[1], p->width);
            size_t at = (item * (size_t)p->out_width + (size_t)ow) * (size_t)p->channels;
            if (p->kind == UNI_POOL_MAX)
                max_pixel(t, x, rows, cols, t->y + at, t->where + at);
            else
                average_pixel(t, x, rows, cols, t->y + at);
        }
    }
}

/* Here x is dy, and y is dx, which is zeroed. One item is a sample, so threads never write to the
 * same place. */
static void run_backward(void *context, size_t begin, size_t end)
{
    const task *t = context;
    const pool *p = t->p;
    size_t pixels = (size_t)(p->out_height * p->out_width), channels = (size_t)p->channels;
    for (size_t n = begin; n < end; n++) {
        float *dx = t->y + n * (size_t)(p->height * p->width) * channels;
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            int64_t oh = (int64_t)pixel / p->out_width, ow = (int64_t)pixel % p->out_width;
            size_t at = (n * pixels + pixel) * channels;
            const float *dy = t->x + at;
            if (p->kind == UNI_POOL_MAX) {
                int64_t corner =
                    ((oh * p->stride[0] - p->top) * p->width + ow * p->stride[1] - p->left) *
                    p->channels;
                for (int64_t c = 0; c < p->channels; c++) {
                    int32_t w = t->where[at + (size_t)c];
                    dx[corner + (w / p->window[1] * p->width + w % p->window[1]) * p->channels +
                       c] += dy[c];
                }
                continue;
            }
            range rows = clip_window(oh, p->stride[0], p->top, p->window[0], p->height);
            range cols = clip_window(ow, p->stride[1], p->left, p->window[1], p->width);
            float share = 1.0f / (float)((rows.end - rows.begin) * (cols.end - cols.begin));
            for (int64_t i = 0; i < rows.end - rows.begin; i++)
                for (int64_t j = 0; j < cols.end - cols.begin; j++) {
                    float *to = dx + ((rows.first + i) * p->width + cols.first + j) * p->channels;
                    for (int64_t c = 0; c < p->channels; c++)
                        to[c] += dy[c] * share;
                }
        }
    }
}

static void backward(uni_tape *tape, uni__node *node)
{
    const payload *data = (const payload *)node->payload;
    uni_tensor *x = node->inputs[0];
    float *dx = uni__scratch_floats(tape, x->count);
    if (!dx)
        return;
    double begin = uni__clock_begin(tape);
    memset(dx, 0, x->count * sizeof(float));
    task t = { tape->kernels, &data->p, node->out->gradient, dx, data->where };
    size_t batch = (size_t)x->shape[0];
    uni__for(tape, batch, 1, batch ? (double)(x->count / batch) : 0, run_backward, &t);
    uni__clock_end(tape, "pool backward", begin, 0);
    uni__release(tape, data->where, node->out->count * sizeof *data->where);
    uni__gradient_give(tape, x, dx);
}

static void plan_axis(int64_t in, int64_t window, int64_t stride, uni_padding padding, int64_t *out,
                      int64_t *before)
{
    *before = 0;
    if (padding == UNI_PADDING_SAME) {
        *out = (in + stride - 1) / stride;
        int64_t total = (*out - 1) * stride + window - in;
        *before = total > 0 ? total / 2 : 0;
        return;
    }
    *out = in < window ? 0 : (in - window) / stride + 1;
}

static pool plan(const uni_tensor *x, const uni_pool_options *options)
{
    bool two = x->ndim == 4;
    pool p = { .kind = options->kind,
               .height = two ? x->shape[1] : 1,
               .width = x->shape[x->ndim - 2],
               .channels = x->shape[x->ndim - 1] };
    for (int i = 0; i < 2; i++) {
        int from = two ? i : 0;
        p.window[i] = options->window[from] > 0 ? options->window[from] : 2;
        p.stride[i] = options->stride[from] > 0 ? options->stride[from] : p.window[i];
    }
    if (!two)
        p.window[0] = p.stride[0] = 1;
    plan_axis(p.height, p.window[0], p.stride[0], two ? options->padding : UNI_PADDING_VALID,
              &p.out_height, &p.top);
    plan_axis(p.width, p.window[1], p.stride[1], options->padding, &p.out_width, &p.left);
    return p;
}

uni_tensor *uni_op_pool(uni_tape *tape, uni_tensor *x, const uni_pool_options *options)
{
    UNI__TAPE_OPTIONS(uni_pool_options, options, padding, tape);
    if (!uni__check_f32(tape, "pooling", x))
        return NULL;
    if (x->ndim != 3 && x->ndim != 4)
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "pooling: shape %s; it must be (batch, [height,] width, channels)",
                             uni__shape(tape, x));
    pool p = plan(x, options);
    if (p.out_height <= 0 || p.out_width <= 0)
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "pooling: an input of shape %s is smaller than the window %lldx%lld",
                             uni__shape(tape, x), (long long)p.window[0], (long long)p.window[1]);
    int64_t two[4] = { x->shape[0], p.out_height, p.out_width, p.channels },
            one[3] = { x->shape[0], p.out_width, p.channels };
    uni_tensor *out = uni__new(tape, UNI_F32, x->ndim, x->ndim == 4 ? two : one);
    int32_t *where =
        out && p.kind == UNI_POOL_MAX ? uni__scratch(tape, out->count * sizeof *where) : NULL;
    if (!out || (p.kind == UNI_POOL_MAX && !where))
        return NULL;
    double begin = uni__clock_begin(tape);
    task t = { tape->kernels, &p, f32(x), f32(out), where };
    uni__for(tape, (size_t)(x->shape[0] * p.out_height), 1,
             (double)(p.out_width * p.channels * p.window[0] * p.window[1]) * 0.5, run, &t);
    uni__clock_end(tape, "pool", begin, 0);
    payload *data = uni__tape_record(tape, "pool", out, 1, &x, backward, sizeof *data);
    if (data)
        *data = (payload){ p, where };
    return out;
}
