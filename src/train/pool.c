/*
 * pool.c - the owner's half of a pool: orders out, events in. The controller's half is pool_events.c; the interface is pool.h.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "train/pool_internal.h"

#define FAREWELL_NS 500000000ull

void uni__pool_snapshot_drop(uni__pool_snapshot *snapshot)
{
    if (!snapshot || atomic_fetch_sub(&snapshot->references, 1) > 1)
        return;
    munmap(snapshot->memory, snapshot->size);
    free(snapshot);
}

void uni__pool_request_free(uni__pool_request *request)
{
    if (!request)
        return;
    free(request->order);
    free(request->exe);
    free(request->log);
    uni_value_free(request->argv);
    uni_value_free(request->environment);
    free(request);
}

static uni__pool_request *new_request(uni__pool *pool, int member, uint64_t serial)
{
    uni__pool_request *request = calloc(1, sizeof *request);
    if (request) {
        request->pool = pool;
        request->member = member;
        request->serial = serial;
    }
    return request;
}

/* ---- life ---- */

static void start_signals(void *argument)
{
    uni__pool *pool = argument;
    uni_error err = { 0 };
    if (uni__group_handle_signals(pool->group, true, &err) < 0)
        uni__warn("%s", err.message);
}

static int make_members(uni__pool *pool, const char *logs, uni_error *err)
{
    UNI_TRY(uni__make_dirs(logs, 0700, err));
    pool->members = calloc((size_t)pool->size, sizeof *pool->members);
    for (int i = 0; pool->members && i < pool->size; i++)
        if (asprintf(&pool->members[i].log, "%s/member_%d.log", logs, i) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    return pool->members ? 0
                         : uni_error_set(err, UNI_ENOMEM, "no memory for %d members", pool->size);
}

int uni__pool_new(uni__pool **out, const uni_trainer_options *options, const char *logs,
                  uni_error *err)
{
    int status;
    *out = NULL;
    uni__pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a pool");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->more, &attributes);
    pthread_condattr_destroy(&attributes);
    UNI_TRY_GOTO(uni_trainer_new(&pool->trainer, options, err), fail);
    pool->size = pool->trainer->options.num_workers;
    UNI_TRY_GOTO(make_members(pool, logs, err), fail);
    UNI_TRY_GOTO(uni__group_new(&pool->group, pool->size, &uni__pool_group_events, pool, err),
                 fail);
    if (options->handle_signals)
        uni__group_call(pool->group, start_signals, pool);
    *out = pool;
    return 0;
fail:
    uni__pool_free(pool);
    return status;
}

typedef struct farewell {
    uni__pool *pool;
    int left;
} farewell;

static void say_farewell(void *argument)
{
    static const uint8_t empty_map[1] = { 0x80 };
    farewell *call = argument;
    uni__pool *pool = call->pool;
    for (int i = 0; i < pool->size; i++)
        if (pool->members[i].live && !pool->members[i].busy && !pool->members[i].is_program)
            call->left += uni__group_send(pool->group, i, UNI__TO_WORKER_SHUTDOWN, empty_map,
                                          sizeof empty_map, -1, NULL) == 0;
}

static void count_left(void *argument)
{
    farewell *call = argument;
    call->left = 0;
    for (int i = 0; i < call->pool->size; i++)
        call->left += call->pool->members[i].live && !call->pool->members[i].busy;
}

void uni__pool_free(uni__pool *pool)
{
    if (!pool)
        return;
    farewell call = { .pool = pool };
    if (pool->group) {
        uni__group_call(pool->group, say_farewell, &call);
        uint64_t deadline = uni__monotonic_ns() + FAREWELL_NS;
        for (long pause_us = 100; call.left > 0 && uni__monotonic_ns() < deadline;
             pause_us = pause_us < 5000 ? pause_us * 2 : 5000) {
            nanosleep(&(struct timespec){ .tv_nsec = pause_us * 1000 }, NULL);
            uni__group_call(pool->group, count_left, &call);
        }
        uni__group_free(pool->group);
    }
    for (uni__pool_event *event = pool->first; event;) {
        uni__pool_event *next = event->next;
        uni__pool_event_free(event);
        event = next;
    }
    for (int i = 0; pool->members && i < pool->size; i++) {
        for (int slot = 0; slot < UNI__SNAPSHOT_SLOTS; slot++)
            uni__pool_snapshot_drop(pool->members[i].snapshots[slot]);
        free(pool->members[i].log);
    }
    free(pool->members);
    uni_trainer_free(pool->trainer);
    pthread_cond_destroy(&pool->more);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

int uni__pool_size(const uni__pool *pool)
{
    return pool->size;
}

const char *uni__pool_log(const uni__pool *pool, int member)
{
    return pool->members[member].log;
}

int uni__pool_pid(const uni__pool *pool, int member)
{
    return atomic_load(&pool->members[member].pid);
}

/* ---- orders ---- */

/* The keys are read in session_setup.c. */
static uni_value *worker_order(const uni__pool_order *asked)
{
    uni_value *order = uni_value_dict();
    const struct {
        const char *key, *text;
    } texts[] = {
        { "function", asked->function },     { "name", asked->name },
        { "storage", asked->storage },       { "run_dir", asked->run_dir },
        { "checkpoint", asked->checkpoint }, { "staging_dir", asked->staging_dir },
    };
    const struct {
        const char *key;
        int64_t number;
    } numbers[] = {
        { "rank", 0 },
        { "world_size", 1 },
        { "local_rank", 0 },
        { "local_world_size", 1 },
        { "node_rank", 0 },
        { "attempt", asked->attempt },
        { "iteration", asked->iteration },
    };
    int status = 0;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        status |= uni_dict_take(order, texts[i].key,
                                uni_value_string(texts[i].text ? texts[i].text : ""));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        status |= uni_dict_take(order, numbers[i].key, uni_value_int(numbers[i].number));
    status |= uni_dict_take(order, "config",
                            asked->config ? uni_value_copy(asked->config) : uni_value_dict());
    if (asked->attachment)
        status |= uni_dict_take(order, "attachment", uni_value_copy(asked->attachment));
    status |= uni_dict_take(order, "lockstep", uni_value_bool(asked->lockstep));
    status |= uni_dict_take(order, "trial", uni_value_bool(true));
    if (status == 0)
        return order;
    uni_value_free(order);
    return NULL;
}

static int add_program(uni__pool *pool, uni__pool_request *request, const uni__pool_order *asked,
                       uni_error *err)
{
    const char *name = uni_value_as_string(uni_list_get(asked->program, 0), "");
    UNI_TRY(uni__find_program(name, &request->exe, err));
    request->argv = uni_value_copy(asked->program);
    request->environment = uni__pool_environment(pool, request->member, asked);
    request->log = strdup(asked->log);
    if (!request->argv || !request->environment || !request->log)
        return uni_error_set(err, UNI_ENOMEM, "no memory to start %s", name);
    return 0;
}

int uni__pool_run(uni__pool *pool, int member, const uni__pool_order *asked, uint64_t *serial,
                  uni_error *err)
{
    uni__pool_request *request = new_request(pool, member, ++pool->next_serial);
    uni_value *order = worker_order(asked);
    int status = request && order ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for an order");
    if (status == 0)
        status = uni_msgpack_write(&request->order, &request->order_size, order, err);
    if (status == 0 && asked->program)
        status = add_program(pool, request, asked, err);
    uni_value_free(order);
    if (status < 0) {
        uni__pool_request_free(request);
        return status;
    }
    request->iteration = asked->iteration;
    *serial = request->serial;
    uni__group_post(pool->group, uni__pool_start, request);
    return 0;
}

void uni__pool_release(uni__pool *pool, int member, uint64_t serial, int64_t iteration, bool stop)
{
    uni__pool_request *request = new_request(pool, member, serial);
    if (!request)
        return;
    request->iteration = iteration;
    request->stop = stop;
    uni__group_post(pool->group, uni__pool_let_go, request);
}

void uni__pool_kill(uni__pool *pool, int member, uint64_t serial)
{
    uni__pool_request *request = new_request(pool, member, serial);
    if (request)
        uni__group_post(pool->group, uni__pool_end_member, request);
}

void uni__pool_taken(uni__pool *pool, uni__pool_event *checkpoint)
{
    uni__pool_request *request = new_request(pool, checkpoint->member, checkpoint->serial);
    uni__pool_snapshot_drop(checkpoint->snapshot);
    checkpoint->snapshot = NULL;
    checkpoint->memory = NULL;
    if (!request)
        return;
    request->life = checkpoint->life;
    request->slot = checkpoint->slot;
    uni__group_post(pool->group, uni__pool_give_back, request);
}

/* ---- events ---- */

void uni__pool_tell(uni__pool *pool, uni__pool_event *event)
{
    pthread_mutex_lock(&pool->lock);
    if (event && pool->last)
        pool->last->next = event;
    else if (event)
        pool->first = event;
    if (event)
        pool->last = event;
    else
        pool->woken = true;
    pthread_cond_signal(&pool->more);
    pthread_mutex_unlock(&pool->lock);
}

void uni__pool_wake(uni__pool *pool)
{
    uni__pool_tell(pool, NULL);
}

int uni__pool_next(uni__pool *pool, double seconds, uni__pool_event **out)
{
    *out = NULL;
    uint64_t until = uni__monotonic_ns() + (uint64_t)(fmin(fmax(seconds, 0), 1e6) * 1e9);
    struct timespec deadline = { .tv_sec = (time_t)(until / 1000000000u),
                                 .tv_nsec = (long)(until % 1000000000u) };
    pthread_mutex_lock(&pool->lock);
    while (!pool->first && !pool->woken && seconds > 0)
        if (pthread_cond_timedwait(&pool->more, &pool->lock, &deadline) == ETIMEDOUT)
            break;
    uni__pool_event *event = pool->first;
    if (event && !(pool->first = event->next))
        pool->last = NULL;
    if (!event)
        pool->woken = false;
    pthread_mutex_unlock(&pool->lock);
    if (event)
        event->next = NULL;
    *out = event;
    return event != NULL;
}

void uni__pool_event_free(uni__pool_event *event)
{
    if (!event)
        return;
    uni__pool_snapshot_drop(event->snapshot);
    free(event->metrics);
    free(event->path);
    free(event->message);
    free(event);
}
