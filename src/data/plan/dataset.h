/*
 * dataset.h - a dataset as seen inside src/data: a source, a list of stages and an order.
 *
 * Every transform copies this small struct and changes one thing; the source and the stages are
 * shared by reference count. Transforms that select or combine rows (limit, split, union, zip) are
 * sources over other datasets. Immutable once created, so any thread may use it.
 */
#ifndef UNISONO_DATA_DATASET_H
#define UNISONO_DATA_DATASET_H

#include <pthread.h>
#include <stdatomic.h>
#include <unisono/data.h>
#include "data/sources/source.h"

/* One transform of tables. Several threads may call apply at once, unless in_order is set. */
typedef struct uni__stage {
    atomic_size_t references;
    char *name; /* owned, e.g. "map_batches" */
    void *self;
    int (*apply)(void *self, uni__reader *reader, uni_table *in, uni_table **out, uni_error *err);
    void (*free)(void *self); /* may be NULL */
    bool changes_rows; /* the row count may change */
    bool keeps_columns; /* output has the same columns as the input (a filter) */
    bool in_order; /* One call at a time, in row order, on the iterator's own thread. */
    int64_t batch_size; /* rows per call; 0: any number */
    bool quick; /* Only moves or converts columns: calls no user function and never blocks. */
} uni__stage;

/* Nonzero: the user wants to stop waiting. */
typedef int (*uni__interrupt)(void);

/* Waits on a condition. With `check`, waits at most 0.1 s and then calls it with the lock released;
 * without, waits until signalled. Returns false if `check` asks to stop. */
bool uni__wait_or_ask(pthread_cond_t *condition, pthread_mutex_t *lock, uni__interrupt check);

typedef struct uni__root {
    atomic_size_t references;
    uni__source source;
    uni_bad_data bad;
    int64_t skipped; /* bad rows found while a small file was loaded */
    bool loaded; /* the source is a small file that was loaded */
    /* Provides a row from which functions infer their columns; may be NULL. */
    struct uni_dataset *sample;
    _Atomic(uni__interrupt) interrupted; /* polled while the caller waits; may be NULL */
} uni__root;

typedef struct uni__order {
    bool shuffle;
    bool same_each_epoch;
    uint64_t seed;
    /* Rows in a shuffle window; 0: all rows, or as many blocks as the budget allows. */
    int64_t buffer;
    int64_t window_blocks; /* set by window(); 0: not set */
    int64_t num_blocks; /* set by repartition(); 0: as in the source */
    int64_t repeats; /* epochs; -1: endless; 0: not set */
    int64_t batch_size; /* 0: not set */
    int64_t prefetch; /* 0: not set */
    bool drop_remainder;
} uni__order;

struct uni_dataset {
    atomic_size_t references;
    uni__root *root;
    int num_stages;
    uni__stage **stages;
    uni__order order;
    pthread_mutex_t lock; /* guards schema, which may be computed lazily */
    uni_table *schema; /* after all stages; NULL: not known yet */
    int64_t *block_rows; /* rows of each block after all stages; NULL: not counted yet */
    int shard, num_shards; /* shard by files; num_shards 0: not sharded */
};

void uni__root_unref(uni__root *root);
/* Copies `from` with another source. Ownership of the source's contents passes to the callee, even
 * on failure. */
int uni__dataset_over(uni_dataset **out, uni_dataset *from, const uni__source *source,
                      uni_error *err) UNI_MUST_USE;
/* repartition.c: the same rows in `num_blocks` blocks. `from` must be split. */
int uni__dataset_repartition_blocks(uni_dataset **out, uni_dataset *from, int64_t num_blocks,
                                    uni_error *err) UNI_MUST_USE;
/* A dataset derived from a shard is the same shard. */
static inline void uni__dataset_inherit_shard(uni_dataset *made, const uni_dataset *from)
{
    if (from->num_shards > 0) {
        made->shard = from->shard;
        made->num_shards = from->num_shards;
    }
}
/* file_shards.c: row count of shard `index` among the shards that `dataset` belongs to. */
int uni__count_shard_of_files(uni_dataset *dataset, int index, int64_t *out,
                              uni_error *err) UNI_MUST_USE;
/* state_of_files marks a state as that of one file shard. part_of_state finds this dataset's part
 * in a merged state of all shards; any other state is returned unchanged. */
int uni__state_of_files(const uni_dataset *dataset, uni_value **state, uni_error *err) UNI_MUST_USE;
int uni__part_of_state(const uni_dataset *dataset, const uni_value *state, const uni_value **out,
                       uni_error *err) UNI_MUST_USE;
