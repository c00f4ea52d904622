/*
 * data_dataset.c - unisono._unisono.Dataset: the dataset, its transforms, and its queries. Every
 * method returns a new Dataset; calls that may read release the GIL.
 */
#include "base/shared.h"
#include "data/shared.h"
#include "data.h"

#include <stdlib.h>
#include <string.h>

PyObject *door_dataset_take(door_state *state, uni_dataset *dataset)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->dataset_type, Py_tp_alloc);
    dataset_object *self = (dataset_object *)allocate(state->dataset_type, 0);
    if (!self) {
        uni_dataset_unref(dataset);
        return NULL;
    }
    self->dataset = dataset;
    uni__dataset_set_interrupt(dataset, door_check_interrupt);
    return (PyObject *)self;
}

static uni_dataset *of(PyObject *self)
{
    return ((dataset_object *)self)->dataset;
}

static void dataset_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    uni_dataset *dataset = of(self);
    Py_BEGIN_ALLOW_THREADS; /* Python functions in it are released, which takes the GIL again */
    uni_dataset_unref(dataset);
    Py_END_ALLOW_THREADS;
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Runs `call` (which sets `status`) without the GIL and returns `value` or raises. */
#define WITHOUT_GIL(call, value)                                                                   \
    do {                                                                                           \
        int status;                                                                                \
        Py_BEGIN_ALLOW_THREADS;                                                                    \
        status = (call);                                                                           \
        Py_END_ALLOW_THREADS;                                                                      \
        return status < 0 ? door_raise(door_state_of(self), &err) : (value);                       \
    } while (0)
#define NEW_DATASET(call) WITHOUT_GIL(call, door_dataset_take(door_state_of(self), out))

/* ---- columns ---- */

static PyObject *with_names(PyObject *self, PyObject *names,
                            int (*call)(uni_dataset **, uni_dataset *, const char *const *,
                                        uni_error *))
{
    const char **list = NULL;
    Py_ssize_t count;
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    int status;
    if (door_names(names, &list, &count) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = call(&out, of(self), list, &err);
    Py_END_ALLOW_THREADS;
    PyMem_Free(list);
    return status < 0 ? door_raise(door_state_of(self), &err)
                      : door_dataset_take(door_state_of(self), out);
}

static PyObject *dataset_select(PyObject *self, PyObject *names)
{
    return with_names(self, names, uni_dataset_select);
}

static PyObject *dataset_drop(PyObject *self, PyObject *names)
{
    return with_names(self, names, uni_dataset_drop);
}

static PyObject *dataset_rename(PyObject *self, PyObject *arguments)
{
    const char *from, *to;
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "ss", &from, &to))
        return NULL;
    NEW_DATASET(uni_dataset_rename(&out, of(self), from, to, &err));
}

static int dtype_of(const char *name)
{
    int dtype = uni__dtype_from_name(name);
    if (!dtype)
        door_raise_text(PyExc_TypeError, "there is no element type %s", name);
    return dtype;
}

/* cast(column or None, dtype) */
static PyObject *dataset_cast(PyObject *self, PyObject *arguments)
{
    const char *column, *dtype;
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    int number;
    if (!PyArg_ParseTuple(arguments, "zs", &column, &dtype) || !(number = dtype_of(dtype)))
        return NULL;
    NEW_DATASET(uni_dataset_cast(&out, of(self), column, (uni_dtype)number, &err));
}

/* concat_columns(names, new_name, dtype) */
static PyObject *dataset_concat_columns(PyObject *self, PyObject *arguments)
{
    PyObject *names;
    const char *new_name, *dtype, **list = NULL;
    Py_ssize_t count;
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    int number, status;
    if (!PyArg_ParseTuple(arguments, "Oss", &names, &new_name, &dtype) ||
        !(number = dtype_of(dtype)) || door_names(names, &list, &count) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = uni_dataset_concat_columns(&out, of(self), list, new_name, (uni_dtype)number, &err);
    Py_END_ALLOW_THREADS;
    PyMem_Free(list);
    return status < 0 ? door_raise(door_state_of(self), &err)
                      : door_dataset_take(door_state_of(self), out);
}

/* ---- rows ---- */

static PyObject *dataset_limit(PyObject *self, PyObject *count)
{
    long long n = PyLong_AsLongLong(count);
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    if (n == -1 && PyErr_Occurred())
        return NULL;
    NEW_DATASET(uni_dataset_limit(&out, of(self), n, &err));
}

static PyObject *dataset_skip(PyObject *self, PyObject *count)
{
    long long n = PyLong_AsLongLong(count);
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    if (n == -1 && PyErr_Occurred())
        return NULL;
    NEW_DATASET(uni_dataset_skip(&out, of(self), n, &err));
}

/* A list of `count` datasets; takes over their references. */
static PyObject *several(PyObject *self, uni_dataset **datasets, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *dataset = list ? door_dataset_take(door_state_of(self), datasets[i]) : NULL;
        if (!list)
            uni_dataset_unref(datasets[i]);
        else if (!dataset || PyList_SetItem(list, i, dataset) < 0)
            Py_CLEAR(list);
    }
    PyMem_Free(datasets);
    return list;
}

