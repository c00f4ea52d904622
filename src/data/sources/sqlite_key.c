/*
 * sqlite_key.c - a query, a view or a table as blocks: ranges of the values of a key that the user names, each read by a statement of its own, so that every worker reads only its
 * blocks (Spark's partitionColumn does the same).
 *
 * Exact: every row has a key of one range, or none. That the smallest and the largest key are whole numbers is asked of the file; since numbers are less than text and text is less than
 * blobs in SQLite's order, all that lie between are numbers then. Ranges are half open, so that a key of 2.5 is in one of them, too. Rows without a key are a block of their own.
 * Cheap: SQLite is asked how it would look up a range (EXPLAIN QUERY PLAN). Without an index it would go through everything for each block, which is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/sources/sqlite.h"
#include "data/table.h"

#define BLOCK_BYTES ((int64_t)1 << 20) /* of the file, for each block that is asked for */
#define LEAST_BLOCKS 16

/* Which rows: what stands behind the key, and behind its second mention. */
enum condition { ALL, NO_KEY, SOME_KEY, RANGE, LAST_RANGE };
static const char *const conditions[][2] = { [ALL] = { "", "" },
                                             [NO_KEY] = { " IS NULL", "" },
                                             [SOME_KEY] = { " IS NOT NULL", "" },
                                             [RANGE] = { " >= ?1 AND ", " < ?2" },
                                             [LAST_RANGE] = { " BETWEEN ?1 AND ?2", "" } };

/* SELECT what FROM ... WHERE ... */
static char *sql_of(const uni__sqlite *self, const char *before, const char *what,
                    enum condition condition, bool ordered)
{
    uni__text sql = { 0 };
    uni__text_add_string(&sql, before);
    uni__text_add_string(&sql, what);
    uni__text_add_string(&sql, self->from);
    if (condition != ALL) {
        uni__text_add_string(&sql, " WHERE ");
        uni__text_add_string(&sql, self->key);
        uni__text_add_string(&sql, conditions[condition][0]);
    }
    if (condition == RANGE) {
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

/* The statement of a block, and its first value and the one behind its last (the last of the last block). */
static char *block_sql(const uni__sqlite *self, const char *what, bool ordered, int64_t block,
                       int64_t *first, int64_t *end)
{
    int64_t range = block - self->nulls;
    *first = *end = 0;
    if (range < 0)
        return sql_of(self, "SELECT ", what, NO_KEY, false);
    *first = (int64_t)((uint64_t)self->first + (uint64_t)range * (uint64_t)self->block_rows);
    bool last = block + 1 == self->num_blocks;
    *end = last ? self->last : *first + self->block_rows;
    return sql_of(self, "SELECT ", what, last ? LAST_RANGE : RANGE, ordered);
}

int uni__sqlite_key_block(void *self_, uni__reader *reader, int64_t block, uni_table **out,
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

int uni__sqlite_key_count(void *self_, uni__reader *reader, int64_t block, int64_t *out,
                          uni_error *err)
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

void uni__sqlite_key_place(void *self_, int64_t block, uni__place *out)
{
    const uni__sqlite *self = self_;
    *out = (uni__place){ .file = uni__sqlite_path(self), .rows = -1, .unit = "keys" };
    int64_t range = block - self->nulls;
    if (range < 0) {
        out->unit = "rows without a key,";
        return;
    }
    out->begin = (int64_t)((uint64_t)self->first + (uint64_t)range * (uint64_t)self->block_rows);
    out->end = block + 1 == self->num_blocks ? self->last : out->begin + self->block_rows;
}

/* ---- making one ---- */

/* What the statements of the blocks have in common. */
static int prepare_parts(uni__sqlite *self, const char *what, bool is_query,
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
        uni__text_add_string(&from, "\n)"); /* behind a comment at its end, too */
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
    uni__text_add_char(&key, '['); /* no text may be meant by it, as by "..." */
    uni__text_add_string(&key, o->key);
    uni__text_add_char(&key, ']');
    self->columns = columns.data;
    self->from = from.data;
    self->key = key.data;
    if (columns.failed || from.failed || key.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a query");
    return 0;
}

/* Whether SQLite would look the range up, and not go through all rows. */
static int check_cheap(const uni__sqlite *self, uni_error *err)
{
    char why[UNI__SQLITE_WHY_SIZE] = "";
    uni__sqlite_query query;
    bool found = false;
    char *sql = sql_of(self, "EXPLAIN QUERY PLAN SELECT ", self->columns, RANGE, false);
    if (sql == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a query");
    int status = uni__sqlite_open(self, &query, sql, 0, 0, err);
    free(sql);
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

int uni__sqlite_by_key(uni__sqlite *self, const char *table_or_query, bool is_query,
                       const uni_sqlite_options *options, uni_error *err)
{
    int64_t ends[2] = { 0, -1 }, rows = 0;
    char what[600];
    if (strlen(options->key) > 200 || strchr(options->key, ']') != NULL)
        return uni_error_set(err, UNI_EINVAL, "\"%s\" cannot be the name of a key", options->key);
    if (options->num_blocks < 0)
        return uni_error_set(err, UNI_EINVAL, "num_blocks: %lld", (long long)options->num_blocks);
    UNI_TRY(prepare_parts(self, table_or_query, is_query, options, err));
    UNI_TRY(check_cheap(self, err));
    char *nulls = sql_of(self, "SELECT ", "count(*)", NO_KEY, false);
    bool good = uni__sqlite_numbers(self, nulls, 0, 0, 1, &rows);
    free(nulls);
    self->nulls = good && rows > 0;
    snprintf(what, sizeof what, "min(%s), max(%s)", self->key, self->key);
    char *sql = sql_of(self, "SELECT ", what, ALL, false);
    good = uni__sqlite_numbers(self, sql, 0, 0, 2, ends);
    free(sql);
    if (!good) {
        char *count = sql_of(self, "SELECT ", "count(*)", SOME_KEY, false);
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
