/*
 * sqlite.h - a SQLite file as a source, inside: what its three files share. sqlite_rows.c makes tables of statements, sqlite_key.c cuts a query into ranges of a key, sqlite.c
 * opens files and chooses what kind of source one is.
 */
#ifndef UNISONO_DATA_SQLITE_H
#define UNISONO_DATA_SQLITE_H

#include <unisono/data_readers.h>
#include "base/text.h"
#include "data/source.h"
#include "data/sources/sqlite_plugin.h"

#define UNI__SQLITE_ROWS 4096 /* in a block of a table, and read at once of others */

typedef struct uni__sqlite {
    const uni__sqlite_plugin *plugin;
    uni__files *files; /* one */
    char *sql; /* all rows; of a table with ?1 and ?2 for rowids */
    char *count_sql; /* of a table: the number of them */
    uni_table *schema;
    int64_t first, last; /* rowids, or values of the key */
    int64_t num_blocks, block_rows; /* block_rows: values of a block, not all of which are there */
    char *columns, *from, *key; /* by a key: what is selected, "FROM ...", and its name, quoted */
    bool nulls; /* by a key: the first block is the rows that have none */
} uni__sqlite;

typedef struct uni__sqlite_query {
    void *database, *statement;
} uni__sqlite_query;

const char *uni__sqlite_path(const uni__sqlite *self);
/* first and last: see sqlite_plugin.h. */
int uni__sqlite_open(const uni__sqlite *self, uni__sqlite_query *query, const char *sql,
                     int64_t first, int64_t last, uni_error *err) UNI_MUST_USE;
void uni__sqlite_close(const uni__sqlite *self, uni__sqlite_query *query);
/* Up to max_rows rows of the statement; *more: there may be others. */
int uni__sqlite_rows(const uni__sqlite *self, void *statement, uni__reader *reader,
                     int64_t max_rows, uni_table **out, bool *more, uni_error *err) UNI_MUST_USE;
/* All rows of the statement, some thousand at a time: how many lie in a range of rowids or keys is not known. */
int uni__sqlite_all_rows(const uni__sqlite *self, void *statement, uni__reader *reader,
                         uni_table **out, uni_error *err) UNI_MUST_USE;
/* One row of whole numbers; false when there is none, or other things. sql may be NULL: false. */
bool uni__sqlite_numbers(const uni__sqlite *self, const char *sql, int64_t first, int64_t last,
                         int count, int64_t *out);
void uni__sqlite_add_name(
    uni__text *sql,
    const char *
        name); /* `name` with its quotes doubled: in double ones SQLite takes what is no column for text */
/* Blocks of at least so many values between first and last; and no more blocks than that (three are always allowed). */
void uni__sqlite_size_blocks(uni__sqlite *self, int64_t least_values, int64_t most_blocks);

/* sqlite_key.c: ranges of the values of `key` are the blocks; num_blocks 0: chosen. UNI_EINVAL where that would not be exact, or every block would read everything. */
int uni__sqlite_by_key(uni__sqlite *self, const char *table_or_query, bool is_query,
                       const uni_sqlite_options *options, uni_error *err) UNI_MUST_USE;
int uni__sqlite_key_block(void *self, uni__reader *reader, int64_t block, uni_table **out,
                          uni_error *err);
int uni__sqlite_key_count(void *self, uni__reader *reader, int64_t block, int64_t *out,
                          uni_error *err);
void uni__sqlite_key_place(void *self, int64_t block, uni__place *out);

#endif
