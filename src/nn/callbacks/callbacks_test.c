/*
 * callbacks_test.c - each callback by what the user gets from it: terminal output, files, weights,
 * learning rates, and a killed training that continues.
 */
#include "nn/callbacks/callback.h"
#include "nn/model/testing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nn/shared.h"
#include "base/file.h"

/* Captures what is written to a descriptor. */
struct capture {
    int fd;
    char path[256];
};

static struct capture capture_begin(void)
{
    struct capture capture;
    capture.fd = mkstemp(uni__temporary_name(capture.path, sizeof capture.path, "capture"));
    assert_true(capture.fd >= 0);
    return capture;
}

static char *capture_end(struct capture *capture)
{
    char *text = NULL;
    size_t size = 0;
    OK(uni__read_file(&text, &size, capture->path, 1 << 20, err));
    close(capture->fd);
    unlink(capture->path);
    return text;
}

static void fit_with(uni_model *model, const problem *p, uni_callback *callback, int epochs,
                     uni_value **history)
{
    uni_fit_options options = options_of(p);
    options.epochs = epochs;
    options.seed = 11;
    options.validation_split = 0.25;
    options.callbacks = &callback;
    options.num_callbacks = 1;
    OK(uni_model_fit(history, model, &options, err));
}

/* ---- a callback that gets a scripted val_loss ---- */

/* Runs only the callback: epoch_end with the given losses, until the model is told to stop. Returns
 * the epochs that ran. */
static int play(uni_callback *callback, const uni_callback_class *class_, void *self,
                uni_model *model, const double *losses, int count)
{
    static const char *const names[] = { "loss", "val_loss" };
    OK(class_->train_begin != NULL
           ? class_->train_begin(self, model, &(uni_fit_info){ .epochs = count }, err)
           : 0);
    int epoch = 0;
    for (; epoch < count && !uni__model_is_stopping(model); epoch++) {
        double values[2] = { losses[epoch], losses[epoch] };
        OK(class_->epoch_end(self, model, epoch, &(uni_logs){ 2, names, values }, err));
    }
    OK(class_->train_end != NULL ? class_->train_end(self, model, &(uni_logs){ 0 }, err) : 0);
    return epoch;
}

struct scripted {
    const uni_callback_class *class_;
    void *self;
};

/* The first two words of a callback are its class and its self (callback.h); tests look at them to
 * play alone. */
static struct scripted insides(const uni_callback *callback)
{
    struct scripted inner;
    memcpy(&inner, callback, sizeof inner);
    return inner;
}

