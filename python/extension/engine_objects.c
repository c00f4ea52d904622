/*
 * engine_objects.c - losses and metrics, by Keras's class names and configs or as user functions.
 *
 * compile takes the raw objects out of these; a user function then lives with the model. User
 * functions run on the engine's threads, one at a time (the GIL), on the engine's own tape.
 */
#include "nn/shared.h"
#include "engine.h"

#include <string.h>

static PyObject *is_taken(engine_state *state)
{
    return engine_raise(state, &(uni_error){ .code = UNI_ESTATE,
                                             .message = "this object was given to a model; make a "
                                                        "new one" });
}

/* The config, or NULL for None; sets *status to -1 with an exception. */
static uni_value *config_from(engine_state *state, PyObject *object, int *status)
{
    *status = 0;
    if (object == Py_None)
        return NULL;
    uni_value *config = door_value_from(&state->door, object, NULL);
    *status = config ? 0 : -1;
    return config;
}

/* ---- losses ---- */

static uni_tensor *call_loss(void *context, uni_tape *tape, uni_tensor *target,
                             uni_tensor *prediction)
{
    engine_function *self = context;
    uni_tensor *inputs[2] = { target, prediction }, *out = NULL;
    uni_error err = { 0 };
    if (!target || !prediction)
        return NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *result = engine_call_on_tape(self->state, tape, self->function, 2, inputs, &out);
    if (!result)
        engine_keep_exception(self->state, &err);
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return result ? out : uni_tape_fail(tape, UNI_EFUNCTION, "%s", err.message);
}

/* A capsule beside the function holds the context of a user function. */
static void free_context(PyObject *capsule)
{
    engine_function *self = PyCapsule_GetPointer(capsule, "unisono.function");
    Py_XDECREF(self->function);
    PyMem_Free(self);
}

PyObject *engine_function_capsule(engine_state *state, PyObject *function, engine_function **out)
{
    engine_function *self = PyMem_Calloc(1, sizeof *self);
    if (!self)
        return PyErr_NoMemory();
    *self = (engine_function){ state, Py_NewRef(function) };
    *out = self;
    return PyCapsule_New(self, "unisono.function", free_context);
}

/* Loss(name, config or None) by Keras's class or name; Loss(name, function, reduction) */
static PyObject *loss_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    engine_state *state = PyType_GetModuleState(type);
    const char *name;
    PyObject *how = Py_None;
    int reduction = 0, status;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "s|Oi", &name, &how, &reduction))
        return NULL;
    engine_loss *self = (engine_loss *)engine_new(type);
    if (!self)
        return NULL;
    if (PyCallable_Check(how)) {
        engine_function *context = NULL;
        self->function = engine_function_capsule(state, how, &context);
        status = self->function ? uni_loss_custom(&self->raw, name, call_loss, context,
                                                  (uni_reduction)reduction, &err)
                                : -1;
    } else {
        uni_value *config = config_from(state, how, &status);
        if (status == 0)
            status = config ? uni__loss_from_config(&self->raw, name, config, &err)
                            : uni_loss_new(&self->raw, name, NULL, &err);
        uni_value_free(config);
    }
    if (status == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_Occurred() ? NULL : engine_raise(state, &err);
}

static void loss_dealloc(PyObject *object)
{
    engine_loss *self = (engine_loss *)object;
    uni_loss_free(self->raw);
    Py_XDECREF(self->function);
    engine_free(object);
}

/* call(tape, target, prediction, weights, reduced) */
static PyObject *loss_call(PyObject *object, PyObject *arguments)
{
    engine_state *state = engine_state_of(object);
    engine_loss *self = (engine_loss *)object;
    PyObject *tape, *target_object, *prediction_object, *weight_object;
    int reduced;
    if (!PyArg_ParseTuple(arguments, "O!OOOp", state->tape, &tape, &target_object,
                          &prediction_object, &weight_object, &reduced))
        return NULL;
    if (!self->raw)
        return is_taken(state);
    uni_tensor *target = engine_tensor_arg(tape, target_object), *weights = NULL;
    uni_tensor *prediction = target ? engine_tensor_arg(tape, prediction_object) : NULL;
    if (!prediction ||
        (weight_object != Py_None && !(weights = engine_tensor_arg(tape, weight_object))))
        return NULL;
    uni_tape *raw = engine_tape_of(tape);
    return engine_tensor_wrap(
        tape, reduced ? uni_loss_call(self->raw, raw, target, prediction, weights)
                      : uni_loss_per_example(self->raw, raw, target, prediction, weights));
}

static PyObject *loss_get_config(PyObject *object, PyObject *unused)
{
    engine_state *state = engine_state_of(object);
    uni_value *config = NULL;
    uni_error err = { 0 };
    if (!((engine_loss *)object)->raw)
        return is_taken(state);
    if (uni__loss_get_config(((engine_loss *)object)->raw, &config, &err) < 0)
        return engine_raise(state, &err);
    PyObject *out = door_value_to(&state->door, config);
    uni_value_free(config);
    return out;
}

