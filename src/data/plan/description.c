/*
 * description.c - creates datasets from a dictionary (a run's `datasets`, a JSON file) and from
 * file names. Such datasets can be sent to workers because they contain no functions. data.h lists
 * the keys.
 */
#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unisono/data.h>
#include <unisono/data_readers.h>
#include "base/shared.h"
#include "data/shared.h"

#define MAX_LIST 256
#define MAX_DEPTH 8 /* directory levels searched for a file of a known type */

/* Converts a string or a list of strings to a NULL-terminated list of borrowed strings. */
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
        return uni_error_set(err, UNI_EINVAL,
                             "dataset: \"%s\" must be a string or a list of 1 to %d of them", key,
                             MAX_LIST - 1);
    out[*count] = NULL;
    return 0;
}

/* Reads an integer of at least `least`; any other value is an error. */
static int whole_of(const uni_value *config, const char *key, int64_t least, int64_t fallback,
                    int64_t *out, uni_error *err)
{
    const uni_value *value = uni_dict_get(config, key);
    *out = uni_value_as_int(value, fallback);
    if (value == NULL || (uni_value_type_of(value) == UNI_TYPE_INT && *out >= least))
        return 0;
    return uni_error_set(err, UNI_EINVAL, "dataset: \"%s\" must be a whole number of at least %lld",
                         key, (long long)least);
}

static int flag_of(const uni_value *config, const char *key, bool fallback, bool *out,
                   uni_error *err)
{
    const uni_value *value = uni_dict_get(config, key);
    *out = uni_value_as_bool(value, fallback);
    if (value == NULL || uni_value_type_of(value) == UNI_TYPE_BOOL)
        return 0;
    return uni_error_set(err, UNI_EINVAL, "dataset: \"%s\" must be true or false", key);
}

static int dtype_of(const uni_value *config, const char *key, const char *fallback, uni_dtype *out,
                    uni_error *err)
{
    const char *name =
        uni_dict_get(config, key) == NULL ? fallback : uni_dict_get_string(config, key, "");
    int found = uni__dtype_from_name(name);
    *out = (uni_dtype)(found > 0 ? found : 0);
    return found > 0 ? 0
                     : uni_error_set(err, UNI_EINVAL,
                                     "dataset: \"%s\": there is no element type \"%s\"", key, name);
}

/* ---- sources ---- */

static int read_csv(uni_dataset **out, int count, const char *const *paths, const uni_value *config,
                    uni_error *err)
{
    bool header = true;
    static const char *const words[] = { "delimiter",  "quote",     "encoding",
                                         "short_rows", "long_rows", "duplicate_names" };
    bool quotes = true;
    uni_csv_options options = { 0 };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const uni_value *value = uni_dict_get(config, words[i]);
        const char *word = uni_value_as_string(value, NULL);
        if (value != NULL && word == NULL)
            return uni_error_set(err, UNI_EINVAL, "dataset: \"%s\" must be a string", words[i]);
        if (value != NULL)
            UNI_TRY(uni__csv_options_set(&options, words[i], word, err));
    }
    UNI_TRY(flag_of(config, "header", true, &header, err));
    UNI_TRY(flag_of(config, "quotes", true, &quotes, err));
    UNI_TRY(flag_of(config, "skip_bad", false, &options.bad.skip, err));
    UNI_TRY(dtype_of(config, "float_dtype", "float64", &options.float_dtype, err));
    options.no_header = !header;
    options.no_quotes = !quotes;
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

static int read_images(uni_dataset **out, int count, const char *const *paths,
                       const uni_value *config, uni_error *err)
{
    uni_image_options options = { 0 };
    int64_t height = 0, width = 0, channels = 0;
    UNI_TRY(whole_of(config, "height", 1, 0, &height, err));
    UNI_TRY(whole_of(config, "width", 1, 0, &width, err));
    UNI_TRY(whole_of(config, "channels", 1, 0, &channels, err));
    UNI_TRY(flag_of(config, "labels", false, &options.labels, err));
    UNI_TRY(flag_of(config, "rescale", false, &options.rescale, err));
    UNI_TRY(flag_of(config, "skip_bad", false, &options.bad.skip, err));
    options.height = height > INT32_MAX ? INT32_MAX : (int)height;
    options.width = width > INT32_MAX ? INT32_MAX : (int)width;
    options.channels = channels > INT32_MAX ? INT32_MAX : (int)channels;
    return uni_dataset_read_images(out, count, paths, &options, err);
}

static int read_sqlite(uni_dataset **out, int count, const char *const *paths,
                       const uni_value *config, uni_error *err)
{
    const char *table = uni_dict_get_string(config, "table", NULL);
    if (count != 1 || table == NULL)
        return uni_error_set(err, UNI_EINVAL,
                             "%s: which table? A dataset of SQLite is one file and its table (or a "
                             "query: SELECT ...)",
                             paths[0]);
    return uni_dataset_read_sqlite(out, paths[0], table, NULL, err);
}

