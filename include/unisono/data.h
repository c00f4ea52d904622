/*
 * data.h - datasets: read, transform, shuffle, shard and batch, with exact resume.
 *
 * A dataset is a recipe: a source and a chain of transforms. Creating one reads at most the head of
 * a file; an iterator does the work, on its own threads, within one byte budget. Datasets never
 * change (every transform returns a new one that references the old one), so a dataset can be
 * iterated many times and by several threads.
 *
 * Order. Every source has one of three orders (docs/data.md), which uni__dataset_order describes:
 *   global   indexed sources: a keyed permutation of all samples; the same batches for any number
 *            of workers
 *   block    splittable files: a keyed permutation of blocks, and of the rows in a window of blocks
 *   stream   compressed or generated: as it comes, shuffled in keyed windows
 * Each sample is used exactly once per epoch, even if the iterator's state (a few integers) is
 * saved in the middle of an epoch and resumed with another number of workers. The state counts the
 * batches returned by next, not those prefetched.
 *
 * Thread rule: datasets may be shared; an iterator belongs to one thread at a time, and to the
 * process that opened it (a forked child gets UNI_ESTATE; datasets can be used). Functions given to
 * map, filter ... run on the iterator's threads, several at once unless they request in_order.
 *
 * @example
 * uni_dataset *lines = NULL, *shuffled = NULL;
 * uni_dataset_iterator *it = NULL;
 * UNI_TRY(uni_dataset_range(&lines, 1000, err));
 * UNI_TRY(uni_dataset_shuffle(&shuffled, lines, 0, 42, err));
 * UNI_TRY(uni_dataset_iterate(&it, shuffled, &(uni_data_options){ .batch_size = 64 }, err));
 * uni_table *batch = NULL;
 * int more = 0;
 * while ((more = uni_dataset_iterator_next(&batch, it, err)) > 0) {
 *     printf("%lld rows\n", (long long)uni_table_num_rows(batch));
 *     uni_table_unref(batch);
 * }
 * uni_dataset_iterator_free(it);
 * uni_dataset_unref(shuffled);
 * uni_dataset_unref(lines);
 * return more;
 * @end
 */
#ifndef UNISONO_DATA_H
#define UNISONO_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/array.h>
#include <unisono/status.h>
#include <unisono/table.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_dataset uni_dataset;

UNI_API uni_dataset *uni_dataset_ref(uni_dataset *dataset);
UNI_API void uni_dataset_unref(uni_dataset *dataset);

/* ---- sources (more of them: data_readers.h) ---- */

/* What to do with a row that cannot be read. */
typedef struct uni_bad_data {
    bool skip; /* count it and continue; default: an error with file, line and column */
    int64_t max_skipped; /* more than this is an error; 0: any number */
} uni_bad_data;

/* One column "id" (int64) with 0 to n-1. */
UNI_API UNI_MUST_USE int uni_dataset_range(uni_dataset **out, int64_t n, uni_error *err);
/* A list of dictionaries, or of other values, which become the column "item". Copies. */
UNI_API UNI_MUST_USE int uni_dataset_from_items(uni_dataset **out, const uni_value *items,
                                                uni_error *err);
/* Arrays of (rows, ...), referenced, not copied; batches are views where the order allows. */
UNI_API UNI_MUST_USE int uni_dataset_from_arrays(uni_dataset **out, int count,
                                                 const char *const *names, uni_array *const *arrays,
                                                 uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_from_table(uni_dataset **out, uni_table *table,
                                                uni_error *err);

typedef struct uni_numpy_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *column; /* for .npy files; default "data". Arrays in an .npz have their own names */
} uni_numpy_options;
/* .npy: the rows of all files (same dtype and row shape). .npz: stored (not compressed) members
 * as columns. */
UNI_API UNI_MUST_USE int uni_dataset_read_numpy(uni_dataset **out, int num_paths,
                                                const char *const *paths,
                                                const uni_numpy_options *options, uni_error *err);

/* What to do with rows that do not have as many fields as the header. */
typedef enum uni_csv_rows {
    UNI_CSV_ERROR, /* treated as bad rows (`bad`) */
    UNI_CSV_SKIP, /* skipped and counted */
    UNI_CSV_FIT /* short rows are filled with missing values, long rows truncated */
} uni_csv_rows;

