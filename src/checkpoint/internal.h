/*
 * internal.h - the internals of the store and the checkpoint, shared by the files of this module.
 * Only this module includes it.
 */
#ifndef UNISONO_CHECKPOINT_INTERNAL_H
#define UNISONO_CHECKPOINT_INTERNAL_H

#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"
#include "checkpoint/store.h"

struct uni_checkpoint {
    char *path;
    uni__manifest manifest;
    uni_checkpoint_info info; /* filled by uni_checkpoint_info_of */
};

struct uni__store {
    char *checkpoints_dir, *recovery_dir, *staging_dir;
    char *score_attribute; /* owns policy.score_attribute */
    uni_checkpoint_policy policy;
    /* For the callbacks; its pointers to text and policy are not used. */
    uni__store_options options;
    uni__checkpoint_info **entries; /* complete ones, by number */
    size_t count, capacity;
    int64_t next_number;
    int64_t pinned; /* not removed or moved for now; 0: none */
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

/* Adds what is in dir (nothing when it does not exist). Names only, complete or not. */
int uni__find_checkpoints(uni__found_list *list, const char *dir, bool recovery,
                          uni_error *err) UNI_MUST_USE;
void uni__found_sort(uni__found_list *list); /* newest first */
void uni__found_free(uni__found_list *list);
/* uni_checkpoint_open, which must find the number that the name says. */
int uni__checkpoint_open_found(uni_checkpoint **out, const uni__found *found,
                               uni_error *err) UNI_MUST_USE;

/* A fresh name "<staging>/<prefix>.<random>", malloc'ed; creates the staging directory if it is
 * missing. */
int uni__staging_name(char **out, const char *staging_dir, const char *prefix,
                      uni_error *err) UNI_MUST_USE;

/* store.c, for draft.c. `add` takes ownership of the entry. `enforce` applies the policy to the
 * disk as far as possible: a failure is a warning, and the next call retries. */
int uni__store_add(uni__store *store, uni__checkpoint_info *entry, uni_error *err) UNI_MUST_USE;
void uni__store_enforce(uni__store *store);
/* The fate of a new checkpoint beside the existing ones. */
int uni__store_fate(const uni__store *store, const uni__checkpoint_info *entry, uni__fate *fate,
                    uni_error *err) UNI_MUST_USE;
/* Sets entry->path to the place of a checkpoint of that number. UNI_ELIMIT when the path is too
 * long. */
int uni__store_place(const uni__store *store, uni__checkpoint_info *entry, bool kept,
                     uni_error *err) UNI_MUST_USE;
/* Removes a complete checkpoint, after hiding it by a rename. */
int uni__store_delete(uni__store *store, const char *path, uni_error *err) UNI_MUST_USE;

#endif
