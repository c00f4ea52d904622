/*
 * files_test.c - models of real Keras (tests/reference/models) loaded here: predictions, weights,
 * optimizer state and one more training step; saved again in every format and loaded back; files
 * that must be refused (tests/reference/hostile), each with a sentence that says why.
 *
 * With arguments it is the writer of the round trip to real Keras (tests/keras_files.sh):
 * DIRECTORY: loads every model there is, saves it as DIRECTORY/NAME.keras and .weights.h5.
 */
#include "nn/layers/reference.h"

#include <sys/stat.h>
#include <unisono/log.h>
#include <unisono/nn.h>

#include "tensor/shared.h"
#include "base/asserts.h"
#include "nn/files/safetensors.h"

#define TOLERANCE 1e-5

/* Keras takes the global norm of an embedding's gradient before it adds up rows of one word, which
 * is not the norm of the gradient: its transformer (global_clipnorm) makes a step that is 0.2%
 * smaller than ours. */
static double tolerance_of(const char *name, const char *key)
{
    return strcmp(name, "transformer") == 0 && strncmp(key, "next", 4) == 0 ? 1e-3 : TOLERANCE;
}

static const char *const models[] = { "mlp",       "cnn",         "residual",
                                      "recurrent", "transformer", "regularized",
                                      "nested",    "text",        "mlp_deflated" };
#define NUM_MODELS (sizeof models / sizeof models[0])

static uni_model *load(const char *name)
{
    char path[1024];
    uni_model *model = NULL;
    snprintf(path, sizeof path, "%s/models/%s.keras", reference_root(), name);
    assert_ok(uni_model_load(&model, path, &failure));
    return model;
}

static reference expected_of(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "models/%s.expected.safetensors",
             strcmp(name, "mlp_deflated") == 0 ? "mlp" : name);
    return reference_open(path);
}

/* ---- predictions ---- */

struct feed {
    int count;
    uni_column columns[4];
    uni_value *strings;
    uni_string *texts;
};

static struct feed feed_of(const reference *file)
{
    struct feed feed = { 0 };
    feed.strings = reference_json(file, "strings");
    if (feed.strings != NULL) {
        size_t count = uni_list_size(feed.strings);
        feed.texts = calloc(count, sizeof *feed.texts);
        for (size_t i = 0; i < count; i++)
            feed.texts[i].data =
                uni_value_as_bytes(uni_list_get(feed.strings, i), &feed.texts[i].size);
        feed.columns[feed.count++] = uni_column_strings((int64_t)count, feed.texts);
        return feed;
    }
    for (reference_array input; (input = reference_get(file, "input.%d", feed.count)).dtype != 0;)
        feed.columns[feed.count++] =
            uni_column_view(input.dtype, input.ndim, input.shape, input.data);
    return feed;
}

static void feed_free(struct feed *feed)
{
    uni_value_free(feed->strings);
    free(feed->texts);
}

static void check_prediction(const char *name, uni_model *model, const reference *file,
                             const char *key)
{
    struct feed feed = feed_of(file);
    uni_array *output = NULL;
    reference_array want = reference_get(file, key, 0);
    assert_ok(uni_model_predict(
        &output, model, &(uni_fit_options){ .x = feed.columns, .num_x = feed.count, .threads = 1 },
        &failure));
    assert_int_equal(uni_array_count(output), want.count);
    char what[128];
    snprintf(what, sizeof what, "%s %s", name, key);
    assert_close(what, uni_array_data(output), &want, tolerance_of(name, key), TOLERANCE);
    uni_array_unref(output);
    feed_free(&feed);
}

static void check_weights(const char *name, uni_model *model, const reference *file,
                          const char *key)
{
    uni_value *weights = NULL;
    assert_ok(uni_model_get_weights(&weights, model, &failure));
    size_t found = 0;
    for (size_t count = 0; count < uni_list_size(weights); count++) {
        reference_array want = reference_get(file, key, (int)count);
        uni_array *array = uni_value_as_array(uni_list_get(weights, count));
        assert_non_null(array);
        if (want.dtype == 0)
            continue; /* a count, after the next step */
        found++;
        assert_int_equal(uni_array_count(array), want.count);
        char what[128];
        snprintf(what, sizeof what, "%s, %s %zu", name, key, count);
        /* A bias before a batch normalisation has no gradient but rounding errors, which RMSprop
         * blows up to steps. */
        bool noise = strcmp(name, "residual") == 0 && count == 3;
        if (want.dtype == UNI_F32)
            assert_close(what, uni_array_data(array), &want, noise ? 1e-4 : tolerance_of(name, key),
                         TOLERANCE);
    }
    assert_true(found + 1 >= uni_list_size(weights));
    assert_int_equal(reference_get(file, key, (int)uni_list_size(weights)).dtype, 0);
    uni_value_free(weights);
}

