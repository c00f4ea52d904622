/*
 * plan.h - which elements a shard reads, in which order, and what is left of them: the arithmetic of exact resume. No threads, no files.
 *
 * An epoch's order is a sequence of `elements`: rows of an indexed source, blocks of a split one, rows of a stream. What a shard has to read of it
 * is a list of pieces, each a range of that sequence. A piece is read in units (a chunk of rows, a block, a window of blocks that is shuffled
 * together); how many rows a unit gives is known only when it was read and transformed (filter, flat_map), but always the same. So the place
 * inside of a piece is: the first `unit` elements, and how many of the rows that they give were already used (`skip`).
 *
 * Two ways to share an epoch among shards:
 *   rounds  (indexed sources and streams, one row in one row out) all shards go through the same single piece in rounds of num_shards batches, each
 *           takes its part of every round. The state is one number, the same for all ranks, and batches do not depend on the number of shards.
 *   ranges  (the others) each shard has its own pieces. The states of all ranks together are what is left. Pieces are cut by elements, or (with a layout: the
 *           blocks were counted) by rows; a block that two shards have their part of is a piece of its own for each of them, which ends at the row `stop`.
 *
 * A state as a dictionary (kept in checkpoints; docs/formats.md):
 *   {"version": 1, "elements": n, "rounds": 0|1, "shards": w, "epoch": first epoch that the pieces do not speak of, "end": epochs, -1 endless,
 *    "pieces": [[epoch, begin, end, unit, skip] or [epoch, begin, end, unit, skip, stop], ...]}
 * One that speaks for all ranks (equal.h) has "all": 1 and "taken", the batches of the epoch besides.
 */
#ifndef UNISONO_DATA_PLAN_H
#define UNISONO_DATA_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/status.h>
#include <unisono/value.h>

typedef struct uni__piece {
    int64_t epoch, begin, end; /* end INT64_MAX: a stream */
    int64_t unit,
        skip; /* the first `unit` elements gave rows of which `skip` were used; 0, 0: nothing of it was read */
    int64_t stop; /* > 0: the piece is one unit, whose rows from here on are not its own */
} uni__piece;

struct uni__layout; /* layout.h */

/* What there is to read: given, before any state. */
typedef struct uni__plan_options {
    int64_t elements; /* INT64_MAX: a stream */
    bool rounds;
    int64_t unit; /* elements of a unit: in rounds, rows of this shard in a task */
    int64_t task; /* ranges: elements of a task, at most a unit */
    /* So that the first rows come soon. Ranges: a piece begins with a unit of one task and doubles from there (which the order depends on). Rounds: the first task
     * is one round, the next one two ... (which it does not). */
    bool ramp;
    int64_t first; /* ranges of rows: of the first unit of a piece, which doubles; 0: as above */
    int64_t
        least; /* elements are rows: what a function wants at once, which no unit is smaller than; 0: any */
    bool any_unit; /* elements are rows: units may become smaller (uni__plan_fit) */
    int64_t batch; /* rounds: rows of this shard in a round ... */
    int64_t round,
        offset; /* ... of so many rows of all shards, and where its own begin; round 0: batch rows for each shard */
    bool drop_remainder; /* rounds: a last round that is not full is left out */
    int shard, num_shards;
    int64_t first_epoch, end_epoch; /* end -1: endless */
    struct uni__layout *layout; /* ranges: shards are cut by rows; borrowed. NULL: by elements */
} uni__plan_options;

/* One piece of work, in the order in which its rows are used. */
typedef struct uni__task {
    int64_t epoch;
    int64_t begin,
        count; /* elements of the order to read; rounds: positions from begin, see uni__plan_position */
    int64_t unit_begin, unit_count; /* the unit that it belongs to */
    int64_t skip; /* rows of the unit to leave out */
    int64_t stop; /* > 0: rows of the unit from here on are another shard's */
    int64_t piece_end; /* where the piece ends */
    int piece; /* of the state it was resumed from; -1: an epoch's own share */
    bool last_of_unit;
    bool end_of_epoch; /* nothing to read: the epoch is over */
} uni__task;

