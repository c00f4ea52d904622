/*
 * session.h - the worker's end: its rank, reports, checkpoints, and whether to stop.
 *
 * A train function gets its session as an argument. A program with its own main that only wants to report opens one:
 * below `unisono run` it is the session of that rank; anywhere else it is a world of one that warns once per kind of call
 * and keeps nothing, so that the same program runs by itself.
 *
 * report() never waits for another rank. It writes into a ring in shared memory (about a microsecond) and waits only when that ring
 * is full, or in lockstep mode until the driver took it.
 *
 * Thread rule: one thread at a time; uni_session_should_stop may be called from any.
 *
 * @example
 * uni_session *mine = NULL;
 * UNI_TRY(uni_session_open(&mine, err));
 * for (int epoch = 0; epoch < 3 && !uni_session_should_stop(mine); epoch++)
 *     UNI_TRY(uni_session_report_numbers(mine, 2, (const char *const[]){ "epoch", "loss" },
 *                                        (const double[]){ epoch, 1.0 / (epoch + 1) }, err));
 * uni_session_close(mine);
 * @end
 */
#ifndef UNISONO_SESSION_H
#define UNISONO_SESSION_H

#include <stdbool.h>
#include <unisono/checkpoint.h>
#include <unisono/comm.h>
#include <unisono/data.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_session uni_session;

/* For programs with their own main. Below a trainer that waits for a function (uni_main) it is UNI_ESTATE. */
UNI_API UNI_MUST_USE int uni_session_open(uni_session **out, uni_error *err);
/* Says that this rank is done and waits until its last checkpoint was handed over. */
UNI_API void uni_session_close(uni_session *session);

/* This process among all of the run (world), and among those of its host (local); node_rank counts hosts. In a world of one the ranks are 0 and the sizes 1. */
UNI_API int uni_session_world_rank(const uni_session *session);
UNI_API int uni_session_world_size(const uni_session *session);
UNI_API int uni_session_local_rank(const uni_session *session);
UNI_API int uni_session_local_world_size(const uni_session *session);
UNI_API int uni_session_node_rank(const uni_session *session);
/* "worker", or in a run with parameter servers "chief" (rank 0, the coordinator), "worker", "ps", "evaluator"; and which one of these. */
UNI_API const char *uni_session_role(const uni_session *session);
UNI_API int uni_session_role_index(const uni_session *session);
UNI_API int uni_session_attempt(const uni_session *session); /* from 1 */
/* Random bytes that only the workers of this attempt and their controller know: for authenticating what a program sends to other hosts by itself. false where nothing passes a
 * network: on one host, and outside of a run. */
#define UNI_SESSION_SECRET_BYTES 32
UNI_API bool uni_session_secret(const uni_session *session, uint8_t out[UNI_SESSION_SECRET_BYTES]);
/* A dictionary, maybe empty; borrowed. */
UNI_API const uni_value *uni_session_config(const uni_session *session);
/* What the run's options had as attachment, or NULL; borrowed. */
UNI_API const uni_value *uni_session_attachment(const uni_session *session);
UNI_API const char *uni_session_experiment_name(const uni_session *session);
UNI_API const char *uni_session_run_dir(const uni_session *session); /* "" in a world of one */
UNI_API const char *uni_session_storage_path(const uni_session *session);
/* false in a world of one. */
UNI_API bool uni_session_is_worker(const uni_session *session);

/* What goes with a report. At most one of directory and dict. */
typedef struct uni_checkpoint_source {
    const char *
        directory; /* made by uni_session_checkpoint_dir: moved; any other: copied and left alone */
    const uni_value *dict; /* copied before the call returns */
} uni_checkpoint_source;

/* One iteration of this rank. metrics: a dictionary (numbers, strings, lists, nested dictionaries) or NULL. Autofilled:
 * _timestamp, _time_this_iter_s, _training_iteration (from 1; a restarted group counts on from its checkpoint). checkpoint may be NULL. */
UNI_API UNI_MUST_USE int uni_session_report(uni_session *session, const uni_value *metrics,
                                            const uni_checkpoint_source *checkpoint,
                                            uni_error *err);
/* The same in two halves, for ranks that report one after the other: start returns at once in lockstep mode, too; wait does so when the driver took the
 * report. */
UNI_API UNI_MUST_USE int uni_session_report_start(uni_session *session, const uni_value *metrics,
                                                  const uni_checkpoint_source *checkpoint,
                                                  uni_error *err);
UNI_API UNI_MUST_USE int uni_session_report_wait(uni_session *session, uni_error *err);
/* The same for plain numbers, without building a dictionary. Whole numbers below 2^53 are kept as integers. */
UNI_API UNI_MUST_USE int uni_session_report_numbers(uni_session *session, int count,
                                                    const char *const *names, const double *values,
                                                    uni_error *err);

