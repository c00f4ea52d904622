/*
 * files.c - module functions: read and write checkpoints and run directories without a trainer.
 */
#include <stdlib.h>

#include <unisono/comm.h>
#include <unisono/run.h>

#include "train/shared.h"
#include "comm/shared.h"
#include "door.h"
#include "track/log_lines.h"

static uni_checkpoint *open_checkpoint(PyObject *module, PyObject *argument)
{
    uni_checkpoint *checkpoint = NULL;
    uni_error err = { 0 };
    const char *path = PyUnicode_AsUTF8AndSize(argument, NULL);
    if (path && uni_checkpoint_open(&checkpoint, path, &err) < 0)
        door_raise(PyModule_GetState(module), &err);
    return checkpoint;
}

static PyObject *checkpoint_info(PyObject *module, PyObject *path)
{
    door_state *state = PyModule_GetState(module);
    uni_checkpoint *checkpoint = open_checkpoint(module, path);
    if (!checkpoint)
        return NULL;
    PyObject *metrics = door_value_to(state, uni_checkpoint_info_of(checkpoint)->metrics);
    PyObject *out =
        metrics ? Py_BuildValue("{s:L,s:L,s:i,s:d,s:K,s:O,s:N}", "number",
                                (long long)uni_checkpoint_info_of(checkpoint)->number, "iteration",
                                (long long)uni_checkpoint_info_of(checkpoint)->iteration, "attempt",
                                uni_checkpoint_info_of(checkpoint)->attempt, "timestamp",
                                uni_checkpoint_info_of(checkpoint)->timestamp, "bytes",
                                (unsigned long long)uni_checkpoint_info_of(checkpoint)->bytes,
                                "is_dict",
                                uni_checkpoint_info_of(checkpoint)->is_dict ? Py_True : Py_False,
                                "metrics", metrics)
                : NULL;
    uni_checkpoint_close(checkpoint);
    return out;
}

static PyObject *checkpoint_read(PyObject *module, PyObject *path)
{
    door_state *state = PyModule_GetState(module);
    uni_checkpoint *checkpoint = open_checkpoint(module, path);
    uni_value *dict = NULL;
    uni_error err = { 0 };
    int status;
    if (!checkpoint)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_checkpoint_read_dict(&dict, checkpoint, &err);
    uni_checkpoint_close(checkpoint);
    Py_END_ALLOW_THREADS if (status < 0) return door_raise(state, &err);
    PyObject *out = door_value_to(state, dict);
    uni_value_free(dict);
    return out;
}

static PyObject *checkpoint_verify(PyObject *module, PyObject *path)
{
    uni_checkpoint *checkpoint = open_checkpoint(module, path);
    uni_error err = { 0 };
    int status;
    if (!checkpoint)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_checkpoint_verify(checkpoint, &err);
    uni_checkpoint_close(checkpoint);
    Py_END_ALLOW_THREADS if (status < 0) return door_raise(PyModule_GetState(module), &err);
    Py_RETURN_NONE;
}

static PyObject *checkpoint_latest(PyObject *module, PyObject *argument)
{
    uni_checkpoint *checkpoint = NULL;
    uni_error err = { 0 };
    const char *run_dir = PyUnicode_AsUTF8AndSize(argument, NULL);
    if (!run_dir)
        return NULL;
    int status = uni_checkpoint_open_latest(&checkpoint, run_dir, &err);
    if (status == UNI_ENOTFOUND)
        Py_RETURN_NONE;
    if (status < 0)
        return door_raise(PyModule_GetState(module), &err);
    PyObject *path = door_text(uni_checkpoint_info_of(checkpoint)->path);
    uni_checkpoint_close(checkpoint);
    return path;
}

static PyObject *checkpoint_write(PyObject *module, PyObject *arguments)
{
    door_state *state = PyModule_GetState(module);
    const char *path;
    PyObject *plain;
    uni_error err = { 0 };
    int status;
    if (!PyArg_ParseTuple(arguments, "sO", &path, &plain))
        return NULL;
    uni_value *dict = door_value_from(state, plain, NULL);
    if (!dict)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_checkpoint_write_dict(path, dict, &err);
    Py_END_ALLOW_THREADS uni_value_free(dict);
    if (status < 0)
        return door_raise(state, &err);
    Py_RETURN_NONE;
}

/* ---- runs ---- */

typedef struct collector {
    door_state *state;
    PyObject *list;
    int rank;
} collector;

static int collect(void *context, const uni_reports *reports, uni_error *err)
{
    collector *to = context;
    const uni_value *mine = to->rank < reports->world_size ? reports->by_rank[to->rank] : NULL;
    PyObject *item = mine ? door_value_to(to->state, mine) : NULL;
    if (!mine)
        return 0;
    int status = item ? PyList_Append(to->list, item) : -1;
    Py_XDECREF(item);
    return status < 0 ? uni_error_set(err, UNI_ENOMEM, "no memory for the reports") : 0;
}

/* run_reports(run_dir, rank): the dictionaries of that rank, in order */
static PyObject *run_reports(PyObject *module, PyObject *arguments)
{
    collector to = { .state = PyModule_GetState(module) };
    const char *path;
    uni_run *run = NULL;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "si", &path, &to.rank) || !(to.list = PyList_New(0)))
        return NULL;
    int status = uni_run_open(&run, path, NULL, &err);
    if (status == 0)
        status = uni_run_reports(run, collect, &to, &err);
    uni_run_close(run);
    if (status == 0)
        return to.list;
    Py_DECREF(to.list);
    return PyErr_Occurred() ? NULL : door_raise(to.state, &err);
}

