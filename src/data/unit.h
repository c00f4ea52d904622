/*
 * unit.h - rows that are handed out together before the next ones: a chunk, a block, or a window of blocks in a keyed order. The consumer's side of an
 * iterator; one thread.
 */
#ifndef UNISONO_DATA_UNIT_H
#define UNISONO_DATA_UNIT_H

#include "data/execute.h"
#include "data/table.h"

typedef struct uni__unit {
    uni__task task; /* the last of its tasks */
    int64_t base; /* streams: number of the first row in the epoch */
    int64_t rows, at; /* rows in all, handed out */
    int num_tables, capacity;
    uni_table **tables;
    uni__row *order; /* from the pool; NULL: one table after the other */
    bool by_batch; /* rows between batches are not taken: gather no more than a batch */
    uni_table
        *chunk; /* rows of the order that were gathered for several batches at once, or NULL ... */
    int64_t chunk_at; /* ... and which is the first of them */
} uni__unit;

void uni__unit_clear(uni__unit *unit); /* keeps the list's memory */
void uni__unit_free(uni__unit *unit);
int uni__unit_add(uni__unit *unit, uni_table *table,
                  uni_error *err) UNI_MUST_USE; /* takes it, also when it fails */
/* All rows in an order that depends on the key and their number only; merge: the rows of each table are in theirs already (shuffle.h). */
int uni__unit_shuffle(uni__unit *unit, uni__pool *pool, bool merge, uint64_t key,
                      uni_error *err) UNI_MUST_USE;
/* The next `count` rows (there are so many) where they lie: rows from *first on of *table, which stays the unit's. 0: they do not lie in one table, and none is taken; or an
 * error. */
int uni__unit_view(uni__unit *unit, uni__reader *reader, int64_t count, const uni_table **table,
                   int64_t *first, uni_error *err) UNI_MUST_USE;
/* The next `count` rows (there are so many). */
int uni__unit_take(uni__unit *unit, uni__reader *reader, int64_t count, uni_table **out,
                   uni_error *err) UNI_MUST_USE;

#endif
