/* execute.c - see execute.h. `lock` guards everything that changes after the start; tasks run
 * without it. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/random.h"
#include "data/run/execute.h"

#include "data/shared.h"
#include "data/table/shuffle.h"

/* One slot of the ring. */
struct slot {
    uni__result result;
    uni_error *error; /* NULL: success */
    bool done;
};

struct worker {
    uni__execute *execute;
    uni__reader *reader;
    pthread_t thread;
};

struct uni__execute {
    uni__execute_options options;
    pid_t process; /* owner of the threads; a child forked later has none */
    atomic_int cancelled; /* `ending`, for readers without the lock */
    pthread_mutex_t lock;
    pthread_cond_t room; /* a slot, memory or the stream became free */
    pthread_cond_t ready; /* a result is ready, or the plan is finished */
    int num_workers;
    struct worker *workers;
    struct slot *slots;
    uint64_t num_slots, head, tail; /* results [head, tail) are in progress or wait */
    int running;
    size_t task_bytes; /* the most memory a task took so far */
    bool ending, planned_all;
    /* Streams only. */
    bool stream_busy;
    /* These belong to the thread that set stream_busy; accessed without the lock. */
    void *cursor;
    uni__task stream_task;
    int64_t stream_row;
    bool stream_open;
    uint64_t waited_ns, busy_ns;
};

/* ---- tasks ---- */

static int read_rows(uni__execute *execute, uni__reader *reader, const uni__task *task,
                     uni_table **out, uni_error *err)
{
    uni_dataset *dataset = execute->options.dataset;
    /* Reads only the plan's options, of which only end_epoch changes. */
    const uni__plan *plan = execute->options.plan;
    int64_t *rows =
        uni__reader_scratch(reader, UNI__SCRATCH_ORDER_ROWS, (size_t)task->count * sizeof *rows);
    if (rows == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read %lld rows",
                             (long long)task->count);
    for (int64_t i = 0; i < task->count; i++)
        rows[i] = plan->options.rounds ? uni__plan_position(plan, task, i) : task->begin + i;
    uni__order_rows(dataset, task->epoch, rows, task->count);
    return uni__source_read_rows(&dataset->root->source, reader, rows, task->count, out, err);
}

static int read_blocks(uni__execute *execute, uni__reader *reader, const uni__task *task,
                       uni_table **out, uni_error *err)
{
    uni_dataset *dataset = execute->options.dataset;
    const uni__source *source = &dataset->root->source;
    int64_t block = uni__order_element(dataset, task->epoch, task->begin);
    return source->class_->read_block(source->self, reader, block, out, err);
}

/* Runs a task from the source to the transformed table. raw: already read (streams). */
static int run_task(uni__execute *execute, uni__reader *reader, const uni__task *task,
                    uni_table *raw, uni_table **out, uni_error *err)
{
    uni_dataset *dataset = execute->options.dataset;
    uni__source_kind kind = dataset->root->source.kind;
    int status = 0;
    if (kind != UNI__SOURCE_STREAM && task->count == 0) /* no part in the last round */
        return uni_table_new(out, 0, err);
    if (kind == UNI__SOURCE_INDEXED)
        status = read_rows(execute, reader, task, &raw, err);
    else if (kind == UNI__SOURCE_SPLIT)
        status = read_blocks(execute, reader, task, &raw, err);
    if (status == 0)
        status = uni__apply_stages(dataset, 0, execute->options.num_stages, reader, raw, out, err);
    uni_table_unref(raw);
    if (status == 0 && execute->options.shuffle_blocks) {
        uint64_t key = uni__order_key(dataset, task->epoch, 2);
        status =
            uni__shuffle_table(out, reader, uni__random_u64(key, 0, (uint64_t)task->begin), err);
        if (status < 0) {
            uni_table_unref(*out);
            *out = NULL;
        }
    }
    return status;
}

