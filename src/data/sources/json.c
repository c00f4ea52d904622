/*
 * json.c - JSON lines as a source: columns come from the keys of the first lines (json_infer.c),
 * then every line is parsed directly into its columns, without a tree. Any thread.
 */
#include <unisono/data_readers.h>

#include <stdlib.h>
#include <string.h>

#include "data/sources/build.h"
#include "data/sources/json_infer.h"
#include "data/sources/json_scan.h"
#include "data/sources/lines.h"
#include "base/options.h"

#define HEAD_BYTES ((size_t)1 << 20)
#define MAX_LIST ((size_t)64 << 20)

/* ---- parsing a line into columns ---- */

/* Reads a list's numbers into a tensor of the column's shape. On failure returns false and sets the
 * problem. */
static const char not_of_type[] =
    "a number that the column's type does not have (a fraction, or too large); the type was given, "
    "or taken from the first lines: give it (types), or let more be looked at (infer_rows)";

static bool fill_tensor(uni__json_scan *scan, uni__build *build, int column, int level,
                        int64_t *next)
{
    const uni_field *field = &build->columns[column].field;
    uni__json_token token;
    int64_t count = 0;
    int more;
    if (!uni__json_take(scan, '['))
        return uni__json_fail(scan, "no list where the column has a tensor");
    for (bool first = true; (more = uni__json_item(scan, first)) > 0; first = false, count++) {
        if (count >= field->shape[level])
            return uni__json_fail(scan, "a list that is longer than those before");
        if (level + 1 < field->ndim) {
            if (!fill_tensor(scan, build, column, level + 1, next))
                return false;
            continue;
        }
        uni__json_kind kind = uni__json_next(scan, &token);
        if (kind != UNI__JSON_INT && kind != UNI__JSON_FLOAT)
            return uni__json_fail(scan, "a value that is not a number in a tensor");
        int64_t place = (*next)++;
        if (kind == UNI__JSON_INT ? !uni__build_put_int(build, column, place, token.integer)
                                  : !uni__build_put_float(build, column, place, token.real))
            return uni__json_fail(scan, not_of_type);
    }
    if (more == 0 && count != field->shape[level])
        return uni__json_fail(scan, "a list that is shorter than those before");
    return more == 0;
}

/* Returns 1, 0 if the line is bad, or an error (out of memory). */
static int fill_list(uni__json_scan *scan, uni__build *build, int column, uni_error *err)
{
    uni__json_token token;
    int more = -1;
    if (!uni__json_take(scan, '['))
        return uni__json_fail(scan, "no list where the column has lists");
    for (bool first = true; (more = uni__json_item(scan, first)) > 0; first = false) {
        uni__json_kind kind = uni__json_next(scan, &token);
        if (kind != UNI__JSON_INT && kind != UNI__JSON_FLOAT)
            return uni__json_fail(scan, "a value that is not a number in a list of numbers");
        int stored = kind == UNI__JSON_INT ? uni__build_add_int(build, column, token.integer, err)
                                           : uni__build_add_float(build, column, token.real, err);
        if (stored <= 0)
            return stored < 0 ? stored : uni__json_fail(scan, not_of_type);
    }
    uni__build_used(build, column, 0);
    return more == 0;
}

static int put_string(uni__build *build, int column, const uni__json_token *token, uni_error *err)
{
    void *to = NULL;
    if (!token->escaped)
        return uni__build_put_bytes(build, column, token->text, token->size, err);
    UNI_TRY(uni__build_reserve(build, column, (int64_t)token->size, &to, err));
    uni__build_used(build, column, (int64_t)uni__json_unescape(to, token->text, token->size));
    return 0;
}

