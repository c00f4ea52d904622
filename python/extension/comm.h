/*
 * comm.h - what comm.c and comm_parts.c share: a communicator in Python's hands, and what hangs on it.
 */
#ifndef UNISONO_PYTHON_COMM_H
#define UNISONO_PYTHON_COMM_H

#include "door.h"

typedef struct comm_object {
    PyObject_HEAD uni_comm *comm;
    bool busy, closed;
    int buffers; /* of alloc(), alive: the communicator's memory stays as long as they */
} comm_object;

typedef struct part_object { /* Buffer, Request or Buckets: what hangs on a communicator */
    PyObject_HEAD comm_object *owner;
    uni_comm_buffer *buffer;
    uni_comm_request *request;
    uni_comm_buckets *buckets;
    Py_buffer in, out; /* a request's */
    PyObject *flat; /* that buckets lie in */
    Py_ssize_t size; /* of the buffer, bytes */
} part_object;

typedef enum comm_sizes { SAME, GATHER, SCATTER } comm_sizes; /* of out beside in */

typedef struct comm_arguments {
    Py_buffer in, out;
    int dtype, op;
    Py_ssize_t count; /* what the library's function is told */
} comm_arguments;

/* ---- comm.c ---- */

PyObject *comm_say(PyObject *object, int code, const char *message); /* raises; NULL */
/* The communicator for a call; NULL with an exception when it is closed or in another thread's call. */
uni_comm *comm_enter(comm_object *self);
/* None, or the error. The end of every call. */
PyObject *comm_leave(comm_object *self, int status, const uni_error *err);
int comm_dtype(const char *name); /* 0 with an exception when unknown */
int comm_op(const char *name);
/* (in, out, dtype[, op]): the sizes checked against each other. */
int comm_parse(PyObject *tuple, bool with_op, comm_sizes how, int ranks, comm_arguments *out);
void comm_release(comm_arguments *given);
/* Gradients that a program still holds lie in the communicator's memory: then the last of them ends it. */
void comm_close_when_unused(comm_object *self);

/* ---- comm_parts.c: methods of the communicator that make parts, and their types ---- */

PyObject *comm_alloc(PyObject *object, PyObject *number);
PyObject *comm_all_reduce_start(PyObject *object, PyObject *tuple);
PyObject *comm_buckets(PyObject *object, PyObject *tuple);
extern PyType_Slot comm_buffer_slots[], comm_request_slots[], comm_buckets_slots[];

#endif
