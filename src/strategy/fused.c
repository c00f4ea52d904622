/*
 * fused.c - the fused step of fit on one host. Weights and optimizer state exist once, in pages
 * that all ranks map, and each rank reduces and updates its own slice.
 *
 *   1. backward           into my own gradients, which all ranks can read
 *   2. all-reduce         of the step's counts; once it is done, all gradients are complete
 *   3. reduce             my slice of all gradients, in rank order
 *   4. optimizer          on my slice of the shared weights and state
 *   5. barrier            once it is done, all weights are updated
 *
 * Large dense kernels under plain gradient descent have no gradients at all (factors.c).
 *
 * A step has two synchronizations. A rank reads b bytes of gradients and touches b/n of weights and
 * state, so the work and memory of the update shrink with the number of ranks, and weights cannot
 * drift apart. Clipping by norm adds a synchronization before 4: each rank computes the sums of
 * squares of its slice, and an all-reduce adds them up. Slices hold equal numbers of trainable
 * weights, whatever frozen weights lie between them.
 *
 * The pages are in use only while fit runs. Before and after, every rank owns its whole model.
 * Called on fit's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "comm/shared.h"
#include "strategy/elastic/elastic.h"

#define PAGE_FLOATS ((size_t)1024)
#define LINE_FLOATS ((size_t)16)

/* The offset with `wanted` trainable weights before it, rounded to a cache line. */
static size_t place_of(const uni_parameters *store, size_t wanted, size_t size)
{
    uni__span spans[64];
    size_t count = uni__parameters_trainable(store, spans, 64);
    for (size_t i = 0; i < count && count <= 64; i++) {
        size_t here = spans[i].end - spans[i].begin;
        if (wanted <= here)
            return spans[i].begin + wanted / LINE_FLOATS * LINE_FLOATS;
        wanted -= here;
    }
    return wanted < size ? wanted / LINE_FLOATS * LINE_FLOATS : size;
}

static uni__span slice_of(const uni_parameters *store, size_t size, int rank, int ranks)
{
    uni__span spans[64];
    size_t count = uni__parameters_trainable(store, spans, 64), all = count > 64 ? size : 0;
    for (size_t i = 0; i < count && count <= 64; i++)
        all += spans[i].end - spans[i].begin;
    size_t begin = rank == 0 ? 0 : place_of(store, all * (size_t)rank / (size_t)ranks, size);
    size_t end =
        rank + 1 == ranks ? size : place_of(store, all * (size_t)(rank + 1) / (size_t)ranks, size);
    return (uni__span){ begin, end };
}

void uni__fused_free(uni__fused *fused)
{
    uni_comm_buffer_free(fused->pages);
    uni_comm_buffer_free(fused->gradients);
    uni_comm_buffer_free(fused->factors);
    free(fused->parts);
    free(fused->squares);
    uni_comm_close(fused->home);
}

/* Allocates pages of this size, or keeps those of the previous fit. Sizes are equal, so all ranks
 * decide alike. */
static int make_pages(uni_strategy *strategy, size_t size, size_t slots, uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    if (fused->pages && fused->size == size && fused->slots == slots && !fused->home)
        return 0;
    uni__fused_free(fused);
    *fused = (uni__fused){ .size = size, .slots = slots };
    fused->parts = calloc((size_t)strategy->size, sizeof *fused->parts);
    if (!fused->parts)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d ranks", strategy->size);
    fused->stride = (size + PAGE_FLOATS - 1) / PAGE_FLOATS * PAGE_FLOATS;
    UNI_TRY(uni__comm_alloc_shared(strategy->comm, fused->stride * (1 + slots) * sizeof(float),
                                   &fused->pages, err));
    return uni_comm_alloc(&fused->gradients, strategy->comm, size * sizeof(float), err);
}

/* All ranks adopt rank 0's weights, optimizer state and step count. */
static int move_in(uni_strategy *strategy, uni_parameters *store, uni_optimizer *optimizer,
                   int source, uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    float *pages = uni_comm_buffer_data(fused->pages);
    bool adopt = strategy->rank != source;
    int64_t steps = uni_optimizer_iterations(optimizer);
    /* No rank may still copy out of the pages. */
    UNI_TRY(uni_comm_barrier(strategy->comm, err));
    if (!adopt) {
        UNI_TRY(uni__parameters_rehome(store, pages, false, err));
        UNI_TRY(uni__optimizer_rehome(optimizer, pages + fused->stride, fused->stride, false, err));
    }
    UNI_TRY(uni_comm_broadcast(strategy->comm, &steps, 1, UNI_I64, source, err));
    UNI_TRY(uni_comm_barrier(strategy->comm, err));
    if (adopt) {
        UNI_TRY(uni__parameters_rehome(store, pages, true, err));
        UNI_TRY(uni__optimizer_rehome(optimizer, pages + fused->stride, fused->stride, true, err));
        uni__optimizer_set_iterations(optimizer, steps);
    }
    return 0;
}

uni__span uni__fused_slice(const uni_strategy *strategy, int rank)
{
    const uni_parameters *store = uni_model_parameters(strategy->fused.model);
    size_t size = 0;
    uni_parameters_weights((uni_parameters *)(uintptr_t)store, &size);
    return slice_of(store, size, rank, strategy->size);
}

