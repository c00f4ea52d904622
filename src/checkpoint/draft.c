/*
 * draft.c - one checkpoint under construction: gathers the parts of several ranks in .staging, then
 * commits them (store.h).
 *
 * One rename turns the first directory into the draft, however large it is. Later ones are merged
 * entry by entry, whole subtrees by one rename where nothing is in the way. The origin of each
 * entry is remembered only to name both ranks when two have the same file. With UNI_KEEP_NONE a
 * draft has no directory and parts are dropped. One thread at a time.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/log.h"
#include "checkpoint/dict_internal.h"
#include "checkpoint/internal.h"
#include "checkpoint/seal.h"
#include "checkpoint/stage.h"
#include "checkpoint/state.h"

typedef struct origin {
    /* Relative to the draft; "" is everything that came first. */
    char *path;
    int rank;
} origin;

struct uni__draft {
    uni__store *store;
    char *dir; /* NULL with UNI_KEEP_NONE */
    bool made; /* dir exists on disk */
    bool none; /* UNI_KEEP_NONE */
    uni__manifest manifest;
    origin *origins;
    size_t origin_count, origin_capacity;
    void *state; /* of all ranks (state.h), or NULL */
    size_t state_size;
};

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for a checkpoint's draft");
}

static void free_draft(uni__draft *draft)
{
    for (size_t i = 0; i < draft->origin_count; i++)
        free(draft->origins[i].path);
    free(draft->origins);
    uni__manifest_clear(&draft->manifest);
    free(draft->state);
    free(draft->dir);
    free(draft);
}

int uni__draft_new(uni__draft **out, uni__store *store, int64_t iteration, int attempt,
                   uni_error *err)
{
    *out = NULL;
    uni__draft *draft = calloc(1, sizeof *draft);
    if (!draft)
        return no_memory(err);
    draft->store = store;
    draft->none = store->policy.num_to_keep == UNI_KEEP_NONE;
    draft->manifest = (uni__manifest){ .iteration = iteration, .attempt = attempt, .score = NAN };
    int status = draft->none ? 0 : uni__staging_name(&draft->dir, store->staging_dir, "draft", err);
    if (status < 0) {
        free_draft(draft);
        return status;
    }
    *out = draft;
    return 0;
}

void uni__draft_abandon(uni__draft *draft)
{
    uni_error err = { 0 };
    if (!draft)
        return;
    if (draft->made && uni__remove_tree(draft->dir, &err) < 0)
        uni__warn("%s is left behind for now: %s", draft->dir, err.message);
    free_draft(draft);
}

static int make_dir(uni__draft *draft, uni_error *err)
{
    if (draft->made)
        return 0;
    UNI_TRY(uni__make_dirs(draft->dir, 0700, err));
    draft->made = true;
    return 0;
}

/* ---- origins ---- */

static int remember(uni__draft *draft, const char *path, int rank, uni_error *err)
{
    void *grown = uni__grown(draft->origins, draft->origin_count, &draft->origin_capacity,
                             sizeof *draft->origins);
    if (!grown)
        return no_memory(err);
    draft->origins = grown;
    char *copy = strdup(path);
    if (!copy)
        return no_memory(err);
    draft->origins[draft->origin_count++] = (origin){ copy, rank };
    return 0;
}

/* The rank whose rename brought that path or a directory above it. */
static int origin_rank(const uni__draft *draft, const char *path)
{
    int rank = 0;
    size_t longest = 0, whole = strlen(path);
    for (size_t i = 0; i < draft->origin_count; i++) {
        const char *prefix = draft->origins[i].path;
        size_t length = strlen(prefix);
        bool above = length == 0 || (length <= whole && memcmp(path, prefix, length) == 0 &&
                                     (length == whole || path[length] == '/'));
        if (above && length >= longest) {
            longest = length;
            rank = draft->origins[i].rank;
        }
    }
    return rank;
}

static int conflict(const uni__draft *draft, int rank, const char *path, uni_error *err)
{
    return uni_error_set(err, UNI_EMISMATCH,
                         "ranks %d and %d both bring \"%s\" to the same checkpoint, with different "
                         "contents; let one of them save it, or put the rank into its name",
                         origin_rank(draft, path), rank, path);
}

/* ---- merging ---- */

static int same_link(const char *a, const char *b)
{
    char first[4096], second[4096];
    ssize_t first_size = readlink(a, first, sizeof first),
            second_size = readlink(b, second, sizeof second);
    return first_size >= 0 && first_size == second_size &&
           memcmp(first, second, (size_t)first_size) == 0;
}

/* 1 when both are files (or links) with the same contents, 0 when not. Compares sizes first, where
 * most differ. */
static int same_contents(const char *a, const struct stat *a_info, const char *b,
                         const struct stat *b_info, uni_error *err)
{
    if (S_ISLNK(a_info->st_mode) && S_ISLNK(b_info->st_mode))
        return same_link(a, b);
    if (!S_ISREG(a_info->st_mode) || !S_ISREG(b_info->st_mode) ||
        a_info->st_size != b_info->st_size)
        return 0;
    char a_sum[17], b_sum[17];
    UNI_TRY(uni__hash_file(a, a_sum, NULL, err));
    UNI_TRY(uni__hash_file(b, b_sum, NULL, err));
    return strcmp(a_sum, b_sum) == 0;
}

