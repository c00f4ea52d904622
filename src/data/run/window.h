/*
 * window.h - rows that are handed out before any later ones: a chunk, a block, or a window of
 * blocks in a keyed order. The consumer's side of an iterator; one thread.
 */
#ifndef UNISONO_DATA_WINDOW_H
#define UNISONO_DATA_WINDOW_H

#include "data/run/execute.h"
#include "data/table/table.h"

typedef struct uni__window {
    uni__task task; /* the last of its tasks */
    int64_t base; /* streams: number of the first row in the epoch */
    int64_t rows, at; /* total rows, and rows handed out */
    int num_tables, capacity;
    uni_table **tables;
    uni__row *order; /* from the pool; NULL: the tables in sequence */
    /* Rows of the order gathered for several batches at once, or NULL. */
    uni_table *chunk;
    int64_t chunk_at; /* position of the chunk's first row */
} uni__window;

void uni__window_clear(uni__window *window); /* keeps the memory of the list */
void uni__window_free(uni__window *window);
/* Takes ownership of the table, even on failure. */
int uni__window_add(uni__window *window, uni_table *table, uni_error *err) UNI_MUST_USE;
/* Orders all rows by the key and their number alone. merge: the rows of each table are already
 * shuffled (shuffle.h). */
int uni__window_shuffle(uni__window *window, uni__pool *pool, bool merge, uint64_t key,
                        uni_error *err) UNI_MUST_USE;
/* Returns the next `count` rows in place: rows from *first on of *table, which the window still
 * owns. The window must have that many. Returns 0 and takes none if they are not in one table; or
 * an error. */
int uni__window_view(uni__window *window, uni__reader *reader, int64_t count,
                     const uni_table **table, int64_t *first, uni_error *err) UNI_MUST_USE;
/* Takes the next `count` rows; the window must have that many. */
int uni__window_take(uni__window *window, uni__reader *reader, int64_t count, uni_table **out,
                     uni_error *err) UNI_MUST_USE;

#endif
