/*
 * model.c - a model: its layers, its nodes, building and the forward pass.
 *
 * Sequential models and graphs are the same here: a list of nodes, each a layer with the indices of
 * the nodes that it takes its inputs from. A sequential model creates its nodes when it is built, a
 * graph (graph.c) when layers are applied. A model that becomes a layer of another one is built
 * again in that model's store and keeps its values. One thread builds; uni__model_run is const and
 * may run on several threads, each with its own tape.
 */
#include "nn/layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "nn/shared.h"
#include "base/random.h"

uni_model *uni__model_new(const char *name, bool sequential)
{
    uni_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return NULL;
    model->sequential = sequential;
    model->name = strdup(name != NULL ? name : sequential ? "sequential" : "functional");
    if (uni__random_system(&model->seed, sizeof model->seed) < 0)
        model->seed = (uint64_t)(uintptr_t)model;
    model->id = uni__random_id(model);
    model->seed |= 1; /* never 0, which means "not given" in options */
    model->build.seed = model->seed;
    if (model->name == NULL || uni_parameters_new(&model->build.store, NULL) < 0) {
        uni_model_free(model);
        return NULL;
    }
    return model;
}

void uni_model_free(uni_model *model)
{
    if (model == NULL)
        return;
    uni__runner_free(model->runner);
    uni__compiled_free(model->compiled);
    for (size_t i = 0; i < model->num_layers; i++)
        uni_layer_free(model->layers[i]);
    free(model->layers);
    free(model->nodes);
    uni_value_free(model->resume);
    uni_parameters_free(model->build.store);
    free(model->name);
    free(model);
}

int uni__model_add_layer(uni_model *model, uni_layer *layer, uni_error *err)
{
    if (layer == NULL)
        return uni__layer_check(layer, err);
    uni_layer **grown = realloc(model->layers, (model->num_layers + 1) * sizeof *grown);
    if (grown == NULL) {
        uni_layer_free(layer);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a layer of model %s", model->name);
    }
    model->layers = grown;
    grown[model->num_layers++] = layer;
    layer->owned = true;
    UNI_TRY(uni__layer_check(layer, err));
    return uni__layer_make_name(layer, model->layers, model->num_layers - 1, err);
}

