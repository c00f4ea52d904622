/*
 * store.c - the complete checkpoints of a run: found at open, ordered, kept, moved aside and
 * deleted (store.h).
 *
 * The store holds one list of everything complete, by number. Each entry knows whether it is in
 * checkpoints/ or in .recovery/. retention.c decides about the whole list, and uni__store_enforce
 * applies the decisions to the disk, after every commit and at open. So a crash between a commit
 * and its deletions, or another policy at a resume, needs no special code. One thread at a time.
 */
#include "checkpoint/store.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/shared.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/random.h"
#include "checkpoint/internal.h"
#include "checkpoint/seal.h"

int uni__staging_name(char **out, const char *staging_dir, const char *prefix, uni_error *err)
{
    uint64_t random = 0;
    *out = NULL;
    UNI_TRY(uni__make_dirs(staging_dir, 0700, err));
    if (uni__random_system(&random, sizeof random) < 0)
        return uni_error_set(err, UNI_EIO, "the system gives no random numbers");
    if (asprintf(out, "%s/%s.%016" PRIx64, staging_dir, prefix, random) < 0) {
        *out = NULL;
        return uni_error_set(err, UNI_ENOMEM, "no memory for a name in %s", staging_dir);
    }
    return 0;
}

/* ---- the list ---- */

int uni__store_add(uni__store *store, uni__checkpoint_info *entry, uni_error *err)
{
    void *grown =
        uni__grown(store->entries, store->count, &store->capacity, sizeof(uni__checkpoint_info *));
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the list of checkpoints");
    store->entries = grown;
    size_t at = store->count++;
    for (; at > 0 && store->entries[at - 1]->number > entry->number; at--)
        store->entries[at] = store->entries[at - 1];
    store->entries[at] = entry;
    if (entry->number >= store->next_number)
        store->next_number = entry->number + 1;
    return 0;
}

static void forget(uni__store *store, size_t index)
{
    free(store->entries[index]);
    store->count--;
    for (size_t i = index; i < store->count; i++)
        store->entries[i] = store->entries[i + 1];
}

static uni__candidate candidate_of(const uni__checkpoint_info *entry)
{
    return (uni__candidate){
        .number = entry->number,
        .timestamp = entry->timestamp,
        .score = entry->score,
        .fate = entry->kept ? UNI__FATE_KEEP : UNI__FATE_RECOVERY,
    };
}

/* The whole list and `extra` (may be NULL) at the end, undecided; malloc'ed. */
static uni__candidate *make_candidates(const uni__store *store, const uni__checkpoint_info *extra)
{
    uni__candidate *candidates = calloc(store->count + 1, sizeof *candidates);
    for (size_t i = 0; candidates && i < store->count; i++)
        candidates[i] = candidate_of(store->entries[i]);
    if (candidates && extra)
        candidates[store->count] = candidate_of(extra);
    return candidates;
}

/* ---- the policy ---- */

int uni__store_fate(const uni__store *store, const uni__checkpoint_info *entry, uni__fate *fate,
                    uni_error *err)
{
    uni__candidate *candidates = make_candidates(store, entry);
    if (!candidates)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the list of checkpoints");
    int status = uni__retention_decide(&store->policy, candidates, store->count + 1, err);
    *fate = candidates[store->count].fate;
    free(candidates);
    return status;
}

int uni__store_place(const uni__store *store, uni__checkpoint_info *entry, bool kept,
                     uni_error *err)
{
    const char *dir = kept ? store->checkpoints_dir : store->recovery_dir;
    int length =
        snprintf(entry->path, sizeof entry->path, "%s/checkpoint_%06" PRId64, dir, entry->number);
    if (length < 0 || (size_t)length >= sizeof entry->path)
        return uni_error_set(err, UNI_ELIMIT, "the path %s is too long for a checkpoint", dir);
    entry->kept = kept;
    return 0;
}