typedef struct uni_csv_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    char delimiter; /* default: tab for .tsv and .tab files, otherwise ',' */
    char quote; /* default '"' */
    bool no_quotes; /* treat quotes as ordinary characters */
    bool no_header; /* the names are column_names, or f0, f1 ... */
    const char *encoding; /* "utf-8" (default), "latin-1" or "windows-1252"; columns are UTF-8 */
    uni_csv_rows short_rows, long_rows;
    /* A duplicate name in the header is an error. With this option the second x becomes "x.1",
     * and an empty name "Unnamed: 3" (its position), as in pandas. */
    bool rename_duplicates;
    const char *const *column_names; /* instead of the header's; NULL-terminated */
    const char *const *columns; /* only these, in this order; NULL-terminated; default all */
    const uni_field *types; /* given types (name, kind, dtype); all others are inferred */
    int num_types;
    uni_dtype float_dtype; /* for inferred numbers with a decimal point; default UNI_F64 */
    /* Missing values in number columns, NULL-terminated. Default: those of pandas: "", #N/A,
     * #N/A N/A, #NA, -1.#IND, -1.#QNAN, -NaN, -nan, 1.#IND, 1.#QNAN, <NA>, N/A, NA, NULL,
     * NaN, None, n/a, nan, null. */
    const char *const *null_values;
    bool default_nulls; /* add null_values to the default ones */
    int64_t block_bytes; /* 0: chosen from the size of the files */
    /* Rows used to infer types; default 1000. A column without a value in them is searched
     * further, in the first 16 MiB; if it has none there and the file continues, it is text. */
    int64_t infer_rows;
    /* A column has one type. Inferred integers with missing values are float64 (NaN), booleans
     * with missing values are text, and a missing value that appears later, or in a column of
     * given type, is a bad row. With masks they keep their type, and uni_table_column.valid says
     * which are missing. */
    bool masks;
    uni_bad_data bad;
} uni_csv_options;
/* RFC 4180: quotes, embedded newlines, LF or CRLF. Files, directories, globs; .gz and .zst are
 * read as streams. More than 100,000 columns is UNI_ELIMIT. */
UNI_API UNI_MUST_USE int uni_dataset_read_csv(uni_dataset **out, int num_paths,
                                              const char *const *paths,
                                              const uni_csv_options *options, uni_error *err);

/* Chooses the reader by file name (for a directory: of the first known file in it): .csv, .tsv,
 * .npy, .npz, .jsonl, .tfrecord, .txt, the same with .gz or .zst, .jpg and .png, and MNIST's
 * -idx3-ubyte and similar, one column per file. */
UNI_API UNI_MUST_USE int uni_dataset_read(uni_dataset **out, int num_paths,
                                          const char *const *paths, uni_error *err);
/* From a dictionary, as in a run's `datasets`: one source: "csv", "numpy", "json", "text",
 * "tfrecord", "images", "sqlite", "idx" or "paths" (a path or a list), or "range"; CSV:
 * "delimiter", "quote", "quotes" (bool), "header" (bool), "encoding", "short_rows", "long_rows",
 * "duplicate_names", "float_dtype", "skip_bad"; images: "height", "width", "channels", "labels",
 * "rescale", "skip_bad"; SQLite: "table" (or a query); idx: "names" (of the columns); then, in
 * this order: "columns" (a list), "skip", "limit", "features" ({new column: [columns put side by
 * side as float32]}), "cast" (a dtype), "shuffle" (true, or a number of rows), "seed",
 * "batch_size", "drop_remainder", "repeat". Others are UNI_EINVAL. */
UNI_API UNI_MUST_USE int uni_dataset_from_config(uni_dataset **out, const uni_value *config,
                                                 uni_error *err);

/* A custom source. Either num_rows and read_range (indexed: any range, from several threads at
 * once), or num_blocks and read_block (split: any block, from several threads at once), or open,
 * next, close (a stream of tables; next returns 1 with a table, 0 at the end). The first table
 * (or an empty range) gives the schema. */
typedef struct uni_source_functions {
    const char *name; /* for messages; copied; may be NULL */
    void *context;
    int64_t num_rows;
    int (*read_range)(void *context, int64_t begin, int64_t end, uni_table **out, uni_error *err);
    int (*open)(void *context, void **cursor, uni_error *err);
    int (*next)(void *context, void *cursor, uni_table **out, uni_error *err);
    void (*close)(void *context, void *cursor);
    void (*free)(void *context); /* with the last reference; may be NULL */
    int64_t num_blocks;
    int (*read_block)(void *context, int64_t block, uni_table **out, uni_error *err);
    const int64_t *block_rows; /* of each block, where known; copied; may be NULL */
    int64_t bytes; /* approximate size of all blocks, for planning memory; 0: unknown */
    const char *const *block_files; /* of each block, for plans; copied; may be NULL */
} uni_source_functions;
UNI_API UNI_MUST_USE int uni_dataset_from_functions(uni_dataset **out,
                                                    const uni_source_functions *callbacks,
                                                    uni_error *err);