/* Caller holds the lock. */
static bool has_room(const uni__execute *execute)
{
    uint64_t waiting = execute->tail - execute->head;
    if (waiting == 0)
        return true;
    if (waiting >= execute->num_slots || waiting >= (uint64_t)execute->options.ahead)
        return false;
    size_t coming = ((size_t)execute->running + 1) * execute->task_bytes;
    return uni__pool_used(execute->options.pool) + coming <= execute->options.budget;
}

/* Caller holds the lock. Returns the next slot of the ring. */
static struct slot *next_slot(uni__execute *execute, const uni__task *task)
{
    struct slot *slot = &execute->slots[execute->tail++ % execute->num_slots];
    *slot = (struct slot){ .result = { .task = *task, .base = -1 } };
    return slot;
}

/* Caller holds the lock. */
static void finish(uni__execute *execute, struct slot *slot, uni_table *table,
                   const uni_error *failure)
{
    slot->result.table = table;
    if (failure != NULL) {
        slot->error = malloc(sizeof *slot->error);
        if (slot->error != NULL)
            *slot->error = *failure;
        execute->planned_all = true; /* results after an error are not needed */
    } else if (table != NULL) {
        size_t bytes = 2 * uni__table_bytes(table); /* and the scratch that it was made with */
        execute->task_bytes = bytes > execute->task_bytes ? bytes : execute->task_bytes;
    }
    slot->done = true;
    pthread_cond_broadcast(&execute->ready);
}

/* ---- streams ---- */

static void close_stream(uni__execute *execute)
{
    const uni__source *source = &execute->options.dataset->root->source;
    if (execute->stream_open && source->class_->stream_close != NULL)
        source->class_->stream_close(source->self, execute->cursor);
    execute->stream_open = false;
    execute->cursor = NULL;
}

/* Reads the next table of the stream, skipping those that a resume has already used. Returns 0 at
 * the end. One thread at a time, without the lock. */
static int read_stream(uni__execute *execute, uni__reader *reader, int64_t *base, uni_table **out,
                       uni_error *err)
{
    const uni__source *source = &execute->options.dataset->root->source;
    int64_t window = execute->options.window_rows;
    int64_t first = execute->stream_task.begin / window * window;
    bool counts = uni__dataset_one_to_one(execute->options.dataset);
    if (!execute->stream_open) {
        UNI_TRY(source->class_->stream_open(source->self, &execute->cursor, err));
        execute->stream_open = true;
        execute->stream_row = 0;
    }
    for (;;) {
        int more = source->class_->stream_next(source->self, execute->cursor, reader, out, err);
        if (more <= 0)
            return more;
        int64_t rows = uni_table_num_rows(*out);
        *base = counts ? execute->stream_row : -1;
        execute->stream_row += rows;
        if (!counts || execute->stream_row > first)
            return 1;
        uni_table_unref(*out);
        *out = NULL;
        UNI_TRY(uni__reader_is_wanted(reader, err)); /* a resume may skip many rows */
    }
}

/* Caller holds the lock, which is released meanwhile. Reads the next table and runs its stages.
 * Returns false when the plan is finished. */
static bool work_on_stream(uni__execute *execute, uni__reader *reader)
{
    if (!execute->stream_open && !uni__plan_next(execute->options.plan, &execute->stream_task))
        return false;
    if (execute->stream_task.end_of_epoch) { /* the plan's own end of the epoch */
        finish(execute, next_slot(execute, &execute->stream_task), NULL, NULL);
        return true;
    }
    execute->stream_busy = true;
    pthread_mutex_unlock(&execute->lock);
    uni_table *raw = NULL, *table = NULL;
    uni_error err = { 0 };
    int64_t base = -1;
    int more = read_stream(execute, reader, &base, &raw, &err);
    /* May call a user function, so without the lock. */
    if (more == 0)
        close_stream(execute);
    pthread_mutex_lock(&execute->lock);
    execute->stream_busy = false;
    if (more == 0) {
        pthread_cond_broadcast(&execute->room);
        return true;
    }
    struct slot *slot = next_slot(execute, &execute->stream_task);
    slot->result.base = base;
    pthread_cond_broadcast(&execute->room);
    if (more < 0) {
        finish(execute, slot, NULL, &err);
        return true;
    }
    execute->running++;
    pthread_mutex_unlock(&execute->lock);
    int status = run_task(execute, reader, &slot->result.task, raw, &table, &err);
    pthread_mutex_lock(&execute->lock);
    execute->running--;
    finish(execute, slot, table, status < 0 ? &err : NULL);
    return true;
}

