/*
 * layer.h - internals of layers and models, for the files of src/nn only. The public headers are
 * unisono/layers.h and nn.h.
 *
 * A layer is a class, the class's own struct, parameters and children. Parameters live in the store
 * of the model that builds the layer. A uni__build_context holds what a layer needs from the model
 * while it is built: store, seed, next random stream. A model is a list of layers and a list of
 * nodes: node i calls a layer on the outputs of earlier nodes. Sequential models and graphs differ
 * only in how their nodes are created. One thread builds; calling is const.
 */
#ifndef UNISONO_NN_LAYER_H
#define UNISONO_NN_LAYER_H

#include <unisono/nn.h>
#include <unisono/experimental/custom_layer.h>
#include "nn/shared.h"
#include "tensor/shared.h"

typedef struct uni__build_context {
    uni_parameters *store; /* the model's */
    uint64_t seed;
    uint32_t next_stream;
} uni__build_context;

/* A parameter, its initial value and its regulariser. */
typedef struct uni__layer_slot {
    uni_parameter *parameter;
    /* Its name points to a constant of initialize.c; NULL: not random. */
    uni_initializer initializer;
    uni_regularizer regularizer;
} uni__layer_slot;

struct uni_layer {
    const uni_layer_class *class_;
    void *self;
    char *name; /* NULL until given or generated */
    char *path; /* "outer/dense_1", from the model that built it; prefix of its parameters */
    uni_error *failure; /* error of the constructor */
    uni__build_context *build; /* of the model that owns the layer; NULL before */
    bool built, frozen, borrowed_children, owned;
    size_t max_weights; /* limit of the whole model if it comes from a file; 0: none */
    uint32_t stream;
    uni_regularizer activity;
    size_t num_slots;
    uni__layer_slot *slots; /* weights, then states, each in the order of creation */
    size_t num_children;
    uni_layer **children;
    int num_inputs;
    uni_spec inputs[UNI_MODEL_MAX_INPUTS], output;
};

/* ---- layers/layer.c ---- */

/* Creates the layer's path and parameters and determines the output's spec. For a layer that is
 * already built, only checks the specs. */
int uni__layer_build(uni_layer *layer, uni__build_context *build, const char *parent_path,
                     int num_inputs, const uni_spec *inputs, uni_spec *output,
                     uni_error *err) UNI_MUST_USE;
/* Drops parameters and children so that the layer can be built again in another store. The values
 * are lost. */
void uni__layer_unbuild(uni_layer *layer);
/* Returns the constructor's error, or 0. NULL is UNI_ENOMEM. */
int uni__layer_check(const uni_layer *layer, uni_error *err) UNI_MUST_USE;
/* Keras's to_snake_case: "MaxPooling2D" is "max_pooling2d". malloc'ed. */
char *uni__layer_snake_case(const char *class_name);
/* Makes the layer's name unique among `count` others as Keras does: dense, dense_1 ... */
int uni__layer_make_name(uni_layer *layer, uni_layer *const *others, size_t count,
                         uni_error *err) UNI_MUST_USE;
/* Adds the regularisers of all weights of the layer and its children to `sum` (a tensor or NULL) on
 * the tape. */
uni_tensor *uni__layer_regularization(const uni_layer *layer, uni_tape *tape, uni_tensor *sum);
bool uni__layer_has_regularizer(const uni_layer *layer); /* of weights, including children */
/* Calls visit for every parameter, its own first and then the children's: the order of Keras's
 * layer.weights. */
typedef int (*uni__visit_parameter)(void *context, const uni_layer *layer,
                                    const uni__layer_slot *slot, uni_error *err);
int uni__layer_visit(const uni_layer *layer, uni__visit_parameter visit, void *context,
                     uni_error *err) UNI_MUST_USE;

/* pool.c: global pooling over that many axes. */
uni_layer *uni__global_pooling(const uni_layer_class *class_, int axes, uni_reduce kind);

/* Checks for build and infer: "conv2d expects an input of rank 4, got (None, 3)". */
int uni__expect_inputs(const uni_layer *layer, int num_inputs, int least, int most,
                       uni_error *err) UNI_MUST_USE;
int uni__expect_rank(const uni_layer *layer, const uni_spec *input, int least, int most,
                     uni_error *err) UNI_MUST_USE;
