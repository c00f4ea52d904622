/*
 * meeting.c - after a death: the group meets over a new communicator, agrees on the step, completes
 * it from what is left of the old one, and lets new ranks join.
 */
#include "strategy/elastic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/shared.h"
#include "comm/shared.h"
#include "nn/shared.h"
#include "tensor/shared.h"

#define DEATHS_IN_A_ROW 100 /* of new ranks, before the group gives up */

void uni__elastic_let_go(uni__elastic_remains *old)
{
    uni_comm_buffer_free(old->lines);
    uni__fused_free(&old->fused);
    uni_comm_close(old->comm);
    free(old->lives);
    free(old->slots);
    *old = (uni__elastic_remains){ 0 };
}

static uni__elastic_line *line_of(const uni_strategy *strategy, int old_rank)
{
    return uni__comm_buffer_peer(strategy->elastic->old.lines, old_rank);
}

uni__biography *uni__elastic_life_left(const uni_strategy *strategy, int64_t slot)
{
    const uni__elastic_remains *old = &strategy->elastic->old;
    for (int rank = 0; rank < old->size; rank++)
        if (old->slots[rank] == slot)
            return old->lives ? &old->lives[rank] : &line_of(strategy, rank)->life;
    return NULL;
}

/* That rank of the communicator that failed has not come to this meeting. */
static bool is_gone(const uni_strategy *strategy, const int64_t *info, int old_rank)
{
    int slot = strategy->elastic->old.slots[old_rank];
    for (int rank = 0; rank < strategy->size; rank++, info += UNI__ELASTIC_ROW)
        if (info[UNI__ROW_SLOT] == slot)
            return info[UNI__ROW_IS_NEW] != 0;
    return true;
}

/* A pass that failed before it had anything to show is of the step that would have come. */
static void find_step(uni_strategy *strategy)
{
    uni__elastic *elastic = strategy->elastic;
    uni_optimizer *optimizer = uni_model_optimizer(strategy->elastic->model);
    if (elastic->shown)
        return;
    elastic->step = (uint64_t)uni_optimizer_iterations(optimizer) + 1;
    elastic->trained = (uni__trained){ .optimizer = optimizer };
    elastic->begun = false;
}

/* ---- the step under way ---- */

/* Every rank has shown this step, the dead ones too. */
static bool is_decided(const uni_strategy *strategy)
{
    const uni__elastic *elastic = strategy->elastic;
    bool decided = elastic->old.lines != NULL && elastic->step > 0; /* never over hosts */
    for (int rank = 0; decided && rank < elastic->old.size; rank++)
        decided = atomic_load_explicit(&line_of(strategy, rank)->shown, memory_order_acquire) ==
                  elastic->step;
    return decided;
}

/* A rank that was updating a kernel by factors has changed some rows of it: only it had all of its
 * factors, and there is no journal. */
static int check_factored(const uni_strategy *strategy, const int64_t *info, uni_error *err)
{
    const uni__elastic *elastic = strategy->elastic;
    for (int rank = 0; rank < elastic->old.size; rank++) {
        const uni__biography *life = &line_of(strategy, rank)->life;
        if (life->factored == elastic->step && life->finished != elastic->step &&
            is_gone(strategy, info, rank))
            return uni_error_set(err, UNI_ESTATE,
                                 "rank %d died while it updated a kernel, which only it could end",
                                 elastic->old.slots[rank]);
    }
    return 0;
}

/* What the functions of a step see: the pages of the communicator that failed, and this rank in
 * it. */
static void swap_with_old(uni_strategy *strategy)
{
    uni__elastic_remains *old = &strategy->elastic->old;
    uni__elastic_remains now = { .rank = strategy->rank,
                                 .size = strategy->size,
                                 .fused = strategy->fused };
    strategy->rank = old->rank;
    strategy->size = old->size;
    strategy->fused = old->fused;
    old->rank = now.rank;
    old->size = now.size;
    old->fused = now.fused;
}

/* Slices of the step, as far as they are not done: this rank's own and, where *gone says so, those
 * of ranks that died. The strategy is as it was. */