/* ---- threads ---- */

/* Caller holds the lock, which is released meanwhile. Returns false when the plan is finished. */
static bool work_on_task(uni__execute *execute, uni__reader *reader)
{
    uni__task task;
    uint64_t number = execute->tail;
    if (!uni__plan_next(execute->options.plan, &task))
        return false;
    struct slot *slot = next_slot(execute, &task);
    if (task.end_of_epoch) {
        finish(execute, slot, NULL, NULL);
        return true;
    }
    execute->running++;
    pthread_mutex_unlock(&execute->lock);
    uni_table *table = NULL;
    uni_error err = { 0 };
    uint64_t before = uni__monotonic_ns();
    int status = run_task(execute, reader, &task, NULL, &table, &err);
    size_t bytes = status == 0 ? uni__table_bytes(table) : 0;
    pthread_mutex_lock(&execute->lock);
    execute->running--;
    uni__plan_fit(execute->options.plan, task.count, bytes, uni__monotonic_ns() - before);
    /* The consumer was faster; the slot may have been reused. */
    if (number < execute->head || slot->done)
        uni_table_unref(table);
    else
        finish(execute, slot, table, status < 0 ? &err : NULL);
    return true;
}

/* A prefetch thread must not preempt the thread that woke it, which has a batch to train on.
 * SCHED_BATCH threads wait for their turn. */
static void give_way(void)
{
    int policy;
    struct sched_param parameters;
    if (pthread_getschedparam(pthread_self(), &policy, &parameters) == 0 && policy == SCHED_OTHER)
        (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
}

static int start_worker(uni__execute *execute, uni_error *err);

/* Caller holds the lock. Threads start one by one, each after the previous one has its first
 * result. Several that start at once slow each other down, because all touch fresh memory while the
 * consumer waits for the first batch; and a small dataset never needs more than one. If a thread
 * cannot be started, reading is only slower. */
static void start_next(uni__execute *execute, const struct worker *worker)
{
    bool last = worker == &execute->workers[execute->num_workers - 1];
    if (last && execute->num_workers < execute->options.threads && !execute->ending &&
        !execute->planned_all && has_room(execute))
        (void)start_worker(execute, NULL);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    uni__execute *execute = worker->execute;
    give_way();
    bool stream = execute->options.dataset->root->source.kind == UNI__SOURCE_STREAM;
    pthread_mutex_lock(&execute->lock);
    while (!execute->ending) {
        if (execute->planned_all || execute->stream_busy || !has_room(execute)) {
            pthread_cond_wait(&execute->room, &execute->lock);
            continue;
        }
        uint64_t before = uni__monotonic_ns();
        bool more = stream ? work_on_stream(execute, worker->reader)
                           : work_on_task(execute, worker->reader);
        execute->busy_ns += uni__monotonic_ns() - before;
        if (!more) {
            execute->planned_all = true;
            pthread_cond_broadcast(&execute->ready);
        }
        start_next(execute, worker);
    }
    pthread_mutex_unlock(&execute->lock);
    return NULL;
}

/* Caller holds the lock. */
static int start_worker(uni__execute *execute, uni_error *err)
{
    struct worker *worker = &execute->workers[execute->num_workers];
    worker->execute = execute;
    UNI_TRY(uni__reader_of(&worker->reader, execute->options.pool, execute->options.bad, err));
    uni__reader_watch(worker->reader, &execute->cancelled);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&worker->thread, NULL, work, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        uni__reader_free(worker->reader);
        return uni_error_set_errno(err, code, "cannot start a thread that reads data");
    }
    execute->num_workers++;
    return 0;
}