static PyObject *loss_name(PyObject *object, void *unused)
{
    uni_loss *raw = ((engine_loss *)object)->raw;
    return raw ? PyUnicode_FromString(uni__loss_name(raw)) : is_taken(engine_state_of(object));
}

static PyObject *loss_reduction(PyObject *object, void *unused)
{
    uni_loss *raw = ((engine_loss *)object)->raw;
    return raw ? PyLong_FromLong(uni__loss_reduction(raw)) : is_taken(engine_state_of(object));
}

static PyMethodDef loss_methods[] = {
    { "call", loss_call, METH_VARARGS, "call(tape, target, prediction, weights, reduced)" },
    { "get_config", loss_get_config, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef loss_getters[] = {
    { "name", loss_name, NULL, NULL, NULL },
    { "reduction", loss_reduction, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot loss_slots[] = {
    { Py_tp_new, loss_new },
    { Py_tp_dealloc, loss_dealloc },
    { Py_tp_methods, loss_methods },
    { Py_tp_getset, loss_getters },
    { 0, NULL },
};
static PyType_Spec loss_spec = { "unisono._engine.Loss", sizeof(engine_loss), 0, Py_TPFLAGS_DEFAULT,
                                 loss_slots };

/* ---- metrics ---- */

static PyObject *array_of(engine_state *state, const uni_tensor *tensor)
{
    uni_array *array = NULL;
    uni_error err = { 0 };
    if (!tensor)
        Py_RETURN_NONE;
    if (uni_tensor_to_array(&array, tensor, &err) < 0)
        return engine_raise(state, &err);
    return engine_tensor_of_array(state, array);
}

/* function(target, prediction, weights) -> (sum, count), with arrays */
static int call_metric(void *context, const uni_tensor *target, const uni_tensor *prediction,
                       const uni_tensor *weights, double *sum, double *count, uni_error *err)
{
    engine_function *self = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *t = array_of(self->state, target), *p = array_of(self->state, prediction),
             *w = array_of(self->state, weights);
    PyObject *out =
        t && p && w ? PyObject_CallFunctionObjArgs(self->function, t, p, w, NULL) : NULL;
    double a = 0, b = 0;
    int status = out && PyTuple_Check(out) && PyArg_ParseTuple(out, "dd", &a, &b) ? 0 : -1;
    if (status < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a metric gives (sum, count)");
        status = engine_keep_exception(self->state, err);
    }
    *sum += a;
    *count += b;
    Py_XDECREF(t);
    Py_XDECREF(p);
    Py_XDECREF(w);
    Py_XDECREF(out);
    PyGILState_Release(gil);
    return status;
}

/* Metric(name, config or None); Metric(name, function) */
static PyObject *metric_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    engine_state *state = PyType_GetModuleState(type);
    const char *name;
    PyObject *how = Py_None;
    int status;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "s|O", &name, &how))
        return NULL;
    engine_metric *self = (engine_metric *)engine_new(type);
    if (!self)
        return NULL;
    if (PyCallable_Check(how)) {
        engine_function *context = NULL;
        self->function = engine_function_capsule(state, how, &context);
        status =
            self->function ? uni_metric_custom(&self->raw, name, call_metric, context, &err) : -1;
    } else {
        uni_value *config = config_from(state, how, &status);
        if (status == 0)
            status = config ? uni__metric_from_config(&self->raw, name, config, &err)
                            : uni_metric_new(&self->raw, name, NULL, &err);
        uni_value_free(config);
    }
    if (status == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_Occurred() ? NULL : engine_raise(state, &err);
}

static void metric_dealloc(PyObject *object)
{
    engine_metric *self = (engine_metric *)object;
    uni_metric_free(self->raw);
    Py_XDECREF(self->function);
    engine_free(object);
}

static uni_metric *metric_of(PyObject *object)
{
    uni_metric *raw = ((engine_metric *)object)->raw;
    if (!raw)
        is_taken(engine_state_of(object));
    return raw;
}

/* update(tape, target, prediction, weights) */
static PyObject *metric_update(PyObject *object, PyObject *arguments)
{
    engine_state *state = engine_state_of(object);
    PyObject *tape, *target_object, *prediction_object, *weight_object;
    uni_metric *raw = metric_of(object);
    uni_error err = { 0 };
    if (!raw || !PyArg_ParseTuple(arguments, "O!OOO", state->tape, &tape, &target_object,
                                  &prediction_object, &weight_object))
        return NULL;
    uni_tensor *target = engine_tensor_arg(tape, target_object), *weights = NULL;
    uni_tensor *prediction = target ? engine_tensor_arg(tape, prediction_object) : NULL;
    if (!prediction ||
        (weight_object != Py_None && !(weights = engine_tensor_arg(tape, weight_object))))
        return NULL;
    if (uni_metric_update(raw, target, prediction, weights, &err) < 0)
        return engine_raise(state, &err);
    Py_RETURN_NONE;
}

static PyObject *metric_update_value(PyObject *object, PyObject *arguments)
{
    uni_metric *raw = metric_of(object);
    double value, weight;
    if (!raw || !PyArg_ParseTuple(arguments, "dd", &value, &weight))
        return NULL;
    uni_metric_update_value(raw, value, weight);
    Py_RETURN_NONE;
}

static PyObject *metric_result(PyObject *object, PyObject *unused)
{
    uni_metric *raw = metric_of(object);
    return raw ? PyFloat_FromDouble(uni_metric_result(raw)) : NULL;
}

static PyObject *metric_values(PyObject *object, PyObject *unused)
{
    uni_metric *raw = metric_of(object);
    if (!raw)
        return NULL;
    size_t count = uni__metric_values(raw, NULL, 0);
    double *values = PyMem_Calloc(count + 1, sizeof *values);
    PyObject *list = values ? PyList_New((Py_ssize_t)count) : PyErr_NoMemory();
    if (values)
        uni__metric_values(raw, values, count);
    for (size_t i = 0; list && values && i < count; i++)
        PyList_SetItem(list, (Py_ssize_t)i, PyFloat_FromDouble(values[i]));
    PyMem_Free(values);
    return list;
}

static PyObject *metric_state(PyObject *object, PyObject *unused)
{
    uni_metric *raw = metric_of(object);
    size_t size = 0;
    double *state = raw ? uni__metric_state(raw, &size) : NULL;
    PyObject *list = raw ? PyList_New((Py_ssize_t)size) : NULL;
    for (size_t i = 0; list && i < size; i++)
        PyList_SetItem(list, (Py_ssize_t)i, PyFloat_FromDouble(state[i]));
    return list;
}

static PyObject *metric_set_state(PyObject *object, PyObject *values)
{
    uni_metric *raw = metric_of(object);
    size_t size = 0;
    double *state = raw ? uni__metric_state(raw, &size) : NULL;
    if (!raw)
        return NULL;
    if (!PyList_Check(values) || PyList_Size(values) != (Py_ssize_t)size)
        return door_raise_text(PyExc_ValueError, "this metric's state has %zu numbers", size);
    for (size_t i = 0; i < size; i++)
        state[i] = PyFloat_AsDouble(PyList_GetItem(values, (Py_ssize_t)i));
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *metric_reset(PyObject *object, PyObject *unused)
{
    uni_metric *raw = metric_of(object);
    if (!raw)
        return NULL;
    uni_metric_reset(raw);
    Py_RETURN_NONE;
}

static PyObject *metric_copy(PyObject *object, PyObject *unused)
{
    uni_metric *raw = metric_of(object);
    engine_metric *copy = raw ? (engine_metric *)engine_new(Py_TYPE(object)) : NULL;
    if (!copy)
        return NULL;
    copy->function = Py_XNewRef(((engine_metric *)object)->function);
    if (!(copy->raw = uni__metric_copy(raw))) {
        Py_DECREF(copy);
        return PyErr_NoMemory();
    }
    return (PyObject *)copy;
}

static PyObject *metric_merge(PyObject *object, PyObject *other)
{
    uni_metric *raw = metric_of(object);
    if (!raw)
        return NULL;
    if (Py_TYPE(other) != Py_TYPE(object) || !metric_of(other))
        return PyErr_Occurred() ? NULL
                                : door_raise_text(PyExc_TypeError, "not a metric: %R", other);
    uni__metric_merge(raw, ((engine_metric *)other)->raw);
    Py_RETURN_NONE;
}

static PyObject *metric_name(PyObject *object, void *unused)
{
    uni_metric *raw = metric_of(object);
    return raw ? PyUnicode_FromString(uni__metric_name(raw)) : NULL;
}

static PyMethodDef metric_methods[] = {
    { "update", metric_update, METH_VARARGS, "update(tape, target, prediction, weights)" },
    { "update_value", metric_update_value, METH_VARARGS, NULL },
    { "result", metric_result, METH_NOARGS, NULL },
    { "values", metric_values, METH_NOARGS, NULL },
    { "state", metric_state, METH_NOARGS, NULL },
    { "set_state", metric_set_state, METH_O, NULL },
    { "reset", metric_reset, METH_NOARGS, NULL },
    { "copy", metric_copy, METH_NOARGS, "same settings, empty" },
    { "merge", metric_merge, METH_O, NULL },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef metric_getters[] = {
    { "name", metric_name, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot metric_slots[] = {
    { Py_tp_new, metric_new },
    { Py_tp_dealloc, metric_dealloc },
    { Py_tp_methods, metric_methods },
    { Py_tp_getset, metric_getters },
    { 0, NULL },
};
static PyType_Spec metric_spec = { "unisono._engine.Metric", sizeof(engine_metric), 0,
                                   Py_TPFLAGS_DEFAULT, metric_slots };

int engine_objects_init(PyObject *module, engine_state *state)
{
    return engine_add_type(module, &state->loss, &loss_spec) < 0
               ? -1
               : engine_add_type(module, &state->metric, &metric_spec);
}
