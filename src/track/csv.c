/*
 * csv.c - progress.csv: one row per iteration of one rank, one column per metric, nested ones as
 * a.b, quoted as in RFC 4180.
 *
 * Rows are appended through a buffer that is written on every tick. The columns are those of the
 * first report. If a later report has a new metric, the file is rewritten beside the old one with
 * the column added (empty in earlier rows) and renamed over it, so that a reader sees the old table
 * or the new one. A file of an earlier controller is continued (resume); a torn last row is cut
 * off.
 *
 * Numbers: integers as they are, floats in the shortest form that reads back to the same bits, nan,
 * inf and -inf (Python's float and pandas read these). True and False. Missing and null are empty.
 * Lists are JSON in one cell.
 *
 * Thread: the sink thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "track/sink.h"
#include "base/options.h"

#define BUFFER_SIZE (64 * 1024)
#define MAX_COLUMNS 10000

typedef struct csv {
    char *dir, *filename, *path;
    int rank, fd;
    char **columns;
    size_t num_columns, capacity;
    uni__text *cells; /* of the current row, one per column */
    uint64_t size; /* bytes in the file */
    uni__text pending, name, list;
    size_t guess; /* the column that the next metric most likely belongs to */
    bool grew; /* this report brought a new column */
} csv;

/* ---- cells ---- */

static void add_quoted(uni__text *out, const char *text, size_t length)
{
    bool plain = length > 0 && text[0] != ' ' && text[length - 1] != ' ';
    for (size_t i = 0; i < length && plain; i++)
        plain = text[i] != ',' && text[i] != '"' && text[i] != '\n' && text[i] != '\r';
    if (plain) {
        uni__text_add(out, text, length);
        return;
    }
    uni__text_add(out, "\"", 1);
    for (size_t i = 0; i < length; i++)
        uni__text_add(out, text[i] == '"' ? "\"\"" : &text[i], text[i] == '"' ? 2 : 1);
    uni__text_add(out, "\"", 1);
}

static void add_cell(csv *c, uni__text *out, const uni_value *value)
{
    size_t size = 0;
    const char *text;
    double number;
    switch (uni_value_type_of(value)) {
    case UNI_TYPE_NULL:
        break;
    case UNI_TYPE_BOOL:
        uni__text_add_string(out, uni_value_as_bool(value, false) ? "True" : "False");
        break;
    case UNI_TYPE_INT:
        uni__text_add_int(out, uni_value_as_int(value, 0));
        break;
    case UNI_TYPE_FLOAT:
        number = uni_value_as_float(value, 0);
        if (isnan(number))
            uni__text_add(out, "nan", 3);
        else if (isinf(number))
            uni__text_add_string(out, number < 0 ? "-inf" : "inf");
        else
            uni__text_add_double(out, number);
        break;
    case UNI_TYPE_STRING:
        text = uni_value_as_bytes(value, &size);
        add_quoted(out, text, size);
        break;
    default:
        uni__text_clear(&c->list);
        uni__emit_json(&c->list, value, 0);
        add_quoted(out, c->list.data, c->list.size);
        if (c->list.failed)
            out->failed = true;
    }
}

/* ---- columns ---- */

