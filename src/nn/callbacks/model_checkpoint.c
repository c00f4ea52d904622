/*
 * model_checkpoint.c - ModelCheckpoint: saves the model after epochs or batches, always or only if
 * a value improved. Fit's thread.
 */
#include "nn/callbacks/callback.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "base/options.h"

struct checkpoint {
    uni_model_checkpoint_options options;
    uni__monitor monitor;
    char *path;
    int epoch;
    int64_t since; /* batches since the last save */
};

/* Formats a number in the part of Python's format language that file names use:
 * [0][width][.precision][d|f|e|g]. */
static int put_number(uni__text *out, double value, bool whole, const char *format, size_t length,
                      uni_error *err)
{
    char pattern[32] = "%", digits[16];
    size_t used = 0;
    while (used < length && (isdigit((unsigned char)format[used]) || format[used] == '.') &&
           used < sizeof digits - 1) {
        digits[used] = format[used];
        used++;
    }
    digits[used] = '\0';
    char type = used < length ? format[used] : '\0';
    bool known = used + (type != '\0') == length && (type == '\0' || strchr("dfeg", type) != NULL);
    if (!known)
        return uni_error_set(err, UNI_EINVAL,
                             "cannot format a number as \"%.*s\"; use forms like 02d, .2f or .3e",
                             (int)length, format);
    if (type == 'd' || (whole && type == '\0')) {
        snprintf(pattern, sizeof pattern, "%%%slld", digits);
        uni__text_add_format(out, pattern, (long long)value);
    } else if (type == '\0' && used == 0) {
        uni__text_add_double(out, value);
    } else {
        snprintf(pattern, sizeof pattern, "%%%s%c", digits, type != '\0' ? type : 'g');
        uni__text_add_format(out, pattern, value);
    }
    return 0;
}

/* Formats one "{name:format}"; `field` is the text between the braces. */
static int put_field(uni__text *out, const char *field, size_t length, int epoch, int64_t batch,
                     const uni_logs *logs, uni_error *err)
{
    const char *colon = memchr(field, ':', length);
    size_t name_length = colon != NULL ? (size_t)(colon - field) : length;
    const char *format = colon != NULL ? colon + 1 : "";
    size_t format_length = colon != NULL ? length - name_length - 1 : 0;
    if (name_length == 5 && memcmp(field, "epoch", 5) == 0)
        return put_number(out, epoch + 1, true, format, format_length, err);
    if (name_length == 5 && memcmp(field, "batch", 5) == 0 && batch >= 0)
        return put_number(out, (double)batch + 1, true, format, format_length, err);
    for (size_t i = 0; i < logs->count; i++)
        if (strlen(logs->names[i]) == name_length &&
            memcmp(logs->names[i], field, name_length) == 0)
            return put_number(out, logs->values[i], false, format, format_length, err);
    return uni_error_set(err, UNI_ENOTFOUND, "\"%.*s\" is not in the logs", (int)name_length,
                         field);
}

static int make_path(struct checkpoint *checkpoint, uni__text *out, int epoch, int64_t batch,
                     const uni_logs *logs, uni_error *err)
{
    for (const char *at = checkpoint->path; *at != '\0';) {
        const char *open = strchr(at, '{'), *close = open != NULL ? strchr(open, '}') : NULL;
        if (close == NULL) {
            uni__text_add_string(out, at);
            break;
        }
        uni__text_add(out, at, (size_t)(open - at));
        int status = put_field(out, open + 1, (size_t)(close - open - 1), epoch, batch, logs, err);
        if (status < 0) {
            uni_error_prefix(err, "ModelCheckpoint cannot make the file name %s", checkpoint->path);
            return status;
        }
        at = close + 1;
    }
    return out->failed ? uni_error_set(err, UNI_ENOMEM, "no memory for the path of a checkpoint")
                       : 0;
}

