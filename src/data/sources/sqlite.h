/*
 * sqlite.h - a SQLite file as a source, shared by its three files. sqlite_rows.c turns statements
 * into tables, sqlite_ranges.c cuts a table or a query into ranges of rowids or of a key, sqlite.c
 * opens files and chooses the kind of source.
 */
#ifndef UNISONO_DATA_SQLITE_H
#define UNISONO_DATA_SQLITE_H

#include <unisono/data_readers.h>
#include "base/text.h"
#include "data/sources/source.h"
#include "data/sources/sqlite_plugin.h"

#define UNI__SQLITE_ROWS 4096 /* in a block of a table; for others, read at once */

typedef struct uni__sqlite {
    const uni__sqlite_plugin *plugin;
    uni__files *files; /* exactly one */
    char *sql; /* selects all rows; for a table with ?1 and ?2 as rowids */
    uni_table *schema;
    int64_t first, last; /* rowids, or key values */
    int64_t num_blocks, block_rows; /* block_rows: key values per block, not all of which exist. */
    char *columns, *from, *key; /* Selected columns, "FROM ...", and the quoted name of the key. */
    bool nulls; /* by key: the first block holds the rows without a key */
} uni__sqlite;

typedef struct uni__sqlite_query {
    void *database, *statement;
} uni__sqlite_query;

const char *uni__sqlite_path(const uni__sqlite *self);
/* first and last: see sqlite_plugin.h. */
int uni__sqlite_open(const uni__sqlite *self, uni__sqlite_query *query, const char *sql,
                     int64_t first, int64_t last, uni_error *err) UNI_MUST_USE;
void uni__sqlite_close(const uni__sqlite *self, uni__sqlite_query *query);
/* Reads up to max_rows rows of the statement; *more: there may be others. */
int uni__sqlite_rows(const uni__sqlite *self, void *statement, uni__reader *reader,
                     int64_t max_rows, uni_table **out, bool *more, uni_error *err) UNI_MUST_USE;
/* Reads all rows of the statement, a few thousand at a time, because the row count of a rowid or
 * key range is unknown. */
int uni__sqlite_all_rows(const uni__sqlite *self, void *statement, uni__reader *reader,
                         uni_table **out, uni_error *err) UNI_MUST_USE;
/* Reads one row of integers. Returns false if there is no such row. sql may be NULL: false. */
bool uni__sqlite_numbers(const uni__sqlite *self, const char *sql, int64_t first, int64_t last,
                         int count, int64_t *out);
void uni__sqlite_add_name(
    uni__text *sql,
    /* Appends `name`, quoted. In double quotes SQLite would take an unknown column for text. */
    const char *name);
/* Sizes blocks to at least this many values between first and last, and at most this many blocks
 * (three are always allowed). */
void uni__sqlite_size_blocks(uni__sqlite *self, int64_t least_values, int64_t most_blocks);

/* ---- sqlite_ranges.c ---- */

#define UNI__SQLITE_ROWID "rowid" /* the default key of a table */

/* Which rows: all; those without and with a key; those of a range without and with its end. */
typedef enum uni__sqlite_condition {
    UNI__SQLITE_ALL,
    UNI__SQLITE_NO_KEY,
    UNI__SQLITE_SOME_KEY,
    UNI__SQLITE_RANGE,
    UNI__SQLITE_LAST_RANGE
} uni__sqlite_condition;

/* Builds the parts that all statements of a source share: columns, from and key. */
int uni__sqlite_parts(uni__sqlite *self, const char *what, bool is_query,
                      const uni_sqlite_options *options, uni_error *err) UNI_MUST_USE;
/* SELECT what FROM ... WHERE ... [ORDER BY key]; the caller frees it. NULL: out of memory. */
char *uni__sqlite_select(const uni__sqlite *self, const char *what, uni__sqlite_condition condition,
                         bool ordered);
/* Makes ranges of key values the blocks; num_blocks 0: chosen. Returns UNI_EINVAL if that would not
 * be exact, or if every block would read everything. */
int uni__sqlite_by_key(uni__sqlite *self, const uni_sqlite_options *options,
                       uni_error *err) UNI_MUST_USE;
int uni__sqlite_block(void *self, uni__reader *reader, int64_t block, uni_table **out,
                      uni_error *err);
int uni__sqlite_count(void *self, uni__reader *reader, int64_t block, int64_t *out, uni_error *err);
void uni__sqlite_place(void *self, int64_t block, uni__place *out);

#endif
