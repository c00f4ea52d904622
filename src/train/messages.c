/*
 * messages.c - what workers say during a run: reports, checkpoints, results, errors, lines on the report pipe. Controller thread.
 *
 * The report path is the hot one: the bytes go from the ring into results.jsonl's buffer, and a copy of the last ones is kept for the
 * result; nothing else is done unless a checkpoint waits for other ranks.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/msgpack.h"
#include "checkpoint/stage.h"
#include "train/hosts_internal.h"

void uni__rank_forget(uni__rank *rank, int64_t resumed)
{
    /* The last report before the checkpoint that the next attempt begins from stays the rank's last until there is another one. */
    if (resumed == 0 || rank->reported > resumed) {
        free(rank->metrics);
        rank->metrics = NULL;
        rank->metrics_size = rank->metrics_capacity = 0;
    }
    free(rank->returned);
    rank->returned = NULL;
    rank->returned_size = 0;
    rank->iteration = resumed;
    if (rank->reported > resumed)
        rank->reported = resumed;
    rank->failed = false;
    rank->newest_until_ns = 0;
    rank->saves = 0;
    free(rank->incoming);
    rank->incoming = NULL;
    if (rank->state != UNI__RANK_GONE)
        return; /* a warm worker keeps its buffers */
    for (int i = 0; i < UNI__SNAPSHOT_SLOTS; i++) {
        if (rank->snapshots[i].memory)
            munmap(rank->snapshots[i].memory, rank->snapshots[i].size);
        rank->snapshots[i].memory = NULL;
        rank->snapshots[i].size = 0;
    }
}

static void keep_metrics(uni__rank *rank, const uint8_t *metrics, size_t size)
{
    if (size > rank->metrics_capacity) {
        uint8_t *grown = realloc(rank->metrics, size * 2);
        if (!grown)
            return;
        rank->metrics = grown;
        rank->metrics_capacity = size * 2;
    }
    memcpy(rank->metrics, metrics, size);
    rank->metrics_size = size;
}

/* Once every rank has reported, none loads the checkpoint that the attempt began with any more. */
static void release_start(uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++)
        if (run->ranks[i].state != UNI__RANK_DONE && !uni__run_is_member(run, i) &&
            run->ranks[i].iteration <= run->resume_iteration)
            return;
    uni__persist_unpin(run->persist);
}

static void take_report(uni__run *run, int rank, int64_t iteration, const uint8_t *metrics,
                        size_t size)
{
    uni__rank *from = &run->ranks[rank];
    uni_error err = { 0 };
    if (run->writer_failed)
        return; /* the run is ending because of it: more tries would only cost time */
    if (uni__results_writer_add(run->writer, run->attempt, rank, iteration, metrics, size, &err) <
        0) {
        uni__run_writer_failed(run, &err);
        return;
    }
    from->iteration = from->reported = iteration;
    run->last_report_ns = 0; /* "just now": the clock is read once a round, in control.c */
    if (iteration > run->progress_mark)
        run->progress_mark = iteration;
    keep_metrics(from, metrics, size);
    if (run->pinned)
        release_start(run);
    if (uni__persist_is_waiting(run->persist))
        uni__persist_moved(run->persist, rank, iteration, metrics, size);
}

static void say_broken(uni__run *run, int rank, const char *what)
{
    uni__cause cause = uni__cause_new(run, UNI__CAUSE_INTERNAL, rank, UNI_EPEER);
    snprintf(cause.message, sizeof cause.message,
             "rank %d (pid %d) sent something that is not understood: %.800s", rank, cause.pid,
             what);
    uni__run_fail(run, &cause);
}

static void take_checkpoint(uni__run *run, int rank, const uni_value *message)
{
    int64_t iteration = uni_dict_get_int(message, "iteration", 0);
    bool alone = uni_dict_get_bool(message, "alone", false);
    const char *path = uni_dict_get_string(message, "path", NULL);
    if (path) {
        char *came = uni__hosts_take_directory(run, rank);
        path = came ? came : path;
        uni__persist_add_directory(run->persist, rank, iteration, alone, path,
                                   !uni__stage_owns(run->staging_dir, path));
        free(came);
        return;
    }
    int64_t slot = uni_dict_get_int(message, "slot", -1),
            size = uni_dict_get_int(message, "size", -1);
    if (slot < 0 || slot >= UNI__SNAPSHOT_SLOTS || size <= 0) {
        say_broken(run, rank, "a checkpoint without contents");
        return;
    }
    /* Its descriptor was passed before this message was published. */
    if ((size_t)size > run->ranks[rank].snapshots[slot].size)
        uni__group_pull(run->group, rank);
    if ((size_t)size > run->ranks[rank].snapshots[slot].size) {
        say_broken(run, rank, "a checkpoint without its buffer");
        return;
    }
    run->ranks[rank].saves += alone;
    uni__persist_add_dict(run->persist, rank, iteration, alone, (int)slot,
                          run->ranks[rank].snapshots[slot].memory, (size_t)size);
}

