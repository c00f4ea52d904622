/*
 * shared.h - what train shares with our other libraries, the command and the Python extension. Not
 * installed: programs see include/unisono.
 */
#ifndef UNISONO_TRAIN_SHARED_H
#define UNISONO_TRAIN_SHARED_H

#include "base/compiler.h"
#include <unisono/run.h>
#include <unisono/session.h>
#include <unisono/trainer.h>

#define UNI__SESSION_KEY_SIZE 64
/* UNI_EPERMISSION unless the run in this directory is yours alone: it, the directory of its name
 * and its files belong to the effective user, are not writable by others and are not symbolic
 * links, and other users cannot replace them in the storage directory. Functions that act on a
 * run (resume, stop, remove) check this themselves; functions that only read do not. */
UNI__SHARED UNI_MUST_USE int uni__run_check_owner(const char *dir, uni_error *err);
/* Creates the directory STORAGE/NAME (an absolute path) for runs, with mode 0700, unless it
 * exists. UNI_EPERMISSION if it does not belong to the effective user alone, is a link, or can
 * be replaced by other users: STORAGE is writable by others and has no sticky bit. */
UNI__SHARED UNI_MUST_USE int uni__run_make_place(const char *dir, uni_error *err);
/* The attachment of the run's options, or NULL; borrowed. */
UNI__SHARED const uni_value *uni__session_attachment(const uni_session *session);
/* The same in two halves, for ranks that report one after the other: start returns immediately
 * even in lockstep mode; wait returns once the driver has received the report. */
UNI__SHARED UNI_MUST_USE int uni__session_report_start(uni_session *session,
                                                       const uni_value *metrics,
                                                       const uni_checkpoint_source *checkpoint,
                                                       uni_error *err);
UNI__SHARED UNI_MUST_USE int uni__session_report_wait(uni_session *session, uni_error *err);
/* For iterators outside this library (Python, frameworks that read ahead): set the position that
 * the next reports record under this name (a state as from uni_dataset_iterator_state, copied;
 * NULL: none), and get the combined state of all ranks that the group resumes from (borrowed;
 * NULL if there is none). */
UNI__SHARED UNI_MUST_USE int uni__session_set_dataset_state(uni_session *session, const char *name,
                                                            const uni_value *state, uni_error *err);
UNI__SHARED const uni_value *uni__session_dataset_state(const uni_session *session,
                                                        const char *name);
/* Small messages between the processes of a run, forwarded by the controller: for rendezvous,
 * not for the step. At most 32 KiB; keys shorter than 64 bytes. To one rank, or with -1 to all
 * others; fd -1: none. A message to a rank that does not exist is lost. */
UNI__SHARED UNI_MUST_USE int uni__session_send(uni_session *session, int to, const char *key,
                                               const void *data, size_t size, int fd,
                                               uni_error *err);
/* The oldest message whose key begins with `prefix`, from any rank: returns 1, or 0 if none
 * arrived within timeout_ms. The caller owns *fd (-1: none). */
UNI__SHARED UNI_MUST_USE int uni__session_receive(uni_session *session, const char *prefix,
                                                  int *from, char key[UNI__SESSION_KEY_SIZE],
                                                  void *data, size_t capacity, size_t *size,
                                                  int *fd, int timeout_ms, uni_error *err);
/* The controller has given up this attempt, or is gone: stop waiting for other ranks. why gets a
 * sentence. */
UNI__SHARED bool uni__session_is_over(uni_session *session, char *why, size_t why_size);
/* As uni_session_comm, over UCX or over MPI between hosts, whatever the run chose. */
UNI__SHARED UNI_MUST_USE int uni__session_comm_over(uni_comm **out, uni_session *session, bool ucx,
                                                    const uni_comm_options *options,
                                                    uni_error *err);
/* Ranks of one host can be replaced one by one while the others keep training (train/replace.c),
 * unless the train function has opened a communicator of its own. */
UNI__SHARED bool uni__session_is_elastic(const uni_session *session);
/* This process takes the place of one that died. */
UNI__SHARED bool uni__session_joins(const uni_session *session);
/* Its ranks are, or may come to be, on several hosts. */
UNI__SHARED bool uni__session_is_apart(const uni_session *session);
/* Whether this rank can continue with a new process in the place of another, can be replaced
 * itself, and can continue with more or fewer ranks. */
UNI__SHARED void uni__session_set_replaceable(uni_session *session, bool others, bool itself,
                                              bool resizes);
/* Why this rank's fit keeps its number of workers. */
enum { UNI__NOT_FIXED, UNI__FIXED_BY_DATA, UNI__FIXED_BY_ACCUMULATION, UNI__FIXED_LATER_FIT };
UNI__SHARED void uni__session_set_fixed(uni_session *session, uint32_t why);
/* Another group follows that of this number; this rank is to leave its group; it has. */
UNI__SHARED bool uni__session_group_changed(const uni_session *session, uint32_t number);
UNI__SHARED bool uni__session_leaves(const uni_session *session);
UNI__SHARED void uni__session_left(uni_session *session);
/* Another fit follows the one that this rank has come to the end of. */
UNI__SHARED void uni__session_begin_fit(uni_session *session);
/* This rank has come to the end of its fit. Waits until all others of the group with that number
 * have, or are gone for good, and no other group can follow; UNI_EWORKER: another one does. */
