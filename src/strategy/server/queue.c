/*
 * queue.c - the coordinator's calls: queued, handed to workers that ask, and done when their result
 * has arrived. Runs on the coordinator's thread, inside its own calls.
 *
 * A call keeps its number forever; at most WINDOW are under way. When a worker rejoins after its
 * death, its calls are queued again under the same numbers, so a push that it had still made counts
 * once. A call that kills its worker every time is given up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/server/internal.h"

#define MAX_DEATHS 5

int uni__ps_open_queue(uni__ps *ps, uni_error *err)
{
    int workers = ps->cluster.workers;
    uni__queue *queue = ps->queue = calloc(1, sizeof *queue);
    if (!queue)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a coordinator");
    queue->lanes = uni__ps_lanes(ps);
    queue->first = calloc((size_t)queue->lanes, sizeof *queue->first);
    queue->links = calloc((size_t)workers, sizeof *queue->links);
    queue->heard = calloc((size_t)workers, sizeof *queue->heard);
    if (!queue->first || !queue->links || !queue->heard)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a coordinator");
    for (int i = 0; i < workers; i++)
        queue->links[i] = uni__server_board_link(&ps->board, 1 + i, -1);
    return 0;
}

static void cancel(uni__server_call *call)
{
    static const char sentence[] = "the coordinator was closed before this call was done";
    call->state = UNI__CALL_DONE;
    if (call->result)
        call->result(call->context, UNI_ECANCELED, sentence, sizeof sentence - 1);
}

void uni__ps_close_queue(uni__ps *ps)
{
    uni__queue *queue = ps->queue;
    if (!queue)
        return;
    for (size_t i = 0; i < UNI__PS_WINDOW; i++) {
        if (queue->calls[i].state != UNI__CALL_DONE)
            cancel(&queue->calls[i]);
        free(queue->calls[i].arguments);
    }
    free(queue->first);
    free(queue->links);
    free(queue->heard);
    free(queue);
    ps->queue = NULL;
}

static uni__server_call *call_of(uni__queue *queue, uint64_t id)
{
    return &queue->calls[id % UNI__PS_WINDOW];
}

/* ---- the end of a call ---- */

static void finish(uni__ps *ps, uni__server_call *call, int status, const void *data, size_t size)
{
    uni__queue *queue = ps->queue;
    call->state = UNI__CALL_DONE;
    while (queue->low < queue->next && call_of(queue, queue->low)->state == UNI__CALL_DONE)
        queue->low++;
    if (status < 0 && queue->error.code == 0)
        uni_error_set(&queue->error, status, "worker %d, call %llu: %.*s", call->worker,
                      (unsigned long long)call->id, (int)(size < 900 ? size : 900),
                      (const char *)data);
    if (call->result)
        call->result(call->context, status, data, size);
}

static void take_result(uni__ps *ps, int worker, const uni__ps_message *question,
                        const void *payload)
{
    uni__queue *queue = ps->queue;
    uni__server_call *call = call_of(queue, question->id);
    /* Another worker has done this call in the meantime, and it counted once, there. */
    if (call->id != question->id || call->state == UNI__CALL_DONE)
        return;
    call->worker = worker;
    finish(ps, call, question->status, payload, question->size);
}

bool uni__ps_worker_has_call(const uni__ps *ps, int worker)
{
    uni__queue *queue = ps->queue;
    for (uint64_t id = queue->low; id < queue->next; id++)
        if (call_of(queue, id)->state == UNI__CALL_RUNNING && call_of(queue, id)->worker == worker)
            return true;
    return false;
}

void uni__ps_worker_is_back(uni__ps *ps, int worker)
{
    uni__queue *queue = ps->queue;
    for (uint64_t id = queue->low; id < queue->next; id++) {
        uni__server_call *call = call_of(queue, id);
        if (call->state != UNI__CALL_RUNNING || call->worker != worker)
            continue;
        queue->rescheduled++;
        if (++call->deaths > MAX_DEATHS) {
            char sentence[160];
            int size = snprintf(sentence, sizeof sentence,
                                "this call ended its worker %d times; what does its step function "
                                "do there? (`unisono why` has the causes)",
                                call->deaths);
            finish(ps, call, UNI_EWORKER, sentence, (size_t)size);
            continue;
        }
        call->state = UNI__CALL_QUEUED;
        uint64_t *first = &queue->first[id % (uint64_t)queue->lanes];
        *first = id < *first ? id : *first;
    }
}

