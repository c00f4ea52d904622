/*
 * tfrecord.c - TFRecord files as a source.
 *
 * Plain files are cut into byte ranges like text: a record belongs to the range that contains its
 * first byte. Each length has its own checksum, so the first record of a range is found without
 * reading what precedes it (tfrecord_frame.h). A record that itself contains TFRecords could fool
 * this. So every range records where its first record begins and where the next range's must begin,
 * and neighbours that disagree are an error. Compressed files are streams. Any thread; a cursor
 * belongs to one.
 */
#include <unisono/data_readers.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "data/sources/decompress.h"
#include "data/sources/tfrecord_example.h"
#include "data/sources/tfrecord_frame.h"
#include "data/sources/tfrecord_walk.h"
#include "base/options.h"

#define HEAD_BYTES ((size_t)1 << 20)
#define STREAM_BYTES ((size_t)1 << 20)
#define EXTRA_BYTES ((int64_t)64 << 10)
#define UNKNOWN INT64_MIN
#define NO_RECORD INT64_MAX
#define MAX_COMPRESSED ((int64_t)64 << 20) /* limit of a record, to which a few bytes may expand */

typedef struct tfrecord {
    uni__files *files; /* first: uni__files_place */
    uni__source_class class_;
    bool raw;
    uni_table *schema;
    uni__block *blocks;
    int64_t num_blocks;
    /* Of each block: where its first record begins, NO_RECORD, or UNKNOWN. */
    _Atomic int64_t *begins;
    _Atomic int64_t *nexts; /* where the first record after it begins, or UNKNOWN */
} tfrecord;

/* ---- byte ranges ---- */

