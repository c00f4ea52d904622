/*
 * position.c - where fit stands: what a new rank must know, packed by the source of a meeting.
 */
#include "strategy/elastic/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "checkpoint/dict.h"
#include "nn/shared.h"

/* Where a new rank begins. */
typedef enum uni__entry {
    ENTER_STEP, /* in the step of the others */
    ENTER_AFTER, /* after the last step of the epoch, with the results of calls since */
    ENTER_NOWHERE
} entry;

/* What is left to do of the dead rank's own decides. A rank without one has nothing to make up
 * for. */
static entry entry_of(const uni_strategy *strategy, int64_t slot, bool decided)
{
    const uni__elastic *elastic = strategy->elastic;
    const uni__biography *dead = uni__elastic_life_left(strategy, slot);
    bool in_step = elastic->place == UNI__IN_STEP;
    if (!dead)
        return in_step ? ENTER_STEP : elastic->after ? ENTER_AFTER : ENTER_NOWHERE;
    /* How far it came since the ranks told each other is not known. */
    if (elastic->apart && !dead->acts_between_batches)
        return elastic->after ? ENTER_AFTER : in_step ? ENTER_STEP : ENTER_NOWHERE;
    if (elastic->apart)
        return ENTER_NOWHERE;
    if (in_step && (decided || dead->entered == elastic->step))
        return ENTER_STEP;
    if (elastic->after && (dead->marked == elastic->step || !dead->acts_between_batches))
        return ENTER_AFTER;
    return in_step && !dead->acts_between_batches ? ENTER_STEP : ENTER_NOWHERE;
}

static int put_entries(const uni_strategy *strategy, const int64_t *info, bool decided,
                       uni_value *message, uni_error *err)
{
    uni_value *entries = uni_value_list();
    int status = 0;
    for (int rank = 0; status == 0 && rank < strategy->size; rank++) {
        const int64_t *row = &info[UNI__ELASTIC_ROW * rank];
        entry where = row[UNI__ROW_IS_NEW] ? entry_of(strategy, row[UNI__ROW_SLOT], decided) : 0;
        if (where == ENTER_NOWHERE)
            status = uni_error_set(err, UNI_ESTATE,
                                   "rank %d died between two batches, and cannot be replaced: "
                                   "only it knew what its callbacks had done",
                                   (int)row[UNI__ROW_SLOT]);
        else
            status = uni_list_take(entries, uni_value_int(where));
    }
    if (status == 0)
        return uni_dict_take(message, "entries", entries);
    uni_value_free(entries);
    return status;
}

/* Over hosts no rank can read what another one wrote: how many reports the predecessor of each new
 * rank had made at the end of the epoch. */
static int put_marks(const uni_strategy *strategy, const int64_t *info, uni_value *message)
{
    uni_value *marks = uni_value_list();
    int status = 0;
    for (int rank = 0; rank < strategy->size; rank++) {
        const uni__biography *dead =
            uni__elastic_life_left(strategy, info[UNI__ELASTIC_ROW * rank + UNI__ROW_SLOT]);
        const uni__biography *from = dead ? dead : uni__elastic_life(strategy);
        status |= uni_list_take(marks, uni_value_int(from->reports));
    }
    if (status == 0)
        return uni_dict_take(message, "marks", marks);
    uni_value_free(marks);
    return status;
}

static void take_mark(uni_strategy *strategy, const uni_model *model, const uni_value *message)
{
    const uni_value *marks = uni_dict_get(message, "marks");
    uni__biography *mine = uni__elastic_life(strategy);
    mine->marked = (uint64_t)uni_optimizer_iterations(uni_model_optimizer(model)) + 1;
    mine->reports = uni_value_as_int(uni_list_get(marks, (size_t)strategy->rank), -1);
}

static int put_position(const uni_strategy *strategy, bool decided, uni_value *message,
                        uni_error *err)
{
    const uni__elastic *elastic = strategy->elastic;
    const uni__trained *trained = &elastic->trained;
    const uni__elastic_results *calls = &elastic->results;
    uni_value *state = NULL;
    int status = 0;
    if (elastic->after)
        status =
            uni_dict_take(message, "after", uni_value_bytes(elastic->after, elastic->after_size)) |
            uni_dict_take(message, "results", uni_value_bytes(calls->bytes, calls->size));
    if (elastic->place != UNI__IN_STEP || status < 0)
        return status;
    UNI_TRY(uni__fit_state_to_join(strategy->elastic->model,
                                   decided ? UNI__JOIN_COMPLETE : UNI__JOIN_REPEAT, &state, err));
    status = uni_dict_take(message, "state", state);
    if (decided)
        status |= uni_dict_take(
            message, "sums",
            uni_value_bytes(trained->sums, trained->num_sums * sizeof *trained->sums));
    return status;
}

