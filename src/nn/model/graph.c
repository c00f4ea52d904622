/*
 * graph.c - functional models: symbols stand for future tensors; applying a layer to them builds it
 * and creates the next symbol.
 *
 * A graph is a model under construction; symbols are indices of its nodes. The first error sticks:
 * later calls return NULL, and uni_model_from_graph reports it, so that a network can be written as
 * nested calls. The finished model has its layers in Keras's order (by depth from the outputs, then
 * by the traversal from them), which is the order of get_weights. One thread.
 */
#include "nn/layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"

struct uni_symbol {
    uni_graph *graph;
    int node;
    uni_symbol *next; /* list of all, for freeing */
};

struct uni_graph {
    uni_model *model;
    uni_symbol *symbols;
    uni_error failure;
};

int uni_graph_new(uni_graph **out, uni_error *err)
{
    *out = calloc(1, sizeof **out);
    if (*out != NULL)
        (*out)->model = uni__model_new(NULL, false);
    if (*out == NULL || (*out)->model == NULL) {
        free(*out);
        *out = NULL;
        return uni_error_set(err, UNI_ENOMEM, "no memory for a graph");
    }
    return 0;
}

void uni_graph_free(uni_graph *graph)
{
    if (graph == NULL)
        return;
    for (uni_symbol *symbol = graph->symbols, *next; symbol != NULL; symbol = next) {
        next = symbol->next;
        free(symbol);
    }
    uni_model_free(graph->model);
    free(graph);
}

static uni_symbol *new_symbol(uni_graph *graph, int node)
{
    uni_symbol *symbol = calloc(1, sizeof *symbol);
    if (symbol == NULL) {
        uni_error_set(&graph->failure, UNI_ENOMEM, "no memory for a symbol");
        return NULL;
    }
    *symbol = (uni_symbol){ .graph = graph, .node = node, .next = graph->symbols };
    graph->symbols = symbol;
    return symbol;
}

static bool has_layer(const uni_model *model, const uni_layer *layer)
{
    for (size_t i = 0; i < model->num_layers; i++)
        if (model->layers[i] == layer)
            return true;
    return false;
}

/* Takes ownership of the layer unless the graph already has it. */
static int take_layer(uni_graph *graph, uni_layer *layer)
{
    if (layer == NULL)
        return uni__layer_check(layer, &graph->failure);
    if (has_layer(graph->model, layer))
        return 0;
    if (layer->owned)
        return uni_error_set(&graph->failure, UNI_EINVAL, "layer %s belongs to another model",
                             uni_layer_name(layer));
    return uni__model_add_layer(graph->model, layer, &graph->failure);
}

uni_symbol *uni_graph_input(uni_graph *graph, const char *name, uni_dtype dtype, int ndim,
                            const int64_t *shape)
{
    uni_layer *layer = uni_layer_input(dtype, ndim, shape);
    if (name != NULL)
        layer = uni_layer_named(layer, name);
    if (graph->failure.code != 0) {
        uni_layer_free(layer);
        return NULL;
    }
    if (take_layer(graph, layer) < 0)
        return NULL;
    return uni_graph_apply_n(graph, layer, 0, NULL);
}

uni_symbol *uni_graph_apply_n(uni_graph *graph, uni_layer *layer, int count,
                              uni_symbol *const *inputs)
{
    uni_model *model = graph->model;
    int nodes[UNI_MODEL_MAX_INPUTS];
    uni_spec specs[UNI_MODEL_MAX_INPUTS];
    uni_error *err = &graph->failure;
    bool failed = graph->failure.code != 0;
    uni_error ignored = { 0 };
    /* Taken anyway, to be freed with the graph. */
    if (failed && layer != NULL && !layer->owned) {
        if (uni__model_add_layer(model, layer, &ignored) < 0)
            return NULL;
        return NULL;
    }
    if (failed || take_layer(graph, layer) < 0)
        return NULL;
    if (count > UNI_MODEL_MAX_INPUTS) {
        uni_error_set(err, UNI_ELIMIT, "%s: %d inputs, but a layer has at most %d",
                      uni_layer_name(layer), count, UNI_MODEL_MAX_INPUTS);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        if (inputs[i] == NULL || inputs[i]->graph != graph) {
            uni_error_set(err, UNI_EINVAL, "%s: input %d %s", uni_layer_name(layer), i,
                          inputs[i] == NULL ? "is NULL" : "is a symbol of another graph");
            return NULL;
        }
        nodes[i] = inputs[i]->node;
        specs[i] = model->nodes[nodes[i]].output;
    }
    uni_spec output;
    if (uni__layer_build(layer, &model->build, NULL, count, specs, &output, err) < 0)
        return NULL;
    int node = uni__model_add_node(model, layer, count, nodes, err);
    if (node < 0)
        return NULL;
    model->nodes[node].output = output;
    return new_symbol(graph, node);
}

