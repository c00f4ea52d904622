/*
 * fused.c - the fused step of fit on one host: weights and optimizer state live once, in pages that all ranks map, and each rank adds up and updates
 * its own slice.
 *
 *   backward into my own gradients, which all ranks see      all-reduce of the step's counts: now all gradients are there
 *   my slice of all of them, added up in rank order          the optimizer on my slice of the shared weights and state
 *   barrier: now the weights are the new ones
 *
 * Large dense kernels under plain descent have no gradients at all (factors.c).
 *
 * Two meetings a step; a rank reads b bytes of gradients and touches b/n of weights and state, so the update's work and memory shrink with
 * the number of ranks, and weights cannot drift apart. With clipping by norm every rank needs the whole sum: then the gradients are
 * summed everywhere, in place, and the update is still by slices. Slices are equal in trainable weights, whatever lies
 * frozen between them.
 *
 * Only while fit runs: before it the model is the caller's own on every rank, and afterwards again, whole. The thread of fit.
 */
#include <string.h>

#include "strategy/internal.h"

#define PAGE_FLOATS ((size_t)1024)
#define LINE_FLOATS ((size_t)16)

int uni__clips_by_norm(const uni_optimizer *optimizer, bool *out, uni_error *err)
{
    uni_value *config = NULL;
    UNI_TRY(uni_optimizer_get_config(optimizer, &config, err));
    *out = uni_dict_get_float(config, "clipnorm", 0) != 0 ||
           uni_dict_get_float(config, "global_clipnorm", 0) != 0;
    uni_value_free(config);
    return 0;
}

/* Where `wanted` trainable weights lie before it, at a line's border. */
static size_t place_of(const uni_parameters *store, size_t wanted, size_t size)
{
    uni_span spans[64];
    size_t count = uni_parameters_trainable(store, spans, 64);
    for (size_t i = 0; i < count && count <= 64; i++) {
        size_t here = spans[i].end - spans[i].begin;
        if (wanted <= here)
            return spans[i].begin + wanted / LINE_FLOATS * LINE_FLOATS;
        wanted -= here;
    }
    return wanted < size ? wanted / LINE_FLOATS * LINE_FLOATS : size;
}

static uni_span slice_of(const uni_parameters *store, size_t size, int rank, int ranks)
{
    uni_span spans[64];
    size_t count = uni_parameters_trainable(store, spans, 64), all = count > 64 ? size : 0;
    for (size_t i = 0; i < count && count <= 64; i++)
        all += spans[i].end - spans[i].begin;
    size_t begin = rank == 0 ? 0 : place_of(store, all * (size_t)rank / (size_t)ranks, size);
    size_t end =
        rank + 1 == ranks ? size : place_of(store, all * (size_t)(rank + 1) / (size_t)ranks, size);
    return (uni_span){ begin, end };
}

/* Pages for this size; those of the fit before when they fit. All ranks decide alike: sizes are equal. */
static int make_pages(uni_strategy *strategy, size_t size, size_t slots, uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    if (fused->pages && fused->size == size && fused->slots == slots)
        return 0;
    uni_comm_buffer_free(fused->pages);
    uni_comm_buffer_free(fused->gradients);
    uni_comm_buffer_free(fused->factors);
    *fused = (uni__fused){ .size = size, .slots = slots };
    fused->stride = (size + PAGE_FLOATS - 1) / PAGE_FLOATS * PAGE_FLOATS;
    UNI_TRY(uni_comm_alloc_shared(strategy->comm, fused->stride * (1 + slots) * sizeof(float),
                                  &fused->pages, err));
    return uni_comm_alloc(strategy->comm, size * sizeof(float), &fused->gradients, err);
}

/* Rank 0's weights, state and count of steps become those of all. */
static int move_in(uni_strategy *strategy, uni_parameters *store, uni_optimizer *optimizer,
                   uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    float *pages = uni_comm_buffer_data(fused->pages);
    bool adopt = strategy->rank != 0;
    int64_t steps = uni_optimizer_iterations(optimizer);
    UNI_TRY(uni_comm_barrier(strategy->comm, err)); /* nobody copies out of them any more */
    if (!adopt) {
        UNI_TRY(uni_parameters_rehome(store, pages, false, err));
        UNI_TRY(uni_optimizer_rehome(optimizer, pages + fused->stride, fused->stride, false, err));
    }
    UNI_TRY(uni_comm_broadcast(strategy->comm, &steps, 1, UNI_I64, 0, err));
    UNI_TRY(uni_comm_barrier(strategy->comm, err));
    if (adopt) {
        UNI_TRY(uni_parameters_rehome(store, pages, true, err));
        UNI_TRY(uni_optimizer_rehome(optimizer, pages + fused->stride, fused->stride, true, err));
        uni_optimizer_set_iterations(optimizer, steps);
    }
    return 0;
}

int uni__fused_begin(uni_strategy *strategy, uni_model *model, uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    uni_parameters *store = uni_model_parameters(model);
    uni_optimizer *optimizer = uni_model_optimizer(model);
    size_t size = 0;
    uni_parameters_weights(store, &size);
    fused->on = false;
    if (strategy->size < 2 || size == 0 || !optimizer)
        return 0;
    UNI_TRY(uni_optimizer_build(optimizer, store, err));
    UNI_TRY(make_pages(strategy, size, uni_optimizer_num_slots(optimizer), err));
    for (int rank = 0; rank < strategy->size; rank++)
        if (!uni_comm_buffer_peer(fused->gradients, rank))
            return 0; /* more than one host: weights stay on each rank */
    UNI_TRY(uni__clips_by_norm(optimizer, &fused->whole, err));
    fused->slice = slice_of(store, size, strategy->rank, strategy->size);
    fused->model = model;
    fused->on = true;
    fused->most_replicas = strategy->replicas;
    UNI_TRY(uni_comm_all_reduce(strategy->comm, &fused->most_replicas, &fused->most_replicas, 1,
                                UNI_I64, UNI_COMM_MAX, err));
    return move_in(strategy, store, optimizer, err);
}

int uni__fused_adopt(uni_strategy *strategy, uni_gradients *gradients, uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    if (fused->moved == gradients)
        return 0;
    UNI_TRY(uni_gradients_rehome(gradients, uni_comm_buffer_data(fused->gradients), err));
    fused->moved = gradients;
    return 0;
}

int uni__fused_sum(uni_strategy *strategy, uni_span piece, uni_error *err)
{
    return uni_comm_buffer_sum(strategy->fused.gradients, piece.begin, piece.end, UNI_F32, err);
}

int uni__fused_end(uni_strategy *strategy, bool together, uni_error *err)
{
    uni__fused *fused = &strategy->fused;
    if (!fused->on)
        return 0;
    int status = together ? uni_comm_barrier(strategy->comm, err) : 0;
    int home = uni_parameters_rehome(uni_model_parameters(fused->model), NULL, false, err);
    status = status < 0 ? status : home;
    home = uni_optimizer_rehome(uni_model_optimizer(fused->model), NULL, 0, false, err);
    status = status < 0 ? status : home;
    home = fused->moved ? uni_gradients_rehome(fused->moved, NULL, err) : 0;
    status = status < 0 ? status : home;
    fused->on = false;
    fused->model = NULL;
    fused->moved = NULL;
    return status;
}