/* Caller holds the lock, which is released meanwhile. The consumer computes the next result
 * itself. */
static void help(uni__execute *execute)
{
    if (!work_on_task(execute, execute->options.reader))
        execute->planned_all = true;
}

/* Caller holds the lock, which is released meanwhile. The consumer computes a result that a thread
 * is already working on. With more threads than cores, that thread may be off the CPU for
 * milliseconds; the first to finish wins. */
static void overtake(uni__execute *execute, struct slot *slot)
{
    uni__task task = slot->result.task;
    uni_table *table = NULL;
    uni_error err = { 0 };
    pthread_mutex_unlock(&execute->lock);
    int status = run_task(execute, execute->options.reader, &task, NULL, &table, &err);
    pthread_mutex_lock(&execute->lock);
    if (slot->done)
        uni_table_unref(table);
    else
        finish(execute, slot, table, status < 0 ? &err : NULL);
}

/* Caller holds the lock. Computes the first results, for about as long as a thread takes to
 * start. */
static void make_first_results(uni__execute *execute)
{
    enum { LONG_NS = 100000 };
    uint64_t begin = uni__monotonic_ns();
    while (!execute->planned_all && has_room(execute) && uni__monotonic_ns() - begin < LONG_NS)
        help(execute);
}

/* Caller holds the lock. Starts prefetching unless a thread already does. */
static int begin_work(uni__execute *execute, uni_error *err)
{
    if (execute->num_workers == 0)
        return execute->planned_all || execute->options.alone ? 0 : start_worker(execute, err);
    pthread_cond_broadcast(&execute->room);
    return 0;
}

