/*
 * coordinator.c - the public coordinator: step functions by name, remote values, per-worker
 * datasets (unisono/coordinator.h). Called on each member's own thread.
 */
#include <assert.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/coordinator.h>

#include "tensor/shared.h"
#include "strategy/internal.h"
#include "strategy/server/internal.h"

/* Function number of an empty part of a synchronous step; user functions count from 1. */
#define PADDING 0

typedef struct dataset {
    char *name;
    uni_dataset_function make;
    void *context;
    uni_batches *batches;
    uint64_t epoch;
} dataset;

struct uni_coordinator {
    uni__ps *ps;
    const uni_step_entry *entries;
    dataset *datasets;
    size_t num_datasets;
};

struct uni_step_context {
    uni_step_info info; /* filled by uni_step_info_of */
    uni_coordinator *coordinator;
    const uni_step_entry *entry;
    uint64_t id, pushes;
    /* Bounded staleness: it has read and not pushed yet. */
    bool ticket;
};

struct uni_remote_value {
    uni__ps *ps;
    int holders; /* the caller, and the queue until it is done */
    bool ready;
    uni_value *value;
    uni_error error;
};

/* ---- life ---- */

int uni_coordinator_open(uni_coordinator **out, uni_strategy *strategy,
                         const uni_step_entry *entries, uni_error *err)
{
    *out = NULL;
    uni__ps *ps = uni__ps_of(strategy);
    if (!ps)
        return uni_error_set(err, UNI_EINVAL,
                             "a coordinator needs the strategy parameter_server, not %s",
                             uni_strategy_info_of(strategy)->name);
    UNI_TRY(uni__ps_must_be_placed(ps, err));
    if (ps->in_phase)
        return uni_error_set(err, UNI_EBUSY, "this strategy has a coordinator already");
    uni_coordinator *coordinator = calloc(1, sizeof *coordinator);
    if (!coordinator)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a coordinator");
    coordinator->ps = ps;
    coordinator->entries = entries;
    uni__ps_begin_phase(ps);
    *out = coordinator;
    return 0;
}

void uni_coordinator_close(uni_coordinator *coordinator)
{
    if (!coordinator)
        return;
    uni__ps_end_phase(coordinator->ps);
    for (size_t i = 0; i < coordinator->num_datasets; i++) {
        uni_batches_free(coordinator->datasets[i].batches);
        free(coordinator->datasets[i].name);
    }
    free(coordinator->datasets);
    free(coordinator);
}

bool uni_coordinator_is_here(const uni_coordinator *coordinator)
{
    return uni__ps_is_coordinator(coordinator->ps);
}

int uni_coordinator_per_worker_dataset(uni_coordinator *coordinator, const char *name,
                                       uni_dataset_function make, void *context, uni_error *err)
{
    dataset *grown =
        realloc(coordinator->datasets, (coordinator->num_datasets + 1) * sizeof *grown);
    char *copy = strdup(name);
    if (grown)
        coordinator->datasets = grown;
    if (!grown || !copy) {
        free(copy);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    }
    coordinator->datasets[coordinator->num_datasets++] =
        (dataset){ .name = copy, .make = make, .context = context };
    return 0;
}

/* ---- on workers ---- */

const uni_step_info *uni_step_info_of(const uni_step_context *step)
{
    uni_step_info *info = &((uni_step_context *)step)->info;
    assert(step->entry != NULL); /* a step is called only when it was found */
    *info = (uni_step_info){
        .context = step->entry->context,
        .worker = step->coordinator->ps->cluster.rank - 1,
        .num_workers = step->coordinator->ps->cluster.workers,
        .number = step->id,
    };
    return info;
}

int uni_step_pull(uni_step_context *step, uni_error *err)
{
    uni__ps *ps = step->coordinator->ps;
    step->ticket = ps->board.header->shape.mode == UNI_PS_BOUNDED;
    return uni__ps_pull(ps, UNI__PULL_FOR_STEP, step->id / (uint64_t)uni__ps_lanes(ps), err);
}

int uni_step_push(uni_step_context *step, uni_gradients *gradients, double samples, uni_error *err)
{
    uni__ps *ps = step->coordinator->ps;
    uni_parameters *store = uni_model_parameters(ps->model);
    size_t states = 0;
    uni__parameters_states(store, &states);
    if (uni__gradients_store(gradients) != store)
        return uni_error_set(err, UNI_EINVAL,
                             "these gradients are not those of the model that was placed");
    if (!(samples >= 0 && samples <= DBL_MAX))
        return uni_error_set(err, UNI_EINVAL, "a push of %g samples makes no sense", samples);
    UNI_TRY(uni__ps_push(ps,
                         &(uni__push){ .id = step->id,
                                       .number = step->pushes,
                                       .gradient = uni_gradients_data(gradients, NULL),
                                       .has_states = states > 0,
                                       .samples = samples },
                         err));
    /* A failed push does not count: an empty part takes its place. */
    step->pushes++;
    return 0;
}