static int make_parent(const char *path, uni_error *err)
{
    assert(path != NULL);
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return 0;
    char *parent = strndup(path, (size_t)(slash - path));
    if (parent == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the path of a checkpoint");
    int status = uni__make_dirs(parent, 0777, err);
    free(parent);
    return status;
}

/* Decides whether to save now; prints Keras's messages. */
static bool is_wanted(struct checkpoint *checkpoint, int epoch, const uni_logs *logs,
                      const char *path)
{
    bool says = checkpoint->options.verbose > 0;
    uni__monitor *monitor = &checkpoint->monitor;
    if (!checkpoint->options.save_best_only) {
        if (says)
            uni__print_fd(STDOUT_FILENO, "\nEpoch %d: saving model to %s\n", epoch + 1, path);
        return true;
    }
    double current = uni__monitor_read(monitor, logs, "ModelCheckpoint");
    /* As Keras: save when in doubt. */
    if (monitor->warned)
        return true;
    char best[40] = "None";
    if (monitor->has_best)
        snprintf(best, sizeof best, "%.5f", monitor->best);
    bool better = !monitor->has_best || uni__monitor_better(monitor, current, monitor->best);
    if (says && better)
        uni__print_fd(STDOUT_FILENO,
                      "\nEpoch %d: %s improved from %s to %.5f, saving model to %s\n", epoch + 1,
                      monitor->name, best, current, path);
    else if (says)
        uni__print_fd(STDOUT_FILENO, "\nEpoch %d: %s did not improve from %s\n", epoch + 1,
                      monitor->name, best);
    if (better) {
        monitor->best = current;
        monitor->has_best = true;
    }
    return better;
}

static int save(struct checkpoint *checkpoint, const uni_model *model, int epoch, int64_t batch,
                const uni_logs *logs, uni_error *err)
{
    uni__text path = { 0 };
    int status = make_path(checkpoint, &path, epoch, batch, logs, err);
    if (status == 0 && is_wanted(checkpoint, epoch, logs, path.data)) {
        status = make_parent(path.data, err);
        if (status == 0)
            status = uni_model_save(model, path.data, err);
        if (status == 0 && checkpoint->options.verbose > 0)
            uni__print_fd(STDOUT_FILENO, "\nEpoch %d: finished saving model to %s\n", epoch + 1,
                          path.data);
    }
    uni__text_free(&path);
    return status;
}

static int epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    ((struct checkpoint *)self)->epoch = epoch;
    return 0;
}

static int epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    struct checkpoint *checkpoint = self;
    return checkpoint->options.save_every_batches > 0
               ? 0
               : save(checkpoint, model, epoch, -1, logs, err);
}

static int batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                     uni_error *err)
{
    struct checkpoint *checkpoint = self;
    if (checkpoint->options.save_every_batches <= 0 ||
        ++checkpoint->since < checkpoint->options.save_every_batches)
        return 0;
    checkpoint->since = 0;
    return save(checkpoint, model, checkpoint->epoch, batch, logs, err);
}

static int get_state(void *self, uni_value **out, uni_error *err)
{
    const struct checkpoint *checkpoint = self;
    *out = uni__callback_numbers(1, (const char *const[]){ "since" },
                                 (const int64_t[]){ checkpoint->since });
    return *out != NULL && uni__monitor_put(&checkpoint->monitor, *out) == 0
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for the state of ModelCheckpoint");
}

static int set_state(void *self, const uni_value *state, uni_error *err)
{
    struct checkpoint *checkpoint = self;
    checkpoint->since = uni_dict_get_int(state, "since", 0);
    uni__monitor_take(&checkpoint->monitor, state);
    return 0;
}

static void free_checkpoint(void *self)
{
    free(((struct checkpoint *)self)->path);
    free(self);
}

/* Two classes, so that saving after epochs does not cost the logs of every batch. */
static const uni_callback_class epoch_class = { .name = "ModelCheckpoint",
                                                .epoch_begin = epoch_begin,
                                                .epoch_end = epoch_end,
                                                .get_state = get_state,
                                                .set_state = set_state,
                                                .free = free_checkpoint };
static const uni_callback_class batch_class = { .name = "ModelCheckpoint",
                                                .epoch_begin = epoch_begin,
                                                .batch_end = batch_end,
                                                .get_state = get_state,
                                                .set_state = set_state,
                                                .free = free_checkpoint };

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

int uni_callback_model_checkpoint(uni_callback **out, const char *path,
                                  const uni_model_checkpoint_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_model_checkpoint_options, options, verbose, err);
    uni_model_checkpoint_options o = *options;
    uni__monitor monitor;
    if (path == NULL || o.save_every_batches < 0)
        return uni_error_set(
            err, UNI_EINVAL,
            "ModelCheckpoint needs a path, and save_every_batches must not be negative, got %lld",
            (long long)o.save_every_batches);
    bool weights = ends_with(path, ".weights.h5") || ends_with(path, ".safetensors");
    if (!weights && !ends_with(path, ".keras"))
        return uni_error_set(
            err, UNI_EINVAL,
            "ModelCheckpoint: the path must end in .keras, .weights.h5 or .safetensors, "
            "got %s",
            path);
    if (o.save_weights_only && !weights)
        return uni_error_set(
            err, UNI_EINVAL,
            "ModelCheckpoint: with save_weights_only the path must end in .weights.h5 or "
            ".safetensors, got %s",
            path);
    UNI_TRY(uni__monitor_init(&monitor, o.monitor, o.mode, 0, err));
    struct checkpoint *checkpoint = uni__callback_make(
        out, o.save_every_batches > 0 ? &batch_class : &epoch_class, sizeof *checkpoint, err);
    if (checkpoint == NULL)
        return UNI_ENOMEM;
    *checkpoint = (struct checkpoint){ .options = o, .monitor = monitor, .path = strdup(path) };
    checkpoint->options.monitor = NULL;
    if (checkpoint->path != NULL)
        return 0;
    uni_callback_free(*out);
    *out = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for the path of a ModelCheckpoint");
}
