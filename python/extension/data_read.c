/*
 * data_read.c - Dataset.read(kind, paths, options): the library's sources. options is a dict with
 * the field names of uni_csv_options and the like; missing ones have their default. Opening files
 * releases the GIL.
 */
#include "base/shared.h"
#include "data/shared.h"
#include "data.h"

#include <string.h>

/* A parsed options dict; the strings belong to the dict. */
typedef struct reading {
    PyObject *options;
    door_state *state;
    int num_paths;
    const char **paths; /* their bytes are kept in ... */
    PyObject *path_bytes;
    const char **columns, **column_names, **null_values, **names;
    uni_field *types;
    int num_types;
    uni_bad_data bad;
    bool failed;
} reading;

static PyObject *option(reading *r, const char *key)
{
    PyObject *value = PyDict_GetItemString(r->options, key);
    return value == Py_None ? NULL : value;
}

static long long number(reading *r, const char *key)
{
    PyObject *value = option(r, key);
    long long out = value ? PyLong_AsLongLong(value) : 0;
    r->failed |= PyErr_Occurred() != NULL;
    return out;
}

static bool truth(reading *r, const char *key)
{
    PyObject *value = option(r, key);
    int out = value ? PyObject_IsTrue(value) : 0;
    r->failed |= out < 0;
    return out > 0;
}

static const char *text(reading *r, const char *key)
{
    PyObject *value = option(r, key);
    const char *out = value ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
    r->failed |= value && !out;
    return out;
}

static const char **names(reading *r, const char *key)
{
    PyObject *value = option(r, key);
    const char **out = NULL;
    Py_ssize_t count;
    r->failed |= value && door_names(value, &out, &count) < 0;
    return out;
}

static uni_dtype dtype(reading *r, const char *key)
{
    const char *name = text(r, key);
    int out = name ? uni__dtype_from_name(name) : 0;
    if (name && !out) {
        door_raise_text(PyExc_TypeError, "there is no element type %s", name);
        r->failed = true;
    }
    return (uni_dtype)out;
}

/* (name, kind, dtype, shape) as in Table.schema. */
static bool one_type(PyObject *tuple, uni_field *field)
{
    static const char *const kinds[] = { "", "number", "string", "binary", "list" };
    const char *name, *kind, *element;
    PyObject *shape;
    if (!PyArg_ParseTuple(tuple, "sssO!", &name, &kind, &element, &PyTuple_Type, &shape))
        return false;
    *field = (uni_field){ .name = name, .dtype = (uni_dtype)uni__dtype_from_name(element) };
    for (int i = 1; i <= UNI_FIELD_LIST; i++)
        if (strcmp(kinds[i], kind) == 0)
            field->kind = (uni_field_kind)i;
    field->ndim = (int)PyTuple_Size(shape);
    if (!field->kind || !field->dtype || field->ndim >= UNI_MAX_DIMS) {
        door_raise_text(PyExc_TypeError, "column %s cannot be of type %s %s", name, kind, element);
        return false;
    }
    for (int i = 0; i < field->ndim; i++)
        field->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    return !PyErr_Occurred();
}

static void read_types(reading *r)
{
    PyObject *list = option(r, "types");
    Py_ssize_t count = list ? PyList_Size(list) : 0;
    if (count <= 0)
        return;
    r->types = PyMem_Calloc((size_t)count, sizeof *r->types);
    r->failed |= !r->types;
    for (Py_ssize_t i = 0; r->types && i < count && !r->failed; i++)
        r->failed |= !one_type(PyList_GetItem(list, i), &r->types[i]);
    r->num_types = (int)count;
}

