/*
 * engine_own.c - user-defined layers: a Python object with build and call is a layer of the engine
 * like any other. It can be used in a Sequential or a graph, in fit, under a strategy and on a
 * tape.
 *
 * The engine calls three methods of the object, each with the GIL. _engine_build(specs) creates
 * weights and children (add_weight and add_child of its Layer), _engine_infer(specs) returns the
 * output's spec, _engine_call(tape, tensors...) computes on the engine's tape.
 * unisono/keras/_own.py finds the children and shapes, by running `call` on a tape of zeros.
 *
 * The layer holds its object weakly: the object has the Layer, the Layer its model, and the model
 * the engine's layer.
 *
 * Every layer has a class struct of its own, because the class name is that of the Python class.
 * Replicas call on several threads at once.
 */
#include "nn/shared.h"
#include "tensor/shared.h"
#include "engine.h"

#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/custom_layer.h>

typedef struct own_layer {
    engine_state *state;
    PyObject *weak; /* a weak reference to the object */
    uni_layer_class *class_;
    char *name;
} own_layer;

/* object.method(*arguments): a new reference, or NULL with an exception. */
static PyObject *ask(const own_layer *self, const char *method, PyObject *arguments)
{
    PyObject *object = arguments ? PyObject_CallNoArgs(self->weak) : NULL, *out = NULL;
    if (object == Py_None)
        door_raise_text(PyExc_ReferenceError, "the %s that this model calls is gone", self->name);
    else if (object) {
        PyObject *bound = PyObject_GetAttrString(object, method);
        out = bound ? PyObject_CallObject(bound, arguments) : NULL;
        Py_XDECREF(bound);
    }
    Py_XDECREF(object);
    return out;
}

/* ([(dtype, shape)...],) */
static PyObject *specs_argument(int count, const uni_spec *specs)
{
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        PyObject *item = engine_spec_to(&specs[i]);
        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list ? Py_BuildValue("(N)", list) : NULL;
}

static PyObject *ask_about(const own_layer *self, const char *method, int count,
                           const uni_spec *specs)
{
    PyObject *arguments = specs_argument(count, specs);
    PyObject *out = ask(self, method, arguments);
    Py_XDECREF(arguments);
    return out;
}

static int own_build(uni_layer *layer, void *self_, int num_inputs, const uni_spec *inputs,
                     uni_error *err)
{
    own_layer *self = self_;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *out = ask_about(self, "_engine_build", num_inputs, inputs);
    int status = out ? 0 : engine_keep_exception(self->state, err);
    Py_XDECREF(out);
    PyGILState_Release(gil);
    return status;
}

static int own_infer(const uni_layer *layer, const void *self_, int num_inputs,
                     const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const own_layer *self = self_;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *out = ask_about(self, "_engine_infer", num_inputs, inputs);
    int status =
        out && engine_spec_from(out, output) == 0 ? 0 : engine_keep_exception(self->state, err);
    Py_XDECREF(out);
    PyGILState_Release(gil);
    return status;
}

static uni_tensor *own_call(const uni_layer *layer, const void *self_, uni_tape *tape,
                            int num_inputs, uni_tensor *const *inputs)
{
    const own_layer *self = self_;
    uni_tensor *tensor = NULL;
    uni_error err = { 0 };
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *object = PyObject_CallNoArgs(self->weak), *out = NULL;
    PyObject *bound =
        object && object != Py_None ? PyObject_GetAttrString(object, "_engine_call") : NULL;
    if (bound)
        out = engine_call_on_tape(self->state, tape, bound, num_inputs, inputs, &tensor);
    else if (!PyErr_Occurred())
        door_raise_text(PyExc_ReferenceError, "the %s that this model calls is gone", self->name);
    if (!out)
        engine_keep_exception(self->state, &err);
    Py_XDECREF(out);
    Py_XDECREF(bound);
    Py_XDECREF(object);
    PyGILState_Release(gil);
    return out ? tensor : uni_tape_fail(tape, UNI_EFUNCTION, "%s", err.message);
}

static void own_free(void *self_)
{
    own_layer *self = self_;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_XDECREF(self->weak);
    PyGILState_Release(gil);
    free(self->name);
    free(self->class_); /* unused from here on */
}