/* Two ranks have the same name: the lower rank's file stays, whatever the order. */
static int settle(uni__draft *draft, int rank, const char *from, const char *to,
                  const char *relative, uni_error *err)
{
    if (rank > origin_rank(draft, relative))
        return 0; /* removed with its staged directory */
    UNI_TRY(uni__rename(from, to, err));
    return remember(draft, relative, rank, err);
}

static int merge_directory(uni__draft *draft, int rank, const char *from, const char *relative,
                           uni_error *err);

static int merge_entry(uni__draft *draft, int rank, const char *from, const char *relative,
                       uni_error *err)
{
    int status;
    struct stat from_info, to_info;
    char *to = uni__path_join(draft->dir, relative, NULL);
    if (!to)
        return no_memory(err);
    if (lstat(from, &from_info) < 0) {
        status = uni_error_set_errno(err, errno, "cannot take %s", from);
    } else if (lstat(to, &to_info) < 0) {
        status = uni__rename_new(from, to, err);
        if (status == 0)
            status = remember(draft, relative, rank, err);
    } else if (S_ISDIR(from_info.st_mode) && S_ISDIR(to_info.st_mode)) {
        status = merge_directory(draft, rank, from, relative, err);
    } else {
        status = same_contents(from, &from_info, to, &to_info, err);
        if (status == 0)
            status = draft->store->policy.lowest_rank_wins && !S_ISDIR(from_info.st_mode) &&
                             !S_ISDIR(to_info.st_mode)
                         ? settle(draft, rank, from, to, relative, err)
                         : conflict(draft, rank, relative, err);
    }
    free(to);
    return status < 0 ? status : 0;
}

/* Files that make a directory a checkpoint; those of an older one are not taken over. */
static bool is_ours(const char *name)
{
    return strcmp(name, UNI__MANIFEST_NAME) == 0 || strcmp(name, UNI__STATE_NAME) == 0;
}

static int merge_directory(uni__draft *draft, int rank, const char *from, const char *relative,
                           uni_error *err)
{
    DIR *stream = opendir(from);
    if (!stream)
        return uni_error_set_errno(err, errno, "cannot take the staged directory %s", from);
    int status = 0;
    struct dirent *entry;
    while (status == 0 && (errno = 0, entry = readdir(stream))) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || (!relative[0] && is_ours(name)))
            continue;
        char *below = relative[0] ? uni__path_join(relative, name, NULL) : strdup(name);
        char *full = uni__path_join(from, name, NULL);
        status = below && full ? merge_entry(draft, rank, full, below, err) : no_memory(err);
        free(below);
        free(full);
    }
    if (status == 0 && !entry && errno != 0)
        status = uni_error_set_errno(err, errno, "cannot take the staged directory %s", from);
    closedir(stream);
    return status;
}

int uni__draft_take_directory(uni__draft *draft, int rank, const char *staged_dir, uni_error *err)
{
    if (!uni__path_exists(staged_dir))
        return uni_error_set(err, UNI_ENOTFOUND, "the staged checkpoint %s of rank %d is gone",
                             staged_dir, rank);
    if (!uni__stage_owns(draft->store->staging_dir, staged_dir))
        return uni_error_set(err, UNI_EINVAL,
                             "%s is not a staged directory: a user's directory is copied, never "
                             "moved",
                             staged_dir);
    if (draft->none)
        return uni__remove_tree(staged_dir, err);
    if (!draft->made) {
        UNI_TRY(uni__rename_new(staged_dir, draft->dir, err));
        draft->made = true;
        return remember(draft, "", rank, err);
    }
    UNI_TRY(merge_directory(draft, rank, staged_dir, "", err));
    return uni__remove_tree(staged_dir, err);
}

int uni__draft_add_dict(uni__draft *draft, int rank, const void *encoded, size_t size,
                        uni_error *err)
{
    /* Unreadable data must not become a checkpoint. This does not touch the arrays. */
    uni_value *check = NULL;
    UNI_TRY(uni__dict_view(&check, encoded, size, err));
    uni_value_free(check);
    draft->manifest.is_dict = true;
    if (draft->none)
        return 0;
    UNI_TRY(make_dir(draft, err));
    size_t before = draft->manifest.file_count;
    int status = uni__write_dict_part(draft->dir, rank, encoded, size, &draft->manifest, err);
    for (size_t i = before; status == 0 && i < draft->manifest.file_count; i++)
        status = remember(draft, draft->manifest.files[i].path, rank, err);
    if (status == UNI_EEXISTS)
        return uni_error_set(err, UNI_EMISMATCH,
                             "rank %d saves a dictionary twice, or rank %d's directory has a file "
                             "with the name of its dictionary (dict.msgpack)",
                             rank, origin_rank(draft, ""));
    return status;
}

/* ---- committing ---- */

