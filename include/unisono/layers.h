/*
 * layers.h - layers: what is built into models, with Keras's names, defaults, layouts and order of
 * weights.
 *
 * Constructors return a layer, or NULL when there is no memory; options that make no sense are
 * remembered and come out as an error of uni_sequential_new or uni_graph_apply, so that
 * constructors can be written in a list. Ownership of the layer passes to the callee, even on
 * failure.
 *
 * A layer is a class (a const table of functions) and a struct of its own. `call` is const: two
 * replicas may run one layer at the same time; state changes go through operations of the tape
 * (uni_op_batch_norm).
 *
 * Thread rule: building belongs to one thread; calling is safe from several threads, each with its
 * own tape.
 *
 * @example
 * uni_model *model = NULL;
 * UNI_TRY(uni_sequential_new(
 *     &model, "digits",
 *     UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 64 }),
 *                uni_layer_dense(32, &(uni_dense_options){ .activation = "relu" }),
 *                uni_layer_dropout(0.2f), uni_layer_dense(10, NULL)),
 *     err));
 * uni_model_free(model);
 * @end
 */
#ifndef UNISONO_LAYERS_H
#define UNISONO_LAYERS_H

#include <unisono/tensor.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct uni_layer uni_layer;
typedef struct uni_model uni_model;

/* Type and shape of a tensor to come; dims[0] is the batch and -1, other dimensions are -1 where
 * not known. */
typedef struct uni_spec {
    uni_dtype dtype;
    int ndim;
    int64_t dims[UNI_TENSOR_MAX_DIMS];
} uni_spec;

/* By Keras's name in any case: zeros, ones, constant (value), random_uniform (low, high),
 * random_normal, truncated_normal (mean, stddev), glorot_uniform, glorot_normal, he_uniform,
 * he_normal, lecun_uniform, lecun_normal, orthogonal (gain), identity. name NULL: the layer's
 * default. Zeros in the numbers mean Keras's defaults, UNI_EXACTLY_ZERO 0. Values depend only on
 * the model's seed, the parameter's name and the seed here. */
typedef struct uni_initializer {
    const char *name;
    double value, mean, stddev, low, high, gain;
    uint64_t seed;
} uni_initializer;

/* l1 * sum|x| + l2 * sum x^2. */
typedef struct uni_regularizer {
    float l1, l2;
} uni_regularizer;

/* ---- core ---- */

/* Layers without options; each has a function below. */
typedef enum uni_plain_layer {
    UNI_LAYER_FLATTEN,
    UNI_LAYER_SOFTMAX,
    UNI_LAYER_ADD,
    UNI_LAYER_SUBTRACT,
    UNI_LAYER_MULTIPLY,
    UNI_LAYER_AVERAGE,
    UNI_LAYER_MAXIMUM,
    UNI_LAYER_GLOBAL_AVERAGE_POOLING1D,
    UNI_LAYER_GLOBAL_AVERAGE_POOLING2D,
    UNI_LAYER_GLOBAL_MAX_POOLING1D,
    UNI_LAYER_GLOBAL_MAX_POOLING2D
} uni_plain_layer;
UNI_API uni_layer *uni_layer_plain(uni_plain_layer kind);

/* Sample shape, without the batch. UNI_STRING with ndim 0 for text. */
UNI_API uni_layer *uni_layer_input(uni_dtype dtype, int ndim, const int64_t *shape);

typedef struct uni_dense_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *activation; /* NULL: linear */
    bool no_bias;
    uni_initializer kernel_initializer, bias_initializer; /* glorot_uniform, zeros */
    uni_regularizer kernel_regularizer, bias_regularizer, activity_regularizer;
} uni_dense_options;
UNI_API uni_layer *uni_layer_dense(int64_t units, const uni_dense_options *options);
UNI_API uni_layer *uni_layer_activation(const char *name);
UNI_API uni_layer *uni_layer_leaky_relu(double negative_slope); /* 0: 0.3; UNI_EXACTLY_ZERO: 0 */
static inline uni_layer *uni_layer_softmax(void)
{
    return uni_layer_plain(UNI_LAYER_SOFTMAX);
}
static inline uni_layer *uni_layer_flatten(void)
{
    return uni_layer_plain(UNI_LAYER_FLATTEN);
}
UNI_API uni_layer *uni_layer_reshape(int ndim, const int64_t *shape); /* sample shape, one -1 */
UNI_API uni_layer *uni_layer_permute(int ndim, const int *dims); /* 1-based, as Keras */
UNI_API uni_layer *uni_layer_dropout(float rate); /* in training only */
UNI_API uni_layer *uni_layer_rescaling(float scale, float offset); /* x scale + offset */
UNI_API uni_layer *uni_layer_activity_regularization(float l1, float l2);

/* ---- convolution and pooling ---- */

