/*
 * compile.h - the result of compile: the optimizer, a loss per output, metrics with their output
 * and their names in logs. For src/nn/model and src/nn/callbacks only.
 */
#ifndef UNISONO_NN_COMPILE_H
#define UNISONO_NN_COMPILE_H

#include "nn/layer.h"

struct uni__compiled {
    uni_optimizer *optimizer;
    int num_losses; /* 1, or one per output */
    uni_loss *losses[UNI_MODEL_MAX_INPUTS];
    float loss_weights[UNI_MODEL_MAX_INPUTS];
    int num_metrics;
    uni_metric **metrics; /* totals of the epoch */
    int *metric_outputs;
    bool *metric_weighted;
    int accumulation; /* batches per update */
    /* Totals of the epoch besides the metrics: samples, and the losses times samples. */
    double samples, loss, output_loss[UNI_MODEL_MAX_INPUTS];
    bool told_not_finite; /* evaluate's warning, once */
    /* Names in logs as in Keras 3; created when the outputs are known. */
    int num_names;
    char **names;
};

/* Checks that losses and metrics match the built model's outputs, and creates the names. */
int uni__compiled_bind(uni_model *model, uni_error *err) UNI_MUST_USE;
/* The loss of an output. */
const uni_loss *uni__compiled_loss(const uni__compiled *compiled, int output);
void uni__compiled_reset(uni__compiled *compiled);
/* The current results, as many as there are names. */
void uni__compiled_results(const uni__compiled *compiled, int num_outputs, double *values);
/* Doubles that add up over replicas: samples, loss, loss per output, states of the metrics. */
size_t uni__compiled_state_size(const uni__compiled *compiled);

#endif
