/*
 * fit.c - Model.fit over parameter servers: the engine's own fit on both sides.
 *
 * The coordinator runs uni_model_fit with a replica that computes nothing. Its batches are empty,
 * its `reduce` schedules the step on the workers and adds up their results, and its slice of the
 * update is empty. So epochs, callbacks, validation, history and printing are fit's own. Scheduled
 * steps run a few ahead of it. At the end of an epoch it waits for all of them, and fetches weights
 * and optimizer state for validation and checkpoints.
 *
 * A worker runs uni_model_fit over a source whose `next` waits for the coordinator's next call. The
 * call names the batch: one of the user's own source, by epoch and number, or (synchronous) this
 * worker's part of it. The worker's `reduce` pushes the gradient.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/shared.h"
#include "nn/shared.h"
#include "base/log.h"
#include "nn/step.h"
#include "strategy/server/internal.h"

typedef struct fit {
    uni__ps *ps;
    uni_model *model;
    uint64_t seed;
    uni__server_feed feed;
    bool owns_global;
    /* coordinator */
    uint64_t epoch, batch; /* fit's position */
    uni_batch empty; /* no samples, only shapes */
    bool known_length, has_more;
    bool handed_out; /* fit's batch has not been scheduled yet */
    int64_t length, steps_per_epoch, in_epoch;
    double sums[UNI__PS_MAX_SUMS]; /* reported, not passed to fit yet */
    size_t num_sums;
    double rate;
    bool has_schedule;
    /* worker */
    uint64_t id, step;
    /* Sums of batch statistics so far in this step. */
    uint32_t statistics;
    bool fresh; /* the model already has this step's weights */
    int64_t served;
    bool over; /* the coordinator has no more steps */
} fit;

/* ---- coordinator ---- */

static void make_empty(fit *f, const uni_batch *batch)
{
    f->empty = *batch;
    f->empty.global_size = batch->size;
    f->empty.size = f->empty.first_sample = 0;
    for (int i = 0; i < batch->num_x; i++)
        f->empty.x[i].shape[0] = 0;
    for (int i = 0; i < batch->num_y; i++)
        f->empty.y[i].shape[0] = 0;
    if (batch->weights.dtype)
        f->empty.weights.shape[0] = 0;
}

/* Reads one batch ahead when the source does not know its length, to recognize the last batch. */
static int look_ahead(fit *f, uni_error *err)
{
    uni_batch batch;
    int found = uni_batches_next(&batch, f->feed.global, err);
    UNI_TRY(found);
    f->has_more = found == 1;
    if (found == 1)
        make_empty(f, &batch);
    return 0;
}

static int empty_reset(void *self, uint64_t epoch, uni_error *err)
{
    fit *f = self;
    f->epoch = epoch;
    f->batch = 0;
    f->in_epoch = 0;
    if (f->known_length && f->empty.num_x > 0)
        return 0;
    UNI_TRY(uni_batches_reset(f->feed.global, epoch, err));
    return look_ahead(f, err);
}

static int empty_next(void *self, uni_batch *out, uni_error *err)
{
    fit *f = self;
    if (f->known_length ? (int64_t)f->batch >= f->length : !f->has_more)
        return 0;
    *out = f->empty;
    f->batch++;
    f->handed_out = true;
    if (!f->known_length)
        UNI_TRY(look_ahead(f, err));
    return 1;
}

static int64_t empty_length(void *self)
{
    fit *f = self;
    return f->known_length ? f->length : -1;
}

/* The result of one call: samples, losses and metric states. */
static void add_result(void *context, int status, const void *data, size_t size)
{
    fit *f = context;
    const double *sums = data;
    if (status == 0)
        for (size_t i = 1; i < f->num_sums && i < size / sizeof *sums; i++)
            f->sums[i] += sums[i];
}

/* Passes a learning rate that a callback has set on to the servers. */
static int tell_rate(fit *f, uni_error *err)
{
    double rate = uni_optimizer_learning_rate(f->ps->optimizer, NULL);
    if (f->has_schedule || rate == f->rate)
        return 0;
    f->rate = rate;
    return uni__ps_set_rate(f->ps, rate, err);
}

static int fetch_model(fit *f, uni_error *err)
{
    uni_optimizer *optimizer = f->ps->optimizer;
    UNI_TRY(uni__ps_pull(f->ps, 0, 0, err));
    UNI_TRY(uni__ps_pull_state(f->ps, err));
    UNI_TRY(uni__ps_fetch_stats(f->ps, err));
    if (f->ps->options.no_replica)
        UNI_TRY(uni__server_store_publish(&f->ps->board, f->model, optimizer, f->ps->version, err));
    /* The step that is about to be counted is one of theirs. */
    uni__optimizer_set_iterations(optimizer, uni_optimizer_iterations(optimizer) - 1);
    return 0;
}

