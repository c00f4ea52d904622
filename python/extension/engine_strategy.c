/*
 * engine_strategy.c - strategies and their replicas. A custom loop is uni_strategy_run with a
 * Python function. Every replica's thread calls it with the GIL, which long engine calls inside it
 * release, so that replicas compute at the same time.
 */
#include "engine.h"

typedef struct strategy_object {
    PyObject_HEAD uni_strategy *raw;
    PyObject *session; /* provides its communicator */
} strategy_object;

uni_strategy *engine_strategy_of(PyObject *object)
{
    return ((strategy_object *)object)->raw;
}

/* Strategy(name, devices, session or None): "none", "mirrored", "multi_worker" */
static PyObject *strategy_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    engine_state *state = PyType_GetModuleState(type);
    const char *name;
    int devices, status;
    PyObject *session;
    uni_session *raw = NULL;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "siO", &name, &devices, &session))
        return NULL;
    if (session != Py_None) {
        PyObject *handle = PyObject_CallMethod(session, "_handle", NULL);
        raw = handle ? PyCapsule_GetPointer(handle, "unisono.session") : NULL;
        Py_XDECREF(handle);
        if (!raw)
            return NULL;
    }
    strategy_object *self = (strategy_object *)engine_new(type);
    if (!self)
        return NULL;
    self->session = Py_NewRef(session);
    Py_BEGIN_ALLOW_THREADS status = name[0] == 'm' && name[1] == 'i'
                                        ? uni_strategy_mirrored(&self->raw, devices, &err)
                                        : uni_strategy_open(&self->raw, name, raw, &err);
    Py_END_ALLOW_THREADS if (status == 0) return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return engine_raise(state, &err);
}

static void strategy_dealloc(PyObject *object)
{
    strategy_object *self = (strategy_object *)object;
    uni_strategy_free(self->raw);
    Py_XDECREF(self->session);
    engine_free(object);
}

static PyObject *strategy_place(PyObject *object, PyObject *model)
{
    engine_state *state = engine_state_of(object);
    uni_strategy *raw = engine_strategy_of(object);
    uni_error err = { 0 };
    int status;
    if (!Py_IS_TYPE(model, state->model))
        return door_raise_text(PyExc_TypeError, "not a model: %R", model);
    uni_model *placed = engine_model_enter(model);
    if (!placed)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_strategy_place(raw, placed, &err);
    Py_END_ALLOW_THREADS engine_model_leave(model);
    if (status < 0)
        return engine_raise(state, &err);
    Py_RETURN_NONE;
}

static PyObject *strategy_place_optimizer(PyObject *object, PyObject *optimizer)
{
    engine_state *state = engine_state_of(object);
    uni_error err = { 0 };
    if (!Py_IS_TYPE(optimizer, state->optimizer) || !((engine_optimizer *)optimizer)->raw)
        return door_raise_text(PyExc_TypeError, "not an optimizer: %R", optimizer);
    if (uni_strategy_place_optimizer(engine_strategy_of(object),
                                     ((engine_optimizer *)optimizer)->raw, &err) < 0)
        return engine_raise(state, &err);
    Py_RETURN_NONE;
}

/* ---- replicas ---- */

typedef struct replica_object {
    PyObject_HEAD uni_replica_context *raw; /* NULL after the run function returned */
    const uni_batch *part;
} replica_object;

static uni_replica_context *replica_of(PyObject *object)
{
    uni_replica_context *raw = ((replica_object *)object)->raw;
    if (!raw)
        PyErr_SetString(PyExc_RuntimeError, "this replica's turn is over");
    return raw;
}

/* begin(tape, model or None, training, seed): the tape becomes the replica's tape */
static PyObject *replica_begin(PyObject *object, PyObject *arguments)
{
    engine_state *state = engine_state_of(object);
    uni_replica_context *raw = replica_of(object);
    PyObject *tape, *model;
    int training;
    unsigned long long seed;
    if (!raw || !PyArg_ParseTuple(arguments, "O!OpK", state->tape, &tape, &model, &training, &seed))
        return NULL;
    if (model != Py_None && !Py_IS_TYPE(model, state->model))
        return door_raise_text(PyExc_TypeError, "not a model: %R", model);
    if (engine_tape_let_go(tape) < 0)
        return NULL;
    engine_tape_borrow(
        tape, uni_replica_begin(raw, model == Py_None ? NULL : ((engine_model *)model)->raw,
                                training, seed));
    uni_error err = { 0 };
    if (uni_tape_status(engine_tape_of(tape), &err) < 0)
        return engine_raise(state, &err);
    Py_RETURN_NONE;
}

