/*
 * trainer.c - the trainer: options from keywords, runs from a dictionary, results as dictionaries.
 *
 * run and fit do not raise if a run failed, because that is when its results matter most. Their
 * result has "error"; they raise only if there was no run at all. The call runs without the GIL, in
 * whichever thread Python calls it from; `stop` may come from any other.
 */
#include <stdlib.h>

#include "train/shared.h"
#include "door.h"
#include "options.h"

typedef struct trainer_object {
    PyObject_HEAD uni_trainer *trainer;
    bool busy;
} trainer_object;

static int enter(trainer_object *self)
{
    if (self->trainer && !self->busy) {
        self->busy = true;
        return 0;
    }
    door_raise(
        door_state_of((PyObject *)self),
        &(uni_error){ .code = UNI_ESTATE, .message = "this trainer is in use by another thread" });
    return -1;
}

static PyObject *trainer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    door_state *state = PyType_GetModuleState(type);
    door_strings strings = { 0 };
    uni_trainer_options options = { 0 };
    uni_error err = { 0 };
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    trainer_object *self = (trainer_object *)allocate(type, 0);
    if (!self)
        return NULL;
    int status = door_trainer_options(&options, keywords, &strings);
    if (status == 0 && uni_trainer_new(&self->trainer, &options, &err) < 0) {
        door_raise(state, &err);
        status = -1;
    }
    door_strings_free(&strings);
    if (status == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static void trainer_dealloc(PyObject *object)
{
    trainer_object *self = (trainer_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_BEGIN_ALLOW_THREADS uni_trainer_free(self->trainer);
    Py_END_ALLOW_THREADS((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *trainer_start(PyObject *object, PyObject *unused)
{
    trainer_object *self = (trainer_object *)object;
    uni_error err = { 0 };
    int status;
    if (enter(self) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_trainer_start(self->trainer, &err);
    Py_END_ALLOW_THREADS self->busy = false;
    if (status < 0)
        return door_raise(door_state_of(object), &err);
    Py_RETURN_NONE;
}

static PyObject *trainer_shutdown(PyObject *object, PyObject *unused)
{
    trainer_object *self = (trainer_object *)object;
    if (enter(self) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS uni_trainer_shutdown(self->trainer);
    Py_END_ALLOW_THREADS self->busy = false;
    Py_RETURN_NONE;
}

/* ---- runs ---- */

static int put_ranks(door_state *state, PyObject *out, const uni_result *result)
{
    int size = uni_result_info_of(result)->world_size;
    PyObject *returned = PyList_New(size), *metrics = PyList_New(size),
             *iterations = PyList_New(size);
    bool good = returned && metrics && iterations;
    for (int i = 0; good && i < size; i++) {
        PyObject *value = door_value_to(state, uni_result_info_of(result)->returned[i]),
                 *last = door_value_to(state, uni_result_info_of(result)->metrics[i]),
                 *count = PyLong_FromLongLong(uni_result_info_of(result)->iterations[i]);
        good = value && last && count;
        PyList_SetItem(returned, i, value);
        PyList_SetItem(metrics, i, last);
        PyList_SetItem(iterations, i, count);
    }
    int status = 0;
    status |= door_put(out, "returned", returned);
    status |= door_put(out, "metrics", metrics);
    status |= door_put(out, "iterations", iterations);
    return good ? status : -1;
}

PyObject *door_result(door_state *state, const uni_result *result)
{
    PyObject *out = PyDict_New();
    if (!out)
        return NULL;
    const uni_error *error = uni_result_info_of(result)->error;
    PyObject *failure = error->code < 0 ? Py_BuildValue("(sis)", uni_status_name(error->code),
                                                        error->code, error->message)
                                        : Py_NewRef(Py_None);
    const uni_value *left = uni_result_info_of(result)->failure;
    int status = door_put(out, "error", failure);
    status |=
        door_put(out, "failed_rank", PyLong_FromLong(uni_result_info_of(result)->failed_rank));
    status |= door_put(out, "failure", door_value_to(state, left));
    status |= door_put(out, "hint", door_text(uni__result_hint(result)));
    status |= door_put(out, "run_dir", door_text(uni_result_info_of(result)->run_dir));
    status |= door_put(out, "latest_checkpoint",
                       door_text(uni_result_info_of(result)->latest_checkpoint));
    status |=
        door_put(out, "best_checkpoint", door_text(uni_result_info_of(result)->best_checkpoint));
    status |=
        door_put(out, "latest_dict", door_value_to(state, uni_result_info_of(result)->latest_dict));
    status |= door_put(out, "attempts", PyLong_FromLong(uni_result_info_of(result)->attempts));
    status |= door_put(out, "exit_code", PyLong_FromLong(uni_result_info_of(result)->exit_code));
    status |= put_ranks(state, out, result);
    if (status == 0)
        return out;
    Py_DECREF(out);
    return NULL;
}

typedef int (*run_call)(uni_result **, uni_trainer *, const uni_run_options *, uni_error *);

static PyObject *run_with(PyObject *object, PyObject *asked, run_call call)
{
    trainer_object *self = (trainer_object *)object;
    door_state *state = door_state_of(object);
    door_run run = { 0 };
    uni_result *result = NULL;
    uni_error err = { 0 };
    PyObject *answer = NULL;
    int status;
    if (enter(self) < 0)
        return NULL;
    if (door_run_options(state, &run, asked) == 0) {
        Py_BEGIN_ALLOW_THREADS status = call(&result, self->trainer, &run.options, &err);
        Py_END_ALLOW_THREADS if (result) answer = door_result(state, result);
        else if (status < 0) door_raise(state, &err);
    }
    uni_result_free(result);
    door_run_free(&run);
    self->busy = false;
    return answer;
}

static PyObject *trainer_run(PyObject *self, PyObject *asked)
{
    return run_with(self, asked, uni_trainer_run);
}

static PyObject *trainer_fit(PyObject *self, PyObject *asked)
{
    return run_with(self, asked, uni_trainer_fit);
}

static PyObject *trainer_run_iterator(PyObject *object, PyObject *asked)
{
    trainer_object *self = (trainer_object *)object;
    door_run run = { 0 };
    PyObject *iterator = NULL;
    if (enter(self) < 0)
        return NULL;
    if (door_run_options(door_state_of(object), &run, asked) == 0)
        iterator = door_iterator_new(object, self->trainer, &run);
    else
        door_run_free(&run);
    self->busy = false;
    return iterator;
}

static PyObject *trainer_stop(PyObject *object, PyObject *now)
{
    trainer_object *self = (trainer_object *)object;
    int at_once = PyObject_IsTrue(now);
    if (at_once < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS uni_trainer_stop(self->trainer, at_once);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *trainer_plan(PyObject *object, PyObject *unused)
{
    trainer_object *self = (trainer_object *)object;
    uni_value *plan = NULL;
    uni_error err = { 0 };
    if (enter(self) < 0)
        return NULL;
    int status = uni_trainer_plan(&plan, self->trainer, NULL, &err);
    self->busy = false;
    if (status < 0)
        return door_raise(door_state_of(object), &err);
    PyObject *out = door_value_to(door_state_of(object), plan);
    uni_value_free(plan);
    return out;
}

static PyObject *trainer_use_template(PyObject *object, PyObject *descriptor)
{
    trainer_object *self = (trainer_object *)object;
    uni_error err = { 0 };
    long fd = PyLong_AsLong(descriptor);
    int status;
    if ((fd == -1 && PyErr_Occurred()) || enter(self) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni__trainer_use_template(self->trainer, (int)fd, &err);
    Py_END_ALLOW_THREADS self->busy = false;
    if (status < 0)
        return door_raise(door_state_of(object), &err);
    Py_RETURN_NONE;
}

static PyObject *get_logdir(PyObject *self, void *unused)
{
    return door_text(uni__trainer_logdir(((trainer_object *)self)->trainer));
}

static PyObject *get_latest_run_dir(PyObject *self, void *unused)
{
    return door_text(uni_trainer_latest_run_dir(((trainer_object *)self)->trainer));
}

static PyObject *get_is_started(PyObject *self, void *unused)
{
    return PyBool_FromLong(uni__trainer_is_started(((trainer_object *)self)->trainer));
}

static PyGetSetDef getters[] = {
    { "logdir", get_logdir, NULL, NULL, NULL },
    { "latest_run_dir", get_latest_run_dir, NULL, NULL, NULL },
    { "is_started", get_is_started, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef methods[] = {
    { "start", trainer_start, METH_NOARGS, NULL },
    { "run", trainer_run, METH_O, "run(options) -> what the run left, also when it failed" },
    { "fit", trainer_fit, METH_O, "start when needed, run, shutdown" },
    { "run_iterator", trainer_run_iterator, METH_O, NULL },
    { "stop", trainer_stop, METH_O, "stop(now): from any thread" },
    { "plan", trainer_plan, METH_NOARGS, NULL },
    { "shutdown", trainer_shutdown, METH_NOARGS, NULL },
    { "use_template", trainer_use_template, METH_O, "workers are forked from it; -1: from none" },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_doc, "Trainer(**uni_trainer_options)" },
    { Py_tp_new, trainer_new },
    { Py_tp_dealloc, trainer_dealloc },
    { Py_tp_getset, getters },
    { Py_tp_methods, methods },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._unisono.Trainer", sizeof(trainer_object), 0,
                            Py_TPFLAGS_DEFAULT, slots };

int door_trainer_init(PyObject *module, door_state *state)
{
    state->trainer_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return state->trainer_type ? PyModule_AddType(module, state->trainer_type) : -1;
}
