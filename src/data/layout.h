/*
 * layout.h - the rows of an epoch in the block order, where the blocks were counted: which place of the order has which rows, and pieces cut by rows. Arithmetic only; whoever
 * has a layout uses it on one thread at a time.
 */
#ifndef UNISONO_DATA_LAYOUT_H
#define UNISONO_DATA_LAYOUT_H

#include "data/plan.h"

struct uni_dataset;

typedef struct uni__layout {
    const struct uni_dataset *dataset; /* borrowed, for the order of an epoch */
    const int64_t *block_rows; /* borrowed: rows of each block, after all stages */
    int64_t blocks;
    int64_t epoch; /* that starts speaks of; -1: none yet */
    int64_t *starts; /* blocks + 1: the rows before each place of the epoch's order */
} uni__layout;

int uni__layout_open(uni__layout *layout, const struct uni_dataset *dataset,
                     const int64_t *block_rows, uni_error *err) UNI_MUST_USE;
void uni__layout_close(uni__layout *layout);
void uni__layout_epoch(uni__layout *layout, int64_t epoch); /* before what follows is asked of it */

/* Rows of places [begin, end). */
static inline int64_t uni__layout_between(const uni__layout *layout, int64_t begin, int64_t end)
{
    return layout->starts[end] - layout->starts[begin];
}
/* The place that has this row of the epoch. */
int64_t uni__layout_place(const uni__layout *layout, int64_t row);
/* Rows that a piece's first unit gives, when that one is fixed already (it was begun, or shared out), otherwise 0. */
int64_t uni__layout_first_unit(const uni__layout *layout, const uni__piece *piece);
int64_t uni__layout_rows(const uni__layout *layout, const uni__piece *piece);
/* Rows [from, to) of what the pieces of an epoch give one after the other, as pieces of their own: at most 4 for each of them. Units that were begun stay what they are; elsewhere
 * only the block in which a cut lies is a unit for itself, which both sides read. */
int uni__layout_cut(const uni__layout *layout, const uni__piece *pieces, int count, int64_t from,
                    int64_t to, uni__piece *out);

#endif