int uni__store_delete(uni__store *store, const char *path, uni_error *err)
{
    char *trash = NULL;
    int status = uni__staging_name(&trash, store->staging_dir, "trash", NULL);
    if (status == 0)
        status = uni__rename_new(path, trash, NULL);
    if (status < 0) {
        /* A full disk may refuse even the rename, while we are about to free space. Without its
         * manifest it is not a checkpoint either. */
        char *manifest = uni__path_join(path, UNI__MANIFEST_NAME, NULL);
        status = manifest ? uni__unlink(manifest, err)
                          : uni_error_set(err, UNI_ENOMEM, "no memory to remove %s", path);
        free(manifest);
    }
    if (status == 0)
        status = uni__remove_tree(trash && !uni__path_exists(path) ? trash : path, err);
    free(trash);
    return status;
}

/* Moves between checkpoints/ and .recovery/: only after a resume with another policy. */
static int move_entry(uni__store *store, uni__checkpoint_info *entry, bool kept, uni_error *err)
{
    uni__checkpoint_info *moved = malloc(sizeof *moved);
    if (!moved)
        return uni_error_set(err, UNI_ENOMEM, "no memory to move a checkpoint");
    *moved = *entry;
    int status = uni__store_place(store, moved, kept, err);
    if (status == 0)
        status = uni__make_dirs(kept ? store->checkpoints_dir : store->recovery_dir, 0700, err);
    if (status == 0)
        status = uni__rename_new(entry->path, moved->path, err);
    if (status == 0) {
        /* Wherever a power cut leaves it, the next open finds it. */
        *entry = *moved;
        status = uni__fsync_parent(entry->path, err);
    }
    free(moved);
    return status;
}

void uni__store_enforce(uni__store *store)
{
    uni_error err = { 0 };
    if (store->policy.num_to_keep == UNI_KEEP_NONE)
        return;
    uni__candidate *candidates = make_candidates(store, NULL);
    if (!candidates || uni__retention_decide(&store->policy, candidates, store->count, &err) < 0) {
        uni__warn("old checkpoints are not removed for now: out of memory");
        free(candidates);
        return;
    }
    for (size_t i = store->count; i-- > 0;) {
        uni__checkpoint_info *entry = store->entries[i];
        int64_t number = entry->number;
        int status = 0;
        if (number == store->pinned)
            continue;
        if (candidates[i].fate != UNI__FATE_DROP) {
            bool kept = candidates[i].fate == UNI__FATE_KEEP;
            if (kept != entry->kept)
                status = move_entry(store, entry, kept, &err);
        } else if ((status = uni__store_delete(store, entry->path, &err)) == 0) {
            forget(store, i);
            if (store->options.removed)
                store->options.removed(store->options.context, number);
        }
        if (status < 0)
            uni__warn("checkpoint %" PRId64 " cannot be removed or moved for now: %s", number,
                      err.message);
    }
    free(candidates);
}

void uni__store_pin(uni__store *store, int64_t number)
{
    bool other = store->pinned != 0 && store->pinned != number;
    store->pinned = number;
    if (other)
        uni__store_enforce(store);
}

/* ---- opening ---- */

/* The value that the policy orders by, for a checkpoint that another policy may have scored. */
static double score_of(const uni__store *store, const uni__manifest *manifest)
{
    const char *attribute = uni__policy_attribute(&store->policy);
    double score = NAN;
    bool has = false;
    if (!attribute)
        return NAN;
    if (manifest->has_score && manifest->score_attribute &&
        strcmp(manifest->score_attribute, attribute) == 0)
        return manifest->score;
    return uni__retention_score(&store->policy, manifest->metrics, NULL, &score, &has, NULL) < 0
               ? NAN
               : score;
}

