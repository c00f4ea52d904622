/*
 * nn.h - models: Sequential, graphs of layers, compile, fit, evaluate, predict, weights and files.
 * Includes the whole of the engine's public side (tensor, ops, layers, losses, optimizers,
 * callbacks).
 *
 * fit is a loop over calls that are all public: uni_tape_begin, uni_model_call,
 * uni_loss_per_example, uni_tape_gradient, uni_optimizer_apply, uni_metric_update. A loop of one's
 * own costs the same.
 *
 * Thread rule: a model belongs to one thread at a time; uni_model_call may run on several threads,
 * each with its own tape.
 *
 * @example
 * uni_model *model = NULL;
 * UNI_TRY(uni_sequential_new(&model, "line",
 *                            UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 1 }),
 *                                       uni_layer_dense(10, NULL), uni_layer_dense(1, NULL)),
 *                            err));
 * UNI_TRY(uni_model_compile(
 *     model, &(uni_compile_options){ .optimizer_name = "sgd", .loss_name = "mse" }, err));
 * float x[200], y[200];
 * for (int i = 0; i < 200; i++)
 *     y[i] = (x[i] = i / 200.0f) / 2;
 * UNI_TRY(uni_model_fit(
 *     NULL, model,
 *     &(uni_fit_options){
 *         .x = (uni_column[]){ uni_column_view(UNI_F32, 2, (const int64_t[]){ 200, 1 }, x) },
 *         .num_x = 1,
 *         .y = (uni_column[]){ uni_column_view(UNI_F32, 2, (const int64_t[]){ 200, 1 }, y) },
 *         .num_y = 1,
 *         .epochs = 3 },
 *     err));
 * uni_model_free(model);
 * @end
 */
#ifndef UNISONO_NN_H
#define UNISONO_NN_H

#include <string.h>
#include <unisono/callbacks.h>
#include <unisono/layers.h>
#include <unisono/losses.h>
#include <unisono/optimizers.h>
#include <unisono/tensor.h>
#include <unisono/value.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UNI_MODEL_MAX_INPUTS 8

/* ---- making models ---- */

/* Count and array of a list of layers. */
#define UNI_LAYERS(...)                                                                            \
    (sizeof((uni_layer *[]){ __VA_ARGS__ }) / sizeof(uni_layer *)), (uni_layer *[])                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Takes the layers, also when it fails. Names become unique as in Keras (dense, dense_1 ...). When
 * the first layer is an input layer the model is built at once, otherwise at the first data (or by
 * uni_model_build). */
UNI_API UNI_MUST_USE int uni_sequential_new(uni_model **out, const char *name, size_t count,
                                            uni_layer *const *layers, uni_error *err);

/* Graphs: residual connections, several inputs and outputs. Errors stick to the graph and come out
 * of uni_model_from_graph; a call that is given NULL returns NULL. A layer may be applied more
 * than once and then shares its weights. */
typedef struct uni_graph uni_graph;
typedef struct uni_symbol uni_symbol;
UNI_API UNI_MUST_USE int uni_graph_new(uni_graph **out, uni_error *err);
UNI_API void uni_graph_free(uni_graph *graph); /* only when no model took it */
UNI_API uni_symbol *uni_graph_input(uni_graph *graph, const char *name, uni_dtype dtype, int ndim,
                                    const int64_t *shape);
UNI_API uni_symbol *uni_graph_apply_n(uni_graph *graph, uni_layer *layer, int count,
                                      uni_symbol *const *inputs);
static inline uni_symbol *uni_graph_apply(uni_graph *graph, uni_layer *layer, uni_symbol *input)
{
    return uni_graph_apply_n(graph, layer, 1, &input);
}
/* Takes the graph, also when it fails. */
UNI_API UNI_MUST_USE int uni_model_from_graph(uni_model **out, const char *name, uni_graph *graph,
                                              int num_inputs, uni_symbol *const *inputs,
                                              int num_outputs, uni_symbol *const *outputs,
                                              uni_error *err);
UNI_API void uni_model_free(uni_model *model);
/* A model inside another one: takes the model. */
UNI_API uni_layer *uni_model_as_layer(uni_model *model);

/* Default: drawn from the system; then weights differ from run to run. On a model that is built
 * (with an input layer it is at once) the random initial values are drawn again; zeros, ones,
 * constants and loaded tables stay. */
