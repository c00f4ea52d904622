/*
 * engine_fit.c - compile, fit, evaluate, predict and steps on single batches: converts Python's
 * arguments to uni_fit_options and calls without the GIL.
 */
#include "nn/shared.h"
#include "engine.h"

#include <string.h>

/* ---- compile ---- */

static int is_of(PyObject *item, PyTypeObject *type, const char *what)
{
    if (Py_IS_TYPE(item, type))
        return 0;
    door_raise_text(PyExc_TypeError, "not %s: %R", what, item);
    return -1;
}

/* A user function lives as long as the model. */
static int keep_function(PyObject *model, PyObject *function)
{
    return function ? PyList_Append(((engine_model *)model)->functions, function) : 0;
}

static int take_losses(engine_state *state, PyObject *model, PyObject *list, uni_loss **out)
{
    Py_ssize_t count = PyList_Size(list);
    if (count > UNI_MODEL_MAX_INPUTS) {
        door_raise_text(PyExc_ValueError, "at most %d losses", UNI_MODEL_MAX_INPUTS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (is_of(PyList_GetItem(list, i), state->loss, "a loss") < 0)
            return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        engine_loss *loss = (engine_loss *)PyList_GetItem(list, i);
        if (keep_function(model, loss->function) < 0)
            return -1;
        out[i] = loss->raw;
        loss->raw = NULL;
    }
    return (int)count;
}

enum { MAX_METRICS = 64 };

/* [(Metric, output, whether it is weighted)] */
static int take_metrics(engine_state *state, PyObject *model, PyObject *list, uni_metric **out,
                        int *outputs, bool *weighted)
{
    Py_ssize_t count = PyList_Size(list);
    if (count > MAX_METRICS) {
        door_raise_text(PyExc_ValueError, "at most %d metrics", MAX_METRICS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *metric, *item = PyList_GetItem(list, i);
        int is_weighted = 0;
        if (!PyTuple_Check(item) ||
            !PyArg_ParseTuple(item, "O!ip", state->metric, &metric, &outputs[i], &is_weighted))
            return -1;
        weighted[i] = is_weighted;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        engine_metric *metric = (engine_metric *)PyTuple_GetItem(PyList_GetItem(list, i), 0);
        if (keep_function(model, metric->function) < 0)
            return -1;
        out[i] = metric->raw;
        metric->raw = NULL;
    }
    return (int)count;
}

static int read_weights(PyObject *object, float *out)
{
    if (object == Py_None)
        return 0;
    Py_ssize_t count = PyList_Check(object) ? PyList_Size(object) : -1;
    if (count < 0 || count > UNI_MODEL_MAX_INPUTS) {
        PyErr_SetString(PyExc_ValueError, "loss_weights is a list of numbers, one an output");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        out[i] = (float)PyFloat_AsDouble(PyList_GetItem(object, i));
    return PyErr_Occurred() ? -1 : (int)count;
}

/* The object now borrows the optimizer from the model; the previous one loses its own. */
static void give_optimizer(PyObject *model, PyObject *optimizer)
{
    engine_model *self = (engine_model *)model;
    if (self->optimizer)
        ((engine_optimizer *)self->optimizer)->raw = NULL;
    self->optimizer = optimizer;
    ((engine_optimizer *)optimizer)->owner = Py_NewRef(model);
}

/* compile(optimizer, losses, loss_weights, metrics, accumulation): takes over their contents */
static PyObject *model_compile(PyObject *object, PyObject *arguments)
{
    engine_state *state = engine_state_of(object);
    PyObject *optimizer, *losses, *weights, *metrics;
    uni_compile_options options = { 0 };
    uni_loss *loss[UNI_MODEL_MAX_INPUTS];
    uni_metric *metric[MAX_METRICS];
    int outputs[MAX_METRICS];
    bool weighted[MAX_METRICS];
    float loss_weights[UNI_MODEL_MAX_INPUTS] = { 0 };
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "O!O!OO!i", state->optimizer, &optimizer, &PyList_Type,
                          &losses, &weights, &PyList_Type, &metrics,
                          &options.gradient_accumulation_steps))
        return NULL;
    engine_optimizer *taken = (engine_optimizer *)optimizer;
    if (!taken->raw || taken->owner)
        return door_raise_text(PyExc_ValueError, "this optimizer belongs to a model already");
    int num_weights = read_weights(weights, loss_weights);
    uni_model *raw = num_weights < 0 ? NULL : engine_model_enter(object);
    if (!raw)
        return NULL;
    options.num_losses = take_losses(state, object, losses, loss);
    options.num_metrics = options.num_losses < 0
                              ? -1
                              : take_metrics(state, object, metrics, metric, outputs, weighted);
    if (options.num_metrics >= 0 && keep_function(object, taken->schedule) == 0) {
        if (options.num_losses == 1)
            options.loss = loss[0];
        options.losses = options.num_losses > 1 ? loss : NULL;
        options.num_losses = options.num_losses > 1 ? options.num_losses : 0;
        options.loss_weights = num_weights > 0 ? loss_weights : NULL;
        options.metrics = metric;
        options.metric_outputs = outputs;
        options.metric_weighted = weighted;
        options.optimizer = taken->raw;
        int status = uni_model_compile(raw, &options, &err);
        if (status < 0) {
            taken->raw = NULL;
            engine_raise(state, &err);
        } else {
            give_optimizer(object, optimizer);
        }
    }
    engine_model_leave(object);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* An Optimizer for the one that came from a file, or None. */
static PyObject *model_optimizer(PyObject *object, PyObject *unused)
{
    engine_model *self = (engine_model *)object;
    uni_optimizer *raw = uni_model_optimizer(self->raw);
    if (self->optimizer)
        return Py_NewRef(self->optimizer);
    if (!raw)
        Py_RETURN_NONE;
    engine_optimizer *optimizer =
        (engine_optimizer *)engine_new(engine_state_of(object)->optimizer);
    if (!optimizer)
        return NULL;
    optimizer->raw = raw;
    give_optimizer(object, (PyObject *)optimizer);
    return (PyObject *)optimizer;
}

/* ---- options ---- */

enum { X, Y, VALIDATION_X, VALIDATION_Y, GROUPS };

typedef struct fit_call {
    engine_state *state;
    uni_fit_options options;
    engine_column groups[GROUPS][UNI_MODEL_MAX_INPUTS];
    uni_column plain[GROUPS][UNI_MODEL_MAX_INPUTS];
    engine_column weights[2];
    uni_callback **callbacks;
    double *class_weight;
    uni_strategy *strategy;
} fit_call;

static void fit_call_free(fit_call *call)
{
    for (int group = 0; group < GROUPS; group++)
        for (int i = 0; i < UNI_MODEL_MAX_INPUTS; i++)
            engine_column_clear(&call->groups[group][i]);
    engine_column_clear(&call->weights[0]);
    engine_column_clear(&call->weights[1]);
    for (int i = 0; call->callbacks && i < call->options.num_callbacks; i++)
        uni_callback_free(call->callbacks[i]);
    PyMem_Free(call->callbacks);
    PyMem_Free(call->class_weight);
}

/* Borrowed; None when missing. */
static PyObject *option(PyObject *dict, const char *key)
{
    PyObject *item = PyDict_GetItemString(dict, key);
    return item ? item : Py_None;
}

static long long whole(PyObject *dict, const char *key)
{
    PyObject *item = option(dict, key);
    return item == Py_None ? 0 : PyLong_AsLongLong(item);
}

/* A group of columns, or NULL if there is none; sets *count. */
static const uni_column *columns(fit_call *call, PyObject *dict, const char *key, int group,
                                 int *count)
{
    *count = engine_columns_from(call->state, call->groups[group], option(dict, key), key);
    for (int i = 0; i < *count; i++)
        call->plain[group][i] = call->groups[group][i].column;
    return *count > 0 ? call->plain[group] : NULL;
}

static int read_data(fit_call *call, PyObject *dict)
{
    uni_fit_options *o = &call->options;
    int ignored = 0;
    o->x = columns(call, dict, "x", X, &o->num_x);
    if (!PyErr_Occurred())
        o->y = columns(call, dict, "y", Y, &o->num_y);
    if (!PyErr_Occurred())
        o->validation_x = columns(call, dict, "validation_x", VALIDATION_X, &ignored);
    if (!PyErr_Occurred())
        o->validation_y = columns(call, dict, "validation_y", VALIDATION_Y, &ignored);
    static const char *const weights[] = { "sample_weight", "validation_weight" };
    for (int i = 0; i < 2 && !PyErr_Occurred(); i++)
        if (engine_column_from(call->state, &call->weights[i], option(dict, weights[i])) == 0 &&
            call->weights[i].column.dtype)
            *(i ? &o->validation_weight : &o->sample_weight) = &call->weights[i].column;
    PyObject *batches = option(dict, "batches"), *validation = option(dict, "validation_batches");
    if (!PyErr_Occurred() && batches != Py_None &&
        is_of(batches, call->state->batches, "a source of batches") == 0)
        o->batches = engine_batches_of(batches);
    if (!PyErr_Occurred() && validation != Py_None &&
        is_of(validation, call->state->batches, "a source of batches") == 0)
        o->validation_batches = engine_batches_of(validation);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_callbacks(fit_call *call, PyObject *dict)
{
    PyObject *list = option(dict, "callbacks");
    Py_ssize_t count = list == Py_None ? 0 : PyList_Size(list);
    if (count < 0)
        return -1;
    call->callbacks = PyMem_Calloc((size_t)count + 1, sizeof *call->callbacks);
    if (!call->callbacks) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i <= count; i++) {
        uni_callback *made = i < count ? engine_callback_from(call->state, PyList_GetItem(list, i))
                                       : engine_callback_signals(call->state);
        if (!made)
            return -1;
        call->callbacks[call->options.num_callbacks++] = made;
    }
    call->options.callbacks = call->callbacks;
    return 0;
}

static int read_class_weight(fit_call *call, PyObject *dict)
{
    PyObject *list = option(dict, "class_weight");
    if (list == Py_None)
        return 0;
    Py_ssize_t count = PyList_Size(list);
    if (count < 0 || !(call->class_weight = PyMem_Calloc((size_t)count + 1, sizeof(double))))
        return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        call->class_weight[i] = PyFloat_AsDouble(PyList_GetItem(list, i));
    call->options.class_weight = call->class_weight;
    call->options.num_classes = (int)count;
    return PyErr_Occurred() ? -1 : 0;
}

static int read_numbers(fit_call *call, PyObject *dict)
{
    uni_fit_options *o = &call->options;
    o->batch_size = whole(dict, "batch_size");
    o->epochs = (int)whole(dict, "epochs");
    o->initial_epoch = (int)whole(dict, "initial_epoch");
    o->steps_per_epoch = whole(dict, "steps_per_epoch");
    o->validation_batch_size = whole(dict, "validation_batch_size");
    o->validation_steps = whole(dict, "validation_steps");
    o->validation_freq = (int)whole(dict, "validation_freq");
    o->no_shuffle = option(dict, "shuffle") == Py_False;
    o->verbose = (int)whole(dict, "verbose");
    o->threads = (int)whole(dict, "threads");
    o->replicas = (int)whole(dict, "replicas");
    o->step_times = option(dict, "step_times") == Py_True;
    PyObject *split = option(dict, "validation_split"), *seed = option(dict, "seed"),
             *trace = option(dict, "trace");
    if (split != Py_None)
        o->validation_split = PyFloat_AsDouble(split);
    if (seed != Py_None)
        o->seed = PyLong_AsUnsignedLongLongMask(seed);
    if (trace != Py_None)
        o->trace = PyUnicode_AsUTF8AndSize(trace, NULL);
    return PyErr_Occurred() ? -1 : 0;
}

static int fit_call_read(fit_call *call, engine_state *state, PyObject *dict)
{
    memset(call, 0, sizeof *call);
    call->state = state;
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "options are a dictionary");
        return -1;
    }
    PyObject *strategy = option(dict, "strategy");
    if (strategy != Py_None) {
        if (is_of(strategy, state->strategy, "a strategy") < 0)
            return -1;
        call->strategy = engine_strategy_of(strategy);
    }
    if (read_data(call, dict) < 0 || read_numbers(call, dict) < 0 ||
        read_class_weight(call, dict) < 0)
        return -1;
    return read_callbacks(call, dict);
}

