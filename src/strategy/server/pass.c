/*
 * pass.c - a pass of a custom training loop over parameter servers: the workers call the replica
 * function of uni_strategy_run for the batches that the coordinator names.
 *
 * Every pass is a phase, like fit: all members call it, and a restarted member skips those that are
 * done. A call reports a row of numbers: whether it trained, how many numbers the function
 * returned, the first of them, and the states of the metrics. The gradients of apply_gradients are
 * pushed after the function has returned, together with that row. So a call whose worker dies after
 * its push is not repeated. Called on each member's own thread.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "strategy/internal.h"
#include "strategy/server/internal.h"

enum { TRAINED, VALUES, VALUE, STATES }; /* indices into the row */

typedef struct uni__pass {
    uni_strategy *strategy;
    uni__ps *ps;
    const uni_pass_options *options;
    uni__server_feed feed;
    double row[UNI__PS_MAX_SUMS];
    size_t size; /* of the row */
    /* worker */
    uint64_t id;
    /* Sums of batch statistics so far in this step. */
    uint32_t statistics;
    uni_gradients *gradients; /* to push; NULL: this call does not train */
    /* The model has the newest weights known. */
    bool fresh;
} pass;

/* ---- worker ---- */

int uni__ps_keep_gradients(uni__ps *ps, uni_gradients *gradients, uni_error *err)
{
    if (!ps->pass || uni__gradients_store(gradients) != uni_model_parameters(ps->model))
        return uni_error_set(err, UNI_EINVAL,
                             "these gradients are not those of the model that was placed");
    if (ps->pass->gradients)
        return uni_error_set(err, UNI_ESTATE,
                             "apply_gradients twice in one call: with parameter servers a call is "
                             "one update; add the losses up");
    ps->pass->gradients = gradients;
    return 0;
}

static int sum_statistics(void *context, float *values, size_t count, uni_error *err)
{
    pass *p = context;
    return uni__ps_sum(p->ps, p->id, p->statistics++, values, count, err);
}

static void read_row(pass *p, const uni_per_replica *values)
{
    const uni_replica_context *replica = &values->crew->replicas[0];
    size_t at = STATES;
    p->row[TRAINED] = p->gradients != NULL;
    p->row[VALUES] = (double)replica->count;
    p->row[VALUE] = replica->count > 0 ? replica->values[0] : 0;
    for (int i = 0; i < p->options->num_metrics; i++) {
        size_t size = 0;
        const double *state = uni__metric_state(p->options->metrics[i], &size);
        memcpy(p->row + at, state, size * sizeof *state);
        at += size;
    }
}

/* Calls the function with this worker's batch. */
static int call_function(pass *p, const uni__batch_call *call, uni_error *err)
{
    const uni_per_replica *values = NULL;
    uni_batch batch;
    UNI_TRY(uni__server_feed_batch(&p->feed, p->ps, call, p->id, &batch, err));
    for (int i = 0; i < p->options->num_metrics; i++)
        uni_metric_reset(p->options->metrics[i]);
    p->strategy->steps = (uint64_t)call->step;
    UNI_TRY(uni__run_replicas(p->strategy, p->options->function, p->options->context, &batch,
                              &values, err));
    read_row(p, values);
    return 0;
}

/* Pushes the step: with its gradients, or an empty part where others wait for it. */
static int push(pass *p, uni_error *err)
{
    size_t states = 0;
    uni__parameters_states(uni_model_parameters(p->ps->model), &states);
    bool bounded = p->ps->board.header->shape.mode == UNI_PS_BOUNDED;
    uni__push what = { .id = p->id, .samples = UNI__NO_UPDATE, .sums = p->row };
    if (p->gradients) {
        what.gradient = uni_gradients_data(p->gradients, NULL);
        what.has_states = states > 0;
        what.samples = 0; /* the loss is already divided */
        what.want_weights = !bounded;
    } else if (!uni__ps_is_synchronous(p->ps) && !bounded) {
        return 0;
    }
    what.num_sums = p->size;
    p->fresh = p->gradients ? !bounded : p->fresh && !bounded;
    return uni__ps_push(p->ps, &what, err);
}

static int work(pass *p, const uni__work *todo, const uni__batch_call *call, uni_error *err)
{
    uni__ps *ps = p->ps;
    uni_error own = { 0 };
    uint64_t step = todo->id / (uint64_t)uni__ps_lanes(ps);
    bool synchronous = uni__ps_is_synchronous(ps);
    p->id = todo->id;
    p->statistics = 0;
    p->gradients = NULL;
    if (!p->fresh || (synchronous ? ps->version != step : ps->worker.waited)) {
        UNI_TRY(uni__ps_pull(ps, UNI__PULL_FOR_STEP, step, err));
        p->fresh = true;
    }
    int status = call_function(p, call, &own);
    if (status == UNI_ECANCELED && uni__ps_phase_over(ps))
        return 0;
    if (status < 0) {
        p->gradients = NULL;
        memset(p->row, 0, sizeof p->row);
    }
    UNI_TRY(push(p, err));
    if (status < 0)
        return uni__ps_set_result(ps, status, own.message, strlen(own.message), err);
    return uni__ps_set_result(ps, 0, p->row, p->size * sizeof *p->row, err);
}

