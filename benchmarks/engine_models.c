/*
 * engine_models.c - see engine_models.h. Data is noise: what is measured does not depend on it, and
 * labels that mean nothing can still be learnt by heart, which is how a model is seen to train
 * before it is timed.
 */
#include "engine_models.h"

#include <math.h>
#include <stdlib.h>

const bench_row rows[] = {
    { "nnlm_head", "adam", "binary_crossentropy", 1e-4, { 128 }, 1, 0, 49537 },
    { "mlp_512", "sgd", "sparse_categorical_crossentropy", 0.01, { 784 }, 10, 0, 669706 },
    { "mnist_cnn", "sgd", "sparse_categorical_crossentropy", 0.001, { 28, 28, 1 }, 10, 0, 2770634 },
    { "svhn_cnn", "adam", "sparse_categorical_crossentropy", 1e-3, { 32, 32, 3 }, 10, 0, 2168362 },
    { "char_transformer", "adam", "sparse_categorical_crossentropy", 1e-3, { 64 }, 64, 64, 421440 },
    { "conv1d", "adam", "sparse_categorical_crossentropy", 1e-3, { 128, 64 }, 10, 0, 124426 },
};
const int num_rows = sizeof rows / sizeof rows[0];

static bool reads_ids(const bench_row *row)
{
    return row->positions > 0;
}

static int sample_dims(const bench_row *row)
{
    int ndim = 0;
    while (ndim < 3 && row->x[ndim] > 0)
        ndim++;
    return ndim;
}

/* ---- models ---- */

static int compile(uni_model *model, const bench_row *row, uni_error *err)
{
    uni_optimizer *optimizer = NULL;
    uni_loss *loss = NULL;
    UNI_TRY(uni_optimizer_new(&optimizer, row->optimizer,
                              &(uni_optimizer_options){ .learning_rate = row->learning_rate },
                              err));
    int status = uni_loss_new(&loss, row->loss, &(uni_loss_options){ .from_logits = true }, err);
    if (status < 0) {
        uni_optimizer_free(optimizer);
        return status;
    }
    return uni_model_compile(model, &(uni_compile_options){ .optimizer = optimizer, .loss = loss },
                             err);
}

static uni_layer *dense(int64_t units, const char *activation)
{
    return uni_layer_dense(units, &(uni_dense_options){ .activation = activation });
}

static uni_layer *conv(int64_t filters, uni_padding padding)
{
    return uni_layer_conv2d(filters, 3, 3,
                            &(uni_conv_layer_options){ .padding = padding, .activation = "relu" });
}

static uni_layer *pool(void)
{
    return uni_layer_max_pooling2d(2, 2, UNI_PADDING_VALID);
}

static uni_layer *norm(void)
{
    return uni_layer_layer_normalization(&(uni_norm_options){ .epsilon = 1e-5f });
}

/* x + a learned vector for each of the 64 places. */
static uni_tensor *add_positions(void *context, uni_tape *tape, const uni_layer *layer,
                                 int num_inputs, uni_tensor *const *inputs)
{
    return uni_op_add(tape, inputs[0], uni_tape_parameter(tape, uni_layer_parameter(layer, 0)));
}

static uni_symbol *block(uni_graph *graph, uni_symbol *x)
{
    uni_symbol *y = uni_graph_apply(graph, norm(), x);
    y = uni_graph_apply(
        graph, uni_layer_multi_head_attention(4, 32, &(uni_attention_options){ .causal = true }),
        y);
    x = uni_graph_apply_n(graph, uni_layer_add(), 2, (uni_symbol *[]){ x, y });
    y = uni_graph_apply(graph, dense(512, "gelu"), uni_graph_apply(graph, norm(), x));
    y = uni_graph_apply(graph, dense(128, NULL), y);
    return uni_graph_apply_n(graph, uni_layer_add(), 2, (uni_symbol *[]){ x, y });
}

static int make_transformer(uni_model **out, uni_error *err)
{
    uni_graph *graph = NULL;
    UNI_TRY(uni_graph_new(&graph, err));
    uni_spec places = { .dtype = UNI_F32, .ndim = 2, .dims = { 64, 128 } };
    uni_spec sequence = { .dtype = UNI_F32, .ndim = 3, .dims = { -1, 64, 128 } };
    uni_symbol *ids = uni_graph_input(graph, "ids", UNI_I32, 1, (const int64_t[]){ 64 });
    uni_symbol *x = uni_graph_apply(graph, uni_layer_embedding(64, 128, NULL), ids);
    x = uni_graph_apply(graph, uni_layer_function(add_positions, NULL, &sequence, 1, &places), x);
    x = block(graph, block(graph, x));
    x = uni_graph_apply(graph, dense(64, NULL), uni_graph_apply(graph, norm(), x));
    return uni_model_from_graph(out, "char_transformer", graph, 1, &ids, 1, &x, err);
}

static uni_layer *conv1d(int64_t filters)
{
    return uni_layer_conv1d(
        filters, 5, &(uni_conv_layer_options){ .padding = UNI_PADDING_SAME, .activation = "relu" });
}

static int make_conv1d(uni_model **out, const bench_row *row, uni_error *err)
{
    return uni_sequential_new(out, row->name,
                              UNI_LAYERS(uni_layer_input(UNI_F32, 2, row->x), conv1d(128),
                                         conv1d(128), uni_layer_global_max_pooling1d(),
                                         dense(10, NULL)),
                              err);
}