/* Reads the block's bytes, including all of its last record. */
static int load(const tfrecord *self, uni__reader *reader, const uni__block *block,
                uni__tfrecord_walk *walk, uni_error *err)
{
    const uni__file *file = &self->files->items[block->file];
    int64_t end = block->end + EXTRA_BYTES;
    for (;;) {
        end = end < file->size ? end : file->size;
        uint8_t *bytes =
            uni__reader_scratch(reader, UNI__SCRATCH_TFRECORD_BLOCK, (size_t)(end - block->begin));
        if (bytes == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a block of %s", file->path);
        UNI_TRY(uni__files_pread(self->files, block->file, block->begin, bytes,
                                 (size_t)(end - block->begin), err));
        *walk = (uni__tfrecord_walk){ .bytes = bytes,
                                      .size = end - block->begin,
                                      .limit = block->end - block->begin,
                                      .whole = end == file->size,
                                      .records = -1,
                                      .path = file->path,
                                      .offset = block->begin };
        if (block->begin > 0) {
            int64_t first = uni__tfrecord_find(bytes, 0, walk->size);
            walk->at = first >= 0 && first < walk->limit ? first : walk->limit;
        }
        /* Checks whether the last record is complete; its header says how much more is needed. */
        int64_t at = walk->at, length = 0, records = 0;
        while (at < walk->limit && walk->size - at >= UNI__TFRECORD_HEADER &&
               (length = uni__tfrecord_length(bytes + at)) >= 0) {
            /* Each header gives the position of the next, so every step would wait for memory.
             * Prefetches where the next headers are if records have equal size. */
            __builtin_prefetch(bytes + at + 8 * (length + UNI__TFRECORD_FRAME));
            at += length + UNI__TFRECORD_FRAME;
            records++;
        }
        if (length >= 0)
            walk->records = records;
        if (length < 0 || at <= walk->size || walk->whole)
            return 0;
        end = block->begin + at + UNI__TFRECORD_HEADER;
    }
}

static int neighbours_agree(const tfrecord *self, int64_t block, int64_t begin, uni_error *err)
{
    const uni__block *here = &self->blocks[block];
    if (block == 0 || self->blocks[block - 1].file != here->file)
        return 0;
    int64_t expected = atomic_load(&self->nexts[block - 1]);
    if (expected == UNKNOWN || begin == UNKNOWN || expected == begin ||
        (expected >= here->end && begin == NO_RECORD))
        return 0;
    return uni_error_set(err, UNI_EFORMAT,
                         "%s: the records around byte %lld cannot be told from records inside of "
                         "records; read the file with block_bytes as large as it is",
                         self->files->items[here->file].path, (long long)here->begin);
}

static int read_block(void *self_, uni__reader *reader, int64_t block, uni_table **out,
                      uni_error *err)
{
    tfrecord *self = self_;
    const uni__block *here = &self->blocks[block];
    uni__tfrecord_walk walk;
    *out = NULL;
    UNI_TRY(load(self, reader, here, &walk, err));
    int64_t begin = walk.at < walk.limit ? here->begin + walk.at : NO_RECORD;
    UNI_TRY(neighbours_agree(self, block, begin, err));
    UNI_TRY(uni__tfrecord_read(&walk, self->raw, self->schema, reader, out, err));
    if (walk.damaged || begin == NO_RECORD)
        return 0;
    atomic_store(&self->begins[block], begin);
    atomic_store(&self->nexts[block], here->begin + walk.at);
    if (block + 1 < self->num_blocks) {
        int status = neighbours_agree(self, block + 1, atomic_load(&self->begins[block + 1]), err);
        if (status < 0) {
            uni_table_unref(*out);
            *out = NULL;
            return status;
        }
    }
    return 0;
}

static int count_block(void *self_, uni__reader *reader, int64_t block, int64_t *out,
                       uni_error *err)
{
    tfrecord *self = self_;
    uni__tfrecord_walk walk;
    int64_t length = 0;
    int more;
    UNI_TRY(load(self, reader, &self->blocks[block], &walk, err));
    for (*out = 0; (more = uni__tfrecord_next(&walk, reader, &length, err)) > 0; (*out)++)
        walk.at += length + UNI__TFRECORD_FRAME;
    return more;
}

static void block_place(void *self_, int64_t index, uni__place *out)
{
    const tfrecord *self = self_;
    uni__place_of_block(self->files, &self->blocks[index], out);
}

/* ---- streams ---- */

typedef struct tfrecord_cursor {
    uni__file_cursor files;
    uint8_t *bytes;
    int64_t size, capacity, offset;
} tfrecord_cursor;

static int stream_open(void *self, void **out, uni_error *err)
{
    return uni__file_cursor_new(out, sizeof(tfrecord_cursor), err);
}

static void stream_close(void *self, void *cursor_)
{
    tfrecord_cursor *cursor = cursor_;
    if (cursor != NULL)
        free(cursor->bytes);
    uni__file_cursor_free(self, cursor);
}

/* Fills the buffer up to `want` bytes; *last: the file has no more. */
static int fill(tfrecord_cursor *cursor, int64_t want, bool *last, uni_error *err)
{
    size_t got = 0;
    if (cursor->capacity < want) {
        uint8_t *bytes = realloc(cursor->bytes, (size_t)want + 64);
        if (bytes == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a record of %lld bytes",
                                 (long long)want);
        cursor->bytes = bytes;
        cursor->capacity = want;
    }
    UNI_TRY(uni__stream_read(cursor->files.stream, cursor->bytes + cursor->size,
                             (size_t)(cursor->capacity - cursor->size), &got, err));
    cursor->size += (int64_t)got;
    *last = cursor->size < cursor->capacity && uni__stream_good(cursor->files.stream);
    return 0;
}

static void close_file(tfrecord_cursor *cursor)
{
    uni__file_cursor_end_file(&cursor->files);
    cursor->size = 0;
}

static int stream_file(tfrecord *self, tfrecord_cursor *cursor, uni__reader *reader,
                       uni_table **out, uni_error *err)
{
    bool last = false;
    int64_t want =
        cursor->capacity > (int64_t)STREAM_BYTES ? cursor->capacity : (int64_t)STREAM_BYTES;
    UNI_TRY(fill(cursor, want, &last, err));
    /* At least one whole record. */
    int64_t length = cursor->size >= UNI__TFRECORD_HEADER ? uni__tfrecord_length(cursor->bytes) : 0;
    if (!last && length > MAX_COMPRESSED)
        return uni_error_set(
            err, UNI_ELIMIT,
            "%s: a record of %lld MiB in a compressed file, more than %lld; unpack "
            "the file first",
            uni__stream_path(cursor->files.stream), (long long)(length >> 20),
            (long long)(MAX_COMPRESSED >> 20));
    if (!last && length + UNI__TFRECORD_FRAME > cursor->size)
        UNI_TRY(fill(cursor, length + UNI__TFRECORD_FRAME + UNI__TFRECORD_HEADER, &last, err));
    uni__tfrecord_walk walk = { .bytes = cursor->bytes,
                                .size = cursor->size,
                                .limit = cursor->size,
                                .whole = last,
                                .records = -1,
                                .path = uni__stream_path(cursor->files.stream),
                                .offset = cursor->offset };
    UNI_TRY(uni__tfrecord_read(&walk, self->raw, self->schema, reader, out, err));
    memmove(cursor->bytes, cursor->bytes + walk.at, (size_t)(cursor->size - walk.at));
    cursor->size -= walk.at;
    cursor->offset += walk.at;
    if (last && cursor->size == 0)
        close_file(cursor);
    return 1;
}

static int stream_next(void *self_, void *cursor_, uni__reader *reader, uni_table **out,
                       uni_error *err)
{
    tfrecord *self = self_;
    tfrecord_cursor *cursor = cursor_;
    for (;;) {
        int more = uni__file_cursor_next(&cursor->files, self->files, err);
        if (more <= 0)
            return more;
        if (more == 1)
            cursor->offset = 0;
        int status = stream_file(self, cursor, reader, out, err);
        if (status >= 0)
            return status;
        UNI_TRY(uni__stream_pass_over(cursor->files.stream, reader, status, err));
        close_file(cursor);
    }
}

/* ---- constructors ---- */

static void tfrecord_free(void *self_)
{
    tfrecord *self = self_;
    uni__files_free(self->files);
    uni_table_unref(self->schema);
    free(self->blocks);
    free(self->begins);
    free(self->nexts);
    free(self);
}

/* Reads the first records of the first file that has any. */
static int infer_file(uni__example_infer *infer, const char *path, int64_t limit, bool skip,
                      int64_t *rows, int64_t *bytes, uni_error *err)
{
    tfrecord_cursor cursor = { 0 };
    bool last = false;
    int64_t at = 0, length = 0;
    int status = 0;
    UNI_TRY(uni__stream_open(&cursor.files.stream, path, err));
    UNI_TRY_GOTO(fill(&cursor, (int64_t)HEAD_BYTES, &last, err), done);
    if (cursor.size >= UNI__TFRECORD_HEADER)
        length = uni__tfrecord_length(cursor.bytes);
    if (length + UNI__TFRECORD_FRAME > cursor.size && !last)
        UNI_TRY_GOTO(fill(&cursor, length + UNI__TFRECORD_FRAME, &last, err), done);
    for (; *rows < limit && cursor.size - at >= UNI__TFRECORD_HEADER;
         at += length + UNI__TFRECORD_FRAME) {
        length = uni__tfrecord_length(cursor.bytes + at);
        if (length < 0 && !skip) {
            status = uni_error_set(err, UNI_EFORMAT,
                                   "%s: the record at byte %lld has a damaged length (its CRC does "
                                   "not fit); is this a TFRecord file?",
                                   path, (long long)at);
            goto done;
        }
        if (length < 0) { /* skipped: what follows may be good */
            int64_t next = uni__tfrecord_find(cursor.bytes, at + 1, cursor.size);
            if (next < 0)
                break;
            at = next;
            length = uni__tfrecord_length(cursor.bytes + at);
        }
        if (length + UNI__TFRECORD_FRAME > cursor.size - at)
            break;
        const uint8_t *body = cursor.bytes + at + UNI__TFRECORD_HEADER;
        status =
            !uni__tfrecord_data_good(body, length)
                ? uni_error_set(err, UNI_EFORMAT, "the bytes are damaged (their CRC does not fit)")
                : uni__example_infer_add(infer, body, (size_t)length, err);
        if (status < 0 && (!skip || status != UNI_EFORMAT)) {
            uni_error_prefix(err, "%s: the record at byte %lld", path, (long long)at);
            goto done;
        }
        *rows += status == 0;
        status = 0;
    }
    *bytes = at;
done:
    uni__stream_close(cursor.files.stream);
    free(cursor.bytes);
    return status;
}

static int find_schema(tfrecord *self, const uni_tfrecord_options *o, int64_t *row_bytes,
                       uni_error *err)
{
    uni_field bytes = { .name = "bytes", .kind = UNI_FIELD_BINARY, .dtype = UNI_U8 };
    int64_t rows = 0, size = 0, limit = o->infer_rows > 0 ? o->infer_rows : 100;
    int status = 0;
    if (o->raw)
        return uni__build_schema(&self->schema, &bytes, 1, err);
    uni__example_infer *infer = uni__example_infer_new();
    if (infer == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    for (int i = 0; i < self->files->count && rows == 0; i++)
        UNI_TRY_GOTO(
            infer_file(infer, self->files->items[i].path, limit, o->bad.skip, &rows, &size, err),
            done);
    *row_bytes = rows > 0 ? size / rows : 0;
    status = uni__example_infer_schema(infer, o, self->files->items[0].path, &self->schema, err);
done:
    uni__example_infer_free(infer);
    return status;
}

static int make_blocks(tfrecord *self, int64_t block_bytes, uni_error *err)
{
    UNI_TRY(uni__files_blocks(self->files, block_bytes, &self->blocks, &self->num_blocks, err));
    size_t count = (size_t)self->num_blocks + 1;
    self->begins = malloc(count * sizeof *self->begins);
    self->nexts = malloc(count * sizeof *self->nexts);
    if (self->begins == NULL || self->nexts == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %zu blocks", count);
    for (size_t i = 0; i < count; i++) {
        atomic_init(&self->begins[i], UNKNOWN);
        atomic_init(&self->nexts[i], UNKNOWN);
    }
    return 0;
}

int uni_dataset_read_tfrecords(uni_dataset **out, int num_paths, const char *const *paths,
                               const uni_tfrecord_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_tfrecord_options, options, bad, err);
    uni_tfrecord_options o = *options;
    bool compressed = false;
    int64_t row_bytes = 0;
    int status = 0;
    tfrecord *self = calloc(1, sizeof *self);
    if (self == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    self->raw = o.raw;
    UNI_TRY_GOTO(uni__files_open(&self->files, num_paths, paths, NULL, err), fail);
    UNI_TRY_GOTO(find_schema(self, &o, &row_bytes, err), fail);
    for (int i = 0; i < self->files->count; i++)
        compressed |= uni__is_compressed(self->files->items[i].path);
    self->class_ = (uni__source_class){ .name = "tfrecord", .free = tfrecord_free };
    if (compressed) {
        self->class_.stream_open = stream_open;
        self->class_.stream_next = stream_next;
        self->class_.stream_close = stream_close;
        self->class_.stream_files = uni__file_cursor_choose;
        self->class_.num_places = uni__files_num_places;
        self->class_.place = uni__files_place;
    } else {
        self->class_.read_block = read_block;
        self->class_.count_block = count_block;
        self->class_.place = block_place;
        UNI_TRY_GOTO(make_blocks(self, o.block_bytes, err), fail);
    }
    uni__source source = { .class_ = &self->class_,
                           .self = self,
                           .kind = compressed ? UNI__SOURCE_STREAM : UNI__SOURCE_SPLIT,
                           .schema = uni_table_ref(self->schema),
                           .num_rows = -1,
                           .num_blocks = self->num_blocks,
                           .bytes = compressed ? -1 : self->files->bytes,
                           .row_bytes = row_bytes };
    return uni__dataset_from_source(out, &source, &o.bad, err);
fail:
    tfrecord_free(self);
    return status;
}
