/*
 * run_internal.h - one run: what is asked, what is known of each rank, and the state machine's place. Only for this module.
 *
 * Threads: everything in uni__run belongs to the controller thread, except what says otherwise. The persist thread (persist.c) has the
 * checkpoint store; the sink thread has the sinks; the user's thread makes the run, waits for `done`, and takes it apart again.
 */
#ifndef UNISONO_TRAIN_RUN_INTERNAL_H
#define UNISONO_TRAIN_RUN_INTERNAL_H

#include <pthread.h>
#include <unisono/run.h>
#include <unisono/trainer.h>

#include "base/journal.h"
#include "group/group.h"
#include "group/host.h"
#include "track/results.h"
#include "track/runner.h"
#include "train/protocol.h"

typedef struct uni__run uni__run;
typedef struct uni__persist uni__persist;
typedef struct uni__hosts uni__hosts;

/* ---- causes (cause.c) ---- */

/* class, name in files, exit code of the command (0: the cause has its own) */
#define UNI__CAUSE_LIST(X)                                                                         \
    X(NONE, "none", 0)                                                                             \
    X(EXIT, "exit", 0)                                                                             \
    X(SIGNAL, "signal", 0)                                                                         \
    X(ERROR, "error", UNI_EXIT_FAILURE)                                                            \
    X(OOM, "oom", 0)                                                                               \
    X(STOPPED, "stopped", UNI_EXIT_FROZEN)                                                         \
    X(SILENT, "silent", UNI_EXIT_FROZEN)                                                           \
    X(NO_HELLO, "no_hello", UNI_EXIT_NOT_STARTED)                                                  \
    X(PREEMPTED, "preempted", UNI_EXIT_PREEMPTED)                                                  \
    X(DISK_FULL, "disk_full", UNI_EXIT_DISK_FULL)                                                  \
    X(TIME_LIMIT, "time_limit", UNI_EXIT_TIME_LIMIT)                                               \
    X(NO_PROGRESS, "no_progress", UNI_EXIT_TIME_LIMIT)                                             \
    X(AGENT, "agent", UNI_EXIT_INTERNAL)                                                           \
    X(HOST, "host_lost", UNI_EXIT_HOST_LOST)                                                       \
    X(LAUNCHER, "launcher", UNI_EXIT_HOST_LOST)                                                    \
    X(LAUNCH, "launch", UNI_EXIT_NOT_STARTED)                                                      \
    X(CHECKPOINT, "checkpoint", UNI_EXIT_FAILURE)                                                  \
    X(INTERNAL, "internal", UNI_EXIT_INTERNAL)

typedef enum uni__cause_class {
#define UNI__CAUSE_ENUM(name, text, exit_code) UNI__CAUSE_##name,
    UNI__CAUSE_LIST(UNI__CAUSE_ENUM)
#undef UNI__CAUSE_ENUM
} uni__cause_class;

typedef struct uni__cause {
    uni__cause_class kind;
    int rank; /* -1: nobody's in particular */
    int pid, exit_code, signal, attempt;
    int64_t iteration;
    double time;
    int error_code; /* the uni_status for the caller */
    char host[256];
    char message[UNI_ERROR_MESSAGE_SIZE]; /* a whole sentence, rank and all */
    char *log_tail; /* up to 20 lines, or NULL */
} uni__cause;

int uni__cause_exit_code(const uni__cause *cause);
/* One that has no exit code, of now, without its sentence. rank -1: the run's own. */
uni__cause uni__cause_new(const uni__run *run, uni__cause_class kind, int rank, int error_code);
/* A death, from how the process ended. We did not ask for it. */
void uni__cause_of_exit(uni__cause *cause, int rank, const uni__exit *how, bool runs_functions,
                        bool had_returned);
uni_value *uni__cause_to_value(const uni__cause *cause);
void uni__cause_clear(uni__cause *cause);

/* ---- ranks ---- */

typedef enum uni__rank_state {
    UNI__RANK_GONE, /* no process */
    UNI__RANK_STARTED, /* spawned, nothing heard */
    UNI__RANK_IDLE, /* a warm worker between runs */
    UNI__RANK_RUNNING,
    UNI__RANK_DONE /* returned, or exited with 0 as a program */
} uni__rank_state;

