/*
 * engine_tape.c - tapes: the beginning and end of a step, its gradients, and the arguments of
 * operations.
 *
 * A tensor that has left its tape, or is used on another one, enters as an input. What an input
 * borrows is held until the next step; on a tape of the engine (while it calls a user function) it
 * is copied instead.
 */
#include "tensor/shared.h"
#include "engine.h"

#include <string.h>

/* ---- tapes ---- */

uni_tape *engine_tape_of(PyObject *tape)
{
    return ((engine_tape *)tape)->raw;
}

static PyObject *tape_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    engine_state *state = PyType_GetModuleState(type);
    uni_tape_options options = { 0 };
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "|i", &options.threads))
        return NULL;
    engine_tape *self = (engine_tape *)engine_new(type);
    if (!self || !(self->held = PyList_New(0))) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    if (uni_tape_new(&self->raw, &options, &err) < 0) {
        Py_DECREF((PyObject *)self);
        return engine_raise(state, &err);
    }
    return (PyObject *)self;
}

/* Gives the live tensors their own numbers; then the step's memory may be freed. */
int engine_tape_let_go(PyObject *tape)
{
    engine_tape *self = (engine_tape *)tape;
    int status = 0;
    for (engine_tensor *tensor = self->first, *next; tensor; tensor = next) {
        next = tensor->next;
        if (engine_tensor_own_all(tensor) < 0)
            status = -1;
        tensor->raw = NULL;
        tensor->tape = NULL;
        engine_tensor_unlink(tensor);
    }
    PyObject *fresh = PyList_New(0);
    if (!fresh)
        return -1;
    engine_replace(&self->held, fresh);
    return status;
}

static void tape_dealloc(PyObject *object)
{
    engine_tape *self = (engine_tape *)object;
    if (engine_tape_let_go(object) < 0)
        PyErr_Clear();
    if (!self->borrowed)
        uni_tape_free(self->raw);
    Py_XDECREF(self->held);
    Py_XDECREF(self->gradients);
    engine_free(object);
}

/* Prepares a buffer for the model's gradients: the tape's own unless it still has views. */
static int prepare_gradients(engine_tape *self, engine_state *state, PyObject *model)
{
    engine_gradients *old = (engine_gradients *)self->gradients;
    if (model == Py_None) {
        Py_CLEAR(self->gradients);
        return 0;
    }
    uni_parameters *store = uni_model_parameters(((engine_model *)model)->raw);
    if (!store) {
        PyErr_SetString(PyExc_ValueError, "the model is not built yet");
        return -1;
    }
    if (old && old->views == 0 && uni__gradients_store(old->raw) == store)
        return 0;
    engine_gradients *fresh = engine_gradients_new(state, model);
    if (!fresh)
        return -1;
    engine_replace(&self->gradients, (PyObject *)fresh);
    return 0;
}

void engine_tape_borrow(PyObject *tape, uni_tape *raw)
{
    engine_tape *self = (engine_tape *)tape;
    if (!self->borrowed)
        uni_tape_free(self->raw);
    self->borrowed = true;
    self->raw = raw;
}

/* begin(training, record, model, seed, number, keep_state=False) */
static PyObject *tape_begin(PyObject *object, PyObject *arguments)
{
    engine_tape *self = (engine_tape *)object;
    engine_state *state = engine_state_of(object);
    int training, record, keep_state = 0;
    PyObject *model;
    unsigned long long seed, number;
    if (!PyArg_ParseTuple(arguments, "ppOKK|p", &training, &record, &model, &seed, &number,
                          &keep_state))
        return NULL;
    if (model != Py_None && !Py_IS_TYPE(model, state->model))
        return door_raise_text(PyExc_TypeError, "not a model: %R", model);
    if (engine_tape_let_go(object) < 0 ||
        prepare_gradients(self, state, record ? model : Py_None) < 0)
        return NULL;
    engine_gradients *gradients = (engine_gradients *)self->gradients;
    uni_tape_begin(self->raw, &(uni_step){ .training = training,
                                           .record = record,
                                           .gradients = gradients ? gradients->raw : NULL,
                                           .seed = seed,
                                           .number = number,
                                           .keep_state = keep_state });
    Py_RETURN_NONE;
}