static PyObject *run_description(PyObject *module, PyObject *argument)
{
    door_state *state = PyModule_GetState(module);
    const char *path = PyUnicode_AsUTF8AndSize(argument, NULL);
    uni_run *run = NULL;
    uni_error err = { 0 };
    if (!path)
        return NULL;
    if (uni_run_open(&run, path, NULL, &err) < 0)
        return door_raise(state, &err);
    PyObject *out = door_value_to(state, uni_run_info_of(run)->description);
    if (out)
        (void)door_put(out, "status",
                       PyUnicode_FromString(uni_run_status_name(uni_run_info_of(run)->status)));
    uni_run_close(run);
    return out;
}

static PyObject *run_check_owner(PyObject *module, PyObject *argument)
{
    uni_error err = { 0 };
    const char *path = PyUnicode_AsUTF8AndSize(argument, NULL);
    if (!path)
        return NULL;
    if (uni__run_check_owner(path, &err) < 0)
        return door_raise(PyModule_GetState(module), &err);
    Py_RETURN_NONE;
}

static PyObject *run_make_place(PyObject *module, PyObject *argument)
{
    uni_error err = { 0 };
    const char *path = PyUnicode_AsUTF8AndSize(argument, NULL);
    if (!path)
        return NULL;
    if (uni__run_make_place(path, &err) < 0)
        return door_raise(PyModule_GetState(module), &err);
    Py_RETURN_NONE;
}

static PyObject *storage(PyObject *module, PyObject *argument)
{
    char *path = NULL;
    uni_error err = { 0 };
    const char *asked = argument == Py_None ? NULL : PyUnicode_AsUTF8AndSize(argument, NULL);
    if (PyErr_Occurred())
        return NULL;
    if (uni__run_storage(&path, asked, &err) < 0)
        return door_raise(PyModule_GetState(module), &err);
    PyObject *out = door_text(path);
    free(path);
    return out;
}

static PyObject *tf_config_place(PyObject *module, PyObject *text)
{
    const char *config = PyUnicode_AsUTF8AndSize(text, NULL);
    uni_error err = { 0 };
    int rank, size;
    if (!config)
        return NULL;
    if (uni__comm_read_tf_config(config, &rank, &size, &err) < 0)
        return door_raise(PyModule_GetState(module), &err);
    return Py_BuildValue("(ii)", rank, size);
}

/* ---- the workers' logs ---- */

static const char log_lines_name[] = "unisono.log_lines";

static void log_lines_free(PyObject *capsule)
{
    uni__log_lines_free(PyCapsule_GetPointer(capsule, log_lines_name));
}

static PyObject *log_lines(PyObject *module, PyObject *arguments)
{
    const char *run_dir;
    int num_ranks, from_end;
    uni__log_lines *lines = NULL;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "sip", &run_dir, &num_ranks, &from_end))
        return NULL;
    if (uni__log_lines_new(&lines, run_dir, num_ranks, NULL, from_end, &err) < 0)
        return door_raise(PyModule_GetState(module), &err);
    PyObject *capsule = PyCapsule_New(lines, log_lines_name, log_lines_free);
    if (!capsule)
        uni__log_lines_free(lines);
    return capsule;
}

/* Appends (rank, bytes); drops a line if out of memory. */
static void add_line(void *list, int rank, const char *line, size_t size)
{
    PyObject *pair = Py_BuildValue("(iy#)", rank, line, (Py_ssize_t)size);
    if (!pair || PyList_Append(list, pair) < 0)
        PyErr_Clear();
    Py_XDECREF(pair);
}

static PyObject *log_lines_poll(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    int drain;
    if (!PyArg_ParseTuple(arguments, "Op", &capsule, &drain))
        return NULL;
    uni__log_lines *lines = PyCapsule_GetPointer(capsule, log_lines_name);
    PyObject *list = lines ? PyList_New(0) : NULL;
    if (list && drain)
        uni__log_lines_drain(lines, add_line, list);
    else if (list)
        uni__log_lines_poll(lines, add_line, list);
    return list;
}

PyMethodDef door_file_methods[] = {
    { "worker_serve", door_worker_serve, METH_O, "worker_serve(call) -> exit code" },
    { "open_session", door_open_session, METH_NOARGS, NULL },
    { "comm_named", door_comm_named, METH_VARARGS, "comm_named(name, rank, size, timeout_ms)" },
    { "template_serve", door_template_serve, METH_O,
      "template_serve(fd) -> None at the end; in each forked worker its environment, a list" },
    { "checkpoint_info", checkpoint_info, METH_O, NULL },
    { "checkpoint_read", checkpoint_read, METH_O, NULL },
    { "checkpoint_verify", checkpoint_verify, METH_O, NULL },
    { "checkpoint_latest", checkpoint_latest, METH_O, "path or None" },
    { "checkpoint_write", checkpoint_write, METH_VARARGS, "checkpoint_write(path, dict)" },
    { "run_reports", run_reports, METH_VARARGS, NULL },
    { "run_description", run_description, METH_O, NULL },
    { "run_make_place", run_make_place, METH_O,
      "run_make_place(path): makes STORAGE/NAME, ours alone" },
    { "run_check_owner", run_check_owner, METH_O,
      "raises unless the run or experiment is yours alone" },
    { "tf_config_place", tf_config_place, METH_O, "(rank, size) that TF_CONFIG says" },
    { "log_lines", log_lines, METH_VARARGS, "log_lines(run_dir, num_ranks, from_end)" },
    { "log_lines_poll", log_lines_poll, METH_VARARGS,
      "log_lines_poll(lines, drain) -> [(rank, line)]" },
    { "storage", storage, METH_O, "the directory that a storage path means" },
    { NULL, NULL, 0, NULL },
};
