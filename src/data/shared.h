/*
 * shared.h - what data shares with our other libraries, the command and the Python extension. Not
 * installed: programs see include/unisono.
 */
#ifndef UNISONO_DATA_SHARED_H
#define UNISONO_DATA_SHARED_H

#include "base/compiler.h"
#include <unisono/data_readers.h>
#include <unisono/data.h>
#include <unisono/preprocess.h>
#include <unisono/table.h>

/* While a call waits for data (next, count, take, cache ...) `check` is called about ten times a
 * second, on the caller's thread; nonzero ends the call with UNI_ECANCELED, and the iterator
 * with it. For interpreters, which must poll for Ctrl-C. Derived datasets inherit it. */
UNI__SHARED void uni__dataset_set_interrupt(uni_dataset *dataset, int (*check)(void));
/* Sets one option by name and value, as used by the command and by configurations: delimiter and
 * quote (a character, or tab), encoding, short_rows (error, skip, fill), long_rows (error, skip,
 * cut), bad_rows (error, skip), duplicate_names (error, rename). The value must outlive the
 * options. */
UNI__SHARED UNI_MUST_USE int uni__csv_options_set(uni_csv_options *options, const char *name,
                                                  const char *value, uni_error *err);
/* "csv -> map_batches(scale) -> shuffle": the recipe. malloc'ed. */
UNI__SHARED UNI_MUST_USE int uni__dataset_text(const uni_dataset *dataset, char **out,
                                               uni_error *err);
/* How a dataset is iterated: {"kind": "global", "block" or "stream", "one_to_one", "in_order",
 * "shuffle": bool, "batch_size" (0: not set), "drop_remainder"}; and the number of rows in each
 * of the blocks [begin, end) of a dataset in block order: counted now, by several threads, and
 * read where a transform changes it (`block_rows` of iterators). */
UNI__SHARED UNI_MUST_USE int uni__dataset_shape(const uni_dataset *dataset, uni_value **out,
                                                uni_error *err);
UNI__SHARED UNI_MUST_USE int uni__dataset_count_blocks(uni_dataset *dataset, int64_t begin,
                                                       int64_t end, int64_t *rows, uni_error *err);
/* For loops that read a dataset many times without changing its batches: returns small data in
 * memory with its column transforms applied once, otherwise the dataset itself. *repeats: every
 * epoch returns the same rows in the same order at hardly any cost, so epochs need not be
 * distinguished. */
UNI__SHARED UNI_MUST_USE int uni__dataset_precompute(uni_dataset **out, uni_dataset *from,
                                                     bool *repeats, uni_error *err);
/* uni_dataset_iterator_next_in_epoch without creating a table for the batch: it is `*rows` rows of
 * *table starting at *first, which the iterator keeps until its next call. */
UNI__SHARED UNI_MUST_USE int uni__dataset_iterator_view_in_epoch(uni_dataset_iterator *it,
                                                                 const uni_table **table,
                                                                 int64_t *first, int64_t *rows,
                                                                 uni_error *err);
/* uni__table_append in the iterator's recycled memory, for callers that pass on many batches at
 * once; all number columns are aligned to 64 bytes, so even a single table may be copied. */
UNI__SHARED UNI_MUST_USE int uni__dataset_iterator_concat(uni_dataset_iterator *it, uni_table **out,
                                                          uni_table *const *tables, int count,
                                                          uni_error *err);
/* Continues with the epochs before end_epoch, whose first batches are read while the last ones
 * of the current epoch are used. Returns false and changes nothing if it is done or failed, or
 * if the number of skipped rows is limited (uni_bad_data), which counts per iterator. Never ends
 * it earlier. */
UNI__SHARED bool uni__dataset_iterator_extend(uni_dataset_iterator *it, uint64_t end_epoch);
/* Restarts an iterator that is done (all batches taken) with this one epoch, keeping its threads
 * and memory. false: it is not done, or the conditions of extend are not met; open a new one
 * instead. Its state covers only the new epoch; its statistics continue. */
UNI__SHARED bool uni__dataset_iterator_rewind(uni_dataset_iterator *it, uint64_t epoch);
/* Position of the last batch in the global one: its first row there, and the rows of all shards
 * together; 0 and 0 if unknown (streams, and block order without `equal`). */
UNI__SHARED void uni__dataset_iterator_place(const uni_dataset_iterator *it, int64_t *first,
                                             int64_t *global_size);
UNI__SHARED double
uni__dataset_iterator_wait(const uni_dataset_iterator *it); /* seconds, all calls */
uni_preprocessor *uni__preprocessor_ref(uni_preprocessor *preprocessor);
/* Bytes of all buffers that the rows need. */
UNI__SHARED size_t uni__table_bytes(const uni_table *table);
/* A copy of the rows with these numbers, in this order. */
UNI__SHARED UNI_MUST_USE int uni__table_pick(uni_table **out, const uni_table *table,
                                             const int64_t *rows, int64_t count, uni_error *err);
/* The named columns in this order (views). */
UNI_MUST_USE int uni__table_select(uni_table **out, const uni_table *table,
                                   const char *const *names, int count, uni_error *err);
/* "float32", "float32 (28, 28)", "string", "binary", "list of int64", "object"; at most `size`
 * bytes with the zero. */
UNI__SHARED const char *uni__field_text(char *out, size_t size, const uni_field *field);
bool uni__field_equal(const uni_field *a, const uni_field *b); /* name, kind, dtype, shape */
UNI__SHARED int64_t uni__dataset_bytes(const uni_dataset *dataset); /* of the files; -1: unknown */
UNI__SHARED bool uni__dataset_is_sharded(const uni_dataset *dataset);
UNI__SHARED bool uni__dataset_is_stream(const uni_dataset *dataset); /* its order is stream */
/* The Arrow C data interface (the structs as Arrow publishes them). The batch's buffers are
 * shared where a column's layout matches. *array is taken (its release is called with the last
 * column, or before this returns); *schema stays the caller's. */
struct ArrowSchema;
struct ArrowArray;
UNI__SHARED UNI_MUST_USE int uni__table_from_arrow(uni_table **out,
                                                   const struct ArrowSchema *schema,
                                                   struct ArrowArray *array, uni_error *err);
UNI__SHARED UNI_MUST_USE int uni__preprocessor_apply(uni_table **out,
                                                     uni_preprocessor *preprocessor, uni_table *in,
                                                     uni_error *err);
UNI__SHARED int64_t
uni__dataset_known_rows(const uni_dataset *dataset); /* UNI_UNKNOWN: needs counting */
UNI__SHARED int64_t uni__dataset_num_blocks(const uni_dataset *dataset); /* 1 for streams */
/* "global" ..., with units and reason, in one sentence. malloc'ed. */
UNI__SHARED UNI_MUST_USE int uni__dataset_order(char **out, const uni_dataset *dataset,
                                                uni_error *err);
/* Concatenates rows; all tables must have the same fields (order and type). A single table is
 * returned unchanged. */
UNI__SHARED UNI_MUST_USE int uni__table_append(uni_table **out, uni_table *const *tables, int count,
                                               uni_error *err);

#endif
