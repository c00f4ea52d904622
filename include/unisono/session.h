/*
 * session.h - the worker's end: its rank, reports, checkpoints, and whether to stop.
 *
 * A train function gets its session as an argument. A program with its own main that only reports
 * opens one: under `unisono run` it is the session of that rank. Anywhere else it is a world of one
 * that warns once per kind of call and stores nothing, so the same program also runs on its own.
 *
 * report() never waits for another rank. It writes into a ring in shared memory (about a
 * microsecond) and waits only if that ring is full, or in lockstep mode until the driver has
 * received it.
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

/* For programs with their own main. UNI_ESTATE under a trainer that waits for a function
 * (uni_main). */
UNI_API UNI_MUST_USE int uni_session_open(uni_session **out, uni_error *err);
/* Reports that this rank is done, and waits until its last checkpoint has been handed over. */
UNI_API void uni_session_close(uni_session *session);

/* What a worker knows about itself. Everything is borrowed from the session. */
typedef struct uni_session_info {
    /* This process among all processes of the run (world) and of its host (local); node_rank
     * counts hosts. In a world of one the ranks are 0 and the sizes 1. */
    int world_rank, world_size;
    int local_rank, local_world_size;
    int node_rank;
    int attempt; /* from 1 */
    /* "worker", or in a run with parameter servers "chief" (rank 0, the coordinator), "worker",
     * "ps", "evaluator"; and the index within that role */
    const char *role;
    int role_index;
    bool is_worker; /* false in a world of one */
    const uni_value *config; /* a dictionary, possibly empty */
    const char *experiment_name;
    const char *run_dir; /* "" in a world of one */
    const char *storage_path;
} uni_session_info;
/* Valid until the train function returns, or the session is closed. */
UNI_API const uni_session_info *uni_session_info_of(const uni_session *session);

/* from 1 */
#define UNI_SESSION_SECRET_BYTES 32
/* Random bytes that only the workers of this attempt and their controller know: for
 * authenticating a program's own connections to other hosts. false where there is no network: on
 * one host, and outside a run. */
UNI_API bool uni_session_secret(const uni_session *session, uint8_t out[UNI_SESSION_SECRET_BYTES]);

/* The checkpoint of a report. At most one of directory and dict. */
typedef struct uni_checkpoint_source {
    const char *
        directory; /* made by uni_session_checkpoint_dir: moved; any other: copied and left alone */
    const uni_value *dict; /* copied before the call returns */
} uni_checkpoint_source;

/* One iteration of this rank. metrics: a dictionary (numbers, strings, lists, nested
 * dictionaries) or NULL. Autofilled: _timestamp, _time_this_iter_s, _training_iteration (from 1;
 * a restarted group continues from its checkpoint). checkpoint may be NULL. */
UNI_API UNI_MUST_USE int uni_session_report(uni_session *session, const uni_value *metrics,
                                            const uni_checkpoint_source *checkpoint,
                                            uni_error *err);
/* The same for plain numbers, without building a dictionary. Integral values below 2^53 are kept
 * as integers. */
UNI_API UNI_MUST_USE int uni_session_report_numbers(uni_session *session, int count,
                                                    const char *const *names, const double *values,
                                                    uni_error *err);

/* Ray Train v1's form: a checkpoint that is not tied to a report. Checkpoints of ranks other
 * than 0 are accepted but not stored. */
UNI_API UNI_MUST_USE int uni_session_save_checkpoint(uni_session *session, const uni_value *dict,
                                                     uni_error *err);
/* The dictionary of the most recently saved checkpoint of any rank; *out is NULL (and the return
 * 0) if there is none. Until this rank has reported or saved, it is the one that the attempt
 * started from, so all ranks start with the same. Waits for a checkpoint that still needs the
 * report of another rank; after 30 s UNI_ESTATE names that rank. A rank that is ahead of rank 0
 * waits for rank 0's report of the same iteration, 30 s at most. The caller frees the
 * dictionary. */
UNI_API UNI_MUST_USE int uni_session_load_checkpoint(uni_value **out, uni_session *session,
                                                     uni_error *err);
/* The same as a handle, for directories; *out is NULL if there is none, or if it is a dictionary
 * in memory (UNI_KEEP_NONE: use load). The caller closes it. */
UNI_API UNI_MUST_USE int uni_session_get_checkpoint(uni_checkpoint **out, uni_session *session,
                                                    uni_error *err);
/* A new empty directory on the run's filesystem, for checkpoint files to pass to report; the
 * caller frees the string. */
UNI_API UNI_MUST_USE int uni_session_checkpoint_dir(char **out, uni_session *session,
                                                    uni_error *err);

/* A dataset of the run's options, as described there; the caller unrefs it. */
UNI_API UNI_MUST_USE int uni_session_dataset(uni_dataset **out, uni_session *session,
                                             const char *name, uni_error *err);
/* This rank's shard (rank of world size; the shard fields of options are ignored). dataset NULL:
 * the run's dataset of that name; any other is iterated under that name. The session owns the
 * iterator; a second call for a name ends the previous one. Reports record its position, and
 * after a restart it continues after the checkpoint's iteration: each sample of the epoch is
 * used once, with any number of workers. */
UNI_API UNI_MUST_USE int uni_session_dataset_shard(uni_dataset_iterator **out, uni_session *session,
                                                   const char *name, uni_dataset *dataset,
                                                   const uni_data_options *options, uni_error *err);

/* A communicator of all ranks of the run (comm.h); every rank must call it. In a world of one it
 * is a group of one. The caller closes it before the session. */
UNI_API UNI_MUST_USE int uni_session_comm(uni_comm **out, uni_session *session,
                                          const uni_comm_options *options, uni_error *err);

/* true once this rank has reached the iteration at which all ranks agreed to stop (SIGTERM,
 * early stop, time limit): save a last checkpoint and return. The same iteration on every rank. */
UNI_API bool uni_session_should_stop(const uni_session *session);
/* Asks the whole run to stop at the next common iteration (early stopping). */
UNI_API void uni_session_request_stop(uni_session *session);

#ifdef __cplusplus
}
#endif
#endif
