/*
 * counts.h - the values of columns and how often they come, for the preprocessors of categories. For src/data/preprocess only.
 *
 * Values are text or numbers; they are kept in the vocabulary of tokenize.h, a number by its canonical bytes: a whole number is the same value in a column of any type,
 * and exact to the last of its 64 bits. One thread while fitting, any number of them afterwards.
 */
#ifndef UNISONO_DATA_COUNTS_H
#define UNISONO_DATA_COUNTS_H

#include "data/preprocess/preprocess.h"
#include "data/preprocess/tokenize.h"

typedef struct uni__counts {
    uni__vocabulary values;
    bool text, real, last; /* real: numbers of floating point; last: behind the last column */
} uni__counts;

typedef struct uni__key {
    const char *data;
    size_t size;
    char bytes[9]; /* of a number */
} uni__key;

/* false: the value is missing. */
bool uni__key_at(uni__key *key, const uni_table_column *column, int64_t row);
bool uni__is_text(const uni_table_column *column);
/* The column, which must be text or single numbers. */
int uni__countable(const uni_preprocessor *p, const uni_table *table, int index,
                   const uni_table_column **out, uni_error *err) UNI_MUST_USE;

/* Fitting: p->fitting is an array of uni__counts, one a column and `last`. */
int uni__fit_counts_begin(uni_preprocessor *p, const uni_table *schema,
                          uni_error *err) UNI_MUST_USE;
int uni__fit_counts_observe(uni_preprocessor *p, const uni_table *table,
                            uni_error *err) UNI_MUST_USE;
void uni__fit_counts_free(const uni_preprocessor *p);
void uni__counts_free(void *all); /* such an array */

/* A value as plain data. */
uni_value *uni__counts_value(const uni__counts *counts, const uni__word *word);
/* All in sorted order, as plain data; with a limit only the most frequent of them. NULL: no memory. */
uni_value *uni__counts_sorted(const uni__counts *counts, int64_t limit);
/* The other way round: values of a saved list get their numbers. */
int uni__counts_load(uni__counts *counts, const uni_value *list, uni_error *err) UNI_MUST_USE;
/* The number of a key, or -1. */
int64_t uni__counts_find(const uni__counts *counts, const uni__key *key);

#endif
