/*
 * dataset.h - what a dataset is inside of src/data: a source, a list of stages, and how it is ordered.
 *
 * Every transform copies this small struct and changes one thing; the source and the stages are shared by reference count. Transforms
 * that need other rows than their source's (limit, split, union, zip) are sources over datasets. Immutable once made, so any thread.
 */
#ifndef UNISONO_DATA_DATASET_H
#define UNISONO_DATA_DATASET_H

#include <pthread.h>
#include <stdatomic.h>
#include <unisono/data.h>
#include "data/source.h"

/* One transform of tables. apply may be called from several threads at once (unless in_order). */
typedef struct uni__stage {
    atomic_size_t references;
    char *name; /* owned: "map_batches" */
    void *self;
    int (*apply)(void *self, uni__reader *reader, uni_table *in, uni_table **out, uni_error *err);
    void (*free)(void *self); /* may be NULL */
    bool changes_rows; /* the number of rows may change */
    bool keeps_columns; /* what comes out has the columns of what goes in (a filter) */
    bool in_order; /* one call at a time, in the order of the rows, on the iterator's own thread */
    int64_t batch_size; /* rows a call; 0: as they come */
    bool quick; /* columns are moved or converted: no function of the user's, no waiting */
} uni__stage;

/* The source and what its bad rows are met with; shared by all datasets made of it. */
typedef int (*uni__interrupt)(void);

typedef struct uni__root {
    atomic_size_t references;
    uni__source source;
    uni_bad_data bad;
    int64_t skipped; /* bad rows when a small file was loaded as a whole */
    bool loaded; /* it was */
    _Atomic(uni__interrupt) interrupted; /* asked while the caller waits; NULL: nobody */
} uni__root;

typedef struct uni__order {
    bool shuffle;
    bool same_each_epoch;
    uint64_t seed;
    int64_t
        buffer; /* rows of a shuffle window; 0: everything, or as many blocks as the budget allows */
    int64_t window_blocks; /* of window(); 0: none */
    int64_t num_blocks; /* of repartition(); 0: the source's */
    int64_t repeats; /* epochs; -1: endless; 0: not said */
    int64_t batch_size; /* 0: not said */
    int64_t prefetch; /* 0: not said */
    bool drop_remainder;
} uni__order;

struct uni_dataset {
    atomic_size_t references;
    uni__root *root;
    int num_stages;
    uni__stage **stages;
    uni__order order;
    pthread_mutex_t lock; /* of schema, which may have to be found out */
    uni_table *schema; /* after all stages; NULL: not known yet */
    int64_t *block_rows; /* of each block after all stages; NULL: not counted yet */
    int shard, num_shards; /* by files; num_shards 0: not sharded */
};

void uni__root_unref(uni__root *root);
/* A copy of `from` over another source; takes the source's contents, also when it fails. */
int uni__dataset_over(uni_dataset **out, uni_dataset *from, const uni__source *source,
                      uni_error *err) UNI_MUST_USE;
/* regroup.c: the same rows in so many blocks; `from` is split. */
int uni__dataset_regroup(uni_dataset **out, uni_dataset *from, int64_t num_blocks,
                         uni_error *err) UNI_MUST_USE;
/* What is made of a shard is one. */
static inline void uni__dataset_inherit_shard(uni_dataset *made, const uni_dataset *from)
{
    if (from->num_shards > 0) {
        made->shard = from->shard;
        made->num_shards = from->num_shards;
    }
}
/* shard.c: rows of shard `index` of those that `dataset` is one of. */
int uni__count_shard_of_files(uni_dataset *dataset, int index, int64_t *out,
                              uni_error *err) UNI_MUST_USE;
/* A state of one shard of files says so; and the part of a state of all of them that is this dataset's (any other state is itself). */
int uni__state_of_files(const uni_dataset *dataset, uni_value **state, uni_error *err) UNI_MUST_USE;
int uni__part_of_state(const uni_dataset *dataset, const uni_value *state, const uni_value **out,
                       uni_error *err) UNI_MUST_USE;
