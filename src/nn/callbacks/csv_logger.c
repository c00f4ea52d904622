/*
 * csv_logger.c - CSVLogger: a line an epoch, columns "epoch" and the sorted names of the first
 * epoch's logs; what a later epoch does not have is "NA". Every line is in the file when epoch_end
 * returns. Fit's thread.
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
#include "base/text.h"

struct csv {
    char *path;
    char separator;
    bool append, validates;
    int fd;
    size_t num_names;
    char **names;
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

static int train_begin(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    struct csv *csv = self;
    close_file(csv);
    forget_names(csv);
    csv->validates = info->has_validation;
    csv->fd =
        open(csv->path, O_WRONLY | O_CREAT | O_CLOEXEC | (csv->append ? O_APPEND : O_TRUNC), 0666);
    return csv->fd >= 0 ? 0
                        : uni_error_set_errno(err, errno, "CSVLogger cannot write %s", csv->path);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The columns of this file; names of a validation that has not run yet get their place, too. */
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
    if (csv->append && fstat(csv->fd, &status) == 0 && status.st_size > 0)
        return;
    uni__text_add_string(&csv->line, "epoch");
    for (size_t i = 0; i < csv->num_names; i++) {
        uni__text_add(&csv->line, &csv->separator, 1);
        uni__text_add_string(&csv->line, csv->names[i]);
    }
    uni__text_add_string(&csv->line, "\n");
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
    return uni__write_all(csv->fd, csv->line.data, csv->line.size, csv->path, err);
}

static int train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    close_file(self);
    return 0;
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

static const uni_fit_callback_class csv_class = { .name = "CSVLogger",
                                                  .train_begin = train_begin,
                                                  .epoch_end = epoch_end,
                                                  .train_end = train_end,
                                                  .free = free_csv };

int uni_callback_csv_logger(uni_fit_callback **out, const char *path, char separator, bool append,
                            uni_error *err)
{
    struct csv *csv = uni__callback_make(out, &csv_class, sizeof *csv, err);
    if (csv == NULL)
        return UNI_ENOMEM;
    *csv = (struct csv){ .path = strdup(path),
                         .separator = separator != 0 ? separator : ',',
                         .append = append,
                         .fd = -1 };
    if (csv->path != NULL)
        return 0;
    uni_fit_callback_free(*out);
    *out = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for the path of a CSVLogger");
}
