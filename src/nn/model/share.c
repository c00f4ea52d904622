/*
 * share.c - one replica's part of a batch: forward, losses, metrics, backward.
 *
 * The tape's loss is a sum over samples, not a mean: total = sum of weighted losses + samples *
 * (weight penalty + losses added by layers, which are a mean of the part). So parts of any size add
 * up, and dividing by the number of samples in the end gives Keras's loss. Runs on the replica's
 * thread; reads the model and the batch, and writes only to its share.
 */
#include "nn/model/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/clock.h"

/* Like Keras's fit, adds the missing axis to (batch) targets of a (batch, 1) prediction. */
static uni_tensor *target_of(uni_tape *tape, const uni_column *column, const uni_tensor *prediction)
{
    uni_column fitted = *column;
    if (prediction != NULL && fitted.ndim == 1 && uni_tensor_ndim(prediction) == 2 &&
        uni_tensor_dim(prediction, 1) == 1) {
        fitted.shape[1] = 1;
        fitted.ndim = 2;
    }
    return uni_tape_input_column(tape, &fitted);
}

/* ---- sample and class weights ---- */

static double class_of(const uni_tensor *target, int64_t sample, int64_t width)
{
    if (width > 1) { /* one-hot: the index of the largest */
        int64_t best = 0;
        const float *row = (const float *)uni_tensor_data(target) + sample * width;
        for (int64_t i = 1; i < width; i++)
            best = row[i] > row[best] ? i : best;
        return (double)best;
    }
    return (double)((const float *)uni_tensor_data(target))[sample];
}

static uni_tensor *class_weights(uni_tape *tape, const uni__job *job, uni_tensor *target)
{
    uni_tensor *numbers = uni_op_cast(tape, target, UNI_F32);
    if (numbers == NULL)
        return NULL;
    int64_t samples = uni_tensor_dim(numbers, 0);
    int64_t width = samples > 0 ? (int64_t)uni_tensor_count(numbers) / samples : 1;
    uni_tensor *weights = uni_tape_scratch(tape, UNI_F32, 1, &samples);
    for (int64_t i = 0; weights != NULL && i < samples; i++) {
        double number = class_of(numbers, i, width);
        if (!(number >= 0 && number < job->num_classes))
            return uni_tape_fail(tape, UNI_EINVAL,
                                 "class_weight has %d classes, but sample %lld has the class %g",
                                 job->num_classes, (long long)i, number);
        ((float *)uni_tensor_data(weights))[i] = (float)job->class_weight[(int)number];
    }
    return weights;
}

/* Reshapes (samples) weights to match per-sample losses of rank `rank`. */
static uni_tensor *spread(uni_tape *tape, uni_tensor *weights, int rank)
{
    if (weights == NULL || uni_tensor_ndim(weights) >= rank)
        return weights;
    int64_t shape[UNI_TENSOR_MAX_DIMS] = { uni_tensor_dim(weights, 0), 1, 1, 1, 1, 1 };
    return uni_op_reshape(tape, weights, rank, shape);
}

static uni_tensor *weights_of(uni_tape *tape, const uni__job *job, const uni_column *column,
                              uni_tensor *target, const uni_tensor *prediction)
{
    uni_tensor *weights =
        column->dtype != 0 ? uni_op_cast(tape, uni_tape_input_column(tape, column), UNI_F32) : NULL;
    if (job->class_weight != NULL) {
        uni_tensor *classes = class_weights(tape, job, target);
        weights = weights == NULL ? classes : uni_op_mul(tape, weights, classes);
    }
    int rank = prediction != NULL ? uni_tensor_ndim(prediction) - 1 : 1;
    return spread(tape, weights, rank);
}

/* ---- losses ---- */

static uni_tensor *add(uni_tape *tape, uni_tensor *sum, uni_tensor *part, double factor)
{
    if (factor != 1)
        part = uni_op_scale(tape, part, (float)factor, 0);
    return sum == NULL ? part : uni_op_add(tape, sum, part);
}

/* The loss of one output: sum over samples, with its factor in the total. Like Keras's, it is the
 * mean of all values that the loss has, which a loss of the user's may have averaged already. */