/* A worker's snapshot buffer, mapped here. */
typedef struct uni__rank_buffer {
    void *memory;
    size_t size;
} uni__rank_buffer;

typedef struct uni__rank {
    uni__rank_state state;
    int pid;
    bool hello, session_closed;
    bool failed; /* its train function returned an error: it does not report any more */
    int64_t iteration; /* last report that arrived in this attempt; before it, the checkpoint's */
    int64_t reported; /* last report of all attempts that counts; 0: it never reports */
    uint8_t *metrics; /* of that report, msgpack */
    size_t metrics_size, metrics_capacity;
    uint8_t *returned; /* encoded {"result": ...} */
    size_t returned_size;
    uint64_t full_since_ns; /* both its checkpoints are in flight since then; 0: they are not */
    uint64_t done_ns; /* when it returned, or exited with 0 */
    uint64_t spawned_ns, stopped_ns; /* stopped_ns: 0 when it is not stopped */
    bool warned_silent;
    bool disk_full; /* it said that there was no room for its checkpoint */
    bool host_silent; /* nothing is heard of its host */
    int restarts, quick_deaths; /* of a member, in this attempt (members.c) */
    uint32_t newest_serial; /* of its question for the newest checkpoint (newest.c) */
    uint32_t newest_saves; /* how often it had called save_checkpoint when it asked */
    uint32_t saves; /* dictionaries of save_checkpoint that came from it; only rank 0's come */
    uint64_t newest_until_ns; /* it is answered by then; 0: it has not asked */
    bool asked_chief; /* a member whose last message to the chief has no answer */
    uni__cause ended_for; /* a frozen member that we are ending; kind NONE otherwise */
    int64_t log_start; /* size of its log when this attempt began */
    uni__rank_buffer snapshots[UNI__SNAPSHOT_SLOTS];
    char *incoming; /* files of its next checkpoint, from another host (hosts_events.c); or NULL */
} uni__rank;

/* ---- roles (members.c) ---- */

/* Without servers all ranks are workers. With them rank 0 is the chief, then come workers, servers, evaluators. */
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
    UNI__STOPPING_INTERRUPT, /* SIGINT */
    UNI__STOPPING_CALLER, /* uni_trainer_stop */
    UNI__STOPPING_TIME /* time limit */
} uni__stop_reason;

typedef struct uni__ports {
    int *fds, *numbers, count; /* held until the run is over */
} uni__ports;

struct uni__run {
    uni_trainer *trainer;
    uni__group *group;
    int num_workers;
    uni__rank *ranks; /* the trainer's: warm workers outlive a run */

    /* asked for */
    char *function, *exe;
    uni_value *program; /* argv, or NULL */
    uni_value *config;
    uni_value *attachment; /* in memory only */
    uni_value *datasets; /* descriptions by name, or NULL */
    uni_checkpoint_policy policy;
    char *score_attribute;
    char *from_checkpoint; /* verified path, or NULL */
    uni_value *from_dict;
    double time_limit, progress_timeout;
    bool v1, resumed, trial;
    bool synchronous; /* report() returns when its checkpoint is complete */

    /* places */
    char *id, *dir, *logs_dir, *staging_dir;
    int dir_fd; /* of dir: the controller's own files are made in it, not by their paths */
    int number;
    uni__journal *journal;
    pthread_mutex_t journal_lock; /* controller and persist thread write it */
    uni__results_writer *writer;
    uni__sink_runner *sinks;
    uni_value *sink_names; /* of those that the caller brought, or NULL */
    uni_sink *csv; /* ours, unless the caller brought one or wanted none */
    uni__persist *persist;
    uni__ports ports;