int uni__execute_start(uni__execute **out, const uni__execute_options *options, uni_error *err)
{
    *out = NULL;
    uni__execute *execute = calloc(1, sizeof *execute);
    if (execute == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read a dataset");
    execute->options = *options;
    execute->process = getpid();
    execute->num_slots = (uint64_t)options->ahead + (uint64_t)options->threads + 1;
    pthread_mutex_init(&execute->lock, NULL);
    pthread_cond_init(&execute->room, NULL);
    pthread_cond_init(&execute->ready, NULL);
    execute->slots = calloc((size_t)execute->num_slots, sizeof *execute->slots);
    execute->workers = calloc((size_t)options->threads, sizeof *execute->workers);
    int status = execute->slots != NULL && execute->workers != NULL
                     ? 0
                     : uni_error_set(err, UNI_ENOMEM, "no memory to read a dataset");
    if (status == 0) {
        pthread_mutex_lock(&execute->lock);
        if (options->quick)
            make_first_results(execute);
        status = begin_work(execute, err);
        pthread_mutex_unlock(&execute->lock);
    }
    if (status < 0) {
        uni__execute_stop(execute);
        return status;
    }
    *out = execute;
    return 0;
}

/* Caller holds the lock, after taking a result. Does not wake a thread for each of many waiting
 * results: that would cost the consumer more than taking the result. */
static void wake_one(uni__execute *execute)
{
    if (execute->tail - execute->head <= (uint64_t)execute->options.ahead / 2)
        pthread_cond_signal(&execute->room);
}

int uni__execute_next(uni__execute *execute, uni__result *out, uni_error *err)
{
    /* Before the lock, which a thread may have held at the fork. */
    if (uni__execute_is_anothers(execute))
        return uni_error_set(err, UNI_ESTATE,
                             "this iterator was opened by process %d, and its threads are not in "
                             "process %d, which was forked from it: open one of your own",
                             (int)execute->process, (int)getpid());
    pthread_mutex_lock(&execute->lock);
    struct slot *slot = &execute->slots[execute->head % execute->num_slots];
    uint64_t before = 0;
    while (execute->head == execute->tail ? !execute->planned_all : !slot->done) {
        before = before == 0 ? uni__monotonic_ns() : before;
        if (execute->options.quick) {
            if (execute->head == execute->tail)
                help(execute);
            else
                overtake(execute, slot);
            continue;
        }
        if (uni__wait_or_ask(&execute->ready, &execute->lock,
                             atomic_load(&execute->options.dataset->root->interrupted)))
            continue;
        pthread_mutex_unlock(&execute->lock);
        return uni_error_set(err, UNI_ECANCELED, "the wait for data was interrupted");
    }
    if (before > 0)
        execute->waited_ns += uni__monotonic_ns() - before;
    int status = execute->head != execute->tail;
    if (status > 0 && slot->result.table == NULL && !slot->result.task.end_of_epoch) {
        status = slot->error != NULL ? slot->error->code : UNI_ENOMEM;
        /* The error stays in its slot: the next call returns it again. */
        if (err != NULL && slot->error != NULL)
            *err = *slot->error;
    } else if (status > 0) {
        *out = slot->result;
        slot->result.table = NULL;
        execute->head++;
        wake_one(execute);
    }
    pthread_mutex_unlock(&execute->lock);
    return status;
}

void uni__execute_extend(uni__execute *execute, int64_t end_epoch)
{
    pthread_mutex_lock(&execute->lock);
    uni__plan_extend(execute->options.plan, end_epoch);
    execute->planned_all = false;
    (void)begin_work(execute, NULL); /* the consumer can work without threads */
    pthread_mutex_unlock(&execute->lock);
}

/* Plans a new epoch with tasks of the current size. */
static int plan_again(uni__plan *plan, int64_t epoch, int64_t end_epoch)
{
    uni__plan_options options = plan->options;
    int64_t rounds_next = plan->rounds_next;
    options.first_epoch = epoch;
    options.end_epoch = end_epoch;
    uni__plan_close(plan);
    UNI_TRY(uni__plan_open(plan, &options, NULL, NULL));
    plan->rounds_next = rounds_next;
    return 0;
}

bool uni__execute_rewind(uni__execute *execute, int64_t epoch, int64_t end_epoch)
{
    pthread_mutex_lock(&execute->lock);
    bool rests = execute->head == execute->tail && execute->running == 0 && !execute->stream_busy &&
                 !execute->stream_open && plan_again(execute->options.plan, epoch, end_epoch) == 0;
    if (rests) {
        execute->planned_all = false;
        (void)begin_work(execute, NULL);
    }
    pthread_mutex_unlock(&execute->lock);
    return rests;
}

bool uni__execute_is_anothers(const uni__execute *execute)
{
    return execute != NULL && execute->process != getpid();
}

void uni__execute_stop(uni__execute *execute)
{
    if (execute == NULL)
        return;
    atomic_store(&execute->cancelled, 1);
    pthread_mutex_lock(&execute->lock);
    execute->ending = true;
    int workers = execute->num_workers; /* no thread starts from here on */
    pthread_cond_broadcast(&execute->room);
    pthread_mutex_unlock(&execute->lock);
    for (int i = 0; i < workers; i++) {
        pthread_join(execute->workers[i].thread, NULL);
        uni__reader_free(execute->workers[i].reader);
    }
    close_stream(execute);
    for (uint64_t i = 0; execute->slots != NULL && i < execute->num_slots; i++) {
        uni_table_unref(execute->slots[i].result.table);
        free(execute->slots[i].error);
    }
    free(execute->slots);
    free(execute->workers);
    pthread_cond_destroy(&execute->ready);
    pthread_cond_destroy(&execute->room);
    pthread_mutex_destroy(&execute->lock);
    free(execute);
}

double uni__execute_wait(const uni__execute *execute)
{
    return (double)execute->waited_ns * 1e-9;
}

double uni__execute_busy(uni__execute *execute)
{
    pthread_mutex_lock(&execute->lock);
    double seconds = (double)execute->busy_ns * 1e-9;
    pthread_mutex_unlock(&execute->lock);
    return seconds;
}
