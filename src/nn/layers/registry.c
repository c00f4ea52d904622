/*
 * registry.c - the layer classes that a Keras config can name, and layers created from configs. Any
 * thread.
 */
#include "nn/layer.h"

#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "nn/shared.h"

static const uni_layer_class *const classes[] = {
    &uni__class_input,
    &uni__class_dense,
    &uni__class_activation,
    &uni__class_leaky_relu,
    &uni__class_relu,
    &uni__class_softmax,
    &uni__class_flatten,
    &uni__class_reshape,
    &uni__class_permute,
    &uni__class_dropout,
    &uni__class_rescaling,
    &uni__class_activity_regularization,
    &uni__class_conv1d,
    &uni__class_conv2d,
    &uni__class_depthwise_conv2d,
    &uni__class_max_pooling2d,
    &uni__class_average_pooling2d,
    &uni__class_max_pooling1d,
    &uni__class_average_pooling1d,
    &uni__class_global_average_pooling1d,
    &uni__class_global_average_pooling2d,
    &uni__class_global_max_pooling1d,
    &uni__class_global_max_pooling2d,
    &uni__class_zero_padding2d,
    &uni__class_batch_normalization,
    &uni__class_layer_normalization,
    &uni__class_normalization,
    &uni__class_embedding,
    &uni__class_lstm,
    &uni__class_gru,
    &uni__class_multi_head_attention,
    &uni__class_add,
    &uni__class_subtract,
    &uni__class_multiply,
    &uni__class_average,
    &uni__class_maximum,
    &uni__class_concatenate,
    &uni__class_text_vectorization,
    &uni__class_sentence_embedding,
};

static const uni_layer_class *find_class(const char *name)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (strcmp(classes[i]->name, name) == 0)
            return classes[i];
    return NULL;
}

static int configure(uni_layer *layer, const uni_value *config, uni_error *err)
{
    UNI_TRY(uni__config_check(layer->class_->name, config, err));
    if (layer->class_->set_config != NULL)
        UNI_TRY(layer->class_->set_config(layer, layer->self, config, err));
    const char *name = uni_dict_get_string(config, "name", NULL);
    if (name != NULL)
        uni_layer_named(layer, name);
    if (!uni_dict_get_bool(config, "trainable", true))
        uni_layer_trainable(layer, false);
    return uni__layer_check(layer, err);
}

int uni__layer_from_config(uni_layer **out, const char *class_name, const uni_value *config,
                           uni_error *err)
{
    *out = NULL;
    const uni_layer_class *class_ = find_class(class_name);
    if (class_ == NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED, "layers of class \"%s\" are not supported",
                             class_name);
    uni_layer *layer = uni_layer_new(class_);
    if (layer == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a layer of class %s", class_name);
    int status = configure(layer, config, err);
    if (status < 0) {
        uni_error_prefix(err, "%s", uni_dict_get_string(config, "name", class_name));
        uni_layer_free(layer);
        return status;
    }
    *out = layer;
    return 0;
}

uni_layer *uni_layer_plain(uni_plain_layer kind)
{
    switch (kind) {
    case UNI_LAYER_FLATTEN:
        return uni_layer_new(&uni__class_flatten);
    case UNI_LAYER_SOFTMAX:
        return uni_layer_new(&uni__class_softmax);
    case UNI_LAYER_ADD:
        return uni_layer_new(&uni__class_add);
    case UNI_LAYER_SUBTRACT:
        return uni_layer_new(&uni__class_subtract);
    case UNI_LAYER_MULTIPLY:
        return uni_layer_new(&uni__class_multiply);
    case UNI_LAYER_AVERAGE:
        return uni_layer_new(&uni__class_average);
    case UNI_LAYER_MAXIMUM:
        return uni_layer_new(&uni__class_maximum);
    case UNI_LAYER_GLOBAL_AVERAGE_POOLING1D:
        return uni__global_pooling(&uni__class_global_average_pooling1d, 1, UNI_REDUCE_MEAN);
    case UNI_LAYER_GLOBAL_AVERAGE_POOLING2D:
        return uni__global_pooling(&uni__class_global_average_pooling2d, 2, UNI_REDUCE_MEAN);
    case UNI_LAYER_GLOBAL_MAX_POOLING1D:
        return uni__global_pooling(&uni__class_global_max_pooling1d, 1, UNI_REDUCE_MAX);
    case UNI_LAYER_GLOBAL_MAX_POOLING2D:
        return uni__global_pooling(&uni__class_global_max_pooling2d, 2, UNI_REDUCE_MAX);
    }
    return uni_layer_fail(uni_layer_new(&uni__class_flatten), UNI_EINVAL,
                          "there is no layer of kind %d", (int)kind);
}
