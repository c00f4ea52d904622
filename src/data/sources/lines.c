/*
 * lines.c - lines of text as a source (lines.h). Any thread may call read_block; a stream's cursor
 * belongs to one.
 */
#include "data/sources/lines.h"

#include <stdlib.h>
#include <string.h>

#include "data/sources/decompress.h"

#define STREAM_BYTES ((size_t)1 << 20)

typedef struct lines {
    uni__files *files; /* first: uni__files_place */
    uni__source_class class_; /* with the format's name */
    const uni__lines_format *kind;
    void *format;
    uni_table *schema;
    uni__block *blocks;
    int64_t num_blocks;
} lines;

int64_t uni__lines_number(const uni__lines_place *place, const char *text, size_t at)
{
    int64_t line = place->line;
    if (line == 0)
        line = uni__files_line_number(place->files, place->file, place->offset);
    for (size_t i = 0; i < at && line > 0; i++)
        line += text[i] == '\n';
    return line;
}

int64_t uni__lines_count(const char *text, size_t size, bool empty_too)
{
    const char *end = text + size;
    int64_t count = 0;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((newline != NULL ? newline : end) - text);
        count += empty_too || length > 1 || (length == 1 && *text != '\r');
        text += length + 1;
    }
    return count;
}

/* A byte order mark at the beginning of a file is not part of its first line. */
static void pass_mark(const char **text, size_t *size)
{
    if (*size >= 3 && memcmp(*text, "\xEF\xBB\xBF", 3) == 0) {
        *text += 3;
        *size -= 3;
    }
}

int uni__lines_head(const uni__files *files, size_t want, char **text, size_t *size,
                    const char **path, uni_error *err)
{
    *text = NULL;
    *size = 0;
    *path = files->items[0].path;
    for (int i = 0; i < files->count && *size == 0; i++) {
        uni__stream *stream = NULL;
        const char *head = NULL;
        int64_t line = 0;
        UNI_TRY(uni__stream_open(&stream, files->items[i].path, err));
        int status = uni__stream_lines(stream, want, 0, 0, &head, size, &line, err);
        if (status == 0)
            pass_mark(&head, size);
        if (status == 0 && *size > 0) {
            *path = files->items[i].path;
            *text = malloc(*size + 1);
            if (*text == NULL)
                status = uni_error_set(err, UNI_ENOMEM, "no memory to read %s", *path);
            else
                memcpy(*text, head, *size);
        }
        uni__stream_close(stream);
        UNI_TRY(status);
    }
    return 0;
}

/* ---- byte ranges ---- */

struct text {
    uni__lines_place place;
    const char *data;
    size_t size;
};

static int read_text(const lines *self, uni__reader *reader, int64_t block, struct text *out,
                     uni_error *err)
{
    char *begin = NULL;
    const uni__block *range = &self->blocks[block];
    *out = (struct text){ .place = { .path = self->files->items[range->file].path,
                                     .files = self->files,
                                     .file = range->file } };
    UNI_TRY(uni__files_read_lines(self->files, range, reader, &begin, &out->size,
                                  &out->place.offset, err));
    out->data = begin;
    if (range->begin == 0)
        pass_mark(&out->data, &out->size);
    return 0;
}

static int read_block(void *self_, uni__reader *reader, int64_t block, uni_table **out,
                      uni_error *err)
{
    lines *self = self_;
    struct text text;
    UNI_TRY(read_text(self, reader, block, &text, err));
    return self->kind->parse(self->format, reader, self->schema, &text.place, text.data, text.size,
                             out, err);
}

static int count_block(void *self_, uni__reader *reader, int64_t block, int64_t *out,
                       uni_error *err)
{
    lines *self = self_;
    struct text text;
    UNI_TRY(read_text(self, reader, block, &text, err));
    *out = self->kind->count(self->format, text.data, text.size);
    return 0;
}

static void block_place(void *self_, int64_t index, uni__place *out)
{
    const lines *self = self_;
    uni__place_of_block(self->files, &self->blocks[index], out);
}

/* ---- streams ---- */

static int stream_open(void *self, void **out, uni_error *err)
{
    return uni__file_cursor_new(out, sizeof(uni__file_cursor), err);
}

static int stream_next(void *self_, void *cursor_, uni__reader *reader, uni_table **out,
                       uni_error *err)
{
    lines *self = self_;
    uni__file_cursor *cursor = cursor_;
    const char *text = NULL;
    size_t size = 0;
    uni__lines_place place = { 0 };
    while (size == 0) {
        int more = uni__file_cursor_next(cursor, self->files, err);
        if (more <= 0)
            return more;
        int status =
            uni__stream_lines(cursor->stream, STREAM_BYTES, 0, 0, &text, &size, &place.line, err);
        if (status < 0)
            UNI_TRY(uni__stream_pass_over(cursor->stream, reader, status, err));
        place.path = uni__stream_path(cursor->stream);
        if (place.line == 1)
            pass_mark(&text, &size);
        if (size == 0)
            uni__file_cursor_end_file(cursor);
    }
    UNI_TRY(self->kind->parse(self->format, reader, self->schema, &place, text, size, out, err));
    return 1;
}

/* ---- constructors ---- */

static void lines_free(void *self_)
{
    lines *self = self_;
    if (self->kind->free != NULL)
        self->kind->free(self->format);
    uni__files_free(self->files);
    uni_table_unref(self->schema);
    free(self->blocks);
    free(self);
}

int uni__lines_dataset(uni_dataset **out, const uni__lines_format *kind, void *format,
                       uni__files *files, uni_table *schema, int64_t block_bytes, int64_t row_bytes,
                       const uni_bad_data *bad, uni_error *err)
{
    bool compressed = false;
    *out = NULL;
    lines *self = calloc(1, sizeof *self);
    if (self == NULL) {
        kind->free(format);
        uni__files_free(files);
        uni_table_unref(schema);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    }
    for (int i = 0; i < files->count; i++)
        compressed |= uni__is_compressed(files->items[i].path);
    *self = (lines){ .kind = kind, .format = format, .files = files, .schema = schema };
    self->class_ = (uni__source_class){ .name = kind->name, .free = lines_free };
    int64_t bytes = files->bytes;
    if (compressed) {
        bytes = -1;
        self->class_.stream_open = stream_open;
        self->class_.stream_next = stream_next;
        self->class_.stream_close = uni__file_cursor_free;
        self->class_.stream_files = uni__file_cursor_choose;
        self->class_.num_places = uni__files_num_places;
        self->class_.place = uni__files_place;
    } else {
        self->class_.read_block = read_block;
        self->class_.count_block = count_block;
        self->class_.place = block_place;
        int status = uni__files_blocks(files, block_bytes, &self->blocks, &self->num_blocks, err);
        if (status < 0) {
            lines_free(self);
            return status;
        }
    }
    uni__source source = { .class_ = &self->class_,
                           .self = self,
                           .kind = compressed ? UNI__SOURCE_STREAM : UNI__SOURCE_SPLIT,
                           .schema = uni_table_ref(schema),
                           .num_rows = -1,
                           .num_blocks = self->num_blocks,
                           .bytes = bytes,
                           .row_bytes = row_bytes };
    return uni__dataset_from_source(out, &source, bad, err);
}
