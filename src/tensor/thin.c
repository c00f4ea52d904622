/*
 * thin.c - convolutions of images with few channels by our own kernels (kernels_thin.h): selects
 * them and distributes the work over the tape's threads. oneDNN's kernels take about twice as long
 * there. Pieces depend only on shapes and the thread count: same count, same bits. Called by the
 * tape's thread.
 */
#include <string.h>
#include "tensor/onednn.h"

#define MOST_CHANNELS 4

bool uni__thin_fits(const uni_tape *tape, const uni__conv *c)
{
    return uni__own_products(tape) && tape->kernels->thin_forward && !tape->reference &&
           c->in <= MOST_CHANNELS && c->groups == 1 && c->out % 16 == 0 && c->stride[0] == 1 &&
           c->stride[1] == 1 && c->dilation[0] == 1 && c->dilation[1] == 1 &&
           c->kernel_height * c->kernel_width * c->in <= UNI__THIN_MOST_TAPS;
}

static size_t frame_of(const uni__conv *c)
{
    return (size_t)((c->out_height + c->kernel_height - 1) * (c->out_width + c->kernel_width - 1) *
                    c->in);
}

typedef struct task {
    const uni__tensor_kernels *kernels;
    const uni__thin *thin;
    /* Per piece: a frame and, for gradients, their sums. */
    float *scratch;
    size_t images, pieces, room, frame, taps;
} task;

static void run_forward(void *context, size_t first, size_t last)
{
    const task *t = context;
    for (size_t piece = first; piece < last; piece++)
        t->kernels->thin_forward(t->thin, t->images * piece / t->pieces,
                                 t->images * (piece + 1) / t->pieces, t->scratch + piece * t->room);
}

static void run_backward(void *context, size_t first, size_t last)
{
    const task *t = context;
    for (size_t piece = first; piece < last; piece++) {
        float *frame = t->scratch + piece * t->room, *sums = frame + t->frame;
        t->kernels->thin_backward(t->thin, t->images * piece / t->pieces,
                                  t->images * (piece + 1) / t->pieces, frame, sums,
                                  sums + t->taps * (size_t)t->thin->conv.out);
    }
}

static size_t pieces_for(const uni_tape *tape, const uni__conv *c)
{
    double products = (double)(c->batch * c->out_height * c->out_width * c->out) *
                      (double)(c->kernel_height * c->kernel_width * c->in);
    return (size_t)uni__threads_for(tape, products / 30.0);
}

bool uni__thin_forward(uni_tape *tape, const uni__conv *conv, const float *x, const float *kernel,
                       const float *bias, float *y)
{
    uni__thin thin = { .conv = *conv, .x = x, .kernel = kernel, .bias = bias, .y = y };
    task t = { .kernels = tape->kernels,
               .thin = &thin,
               .images = (size_t)conv->batch,
               .pieces = pieces_for(tape, conv),
               .room = (frame_of(conv) + 15) / 16 * 16 };
    if (!(t.scratch = uni__scratch_floats(tape, t.pieces * t.room)))
        return false;
    uni__for(tape, t.pieces, 1, t.pieces > 1 ? 1e9 : 0, run_forward, &t);
    uni__release_floats(tape, t.scratch, t.pieces * t.room);
    return true;
}

/* Sums the pieces into `to`. */
static void add_pieces(const task *t, const float *from, size_t n, float *to, bool add)
{
    if (!add)
        memcpy(to, from, n * sizeof(float));
    for (size_t i = add ? 0 : 1; i < t->pieces; i++)
        t->kernels->add_in_place(to, from + i * t->room, n);
}

bool uni__thin_backward(uni_tape *tape, const uni__conv *conv, const float *x, const float *y,
                        const float *dy, float *dkernel, bool add_kernel, float *dbias,
                        bool add_bias)
{
    size_t out = (size_t)conv->out,
           taps = (size_t)(conv->kernel_height * conv->kernel_width * conv->in);
    uni__thin thin = {
        .conv = *conv, .x = x, .y = (float *)(uintptr_t)y /* only read */, .dy = dy
    };
    task t = { .kernels = tape->kernels,
               .thin = &thin,
               .images = (size_t)conv->batch,
               .pieces = pieces_for(tape, conv),
               .frame = (frame_of(conv) + 15) / 16 * 16,
               .taps = taps };
    t.room = t.frame + (taps + 1) * out;
    if (!(t.scratch = uni__scratch_floats(tape, t.pieces * t.room)))
        return false;
    uni__for(tape, t.pieces, 1, t.pieces > 1 ? 1e9 : 0, run_backward, &t);
    if (dkernel)
        add_pieces(&t, t.scratch + t.frame, taps * out, dkernel, add_kernel);
    if (dbias)
        add_pieces(&t, t.scratch + t.frame + taps * out, out, dbias, add_bias);
    uni__release_floats(tape, t.scratch, t.pieces * t.room);
    return true;
}
