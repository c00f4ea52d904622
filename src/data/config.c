/*
 * config.c - datasets from a dictionary (a run's `datasets`, a JSON file) and from names of files: what can be sent to workers, because it has no
 * functions in it. The keys are in data.h.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unisono/data.h>
#include <unisono/data_readers.h>

#define MAX_LIST 256

/* A string, or a list of strings, as a NULL-terminated list; borrowed. */
static int strings_of(const uni_value *value, const char *key, const char **out, int *count,
                      uni_error *err)
{
    const char *one = uni_value_as_string(value, NULL);
    size_t size = uni_list_size(value);
    *count = one != NULL ? 1 : (int)size;
    bool fits = one != NULL || (size > 0 && size < MAX_LIST);
    out[0] = one;
    for (size_t i = 0; one == NULL && fits && i < size; i++) {
        out[i] = uni_value_as_string(uni_list_get(value, i), NULL);
        fits = out[i] != NULL;
    }
    if (!fits)
        return uni_error_set(err, UNI_EINVAL, "dataset: \"%s\" must be a string or a list of them",
                             key);
    out[*count] = NULL;
    return 0;
}

/* ---- sources ---- */

static int read_csv(uni_dataset **out, int count, const char *const *paths, const uni_value *config,
                    uni_error *err)
{
    const char *delimiter = uni_dict_get_string(config, "delimiter", ",");
    uni_csv_options options = { .delimiter = delimiter[0],
                                .no_header = !uni_dict_get_bool(config, "header", true),
                                .float_dtype = (uni_dtype)uni_dtype_from_name(
                                    uni_dict_get_string(config, "float_dtype", "float64")),
                                .bad.skip = uni_dict_get_bool(config, "skip_bad", false) };
    return uni_dataset_read_csv(out, count, paths, &options, err);
}

static int read_numpy(uni_dataset **out, int count, const char *const *paths,
                      const uni_value *config, uni_error *err)
{
    return uni_dataset_read_numpy(out, count, paths, NULL, err);
}

static int read_json(uni_dataset **out, int count, const char *const *paths,
                     const uni_value *config, uni_error *err)
{
    return uni_dataset_read_json(out, count, paths, NULL, err);
}

static int read_text(uni_dataset **out, int count, const char *const *paths,
                     const uni_value *config, uni_error *err)
{
    return uni_dataset_read_text(out, count, paths, NULL, err);
}

static int read_tfrecord(uni_dataset **out, int count, const char *const *paths,
                         const uni_value *config, uni_error *err)
{
    return uni_dataset_read_tfrecords(out, count, paths, NULL, err);
}

static const struct reader {
    const char *name;
    int (*read)(uni_dataset **out, int count, const char *const *paths, const uni_value *config,
                uni_error *err);
    const char *suffixes; /* with spaces between and around them */
} readers[] = { { "csv", read_csv, " .csv .tsv " },
                { "numpy", read_numpy, " .npy .npz " },
                { "json", read_json, " .jsonl .ndjson .json " },
                { "tfrecord", read_tfrecord, " .tfrecord .tfrecords " },
                { "text", read_text, " .txt .text .log " } };
enum { NUM_READERS = sizeof readers / sizeof readers[0] };

/* By the end of the name; what a compressed file is called before its .gz counts. */
static const struct reader *reader_of(const char *path)
{
    char ending[16] = " ";
    size_t length = strlen(path);
    if (length > 3 && strcasecmp(path + length - 3, ".gz") == 0)
        length -= 3;
    else if (length > 4 && strcasecmp(path + length - 4, ".zst") == 0)
        length -= 4;
    size_t dot = length;
    while (dot > 0 && path[dot - 1] != '.' && path[dot - 1] != '/')
        dot--;
    if (dot == 0 || path[dot - 1] != '.' || length - dot + 3 >= sizeof ending)
        return NULL;
    memcpy(ending + 1, path + dot - 1, length - dot + 1);
    strcat(ending, " ");
    for (int i = 0; i < NUM_READERS; i++) {
        if (strcasestr(readers[i].suffixes, ending) != NULL)
            return &readers[i];
    }
    return NULL;
}

int uni_dataset_read(uni_dataset **out, int num_paths, const char *const *paths, uni_error *err)
{
    *out = NULL;
    if (num_paths < 1)
        return uni_error_set(err, UNI_EINVAL, "a dataset needs at least one path");
    const struct reader *reader = reader_of(paths[0]);
    if (reader == NULL)
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "%s: what kind of file is it? .csv, .tsv, .npy, .npz, .jsonl, .tfrecord "
            "and .txt are known by name",
            paths[0]);
    bool tabs = strstr(paths[0], ".tsv") != NULL;
    if (tabs)
        return uni_dataset_read_csv(out, num_paths, paths, &(uni_csv_options){ .delimiter = '\t' },
                                    err);
    return reader->read(out, num_paths, paths, NULL, err);
}

