/*
 * csv_logger.c - CSVLogger: one line per epoch, with "epoch" and the sorted names of the first
 * epoch's logs as columns. Values that a later epoch lacks are "NA". Every line is in the file when
 * epoch_end returns. Runs on fit's thread.
 */
#include "nn/callbacks/callback.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

struct csv {
    char *path;
    char separator;
    bool append, validates;
    int fd;
    size_t num_names;
    char **names;
    int64_t lines; /* in the file */
    bool stale; /* The file is from an earlier fit; truncate it before the first line. */
    uni__text line;
};

static void forget_names(struct csv *csv)
{
    for (size_t i = 0; i < csv->num_names; i++)
        free(csv->names[i]);
    free(csv->names);
    csv->names = NULL;
    csv->num_names = 0;
}

static void close_file(struct csv *csv)
{
    if (csv->fd >= 0)
        close(csv->fd);
    csv->fd = -1;
}

/* Counts the lines of the file, at most `wanted` (-1: all), and finds where the last of them
 * ends. */
static int find_line(const struct csv *csv, int64_t wanted, int64_t *lines, int64_t *end,
                     uni_error *err)
{
    char block[8192];
    int64_t found = 0, at = 0, behind = 0;
    for (ssize_t n; found != wanted && (n = pread(csv->fd, block, sizeof block, at)) != 0;) {
        if (n < 0)
            return uni_error_set_errno(err, errno, "CSVLogger cannot read %s", csv->path);
        for (ssize_t i = 0; i < n && found != wanted; i++)
            if (block[i] == '\n') {
                found++;
                behind = at + i + 1;
            }
        at += n;
    }
    *lines = found;
    if (end != NULL)
        *end = behind;
    return 0;
}