static uni_tensor *output_loss(uni__share *share, int output, uni_tensor *target,
                               uni_tensor *weights, double global, double *factor)
{
    const uni__compiled *compiled = share->runner->model->compiled;
    const uni_loss *loss = uni__compiled_loss(compiled, output);
    uni_tensor *each =
        uni_loss_per_example(loss, share->tape, target, share->outputs[output], weights);
    if (each == NULL)
        return NULL;
    uni_tensor *sum = uni_op_sum(share->tape, each);
    double count = (double)uni_tensor_count(each);
    double mean = count > 0 ? (double)uni_tensor_dim(target, 0) / count : 1;
    double scale = uni__loss_reduction(loss) == UNI_REDUCTION_SUM ? global : mean;
    share->output_loss[output] = uni_tensor_scalar(sum) * scale;
    *factor = scale * (double)compiled->loss_weights[output];
    return sum;
}

static uni_tensor *total_loss(uni__share *share, int64_t begin, int64_t end, uni_tensor **targets)
{
    const uni__job *job = share->runner->job;
    const uni_batch *batch = job->batch;
    const uni_model *model = share->runner->model;
    double global = (double)(batch->global_size > 0
                                 ? batch->global_size
                                 : batch->size * (job->updater != NULL ? job->updater->count : 1));
    uni_tensor *total = NULL;
    for (int i = 0; i < model->num_outputs; i++) {
        uni_column y = uni_column_rows(&batch->y[i], begin, end), w = { 0 };
        if (batch->weights.dtype != 0)
            w = uni_column_rows(&batch->weights, begin, end);
        targets[i] = target_of(share->tape, &y, share->outputs[i]);
        share->weights[i] = weights_of(share->tape, job, &w, targets[i], share->outputs[i]);
        double factor = 1;
        uni_tensor *sum = output_loss(share, i, targets[i], share->weights[i], global, &factor);
        if (sum == NULL)
            return NULL;
        total = add(share->tape, total, sum, factor);
    }
    uni_tensor *penalty = uni__model_weight_penalty(model, share->tape),
               *added = uni__tape_added_losses(share->tape);
    if (penalty != NULL)
        total = add(share->tape, total, penalty, (double)(end - begin));
    if (added != NULL)
        total = add(share->tape, total, added, (double)(end - begin));
    return total;
}

/* ---- the whole part ---- */

static int forward(uni__share *share, int64_t begin, int64_t end)
{
    const uni_batch *batch = share->runner->job->batch;
    const uni_model *model = share->runner->model;
    uni_tensor *inputs[UNI_MODEL_MAX_INPUTS];
    for (int i = 0; i < model->num_inputs; i++) {
        uni_column x = uni_column_rows(&batch->x[i], begin, end);
        inputs[i] = uni_tape_input_column(share->tape, &x);
    }
    uni__model_run(model, share->tape, inputs, share->outputs);
    return uni_tape_status(share->tape, &share->error);
}

static int update_metrics(uni__share *share, uni_tensor *const *targets)
{
    const uni__compiled *compiled = share->runner->model->compiled;
    for (int i = 0; i < compiled->num_metrics; i++) {
        int output = compiled->metric_outputs[i];
        UNI_TRY(uni_metric_update(share->metrics[i], targets[output], share->outputs[output],
                                  compiled->metric_weighted[i] ? share->weights[output] : NULL,
                                  &share->error));
    }
    return 0;
}

/* Gathers the factors of all replicas of this process. */
static int meet_with_factors(void *context, const uni__factors *mine, int64_t in, int64_t out,
                             uni__factors *all, uni_error *err)
{
    uni__share *share = context;
    uni__runner *runner = share->runner;
    share->factors = *mine;
    UNI_TRY(uni__team_meet(runner->team, share->index, err));
    for (int i = 0; i < runner->count; i++)
        all[i] = runner->shares[i].factors;
    return 0;
}

static int leave_factors(void *context, uni_error *err)
{
    uni__share *share = context;
    return uni__team_meet(share->runner->team, share->index, err);
}

/* Decides whether the backward pass may apply the gradient itself; all replicas come to the same
 * answer. Over several processes it only keeps factors, which are exchanged when the processes meet
 * anyway: separate meetings in the middle of the pass cost what they saved (MNIST CNN in
 * alternating pairs: 0.879 against 0.876). */
