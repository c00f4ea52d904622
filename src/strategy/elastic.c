/* elastic.c - see elastic.h. */
#include "strategy/elastic.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/shared.h"
#include "checkpoint/dict.h"
#include "comm/shared.h"
#include "nn/shared.h"
#include "tensor/shared.h"

#define DEATHS_IN_A_ROW 100 /* of new ranks, before the group gives up */
#define MAX_REMEMBERED 16 /* callbacks with a state */
#define PLACE_IN_STEP INT64_MAX
#define ROW 3 /* of what the ranks say of themselves */

/* What a callback remembers, by hash. */
typedef struct remembered {
    uint64_t name, state;
} remembered;

/* A rank's line. Counts follow. */
typedef struct line {
    _Atomic uint64_t shown; /* the step; 0: none */
    uint64_t reserved[7];
    uni__update_journal journal;
    /* What a new process must know of the one that it replaces. */
    struct biography {
        uint64_t entered; /* the last step that it began; its callbacks had done all before */
        uint64_t marked; /* the step after the last epoch whose end it came to */
        int64_t reports; /* then */
        uint64_t factored; /* the last step in which kernels had factors for gradients */
        uint64_t finished; /* the last step of which it has updated all that is its own */
        uint64_t acts_between_batches; /* its callbacks do */
        uint64_t num_remembered; /* more than MAX_REMEMBERED: too many to compare */
        remembered remembered[MAX_REMEMBERED];
    } life;
} line;

/* What a communicator had when it failed: read until all have met over the next one. */
typedef struct remains {
    uni_comm *comm;
    uni_comm_buffer *lines;
    uni__fused fused;
} remains;

/* Results of calls since the last step of an epoch, each a size and bytes. */
typedef struct results {
    uint8_t *bytes;
    size_t size, capacity;
    size_t next; /* offset of the first that this rank has not taken */
    int64_t taken;
} results;

struct uni__elastic {
    const uni__membership_vtable *vtable;
    void *context;
    uint32_t number;
    bool joins; /* until it has joined */
    bool catches_up; /* until it has come to where the others are */
    bool active; /* in a fit whose steps can be recovered */
    bool had_fit; /* a new rank can only join the first one */
    bool compares; /* the callbacks' states, in the next step */
    bool moves; /* the weights are in the new pages, or on their way there */
    uni_model *model; /* in fit */
    int source; /* of the present meeting */
    uint64_t seed; /* of fit */
    uni_comm_buffer *lines; /* of the present communicator; made by the first step */
    size_t num_counts; /* in a line */
    /* The step under way, from when it is shown until it ends. */
    bool shown;
    uint64_t step;
    int64_t place; /* calls since the step before it, or PLACE_IN_STEP */
    uni__trained trained;
    bool begun; /* the optimizer has counted it */
    bool factored; /* this rank's rows of kernels with factors are updated */
    double samples; /* of the step before, for new pages */
    /* After the last step of an epoch, until the next one: where fit stood, packed. */
    void *after;
    size_t after_size;
    results results;
    /* A new rank: sums of the step that the others completed before it joined. */
    double *made;
    size_t num_made;
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
    *elastic = (uni__elastic){
        .vtable = vtable, .context = context, .number = number, .joins = joins, .catches_up = joins
    };
    strategy->elastic = elastic;
    strategy->updater.recover = uni__elastic_recover;
    strategy->updater.enter = uni__elastic_enter;
    strategy->updater.epoch_ended = uni__elastic_epoch_ended;
    return 0;
}

static void let_go(remains *old)
{
    uni_comm_buffer_free(old->lines);
    uni__fused_free(&old->fused);
    uni_comm_close(old->comm);
    *old = (remains){ 0 };
}

static void forget_calls(uni__elastic *elastic)
{
    free(elastic->after);
    elastic->after = NULL;
    elastic->after_size = 0;
    elastic->results.size = elastic->results.next = 0;
    elastic->results.taken = 0;
}