int uni__model_add_node(uni_model *model, uni_layer *layer, int num_inputs, const int *inputs,
                        uni_error *err)
{
    uni__model_node *grown = realloc(model->nodes, (size_t)(model->num_nodes + 1) * sizeof *grown);
    if (grown == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a node of model %s", model->name);
    model->nodes = grown;
    grown[model->num_nodes] = (uni__model_node){ .layer = layer, .num_inputs = num_inputs };
    for (int i = 0; i < num_inputs; i++)
        grown[model->num_nodes].inputs[i] = inputs[i];
    return model->num_nodes++;
}

int uni__model_build_nodes(uni_model *model, uni__build_context *build, const char *parent,
                           uni_error *err)
{
    for (int i = 0; i < model->num_nodes; i++) {
        uni__model_node *node = &model->nodes[i];
        uni_spec specs[UNI_MODEL_MAX_INPUTS];
        for (int j = 0; j < node->num_inputs; j++)
            specs[j] = model->nodes[node->inputs[j]].output;
        UNI_TRY(uni__layer_build(node->layer, build, parent, node->num_inputs, specs, &node->output,
                                 err));
    }
    model->regularized = false;
    for (size_t i = 0; i < model->num_layers; i++)
        model->regularized = model->regularized || uni__layer_has_regularizer(model->layers[i]);
    model->built = true;
    return 0;
}

/* ---- sequential ---- */

/* Frees the layers that were not taken when something failed; a layer that is listed twice is freed
 * once. */
static void free_rest(size_t count, uni_layer *const *layers, size_t begin)
{
    for (size_t i = begin; i < count; i++) {
        bool again = false;
        for (size_t j = 0; j < i; j++)
            again = again || layers[j] == layers[i];
        if (!again && layers[i] != NULL && !layers[i]->owned)
            uni_layer_free(layers[i]);
    }
}

static int chain_nodes(uni_model *model, uni_error *err)
{
    for (size_t i = 0; i < model->num_layers; i++) {
        int before = (int)i - 1;
        int node = uni__model_add_node(model, model->layers[i], i > 0 ? 1 : 0, &before, err);
        UNI_TRY(node);
    }
    model->num_inputs = model->num_outputs = 1;
    model->inputs[0] = 0;
    model->outputs[0] = model->num_nodes - 1;
    return 0;
}

int uni_sequential_new(uni_model **out, const char *name, size_t count, uni_layer *const *layers,
                       uni_error *err)
{
    *out = NULL;
    int status = 0;
    size_t taken = 0;
    uni_model *model = uni__model_new(name, true);
    if (model == NULL) {
        free_rest(count, layers, 0);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a model");
    }
    if (count == 0)
        UNI_TRY_GOTO(uni_error_set(err, UNI_EINVAL, "a sequential model needs at least one layer"),
                     fail);
    for (; taken < count; taken++) {
        uni_layer *layer = layers[taken];
        if (layer != NULL && layer->owned)
            UNI_TRY_GOTO(
                uni_error_set(err, UNI_EINVAL,
                              "layer %s stands twice in the list or belongs to another model",
                              uni_layer_name(layer)),
                fail);
        if (taken > 0 && layer != NULL && layer->class_ == &uni__class_input)
            UNI_TRY_GOTO(
                uni_error_set(err, UNI_EINVAL,
                              "an input layer can only be the first of a sequential model"),
                fail);
        status = uni__model_add_layer(model, layer, err);
        if (status < 0) {
            taken++;
            goto fail;
        }
    }
    if (model->layers[0]->class_ == &uni__class_input) {
        UNI_TRY_GOTO(chain_nodes(model, err), fail);
        UNI_TRY_GOTO(uni__model_build_nodes(model, &model->build, NULL, err), fail);
    }
    *out = model;
    return 0;
fail:
    free_rest(count, layers, taken);
    uni_model_free(model);
    return status;
}

/* Creates the input layer that the user did not give. */
static int make_input(uni_model *model, const uni_spec *spec, uni_error *err)
{
    uni_spec fitted = *spec;
    if (fitted.dtype == UNI_F64)
        fitted.dtype = UNI_F32;
    uni_layer *input = uni_layer_input(fitted.dtype, fitted.ndim - 1, fitted.dims + 1);
    UNI_TRY(uni__model_add_layer(model, input, err));
    memmove(model->layers + 1, model->layers, (model->num_layers - 1) * sizeof *model->layers);
    model->layers[0] = input;
    model->input_made = true;
    return chain_nodes(model, err);
}

int uni_model_build(uni_model *model, int num_inputs, const uni_spec *inputs, uni_error *err)
{
    if (model->built)
        return 0;
    if (num_inputs != 1)
        return uni_error_set(err, UNI_EINVAL, "model %s is sequential and takes one input, got %d",
                             model->name, num_inputs);
    if (inputs->ndim < 1 || inputs->ndim > UNI_TENSOR_MAX_DIMS)
        return uni_error_set(
            err, UNI_ESHAPE,
            "model %s: an input has 1 to %d dimensions, the batch included, got %d", model->name,
            UNI_TENSOR_MAX_DIMS, inputs->ndim);
    if (model->num_nodes == 0)
        UNI_TRY(make_input(model, inputs, err));
    return uni__model_build_nodes(model, &model->build, NULL, err);
}

/* ---- a model inside another one ---- */

struct inner {
    uni_model *model;
};

struct values {
    float *data;
    size_t size, capacity;
    bool restoring;
};

/* Copies a parameter's numbers out, or back in the same order. */
static int move_values(void *context, const uni_layer *layer, const uni__layer_slot *slot,
                       uni_error *err)
{
    struct values *values = context;
    size_t count = uni_parameter_info_of(slot->parameter)->size;
    if (!values->restoring && values->size + count > values->capacity) {
        size_t capacity = 2 * (values->size + count);
        float *grown = realloc(values->data, capacity * sizeof *grown);
        if (grown == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory to move the weights of %s",
                                 uni_layer_name(layer));
        values->data = grown;
        values->capacity = capacity;
    }
    if (values->restoring)
        memcpy(uni_parameter_data(slot->parameter), values->data + values->size,
               count * sizeof(float));
    else
        memcpy(values->data + values->size, uni_parameter_data(slot->parameter),
               count * sizeof(float));
    values->size += count;
    return 0;
}

static int move_all(uni_model *model, struct values *values, uni_error *err)
{
    values->size = 0;
    for (size_t i = 0; i < model->num_layers; i++)
        UNI_TRY(uni__layer_visit(model->layers[i], move_values, values, err));
    return 0;
}

static int inner_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                       uni_error *err)
{
    uni_model *model = ((struct inner *)self)->model;
    struct values values = { 0 };
    bool had_values = model->built;
    int status = 0;
    if (model->num_nodes == 0)
        UNI_TRY(make_input(model, inputs, err));
    if (had_values) {
        UNI_TRY_GOTO(move_all(model, &values, err), done);
        for (size_t i = 0; i < model->num_layers; i++)
            uni__layer_unbuild(model->layers[i]);
    }
    for (size_t i = 0; i < model->num_layers; i++)
        model->layers[i]->frozen |= layer->frozen;
    UNI_TRY_GOTO(uni__model_build_nodes(model, layer->build, layer->path, err), done);
    uni_parameters_free(model->build.store); /* nothing points there any more */
    model->build.store = NULL;
    values.restoring = true;
    if (had_values)
        UNI_TRY_GOTO(move_all(model, &values, err), done);
    free(layer->children);
    layer->children = malloc((model->num_layers + 1) * sizeof *layer->children);
    if (layer->children == NULL)
        UNI_TRY_GOTO(
            uni_error_set(err, UNI_ENOMEM, "no memory for model %s as a layer", model->name), done);
    if (model->num_layers > 0)
        memcpy(layer->children, model->layers, model->num_layers * sizeof *layer->children);
    layer->num_children = model->num_layers;
    layer->borrowed_children = true;
done:
    free(values.data);
    return status;
}

