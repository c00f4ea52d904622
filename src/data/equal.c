/* equal.c - see equal.h. */
#include "data/equal.h"

#include <stdlib.h>

struct shard {
    uni__plan plan; /* not of files */
    int64_t batch;
    int64_t rows; /* of the present epoch; of files: of every epoch */
};

struct uni__equal {
    uni_dataset *dataset; /* borrowed */
    const int64_t *block_rows; /* the dataset's; NULL: shards of files */
    bool drop_remainder;
    int num_shards;
    struct shard shards[];
};

/* Counted once a dataset, and kept. */
static int count_blocks(uni_dataset *dataset, const int64_t **out, uni_error *err)
{
    int64_t blocks = dataset->root->source.num_blocks;
    pthread_mutex_lock(&dataset->lock);
    int64_t *rows = dataset->block_rows;
    pthread_mutex_unlock(&dataset->lock);
    if (rows == NULL) {
        rows = calloc((size_t)blocks + 1, sizeof *rows);
        int status = rows != NULL
                         ? uni_dataset_count_blocks(dataset, 0, blocks, rows, err)
                         : uni_error_set(err, UNI_ENOMEM, "no memory for the rows of blocks");
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

static int open_shard(uni__equal *equal, int index, const uni__plan_options *plan,
                      const uni_value *state, uni_error *err)
{
    uni__plan_options options = *plan;
    struct shard *shard = &equal->shards[index];
    if (equal->block_rows == NULL)
        return uni__count_shard_of_files(equal->dataset, index, &shard->rows, err);
    options.shard = index;
    return uni__plan_open(&shard->plan, &options, state, err);
}

static int check_possible(const uni_dataset *dataset, const uni_value *state, uni_error *err)
{
    if (dataset->num_shards == 0 && dataset->root->source.kind != UNI__SOURCE_SPLIT)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "nobody can know before how many rows each shard of this dataset has "
                             "after a filter or flat_map; cache() what comes out of it, and all "
                             "shards get the same number of batches");
    if (dataset->num_shards > 0 && state != NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "nobody can know how much the others have left of their files; shard "
                             "by ranges to resume with as many batches for all");
    return 0;
}

int uni__equal_open(uni__equal **out, uni_dataset *dataset, const uni__plan_options *plan,
                    int64_t global_batch, const uni_value *state, uni_error *err)
{
    bool files = dataset->num_shards > 0;
    int count = files ? dataset->num_shards : plan->num_shards, status = 0;
    *out = NULL;
    UNI_TRY(check_possible(dataset, state, err));
    uni__equal *equal = calloc(1, sizeof *equal + (size_t)count * sizeof equal->shards[0]);
    if (equal == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the plans of %d shards", count);
    equal->dataset = dataset;
    equal->drop_remainder = plan->drop_remainder;
    if (!files)
        status = count_blocks(dataset, &equal->block_rows, err);
    for (; status == 0 && equal->num_shards < count; equal->num_shards++) {
        int i = equal->num_shards;
        equal->shards[i].batch = global_batch > 0 ? uni__share(global_batch, i + 1, count) -
                                                        uni__share(global_batch, i, count)
                                                  : plan->batch;
        status = open_shard(equal, i, plan, state, err);
    }
    if (status < 0) {
        uni__equal_free(equal);
        return status;
    }
    *out = equal;
    return 0;
}

/* Rows that are left to a shard in the epoch that its plan stands at, which goes on to the next. */
static int64_t epoch_rows(const uni__equal *equal, uni__plan *plan)
{
    int64_t rows = 0, unit_rows = 0;
    uni__task task;
    while (uni__plan_next(plan, &task) && !task.end_of_epoch) {
        unit_rows += equal->block_rows[uni__order_element(equal->dataset, task.epoch, task.begin)];
        if (!task.last_of_unit)
            continue;
        rows += unit_rows > task.skip ? unit_rows - task.skip : 0;
        unit_rows = 0;
    }
    return rows;
}

int64_t uni__equal_epoch(uni__equal *equal)
{
    int64_t most = 0, fewest = INT64_MAX;
    for (int i = 0; i < equal->num_shards; i++) {
        struct shard *shard = &equal->shards[i];
        if (equal->block_rows != NULL)
            shard->rows = epoch_rows(equal, &shard->plan);
        int64_t batches = equal->drop_remainder ? shard->rows / shard->batch
                                                : (shard->rows + shard->batch - 1) / shard->batch;
        most = batches > most ? batches : most;
        fewest = batches < fewest ? batches : fewest;
    }
    return equal->drop_remainder ? fewest : most;
}

void uni__equal_place(const uni__equal *equal, int64_t batch, int shard, int64_t *first,
                      int64_t *global_size)
{
    *first = *global_size = 0;
    for (int i = 0; i < equal->num_shards; i++) {
        const struct shard *one = &equal->shards[i];
        int64_t left = one->rows - batch * one->batch;
        int64_t rows = left < 0 ? 0 : left < one->batch ? left : one->batch;
        *first += i < shard ? rows : 0;
        *global_size += rows;
    }
}

void uni__equal_extend(uni__equal *equal, int64_t end_epoch)
{
    for (int i = 0; i < equal->num_shards && equal->block_rows != NULL; i++)
        uni__plan_extend(&equal->shards[i].plan, end_epoch);
}

void uni__equal_free(uni__equal *equal)
{
    if (equal == NULL)
        return;
    for (int i = 0; i < equal->num_shards && equal->block_rows != NULL; i++)
        uni__plan_close(&equal->shards[i].plan);
    free(equal);
}