static PyObject *dataset_split_at_indices(PyObject *self, PyObject *indices)
{
    Py_ssize_t count = PySequence_Size(indices);
    if (count < 0)
        return NULL;
    uni_error err = { 0 };
    int64_t *numbers = PyMem_Calloc((size_t)count + 1, sizeof *numbers);
    uni_dataset **datasets = PyMem_Calloc((size_t)count + 1, sizeof *datasets);
    int status = -1;
    for (Py_ssize_t i = 0; numbers && i < count && !PyErr_Occurred(); i++) {
        PyObject *item = PySequence_GetItem(indices, i);
        numbers[i] = item ? PyLong_AsLongLong(item) : 0;
        Py_XDECREF(item);
    }
    if (!numbers || !datasets)
        PyErr_NoMemory();
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS;
        status = uni_dataset_split_at_indices(datasets, of(self), (int)count, numbers, &err);
        Py_END_ALLOW_THREADS;
        if (status < 0)
            door_raise(door_state_of(self), &err);
    }
    PyMem_Free(numbers);
    if (status >= 0)
        return several(self, datasets, count + 1);
    PyMem_Free(datasets);
    return NULL;
}

/* split(n, equal) */
static PyObject *dataset_split(PyObject *self, PyObject *arguments)
{
    int n, equal, status;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "ip", &n, &equal))
        return NULL;
    if (n < 1 || n > 1000000)
        return door_raise_text(PyExc_ValueError, "a dataset cannot be split into %d", n);
    uni_dataset **datasets = PyMem_Calloc((size_t)n, sizeof *datasets);
    if (!datasets)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    status = uni_dataset_split(datasets, of(self), n, equal != 0, &err);
    Py_END_ALLOW_THREADS;
    if (status >= 0)
        return several(self, datasets, n);
    PyMem_Free(datasets);
    return door_raise(door_state_of(self), &err);
}

/* train_test_split(test_size, shuffle, seed) */
static PyObject *dataset_train_test_split(PyObject *self, PyObject *arguments)
{
    double size;
    int shuffle, status;
    unsigned long long seed;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "dpK", &size, &shuffle, &seed))
        return NULL;
    uni_dataset **datasets = PyMem_Calloc(2, sizeof *datasets);
    if (!datasets)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    status = uni_dataset_train_test_split(&datasets[0], &datasets[1], of(self), size, shuffle != 0,
                                          seed, &err);
    Py_END_ALLOW_THREADS;
    if (status >= 0)
        return several(self, datasets, 2);
    PyMem_Free(datasets);
    return door_raise(door_state_of(self), &err);
}

/* union([others]) */
static PyObject *dataset_union(PyObject *self, PyObject *others)
{
    door_state *state = door_state_of(self);
    Py_ssize_t count = PyList_Size(others);
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    int status;
    if (count < 0)
        return NULL;
    uni_dataset **datasets = PyMem_Calloc((size_t)count + 1, sizeof *datasets);
    if (!datasets)
        return PyErr_NoMemory();
    datasets[0] = of(self);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *other = PyList_GetItem(others, i);
        if (!PyObject_TypeCheck(other, state->dataset_type)) {
            PyMem_Free(datasets);
            return door_raise_text(PyExc_TypeError, "union takes Datasets");
        }
        datasets[i + 1] = of(other);
    }
    Py_BEGIN_ALLOW_THREADS;
    status = uni_dataset_union(&out, (int)count + 1, datasets, &err);
    Py_END_ALLOW_THREADS;
    PyMem_Free(datasets);
    return status < 0 ? door_raise(state, &err) : door_dataset_take(state, out);
}

static PyObject *dataset_zip(PyObject *self, PyObject *other)
{
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    if (!PyObject_TypeCheck(other, door_state_of(self)->dataset_type))
        return door_raise_text(PyExc_TypeError, "zip takes a Dataset");
    NEW_DATASET(uni_dataset_zip(&out, of(self), of(other), &err));
}

