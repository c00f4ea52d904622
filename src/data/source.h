/*
 * source.h - what a source of rows is, inside of src/data.
 *
 * A source is opened over files (or memory) once, cheaply: it finds its schema from the first bytes and the sizes of its files, and reads
 * nothing more. It then is one of three kinds, which decides the order that datasets can give it (docs/data.md):
 *
 *   indexed   num_rows is known and any rows can be read (npy, idx, arrays, SQLite by rowid, images by file): order global
 *   split     num_blocks pieces that can be read independently, each row in exactly one; how many rows a piece has is known
 *             only when it was read or counted (CSV, JSON lines, text: byte ranges; Parquet: row groups): order block
 *   stream    rows come one after the other only (gz, zstd, sockets, a user's generator): order stream
 *
 * Threads: open and free on one thread; the read functions are called from several at once on the same source, each with its own
 * uni__reader. A source holds no mutable state but what it guards itself; descriptors are best opened for each block (uni__files_pread does).
 * Memory: tables are made with uni__reader_array so that their buffers are recycled (fresh pages cost ten times a warm memcpy), temporary
 * space comes from uni__reader_scratch. A block of a few MB is the unit of memory: a source must not hold more than its block while it reads one.
 *
 * Bad data: a source calls uni__reader_bad with the place; it returns 0 when the user asked to skip (it was counted) and an error otherwise.
 */
#ifndef UNISONO_DATA_SOURCE_H
#define UNISONO_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/table.h>
#include "data/files.h"

typedef struct uni__reader uni__reader; /* one thread's: recycled memory, bad data */

typedef enum uni__source_kind {
    UNI__SOURCE_INDEXED = 1,
    UNI__SOURCE_SPLIT,
    UNI__SOURCE_STREAM
} uni__source_kind;

/* Where a block (or a range of rows) lies, for `unisono data plan` and messages. */
typedef struct uni__place {
    const char *file; /* borrowed from the source; NULL: in memory */
    int64_t begin, end; /* bytes of the file; for sources in memory: rows */
    int64_t rows; /* when known, otherwise -1 */
    const char *unit; /* what begin and end count, when it is neither: "keys"; otherwise NULL */
} uni__place;

/* files.c: of a block, and of a whole file. */
void uni__place_of_block(const uni__files *files, const uni__block *block, uni__place *out);
void uni__place_of_file(const uni__files *files, int64_t index, uni__place *out);

typedef struct uni__source_class {
    const char *name; /* "csv" */
    /* indexed: rows [begin, end), never more than num_rows. May return views. Blocks on reads. Any thread. */
    int (*read_range)(void *self, uni__reader *reader, int64_t begin, int64_t end, uni_table **out,
                      uni_error *err);
    /* indexed: these rows, in this order. Default: read_range of the span and a gather when the rows are dense, else row by row. Any thread. */
    int (*read_rows)(void *self, uni__reader *reader, const int64_t *rows, int64_t count,
                     uni_table **out, uni_error *err);
    /* split: all rows of a block; none is a table of 0 rows with all columns. Any thread. */
    int (*read_block)(void *self, uni__reader *reader, int64_t block, uni_table **out,
                      uni_error *err);
    /* split: rows of a block without making a table; default: read_block. Must agree with it. Any thread. */
    int (*count_block)(void *self, uni__reader *reader, int64_t block, int64_t *out,
                       uni_error *err);
    /* stream: a cursor at the first row; next gives 1 and a table of up to some thousand rows, or 0 at the end. One thread per cursor. */
    int (*stream_open)(void *self, void **cursor, uni_error *err);
    int (*stream_next)(void *self, void *cursor, uni__reader *reader, uni_table **out,
                       uni_error *err);
    void (*stream_close)(void *self, void *cursor);
    /* stream: a new cursor reads the files first, first + step ... only. NULL: it has no files to choose from. */
    void (*stream_files)(void *self, void *cursor, int first, int step);
    /* indexed: of row i; split: of block i; stream: i is 0, the first of its files (more are told by num_places). Default: nothing to tell. */
    int64_t (*num_places)(void *self);
    void (*place)(void *self, int64_t index, uni__place *out);
    void (*free)(void *self);
} uni__source_class;

typedef struct uni__source {
    const uni__source_class *class_;
    void *self;
    uni__source_kind kind;
    uni_table
        *schema; /* a table of 0 rows whose columns are what every read gives, in this order */
    int64_t num_rows; /* indexed; otherwise -1 (or the number, when the source happens to know) */
    int64_t num_blocks; /* split */
    int64_t
        block_rows; /* split: rows of a block, estimated; 0: not known. Sizes windows of so many rows */
    int64_t
        bytes; /* of all files or arrays together; -1 not known. Blocks are taken as equal parts of it */
    int64_t
        row_bytes; /* decoded bytes of a row, estimated; 0: not known. Sizes chunks against the budget */
    bool
        in_memory; /* a read copies rows of memory, or nothing, and calls no function of the user's */
    bool views; /* nothing, when the rows are a range */
} uni__source;

