/*
 * comm.c - collectives for Python: a communicator of the session's ranks, its shared buffers, requests and buckets.
 *
 * Data are Python buffers (NumPy arrays, memory of PyTorch through them, our own shared buffers), used in place: nothing is copied here. A
 * request keeps its buffers until it is done. Every call releases the GIL; a second Python thread that comes along gets an error instead of
 * a race, because a communicator belongs to one thread at a time.
 *
 * Who keeps whom: buffers, requests and buckets keep their communicator. close() comes before the end of its session; memory of alloc() stays good
 * as long as somebody has it (a gradient that the program kept), and only the last of it ends the communicator.
 */
#include <stddef.h>
#include <string.h>

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

static PyObject *say(PyObject *object, int code, const char *message)
{
    uni_error err = { 0 };
    (void)uni_error_set(&err, code, "%s", message);
    return door_raise(door_state_of(object), &err);
}

static uni_comm *enter(comm_object *self)
{
    if (!self->closed && !self->busy) {
        self->busy = true;
        return self->comm;
    }
    say((PyObject *)self, UNI_ESTATE,
        self->closed ? "this communicator is closed"
                     : "another thread is in a collective of this communicator");
    return NULL;
}

/* None, or the error. The end of every call. */
static PyObject *leave(comm_object *self, int status, const uni_error *err)
{
    self->busy = false;
    if (PyErr_Occurred())
        return NULL;
    if (status < 0)
        return door_raise(door_state_of((PyObject *)self), err);
    Py_RETURN_NONE;
}

/* ---- arguments ---- */

static int dtype_of(const char *name)
{
    int dtype = uni_dtype_from_name(name);
    if (!dtype)
        PyErr_Format(PyExc_TypeError, "there is no element type %s", name);
    return dtype;
}

static int op_of(const char *name)
{
    static const struct {
        const char *name;
        uni_comm_op op;
    } ops[] = { { "sum", UNI_COMM_SUM },
                { "mean", UNI_COMM_MEAN },
                { "min", UNI_COMM_MIN },
                { "max", UNI_COMM_MAX } };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strcmp(ops[i].name, name) == 0)
            return (int)ops[i].op;
    PyErr_Format(PyExc_ValueError, "there is no reduction %s", name);
    return 0;
}

/* Elements in a buffer; -1 with an exception when it does not fit the type, or has not `want` of them (want < 0: any number). */
static Py_ssize_t count_of(const Py_buffer *buffer, int dtype, Py_ssize_t want)
{
    Py_ssize_t size = (Py_ssize_t)uni_dtype_size((uni_dtype)dtype), count = buffer->len / size;
    if (count * size == buffer->len && (want < 0 || count == want))
        return count;
    PyErr_Format(PyExc_ValueError, "a buffer of %zd bytes does not hold %zd elements of %s",
                 buffer->len, want < 0 ? count : want, uni_dtype_name((uni_dtype)dtype));
    return -1;
}

typedef enum sizes { SAME, GATHER, SCATTER } sizes; /* of out beside in */

typedef struct arguments {
    Py_buffer in, out;
    int dtype, op;
    Py_ssize_t count; /* what the library's function is told */
} arguments;

static void release(arguments *given)
{
    if (given->in.obj)
        PyBuffer_Release(&given->in);
    if (given->out.obj)
        PyBuffer_Release(&given->out);
}

/* (in, out, dtype[, op]): the sizes checked against each other. */
static int parse(PyObject *tuple, bool with_op, sizes how, int ranks, arguments *out)
{
    const char *dtype, *op = "sum";
    if (!(with_op ? PyArg_ParseTuple(tuple, "y*w*ss", &out->in, &out->out, &dtype, &op)
                  : PyArg_ParseTuple(tuple, "y*w*s", &out->in, &out->out, &dtype)) ||
        !(out->dtype = dtype_of(dtype)) || !(out->op = op_of(op)))
        return -1;
    Py_ssize_t in = count_of(&out->in, out->dtype, -1);
    if (in < 0)
        return -1;
    if (how == SCATTER && in % ranks) {
        PyErr_Format(PyExc_ValueError, "%zd elements cannot be cut in %d equal parts", in, ranks);
        return -1;
    }
    out->count = how == SCATTER ? in / ranks : in;
    Py_ssize_t want = how == GATHER ? in * ranks : out->count;
    return count_of(&out->out, out->dtype, want) < 0 ? -1 : 0;
}