/* The servers update the weights; here the step is only counted. */
static int count_step(const uni__trained *trained, uni_error *err)
{
    uni__update update = { .optimizer = trained->optimizer, .gradients = trained->gradients };
    UNI_TRY(uni__update_begin(&update, uni__trained_samples(trained), err));
    uni__update_commit(&update);
    return 0;
}

/* The coordinator's updater: its batches are empty, and calls to the workers do the work. */
static int schedule_step(void *context, const uni__trained *trained, uni_error *err)
{
    fit *f = context;
    uni__ps *ps = f->ps;
    uni_gradients *gradients = trained->gradients;
    double *sums = trained->sums;
    size_t num_sums = trained->num_sums;
    if (!gradients && f->handed_out)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "gradient_accumulation_steps cannot be used under parameter_server: "
                             "give fit a larger batch_size instead");
    if (!gradients)
        /* Totals of a validation or an epoch, which only the coordinator has. */
        return 0;
    f->handed_out = false;
    if (num_sums > UNI__PS_MAX_SUMS)
        return uni_error_set(err, UNI_ELIMIT,
                             "a step reports %zu numbers (losses and states of metrics); "
                             "parameter_server carries at most %d: use fewer metrics",
                             num_sums, UNI__PS_MAX_SUMS);
    f->num_sums = num_sums;
    UNI_TRY(tell_rate(f, err));
    uni__batch_call call = { .epoch = f->epoch,
                             .batch = f->batch - 1,
                             .step = uni__model_steps(f->model) };
    for (int part = 0; part < uni__ps_lanes(ps); part++)
        UNI_TRY(uni__ps_schedule(ps, 0, &call, sizeof call, add_result, f, err));
    f->in_epoch++;
    bool last = (f->known_length ? (int64_t)f->batch >= f->length : !f->has_more) ||
                (f->steps_per_epoch > 0 && f->in_epoch >= f->steps_per_epoch) || sums[0] > 0;
    UNI_TRY(uni__ps_join(ps, last ? 0 : (uint64_t)(UNI__PS_AHEAD * ps->cluster.workers), err));
    for (size_t i = 1; i < num_sums; i++) {
        sums[i] = f->sums[i];
        f->sums[i] = 0;
    }
    if (last && f->steps_per_epoch > 0)
        f->in_epoch = 0;
    if (last)
        UNI_TRY(fetch_model(f, err));
    return count_step(trained, err);
}

/* ---- worker ---- */

static int work_next(void *self, uni_batch *out, uni_error *err)
{
    fit *f = self;
    uni__ps *ps = f->ps;
    uni__work work;
    uni__batch_call call;
    int found = uni__server_feed_call(ps, &work, &call, err);
    f->over = found == 0;
    if (found <= 0)
        return found;
    f->id = work.id;
    f->step = work.id / (uint64_t)uni__ps_lanes(ps);
    f->statistics = 0;
    /* Weights that came with the last push are current if nothing was awaited since. */
    bool good =
        f->fresh && (uni__ps_is_synchronous(ps) ? ps->version == f->step : !ps->worker.waited);
    if (!good)
        UNI_TRY(uni__ps_pull(ps, UNI__PULL_FOR_STEP, f->step, err));
    f->fresh = false;
    uni__model_set_steps(f->model, call.step);
    UNI_TRY(uni__server_feed_batch(&f->feed, ps, &call, work.id, out, err));
    f->served++;
    return 1;
}

static int work_reset(void *self, uint64_t epoch, uni_error *err)
{
    return 0; /* calls name the epoch */
}

/* A worker's updater. */
static int push_step(void *context, const uni__trained *trained, uni_error *err)
{
    fit *f = context;
    double *sums = trained->sums;
    size_t num_sums = trained->num_sums;
    if (!trained->gradients)
        return 0;
    size_t states = 0;
    uni__parameters_states(uni_model_parameters(f->model), &states);
    bool bounded = f->ps->board.header->shape.mode == UNI_PS_BOUNDED;
    uni__push push = { .id = f->id,
                       .gradient = uni_gradients_data(trained->gradients, NULL),
                       .has_states = states > 0,
                       .samples = sums[1],
                       .sums = sums,
                       .num_sums = num_sums,
                       .want_weights = !bounded };
    UNI_TRY(uni__ps_push(f->ps, &push, err));
    f->fresh = !bounded;
    sums[0] = 0;
    UNI_TRY(uni__ps_set_result(f->ps, 0, sums, num_sums * sizeof *sums, err));
    return count_step(trained, err);
}

static int sum_statistics(void *context, float *values, size_t count, uni_error *err)
{
    fit *f = context;
    return uni__ps_sum(f->ps, f->id, f->statistics++, values, count, err);
}