UNI_API void uni_model_set_seed(uni_model *model, uint64_t seed);
UNI_API UNI_MUST_USE int uni_model_build(uni_model *model, int num_inputs, const uni_spec *inputs,
                                         uni_error *err);
UNI_API size_t uni_model_num_layers(const uni_model *model);
UNI_API uni_layer *uni_model_layer(const uni_model *model, size_t index);
static inline uni_layer *uni_model_find_layer(const uni_model *model, const char *name)
{
    for (size_t i = 0; i < uni_model_num_layers(model); i++)
        if (strcmp(uni_layer_name(uni_model_layer(model, i)), name) == 0)
            return uni_model_layer(model, i);
    return NULL; /* there is none */
}
UNI_API uni_parameters *uni_model_parameters(const uni_model *model); /* NULL before build */
/* Keras's table, malloc'ed; the caller frees it. */
UNI_API UNI_MUST_USE int uni_model_summary(char **out, const uni_model *model, uni_error *err);
/* Forward of one input and one output; NULL with the error on the tape. */
UNI_API uni_tensor *uni_model_call(uni_model *model, uni_tape *tape, uni_tensor *input);
/* One tensor an input and an output of the model. */
UNI_API int uni_model_call_n(uni_model *model, uni_tape *tape, uni_tensor *const *inputs,
                             uni_tensor **outputs);
/* All regularisers of the weights plus what layers added on this tape: (). Never NULL unless the
 * tape failed. */
UNI_API uni_tensor *uni_model_regularization(uni_model *model, uni_tape *tape);

/* ---- compile ---- */

/* Objects are taken (also on failure); names are the short way. One loss for all outputs, or one
 * an output. */
typedef struct uni_compile_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const char *optimizer_name; /* with Keras's defaults; both NULL: rmsprop, as Keras */
    uni_optimizer *optimizer;
    const char *loss_name;
    uni_loss *loss;
    uni_loss *const *losses; /* one an output */
    int num_losses;
    const float *loss_weights; /* one an output; NULL: 1 */
    const char *const *metric_names; /* NULL-terminated */
    uni_metric *const *metrics; /* of the first output unless metric_outputs says otherwise */
    int num_metrics;
    const int *metric_outputs;
    const bool *
        /* whether the weights of samples and classes count in metrics[i] (Keras's
         * weighted_metrics); NULL: in none */
        metric_weighted;
    int gradient_accumulation_steps; /* batches an update, as if they were one batch; 0: 1 */
} uni_compile_options;
UNI_API UNI_MUST_USE int uni_model_compile(uni_model *model, const uni_compile_options *options,
                                           uni_error *err);
UNI_API uni_optimizer *uni_model_optimizer(const uni_model *model); /* NULL before compile */

/* ---- data ---- */

typedef struct uni_batch {
    int num_x, num_y;
    uni_column x[UNI_MODEL_MAX_INPUTS], y[UNI_MODEL_MAX_INPUTS];
    uni_column weights; /* dtype 0: none */
    int64_t size; /* samples here */
    int64_t first_sample; /* of this replica in the global batch; 0 with one replica */
    int64_t global_size; /* samples of the global batch when known, else 0 */
} uni_batch;

/* Where batches come from; datasets implement it. */
typedef struct uni_batches_class {
    const char *name;
    int (*next)(void *self, uni_batch *out,
                uni_error *err); /* 1: a batch, good until the next call; 0: the end */
    int (*reset)(void *self, uint64_t epoch,
                 uni_error *err); /* back to the start, in this epoch's order */
    int64_t (*length)(void *self); /* batches an epoch; default UNI_UNKNOWN */
    int64_t (*samples)(void *self); /* samples an epoch; default UNI_UNKNOWN */
    void (*free)(void *self);
    void (*expect)(void *self, uint64_t first, uint64_t end); /* default: nothing */
} uni_batches_class;
typedef struct uni_batches uni_batches;
UNI_API UNI_MUST_USE int uni_batches_new(uni_batches **out, const uni_batches_class *class_,
                                         void *self, uni_error *err);
UNI_API void uni_batches_free(uni_batches *batches);
UNI_API UNI_MUST_USE int uni_batches_next(uni_batch *out, uni_batches *batches, uni_error *err);
UNI_API UNI_MUST_USE int uni_batches_reset(uni_batches *batches, uint64_t epoch, uni_error *err);