/* ---- transforms: lazy, none reads data unless stated ---- */

/* *out is a new table (or `in` with another reference). The number of rows may change only if
 * the options say so. */
typedef int (*uni_table_function)(void *context, uni_table *in, uni_table **out, uni_error *err);
typedef struct uni_map_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    uni_table_function function; /* required */
    void *context;
    void (*free_context)(void *context); /* with the last reference; may be NULL */
    const char *name; /* for stats and messages; default "map_batches" */
    int64_t batch_size; /* rows per call; 0: whatever the source produces */
    bool changes_rows; /* the number of rows may change (filter, flat_map) */
    /* Columns and types stay the same (a filter): they are known even if no row is left */
    bool keeps_columns;
    bool in_order; /* one call at a time, on one thread, in the order of the rows */
    /* Of the result, if known: no rows needed; NULL: the function is tried on the first row */
    uni_table *schema;
} uni_map_options;
UNI_API UNI_MUST_USE int uni_dataset_map_batches(uni_dataset **out, uni_dataset *from,
                                                 const uni_map_options *options, uni_error *err);

/* Row by row; a row is (table, index). */
typedef int (*uni_row_map)(void *context, const uni_table *table, int64_t row,
                           uni_value *out /* an empty dictionary to fill */, uni_error *err);
typedef int (*uni_row_filter)(void *context, const uni_table *table, int64_t row,
                              uni_error *err); /* 1 keep, 0 drop */
