/* batch_counts.c - see batch_counts.h. */
#include "data/run/batch_counts.h"

#include <stdlib.h>
#include <string.h>

#include "data/shared.h"

int uni__rows_of_blocks(uni_dataset *dataset, const int64_t *given, const int64_t **out,
                        uni_error *err)
{
    int64_t blocks = dataset->root->source.num_blocks;
    pthread_mutex_lock(&dataset->lock);
    int64_t *rows = dataset->block_rows;
    pthread_mutex_unlock(&dataset->lock);
    if (rows == NULL) {
        int status = 0;
        rows = calloc((size_t)blocks + 1, sizeof *rows);
        if (rows == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the rows of blocks");
        if (given != NULL)
            memcpy(rows, given, (size_t)blocks * sizeof *rows);
        else
            status = uni__dataset_count_blocks(dataset, 0, blocks, rows, err);
        if (status < 0) {
            free(rows);
            return status;
        }
        pthread_mutex_lock(&dataset->lock);
        if (dataset->block_rows == NULL) {
            dataset->block_rows = rows;
        } else { /* another thread was faster */
            free(rows);
            rows = dataset->block_rows;
        }
        pthread_mutex_unlock(&dataset->lock);
    }
    *out = rows;
    return 0;
}

bool uni__enough_for_all(int64_t rows, int64_t global_batch, int num_shards)
{
    for (int i = 0; i < num_shards; i++) {
        int64_t begin = uni__share(global_batch, i, num_shards);
        int64_t end = uni__share(global_batch, i + 1, num_shards);
        if (uni__part(rows, begin, global_batch) == uni__part(rows, end, global_batch))
            return false;
    }
    return true;
}

/* ---- opening ---- */

static int check_files(const uni__batch_counts *counts, const uni_value *state, uni_error *err)
{
    if (state != NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "what the other shards have left of their files is not known; shard "
                             "by ranges to resume with as many batches for all");
    if (counts->no_empty && !counts->drop_remainder)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "shards of files have different numbers of rows, so that the last "
                             "batches of some are empty; take drop_remainder, or shard by ranges");
    return 0;
}

static int open_shard(uni__batch_counts *counts, int index, const uni__plan_options *plan,
                      const uni_value *state, uni_error *err)
{
    uni__shard_counts *shard = &counts->shards[index];
    uni__plan_options options = *plan;
    shard->batch = uni__share(counts->global_batch, index + 1, counts->num_shards) -
                   uni__share(counts->global_batch, index, counts->num_shards);
    if (counts->files)
        return uni__count_shard_of_files(counts->dataset, index, &shard->rows, err);
    if (counts->rounds && index > 0)
        return 0;
    options.shard = index;
    options.batch = shard->batch;
    options.round = counts->global_batch;
    options.offset = uni__share(counts->global_batch, index, counts->num_shards);
    options.layout = counts->rounds ? NULL : &counts->layout;
    UNI_TRY(uni__plan_open(&shard->plan, &options, state, err));
    counts->num_plans++;
    return 0;
}