static int open_source(uni_dataset **out, const uni_value *config, uni_error *err)
{
    const char *paths[MAX_LIST];
    int count = 0;
    if (uni_dict_get(config, "range") != NULL)
        return uni_dataset_range(out, uni_dict_get_int(config, "range", -1), err);
    if (uni_dict_get(config, "paths") != NULL) {
        UNI_TRY(strings_of(uni_dict_get(config, "paths"), "paths", paths, &count, err));
        return uni_dataset_read(out, count, paths, err);
    }
    for (int i = 0; i < NUM_READERS; i++) {
        const uni_value *value = uni_dict_get(config, readers[i].name);
        if (value == NULL)
            continue;
        UNI_TRY(strings_of(value, readers[i].name, paths, &count, err));
        return readers[i].read(out, count, paths, config, err);
    }
    return uni_error_set(err, UNI_EINVAL,
                         "a dataset needs one of csv, numpy, json, text, tfrecord, paths or range");
}

/* ---- transforms ---- */

/* *dataset becomes what a transform made of it. */
static void take_over(uni_dataset **dataset, uni_dataset *next)
{
    uni_dataset_unref(*dataset);
    *dataset = next;
}

static int apply_features(uni_dataset **dataset, const uni_value *features, uni_error *err)
{
    for (size_t i = 0; i < uni_dict_size(features); i++) {
        const char *name = uni_dict_key_at(features, i), *columns[MAX_LIST];
        uni_dataset *next = NULL;
        int count = 0;
        UNI_TRY(strings_of(uni_dict_value_at(features, i), name, columns, &count, err));
        UNI_TRY(uni_dataset_concat_columns(&next, *dataset, columns, name, UNI_F32, err));
        take_over(dataset, next);
    }
    return 0;
}

static int apply_rows(uni_dataset **dataset, const uni_value *config, uni_error *err)
{
    int64_t skip = uni_dict_get_int(config, "skip", 0),
            limit = uni_dict_get_int(config, "limit", -1);
    uni_dataset *next = NULL;
    if (skip > 0) {
        UNI_TRY(uni_dataset_skip(&next, *dataset, skip, err));
        take_over(dataset, next);
    }
    if (limit >= 0) {
        UNI_TRY(uni_dataset_limit(&next, *dataset, limit, err));
        take_over(dataset, next);
    }
    return 0;
}

static int apply_order(uni_dataset **dataset, const uni_value *config, uni_error *err)
{
    const uni_value *shuffle = uni_dict_get(config, "shuffle");
    int64_t buffer = uni_value_type_of(shuffle) == UNI_TYPE_INT ? uni_value_as_int(shuffle, 0) : 0;
    int64_t batch = uni_dict_get_int(config, "batch_size", 0);
    int64_t repeat = uni_dict_get_int(config, "repeat", 0);
    uni_dataset *next = NULL;
    if (uni_value_as_bool(shuffle, buffer > 0)) {
        uint64_t seed = (uint64_t)uni_dict_get_int(config, "seed", 0);
        UNI_TRY(uni_dataset_shuffle(&next, *dataset, buffer, seed, err));
        take_over(dataset, next);
    }
    if (batch != 0) {
        bool drop = uni_dict_get_bool(config, "drop_remainder", false);
        UNI_TRY(uni_dataset_batch(&next, *dataset, batch, drop, err));
        take_over(dataset, next);
    }
    if (repeat != 0) {
        UNI_TRY(uni_dataset_repeat(&next, *dataset, repeat, err));
        take_over(dataset, next);
    }
    return 0;
}

static int check_keys(const uni_value *config, uni_error *err)
{
    static const char known[] =
        " csv numpy json text tfrecord paths range delimiter header float_dtype skip_bad columns "
        "features cast skip limit shuffle seed batch_size drop_remainder repeat ";
    if (uni_value_type_of(config) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "a dataset is described by a dictionary, not a %s",
                             uni_value_type_name(uni_value_type_of(config)));
    for (size_t i = 0; i < uni_dict_size(config); i++) {
        const char *key = uni_dict_key_at(config, i);
        char word[64];
        int length = snprintf(word, sizeof word, " %s ", key);
        if (length >= (int)sizeof word || strstr(known, word) == NULL)
            return uni_error_set(err, UNI_EINVAL, "dataset: there is no key \"%s\"; known are:%s",
                                 key, known);
    }
    return 0;
}

int uni_dataset_from_config(uni_dataset **out, const uni_value *config, uni_error *err)
{
    const char *columns[MAX_LIST];
    uni_dataset *dataset = NULL, *next = NULL;
    int count = 0, status = 0;
    *out = NULL;
    UNI_TRY(check_keys(config, err));
    UNI_TRY(open_source(&dataset, config, err));
    if (uni_dict_get(config, "columns") != NULL) {
        UNI_TRY_GOTO(strings_of(uni_dict_get(config, "columns"), "columns", columns, &count, err),
                     fail);
        UNI_TRY_GOTO(uni_dataset_select(&next, dataset, columns, err), fail);
        take_over(&dataset, next);
    }
    UNI_TRY_GOTO(apply_rows(&dataset, config, err), fail);
    UNI_TRY_GOTO(apply_features(&dataset, uni_dict_get(config, "features"), err), fail);
    if (uni_dict_get(config, "cast") != NULL) {
        int dtype = uni_dtype_from_name(uni_dict_get_string(config, "cast", ""));
        UNI_TRY_GOTO(uni_dataset_cast(&next, dataset, NULL, (uni_dtype)dtype, err), fail);
        take_over(&dataset, next);
    }
    UNI_TRY_GOTO(apply_order(&dataset, config, err), fail);
    *out = dataset;
    return 0;
fail:
    uni_dataset_unref(dataset);
    return status;
}
