/*
 * runner.c - starts replica threads, cuts batches, runs them and hands them over for the update
 * (nn/step.h).
 */
#include "nn/model/runner.h"

#include <stdlib.h>
#include <string.h>

#include "nn/loss/loss.h"
#include "nn/loss/metric.h"
#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "nn/optimizer/optimizer.h"

/* By default, a training step runs on replica threads instead of threaded kernels if it is short
 * (floating-point operations) and has few weights, because each replica writes a whole gradient and
 * all are summed. Two pairs of runs on a busy machine: the NNLM head (50,000 weights) gained at
 * batches 16 to 4,096; 784-w-w-10 at batch 64 was mixed at w = 64 and 128 (118,000) and lost 19 and
 * 46 % at 256 (269,000). */
#define REPLICA_FLOPS 4e8
#define REPLICA_WEIGHTS ((size_t)1 << 17)

static int cpu_count(void)
{
    int asked = uni__cpu_threads_asked();
    return asked > 0 ? asked : uni__cpu_count();
}

/* Layers that cannot be saved: the user's own. */
static bool is_own(const uni_layer *layer)
{
    bool own = layer->class_->get_config == NULL;
    for (size_t i = 0; i < layer->num_children && !own; i++)
        own = is_own(layer->children[i]);
    return own;
}

/* The user's layers, losses and metrics may look at the batch as a whole (a mean over its samples,
 * a root of a mean): only replicas that were asked for cut it. */
static bool has_own_code(const uni_model *model)
{
    const uni__compiled *compiled = model->compiled;
    bool own = false;
    for (size_t i = 0; i < model->num_layers && !own; i++)
        own = is_own(model->layers[i]);
    for (int i = 0; compiled != NULL && i < model->num_outputs && !own; i++)
        own = uni__loss_class_name(uni__compiled_loss(compiled, i)) == NULL;
    for (int i = 0; compiled != NULL && i < compiled->num_metrics && !own; i++)
        own = compiled->metrics[i]->function != NULL;
    return own;
}

static int choose_replicas(const uni_model *model, int threads, int64_t batch_size)
{
    if (threads < 2 || batch_size < 4 * threads || has_own_code(model))
        return 1;
    size_t weights = 0;
    uni_parameters_weights(model->build.store, &weights);
    bool small = weights <= REPLICA_WEIGHTS &&
                 3 * uni__model_flops(model) * (double)batch_size < REPLICA_FLOPS;
    return small ? threads : 1;
}

void uni__runner_free(uni__runner *runner)
{
    if (runner == NULL)
        return;
    uni__helpers_free(runner->helpers);
    uni__team_free(runner->team);
    for (int i = 0; runner->shares != NULL && i < runner->count; i++) {
        uni__share *share = &runner->shares[i];
        for (int j = 0; share->metrics != NULL && j < runner->num_metrics; j++)
            uni_metric_free(share->metrics[j]);
        free(share->metrics);
        uni_gradients_free(share->gradients);
        uni_tape_free(share->tape);
    }
    free(runner->shares);
    free(runner->buffers);
    free(runner->sums);
    free(runner->states_before);
    free(runner);
}

/* Sums batch statistics over all replicas of this process; member 0 also over all processes. */
static int sum_over_replicas(void *context, float *values, size_t count, uni_error *err)
{
    uni__share *share = context;
    uni__runner *runner = share->runner;
    const uni__updater *updater = runner->job->updater;
    if (runner->active == 1)
        return updater->sync.sum(updater->sync.context, values, count, err);
    return uni__team_sum(runner->team, share->index, values, count,
                         updater != NULL ? &updater->sync : NULL, err);
}