static int describe(uni__draft *draft, const uni_value *metrics, const uni_value *scores,
                    double timestamp, uni_error *err)
{
    uni__manifest *manifest = &draft->manifest;
    const char *attribute = uni__policy_attribute(&draft->store->policy);
    manifest->number = draft->store->next_number;
    manifest->timestamp = timestamp;
    UNI_TRY(uni__retention_score(&draft->store->policy, scores, metrics, &manifest->score,
                                 &manifest->has_score, err));
    if (attribute && !(manifest->score_attribute = strdup(attribute)))
        return no_memory(err);
    if (metrics && !(manifest->metrics = uni_value_copy(metrics)))
        return no_memory(err);
    return 0;
}

void uni__draft_take_state(uni__draft *draft, void *state, size_t size)
{
    free(draft->state);
    draft->state = state;
    draft->state_size = size;
}

static int remove_stale(const uni__draft *draft, const char *name, uni_error *err)
{
    char *stale = uni__path_join(draft->dir, name, NULL);
    int status = stale ? uni__unlink(stale, err) : no_memory(err);
    free(stale);
    return status;
}

static int write_state(uni__draft *draft, uni_error *err)
{
    char sum[17], *path = uni__path_join(draft->dir, UNI__STATE_NAME, NULL);
    int status =
        path ? uni__write_hashed(path, draft->state, draft->state_size, sum, err) : no_memory(err);
    free(path);
    UNI_TRY(status);
    return uni__manifest_add(&draft->manifest, UNI__STATE_NAME, draft->state_size, sum, false, err);
}

/* Everything up to the rename. */
static int complete(uni__draft *draft, uni_error *err)
{
    UNI_TRY(make_dir(draft, err));
    UNI_TRY(uni__stage_settle_links(draft->dir, draft->dir, err));
    /* A user may hand in a copy of an older checkpoint, including its manifest and state. */
    UNI_TRY(remove_stale(draft, UNI__MANIFEST_NAME, err));
    UNI_TRY(remove_stale(draft, UNI__STATE_NAME, err));
    if (draft->state)
        UNI_TRY(write_state(draft, err));
    return uni__seal(draft->dir, &draft->manifest, err);
}

/* Renames it to its place and calls `completed`; on failure no trace remains. */
static int publish(uni__draft *draft, uni__checkpoint_info *entry, uni_error *err)
{
    uni__store *store = draft->store;
    uni__fate fate = UNI__FATE_KEEP;
    UNI_TRY(uni__store_fate(store, entry, &fate, err));
    UNI_TRY(uni__store_place(store, entry, fate == UNI__FATE_KEEP, err));
    if (!entry->kept && !uni__path_is_dir(store->recovery_dir)) {
        UNI_TRY(uni__make_dirs(store->recovery_dir, 0700, err));
        UNI_TRY(uni__fsync_parent(store->recovery_dir, err));
    }
    UNI_TRY(uni__rename_new(draft->dir, entry->path, err));
    int status = uni__fsync_parent(entry->path, err);
    if (status == 0 && store->options.completed)
        status = store->options.completed(store->options.context, entry, err);
    if (status == 0)
        status = uni__store_add(store, entry, err);
    if (status < 0) {
        uni_error why = { 0 };
        if (uni__store_delete(store, entry->path, &why) < 0)
            uni__warn("checkpoint %" PRId64 " failed but cannot be removed: %s", entry->number,
                      why.message);
    }
    return status;
}

static int write_checkpoint(uni__draft *draft, uni__checkpoint_info **out, uni_error *err)
{
    uni__checkpoint_info *entry = calloc(1, sizeof *entry);
    if (!entry)
        return no_memory(err);
    int status = complete(draft, err);
    if (status == 0) {
        const uni__manifest *manifest = &draft->manifest;
        *entry = (uni__checkpoint_info){
            .number = manifest->number,
            .iteration = manifest->iteration,
            .attempt = manifest->attempt,
            .timestamp = manifest->timestamp,
            .score = manifest->score,
            .bytes = uni__manifest_bytes(manifest),
        };
        status = publish(draft, entry, err);
    }
    if (status < 0) {
        free(entry);
        return status;
    }
    *out = entry;
    return 0;
}

int uni__draft_commit(uni__draft *draft, const uni_value *metrics, const uni_value *scores,
                      double timestamp, uni__checkpoint_info *info, uni_error *err)
{
    uni__store *store = draft->store;
    uni__checkpoint_info *entry = NULL;
    const bool none = draft->none;
    int status = describe(draft, metrics, scores, timestamp, err);
    if (status == 0 && none) {
        store->next_number++;
        if (info)
            *info = (uni__checkpoint_info){
                .number = draft->manifest.number,
                .iteration = draft->manifest.iteration,
                .attempt = draft->manifest.attempt,
                .timestamp = timestamp,
                .score = NAN,
            };
    } else if (status == 0) {
        status = write_checkpoint(draft, &entry, err);
    }
    if (status < 0 || none) {
        uni__draft_abandon(draft);
        return status;
    }
    free_draft(draft); /* its directory is now the checkpoint */
    if (info) {
        *info = *entry;
        if (!entry->kept)
            info->path[0] = '\0';
    }
    uni__store_enforce(store);
    return 0;
}