/* "names" sets the column names; without it columns are named after their files. */
static int read_idx(uni_dataset **out, int count, const char *const *paths, const uni_value *config,
                    uni_error *err)
{
    const char *names[MAX_LIST];
    int given = 0;
    if (count >= MAX_LIST)
        return uni_error_set(err, UNI_ELIMIT, "at most %d idx files", MAX_LIST - 1);
    for (int i = 0; i < count; i++)
        names[i] = strrchr(paths[i], '/') != NULL ? strrchr(paths[i], '/') + 1 : paths[i];
    if (uni_dict_get(config, "names") != NULL)
        UNI_TRY(strings_of(uni_dict_get(config, "names"), "names", names, &given, err));
    if (given != 0 && given != count)
        return uni_error_set(err, UNI_EINVAL, "dataset: %d \"names\" for %d idx files", given,
                             count);
    return uni_dataset_read_idx(out, count, names, paths, err);
}

static const struct reader {
    const char *name;
    int (*read)(uni_dataset **out, int count, const char *const *paths, const uni_value *config,
                uni_error *err);
    const char *suffixes; /* separated and enclosed by spaces */
    const char *keys; /* keys that this reader accepts and not all readers do */
} readers[] = {
    { "csv", read_csv, " .csv .tsv ",
      " delimiter quote quotes header encoding short_rows long_rows duplicate_names float_dtype "
      "skip_bad " },
    { "numpy", read_numpy, " .npy .npz ", " " },
    { "json", read_json, " .jsonl .ndjson .json ", " " },
    { "tfrecord", read_tfrecord, " .tfrecord .tfrecords ", " " },
    { "images", read_images, " .jpg .jpeg .png ",
      " height width channels labels rescale skip_bad " },
    { "sqlite", read_sqlite, " .db .sqlite .sqlite3 ", " table " },
    { "idx", read_idx, " .idx .idx1-ubyte .idx2-ubyte .idx3-ubyte .idx4-ubyte ", " names " },
    { "text", read_text, " .txt .text .log ", " " }
};
enum { NUM_READERS = sizeof readers / sizeof readers[0] };

/* Finds a reader by the end of the file name, ignoring a compression suffix such as .gz. MNIST's
 * files end in -idx3-ubyte and the like. */
static const struct reader *reader_of(const char *path)
{
    char ending[20] = " .";
    size_t length = strlen(path);
    if (length > 3 && strcasecmp(path + length - 3, ".gz") == 0)
        length -= 3;
    else if (length > 4 && strcasecmp(path + length - 4, ".zst") == 0)
        length -= 4;
    size_t from = length;
    while (from > 0 && path[from - 1] != '.' && path[from - 1] != '/' &&
           strncmp(path + from, "idx", 3) != 0)
        from--;
    if (from == 0 || path[from - 1] == '/' || length - from + 4 > sizeof ending)
        return NULL;
    memcpy(ending + 2, path + from, length - from);
    strcat(ending, " ");
    for (int i = 0; i < NUM_READERS; i++)
        if (strcasestr(readers[i].suffixes, ending) != NULL)
            return &readers[i];
    return NULL;
}

/* True if `keys`, separated by spaces, contains `key`. */
static bool has_key(const char *keys, const char *key)
{
    char word[64];
    int length = snprintf(word, sizeof word, " %s ", key);
    return length < (int)sizeof word && strstr(keys, word) != NULL;
}

/* Rejects a key of another file type by name, and a second source. `keys` are those of `name`. */
static int check_source(const uni_value *config, const char *name, const char *keys, uni_error *err)
{
    for (size_t i = 0; i < uni_dict_size(config); i++) {
        const char *key = uni_dict_key_at(config, i), *owner = NULL;
        bool source = strcmp(key, "range") == 0 || strcmp(key, "paths") == 0;
        for (int j = 0; j < NUM_READERS; j++) {
            source = source || strcmp(key, readers[j].name) == 0;
            owner = owner == NULL && has_key(readers[j].keys, key) ? readers[j].name : owner;
        }
        if (source && strcmp(key, name) != 0 && strcmp(key, "paths") != 0)
            return uni_error_set(err, UNI_EINVAL,
                                 "dataset: \"%s\" and \"%s\": a dataset has one source", name, key);
        if (owner != NULL && !has_key(keys, key))
            return uni_error_set(err, UNI_EINVAL,
                                 "dataset: \"%s\" is an option of \"%s\"; \"%s\" does not have it",
                                 key, owner, name);
    }
    return 0;
}

static const struct reader *reader_for(const char *path, int depth);

/* The reader of the first file, by name, whose type is known. */
static const struct reader *reader_in(const char *folder, int depth)
{
    struct dirent **names = NULL;
    const struct reader *found = NULL;
    int count = depth < MAX_DEPTH ? scandir(folder, &names, NULL, alphasort) : 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        bool hidden = names[i]->d_name[0] == '.' || names[i]->d_name[0] == '_';
        int length = snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (found == NULL && !hidden && length < (int)sizeof path)
            found = reader_for(path, depth + 1);
        free(names[i]);
    }
    free(names);
    return found;
}

/* Finds the reader for a file by its name, for a directory by its files, for a pattern by its
 * matches. */
