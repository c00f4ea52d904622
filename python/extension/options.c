/*
 * options.c - one table of names per options struct: a dictionary may have the fields of the
 * struct. Unknown names are errors.
 */
#include <stddef.h>
#include <string.h>

#include "options.h"

typedef enum kind { TEXT, NUMBER, WHOLE, LARGE, TRUTH, LIST } kind;

typedef struct field {
    const char *name;
    kind kind;
    size_t offset;
} field;

#define T(name, kind)                                                                              \
    {                                                                                              \
#name, kind, offsetof(uni_trainer_options, name)                                           \
    }
static const field trainer_fields[] = {
    T(worker_program, LIST),
    T(num_workers, WHOLE),
    T(backend, TEXT),
    T(launcher, TEXT),
    T(cpus_per_worker, NUMBER),
    T(memory_per_worker, NUMBER),
    T(address_space_limit, NUMBER),
    T(use_gpu, TRUTH),
    T(gpus_per_worker, WHOLE),
    T(name, TEXT),
    T(storage_path, TEXT),
    T(environment, LIST),
    T(environment_file, TEXT),
    T(working_directory, TEXT),
    T(max_failures, WHOLE),
    T(no_retry_errors, TRUTH),
    T(grace_seconds, NUMBER),
    T(hello_timeout, NUMBER),
    T(silent_timeout, NUMBER),
    T(handle_signals, TRUTH),
    T(lockstep, TRUTH),
    T(fresh_workers, TRUTH),
    T(log_cap, LARGE),
    T(servers, WHOLE),
    T(evaluators, WHOLE),
    { NULL, 0, 0 },
};
#define R(name, kind)                                                                              \
    {                                                                                              \
#name, kind, offsetof(uni_run_options, name)                                               \
    }
static const field run_fields[] = {
    R(function, TEXT),
    R(from_checkpoint, TEXT),
    R(resume_run, TEXT),
    R(time_limit, NUMBER),
    R(progress_timeout, NUMBER),
    R(v1_checkpoints, TRUTH),
    R(synchronous_checkpoints, TRUTH),
    { NULL, 0, 0 },
};

void door_strings_free(door_strings *strings)
{
    for (int i = 0; i < strings->count; i++)
        PyMem_Free((void *)strings->lists[i]);
}

static const char **read_list(PyObject *list, door_strings *strings)
{
    Py_ssize_t size = PyList_Size(list);
    const char **out = size < 0 ? NULL : PyMem_Calloc((size_t)size + 1, sizeof *out);
    if (!out || !strings || strings->count == DOOR_STRINGS_MAX) {
        PyMem_Free((void *)out);
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return NULL;
    }
    strings->lists[strings->count++] = out;
    for (Py_ssize_t i = 0; i < size; i++)
        if (!(out[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL)))
            return NULL;
    return out;
}

static int read_field(void *out, const field *entry, PyObject *value, door_strings *strings)
{
    void *at = (char *)out + entry->offset;
    if (value == Py_None)
        return 0;
    switch (entry->kind) {
    case TEXT:
        *(const char **)at = PyUnicode_AsUTF8AndSize(value, NULL);
        break;
    case NUMBER:
        *(double *)at = PyFloat_AsDouble(value);
        break;
    case WHOLE:
        *(int *)at = (int)PyLong_AsLong(value);
        break;
    case LARGE:
        *(uint64_t *)at = PyLong_AsUnsignedLongLong(value);
        break;
    case TRUTH:
        *(bool *)at = PyObject_IsTrue(value) == 1;
        break;
    case LIST:
        *(const char *const **)at = read_list(value, strings);
        break;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static const field *find_field(const field *fields, const char *name)
{
    for (; fields->name; fields++)
        if (strcmp(fields->name, name) == 0)
            return fields;
    return NULL;
}

int door_trainer_options(uni_trainer_options *out, PyObject *keywords, door_strings *strings)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (keywords && PyDict_Next(keywords, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        const field *entry = name ? find_field(trainer_fields, name) : NULL;
        if (name && !entry)
            door_raise_text(PyExc_TypeError, "a trainer has no option %s", name);
        if (!entry || read_field(out, entry, value, strings) < 0)
            return -1;
    }
    return 0;
}

/* ---- runs ---- */

static const char *text_at(PyObject *dict, const char *key)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    return value && value != Py_None ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
}

static int int_at(PyObject *dict, const char *key)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    return value && value != Py_None ? (int)PyLong_AsLong(value) : 0;
}

static int json_sink(uni_sink **out, PyObject *asked, uni_error *err)
{
    int *ranks = NULL;
    uni_sink_json_options options = { .dir = text_at(asked, "dir"),
                                      .filename = text_at(asked, "filename") };
    PyObject *list = PyDict_GetItemString(asked, "ranks");
    if (list == Py_None) {
        options.num_ranks = -1;
    } else if (list) {
        options.num_ranks = (int)PyList_Size(list);
        options.ranks = ranks = PyMem_Calloc((size_t)options.num_ranks + 1, sizeof *ranks);
        if (!ranks)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a list of ranks");
        for (int i = 0; i < options.num_ranks; i++)
            ranks[i] = (int)PyLong_AsLong(PyList_GetItem(list, i));
    }
    int status = PyErr_Occurred() ? UNI_EINVAL : uni_sink_json(out, &options, err);
    PyMem_Free(ranks);
    return status;
}

