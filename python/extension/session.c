/*
 * session.c - the worker's side: the session object, and the loop that runs functions.
 *
 * A session object is valid while the function that received it runs; afterwards every call raises
 * an error. Waiting (a full ring, lockstep, the turn of a checkpoint) happens without the GIL.
 */
#include <stdlib.h>
#include <unisono/experimental/session_state.h>

#include "train/shared.h"
#include "door.h"

typedef struct session_object {
    PyObject_HEAD uni_session *session; /* NULL after its function has returned */
    bool owned; /* opened by open_session */
} session_object;

uni_session *door_session_of(PyObject *object)
{
    uni_session *session = ((session_object *)object)->session;
    if (!session)
        door_raise(door_state_of(object),
                   &(uni_error){ .code = UNI_ESTATE,
                                 .message = "this session is over: its function has returned" });
    return session;
}

static PyObject *wrap(door_state *state, uni_session *session, bool owned)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->session_type, Py_tp_alloc);
    session_object *self = (session_object *)allocate(state->session_type, 0);
    if (self) {
        self->session = session;
        self->owned = owned;
    }
    return (PyObject *)self;
}

static void session_dealloc(PyObject *object)
{
    session_object *self = (session_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->owned && self->session) {
        Py_BEGIN_ALLOW_THREADS uni_session_close(self->session);
        Py_END_ALLOW_THREADS
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* report(metrics, convert, dict, directory): the last two may be None */
static PyObject *session_report(PyObject *object, PyObject *arguments)
{
    door_state *state = door_state_of(object);
    uni_session *session = door_session_of(object);
    PyObject *metrics_object, *convert, *dict_object;
    const char *directory;
    uni_error err = { 0 };
    uni_value *metrics = NULL, *dict = NULL;
    int status = -1;
    if (!session ||
        !PyArg_ParseTuple(arguments, "OOOz", &metrics_object, &convert, &dict_object, &directory))
        return NULL;
    if (!(metrics = door_value_from(state, metrics_object, convert)) ||
        (dict_object != Py_None && !(dict = door_value_from(state, dict_object, NULL)))) {
        uni_value_free(metrics);
        return NULL;
    }
    uni_checkpoint_source source = { .directory = directory, .dict = dict };
    Py_BEGIN_ALLOW_THREADS status =
        uni_session_report(session, metrics, directory || dict ? &source : NULL, &err);
    Py_END_ALLOW_THREADS uni_value_free(metrics);
    uni_value_free(dict);
    if (status < 0)
        return door_raise(state, &err);
    Py_RETURN_NONE;
}

static PyObject *session_save_checkpoint(PyObject *object, PyObject *plain)
{
    door_state *state = door_state_of(object);
    uni_session *session = door_session_of(object);
    uni_value *dict = session ? door_value_from(state, plain, NULL) : NULL;
    uni_error err = { 0 };
    int status;
    if (!dict)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_session_save_checkpoint(session, dict, &err);
    Py_END_ALLOW_THREADS uni_value_free(dict);
    if (status < 0)
        return door_raise(state, &err);
    Py_RETURN_NONE;
}

static PyObject *session_load_checkpoint(PyObject *object, PyObject *unused)
{
    door_state *state = door_state_of(object);
    uni_session *session = door_session_of(object);
    uni_value *dict = NULL;
    uni_error err = { 0 };
    int status;
    if (!session)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_session_load_checkpoint(&dict, session, &err);
    Py_END_ALLOW_THREADS if (status < 0) return door_raise(state, &err);
    PyObject *out = door_value_to(state, dict);
    uni_value_free(dict);
    return out;
}

static PyObject *session_get_checkpoint(PyObject *object, PyObject *unused)
{
    uni_session *session = door_session_of(object);
    uni_checkpoint *checkpoint = NULL;
    uni_error err = { 0 };
    int status;
    if (!session)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_session_get_checkpoint(&checkpoint, session, &err);
    Py_END_ALLOW_THREADS if (status < 0) return door_raise(door_state_of(object), &err);
    PyObject *path = door_text(checkpoint ? uni_checkpoint_info_of(checkpoint)->path : NULL);
    uni_checkpoint_close(checkpoint);
    return path;
}

/* set_dataset_state(name, state or None): the state of a dataset's iterator, sent with the next
 * reports */
static PyObject *session_set_dataset_state(PyObject *object, PyObject *arguments)
{
    door_state *state = door_state_of(object);
    uni_session *session = door_session_of(object);
    const char *name;
    PyObject *given;
    uni_value *value = NULL;
    uni_error err = { 0 };
    if (!session || !PyArg_ParseTuple(arguments, "sO", &name, &given))
        return NULL;
    if (given != Py_None && !(value = door_value_from(state, given, NULL)))
        return NULL;
    int status = uni__session_set_dataset_state(session, name, value, &err);
    uni_value_free(value);
    if (status < 0)
        return door_raise(state, &err);
    Py_RETURN_NONE;
}

/* dataset_state(name): the state of all ranks from which this attempt resumes, or None */
static PyObject *session_dataset_state(PyObject *object, PyObject *name)
{
    uni_session *session = door_session_of(object);
    const char *text = session ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    return text ? door_value_to(door_state_of(object), uni__session_dataset_state(session, text))
                : NULL;
}

/* set_state(name, bytes or None): kept for this rank across restarts */
static PyObject *session_set_state(PyObject *object, PyObject *arguments)
{
    uni_session *session = door_session_of(object);
    const char *name;
    Py_buffer bytes = { 0 };
    uni_error err = { 0 };
    if (!session || !PyArg_ParseTuple(arguments, "sz*", &name, &bytes))
        return NULL;
    int status = uni_session_state_set(session, name, bytes.buf, (size_t)bytes.len, &err);
    PyBuffer_Release(&bytes);
    if (status < 0)
        return door_raise(door_state_of(object), &err);
    Py_RETURN_NONE;
}

/* state(name): the last value of set_state, or None */
static PyObject *session_state(PyObject *object, PyObject *name)
{
    uni_session *session = door_session_of(object);
    const char *text = session ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    size_t size = 0;
    const void *bytes = text ? uni_session_state_get(session, text, &size) : NULL;
    if (text && !bytes)
        Py_RETURN_NONE;
    return text ? PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size) : NULL;
}

static PyObject *session_checkpoint_dir(PyObject *object, PyObject *unused)
{
    uni_session *session = door_session_of(object);
    char *path = NULL;
    uni_error err = { 0 };
    if (!session)
        return NULL;
    if (uni_session_checkpoint_dir(&path, session, &err) < 0)
        return door_raise(door_state_of(object), &err);
    PyObject *out = door_text(path);
    free(path);
    return out;
}

static PyObject *session_should_stop(PyObject *object, PyObject *unused)
{
    uni_session *session = door_session_of(object);
    return session ? PyBool_FromLong(uni_session_should_stop(session)) : NULL;
}

static PyObject *session_request_stop(PyObject *object, PyObject *unused)
{
    uni_session *session = door_session_of(object);
    if (!session)
        return NULL;
    uni_session_request_stop(session);
    Py_RETURN_NONE;
}

/* comm([timeout_ms[, frozen_ms]]): all ranks call it */
static PyObject *session_comm(PyObject *object, PyObject *tuple)
{
    uni_session *session = door_session_of(object);
    return session ? door_comm_open(door_state_of(object), session, tuple) : NULL;
}

/* For unisono._engine, which opens strategies over this session: used at once, never stored. */
static PyObject *session_handle(PyObject *object, PyObject *unused)
{
    uni_session *session = door_session_of(object);
    return session ? PyCapsule_New(session, "unisono.session", NULL) : NULL;
}

/* ---- attributes ---- */

static PyObject *get_number(PyObject *object, void *which)
{
    uni_session *session = door_session_of(object);
    if (!session)
        return NULL;
    const uni_session_info *info = uni_session_info_of(session);
    const int numbers[] = { info->world_rank,       info->world_size, info->local_rank,
                            info->local_world_size, info->node_rank,  info->attempt };
    return PyLong_FromLong(numbers[(intptr_t)which]);
}

static PyObject *get_text(PyObject *object, void *which)
{
    uni_session *session = door_session_of(object);
    if (!session)
        return NULL;
    const uni_session_info *info = uni_session_info_of(session);
    const char *const texts[] = { info->experiment_name, info->run_dir, info->storage_path };
    return door_text(texts[(intptr_t)which]);
}

static PyObject *get_tree(PyObject *object, void *which)
{
    uni_session *session = door_session_of(object);
    if (!session)
        return NULL;
    return door_value_to(door_state_of(object), which ? uni__session_attachment(session)
                                                      : uni_session_info_of(session)->config);
}

/* None on a single host. */
static PyObject *get_secret(PyObject *object, void *unused)
{
    uint8_t secret[UNI_SESSION_SECRET_BYTES];
    uni_session *session = door_session_of(object);
    if (!session)
        return NULL;
    if (!uni_session_secret(session, secret))
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)secret, sizeof secret);
}

