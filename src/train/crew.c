/*
 * crew.c - the owner's half of a crew: orders out, events in. The controller's half is
 * crew_events.c; the interface is crew.h.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/shared.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "train/crew_internal.h"

void uni__crew_request_free(uni__crew_request *request)
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

static uni__crew_request *new_request(uni__crew *crew, int member, uint64_t serial)
{
    uni__crew_request *request = calloc(1, sizeof *request);
    if (request) {
        request->crew = crew;
        request->member = member;
        request->serial = serial;
    }
    return request;
}

/* ---- life ---- */

static void start_signals(void *argument)
{
    uni__crew *crew = argument;
    uni_error err = { 0 };
    if (uni__group_handle_signals(crew->group, true, &err) < 0)
        uni__warn("%s", err.message);
}

static int make_members(uni__crew *crew, const char *logs, uni_error *err)
{
    UNI_TRY(uni__make_dirs(logs, 0700, err));
    crew->members = calloc((size_t)crew->size, sizeof *crew->members);
    for (int i = 0; crew->members && i < crew->size; i++)
        if (asprintf(&crew->members[i].log, "%s/member_%d.log", logs, i) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    return crew->members ? 0
                         : uni_error_set(err, UNI_ENOMEM, "no memory for %d members", crew->size);
}

int uni__crew_new(uni__crew **out, const uni_trainer_options *options, const char *logs,
                  uni_error *err)
{
    int status;
    *out = NULL;
    uni__crew *crew = calloc(1, sizeof *crew);
    if (!crew)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a crew");
    pthread_mutex_init(&crew->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&crew->more, &attributes);
    pthread_condattr_destroy(&attributes);
    UNI_TRY_GOTO(uni_trainer_new(&crew->trainer, options, err), fail);
    crew->size = crew->trainer->options.num_workers;
    UNI_TRY_GOTO(make_members(crew, logs, err), fail);
    UNI_TRY_GOTO(uni__group_new(&crew->group, crew->size, -1, &uni__crew_group_events, crew, err),
                 fail);
    if (options->handle_signals)
        uni__group_call(crew->group, start_signals, crew);
    *out = crew;
    return 0;
fail:
    uni__crew_free(crew);
    return status;
}

void uni__crew_free(uni__crew *crew)
{
    if (!crew)
        return;
    if (crew->group) {
        uni__group_dismiss(crew->group, crew->trainer->options.grace_seconds);
        uni__group_free(crew->group);
    }
    for (uni__crew_event *event = crew->first; event;) {
        uni__crew_event *next = event->next;
        uni__crew_event_free(event);
        event = next;
    }
    for (int i = 0; crew->members && i < crew->size; i++) {
        uni__state_log_clear(&crew->members[i].state_log);
        free(crew->members[i].log);
    }
    free(crew->members);
    uni_trainer_free(crew->trainer);
    pthread_cond_destroy(&crew->more);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

const char *uni__crew_log(const uni__crew *crew, int member)
{
    return crew->members[member].log;
}

/* ---- orders ---- */

/* The state of the checkpoint that the order begins with. */
static int add_state(uni_value *order, const char *path)
{
    uni_checkpoint *checkpoint = NULL;
    uni_value *ranks = NULL;
    uni_error err = { 0 };
    if (!path || !path[0] || uni_checkpoint_open(&checkpoint, path, NULL) < 0)
        return 0; /* the train function says it when it loads it */
    if (uni__checkpoint_read_state(&ranks, checkpoint, &err) < 0)
        uni__warn("a trial goes on without the state of its checkpoint: %s", err.message);
    uni_checkpoint_close(checkpoint);
    uni_value *data_states = ranks ? uni__state_merge_datasets(ranks) : NULL;
    int status = uni__state_add_to_order(order, ranks, data_states, 0, 1);
    uni_value_free(data_states);
    uni_value_free(ranks);
    return status;
}

static uni_value *text_of(const char *text)
{
    return uni_value_string(text ? text : "");
}

/* The keys are read in session_setup.c. */
static uni_value *worker_order(const uni__crew_order *asked)
{
    uni_value *order = UNI__DICT(
        { "function", text_of(asked->function) }, { "name", text_of(asked->name) },
        { "storage", text_of(asked->storage) }, { "run_dir", text_of(asked->run_dir) },
        { "checkpoint", text_of(asked->checkpoint) },
        { "staging_dir", text_of(asked->staging_dir) }, { "rank", uni_value_int(0) },
        { "world_size", uni_value_int(1) }, { "local_rank", uni_value_int(0) },
        { "local_world_size", uni_value_int(1) }, { "node_rank", uni_value_int(0) },
        { "attempt", uni_value_int(asked->attempt) },
        { "iteration", uni_value_int(asked->iteration) },
        { "config", asked->config ? uni_value_copy(asked->config) : uni_value_dict() },
        { "lockstep", uni_value_bool(asked->lockstep) }, { "trial", uni_value_bool(true) });
    int status = add_state(order, asked->checkpoint);
    if (asked->attachment)
        status |= uni_dict_take(order, "attachment", uni_value_copy(asked->attachment));
    if (status == 0)
        return order;
    uni_value_free(order);
    return NULL;
}

static int add_program(uni__crew *crew, uni__crew_request *request, const uni__crew_order *asked,
                       uni_error *err)
{
    const char *name = uni_value_as_string(uni_list_get(asked->program, 0), "");
    UNI_TRY(uni__find_program(name, &request->exe, err));
    request->argv = uni_value_copy(asked->program);
    request->environment = uni__crew_environment(crew, request->member, asked);
    request->log = strdup(asked->log);
    if (!request->argv || !request->environment || !request->log)
        return uni_error_set(err, UNI_ENOMEM, "no memory to start %s", name);
    return 0;
}

int uni__crew_run(uni__crew *crew, int member, const uni__crew_order *asked, uint64_t *serial,
                  uni_error *err)
{
    uni__crew_request *request = new_request(crew, member, ++crew->next_serial);
    uni_value *order = worker_order(asked);
    int status = request && order ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for an order");
    if (status == 0)
        status = uni__msgpack_write(&request->order, &request->order_size, order, err);
    if (status == 0 && asked->program)
        status = add_program(crew, request, asked, err);
    uni_value_free(order);
    if (status < 0) {
        uni__crew_request_free(request);
        return status;
    }
    request->iteration = asked->iteration;
    request->fresh = asked->fresh;
    *serial = request->serial;
    uni__group_post(crew->group, uni__crew_start, request);
    return 0;
}

void uni__crew_release(uni__crew *crew, int member, uint64_t serial, int64_t iteration, bool stop)
{
    uni__crew_request *request = new_request(crew, member, serial);
    if (!request)
        return;
    request->iteration = iteration;
    request->stop = stop;
    uni__group_post(crew->group, uni__crew_let_go, request);
}

static void give_back(uni__crew *crew, const uni__crew_event *checkpoint, bool over)
{
    uni__crew_request *request = new_request(crew, checkpoint->member, checkpoint->serial);
    if (!request)
        return;
    request->life = checkpoint->life;
    request->slot = checkpoint->slot;
    request->over = over;
    uni__group_post(crew->group, uni__crew_give_back, request);
}

void uni__crew_taken(uni__crew *crew, uni__crew_event *checkpoint)
{
    uni__region_unref(checkpoint->region);
    checkpoint->region = NULL;
    give_back(crew, checkpoint, false);
}

void uni__crew_over(uni__crew *crew, const uni__crew_event *checkpoint)
{
    give_back(crew, checkpoint, true);
}

/* ---- events ---- */

void uni__crew_tell(uni__crew *crew, uni__crew_event *event)
{
    pthread_mutex_lock(&crew->lock);
    if (event && crew->last)
        crew->last->next = event;
    else if (event)
        crew->first = event;
    if (event)
        crew->last = event;
    else
        crew->woken = true;
    pthread_cond_signal(&crew->more);
    pthread_mutex_unlock(&crew->lock);
}

void uni__crew_wake(uni__crew *crew)
{
    uni__crew_tell(crew, NULL);
}

void uni__crew_inject(uni__crew *crew, uni__crew_event *event)
{
    uni__crew_tell(crew, event);
}

int uni__crew_next(uni__crew *crew, double seconds, uni__crew_event **out)
{
    *out = NULL;
    uint64_t until = uni__monotonic_ns() + (uint64_t)(fmin(fmax(seconds, 0), 1e6) * 1e9);
    struct timespec deadline = { .tv_sec = (time_t)(until / 1000000000u),
                                 .tv_nsec = (long)(until % 1000000000u) };
    pthread_mutex_lock(&crew->lock);
    while (!crew->first && !crew->woken && seconds > 0)
        if (pthread_cond_timedwait(&crew->more, &crew->lock, &deadline) == ETIMEDOUT)
            break;
    uni__crew_event *event = crew->first;
    if (event && !(crew->first = event->next))
        crew->last = NULL;
    if (!event)
        crew->woken = false;
    pthread_mutex_unlock(&crew->lock);
    if (event)
        event->next = NULL;
    *out = event;
    return event != NULL;
}

void uni__crew_event_free(uni__crew_event *event)
{
    if (!event)
        return;
    uni__region_unref(event->region);
    free(event->metrics);
    free(event->path);
    free(event->best);
    free(event->state);
    free(event->message);
    uni_value_free(event->failure);
    free(event);
}
