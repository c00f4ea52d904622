/*
 * order.c - the layers of a model in the order of Keras's model.layers, which is what groups in
 * weight files are numbered by and what an optimizer's variables follow. For a Sequential model it
 * is the list; for a graph Keras sorts by depth (the longest way to an output), and layers of one
 * depth by when a walk from the outputs first meets them. The model's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "nn/files/files.h"

struct sorting {
    const uni_model *model;
    int *depth; /* by node */
    bool *seen; /* by node */
    int *finished; /* nodes in the order the walk left them */
    int num_finished, num_met;
    struct place {
        uni_layer *layer;
        int depth, met; /* met -1: no output needs the layer */
    } * places;
    size_t num_places;
};

static struct place *place_of(struct sorting *sorting, const uni_layer *layer)
{
    for (size_t i = 0; i < sorting->num_places; i++)
        if (sorting->places[i].layer == layer)
            return &sorting->places[i];
    return NULL;
}

/* Depth first, inputs in their order; the recursion is as deep as the model is long. */
static void walk(struct sorting *sorting, int node)
{
    if (sorting->seen[node])
        return;
    sorting->seen[node] = true;
    const uni__model_node *at = &sorting->model->nodes[node];
    struct place *place = place_of(sorting, at->layer);
    if (place->met < 0)
        place->met = sorting->num_met++;
    for (int i = 0; i < at->num_inputs; i++)
        walk(sorting, at->inputs[i]);
    sorting->finished[sorting->num_finished++] = node;
}

/* From the outputs back: a node is one deeper than the deepest that reads it, and a shared layer as
 * deep as its deepest use. */
static void find_depths(struct sorting *sorting)
{
    for (int i = sorting->num_finished - 1; i >= 0; i--) {
        int node = sorting->finished[i];
        const uni__model_node *at = &sorting->model->nodes[node];
        struct place *place = place_of(sorting, at->layer);
        int depth = sorting->depth[node] > place->depth ? sorting->depth[node] : place->depth;
        sorting->depth[node] = place->depth = depth;
        for (int j = 0; j < at->num_inputs; j++)
            if (sorting->depth[at->inputs[j]] < depth + 1)
                sorting->depth[at->inputs[j]] = depth + 1;
    }
}

static int compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->depth != y->depth)
        return x->depth < y->depth ? 1 : -1;
    return (x->met > y->met) - (x->met < y->met);
}

static int sort_graph(const uni_model *model, uni_layer **layers, size_t count, uni_error *err)
{
    size_t nodes = (size_t)model->num_nodes + 1;
    struct sorting sorting = { .model = model,
                               .depth = calloc(nodes, sizeof *sorting.depth),
                               .seen = calloc(nodes, sizeof *sorting.seen),
                               .finished = calloc(nodes, sizeof *sorting.finished),
                               .places = calloc(count + 1, sizeof *sorting.places),
                               .num_places = count };
    bool memory = sorting.depth != NULL && sorting.seen != NULL && sorting.finished != NULL &&
                  sorting.places != NULL;
    if (memory) {
        for (size_t i = 0; i < count; i++)
            sorting.places[i] = (struct place){ layers[i], 0, -1 };
        for (int i = 0; i < model->num_outputs; i++)
            walk(&sorting, model->outputs[i]);
        find_depths(&sorting);
        qsort(sorting.places, count, sizeof *sorting.places, compare);
        for (size_t i = 0; i < count; i++)
            layers[i] = sorting.places[i].layer;
    }
    free(sorting.depth);
    free(sorting.seen);
    free(sorting.finished);
    free(sorting.places);
    return memory
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory to sort the layers of %s", model->name);
}

int uni__keras_order(const uni_model *model, uni_layer ***out, size_t *count, uni_error *err)
{
    size_t size = uni_model_num_layers(model);
    uni_layer **layers = calloc(size + 1, sizeof *layers);
    *out = NULL;
    *count = 0;
    if (layers == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to sort the layers of %s", model->name);
    for (size_t i = 0; i < size; i++)
        layers[i] = uni_model_layer(model, i);
    int status = model->sequential ? 0 : sort_graph(model, layers, size, err);
    if (status < 0) {
        free(layers);
        return status;
    }
    *out = layers;
    *count = size;
    return 0;
}
