/*
 * svhn_loop.c - the course's advanced exercise: a CNN for SVHN, trained by a loop of one's own
 * under MirroredStrategy.
 *
 * conv 32 twice, pool, conv 64 twice, pool, dense 128, dense 10; Adam, batches of 64 a replica. The
 * images are 32x32x3: without --data the digits of examples/data, drawn at a random place in random
 * colours with noise; with --data train_32x32.mat SVHN's own (its first 5,000). --strategy as
 * everywhere; default: mirrored. Stated: at least 90 % of the drawn digits after 6 epochs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "svhn_mat.h"

enum { BATCH_SIZE_PER_REPLICA = 64, SIDE = 32, COPIES = 2, SVHN_IMAGES = 5000 };

typedef struct training {
    uni_strategy *strategy;
    int64_t global_batch_size;
    uni_model *model;
    uni_optimizer *optimizer;
    uni_loss *loss;
    uni_metric *train_accuracy, *valid_accuracy;
    uni_batches *whole[2], *mine[2]; /* training, validation */
    uint64_t seed;
} training;

/* ---- drawn digits ---- */

static float chance(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(*state >> 40) / (float)(1 << 24);
}

/* 8x8 grey to 32x32 colours: three times as large, somewhere in the picture. */
static void draw(float *to, const float *digit, uint64_t *state)
{
    float ink[3], paper[3];
    for (int c = 0; c < 3; c++) {
        paper[c] = 0.4f * chance(state);
        ink[c] = paper[c] + 0.6f;
    }
    int top = 2 + (int)(chance(state) * 5), left = 2 + (int)(chance(state) * 5);
    for (int i = 0; i < SIDE * SIDE; i++) {
        int row = (i / SIDE - top), column = (i % SIDE - left);
        bool inside = row >= 0 && column >= 0 && row < 24 && column < 24;
        float grey = inside ? digit[row / 3 * 8 + column / 3] : 0;
        for (int c = 0; c < 3; c++)
            to[3 * i + c] = paper[c] + grey * (ink[c] - paper[c]) + 0.1f * (chance(state) - 0.5f);
    }
}

static int draw_all(image_set *to, const image_set *digits, uint64_t seed, uni_error *err)
{
    uint64_t state = seed;
    int64_t count = digits->count * COPIES;
    *to = (image_set){ .count = count, .pixels = 3 * SIDE * SIDE };
    to->x = malloc((size_t)(count * to->pixels) * sizeof *to->x);
    to->y = malloc((size_t)count * sizeof *to->y);
    if (to->x == NULL || to->y == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld images", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        draw(to->x + i * to->pixels, digits->x + i % digits->count * digits->pixels, &state);
        to->y[i] = digits->y[i % digits->count];
    }
    return 0;
}

static int load(image_set *train, image_set *test, const char *path, uni_error *err)
{
    size_t length = strlen(path);
    image_set digits[2];
    if (length > 4 && strcmp(path + length - 4, ".mat") == 0)
        return svhn_load_mat(train, test, path, SVHN_IMAGES, err);
    UNI_TRY(images_load(&digits[0], &digits[1], path, 64, 16, err));
    int status = draw_all(train, &digits[0], 1, err);
    *test = (image_set){ 0 };
    if (status == 0)
        status = draw_all(test, &digits[1], 2, err);
    images_free(&digits[0]);
    images_free(&digits[1]);
    return status;
}

/* ---- setting up ---- */

static uni_layer *conv(int64_t filters)
{
    return uni_layer_conv2d(
        filters, 3, 3,
        UNI_OPTIONS(uni_conv_layer_options, .padding = UNI_PADDING_SAME, .activation = "relu"));
}

static uni_layer *pool(void)
{
    return uni_layer_max_pooling2d(2, 2, UNI_PADDING_VALID);
}

static int make_model(training *t, uni_error *err)
{
    UNI_TRY(uni_sequential_new(
        &t->model, "svhn_cnn",
        UNI_LAYERS(uni_layer_input(UNI_F32, 3, (const int64_t[]){ SIDE, SIDE, 3 }), conv(32),
                   conv(32), pool(), conv(64), conv(64), pool(), uni_layer_flatten(),
                   uni_layer_dense(128, UNI_OPTIONS(uni_dense_options, .activation = "relu")),
                   uni_layer_dense(10, NULL)),
        err));
    uni_model_set_seed(t->model, t->seed);
    UNI_TRY(uni_optimizer_new(&t->optimizer, "Adam", NULL, err));
    UNI_TRY(uni_strategy_place(t->strategy, t->model, err));
    return uni_strategy_place_optimizer(t->strategy, t->optimizer, err);
}

static int set_up(training *t, const image_set *sets[2], uni_error *err)
{
    const int64_t shape[] = { SIDE, SIDE, 3 };
    UNI_TRY(make_model(t, err));
    UNI_TRY(uni_loss_new(
        &t->loss, "SparseCategoricalCrossentropy",
        UNI_OPTIONS(uni_loss_options, .reduction = UNI_REDUCTION_NONE, .from_logits = true), err));
    uni_metric **metrics[] = { &t->train_accuracy, &t->valid_accuracy };
    for (int i = 0; i < 2; i++) {
        uni_column x = images_x(sets[i], 3, shape), y = images_y(sets[i]);
        UNI_TRY(uni_metric_new(metrics[i], "SparseCategoricalAccuracy", NULL, err));
        UNI_TRY(
            uni_batches_columns(&t->whole[i], 1, &x, 1, &y, NULL,
                                UNI_OPTIONS(uni_columns_options, .batch_size = t->global_batch_size,
                                            .shuffle = i == 0, .seed = t->seed),
                                err));
        UNI_TRY(uni_strategy_distribute(&t->mine[i], t->strategy, t->whole[i], err));
    }
    return 0;
}

