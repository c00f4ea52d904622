/*
 * engine_callbacks.c - callbacks of fit: user objects with Keras's on_* methods, and the engine's
 * own callbacks by name.
 *
 * A Python callback is passed as (object, names). names has the methods that its class actually
 * overrides, and only those slots are filled, so that unused batch hooks cost nothing. All slots
 * run on fit's thread and take the GIL for the call.
 */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- user objects ---- */

typedef struct python_callback {
    uni_callback_class class_; /* of this one: only what is overridden */
    char name[100]; /* of its Python class: states are found again by it */
    engine_state *state;
    PyObject *target;
} python_callback;

static PyObject *logs_dict(const uni_logs *logs)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && logs && i < logs->count; i++)
        if (door_put(dict, logs->names[i], PyFloat_FromDouble(logs->values[i])) < 0) {
            Py_DECREF(dict);
            return NULL;
        }
    return dict;
}

/* target.method(index, logs), or target.method(logs) if index is negative */
static int call(void *self_, const char *method, long long index, const uni_logs *logs,
                uni_error *err)
{
    python_callback *self = self_;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *dict = logs_dict(logs);
    PyObject *out = !dict       ? NULL
                    : index < 0 ? PyObject_CallMethod(self->target, method, "O", dict)
                                : PyObject_CallMethod(self->target, method, "LO", index, dict);
    int status = out ? 0 : engine_keep_exception(self->state, err);
    Py_XDECREF(out);
    Py_XDECREF(dict);
    PyGILState_Release(gil);
    return status;
}

static int train_begin(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    return call(self, "on_train_begin", -1, NULL, err);
}

static int train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    return call(self, "on_train_end", -1, logs, err);
}

static int epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    return call(self, "on_epoch_begin", epoch, NULL, err);
}

static int epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    return call(self, "on_epoch_end", epoch, logs, err);
}

static int batch_begin(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    return call(self, "on_train_batch_begin", batch, NULL, err);
}

static int batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                     uni_error *err)
{
    return call(self, "on_train_batch_end", batch, logs, err);
}

static int test_begin(void *self, uni_model *model, uni_error *err)
{
    return call(self, "on_test_begin", -1, NULL, err);
}

static int test_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    return call(self, "on_test_end", -1, logs, err);
}

static int test_batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                          uni_error *err)
{
    return call(self, "on_test_batch_end", batch, logs, err);
}

static int predict_begin(void *self, uni_model *model, uni_error *err)
{
    return call(self, "on_predict_begin", -1, NULL, err);
}

static int predict_end(void *self, uni_model *model, uni_error *err)
{
    return call(self, "on_predict_end", -1, NULL, err);
}

static int predict_batch_end(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    return call(self, "on_predict_batch_end", batch, NULL, err);
}

static int after_epoch(void *self, uni_model *model, int epoch, const uni_logs *logs,
                       uni_error *err)
{
    return call(self, "after_epoch", epoch, logs, err);
}

/* target.get_state(): None, or plain values and arrays */
static int get_state(void *self_, uni_value **out, uni_error *err)
{
    python_callback *self = self_;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *state = PyObject_CallMethod(self->target, "get_state", NULL);
    *out = state && state != Py_None ? door_value_from(&self->state->door, state, NULL) : NULL;
    int status =
        !state || (state != Py_None && !*out) ? engine_keep_exception(self->state, err) : 0;
    Py_XDECREF(state);
    PyGILState_Release(gil);
    return status;
}

static int set_state(void *self_, const uni_value *value, uni_error *err)
{
    python_callback *self = self_;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *state = door_value_to(&self->state->door, value);
    PyObject *out = state ? PyObject_CallMethod(self->target, "set_state", "O", state) : NULL;
    int status = out ? 0 : engine_keep_exception(self->state, err);
    Py_XDECREF(out);
    Py_XDECREF(state);
    PyGILState_Release(gil);
    return status;
}

static void python_free(void *self_)
{
    python_callback *self = self_;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_XDECREF(self->target);
    PyMem_Free(self);
    PyGILState_Release(gil);
}

static bool has(PyObject *names, const char *name)
{
    PyObject *text = PyUnicode_FromString(name);
    bool found = text && PySet_Contains(names, text) == 1;
    Py_XDECREF(text);
    PyErr_Clear(); /* names that are not a set contain nothing */
    return found;
}