uni_symbol *uni__symbol_training(uni_symbol *symbol, bool training)
{
    if (symbol != NULL) {
        uni__model_node *node = &symbol->graph->model->nodes[symbol->node];
        node->has_training = true;
        node->training = training;
    }
    return symbol;
}

/* ---- Keras's order of layers ---- */

struct order {
    const uni_model *model;
    int *done; /* per node: its position + 1 in `finished`; 0: not yet */
    int *finished; /* nodes, inputs before their users */
    int num_finished;
    int *index, *depth; /* per layer: first visit (-1: none), depth from the outputs */
    int num_visited;
};

static int layer_index(const uni_model *model, const uni_layer *layer)
{
    for (size_t i = 0; i < model->num_layers; i++)
        if (model->layers[i] == layer)
            return (int)i;
    return 0;
}

static void walk(struct order *order, int node)
{
    if (order->done[node])
        return;
    order->done[node] = 1;
    int layer = layer_index(order->model, order->model->nodes[node].layer);
    if (order->index[layer] < 0)
        order->index[layer] = order->num_visited++;
    for (int i = 0; i < order->model->nodes[node].num_inputs; i++)
        walk(order, order->model->nodes[node].inputs[i]);
    order->finished[order->num_finished++] = node;
}

/* Depths of nodes and layers, from the outputs backwards, as in Keras's map_graph. */
static void find_depths(struct order *order, int *node_depth)
{
    for (int i = order->num_finished - 1; i >= 0; i--) {
        int node = order->finished[i],
            layer = layer_index(order->model, order->model->nodes[node].layer);
        int depth = node_depth[node] > order->depth[layer] ? node_depth[node] : order->depth[layer];
        node_depth[node] = order->depth[layer] = depth;
        for (int j = 0; j < order->model->nodes[node].num_inputs; j++) {
            int before = order->model->nodes[node].inputs[j];
            if (node_depth[before] < depth + 1)
                node_depth[before] = depth + 1;
        }
    }
}

static void sort_layers(uni_model *model, const struct order *order)
{
    for (size_t i = 1; i < model->num_layers; i++) /* insertion sort: few layers, nearly sorted */
        for (size_t j = i; j > 0; j--) {
            int a = layer_index(order->model, model->layers[j - 1]),
                b = layer_index(order->model, model->layers[j]);
            bool after = order->depth[b] > order->depth[a] ||
                         (order->depth[b] == order->depth[a] && order->index[b] < order->index[a]);
            if (!after)
                break;
            uni_layer *swap = model->layers[j];
            model->layers[j] = model->layers[j - 1];
            model->layers[j - 1] = swap;
        }
}

