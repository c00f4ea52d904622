/*
 * update.c - the passes of update.h: the best table of inner loops, and sums that are the same for
 * every caller. Any thread.
 */
#include <math.h>
#include <string.h>

#include "tensor/kernels.h"
#include "tensor/update.h"

#define SUM_PIECE ((size_t)1024) /* floats; stays in the first-level cache */

void uni__update_sgd(float *w, const float *g, size_t n, float lr, float scale, float decay)
{
    uni__tensor_kernels_best()->sgd(w, g, n, lr, scale, decay);
}

void uni__update_momentum(float *w, float *v, const float *g, size_t n, float lr, float momentum,
                          bool nesterov, float scale, float decay)
{
    uni__tensor_kernels_best()->momentum(w, v, g, n, lr, momentum, nesterov, scale, decay);
}

void uni__update_adam(float *w, float *m, float *v, float *v_max, const float *g, size_t n,
                      const uni__adam *adam)
{
    uni__tensor_kernels_best()->adam(w, m, v, v_max, g, n, adam);
}

void uni__update_rmsprop(float *w, float *v, float *mean, float *momenta, const float *g, size_t n,
                         const uni__rmsprop *rmsprop)
{
    uni__tensor_kernels_best()->rmsprop(w, v, mean, momenta, g, n, rmsprop);
}

void uni__update_adagrad(float *w, float *a, const float *g, size_t n, float lr, float epsilon,
                         float scale, float decay)
{
    uni__tensor_kernels_best()->adagrad(w, a, g, n, lr, epsilon, scale, decay);
}

double uni__sum_squares(const float *x, size_t n)
{
    /* Eight sums in double for every instruction set: the result must not depend on the vector
     * width. */
    double sums[8] = { 0 };
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            sums[j] += (double)x[i + j] * x[i + j];
    for (; i < n; i++)
        sums[i % 8] += (double)x[i] * x[i];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

void uni__clip_in_place(float *x, size_t n, float scale, float limit)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i] * scale;
        x[i] = v > limit ? limit : v < -limit ? -limit : v; /* NaN stays visible */
    }
}

void uni__fill_uniform(float *out, size_t n, const uni__uniform *uniform)
{
    uni__tensor_kernels_best()->uniform(out, n, 0, uniform);
}

/* Sums one piece. `into` may be any of the buffers; those after the second are still to be read
 * when the sum begins. */
static void sum_piece(float *into, const float *const *from, int count, size_t at, size_t n)
{
    const uni__tensor_kernels *kernels = uni__tensor_kernels_best();
    float aside[SUM_PIECE], *to = into;
    for (int k = 2; k < count && to == into; k++)
        to = from[k] + at == into ? aside : into;
    kernels->binary(UNI_BINARY_ADD, from[0] + at, 1, from[1] + at, 1, to, n);
    for (int k = 2; k < count; k++)
        kernels->add_in_place(to, from[k] + at, n);
    if (to != into)
        memcpy(into, to, n * sizeof *into);
}

void uni__sum_buffers(float *into, const float *const *from, int count, size_t at, size_t n)
{
    if (count < 2) {
        if (count == 0)
            memset(into, 0, n * sizeof *into);
        else if (from[0] + at != into)
            memcpy(into, from[0] + at, n * sizeof *into);
        return;
    }
    for (size_t first = 0; first < n; first += SUM_PIECE)
        sum_piece(into + first, from, count, at + first,
                  n - first < SUM_PIECE ? n - first : SUM_PIECE);
}
