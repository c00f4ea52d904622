/*
 * store.h - the checkpoints of one run: staging, completion, retention.
 *
 * A run directory has, on one file system:
 *
 *   checkpoints/checkpoint_NNNNNN   complete ones that the policy keeps; users list this folder
 *   .recovery/checkpoint_NNNNNN     the newest complete one when the policy did not keep it (at
 *                                   most one): a restarted group continues from it, and it is the
 *                                   result's newest. Removed when a run of v1 ended successfully
 *   .staging/                       parts and drafts under construction, and what is being deleted
 *
 * Workers put files into `.staging/` (stage.h). The trainer's persist thread makes a draft of the
 * parts, commits it (hash, fsync, manifest, fsync, rename, fsync) and applies the policy.
 * `completed` is called when the new checkpoint is durable and before anything older is deleted, so
 * that the journal has it first. A deletion renames into .staging before it removes, so no reader
 * ever sees a partial checkpoint. With UNI_KEEP_NONE nothing is written at all.
 *
 * Thread: all calls of one store from one thread at a time (the persist thread, or after it ended).
 */
#ifndef UNISONO_CHECKPOINT_STORE_H
#define UNISONO_CHECKPOINT_STORE_H

#include <unisono/checkpoint.h>

#define UNI__MANIFEST_NAME ".unisono-manifest.json"
#define UNI__CHECKPOINTS_NAME "checkpoints"
#define UNI__RECOVERY_NAME ".recovery"
#define UNI__STAGING_NAME ".staging"

typedef struct uni__store uni__store;
typedef struct uni__draft uni__draft;

typedef struct uni__checkpoint_info {
    int64_t number, iteration;
    int attempt;
    /* score is NaN when the policy has none or it was not a number. */
    double timestamp, score;
    uint64_t bytes;
    bool kept; /* kept by the policy, in checkpoints/ */
    /* Absolute if run_dir was; in .recovery/ when not kept; "" as described at
     * uni__draft_commit. */
    char path[4096];
} uni__checkpoint_info;

typedef struct uni__store_options {
    const char *run_dir;
    const uni_checkpoint_policy *policy; /* NULL: default */
    /* Continue from here unless the disk has a later one; 0: from 1. */
    int64_t next_number;
    /* Called when a checkpoint is complete on disk (durable), before older ones are removed; and
     * after one was removed (also from .recovery/). A negative return of `completed` fails the
     * commit, and the new one is removed. With UNI_KEEP_NONE neither is called. Both may be
     * NULL. */
    int (*completed)(void *context, const uni__checkpoint_info *info, uni_error *err);
    void (*removed)(void *context, int64_t number);
    void *context;
} uni__store_options;

/* Creates the directories (0700; none with UNI_KEEP_NONE), reads what is already complete (a
 * resumed run), verifies the newest byte by byte, and continues with the next number. Damaged ones
 * are skipped with a warning and left in place. Leftovers of earlier attempts in .staging are
 * removed. */
int uni__store_open(uni__store **out, const uni__store_options *options,
                    uni_error *err) UNI_MUST_USE;
/* Removes .staging, and .recovery unless keep_recovery (pass true when the run failed and may be
 * resumed). */
void uni__store_close(uni__store *store, bool keep_recovery);
/* ".../.staging", for stage.h; created when the first part needs it. */
const char *uni__store_staging_dir(const uni__store *store);
/* Removes the parts that dead workers left in .staging; drafts stay. Call between attempts, when
 * every reported part has been given to a draft. */
int uni__store_clean_staging(uni__store *store, uni_error *err) UNI_MUST_USE;

/* Keeps checkpoint `number` in place, whatever the policy says, until another one or 0 is pinned:
 * ranks that start late still have to load it. */
void uni__store_pin(uni__store *store, int64_t number);

/* One checkpoint under construction. The caller adds parts, then commits or abandons. */
int uni__draft_new(uni__draft **out, uni__store *store, int64_t iteration, int attempt,
                   uni_error *err) UNI_MUST_USE;
/* Takes the files of a staged directory by renaming them into the draft (the first one as a whole).
 * Parts of several ranks are merged. A name that two ranks both have is UNI_EMISMATCH that names
 * both, unless the contents are equal. A directory that is not staged (a user's own) is rejected
 * with UNI_EINVAL. */
int uni__draft_take_directory(uni__draft *draft, int rank, const char *staged_dir,
                              uni_error *err) UNI_MUST_USE;
/* Writes an encoded dictionary (dict.h) as the part of that rank: files dict.msgpack and (if it has
 * arrays) arrays.bin for rank 0, with the suffix .rank_N for others. The bytes are checked first
 * and hashed while they are written. */
int uni__draft_add_dict(uni__draft *draft, int rank, const void *encoded, size_t size,
                        uni_error *err) UNI_MUST_USE;
/* Takes ownership of the state of all ranks (uni__state_pack); NULL: none. */
void uni__draft_take_state(uni__draft *draft, void *state, size_t size);
/* metrics: what was reported with it, stored in the manifest (NULL: none). scores: where the policy
 * looks for its attribute first (the checkpoint's dictionary, see uni__dict_view), before the
 * metrics. UNI_EINVAL "score attribute missing" / "not a number" as seed 003 defines. Frees the
 * draft in every case. After a failure nothing of it is left and the number is reused. info->path
 * is "" when the policy did not keep it (uni__store_resume knows where it is); info may be NULL. */
int uni__draft_commit(uni__draft *draft, const uni_value *metrics, const uni_value *scores,
                      double timestamp, uni__checkpoint_info *info, uni_error *err) UNI_MUST_USE;
void uni__draft_abandon(uni__draft *draft);

/* The best by the policy and the newest of those it keeps; NULL when there is none. Valid until the
 * next commit. */
const uni__checkpoint_info *uni__store_best(const uni__store *store);
const uni__checkpoint_info *uni__store_latest(const uni__store *store);
/* The newest complete one wherever it is (checkpoints/ or .recovery/): a restarted group resumes
 * from it. */
const uni__checkpoint_info *uni__store_resume(const uni__store *store);
/* Those in checkpoints/. uni__store_ranking: their paths as a list, best last; NULL: out of
 * memory. */
uni_value *uni__store_ranking(const uni__store *store);
size_t uni__store_count(const uni__store *store);
const uni__checkpoint_info *uni__store_at(const uni__store *store, size_t index); /* oldest first */

#endif
