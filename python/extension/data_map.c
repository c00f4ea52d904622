/*
 * data_map.c - Python functions as stages of a dataset, and Python objects as sources.
 *
 * The library calls these from its own threads; each call takes the GIL. An exception of the
 * function stops the iteration. Its traceback is kept in the dataset's own box (a list that Python
 * passed in) and raised again in the thread that asked for the batch; the library carries its text.
 */
#include "data.h"

#include <string.h>

typedef struct python_function {
    door_state *state;
    PyObject *module_holder; /* the Table type: keeps the module and thereby `state` alive */
    PyObject *function;
    PyObject *box; /* a list; receives the exception */
} python_function;

static void function_free(void *context)
{
    python_function *function = context;
    if (!Py_IsInitialized()) /* the interpreter is gone, and so are its objects */
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_XDECREF(function->function);
    Py_XDECREF(function->box);
    Py_XDECREF(function->module_holder);
    PyMem_Free(function);
    PyGILState_Release(gil);
}

static python_function *function_new(door_state *state, PyObject *callable, PyObject *box)
{
    python_function *function = PyMem_Calloc(1, sizeof *function);
    if (!function) {
        PyErr_NoMemory();
        return NULL;
    }
    function->state = state;
    function->module_holder = Py_NewRef((PyObject *)state->table_type);
    function->function = Py_NewRef(callable);
    function->box = Py_NewRef(box);
    return function;
}

/* Puts the current exception into the box and its text into err. */
static int keep_exception(const python_function *function, const char *what, uni_error *err)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback && value)
        PyException_SetTraceback(value, traceback);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *message = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    PyObject *name = type ? PyObject_GetAttrString(type, "__name__") : NULL;
    const char *class_ = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    int status = uni_error_set(err, UNI_EFUNCTION, "%s: %s: %s", what, class_ ? class_ : "?",
                               message ? message : "?");
    PyErr_Clear();
    if (value && PyList_Append(function->box, value) < 0)
        PyErr_Clear();
    Py_XDECREF(name);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return status;
}

/* The result must be a Table; *out gets a reference to its table. */
static int take_table(const python_function *function, PyObject *answer, const char *what,
                      uni_table **out, uni_error *err)
{
    uni_table *table = answer ? door_table_of(function->state, answer) : NULL;
    *out = table ? uni_table_ref(table) : NULL;
    Py_XDECREF(answer);
    return table ? 0 : keep_exception(function, what, err);
}

/* ---- Ctrl-C ---- */

/* Threads that are in a user function; guarded by the GIL. Python delivers signals only to the main
 * thread, which waits for their results. */
static unsigned long running[64];
static int num_running;

static int begin_running(void)
{
    if (num_running == (int)(sizeof running / sizeof running[0]))
        return -1;
    running[num_running] = PyThread_get_thread_ident();
    return num_running++;
}

static void end_running(int place)
{
    if (place < 0)
        return;
    unsigned long own = PyThread_get_thread_ident();
    for (int i = 0; i < num_running; i++) {
        if (running[i] == own) {
            running[i] = running[--num_running];
            return;
        }
    }
}

int door_check_interrupt(void)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    int status = PyErr_CheckSignals();
    for (int i = 0; status < 0 && i < num_running; i++)
        PyThreadState_SetAsyncExc(running[i], PyExc_KeyboardInterrupt);
    PyGILState_Release(gil);
    return status;
}

static int call_map(void *context, uni_table *in, uni_table **out, uni_error *err)
{
    python_function *function = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    int place = begin_running();
    PyObject *table = door_table_take(function->state, uni_table_ref(in));
    PyObject *answer = table ? PyObject_CallFunctionObjArgs(function->function, table, NULL) : NULL;
    Py_XDECREF(table);
    end_running(place);
    int status = take_table(function, answer, "the dataset's function failed", out, err);
    PyGILState_Release(gil);
    return status;
}

/* map(function, box, name, batch_size, changes_rows, in_order, keeps_columns): function takes a
 * Table and returns one. */
PyObject *door_dataset_map(PyObject *self, PyObject *arguments)
{
    door_state *state = door_state_of(self);
    PyObject *callable, *box;
    const char *name;
    long long batch_size;
    int changes_rows, in_order, keeps_columns;
    uni_error err = { 0 };
    uni_dataset *out = NULL;
    if (!PyArg_ParseTuple(arguments, "OO!sLppp", &callable, &PyList_Type, &box, &name, &batch_size,
                          &changes_rows, &in_order, &keeps_columns))
        return NULL;
    python_function *function = function_new(state, callable, box);
    if (!function)
        return NULL;
    int status;
    Py_BEGIN_ALLOW_THREADS;
    status = uni_dataset_map_batches(&out, ((dataset_object *)self)->dataset,
                                     &(uni_map_options){ .function = call_map,
                                                         .context = function,
                                                         .free_context = function_free,
                                                         .name = name,
                                                         .batch_size = batch_size,
                                                         .changes_rows = changes_rows != 0,
                                                         .in_order = in_order != 0,
                                                         .keeps_columns = keeps_columns != 0 },
                                     &err);
    Py_END_ALLOW_THREADS;
    return status < 0 ? door_raise(state, &err) : door_dataset_take(state, out);
}