void uni__elastic_free(uni_strategy *strategy)
{
    uni__elastic *elastic = strategy->elastic;
    if (!elastic)
        return;
    uni_comm_buffer_free(elastic->lines);
    let_go(&elastic->old);
    forget_calls(elastic);
    free(elastic->results.bytes);
    free(elastic->made);
    free(elastic);
    strategy->elastic = NULL;
}

/* A peer died, or the way to it is closed. */
static bool is_loss(int status)
{
    return status == UNI_EWORKER || status == UNI_EPEER;
}

/* ---- during a fit ---- */

bool uni__elastic_is_active(const uni_strategy *strategy)
{
    return strategy->elastic && strategy->elastic->active;
}

void uni__elastic_begin(uni_strategy *strategy)
{
    uni__elastic *elastic = strategy->elastic;
    const uni__fused *fused = &strategy->fused;
    if (!elastic)
        return;
    elastic->active = !elastic->had_fit && fused->on && !fused->whole &&
                      uni__model_accumulation(fused->model) < 2;
    elastic->had_fit = elastic->compares = true;
    elastic->model = fused->model;
    if (elastic->active && elastic->catches_up) /* what it remembers is another's */
        elastic->vtable->set_replaceable(elastic->context, true, true);
}

void uni__elastic_end(uni_strategy *strategy)
{
    uni__elastic *elastic = strategy->elastic;
    if (!uni__elastic_is_active(strategy))
        return;
    elastic->active = false;
    elastic->vtable->set_replaceable(elastic->context, false, false);
    forget_calls(elastic);
}

/* As checkpoints are packed: states of callbacks may have arrays. *out is malloc'ed. */
static int pack(void **out, size_t *size, const uni_value *dict, uni_error *err)
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

static line *my_line(const uni__elastic *elastic)
{
    return uni_comm_buffer_data(elastic->lines);
}

static uint64_t hash_of(const void *bytes, size_t size)
{
    char text[17];
    uni__hash_bytes(bytes, size, text);
    return strtoull(text, NULL, 16);
}

static int write_remembered(const uni_strategy *strategy, struct biography *mine, uni_error *err)
{
    uni_value *states = NULL;
    mine->acts_between_batches = uni__fit_has_batch_callbacks(strategy->elastic->model);
    UNI_TRY(uni__fit_callback_states(strategy->elastic->model, &states, err));
    int status = 0;
    mine->num_remembered = uni_dict_size(states);
    for (size_t i = 0; status == 0 && i < mine->num_remembered && i < MAX_REMEMBERED; i++) {
        const char *name = uni_dict_key_at(states, i);
        void *bytes = NULL;
        size_t size = 0;
        uni_value *one = uni_value_dict();
        status = uni_dict_take(one, name, uni_value_copy(uni_dict_value_at(states, i)));
        if (status == 0)
            status = pack(&bytes, &size, one, err);
        uni_value_free(one);
        if (status == 0)
            mine->remembered[i] = (remembered){ hash_of(name, strlen(name)), hash_of(bytes, size) };
        free(bytes);
    }
    uni_value_free(states);
    return status;
}

static bool remembers(const struct biography *rank, const remembered *what)
{
    for (size_t i = 0; i < rank->num_remembered && i < MAX_REMEMBERED; i++)
        if (rank->remembered[i].name == what->name && rank->remembered[i].state == what->state)
            return true;
    return false;
}

/* Any of the others can tell a new process what this rank's callbacks remember. */
static bool is_known_to_all(const uni_strategy *strategy)
{
    const uni__elastic *elastic = strategy->elastic;
    const struct biography *mine = &my_line(elastic)->life;
    bool known = mine->num_remembered <= MAX_REMEMBERED;
    for (int rank = 0; known && rank < strategy->size; rank++)
        for (size_t i = 0; known && i < mine->num_remembered; i++)
            known = remembers(&((line *)uni__comm_buffer_peer(elastic->lines, rank))->life,
                              &mine->remembered[i]);
    return known;
}

/* ---- during a step ---- */

static double *counts_of(line *of)
{
    return (double *)(of + 1);
}

