/*
 * counts.c - packs what a batch counted (samples, losses, states of metrics) into a row of doubles
 * that processes add up, and unpacks it. The model's thread.
 */
#include <math.h>
#include <string.h>

#include "nn/shared.h"
#include "nn/model/runner.h"

void uni__runner_pack(uni__runner *runner, uni__wish wish)
{
    const uni__compiled *compiled = runner->model->compiled;
    memset(runner->sums, 0, runner->num_sums * sizeof *runner->sums);
    double *sums = runner->sums;
    sums[0] = wish;
    for (int i = 0; i < runner->active; i++) {
        uni__share *share = &runner->shares[i];
        sums[1] += share->samples;
        sums[2] += share->loss;
        for (int o = 0; o < UNI_MODEL_MAX_INPUTS; o++)
            sums[3 + o] += share->output_loss[o];
        double *states = sums + 3 + UNI_MODEL_MAX_INPUTS;
        for (int m = 0; m < compiled->num_metrics; m++) {
            size_t size = 0;
            const double *state = uni__metric_state(share->metrics[m], &size);
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
    runner->pausing = sums[0] >= UNI__WISH_PAUSE;
    runner->stopping = fmod(sums[0], UNI__WISH_PAUSE) > 0;
    compiled->samples += sums[1];
    compiled->loss += sums[2];
    for (int o = 0; o < UNI_MODEL_MAX_INPUTS; o++)
        compiled->output_loss[o] += sums[3 + o];
    const double *states = sums + 3 + UNI_MODEL_MAX_INPUTS;
    for (int m = 0; m < compiled->num_metrics; m++) {
        size_t size = 0;
        double *state = uni__metric_state(compiled->metrics[m], &size);
        for (size_t s = 0; s < size; s++)
            state[s] += states[s];
        states += size;
    }
}

int uni__runner_reduce_totals(uni__runner *runner, const uni__updater *updater, uni__wish wish,
                              uni_error *err)
{
    uni__compiled *compiled = runner->model->compiled;
    memset(runner->sums, 0, runner->num_sums * sizeof *runner->sums);
    double *sums = runner->sums;
    sums[0] = wish;
    sums[1] = compiled->samples;
    sums[2] = compiled->loss;
    memcpy(sums + 3, compiled->output_loss, sizeof compiled->output_loss);
    double *states = sums + 3 + UNI_MODEL_MAX_INPUTS;
    for (int m = 0; m < compiled->num_metrics; m++) {
        size_t size = 0;
        const double *state = uni__metric_state(compiled->metrics[m], &size);
        memcpy(states, state, size * sizeof *states);
        states += size;
    }
    uni__trained counts = { .sums = sums, .num_sums = runner->num_sums, .factor = 1 };
    int status = updater->finish(updater->context, &counts, err);
    if (status != 0)
        return status;
    uni__compiled_reset(compiled);
    uni__runner_unpack(runner);
    return 0;
}
