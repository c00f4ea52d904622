/*
 * update.c - what follows a batch of training: gradients are added up and the weights updated.
 *
 * Inside one process an update costs one meeting of the replicas: after backward they meet, then
 * each adds up its slice of the flat gradients in replica order and updates it, piece by piece. With
 * clipping by norm the optimizer must see the whole sum first: two more meetings. Over processes
 * member 0 alone does the reduction through uni_replica and updates the slice that is this
 * process'.
 */
#include <string.h>

#include "base/slice.h"
#include "nn/model/runner.h"
#include "tensor/update.h"

/* Floats that are added up and updated at a time: what two replicas and Adam need of them is in the first-level cache. */
#define PIECE ((size_t)1024)
#define MAX_SPANS 64
/* Buffers that are added up in one go. */
#define AT_ONCE 64

/* ---- one process ---- */

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

double uni__runner_samples(const uni__runner *runner)
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
    double samples = runner->pending_samples + (double)runner->job->batch->size * runner->factor;
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
int uni__runner_update_together(uni__runner *runner, uni__share *share)
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

int uni__runner_update_alone(uni__runner *runner, uni_error *err)
{
    size_t size = 0;
    for (int i = 0; i < runner->count; i++)
        runner->buffers[i] = uni_gradients_data(runner->shares[i].gradients, &size);
    add_up(runner, (uni_span){ 0, size });
    double samples = runner->pending_samples + uni__runner_samples(runner) * runner->factor;
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

void uni__runner_unpack(uni__runner *runner)
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
    UNI_TRY(uni_optimizer_begin(
        optimizer, gradients, scale_for(runner->pending_samples + runner->sums[1] * runner->factor),
        err));
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

int uni__runner_finish_with_others(uni__runner *runner, const uni__job *job, uni_error *err)
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
    uni__runner_unpack(runner);
    return 0;
}
