/*
 * engine_models.c - models: from layers, graphs, configs or files; their weights and files.
 * engine_fit.c has fit and its relatives.
 */
#include "nn/shared.h"
#include "tensor/shared.h"
#include "engine.h"

#include <stdlib.h>
#include <string.h>

/* ---- one thread at a time ---- */

static bool is_elsewhere(PyObject *object)
{
    engine_model *self = (engine_model *)object;
    if (self->depth == 0 || self->thread == PyThread_get_thread_ident())
        return false;
    engine_raise(engine_state_of(object),
                 &(uni_error){ .code = UNI_EBUSY,
                               .message = "this model is training or predicting in another "
                                          "thread; a model belongs to one thread at a time" });
    return true;
}

uni_model *engine_model_enter(PyObject *object)
{
    engine_model *self = (engine_model *)object;
    if (is_elsewhere(object))
        return NULL;
    self->thread = PyThread_get_thread_ident();
    self->depth++;
    return self->raw;
}

void engine_model_leave(PyObject *object)
{
    ((engine_model *)object)->depth--;
}

/* ---- constructors ---- */

static engine_model *empty_model(PyObject *type)
{
    engine_model *self = (engine_model *)engine_new((PyTypeObject *)type);
    if (self && !(self->functions = PyList_New(0))) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return self;
}

static void model_dealloc(PyObject *object)
{
    engine_model *self = (engine_model *)object;
    uni_model *raw = self->raw;
    self->raw = NULL;
    Py_BEGIN_ALLOW_THREADS /* replica threads end */
        uni_model_free(raw);
    Py_END_ALLOW_THREADS Py_XDECREF(self->functions);
    engine_free(object);
}

static int check_layer(engine_state *state, PyObject *item)
{
    if (!Py_IS_TYPE(item, state->layer)) {
        door_raise_text(PyExc_TypeError, "not a layer: %R", item);
        return -1;
    }
    if (((engine_layer *)item)->owner) {
        engine_layer *layer = (engine_layer *)item;
        uni_error err = { 0 };
        uni_error_set(&err, UNI_EINVAL, "the layer \"%s\" belongs to a model already",
                      uni_layer_name(layer->raw));
        engine_raise(state, &err);
        return -1;
    }
    return 0;
}

/* sequential(name, layers) */
static PyObject *model_sequential(PyObject *type, PyObject *arguments)
{
    engine_state *state = PyType_GetModuleState((PyTypeObject *)type);
    const char *name;
    PyObject *layers;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "zO!", &name, &PyList_Type, &layers))
        return NULL;
    Py_ssize_t count = PyList_Size(layers);
    for (Py_ssize_t i = 0; i < count; i++)
        if (check_layer(state, PyList_GetItem(layers, i)) < 0)
            return NULL;
    engine_model *self = empty_model(type);
    uni_layer **raw = self ? PyMem_Calloc((size_t)count + 1, sizeof *raw) : NULL;
    if (!raw) {
        Py_XDECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++)
        raw[i] = engine_layer_take(PyList_GetItem(layers, i), (PyObject *)self);
    int status = uni_sequential_new(&self->raw, name, (size_t)count, raw, &err);
    PyMem_Free(raw);
    if (status == 0)
        return (PyObject *)self;
    for (Py_ssize_t i = 0; i < count; i++) /* freed by the failure */
        ((engine_layer *)PyList_GetItem(layers, i))->raw = NULL;
    Py_DECREF((PyObject *)self);
    return engine_raise(state, &err);
}

/* One entry of a graph: ("name", (dtype, shape)) is an input; (Layer, (indices), training) applies
 * a layer, with training True, False or None. NULL with an exception set, or with the error on the
 * graph. */
