/*
 * sqlite_ranges.c - a query, view or table as blocks: ranges of a table's rowids, or of the values
 * of a key that the user names. Each block is read by its own statement, so every worker reads only
 * its blocks (as with Spark's partitionColumn).
 *
 * Exact: the key of every row is in exactly one range, or NULL. The smallest and the largest key
 * must be integers. SQLite orders numbers before text and text before blobs, so all keys between
 * them are numbers. Ranges are half open, so a key of 2.5 also falls into one of them. Rows without
 * a key are a block of their own.
 *
 * Cheap: EXPLAIN QUERY PLAN tells how SQLite would look up a range. Without an index every block
 * would scan everything, which is rejected.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/sources/sqlite.h"
#include "data/table/table.h"

#define BLOCK_BYTES ((int64_t)1 << 20) /* of the file, per default block */
#define LEAST_BLOCKS 16

/* What follows the key, and its second mention. */
static const char *const conditions[][2] = { [UNI__SQLITE_ALL] = { "", "" },
                                             [UNI__SQLITE_NO_KEY] = { " IS NULL", "" },
                                             [UNI__SQLITE_SOME_KEY] = { " IS NOT NULL", "" },
                                             [UNI__SQLITE_RANGE] = { " >= ?1 AND ", " < ?2" },
                                             [UNI__SQLITE_LAST_RANGE] = { " BETWEEN ?1 AND ?2",
                                                                          "" } };

char *uni__sqlite_select(const uni__sqlite *self, const char *what, uni__sqlite_condition condition,
                         bool ordered)
{
    uni__text sql = { 0 };
    uni__text_add_string(&sql, "SELECT ");
    uni__text_add_string(&sql, what);
    uni__text_add_string(&sql, self->from);
    if (condition != UNI__SQLITE_ALL) {
        uni__text_add_string(&sql, " WHERE ");
        uni__text_add_string(&sql, self->key);
        uni__text_add_string(&sql, conditions[condition][0]);
    }
    if (condition == UNI__SQLITE_RANGE) {
        uni__text_add_string(&sql, self->key);
        uni__text_add_string(&sql, conditions[condition][1]);
    }
    if (ordered) {
        uni__text_add_string(&sql, " ORDER BY ");
        uni__text_add_string(&sql, self->key);
    }
    if (!sql.failed)
        return sql.data;
    uni__text_free(&sql);
    return NULL;
}

/* The first value of a block and the one after its last. Returns true for the last block, where
 * *end is its last value. The difference can exceed INT64_MAX. */
static bool block_ends(const uni__sqlite *self, int64_t block, int64_t *first, int64_t *end)
{
    uint64_t range = (uint64_t)(block - self->nulls);
    bool last = block + 1 == self->num_blocks;
    *first = (int64_t)((uint64_t)self->first + range * (uint64_t)self->block_rows);
    *end = last ? self->last : *first + self->block_rows;
    return last;
}

static char *block_sql(const uni__sqlite *self, const char *what, bool ordered, int64_t block,
                       int64_t *first, int64_t *end)
{
    *first = *end = 0;
    if (block < self->nulls)
        return uni__sqlite_select(self, what, UNI__SQLITE_NO_KEY, false);
    bool last = block_ends(self, block, first, end);
    return uni__sqlite_select(self, what, last ? UNI__SQLITE_LAST_RANGE : UNI__SQLITE_RANGE,
                              ordered);
}

