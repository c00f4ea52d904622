/*
 * crew_events.c - the controller's half of a crew: starting members, what they say, and how they end. Controller thread.
 *
 * A member's order ends exactly once: by a return, an error, or the death of its process. Deaths of idle members are nobody's business; the next order
 * starts a new process.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/json.h"
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
        event->serial = crew->members[member].serial;
        event->life = crew->members[member].life;
        event->pid = atomic_load(&crew->members[member].pid);
    }
    event->slot = -1;
    return event;
}

static void tell_end(uni__crew *crew, int member, uni__crew_end how, int code, const char *message)
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
    uni__crew_tell(crew, event);
}

/* ---- orders of the owner ---- */

uni_value *uni__crew_environment(uni__crew *crew, int member, const uni__crew_order *order)
{
    uni_trainer *trainer = crew->trainer;
    uni__run bare = { .trainer = trainer, .num_workers = 1, .attempt = order ? order->attempt : 1 };
    if (order) {
        bare.dir = (char *)order->run_dir;
        bare.staging_dir = (char *)order->staging_dir;
        snprintf(bare.resume_path, sizeof bare.resume_path, "%s",
                 order->checkpoint ? order->checkpoint : "");
    }
    uni_value *all = uni__worker_environment(trainer, &bare, 0), *out = uni_value_list();
    uni_value *own =
        trainer->options.use_gpu ? uni__worker_environment(trainer, &bare, member) : NULL;
    static const char devices[] = "CUDA_VISIBLE_DEVICES=";
    int status = 0;
    for (size_t i = 0; i < uni_list_size(all); i++) {
        const char *pair = uni_value_as_string(uni_list_get(all, i), "");
        for (size_t n = 0; n < uni_list_size(own); n++) {
            const char *mine = uni_value_as_string(uni_list_get(own, n), "");
            if (strncmp(pair, devices, sizeof devices - 1) == 0 &&
                strncmp(mine, devices, sizeof devices - 1) == 0)
                pair = mine;
        }
        status |= uni_list_take(out, uni_value_string(pair));
    }
    for (size_t i = 0; order && i < uni_list_size(order->environment); i++)
        status |= uni_list_take(out, uni_value_copy(uni_list_get(order->environment, i)));
    if (!all || status < 0) {
        uni_value_free(out);
        out = NULL;
    }
    uni_value_free(all);
    uni_value_free(own);
    return out;
}

static void forget_snapshots(uni__member *member)
{
    for (int i = 0; i < UNI__SNAPSHOT_SLOTS; i++) {
        uni__crew_snapshot_drop(member->snapshots[i]);
        member->snapshots[i] = NULL;
    }
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
        .memory = (uint64_t)trainer->options.memory_per_worker,
    };
    forget_snapshots(member);
    UNI_TRY(uni__group_spawn(crew->group, &plan, err));
    member->live = true;
    member->hello = false;
    member->is_program = request->argv != NULL;
    member->life++;
    member->broken[0] = '\0';
    member->stopped_ns = 0;
    member->spawned_ns = uni__monotonic_ns();
    atomic_store(&member->pid, 0);
    return 0;
}

/* An idle worker begins like a new one; nobody else writes its page now. */
static void refresh_page(uni__page *page)
{
    if (!page)
        return;
    atomic_store(&page->stop_request, UNI__STOP_NONE);
    atomic_store(&page->stopping, 0);
    atomic_store(&page->stop_at_known, 0);
    atomic_store(&page->stop_at, 0);
    atomic_store(&page->stop_seen, 0);
    atomic_store(&page->loaded, 0);
    atomic_store(&page->released, 0);
    atomic_store(&page->iteration, 0);
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
    int status = 0;
    if (request->fresh && member->live && !member->is_program)
        uni__group_kill(crew->group, request->member, SIGKILL); /* its end is of an earlier life */
    if (!member->live || request->argv || member->is_program || request->fresh)
        status = spawn(crew, request, &err);
    else
        refresh_page(uni__group_page(crew->group, request->member));
    if (status == 0)
        status = uni__group_send(crew->group, request->member, UNI__TO_WORKER_RUN, request->order,
                                 request->order_size, -1, &err);
    if (status < 0 && status != UNI_EPEER) /* one that has ended says so itself */
        tell_end(crew, request->member, UNI__CREW_NOT_STARTED, status, err.message);
    uni__crew_request_free(request);
}

