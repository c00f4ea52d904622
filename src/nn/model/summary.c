/*
 * summary.c - Keras's table of a model: layers, output shapes, parameter counts and, for graphs
 * that are not a chain, the connections of each layer. Any thread that owns the model.
 */
#include "nn/model/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/text.h"

#define COLUMNS 4
static const int chain_widths[COLUMNS] = { 31, 22, 13, 0 },
                 graph_widths[COLUMNS] = { 19, 17, 10, 17 };

struct table {
    uni__text *out;
    const int *widths;
    int columns;
};

static void rule(const struct table *table, const char *left, const char *fill, const char *middle,
                 const char *right)
{
    uni__text_add_string(table->out, left);
    for (int i = 0; i < table->columns; i++) {
        for (int j = 0; j < table->widths[i] + 2; j++)
            uni__text_add_string(table->out, fill);
        uni__text_add_string(table->out, i + 1 < table->columns ? middle : right);
    }
    uni__text_add_string(table->out, "\n");
}

/* Bytes of `text` that fit on a line of `width`: up to a newline, the last space that fits, or a
 * hard cut. */
static size_t line_length(const char *text, int width)
{
    size_t length = strcspn(text, "\n");
    if (length <= (size_t)width)
        return length;
    for (size_t i = (size_t)width; i > 0; i--)
        if (text[i] == ' ')
            return i;
    return (size_t)width;
}

/* Prints one row; cells may take several lines. Numbers (the third column) are right-aligned. */
static void row(const struct table *table, const char *border, const char *const *cells)
{
    const char *rest[COLUMNS];
    for (int i = 0; i < table->columns; i++)
        rest[i] = cells[i];
    for (bool more = true; more;) {
        more = false;
        uni__text_add_string(table->out, border);
        for (int i = 0; i < table->columns; i++) {
            int width = table->widths[i];
            size_t length = line_length(rest[i], width);
            uni__text_add_format(table->out, i == 2 ? " %*.*s " : " %-*.*s ", width, (int)length,
                                 rest[i]);
            uni__text_add_string(table->out, border);
            rest[i] += length;
            rest[i] += strspn(rest[i], " \n");
            more = more || *rest[i] != '\0';
        }
        uni__text_add_string(table->out, "\n");
    }
}

static void with_commas(char out[32], size_t number)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%zu", number), at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
}

static void total(uni__text *out, const char *what, size_t count, double bytes)
{
    static const char *const units[] = { "B", "KB", "MB", "GB", "TB" };
    char number[32];
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    with_commas(number, count);
    uni__text_add_format(out, " %s params: %s (%.2f %s)\n", what, number, bytes, units[unit]);
}

static int add_size(void *context, const uni_layer *layer, const uni__layer_slot *slot,
                    uni_error *err)
{
    *(size_t *)context += uni_parameter_info_of(slot->parameter)->size;
    return 0;
}

/* A node's index among the nodes of its layer: Keras's "name[node][0]". */
static int node_index(const uni_model *model, int node)
{
    int index = 0;
    for (int i = 0; i < node; i++)
        index += model->nodes[i].layer == model->nodes[node].layer;
    return index;
}

static void connections(const uni_model *model, const uni_layer *layer, uni__text *out)
{
    uni__text_clear(out);
    bool some = false;
    for (int i = 0; i < model->num_nodes; i++)
        for (int j = 0; model->nodes[i].layer == layer && j < model->nodes[i].num_inputs; j++) {
            int from = model->nodes[i].inputs[j];
            uni__text_add_format(out, "%s%s[%d][0]", some ? ",\n" : "",
                                 uni_layer_name(model->nodes[from].layer), node_index(model, from));
            some = true;
        }
    if (!some)
        uni__text_add_string(out, "-");
}

static bool is_chain(const uni_model *model)
{
    for (int i = 0; i < model->num_nodes; i++) {
        int uses = 0;
        for (int j = 0; j < model->num_nodes; j++)
            for (int k = 0; k < model->nodes[j].num_inputs; k++)
                uses += model->nodes[j].inputs[k] == i;
        if (model->nodes[i].num_inputs > 1 || uses > 1)
            return false;
    }
    return true;
}

static void rows(const uni_model *model, const struct table *table, uni__text *connected)
{
    char name[160], shape[UNI__SHAPE_TEXT_SIZE], count[48];
    for (size_t i = 0; i < uni_model_num_layers(model); i++) {
        const uni_layer *layer = uni_model_layer(model, i);
        size_t size = 0;
        if (uni__layer_visit(layer, add_size, &size, NULL) < 0)
            size = 0;
        if (i > 0)
            rule(table, "├", "─", "┼", "┤");
        snprintf(name, sizeof name, "%s (%s)", uni_layer_name(layer), layer->class_->name);
        if (layer->built) {
            uni__spec_text(shape, &layer->output);
            with_commas(count, size);
        } else {
            strcpy(shape, "?");
            strcpy(count, "0 (unbuilt)");
        }
        connections(model, layer, connected);
        row(table, "│",
            (const char *const[]){ name, shape, count,
                                   connected->data != NULL ? connected->data : "" });
    }
}

static void totals(const uni_model *model, uni__text *out)
{
    size_t trainable = 0, others = 0, slots = 0;
    uni__model_count(model, &trainable, &others);
    const uni_optimizer *optimizer = uni_model_optimizer(model);
    for (size_t i = 0; optimizer != NULL && i < uni__optimizer_num_slots(optimizer); i++)
        slots += uni__optimizer_slot(optimizer, i, NULL) != NULL ? trainable : 0;
    bool trained = optimizer != NULL && uni_optimizer_iterations(optimizer) > 0;
    /* Includes the step count (64 bits) and the learning rate, as in Keras. */
    size_t extra = trained ? slots + 2 : 0;
    total(out, "Total", trainable + others + extra,
          4.0 * (double)(trainable + others + extra) + (trained ? 4 : 0));
    total(out, "Trainable", trainable, 4.0 * (double)trainable);
    total(out, "Non-trainable", others, 4.0 * (double)others);
    if (trained)
        total(out, "Optimizer", extra, 4.0 * (double)extra + 4);
}

int uni_model_summary(char **out, const uni_model *model, uni_error *err)
{
    uni__text text = { 0 }, connected = { 0 };
    bool chain = model->sequential || is_chain(model);
    struct table table = { &text, chain ? chain_widths : graph_widths, chain ? 3 : 4 };
    *out = NULL;
    uni__text_add_format(&text, "Model: \"%s\"\n", model->name);
    rule(&table, "┏", "━", "┳", "┓");
    row(&table, "┃",
        (const char *const[]){ "Layer (type)", "Output Shape", "Param #", "Connected to" });
    rule(&table, "┡", "━", "╇", "┩");
    rows(model, &table, &connected);
    rule(&table, "└", "─", "┴", "┘");
    totals(model, &text);
    uni__text_free(&connected);
    if (text.failed) {
        uni__text_free(&text);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the summary of model %s", model->name);
    }
    *out = text.data;
    return 0;
}