static int make_lines(uni_strategy *strategy, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    if (elastic->lines)
        return 0;
    return uni_comm_alloc(&elastic->lines, strategy->comm,
                          sizeof(line) + elastic->num_counts * sizeof(double), err);
}

int uni__elastic_show(uni_strategy *strategy, const uni__trained *trained, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    elastic->step = (uint64_t)uni_optimizer_iterations(trained->optimizer) + 1;
    elastic->trained = *trained;
    elastic->begun = elastic->factored = false;
    elastic->shown = true;
    elastic->num_counts = trained->num_sums;
    UNI_TRY(make_lines(strategy, err));
    line *mine = my_line(elastic);
    if (elastic->compares)
        UNI_TRY(write_remembered(strategy, &mine->life, err));
    mine->life.factored = uni__factors_count(trained) > 0 ? elastic->step : 0;
    memcpy(counts_of(mine), trained->sums, trained->num_sums * sizeof *trained->sums);
    atomic_store_explicit(&mine->shown, elastic->step, memory_order_release);
    return 0;
}

uni__update_journal *uni__elastic_journal(const uni_strategy *strategy)
{
    const uni__elastic *elastic = strategy->elastic;
    return uni__elastic_is_active(strategy) ? &my_line(elastic)->journal : NULL;
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
        my_line(strategy->elastic)->life.finished = strategy->elastic->step;
}

void uni__elastic_ended(uni_strategy *strategy)
{
    uni__elastic *elastic = strategy->elastic;
    if (!uni__elastic_is_active(strategy))
        return;
    elastic->shown = false;
    forget_calls(elastic);
    /* All lines are written, and none changes again before this rank has made more steps. */
    if (elastic->compares)
        elastic->vtable->set_replaceable(elastic->context, true, is_known_to_all(strategy));
    elastic->compares = false;
}

/* This rank has come to where the others are. */
static void catch_up(uni__elastic *elastic, int64_t reports)
{
    if (elastic->catches_up)
        elastic->vtable->caught_up(elastic->context, reports);
    elastic->catches_up = false;
}

bool uni__elastic_enter(void *context, double *sums, size_t count)
{
    const uni_strategy *strategy = context;
    uni__elastic *elastic = strategy->elastic;
    if (!uni__elastic_is_active(strategy))
        return false;
    catch_up(elastic, -1);
    if (elastic->lines)
        my_line(elastic)->life.entered =
            (uint64_t)uni_optimizer_iterations(uni_model_optimizer(strategy->elastic->model)) +
            (elastic->made ? 0 : 1);
    if (!elastic->made || elastic->num_made != count)
        return false;
    memcpy(sums, elastic->made, count * sizeof *sums);
    free(elastic->made);
    elastic->made = NULL;
    return true;
}

/* ---- after the last step of an epoch ---- */

int uni__elastic_epoch_ended(void *context, uni_model *model, uni_error *err)
{
    uni_strategy *strategy = context;
    uni__elastic *elastic = strategy->elastic;
    uni_value *state = NULL;
    if (!uni__elastic_is_active(strategy) || !elastic->lines)
        return 0;
    struct biography *mine = &my_line(elastic)->life;
    uint64_t next = (uint64_t)uni_optimizer_iterations(uni_model_optimizer(model)) + 1;
    catch_up(elastic, mine->marked == next ? mine->reports : -1);
    mine->reports = elastic->vtable->count_reports(elastic->context);
    mine->marked = next;
    elastic->compares = true;
    if (elastic->after) /* a new rank has it from the others */
        return 0;
    UNI_TRY(uni__fit_state_to_join(model, UNI__JOIN_AFTER, &state, err));
    int status = pack(&elastic->after, &elastic->after_size, state, err);
    uni_value_free(state);
    return status;
}

static int keep_result(results *all, const void *data, size_t bytes, uni_error *err)
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
static int take_result(results *all, void *data, size_t bytes, uni_error *err)
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

static int recover(uni_strategy *strategy, int *how, uni_error *err);

