/*
 * shuffle.h - rows in a keyed random order. Pure but for the memory; any thread.
 *
 * A window of several tables is shuffled in two steps, which together give every order of all rows with the same probability: the rows of each
 * table by themselves, by the thread that made it and while it is in the cache, and then a random merge, which takes from each table its
 * next row. The merge reads every table from its beginning to its end, where a plain shuffle of the window would jump about in all of it for
 * every column.
 */
#ifndef UNISONO_DATA_SHUFFLE_H
#define UNISONO_DATA_SHUFFLE_H

#include "data/source.h"
#include "data/table.h"

/* Rows 0 to count - 1 of one table. */
int uni__shuffle_table(uni_table **table, uni__reader *reader, uint64_t key,
                       uni_error *err) UNI_MUST_USE;
/* An order of all rows of the tables (`order` has room for them); merge: the rows of each table stay in their order. */
int uni__shuffle_tables(uni__row *order, uni_table *const *tables, int num_tables, bool merge,
                        uint64_t key, uni_error *err) UNI_MUST_USE;

#endif
