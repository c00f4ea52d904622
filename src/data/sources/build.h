/*
 * build.h - builds a table row by row, for the row-based formats of this folder (JSON lines, text,
 * TFRecord, SQLite). The columns are those of the source's schema; memory comes from the reader and
 * is recycled. An upper bound of the row count (lines, records) is known in advance, so numeric
 * columns are allocated once; text grows. One thread.
 *
 * A row is filled column by column and then either ended or dropped. Columns that were not filled
 * are missing.
 */
#ifndef UNISONO_DATA_BUILD_H
#define UNISONO_DATA_BUILD_H

#include "data/table/name_index.h"
#include "data/sources/source.h"

typedef struct uni__build_column {
    uni_field field;
    uni_array *values, *offsets, *valid;
    int64_t row_elements; /* NUMBER only */
    int64_t used, room; /* elements, for the other kinds */
    bool put; /* filled in this row */
} uni__build_column;

typedef struct uni__build {
    uni__reader *reader;
    int num_columns;
    uni__build_column *columns;
    uni__name_index names;
    int64_t num_rows, max_rows;
} uni__build;

/* bytes: estimated size of the text in all columns together. */
int uni__build_begin(uni__build *build, uni__reader *reader, const uni_table *schema,
                     int64_t max_rows, int64_t bytes, uni_error *err) UNI_MUST_USE;
void uni__build_free(uni__build *build);
int uni__build_find(const uni__build *build, const char *name, size_t length); /* -1: not found */

/* Stores a number in the column's dtype. Returns false (add: 0 instead of 1) if the dtype cannot
 * hold it (a fraction, out of range); the caller then drops the row. put: element `index` of the
 * row's tensor, 0 for a scalar; add: appends to a list. */
bool uni__build_put_int(uni__build *build, int column, int64_t index, int64_t value);
bool uni__build_put_float(uni__build *build, int column, int64_t index, double value);
int uni__build_add_int(uni__build *build, int column, int64_t value, uni_error *err) UNI_MUST_USE;
int uni__build_add_float(uni__build *build, int column, double value, uni_error *err) UNI_MUST_USE;
/* The memory of the row's numbers (NUMBER), to be filled directly. */
void *uni__build_row(uni__build *build, int column);
/* Strings and bytes: stores the whole value, or reserves room for `elements` (lists too); the
 * caller then tells how many it used. */
int uni__build_put_bytes(uni__build *build, int column, const void *data, size_t size,
                         uni_error *err) UNI_MUST_USE;
int uni__build_reserve(uni__build *build, int column, int64_t elements, void **out,
                       uni_error *err) UNI_MUST_USE;
void uni__build_used(uni__build *build, int column, int64_t elements);

int uni__build_end_row(uni__build *build, uni_error *err) UNI_MUST_USE;
void uni__build_drop_row(uni__build *build);
/* Returns the table. `build` is empty afterwards, even on failure. */
int uni__build_finish(uni__build *build, uni_table **out, uni_error *err) UNI_MUST_USE;

/* Builds a schema from fields: an empty table. */
int uni__build_schema(uni_table **out, const uni_field *fields, int count,
                      uni_error *err) UNI_MUST_USE;

#endif