static void early_stopping(void **state)
{
    static const struct {
        uni_early_stopping_options options;
        double losses[8];
        int ran, stopped;
    } cases[] = {
        { { .patience = 2 }, { 5, 4, 4.5, 4.4, 3, 2, 1, 0 }, 4, 3 },
        { { .patience = 0 }, { 5, 4, 4.5, 4.4, 3, 2, 1, 0 }, 3, 2 },
        { { .patience = 3, .min_delta = 0.5 },
          { 5, 4.8, 4.6, 4.4, 4.3, 4.2, 4.1, 4.05 },
          7,
          6 }, /* 4.4 is better by more than 0.5 */
        { { .patience = 2, .start_from_epoch = 4 }, { 1, 2, 3, 4, 5, 6, 7, 8 }, 7, 6 },
        { { .patience = 2, .mode = UNI_MONITOR_MAX }, { 1, 2, 1, 1, 5, 5, 5, 5 }, 4, 3 },
        { { .patience = 3, .has_baseline = true, .baseline = 1 },
          { 5, 4, 3, 3, 1, 0.5, 0, 0 },
          4,
          3 },
        { { .patience = 1 }, { 8, 7, 6, 5, 4, 3, 2, 1 }, 8, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_callback *callback = NULL;
        uni_model *model = classifier("sgd");
        OK(uni_callback_early_stopping(&callback, &cases[i].options, err));
        struct scripted inner = insides(callback);
        int ran = play(callback, inner.class_, inner.self, model, cases[i].losses, 8);
        if (ran != cases[i].ran || uni__callback_stopped_epoch(callback) != cases[i].stopped)
            fail_msg("case %zu: ran %d, stopped at %d", i, ran,
                     uni__callback_stopped_epoch(callback));
        uni_callback_free(callback);
        uni_model_free(model);
    }
    uni_callback *callback = NULL;
    REFUSED(UNI_EINVAL, "patience", "-1",
            uni_callback_early_stopping(&callback, &(uni_early_stopping_options){ .patience = -1 },
                                        err));
}

static int spoil_weights(void *self, uni_model *model, int epoch, const uni_logs *logs,
                         uni_error *err)
{
    uni_value **best = self;
    if (epoch == 1)
        return uni_model_get_weights(best, model, err);
    return 0;
}
static const uni_callback_class keeper_class = { .name = "keeper", .epoch_end = spoil_weights };

/* A name that does not tell which direction is better is refused, not taken for a loss. */
static void test_auto_mode(void **state)
{
    static const struct {
        const char *name;
        int status;
        bool maximize;
    } cases[] = {
        { NULL, 0, false },
        { "val_accuracy", 0, true },
        { "fbeta_score", 0, true },
        { "top_k_acc", 0, true },
        { "mse", 0, false },
        { "accent_loss", 0, false },
        { "val_score", UNI_EINVAL, false },
        { "", UNI_EINVAL, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni__monitor monitor = { 0 };
        uni_error err = { 0 };
        assert_int_equal(uni__monitor_init(&monitor, cases[i].name, UNI_MONITOR_AUTO, 0, &err),
                         cases[i].status);
        assert_int_equal(monitor.maximize, cases[i].maximize);
        assert_true(cases[i].status == 0 || strstr(err.message, "UNI_MONITOR_MAX") != NULL);
    }
    uni__monitor monitor;
    assert_int_equal(uni__monitor_init(&monitor, "loss", 9, 0, NULL), UNI_EINVAL);
    assert_int_equal(uni__monitor_init(&monitor, "loss", UNI_MONITOR_MIN, NAN, NULL), UNI_EINVAL);
    assert_int_equal(uni__monitor_init(&monitor, "val_score", UNI_MONITOR_MAX, 0, NULL), 0);
    assert_true(monitor.maximize);
}

static void test_bad_options(void **state)
{
    uni_callback *out = (uni_callback *)1;
    uni_error err = { 0 };
    assert_int_equal(uni_callback_model_checkpoint(&out, NULL, NULL, &err), UNI_EINVAL);
    assert_null(out);
    assert_int_equal(uni_callback_model_checkpoint(
                         &out, "x.keras",
                         UNI_OPTIONS(uni_model_checkpoint_options, .save_every_batches = -1), &err),
                     UNI_EINVAL);
    assert_int_equal(uni_callback_csv_logger(&out, NULL, ',', false, &err), UNI_EINVAL);
    assert_int_equal(uni_callback_csv_logger(&out, "", ',', false, &err), UNI_EINVAL);
    assert_int_equal(uni_callback_backup_and_restore(&out, "x", -1, false, &err), UNI_EINVAL);
    assert_int_equal(uni_callback_reduce_lr_on_plateau(
                         &out, UNI_OPTIONS(uni_reduce_lr_options, .min_lr = NAN), &err),
                     UNI_EINVAL);
    assert_int_equal(uni_callback_reduce_lr_on_plateau(
                         &out, UNI_OPTIONS(uni_reduce_lr_options, .cooldown = -1), &err),
                     UNI_EINVAL);
    assert_null(out);
}

/* A learning rate that ruins the model after two epochs: the best weights are restored. */
static double ruin(void *context, int epoch, double rate, uni_error *err)
{
    return epoch < 2 ? 0.05 : 50;
}

static void best_weights_are_restored(void **state)
{
    problem p = make_problem(200);
    uni_model *model = classifier("sgd");
    uni_value *best = NULL, *now = NULL, *history = NULL;
    uni_callback *callbacks[3];
    OK(uni_callback_new(&callbacks[0], &keeper_class, &best, err));
    OK(uni_callback_learning_rate_scheduler(&callbacks[1], ruin, NULL, 0, err));
    OK(uni_callback_early_stopping(
        &callbacks[2], &(uni_early_stopping_options){ .patience = 2, .restore_best_weights = true },
        err));
    uni_fit_options options = options_of(&p);
    options.epochs = 20;
    options.validation_split = 0.25;
    options.callbacks = callbacks;
    options.num_callbacks = 3;
    OK(uni_model_fit(&history, model, &options, err));
    assert_int_equal(uni__callback_stopped_epoch(callbacks[2]), 3);
    assert_int_equal(uni_list_size(uni_dict_get(history, "loss")), 4);
    OK(uni_model_get_weights(&now, model, err));
    assert_true(distance(best, now) == 0);
    for (int i = 0; i < 3; i++)
        uni_callback_free(callbacks[i]);
    uni_value_free(best);
    uni_value_free(now);
    uni_value_free(history);
    uni_model_free(model);
    free_problem(&p);
}

static void reduce_on_plateau(void **state)
{
    uni_model *model = classifier("sgd");
    uni_callback *callback = NULL;
    OK(uni_optimizer_set_learning_rate(uni_model_optimizer(model), 0.8, err));
    OK(uni_callback_reduce_lr_on_plateau(
        &callback,
        &(uni_reduce_lr_options){ .factor = 0.5, .patience = 2, .cooldown = 1, .min_lr = 0.15 },
        err));
    struct scripted inner = insides(callback);
    /* epochs:              best  w1   w2->0.4 cool  w1   w2->0.2 cool w1  w2->0.15 */
    const double losses[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    play(callback, inner.class_, inner.self, model, losses, 3);
    assert_true(fabs(uni_optimizer_learning_rate(uni_model_optimizer(model), NULL) - 0.4) < 1e-7);
    OK(uni_optimizer_set_learning_rate(uni_model_optimizer(model), 0.8, err));
    play(callback, inner.class_, inner.self, model, losses, 9);
    assert_true(fabs(uni_optimizer_learning_rate(uni_model_optimizer(model), NULL) - 0.2) < 1e-7 ||
                fabs(uni_optimizer_learning_rate(uni_model_optimizer(model), NULL) - 0.15) < 1e-7);
    uni_callback_free(callback);
    REFUSED(
        UNI_EINVAL, "factor", "2",
        uni_callback_reduce_lr_on_plateau(&callback, &(uni_reduce_lr_options){ .factor = 2 }, err));
    uni_model_free(model);
}

/* ---- text ---- */

static void progress(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd");
    uni_value *history = NULL;
    uni_callback *callback = NULL;
    struct capture capture = capture_begin();
    OK(uni_callback_progbar(&callback, capture.fd, 2, err));
    fit_with(model, &p, callback, 2, &history);
    uni_callback_free(callback);
    char *text = capture_end(&capture), line[400];
    /* "2/2 - 0s - 85us/step - accuracy: 0.5417 - loss: 0.7012 - val_accuracy: ...": all except the
     * times */
    assert_int_equal(strncmp(text, "Epoch 1/2\n2/2 - 0s - ", 21), 0);
    snprintf(line, sizeof line,
             "s/step - accuracy: %.4f - loss: %.4f - val_accuracy: %.4f - val_loss: %.4f\nEpoch "
             "2/2\n2/2 - 0s - ",
             history_at(history, "accuracy", 0), history_at(history, "loss", 0),
             history_at(history, "val_accuracy", 0), history_at(history, "val_loss", 0));
    if (strstr(text, line) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", line, text);
    free(text);
    /* Not a terminal: prints only the finished bar. */
    capture = capture_begin();
    OK(uni_callback_progbar(&callback, capture.fd, 1, err));
    fit_with(model, &p, callback, 1, NULL);
    uni_callback_free(callback);
    text = capture_end(&capture);
    assert_non_null(strstr(
        text,
        "\x1b[1m2/2\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m "));
    assert_null(strchr(text, '\b'));
    assert_int_equal(text[strlen(text) - 1], '\n');
    assert_null(strstr(text, "Epoch")); /* a single epoch has no heading, as in Keras */
    free(text);
    uni_value_free(history);
    uni_model_free(model);
    free_problem(&p);
}

static void csv_logger(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd");
    uni_value *history = NULL;
    uni_callback *callback = NULL;
    struct capture capture = capture_begin();
    OK(uni_callback_csv_logger(&callback, capture.path, 0, false, err));
    fit_with(model, &p, callback, 3, &history);
    uni_callback_free(callback);
    OK(uni_callback_csv_logger(&callback, capture.path, 0, true, err));
    fit_with(model, &p, callback, 1, NULL);
    uni_callback_free(callback);
    char *text = capture_end(&capture), *save = NULL;
    char *line = strtok_r(text, "\n", &save);
    assert_string_equal(line, "epoch,accuracy,loss,val_accuracy,val_loss");
    for (int epoch = 0; epoch < 3; epoch++) {
        int number;
        double accuracy, loss;
        line = strtok_r(NULL, "\n", &save);
        assert_int_equal(sscanf(line, "%d,%lf,%lf,", &number, &accuracy, &loss), 3);
        assert_int_equal(number, epoch);
        assert_true(loss == history_at(history, "loss", (size_t)epoch)); /* to the last bit */
    }
    line = strtok_r(NULL, "\n", &save);
    assert_int_equal(strncmp(line, "0,", 2), 0); /* appended, no second header */
    assert_null(strtok_r(NULL, "\n", &save));
    free(text);
    OK(uni_callback_csv_logger(&callback, "/nowhere/at/all.csv", 0, false, err));
    uni_fit_options options = options_of(&p);
    options.callbacks = &callback;
    options.num_callbacks = 1;
    REFUSED(UNI_ENOTFOUND, "CSVLogger", "/nowhere/at/all.csv",
            uni_model_fit(NULL, model, &options, err));
    uni_callback_free(callback);
    uni_value_free(history);
    uni_model_free(model);
    free_problem(&p);
}

/* ---- ModelCheckpoint ---- */

static void model_checkpoint(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd"), *loaded = classifier("sgd");
    uni_value *history = NULL;
    uni_callback *callback = NULL;
    char directory[256], path[320], name[400];
    assert_non_null(mkdtemp(uni__temporary_name(directory, sizeof directory, "checkpoint")));
    snprintf(path, sizeof path, "%s/deep/{epoch:02d}-{val_loss:.3f}.safetensors", directory);
    OK(uni_callback_model_checkpoint(&callback, path, NULL, err));
    fit_with(model, &p, callback, 2, &history);
    uni_callback_free(callback);
    for (size_t epoch = 0; epoch < 2; epoch++) {
        snprintf(name, sizeof name, "%s/deep/%02zu-%.3f.safetensors", directory, epoch + 1,
                 history_at(history, "val_loss", epoch));
        assert_true(uni__path_exists(name));
    }
    uni_model_set_seed(loaded, 1234);
    OK(uni_model_load_weights(loaded, name, err));
    assert_true(model_distance(model, loaded) == 0);
    /* Only the best: a value that never improves is written once. */
    snprintf(path, sizeof path, "%s/best-{epoch}.safetensors", directory);
    OK(uni_callback_model_checkpoint(
        &callback, path,
        &(uni_model_checkpoint_options){ .save_best_only = true, .save_weights_only = true }, err));
    struct scripted inner = insides(callback);
    play(callback, inner.class_, inner.self, model, (const double[]){ 3, 4, 2, 5 }, 4);
    uni_callback_free(callback);
    static const bool written[4] = { true, false, true, false };
    for (int epoch = 0; epoch < 4; epoch++) {
        snprintf(name, sizeof name, "%s/best-%d.safetensors", directory, epoch + 1);
        assert_int_equal(uni__path_exists(name), written[epoch]);
    }
    snprintf(path, sizeof path, "%s/{nothing:.2f}.safetensors", directory);
    OK(uni_callback_model_checkpoint(&callback, path, NULL, err));
    uni_fit_options options = options_of(&p);
    options.callbacks = &callback;
    options.num_callbacks = 1;
    REFUSED(UNI_ENOTFOUND, "nothing", "logs", uni_model_fit(NULL, model, &options, err));
    uni_callback_free(callback);
    REFUSED(UNI_EINVAL, ".keras", "model.bin",
            uni_callback_model_checkpoint(&callback, "model.bin", NULL, err));
    OK(uni__remove_tree(directory, err));
    uni_value_free(history);
    uni_model_free(model);
    uni_model_free(loaded);
    free_problem(&p);
}

/* ---- TensorBoard: Keras's directories and tags; tests/ checks that TensorBoard reads them ---- */

struct search {
    const char *text;
    size_t files, found;
};

static int look(void *context, const char *relative, const char *full, uint64_t size,
                uni_error *err)
{
    struct search *search = context;
    char *bytes = NULL;
    size_t length = 0;
    UNI_TRY(uni__read_file(&bytes, &length, full, 1 << 24, err));
    search->files++;
    search->found += memmem(bytes, length, search->text, strlen(search->text)) != NULL;
    free(bytes);
    return 0;
}

static bool has_text(const char *directory, const char *part, const char *text)
{
    char path[320];
    struct search search = { .text = text };
    snprintf(path, sizeof path, "%s/%s", directory, part);
    OK(uni__walk_files(path, look, &search, err));
    assert_int_equal(search.files, 1);
    return search.found == 1;
}

static void tensorboard(void **state)
{
    problem p = make_problem(64);
    uni_model *model = classifier("sgd");
    char directory[256];
    assert_non_null(mkdtemp(uni__temporary_name(directory, sizeof directory, "board")));
    uni_callback *callback = NULL;
    OK(uni_callback_tensorboard(&callback, directory, 1, true, err));
    fit_with(model, &p, callback, 2, NULL);
    static const char *const train[] = {
        "epoch_loss",         "epoch_accuracy",         "epoch_learning_rate",
        "batch_loss",         "dense/kernel/histogram", "graph_keras_model",
        "binary_crossentropy"
    };
    static const char *const validation[] = { "epoch_loss", "epoch_accuracy",
                                              "evaluation_loss_vs_iterations" };
    for (size_t i = 0; i < sizeof train / sizeof train[0]; i++)
        assert_true(has_text(directory, "train", train[i]));
    for (size_t i = 0; i < sizeof validation / sizeof validation[0]; i++)
        assert_true(has_text(directory, "validation", validation[i]));
    assert_false(has_text(directory, "validation", "val_"));
    assert_false(has_text(directory, "train", "val_"));
    uni_callback_free(callback);
    OK(uni__remove_tree(directory, err));
    OK(uni_callback_tensorboard(&callback, "/proc/nowhere", 0, false, err));
    uni_fit_options options = options_of(&p);
    options.callbacks = &callback;
    options.num_callbacks = 1;
    REFUSED(UNI_ENOTFOUND, "/proc/nowhere", "", uni_model_fit(NULL, model, &options, err));
    uni_callback_free(callback);
    uni_model_free(model);
    free_problem(&p);
}

/* ---- NaN ---- */

static void terminate_on_nan(void **state)
{
    problem p = make_problem(32 * 4);
    uni_model *model = classifier("sgd");
    uni_callback *callback = NULL;
    p.x[8 * 40] = NAN; /* in the second batch */
    OK(uni_callback_terminate_on_nan(&callback, err));
    uni_fit_options options = options_of(&p);
    options.no_shuffle = true;
    options.epochs = 5;
    options.callbacks = &callback;
    options.num_callbacks = 1;
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    struct capture capture = capture_begin();
    dup2(capture.fd, STDOUT_FILENO);
    uni_error failure = { 0 };
    int status = uni_model_fit(NULL, model, &options, &failure);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    char *text = capture_end(&capture);
    assert_int_equal(status, 0);
    assert_string_equal(text, "Batch 1: Invalid loss, terminating training\n");
    assert_int_equal(uni_optimizer_iterations(uni_model_optimizer(model)), 2);
    free(text);
    uni_callback_free(callback);
    uni_model_free(model);
    free_problem(&p);
}

/* ---- a killed training continues ---- */

struct crash {
    int epoch, at_epoch;
    int64_t at_batch, batches;
};

static int crash_epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    struct crash *crash = self;
    crash->epoch = epoch;
    crash->batches = 0;
    return 0;
}

static int crash_batch_begin(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    struct crash *crash = self;
    if (crash->epoch == crash->at_epoch && crash->batches++ == crash->at_batch)
        return uni_error_set(err, UNI_ECANCELED, "the power went");
    return 0;
}
static const uni_callback_class crash_class = { .name = "crash",
                                                .epoch_begin = crash_epoch_begin,
                                                .batch_begin = crash_batch_begin };

static uni_model *noisy(const char *optimizer)
{
    uni_model *model = NULL;
    OK(uni_sequential_new(&model, "noisy",
                          UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(8)), uni_layer_dense(16, NULL),
                                     uni_layer_dropout(0.5f), uni_layer_batch_normalization(NULL),
                                     uni_layer_dense(1, NULL)),
                          err));
    uni_model_set_seed(model, 21);
    OK(uni_model_compile(
        model, &(uni_compile_options){ .optimizer_name = optimizer, .loss_name = "mse" }, err));
    return model;
}

static void backup(int64_t every, int at_epoch, int64_t at_batch, int64_t redone)
{
    problem p = make_problem(160); /* 5 batches */
    char directory[256], path[320];
    assert_non_null(mkdtemp(uni__temporary_name(directory, sizeof directory, "backup")));
    snprintf(path, sizeof path, "%s/backup.unidict", directory);
    uni_model *whole = noisy("adam"), *first = noisy("adam"), *second = noisy("adam");
    uni_fit_options options = options_of(&p);
    options.epochs = 4;
    options.seed = 9;
    OK(uni_model_fit(NULL, whole, &options, err));
    struct crash crash = { .at_epoch = at_epoch, .at_batch = at_batch };
    uni_callback *callbacks[2];
    OK(uni_callback_backup_and_restore(&callbacks[0], directory, every, false, err));
    OK(uni_callback_new(&callbacks[1], &crash_class, &crash, err));
    options.callbacks = callbacks;
    options.num_callbacks = 2;
    REFUSED(UNI_ECANCELED, "the power went", "", uni_model_fit(NULL, first, &options, err));
    assert_true(uni__path_exists(path));
    /* Another process: a fresh model with other weights continues from the backup. */
    uni_model_set_seed(second, 1000);
    options.num_callbacks = 1;
    int64_t before = uni_optimizer_iterations(uni_model_optimizer(first));
    OK(uni_model_fit(NULL, second, &options, err));
    assert_int_equal(uni_optimizer_iterations(uni_model_optimizer(second)), 20);
    assert_int_equal(before, (int64_t)at_epoch * 5 + at_batch);
    assert_true(model_distance(whole, second) == 0);
    assert_false(uni__path_exists(path)); /* done: the backup is gone */
    uni_callback_free(callbacks[0]);
    uni_callback_free(callbacks[1]);
    OK(uni__remove_tree(directory, err));
    uni_model_free(whole);
    uni_model_free(first);
    uni_model_free(second);
    free_problem(&p);
}

static void backup_and_restore(void **state)
{
    backup(0, 2, 3, 3); /* every epoch: continues at the beginning of epoch 2 */
    backup(2, 1, 4, 0); /* every second batch: in the middle of epoch 1 */
}

static void broken_backup(void **state)
{
    problem p = make_problem(32);
    char directory[256], path[320];
    assert_non_null(mkdtemp(uni__temporary_name(directory, sizeof directory, "backup")));
    snprintf(path, sizeof path, "%s/backup.unidict", directory);
    OK(uni__write_file(path, "rubbish", 7, false, err));
    uni_model *model = noisy("sgd");
    uni_callback *callback = NULL;
    OK(uni_callback_backup_and_restore(&callback, directory, 0, true, err));
    uni_fit_options options = options_of(&p);
    options.callbacks = &callback;
    options.num_callbacks = 1;
    REFUSED(UNI_EFORMAT, "backup", path, uni_model_fit(NULL, model, &options, err));
    uni_callback_free(callback);
    OK(uni__remove_tree(directory, err));
    uni_model_free(model);
    free_problem(&p);
}

/* The state of a fit in a checkpoint of another author. */
static void crafted_states(void **state)
{
    static const struct {
        const char *json;
        int code;
        const char *says;
    } cases[] = {
        { "{\"format\":2}", UNI_EVERSION, "format 2" },
        { "{\"format\":\"1\"}", UNI_EFORMAT, "format 0" },
        { "{\"format\":1,\"history\":[]}", UNI_EFORMAT, "no history" },
        { "{\"format\":1,\"history\":{\"loss\":1}}", UNI_EFORMAT, "history of loss" },
        { "{\"format\":1,\"batch\":-1}", UNI_EFORMAT, "batch -1" },
        { "{\"format\":1,\"batch\":1}", UNI_EMISMATCH, "totals of other metrics" },
        { "{\"format\":1,\"batch\":1,\"totals\":[1]}", UNI_EMISMATCH, "totals of other metrics" },
        { "{\"format\":1,\"batch\":1,\"totals\":[1,1,1,1,1,1,1]}", UNI_EMISMATCH, "other metrics" },
        { "{\"format\":1,\"source\":{\"reset\":-1}}", UNI_EFORMAT, "epoch -1" },
        { "{\"format\":1,\"source\":{\"reset\":4294967296}}", UNI_EFORMAT, "epoch 4294967296" },
        { "{\"format\":1,\"source\":{\"batch\":-7}}", UNI_EFORMAT, "batch -7" },
        { "{\"format\":1,\"waiting\":{\"batches\":-1}}", UNI_EFORMAT, "-1 batches" },
        { "{\"format\":1,\"waiting\":{\"batches\":4294967296}}", UNI_EFORMAT,
          "4294967296 batches" },
        { "{\"format\":1,\"waiting\":{\"batches\":1,\"steps\":-1}}", UNI_EFORMAT, "batches" },
    };
    problem p = make_problem(160);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_model *model = noisy("adam");
        uni_value *crafted = NULL;
        uni_error why = { 0 };
        uni_fit_options options = options_of(&p);
        OK(uni_json_read(&crafted, cases[i].json, strlen(cases[i].json), err));
        int code = uni__model_set_fit_state(model, crafted, &why);
        if (code == 0)
            code = uni_model_fit(NULL, model, &options, &why);
        if (code != cases[i].code || strstr(why.message, cases[i].says) == NULL)
            fail_msg("%s: %d: %s", cases[i].json, code, why.message);
        uni_value_free(crafted);
        uni_model_free(model);
    }
    free_problem(&p);
}

