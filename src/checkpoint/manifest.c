/*
 * manifest.c - the manifest as a structure in memory: building one, and reading it from text and
 * from a directory.
 *
 * manifest.h describes the format; manifest_write.c makes the text. Reading first verifies the
 * checksum of the whole text. Everything after that is about manifests of other programs or
 * versions, not about damage. It still trusts nothing, because anyone can compute a checksum. Any
 * thread.
 */
#include "checkpoint/manifest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/grow.h"
#include "checkpoint/manifest_internal.h"
#include "checkpoint/store.h"

void uni__manifest_clear(uni__manifest *manifest)
{
    for (size_t i = 0; i < manifest->file_count; i++)
        free(manifest->files[i].path);
    free(manifest->files);
    free(manifest->score_attribute);
    uni_value_free(manifest->metrics);
    *manifest = (uni__manifest){ .score = NAN };
}

int uni__manifest_add(uni__manifest *manifest, const char *path, uint64_t size, const char xxh3[17],
                      bool link, uni_error *err)
{
    void *grown = uni__grown(manifest->files, manifest->file_count, &manifest->file_capacity,
                             sizeof *manifest->files);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a manifest of %zu files",
                             manifest->file_count + 1);
    manifest->files = grown;
    uni__manifest_file *file = &manifest->files[manifest->file_count];
    *file = (uni__manifest_file){ .path = strdup(path), .size = size, .link = link };
    if (!file->path)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a manifest");
    memcpy(file->xxh3, xxh3, sizeof file->xxh3);
    manifest->file_count++;
    return 0;
}

static int compare_files(const void *left, const void *right)
{
    const uni__manifest_file *a = left, *b = right;
    return strcmp(a->path, b->path);
}

void uni__manifest_sort(uni__manifest *manifest)
{
    if (manifest->file_count > 1)
        qsort(manifest->files, manifest->file_count, sizeof *manifest->files, compare_files);
}

const uni__manifest_file *uni__manifest_find(const uni__manifest *manifest, const char *path)
{
    for (size_t i = 0; i < manifest->file_count; i++)
        if (strcmp(manifest->files[i].path, path) == 0)
            return &manifest->files[i];
    return NULL;
}

uint64_t uni__manifest_bytes(const uni__manifest *manifest)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < manifest->file_count; i++)
        bytes += manifest->files[i].size;
    return bytes;
}

/* false for "", absolute paths, and "", "." or ".." as a component. */
static bool path_ok(const char *path)
{
    for (const char *part = path;;) {
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 1 && part[0] == '.') ||
            (length == 2 && part[0] == '.' && part[1] == '.'))
            return false; /* also rejects absolute paths and a trailing slash */
        if (part[length] == '\0')
            return true;
        part += length + 1;
    }
}

/* ---- reading ---- */

static int bad(uni_error *err, const char *what)
{
    return uni_error_set(err, UNI_EFORMAT, "the checkpoint's manifest is not valid: %s", what);
}

static int read_int(const uni_value *tree, const char *key, int64_t low, int64_t high, int64_t *out,
                    uni_error *err)
{
    const uni_value *value = uni_dict_get(tree, key);
    int64_t number = uni_value_as_int(value, low);
    if (uni_value_type_of(value) != UNI_TYPE_INT || number < low || number > high)
        return uni_error_set(err, UNI_EFORMAT,
                             "the checkpoint's manifest is not valid: \"%s\" is missing or not a "
                             "sensible number",
                             key);
    *out = number;
    return 0;
}

static bool nonfinite_from_text(const char *text, double *out)
{
    if (!text)
        return false;
    if (strcmp(text, "NaN") == 0)
        *out = NAN;
    else if (strcmp(text, "Infinity") == 0)
        *out = INFINITY;
    else if (strcmp(text, "-Infinity") == 0)
        *out = -INFINITY;
    else
        return false;
    return true;
}