static int mlflow_sink(door_state *state, door_run *run, PyObject *asked, uni_error *err)
{
    PyObject *save = PyDict_GetItemString(asked, "save_artifact"),
             *tags = PyDict_GetItemString(asked, "tags");
    uni_sink_mlflow_options options = {
        .tracking_uri = text_at(asked, "tracking_uri"),
        .tracking_token = text_at(asked, "tracking_token"),
        .experiment_name = text_at(asked, "experiment_name"),
        .experiment_id = text_at(asked, "experiment_id"),
        .save_artifact = save && PyObject_IsTrue(save) == 1,
        .rank = int_at(asked, "rank"),
    };
    if (tags && tags != Py_None &&
        !(options.tags = run->tags[run->num_sinks] = door_value_from(state, tags, NULL)))
        return UNI_EINVAL;
    return PyErr_Occurred() ? UNI_EINVAL
                            : uni_sink_mlflow(&run->sinks[run->num_sinks], &options, err);
}

/* ("tensorboard", {...}) and the like. */
static int add_sink(door_state *state, door_run *run, PyObject *pair)
{
    const char *name;
    PyObject *asked;
    uni_error err = { 0 };
    int status;
    if (run->num_sinks == DOOR_SINKS_MAX) {
        door_raise_text(PyExc_ValueError, "at most %d loggers", DOOR_SINKS_MAX);
        return -1;
    }
    if (!PyArg_ParseTuple(pair, "sO!", &name, &PyDict_Type, &asked))
        return -1;
    uni_sink **out = &run->sinks[run->num_sinks];
    if (strcmp(name, "json") == 0)
        status = json_sink(out, asked, &err);
    else if (strcmp(name, "tensorboard") == 0)
        status = uni_sink_tensorboard(
            out,
            &(uni_sink_tensorboard_options){ .dir = text_at(asked, "dir"),
                                             .prefix = text_at(asked, "prefix"),
                                             .rank = int_at(asked, "rank") },
            &err);
    else if (strcmp(name, "mlflow") == 0)
        status = mlflow_sink(state, run, asked, &err);
    else if (strcmp(name, "progress") == 0)
        status = uni_sink_progress(out, NULL, &err);
    else
        status = uni_error_set(&err, UNI_EINVAL, "there is no sink %s", name);
    if (status < 0) {
        if (!PyErr_Occurred())
            door_raise(state, &err);
        return -1;
    }
    run->num_sinks++;
    return 0;
}

static int add_sinks(door_state *state, door_run *run, PyObject *list)
{
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++)
        if (add_sink(state, run, PyList_GetItem(list, i)) < 0)
            return -1;
    run->options.sinks = run->sinks;
    run->options.num_sinks = run->num_sinks;
    return 0;
}

/* (num_to_keep, attribute or None, order). Ranks may use the same names, as with Ray. */
static int read_policy(door_run *run, PyObject *value)
{
    int order;
    run->policy.lowest_rank_wins = true;
    if (!PyArg_ParseTuple(value, "izi", &run->policy.num_to_keep, &run->policy.score_attribute,
                          &order))
        return -1;
    run->policy.score_order = order ? UNI_SCORE_MIN : UNI_SCORE_MAX;
    run->options.policy = &run->policy;
    return 0;
}

static int read_value(door_state *state, uni_value **slot, const uni_value **option,
                      PyObject *value)
{
    *option = *slot = door_value_from(state, value, NULL);
    return *slot ? 0 : -1;
}

static int read_run_key(door_state *state, door_run *run, const char *name, PyObject *value)
{
    uni_run_options *options = &run->options;
    const field *entry = find_field(run_fields, name);
    if (value == Py_None)
        return 0;
    if (entry)
        return read_field(options, entry, value, NULL);
    if (strcmp(name, "config") == 0)
        return read_value(state, &run->config, &options->config, value);
    if (strcmp(name, "attachment") == 0)
        return read_value(state, &run->attachment, &options->attachment, value);
    if (strcmp(name, "from_dict") == 0)
        return read_value(state, &run->from_dict, &options->from_dict, value);
    if (strcmp(name, "sinks") == 0)
        return add_sinks(state, run, value);
    if (strcmp(name, "policy") == 0)
        return read_policy(run, value);
    door_raise_text(PyExc_TypeError, "a run has no option %s", name);
    return -1;
}

int door_run_options(door_state *state, door_run *out, PyObject *asked)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    if (!PyDict_Check(asked)) {
        PyErr_SetString(PyExc_TypeError, "the options of a run are a dictionary");
        return -1;
    }
    /* Our own copy: its strings must outlive the run. */
    if (!(out->asked = PyDict_Copy(asked)))
        return -1;
    while (PyDict_Next(out->asked, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        if (!name || read_run_key(state, out, name, value) < 0)
            return -1;
    }
    return 0;
}

void door_run_free(door_run *run)
{
    for (int i = 0; i < run->num_sinks; i++)
        uni_sink_free(run->sinks[i]);
    for (int i = 0; i < DOOR_SINKS_MAX; i++)
        uni_value_free(run->tags[i]);
    uni_value_free(run->config);
    uni_value_free(run->attachment);
    uni_value_free(run->from_dict);
    Py_XDECREF(run->asked);
}
