/*
 * attempt.h - one start of the group: which one it is, what it starts from, and how it goes so far.
 * Starting the workers is attempt.c's other half (run_internal.h). [controller]
 */
#ifndef UNISONO_TRAIN_ATTEMPT_H
#define UNISONO_TRAIN_ATTEMPT_H

#include <unisono/value.h>

#include "group/page.h"
#include "train/cause.h"

/* A checkpoint on disk, a dictionary in memory, or neither. */
typedef struct uni__start {
    char path[4096]; /* "": none */
    int fd; /* -1: none */
    int64_t iteration; /* reports of the attempt are counted on from here */
    uni_value *state; /* of all ranks at that checkpoint, a list by rank; or NULL */
    uni_value *data_states; /* its positions in datasets, merged for any number of ranks; or NULL */
    bool pinned; /* the checkpoint is kept for ranks that start late */
} uni__start;

typedef struct uni__attempt {
    int number; /* from 1 */
    uint64_t begun_ns, failed_ns;
    uint64_t last_report_ns; /* 0: just now; the clock is read once a round */
    uni__start start;
    uni__cause held; /* a failure that may be another's consequence; kind NONE: there is none */
    uint64_t held_until_ns;
    char victims[512];
    /* Ranks that are replaced (replace.c). */
    uint32_t group; /* number of the present group of ranks, from 1 */
    int joining; /* replacements that are not over */
    uni__cause lost; /* of the first of them */
    uint64_t lost_ns;
    bool closed; /* all ranks have ended their fit: no other group follows */
    uint64_t awaited_ns; /* since then ranks ask for another group; 0: they do not */
    int vain; /* groups in a row that were made for such a wish */
    uint64_t vain_ns; /* the last of them */
    uni__members members; /* of the group; count 0: all ranks (resize.c) */
    uint64_t ready_ns; /* since then ranks wait to be let in; 0: none does */
    const char *fixed_by; /* why the number of workers is not what was asked for; NULL: nothing */
} uni__attempt;

/* In place of what there was: takes fd (-1: none) and state. */
void uni__start_set(uni__start *start, const char *path, int fd, uni_value *state);
void uni__start_clear(uni__start *start);
bool uni__start_is_empty(const uni__start *start);

#endif
