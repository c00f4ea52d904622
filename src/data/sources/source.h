/*
 * source.h - a source of rows, as seen inside src/data.
 *
 * A source is opened over files or memory once and cheaply: it determines its schema from the first
 * bytes and the sizes of its files, and reads nothing more. It is one of three kinds, which decides
 * the order that datasets can give it (docs/data.md):
 *
 *   indexed   num_rows is known and any rows can be read (npy, idx, arrays, SQLite by rowid, images
 *             by file): order global
 *   split     num_blocks blocks that can be read independently, each row in exactly one; the row
 *             count of a block is known only after it was read or counted (CSV, JSON lines, text:
 *             byte ranges; Parquet: row groups): order block
 *   stream    rows can only be read in sequence (gz, zstd, sockets, a user's generator): order
 *             stream
 *
 * Threads: one thread opens and frees a source. Several threads call the read functions at once on
 * the same source, each with its own uni__reader. A source has no mutable state except what it
 * guards itself. It is best to open descriptors per block, as uni__files_pread does.
 *
 * Memory: tables are created with uni__reader_array, so that their buffers are recycled (fresh
 * pages cost ten times a warm memcpy); temporary space comes from uni__reader_scratch. A block of a
 * few MB is the unit of memory: while it reads a block, a source must not hold more than that.
 *
 * Bad data: a source calls uni__reader_bad with the location. It returns 0 if the user asked to
 * skip (the row was counted), and an error otherwise.
 */
#ifndef UNISONO_DATA_SOURCE_H
#define UNISONO_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/table.h>
#include "data/sources/files.h"

typedef struct uni__reader uni__reader; /* recycled memory and bad rows of one thread */

typedef enum uni__source_kind {
    UNI__SOURCE_INDEXED = 1,
    UNI__SOURCE_SPLIT,
    UNI__SOURCE_STREAM
} uni__source_kind;

/* Location of a block or a range of rows, for `unisono data plan` and messages. */
typedef struct uni__place {
    const char *file; /* borrowed from the source; NULL: in memory */
    int64_t begin, end; /* bytes of the file; in memory: rows */
    int64_t rows; /* -1: not known */
    /* What begin and end count if it is neither, such as "keys"; otherwise NULL. */
    const char *unit;
} uni__place;

/* files.c: location of a block, and of a whole file. */
void uni__place_of_block(const uni__files *files, const uni__block *block, uni__place *out);
void uni__place_of_file(const uni__files *files, int64_t index, uni__place *out);
/* num_places and place of a source that reads whole files. Its object begins with its files. */
int64_t uni__files_num_places(void *self);
void uni__files_place(void *self, int64_t index, uni__place *out);

typedef struct uni__source_class {
    const char *name; /* "csv" */
    /* indexed: reads rows [begin, end), within num_rows. May return views. May block. Any thread.
     * Default: read_rows. */
    int (*read_range)(void *self, uni__reader *reader, int64_t begin, int64_t end, uni_table **out,
                      uni_error *err);
    /* indexed: reads these rows, in this order. Default: read_range of the span and a gather if the
     * rows are dense, otherwise row by row. Any thread. */
    int (*read_rows)(void *self, uni__reader *reader, const int64_t *rows, int64_t count,
                     uni_table **out, uni_error *err);
    /* split: reads all rows of a block. A block without rows is an empty table with all columns.
     * Any thread. */
    int (*read_block)(void *self, uni__reader *reader, int64_t block, uni_table **out,
                      uni_error *err);
    /* split: row count of a block without building a table. Must agree with read_block, the
     * default. Any thread. */
    int (*count_block)(void *self, uni__reader *reader, int64_t block, int64_t *out,
                       uni_error *err);
    /* stream: opens a cursor at the first row. next returns 1 and a table of up to a few thousand
     * rows, or 0 at the end. One thread per cursor. */
    int (*stream_open)(void *self, void **cursor, uni_error *err);
    int (*stream_next)(void *self, void *cursor, uni__reader *reader, uni_table **out,
                       uni_error *err);
    void (*stream_close)(void *self, void *cursor);
    /* stream: restricts a new cursor to the files first, first + step, ... NULL: there are no files
     * to choose from. */
    void (*stream_files)(void *self, void *cursor, int first, int step);
    /* Location of row i (indexed) or block i (split); for streams, of file i of num_places.
     * Default: unknown. */
    int64_t (*num_places)(void *self);
    void (*place)(void *self, int64_t index, uni__place *out);
    void (*free)(void *self);
} uni__source_class;

