/*
 * winograd.c - 3 x 3 convolutions by our own kernels (kernels_winograd.h): selects them and
 * distributes the work over the tape's threads.
 *
 * oneDNN has Winograd's algorithm for AVX-512 only. With AVX2 its direct kernels need 36
 * multiplications where these need 16 and some additions. The gradient of the input is the same
 * convolution with the kernel rotated. Pieces depend only on shapes and the thread count: same
 * count, same bits. Called by the tape's thread.
 */
#include "tensor/onednn.h"

/* The transforms of a block of tiles; they stay in the second-level cache along with the
 * kernel's. */
#define BLOCK_BYTES ((size_t)192 << 10)
/* The transforms cost as much as a product with about ten channels. Beyond the upper bound the
 * kernel's transform no longer fits a private cache; this was not measured. */
#define FEWEST_CHANNELS 32
#define MOST_CHANNELS 256

static bool fits(int64_t channels)
{
    return channels % 16 == 0 && channels >= FEWEST_CHANNELS && channels <= MOST_CHANNELS;
}

bool uni__winograd_fits(const uni_tape *tape, const uni__conv *c)
{
    return uni__own_products(tape) && tape->kernels->winograd_forward && c->kernel_height == 3 &&
           c->kernel_width == 3 && c->groups == 1 && c->stride[0] == 1 && c->stride[1] == 1 &&
           c->dilation[0] == 1 && c->dilation[1] == 1 && fits(c->in) && fits(c->out) &&
           c->pad_top <= 2 && c->pad_left <= 2 && c->out_height >= 4 && c->out_width >= 4 &&
           c->height >= 4 && c->width >= 4;
}

static uni__winograd plan(const uni__conv *c)
{
    uni__winograd w = { .conv = *c };
    size_t block = BLOCK_BYTES / (16 * sizeof(float) * (size_t)(c->in + c->out)) / 6 * 6;
    w.block = block < 24 ? 24 : block;
    w.tiles =
        (size_t)c->batch * (size_t)((c->out_height + 1) / 2) * (size_t)((c->out_width + 1) / 2);
    return w;
}

/* Floats of scratch for one thread: the transforms of a block, and a patch at the image's
 * border. */
static size_t room_of(const uni__winograd *w)
{
    return 16 * ((w->block + 1) * (size_t)(w->conv.in + w->conv.out));
}

typedef struct task {
    const uni__tensor_kernels *kernels;
    const uni__winograd *w;
    float *scratch, *du;
    size_t pieces, room, du_size;
} task;

static void piece_of(const task *t, size_t piece, size_t *begin, size_t *end)
{
    size_t blocks = (t->w->tiles + t->w->block - 1) / t->w->block;
    *begin = blocks * piece / t->pieces * t->w->block;
    *end = blocks * (piece + 1) / t->pieces * t->w->block;
    *end = *end < t->w->tiles ? *end : t->w->tiles;
}

static void run_forward(void *context, size_t first, size_t last)
{
    const task *t = context;
    for (size_t piece = first; piece < last; piece++) {
        size_t begin, end;
        piece_of(t, piece, &begin, &end);
        t->kernels->winograd_forward(t->w, begin, end, t->scratch + piece * t->room);
    }
}

static void run_weights(void *context, size_t first, size_t last)
{
    const task *t = context;
    for (size_t piece = first; piece < last; piece++) {
        size_t begin, end;
        piece_of(t, piece, &begin, &end);
        t->kernels->winograd_weights(t->w, begin, end, t->scratch + piece * t->room,
                                     t->du + piece * t->du_size);
    }
}

static int threads_for(const uni_tape *tape, const uni__winograd *w)
{
    return uni__threads_for(tape, (double)w->tiles * (double)(w->conv.in * w->conv.out) / 2.5);
}

static bool forward(uni_tape *tape, uni__winograd *w, const float *kernel)
{
    size_t threads = (size_t)threads_for(tape, w), size = 16 * (size_t)(w->conv.in * w->conv.out);
    task t = { .kernels = tape->kernels, .w = w, .pieces = threads, .room = room_of(w) };
    float *u = uni__scratch_floats(tape, size);
    t.scratch = uni__scratch_floats(tape, threads * t.room);
    if (!u || !t.scratch)
        return false;
    tape->kernels->winograd_kernel(kernel, (size_t)w->conv.in, (size_t)w->conv.out, u);
    w->u = u;
    uni__for(tape, threads, 1, threads > 1 ? 1e9 : 0, run_forward, &t);
    uni__release_floats(tape, t.scratch, threads * t.room);
    uni__release_floats(tape, u, size);
    return true;
}

bool uni__winograd_forward(uni_tape *tape, const uni__conv *conv, const float *x,
                           const float *kernel, const float *bias, float *y)
{
    uni__winograd w = plan(conv);
    w.x = x;
    w.bias = bias;
    w.y = y;
    return forward(tape, &w, kernel);
}

/* turned[2 - i][2 - j][o][c] = kernel[i][j][c][o] */
static void turn(const float *kernel, size_t in, size_t out, float *turned)
{
    for (size_t tap = 0; tap < 9; tap++)
        for (size_t c = 0; c < in; c += 8)
            for (size_t o = 0; o < out; o++)
                for (size_t k = 0; k < 8; k++)
                    turned[((8 - tap) * out + o) * in + c + k] =
                        kernel[(tap * in + c + k) * out + o];
}

bool uni__winograd_backward_data(uni_tape *tape, const uni__conv *conv, const float *kernel,
                                 const float *dy, float *dx)
{
    uni__conv back = { .batch = conv->batch,
                       .height = conv->out_height,
                       .width = conv->out_width,
                       .in = conv->out,
                       .out_height = conv->height,
                       .out_width = conv->width,
                       .out = conv->in,
                       .pad_top = 2 - conv->pad_top,
                       .pad_left = 2 - conv->pad_left };
    size_t size = 9 * (size_t)(conv->in * conv->out);
    float *turned = uni__scratch_floats(tape, size);
    if (!turned)
        return false;
    turn(kernel, (size_t)conv->in, (size_t)conv->out, turned);
    uni__winograd w = plan(&back);
    w.x = dy;
    w.y = dx;
    bool done = forward(tape, &w, turned);
    uni__release_floats(tape, turned, size);
    return done;
}

bool uni__winograd_backward_weights(uni_tape *tape, const uni__conv *conv, const float *x,
                                    const float *dy, float *dkernel)
{
    uni__winograd w = plan(conv);
    size_t threads = (size_t)threads_for(tape, &w);
    task t = { .kernels = tape->kernels,
               .w = &w,
               .pieces = threads,
               .room = room_of(&w),
               .du_size = 16 * (size_t)(conv->in * conv->out) };
    w.x = x;
    w.dy = dy;
    t.scratch = uni__scratch_floats(tape, threads * t.room);
    t.du = uni__scratch_floats(tape, threads * t.du_size);
    if (!t.scratch || !t.du)
        return false;
    uni__for(tape, threads, 1, threads > 1 ? 1e9 : 0, run_weights, &t);
    for (size_t i = 1; i < threads; i++)
        tape->kernels->add_in_place(t.du, t.du + i * t.du_size, t.du_size);
    tape->kernels->winograd_kernel_back(t.du, (size_t)conv->in, (size_t)conv->out, dkernel);
    uni__release_floats(tape, t.du, threads * t.du_size);
    uni__release_floats(tape, t.scratch, threads * t.room);
    return true;
}
