/*
 * sqlite_rows.c - SQLite statements and tables of their rows. Every read has its own connection, so
 * that all threads can read. See sqlite.h.
 */
#include <stdlib.h>
#include "data/shared.h"
#include "data/table/table.h"
#include "data/sources/build.h"
#include "data/sources/sqlite.h"

#define STREAM_BYTES ((size_t)8 << 20) /* text and blobs in one table of a stream */

const char *uni__sqlite_path(const uni__sqlite *self)
{
    return self->files->items[0].path;
}

/* ---- rows ---- */

static int bad_cell(uni__reader *reader, const uni__sqlite *self, uni__build *build, int column,
                    const char *what, uni_error *err)
{
    char type[100];
    const uni_field *field = &build->columns[column].field;
    UNI_TRY(uni__reader_bad(reader, err, uni__sqlite_path(self), 0, 0,
                            "row %lld of this read, column \"%s\": %s in a column of %s",
                            (long long)build->num_rows + 1, field->name, what,
                            uni__field_text(type, sizeof type, field)));
    return 1;
}

/* Returns 0, 1 if the cell is bad and skipped, or an error. */
static int put_cell(const uni__sqlite *self, uni__build *build, int column,
                    const uni__sqlite_cell *cell, uni_error *err)
{
    static const char *const names[] = { "nothing", "a whole number", "a number", "text", "bytes" };
    const uni_field *field = &build->columns[column].field;
    bool number = cell->type == UNI__SQLITE_INT || cell->type == UNI__SQLITE_FLOAT;
    if (cell->type == UNI__SQLITE_NULL)
        return 0;
    if (field->kind == UNI_FIELD_NUMBER) {
        if (!number)
            return bad_cell(build->reader, self, build, column, names[cell->type], err);
        bool fits = cell->type == UNI__SQLITE_INT
                        ? uni__build_put_int(build, column, 0, cell->integer)
                        : uni__build_put_float(build, column, 0, cell->real);
        return fits ? 0 : bad_cell(build->reader, self, build, column, names[cell->type], err);
    }
    if (number) { /* a text column with some numeric values */
        char text[UNI__NUMBER_SIZE];
        size_t size = cell->type == UNI__SQLITE_INT ? uni__format_int(text, cell->integer)
                                                    : uni__format_double(text, cell->real);
        return uni__build_put_bytes(build, column, text, size, err);
    }
    if (field->kind == UNI_FIELD_STRING && !uni__utf8_valid(cell->data, cell->size))
        return bad_cell(build->reader, self, build, column, "bytes that are not UTF-8", err);
    return uni__build_put_bytes(build, column, cell->data, cell->size, err);
}

static bool is_unwanted(const void *reader)
{
    return uni__reader_is_wanted(reader, NULL) < 0;
}

int uni__sqlite_rows(const uni__sqlite *self, void *statement, uni__reader *reader,
                     int64_t max_rows, uni_table **out, bool *more, uni_error *err)
{
    char why[UNI__SQLITE_WHY_SIZE] = "";
    uni__build build;
    int step = 0, status = 0;
    UNI_TRY(uni__build_begin(&build, reader, self->schema, max_rows, max_rows * 16, err));
    self->plugin->watch(statement, is_unwanted, reader);
    size_t bytes = 0;
    bool stream = self->num_blocks == 0; /* a stream may be cut anywhere */
    while (build.num_rows < max_rows && !(stream && bytes > STREAM_BYTES) &&
           (step = self->plugin->step(statement, why)) > 0) {
        int skipped = 0;
        for (int i = 0; i < build.num_columns && skipped == 0; i++) {
            uni__sqlite_cell cell = { 0 };
            self->plugin->cell(statement, i, &cell);
            bytes += cell.size;
            skipped = put_cell(self, &build, i, &cell, err);
        }
        if (skipped < 0) {
            status = skipped;
            goto fail;
        }
        if (skipped > 0)
            uni__build_drop_row(&build);
        else
            UNI_TRY_GOTO(uni__build_end_row(&build, err), fail);
    }
    if (step < 0) {
        status = uni__reader_is_wanted(reader, err);
        if (status == 0)
            status = uni_error_set(err, UNI_EIO, "reading %s: %s", uni__sqlite_path(self), why);
        goto fail;
    }
    *more = step > 0;
    return uni__build_finish(&build, out, err);
fail:
    uni__build_free(&build);
    return status;
}

void uni__sqlite_close(const uni__sqlite *self, uni__sqlite_query *query)
{
    if (query->statement != NULL)
        self->plugin->finish(query->statement);
    if (query->database != NULL)
        self->plugin->close(query->database);
    *query = (uni__sqlite_query){ 0 };
}

int uni__sqlite_open(const uni__sqlite *self, uni__sqlite_query *query, const char *sql,
                     int64_t first, int64_t last, uni_error *err)
{
    char why[UNI__SQLITE_WHY_SIZE] = "";
    *query = (uni__sqlite_query){ 0 };
    query->database = self->plugin->open(uni__sqlite_path(self), why);
    if (query->database != NULL)
        query->statement = self->plugin->prepare(query->database, sql, first, last, why);
    if (query->statement != NULL)
        return 0;
    uni__sqlite_close(self, query);
    return uni_error_set(err, UNI_EIO, "%s: %s", uni__sqlite_path(self), why);
}

bool uni__sqlite_numbers(const uni__sqlite *self, const char *sql, int64_t first, int64_t last,
                         int count, int64_t *out)
{
    uni__sqlite_query q;
    char why[UNI__SQLITE_WHY_SIZE];
    bool good = false;
    if (sql == NULL || uni__sqlite_open(self, &q, sql, first, last, NULL) < 0)
        return false;
    if (self->plugin->step(q.statement, why) > 0) {
        good = true;
        for (int i = 0; i < count && good; i++) {
            uni__sqlite_cell cell = { 0 };
            self->plugin->cell(q.statement, i, &cell);
            good = cell.type == UNI__SQLITE_INT;
            out[i] = cell.integer;
        }
    }
    uni__sqlite_close(self, &q);
    return good;
}

void uni__sqlite_add_name(uni__text *sql, const char *name)
{
    uni__text_add_char(sql, '`');
    for (; *name != '\0'; name++) {
        if (*name == '`')
            uni__text_add_char(sql, '`');
        uni__text_add_char(sql, *name);
    }
    uni__text_add_char(sql, '`');
}

int uni__sqlite_all_rows(const uni__sqlite *self, void *statement, uni__reader *reader,
                         uni_table **out, uni_error *err)
{
    uni_table **parts = NULL;
    int count = 0, status = 0;
    bool more = true;
    while (more && status == 0) {
        uni_table **grown = reallocarray(parts, (size_t)count + 1, sizeof(uni_table *));
        if (grown == NULL) {
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a block");
            break;
        }
        parts = grown;
        status =
            uni__sqlite_rows(self, statement, reader, UNI__SQLITE_ROWS, &parts[count], &more, err);
        count += status == 0;
    }
    return uni__table_join(out, reader, parts, count, status, err);
}
