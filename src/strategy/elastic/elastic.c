/* elastic.c - see elastic.h: a fit, its steps, and what callbacks remember. */
#include "strategy/elastic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/shared.h"
#include "checkpoint/dict.h"
#include "comm/shared.h"
#include "nn/shared.h"
#include "tensor/shared.h"

int uni__strategy_set_membership(uni_strategy *strategy, const uni__membership_vtable *vtable,
                                 void *context, int *slots, uint32_t number, bool apart, bool joins,
                                 uni_error *err)
{
    /* Communicators come and go, so they must not be the caller's. */
    bool can =
        strategy->kind == UNI__STRATEGY_MULTI_WORKER && !strategy->elastic && strategy->owns_comm;
    uni__elastic *elastic = can ? calloc(1, sizeof *elastic) : NULL;
    if (!elastic) {
        free(slots);
        return can ? uni_error_set(err, UNI_ENOMEM, "no memory for a strategy")
                   : uni_error_set(err, UNI_EINVAL,
                                   "only a multi_worker strategy that owns its communicator can be "
                                   "elastic, and only once");
    }
    *elastic = (uni__elastic){ .vtable = vtable,
                               .context = context,
                               .slots = slots,
                               .number = number,
                               .apart = apart,
                               .joins = joins,
                               .catches_up = joins };
    strategy->elastic = elastic;
    strategy->updater.recover = uni__elastic_recover;
    strategy->updater.enter = uni__elastic_enter;
    strategy->updater.recut = uni__elastic_recut;
    strategy->updater.epoch_ended = uni__elastic_epoch_ended;
    return 0;
}

void uni__elastic_free(uni_strategy *strategy)
{
    uni__elastic *elastic = strategy->elastic;
    if (!elastic)
        return;
    uni_comm_buffer_free(elastic->lines);
    uni__elastic_let_go(&elastic->old);
    uni__elastic_forget_calls(elastic);
    free(elastic->lives);
    free(elastic->results.bytes);
    uni_value_free(elastic->fits);
    free(elastic->made);
    free(elastic->slots);
    free(elastic);
    strategy->elastic = NULL;
}

/* A peer died, or the way to it is closed. */
bool uni__elastic_is_loss(int status)
{
    return status == UNI_EWORKER || status == UNI_EPEER;
}

/* ---- during a fit ---- */

bool uni__elastic_is_active(const uni_strategy *strategy)
{
    return strategy->elastic && strategy->elastic->active;
}

bool uni__elastic_is_apart(const uni_strategy *strategy)
{
    return strategy->elastic && strategy->elastic->apart;
}

void uni__elastic_begin(uni_strategy *strategy, uni_model *model)
{
    uni__elastic *elastic = strategy->elastic;
    if (!elastic)
        return;
    bool accumulates = uni__model_accumulation(model) > 1;
    bool later = elastic->own_calls || (elastic->apart && elastic->fit > 1);
    bool can = elastic->apart ? uni__elastic_can_apart(model) : strategy->fused.on;
    elastic->active = !later && can && !accumulates;
    elastic->compares = true;
    if (elastic->active && elastic->fit > 1 && elastic->vtable->begin_fit)
        elastic->vtable->begin_fit(elastic->context);
    elastic->resizes = elastic->active && uni__parts_are_cut(strategy);
    elastic->vtable->set_fixed(elastic->context, elastic->resizes ? UNI__ELASTIC_NOT_FIXED
                                                 : accumulates    ? UNI__ELASTIC_ACCUMULATES
                                                 : later          ? UNI__ELASTIC_NO_ENTRY
                                                                  : UNI__ELASTIC_OWN_SHARDS);
    elastic->model = model;
    if (elastic->active && elastic->catches_up) /* what it remembers is another's */
        elastic->vtable->set_replaceable(elastic->context, true, true, elastic->resizes);
}

bool uni__elastic_skips_check(const uni_strategy *strategy, int64_t step)
{
    return strategy->elastic && strategy->elastic->unchecked == (uint64_t)step;
}

bool uni__elastic_leaves(const uni_strategy *strategy)
{
    return strategy->elastic && strategy->elastic->leaves;
}

void uni__elastic_left(uni_strategy *strategy)
{
    if (uni__elastic_leaves(strategy))
        strategy->elastic->vtable->left(strategy->elastic->context);
}

