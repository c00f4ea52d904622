/*
 * conv_reference.c - textbook convolution and its gradients. Tests compare with it, and the tape
 * option `reference` runs it. Any thread.
 *
 *   x       (batch, height, width, in)
 *   kernel  (kh, kw, in / groups, out)
 *   y       (batch, out_height, out_width, out)
 */
#include <string.h>
#include "tensor/onednn.h"

typedef void (*visit)(void *context, int64_t x, int64_t kernel, int64_t y);

/* Visits all (x, kernel, y) index triples that multiply, in order of y. */
static void each(const uni__conv *c, visit body, void *context)
{
    int64_t in = c->in / c->groups, out = c->out / c->groups;
    for (int64_t n = 0; n < c->batch; n++)
        for (int64_t oh = 0; oh < c->out_height; oh++)
            for (int64_t ow = 0; ow < c->out_width; ow++)
                for (int64_t o = 0; o < c->out; o++)
                    for (int64_t kh = 0; kh < c->kernel_height; kh++)
                        for (int64_t kw = 0; kw < c->kernel_width; kw++) {
                            int64_t h = oh * c->stride[0] + kh * c->dilation[0] - c->pad_top;
                            int64_t w = ow * c->stride[1] + kw * c->dilation[1] - c->pad_left;
                            if (h < 0 || h >= c->height || w < 0 || w >= c->width)
                                continue;
                            for (int64_t i = 0; i < in; i++)
                                body(context,
                                     ((n * c->height + h) * c->width + w) * c->in + o / out * in +
                                         i,
                                     ((kh * c->kernel_width + kw) * in + i) * c->out + o,
                                     ((n * c->out_height + oh) * c->out_width + ow) * c->out + o);
                        }
}

typedef struct arrays {
    const float *x, *kernel, *y;
    float *out;
} arrays;

static void add_y(void *context, int64_t x, int64_t kernel, int64_t y)
{
    arrays *a = context;
    a->out[y] += a->x[x] * a->kernel[kernel];
}

static void add_x(void *context, int64_t x, int64_t kernel, int64_t y)
{
    arrays *a = context;
    a->out[x] += a->y[y] * a->kernel[kernel];
}

static void add_kernel(void *context, int64_t x, int64_t kernel, int64_t y)
{
    arrays *a = context;
    a->out[kernel] += a->y[y] * a->x[x];
}

void uni__conv_forward_reference(const uni__conv *conv, const float *x, const float *kernel,
                                 const float *bias, float *y)
{
    int64_t pixels = conv->batch * conv->out_height * conv->out_width;
    for (int64_t i = 0; i < pixels * conv->out; i++)
        y[i] = bias ? bias[i % conv->out] : 0;
    each(conv, add_y, &(arrays){ .x = x, .kernel = kernel, .out = y });
    for (int64_t i = 0; conv->relu && i < pixels * conv->out; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
}

void uni__conv_backward_data_reference(const uni__conv *conv, const float *kernel, const float *dy,
                                       float *dx)
{
    memset(dx, 0, (size_t)(conv->batch * conv->height * conv->width * conv->in) * sizeof(float));
    each(conv, add_x, &(arrays){ .y = dy, .kernel = kernel, .out = dx });
}

void uni__conv_backward_weights_reference(const uni__conv *conv, const float *x, const float *dy,
                                          float *dkernel, float *dbias)
{
    int64_t pixels = conv->batch * conv->out_height * conv->out_width;
    memset(
        dkernel, 0,
        (size_t)(conv->kernel_height * conv->kernel_width * conv->in / conv->groups * conv->out) *
            sizeof(float));
    each(conv, add_kernel, &(arrays){ .x = x, .y = dy, .out = dkernel });
    for (int64_t o = 0; dbias && o < conv->out; o++) {
        double sum = 0;
        for (int64_t i = 0; i < pixels; i++)
            sum += dy[i * conv->out + o];
        dbias[o] = (float)sum;
    }
}
