/*
 * engine_batches.c - sources of batches: arrays in memory through the engine (no Python code runs),
 * and any Python iterator.
 *
 * A Python source is a function of the epoch that returns an iterator of (x, y, weight): lists of
 * columns; weight may be None. Each batch takes the GIL. What a batch borrows is held until the
 * next one.
 */
#include "nn/shared.h"
#include "engine.h"

#include <string.h>

typedef struct batches_object {
    PyObject_HEAD uni_batches *raw;
    bool python;
    engine_column columns[2 * UNI_MODEL_MAX_INPUTS + 1]; /* raw borrows from these */
} batches_object;

typedef struct python_source {
    engine_state *state;
    PyObject *begin, *iterator; /* begin(epoch) -> iterator */
    engine_column columns[2 * UNI_MODEL_MAX_INPUTS + 1];
    long long length;
} python_source;

uni_batches *engine_batches_of(PyObject *object)
{
    return ((batches_object *)object)->raw;
}

/* ---- a Python iterator ---- */

static void release_columns(engine_column *columns)
{
    for (int i = 0; i < 2 * UNI_MODEL_MAX_INPUTS + 1; i++)
        engine_column_clear(&columns[i]);
}

static int read_item(python_source *self, PyObject *item, uni_batch *out)
{
    PyObject *x, *y, *weights;
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "OOO", &x, &y, &weights))
        return -1;
    int num_x = engine_columns_from(self->state, self->columns, x, "inputs");
    int num_y = num_x < 0 ? -1
                          : engine_columns_from(self->state, self->columns + UNI_MODEL_MAX_INPUTS,
                                                y, "targets");
    engine_column *weight = &self->columns[2 * UNI_MODEL_MAX_INPUTS];
    if (num_y < 0 || engine_column_from(self->state, weight, weights) < 0)
        return -1;
    memset(out, 0, sizeof *out);
    out->num_x = num_x;
    out->num_y = num_y;
    for (int i = 0; i < num_x; i++)
        out->x[i] = self->columns[i].column;
    for (int i = 0; i < num_y; i++)
        out->y[i] = self->columns[UNI_MODEL_MAX_INPUTS + i].column;
    out->weights = weight->column;
    out->size = num_x > 0 && out->x[0].ndim > 0 ? out->x[0].shape[0] : 0;
    out->global_size = out->size;
    return 0;
}

static int python_next(void *context, uni_batch *out, uni_error *err)
{
    python_source *self = context;
    int status = 0;
    PyGILState_STATE gil = PyGILState_Ensure();
    release_columns(self->columns);
    PyObject *item = self->iterator ? PyIter_Next(self->iterator) : NULL;
    if (item)
        status = read_item(self, item, out) < 0 ? -1 : 1;
    else if (PyErr_Occurred())
        status = -1;
    Py_XDECREF(item);
    if (status < 0)
        status = engine_keep_exception(self->state, err);
    PyGILState_Release(gil);
    return status;
}

static int python_reset(void *context, uint64_t epoch, uni_error *err)
{
    python_source *self = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_CLEAR(self->iterator);
    release_columns(self->columns);
    PyObject *begun = PyObject_CallFunction(self->begin, "K", (unsigned long long)epoch);
    self->iterator = begun ? PyObject_GetIter(begun) : NULL;
    Py_XDECREF(begun);
    int status = self->iterator ? 0 : engine_keep_exception(self->state, err);
    PyGILState_Release(gil);
    return status;
}

static int64_t python_length(void *context)
{
    return ((python_source *)context)->length;
}

static void python_free(void *context)
{
    python_source *self = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    release_columns(self->columns);
    Py_XDECREF(self->begin);
    Py_XDECREF(self->iterator);
    PyMem_Free(self);
    PyGILState_Release(gil);
}

/* iterator(begin, length) */
static PyObject *batches_iterator(PyObject *type, PyObject *arguments)
{
    static const uni_batches_class class_ = { .name = "a Python iterator",
                                              .next = python_next,
                                              .reset = python_reset,
                                              .length = python_length,
                                              .free = python_free };
    engine_state *state = PyType_GetModuleState((PyTypeObject *)type);
    PyObject *begin;
    long long length;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "OL", &begin, &length))
        return NULL;
    batches_object *self = (batches_object *)engine_new((PyTypeObject *)type);
    python_source *source = self ? PyMem_Calloc(1, sizeof *source) : NULL;
    if (!source) {
        Py_XDECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    source->state = state;
    source->begin = Py_NewRef(begin);
    source->length = length;
    self->python = true;
    if (uni_batches_new(&self->raw, &class_, source, &err) < 0) {
        python_free(source);
        Py_DECREF((PyObject *)self);
        return engine_raise(state, &err);
    }
    return (PyObject *)self;
}

/* ---- arrays in memory ---- */

