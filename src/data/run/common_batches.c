/*
 * common_batches.c - see common_batches.h. If no batch may be empty, one global batch is held back:
 * the next one may have too few rows for all shards and is then appended to it. The state is the
 * one after the batch that was handed out, and is the same on all shards.
 */
#include "data/run/common_batches.h"

#include <stdlib.h>

#include "data/shared.h"
#include "data/run/batch_counts.h"

bool uni__common_needed(const uni_dataset *dataset)
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

int uni__common_open(uni__common **out, uni_dataset *dataset, const uni_data_options *options,
                     uni_error *err)
{
    uni_data_options whole = *options;
    uni__common *common = calloc(1, sizeof *common);
    int status = 0;
    *out = NULL;
    if (common == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for an iterator");
    common->shard = options->shard;
    common->num_shards = options->num_shards;
    common->no_empty = options->no_empty;
    common->global_batch = options->global_batch_size > 0
                               ? options->global_batch_size
                               : options->batch_size * options->num_shards;
    whole.batch_size = common->global_batch;
    whole.global_batch_size = 0;
    whole.shard = 0;
    whole.num_shards = 1;
    whole.equal = whole.no_empty = false;
    UNI_TRY_GOTO(uni_dataset_iterate(&common->whole, dataset, &whole, err), fail);
    UNI_TRY_GOTO(uni_dataset_iterator_state(&common->after, common->whole, err), fail);
    common->done = uni_dataset_iterator_done(common->whole);
    common->epoch = uni_dataset_iterator_epoch(common->whole);
    *out = common;
    return 0;
fail:
    uni__common_free(common);
    return status;
}

static void drop(uni__round *round)
{
    uni_table_unref(round->table);
    uni_value_free(round->after);
    *round = (uni__round){ 0 };
}

void uni__common_free(uni__common *common)
{
    if (common == NULL)
        return;
    drop(&common->held);
    uni_value_free(common->after);
    uni_dataset_iterator_free(common->whole);
    free(common);
}

/* Fetches the next global batch. Returns 1, or 0 at the end of the epoch. */
static int fetch(uni__common *common, uni__round *out, uni_error *err)
{
    int more = uni_dataset_iterator_next_in_epoch(&out->table, common->whole, err);
    if (more < 0)
        return more;
    int status = uni_dataset_iterator_state(&out->after, common->whole, err);
    if (status < 0)
        drop(out);
    return status < 0 ? status : more;
}

static bool enough(const uni__common *common, const uni__round *round)
{
    return uni__enough_for_all(uni_table_num_rows(round->table), common->global_batch,
                               common->num_shards);
}

/* Appends the held rows to `round` instead of making them a batch of their own. */
static int join(uni__common *common, uni__round *round, uni_error *err)
{
    uni__round end = { 0 };
    uni_table *both = NULL;
    uni_table *const parts[] = { round->table, common->held.table };
    UNI_TRY(uni__dataset_iterator_concat(common->whole, &both, parts, 2, err));
    uni_table_unref(round->table);
    uni_value_free(round->after);
    *round = (uni__round){ .table = both, .after = common->held.after };
    common->held.after = NULL;
    drop(&common->held);
    UNI_TRY(fetch(common, &end, err)); /* returns 0: the held batch was not full */
    drop(&end);
    common->ended = true;
    return 0;
}

/* Returns the next round that every shard has a part of, and holds the one after it. */
static int next_held(uni__common *common, uni__round *out, uni_error *err)
{
    uni__round end = { 0 };
    if (common->held.table == NULL) {
        int more = fetch(common, &common->held, err);
        if (more > 0 && !enough(common, &common->held)) {
            common->left_out += uni_table_num_rows(common->held.table);
            drop(&common->held);
            more = fetch(common, &end, err); /* the end of the epoch */
            drop(&end);
        }
        if (more <= 0) {
            drop(&common->held);
            return more;
        }
    }
    *out = common->held;
    common->held = (uni__round){ 0 };
    int more = fetch(common, &common->held, err), status = more < 0 ? more : 0;
    if (more == 0) {
        drop(&common->held);
        common->ended = true;
    } else if (more > 0 && !enough(common, &common->held)) {
        status = join(common, out, err);
    }
    if (status < 0)
        drop(out);
    return status < 0 ? status : 1;
}

/* Always returns 0. */
static int end_epoch(uni__common *common)
{
    common->ended = false;
    common->batches = 0;
    common->done = uni_dataset_iterator_done(common->whole);
    common->epoch = uni_dataset_iterator_epoch(common->whole);
    return 0;
}

int uni__common_next(uni__common *common, uni_table **out, uni_error *err)
{
    uni__round round = { 0 };
    uni_value *after = NULL;
    *out = NULL;
    if (common->done)
        return 0;
    int more = 0;
    if (!common->ended)
        more = common->no_empty ? next_held(common, &round, err) : fetch(common, &round, err);
    if (more < 0)
        return more;
    if (more == 0) {
        drop(&round);
        UNI_TRY(uni_dataset_iterator_state(&after, common->whole, err));
        uni_value_free(common->after);
        common->after = after;
        return end_epoch(common);
    }
    int64_t begin = uni__share(common->global_batch, common->shard, common->num_shards);
    int64_t end = uni__share(common->global_batch, common->shard + 1, common->num_shards);
    common->rows = uni_table_num_rows(round.table);
    common->first = uni__part(common->rows, begin, common->global_batch);
    int status = uni_table_slice(out, round.table, common->first,
                                 uni__part(common->rows, end, common->global_batch), err);
    if (status == 0) {
        uni_value_free(common->after);
        common->after = round.after;
        round.after = NULL;
        common->batches++;
    }
    drop(&round);
    return status < 0 ? status : 1;
}

int uni__common_state(const uni__common *common, uni_value **out, uni_error *err)
{
    *out = uni_value_copy(common->after);
    if (*out == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
    return uni__state_for_all(out, common->num_shards, common->batches, err);
}