static int repeat_call(uni_strategy *strategy, uni__elastic_call call, void *data, size_t bytes,
                       int status, const void *before, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    int how = 0, taken = 0;
    while (status < 0 && taken == 0) {
        if (!is_loss(status))
            return status;
        if (bytes > 0)
            memcpy(data, before, bytes);
        elastic->place = elastic->results.taken;
        UNI_TRY(recover(strategy, &how, err));
        taken = take_result(&elastic->results, data, bytes, err);
        status = taken != 0 ? taken : call(strategy, data, bytes, err);
    }
    if (taken != 0)
        return taken < 0 ? taken : 0;
    return keep_result(&elastic->results, data, bytes, err);
}

int uni__elastic_do(uni_strategy *strategy, uni__elastic_call call, void *data, size_t bytes,
                    uni_error *err)
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
                         : repeat_call(strategy, call, data, bytes, status, before, err);
    free(before);
    return status;
}

int uni__elastic_forgive(const uni_strategy *strategy, int status)
{
    return is_loss(status) && uni__elastic_is_active(strategy) ? 0 : status;
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

/* A rank that was updating a kernel by factors has changed some rows of it: only it had all of its
 * factors, and there is no journal. */
static int check_factored(const uni_strategy *strategy, const int64_t *info, uni_error *err)
{
    const uni__elastic *elastic = strategy->elastic;
    for (int rank = 0; rank < strategy->size; rank++) {
        const struct biography *life = &old_line(strategy, rank)->life;
        if (info[ROW * rank] && life->factored == elastic->step && life->finished != elastic->step)
            return uni_error_set(err, UNI_ESTATE,
                                 "rank %d died while it updated a kernel, which only it could end",
                                 rank);
    }
    return 0;
}

/* This rank's own rows, from the factors that the others showed in the old pages. */
static int complete_factored(uni_strategy *strategy, const uni__update *update, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    uni__fused now = strategy->fused;
    strategy->fused = elastic->old.fused;
    int status =
        uni__factors_are_shown(strategy, &elastic->trained)
            ? uni__factors_update(strategy, update, &elastic->trained, err)
            : uni_error_set(err, UNI_ESTATE, "a rank died before it had shown its factors");
    strategy->fused = now;
    return status;
}

/* Every slice of the step, as far as it is not done: this rank's own, and at the source those of
 * dead ranks. Counts are added up as the communicator would have. */
static int complete(uni_strategy *strategy, const int64_t *info, uni_error *err)
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
    if (!elastic->factored)
        UNI_TRY(complete_factored(strategy, &update, err));
    elastic->factored = true;
    if (!elastic->begun)
        UNI_TRY(uni__update_begin(&update, uni__trained_samples(trained), err));
    elastic->begun = true;
    for (int rank = 0; rank < strategy->size; rank++)
        if (rank == strategy->rank || (strategy->rank == elastic->source && info[ROW * rank])) {
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
    uni_model *model = strategy->elastic->model;
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
    strategy->fused =
        (uni__fused){ .on = true, .model = elastic->model, .moved = elastic->old.fused.moved };
    elastic->lines = NULL;
    strategy->comm = comm;
    return 0;
}

/* ---- where fit stands ---- */

/* Where a new rank begins. */
typedef enum uni__entry {
    ENTER_STEP, /* in the step of the others */
    ENTER_AFTER, /* after the last step of the epoch, with the results of calls since */
    ENTER_NOWHERE
} entry;

/* What is left to do of the dead rank's own decides. */
static entry entry_of(const uni_strategy *strategy, const struct biography *dead, bool decided)
{
    const uni__elastic *elastic = strategy->elastic;
    bool in_step = elastic->place == PLACE_IN_STEP;
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
        entry where = entry_of(strategy, &old_line(strategy, rank)->life, decided);
        if (info[ROW * rank] && where == ENTER_NOWHERE)
            status = uni_error_set(err, UNI_ESTATE,
                                   "rank %d died between two batches, and cannot be replaced: "
                                   "only it knew what its callbacks had done",
                                   rank);
        else
            status = uni_list_take(entries, uni_value_int(where));
    }
    if (status == 0)
        return uni_dict_take(message, "entries", entries);
    uni_value_free(entries);
    return status;
}

