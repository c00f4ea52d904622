/*
 * config.c - models to and from Keras's configs: Sequential (a list of layers), Functional (layers
 * with the tensors they were called on), and the arguments of compile. Files contain these
 * (src/nn/keras). Unsupported features of Keras are rejected by name. The model's thread.
 */
#include "nn/model/compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "nn/shared.h"
#include "nn/loss/loss.h"
#include "nn/optimizer/optimizer.h"

/* ---- small writers ---- */

static int no_memory(int status, uni_error *err)
{
    return status < 0 ? uni_error_set(err, status, "no memory for the config of a model") : 0;
}

static int put(uni_value *dict, const char *key, uni_value *value, uni_error *err)
{
    return no_memory(uni_dict_take(dict, key, value), err);
}

static uni_value *shape_value(const uni_spec *spec)
{
    uni_value *list = uni_value_list();
    for (int i = 0; list != NULL && i < spec->ndim; i++)
        if (uni_list_take(list, spec->dims[i] < 0 ? uni_value_null()
                                                  : uni_value_int(spec->dims[i])) < 0) {
            uni_value_free(list);
            return NULL;
        }
    return list;
}

static int node_index(const uni_model *model, int node)
{
    int index = 0;
    for (int i = 0; i < node; i++)
        index += model->nodes[i].layer == model->nodes[node].layer;
    return index;
}

/* [name, node, 0] */
static uni_value *history_value(const uni_model *model, int node)
{
    uni_value *list = uni_value_list();
    int status = uni_list_take(list, uni_value_string(uni_layer_name(model->nodes[node].layer)));
    status = status < 0 ? status : uni_list_take(list, uni_value_int(node_index(model, node)));
    status = status < 0 ? status : uni_list_take(list, uni_value_int(0));
    if (status < 0) {
        uni_value_free(list);
        return NULL;
    }
    return list;
}

static uni_value *tensor_value(const uni_model *model, int node)
{
    const uni_spec *spec = &model->nodes[node].output;
    uni_value *config = uni_value_dict(), *tensor = uni_value_dict();
    const char *dtype = spec->dtype == UNI_STRING ? "string" : uni_dtype_name(spec->dtype);
    int status = uni_dict_take(config, "shape", shape_value(spec));
    status = status < 0 ? status : uni_dict_take(config, "dtype", uni_value_string(dtype));
    status =
        status < 0 ? status : uni_dict_take(config, "keras_history", history_value(model, node));
    status = status < 0 ? status
                        : uni_dict_take(tensor, "class_name", uni_value_string("__keras_tensor__"));
    if (status < 0) {
        uni_value_free(config);
        uni_value_free(tensor);
        return NULL;
    }
    if (uni_dict_take(tensor, "config", config) < 0) {
        uni_value_free(tensor);
        return NULL;
    }
    return tensor;
}

/* ---- layers ---- */

/* {"module", "class_name", "config", "registered_name"} of a layer or an inner model. */
static int layer_value(const uni_layer *layer, uni_value **out, uni_error *err)
{
    uni_value *config = NULL, *object = NULL;
    *out = NULL;
    bool functional = layer->class_ == &uni__class_functional;
    const char *module = functional                                ? "keras.src.models.functional"
                         : layer->class_ == &uni__class_sequential ? "keras"
                                                                   : "keras.layers";
    UNI_TRY(uni__layer_get_config(layer, &config, err));
    UNI_TRY(uni__object_new(&object, module, layer->class_->name, config, err));
    int status = 0;
    /* Keras builds MultiHeadAttention with two shapes. */
    if (layer->built && layer->num_inputs == 1 && layer->class_ != &uni__class_input &&
        layer->class_ != &uni__class_multi_head_attention) {
        uni_value *build = uni_value_dict();
        status = uni_dict_take(build, "input_shape", shape_value(&layer->inputs[0]));
        if (status < 0)
            uni_value_free(build);
        else
            status = uni_dict_take(object, "build_config", build);
    }
    if (status < 0) {
        uni_value_free(object);
        return no_memory(status, err);
    }
    *out = object;
    return 0;
}

static bool takes_list(const uni_layer *layer)
{
    const uni_layer_class *class_ = layer->class_;
    return class_ == &uni__class_add || class_ == &uni__class_subtract ||
           class_ == &uni__class_multiply || class_ == &uni__class_average ||
           class_ == &uni__class_maximum || class_ == &uni__class_concatenate ||
           uni__layer_inner_model(layer) != NULL;
}

static uni_value *tensor_list(const uni_model *model, const uni__model_node *node, int begin)
{
    uni_value *list = uni_value_list();
    for (int i = begin; list != NULL && i < node->num_inputs; i++)
        if (uni_list_take(list, tensor_value(model, node->inputs[i])) < 0) {
            uni_value_free(list);
            return NULL;
        }
    return list;
}

/* The arguments of one call: a list for merging layers, query and value for attention, the state as
 * a keyword. */