/* ---- both ---- */

static int open_global(fit *f, const uni_fit_options *asked, uni_error *err)
{
    if (asked->batches) {
        f->feed.global = asked->batches;
    } else {
        if (!asked->x || asked->num_x < 1)
            return uni_error_set(err, UNI_EINVAL, "there is no data: give x (and y), or batches");
        uni_columns_options how = { .batch_size = asked->batch_size,
                                    .shuffle = !asked->no_shuffle,
                                    .seed = f->seed };
        UNI_TRY(uni_batches_columns(&f->feed.global, asked->num_x, asked->x, asked->num_y, asked->y,
                                    asked->sample_weight, &how, err));
        f->owns_global = true;
    }
    f->length = uni__batches_length(f->feed.global);
    f->known_length = f->length >= 0;
    f->steps_per_epoch = asked->steps_per_epoch;
    return 0;
}

static int run(fit *f, const uni_fit_options *asked, uni_value **history, uni_error *err)
{
    static const uni_batches_class empty_class = { .name = "steps of parameter_server",
                                                   .next = empty_next,
                                                   .reset = empty_reset,
                                                   .length = empty_length },
                                   work_class = { .name = "calls of the coordinator",
                                                  .next = work_next,
                                                  .reset = work_reset };
    bool coordinates = uni__ps_is_coordinator(f->ps);
    uni_fit_options options = *asked;
    uni__updater updater = { .name = "parameter_server",
                             .index = f->ps->cluster.rank,
                             .count = uni__ps_lanes(f->ps),
                             .context = f,
                             .finish = coordinates ? schedule_step : push_step };
    if (!coordinates && uni__ps_is_synchronous(f->ps))
        updater.sync = (uni_sync){ .context = f, .sum = sum_statistics };
    UNI_TRY(uni_batches_new(&options.batches, coordinates ? &empty_class : &work_class, f, err));
    options.x = options.y = options.sample_weight = NULL;
    options.seed = f->seed;
    options.batch_size = 0;
    options.validation_batch_size =
        asked->validation_batch_size > 0 ? asked->validation_batch_size : asked->batch_size;
    options.replicas = 1;
    if (!coordinates) {
        /* Callbacks and the place in the epoch are the coordinator's. A worker that took its place
         * from the state would drop the call that it has already been given. */
        uni__model_drop_fit_state(f->model);
        options.validation_x = options.validation_y = options.validation_weight = NULL;
        options.validation_batches = NULL;
        options.callbacks = NULL;
        options.num_callbacks = options.verbose = 0;
        options.epochs = 1;
        options.initial_epoch = 0;
        options.steps_per_epoch = 0;
    }
    int status = uni__model_fit(f->model, &options, &updater, history, err);
    uni_batches_free(options.batches);
    return status;
}

static int fit_worker(fit *f, const uni_fit_options *asked, uni_error *err)
{
    int status = uni__ps_phase_over(f->ps) ? 0 : run(f, asked, NULL, err);
    /* Two errors are expected here. A worker without a single step (of a run resumed at its end,
     * say) has seen "an empty dataset". One in the middle of a step that is not needed any more has
     * seen a cancelled question. */
    if (status < 0 && (f->over || uni__ps_phase_over(f->ps)) &&
        (f->served == 0 || status == UNI_ECANCELED)) {
        if (err)
            *err = (uni_error){ 0 };
        return 0;
    }
    return status;
}

int uni__ps_fit(uni__ps *ps, uni_model *model, const uni_fit_options *asked, uni_value **history,
                uni_error *err)
{
    UNI_TRY(uni__ps_must_be_placed(ps, err));
    fit *f = calloc(1, sizeof *f);
    int status = f ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for fit");
    if (history)
        *history = NULL;
    if (status < 0)
        return status;
    f->ps = ps;
    f->model = model;
    /* As without a strategy, but with the coordinator's seed: all members shuffle and drop out
     * alike. */
    f->seed = asked->seed ? asked->seed : ps->board.header->shape.seed;
    uni_optimizer *optimizer = ps->optimizer;
    f->rate = uni_optimizer_learning_rate(optimizer, NULL);
    f->has_schedule = uni_optimizer_set_learning_rate(optimizer, f->rate, NULL) == UNI_ESTATE;
    uni__ps_begin_phase(ps);
    status = open_global(f, asked, err);
    if (status == 0 && uni__ps_is_coordinator(ps))
        status = run(f, asked, history, err);
    else if (status == 0 && uni__ps_is_worker(ps))
        status = fit_worker(f, asked, err);
    else if (status == 0)
        status = uni__ps_serve(ps, err);
    uni__ps_end_phase(ps);
    if (f->owns_global)
        uni_batches_free(f->feed.global);
    free(f);
    return status;
}
