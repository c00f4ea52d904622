/*
 * text_loop.c - the text classifier 256-64-1 with a loop of one's own, as in the course's "Custom loop training".
 *
 * Everything that fit does is a public call: a tape, the loss per example (reduction NONE) averaged over the global batch, gradients, the
 * optimizer, metrics that are updated, read and reset. Texts and labels have the dummy axis that a pointwise loss needs. The data is that of
 * text_fit.c; Adam, batches of 64, 20 epochs. Prints the course's table; --output DIR: history.csv with epochs,train_loss,valid_loss,train_acc,
 * valid_acc. Ends with the evaluation exercise. Stated: a model accuracy of at least 85 % (Keras on the same texts: see README.md).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "text_data.h"

enum { GLOBAL_BATCH_SIZE = 64 };

typedef struct training {
    uni_model *model;
    uni_tape *tape;
    uni_gradients *gradients;
    uni_optimizer *optimizer;
    uni_loss *loss;
    uni_metric *train_accuracy, *valid_accuracy, *eval_accuracy;
    uni_batches *train, *valid;
    uint64_t seed, steps;
} training;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* ---- setting up ---- */

static int batches_of(uni_batches **out, const text_set *set, bool shuffle, uint64_t seed,
                      uni_error *err)
{
    uni_column x = text_x(set, true), y = text_y(set, true);
    return uni_batches_columns(out, 1, &x, 1, &y, NULL,
                               &(uni_columns_options){ .batch_size = GLOBAL_BATCH_SIZE,
                                                       .shuffle = shuffle,
                                                       .drop_remainder = true,
                                                       .seed = seed },
                               err);
}

static int set_up(training *t, const text_data *data, uint64_t seed, uni_error *err)
{
    t->seed = seed;
    UNI_TRY(text_model(&t->model, "sentence_classifier", &data->train, seed, err));
    UNI_TRY(uni_tape_new(&t->tape, NULL, err));
    UNI_TRY(uni_gradients_new(&t->gradients, uni_model_parameters(t->model), err));
    UNI_TRY(uni_optimizer_new(&t->optimizer, "Adam", NULL, err));
    UNI_TRY(uni_loss_new(&t->loss, "BinaryCrossentropy",
                         &(uni_loss_options){ .reduction = UNI_REDUCTION_NONE }, err));
    uni_metric **metrics[] = { &t->train_accuracy, &t->valid_accuracy, &t->eval_accuracy };
    static const char *const names[] = { "train_accuracy", "valid_accuracy", "eval_accuracy" };
    for (int i = 0; i < 3; i++)
        UNI_TRY(uni_metric_new(metrics[i], "BinaryAccuracy",
                               &(uni_metric_options){ .name = names[i] }, err));
    UNI_TRY(batches_of(&t->train, &data->train, true, seed, err));
    return batches_of(&t->valid, &data->valid, false, 0, err);
}

static void tear_down(training *t)
{
    uni_batches_free(t->train);
    uni_batches_free(t->valid);
    uni_metric_free(t->train_accuracy);
    uni_metric_free(t->valid_accuracy);
    uni_metric_free(t->eval_accuracy);
    uni_loss_free(t->loss);
    uni_optimizer_free(t->optimizer);
    uni_gradients_free(t->gradients);
    uni_tape_free(t->tape);
    uni_model_free(t->model);
}

/* ---- steps ---- */

static uni_tensor *compute_loss(training *t, uni_tensor *labels, uni_tensor *predictions)
{
    uni_tensor *per_example = uni_loss_per_example(t->loss, t->tape, labels, predictions, NULL);
    return uni_compute_average_loss(t->tape, per_example, NULL, GLOBAL_BATCH_SIZE);
}

static int train_step(training *t, const uni_batch *batch, double *loss, uni_error *err)
{
    uni_tape_begin(t->tape, &(uni_step){ .training = true,
                                         .gradients = t->gradients,
                                         .seed = t->seed,
                                         .number = t->steps++ });
    uni_tensor *texts = uni_tape_input_column(t->tape, &batch->x[0]);
    uni_tensor *labels = uni_tape_input_column(t->tape, &batch->y[0]);
    uni_tensor *predictions = uni_model_call(t->model, t->tape, texts);
    uni_tensor *average = compute_loss(t, labels, predictions);
    UNI_TRY(uni_tape_gradient(t->tape, average, NULL, err));
    UNI_TRY(uni_optimizer_apply(t->optimizer, t->gradients, 1, uni_tape_threads(t->tape), err));
    *loss += uni_tensor_scalar(average);
    return uni_metric_update(t->train_accuracy, labels, predictions, NULL, err);
}