/* ---- collectives ---- */

typedef enum collective { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL } collective;

static int call(uni_comm *comm, collective kind, const arguments *given, uni_error *err)
{
    size_t count = (size_t)given->count;
    uni_dtype dtype = (uni_dtype)given->dtype;
    uni_comm_op op = (uni_comm_op)given->op;
    switch (kind) {
    case ALL_REDUCE:
        return uni_comm_all_reduce(comm, given->in.buf, given->out.buf, count, dtype, op, err);
    case ALL_GATHER:
        return uni_comm_all_gather(comm, given->in.buf, given->out.buf, count, dtype, err);
    case REDUCE_SCATTER:
        return uni_comm_reduce_scatter(comm, given->in.buf, given->out.buf, count, dtype, op, err);
    case ALL_TO_ALL:
        return uni_comm_all_to_all(comm, given->in.buf, given->out.buf, count, dtype, err);
    }
    return UNI_EINVAL;
}

static PyObject *run(PyObject *object, PyObject *tuple, collective kind)
{
    comm_object *self = (comm_object *)object;
    arguments given = { 0 };
    uni_error err = { 0 };
    uni_comm *comm = enter(self);
    int status = 0;
    if (!comm)
        return NULL;
    int ranks = uni_comm_size(comm);
    bool with_op = kind == ALL_REDUCE || kind == REDUCE_SCATTER;
    sizes how = kind == ALL_GATHER ? GATHER : kind == REDUCE_SCATTER ? SCATTER : SAME;
    if (parse(tuple, with_op, how, ranks, &given) == 0) {
        if (kind == ALL_TO_ALL && given.count % ranks)
            PyErr_Format(PyExc_ValueError, "%zd elements cannot be cut in %d equal parts",
                         given.count, ranks);
        else {
            if (kind == ALL_TO_ALL)
                given.count /= ranks;
            Py_BEGIN_ALLOW_THREADS status = call(comm, kind, &given, &err);
            Py_END_ALLOW_THREADS
        }
    }
    release(&given);
    return leave(self, status, &err);
}

static PyObject *comm_all_reduce(PyObject *self, PyObject *tuple)
{
    return run(self, tuple, ALL_REDUCE);
}

static PyObject *comm_all_gather(PyObject *self, PyObject *tuple)
{
    return run(self, tuple, ALL_GATHER);
}

static PyObject *comm_reduce_scatter(PyObject *self, PyObject *tuple)
{
    return run(self, tuple, REDUCE_SCATTER);
}

static PyObject *comm_all_to_all(PyObject *self, PyObject *tuple)
{
    return run(self, tuple, ALL_TO_ALL);
}

static PyObject *comm_broadcast(PyObject *object, PyObject *tuple)
{
    comm_object *self = (comm_object *)object;
    Py_buffer data = { 0 };
    int root, status = 0;
    uni_error err = { 0 };
    uni_comm *comm = enter(self);
    if (!comm)
        return NULL;
    if (PyArg_ParseTuple(tuple, "w*i", &data, &root)) {
        Py_BEGIN_ALLOW_THREADS status =
            uni_comm_broadcast(comm, data.buf, (size_t)data.len, UNI_U8, root, &err);
        Py_END_ALLOW_THREADS PyBuffer_Release(&data);
    }
    return leave(self, status, &err);
}

static PyObject *comm_barrier(PyObject *object, PyObject *unused)
{
    comm_object *self = (comm_object *)object;
    uni_error err = { 0 };
    uni_comm *comm = enter(self);
    int status;
    if (!comm)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_comm_barrier(comm, &err);
    Py_END_ALLOW_THREADS return leave(self, status, &err);
}

