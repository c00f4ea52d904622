/* schedule.c - FIFO, and selection of a scheduler by name. Owner's thread. */
#include "tune/schedule.h"

#include <math.h>
#include <string.h>

#include "tune/search.h"

int uni__option_number(const uni_value *options, const char *key, double fallback, double least,
                       double *out, uni_error *err)
{
    const uni_value *value = uni_dict_get(options, key);
    *out = value ? uni_value_as_float(value, NAN) : fallback;
    if (!(*out >= least) || !isfinite(*out))
        return least - floor(least) > 0 && least - floor(least) < 1e-6
                   ? uni_error_set(err, UNI_EINVAL, "%s must be a number above %g", key,
                                   floor(least))
                   : uni_error_set(err, UNI_EINVAL, "%s must be a number of at least %g", key,
                                   least);
    return 0;
}

static int fifo_new(void **self, const uni__schedule_setting *setting, uni_error *err)
{
    static const char *const none[] = { "time_attr", NULL };
    *self = NULL;
    return uni__check_keys("the fifo scheduler", setting->options, none, err);
}

static void fifo_free(void *self) {}

static int fifo_added(void *self, int64_t trial, uni_error *err)
{
    return 0;
}

static int fifo_report(void *self, const uni__schedule_report *report, uni__decision *out,
                       uni_error *err)
{
    return 0;
}

static void fifo_ended(void *self, int64_t trial) {}

static void fifo_forget(void *self, int64_t trial, int64_t iteration) {}

static const uni__scheduler_methods fifo = { .name = "fifo",
                                             .new = fifo_new,
                                             .free = fifo_free,
                                             .added = fifo_added,
                                             .report = fifo_report,
                                             .ended = fifo_ended,
                                             .forget = fifo_forget };

int uni__scheduler_new(uni__scheduler *out, const uni__schedule_setting *setting, uni_error *err)
{
    static const struct {
        const char *name;
        const uni__scheduler_methods *methods;
    } all[] = { { "fifo", &fifo },
                { "asha", &uni__asha },
                { "async_hyperband", &uni__asha },
                { "median", &uni__median },
                { "hyperband", &uni__hyperband },
                { "pbt", &uni__pbt } };
    const char *type = uni_value_type_of(setting->options) == UNI_TYPE_STRING
                           ? uni_value_as_string(setting->options, "")
                           : uni_dict_get_string(setting->options, "type", "fifo");
    *out = (uni__scheduler){ 0 };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(all[i].name, type) != 0)
            continue;
        if (all[i].methods->decides && (!setting->metric || !setting->sign))
            return uni_error_set(err, UNI_EINVAL,
                                 "the %s scheduler needs a metric and a mode (\"min\" or \"max\")",
                                 type);
        out->time_attr = uni_dict_get_string(setting->options, "time_attr", "training_iteration");
        UNI_TRY(all[i].methods->new (&out->self, setting, err));
        out->methods = all[i].methods;
        return 0;
    }
    return uni_error_set(err, UNI_EINVAL,
                         "there is no scheduler \"%s\"; there are: fifo, asha, median, hyperband, "
                         "pbt",
                         type);
}

void uni__scheduler_clear(uni__scheduler *scheduler)
{
    if (scheduler->methods)
        scheduler->methods->free(scheduler->self);
    *scheduler = (uni__scheduler){ 0 };
}