    /* where it stands */
    uni__run_state state;
    int attempt, failures, quick_failures;
    uint64_t begun_ns, attempt_ns, last_report_ns, failed_ns;
    double created;
    uni__cause cause; /* of the last failure */
    uni__cause previous_cause;
    uni__cause held; /* a failure that may be another's consequence; kind NONE: there is none */
    uint64_t held_until_ns;
    int64_t progress_mark, previous_progress; /* highest iteration, to tell a crash loop */
    char victims[512];
    uni__stop_reason stopping;
    uint64_t described_ns; /* run.json was last written for its progress */
    int64_t described_mark;
    int64_t stop_at;
    uint64_t stop_deadline_ns, stop_soft_ns;
    bool hard_stop, no_retry, writer_failed, said_lost_progress, said_slow_disk;
    bool said_returned, said_incomplete;
    bool consumed_by_caller; /* an iterator releases lockstep, not the sinks */
    int64_t latest_number,
        previous_number; /* checkpoints completed; at the beginning of this attempt */
    char latest_path[4096], best_path[4096]; /* complete checkpoints, absolute; "" for none */
    uni_value *kept; /* paths of the checkpoints that the policy keeps, best last; at the end */
    char resume_path[4096]; /* what the present attempt started from */
    uni_value *
        data_states; /* positions in the datasets at that checkpoint, found once in an attempt (datasets.c) */
    int data_states_attempt;
    bool pinned; /* the checkpoint that this attempt began with is kept for ranks that start late */
    bool kept_in_memory; /* a complete dictionary that was not written (UNI_KEEP_NONE) */
    int resume_fd; /* the same as a dictionary in memory, or -1 */
    int64_t resume_iteration; /* reports of the present attempt are counted on from here */
    bool bad_lines_said;

    /* the end */
    pthread_mutex_t done_lock;
    pthread_cond_t done_cond;
    bool done; /* with done_lock */
    uni_error error;
};

/* run_dir.c */
int uni__run_dir_make(uni__run *run, const char *logdir, uni_error *err) UNI_MUST_USE;
int uni__run_dir_reopen(uni__run *run, const char *dir,
                        uni_error *err) UNI_MUST_USE; /* after its controller died */
int uni__run_write_description(uni__run *run, const char *status, uni_error *err) UNI_MUST_USE;
void uni__run_note(uni__run *run, const char *event, uni_value *record,
                   bool durable); /* takes the record (may be NULL) */
char *uni__run_log_path(const uni__run *run, int rank);
/* Gives the room back that was kept on the disk for the end of the run: run.json and the journal's last lines. */
void uni__run_release_reserve(const uni__run *run);
char *uni__run_log_tail(const uni__run *run, int rank, int lines);
void uni__run_cap_logs(uni__run *run);

/* environment.c */
int uni__ports_hold(uni__ports *ports, int count, bool reuse_port, uni_error *err) UNI_MUST_USE;
void uni__ports_release(uni__ports *ports);
/* The kernel takes no longer string (MAX_ARG_STRLEN) in an environment. */
#define UNI__CONFIG_VARIABLE_MAX (120u << 10)
bool uni__config_fits(const uni__run *run);
uni_value *uni__worker_environment(const uni_trainer *trainer, const uni__run *run,
                                   int rank); /* list of "NAME=value" */

/* control.c: the state machine, on the controller thread */
void uni__run_begin(void *run); /* posted by the user's thread */
void uni__run_fail(uni__run *run, const uni__cause *cause);
void uni__run_suspect(
    uni__run *run, int rank,
    bool frozen); /* tells all ranks that one is stopped or silent, or no longer */
void uni__run_fatal(uni__run *run, uni__cause_class kind,
                    const uni_error *error); /* our own side failed: no retry */
void uni__run_writer_failed(uni__run *run, const uni_error *error); /* results.jsonl */
void uni__run_after_deaths(uni__run *run); /* everybody is gone: again, or the end */
void uni__run_finish_stopped(uni__run *run);
void uni__run_rank_done(uni__run *run, int rank);
void uni__run_tell(uni__run *run, uni_event_kind kind, int rank, const char *format, ...)
    UNI_PRINTF(4, 5);
void uni__run_describe(uni__run *run, const char *status);
void uni__run_resume_known(uni__run *run, const char *path, int fd, int64_t iteration,
                           const char *sentence); /* answer of uni__persist_find_resume */
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
int uni__attempt_start(uni__run *run, uni_error *err) UNI_MUST_USE;
int uni__attempt_spawn_idle(uni_trainer *trainer,
                            uni_error *err) UNI_MUST_USE; /* warm workers without a run */

/* One rank alone: a warm worker gets its order, what is missing is spawned. */
int uni__attempt_start_rank(uni__run *run, int rank, uni_error *err) UNI_MUST_USE;