/* A number, the name of a non-finite one, or null. */
static int read_score(uni__manifest *out, const uni_value *tree, uni_error *err)
{
    const uni_value *score = uni_dict_get(tree, "score");
    const uni_value *attribute = uni_dict_get(tree, "score_attribute");
    uni_value_type type = uni_value_type_of(score);
    out->score = NAN;
    out->has_score = score && type != UNI_TYPE_NULL;
    if (type == UNI_TYPE_INT || type == UNI_TYPE_FLOAT)
        out->score = uni_value_as_float(score, NAN);
    else if (!score || (out->has_score &&
                        !nonfinite_from_text(uni_value_as_string(score, NULL), &out->score)))
        return bad(err, "\"score\" is missing or not a number");
    type = uni_value_type_of(attribute);
    if (!attribute || (type != UNI_TYPE_STRING && type != UNI_TYPE_NULL))
        return bad(err, "\"score_attribute\" is missing or no text");
    if (type == UNI_TYPE_STRING &&
        !(out->score_attribute = strdup(uni_value_as_string(attribute, ""))))
        return uni_error_set(err, UNI_ENOMEM, "no memory for a manifest");
    return 0;
}

/* A copy of the metrics with the nulls replaced by the numbers of `marks`. */
static uni_value *restore(const uni_value *value, const uni_value *marks)
{
    uni_value_type type = uni_value_type_of(value);
    double number;
    if (type == UNI_TYPE_NULL && nonfinite_from_text(uni_value_as_string(marks, NULL), &number))
        return uni_value_float(number);
    if (uni_value_type_of(marks) != UNI_TYPE_DICT ||
        (type != UNI_TYPE_DICT && type != UNI_TYPE_LIST))
        return uni_value_copy(value);
    uni_value *copy = type == UNI_TYPE_DICT ? uni_value_dict() : uni_value_list();
    size_t count = type == UNI_TYPE_DICT ? uni_dict_size(value) : uni_list_size(value);
    for (size_t i = 0; copy && i < count; i++) {
        char position[24];
        int status;
        if (type == UNI_TYPE_DICT) {
            const char *key = uni_dict_key_at(value, i);
            status = uni_dict_take(copy, key,
                                   restore(uni_dict_value_at(value, i), uni_dict_get(marks, key)));
        } else {
            snprintf(position, sizeof position, "%zu", i);
            status =
                uni_list_take(copy, restore(uni_list_get(value, i), uni_dict_get(marks, position)));
        }
        if (status < 0) {
            uni_value_free(copy);
            copy = NULL;
        }
    }
    return copy;
}

static int read_metrics(uni__manifest *out, const uni_value *tree, uni_error *err)
{
    const uni_value *metrics = uni_dict_get(tree, "metrics");
    const uni_value *marks = uni_dict_get(tree, "nonfinite");
    if (uni_value_type_of(metrics) != UNI_TYPE_DICT || uni_value_type_of(marks) != UNI_TYPE_DICT)
        return bad(err, "\"metrics\" or \"nonfinite\" is missing or no dictionary");
    out->metrics = restore(metrics, marks);
    return out->metrics ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a manifest");
}

static int hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* A file's name, malloc'ed: "path", or "path_hex" for bytes that are not UTF-8. NULL when it has
 * neither. */
static char *read_path(const uni_value *entry)
{
    const char *path = uni_dict_get_string(entry, "path", NULL);
    const char *hex = uni_dict_get_string(entry, "path_hex", NULL);
    if (!path == !hex)
        return NULL;
    if (path)
        return strdup(path);
    size_t length = strlen(hex);
    char *bytes = length % 2 == 0 ? calloc(length / 2 + 1, 1) : NULL;
    for (size_t i = 0; bytes && i < length / 2; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0 || high + low == 0) {
            free(bytes);
            return NULL;
        }
        bytes[i] = (char)(high << 4 | low);
    }
    return bytes;
}

static int read_file(uni__manifest *out, const uni_value *entry, uni_error *err)
{
    int64_t size = 0;
    const char *sum = uni_dict_get_string(entry, "xxh3", "");
    UNI_TRY(read_int(entry, "size", 0, INT64_MAX, &size, err));
    if (strlen(sum) != 16 || strspn(sum, "0123456789abcdef") != 16)
        return bad(err, "a file has no checksum");
    char *path = read_path(entry);
    if (!path)
        return bad(err, "a file has no name");
    int status;
    if (!path_ok(path) || strcmp(path, UNI__MANIFEST_NAME) == 0)
        status = uni_error_set(err, UNI_EFORMAT,
                               "the checkpoint's manifest is not valid: it lists \"%s\", which "
                               "does not lie inside of the checkpoint",
                               path);
    else if (out->file_count > 0 && strcmp(out->files[out->file_count - 1].path, path) >= 0)
        status = bad(err, "its files are not in order");
    else
        status = uni__manifest_add(out, path, (uint64_t)size, sum,
                                   uni_dict_get_bool(entry, "link", false), err);
    free(path);
    return status;
}