/* apply(loss, optimizer): gradients, their sum over all replicas, and the update */
static PyObject *replica_apply(PyObject *object, PyObject *arguments)
{
    engine_state *state = engine_state_of(object);
    uni_replica_context *raw = replica_of(object);
    PyObject *loss, *optimizer;
    uni_error err = { 0 };
    int status;
    if (!raw ||
        !PyArg_ParseTuple(arguments, "O!O!", state->tensor, &loss, state->optimizer, &optimizer))
        return NULL;
    uni_tensor *tensor = ((engine_tensor *)loss)->raw;
    uni_optimizer *updater = ((engine_optimizer *)optimizer)->raw;
    if (!tensor || !updater)
        return door_raise_text(PyExc_ValueError, "the loss is not of this replica's step");
    Py_BEGIN_ALLOW_THREADS status = uni_replica_apply_gradients(raw, tensor, updater, &err);
    Py_END_ALLOW_THREADS if (status < 0) return engine_raise(state, &err);
    Py_RETURN_NONE;
}

/* update_metric(metric, tape, target, prediction, weights) */
static PyObject *replica_update_metric(PyObject *object, PyObject *arguments)
{
    engine_state *state = engine_state_of(object);
    uni_replica_context *raw = replica_of(object);
    PyObject *metric, *tape, *target_object, *prediction_object, *weight_object;
    uni_error err = { 0 };
    if (!raw || !PyArg_ParseTuple(arguments, "O!O!OOO", state->metric, &metric, state->tape, &tape,
                                  &target_object, &prediction_object, &weight_object))
        return NULL;
    uni_tensor *target = engine_tensor_arg(tape, target_object), *weights = NULL;
    uni_tensor *prediction = target ? engine_tensor_arg(tape, prediction_object) : NULL;
    if (!prediction || !((engine_metric *)metric)->raw ||
        (weight_object != Py_None && !(weights = engine_tensor_arg(tape, weight_object))))
        return PyErr_Occurred() ? NULL
                                : door_raise_text(PyExc_ValueError, "the metric is a model's");
    if (uni_replica_update_metric(raw, ((engine_metric *)metric)->raw, target, prediction, weights,
                                  &err) < 0)
        return engine_raise(state, &err);
    Py_RETURN_NONE;
}

static PyObject *replica_number(PyObject *object, void *which)
{
    replica_object *self = (replica_object *)object;
    uni_replica_context *raw = replica_of(object);
    if (!raw)
        return NULL;
    switch ((intptr_t)which) {
    case 0:
        return PyLong_FromLong(uni_replica_info_of(raw)->id);
    case 1:
        return PyLong_FromLong(uni_replica_info_of(raw)->num_replicas);
    case 2:
        return PyLong_FromLongLong(self->part->size);
    default:
        return PyLong_FromLongLong(self->part->first_sample);
    }
}

static void replica_dealloc(PyObject *object)
{
    engine_free(object);
}