int uni_step_next(uni_batch *out, uni_step_context *step, const char *name, uni_error *err)
{
    uni_coordinator *coordinator = step->coordinator;
    dataset *found = NULL;
    for (size_t i = 0; i < coordinator->num_datasets; i++)
        if (strcmp(coordinator->datasets[i].name, name) == 0)
            found = &coordinator->datasets[i];
    if (!found)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "there is no dataset \"%s\": name it with "
                             "uni_coordinator_per_worker_dataset on every member",
                             name);
    if (!found->batches) {
        UNI_TRY(found->make(found->context, uni_step_info_of(step)->worker,
                            uni_step_info_of(step)->num_workers, &found->batches, err));
        UNI_TRY(uni_batches_reset(found->batches, 0, err));
    }
    int status = uni_batches_next(out, found->batches, err);
    if (status == 0)
        UNI_TRY(uni_batches_reset(found->batches, ++found->epoch, err));
    return status;
}

/* Pushes an empty part. In a synchronous step the others wait for it; under bounded staleness it
 * returns the ticket that the read has taken. */
static int pad(uni_step_context *step, uni_error *err)
{
    return uni__ps_push(step->coordinator->ps,
                        &(uni__push){ .id = step->id, .samples = UNI__NO_UPDATE }, err);
}

static int call_function(uni_coordinator *coordinator, const uni__work *work, uni_value **result,
                         uni_error *err)
{
    uni_value *arguments = NULL;
    uni_step_context step = { .coordinator = coordinator, .id = work->id };
    if (work->function == PADDING)
        return pad(&step, err);
    uint32_t known = 0;
    while (known < work->function && coordinator->entries[known].name)
        step.entry = &coordinator->entries[known++];
    int status = work->size > 0 ? uni__ps_decode(&arguments, work->arguments, work->size, err) : 0;
    if (status == 0 && (known < work->function || !step.entry || !step.entry->call))
        status = uni_error_set(err, UNI_EMISMATCH,
                               "worker %d has no step function %u: give uni_coordinator_open the "
                               "same ones on every member",
                               uni_step_info_of(&step)->worker, work->function);
    else if (status == 0)
        status = step.entry->call(&step, arguments, result, err);
    uni_value_free(arguments);
    /* Pad on failure as well, or the others would wait forever. */
    if (step.pushes == 0 && (uni__ps_is_synchronous(coordinator->ps) || step.ticket)) {
        uni_error aside = { 0 };
        int padded = pad(&step, status < 0 ? &aside : err);
        status = status < 0 ? status : padded;
    }
    return status;
}

static int run_call(uni_coordinator *coordinator, const uni__work *work, uni_error *err)
{
    uni__ps *ps = coordinator->ps;
    uni_value *result = NULL;
    uni_error own = { 0 };
    void *bytes = NULL;
    size_t size = 0;
    int status = call_function(coordinator, work, &result, &own);
    if (status == UNI_ECANCELED && uni__ps_phase_over(ps)) {
        uni_value_free(result);
        return 0;
    }
    if (status >= 0 && result)
        status = uni__ps_encode(&bytes, &size, result, &own);
    uni_value_free(result);
    if (status < 0) {
        const char *sentence =
            own.message[0] ? own.message : "the step function failed without a message";
        free(bytes);
        return uni__ps_set_result(ps, status, sentence, strlen(sentence), err);
    }
    status = uni__ps_set_result(ps, 0, bytes, size, &own);
    free(bytes);
    if (status < 0)
        return uni__ps_set_result(ps, status, own.message, strlen(own.message), err);
    return 0;
}

int uni_coordinator_serve(uni_coordinator *coordinator, uni_error *err)
{
    uni__ps *ps = coordinator->ps;
    if (uni__ps_is_coordinator(ps))
        return uni_error_set(err, UNI_ESTATE,
                             "the coordinator does not serve: it schedules (look at "
                             "uni_coordinator_is_here)");
    if (!uni__ps_is_worker(ps))
        return uni__ps_serve(ps, err);
    while (!uni__ps_phase_over(ps)) {
        uni__work work;
        int found = uni__ps_next_work(ps, &work, err);
        if (found <= 0)
            return found;
        UNI_TRY(run_call(coordinator, &work, err));
    }
    return 0;
}

/* ---- on the coordinator ---- */

static int must_be_here(const uni_coordinator *coordinator, uni_error *err)
{
    return uni_coordinator_is_here(coordinator)
               ? 0
               : uni_error_set(err, UNI_ESTATE,
                               "only the coordinator (rank 0) schedules; the other members call "
                               "uni_coordinator_serve");
}

static void let_go(uni_remote_value *remote)
{
    if (--remote->holders > 0)
        return;
    uni_value_free(remote->value);
    free(remote);
}

static void take_result(void *context, int status, const void *data, size_t size)
{
    uni_remote_value *remote = context;
    remote->ready = true;
    if (status < 0)
        uni_error_set(&remote->error, status, "%.*s", (int)(size < 900 ? size : 900),
                      (const char *)data);
    else if (size > 0 && uni__ps_decode(&remote->value, data, size, &remote->error) < 0)
        remote->value = NULL;
    let_go(remote);
}

