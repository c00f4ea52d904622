/*
 * tune.c - tuners and their results (unisono/tune.h). One object is a tuner, or the results of a
 * directory without one.
 *
 * step() runs without the GIL and takes it for calls to Python: samplers, and a user-defined
 * searcher, which is an object with ask(trial) -> config, None (not now) or False (no more),
 * tell(trial, config, value) and restore(trial, config). An exception in these ends the step, which
 * raises it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/tune.h>

#include "tune/shared.h"
#include "door.h"

typedef struct tuner_object {
    PyObject_HEAD door_state *state;
    uni_tuner *tuner;
    uni_tune_results *read; /* without a tuner */
    uni_value *spec_value, *attachment;
    uni__tune_spec *spec;
    PyObject *sampler, *searcher, *program;
    const char *words[16]; /* arguments of the program */
    uni_tune_sampler *samplers;
    uni_tune_searcher methods;
    PyObject *raised[3]; /* by a callback; step raises it */
    bool busy;
} tuner_object;

static const uni_tune_results *results_of(tuner_object *self)
{
    return self->tuner ? uni_tuner_results(self->tuner) : self->read;
}

/* ---- callbacks: from any library thread, without the GIL ---- */

static int keep_exception(tuner_object *self, uni_error *err)
{
    if (self->raised[0])
        PyErr_Clear();
    else
        PyErr_Fetch(&self->raised[0], &self->raised[1], &self->raised[2]);
    return uni_error_set(err, UNI_EFUNCTION, "it raised an exception");
}

static int call_sampler(void *context, const uni_value *config, uni_value **out, uni_error *err)
{
    void **both = context; /* the tuner, and the name */
    tuner_object *self = both[0];
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *given = door_value_to(self->state, config), *answer = NULL;
    int status = 0;
    if (given)
        answer = PyObject_CallFunction(self->sampler, "sO", (const char *)both[1], given);
    if (answer)
        *out = door_value_from(self->state, answer, NULL);
    if (!answer || !*out)
        status = keep_exception(self, err);
    Py_XDECREF(given);
    Py_XDECREF(answer);
    PyGILState_Release(gil);
    return status;
}

static int searcher_ask(void *context, int64_t trial, uni_value **config, uni_error *err)
{
    tuner_object *self = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *answer = PyObject_CallMethod(self->searcher, "ask", "L", (long long)trial);
    int status = 0;
    if (!answer)
        status = keep_exception(self, err);
    else if (answer == Py_False)
        status = UNI_EEND;
    else if (answer != Py_None)
        status =
            (*config = door_value_from(self->state, answer, NULL)) ? 1 : keep_exception(self, err);
    Py_XDECREF(answer);
    PyGILState_Release(gil);
    return status;
}

static int searcher_call(tuner_object *self, const char *method, int64_t trial,
                         const uni_value *config, double value, bool with_value, uni_error *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *given = door_value_to(self->state, config), *answer = NULL;
    int status = 0;
    if (given && with_value)
        answer = PyObject_CallMethod(self->searcher, method, "LOd", (long long)trial, given, value);
    else if (given)
        answer = PyObject_CallMethod(self->searcher, method, "LO", (long long)trial, given);
    if (!answer)
        status = keep_exception(self, err);
    Py_XDECREF(given);
    Py_XDECREF(answer);
    PyGILState_Release(gil);
    return status;
}

static int searcher_tell(void *context, int64_t trial, const uni_value *config, double value,
                         uni_error *err)
{
    return searcher_call(context, "tell", trial, config, value, true, err);
}

static int searcher_restore(void *context, int64_t trial, const uni_value *config, uni_error *err)
{
    return searcher_call(context, "restore", trial, config, 0, false, err);
}

/* ---- life cycle ---- */