static void stop_member(uni__crew *crew, int index)
{
    uni__member *member = &crew->members[index];
    uni__page *page = uni__group_page(crew->group, index);
    if (page) {
        atomic_store(&page->stop_at, 0);
        atomic_store(&page->stopping, 1);
        atomic_store(&page->stop_at_known, 1);
        uni__futex_wake(&page->stop_at_known);
    }
    if (member->is_program && member->live)
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
    uni__page *page = uni__group_page(crew->group, request->member);
    if (member->busy && member->serial == request->serial) {
        if (request->stop)
            stop_member(crew, request->member);
        if (page) {
            atomic_store(&page->released, (uint32_t)request->iteration);
            uni__futex_wake(&page->released);
        }
    }
    uni__crew_request_free(request);
}

static void kill_member(uni__crew *crew, int index, const char *why)
{
    uni__member *member = &crew->members[index];
    if (!member->live)
        return;
    if (!member->broken[0])
        snprintf(member->broken, sizeof member->broken, "%s", why);
    uni__group_kill(crew->group, index, SIGKILL);
}

void uni__crew_give_back(void *argument)
{
    uni__crew_request *request = argument;
    uni__crew *crew = request->crew;
    uni__page *page = uni__group_page(crew->group, request->member);
    if (page && crew->members[request->member].life == request->life) {
        if (request->slot >= 0) {
            atomic_store(&page->slot_free[request->slot], 1);
            uni__futex_wake(&page->slot_free[request->slot]);
        }
        atomic_fetch_add(&page->checkpoints_done, 1);
        uni__futex_wake(&page->checkpoints_done);
    }
    uni__crew_request_free(request);
}

void uni__crew_count_over(void *argument)
{
    uni__crew_request *request = argument;
    uni__crew *crew = request->crew;
    uni__page *page = uni__group_page(crew->group, request->member);
    if (page && crew->members[request->member].life == request->life) {
        atomic_fetch_add(&page->checkpoints_over, 1);
        uni__futex_wake(&page->checkpoints_over);
    }
    uni__crew_request_free(request);
}

/* ---- what members say ---- */

static void say_broken(uni__crew *crew, int member, const char *what)
{
    char sentence[256];
    snprintf(sentence, sizeof sentence, "it sent something that is not understood: %s", what);
    kill_member(crew, member, sentence);
}

static void tell_report(uni__crew *crew, int member, int64_t iteration, const void *metrics,
                        size_t size)
{
    uni__crew_event *event = new_event(crew, member, UNI__CREW_REPORT);
    if (!event || !(event->metrics = malloc(size + 1))) {
        free(event);
        return;
    }
    memcpy(event->metrics, metrics, size);
    event->metrics_size = size;
    event->iteration = iteration;
    uni__crew_tell(crew, event);
}

static void tell_checkpoint(uni__crew *crew, int member, const uni_value *message)
{
    uni__member *from = &crew->members[member];
    uni__crew_event *event = new_event(crew, member, UNI__CREW_CHECKPOINT);
    const char *path = uni_dict_get_string(message, "path", NULL);
    int64_t slot = uni_dict_get_int(message, "slot", -1),
            size = uni_dict_get_int(message, "size", -1);
    if (!event)
        return;
    event->iteration = uni_dict_get_int(message, "iteration", 0);
    event->alone = uni_dict_get_bool(message, "alone", false);
    if (path) {
        event->path = strdup(path);
        uni__crew_tell(crew, event);
        return;
    }
    bool known = slot >= 0 && slot < UNI__SNAPSHOT_SLOTS && size > 0;
    /* Its descriptor was passed before this message was published. */
    if (known && (!from->snapshots[slot] || (size_t)size > from->snapshots[slot]->size))
        uni__group_pull(crew->group, member);
    if (!known || !from->snapshots[slot] || (size_t)size > from->snapshots[slot]->size) {
        uni__crew_event_free(event);
        say_broken(crew, member, "a checkpoint without its buffer");
        return;
    }
    event->slot = (int)slot;
    event->size = (size_t)size;
    event->snapshot = from->snapshots[slot];
    event->memory = event->snapshot->memory;
    atomic_fetch_add(&event->snapshot->references, 1);
    uni__crew_tell(crew, event);
}