typedef struct uni_conv_layer_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int strides[2]; /* 0: 1; [1] 0: as [0] */
    int dilation[2]; /* likewise */
    uni_padding padding;
    int groups; /* 0: 1 */
    int depth_multiplier; /* depthwise only; 0: 1 */
    const char *activation;
    bool no_bias;
    uni_initializer kernel_initializer, bias_initializer;
    uni_regularizer kernel_regularizer, bias_regularizer, activity_regularizer;
} uni_conv_layer_options;
typedef enum uni_conv_layer {
    UNI_LAYER_CONV1D,
    UNI_LAYER_CONV2D,
    UNI_LAYER_DEPTHWISE_CONV2D
} uni_conv_layer;
/* filters: not of depthwise convolutions. kernel_width 0: as the height; 1D has no width. */
UNI_API uni_layer *uni_layer_conv(uni_conv_layer kind, int64_t filters, int kernel_height,
                                  int kernel_width, const uni_conv_layer_options *options);
static inline uni_layer *uni_layer_conv1d(int64_t filters, int kernel,
                                          const uni_conv_layer_options *options)
{
    return uni_layer_conv(UNI_LAYER_CONV1D, filters, kernel, 0, options);
}
static inline uni_layer *uni_layer_conv2d(int64_t filters, int kernel_height, int kernel_width,
                                          const uni_conv_layer_options *options)
{
    return uni_layer_conv(UNI_LAYER_CONV2D, filters, kernel_height, kernel_width, options);
}
static inline uni_layer *uni_layer_depthwise_conv2d(int kernel_height, int kernel_width,
                                                    const uni_conv_layer_options *options)
{
    return uni_layer_conv(UNI_LAYER_DEPTHWISE_CONV2D, 0, kernel_height, kernel_width, options);
}
/* axes: 1 or 2. window 0: 2, stride 0: the window. */
UNI_API uni_layer *uni_layer_pooling(uni_pool kind, int axes, int window, int stride,
                                     uni_padding padding);
static inline uni_layer *uni_layer_max_pooling2d(int window, int stride, uni_padding padding)
{
    return uni_layer_pooling(UNI_POOL_MAX, 2, window, stride, padding);
}
static inline uni_layer *uni_layer_average_pooling2d(int window, int stride, uni_padding padding)
{
    return uni_layer_pooling(UNI_POOL_AVERAGE, 2, window, stride, padding);
}
static inline uni_layer *uni_layer_max_pooling1d(int window, int stride, uni_padding padding)
{
    return uni_layer_pooling(UNI_POOL_MAX, 1, window, stride, padding);
}
static inline uni_layer *uni_layer_average_pooling1d(int window, int stride, uni_padding padding)
{
    return uni_layer_pooling(UNI_POOL_AVERAGE, 1, window, stride, padding);
}
static inline uni_layer *uni_layer_global_average_pooling1d(void)
{
    return uni_layer_plain(UNI_LAYER_GLOBAL_AVERAGE_POOLING1D);
}
static inline uni_layer *uni_layer_global_average_pooling2d(void)
{
    return uni_layer_plain(UNI_LAYER_GLOBAL_AVERAGE_POOLING2D);
}
static inline uni_layer *uni_layer_global_max_pooling1d(void)
{
    return uni_layer_plain(UNI_LAYER_GLOBAL_MAX_POOLING1D);
}
static inline uni_layer *uni_layer_global_max_pooling2d(void)
{
    return uni_layer_plain(UNI_LAYER_GLOBAL_MAX_POOLING2D);
}
UNI_API uni_layer *uni_layer_zero_padding2d(int vertical, int horizontal);

/* ---- normalisation ---- */

typedef struct uni_norm_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    double momentum; /* 0: 0.99; UNI_EXACTLY_ZERO: 0; batch only */
    double epsilon; /* 0: 0.001; UNI_EXACTLY_ZERO: 0 */
    bool no_center, no_scale;
} uni_norm_options;
UNI_API uni_layer *uni_layer_batch_normalization(const uni_norm_options *options);
UNI_API uni_layer *uni_layer_layer_normalization(const uni_norm_options *options);
/* (x - mean) / sqrt(variance) per entry of the last axis; adapt() or given values of `size`
 * floats. */
UNI_API uni_layer *uni_layer_normalization(int64_t size, const float *mean, const float *variance);

/* ---- text and sequences ---- */

/* Whole numbers 0 to input_dim - 1 become rows of a table (input_dim, output_dim). initializer
 * NULL: uniform. */
UNI_API uni_layer *uni_layer_embedding(int64_t input_dim, int64_t output_dim,
                                       const uni_initializer *initializer);

typedef enum uni_text_output {
    UNI_TEXT_INT,
    UNI_TEXT_MULTI_HOT,
    UNI_TEXT_COUNT,
    UNI_TEXT_TF_IDF
} uni_text_output;
typedef struct uni_text_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int64_t max_tokens; /* 0: no limit; padding and out-of-vocabulary included, as Keras counts */
    bool keep_case, keep_punctuation; /* false: lower_and_strip_punctuation */
    bool no_split; /* the whole string is one token */
    bool characters; /* a token a character instead of a word */
    int ngrams; /* also pairs ... of up to n tokens, joined by a space; 0: 1 */
    uni_text_output output;
    int64_t sequence_length; /* pad or cut to it; 0: the longest of the batch (int only) */
    const char *const *vocabulary; /* given instead of adapt; without "" and "[UNK]" */
    size_t num_vocabulary;
} uni_text_options;
/* Text (batch) or (batch, 1) to numbers; 0 is padding, 1 out of vocabulary. */
UNI_API uni_layer *uni_layer_text_vectorization(const uni_text_options *options);
/* Learns from data, before the model is built or after: Normalization (numbers) and
 * TextVectorization (text). */
