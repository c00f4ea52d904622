/*
 * engine_tape.c - tapes, tensors and gradients.
 *
 * The engine's tensors live until their tape begins its next step; Python's live as long as somebody has them. So a tape knows the Python tensors of its
 * step, and when it begins anew copies the numbers of those that are still alive (the loss that a loop adds up, the predictions it
 * prints); all others cost nothing. A tensor that left its tape, or is used on another one, enters as an input. What an input borrows is held until the next step.
 *
 * Gradients are views of the flat buffer that uni_tape_gradient fills, so that an optimizer that gets them back unchanged uses the buffer
 * itself. A buffer with views alive is not used again; the tape then makes another.
 */
#include "engine.h"

#include <string.h>

/* ---- tensors ---- */

static void unlink_tensor(engine_tensor *self)
{
    if (!self->link)
        return;
    *self->link = self->next;
    if (self->next)
        self->next->link = self->link;
    self->link = NULL;
    self->next = NULL;
}

static PyObject *link_tensor(engine_tape *tape, uni_tensor *raw)
{
    engine_state *state = engine_state_of((PyObject *)tape);
    engine_tensor *self = (engine_tensor *)engine_new(state->tensor);
    if (!self)
        return NULL;
    self->raw = raw;
    self->tape = tape; /* not counted: the tape lets go of its tensors before it ends */
    self->next = tape->first;
    self->link = &tape->first;
    if (tape->first)
        tape->first->link = &self->next;
    tape->first = self;
    return (PyObject *)self;
}

PyObject *engine_tensor_wrap(PyObject *tape, uni_tensor *raw)
{
    uni_error err = { 0 };
    if (raw)
        return link_tensor((engine_tape *)tape, raw);
    if (uni_tape_status(((engine_tape *)tape)->raw, &err) == 0)
        uni_error_set(&err, UNI_ESTATE, "an operation gave nothing");
    return engine_raise(engine_state_of(tape), &err);
}

PyObject *engine_tensor_of_array(engine_state *state, uni_array *array)
{
    engine_tensor *self = (engine_tensor *)engine_new(state->tensor);
    if (self)
        self->array = array;
    else
        uni_array_unref(array);
    return (PyObject *)self;
}

/* Its numbers in an array of its own; 0 or -1 with an exception. */
static int own(engine_tensor *self)
{
    uni_error err = { 0 };
    if (self->array || self->strings)
        return 0;
    engine_state *state = engine_state_of((PyObject *)self);
    if (!self->raw) {
        PyErr_SetString(PyExc_RuntimeError, "this tensor is gone with its step");
        return -1;
    }
    if (uni_tensor_dtype(self->raw) == UNI_STRING) {
        self->strings = engine_strings_from(state, (int64_t)uni_tensor_count(self->raw),
                                            uni_tensor_data(self->raw), uni_tensor_ndim(self->raw),
                                            uni_tensor_shape(self->raw), self->tape->held);
        return self->strings ? 0 : -1;
    }
    if (uni_tensor_to_array(&self->array, self->raw, &err) < 0) {
        engine_raise(state, &err);
        return -1;
    }
    return 0;
}

uni_array *engine_tensor_array(PyObject *tensor)
{
    engine_tensor *self = (engine_tensor *)tensor;
    if (own(self) < 0)
        return NULL;
    if (!self->array) {
        PyErr_SetString(PyExc_TypeError, "this tensor has text, not numbers");
        return NULL;
    }
    return uni_array_ref(self->array);
}

/* Tensor(buffer or Strings): shares it */
static PyObject *tensor_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    engine_state *state = PyType_GetModuleState(type);
    PyObject *source;
    if (!PyArg_ParseTuple(arguments, "O", &source))
        return NULL;
    if (Py_IS_TYPE(source, state->door.array_type))
        return engine_tensor_of_array(state, uni_array_ref(door_array_of(source)));
    engine_tensor *self = (engine_tensor *)engine_new(type);
    if (self && Py_IS_TYPE(source, state->strings)) {
        self->strings = Py_NewRef(source);
        return (PyObject *)self;
    }
    Py_XDECREF((PyObject *)self);
    return PyErr_Format(PyExc_TypeError, "a tensor is made of an Array or of Strings");
}

static void tensor_dealloc(PyObject *object)
{
    engine_tensor *self = (engine_tensor *)object;
    unlink_tensor(self);
    uni_array_unref(self->array);
    Py_XDECREF(self->strings);
    if (self->gradients)
        ((engine_gradients *)self->gradients)->views--;
    Py_XDECREF(self->gradients);
    engine_free(object);
}

static PyObject *tensor_array(PyObject *object, PyObject *unused)
{
    engine_tensor *self = (engine_tensor *)object;
    if (own(self) < 0)
        return NULL;
    return self->strings ? Py_NewRef(self->strings)
                         : door_array_wrap(&engine_state_of(object)->door, self->array);
}