/* Another optimizer of the same size may clip differently. */
static int make_squares(uni__fused *fused, const uni_optimizer *optimizer, uni_error *err)
{
    free(fused->squares);
    fused->squares = NULL;
    fused->num_squares = uni__optimizer_num_squares(optimizer);
    if (fused->num_squares == 0)
        return 0;
    fused->squares = calloc(fused->num_squares, sizeof *fused->squares);
    return fused->squares
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for %zu norms", fused->num_squares);
}

int uni__fused_move(uni_strategy *strategy, uni_model *model, int source, uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    uni_parameters *store = uni_model_parameters(model);
    uni_optimizer *optimizer = uni_model_optimizer(model);
    size_t size = 0;
    uni_parameters_weights(store, &size);
    fused->on = false;
    if ((strategy->size < 2 && !strategy->elastic) || size == 0 || !optimizer)
        return 0;
    UNI_TRY(uni__optimizer_build(optimizer, store, err));
    if (uni__elastic_is_apart(strategy))
        return 0;
    UNI_TRY(make_pages(strategy, size, uni__optimizer_num_slots(optimizer), err));
    for (int rank = 0; rank < strategy->size; rank++)
        if (!(fused->parts[rank] = uni__comm_buffer_peer(fused->gradients, rank)))
            return 0; /* more than one host: weights stay on each rank */
    UNI_TRY(make_squares(fused, optimizer, err));
    fused->model = model;
    fused->slice = uni__fused_slice(strategy, strategy->rank);
    fused->on = true;
    fused->samples = strategy->planned_samples;
    fused->most_replicas = strategy->replicas;
    UNI_TRY(uni_comm_all_reduce(strategy->comm, &fused->most_replicas, &fused->most_replicas, 1,
                                UNI_I64, UNI_COMM_MAX, err));
    return move_in(strategy, store, optimizer, source, err);
}

int uni__fused_begin(uni_strategy *strategy, uni_model *model, uni_error *err)
{
    return uni__fused_move(strategy, model, 0, err);
}

int uni__fused_show(uni_strategy *strategy, const uni__trained *trained, uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    if (fused->moved != trained->gradients) {
        UNI_TRY(
            uni__gradients_rehome(trained->gradients, uni_comm_buffer_data(fused->gradients), err));
        fused->moved = trained->gradients;
    }
    uni__factors_show(strategy, trained);
    return 0;
}

static int sum_squares(uni_strategy *strategy, const uni__update *update, uni_error *err)
{
    const uni__fused *fused = &strategy->fused;
    memset(fused->squares, 0, fused->num_squares * sizeof *fused->squares);
    uni__update_squares(update, fused->slice, fused->squares);
    return uni_comm_all_reduce(strategy->comm, fused->squares, fused->squares, fused->num_squares,
                               UNI_F64, UNI_COMM_SUM, err);
}

int uni__fused_squares(const uni_strategy *strategy, const uni__update *update, uni_error *err)
{
    const uni__fused *fused = &strategy->fused;
    double *one = calloc(fused->num_squares, sizeof *one);
    if (!one)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %zu norms", fused->num_squares);
    memset(fused->squares, 0, fused->num_squares * sizeof *fused->squares);
    for (int rank = 0; rank < strategy->size; rank++) {
        memset(one, 0, fused->num_squares * sizeof *one);
        uni__update_squares(update, uni__fused_slice(strategy, rank), one);
        for (size_t i = 0; i < fused->num_squares; i++)
            fused->squares[i] += one[i];
    }
    free(one);
    return 0;
}

int uni__fused_update(uni_strategy *strategy, const uni__trained *trained, uni_error *err)
{
    const uni__fused *fused = &strategy->fused;
    uni__update update = { .optimizer = trained->optimizer,
                           .gradients = trained->gradients,
                           .parts = fused->parts,
                           .num_parts = strategy->size,
                           .squares = fused->squares,
                           .journal = uni__elastic_journal(strategy) };
    if (strategy->planned_samples == 0)
        strategy->fused.samples = trained->sums[1];
    UNI_TRY(uni__factors_update(strategy, &update, trained, err));
    uni__elastic_factored(strategy);
    if (fused->squares)
        UNI_TRY(sum_squares(strategy, &update, err));
    UNI_TRY(uni__update_begin(&update, uni__trained_samples(trained), err));
    uni__elastic_begun(strategy);
    uni__update_slice(&update, fused->slice);
    uni__elastic_finished(strategy);
    UNI_TRY(uni_comm_barrier(strategy->comm, err)); /* every slice is done */
    uni__update_commit(&update);
    uni__elastic_ended(strategy);
    return 0;
}

int uni__fused_end(uni_strategy *strategy, bool together, uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    if (!fused->on)
        return 0;
    int status = together ? uni_comm_barrier(strategy->comm, err) : 0;
    int home = uni__parameters_rehome(uni_model_parameters(fused->model), NULL, false, err);
    status = status < 0 ? status : home;
    home = uni__optimizer_rehome(uni_model_optimizer(fused->model), NULL, 0, false, err);
    status = status < 0 ? status : home;
    home = fused->moved ? uni__gradients_rehome(fused->moved, NULL, err) : 0;
    status = status < 0 ? status : home;
    fused->on = false;
    fused->model = NULL;
    fused->moved = NULL;
    return status;
}