static int add_column(csv *c, const char *name, size_t length, uni_error *err)
{
    if (c->num_columns == MAX_COLUMNS)
        return uni_error_set(err, UNI_ELIMIT, "%s would get more than %d columns", c->path,
                             MAX_COLUMNS);
    if (c->num_columns == c->capacity) {
        size_t capacity = c->capacity == 0 ? 16 : 2 * c->capacity;
        char **columns = realloc(c->columns, capacity * sizeof *columns);
        if (columns != NULL)
            c->columns = columns;
        uni__text *cells = realloc(c->cells, capacity * sizeof *cells);
        if (cells != NULL)
            c->cells = cells;
        if (columns == NULL || cells == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the columns of %s", c->path);
        c->capacity = capacity;
    }
    char *copy = strndup(name, length);
    if (copy == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the columns of %s", c->path);
    c->cells[c->num_columns] = (uni__text){ 0 };
    c->columns[c->num_columns++] = copy;
    return 0;
}

static int take_metric(void *context, const char *name, const uni_value *leaf, uni_error *err)
{
    csv *c = context;
    size_t column = c->guess;
    if (column >= c->num_columns || strcmp(c->columns[column], name) != 0) {
        for (column = 0; column < c->num_columns && strcmp(c->columns[column], name) != 0;)
            column++;
        if (column == c->num_columns) {
            UNI_TRY(add_column(c, name, strlen(name), err));
            c->grew = true;
        }
    }
    c->guess = column + 1;
    uni__text_clear(&c->cells[column]);
    add_cell(c, &c->cells[column], leaf);
    return c->cells[column].failed
               ? uni_error_set(err, UNI_ENOMEM, "no memory for a row of %s", c->path)
               : 0;
}

static void add_header(csv *c, uni__text *out)
{
    for (size_t i = 0; i < c->num_columns; i++) {
        if (i > 0)
            uni__text_add(out, ",", 1);
        add_quoted(out, c->columns[i], strlen(c->columns[i]));
    }
    uni__text_add(out, "\n", 1);
}

/* ---- the file ---- */

static int flush(csv *c, uni_error *err)
{
    if (c->pending.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the rows of %s", c->path);
    if (c->pending.size == 0)
        return 0;
    int status = uni__write_all(c->fd, c->pending.data, c->pending.size, c->path, err);
    if (status < 0) { /* whole rows or none */
        if (ftruncate(c->fd, (off_t)c->size) < 0)
            return uni_error_set_errno(err, errno, "cannot cut the torn row off %s", c->path);
        return status;
    }
    c->size += c->pending.size;
    uni__text_clear(&c->pending);
    return 0;
}

/* Where the row that starts at `at` ends (after its line break), or 0 if it is incomplete. */
static size_t row_end(const char *data, size_t size, size_t at)
{
    bool quoted = false;
    for (; at < size; at++) {
        if (data[at] == '"')
            quoted = !quoted;
        else if (data[at] == '\n' && !quoted)
            return at + 1;
    }
    return 0;
}

/* Rewrites the table with the current columns; earlier rows, which have `before` of them, get empty
 * cells. */
static int rewrite(csv *c, size_t before, uni_error *err)
{
    char *old = NULL;
    size_t size = 0;
    uni__text table = { 0 };
    UNI_TRY(flush(c, err));
    UNI_TRY(uni__read_file(&old, &size, c->path, SIZE_MAX / 4, err));
    add_header(c, &table);
    size_t at = row_end(old, size, 0), end;
    for (; at > 0 && (end = row_end(old, size, at)) > 0; at = end) {
        size_t length = end - at;
        while (length > 0 && (old[at + length - 1] == '\n' || old[at + length - 1] == '\r'))
            length--;
        uni__text_add(&table, old + at, length);
        for (size_t i = before; i < c->num_columns; i++)
            uni__text_add(&table, ",", 1);
        uni__text_add(&table, "\n", 1);
    }
    int status = table.failed
                     ? uni_error_set(err, UNI_ENOMEM, "no memory to write %s anew", c->path)
                     : uni__write_file(c->path, table.data, table.size, false, err);
    int fd = status < 0 ? -1 : open(c->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
    if (status == 0 && fd < 0)
        status = uni_error_set_errno(err, errno, "cannot append to %s", c->path);
    if (status == 0) {
        close(c->fd);
        c->fd = fd;
        c->size = table.size;
    }
    free(old);
    uni__text_free(&table);
    return status;
}

/* Reads the header of an existing file: its columns, and the end of the last whole row. */
static int read_header(csv *c, const char *data, size_t size, uni_error *err)
{
    size_t end = row_end(data, size, 0), at = 0;
    uni__text name = { 0 };
    int status = 0;
    if (end == 0)
        return 0;
    while (at < end && status == 0) {
        bool quoted = data[at] == '"';
        uni__text_clear(&name);
        for (at += quoted; at < end; at++) {
            if (quoted && data[at] == '"' && data[at + 1] == '"')
                at++;
            else if (quoted ? data[at] == '"'
                            : data[at] == ',' || data[at] == '\r' || data[at] == '\n')
                break;
            uni__text_add(&name, &data[at], 1);
        }
        at += quoted;
        status = add_column(c, name.size > 0 ? name.data : "", name.size, err);
        if (at >= end || data[at++] != ',')
            break;
    }
    uni__text_free(&name);
    for (size_t next = end; next > 0; next = row_end(data, size, next))
        c->size = next;
    return status;
}

static int csv_start(void *self, const uni_start_info *info, uni_error *err)
{
    csv *c = self;
    char *data = NULL;
    size_t size = 0;
    int status = 0;
    UNI_TRY(uni__sink_path(&c->path, c->dir, c->filename, info->run_dir, err));
    c->fd = open(c->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
    if (c->fd < 0)
        return uni_error_set_errno(err, errno, "cannot write the table %s", c->path);
    UNI_TRY(uni__read_file(&data, &size, c->path, SIZE_MAX / 4, err));
    if (size > 0)
        status = read_header(c, data, size, err);
    free(data);
    if (status == 0 && c->size < size && ftruncate(c->fd, (off_t)c->size) < 0)
        status = uni_error_set_errno(err, errno, "cannot cut the torn last row off %s", c->path);
    return status;
}

static int csv_result(void *self, const uni_reports *reports, uni_error *err)
{
    csv *c = self;
    const uni_value *metrics = uni__reports_rank(reports, c->rank);
    if (metrics == NULL || uni_dict_size(metrics) == 0)
        return 0;
    size_t before = c->num_columns;
    for (size_t i = 0; i < before; i++)
        uni__text_clear(&c->cells[i]);
    c->guess = 0;
    c->grew = false;
    UNI_TRY(uni__flatten(metrics, '.', &c->name, take_metric, c, err));
    /* No columns yet: there were only empty dictionaries. */
    if (c->num_columns == 0)
        return 0;
    if (before == 0)
        add_header(c, &c->pending);
    else if (c->grew)
        UNI_TRY(rewrite(c, before, err));
    for (size_t i = 0; i < c->num_columns; i++) {
        if (i > 0)
            uni__text_add(&c->pending, ",", 1);
        if (c->cells[i].size > 0)
            uni__text_add(&c->pending, c->cells[i].data, c->cells[i].size);
    }
    /* One empty cell alone would be an empty line, which readers skip. */
    if (c->num_columns == 1 && c->cells[0].size == 0)
        uni__text_add(&c->pending, "\"\"", 2);
    uni__text_add(&c->pending, "\n", 1);
    return c->pending.size >= BUFFER_SIZE ? flush(c, err) : 0;
}

static void csv_tick(void *self)
{
    uni_error err = { 0 };
    /* What could not be written waits; the next result or finish reports it. */
    (void)!flush(self, &err);
}

static int csv_finish(void *self, const uni_finish_info *info, uni_error *err)
{
    return flush(self, err);
}

static void csv_free(void *self)
{
    csv *c = self;
    for (size_t i = 0; i < c->num_columns; i++) {
        free(c->columns[i]);
        uni__text_free(&c->cells[i]);
    }
    if (c->fd >= 0)
        close(c->fd);
    uni__text_free(&c->pending);
    uni__text_free(&c->name);
    uni__text_free(&c->list);
    free(c->columns);
    free(c->cells);
    free(c->dir);
    free(c->filename);
    free(c->path);
    free(c);
}

static const uni_sink_class csv_class = {
    .name = "csv",
    .start = csv_start,
    .result = csv_result,
    .tick = csv_tick,
    .finish = csv_finish,
    .free = csv_free,
};

int uni_sink_csv(uni_sink **out, const uni_sink_csv_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_sink_csv_options, options, rank, err);
    bool failed = false;
    csv *c = calloc(1, sizeof *c);
    if (c == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the csv sink");
    c->fd = -1;
    c->rank = options->rank;
    c->dir = uni__sink_copy(options->dir, &failed);
    c->filename =
        uni__sink_copy(options->filename != NULL ? options->filename : "progress.csv", &failed);
    int status = failed ? uni_error_set(err, UNI_ENOMEM, "no memory for the csv sink")
                        : uni_sink_new(out, &csv_class, c, err);
    if (status < 0)
        csv_free(c);
    return status;
}