static int call_value(const uni_model *model, const uni__model_node *node, uni_value *args,
                      uni_value *kwargs)
{
    const uni_layer *layer = node->layer;
    bool attention = layer->class_ == &uni__class_multi_head_attention;
    if (node->has_training)
        UNI_TRY(uni_dict_take(kwargs, "training", uni_value_bool(node->training)));
    if (takes_list(layer) && node->num_inputs > 1)
        return uni_list_take(args, tensor_list(model, node, 0));
    UNI_TRY(uni_list_take(args, tensor_value(model, node->inputs[0])));
    if (!attention)
        return node->num_inputs > 1
                   ? uni_dict_take(kwargs, "initial_state", tensor_list(model, node, 1))
                   : 0;
    UNI_TRY(uni_list_take(args, tensor_value(model, node->inputs[node->num_inputs > 1 ? 1 : 0])));
    if (node->num_inputs > 2)
        UNI_TRY(uni_dict_take(kwargs, "key", tensor_value(model, node->inputs[2])));
    if (node->num_inputs > 3)
        UNI_TRY(uni_dict_take(kwargs, "attention_mask", tensor_value(model, node->inputs[3])));
    return uni__attention_is_causal(layer)
               ? uni_dict_take(kwargs, "use_causal_mask", uni_value_bool(true))
               : 0;
}

static int inbound_value(const uni_model *model, const uni_layer *layer, uni_value *list)
{
    for (int i = 0; i < model->num_nodes; i++) {
        const uni__model_node *node = &model->nodes[i];
        if (node->layer != layer || node->num_inputs == 0)
            continue;
        uni_value *args = uni_value_list(), *kwargs = uni_value_dict(), *call = uni_value_dict();
        int status = call_value(model, node, args, kwargs);
        if (status < 0) {
            uni_value_free(args);
            uni_value_free(kwargs);
            uni_value_free(call);
            return status;
        }
        status = uni_dict_take(call, "args", args);
        int second = uni_dict_take(call, "kwargs", kwargs);
        if (status < 0 || second < 0) {
            uni_value_free(call);
            return status < 0 ? status : second;
        }
        UNI_TRY(uni_list_take(list, call));
    }
    return 0;
}

static int add_inbound(const uni_model *model, const uni_layer *layer, uni_value *object)
{
    uni_value *list = uni_value_list();
    int status = inbound_value(model, layer, list);
    if (status < 0) {
        uni_value_free(list);
        return status;
    }
    UNI_TRY(uni_dict_take(object, "name", uni_value_string(uni_layer_name(layer))));
    return uni_dict_take(object, "inbound_nodes", list);
}

static int layers_value(const uni_model *model, uni_value *list, uni_error *err)
{
    for (size_t i = 0; i < model->num_layers; i++) {
        uni_value *object = NULL;
        UNI_TRY(layer_value(model->layers[i], &object, err));
        int status = model->sequential ? 0 : add_inbound(model, model->layers[i], object);
        if (status < 0) {
            uni_value_free(object);
            return no_memory(status, err);
        }
        UNI_TRY(no_memory(uni_list_take(list, object), err));
    }
    return 0;
}

/* ["x", 0, 0] for one, a list of such for several. */
static uni_value *ends_value(const uni_model *model, int count, const int *nodes)
{
    if (count == 1)
        return history_value(model, nodes[0]);
    uni_value *list = uni_value_list();
    for (int i = 0; list != NULL && i < count; i++)
        if (uni_list_take(list, history_value(model, nodes[i])) < 0) {
            uni_value_free(list);
            return NULL;
        }
    return list;
}

static int config_value(const uni_model *model, uni_value *config, uni_error *err)
{
    UNI_TRY(put(config, "name", uni_value_string(model->name), err));
    UNI_TRY(put(config, "trainable", uni_value_bool(true), err));
    uni_value *layers = uni_value_list();
    int status = layers_value(model, layers, err);
    if (status < 0) {
        uni_value_free(layers);
        return status;
    }
    UNI_TRY(put(config, "layers", layers, err));
    if (model->sequential)
        return model->built
                   ? put(config, "build_input_shape", shape_value(&model->nodes[0].output), err)
                   : 0;
    UNI_TRY(put(config, "input_layers", ends_value(model, model->num_inputs, model->inputs), err));
    return put(config, "output_layers", ends_value(model, model->num_outputs, model->outputs), err);
}

/* ---- compile ---- */

static int metrics_value(const uni_model *model, uni_value *list, int output, bool weighted,
                         uni_error *err)
{
    const uni__compiled *compiled = model->compiled;
    for (int i = 0; i < compiled->num_metrics; i++) {
        uni_value *metric = NULL;
        if ((output >= 0 && compiled->metric_outputs[i] != output) ||
            compiled->metric_weighted[i] != weighted)
            continue;
        UNI_TRY(uni__metric_to_value(compiled->metrics[i], &metric, err));
        UNI_TRY(no_memory(uni_list_take(list, metric), err));
    }
    return 0;
}