typedef struct uni__plan {
    uni__plan_options options;
    int num_pieces;
    uni__piece *pieces; /* what the state left to this shard; empty without one */
    int64_t start_epoch; /* from here on the shard's own share of each epoch ... */
    int64_t own_epoch; /* ... of which this is the next */
    uni__piece own[4]; /* the share of the epoch before it ... */
    int own_count, own_at; /* ... and how much of it was begun */
    /* the next task */
    int piece;
    uni__piece now;
    int64_t unit_begin, unit_left, unit_count, unit_next;
    int64_t rounds_next; /* while it grows */
    bool in_epoch, over;
} uni__plan;

/* state may be NULL. When it was made over other data or is not one, UNI_EMISMATCH or UNI_EFORMAT. */
int uni__plan_open(uni__plan *plan, const uni__plan_options *options, const uni_value *state,
                   uni_error *err) UNI_MUST_USE;
void uni__plan_close(uni__plan *plan);
/* false when there is nothing more in any epoch. */
bool uni__plan_next(uni__plan *plan, uni__task *out);
/* A task of so many rows took that much memory and time: units of rows become smaller when they turn out larger or slower than their source looked (functions
 * that make images of names). The order does not depend on it. */
void uni__plan_fit(uni__plan *plan, int64_t rows, size_t bytes, uint64_t ns);
/* Later than it was; next may give tasks again. */
void uni__plan_extend(uni__plan *plan, int64_t end_epoch);

/* rounds: the place in the order of the i-th row that this shard reads of a task. */
int64_t uni__plan_position(const uni__plan *plan, const uni__task *task, int64_t i);
/* rounds: where all shards stand when this shard took `rows` of the task's rows. */
int64_t uni__plan_position_after(const uni__plan *plan, const uni__task *task, int64_t rows);

/* The next epoch's pieces of this shard, for whoever counts and reads none of it. They are valid until the next call. false: there is none. */
bool uni__plan_epoch(uni__plan *plan, const uni__piece **pieces, int *count);
/* Ranges: what is left of pieces of one epoch after so many rows of them: `out` has room for as many pieces, the result is their number. Of the options' layout. */
int uni__plan_rest(const uni__plan_options *options, const uni__piece *pieces, int count,
                   int64_t used, uni__piece *out);

/* What is left after a task: rounds: `used` is the place in the order that all shards have reached; ranges: rows of the task's unit
 * that were used, UNI__WHOLE_UNIT for all of them. NULL task: nothing was read yet. */
#define UNI__WHOLE_UNIT (-1)
int uni__plan_state(const uni__plan *plan, const uni__task *task, int64_t used, uni_value **out,
                    uni_error *err) UNI_MUST_USE;

/* The same of pieces, of all ranks or of one. epoch: as in the state. */
int uni__plan_state_of(const uni__plan_options *options, const uni__piece *pieces, int count,
                       int64_t epoch, uni_value **out, uni_error *err) UNI_MUST_USE;
/* plan_state.c: the pieces that a state leaves to this shard. */
int uni__plan_resume(uni__plan *plan, const uni_value *state, uni_error *err) UNI_MUST_USE;
void uni__plan_sort(uni__piece *pieces, int count); /* by epoch and place */
int uni__plan_add_piece(uni__plan *plan, const uni__piece *piece, uni_error *err) UNI_MUST_USE;
/* This shard's own part of a whole epoch, as at most 4 pieces. */
int uni__plan_own_share(const uni__plan_options *options, int64_t epoch, uni__piece *out);
/* Which of `rows` are this shard's, when all shards together use them up in rounds: [*begin, *end). */
void uni__plan_share_rows(const uni__plan_options *options, int64_t rows, int64_t *begin,
                          int64_t *end);

/* Where the part that begins at `offset` of a round begins in a last one of fewer rows. No part becomes larger by it than it is in a full round. */
static inline int64_t uni__part(int64_t rows, int64_t offset, int64_t round)
{
    return (int64_t)((__int128)rows * offset / round);
}

/* The part of [0, total) that shard i of n has. */
static inline int64_t uni__share(int64_t total, int i, int n)
{
    return total / n * i + total % n * i / n;
}

#endif
