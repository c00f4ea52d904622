/*
 * fits.c - train functions that call fit several times: what a new process needs of the fits that
 * the others have behind them.
 *
 * When a fit has ended, every rank keeps its history and the model with its optimizer (as many
 * bytes as a checkpoint has, in memory until the strategy is freed). A new process runs the train
 * function from its beginning. In its first fit it meets the others and gets these records; a fit
 * that the others have behind them returns at once, with model and history as they were then, so
 * that what the function does between two fits sees what the others saw.
 */
#include "strategy/elastic/internal.h"

#include <stdlib.h>

#include "base/shared.h"
#include "checkpoint/dict.h"

void uni__elastic_count_fit(uni_strategy *strategy)
{
    if (strategy->elastic)
        strategy->elastic->fit++;
}

void uni__elastic_note_call(uni_strategy *strategy)
{
    if (strategy->elastic && !strategy->elastic->active)
        strategy->elastic->own_calls = true;
}

static int add_fit(uni__elastic *elastic, uni_value *bytes, uni_error *err)
{
    if (!elastic->fits)
        elastic->fits = uni_value_list();
    if (uni_list_take(elastic->fits, bytes) < 0)
        return uni_error_set(err, UNI_ENOMEM, "no memory to keep a fit for processes that join");
    return 0;
}

int uni__elastic_keep_fit(uni_strategy *strategy, const uni_model *model, const uni_value *history,
                          uni_error *err)
{
    uni_value *state = NULL;
    void *bytes = NULL;
    size_t size = 0;
    if (!strategy->elastic || strategy->elastic->apart)
        return 0;
    uni_value *record = uni_value_dict();
    int status = uni_model_get_state(&state, model, err);
    if (status == 0)
        status = uni_dict_take(record, "model", state) |
                 uni_dict_take(record, "history", uni_value_copy(history));
    if (status == 0)
        status = uni__elastic_pack(&bytes, &size, record, err);
    uni_value_free(record);
    if (status == 0)
        status = add_fit(strategy->elastic, uni_value_bytes(bytes, size), err);
    free(bytes);
    return status;
}

static int send_fit(uni_strategy *strategy, size_t index, uni_error *err)
{
    size_t size = 0;
    const void *bytes = uni_value_as_bytes(uni_list_get(strategy->elastic->fits, index), &size);
    int64_t head = (int64_t)size;
    UNI_TRY(uni_comm_broadcast(strategy->comm, &head, 1, UNI_I64, strategy->rank, err));
    return uni_comm_broadcast(strategy->comm, (void *)(uintptr_t)bytes, size, UNI_U8,
                              strategy->rank, err);
}

/* keeps: a new rank; the others have it. */
static int receive_fit(uni_strategy *strategy, bool keeps, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    int64_t head = 0;
    UNI_TRY(uni_comm_broadcast(strategy->comm, &head, 1, UNI_I64, elastic->source, err));
    void *bytes = head > 0 ? malloc((size_t)head) : NULL;
    if (!bytes)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a fit of the others (%lld bytes)",
                             (long long)head);
    int status =
        uni_comm_broadcast(strategy->comm, bytes, (size_t)head, UNI_U8, elastic->source, err);
    if (status == 0 && keeps)
        status = add_fit(elastic, uni_value_bytes(bytes, (size_t)head), err);
    free(bytes);
    return status;
}

int uni__elastic_share_fits(uni_strategy *strategy, const int64_t *info, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    bool source = strategy->rank == elastic->source, any_new = false;
    int64_t fit = elastic->fit;
    for (int rank = 0; rank < strategy->size; rank++)
        any_new |= info[UNI__ELASTIC_ROW * rank + UNI__ROW_IS_NEW] != 0;
    if (!any_new)
        return 0;
    UNI_TRY(uni_comm_broadcast(strategy->comm, &fit, 1, UNI_I64, elastic->source, err));
    if (elastic->joins) { /* in a meeting before this one, it may have heard of them already */
        uni_value_free(elastic->fits);
        elastic->fits = NULL;
        elastic->fit_of_others = (int)fit;
    }
    for (int64_t i = 1; i < fit; i++)
        UNI_TRY(source ? send_fit(strategy, (size_t)i - 1, err)
                       : receive_fit(strategy, elastic->joins, err));
    return 0;
}

int uni__elastic_adopt_fit(const uni_strategy *strategy, uni_model *model, uni_value **history,
                           uni_error *err)
{
    const uni__elastic *elastic = strategy->elastic;
    uni_value *record = NULL;
    size_t size = 0;
    const void *bytes =
        uni_value_as_bytes(uni_list_get(elastic->fits, (size_t)elastic->fit - 1), &size);
    UNI_TRY(uni__dict_decode(&record, bytes, size, err));
    int status = uni_model_set_state(model, uni_dict_get(record, "model"), err);
    if (status < 0)
        uni_error_prefix(err, "fit number %d, which the other ranks have behind them",
                         elastic->fit);
    if (status == 0 && history) {
        *history = uni_value_copy(uni_dict_get(record, "history"));
        if (!*history)
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a history");
    }
    uni_value_free(record);
    return status;
}