static int order_layers(uni_model *model, uni_error *err)
{
    size_t nodes = (size_t)model->num_nodes, layers = model->num_layers;
    int *memory = calloc(3 * nodes + 2 * layers, sizeof *memory);
    uni_layer **before = malloc(layers * sizeof *before);
    if (memory == NULL || before == NULL) {
        free(memory);
        free(before);
        return uni_error_set(err, UNI_ENOMEM, "no memory for model %s", model->name);
    }
    memcpy(before, model->layers, layers * sizeof *before);
    uni_model frozen = *model; /* the order before sorting, to which indices refer */
    frozen.layers = before;
    struct order order = { .model = &frozen,
                           .done = memory,
                           .finished = memory + nodes,
                           .index = memory + 3 * nodes,
                           .depth = memory + 3 * nodes + layers };
    for (size_t i = 0; i < layers; i++)
        order.index[i] = -1;
    for (int i = 0; i < model->num_outputs; i++)
        walk(&order, model->outputs[i]);
    find_depths(&order, memory + 2 * nodes);
    int status = 0;
    for (size_t i = 0; i < layers && status == 0; i++)
        if (order.index[i] < 0 && before[i]->class_ != &uni__class_input)
            status =
                uni_error_set(err, UNI_EINVAL, "model %s: layer %s is not connected to an output",
                              model->name, uni_layer_name(before[i]));
    if (status == 0)
        sort_layers(model, &order);
    free(memory);
    free(before);
    return status;
}

/* ---- the model ---- */

static int set_ends(uni_graph *graph, const char *what, int count, uni_symbol *const *symbols,
                    int *out, uni_error *err)
{
    if (count < 1 || count > UNI_MODEL_MAX_INPUTS)
        return uni_error_set(err, UNI_EINVAL, "a model has 1 to %d %ss, got %d",
                             UNI_MODEL_MAX_INPUTS, what, count);
    for (int i = 0; i < count; i++) {
        if (symbols[i] == NULL || symbols[i]->graph != graph)
            return uni_error_set(err, UNI_EINVAL, "%s %d of the model is %s", what, i,
                                 symbols[i] == NULL ? "NULL" : "a symbol of another graph");
        out[i] = symbols[i]->node;
    }
    return 0;
}

static int check_inputs(const uni_model *model, uni_error *err)
{
    for (int i = 0; i < model->num_nodes; i++) {
        bool listed = model->nodes[i].num_inputs > 0;
        for (int j = 0; j < model->num_inputs; j++)
            listed = listed || model->inputs[j] == i;
        if (!listed)
            return uni_error_set(err, UNI_EINVAL,
                                 "input %s of the graph is not among the model's inputs",
                                 uni_layer_name(model->nodes[i].layer));
    }
    for (int j = 0; j < model->num_inputs; j++)
        if (model->nodes[model->inputs[j]].num_inputs > 0)
            return uni_error_set(
                err, UNI_EINVAL,
                "input %d of the model is the result of layer %s; inputs come from "
                "uni_graph_input",
                j, uni_layer_name(model->nodes[model->inputs[j]].layer));
    return 0;
}

static int finish(uni_graph *graph, const char *name, int num_inputs, uni_symbol *const *inputs,
                  int num_outputs, uni_symbol *const *outputs, uni_error *err)
{
    uni_model *model = graph->model;
    if (graph->failure.code != 0)
        return uni_error_set(err, graph->failure.code, "%s", graph->failure.message);
    if (name != NULL) {
        char *copy = strdup(name);
        if (copy == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the name of a model");
        free(model->name);
        model->name = copy;
    }
    UNI_TRY(set_ends(graph, "input", num_inputs, inputs, model->inputs, err));
    UNI_TRY(set_ends(graph, "output", num_outputs, outputs, model->outputs, err));
    model->num_inputs = num_inputs;
    model->num_outputs = num_outputs;
    UNI_TRY(check_inputs(model, err));
    UNI_TRY(order_layers(model, err));
    /* All are built; recomputes the specs. */
    return uni__model_build_nodes(model, &model->build, NULL, err);
}

int uni_model_from_graph(uni_model **out, const char *name, uni_graph *graph, int num_inputs,
                         uni_symbol *const *inputs, int num_outputs, uni_symbol *const *outputs,
                         uni_error *err)
{
    *out = NULL;
    int status = finish(graph, name, num_inputs, inputs, num_outputs, outputs, err);
    if (status == 0) {
        *out = graph->model;
        graph->model = NULL;
    }
    uni_graph_free(graph);
    return status;
}
