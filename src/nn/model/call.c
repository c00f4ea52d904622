/*
 * call.c - the forward pass of a model, and the regularisation penalty of its weights. Const; each
 * thread has its own tape.
 */
#include "nn/layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "tensor/update.h"

/* Keras's _adjust_input_rank: adds or removes a last axis of 1. Then the shape must match, and
 * numbers are cast to the spec's type. */
static uni_tensor *fit_input(const uni_model *model, uni_tape *tape, int index, uni_tensor *x)
{
    const uni__model_node *node = &model->nodes[model->inputs[index]];
    const uni_spec *spec = &node->output;
    if (x == NULL)
        return NULL;
    int ndim = uni_tensor_ndim(x), last = spec->ndim - 1;
    int64_t shape[UNI_TENSOR_MAX_DIMS + 1];
    memcpy(shape, uni_tensor_shape(x), (size_t)ndim * sizeof *shape);
    char got[UNI__SHAPE_TEXT_SIZE], wanted[UNI__SHAPE_TEXT_SIZE];
    uni__shape_text(got, ndim, shape);
    if (ndim == spec->ndim - 1 && spec->dims[last] == 1)
        shape[ndim++] = 1;
    else if (ndim == spec->ndim + 1 && shape[ndim - 1] == 1)
        ndim--;
    bool fits = ndim == spec->ndim;
    for (int i = 1; fits && i < ndim; i++)
        fits = spec->dims[i] < 0 || spec->dims[i] == shape[i];
    if (!fits)
        return uni_tape_fail(tape, UNI_ESHAPE, "model %s: input %d (%s) expects %s, got %s",
                             model->name, index, uni_layer_name(node->layer),
                             uni__spec_text(wanted, spec), got);
    uni_dtype dtype = uni_tensor_dtype(x);
    if ((dtype == UNI_STRING) != (spec->dtype == UNI_STRING))
        return uni_tape_fail(tape, UNI_EDTYPE, "model %s: input %d (%s) expects %s, got %s",
                             model->name, index, uni_layer_name(node->layer),
                             spec->dtype == UNI_STRING ? "text" : "numbers",
                             dtype == UNI_STRING ? "text" : "numbers");
    if (ndim != uni_tensor_ndim(x))
        x = dtype == UNI_STRING ? uni_tape_input(tape, dtype, ndim, shape, uni_tensor_data(x))
                                : uni_op_reshape(tape, x, ndim, shape);
    return spec->dtype == UNI_F32 && dtype != UNI_F32 ? uni_op_cast(tape, x, UNI_F32) : x;
}

static uni_tensor *call_node(const uni__model_node *node, uni_tape *tape, uni_tensor *const *inputs)
{
    if (!node->has_training)
        return uni__layer_call(node->layer, tape, node->num_inputs, inputs);
    bool before = uni__tape_set_training(tape, node->training);
    uni_tensor *out = uni__layer_call(node->layer, tape, node->num_inputs, inputs);
    uni__tape_set_training(tape, before);
    return out;
}

int uni__model_run(const uni_model *model, uni_tape *tape, uni_tensor *const *inputs,
                   uni_tensor **outputs)
{
    for (int i = 0; i < model->num_outputs; i++)
        outputs[i] = NULL;
    int64_t bytes = model->num_nodes * (int64_t)sizeof(uni_tensor *);
    uni_tensor *list = uni_tape_scratch(tape, UNI_U8, 1, &bytes);
    if (list == NULL)
        return uni_tape_status(tape, NULL);
    uni_tensor **results = uni_tensor_data(list);
    for (int i = 0; i < model->num_inputs; i++)
        results[model->inputs[i]] = fit_input(model, tape, i, inputs[i]);
    for (int i = 0; i < model->num_nodes; i++) {
        const uni__model_node *node = &model->nodes[i];
        if (node->num_inputs == 0)
            continue;
        uni_tensor *taken[UNI_MODEL_MAX_INPUTS];
        for (int j = 0; j < node->num_inputs; j++)
            taken[j] = results[node->inputs[j]];
        results[i] = call_node(node, tape, taken);
        if (results[i] == NULL)
            break;
    }
    UNI_TRY(uni_tape_status(tape, NULL));
    for (int i = 0; i < model->num_outputs; i++)
        outputs[i] = results[model->outputs[i]];
    return 0;
}

int uni_model_call_n(uni_model *model, uni_tape *tape, uni_tensor *const *inputs,
                     uni_tensor **outputs)
{
    if (!model->built) {
        if (inputs[0] == NULL) {
            outputs[0] = NULL;
            return uni_tape_status(tape, NULL);
        }
        uni_spec spec = { .dtype = uni_tensor_dtype(inputs[0]),
                          .ndim = uni_tensor_ndim(inputs[0]) };
        memcpy(spec.dims, uni_tensor_shape(inputs[0]), (size_t)spec.ndim * sizeof *spec.dims);
        spec.dims[0] = -1;
        uni_error err = { 0 };
        int status = uni_model_build(model, 1, &spec, &err);
        if (status < 0) {
            uni_tape_fail(tape, status, "%s", err.message);
            outputs[0] = NULL;
            return status;
        }
    }
    return uni__model_run(model, tape, inputs, outputs);
}

uni_tensor *uni_model_call(uni_model *model, uni_tape *tape, uni_tensor *input)
{
    uni_tensor *outputs[UNI_MODEL_MAX_INPUTS] = { NULL };
    if (model->built && (model->num_inputs != 1 || model->num_outputs != 1))
        return uni_tape_fail(tape, UNI_EINVAL,
                             "model %s has %d inputs and %d outputs; call it with uni_model_call_n",
                             model->name, model->num_inputs, model->num_outputs);
    return uni_model_call_n(model, tape, &input, outputs) < 0 ? NULL : outputs[0];
}

uni_tensor *uni__model_weight_penalty(const uni_model *model, uni_tape *tape)
{
    uni_tensor *sum = NULL;
    for (size_t i = 0; model->regularized && i < model->num_layers; i++)
        sum = uni__layer_regularization(model->layers[i], tape, sum);
    return sum;
}

uni_tensor *uni_model_regularization(uni_model *model, uni_tape *tape)
{
    uni_tensor *weights = uni__model_weight_penalty(model, tape),
               *added = uni__tape_added_losses(tape);
    if (weights == NULL && added == NULL)
        return uni_tape_constant(tape, 0);
    uni_tensor *all = weights == NULL ? added
                      : added == NULL ? weights
                                      : uni_op_add(tape, weights, added);
    *uni__tape_penalty(tape) = (uni__penalty){ .value = all };
    return all;
}