/* check_equal(data, what): unisono.Error EMISMATCH names the ranks whose bytes differ. */
static PyObject *comm_check_equal(PyObject *object, PyObject *tuple)
{
    comm_object *self = (comm_object *)object;
    Py_buffer data = { 0 };
    const char *what;
    int status = 0;
    uni_error err = { 0 };
    uni_comm *comm = enter(self);
    if (!comm)
        return NULL;
    if (PyArg_ParseTuple(tuple, "y*s", &data, &what)) {
        Py_BEGIN_ALLOW_THREADS status =
            uni_comm_check_equal(comm, data.buf, (size_t)data.len, what, &err);
        Py_END_ALLOW_THREADS PyBuffer_Release(&data);
    }
    return leave(self, status, &err);
}

/* ---- its ends ---- */

/* Gradients that a program still holds lie in the communicator's memory: then the last of them ends it. */
static void close_when_unused(comm_object *self)
{
    uni_comm *comm = self->comm;
    if (!self->closed || self->buffers || !comm)
        return;
    self->comm = NULL;
    Py_BEGIN_ALLOW_THREADS uni_comm_close(comm);
    Py_END_ALLOW_THREADS
}

static PyObject *comm_close(PyObject *object, PyObject *unused)
{
    comm_object *self = (comm_object *)object;
    if (self->busy)
        return say(object, UNI_ESTATE, "another thread is in a collective of this communicator");
    self->closed = true;
    close_when_unused(self);
    Py_RETURN_NONE;
}

static PyObject *comm_abort(PyObject *object, PyObject *reason)
{
    comm_object *self = (comm_object *)object;
    const char *text = PyUnicode_AsUTF8AndSize(reason, NULL);
    if (!text)
        return NULL;
    if (!self->closed)
        uni_comm_abort(self->comm, text);
    Py_RETURN_NONE;
}

static void comm_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    ((comm_object *)object)->closed = true;
    close_when_unused((comm_object *)object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *get_known(PyObject *object, void *which)
{
    uni_comm *comm = ((comm_object *)object)->comm;
    if (((comm_object *)object)->closed)
        return say(object, UNI_ESTATE, "this communicator is closed");
    switch ((intptr_t)which) {
    case 0:
        return PyLong_FromLong(uni_comm_rank(comm));
    case 1:
        return PyLong_FromLong(uni_comm_size(comm));
    case 2:
        return PyLong_FromUnsignedLongLong(uni_comm_count(comm));
    default:
        return PyUnicode_FromString(uni_comm_transport(comm));
    }
}

PyObject *door_comm_open(door_state *state, uni_session *session, PyObject *tuple)
{
    uni_comm_options options = { 0 };
    uni_error err = { 0 };
    int status;
    if (!PyArg_ParseTuple(tuple, "|ii", &options.timeout_ms, &options.frozen_ms))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->comm_type, Py_tp_alloc);
    comm_object *self = (comm_object *)allocate(state->comm_type, 0);
    if (!self)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_session_comm(session, &options, &self->comm, &err);
    Py_END_ALLOW_THREADS if (status == 0) return (PyObject *)self;
    Py_DECREF(self);
    return door_raise(state, &err);
}

