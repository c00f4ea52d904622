/*
 * apart.c - groups over several hosts (elastic.h): every rank has its own weights, and what ranks
 * say of themselves is gathered instead of read in shared pages.
 *
 * A step is complete for a rank when all sums have come, and then it is updated without another
 * call. Its sums need every rank's gradients, so no rank is more than one step ahead of another:
 *
 *   no survivor has completed the step    it is repeated by all
 *   one has                               it is the source; the others had shown their gradients,
 *                                         and take weights and optimizer state from it
 *
 * What a rank takes waits in memory of its own until nothing can fail any more: the source may die
 * while it gives, and then the others repeat the step with what they had. fit's thread.
 */
#include "strategy/elastic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "comm/shared.h"
#include "nn/shared.h"
#include "tensor/shared.h"

uni__biography *uni__elastic_life(const uni_strategy *strategy)
{
    const uni__elastic *elastic = strategy->elastic;
    return elastic->apart ? &elastic->lives[strategy->rank] : &uni__elastic_mine(elastic)->life;
}

bool uni__elastic_has_lines(const uni__elastic *elastic)
{
    return elastic->lines || elastic->lives;
}

int uni__elastic_make_lives(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    if (elastic->lives)
        return 0;
    elastic->lives = calloc((size_t)strategy->size, sizeof *elastic->lives);
    return elastic->lives
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for %d ranks", strategy->size);
}

int uni__elastic_gather_lives(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    uni__biography mine = *uni__elastic_life(strategy);
    uni__biography *all = calloc((size_t)strategy->size, sizeof *all);
    if (!all)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d ranks", strategy->size);
    /* Without callbacks between batches no rank reports before the end of the epoch. */
    mine.reports = elastic->vtable->count_reports(elastic->context);
    int status = uni_comm_all_gather(strategy->comm, &mine, all, sizeof mine, UNI_U8, err);
    if (status == 0)
        memcpy(elastic->lives, all, (size_t)strategy->size * sizeof *all);
    free(all);
    return status;
}

/* ---- weights and optimizer state from the source ---- */

static const int64_t *row_of(const int64_t *info, int rank)
{
    return &info[UNI__ELASTIC_ROW * rank];
}

/* That rank has not completed what the source has. */
static bool takes_model(const uni_strategy *strategy, const int64_t *info, int rank)
{
    const int64_t *row = row_of(info, rank), *source = row_of(info, strategy->elastic->source);
    return row[UNI__ROW_IS_NEW] || row[UNI__ROW_STEP] < source[UNI__ROW_STEP];
}

/* Part 0 is the weights, then come the optimizer's slots. */
static size_t num_parts(const uni_model *model)
{
    return 1 + uni__optimizer_num_slots(uni_model_optimizer(model));
}

static float *part_of(const uni_model *model, size_t index, size_t *size)
{
    return index == 0 ? uni_parameters_weights(uni_model_parameters(model), size)
                      : uni__optimizer_slot(uni_model_optimizer(model), index - 1, size);
}

static int give_model(uni_strategy *strategy, const int64_t *info, uni_error *err)
{
    const uni_model *model = strategy->elastic->model;
    for (int rank = 0; rank < strategy->size; rank++)
        for (size_t i = 0; takes_model(strategy, info, rank) && i < num_parts(model); i++) {
            size_t size = 0;
            const float *data = part_of(model, i, &size);
            UNI_TRY(uni_comm_send(strategy->comm, data, size, UNI_F32, rank, err));
        }
    return 0;
}

/* *out: malloc'ed, all parts one after the other. */
static int receive_model(const uni_strategy *strategy, const uni_model *model, float **out,
                         uni_error *err)
{
    size_t all = 0, size = 0, at = 0;
    for (size_t i = 0; i < num_parts(model); i++, all += size)
        (void)part_of(model, i, &size);
    *out = malloc(all * sizeof **out + 1);
    if (!*out)
        return uni_error_set(err, UNI_ENOMEM, "no memory for another rank's weights (%zu numbers)",
                             all);
    for (size_t i = 0; i < num_parts(model); i++, at += size) {
        (void)part_of(model, i, &size);
        UNI_TRY(uni_comm_recv(strategy->comm, *out + at, size, UNI_F32, strategy->elastic->source,
                              err));
    }
    return 0;
}

static void keep_model(uni_model *model, const float *from, int64_t steps)
{
    size_t size = 0;
    for (size_t i = 0; i < num_parts(model); i++, from += size) {
        float *to = part_of(model, i, &size);
        if (size > 0)
            memcpy(to, from, size * sizeof *to);
    }
    uni__optimizer_set_iterations(uni_model_optimizer(model), steps);
}

/* ---- the meeting ---- */

/* What is known of the ranks before they gather it again. */
static void carry_lives(const uni_strategy *strategy, const int64_t *info)
{
    const uni__elastic *elastic = strategy->elastic;
    for (int rank = 0; rank < strategy->size; rank++) {
        const uni__biography *from =
            uni__elastic_life_left(strategy, row_of(info, rank)[UNI__ROW_SLOT]);
        if (from)
            elastic->lives[rank] = *from;
    }
}

int uni__elastic_settle_apart(uni_strategy *strategy, const int64_t *info, int *how, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    bool gives = strategy->rank == elastic->source;
    bool behind = takes_model(strategy, info, strategy->rank);
    int64_t done = row_of(info, elastic->source)[UNI__ROW_STEP] - 1;
    float *taken = NULL;
    int status = uni__elastic_make_lives(strategy, err);
    if (status == 0)
        carry_lives(strategy, info);
    if (status == 0 && gives)
        status = give_model(strategy, info, err);
    else if (status == 0 && behind)
        status = receive_model(strategy, elastic->model, &taken, err);
    if (status == 0)
        status = gives ? uni__elastic_tell(strategy, info, false, err)
                       : uni__elastic_hear(strategy, NULL, err);
    if (status == 0 && behind) {
        keep_model(elastic->model, taken, done);
        elastic->unchecked = (uint64_t)done;
    }
    free(taken);
    UNI_TRY(status);
    bool repeats = elastic->place != UNI__IN_STEP || !behind;
    *how = !repeats ? 0 : uni__elastic_is_resized(strategy) ? UNI__STEP_RECUT : UNI__STEP_REPEAT;
    return 0;
}

int uni__elastic_join_apart(uni_strategy *strategy, uni_model *model, const int64_t *info,
                            uni_error *err)
{
    float *taken = NULL;
    UNI_TRY(uni__optimizer_build(uni_model_optimizer(model), uni_model_parameters(model), err));
    UNI_TRY(uni__elastic_make_lives(strategy, err));
    int status = receive_model(strategy, model, &taken, err);
    if (status == 0)
        keep_model(model, taken, row_of(info, strategy->elastic->source)[UNI__ROW_STEP] - 1);
    free(taken);
    return status < 0 ? status : uni__elastic_hear(strategy, model, err);
}

bool uni__elastic_can_apart(const uni_model *model)
{
    uni__span span;
    const uni_optimizer *optimizer = uni_model_optimizer(model);
    /* Without a gradient to sum, a rank's update would need no other rank. */
    return optimizer && uni__parameters_trainable(uni_model_parameters(model), &span, 1) > 0;
}
