/*
 * engine_optimizers.c - optimizers. apply updates only the parameters that it is given: the others
 * of their store are frozen for the call.
 *
 * Gradients come directly from the tape, whose flat buffer is used in place, or as tensors that the
 * user changed, which are copied into the optimizer's own buffer.
 */
#include "nn/shared.h"
#include "tensor/shared.h"
#include "engine.h"

#include <math.h>
#include <string.h>

static uni_optimizer *get(PyObject *object)
{
    uni_optimizer *raw = ((engine_optimizer *)object)->raw;
    if (!raw)
        engine_raise(engine_state_of(object),
                     &(uni_error){ .code = UNI_ESTATE,
                                   .message = "the model of this optimizer was compiled with "
                                              "another one since" });
    return raw;
}

/* A Python schedule: function(step) -> rate. Its exception fails the step and is raised again
 * unchanged. */
static double call_schedule(void *context, int64_t step, uni_error *err)
{
    engine_function *self = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *out = PyObject_CallFunction(self->function, "L", (long long)step);
    PyObject *number = out ? PyNumber_Float(out) : NULL;
    double rate = number ? PyFloat_AsDouble(number) : -1;
    if (PyErr_Occurred()) {
        engine_keep_exception(self->state, err);
        rate = NAN;
    }
    Py_XDECREF(out);
    Py_XDECREF(number);
    PyGILState_Release(gil);
    return rate;
}

static int set_schedule(engine_optimizer *self, engine_state *state, PyObject *function,
                        uni_error *err)
{
    engine_function *context = NULL;
    uni_schedule *schedule = NULL;
    self->schedule = engine_function_capsule(state, function, &context);
    if (!self->schedule || uni_schedule_custom(&schedule, call_schedule, context, err) < 0)
        return -1;
    uni_optimizer_set_schedule(self->raw, schedule);
    return 0;
}

/* Optimizer(class_name, config, schedule=None): schedule is a function of the step that replaces
 * config's learning_rate */
static PyObject *optimizer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    engine_state *state = PyType_GetModuleState(type);
    const char *name;
    PyObject *object, *schedule = Py_None;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "sO|O", &name, &object, &schedule))
        return NULL;
    uni_value *config = door_value_from(&state->door, object, NULL);
    engine_optimizer *self = config ? (engine_optimizer *)engine_new(type) : NULL;
    int status = self ? 0 : -1;
    if (status == 0)
        status = uni__optimizer_from_config(&self->raw, name, config, &err);
    if (status == 0 && schedule != Py_None)
        status = set_schedule(self, state, schedule, &err);
    uni_value_free(config);
    if (status == 0)
        return (PyObject *)self;
    Py_XDECREF((PyObject *)self);
    return PyErr_Occurred() ? NULL : engine_raise(state, &err);
}

static void optimizer_dealloc(PyObject *object)
{
    engine_optimizer *self = (engine_optimizer *)object;
    engine_model *model = (engine_model *)self->owner;
    uni_gradients_free(self->scratch);
    if (!model)
        uni_optimizer_free(self->raw);
    else if (model->optimizer == object)
        model->optimizer = NULL;
    Py_XDECREF(self->schedule);
    Py_XDECREF(self->owner);
    engine_free(object);
}

/* ---- apply ---- */

typedef struct pair {
    engine_tensor *gradient;
    uni_parameter *parameter;
} pair;

static int read_pairs(engine_state *state, PyObject *list, pair *pairs, Py_ssize_t count,
                      uni_parameters *store)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *gradient, *parameter, *item = PyList_GetItem(list, i);
        if (!PyTuple_Check(item) ||
            !PyArg_ParseTuple(item, "O!O!", state->tensor, &gradient, state->parameter, &parameter))
            return -1;
        if (((engine_parameter *)parameter)->store != store) {
            PyErr_SetString(PyExc_ValueError, "parameters of different models in one update");
            return -1;
        }
        pairs[i] = (pair){ (engine_tensor *)gradient, ((engine_parameter *)parameter)->raw };
    }
    return 0;
}

