/*
 * json_infer.c - infers the columns of JSON lines (json_infer.h). Records what every key held in
 * the sampled rows, then decides: numbers and bools by type, lists of numbers by shape; a column
 * that does not fit one type becomes JSON text.
 */
#include "data/sources/json_infer.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "data/sources/build.h"
#include "data/sources/json_scan.h"

#define MAX_KEYS 100000

struct key {
    char *name;
    size_t length;
    bool boolean, integer, real, string, other; /* what was seen */
    /* Lists were seen: of different shapes, with a float, not numeric. */
    bool list, varying, list_real, list_bad;
    int ndim;
    int64_t shape[UNI_MAX_DIMS - 1];
};

struct keys {
    struct key *items;
    size_t count, capacity, next; /* next: expected position of the following key */
    uni__name_index index;
    uni__json_names names;
};

static struct key *find_key(struct keys *keys, const char *name, size_t length)
{
    struct key *likely = keys->next < keys->count ? &keys->items[keys->next] : NULL;
    if (likely != NULL && likely->length == length && memcmp(likely->name, name, length) == 0) {
        keys->next++;
        return likely;
    }
    int found = keys->count == 0
                    ? -1
                    : uni__name_index_find_n(&keys->index, (const char *const *)&keys->items->name,
                                             sizeof *keys->items, keys->count, name, length);
    if (found >= 0) {
        keys->next = (size_t)found + 1;
        return &keys->items[found];
    }
    struct key *items = uni__grown(keys->items, keys->count, &keys->capacity, sizeof *items);
    if (!items)
        return NULL;
    keys->items = items;
    struct key *key = &keys->items[keys->count];
    *key = (struct key){ .name = strndup(name, length), .length = length };
    if (key->name == NULL)
        return NULL;
    keys->next = ++keys->count;
    if (uni__name_index_grow(&keys->index, (const char *const *)&keys->items->name,
                             sizeof *keys->items, keys->count) < 0)
        return NULL;
    return key;
}

static void free_keys(struct keys *keys)
{
    for (size_t i = 0; i < keys->count; i++)
        free(keys->items[i].name);
    free(keys->items);
    free(keys->names.buffer);
    uni__name_index_free(&keys->index);
}

/* Determines the shape of a list that was already checked to be valid JSON. *ndim is -1 if it is
 * not a regular array of numbers. */
static void list_shape(uni__json_scan *scan, int level, int *ndim, int64_t *shape, bool *real)
{
    int64_t count = 0;
    uni__json_token token;
    uni__json_take(scan, '[');
    for (bool first = true; uni__json_item(scan, first) > 0; first = false, count++) {
        uni__json_kind kind = uni__json_peek(scan);
        if (kind == UNI__JSON_LIST && level + 1 < UNI_MAX_DIMS - 1 &&
            (*ndim == 0 || *ndim > level + 1)) {
            list_shape(scan, level + 1, ndim, shape, real);
            continue;
        }
        kind = uni__json_next(scan, &token);
        if ((kind != UNI__JSON_INT && kind != UNI__JSON_FLOAT) ||
            (*ndim != 0 && *ndim != level + 1))
            *ndim = -1;
        else
            *ndim = level + 1;
        *real |= kind == UNI__JSON_FLOAT;
    }
    if (*ndim == 0) /* an empty list: a vector of length 0 */
        *ndim = level + 1;
    if (shape[level] < 0)
        shape[level] = count;
    else if (shape[level] != count)
        *ndim = -1;
}

static void note_list(struct key *key, const uni__json_token *token)
{
    uni__json_scan scan = { .at = token->text, .end = token->text + token->size };
    int64_t shape[UNI_MAX_DIMS - 1];
    int ndim = 0;
    bool real = false;
    for (int i = 0; i < UNI_MAX_DIMS - 1; i++)
        shape[i] = -1;
    list_shape(&scan, 0, &ndim, shape, &real);
    key->list_real |= real;
    if (ndim < 0) {
        key->list_bad = true;
    } else if (!key->list) {
        key->ndim = ndim;
        memcpy(key->shape, shape, sizeof shape);
    } else if (ndim != key->ndim) {
        key->list_bad = true;
    } else if (memcmp(key->shape, shape, (size_t)ndim * sizeof shape[0]) != 0) {
        key->varying = true;
    }
    key->list = true;
}

static void note(struct key *key, uni__json_kind kind, const uni__json_token *token)
{
    switch (kind) {
    case UNI__JSON_BOOL:
        key->boolean = true;
        break;
    case UNI__JSON_INT:
        key->integer = true;
        break;
    case UNI__JSON_FLOAT:
        key->real = true;
        break;
    case UNI__JSON_STRING:
        key->string = true;
        break;
    case UNI__JSON_LIST:
        note_list(key, token);
        break;
    case UNI__JSON_OBJECT:
        key->other = true;
        break;
    default:
        break;
    }
}

