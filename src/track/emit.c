/*
 * emit.c - shared by the sinks: values as JSON text like Python's json, flat names of nested
 * metrics, paths.
 *
 * Thread: any.
 */
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/file.h"
#include "track/sink.h"

int uni__sink_path(char **out, const char *dir, const char *filename, const char *run_dir,
                   uni_error *err)
{
    *out = NULL;
    if (strchr(filename, '/') != NULL || filename[0] == 0)
        return uni_error_set(err, UNI_EINVAL, "\"%s\" is not a file name: give the folder as dir",
                             filename);
    const char *folder = dir != NULL ? dir : run_dir;
    UNI_TRY(uni__make_dirs(folder, 0700, err));
    *out = uni__path_join(folder, filename, NULL);
    return *out == NULL ? uni_error_set(err, UNI_ENOMEM, "no memory for the path of %s", filename)
                        : 0;
}

char *uni__sink_copy(const char *text, bool *failed)
{
    char *copy = text == NULL ? NULL : strdup(text);
    if (text != NULL && copy == NULL)
        *failed = true;
    return copy;
}

/* ---- JSON ---- */

static void new_line(uni__text *out, int indent, int depth)
{
    if (indent == 0)
        return;
    uni__text_add(out, "\n", 1);
    for (int i = 0; i < indent * depth; i++)
        uni__text_add(out, " ", 1);
}

static void emit(uni__text *out, const uni_value *value, int indent, int depth);

static void emit_dict(uni__text *out, const uni_value *dict, int indent, int depth)
{
    size_t count = uni_dict_size(dict);
    uni__text_add(out, "{", 1);
    for (size_t i = 0; i < count; i++) {
        const char *key = uni_dict_key_at(dict, i);
        if (i > 0)
            uni__text_add(out, indent > 0 ? "," : ", ", indent > 0 ? 1 : 2);
        new_line(out, indent, depth + 1);
        uni__text_add_json_string(out, key, strlen(key));
        uni__text_add(out, ": ", 2);
        emit(out, uni_dict_value_at(dict, i), indent, depth + 1);
    }
    if (count > 0)
        new_line(out, indent, depth);
    uni__text_add(out, "}", 1);
}

/* Lists, bytes and arrays are all written as a list. */
static void emit_list(uni__text *out, const uni_value *value, int indent, int depth)
{
    uni_array *array = uni_value_as_array(value);
    size_t size = 0;
    const uint8_t *bytes =
        uni_value_type_of(value) == UNI_TYPE_BYTES ? uni_value_as_bytes(value, &size) : NULL;
    size_t count = array != NULL   ? uni_array_count(array)
                   : bytes != NULL ? size
                                   : uni_list_size(value);
    uni__text_add(out, "[", 1);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            uni__text_add(out, indent > 0 ? "," : ", ", indent > 0 ? 1 : 2);
        new_line(out, indent, depth + 1);
        if (array != NULL)
            uni__text_add_double(out,
                                 uni__element(uni_array_data(array), uni_array_dtype(array), i));
        else if (bytes != NULL)
            uni__text_add_int(out, bytes[i]);
        else
            emit(out, uni_list_get(value, i), indent, depth + 1);
    }
    if (count > 0)
        new_line(out, indent, depth);
    uni__text_add(out, "]", 1);
}

static void emit(uni__text *out, const uni_value *value, int indent, int depth)
{
    size_t size = 0;
    switch (uni_value_type_of(value)) {
    case UNI_TYPE_NULL:
        uni__text_add(out, "null", 4);
        break;
    case UNI_TYPE_BOOL:
        uni__text_add_string(out, uni_value_as_bool(value, false) ? "true" : "false");
        break;
    case UNI_TYPE_INT:
        uni__text_add_int(out, uni_value_as_int(value, 0));
        break;
    case UNI_TYPE_FLOAT:
        uni__text_add_double(out, uni_value_as_float(value, 0));
        break;
    case UNI_TYPE_STRING: {
        const char *text = uni_value_as_bytes(value, &size);
        uni__text_add_json_string(out, text, size);
        break;
    }
    case UNI_TYPE_DICT:
        emit_dict(out, value, indent, depth);
        break;
    case UNI_TYPE_LIST:
    case UNI_TYPE_BYTES:
    case UNI_TYPE_ARRAY:
        emit_list(out, value, indent, depth);
        break;
    }
}

void uni__emit_json(uni__text *out, const uni_value *value, int indent)
{
    emit(out, value, indent, 0);
}

/* ---- flat names ---- */

int uni__flatten(const uni_value *dict, char separator, uni__text *scratch, uni__flat_visit visit,
                 void *context, uni_error *err)
{
    size_t before = scratch->size;
    for (size_t i = 0; i < uni_dict_size(dict); i++) {
        const char *key = uni_dict_key_at(dict, i);
        const uni_value *value = uni_dict_value_at(dict, i);
        bool nested = uni_value_type_of(value) == UNI_TYPE_DICT;
        if (before == 0 && !nested) {
            UNI_TRY(visit(context, key, value, err)); /* the common case copies nothing */
            continue;
        }
        if (before > 0)
            uni__text_add(scratch, &separator, 1);
        uni__text_add_string(scratch, key);
        int status = scratch->failed
                         ? uni_error_set(err, UNI_ENOMEM, "no memory for the name of a metric")
                     : nested ? uni__flatten(value, separator, scratch, visit, context, err)
                              : visit(context, scratch->data, value, err);
        scratch->size = before;
        if (scratch->data != NULL)
            scratch->data[before] = 0;
        UNI_TRY(status);
    }
    return 0;
}

bool uni__is_autofilled(const char *name)
{
    static const char *const names[] = { "_timestamp", "_time_this_iter_s", "_training_iteration",
                                         "_date",      "_hostname",         "_node_ip",
                                         "_pid",       "_time_total_s" };
    if (name[0] != '_')
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

const uni_value *uni__reports_rank(const uni_reports *reports, int rank)
{
    return rank >= 0 && rank < reports->world_size ? reports->by_rank[rank] : NULL;
}
