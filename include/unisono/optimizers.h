/*
 * optimizers.h - optimizers and learning-rate schedules, with Keras's defaults and Keras's
 * formulas.
 *
 * State (momenta and so on) is flat, in the layout of the parameter store, so an update is one pass
 * over one range, and a strategy can give each rank its own part of it.
 *
 * Thread rule: one thread at a time.
 *
 * @example
 * uni_optimizer *adam = NULL;
 * UNI_TRY(
 *     uni_optimizer_new(&adam, "adam", &(uni_optimizer_options){ .learning_rate = 1e-4 }, err));
 * uni_optimizer_free(adam);
 * @end
 */
#ifndef UNISONO_OPTIMIZERS_H
#define UNISONO_OPTIMIZERS_H

#include <unisono/tensor.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_optimizer uni_optimizer;
typedef struct uni_schedule uni_schedule;

/* ---- schedules: the learning rate of a step ---- */

/* initial * rate ^ (step / decay_steps), with whole powers when staircase. */
UNI_API UNI_MUST_USE int uni_schedule_exponential(uni_schedule **out, double initial,
                                                  int64_t decay_steps, double rate, bool staircase,
                                                  uni_error *err);
/* Keras's CosineDecay: from initial to alpha * initial; before it a linear warm-up to
 * `warmup_target` when warmup_steps > 0. */
UNI_API UNI_MUST_USE int uni_schedule_cosine(uni_schedule **out, double initial,
                                             int64_t decay_steps, double alpha,
                                             double warmup_target, int64_t warmup_steps,
                                             uni_error *err);
/* values has one more entry than boundaries; a step <= boundary belongs to the earlier piece. */
UNI_API UNI_MUST_USE int uni_schedule_piecewise(uni_schedule **out, size_t count,
                                                const int64_t *boundaries, const double *values,
                                                uni_error *err);
/* Linear from 0 (times `inner` when given, which is taken) over the first steps, then inner's own
 * steps. */
UNI_API UNI_MUST_USE int uni_schedule_warmup(uni_schedule **out, int64_t steps, double target,
                                             uni_schedule *inner, uni_error *err);
/* The rate of a step, counted from 0. On failure it sets err and returns NAN, and the step fails
 * with that error. */
typedef double (*uni_schedule_function)(void *context, int64_t step, uni_error *err);
UNI_API UNI_MUST_USE int uni_schedule_custom(uni_schedule **out, uni_schedule_function function,
                                             void *context, uni_error *err);
UNI_API void uni_schedule_free(uni_schedule *schedule);

/* ---- optimizers ---- */

/* UNI_EXACTLY_ZERO where 0 itself is wanted and not the default. */
typedef struct uni_optimizer_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    double learning_rate; /* 0: 0.01 for sgd, otherwise 0.001 */
    uni_schedule *schedule; /* instead of learning_rate; taken */
    double momentum; /* sgd, rmsprop; 0 */
    bool nesterov; /* sgd */
    double beta_1, beta_2; /* adam, adamw; 0: 0.9, 0.999 */
    double rho; /* rmsprop; 0: 0.9 */
    double epsilon; /* 0: 1e-7 */
    bool centered; /* rmsprop */
    bool amsgrad; /* adam, adamw */
    double initial_accumulator; /* adagrad; 0: 0.1 */
    double weight_decay; /* decoupled; adamw 0: 0.004; others none */
    double clip_norm; /* each parameter's gradient; 0: off */
    double clip_value;
    double global_clip_norm;
    const char *name; /* NULL: Keras's */
} uni_optimizer_options;

/* "sgd", "adam", "adamw", "rmsprop", "adagrad" in any case. */
UNI_API UNI_MUST_USE int uni_optimizer_new(uni_optimizer **out, const char *name,
                                           const uni_optimizer_options *options, uni_error *err);
UNI_API void uni_optimizer_free(uni_optimizer *optimizer);

/* One update of all unfrozen weights with scale * gradient (scale 0: 1; clipping sees the scaled
 * gradient). threads 0: 1. The first call makes the state; after that nothing is allocated. */
UNI_API UNI_MUST_USE int uni_optimizer_apply(uni_optimizer *optimizer, uni_gradients *gradients,
                                             float scale, int threads, uni_error *err);
UNI_API int64_t uni_optimizer_iterations(const uni_optimizer *optimizer);
/* Of the next step; NAN and *err when a schedule of the program's own failed. */
UNI_API double uni_optimizer_learning_rate(const uni_optimizer *optimizer, uni_error *err);
/* Takes the schedule; from now on the rate comes from it. */
UNI_API void uni_optimizer_set_schedule(uni_optimizer *optimizer, uni_schedule *schedule);
/* With a schedule it is UNI_ESTATE. */
UNI_API UNI_MUST_USE int uni_optimizer_set_learning_rate(uni_optimizer *optimizer, double rate,
                                                         uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
