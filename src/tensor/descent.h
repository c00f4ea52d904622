/*
 * descent.h - plain gradient descent applied where the gradient is computed, for src/nn,
 * src/strategy and benchmarks.
 *
 * The gradient of a dense layer's kernel is a product, x^T dz, of the layer's input and the
 * gradient of its output. With plain descent the product can be subtracted from the kernel right
 * away: it is never written out, summed and read again. A pass with a uni__descent does that for
 * every kernel that nothing else in the step uses; uni__gradients_trainable returns the weights
 * that are left for the optimizer.
 */
#ifndef UNISONO_TENSOR_DESCENT_H
#define UNISONO_TENSOR_DESCENT_H

#include <unisono/tensor.h>

#include "tensor/shared.h"
#include "base/compiler.h"

typedef struct uni__factors {
    const float *x, *dz;
    int64_t rows; /* x is (rows, in), dz (rows, out) */
} uni__factors;

#define UNI__DESCENT_MAX_PEERS 64
/* Replicas that share one set of weights and make the same pass at the same time. They exchange the
 * factors of every kernel with at least `least` weights, and each updates only its rows of the
 * kernel. */
typedef struct uni__descent_peers {
    int index, count; /* at most UNI__DESCENT_MAX_PEERS */
    size_t least;
    void *context;
    /* Waits for all replicas. Their factors, in replica order, are valid until leave returns on all
     * of them. */
    int (*meet)(void *context, const uni__factors *mine, int64_t in, int64_t out, uni__factors *all,
                uni_error *err);
    int (*leave)(void *context, uni_error *err);
} uni__descent_peers;

/* w = keep * w - rate * gradient */
typedef struct uni__descent {
    float rate, keep;
    const uni__descent_peers *peers; /* NULL: no peers */
    /* Nonzero: kernels with at least this many weights neither descend nor get a gradient, and the
     * pass keeps their factors (uni__tape_factored). All others get gradients. rate, keep and peers
     * are unused. */
    size_t keep_factors;
} uni__descent;

/* uni_tape_gradient with descent; NULL: without. */
UNI__SHARED int uni__tape_gradient(uni_tape *tape, uni_tensor *loss,
                                   const uni_gradient_options *options, const uni__descent *descent,
                                   uni_error *err) UNI_MUST_USE;

#define UNI__MAX_FACTORED 15 /* kernels per pass; others get gradients */
/* A kernel (in, out) whose gradient was not computed (keep_factors). */
typedef struct uni__factored {
    const uni_parameter *kernel;
    int64_t in, out;
    uni__factors factors;
} uni__factored;
/* The factored kernels of the last backward pass, the same on every replica; valid until the next
 * begin. */
UNI__SHARED size_t uni__tape_factored(const uni_tape *tape, const uni__factored **out);
/* The rows of a kernel that a replica changes: whole cache lines of the columns of x. */
UNI__SHARED uni__span uni__descent_rows(int64_t in, int index, int count);
/* Takes the products of `count` replicas' factors off this replica's rows of the kernel, in their
 * order. */
int uni__tape_descend(uni_tape *tape, const uni__factored *what, const uni__factors *all, int count,
                      int index, const uni__descent *descent, uni_error *err) UNI_MUST_USE;

#endif