int uni__sqlite_block(void *self_, uni__reader *reader, int64_t block, uni_table **out,
                      uni_error *err)
{
    const uni__sqlite *self = self_;
    uni__sqlite_query query;
    int64_t first, end;
    *out = NULL;
    char *sql = block_sql(self, self->columns, true, block, &first, &end);
    if (sql == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a query");
    int status = uni__sqlite_open(self, &query, sql, first, end, err);
    free(sql);
    UNI_TRY(status);
    status = uni__sqlite_all_rows(self, query.statement, reader, out, err);
    uni__sqlite_close(self, &query);
    return status;
}

int uni__sqlite_count(void *self_, uni__reader *reader, int64_t block, int64_t *out, uni_error *err)
{
    const uni__sqlite *self = self_;
    int64_t first, end;
    char *sql = block_sql(self, "count(*)", false, block, &first, &end);
    bool good = uni__sqlite_numbers(self, sql, first, end, 1, out);
    free(sql);
    return good ? 0
                : uni_error_set(err, UNI_EIO, "%s: the rows of a range of %s cannot be counted",
                                uni__sqlite_path(self), self->key);
}

void uni__sqlite_place(void *self_, int64_t block, uni__place *out)
{
    const uni__sqlite *self = self_;
    bool rowids = strcmp(self->key, UNI__SQLITE_ROWID) == 0;
    *out = (uni__place){ .file = uni__sqlite_path(self), .rows = -1 };
    out->unit = block < self->nulls ? "rows without a key," : rowids ? "rowids" : "keys";
    if (block < self->nulls)
        return;
    bool last = block_ends(self, block, &out->begin, &out->end);
    if (last && rowids && out->end < INT64_MAX)
        out->end++;
}

/* ---- constructors ---- */

/* Builds the parts that the statements of all blocks share. */
int uni__sqlite_parts(uni__sqlite *self, const char *what, bool is_query,
                      const uni_sqlite_options *o, uni_error *err)
{
    uni__text columns = { 0 }, from = { 0 }, key = { 0 };
    uni__text_add_string(&from, " FROM ");
    if (is_query) {
        size_t size = strlen(what);
        while (size > 0 && strchr("; \t\n", what[size - 1]) != NULL)
            size--;
        uni__text_add_char(&from, '(');
        uni__text_add(&from, what, size);
        uni__text_add_string(&from, "\n)"); /* on a new line, in case the query ends in a comment */
    } else {
        uni__sqlite_add_name(&from, what);
    }
    for (size_t i = 0; o->columns != NULL && o->columns[i] != NULL; i++) {
        if (i > 0)
            uni__text_add_char(&columns, ',');
        uni__sqlite_add_name(&columns, o->columns[i]);
    }
    if (o->columns == NULL)
        uni__text_add_char(&columns, '*');
    if (o->key != NULL) /* [...] cannot mean text, as "..." can */
        uni__text_add_format(&key, "[%s]", o->key);
    else
        uni__text_add_string(&key, UNI__SQLITE_ROWID);
    self->columns = columns.data;
    self->from = from.data;
    self->key = key.data;
    if (columns.failed || from.failed || key.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a query");
    return 0;
}

/* Checks that SQLite would look up the range instead of scanning all rows. */
static int check_cheap(const uni__sqlite *self, uni_error *err)
{
    char why[UNI__SQLITE_WHY_SIZE] = "";
    uni__sqlite_query query;
    bool found = false;
    uni__text sql = { 0 };
    char *range = uni__sqlite_select(self, self->columns, UNI__SQLITE_RANGE, false);
    uni__text_add_string(&sql, "EXPLAIN QUERY PLAN ");
    uni__text_add_string(&sql, range != NULL ? range : "");
    int status = range == NULL || sql.failed
                     ? uni_error_set(err, UNI_ENOMEM, "no memory for a query")
                     : uni__sqlite_open(self, &query, sql.data, 0, 0, err);
    free(range);
    uni__text_free(&sql);
    UNI_TRY(status);
    while (!found && self->plugin->step(query.statement, why) > 0) {
        uni__sqlite_cell cell = { 0 };
        self->plugin->cell(query.statement, 3, &cell); /* "SEARCH t USING INDEX i (k>? AND k<?)" */
        const char *text = cell.type == UNI__SQLITE_TEXT ? cell.data : "";
        found = strncmp(text, "SEARCH", 6) == 0 && strstr(text, ">? AND ") != NULL;
    }
    uni__sqlite_close(self, &query);
    return found ? 0
                 : uni_error_set(
                       err, UNI_EINVAL,
                       "%s: ranges of the key %s cannot be looked up, so that every block would "
                       "run the whole query: CREATE INDEX on that column (of the table itself: not "
                       "behind GROUP BY, DISTINCT or LIMIT), or leave the key out",
                       uni__sqlite_path(self), self->key);
}

int uni__sqlite_by_key(uni__sqlite *self, const uni_sqlite_options *options, uni_error *err)
{
    int64_t ends[2] = { 0, -1 }, rows = 0;
    char what[600];
    if (options->num_blocks < 0)
        return uni_error_set(err, UNI_EINVAL, "num_blocks: %lld", (long long)options->num_blocks);
    UNI_TRY(check_cheap(self, err));
    char *nulls = uni__sqlite_select(self, "count(*)", UNI__SQLITE_NO_KEY, false);
    bool good = uni__sqlite_numbers(self, nulls, 0, 0, 1, &rows);
    free(nulls);
    self->nulls = good && rows > 0;
    snprintf(what, sizeof what, "min(%s), max(%s)", self->key, self->key);
    char *sql = uni__sqlite_select(self, what, UNI__SQLITE_ALL, false);
    good = uni__sqlite_numbers(self, sql, 0, 0, 2, ends);
    free(sql);
    if (!good) {
        char *count = uni__sqlite_select(self, "count(*)", UNI__SQLITE_SOME_KEY, false);
        good = uni__sqlite_numbers(self, count, 0, 0, 1, &rows) && rows == 0;
        free(count);
        if (!good)
            return uni_error_set(err, UNI_EINVAL,
                                 "%s: the key %s is not of whole numbers; take a column that is, "
                                 "or leave the key out",
                                 uni__sqlite_path(self), self->key);
        self->num_blocks = self->nulls; /* no row has a key */
        return 0;
    }
    self->first = ends[0];
    self->last = ends[1];
    int64_t blocks = self->files->bytes / BLOCK_BYTES;
    blocks = blocks < LEAST_BLOCKS ? LEAST_BLOCKS : blocks;
    uni__sqlite_size_blocks(self, 1, options->num_blocks > 0 ? options->num_blocks : blocks);
    self->num_blocks += self->nulls;
    return 0;
}