static int train_begin(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    struct csv *csv = self;
    close_file(csv);
    forget_names(csv);
    csv->validates = info->has_validation;
    csv->fd = open(csv->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (csv->fd < 0)
        return uni_error_set_errno(err, errno, "CSVLogger cannot write %s", csv->path);
    /* Truncated in epoch_begin, because a resumed fit continues in the file. */
    csv->stale = !csv->append;
    csv->lines = 0;
    return csv->append ? find_line(csv, -1, &csv->lines, NULL, err) : 0;
}

static int empty_stale(struct csv *csv, uni_error *err)
{
    if (csv->stale && ftruncate(csv->fd, 0) < 0)
        return uni_error_set_errno(err, errno, "CSVLogger cannot empty %s", csv->path);
    csv->stale = false;
    return 0;
}

static int epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    return empty_stale(self, err);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The columns of this file; validation results that do not exist yet also get a column. */
static int take_names(struct csv *csv, const uni_logs *logs)
{
    bool has_validation = false;
    for (size_t i = 0; i < logs->count; i++)
        has_validation = has_validation || strncmp(logs->names[i], "val_", 4) == 0;
    bool both = csv->validates && !has_validation;
    csv->names = calloc(2 * logs->count + 1, sizeof *csv->names);
    for (size_t i = 0; csv->names != NULL && i < logs->count; i++) {
        size_t size = strlen(logs->names[i]) + 5;
        for (int v = 0; v <= (both ? 1 : 0); v++) {
            char *name = malloc(size);
            if (name == NULL)
                return UNI_ENOMEM;
            strcpy(name, v ? "val_" : "");
            strcat(name, logs->names[i]);
            csv->names[csv->num_names++] = name;
        }
    }
    if (csv->names == NULL)
        return UNI_ENOMEM;
    qsort(csv->names, csv->num_names, sizeof *csv->names, compare);
    return 0;
}

static void put_header(struct csv *csv)
{
    struct stat status;
    if (fstat(csv->fd, &status) == 0 && status.st_size > 0)
        return;
    uni__text_add_string(&csv->line, "epoch");
    for (size_t i = 0; i < csv->num_names; i++) {
        uni__text_add(&csv->line, &csv->separator, 1);
        uni__text_add_string(&csv->line, csv->names[i]);
    }
    uni__text_add_string(&csv->line, "\n");
    csv->lines++;
}

static void put_value(struct csv *csv, const uni_logs *logs, const char *name)
{
    for (size_t i = 0; i < logs->count; i++)
        if (strcmp(logs->names[i], name) == 0) {
            double value = logs->values[i];
            if (isfinite(value))
                uni__text_add_double(&csv->line, value);
            else
                uni__text_add_string(&csv->line, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
            return;
        }
    uni__text_add_string(&csv->line, "NA");
}

static int epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    struct csv *csv = self;
    uni__text_clear(&csv->line);
    if (csv->names == NULL) {
        if (take_names(csv, logs) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the columns of %s", csv->path);
        put_header(csv);
    }
    uni__text_add_int(&csv->line, epoch);
    for (size_t i = 0; i < csv->num_names; i++) {
        uni__text_add(&csv->line, &csv->separator, 1);
        put_value(csv, logs, csv->names[i]);
    }
    uni__text_add_string(&csv->line, "\n");
    if (csv->line.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a line of %s", csv->path);
    UNI_TRY(uni__write_all(csv->fd, csv->line.data, csv->line.size, csv->path, err));
    csv->lines++;
    return 0;
}

static int get_state(void *self, uni_value **out, uni_error *err)
{
    const struct csv *csv = self;
    uni_value *names = uni_value_list();
    *out =
        uni__callback_numbers(1, (const char *const[]){ "lines" }, (const int64_t[]){ csv->lines });
    int status = 0;
    for (size_t i = 0; status == 0 && i < csv->num_names; i++)
        status = uni_list_take(names, uni_value_string(csv->names[i]));
    if (uni_dict_take(*out, "names", names) == 0 && status == 0)
        return 0;
    return uni_error_set(err, UNI_ENOMEM, "no memory for the state of the CSVLogger of %s",
                         csv->path);
}

static int restore_names(struct csv *csv, const uni_value *names)
{
    size_t count = uni_list_size(names);
    forget_names(csv);
    if (count == 0)
        return 0;
    csv->names = calloc(count + 1, sizeof *csv->names);
    for (size_t i = 0; csv->names != NULL && i < count; i++) {
        csv->names[i] = strdup(uni_value_as_string(uni_list_get(names, i), ""));
        if (csv->names[i] == NULL)
            return UNI_ENOMEM;
        csv->num_names++;
    }
    return csv->names != NULL ? 0 : UNI_ENOMEM;
}

/* Restores the file to what it was when the state was taken: lines of epochs that run again are cut
 * off. */
static int set_state(void *self, const uni_value *state, uni_error *err)
{
    struct csv *csv = self;
    int64_t wanted = uni_dict_get_int(state, "lines", 0), end = 0;
    if (restore_names(csv, uni_dict_get(state, "names")) < 0)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the columns of %s", csv->path);
    csv->stale = false;
    UNI_TRY(find_line(csv, wanted < 0 ? 0 : wanted, &csv->lines, &end, err));
    if (csv->lines < wanted)
        uni__warn("%s has %lld lines, but had %lld when the checkpoint was taken; the missing ones "
                  "are lost",
                  csv->path, (long long)csv->lines, (long long)wanted);
    return ftruncate(csv->fd, (off_t)end) == 0
               ? 0
               : uni_error_set_errno(err, errno, "CSVLogger cannot shorten %s", csv->path);
}

static int train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    int status = empty_stale(self, err);
    close_file(self);
    return status;
}

static void free_csv(void *self)
{
    struct csv *csv = self;
    close_file(csv);
    forget_names(csv);
    uni__text_free(&csv->line);
    free(csv->path);
    free(csv);
}

static const uni_callback_class csv_class = { .name = "CSVLogger",
                                              .train_begin = train_begin,
                                              .epoch_begin = epoch_begin,
                                              .get_state = get_state,
                                              .set_state = set_state,
                                              .epoch_end = epoch_end,
                                              .train_end = train_end,
                                              .free = free_csv };

int uni_callback_csv_logger(uni_callback **out, const char *path, char separator, bool append,
                            uni_error *err)
{
    *out = NULL;
    if (path == NULL || path[0] == '\0')
        return uni_error_set(err, UNI_EINVAL, "CSVLogger needs the path of a file");
    struct csv *csv = uni__callback_make(out, &csv_class, sizeof *csv, err);
    if (csv == NULL)
        return UNI_ENOMEM;
    *csv = (struct csv){ .path = strdup(path),
                         .separator = separator != 0 ? separator : ',',
                         .append = append,
                         .fd = -1 };
    if (csv->path != NULL)
        return 0;
    uni_callback_free(*out);
    *out = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for the path of a CSVLogger");
}
