/*
 * callback.c - callbacks as objects, the list that fit calls, and monitored values. All on fit's
 * thread.
 */
#include "nn/callbacks/callback.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nn/shared.h"
#include "base/log.h"

int uni_callback_new(uni_callback **out, const uni_callback_class *class_, void *self,
                     uni_error *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the callback %s", class_->name);
    **out = (uni_callback){ class_, self };
    return 0;
}

void uni_callback_free(uni_callback *callback)
{
    if (callback == NULL)
        return;
    if (callback->class_->free != NULL)
        callback->class_->free(callback->self);
    free(callback);
}

void *uni__callback_make(uni_callback **out, const uni_callback_class *class_, size_t size,
                         uni_error *err)
{
    *out = NULL;
    void *self = calloc(1, size);
    if (self == NULL) {
        uni_error_set(err, UNI_ENOMEM, "no memory for the callback %s", class_->name);
        return NULL;
    }
    if (uni_callback_new(out, class_, self, err) < 0) {
        free(self);
        return NULL;
    }
    return self;
}

/* ---- the list ---- */

int uni__callbacks_make(uni__callbacks *callbacks, uni_callback *const *given, int count,
                        int verbose, const uni_fit_info *info, uni_error *err)
{
    *callbacks = (uni__callbacks){ .items = calloc((size_t)count + 1, sizeof(uni_callback *)) };
    if (callbacks->items == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d callbacks", count);
    for (int i = 0; i < count; i++) {
        if (given[i] == NULL)
            return uni_error_set(err, UNI_EINVAL, "callback %d is NULL", i);
        callbacks->items[callbacks->count++] = given[i];
    }
    if (verbose > 0) {
        UNI_TRY(uni_callback_progbar(&callbacks->progbar, STDOUT_FILENO, verbose, err));
        uni__progbar_set_target(callbacks->progbar, info);
        callbacks->items[callbacks->count++] = callbacks->progbar;
    }
    for (int i = 0; i < callbacks->count; i++) {
        const uni_callback_class *class_ = callbacks->items[i]->class_;
        callbacks->batch_logs =
            callbacks->batch_logs || class_->batch_end != NULL || class_->test_batch_end != NULL;
        callbacks->after_batch = callbacks->after_batch || class_->after_batch != NULL;
    }
    return 0;
}

void uni__callbacks_free(uni__callbacks *callbacks)
{
    uni_callback_free(callbacks->progbar);
    free(callbacks->items);
    *callbacks = (uni__callbacks){ 0 };
}

bool uni__callbacks_has(const uni__callbacks *callbacks, const char *name)
{
    for (int i = 0; i < callbacks->count; i++)
        if (strcmp(callbacks->items[i]->class_->name, name) == 0)
            return true;
    return false;
}

/* ---- states ---- */

/* The key of callback number `index` in states. */
static void state_key(const uni__callbacks *callbacks, int index, char *key, size_t size)
{
    const char *name = callbacks->items[index]->class_->name;
    int before = 0;
    for (int i = 0; i < index; i++)
        before += strcmp(callbacks->items[i]->class_->name, name) == 0;
    snprintf(key, size, "%.100s %d", name, before);
}

bool uni__callbacks_act_between_batches(const uni__callbacks *callbacks)
{
    for (int i = 0; i < callbacks->count; i++) {
        const uni_callback *callback = callbacks->items[i];
        const uni_callback_class *class_ = callback->class_;
        if (callback != callbacks->progbar && !class_->only_looks &&
            (class_->batch_begin != NULL || class_->batch_end != NULL ||
             class_->after_batch != NULL))
            return true;
    }
    return false;
}

int uni__callbacks_get_states(const uni__callbacks *callbacks, uni_value **out, uni_error *err)
{
    char key[128];
    int status = 0;
    uni_value *states = *out = uni_value_dict();
    for (int i = 0; status >= 0 && i < callbacks->count; i++) {
        const uni_callback *callback = callbacks->items[i];
        uni_value *state = NULL;
        if (callback->class_->get_state == NULL)
            continue;
        state_key(callbacks, i, key, sizeof key);
        status = callback->class_->get_state(callback->self, &state, err);
        if (status >= 0 && state != NULL && uni_dict_take(states, key, state) < 0)
            status = uni_error_set(err, UNI_ENOMEM, "no memory for the state of %s",
                                   callback->class_->name);
    }
    if (status >= 0 && states != NULL)
        return 0;
    uni_value_free(states);
    *out = NULL;
    return status < 0 ? status : uni_error_set(err, UNI_ENOMEM, "no memory for callbacks' states");
}

int uni__callbacks_set_states(const uni__callbacks *callbacks, const uni_value *states,
                              uni_error *err)
{
    char key[128];
    for (int i = 0; i < callbacks->count; i++) {
        const uni_callback *callback = callbacks->items[i];
        state_key(callbacks, i, key, sizeof key);
        const uni_value *state = uni_dict_get(states, key);
        if (state != NULL && callback->class_->set_state != NULL)
            UNI_TRY(callback->class_->set_state(callback->self, state, err));
    }
    return 0;
}

uni_value *uni__callback_numbers(size_t count, const char *const *names, const int64_t *values)
{
    uni_value *state = uni_value_dict();
    for (size_t i = 0; i < count; i++)
        if (uni_dict_take(state, names[i], uni_value_int(values[i])) < 0) {
            uni_value_free(state);
            return NULL;
        }
    return state;
}

int uni__monitor_put(const uni__monitor *monitor, uni_value *state)
{
    return monitor->has_best ? uni_dict_take(state, "best", uni_value_float(monitor->best)) : 0;
}

void uni__monitor_take(uni__monitor *monitor, const uni_value *state)
{
    monitor->has_best = uni_dict_get(state, "best") != NULL;
    monitor->best = uni_dict_get_float(state, "best", 0);
}

/* ---- monitored values ---- */

static bool has_any(const char *name, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strstr(name, *words) != NULL)
            return true;
    return false;
}