/* Paths in the file system's encoding, which need not be UTF-8. */
static bool take_paths(reading *r, PyObject *paths)
{
    Py_ssize_t count = PySequence_Size(paths);
    r->path_bytes = count < 0 ? NULL : PyList_New(count);
    r->paths = r->path_bytes ? PyMem_Calloc((size_t)count + 1, sizeof *r->paths) : NULL;
    for (Py_ssize_t i = 0; r->paths && i < count; i++) {
        PyObject *item = PySequence_GetItem(paths, i);
        PyObject *bytes = item ? PyUnicode_EncodeFSDefault(item) : NULL;
        Py_XDECREF(item);
        if (!bytes || PyList_SetItem(r->path_bytes, i, bytes) < 0)
            return false;
        r->paths[i] = PyBytes_AsString(bytes);
        if (strlen(r->paths[i]) != (size_t)PyBytes_Size(bytes)) {
            PyErr_SetString(PyExc_ValueError, "a path cannot have a zero character");
            return false;
        }
    }
    r->num_paths = (int)count;
    if (!r->paths && !PyErr_Occurred())
        PyErr_NoMemory();
    return r->paths != NULL;
}

static bool begin(reading *r, PyObject *paths)
{
    r->failed = !take_paths(r, paths);
    r->columns = names(r, "columns");
    r->column_names = names(r, "column_names");
    r->null_values = names(r, "null_values");
    r->names = names(r, "names");
    r->bad =
        (uni_bad_data){ .skip = truth(r, "skip_bad"), .max_skipped = number(r, "max_skipped") };
    if (!r->failed)
        read_types(r);
    return !r->failed;
}

static void end(reading *r)
{
    PyMem_Free(r->paths);
    Py_XDECREF(r->path_bytes);
    PyMem_Free(r->columns);
    PyMem_Free(r->column_names);
    PyMem_Free(r->null_values);
    PyMem_Free(r->names);
    PyMem_Free(r->types);
}

#define OPEN(call)                                                                                 \
    do {                                                                                           \
        if (r->failed)                                                                             \
            return -1;                                                                             \
        int status_;                                                                               \
        Py_BEGIN_ALLOW_THREADS;                                                                    \
        status_ = (call);                                                                          \
        Py_END_ALLOW_THREADS;                                                                      \
        return status_;                                                                            \
    } while (0)

/* Options that are given as words in every front end. */
static void words(reading *r, uni_csv_options *o)
{
    static const char *const names_[] = { "delimiter",  "quote",     "encoding",
                                          "short_rows", "long_rows", "duplicate_names" };
    for (size_t i = 0; i < sizeof names_ / sizeof names_[0] && !r->failed; i++) {
        const char *word = text(r, names_[i]);
        uni_error err = { 0 };
        if (word && uni__csv_options_set(o, names_[i], word, &err) < 0) {
            door_raise_text(PyExc_ValueError, "%s", err.message);
            r->failed = true;
        }
    }
}

static int read_csv(reading *r, uni_dataset **out, uni_error *err)
{
    uni_csv_options o = { .no_quotes = truth(r, "no_quotes"),
                          .default_nulls = truth(r, "default_nulls"),
                          .no_header = truth(r, "no_header"),
                          .column_names = r->column_names,
                          .columns = r->columns,
                          .types = r->types,
                          .num_types = r->num_types,
                          .float_dtype = dtype(r, "float_dtype"),
                          .null_values = r->null_values,
                          .block_bytes = number(r, "block_bytes"),
                          .infer_rows = number(r, "infer_rows"),
                          .bad = r->bad };
    words(r, &o);
    OPEN(uni_dataset_read_csv(out, r->num_paths, r->paths, &o, err));
}

static int read_json(reading *r, uni_dataset **out, uni_error *err)
{
    uni_json_options o = { .columns = r->columns,
                           .types = r->types,
                           .num_types = r->num_types,
                           .infer_rows = number(r, "infer_rows"),
                           .block_bytes = number(r, "block_bytes"),
                           .bad = r->bad };
    OPEN(uni_dataset_read_json(out, r->num_paths, r->paths, &o, err));
}

static int read_text(reading *r, uni_dataset **out, uni_error *err)
{
    uni_text_lines_options o = { .column = text(r, "column"),
                                 .keep_empty = truth(r, "keep_empty"),
                                 .block_bytes = number(r, "block_bytes"),
                                 .bad = r->bad };
    OPEN(uni_dataset_read_text(out, r->num_paths, r->paths, &o, err));
}

