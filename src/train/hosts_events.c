/*
 * hosts_events.c - what the group tells of hosts, and what that means for the run. Controller
 * thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/stage.h"
#include "group/remote.h"
#include "train/hosts_internal.h"

#define TAIL_BYTES 1500

static uni__run *run_of(void *context)
{
    return ((uni_trainer *)context)->run;
}

/* ---- all are there ---- */

void uni__hosts_remove_tokens(uni__run *run)
{
    uni__hosts *hosts = run->trainer->hosts;
    char path[4300];
    for (int r = 0; hosts->token_path[0] && r < run->num_workers; r++) {
        snprintf(path, sizeof path, "%s.%d", hosts->token_path, r);
        unlink(path);
    }
    if (hosts->token_path[0])
        unlink(hosts->token_path);
    for (int r = 0; hosts->join_path[0] && r < run->num_workers; r++) {
        snprintf(path, sizeof path, "%s.%d", hosts->join_path, r);
        unlink(path);
    }
    if (hosts->join_path[0])
        unlink(hosts->join_path);
    hosts->token_path[0] = hosts->join_path[0] = '\0';
}

static bool starts_host(uni__run *run, int rank, uni__rank_place *place)
{
    return uni__group_place(run->group, rank, place) && place->local_rank == 0;
}

/* "a (10.0.0.1, 2 ranks), b (10.0.0.2, 2 ranks; no shared storage)"; how many. */
static int say_hosts(uni__run *run)
{
    uni__text text = { 0 };
    uni__rank_place place, last = { 0 };
    int nodes = 0;
    uni_value *names = uni_value_list();
    double ms = (double)(uni__monotonic_ns() - run->attempt.begun_ns) * 1e-6;
    for (int r = 0; r < run->num_workers; r++)
        if (starts_host(run, r, &place)) {
            uni__text_add_format(&text, "%s%s (%s, %d rank%s%s)", nodes++ ? ", " : "", place.host,
                                 place.address, place.local_size, place.local_size == 1 ? "" : "s",
                                 place.shares_storage ? "" : "; no shared storage");
            if (uni_list_take(names, uni_value_string(place.host)) < 0)
                break;
            last = place;
        }
    uni__run_note(run, "placed",
                  UNI__DICT({ "ms", uni_value_float(ms) }, { "hosts", names },
                            { "address", uni_value_string(last.reached ? last.reached : "") }),
                  false);
    uni__run_tell(run, UNI_EVENT_WORKERS, -1, "%d host%s connected to %s%s in %.0f ms: %s", nodes,
                  nodes == 1 ? "" : "s", last.reached ? last.reached : "?",
                  run->trainer->hosts->seal ? " (sealed)" : " (readable: --no-seal)", ms,
                  text.data ? text.data : "");
    uni__text_free(&text);
    return nodes;
}

typedef struct giving {
    uni__run *run;
    int rank;
} giving;

static int give(void *context, const char *relative, const char *full, uint64_t size,
                uni_error *err)
{
    giving *to = context;
    char path[4096];
    snprintf(path, sizeof path, "resume/%.4000s", relative);
    return uni__group_give_file(to->run->group, to->rank, path, full, err);
}

/* Hosts that do not see the storage get the checkpoint to go on from. */
static int give_checkpoints(uni__run *run, uni_error *err)
{
    uni__rank_place place;
    for (int r = 0; r < run->num_workers && run->attempt.start.path[0]; r++)
        if (starts_host(run, r, &place) && !place.shares_storage)
            UNI_TRY(uni__walk_files(run->attempt.start.path, give, &(giving){ run, r }, err));
    return 0;
}

/* What the workers of each host reserve, against what it has. */
static int check_memory(uni__run *run, uni_error *err)
{
    const double gib = 1024.0 * 1024 * 1024;
    double each = run->trainer->options.memory_per_worker;
    uni__rank_place place;
    for (int r = 0; r < run->num_workers && each > 0; r++)
        if (uni__group_place(run->group, r, &place) && place.memory > 0 &&
            each * place.local_size > place.memory)
            return uni_error_set(
                err, UNI_ERESOURCE,
                "%d workers with %.1f GiB each need %.1f GiB, but host %s has %.1f "
                "GiB: start fewer there, or reserve less with memory_per_worker (--memory)",
                place.local_size, each / gib, each * place.local_size / gib, place.host,
                place.memory / gib);
    return 0;
}

