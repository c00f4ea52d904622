/*
 * embedding.c - Embedding: looks up rows of a table by index. Calls are const.
 */
#include "nn/layer.h"
#include <unisono/experimental/custom_layer.h>

struct embedding {
    int64_t rows, width;
    uni_initializer initializer;
    uni_regularizer regularizer;
    uni_parameter *table;
};

static int embedding_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                           uni_error *err)
{
    struct embedding *embedding = self;
    return uni_layer_add_parameter(&embedding->table, layer, "embeddings", UNI_PARAMETER_WEIGHT, 2,
                                   (const int64_t[]){ embedding->rows, embedding->width },
                                   &embedding->initializer, "random_uniform",
                                   &embedding->regularizer, err);
}

static int embedding_infer(const uni_layer *layer, const void *self, int num_inputs,
                           const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 1, UNI_TENSOR_MAX_DIMS - 1, err));
    *output = inputs[0];
    output->dtype = UNI_F32;
    output->dims[output->ndim++] = ((const struct embedding *)self)->width;
    return 0;
}

static uni_tensor *embedding_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                  int num_inputs, uni_tensor *const *inputs)
{
    return uni_op_embedding(tape, uni_tape_parameter(tape, ((const struct embedding *)self)->table),
                            inputs[0]);
}

static int embedding_get_config(const uni_layer *layer, const void *self, uni_value *config,
                                uni_error *err)
{
    const struct embedding *embedding = self;
    UNI_TRY(uni_dict_take(config, "input_dim", uni_value_int(embedding->rows)));
    UNI_TRY(uni_dict_take(config, "output_dim", uni_value_int(embedding->width)));
    UNI_TRY(uni__config_put_initializer(config, "embeddings_initializer", &embedding->initializer,
                                        "random_uniform"));
    UNI_TRY(uni__config_put_regularizer(config, "embeddings_regularizer", &embedding->regularizer));
    UNI_TRY(uni__config_put_regularizer(config, "activity_regularizer", &layer->activity));
    return uni_dict_take(config, "mask_zero", uni_value_bool(false));
}

static void check(uni_layer *layer)
{
    struct embedding *embedding = layer->self;
    if (embedding->rows < 1 || embedding->width < 1)
        uni_layer_fail(layer, UNI_EINVAL,
                       "input_dim and output_dim must be at least 1, got %lld and %lld",
                       (long long)embedding->rows, (long long)embedding->width);
}

static int embedding_set_config(uni_layer *layer, void *self, const uni_value *config,
                                uni_error *err)
{
    struct embedding *embedding = self;
    embedding->rows = uni_dict_get_int(config, "input_dim", 0);
    embedding->width = uni_dict_get_int(config, "output_dim", 0);
    UNI_TRY(uni__config_refuse(config, "mask_zero", NULL, err));
    UNI_TRY(uni__config_refuse(config, "embeddings_constraint", NULL, err));
    UNI_TRY(uni__config_refuse(config, "lora_rank", NULL, err));
    UNI_TRY(uni__config_get_initializer(&embedding->initializer, config, "embeddings_initializer",
                                        err));
    UNI_TRY(uni__config_get_regularizer(&embedding->regularizer, config, "embeddings_regularizer",
                                        err));
    UNI_TRY(uni__config_get_regularizer(&layer->activity, config, "activity_regularizer", err));
    check(layer);
    return 0;
}

const uni_layer_class uni__class_embedding = { .name = "Embedding",
                                               UNI__LAYER_METHODS(embedding, struct embedding),
                                               .build = embedding_build };

uni_layer *uni_layer_embedding(int64_t input_dim, int64_t output_dim,
                               const uni_initializer *initializer)
{
    uni_layer *layer = uni_layer_new(&uni__class_embedding);
    if (layer == NULL)
        return NULL;
    struct embedding *embedding = layer->self;
    *embedding = (struct embedding){ .rows = input_dim, .width = output_dim };
    if (initializer != NULL)
        embedding->initializer = *initializer;
    uni__layer_initializer(layer, &embedding->initializer, "random_uniform");
    check(layer);
    return layer;
}
