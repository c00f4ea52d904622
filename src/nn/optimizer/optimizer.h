/*
 * optimizer.h - internals of an optimizer, for the files of src/nn only. The public header is
 * unisono/optimizers.h.
 *
 * An optimizer is a class (which slots it keeps, how it updates a range), its numbers, and flat
 * slots in the store's layout.
 */
#ifndef UNISONO_NN_OPTIMIZER_H
#define UNISONO_NN_OPTIMIZER_H

#include <unisono/optimizers.h>
#include "tensor/helpers.h"
#include "tensor/shared.h"

#define UNI__OPTIMIZER_MAX_SLOTS 3

typedef struct uni__optimizer_class {
    const char *name, *class_name; /* "rmsprop", "RMSprop" */
    const char *default_name; /* the object's name in Keras: "rm_sprop" */
    double learning_rate, weight_decay;
    /* Names of the slots by role; NULL for roles that the settings do not need. */
    void (*slots)(const uni_optimizer *optimizer, const char *names[UNI__OPTIMIZER_MAX_SLOTS]);
    /* Updates n weights; slots by role, NULL for those that are not kept. Several threads call it,
     * each with its own range. */
    void (*update)(const uni_optimizer *optimizer, float *weights, float *const *slots,
                   const float *gradients, size_t n, float scale);
    int (*put_config)(const uni_optimizer *optimizer, uni_value *config);
} uni__optimizer_class;

struct uni_optimizer {
    const uni__optimizer_class *class_;
    char *name;
    uint64_t id; /* random */
    double learning_rate;
    uni_schedule *schedule; /* owned; NULL: learning_rate */
    double momentum, beta_1, beta_2, rho, epsilon, initial_accumulator, weight_decay;
    double clip_norm, clip_value, global_clip_norm;
    bool nesterov, centered, amsgrad;
    int64_t iterations; /* updates */
    /* Batches per update, and batches whose gradients wait for it. The model sets both. */
    int accumulation, waiting;

    uni_parameters *store; /* the store that the slots belong to */
    size_t size; /* floats per slot */
    float *slots[UNI__OPTIMIZER_MAX_SLOTS]; /* by role; uni__buffer_new */
    bool borrowed; /* the slots are in the caller's memory */
    size_t num_parameters, max_spans;
    float *clip_factors; /* by parameter: what its gradient is multiplied by; only with clip_norm */
    uni__span *spans; /* trainable, as of begin */
    uni__helpers *helpers; /* for uni_optimizer_apply with several threads */

    /* The current step. */
    size_t num_spans;
    float rate, scale, decay, adam_alpha;
};

extern const uni__optimizer_class uni__optimizer_sgd, uni__optimizer_adam, uni__optimizer_adamw,
    uni__optimizer_rmsprop, uni__optimizer_adagrad;

/* Batches so far, which Keras's files call the iteration. Setting it drops waiting batches. */
int64_t uni__optimizer_batches(const uni_optimizer *optimizer);
void uni__optimizer_set_batches(uni_optimizer *optimizer, int64_t batches);

/* Keras's wrapped object, and back; a name is also accepted. */
int uni__optimizer_to_value(const uni_optimizer *optimizer, uni_value **out,
                            uni_error *err) UNI_MUST_USE;
int uni__optimizer_from_value(uni_optimizer **out, const uni_value *value,
                              uni_error *err) UNI_MUST_USE;

/* True for a user function, which is called once per step because it may count its calls. */
bool uni__schedule_is_custom(const uni_schedule *schedule);
/* UNI_EUNSUPPORTED for schedules that Keras does not have (warm-up alone, user functions). */
int uni__schedule_to_value(const uni_schedule *schedule, uni_value **out,
                           uni_error *err) UNI_MUST_USE;
int uni__schedule_from_value(uni_schedule **out, const uni_value *value,
                             uni_error *err) UNI_MUST_USE;

#endif
