/*
 * internal.h - what the files of this module know of each other: the store's and the checkpoint's
 * insides. Only this module includes it.
 */
#ifndef UNISONO_CHECKPOINT_INTERNAL_H
#define UNISONO_CHECKPOINT_INTERNAL_H

#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
#include "checkpoint/store.h"

struct uni_checkpoint {
    char *path;
    uni__manifest manifest;
};

struct uni__store {
    char *checkpoints_dir, *recovery_dir, *staging_dir;
    char *score_attribute; /* what policy.score_attribute points to */
    uni_checkpoint_policy policy;
    uni__store_options
        options; /* for the callbacks; its pointers to text and policy are not used */
    uni__checkpoint_info **entries; /* complete ones, by number */
    size_t count, capacity;
    int64_t next_number;
    int64_t pinned; /* neither removed nor moved for now; 0: none */
};

/* A directory entry called checkpoint_NNNNNN. */
typedef struct uni__found {
    int64_t number;
    char *path;
    bool recovery;
} uni__found;
typedef struct uni__found_list {
    uni__found *items;
    size_t count, capacity;
} uni__found_list;

/* Adds what is in dir (nothing when there is no such directory). The names alone, complete or
 * not. */
int uni__find_checkpoints(uni__found_list *list, const char *dir, bool recovery,
                          uni_error *err) UNI_MUST_USE;
void uni__found_sort(uni__found_list *list); /* newest first */
void uni__found_free(uni__found_list *list);
/* uni_checkpoint_open, and it must carry the number that its name says. */
int uni__checkpoint_open_found(uni_checkpoint **out, const uni__found *found,
                               uni_error *err) UNI_MUST_USE;

/* A fresh name "<staging>/<prefix>.<random>", malloc'ed; makes the staging directory when it
 * is missing. */
int uni__staging_name(char **out, const char *staging_dir, const char *prefix,
                      uni_error *err) UNI_MUST_USE;

/* store.c, for draft.c. `add` takes the entry; `enforce` makes the disk what the policy says,
 * as far as it can: what fails is a warning and is tried again next time. */
int uni__store_add(uni__store *store, uni__checkpoint_info *entry, uni_error *err) UNI_MUST_USE;
void uni__store_enforce(uni__store *store);
/* The fate of a new checkpoint beside those that are there. */
int uni__store_fate(const uni__store *store, const uni__checkpoint_info *entry, uni__fate *fate,
                    uni_error *err) UNI_MUST_USE;
/* Where a checkpoint of that number goes, into entry->path. UNI_ELIMIT when the path is too
 * long. */
int uni__store_place(const uni__store *store, uni__checkpoint_info *entry, bool kept,
                     uni_error *err) UNI_MUST_USE;
/* Removes a complete checkpoint: out of sight by a rename first. */
int uni__store_delete(uni__store *store, const char *path, uni_error *err) UNI_MUST_USE;

#endif