/* The source as a dataset. Takes the contents of *source (class, self, schema), also when it fails. `bad` may be NULL. */
struct uni_dataset;
struct uni_bad_data;
int uni__dataset_from_source(struct uni_dataset **out, const uni__source *source,
                             const struct uni_bad_data *bad, uni_error *err) UNI_MUST_USE;
void uni__source_free(const uni__source *source); /* self and schema */

/* ---- the reader: one thread's memory ---- */

/* An array whose contents are NOT zeroed, from recycled memory; its buffer comes back when the last reference goes (from any thread). */
int uni__reader_array(uni__reader *reader, uni_array **out, uni_dtype dtype, int ndim,
                      const int64_t *shape, uni_error *err) UNI_MUST_USE;
/* The same, made smaller along its first dimension (no copy): rows that were skipped. Replaces *array. */
int uni__reader_trim(uni__reader *reader, uni_array **array, int64_t first_dimension,
                     uni_error *err) UNI_MUST_USE;
/* The owners of scratch memory: each is used by exactly one call of uni__reader_scratch (tests/data/scratch-owners checks it). Two callers that shared a
 * buffer would overwrite each other as soon as one of them is below the other on the stack. */
typedef enum uni__scratch {
    UNI__SCRATCH_ORDER_ROWS, /* execute.c */
    UNI__SCRATCH_SHUFFLED_ROWS, /* shuffle.c */
    UNI__SCRATCH_FILTER_ROWS, /* map.c */
    UNI__SCRATCH_STRIPE, /* columns.c */
    UNI__SCRATCH_FILE_LINES, /* files.c */
    UNI__SCRATCH_MEMORY_ROWS, /* sources/memory.c */
    UNI__SCRATCH_BINARY_ROWS, /* sources/binary.c */
    UNI__SCRATCH_CSV_BLOCK, /* sources/csv_block.c */
    UNI__SCRATCH_CSV_STATE,
    UNI__SCRATCH_CSV_MEMORY, /* sources/csv.c */
    UNI__SCRATCH_CSV_UNQUOTED, /* sources/csv_parse.c */
    UNI__SCRATCH_CSV_DECODED, /* sources/csv_options.c */
    UNI__SCRATCH_TFRECORD_BLOCK, /* sources/tfrecord.c */
    UNI__SCRATCH_EXAMPLE_VALUES, /* sources/tfrecord_example.c */
    UNI__SCRATCH_NUMPY_SCATTERED, /* sources/numpy.c */
    UNI__SCRATCH_NUMPY_WANTED,
    UNI__SCRATCH_IMAGE_FILE, /* sources/image.c */
    UNI__SCRATCH_IMAGE_DECODED,
    UNI__SCRATCH_IMAGE_CONVERTED,
    UNI__SCRATCH_IMAGE_WORK,
    UNI__SCRATCH_IMAGE_UNSCALED,
    UNI__SCRATCH_COUNT
} uni__scratch;
/* Memory of this thread that is kept between calls: one buffer per owner, at least `size` bytes, 64-byte aligned and with 64 readable
 * bytes behind. Contents are not kept when it grows. NULL without memory. */
void *uni__reader_scratch(uni__reader *reader, uni__scratch owner, size_t size);
/* Gives it back: an owner that needed far more than it mostly does. */
void uni__reader_release(uni__reader *reader, uni__scratch owner);

/* A bad row: `line` and `column` from 1, 0 when there is none (binary formats: the byte's offset goes into the message). Returns 0: skip the
 * row (it was counted); negative: the error, with "FILE:LINE:COLUMN: " in front of the sentence. */
int uni__reader_bad(uni__reader *reader, uni_error *err, const char *file, int64_t line,
                    int64_t column, const char *format, ...) UNI_PRINTF(6, 7) UNI_MUST_USE;
/* A row that the user wants to be left out, counted with the bad ones. */
void uni__reader_leave_out(uni__reader *reader);
/* true when bad rows are skipped. A file that cannot be opened or has changed is an error all the same. */
bool uni__reader_skips(const uni__reader *reader);
/* UNI_ECANCELED when the iterator is being closed: whoever works long asks between rows, so that who leaves a loop early does not wait. */
int uni__reader_is_wanted(const uni__reader *reader, uni_error *err) UNI_MUST_USE;
/* For tests and fuzz targets: a reader outside of an iterator. */
int uni__reader_new(uni__reader **out, bool skip_bad, uni_error *err) UNI_MUST_USE;
void uni__reader_free(uni__reader *reader);
int64_t uni__reader_skipped(const uni__reader *reader); /* rows so far */

#endif