static void tear_down(training *t)
{
    for (int i = 0; i < 2; i++) {
        uni_batches_free(t->mine[i]);
        uni_batches_free(t->whole[i]);
    }
    uni_metric_free(t->train_accuracy);
    uni_metric_free(t->valid_accuracy);
    uni_loss_free(t->loss);
    uni_optimizer_free(t->optimizer);
    uni_model_free(t->model);
}

/* ---- steps ---- */

static int step(uni_replica_context *replica, const uni_batch *batch, training *t, bool training_,
                uni_error *err)
{
    uni_tape *tape = uni_replica_begin(replica, t->model, training_, t->seed);
    uni_tensor *images = uni_tape_input_column(tape, &batch->x[0]);
    uni_tensor *labels = uni_tape_input_column(tape, &batch->y[0]);
    uni_tensor *logits = uni_model_call(t->model, tape, images);
    uni_tensor *per_example = uni_loss_per_example(t->loss, tape, labels, logits, NULL);
    uni_tensor *loss = uni_compute_average_loss(tape, per_example, NULL,
                                                uni_replica_info_of(replica)->global_batch);
    if (training_)
        UNI_TRY(uni_replica_apply_gradients(replica, loss, t->optimizer, err));
    UNI_TRY(uni_replica_update_metric(replica, training_ ? t->train_accuracy : t->valid_accuracy,
                                      labels, logits, NULL, err));
    return uni_replica_return(replica, loss, err);
}

static int train_step(uni_replica_context *replica, const uni_batch *batch, void *context,
                      uni_error *err)
{
    return step(replica, batch, context, true, err);
}

static int valid_step(uni_replica_context *replica, const uni_batch *batch, void *context,
                      uni_error *err)
{
    return step(replica, batch, context, false, err);
}

/* One pass: the same function under every strategy. */
static int loop(training *t, int which, uint64_t epoch, double *loss, uni_error *err)
{
    uni_metric *metric = which == 0 ? t->train_accuracy : t->valid_accuracy;
    uni_pass_options pass = { .function = which == 0 ? train_step : valid_step,
                              .context = t,
                              .batches = t->mine[which],
                              .epoch = epoch,
                              .metrics = &metric,
                              .num_metrics = 1 };
    int64_t count = 0;
    UNI_TRY(uni_strategy_pass(loss, &count, t->strategy, &pass, err));
    *loss /= (double)(count > 0 ? count : 1);
    return 0;
}

static int train(training *t, const example_options *o, uni_error *err)
{
    double begun = example_now_ms();
    for (int epoch = 0; epoch < o->epochs; epoch++) {
        double train_loss, valid_loss, train_acc, valid_acc;
        UNI_TRY(loop(t, 0, (uint64_t)epoch, &train_loss, err));
        UNI_TRY(loop(t, 1, 0, &valid_loss, err));
        UNI_TRY(uni_strategy_metric_result(&train_acc, t->strategy, t->train_accuracy, err));
        UNI_TRY(uni_strategy_metric_result(&valid_acc, t->strategy, t->valid_accuracy, err));
        if (example_is_chief(o))
            printf("Epoch %d, Loss: %.4f, Accuracy: %.4f, Valid Loss: %.4f, Valid Accuracy: "
                   "%.4f\n",
                   epoch + 1, train_loss, 100 * train_acc, valid_loss, 100 * valid_acc);
        fflush(stdout);
        uni_metric_reset(t->train_accuracy);
        uni_metric_reset(t->valid_accuracy);
    }
    if (example_is_chief(o))
        printf("Elapsed time in (ms): %.2f\n", example_now_ms() - begun);
    return 0;
}

static int run(const example_options *o, uni_error *err)
{
    image_set images[2] = { { 0 }, { 0 } };
    const image_set *sets[2] = { &images[0], &images[1] };
    training t = { .seed = o->seed, .strategy = o->strategy };
    int status;
    t.global_batch_size =
        (int64_t)BATCH_SIZE_PER_REPLICA * uni_strategy_info_of(t.strategy)->num_replicas_in_sync;
    UNI_TRY_GOTO(load(&images[0], &images[1], o->data, err), done);
    UNI_TRY_GOTO(set_up(&t, sets, err), done);
    UNI_TRY_GOTO(train(&t, o, err), done);
done:
    tear_down(&t);
    images_free(&images[0]);
    images_free(&images[1]);
    return status;
}

int main(int argc, char **argv)
{
    return example_main(argc, argv,
                        (example_options){ .data = EXAMPLE_DATA "/digits.csv",
                                           .strategy_name = "mirrored",
                                           .epochs = 6 },
                        "A CNN for SVHN, trained by a loop of one's own.", run);
}
