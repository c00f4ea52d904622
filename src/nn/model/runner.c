/*
 * runner.c - makes replica threads, cuts batches, adds up gradients and updates the weights.
 *
 * Inside one process an update costs one meeting of the replicas: after backward they meet, then
 * each adds up its slice of the flat gradients in replica order and updates it, piece by piece. With
 * clipping by norm the optimizer must see the whole sum first: two more meetings. Over processes
 * member 0 alone does the reduction through uni_replica and updates the slice that is this
 * process'.
 */
#include "nn/model/runner.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/slice.h"
#include "base/cpus.h"
#include "tensor/update.h"

/* A training step runs on replica threads instead of threaded kernels, when not told, as long as it
 * is short (floating-point operations) and the weights are few: each replica writes a whole
 * gradient and all are added up. Two pairs of runs on a busy machine: the NNLM head (50,000
 * weights) gained at batches 16 to 4,096; 784-w-w-10 at batch 64 was mixed at w = 64 and 128
 * (118,000) and lost 19 and 46 % at 256 (269,000). */
#define REPLICA_FLOPS 4e8
#define REPLICA_WEIGHTS ((size_t)1 << 17)

/* Floats that are added up and updated at a time: what two replicas and Adam need of them is in the first-level cache. */
#define PIECE ((size_t)1024)
#define MAX_SPANS 64
/* Buffers that are added up in one go. */
#define AT_ONCE 64

static int cpu_count(void)
{
    int asked = uni__cpu_threads_asked();
    return asked > 0 ? asked : uni__cpu_count();
}

static int choose_replicas(const uni_model *model, int threads, int64_t batch_size)
{
    if (threads < 2 || batch_size < 4 * threads)
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
    free(runner);
}

/* Batch statistics of all replicas of this process, and by member 0 of all processes. */
static int sum_over_replicas(void *context, float *values, size_t count, uni_error *err)
{
    uni__share *share = context;
    uni__runner *runner = share->runner;
    const uni_replica *replica = runner->job->replica;
    if (runner->active == 1)
        return replica->sync.sum(replica->sync.context, values, count, err);
    return uni__team_sum(runner->team, share->index, values, count,
                         replica != NULL ? &replica->sync : NULL, err);
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
        if ((share->metrics[i] = uni_metric_copy(compiled->metrics[i])) == NULL)
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
    UNI_TRY_GOTO(uni__team_new(&runner->team, count, err), fail);
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
    if (old != NULL &&
        old->pending > 0) /* gradients of batches that wait for their update stay where they are */
        return 0;
    uni__runner_free(old);
    model->runner = NULL;
    return make(&model->runner, model, cores, count, err);
}

/* ---- the update ---- */

/* This member's slice of the flat buffers, cut at cache lines. */
static uni_span slice_of(size_t size, int member, int count)
{
    uni_span slice;
    uni__slice_of(size, 16, member, count, &slice.begin, &slice.end);
    return slice;
}

/* Adds the shares' gradients of the span into those of share 0, which has some whenever another one has. */
static void add_up(uni__runner *runner, uni_span span)
{
    float *into = (float *)(uintptr_t)runner->buffers[0] + span.begin;
    const float *from[AT_ONCE] = { into };
    int count = 1;
    for (int i = 1; i < runner->count && span.end > span.begin; i++) {
        if (runner->shares[i].pending)
            from[count++] = runner->buffers[i] + span.begin;
        if (count == AT_ONCE || (i + 1 == runner->count && count > 1)) {
            uni__sum_buffers(into, from, count, span.end - span.begin);
            count = 1;
        }
    }
}

static double active_samples(const uni__runner *runner)
{
    double samples = 0;
    for (int i = 0; i < runner->active; i++)
        samples += runner->shares[i].samples;
    return samples;
}

/* An empty global batch has nothing to divide by; its gradient is zero anyway. */
static float scale_for(double samples)
{
    return samples > 0 ? (float)(1 / samples) : 1;
}

static int begin_update(uni__runner *runner, uni_error *err)
{
    double samples = runner->pending_samples + (double)runner->job->batch->size;
    return uni_optimizer_begin(runner->model->compiled->optimizer, runner->shares[0].gradients,
                               scale_for(samples), err);
}

