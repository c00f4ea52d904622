/*
 * array.c - unisono.Array: a uni_array as a Python object, and any Python buffer as a uni_array; no
 * copies in either direction.
 *
 * Arrays of a checkpoint are copy-on-write mappings of its file, and numpy.asarray(array) shares
 * them. An Array made from a Python buffer keeps that buffer until the library releases it, on any
 * thread.
 */
#include "base/shared.h"
#include "door.h"

typedef struct array_object {
    PyObject_HEAD uni_array *array;
    Py_ssize_t shape[UNI_MAX_DIMS], strides[UNI_MAX_DIMS];
} array_object;

uni_array *door_array_of(PyObject *array)
{
    return ((array_object *)array)->array;
}

/* Letters of the struct module. float16 is "e"; bfloat16 has none, so its bits are exposed as
 * unsigned 16-bit numbers. */
static const char *format_of(uni_dtype dtype)
{
    static const char *const formats[] = {
        [UNI_F32] = "f", [UNI_F64] = "d", [UNI_I8] = "b",   [UNI_I16] = "h", [UNI_I32] = "i",
        [UNI_I64] = "q", [UNI_U8] = "B",  [UNI_U16] = "H",  [UNI_U32] = "I", [UNI_U64] = "Q",
        [UNI_B8] = "?",  [UNI_F16] = "e", [UNI_BF16] = "H",
    };
    return formats[dtype];
}

static void fill_layout(array_object *self)
{
    int dims = uni_array_ndim(self->array);
    Py_ssize_t stride = (Py_ssize_t)uni_dtype_size(uni_array_dtype(self->array));
    for (int i = dims - 1; i >= 0; i--) {
        self->shape[i] = (Py_ssize_t)uni_array_shape(self->array)[i];
        self->strides[i] = stride;
        stride *= self->shape[i];
    }
}

static PyObject *make(PyTypeObject *type, uni_array *array)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    array_object *self = (array_object *)allocate(type, 0);
    if (!self)
        return NULL;
    self->array = uni_array_ref(array);
    fill_layout(self);
    return (PyObject *)self;
}

PyObject *door_array_wrap(door_state *state, uni_array *array)
{
    return make(state->array_type, array);
}

static void release_buffer(void *context)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyBuffer_Release(context);
    PyMem_Free(context);
    PyGILState_Release(gil);
}

static int read_shape(PyObject *object, int64_t *shape)
{
    Py_ssize_t dims = PyTuple_Size(object);
    if (dims < 0 || dims > UNI_MAX_DIMS) {
        if (!PyErr_Occurred())
            door_raise_text(PyExc_ValueError, "at most %d dimensions", UNI_MAX_DIMS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < dims; i++) {
        shape[i] = PyLong_AsLongLong(PyTuple_GetItem(object, i));
        if (shape[i] < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a dimension cannot be negative");
            return -1;
        }
    }
    return (int)dims;
}

/* Array(dtype, shape, buffer) */
static PyObject *array_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    const char *name;
    PyObject *shape_object, *source;
    int64_t shape[UNI_MAX_DIMS];
    uni_error err = { 0 };
    uni_array *array = NULL;
    if (!PyArg_ParseTuple(arguments, "sO!O", &name, &PyTuple_Type, &shape_object, &source))
        return NULL;
    int dtype = uni__dtype_from_name(name), dims = read_shape(shape_object, shape);
    if (dims < 0)
        return NULL;
    if (!dtype)
        return door_raise_text(PyExc_TypeError, "there is no element type %s", name);
    Py_buffer *buffer = PyMem_Calloc(1, sizeof *buffer);
    if (!buffer)
        return PyErr_NoMemory();
    if (PyObject_GetBuffer(source, buffer, PyBUF_C_CONTIGUOUS) < 0) {
        PyMem_Free(buffer);
        return NULL;
    }
    if (uni_array_view(&array, (uni_dtype)dtype, dims, shape, buffer->buf, release_buffer, buffer,
                       &err) < 0) {
        PyBuffer_Release(buffer);
        PyMem_Free(buffer);
        return door_raise_text(PyExc_ValueError, "%s", err.message);
    }
    PyObject *self = NULL;
    if (uni_array_bytes(array) != (size_t)buffer->len)
        door_raise_text(PyExc_ValueError, "%zd bytes do not fit the shape, which needs %zu",
                        buffer->len, uni_array_bytes(array));
    else
        self = make(type, array);
    uni_array_unref(array);
    return self;
}

static void array_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    uni_array_unref(((array_object *)self)->array);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int array_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    static char nothing; /* an empty array has no memory, but a view needs an address */
    array_object *self = (array_object *)object;
    int dims = uni_array_ndim(self->array);
    void *data = uni_array_data(self->array);
    /* Data that a dataset keeps for its next epoch must not be written to. */
    if (PyBuffer_FillInfo(view, object, data ? data : &nothing,
                          (Py_ssize_t)uni_array_bytes(self->array),
                          uni__array_is_shared(self->array), flags) < 0)
        return -1;
    view->itemsize = (Py_ssize_t)uni_dtype_size(uni_array_dtype(self->array));
    view->format = flags & PyBUF_FORMAT ? (char *)format_of(uni_array_dtype(self->array)) : NULL;
    view->ndim = dims;
    view->shape = flags & PyBUF_ND ? self->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides : NULL;
    return 0;
}

static PyObject *array_dtype(PyObject *self, void *unused)
{
    return PyUnicode_FromString(uni_dtype_name(uni_array_dtype(door_array_of(self))));
}

static PyObject *array_shape(PyObject *object, void *unused)
{
    array_object *self = (array_object *)object;
    int dims = uni_array_ndim(self->array);
    PyObject *shape = PyTuple_New(dims);
    for (int i = 0; shape && i < dims; i++)
        PyTuple_SetItem(shape, i, PyLong_FromSsize_t(self->shape[i]));
    return shape;
}

static PyGetSetDef getters[] = {
    { "dtype", array_dtype, NULL, "NumPy's name of the element type", NULL },
    { "shape", array_shape, NULL, "a tuple", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "Array(dtype, shape, buffer): numbers in memory, shared and not copied." },
    { Py_tp_new, array_new },
    { Py_tp_dealloc, array_dealloc },
    { Py_tp_getset, getters },
    { Py_bf_getbuffer, array_getbuffer },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._unisono.Array", sizeof(array_object), 0, Py_TPFLAGS_DEFAULT,
                            slots };

int door_array_init(PyObject *module, door_state *state)
{
    state->array_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return state->array_type ? PyModule_AddType(module, state->array_type) : -1;
}
