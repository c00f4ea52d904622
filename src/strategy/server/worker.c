/*
 * worker.c - a worker's exchange with the coordinator: deliver a result, get the next call. Called
 * on the worker's thread.
 *
 * The worker asks for the next call before the current one runs, so that the answer is there when
 * it is done. Only one question is open at a time: when the answer to the early one is "nothing
 * yet", the result goes with the next question.
 */
#include <stdlib.h>
#include <string.h>

#include "strategy/server/internal.h"

static void ask_next(uni__ps *ps, bool runs)
{
    uni__worker *worker = &ps->worker;
    uni__server_link *link = &worker->link;
    uni__ps_message message = { .kind = UNI__PS_NEXT,
                                .epoch = ps->epoch,
                                .phase = ps->phase,
                                .flags = runs ? UNI__PS_RUNS : 0 };
    if (worker->has_result) {
        message.flags |= UNI__PS_HAS_RESULT;
        message.id = worker->result_id;
        message.status = worker->status;
        message.size = message.carried = worker->result_size;
        memcpy(link->class_->room(link), worker->result, worker->result_size);
        worker->has_result = false;
    }
    link->class_->ask(link, &message);
    worker->outstanding = true;
}

/* 1: a call, 0: over, UNI_EEND: nothing yet. */
static int take_answer(uni__ps *ps, uni__work *out, uni_error *err)
{
    uni__worker *worker = &ps->worker;
    uni__server_link *link = &worker->link;
    uni__ps_message answer;
    const void *payload;
    for (bool first = true;; first = false) {
        uint32_t seen = uni__bell_look(&ps->board);
        if (link->class_->answered(link, &answer, &payload))
            break;
        worker->waited |= !first;
        int status = uni__ps_idle(ps, seen, err);
        if (status == UNI_ECANCELED && uni__ps_phase_over(ps))
            return 0;
        UNI_TRY(status);
    }
    worker->outstanding = false;
    if (answer.status == UNI_EEND)
        return UNI_EEND;
    if (answer.status < 0) /* the phase or this incarnation is over */
        return uni__ps_check_life(ps, err);
    memcpy(worker->arguments, payload, answer.size);
    *out = (uni__work){ .id = answer.id,
                        .function = answer.number,
                        .flags = answer.flags,
                        .arguments = worker->arguments,
                        .size = answer.size };
    return 1;
}

static int wait_until_free(uni__ps *ps, uni_error *err)
{
    uni__server_link *link = &ps->worker.link;
    for (;;) {
        uint32_t seen = uni__bell_look(&ps->board);
        if (link->class_->free_to_ask(link))
            return 0;
        UNI_TRY(uni__ps_idle(ps, seen, err));
    }
}

int uni__ps_next_work(uni__ps *ps, uni__work *out, uni_error *err)
{
    uni__worker *worker = &ps->worker;
    int status;
    worker->waited = false;
    if (!worker->arguments) {
        worker->arguments = malloc(UNI__PS_VALUE_MAX);
        worker->result = malloc(UNI__PS_VALUE_MAX);
        if (!worker->arguments || !worker->result)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a worker");
    }
    if (!worker->outstanding) {
        status = wait_until_free(ps, err);
        if (status == UNI_ECANCELED && uni__ps_phase_over(ps))
            return 0;
        UNI_TRY(status);
        ask_next(ps, false);
    }
    while ((status = take_answer(ps, out, err)) == UNI_EEND)
        ask_next(ps, false);
    if (status != 1)
        return status;
    ask_next(ps, true);
    worker->running = out->id;
    return 1;
}

int uni__ps_set_result(uni__ps *ps, int status, const void *data, size_t size, uni_error *err)
{
    uni__worker *worker = &ps->worker;
    if (size > UNI__PS_VALUE_MAX - sizeof(uint64_t))
        return uni_error_set(err, UNI_ELIMIT,
                             "a step function returned %zu bytes, more than the %u that a result "
                             "may have: return less, or write it to a file",
                             size, UNI__PS_VALUE_MAX);
    worker->status = status;
    worker->result_id = worker->running;
    worker->has_result = true;
    worker->result_size = size;
    if (size > 0)
        memcpy(worker->result, data, size);
    return 0;
}