static void fill_slots(uni_callback_class *slots, PyObject *names)
{
    slots->train_begin = has(names, "on_train_begin") ? train_begin : NULL;
    slots->train_end = has(names, "on_train_end") ? train_end : NULL;
    slots->epoch_begin = has(names, "on_epoch_begin") ? epoch_begin : NULL;
    slots->epoch_end = has(names, "on_epoch_end") ? epoch_end : NULL;
    slots->batch_begin = has(names, "on_train_batch_begin") ? batch_begin : NULL;
    slots->batch_end = has(names, "on_train_batch_end") ? batch_end : NULL;
    slots->test_begin = has(names, "on_test_begin") ? test_begin : NULL;
    slots->test_end = has(names, "on_test_end") ? test_end : NULL;
    slots->test_batch_end = has(names, "on_test_batch_end") ? test_batch_end : NULL;
    slots->predict_begin = has(names, "on_predict_begin") ? predict_begin : NULL;
    slots->predict_end = has(names, "on_predict_end") ? predict_end : NULL;
    slots->predict_batch_end = has(names, "on_predict_batch_end") ? predict_batch_end : NULL;
    slots->after_epoch = has(names, "after_epoch") ? after_epoch : NULL;
    slots->get_state = has(names, "get_state") ? get_state : NULL;
    slots->set_state = has(names, "set_state") ? set_state : NULL;
}

static const char *class_name(PyObject *target)
{
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(target), "__name__");
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    static char copy[100]; /* guarded by the GIL */
    snprintf(copy, sizeof copy, "%s", text ? text : "a Python callback");
    Py_XDECREF(name);
    PyErr_Clear();
    return copy;
}

static uni_callback *from_object(engine_state *state, PyObject *target, PyObject *names)
{
    uni_callback *out = NULL;
    uni_error err = { 0 };
    python_callback *self = PyMem_Calloc(1, sizeof *self);
    if (!self) {
        PyErr_NoMemory();
        return NULL;
    }
    self->state = state;
    self->target = Py_NewRef(target);
    snprintf(self->name, sizeof self->name, "%s", class_name(target));
    self->class_ = (uni_callback_class){ .name = self->name, .free = python_free };
    fill_slots(&self->class_, names);
    if (uni_callback_new(&out, &self->class_, self, &err) < 0) {
        python_free(self);
        engine_raise(state, &err);
    }
    return out;
}

/* ---- Ctrl-C ---- */

typedef struct signal_watch {
    engine_state *state;
    struct timespec last;
} signal_watch;

static int look_for_signals(void *self_, uni_model *model, int64_t batch, uni_error *err)
{
    signal_watch *self = self_;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if ((now.tv_sec - self->last.tv_sec) * 1000 + (now.tv_nsec - self->last.tv_nsec) / 1000000 <
        100)
        return 0;
    self->last = now;
    PyGILState_STATE gil = PyGILState_Ensure();
    int status = PyErr_CheckSignals() < 0 ? engine_keep_exception(self->state, err) : 0;
    PyGILState_Release(gil);
    return status;
}

uni_callback *engine_callback_signals(engine_state *state)
{
    static const uni_callback_class class_ = {
        .name = "signals", .only_looks = true, .batch_begin = look_for_signals, .free = free
    };
    uni_callback *out = NULL;
    uni_error err = { 0 };
    signal_watch *self = calloc(1, sizeof *self);
    if (!self) {
        PyErr_NoMemory();
        return NULL;
    }
    self->state = state;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &self->last);
    if (uni_callback_new(&out, &class_, self, &err) < 0) {
        free(self);
        engine_raise(state, &err);
    }
    return out;
}

/* ---- the engine's callbacks ---- */

static uni_monitor_mode mode_of(const uni_value *o)
{
    const char *mode = uni_dict_get_string(o, "mode", "auto");
    return strcmp(mode, "min") == 0   ? UNI_MONITOR_MIN
           : strcmp(mode, "max") == 0 ? UNI_MONITOR_MAX
                                      : UNI_MONITOR_AUTO;
}