typedef int (*uni_row_flat_map)(void *context, const uni_table *table, int64_t row,
                                uni_value *out /* an empty list of dictionaries to fill */,
                                uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_map(uni_dataset **out, uni_dataset *from, uni_row_map function,
                                         void *context, uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_filter(uni_dataset **out, uni_dataset *from,
                                            uni_row_filter function, void *context, uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_flat_map(uni_dataset **out, uni_dataset *from,
                                              uni_row_flat_map function, void *context,
                                              uni_error *err);

/* Columns; names are NULL-terminated. A missing name is UNI_ENOTFOUND immediately. */
UNI_API UNI_MUST_USE int uni_dataset_select(uni_dataset **out, uni_dataset *from,
                                            const char *const *names, uni_error *err);
/* All but these; names are NULL-terminated. */
UNI_API UNI_MUST_USE int uni_dataset_drop(uni_dataset **out, uni_dataset *from,
                                          const char *const *names, uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_rename(uni_dataset **out, uni_dataset *from, const char *name,
                                            const char *new_name, uni_error *err);
/* Converts numbers to another dtype; column NULL: all of them. Fractions are truncated; a value
 * that does not fit an integer (also NaN) is UNI_EDTYPE. */
UNI_API UNI_MUST_USE int uni_dataset_cast(uni_dataset **out, uni_dataset *from, const char *column,
                                          uni_dtype dtype, uni_error *err);
/* Joins number columns side by side into one of (rows, total width), at the position of the
 * first; names are NULL-terminated. */
UNI_API UNI_MUST_USE int uni_dataset_concat_columns(uni_dataset **out, uni_dataset *from,
                                                    const char *const *names, const char *new_name,
                                                    uni_dtype dtype, uni_error *err);

/* Rows. If the number of rows in a part of the source is unknown, these count (and read) what
 * they need immediately. */
UNI_API UNI_MUST_USE int uni_dataset_limit(uni_dataset **out, uni_dataset *from, int64_t count,
                                           uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_skip(uni_dataset **out, uni_dataset *from, int64_t count,
                                          uni_error *err);
/* count + 1 datasets: [0, indices[0]), [indices[0], indices[1]) ... to the end. */
UNI_API UNI_MUST_USE int uni_dataset_split_at_indices(uni_dataset **out, uni_dataset *from,
                                                      int count, const int64_t *indices,
                                                      uni_error *err);
/* n datasets with as equal a number of rows as possible; equal: exactly equal, dropping the last
 * rows. */
UNI_API UNI_MUST_USE int uni_dataset_split(uni_dataset **out, uni_dataset *from, int n, bool equal,
                                           uni_error *err);
/* The last part (0 < test_size < 1) is the test set; with shuffle, of the rows in a keyed order. */
UNI_API UNI_MUST_USE int uni_dataset_train_test_split(uni_dataset **train, uni_dataset **test,
                                                      uni_dataset *from, double test_size,
                                                      bool shuffle, uint64_t seed, uni_error *err);
/* Concatenates rows; all must have the same columns. */
UNI_API UNI_MUST_USE int uni_dataset_union(uni_dataset **out, int count,
                                           uni_dataset *const *datasets, uni_error *err);
/* Joins columns side by side; both must have the same number of rows. A duplicate name gets "_1"
 * in the second. */
UNI_API UNI_MUST_USE int uni_dataset_zip(uni_dataset **out, uni_dataset *a, uni_dataset *b,
                                         uni_error *err);
/* Reads and transforms once, immediately, and keeps the result in memory, indexed. More than
 * max_bytes (0: 1 GiB) is UNI_ELIMIT. */
UNI_API UNI_MUST_USE int uni_dataset_cache(uni_dataset **out, uni_dataset *from, int64_t max_bytes,
                                           uni_error *err);

/* Order. shuffle: buffer 0 shuffles as well as the source allows (random_shuffle): globally, or
 * blocks and windows of blocks; buffer > 0 permutes within windows of at least that many rows. 0
 * is a valid seed. Every epoch has another order, unless same_each_epoch. */
UNI_API UNI_MUST_USE int uni_dataset_shuffle(uni_dataset **out, uni_dataset *from, int64_t buffer,
                                             uint64_t seed, uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_same_each_epoch(uni_dataset **out, uni_dataset *from,
                                                     uni_error *err);
/* Windows of blocks_per_window blocks, one after the other (a pipeline); a shuffle after it
 * shuffles within each window (random_shuffle_each_window). */
UNI_API UNI_MUST_USE int uni_dataset_window(uni_dataset **out, uni_dataset *from,
                                            int64_t blocks_per_window, uni_error *err);
/* Splits into n blocks of about equal size, the unit of windows. Blocks of files are merged or
 * split (a split block is read once for each part); a stream has no blocks (UNI_EUNSUPPORTED). */
UNI_API UNI_MUST_USE int uni_dataset_repartition(uni_dataset **out, uni_dataset *from,
                                                 int64_t num_blocks, uni_error *err);
#define UNI_REPEAT_FOREVER (-1)
/* An iterator returns that many epochs one after the other; UNI_REPEAT_FOREVER. */
UNI_API UNI_MUST_USE int uni_dataset_repeat(uni_dataset **out, uni_dataset *from, int64_t count,
                                            uni_error *err);
/* Defaults for iterators that do not set these themselves. */
UNI_API UNI_MUST_USE int uni_dataset_batch(uni_dataset **out, uni_dataset *from, int64_t batch_size,
                                           bool drop_remainder, uni_error *err);

#define UNI_AUTO (-1) /* prefetch as far as the budget allows: the default */
UNI_API UNI_MUST_USE int uni_dataset_prefetch(uni_dataset **out, uni_dataset *from, int64_t batches,
                                              uni_error *err);

/* ---- inspecting ---- */

/* A table of 0 rows with the columns; borrowed from the dataset. */
UNI_API UNI_MUST_USE int uni_dataset_schema(const uni_table **out, uni_dataset *dataset,
                                            uni_error *err);
/* Number of rows. Known immediately for indexed sources without a filter; counted (read)
 * otherwise. */
UNI_API UNI_MUST_USE int uni_dataset_count(int64_t *out, uni_dataset *dataset, uni_error *err);
/* The first rows, fewer at the end. */
UNI_API UNI_MUST_USE int uni_dataset_take(uni_table **out, uni_dataset *dataset, int64_t count,
                                          uni_error *err);
/* The first rows as text, one per line; malloc'ed. */
UNI_API UNI_MUST_USE int uni_dataset_show(char **out, uni_dataset *dataset, int64_t count,
                                          uni_error *err);
/* Which rank reads what: [{"rank", "takes", "rows" (-1 not known), "bytes", "pieces": [{"file",
 * "begin", "end", "unit": "bytes", "rows", "rowids" or "keys"}]}]. A rank takes "ranges": all of
 * its pieces; "rounds": its part of every global batch, so its rows can be anywhere in the
 * pieces, which are those of all ranks; "scattered": positions in a keyed order (of blocks:
 * pieces are those of the first epoch); "all": it reads everything and keeps its part. With
 * `equal` the border between two ranks is a row, and both read its block. */
UNI_API UNI_MUST_USE int uni_dataset_plan(uni_value **out, uni_dataset *dataset, int num_shards,
                                          uni_error *err);

/* Shards by files: file i of the source belongs to shard i modulo num_shards, whatever the
 * files' sizes, and the result is sharded: no iterator shards it again. This way each compressed
 * file is read by only one worker. The shards may differ in their number of batches (see
 * `equal`), and a state can be resumed only with the same number of shards. Fewer files than
 * shards is UNI_EINVAL, a source without files UNI_EUNSUPPORTED. */
UNI_API UNI_MUST_USE int uni_dataset_shard_files(uni_dataset **out, uni_dataset *from, int shard,
                                                 int num_shards, uni_error *err);

/* ---- iterating ---- */

typedef struct uni_data_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int64_t batch_size; /* rows; default: the dataset's batch(), otherwise 256 */
    bool drop_remainder; /* drop a smaller last batch */
    /* This worker's part; default 0 of 1. No effect on a dataset that is already sharded. */
    int shard, num_shards;
    /* Instead of batch_size: rows of all shards together, divided among the shards as evenly as
     * possible; at least one per shard */
    int64_t global_batch_size;
    /* All shards get the same number of batches, and every row is used. In block order, rows are
     * divided by number, so the blocks are counted first (once per dataset; two shards read the
     * block at a border). If the number of rows cannot be known (a stream, a filter over rows in
     * global order, functions with in_order), every shard reads everything and keeps its part of
     * every global batch. A shard without a part of the last rows gets an empty batch (weight
     * 0); with drop_remainder all stop before it. Shards by files have the rows of their files,
     * so some end with empty batches. The state of any shard then covers all of them. */
    bool equal;
    /* With equal, for loops that cannot weight batches: no batch is empty. Rows too few for all
     * shards are added to the last batch, which then has one row more; if the epoch does not
     * have enough rows they are dropped (statistics: "left_out"). Not for shards by files
     * without drop_remainder (UNI_EUNSUPPORTED). */
    bool no_empty;
    /* With equal, in block order: the rows of each block if they are known, so that they are not
     * counted again; copied. NULL: counted here */
    const int64_t *block_rows;
    /* Bytes for reading, decoding, shuffling and prefetching together; default 256 MiB */
    int64_t budget;
    int threads; /* default: the CPUs of the process, at most 16 */
    int64_t prefetch; /* batches prepared ahead; 0: the dataset's, otherwise UNI_AUTO */
    /* Overrides repeat(); 0: the dataset's, otherwise 1; UNI_REPEAT_FOREVER */
    int64_t epochs;
    uint64_t first_epoch; /* start with the order of this epoch (one iterator per epoch) */
    const uni_value *state; /* resume from uni_dataset_iterator_state, or merged from all ranks */
} uni_data_options;

typedef struct uni_dataset_iterator uni_dataset_iterator;

UNI_API UNI_MUST_USE int uni_dataset_iterate(uni_dataset_iterator **out, uni_dataset *dataset,
                                             const uni_data_options *options, uni_error *err);
/* 1 and a batch (the caller unrefs it); 0 at the end of the last epoch; negative: a permanent
 * error. */
UNI_API UNI_MUST_USE int uni_dataset_iterator_next(uni_table **out, uni_dataset_iterator *it,
                                                   uni_error *err);
/* The same within one epoch: 0 at its end; the next call starts the next one (iter_epochs).
 * After the last one uni_dataset_iterator_done is true. */
UNI_API UNI_MUST_USE int
uni_dataset_iterator_next_in_epoch(uni_table **out, uni_dataset_iterator *it, uni_error *err);
UNI_API bool uni_dataset_iterator_done(const uni_dataset_iterator *it);
UNI_API uint64_t uni_dataset_iterator_epoch(const uni_dataset_iterator *it); /* from 0 */
/* The position so far, as a dictionary of integers for a checkpoint. */
UNI_API UNI_MUST_USE int uni_dataset_iterator_state(uni_value **out, const uni_dataset_iterator *it,
                                                    uni_error *err);
/* Merges the states of all ranks (a list by rank, taken after the same number of batches) into
 * one: what is left to read, for any number of workers. */
UNI_API UNI_MUST_USE int uni_dataset_merge_states(uni_value **out, const uni_value *states,
                                                  uni_error *err);
/* {"rows", "batches", "bytes", "wait_s" (the caller waited for data), "busy_s" (threads read and
 * transformed), "skipped" (bad rows), "peak_bytes", "left_out" (rows, with no_empty),
 * "first_batch_s"}. */
UNI_API UNI_MUST_USE int uni_dataset_iterator_stats(uni_value **out, const uni_dataset_iterator *it,
                                                    uni_error *err);
UNI_API void uni_dataset_iterator_free(uni_dataset_iterator *it);

#ifdef __cplusplus
}
#endif
#endif
