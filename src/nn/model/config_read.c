/*
 * config_read.c - models from Keras's configs. Layers of a Functional model come in any order and
 * refer to each other by name and call; each call is applied as soon as its inputs exist. Sizes are
 * checked before anything is allocated. The model's thread.
 */
#include "nn/model/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "nn/loss/loss.h"
#include "nn/optimizer/optimizer.h"

#define MAX_LAYERS 10000

static int read_model(uni_model **out, const uni_value *config, size_t max_weights, uni_error *err);

/* A layer of a config: an inner model or a plain layer. */
static int read_layer(uni_layer **out, const uni_value *entry, size_t max_weights, uni_error *err)
{
    const uni_value *config = NULL;
    const char *class_name = uni__object_class(entry, &config);
    *out = NULL;
    if (class_name == NULL || config == NULL)
        return uni_error_set(err, UNI_EFORMAT,
                             "a layer of the config has no class_name or no config");
    if (strcmp(class_name, "Sequential") != 0 && strcmp(class_name, "Functional") != 0) {
        UNI_TRY(uni__layer_from_config(out, class_name, config, err));
        (*out)->max_weights = max_weights;
        return 0;
    }
    uni_model *model = NULL;
    UNI_TRY(read_model(&model, entry, max_weights, err));
    *out = uni_model_as_layer(model);
    return *out != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for an inner model");
}

/* ---- Sequential ---- */

static int read_sequential(uni_model **out, const uni_value *config, size_t max_weights,
                           uni_error *err)
{
    const uni_value *entries = uni_dict_get(config, "layers");
    size_t count = uni_list_size(entries), made = 0;
    if (count == 0 || count > MAX_LAYERS)
        return uni_error_set(err, UNI_EFORMAT,
                             "a sequential model has 1 to %d layers, the config has %zu",
                             MAX_LAYERS, count);
    uni_layer **layers = calloc(count + 1, sizeof *layers);
    if (layers == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %zu layers", count);
    int status = 0;
    for (; status == 0 && made < count; made += status == 0)
        status = read_layer(&layers[made], uni_list_get(entries, made), max_weights, err);
    if (status == 0)
        status =
            uni_sequential_new(out, uni_dict_get_string(config, "name", NULL), count, layers, err);
    else
        for (size_t i = 0; i < made; i++)
            uni_layer_free(layers[i]);
    free(layers);
    return status;
}

static int build_sequential(uni_model *model, const uni_value *config, uni_error *err)
{
    uni_spec spec = { .dtype = UNI_F32 };
    int64_t dims[UNI_TENSOR_MAX_DIMS];
    UNI_TRY(uni__config_get_ints(dims, &spec.ndim, UNI_TENSOR_MAX_DIMS, config, "build_input_shape",
                                 err));
    if (model->built || spec.ndim == 0)
        return 0;
    memcpy(spec.dims, dims, sizeof spec.dims);
    spec.dims[0] = -1;
    return uni_model_build(model, 1, &spec, err);
}

/* ---- Functional ---- */

struct entry {
    const uni_value *value;
    const char *name;
    uni_layer *layer; /* owned by the graph once `taken` */
    bool taken;
    size_t num_calls, done; /* inbound nodes, and how many were applied */
    uni_symbol **symbols; /* by call */
    uni_symbol **waits; /* the symbol that its next call was found to need */
};

struct functional {
    uni_graph *graph;
    size_t count;
    struct entry *entries;
    struct entry **names; /* the entries by name, and among equal ones by place */
    size_t max_weights;
};

static int by_name(const void *a, const void *b)
{
    const struct entry *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);
    return order != 0 ? order : (*x > *y) - (*x < *y);
}