/* Stores a scalar that fits its column. */
static int put_scalar(uni__json_scan *scan, uni__build *build, int column, uni_error *err)
{
    uni_dtype dtype = build->columns[column].field.dtype;
    uni__json_token token;
    const char *begin = scan->at;
    uni__json_kind kind = uni__json_next(scan, &token);
    if (kind == UNI__JSON_NULL)
        return 1;
    if (kind == UNI__JSON_INT || (kind == UNI__JSON_BOOL && dtype == UNI_B8)) {
        if (uni__build_put_int(build, column, 0, token.integer))
            return 1;
        scan->at = begin;
        return uni__json_fail(scan, not_of_type);
    }
    if (kind == UNI__JSON_FLOAT && uni__build_put_float(build, column, 0, token.real))
        return 1;
    if (kind == UNI__JSON_BAD)
        return 0;
    scan->at = begin;
    return uni__json_fail(
        scan, kind == UNI__JSON_FLOAT ? not_of_type : "a value of another type than those before");
}

static int put_text(uni__json_scan *scan, uni__build *build, int column, uni_error *err)
{
    uni__json_token token;
    uni__json_kind kind = uni__json_next(scan, &token);
    if (kind == UNI__JSON_BAD)
        return 0;
    if (kind == UNI__JSON_NULL)
        return 1;
    UNI_TRY(kind == UNI__JSON_STRING
                ? put_string(build, column, &token, err)
                : uni__build_put_bytes(build, column, token.text, token.size, err));
    return 1;
}

static int put_value(uni__json_scan *scan, uni__build *build, int column, uni_error *err)
{
    const uni_field *field = &build->columns[column].field;
    int64_t next = 0;
    uni__json_token token;
    if (build->columns[column].put)
        return uni__json_fail(scan, "a key that was there already");
    if (field->kind == UNI_FIELD_STRING || field->kind == UNI_FIELD_BINARY)
        return put_text(scan, build, column, err);
    if (field->kind == UNI_FIELD_NUMBER && field->ndim == 0)
        return put_scalar(scan, build, column, err);
    if (uni__json_peek(scan) == UNI__JSON_NULL)
        return uni__json_next(scan, &token) != UNI__JSON_BAD;
    return field->kind == UNI_FIELD_LIST ? fill_list(scan, build, column, err)
                                         : fill_tensor(scan, build, column, 0, &next);
}

/* Finds the column of a key. Most rows have their keys in column order. */
static int column_of(const uni__build *build, const uni__json_token *key, int guess)
{
    if (guess < build->num_columns) {
        const char *name = build->columns[guess].field.name;
        if (strncmp(name, key->text, key->size) == 0 && name[key->size] == '\0')
            return guess;
    }
    return uni__build_find(build, key->text, key->size);
}

/* Returns 1, 0 if the line is bad (the scanner says why), or an error. */
static int put_line(uni__json_scan *scan, uni__build *build, uni__json_names *names, uni_error *err)
{
    uni__json_token key, passed;
    int more = -1, guess = 0;
    if (!uni__json_take(scan, '{'))
        return uni__json_fail(scan, "a line that is not an object ({...})");
    for (bool first = true; (more = uni__json_member(scan, first, &key)) > 0; first = false) {
        if (!uni__json_name(scan, names, &key))
            return scan->problem != NULL
                       ? 0
                       : uni_error_set(err, UNI_ENOMEM, "no memory for the keys of JSON lines");
        int column = column_of(build, &key, guess);
        int good = column >= 0 ? put_value(scan, build, column, err)
                               : uni__json_next(scan, &passed) != UNI__JSON_BAD;
        if (good <= 0)
            return good;
        guess = column + 1;
    }
    uni__json_space(scan);
    if (more == 0 && scan->at < scan->end)
        return uni__json_fail(scan, "something behind the end of the object");
    return more == 0;
}

/* ---- the source ---- */

static int64_t count(const void *format, const char *text, size_t size)
{
    const char *end = text + size;
    int64_t rows = 0;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        uni__json_scan scan = { .at = at, .end = newline != NULL ? newline : end };
        at = scan.end + 1;
        uni__json_space(&scan);
        rows += scan.at < scan.end;
    }
    return rows;
}

