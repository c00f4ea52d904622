/*
 * progbar.c - Keras's progress output: a bar that is redrawn (verbose 1) or a line per epoch
 * (verbose 2). The bytes are those of Keras 3; if the output is not a terminal, only the finished
 * bar of each epoch is written. Drawing allocates nothing.
 */
#include "nn/callbacks/callback.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define WIDTH 20
#define INTERVAL 0.05 /* seconds between redraws */
#define MAX_LOGS 64

struct progbar {
    int fd, verbose, epochs;
    bool in_fit, dynamic;
    int64_t target, seen; /* target -1: unknown */
    double start, after_first, last_update;
    int previous_width;
    char text[4096];
    size_t size;
};

static double now(void)
{
    return (double)uni__monotonic_ns() * 1e-9;
}

static void put(struct progbar *bar, const char *format, ...) UNI_PRINTF(2, 3);
static void put(struct progbar *bar, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(bar->text + bar->size, sizeof bar->text - bar->size, format, arguments);
    va_end(arguments);
    if (written > 0)
        bar->size = bar->size + (size_t)written < sizeof bar->text ? bar->size + (size_t)written
                                                                   : sizeof bar->text - 1;
}

static void reset(struct progbar *bar)
{
    bar->seen = 0;
    bar->start = now();
    bar->after_first = bar->last_update = 0;
    bar->previous_width = 0;
}

static double step_duration(struct progbar *bar, int64_t current, double at)
{
    if (current == 0)
        return 0;
    double each = bar->after_first != 0 && current > 1
                      ? (at - bar->after_first) / (double)(current - 1)
                      : (at - bar->start) / (double)current;
    if (current == 1)
        bar->after_first = at;
    return each;
}

static void put_step_time(struct progbar *bar, double each)
{
    if (each >= 1 || each == 0)
        put(bar, " %.0fs/step", each);
    else if (each >= 1e-3)
        put(bar, " %.0fms/step", each * 1e3);
    else
        put(bar, " %.0fus/step", each * 1e6);
}

/* Sorted names, those of the validation last, as in Keras. */
static void put_logs(struct progbar *bar, const uni_logs *logs)
{
    size_t order[MAX_LOGS], count = logs->count < MAX_LOGS ? logs->count : MAX_LOGS;
    for (size_t i = 0; i < count; i++) {
        size_t place = i;
        bool validation = strncmp(logs->names[i], "val_", 4) == 0;
        for (; place > 0; place--) {
            const char *before = logs->names[order[place - 1]];
            bool before_validation = strncmp(before, "val_", 4) == 0;
            if (before_validation == validation ? strcmp(before, logs->names[i]) <= 0 : validation)
                break;
            order[place] = order[place - 1];
        }
        order[place] = i;
    }
    for (size_t i = 0; i < count; i++) {
        double value = logs->values[order[i]];
        put(bar, fabs(value) > 1e-3 ? " - %s: %.4f" : " - %s: %.4e", logs->names[order[i]], value);
    }
}

static void put_eta(struct progbar *bar, double seconds)
{
    long eta = (long)seconds;
    if (seconds > 3600)
        put(bar, " \x1b[1m%ld:%02ld:%02ld\x1b[0m", eta / 3600, eta % 3600 / 60, eta % 60);
    else if (seconds > 60)
        put(bar, " \x1b[1m%ld:%02ld\x1b[0m", eta / 60, eta % 60);
    else
        put(bar, " \x1b[1m%lds\x1b[0m", eta);
}

/* Display columns of the text: UTF-8 characters, without escape sequences. */
static int columns(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++) {
        if (*text == '\x1b') {
            text = strchr(text, 'm');
            if (text == NULL)
                break;
        } else if (((unsigned char)*text & 0xc0) != 0x80) {
            width++;
        }
    }
    return width;
}

