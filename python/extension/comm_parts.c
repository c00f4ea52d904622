/*
 * comm_parts.c - objects that depend on a communicator: memory that all ranks reduce in place,
 * running requests, buckets of gradients. Each keeps its communicator, and the last memory of a
 * closed communicator ends it.
 */
#include <string.h>

#include "comm/shared.h"
#include "comm.h"

static part_object *new_part(comm_object *owner, PyTypeObject *type)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    part_object *self = (part_object *)allocate(type, 0);
    if (self)
        self->owner = (comm_object *)Py_NewRef((PyObject *)owner);
    return self;
}

static void part_dealloc(PyObject *object)
{
    part_object *self = (part_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    uni_error unheard = { 0 };
    if (self->request && !self->owner->closed) /* nothing waited for it; its buffers end here */
        (void)(uni_comm_wait(self->request, &unheard) < 0);
    uni__comm_buckets_free(self->buckets);
    if (self->buffer) {
        uni_comm_buffer_free(self->buffer);
        self->owner->buffers--;
        comm_close_when_unused(self->owner);
    }
    if (self->in.obj)
        PyBuffer_Release(&self->in);
    if (self->out.obj)
        PyBuffer_Release(&self->out);
    Py_XDECREF(self->flat);
    Py_XDECREF((PyObject *)self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* The end of a call that creates a part: returns the part, or raises. */
static PyObject *hand_out(comm_object *self, part_object *part, int status, const uni_error *err)
{
    PyObject *answer = comm_leave(self, status, err);
    Py_XDECREF(answer);
    if (answer)
        return (PyObject *)part;
    Py_XDECREF((PyObject *)part);
    return NULL;
}

/* alloc(bytes): memory of this rank that the other ranks reduce in place. All ranks call it. */
PyObject *comm_alloc(PyObject *object, PyObject *number)
{
    comm_object *self = (comm_object *)object;
    size_t bytes = PyLong_AsSize_t(number);
    uni_error err = { 0 };
    uni_comm *comm = PyErr_Occurred() ? NULL : comm_enter(self);
    part_object *part = comm ? new_part(self, door_state_of(object)->buffer_type) : NULL;
    int status = 0;
    if (!comm)
        return NULL;
    if (part) {
        part->size = (Py_ssize_t)bytes;
        Py_BEGIN_ALLOW_THREADS status = uni_comm_alloc(&part->buffer, comm, bytes, &err);
        Py_END_ALLOW_THREADS if (part->buffer) self->buffers++;
    }
    PyObject *answer = comm_leave(self, status, &err);
    if (!answer || !part) {
        Py_XDECREF(answer);
        Py_XDECREF((PyObject *)part);
        return NULL;
    }
    Py_DECREF(answer);
    return (PyObject *)part;
}

static int buffer_get(PyObject *object, Py_buffer *view, int flags)
{
    static char nothing;
    part_object *self = (part_object *)object;
    void *data = self->buffer ? uni_comm_buffer_data(self->buffer) : NULL;
    return PyBuffer_FillInfo(view, object, data ? data : &nothing, data ? self->size : 0, 0, flags);
}

/* all_reduce_start(in, out, dtype, op) */
PyObject *comm_all_reduce_start(PyObject *object, PyObject *tuple)
{
    comm_object *self = (comm_object *)object;
    comm_arguments given = { 0 };
    uni_error err = { 0 };
    uni_comm *comm = comm_enter(self);
    part_object *part = NULL;
    int status = 0;
    if (!comm)
        return NULL;
    if (comm_parse(tuple, true, SAME, uni_comm_info_of(comm)->size, &given) == 0 &&
        (part = new_part(self, door_state_of(object)->request_type))) {
        Py_BEGIN_ALLOW_THREADS status = uni_comm_all_reduce_start(
            &part->request, comm, given.in.buf, given.out.buf, (size_t)given.count,
            (uni_dtype)given.dtype, (uni_comm_op)given.op, 1.0, &err);
        Py_END_ALLOW_THREADS part->in = given.in;
        part->out = given.out;
    } else {
        comm_release(&given);
    }
    return hand_out(self, part, status, &err);
}

static void let_go(part_object *self)
{
    self->request = NULL;
    PyBuffer_Release(&self->in);
    PyBuffer_Release(&self->out);
}

static PyObject *request_wait(PyObject *object, PyObject *unused)
{
    part_object *self = (part_object *)object;
    uni_error err = { 0 };
    int status;
    if (!self->request)
        Py_RETURN_NONE;
    if (!comm_enter(self->owner))
        return NULL;
    uni_comm_request *request = self->request;
    Py_BEGIN_ALLOW_THREADS status = uni_comm_wait(request, &err);
    Py_END_ALLOW_THREADS let_go(self);
    return comm_leave(self->owner, status, &err);
}

static PyObject *request_test(PyObject *object, PyObject *unused)
{
    part_object *self = (part_object *)object;
    uni_error err = { 0 };
    bool done = true;
    int status;
    if (!self->request)
        Py_RETURN_TRUE;
    if (!comm_enter(self->owner))
        return NULL;
    uni_comm_request *request = self->request;
    Py_BEGIN_ALLOW_THREADS status = uni_comm_test(&done, request, &err);
    Py_END_ALLOW_THREADS if (status < 0 || done) let_go(self);
    PyObject *answer = comm_leave(self->owner, status, &err);
    if (!answer)
        return NULL;
    Py_DECREF(answer);
    return PyBool_FromLong(done);
}

/* ---- buckets ---- */

static size_t *read_counts(PyObject *list, Py_ssize_t *size)
{
    *size = PyList_Size(list);
    size_t *counts = *size < 0 ? NULL : PyMem_Calloc((size_t)*size + 1, sizeof *counts);
    for (Py_ssize_t i = 0; counts && i < *size; i++)
        counts[i] = PyLong_AsSize_t(PyList_GetItem(list, i));
    if (counts && PyErr_Occurred()) {
        PyMem_Free(counts);
        return NULL;
    }
    return counts;
}

static int fill_buckets(part_object *part, PyObject *tuple, uni_error *err)
{
    PyObject *flat, *list;
    const char *dtype_name, *op_name;
    Py_ssize_t bucket_bytes = 0, size = 0, total = 0;
    if (!PyArg_ParseTuple(tuple, "O!sO!s|n", Py_TYPE(part->flat), &flat, &dtype_name, &PyList_Type,
                          &list, &op_name, &bucket_bytes))
        return -1;
    int dtype = comm_dtype(dtype_name), op = comm_op(op_name);
    size_t *counts = dtype && op ? read_counts(list, &size) : NULL;
    if (!counts)
        return -1;
    for (Py_ssize_t i = 0; i < size; i++)
        total += (Py_ssize_t)counts[i];
    part_object *memory = (part_object *)flat;
    int status = 0;
    if (memory->size < total * (Py_ssize_t)uni_dtype_size((uni_dtype)dtype))
        PyErr_SetString(PyExc_ValueError, "the tensors do not fit their buffer");
    else
        status = uni__comm_buckets_new(
            &part->buckets, part->owner->comm, uni_comm_buffer_data(memory->buffer),
            (uni_dtype)dtype, (int)size, counts,
            &(uni__comm_bucket_options){ .bucket_bytes = (size_t)bucket_bytes,
                                         .op = (uni_comm_op)op },
            err);
    PyMem_Free(counts);
    return PyErr_Occurred() ? -1 : status;
}

/* buckets(flat, dtype, counts, op[, bucket_bytes]): flat is from alloc */
PyObject *comm_buckets(PyObject *object, PyObject *tuple)
{
    comm_object *self = (comm_object *)object;
    uni_error err = { 0 };
    PyObject *flat = PyTuple_Size(tuple) > 0 ? PyTuple_GetItem(tuple, 0) : NULL;
    if (!flat || !PyObject_TypeCheck(flat, door_state_of(object)->buffer_type))
        return door_raise_text(PyExc_TypeError,
                               "the first argument of buckets is memory of alloc()");
    if (!comm_enter(self))
        return NULL;
    part_object *part = new_part(self, door_state_of(object)->buckets_type);
    int status = -1;
    if (part) {
        part->flat = Py_NewRef(flat);
        status = fill_buckets(part, tuple, &err);
    }
    return hand_out(self, part, status, &err);
}

static PyObject *buckets_begin(PyObject *object, PyObject *weight)
{
    part_object *self = (part_object *)object;
    uni_error err = { 0 };
    double value = PyFloat_AsDouble(weight);
    if (PyErr_Occurred() || !comm_enter(self->owner))
        return NULL;
    return comm_leave(self->owner, uni__comm_buckets_begin(self->buckets, value, &err), &err);
}

static PyObject *buckets_ready(PyObject *object, PyObject *index)
{
    part_object *self = (part_object *)object;
    uni_error err = { 0 };
    int tensor = (int)PyLong_AsLong(index), status;
    if (PyErr_Occurred() || !comm_enter(self->owner))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni__comm_buckets_ready(self->buckets, tensor, &err);
    Py_END_ALLOW_THREADS return comm_leave(self->owner, status, &err);
}

static PyObject *buckets_finish(PyObject *object, PyObject *unused)
{
    part_object *self = (part_object *)object;
    uni_error err = { 0 };
    int status;
    if (!comm_enter(self->owner))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni__comm_buckets_finish(self->buckets, &err);
    Py_END_ALLOW_THREADS return comm_leave(self->owner, status, &err);
}

static PyObject *buckets_count(PyObject *object, void *unused)
{
    return PyLong_FromLong(uni__comm_buckets_count(((part_object *)object)->buckets));
}

/* ---- types ---- */

static PyMethodDef request_methods[] = {
    { "wait", request_wait, METH_NOARGS, NULL },
    { "test", request_test, METH_NOARGS, "True when it is done" },
    { NULL, NULL, 0, NULL },
};
PyType_Slot comm_request_slots[] = {
    { Py_tp_dealloc, part_dealloc },
    { Py_tp_methods, request_methods },
    { 0, NULL },
};
PyType_Slot comm_buffer_slots[] = {
    { Py_tp_dealloc, part_dealloc },
    { Py_bf_getbuffer, buffer_get },
    { 0, NULL },
};
static PyGetSetDef buckets_getters[] = {
    { "count", buckets_count, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef buckets_methods[] = {
    { "begin", buckets_begin, METH_O, "begin(weight)" },
    { "ready", buckets_ready, METH_O, "ready(tensor)" },
    { "finish", buckets_finish, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
PyType_Slot comm_buckets_slots[] = {
    { Py_tp_dealloc, part_dealloc },
    { Py_tp_getset, buckets_getters },
    { Py_tp_methods, buckets_methods },
    { 0, NULL },
};