int uni__hosts_prepare(uni__run *run, int first_rank, uni_error *err)
{
    uni__rank_place place;
    uni__hosts_remove_tokens(run);
    if (!uni__group_place(run->group, first_rank, &place))
        return uni_error_set(err, UNI_EPEER, "its connection is gone");
    if (!place.ucx)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "it does not have libunisono-ucx.so, over which the others train");
    UNI_TRY(check_memory(run, err));
    UNI_TRY(uni__hosts_check_program(run, err));
    if (run->attempt.start.path[0] && !place.shares_storage)
        UNI_TRY(uni__walk_files(run->attempt.start.path, give, &(giving){ run, first_rank }, err));
    return 0;
}

void uni__hosts_placed(void *context)
{
    uni__run *run = run_of(context);
    uni_error err = { 0 };
    int status = 0;
    if (!run || run->state != UNI__RUN_RUNNING)
        return;
    uni__hosts_remove_tokens(run);
    run->trainer->hosts->was_placed = true;
    run->trainer->hosts->failed_launches = 0;
    int nodes = say_hosts(run);
    status = uni__hosts_choose_transport(run, &err);
    if (status == 0) {
        uni__hosts_say_readable(run, nodes);
        status = check_memory(run, &err);
    }
    if (status == 0)
        status = uni__hosts_check_program(run, &err);
    if (status == 0)
        status = give_checkpoints(run, &err);
    if (status == 0)
        status = uni__hosts_seat(run, &err);
    for (int r = 0; r < run->num_workers && status == 0; r++)
        status = run->ranks[r].away ? uni__results_writer_rank_ended(run->writer, r, &err)
                                    : uni__attempt_start_rank(run, r, &err);
    if (status < 0)
        uni__run_fatal(run, UNI__CAUSE_LAUNCH, &err);
    uni__run_describe(run, "running");
}

/* ---- what goes wrong ---- */

static void tail_of_launcher(uni__run *run, char *out, size_t size)
{
    char *path = uni__path_join(run->places.logs_dir, "launcher.log", NULL), *text = NULL;
    size_t length = 0;
    out[0] = '\0';
    if (path && uni__read_file(&text, &length, path, 1u << 20, NULL) == 0 && length > 0)
        snprintf(out, size, "%s", text + (length > TAIL_BYTES ? length - TAIL_BYTES : 0));
    free(text);
    free(path);
}

/* The rest of the line after a word of the launcher's, or false. */
static bool line_after(const char *text, const char *word, char *out, size_t size)
{
    const char *at = strstr(text, word);
    if (!at)
        return false;
    at += strlen(word);
    at += strspn(at, " ");
    snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
    return true;
}

/* What the launcher over ssh says itself: hosts' output comes behind their names. */
static bool ssh_says(const char *log, char *out, size_t size)
{
    static const char word[] = "unisono-ssh: ";
    const char *at = strstr(log, word);
    while (at && at != log && at[-1] != '\n')
        at = strstr(at + 1, word);
    return at && line_after(at, word, out, size);
}

/* What its log says, for those who do not read it. True when another try would end in the same
 * way. */
static bool explain_launcher(const char *log, char *out, size_t size)
{
    char host[256], program[500];
    out[0] = '\0';
    if (strstr(log, "unable to launch") && line_after(log, "Node:", host, sizeof host) &&
        line_after(log, "Executable:", program, sizeof program)) {
        snprintf(out, size,
                 "; host %.100s cannot execute %.300s: unisono must be there at the same path",
                 host, program);
        return true;
    }
    if (ssh_says(log, program, sizeof program)) {
        snprintf(out, size, "; %s", program);
        return strstr(program, "cannot execute") != NULL;
    }
    if (strstr(log, "OUT-OF-RESOURCE") || strstr(log, "No space left on device"))
        snprintf(out, size, "; the temporary directory (TMPDIR) of a host is full");
    else if (line_after(log, "ssh: ", program, sizeof program))
        snprintf(out, size, "; ssh: %s", program);
    return false;
}

static void leave_out(uni__run *run, const char *name)
{
    uni__hosts *hosts = run->trainer->hosts;
    for (int i = 0; i < hosts->num_hosts; i++) {
        if (strcmp(hosts->list[i].name, name) != 0)
            continue;
        if (hosts->list[i].lost)
            return; /* said already */
        hosts->list[i].lost = true;
        int room = uni__hosts_room(run->trainer);
        if (room < hosts->min_workers) {
            hosts->list[i].lost = false; /* it may come back: the next launch will tell */
            return;
        }
        uni__run_tell(run, UNI_EVENT_WARNING, -1,
                      "host %s is left out from now on; %d worker%s on the others", name, room,
                      room == 1 ? "" : "s");
    }
}

