/*
 * data_preprocess.c - unisono._unisono.Preprocessor: fitted on a Dataset, applied to Datasets and
 * Tables, saved as plain data. fit reads without the GIL.
 */
#include <unisono/preprocess.h>

#include "data/shared.h"
#include "data.h"

typedef struct preprocessor_object {
    PyObject_HEAD uni_preprocessor *preprocessor;
} preprocessor_object;

static uni_preprocessor *of(PyObject *self)
{
    return ((preprocessor_object *)self)->preprocessor;
}

static PyObject *take(PyTypeObject *type, uni_preprocessor *preprocessor)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    preprocessor_object *self = (preprocessor_object *)allocate(type, 0);
    if (!self) {
        uni_preprocessor_unref(preprocessor);
        return NULL;
    }
    self->preprocessor = preprocessor;
    return (PyObject *)self;
}

/* Preprocessor(kind, options) */
static PyObject *preprocessor_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    door_state *state = PyType_GetModuleState(type);
    const char *kind;
    PyObject *options;
    uni_error err = { 0 };
    uni_preprocessor *out = NULL;
    if (!PyArg_ParseTuple(arguments, "sO!", &kind, &PyDict_Type, &options))
        return NULL;
    uni_value *value = door_value_from(state, options, NULL);
    if (!value)
        return NULL;
    int status = uni_preprocessor_new(&out, kind, value, &err);
    uni_value_free(value);
    return status < 0 ? door_raise(state, &err) : take(type, out);
}

/* load(saved) */
static PyObject *preprocessor_load(PyObject *class_, PyObject *saved)
{
    door_state *state = PyType_GetModuleState((PyTypeObject *)class_);
    uni_error err = { 0 };
    uni_preprocessor *out = NULL;
    uni_value *value = door_value_from(state, saved, NULL);
    if (!value)
        return NULL;
    int status = uni_preprocessor_load(&out, value, &err);
    uni_value_free(value);
    return status < 0 ? door_raise(state, &err) : take((PyTypeObject *)class_, out);
}

static PyObject *preprocessor_save(PyObject *self, PyObject *unused)
{
    uni_error err = { 0 };
    uni_value *value = NULL;
    if (uni_preprocessor_save(&value, of(self), &err) < 0)
        return door_raise(door_state_of(self), &err);
    PyObject *object = door_value_to(door_state_of(self), value);
    uni_value_free(value);
    return object;
}

static uni_dataset *dataset_of(door_state *state, PyObject *object)
{
    if (PyObject_TypeCheck(object, state->dataset_type))
        return ((dataset_object *)object)->dataset;
    PyErr_SetString(PyExc_TypeError, "a Dataset is needed here");
    return NULL;
}

static PyObject *preprocessor_fit(PyObject *self, PyObject *object)
{
    uni_dataset *dataset = dataset_of(door_state_of(self), object);
    uni_error err = { 0 };
    int status;
    if (!dataset)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = uni_preprocessor_fit(of(self), dataset, &err);
    Py_END_ALLOW_THREADS;
    if (status < 0)
        return door_raise(door_state_of(self), &err);
    Py_RETURN_NONE;
}

static PyObject *preprocessor_transform(PyObject *self, PyObject *object)
{
    uni_dataset *dataset = dataset_of(door_state_of(self), object), *out = NULL;
    uni_error err = { 0 };
    int status;
    if (!dataset)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = uni_preprocessor_transform(&out, of(self), dataset, &err);
    Py_END_ALLOW_THREADS;
    return status < 0 ? door_raise(door_state_of(self), &err)
                      : door_dataset_take(door_state_of(self), out);
}

static PyObject *preprocessor_apply(PyObject *self, PyObject *object)
{
    uni_table *table = door_table_of(door_state_of(self), object), *out = NULL;
    uni_error err = { 0 };
    if (!table)
        return NULL;
    if (uni__preprocessor_apply(&out, of(self), table, &err) < 0)
        return door_raise(door_state_of(self), &err);
    return door_table_take(door_state_of(self), out);
}

static void preprocessor_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    uni_preprocessor_unref(of(self));
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    { "load", preprocessor_load, METH_O | METH_CLASS, NULL },
    { "save", preprocessor_save, METH_NOARGS, NULL },
    { "fit", preprocessor_fit, METH_O, NULL },
    { "transform", preprocessor_transform, METH_O, NULL },
    { "apply", preprocessor_apply, METH_O, NULL },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_doc, "Preprocessor(kind, options)" },
    { Py_tp_new, preprocessor_new },
    { Py_tp_dealloc, preprocessor_dealloc },
    { Py_tp_methods, methods },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._unisono.Preprocessor", sizeof(preprocessor_object), 0,
                            Py_TPFLAGS_DEFAULT, slots };

int door_preprocessor_init(PyObject *module)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    int status = type ? PyModule_AddType(module, type) : -1;
    Py_XDECREF((PyObject *)type);
    return status;
}