UNI_API UNI_MUST_USE int uni_layer_adapt(uni_layer *layer, const uni_column *data, uni_error *err);
/* Borrowed; index 0 is "" and 1 is "[UNK]" for the int output. NULL when the layer has none. */
UNI_API const char *const *uni_layer_vocabulary(const uni_layer *layer, size_t *size);

/* Text (batch) or (batch, 1) to one vector: token vectors combined by sum / sqrt(n), as the NNLM
 * hub layers do. */
typedef struct uni_sentence_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *
        /* a text file "word v1 v2 ..." per line; NULL: trained, with the words of `vocabulary`
         * or hashed */
        vectors;
    const char *const *vocabulary;
    size_t num_vocabulary;
    int64_t
        /* for words that are not known; 0: 1 (one vector for all of them); without vectors and
         * vocabulary 0: 20000 */
        buckets;
    bool frozen;
    bool mean; /* combine by the mean instead of sum / sqrt(n) */
} uni_sentence_options;
UNI_API uni_layer *uni_layer_sentence_embedding(int64_t dim, const uni_sentence_options *options);

typedef struct uni_recurrent_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *activation, *recurrent_activation; /* NULL: tanh, sigmoid */
    bool return_sequences, go_backwards, no_bias;
    bool no_reset_after; /* GRU; the default is Keras's reset_after */
    bool no_unit_forget_bias; /* LSTM */
    float dropout; /* of the inputs */
    uni_initializer kernel_initializer, recurrent_initializer,
        bias_initializer; /* glorot_uniform, orthogonal, zeros */
    uni_regularizer kernel_regularizer, recurrent_regularizer;
} uni_recurrent_options;
typedef enum uni_recurrent_layer { UNI_LAYER_LSTM, UNI_LAYER_GRU } uni_recurrent_layer;
UNI_API uni_layer *uni_layer_recurrent(uni_recurrent_layer kind, int64_t units,
                                       const uni_recurrent_options *options);
static inline uni_layer *uni_layer_lstm(int64_t units, const uni_recurrent_options *options)
{
    return uni_layer_recurrent(UNI_LAYER_LSTM, units, options);
}
static inline uni_layer *uni_layer_gru(int64_t units, const uni_recurrent_options *options)
{
    return uni_layer_recurrent(UNI_LAYER_GRU, units, options);
}

typedef struct uni_attention_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int64_t value_dim; /* 0: key_dim */
    float dropout;
    bool no_bias;
    bool causal; /* use_causal_mask=True of the call */
} uni_attention_options;
/* Inputs: query, value [, key]; one input is self-attention. */
UNI_API uni_layer *uni_layer_multi_head_attention(int heads, int64_t key_dim,
                                                  const uni_attention_options *options);

/* ---- merging ---- */

/* Of any number of inputs (subtract: two) whose shapes fit each other. */
static inline uni_layer *uni_layer_add(void)
{
    return uni_layer_plain(UNI_LAYER_ADD);
}
static inline uni_layer *uni_layer_subtract(void)
{
    return uni_layer_plain(UNI_LAYER_SUBTRACT);
}
static inline uni_layer *uni_layer_multiply(void)
{
    return uni_layer_plain(UNI_LAYER_MULTIPLY);
}
static inline uni_layer *uni_layer_average(void)
{
    return uni_layer_plain(UNI_LAYER_AVERAGE);
}
static inline uni_layer *uni_layer_maximum(void)
{
    return uni_layer_plain(UNI_LAYER_MAXIMUM);
}
UNI_API uni_layer *
uni_layer_concatenate(int axis); /* negative axes count from the end; Keras's default is -1 */

/* ---- the user's own ---- */

UNI_API void uni_layer_free(uni_layer *layer); /* only for layers that were not passed on */
/* A forward function as a layer. parameters: shapes that are created at build, in order. */
typedef uni_tensor *(*uni_forward)(void *context, uni_tape *tape, const uni_layer *layer,
                                   int num_inputs, uni_tensor *const *inputs);
UNI_API uni_layer *uni_layer_function(uni_forward forward, void *context, const uni_spec *output,
                                      size_t num_parameters, const uni_spec *parameters);

UNI_API const char *uni_layer_name(const uni_layer *layer); /* "dense_1" once a model has it */
UNI_API uni_layer *uni_layer_named(uni_layer *layer,
                                   const char *name); /* returns layer; NULL gives NULL */
/* Freezes or thaws all weights, children included; also before build. Returns layer. */
UNI_API uni_layer *uni_layer_trainable(uni_layer *layer, bool trainable);
UNI_API size_t uni_layer_num_parameters(const uni_layer *layer);
UNI_API uni_parameter *uni_layer_parameter(const uni_layer *layer,
                                           size_t index); /* Keras's order, states included */

#ifdef __cplusplus
}
#endif
#endif