static int tensor_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    PyObject *array = tensor_array(object, NULL);
    int status = array ? PyObject_GetBuffer(array, view, flags) : -1;
    Py_XDECREF(array);
    return status;
}

static PyObject *tensor_shape(PyObject *object, void *unused)
{
    engine_tensor *self = (engine_tensor *)object;
    if (self->raw)
        return engine_shape_to(uni_tensor_ndim(self->raw), uni_tensor_shape(self->raw));
    if (self->array)
        return engine_shape_to(uni_array_ndim(self->array), uni_array_shape(self->array));
    return PyObject_GetAttrString(self->strings ? self->strings : Py_None, "shape");
}

static PyObject *tensor_dtype(PyObject *object, void *unused)
{
    engine_tensor *self = (engine_tensor *)object;
    uni_dtype dtype = self->raw     ? uni_tensor_dtype(self->raw)
                      : self->array ? uni_array_dtype(self->array)
                                    : UNI_STRING;
    return PyUnicode_FromString(engine_dtype_name(dtype));
}

static PyMethodDef tensor_methods[] = {
    { "array", tensor_array, METH_NOARGS, "its numbers (or Strings), which outlive its step" },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef tensor_getters[] = {
    { "shape", tensor_shape, NULL, NULL, NULL },
    { "dtype", tensor_dtype, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot tensor_slots[] = {
    { Py_tp_new, tensor_new },
    { Py_tp_dealloc, tensor_dealloc },
    { Py_tp_methods, tensor_methods },
    { Py_tp_getset, tensor_getters },
    { Py_bf_getbuffer, tensor_getbuffer },
    { 0, NULL },
};
static PyType_Spec tensor_spec = { "unisono._engine.Tensor", sizeof(engine_tensor), 0,
                                   Py_TPFLAGS_DEFAULT, tensor_slots };

/* ---- gradients ---- */

static void gradients_dealloc(PyObject *object)
{
    engine_gradients *self = (engine_gradients *)object;
    uni_gradients_free(self->raw);
    Py_XDECREF(self->owner);
    engine_free(object);
}

static engine_gradients *new_gradients(engine_state *state, PyObject *model)
{
    uni_error err = { 0 };
    uni_parameters *store = uni_model_parameters(((engine_model *)model)->raw);
    engine_gradients *self = (engine_gradients *)engine_new(state->gradients);
    if (!self)
        return NULL;
    if (uni_gradients_new(&self->raw, store, &err) < 0) {
        Py_DECREF((PyObject *)self);
        engine_raise(state, &err);
        return NULL;
    }
    self->owner = Py_NewRef(model);
    return self;
}

static void release_gradients(void *context)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)context);
    PyGILState_Release(gil);
}

/* The gradient of one parameter: a view. */
static PyObject *gradient_of(engine_state *state, engine_gradients *self, uni_parameter *parameter)
{
    uni_array *array = NULL;
    uni_error err = { 0 };
    float *data = uni_gradients_of(self->raw, parameter);
    if (!data || uni_parameter_is_frozen(parameter))
        Py_RETURN_NONE;
    if (uni_array_view(&array, UNI_F32, uni_parameter_ndim(parameter),
                       uni_parameter_shape(parameter), data, release_gradients, self, &err) < 0)
        return engine_raise(state, &err);
    Py_INCREF((PyObject *)self);
    engine_tensor *tensor = (engine_tensor *)engine_tensor_of_array(state, array);
    if (tensor) {
        tensor->gradients = Py_NewRef((PyObject *)self);
        tensor->parameter = parameter;
        self->views++;
    }
    return (PyObject *)tensor;
}

/* flat(): the whole buffer, for replicas that add theirs up */
static PyObject *gradients_flat(PyObject *object, PyObject *unused)
{
    engine_gradients *self = (engine_gradients *)object;
    engine_state *state = engine_state_of(object);
    size_t size = 0;
    float *data = uni_gradients_data(self->raw, &size);
    uni_array *array = NULL;
    uni_error err = { 0 };
    if (uni_array_view(&array, UNI_F32, 1, (const int64_t[]){ (int64_t)size }, data,
                       release_gradients, self, &err) < 0)
        return engine_raise(state, &err);
    Py_INCREF((PyObject *)self);
    PyObject *out = door_array_wrap(&state->door, array);
    uni_array_unref(array);
    return out;
}

