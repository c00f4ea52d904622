/*
 * data.h - datasets: read, transform, shuffle, shard and batch, with exact resume.
 *
 * A dataset is a recipe: a source and a chain of transforms. Making one reads no more than the head of a file; work is done by an iterator, on
 * threads of its own, within one budget of bytes. Datasets never change (every transform gives a new one that holds a reference to the
 * old one), so one can be iterated many times, by several threads, in every epoch again.
 *
 * Order. Every source has one of three (docs/data.md), and uni_dataset_order says which in words:
 *   global   indexed sources: a keyed permutation of all samples; the same batches for any number of workers
 *   block    splittable files: a keyed permutation of blocks, and of the rows in a window of blocks
 *   stream   compressed or generated: as it comes, shuffled in keyed windows
 * Each sample is used exactly once per epoch, also when the iterator's state (a few integers) was saved in the middle of one and is
 * resumed by another number of workers. The state counts the batches that were taken with next, not what was prefetched.
 *
 * Thread rule: datasets may be shared; an iterator belongs to one thread at a time, and to the process that opened it (a child that was forked since gets
 * UNI_ESTATE; datasets go along). Functions given to map, filter ... run on the iterator's
 * threads, several at once unless they ask to be called in order.
 *
 * @example
 * uni_dataset *lines = NULL, *shuffled = NULL;
 * uni_dataset_iterator *it = NULL;
 * UNI_TRY(uni_dataset_range(&lines, 1000, err));
 * UNI_TRY(uni_dataset_shuffle(&shuffled, lines, 0, 42, err));
 * UNI_TRY(uni_dataset_iterate(&it, shuffled, &(uni_data_options){ .batch_size = 64 }, err));
 * uni_table *batch = NULL;
 * int more = 0;
 * while ((more = uni_dataset_iterator_next(it, &batch, err)) > 0) {
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

/* While a call waits for data (next, count, take, cache ...) `check` is called about ten times a second, on the caller's thread; nonzero ends the call with
 * UNI_ECANCELED, and the iterator with it. For interpreters, whose Ctrl-C is seen only when they are asked. What is derived from the dataset has it, too. */
UNI_API void uni_dataset_set_interrupt(uni_dataset *dataset, int (*check)(void));

/* ---- sources (more of them: data_readers.h) ---- */

/* What happens with a row that cannot be read. */
typedef struct uni_bad_data {
    bool skip; /* count it and go on; default: an error with file, line and column */
    int64_t max_skipped; /* more than that is an error; 0: any number */
} uni_bad_data;

/* One column "id" (int64) with 0 to n-1. */
UNI_API UNI_MUST_USE int uni_dataset_range(uni_dataset **out, int64_t n, uni_error *err);
/* A list of dictionaries, or of anything else, which becomes the column "item". Copies. */
UNI_API UNI_MUST_USE int uni_dataset_from_items(uni_dataset **out, const uni_value *items,
                                                uni_error *err);