/* own(class_name, name or None, object) */
PyObject *engine_layer_own(PyObject *type, PyObject *arguments)
{
    engine_state *state = PyType_GetModuleState((PyTypeObject *)type);
    const char *class_name, *name;
    PyObject *object;
    if (!PyArg_ParseTuple(arguments, "szO", &class_name, &name, &object))
        return NULL;
    PyObject *weak = PyWeakref_NewRef(object, NULL);
    uni_layer_class *class_ = weak ? calloc(1, sizeof *class_) : NULL;
    char *kept = class_ ? strdup(class_name) : NULL;
    if (kept)
        *class_ = (uni_layer_class){ .name = kept,
                                     .size = sizeof(own_layer),
                                     .build = own_build,
                                     .infer = own_infer,
                                     .call = own_call,
                                     .free = own_free };
    uni_layer *raw = kept ? uni_layer_new(class_) : NULL;
    if (!raw) {
        Py_XDECREF(weak);
        free(class_);
        free(kept);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    *(own_layer *)uni_layer_self(raw) = (own_layer){ state, weak, class_, kept };
    PyObject *self = engine_layer_wrap(state, name ? uni_layer_named(raw, name) : raw, NULL);
    if (!self)
        uni_layer_free(raw);
    return self;
}

/* ---- for _engine_build ---- */

/* add_weight(name, shape, trainable, initializer, (value, mean, stddev, low, high, gain), seed,
 * (l1, l2)): returns the parameter's full name */
PyObject *engine_layer_add_weight(PyObject *object, PyObject *arguments)
{
    engine_state *state = engine_state_of(object);
    const char *name;
    PyObject *shape, *pair;
    int trainable;
    uni_initializer initializer = { 0 };
    unsigned long long seed;
    uni_regularizer regularizer;
    uni_parameter *parameter = NULL;
    uni_spec spec;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "sO!ps(dddddd)K(ff)", &name, &PyTuple_Type, &shape, &trainable,
                          &initializer.name, &initializer.value, &initializer.mean,
                          &initializer.stddev, &initializer.low, &initializer.high,
                          &initializer.gain, &seed, &regularizer.l1, &regularizer.l2) ||
        !(pair = Py_BuildValue("(sO)", "float32", shape)))
        return NULL;
    initializer.seed = seed;
    int status = engine_spec_from(pair, &spec);
    Py_DECREF(pair);
    if (status < 0)
        return NULL;
    if (uni_layer_add_parameter(&parameter, ((engine_layer *)object)->raw, name,
                                trainable ? UNI_PARAMETER_WEIGHT : UNI_PARAMETER_STATE, spec.ndim,
                                spec.dims, &initializer, NULL, &regularizer, &err) < 0)
        return engine_raise(state, &err);
    return PyUnicode_FromString(uni_parameter_info_of(parameter)->name);
}

/* add_child(layer, specs): builds the layer for these inputs */
PyObject *engine_layer_add_child(PyObject *object, PyObject *arguments)
{
    engine_state *state = engine_state_of(object);
    engine_layer *self = (engine_layer *)object;
    PyObject *child, *list;
    uni_spec specs[UNI_MODEL_MAX_INPUTS];
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "O!O!", state->layer, &child, &PyList_Type, &list))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    if (count > UNI_MODEL_MAX_INPUTS)
        return door_raise_text(PyExc_ValueError, "a layer takes at most %d inputs, got %zd",
                               UNI_MODEL_MAX_INPUTS, count);
    for (Py_ssize_t i = 0; i < count; i++)
        if (engine_spec_from(PyList_GetItem(list, i), &specs[i]) < 0)
            return NULL;
    if (((engine_layer *)child)->owner || !self->owner) {
        uni_error_set(&err, UNI_EINVAL, "the layer \"%s\" belongs to a model already",
                      uni_layer_name(((engine_layer *)child)->raw));
        return engine_raise(state, &err);
    }
    if (uni__layer_add_child(self->raw, engine_layer_take(child, self->owner), NULL, (int)count,
                             specs, NULL, &err) < 0)
        return engine_raise(state, &err);
    Py_RETURN_NONE;
}

/* call_layer(layer, inputs, training=None) of a tape: None takes the step's setting */
PyObject *engine_tape_call_layer(PyObject *tape, PyObject *arguments)
{
    engine_state *state = engine_state_of(tape);
    PyObject *layer, *list, *training = Py_None;
    uni_tensor *inputs[UNI_MODEL_MAX_INPUTS], *out;
    if (!PyArg_ParseTuple(arguments, "O!O!|O", state->layer, &layer, &PyList_Type, &list,
                          &training))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    if (count < 1 || count > UNI_MODEL_MAX_INPUTS)
        return door_raise_text(PyExc_ValueError, "a layer takes 1 to %d inputs, got %zd",
                               UNI_MODEL_MAX_INPUTS, count);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!(inputs[i] = engine_tensor_arg(tape, PyList_GetItem(list, i))))
            return NULL;
    uni_layer *raw = ((engine_layer *)layer)->raw;
    uni_tape *on = engine_tape_of(tape);
    bool as_step = uni__tape_step(on)->training;
    uni__tape_set_training(on, training == Py_None ? as_step : training == Py_True);
    Py_BEGIN_ALLOW_THREADS out = uni__layer_call(raw, on, (int)count, inputs);
    Py_END_ALLOW_THREADS uni__tape_set_training(on, as_step);
    return engine_tensor_wrap(tape, out);
}