/* The optimizer's state shows in the next step. */
static void check_next_step(const char *name, uni_model *model, const reference *file)
{
    reference_array y = reference_get(file, "y", 0), loss = reference_get(file, "next.loss", 0);
    if (y.dtype == 0)
        return;
    struct feed feed = feed_of(file);
    uni_batch batch = { .num_x = feed.count, .num_y = 1, .size = y.shape[0] };
    memcpy(batch.x, feed.columns, sizeof feed.columns);
    batch.y[0] = uni_column_view(y.dtype, y.ndim, y.shape, y.data);
    uni_value *logs = NULL;
    uni_model_reset_metrics(model);
    assert_ok(uni_model_train_on_batch(&logs, model, &batch, &failure));
    float got = (float)uni_dict_get_float(logs, "loss", NAN);
    assert_close(name, &got, &loss, TOLERANCE, TOLERANCE);
    check_weights(name, model, file, "next.weight.%d");
    check_prediction(name, model, file, "next.output.%d");
    uni_value_free(logs);
    feed_free(&feed);
}

static void test_loads_what_keras_saved(void **state)
{
    for (size_t i = 0; i < NUM_MODELS; i++) {
        reference file = expected_of(models[i]);
        uni_model *model = load(models[i]);
        check_prediction(models[i], model, &file, "output.%d");
        check_weights(models[i], model, &file, "weight.%d");
        if (strcmp(models[i], "mlp_deflated") != 0)
            check_next_step(models[i], model, &file);
        uni_model_free(model);
        reference_close(&file);
    }
}

/* ---- round trips ---- */

static char *directory;

static int make_directory(void **state)
{
    char path[256];
    directory = mkdtemp(uni__temporary_name(path, sizeof path, "keras")) ? strdup(path) : NULL;
    return directory != NULL ? 0 : -1;
}

static int remove_directory(void **state)
{
    int status = uni__remove_tree(directory, NULL);
    free(directory);
    return status;
}

static const char *below(char path[1024], const char *name, const char *ending)
{
    snprintf(path, 1024, "%s/%s%s", directory, name, ending);
    return path;
}

/* Zeros, so that nothing of before can pass for what was loaded. */
static void clear(uni_model *model)
{
    size_t size = 0;
    float *weights = uni_parameters_weights(uni_model_parameters(model), &size);
    memset(weights, 0, size * sizeof *weights);
    float *states = uni__parameters_states(uni_model_parameters(model), &size);
    if (size > 0)
        memset(states, 0, size * sizeof *states);
}

static void test_round_trips(void **state)
{
    char path[1024];
    for (size_t i = 0; i < NUM_MODELS; i++) {
        reference file = expected_of(models[i]);
        uni_model *model = load(models[i]), *again = NULL;
        static const char *const endings[] = { ".weights.h5", ".safetensors" };
        for (int j = 0; j < 2; j++) {
            assert_ok(uni_model_save(model, below(path, models[i], endings[j]), &failure));
            clear(model);
            assert_ok(uni_model_load_weights(model, path, &failure));
            check_prediction(models[i], model, &file, "output.%d");
            check_weights(models[i], model, &file, "weight.%d");
        }
        assert_ok(uni_model_save(model, below(path, models[i], ".keras"), &failure));
        assert_ok(uni_model_load(&again, path, &failure));
        check_prediction(models[i], again, &file, "output.%d");
        check_weights(models[i], again, &file, "weight.%d");
        check_next_step(models[i], again,
                        &file); /* with the optimizer's state of the file's file */
        uni_model_free(model);
        uni_model_free(again);
        reference_close(&file);
    }
}

/* Keras's own .weights.h5, into a model of ours that has never seen them. */
static void test_weights_of_keras(void **state)
{
    char path[1024];
    for (size_t i = 0; i < NUM_MODELS; i++) {
        snprintf(path, sizeof path, "%s/models/%s.weights.h5", reference_root(), models[i]);
        if (!uni__path_exists(path))
            continue;
        reference file = expected_of(models[i]);
        uni_model *model = load(models[i]);
        clear(model);
        assert_ok(uni_model_load_weights(model, path, &failure));
        check_weights(models[i], model, &file, "weight.%d");
        check_next_step(models[i], model, &file);
        uni_model_free(model);
        reference_close(&file);
    }
}

/* ---- refused ---- */

static bool mentions(const uni_value *words, const char *message)
{
    for (size_t i = 0; i < uni_list_size(words); i++)
        if (strcasestr(message, uni_value_as_string(uni_list_get(words, i), "?")) != NULL)
            return true;
    return uni_list_size(words) == 0;
}

