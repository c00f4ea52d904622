/*
 * data_dlpack.c - columns of a table as tensors of other libraries, through the DLPack protocol:
 * one call per batch, no copy, no NumPy in between. The layout below is DLPack's C interface
 * (dmlc.github.io/dlpack), which is frozen. A tensor keeps its array; it may be released on any
 * thread, with or without the GIL.
 *
 * Data that is kept for the next epoch is copied, because such a tensor is writable.
 */
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "data.h"

enum { DEVICE_CPU = 1 };
enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_BOOL = 6 };

typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* in elements */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*release)(struct dl_managed *self);
} dl_managed;

typedef struct lent {
    dl_managed managed;
    uni_array *array;
    int64_t shape[UNI_MAX_DIMS + 1], strides[UNI_MAX_DIMS + 1];
} lent;

static const char unused_name[] = "dltensor"; /* the consumer renames it */

static void give_back(dl_managed *managed)
{
    lent *self = managed->context;
    uni_array_unref(self->array);
    free(self);
}

static void destroy_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, unused_name))
        give_back(PyCapsule_GetPointer(capsule, unused_name));
}

/* -1 for types that tensors do not have, or not everywhere (unsigned numbers of more than a
 * byte). */
static int code_of(uni_dtype dtype)
{
    switch (dtype) {
    case UNI_F16:
    case UNI_F32:
    case UNI_F64:
        return CODE_FLOAT;
    case UNI_I8:
    case UNI_I16:
    case UNI_I32:
    case UNI_I64:
        return CODE_INT;
    case UNI_U8:
        return CODE_UINT;
    case UNI_B8:
        return CODE_BOOL;
    default:
        return -1;
    }
}

/* Returns the array itself, or a writable copy. */
static int own_array(uni_array *array, uni_array **out, uni_error *err)
{
    if (!uni__array_is_shared(array)) {
        *out = uni_array_ref(array);
        return 0;
    }
    UNI_TRY(uni_array_new(out, uni_array_dtype(array), uni_array_ndim(array),
                          uni_array_shape(array), err));
    if (uni_array_bytes(array) > 0)
        memcpy(uni_array_data(*out), uni_array_data(array), uni_array_bytes(array));
    return 0;
}

/* unsqueeze: (rows) becomes (rows, 1). */
static void fill_tensor(lent *self, int code, bool unsqueeze)
{
    dl_tensor *tensor = &self->managed.tensor;
    uni_dtype dtype = uni_array_dtype(self->array);
    int ndim = uni_array_ndim(self->array);
    for (int i = 0; i < ndim; i++)
        self->shape[i] = uni_array_shape(self->array)[i];
    if (unsqueeze && ndim == 1)
        self->shape[ndim++] = 1;
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        self->strides[i] = stride;
        stride *= self->shape[i];
    }
    *tensor = (dl_tensor){ .data = uni_array_data(self->array),
                           .device_type = DEVICE_CPU,
                           .ndim = ndim,
                           .code = (uint8_t)code,
                           .bits = (uint8_t)(8 * uni_dtype_size(dtype)),
                           .lanes = 1,
                           .shape = self->shape,
                           .strides = self->strides };
    self->managed.context = self;
    self->managed.release = give_back;
}

static PyObject *lend(door_state *state, const uni_table_column *column, bool unsqueeze)
{
    uni_error err = { 0 };
    int code = column->field.kind == UNI_FIELD_NUMBER && !column->valid
                   ? code_of(uni_array_dtype(column->values))
                   : -1;
    if (code < 0)
        Py_RETURN_NONE;
    lent *self = calloc(1, sizeof *self);
    if (!self)
        return PyErr_NoMemory();
    if (own_array(column->values, &self->array, &err) < 0) {
        free(self);
        return door_raise(state, &err);
    }
    fill_tensor(self, code, unsqueeze);
    PyObject *capsule = PyCapsule_New(&self->managed, unused_name, destroy_capsule);
    if (!capsule)
        give_back(&self->managed);
    return capsule;
}

/* dlpack((name, ...), unsqueeze): a capsule for each column, None for one that is not a tensor as
 * it is (text, lists, missing values, wide unsigned numbers). */
PyObject *door_table_dlpack(PyObject *object, PyObject *arguments)
{
    door_state *state = door_state_of(object);
    const uni_table *table = ((table_object *)object)->table;
    PyObject *names;
    int unsqueeze;
    if (!PyArg_ParseTuple(arguments, "O!p", &PyTuple_Type, &names, &unsqueeze))
        return NULL;
    Py_ssize_t count = PyTuple_Size(names);
    PyObject *out = PyList_New(count);
    for (Py_ssize_t i = 0; out && i < count; i++) {
        const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, i), NULL);
        const uni_table_column *column = name ? uni_table_find(table, name) : NULL;
        if (name && !column)
            door_raise_text(PyExc_KeyError, "there is no column %s", name);
        PyObject *capsule = column ? lend(state, column, unsqueeze) : NULL;
        if (!capsule || PyList_SetItem(out, i, capsule) < 0)
            Py_CLEAR(out);
    }
    return out;
}