/* The states of all shards of files as one; *out NULL: they are no such states. */
int uni__merge_file_states(uni_value **out, const uni_value *states, uni_error *err) UNI_MUST_USE;

/* A copy of `from` that shares everything; the schema is kept when `keep_schema`. */
int uni__dataset_derive(uni_dataset **out, uni_dataset *from, bool keep_schema,
                        uni_error *err) UNI_MUST_USE;
/* A copy with one stage more. Takes the stage's contents (name is copied), also when it fails. schema: of the result, or NULL. */
int uni__dataset_add_stage(uni_dataset **out, uni_dataset *from, const uni__stage *stage,
                           const uni_table *schema, uni_error *err) UNI_MUST_USE;
/* true when every row of the source is one row of the dataset. */
bool uni__dataset_one_to_one(const uni_dataset *dataset);
/* true when the columns are those before the last stage. */
bool uni__dataset_keeps_columns(const uni_dataset *dataset);
/* true when rows are made of memory by quick stages only. */
bool uni__dataset_is_quick(const uni_dataset *dataset);
/* true when they are not made at all. */
bool uni__dataset_is_views(const uni_dataset *dataset);
bool uni__dataset_in_order(
    const uni_dataset *dataset); /* has a stage that must be called in order */

/* Applies stages [first, last) to a table: *out is a new reference. */
int uni__apply_stages(uni_dataset *dataset, int first, int last, uni__reader *reader, uni_table *in,
                      uni_table **out, uni_error *err) UNI_MUST_USE;
/* Elements of the source (rows or blocks) by their own numbers, without any order, through all stages. For datasets that are sources. */
int uni__dataset_read_range(uni_dataset *dataset, uni__reader *reader, int64_t begin, int64_t end,
                            uni_table **out, uni_error *err) UNI_MUST_USE;
int uni__dataset_read_rows(uni_dataset *dataset, uni__reader *reader, const int64_t *rows,
                           int64_t count, uni_table **out, uni_error *err) UNI_MUST_USE;
int uni__dataset_read_block(uni_dataset *dataset, uni__reader *reader, int64_t block,
                            uni_table **out, uni_error *err) UNI_MUST_USE;
/* Rows that the dataset gives for block `block` of its source. */
int uni__dataset_count_block(uni_dataset *dataset, uni__reader *reader, int64_t block, int64_t *out,
                             uni_error *err) UNI_MUST_USE;

/* blocks.c: what iterators and whoever shares out blocks have to agree on. */
#define UNI__DEFAULT_BUDGET ((int64_t)256 << 20)
#define UNI__WINDOW_BYTES ((int64_t)16 << 20) /* of a shuffle window over blocks or a stream */
int64_t uni__block_bytes(const uni__source *source); /* decoded, estimated */
/* Blocks that are shuffled together within a budget; 1 when they are not shuffled. */
int64_t uni__window_blocks(const uni_dataset *dataset, int64_t budget);

/* Rows that count as one block of an indexed source (about 4 MiB, or by repartition). */
int64_t uni__block_rows(const uni_dataset *dataset);

/* sources/memory.c: a table as an indexed source; it takes a reference. */
int uni__table_source(uni__source *out, uni_table *table, uni_error *err) UNI_MUST_USE;
/* The same, in the place of a split source that was loaded as a whole: takes *origin (for the names of files) and ends, the rows up to the end of
 * each of its blocks. On failure both still belong to the caller. */
int uni__loaded_source(uni__source *out, uni_table *table, const uni__source *origin, int64_t *ends,
                       uni_error *err) UNI_MUST_USE;

/* Runs of consecutive numbers are read as ranges; any source without read_rows of its own. */
int uni__source_read_rows(const uni__source *source, uni__reader *reader, const int64_t *rows,
                          int64_t count, uni_table **out, uni_error *err) UNI_MUST_USE;

#endif
