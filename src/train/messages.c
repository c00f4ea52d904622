/*
 * messages.c - what workers say during a run: reports, checkpoints, results, errors, lines on the
 * report pipe. Controller thread.
 *
 * The report path is the hot one: the bytes go from the ring into results.jsonl's buffer, and a
 * copy of the last ones is kept for the result; nothing else is done unless a checkpoint waits for
 * other ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "base/clock.h"
#include "base/msgpack.h"
#include "checkpoint/stage.h"
#include "train/hosts_internal.h"

#define COPIES_MAX 16 /* of directories that wait for the disk, a rank */

void uni__rank_forget(uni__rank *rank, int64_t resumed)
{
    /* The last report before the checkpoint that the next attempt begins from stays the rank's last
     * until there is another one. */
    if (resumed == 0 || rank->reported > resumed) {
        free(rank->metrics);
        rank->metrics = NULL;
        rank->metrics_size = rank->metrics_capacity = 0;
    }
    free(rank->returned);
    rank->returned = NULL;
    rank->returned_size = 0;
    uni_value_free(rank->failure);
    rank->failure = NULL;
    rank->iteration = resumed;
    if (rank->reported > resumed)
        rank->reported = resumed;
    rank->done = rank->failed = false;
    rank->newest_until_ns = 0;
    rank->uneven = false;
    rank->saves = 0;
    rank->copies = 0;
    free(rank->incoming);
    rank->incoming = NULL;
    uni__state_log_clear(&rank->state_log);
    rank->state_patience = 0;
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
    if (uni__replace_is_possible(run)) /* a new process of a rank begins as the others did */
        return;
    for (int i = 0; i < run->num_workers; i++)
        if (!run->ranks[i].done && !run->ranks[i].away && !uni__run_is_member(run, i) &&
            run->ranks[i].iteration <= run->attempt.start.iteration)
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
    if (uni__results_writer_add(run->writer, run->attempt.number, rank, iteration, metrics, size,
                                &err) < 0) {
        uni__run_writer_failed(run, &err);
        return;
    }
    from->iteration = from->reported = iteration;
    run->attempt.last_report_ns = 0; /* "just now": the clock is read once a round, in control.c */
    if (iteration > run->outcome.progress.iteration)
        run->outcome.progress.iteration = iteration;
    keep_metrics(from, metrics, size);
    if (run->attempt.start.pinned)
        release_start(run);
    if (uni__persist_is_waiting(run->persist))
        uni__persist_moved(run->persist, rank, iteration, metrics, size);
}

void uni__run_broken(uni__run *run, int rank, const char *sentence)
{
    uni__cause cause = uni__cause_new(run, UNI__CAUSE_INTERNAL, rank, UNI_EPEER,
                                      "rank %d (pid %d) broke the protocol: %.800s", rank,
                                      run->ranks[rank].worker->pid, sentence);
    uni__run_fail(run, &cause);
}

static void take_checkpoint(uni__run *run, int rank, const uint8_t *payload, size_t size)
{
    uni_error err = { 0 };
    uni__handed part;
    if (uni__handed_read(&part, run->group, rank, payload, size, &err) < 0) {
        uni__run_broken(run, rank, err.message);
        return;
    }
    char *came = part.path ? uni__hosts_take_directory(run, rank) : NULL;
    uni__rank_place place;
    part.path = came ? came : part.path;
    part.copy = part.path && !uni__stage_owns(run->places.staging_dir, part.path);
    if (part.copy && uni__group_place(run->group, rank, &place)) {
        uni__run_broken(run, rank, "it sent a checkpoint outside of the staging directory");
    } else {
        run->ranks[rank].saves += part.alone && !part.of_step && !part.path;
        uni__persist_add(run->persist, &part);
    }
    uni__handed_clear(&part);
    free(came);
}

/* From one rank to another, or to all others: we only carry it, with the sender's rank in place of
 * the address. A rank that is still starting finds it on its channel. */
