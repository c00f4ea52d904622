/*
 * counts.h - counts the distinct values of columns, for the categorical preprocessors. For
 * src/data/preprocess only.
 *
 * Values are text or numbers. They are stored in the vocabulary of tokenize.h, numbers as canonical
 * bytes: an integer is the same value in a column of any type, and exact in all 64 bits. One thread
 * while fitting, any number of threads afterwards.
 */
#ifndef UNISONO_DATA_COUNTS_H
#define UNISONO_DATA_COUNTS_H

#include "data/preprocess/preprocess.h"
#include "data/preprocess/tokenize.h"

typedef struct uni__counts {
    uni__vocabulary values;
    bool text, real, last; /* real: floating point; last: end of the array */
} uni__counts;

typedef struct uni__key {
    const char *data;
    size_t size;
    char bytes[9]; /* a number's bytes */
} uni__key;

/* Returns false if the value is missing. */
bool uni__key_at(uni__key *key, const uni_table_column *column, int64_t row);
bool uni__is_text(const uni_table_column *column);
/* Finds the column, which must hold text or scalar numbers. */
int uni__countable(const uni_preprocessor *p, const uni_table *table, int index,
                   const uni_table_column **out, uni_error *err) UNI_MUST_USE;

/* Fitting: p->fitting is an array of uni__counts, one per column, ended by one with `last` set. */
int uni__fit_counts_begin(uni_preprocessor *p, const uni_table *schema,
                          uni_error *err) UNI_MUST_USE;
int uni__fit_counts_observe(uni_preprocessor *p, const uni_table *table,
                            uni_error *err) UNI_MUST_USE;
void uni__fit_counts_free(const uni_preprocessor *p);
void uni__counts_free(void *all); /* frees such an array */

/* Converts a stored value to a plain one. */
uni_value *uni__counts_value(const uni__counts *counts, const uni__word *word);
/* All values in sorted order; with a limit, only the most frequent ones. NULL: out of memory. */
uni_value *uni__counts_sorted(const uni__counts *counts, int64_t limit);
/* The reverse: numbers the values of a saved list. */
int uni__counts_load(uni__counts *counts, const uni_value *list, uni_error *err) UNI_MUST_USE;
/* Returns the number of a key, or -1. */
int64_t uni__counts_find(const uni__counts *counts, const uni__key *key);

#endif
