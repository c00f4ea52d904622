/*
 * engine_tensors.c - tensors and gradients as Python objects.
 *
 * The engine's tensors live until their tape begins its next step; Python's live as long as they
 * are referenced. So a tape tracks the Python tensors of its step. When it begins a new step, it
 * copies the numbers of those that are still alive (the loss that a loop sums, the predictions that
 * it prints); all others cost nothing.
 *
 * Gradients are views of the flat buffer that uni_tape_gradient fills, so that an optimizer that
 * gets them back unchanged uses the buffer itself. A buffer with live views is not reused; the tape
 * then allocates another.
 */
#include "engine.h"
#include "tensor/shared.h"

/* ---- tensors ---- */

void engine_tensor_unlink(engine_tensor *self)
{
    if (!self->link)
        return;
    *self->link = self->next;
    if (self->next)
        self->next->link = self->link;
    self->link = NULL;
    self->next = NULL;
}

PyObject *engine_tensor_link(engine_tape *tape, uni_tensor *raw)
{
    engine_state *state = engine_state_of((PyObject *)tape);
    engine_tensor *self = (engine_tensor *)engine_new(state->tensor);
    if (!self)
        return NULL;
    self->raw = raw;
    self->tape = tape; /* not counted: the tape releases its tensors before it ends */
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
        return engine_tensor_link((engine_tape *)tape, raw);
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

/* Copies its numbers into an array of its own; 0, or -1 with an exception. */
int engine_tensor_own(engine_tensor *self)
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

int engine_tensor_own_all(engine_tensor *self)
{
    uni_error err = { 0 };
    const uni_tensor *logits = self->raw && !self->logits ? uni__tensor_logits(self->raw) : NULL;
    if (engine_tensor_own(self) < 0)
        return -1;
    if (logits && uni_tensor_to_array(&self->logits, logits, &err) < 0) {
        engine_raise(engine_state_of((PyObject *)self), &err);
        return -1;
    }
    return 0;
}

uni_array *engine_tensor_array(PyObject *tensor)
{
    engine_tensor *self = (engine_tensor *)tensor;
    if (engine_tensor_own(self) < 0)
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
    return door_raise_text(PyExc_TypeError, "a tensor is made of an Array or of Strings");
}

static void tensor_dealloc(PyObject *object)
{
    engine_tensor *self = (engine_tensor *)object;
    engine_tensor_unlink(self);
    uni_array_unref(self->array);
    uni_array_unref(self->logits);
    Py_XDECREF(self->strings);
    if (self->gradients)
        ((engine_gradients *)self->gradients)->views--;
    Py_XDECREF(self->gradients);
    engine_free(object);
}

static PyObject *tensor_array(PyObject *object, PyObject *unused)
{
    engine_tensor *self = (engine_tensor *)object;
    if (engine_tensor_own(self) < 0)
        return NULL;
    return self->strings ? Py_NewRef(self->strings)
                         : door_array_wrap(&engine_state_of(object)->door, self->array);
}

static int tensor_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    return engine_getbuffer_of(tensor_array(object, NULL), view, flags);
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

engine_gradients *engine_gradients_new(engine_state *state, PyObject *model)
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
PyObject *engine_gradient_of(engine_state *state, engine_gradients *self, uni_parameter *parameter)
{
    uni_array *array = NULL;
    uni_error err = { 0 };
    float *data = uni_gradients_of(self->raw, parameter);
    if (!data || uni_parameter_info_of(parameter)->is_frozen)
        Py_RETURN_NONE;
    if (uni_array_view(&array, UNI_F32, uni_parameter_info_of(parameter)->ndim,
                       uni_parameter_info_of(parameter)->shape, data, release_gradients, self,
                       &err) < 0)
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

/* flat(): the whole buffer, for replicas that sum theirs */
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

int engine_tensors_init(PyObject *module, engine_state *state)
{
    return engine_add_type(module, &state->tensor, &tensor_spec) < 0
               ? -1
               : engine_add_type(module, &state->gradients, &gradients_spec);
}