/* The first one of that name. */
static struct entry *find_entry(const struct functional *f, const char *name)
{
    size_t low = 0, high = name != NULL ? f->count : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(f->names[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return name != NULL && low < f->count && strcmp(f->names[low]->name, name) == 0 ? f->names[low]
                                                                                    : NULL;
}

/* Where the symbol of [name, node, tensor] is, or will be when that call is applied. */
static int find_symbol(const struct functional *f, const uni_value *history, uni_symbol ***out,
                       uni_error *err)
{
    const char *name = uni_value_as_string(uni_list_get(history, 0), NULL);
    int64_t node = uni_value_as_int(uni_list_get(history, 1), -1),
            tensor = uni_value_as_int(uni_list_get(history, 2), -1);
    const struct entry *entry = find_entry(f, name);
    *out = NULL;
    if (entry == NULL || node < 0)
        return uni_error_set(err, UNI_EFORMAT,
                             "the config refers to a layer \"%s\" that it does not have",
                             name != NULL ? name : "?");
    if (tensor != 0)
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "output %lld of layer %s: layers with several outputs are not supported",
            (long long)tensor, name);
    size_t calls = entry->num_calls > 0 ? entry->num_calls : 1;
    if ((size_t)node >= calls)
        return uni_error_set(err, UNI_EFORMAT,
                             "the config refers to call %lld of layer %s, which has %zu",
                             (long long)node, name, calls);
    *out = &entry->symbols[node];
    return 0;
}

struct inputs {
    uni_symbol *symbols[UNI_MODEL_MAX_INPUTS];
    int count;
    uni_symbol **waits; /* the first one that is not there yet */
};

static int add_input(const struct functional *f, const uni_value *value, struct inputs *inputs,
                     uni_error *err)
{
    if (uni_value_type_of(value) == UNI_TYPE_LIST) {
        for (size_t i = 0; i < uni_list_size(value); i++)
            UNI_TRY(add_input(f, uni_list_get(value, i), inputs, err));
        return 0;
    }
    if (strcmp(uni_dict_get_string(value, "class_name", ""), "__keras_tensor__") != 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "a layer is called with something that is not a tensor");
    if (inputs->count == UNI_MODEL_MAX_INPUTS)
        return uni_error_set(err, UNI_ELIMIT, "a layer is called with more than %d tensors",
                             UNI_MODEL_MAX_INPUTS);
    uni_symbol **symbol = NULL;
    UNI_TRY(find_symbol(f, uni_value_path(value, "config.keras_history"), &symbol, err));
    if (inputs->waits == NULL && *symbol == NULL)
        inputs->waits = symbol;
    inputs->symbols[inputs->count++] = *symbol;
    return 0;
}

/* Adds keywords in the order of our inputs; any other keyword must be null or a default. */
static int add_keywords(const struct functional *f, struct entry *entry, const uni_value *kwargs,
                        struct inputs *inputs, uni_error *err)
{
    static const char *const tensors[] = { "query",         "value",  "key", "attention_mask",
                                           "initial_state", "inputs", "x" };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        const uni_value *value = uni_dict_get(kwargs, tensors[i]);
        if (uni_value_type_of(value) == UNI_TYPE_NULL)
            continue;
        /* The key defaults to the value. */
        if (strcmp(tensors[i], "attention_mask") == 0 && inputs->count == 2)
            inputs->symbols[inputs->count++] = inputs->symbols[1];
        UNI_TRY(add_input(f, value, inputs, err));
    }
    uni__attention_set_causal(entry->layer, uni_dict_get_bool(kwargs, "use_causal_mask", false));
    UNI_TRY(uni__config_refuse(kwargs, "mask", NULL, err));
    return uni__config_refuse(kwargs, "return_attention_scores", NULL, err);
}

/* Applies the next call of the layer when it can. Returns 1 when it did. Layers that come in the
 * reverse order are asked once for each of the others, so the question must cost nothing. */