static int complete_slices(uni_strategy *strategy, const bool *gone, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    const uni__trained *trained = &elastic->trained;
    uni__update update = { .optimizer = trained->optimizer,
                           .gradients = trained->gradients,
                           .parts = strategy->fused.parts,
                           .num_parts = strategy->size,
                           .squares = strategy->fused.squares };
    /* This rank's own rows of kernels, from the factors that the others showed. */
    if (!elastic->factored && !uni__factors_are_shown(strategy, trained))
        return uni_error_set(err, UNI_ESTATE, "a rank died before it had shown its factors");
    if (!elastic->factored)
        UNI_TRY(uni__factors_update(strategy, &update, trained, err));
    elastic->factored = true;
    if (!elastic->begun && update.squares)
        UNI_TRY(uni__fused_squares(strategy, &update, err));
    if (!elastic->begun)
        UNI_TRY(uni__update_begin(&update, uni__trained_samples(trained), err));
    elastic->begun = true;
    for (int rank = 0; rank < strategy->size; rank++)
        if (rank == strategy->rank || gone[rank]) {
            update.journal = &line_of(strategy, rank)->journal;
            uni__update_slice(&update, uni__fused_slice(strategy, rank));
        }
    return 0;
}

/* At the source with the slices of dead ranks. Counts are added up as the communicator would
 * have. */
static int complete(uni_strategy *strategy, const int64_t *info, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    const uni__elastic_remains *old = &elastic->old;
    uni__trained *trained = &elastic->trained;
    bool *gone = calloc((size_t)old->size, sizeof *gone);
    if (!gone)
        return uni_error_set(err, UNI_ENOMEM, "no memory to meet %d ranks", old->size);
    memset(trained->sums, 0, trained->num_sums * sizeof *trained->sums);
    for (int rank = 0; rank < old->size; rank++) {
        for (size_t i = 0; i < trained->num_sums; i++)
            trained->sums[i] += uni__elastic_counts(line_of(strategy, rank))[i];
        gone[rank] = strategy->rank == elastic->source && is_gone(strategy, info, rank);
    }
    swap_with_old(strategy);
    int status = complete_slices(strategy, gone, err);
    swap_with_old(strategy);
    free(gone);
    return status;
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
    uni_model *model = strategy->elastic->model;
    UNI_TRY(move_gradients_out(strategy, err));
    UNI_TRY(uni__parameters_rehome(uni_model_parameters(model), NULL, false, err));
    return uni__optimizer_rehome(uni_model_optimizer(model), NULL, 0, false, err);
}

/* This rank is one of these now. */
static void enter_group(uni_strategy *strategy, uni_comm *comm, int *slots)
{
    strategy->comm = comm;
    strategy->rank = strategy->updater.index = uni_comm_info_of(comm)->rank;
    strategy->size = strategy->updater.count = uni_comm_info_of(comm)->size;
    strategy->elastic->slots = slots;
}

/* Nothing of the last communicator is read but what was gathered: it ends before the next one
 * begins, so that no rank waits for this one there. */
static int meet_again_apart(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    uni_comm *comm = NULL;
    int *slots = NULL;
    uni_comm_close(strategy->comm);
    strategy->comm = NULL;
    UNI_TRY(elastic->vtable->meet(elastic->context, elastic->number, &comm, &slots,
                                  &elastic->number, err));
    if (!elastic->old.slots) {
        elastic->old = (uni__elastic_remains){ .rank = strategy->rank,
                                               .size = strategy->size,
                                               .slots = elastic->slots,
                                               .lives = elastic->lives };
    } else { /* a rank died before all was done: the first remains count */
        free(elastic->slots);
        free(elastic->lives);
    }
    elastic->lives = NULL;
    enter_group(strategy, comm, slots);
    return 0;
}

/* The group meets again. What the last communicator had stays until it is read. */
static int meet_again(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    uni_comm *comm = NULL;
    int *slots = NULL;
    uint32_t before = elastic->number;
    UNI_TRY(elastic->vtable->meet(elastic->context, before, &comm, &slots, &elastic->number, err));
    if (elastic->old.slots) { /* a rank died before all was done: the first remains count */
        if (elastic->moves)
            UNI_TRY(move_out(strategy, err));
        elastic->moved_out |= elastic->moves;
        elastic->moves = false;
        uni_comm_buffer_free(elastic->lines);
        uni__fused_free(&strategy->fused);
        uni_comm_close(strategy->comm);
        free(elastic->slots);
    } else {
        elastic->old = (uni__elastic_remains){ .comm = strategy->comm,
                                               .number = before,
                                               .rank = strategy->rank,
                                               .size = strategy->size,
                                               .slots = elastic->slots,
                                               .lines = elastic->lines,
                                               .fused = strategy->fused };
    }
    strategy->fused =
        (uni__fused){ .on = true, .model = elastic->model, .moved = elastic->old.fused.moved };
    elastic->lines = NULL;
    enter_group(strategy, comm, slots);
    return 0;
}