static void on_message(void *context, int member, int type, const uint8_t *payload, size_t size)
{
    uni__crew *crew = context;
    uni__member *from = &crew->members[member];
    uni_value *message = NULL;
    int64_t iteration;
    if (type == UNI__SAYS_HELLO) {
        from->hello = true;
        return;
    }
    if (!from->busy)
        return;
    if (type == UNI__SAYS_REPORT && size >= sizeof iteration) {
        memcpy(&iteration, payload, sizeof iteration);
        from->iteration = iteration;
        tell_report(crew, member, iteration, payload + sizeof iteration, size - sizeof iteration);
    } else if (type == UNI__SAYS_RETURN) {
        tell_end(crew, member, UNI__CREW_RETURNED, 0, NULL); /* what it returned is nobody's */
    } else if (type == UNI__SAYS_CLOSED) {
        return; /* a program: its exit counts */
    } else if (uni_msgpack_read(&message, payload, size, NULL) < 0) {
        say_broken(crew, member, "bytes that are no message");
    } else if (type == UNI__SAYS_CHECKPOINT) {
        tell_checkpoint(crew, member, message);
    } else if (type == UNI__SAYS_ERROR) {
        tell_end(crew, member, UNI__CREW_FAILED,
                 (int)uni_dict_get_int(message, "code", UNI_EFUNCTION),
                 uni_dict_get_string(message, "message", ""));
    } else {
        say_broken(crew, member, "a message of an unknown kind");
    }
    uni_value_free(message);
}

static void on_channel(void *context, int member, uni__wire_frame *frame)
{
    uni__crew *crew = context;
    struct stat info;
    if (frame->type < 1 || frame->type > UNI__SNAPSHOT_SLOTS || frame->num_fds < 1)
        return; /* mail for ranks that a world of one has not */
    uni__crew_snapshot **slot = &crew->members[member].snapshots[frame->type - 1];
    int seals = fcntl(frame->fds[0], F_GET_SEALS);
    /* Only sealed memory: a worker that shortened it would make us fault. */
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(frame->fds[0], &info) < 0 ||
        info.st_size <= 0)
        return;
    uni__crew_snapshot *snapshot = calloc(1, sizeof *snapshot);
    void *memory = snapshot
                       ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, frame->fds[0], 0)
                       : MAP_FAILED;
    if (memory == MAP_FAILED) {
        free(snapshot);
        return; /* the checkpoint that needs it says so */
    }
    *snapshot = (uni__crew_snapshot){ .memory = memory, .size = (size_t)info.st_size };
    atomic_store(&snapshot->references, 1);
    uni__crew_snapshot_drop(*slot);
    *slot = snapshot;
}