static uni_symbol *add_node(engine_state *state, uni_graph *graph, PyObject *entry, PyObject *model,
                            uni_symbol **symbols, Py_ssize_t done)
{
    PyObject *what, *how, *training = Py_None;
    uni_spec spec;
    if (!PyTuple_Check(entry) ||
        !PyArg_ParseTuple(entry, "OO!|O", &what, &PyTuple_Type, &how, &training))
        return NULL;
    if (PyUnicode_Check(what)) {
        if (engine_spec_from(how, &spec) < 0)
            return NULL;
        return uni_graph_input(graph, PyUnicode_AsUTF8AndSize(what, NULL), spec.dtype, spec.ndim,
                               spec.dims);
    }
    uni_symbol *inputs[UNI_MODEL_MAX_INPUTS];
    Py_ssize_t count = PyTuple_Size(how);
    if (count > UNI_MODEL_MAX_INPUTS) {
        door_raise_text(PyExc_ValueError, "a layer takes at most %d inputs, got %zd",
                        UNI_MODEL_MAX_INPUTS, count);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GetItem(how, i));
        if (index < 0 || index >= done) {
            PyErr_SetString(PyExc_ValueError, "a layer's input comes after it");
            return NULL;
        }
        inputs[i] = symbols[index];
    }
    engine_layer *layer = (engine_layer *)what;
    if (!Py_IS_TYPE(what, state->layer) || (layer->owner && layer->owner != model)) {
        check_layer(state, what);
        return NULL;
    }
    uni_layer *raw = layer->owner ? layer->raw : engine_layer_take(what, model);
    uni_symbol *symbol = uni_graph_apply_n(graph, raw, (int)count, inputs);
    return training == Py_None ? symbol : uni__symbol_training(symbol, training == Py_True);
}

static int pick(uni_symbol **out, PyObject *list, uni_symbol **symbols, Py_ssize_t total)
{
    Py_ssize_t count = PyList_Size(list);
    for (Py_ssize_t i = 0; i < count && i < UNI_MODEL_MAX_INPUTS; i++) {
        Py_ssize_t index = PyLong_AsSsize_t(PyList_GetItem(list, i));
        if (index < 0 || index >= total) {
            PyErr_SetString(PyExc_ValueError, "no such node");
            return -1;
        }
        out[i] = symbols[index];
    }
    if (count > UNI_MODEL_MAX_INPUTS) {
        door_raise_text(PyExc_ValueError, "at most %d inputs and outputs", UNI_MODEL_MAX_INPUTS);
        return -1;
    }
    return (int)count;
}

/* graph(name, nodes, inputs, outputs): nodes as in add_node, inputs and outputs are indices of
 * nodes */
static PyObject *model_graph(PyObject *type, PyObject *arguments)
{
    engine_state *state = PyType_GetModuleState((PyTypeObject *)type);
    const char *name;
    PyObject *nodes, *inputs, *outputs;
    uni_graph *graph = NULL;
    uni_symbol *in[UNI_MODEL_MAX_INPUTS] = { NULL }, *out[UNI_MODEL_MAX_INPUTS] = { NULL };
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "zO!O!O!", &name, &PyList_Type, &nodes, &PyList_Type, &inputs,
                          &PyList_Type, &outputs))
        return NULL;
    Py_ssize_t count = PyList_Size(nodes);
    engine_model *self = empty_model(type);
    uni_symbol **symbols = self ? PyMem_Calloc((size_t)count + 1, sizeof *symbols) : NULL;
    if (!symbols || uni_graph_new(&graph, &err) < 0) {
        PyMem_Free(symbols);
        Py_XDECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++)
        symbols[i] = add_node(state, graph, PyList_GetItem(nodes, i), (PyObject *)self, symbols, i);
    int num_in = PyErr_Occurred() ? -1 : pick(in, inputs, symbols, count);
    int num_out = num_in < 0 ? -1 : pick(out, outputs, symbols, count);
    PyMem_Free(symbols);
    if (num_out < 0)
        uni_graph_free(graph);
    else if (uni_model_from_graph(&self->raw, name, graph, num_in, in, num_out, out, &err) < 0)
        engine_raise(state, &err);
    if (!PyErr_Occurred())
        return (PyObject *)self;
    for (Py_ssize_t i = 0; i < count; i++) { /* their layers were freed with the graph */
        PyObject *entry = PyList_GetItem(nodes, i);
        PyObject *what = PyTuple_Check(entry) ? PyTuple_GetItem(entry, 0) : NULL;
        if (what && Py_IS_TYPE(what, state->layer) &&
            ((engine_layer *)what)->owner == (PyObject *)self)
            ((engine_layer *)what)->raw = NULL;
    }
    Py_DECREF((PyObject *)self);
    return NULL;
}

static PyObject *model_from_config(PyObject *type, PyObject *object)
{
    engine_state *state = PyType_GetModuleState((PyTypeObject *)type);
    uni_error err = { 0 };
    uni_value *config = door_value_from(&state->door, object, NULL);
    engine_model *self = config ? empty_model(type) : NULL;
    int status = self ? uni__model_read_config(&self->raw, config, &err) : 0;
    uni_value_free(config);
    if (status == 0)
        return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return engine_raise(state, &err);
}