/* ---- meeting ---- */

/* Row b is farther than row a. */
static bool is_farther(const int64_t *a, const int64_t *b)
{
    return b[UNI__ROW_STEP] != a[UNI__ROW_STEP] ? b[UNI__ROW_STEP] > a[UNI__ROW_STEP]
                                                : b[UNI__ROW_PLACE] > a[UNI__ROW_PLACE];
}

/* 1 and 2 of elastic.h. *out, malloc'ed: a row of every rank. */
static int agree(uni_strategy *strategy, int64_t **out, bool *decided, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    int64_t words[3] = { 0 }, mine[UNI__ELASTIC_ROW] = {
        [UNI__ROW_IS_NEW] = elastic->joins,
        [UNI__ROW_STEP] = elastic->joins ? 0 : (int64_t)elastic->step,
        [UNI__ROW_PLACE] = elastic->joins ? 0 : elastic->place,
        [UNI__ROW_SLOT] = elastic->slots[strategy->rank],
        [UNI__ROW_PAGES] = elastic->joins || elastic->moved_out ? -1 : (int64_t)elastic->old.number,
    };
    int64_t *info = calloc((size_t)strategy->size * UNI__ELASTIC_ROW, sizeof *info);
    *out = info;
    if (!info)
        return uni_error_set(err, UNI_ENOMEM, "no memory to meet %d ranks", strategy->size);
    UNI_TRY(uni_comm_all_gather(strategy->comm, mine, info, UNI__ELASTIC_ROW, UNI_I64, err));
    elastic->source = -1;
    for (int rank = 0; rank < strategy->size; rank++)
        if (!info[UNI__ELASTIC_ROW * rank + UNI__ROW_IS_NEW] &&
            (elastic->source < 0 ||
             is_farther(&info[UNI__ELASTIC_ROW * elastic->source], &info[UNI__ELASTIC_ROW * rank])))
            elastic->source = rank;
    if (elastic->source < 0)
        return uni_error_set(err, UNI_ESTATE,
                             "all ranks of the group are new: nothing is left to join");
    if (strategy->rank == elastic->source) {
        words[0] = is_decided(strategy);
        words[1] = (int64_t)elastic->num_counts;
        memcpy(&words[2], &elastic->samples, sizeof elastic->samples);
    }
    if (words[0])
        UNI_TRY(check_factored(strategy, info, err));
    UNI_TRY(uni_comm_broadcast(strategy->comm, words, 3, UNI_I64, elastic->source, err));
    *decided = words[0] != 0;
    elastic->num_counts = (size_t)words[1];
    memcpy(&elastic->samples, &words[2], sizeof elastic->samples);
    return uni__elastic_share_fits(strategy, info, err);
}

/* What is known of this rank; at the source, of those that died, too. A rank that is new without a
 * predecessor begins with what the source has done. */
static void carry_lives(const uni_strategy *strategy, const int64_t *info)
{
    const uni__elastic *elastic = strategy->elastic;
    const uni__elastic_line *own = line_of(strategy, elastic->old.rank);
    for (int rank = 0; rank < strategy->size; rank++) {
        const int64_t *row = &info[UNI__ELASTIC_ROW * rank];
        uni__elastic_line *to = uni__comm_buffer_peer(elastic->lines, rank);
        const uni__biography *from = uni__elastic_life_left(strategy, row[UNI__ROW_SLOT]);
        if (rank == strategy->rank)
            to->life = own->life;
        else if (strategy->rank == elastic->source && row[UNI__ROW_IS_NEW])
            to->life = from ? *from : own->life;
    }
}

bool uni__elastic_is_resized(const uni_strategy *strategy)
{
    const uni__elastic_remains *old = &strategy->elastic->old;
    return strategy->rank != old->rank || strategy->size != old->size;
}

/* ---- pages: kept, or new ones ---- */

/* All ranks have the weights in the same pages: only some left. */
static bool can_keep(const uni_strategy *strategy, const int64_t *info)
{
    bool same = info[UNI__ROW_PAGES] >= 0;
    for (int rank = 0; rank < strategy->size; rank++)
        same &= info[UNI__ELASTIC_ROW * rank + UNI__ROW_PAGES] == info[UNI__ROW_PAGES];
    return same;
}