/* A line of a program that does not link the library: {"loss": 0.3} or {"metrics": {...}, "checkpoint": "dir"}. */
static void on_line(void *context, int member, const char *line, size_t size)
{
    uni__crew *crew = context;
    uni__member *from = &crew->members[member];
    uni_value *parsed = NULL, *metrics = NULL;
    void *bytes = NULL;
    size_t length = 0;
    if (!line || !from->busy || uni__json_read_python(&parsed, line, size, NULL) < 0 ||
        uni_value_type_of(parsed) != UNI_TYPE_DICT) {
        uni__warn("member %d wrote a report line that is left out: it is not a JSON object such as "
                  "{\"loss\": 0.3}",
                  member);
        uni_value_free(parsed);
        return;
    }
    const uni_value *given = uni_dict_get(parsed, "metrics");
    const char *directory = uni_dict_get_string(parsed, "staged", NULL);
    if (!directory && given)
        directory = uni_dict_get_string(parsed, "checkpoint", NULL);
    metrics = uni_value_copy(uni_value_type_of(given) == UNI_TYPE_DICT ? given : parsed);
    if (given && uni__restore_nonfinite(metrics, uni_dict_get(parsed, "nonfinite")) < 0)
        uni__warn("no memory for a report");
    int64_t iteration = ++from->iteration;
    if (directory) {
        uni__crew_event *event = new_event(crew, member, UNI__CREW_CHECKPOINT);
        if (event) {
            event->path = strdup(directory);
            event->copy = !uni_dict_get(parsed, "staged");
            event->iteration = iteration;
            uni__crew_tell(crew, event);
        }
    }
    if (uni_msgpack_write(&bytes, &length, metrics, NULL) == 0)
        tell_report(crew, member, iteration, bytes, length);
    free(bytes);
    uni_value_free(metrics);
    uni_value_free(parsed);
}

/* ---- how they end ---- */

static void on_spawned(void *context, int member, int pid)
{
    uni__crew *crew = context;
    atomic_store(&crew->members[member].pid, pid);
}

static void on_spawn_failed(void *context, int member, const char *sentence)
{
    uni__crew *crew = context;
    crew->members[member].live = false;
    tell_end(crew, member, UNI__CREW_NOT_STARTED, UNI_EWORKER, sentence);
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
    gone->live = false;
    atomic_store(&gone->pid, 0);
    forget_snapshots(gone);
    if (!gone->busy)
        return;
    if (gone->is_program && how->exit_code == 0) {
        tell_end(crew, member, UNI__CREW_RETURNED, 0, NULL);
        return;
    }
    uni__cause_of_exit(&cause, 0, how, !gone->is_program, false);
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

static void on_stopped(void *context, int member, bool stopped)
{
    uni__crew *crew = context;
    crew->members[member].stopped_ns = stopped ? uni__monotonic_ns() : 0;
}

static void on_silent(void *context, int member, double seconds)
{
    uni__crew *crew = context;
    if (seconds >= crew->trainer->options.silent_timeout && crew->members[member].busy)
        kill_member(crew, member, "it was silent for too long: frozen, or an overloaded machine");
}

static void on_all_dead(void *context, int left) {}

static void on_agent_lost(void *context)
{
    uni__crew *crew = context;
    for (int i = 0; i < crew->size; i++) {
        crew->members[i].live = false;
        atomic_store(&crew->members[i].pid, 0);
        forget_snapshots(&crew->members[i]);
        tell_end(crew, i, UNI__CREW_DIED, UNI_EWORKER,
                 "the process that looks after the workers (unisono-agent) was killed, and they "
                 "with it");
    }
}

static void on_drained(void *context) {}

static void on_tick(void *context)
{
    uni__crew *crew = context;
    const uni_trainer_options *asked = &crew->trainer->options;
    uint64_t now = uni__monotonic_ns();
    for (int i = 0; i < crew->size; i++) {
        uni__member *member = &crew->members[i];
        if (!member->live || !member->busy)
            continue;
        if (member->kill_ns && now >= member->kill_ns)
            kill_member(crew, i, "it did not end within the grace period");
        if (member->stopped_ns &&
            (double)(now - member->stopped_ns) * 1e-9 >= asked->silent_timeout)
            kill_member(crew, i, "it was stopped by a signal (SIGSTOP?) and not continued");
        if (!member->is_program && !member->hello &&
            (double)(now - member->spawned_ns) * 1e-9 >= asked->hello_timeout)
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
    .spawned = on_spawned,
    .spawn_failed = on_spawn_failed,
    .message = on_message,
    .channel = on_channel,
    .broken = on_broken,
    .line = on_line,
    .exited = on_exited,
    .stopped = on_stopped,
    .silent = on_silent,
    .all_dead = on_all_dead,
    .agent_lost = on_agent_lost,
    .drained = on_drained,
    .tick = on_tick,
    .signalled = on_signalled,
};