static void draw(struct progbar *bar, int64_t current, const uni_logs *logs, bool last, double at,
                 double each)
{
    bar->size = 0;
    for (int i = 0; bar->dynamic && i < bar->previous_width; i++)
        put(bar, "\b");
    if (bar->dynamic)
        put(bar, "\r");
    size_t begin = bar->size;
    if (bar->target > 0) {
        int digits = (int)log10((double)bar->target) + 1,
            done = (int)(WIDTH * current / bar->target);
        put(bar, "\x1b[1m%*lld/%lld\x1b[0m ", digits, (long long)current, (long long)bar->target);
        if (done > 0)
            put(bar, "\x1b[32m");
        for (int i = 0; i < done; i++)
            put(bar, "━");
        put(bar, done > 0 ? "\x1b[0m\x1b[37m" : "\x1b[37m");
        for (int i = done; i < WIDTH; i++)
            put(bar, "━");
        put(bar, "\x1b[0m");
    } else {
        put(bar, "%7lld/Unknown", (long long)current);
    }
    if (bar->target > 0 && !last)
        put_eta(bar, each * (double)(bar->target - current));
    else
        put(bar, " \x1b[1m%.0fs\x1b[0m", at - bar->start);
    put_step_time(bar, each);
    put_logs(bar, logs);
    int width = columns(bar->text + begin);
    for (int i = width; i < bar->previous_width; i++)
        put(bar, " ");
    bar->previous_width = width;
    if (last)
        put(bar, "\n");
    uni__print_fd(bar->fd, "%s", bar->text);
}

static void line(struct progbar *bar, const uni_logs *logs, double at, double each)
{
    int digits = bar->target > 0 ? (int)log10((double)bar->target) + 1 : 1;
    bar->size = 0;
    put(bar, "%*lld/%lld - %.0fs -", digits, (long long)bar->target, (long long)bar->target,
        at - bar->start);
    put_step_time(bar, each);
    put_logs(bar, logs);
    put(bar, "\n");
    uni__print_fd(bar->fd, "%s", bar->text);
}

static void update(struct progbar *bar, int64_t current, const uni_logs *logs, bool last)
{
    double at = now(), each = step_duration(bar, current, at);
    bar->seen = current;
    if (bar->verbose == 1 && (last || (bar->dynamic && at - bar->last_update >= INTERVAL))) {
        draw(bar, current, logs, last, at, each);
        bar->last_update = at;
    } else if (bar->verbose == 2 && last) {
        line(bar, logs, at, each);
    }
}

static void finish(struct progbar *bar, const uni_logs *logs)
{
    if (bar->target < 0)
        bar->target = bar->seen;
    update(bar, bar->target, logs, true);
}

/* ---- callback functions ---- */

static int train_begin(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    struct progbar *bar = self;
    bar->in_fit = true; /* validation prints nothing */
    bar->epochs = info->epochs;
    bar->target = info->steps;
    return 0;
}

static int train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    ((struct progbar *)self)->in_fit = false;
    return 0;
}

static int epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    struct progbar *bar = self;
    reset(bar);
    if (bar->epochs > 1)
        uni__print_fd(bar->fd, "Epoch %d/%d\n", epoch + 1, bar->epochs);
    return 0;
}

static int batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                     uni_error *err)
{
    update(self, batch + 1, logs, false);
    return 0;
}

static int epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    finish(self, logs);
    return 0;
}

static int test_begin(void *self, uni_model *model, uni_error *err)
{
    if (!((struct progbar *)self)->in_fit)
        reset(self);
    return 0;
}

static int test_batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                          uni_error *err)
{
    if (!((struct progbar *)self)->in_fit)
        update(self, batch + 1, logs, false);
    return 0;
}

static int test_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    if (!((struct progbar *)self)->in_fit)
        finish(self, logs);
    return 0;
}

static int predict_begin(void *self, uni_model *model, uni_error *err)
{
    reset(self);
    return 0;
}

static int predict_batch_end(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    update(self, batch + 1, &(uni_logs){ 0 }, false);
    return 0;
}

static int predict_end(void *self, uni_model *model, uni_error *err)
{
    finish(self, &(uni_logs){ 0 });
    return 0;
}

static const uni_callback_class progbar_class = {
    .name = "ProgbarLogger",
    .train_begin = train_begin,
    .train_end = train_end,
    .epoch_begin = epoch_begin,
    .epoch_end = epoch_end,
    .batch_end = batch_end,
    .test_begin = test_begin,
    .test_end = test_end,
    .test_batch_end = test_batch_end,
    .predict_begin = predict_begin,
    .predict_end = predict_end,
    .predict_batch_end = predict_batch_end,
    .free = free,
};

int uni_callback_progbar(uni_callback **out, int fd, uni_verbosity verbose, uni_error *err)
{
    struct progbar *bar = uni__callback_make(out, &progbar_class, sizeof *bar, err);
    if (bar == NULL)
        return UNI_ENOMEM;
    bar->fd = fd;
    bar->verbose = verbose;
    bar->target = -1;
    bar->dynamic = isatty(fd) == 1;
    return 0;
}

void uni__progbar_set_target(uni_callback *progbar, const uni_fit_info *info)
{
    struct progbar *bar = progbar->self;
    bar->target = info->steps;
    bar->epochs = info->epochs;
}