/* Arrays of (rows, ...), not copied: they are referenced, and batches are views where the order allows. */
UNI_API UNI_MUST_USE int uni_dataset_from_arrays(uni_dataset **out, int count,
                                                 const char *const *names, uni_array *const *arrays,
                                                 uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_from_table(uni_dataset **out, uni_table *table,
                                                uni_error *err);

typedef struct uni_numpy_options {
    const char *column; /* of .npy files; default "data". Arrays of an .npz have their own names */
} uni_numpy_options;
/* .npy: all files one below the other (same dtype and shape of a row). .npz: stored (not compressed) members side by side. */
UNI_API UNI_MUST_USE int uni_dataset_read_numpy(uni_dataset **out, int num_paths,
                                                const char *const *paths,
                                                const uni_numpy_options *options, uni_error *err);

/* What becomes of rows that have not as many fields as the header. */
typedef enum uni_csv_rows {
    UNI_CSV_ERROR, /* they are bad rows (`bad`) */
    UNI_CSV_SKIP, /* left out, and counted as skipped */
    UNI_CSV_FIT /* short ones are filled with missing values, long ones cut */
} uni_csv_rows;

typedef struct uni_csv_options {
    char delimiter; /* default: a tab for files called .tsv or .tab, otherwise ',' */
    char quote; /* default '"' */
    bool no_quotes; /* quotes are characters like any other */
    bool no_header; /* names are then column_names, or f0, f1 ... */
    const char *encoding; /* "utf-8" (default), "latin-1" or "windows-1252"; columns are UTF-8 */
    uni_csv_rows short_rows, long_rows;
    /* A header with a name twice is an error. With this the second x is "x.1", and a name that is empty is "Unnamed: 3" (its place), as pandas has it. */
    bool rename_duplicates;
    const char *const *column_names; /* instead of the header's; NULL-terminated */
    const char *const *columns; /* only these, in this order; NULL-terminated; default all */
    const uni_field *types; /* given types (name, kind, dtype); all others are inferred */
    int num_types;
    uni_dtype float_dtype; /* of inferred numbers with a point; default UNI_F64 */
    /* Missing values of numbers. Default: those of pandas: "", #N/A, #N/A N/A, #NA, -1.#IND, -1.#QNAN, -NaN, -nan, 1.#IND, 1.#QNAN, <NA>, N/A, NA, NULL, NaN, None, n/a, nan, null. */
    const char *const *null_values;
    bool default_nulls; /* null_values are added to the default ones */
    int64_t block_bytes; /* 0: chosen by the size of the files */
    /* Looked at for types; default 1000. A column without a value in them is looked at further, in the first 16 MiB; text, if it has none there and the file goes on. */
    int64_t infer_rows;
    /* A column has one type. Inferred whole numbers of which some are missing are float64 (NaN), true and false with gaps are text, and a missing value that turns up later, or where
     * such a type was given, is a bad row. With masks they stay what they are, and uni_table_column.valid tells what is missing. */
    bool masks;
    uni_bad_data bad;
} uni_csv_options;
/* One option by its name and word, as the command and configurations have them: delimiter and quote (a character, or tab), encoding, short_rows (error, skip, fill), long_rows (error, skip, cut), bad_rows (error,
 * skip), duplicate_names (error, rename). The word must live as long as the options. */
UNI_API UNI_MUST_USE int uni_csv_options_set(uni_csv_options *options, const char *name,
                                             const char *value, uni_error *err);
/* RFC 4180: quotes, embedded newlines, LF or CRLF. Files, directories, globs; .gz and .zst are read as streams. More than 100,000 columns are UNI_ELIMIT. */
UNI_API UNI_MUST_USE int uni_dataset_read_csv(uni_dataset **out, int num_paths,
                                              const char *const *paths,
                                              const uni_csv_options *options, uni_error *err);

/* By the names of the files (of a directory: of the first one in it that is known): .csv, .tsv, .npy, .npz, .jsonl, .tfrecord, .txt, those with .gz or .zst behind, .jpg and .png,
 * and MNIST's -idx3-ubyte and the like, a column a file. */
UNI_API UNI_MUST_USE int uni_dataset_read(uni_dataset **out, int num_paths,
                                          const char *const *paths, uni_error *err);
/* From a dictionary, as a run's `datasets` has them: one source: "csv", "numpy", "json", "text", "tfrecord", "images", "sqlite", "idx" or "paths" (a path or a list), or
 * "range"; CSV: "delimiter", "quote", "quotes" (bool), "header" (bool), "encoding", "short_rows", "long_rows", "duplicate_names", "float_dtype", "skip_bad"; images: "height", "width", "channels", "labels", "rescale", "skip_bad"; SQLite: "table" (or a query); idx:
 * "names" (of the columns); then, in this order: "columns" (a list), "skip", "limit", "features" ({new column: [columns put side by
 * side as float32]}), "cast" (a dtype), "shuffle" (true, or a number of rows), "seed", "batch_size", "drop_remainder", "repeat". Others are UNI_EINVAL. */
UNI_API UNI_MUST_USE int uni_dataset_from_config(uni_dataset **out, const uni_value *config,
                                                 uni_error *err);

/* A source of the user's own. Either num_rows and read_range (indexed: any range, from several threads at once), or num_blocks and read_block (split: any block,
 * from several threads at once), or open, next, close (a stream of tables; next returns 1 with a table, 0 at the end). The first table (or an empty range) is the
 * schema. */
typedef struct uni_source_callbacks {
    const char *name; /* for messages; copied; may be NULL */
    void *context;
    int64_t num_rows;
    int (*read_range)(void *context, int64_t begin, int64_t end, uni_table **out, uni_error *err);
    int (*open)(void *context, void **cursor, uni_error *err);
    int (*next)(void *context, void *cursor, uni_table **out, uni_error *err);
    void (*close)(void *context, void *cursor);
    void (*free)(void *context); /* when the last reference to the dataset is gone; may be NULL */
    int64_t num_blocks;
    int (*read_block)(void *context, int64_t block, uni_table **out, uni_error *err);
    const int64_t *block_rows; /* of each block, where they are known; copied; may be NULL */
    int64_t bytes; /* approximate size of all blocks, for planning memory; 0: not known */
    const char *const *block_files; /* of each block, for plans; copied; may be NULL */
} uni_source_callbacks;
UNI_API UNI_MUST_USE int uni_dataset_from_callbacks(uni_dataset **out,
                                                    const uni_source_callbacks *callbacks,
                                                    uni_error *err);

/* ---- transforms: lazy, none of them reads data unless it says so ---- */

/* *out is a new table (or in with one reference more). Rows may be fewer or more only when the options say so. */
typedef int (*uni_table_function)(void *context, uni_table *in, uni_table **out, uni_error *err);
typedef struct uni_map_options {
    uni_table_function function; /* required */
    void *context;
    void (*free_context)(void *context); /* with the last reference to the dataset; may be NULL */
    const char *name; /* for stats and messages; default "map_batches" */
    int64_t batch_size; /* rows a call; 0: as they come */
    bool changes_rows; /* the number of rows may change (filter, flat_map) */
    bool
        keeps_columns; /* columns and types stay (a filter): they are known also when no row is left */
    bool in_order; /* one call at a time, on one thread, in the order of the rows */
    uni_table *
        schema; /* of the result, when known: no rows needed; NULL: the function is tried on the first row */
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

/* Columns. names are NULL-terminated. A name that is not there is UNI_ENOTFOUND at once. */
UNI_API UNI_MUST_USE int uni_dataset_select(uni_dataset **out, uni_dataset *from,
                                            const char *const *names, uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_drop(uni_dataset **out, uni_dataset *from,
                                          const char *const *names, uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_rename(uni_dataset **out, uni_dataset *from, const char *name,
                                            const char *new_name, uni_error *err);
/* Numbers to another dtype; column NULL: all of them. Fractions are cut off; a value that an integer cannot hold (also NaN) is UNI_EDTYPE. */
UNI_API UNI_MUST_USE int uni_dataset_cast(uni_dataset **out, uni_dataset *from, const char *column,
                                          uni_dtype dtype, uni_error *err);
/* Number columns side by side into one of (rows, total width), in the place of the first. */
UNI_API UNI_MUST_USE int uni_dataset_concat_columns(uni_dataset **out, uni_dataset *from,
                                                    const char *const *names, const char *new_name,
                                                    uni_dtype dtype, uni_error *err);

/* Rows. Where the number of rows in a part of the source is not known, these count (and read) what they need when they are made. */
UNI_API UNI_MUST_USE int uni_dataset_limit(uni_dataset **out, uni_dataset *from, int64_t count,
                                           uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_skip(uni_dataset **out, uni_dataset *from, int64_t count,
                                          uni_error *err);
/* count + 1 datasets: [0, indices[0]), [indices[0], indices[1]) ... to the end. */
UNI_API UNI_MUST_USE int uni_dataset_split_at_indices(uni_dataset **out, uni_dataset *from,
                                                      int count, const int64_t *indices,
                                                      uni_error *err);
/* n datasets of as equal a number of rows as possible; equal: exactly, the last rows are dropped. */
UNI_API UNI_MUST_USE int uni_dataset_split(uni_dataset **out, uni_dataset *from, int n, bool equal,
                                           uni_error *err);
/* The last part (0 < test_size < 1) is the test set; with shuffle: of the rows in a keyed order. */
UNI_API UNI_MUST_USE int uni_dataset_train_test_split(uni_dataset **train, uni_dataset **test,
                                                      uni_dataset *from, double test_size,
                                                      bool shuffle, uint64_t seed, uni_error *err);
/* One below the other; the same columns. */
UNI_API UNI_MUST_USE int uni_dataset_union(uni_dataset **out, int count,
                                           uni_dataset *const *datasets, uni_error *err);
/* Side by side; the same number of rows. A name that both have gets "_1" in the second. */
UNI_API UNI_MUST_USE int uni_dataset_zip(uni_dataset **out, uni_dataset *a, uni_dataset *b,
                                         uni_error *err);
/* Read and transformed once, now, and kept in memory: the result is indexed. More than max_bytes (0: 1 GiB) is UNI_ELIMIT. */
UNI_API UNI_MUST_USE int uni_dataset_cache(uni_dataset **out, uni_dataset *from, int64_t max_bytes,
                                           uni_error *err);

/* Order. shuffle: buffer 0 is as well as the source can (random_shuffle): global, or blocks and windows of blocks; buffer > 0 permutes
 * within windows of that many rows (at least). seed 0 is a seed like any other. Every epoch has another order, unless same_each_epoch. */
UNI_API UNI_MUST_USE int uni_dataset_shuffle(uni_dataset **out, uni_dataset *from, int64_t buffer,
                                             uint64_t seed, uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_same_each_epoch(uni_dataset **out, uni_dataset *from,
                                                     uni_error *err);
/* Windows of blocks_per_window blocks one after the other (a pipeline); with shuffle afterwards each window is shuffled in itself
 * (random_shuffle_each_window). */
UNI_API UNI_MUST_USE int uni_dataset_window(uni_dataset **out, uni_dataset *from,
                                            int64_t blocks_per_window, uni_error *err);
/* Into n blocks of about as many rows, what windows count in. Blocks of files are put together, or cut (then each is read once for each of its parts);
 * a stream has none (UNI_EUNSUPPORTED). */
UNI_API UNI_MUST_USE int uni_dataset_repartition(uni_dataset **out, uni_dataset *from,
                                                 int64_t num_blocks, uni_error *err);
/* An iterator gives that many epochs one after the other; -1: endless. */
UNI_API UNI_MUST_USE int uni_dataset_repeat(uni_dataset **out, uni_dataset *from, int64_t count,
                                            uni_error *err);
/* Defaults for iterators that do not say it themselves. */
UNI_API UNI_MUST_USE int uni_dataset_batch(uni_dataset **out, uni_dataset *from, int64_t batch_size,
                                           bool drop_remainder, uni_error *err);
#define UNI_AUTO (-1) /* prefetch as far as the budget allows: the default */
UNI_API UNI_MUST_USE int uni_dataset_prefetch(uni_dataset **out, uni_dataset *from, int64_t batches,
                                              uni_error *err);

/* ---- asking ---- */

/* A table of 0 rows with the columns; borrowed, as long as the dataset. */
UNI_API UNI_MUST_USE int uni_dataset_schema(uni_dataset *dataset, const uni_table **out,
                                            uni_error *err);
/* Rows. Known at once for indexed sources without filter; counted (read) otherwise. */
UNI_API UNI_MUST_USE int uni_dataset_count(uni_dataset *dataset, int64_t *out, uni_error *err);
UNI_API int64_t uni_dataset_known_rows(const uni_dataset *dataset); /* -1: would have to count */
UNI_API int64_t uni_dataset_num_blocks(const uni_dataset *dataset); /* 1 for streams */
UNI_API int64_t uni_dataset_bytes(const uni_dataset *dataset); /* of the files; -1 not known */
/* The first rows, fewer at the end. */
UNI_API UNI_MUST_USE int uni_dataset_take(uni_dataset *dataset, int64_t count, uni_table **out,
                                          uni_error *err);
/* The first rows as text, one a line; malloc'ed. */
UNI_API UNI_MUST_USE int uni_dataset_show(uni_dataset *dataset, int64_t count, char **out,
                                          uni_error *err);
/* "csv -> map_batches(scale) -> shuffle": the recipe. malloc'ed. */
UNI_API UNI_MUST_USE int uni_dataset_text(const uni_dataset *dataset, char **out, uni_error *err);
/* "global" ..., and in which units and why, in one sentence. malloc'ed. */
UNI_API UNI_MUST_USE int uni_dataset_order(const uni_dataset *dataset, char **out, uni_error *err);
/* Which rank reads what: [{"rank", "takes", "rows" (-1 not known), "bytes", "pieces": [{"file", "begin", "end", "unit": "bytes", "rows", "rowids" or "keys"}]}]. A rank takes "ranges": all
 * of its pieces; "rounds": its part of every global batch, so that its rows lie anywhere in the pieces, which are those of all ranks; "scattered": places of a keyed order (of blocks: pieces
 * are those of the first epoch); "all": it reads all and keeps its part. With `equal` a cut between two ranks is at a row, and both read its block. */
UNI_API UNI_MUST_USE int uni_dataset_plan(uni_dataset *dataset, int num_shards, uni_value **out,
                                          uni_error *err);

/* How a dataset is handed out: {"kind": "global", "block" or "stream", "one_to_one", "in_order", "shuffle": bool, "batch_size" (0: not said), "drop_remainder"}; and the rows
 * that blocks [begin, end) of a dataset in the block order give: counted now, by several threads, and read where a transform changes their number (`block_rows` of iterators). */
UNI_API UNI_MUST_USE int uni_dataset_shape(const uni_dataset *dataset, uni_value **out,
                                           uni_error *err);
UNI_API UNI_MUST_USE int uni_dataset_count_blocks(uni_dataset *dataset, int64_t begin, int64_t end,
                                                  int64_t *rows, uni_error *err);

/* Shards by files: file i of the source belongs to shard i modulo num_shards, whatever the files' sizes, and the result is sharded: no iterator cuts it again. This way
 * compressed files are read by one worker each. The shards may differ in their number of batches (see `equal`), and a state goes on with the same number of shards only. Fewer files
 * than shards is UNI_EINVAL, a source without files UNI_EUNSUPPORTED. */
UNI_API UNI_MUST_USE int uni_dataset_shard_files(uni_dataset **out, uni_dataset *from, int shard,
                                                 int num_shards, uni_error *err);
UNI_API bool uni_dataset_is_sharded(const uni_dataset *dataset);
UNI_API bool uni_dataset_is_stream(const uni_dataset *dataset); /* its order is stream */

/* For loops that read a dataset many times and do not change its batches: small data in memory with the transforms of its columns done once, otherwise the dataset itself. *repeats:
 * every epoch gives the same rows in the same order at hardly any cost, so that epochs need not be told apart. */
UNI_API UNI_MUST_USE int uni_dataset_settle(uni_dataset **out, uni_dataset *from, bool *repeats,
                                            uni_error *err);

/* ---- iterating ---- */

typedef struct uni_data_options {
    int64_t batch_size; /* rows; default: the dataset's batch(), otherwise 256 */
    bool drop_remainder; /* leave out a last batch that is smaller */
    int shard,
        num_shards; /* this worker's part; default 0 of 1. Nothing for a dataset that is sharded already */
    int64_t
        global_batch_size; /* instead of batch_size: rows of all shards together, of which each takes its part, as even as it goes; at least one a shard */
    /* All shards get the same number of batches, and every row is used: in the block order rows are shared out by their number, for which the blocks are counted first (once a
     * dataset; the block at a border is read by two shards); where the number of rows cannot be known (a stream, a filter over rows in the global order, functions in order) every
     * shard reads all and keeps its part of every global batch. A shard without a part of the last rows gets a batch of none (weight 0); with drop_remainder all stop before it. Shards
     * by files have the rows of their files, so that some end with batches of no rows. The state of any shard then speaks for all of them. */
    bool equal;
    /* With equal, for loops that cannot weigh batches: no batch is empty. Rows that are too few for all shards are added to the last batch, which has a row more than asked for; when there
     * are not enough in the epoch they are left out (statistics: "left_out"). Not of shards by files without drop_remainder (UNI_EUNSUPPORTED). */
    bool no_empty;
    const int64_t *
        block_rows; /* equal, block order: of uni_dataset_count_blocks over all blocks, so that they are not counted again; copied. NULL: counted here */
    int64_t
        budget; /* bytes for reading, decoding, shuffling and prefetching together; default 256 MiB */
    int threads; /* default: the CPUs of the process, at most 16 */
    int64_t prefetch; /* batches made ahead; 0: the dataset's, otherwise UNI_AUTO */
    int64_t epochs; /* overrides repeat(); 0: the dataset's, otherwise 1; -1 endless */
    uint64_t first_epoch; /* begin in the order of this epoch (one iterator an epoch) */
    const uni_value *state; /* resume: of uni_dataset_iterator_state, or merged from all ranks */
} uni_data_options;

typedef struct uni_dataset_iterator uni_dataset_iterator;

UNI_API UNI_MUST_USE int uni_dataset_iterate(uni_dataset_iterator **out, uni_dataset *dataset,
                                             const uni_data_options *options, uni_error *err);
/* 1 and a batch (the caller unrefs it); 0 at the end of the last epoch; negative: an error, which stays. */
UNI_API UNI_MUST_USE int uni_dataset_iterator_next(uni_dataset_iterator *it, uni_table **out,
                                                   uni_error *err);
/* The same within one epoch: 0 at its end, and the next call begins the next one (iter_epochs). After the last one uni_dataset_iterator_done is true. */
UNI_API UNI_MUST_USE int uni_dataset_iterator_next_in_epoch(uni_dataset_iterator *it,
                                                            uni_table **out, uni_error *err);
/* The same without making a table of the batch: it is `*rows` rows of *table from *first on, which the iterator keeps until its next call. */
UNI_API UNI_MUST_USE int uni_dataset_iterator_view_in_epoch(uni_dataset_iterator *it,
                                                            const uni_table **table, int64_t *first,
                                                            int64_t *rows, uni_error *err);
/* uni_table_concat in the iterator's recycled memory, for callers that pass on many batches at once; all numbers begin at multiples of 64 bytes, for which one table may be copied, too. */
UNI_API UNI_MUST_USE int uni_dataset_iterator_concat(uni_dataset_iterator *it, uni_table **out,
                                                     uni_table *const *tables, int count,
                                                     uni_error *err);
UNI_API bool uni_dataset_iterator_done(const uni_dataset_iterator *it);
UNI_API uint64_t uni_dataset_iterator_epoch(const uni_dataset_iterator *it); /* from 0 */
/* Goes on to the epochs before end_epoch as well, whose first batches are read while the last ones of the present are used. false, and nothing changes: it is through
 * or failed already, or what may be skipped is limited (uni_bad_data), which counts for each iterator. Never ends it earlier. */
UNI_API bool uni_dataset_iterator_extend(uni_dataset_iterator *it, uint64_t end_epoch);
/* An iterator that is done (all it had was taken) begins again with this one epoch, its threads and memory with it. false: it is not done, or the conditions of extend are not
 * met; open a new one then. Its state speaks of the new epoch only, its statistics go on. */
UNI_API bool uni_dataset_iterator_rewind(uni_dataset_iterator *it, uint64_t epoch);
/* What was taken so far, as a dictionary of integers for a checkpoint. */
UNI_API UNI_MUST_USE int uni_dataset_iterator_state(const uni_dataset_iterator *it, uni_value **out,
                                                    uni_error *err);
/* One state of those of all ranks (a list by rank, taken after the same number of batches): what is left to read, for any number of workers. */
UNI_API UNI_MUST_USE int uni_dataset_merge_states(uni_value **out, const uni_value *states,
                                                  uni_error *err);
/* {"rows", "batches", "bytes", "wait_s" (the caller waited for data), "busy_s" (threads read and transformed), "skipped" (bad rows), "peak_bytes",
 * "left_out" (rows, with no_empty), "first_batch_s"}. */
UNI_API UNI_MUST_USE int uni_dataset_iterator_stats(const uni_dataset_iterator *it, uni_value **out,
                                                    uni_error *err);
/* Where the last batch lies in the global one: its first row there, and the rows of all shards together; 0 and 0 when that is not known (streams, and the block order without `equal`). */
UNI_API void uni_dataset_iterator_place(const uni_dataset_iterator *it, int64_t *first,
                                        int64_t *global_size);
UNI_API double uni_dataset_iterator_wait(const uni_dataset_iterator *it); /* seconds, all calls */
UNI_API void uni_dataset_iterator_free(uni_dataset_iterator *it);

#ifdef __cplusplus
}
#endif
#endif