/* Hosts that this run had lost before it was resumed, and that seem to be away still. */
static bool leave_out_again(uni__run *run)
{
    uni__hosts *hosts = run->trainer->hosts;
    bool some = false;
    for (int i = 0; i < hosts->num_hosts; i++)
        if (hosts->list[i].was_lost && !hosts->list[i].lost) {
            leave_out(run, hosts->list[i].name);
            some |= hosts->list[i].lost;
        }
    return some;
}

void uni__hosts_launch_failed(void *context, const char *sentence)
{
    uni__run *run = run_of(context);
    char tail[TAIL_BYTES + 8], why[600];
    if (!run)
        return;
    uni__hosts_remove_tokens(run);
    tail_of_launcher(run, tail, sizeof tail);
    run->budget.no_retry |= explain_launcher(tail, why, sizeof why);
    uni__cause cause = uni__cause_new(run, UNI__CAUSE_LAUNCH, -1, UNI_EWORKER,
                                      "the hosts could not be started: %.600s%s", sentence, why);
    /* A launcher may stumble once; twice in a row it is the command or the cluster. Hosts that
     * were all there before may come back. */
    bool fewer = leave_out_again(run);
    if (run->trainer->hosts->failed_launches++ == 0)
        run->trainer->hosts->lost_ns = uni__monotonic_ns();
    run->budget.no_retry |=
        run->outcome.cause.kind == UNI__CAUSE_LAUNCH && !fewer && !run->trainer->hosts->was_placed;
    uni__run_fail(run, &cause);
    if (tail[0] && run->state == UNI__RUN_FAILING && !run->outcome.cause.log_tail)
        run->outcome.cause.log_tail = strdup(tail);
    if (run->state == UNI__RUN_FAILING && uni__hosts_is_patient(run))
        uni__run_tell(run, UNI_EVENT_WARNING, -1,
                      "%s will be started again in %d s; the hosts may come back",
                      run->trainer->hosts->launcher->program, uni__hosts_backoff_ms(run) / 1000);
}

void uni__hosts_silent(void *context, int first_rank, double seconds)
{
    uni__run *run = run_of(context);
    if (!run || run->state != UNI__RUN_RUNNING || first_rank < 0)
        return;
    uni__rank_place silent, place;
    for (int r = 0; r < run->num_workers && uni__group_place(run->group, first_rank, &silent); r++)
        if (uni__group_place(run->group, r, &place) && place.node == silent.node)
            run->ranks[r].host_silent_ns = seconds > 0 ? uni__monotonic_ns() : 0;
    /* Collectives go on waiting: TCP survives a link that is down for a moment. lost() comes when
     * silent_timeout is over. */
    if (seconds > 0)
        uni__run_tell(run, UNI_EVENT_WARNING, first_rank,
                      "host %s (rank %d) has been silent for %.1f s",
                      uni__rank_host(run, first_rank), first_rank, seconds);
    else
        uni__run_tell(run, UNI_EVENT_WARNING, first_rank, "host %s is heard again",
                      uni__rank_host(run, first_rank));
}

/* Leaves it out from now on, when what remains is enough. */
void uni__hosts_lost(void *context, int first_rank, const char *sentence)
{
    uni__run *run = run_of(context);
    if (!run || run->trainer->hosts->refuses)
        return;
    uni__cause cause =
        uni__cause_new(run, UNI__CAUSE_HOST, first_rank, UNI_EWORKER, "%s", sentence);
    if (uni__hosts_lose_ranks(run, first_rank, &cause))
        return;
    /* A survivor's error can overtake the news of the loss; the host is left out all the same. */
    if (run->state == UNI__RUN_RUNNING || run->state == UNI__RUN_FAILING)
        leave_out(run, uni__rank_host(run, first_rank));
    uni__run_fail(run, &cause);
}

void uni__hosts_unreachable(void *context, int first_rank)
{
    uni__run *run = run_of(context);
    if (run && run->state != UNI__RUN_DONE)
        leave_out(run, uni__rank_host(run, first_rank));
}

