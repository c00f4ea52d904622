/*
 * comm_queue.c - collectives that end on their own: what torch.distributed's groups run on.
 *
 * A queue drives one communicator for all threads of the process. put() starts a call and returns;
 * the call ends when some thread drives it: one that waits for it, or the queue's own thread, which
 * takes over when nothing has driven for a millisecond. So a program that waits at once (most do)
 * pays for no second thread, and one that computes first finds its call done.
 *
 * The lock `turn` protects the communicator and the lists. The thread that holds it drives in
 * slices of half a millisecond and gives it up when another thread wants it: what that thread
 * starts may be what a peer waits for. No thread takes `turn` while it holds the GIL.
 *
 * Addresses come from Python as numbers (tensor.data_ptr()): bfloat16 has no buffer protocol. Each
 * call keeps its tensors alive until it has ended, even if the program has dropped it.
 *
 * A forked child has the memory but not the thread, and must not touch what the ranks share: there
 * everything is an error, and closing does nothing.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/shared.h"
#include "comm.h"

#define SLICE_NS 500000u
#define IDLE_NS 1000000u
#define PARK_AFTER 20 /* idle rounds without a call under way */

typedef struct call_object call_object;

typedef struct queue_object {
    PyObject_HEAD comm_object *owner;
    pthread_mutex_t turn;
    pthread_cond_t woken; /* the queue's thread: there is something to drive */
    pthread_cond_t finished; /* a call that take() returns has ended */
    pthread_t thread;
    _Atomic int wanted; /* threads that wait for the turn */
    _Atomic uint64_t driven_ns; /* when a thread last drove */
    bool has_thread, parked, closing, closed;
    pid_t process;
    call_object *first, *last; /* under way */
    call_object *ended; /* the queue's reference is to be dropped by a thread that has the GIL */
    call_object *heard; /* ended, and to be told of by take() */
} queue_object;

struct call_object {
    PyObject_HEAD queue_object *owner;
    PyObject *keep;
    call_object *previous, *next;
    uni_comm_request *request; /* NULL: ended */
    bool is_told; /* take() gives it out when it has ended */
    int status;
    uni_error error;
};

/* ---- the turn; without the GIL ---- */

static void take_turn(queue_object *self)
{
    atomic_fetch_add(&self->wanted, 1);
    pthread_mutex_lock(&self->turn);
    atomic_fetch_sub(&self->wanted, 1);
}

static void leave_turn(queue_object *self)
{
    atomic_store(&self->driven_ns, uni__monotonic_ns());
    pthread_mutex_unlock(&self->turn);
}

/* Between two slices: lets others in. */
static void share_turn(queue_object *self)
{
    if (atomic_load(&self->wanted) == 0)
        return;
    pthread_mutex_unlock(&self->turn);
    for (int i = 0; i < 50 && atomic_load(&self->wanted) > 0; i++)
        nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
    take_turn(self);
}

static void end_call(call_object *call, int status, const uni_error *err)
{
    queue_object *self = call->owner;
    call_object **before = call->previous ? &call->previous->next : &self->first;
    *before = call->next;
    *(call->next ? &call->next->previous : &self->last) = call->previous;
    call->request = NULL;
    call->status = status;
    if (status < 0)
        call->error = *err;
    call_object **list = call->is_told ? &self->heard : &self->ended;
    call->next = *list;
    *list = call;
    if (call->is_told)
        pthread_cond_broadcast(&self->finished);
}

/* Drives one call for a slice. */
static void drive(call_object *call, uint64_t limit_ns)
{
    uni_error err = { 0 };
    bool done = false;
    int status = uni__comm_wait_for(&done, call->request, limit_ns, &err);
    if (done || status < 0)
        end_call(call, status, &err);
}

/* For at most limit_ns (below 0: without limit); whether the call has ended. */
static bool drive_until(call_object *call, long long limit_ns)
{
    uint64_t now = uni__monotonic_ns(), until = now + (uint64_t)(limit_ns > 0 ? limit_ns : 0);
    while (call->request) {
        uint64_t left = limit_ns < 0 ? SLICE_NS : until - now;
        drive(call, left < SLICE_NS ? left : SLICE_NS);
        share_turn(call->owner);
        if (limit_ns >= 0 && (now = uni__monotonic_ns()) >= until)
            break;
    }
    return !call->request;
}

/* Calls that have ended beside the one that was driven. */
static void look_at_all(queue_object *self)
{
    for (call_object *call = self->first, *next; call; call = next) {
        next = call->next;
        drive(call, 0);
    }
}

static void *run_thread(void *context)
{
    queue_object *self = context;
    int idle = 0;
    pthread_mutex_lock(&self->turn);
    while (!self->closing) {
        if (!self->first && ++idle > PARK_AFTER) {
            self->parked = true;
            pthread_cond_wait(&self->woken, &self->turn);
            self->parked = false;
            idle = 0;
        }
        pthread_mutex_unlock(&self->turn);
        nanosleep(&(struct timespec){ .tv_nsec = IDLE_NS }, NULL);
        pthread_mutex_lock(&self->turn);
        if (uni__monotonic_ns() - atomic_load(&self->driven_ns) < IDLE_NS)
            continue;
        while (self->first && !self->closing) {
            idle = 0;
            drive(self->first, SLICE_NS);
            look_at_all(self);
            share_turn(self);
        }
    }
    pthread_mutex_unlock(&self->turn);
    return NULL;
}