static int read_tfrecords(reading *r, uni_dataset **out, uni_error *err)
{
    uni_tfrecord_options o = { .raw = truth(r, "raw"),
                               .columns = r->columns,
                               .types = r->types,
                               .num_types = r->num_types,
                               .infer_rows = number(r, "infer_rows"),
                               .block_bytes = number(r, "block_bytes"),
                               .bad = r->bad };
    OPEN(uni_dataset_read_tfrecords(out, r->num_paths, r->paths, &o, err));
}

static int read_images(reading *r, uni_dataset **out, uni_error *err)
{
    uni_image_options o = { .height = (int)number(r, "height"),
                            .width = (int)number(r, "width"),
                            .channels = (int)number(r, "channels"),
                            .include_paths = truth(r, "include_paths"),
                            .labels = truth(r, "labels"),
                            .rescale = truth(r, "rescale"),
                            .bad = r->bad };
    OPEN(uni_dataset_read_images(out, r->num_paths, r->paths, &o, err));
}

static int read_idx(reading *r, uni_dataset **out, uni_error *err)
{
    int count = 0;
    while (r->names && r->names[count])
        count++;
    if (count != r->num_paths) {
        PyErr_SetString(PyExc_ValueError, "read_idx needs a name for each file");
        r->failed = true;
    }
    OPEN(uni_dataset_read_idx(out, count, r->names, r->paths, err));
}

static int read_binary(reading *r, uni_dataset **out, uni_error *err)
{
    uni_binary_options o = { .include_paths = truth(r, "include_paths") };
    OPEN(uni_dataset_read_binary(out, r->num_paths, r->paths, &o, err));
}

static int read_sqlite(reading *r, uni_dataset **out, uni_error *err)
{
    const char *table = text(r, "table");
    uni_sqlite_options o = { .columns = r->columns,
                             .infer_rows = number(r, "infer_rows"),
                             .key = text(r, "key"),
                             .num_blocks = number(r, "num_blocks"),
                             .bad = r->bad };
    if (r->num_paths != 1 || !table) {
        PyErr_SetString(PyExc_ValueError, "read_sqlite needs one file and a table or a query");
        r->failed = true;
    }
    OPEN(uni_dataset_read_sqlite(out, r->paths[0], table, &o, err));
}

static int read_numpy(reading *r, uni_dataset **out, uni_error *err)
{
    uni_numpy_options o = { .column = text(r, "column") };
    OPEN(uni_dataset_read_numpy(out, r->num_paths, r->paths, &o, err));
}

static int read_range(reading *r, uni_dataset **out, uni_error *err)
{
    long long n = number(r, "n");
    OPEN(uni_dataset_range(out, n, err));
}

static int read_table(reading *r, uni_dataset **out, uni_error *err)
{
    PyObject *object = option(r, "table");
    uni_table *table = object ? door_table_of(r->state, object) : NULL;
    r->failed |= !table;
    OPEN(uni_dataset_from_table(out, table, err));
}

static const struct kind {
    const char *name;
    int (*read)(reading *r, uni_dataset **out, uni_error *err);
} kinds[] = {
    { "csv", read_csv },       { "json", read_json },
    { "text", read_text },     { "tfrecords", read_tfrecords },
    { "images", read_images }, { "idx", read_idx },
    { "binary", read_binary }, { "sqlite", read_sqlite },
    { "numpy", read_numpy },   { "range", read_range },
    { "table", read_table },
};

PyObject *door_dataset_read(PyObject *class_, PyObject *arguments)
{
    reading r = { .state = PyType_GetModuleState((PyTypeObject *)class_) };
    const char *name;
    PyObject *paths;
    uni_error err = { 0 };
    uni_dataset *out = NULL;
    int status = -1;
    if (!PyArg_ParseTuple(arguments, "sOO!", &name, &paths, &PyDict_Type, &r.options))
        return NULL;
    const struct kind *kind = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0)
            kind = &kinds[i];
    if (!kind)
        return door_raise_text(PyExc_ValueError, "there is no source %s", name);
    if (begin(&r, paths))
        status = kind->read(&r, &out, &err);
    end(&r);
    if (status < 0)
        return PyErr_Occurred() ? NULL : door_raise(r.state, &err);
    return door_dataset_take(r.state, out);
}