/* Ray Train v1's form: a checkpoint by itself, not tied to a report. Ranks other than 0 are accepted and not stored. */
UNI_API UNI_MUST_USE int uni_session_save_checkpoint(uni_session *session, const uni_value *dict,
                                                     uni_error *err);
/* The dictionary of the checkpoint that was saved last, by whichever rank; *out is NULL (and the return 0) when there is none. Until this rank has reported or
 * saved, it is the one that the attempt began with, so that all ranks begin with the same. A checkpoint that still waits for the report of another
 * rank is waited for; UNI_ESTATE names that rank after 30 s. The caller frees the dictionary. */
UNI_API UNI_MUST_USE int uni_session_load_checkpoint(uni_session *session, uni_value **out,
                                                     uni_error *err);
/* The same as a handle, for directories; *out NULL when there is none, or when it is a dictionary in memory (UNI_KEEP_NONE: load it). The caller
 * closes it. */
UNI_API UNI_MUST_USE int uni_session_get_checkpoint(uni_session *session, uni_checkpoint **out,
                                                    uni_error *err);
/* A fresh empty directory on the run's own filesystem, to write checkpoint files into and hand to report; the string is the caller's
 * to free(). */
UNI_API UNI_MUST_USE int uni_session_checkpoint_dir(uni_session *session, char **out,
                                                    uni_error *err);

/* A dataset that the run's options named, as it was described; the caller unrefs it. */
UNI_API UNI_MUST_USE int uni_session_dataset(uni_session *session, const char *name,
                                             uni_dataset **out, uni_error *err);
/* This rank's shard (rank of world size; what options say of that is not looked at). dataset NULL: the run's of that name; any other is iterated under that name. The
 * session keeps the iterator and frees it; asking again for a name ends the one before. Reports say where it stands, and after a restart
 * it goes on behind the checkpoint's iteration: each sample of the epoch is used once, with any number of workers. */
UNI_API UNI_MUST_USE int uni_session_dataset_shard(uni_session *session, const char *name,
                                                   uni_dataset *dataset,
                                                   const uni_data_options *options,
                                                   uni_dataset_iterator **out, uni_error *err);

/* For iterators outside of this library (Python, frameworks that read ahead): their position, as the next reports say it under this name (a state as of
 * uni_dataset_iterator_state, copied; NULL: nothing more), and the state of all ranks together that the group resumes from, borrowed; NULL when there is none. */
UNI_API UNI_MUST_USE int uni_session_set_dataset_state(uni_session *session, const char *name,
                                                       const uni_value *state, uni_error *err);
UNI_API const uni_value *uni_session_dataset_state(const uni_session *session, const char *name);

/* A communicator of all ranks of the run (comm.h); all of them call it. In a world of one it is a group of one. The caller closes it before the session. */
UNI_API UNI_MUST_USE int uni_session_comm(uni_session *session, const uni_comm_options *options,
                                          uni_comm **out, uni_error *err);

/* Small messages between the processes of a run, carried by the controller: for finding each other, not for the step. At most 32 KiB; keys below 64
 * bytes. To one rank, or with -1 to all others; fd -1: none. A message to a rank that is not there is lost. */
#define UNI_SESSION_KEY_SIZE 64
UNI_API UNI_MUST_USE int uni_session_send(uni_session *session, int to, const char *key,
                                          const void *data, size_t size, int fd, uni_error *err);
/* The oldest message whose key begins with `prefix`, from any rank: 1, or 0 when none came within timeout_ms. *fd is the caller's, or -1. */
UNI_API UNI_MUST_USE int uni_session_receive(uni_session *session, const char *prefix, int *from,
                                             char key[UNI_SESSION_KEY_SIZE], void *data,
                                             size_t capacity, size_t *size, int *fd, int timeout_ms,
                                             uni_error *err);
/* The controller has given this attempt up, or is gone: do not wait for other ranks any more. why gets a sentence. */
UNI_API bool uni_session_is_over(uni_session *session, char *why, size_t why_size);
/* How many processes have that role; see uni_session_role. */
UNI_API int uni_session_role_count(const uni_session *session, const char *role);

/* true once this rank has reached the iteration at which all ranks agreed to stop (SIGTERM, early stop, time limit): save a last checkpoint
 * and return. The same iteration on every rank. */
UNI_API bool uni_session_should_stop(const uni_session *session);
/* Says on behalf of this rank that the whole run should stop at the next common iteration (early stopping). */
UNI_API void uni_session_request_stop(uni_session *session);

#ifdef __cplusplus
}
#endif
#endif