static int apply_next(struct functional *f, struct entry *entry, uni_error *err)
{
    if (entry->waits != NULL && *entry->waits == NULL)
        return 0;
    const uni_value *call = uni_list_get(uni_dict_get(entry->value, "inbound_nodes"), entry->done);
    struct inputs inputs = { 0 };
    UNI_TRY(add_input(f, uni_dict_get(call, "args"), &inputs, err));
    UNI_TRY(add_keywords(f, entry, uni_dict_get(call, "kwargs"), &inputs, err));
    entry->waits = inputs.waits;
    if (inputs.waits != NULL)
        return 0;
    entry->taken = true;
    const uni_value *training = uni_dict_get(uni_dict_get(call, "kwargs"), "training");
    uni_symbol *symbol = uni_graph_apply_n(f->graph, entry->layer, inputs.count, inputs.symbols);
    if (uni_value_type_of(training) == UNI_TYPE_BOOL)
        symbol = uni__symbol_training(symbol, uni_value_as_bool(training, false));
    entry->symbols[entry->done++] = symbol;
    return 1;
}

static int open_entry(struct functional *f, struct entry *entry, const uni_value *value,
                      uni_error *err)
{
    entry->value = value;
    entry->name = uni_dict_get_string(
        value, "name", uni_value_as_string(uni_value_path(value, "config.name"), NULL));
    if (entry->name == NULL)
        return uni_error_set(err, UNI_EFORMAT, "a layer of the config has no name");
    entry->num_calls = uni_list_size(uni_dict_get(value, "inbound_nodes"));
    if (entry->num_calls > MAX_LAYERS)
        return uni_error_set(err, UNI_ELIMIT, "layer %s is called %zu times", entry->name,
                             entry->num_calls);
    entry->symbols = calloc(entry->num_calls + 1, sizeof *entry->symbols);
    if (entry->symbols == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for layer %s", entry->name);
    UNI_TRY(read_layer(&entry->layer, value, f->max_weights, err));
    if (entry->num_calls > 0)
        return 0;
    if (entry->layer->class_ != &uni__class_input)
        return uni_error_set(err, UNI_EFORMAT,
                             "layer %s of the config is not connected to anything", entry->name);
    entry->taken = true;
    entry->symbols[0] = uni_graph_apply_n(f->graph, entry->layer, 0, NULL);
    return 0;
}

static int connect_all(struct functional *f, uni_error *err)
{
    for (bool progress = true; progress;) {
        progress = false;
        for (size_t i = 0; i < f->count; i++)
            while (f->entries[i].done < f->entries[i].num_calls) {
                int applied = apply_next(f, &f->entries[i], err);
                UNI_TRY(applied);
                if (applied == 0)
                    break;
                progress = true;
            }
    }
    for (size_t i = 0; i < f->count; i++)
        if (f->entries[i].done < f->entries[i].num_calls)
            return uni_error_set(err, UNI_EFORMAT,
                                 "the layers of the config depend on each other in a circle at %s",
                                 f->entries[i].name);
    return 0;
}

static int read_ends(const struct functional *f, const uni_value *value, uni_symbol **out,
                     int *count, uni_error *err)
{
    bool one = uni_value_type_of(uni_list_get(value, 0)) == UNI_TYPE_STRING;
    size_t size = one ? 1 : uni_list_size(value);
    if (size < 1 || size > UNI_MODEL_MAX_INPUTS)
        return uni_error_set(err, UNI_ELIMIT,
                             "a model has 1 to %d inputs and outputs, the config has %zu",
                             UNI_MODEL_MAX_INPUTS, size);
    for (size_t i = 0; i < size; i++) {
        uni_symbol **symbol = NULL;
        UNI_TRY(find_symbol(f, one ? value : uni_list_get(value, i), &symbol, err));
        out[i] = *symbol;
    }
    *count = (int)size;
    return 0;
}

static int fill_functional(struct functional *f, const uni_value *config, uni_error *err)
{
    const uni_value *layers = uni_dict_get(config, "layers");
    f->count = uni_list_size(layers);
    if (f->count == 0 || f->count > MAX_LAYERS) {
        f->count = 0;
        return uni_error_set(err, UNI_EFORMAT, "a model has 1 to %d layers", MAX_LAYERS);
    }
    f->entries = calloc(f->count, sizeof *f->entries);
    f->names = calloc(f->count, sizeof(struct entry *));
    if (f->entries == NULL || f->names == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %zu layers", f->count);
    for (size_t i = 0; i < f->count; i++) {
        UNI_TRY(open_entry(f, &f->entries[i], uni_list_get(layers, i), err));
        f->names[i] = &f->entries[i];
    }
    qsort(f->names, f->count, sizeof *f->names, by_name);
    return connect_all(f, err);
}

static int read_functional(uni_model **out, const uni_value *config, size_t max_weights,
                           uni_error *err)
{
    struct functional f = { .max_weights = max_weights };
    uni_symbol *inputs[UNI_MODEL_MAX_INPUTS], *outputs[UNI_MODEL_MAX_INPUTS];
    int num_inputs = 0, num_outputs = 0, status = 0;
    UNI_TRY_GOTO(uni_graph_new(&f.graph, err), done);
    UNI_TRY_GOTO(fill_functional(&f, config, err), done);
    UNI_TRY_GOTO(read_ends(&f, uni_dict_get(config, "input_layers"), inputs, &num_inputs, err),
                 done);
    UNI_TRY_GOTO(read_ends(&f, uni_dict_get(config, "output_layers"), outputs, &num_outputs, err),
                 done);
    uni_graph *graph = f.graph;
    f.graph = NULL; /* ownership has passed, even on failure */
    status = uni_model_from_graph(out, uni_dict_get_string(config, "name", NULL), graph, num_inputs,
                                  inputs, num_outputs, outputs, err);
done:
    for (size_t i = 0; f.entries != NULL && i < f.count; i++) {
        if (!f.entries[i].taken)
            uni_layer_free(f.entries[i].layer);
        free(f.entries[i].symbols);
    }
    free(f.entries);
    free(f.names);
    uni_graph_free(f.graph);
    return status;
}

/* ---- compile ---- */

#define MAX_METRICS 64

struct objects {
    uni_optimizer *optimizer;
    uni_loss *losses[UNI_MODEL_MAX_INPUTS];
    int num_losses;
    uni_metric *metrics[MAX_METRICS];
    int metric_outputs[MAX_METRICS], num_metrics;
    bool metric_weighted[MAX_METRICS];
    float loss_weights[UNI_MODEL_MAX_INPUTS];
};

static int read_metrics(struct objects *objects, const uni_value *value, int output, bool weighted,
                        uni_error *err)
{
    for (size_t i = 0; i < uni_list_size(value); i++) {
        const uni_value *item = uni_list_get(value, i);
        if (uni_value_type_of(item) == UNI_TYPE_NULL)
            continue;
        if (uni_value_type_of(item) == UNI_TYPE_LIST) { /* one list per output */
            UNI_TRY(read_metrics(objects, item, (int)i, weighted, err));
            continue;
        }
        if (objects->num_metrics == MAX_METRICS)
            return uni_error_set(err, UNI_ELIMIT, "more than %d metrics", MAX_METRICS);
        UNI_TRY(uni__metric_from_value(&objects->metrics[objects->num_metrics], item, err));
        objects->metric_weighted[objects->num_metrics] = weighted;
        objects->metric_outputs[objects->num_metrics++] = output;
    }
    return 0;
}

static int read_losses(struct objects *objects, const uni_value *value, uni_error *err)
{
    bool list = uni_value_type_of(value) == UNI_TYPE_LIST;
    size_t count = list ? uni_list_size(value) : uni_value_type_of(value) != UNI_TYPE_NULL;
    if (count > UNI_MODEL_MAX_INPUTS)
        return uni_error_set(err, UNI_ELIMIT, "more than %d losses", UNI_MODEL_MAX_INPUTS);
    for (size_t i = 0; i < count; i++) {
        UNI_TRY(
            uni__loss_from_value(&objects->losses[i], list ? uni_list_get(value, i) : value, err));
        objects->num_losses++;
    }
    return 0;
}

static int read_compile(uni_model *model, const uni_value *compile, uni_error *err)
{
    struct objects objects = { 0 };
    const uni_value *optimizer = uni_dict_get(compile, "optimizer"),
                    *weights = uni_dict_get(compile, "loss_weights");
    int status = 0;
    UNI_TRY_GOTO(uni__optimizer_from_value(&objects.optimizer, optimizer, err), fail);
    UNI_TRY_GOTO(read_losses(&objects, uni_dict_get(compile, "loss"), err), fail);
    UNI_TRY_GOTO(read_metrics(&objects, uni_dict_get(compile, "metrics"), 0, false, err), fail);
    UNI_TRY_GOTO(read_metrics(&objects, uni_dict_get(compile, "weighted_metrics"), 0, true, err),
                 fail);
    for (size_t i = 0; i < UNI_MODEL_MAX_INPUTS; i++)
        objects.loss_weights[i] = (float)uni_value_as_float(uni_list_get(weights, i), 1);
    int64_t accumulation =
        uni_value_as_int(uni_value_path(optimizer, "config.gradient_accumulation_steps"), 0);
    return uni_model_compile(
        model,
        &(uni_compile_options){ .optimizer = objects.optimizer,
                                .losses = objects.losses,
                                .num_losses = objects.num_losses,
                                .loss_weights = objects.loss_weights,
                                .metrics = objects.metrics,
                                .num_metrics = objects.num_metrics,
                                .metric_outputs = objects.metric_outputs,
                                .metric_weighted = objects.metric_weighted,
                                .gradient_accumulation_steps = (int)accumulation },
        err);
fail:
    uni_optimizer_free(objects.optimizer);
    for (int i = 0; i < objects.num_losses; i++)
        uni_loss_free(objects.losses[i]);
    for (int i = 0; i < objects.num_metrics; i++)
        uni_metric_free(objects.metrics[i]);
    return status;
}

static int read_model(uni_model **out, const uni_value *config, size_t max_weights, uni_error *err)
{
    const uni_value *inner = NULL;
    const char *class_name = uni__object_class(config, &inner);
    uni_model *model = NULL;
    *out = NULL;
    if (class_name == NULL || inner == NULL)
        return uni_error_set(err, UNI_EFORMAT, "the config has no class_name or no config");
    bool sequential = strcmp(class_name, "Sequential") == 0;
    if (!sequential && strcmp(class_name, "Functional") != 0 && strcmp(class_name, "Model") != 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "models of class \"%s\" are not supported; there are Sequential and "
                             "Functional",
                             class_name);
    int status = sequential ? read_sequential(&model, inner, max_weights, err)
                            : read_functional(&model, inner, max_weights, err);
    if (status == 0 && sequential)
        status = build_sequential(model, inner, err);
    const uni_value *compile = uni_dict_get(config, "compile_config");
    /* {} for an inner model, which was not compiled. */
    if (status == 0 && uni_dict_size(compile) > 0)
        status = read_compile(model, compile, err);
    if (status < 0) {
        uni_model_free(model);
        return status;
    }
    *out = model;
    return 0;
}

/* Of the model and all models in it, before any of them is made: names and places of layers are
 * looked for among all others. A value is never nested deeper than UNI_VALUE_MAX_DEPTH. */
static size_t count_layers(const uni_value *config)
{
    size_t count = 0;
    for (size_t i = 0; i < uni_list_size(config); i++)
        count += count_layers(uni_list_get(config, i));
    for (size_t i = 0; i < uni_dict_size(config); i++) {
        const uni_value *value = uni_dict_value_at(config, i);
        if (strcmp(uni_dict_key_at(config, i), "layers") == 0)
            count += uni_list_size(value);
        count += count_layers(value);
    }
    return count;
}

int uni__model_from_config(uni_model **out, const uni_value *config, size_t max_weights,
                           uni_error *err)
{
    size_t count = count_layers(config);
    *out = NULL;
    if (count > MAX_LAYERS)
        return uni_error_set(err, UNI_ELIMIT,
                             "a model has at most %d layers, with those of the models in it; the "
                             "config has %zu",
                             MAX_LAYERS, count);
    return read_model(out, config, max_weights, err);
}

int uni__model_read_config(uni_model **out, const uni_value *config, uni_error *err)
{
    return uni__model_from_config(out, config, 0, err);
}