bool uni__rank_take_snapshot(uni__rank *rank, const uni__wire_frame *frame)
{
    if (frame->type < 1 || frame->type > UNI__SNAPSHOT_SLOTS || frame->num_fds == 0)
        return false;
    uni__rank_buffer *snapshot = &rank->snapshots[frame->type - 1];
    struct stat info;
    int fd = frame->fds[0], seals = fcntl(fd, F_GET_SEALS);
    /* Only sealed memory: a worker that shortened it would make us fault. */
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) < 0 || info.st_size <= 0)
        return true;
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return true; /* the checkpoint that needs it says so */
    if (snapshot->memory)
        munmap(snapshot->memory, snapshot->size);
    snapshot->memory = memory;
    snapshot->size = (size_t)info.st_size;
    return true;
}

/* From one rank to another, or to all others: we only carry it, with the sender's rank in place of the address. A rank that is
 * still starting finds it on its channel. */
static void relay(uni__run *run, int from, const uni__wire_frame *frame)
{
    uni_error err = { 0 };
    struct {
        int32_t rank;
    } address;
    if (frame->size < sizeof address) {
        say_broken(run, from, "a message to another rank without its address");
        return;
    }
    memcpy(&address, frame->payload, sizeof address);
    uni__member_mailed(run, from, address.rank);
    uint8_t *copy = malloc(frame->size);
    if (!copy)
        return;
    int32_t sender = from;
    memcpy(copy, frame->payload, frame->size);
    memcpy(copy, &sender, sizeof sender);
    for (int to = 0; to < run->num_workers; to++)
        if (to != from && (address.rank < 0 || address.rank == to) &&
            run->ranks[to].state != UNI__RANK_GONE &&
            uni__group_send(run->group, to, UNI__TO_WORKER_PEER, copy, frame->size,
                            frame->num_fds > 0 ? frame->fds[0] : -1, &err) < 0 &&
            err.code != UNI_EPEER)
            uni__run_tell(run, UNI_EVENT_WARNING, to,
                          "a message from rank %d to rank %d was lost: %s", from, to, err.message);
    free(copy);
}

void uni__run_channel(uni__run *run, int rank, uni__wire_frame *frame)
{
    if (frame->type == UNI__PASSES_TO_PEER)
        relay(run, rank, frame);
    else if (!uni__rank_take_snapshot(&run->ranks[rank], frame))
        say_broken(run, rank, "a frame of an unknown kind on its channel");
}

static void take_error(uni__run *run, int rank, const uni_value *message)
{
    uni__cause cause = uni__cause_new(run, UNI__CAUSE_ERROR, rank, UNI_EFUNCTION);
    int code = (int)uni_dict_get_int(message, "code", UNI_EFUNCTION);
    run->ranks[rank].failed = true;
    snprintf(cause.message, sizeof cause.message,
             "the train function failed on rank %d (%s): %.800s", rank, uni_status_name(code),
             uni_dict_get_string(message, "message", ""));
    /* An error because a peer is frozen is that peer's doing. */
    uni__hosts_blame(run, &cause);
    if (run->stopping != UNI__NOT_STOPPING) {
        uni__run_tell(run, UNI_EVENT_WARNING, rank, "while stopping: %s", cause.message);
        uni__run_rank_done(run, rank);
        return;
    }
    if (!uni__first_cause_hold(run, &cause))
        uni__run_fail(run, &cause);
}

static void take_return(uni__run *run, int rank, const uint8_t *payload, size_t size)
{
    uni__rank *from = &run->ranks[rank];
    free(from->returned);
    from->returned = malloc(size + 1);
    from->returned_size = from->returned ? size : 0;
    if (from->returned)
        memcpy(from->returned, payload, size);
    uni__run_rank_done(run, rank);
}

static void take_hello(uni__run *run, int rank)
{
    uni__rank *from = &run->ranks[rank];
    from->hello = true;
    if (from->state == UNI__RANK_STARTED)
        from->state = UNI__RANK_RUNNING;
    if (run->program)
        return;
    for (int i = 0; i < run->num_workers; i++)
        if (!run->ranks[i].hello)
            return;
    if (from->restarts > 0)
        return; /* one member again: the others have been here all the time */
    double ms = (double)(uni__monotonic_ns() - run->attempt_ns) * 1e-6;
    uni_value *record = uni_value_dict();
    if (uni_dict_take(record, "ms", uni_value_float(ms)) == 0)
        uni__run_note(run, "started", record, false);
    else
        uni_value_free(record);
    uni__run_tell(run, UNI_EVENT_WORKERS, -1, "%d worker%s started in %.1f ms", run->num_workers,
                  run->num_workers == 1 ? "" : "s", ms);
}

