/*
 * compile.c - optimizer, losses and metrics, as objects or by Keras's names, and their names in
 * logs: "loss"; with several outputs "OUTPUT_loss" and "OUTPUT_METRIC"; otherwise the metric's own
 * name. The model's thread.
 */
#include "nn/model/compile.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "nn/optimizer/optimizer.h"
#include "base/options.h"

void uni__compiled_free(uni__compiled *compiled)
{
    if (compiled == NULL)
        return;
    uni_optimizer_free(compiled->optimizer);
    for (int i = 0; i < compiled->num_losses; i++)
        uni_loss_free(compiled->losses[i]);
    for (int i = 0; i < compiled->num_metrics; i++)
        uni_metric_free(compiled->metrics[i]);
    for (int i = 0; i < compiled->num_names; i++)
        free(compiled->names[i]);
    free(compiled->names);
    free(compiled->metrics);
    free(compiled->metric_outputs);
    free(compiled->metric_weighted);
    free(compiled);
}

static void free_objects(const uni_compile_options *options)
{
    uni_optimizer_free(options->optimizer);
    uni_loss_free(options->loss);
    for (int i = 0; i < options->num_losses; i++)
        uni_loss_free(options->losses[i]);
    for (int i = 0; i < options->num_metrics; i++)
        uni_metric_free(options->metrics[i]);
}

/* Takes ownership of the options' objects before anything can fail, so that one free covers
 * both. */
static int take_objects(uni__compiled *compiled, const uni_compile_options *options, uni_error *err)
{
    int named = 0;
    while (options->metric_names != NULL && options->metric_names[named] != NULL)
        named++;
    int count = options->num_metrics + named;
    compiled->metrics = calloc((size_t)count + 1, sizeof *compiled->metrics);
    compiled->metric_outputs = calloc((size_t)count + 1, sizeof *compiled->metric_outputs);
    compiled->metric_weighted = calloc((size_t)count + 1, sizeof *compiled->metric_weighted);
    bool too_many = options->num_losses > UNI_MODEL_MAX_INPUTS;
    if (compiled->metrics == NULL || compiled->metric_outputs == NULL ||
        compiled->metric_weighted == NULL || too_many) {
        free_objects(options);
        return too_many
                   ? uni_error_set(err, UNI_ELIMIT, "%d losses, but a model has at most %d outputs",
                                   options->num_losses, UNI_MODEL_MAX_INPUTS)
                   : uni_error_set(err, UNI_ENOMEM, "no memory to compile the model");
    }
    compiled->optimizer = options->optimizer;
    for (int i = 0; i < options->num_losses; i++)
        compiled->losses[compiled->num_losses++] = options->losses[i];
    if (options->loss != NULL && compiled->num_losses < UNI_MODEL_MAX_INPUTS)
        compiled->losses[compiled->num_losses++] = options->loss;
    for (int i = 0; i < options->num_metrics; i++) {
        compiled->metric_outputs[compiled->num_metrics] =
            options->metric_outputs != NULL ? options->metric_outputs[i] : 0;
        compiled->metric_weighted[compiled->num_metrics] =
            options->metric_weighted != NULL && options->metric_weighted[i];
        compiled->metrics[compiled->num_metrics++] = options->metrics[i];
    }
    return 0;
}

static int make_named(uni__compiled *compiled, const uni_compile_options *options, uni_error *err)
{
    if (options->optimizer != NULL && options->optimizer_name != NULL)
        return uni_error_set(err, UNI_EINVAL,
                             "compile: give the optimizer by object or by name, not both");
    if ((options->loss != NULL) + (options->loss_name != NULL) + (options->num_losses > 0) > 1)
        return uni_error_set(
            err, UNI_EINVAL,
            "compile: give the loss by object, by name or as a list, only one of them");
    if (compiled->optimizer == NULL)
        UNI_TRY(uni_optimizer_new(
            &compiled->optimizer,
            options->optimizer_name != NULL ? options->optimizer_name : "rmsprop", NULL, err));
    if (options->loss_name != NULL) {
        UNI_TRY(uni_loss_new(&compiled->losses[0], options->loss_name, NULL, err));
        compiled->num_losses = 1;
    }
    for (int i = 0; options->metric_names != NULL && options->metric_names[i] != NULL; i++) {
        /* Keras names a metric as the user wrote it: "mse" stays "mse". */
        const char *name = options->metric_names[i];
        UNI_TRY(uni_metric_new(&compiled->metrics[compiled->num_metrics], name,
                               &(uni_metric_options){ .name = name }, err));
        compiled->num_metrics++;
    }
    return 0;
}

