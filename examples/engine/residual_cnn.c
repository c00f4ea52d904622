/*
 * residual_cnn.c - a small residual network on images in the shape of SVHN (32x32, colours, a house
 * number with parts of its neighbours).
 *
 * A graph, not a sequence: three blocks, each normalised convolutions with a way around them. conv
 * 16, block 16, block 32 (stride 2), block 64 (stride 2), global average, dense 10; Adam, 10 epochs
 * in batches of 64. The images are made of MNIST digits by `examples/engine/get-data street`.
 * Stated: at least 70 % of the 500 held-out images (Keras on the same images: see README.md).
 */
#include <stdio.h>
#include "common.h"

static uni_layer *conv(int64_t filters, int kernel, int stride)
{
    return uni_layer_conv2d(filters, kernel, kernel,
                            UNI_OPTIONS(uni_conv_layer_options, .padding = UNI_PADDING_SAME,
                                        .strides = { stride, stride }, .no_bias = true));
}

/* Momentum 0.9: the moving averages of a few short epochs must follow. */
static uni_symbol *norm(uni_graph *graph, uni_symbol *x)
{
    return uni_graph_apply(
        graph, uni_layer_batch_normalization(UNI_OPTIONS(uni_norm_options, .momentum = 0.9f)), x);
}

static uni_symbol *relu(uni_graph *graph, uni_symbol *x)
{
    return uni_graph_apply(graph, uni_layer_activation("relu"), x);
}

/* relu(x + f(x)); with a stride the way around is a 1x1 convolution. */
static uni_symbol *block(uni_graph *graph, uni_symbol *x, int64_t filters, int stride)
{
    uni_symbol *y = relu(graph, norm(graph, uni_graph_apply(graph, conv(filters, 3, stride), x)));
    y = norm(graph, uni_graph_apply(graph, conv(filters, 3, 1), y));
    if (stride > 1)
        x = norm(graph, uni_graph_apply(graph, conv(filters, 1, stride), x));
    return relu(graph, uni_graph_apply_n(graph, uni_layer_add(), 2, (uni_symbol *[]){ x, y }));
}

static int make(uni_model **out, uint64_t seed, uni_error *err)
{
    uni_graph *graph = NULL;
    uni_loss *loss = NULL;
    UNI_TRY(uni_graph_new(&graph, err));
    uni_symbol *image = uni_graph_input(graph, "image", UNI_F32, 3, (const int64_t[]){ 32, 32, 3 });
    uni_symbol *x = relu(graph, norm(graph, uni_graph_apply(graph, conv(16, 3, 1), image)));
    x = block(graph, x, 16, 1);
    x = block(graph, x, 32, 2);
    x = block(graph, x, 64, 2);
    x = uni_graph_apply(graph, uni_layer_global_average_pooling2d(), x);
    x = uni_graph_apply(graph, uni_layer_dense(10, NULL), x);
    UNI_TRY(uni_model_from_graph(out, "residual_cnn", graph, 1, &image, 1, &x, err));
    uni_model_set_seed(*out, seed);
    UNI_TRY(uni_loss_new(&loss, "sparse_categorical_crossentropy",
                         UNI_OPTIONS(uni_loss_options, .from_logits = true), err));
    return uni_model_compile(*out,
                             UNI_OPTIONS(uni_compile_options, .optimizer_name = "adam",
                                         .loss = loss,
                                         .metric_names = (const char *const[]){ "accuracy", NULL }),
                             err);
}

static int run(const example_options *o, uni_error *err)
{
    uni_model *model = NULL;
    image_set train, test;
    int status = 0;
    UNI_TRY(images_load(&train, &test, o->data, 3072, 255, err));
    const int64_t shape[] = { 32, 32, 3 };
    uni_column x = images_x(&train, 3, shape), y = images_y(&train);
    uni_column test_x = images_x(&test, 3, shape), test_y = images_y(&test);
    UNI_TRY_GOTO(make(&model, o->seed, err), done);
    UNI_TRY_GOTO(example_fit_and_test(o, model,
                                      UNI_OPTIONS(uni_fit_options, .x = &x, .num_x = 1, .y = &y,
                                                  .num_y = 1, .batch_size = 64, .epochs = o->epochs,
                                                  .verbose = o->verbose),
                                      &test_x, &test_y, err),
                 done);
done:
    uni_model_free(model);
    images_free(&train);
    images_free(&test);
    return status;
}

int main(int argc, char **argv)
{
    return example_main(argc, argv,
                        (example_options){ .data = example_cache("svhn_like.csv"), .epochs = 10 },
                        "A residual network on images in the shape of SVHN.", run);
}
