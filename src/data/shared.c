/*
 * shared.c - see shared.h. Where no batch may be empty one global batch is held back: the next one may have too few rows for all, and is then added to it. The state is the one
 * behind the batch that was handed out, which all shards have in common.
 */
#include "data/shared.h"

#include <stdlib.h>
#include "data/equal.h"

struct round {
    uni_table *table; /* NULL: none */
    uni_value *after; /* the state behind it */
};

struct uni__shared {
    uni_dataset_iterator *whole;
    int shard, num_shards;
    int64_t global_batch;
    bool no_empty;
    struct round held;
    uni_value *after; /* the state behind what was handed out */
    bool ended; /* the epoch's last batch was given, its end is told by the next call */
    bool done;
    uint64_t epoch;
    int64_t batches; /* of this epoch */
    int64_t first, rows; /* of the last one: see uni_dataset_iterator_place */
    int64_t left_out;
};

bool uni__shared_needed(const uni_dataset *dataset)
{
    switch (dataset->root->source.kind) {
    case UNI__SOURCE_INDEXED:
        return !uni__dataset_one_to_one(dataset);
    case UNI__SOURCE_SPLIT:
        return uni__dataset_in_order(dataset);
    case UNI__SOURCE_STREAM:
        break;
    }
    return true;
}

int uni__shared_open(uni__shared **out, uni_dataset *dataset, const uni_data_options *options,
                     uni_error *err)
{
    uni_data_options whole = *options;
    uni__shared *shared = calloc(1, sizeof *shared);
    int status = 0;
    *out = NULL;
    if (shared == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for an iterator");
    shared->shard = options->shard;
    shared->num_shards = options->num_shards;
    shared->no_empty = options->no_empty;
    shared->global_batch = options->global_batch_size > 0
                               ? options->global_batch_size
                               : options->batch_size * options->num_shards;
    whole.batch_size = shared->global_batch;
    whole.global_batch_size = 0;
    whole.shard = 0;
    whole.num_shards = 1;
    whole.equal = whole.no_empty = false;
    UNI_TRY_GOTO(uni_dataset_iterate(&shared->whole, dataset, &whole, err), fail);
    UNI_TRY_GOTO(uni_dataset_iterator_state(shared->whole, &shared->after, err), fail);
    shared->done = uni_dataset_iterator_done(shared->whole);
    shared->epoch = uni_dataset_iterator_epoch(shared->whole);
    *out = shared;
    return 0;
fail:
    uni__shared_free(shared);
    return status;
}

static void drop(struct round *round)
{
    uni_table_unref(round->table);
    uni_value_free(round->after);
    *round = (struct round){ 0 };
}

void uni__shared_free(uni__shared *shared)
{
    if (shared == NULL)
        return;
    drop(&shared->held);
    uni_value_free(shared->after);
    uni_dataset_iterator_free(shared->whole);
    free(shared);
}

/* The next global batch: 1, or 0 at the end of the epoch. */
static int fetch(uni__shared *shared, struct round *out, uni_error *err)
{
    int more = uni_dataset_iterator_next_in_epoch(shared->whole, &out->table, err);
    if (more < 0)
        return more;
    int status = uni_dataset_iterator_state(shared->whole, &out->after, err);
    if (status < 0)
        drop(out);
    return status < 0 ? status : more;
}

static bool enough(const uni__shared *shared, const struct round *round)
{
    return uni__enough_for_all(uni_table_num_rows(round->table), shared->global_batch,
                               shared->num_shards);
}

/* What is held goes behind `round`, and is no batch of its own. */
static int join(uni__shared *shared, struct round *round, uni_error *err)
{
    struct round end = { 0 };
    uni_table *both = NULL;
    uni_table *const parts[] = { round->table, shared->held.table };
    UNI_TRY(uni_dataset_iterator_concat(shared->whole, &both, parts, 2, err));
    uni_table_unref(round->table);
    uni_value_free(round->after);
    *round = (struct round){ .table = both, .after = shared->held.after };
    shared->held.after = NULL;
    drop(&shared->held);
    UNI_TRY(fetch(shared, &end, err)); /* 0: it was not full */
    drop(&end);
    shared->ended = true;
    return 0;
}

/* The next round that every shard has a part of; one behind it is held. */
static int next_held(uni__shared *shared, struct round *out, uni_error *err)
{
    struct round end = { 0 };
    if (shared->held.table == NULL) {
        int more = fetch(shared, &shared->held, err);
        if (more > 0 && !enough(shared, &shared->held)) {
            shared->left_out += uni_table_num_rows(shared->held.table);
            drop(&shared->held);
            more = fetch(shared, &end, err); /* its end */
            drop(&end);
        }
        if (more <= 0) {
            drop(&shared->held);
            return more;
        }
    }
    *out = shared->held;
    shared->held = (struct round){ 0 };
    int more = fetch(shared, &shared->held, err), status = more < 0 ? more : 0;
    if (more == 0) {
        drop(&shared->held);
        shared->ended = true;
    } else if (more > 0 && !enough(shared, &shared->held)) {
        status = join(shared, out, err);
    }
    if (status < 0)
        drop(out);
    return status < 0 ? status : 1;
}

/* Always returns 0. */
static int end_epoch(uni__shared *shared)
{
    shared->ended = false;
    shared->batches = 0;
    shared->done = uni_dataset_iterator_done(shared->whole);
    shared->epoch = uni_dataset_iterator_epoch(shared->whole);
    return 0;
}

int uni__shared_next(uni__shared *shared, uni_table **out, uni_error *err)
{
    struct round round = { 0 };
    uni_value *after = NULL;
    *out = NULL;
    if (shared->done)
        return 0;
    int more = 0;
    if (!shared->ended)
        more = shared->no_empty ? next_held(shared, &round, err) : fetch(shared, &round, err);
    if (more < 0)
        return more;
    if (more == 0) {
        drop(&round);
        UNI_TRY(uni_dataset_iterator_state(shared->whole, &after, err));
        uni_value_free(shared->after);
        shared->after = after;
        return end_epoch(shared);
    }
    int64_t begin = uni__share(shared->global_batch, shared->shard, shared->num_shards);
    int64_t end = uni__share(shared->global_batch, shared->shard + 1, shared->num_shards);
    shared->rows = uni_table_num_rows(round.table);
    shared->first = uni__part(shared->rows, begin, shared->global_batch);
    int status = uni_table_slice(out, round.table, shared->first,
                                 uni__part(shared->rows, end, shared->global_batch), err);
    if (status == 0) {
        uni_value_free(shared->after);
        shared->after = round.after;
        round.after = NULL;
        shared->batches++;
    }
    drop(&round);
    return status < 0 ? status : 1;
}

int uni__shared_state(const uni__shared *shared, uni_value **out, uni_error *err)
{
    *out = uni_value_copy(shared->after);
    if (*out == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
    return uni__state_for_all(out, shared->num_shards, shared->batches, err);
}

void uni__shared_place(const uni__shared *shared, int64_t *first, int64_t *global_size)
{
    *first = shared->first;
    *global_size = shared->rows;
}

bool uni__shared_done(const uni__shared *shared)
{
    return shared->done;
}

uint64_t uni__shared_epoch(const uni__shared *shared)
{
    return shared->epoch;
}

bool uni__shared_extend(uni__shared *shared, uint64_t end_epoch)
{
    return !shared->done && uni_dataset_iterator_extend(shared->whole, end_epoch);
}

uni_dataset_iterator *uni__shared_whole(const uni__shared *shared)
{
    return shared->whole;
}

int64_t uni__shared_left_out(const uni__shared *shared)
{
    return shared->left_out;
}
