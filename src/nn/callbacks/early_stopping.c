/*
 * early_stopping.c - EarlyStopping and TerminateOnNaN: the two callbacks that end training. Fit's
 * thread.
 */
#include "nn/callbacks/callback.h"
#include "base/options.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "nn/shared.h"

struct early {
    uni_early_stopping_options options;
    uni__monitor monitor;
    int wait, stopped_epoch, best_epoch;
    uni_value *best_weights;
};

static int train_begin(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    struct early *early = self;
    early->wait = early->stopped_epoch = early->best_epoch = 0;
    early->monitor.has_best = false;
    uni_value_free(early->best_weights);
    early->best_weights = NULL;
    return 0;
}

static int keep(struct early *early, const uni_model *model, int epoch, uni_error *err)
{
    uni_value *weights = NULL;
    early->best_epoch = epoch;
    if (!early->options.restore_best_weights)
        return 0;
    UNI_TRY(uni_model_get_weights(&weights, model, err));
    uni_value_free(early->best_weights);
    early->best_weights = weights;
    return 0;
}

static int epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    struct early *early = self;
    uni__monitor *monitor = &early->monitor;
    double current = uni__monitor_read(monitor, logs, "EarlyStopping");
    if (monitor->warned || epoch < early->options.start_from_epoch)
        return 0;
    if (early->options.restore_best_weights && early->best_weights == NULL)
        UNI_TRY(keep(early, model, epoch, err));
    early->wait++;
    if (!monitor->has_best || uni__monitor_better(monitor, current, monitor->best)) {
        monitor->best = current;
        monitor->has_best = true;
        UNI_TRY(keep(early, model, epoch, err));
        if (!early->options.has_baseline ||
            uni__monitor_better(monitor, current, early->options.baseline))
            early->wait = 0;
        return 0;
    }
    if (early->wait >= early->options.patience && epoch > 0) {
        early->stopped_epoch = epoch;
        uni_model_stop_training(model);
    }
    return 0;
}

static int train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    struct early *early = self;
    bool says = early->options.verbose > 0;
    if (early->stopped_epoch > 0 && says)
        uni__print_fd(STDOUT_FILENO, "Epoch %d: early stopping\n", early->stopped_epoch + 1);
    if (early->best_weights == NULL)
        return 0;
    if (says)
        uni__print_fd(STDOUT_FILENO,
                      "Restoring model weights from the end of the best epoch: %d.\n",
                      early->best_epoch + 1);
    return uni_model_set_weights(model, early->best_weights, err);
}

static int get_state(void *self, uni_value **out, uni_error *err)
{
    const struct early *early = self;
    *out = uni__callback_numbers(
        3, (const char *const[]){ "wait", "stopped_epoch", "best_epoch" },
        (const int64_t[]){ early->wait, early->stopped_epoch, early->best_epoch });
    int status = uni__monitor_put(&early->monitor, *out);
    if (status == 0 && early->best_weights != NULL)
        status = uni_dict_take(*out, "best_weights", uni_value_copy(early->best_weights));
    return *out != NULL && status == 0
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for the state of EarlyStopping");
}

static int set_state(void *self, const uni_value *state, uni_error *err)
{
    struct early *early = self;
    const uni_value *weights = uni_dict_get(state, "best_weights");
    early->wait = (int)uni_dict_get_int(state, "wait", 0);
    early->stopped_epoch = (int)uni_dict_get_int(state, "stopped_epoch", 0);
    early->best_epoch = (int)uni_dict_get_int(state, "best_epoch", 0);
    uni__monitor_take(&early->monitor, state);
    uni_value_free(early->best_weights);
    early->best_weights =
        weights != NULL && early->options.restore_best_weights ? uni_value_copy(weights) : NULL;
    return 0;
}

static void free_early(void *self)
{
    uni_value_free(((struct early *)self)->best_weights);
    free(self);
}

static const uni_callback_class early_class = { .name = "EarlyStopping",
                                                .train_begin = train_begin,
                                                .epoch_end = epoch_end,
                                                .train_end = train_end,
                                                .get_state = get_state,
                                                .set_state = set_state,
                                                .free = free_early };

int uni_callback_early_stopping(uni_callback **out, const uni_early_stopping_options *options,
                                uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_early_stopping_options, options, verbose, err);
    uni_early_stopping_options o = *options;
    uni__monitor monitor;
    if (o.patience < 0)
        return uni_error_set(err, UNI_EINVAL,
                             "EarlyStopping: patience must not be negative, got %d", o.patience);
    UNI_TRY(uni__monitor_init(&monitor, o.monitor, o.mode, o.min_delta, err));
    struct early *early = uni__callback_make(out, &early_class, sizeof *early, err);
    if (early == NULL)
        return UNI_ENOMEM;
    *early = (struct early){ .options = o, .monitor = monitor };
    early->options.monitor = NULL; /* belongs to the caller; the monitor has a copy */
    return 0;
}

int uni__callback_stopped_epoch(const uni_callback *callback)
{
    return callback->class_ == &early_class ? ((const struct early *)callback->self)->stopped_epoch
                                            : 0;
}

/* ---- TerminateOnNaN ---- */

static int batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                     uni_error *err)
{
    if (logs->count > 0 && !isfinite(logs->values[0])) {
        uni__print_fd(STDOUT_FILENO, "Batch %lld: Invalid loss, terminating training\n",
                      (long long)batch);
        uni_model_stop_training(model);
    }
    return 0;
}

static const uni_callback_class nan_class = { .name = "TerminateOnNaN", .batch_end = batch_end };

int uni_callback_terminate_on_nan(uni_callback **out, uni_error *err)
{
    return uni_callback_new(out, &nan_class, NULL, err);
}