int uni__batch_counts_open(uni__batch_counts **out, uni_dataset *dataset,
                           const uni__plan_options *plan, int64_t global_batch, bool no_empty,
                           const uni_value *state, uni_error *err)
{
    bool files = dataset->num_shards > 0;
    int count = files ? dataset->num_shards : plan->num_shards, status = 0;
    *out = NULL;
    uni__batch_counts *counts =
        calloc(1, sizeof *counts + (size_t)count * sizeof counts->shards[0]);
    if (counts == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the plans of %d shards", count);
    counts->dataset = dataset;
    counts->files = files;
    counts->rounds = plan->rounds && !files;
    counts->drop_remainder = plan->drop_remainder;
    counts->no_empty = no_empty;
    counts->num_shards = count;
    counts->global_batch = global_batch > 0 ? global_batch : plan->batch * count;
    if (files)
        status = check_files(counts, state, err);
    else if (!counts->rounds)
        status = uni__layout_open(&counts->layout, dataset, plan->layout->block_rows, err);
    for (int i = 0; status == 0 && i < count; i++)
        status = open_shard(counts, i, plan, state, err);
    if (status < 0) {
        uni__batch_counts_free(counts);
        return status;
    }
    uni__batch_counts_next_epoch(counts);
    *out = counts;
    return 0;
}

void uni__batch_counts_extend(uni__batch_counts *counts, int64_t end_epoch)
{
    bool over = counts->over;
    for (int i = 0; i < counts->num_plans; i++)
        uni__plan_extend(&counts->shards[i].plan, end_epoch);
    counts->over = false;
    if (over)
        uni__batch_counts_next_epoch(counts);
}

void uni__batch_counts_free(uni__batch_counts *counts)
{
    if (counts == NULL)
        return;
    for (int i = 0; i < counts->num_plans; i++)
        uni__plan_close(&counts->shards[i].plan);
    uni__layout_close(&counts->layout);
    free(counts);
}

/* ---- an epoch ---- */

/* File shards differ in size. All give as many batches as the largest, or, if only full batches
 * count, as the smallest. */
static void count_files(uni__batch_counts *counts)
{
    int64_t most = 0, fewest = INT64_MAX;
    for (int i = 0; i < counts->num_shards; i++) {
        const uni__shard_counts *shard = &counts->shards[i];
        int64_t whole = shard->rows / shard->batch;
        most = whole + (shard->rows % shard->batch > 0) > most
                   ? whole + (shard->rows % shard->batch > 0)
                   : most;
        fewest = whole < fewest ? whole : fewest;
    }
    counts->full = fewest;
    counts->batches = counts->drop_remainder ? fewest : most;
}

/* Loads the pieces of all shards for the next epoch and returns their total row count, or -1 at the
 * end. */
static int64_t load_epoch(uni__batch_counts *counts)
{
    int64_t total = 0;
    for (int i = 0; i < counts->num_plans; i++) {
        uni__shard_counts *shard = &counts->shards[i];
        if (!uni__plan_epoch(&shard->plan, &shard->pieces, &shard->num_pieces))
            return -1;
        if (counts->rounds)
            return shard->pieces[0].end - shard->pieces[0].begin;
        uni__layout_epoch(&counts->layout, shard->pieces[0].epoch);
        for (int k = 0; k < shard->num_pieces; k++)
            total += uni__layout_rows(&counts->layout, &shard->pieces[k]);
    }
    return total;
}

void uni__batch_counts_next_epoch(uni__batch_counts *counts)
{
    if (counts->files) {
        count_files(counts);
        return;
    }
    int64_t total = load_epoch(counts), round = counts->global_batch;
    counts->over = total < 0;
    total = total < 0 ? 0 : total;
    int64_t rest = total % round;
    counts->full = counts->batches = total / round;
    if (!counts->drop_remainder && rest > 0) {
        bool joined = counts->no_empty && !uni__enough_for_all(rest, round, counts->num_shards);
        counts->batches += !joined;
        counts->left_out += joined && counts->full == 0 ? rest : 0;
    }
    for (int i = 0; i < counts->num_shards; i++) {
        int64_t begin = uni__share(round, i, counts->num_shards);
        int64_t end = begin + counts->shards[i].batch;
        counts->shards[i].rows = counts->full * counts->shards[i].batch +
                                 uni__part(rest, end, round) - uni__part(rest, begin, round);
    }
}

int64_t uni__batch_counts_rows(const uni__batch_counts *counts, int64_t batch, int shard)
{
    const uni__shard_counts *one = &counts->shards[shard];
    int64_t left = one->rows - batch * one->batch;
    left = left < 0 ? 0 : left;
    /* The last batch takes the rows that are too few for another batch on all shards. */
    if (!counts->files && !counts->drop_remainder && batch + 1 == counts->batches)
        return left;
    return left < one->batch ? left : one->batch;
}

void uni__batch_counts_place(const uni__batch_counts *counts, int64_t batch, int shard,
                             int64_t *first, int64_t *global_size)
{
    *first = *global_size = 0;
    for (int i = 0; i < counts->num_shards; i++) {
        int64_t rows = uni__batch_counts_rows(counts, batch, i);
        *first += i < shard ? rows : 0;
        *global_size += rows;
    }
}

/* ---- states ---- */

int uni__state_for_all(uni_value **state, int num_shards, int64_t taken, uni_error *err)
{
    if (uni_dict_take(*state, "shards", uni_value_int(num_shards)) == 0 &&
        uni_dict_take(*state, "all", uni_value_int(1)) == 0 &&
        uni_dict_take(*state, "taken", uni_value_int(taken)) == 0)
        return 0;
    uni_value_free(*state);
    *state = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
}

/* Rejoins pieces that were cut but not begun: a block that two shards shared, and adjacent
 * ranges. */
static int join(uni__piece *pieces, int count)
{
    int made = 0;
    uni__plan_sort(pieces, count);
    for (int i = 0; i < count; i++) {
        uni__piece next = pieces[i], *last = made > 0 ? &pieces[made - 1] : NULL;
        if (last != NULL && last->epoch == next.epoch && last->begin == next.begin &&
            last->end == next.end && last->stop > 0 && last->stop == next.skip) {
            last->stop = next.stop;
            next = *last;
            last = --made > 0 ? &pieces[made - 1] : NULL;
        }
        bool whole = next.skip == 0 && next.stop == 0;
        if (whole)
            next.window = 0;
        if (whole && last != NULL && last->epoch == next.epoch && last->end == next.begin &&
            last->stop == 0)
            last->end = next.end;
        else
            pieces[made++] = next;
    }
    return made;
}

/* What shard `index` has left of this epoch and of the later epochs in its state. */
static int left_of_shard(const uni__batch_counts *counts, const uni__shard_counts *shard,
                         int64_t taken, uni__piece *out)
{
    const uni__plan *plan = &shard->plan;
    int count = 0;
    if (counts->over || taken == counts->batches) {
        count = 0;
    } else if (counts->rounds) {
        out[count] = shard->pieces[0];
        out[count++].begin += taken * counts->global_batch;
    } else {
        count = uni__plan_rest(&plan->options, shard->pieces, shard->num_pieces,
                               taken * shard->batch, out);
    }
    for (int i = plan->piece + 1; i < plan->num_pieces; i++)
        out[count++] = plan->pieces[i];
    return count;
}

int uni__batch_counts_state(const uni__batch_counts *counts, int64_t taken, uni_value **out,
                            uni_error *err)
{
    const uni__plan *plan = &counts->shards[0].plan;
    int most = 0, count = 0;
    bool own = plan->piece == plan->num_pieces; /* the state has nothing left of this epoch */
    int64_t epoch = own && (taken > 0 || counts->over) ? plan->own_epoch : plan->start_epoch;
    /* No batch was taken: this epoch has not begun. */
    if (own && taken == 0 && !counts->over)
        epoch = plan->own_epoch - 1;
    for (int i = 0; i < counts->num_plans; i++)
        most += counts->shards[i].plan.num_pieces + counts->shards[i].num_pieces;
    uni__piece *pieces = calloc((size_t)most + 1, sizeof *pieces);
    *out = NULL;
    if (pieces == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
    for (int i = 0; i < counts->num_plans && !(own && taken == 0); i++)
        count += left_of_shard(counts, &counts->shards[i], taken, pieces + count);
    if (!counts->rounds)
        count = join(pieces, count);
    int status = uni__plan_state_of(&plan->options, pieces, count, epoch, out, err);
    free(pieces);
    if (status < 0)
        return status;
    return uni__state_for_all(out, counts->num_shards, taken == counts->batches ? 0 : taken, err);
}