UNI__SHARED int uni__session_end_fit(uni_session *session, uint32_t number,
                                     uni_error *err) UNI_MUST_USE;
/* How many reports this rank has made. */
UNI__SHARED int64_t uni__session_reports(const uni_session *session);
/* A process that joins: until now its reports were repetitions and were left out. It has made
 * `reports` (-1: as many as its predecessor or, without one, as the others); those that its
 * predecessor has made are still left out. */
UNI__SHARED void uni__session_caught_up(uni_session *session, int64_t reports, int64_t others);
/* Waits for the group that follows number `after` (0: for the first) and that has this rank, and
 * opens its communicator. slots: the run's rank of each of its ranks, malloc'ed. UNI_ECANCELED when
 * there will be none. */
UNI__SHARED UNI_MUST_USE int uni__session_meet(uni_comm **out, int **slots, uint32_t *number,
                                               uni_session *session, uint32_t after,
                                               uni_error *err);
/* The same for ranks that save what they do themselves (hvd.elastic), which are asked before the
 * group changes for another reason than a loss. progress: how much this rank has saved, negative
 * for nothing; the rank with most is the communicator's first, equal ones follow in their order. */
UNI__SHARED UNI_MUST_USE int uni__session_meet_by(uni_comm **out, uint32_t *number,
                                                  uni_session *session, uint32_t after,
                                                  int64_t progress, uni_error *err);
/* Ranks wait until this rank comes to another group than that of this number. */
UNI__SHARED bool uni__session_is_asked(const uni_session *session, uint32_t number);
/* This rank goes back, or on, to where it or its predecessor had made that many reports. Those that
 * were made already are left out when they are made again. */
UNI__SHARED void uni__session_stand_at(uni_session *session, int64_t reports);
/* The store of the checkpoints of steps, in the run directory. */
#define UNI__STEPS_NAME ".steps"
/* In the run directory: how many workers the run should have, for its controller. */
/* A number, or "+" and hosts. */
#define UNI__SCALE_FILE ".scale"
#define UNI__SCALE_BYTES 1024
UNI__SHARED UNI_MUST_USE int uni__run_scale(const uni_run *run, int workers, uni_error *err);
/* One more host, or several, for a run over ssh: "c:2,d:2". */
UNI__SHARED UNI_MUST_USE int uni__run_add_hosts(const uni_run *run, const char *hosts,
                                                uni_error *err);
/* Checkpoints of steps. How often the run wants them (0: not by steps, not by time); hand one in,
 * on one rank; the controller wants all ranks to stop after a step; this rank has. */
UNI__SHARED int64_t uni__session_every_steps(const uni_session *session);
UNI__SHARED double uni__session_every_seconds(const uni_session *session);
/* This rank has what takes them. A run that wants them warns when reports come without it. */
UNI__SHARED void uni__session_keeps_steps(uni_session *session);
UNI__SHARED UNI_MUST_USE int uni__session_keep_step(uni_session *session, const uni_value *dict,
                                                    uni_error *err);
UNI__SHARED bool uni__session_stops_at_step(const uni_session *session);
UNI__SHARED void uni__session_stopped(uni_session *session);
/* Number of processes with that role; see uni_session_role. */
UNI__SHARED int uni__session_role_count(const uni_session *session, const char *role);
/* Called around fork, for interpreters. Both are optional. */
typedef struct uni__template_hooks {
    void (*before_fork)(void *context);
    void (*after_fork)(void *context, bool in_child);
    void *context;
} uni__template_hooks;
/* In the template. Returns 0 when the other end of fd is closed: end the process. Returns 1 in
 * each forked worker, whose environment, directory and standard descriptors are set: continue
 * with uni__worker_serve. */
UNI__SHARED UNI_MUST_USE int uni__template_run(int fd, const uni__template_hooks *hooks,
                                               uni_error *err);
/* From now on the workers that run functions come from the template at the other end of fd (a
 * copy of it is kept; -1: none). Not during a run, and only for local workers. The template's
 * environment should be what uni_trainer_plan shows: a worker's environment cannot change what
 * was read while loading. */
UNI__SHARED UNI_MUST_USE int uni__trainer_use_template(uni_trainer *trainer, int fd,
                                                       uni_error *err);
/* The worker's half of uni_main, for worker_program: programs whose functions are not C
 * functions (the Python package). Claims the session of this process, calls `call` for every
 * function that the controller names, and returns the exit code. UNI_ESTATE if this process is
 * not such a worker. */
typedef int (*uni__worker_call)(void *context, uni_session *session, const char *function,
                                uni_value **result, uni_error *err);
UNI__SHARED UNI_MUST_USE int uni__worker_serve(uni__worker_call call, void *context,
                                               uni_error *err);
/* Which rank had returned before the one that failed, in a sentence; or an empty string. */
UNI__SHARED const char *uni__result_hint(const uni_result *result);
UNI__SHARED bool uni__trainer_is_started(const uni_trainer *trainer);
UNI__SHARED const char *uni__trainer_logdir(const uni_trainer *trainer); /* STORAGE/NAME */
/* The absolute directory that `storage` names: NULL is UNISONO_RESULTS, otherwise
 * ~/unisono_results; "file://" is removed, any other scheme is UNI_EUNSUPPORTED. It need not
 * exist. The caller frees the string. */
UNI__SHARED UNI_MUST_USE int uni__run_storage(char **out, const char *storage, uni_error *err);

#endif