/* `verify`: reads every byte, for the one that a group would resume from. */
static int add_found(uni__store *store, const uni__found *found, bool verify, uni_error *err)
{
    int status;
    uni_checkpoint *checkpoint = NULL;
    uni__checkpoint_info *entry = calloc(1, sizeof *entry);
    if (!entry)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the list of checkpoints");
    UNI_TRY_GOTO(uni__checkpoint_open_found(&checkpoint, found, err), fail);
    if (verify)
        UNI_TRY_GOTO(uni_checkpoint_verify(checkpoint, err), fail);
    const uni__manifest *manifest = &checkpoint->manifest;
    *entry = (uni__checkpoint_info){
        .number = manifest->number,
        .iteration = manifest->iteration,
        .attempt = manifest->attempt,
        .timestamp = manifest->timestamp,
        .score = score_of(store, manifest),
        .bytes = uni__manifest_bytes(manifest),
    };
    UNI_TRY_GOTO(uni__store_place(store, entry, !found->recovery, err), fail);
    UNI_TRY_GOTO(uni__store_add(store, entry, err), fail);
    uni_checkpoint_close(checkpoint);
    return 0;
fail:
    uni_checkpoint_close(checkpoint);
    free(entry);
    return status;
}

static int read_existing(uni__store *store, uni_error *err)
{
    int status;
    uni__found_list list = { 0 };
    UNI_TRY_GOTO(uni__find_checkpoints(&list, store->checkpoints_dir, false, err), done);
    UNI_TRY_GOTO(uni__find_checkpoints(&list, store->recovery_dir, true, err), done);
    uni__found_sort(&list);
    for (size_t i = 0; i < list.count; i++) {
        uni_error why = { 0 };
        const uni__found *found = &list.items[i];
        /* Newest first: until one is good, each is a candidate to resume from. */
        status = add_found(store, found, store->count == 0, &why);
        if (status == UNI_ENOMEM) {
            uni_error_set(err, status, "%s", why.message);
            goto done;
        }
        if (status < 0) {
            uni__warn("the checkpoint %s is passed over: %s", found->path, why.message);
            if (found->number >= store->next_number) /* its name stays in use */
                store->next_number = found->number + 1;
        }
    }
    status = 0;
done:
    uni__found_free(&list);
    return status;
}

static int set_up(uni__store *store, const uni__store_options *options, uni_error *err)
{
    store->options = *options;
    store->options.policy = NULL;
    store->options.run_dir = NULL;
    store->next_number = options->next_number > 1 ? options->next_number : 1;
    if (options->policy)
        store->policy = *options->policy;
    if (store->policy.score_attribute) {
        store->score_attribute = strdup(store->policy.score_attribute);
        store->policy.score_attribute = store->score_attribute;
        if (!store->score_attribute)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the checkpoints' store");
    }
    store->checkpoints_dir = uni__path_join(options->run_dir, UNI__CHECKPOINTS_NAME, NULL);
    store->recovery_dir = uni__path_join(options->run_dir, UNI__RECOVERY_NAME, NULL);
    store->staging_dir = uni__path_join(options->run_dir, UNI__STAGING_NAME, NULL);
    if (!store->checkpoints_dir || !store->recovery_dir || !store->staging_dir)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the checkpoints' store");
    return 0;
}

static void free_store(uni__store *store)
{
    for (size_t i = 0; i < store->count; i++)
        free(store->entries[i]);
    free(store->entries);
    free(store->checkpoints_dir);
    free(store->recovery_dir);
    free(store->staging_dir);
    free(store->score_attribute);
    free(store);
}

int uni__store_open(uni__store **out, const uni__store_options *options, uni_error *err)
{
    int status;
    *out = NULL;
    UNI_TRY(uni__checkpoint_policy_check(options->policy, err));
    uni__store *store = calloc(1, sizeof *store);
    if (!store)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the checkpoints' store");
    UNI_TRY_GOTO(set_up(store, options, err), fail);
    UNI_TRY_GOTO(uni__remove_tree(store->staging_dir, err), fail);
    if (store->policy.num_to_keep != UNI_KEEP_NONE) {
        UNI_TRY_GOTO(uni__make_dirs(store->checkpoints_dir, 0700, err), fail);
        UNI_TRY_GOTO(uni__make_dirs(store->staging_dir, 0700, err), fail);
        /* The names of the new directories must survive a power cut like the checkpoints in
         * them. */
        UNI_TRY_GOTO(uni__fsync_path(options->run_dir, err), fail);
    }
    UNI_TRY_GOTO(read_existing(store, err), fail);
    uni__store_enforce(store);
    *out = store;
    return 0;
fail:
    free_store(store);
    return status;
}

