/*
 * distribute.c - each process's part of every global batch: contiguous, as even as possible, in
 * rank order.
 *
 * The source yields the same global batches on every rank (its order is keyed, not random), so
 * ranks exchange no data. A rank may get nothing of a small last batch; it still takes part in the
 * step, with weight 0. That is sharding by data. Data that is sharded otherwise (by file, or by the
 * user) is taken as it is, and a source that is already sharded is never sharded again. Datasets
 * (nn_dataset.h) shard themselves, so that a rank reads only its own rows.
 *
 * When the number of ranks changes in the middle of a fit, parts of global batches are cut anew: a
 * batch at hand at once, a dataset's part by opening it again at the place where it is read.
 */
#include <stdlib.h>
#include <unisono/nn_dataset.h>

#include "nn/shared.h"
#include "strategy/internal.h"

typedef struct uni__part {
    uni_batches *global;
    /* A dataset's own part; `global` then points to it. Freed with this struct. */
    uni_batches *own;
    uni_batches *dataset; /* that `own` is a part of */
    int rank, size; /* it is cut for; size 1: taken as it is */
    bool fixed; /* and stays as it is, whatever the ranks */
    uni_batch whole; /* the global batch that was cut last */
    uint64_t epoch; /* where it is read: the last reset, and batches since */
    int64_t taken;
    bool stale; /* there are other ranks since: `own` is opened again */
    /* The source does not know the other workers' batches; uni_strategy_run asks them. */
    bool alone;
    uni_strategy *strategy; /* NULL: the strategy ended first */
    const uni_batches *batches; /* the batches that wrap this part */
    struct uni__part *next;
} part;

bool uni__is_part(const uni_strategy *strategy, const uni_batches *batches)
{
    const part *found = strategy->parts;
    while (found && found->batches != batches)
        found = found->next;
    return found != NULL;
}

void uni__parts_forget(uni_strategy *strategy)
{
    for (part *one = strategy->parts; one; one = one->next)
        one->strategy = NULL;
    strategy->parts = NULL;
}

uni_batch uni__batch_part(const uni_batch *whole, int64_t begin, int64_t end)
{
    uni_batch out = *whole;
    for (int i = 0; i < whole->num_x; i++)
        out.x[i] = uni_column_rows(&whole->x[i], begin, end);
    for (int i = 0; i < whole->num_y; i++)
        out.y[i] = uni_column_rows(&whole->y[i], begin, end);
    if (whole->weights.dtype)
        out.weights = uni_column_rows(&whole->weights, begin, end);
    out.size = end - begin;
    out.first_sample = whole->first_sample + begin;
    out.global_size = whole->global_size > 0 ? whole->global_size : whole->size;
    return out;
}

static void cut(const part *mine, uni_batch *out)
{
    const uni_batch *whole = &mine->whole;
    bool slices = !mine->own && mine->size > 1;
    int64_t begin = whole->size * mine->rank / mine->size,
            end = whole->size * (mine->rank + 1) / mine->size;
    *out = slices ? uni__batch_part(whole, begin, end) : *whole;
    if (mine->alone)
        out->first_sample = out->global_size = 0;
}

/* Goes to the batch that comes next. */
static int go_to_place(part *mine, uni_error *err)
{
    UNI_TRY(uni_batches_reset(mine->global, mine->epoch, err));
    for (int64_t i = 0; i < mine->taken; i++) {
        uni_batch passed;
        UNI_TRY(uni_batches_next(&passed, mine->global, err));
    }
    return 0;
}

/* For the ranks that there are now. A batch that is sliced is sliced otherwise; a dataset's own
 * part is opened again. Every rank chooses as one does that begins now. */
static int open_again(part *mine, uni_error *err)
{
    uni_batches *own = NULL;
    uni_error why = { 0 };
    int status = mine->size == 1 ? UNI_EUNSUPPORTED
                                 : uni__batches_dataset_part(&own, mine->dataset, mine->rank,
                                                             mine->size, false, &why);
    if (status < 0 && status != UNI_EUNSUPPORTED) {
        if (err)
            *err = why;
        return status;
    }
    mine->stale = false;
    if (!own && !mine->own)
        return 0;
    uni_batches_free(mine->own);
    mine->own = own;
    mine->global = own ? own : mine->dataset;
    return go_to_place(mine, err);
}

