/*
 * run_internal.h - one run: its parts, what is known of each rank, and the state machine's place.
 * Only for this module.
 *
 * Threads: everything in uni__run belongs to the controller thread, except what says otherwise. The
 * persist thread (persist.c) has the checkpoint store; the sink thread has the sinks; the user's
 * thread makes the run, waits for `done`, and takes it apart again.
 */
#ifndef UNISONO_TRAIN_RUN_INTERNAL_H
#define UNISONO_TRAIN_RUN_INTERNAL_H

#include <unisono/trainer.h>

#include "base/dict.h"
#include "group/host.h"
#include "track/results.h"
#include "track/runner.h"
#include "train/attempt.h"
#include "train/budget.h"
#include "train/outcome.h"
#include "train/places.h"
#include "train/request.h"
#include "train/said.h"
#include "train/world.h"

typedef struct uni__run uni__run;
typedef struct uni__persist uni__persist;
typedef struct uni__hosts uni__hosts;

/* One that has no exit code, of now. rank -1: the run's own. */
uni__cause uni__cause_new(const uni__run *run, uni__cause_class kind, int rank, int error_code,
                          const char *format, ...) UNI_PRINTF(5, 6);

/* ---- ranks ---- */

/* What the run knows of a rank. The life of its process is the group's (group/worker.h). */
typedef struct uni__rank {
    const uni__worker *worker; /* NULL while there is no group */
    bool done; /* it returned, or exited with 0 as a program, in this attempt */
    bool failed; /* its train function returned an error: it does not report any more */
    int64_t iteration; /* last report that arrived in this attempt; before it, the checkpoint's */
    int64_t reported; /* last report of all attempts that counts; 0: it never reports */
    uint8_t *metrics; /* of that report, msgpack */
    size_t metrics_size, metrics_capacity;
    uint8_t *returned; /* encoded {"result": ...} */
    size_t returned_size;
    uni_value *failure; /* what its function left when it failed, or NULL */
    uint64_t full_since_ns; /* both its checkpoints are in flight since then; 0: they are not */
    uint64_t ended_ns; /* when it returned, exited with 0, or closed its session */
    uint64_t line_ns; /* its last report line; 0: there was none in this attempt */
    bool warned_silent;
    bool disk_full; /* it said that there was no room for its checkpoint */
    uint64_t host_silent_ns; /* nothing is heard of its host since about then; 0: something is */
    bool homeless; /* its host is lost, and it has no other one (hosts_again.c) */
    int restarts, quick_deaths; /* of one process alone, in this attempt (members.c, replace.c) */
    bool joining; /* a new process among the others of its group (replace.c) */
    /* Where the number of workers changes (resize.c): it is not in the group. Then it may be
     * joining, too: a process that will be let in. */
    bool away;
    bool fresh; /* its process came to a group that had no such rank */
    bool leaving; /* it was told to leave */
    bool dismissed; /* it left because it was told to, and is not started again by itself */
    uint32_t newest_serial; /* of its question for the newest checkpoint (newest.c) */
    uint32_t newest_saves; /* how often it had called save_checkpoint when it asked */
    uint32_t saves; /* dictionaries of save_checkpoint that came from it; only rank 0's come */
    uint64_t newest_until_ns; /* it is answered by then; 0: it has not asked */
    bool uneven; /* it reports more often than rank 0 (newest.c) */
    bool asked_chief; /* a member whose last message to the chief has no answer */
    uni__cause ended_for; /* a frozen member that we are ending; kind NONE otherwise */
    int64_t log_start; /* size of its log when this attempt began */
    bool drop_said; /* that one of its checkpoints was dropped */
    bool deaf_said; /* that a message to it was lost */
    int copies; /* directories named in its report lines that are still to be copied */
    char *incoming; /* files of its next checkpoint, from another host (hosts_events.c); or NULL */
    uni__state_log state_log; /* its state in this attempt (state.h) */
    int state_patience; /* entries of it at which the ranks' iterations are compared */
} uni__rank;

