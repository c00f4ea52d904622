/* elastic.c - see elastic.h. */
#include "strategy/elastic.h"

#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "comm/shared.h"
#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/log.h"

#define DEATHS_IN_A_ROW 100 /* of new ranks, before the group gives up */

/* A rank's line. Counts follow. */
typedef struct line {
    _Atomic uint64_t shown; /* the step; 0: none */
    uint64_t reserved[7];
    uni__update_journal journal;
} line;

/* What a communicator had when it failed: read until all have met over the next one. */
typedef struct remains {
    uni_comm *comm;
    uni_comm_buffer *lines;
    uni__fused fused;
} remains;

struct uni__elastic {
    const uni__membership_vtable *vtable;
    void *context;
    uint32_t number;
    bool joins; /* until it has joined */
    bool moves; /* the weights are in the new pages, or on their way there */
    bool owes; /* new ranks wait to be told where fit stands */
    int source; /* that tells them */
    uint64_t seed; /* of fit */
    uni_comm_buffer *lines; /* of the present communicator; made by the first step */
    /* The step under way, from when it is shown until it ends. */
    bool shown;
    uint64_t step;
    uni__trained trained;
    bool begun; /* the optimizer has counted it */
    remains old;
};

int uni__strategy_set_membership(uni_strategy *strategy, const uni__membership_vtable *vtable,
                                 void *context, uint32_t number, bool joins, uni_error *err)
{
    /* Communicators come and go, so they must not be the caller's. */
    if (strategy->kind != UNI__STRATEGY_MULTI_WORKER || strategy->elastic || !strategy->owns_comm)
        return uni_error_set(err, UNI_EINVAL,
                             "only a multi_worker strategy that owns its communicator can be "
                             "elastic, and only once");
    uni__elastic *elastic = calloc(1, sizeof *elastic);
    if (!elastic)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a strategy");
    *elastic =
        (uni__elastic){ .vtable = vtable, .context = context, .number = number, .joins = joins };
    strategy->elastic = elastic;
    strategy->updater.recover = uni__elastic_recover;
    return 0;
}

static void let_go(remains *old)
{
    uni_comm_buffer_free(old->lines);
    uni__fused_free(&old->fused);
    uni_comm_close(old->comm);
    *old = (remains){ 0 };
}

void uni__elastic_free(uni_strategy *strategy)
{
    uni__elastic *elastic = strategy->elastic;
    if (!elastic)
        return;
    uni_comm_buffer_free(elastic->lines);
    let_go(&elastic->old);
    free(elastic);
    strategy->elastic = NULL;
}

/* ---- during a step ---- */

static double *counts_of(line *of)
{
    return (double *)(of + 1);
}

static int make_lines(uni_strategy *strategy, size_t num_counts, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    if (elastic->lines)
        return 0;
    return uni_comm_alloc(&elastic->lines, strategy->comm,
                          sizeof(line) + num_counts * sizeof(double), err);
}

int uni__elastic_show(uni_strategy *strategy, const uni__trained *trained, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    elastic->step = (uint64_t)uni_optimizer_iterations(trained->optimizer) + 1;
    elastic->trained = *trained;
    elastic->begun = false;
    elastic->shown = true;
    UNI_TRY(make_lines(strategy, trained->num_sums, err));
    line *mine = uni_comm_buffer_data(elastic->lines);
    memcpy(counts_of(mine), trained->sums, trained->num_sums * sizeof *trained->sums);
    atomic_store_explicit(&mine->shown, elastic->step, memory_order_release);
    return 0;
}

uni__update_journal *uni__elastic_journal(const uni_strategy *strategy)
{
    const uni__elastic *elastic = strategy->elastic;
    return elastic ? &((line *)uni_comm_buffer_data(elastic->lines))->journal : NULL;
}

void uni__elastic_begun(uni_strategy *strategy)
{
    if (strategy->elastic)
        strategy->elastic->begun = true;
}

void uni__elastic_ended(uni_strategy *strategy)
{
    if (strategy->elastic)
        strategy->elastic->shown = false;
}

/* A pass that failed before it had anything to show is of the step that would have come. */
static void find_step(uni_strategy *strategy)
{
    uni__elastic *elastic = strategy->elastic;
    uni_optimizer *optimizer = uni_model_optimizer(strategy->fused.model);
    if (elastic->shown)
        return;
    elastic->step = (uint64_t)uni_optimizer_iterations(optimizer) + 1;
    elastic->trained = (uni__trained){ .optimizer = optimizer };
    elastic->begun = false;
}

/* ---- after a death ---- */

static line *old_line(const uni_strategy *strategy, int rank)
{
    return uni__comm_buffer_peer(strategy->elastic->old.lines, rank);
}