/* ---- what hangs on a communicator ---- */

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
    if (self->request && !self->owner->closed) /* nobody waited for it; its buffers end here */
        (void)(uni_comm_wait(self->request, &unheard) < 0);
    uni_comm_buckets_free(self->buckets);
    if (self->buffer) {
        uni_comm_buffer_free(self->buffer);
        self->owner->buffers--;
        close_when_unused(self->owner);
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

/* alloc(bytes): memory of this rank that the others reduce in place. All ranks call it. */
static PyObject *comm_alloc(PyObject *object, PyObject *number)
{
    comm_object *self = (comm_object *)object;
    size_t bytes = PyLong_AsSize_t(number);
    uni_error err = { 0 };
    uni_comm *comm = PyErr_Occurred() ? NULL : enter(self);
    part_object *part = comm ? new_part(self, door_state_of(object)->buffer_type) : NULL;
    int status = 0;
    if (!comm)
        return NULL;
    if (part) {
        part->size = (Py_ssize_t)bytes;
        Py_BEGIN_ALLOW_THREADS status = uni_comm_alloc(comm, bytes, &part->buffer, &err);
        Py_END_ALLOW_THREADS if (part->buffer) self->buffers++;
    }
    PyObject *answer = leave(self, status, &err);
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
static PyObject *comm_all_reduce_start(PyObject *object, PyObject *tuple)
{
    comm_object *self = (comm_object *)object;
    arguments given = { 0 };
    uni_error err = { 0 };
    uni_comm *comm = enter(self);
    part_object *part = NULL;
    int status = 0;
    if (!comm)
        return NULL;
    if (parse(tuple, true, SAME, uni_comm_size(comm), &given) == 0 &&
        (part = new_part(self, door_state_of(object)->request_type))) {
        Py_BEGIN_ALLOW_THREADS status = uni_comm_all_reduce_start(
            comm, given.in.buf, given.out.buf, (size_t)given.count, (uni_dtype)given.dtype,
            (uni_comm_op)given.op, 1.0, &part->request, &err);
        Py_END_ALLOW_THREADS part->in = given.in;
        part->out = given.out;
    } else {
        release(&given);
    }
    PyObject *answer = leave(self, status, &err);
    if (!answer) {
        Py_XDECREF((PyObject *)part);
        return NULL;
    }
    Py_DECREF(answer);
    return (PyObject *)part;
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
    if (!enter(self->owner))
        return NULL;
    uni_comm_request *request = self->request;
    Py_BEGIN_ALLOW_THREADS status = uni_comm_wait(request, &err);
    Py_END_ALLOW_THREADS let_go(self);
    return leave(self->owner, status, &err);
}

static PyObject *request_test(PyObject *object, PyObject *unused)
{
    part_object *self = (part_object *)object;
    uni_error err = { 0 };
    bool done = true;
    int status;
    if (!self->request)
        Py_RETURN_TRUE;
    if (!enter(self->owner))
        return NULL;
    uni_comm_request *request = self->request;
    Py_BEGIN_ALLOW_THREADS status = uni_comm_test(request, &done, &err);
    Py_END_ALLOW_THREADS if (status < 0 || done) let_go(self);
    PyObject *answer = leave(self->owner, status, &err);
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
    int dtype = dtype_of(dtype_name), op = op_of(op_name);
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
        status = uni_comm_buckets_new(
            &part->buckets, part->owner->comm, uni_comm_buffer_data(memory->buffer),
            (uni_dtype)dtype, (int)size, counts,
            &(uni_comm_bucket_options){ .bucket_bytes = (size_t)bucket_bytes,
                                        .op = (uni_comm_op)op },
            err);
    PyMem_Free(counts);
    return PyErr_Occurred() ? -1 : status;
}

/* buckets(flat, dtype, counts, op[, bucket_bytes]): flat is from alloc */
static PyObject *comm_buckets(PyObject *object, PyObject *tuple)
{
    comm_object *self = (comm_object *)object;
    uni_error err = { 0 };
    PyObject *flat = PyTuple_Size(tuple) > 0 ? PyTuple_GetItem(tuple, 0) : NULL;
    if (!flat || !PyObject_TypeCheck(flat, door_state_of(object)->buffer_type))
        return PyErr_Format(PyExc_TypeError, "the first argument of buckets is memory of alloc()");
    if (!enter(self))
        return NULL;
    part_object *part = new_part(self, door_state_of(object)->buckets_type);
    int status = -1;
    if (part) {
        part->flat = Py_NewRef(flat);
        status = fill_buckets(part, tuple, &err);
    }
    PyObject *answer = leave(self, status, &err);
    if (!answer) {
        Py_XDECREF((PyObject *)part);
        return NULL;
    }
    Py_DECREF(answer);
    return (PyObject *)part;
}

static PyObject *buckets_begin(PyObject *object, PyObject *weight)
{
    part_object *self = (part_object *)object;
    uni_error err = { 0 };
    double value = PyFloat_AsDouble(weight);
    if (PyErr_Occurred() || !enter(self->owner))
        return NULL;
    return leave(self->owner, uni_comm_buckets_begin(self->buckets, value, &err), &err);
}

static PyObject *buckets_ready(PyObject *object, PyObject *index)
{
    part_object *self = (part_object *)object;
    uni_error err = { 0 };
    int tensor = (int)PyLong_AsLong(index), status;
    if (PyErr_Occurred() || !enter(self->owner))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_comm_buckets_ready(self->buckets, tensor, &err);
    Py_END_ALLOW_THREADS return leave(self->owner, status, &err);
}

static PyObject *buckets_finish(PyObject *object, PyObject *unused)
{
    part_object *self = (part_object *)object;
    uni_error err = { 0 };
    int status;
    if (!enter(self->owner))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_comm_buckets_finish(self->buckets, &err);
    Py_END_ALLOW_THREADS return leave(self->owner, status, &err);
}

static PyObject *buckets_count(PyObject *object, void *unused)
{
    return PyLong_FromLong(uni_comm_buckets_count(((part_object *)object)->buckets));
}

/* ---- types ---- */

static PyGetSetDef comm_getters[] = {
    { "rank", get_known, NULL, NULL, (void *)0 },
    { "size", get_known, NULL, NULL, (void *)1 },
    { "count", get_known, NULL, "collectives begun by this rank", (void *)2 },
    { "transport", get_known, NULL, NULL, (void *)3 },
    { NULL, NULL, NULL, NULL, NULL },
};
static PyMethodDef comm_methods[] = {
    { "all_reduce", comm_all_reduce, METH_VARARGS, "all_reduce(in, out, dtype, op)" },
    { "all_reduce_start", comm_all_reduce_start, METH_VARARGS, "the same; returns a request" },
    { "all_gather", comm_all_gather, METH_VARARGS, "all_gather(in, out, dtype)" },
    { "reduce_scatter", comm_reduce_scatter, METH_VARARGS, "reduce_scatter(in, out, dtype, op)" },
    { "all_to_all", comm_all_to_all, METH_VARARGS, "all_to_all(in, out, dtype)" },
    { "broadcast", comm_broadcast, METH_VARARGS, "broadcast(data, root)" },
    { "barrier", comm_barrier, METH_NOARGS, NULL },
    { "check_equal", comm_check_equal, METH_VARARGS, "check_equal(data, what)" },
    { "alloc", comm_alloc, METH_O, "alloc(bytes): memory that all ranks reduce in place" },
    { "buckets", comm_buckets, METH_VARARGS, "buckets(flat, dtype, counts, op[, bucket_bytes])" },
    { "abort", comm_abort, METH_O, "abort(reason): every rank's calls fail with it" },
    { "close", comm_close, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot comm_slots[] = {
    { Py_tp_doc, "The ranks of a run as one group of collectives (docs/collectives.md)." },
    { Py_tp_dealloc, comm_dealloc },
    { Py_tp_getset, comm_getters },
    { Py_tp_methods, comm_methods },
    { 0, NULL },
};
static PyMethodDef request_methods[] = {
    { "wait", request_wait, METH_NOARGS, NULL },
    { "test", request_test, METH_NOARGS, "True when it is done" },
    { NULL, NULL, 0, NULL },
};
static PyType_Slot request_slots[] = {
    { Py_tp_dealloc, part_dealloc },
    { Py_tp_methods, request_methods },
    { 0, NULL },
};
static PyType_Slot buffer_slots[] = {
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
static PyType_Slot buckets_slots[] = {
    { Py_tp_dealloc, part_dealloc },
    { Py_tp_getset, buckets_getters },
    { Py_tp_methods, buckets_methods },
    { 0, NULL },
};

int door_comm_init(PyObject *module, door_state *state)
{
    static const struct {
        const char *name;
        PyType_Slot *slots;
        int size;
        size_t offset;
    } types[] = {
        { "unisono._unisono.Comm", comm_slots, sizeof(comm_object),
          offsetof(door_state, comm_type) },
        { "unisono._unisono.CommBuffer", buffer_slots, sizeof(part_object),
          offsetof(door_state, buffer_type) },
        { "unisono._unisono.CommRequest", request_slots, sizeof(part_object),
          offsetof(door_state, request_type) },
        { "unisono._unisono.CommBuckets", buckets_slots, sizeof(part_object),
          offsetof(door_state, buckets_type) },
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        PyType_Spec spec = { types[i].name, types[i].size, 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             types[i].slots };
        PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
        if (!type)
            return -1;
        memcpy((char *)state + types[i].offset, &type, sizeof type);
    }
    return 0;
}