/* ---- handing out ---- */

static uni__server_call *pick(uni__queue *queue, int worker)
{
    int lane = queue->lanes > 1 ? worker : 0;
    uint64_t *first = &queue->first[lane];
    uint64_t lanes = (uint64_t)queue->lanes;
    if (*first < queue->low)
        *first = queue->low;
    *first += ((uint64_t)lane + lanes - *first % lanes) % lanes;
    for (; *first < queue->next; *first += lanes)
        if (call_of(queue, *first)->state == UNI__CALL_QUEUED)
            return call_of(queue, *first);
    return NULL;
}

static bool give(uni__ps *ps, int worker, const uni__ps_message *question)
{
    uni__queue *queue = ps->queue;
    uni__server_link *link = &queue->links[worker];
    uni__server_call *call = queue->ending ? NULL : pick(queue, worker);
    if (!call && !queue->ending && !(question->flags & UNI__PS_RUNS))
        return false; /* no call yet: the worker waits */
    uni__ps_message answer = { .status = queue->ending ? UNI_ECANCELED : UNI_EEND };
    if (call) {
        if (call->size > 0)
            memcpy(link->class_->answer_room(link), call->arguments, call->size);
        answer = (uni__ps_message){ .id = call->id,
                                    .number = call->function,
                                    .size = call->size,
                                    .carried = call->size,
                                    .flags = call->deaths > 0 ? UNI__PS_RETRY : 0 };
        call->state = UNI__CALL_RUNNING;
        call->worker = worker;
    }
    link->class_->answer(link, &answer);
    return true;
}

bool uni__ps_progress(uni__ps *ps)
{
    uni__queue *queue = ps->queue;
    bool moved = false;
    for (int i = 0; i < ps->cluster.workers; i++) {
        uni__server_link *link = &queue->links[i];
        uni__ps_message question;
        const void *payload;
        if (!link->class_->asked(link, &question, &payload))
            continue;
        if ((question.flags & UNI__PS_HAS_RESULT) && queue->heard[i] != link->seen) {
            take_result(ps, i, &question, payload);
            queue->heard[i] = link->seen;
            moved = true;
        }
        uint32_t epoch = atomic_load(&ps->board.header->members[1 + i].epoch);
        if (question.epoch != epoch || question.phase != ps->phase) {
            link->class_->answer(link, &(uni__ps_message){ .status = UNI_ECANCELED });
            moved = true;
        } else {
            moved |= give(ps, i, &question);
        }
    }
    return moved;
}

/* ---- scheduling and waiting ---- */

static int take_error(uni__queue *queue, uni_error *err)
{
    int code = queue->error.code;
    if (code < 0 && err)
        *err = queue->error;
    queue->error = (uni_error){ 0 };
    return code;
}

/* Waits until at most `left` calls are under way. */
static int wait_for(uni__ps *ps, uint64_t left, uni_error *err)
{
    uni__queue *queue = ps->queue;
    for (;;) {
        uint32_t seen = uni__bell_look(&ps->board);
        bool moved = uni__ps_progress(ps);
        if (queue->error.code < 0)
            return take_error(queue, err);
        if (queue->next - queue->low <= left)
            return 0;
        if (!moved)
            UNI_TRY(uni__ps_idle(ps, seen, err));
    }
}