/* The parts of a span that have gradients for the optimizer; those of weights that the backward pass changed itself have none. */
static size_t parts_of(const uni_gradients *gradients, uni_span span, uni_span *parts)
{
    size_t found = 0, count = uni_gradients_trainable(gradients, parts, MAX_SPANS);
    if (count > MAX_SPANS) {
        parts[0] = span;
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        uni_span part = { parts[i].begin > span.begin ? parts[i].begin : span.begin,
                          parts[i].end < span.end ? parts[i].end : span.end };
        if (part.begin < part.end)
            parts[found++] = part;
    }
    return found;
}

/* Adds up and updates piece by piece, so that a piece's sum is still in the cache when the update reads it. */
static void add_up_and_update(uni__runner *runner, uni__share *share, uni_span span)
{
    uni_span parts[MAX_SPANS];
    size_t count = parts_of(share->gradients, span, parts);
    for (size_t i = 0; i < count; i++)
        for (size_t begin = parts[i].begin, end = parts[i].end; begin < end; begin += PIECE) {
            uni_span piece = { begin, begin + PIECE < end ? begin + PIECE : end };
            add_up(runner, piece);
            uni_optimizer_apply_span(runner->model->compiled->optimizer,
                                     runner->shares[0].gradients, piece);
        }
}

/* With clipping by norm the whole sum must be there before the first weight moves. */
static int update_after_norm(uni__runner *runner, uni__share *share, uni_span span)
{
    add_up(runner, span);
    if (!uni__team_barrier(runner->team))
        return 0;
    if (share->index == 0)
        UNI_TRY(begin_update(runner, &share->error));
    if (!uni__team_barrier(runner->team))
        return 0;
    uni_optimizer_apply_span(runner->model->compiled->optimizer, runner->shares[0].gradients, span);
    return 0;
}

/* The in-process update, on all members at once. */
static int update_together(uni__runner *runner, uni__share *share)
{
    const uni__compiled *compiled = runner->model->compiled;
    size_t size = 0;
    runner->buffers[share->index] = uni_gradients_data(share->gradients, &size);
    uni_span span = slice_of(size, share->index, runner->active);
    bool begins = share->index == 0 && !compiled->norm_clipping;
    if (begins) /* before the others come, so that one meeting is enough */
        UNI_TRY(begin_update(runner, &share->error));
    if (!uni__team_barrier(runner->team)) { /* who aborted has the error; the step did not happen */
        if (begins)
            uni_optimizer_set_iterations(compiled->optimizer,
                                         uni_optimizer_iterations(compiled->optimizer) - 1);
        return 0;
    }
    if (compiled->norm_clipping)
        return update_after_norm(runner, share, span);
    add_up_and_update(runner, share, span);
    return 0;
}

static void member_job(void *context, int member)
{
    uni__runner *runner = context;
    uni__share *share = &runner->shares[member];
    int64_t size = runner->job->batch->size, count = runner->active;
    uni__share_run(share, size * member / count, size * (member + 1) / count);
    if (share->status == 0 && runner->update && runner->job->replica == NULL && runner->active > 1)
        share->status = update_together(runner, share);
    if (share->status < 0)
        uni__team_abort(runner->team);
}

/* One replica at work (the others may have gradients that wait): adds up and updates with the
 * kernels' threads. */
static int update_alone(uni__runner *runner, uni_error *err)
{
    size_t size = 0;
    for (int i = 0; i < runner->count; i++)
        runner->buffers[i] = uni_gradients_data(runner->shares[i].gradients, &size);
    add_up(runner, (uni_span){ 0, size });
    double samples = runner->pending_samples + active_samples(runner);
    return uni_optimizer_apply(runner->model->compiled->optimizer, runner->shares[0].gradients,
                               scale_for(samples), runner->tape_threads, err);
}

/* ---- other processes ---- */

