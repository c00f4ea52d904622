/*
 * state.h - the controller's half of the state channel: what ranks said of their state, until the
 * checkpoints that it belongs to are complete.
 *
 * A report carries the rank's state (checkpoint/state.h: a section) when it has changed since the
 * report before. Whether some rank hands in a checkpoint of that iteration is not known yet, so a
 * log keeps each rank's sections by iteration until every rank has passed them: a section holds
 * from its iteration to the next one's. In a group that steps together a log has one or two
 * entries. [controller]
 */
#ifndef UNISONO_TRAIN_STATE_H
#define UNISONO_TRAIN_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/value.h>

#include "checkpoint/state.h"

/* Bytes that the log of a rank holds at most. A rank that is further ahead of the others loses
 * its oldest sections. */
#define UNI__STATE_LOG_MAX ((size_t)64 << 20)
/* How positions in datasets are called in a section: this and the dataset's name. */
#define UNI__STATE_DATASET "dataset/"
bool uni__state_is_dataset(const char *name);

typedef struct uni__state_entry {
    int64_t iteration;
    void *bytes;
    size_t size;
} uni__state_entry;

typedef struct uni__state_log {
    uni__state_entry *entries; /* oldest first */
    int count;
    size_t capacity;
    size_t bytes;
} uni__state_log;

/* Copies the section. UNI_ENOMEM; UNI_ELIMIT when older sections had to go, and the new one was
 * kept. */
int uni__state_log_add(uni__state_log *log, int64_t iteration, const void *section, size_t size,
                       uni_error *err) UNI_MUST_USE;
/* Every rank has passed that iteration: what held only before it goes. */
void uni__state_log_passed(uni__state_log *log, int64_t iteration);
/* What held at that iteration; bytes NULL: nothing is known. */
uni__state_section uni__state_log_at(const uni__state_log *log, int64_t iteration);
void uni__state_log_clear(uni__state_log *log);

/* {name: state} of all datasets from the sections of all ranks (a list by rank): what is left to
 * read, for any number of ranks. A dataset of which not all ranks said where they stood is left
 * out with a warning. NULL without memory. */
uni_value *uni__state_merge_datasets(const uni_value *ranks);
/* Adds "data_states" and "state" to the order of that rank. ranks may be NULL. A group of
 * another size gets no single rank's positions. */
int uni__state_add_to_order(uni_value *order, const uni_value *ranks, const uni_value *data_states,
                            int rank, int size);

#endif
