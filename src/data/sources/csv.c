/*
 * csv.c - CSV files as a source: plain files are split into byte ranges, compressed ones are
 * streams. csv.h lists the parts.
 */
#include <stdlib.h>
#include <string.h>
#include "data/plan/dataset.h"
#include "data/sources/csv.h"
#include "data/sources/decompress.h"
#include "data/table/table.h"
#include "base/options.h"

#define HEAD_BYTES ((size_t)256 << 10)
#define WIDE_HEAD ((size_t)4 << 20) /* if a small file does not match the types of its first rows */
#define MAX_HEAD ((size_t)16 << 20) /* while there is not even one whole row */
#define STREAM_BYTES ((size_t)1 << 20)

static void forget_columns(uni__csv *csv)
{
    for (int i = 0; i < csv->num_columns; i++) {
        free(csv->columns[i].name);
        free(csv->columns[i].renamed);
    }
    free(csv->columns);
    csv->columns = NULL;
    csv->num_columns = csv->num_out = 0;
}

static void csv_free(void *self)
{
    uni__csv *csv = self;
    if (csv == NULL)
        return;
    forget_columns(csv);
    for (int i = 0; i < csv->num_nulls; i++)
        free(csv->nulls[i]);
    free(csv->nulls);
    free(csv->chosen);
    free(csv->blocks);
    free(csv->states);
    pthread_mutex_destroy(&csv->lock);
    uni__files_free(csv->files);
    free(csv);
}

/* ---- blocks ---- */

/* A column has the same name in all files; names given by the user apply to all of them. */
static bool has_name(const uni__csv *csv, int column, const uni__csv_cell *cell)
{
    const uni__csv_column *own = &csv->columns[column];
    const char *name = own->renamed != NULL ? own->renamed : own->name;
    size_t size = strnlen(cell->begin, (size_t)(cell->end - cell->begin));
    return csv->named || (strlen(name) == size && memcmp(name, cell->begin, size) == 0);
}

/* Skips a file's header, which must match that of the first file. */
static int pass_header(const uni__csv *csv, const char *path, const char **text, size_t *size,
                       uni_error *err)
{
    const char *end = *text + *size, *p = uni__csv_head(csv, *text, end);
    const char *next = csv->header ? uni__csv_record_end(csv, p, end) : p;
    for (int i = 0; csv->header && p < end; i++) {
        uni__csv_cell cell;
        char *buffer = malloc((size_t)(next - p) + 1);
        bool whole = buffer != NULL && uni__csv_cell_at(csv, p, next, buffer, &cell);
        bool more = whole && cell.next < next && *cell.next == csv->delimiter;
        bool fits = whole && i < csv->num_columns && more == (i + 1 < csv->num_columns);
        bool same = fits && has_name(csv, i, &cell);
        free(buffer);
        if (fits && !same)
            return uni_error_set(err, UNI_EFORMAT,
                                 "%s:1:%d: the header does not have the column %s of %s here; "
                                 "files of one dataset have the same columns in the same order",
                                 path, i + 1, csv->columns[i].name,
                                 csv->files->items[csv->first].path);
        if (!fits)
            return uni_error_set(err, UNI_EFORMAT,
                                 "%s:1:%d: the header does not have the %d columns of %s", path,
                                 i + 1, csv->num_columns, csv->files->items[csv->first].path);
        if (!more)
            break;
        p = cell.next + 1;
    }
    *size -= (size_t)(next - *text);
    *text = next;
    return 0;
}

static int read_records(uni__csv *csv, uni__reader *reader, int64_t index, uni__csv_place *place,
                        const char **text, size_t *size, uni_error *err)
{
    const uni__block *block = &csv->blocks[index];
    char *raw = NULL;
    int64_t offset = 0;
    UNI_TRY(uni__csv_read_block(csv, index, reader, &raw, size, &offset, err));
    *text = raw;
    UNI_TRY(uni__csv_decode(csv, reader, text, size, err));
    const char *path = csv->files->items[block->file].path, *begin = *text;
    if (block->begin == 0)
        UNI_TRY(pass_header(csv, path, text, size, err));
    *place = (uni__csv_place){ .path = path, .file = block->file, .offset = offset };
    if (block->begin == 0) /* after the header, whose bytes may have grown in decoding */
        place->line = uni__files_line_number(csv->files, block->file, offset) +
                      (int64_t)uni__csv_scanner()->count(begin, (size_t)(*text - begin), '\n');
    return 0;
}

