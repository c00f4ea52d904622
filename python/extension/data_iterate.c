/*
 * data_iterate.c - unisono._unisono.DataIterator: batches of a dataset. next waits without the GIL.
 * An iterator belongs to one thread at a time; a call from a second one gets an error.
 */
#include "data/shared.h"
#include "data.h"

typedef struct data_iterator {
    PyObject_HEAD uni_dataset_iterator *it;
    PyObject *dataset; /* keeps its functions alive */
    bool busy;
} data_iterator;

static long long number(PyObject *options, const char *key)
{
    PyObject *value = PyDict_GetItemString(options, key);
    return value && value != Py_None ? PyLong_AsLongLong(value) : 0;
}

/* The result of count_blocks for this dataset; NULL without an exception if not given. */
static const int64_t *counted_blocks(PyObject *self, PyObject *options)
{
    PyObject *value = PyDict_GetItemString(options, "block_rows");
    int64_t blocks = uni__dataset_num_blocks(((dataset_object *)self)->dataset);
    if (!value || value == Py_None)
        return NULL;
    if (!PyByteArray_Check(value) ||
        PyByteArray_Size(value) != (Py_ssize_t)blocks * (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "the blocks of this dataset are not those that were "
                                          "counted: its files have changed");
        return NULL;
    }
    return (const int64_t *)PyByteArray_AsString(value);
}

/* iterate({"batch_size": ..., "state": ...}): the fields of uni_data_options. */
PyObject *door_dataset_iterate(PyObject *self, PyObject *arguments)
{
    door_state *state = door_state_of(self);
    PyObject *given, *resume;
    uni_error err = { 0 };
    uni_dataset_iterator *it = NULL;
    uni_value *value = NULL;
    if (!PyArg_ParseTuple(arguments, "O!", &PyDict_Type, &given))
        return NULL;
    uni_data_options options = { .batch_size = number(given, "batch_size"),
                                 .drop_remainder = number(given, "drop_remainder") != 0,
                                 .shard = (int)number(given, "shard"),
                                 .num_shards = (int)number(given, "num_shards"),
                                 .equal = number(given, "equal") != 0,
                                 .no_empty = number(given, "no_empty") != 0,
                                 .block_rows = counted_blocks(self, given),
                                 .budget = number(given, "budget"),
                                 .threads = (int)number(given, "threads"),
                                 .prefetch = number(given, "prefetch"),
                                 .epochs = number(given, "epochs"),
                                 .first_epoch = (uint64_t)number(given, "first_epoch") };
    if (PyErr_Occurred())
        return NULL;
    resume = PyDict_GetItemString(given, "state");
    if (resume && resume != Py_None && !(value = door_value_from(state, resume, NULL)))
        return NULL;
    options.state = value;
    int status;
    Py_BEGIN_ALLOW_THREADS;
    status = uni_dataset_iterate(&it, ((dataset_object *)self)->dataset, &options, &err);
    Py_END_ALLOW_THREADS;
    uni_value_free(value);
    if (status < 0)
        return door_raise(state, &err);
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->data_iterator_type, Py_tp_alloc);
    data_iterator *object = (data_iterator *)allocate(state->data_iterator_type, 0);
    if (!object) {
        uni_dataset_iterator_free(it);
        return NULL;
    }
    object->it = it;
    object->dataset = Py_NewRef(self);
    return (PyObject *)object;
}

PyObject *door_merge_states(PyObject *class_, PyObject *states)
{
    door_state *state = PyType_GetModuleState((PyTypeObject *)class_);
    uni_error err = { 0 };
    uni_value *out = NULL, *in = door_value_from(state, states, NULL);
    if (!in)
        return NULL;
    int status = uni_dataset_merge_states(&out, in, &err);
    uni_value_free(in);
    if (status < 0)
        return door_raise(state, &err);
    PyObject *object = door_value_to(state, out);
    uni_value_free(out);
    return object;
}

static uni_dataset_iterator *enter(data_iterator *self)
{
    if (self->busy || !self->it) {
        PyErr_SetString(PyExc_RuntimeError, self->busy ? "this iterator is in use by another thread"
                                                       : "this iterator was closed");
        return NULL;
    }
    return self->it;
}

/* Between these the GIL is released; `busy` keeps other threads out of the iterator. */
#define BEGIN_UNLOCKED(iterator)                                                                   \
    (iterator)->busy = true;                                                                       \
    Py_BEGIN_ALLOW_THREADS
#define END_UNLOCKED(iterator)                                                                     \
    Py_END_ALLOW_THREADS;                                                                          \
    (iterator)->busy = false

typedef int (*next_function)(uni_table **out, uni_dataset_iterator *it, uni_error *err);

static PyObject *step(PyObject *object, next_function next)
{
    data_iterator *self = (data_iterator *)object;
    uni_dataset_iterator *it = enter(self);
    uni_table *table = NULL;
    uni_error err = { 0 };
    int status;
    if (!it)
        return NULL;
    BEGIN_UNLOCKED(self);
    status = next(&table, it, &err);
    END_UNLOCKED(self);
    if (status < 0)
        return door_raise(door_state_of(object), &err);
    if (status == 0)
        Py_RETURN_NONE;
    return door_table_take(door_state_of(object), table);
}

