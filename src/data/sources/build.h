/*
 * build.h - a table made row by row, for the sources of this folder whose files are rows (JSON
 * lines, text, TFRecord, SQLite). The columns are those of the source's schema; memory is the
 * reader's, recycled. The number of rows has an upper bound that is known before (lines, records),
 * so that columns of numbers are allocated once; text grows. One thread.
 *
 * A row is put column by column and then either ended or dropped; what was not put is missing.
 */
#ifndef UNISONO_DATA_BUILD_H
#define UNISONO_DATA_BUILD_H

#include "data/name_index.h"
#include "data/source.h"

typedef struct uni__build_column {
    uni_field field;
    uni_array *values, *offsets, *valid;
    int64_t row_elements; /* of NUMBER */
    int64_t used, room; /* elements of the others */
    bool put; /* in this row */
} uni__build_column;

typedef struct uni__build {
    uni__reader *reader;
    int num_columns;
    uni__build_column *columns;
    uni__name_index names;
    int64_t num_rows, max_rows;
} uni__build;

/* bytes: about how much text there will be in all columns together. */
int uni__build_begin(uni__build *build, uni__reader *reader, const uni_table *schema,
                     int64_t max_rows, int64_t bytes, uni_error *err) UNI_MUST_USE;
void uni__build_free(uni__build *build);
int uni__build_find(const uni__build *build, const char *name, size_t length); /* -1: none */

/* Numbers in the column's dtype; false (add: 0 instead of 1): it has no such value (a fraction, out of range), and the row is to be dropped. put: element `index`
 * of the row's tensor, 0 of a scalar; add: one more of a list. */
bool uni__build_put_int(uni__build *build, int column, int64_t index, int64_t value);
bool uni__build_put_float(uni__build *build, int column, int64_t index, double value);
int uni__build_add_int(uni__build *build, int column, int64_t value, uni_error *err) UNI_MUST_USE;
int uni__build_add_float(uni__build *build, int column, double value, uni_error *err) UNI_MUST_USE;
/* Where the row's numbers are (NUMBER), to be filled directly. */
void *uni__build_row(uni__build *build, int column);
/* Strings and bytes: the whole value, or (lists too) room for `elements`, of which what is used is told afterwards. */
int uni__build_put_bytes(uni__build *build, int column, const void *data, size_t size,
                         uni_error *err) UNI_MUST_USE;
int uni__build_reserve(uni__build *build, int column, int64_t elements, void **out,
                       uni_error *err) UNI_MUST_USE;
void uni__build_used(uni__build *build, int column, int64_t elements);

int uni__build_end_row(uni__build *build, uni_error *err) UNI_MUST_USE;
void uni__build_drop_row(uni__build *build);
/* The table; build is empty afterwards (also on failure). */
int uni__build_finish(uni__build *build, uni_table **out, uni_error *err) UNI_MUST_USE;

/* A schema from fields: a table of 0 rows. */
int uni__build_schema(uni_table **out, const uni_field *fields, int count,
                      uni_error *err) UNI_MUST_USE;

#endif
