/*
 * data_readers.h - more sources of datasets (data.h): JSON lines, text, TFRecord, images, idx, binary files, SQLite, Arrow.
 *
 * Paths are files, directories (their files, sorted, without those that begin with '.' or '_') or globs. Files called .gz or .zst are
 * unpacked as they are read (order stream). gzip, Zstandard, JPEG, PNG and SQLite need their library, which is opened with the first file
 * of the kind; when it is missing the error names the package. What a row is and what is an error is said at each reader; errors have file, line and
 * column (binary formats: the offset), and `bad` says whether such rows are skipped and counted instead. Parquet: docs/data.md.
 *
 * Thread rule: that of data.h.
 *
 * @example
 * uni_dataset *reviews = NULL;
 * UNI_TRY(uni_dataset_read_json(&reviews, 1, (const char *const[]){ "reviews" }, NULL, err));
 * char *text = NULL;
 * int status = uni_dataset_show(reviews, 5, &text, err);
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
    const char *const *columns; /* only these, in this order; NULL-terminated; default all */
    const uni_field *types; /* given types; all others are inferred */
    int num_types;
    int64_t infer_rows; /* looked at for types; default 1000 */
    int64_t block_bytes; /* 0: chosen by the size of the files */
    uni_bad_data bad;
} uni_json_options;
/* One object a line. Numbers become int64, or float64 when one has a point; true and false bool; text strings; lists of numbers of one shape
 * tensors, of varying length lists; everything else (objects, mixed types) stays JSON text in a string column. null or a
 * key that is not there is a missing value, a key that no row before had is passed over. A single file that is one list of objects is read, too (at most 64 MiB). */
UNI_API UNI_MUST_USE int uni_dataset_read_json(uni_dataset **out, int num_paths,
                                               const char *const *paths,
                                               const uni_json_options *options, uni_error *err);

typedef struct uni_text_lines_options {
    const char *column; /* default "text" */
    bool keep_empty; /* lines; default: they are left out */
    int64_t block_bytes; /* 0: chosen by the size of the files */
    uni_bad_data bad; /* lines that are not UTF-8 */
} uni_text_lines_options;
/* One line a row, without its LF or CRLF. */
UNI_API UNI_MUST_USE int uni_dataset_read_text(uni_dataset **out, int num_paths,
                                               const char *const *paths,
                                               const uni_text_lines_options *options,
                                               uni_error *err);

typedef struct uni_tfrecord_options {
    bool raw; /* the records as they are, in the column "bytes" */
    const char *const *columns; /* only these features; NULL-terminated; default all */
    const uni_field *types; /* given types; all others are inferred */
    int num_types;
    int64_t infer_rows; /* looked at for types; default 100 */
    int64_t block_bytes; /* 0: chosen by the size of the files */
    uni_bad_data bad;
} uni_tfrecord_options;
/* tf.train.Example. int64 and float features of one length are scalars (length 1) or vectors, of varying length lists; bytes features of one value are
 * binary columns (string when the type is given so). Both sums (CRC-32C) of every record are checked. */
UNI_API UNI_MUST_USE int uni_dataset_read_tfrecords(uni_dataset **out, int num_paths,
                                                    const char *const *paths,
                                                    const uni_tfrecord_options *options,
                                                    uni_error *err);

typedef struct uni_image_options {
    int height, width; /* scaled to that; 0: as they are, and then all must be alike */
    int channels; /* 1 grey, 3 RGB, 4 RGBA; 0: as the first image */
    bool include_paths; /* a column "path" */
    bool
        labels; /* a column "label" (int64): the number of the image's folder, in the order of the names */
    bool rescale; /* float32 in [0, 1] instead of uint8 */
    uni_bad_data bad;
} uni_image_options;
/* .jpg, .jpeg, .png: the column "image" (height, width, channels). */
UNI_API UNI_MUST_USE int uni_dataset_read_images(uni_dataset **out, int num_paths,
                                                 const char *const *paths,
                                                 const uni_image_options *options, uni_error *err);
/* The names of the folders that `labels` numbers, as a list of strings. */
UNI_API UNI_MUST_USE int uni_image_labels(uni_value **out, int num_paths, const char *const *paths,
                                          uni_error *err);

/* The files of MNIST and its like: one column a file, (rows, ...) of its element type; all must have the same number of rows. */
UNI_API UNI_MUST_USE int uni_dataset_read_idx(uni_dataset **out, int count,
                                              const char *const *names, const char *const *paths,
                                              uni_error *err);

typedef struct uni_binary_options {
    bool include_paths; /* a column "path" */
} uni_binary_options;
/* A file a row, in the column "bytes". */
UNI_API UNI_MUST_USE int uni_dataset_read_binary(uni_dataset **out, int num_paths,
                                                 const char *const *paths,
                                                 const uni_binary_options *options, uni_error *err);

typedef struct uni_sqlite_options {
    const char *const *columns; /* only these; NULL-terminated; default all */
    int64_t infer_rows; /* looked at for types; default 1000 */
    uni_bad_data bad; /* values that are of another type than their column */
    /* A column of whole numbers (of the query's result), ranges of which are blocks: workers read theirs only. It needs an index: what cannot be looked up is UNI_EINVAL.
     * Rows are in its order. NULL: tables go by their rowids, queries and views are streams, which every worker reads as a whole. */
    const char *key;
    int64_t num_blocks; /* by a key: so many ranges; 0: one for each MiB of the file, at least 16 */
} uni_sqlite_options;
/* A table (indexed by rowid: order global when the rowids have no gaps), or a query that begins with SELECT or WITH (a stream, or blocks by a key). The file is
 * opened read only. */
UNI_API UNI_MUST_USE int uni_dataset_read_sqlite(uni_dataset **out, const char *path,
                                                 const char *table_or_query,
                                                 const uni_sqlite_options *options, uni_error *err);

/* The Arrow C data interface (the structs as Arrow publishes them). The batch's buffers are shared where a column's layout is ours already. *array is
 * taken (its release is called when the last column goes, or before this returns); *schema stays the caller's. */
struct ArrowSchema;
struct ArrowArray;
UNI_API UNI_MUST_USE int uni_table_from_arrow(uni_table **out, const struct ArrowSchema *schema,
                                              struct ArrowArray *array, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
