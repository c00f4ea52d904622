/*
 * comm.c - collectives for Python: a communicator of the session's ranks. comm_parts.c has its
 * shared buffers, requests and buckets.
 *
 * Data are Python buffers (NumPy arrays, PyTorch memory through them, our own shared buffers) and
 * are used in place: nothing is copied here. A request keeps its buffers until it is done. Every
 * call releases the GIL. A communicator belongs to one thread at a time, so a call from a second
 * Python thread gets an error instead of a race.
 *
 * References: buffers, requests and buckets keep their communicator. close() must come before the
 * end of its session. Memory from alloc() stays valid as long as it is referenced (a gradient that
 * the program kept), and only the last reference ends the communicator.
 */
#include <stddef.h>
#include <string.h>

#include "base/shared.h"
#include "comm/shared.h"
#include "train/shared.h"
#include "comm.h"

PyObject *comm_say(PyObject *object, int code, const char *message)
{
    uni_error err = { 0 };
    (void)uni_error_set(&err, code, "%s", message);
    return door_raise(door_state_of(object), &err);
}

uni_comm *comm_enter(comm_object *self)
{
    if (!self->closed && !self->busy) {
        self->busy = true;
        return self->comm;
    }
    comm_say((PyObject *)self, UNI_ESTATE,
             self->closed ? "this communicator is closed"
                          : "another thread is in a collective of this communicator");
    return NULL;
}

/* Returns None, or raises. The end of every call. */
PyObject *comm_leave(comm_object *self, int status, const uni_error *err)
{
    self->busy = false;
    if (PyErr_Occurred())
        return NULL;
    if (status < 0)
        return door_raise(door_state_of((PyObject *)self), err);
    Py_RETURN_NONE;
}

/* ---- arguments ---- */

int comm_dtype(const char *name)
{
    int dtype = uni__dtype_from_name(name);
    if (!dtype)
        door_raise_text(PyExc_TypeError, "there is no element type %s", name);
    return dtype;
}

int comm_op(const char *name)
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
    door_raise_text(PyExc_ValueError, "there is no reduction %s", name);
    return 0;
}

/* Number of elements in a buffer; -1 with an exception if it does not match the type, or does not
 * have `want` of them (want < 0: any number). */
static Py_ssize_t count_of(const Py_buffer *buffer, int dtype, Py_ssize_t want)
{
    Py_ssize_t size = (Py_ssize_t)uni_dtype_size((uni_dtype)dtype), count = buffer->len / size;
    if (count * size == buffer->len && (want < 0 || count == want))
        return count;
    door_raise_text(PyExc_ValueError, "a buffer of %zd bytes does not hold %zd elements of %s",
                    buffer->len, want < 0 ? count : want, uni_dtype_name((uni_dtype)dtype));
    return -1;
}

void comm_release(comm_arguments *given)
{
    if (given->in.obj)
        PyBuffer_Release(&given->in);
    if (given->out.obj)
        PyBuffer_Release(&given->out);
}

/* (in, out, dtype[, op]); checks the sizes against each other. */
int comm_parse(PyObject *tuple, bool with_op, comm_sizes how, int ranks, comm_arguments *out)
{
    const char *dtype, *op = "sum";
    if (!(with_op ? PyArg_ParseTuple(tuple, "y*w*ss", &out->in, &out->out, &dtype, &op)
                  : PyArg_ParseTuple(tuple, "y*w*s", &out->in, &out->out, &dtype)) ||
        !(out->dtype = comm_dtype(dtype)) || !(out->op = comm_op(op)))
        return -1;
    Py_ssize_t in = count_of(&out->in, out->dtype, -1);
    if (in < 0)
        return -1;
    if (how == SCATTER && in % ranks) {
        door_raise_text(PyExc_ValueError, "%zd elements cannot be cut in %d equal parts", in,
                        ranks);
        return -1;
    }
    out->count = how == SCATTER ? in / ranks : in;
    Py_ssize_t want = how == GATHER ? in * ranks : out->count;
    return count_of(&out->out, out->dtype, want) < 0 ? -1 : 0;
}

/* ---- collectives ---- */

typedef enum collective { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL } collective;

static int call(uni_comm *comm, collective kind, const comm_arguments *given, uni_error *err)
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
    comm_arguments given = { 0 };
    uni_error err = { 0 };
    uni_comm *comm = comm_enter(self);
    int status = 0;
    if (!comm)
        return NULL;
    int ranks = uni_comm_info_of(comm)->size;
    bool with_op = kind == ALL_REDUCE || kind == REDUCE_SCATTER;
    comm_sizes how = kind == ALL_GATHER ? GATHER : kind == REDUCE_SCATTER ? SCATTER : SAME;
    if (comm_parse(tuple, with_op, how, ranks, &given) == 0) {
        if (kind == ALL_TO_ALL && given.count % ranks)
            door_raise_text(PyExc_ValueError, "%zd elements cannot be cut in %d equal parts",
                            given.count, ranks);
        else {
            if (kind == ALL_TO_ALL)
                given.count /= ranks;
            Py_BEGIN_ALLOW_THREADS status = call(comm, kind, &given, &err);
            Py_END_ALLOW_THREADS
        }
    }
    comm_release(&given);
    return comm_leave(self, status, &err);
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
    uni_comm *comm = comm_enter(self);
    if (!comm)
        return NULL;
    if (PyArg_ParseTuple(tuple, "w*i", &data, &root)) {
        Py_BEGIN_ALLOW_THREADS status =
            uni_comm_broadcast(comm, data.buf, (size_t)data.len, UNI_U8, root, &err);
        Py_END_ALLOW_THREADS PyBuffer_Release(&data);
    }
    return comm_leave(self, status, &err);
}