static PyObject *is_worker(PyObject *object, void *unused)
{
    uni_session *session = door_session_of(object);
    return session ? PyBool_FromLong(uni_session_info_of(session)->is_worker) : NULL;
}

/* Others can join it, or take its place: a strategy must be one of several workers. */
static PyObject *is_elastic(PyObject *object, void *unused)
{
    uni_session *session = door_session_of(object);
    return session ? PyBool_FromLong(uni__session_is_elastic(session)) : NULL;
}

static PyGetSetDef getters[] = {
    { "world_rank", get_number, NULL, NULL, (void *)0 },
    { "world_size", get_number, NULL, NULL, (void *)1 },
    { "local_rank", get_number, NULL, NULL, (void *)2 },
    { "local_world_size", get_number, NULL, NULL, (void *)3 },
    { "node_rank", get_number, NULL, NULL, (void *)4 },
    { "attempt", get_number, NULL, NULL, (void *)5 },
    { "experiment_name", get_text, NULL, NULL, (void *)0 },
    { "run_dir", get_text, NULL, NULL, (void *)1 },
    { "storage_path", get_text, NULL, NULL, (void *)2 },
    { "config", get_tree, NULL, NULL, (void *)0 },
    { "attachment", get_tree, NULL, NULL, (void *)1 },
    { "is_worker", is_worker, NULL, NULL, NULL },
    { "is_elastic", is_elastic, NULL, NULL, NULL },
    { "joins", door_session_joins, NULL, NULL, NULL },
    { "reports", door_session_reports, NULL, NULL, NULL },
    { "secret", get_secret, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef methods[] = {
    { "report", session_report, METH_VARARGS, "report(metrics, convert, dict, directory)" },
    { "save_checkpoint", session_save_checkpoint, METH_O, NULL },
    { "load_checkpoint", session_load_checkpoint, METH_NOARGS, NULL },
    { "get_checkpoint", session_get_checkpoint, METH_NOARGS, "its path, or None" },
    { "checkpoint_dir", session_checkpoint_dir, METH_NOARGS, NULL },
    { "set_dataset_state", session_set_dataset_state, METH_VARARGS, NULL },
    { "dataset_state", session_dataset_state, METH_O, NULL },
    { "set_state", session_set_state, METH_VARARGS, NULL },
    { "state", session_state, METH_O, NULL },
    { "comm", session_comm, METH_VARARGS, "a communicator of all ranks" },
    { "meet", door_session_meet, METH_VARARGS, "a communicator of the next group, and its number" },
    { "set_replaceable", door_session_set_replaceable, METH_VARARGS, NULL },
    { "set_fixed", door_session_set_fixed, METH_NOARGS, NULL },
    { "is_asked", door_session_is_asked, METH_O, NULL },
    { "leaves", door_session_leaves, METH_NOARGS, NULL },
    { "left", door_session_left, METH_NOARGS, NULL },
    { "end_fit", door_session_end_fit, METH_O, NULL },
    { "stand_at", door_session_stand_at, METH_O, NULL },
    { "should_stop", session_should_stop, METH_NOARGS, NULL },
    { "request_stop", session_request_stop, METH_NOARGS, NULL },
    { "_handle", session_handle, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_dealloc, session_dealloc },
    { Py_tp_getset, getters },
    { Py_tp_methods, methods },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._unisono.Session", sizeof(session_object), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots };

int door_session_init(PyObject *module, door_state *state)
{
    state->session_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return state->session_type ? 0 : -1;
}

/* ---- the worker's loop ---- */

typedef struct worker {
    door_state *state;
    PyObject *call;
} worker;

/* The exception's text becomes the error's message, with its attribute `failure`. Python code has
 * already printed the traceback. */
static int say_exception(door_state *state, uni_value **failure, uni_error *err)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *left = value ? PyObject_GetAttrString(value, "failure") : NULL;
    *failure = left ? door_value_from(state, left, NULL) : NULL;
    PyErr_Clear();
    Py_XDECREF(left);
    int status = door_error_from(value, err);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return status;
}

static int run_in_python(void *context, uni_session *session, const char *function,
                         uni_value **result, uni_error *err)
{
    worker *self = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    int status = 0;
    PyObject *object = wrap(self->state, session, false);
    PyObject *answer = object ? PyObject_CallFunction(self->call, "Os", object, function) : NULL;
    if (answer)
        *result = door_value_from(self->state, answer, NULL);
    if (!answer || !*result)
        status = say_exception(self->state, result, err);
    if (object)
        ((session_object *)object)->session = NULL;
    Py_XDECREF(answer);
    Py_XDECREF(object);
    PyGILState_Release(gil);
    return status;
}

PyObject *door_worker_serve(PyObject *module, PyObject *call)
{
    worker self = { .state = PyModule_GetState(module), .call = call };
    uni_error err = { 0 };
    int code;
    Py_BEGIN_ALLOW_THREADS code = uni__worker_serve(run_in_python, &self, &err);
    Py_END_ALLOW_THREADS return code < 0 ? door_raise(self.state, &err) : PyLong_FromLong(code);
}

PyObject *door_open_session(PyObject *module, PyObject *unused)
{
    door_state *state = PyModule_GetState(module);
    uni_session *session = NULL;
    uni_error err = { 0 };
    int status;
    Py_BEGIN_ALLOW_THREADS status = uni_session_open(&session, &err);
    Py_END_ALLOW_THREADS return status < 0 ? door_raise(state, &err) : wrap(state, session, true);
}