static PyMethodDef replica_methods[] = {
    { "begin", replica_begin, METH_VARARGS, NULL },
    { "apply", replica_apply, METH_VARARGS, NULL },
    { "update_metric", replica_update_metric, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef replica_getters[] = {
    { "id", replica_number, NULL, NULL, (void *)0 },
    { "count", replica_number, NULL, NULL, (void *)1 },
    { "size", replica_number, NULL, "samples of its part", (void *)2 },
    { "first_sample", replica_number, NULL, "of its part in the global batch", (void *)3 },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot replica_slots[] = {
    { Py_tp_dealloc, replica_dealloc },
    { Py_tp_methods, replica_methods },
    { Py_tp_getset, replica_getters },
    { 0, NULL },
};
static PyType_Spec replica_spec = { "unisono._engine.Replica", sizeof(replica_object), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                    replica_slots };

typedef struct turn {
    engine_state *state;
    PyObject *function;
} turn;

static int take_turn(uni_replica_context *raw, const uni_batch *part, void *context, uni_error *err)
{
    turn *self = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    replica_object *replica = (replica_object *)engine_new(self->state->replica);
    PyObject *out = NULL;
    if (replica) {
        replica->raw = raw;
        replica->part = part;
        out = PyObject_CallFunctionObjArgs(self->function, (PyObject *)replica, NULL);
        replica->raw = NULL;
    }
    int status = out ? 0 : engine_keep_exception(self->state, err);
    Py_XDECREF(out);
    Py_XDECREF((PyObject *)replica);
    PyGILState_Release(gil);
    return status;
}

/* run(function, size, first_sample, global_size): calls function(replica) on each replica's thread;
 * replica.first_sample and size give its part of the batch */
static PyObject *strategy_run(PyObject *object, PyObject *arguments)
{
    uni_strategy *raw = engine_strategy_of(object);
    turn context = { .state = engine_state_of(object) };
    long long size, first_sample, global_size;
    uni_error err = { 0 };
    int status;
    if (!PyArg_ParseTuple(arguments, "OLLL", &context.function, &size, &first_sample, &global_size))
        return NULL;
    uni_batch batch = { .size = size, .first_sample = first_sample, .global_size = global_size };
    Py_BEGIN_ALLOW_THREADS status = uni_strategy_run(NULL, raw, take_turn, &context, &batch, &err);
    Py_END_ALLOW_THREADS if (status < 0) return engine_raise(context.state, &err);
    Py_RETURN_NONE;
}

enum { MAX_VALUES = 4096 };

/* reduce(values, mean): a list of numbers, over all processes */
static PyObject *strategy_reduce(PyObject *object, PyObject *arguments)
{
    uni_strategy *raw = engine_strategy_of(object);
    PyObject *list;
    int mean, status;
    double values[MAX_VALUES];
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "O!p", &PyList_Type, &list, &mean))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    if (count > MAX_VALUES)
        return door_raise_text(PyExc_ValueError, "at most %d numbers", MAX_VALUES);
    for (Py_ssize_t i = 0; i < count; i++)
        values[i] = PyFloat_AsDouble(PyList_GetItem(list, i));
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_strategy_reduce_numbers(
        raw, mean ? UNI_REPLICA_MEAN : UNI_REPLICA_SUM, values, (size_t)count, &err);
    Py_END_ALLOW_THREADS if (status < 0) return engine_raise(engine_state_of(object), &err);
    PyObject *out = PyList_New(count);
    for (Py_ssize_t i = 0; out && i < count; i++)
        PyList_SetItem(out, i, PyFloat_FromDouble(values[i]));
    return out;
}

static PyObject *get_replicas(PyObject *object, void *unused)
{
    return PyLong_FromLong(uni_strategy_info_of(engine_strategy_of(object))->num_replicas_in_sync);
}

static PyObject *get_place(PyObject *object, void *which)
{
    const uni_strategy_info *info = uni_strategy_info_of(engine_strategy_of(object));
    return PyLong_FromLong(which ? info->worker_index : info->num_workers);
}

static PyObject *get_chief(PyObject *object, void *unused)
{
    return PyBool_FromLong(uni_strategy_info_of(engine_strategy_of(object))->is_chief);
}

static PyObject *get_name(PyObject *object, void *unused)
{
    return PyUnicode_FromString(uni_strategy_info_of(engine_strategy_of(object))->name);
}

static PyMethodDef methods[] = {
    { "place", strategy_place, METH_O, "brings a built model under the strategy" },
    { "place_optimizer", strategy_place_optimizer, METH_O, NULL },
    { "run", strategy_run, METH_VARARGS, "run(function, size, first_sample, global_size)" },
    { "reduce", strategy_reduce, METH_VARARGS, "reduce(values, mean)" },
    { NULL, NULL, 0, NULL },
};
static PyGetSetDef getters[] = {
    { "name", get_name, NULL, NULL, NULL },
    { "num_replicas_in_sync", get_replicas, NULL, NULL, NULL },
    { "is_chief", get_chief, NULL, NULL, NULL },
    { "num_workers", get_place, NULL, "processes that train together now", NULL },
    { "worker_index", get_place, NULL, "this process's place among them", (void *)1 },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_new, strategy_new },
    { Py_tp_dealloc, strategy_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, getters },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._engine.Strategy", sizeof(strategy_object), 0,
                            Py_TPFLAGS_DEFAULT, slots };

int engine_strategies_init(PyObject *module, engine_state *state)
{
    return engine_add_type(module, &state->replica, &replica_spec) < 0
               ? -1
               : engine_add_type(module, &state->strategy, &spec);
}
