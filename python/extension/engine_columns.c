/*
 * engine_columns.c - Python data as columns: any C-contiguous buffer of numbers without a copy, and
 * text as Strings.
 *
 * Strings is an array of uni_string over the UTF-8 that Python's own objects hold (a str caches its
 * UTF-8 once requested; bytes already are), so that a column of text is built once and nothing is
 * copied. Batches of text are again Strings that point into the same objects.
 */
#include "engine.h"

#include <string.h>

typedef struct strings_object {
    PyObject_HEAD uni_string *items;
    int64_t count;
    int ndim;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    PyObject *keeper; /* the list of str and bytes, or the Strings that this is a slice of */
} strings_object;

/* ---- Strings ---- */

static strings_object *strings_room(engine_state *state, int64_t count, int ndim,
                                    const int64_t *shape)
{
    int64_t needed = 1;
    for (int i = 0; i < ndim; i++)
        needed *= shape[i];
    if (needed != count) {
        door_raise_text(PyExc_ValueError, "%lld texts do not fit their shape", (long long)count);
        return NULL;
    }
    strings_object *self = (strings_object *)engine_new(state->strings);
    if (!self)
        return NULL;
    self->items = PyMem_Calloc((size_t)count + 1, sizeof *self->items);
    self->count = count;
    self->ndim = ndim;
    memcpy(self->shape, shape, (size_t)ndim * sizeof *shape);
    if (!self->items) {
        Py_DECREF(self);
        PyErr_NoMemory();
        return NULL;
    }
    return self;
}

PyObject *engine_strings_from(engine_state *state, int64_t count, const uni_string *strings,
                              int ndim, const int64_t *shape, PyObject *keeper)
{
    strings_object *self = strings_room(state, count, ndim, shape);
    if (self) {
        memcpy(self->items, strings, (size_t)count * sizeof *strings);
        self->keeper = Py_XNewRef(keeper);
    }
    return (PyObject *)self;
}