/* Packs what the shares counted in this batch. */
static void pack_batch(uni__runner *runner, bool stop)
{
    const uni__compiled *compiled = runner->model->compiled;
    memset(runner->sums, 0, runner->num_sums * sizeof *runner->sums);
    double *sums = runner->sums;
    sums[0] = stop;
    for (int i = 0; i < runner->active; i++) {
        uni__share *share = &runner->shares[i];
        sums[1] += share->samples;
        sums[2] += share->loss;
        for (int o = 0; o < UNI_MODEL_MAX_INPUTS; o++)
            sums[3 + o] += share->output_loss[o];
        double *states = sums + 3 + UNI_MODEL_MAX_INPUTS;
        for (int m = 0; m < compiled->num_metrics; m++) {
            size_t size = 0;
            const double *state = uni_metric_state(share->metrics[m], &size);
            for (size_t s = 0; s < size; s++)
                states[s] += state[s];
            states += size;
            uni_metric_reset(share->metrics[m]);
        }
    }
}

static void unpack(uni__runner *runner)
{
    uni__compiled *compiled = runner->model->compiled;
    const double *sums = runner->sums;
    runner->stopping = sums[0] > 0;
    compiled->samples += sums[1];
    compiled->loss += sums[2];
    for (int o = 0; o < UNI_MODEL_MAX_INPUTS; o++)
        compiled->output_loss[o] += sums[3 + o];
    const double *states = sums + 3 + UNI_MODEL_MAX_INPUTS;
    for (int m = 0; m < compiled->num_metrics; m++) {
        size_t size = 0;
        double *state = uni_metric_state(compiled->metrics[m], &size);
        for (size_t s = 0; s < size; s++)
            state[s] += states[s];
        states += size;
    }
}

/* Kernels of which the pass kept factors: this process' rows of them. Before the optimizer counts the step. */
static int descend_with_others(uni__runner *runner, const uni_replica *replica, uni_error *err)
{
    uni_factors all[UNI_DESCENT_MAX_PEERS];
    const uni_factored *mine = NULL;
    uni_tape *tape = runner->shares[0].tape;
    size_t count = uni_tape_factored(tape, &mine);
    uni_descent descent;
    if (count == 0 || !uni_optimizer_descent(runner->model->compiled->optimizer,
                                             scale_for(runner->sums[1]), &descent))
        return 0;
    for (size_t i = 0; i < count; i++) {
        UNI_TRY(replica->take_factors(replica->context, mine, count, i, all, err));
        UNI_TRY(
            uni_tape_descend(tape, &mine[i], all, replica->count, replica->index, &descent, err));
    }
    return 0;
}

static int update_with_others(uni__runner *runner, const uni_replica *replica, uni_error *err)
{
    uni_optimizer *optimizer = runner->model->compiled->optimizer;
    uni_gradients *gradients = runner->shares[0].gradients;
    size_t size = 0;
    UNI_TRY(descend_with_others(runner, replica, err));
    uni_gradients_data(gradients, &size);
    uni_span span =
        replica->slice != NULL ? replica->slice(replica->context, size) : (uni_span){ 0, size };
    UNI_TRY(uni_optimizer_begin(optimizer, gradients,
                                scale_for(runner->pending_samples + runner->sums[1]), err));
    uni_span parts[MAX_SPANS];
    size_t count = parts_of(gradients, span, parts), each = replica->add_up != NULL ? PIECE : size;
    for (size_t i = 0; i < count; i++)
        for (size_t begin = parts[i].begin, end = parts[i].end; begin < end; begin += each) {
            uni_span piece = { begin, begin + each < end ? begin + each : end };
            if (replica->add_up != NULL)
                UNI_TRY(replica->add_up(replica->context, gradients, piece, err));
            uni_optimizer_apply_span(optimizer, gradients, piece);
        }
    uni_optimizer_end(optimizer);
    return replica->barrier != NULL ? replica->barrier(replica->context, err) : 0;
}