void uni__hosts_signalled(void *context, int signal)
{
    uni__run *run = run_of(context);
    if (run && run->state == UNI__RUN_RUNNING)
        uni__run_stop(run, UNI__STOPPING_PREEMPT);
}

void uni__hosts_launcher_lost(void *context, const char *sentence)
{
    uni__run *run = run_of(context);
    char tail[TAIL_BYTES + 8];
    if (!run || run->state != UNI__RUN_RUNNING)
        return;
    uni__cause cause = uni__cause_new(run, UNI__CAUSE_LAUNCHER, -1, UNI_EWORKER, "%s", sentence);
    uni__run_fail(run, &cause);
    tail_of_launcher(run, tail, sizeof tail);
    if (tail[0] && !run->outcome.cause.log_tail)
        run->outcome.cause.log_tail = strdup(tail);
}

void uni__hosts_blame(uni__run *run, uni__cause *cause)
{
    char said[400];
    for (int i = 0; i < run->num_workers; i++) {
        const uni__rank *other = &run->ranks[i];
        bool stopped = other->worker->stopped_ns != 0;
        if (i == cause->rank || (!stopped && !other->warned_silent && other->host_silent_ns == 0))
            continue;
        snprintf(said, sizeof said, "%.390s", cause->message);
        *cause = (uni__cause){ .kind = other->host_silent_ns ? UNI__CAUSE_HOST
                                       : stopped             ? UNI__CAUSE_STOPPED
                                                             : UNI__CAUSE_SILENT,
                               .rank = i,
                               .pid = other->worker->pid,
                               .exit_code = -1,
                               .error_code = UNI_EWORKER,
                               .time = cause->time };
        if (other->host_silent_ns) {
            snprintf(cause->message, sizeof cause->message,
                     "host %s is silent, and others gave up waiting for it: %s",
                     uni__rank_host(run, i), said);
            leave_out(run, uni__rank_host(run, i));
        } else {
            snprintf(cause->message, sizeof cause->message,
                     "rank %d (pid %d) is %s, and others gave up waiting for it: %s", i,
                     other->worker->pid, stopped ? "stopped by a signal" : "silent", said);
        }
        return;
    }
}

void uni__hosts_remark(void *context, const char *sentence)
{
    uni__run *run = run_of(context);
    if (run)
        uni__run_tell(run, UNI_EVENT_WARNING, -1, "%s", sentence);
}

/* ---- checkpoints and logs that come over the channel ---- */

void uni__hosts_log(void *context, int rank, const void *data, size_t size)
{
    uni__run *run = run_of(context);
    char *path = run ? uni__places_log(&run->places, rank) : NULL;
    int fd =
        path ? uni__create_at(AT_FDCWD, path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK, NULL)
             : -1;
    if (fd >= 0 && write(fd, data, size) != (ssize_t)size)
        uni__warn("a part of %s is missing: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(path);
}

void uni__hosts_file(void *context, int rank, const char *path, uint64_t offset, const void *data,
                     size_t size, int last)
{
    uni__run *run = run_of(context);
    uni_error err = { 0 };
    if (!run)
        return;
    uni__rank *from = &run->ranks[rank];
    int status = 0;
    if (last == UNI__REMOTE_FILE_FAILED)
        status = uni_error_set(&err, UNI_EIO, "host %s cannot send a checkpoint directory: %.*s",
                               uni__rank_host(run, rank), (int)(size < 900 ? size : 900),
                               (const char *)data);
    else if (!from->incoming)
        status = uni__stage_new(&from->incoming, run->places.staging_dir, rank, &err);
    if (status == 0 && last < UNI__REMOTE_FILE_END)
        status = uni__stage_write(from->incoming, path, offset, data, size, &err);
    if (status == 0)
        return;
    /* What has come of it must not become a checkpoint while the attempt ends. */
    if (from->incoming && uni__remove_tree(from->incoming, NULL) < 0)
        uni__warn("%s is left behind for now", from->incoming);
    free(from->incoming);
    from->incoming = NULL;
    uni__run_fatal(run, status == UNI_EDISKFULL ? UNI__CAUSE_DISK_FULL : UNI__CAUSE_CHECKPOINT,
                   &err);
}

char *uni__hosts_take_directory(uni__run *run, int rank)
{
    char *directory = run->ranks[rank].incoming;
    run->ranks[rank].incoming = NULL;
    return directory;
}
