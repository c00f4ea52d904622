/*
 * checkpoint.h - opening, verifying and reading checkpoints, and the policy that decides which ones stay.
 *
 * A checkpoint is a directory `checkpoint_NNNNNN` with a manifest (`.unisono-manifest.json`: sizes and
 * checksums of every file, the number, the iteration, the metrics). It is complete or it is not there: staging
 * happens elsewhere and a rename publishes it. Opening verifies the manifest; uni_checkpoint_verify reads all
 * bytes. A dictionary checkpoint holds a tree and its arrays; a directory checkpoint holds the user's files.
 *
 * Thread rule: a handle belongs to one thread at a time.
 *
 * @example
 * uni_checkpoint *latest = NULL;
 * uni_value *state = NULL;
 * if (uni_checkpoint_open_latest(&latest, "/home/me/unisono_results/digits/run_001", err) < 0)
 *     return err->code;
 * if (uni_checkpoint_read_dict(latest, &state, err) == 0)
 *     printf("epoch %d\n", (int)uni_dict_get_int(state, "epoch", -1));
 * uni_value_free(state);
 * uni_checkpoint_close(latest);
 * @end
 */
#ifndef UNISONO_CHECKPOINT_H
#define UNISONO_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_checkpoint uni_checkpoint;

typedef enum uni_score_order { UNI_SCORE_MAX = 0, UNI_SCORE_MIN = 1 } uni_score_order;

#define UNI_KEEP_ALL 0 /* num_to_keep: the default */
#define UNI_KEEP_NONE (-1) /* num_to_keep: checkpoints are taken but never written */

typedef struct uni_checkpoint_policy {
    int num_to_keep; /* UNI_KEEP_ALL, UNI_KEEP_NONE or a positive number */
    const char
        *score_attribute; /* a number in the checkpoint's dictionary or in the report's metrics;
                                    NULL: the time it was taken, so that the newest is the best */
    uni_score_order score_order; /* NaN is always the worst; ties keep the earlier */
    bool
        lowest_rank_wins; /* a file that several ranks bring under one name, with different contents: the lowest rank's is kept
                                    (as Ray merges them); default: an error that names both ranks */
} uni_checkpoint_policy;

/* UNI_EINVAL with the reason when the policy makes no sense. NULL is the default policy. */
UNI_API UNI_MUST_USE int uni_checkpoint_policy_check(const uni_checkpoint_policy *policy,
                                                     uni_error *err);

/* Opens a checkpoint directory: reads and checks the manifest and that every file is there with its size.
 * A directory without a manifest is UNI_EFORMAT ("not complete"), a damaged one UNI_ECORRUPT. */
UNI_API UNI_MUST_USE int uni_checkpoint_open(uni_checkpoint **out, const char *path,
                                             uni_error *err);
/* The newest complete checkpoint below a run directory (or a checkpoints directory) that verifies; damaged ones
 * are passed over with a warning in the log. While a run goes on, or after it failed, this may be one that the policy
 * did not keep (it is aside in the run's .recovery). UNI_ENOTFOUND when there is none. */
UNI_API UNI_MUST_USE int uni_checkpoint_open_latest(uni_checkpoint **out, const char *run_dir,
                                                    uni_error *err);
UNI_API void uni_checkpoint_close(uni_checkpoint *checkpoint);
/* Reads every byte and compares the checksums; the first file that differs is named. */
UNI_API UNI_MUST_USE int uni_checkpoint_verify(uni_checkpoint *checkpoint, uni_error *err);

/* As the manifest says; strings are borrowed. timestamp: seconds since 1970; bytes: of all files. */
UNI_API const char *uni_checkpoint_path(const uni_checkpoint *checkpoint);
UNI_API int64_t uni_checkpoint_number(const uni_checkpoint *checkpoint);
UNI_API int64_t uni_checkpoint_iteration(const uni_checkpoint *checkpoint);
UNI_API int uni_checkpoint_attempt(const uni_checkpoint *checkpoint);
UNI_API double uni_checkpoint_timestamp(const uni_checkpoint *checkpoint);
UNI_API uint64_t uni_checkpoint_bytes(const uni_checkpoint *checkpoint);
/* What was reported with it (may be empty, never NULL); borrowed. */
UNI_API const uni_value *uni_checkpoint_metrics(const uni_checkpoint *checkpoint);
UNI_API bool uni_checkpoint_is_dict(const uni_checkpoint *checkpoint);
/* The dictionary, arrays memory-mapped copy-on-write; the files are verified as they are read. A directory checkpoint is
 * UNI_EDTYPE. The value stays good after the checkpoint is closed, and even removed. When ranks saved parts of their own, it is that of
 * the lowest rank. */
UNI_API UNI_MUST_USE int uni_checkpoint_read_dict(uni_checkpoint *checkpoint, uni_value **out,
                                                  uni_error *err);

/* Makes a complete checkpoint directory at path (which must not exist), for programs that keep checkpoints without a
 * trainer, and to hand one to a run. */
UNI_API UNI_MUST_USE int uni_checkpoint_write_dict(const char *path, const uni_value *dict,
                                                   uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