/* columns(x, y, weights, batch_size, shuffle, drop_remainder, repeat, seed, prefetch) */
static PyObject *batches_columns(PyObject *type, PyObject *arguments)
{
    engine_state *state = PyType_GetModuleState((PyTypeObject *)type);
    PyObject *x, *y, *weights;
    long long batch_size;
    int shuffle, drop_remainder, repeat, prefetch;
    unsigned long long seed;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "OOOLpppKi", &x, &y, &weights, &batch_size, &shuffle,
                          &drop_remainder, &repeat, &seed, &prefetch))
        return NULL;
    batches_object *self = (batches_object *)engine_new((PyTypeObject *)type);
    if (!self)
        return NULL;
    engine_column *target = self->columns + UNI_MODEL_MAX_INPUTS,
                  *weight = self->columns + 2 * UNI_MODEL_MAX_INPUTS;
    int num_x = engine_columns_from(state, self->columns, x, "inputs"), num_y = 0;
    if (num_x < 0 || (num_y = engine_columns_from(state, target, y, "targets")) < 0 ||
        engine_column_from(state, weight, weights) < 0)
        goto fail;
    uni_column plain[2 * UNI_MODEL_MAX_INPUTS];
    for (int i = 0; i < 2 * UNI_MODEL_MAX_INPUTS; i++)
        plain[i] = self->columns[i].column;
    if (uni_batches_columns(&self->raw, num_x, plain, num_y, plain + UNI_MODEL_MAX_INPUTS,
                            weight->column.dtype ? &weight->column : NULL,
                            &(uni_columns_options){ .batch_size = batch_size,
                                                    .shuffle = shuffle,
                                                    .drop_remainder = drop_remainder,
                                                    .repeat = repeat,
                                                    .seed = seed,
                                                    .prefetch = prefetch },
                            &err) < 0) {
        engine_raise(state, &err);
        goto fail;
    }
    return (PyObject *)self;
fail:
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void batches_dealloc(PyObject *object)
{
    batches_object *self = (batches_object *)object;
    uni_batches *raw = self->raw;
    self->raw = NULL;
    Py_BEGIN_ALLOW_THREADS /* a prefetching thread may wait for the GIL */
        uni_batches_free(raw);
    Py_END_ALLOW_THREADS release_columns(self->columns);
    engine_free(object);
}

/* ---- iteration from Python: batches that the caller keeps ---- */

static PyObject *copy_column(engine_state *state, batches_object *self, const uni_column *column)
{
    uni_array *array = NULL;
    uni_error err = { 0 };
    if (!column->dtype)
        Py_RETURN_NONE;
    if (column->dtype == UNI_STRING) {
        int64_t count = 1;
        for (int i = 0; i < column->ndim; i++)
            count *= column->shape[i];
        return engine_strings_from(state, count, column->data, column->ndim, column->shape,
                                   (PyObject *)self);
    }
    if (uni_array_new(&array, column->dtype, column->ndim, column->shape, &err) < 0)
        return engine_raise(state, &err);
    if (uni_array_bytes(array))
        memcpy(uni_array_data(array), column->data, uni_array_bytes(array));
    PyObject *out = door_array_wrap(&state->door, array);
    uni_array_unref(array);
    return out;
}

static PyObject *copy_columns(engine_state *state, batches_object *self, int count,
                              const uni_column *columns)
{
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        PyObject *item = copy_column(state, self, &columns[i]);
        if (!item || PyList_SetItem(list, i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* (x, y, weights), or None at the end */
static PyObject *batches_next(PyObject *object, PyObject *unused)
{
    batches_object *self = (batches_object *)object;
    engine_state *state = engine_state_of(object);
    uni_batch batch;
    uni_error err = { 0 };
    int got;
    if (self->python) /* its text lives only until the next batch */
        return door_raise_text(PyExc_TypeError, "iterate over the Python source itself");
    Py_BEGIN_ALLOW_THREADS got = uni_batches_next(&batch, self->raw, &err);
    Py_END_ALLOW_THREADS if (got < 0) return engine_raise(state, &err);
    if (got == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(NNN)", copy_columns(state, self, batch.num_x, batch.x),
                         copy_columns(state, self, batch.num_y, batch.y),
                         copy_column(state, self, &batch.weights));
}

static PyObject *batches_reset(PyObject *object, PyObject *epoch)
{
    batches_object *self = (batches_object *)object;
    unsigned long long number = PyLong_AsUnsignedLongLong(epoch);
    uni_error err = { 0 };
    int status;
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_batches_reset(self->raw, number, &err);
    Py_END_ALLOW_THREADS if (status < 0) return engine_raise(engine_state_of(object), &err);
    Py_RETURN_NONE;
}

static PyObject *batches_length(PyObject *object, void *unused)
{
    return PyLong_FromLongLong(uni__batches_length(((batches_object *)object)->raw));
}

static PyMethodDef methods[] = {
    { "columns", batches_columns, METH_VARARGS | METH_CLASS, NULL },
    { "iterator", batches_iterator, METH_VARARGS | METH_CLASS, NULL },
    { "next", batches_next, METH_NOARGS, "(x, y, weights) with arrays of their own, or None" },
    { "reset", batches_reset, METH_O, "back to the start, in this epoch's order" },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef getters[] = {
    { "length", batches_length, NULL, "batches an epoch; -1 when not known", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_dealloc, batches_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, getters },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._engine.Batches", sizeof(batches_object), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots };

int engine_batches_init(PyObject *module, engine_state *state)
{
    return engine_add_type(module, &state->batches, &spec);
}
