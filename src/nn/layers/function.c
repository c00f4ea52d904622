/*
 * function.c - a user's forward function as a layer: the function, its context, the output's spec
 * and the shapes of the parameters. Building creates the parameters with Keras's defaults
 * (glorot_uniform; zeros for vectors); uni_layer_parameter reads them. The function runs on the
 * tape's thread and, with replicas, on several threads at once.
 */
#include "nn/layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/custom_layer.h>

struct function {
    uni_forward forward;
    void *context;
    uni_spec output;
    size_t num_parameters;
    uni_spec *parameters;
};

static int function_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                          uni_error *err)
{
    struct function *function = self;
    for (size_t i = 0; i < function->num_parameters; i++) {
        const uni_spec *spec = &function->parameters[i];
        uni_parameter *parameter;
        char name[32];
        snprintf(name, sizeof name, "parameter_%zu", i);
        UNI_TRY(uni_layer_add_parameter(&parameter, layer, name, UNI_PARAMETER_WEIGHT, spec->ndim,
                                        spec->dims, NULL,
                                        spec->ndim > 1 ? "glorot_uniform" : "zeros", NULL, err));
    }
    return 0;
}

static int function_infer(const uni_layer *layer, const void *self, int num_inputs,
                          const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const struct function *function = self;
    *output = function->output.dtype != 0 ? function->output : inputs[0];
    return 0;
}

static uni_tensor *function_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                 int num_inputs, uni_tensor *const *inputs)
{
    const struct function *function = self;
    return function->forward(function->context, tape, layer, num_inputs, inputs);
}

static void function_free(void *self)
{
    free(((struct function *)self)->parameters);
}

static const uni_layer_class function_class = { .name = "Function",
                                                .size = sizeof(struct function),
                                                .build = function_build,
                                                .infer = function_infer,
                                                .call = function_call,
                                                .free = function_free };

uni_layer *uni_layer_function(uni_forward forward, void *context, const uni_spec *output,
                              size_t num_parameters, const uni_spec *parameters)
{
    uni_layer *layer = uni_layer_new(&function_class);
    if (layer == NULL)
        return NULL;
    struct function *function = layer->self;
    *function = (struct function){ .forward = forward,
                                   .context = context,
                                   .num_parameters = num_parameters };
    if (output != NULL)
        function->output = *output;
    if (forward == NULL)
        return uni_layer_fail(layer, UNI_EINVAL, "a function layer needs a forward function");
    function->parameters = calloc(num_parameters > 0 ? num_parameters : 1, sizeof *parameters);
    if (function->parameters == NULL) {
        function->num_parameters = 0;
        return uni_layer_fail(layer, UNI_ENOMEM, "no memory for %zu parameters", num_parameters);
    }
    if (num_parameters > 0)
        memcpy(function->parameters, parameters, num_parameters * sizeof *parameters);
    return layer;
}
