/*
 * value.c - plain Python trees to uni_value and back.
 *
 * Exact and fast, because every report of every rank passes through here: no Python code runs for
 * numbers, text, lists and dictionaries. Anything else goes to the caller's `convert` first.
 */
#include <string.h>

#include "door.h"

static uni_value *convert_tree(door_state *state, PyObject *object, PyObject *convert, int depth);

static uni_value *no_memory(uni_value *value)
{
    if (!value && !PyErr_Occurred())
        PyErr_NoMemory();
    return value;
}

/* Handles an item of a container: takes it over, or fails with the exception that is set. */
static int keep(int status)
{
    if (status < 0 && !PyErr_Occurred()) {
        if (status == UNI_ENOMEM)
            PyErr_NoMemory();
        else
            PyErr_SetString(PyExc_ValueError, "a key of a dictionary is not valid UTF-8 text");
    }
    return status;
}

static uni_value *from_list(door_state *state, PyObject *object, PyObject *convert, int depth)
{
    uni_value *list = no_memory(uni_value_list());
    bool tuple = PyTuple_Check(object);
    /* Gets the size again in every step: convert may run code that changes the list. */
    for (Py_ssize_t i = 0; list && i < (tuple ? PyTuple_Size(object) : PyList_Size(object)); i++) {
        PyObject *item = tuple ? PyTuple_GetItem(object, i) : PyList_GetItem(object, i);
        Py_XINCREF(item);
        uni_value *value = item ? convert_tree(state, item, convert, depth + 1) : NULL;
        Py_XDECREF(item);
        if (!value || keep(uni_list_take(list, value)) < 0) {
            uni_value_free(list);
            return NULL;
        }
    }
    return list;
}

static int put_pair(door_state *state, uni_value *dict, PyObject *key, PyObject *item,
                    PyObject *convert, int depth)
{
    Py_ssize_t length;
    const char *name = PyUnicode_AsUTF8AndSize(key, &length);
    if (!name)
        return -1;
    if (strlen(name) != (size_t)length) {
        door_raise_text(PyExc_ValueError, "the key %R has a zero byte", key);
        return -1;
    }
    uni_value *value = convert_tree(state, item, convert, depth + 1);
    return value ? keep(uni_dict_take(dict, name, value)) : -1;
}

/* With a converter (reports), a key of any type becomes its text. A new reference. */
static PyObject *key_text(PyObject *key, PyObject *convert)
{
    if (PyUnicode_Check(key))
        return Py_NewRef(key);
    if (convert && convert != Py_None)
        return PyObject_Str(key);
    return door_raise_text(PyExc_TypeError, "keys must be text, not %R", key);
}

static uni_value *from_dict(door_state *state, PyObject *object, PyObject *convert, int depth)
{
    PyObject *items = PyDict_Items(object);
    uni_value *dict = items ? no_memory(uni_value_dict()) : NULL;
    for (Py_ssize_t i = 0; dict && i < PyList_Size(items); i++) {
        PyObject *pair = PyList_GetItem(items, i);
        PyObject *key = key_text(PyTuple_GetItem(pair, 0), convert);
        if (!key || put_pair(state, dict, key, PyTuple_GetItem(pair, 1), convert, depth) < 0) {
            uni_value_free(dict);
            dict = NULL;
        }
        Py_XDECREF(key);
    }
    Py_XDECREF(items);
    return dict;
}

static uni_value *from_other(door_state *state, PyObject *object, PyObject *convert, int depth)
{
    if (!convert || convert == Py_None) {
        PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
        door_raise_text(PyExc_TypeError, "an object of type %S is not plain data", type);
        Py_XDECREF(type);
        return NULL;
    }
    PyObject *plain = PyObject_CallFunctionObjArgs(convert, object, NULL);
    uni_value *value = plain ? convert_tree(state, plain, convert, depth + 1) : NULL;
    Py_XDECREF(plain);
    return value;
}

static uni_value *from_int(door_state *state, PyObject *object, PyObject *convert, int depth)
{
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (!overflow)
        return number == -1 && PyErr_Occurred() ? NULL : no_memory(uni_value_int(number));
    if (convert && convert != Py_None)
        return from_other(state, object, convert, depth);
    PyErr_SetString(PyExc_OverflowError, "an integer does not fit 64 bits");
    return NULL;
}

static uni_value *from_text(PyObject *object)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(object, &size);
    return text ? no_memory(uni_value_string_n(text, (size_t)size)) : NULL;
}

static uni_value *convert_tree(door_state *state, PyObject *object, PyObject *convert, int depth)
{
    if (depth > UNI_VALUE_MAX_DEPTH) {
        door_raise_text(PyExc_ValueError, "more than %d levels of nesting", UNI_VALUE_MAX_DEPTH);
        return NULL;
    }
    if (object == Py_None)
        return no_memory(uni_value_null());
    if (PyBool_Check(object))
        return no_memory(uni_value_bool(object == Py_True));
    if (PyFloat_Check(object))
        return no_memory(uni_value_float(PyFloat_AsDouble(object)));
    if (PyLong_Check(object))
        return from_int(state, object, convert, depth);
    if (PyUnicode_Check(object))
        return from_text(object);
    if (PyBytes_Check(object))
        return no_memory(uni_value_bytes(PyBytes_AsString(object), (size_t)PyBytes_Size(object)));
    if (PyDict_Check(object))
        return from_dict(state, object, convert, depth);
    if (PyList_Check(object) || PyTuple_Check(object))
        return from_list(state, object, convert, depth);
    if (Py_IS_TYPE(object, state->array_type))
        return no_memory(uni_value_array(door_array_of(object)));
    return from_other(state, object, convert, depth);
}

uni_value *door_value_from(door_state *state, PyObject *object, PyObject *convert)
{
    return convert_tree(state, object, convert, 0);
}

static PyObject *to_list(door_state *state, const uni_value *value)
{
    size_t size = uni_list_size(value);
    PyObject *list = PyList_New((Py_ssize_t)size);
    for (size_t i = 0; list && i < size; i++) {
        PyObject *item = door_value_to(state, uni_list_get(value, i));
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *to_dict(door_state *state, const uni_value *value)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < uni_dict_size(value); i++)
        if (door_put(dict, uni_dict_key_at(value, i),
                     door_value_to(state, uni_dict_value_at(value, i))) < 0) {
            Py_DECREF(dict);
            return NULL;
        }
    return dict;
}

PyObject *door_value_to(door_state *state, const uni_value *value)
{
    size_t size = 0;
    const void *data;
    switch (uni_value_type_of(value)) {
    case UNI_TYPE_BOOL:
        return PyBool_FromLong(uni_value_as_bool(value, false));
    case UNI_TYPE_INT:
        return PyLong_FromLongLong(uni_value_as_int(value, 0));
    case UNI_TYPE_FLOAT:
        return PyFloat_FromDouble(uni_value_as_float(value, 0));
    case UNI_TYPE_STRING:
        data = uni_value_as_bytes(value, &size);
        return PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, "surrogateescape");
    case UNI_TYPE_BYTES:
        data = uni_value_as_bytes(value, &size);
        return PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
    case UNI_TYPE_LIST:
        return to_list(state, value);
    case UNI_TYPE_DICT:
        return to_dict(state, value);
    case UNI_TYPE_ARRAY:
        return door_array_wrap(state, uni_value_as_array(value));
    default:
        Py_RETURN_NONE;
    }
}