static void remove_or_warn(const char *dir)
{
    uni_error err = { 0 };
    if (uni__remove_tree(dir, &err) < 0)
        uni__warn("%s is left behind: %s", dir, err.message);
}

void uni__store_close(uni__store *store, bool keep_recovery)
{
    if (!store)
        return;
    remove_or_warn(store->staging_dir);
    if (!keep_recovery)
        remove_or_warn(store->recovery_dir);
    free_store(store);
}

const char *uni__store_staging_dir(const uni__store *store)
{
    return store->staging_dir;
}

int uni__store_clean_staging(uni__store *store, uni_error *err)
{
    DIR *stream = opendir(store->staging_dir);
    if (!stream && errno == ENOENT)
        return 0;
    if (!stream)
        return uni_error_set_errno(err, errno, "cannot clean %s", store->staging_dir);
    int status = 0;
    struct dirent *entry;
    while (status == 0 && (entry = readdir(stream))) {
        if (strncmp(entry->d_name, "rank_", 5) != 0)
            continue;
        char *path = uni__path_join(store->staging_dir, entry->d_name, NULL);
        status = path ? uni__remove_tree(path, err)
                      : uni_error_set(err, UNI_ENOMEM, "no memory to clean up");
        free(path);
    }
    closedir(stream);
    return status;
}

/* ---- queries ---- */

const uni__checkpoint_info *uni__store_best(const uni__store *store)
{
    const uni__checkpoint_info *best = NULL;
    /* By number, so that of equals the earlier one stays. */
    for (size_t i = 0; i < store->count; i++) {
        if (!store->entries[i]->kept)
            continue;
        uni__candidate here = candidate_of(store->entries[i]);
        uni__candidate there = best ? candidate_of(best) : here;
        if (!best || uni__retention_better(&store->policy, &here, &there))
            best = store->entries[i];
    }
    return best;
}

const uni__checkpoint_info *uni__store_latest(const uni__store *store)
{
    for (size_t i = store->count; i-- > 0;)
        if (store->entries[i]->kept)
            return store->entries[i];
    return NULL;
}

const uni__checkpoint_info *uni__store_resume(const uni__store *store)
{
    return store->count > 0 ? store->entries[store->count - 1] : NULL;
}

size_t uni__store_count(const uni__store *store)
{
    size_t kept = 0;
    for (size_t i = 0; i < store->count; i++)
        kept += store->entries[i]->kept;
    return kept;
}

const uni__checkpoint_info *uni__store_at(const uni__store *store, size_t index)
{
    for (size_t i = 0; i < store->count; i++)
        if (store->entries[i]->kept && index-- == 0)
            return store->entries[i];
    return NULL;
}

/* Ties: the earlier one is better. */
static bool is_better(const uni__store *store, const uni__checkpoint_info *a,
                      const uni__checkpoint_info *b)
{
    uni__candidate here = candidate_of(a), there = candidate_of(b);
    if (uni__retention_better(&store->policy, &here, &there))
        return true;
    return !uni__retention_better(&store->policy, &there, &here) && a->number < b->number;
}

uni_value *uni__store_ranking(const uni__store *store)
{
    uni_value *paths = uni_value_list();
    size_t count = uni__store_count(store);
    for (size_t place = 0; place < count; place++)
        for (size_t i = 0; i < count; i++) {
            /* Its position is the number of those that are worse. */
            const uni__checkpoint_info *one = uni__store_at(store, i);
            size_t worse = 0;
            for (size_t k = 0; k < count; k++)
                worse += k != i && is_better(store, one, uni__store_at(store, k));
            if (worse == place && uni_list_take(paths, uni_value_string(one->path)) < 0) {
                uni_value_free(paths);
                return NULL;
            }
        }
    return paths;
}