static int run_worker(pass *p, uni_error *err)
{
    uni__ps *ps = p->ps;
    int status = 1;
    ps->pass = p;
    if (uni__ps_is_synchronous(ps))
        p->strategy->updater.sync = (uni_sync){ .context = p, .sum = sum_statistics };
    while (status > 0 && !uni__ps_phase_over(ps)) {
        uni__work todo;
        uni__batch_call call;
        status = uni__server_feed_call(ps, &todo, &call, err);
        if (status > 0) {
            int done = work(p, &todo, &call, err);
            status = done < 0 ? done : 1;
        }
    }
    p->strategy->updater.sync = (uni_sync){ 0 };
    ps->pass = NULL;
    return status == UNI_ECANCELED && uni__ps_phase_over(ps) ? 0 : status < 0 ? status : 0;
}

/* ---- coordinator ---- */

static void add_row(void *context, int status, const void *data, size_t size)
{
    pass *p = context;
    const double *row = data;
    for (size_t i = 0; status == 0 && i < p->size && i < size / sizeof *row; i++)
        p->row[i] += row[i];
}

static int schedule_batches(pass *p, int64_t *steps, uni_error *err)
{
    uni__ps *ps = p->ps;
    int64_t length = uni__batches_length(p->feed.global);
    if (length < 0)
        UNI_TRY(uni_batches_reset(p->feed.global, p->options->epoch, err));
    for (*steps = 0; length < 0 || *steps < length; (*steps)++) {
        uni_batch batch;
        int more = length < 0 ? uni_batches_next(&batch, p->feed.global, err) : 1;
        UNI_TRY(more);
        if (more == 0)
            break;
        uni__batch_call call = { .epoch = p->options->epoch,
                                 .batch = (uint64_t)*steps,
                                 .step = (int64_t)p->strategy->steps + *steps };
        for (int part = 0; part < uni__ps_lanes(ps); part++)
            UNI_TRY(uni__ps_schedule(ps, 0, &call, sizeof call, add_row, p, err));
        UNI_TRY(uni__ps_join(ps, (uint64_t)(UNI__PS_AHEAD * ps->cluster.workers), err));
    }
    return uni__ps_join(ps, 0, err);
}

static int run_coordinator(pass *p, double *sum, int64_t *steps, uni_error *err)
{
    uni__ps *ps = p->ps;
    int64_t count = 0;
    UNI_TRY(schedule_batches(p, &count, err));
    if (count == 0)
        return uni__no_batch(p->options, err);
    if (sum && p->row[VALUES] != (double)(count * uni__ps_lanes(ps)))
        return uni_error_set(err, UNI_ESHAPE,
                             "a sum over the pass was asked for, but the function did not return "
                             "one number a call (uni_replica_return)");
    size_t at = STATES;
    for (int i = 0; i < p->options->num_metrics; i++) {
        size_t size = 0;
        double *state = uni__metric_state(p->options->metrics[i], &size);
        for (size_t j = 0; j < size; j++)
            state[j] += p->row[at++];
    }
    if (sum)
        *sum = p->row[VALUE];
    if (steps)
        *steps = count;
    if (p->row[TRAINED] == 0)
        return 0;
    p->strategy->steps += (uint64_t)count;
    UNI_TRY(uni__ps_pull(ps, 0, 0, err));
    UNI_TRY(uni__ps_pull_state(ps, err));
    UNI_TRY(uni__ps_fetch_stats(ps, err));
    return ps->options.no_replica
               ? uni__server_store_publish(&ps->board, ps->model, ps->optimizer, ps->version, err)
               : 0;
}

/* ---- both ---- */

static int size_row(pass *p, uni_error *err)
{
    p->size = STATES;
    for (int i = 0; i < p->options->num_metrics; i++) {
        size_t size = 0;
        uni__metric_state(p->options->metrics[i], &size);
        p->size += size;
    }
    if (p->size <= UNI__PS_MAX_SUMS)
        return 0;
    return uni_error_set(err, UNI_ELIMIT,
                         "a step reports %zu numbers (its value and the states of metrics); "
                         "parameter_server carries at most %d: use fewer metrics",
                         p->size, UNI__PS_MAX_SUMS);
}

int uni__ps_pass(uni_strategy *strategy, const uni_pass_options *options, double *sum,
                 int64_t *steps, uni_error *err)
{
    uni__ps *ps = strategy->server;
    UNI_TRY(uni__ps_must_be_placed(ps, err));
    if (ps->in_phase)
        return uni_error_set(err, UNI_EBUSY, "this strategy has a coordinator, which is open");
    pass *p = calloc(1, sizeof *p);
    if (!p)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a pass");
    *p = (pass){ .strategy = strategy, .ps = ps, .options = options };
    p->feed.global = options->batches;
    uni__ps_begin_phase(ps);
    int status = size_row(p, err);
    if (status == 0 && uni__ps_is_coordinator(ps))
        status = run_coordinator(p, sum, steps, err);
    else if (status == 0 && uni__ps_is_worker(ps))
        status = run_worker(p, err);
    else if (status == 0)
        status = uni__ps_serve(ps, err);
    uni__ps_end_phase(ps);
    free(p);
    return status;
}