static int csv_read_block(void *self, uni__reader *reader, int64_t index, uni_table **out,
                          uni_error *err)
{
    const char *text = NULL;
    size_t size = 0;
    uni__csv_place place;
    UNI_TRY(read_records(self, reader, index, &place, &text, &size, err));
    return uni__csv_parse(self, reader, &place, text, size, out, err);
}

static int csv_count_block(void *self, uni__reader *reader, int64_t index, int64_t *out,
                           uni_error *err)
{
    uni__csv *csv = self;
    const char *text = NULL;
    size_t size = 0;
    uni__csv_place place;
    UNI_TRY(read_records(csv, reader, index, &place, &text, &size, err));
    const char *end = text + size;
    *out = 0;
    if (csv->short_rows == UNI_CSV_SKIP || csv->long_rows == UNI_CSV_SKIP) {
        uni_table *table = NULL; /* skipped rows are only found by reading them */
        UNI_TRY(uni__csv_parse(csv, reader, &place, text, size, &table, err));
        *out = uni_table_num_rows(table);
        uni_table_unref(table);
        return 0;
    }
    for (const char *p = text; p < end; p = uni__csv_record_end(csv, p, end))
        *out += *p != '\n' && !(*p == '\r' && p[1] == '\n');
    return 0;
}

static void csv_place(void *self, int64_t index, uni__place *out)
{
    const uni__csv *csv = self;
    if (csv->blocks == NULL) /* a stream: file by file */
        uni__place_of_file(csv->files, index, out);
    else
        uni__place_of_block(csv->files, &csv->blocks[index], out);
}

static int64_t csv_num_places(void *self)
{
    const uni__csv *csv = self;
    return csv->blocks != NULL ? csv->num_blocks : csv->files->count;
}

/* ---- streams ---- */

struct cursor {
    uni__file_cursor files;
    bool first; /* the header of the file is still ahead */
};

static int csv_stream_open(void *self, void **out, uni_error *err)
{
    return uni__file_cursor_new(out, sizeof(struct cursor), err);
}

