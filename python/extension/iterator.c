/*
 * iterator.c - a run whose reports Python takes one iteration at a time.
 *
 * next() waits in slices, so that signal handlers (KeyboardInterrupt) run in between. The iterator
 * keeps its trainer and the sinks alive, which the run uses.
 */
#include "door.h"
#include "options.h"

#define SLICE_SECONDS 0.1

typedef struct iterator_object {
    PyObject_HEAD uni_iterator *iterator;
    PyObject *trainer;
    door_run run;
    bool busy;
} iterator_object;

PyObject *door_iterator_new(PyObject *trainer, uni_trainer *raw, door_run *run)
{
    door_state *state = door_state_of(trainer);
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->iterator_type, Py_tp_alloc);
    iterator_object *self = (iterator_object *)allocate(state->iterator_type, 0);
    uni_error err = { 0 };
    int status = UNI_ENOMEM;
    if (!self) {
        door_run_free(run);
        return NULL;
    }
    self->trainer = Py_NewRef(trainer);
    self->run = *run;
    /* Redirects pointers into *run to our copy. */
    if (run->options.policy)
        self->run.options.policy = &self->run.policy;
    if (run->options.sinks)
        self->run.options.sinks = self->run.sinks;
    Py_BEGIN_ALLOW_THREADS status =
        uni_trainer_run_iterator(&self->iterator, raw, &self->run.options, &err);
    Py_END_ALLOW_THREADS if (status == 0) return (PyObject *)self;
    Py_DECREF(self);
    return door_raise(state, &err);
}

static void iterator_dealloc(PyObject *object)
{
    iterator_object *self = (iterator_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_BEGIN_ALLOW_THREADS uni_iterator_free(self->iterator);
    Py_END_ALLOW_THREADS door_run_free(&self->run);
    Py_XDECREF(self->trainer);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *reports_to(door_state *state, const uni_reports *reports)
{
    PyObject *list = PyList_New(reports->world_size);
    for (int i = 0; list && i < reports->world_size; i++) {
        PyObject *item = door_value_to(state, reports->by_rank[i]);
        if (!item || PyList_SetItem(list, i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* A list of dictionaries by rank (None if a rank did not report), or None when the run is over,
 * whether it succeeded or failed. */
static PyObject *iterator_next(PyObject *object, PyObject *unused)
{
    iterator_object *self = (iterator_object *)object;
    door_state *state = door_state_of(object);
    const uni_reports *reports = NULL;
    uni_error err = { 0 };
    int status;
    if (self->busy)
        return door_raise(state,
                          &(uni_error){ .code = UNI_ESTATE,
                                        .message = "another thread waits for this iterator" });
    do {
        self->busy = true;
        Py_BEGIN_ALLOW_THREADS status =
            uni_iterator_next_within(&reports, self->iterator, SLICE_SECONDS, &err);
        Py_END_ALLOW_THREADS self->busy = false;
        if (PyErr_CheckSignals() < 0)
            return NULL;
    } while (status == UNI_ETIMEOUT && !uni_iterator_is_finished(self->iterator));
    if (status > 0)
        return reports_to(state, reports);
    if (uni_iterator_is_finished(self->iterator))
        Py_RETURN_NONE;
    return door_raise(state, &err);
}

static PyObject *iterator_result(PyObject *object, PyObject *unused)
{
    iterator_object *self = (iterator_object *)object;
    const uni_result *result = NULL;
    uni_error err = { 0 };
    int status = uni_iterator_result(&result, self->iterator, false, &err);
    if (!result)
        return status < 0 ? door_raise(door_state_of(object), &err) : PyErr_NoMemory();
    return door_result(door_state_of(object), result);
}

static PyObject *is_finished(PyObject *object, void *unused)
{
    return PyBool_FromLong(uni_iterator_is_finished(((iterator_object *)object)->iterator));
}

static PyGetSetDef getters[] = {
    { "is_finished", is_finished, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef methods[] = {
    { "next", iterator_next, METH_NOARGS, NULL },
    { "result", iterator_result, METH_NOARGS, "what the run left, once it is over" },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot slots[] = {
    { Py_tp_dealloc, iterator_dealloc },
    { Py_tp_getset, getters },
    { Py_tp_methods, methods },
    { 0, NULL },
};
static PyType_Spec spec = { "unisono._unisono.Iterator", sizeof(iterator_object), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots };

int door_iterator_init(PyObject *module, door_state *state)
{
    state->iterator_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return state->iterator_type ? 0 : -1;
}
