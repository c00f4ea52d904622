/*
 * schedule.c - the learning rate of a step as Keras's schedules compute it, in double. Schedules
 * are const once created: any thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "nn/loss/loss.h"
#include "nn/optimizer/optimizer.h"

enum kind { EXPONENTIAL, COSINE, PIECEWISE, WARMUP, CUSTOM };

struct uni_schedule {
    enum kind kind;
    double initial, rate, alpha, target;
    int64_t steps, warmup_steps;
    bool staircase, has_warmup;
    size_t count; /* boundaries; there is one value more */
    int64_t *boundaries;
    double *values;
    uni_schedule *inner;
    uni_schedule_function function;
    void *context;
};

static int make(uni_schedule **out, enum kind kind, uni_error *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a learning-rate schedule");
    (*out)->kind = kind;
    return 0;
}

static int check_steps(const char *what, int64_t steps, uni_error *err)
{
    if (steps >= 1)
        return 0;
    return uni_error_set(err, UNI_EINVAL, "a schedule's %s must be at least 1, got %lld", what,
                         (long long)steps);
}

static int check_rate(const char *what, double rate, uni_error *err)
{
    if (rate >= 0 && isfinite(rate))
        return 0;
    return uni_error_set(err, UNI_EINVAL, "a schedule's %s must be 0 or more, got %g", what, rate);
}

int uni_schedule_exponential(uni_schedule **out, double initial, int64_t decay_steps, double rate,
                             bool staircase, uni_error *err)
{
    *out = NULL;
    UNI_TRY(check_steps("decay_steps", decay_steps, err));
    UNI_TRY(check_rate("initial rate", initial, err));
    UNI_TRY(check_rate("decay rate", rate, err));
    UNI_TRY(make(out, EXPONENTIAL, err));
    (*out)->initial = initial;
    (*out)->steps = decay_steps;
    (*out)->rate = rate;
    (*out)->staircase = staircase;
    return 0;
}

int uni_schedule_cosine(uni_schedule **out, double initial, int64_t decay_steps, double alpha,
                        double warmup_target, int64_t warmup_steps, uni_error *err)
{
    *out = NULL;
    UNI_TRY(check_steps("decay_steps", decay_steps, err));
    UNI_TRY(check_rate("initial rate", initial, err));
    UNI_TRY(check_rate("alpha", alpha, err));
    UNI_TRY(check_rate("warmup_target", warmup_target, err));
    if (warmup_steps < 0)
        return check_steps("warmup_steps", warmup_steps, err);
    UNI_TRY(make(out, COSINE, err));
    (*out)->initial = initial;
    (*out)->steps = decay_steps;
    (*out)->alpha = alpha;
    (*out)->target = warmup_target;
    (*out)->warmup_steps = warmup_steps;
    (*out)->has_warmup = warmup_steps > 0;
    return 0;
}

int uni_schedule_piecewise(uni_schedule **out, size_t count, const int64_t *boundaries,
                           const double *values, uni_error *err)
{
    *out = NULL;
    for (size_t i = 0; i <= count; i++)
        UNI_TRY(check_rate("value", values[i], err));
    for (size_t i = 1; i < count; i++)
        if (boundaries[i] <= boundaries[i - 1])
            return uni_error_set(
                err, UNI_EINVAL,
                "the boundaries of a piecewise schedule must rise: %lld comes after %lld",
                (long long)boundaries[i], (long long)boundaries[i - 1]);
    UNI_TRY(make(out, PIECEWISE, err));
    uni_schedule *schedule = *out;
    schedule->count = count;
    schedule->boundaries = malloc((count + 1) * sizeof *boundaries);
    schedule->values = malloc((count + 1) * sizeof *values);
    if (schedule->boundaries == NULL || schedule->values == NULL) {
        uni_schedule_free(schedule);
        *out = NULL;
        return uni_error_set(err, UNI_ENOMEM, "no memory for a learning-rate schedule");
    }
    if (count > 0)
        memcpy(schedule->boundaries, boundaries, count * sizeof *boundaries);
    memcpy(schedule->values, values, (count + 1) * sizeof *values);
    return 0;
}

int uni_schedule_warmup(uni_schedule **out, int64_t steps, double target, uni_schedule *inner,
                        uni_error *err)
{
    *out = NULL;
    int status = 0;
    UNI_TRY_GOTO(check_steps("warm-up steps", steps, err), fail);
    UNI_TRY_GOTO(check_rate("warm-up target", target, err), fail);
    if (target == 0 && inner != NULL)
        target = uni__schedule_at(inner, 0, err);
    if (isnan(target)) {
        status = UNI_EFUNCTION;
        goto fail;
    }
    UNI_TRY_GOTO(make(out, WARMUP, err), fail);
    (*out)->warmup_steps = steps;
    (*out)->target = target;
    (*out)->inner = inner;
    return 0;
fail:
    uni_schedule_free(inner);
    return status;
}