/* The gradients of those that are there, in their order. */
static int choose_parts(const uni_strategy *strategy, const float ***out, uni_error *err)
{
    const uni__elastic_remains *old = &strategy->elastic->old;
    const float **parts = calloc((size_t)strategy->size, sizeof *parts);
    *out = parts;
    if (!parts)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d ranks", strategy->size);
    for (int rank = 0; rank < strategy->size; rank++)
        for (int before = 0; before < old->size; before++)
            if (old->slots[before] == strategy->elastic->slots[rank])
                parts[rank] = old->fused.parts[before];
    return 0;
}

/* After all that can fail. The pages' communicator stays with them. */
static void keep_pages(uni_strategy *strategy, const float **parts)
{
    uni__elastic_remains *old = &strategy->elastic->old;
    uni__fused kept = old->fused;
    uni_comm_buffer_free(kept.factors);
    free(kept.parts);
    kept.parts = parts;
    kept.factors = NULL;
    kept.factor_floats = 0;
    if (!kept.home) {
        kept.home = old->comm;
        old->comm = NULL;
    }
    old->fused = (uni__fused){ 0 };
    strategy->fused = kept;
    strategy->fused.slice = uni__fused_slice(strategy, strategy->rank);
}

/* All count the same steps; new pages come with the source's count. */
static int agree_on_count(uni_strategy *strategy, uni_error *err)
{
    uni_optimizer *optimizer = uni_model_optimizer(strategy->elastic->model);
    int64_t steps = uni_optimizer_iterations(optimizer);
    UNI_TRY(uni_comm_broadcast(strategy->comm, &steps, 1, UNI_I64, strategy->elastic->source, err));
    uni__optimizer_set_iterations(optimizer, steps);
    return 0;
}

static int move_to_new_pages(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    UNI_TRY(move_gradients_out(strategy, err));
    elastic->moves = true;
    UNI_TRY(uni__fused_move(strategy, elastic->model, elastic->source, err));
    strategy->fused.samples = elastic->samples;
    return 0;
}

/* ---- what follows ---- */

/* 3 and 4 of elastic.h. */
static int tell_all(uni_strategy *strategy, const int64_t *info, bool decided, uni_error *err)
{
    UNI_TRY(uni__elastic_make_lines(strategy, err));
    carry_lives(strategy, info);
    return strategy->rank == strategy->elastic->source
               ? uni__elastic_tell(strategy, info, decided, err)
               : uni__elastic_hear(strategy, NULL, err);
}

static int settle_with(uni_strategy *strategy, const int64_t *info, bool decided, int *how,
                       uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    bool in_step = elastic->place == UNI__IN_STEP;
    bool behind =
        elastic->step < (uint64_t)info[UNI__ELASTIC_ROW * elastic->source + UNI__ROW_STEP];
    if (decided && !behind)
        UNI_TRY(complete(strategy, info, err));
    UNI_TRY(uni_comm_barrier(strategy->comm, err)); /* every slice is done */
    if (in_step && (decided || behind))
        uni__update_commit(&(uni__update){ .optimizer = elastic->trained.optimizer });
    const float **parts = NULL;
    bool keeps = can_keep(strategy, info);
    int status = keeps ? choose_parts(strategy, &parts, err) : move_to_new_pages(strategy, err);
    if (status == 0 && keeps)
        status = agree_on_count(strategy, err);
    if (status == 0)
        status = tell_all(strategy, info, decided, err);
    if (status < 0) {
        free(parts);
        return status;
    }
    if (keeps)
        keep_pages(strategy, parts);
    bool repeats = !in_step || (!decided && !behind);
    *how = repeats ? uni__elastic_is_resized(strategy) ? UNI__STEP_RECUT : UNI__STEP_REPEAT : 0;
    return 0;
}

static int settle(uni_strategy *strategy, int *how, uni_error *err)
{
    int64_t *info = NULL;
    bool decided = false;
    int status = agree(strategy, &info, &decided, err);
    if (status == 0)
        status = strategy->elastic->apart ? uni__elastic_settle_apart(strategy, info, how, err)
                                          : settle_with(strategy, info, decided, how, err);
    free(info);
    return status;
}

