/*
 * shuffle.h - rows in a keyed random order. Allocates, but is otherwise pure; any thread.
 *
 * A window of several tables is shuffled in two steps, which together make every order of all rows
 * equally likely. First the thread that made a table shuffles its rows while they are in the cache.
 * Then a random merge takes the next row from a random table. The merge reads every table
 * sequentially, where a plain shuffle of the window would access all of it at random for every
 * column.
 */
#ifndef UNISONO_DATA_SHUFFLE_H
#define UNISONO_DATA_SHUFFLE_H

#include "data/sources/source.h"
#include "data/table/table.h"

/* Shuffles rows 0 to count - 1 of one table. */
int uni__shuffle_table(uni_table **table, uni__reader *reader, uint64_t key,
                       uni_error *err) UNI_MUST_USE;
/* Computes an order of all rows of the tables; `order` has room for them. merge: rows of the same
 * table keep their order. */
int uni__shuffle_tables(uni__row *order, uni_table *const *tables, int num_tables, bool merge,
                        uint64_t key, uni_error *err) UNI_MUST_USE;

#endif