/* With the turn. */
static int wake_thread(queue_object *self, uni_error *err)
{
    if (self->has_thread) {
        if (self->parked)
            pthread_cond_signal(&self->woken);
        return 0;
    }
    int status = pthread_create(&self->thread, NULL, run_thread, self);
    if (status != 0)
        return uni_error_set_errno(err, status, "cannot start a thread for collectives");
    self->has_thread = true;
    return 0;
}

/* ---- what Python calls ---- */

/* With the GIL: drops the references of calls that have ended. */
static void drop_ended(queue_object *self)
{
    call_object *ended;
    Py_BEGIN_ALLOW_THREADS take_turn(self);
    ended = self->ended;
    self->ended = NULL;
    pthread_mutex_unlock(&self->turn);
    Py_END_ALLOW_THREADS while (ended)
    {
        call_object *next = ended->next;
        ended->next = ended->previous = NULL;
        Py_CLEAR(ended->keep);
        Py_DECREF((PyObject *)ended);
        ended = next;
    }
}

static bool is_usable(queue_object *self)
{
    if (self->process != getpid())
        comm_say((PyObject *)self->owner, UNI_ESTATE,
                 "this group belongs to the process that opened it, not to its forked child");
    else if (self->closed || self->owner->closed)
        comm_say((PyObject *)self->owner, UNI_ESTATE, "this group is closed");
    else
        return true;
    return false;
}

static call_object *new_call(queue_object *self, PyObject *keep)
{
    PyTypeObject *type = door_state_of((PyObject *)self)->call_type;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    call_object *call = (call_object *)allocate(type, 0);
    if (!call)
        return NULL;
    call->owner = (queue_object *)Py_NewRef((PyObject *)self);
    call->keep = Py_NewRef(keep);
    return call;
}

/* With the turn, without the GIL. The list's reference is the caller's to take. */
static int begin(queue_object *self, call_object *call, const uni__comm_what *what, bool alone,
                 uni_error *err)
{
    if (!alone)
        UNI_TRY(wake_thread(self, err));
    UNI_TRY(uni__comm_begin(&call->request, self->owner->comm, what, err));
    call->previous = self->last;
    *(self->last ? &self->last->next : &self->first) = call;
    self->last = call;
    return 0;
}

/* put(kind, in, out, count, dtype, op, root, wait_ns, keep): starts a call and waits for it for so
 * long. wait_ns below 0: until it has ended, and no other thread looks after it. */
static PyObject *queue_put(PyObject *object, PyObject *tuple)
{
    queue_object *self = (queue_object *)object;
    unsigned long long in, out, count;
    long long wait_ns;
    uni__comm_what what = { 0 };
    int dtype, op;
    PyObject *keep;
    uni_error err = { 0 };
    int status;
    if (!is_usable(self) || !PyArg_ParseTuple(tuple, "iKKKiiiLO", &what.kind, &in, &out, &count,
                                              &dtype, &op, &what.root, &wait_ns, &keep))
        return NULL;
    what.dtype = (uni_dtype)dtype;
    what.op = (uni_comm_op)op;
    what.count = (size_t)count;
    what.in = (const void *)(uintptr_t)in;
    what.out = (void *)(uintptr_t)out;
    call_object *call = new_call(self, keep);
    if (!call)
        return NULL;
    Py_INCREF((PyObject *)call); /* the list's, taken while the GIL is held */
    Py_BEGIN_ALLOW_THREADS take_turn(self);
    status = begin(self, call, &what, wait_ns < 0, &err);
    if (status == 0 && !drive_until(call, wait_ns))
        look_at_all(self); /* calls that began before it move on */
    leave_turn(self);
    Py_END_ALLOW_THREADS if (status < 0)
    {
        Py_DECREF((PyObject *)call);
        Py_DECREF((PyObject *)call);
        return door_raise(door_state_of(object), &err);
    }
    if (self->ended)
        drop_ended(self);
    return (PyObject *)call;
}

/* take(): waits for a call that was marked by tell() to end, and returns it; None when the queue is
 * closed. For one thread of the program. */
static PyObject *queue_take(PyObject *object, PyObject *unused)
{
    queue_object *self = (queue_object *)object;
    call_object *call;
    Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&self->turn);
    while (!self->heard && !self->closing)
        pthread_cond_wait(&self->finished, &self->turn);
    call = self->heard;
    if (call)
        self->heard = call->next;
    pthread_mutex_unlock(&self->turn);
    Py_END_ALLOW_THREADS if (!call) Py_RETURN_NONE;
    call->next = call->previous = NULL;
    Py_CLEAR(call->keep);
    return (PyObject *)call; /* the list's reference */
}