void uni__elastic_end(uni_strategy *strategy)
{
    uni__elastic *elastic = strategy->elastic;
    if (elastic)
        elastic->vtable->set_fixed(elastic->context, UNI__ELASTIC_NOT_FIXED);
    if (!uni__elastic_is_active(strategy))
        return;
    elastic->active = elastic->shown = false;
    elastic->vtable->set_replaceable(elastic->context, false, false, false);
    uni__elastic_forget_calls(elastic);
    /* The next fit may have more counts, and other callbacks. */
    uni_comm_buffer_free(elastic->lines);
    elastic->lines = NULL;
    elastic->num_counts = 0;
}

/* As checkpoints are packed: states of callbacks may have arrays. *out is malloc'ed. */
int uni__elastic_pack(void **out, size_t *size, const uni_value *dict, uni_error *err)
{
    UNI_TRY(uni__dict_encoded_size(dict, size, err));
    *out = malloc(*size);
    if (!*out)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a fit");
    int status = uni__dict_encode(dict, *out, *size, err);
    if (status < 0) {
        free(*out);
        *out = NULL;
    }
    return status;
}

/* ---- what callbacks remember ---- */

uni__elastic_line *uni__elastic_mine(const uni__elastic *elastic)
{
    return uni_comm_buffer_data(elastic->lines);
}

static uint64_t hash_of(const void *bytes, size_t size)
{
    char text[17];
    uni__hash_bytes(bytes, size, text);
    return strtoull(text, NULL, 16);
}

static int write_remembered(const uni_strategy *strategy, uni__biography *mine, uni_error *err)
{
    uni_value *states = NULL;
    mine->acts_between_batches = uni__fit_has_batch_callbacks(strategy->elastic->model);
    UNI_TRY(uni__fit_callback_states(strategy->elastic->model, &states, err));
    int status = 0;
    mine->num_remembered = uni_dict_size(states);
    for (size_t i = 0; status == 0 && i < mine->num_remembered && i < UNI__MOST_REMEMBERED; i++) {
        const char *name = uni_dict_key_at(states, i);
        void *bytes = NULL;
        size_t size = 0;
        uni_value *one = uni_value_dict();
        status = uni_dict_take(one, name, uni_value_copy(uni_dict_value_at(states, i)));
        if (status == 0)
            status = uni__elastic_pack(&bytes, &size, one, err);
        uni_value_free(one);
        if (status == 0)
            mine->remembered[i] =
                (uni__remembered){ hash_of(name, strlen(name)), hash_of(bytes, size) };
        free(bytes);
    }
    uni_value_free(states);
    return status;
}

static bool remembers(const uni__biography *rank, const uni__remembered *what)
{
    for (size_t i = 0; i < rank->num_remembered && i < UNI__MOST_REMEMBERED; i++)
        if (rank->remembered[i].name == what->name && rank->remembered[i].state == what->state)
            return true;
    return false;
}

static const uni__biography *life_of(const uni__elastic *elastic, int rank)
{
    const uni__elastic_line *line =
        elastic->apart ? NULL : uni__comm_buffer_peer(elastic->lines, rank);
    return line ? &line->life : &elastic->lives[rank];
}

/* Any of the others can tell a new process what this rank's callbacks remember. */
static bool is_known_to_all(const uni_strategy *strategy)
{
    const uni__elastic *elastic = strategy->elastic;
    const uni__biography *mine = uni__elastic_life(strategy);
    bool known = mine->num_remembered <= UNI__MOST_REMEMBERED;
    if (elastic->apart && mine->acts_between_batches)
        return false; /* whether they have acted is known to this rank alone */
    for (int rank = 0; known && rank < strategy->size; rank++)
        for (size_t i = 0; known && i < mine->num_remembered; i++)
            known = remembers(life_of(elastic, rank), &mine->remembered[i]);
    return known;
}

/* ---- during a step ---- */

double *uni__elastic_counts(uni__elastic_line *of)
{
    return (double *)(of + 1);
}

int uni__elastic_make_lines(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    if (elastic->lines)
        return 0;
    return uni_comm_alloc(&elastic->lines, strategy->comm,
                          sizeof(uni__elastic_line) + elastic->num_counts * sizeof(double), err);
}