/* ---- the calls ---- */

typedef int (*runner)(uni_model *model, fit_call *call, void *out, uni_error *err);

static int run_fit(uni_model *model, fit_call *call, void *out, uni_error *err)
{
    return call->strategy ? uni_strategy_fit(out, call->strategy, model, &call->options, err)
                          : uni_model_fit(out, model, &call->options, err);
}

static int run_evaluate(uni_model *model, fit_call *call, void *out, uni_error *err)
{
    return uni_model_evaluate(out, model, &call->options, err);
}

static int run_predict(uni_model *model, fit_call *call, void *out, uni_error *err)
{
    return uni_model_predict(out, model, &call->options, err);
}

/* 0, or -1 with an exception */
static int run(PyObject *object, PyObject *dict, runner function, void *out)
{
    engine_state *state = engine_state_of(object);
    fit_call call;
    uni_error err = { 0 };
    int status = -1;
    uni_model *raw = engine_model_enter(object);
    if (!raw)
        return -1;
    if (fit_call_read(&call, state, dict) == 0) {
        Py_BEGIN_ALLOW_THREADS status = function(raw, &call, out, &err);
        Py_END_ALLOW_THREADS if (status < 0) engine_raise(state, &err);
    }
    engine_model_leave(object);
    fit_call_free(&call);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *run_for_value(PyObject *object, PyObject *dict, runner function)
{
    uni_value *value = NULL;
    if (run(object, dict, function, &value) < 0)
        return NULL;
    PyObject *out = door_value_to(&engine_state_of(object)->door, value);
    uni_value_free(value);
    return out;
}

static PyObject *model_fit(PyObject *object, PyObject *dict)
{
    return run_for_value(object, dict, run_fit);
}

static PyObject *model_evaluate(PyObject *object, PyObject *dict)
{
    return run_for_value(object, dict, run_evaluate);
}

static PyObject *model_predict(PyObject *object, PyObject *dict)
{
    engine_state *state = engine_state_of(object);
    uni_array *outputs[UNI_MODEL_MAX_INPUTS] = { NULL };
    if (run(object, dict, run_predict, outputs) < 0)
        return NULL;
    int count = uni__model_num_outputs(((engine_model *)object)->raw);
    PyObject *list = PyList_New(count);
    for (int i = 0; i < count; i++) {
        PyObject *item = list ? door_array_wrap(&state->door, outputs[i]) : NULL;
        uni_array_unref(outputs[i]);
        if (item)
            PyList_SetItem(list, i, item);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* ---- single batches ---- */

static PyObject *on_batch(PyObject *object, PyObject *dict,
                          int (*step)(uni_value **, uni_model *, const uni_batch *, uni_error *))
{
    engine_state *state = engine_state_of(object);
    fit_call call;
    uni_value *logs = NULL;
    uni_error err = { 0 };
    uni_model *raw = engine_model_enter(object);
    if (!raw)
        return NULL;
    memset(&call, 0, sizeof call);
    call.state = state;
    if (read_data(&call, dict) == 0) {
        uni_batch batch = { .num_x = call.options.num_x, .num_y = call.options.num_y };
        memcpy(batch.x, call.plain[X], sizeof batch.x);
        memcpy(batch.y, call.plain[Y], sizeof batch.y);
        batch.weights = call.weights[0].column;
        batch.size = batch.global_size =
            batch.num_x > 0 && batch.x[0].ndim > 0 ? batch.x[0].shape[0] : 0;
        int status;
        Py_BEGIN_ALLOW_THREADS status = step(&logs, raw, &batch, &err);
        Py_END_ALLOW_THREADS if (status < 0) engine_raise(state, &err);
    }
    engine_model_leave(object);
    fit_call_free(&call);
    PyObject *out = PyErr_Occurred() ? NULL : door_value_to(&state->door, logs);
    uni_value_free(logs);
    return out;
}

static PyObject *model_train_on_batch(PyObject *object, PyObject *dict)
{
    return on_batch(object, dict, uni_model_train_on_batch);
}

static PyObject *model_test_on_batch(PyObject *object, PyObject *dict)
{
    return on_batch(object, dict, uni_model_test_on_batch);
}

static PyObject *model_reset_metrics(PyObject *object, PyObject *unused)
{
    uni_model_reset_metrics(((engine_model *)object)->raw);
    Py_RETURN_NONE;
}

static PyObject *model_stop_training(PyObject *object, PyObject *unused)
{
    uni_model_stop_training(((engine_model *)object)->raw);
    Py_RETURN_NONE;
}

static PyObject *model_is_stopping(PyObject *object, PyObject *unused)
{
    return PyBool_FromLong(uni__model_is_stopping(((engine_model *)object)->raw));
}

PyMethodDef engine_fit_methods[] = {
    { "compile", model_compile, METH_VARARGS, NULL },
    { "optimizer", model_optimizer, METH_NOARGS, NULL },
    { "fit", model_fit, METH_O, "fit(options): the history" },
    { "evaluate", model_evaluate, METH_O, NULL },
    { "predict", model_predict, METH_O, NULL },
    { "train_on_batch", model_train_on_batch, METH_O, NULL },
    { "test_on_batch", model_test_on_batch, METH_O, NULL },
    { "reset_metrics", model_reset_metrics, METH_NOARGS, NULL },
    { "stop_training", model_stop_training, METH_NOARGS, NULL },
    { "is_stopping", model_is_stopping, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