void uni__run_message(uni__run *run, int rank, int type, const uint8_t *payload, size_t size)
{
    uni_value *message = NULL;
    uni_error err = { 0 };
    if (type == UNI__SAYS_REPORT) {
        int64_t iteration;
        if (size < sizeof iteration) {
            say_broken(run, rank, "a report without its number");
            return;
        }
        memcpy(&iteration, payload, sizeof iteration);
        take_report(run, rank, iteration, payload + sizeof iteration, size - sizeof iteration);
        return;
    }
    switch (type) {
    case UNI__SAYS_HELLO:
        take_hello(run, rank);
        break;
    case UNI__SAYS_RETURN:
        take_return(run, rank, payload, size);
        break;
    case UNI__SAYS_CLOSED:
        run->ranks[rank].session_closed = true;
        break;
    case UNI__SAYS_NEWEST:
        uni__newest_asked(run, rank, payload, size);
        break;
    case UNI__SAYS_CHECKPOINT:
    case UNI__SAYS_ERROR:
        if (uni_msgpack_read(&message, payload, size, &err) < 0)
            say_broken(run, rank, err.message);
        else if (type == UNI__SAYS_CHECKPOINT)
            take_checkpoint(run, rank, message);
        else
            take_error(run, rank, message);
        uni_value_free(message);
        break;
    default:
        say_broken(run, rank, "a message of an unknown kind");
        break;
    }
}

/* ---- programs that do not link the library: JSON lines on a descriptor ---- */

/* Puts the numbers named in {"loss": "NaN"} back where JSON could not carry them. */
int uni__restore_nonfinite(uni_value *metrics, const uni_value *nonfinite)
{
    int status = 0;
    for (size_t i = 0; i < uni_dict_size(nonfinite); i++) {
        const char *text = uni_value_as_string(uni_dict_value_at(nonfinite, i), "NaN");
        double number = text[0] == '-' ? -INFINITY : text[0] == 'I' ? INFINITY : NAN;
        status |= uni_dict_take(metrics, uni_dict_key_at(nonfinite, i), uni_value_float(number));
    }
    return status;
}

/* The same keys as a linked worker's session fills in. */
static int autofill(uni__run *run, int rank, uni_value *metrics)
{
    uni__rank *from = &run->ranks[rank];
    uint64_t now = uni__monotonic_ns();
    int status = uni_dict_take(metrics, "_timestamp", uni_value_int((int64_t)uni__wall_seconds()));
    if (!uni_dict_get(metrics, "_time_this_iter_s"))
        status |= uni_dict_take(metrics, "_time_this_iter_s",
                                uni_value_float((double)(now - from->spawned_ns) * 1e-9));
    from->spawned_ns = now;
    status |= uni_dict_take(metrics, "_training_iteration", uni_value_int(from->iteration + 1));
    return status;
}

static int report_line(uni__run *run, int rank, const uni_value *line, uni_error *err)
{
    const uni_value *given = uni_dict_get(line, "metrics");
    const char *staged = uni_dict_get_string(line, "staged", NULL),
               *directory = uni_dict_get_string(line, "checkpoint", NULL);
    if (uni_value_type_of(line) != UNI_TYPE_DICT ||
        (given && uni_value_type_of(given) != UNI_TYPE_DICT))
        return uni_error_set(err, UNI_EFORMAT,
                             "a report line must be a JSON object such as {\"loss\": 0.3}");
    if (given && uni_dict_get_bool(line, "disk_full", false)) { /* `unisono report` failed by it */
        run->ranks[rank].disk_full = true;
        return 0;
    }
    uni_value *metrics = uni_value_copy(given ? given : line);
    if (!metrics ||
        (given && uni__restore_nonfinite(metrics, uni_dict_get(line, "nonfinite")) < 0) ||
        autofill(run, rank, metrics) < 0) {
        uni_value_free(metrics);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a report");
    }
    void *bytes = NULL;
    size_t size = 0;
    int64_t iteration = run->ranks[rank].iteration + 1;
    int status = uni_msgpack_write(&bytes, &size, metrics, err);
    uni_value_free(metrics);
    if (status < 0)
        return status;
    if (given && staged)
        uni__persist_add_directory(run->persist, rank, iteration, false, staged,
                                   !uni__stage_owns(run->staging_dir, staged));
    else if (given && directory)
        uni__persist_add_directory(run->persist, rank, iteration, false, directory, true);
    take_report(run, rank, iteration, bytes, size);
    free(bytes);
    return 0;
}

void uni__run_line(uni__run *run, int rank, const char *line, size_t size)
{
    uni_value *parsed = NULL;
    uni_error err = { 0 };
    int status = line ? uni__json_read_python(&parsed, line, size, &err)
                      : uni_error_set(&err, UNI_ELIMIT, "a report line is longer than 1 MiB");
    if (status == 0)
        status = report_line(run, rank, parsed, &err);
    uni_value_free(parsed);
    if (status == 0 || run->bad_lines_said)
        return;
    run->bad_lines_said = true;
    uni__run_tell(run, UNI_EVENT_WARNING, rank,
                  "rank %d wrote a report line that is left out (said once): %s", rank,
                  err.message);
}