typedef struct uni_columns_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int64_t batch_size; /* 0: 32 */
    bool shuffle, drop_remainder, repeat;
    uint64_t seed;
    int prefetch; /* batches made ahead on a thread of its own; 0: none */
} uni_columns_options;
/* Batches of arrays in memory (borrowed): one keyed permutation an epoch. weights may be NULL. */
UNI_API UNI_MUST_USE int uni_batches_columns(uni_batches **out, int num_x, const uni_column *x,
                                             int num_y, const uni_column *y,
                                             const uni_column *weights,
                                             const uni_columns_options *options, uni_error *err);

/* ---- fit ---- */

typedef struct uni_fit_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const uni_column *x, *y; /* arrays: num_x inputs, num_y targets ... */
    int num_x, num_y;
    const uni_column *sample_weight; /* (n) or NULL */
    uni_batches *batches; /* ... or any source; borrowed */
    const double *class_weight; /* by class number; NULL: none */
    int num_classes;
    int64_t batch_size; /* 0: 32; ignored with one warning when batches is given */
    int epochs; /* 0: 1; UNI_NO_EPOCHS: none */
    int initial_epoch;
    int64_t steps_per_epoch; /* 0: until the source ends */
    double validation_split; /* the last part of the arrays */
    const uni_column *validation_x, *validation_y, *validation_weight;
    uni_batches *validation_batches;
    int64_t validation_batch_size, validation_steps;
    int validation_freq; /* 0: 1 */
    bool no_shuffle;
    uni_verbosity verbose;
    uni_callback *const *callbacks; /* borrowed */
    int num_callbacks;
    int threads; /* 0: all CPUs of the process */
    /* threads that each run a part of the batch; 0: chosen by the size of the step, 1: none */
    int replicas;
    uint64_t seed; /* of shuffling and dropout; 0: the model's; UNI_SEED_ZERO: 0 */
    const char *trace; /* path of a Chrome trace; NULL: none */
    bool step_times; /* input_ms, forward_ms, backward_ms, update_ms in the logs */
} uni_fit_options;

/* history (may be NULL): {"loss": [..], "val_loss": [..] ...}, one entry an epoch; the caller
 * frees it. */
UNI_API UNI_MUST_USE int uni_model_fit(uni_value **history, uni_model *model,
                                       const uni_fit_options *options, uni_error *err);
/* {"loss": 0.1, "accuracy": 0.9}. Of the options it uses x, y, weights, batches, batch_size,
 * steps_per_epoch, verbose, callbacks, threads. */
UNI_API UNI_MUST_USE int uni_model_evaluate(uni_value **out, uni_model *model,
                                            const uni_fit_options *options, uni_error *err);
/* One array an output, all batches together. */
UNI_API UNI_MUST_USE int uni_model_predict(uni_array **outputs, uni_model *model,
                                           const uni_fit_options *options, uni_error *err);
/* logs (may be NULL): as evaluate; metrics go on from the batch before unless reset. */
UNI_API UNI_MUST_USE int uni_model_train_on_batch(uni_value **logs, uni_model *model,
                                                  const uni_batch *batch, uni_error *err);
UNI_API UNI_MUST_USE int uni_model_test_on_batch(uni_value **logs, uni_model *model,
                                                 const uni_batch *batch, uni_error *err);
UNI_API void uni_model_reset_metrics(uni_model *model);
UNI_API void uni_model_stop_training(uni_model *model); /* after this batch's callbacks */

/* ---- weights and files ---- */

/* Keras's get_weights: a list of arrays, layer by layer, trainable ones before states within a
 * layer. */
UNI_API UNI_MUST_USE int uni_model_get_weights(uni_value **out, const uni_model *model,
                                               uni_error *err);
UNI_API UNI_MUST_USE int uni_model_set_weights(uni_model *model, const uni_value *weights,
                                               uni_error *err);
/* Weights, optimizer state and iterations as one dictionary for checkpoints. */
UNI_API UNI_MUST_USE int uni_model_get_state(uni_value **out, const uni_model *model,
                                             uni_error *err);
UNI_API UNI_MUST_USE int uni_model_set_state(uni_model *model, const uni_value *state,
                                             uni_error *err);
/* .keras: all; .weights.h5 and .safetensors: weights. Written beside and renamed. */
UNI_API UNI_MUST_USE int uni_model_save(const uni_model *model, const char *path, uni_error *err);
UNI_API UNI_MUST_USE int uni_model_load(uni_model **out, const char *path,
                                        uni_error *err); /* .keras only */
UNI_API UNI_MUST_USE int uni_model_load_weights(uni_model *model, const char *path, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