/* Keras asks the metric object; the name tells as much, or the user says it. The words are also in
 * python/unisono/keras/callbacks.py. */
static int is_better_larger(bool *out, const char *name, uni_error *err)
{
    static const char *const larger[] = { "acc", "auc",   "precision", "recall",
                                          "f1",  "fbeta", "top_k",     NULL };
    static const char *const smaller[] = { "loss",          "error", "mse",
                                           "mae",           "hinge", "divergence",
                                           "crossentropy",  "huber", "lr",
                                           "learning_rate", NULL };
    size_t size = strlen(name);
    bool is_loss = size >= 4 && strcmp(name + size - 4, "loss") == 0;
    *out = !is_loss && has_any(name, larger);
    return *out || has_any(name, smaller)
               ? 0
               : uni_error_set(err, UNI_EINVAL,
                               "UNI_MONITOR_AUTO does not know whether \"%s\" is better when it is "
                               "larger or smaller: set mode to UNI_MONITOR_MAX or UNI_MONITOR_MIN",
                               name);
}

int uni__monitor_init(uni__monitor *monitor, const char *name, uni_monitor_mode mode,
                      double min_delta, uni_error *err)
{
    name = name != NULL ? name : "val_loss";
    if (strlen(name) >= sizeof monitor->name)
        return uni_error_set(err, UNI_ELIMIT,
                             "the name of a monitored number has at most %zu bytes: %s",
                             sizeof monitor->name - 1, name);
    if (isnan(min_delta) || mode < UNI_MONITOR_AUTO || mode > UNI_MONITOR_MAX)
        return uni_error_set(
            err, UNI_EINVAL,
            "the monitor of %s has mode %d and min_delta %g: give UNI_MONITOR_AUTO, _MIN or _MAX, "
            "and a number",
            name, (int)mode, min_delta);
    bool larger = mode == UNI_MONITOR_MAX;
    if (mode == UNI_MONITOR_AUTO)
        UNI_TRY(is_better_larger(&larger, name, err));
    *monitor = (uni__monitor){ .maximize = larger, .min_delta = fabs(min_delta) };
    strcpy(monitor->name, name);
    return 0;
}

double uni__monitor_read(uni__monitor *monitor, const uni_logs *logs, const char *user)
{
    for (size_t i = 0; i < logs->count; i++)
        if (strcmp(logs->names[i], monitor->name) == 0)
            return logs->values[i];
    if (!monitor->warned) {
        char available[400] = "";
        size_t size = 0;
        for (size_t i = 0; i < logs->count && size < sizeof available - 1; i++)
            size += (size_t)snprintf(available + size, sizeof available - size, "%s%s",
                                     i > 0 ? ", " : "", logs->names[i]);
        uni__warn("%s watches %s, which is not in the logs; there are %s", user, monitor->name,
                  available);
        monitor->warned = true;
    }
    return NAN;
}

bool uni__monitor_better(const uni__monitor *monitor, double value, double than)
{
    return monitor->maximize ? value - monitor->min_delta > than
                             : value + monitor->min_delta < than;
}

/* ---- printing ---- */

void uni__print_fd(int fd, const char *format, ...)
{
    char small[512], *text = small;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(small, sizeof small, format, arguments);
    va_end(arguments);
    /* Keeps what the program printed earlier in front. */
    if (fd == STDOUT_FILENO)
        fflush(stdout);
    if (length >= (int)sizeof small && (text = malloc((size_t)length + 1)) != NULL) {
        va_start(arguments, format);
        vsnprintf(text, (size_t)length + 1, format, arguments);
        va_end(arguments);
    }
    for (int done = 0; text != NULL && done < length;) {
        ssize_t written = write(fd, text + done, (size_t)(length - done));
        if (written <= 0)
            break;
        done += (int)written;
    }
    if (text != small)
        free(text);
}