static PyObject *model_load(PyObject *type, PyObject *arguments)
{
    engine_state *state = PyType_GetModuleState((PyTypeObject *)type);
    const char *path;
    uni_error err = { 0 };
    int status;
    if (!PyArg_ParseTuple(arguments, "s", &path))
        return NULL;
    engine_model *self = empty_model(type);
    if (!self)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_model_load(&self->raw, path, &err);
    Py_END_ALLOW_THREADS if (status == 0) return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return engine_raise(state, &err);
}

/* as_layer(): the model as a layer of another one; this object is empty afterwards */
static PyObject *model_as_layer(PyObject *object, PyObject *unused)
{
    engine_model *self = (engine_model *)object;
    if (!engine_model_enter(object))
        return NULL;
    engine_model_leave(object);
    uni_layer *layer = uni_model_as_layer(self->raw);
    self->raw = NULL;
    PyObject *out =
        layer ? engine_layer_wrap(engine_state_of(object), layer, NULL) : PyErr_NoMemory();
    if (!out)
        uni_layer_free(layer);
    return out;
}

/* ---- queries ---- */

static PyObject *model_build(PyObject *object, PyObject *specs)
{
    uni_spec inputs[UNI_MODEL_MAX_INPUTS];
    uni_error err = { 0 };
    uni_model *raw = engine_model_enter(object);
    if (!raw)
        return NULL;
    Py_ssize_t count = PyList_Check(specs) ? PyList_Size(specs) : -1;
    if (count < 1 || count > UNI_MODEL_MAX_INPUTS)
        PyErr_SetString(PyExc_ValueError, "build needs a list of (dtype, shape)");
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++)
        engine_spec_from(PyList_GetItem(specs, i), &inputs[i]);
    if (!PyErr_Occurred() && uni_model_build(raw, (int)count, inputs, &err) < 0)
        engine_raise(engine_state_of(object), &err);
    engine_model_leave(object);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *model_layers(PyObject *object, PyObject *unused)
{
    engine_model *self = (engine_model *)object;
    size_t count = uni_model_num_layers(self->raw);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *item =
            engine_layer_wrap(engine_state_of(object), uni_model_layer(self->raw, i), object);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *model_set_seed(PyObject *object, PyObject *seed)
{
    unsigned long long number = PyLong_AsUnsignedLongLongMask(seed);
    if (PyErr_Occurred())
        return NULL;
    uni_model_set_seed(((engine_model *)object)->raw, number);
    Py_RETURN_NONE;
}

static PyObject *model_summary(PyObject *object, PyObject *unused)
{
    char *text = NULL;
    uni_error err = { 0 };
    if (uni_model_summary(&text, ((engine_model *)object)->raw, &err) < 0)
        return engine_raise(engine_state_of(object), &err);
    PyObject *out = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    free(text);
    return out;
}

static PyObject *model_specs(PyObject *object, void *outputs)
{
    uni_model *raw = ((engine_model *)object)->raw;
    int count = !uni__model_is_built(raw) ? 0
                : outputs                 ? uni__model_num_outputs(raw)
                                          : uni__model_num_inputs(raw);
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        PyObject *item = engine_spec_to(outputs ? uni__model_output_spec(raw, i)
                                                : uni__model_input_spec(raw, i));
        if (!item || PyList_SetItem(list, i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *model_name(PyObject *object, void *unused)
{
    return PyUnicode_FromString(uni__model_name(((engine_model *)object)->raw));
}

static PyObject *model_built(PyObject *object, void *unused)
{
    return PyBool_FromLong(uni__model_is_built(((engine_model *)object)->raw));
}

static PyObject *model_store(PyObject *object, void *unused)
{
    return PyLong_FromVoidPtr(uni_model_parameters(((engine_model *)object)->raw));
}

/* ---- weights and files ---- */

static PyObject *give(PyObject *object, int (*get)(uni_value **, const uni_model *, uni_error *))
{
    engine_state *state = engine_state_of(object);
    uni_value *value = NULL;
    uni_error err = { 0 };
    uni_model *raw = engine_model_enter(object);
    if (!raw)
        return NULL;
    int status = get(&value, raw, &err);
    engine_model_leave(object);
    if (status < 0)
        return engine_raise(state, &err);
    PyObject *out = door_value_to(&state->door, value);
    uni_value_free(value);
    return out;
}

static PyObject *put(PyObject *object, PyObject *plain,
                     int (*set)(uni_model *, const uni_value *, uni_error *))
{
    engine_state *state = engine_state_of(object);
    uni_error err = { 0 };
    uni_value *value = door_value_from(&state->door, plain, NULL);
    uni_model *raw = value ? engine_model_enter(object) : NULL;
    if (!raw) {
        uni_value_free(value);
        return NULL;
    }
    int status = set(raw, value, &err);
    engine_model_leave(object);
    uni_value_free(value);
    if (status < 0)
        return engine_raise(state, &err);
    Py_RETURN_NONE;
}

static PyObject *model_get_weights(PyObject *object, PyObject *unused)
{
    return give(object, uni_model_get_weights);
}

static PyObject *model_get_state(PyObject *object, PyObject *unused)
{
    return give(object, uni_model_get_state);
}

static PyObject *model_get_config(PyObject *object, PyObject *unused)
{
    return give(object, uni__model_get_config);
}

static PyObject *model_set_weights(PyObject *object, PyObject *weights)
{
    return put(object, weights, uni_model_set_weights);
}

static PyObject *model_set_state(PyObject *object, PyObject *weights)
{
    return put(object, weights, uni_model_set_state);
}

/* save_fit_state(path): inside fit; writes a directory like uni_checkpoint_write_dict */
static PyObject *model_save_fit_state(PyObject *object, PyObject *arguments)
{
    const char *path;
    uni_error err = { 0 };
    uni_value *state = NULL;
    if (!PyArg_ParseTuple(arguments, "s", &path))
        return NULL;
    int status = uni__model_get_fit_state(((engine_model *)object)->raw, &state, &err);
    if (status == 0)
        status = uni_checkpoint_write_dict(path, state, &err);
    uni_value_free(state);
    if (status < 0)
        return engine_raise(engine_state_of(object), &err);
    Py_RETURN_NONE;
}

/* load_fit_state(path): for the next fit, or in its on_train_begin; returns the first epoch of its
 * history */
static PyObject *model_load_fit_state(PyObject *object, PyObject *arguments)
{
    const char *path;
    uni_error err = { 0 };
    uni_checkpoint *file = NULL;
    uni_value *state = NULL;
    if (!PyArg_ParseTuple(arguments, "s", &path))
        return NULL;
    int status = uni_checkpoint_open(&file, path, &err);
    if (status == 0)
        status = uni_checkpoint_read_dict(&state, file, &err);
    if (status == 0)
        status = uni__model_set_fit_state(((engine_model *)object)->raw, state, &err);
    long first = (long)uni_dict_get_int(state, "first_epoch", 0);
    uni_checkpoint_close(file);
    uni_value_free(state);
    return status < 0 ? engine_raise(engine_state_of(object), &err) : PyLong_FromLong(first);
}

static PyObject *use_file(PyObject *object, PyObject *arguments, bool save)
{
    const char *path;
    uni_error err = { 0 };
    int status;
    if (!PyArg_ParseTuple(arguments, "s", &path))
        return NULL;
    uni_model *raw = engine_model_enter(object);
    if (!raw)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status =
        save ? uni_model_save(raw, path, &err) : uni_model_load_weights(raw, path, &err);
    Py_END_ALLOW_THREADS engine_model_leave(object);
    if (status < 0)
        return engine_raise(engine_state_of(object), &err);
    Py_RETURN_NONE;
}

static PyObject *model_save(PyObject *object, PyObject *arguments)
{
    return use_file(object, arguments, true);
}

static PyObject *model_load_weights(PyObject *object, PyObject *arguments)
{
    return use_file(object, arguments, false);
}

/* ---- on a tape ---- */

/* call(tape, inputs, training): a list of tensors */
static PyObject *model_call(PyObject *object, PyObject *arguments)
{
    engine_model *self = (engine_model *)object;
    PyObject *tape, *list;
    int training;
    uni_tensor *inputs[UNI_MODEL_MAX_INPUTS], *outputs[UNI_MODEL_MAX_INPUTS] = { NULL };
    engine_state *state = engine_state_of(object);
    if (!PyArg_ParseTuple(arguments, "O!O!p", state->tape, &tape, &PyList_Type, &list, &training))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    bool built = uni__model_is_built(self->raw);
    if (is_elsewhere(object))
        return NULL;
    if (count < 1 || count > UNI_MODEL_MAX_INPUTS ||
        (built && count != uni__model_num_inputs(self->raw))) {
        uni_error err = { 0 };
        uni_error_set(&err, UNI_EINVAL, "model %s has %d inputs, got %zd",
                      uni__model_name(self->raw), built ? uni__model_num_inputs(self->raw) : 1,
                      count);
        return engine_raise(state, &err);
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!(inputs[i] = engine_tensor_arg(tape, PyList_GetItem(list, i))))
            return NULL;
    uni_tape *raw = engine_tape_of(tape);
    int status;
    bool as_step = uni__tape_set_training(raw, training);
    if (built) {
        Py_BEGIN_ALLOW_THREADS status = uni_model_call_n(self->raw, raw, inputs, outputs);
        Py_END_ALLOW_THREADS
    } else { /* this builds it, so no other thread may use it */
        status = uni_model_call_n(self->raw, raw, inputs, outputs);
    }
    uni__tape_set_training(raw, as_step);
    int num_outputs = status < 0 ? 1 : uni__model_num_outputs(self->raw);
    PyObject *out = PyList_New(num_outputs);
    for (int i = 0; out && i < num_outputs; i++) {
        PyObject *item = engine_tensor_wrap(tape, outputs[i]);
        if (!item || PyList_SetItem(out, i, item) < 0) {
            Py_DECREF(out);
            return NULL;
        }
    }
    return out;
}

static PyObject *model_regularization(PyObject *object, PyObject *tape)
{
    if (!Py_IS_TYPE(tape, engine_state_of(object)->tape))
        return door_raise_text(PyExc_TypeError, "regularization needs a tape");
    return engine_tensor_wrap(
        tape, uni_model_regularization(((engine_model *)object)->raw, engine_tape_of(tape)));
}

static PyMethodDef methods[] = {
    { "sequential", model_sequential, METH_VARARGS | METH_CLASS, NULL },
    { "graph", model_graph, METH_VARARGS | METH_CLASS, NULL },
    { "from_config", model_from_config, METH_O | METH_CLASS, NULL },
    { "load", model_load, METH_VARARGS | METH_CLASS, NULL },
    { "as_layer", model_as_layer, METH_NOARGS, NULL },
    { "build", model_build, METH_O, NULL },
    { "layers", model_layers, METH_NOARGS, NULL },
    { "set_seed", model_set_seed, METH_O, NULL },
    { "summary", model_summary, METH_NOARGS, NULL },
    { "get_weights", model_get_weights, METH_NOARGS, NULL },
    { "set_weights", model_set_weights, METH_O, NULL },
    { "get_state", model_get_state, METH_NOARGS, NULL },
    { "set_state", model_set_state, METH_O, NULL },
    { "save_fit_state", model_save_fit_state, METH_VARARGS, NULL },
    { "load_fit_state", model_load_fit_state, METH_VARARGS, NULL },
    { "get_config", model_get_config, METH_NOARGS, NULL },
    { "save", model_save, METH_VARARGS, NULL },
    { "load_weights", model_load_weights, METH_VARARGS, NULL },
    { "call", model_call, METH_VARARGS, NULL },
    { "regularization", model_regularization, METH_O, NULL },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef getters[] = {
    { "name", model_name, NULL, NULL, NULL },
    { "built", model_built, NULL, NULL, NULL },
    { "store", model_store, NULL, "tells stores of parameters apart", NULL },
    { "inputs", model_specs, NULL, "[(dtype, shape)]", NULL },
    { "outputs", model_specs, NULL, "[(dtype, shape)]", (void *)1 },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_dealloc, model_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, getters },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._engine.Model", sizeof(engine_model), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots };

static int add_fit_methods(engine_state *state)
{
    for (PyMethodDef *method = engine_fit_methods; method->ml_name; method++) {
        PyObject *made = PyDescr_NewMethod(state->model, method);
        int status =
            made ? PyObject_SetAttrString((PyObject *)state->model, method->ml_name, made) : -1;
        Py_XDECREF(made);
        if (status < 0)
            return -1;
    }
    return 0;
}

int engine_models_init(PyObject *module, engine_state *state)
{
    return engine_add_type(module, &state->model, &spec) < 0 ? -1 : add_fit_methods(state);
}