/* Merges the states of all file shards. Sets *out to NULL if they are not file shard states. */
int uni__merge_file_states(uni_value **out, const uni_value *states, uni_error *err) UNI_MUST_USE;

/* Copies `from`, sharing everything; `keep_schema` keeps the schema. */
int uni__dataset_derive(uni_dataset **out, uni_dataset *from, bool keep_schema,
                        uni_error *err) UNI_MUST_USE;
/* Copies `from` with one more stage. Ownership of the stage's contents passes to the callee, even
 * on failure; the name is copied. schema: of the result, or NULL. */
int uni__dataset_add_stage(uni_dataset **out, uni_dataset *from, const uni__stage *stage,
                           const uni_table *schema, uni_error *err) UNI_MUST_USE;
/* True if every row of the source yields exactly one row of the dataset. */
bool uni__dataset_one_to_one(const uni_dataset *dataset);
/* True if the last stage keeps its input's columns. */
bool uni__dataset_keeps_columns(const uni_dataset *dataset);
/* True if the rows are in memory and all stages are quick. */
bool uni__dataset_is_quick(const uni_dataset *dataset);
/* True if rows are views of memory: no stage and no shuffle. */
bool uni__dataset_is_views(const uni_dataset *dataset);
/* True if a stage must be called in order. */
bool uni__dataset_in_order(const uni_dataset *dataset);

/* Applies stages [first, last) to a table. *out is a new reference. */
int uni__apply_stages(uni_dataset *dataset, int first, int last, uni__reader *reader, uni_table *in,
                      uni_table **out, uni_error *err) UNI_MUST_USE;
/* Reads elements of the source (rows or blocks) by index, ignoring the order, and applies all
 * stages. For sources built on datasets. */
int uni__dataset_read_range(uni_dataset *dataset, uni__reader *reader, int64_t begin, int64_t end,
                            uni_table **out, uni_error *err) UNI_MUST_USE;
int uni__dataset_read_rows(uni_dataset *dataset, uni__reader *reader, const int64_t *rows,
                           int64_t count, uni_table **out, uni_error *err) UNI_MUST_USE;
int uni__dataset_read_block(uni_dataset *dataset, uni__reader *reader, int64_t block,
                            uni_table **out, uni_error *err) UNI_MUST_USE;
/* Row count of block `block` after all stages. */
int uni__dataset_count_block(uni_dataset *dataset, uni__reader *reader, int64_t block, int64_t *out,
                             uni_error *err) UNI_MUST_USE;

/* order.c. The row of an indexed source, or the block of a split one, at a position of an epoch's
 * order. */
int64_t uni__order_element(const uni_dataset *dataset, int64_t epoch, int64_t position);
/* The same for many rows of an indexed source: replaces positions by the rows found there. */
void uni__order_rows(const uni_dataset *dataset, int64_t epoch, int64_t *rows, int64_t count);
/* Random key of an epoch; `what` separates its uses. */
uint64_t uni__order_key(const uni_dataset *dataset, int64_t epoch, uint64_t what);

/* blocks.c: constants that iterators and the code that computes shares must agree on. */
#define UNI__DEFAULT_BUDGET ((int64_t)256 << 20)
#define UNI__WINDOW_BYTES ((int64_t)16 << 20) /* shuffle window over blocks or a stream */
int64_t uni__block_bytes(const uni__source *source); /* decoded size, estimated */
/* Blocks in one shuffle window within a budget; 1 if not shuffled. */
int64_t uni__window_blocks(const uni_dataset *dataset, int64_t budget);

/* Rows that count as one block of an indexed source: about 4 MiB, or set by repartition. */
int64_t uni__block_rows(const uni_dataset *dataset);

/* sources/memory.c: a table as an indexed source. Takes a reference to the table. */
int uni__table_source(uni__source *out, uni_table *table, uni_error *err) UNI_MUST_USE;
/* The same for a split source that was loaded into memory. Takes *origin, which knows the file
 * names, and `ends`, the cumulative row count at the end of each block. On failure both still
 * belong to the caller. */
int uni__loaded_source(uni__source *out, uni_table *table, const uni__source *origin, int64_t *ends,
                       uni_error *err) UNI_MUST_USE;

/* Reads runs of consecutive rows as ranges. For any source without read_rows of its own. */
int uni__source_read_rows(const uni__source *source, uni__reader *reader, const int64_t *rows,
                          int64_t count, uni_table **out, uni_error *err) UNI_MUST_USE;

#endif
