/*
 * calls.c - collective calls after the last step of an epoch: their results are kept, so that a new
 * rank can go through the same code with them, and a call that failed is repeated.
 */
#include "strategy/elastic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"

void uni__elastic_forget_calls(uni__elastic *elastic)
{
    free(elastic->after);
    elastic->after = NULL;
    elastic->after_size = 0;
    elastic->results.size = elastic->results.next = 0;
    elastic->results.taken = 0;
}

int uni__elastic_epoch_ended(void *context, uni_model *model, uni_error *err)
{
    uni_strategy *strategy = context;
    uni__elastic *elastic = strategy->elastic;
    uni_value *state = NULL;
    if (!uni__elastic_is_active(strategy) || !uni__elastic_has_lines(elastic))
        return 0;
    uni__biography *mine = uni__elastic_life(strategy);
    uint64_t next = (uint64_t)uni_optimizer_iterations(uni_model_optimizer(model)) + 1;
    uni__elastic_catch_up(elastic, mine->marked == next ? mine->reports : -1);
    mine->reports = elastic->vtable->count_reports(elastic->context);
    mine->marked = next;
    elastic->compares = true;
    if (elastic->after) /* a new rank has it from the others */
        return 0;
    UNI_TRY(uni__fit_state_to_join(model, UNI__JOIN_AFTER, &state, err));
    int status = uni__elastic_pack(&elastic->after, &elastic->after_size, state, err);
    uni_value_free(state);
    return status;
}

static int keep_result(uni__elastic_results *all, const void *data, size_t bytes, uni_error *err)
{
    uint64_t size = bytes;
    if (all->size + sizeof size + bytes > all->capacity) {
        size_t capacity = 2 * (all->capacity + sizeof size + bytes);
        uint8_t *grown = realloc(all->bytes, capacity);
        if (!grown)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the result of a call");
        all->bytes = grown;
        all->capacity = capacity;
    }
    memcpy(all->bytes + all->size, &size, sizeof size);
    if (bytes > 0)
        memcpy(all->bytes + all->size + sizeof size, data, bytes);
    all->size = all->next = all->size + sizeof size + bytes;
    all->taken++;
    return 0;
}

/* 1: it was there, 0: the call has not been made. */
static int take_result(uni__elastic_results *all, void *data, size_t bytes, uni_error *err)
{
    uint64_t size = 0;
    if (all->next >= all->size)
        return 0;
    memcpy(&size, all->bytes + all->next, sizeof size);
    if (size != bytes)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the other ranks have made another call (%llu bytes, here %zu): the "
                             "ranks do not run the same callbacks",
                             (unsigned long long)size, bytes);
    if (bytes > 0)
        memcpy(data, all->bytes + all->next + sizeof size, bytes);
    all->next += sizeof size + bytes;
    all->taken++;
    return 1;
}

static int repeat_call(uni_strategy *strategy, uni__elastic_call call, bool cut, void *data,
                       size_t bytes, int status, const void *before, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    int how = 0, taken = 0;
    while (status < 0 && taken == 0) {
        if (!uni__elastic_is_loss(status))
            return status;
        if (bytes > 0)
            memcpy(data, before, bytes);
        elastic->place = elastic->results.taken;
        UNI_TRY(uni__elastic_regroup(strategy, &how, err));
        taken = take_result(&elastic->results, data, bytes, err);
        if (taken == 0 && cut && how == UNI__STEP_RECUT)
            return how;
        status = taken != 0 ? taken : call(strategy, data, bytes, err);
    }
    if (taken != 0)
        return taken < 0 ? taken : 0;
    return keep_result(&elastic->results, data, bytes, err);
}

int uni__elastic_do(uni_strategy *strategy, uni__elastic_call call, bool cut, void *data,
                    size_t bytes, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    if (!uni__elastic_is_active(strategy) || !elastic->after)
        return call(strategy, data, bytes, err);
    int taken = take_result(&elastic->results, data, bytes, err);
    if (taken != 0)
        return taken < 0 ? taken : 0;
    void *before = bytes > 0 ? malloc(bytes) : NULL;
    if (bytes > 0 && !before)
        return uni_error_set(err, UNI_ENOMEM, "no memory to repeat a call");
    if (bytes > 0)
        memcpy(before, data, bytes);
    int status = call(strategy, data, bytes, err);
    status = status == 0 ? keep_result(&elastic->results, data, bytes, err)
                         : repeat_call(strategy, call, cut, data, bytes, status, before, err);
    free(before);
    return status;
}

int uni__elastic_close(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    if (!uni__elastic_is_active(strategy) || !uni__elastic_has_lines(elastic))
        return 0;
    for (;;) {
        int how = 0, status = elastic->vtable->end_fit(elastic->context, elastic->number, err);
        if (!uni__elastic_is_loss(status))
            return status;
        elastic->place = elastic->results.taken;
        UNI_TRY(uni__elastic_regroup(strategy, &how, err));
    }
}

int uni__elastic_forgive(const uni_strategy *strategy, int status)
{
    return uni__elastic_is_loss(status) && uni__elastic_is_active(strategy) ? 0 : status;
}

/* A pass that failed before it had anything to show is of the step that would have come. */
