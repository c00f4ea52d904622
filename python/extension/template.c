/*
 * template.c - the interpreter as a template: forks workers with everything already imported
 * (unisono/template.h).
 *
 * Called from the only thread of a process that has imported what workers need. The GIL stays held
 * throughout, since no other thread can want it. Python's own hooks run around each fork, as in
 * os.fork.
 */

#include "train/shared.h"
#include "door.h"

extern char **environ;

static void before(void *unused)
{
    PyOS_BeforeFork();
}

static void after(void *unused, bool in_child)
{
    if (in_child)
        PyOS_AfterFork_Child();
    else
        PyOS_AfterFork_Parent();
}

static PyObject *environment(void)
{
    PyObject *list = PyList_New(0);
    for (char **pair = environ; list && *pair; pair++) {
        PyObject *text = PyUnicode_DecodeFSDefault(*pair);
        if (!text || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

PyObject *door_template_serve(PyObject *module, PyObject *descriptor)
{
    const uni__template_hooks hooks = { .before_fork = before, .after_fork = after };
    uni_error err = { 0 };
    long fd = PyLong_AsLong(descriptor);
    if (fd == -1 && PyErr_Occurred())
        return NULL;
    int served = uni__template_run((int)fd, &hooks, &err);
    if (served < 0)
        return door_raise(PyModule_GetState(module), &err);
    if (served == 1)
        return environment();
    Py_RETURN_NONE;
}
