/*
 * session_groups.c - methods of the session object for groups whose ranks come and go while the
 * program runs (unisono.horovod's elastic). src/train/shared.h says what each of them does.
 */
#include "train/shared.h"
#include "door.h"

/* meet(after, progress): a communicator, and its group's number */
PyObject *door_session_meet(PyObject *object, PyObject *tuple)
{
    uni_session *session = door_session_of(object);
    return session ? door_comm_meet(door_state_of(object), session, tuple) : NULL;
}

/* set_replaceable(others, itself, resizes) */
PyObject *door_session_set_replaceable(PyObject *object, PyObject *tuple)
{
    uni_session *session = door_session_of(object);
    int others, itself, resizes;
    if (!session || !PyArg_ParseTuple(tuple, "ppp", &others, &itself, &resizes))
        return NULL;
    uni__session_set_replaceable(session, others, itself, resizes);
    Py_RETURN_NONE;
}

/* set_fixed(): workers can join and leave no more */
PyObject *door_session_set_fixed(PyObject *object, PyObject *unused)
{
    uni_session *session = door_session_of(object);
    if (!session)
        return NULL;
    uni__session_set_fixed(session, UNI__FIXED_LATER_FIT);
    Py_RETURN_NONE;
}

static bool read_number(PyObject *object, unsigned long *out)
{
    *out = PyLong_AsUnsignedLong(object);
    return !PyErr_Occurred();
}

/* is_asked(number): ranks wait to join the group that follows this one */
PyObject *door_session_is_asked(PyObject *object, PyObject *of)
{
    uni_session *session = door_session_of(object);
    unsigned long number;
    if (!session || !read_number(of, &number))
        return NULL;
    return PyBool_FromLong(uni__session_is_asked(session, (uint32_t)number));
}

PyObject *door_session_leaves(PyObject *object, PyObject *unused)
{
    uni_session *session = door_session_of(object);
    return session ? PyBool_FromLong(uni__session_leaves(session)) : NULL;
}

PyObject *door_session_left(PyObject *object, PyObject *unused)
{
    uni_session *session = door_session_of(object);
    if (!session)
        return NULL;
    uni__session_left(session);
    Py_RETURN_NONE;
}

/* end_fit(number): no group follows this one; EWORKER when another does */
PyObject *door_session_end_fit(PyObject *object, PyObject *of)
{
    uni_session *session = door_session_of(object);
    unsigned long number;
    uni_error err = { 0 };
    int status;
    if (!session || !read_number(of, &number))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni__session_end_fit(session, (uint32_t)number, &err);
    Py_END_ALLOW_THREADS if (status < 0) return door_raise(door_state_of(object), &err);
    Py_RETURN_NONE;
}

PyObject *door_session_stand_at(PyObject *object, PyObject *reports)
{
    uni_session *session = door_session_of(object);
    long long number = session ? PyLong_AsLongLong(reports) : 0;
    if (!session || PyErr_Occurred())
        return NULL;
    uni__session_stand_at(session, number);
    Py_RETURN_NONE;
}

/* This process came later than the others. */
PyObject *door_session_joins(PyObject *object, void *unused)
{
    uni_session *session = door_session_of(object);
    return session ? PyBool_FromLong(uni__session_joins(session)) : NULL;
}

PyObject *door_session_reports(PyObject *object, void *unused)
{
    uni_session *session = door_session_of(object);
    return session ? PyLong_FromLongLong(uni__session_reports(session)) : NULL;
}
