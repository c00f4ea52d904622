/*
 * helpers.c - shared by both extension modules: raising unisono.Error, and helpers for dictionaries
 * and text.
 */
#include <stdarg.h>
#include <string.h>

#include "door.h"

door_state *door_state_of(PyObject *object)
{
    return PyType_GetModuleState(Py_TYPE(object));
}

/* The message as unisono._safe shows it: names from data and model files may contain escape
 * sequences, which a traceback would send to the terminal. Without that module (the interpreter is
 * shutting down) it is quoted ASCII. Takes over the message. */
static PyObject *make_safe(PyObject *message)
{
    if (!message)
        return NULL;
    PyObject *module = PyImport_ImportModule("unisono._safe");
    PyObject *safe = module ? PyObject_CallMethod(module, "text", "O", message) : NULL;
    if (!safe && PyErr_ExceptionMatches(PyExc_Exception)) { /* not a KeyboardInterrupt */
        PyErr_Clear();
        safe = PyObject_ASCII(message);
    }
    Py_XDECREF(module);
    Py_DECREF(message);
    return safe;
}

static PyObject *safe_message(const char *text)
{
    return make_safe(PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"));
}

PyObject *door_raise_text(PyObject *class_, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyObject *message = make_safe(PyUnicode_FromFormatV(format, values));
    va_end(values);
    if (message)
        PyErr_SetObject(class_, message);
    Py_XDECREF(message);
    return NULL;
}

/* class_(message) with code ("EWORKER") and status (-16). */
PyObject *door_raise_as(PyObject *class_, const uni_error *err)
{
    /* Canceled by a signal, whose exception is set. */
    if (err->code == UNI_ECANCELED && PyErr_Occurred())
        return NULL;
    if (err->code == UNI_ENOMEM)
        return PyErr_NoMemory();
    PyObject *message = safe_message(err->message);
    PyObject *error = message ? PyObject_CallFunctionObjArgs(class_, message, NULL) : NULL;
    PyObject *name = PyUnicode_FromString(uni_status_name(err->code));
    PyObject *number = PyLong_FromLong(err->code);
    if (error && name && number && PyObject_SetAttrString(error, "code", name) == 0 &&
        PyObject_SetAttrString(error, "status", number) == 0 &&
        PyObject_SetAttrString(error, "message", message) == 0)
        PyErr_SetObject(class_, error);
    Py_XDECREF(message);
    Py_XDECREF(error);
    Py_XDECREF(name);
    Py_XDECREF(number);
    return NULL;
}

PyObject *door_raise(door_state *state, const uni_error *err)
{
    return door_raise_as(state->error, err);
}

int door_put(PyObject *dict, const char *key, PyObject *value)
{
    int status = value ? PyDict_SetItemString(dict, key, value) : -1;
    Py_XDECREF(value);
    return status;
}

PyObject *door_text(const char *text)
{
    if (!text)
        Py_RETURN_NONE;
    return PyUnicode_DecodeFSDefault(text);
}

int door_error_from(PyObject *value, uni_error *err)
{
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *message = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    int status = uni_error_set(err, UNI_EFUNCTION, "%s",
                               message && message[0] ? message : "an exception without a message");
    PyErr_Clear();
    Py_XDECREF(text);
    return status;
}
