/*
 * engine_layers.c - layers and parameters. A layer is created from Keras's class name and config
 * (as in a file), so that every layer of the engine is available without code of its own. A
 * parameter's numbers are shared with NumPy, not copied.
 */
#include "base/shared.h"
#include "nn/shared.h"
#include "engine.h"

#include <string.h>

/* ---- types and shapes ---- */

int engine_dtype_from(const char *name)
{
    if (strcmp(name, "string") == 0)
        return (int)UNI_STRING;
    int dtype = uni__dtype_from_name(name);
    if (!dtype)
        door_raise_text(PyExc_TypeError, "there is no element type \"%s\"", name);
    return dtype;
}

const char *engine_dtype_name(uni_dtype dtype)
{
    return dtype == UNI_STRING ? "string" : uni_dtype_name(dtype);
}

PyObject *engine_shape_to(int ndim, const int64_t *shape)
{
    PyObject *tuple = PyTuple_New(ndim);
    for (int i = 0; tuple && i < ndim; i++) {
        PyObject *item = shape[i] < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(shape[i]);
        if (!item || PyTuple_SetItem(tuple, i, item) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

int engine_spec_from(PyObject *object, uni_spec *out)
{
    const char *name;
    PyObject *shape;
    memset(out, 0, sizeof *out);
    if (!PyTuple_Check(object) || !PyArg_ParseTuple(object, "sO!", &name, &PyTuple_Type, &shape))
        return -1;
    int dtype = engine_dtype_from(name);
    Py_ssize_t ndim = PyTuple_Size(shape);
    if (!dtype)
        return -1;
    if (ndim > UNI_TENSOR_MAX_DIMS) {
        door_raise_text(PyExc_ValueError, "at most %d dimensions, got %zd", UNI_TENSOR_MAX_DIMS,
                        ndim);
        return -1;
    }
    out->dtype = (uni_dtype)dtype;
    out->ndim = (int)ndim;
    for (Py_ssize_t i = 0; i < ndim; i++) {
        PyObject *item = PyTuple_GetItem(shape, i);
        out->dims[i] = item == Py_None ? -1 : PyLong_AsLongLong(item);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

PyObject *engine_spec_to(const uni_spec *spec)
{
    if (!spec)
        Py_RETURN_NONE;
    return Py_BuildValue("(sN)", engine_dtype_name(spec->dtype),
                         engine_shape_to(spec->ndim, spec->dims));
}

/* ---- parameters ---- */

PyObject *engine_parameter_wrap(engine_state *state, uni_parameter *raw, uni_parameters *store,
                                PyObject *owner)
{
    engine_parameter *self = (engine_parameter *)engine_new(state->parameter);
    if (self) {
        self->raw = raw;
        self->store = store;
        self->owner = Py_XNewRef(owner);
    }
    return (PyObject *)self;
}

/* Parameter(name, shape): a variable outside any model */
static PyObject *parameter_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    engine_state *state = PyType_GetModuleState(type);
    const char *name;
    PyObject *shape, *pair;
    uni_spec spec;
    uni_parameters *store = NULL;
    uni_parameter *raw = NULL;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "sO", &name, &shape) ||
        !(pair = Py_BuildValue("(sO)", "float32", shape)))
        return NULL;
    int status = engine_spec_from(pair, &spec);
    Py_DECREF(pair);
    if (status < 0)
        return NULL;
    if (uni_parameters_new(&store, &err) < 0 ||
        uni_parameters_add(&raw, store, name, UNI_PARAMETER_WEIGHT, spec.ndim, spec.dims, &err) <
            0) {
        uni_parameters_free(store);
        return engine_raise(state, &err);
    }
    PyObject *self = engine_parameter_wrap(state, raw, store, NULL);
    if (!self)
        uni_parameters_free(store);
    return self;
}

static void parameter_dealloc(PyObject *object)
{
    engine_parameter *self = (engine_parameter *)object;
    if (!self->owner)
        uni_parameters_free(self->store);
    Py_XDECREF(self->owner);
    engine_free(object);
}

static void release_parameter(void *object)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)object);
    PyGILState_Release(gil);
}

