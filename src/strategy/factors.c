/*
 * factors.c - plain descent by the ranks of one host without gradients of large dense kernels.
 *
 * Such a gradient is a product, x^T dz, of the layer's input and the gradient of its output, and with batches of some dozens of samples its factors are much smaller: 64 rows of
 * 21,632 and 128 floats instead of 2.8 million. So the ranks meet in the middle of the backward pass with their factors, and each takes all of them off its own
 * rows of the kernel, which lives once, in shared pages (fused.c). A rank copies what the others need: its dz, and x but for the columns that are its own.
 *
 *   copy my factors into the shared buffer
 *   meeting with the numbers of rows: all are there, and nobody needs the old kernel any more      the product, in src/tensor
 *   meeting: the kernel is new everywhere, and the buffer is free again
 *
 * fit's thread.
 */
#include <string.h>

#include "strategy/internal.h"

#define LEAST_WEIGHTS ((size_t)1 << 18)
/* A kernel must have this many weights for each sample of the global batch, or copying factors costs as much as adding up gradients: for (in, out) weights that is
 * about 2 (in + out) floats a sample of traffic beside 4 in x out / samples. */
#define WEIGHTS_A_SAMPLE ((size_t)1 << 13)

static int64_t most(const int64_t *values, int count)
{
    int64_t high = values[0];
    for (int i = 1; i < count; i++)
        high = values[i] > high ? values[i] : high;
    return high;
}

static void copy_mine(const uni_strategy *strategy, const uni_factors *mine, int64_t in,
                      int64_t out)
{
    float *to = uni_comm_buffer_data(strategy->fused.factors);
    uni_span own = uni_descent_rows(in, strategy->rank, strategy->size);
    size_t width = (size_t)in;
    for (int64_t r = 0; r < mine->rows; r++) {
        const float *row = mine->x + (size_t)r * width;
        float *copy = to + (size_t)r * width;
        memcpy(copy, row, own.begin * sizeof(float));
        memcpy(copy + own.end, row + own.end, (width - own.end) * sizeof(float));
    }
    memcpy(to + (size_t)(mine->rows * in), mine->dz, (size_t)(mine->rows * out) * sizeof(float));
}

/* The buffer is too small for somebody, which all know from the same numbers: a larger one, and once more. */
static int copy_again(uni_strategy *strategy, const uni_factors *mine, int64_t in, int64_t out,
                      size_t floats, uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    uni_comm_buffer_free(fused->factors);
    fused->factors = NULL;
    fused->factor_floats = floats;
    UNI_TRY(uni_comm_alloc(strategy->comm, floats * sizeof(float), &fused->factors, err));
    copy_mine(strategy, mine, in, out);
    return uni_comm_barrier(strategy->comm, err);
}

static int meet(void *context, const uni_factors *mine, int64_t in, int64_t out, uni_factors *all,
                uni_error *err)
{
    uni_strategy *strategy = context;
    uni__fused *fused = &strategy->fused;
    int64_t rows[UNI_DESCENT_MAX_PEERS];
    if (fused->factors && (size_t)(mine->rows * (in + out)) <= fused->factor_floats)
        copy_mine(strategy, mine, in, out);
    UNI_TRY(uni_comm_all_gather(strategy->comm, &mine->rows, rows, 1, UNI_I64, err));
    size_t floats = (size_t)(most(rows, strategy->size) * (in + out));
    if (!fused->factors || floats > fused->factor_floats)
        UNI_TRY(copy_again(strategy, mine, in, out, floats, err));
    for (int r = 0; r < strategy->size; r++) {
        const float *theirs = uni_comm_buffer_peer(fused->factors, r);
        all[r] = (uni_factors){ theirs, theirs + rows[r] * in, rows[r] };
    }
    all[strategy->rank] = *mine;
    return 0;
}

static int leave(void *context, uni_error *err)
{
    uni_strategy *strategy = context;
    return uni_comm_barrier(strategy->comm, err);
}

/* Is there a kernel that is large enough at all? Otherwise nobody needs to be asked. */
static bool has_large(const uni_model *model)
{
    const uni_parameters *store = uni_model_parameters(model);
    for (size_t i = 0; i < uni_parameters_count(store); i++)
        if (uni_parameter_size(uni_parameters_at(store, i)) >= LEAST_WEIGHTS)
            return true;
    return false;
}

int uni__factors_descend(void *context, int64_t samples, int64_t *all_samples,
                         const uni_descent_peers **peers, uni_error *err)
{
    uni_strategy *strategy = context;
    uni__fused *fused = &strategy->fused;
    int64_t each[UNI_DESCENT_MAX_PEERS], sum = 0;
    if (!fused->on || fused->whole || strategy->size > UNI_DESCENT_MAX_PEERS ||
        !has_large(fused->model))
        return 0;
    UNI_TRY(uni_comm_all_gather(strategy->comm, &samples, each, 1, UNI_I64, err));
    for (int r = 0; r < strategy->size; r++) {
        if (each[r] == 0)
            return 0; /* a rank without data has no pass to meet in */
        sum += each[r];
    }
    size_t least = (size_t)sum * WEIGHTS_A_SAMPLE;
    fused->peers = (uni_descent_peers){ .index = strategy->rank,
                                        .count = strategy->size,
                                        .least = least > LEAST_WEIGHTS ? least : LEAST_WEIGHTS,
                                        .context = strategy,
                                        .meet = meet,
                                        .leave = leave };
    *all_samples = sum;
    *peers = &fused->peers;
    return 1;
}
