/*
 * plan.h - which elements a shard reads, in which order, and what is left of them: the arithmetic
 * of exact resume. No threads, no files.
 *
 * An epoch's order is a sequence of `elements`: rows of an indexed source, blocks of a split one,
 * rows of a stream. A shard reads a list of pieces, each a range of that sequence. A piece is read
 * in windows: a chunk of rows, a block, or several blocks that are shuffled together. The number of
 * rows in a window is known only after it was read and transformed (filter, flat_map), but it never
 * changes. So a position inside a piece is the first `window` elements and the number of their rows
 * that were already used (`skip`).
 *
 * There are two ways to share an epoch among shards:
 *   rounds  (indexed sources, one row in, one row out) All shards go through the same single piece
 *           in rounds of num_shards batches, and each takes its part of every round. The state is
 *           one number, equal on all ranks, and batches do not depend on the number of shards.
 *           If rows cannot be read by index, each shard reads all rounds: run/common_batches.h.
 *   ranges  (all others) Each shard has its own pieces. The states of all ranks together describe
 *           what is left. Pieces are cut by elements or, with a layout (the blocks were counted),
 *           by rows. A block that two shards share is a piece of its own for each of them, which
 *           ends at the row `stop`.
 * A file shard (file_shards.c) is a dataset of some of the files: iterators see a single shard.
 *
 * A state as a dictionary (kept in checkpoints; docs/formats.md):
 *   {"version": 1, "elements": n, "rounds": 0|1, "shards": w, "epoch": first epoch after those of
 *    the pieces, "end": epochs, -1 endless,
 *    "pieces": [[epoch, begin, end, window, skip] or [epoch, begin, end, window, skip, stop], ...]}
 * A state for all ranks (run/batch_counts.h) also has "all": 1 and "taken", the batches of the
 * epoch that were taken.
 */
#ifndef UNISONO_DATA_PLAN_H
#define UNISONO_DATA_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/status.h>
#include <unisono/value.h>

typedef struct uni__piece {
    int64_t epoch, begin, end; /* end INT64_MAX: a stream */
    /* The first `window` elements gave rows, of which `skip` were used; 0, 0: nothing was read
     * yet. */
    int64_t window, skip;
    /* If > 0, the piece is one window, and its rows from here on belong to another shard. */
    int64_t stop;
} uni__piece;

struct uni__layout; /* layout.h */

/* What there is to read, independent of any state. */
typedef struct uni__plan_options {
    int64_t elements; /* INT64_MAX: a stream */
    bool rounds;
    int64_t window; /* Elements in a window; in rounds, this shard's rows in a task. */
    int64_t task; /* ranges: elements in a task, at most a window */
    /* Makes the first rows arrive early. Ranges: the first window of a piece is one task, and each
     * following window doubles; the order depends on this. Rounds: the first task is one round, the
     * next two, and so on; the order does not depend on it. */
    bool ramp;
    /* Ranges of rows: size of the first window of a piece, which then doubles; 0: as above. */
    int64_t first;
    /* If elements are rows: the smallest window, because a function wants this many rows at once;
     * 0: any size. */
    int64_t least;
    bool any_window; /* If elements are rows: windows may shrink (uni__plan_fit). */
    int64_t batch; /* rounds: this shard's rows in a round */
    /* Rounds: rows of all shards in a round, and where this shard's rows begin. round 0: `batch`
     * rows for each shard. */
    int64_t round, offset;
    bool drop_remainder; /* rounds: drop a partial last round */
    int shard, num_shards;
    int64_t first_epoch, end_epoch; /* end -1: endless */
    struct uni__layout *layout; /* Ranges: cut shards by rows; borrowed. NULL: cut by elements. */
} uni__plan_options;

/* One unit of work, in the order in which its rows are used. */
typedef struct uni__task {
    int64_t epoch;
    /* Elements of the order to read; in rounds, positions from begin (see uni__plan_position). */
    int64_t begin, count;
    int64_t window_begin, window_count; /* the window that the task belongs to */
    int64_t skip; /* rows of the window to skip */
    int64_t stop; /* If > 0, rows of the window from here on belong to another shard. */
    int64_t piece_end;
    int piece; /* index into the resumed state; num_pieces: the epoch's own share */
    bool last_of_window;
    bool end_of_epoch; /* nothing to read: the epoch is over */
} uni__task;

