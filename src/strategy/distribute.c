/*
 * distribute.c - each rank's part of every global batch: contiguous, as even as it goes, in the order of the ranks.
 *
 * The source gives the same global batches on every rank (its order is keyed, not random), so nobody has to send data. A rank may get
 * nothing of a small last batch: it still takes part in the step, with weight 0.
 */
#include <stdlib.h>

#include "strategy/internal.h"

typedef struct part {
    uni_batches *global;
    int rank, size;
} part;

static uni_column cut(const uni_column *column, int64_t begin, int64_t count)
{
    uni_column out = *column;
    out.data = (const char *)column->data + (size_t)begin * uni_column_sample_bytes(column);
    out.shape[0] = count;
    return out;
}

static int part_next(void *self, uni_batch *out, uni_error *err)
{
    part *mine = self;
    uni_batch whole;
    int found = uni_batches_next(mine->global, &whole, err);
    if (found <= 0)
        return found;
    int64_t begin = whole.size * mine->rank / mine->size,
            end = whole.size * (mine->rank + 1) / mine->size;
    *out = whole;
    for (int i = 0; i < whole.num_x; i++)
        out->x[i] = cut(&whole.x[i], begin, end - begin);
    for (int i = 0; i < whole.num_y; i++)
        out->y[i] = cut(&whole.y[i], begin, end - begin);
    if (whole.weights.dtype)
        out->weights = cut(&whole.weights, begin, end - begin);
    out->size = end - begin;
    out->first_sample = whole.first_sample + begin;
    out->global_size = whole.size;
    return 1;
}

static int part_reset(void *self, uint64_t epoch, uni_error *err)
{
    return uni_batches_reset(((part *)self)->global, epoch, err);
}

static int64_t part_length(void *self)
{
    return uni_batches_length(((part *)self)->global);
}

int uni_strategy_distribute(uni_strategy *strategy, uni_batches *global, uni_batches **out,
                            uni_error *err)
{
    static const uni_batches_class class_ = { .name = "part of a global batch",
                                              .next = part_next,
                                              .reset = part_reset,
                                              .length = part_length,
                                              .free = free };
    *out = NULL;
    part *mine = calloc(1, sizeof *mine);
    if (!mine)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a source of batches");
    *mine = (part){ .global = global, .rank = strategy->rank, .size = strategy->size };
    int status = uni_batches_new(out, &class_, mine, err);
    if (status < 0) {
        free(mine);
        return status;
    }
    return uni__seen_add(&strategy->distributed, *out, err);
}
