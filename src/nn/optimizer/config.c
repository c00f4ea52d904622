/*
 * config.c - optimizers to and from Keras's configs. Unsupported features of Keras (moving averages
 * of weights, loss scaling) are rejected by name, not ignored. Any thread.
 */
#include <math.h>

#include "base/shared.h"
#include "nn/shared.h"
#include "base/log.h"
#include "nn/loss/loss.h"
#include "nn/optimizer/optimizer.h"

static uni_value *number_or_null(double value)
{
    return value != 0 ? uni_value_float(value) : uni_value_null();
}

static int put_rate(const uni_optimizer *optimizer, uni_value *config, uni_error *err)
{
    uni_value *schedule = NULL;
    double rate = 0;
    if (optimizer->schedule != NULL) {
        uni_error failure = { 0 };
        int status = uni__schedule_to_value(optimizer->schedule, &schedule, &failure);
        if (status == UNI_ENOMEM)
            return status;
        if (status < 0)
            uni__warn("%s: %s; the present learning rate is saved in its place", optimizer->name,
                      failure.message);
    }
    if (schedule == NULL && isnan(rate = uni_optimizer_learning_rate(optimizer, err)))
        return UNI_EFUNCTION;
    return uni_dict_take(config, "learning_rate",
                         schedule != NULL ? schedule : uni_value_float(rate));
}

static int put_config(const uni_optimizer *optimizer, uni_value *config, uni_error *err)
{
    UNI_TRY(uni_dict_take(config, "name", uni_value_string(optimizer->name)));
    UNI_TRY(put_rate(optimizer, config, err));
    UNI_TRY(uni_dict_take(config, "weight_decay", number_or_null(optimizer->weight_decay)));
    UNI_TRY(uni_dict_take(config, "clipnorm", number_or_null(optimizer->clip_norm)));
    UNI_TRY(uni_dict_take(config, "global_clipnorm", number_or_null(optimizer->global_clip_norm)));
    UNI_TRY(uni_dict_take(config, "clipvalue", number_or_null(optimizer->clip_value)));
    UNI_TRY(uni_dict_take(config, "use_ema", uni_value_bool(false)));
    UNI_TRY(uni_dict_take(config, "ema_momentum", uni_value_float(0.99)));
    UNI_TRY(uni_dict_take(config, "ema_overwrite_frequency", uni_value_null()));
    UNI_TRY(uni_dict_take(config, "loss_scale_factor", uni_value_null()));
    UNI_TRY(uni_dict_take(config, "gradient_accumulation_steps", uni_value_null()));
    return optimizer->class_->put_config(optimizer, config);
}

int uni__optimizer_get_config(const uni_optimizer *optimizer, uni_value **out, uni_error *err)
{
    *out = NULL;
    uni_value *config = uni_value_dict();
    int status = config != NULL ? put_config(optimizer, config, err) : UNI_ENOMEM;
    if (status < 0) {
        uni_value_free(config);
        return status == UNI_EFUNCTION
                   ? status
                   : uni_error_set(err, status, "no memory for the config of the optimizer %s",
                                   optimizer->name);
    }
    *out = config;
    return 0;
}

int uni__optimizer_to_value(const uni_optimizer *optimizer, uni_value **out, uni_error *err)
{
    uni_value *config = NULL;
    *out = NULL;
    UNI_TRY(uni__optimizer_get_config(optimizer, &config, err));
    return uni__object_new(out, "keras.optimizers", optimizer->class_->class_name, config, err);
}

/* A number for which 0 means 0; a missing one or null is our default. */
static double get(const uni_value *config, const char *key)
{
    const uni_value *value = uni_dict_get(config, key);
    if (!uni_value_is_number(value))
        return 0;
    double number = uni_value_as_float(value, 0);
    return number != 0 ? number : UNI_EXACTLY_ZERO;
}

static int refuse_others(const char *class_name, const uni_value *config, uni_error *err)
{
    if (uni_dict_get_bool(config, "use_ema", false))
        return uni_error_set(err, UNI_EUNSUPPORTED, "%s with use_ema is not supported", class_name);
    if (uni_value_is_number(uni_dict_get(config, "loss_scale_factor")))
        return uni_error_set(err, UNI_EUNSUPPORTED, "%s with loss_scale_factor is not supported",
                             class_name);
    static const char *const numbers[] = { "weight_decay",    "clipnorm",
                                           "global_clipnorm", "clipvalue",
                                           "momentum",        "beta_1",
                                           "beta_2",          "rho",
                                           "epsilon",         "initial_accumulator_value" };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const uni_value *value = uni_dict_get(config, numbers[i]);
        if (uni_value_type_of(value) != UNI_TYPE_NULL && !uni_value_is_number(value))
            return uni_error_set(err, UNI_EFORMAT, "%s of %s must be a number, not a %s",
                                 numbers[i], class_name,
                                 uni__value_type_name(uni_value_type_of(value)));
    }
    return 0;
}

int uni__optimizer_from_config(uni_optimizer **out, const char *class_name, const uni_value *config,
                               uni_error *err)
{
    *out = NULL;
    UNI_TRY(refuse_others(class_name, config, err));
    uni_schedule *schedule = NULL;
    const uni_value *rate = uni_dict_get(config, "learning_rate");
    if (uni_value_type_of(rate) == UNI_TYPE_DICT)
        UNI_TRY(uni__schedule_from_value(&schedule, rate, err));
    else if (uni_value_type_of(rate) != UNI_TYPE_NULL && !uni_value_is_number(rate))
        return uni_error_set(err, UNI_EFORMAT, "learning_rate of %s must be a number or a schedule",
                             class_name);
    const uni_value *decay = uni_dict_get(config, "weight_decay");
    uni_optimizer_options options = {
        .learning_rate = get(config, "learning_rate"),
        .schedule = schedule,
        .momentum = get(config, "momentum"),
        .nesterov = uni_dict_get_bool(config, "nesterov", false),
        .beta_1 = get(config, "beta_1"),
        .beta_2 = get(config, "beta_2"),
        .rho = get(config, "rho"),
        .epsilon = get(config, "epsilon"),
        .centered = uni_dict_get_bool(config, "centered", false),
        .amsgrad = uni_dict_get_bool(config, "amsgrad", false),
        .initial_accumulator = get(config, "initial_accumulator_value"),
        /* An explicit null means none; AdamW without the key has its own default. */
        .weight_decay = decay != NULL && uni_value_type_of(decay) == UNI_TYPE_NULL
                            ? UNI_EXACTLY_ZERO
                            : get(config, "weight_decay"),
        .clip_norm = get(config, "clipnorm"),
        .clip_value = get(config, "clipvalue"),
        .global_clip_norm = get(config, "global_clipnorm"),
        .name = uni_dict_get_string(config, "name", NULL),
    };
    return uni_optimizer_new(out, class_name, &options, err);
}

int uni__optimizer_from_value(uni_optimizer **out, const uni_value *value, uni_error *err)
{
    const uni_value *config;
    const char *name = uni__object_class(value, &config);
    *out = NULL;
    if (name == NULL)
        return uni_error_set(err, UNI_EFORMAT,
                             "an optimizer must be a name or an object with a class_name");
    return config != NULL ? uni__optimizer_from_config(out, name, config, err)
                          : uni_optimizer_new(out, name, NULL, err);
}