static int inner_infer(const uni_layer *layer, const void *self, int num_inputs,
                       const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const uni_model *model = ((const struct inner *)self)->model;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, model->num_inputs, model->num_inputs, err));
    *output = model->nodes[model->outputs[0]].output;
    return 0;
}

static uni_tensor *inner_call(const uni_layer *layer, const void *self, uni_tape *tape,
                              int num_inputs, uni_tensor *const *inputs)
{
    uni_tensor *output = NULL;
    return uni__model_run(((const struct inner *)self)->model, tape, inputs, &output) < 0 ? NULL
                                                                                          : output;
}

static int inner_get_config(const uni_layer *layer, const void *self, uni_value *config,
                            uni_error *err)
{
    const uni_model *model = ((const struct inner *)self)->model;
    uni_value *whole = NULL;
    UNI_TRY(uni__model_get_config(&whole, model, err));
    const uni_value *own = uni_dict_get(whole, "config");
    int status = 0;
    for (size_t i = 0; status == 0 && i < uni_dict_size(own); i++)
        if (strcmp(uni_dict_key_at(own, i), "name") != 0)
            status = uni_dict_take(config, uni_dict_key_at(own, i),
                                   uni_value_copy(uni_dict_value_at(own, i)));
    uni_value_free(whole);
    return status;
}

static void inner_free(void *self)
{
    uni_model_free(((struct inner *)self)->model);
}

#define INNER(title)                                                                               \
    {                                                                                              \
        .name = title, .size = sizeof(struct inner), .build = inner_build, .infer = inner_infer,   \
        .call = inner_call, .get_config = inner_get_config, .free = inner_free,                    \
    }
const uni_layer_class uni__class_sequential = INNER("Sequential");
const uni_layer_class uni__class_functional = INNER("Functional");

uni_layer *uni_model_as_layer(uni_model *model)
{
    if (model == NULL)
        return NULL;
    uni_layer *layer =
        uni_layer_new(model->sequential ? &uni__class_sequential : &uni__class_functional);
    if (layer == NULL) {
        uni_model_free(model);
        return NULL;
    }
    ((struct inner *)layer->self)->model = model;
    if (model->num_outputs > 1)
        uni_layer_fail(layer, UNI_EUNSUPPORTED,
                       "a model inside another one has one output, %s has %d", model->name,
                       model->num_outputs);
    return uni_layer_named(layer, model->name);
}

uni_model *uni__layer_inner_model(const uni_layer *layer)
{
    bool inner = layer->class_ == &uni__class_sequential || layer->class_ == &uni__class_functional;
    return inner ? ((struct inner *)layer->self)->model : NULL;
}

/* ---- queries ---- */

static int draw_again(void *context, const uni_layer *layer, const uni__layer_slot *slot,
                      uni_error *err)
{
    const uni_model *model = context;
    if (uni__initializer_is_random(&slot->initializer))
        return uni__initialize(slot->parameter, &slot->initializer, model->seed, err);
    return 0;
}

void uni_model_set_seed(uni_model *model, uint64_t seed)
{
    /* 0 is a valid seed; internally it means that none was given. */
    model->seed = seed != 0 ? seed : UNI_SEED_ZERO;
    model->build.seed = model->seed;
    /* Fails only if memory runs out for an orthogonal matrix: the first draw stays. */
    for (size_t i = 0; i < model->num_layers; i++)
        if (uni__layer_visit(model->layers[i], draw_again, model, NULL) < 0)
            return;
}

uint64_t uni__model_id(const uni_model *model)
{
    return model->id;
}

uint64_t uni__model_seed(const uni_model *model)
{
    return model->seed;
}

bool uni__model_is_built(const uni_model *model)
{
    return model->built;
}

const char *uni__model_name(const uni_model *model)
{
    return model->name;
}

/* Like Keras's model.layers, a sequential model hides its input layer. */
static size_t hidden_layers(const uni_model *model)
{
    return model->sequential && model->num_layers > 0 &&
                   model->layers[0]->class_ == &uni__class_input
               ? 1
               : 0;
}

size_t uni_model_num_layers(const uni_model *model)
{
    return model->num_layers - hidden_layers(model);
}

uni_layer *uni_model_layer(const uni_model *model, size_t index)
{
    return index < uni_model_num_layers(model) ? model->layers[index + hidden_layers(model)] : NULL;
}

int uni__model_num_inputs(const uni_model *model)
{
    return model->sequential ? 1 : model->num_inputs;
}

int uni__model_num_outputs(const uni_model *model)
{
    return model->sequential ? 1 : model->num_outputs;
}

const uni_spec *uni__model_input_spec(const uni_model *model, int index)
{
    return model->built && index >= 0 && index < model->num_inputs
               ? &model->nodes[model->inputs[index]].output
               : NULL;
}

const uni_spec *uni__model_output_spec(const uni_model *model, int index)
{
    return model->built && index >= 0 && index < model->num_outputs
               ? &model->nodes[model->outputs[index]].output
               : NULL;
}

uni_parameters *uni_model_parameters(const uni_model *model)
{
    return model->built ? model->build.store : NULL;
}