static int put_position(const uni_strategy *strategy, bool decided, uni_value *message,
                        uni_error *err)
{
    const uni__elastic *elastic = strategy->elastic;
    const uni__trained *trained = &elastic->trained;
    const results *calls = &elastic->results;
    uni_value *state = NULL;
    int status = 0;
    if (elastic->after)
        status =
            uni_dict_take(message, "after", uni_value_bytes(elastic->after, elastic->after_size)) |
            uni_dict_take(message, "results", uni_value_bytes(calls->bytes, calls->size));
    if (elastic->place != PLACE_IN_STEP || status < 0)
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

static int tell(uni_strategy *strategy, const int64_t *info, bool decided, uni_error *err)
{
    uni_value *message = uni_value_dict();
    void *bytes = NULL;
    size_t size = 0;
    int status = put_entries(strategy, info, decided, message, err);
    if (status == 0)
        status = uni_dict_take(message, "seed", uni_value_int((int64_t)strategy->elastic->seed));
    if (status == 0)
        status = put_position(strategy, decided, message, err);
    if (status == 0)
        status = pack(&bytes, &size, message, err);
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
static int adopt_results(results *mine, const uni_value *message, uni_error *err)
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
    free(elastic->made);
    elastic->made = NULL;
    forget_calls(elastic);
    if (uni_value_as_int(uni_list_get(entries, (size_t)strategy->rank), -1) == ENTER_STEP) {
        UNI_TRY(copy_bytes(message, "sums", &sums, &size, err));
        elastic->made = sums;
        elastic->num_made = size / sizeof *elastic->made;
        return uni__fit_join(model, uni_dict_get(message, "state"), err);
    }
    UNI_TRY(copy_bytes(message, "after", &elastic->after, &elastic->after_size, err));
    UNI_TRY(adopt_results(&elastic->results, message, err));
    UNI_TRY(uni__dict_decode(&after, elastic->after, elastic->after_size, err));
    int status = uni__fit_join(model, after, err);
    uni_value_free(after);
    return status;
}

/* model: of a new rank; NULL: a survivor, which knows where fit stands. */
static int hear(uni_strategy *strategy, uni_model *model, uni_error *err)
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
    else if (status == 0 && elastic->place != PLACE_IN_STEP)
        status = adopt_results(&elastic->results, message, err);
    uni_value_free(message);
    return status;
}

/* ---- meeting ---- */

/* Row b is farther than row a. */
static bool is_farther(const int64_t *a, const int64_t *b)
{
    return b[1] != a[1] ? b[1] > a[1] : b[2] > a[2];
}

/* 1 and 2 of elastic.h. info: [rank][is new, step, place]. */
static int agree(uni_strategy *strategy, int64_t *info, bool *decided, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    int64_t mine[ROW] = { 1 }, words[3] = { 0 };
    if (!elastic->joins)
        memcpy(mine, (int64_t[ROW]){ 0, (int64_t)elastic->step, elastic->place }, sizeof mine);
    UNI_TRY(uni_comm_all_gather(strategy->comm, mine, info, ROW, UNI_I64, err));
    elastic->source = -1;
    for (int rank = 0; rank < strategy->size; rank++)
        if (!info[ROW * rank] &&
            (elastic->source < 0 || is_farther(&info[ROW * elastic->source], &info[ROW * rank])))
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
    return 0;
}

/* What is known of this rank; at the source, of those that died, too. */
static void carry_lives(const uni_strategy *strategy, const int64_t *info)
{
    const uni__elastic *elastic = strategy->elastic;
    for (int rank = 0; rank < strategy->size; rank++)
        if (rank == strategy->rank || (strategy->rank == elastic->source && info[ROW * rank]))
            ((line *)uni__comm_buffer_peer(elastic->lines, rank))->life =
                old_line(strategy, rank)->life;
}