/* ---- sources in Python ---- */

static int call_range(void *context, int64_t begin, int64_t end, uni_table **out, uni_error *err)
{
    python_function *function = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    int place = begin_running();
    PyObject *answer =
        PyObject_CallFunction(function->function, "LL", (long long)begin, (long long)end);
    end_running(place);
    int status = take_table(function, answer, "the dataset's source failed", out, err);
    PyGILState_Release(gil);
    return status;
}

static int call_block(void *context, int64_t block, uni_table **out, uni_error *err)
{
    python_function *function = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    int place = begin_running();
    PyObject *answer = PyObject_CallFunction(function->function, "L", (long long)block);
    end_running(place);
    int status = take_table(function, answer, "the dataset's source failed", out, err);
    PyGILState_Release(gil);
    return status;
}

/* function() is an iterator of Tables. */
static int call_open(void *context, void **cursor, uni_error *err)
{
    python_function *function = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *iterable = PyObject_CallNoArgs(function->function);
    PyObject *iterator = iterable ? PyObject_GetIter(iterable) : NULL;
    Py_XDECREF(iterable);
    *cursor = iterator;
    int status = iterator ? 0 : keep_exception(function, "the dataset's source failed", err);
    PyGILState_Release(gil);
    return status;
}

static int call_next(void *context, void *cursor, uni_table **out, uni_error *err)
{
    python_function *function = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    int place = begin_running();
    PyObject *answer = PyIter_Next(cursor);
    end_running(place);
    int status = 0;
    if (answer || PyErr_Occurred()) {
        status = take_table(function, answer, "the dataset's source failed", out, err);
        status = status < 0 ? status : 1;
    }
    PyGILState_Release(gil);
    return status;
}

static void call_close(void *context, void *cursor)
{
    if (!cursor || !Py_IsInitialized())
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)cursor);
    PyGILState_Release(gil);
}

/* The names in a list, which keeps them alive. NULL with an exception, or without one if there is
 * no list. */
static const char **names_of(PyObject *list)
{
    Py_ssize_t count = PyList_Check(list) ? PyList_Size(list) : 0;
    const char **names = count > 0 ? PyMem_Calloc((size_t)count, sizeof(char *)) : NULL;
    for (Py_ssize_t i = 0; names && i < count; i++) {
        names[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL);
        if (!names[i]) {
            PyMem_Free(names);
            return NULL;
        }
    }
    return names;
}

/* from_python(function, box, name, num_rows, block_rows, bytes, block_files). num_rows >= 0:
 * function(begin, end) returns a Table; -1: function() returns an iterator of Tables. block_rows (a
 * buffer of int64): function(block) returns the Table of a block of that many rows; block_files: a
 * list of as many names, or None. */
PyObject *door_dataset_from_python(PyObject *class_, PyObject *arguments)
{
    door_state *state = PyType_GetModuleState((PyTypeObject *)class_);
    PyObject *callable, *box, *list = Py_None;
    const char *name, **files = NULL;
    long long num_rows, bytes = 0;
    uni_error err = { 0 };
    uni_dataset *out = NULL;
    Py_buffer rows = { 0 };
    if (!PyArg_ParseTuple(arguments, "OO!sL|z*LO", &callable, &PyList_Type, &box, &name, &num_rows,
                          &rows, &bytes, &list))
        return NULL;
    files = names_of(list);
    python_function *function = PyErr_Occurred() ? NULL : function_new(state, callable, box);
    if (!function) {
        PyMem_Free(files);
        if (rows.buf)
            PyBuffer_Release(&rows);
        return NULL;
    }
    uni_source_functions callbacks = { .name = name, .context = function, .free = function_free };
    if (rows.buf) {
        callbacks.read_block = call_block;
        callbacks.block_rows = rows.buf;
        callbacks.num_blocks = rows.len / (Py_ssize_t)sizeof(int64_t);
        callbacks.bytes = bytes;
        if (files && PyList_Size(list) == (Py_ssize_t)callbacks.num_blocks)
            callbacks.block_files = files;
    } else if (num_rows >= 0) {
        callbacks.num_rows = num_rows;
        callbacks.read_range = call_range;
    } else {
        callbacks.open = call_open;
        callbacks.next = call_next;
        callbacks.close = call_close;
    }
    int status;
    Py_BEGIN_ALLOW_THREADS;
    status = uni_dataset_from_functions(&out, &callbacks, &err);
    Py_END_ALLOW_THREADS;
    PyMem_Free(files);
    if (rows.buf)
        PyBuffer_Release(&rows);
    if (status < 0)
        function_free(function);
    return status < 0 ? door_raise(state, &err) : door_dataset_take(state, out);
}