static PyObject *tape_release(PyObject *object, PyObject *unused)
{
    if (engine_tape_let_go(object) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *tape_watch(PyObject *object, PyObject *tensor)
{
    uni_tensor *raw = engine_tensor_arg(object, tensor);
    if (!raw)
        return NULL;
    uni_tape_watch(((engine_tape *)object)->raw, raw);
    return engine_tensor_wrap(object, raw);
}

static PyObject *gradient_of_tensor(engine_tape *self, engine_state *state, engine_tensor *source)
{
    uni_array *array = NULL;
    uni_error err = { 0 };
    const float *gradient =
        source->tape == self && source->raw ? uni_tensor_gradient(source->raw) : NULL;
    if (!gradient)
        Py_RETURN_NONE;
    if (uni_array_new(&array, UNI_F32, uni_tensor_ndim(source->raw), uni_tensor_shape(source->raw),
                      &err) < 0)
        return engine_raise(state, &err);
    memcpy(uni_array_data(array), gradient, uni_array_bytes(array));
    return engine_tensor_of_array(state, array);
}

/* gradient(loss, sources): returns a list; a source is a Parameter or a watched Tensor */
static PyObject *tape_gradient(PyObject *object, PyObject *arguments)
{
    engine_tape *self = (engine_tape *)object;
    engine_state *state = engine_state_of(object);
    PyObject *loss_object, *sources;
    uni_error err = { 0 };
    int status;
    if (!PyArg_ParseTuple(arguments, "O!O!", state->tensor, &loss_object, &PyList_Type, &sources))
        return NULL;
    engine_tensor *loss = (engine_tensor *)loss_object;
    if (loss->tape != self || !loss->raw)
        return door_raise_text(PyExc_ValueError, "the loss was not computed on this tape");
    Py_BEGIN_ALLOW_THREADS status = uni_tape_gradient(self->raw, loss->raw, NULL, &err);
    Py_END_ALLOW_THREADS if (status < 0) return engine_raise(state, &err);
    Py_ssize_t count = PyList_Size(sources);
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *source = PyList_GetItem(sources, i), *item = NULL;
        engine_gradients *gradients = (engine_gradients *)self->gradients;
        if (Py_IS_TYPE(source, state->tensor))
            item = gradient_of_tensor(self, state, (engine_tensor *)source);
        else if (!Py_IS_TYPE(source, state->parameter))
            door_raise_text(PyExc_TypeError, "not a parameter or tensor: %R", source);
        else if (gradients &&
                 uni__gradients_store(gradients->raw) == ((engine_parameter *)source)->store)
            item = engine_gradient_of(state, gradients, ((engine_parameter *)source)->raw);
        else
            item = Py_NewRef(Py_None);
        if (!item || PyList_SetItem(list, i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *tape_gradients(PyObject *object, void *unused)
{
    PyObject *gradients = ((engine_tape *)object)->gradients;
    return Py_NewRef(gradients ? gradients : Py_None);
}

static PyObject *tape_threads(PyObject *object, void *unused)
{
    return PyLong_FromLong(uni__tape_threads(((engine_tape *)object)->raw));
}

/* ---- arguments ---- */

static uni_tensor *input(engine_tape *self, uni_dtype dtype, int ndim, const int64_t *shape,
                         const void *data, PyObject *keeper)
{
    uni_error err = { 0 };
    uni_tensor *raw;
    if (self->borrowed && dtype != UNI_STRING) {
        /* The engine's step may outlive this object, so the numbers are copied to the tape. */
        if ((raw = uni_tape_scratch(self->raw, dtype, ndim, shape)))
            memcpy(uni_tensor_data(raw), data, uni_tensor_count(raw) * uni_dtype_size(dtype));
    } else {
        if (PyList_Append(self->held, keeper) < 0)
            return NULL;
        raw = uni_tape_input(self->raw, dtype, ndim, shape, data);
    }
    if (!raw && uni_tape_status(self->raw, &err) < 0)
        engine_raise(engine_state_of((PyObject *)self), &err);
    return raw;
}

static uni_tensor *input_array(engine_tape *self, const uni_array *array, PyObject *keeper)
{
    return input(self, uni_array_dtype(array), uni_array_ndim(array), uni_array_shape(array),
                 uni_array_data(array), keeper);
}

static uni_tensor *from_tensor(engine_tape *self, engine_tensor *tensor)
{
    if (tensor->tape == self && tensor->raw)
        return tensor->raw;
    if (engine_tensor_own_all(tensor) < 0)
        return NULL;
    if (tensor->strings)
        return engine_tensor_arg((PyObject *)self, tensor->strings);
    uni_tensor *raw = input_array(self, tensor->array, (PyObject *)tensor);
    uni_tensor *logits =
        raw && tensor->logits ? input_array(self, tensor->logits, (PyObject *)tensor) : NULL;
    if (logits)
        uni__tensor_set_logits(raw, logits);
    return tensor->logits && !logits ? NULL : raw;
}

/* Its owner goes into held: a memoryview that holds the buffer, or the Strings. */
static uni_tensor *from_data(engine_tape *self, engine_state *state, PyObject *object)
{
    engine_column column;
    PyObject *keeper =
        Py_IS_TYPE(object, state->strings) ? Py_NewRef(object) : PyMemoryView_FromObject(object);
    if (!keeper)
        return NULL;
    uni_tensor *raw = NULL;
    if (engine_column_from(state, &column, object) == 0) {
        raw = input(self, column.column.dtype, column.column.ndim, column.column.shape,
                    column.column.data, keeper);
        engine_column_clear(&column);
    }
    Py_DECREF(keeper);
    return raw;
}

uni_tensor *engine_tensor_arg(PyObject *tape, PyObject *object)
{
    engine_tape *self = (engine_tape *)tape;
    engine_state *state = engine_state_of(tape);
    uni_tensor *raw;
    if (Py_IS_TYPE(object, state->tensor))
        return from_tensor(self, (engine_tensor *)object);
    if (Py_IS_TYPE(object, state->parameter)) {
        raw = uni_tape_parameter(self->raw, ((engine_parameter *)object)->raw);
    } else if (PyFloat_Check(object) || PyLong_Check(object)) {
        double number = PyFloat_AsDouble(object);
        raw = PyErr_Occurred() ? NULL : uni_tape_constant(self->raw, (float)number);
    } else {
        return from_data(self, state, object);
    }
    if (!raw && !PyErr_Occurred()) {
        uni_error err = { 0 };
        if (uni_tape_status(self->raw, &err) == 0)
            uni_error_set(&err, UNI_ENOMEM, "no memory for a tensor");
        engine_raise(state, &err);
    }
    return raw;
}

PyObject *engine_call_on_tape(engine_state *state, uni_tape *raw, PyObject *function, int count,
                              uni_tensor *const *inputs, uni_tensor **out)
{
    engine_tape *tape = (engine_tape *)engine_new(state->tape);
    PyObject *result = NULL, *arguments = NULL;
    if (!tape)
        return NULL;
    tape->borrowed = true;
    tape->raw = raw;
    if ((tape->held = PyList_New(0)) && (arguments = PyTuple_New(count + 1))) {
        PyTuple_SetItem(arguments, 0, Py_NewRef((PyObject *)tape));
        for (int i = 0; i < count; i++)
            PyTuple_SetItem(arguments, i + 1, engine_tensor_link(tape, inputs[i]));
        result = PyErr_Occurred() ? NULL : PyObject_CallObject(function, arguments);
    }
    *out = result ? engine_tensor_arg((PyObject *)tape, result) : NULL;
    if (result && *out && PyList_Size(tape->held) > 0) {
        PyErr_SetString(PyExc_ValueError,
                        "a loss or layer of one's own cannot bring text along: give it the text as "
                        "an input");
        *out = NULL;
    }
    if (!*out)
        Py_CLEAR(result);
    Py_XDECREF(arguments);
    if (engine_tape_let_go((PyObject *)tape) < 0)
        Py_CLEAR(result);
    Py_DECREF((PyObject *)tape);
    return result;
}

static PyObject *tape_training(PyObject *object, void *unused)
{
    return PyBool_FromLong(uni__tape_step(((engine_tape *)object)->raw)->training);
}

static PyObject *tape_shared(PyObject *object, void *unused)
{
    const uni_step *step = uni__tape_step(((engine_tape *)object)->raw);
    return PyBool_FromLong(step->sync || step->keep_state);
}

static PyMethodDef tape_methods[] = {
    { "begin", tape_begin, METH_VARARGS, NULL },
    { "release", tape_release, METH_NOARGS, "its tensors get numbers of their own" },
    { "watch", tape_watch, METH_O, NULL },
    { "gradient", tape_gradient, METH_VARARGS, NULL },
    { "call_layer", engine_tape_call_layer, METH_VARARGS, "a layer that is built, on this tape" },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef tape_getters[] = {
    { "threads", tape_threads, NULL, NULL, NULL },
    { "training", tape_training, NULL, "of the step", NULL },
    { "shared", tape_shared, NULL, "whether other replicas run the same step", NULL },
    { "gradients", tape_gradients, NULL, "the buffer of the step, or None", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot tape_slots[] = {
    { Py_tp_new, tape_new },
    { Py_tp_dealloc, tape_dealloc },
    { Py_tp_methods, tape_methods },
    { Py_tp_getset, tape_getters },
    { 0, NULL },
};
static PyType_Spec tape_spec = { "unisono._engine.Tape", sizeof(engine_tape), 0, Py_TPFLAGS_DEFAULT,
                                 tape_slots };

int engine_tapes_init(PyObject *module, engine_state *state)
{
    if (engine_tensors_init(module, state) < 0 ||
        engine_add_type(module, &state->tape, &tape_spec) < 0)
        return -1;
    for (PyMethodDef *method = engine_op_methods; method->ml_name; method++) {
        PyObject *made = PyDescr_NewMethod(state->tape, method);
        int status =
            made ? PyObject_SetAttrString((PyObject *)state->tape, method->ml_name, made) : -1;
        Py_XDECREF(made);
        if (status < 0)
            return -1;
    }
    return 0;
}
