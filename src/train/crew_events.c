/*
 * crew_events.c - the controller's half of a crew: starting members, what they say, and how they
 * end. Controller thread.
 *
 * A member's order ends exactly once: by a return, an error, or the death of its process. Deaths of
 * idle members are not reported; the next order starts a new process.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/crew_internal.h"

/* ---- telling ---- */

static uni__crew_event *new_event(uni__crew *crew, int member, uni__crew_kind kind)
{
    uni__crew_event *event = calloc(1, sizeof *event);
    if (!event) {
        uni__warn("no memory to tell of member %d", member);
        return NULL;
    }
    event->kind = kind;
    event->member = member;
    if (member >= 0) {
        const uni__worker *worker = uni__group_worker(crew->group, member);
        event->serial = crew->members[member].serial;
        event->life = worker->life;
        event->pid = worker->pid;
    }
    event->slot = -1;
    return event;
}

static void tell_end(uni__crew *crew, int member, uni__crew_end how, int code, const char *message,
                     const uni_value *failure)
{
    uni__member *ended = &crew->members[member];
    if (!ended->busy)
        return;
    uni__crew_event *event = new_event(crew, member, UNI__CREW_ENDED);
    ended->busy = false;
    ended->kill_ns = 0;
    if (!event)
        return;
    event->end = how;
    event->error_code = code;
    event->exit_code = -1;
    event->message = message ? strdup(message) : NULL;
    event->failure = failure ? uni_value_copy(failure) : NULL;
    uni__crew_tell(crew, event);
}

/* ---- orders of the owner ---- */

uni_value *uni__crew_environment(uni__crew *crew, int member, const uni__crew_order *order)
{
    uni__world world = { .trainer = crew->trainer, .size = 1, .attempt = 1, .share = member };
    if (order) {
        world.attempt = order->attempt;
        world.dir = order->run_dir;
        world.staging_dir = order->staging_dir;
        world.checkpoint = order->checkpoint;
    }
    uni_value *all = uni__world_environment(&world, 0);
    int status = 0;
    for (size_t i = 0; order && i < uni_list_size(order->environment); i++)
        status |= uni_list_take(all, uni_value_copy(uni_list_get(order->environment, i)));
    if (status == 0)
        return all;
    uni_value_free(all);
    return NULL;
}

static int spawn(uni__crew *crew, uni__crew_request *request, uni_error *err)
{
    uni__member *member = &crew->members[request->member];
    uni_trainer *trainer = crew->trainer;
    if (!request->argv && !trainer->worker_argv)
        return uni_error_set(err, UNI_ESTATE, "there is no program to run functions in");
    if (!request->environment &&
        !(request->environment = uni__crew_environment(crew, request->member, NULL)))
        return uni_error_set(err, UNI_ENOMEM, "no memory for the environment of a worker");
    uni__spawn plan = {
        .rank = request->member,
        .runs_functions = !request->argv,
        .exe = request->argv ? request->exe : trainer->worker_exe,
        .argv = request->argv ? request->argv : trainer->worker_argv,
        .environment = request->environment,
        .cwd = trainer->options.working_directory,
        .log = request->log ? request->log : member->log,
        .address_space = (uint64_t)trainer->options.address_space_limit,
    };
    UNI_TRY(uni__group_spawn(crew->group, &plan, err));
    member->broken[0] = '\0';
    return 0;
}

void uni__crew_start(void *argument)
{
    uni__crew_request *request = argument;
    uni__crew *crew = request->crew;
    uni__member *member = &crew->members[request->member];
    uni_error err = { 0 };
    member->busy = true;
    member->serial = request->serial;
    member->kill_ns = 0;
    member->iteration = request->iteration;
    member->hands_in = false;
    uni__state_log_clear(&member->state_log);
    const uni__worker *worker = uni__group_worker(crew->group, request->member);
    bool warm = uni__worker_is_live(worker) && !worker->is_program;
    if (request->fresh && warm)
        uni__group_kill(crew->group, request->member, SIGKILL); /* its end is of an earlier life */
    int status = warm && !request->argv && !request->fresh ? 0 : spawn(crew, request, &err);
    if (status == 0)
        status = uni__group_send(crew->group, request->member, UNI__TO_WORKER_RUN, request->order,
                                 request->order_size, -1, &err);
    if (status < 0 && status != UNI_EPEER) /* one that has ended says so itself */
        tell_end(crew, request->member, UNI__CREW_NOT_STARTED, status, err.message, NULL);
    uni__crew_request_free(request);
}

static void stop_member(uni__crew *crew, int index)
{
    uni__member *member = &crew->members[index];
    uni__page_stop(uni__group_page(crew->group, index), 0);
    const uni__worker *worker = uni__group_worker(crew->group, index);
    if (worker->is_program && uni__worker_is_live(worker))
        uni__group_kill(crew->group, index, SIGTERM);
    if (!member->kill_ns)
        member->kill_ns =
            uni__monotonic_ns() + (uint64_t)(crew->trainer->options.grace_seconds * 1e9);
}