static PyObject *dataset_cache(PyObject *self, PyObject *max_bytes)
{
    long long n = PyLong_AsLongLong(max_bytes);
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    if (n == -1 && PyErr_Occurred())
        return NULL;
    NEW_DATASET(uni_dataset_cache(&out, of(self), n, &err));
}

/* ---- order ---- */

/* shuffle(buffer, seed) */
static PyObject *dataset_shuffle(PyObject *self, PyObject *arguments)
{
    long long buffer;
    unsigned long long seed;
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "LK", &buffer, &seed))
        return NULL;
    NEW_DATASET(uni_dataset_shuffle(&out, of(self), buffer, seed, &err));
}

static PyObject *dataset_same_each_epoch(PyObject *self, PyObject *unused)
{
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    NEW_DATASET(uni_dataset_same_each_epoch(&out, of(self), &err));
}

#define ONE_NUMBER(name)                                                                           \
    static PyObject *dataset_##name(PyObject *self, PyObject *argument)                            \
    {                                                                                              \
        long long n = PyLong_AsLongLong(argument);                                                 \
        uni_dataset *out = NULL;                                                                   \
        uni_error err = { 0 };                                                                     \
        if (n == -1 && PyErr_Occurred())                                                           \
            return NULL;                                                                           \
        NEW_DATASET(uni_dataset_##name(&out, of(self), n, &err));                                  \
    }
ONE_NUMBER(window)
ONE_NUMBER(repartition)
ONE_NUMBER(repeat)
ONE_NUMBER(prefetch)

/* batch(size, drop_remainder) */
static PyObject *dataset_batch(PyObject *self, PyObject *arguments)
{
    long long size;
    int drop;
    uni_dataset *out = NULL;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "Lp", &size, &drop))
        return NULL;
    NEW_DATASET(uni_dataset_batch(&out, of(self), size, drop != 0, &err));
}

/* ---- queries ---- */

static PyObject *dataset_schema(PyObject *self, PyObject *unused)
{
    const uni_table *schema = NULL;
    uni_error err = { 0 };
    WITHOUT_GIL(uni_dataset_schema(&schema, of(self), &err),
                door_table_take(door_state_of(self), uni_table_ref((uni_table *)schema)));
}

static PyObject *dataset_count(PyObject *self, PyObject *unused)
{
    int64_t count = 0;
    uni_error err = { 0 };
    WITHOUT_GIL(uni_dataset_count(&count, of(self), &err), PyLong_FromLongLong(count));
}

static PyObject *dataset_take(PyObject *self, PyObject *argument)
{
    long long count = PyLong_AsLongLong(argument);
    uni_table *table = NULL;
    uni_error err = { 0 };
    if (count == -1 && PyErr_Occurred())
        return NULL;
    WITHOUT_GIL(uni_dataset_take(&table, of(self), count, &err),
                door_table_take(door_state_of(self), table));
}

/* Converts malloc'ed text. */
static PyObject *own_text(char *text)
{
    PyObject *object = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    free(text);
    return object;
}

static PyObject *dataset_show(PyObject *self, PyObject *argument)
{
    long long count = PyLong_AsLongLong(argument);
    char *text = NULL;
    uni_error err = { 0 };
    if (count == -1 && PyErr_Occurred())
        return NULL;
    WITHOUT_GIL(uni_dataset_show(&text, of(self), count, &err), own_text(text));
}

static PyObject *dataset_text(PyObject *self, PyObject *unused)
{
    char *text = NULL;
    uni_error err = { 0 };
    WITHOUT_GIL(uni__dataset_text(of(self), &text, &err), own_text(text));
}

static PyObject *dataset_order(PyObject *self, PyObject *unused)
{
    char *text = NULL;
    uni_error err = { 0 };
    WITHOUT_GIL(uni__dataset_order(&text, of(self), &err), own_text(text));
}

static PyObject *own_value(PyObject *self, uni_value *value)
{
    PyObject *object = door_value_to(door_state_of(self), value);
    uni_value_free(value);
    return object;
}

static PyObject *dataset_plan(PyObject *self, PyObject *shards)
{
    long count = PyLong_AsLong(shards);
    uni_value *plan = NULL;
    uni_error err = { 0 };
    if (count == -1 && PyErr_Occurred())
        return NULL;
    WITHOUT_GIL(uni_dataset_plan(&plan, of(self), (int)count, &err), own_value(self, plan));
}

