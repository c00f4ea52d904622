/*
 * learning_rate.c - ReduceLROnPlateau and LearningRateScheduler. Fit's thread.
 */
#include "nn/callbacks/callback.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "base/options.h"

/* As Python prints a float. */
static void say(const char *what, int epoch, double rate)
{
    char number[UNI__NUMBER_SIZE + 1];
    number[uni__format_double(number, rate)] = '\0';
    uni__print_fd(STDOUT_FILENO, "\nEpoch %d: %s learning rate to %s.\n", epoch + 1, what, number);
}

static int need_optimizer(const uni_model *model, const char *user, uni_error *err)
{
    if (uni_model_optimizer(model) != NULL)
        return 0;
    return uni_error_set(err, UNI_ESTATE, "%s needs a compiled model", user);
}

/* ---- ReduceLROnPlateau ---- */

struct plateau {
    uni_reduce_lr_options options;
    uni__monitor monitor;
    int wait, cooldown;
};

static int plateau_begin(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    struct plateau *plateau = self;
    plateau->wait = plateau->cooldown = 0;
    plateau->monitor.has_best = false;
    return need_optimizer(model, "ReduceLROnPlateau", err);
}

static int reduce(struct plateau *plateau, uni_optimizer *optimizer, int epoch, uni_error *err)
{
    double rate = uni_optimizer_learning_rate(optimizer, err);
    if (isnan(rate))
        return UNI_EFUNCTION;
    if (!(rate > plateau->options.min_lr))
        return 0;
    double reduced = fmax(rate * plateau->options.factor, plateau->options.min_lr);
    UNI_TRY(uni_optimizer_set_learning_rate(optimizer, reduced, err));
    if (plateau->options.verbose > 0)
        say("ReduceLROnPlateau reducing", epoch, reduced);
    plateau->cooldown = plateau->options.cooldown;
    plateau->wait = 0;
    return 0;
}

static int plateau_epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs,
                             uni_error *err)
{
    struct plateau *plateau = self;
    double current = uni__monitor_read(&plateau->monitor, logs, "ReduceLROnPlateau");
    if (plateau->monitor.warned)
        return 0;
    if (plateau->cooldown > 0) {
        plateau->cooldown--;
        plateau->wait = 0;
    }
    if (!plateau->monitor.has_best ||
        uni__monitor_better(&plateau->monitor, current, plateau->monitor.best)) {
        plateau->monitor.best = current;
        plateau->monitor.has_best = true;
        plateau->wait = 0;
    } else if (plateau->cooldown == 0 && ++plateau->wait >= plateau->options.patience) {
        return reduce(plateau, uni_model_optimizer(model), epoch, err);
    }
    return 0;
}

/* The optimizer's state holds the learning rate itself. */
static int plateau_get_state(void *self, uni_value **out, uni_error *err)
{
    const struct plateau *plateau = self;
    *out = uni__callback_numbers(2, (const char *const[]){ "wait", "cooldown" },
                                 (const int64_t[]){ plateau->wait, plateau->cooldown });
    return *out != NULL && uni__monitor_put(&plateau->monitor, *out) == 0
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for the state of ReduceLROnPlateau");
}

static int plateau_set_state(void *self, const uni_value *state, uni_error *err)
{
    struct plateau *plateau = self;
    plateau->wait = (int)uni_dict_get_int(state, "wait", 0);
    plateau->cooldown = (int)uni_dict_get_int(state, "cooldown", 0);
    uni__monitor_take(&plateau->monitor, state);
    return 0;
}

static const uni_callback_class plateau_class = { .name = "ReduceLROnPlateau",
                                                  .train_begin = plateau_begin,
                                                  .epoch_end = plateau_epoch_end,
                                                  .get_state = plateau_get_state,
                                                  .set_state = plateau_set_state,
                                                  .free = free };

int uni_callback_reduce_lr_on_plateau(uni_callback **out, const uni_reduce_lr_options *options,
                                      uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_reduce_lr_options, options, verbose, err);
    uni_reduce_lr_options o = *options;
    uni__monitor monitor;
    o.factor = uni__pick(o.factor, 0.1);
    o.patience = o.patience == UNI_NO_PATIENCE ? 0 : o.patience != 0 ? o.patience : 10;
    if (!(o.factor >= 0 && o.factor < 1) || o.patience < 0)
        return uni_error_set(
            err, UNI_EINVAL,
            "ReduceLROnPlateau: the factor is at least 0 and below 1 and patience not negative, "
            "got %g and %d",
            o.factor, o.patience);
    if (!(o.min_lr >= 0) || o.cooldown < 0)
        return uni_error_set(
            err, UNI_EINVAL,
            "ReduceLROnPlateau: min_lr and cooldown must not be negative, got %g and %d", o.min_lr,
            o.cooldown);
    UNI_TRY(uni__monitor_init(&monitor, o.monitor, o.mode, uni__pick(o.min_delta, 1e-4), err));
    struct plateau *plateau = uni__callback_make(out, &plateau_class, sizeof *plateau, err);
    if (plateau == NULL)
        return UNI_ENOMEM;
    *plateau = (struct plateau){ .options = o, .monitor = monitor };
    plateau->options.monitor = NULL;
    return 0;
}

/* ---- LearningRateScheduler ---- */

struct scheduler {
    uni_lr_function function;
    void *context;
    int verbose;
};

static int scheduler_epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    struct scheduler *scheduler = self;
    UNI_TRY(need_optimizer(model, "LearningRateScheduler", err));
    uni_optimizer *optimizer = uni_model_optimizer(model);
    uni_error failure = { 0 };
    double rate = scheduler->function(scheduler->context, epoch,
                                      uni_optimizer_learning_rate(optimizer, &failure), &failure);
    if (failure.code != 0)
        return uni_error_set(err, failure.code, "%s", failure.message);
    if (!isfinite(rate))
        return uni_error_set(err, UNI_EINVAL,
                             "LearningRateScheduler: the function gave %g for epoch %d", rate,
                             epoch);
    UNI_TRY(uni_optimizer_set_learning_rate(optimizer, rate, err));
    if (scheduler->verbose > 0)
        say("LearningRateScheduler setting", epoch, rate);
    return 0;
}

static const uni_callback_class scheduler_class = { .name = "LearningRateScheduler",
                                                    .epoch_begin = scheduler_epoch_begin,
                                                    .free = free };

int uni_callback_learning_rate_scheduler(uni_callback **out, uni_lr_function function,
                                         void *context, int verbose, uni_error *err)
{
    *out = NULL;
    if (function == NULL)
        return uni_error_set(err, UNI_EINVAL, "LearningRateScheduler needs a function");
    struct scheduler *scheduler = uni__callback_make(out, &scheduler_class, sizeof *scheduler, err);
    if (scheduler == NULL)
        return UNI_ENOMEM;
    *scheduler = (struct scheduler){ function, context, verbose };
    return 0;
}