void uni__run_mail(uni__run *run, int from, const uni__wire_frame *frame)
{
    uni_error err = { 0 };
    struct {
        int32_t rank;
    } address;
    if (frame->size < sizeof address) {
        uni__run_broken(run, from, "it sent a message to another rank without its address");
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
            uni__worker_is_live(run->ranks[to].worker) &&
            uni__group_send(run->group, to, UNI__TO_WORKER_PEER, copy, frame->size,
                            frame->num_fds > 0 ? frame->fds[0] : -1, &err) < 0 &&
            err.code != UNI_EPEER && !run->ranks[to].deaf_said) {
            run->ranks[to].deaf_said = true;
            uni__run_tell(run, UNI_EVENT_WARNING, to,
                          "a message from rank %d to rank %d was lost (said once): %s", from, to,
                          err.message);
        }
    free(copy);
}

static void take_error(uni__run *run, int rank, const uni_value *message)
{
    int code = (int)uni_dict_get_int(message, "code", UNI_EFUNCTION);
    if (uni__resize_returned(run, rank, uni_dict_get_string(message, "message", "")))
        return;
    run->ranks[rank].failed = true;
    uni_value_free(run->ranks[rank].failure);
    run->ranks[rank].failure = uni_value_copy(uni_dict_get(message, "failure"));
    uni__cause cause =
        uni__cause_new(run, UNI__CAUSE_ERROR, rank, UNI_EFUNCTION,
                       "the train function failed on rank %d (%s): %.800s", rank,
                       uni_status_name(code), uni_dict_get_string(message, "message", ""));
    /* An error because a peer is frozen is that peer's doing. */
    uni__hosts_blame(run, &cause);
    if (run->stop.reason != UNI__NOT_STOPPING) {
        if (code != UNI_EPREEMPTED) /* it stopped as it was told to */
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
    if (uni__resize_returned(run, rank, "its train function returned"))
        return;
    free(from->returned);
    from->returned = malloc(size + 1);
    from->returned_size = from->returned ? size : 0;
    if (from->returned)
        memcpy(from->returned, payload, size);
    uni__run_rank_done(run, rank);
    uni__first_cause_look(run);
}

static void take_hello(uni__run *run, int rank)
{
    if (run->request.program)
        return;
    for (int i = 0; i < run->num_workers; i++)
        if (!run->ranks[i].away && !uni__worker_has_greeted(run->ranks[i].worker))
            return;
    if (run->ranks[rank].restarts > 0)
        return; /* one member again: the others have been here all the time */
    double ms = (double)(uni__monotonic_ns() - run->attempt.begun_ns) * 1e-6;
    uni__run_note(run, "started", UNI__DICT({ "ms", uni_value_float(ms) }), false);
    int workers = uni__run_workers(run);
    uni__run_tell(run, UNI_EVENT_WORKERS, -1, "%d worker%s started in %.1f ms", workers,
                  workers == 1 ? "" : "s", ms);
}

void uni__run_message(uni__run *run, int rank, int type, const uint8_t *payload, size_t size)
{
    uni_value *message = NULL;
    uni_error err = { 0 };
    if (type == UNI__SAYS_REPORT) {
        uni__report_parts report;
        if (uni__report_split(&report, payload, size, &err) < 0) {
            uni__run_broken(run, rank, err.message);
            return;
        }
        if (report.state.size > 0)
            uni__run_note_state(run, rank, report.iteration, report.state.bytes, report.state.size);
        take_report(run, rank, report.iteration, report.metrics, report.metrics_size);
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
        run->ranks[rank].ended_ns = uni__monotonic_ns();
        break;
    case UNI__SAYS_NEWEST:
        uni__newest_asked(run, rank, payload, size);
        break;
    case UNI__SAYS_CHECKPOINT:
        take_checkpoint(run, rank, payload, size);
        break;
    case UNI__SAYS_ERROR:
        if (uni__msgpack_read(&message, payload, size, &err) < 0)
            uni__run_broken(run, rank, err.message);
        else
            take_error(run, rank, message);
        uni_value_free(message);
        break;
    }
}

/* The policy wants checkpoints between reports, and rank 0 works without what takes them. */
void uni__run_look_for_steps(uni__run *run, bool at_the_end)
{
    const uni_checkpoint_policy *policy = &run->request.policy;
    uni__page *page = uni__group_page(run->group, 0);
    bool never = at_the_end && run->ranks[0].reported == 0 && run->outcome.progress.steps == 0;
    if (run->said.no_steps || (policy->every_steps == 0 && !(policy->every_seconds > 0)) ||
        !(never || run->ranks[0].line_ns || (page && atomic_load(&page->no_steps))))
        return;
    run->said.no_steps = true;
    uni__run_tell(run, UNI_EVENT_WARNING, 0,
                  "no checkpoints are taken between reports (--checkpoint-every, every_steps, "
                  "every_seconds): only a fit of the engine in C with "
                  "uni_callback_report_checkpoint takes them. Save with report() as often as "
                  "needed");
}

/* ---- programs that do not link the library: JSON lines on a descriptor ---- */

/* The same keys as a linked worker's session fills in. */
static int autofill(uni__run *run, int rank, uni_value *metrics)
{
    uni__rank *from = &run->ranks[rank];
    uint64_t now = uni__monotonic_ns(),
             since = from->line_ns ? from->line_ns : from->worker->spawned_ns;
    int status = uni_dict_take(metrics, "_timestamp", uni_value_int((int64_t)uni__wall_seconds()));
    if (!uni_dict_get(metrics, "_time_this_iter_s"))
        status |= uni_dict_take(metrics, "_time_this_iter_s",
                                uni_value_float((double)(now - since) * 1e-9));
    from->line_ns = now;
    status |= uni_dict_take(metrics, "_training_iteration", uni_value_int(from->iteration + 1));
    return status;
}

/* The checkpoint of a report line. What another host names is a path there, so its files have come
 * over the connection, or it is in the staging directory that both see. */
static void add_named(uni__run *run, int rank, int64_t iteration, const uni__line *line)
{
    char *came = uni__hosts_take_directory(run, rank);
    const char *path = came ? came : line->path, *why = NULL;
    bool owned = (came || line->staged) && uni__stage_owns(run->places.staging_dir, path);
    uni__rank_place place;
    if (run->request.synchronous && !run->said.not_synchronous) {
        run->said.not_synchronous = true;
        uni__run_tell(run, UNI_EVENT_WARNING, rank,
                      "rank %d does not wait for its checkpoints (--sync-checkpoints, "
                      "synchronous_checkpoints): a line on UNISONO_REPORT_FD and `unisono report` "
                      "hand them over; only report() of the library waits",
                      rank);
    }
    if (!owned && uni__group_place(run->group, rank, &place))
        why = "its host sent no files for it";
    else if (!owned && run->ranks[rank].copies >= COPIES_MAX)
        why = "the rank names directories faster than they can be copied";
    if (why)
        uni__persist_drop(run->persist, iteration);
    if (why && !run->ranks[rank].drop_said) {
        run->ranks[rank].drop_said = true;
        uni__run_tell(run, UNI_EVENT_WARNING, rank,
                      "the checkpoint of rank %d at iteration %lld (%s) is dropped (said once): %s",
                      rank, (long long)iteration, path, why);
    } else if (!why) {
        run->ranks[rank].copies += !owned;
        uni__persist_add(run->persist, &(uni__handed){ .rank = rank,
                                                       .life = run->ranks[rank].worker->life,
                                                       .iteration = iteration,
                                                       .path = path,
                                                       .slot = -1,
                                                       .copy = !owned });
    }
    free(came);
}

static int report_line(uni__run *run, int rank, uni__line *line, uni_error *err)
{
    void *bytes = NULL;
    size_t size = 0;
    int64_t iteration = run->ranks[rank].iteration + 1;
    if (autofill(run, rank, line->metrics) < 0)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a report");
    UNI_TRY(uni__msgpack_write(&bytes, &size, line->metrics, err));
    if (line->path)
        add_named(run, rank, iteration, line);
    take_report(run, rank, iteration, bytes, size);
    free(bytes);
    return 0;
}

void uni__run_line(uni__run *run, int rank, const char *text, size_t size)
{
    uni__line line;
    uni_error err = { 0 };
    int status = uni__line_read(&line, text, size, &err);
    if (status == 0 && line.disk_full) /* `unisono report` failed by it */
        run->ranks[rank].disk_full = true;
    else if (status == 0)
        status = report_line(run, rank, &line, &err);
    uni__line_clear(&line);
    if (status == 0 || run->said.bad_lines)
        return;
    run->said.bad_lines = true;
    uni__run_tell(run, UNI_EVENT_WARNING, rank,
                  "rank %d wrote a report line that is left out (said once): %s", rank,
                  err.message);
}
