/*
 * factors.c - plain gradient descent on the ranks of one host without gradients of large dense
 * kernels.
 *
 * Such a gradient is a product, x^T dz, of the layer's input and the gradient of its output. With
 * batches of a few dozen samples its factors are much smaller: 64 rows of 21,632 and of 128 floats
 * instead of 2.8 million. So a rank's backward pass keeps the factors. Before the step's first
 * synchronization it shows the others what they need of them: dz, and the columns of x that are not
 * its own. Afterwards each rank subtracts all ranks' products from its own rows of the kernel,
 * which exists once, in shared pages (fused.c). This needs no more synchronizations than gradients
 * do: the barrier at the end of the step also ensures that no rank still reads the factors.
 *
 * A rank's part of the buffer:
 *
 *   floats needed | rows of each kernel | x and dz of the first | x and dz of the second | ...
 *
 * All ranks decide alike: by the weights, by the size of a global batch, and by what all wrote
 * before the synchronization. Called on fit's thread.
 */
#include <string.h>

#include "tensor/shared.h"
#include "comm/shared.h"
#include "strategy/internal.h"

#define LEAST_WEIGHTS ((size_t)1 << 18)
/* A kernel must have this many weights per sample of the global batch, or copying factors costs as
 * much as adding up gradients. For (in, out) weights the factors move about 2 (in + out) floats per
 * sample, the gradients 4 in x out / samples. */
#define WEIGHTS_A_SAMPLE ((size_t)1 << 13)

/* Of one rank; 64 floats, so that rows begin at cache lines. */
typedef struct heading {
    /* Floats that the factors need. The factors are present only if they fit. */
    int64_t floats;
    int64_t rows[UNI__MAX_FACTORED];
    int64_t unused[16];
} heading;

size_t uni__factors_least(void *context)
{
    const uni_strategy *strategy = context;
    const uni__fused *fused = &strategy->fused;
    if (!fused->on || fused->samples <= 0 || fused->most_replicas > 1 ||
        strategy->size > UNI__DESCENT_MAX_PEERS)
        return 0;
    size_t least = (size_t)fused->samples * WEIGHTS_A_SAMPLE;
    return least > LEAST_WEIGHTS ? least : LEAST_WEIGHTS;
}

static heading *heading_of(const uni_strategy *strategy, int rank)
{
    return uni__comm_buffer_peer(strategy->fused.factors, rank);
}

static size_t floats_of(const uni__factored *what, int64_t rows)
{
    return (size_t)(rows * (what->in + what->out));
}

/* Copies x, except for the columns of this rank's own rows of the kernel, then dz. */
static void copy(const uni_strategy *strategy, const uni__factored *what, float *to)
{
    const uni__factors *mine = &what->factors;
    uni__span own = uni__descent_rows(what->in, strategy->rank, strategy->size);
    size_t in = (size_t)what->in, bytes = sizeof(float);
    for (int64_t r = 0; r < mine->rows; r++, to += in) {
        const float *row = mine->x + (size_t)r * in;
        memcpy(to, row, own.begin * bytes);
        memcpy(to + own.end, row + own.end, (in - own.end) * bytes);
    }
    if (mine->rows > 0)
        memcpy(to, mine->dz, (size_t)(mine->rows * what->out) * bytes);
}

static void write_mine(uni_strategy *strategy, const uni__factored *mine, size_t count)
{
    heading *head = heading_of(strategy, strategy->rank);
    float *to = (float *)(head + 1);
    size_t floats = 0;
    for (size_t i = 0; i < count; i++) {
        head->rows[i] = mine[i].factors.rows;
        floats += floats_of(&mine[i], mine[i].factors.rows);
    }
    head->floats = (int64_t)floats;
    if (floats > strategy->fused.factor_floats)
        return;
    for (size_t i = 0; i < count; to += floats_of(&mine[i], mine[i].factors.rows), i++)
        copy(strategy, &mine[i], to);
}

void uni__factors_show(uni_strategy *strategy, const uni__trained *trained)
{
    const uni__factored *mine = NULL;
    size_t count = uni__tape_factored(trained->tape, &mine);
    if (count > 0 && strategy->fused.factors)
        write_mine(strategy, mine, count);
}

/* The buffer is too small for some rank, which all ranks see after the synchronization. Allocate a
 * larger one and repeat. */
static int make_room(uni_strategy *strategy, const uni__factored *mine, size_t count,
                     uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    int64_t floats = 0;
    for (size_t i = 0; i < count; i++)
        floats += (int64_t)floats_of(&mine[i], mine[i].factors.rows);
    UNI_TRY(uni_comm_all_reduce(strategy->comm, &floats, &floats, 1, UNI_I64, UNI_COMM_MAX, err));
    uni_comm_buffer_free(fused->factors);
    fused->factors = NULL;
    fused->factor_floats = (size_t)floats;
    UNI_TRY(uni_comm_alloc(&fused->factors, strategy->comm,
                           sizeof(heading) + (size_t)floats * sizeof(float), err));
    write_mine(strategy, mine, count);
    return uni_comm_barrier(strategy->comm, err);
}

static bool all_fit(const uni_strategy *strategy)
{
    bool fit = strategy->fused.factors != NULL;
    for (int r = 0; fit && r < strategy->size; r++)
        fit = heading_of(strategy, r)->floats <= (int64_t)strategy->fused.factor_floats;
    return fit;
}

/* The factors of all ranks for one kernel, in rank order. */
static void take(const uni_strategy *strategy, const uni__factored *mine, size_t which,
                 uni__factors *all)
{
    for (int r = 0; r < strategy->size; r++) {
        const heading *head = heading_of(strategy, r);
        const float *at = (const float *)(head + 1);
        for (size_t i = 0; i < which; i++)
            at += floats_of(&mine[i], head->rows[i]);
        all[r] = (uni__factors){ at, at + head->rows[which] * mine[which].in, head->rows[which] };
    }
    all[strategy->rank] = mine[which].factors;
}

size_t uni__factors_count(const uni__trained *trained)
{
    const uni__factored *mine = NULL;
    return uni__tape_factored(trained->tape, &mine);
}

bool uni__factors_are_shown(const uni_strategy *strategy, const uni__trained *trained)
{
    return uni__factors_count(trained) == 0 || all_fit(strategy);
}

int uni__factors_update(uni_strategy *strategy, const uni__update *update,
                        const uni__trained *trained, uni_error *err)
{
    uni__factors all[UNI__DESCENT_MAX_PEERS];
    const uni__factored *mine = NULL;
    size_t count = uni__tape_factored(trained->tape, &mine);
    if (count > 0 && !all_fit(strategy))
        UNI_TRY(make_room(strategy, mine, count, err));
    for (size_t i = 0; i < count; i++) {
        take(strategy, mine, i, all);
        UNI_TRY(uni__update_factored(update, trained->tape, &mine[i], all, strategy->size,
                                     strategy->rank, trained->sums[1], err));
    }
    return 0;
}