int uni_model_compile(uni_model *model, const uni_compile_options *options, uni_error *err)
{
    UNI__OPTIONS(uni_compile_options, options, gradient_accumulation_steps, err);
    uni__compiled *compiled = calloc(1, sizeof *compiled);
    if (compiled == NULL) {
        free_objects(options);
        return uni_error_set(err, UNI_ENOMEM, "no memory to compile model %s", model->name);
    }
    int status = 0;
    UNI_TRY_GOTO(take_objects(compiled, options, err), fail);
    UNI_TRY_GOTO(make_named(compiled, options, err), fail);
    if (options->gradient_accumulation_steps < 0)
        UNI_TRY_GOTO(uni_error_set(err, UNI_EINVAL,
                                   "gradient_accumulation_steps must be at least 1, got %d",
                                   options->gradient_accumulation_steps),
                     fail);
    compiled->accumulation =
        options->gradient_accumulation_steps > 0 ? options->gradient_accumulation_steps : 1;
    uni__optimizer_set_accumulation(compiled->optimizer, compiled->accumulation, 0);
    for (int i = 0; i < UNI_MODEL_MAX_INPUTS; i++)
        compiled->loss_weights[i] = 1;
    int outputs = model->built ? uni__model_num_outputs(model) : 1;
    for (int i = 0; options->loss_weights != NULL && i < outputs; i++)
        compiled->loss_weights[i] = options->loss_weights[i];
    uni__runner_free(model->runner); /* it refers to the previous compile */
    model->runner = NULL;
    uni__compiled_free(model->compiled);
    model->compiled = compiled;
    return model->built ? uni__compiled_bind(model, err) : 0;
fail:
    uni__compiled_free(compiled);
    return status;
}

uni_optimizer *uni_model_optimizer(const uni_model *model)
{
    return model->compiled != NULL ? model->compiled->optimizer : NULL;
}

/* ---- names ---- */

static bool has_name(const uni__compiled *compiled, const char *name)
{
    for (int i = 0; i < compiled->num_names; i++) {
        assert(compiled->names[i] != NULL); /* add_name fills them in order */
        if (strcmp(compiled->names[i], name) == 0)
            return true;
    }
    return false;
}

/* A second metric of the same name gets _1; a weighted one first gets weighted_, as in Keras. */
static int add_name(uni__compiled *compiled, const char *output, const char *name, bool weighted,
                    uni_error *err)
{
    size_t size = strlen(name) + (output != NULL ? strlen(output) + 1 : 0) + 32;
    char *full = malloc(size);
    if (full == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the name of a metric");
    const char *before = output != NULL ? output : "", *line = output != NULL ? "_" : "";
    snprintf(full, size, "%s%s%s", before, line, name);
    if (weighted && has_name(compiled, full))
        snprintf(full, size, "%s%sweighted_%s", before, line, name);
    size_t length = strlen(full);
    for (int number = 1; has_name(compiled, full); number++)
        snprintf(full + length, size - length, "_%d", number);
    compiled->names[compiled->num_names++] = full;
    return 0;
}

int uni__compiled_bind(uni_model *model, uni_error *err)
{
    uni__compiled *compiled = model->compiled;
    int outputs = uni__model_num_outputs(model);
    if (compiled->names != NULL)
        return 0;
    if (compiled->num_losses > 1 && compiled->num_losses != outputs)
        return uni_error_set(err, UNI_EINVAL,
                             "model %s was compiled with %d losses but has %d output%s",
                             model->name, compiled->num_losses, outputs, outputs == 1 ? "" : "s");
    compiled->names =
        calloc((size_t)(1 + outputs + compiled->num_metrics), sizeof *compiled->names);
    if (compiled->names == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to compile model %s", model->name);
    UNI_TRY(add_name(compiled, NULL, "loss", false, err));
    for (int i = 0; outputs > 1 && i < outputs; i++)
        UNI_TRY(add_name(compiled, uni_layer_name(model->nodes[model->outputs[i]].layer), "loss",
                         false, err));
    for (int i = 0; i < compiled->num_metrics; i++) {
        int output = compiled->metric_outputs[i];
        if (output < 0 || output >= outputs)
            return uni_error_set(err, UNI_EINVAL, "metric %s is of output %d, but model %s has %d",
                                 uni__metric_name(compiled->metrics[i]), output, model->name,
                                 outputs);
        UNI_TRY(add_name(
            compiled,
            outputs > 1 ? uni_layer_name(model->nodes[model->outputs[output]].layer) : NULL,
            uni__metric_name(compiled->metrics[i]), compiled->metric_weighted[i], err));
    }
    return 0;
}

const uni_loss *uni__compiled_loss(const uni__compiled *compiled, int output)
{
    return compiled->num_losses == 0 ? NULL
                                     : compiled->losses[compiled->num_losses == 1 ? 0 : output];
}

/* ---- totals ---- */

void uni__compiled_reset(uni__compiled *compiled)
{
    compiled->samples = compiled->loss = 0;
    memset(compiled->output_loss, 0, sizeof compiled->output_loss);
    for (int i = 0; i < compiled->num_metrics; i++)
        uni_metric_reset(compiled->metrics[i]);
}

void uni__compiled_results(const uni__compiled *compiled, int num_outputs, double *values)
{
    double samples = compiled->samples > 0 ? compiled->samples : 1;
    *values++ = compiled->loss / samples;
    for (int i = 0; num_outputs > 1 && i < num_outputs; i++)
        *values++ = compiled->output_loss[i] / samples;
    for (int i = 0; i < compiled->num_metrics; i++)
        *values++ = uni_metric_result(compiled->metrics[i]);
}

size_t uni__compiled_state_size(const uni__compiled *compiled)
{
    size_t total = 2 + UNI_MODEL_MAX_INPUTS;
    for (int i = 0; i < compiled->num_metrics; i++) {
        size_t size = 0;
        uni__metric_state(compiled->metrics[i], &size);
        total += size;
    }
    return total;
}