/* The weights themselves: writing to the array changes them. */
static PyObject *parameter_array(PyObject *object, PyObject *unused)
{
    engine_parameter *self = (engine_parameter *)object;
    engine_state *state = engine_state_of(object);
    uni_array *array = NULL;
    uni_error err = { 0 };
    if (uni_array_view(&array, UNI_F32, uni_parameter_info_of(self->raw)->ndim,
                       uni_parameter_info_of(self->raw)->shape, uni_parameter_data(self->raw),
                       release_parameter, object, &err) < 0)
        return engine_raise(state, &err);
    Py_INCREF(object);
    PyObject *out = door_array_wrap(&state->door, array);
    uni_array_unref(array);
    return out;
}

static int parameter_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    return engine_getbuffer_of(parameter_array(object, NULL), view, flags);
}

static PyObject *parameter_name(PyObject *object, void *unused)
{
    return PyUnicode_FromString(uni_parameter_info_of(((engine_parameter *)object)->raw)->name);
}

static PyObject *parameter_shape(PyObject *object, void *unused)
{
    uni_parameter *raw = ((engine_parameter *)object)->raw;
    return engine_shape_to(uni_parameter_info_of(raw)->ndim, uni_parameter_info_of(raw)->shape);
}

static PyObject *parameter_trainable(PyObject *object, void *unused)
{
    return PyBool_FromLong(!uni_parameter_info_of(((engine_parameter *)object)->raw)->is_frozen);
}

static PyObject *parameter_is_state(PyObject *object, void *unused)
{
    return PyBool_FromLong(uni_parameter_info_of(((engine_parameter *)object)->raw)->kind ==
                           UNI_PARAMETER_STATE);
}

static PyObject *parameter_store(PyObject *object, void *unused)
{
    return PyLong_FromVoidPtr(((engine_parameter *)object)->store);
}

static PyObject *parameter_handle(PyObject *object, void *unused)
{
    return PyLong_FromVoidPtr(((engine_parameter *)object)->raw);
}