static bool prepare_descent(uni__share *share, uni__descent *out)
{
    uni__runner *runner = share->runner;
    const uni__job *job = runner->job;
    int64_t samples = (int64_t)share->samples;
    if (!runner->update || runner->pending > 0 ||
        !uni__optimizer_descent(runner->model->compiled->optimizer, 1, out))
        return false;
    if (job->updater != NULL) {
        out->keep_factors = runner->count == 1 && job->updater->keep_factors != NULL
                                ? job->updater->keep_factors(job->updater->context)
                                : 0;
        return out->keep_factors > 0;
    }
    if (runner->count > 1) {
        if (!runner->meets || runner->active < runner->count ||
            runner->count > UNI__DESCENT_MAX_PEERS)
            return false;
        samples = job->batch->size;
        share->peers = (uni__descent_peers){ .index = share->index,
                                             .count = runner->count,
                                             .least = UNI__DESCENT_WEIGHTS,
                                             .context = share,
                                             .meet = meet_with_factors,
                                             .leave = leave_factors };
        out->peers = &share->peers;
    }
    if (samples > 0)
        out->rate *= (float)(1 / (double)samples);
    return samples > 0;
}

static int run(uni__share *share, int64_t begin, int64_t end)
{
    uni__runner *runner = share->runner;
    const uni__job *job = runner->job;
    bool training = job->kind == UNI__RUN_TRAIN;
    bool together = runner->active > 1 || (job->updater != NULL && job->updater->sync.sum != NULL);
    uni_tape_begin(share->tape, &(uni_step){ .training = training,
                                             .gradients = training ? share->gradients : NULL,
                                             .seed = job->seed,
                                             .number = (uint64_t)runner->model->steps,
                                             .first_sample = job->batch->first_sample + begin,
                                             .sync = training && together ? &share->sync : NULL,
                                             .keep_state = share->index > 0 });
    UNI_TRY(forward(share, begin, end));
    if (job->kind == UNI__RUN_PREDICT)
        return 0;
    uni_tensor *targets[UNI_MODEL_MAX_INPUTS];
    uni_tensor *total = total_loss(share, begin, end, targets);
    UNI_TRY(uni_tape_status(share->tape, &share->error));
    share->samples = (double)(end - begin);
    share->loss = uni_tensor_scalar(total);
    UNI_TRY(update_metrics(share, targets));
    share->forward_done = uni__monotonic_ns();
    if (!training)
        return 0;
    uni__descent descent;
    bool descends = prepare_descent(share, &descent);
    if (runner->factor != 1)
        total = uni_op_scale(share->tape, total, (float)runner->factor, 0);
    UNI_TRY(
        uni__tape_gradient(share->tape, total,
                           &(uni_gradient_options){ .accumulate = share->pending, .consume = true },
                           descends ? &descent : NULL, &share->error));
    share->pending = true;
    share->backward_done = uni__monotonic_ns();
    return 0;
}

void uni__share_run(uni__share *share, int64_t begin, int64_t end)
{
    share->error = (uni_error){ 0 };
    share->samples = share->loss = 0;
    memset(share->output_loss, 0, sizeof share->output_loss);
    share->begun = share->forward_done = share->backward_done = uni__monotonic_ns();
    share->status = run(share, begin, end);
}

/* ---- work per sample ---- */

static double layer_flops(const uni_layer *layer)
{
    double flops = 0, positions = 1;
    for (int i = 1; i < layer->output.ndim - 1; i++)
        positions *= layer->output.dims[i] > 0 ? (double)layer->output.dims[i] : 1;
    bool table = layer->class_ == &uni__class_embedding; /* reads a row, multiplies nothing */
    for (size_t i = 0; i < layer->num_slots && !table; i++)
        if (uni_parameter_info_of(layer->slots[i].parameter)->ndim > 1)
            flops += 2 * positions * (double)uni_parameter_info_of(layer->slots[i].parameter)->size;
    for (size_t i = 0; i < layer->num_children; i++)
        flops += layer_flops(layer->children[i]);
    return flops;
}

double uni__model_flops(const uni_model *model)
{
    double flops = 0;
    for (size_t i = 0; i < model->num_layers; i++)
        flops += layer_flops(model->layers[i]);
    return flops;
}