static int make_layers(uni_model **out, const bench_row *row, uni_error *err)
{
    switch (row - rows) {
    case 0:
        return uni_sequential_new(out, row->name,
                                  UNI_LAYERS(uni_layer_input(UNI_F32, 1, row->x),
                                             dense(256, "relu"), dense(64, "relu"), dense(1, NULL)),
                                  err);
    case 1:
        return uni_sequential_new(out, row->name,
                                  UNI_LAYERS(uni_layer_input(UNI_F32, 1, row->x),
                                             dense(512, "relu"), dense(512, "relu"),
                                             dense(10, NULL)),
                                  err);
    case 2:
        return uni_sequential_new(out, row->name,
                                  UNI_LAYERS(uni_layer_input(UNI_F32, 3, row->x),
                                             conv(32, UNI_PADDING_VALID), uni_layer_flatten(),
                                             dense(128, "relu"), dense(10, NULL)),
                                  err);
    case 3:
        return uni_sequential_new(
            out, row->name,
            UNI_LAYERS(uni_layer_input(UNI_F32, 3, row->x), conv(32, UNI_PADDING_SAME),
                       conv(32, UNI_PADDING_SAME), pool(), conv(64, UNI_PADDING_SAME),
                       conv(64, UNI_PADDING_SAME), pool(), uni_layer_flatten(), dense(512, "relu"),
                       dense(10, NULL)),
            err);
    case 4:
        return make_transformer(out, err);
    default:
        return make_conv1d(out, row, err);
    }
}

static int finish(uni_model **out, uni_model *model, const bench_row *row, uni_error *err)
{
    uni_model_set_seed(model, 1);
    int status = compile(model, row, err);
    if (status < 0) {
        uni_model_free(model);
        return status;
    }
    *out = model;
    return 0;
}

int make_model(uni_model **out, const bench_row *row, uni_error *err)
{
    uni_model *model = NULL;
    UNI_TRY(make_layers(&model, row, err));
    return finish(out, model, row, err);
}

int make_mlp(uni_model **out, int64_t width, const bench_row *row, uni_error *err)
{
    uni_model *model = NULL;
    UNI_TRY(
        uni_sequential_new(&model, "mlp",
                           UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 784 }),
                                      dense(width, "relu"), dense(width, "relu"), dense(10, NULL)),
                           err));
    return finish(out, model, row, err);
}

/* ---- data ---- */

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Four uniform numbers added up and scaled to variance 1: near enough to normal, and quick. */
static float bell(uint64_t *state)
{
    uint64_t bits = draw(state);
    uint32_t sum = (uint32_t)(bits & 0xffff) + (uint32_t)(bits >> 16 & 0xffff) +
                   (uint32_t)(bits >> 32 & 0xffff) + (uint32_t)(bits >> 48);
    return ((float)sum / 65536.0f - 2.0f) * 1.7320508f;
}

static int fill(bench_feed *feed, int index, const bench_row *row, int64_t batch, uint64_t *state)
{
    int ndim = sample_dims(row);
    int64_t shape[4] = { batch, row->x[0], row->x[1], row->x[2] }, each = 1;
    for (int i = 0; i < ndim; i++)
        each *= row->x[i];
    int64_t targets = batch * (row->positions > 0 ? row->positions : 1);
    uint32_t *x = malloc((size_t)(batch * each) * 4), *y = malloc((size_t)targets * 4);
    feed->memory[2 * index] = x;
    feed->memory[2 * index + 1] = y;
    if (x == NULL || y == NULL)
        return -1;
    for (int64_t i = 0; i < batch * each; i++) {
        if (reads_ids(row))
            x[i] = (uint32_t)(draw(state) % (uint64_t)row->classes);
        else
            ((float *)x)[i] = bell(state);
    }
    for (int64_t i = 0; i < targets; i++) {
        if (row->classes == 1)
            ((float *)y)[i] = (float)(draw(state) % 2);
        else
            y[i] = (uint32_t)(draw(state) % (uint64_t)row->classes);
    }
    int64_t target_shape[2] = { batch, row->positions > 0 ? row->positions : 1 };
    bool column = row->positions > 0 || row->classes == 1;
    feed->batches[index] = (uni_batch){
        .num_x = 1,
        .num_y = 1,
        .x = { uni_column_view(reads_ids(row) ? UNI_I32 : UNI_F32, ndim + 1, shape, x) },
        .y = { uni_column_view(row->classes == 1 ? UNI_F32 : UNI_I32, column ? 2 : 1, target_shape,
                               y) },
        .size = batch,
        .global_size = batch
    };
    return 0;
}

int feed_fill(bench_feed *feed, const bench_row *row, int64_t batch, int count, uni_error *err)
{
    uint64_t state = 1;
    *feed = (bench_feed){ .count = count };
    for (int i = 0; i < count; i++)
        if (fill(feed, i, row, batch, &state) < 0) {
            feed_free(feed);
            return uni_error_set(err, UNI_ENOMEM, "no memory for %d batches of %lld samples", count,
                                 (long long)batch);
        }
    return 0;
}

void feed_free(bench_feed *feed)
{
    for (int i = 0; i < 2 * BATCHES; i++)
        free(feed->memory[i]);
    *feed = (bench_feed){ 0 };
}

static int next(void *self, uni_batch *out, uni_error *err)
{
    bench_feed *feed = self;
    *out = feed->batches[feed->next];
    feed->next = (feed->next + 1) % feed->count;
    return 1;
}

static int reset(void *self, uint64_t epoch, uni_error *err)
{
    return 0;
}

int feed_open(uni_batches **out, bench_feed *feed, uni_error *err)
{
    static const uni_batches_class class_ = { .name = "feed", .next = next, .reset = reset };
    return uni_batches_new(out, &class_, feed, err);
}
