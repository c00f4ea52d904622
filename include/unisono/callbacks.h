/*
 * callbacks.h - what fit tells others while it runs, in Keras's order and with Keras's names.
 *
 * Thread rule: all slots are called on the thread that called fit, evaluate or predict; they may
 * block.
 */
#ifndef UNISONO_CALLBACKS_H
#define UNISONO_CALLBACKS_H

#include <math.h>
#include <string.h>
#include <unisono/layers.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names and numbers of one moment, "loss" first; validation ones start with "val_". Borrowed for
 * the call. */
typedef struct uni_logs {
    size_t count;
    const char *const *names; /* of each number */
    const double *values;
} uni_logs;
/* NaN when there is no such name. */
static inline double uni_logs_get(const uni_logs *logs, const char *name)
{
    for (size_t i = 0; i < logs->count; i++)
        if (strcmp(logs->names[i], name) == 0)
            return logs->values[i];
    return (double)NAN;
}

/* What fit prints. */
typedef enum uni_verbosity {
    UNI_VERBOSE_NOTHING,
    UNI_VERBOSE_BAR,
    UNI_VERBOSE_LINES /* a line an epoch */
} uni_verbosity;

typedef struct uni_fit_info {
    int epochs, initial_epoch;
    int64_t steps; /* per epoch; UNI_UNKNOWN while it is not known */
    int64_t samples; /* per epoch; UNI_UNKNOWN while it is not known */
    uni_verbosity verbose;
    bool has_validation;
} uni_fit_info;

typedef struct uni_callback uni_callback;

/* All slots may be NULL. A negative return ends fit with that error. Logs of *_begin are empty. */
typedef struct uni_callback_class {
    const char *name;
    int (*train_begin)(void *self, uni_model *model, const uni_fit_info *info, uni_error *err);
    int (*train_end)(void *self, uni_model *model, const uni_logs *logs, uni_error *err);
    int (*epoch_begin)(void *self, uni_model *model, int epoch, uni_error *err);
    int (*epoch_end)(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err);
    int (*batch_begin)(void *self, uni_model *model, int64_t batch, uni_error *err);
    int (*batch_end)(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                     uni_error *err);
    int (*test_begin)(void *self, uni_model *model, uni_error *err);
    int (*test_end)(void *self, uni_model *model, const uni_logs *logs, uni_error *err);
    int (*test_batch_end)(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                          uni_error *err);
    int (*predict_begin)(void *self, uni_model *model, uni_error *err);
    int (*predict_end)(void *self, uni_model *model, uni_error *err);
    int (*predict_batch_end)(void *self, uni_model *model, int64_t batch, uni_error *err);
    void (*free)(void *self);
    /* After epoch_end or batch_end of every callback, and when all ranks know whether they go on:
     * the moments to save a training. */
    int (*after_epoch)(void *self, uni_model *model, int epoch, const uni_logs *logs,
                       uni_error *err);
    int (*after_batch)(void *self, uni_model *model, int64_t batch, uni_error *err);
    /* What the callback must know to go on in another process: it becomes part of the fit's state.
     * get: *out is fit's to free, NULL for nothing. set: called between train_begin and the first
     * epoch. */
    int (*get_state)(void *self, uni_value **out, uni_error *err);
    int (*set_state)(void *self, const uni_value *state, uni_error *err);
    /* What the callback does between batches need not be made up for when another process takes
     * this one's place in the middle of an epoch. */
    bool only_looks;
} uni_callback_class;

/* A callback of one's own. The class is borrowed (usually static); self becomes the callback's and
 * goes to class_->free at its end, but stays the caller's on failure. Fit borrows callbacks: the
 * caller frees them after fit. */
UNI_API UNI_MUST_USE int uni_callback_new(uni_callback **out, const uni_callback_class *class_,
                                          void *self, uni_error *err);
UNI_API void uni_callback_free(uni_callback *callback);

