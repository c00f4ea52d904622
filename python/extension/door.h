/*
 * door.h - shared by the files of the extension. For this module only.
 *
 * The extension is the only code that connects Python and libunisono. It uses the stable ABI (one
 * binary for Python 3.11 and later) and the public headers. It knows neither pickle nor frameworks:
 * it converts plain trees (None, bool, int, float, str, bytes, list, dict, Array) and calls the
 * library with the GIL released. Everything else is Python code around it.
 *
 * Threads: the GIL protects all of this. Long calls release it; a trainer or iterator in such a
 * call is marked busy, and a call from a second thread gets an error instead of a race.
 */
#ifndef UNISONO_PYTHON_DOOR_H
#define UNISONO_PYTHON_DOOR_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <unisono/session.h>
#include <unisono/trainer.h>

typedef struct door_state {
    PyObject *error; /* unisono.Error */
    PyTypeObject *array_type, *trainer_type, *iterator_type, *session_type;
    PyTypeObject *tuner_type; /* tune.c */
    PyTypeObject *comm_type, *buffer_type, *request_type, *buckets_type; /* comm.c */
    PyTypeObject *queue_type, *call_type; /* comm_queue.c */
    PyTypeObject *table_type, *dataset_type, *data_iterator_type; /* data.h */
} door_state;

/* The state of the module that a heap type belongs to. */
door_state *door_state_of(PyObject *object);

/* helpers.c. Raises unisono.Error (or a subclass) with the code's name and the message; returns
 * NULL. */
PyObject *door_raise(door_state *state, const uni_error *err);
PyObject *door_raise_as(PyObject *class_, const uni_error *err);
/* PyErr_Format with escape sequences escaped, because names may come from files. Returns NULL. */
PyObject *door_raise_text(PyObject *class_, const char *format, ...);
/* The reverse: UNI_EFUNCTION with the text of an exception; returns the status. */
int door_error_from(PyObject *value, uni_error *err);

/* value.c. Calls `convert` for anything that is not a plain value, and converts its result in turn
 * (NULL: TypeError). Returns a new value, or NULL with an exception set. */
uni_value *door_value_from(door_state *state, PyObject *object, PyObject *convert);
/* NULL value is None. */
PyObject *door_value_to(door_state *state, const uni_value *value);

/* array.c */
int door_array_init(PyObject *module, door_state *state);
PyObject *door_array_wrap(door_state *state, uni_array *array); /* takes its own reference */
uni_array *door_array_of(PyObject *array); /* borrowed */

/* trainer.c, iterator.c, session.c, checkpoint.c */
int door_trainer_init(PyObject *module, door_state *state);
int door_iterator_init(PyObject *module, door_state *state);
int door_session_init(PyObject *module, door_state *state);
/* Its session; NULL with an exception when that is over. */
uni_session *door_session_of(PyObject *object);
int door_tune_init(PyObject *module, door_state *state); /* tune.c */
int door_comm_init(PyObject *module, door_state *state);
PyObject *door_comm_named(PyObject *module, PyObject *tuple);
PyObject *door_comm_open(door_state *state, uni_session *session, PyObject *tuple);
PyObject *door_comm_meet(door_state *state, uni_session *session, PyObject *tuple);
/* session_groups.c */
PyObject *door_session_meet(PyObject *object, PyObject *tuple);
PyObject *door_session_set_replaceable(PyObject *object, PyObject *tuple);
PyObject *door_session_set_fixed(PyObject *object, PyObject *unused);
PyObject *door_session_is_asked(PyObject *object, PyObject *of);
PyObject *door_session_leaves(PyObject *object, PyObject *unused);
PyObject *door_session_left(PyObject *object, PyObject *unused);
PyObject *door_session_end_fit(PyObject *object, PyObject *of);
PyObject *door_session_stand_at(PyObject *object, PyObject *reports);
PyObject *door_session_joins(PyObject *object, void *unused);
PyObject *door_session_reports(PyObject *object, void *unused);
typedef struct door_run door_run;
/* Takes over the contents of run. */
PyObject *door_iterator_new(PyObject *trainer, uni_trainer *raw, door_run *run);
PyObject *door_result(door_state *state, const uni_result *result);
PyObject *door_worker_serve(PyObject *module, PyObject *call);
PyObject *door_open_session(PyObject *module, PyObject *unused);
PyObject *door_template_serve(PyObject *module, PyObject *descriptor); /* template.c */
extern PyMethodDef door_file_methods[];

/* Adds value to a dict; takes over the reference (NULL means that the caller failed). */
int door_put(PyObject *dict, const char *key, PyObject *value);
PyObject *door_text(const char *text); /* NULL is None */

#endif