/* The buffer that all gradients are unchanged parts of, or NULL. */
static uni_gradients *common_buffer(const pair *pairs, Py_ssize_t count)
{
    PyObject *common = count > 0 ? pairs[0].gradient->gradients : NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (pairs[i].gradient->gradients != common ||
            pairs[i].gradient->parameter != pairs[i].parameter)
            return NULL;
    return common ? ((engine_gradients *)common)->raw : NULL;
}

/* Copies gradients that the user changed into our own buffer. */
static uni_gradients *copy_gradients(engine_optimizer *self, uni_parameters *store, pair *pairs,
                                     Py_ssize_t count)
{
    engine_state *state = engine_state_of((PyObject *)self);
    uni_error err = { 0 };
    if (self->scratch && uni__gradients_store(self->scratch) != store) {
        uni_gradients_free(self->scratch);
        self->scratch = NULL;
    }
    if (!self->scratch && uni_gradients_new(&self->scratch, store, &err) < 0) {
        engine_raise(state, &err);
        return NULL;
    }
    uni_gradients_zero(self->scratch);
    for (Py_ssize_t i = 0; i < count; i++) {
        uni_array *array = engine_tensor_array((PyObject *)pairs[i].gradient);
        if (!array)
            return NULL;
        size_t size = uni_parameter_info_of(pairs[i].parameter)->size;
        bool fits = uni_array_dtype(array) == UNI_F32 && uni_array_count(array) == size;
        if (fits)
            memcpy(uni_gradients_of(self->scratch, pairs[i].parameter), uni_array_data(array),
                   size * sizeof(float));
        else
            door_raise_text(PyExc_ValueError,
                            "the gradient of %s does not have its shape (and float32)",
                            uni_parameter_info_of(pairs[i].parameter)->name);
        uni_array_unref(array);
        if (!fits)
            return NULL;
    }
    return self->scratch;
}

static bool is_listed(const pair *pairs, Py_ssize_t count, const uni_parameter *parameter)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (pairs[i].parameter == parameter)
            return true;
    return false;
}

/* Freezes trainable parameters that are not listed; undo unfreezes them. Returns their number. */
static size_t freeze_others(uni_parameters *store, const pair *pairs, Py_ssize_t count,
                            uni_parameter **frozen)
{
    size_t others = 0, total = uni_parameters_count(store);
    for (size_t i = 0; i < total; i++) {
        uni_parameter *parameter = uni_parameters_at(store, i);
        if (uni_parameter_info_of(parameter)->is_frozen || is_listed(pairs, count, parameter))
            continue;
        uni_parameter_freeze(parameter, true);
        frozen[others++] = parameter;
    }
    return others;
}

