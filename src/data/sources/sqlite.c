/*
 * sqlite.c - tables and queries of a SQLite file as rows.
 *
 * A table with rowids is cut by ranges of them (their first and last are found in the tree at once): without gaps it is an indexed source, otherwise a split one.
 * Whether there are gaps is asked only for files up to 64 MiB, because counting reads the whole table. Queries, views and tables WITHOUT ROWID are streams.
 * Every read has a connection of its own, so that all threads can read. Types are those of the first rows.
 */
#include <unisono/data_readers.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/plugin.h"
#include "base/text.h"
#include "data/sources/build.h"
#include "data/sources/sqlite_plugin.h"

#define COUNTED_BYTES ((int64_t)64 << 20)
#define ROWS_A_BLOCK 4096
#define MAX_BLOCKS 65536
#define STREAM_ROWS 4096

typedef struct sqlite_source {
    const uni__sqlite_plugin *plugin;
    uni__files *files; /* one */
    char *sql; /* all rows; of a table with ?1 and ?2 for rowids */
    uni_table *schema;
    int64_t first, last; /* rowids */
    int64_t num_blocks, block_rows;
} sqlite_source;

static const char *path_of(const sqlite_source *self)
{
    return self->files->items[0].path;
}

/* ---- rows ---- */

static int bad_cell(uni__reader *reader, const sqlite_source *self, uni__build *build, int column,
                    const char *what, uni_error *err)
{
    char type[100];
    const uni_field *field = &build->columns[column].field;
    UNI_TRY(uni__reader_bad(reader, err, path_of(self), 0, 0,
                            "row %lld of this read, column \"%s\": %s in a column of %s",
                            (long long)build->num_rows + 1, field->name, what,
                            uni_field_text(type, sizeof type, field)));
    return 1;
}

/* 0 good, 1 bad and skipped, negative an error. */
static int put_cell(const sqlite_source *self, uni__build *build, int column,
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
    if (number) { /* a column of text in which some values are numbers */
        char text[UNI__NUMBER_SIZE];
        size_t size = cell->type == UNI__SQLITE_INT ? uni__format_int(text, cell->integer)
                                                    : uni__format_double(text, cell->real);
        return uni__build_put_bytes(build, column, text, size, err);
    }
    if (field->kind == UNI_FIELD_STRING && !uni__utf8_valid(cell->data, cell->size))
        return bad_cell(build->reader, self, build, column, "bytes that are not UTF-8", err);
    return uni__build_put_bytes(build, column, cell->data, cell->size, err);
}