typedef struct uni__plan {
    uni__plan_options options;
    int num_pieces;
    uni__piece *pieces; /* what the state left for this shard; empty without a state */
    int64_t start_epoch; /* first epoch of which the shard reads its own share */
    int64_t own_epoch; /* the next such epoch */
    uni__piece own[4]; /* the share of the epoch before own_epoch */
    int own_count, own_at; /* ... and the next piece of it */
    /* The next task. */
    int piece;
    uni__piece now;
    int64_t window_begin, window_left, window_count, window_next;
    int64_t rounds_next; /* rounds in the next task while tasks grow */
    bool in_epoch, over;
} uni__plan;

/* state may be NULL. Returns UNI_EMISMATCH if it was made over other data, UNI_EFORMAT if it is not
 * a state. */
int uni__plan_open(uni__plan *plan, const uni__plan_options *options, const uni_value *state,
                   uni_error *err) UNI_MUST_USE;
void uni__plan_close(uni__plan *plan);
/* Returns false at the end of the last epoch. */
bool uni__plan_next(uni__plan *plan, uni__task *out);
/* Reports the memory and time that a task of `rows` rows took. Windows shrink if rows turn out
 * larger or slower than the source suggested, such as functions that turn names into images. The
 * order does not depend on it. */
void uni__plan_fit(uni__plan *plan, int64_t rows, size_t bytes, uint64_t ns);
/* Moves the end to a later epoch; uni__plan_next may return tasks again. */
void uni__plan_extend(uni__plan *plan, int64_t end_epoch);

/* Rounds: position in the order of the i-th row that this shard reads of a task. */
int64_t uni__plan_position(const uni__plan *plan, const uni__task *task, int64_t i);
/* Rounds: the position of all shards after this shard took `rows` of the task's rows. */
int64_t uni__plan_position_after(const uni__plan *plan, const uni__task *task, int64_t rows);

/* This shard's pieces of the next epoch, for callers that count rows without reading them. Valid
 * until the next call. Returns false at the end. */
bool uni__plan_epoch(uni__plan *plan, const uni__piece **pieces, int *count);
/* Ranges with a layout: what is left of an epoch's pieces after `used` of their rows. `out` has
 * room for `count` pieces; returns how many are left. */
int uni__plan_rest(const uni__plan_options *options, const uni__piece *pieces, int count,
                   int64_t used, uni__piece *out);

/* The state after a task. Rounds: `used` is the position that all shards have reached. Ranges: rows
 * of the task's window that were used, or UNI__WHOLE_WINDOW. NULL task: nothing was read yet. */
#define UNI__WHOLE_WINDOW (-1)
int uni__plan_state(const uni__plan *plan, const uni__task *task, int64_t used, uni_value **out,
                    uni_error *err) UNI_MUST_USE;

/* The same from pieces of one rank or of all. epoch: as in the state. */
int uni__plan_state_of(const uni__plan_options *options, const uni__piece *pieces, int count,
                       int64_t epoch, uni_value **out, uni_error *err) UNI_MUST_USE;
/* plan_state.c: restores the pieces that a state leaves for this shard. */
int uni__plan_resume(uni__plan *plan, const uni_value *state, uni_error *err) UNI_MUST_USE;
void uni__plan_sort(uni__piece *pieces, int count); /* by epoch and position */
int uni__plan_add_piece(uni__plan *plan, const uni__piece *piece, uni_error *err) UNI_MUST_USE;
/* This shard's part of a whole epoch, as at most 4 pieces. */
int uni__plan_own_share(const uni__plan_options *options, int64_t epoch, uni__piece *out);
/* This shard's part [*begin, *end) of `rows` rows that all shards use up in rounds. */
void uni__plan_share_rows(const uni__plan_options *options, int64_t rows, int64_t *begin,
                          int64_t *end);

/* Where the part at `offset` of a round begins in a last round of fewer rows. No part is larger
 * than in a full round. */
static inline int64_t uni__part(int64_t rows, int64_t offset, int64_t round)
{
    return (int64_t)((__int128)rows * offset / round);
}

/* Where the part of shard i of n of [0, total) begins. */
static inline int64_t uni__share(int64_t total, int i, int n)
{
    return total / n * i + total % n * i / n;
}

#endif