static void stop_thread(queue_object *self)
{
    pthread_mutex_lock(&self->turn);
    self->closing = true;
    pthread_cond_broadcast(&self->woken);
    pthread_cond_broadcast(&self->finished);
    pthread_mutex_unlock(&self->turn);
    if (self->has_thread)
        pthread_join(self->thread, NULL);
    self->has_thread = false;
}

/* close(): calls under way fail with UNI_ECANCELED. */
static PyObject *queue_close(PyObject *object, PyObject *unused)
{
    queue_object *self = (queue_object *)object;
    if (self->closed || self->process != getpid())
        Py_RETURN_NONE;
    self->closed = true;
    Py_BEGIN_ALLOW_THREADS stop_thread(self);
    pthread_mutex_lock(&self->turn);
    uni_error err = { 0 };
    (void)uni_error_set(&err, UNI_ECANCELED, "the group was closed before this call had ended");
    while (self->first)
        end_call(self->first, UNI_ECANCELED, &err);
    pthread_mutex_unlock(&self->turn);
    Py_END_ALLOW_THREADS drop_ended(self);
    self->owner->busy = false;
    Py_RETURN_NONE;
}

static void queue_dealloc(PyObject *object)
{
    queue_object *self = (queue_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *answer = queue_close(object, NULL);
    Py_XDECREF(answer);
    if (self->process == getpid()) {
        pthread_mutex_destroy(&self->turn);
        pthread_cond_destroy(&self->woken);
        pthread_cond_destroy(&self->finished);
        Py_XDECREF((PyObject *)self->owner);
    } /* in a forked child the communicator stays as it is */
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* queue(): from now on the communicator is driven by it alone. */
PyObject *comm_queue(PyObject *object, PyObject *unused)
{
    comm_object *owner = (comm_object *)object;
    PyTypeObject *type = door_state_of(object)->queue_type;
    if (!comm_enter(owner)) /* stays busy: direct calls are refused */
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    queue_object *self = (queue_object *)allocate(type, 0);
    if (!self) {
        owner->busy = false;
        return NULL;
    }
    self->owner = (comm_object *)Py_NewRef(object);
    self->process = getpid();
    pthread_mutex_init(&self->turn, NULL);
    pthread_cond_init(&self->woken, NULL);
    pthread_cond_init(&self->finished, NULL);
    return (PyObject *)self;
}

/* ---- a call ---- */

/* wait(limit_ns): True when it has ended, False when it has not within that time (below 0: without
 * limit). Raises what made it fail. */
static PyObject *call_wait(PyObject *object, PyObject *number)
{
    call_object *call = (call_object *)object;
    queue_object *self = call->owner;
    long long limit_ns = PyLong_AsLongLong(number);
    if (PyErr_Occurred())
        return NULL;
    if (self->process != getpid()) {
        (void)is_usable(self);
        return NULL;
    }
    bool done;
    Py_BEGIN_ALLOW_THREADS take_turn(self);
    done = drive_until(call, limit_ns);
    leave_turn(self);
    Py_END_ALLOW_THREADS if (self->ended) drop_ended(self);
    if (done && call->status < 0)
        return door_raise(door_state_of(object), &call->error);
    return PyBool_FromLong(done);
}

/* tell(): take() will return it when it has ended. True; False when it has ended already. */
static PyObject *call_tell(PyObject *object, PyObject *unused)
{
    call_object *call = (call_object *)object;
    queue_object *self = call->owner;
    bool told;
    uni_error err = { 0 };
    int status = 0;
    if (!is_usable(self))
        return NULL;
    Py_BEGIN_ALLOW_THREADS take_turn(self);
    told = call->request != NULL;
    call->is_told = call->is_told || told;
    if (told)
        status = wake_thread(self, &err);
    pthread_mutex_unlock(&self->turn);
    Py_END_ALLOW_THREADS if (status < 0) return door_raise(door_state_of(object), &err);
    return PyBool_FromLong(told);
}

static void call_dealloc(PyObject *object)
{
    call_object *self = (call_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->keep);
    Py_XDECREF((PyObject *)self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* ---- types ---- */

const int comm_queue_size = sizeof(queue_object), comm_call_size = sizeof(call_object);
static PyMethodDef queue_methods[] = {
    { "put", queue_put, METH_VARARGS,
      "put(kind, in, out, count, dtype, op, root, wait_ns, keep): starts a call" },
    { "take", queue_take, METH_NOARGS, "the next call that tell() was called for, when it ends" },
    { "close", queue_close, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL },
};
PyType_Slot comm_queue_slots[] = {
    { Py_tp_doc, "A communicator that several threads use, with calls that end on their own." },
    { Py_tp_dealloc, queue_dealloc },
    { Py_tp_methods, queue_methods },
    { 0, NULL },
};
static PyMethodDef call_methods[] = {
    { "wait", call_wait, METH_O, "wait(limit_ns): True when it has ended" },
    { "tell", call_tell, METH_NOARGS, "lets take() return it when it has ended" },
    { NULL, NULL, 0, NULL },
};
PyType_Slot comm_call_slots[] = {
    { Py_tp_dealloc, call_dealloc },
    { Py_tp_methods, call_methods },
    { 0, NULL },
};