/* members.c: workers and servers that are restarted alone */
bool uni__run_is_member(const uni__run *run, int rank);
int uni__members_begin(uni__run *run, uni_error *err) UNI_MUST_USE; /* of an attempt */
/* A rank has ended; true: it was a member and is taken care of. Otherwise *cause is the attempt's. */
bool uni__member_lost(uni__run *run, int rank, uni__cause *cause);
/* A frozen rank: true when it is a member; it is killed, and started again when it has ended. */
bool uni__member_end(uni__run *run, const uni__cause *cause);
void uni__members_chief_done(uni__run *run); /* the others follow, or are made to */
void uni__member_mailed(uni__run *run, int from, int to); /* to -1: all others */

/* messages.c: what workers say */
void uni__run_message(uni__run *run, int rank, int type, const uint8_t *payload, size_t size);
void uni__run_channel(uni__run *run, int rank, uni__wire_frame *frame);
/* A snapshot buffer that the worker made or made larger; it is the rank's for as long as its process. false: the frame is something else. */
bool uni__rank_take_snapshot(uni__rank *rank, const uni__wire_frame *frame);
void uni__run_line(uni__run *run, int rank, const char *line, size_t size);
int uni__restore_nonfinite(uni_value *metrics, const uni_value *nonfinite);
/* Frees what it held of its last attempt; the next one counts on from that iteration. */
void uni__rank_forget(uni__rank *rank, int64_t resumed);

/* persist.c: checkpoints on their own thread. Calls from the controller thread; answers are posted back to it. */
int uni__persist_start(uni__persist **out, uni__run *run, uni_error *err) UNI_MUST_USE;
/* alone: complete at once (v1's save_checkpoint); otherwise with the reports of that iteration. */
void uni__persist_add_dict(uni__persist *persist, int rank, int64_t iteration, bool alone, int slot,
                           const void *memory, size_t size);
/* copy: the directory is the user's own and stays where it is. */
void uni__persist_add_directory(uni__persist *persist, int rank, int64_t iteration, bool alone,
                                const char *path, bool copy);
/* Ranks have moved: completes what every live rank has passed. With metrics (msgpack) those are the report of that rank and iteration. */
void uni__persist_moved(uni__persist *persist, int rank, int64_t iteration, const void *metrics,
                        size_t size);
/* Some checkpoint waits for the reports of other ranks: call moved. */
bool uni__persist_is_waiting(const uni__persist *persist);
/* The rank that the oldest such checkpoint waits for, with its iteration and the rank that handed it in first; -1: none. */
int uni__persist_waits_for(const uni__persist *persist, int64_t *iteration, int *from);
/* A rank has failed: whether some checkpoint only waits for ranks that have not. */
bool uni__persist_can_complete(const uni__persist *persist);
/* The attempt is over: what is not committed by now never will be. Says of which iteration and why. */
void uni__persist_give_up(uni__persist *persist);
void uni__persist_find_resume(uni__persist *persist); /* -> uni__run_resume_known */
void uni__persist_newest(uni__persist *persist, int rank,
                         uint32_t serial); /* -> uni__newest_answer */
/* The policy may remove the checkpoint that the attempt began with: every rank is past it, or the attempt is over. */
void uni__persist_unpin(uni__persist *persist);
void uni__persist_flush(
    uni__persist *persist); /* -> uni__run_persisted, after all that was asked for so far */
/* Not on the controller thread: ends the thread. *latest_dict: the dictionary that was last taken (v1), or NULL. */
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
    uni__roles roles; /* options.num_workers is the number of all of them */
    int template_fd; /* what agents are forked from (unisono/template.h), or -1 */
    uni__group *group;
    bool started, warned_crowded;
    uni__rank *ranks;
    uni__run *run; /* controller thread */
    pthread_mutex_t lock; /* current: for uni_trainer_stop from any thread */
    uni__run *current;
};

/* datasets.c */
/* Every description makes a dataset: a wrong path or key is an error before a worker starts. */
int uni__run_check_datasets(const uni_value *datasets, uni_error *err) UNI_MUST_USE;
/* [controller] {name: state} of what is left to read at the checkpoint that the attempt begins from; maybe empty. NULL without memory. */
uni_value *uni__run_data_states(uni__run *run);

#endif