/* apply(pairs, threads): pairs of (Tensor, Parameter), all from one store */
static PyObject *optimizer_apply(PyObject *object, PyObject *arguments)
{
    engine_state *state = engine_state_of(object);
    uni_optimizer *raw = get(object);
    PyObject *list;
    int threads, status = -1;
    uni_error err = { 0 };
    if (!raw || !PyArg_ParseTuple(arguments, "O!i", &PyList_Type, &list, &threads))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    PyObject *first = count > 0 && PyTuple_Check(PyList_GetItem(list, 0))
                          ? PyTuple_GetItem(PyList_GetItem(list, 0), 1)
                          : NULL;
    if (!first || !Py_IS_TYPE(first, state->parameter))
        return door_raise_text(PyExc_ValueError, "there are no gradients to apply");
    uni_parameters *store = ((engine_parameter *)first)->store;
    pair *pairs = PyMem_Calloc((size_t)count, sizeof *pairs);
    uni_parameter **frozen = PyMem_Calloc(uni_parameters_count(store) + 1, sizeof *frozen);
    uni_gradients *gradients = NULL;
    if (!pairs || !frozen)
        PyErr_NoMemory();
    else if (read_pairs(state, list, pairs, count, store) == 0 &&
             !(gradients = common_buffer(pairs, count)))
        gradients = copy_gradients((engine_optimizer *)object, store, pairs, count);
    if (gradients) {
        size_t others = freeze_others(store, pairs, count, frozen);
        Py_BEGIN_ALLOW_THREADS status = uni_optimizer_apply(raw, gradients, 1, threads, &err);
        Py_END_ALLOW_THREADS while (others > 0) uni_parameter_freeze(frozen[--others], false);
        if (status < 0)
            engine_raise(state, &err);
    }
    PyMem_Free(pairs);
    PyMem_Free(frozen);
    if (status < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- other methods ---- */

static PyObject *optimizer_get_config(PyObject *object, PyObject *unused)
{
    engine_state *state = engine_state_of(object);
    uni_optimizer *raw = get(object);
    uni_value *config = NULL;
    uni_error err = { 0 };
    if (!raw)
        return NULL;
    if (uni__optimizer_get_config(raw, &config, &err) < 0)
        return engine_raise(state, &err);
    PyObject *out = door_value_to(&state->door, config);
    uni_value_free(config);
    return out;
}

static PyObject *get_iterations(PyObject *object, void *unused)
{
    uni_optimizer *raw = get(object);
    return raw ? PyLong_FromLongLong(uni_optimizer_iterations(raw)) : NULL;
}

static int set_iterations(PyObject *object, PyObject *value, void *unused)
{
    uni_optimizer *raw = get(object);
    long long number = value ? PyLong_AsLongLong(value) : -1;
    if (!raw || PyErr_Occurred())
        return -1;
    uni__optimizer_set_iterations(raw, number);
    return 0;
}

static PyObject *get_rate(PyObject *object, void *unused)
{
    uni_optimizer *raw = get(object);
    uni_error err = { 0 };
    double rate = raw ? uni_optimizer_learning_rate(raw, &err) : NAN;
    if (raw && isnan(rate))
        return engine_raise(engine_state_of(object), &err);
    return raw ? PyFloat_FromDouble(rate) : NULL;
}

static int set_rate(PyObject *object, PyObject *value, void *unused)
{
    uni_optimizer *raw = get(object);
    uni_error err = { 0 };
    double rate = value ? PyFloat_AsDouble(value) : 0;
    if (!raw || PyErr_Occurred())
        return -1;
    if (uni_optimizer_set_learning_rate(raw, rate, &err) < 0) {
        engine_raise(engine_state_of(object), &err);
        return -1;
    }
    return 0;
}

static PyObject *get_taken(PyObject *object, void *unused)
{
    return PyBool_FromLong(((engine_optimizer *)object)->owner != NULL);
}

static PyObject *get_name(PyObject *object, void *unused)
{
    uni_optimizer *raw = get(object);
    return raw ? PyUnicode_FromString(uni__optimizer_name(raw)) : NULL;
}

static PyObject *set_accumulation(PyObject *object, PyObject *arguments)
{
    uni_optimizer *raw = get(object);
    int steps, waiting;
    if (!raw || !PyArg_ParseTuple(arguments, "ii", &steps, &waiting))
        return NULL;
    uni__optimizer_set_accumulation(raw, steps, waiting);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    { "set_accumulation", set_accumulation, METH_VARARGS, "set_accumulation(steps, waiting)" },
    { "apply", optimizer_apply, METH_VARARGS, "apply([(gradient, parameter)], threads)" },
    { "get_config", optimizer_get_config, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef getters[] = {
    { "name", get_name, NULL, NULL, NULL },
    { "iterations", get_iterations, set_iterations, NULL, NULL },
    { "learning_rate", get_rate, set_rate, NULL, NULL },
    { "taken", get_taken, NULL, "a model has it", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_new, optimizer_new },
    { Py_tp_dealloc, optimizer_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, getters },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._engine.Optimizer", sizeof(engine_optimizer), 0,
                            Py_TPFLAGS_DEFAULT, slots };

int engine_optimizers_init(PyObject *module, engine_state *state)
{
    return engine_add_type(module, &state->optimizer, &spec);
}
