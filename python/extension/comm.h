/*
 * comm.h - shared by comm.c and comm_parts.c: a communicator as a Python object, and the objects
 * that depend on it.
 */
#ifndef UNISONO_PYTHON_COMM_H
#define UNISONO_PYTHON_COMM_H

#include "comm/shared.h"
#include "door.h"

typedef struct comm_object {
    PyObject_HEAD uni_comm *comm;
    bool busy, closed;
    int buffers; /* live ones from alloc(): the communicator's memory lives as long as they do */
} comm_object;

typedef struct part_object { /* Buffer, Request or Buckets, which depend on a communicator */
    PyObject_HEAD comm_object *owner;
    uni_comm_buffer *buffer;
    uni_comm_request *request;
    uni__comm_buckets *buckets;
    Py_buffer in, out; /* a request's */
    PyObject *flat; /* that buckets lie in */
    Py_ssize_t size; /* of the buffer, bytes */
} part_object;

typedef enum comm_sizes { SAME, GATHER, SCATTER } comm_sizes; /* of out relative to in */

typedef struct comm_arguments {
    Py_buffer in, out;
    int dtype, op;
    Py_ssize_t count; /* argument of the library's function */
} comm_arguments;

/* ---- comm.c ---- */

PyObject *comm_say(PyObject *object, int code, const char *message); /* raises; returns NULL */
/* The communicator for a call; NULL with an exception if it is closed or in a call of another
 * thread. */
uni_comm *comm_enter(comm_object *self);
/* Returns None, or raises. The end of every call. */
PyObject *comm_leave(comm_object *self, int status, const uni_error *err);
int comm_dtype(const char *name); /* 0 with an exception if unknown */
int comm_op(const char *name);
/* (in, out, dtype[, op]); checks the sizes against each other. */
int comm_parse(PyObject *tuple, bool with_op, comm_sizes how, int ranks, comm_arguments *out);
void comm_release(comm_arguments *given);
/* Gradients that a program still holds are in the communicator's memory: then the last of them ends
 * it. */
void comm_close_when_unused(comm_object *self);

/* ---- comm_parts.c: methods of the communicator that create parts, and their types ---- */

PyObject *comm_alloc(PyObject *object, PyObject *number);
PyObject *comm_all_reduce_start(PyObject *object, PyObject *tuple);
PyObject *comm_buckets(PyObject *object, PyObject *tuple);
extern PyType_Slot comm_buffer_slots[], comm_request_slots[], comm_buckets_slots[];

/* ---- comm_queue.c: calls that end on their own ---- */

PyObject *comm_queue(PyObject *object, PyObject *unused);
extern PyType_Slot comm_queue_slots[], comm_call_slots[];
/* Defined there because only that file knows the sizes. */
extern const int comm_queue_size, comm_call_size;

#endif
