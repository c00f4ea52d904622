/*
 * layout.h - the rows of an epoch in the block order, given the row count of each block: maps
 * positions of the order to rows and cuts pieces by rows. Pure arithmetic; one thread at a time per
 * layout.
 */
#ifndef UNISONO_DATA_LAYOUT_H
#define UNISONO_DATA_LAYOUT_H

#include "data/plan/plan.h"

struct uni_dataset;

typedef struct uni__layout {
    const struct uni_dataset *dataset; /* borrowed, for the order of an epoch */
    const int64_t *block_rows; /* borrowed; rows of each block after all stages */
    int64_t blocks;
    int64_t epoch; /* epoch that `starts` describes; -1: none yet */
    int64_t *starts; /* blocks + 1 values: rows before each position of the epoch's order */
} uni__layout;

int uni__layout_open(uni__layout *layout, const struct uni_dataset *dataset,
                     const int64_t *block_rows, uni_error *err) UNI_MUST_USE;
void uni__layout_close(uni__layout *layout);
void uni__layout_epoch(uni__layout *layout, int64_t epoch); /* call before the functions below */

/* Row count of positions [begin, end). */
static inline int64_t uni__layout_between(const uni__layout *layout, int64_t begin, int64_t end)
{
    return layout->starts[end] - layout->starts[begin];
}
/* The position that holds this row of the epoch. */
int64_t uni__layout_place(const uni__layout *layout, int64_t row);
/* Rows in a piece's first window if that window is fixed, because it was begun or shared out;
 * otherwise 0. */
int64_t uni__layout_first_window(const uni__layout *layout, const uni__piece *piece);
int64_t uni__layout_rows(const uni__layout *layout, const uni__piece *piece);
/* Cuts rows [from, to) out of the concatenated pieces of an epoch. Writes at most 4 pieces per
 * input piece. Windows that were begun stay intact. Elsewhere only the block that contains a cut
 * becomes a window of its own, and both sides read it. */
int uni__layout_cut(const uni__layout *layout, const uni__piece *pieces, int count, int64_t from,
                    int64_t to, uni__piece *out);

#endif