typedef struct uni__source {
    const uni__source_class *class_;
    void *self;
    uni__source_kind kind;
    /* An empty table with the columns of every read, in this order. */
    uni_table *schema;
    int64_t num_rows; /* Indexed; otherwise -1, or the number if the source happens to know it. */
    int64_t num_blocks; /* split only */
    /* split: rows in a block, estimated; 0: not known. Determines the size of row windows. */
    int64_t block_rows;
    /* Of all files or arrays together; -1: not known. Blocks count as equal parts of it. */
    int64_t bytes;
    /* Decoded bytes of a row, estimated; 0: not known. Fits the size of chunks to the budget. */
    int64_t row_bytes;
    /* Reading copies rows from memory, or nothing, and calls no user function. */
    bool in_memory;
    bool views; /* reading a range copies nothing */
} uni__source;

/* Creates a dataset from a source. Takes ownership of the contents of *source (class, self,
 * schema), even on failure. `bad` may be NULL. */
struct uni_dataset;
struct uni_bad_data;
int uni__dataset_from_source(struct uni_dataset **out, const uni__source *source,
                             const struct uni_bad_data *bad, uni_error *err) UNI_MUST_USE;
void uni__source_free(const uni__source *source); /* frees self and schema */

/* ---- the reader: one thread's memory ---- */

/* Allocates an array from recycled memory. Its contents are NOT zeroed. The buffer is recycled when
 * the last reference goes, on any thread. */
int uni__reader_array(uni__reader *reader, uni_array **out, uni_dtype dtype, int ndim,
                      const int64_t *shape, uni_error *err) UNI_MUST_USE;
/* Shrinks an array along its first dimension without copying, after rows were skipped. Replaces
 * *array. */
int uni__reader_trim(uni__reader *reader, uni_array **array, int64_t first_dimension,
                     uni_error *err) UNI_MUST_USE;
/* The owners of scratch memory. Each belongs to exactly one call of uni__reader_scratch
 * (tests/data/scratch-owners checks it). Callers that shared a buffer would overwrite each other as
 * soon as one of them is below the other on the stack. */
typedef enum uni__scratch {
    UNI__SCRATCH_ORDER_ROWS, /* run/execute.c */
    UNI__SCRATCH_SHUFFLED_ROWS, /* table/shuffle.c */
    UNI__SCRATCH_FILTER_ROWS, /* plan/map.c */
    UNI__SCRATCH_FILE_LINES, /* sources/files.c */
    UNI__SCRATCH_MEMORY_ROWS, /* sources/memory.c */
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
/* This thread's memory that is kept between calls: one buffer per owner, at least `size` bytes,
 * 64-byte aligned, with 64 readable bytes after it. Its contents are lost when it grows. NULL if
 * out of memory. */
void *uni__reader_scratch(uni__reader *reader, uni__scratch owner, size_t size);
/* Releases the buffer, if an owner needed far more than usual. */
void uni__reader_release(uni__reader *reader, uni__scratch owner);

/* Reports a bad row. `line` and `column` count from 1; 0: none (binary formats put the byte offset
 * into the message). Returns 0 if the row is to be skipped (it was counted), otherwise the error,
 * prefixed with "FILE:LINE:COLUMN: ". */
int uni__reader_bad(uni__reader *reader, uni_error *err, const char *file, int64_t line,
                    int64_t column, const char *format, ...) UNI_PRINTF(6, 7) UNI_MUST_USE;
/* Counts a row that the user wants left out with the bad ones. */
void uni__reader_leave_out(uni__reader *reader);
/* True if bad rows are skipped. A file that cannot be opened or has changed is still an error. */
bool uni__reader_skips(const uni__reader *reader);
/* Returns UNI_ECANCELED if the iterator is being closed. Long-running readers poll this between
 * rows, so that leaving a loop early does not wait. */
int uni__reader_is_wanted(const uni__reader *reader, uni_error *err) UNI_MUST_USE;
/* For tests and fuzz targets: a reader without an iterator. */
int uni__reader_new(uni__reader **out, bool skip_bad, uni_error *err) UNI_MUST_USE;
void uni__reader_free(uni__reader *reader);
int64_t uni__reader_skipped(const uni__reader *reader); /* rows so far */

#endif