static int make_checkpoint(uni_callback **out, const uni_value *o, uni_error *err)
{
    return uni_callback_model_checkpoint(
        out, uni_dict_get_string(o, "path", ""),
        &(uni_model_checkpoint_options){
            .monitor = uni_dict_get_string(o, "monitor", NULL),
            .mode = mode_of(o),
            .save_best_only = uni_dict_get_bool(o, "save_best_only", false),
            .save_weights_only = uni_dict_get_bool(o, "save_weights_only", false),
            .save_every_batches = uni_dict_get_int(o, "save_every_batches", 0),
            .verbose = (int)uni_dict_get_int(o, "verbose", 0) },
        err);
}

static int make_backup(uni_callback **out, const uni_value *o, uni_error *err)
{
    return uni_callback_backup_and_restore(out, uni_dict_get_string(o, "directory", ""),
                                           uni_dict_get_int(o, "save_every_batches", 0),
                                           uni_dict_get_bool(o, "keep", false), err);
}

/* Python has passed all numbers, so a 0 is meant. */
static double exact_float(const uni_value *o, const char *key)
{
    double number = uni_dict_get_float(o, key, 0);
    return number != 0 ? number : UNI_EXACTLY_ZERO;
}

static int make_reduce_lr(uni_callback **out, const uni_value *o, uni_error *err)
{
    int patience = (int)uni_dict_get_int(o, "patience", 0);
    return uni_callback_reduce_lr_on_plateau(
        out,
        &(uni_reduce_lr_options){ .monitor = uni_dict_get_string(o, "monitor", NULL),
                                  .factor = exact_float(o, "factor"),
                                  .patience = patience != 0 ? patience : UNI_NO_PATIENCE,
                                  .mode = mode_of(o),
                                  .min_delta = exact_float(o, "min_delta"),
                                  .cooldown = (int)uni_dict_get_int(o, "cooldown", 0),
                                  .min_lr = uni_dict_get_float(o, "min_lr", 0),
                                  .verbose = (int)uni_dict_get_int(o, "verbose", 0) },
        err);
}

static int make_tensorboard(uni_callback **out, const uni_value *o, uni_error *err)
{
    return uni_callback_tensorboard(out, uni_dict_get_string(o, "directory", ""),
                                    (int)uni_dict_get_int(o, "histogram_freq", 0),
                                    uni_dict_get_bool(o, "every_batch", false), err);
}

static int make_csv(uni_callback **out, const uni_value *o, uni_error *err)
{
    return uni_callback_csv_logger(out, uni_dict_get_string(o, "path", ""),
                                   uni_dict_get_string(o, "separator", ",")[0],
                                   uni_dict_get_bool(o, "append", false), err);
}

static int make_terminate(uni_callback **out, const uni_value *o, uni_error *err)
{
    return uni_callback_terminate_on_nan(out, err);
}

static const struct {
    const char *name;
    int (*make)(uni_callback **out, const uni_value *options, uni_error *err);
} makers[] = {
    { "ModelCheckpoint", make_checkpoint },
    { "BackupAndRestore", make_backup },
    { "ReduceLROnPlateau", make_reduce_lr },
    { "TensorBoard", make_tensorboard },
    { "CSVLogger", make_csv },
    { "TerminateOnNaN", make_terminate },
};

static uni_callback *from_name(engine_state *state, const char *name, PyObject *object)
{
    uni_callback *out = NULL;
    uni_error err = { 0 };
    int status = uni_error_set(&err, UNI_ENOTFOUND, "there is no callback \"%s\"", name);
    uni_value *options = door_value_from(&state->door, object, NULL);
    if (!options)
        return NULL;
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++)
        if (strcmp(makers[i].name, name) == 0)
            status = makers[i].make(&out, options, &err);
    uni_value_free(options);
    if (status < 0)
        engine_raise(state, &err);
    return out;
}

uni_callback *engine_callback_from(engine_state *state, PyObject *object)
{
    PyObject *what, *how;
    if (!PyTuple_Check(object) || !PyArg_ParseTuple(object, "OO", &what, &how))
        return NULL;
    if (PyUnicode_Check(what))
        return from_name(state, PyUnicode_AsUTF8AndSize(what, NULL), how);
    return from_object(state, what, how);
}
