/*
 * sqlite.c - tables and queries of a SQLite file as rows.
 *
 * A table with rowids is cut into rowid ranges; the tree gives the first and last rowid at once.
 * Without gaps the table is an indexed source, otherwise a split one. Gaps are checked only for
 * files up to 64 MiB, because counting reads the whole table. Anything can be cut by ranges of a
 * key that the user names (sqlite_ranges.c). Otherwise queries, views and tables WITHOUT ROWID are
 * streams. Types are those of the first rows.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/plugin.h"
#include "data/sources/build.h"
#include "data/sources/sqlite.h"
#include "base/options.h"

#define COUNTED_BYTES ((int64_t)64 << 20)
#define MAX_BLOCKS 65536
#define ROW_BYTES 4 /* a pointer, a size, a rowid */
#define INFER_BYTES ((size_t)16 << 20)

/* ---- rows without gaps ---- */

static int read_range(void *self_, uni__reader *reader, int64_t begin, int64_t end, uni_table **out,
                      uni_error *err)
{
    const uni__sqlite *self = self_;
    uni__sqlite_query q;
    int64_t first = self->first + begin, last = self->first + end - 1;
    bool more = false;
    UNI_TRY(uni__sqlite_open(self, &q, self->sql, first, last, err));
    int status = end - begin <= UNI__SQLITE_ROWS
                     ? uni__sqlite_rows(self, q.statement, reader, end - begin, out, &more, err)
                     : uni__sqlite_all_rows(self, q.statement, reader, out, err);
    uni__sqlite_close(self, &q);
    UNI_TRY(status);
    if (uni_table_num_rows(*out) == end - begin)
        return 0;
    uni_table_unref(*out);
    *out = NULL;
    return uni_error_set(err, UNI_EIO, "%s changed while it was in use: rows are gone",
                         uni__sqlite_path(self));
}

static void row_place(void *self_, int64_t index, uni__place *out)
{
    const uni__sqlite *self = self_;
    *out =
        (uni__place){ .file = uni__sqlite_path(self), .begin = index, .end = index + 1, .rows = 1 };
}

/* ---- streams ---- */

static int stream_open(void *self, void **cursor, uni_error *err)
{
    uni__sqlite_query *q = calloc(1, sizeof *q);
    *cursor = q;
    if (q == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a query");
    int status = uni__sqlite_open(self, q, ((uni__sqlite *)self)->sql, 0, 0, err);
    if (status < 0) {
        free(q);
        *cursor = NULL;
    }
    return status;
}

static int stream_next(void *self_, void *cursor, uni__reader *reader, uni_table **out,
                       uni_error *err)
{
    uni__sqlite_query *q = cursor;
    bool more = false;
    if (q->statement == NULL)
        return 0;
    UNI_TRY(uni__sqlite_rows(self_, q->statement, reader, UNI__SQLITE_ROWS, out, &more, err));
    if (!more)
        uni__sqlite_close(self_, q);
    return 1;
}

static void stream_close(void *self, void *cursor)
{
    if (cursor != NULL)
        uni__sqlite_close(self, cursor);
    free(cursor);
}

/* ---- constructors ---- */

static void sqlite_free(void *self_)
{
    uni__sqlite *self = self_;
    uni__files_free(self->files);
    uni_table_unref(self->schema);
    free(self->sql);
    free(self->columns);
    free(self->from);
    free(self->key);
    free(self);
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
        /* Another program stored 1 in a REAL column. */
        if (asked.kind == UNI_FIELD_NUMBER && asked.dtype == UNI_F64)
            field.dtype = UNI_F64;
    } else {
        field = declared(seen->name, type);
    }
    return field;
}