static int all_metrics(const uni_model *model, bool weighted, uni_value **out, uni_error *err)
{
    int outputs = uni__model_num_outputs(model), status = 0;
    uni_value *list = uni_value_list();
    if (outputs == 1)
        status = metrics_value(model, list, -1, weighted, err);
    for (int i = 0; outputs > 1 && status == 0 && i < outputs; i++) {
        uni_value *inner = uni_value_list();
        status = metrics_value(model, inner, i, weighted, err);
        if (status < 0)
            uni_value_free(inner);
        else
            status = no_memory(uni_list_take(list, inner), err);
    }
    if (status < 0) {
        uni_value_free(list);
        return status;
    }
    *out = list;
    return 0;
}

static int losses_value(const uni__compiled *compiled, uni_value **out, uni_error *err)
{
    if (compiled->num_losses == 1)
        return uni__loss_to_value(compiled->losses[0], out, err);
    uni_value *list = uni_value_list();
    int status = 0;
    for (int i = 0; status == 0 && i < compiled->num_losses; i++) {
        uni_value *loss = NULL;
        status = uni__loss_to_value(compiled->losses[i], &loss, err);
        if (status == 0)
            status = no_memory(uni_list_take(list, loss), err);
    }
    if (status < 0) {
        uni_value_free(list);
        return status;
    }
    *out = list;
    return 0;
}

static uni_value *loss_weights_value(const uni_model *model)
{
    const float *weights = model->compiled->loss_weights;
    int outputs = uni__model_num_outputs(model);
    bool plain = true;
    for (int i = 0; i < outputs; i++)
        plain = plain && weights[i] == 1;
    if (plain)
        return uni_value_null();
    uni_value *list = uni_value_list();
    for (int i = 0; list != NULL && i < outputs; i++)
        if (uni_list_take(list, uni_value_float((double)weights[i])) < 0) {
            uni_value_free(list);
            return NULL;
        }
    return list;
}

static int compile_value(const uni_model *model, uni_value *compile, uni_error *err)
{
    const uni__compiled *compiled = model->compiled;
    uni_value *optimizer = NULL, *loss = NULL, *metrics = NULL, *weighted = NULL;
    UNI_TRY(uni__optimizer_to_value(compiled->optimizer, &optimizer, err));
    uni_value *inner = (uni_value *)(uintptr_t)uni_dict_get(optimizer, "config");
    if (inner != NULL && compiled->accumulation > 1 &&
        uni_dict_take(inner, "gradient_accumulation_steps", uni_value_int(compiled->accumulation)) <
            0) {
        uni_value_free(optimizer);
        return no_memory(UNI_ENOMEM, err);
    }
    UNI_TRY(put(compile, "optimizer", optimizer, err));
    UNI_TRY(losses_value(compiled, &loss, err));
    UNI_TRY(put(compile, "loss", loss, err));
    UNI_TRY(put(compile, "loss_weights", loss_weights_value(model), err));
    bool any_weighted = false;
    for (int i = 0; i < compiled->num_metrics; i++)
        any_weighted = any_weighted || compiled->metric_weighted[i];
    UNI_TRY(all_metrics(model, false, &metrics, err));
    UNI_TRY(put(compile, "metrics", metrics, err));
    if (any_weighted)
        UNI_TRY(all_metrics(model, true, &weighted, err));
    UNI_TRY(put(compile, "weighted_metrics", any_weighted ? weighted : uni_value_null(), err));
    UNI_TRY(put(compile, "run_eagerly", uni_value_bool(false), err));
    UNI_TRY(put(compile, "steps_per_execution", uni_value_int(1), err));
    return put(compile, "jit_compile", uni_value_bool(false), err);
}

/* A user-defined loss or metric has no name in Keras: such a model is saved as not compiled. */
static int add_compile(const uni_model *model, uni_value *object, uni_error *err)
{
    if (model->compiled == NULL || model->compiled->num_losses == 0)
        return 0;
    uni_error own = { 0 };
    uni_value *compile = uni_value_dict();
    int status = compile_value(model, compile, &own);
    if (status == 0)
        return put(object, "compile_config", compile, err);
    uni_value_free(compile);
    return status == UNI_EUNSUPPORTED ? 0 : uni_error_set(err, status, "%s", own.message);
}

int uni__model_get_config(uni_value **out, const uni_model *model, uni_error *err)
{
    *out = NULL;
    uni_value *config = uni_value_dict(), *object = NULL;
    int status = config_value(model, config, err);
    if (status < 0) {
        uni_value_free(config);
        return status;
    }
    UNI_TRY(uni__object_new(&object, model->sequential ? "keras" : "keras.src.models.functional",
                            model->sequential ? "Sequential" : "Functional", config, err));
    status = add_compile(model, object, err);
    if (status < 0) {
        uni_value_free(object);
        return status;
    }
    *out = object;
    return 0;
}