static int shape_from(PyObject *tuple, int64_t *shape)
{
    Py_ssize_t ndim = PyTuple_Size(tuple);
    if (ndim < 0 || ndim > UNI_TENSOR_MAX_DIMS) {
        if (ndim > 0)
            door_raise_text(PyExc_ValueError, "at most %d dimensions, got %zd", UNI_TENSOR_MAX_DIMS,
                            ndim);
        return -1;
    }
    for (Py_ssize_t i = 0; i < ndim; i++) {
        shape[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (shape[i] < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a dimension cannot be negative");
            return -1;
        }
    }
    return (int)ndim;
}

static int fill_strings(strings_object *self, PyObject *list)
{
    for (int64_t i = 0; i < self->count; i++) {
        PyObject *item = PyList_GetItem(list, (Py_ssize_t)i);
        Py_ssize_t size = 0;
        const char *text = NULL;
        if (item && PyUnicode_Check(item)) {
            text = PyUnicode_AsUTF8AndSize(item, &size);
        } else if (item && PyBytes_Check(item)) {
            text = PyBytes_AsString(item);
            size = PyBytes_Size(item);
        } else {
            door_raise_text(PyExc_TypeError, "entry %lld of a column of text is not text: %R",
                            (long long)i, item);
        }
        if (!text)
            return -1;
        self->items[i] = (uni_string){ text, (size_t)size };
    }
    return 0;
}

/* Strings(list, shape): takes over the list, which must not change any more. */
static PyObject *strings_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    engine_state *state = PyType_GetModuleState(type);
    PyObject *list, *tuple;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyList_Type, &list, &PyTuple_Type, &tuple))
        return NULL;
    int ndim = shape_from(tuple, shape);
    strings_object *self =
        ndim < 0 ? NULL : strings_room(state, (int64_t)PyList_Size(list), ndim, shape);
    if (!self)
        return NULL;
    self->keeper = Py_NewRef(list);
    if (fill_strings(self, list) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void strings_dealloc(PyObject *object)
{
    strings_object *self = (strings_object *)object;
    PyMem_Free(self->items);
    Py_XDECREF(self->keeper);
    engine_free(object);
}

static PyObject *strings_tolist(PyObject *object, PyObject *unused)
{
    strings_object *self = (strings_object *)object;
    PyObject *list = PyList_New((Py_ssize_t)self->count);
    for (int64_t i = 0; list && i < self->count; i++) {
        PyObject *item =
            PyBytes_FromStringAndSize(self->items[i].data, (Py_ssize_t)self->items[i].size);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *strings_take(PyObject *object, PyObject *arguments)
{
    strings_object *self = (strings_object *)object;
    engine_state *state = engine_state_of(object);
    PyObject *indices;
    if (!PyArg_ParseTuple(arguments, "O!", &PyList_Type, &indices))
        return NULL;
    int64_t shape[UNI_TENSOR_MAX_DIMS], each = self->shape[0] ? self->count / self->shape[0] : 0;
    memcpy(shape, self->shape, sizeof shape);
    shape[0] = (int64_t)PyList_Size(indices);
    strings_object *out = strings_room(state, shape[0] * each, self->ndim, shape);
    for (int64_t i = 0; out && i < shape[0]; i++) {
        long long row = PyLong_AsLongLong(PyList_GetItem(indices, (Py_ssize_t)i));
        if (row < 0 || row >= self->shape[0]) {
            if (!PyErr_Occurred())
                door_raise_text(PyExc_IndexError, "there is no row %lld of %lld", row,
                                (long long)self->shape[0]);
            Py_DECREF(out);
            return NULL;
        }
        memcpy(out->items + i * each, self->items + row * each, (size_t)each * sizeof *out->items);
    }
    if (out)
        out->keeper = Py_NewRef(object);
    return (PyObject *)out;
}

/* part(begin, end): rows */
static PyObject *strings_part(PyObject *object, PyObject *arguments)
{
    strings_object *self = (strings_object *)object;
    long long begin, end, rows = self->ndim ? (long long)self->shape[0] : 0;
    if (!PyArg_ParseTuple(arguments, "LL", &begin, &end))
        return NULL;
    if (begin < 0 || end < begin || end > rows)
        return door_raise_text(PyExc_IndexError, "there are no rows %lld to %lld of %lld", begin,
                               end, rows);
    int64_t shape[UNI_TENSOR_MAX_DIMS], each = rows ? self->count / rows : 0;
    memcpy(shape, self->shape, sizeof shape);
    shape[0] = end - begin;
    return engine_strings_from(engine_state_of(object), shape[0] * each, self->items + begin * each,
                               self->ndim, shape, object);
}

static PyObject *strings_reshape(PyObject *object, PyObject *tuple)
{
    strings_object *self = (strings_object *)object;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    if (!PyTuple_Check(tuple))
        return door_raise_text(PyExc_TypeError, "a shape is a tuple");
    int ndim = shape_from(tuple, shape);
    return ndim < 0 ? NULL
                    : engine_strings_from(engine_state_of(object), self->count, self->items, ndim,
                                          shape, object);
}

static PyObject *strings_shape(PyObject *object, void *unused)
{
    strings_object *self = (strings_object *)object;
    return engine_shape_to(self->ndim, self->shape);
}

static PyMethodDef strings_methods[] = {
    { "tolist", strings_tolist, METH_NOARGS, "bytes, flat" },
    { "take", strings_take, METH_VARARGS, "rows by a list of indices" },
    { "part", strings_part, METH_VARARGS, "rows from begin to end" },
    { "reshape", strings_reshape, METH_O, NULL },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef strings_getters[] = {
    { "shape", strings_shape, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot strings_slots[] = {
    { Py_tp_doc, "Strings(list, shape): a column of text" },
    { Py_tp_new, strings_new },
    { Py_tp_dealloc, strings_dealloc },
    { Py_tp_methods, strings_methods },
    { Py_tp_getset, strings_getters },
    { 0, NULL },
};
static PyType_Spec strings_spec = { "unisono._engine.Strings", sizeof(strings_object), 0,
                                    Py_TPFLAGS_DEFAULT, strings_slots };

int engine_columns_init(PyObject *module, engine_state *state)
{
    return engine_add_type(module, &state->strings, &strings_spec);
}

/* ---- columns ---- */

static int dtype_of(const Py_buffer *buffer)
{
    const char *format = buffer->format ? buffer->format : "B";
    if (*format == '@' || *format == '=' || *format == '<')
        format++;
    static const struct {
        char letter;
        size_t size;
        uni_dtype dtype;
    } known[] = {
        { 'f', 4, UNI_F32 }, { 'd', 8, UNI_F64 }, { 'b', 1, UNI_I8 },  { 'h', 2, UNI_I16 },
        { 'i', 4, UNI_I32 }, { 'l', 8, UNI_I64 }, { 'q', 8, UNI_I64 }, { 'B', 1, UNI_U8 },
        { 'H', 2, UNI_U16 }, { 'I', 4, UNI_U32 }, { 'L', 8, UNI_U64 }, { 'Q', 8, UNI_U64 },
        { '?', 1, UNI_B8 },  { 'e', 2, UNI_F16 }, { 'l', 4, UNI_I32 }, { 'L', 4, UNI_U32 },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].letter == format[0] && format[1] == '\0' &&
            known[i].size == (size_t)buffer->itemsize)
            return (int)known[i].dtype;
    return 0;
}

static int from_buffer(engine_column *out, PyObject *object)
{
    if (PyObject_GetBuffer(object, &out->buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
        return -1;
    int dtype = dtype_of(&out->buffer);
    if (!dtype || out->buffer.ndim > UNI_TENSOR_MAX_DIMS) {
        if (!dtype)
            door_raise_text(PyExc_TypeError, "elements of the type \"%s\" cannot be trained with",
                            out->buffer.format ? out->buffer.format : "?");
        else
            door_raise_text(PyExc_ValueError, "at most %d dimensions, got %d", UNI_TENSOR_MAX_DIMS,
                            out->buffer.ndim);
        PyBuffer_Release(&out->buffer);
        return -1;
    }
    int64_t shape[UNI_TENSOR_MAX_DIMS] = { 0 };
    for (int i = 0; i < out->buffer.ndim; i++)
        shape[i] = (int64_t)out->buffer.shape[i];
    out->column = uni_column_view((uni_dtype)dtype, out->buffer.ndim, shape, out->buffer.buf);
    return 0;
}

int engine_column_from(engine_state *state, engine_column *out, PyObject *object)
{
    memset(out, 0, sizeof *out);
    if (object == Py_None)
        return 0;
    if (Py_IS_TYPE(object, state->strings)) {
        strings_object *strings = (strings_object *)object;
        out->keeper = Py_NewRef(object);
        out->column = uni_column_view(UNI_STRING, strings->ndim, strings->shape, strings->items);
        return 0;
    }
    return from_buffer(out, object);
}

void engine_column_clear(engine_column *column)
{
    if (column->buffer.obj)
        PyBuffer_Release(&column->buffer);
    Py_XDECREF(column->keeper);
    memset(column, 0, sizeof *column);
}

int engine_columns_from(engine_state *state, engine_column *out, PyObject *list, const char *what)
{
    if (list == Py_None)
        return 0;
    Py_ssize_t count = PySequence_Size(list);
    if (count < 0)
        return -1;
    if (count > UNI_MODEL_MAX_INPUTS) {
        door_raise_text(PyExc_ValueError, "at most %d %s, got %zd", UNI_MODEL_MAX_INPUTS, what,
                        count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        int status = item ? engine_column_from(state, &out[i], item) : -1;
        Py_XDECREF(item);
        if (status < 0) {
            while (i-- > 0)
                engine_column_clear(&out[i]);
            return -1;
        }
    }
    return (int)count;
}