static int parse(const void *format, uni__reader *reader, const uni_table *schema,
                 const uni__lines_place *place, const char *text, size_t size, uni_table **out,
                 uni_error *err)
{
    const char *end = text + size;
    uni__build build;
    uni__json_names names = { 0 };
    int status = 0;
    UNI_TRY(
        uni__build_begin(&build, reader, schema, count(format, text, size), (int64_t)size, err));
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *line = at;
        uni__json_scan scan = { .at = at, .end = newline != NULL ? newline : end };
        at = scan.end + 1;
        uni__json_space(&scan);
        if (scan.at == scan.end)
            continue;
        UNI_TRY_GOTO(uni__reader_is_wanted(reader, err), fail);
        UNI_TRY_GOTO(put_line(&scan, &build, &names, err), fail);
        if (status > 0) {
            UNI_TRY_GOTO(uni__build_end_row(&build, err), fail);
            continue;
        }
        uni__build_drop_row(&build);
        int64_t number =
            uni__reader_skips(reader) ? 0 : uni__lines_number(place, text, (size_t)(line - text));
        UNI_TRY_GOTO(uni__reader_bad(reader, err, place->path, number, (scan.at - line) + 1, "%s",
                                     scan.problem),
                     fail);
    }
    free(names.buffer);
    return uni__build_finish(&build, out, err);
fail:
    free(names.buffer);
    uni__build_free(&build);
    return status;
}

int uni__json_parse(uni__reader *reader, const uni_table *schema, const char *text, size_t size,
                    uni_table **out, uni_error *err)
{
    return parse(NULL, reader, schema, &(uni__lines_place){ .path = "text", .line = 1 }, text, size,
                 out, err);
}

static void format_free(void *format) {}

static const uni__lines_format json_lines = {
    .name = "json", .parse = parse, .count = count, .free = format_free
};

/* Reads a file that is a single list of objects. */
static int read_list(uni_dataset **out, const uni__files *files, const uni_json_options *o,
                     uni_error *err)
{
    uni_value *rows = NULL;
    uni_dataset *all = NULL;
    const char *path = files->items[0].path;
    char *text = NULL;
    size_t size = 0;
    if (o->num_types > 0 || o->bad.skip)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "%s is one list: types, and bad rows that are skipped, are for files "
                             "with one object a line (jq -c '.[]' makes one)",
                             path);
    int status = uni__lines_head(files, MAX_LIST, &text, &size, &path, err);
    if (status == 0)
        status = uni_json_read(&rows, text, size, err);
    if (status == 0)
        status = uni_dataset_from_items(&all, rows, err);
    uni_value_free(rows);
    free(text);
    if (status < 0)
        return uni_error_prefix(err, "%s, which is read as one list of at most 64 MiB", path);
    if (o->columns == NULL) {
        *out = all;
        return 0;
    }
    status = uni_dataset_select(out, all, o->columns, err);
    uni_dataset_unref(all);
    return status < 0 ? uni_error_prefix(err, "%s", path) : 0;
}

static bool begins_with_list(const char *text, size_t size)
{
    uni__json_scan scan = { .at = text, .end = text + size };
    return uni__json_peek(&scan) == UNI__JSON_LIST;
}

int uni_dataset_read_json(uni_dataset **out, int num_paths, const char *const *paths,
                          const uni_json_options *options, uni_error *err)
{
    UNI__OPTIONS(uni_json_options, options, bad, err);
    static const char *const suffixes[] = { ".jsonl",     ".ndjson",  ".json",     ".jsonl.gz",
                                            ".jsonl.zst", ".json.gz", ".json.zst", NULL };
    uni_json_options o = *options;
    uni__files *files = NULL;
    uni_table *schema = NULL;
    char *head = NULL;
    const char *path = NULL;
    size_t size = 0;
    int64_t rows = 0;
    int status = 0;
    *out = NULL;
    UNI_TRY(uni__files_open(&files, num_paths, paths, suffixes, err));
    UNI_TRY_GOTO(uni__lines_head(files, HEAD_BYTES, &head, &size, &path, err), fail);
    if (begins_with_list(head, size) && files->count == 1) {
        status = read_list(out, files, &o, err);
        goto fail;
    }
    UNI_TRY_GOTO(uni__json_infer(&schema, &rows, path, head, size, &o, err), fail);
    free(head);
    return uni__lines_dataset(out, &json_lines, NULL, files, schema, o.block_bytes,
                              rows > 0 ? (int64_t)size / rows : 0, &o.bad, err);
fail:
    free(head);
    uni__files_free(files);
    return status;
}