int uni_schedule_custom(uni_schedule **out, uni_schedule_function function, void *context,
                        uni_error *err)
{
    *out = NULL;
    if (function == NULL)
        return uni_error_set(err, UNI_EINVAL, "a schedule of one's own needs a function");
    UNI_TRY(make(out, CUSTOM, err));
    (*out)->function = function;
    (*out)->context = context;
    return 0;
}

void uni_schedule_free(uni_schedule *schedule)
{
    if (schedule == NULL)
        return;
    uni_schedule_free(schedule->inner);
    free(schedule->boundaries);
    free(schedule->values);
    free(schedule);
}

/* ---- values ---- */

static double cosine_at(const uni_schedule *schedule, int64_t step)
{
    double from = schedule->initial;
    if (schedule->has_warmup) {
        if (step < schedule->warmup_steps)
            return schedule->initial + (schedule->target - schedule->initial) * (double)step /
                                           (double)schedule->warmup_steps;
        step -= schedule->warmup_steps;
        from = schedule->target;
    }
    double done = step < schedule->steps ? (double)step / (double)schedule->steps : 1;
    return from * ((1 - schedule->alpha) * 0.5 * (1 + cos(M_PI * done)) + schedule->alpha);
}

static double piecewise_at(const uni_schedule *schedule, int64_t step)
{
    size_t piece = 0;
    while (piece < schedule->count && step > schedule->boundaries[piece])
        piece++;
    return schedule->values[piece];
}

/* A user function: returns its error, or one that gives the bad value. */
static double custom_at(const uni_schedule *schedule, int64_t step, uni_error *err)
{
    uni_error failure = { 0 };
    double rate = schedule->function(schedule->context, step, &failure);
    if (failure.code == 0 && isfinite(rate))
        return rate;
    if (failure.code != 0)
        uni_error_set(err, failure.code, "%s", failure.message);
    else
        uni_error_set(err, UNI_EINVAL,
                      "the learning-rate function returned %g for step %lld; a rate is a finite "
                      "number",
                      rate, (long long)step);
    return NAN;
}

double uni__schedule_at(const uni_schedule *schedule, int64_t step, uni_error *err)
{
    switch (schedule->kind) {
    case EXPONENTIAL: {
        double power = (double)step / (double)schedule->steps;
        return schedule->initial * pow(schedule->rate, schedule->staircase ? floor(power) : power);
    }
    case COSINE:
        return cosine_at(schedule, step);
    case PIECEWISE:
        return piecewise_at(schedule, step);
    case WARMUP:
        if (step < schedule->warmup_steps)
            return schedule->target * (double)step / (double)schedule->warmup_steps;
        return schedule->inner != NULL
                   ? uni__schedule_at(schedule->inner, step - schedule->warmup_steps, err)
                   : schedule->target;
    case CUSTOM:
        return custom_at(schedule, step, err);
    }
    return 0;
}

bool uni__schedule_is_custom(const uni_schedule *schedule)
{
    return schedule->kind == CUSTOM ||
           (schedule->inner != NULL && uni__schedule_is_custom(schedule->inner));
}

/* ---- configs ---- */

static int put_exponential(const uni_schedule *schedule, uni_value *config)
{
    UNI_TRY(uni_dict_take(config, "initial_learning_rate", uni_value_float(schedule->initial)));
    UNI_TRY(uni_dict_take(config, "decay_steps", uni_value_int(schedule->steps)));
    UNI_TRY(uni_dict_take(config, "decay_rate", uni_value_float(schedule->rate)));
    UNI_TRY(uni_dict_take(config, "staircase", uni_value_bool(schedule->staircase)));
    return uni_dict_take(config, "name", uni_value_string("ExponentialDecay"));
}

static int put_cosine(const uni_schedule *schedule, uni_value *config)
{
    UNI_TRY(uni_dict_take(config, "initial_learning_rate", uni_value_float(schedule->initial)));
    UNI_TRY(uni_dict_take(config, "decay_steps", uni_value_int(schedule->steps)));
    UNI_TRY(uni_dict_take(config, "alpha", uni_value_float(schedule->alpha)));
    UNI_TRY(uni_dict_take(config, "name", uni_value_string("CosineDecay")));
    UNI_TRY(
        uni_dict_take(config, "warmup_target",
                      schedule->has_warmup ? uni_value_float(schedule->target) : uni_value_null()));
    return uni_dict_take(config, "warmup_steps", uni_value_int(schedule->warmup_steps));
}