static PyMethodDef parameter_methods[] = {
    { "array", parameter_array, METH_NOARGS, "its numbers, shared" },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef parameter_getters[] = {
    { "name", parameter_name, NULL, NULL, NULL },
    { "shape", parameter_shape, NULL, NULL, NULL },
    { "trainable", parameter_trainable, NULL, NULL, NULL },
    { "is_state", parameter_is_state, NULL, NULL, NULL },
    { "store", parameter_store, NULL, "tells stores apart", NULL },
    { "handle", parameter_handle, NULL, "tells parameters apart", NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot parameter_slots[] = {
    { Py_tp_new, parameter_new },
    { Py_tp_dealloc, parameter_dealloc },
    { Py_tp_methods, parameter_methods },
    { Py_tp_getset, parameter_getters },
    { Py_bf_getbuffer, parameter_getbuffer },
    { 0, NULL },
};
static PyType_Spec parameter_spec = { "unisono._engine.Parameter", sizeof(engine_parameter), 0,
                                      Py_TPFLAGS_DEFAULT, parameter_slots };

/* ---- layers ---- */

PyObject *engine_layer_wrap(engine_state *state, uni_layer *raw, PyObject *owner)
{
    engine_layer *self = (engine_layer *)engine_new(state->layer);
    if (self) {
        self->raw = raw;
        self->owner = Py_XNewRef(owner);
    }
    return (PyObject *)self;
}

uni_layer *engine_layer_take(PyObject *object, PyObject *owner)
{
    engine_layer *self = (engine_layer *)object;
    self->owner = Py_NewRef(owner);
    return self->raw;
}

static uni_layer *sentence_layer(const uni_value *config, const char *vectors)
{
    uni_layer *layer = uni_layer_sentence_embedding(
        uni_dict_get_int(config, "output_dim", 0),
        &(uni_sentence_options){
            .vectors = vectors,
            .buckets = uni_dict_get_int(config, "buckets", 0),
            .frozen = !uni_dict_get_bool(config, "trainable", true),
            .mean = strcmp(uni_dict_get_string(config, "combiner", "sqrtn"), "mean") == 0 });
    return uni_layer_named(layer, uni_dict_get_string(config, "name", "sentence_embedding"));
}

/* Keras passes use_causal_mask to the call; the engine's layer has it from the start. */
static uni_layer *causal_attention(const uni_value *config)
{
    uni_layer *layer = uni_layer_multi_head_attention(
        (int)uni_dict_get_int(config, "num_heads", 0), uni_dict_get_int(config, "key_dim", 0),
        &(uni_attention_options){ .value_dim = uni_dict_get_int(config, "value_dim", 0),
                                  .dropout = (float)uni_dict_get_float(config, "dropout", 0),
                                  .no_bias = !uni_dict_get_bool(config, "use_bias", true),
                                  .causal = true });
    const char *name = uni_dict_get_string(config, "name", NULL);
    return name ? uni_layer_named(layer, name) : layer;
}

/* Layer(class_name, config): as Keras writes them. SentenceEmbedding also takes "vectors", the path
 * of a file, which model files never contain; MultiHeadAttention takes use_causal_mask. */
static PyObject *layer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    engine_state *state = PyType_GetModuleState(type);
    const char *class_name;
    PyObject *object;
    uni_layer *raw = NULL;
    uni_error err = { 0 };
    int status = 0;
    if (!PyArg_ParseTuple(arguments, "sO", &class_name, &object))
        return NULL;
    uni_value *config = door_value_from(&state->door, object, NULL);
    if (!config)
        return NULL;
    const char *vectors = uni_dict_get_string(config, "vectors", NULL);
    if (vectors && strcmp(class_name, "SentenceEmbedding") == 0) {
        raw = sentence_layer(config, vectors);
        status = raw ? 0 : uni_error_set(&err, UNI_ENOMEM, "no memory for a layer");
    } else if (uni_dict_get_bool(config, "use_causal_mask", false)) {
        raw = causal_attention(config);
        status = raw ? 0 : uni_error_set(&err, UNI_ENOMEM, "no memory for a layer");
    } else {
        status = uni__layer_from_config(&raw, class_name, config, &err);
    }
    uni_value_free(config);
    if (status < 0)
        return engine_raise(state, &err);
    PyObject *self = engine_layer_wrap(state, raw, NULL);
    if (!self)
        uni_layer_free(raw);
    return self;
}

static void layer_dealloc(PyObject *object)
{
    engine_layer *self = (engine_layer *)object;
    if (!self->owner)
        uni_layer_free(self->raw);
    Py_XDECREF(self->owner);
    engine_free(object);
}

static PyObject *layer_get_config(PyObject *object, PyObject *unused)
{
    engine_state *state = engine_state_of(object);
    uni_value *config = NULL;
    uni_error err = { 0 };
    if (uni__layer_get_config(((engine_layer *)object)->raw, &config, &err) < 0)
        return engine_raise(state, &err);
    PyObject *out = door_value_to(&state->door, config);
    uni_value_free(config);
    return out;
}

static PyObject *layer_adapt(PyObject *object, PyObject *data)
{
    engine_state *state = engine_state_of(object);
    uni_layer *raw = ((engine_layer *)object)->raw;
    engine_column column;
    uni_error err = { 0 };
    int status;
    if (engine_column_from(state, &column, data) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_layer_adapt(raw, &column.column, &err);
    Py_END_ALLOW_THREADS engine_column_clear(&column);
    if (status < 0)
        return engine_raise(state, &err);
    Py_RETURN_NONE;
}

static PyObject *layer_vocabulary(PyObject *object, PyObject *unused)
{
    size_t size = 0;
    const char *const *words = uni_layer_vocabulary(((engine_layer *)object)->raw, &size);
    PyObject *list = PyList_New(words ? (Py_ssize_t)size : 0);
    for (size_t i = 0; list && words && i < size; i++) {
        PyObject *word = PyUnicode_DecodeUTF8(words[i], (Py_ssize_t)strlen(words[i]), "replace");
        if (!word || PyList_SetItem(list, (Py_ssize_t)i, word) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *layer_parameters(PyObject *object, PyObject *unused)
{
    engine_layer *self = (engine_layer *)object;
    engine_state *state = engine_state_of(object);
    /* While its model is under construction there is no store yet. */
    uni_model *model = self->owner ? ((engine_model *)self->owner)->raw : NULL;
    bool built = model && uni__layer_is_built(self->raw);
    size_t count = built ? uni_layer_num_parameters(self->raw) : 0;
    uni_parameters *store = built ? uni_model_parameters(model) : NULL;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *item =
            engine_parameter_wrap(state, uni_layer_parameter(self->raw, i), store, self->owner);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *layer_children(PyObject *object, PyObject *unused)
{
    engine_layer *self = (engine_layer *)object;
    size_t count = self->owner ? uni__layer_num_children(self->raw) : 0;
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *item =
            engine_layer_wrap(engine_state_of(object), uni__layer_child(self->raw, i), self->owner);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *layer_name(PyObject *object, void *unused)
{
    const char *name = uni_layer_name(((engine_layer *)object)->raw);
    return PyUnicode_FromString(name ? name : "");
}

static PyObject *layer_class_name(PyObject *object, void *unused)
{
    return PyUnicode_FromString(uni__layer_class_of(((engine_layer *)object)->raw)->name);
}

static PyObject *layer_output(PyObject *object, void *unused)
{
    return engine_spec_to(uni__layer_output(((engine_layer *)object)->raw));
}

static PyObject *layer_is(PyObject *object, void *which)
{
    engine_layer *self = (engine_layer *)object;
    return PyBool_FromLong(which == NULL        ? uni__layer_is_trainable(self->raw)
                           : which == (void *)1 ? uni__layer_is_built(self->raw)
                                                : self->owner != NULL);
}

static int layer_set_trainable(PyObject *object, PyObject *value, void *unused)
{
    int truth = value ? PyObject_IsTrue(value) : -1;
    if (truth < 0)
        return -1;
    uni_layer_trainable(((engine_layer *)object)->raw, truth);
    return 0;
}

/* move(model): its model has become part of this one */
static PyObject *layer_move(PyObject *object, PyObject *model)
{
    if (!Py_IS_TYPE(model, engine_state_of(object)->model))
        return door_raise_text(PyExc_TypeError, "not a model: %R", model);
    engine_replace(&((engine_layer *)object)->owner, Py_NewRef(model));
    Py_RETURN_NONE;
}

static PyMethodDef layer_methods[] = {
    { "own", engine_layer_own, METH_VARARGS | METH_CLASS, "a layer of the user's own" },
    { "add_weight", engine_layer_add_weight, METH_VARARGS, NULL },
    { "add_child", engine_layer_add_child, METH_VARARGS, NULL },
    { "move", layer_move, METH_O, NULL },
    { "get_config", layer_get_config, METH_NOARGS, NULL },
    { "adapt", layer_adapt, METH_O, NULL },
    { "vocabulary", layer_vocabulary, METH_NOARGS, NULL },
    { "parameters", layer_parameters, METH_NOARGS, NULL },
    { "children", layer_children, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef layer_getters[] = {
    { "name", layer_name, NULL, NULL, NULL },
    { "class_name", layer_class_name, NULL, NULL, NULL },
    { "output", layer_output, NULL, "(dtype, shape), or None before build", NULL },
    { "trainable", layer_is, layer_set_trainable, NULL, NULL },
    { "built", layer_is, NULL, NULL, (void *)1 },
    { "taken", layer_is, NULL, "a model has it", (void *)2 },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot layer_slots[] = {
    { Py_tp_new, layer_new },
    { Py_tp_dealloc, layer_dealloc },
    { Py_tp_methods, layer_methods },
    { Py_tp_getset, layer_getters },
    { 0, NULL },
};
static PyType_Spec layer_spec = { "unisono._engine.Layer", sizeof(engine_layer), 0,
                                  Py_TPFLAGS_DEFAULT, layer_slots };

int engine_layers_init(PyObject *module, engine_state *state)
{
    return engine_add_type(module, &state->parameter, &parameter_spec) < 0
               ? -1
               : engine_add_type(module, &state->layer, &layer_spec);
}