static int make_share(uni__runner *runner, uni__share *share, uni_error *err)
{
    uni__compiled *compiled = runner->model->compiled;
    share->runner = runner;
    share->sync = (uni_sync){ .context = share, .sum = sum_over_replicas };
    UNI_TRY(
        uni_tape_new(&share->tape, &(uni_tape_options){ .threads = runner->tape_threads }, err));
    if (compiled == NULL)
        return 0;
    share->metrics = calloc((size_t)runner->num_metrics + 1, sizeof *share->metrics);
    for (int i = 0; share->metrics != NULL && i < runner->num_metrics; i++)
        if ((share->metrics[i] = uni__metric_copy(compiled->metrics[i])) == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the metrics of a replica");
    return share->metrics != NULL
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for the metrics of a replica");
}

static int make(uni__runner **out, uni_model *model, int threads, int count, uni_error *err)
{
    uni__runner *runner = calloc(1, sizeof *runner);
    if (runner == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to run model %s", model->name);
    int status = 0;
    runner->model = model;
    runner->count = count;
    runner->tape_threads = threads / count > 0 ? threads / count : 1;
    runner->num_metrics = model->compiled != NULL ? model->compiled->num_metrics : 0;
    runner->num_sums =
        1 + (model->compiled != NULL ? uni__compiled_state_size(model->compiled) : 0);
    runner->shares = calloc((size_t)count, sizeof *runner->shares);
    runner->buffers = calloc((size_t)count, sizeof *runner->buffers);
    runner->sums = calloc(runner->num_sums, sizeof *runner->sums);
    if (runner->shares == NULL || runner->buffers == NULL || runner->sums == NULL)
        UNI_TRY_GOTO(uni_error_set(err, UNI_ENOMEM, "no memory to run model %s", model->name),
                     fail);
    for (int i = 0; i < count; i++) {
        runner->shares[i].index = i;
        UNI_TRY_GOTO(make_share(runner, &runner->shares[i], err), fail);
    }
    UNI_TRY_GOTO(uni__helpers_new(&runner->helpers, count, err), fail);
    *out = runner;
    return 0;
fail:
    uni__runner_free(runner);
    return status;
}

int uni__runner_prepare(uni_model *model, int threads, int replicas, int64_t batch_size,
                        uni_error *err)
{
    int cores = threads > 0 ? threads : cpu_count();
    int count = replicas > 0 ? replicas : choose_replicas(model, cores, batch_size);
    int tape_threads = cores / count > 0 ? cores / count : 1;
    uni__runner *old = model->runner;
    if (old != NULL && old->count == count && old->tape_threads == tape_threads)
        return 0;
    /* Gradients of batches that wait for their update stay in place. */
    if (old != NULL && old->pending > 0)
        return 0;
    uni__runner_free(old);
    model->runner = NULL;
    return make(&model->runner, model, cores, count, err);
}

void uni__runner_forget(uni__runner *runner)
{
    runner->pending = runner->model->compiled->optimizer->waiting = 0;
    runner->pending_samples = 0;
    for (int i = 0; i < runner->count; i++)
        runner->shares[i].pending = false;
}

/* ---- a batch ---- */

/* Number of samples that the gradients of this update sum over. */
static double samples_of(const uni__runner *runner)
{
    return runner->pending_samples + (double)runner->job->batch->size * runner->factor;
}

/* Called by each replica after its backward pass: all update their slices. */
static int update_together(uni__runner *runner, uni__share *share)
{
    runner->buffers[share->index] = uni_gradients_data(share->gradients, NULL);
    uni__update update = { .optimizer = runner->model->compiled->optimizer,
                           .gradients = runner->shares[0].gradients,
                           .parts = runner->buffers,
                           .num_parts = runner->count };
    return uni__update_on_team(&update, runner->team, share->index, runner->count,
                               runner->clips_by_norm, samples_of(runner), NULL, NULL,
                               &share->error);
}

static void run_share(void *context, int index)
{
    uni__runner *runner = context;
    int64_t size = runner->job->batch->size, count = runner->active;
    uni__share_run(&runner->shares[index], size * index / count, size * (index + 1) / count);
}

static void member_job(void *context, int member)
{
    uni__runner *runner = context;
    uni__share *share = &runner->shares[member];
    run_share(runner, member);
    if (share->status == 0 && runner->update && runner->job->updater == NULL && runner->active > 1)
        share->status = update_together(runner, share);
    if (share->status < 0)
        uni__team_abort(runner->team);
}

static int first_error(const uni__runner *runner, uni_error *err)
{
    const uni__share *canceled = NULL; /* canceled by another share, whose reason it reports */
    for (int i = 0; i < runner->active; i++) {
        const uni__share *share = &runner->shares[i];
        if (share->status < 0 && share->status != UNI_ECANCELED)
            return uni_error_set(err, share->status, "%s", share->error.message);
        canceled = share->status < 0 && !canceled ? share : canceled;
    }
    if (!canceled)
        return 0;
    return uni_error_set(err, canceled->status, "%s",
                         canceled->error.message[0] ? canceled->error.message
                                                    : "the step was cancelled");
}

/* Adds the shares' counts to the totals; their metrics cover only this batch. */
static void collect(uni__runner *runner)
{
    uni__compiled *compiled = runner->model->compiled;
    for (int i = 0; i < runner->active; i++) {
        uni__share *share = &runner->shares[i];
        compiled->samples += share->samples;
        compiled->loss += share->loss;
        for (int o = 0; o < UNI_MODEL_MAX_INPUTS; o++)
            compiled->output_loss[o] += share->output_loss[o];
        for (int m = 0; m < compiled->num_metrics; m++) {
            uni__metric_merge(compiled->metrics[m], share->metrics[m]);
            uni_metric_reset(share->metrics[m]);
        }
    }
}

static void take_times(uni__runner *runner, uint64_t begin)
{
    uint64_t forward = begin, backward = begin;
    for (int i = 0; i < runner->active; i++) {
        forward =
            runner->shares[i].forward_done > forward ? runner->shares[i].forward_done : forward;
        backward =
            runner->shares[i].backward_done > backward ? runner->shares[i].backward_done : backward;
    }
    uint64_t end = uni__monotonic_ns();
    backward = backward > forward ? backward : forward;
    runner->began = begin;
    runner->phases[UNI__PHASE_FORWARD] = forward - begin;
    runner->phases[UNI__PHASE_BACKWARD] = backward - forward;
    runner->phases[UNI__PHASE_UPDATE] = end - backward;
}

/* The replicas that have gradients. If any has some, so does the first. */
static uni__update update_of(uni__runner *runner)
{
    uni__update update = { .optimizer = runner->model->compiled->optimizer,
                           .gradients = runner->shares[0].gradients,
                           .parts = runner->buffers };
    for (int i = 0; i < runner->count; i++)
        if (runner->shares[i].pending)
            runner->buffers[update.num_parts++] =
                uni_gradients_data(runner->shares[i].gradients, NULL);
    return update;
}

/* With other processes: this one's counts and sum of gradients. */
static int hand_over(uni__runner *runner, const uni__update *update, uni_error *err)
{
    const uni__updater *updater = runner->job->updater;
    size_t size = 0;
    uni_gradients_data(update->gradients, &size);
    if (runner->update)
        uni__update_sum(update, (uni__span){ 0, size });
    uni__runner_pack(runner, runner->job->wish);
    uni__trained trained = { .tape = runner->shares[0].tape,
                             .optimizer = update->optimizer,
                             .gradients = runner->update ? update->gradients : NULL,
                             .sums = runner->sums,
                             .num_sums = runner->num_sums,
                             .waiting = runner->pending_samples,
                             .factor = runner->factor };
    return updater->finish(updater->context, &trained, err);
}

/* Weights get their update, or the gradients wait for it. */
static int update_weights(uni__runner *runner, const uni__job *job, uni_error *err)
{
    uni__update update = update_of(runner);
    if (job->updater != NULL)
        return hand_over(runner, &update, err);
    if (runner->update && !runner->meets)
        return uni__update_alone(
            &update, samples_of(runner),
            runner->count > 1 ? runner->helpers : uni__tape_helpers(runner->shares[0].tape), err);
    if (runner->update)
        uni__update_commit(&update); /* the team's run has ended: all slices are done */
    return 0;
}

static void finish_training(uni__runner *runner, const uni__job *job)
{
    double samples = job->updater != NULL ? runner->sums[1] : (double)job->batch->size;
    runner->pending = runner->update ? 0 : runner->pending + 1;
    runner->pending_samples =
        runner->update ? 0 : runner->pending_samples + samples * runner->factor;
    runner->model->compiled->optimizer->waiting = runner->pending;
    for (int i = 0; runner->update && i < runner->count; i++)
        runner->shares[i].pending = false;
    runner->model->steps++;
}

/* Gradients are allocated when first needed, so that a model that only predicts does not pay for
 * them. */
static int make_gradients(uni__runner *runner, uni_error *err)
{
    for (int i = 0; i < runner->count; i++)
        if (runner->shares[i].gradients == NULL)
            UNI_TRY(
                uni_gradients_new(&runner->shares[i].gradients, runner->model->build.store, err));
    return 0;
}

/* Keras's accumulation averages the gradients of batches, not of samples. */
static void weigh(uni__runner *runner)
{
    const uni__job *job = runner->job;
    double size = (double)(job->batch->global_size > 0 ? job->batch->global_size
                           : job->updater == NULL      ? job->batch->size
                                                       : 0);
    runner->factor = 1;
    if (job->kind != UNI__RUN_TRAIN || runner->model->compiled->accumulation < 2)
        return;
    if (runner->pending == 0)
        runner->reference = size;
    if (size > 0 && runner->reference > 0)
        runner->factor = runner->reference / size;
}

static bool has_batch_statistics(const uni_layer *layer)
{
    bool has = layer->class_ == &uni__class_batch_normalization;
    for (size_t i = 0; i < layer->num_children && !has; i++)
        has = has_batch_statistics(layer->children[i]);
    return has;
}

/* Do replicas meet in the middle of a pass: for statistics of the whole batch, which the user's
 * layers may need, too, or for a kernel that the pass updates itself? */
static bool has_meetings(const uni__runner *runner)
{
    const uni_model *model = runner->model;
    uni__descent descent;
    bool meets = has_own_code(model);
    for (size_t i = 0; i < model->num_layers && !meets; i++)
        meets = has_batch_statistics(model->layers[i]);
    if (meets || runner->job->updater != NULL || !runner->update || runner->pending > 0 ||
        !uni__optimizer_descent(model->compiled->optimizer, 1, &descent))
        return meets;
    for (size_t i = 0; i < uni_parameters_count(model->build.store) && !meets; i++)
        meets = uni_parameter_info_of(uni_parameters_at(model->build.store, i))->size >=
                UNI__DESCENT_WEIGHTS;
    return meets;
}

static int run_pass(uni__runner *runner, const uni__job *job, uni_error *err)
{
    runner->meets = runner->active > 1 && job->kind == UNI__RUN_TRAIN && has_meetings(runner);
    if (runner->meets && runner->team == NULL)
        UNI_TRY(uni__team_new(&runner->team, runner->count, err));
    if (runner->meets)
        uni__team_run(runner->team, member_job, runner);
    else
        uni__helpers_run(runner->helpers, runner->active, run_share, runner);
    return first_error(runner, err);
}

/* What a pass changes before the step is decided: moving averages, counts of metrics, and whether
 * there are gradients. Without gradients of earlier batches, that is all. */
static int remember(uni__runner *runner, uni_error *err)
{
    size_t size = 0;
    const float *states = uni__parameters_states(runner->model->build.store, &size);
    if (size > 0 && runner->states_before == NULL &&
        (runner->states_before = malloc(size * sizeof *states)) == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to repeat a step of model %s",
                             runner->model->name);
    if (size > 0)
        memcpy(runner->states_before, states, size * sizeof *states);
    return 0;
}

static void take_back(uni__runner *runner)
{
    size_t size = 0;
    float *states = uni__parameters_states(runner->model->build.store, &size);
    if (size > 0)
        memcpy(states, runner->states_before, size * sizeof *states);
    for (int i = 0; i < runner->count; i++) {
        runner->shares[i].pending = false;
        for (int m = 0; m < runner->num_metrics; m++)
            uni_metric_reset(runner->shares[i].metrics[m]);
    }
}

static int train(uni__runner *runner, const uni__job *job, uni_error *err)
{
    const uni__updater *updater = job->updater;
    bool recovers =
        updater != NULL && updater->recover != NULL && runner->update && runner->pending == 0;
    int status;
    UNI_TRY(make_gradients(runner, err));
    if (recovers)
        UNI_TRY(remember(runner, err));
    status = recovers ? updater->enter(updater->context, runner->sums, runner->num_sums, err) : 0;
    if (status == UNI__STEP_DONE) {
        finish_training(runner, job);
        return 0;
    }
    if (status != 0)
        return status;
    for (;;) {
        status = run_pass(runner, job, err);
        if (status == 0)
            status = update_weights(runner, job, err);
        if (status < 0 && recovers)
            status = updater->recover(updater->context, status, err);
        if (status > 0)
            take_back(runner);
        if (status != UNI__STEP_REPEAT)
            break;
    }
    if (status == 0)
        finish_training(runner, job);
    return status;
}

int uni__runner_run(uni__runner *runner, const uni__job *job, uni_error *err)
{
    uint64_t begin = uni__monotonic_ns();
    bool training = job->kind == UNI__RUN_TRAIN;
    runner->job = job;
    runner->active = job->batch->size >= runner->count ? runner->count : 1;
    runner->update = training && runner->pending + 1 >= runner->model->compiled->accumulation;
    runner->clips_by_norm =
        runner->update && uni__optimizer_clips_by_norm(runner->model->compiled->optimizer);
    runner->stopping = runner->pausing = false;
    weigh(runner);
    int status = training ? train(runner, job, err) : run_pass(runner, job, err);
    if (status != 0)
        return status;
    if (training && job->updater != NULL)
        uni__runner_unpack(runner);
    else if (job->kind != UNI__RUN_PREDICT)
        collect(runner);
    take_times(runner, begin);
    return 0;
}