void uni__crew_let_go(void *argument)
{
    uni__crew_request *request = argument;
    uni__crew *crew = request->crew;
    uni__member *member = &crew->members[request->member];
    if (member->busy && member->serial == request->serial) {
        if (request->stop)
            stop_member(crew, request->member);
        uni__page_release(uni__group_page(crew->group, request->member), request->iteration);
    }
    uni__crew_request_free(request);
}

static void kill_member(uni__crew *crew, int index, const char *why)
{
    uni__member *member = &crew->members[index];
    if (!uni__worker_is_live(uni__group_worker(crew->group, index)))
        return;
    if (!member->broken[0])
        snprintf(member->broken, sizeof member->broken, "%s", why);
    uni__group_kill(crew->group, index, SIGKILL);
}

void uni__crew_give_back(void *argument)
{
    uni__crew_request *request = argument;
    uni__group *group = request->crew->group;
    uni__page *page = uni__group_page(group, request->member);
    if (uni__group_worker(group, request->member)->life == request->life && request->over)
        uni__page_checkpoint_over(page);
    else if (uni__group_worker(group, request->member)->life == request->life)
        uni__page_give_back(page, request->slot);
    uni__crew_request_free(request);
}

/* ---- what members say ---- */

/* A member is a world of one: its state is the whole file's. */
static void add_state(uni__crew_event *event, uni__state_section state)
{
    uni_error err = { 0 };
    if (uni__state_pack(&event->state, &event->state_size, &state, 1, &err) < 0)
        uni__warn("a checkpoint of a trial is kept without its state: %s", err.message);
}

static void tell_report(uni__crew *crew, int member, int64_t iteration, const void *metrics,
                        size_t size)
{
    uni__member *from = &crew->members[member];
    uni__crew_event *event = new_event(crew, member, UNI__CREW_REPORT);
    if (!event || !(event->metrics = malloc(size + 1))) {
        free(event);
        return;
    }
    if (from->hands_in)
        add_state(event, uni__state_log_at(&from->state_log, iteration));
    from->hands_in = false;
    memcpy(event->metrics, metrics, size);
    event->metrics_size = size;
    event->iteration = iteration;
    uni__crew_tell(crew, event);
}

static void tell_checkpoint(uni__crew *crew, int member, uni__handed *handed)
{
    uni__crew_event *event = new_event(crew, member, UNI__CREW_CHECKPOINT);
    if (!event)
        return;
    event->iteration = handed->iteration;
    event->alone = handed->alone;
    event->copy = handed->copy;
    if (handed->alone && handed->state.bytes)
        add_state(event, handed->state);
    event->path = handed->path ? strdup(handed->path) : NULL;
    event->slot = handed->slot;
    event->size = handed->size;
    event->region = uni__region_ref(handed->region);
    uni__crew_tell(crew, event);
}

static void take_checkpoint(uni__crew *crew, int member, const uint8_t *payload, size_t size)
{
    uni_error err = { 0 };
    uni__handed handed;
    if (uni__handed_read(&handed, crew->group, member, payload, size, &err) < 0) {
        kill_member(crew, member, err.message);
        return;
    }
    crew->members[member].hands_in |= !handed.alone;
    tell_checkpoint(crew, member, &handed);
    uni__handed_clear(&handed);
}

static void note_state(uni__crew *crew, int member, const uni__report_parts *report)
{
    uni__member *from = &crew->members[member];
    uni_error err = { 0 };
    if (report->state.size == 0)
        return;
    if (uni__state_log_add(&from->state_log, report->iteration, report->state.bytes,
                           report->state.size, &err) < 0)
        kill_member(crew, member, err.message);
    uni__state_log_passed(&from->state_log, report->iteration);
}

static void on_message(void *context, int member, int type, const uint8_t *payload, size_t size)
{
    uni__crew *crew = context;
    uni__member *from = &crew->members[member];
    uni_value *message = NULL;
    uni__report_parts report;
    if (!from->busy || type == UNI__SAYS_HELLO)
        return;
    if (type == UNI__SAYS_REPORT && uni__report_split(&report, payload, size, NULL) == 0) {
        from->iteration = report.iteration;
        note_state(crew, member, &report);
        tell_report(crew, member, report.iteration, report.metrics, report.metrics_size);
    } else if (type == UNI__SAYS_RETURN) {
        tell_end(crew, member, UNI__CREW_RETURNED, 0, NULL,
                 NULL); /* what it returned is not used */
    } else if (type == UNI__SAYS_CLOSED) {
        return; /* a program: its exit counts */
    } else if (type == UNI__SAYS_CHECKPOINT) {
        take_checkpoint(crew, member, payload, size);
    } else if (uni__msgpack_read(&message, payload, size, NULL) < 0) {
        kill_member(crew, member, "it sent a message that is damaged");
    } else if (type == UNI__SAYS_ERROR) {
        tell_end(crew, member, UNI__CREW_FAILED,
                 (int)uni_dict_get_int(message, "code", UNI_EFUNCTION),
                 uni_dict_get_string(message, "message", ""), uni_dict_get(message, "failure"));
    }
    uni_value_free(message);
}

