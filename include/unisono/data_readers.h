/*
 * data_readers.h - more sources of datasets (data.h): JSON lines, text, TFRecord, images, idx,
 * binary files, SQLite, Arrow.
 *
 * Paths are files, directories (their files, sorted, except those that begin with '.' or '_') or
 * globs. .gz and .zst files are decompressed while reading (order stream). gzip, Zstandard, JPEG,
 * PNG and SQLite need their library, which is opened with the first such file; if it is missing,
 * the error names the package. Each reader documents its rows and errors; errors have file, line
 * and column (binary formats: the offset), and with `bad` such rows are skipped and counted
 * instead. Parquet: docs/data.md.
 *
 * Thread rule: that of data.h.
 *
 * @example
 * uni_dataset *reviews = NULL;
 * UNI_TRY(uni_dataset_read_json(&reviews, 1, (const char *const[]){ "reviews" }, NULL, err));
 * char *text = NULL;
 * int status = uni_dataset_show(&text, reviews, 5, err);
 * if (status == 0)
 *     puts(text);
 * free(text);
 * uni_dataset_unref(reviews);
 * return status;
 * @end
 */
#ifndef UNISONO_DATA_READERS_H
#define UNISONO_DATA_READERS_H

#include <unisono/data.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_json_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *const *columns; /* only these, in this order; NULL-terminated; default all */
    const uni_field *types; /* given types; all others are inferred */
    int num_types;
    int64_t infer_rows; /* rows used to infer types; default 1000 */
    int64_t block_bytes; /* 0: chosen from the size of the files */
    uni_bad_data bad;
} uni_json_options;
/* One object per line. Numbers become int64, or float64 if one has a decimal point; true and
 * false become bool; text becomes strings; lists of numbers become tensors if their shape is
 * fixed, otherwise lists. Everything else (objects, mixed types) stays JSON text in a string
 * column. null or an absent key is a missing value; a key that was not seen while inferring
 * types is ignored. A single file with one list of objects is accepted, too (at most 64 MiB). */
UNI_API UNI_MUST_USE int uni_dataset_read_json(uni_dataset **out, int num_paths,
                                               const char *const *paths,
                                               const uni_json_options *options, uni_error *err);

typedef struct uni_text_lines_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *column; /* default "text" */
    bool keep_empty; /* lines; default: they are skipped */
    int64_t block_bytes; /* 0: chosen from the size of the files */
    uni_bad_data bad; /* lines that are not UTF-8 */
} uni_text_lines_options;
/* One row per line, without its LF or CRLF. */
UNI_API UNI_MUST_USE int uni_dataset_read_text(uni_dataset **out, int num_paths,
                                               const char *const *paths,
                                               const uni_text_lines_options *options,
                                               uni_error *err);

typedef struct uni_tfrecord_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    bool raw; /* the unparsed records, in the column "bytes" */
    const char *const *columns; /* only these features; NULL-terminated; default all */
    const uni_field *types; /* given types; all others are inferred */
    int num_types;
    int64_t infer_rows; /* rows used to infer types; default 100 */
    int64_t block_bytes; /* 0: chosen from the size of the files */
    uni_bad_data bad;
} uni_tfrecord_options;
/* tf.train.Example. int64 and float features of one length are scalars (length 1) or vectors, of
 * varying length lists; bytes features of one value are binary columns (string if that type is
 * given). Both checksums (CRC-32C) of every record are verified. */
UNI_API UNI_MUST_USE int uni_dataset_read_tfrecords(uni_dataset **out, int num_paths,
                                                    const char *const *paths,
                                                    const uni_tfrecord_options *options,
                                                    uni_error *err);

typedef struct uni_image_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int height, width; /* resize to this; 0: keep the size, which must be the same for all */
    int channels; /* 1 grey, 3 RGB, 4 RGBA; 0: like the first image */
    bool include_paths; /* a column "path" */
    /* A column "label" (int64): the number of the image's folder, in the order of the names */
    bool labels;
    bool rescale; /* float32 in [0, 1] instead of uint8 */
    uni_bad_data bad;
} uni_image_options;
/* .jpg, .jpeg, .png: the column "image" (height, width, channels). */
UNI_API UNI_MUST_USE int uni_dataset_read_images(uni_dataset **out, int num_paths,
                                                 const char *const *paths,
                                                 const uni_image_options *options, uni_error *err);
/* The names of the folders numbered by `labels`, as a list of strings. */
UNI_API UNI_MUST_USE int uni_image_labels(uni_value **out, int num_paths, const char *const *paths,
                                          uni_error *err);

/* MNIST files and similar: one column per file, (rows, ...) of its element type; all must have
 * the same number of rows. */
UNI_API UNI_MUST_USE int uni_dataset_read_idx(uni_dataset **out, int count,
                                              const char *const *names, const char *const *paths,
                                              uni_error *err);

typedef struct uni_binary_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    bool include_paths; /* a column "path" */
} uni_binary_options;
/* One row per file, in the column "bytes". */
UNI_API UNI_MUST_USE int uni_dataset_read_binary(uni_dataset **out, int num_paths,
                                                 const char *const *paths,
                                                 const uni_binary_options *options, uni_error *err);

typedef struct uni_sqlite_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *const *columns; /* only these; NULL-terminated; default all */
    int64_t infer_rows; /* rows used to infer types; default 1000 */
    uni_bad_data bad; /* values whose type differs from their column's */
    /* An integer column (of the query's result) whose ranges are the blocks, so workers read
     * only their own. It needs an index, otherwise it is UNI_EINVAL. Rows are in its order.
     * NULL: tables use their rowids; queries and views are streams, which every worker reads
     * completely. */
    const char *key;
    int64_t num_blocks; /* number of ranges of the key; 0: one per MiB of the file, at least 16 */
} uni_sqlite_options;
/* A table (indexed by rowid: order global if the rowids have no gaps), or a query that begins
 * with SELECT or WITH (a stream, or blocks by a key). The file is opened read-only. */
UNI_API UNI_MUST_USE int uni_dataset_read_sqlite(uni_dataset **out, const char *path,
                                                 const char *table_or_query,
                                                 const uni_sqlite_options *options, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