int uni__elastic_tell(uni_strategy *strategy, const int64_t *info, bool decided, uni_error *err)
{
    uni_value *message = uni_value_dict();
    void *bytes = NULL;
    size_t size = 0;
    int status = put_entries(strategy, info, decided, message, err);
    const uni__elastic *elastic = strategy->elastic;
    if (status == 0)
        status = uni_dict_take(message, "seed", uni_value_int((int64_t)elastic->seed)) |
                 uni_dict_take(message, "reports",
                               uni_value_int(elastic->vtable->count_reports(elastic->context)));
    if (status == 0 && elastic->apart)
        status = put_marks(strategy, info, message);
    if (status == 0)
        status = put_position(strategy, decided, message, err);
    if (status == 0)
        status = uni__elastic_pack(&bytes, &size, message, err);
    uni_value_free(message);
    int64_t head = (int64_t)size;
    if (status == 0)
        status = uni_comm_broadcast(strategy->comm, &head, 1, UNI_I64, strategy->rank, err);
    if (status == 0)
        status = uni_comm_broadcast(strategy->comm, bytes, size, UNI_U8, strategy->rank, err);
    free(bytes);
    return status;
}

static int copy_bytes(const uni_value *message, const char *key, void **out, size_t *size,
                      uni_error *err)
{
    const void *bytes = uni_value_as_bytes(uni_dict_get(message, key), size);
    *out = NULL;
    if (!bytes || *size == 0)
        return 0;
    *out = malloc(*size);
    if (!*out)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a fit");
    memcpy(*out, bytes, *size);
    return 0;
}

/* Results of calls that this rank has not made. */
static int adopt_results(uni__elastic_results *mine, const uni_value *message, uni_error *err)
{
    void *bytes = NULL;
    size_t size = 0;
    UNI_TRY(copy_bytes(message, "results", &bytes, &size, err));
    if (size <= mine->size) {
        free(bytes);
        return 0;
    }
    free(mine->bytes);
    mine->bytes = bytes;
    mine->size = mine->capacity = size;
    return 0;
}

static int take_position(uni_strategy *strategy, uni_model *model, const uni_value *message,
                         uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    const uni_value *entries = uni_dict_get(message, "entries");
    uni_value *after = NULL;
    void *sums = NULL;
    size_t size = 0;
    elastic->seed = (uint64_t)uni_dict_get_int(message, "seed", 0);
    elastic->others = uni_dict_get_int(message, "reports", -1);
    free(elastic->made);
    elastic->made = NULL;
    uni__elastic_forget_calls(elastic);
    if (uni_value_as_int(uni_list_get(entries, (size_t)strategy->rank), -1) == ENTER_STEP) {
        UNI_TRY(copy_bytes(message, "sums", &sums, &size, err));
        elastic->made = sums;
        elastic->num_made = size / sizeof *elastic->made;
        return uni__fit_join(model, uni_dict_get(message, "state"), err);
    }
    if (elastic->apart)
        take_mark(strategy, model, message);
    UNI_TRY(copy_bytes(message, "after", &elastic->after, &elastic->after_size, err));
    UNI_TRY(adopt_results(&elastic->results, message, err));
    UNI_TRY(uni__dict_decode(&after, elastic->after, elastic->after_size, err));
    int status = uni__fit_join(model, after, err);
    uni_value_free(after);
    return status;
}

/* model: of a new rank; NULL: a survivor, which knows where fit stands. */
int uni__elastic_hear(uni_strategy *strategy, uni_model *model, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    int64_t head = 0;
    uni_value *message = NULL;
    UNI_TRY(uni_comm_broadcast(strategy->comm, &head, 1, UNI_I64, elastic->source, err));
    void *bytes = head > 0 ? malloc((size_t)head) : NULL;
    if (!bytes)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a fit (%lld bytes)",
                             (long long)head);
    int status =
        uni_comm_broadcast(strategy->comm, bytes, (size_t)head, UNI_U8, elastic->source, err);
    if (status == 0)
        status = uni__dict_decode(&message, bytes, (size_t)head, err);
    free(bytes);
    if (status == 0 && model)
        status = take_position(strategy, model, message, err);
    else if (status == 0 && elastic->place != UNI__IN_STEP)
        status = adopt_results(&elastic->results, message, err);
    uni_value_free(message);
    return status;
}