/* The file that the state of a TensorBoard names is below its directory. */
static void crafted_names(void **state)
{
    static const char *const names[] = { "events.out.tfevents.1/../../../victim", "../../victim",
                                         "victim", "/etc/hostname", "" };
    char directory[256], path[400], *text = NULL;
    size_t size = 0;
    assert_non_null(mkdtemp(uni__temporary_name(directory, sizeof directory, "board")));
    snprintf(path, sizeof path, "%s/logs/train/events.out.tfevents.1", directory);
    OK(uni__make_dirs(path, 0700, err));
    snprintf(path, sizeof path, "%s/victim", directory);
    OK(uni__write_file(path, "important", 9, false, err));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char logs[300];
        uni_model *model = noisy("sgd");
        uni_callback *callback = NULL;
        snprintf(logs, sizeof logs, "%s/logs", directory);
        OK(uni_callback_tensorboard(&callback, logs, 0, false, err));
        struct scripted inner = insides(callback);
        uni_value *about = uni_value_dict(), *crafted = uni_value_dict();
        assert_int_equal(uni_dict_take(about, "name", uni_value_string(names[i])), 0);
        assert_int_equal(uni_dict_take(about, "size", uni_value_int(0)), 0);
        assert_int_equal(uni_dict_take(crafted, "train", about), 0);
        OK(inner.class_->train_begin(inner.self, model, &(uni_fit_info){ .epochs = 1 }, err));
        (void)!inner.class_->set_state(inner.self, crafted, NULL);
        OK(inner.class_->train_end(inner.self, model, &(uni_logs){ 0 }, err));
        OK(uni__read_file(&text, &size, path, 100, err));
        assert_int_equal(size, 9);
        free(text);
        uni_value_free(crafted);
        uni_callback_free(callback);
        uni_model_free(model);
    }
    OK(uni__remove_tree(directory, err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crafted_states),     cmocka_unit_test(crafted_names),
        cmocka_unit_test(test_auto_mode),     cmocka_unit_test(test_bad_options),
        cmocka_unit_test(early_stopping),     cmocka_unit_test(best_weights_are_restored),
        cmocka_unit_test(reduce_on_plateau),  cmocka_unit_test(progress),
        cmocka_unit_test(csv_logger),         cmocka_unit_test(model_checkpoint),
        cmocka_unit_test(tensorboard),        cmocka_unit_test(terminate_on_nan),
        cmocka_unit_test(backup_and_restore), cmocka_unit_test(broken_backup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
