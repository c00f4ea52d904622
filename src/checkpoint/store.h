/*
 * store.h - the checkpoints of one run: staging, completion, retention.
 *
 * A run directory has `checkpoints/` (only complete checkpoint_NNNNNN entries) and `.staging/` on the same
 * filesystem. Workers put files into `.staging/` (stage.h); the trainer's persist thread makes a draft of the parts,
 * commits it (hash, fsync, manifest, fsync, rename, fsync) and applies the policy. After each commit the store calls
 * `completed`/`removed` so that the journal has it before anything older is deleted.
 *
 * Thread: all calls of one store from one thread at a time (the persist thread, or after it ended).
 */
#ifndef UNISONO_CHECKPOINT_STORE_H
#define UNISONO_CHECKPOINT_STORE_H

#include <unisono/checkpoint.h>

#define UNI__MANIFEST_NAME ".unisono-manifest.json"

typedef struct uni__store uni__store;
typedef struct uni__draft uni__draft;

typedef struct uni__checkpoint_info {
    int64_t number, iteration;
    int attempt;
    double timestamp, score; /* score is NaN when the policy has none or it was not a number */
    uint64_t bytes;
    char path[4096]; /* "" when the policy decided not to write it */
} uni__checkpoint_info;

typedef struct uni__store_options {
    const char *run_dir;
    const uni_checkpoint_policy *policy; /* NULL: default */
    /* Called when a checkpoint is complete on disk (durable), before older ones are removed; and after one was removed.
     * A negative return of `completed` fails the commit. Both may be NULL. */
    int (*completed)(void *context, const uni__checkpoint_info *info, uni_error *err);
    void (*removed)(void *context, int64_t number);
    void *context;
} uni__store_options;

/* Makes the two directories; reads what is complete already (a resumed run) and goes on with the next number. What is
 * left in .staging of earlier attempts is removed. */
int uni__store_open(uni__store **out, const uni__store_options *options, uni_error *err) UNI_MUST_USE;
void uni__store_close(uni__store *store); /* removes .staging */

/* One checkpoint in the making. The caller adds parts, then commits or abandons. */
int uni__draft_new(uni__draft **out, uni__store *store, int64_t iteration, int attempt, uni_error *err) UNI_MUST_USE;
/* Takes the files of a staged directory by renaming them into the draft; parts of several ranks are merged, and a name that
 * two ranks both bring is UNI_EMISMATCH that names both, unless the contents are equal. */
int uni__draft_take_directory(uni__draft *draft, int rank, const char *staged_dir, uni_error *err) UNI_MUST_USE;
/* Writes an encoded dictionary (dict.h) as the part of that rank: files dict.msgpack and arrays.bin (rank 0), or with the
 * suffix .rank_N for others. */
int uni__draft_add_dict(uni__draft *draft, int rank, const void *encoded, size_t size, uni_error *err) UNI_MUST_USE;
/* metrics: what was reported with it, stored in the manifest. scores: where the policy looks for its attribute (the metrics or the
 * checkpoint's dictionary). UNI_EINVAL "score attribute missing" / "not a number" as seed 003 defines; the draft is then abandoned.
 * Frees the draft in every case. info->path is "" when the policy did not keep it. */
int uni__draft_commit(uni__draft *draft, const uni_value *metrics, const uni_value *scores, double timestamp,
                      uni__checkpoint_info *info, uni_error *err) UNI_MUST_USE;
void uni__draft_abandon(uni__draft *draft);

/* The best by the policy and the newest of those on disk; NULL when there is none. Valid until the next commit. */
const uni__checkpoint_info *uni__store_best(const uni__store *store);
const uni__checkpoint_info *uni__store_latest(const uni__store *store);
size_t uni__store_count(const uni__store *store);
const uni__checkpoint_info *uni__store_at(const uni__store *store, size_t index); /* oldest first */

#endif