/* The caller has made sure that there is room. */
static int enqueue(uni__ps *ps, uint32_t function, const void *arguments, size_t size,
                   uni__server_call_result result, void *context, uni_error *err)
{
    uni__queue *queue = ps->queue;
    uni__server_call *call = call_of(queue, queue->next);
    if (size > call->capacity) {
        void *grown = realloc(call->arguments, size);
        if (!grown)
            return uni_error_set(err, UNI_ENOMEM, "no memory to schedule a step");
        call->arguments = grown;
        call->capacity = size;
    }
    if (size > 0)
        memcpy(call->arguments, arguments, size);
    call->size = size;
    call->id = queue->next;
    call->function = function;
    call->deaths = 0;
    call->result = result;
    call->context = context;
    call->state = UNI__CALL_QUEUED;
    queue->next++;
    uni__ps_progress(ps);
    return 0;
}

int uni__ps_schedule(uni__ps *ps, uint32_t function, const void *arguments, size_t size,
                     uni__server_call_result result, void *context, uni_error *err)
{
    if (size > UNI__PS_VALUE_MAX)
        return uni_error_set(err, UNI_ELIMIT,
                             "the arguments of a step function have %zu bytes, more than the %u "
                             "that are carried: let the workers read the data themselves",
                             size, UNI__PS_VALUE_MAX);
    UNI_TRY(wait_for(ps, UNI__PS_WINDOW - 1, err));
    return enqueue(ps, function, arguments, size, result, context, err);
}

int uni__ps_complete_step(uni__ps *ps, uni_error *err)
{
    uni__queue *queue = ps->queue;
    uint64_t lanes = (uint64_t)queue->lanes, begin = queue->next / lanes * lanes;
    if (queue->low < begin || queue->low == queue->next)
        return 0; /* other work is left, or none at all */
    while (queue->next % lanes)
        UNI_TRY(enqueue(ps, 0, NULL, 0, NULL, NULL, err));
    return 0;
}

int uni__ps_join(uni__ps *ps, uint64_t left, uni_error *err)
{
    return wait_for(ps, left, err);
}

/* ---- the end of a phase ---- */

/* Withdraws whole steps from the end that no worker has begun. Their numbers are reused, so that
 * the servers see no gap. */
static void take_back(uni__queue *queue)
{
    uint64_t lanes = (uint64_t)queue->lanes;
    while (queue->next > queue->low) {
        uint64_t first = (queue->next - 1) / lanes * lanes;
        for (uint64_t id = first; id < queue->next; id++)
            if (call_of(queue, id)->state != UNI__CALL_QUEUED || call_of(queue, id)->deaths > 0)
                return;
        while (queue->next > first)
            cancel(call_of(queue, --queue->next));
    }
}

/* Waits until at most `left` calls are under way, ignoring their results. False: no member is left
 * that could do them. */
static bool outlast(uni__ps *ps, uint64_t left)
{
    uni__queue *queue = ps->queue;
    for (;;) {
        uint32_t seen = uni__bell_look(&ps->board);
        bool moved = uni__ps_progress(ps);
        queue->error = (uni_error){ 0 };
        if (queue->next - queue->low <= left)
            return true;
        if (!moved && uni__ps_idle(ps, seen, NULL) < 0)
            return false;
    }
}

/* Schedules the parts of a step that are missing because another call had failed: copies of the
 * part before them, or empty ones for a coordinator's step. */
static bool fill_step(uni__ps *ps)
{
    uni__queue *queue = ps->queue;
    while (queue->next % (uint64_t)queue->lanes) {
        if (!outlast(ps, UNI__PS_WINDOW - 1))
            return false;
        const uni__server_call *last = call_of(queue, queue->next - 1);
        size_t size = last->function == 0 ? last->size : 0;
        /* Errors of other calls do not matter here. */
        if (uni__ps_schedule(ps, 0, last->arguments, size, NULL, NULL, NULL) == UNI_ENOMEM)
            return false;
    }
    return true;
}

void uni__ps_end_calls(uni__ps *ps)
{
    uni__queue *queue = ps->queue;
    take_back(queue);
    if (!fill_step(ps) || !outlast(ps, 0))
        for (; queue->low < queue->next; queue->low++)
            if (call_of(queue, queue->low)->state != UNI__CALL_DONE)
                cancel(call_of(queue, queue->low));
}
