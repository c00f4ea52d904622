/*
 * optimizer.h - what an optimizer is made of, for the files of src/nn only. The public side is
 * unisono/optimizers.h.
 *
 * An optimizer is a class (which slots it keeps, how it updates a range), its numbers, and flat
 * slots in the store's layout.
 */
#ifndef UNISONO_NN_OPTIMIZER_H
#define UNISONO_NN_OPTIMIZER_H

#include <unisono/optimizers.h>

#define UNI__OPTIMIZER_MAX_SLOTS 3

typedef struct uni__optimizer_class {
    const char *name, *class_name; /* "rmsprop", "RMSprop" */
    const char *default_name; /* the object's name in Keras: "rm_sprop" */
    double learning_rate, weight_decay;
    /* Names of the slots by their role; NULL where the settings need none. */
    void (*slots)(const uni_optimizer *optimizer, const char *names[UNI__OPTIMIZER_MAX_SLOTS]);
    /* One update of n weights; slots by role, NULL for those that are not kept. Several threads,
     * ranges of their own. */
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
    /* Batches an update, and those whose gradients wait for it; the model sets both. */
    int accumulation, waiting;

    uni_parameters *store; /* the slots are of this store */
    size_t size; /* floats of a slot */
    float *slots[UNI__OPTIMIZER_MAX_SLOTS]; /* by role; uni__buffer_new */
    bool borrowed; /* the slots are in the caller's memory */
    size_t num_parameters, max_spans;
    float *clip_factors; /* by parameter: what its gradient is multiplied by; only with clip_norm */
    uni_span *spans; /* trainable, as of begin */

    /* The step under way. */
    size_t num_spans;
    float rate, scale, decay, adam_alpha;
};

extern const uni__optimizer_class uni__optimizer_sgd, uni__optimizer_adam, uni__optimizer_adamw,
    uni__optimizer_rmsprop, uni__optimizer_adagrad;

/* Batches so far: what Keras's files call the iteration. Setting it forgets batches that wait. */
int64_t uni__optimizer_batches(const uni_optimizer *optimizer);
void uni__optimizer_set_batches(uni_optimizer *optimizer, int64_t batches);

/* Keras's framed object, and back (a name is fine, too). */
int uni__optimizer_to_value(const uni_optimizer *optimizer, uni_value **out,
                            uni_error *err) UNI_MUST_USE;
int uni__optimizer_from_value(uni_optimizer **out, const uni_value *value,
                              uni_error *err) UNI_MUST_USE;

/* The program's own function: it is called once a step, because it may count its calls. */
bool uni__schedule_is_custom(const uni_schedule *schedule);
/* Of a schedule: UNI_EUNSUPPORTED for those that Keras has not (warm-up alone, the user's own). */
int uni__schedule_to_value(const uni_schedule *schedule, uni_value **out,
                           uni_error *err) UNI_MUST_USE;
int uni__schedule_from_value(uni_schedule **out, const uni_value *value,
                             uni_error *err) UNI_MUST_USE;

#endif