static void on_line(void *context, int member, const char *text, size_t size)
{
    uni__crew *crew = context;
    uni__member *from = &crew->members[member];
    uni__line line;
    uni_error err = { 0 };
    void *bytes = NULL;
    size_t length = 0;
    if (!from->busy)
        return;
    if (uni__line_read(&line, text, size, &err) < 0)
        uni__warn("member %d wrote a report line that is left out: %s", member, err.message);
    if (line.metrics && uni__msgpack_write(&bytes, &length, line.metrics, NULL) == 0) {
        from->iteration++;
        if (line.path)
            tell_checkpoint(crew, member,
                            &(uni__handed){ .iteration = from->iteration,
                                            .path = line.path,
                                            .slot = -1,
                                            .copy = !line.staged });
        tell_report(crew, member, from->iteration, bytes, length);
    }
    free(bytes);
    uni__line_clear(&line);
}

/* ---- how they end ---- */

static void on_spawn_failed(void *context, int member, const char *sentence)
{
    tell_end(context, member, UNI__CREW_NOT_STARTED, UNI_EWORKER, sentence, NULL);
}

static void on_broken(void *context, int member, const char *sentence)
{
    kill_member(context, member, sentence);
}

static void on_exited(void *context, int member, const uni__exit *how)
{
    uni__crew *crew = context;
    uni__member *gone = &crew->members[member];
    char sentence[600];
    uni__cause cause = { 0 };
    bool is_program = uni__group_worker(crew->group, member)->is_program;
    if (!gone->busy)
        return;
    if (is_program && how->exit_code == 0) {
        tell_end(crew, member, UNI__CREW_RETURNED, 0, NULL, NULL);
        return;
    }
    uni__cause_of_exit(&cause, 0, how, !is_program, false);
    snprintf(sentence, sizeof sentence, "%.400s%s%.150s", cause.message,
             gone->broken[0] ? ": " : "", gone->broken);
    uni__cause_clear(&cause);
    uni__crew_event *event = new_event(crew, member, UNI__CREW_ENDED);
    gone->busy = false;
    if (!event)
        return;
    event->end = UNI__CREW_DIED;
    event->error_code = UNI_EWORKER;
    event->pid = how->pid;
    event->exit_code = how->exit_code;
    event->signal = how->signal;
    event->message = strdup(sentence);
    uni__crew_tell(crew, event);
}

static void on_silent(void *context, int member, double seconds)
{
    uni__crew *crew = context;
    if (seconds >= crew->trainer->options.silent_timeout && crew->members[member].busy)
        kill_member(crew, member, "it was silent for too long: frozen, or an overloaded machine");
}

static void on_agent_lost(void *context)
{
    uni__crew *crew = context;
    for (int i = 0; i < crew->size; i++)
        tell_end(crew, i, UNI__CREW_DIED, UNI_EWORKER,
                 "the process that looks after the workers (unisono-agent) was killed, and they "
                 "with it",
                 NULL);
}

static void on_tick(void *context)
{
    uni__crew *crew = context;
    const uni_trainer_options *asked = &crew->trainer->options;
    uint64_t now = uni__monotonic_ns();
    for (int i = 0; i < crew->size; i++) {
        uni__member *member = &crew->members[i];
        double seconds;
        if (!member->busy)
            continue;
        if (member->kill_ns && now >= member->kill_ns)
            kill_member(crew, i, "it did not end within the grace period");
        uni__worker_trouble trouble =
            uni__worker_look(uni__group_worker(crew->group, i), now, asked->hello_timeout,
                             asked->silent_timeout, &seconds);
        if (trouble == UNI__WORKER_STOPPED)
            kill_member(crew, i, "it was stopped by a signal (SIGSTOP?) and not continued");
        if (trouble == UNI__WORKER_NO_HELLO)
            kill_member(crew, i, "it did not connect: does its main begin with uni_main?");
    }
}

static void on_signalled(void *context, int number)
{
    uni__crew *crew = context;
    uni__crew_event *event = new_event(crew, -1, UNI__CREW_SIGNAL);
    if (!event)
        return;
    event->signal = number;
    uni__crew_tell(crew, event);
}

const uni__group_events uni__crew_group_events = {
    .spawn_failed = on_spawn_failed,
    .message = on_message,
    .broken = on_broken,
    .line = on_line,
    .exited = on_exited,
    .silent = on_silent,
    .agent_lost = on_agent_lost,
    .tick = on_tick,
    .signalled = on_signalled,
};