static PyObject *comm_barrier(PyObject *object, PyObject *unused)
{
    comm_object *self = (comm_object *)object;
    uni_error err = { 0 };
    uni_comm *comm = comm_enter(self);
    int status;
    if (!comm)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = uni_comm_barrier(comm, &err);
    Py_END_ALLOW_THREADS return comm_leave(self, status, &err);
}

/* check_equal(data, what): raises unisono.Error EMISMATCH with the ranks whose bytes differ. */
static PyObject *comm_check_equal(PyObject *object, PyObject *tuple)
{
    comm_object *self = (comm_object *)object;
    Py_buffer data = { 0 };
    const char *what;
    int status = 0;
    uni_error err = { 0 };
    uni_comm *comm = comm_enter(self);
    if (!comm)
        return NULL;
    if (PyArg_ParseTuple(tuple, "y*s", &data, &what)) {
        Py_BEGIN_ALLOW_THREADS status =
            uni_comm_check_equal(comm, data.buf, (size_t)data.len, what, &err);
        Py_END_ALLOW_THREADS PyBuffer_Release(&data);
    }
    return comm_leave(self, status, &err);
}

/* ---- closing ---- */

/* Gradients that a program still holds are in the communicator's memory: then the last of them ends
 * it. */
void comm_close_when_unused(comm_object *self)
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
        return comm_say(object, UNI_ESTATE,
                        "another thread is in a collective of this communicator");
    self->closed = true;
    comm_close_when_unused(self);
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
    comm_close_when_unused((comm_object *)object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *get_known(PyObject *object, void *which)
{
    uni_comm *comm = ((comm_object *)object)->comm;
    if (((comm_object *)object)->closed || !comm)
        return comm_say(object, UNI_ESTATE, "this communicator is closed");
    switch ((intptr_t)which) {
    case 0:
        return PyLong_FromLong(uni_comm_info_of(comm)->rank);
    case 1:
        return PyLong_FromLong(uni_comm_info_of(comm)->size);
    case 2:
        return PyLong_FromUnsignedLongLong(uni__comm_count(comm));
    default:
        return PyUnicode_FromString(uni_comm_info_of(comm)->transport);
    }
}

PyObject *door_comm_meet(door_state *state, uni_session *session, PyObject *tuple)
{
    unsigned int after, number = 0;
    long long progress;
    uni_error err = { 0 };
    int status;
    if (!PyArg_ParseTuple(tuple, "IL", &after, &progress))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->comm_type, Py_tp_alloc);
    comm_object *self = (comm_object *)allocate(state->comm_type, 0);
    if (!self)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status =
        uni__session_meet_by(&self->comm, &number, session, after, progress, &err);
    Py_END_ALLOW_THREADS if (status == 0) return Py_BuildValue("NI", self, number);
    Py_DECREF(self);
    return door_raise(state, &err);
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
    Py_BEGIN_ALLOW_THREADS status = uni_session_comm(&self->comm, session, &options, &err);
    Py_END_ALLOW_THREADS if (status == 0) return (PyObject *)self;
    Py_DECREF(self);
    return door_raise(state, &err);
}

/* comm_named(name, rank, size, timeout_ms): the communicator of the processes of this user on this
 * host that give the same name. */
PyObject *door_comm_named(PyObject *module, PyObject *tuple)
{
    door_state *state = PyModule_GetState(module);
    uni_comm_options options = { 0 };
    uni_error err = { 0 };
    const char *name;
    int rank, size, status;
    if (!PyArg_ParseTuple(tuple, "siii", &name, &rank, &size, &options.timeout_ms))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->comm_type, Py_tp_alloc);
    comm_object *self = (comm_object *)allocate(state->comm_type, 0);
    if (!self)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status =
        uni__comm_open_named(&self->comm, name, rank, size, NULL, &options, &err);
    Py_END_ALLOW_THREADS if (status == 0) return (PyObject *)self;
    Py_DECREF(self);
    return door_raise(state, &err);
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
    { "queue", comm_queue, METH_NOARGS, "from now on the queue drives this communicator" },
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
int door_comm_init(PyObject *module, door_state *state)
{
    const struct {
        const char *name;
        PyType_Slot *slots;
        int size;
        size_t offset;
    } types[] = {
        { "unisono._unisono.Comm", comm_slots, sizeof(comm_object),
          offsetof(door_state, comm_type) },
        { "unisono._unisono.CommBuffer", comm_buffer_slots, sizeof(part_object),
          offsetof(door_state, buffer_type) },
        { "unisono._unisono.CommRequest", comm_request_slots, sizeof(part_object),
          offsetof(door_state, request_type) },
        { "unisono._unisono.CommBuckets", comm_buckets_slots, sizeof(part_object),
          offsetof(door_state, buckets_type) },
        { "unisono._unisono.CommQueue", comm_queue_slots, comm_queue_size,
          offsetof(door_state, queue_type) },
        { "unisono._unisono.CommCall", comm_call_slots, comm_call_size,
          offsetof(door_state, call_type) },
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
