/*
 * update.h - passes over flat float buffers for optimizers, initializers and reductions: one read
 * and one write of each number, vectorized by run-time dispatch, each with a plain version beside
 * it (update_reference_*). For src/nn and src/strategy.
 *
 * All functions take pointers to the first float of their range. The gradient is multiplied by
 * `scale` along the way. `decay` is the decoupled weight decay times the learning rate: w -= decay
 * * w before the update. Any thread; ranges of different threads must not overlap.
 */
#ifndef UNISONO_TENSOR_UPDATE_H
#define UNISONO_TENSOR_UPDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/tensor.h>

/* w -= lr * g */
void uni__update_sgd(float *w, const float *g, size_t n, float lr, float scale, float decay);
/* v = momentum * v - lr * g; w += nesterov ? momentum * v - lr * g : v */
void uni__update_momentum(float *w, float *v, const float *g, size_t n, float lr, float momentum,
                          bool nesterov, float scale, float decay);

typedef struct uni__adam {
    float alpha; /* lr * sqrt(1 - beta_2^t) / (1 - beta_1^t) */
    /* double, because 1 - 0.999f is 1.3e-5 off Keras's value. */
    double beta_1, beta_2;
    float epsilon, scale, decay;
} uni__adam;
/* m += (g - m) (1 - beta_1); v += (g^2 - v) (1 - beta_2); w -= alpha * m / (sqrt(v) + epsilon).
 * v_max: amsgrad's, or NULL. */
void uni__update_adam(float *w, float *m, float *v, float *v_max, const float *g, size_t n,
                      const uni__adam *adam);

typedef struct uni__rmsprop {
    double rho;
    float lr, momentum, epsilon, scale, decay;
} uni__rmsprop;
/* v = rho v + (1 - rho) g^2; with mean (centered) v - mean^2; step = lr g / sqrt(v + epsilon); with
 * momenta a momentum of it. */
void uni__update_rmsprop(float *w, float *v, float *mean, float *momenta, const float *g, size_t n,
                         const uni__rmsprop *rmsprop);
/* a += g^2; w -= lr g / sqrt(a + epsilon) */
void uni__update_adagrad(float *w, float *a, const float *g, size_t n, float lr, float epsilon,
                         float scale, float decay);

/* In double, in blocks: the same result for any caller. */
double uni__sum_squares(const float *x, size_t n);
/* clip(x * scale, -limit, limit) */
void uni__clip_in_place(float *x, size_t n, float scale, float limit);
/* into[n] = the sum of floats `at` to `at + n` of `count` buffers, added in order. `into` may be
 * that range of one of them. */
void uni__sum_buffers(float *into, const float *const *from, int count, size_t at, size_t n);

/* Numbers in [low, high) from Philox 4x32-10: element 4 b + w of the stream is word w of block
 * b. */
typedef struct uni__uniform {
    uint32_t key[2], stream[2];
    double low, high;
} uni__uniform;
void uni__fill_uniform(float *out, size_t n, const uni__uniform *uniform);

/* A zeroed flat buffer, 64-byte aligned; NULL: out of memory. Free it with the same count. */
float *uni__buffer_new(size_t count);
void uni__buffer_free(float *data, size_t count);

/* true on the first call for this tape (begin does not reset it): for one-time warnings. */
enum { UNI__ONCE_AVERAGE_LOSS, UNI__ONCE_LOGITS };
bool uni__tape_once(uni_tape *tape, unsigned what);
/* The losses per example that this step computed last, for the check of how a loss was divided. */
uni_tensor **uni__tape_per_example(uni_tape *tape);
/* The regularization that this step computed last, for the same check. */
typedef struct uni__penalty {
    const uni_tensor *value; /* NULL: none */
    /* Scaled to the replicas: scale_regularization_loss. */
    bool scaled;
} uni__penalty;
uni__penalty *uni__tape_penalty(uni_tape *tape);

#endif
