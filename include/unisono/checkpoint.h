/*
 * checkpoint.h - opening, verifying and reading checkpoints, and the policy that decides which are
 * kept.
 *
 * A checkpoint is a directory `checkpoint_NNNNNN` with a manifest (`.unisono-manifest.json`: sizes
 * and checksums of every file, the number, the iteration, the metrics). It is complete or it does
 * not exist: staging happens elsewhere and a rename publishes it. Opening verifies the manifest;
 * uni_checkpoint_verify reads all bytes. A dictionary checkpoint holds a tree and its arrays; a
 * directory checkpoint holds the user's files.
 *
 * Thread rule: a handle belongs to one thread at a time.
 *
 * @example
 * uni_checkpoint *latest = NULL;
 * uni_value *state = NULL;
 * if (uni_checkpoint_open_latest(&latest, "/home/me/unisono_results/digits/run_001", err) < 0)
 *     return err->code;
 * if (uni_checkpoint_read_dict(&state, latest, err) == 0)
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
#define UNI_KEEP_NONE (-1) /* num_to_keep: checkpoints are accepted but never written */

typedef struct uni_checkpoint_policy {
    int num_to_keep; /* UNI_KEEP_ALL, UNI_KEEP_NONE or a positive number */
    /* A number in the checkpoint's dictionary or in the report's metrics; NULL: the time it was
     * taken, so the newest is the best */
    const char *score_attribute;
    uni_score_order score_order; /* NaN is always worst; ties keep the earlier one */
    /* If several ranks have a file of the same name with different contents, keep the lowest
     * rank's (as Ray merges them); default: an error that names both ranks */
    bool lowest_rank_wins;
    /* Also take checkpoints between reports, after this many steps of fit or when this many seconds
     * have passed since the last one; 0: not. They are only there to resume from: hidden in the run
     * directory, replaced by the next, removed when the run succeeds. For fits with
     * uni_callback_report_checkpoint: a run that reports without one warns, a tuner refuses
     * them */
    int64_t every_steps;
    double every_seconds;
} uni_checkpoint_policy;

/* Opens a checkpoint directory: reads the manifest and checks that every file exists with the
 * right size. A directory without a manifest is UNI_EFORMAT ("not complete"), a damaged one
 * UNI_ECORRUPT. */
UNI_API UNI_MUST_USE int uni_checkpoint_open(uni_checkpoint **out, const char *path,
                                             uni_error *err);
/* The newest complete checkpoint in a run directory (or a checkpoints directory) that verifies;
 * damaged ones are skipped with a warning in the log. During a run, or after it failed, this may
 * be one that the policy did not keep (it is in the run's .recovery). UNI_ENOTFOUND if there is
 * none. */
UNI_API UNI_MUST_USE int uni_checkpoint_open_latest(uni_checkpoint **out, const char *run_dir,
                                                    uni_error *err);
UNI_API void uni_checkpoint_close(uni_checkpoint *checkpoint);
/* Reads every byte and compares the checksums; the first file that differs is named. */
UNI_API UNI_MUST_USE int uni_checkpoint_verify(uni_checkpoint *checkpoint, uni_error *err);

/* What the manifest says; borrowed until the checkpoint is closed. */
typedef struct uni_checkpoint_info {
    const char *path;
    int64_t number;
    int64_t iteration;
    int attempt;
    double timestamp; /* seconds since 1970 */
    uint64_t bytes; /* of all files */
    const uni_value *metrics; /* reported with it; may be empty, never NULL */
    bool is_dict;
} uni_checkpoint_info;
UNI_API const uni_checkpoint_info *uni_checkpoint_info_of(const uni_checkpoint *checkpoint);
/* The dictionary, arrays memory-mapped copy-on-write; the files are verified as they are read. A
 * directory checkpoint is UNI_EDTYPE. The value stays valid after the checkpoint is closed, and
 * even after it is removed. If ranks saved their own parts, it is that of the lowest rank. */
UNI_API UNI_MUST_USE int uni_checkpoint_read_dict(uni_value **out, uni_checkpoint *checkpoint,
                                                  uni_error *err);

/* Writes a complete checkpoint directory at path (which must not exist), for programs that save
 * checkpoints without a trainer, or to pass one to a run. */
UNI_API UNI_MUST_USE int uni_checkpoint_write_dict(const char *path, const uni_value *dict,
                                                   uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