/* Training over processes. */
static int finish_with_others(uni__runner *runner, const uni__job *job, uni_error *err)
{
    const uni_replica *replica = job->replica;
    uni_gradients *gradients = runner->update ? runner->shares[0].gradients : NULL;
    size_t size = 0;
    for (int i = 0; i < runner->count; i++)
        runner->buffers[i] = uni_gradients_data(runner->shares[i].gradients, &size);
    if (runner->update)
        add_up(runner, (uni_span){ 0, size });
    const uni_factored *mine = NULL;
    size_t count = uni_tape_factored(runner->shares[0].tape, &mine);
    if (count > 0)
        UNI_TRY(replica->show_factors(replica->context, mine, count, err));
    pack_batch(runner, job->stop);
    UNI_TRY(replica->reduce(replica->context, gradients, runner->sums, runner->num_sums, err));
    if (runner->update)
        UNI_TRY(update_with_others(runner, replica, err));
    return 0;
}

int uni__runner_reduce_totals(uni__runner *runner, const uni_replica *replica, bool stop,
                              uni_error *err)
{
    uni__compiled *compiled = runner->model->compiled;
    memset(runner->sums, 0, runner->num_sums * sizeof *runner->sums);
    double *sums = runner->sums;
    sums[0] = stop;
    sums[1] = compiled->samples;
    sums[2] = compiled->loss;
    memcpy(sums + 3, compiled->output_loss, sizeof compiled->output_loss);
    double *states = sums + 3 + UNI_MODEL_MAX_INPUTS;
    for (int m = 0; m < compiled->num_metrics; m++) {
        size_t size = 0;
        const double *state = uni_metric_state(compiled->metrics[m], &size);
        memcpy(states, state, size * sizeof *states);
        states += size;
    }
    UNI_TRY(replica->reduce(replica->context, NULL, runner->sums, runner->num_sums, err));
    uni__compiled_reset(compiled);
    unpack(runner);
    return 0;
}

/* ---- a batch ---- */

static int first_error(const uni__runner *runner, uni_error *err)
{
    const uni__share *canceled = NULL; /* by somebody else, whose reason it tells */
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

/* Shares' counts into the totals; their metrics are of this batch only. */
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
            uni_metric_merge(compiled->metrics[m], share->metrics[m]);
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

static int finish_training(uni__runner *runner, const uni__job *job, uni_error *err)
{
    uni__compiled *compiled = runner->model->compiled;
    if (job->replica != NULL)
        UNI_TRY(finish_with_others(runner, job, err));
    else if (runner->update && runner->active == 1)
        UNI_TRY(update_alone(runner, err));
    else if (runner->update)
        uni_optimizer_end(compiled->optimizer);
    double samples = job->replica != NULL ? runner->sums[1] : active_samples(runner);
    runner->pending = runner->update ? 0 : runner->pending + 1;
    runner->pending_samples = runner->update ? 0 : runner->pending_samples + samples;
    for (int i = 0; runner->update && i < runner->count; i++)
        runner->shares[i].pending = false;
    runner->model->steps++;
    return 0;
}

/* Gradients are made when they are first needed, so that a model that only predicts does not pay
 * for them. */
static int make_gradients(uni__runner *runner, uni_error *err)
{
    for (int i = 0; i < runner->count; i++)
        if (runner->shares[i].gradients == NULL)
            UNI_TRY(
                uni_gradients_new(&runner->shares[i].gradients, runner->model->build.store, err));
    return 0;
}

int uni__runner_run(uni__runner *runner, const uni__job *job, uni_error *err)
{
    uint64_t begin = uni__monotonic_ns();
    bool training = job->kind == UNI__RUN_TRAIN;
    runner->job = job;
    runner->active = job->batch->size >= runner->count ? runner->count : 1;
    runner->update = training && runner->pending + 1 >= runner->model->compiled->accumulation;
    runner->stopping = false;
    if (training)
        UNI_TRY(make_gradients(runner, err));
    if (runner->active > 1)
        uni__team_run(runner->team, member_job, runner);
    else
        uni__share_run(&runner->shares[0], 0, job->batch->size);
    UNI_TRY(first_error(runner, err));
    if (training)
        UNI_TRY(finish_training(runner, job, err));
    if (training && job->replica != NULL)
        unpack(runner);
    else if (job->kind != UNI__RUN_PREDICT)
        collect(runner);
    take_times(runner, begin);
    return 0;
}