/* Every rank has shown this step, the dead ones too. */
static bool is_decided(const uni_strategy *strategy)
{
    const uni__elastic *elastic = strategy->elastic;
    bool decided = elastic->old.lines != NULL && elastic->step > 0;
    for (int rank = 0; decided && rank < strategy->size; rank++)
        decided = atomic_load_explicit(&old_line(strategy, rank)->shown, memory_order_acquire) ==
                  elastic->step;
    return decided;
}

/* Every slice of the step, as far as it is not done: this rank's own, and at the source those of
 * dead ranks. Counts are added up as the communicator would have. */
static int complete(uni_strategy *strategy, const int64_t *is_new, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    const uni__fused *old = &elastic->old.fused;
    uni__trained *trained = &elastic->trained;
    memset(trained->sums, 0, trained->num_sums * sizeof *trained->sums);
    for (int rank = 0; rank < strategy->size; rank++)
        for (size_t i = 0; i < trained->num_sums; i++)
            trained->sums[i] += counts_of(old_line(strategy, rank))[i];
    uni__update update = { .optimizer = trained->optimizer,
                           .gradients = trained->gradients,
                           .parts = old->parts,
                           .num_parts = strategy->size };
    if (!elastic->begun)
        UNI_TRY(uni__update_begin(&update, uni__trained_samples(trained), err));
    elastic->begun = true;
    for (int rank = 0; rank < strategy->size; rank++)
        if (rank == strategy->rank || (strategy->rank == elastic->source && is_new[2 * rank])) {
            update.journal = &old_line(strategy, rank)->journal;
            uni__update_slice(&update, uni__fused_slice(strategy, rank));
        }
    return 0;
}

static int move_gradients_out(uni_strategy *strategy, uni_error *err)
{
    uni_gradients *moved = strategy->fused.moved;
    strategy->fused.moved = NULL;
    return moved ? uni__gradients_rehome(moved, NULL, err) : 0;
}

/* Out of pages that are about to go. Ranks move in only when every slice is done, so the weights
 * are whole, wherever they are. */
static int move_out(uni_strategy *strategy, uni_error *err)
{
    uni_model *model = strategy->fused.model;
    UNI_TRY(move_gradients_out(strategy, err));
    UNI_TRY(uni__parameters_rehome(uni_model_parameters(model), NULL, false, err));
    return uni__optimizer_rehome(uni_model_optimizer(model), NULL, 0, false, err);
}

/* The group meets again. What the last communicator had stays until it is read. */
static int meet_again(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    uni_comm *comm = NULL;
    UNI_TRY(elastic->vtable->meet(elastic->context, elastic->number, &comm, &elastic->number, err));
    if (elastic->old.comm) { /* a rank died before all was done: the first remains count */
        if (elastic->moves)
            UNI_TRY(move_out(strategy, err));
        elastic->moves = false;
        uni_comm_buffer_free(elastic->lines);
        uni__fused_free(&strategy->fused);
        uni_comm_close(strategy->comm);
    } else {
        elastic->old =
            (remains){ .comm = strategy->comm, .lines = elastic->lines, .fused = strategy->fused };
    }
    bool on = strategy->fused.on;
    uni_model *model = strategy->fused.model;
    strategy->fused = (uni__fused){ .on = on, .model = model, .moved = elastic->old.fused.moved };
    elastic->lines = NULL;
    strategy->comm = comm;
    return 0;
}

/* 1 and 2 of elastic.h. info: [rank][is new, step]. */
static int agree(uni_strategy *strategy, int64_t *info, bool *decided, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    int64_t mine[2] = { elastic->joins, elastic->joins ? 0 : (int64_t)elastic->step }, word = 0;
    UNI_TRY(uni_comm_all_gather(strategy->comm, mine, info, 2, UNI_I64, err));
    elastic->source = -1;
    for (int rank = 0; rank < strategy->size; rank++)
        if (!info[2 * rank] &&
            (elastic->source < 0 || info[2 * rank + 1] > info[2 * elastic->source + 1]))
            elastic->source = rank;
    if (elastic->source < 0)
        return uni_error_set(err, UNI_ESTATE,
                             "all ranks of the group are new: nothing is left to join");
    if (strategy->rank == elastic->source)
        word = is_decided(strategy);
    UNI_TRY(uni_comm_broadcast(strategy->comm, &word, 1, UNI_I64, elastic->source, err));
    *decided = word != 0;
    return 0;
}

static int settle(uni_strategy *strategy, int64_t *info, int *how, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    bool decided = false;
    UNI_TRY(agree(strategy, info, &decided, err));
    bool behind = elastic->step < (uint64_t)info[2 * elastic->source + 1];
    if (decided && !behind)
        UNI_TRY(complete(strategy, info, err));
    UNI_TRY(uni_comm_barrier(strategy->comm, err)); /* every slice is done */
    if (decided || behind)
        uni__update_commit(&(uni__update){ .optimizer = elastic->trained.optimizer });
    UNI_TRY(move_gradients_out(strategy, err));
    elastic->moves = true;
    UNI_TRY(uni__fused_move(strategy, strategy->fused.model, elastic->source, err));
    elastic->owes = decided;
    if (!decided)
        UNI_TRY(uni__elastic_tell(strategy, err));
    *how = decided || behind ? 0 : UNI__STEP_REPEAT;
    return 0;
}