static int show_apart(uni_strategy *strategy, uni_error *err)
{
    UNI_TRY(uni__elastic_make_lives(strategy, err));
    if (!strategy->elastic->compares)
        return 0;
    UNI_TRY(write_remembered(strategy, uni__elastic_life(strategy), err));
    return uni__elastic_gather_lives(strategy, err);
}

int uni__elastic_show(uni_strategy *strategy, const uni__trained *trained, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    elastic->step = (uint64_t)uni_optimizer_iterations(trained->optimizer) + 1;
    elastic->trained = *trained;
    elastic->begun = elastic->factored = false;
    elastic->shown = true;
    elastic->num_counts = trained->num_sums;
    if (elastic->apart)
        return show_apart(strategy, err);
    UNI_TRY(uni__elastic_make_lines(strategy, err));
    uni__elastic_line *mine = uni__elastic_mine(elastic);
    if (elastic->compares)
        UNI_TRY(write_remembered(strategy, &mine->life, err));
    mine->life.factored = uni__factors_count(trained) > 0 ? elastic->step : 0;
    memcpy(uni__elastic_counts(mine), trained->sums, trained->num_sums * sizeof *trained->sums);
    atomic_store_explicit(&mine->shown, elastic->step, memory_order_release);
    return 0;
}

uni__update_journal *uni__elastic_journal(const uni_strategy *strategy)
{
    const uni__elastic *elastic = strategy->elastic;
    return uni__elastic_is_active(strategy) ? &uni__elastic_mine(elastic)->journal : NULL;
}

void uni__elastic_factored(uni_strategy *strategy)
{
    if (strategy->elastic)
        strategy->elastic->factored = true;
}

void uni__elastic_begun(uni_strategy *strategy)
{
    if (strategy->elastic)
        strategy->elastic->begun = true;
}

void uni__elastic_finished(uni_strategy *strategy)
{
    if (uni__elastic_is_active(strategy))
        uni__elastic_mine(strategy->elastic)->life.finished = strategy->elastic->step;
}

void uni__elastic_ended(uni_strategy *strategy)
{
    uni__elastic *elastic = strategy->elastic;
    if (!uni__elastic_is_active(strategy))
        return;
    elastic->shown = false;
    uni__elastic_forget_calls(elastic);
    /* All lines are written, and none changes again before this rank has made more steps. */
    if (elastic->compares)
        elastic->vtable->set_replaceable(elastic->context, true, is_known_to_all(strategy),
                                         elastic->resizes);
    elastic->compares = false;
}

/* This rank has come to where the others are. */
void uni__elastic_catch_up(uni__elastic *elastic, int64_t reports)
{
    if (elastic->catches_up)
        elastic->vtable->caught_up(elastic->context, reports, elastic->others);
    elastic->catches_up = false;
}

/* Between two steps: the rank leaves, or meets those that have come and gone. */
static int follow_group(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    bool has_lines = uni__elastic_has_lines(elastic);
    if (has_lines && elastic->resizes && elastic->vtable->leaves(elastic->context)) {
        elastic->leaves = true;
        return uni_error_set(err, UNI_EPREEMPTED,
                             "this worker has left the group, as it was told to; the others go on");
    }
    if (!has_lines || !elastic->vtable->has_changed(elastic->context, elastic->number))
        return 0;
    return uni__elastic_recover(strategy, UNI_EWORKER, err);
}

int uni__elastic_enter(void *context, double *sums, size_t count, uni_error *err)
{
    uni_strategy *strategy = context;
    uni__elastic *elastic = strategy->elastic;
    if (!uni__elastic_is_active(strategy))
        return 0;
    uni__elastic_catch_up(elastic, -1);
    if (elastic->lines)
        uni__elastic_life(strategy)->entered =
            (uint64_t)uni_optimizer_iterations(uni_model_optimizer(elastic->model)) +
            (elastic->made ? 0 : 1);
    if (!elastic->made || elastic->num_made != count) {
        int status = follow_group(strategy, err);
        return status == UNI__STEP_REPEAT ? 0 : status;
    }
    memcpy(sums, elastic->made, count * sizeof *sums);
    free(elastic->made);
    elastic->made = NULL;
    return UNI__STEP_DONE;
}

int uni__elastic_recut(void *context, uni_batches *source, uni_batch *out, uni_error *err)
{
    return uni__part_again(context, source, out, err);
}