/* Requires the last dimension to be known. */
int uni__expect_width(const uni_layer *layer, const uni_spec *input, uni_error *err) UNI_MUST_USE;
/* "(None, 28, 28, 1)" */
const char *uni__spec_text(char out[UNI__SHAPE_TEXT_SIZE], const uni_spec *spec);
/* x as float32: numbers of other types are cast, text is an error. */
uni_tensor *uni__as_float(uni_tape *tape, uni_tensor *x);

/* ---- layers/initialize.c ---- */

/* Resolves the initialiser's name and Keras's defaults into *out; unknown names are
 * UNI_ENOTFOUND. */
int uni__initializer_resolve(uni_initializer *out, const uni_initializer *given,
                             const char *default_name, uni_error *err) UNI_MUST_USE;
bool uni__initializer_is_random(const uni_initializer *initializer);
int uni__initialize(const uni_parameter *parameter, const uni_initializer *initializer,
                    uint64_t seed, uni_error *err) UNI_MUST_USE;

/* For constructors: resolves names and defaults at once, so the caller's strings are not kept. The
 * layer remembers an error. */
void uni__layer_initializer(uni_layer *layer, uni_initializer *initializer,
                            const char *default_name);
void uni__layer_activation(uni_layer *layer, uni_activation *out, const char *name);

/* ---- layers/config.c: Keras's configs as values ---- */

int uni__config_put_initializer(uni_value *config, const char *key,
                                const uni_initializer *initializer,
                                const char *default_name) UNI_MUST_USE;
int uni__config_put_regularizer(uni_value *config, const char *key,
                                const uni_regularizer *regularizer) UNI_MUST_USE;
int uni__config_put_ints(uni_value *config, const char *key, int count,
                         const int64_t *numbers) UNI_MUST_USE;
int uni__config_get_initializer(uni_initializer *out, const uni_value *config, const char *key,
                                uni_error *err) UNI_MUST_USE;
int uni__config_get_regularizer(uni_regularizer *out, const uni_value *config, const char *key,
                                uni_error *err) UNI_MUST_USE;
/* A number or a list of up to `max`; a missing key leaves *count 0. */
int uni__config_get_ints(int64_t *out, int *count, int max, const uni_value *config,
                         const char *key, uni_error *err) UNI_MUST_USE;
/* A name, or Keras's {"class_name": ..., "config": ...}. Returns -1 and an error if it is
 * unknown. */
int uni__config_get_activation(const uni_value *config, const char *key, uni_activation fallback,
                               uni_error *err);
/* Values of another kind than the layers read: refused, instead of replaced by the default. */
int uni__config_check(const char *class_name, const uni_value *config, uni_error *err) UNI_MUST_USE;
int uni__config_get_padding(uni_padding *out, const uni_value *config, uni_error *err) UNI_MUST_USE;
const char *uni__padding_name(uni_padding padding);
/* Rejects a key with an unsupported value: only null, false, 0 or the given text pass. */
/* An option for which 0 means the default and UNI_EXACTLY_ZERO means 0. */
static inline double uni__pick(double given, double standard)
{
    return given == UNI_EXACTLY_ZERO ? 0 : given != 0 ? given : standard;
}
int uni__config_refuse(const uni_value *config, const char *key, const char *allowed,
                       uni_error *err) UNI_MUST_USE;

/* ---- layers/registry.c: the classes that a config can name ---- */

/* The functions that every built-in layer has, named after it. */
#define UNI__LAYER_METHODS(layer, type)                                                            \
    .size = sizeof(type), .infer = layer##_infer, .call = layer##_call,                            \
    .get_config = layer##_get_config, .set_config = layer##_set_config