static int part_next(void *self, uni_batch *out, uni_error *err)
{
    part *mine = self;
    if (mine->stale)
        UNI_TRY(open_again(mine, err));
    int found = uni_batches_next(&mine->whole, mine->global, err);
    if (found <= 0)
        return found;
    mine->taken++;
    cut(mine, out);
    return 1;
}

static int part_reset(void *self, uint64_t epoch, uni_error *err)
{
    part *mine = self;
    mine->epoch = epoch;
    mine->taken = 0;
    if (mine->stale)
        UNI_TRY(open_again(mine, err));
    return uni_batches_reset(mine->global, epoch, err);
}

static void part_expect(void *self, uint64_t first, uint64_t end)
{
    const part *mine = self;
    if (!mine->stale)
        uni__batches_expect(mine->global, first, end);
}

bool uni__parts_are_cut(const uni_strategy *strategy)
{
    bool all = true;
    for (const part *one = strategy->parts; one; one = one->next)
        all &= !one->fixed;
    return all;
}

void uni__parts_resize(uni_strategy *strategy)
{
    for (part *one = strategy->parts; one; one = one->next) {
        if (one->fixed || (one->rank == strategy->rank && one->size == strategy->size))
            continue;
        one->rank = strategy->rank;
        one->size = strategy->size;
        one->stale = true;
    }
}

int uni__part_again(uni_strategy *strategy, uni_batches *batches, uni_batch *out, uni_error *err)
{
    part *mine = strategy->parts;
    while (mine && mine->batches != batches)
        mine = mine->next;
    if (!mine || mine->taken == 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the number of workers has changed, but fit's data is not cut by the "
                             "strategy");
    if (mine->stale) {
        bool sliced = !mine->own;
        mine->taken--;
        UNI_TRY(open_again(mine, err));
        if (!sliced || mine->own) {
            int found = part_next(mine, out, err);
            return found != 0 ? (found < 0 ? found : 0)
                              : uni_error_set(err, UNI_EMISMATCH, "the data has become shorter");
        }
        mine->taken++;
    }
    cut(mine, out);
    return 0;
}

static int64_t part_length(void *self)
{
    return uni__batches_length(((part *)self)->global);
}

/* Unregister the address: another source may reuse it. */
static void part_free(void *self)
{
    part *mine = self;
    part **at = mine->strategy ? &mine->strategy->parts : NULL;
    while (at && *at && *at != mine)
        at = &(*at)->next;
    if (at && *at)
        *at = mine->next;
    uni_batches_free(mine->own);
    free(mine);
}

int uni_strategy_distribute_dataset(uni_batches **out, uni_strategy *strategy, uni_batches *dataset,
                                    uni_auto_shard policy, uni_error *err)
{
    static const uni_batches_class class_ = { .name = "part of a global batch",
                                              .next = part_next,
                                              .reset = part_reset,
                                              .length = part_length,
                                              .expect = part_expect,
                                              .free = part_free };
    *out = NULL;
    /* With parameter servers the calls assign the parts. */
    bool whole = policy == UNI_SHARD_OFF || strategy->server || strategy->size == 1 ||
                 uni__is_part(strategy, dataset);
    bool by_files = policy == UNI_SHARD_FILE;
    uni_batches *own = NULL;
    uni_error why = { 0 };
    int cut = whole ? 0
                    : uni__batches_dataset_part(&own, dataset, strategy->rank, strategy->size,
                                                by_files, &why);
    if (cut < 0 && (by_files || cut != UNI_EUNSUPPORTED)) {
        if (err)
            *err = why;
        return cut;
    }
    part *mine = calloc(1, sizeof *mine);
    if (!mine) {
        uni_batches_free(own);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a source of batches");
    }
    *mine = (part){ .global = own ? own : dataset,
                    .own = own,
                    .dataset = dataset,
                    .rank = whole ? 0 : strategy->rank,
                    .size = whole ? 1 : strategy->size,
                    .fixed = by_files || (whole && strategy->size > 1),
                    .alone = policy == UNI_SHARD_OFF && strategy->size > 1 };
    int status = uni_batches_new(out, &class_, mine, err);
    if (status < 0) {
        uni_batches_free(own);
        free(mine);
        return status;
    }
    mine->strategy = strategy;
    mine->batches = *out;
    mine->next = strategy->parts;
    strategy->parts = mine;
    return 0;
}