static const struct reader *reader_for(const char *path, int depth)
{
    const struct reader *found = reader_of(path);
    glob_t fits;
    if (found != NULL)
        return found;
    DIR *folder = opendir(path);
    if (folder != NULL) {
        closedir(folder);
        return reader_in(path, depth);
    }
    if (strpbrk(path, "*?[") != NULL && glob(path, 0, NULL, &fits) == 0) {
        for (size_t i = 0; i < fits.gl_pathc && found == NULL; i++)
            found = reader_of(fits.gl_pathv[i]);
        globfree(&fits);
    }
    return found;
}

static int read_by_name(uni_dataset **out, int num_paths, const char *const *paths,
                        const uni_value *config, uni_error *err)
{
    *out = NULL;
    if (num_paths < 1)
        return uni_error_set(err, UNI_EINVAL, "a dataset needs at least one path");
    const struct reader *reader = reader_for(paths[0], 0);
    if (reader == NULL && strcasestr(paths[0], ".parquet") != NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "%s: Parquet is read from Python only (unisono.data.read_parquet)",
                             paths[0]);
    if (reader == NULL)
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "%s: what kind of file is it? .csv, .tsv, .npy, .npz, .jsonl, .tfrecord, .txt, .jpg, "
            ".png, .sqlite and -idx3-ubyte are known by name",
            paths[0]);
    UNI_TRY(check_source(config, reader->name, reader->keys, err));
    return reader->read(out, num_paths, paths, config, err);
}

int uni_dataset_read(uni_dataset **out, int num_paths, const char *const *paths, uni_error *err)
{
    return read_by_name(out, num_paths, paths, NULL, err);
}

static int open_source(uni_dataset **out, const uni_value *config, uni_error *err)
{
    const char *paths[MAX_LIST];
    int count = 0;
    if (uni_dict_get(config, "range") != NULL) {
        int64_t rows = 0;
        UNI_TRY(check_source(config, "range", " ", err));
        UNI_TRY(whole_of(config, "range", 0, 0, &rows, err));
        return uni_dataset_range(out, rows, err);
    }
    if (uni_dict_get(config, "paths") != NULL) {
        UNI_TRY(strings_of(uni_dict_get(config, "paths"), "paths", paths, &count, err));
        return read_by_name(out, count, paths, config, err);
    }
    for (int i = 0; i < NUM_READERS; i++) {
        const uni_value *value = uni_dict_get(config, readers[i].name);
        if (value == NULL)
            continue;
        UNI_TRY(check_source(config, readers[i].name, readers[i].keys, err));
        UNI_TRY(strings_of(value, readers[i].name, paths, &count, err));
        return readers[i].read(out, count, paths, config, err);
    }
    return uni_error_set(
        err, UNI_EINVAL,
        "a dataset needs one of csv, numpy, json, text, tfrecord, images, sqlite, idx, paths "
        "or range");
}

/* ---- transforms ---- */

/* Replaces *dataset by the result of a transform. */
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
    int64_t skip = 0, limit = -1;
    uni_dataset *next = NULL;
    UNI_TRY(whole_of(config, "skip", 0, 0, &skip, err));
    UNI_TRY(whole_of(config, "limit", 0, -1, &limit, err));
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
    int64_t batch = 0, repeat = 0, number = 0;
    bool drop = false;
    uni_dataset *next = NULL;
    UNI_TRY(whole_of(config, "batch_size", 1, 0, &batch, err));
    UNI_TRY(whole_of(config, "repeat", -1, 0, &repeat, err));
    UNI_TRY(whole_of(config, "seed", INT64_MIN, 0, &number, err));
    UNI_TRY(flag_of(config, "drop_remainder", false, &drop, err));
    if (shuffle != NULL && uni_value_type_of(shuffle) != UNI_TYPE_BOOL)
        UNI_TRY(whole_of(config, "shuffle", 0, 0, &buffer, err));
    if (uni_value_as_bool(shuffle, buffer > 0)) {
        UNI_TRY(uni_dataset_shuffle(&next, *dataset, buffer, (uint64_t)number, err));
        take_over(dataset, next);
    }
    if (batch != 0) {
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
        " csv numpy json text tfrecord images sqlite idx paths range delimiter quote quotes "
        "header encoding short_rows long_rows duplicate_names float_dtype skip_bad height width "
        "channels labels rescale table names columns features cast skip "
        "limit shuffle seed batch_size drop_remainder repeat ";
    if (uni_value_type_of(config) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "a dataset is described by a dictionary, not a %s",
                             uni__value_type_name(uni_value_type_of(config)));
    for (size_t i = 0; i < uni_dict_size(config); i++) {
        const char *key = uni_dict_key_at(config, i);
        if (!has_key(known, key))
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
        uni_dtype dtype = 0;
        UNI_TRY_GOTO(dtype_of(config, "cast", "", &dtype, err), fail);
        UNI_TRY_GOTO(uni_dataset_cast(&next, dataset, NULL, dtype, err), fail);
        take_over(&dataset, next);
    }
    UNI_TRY_GOTO(apply_order(&dataset, config, err), fail);
    *out = dataset;
    return 0;
fail:
    uni_dataset_unref(dataset);
    return status;
}