extern const uni_layer_class uni__class_input, uni__class_dense, uni__class_activation,
    uni__class_leaky_relu, uni__class_relu, uni__class_softmax, uni__class_flatten,
    uni__class_reshape, uni__class_permute, uni__class_dropout, uni__class_rescaling,
    uni__class_activity_regularization, uni__class_conv1d, uni__class_conv2d,
    uni__class_depthwise_conv2d, uni__class_max_pooling2d, uni__class_average_pooling2d,
    uni__class_max_pooling1d, uni__class_average_pooling1d, uni__class_global_average_pooling1d,
    uni__class_global_average_pooling2d, uni__class_global_max_pooling1d,
    uni__class_global_max_pooling2d, uni__class_zero_padding2d, uni__class_batch_normalization,
    uni__class_layer_normalization, uni__class_normalization, uni__class_embedding, uni__class_lstm,
    uni__class_gru, uni__class_multi_head_attention, uni__class_add, uni__class_subtract,
    uni__class_multiply, uni__class_average, uni__class_maximum, uni__class_concatenate,
    uni__class_text_vectorization, uni__class_sentence_embedding;

/* use_causal_mask belongs to Keras's call, not to the layer's config: a graph's config reads and
 * writes it through these. */
void uni__attention_set_causal(uni_layer *layer, bool causal);
bool uni__attention_is_causal(const uni_layer *layer);

/* ---- models ---- */

typedef struct uni__model_node {
    uni_layer *layer; /* borrowed from the model's list */
    int num_inputs;
    int inputs[UNI_MODEL_MAX_INPUTS]; /* indices of earlier nodes */
    bool has_training, training; /* training= of this call; if not given, the step decides */
    uni_spec output;
} uni__model_node;

typedef struct uni__compiled uni__compiled; /* model/compile.h */
typedef struct uni__runner uni__runner; /* model/step.h */

struct uni_model {
    char *name;
    uint64_t id; /* random */
    bool sequential, built;
    bool stopping, pausing; /* what the running fit is to do after this step */
    bool input_made; /* sequential: the input layer was generated */
    uint64_t seed;
    size_t num_layers;
    uni_layer **layers; /* includes input layers */
    int num_nodes;
    uni__model_node *nodes; /* each after the nodes whose output it takes */
    int num_inputs, num_outputs;
    int inputs[UNI_MODEL_MAX_INPUTS], outputs[UNI_MODEL_MAX_INPUTS]; /* indices of nodes */
    uni__build_context build; /* store NULL: inside another model, whose store it uses */
    bool regularized; /* some weight has a regulariser */
    uni__compiled *compiled;
    uni__runner *runner;
    int64_t steps; /* trained so far; part of the random key */
    struct uni__moment *moment; /* of the running fit, or NULL */
    uni_value *resume; /* the state from which the next fit continues, or NULL */
    bool resume_anywhere; /* ignores initial_epoch (BackupAndRestore) */
};

/* ---- model/model.c ---- */

uni_model *uni__model_new(const char *name, bool sequential);
/* Builds all nodes in order into `build`'s store; parent NULL: no prefix. Input nodes already have
 * their spec. */
int uni__model_build_nodes(uni_model *model, uni__build_context *build, const char *parent,
                           uni_error *err) UNI_MUST_USE;
/* Takes ownership, even on failure. */
int uni__model_add_layer(uni_model *model, uni_layer *layer, uni_error *err) UNI_MUST_USE;
int uni__model_add_node(uni_model *model, uni_layer *layer, int num_inputs, const int *inputs,
                        uni_error *err) UNI_MUST_USE;
/* The forward pass; fits the inputs to the input layers' specs. Returns 0, or negative with the
 * error on the tape. */
int uni__model_run(const uni_model *model, uni_tape *tape, uni_tensor *const *inputs,
                   uni_tensor **outputs);
/* The weights' part of uni_model_regularization, or NULL. */
uni_tensor *uni__model_weight_penalty(const uni_model *model, uni_tape *tape);
/* Number of floats in all parameters, trainable and other. */
void uni__model_count(const uni_model *model, size_t *trainable, size_t *others);
extern const uni_layer_class uni__class_sequential,
    uni__class_functional; /* a model inside another one */
uni_model *uni__layer_inner_model(const uni_layer *layer); /* NULL if the layer is not a model */

/* ---- model/config_read.c ---- */

/* uni__model_read_config for an untrusted config: rejects a model with more than max_weights
 * numbers before they are allocated. 0: no limit. */
int uni__model_from_config(uni_model **out, const uni_value *config, size_t max_weights,
                           uni_error *err) UNI_MUST_USE;

/* ---- model/compile.c, model/runner.c ---- */

void uni__compiled_free(uni__compiled *compiled);
void uni__runner_free(uni__runner *runner);

#endif