/* Returns 1 for a row, 0 for a bad line, or an error (out of memory). */
static int note_line(struct keys *keys, uni__json_scan *scan, uni_error *err)
{
    uni__json_token name, value;
    int more = -1;
    if (!uni__json_take(scan, '{')) {
        uni__json_fail(scan, "a line that is not an object ({...})");
        return 0;
    }
    for (bool first = true; (more = uni__json_member(scan, first, &name)) > 0; first = false) {
        bool named = uni__json_name(scan, &keys->names, &name);
        uni__json_kind kind = named ? uni__json_next(scan, &value) : UNI__JSON_BAD;
        if (kind == UNI__JSON_BAD && (named || scan->problem != NULL))
            return 0;
        struct key *key = named ? find_key(keys, name.text, name.size) : NULL;
        if (key == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the keys of JSON lines");
        if (keys->count > MAX_KEYS)
            return uni_error_set(err, UNI_ELIMIT,
                                 "JSON lines with more than %d different keys: name the columns",
                                 MAX_KEYS);
        note(key, kind, &value);
    }
    uni__json_space(scan);
    if (more == 0 && scan->at < scan->end)
        uni__json_fail(scan, "something behind the end of the object");
    return scan->problem == NULL ? 1 : 0;
}

static uni_field field_of(const struct key *key)
{
    uni_field field = { .name = key->name, .kind = UNI_FIELD_STRING, .dtype = UNI_U8 };
    bool number = key->integer || key->real;
    int kinds = key->boolean + number + key->string + key->other + key->list;
    if (kinds != 1 || key->other || key->string || key->list_bad)
        return field;
    field.kind = UNI_FIELD_NUMBER;
    field.dtype = key->boolean ? UNI_B8 : key->real || key->list_real ? UNI_F64 : UNI_I64;
    if (!key->list)
        return field;
    bool empty = false; /* [[], []] is not a tensor */
    for (int i = 0; i < key->ndim; i++)
        empty |= key->shape[i] == 0;
    if ((key->varying || empty) && key->ndim > 1) {
        field.kind = UNI_FIELD_STRING;
        field.dtype = UNI_U8;
    } else if (key->varying || key->shape[0] == 0) {
        field.kind = UNI_FIELD_LIST;
    } else {
        field.ndim = key->ndim;
        memcpy(field.shape, key->shape, (size_t)key->ndim * sizeof key->shape[0]);
    }
    return field;
}

static const uni_field *given(const uni_json_options *options, const char *name)
{
    for (int i = 0; i < options->num_types; i++)
        if (strcmp(options->types[i].name, name) == 0)
            return &options->types[i];
    return NULL;
}

static int place_of(const struct keys *keys, const char *name)
{
    return keys->count == 0
               ? -1
               : uni__name_index_find(&keys->index, (const char *const *)&keys->items->name,
                                      sizeof *keys->items, keys->count, name);
}

/* Chooses the requested names, or all keys and then given types that no row had. */
static int choose(struct keys *keys, const uni_json_options *options, uni_table **schema,
                  const char *path, uni_error *err)
{
    size_t chosen = 0, room = keys->count + (size_t)options->num_types + 1;
    while (options->columns != NULL && options->columns[chosen] != NULL)
        chosen++;
    room += chosen;
    uni_field *fields = calloc(room, sizeof *fields);
    if (fields == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the columns of %s", path);
    int count = 0, status = 0;
    for (size_t i = 0; options->columns != NULL && i < chosen; i++) {
        const uni_field *type = given(options, options->columns[i]);
        int k = place_of(keys, options->columns[i]);
        if (type == NULL && k < 0) {
            status = uni_error_set(err, UNI_ENOTFOUND,
                                   "no column \"%s\" in the first rows of %s; give its type when "
                                   "it comes later",
                                   options->columns[i], path);
            goto done;
        }
        fields[count++] = type != NULL ? *type : field_of(&keys->items[k]);
    }
    for (size_t k = 0; options->columns == NULL && k < keys->count; k++) {
        const uni_field *type = given(options, keys->items[k].name);
        fields[count++] = type != NULL ? *type : field_of(&keys->items[k]);
    }
    for (int i = 0; options->columns == NULL && i < options->num_types; i++) {
        if (place_of(keys, options->types[i].name) < 0)
            fields[count++] = options->types[i];
    }
    status = uni__build_schema(schema, fields, count, err);
done:
    free(fields);
    return status;
}

int uni__json_infer(uni_table **schema, int64_t *rows, const char *path, const char *text,
                    size_t size, const uni_json_options *options, uni_error *err)
{
    int64_t limit = options->infer_rows > 0 ? options->infer_rows : 1000;
    const char *at = text, *end = text + size;
    struct keys keys = { 0 };
    int status = 0;
    *rows = 0;
    for (int64_t line = 1; at < end && *rows < limit; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        uni__json_scan scan = { .at = at, .end = newline != NULL ? newline : end };
        const char *start = at;
        at = scan.end + 1;
        uni__json_space(&scan);
        if (scan.at == scan.end)
            continue;
        keys.next = 0;
        status = note_line(&keys, &scan, err);
        if (status < 0)
            goto done;
        if (status == 0 && !options->bad.skip) {
            status = uni_error_set(err, UNI_EFORMAT, "%s:%lld:%lld: %s", path, (long long)line,
                                   (long long)(scan.at - start) + 1, scan.problem);
            goto done;
        }
        *rows += status;
    }
    status = choose(&keys, options, schema, path, err);
done:
    free_keys(&keys);
    return status;
}