/* ---- roles (members.c) ---- */

/* Without servers all ranks are workers. With them rank 0 is the chief, then come workers,
 * servers, evaluators. */
typedef struct uni__roles {
    int workers, servers, evaluators;
} uni__roles;

/* "chief", "worker", "ps" or "evaluator", and which one of them. */
const char *uni__role_of(const uni__roles *roles, int rank, int *index);
int uni__roles_size(const uni__roles *roles);

/* ---- the run ---- */

typedef enum uni__run_state {
    UNI__RUN_NEW,
    UNI__RUN_RUNNING, /* workers start or train */
    UNI__RUN_FAILING, /* a cause is known; survivors are being ended */
    UNI__RUN_SETTLING, /* all dead; checkpoints are being completed */
    UNI__RUN_WAITING, /* all dead; looking for the checkpoint to go on from, or backing off */
    UNI__RUN_FINISHING, /* all ranks done; checkpoints are being completed */
    UNI__RUN_DONE
} uni__run_state;

typedef enum uni__stop_reason {
    UNI__NOT_STOPPING,
    UNI__STOPPING_EARLY, /* a rank asked for it: success */
    UNI__STOPPING_PREEMPT, /* SIGTERM */
    UNI__STOPPING_RANK, /* uni__stop.rank says that it got SIGTERM */
    UNI__STOPPING_INTERRUPT, /* SIGINT */
    UNI__STOPPING_CALLER, /* uni_trainer_stop */
    UNI__STOPPING_TIME /* time limit */
} uni__stop_reason;

/* All ranks stop at the same iteration (stop.c). */
typedef struct uni__stop {
    uni__stop_reason reason;
    int rank; /* for UNI__STOPPING_RANK */
    int64_t at; /* 0: not chosen yet */
    uint64_t soft_ns, deadline_ns; /* ranks that have not stopped get a signal, then are killed */
    bool hard; /* no rank is waited for */
} uni__stop;

struct uni__run {
    uni_trainer *trainer;
    uni__group *group;
    int num_workers;
    uni__rank *ranks; /* the trainer's: warm workers outlive a run */

    uni__request request;
    uni__places places;
    uni__attempt attempt;
    int target; /* workers that the group should have (resize.c) */
    uni__budget budget;
    uni__stop stop;
    uni__outcome outcome;

    uni__run_state state;
    uint64_t begun_ns;
    double created;
    bool resumed;
    uni__results_writer *writer;
    uni__sink_runner *sinks;
    uni_value *sink_names; /* of those that the caller brought, or NULL */
    uni_sink *csv; /* ours, unless the caller brought one or wanted none */
    bool writer_failed, consumed_by_caller; /* an iterator releases lockstep, not the sinks */
    uni__persist *persist;
    uni__ports ports;
    uint64_t described_ns; /* run.json was last written for its progress */
    int64_t described_mark;
    struct {
        bool lost_progress, slow_disk, returned, incomplete, state_lost, bad_lines, no_steps,
            not_synchronous;
    } said; /* once is enough */
};

/* run_dir.c */
int uni__run_dir_make(uni__run *run, const char *logdir, uni_error *err) UNI_MUST_USE;
int uni__run_dir_reopen(uni__run *run, const char *dir,
                        uni_error *err) UNI_MUST_USE; /* after its controller died */
int uni__run_write_description(uni__run *run, const char *status, uni_error *err) UNI_MUST_USE;
void uni__run_note(uni__run *run, const char *event, uni_value *record,
                   bool durable); /* takes the record (may be NULL) */
char *uni__run_log_tail(const uni__run *run, int rank, int lines);
void uni__run_cap_logs(uni__run *run);

/* control.c: the state machine, on the controller thread */
void uni__run_begin(void *run); /* posted by the user's thread */
void uni__run_fail(uni__run *run, const uni__cause *cause);
void uni__run_suspect(
    uni__run *run, int rank,
    bool frozen); /* tells all ranks that one is stopped or silent, or no longer */