static PyMethodDef gradients_methods[] = {
    { "flat", gradients_flat, METH_NOARGS, "all gradients as one array, shared" },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot gradients_slots[] = {
    { Py_tp_dealloc, gradients_dealloc },
    { Py_tp_methods, gradients_methods },
    { 0, NULL },
};
static PyType_Spec gradients_spec = { "unisono._engine.Gradients", sizeof(engine_gradients), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                      gradients_slots };

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

/* The tensors that are still alive get their own numbers; then the step's memory may go. */
int engine_tape_let_go(PyObject *tape)
{
    engine_tape *self = (engine_tape *)tape;
    int status = 0;
    for (engine_tensor *tensor = self->first, *next; tensor; tensor = next) {
        next = tensor->next;
        if (own(tensor) < 0)
            status = -1;
        tensor->raw = NULL;
        tensor->tape = NULL;
        unlink_tensor(tensor);
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

/* A buffer for the gradients of the model: the tape's own unless somebody still looks at it. */
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
    if (old && old->views == 0 && uni_gradients_store(old->raw) == store)
        return 0;
    engine_gradients *fresh = new_gradients(state, model);
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

/* begin(training, record, model, seed, number) */
static PyObject *tape_begin(PyObject *object, PyObject *arguments)
{
    engine_tape *self = (engine_tape *)object;
    engine_state *state = engine_state_of(object);
    int training, record;
    PyObject *model;
    unsigned long long seed, number;
    if (!PyArg_ParseTuple(arguments, "ppOKK", &training, &record, &model, &seed, &number))
        return NULL;
    if (model != Py_None && !Py_IS_TYPE(model, state->model))
        return PyErr_Format(PyExc_TypeError, "not a model: %R", model);
    if (engine_tape_let_go(object) < 0 ||
        prepare_gradients(self, state, record ? model : Py_None) < 0)
        return NULL;
    engine_gradients *gradients = (engine_gradients *)self->gradients;
    uni_tape_begin(self->raw, &(uni_step){ .training = training,
                                           .record = record,
                                           .gradients = gradients ? gradients->raw : NULL,
                                           .seed = seed,
                                           .number = number });
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

/* gradient(loss, sources): a list; a source is a Parameter or a watched Tensor */
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
        return PyErr_Format(PyExc_ValueError, "the loss was not computed on this tape");
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
            PyErr_Format(PyExc_TypeError, "not a parameter or tensor: %R", source);
        else if (gradients &&
                 uni_gradients_store(gradients->raw) == ((engine_parameter *)source)->store)
            item = gradient_of(state, gradients, ((engine_parameter *)source)->raw);
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
    return PyLong_FromLong(uni_tape_threads(((engine_tape *)object)->raw));
}

/* ---- arguments ---- */

static uni_tensor *input(engine_tape *self, uni_dtype dtype, int ndim, const int64_t *shape,
                         const void *data, PyObject *keeper)
{
    uni_error err = { 0 };
    if (PyList_Append(self->held, keeper) < 0)
        return NULL;
    uni_tensor *raw = uni_tape_input(self->raw, dtype, ndim, shape, data);
    if (!raw && uni_tape_status(self->raw, &err) < 0)
        engine_raise(engine_state_of((PyObject *)self), &err);
    return raw;
}

static uni_tensor *from_tensor(engine_tape *self, engine_tensor *tensor)
{
    if (tensor->tape == self && tensor->raw)
        return tensor->raw;
    if (own(tensor) < 0)
        return NULL;
    if (tensor->strings)
        return engine_tensor_arg((PyObject *)self, tensor->strings);
    return input(self, uni_array_dtype(tensor->array), uni_array_ndim(tensor->array),
                 uni_array_shape(tensor->array), uni_array_data(tensor->array), (PyObject *)tensor);
}

/* Its keeper goes into held: a memoryview that holds the buffer, or the Strings. */
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
            PyTuple_SetItem(arguments, i + 1, link_tensor(tape, inputs[i]));
        result = PyErr_Occurred() ? NULL : PyObject_CallObject(function, arguments);
    }
    *out = result ? engine_tensor_arg((PyObject *)tape, result) : NULL;
    if (result && *out && PyList_Size(tape->held) > 0) {
        /* What entered as input must live as long as the engine's step: it does not, so its numbers are copied to the tape. */
        PyErr_SetString(PyExc_ValueError,
                        "a loss or layer of one's own computes with its arguments; arrays that "
                        "it brings along are made tensors outside of it");
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

static PyMethodDef tape_methods[] = {
    { "begin", tape_begin, METH_VARARGS, NULL },
    { "release", tape_release, METH_NOARGS, "its tensors get numbers of their own" },
    { "watch", tape_watch, METH_O, NULL },
    { "gradient", tape_gradient, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef tape_getters[] = {
    { "threads", tape_threads, NULL, NULL, NULL },
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
    if (engine_add_type(module, &state->tensor, &tensor_spec) < 0 ||
        engine_add_type(module, &state->gradients, &gradients_spec) < 0 ||
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