static int settle(uni_strategy *strategy, int64_t *info, int *how, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    bool decided = false;
    UNI_TRY(agree(strategy, info, &decided, err));
    bool in_step = elastic->place == PLACE_IN_STEP;
    bool behind = elastic->step < (uint64_t)info[ROW * elastic->source + 1];
    if (decided && !behind)
        UNI_TRY(complete(strategy, info, err));
    UNI_TRY(uni_comm_barrier(strategy->comm, err)); /* every slice is done */
    if (in_step && (decided || behind))
        uni__update_commit(&(uni__update){ .optimizer = elastic->trained.optimizer });
    UNI_TRY(move_gradients_out(strategy, err));
    elastic->moves = true;
    UNI_TRY(uni__fused_move(strategy, strategy->elastic->model, elastic->source, err));
    strategy->fused.samples = elastic->samples;
    UNI_TRY(make_lines(strategy, err));
    carry_lives(strategy, info);
    UNI_TRY(strategy->rank == elastic->source ? tell(strategy, info, decided, err)
                                              : hear(strategy, NULL, err));
    *how = in_step && !decided && !behind ? UNI__STEP_REPEAT : 0;
    return 0;
}

static int recover(uni_strategy *strategy, int *how, uni_error *err)
{
    uni__elastic *elastic = strategy->elastic;
    int status = UNI_EWORKER;
    uni__warn("%s; waiting for another worker in its place", err ? err->message : "a rank died");
    find_step(strategy);
    elastic->samples = strategy->fused.samples;
    int64_t *info = calloc((size_t)strategy->size * ROW, sizeof *info);
    if (!info)
        return uni_error_set(err, UNI_ENOMEM, "no memory to meet %d ranks", strategy->size);
    for (int tries = 0; is_loss(status) && tries < DEATHS_IN_A_ROW; tries++) {
        status = meet_again(strategy, err);
        if (status == 0)
            status = settle(strategy, info, how, err);
    }
    free(info);
    if (status < 0) {
        uni_error aside = { 0 };
        (void)!move_out(strategy, &aside); /* the model outlives the pages */
        return status;
    }
    let_go(&elastic->old);
    elastic->shown = elastic->moves = false;
    elastic->compares = true;
    if (err)
        *err = (uni_error){ 0 };
    return 0;
}

int uni__elastic_recover(void *context, int status, uni_error *err)
{
    uni_strategy *strategy = context;
    int how = 0;
    if (!is_loss(status) || !uni__elastic_is_active(strategy))
        return status;
    strategy->elastic->place = PLACE_IN_STEP;
    UNI_TRY(recover(strategy, &how, err));
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

static int join(uni_strategy *strategy, uni_model *model, int64_t *info, uni_error *err)
{
    bool decided = false;
    UNI_TRY(agree(strategy, info, &decided, err));
    UNI_TRY(uni_comm_barrier(strategy->comm, err));
    UNI_TRY(uni__fused_move(strategy, model, strategy->elastic->source, err));
    strategy->fused.samples = strategy->elastic->samples;
    UNI_TRY(make_lines(strategy, err));
    return hear(strategy, model, err);
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
    uni_comm_close(strategy->comm);
    strategy->comm = NULL;
    return elastic->vtable->meet(elastic->context, elastic->number, &strategy->comm,
                                 &elastic->number, err);
}

int uni__elastic_join(uni_strategy *strategy, uni_model *model, uint64_t *seed, uni_error *err)
{
    int64_t *info = calloc((size_t)strategy->size * ROW, sizeof *info);
    if (!info)
        return uni_error_set(err, UNI_ENOMEM, "no memory to meet %d ranks", strategy->size);
    int status = join(strategy, model, info, err);
    for (int tries = 0; is_loss(status) && tries < DEATHS_IN_A_ROW; tries++) {
        status = leave(strategy, model, err);
        if (status == 0)
            status = join(strategy, model, info, err);
    }
    free(info);
    UNI_TRY(status);
    *seed = strategy->elastic->seed;
    strategy->elastic->joins = false;
    return 0;
}