/* 0 when it was refused for its reason; says what happened otherwise. */
static int check_hostile(const char *name, const uni_value *why)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/hostile/%s", reference_root(), name);
    const uni_value *words = uni_dict_get(why, "mentions");
    memset(&failure, 0, sizeof failure);
    int status;
    if (strstr(name, ".keras") != NULL) {
        uni_model *model = NULL;
        status = uni_model_load(&model, path, &failure);
        assert_true((model == NULL) == (status < 0));
        uni_model_free(model);
    } else {
        uni_model *model = load("mlp");
        reference file = expected_of("mlp");
        status = uni_model_load_weights(model, path, &failure);
        uni_error kept = failure;
        if (status < 0)
            check_weights(name, model, &file, "weight.%d"); /* nothing was changed */
        reference_close(&file);
        uni_model_free(model);
        failure = kept;
    }
    bool right = status < 0 && failure.code == status && mentions(words, failure.message);
    if (!right)
        print_error("%s (%s): %s\n", name, uni_dict_get_string(why, "why", ""),
                    status < 0 ? failure.message : "it was taken");
    return right ? 0 : 1;
}

static void test_hostile_files(void **state)
{
    char path[1024];
    uni_value *expected = NULL;
    snprintf(path, sizeof path, "%s/hostile/expected.json", reference_root());
    assert_ok(uni_json_read_file(&expected, path, &failure));
    assert_true(uni_dict_size(expected) >= 90);
    int wrong = 0;
    for (size_t i = 0; i < uni_dict_size(expected); i++)
        wrong += check_hostile(uni_dict_key_at(expected, i), uni_dict_value_at(expected, i));
    uni_value_free(expected);
    assert_int_equal(wrong, 0);
}

static void expect_error(int status, int code, const char *part)
{
    if (status != code || failure.code != code || strstr(failure.message, part) == NULL)
        fail_msg("expected \"%s\", got %s: \"%s\"", part, uni_status_name(status), failure.message);
}

static void test_other_files(void **state)
{
    char path[1024];
    uni_model *mlp = load("mlp"), *cnn = load("cnn"), *none = NULL;
    assert_ok(uni_model_save(cnn, below(path, "cnn", ".weights.h5"), &failure));
    expect_error(uni_model_load_weights(mlp, path, &failure), UNI_ESHAPE, "hidden");
    assert_ok(uni_model_save(cnn, below(path, "cnn", ".safetensors"), &failure));
    expect_error(uni_model_load_weights(mlp, path, &failure), UNI_EFORMAT, "hidden/kernel");
    expect_error(uni_model_load(&none, path, &failure), UNI_EINVAL, "uni_model_load_weights");
    expect_error(uni_model_save(mlp, below(path, "model", ".h5"), &failure), UNI_EINVAL, ".keras");
    expect_error(uni_model_load(&none, below(path, "nothing", ".keras"), &failure), UNI_ENOTFOUND,
                 "nothing.keras");
    expect_error(uni_model_save(mlp, "/nowhere/at/all.keras", &failure), UNI_ENOTFOUND, "/nowhere");
    uni_model *empty = NULL;
    assert_ok(uni_sequential_new(&empty, "empty", UNI_LAYERS(uni_layer_dense(3, NULL)), &failure));
    expect_error(uni_model_save(empty, below(path, "empty", ".keras"), &failure), UNI_ESTATE,
                 "build it first");
    uni_model_free(empty);
    uni_model_free(mlp);
    uni_model_free(cnn);
}

/* Every byte changed in turn (of a part of them), every length: refused or taken, never a crash
 * here, and nothing half done. */
static void test_damaged_files(void **state)
{
    char path[1024], source[1024];
    char *bytes = NULL;
    size_t size = 0;
    uni_model *model = load("mlp");
    snprintf(source, sizeof source, "%s/models/mlp.weights.h5", reference_root());
    assert_ok(uni__read_file(&bytes, &size, source, (size_t)1 << 24, &failure));
    below(path, "damaged", ".weights.h5");
    for (size_t i = 0; i < 60; i++) {
        size_t at = i * size / 60;
        char kept = bytes[at];
        bytes[at] = (char)~kept;
        assert_ok(uni__write_file(path, bytes, size, false, &failure));
        int status = uni_model_load_weights(model, path, &failure);
        assert_true(status == 0 || failure.message[0] != '\0');
        bytes[at] = kept;
    }
    free(bytes);
    uni_model_free(model);
}

/* ---- the writer for real Keras ---- */

static int write_all(const char *into)
{
    char path[1024];
    for (size_t i = 0; i < NUM_MODELS; i++) {
        uni_error err = { 0 };
        uni_model *model = NULL;
        snprintf(path, sizeof path, "%s/models/%s.keras", reference_root(), models[i]);
        int status = uni_model_load(&model, path, &err);
        for (int j = 0; j < 2 && status == 0; j++) {
            snprintf(path, sizeof path, "%s/%s%s", into, models[i],
                     j == 0 ? ".keras" : ".weights.h5");
            status = uni_model_save(model, path, &err);
        }
        uni_model_free(model);
        if (status < 0) {
            fprintf(stderr, "%s: %s\n", models[i], err.message);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return write_all(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads_what_keras_saved),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_weights_of_keras),
        cmocka_unit_test(test_hostile_files),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_damaged_files),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