static PyObject *iterator_next(PyObject *self, PyObject *unused)
{
    return step(self, uni_dataset_iterator_next);
}

static PyObject *iterator_next_in_epoch(PyObject *self, PyObject *unused)
{
    return step(self, uni_dataset_iterator_next_in_epoch);
}

/* concat([table, ...]): concatenates in the iterator's memory, aligned. */
static PyObject *iterator_concat(PyObject *object, PyObject *list)
{
    data_iterator *self = (data_iterator *)object;
    door_state *state = door_state_of(object);
    uni_dataset_iterator *it = enter(self);
    int count = 0, status;
    uni_table *out = NULL, **tables = it ? door_tables_of(state, list, &count) : NULL;
    uni_error err = { 0 };
    if (!tables)
        return NULL;
    BEGIN_UNLOCKED(self); /* it may be megabytes */
    status = uni__dataset_iterator_concat(it, &out, tables, count, &err);
    END_UNLOCKED(self);
    PyMem_Free(tables);
    return status < 0 ? door_raise(state, &err) : door_table_take(state, out);
}

static PyObject *own_value(PyObject *self, int status, uni_value *value, const uni_error *err)
{
    if (status < 0)
        return door_raise(door_state_of(self), err);
    PyObject *object = door_value_to(door_state_of(self), value);
    uni_value_free(value);
    return object;
}

static PyObject *iterator_state(PyObject *self, PyObject *unused)
{
    uni_dataset_iterator *it = enter((data_iterator *)self);
    uni_value *value = NULL;
    uni_error err = { 0 };
    if (!it)
        return NULL;
    int status = uni_dataset_iterator_state(&value, it, &err);
    return own_value(self, status, value, &err);
}

/* Without the GIL: a thread that closes a Python generator may hold the lock of the statistics
 * while it waits for the GIL. */
static PyObject *iterator_stats(PyObject *object, PyObject *unused)
{
    data_iterator *self = (data_iterator *)object;
    uni_dataset_iterator *it = enter(self);
    uni_value *value = NULL;
    uni_error err = { 0 };
    int status;
    if (!it)
        return NULL;
    BEGIN_UNLOCKED(self);
    status = uni_dataset_iterator_stats(&value, it, &err);
    END_UNLOCKED(self);
    return own_value(object, status, value, &err);
}

static PyObject *iterator_close(PyObject *object, PyObject *unused)
{
    data_iterator *self = (data_iterator *)object;
    if (self->busy)
        return door_raise_text(PyExc_RuntimeError, "this iterator is in use by another thread");
    uni_dataset_iterator *it = self->it;
    self->it = NULL;
    Py_BEGIN_ALLOW_THREADS; /* its threads may be in a Python function */
    uni_dataset_iterator_free(it);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static void iterator_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    data_iterator *self = (data_iterator *)object;
    Py_BEGIN_ALLOW_THREADS;
    uni_dataset_iterator_free(self->it);
    Py_END_ALLOW_THREADS;
    Py_XDECREF(self->dataset);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *iterator_done(PyObject *self, void *unused)
{
    uni_dataset_iterator *it = enter((data_iterator *)self);
    return it ? PyBool_FromLong(uni_dataset_iterator_done(it)) : NULL;
}

static PyObject *iterator_epoch(PyObject *self, void *unused)
{
    uni_dataset_iterator *it = enter((data_iterator *)self);
    return it ? PyLong_FromUnsignedLongLong(uni_dataset_iterator_epoch(it)) : NULL;
}

static PyObject *iterator_wait(PyObject *self, void *unused)
{
    uni_dataset_iterator *it = enter((data_iterator *)self);
    return it ? PyFloat_FromDouble(uni__dataset_iterator_wait(it)) : NULL;
}

static PyGetSetDef getters[] = {
    { "done", iterator_done, NULL, NULL, NULL },
    { "epoch", iterator_epoch, NULL, NULL, NULL },
    { "wait", iterator_wait, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef methods[] = {
    { "next", iterator_next, METH_NOARGS, NULL },
    { "next_in_epoch", iterator_next_in_epoch, METH_NOARGS, NULL },
    { "concat", iterator_concat, METH_O, NULL },
    { "state", iterator_state, METH_NOARGS, NULL },
    { "stats", iterator_stats, METH_NOARGS, NULL },
    { "close", iterator_close, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_doc, "Batches of a Dataset, made by Dataset.iterate." },
    { Py_tp_dealloc, iterator_dealloc },
    { Py_tp_getset, getters },
    { Py_tp_methods, methods },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._unisono.DataIterator", sizeof(data_iterator), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots };

int door_data_iterator_init(PyObject *module, door_state *state)
{
    state->data_iterator_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    if (!state->data_iterator_type || PyModule_AddType(module, state->data_iterator_type) < 0)
        return -1;
    return door_preprocessor_init(module);
}