void uni__run_fatal(uni__run *run, uni__cause_class kind,
                    const uni_error *error); /* our own side failed: no retry */
void uni__run_writer_failed(uni__run *run, const uni_error *error); /* results.jsonl */
void uni__run_after_deaths(uni__run *run); /* all ranks are gone: again, or the end */
void uni__run_finish_stopped(uni__run *run);
void uni__run_rank_done(uni__run *run, int rank);
/* When all ranks that are waited for are done, the run ends. */
void uni__run_look_done(uni__run *run);
void uni__run_tell(uni__run *run, uni_event_kind kind, int rank, const char *format, ...)
    UNI_PRINTF(4, 5);
void uni__run_describe(uni__run *run, const char *status);
/* Answer of uni__persist_find_resume. Takes the state (a list by rank, or NULL). */
void uni__run_resume_known(uni__run *run, const char *path, int fd, int64_t iteration,
                           uni_value *state, const char *sentence);
void uni__run_persisted(uni__run *run); /* answer of uni__persist_flush */

/* first_cause.c */
/* true: the failure is kept for a moment, because another rank's may turn out to be its cause. */
bool uni__first_cause_hold(uni__run *run, const uni__cause *cause);
void uni__first_cause_look(uni__run *run); /* when a rank has ended, and at every tick */

/* newest.c */
void uni__newest_asked(uni__run *run, int rank, const uint8_t *payload, size_t size);
void uni__newest_look(uni__run *run); /* after a round of messages, and at every tick */
void uni__newest_answer(uni__run *run, int rank, uint32_t serial, const char *text, int fd);

/* watch.c: says what a rank waits for. At every tick of a running attempt. */
void uni__run_watch(uni__run *run, uint64_t now);
/* A rank has ended its part and another has not: a sentence about the two, or an empty string. */
void uni__run_say_ended(const uni__run *run, uint64_t for_ns, uint64_t now, char *out, size_t size);
/* A rank whose part has ended, or -1. */
int uni__run_first_ended(const uni__run *run);
/* Adds the rank that had returned before, if any, to a failed function's cause. */
void uni__run_name_ended(const uni__run *run, uni__cause *cause);

/* stop.c */
void uni__run_stop(uni__run *run, uni__stop_reason reason);
void uni__run_settle_stop(
    uni__run *run); /* chooses stop_at once all ranks, on all hosts, have seen `stopping` */
void uni__run_stop_now(uni__run *run, uni__stop_reason reason);
void uni__run_press_stop(uni__run *run, uint64_t now); /* at every tick of a run that is stopping */
void uni__run_stop_posted(void *trainer); /* for uni__group_post */
void uni__run_stop_now_posted(void *trainer);

/* events.c */
extern const uni__group_events uni__trainer_events;

/* attempt.c: starting workers and giving them their order */
int uni__run_workers(const uni__run *run); /* of the present group */
uni__world uni__run_world(const uni__run *run); /* of the present attempt; borrows from the run */
int uni__attempt_start(uni__run *run, uni_error *err) UNI_MUST_USE;
int uni__attempt_spawn_idle(uni_trainer *trainer,
                            uni_error *err) UNI_MUST_USE; /* warm workers without a run */

/* One rank alone: a warm worker gets its order, what is missing is spawned. */
int uni__attempt_start_rank(uni__run *run, int rank, uni_error *err) UNI_MUST_USE;
/* A new process for a rank of an elastic group: its reports continue those of the one that died. */
int uni__attempt_replace_rank(uni__run *run, int rank, uni_error *err) UNI_MUST_USE;

/* members.c: workers and servers that are restarted alone */
bool uni__run_is_member(const uni__run *run, int rank);
int uni__members_begin(uni__run *run, uni_error *err) UNI_MUST_USE; /* of an attempt */
/* A rank has ended; true: it was a member and is taken care of. Otherwise *cause is the
 * attempt's. */