static int valid_step(training *t, const uni_batch *batch, double *loss, uni_error *err)
{
    uni_tape_begin(t->tape, NULL);
    uni_tensor *texts = uni_tape_input_column(t->tape, &batch->x[0]);
    uni_tensor *labels = uni_tape_input_column(t->tape, &batch->y[0]);
    uni_tensor *predictions = uni_model_call(t->model, t->tape, texts);
    uni_tensor *average = compute_loss(t, labels, predictions);
    UNI_TRY(uni_tape_status(t->tape, err));
    *loss += uni_tensor_scalar(average);
    return uni_metric_update(t->valid_accuracy, labels, predictions, NULL, err);
}

/* A loop over one source: the mean of its batches' losses. */
static int loop(training *t, uni_batches *batches, uint64_t epoch,
                int (*step)(training *, const uni_batch *, double *, uni_error *), double *loss,
                uni_error *err)
{
    uni_batch batch;
    int64_t count = 0;
    int got;
    *loss = 0;
    UNI_TRY(uni_batches_reset(batches, epoch, err));
    for (; (got = uni_batches_next(batches, &batch, err)) > 0; count++)
        UNI_TRY(step(t, &batch, loss, err));
    UNI_TRY(got);
    if (count == 0)
        return uni_error_set(err, UNI_EINVAL,
                             "there are fewer texts than one batch of %d to train or validate with",
                             GLOBAL_BATCH_SIZE);
    *loss /= (double)count;
    return 0;
}

/* ---- training ---- */

static int open_history(FILE **out, const char *directory, uni_error *err)
{
    char path[1024];
    *out = NULL;
    if (directory == NULL)
        return 0;
    mkdir(directory, 0777); /* it may be there; fopen says what is wrong */
    snprintf(path, sizeof path, "%s/history.csv", directory);
    *out = fopen(path, "we");
    if (*out == NULL)
        return uni_error_set_errno(err, errno, "cannot write %s", path);
    fputs("epochs,train_loss,valid_loss,train_acc,valid_acc\n", *out);
    return 0;
}

static int train(training *t, int epochs, FILE *history, uni_error *err)
{
    double begun = now_ms();
    for (int epoch = 0; epoch < epochs; epoch++) {
        double train_loss, valid_loss;
        UNI_TRY(loop(t, t->train, (uint64_t)epoch, train_step, &train_loss, err));
        UNI_TRY(loop(t, t->valid, 0, valid_step, &valid_loss, err));
        double train_acc = uni_metric_result(t->train_accuracy) * 100;
        double valid_acc = uni_metric_result(t->valid_accuracy) * 100;
        printf("Epoch %d, Loss: %.4f, Accuracy: %.4f, Valid Loss: %.4f, Valid Accuracy: %.4f\n",
               epoch + 1, train_loss, train_acc, valid_loss, valid_acc);
        if (history != NULL)
            fprintf(history, "%d,%.9g,%.9g,%.9g,%.9g\n", epoch + 1, train_loss, valid_loss,
                    train_acc, valid_acc);
        uni_metric_reset(t->train_accuracy);
        uni_metric_reset(t->valid_accuracy);
    }
    printf("Elapsed time in (ms): %.2f\n", now_ms() - begun);
    return 0;
}

/* The exercise: calling a metric updates it and gives its result. */
static int evaluate(training *t, uni_error *err)
{
    uni_batch batch;
    double accuracy = 0;
    int got;
    UNI_TRY(uni_batches_reset(t->valid, 0, err));
    while ((got = uni_batches_next(t->valid, &batch, err)) > 0) {
        uni_tape_begin(t->tape, NULL);
        uni_tensor *texts = uni_tape_input_column(t->tape, &batch.x[0]);
        uni_tensor *labels = uni_tape_input_column(t->tape, &batch.y[0]);
        uni_tensor *predictions = uni_model_call(t->model, t->tape, texts);
        UNI_TRY(uni_tape_status(t->tape, err));
        accuracy = uni_metric_call(t->eval_accuracy, labels, predictions, NULL, err);
    }
    UNI_TRY(got);
    printf("The model accuracy : %5.2f%%\n", accuracy * 100);
    return 0;
}

static int run(const example_options *o, uni_error *err)
{
    text_data data;
    training t = { 0 };
    FILE *history = NULL;
    int status = 0;
    UNI_TRY(text_load(&data, o->data, err));
    UNI_TRY_GOTO(set_up(&t, &data, o->seed, err), done);
    UNI_TRY_GOTO(open_history(&history, o->output, err), done);
    UNI_TRY_GOTO(train(&t, o->epochs, history, err), done);
    UNI_TRY_GOTO(evaluate(&t, err), done);
done:
    if (history != NULL && fclose(history) != 0 && status == 0)
        status = uni_error_set_errno(err, errno, "cannot write %s/history.csv", o->output);
    tear_down(&t);
    text_free(&data);
    return status;
}

int main(int argc, char **argv)
{
    return example_main(argc, argv,
                        (example_options){ .data = example_cache("fortunes.csv"), .epochs = 20 },
                        "A text classifier, trained by a loop of one's own.", run);
}