static void tuner_dealloc(PyObject *object)
{
    tuner_object *self = (tuner_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_BEGIN_ALLOW_THREADS uni_tuner_free(self->tuner);
    Py_END_ALLOW_THREADS uni_tune_results_free(self->read);
    uni__tune_spec_free(self->spec);
    uni_value_free(self->spec_value);
    uni_value_free(self->attachment);
    for (uni_tune_sampler *at = self->samplers; at && at->name; at++) {
        free(((void **)at->context)[1]);
        free(at->context);
    }
    free(self->samplers);
    Py_XDECREF(self->sampler);
    Py_XDECREF(self->searcher);
    Py_XDECREF(self->program);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(self->raised[i]);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* names: a list of strings; each becomes a sampler that calls sampler(name, config). */
static int make_samplers(tuner_object *self, PyObject *names)
{
    Py_ssize_t count = PyList_Size(names);
    self->samplers = calloc((size_t)count + 1, sizeof *self->samplers);
    for (Py_ssize_t i = 0; self->samplers && i < count; i++) {
        const char *name = PyUnicode_AsUTF8AndSize(PyList_GetItem(names, i), NULL);
        void **both = name ? malloc(2 * sizeof *both) : NULL;
        if (!both)
            return -1;
        both[0] = self;
        both[1] = strdup(name);
        self->samplers[i] =
            (uni_tune_sampler){ .name = both[1], .call = call_sampler, .context = both };
    }
    return self->samplers ? 0 : -1;
}

static PyObject *raise_from(tuner_object *self, const uni_error *err)
{
    if (!self->raised[0])
        return door_raise(self->state, err);
    PyErr_Restore(self->raised[0], self->raised[1], self->raised[2]);
    memset(self->raised, 0, sizeof self->raised);
    return NULL;
}

/* Tuner(spec, program, attachment, sampler_names, sampler, searcher, resume, how): how has the
 * flags of uni_tuner_open */
static PyObject *tuner_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *spec, *program, *attachment, *names, *sampler, *searcher;
    const char *resume;
    unsigned how;
    int status;
    if (!PyArg_ParseTuple(arguments, "OOOOOOzI", &spec, &program, &attachment, &names, &sampler,
                          &searcher, &resume, &how))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    tuner_object *self = (tuner_object *)allocate(type, 0);
    if (!self)
        return NULL;
    self->state = door_state_of((PyObject *)self);
    uni_error err = { 0 };
    uni_tuner_options options = { 0 };
    self->sampler = Py_NewRef(sampler);
    self->searcher = Py_NewRef(searcher);
    self->program = Py_NewRef(program);
    if (!(self->spec_value = door_value_from(self->state, spec, NULL)) ||
        (attachment != Py_None &&
         !(self->attachment = door_value_from(self->state, attachment, NULL))) ||
        make_samplers(self, names) < 0)
        goto fail;
    if (uni__tune_spec_read(&self->spec, self->spec_value, &err) < 0) {
        door_raise(self->state, &err);
        goto fail;
    }
    options = *uni__tune_spec_options(self->spec);
    for (Py_ssize_t i = 0; program != Py_None && i < PyList_Size(program) && i < 15; i++)
        if (!(self->words[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(program, i), NULL)))
            goto fail;
    options.worker_program = program == Py_None ? NULL : self->words;
    options.attachment = self->attachment;
    options.samplers = self->samplers;
    self->methods = (uni_tune_searcher){ .name = "own",
                                         .self = self,
                                         .ask = searcher_ask,
                                         .tell = searcher_tell,
                                         .restore = searcher_restore };
    if (searcher != Py_None)
        options.own_searcher = &self->methods;
    Py_BEGIN_ALLOW_THREADS status = resume
                                        ? uni_tuner_open(&self->tuner, resume, &options, how, &err)
                                        : uni_tuner_new(&self->tuner, &options, &err);
    Py_END_ALLOW_THREADS if (status == 0) return (PyObject *)self;
    raise_from(self, &err);
fail:
    Py_DECREF(self);
    return NULL;
}

static PyObject *read_results(PyObject *type, PyObject *arguments)
{
    const char *dir, *storage;
    uni_error err = { 0 };
    if (!PyArg_ParseTuple(arguments, "sz", &dir, &storage))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    tuner_object *self = (tuner_object *)allocate((PyTypeObject *)type, 0);
    if (!self)
        return NULL;
    self->state = door_state_of((PyObject *)self);
    if (uni_tune_results_open(&self->read, dir, storage, &err) < 0) {
        door_raise(self->state, &err);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* ---- running ---- */

static PyObject *tuner_step(PyObject *object, PyObject *seconds)
{
    tuner_object *self = (tuner_object *)object;
    double patience = PyFloat_AsDouble(seconds);
    uni_error err = { 0 };
    int status;
    if (PyErr_Occurred())
        return NULL;
    if (!self->tuner || self->busy)
        return door_raise(self->state, &(uni_error){ .code = UNI_ESTATE,
                                                     .message = "this tuner is busy or closed" });
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS status = uni_tuner_step(self->tuner, patience, &err);
    Py_END_ALLOW_THREADS self->busy = false;
    if (status < 0)
        return raise_from(self, &err);
    return PyBool_FromLong(status);
}

static PyObject *tuner_stop(PyObject *object, PyObject *unused)
{
    tuner_object *self = (tuner_object *)object;
    if (self->tuner)
        uni_tuner_stop(self->tuner);
    Py_RETURN_NONE;
}

/* Ends the tuner and keeps its findings: reads the results back from the journal. */
static PyObject *tuner_close(PyObject *object, PyObject *unused)
{
    tuner_object *self = (tuner_object *)object;
    if (!self->tuner || self->busy)
        Py_RETURN_NONE;
    uni_tuner *tuner = self->tuner;
    uni_error err = { 0 };
    int status;
    char *dir = strdup(uni_tune_info_of(uni_tuner_results(tuner))->dir);
    self->tuner = NULL;
    Py_BEGIN_ALLOW_THREADS uni_tuner_free(tuner);
    status = dir ? uni_tune_results_open(&self->read, dir, NULL, &err) : UNI_ENOMEM;
    Py_END_ALLOW_THREADS free(dir);
    if (status < 0)
        return door_raise(self->state, &err);
    Py_RETURN_NONE;
}

/* ---- results ---- */

static PyObject *take_text(char *text)
{
    PyObject *out = door_text(text);
    free(text);
    return out;
}

static PyObject *trial_at(tuner_object *self, int64_t i)
{
    const uni_tune_results *results = results_of(self);
    PyObject *out = PyDict_New();
    if (!out)
        return NULL;
    int status = door_put(out, "trial", PyLong_FromLongLong(i));
    status |= door_put(out, "status",
                       door_text(uni_trial_status_name(uni_trial_info_of(results, i)->status)));
    status |=
        door_put(out, "config", door_value_to(self->state, uni_trial_info_of(results, i)->config));
    status |= door_put(out, "metrics",
                       door_value_to(self->state, uni_trial_info_of(results, i)->metrics));
    status |=
        door_put(out, "iterations", PyLong_FromLongLong(uni_trial_info_of(results, i)->iterations));
    status |= door_put(out, "seconds", PyFloat_FromDouble(uni_trial_info_of(results, i)->seconds));
    status |= door_put(out, "attempts", PyLong_FromLong(uni_trial_info_of(results, i)->attempts));
    status |= door_put(out, "error", door_text(uni_trial_info_of(results, i)->error));
    status |= door_put(out, "why", door_text(uni_trial_info_of(results, i)->why));
    status |= door_put(out, "dir", take_text(uni_trial_dir(results, i)));
    status |= door_put(out, "checkpoint", take_text(uni_trial_checkpoint(results, i, false)));
    status |= door_put(out, "best_checkpoint", take_text(uni_trial_checkpoint(results, i, true)));
    if (status == 0)
        return out;
    Py_DECREF(out);
    return NULL;
}

static PyObject *tuner_trials(PyObject *object, PyObject *unused)
{
    tuner_object *self = (tuner_object *)object;
    int64_t count = uni_tune_info_of(results_of(self))->num_trials;
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list && i < count; i++) {
        PyObject *item = trial_at(self, i);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

/* Trials that failed permanently: cheap enough to poll. */
static PyObject *tuner_failures(PyObject *object, PyObject *unused)
{
    const uni_tune_results *results = results_of((tuner_object *)object);
    door_state *state = ((tuner_object *)object)->state;
    PyObject *list = PyList_New(0);
    if (uni_tune_count_status(results, UNI_TRIAL_ERROR) == 0)
        return list;
    for (int64_t i = 0; list && i < uni_tune_info_of(results)->num_trials; i++) {
        if (uni_trial_info_of(results, i)->status != UNI_TRIAL_ERROR)
            continue;
        PyObject *item =
            Py_BuildValue("(LNNN)", (long long)i, door_text(uni_trial_info_of(results, i)->error),
                          take_text(uni_trial_dir(results, i)),
                          door_value_to(state, uni_trial_info_of(results, i)->failure));
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static int scope_of(const char *name, uni_scope *out)
{
    static const char *const names[] = { "last", "all", "avg" };
    for (int i = 0; i < 3; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (uni_scope)i;
            return 0;
        }
    door_raise_text(PyExc_ValueError, "scope must be \"last\", \"all\" or \"avg\", not \"%s\"",
                    name);
    return -1;
}

static PyObject *tuner_best(PyObject *object, PyObject *arguments)
{
    tuner_object *self = (tuner_object *)object;
    const char *metric, *mode, *scope;
    uni_scope wanted;
    uni_error err = { 0 };
    int64_t best;
    if (!PyArg_ParseTuple(arguments, "zzs", &metric, &mode, &scope) || scope_of(scope, &wanted) < 0)
        return NULL;
    if (uni_tune_best(&best, results_of(self), metric, mode, wanted, &err) < 0)
        return door_raise(self->state, &err);
    return PyLong_FromLongLong(best);
}

static PyObject *tuner_csv(PyObject *object, PyObject *times)
{
    tuner_object *self = (tuner_object *)object;
    uni_error err = { 0 };
    char *text = NULL;
    if (uni_tune_csv(&text, results_of(self), PyObject_IsTrue(times) == 1, &err) < 0)
        return door_raise(self->state, &err);
    return take_text(text);
}

typedef struct collector {
    tuner_object *self;
    PyObject *list;
} collector;

static int collect(void *context, int64_t trial, int64_t iteration, const uni_value *metrics,
                   uni_error *err)
{
    collector *into = context;
    PyObject *value = door_value_to(into->self->state, metrics);
    PyObject *item =
        value ? Py_BuildValue("(LLN)", (long long)trial, (long long)iteration, value) : NULL;
    int failed = !item || PyList_Append(into->list, item) < 0;
    Py_XDECREF(item);
    return failed ? UNI_ENOMEM : 0;
}

static PyObject *tuner_reports(PyObject *object, PyObject *unused)
{
    collector into = { .self = (tuner_object *)object, .list = PyList_New(0) };
    uni_error err = { 0 };
    if (!into.list)
        return NULL;
    if (uni_tune_reports(results_of(into.self), collect, &into, &err) == 0)
        return into.list;
    Py_DECREF(into.list);
    return PyErr_Occurred() ? NULL : door_raise(into.self->state, &err);
}

static PyObject *get_dir(PyObject *object, void *unused)
{
    return door_text(uni_tune_info_of(results_of((tuner_object *)object))->dir);
}

static PyObject *get_spec(PyObject *object, void *unused)
{
    tuner_object *self = (tuner_object *)object;
    return door_value_to(self->state, uni_tune_info_of(results_of(self))->spec);
}

static PyObject *get_finished(PyObject *object, void *unused)
{
    return PyBool_FromLong(uni_tune_info_of(results_of((tuner_object *)object))->is_finished);
}

static PyObject *get_metrics(PyObject *object, void *unused)
{
    tuner_object *self = (tuner_object *)object;
    uni_value *names = uni__tune_metric_names(results_of(self));
    PyObject *out = door_value_to(self->state, names);
    uni_value_free(names);
    return out;
}

static PyObject *get_counts(PyObject *object, void *unused)
{
    const uni_tune_results *results = results_of((tuner_object *)object);
    PyObject *out = PyDict_New();
    int status = out ? door_put(out, "expected",
                                PyLong_FromLongLong(uni_tune_info_of(results)->num_expected))
                     : -1;
    for (int i = UNI_TRIAL_PENDING; status == 0 && i < UNI_TRIAL_STATUSES; i++)
        status = door_put(out, uni_trial_status_name(i),
                          PyLong_FromLongLong(uni_tune_count_status(results, i)));
    if (status == 0)
        return out;
    Py_XDECREF(out);
    return NULL;
}

static PyGetSetDef getters[] = {
    { "dir", get_dir, NULL, NULL, NULL },
    { "spec", get_spec, NULL, NULL, NULL },
    { "finished", get_finished, NULL, NULL, NULL },
    { "metric_names", get_metrics, NULL, NULL, NULL },
    { "counts", get_counts, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef methods[] = {
    { "step", tuner_step, METH_O, "step(seconds) -> True while there is more to do" },
    { "stop", tuner_stop, METH_NOARGS, "from any thread" },
    { "close", tuner_close, METH_NOARGS, "ends the tuner, keeps the results" },
    { "trials", tuner_trials, METH_NOARGS, NULL },
    { "failures", tuner_failures, METH_NOARGS,
      "[(trial, error, its directory, what its function left)]" },
    { "best", tuner_best, METH_VARARGS, "best(metric, mode, scope) -> number of the trial" },
    { "csv", tuner_csv, METH_O, "csv(with times)" },
    { "reports", tuner_reports, METH_NOARGS, "[(trial, iteration, metrics)]" },
    { "read", read_results, METH_VARARGS | METH_CLASS, "read(dir, storage)" },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_new, tuner_new },
    { Py_tp_dealloc, tuner_dealloc },
    { Py_tp_getset, getters },
    { Py_tp_methods, methods },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._unisono.Tuner", sizeof(tuner_object), 0, Py_TPFLAGS_DEFAULT,
                            slots };

int door_tune_init(PyObject *module, door_state *state)
{
    state->tuner_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return state->tuner_type ? PyModule_AddType(module, state->tuner_type) : -1;
}