/* Up to max_rows rows of the statement; *more: there may be others. */
static int read_rows(const sqlite_source *self, void *statement, uni__reader *reader,
                     int64_t max_rows, uni_table **out, bool *more, uni_error *err)
{
    char why[UNI__SQLITE_WHY_SIZE] = "";
    uni__build build;
    int step = 0, status = 0;
    UNI_TRY(uni__build_begin(&build, reader, self->schema, max_rows, max_rows * 16, err));
    while (build.num_rows < max_rows && (step = self->plugin->step(statement, why)) > 0) {
        int skipped = 0;
        for (int i = 0; i < build.num_columns && skipped == 0; i++) {
            uni__sqlite_cell cell = { 0 };
            self->plugin->cell(statement, i, &cell);
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
        status = uni_error_set(err, UNI_EIO, "reading %s: %s", path_of(self), why);
        goto fail;
    }
    *more = step > 0;
    return uni__build_finish(&build, out, err);
fail:
    uni__build_free(&build);
    return status;
}

typedef struct query {
    void *database, *statement;
} query;

static void query_close(const sqlite_source *self, query *q)
{
    if (q->statement != NULL)
        self->plugin->finish(q->statement);
    if (q->database != NULL)
        self->plugin->close(q->database);
    *q = (query){ 0 };
}

static int query_open(const sqlite_source *self, query *q, const char *sql, int64_t first,
                      int64_t last, uni_error *err)
{
    char why[UNI__SQLITE_WHY_SIZE] = "";
    *q = (query){ 0 };
    q->database = self->plugin->open(path_of(self), why);
    if (q->database != NULL)
        q->statement = self->plugin->prepare(q->database, sql, first, last, why);
    if (q->statement != NULL)
        return 0;
    query_close(self, q);
    return uni_error_set(err, UNI_EIO, "%s: %s", path_of(self), why);
}

/* ---- ranges of rowids ---- */

static int read_rowids(const sqlite_source *self, uni__reader *reader, int64_t first, int64_t last,
                       uni_table **out, uni_error *err)
{
    query q;
    bool more = false;
    UNI_TRY(query_open(self, &q, self->sql, first, last, err));
    int status = read_rows(self, q.statement, reader, last - first + 1, out, &more, err);
    query_close(self, &q);
    return status;
}

static int read_range(void *self_, uni__reader *reader, int64_t begin, int64_t end, uni_table **out,
                      uni_error *err)
{
    const sqlite_source *self = self_;
    UNI_TRY(read_rowids(self, reader, self->first + begin, self->first + end - 1, out, err));
    if (uni_table_num_rows(*out) == end - begin)
        return 0;
    uni_table_unref(*out);
    *out = NULL;
    return uni_error_set(err, UNI_EIO, "%s changed while it was in use: rows are gone",
                         path_of(self));
}

static int read_block(void *self_, uni__reader *reader, int64_t block, uni_table **out,
                      uni_error *err)
{
    const sqlite_source *self = self_;
    int64_t first = self->first + block * self->block_rows, last = first + self->block_rows - 1;
    return read_rowids(self, reader, first, last < self->last ? last : self->last, out, err);
}

static void row_place(void *self_, int64_t index, uni__place *out)
{
    const sqlite_source *self = self_;
    *out = (uni__place){ .file = path_of(self), .begin = index, .end = index + 1, .rows = 1 };
}

static void block_place(void *self_, int64_t index, uni__place *out)
{
    const sqlite_source *self = self_;
    int64_t begin = index * self->block_rows;
    *out = (uni__place){
        .file = path_of(self), .begin = begin, .end = begin + self->block_rows, .rows = -1
    };
}

/* ---- streams ---- */

static int stream_open(void *self, void **cursor, uni_error *err)
{
    query *q = calloc(1, sizeof *q);
    *cursor = q;
    if (q == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a query");
    int status = query_open(self, q, ((sqlite_source *)self)->sql, 0, 0, err);
    if (status < 0) {
        free(q);
        *cursor = NULL;
    }
    return status;
}

static int stream_next(void *self_, void *cursor, uni__reader *reader, uni_table **out,
                       uni_error *err)
{
    query *q = cursor;
    bool more = false;
    if (q->statement == NULL)
        return 0;
    UNI_TRY(read_rows(self_, q->statement, reader, STREAM_ROWS, out, &more, err));
    if (!more)
        query_close(self_, q);
    return 1;
}

static void stream_close(void *self, void *cursor)
{
    if (cursor != NULL)
        query_close(self, cursor);
    free(cursor);
}

/* ---- making one ---- */

static void sqlite_free(void *self_)
{
    sqlite_source *self = self_;
    uni__files_free(self->files);
    uni_table_unref(self->schema);
    free(self->sql);
    free(self);
}

/* "name" with its quotes doubled. */
static void add_name(uni__text *sql, const char *name)
{
    uni__text_add_char(sql, '"');
    for (; *name != '\0'; name++) {
        if (*name == '"')
            uni__text_add_char(sql, '"');
        uni__text_add_char(sql, *name);
    }
    uni__text_add_char(sql, '"');
}

static char *select_sql(const char *table, const char *const *columns, const char *what,
                        bool by_rowid)
{
    uni__text sql = { 0 };
    uni__text_add_string(&sql, "SELECT ");
    if (what != NULL)
        uni__text_add_string(&sql, what);
    for (size_t i = 0; what == NULL && columns != NULL && columns[i] != NULL; i++) {
        if (i > 0)
            uni__text_add_char(&sql, ',');
        add_name(&sql, columns[i]);
    }
    if (what == NULL && columns == NULL)
        uni__text_add_char(&sql, '*');
    uni__text_add_string(&sql, " FROM ");
    add_name(&sql, table);
    if (by_rowid)
        uni__text_add_string(&sql, " WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid");
    if (!sql.failed)
        return sql.data;
    uni__text_free(&sql);
    return NULL;
}

static uni_field declared(const char *name, const char *type)
{
    uni_field field = { .name = name, .kind = UNI_FIELD_STRING, .dtype = UNI_U8 };
    if (type != NULL && strcasestr(type, "int") != NULL) {
        field.kind = UNI_FIELD_NUMBER;
        field.dtype = UNI_I64;
    } else if (type != NULL &&
               (strcasestr(type, "real") != NULL || strcasestr(type, "floa") != NULL ||
                strcasestr(type, "doub") != NULL)) {
        field.kind = UNI_FIELD_NUMBER;
        field.dtype = UNI_F64;
    } else if (type != NULL && strcasestr(type, "blob") != NULL) {
        field.kind = UNI_FIELD_BINARY;
    }
    return field;
}

struct seen {
    bool types[5];
    const char *name;
};

static uni_field field_of(const struct seen *seen, const char *type)
{
    uni_field field = { .name = seen->name, .kind = UNI_FIELD_STRING, .dtype = UNI_U8 };
    if (seen->types[UNI__SQLITE_TEXT])
        return field;
    if (seen->types[UNI__SQLITE_BLOB]) {
        field.kind = UNI_FIELD_BINARY;
    } else if (seen->types[UNI__SQLITE_INT] || seen->types[UNI__SQLITE_FLOAT]) {
        field.kind = UNI_FIELD_NUMBER;
        field.dtype = seen->types[UNI__SQLITE_FLOAT] ? UNI_F64 : UNI_I64;
        uni_field asked = declared(seen->name, type);
        if (asked.kind == UNI_FIELD_NUMBER && asked.dtype == UNI_F64)
            field.dtype = UNI_F64; /* 1 in a REAL column of another program */
    } else {
        field = declared(seen->name, type);
    }
    return field;
}

static int infer(sqlite_source *self, query *q, int64_t limit, uni_error *err)
{
    int count = self->plugin->columns(q->statement), status = 0, step = 0;
    char why[UNI__SQLITE_WHY_SIZE] = "";
    struct seen *seen = calloc((size_t)count + 1, sizeof *seen);
    uni_field *fields = calloc((size_t)count + 1, sizeof *fields);
    if (seen == NULL || fields == NULL)
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    for (int64_t row = 0;
         status == 0 && row < limit && (step = self->plugin->step(q->statement, why)) > 0; row++)
        for (int i = 0; i < count; i++) {
            uni__sqlite_cell cell = { 0 };
            self->plugin->cell(q->statement, i, &cell);
            seen[i].types[cell.type] = true;
        }
    if (status == 0 && step < 0)
        status = uni_error_set(err, UNI_EIO, "reading %s: %s", path_of(self), why);
    for (int i = 0; status == 0 && i < count; i++) {
        seen[i].name = self->plugin->column_name(q->statement, i);
        fields[i] = field_of(&seen[i], self->plugin->column_type(q->statement, i));
    }
    if (status == 0)
        status = uni__build_schema(&self->schema, fields, count, err);
    free(seen);
    free(fields);
    return status;
}

/* One row of whole numbers; false when there is none (no rowid, no rows). */
static bool ask_numbers(const sqlite_source *self, const char *sql, int count, int64_t *out)
{
    query q;
    char why[UNI__SQLITE_WHY_SIZE];
    bool good = false;
    if (sql == NULL || query_open(self, &q, sql, 0, 0, NULL) < 0)
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
    query_close(self, &q);
    return good;
}

/* Where the rowids begin and end; false: the table has none (or no rows), and is a stream. */
static bool find_rowids(sqlite_source *self, const char *table, bool skip, int64_t *num_rows)
{
    int64_t ends[2], count = 0;
    char *sql = select_sql(table, NULL, "min(rowid), max(rowid)", false);
    bool good = ask_numbers(self, sql, 2, ends);
    free(sql);
    if (!good || ends[1] - ends[0] < 0)
        return false;
    self->first = ends[0];
    self->last = ends[1];
    *num_rows = -1;
    if (self->files->bytes <= COUNTED_BYTES && !skip) {
        sql = select_sql(table, NULL, "count(*)", false);
        if (ask_numbers(self, sql, 1, &count) && count == ends[1] - ends[0] + 1)
            *num_rows = count;
        free(sql);
    }
    int64_t span = ends[1] - ends[0] + 1;
    self->block_rows = ROWS_A_BLOCK;
    if (span / ROWS_A_BLOCK > MAX_BLOCKS)
        self->block_rows = span / MAX_BLOCKS + 1;
    self->num_blocks = (span + self->block_rows - 1) / self->block_rows;
    return true;
}

static int sqlite_open(sqlite_source *self, const char *path, const char *what,
                       const uni_sqlite_options *o, bool *table, int64_t *num_rows, uni_error *err)
{
    static const uni__plugin plugin = { .file = "libunisono-sqlite.so",
                                        .symbol = UNI__SQLITE_PLUGIN_SYMBOL,
                                        .version = UNI__SQLITE_PLUGIN_VERSION,
                                        .built = "src/data/sources",
                                        .purpose = "reading SQLite files",
                                        .packages = "the Debian package libsqlite3-0" };
    const void *functions = NULL;
    query q;
    UNI_TRY(uni__files_open(&self->files, 1, &path, NULL, err));
    UNI_TRY(uni__plugin_open(&functions, &plugin, err));
    self->plugin = functions;
    bool is_query = strncasecmp(what, "select ", 7) == 0 || strncasecmp(what, "with ", 5) == 0;
    if (is_query && o->columns != NULL)
        return uni_error_set(err, UNI_EINVAL, "columns are for tables; name them in the query");
    *table = !is_query && find_rowids(self, what, o->bad.skip, num_rows);
    char *head = is_query ? strdup(what) : select_sql(what, o->columns, NULL, false);
    self->sql =
        *table ? select_sql(what, o->columns, NULL, true) : (head != NULL ? strdup(head) : NULL);
    int status = head == NULL || self->sql == NULL
                     ? uni_error_set(err, UNI_ENOMEM, "no memory for a dataset")
                     : query_open(self, &q, head, 0, 0, err);
    free(head);
    UNI_TRY(status);
    status = infer(self, &q, o->infer_rows > 0 ? o->infer_rows : 1000, err);
    query_close(self, &q);
    return status;
}

int uni_dataset_read_sqlite(uni_dataset **out, const char *path, const char *table_or_query,
                            const uni_sqlite_options *options, uni_error *err)
{
    static const uni__source_class indexed = {
        .name = "sqlite", .read_range = read_range, .place = row_place, .free = sqlite_free
    };
    static const uni__source_class split = {
        .name = "sqlite", .read_block = read_block, .place = block_place, .free = sqlite_free
    };
    static const uni__source_class stream = { .name = "sqlite",
                                              .stream_open = stream_open,
                                              .stream_next = stream_next,
                                              .stream_close = stream_close,
                                              .free = sqlite_free };
    uni_sqlite_options o = options != NULL ? *options : (uni_sqlite_options){ 0 };
    bool table = false;
    int64_t num_rows = -1;
    *out = NULL;
    sqlite_source *self = calloc(1, sizeof *self);
    if (self == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    int status = sqlite_open(self, path, table_or_query, &o, &table, &num_rows, err);
    if (status < 0) {
        sqlite_free(self);
        return status;
    }
    uni__source_kind kind = !table          ? UNI__SOURCE_STREAM
                            : num_rows >= 0 ? UNI__SOURCE_INDEXED
                                            : UNI__SOURCE_SPLIT;
    uni__source source = { .class_ = kind == UNI__SOURCE_STREAM    ? &stream
                                     : kind == UNI__SOURCE_INDEXED ? &indexed
                                                                   : &split,
                           .self = self,
                           .kind = kind,
                           .schema = uni_table_ref(self->schema),
                           .num_rows = num_rows,
                           .num_blocks = self->num_blocks,
                           .bytes = table ? self->files->bytes : -1 };
    return uni__dataset_from_source(out, &source, &o.bad, err);
}