static int read_tree(uni__manifest *out, const uni_value *tree, uni_error *err)
{
    int64_t version = 0, attempt = 0;
    if (strcmp(uni_dict_get_string(tree, "format", ""), "unisono checkpoint") != 0)
        return bad(err, "\"format\" is not \"unisono checkpoint\"");
    UNI_TRY(read_int(tree, "version", 1, INT64_MAX, &version, err));
    if (version != UNI__MANIFEST_VERSION)
        return uni_error_set(err, UNI_EVERSION,
                             "the checkpoint's manifest has version %lld, this program reads %d; "
                             "read it with the unisono that wrote it",
                             (long long)version, UNI__MANIFEST_VERSION);
    UNI_TRY(read_int(tree, "number", 0, INT64_MAX - 1, &out->number, err));
    UNI_TRY(read_int(tree, "iteration", INT64_MIN, INT64_MAX, &out->iteration, err));
    UNI_TRY(read_int(tree, "attempt", INT32_MIN, INT32_MAX, &attempt, err));
    out->attempt = (int)attempt;
    if (!uni_value_is_number(uni_dict_get(tree, "timestamp")))
        return bad(err, "\"timestamp\" is missing");
    out->timestamp = uni_dict_get_float(tree, "timestamp", 0);
    const char *kind = uni_dict_get_string(tree, "kind", "");
    out->is_dict = strcmp(kind, "dict") == 0;
    if (!out->is_dict && strcmp(kind, "directory") != 0)
        return bad(err, "\"kind\" is neither \"dict\" nor \"directory\"");
    UNI_TRY(read_score(out, tree, err));
    UNI_TRY(read_metrics(out, tree, err));
    const uni_value *files = uni_dict_get(tree, "files");
    if (uni_value_type_of(files) != UNI_TYPE_LIST)
        return bad(err, "\"files\" is missing");
    for (size_t i = 0; i < uni_list_size(files); i++)
        UNI_TRY(read_file(out, uni_list_get(files, i), err));
    return 0;
}

int uni__manifest_read(uni__manifest *out, const char *text, size_t size, uni_error *err)
{
    *out = (uni__manifest){ .score = NAN };
    char tail[UNI__MANIFEST_TAIL + 1];
    if (size <= UNI__MANIFEST_TAIL)
        return uni_error_set(err, UNI_ECORRUPT, "the checkpoint's manifest is cut off");
    size_t body = size - UNI__MANIFEST_TAIL;
    uni__manifest_tail(tail, text, body);
    if (memcmp(text + body, tail, UNI__MANIFEST_TAIL) != 0)
        return uni_error_set(err, UNI_ECORRUPT,
                             "the checkpoint's manifest is damaged: its checksum does not match");
    uni_value *tree = NULL;
    UNI_TRY(uni_json_read(&tree, text, size, err));
    int status = read_tree(out, tree, err);
    uni_value_free(tree);
    if (status < 0)
        uni__manifest_clear(out);
    return status;
}

int uni__manifest_load(uni__manifest *out, const char *dir, uni_error *err)
{
    *out = (uni__manifest){ .score = NAN };
    if (!uni__path_is_dir(dir))
        return uni_error_set(err, UNI_ENOTFOUND, "there is no checkpoint directory %s", dir);
    char *path = uni__path_join(dir, UNI__MANIFEST_NAME, NULL), *text = NULL;
    if (!path)
        return uni_error_set(err, UNI_ENOMEM, "no memory to open the checkpoint %s", dir);
    size_t size = 0;
    int status = uni__read_unlinked(&text, &size, path, UNI__MANIFEST_LIMIT, err);
    free(path);
    if (status == UNI_ENOTFOUND)
        return uni_error_set(err, UNI_EFORMAT,
                             "%s is not a complete checkpoint: it has no " UNI__MANIFEST_NAME, dir);
    if (status == 0 && (status = uni__manifest_read(out, text, size, err)) < 0)
        uni_error_prefix(err, "%s", dir);
    free(text);
    return status;
}