static PyObject *dataset_shape(PyObject *self, PyObject *unused)
{
    uni_value *shape = NULL;
    uni_error err = { 0 };
    WITHOUT_GIL(uni__dataset_shape(of(self), &shape, &err), own_value(self, shape));
}

/* count_blocks(): the rows of each block, as a bytearray of int64 */
static PyObject *dataset_count_blocks(PyObject *self, PyObject *unused)
{
    int64_t blocks = uni__dataset_num_blocks(of(self));
    uni_error err = { 0 };
    int status;
    PyObject *room =
        PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)blocks * (Py_ssize_t)sizeof(int64_t));
    if (!room)
        return NULL;
    int64_t *rows = (int64_t *)PyByteArray_AsString(room);
    Py_BEGIN_ALLOW_THREADS;
    status = uni__dataset_count_blocks(of(self), 0, blocks, rows, &err);
    Py_END_ALLOW_THREADS;
    if (status == 0)
        return room;
    Py_DECREF(room);
    return door_raise(door_state_of(self), &err);
}

static PyObject *known_rows(PyObject *self, void *unused)
{
    return PyLong_FromLongLong(uni__dataset_known_rows(of(self)));
}

static PyObject *num_blocks(PyObject *self, void *unused)
{
    return PyLong_FromLongLong(uni__dataset_num_blocks(of(self)));
}

static PyObject *size_bytes(PyObject *self, void *unused)
{
    return PyLong_FromLongLong(uni__dataset_bytes(of(self)));
}

static PyGetSetDef getters[] = {
    { "known_rows", known_rows, NULL, NULL, NULL },
    { "num_blocks", num_blocks, NULL, NULL, NULL },
    { "nbytes", size_bytes, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef methods[] = {
    { "read", door_dataset_read, METH_VARARGS | METH_CLASS, NULL },
    { "from_python", door_dataset_from_python, METH_VARARGS | METH_CLASS, NULL },
    { "merge_states", door_merge_states, METH_O | METH_CLASS, NULL },
    { "map", door_dataset_map, METH_VARARGS, NULL },
    { "iterate", door_dataset_iterate, METH_VARARGS, NULL },
    { "select", dataset_select, METH_O, NULL },
    { "drop", dataset_drop, METH_O, NULL },
    { "rename", dataset_rename, METH_VARARGS, NULL },
    { "cast", dataset_cast, METH_VARARGS, NULL },
    { "concat_columns", dataset_concat_columns, METH_VARARGS, NULL },
    { "limit", dataset_limit, METH_O, NULL },
    { "skip", dataset_skip, METH_O, NULL },
    { "split_at_indices", dataset_split_at_indices, METH_O, NULL },
    { "split", dataset_split, METH_VARARGS, NULL },
    { "train_test_split", dataset_train_test_split, METH_VARARGS, NULL },
    { "union", dataset_union, METH_O, NULL },
    { "zip", dataset_zip, METH_O, NULL },
    { "cache", dataset_cache, METH_O, NULL },
    { "shuffle", dataset_shuffle, METH_VARARGS, NULL },
    { "same_each_epoch", dataset_same_each_epoch, METH_NOARGS, NULL },
    { "window", dataset_window, METH_O, NULL },
    { "repartition", dataset_repartition, METH_O, NULL },
    { "repeat", dataset_repeat, METH_O, NULL },
    { "prefetch", dataset_prefetch, METH_O, NULL },
    { "batch", dataset_batch, METH_VARARGS, NULL },
    { "schema", dataset_schema, METH_NOARGS, NULL },
    { "count", dataset_count, METH_NOARGS, NULL },
    { "take", dataset_take, METH_O, NULL },
    { "show", dataset_show, METH_O, NULL },
    { "text", dataset_text, METH_NOARGS, NULL },
    { "order", dataset_order, METH_NOARGS, NULL },
    { "plan", dataset_plan, METH_O, NULL },
    { "shape", dataset_shape, METH_NOARGS, NULL },
    { "count_blocks", dataset_count_blocks, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_doc, "A recipe for rows; made by Dataset.read(kind, paths, options)." },
    { Py_tp_dealloc, dataset_dealloc },
    { Py_tp_getset, getters },
    { Py_tp_methods, methods },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._unisono.Dataset", sizeof(dataset_object), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots };

int door_dataset_init(PyObject *module, door_state *state)
{
    state->dataset_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return state->dataset_type ? PyModule_AddType(module, state->dataset_type) : -1;
}