static int find_function(const uni_coordinator *coordinator, const char *name, uint32_t *out,
                         uni_error *err)
{
    for (uint32_t i = 0; coordinator->entries[i].name; i++)
        if (strcmp(coordinator->entries[i].name, name) == 0) {
            *out = i + 1;
            return 0;
        }
    return uni_error_set(err, UNI_ENOTFOUND,
                         "there is no step function \"%s\" among those given to "
                         "uni_coordinator_open",
                         name);
}

/* Polling counts as waiting: admits members and hands out calls. False: the run is over, as join
 * will report. */
static bool move_on(uni__ps *ps)
{
    bool alive = uni__ps_attend(ps, NULL) == 0;
    uni__ps_progress(ps);
    return alive && uni__ps_complete_step(ps, NULL) == 0;
}

int uni_coordinator_schedule(uni_remote_value **remote, uni_coordinator *coordinator,
                             const char *function, const uni_value *arguments, uni_error *err)
{
    uint32_t number = 0;
    void *bytes = NULL;
    size_t size = 0;
    if (remote)
        *remote = NULL;
    UNI_TRY(must_be_here(coordinator, err));
    UNI_TRY(find_function(coordinator, function, &number, err));
    UNI_TRY(uni__ps_attend(coordinator->ps, err));
    if (arguments)
        UNI_TRY(uni__ps_encode(&bytes, &size, arguments, err));
    uni_remote_value *made = remote ? calloc(1, sizeof *made) : NULL;
    int status = remote && !made ? uni_error_set(err, UNI_ENOMEM, "no memory for a result") : 0;
    if (made)
        *made = (uni_remote_value){ .ps = coordinator->ps, .holders = 2 };
    if (status == 0)
        status = uni__ps_schedule(coordinator->ps, number, bytes, size, made ? take_result : NULL,
                                  made, err);
    free(bytes);
    if (status < 0)
        free(made);
    else if (remote)
        *remote = made;
    return status;
}

int uni_coordinator_join(uni_coordinator *coordinator, uni_error *err)
{
    uni__ps *ps = coordinator->ps;
    UNI_TRY(must_be_here(coordinator, err));
    while (ps->queue->next % (uint64_t)ps->queue->lanes)
        UNI_TRY(uni__ps_schedule(ps, PADDING, NULL, 0, NULL, NULL, err));
    return uni__ps_join(ps, 0, err);
}

bool uni_coordinator_done(uni_coordinator *coordinator)
{
    uni__ps *ps = coordinator->ps;
    if (!uni__ps_is_coordinator(ps))
        return uni__ps_phase_over(ps);
    return !move_on(ps) || ps->queue->low == ps->queue->next;
}

int uni_coordinator_pull(uni_coordinator *coordinator, uni_error *err)
{
    uni__ps *ps = coordinator->ps;
    UNI_TRY(must_be_here(coordinator, err));
    UNI_TRY(uni__ps_pull(ps, 0, 0, err));
    UNI_TRY(uni__ps_pull_state(ps, err));
    return ps->options.no_replica
               ? uni__server_store_publish(&ps->board, ps->model, ps->optimizer, ps->version, err)
               : 0;
}

int uni_coordinator_stats(uni_value **out, uni_coordinator *coordinator, uni_error *err)
{
    *out = NULL;
    UNI_TRY(must_be_here(coordinator, err));
    UNI_TRY(uni__ps_fetch_stats(coordinator->ps, err));
    return uni__ps_stats_value(coordinator->ps, out, err);
}

int uni_strategy_server_stats(uni_value **out, const uni_strategy *strategy, uni_error *err)
{
    uni__ps *ps = uni__ps_of(strategy);
    *out = NULL;
    if (!ps || !ps->placed || !uni__ps_is_coordinator(ps))
        return uni_error_set(err, UNI_ESTATE,
                             "only the coordinator of parameter_server has these numbers, after "
                             "fit");
    return uni__ps_stats_value(ps, out, err);
}

/* ---- remote values ---- */

bool uni_remote_value_is_ready(const uni_remote_value *remote)
{
    if (!remote->ready && remote->ps->in_phase)
        (void)move_on(remote->ps);
    return remote->ready;
}

int uni_remote_value_fetch(const uni_value **out, uni_remote_value *remote, uni_error *err)
{
    uni__ps *ps = remote->ps;
    *out = NULL;
    while (!remote->ready) {
        uint32_t seen = uni__bell_look(&ps->board);
        if (!ps->in_phase)
            return uni_error_set(err, UNI_ECANCELED,
                                 "the coordinator was closed before this call was done");
        UNI_TRY(uni__ps_complete_step(ps, err));
        if (!uni__ps_progress(ps) && !remote->ready)
            UNI_TRY(uni__ps_idle(ps, seen, err));
    }
    if (remote->error.code < 0) {
        if (err)
            *err = remote->error;
        return remote->error.code;
    }
    *out = remote->value;
    return 0;
}

void uni_remote_value_free(uni_remote_value *remote)
{
    if (remote)
        let_go(remote);
}