static int infer(uni__sqlite *self, uni__sqlite_query *q, int64_t limit, uni_error *err)
{
    int count = self->plugin->columns(q->statement), status = 0, step = 0;
    char why[UNI__SQLITE_WHY_SIZE] = "";
    struct seen *seen = calloc((size_t)count + 1, sizeof *seen);
    uni_field *fields = calloc((size_t)count + 1, sizeof *fields);
    if (seen == NULL || fields == NULL)
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    size_t bytes = 0; /* large values say no more than small ones */
    for (int64_t row = 0; status == 0 && row < limit && bytes < INFER_BYTES &&
                          (step = self->plugin->step(q->statement, why)) > 0;
         row++)
        for (int i = 0; i < count; i++) {
            uni__sqlite_cell cell = { 0 };
            self->plugin->cell(q->statement, i, &cell);
            seen[i].types[cell.type] = true;
            bytes += cell.size;
        }
    if (status == 0 && step < 0)
        status = uni_error_set(err, UNI_EIO, "reading %s: %s", uni__sqlite_path(self), why);
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

void uni__sqlite_size_blocks(uni__sqlite *self, int64_t least_values, int64_t most_blocks)
{
    /* One less than the number of values. */
    uint64_t span = (uint64_t)self->last - (uint64_t)self->first;
    uint64_t values = (uint64_t)least_values;
    if (span / values >= (uint64_t)most_blocks)
        values = span / (uint64_t)most_blocks + 1;
    if (values == 0 || values > INT64_MAX) /* all numbers of the type */
        values = INT64_MAX;
    self->block_rows = (int64_t)values;
    self->num_blocks = (int64_t)(span / values) + 1;
}

/* Finds the first and last rowid. Returns false if the table has none, or no rows; it is then a
 * stream. */
static bool find_rowids(uni__sqlite *self, bool skip, int64_t *num_rows)
{
    int64_t ends[2], count = 0;
    char *sql = uni__sqlite_select(self, "min(rowid), max(rowid)", UNI__SQLITE_ALL, false);
    bool good = uni__sqlite_numbers(self, sql, 0, 0, 2, ends);
    free(sql);
    if (!good || ends[1] < ends[0])
        return false;
    self->first = ends[0];
    self->last = ends[1];
    *num_rows = -1;
    if (self->files->bytes <= COUNTED_BYTES && !skip) {
        sql = uni__sqlite_select(self, "count(*)", UNI__SQLITE_ALL, false);
        if (uni__sqlite_numbers(self, sql, 0, 0, 1, &count) &&
            (uint64_t)count == (uint64_t)ends[1] - (uint64_t)ends[0] + 1)
            *num_rows = count;
        free(sql);
    }
    /* Rowids may be far apart (1 and 2^60). A row takes at least ROW_BYTES, so the file size bounds
     * the number of ranges. */
    int64_t blocks = (int64_t)(self->files->bytes / ROW_BYTES / UNI__SQLITE_ROWS) + 1;
    uni__sqlite_size_blocks(self, UNI__SQLITE_ROWS, blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS);
    return true;
}

static int open_file(uni__sqlite *self, const char *path, uni_error *err)
{
    static const uni__plugin plugin = { .file = "libunisono-sqlite.so",
                                        .symbol = UNI__SQLITE_PLUGIN_SYMBOL,
                                        .version = UNI__SQLITE_PLUGIN_VERSION,
                                        .built = "src/data/sources",
                                        .purpose = "reading SQLite files",
                                        .packages = "the Debian package libsqlite3-0" };
    const void *functions = NULL;
    UNI_TRY(uni__files_open(&self->files, 1, &path, NULL, err));
    UNI_TRY(uni__plugin_open(&functions, &plugin, err));
    self->plugin = functions;
    return 0;
}

static int open_rows(uni__sqlite *self, const char *what, const uni_sqlite_options *o, bool *table,
                     int64_t *num_rows, uni_error *err)
{
    uni__sqlite_query q;
    bool is_query = strncasecmp(what, "select ", 7) == 0 || strncasecmp(what, "with ", 5) == 0;
    if (is_query && o->columns != NULL)
        return uni_error_set(err, UNI_EINVAL, "columns are for tables; name them in the query");
    if (o->num_blocks != 0 && o->key == NULL)
        return uni_error_set(err, UNI_EINVAL, "num_blocks is of the ranges of a key: name one");
    if (o->key != NULL && (strlen(o->key) > 200 || strchr(o->key, ']') != NULL))
        return uni_error_set(err, UNI_EINVAL, "\"%s\" cannot be the name of a key", o->key);
    UNI_TRY(uni__sqlite_parts(self, what, is_query, o, err));
    if (o->key != NULL)
        UNI_TRY(uni__sqlite_by_key(self, o, err));
    *table = !is_query && o->key == NULL && find_rowids(self, o->bad.skip, num_rows);
    char *head =
        is_query ? strdup(what) : uni__sqlite_select(self, self->columns, UNI__SQLITE_ALL, false);
    if (*table)
        self->sql = uni__sqlite_select(self, self->columns, UNI__SQLITE_LAST_RANGE, true);
    else if (head != NULL)
        self->sql = strdup(head);
    int status = head == NULL || self->sql == NULL
                     ? uni_error_set(err, UNI_ENOMEM, "no memory for a dataset")
                     : uni__sqlite_open(self, &q, head, 0, 0, err);
    free(head);
    UNI_TRY(status);
    status = infer(self, &q, o->infer_rows > 0 ? o->infer_rows : 1000, err);
    uni__sqlite_close(self, &q);
    return status;
}

int uni_dataset_read_sqlite(uni_dataset **out, const char *path, const char *table_or_query,
                            const uni_sqlite_options *options, uni_error *err)
{
    UNI__OPTIONS(uni_sqlite_options, options, num_blocks, err);
    static const uni__source_class indexed = {
        .name = "sqlite", .read_range = read_range, .place = row_place, .free = sqlite_free
    };
    static const uni__source_class split = { .name = "sqlite",
                                             .read_block = uni__sqlite_block,
                                             .count_block = uni__sqlite_count,
                                             .place = uni__sqlite_place,
                                             .free = sqlite_free };
    static const uni__source_class stream = { .name = "sqlite",
                                              .stream_open = stream_open,
                                              .stream_next = stream_next,
                                              .stream_close = stream_close,
                                              .free = sqlite_free };
    uni_sqlite_options o = *options;
    bool table = false;
    int64_t num_rows = -1;
    *out = NULL;
    uni__sqlite *self = calloc(1, sizeof *self);
    if (self == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    int status = open_file(self, path, err);
    if (status == 0)
        status = open_rows(self, table_or_query, &o, &table, &num_rows, err);
    if (status < 0) {
        sqlite_free(self);
        return status;
    }
    bool keyed = o.key != NULL;
    uni__source_kind kind = !table && !keyed ? UNI__SOURCE_STREAM
                            : num_rows >= 0  ? UNI__SOURCE_INDEXED
                                             : UNI__SOURCE_SPLIT;
    uni__source source = { .class_ = kind == UNI__SOURCE_STREAM    ? &stream
                                     : kind == UNI__SOURCE_INDEXED ? &indexed
                                                                   : &split,
                           .self = self,
                           .kind = kind,
                           .schema = uni_table_ref(self->schema),
                           .num_rows = num_rows,
                           .num_blocks = self->num_blocks,
                           .bytes = table || keyed ? self->files->bytes : -1 };
    return uni__dataset_from_source(out, &source, &o.bad, err);
}
