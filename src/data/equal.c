/* equal.c - see equal.h. */
#include "data/equal.h"

#include <stdlib.h>
#include <string.h>

struct shard {
    uni__plan plan; /* not of files; rounds: of the first shard only */
    const uni__piece *pieces; /* of this epoch, the plan's */
    int num_pieces;
    int64_t batch, rows; /* rows: of this epoch; of files: of every epoch */
};

struct uni__equal {
    uni_dataset *dataset; /* borrowed */
    bool files, rounds, drop_remainder, no_empty;
    uni__layout layout; /* in the block order */
    int64_t global_batch;
    int64_t batches, full; /* of this epoch; and those of them that are whole */
    int64_t left_out;
    bool over; /* there is no epoch any more */
    int num_plans, num_shards;
    struct shard shards[];
};

int uni__equal_count_blocks(uni_dataset *dataset, const int64_t *given, const int64_t **out,
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
            status = uni_dataset_count_blocks(dataset, 0, blocks, rows, err);
        if (status < 0) {
            free(rows);
            return status;
        }
        pthread_mutex_lock(&dataset->lock);
        if (dataset->block_rows == NULL) {
            dataset->block_rows = rows;
        } else { /* somebody else was faster */
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

static int check_files(const uni__equal *equal, const uni_value *state, uni_error *err)
{
    if (state != NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "nobody can know how much the others have left of their files; shard "
                             "by ranges to resume with as many batches for all");
    if (equal->no_empty && !equal->drop_remainder)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "shards of files have different numbers of rows, so that the last "
                             "batches of some are empty; take drop_remainder, or shard by ranges");
    return 0;
}

static int open_shard(uni__equal *equal, int index, const uni__plan_options *plan,
                      const uni_value *state, uni_error *err)
{
    struct shard *shard = &equal->shards[index];
    uni__plan_options options = *plan;
    shard->batch = uni__share(equal->global_batch, index + 1, equal->num_shards) -
                   uni__share(equal->global_batch, index, equal->num_shards);
    if (equal->files)
        return uni__count_shard_of_files(equal->dataset, index, &shard->rows, err);
    if (equal->rounds && index > 0)
        return 0;
    options.shard = index;
    options.batch = shard->batch;
    options.round = equal->global_batch;
    options.offset = uni__share(equal->global_batch, index, equal->num_shards);
    options.layout = equal->rounds ? NULL : &equal->layout;
    UNI_TRY(uni__plan_open(&shard->plan, &options, state, err));
    equal->num_plans++;
    return 0;
}

int uni__equal_open(uni__equal **out, uni_dataset *dataset, const uni__plan_options *plan,
                    int64_t global_batch, bool no_empty, const uni_value *state, uni_error *err)
{
    bool files = dataset->num_shards > 0;
    int count = files ? dataset->num_shards : plan->num_shards, status = 0;
    *out = NULL;
    uni__equal *equal = calloc(1, sizeof *equal + (size_t)count * sizeof equal->shards[0]);
    if (equal == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the plans of %d shards", count);
    equal->dataset = dataset;
    equal->files = files;
    equal->rounds = plan->rounds && !files;
    equal->drop_remainder = plan->drop_remainder;
    equal->no_empty = no_empty;
    equal->num_shards = count;
    equal->global_batch = global_batch > 0 ? global_batch : plan->batch * count;
    if (files)
        status = check_files(equal, state, err);
    else if (!equal->rounds)
        status = uni__layout_open(&equal->layout, dataset, plan->layout->block_rows, err);
    for (int i = 0; status == 0 && i < count; i++)
        status = open_shard(equal, i, plan, state, err);
    if (status < 0) {
        uni__equal_free(equal);
        return status;
    }
    uni__equal_next_epoch(equal);
    *out = equal;
    return 0;
}

void uni__equal_extend(uni__equal *equal, int64_t end_epoch)
{
    bool over = equal->over;
    for (int i = 0; i < equal->num_plans; i++)
        uni__plan_extend(&equal->shards[i].plan, end_epoch);
    equal->over = false;
    if (over)
        uni__equal_next_epoch(equal);
}

void uni__equal_free(uni__equal *equal)
{
    if (equal == NULL)
        return;
    for (int i = 0; i < equal->num_plans; i++)
        uni__plan_close(&equal->shards[i].plan);
    uni__layout_close(&equal->layout);
    free(equal);
}

/* ---- an epoch ---- */

/* Shards of files have what they have: all give as many batches as the one with the most, or (whole ones only) with the fewest. */
static void count_files(uni__equal *equal)
{
    int64_t most = 0, fewest = INT64_MAX;
    for (int i = 0; i < equal->num_shards; i++) {
        const struct shard *shard = &equal->shards[i];
        int64_t whole = shard->rows / shard->batch;
        most = whole + (shard->rows % shard->batch > 0) > most
                   ? whole + (shard->rows % shard->batch > 0)
                   : most;
        fewest = whole < fewest ? whole : fewest;
    }
    equal->full = fewest;
    equal->batches = equal->drop_remainder ? fewest : most;
}

/* The pieces of all shards in the next epoch, and their rows in all; -1: there is none. */
static int64_t load_epoch(uni__equal *equal)
{
    int64_t total = 0;
    for (int i = 0; i < equal->num_plans; i++) {
        struct shard *shard = &equal->shards[i];
        if (!uni__plan_epoch(&shard->plan, &shard->pieces, &shard->num_pieces))
            return -1;
        if (equal->rounds)
            return shard->pieces[0].end - shard->pieces[0].begin;
        uni__layout_epoch(&equal->layout, shard->pieces[0].epoch);
        for (int k = 0; k < shard->num_pieces; k++)
            total += uni__layout_rows(&equal->layout, &shard->pieces[k]);
    }
    return total;
}

void uni__equal_next_epoch(uni__equal *equal)
{
    if (equal->files) {
        count_files(equal);
        return;
    }
    int64_t total = load_epoch(equal), round = equal->global_batch;
    equal->over = total < 0;
    total = total < 0 ? 0 : total;
    int64_t rest = total % round;
    equal->full = equal->batches = total / round;
    if (!equal->drop_remainder && rest > 0) {
        bool joined = equal->no_empty && !uni__enough_for_all(rest, round, equal->num_shards);
        equal->batches += !joined;
        equal->left_out += joined && equal->full == 0 ? rest : 0;
    }
    for (int i = 0; i < equal->num_shards; i++) {
        int64_t begin = uni__share(round, i, equal->num_shards);
        int64_t end = begin + equal->shards[i].batch;
        equal->shards[i].rows = equal->full * equal->shards[i].batch + uni__part(rest, end, round) -
                                uni__part(rest, begin, round);
    }
}

int64_t uni__equal_batches(const uni__equal *equal)
{
    return equal->batches;
}

int64_t uni__equal_rows(const uni__equal *equal, int64_t batch, int shard)
{
    const struct shard *one = &equal->shards[shard];
    int64_t left = one->rows - batch * one->batch;
    left = left < 0 ? 0 : left;
    /* The last batch: what is not enough for another one of all shards goes along. */
    if (!equal->files && !equal->drop_remainder && batch + 1 == equal->batches)
        return left;
    return left < one->batch ? left : one->batch;
}

void uni__equal_place(const uni__equal *equal, int64_t batch, int shard, int64_t *first,
                      int64_t *global_size)
{
    *first = *global_size = 0;
    for (int i = 0; i < equal->num_shards; i++) {
        int64_t rows = uni__equal_rows(equal, batch, i);
        *first += i < shard ? rows : 0;
        *global_size += rows;
    }
}

int64_t uni__equal_left_out(const uni__equal *equal)
{
    return equal->left_out;
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

bool uni__equal_speaks_for_all(const uni__equal *equal)
{
    return !equal->files;
}

/* Puts pieces that were cut together again where nobody began them: a block that two shards shared, and ranges that follow each other. */
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
            next.unit = 0;
        if (whole && last != NULL && last->epoch == next.epoch && last->end == next.begin &&
            last->stop == 0)
            last->end = next.end;
        else
            pieces[made++] = next;
    }
    return made;
}

/* What shard `index` has left of this epoch and of the later ones that its state spoke of. */
static int left_of_shard(const uni__equal *equal, const struct shard *shard, int64_t taken,
                         uni__piece *out)
{
    const uni__plan *plan = &shard->plan;
    int count = 0;
    if (equal->over || taken == equal->batches) {
        count = 0;
    } else if (equal->rounds) {
        out[count] = shard->pieces[0];
        out[count++].begin += taken * equal->global_batch;
    } else {
        count = uni__plan_rest(&plan->options, shard->pieces, shard->num_pieces,
                               taken * shard->batch, out);
    }
    for (int i = plan->piece + 1; i < plan->num_pieces; i++)
        out[count++] = plan->pieces[i];
    return count;
}

int uni__equal_state(const uni__equal *equal, int64_t taken, uni_value **out, uni_error *err)
{
    const uni__plan *plan = &equal->shards[0].plan;
    int most = 0, count = 0;
    bool own = plan->piece == plan->num_pieces; /* nothing of this epoch was left by a state */
    int64_t epoch = own && (taken > 0 || equal->over) ? plan->own_epoch : plan->start_epoch;
    if (own && taken == 0 && !equal->over)
        epoch = plan->own_epoch - 1; /* not begun */
    for (int i = 0; i < equal->num_plans; i++)
        most += equal->shards[i].plan.num_pieces + equal->shards[i].num_pieces;
    uni__piece *pieces = calloc((size_t)most + 1, sizeof *pieces);
    *out = NULL;
    if (pieces == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
    for (int i = 0; i < equal->num_plans && !(own && taken == 0); i++)
        count += left_of_shard(equal, &equal->shards[i], taken, pieces + count);
    if (!equal->rounds)
        count = join(pieces, count);
    int status = uni__plan_state_of(&plan->options, pieces, count, epoch, out, err);
    free(pieces);
    if (status < 0)
        return status;
    return uni__state_for_all(out, equal->num_shards, taken == equal->batches ? 0 : taken, err);
}