int uni__elastic_regroup(uni_strategy *strategy, int *how, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    int status = UNI_EWORKER;
    if (err && err->message[0]) /* otherwise this rank saw the change between two steps */
        uni__warn("%s; waiting for the next group", err->message);
    find_step(strategy);
    elastic->samples = strategy->fused.samples;
    for (int tries = 0; uni__elastic_is_loss(status) && tries < DEATHS_IN_A_ROW; tries++) {
        status = elastic->apart ? meet_again_apart(strategy, err) : meet_again(strategy, err);
        if (status == 0)
            status = settle(strategy, how, err);
    }
    if (status < 0) {
        uni_error aside = { 0 };
        if (!elastic->apart)
            (void)!move_out(strategy, &aside); /* the model outlives the pages */
        return status;
    }
    uni__parts_resize(strategy);
    uni__elastic_let_go(&elastic->old);
    elastic->shown = elastic->moves = elastic->moved_out = false;
    elastic->compares = true;
    if (err)
        *err = (uni_error){ 0 };
    return 0;
}

int uni__elastic_recover(void *context, int status, uni_error *err)
{
    uni_strategy *strategy = context;
    int how = 0;
    if (!uni__elastic_is_loss(status) || !uni__elastic_is_active(strategy))
        return status;
    strategy->elastic->place = UNI__IN_STEP;
    UNI_TRY(uni__elastic_regroup(strategy, &how, err));
    return how;
}

/* ---- joining ---- */

bool uni__elastic_joins(const uni_strategy *strategy)
{
    return strategy->elastic && strategy->elastic->joins;
}

void uni__elastic_set_seed(uni_strategy *strategy, uint64_t seed)
{
    if (strategy->elastic)
        strategy->elastic->seed = seed;
}

static int join(uni_strategy *strategy, uni_model *model, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    int64_t *info = NULL;
    bool decided = false;
    bool apart = elastic->apart;
    int status = elastic->fit_of_others ? 0 : agree(strategy, &info, &decided, err);
    if (status == 0 && apart)
        status = uni__elastic_join_apart(strategy, model, info, err);
    free(info);
    if (status < 0 || apart)
        return status;
    if (elastic->fit < elastic->fit_of_others)
        return UNI__FIT_IS_OVER; /* the others wait in the barrier */
    UNI_TRY(uni_comm_barrier(strategy->comm, err));
    UNI_TRY(uni__fused_move(strategy, model, strategy->elastic->source, err));
    strategy->fused.samples = strategy->elastic->samples;
    UNI_TRY(uni__elastic_make_lines(strategy, err));
    return uni__elastic_hear(strategy, model, err);
}

static int meet_first(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    uni_comm *comm = NULL;
    int *slots = NULL;
    UNI_TRY(elastic->vtable->meet(elastic->context, elastic->number, &comm, &slots,
                                  &elastic->number, err));
    enter_group(strategy, comm, slots);
    return 0;
}

/* Another rank died before this one had joined: the next group is entered as the first one was. */
static int leave(uni_strategy *strategy, uni_model *model, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    UNI_TRY(uni__parameters_rehome(uni_model_parameters(model), NULL, false, err));
    UNI_TRY(uni__optimizer_rehome(uni_model_optimizer(model), NULL, 0, false, err));
    uni__fused_free(&strategy->fused);
    strategy->fused = (uni__fused){ 0 };
    uni_comm_buffer_free(elastic->lines);
    elastic->lines = NULL;
    free(elastic->lives);
    elastic->lives = NULL;
    uni_comm_close(strategy->comm);
    strategy->comm = NULL;
    free(elastic->slots);
    elastic->slots = NULL;
    elastic->fit_of_others = 0;
    return meet_first(strategy, err);
}

int uni__elastic_join(uni_strategy *strategy, uni_model *model, uint64_t *seed, uni_value **history,
                      uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    /* The others do not wait for what it did before its first fit. */
    int status = elastic->fit_of_others ? 0 : meet_first(strategy, err);
    if (status == 0)
        status = join(strategy, model, err);
    for (int tries = 0; uni__elastic_is_loss(status) && tries < DEATHS_IN_A_ROW; tries++) {
        status = leave(strategy, model, err);
        if (status == 0)
            status = join(strategy, model, err);
    }
    UNI_TRY(status);
    if (status == UNI__FIT_IS_OVER) {
        UNI_TRY(uni__elastic_adopt_fit(strategy, model, history, err));
        return UNI__FIT_IS_OVER;
    }
    *seed = elastic->seed;
    elastic->joins = false;
    elastic->fit_of_others = 0;
    return 0;
}