bool uni__member_lost(uni__run *run, int rank, uni__cause *cause);
/* Kills the frozen process of that rank, once; its death is then told as this cause. */
void uni__rank_end(uni__run *run, const uni__cause *cause);
/* A frozen rank: true when it is a member; it is killed, and started again when it has ended. */
bool uni__member_end(uni__run *run, const uni__cause *cause);
void uni__members_chief_done(uni__run *run); /* the others follow, or are made to */
void uni__member_mailed(uni__run *run, int from, int to); /* to -1: all others */

/* replace.c: ranks that are replaced while the others keep training */
bool uni__run_is_elastic(const uni__run *run);
/* A rank has ended; true: it is being replaced. Otherwise *cause is the attempt's. */
bool uni__replace_lost(uni__run *run, int rank, uni__cause *cause);
/* A frozen rank: true when it can be replaced; it is killed, and replaced when it has ended. */
bool uni__replace_end(uni__run *run, const uni__cause *cause);
/* Whether some rank says that others can be. */
bool uni__replace_is_possible(const uni__run *run);
/* Whether that rank could be replaced now. */
bool uni__replace_can(const uni__run *run, int rank);
/* The attempt fails while a rank is being replaced: *cause becomes the one that it was lost for. */
bool uni__replace_failed(uni__run *run, uni__cause *cause);
void uni__replace_returned(uni__run *run); /* a rank is done */
void uni__replace_look(uni__run *run, uint64_t now); /* at every tick */
void uni__replace_look_for_end(uni__run *run); /* when workers have said something */

/* Into the journal: a rank was lost, for that cause, and the others kept training. */
void uni__replace_note(uni__run *run, const char *event, int rank, const uni__cause *cause);
/* The ranks of the present group meet as a new one. */
void uni__replace_regroup(uni__run *run);

/* resize.c: groups whose number of workers changes */
bool uni__run_is_resizable(const uni__run *run);
void uni__resize_begin(uni__run *run); /* of an attempt: which ranks are in it */
/* A rank has ended; true: the group goes on without it. Otherwise *cause is the
 * attempt's. */
bool uni__resize_lost(uni__run *run, int rank, uni__cause *cause);
/* A rank got SIGTERM; true: it leaves, and the others go on. */
/* The others can go on without it, at once. */
bool uni__resize_can_lose(const uni__run *run, int rank);
bool uni__resize_dismiss(uni__run *run, int rank);
/* The group is to have that many workers, as soon as it can. */
void uni__resize_to(uni__run *run, int workers);
/* The train function of a rank that is not in the group, or leaves it, has ended: true. */
bool uni__resize_returned(uni__run *run, int rank, const char *how);
void uni__resize_ask(uni__run *run); /* at every tick: what `unisono scale` has written */
void uni__resize_look(uni__run *run, uint64_t now); /* at every tick, and when a worker rang */
/* How many workers there are, and that this rank joined or left. */
void uni__resize_tell(uni__run *run, int rank, const char *what);
void uni__resize_end(uni__run *run); /* all ranks of the group are done */

/* messages.c: what workers say */
void uni__run_message(uni__run *run, int rank, int type, const uint8_t *payload, size_t size);
/* A worker broke the protocol: the attempt fails with that sentence. */
void uni__run_broken(uni__run *run, int rank, const char *sentence);
void uni__run_mail(uni__run *run, int rank, const uni__wire_frame *frame);
void uni__run_look_for_steps(uni__run *run, bool at_the_end);
void uni__run_line(uni__run *run, int rank, const char *line, size_t size);
/* Frees what it held of its last attempt; the next one counts on from that iteration. */
void uni__rank_forget(uni__rank *rank, int64_t resumed);

/* persist.c: checkpoints on their own thread. Calls from the controller thread; answers are
 * posted back to it. */