/* Whether a monitored number is better when it is smaller or larger. AUTO knows it of losses,
 * errors, accuracies and the like by their names; any other name is UNI_EINVAL. */
typedef enum uni_monitor_mode {
    UNI_MONITOR_AUTO = 0,
    UNI_MONITOR_MIN,
    UNI_MONITOR_MAX
} uni_monitor_mode;

/* Keras's bar (verbose 1) or lines (verbose 2) to a file descriptor; fit adds one by itself unless
 * verbose is 0. */
UNI_API UNI_MUST_USE int uni_callback_progbar(uni_callback **out, int fd, uni_verbosity verbose,
                                              uni_error *err);

typedef struct uni_early_stopping_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *monitor; /* NULL: val_loss */
    double min_delta;
    int patience;
    uni_monitor_mode mode;
    bool has_baseline;
    double baseline;
    bool restore_best_weights;
    int start_from_epoch;
    bool verbose;
} uni_early_stopping_options;
/* Ends fit after `patience` epochs without an improvement. */
UNI_API UNI_MUST_USE int uni_callback_early_stopping(uni_callback **out,
                                                     const uni_early_stopping_options *options,
                                                     uni_error *err);

typedef struct uni_model_checkpoint_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *monitor; /* NULL: val_loss */
    uni_monitor_mode mode;
    bool save_best_only, save_weights_only;
    int64_t save_every_batches; /* 0: every epoch */
    bool verbose;
} uni_model_checkpoint_options;
/* path may have {epoch:02d} and {val_loss:.2f} as in Keras; the suffix decides: .keras,
 * .weights.h5, .safetensors. */
UNI_API UNI_MUST_USE int uni_callback_model_checkpoint(uni_callback **out, const char *path,
                                                       const uni_model_checkpoint_options *options,
                                                       uni_error *err);
/* Saves model, optimizer and epoch at every epoch's end (and every `save_every_batches`), resumes
 * there when fit runs again, removes the backup when fit is through unless kept. */
UNI_API UNI_MUST_USE int uni_callback_backup_and_restore(uni_callback **out, const char *directory,
                                                         int64_t save_every_batches, bool keep,
                                                         uni_error *err);

typedef struct uni_reduce_lr_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *monitor; /* NULL: val_loss */
    double factor; /* 0: 0.1; UNI_EXACTLY_ZERO: 0 */
    int patience; /* 0: 10; UNI_NO_PATIENCE: 0 */
    uni_monitor_mode mode;
    double min_delta; /* 0: 1e-4; UNI_EXACTLY_ZERO: 0 */
    int cooldown;
    double min_lr;
    bool verbose;
} uni_reduce_lr_options;
/* Multiplies the learning rate by `factor` after `patience` epochs without an improvement. */
UNI_API UNI_MUST_USE int uni_callback_reduce_lr_on_plateau(uni_callback **out,
                                                           const uni_reduce_lr_options *options,
                                                           uni_error *err);
/* The rate for an epoch from its number and the present rate. On failure it sets err and returns
 * NAN: fit ends with that error. */
typedef double (*uni_lr_function)(void *context, int epoch, double rate, uni_error *err);
UNI_API UNI_MUST_USE int uni_callback_learning_rate_scheduler(uni_callback **out,
                                                              uni_lr_function function,
                                                              void *context, int verbose,
                                                              uni_error *err);
/* Keras's layout: dir/train, dir/validation, tags epoch_loss ..., and the model's graph.
 * histogram_freq 0: no histograms. */
UNI_API UNI_MUST_USE int uni_callback_tensorboard(uni_callback **out, const char *directory,
                                                  int histogram_freq, bool every_batch,
                                                  uni_error *err);
UNI_API UNI_MUST_USE int uni_callback_csv_logger(uni_callback **out, const char *path,
                                                 char separator, bool append, uni_error *err);
UNI_API UNI_MUST_USE int uni_callback_terminate_on_nan(uni_callback **out, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