/* Copies the lines into a buffer that has room for a newline after them. */
static int own_text(uni__reader *reader, const char **text, size_t size, uni_error *err)
{
    char *copy = uni__reader_scratch(reader, UNI__SCRATCH_CSV_MEMORY, size + 1);
    if (copy == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read a CSV file");
    memcpy(copy, *text, size);
    copy[size] = '\n';
    *text = copy;
    return 0;
}

static int csv_stream_next(void *self, void *opaque, uni__reader *reader, uni_table **out,
                           uni_error *err)
{
    const uni__csv *csv = self;
    struct cursor *cursor = opaque;
    for (;;) {
        int more = uni__file_cursor_next(&cursor->files, csv->files, err);
        if (more <= 0)
            return more;
        cursor->first |= more == 1;
        uni__stream *stream = cursor->files.stream;
        const char *text = NULL, *path = uni__stream_path(stream);
        size_t size = 0;
        uni__csv_place place = { .path = path };
        char quote = csv->quote != UNI__CSV_NO_QUOTE ? (char)csv->quote : 0;
        int status = uni__stream_lines(stream, STREAM_BYTES, quote, csv->delimiter, &text, &size,
                                       &place.line, err);
        if (status < 0)
            UNI_TRY(uni__stream_pass_over(stream, reader, status, err));
        if (size == 0) {
            uni__file_cursor_end_file(&cursor->files);
            continue;
        }
        UNI_TRY(own_text(reader, &text, size, err));
        UNI_TRY(uni__csv_decode(csv, reader, &text, &size, err));
        const char *begin = text;
        if (cursor->first)
            UNI_TRY(pass_header(csv, path, &text, &size, err));
        place.line += (int64_t)uni__csv_scanner()->count(begin, (size_t)(text - begin), '\n');
        cursor->first = false;
        UNI_TRY(uni__csv_parse(csv, reader, &place, text, size, out, err));
        return 1;
    }
}

static const uni__source_class csv_class = { .name = "csv",
                                             .read_block = csv_read_block,
                                             .count_block = csv_count_block,
                                             .stream_open = csv_stream_open,
                                             .stream_next = csv_stream_next,
                                             .stream_close = uni__file_cursor_free,
                                             .stream_files = uni__file_cursor_choose,
                                             .num_places = csv_num_places,
                                             .place = csv_place,
                                             .free = csv_free };

/* ---- opening ---- */

/* Reads the beginning of the file that defines names and types. The caller frees it. */
static int read_head(const uni__csv *csv, size_t want, char **out, size_t *size, uni_error *err)
{
    const char *path = csv->files->items[csv->first].path;
    *out = malloc(want + UNI__CSV_SLACK);
    if (*out == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the head of %s", path);
    uni__stream *stream = NULL;
    UNI_TRY(uni__stream_open(&stream, path, err));
    int status = uni__stream_read(stream, *out, want, size, err);
    if (status == 0)
        memset(*out + *size, 0, UNI__CSV_SLACK);
    uni__stream_close(stream);
    return status;
}

/* Converts the head to UTF-8, in memory of its own. */
static int decode_head(const uni__csv *csv, char **head, size_t *size, uni_error *err)
{
    if (csv->encoding == UNI__CSV_UTF8)
        return 0;
    char *text = calloc(uni__csv_utf8_size(csv, *size) + UNI__CSV_SLACK, 1);
    if (text == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the head of a CSV file");
    *size = uni__csv_to_utf8(csv, *head, *size, text);
    free(*head);
    *head = text;
    return 0;
}

static bool has_a_row(const uni__csv *csv, const char *head, const char *end)
{
    const char *p = uni__csv_head(csv, head, end);
    if (csv->header)
        p = uni__csv_record_end(csv, p, end);
    return p < end && uni__csv_record_end(csv, p, end) < end;
}

/* Reads enough of the file's beginning to contain at least one row. */
static int read_head_with_row(uni__csv *csv, size_t *want, char **out, size_t *size, uni_error *err)
{
    while (csv->first + 1 < csv->files->count && csv->files->items[csv->first].size == 0)
        csv->first++;
    for (;; *want *= 8) {
        UNI_TRY(read_head(csv, *want, out, size, err));
        csv->head_is_all = *size < *want;
        if (csv->head_is_all || *want >= MAX_HEAD || has_a_row(csv, *out, *out + *size))
            return decode_head(csv, out, size, err);
        free(*out);
        *out = NULL;
    }
}

/* Infers names and types from a head that grows until it has a value for every column, or reaches
 * its limit. */
static int infer(uni__csv *csv, const uni_csv_options *options, double *row_text, uni_error *err)
{
    for (size_t want = csv->widens ? WIDE_HEAD : HEAD_BYTES;; want *= 8) {
        char *head = NULL;
        size_t size = 0;
        int status = read_head_with_row(csv, &want, &head, &size, err);
        if (status == 0)
            status = uni__csv_infer(csv, options, head, size, row_text, err);
        free(head);
        if (status < 0 || !csv->unknown || csv->head_is_all || want >= MAX_HEAD)
            return status;
        forget_columns(csv);
    }
}

static int make_schema(uni__csv *csv, uni_table **out, uni_error *err)
{
    UNI_TRY(uni_table_new(out, 0, err));
    csv->chosen = calloc((size_t)csv->num_out + 1, sizeof *csv->chosen);
    if (csv->chosen == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d columns", csv->num_out);
    for (int i = 0; i < csv->num_columns; i++) {
        if (csv->columns[i].out >= 0)
            csv->chosen[csv->columns[i].out] = i;
    }
    int status = 0;
    for (int place = 0; place < csv->num_out && status == 0; place++) {
        const uni__csv_column *column = &csv->columns[csv->chosen[place]];
        status = uni__table_add_field(*out, &column->field, err);
        if (status == UNI_EEXISTS)
            status = uni__csv_twice(csv, column->name, err);
    }
    if (status == 0)
        csv->schema = *out;
    return status;
}

/* Estimates sizes for planning. */
static void estimate(uni__source *source, const uni__csv *csv, double row_text)
{
    source->row_bytes = 0;
    for (int i = 0; i < uni_table_num_columns(source->schema); i++) {
        const uni_field *field = &uni_table_column_at(source->schema, i)->field;
        source->row_bytes += field->kind == UNI_FIELD_NUMBER
                                 ? (int64_t)uni_dtype_size(field->dtype)
                                 : 8 + (int64_t)(row_text / csv->num_columns);
    }
    if (csv->num_blocks > 0 && row_text > 0)
        source->block_rows =
            (int64_t)((double)csv->files->bytes / (double)csv->num_blocks / row_text) + 1;
}

static int open_csv(uni__source *source, uni__csv *csv, const uni_csv_options *options,
                    uni_error *err)
{
    double row_text = 0;
    UNI_TRY(uni__csv_take_options(csv, options, err));
    UNI_TRY(infer(csv, options, &row_text, err));
    UNI_TRY(make_schema(csv, &source->schema, err));
    bool compressed = false;
    for (int i = 0; i < csv->files->count; i++)
        compressed = compressed || uni__is_compressed(csv->files->items[i].path);
    source->kind = compressed ? UNI__SOURCE_STREAM : UNI__SOURCE_SPLIT;
    if (!compressed)
        UNI_TRY(uni__files_blocks(csv->files,
                                  options->block_bytes
                                      ? options->block_bytes
                                      : uni__files_wide_blocks(csv->files, csv->num_columns),
                                  &csv->blocks, &csv->num_blocks, err));
    csv->states = calloc((size_t)csv->num_blocks + 1, 1);
    if (csv->states == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a CSV dataset");
    source->num_rows = -1;
    source->num_blocks = csv->num_blocks;
    source->bytes = csv->files->bytes;
    estimate(source, csv, row_text);
    return 0;
}

/* widens: see uni__csv. */
static int read_csv(uni_dataset **out, int num_paths, const char *const *paths,
                    const uni_csv_options *o, bool widens, uni_error *err)
{
    static const char *const suffixes[] = { ".csv",     ".tsv",     ".csv.gz", ".tsv.gz",
                                            ".csv.zst", ".tsv.zst", NULL };
    uni__csv *csv = calloc(1, sizeof *csv);
    if (csv == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a CSV dataset");
    pthread_mutex_init(&csv->lock, NULL);
    csv->widens = widens;
    uni__source source = { .class_ = &csv_class, .self = csv };
    int status = 0;
    UNI_TRY_GOTO(uni__files_open(&csv->files, num_paths, paths, suffixes, err), fail);
    UNI_TRY_GOTO(open_csv(&source, csv, o, err), fail);
    return uni__dataset_from_source(out, &source, &o->bad, err);
fail:
    uni__source_free(&source);
    return status;
}

int uni_dataset_read_csv(uni_dataset **out, int num_paths, const char *const *paths,
                         const uni_csv_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_csv_options, options, bad, err);
    uni_csv_options o = *options;
    uni_error first = { 0 };
    int status = read_csv(out, num_paths, paths, &o, false, &first);
    /* A small file is read now. If later numbers do not fit the type of the first rows, the column
     * can still be widened. */
    if (status == UNI_EFORMAT && o.infer_rows == 0 &&
        read_csv(out, num_paths, paths, &o, true, NULL) == 0)
        return 0;
    if (status < 0 && err != NULL)
        *err = first;
    return status;
}
