/*
 * compile.h - what compile leaves behind: optimizer, a loss an output, metrics with their output
 * and the names they have in logs. For src/nn/model and src/nn/callbacks only.
 */
#ifndef UNISONO_NN_COMPILE_H
#define UNISONO_NN_COMPILE_H

#include "nn/layer.h"

struct uni__compiled {
    uni_optimizer *optimizer;
    int num_losses; /* 1, or one an output */
    uni_loss *losses[UNI_MODEL_MAX_INPUTS];
    float loss_weights[UNI_MODEL_MAX_INPUTS];
    int num_metrics;
    uni_metric **metrics; /* the totals of the epoch */
    int *metric_outputs;
    bool *metric_weighted;
    int accumulation; /* batches an update */
    bool norm_clipping; /* the update needs the whole gradient first */
    /* Totals of the epoch, beside the metrics: samples, and the losses times samples. */
    double samples, loss, output_loss[UNI_MODEL_MAX_INPUTS];
    bool told_not_finite; /* evaluate's warning, once */
    /* Names of logs, in Keras 3's way; made when the outputs are known. */
    int num_names;
    char **names;
};

/* Checks that losses and metrics fit the built model's outputs and makes the names. */
int uni__compiled_bind(uni_model *model, uni_error *err) UNI_MUST_USE;
/* The loss of an output. */
const uni_loss *uni__compiled_loss(const uni__compiled *compiled, int output);
void uni__compiled_reset(uni__compiled *compiled);
/* The present results, as many as there are names. */
void uni__compiled_results(const uni__compiled *compiled, int num_outputs, double *values);
/* Doubles that add up over replicas: samples, loss, loss of each output, states of the metrics. */
size_t uni__compiled_state_size(const uni__compiled *compiled);

#endif