int uni__persist_start(uni__persist **out, uni__run *run, uni_error *err) UNI_MUST_USE;
void uni__persist_add(uni__persist *persist, const uni__handed *part);
/* A rank's part of that iteration is missing: the parts of other ranks are dropped, too. */
void uni__persist_drop(uni__persist *persist, int64_t iteration);
/* Ranks have moved: completes what every live rank has passed. With metrics (msgpack) those are
 * the report of that rank and iteration. */
void uni__persist_moved(uni__persist *persist, int rank, int64_t iteration, const void *metrics,
                        size_t size);
/* At every tick: a checkpoint that is alone does not wait long for the state of other ranks. */
void uni__persist_look(uni__persist *persist, uint64_t now);
/* Some checkpoint waits for the reports of other ranks: call moved. */
bool uni__persist_is_waiting(const uni__persist *persist);
/* The rank that the oldest such checkpoint waits for, with its iteration and the rank that
 * handed it in first; -1: none. */
int uni__persist_waits_for(const uni__persist *persist, int64_t *iteration, int *from);
/* A rank has failed: whether some checkpoint only waits for ranks that have not. */
bool uni__persist_can_complete(const uni__persist *persist);
/* The attempt is over: what is not committed by now never will be. Says of which iteration and
 * why. */
void uni__persist_give_up(uni__persist *persist);
void uni__persist_find_resume(uni__persist *persist); /* -> uni__run_resume_known */
void uni__persist_newest(uni__persist *persist, int rank,
                         uint32_t serial); /* -> uni__newest_answer */
/* The policy may remove the checkpoint that the attempt began with: every rank is past it, or
 * the attempt is over. */
void uni__persist_unpin(uni__persist *persist);
void uni__persist_flush(
    uni__persist *persist); /* -> uni__run_persisted, after all that was asked for so far */
/* Not on the controller thread: ends the thread. *latest_dict: the dictionary that was last
 * taken (v1), or NULL. */
void uni__persist_end(uni__persist *persist, bool keep_recovery, uni_value **latest_dict);

/* run_setup.c */
void uni__run_release(uni__run *run, int attempt,
                      int64_t iteration); /* any thread: lockstep ranks may go on */

/* result.c */
uni_result *uni__result_new(uni__run *run);
void uni__result_set_latest_dict(uni_result *result, uni_value *dict);

/* trainer.c */
struct uni_trainer {
    uni_trainer_options options; /* strings are our own copies */
    uni_value *worker_argv; /* of .main or .worker_program, or NULL */
    char *worker_exe;
    const uni_function *functions; /* of .main, to check names before anything starts */
    uni_value *extra_environment;
    char *storage, *logdir, *name;
    uni_value *run_dirs; /* every run directory so far: what was handed out stays good */
    _Atomic(const char *) latest_run_dir; /* read from any thread */
    uni__host host;
    struct uni__hosts *hosts; /* NULL: all on this machine (hosts_internal.h) */
    double cpus_each;
    double stopped_timeout; /* seconds until a stopped rank is replaced, where that is possible */
    double host_timeout; /* the same for a host that is silent */
    uni__roles roles; /* options.num_workers is the number of all of them */
    int first_workers, min_workers; /* at the start, and at least; 0: their number is fixed */
    int template_fd; /* what agents are forked from (train/shared.h), or -1 */
    uni__group *group;
    bool started, warned_crowded;
    uni__rank *ranks;
    uni__run *run; /* controller thread */
    pthread_mutex_t lock; /* current: for uni_trainer_stop from any thread */
    uni__run *current;
};

/* run_state.c */
/* At its start a rank stands where the checkpoint says, until it reports. */
int uni__run_seed_state(uni__run *run, int rank, uni_error *err) UNI_MUST_USE;
/* A rank's state came with its report. */
void uni__run_note_state(uni__run *run, int rank, int64_t iteration, const void *section,
                         size_t size);

#endif