static bool can_recover(const uni_strategy *strategy, int status)
{
    const uni__fused *fused = &strategy->fused;
    return status == UNI_EWORKER && fused->on && !fused->whole && !strategy->elastic->joins;
}

int uni__elastic_recover(void *context, int status, uni_error *err)
{
    uni_strategy *strategy = context;
    uni__elastic *elastic = strategy->elastic;
    int how = 0;
    if (!can_recover(strategy, status))
        return status;
    uni__warn("%s; waiting for another worker in its place", err ? err->message : "a rank died");
    find_step(strategy);
    int64_t *info = calloc((size_t)strategy->size * 2, sizeof *info);
    if (!info)
        return uni_error_set(err, UNI_ENOMEM, "no memory to meet %d ranks", strategy->size);
    for (int tries = 0; status == UNI_EWORKER && tries < DEATHS_IN_A_ROW; tries++) {
        status = meet_again(strategy, err);
        if (status == 0)
            status = settle(strategy, info, &how, err);
    }
    free(info);
    if (status < 0) {
        uni_error aside = { 0 };
        (void)!move_out(strategy, &aside); /* the model outlives the pages */
        return status;
    }
    let_go(&elastic->old);
    elastic->shown = elastic->moves = false;
    if (err)
        *err = (uni_error){ 0 };
    return how;
}

/* ---- where fit stands ---- */

static int tell(uni_strategy *strategy, bool repeat, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    const uni_model *model = strategy->fused.model;
    uni_value *state = NULL;
    void *bytes = NULL;
    size_t size = 0;
    UNI_TRY(uni__fit_state_to_join(model, repeat, &state, err));
    int status = uni__msgpack_write(&bytes, &size, state, err);
    int64_t head[2] = { (int64_t)size, (int64_t)elastic->seed };
    if (status == 0)
        status = uni_comm_broadcast(strategy->comm, head, 2, UNI_I64, strategy->rank, err);
    if (status == 0)
        status = uni_comm_broadcast(strategy->comm, bytes, size, UNI_U8, strategy->rank, err);
    uni_value_free(state);
    free(bytes);
    return status;
}

/* bytes: malloc'ed, the state as msgpack. */
static int listen(uni_strategy *strategy, void **bytes, int64_t head[2], uni_error *err)
{
    int source = strategy->elastic->source;
    UNI_TRY(uni_comm_broadcast(strategy->comm, head, 2, UNI_I64, source, err));
    *bytes = head[0] > 0 ? malloc((size_t)head[0]) : NULL;
    if (!*bytes)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a fit (%lld bytes)",
                             (long long)head[0]);
    return uni_comm_broadcast(strategy->comm, *bytes, (size_t)head[0], UNI_U8, source, err);
}

int uni__elastic_tell(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    bool repeat = !elastic->owes;
    int64_t head[2];
    void *bytes = NULL;
    elastic->owes = false;
    int status = strategy->rank == elastic->source ? tell(strategy, repeat, err)
                                                   : listen(strategy, &bytes, head, err);
    free(bytes); /* survivors know it */
    return status;
}

bool uni__elastic_joins(const uni_strategy *strategy)
{
    return strategy->elastic && strategy->elastic->joins;
}

bool uni__elastic_owes(const uni_strategy *strategy)
{
    return strategy->elastic && strategy->elastic->owes;
}

void uni__elastic_set_seed(uni_strategy *strategy, uint64_t seed)
{
    if (strategy->elastic)
        strategy->elastic->seed = seed;
}

int uni__elastic_join(uni_strategy *strategy, uni_model *model, uint64_t *seed, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    bool decided = false;
    int64_t head[2] = { 0 };
    void *bytes = NULL;
    uni_value *state = NULL;
    int64_t *info = calloc((size_t)strategy->size * 2, sizeof *info);
    if (!info)
        return uni_error_set(err, UNI_ENOMEM, "no memory to meet %d ranks", strategy->size);
    int status = agree(strategy, info, &decided, err);
    free(info);
    UNI_TRY(status);
    UNI_TRY(uni_comm_barrier(strategy->comm, err));
    UNI_TRY(uni__fused_move(strategy, model, elastic->source, err));
    status = listen(strategy, &bytes, head, err);
    if (status == 0)
        status = uni__msgpack_read(&state, bytes, (size_t)head[0], err);
    if (status == 0)
        status = uni__fit_join(model, state, err);
    uni_value_free(state);
    free(bytes);
    *seed = elastic->seed = (uint64_t)head[1];
    elastic->joins = false;
    return status;
}