static int put_piecewise(const uni_schedule *schedule, uni_value *config)
{
    uni_value *boundaries = uni_value_list(), *values = uni_value_list();
    int status = boundaries == NULL || values == NULL ? UNI_ENOMEM : 0;
    for (size_t i = 0; status == 0 && i < schedule->count; i++)
        status = uni_list_take(boundaries, uni_value_int(schedule->boundaries[i]));
    for (size_t i = 0; status == 0 && i <= schedule->count; i++)
        status = uni_list_take(values, uni_value_float(schedule->values[i]));
    if (status < 0) {
        uni_value_free(boundaries);
        uni_value_free(values);
        return status;
    }
    status = uni_dict_take(config, "boundaries", boundaries);
    if (status < 0) {
        uni_value_free(values);
        return status;
    }
    UNI_TRY(uni_dict_take(config, "values", values));
    return uni_dict_take(config, "name", uni_value_string("PiecewiseConstant"));
}

int uni__schedule_to_value(const uni_schedule *schedule, uni_value **out, uni_error *err)
{
    *out = NULL;
    if (schedule->kind == WARMUP || schedule->kind == CUSTOM)
        return uni_error_set(err, UNI_EUNSUPPORTED, "a schedule of %s has no form in Keras",
                             schedule->kind == WARMUP ? "warm-up alone" : "the program's own");
    uni_value *config = uni_value_dict();
    const char *class_name = schedule->kind == EXPONENTIAL ? "ExponentialDecay"
                             : schedule->kind == COSINE    ? "CosineDecay"
                                                           : "PiecewiseConstantDecay";
    int status = config == NULL                  ? UNI_ENOMEM
                 : schedule->kind == EXPONENTIAL ? put_exponential(schedule, config)
                 : schedule->kind == COSINE      ? put_cosine(schedule, config)
                                                 : put_piecewise(schedule, config);
    if (status < 0) {
        uni_value_free(config);
        return uni_error_set(err, status, "no memory for the config of a schedule");
    }
    return uni__object_new(out, "keras.optimizers.schedules", class_name, config, err);
}

static int read_piecewise(uni_schedule **out, const uni_value *config, uni_error *err)
{
    const uni_value *boundaries = uni_dict_get(config, "boundaries"),
                    *values = uni_dict_get(config, "values");
    size_t count = uni_list_size(boundaries);
    if (uni_list_size(values) != count + 1)
        return uni_error_set(err, UNI_EFORMAT,
                             "a piecewise schedule has one value more than boundaries, got %zu "
                             "values and %zu boundaries",
                             uni_list_size(values), count);
    int64_t *steps = malloc((count + 1) * sizeof *steps);
    double *rates = malloc((count + 1) * sizeof *rates);
    int status = steps == NULL || rates == NULL
                     ? uni_error_set(err, UNI_ENOMEM, "no memory for a schedule")
                     : 0;
    for (size_t i = 0; status == 0 && i <= count; i++) {
        const uni_value *step = uni_list_get(boundaries, i), *rate = uni_list_get(values, i);
        if (!uni_value_is_number(rate) || (i < count && !uni_value_is_number(step)))
            status = uni_error_set(err, UNI_EFORMAT, "a piecewise schedule is made of numbers");
        rates[i] = uni_value_as_float(rate, 0);
        steps[i] = i < count ? (int64_t)uni_value_as_float(step, 0) : 0;
    }
    if (status == 0)
        status = uni_schedule_piecewise(out, count, steps, rates, err);
    free(steps);
    free(rates);
    return status;
}

int uni__schedule_from_value(uni_schedule **out, const uni_value *value, uni_error *err)
{
    static const char *const names[] = { "ExponentialDecay", "CosineDecay",
                                         "PiecewiseConstantDecay" };
    const uni_value *config;
    const char *name = uni__object_class(value, &config);
    *out = NULL;
    if (name == NULL || config == NULL)
        return uni_error_set(err, UNI_EFORMAT,
                             "a schedule must be an object with a class_name and a config");
    double initial = uni_dict_get_float(config, "initial_learning_rate", 0);
    int64_t steps = uni_dict_get_int(config, "decay_steps", 0);
    if (uni__same_name(name, names[0]))
        return uni_schedule_exponential(out, initial, steps,
                                        uni_dict_get_float(config, "decay_rate", 0),
                                        uni_dict_get_bool(config, "staircase", false), err);
    if (uni__same_name(name, names[1])) {
        const uni_value *target = uni_dict_get(config, "warmup_target");
        bool has_warmup = uni_value_is_number(target);
        int64_t warmup = has_warmup ? uni_dict_get_int(config, "warmup_steps", 0) : 0;
        /* As in Keras, a target without steps is where the decay starts. */
        return uni_schedule_cosine(
            out, has_warmup && warmup == 0 ? uni_value_as_float(target, 0) : initial, steps,
            uni_dict_get_float(config, "alpha", 0), uni_value_as_float(target, 0), warmup, err);
    }
    if (uni__same_name(name, names[2]) || uni__same_name(name, "PiecewiseConstant"))
        return read_piecewise(out, config, err);
    return uni_error_set(err, UNI_EUNSUPPORTED,
                         "the schedule %.80s is not supported; there are %s, %s and %s", name,
                         names[0], names[1], names[2]);
}
