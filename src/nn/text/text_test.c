/*
 * text_test.c - TextVectorization against real Keras (tests/reference/text): vocabularies and
 * outputs; the sentence embedding against sums by hand and finite differences of its table; shapes,
 * empty texts, bad files, configs.
 */
#include "base/locale_fixture.h"
#include "nn/layers/reference.h"
#include "nn/text/text.h"
#include "nn/text/shapes.h"

#include <unistd.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/file.h"

/* ---- TextVectorization ---- */

struct strings {
    uni_value *list;
    uni_string *data;
    int64_t count;
};

static struct strings strings_of(const reference *file, const char *key)
{
    struct strings strings = { .list = reference_json(file, key) };
    strings.count = (int64_t)uni_list_size(strings.list);
    strings.data = calloc((size_t)strings.count + 1, sizeof *strings.data);
    for (int64_t i = 0; i < strings.count; i++)
        strings.data[i].data =
            uni_value_as_bytes(uni_list_get(strings.list, (size_t)i), &strings.data[i].size);
    return strings;
}

static void strings_free(struct strings *strings)
{
    uni_value_free(strings->list);
    free(strings->data);
}

static uni_model *model_of(uni_layer *layer)
{
    uni_model *model = NULL;
    uni_error err = { 0 };
    if (uni_sequential_new(&model, "text", UNI_LAYERS(uni_layer_input(UNI_STRING, 0, NULL), layer),
                           &err) < 0)
        fail_msg("%s", err.message);
    return model;
}

static void check_vocabulary(const char *name, const reference *file, const uni_layer *layer)
{
    uni_value *want = reference_json(file, "vocabulary");
    size_t size = 0;
    const char *const *words = uni_layer_vocabulary(layer, &size);
    assert_int_equal(size, uni_list_size(want));
    for (size_t i = 0; i < size; i++)
        if (strcmp(words[i], uni_value_as_string(uni_list_get(want, i), "?")) != 0)
            fail_msg("%s: word %zu is \"%s\", Keras has \"%s\"", name, i, words[i],
                     uni_value_as_string(uni_list_get(want, i), "?"));
    uni_value_free(want);
}

static void check_output(const char *name, const reference *file, uni_model *model,
                         const struct strings *strings, uni_tape *tape)
{
    reference_array want = reference_get(file, "output", 0);
    bool column = strcmp(reference_text(file, "column"), "1") == 0;
    uni_tape_begin(tape, NULL);
    const int64_t shape[] = { strings->count, 1 };
    uni_tensor *out = uni_model_call(
        model, tape, uni_tape_input(tape, UNI_STRING, column ? 2 : 1, shape, strings->data));
    uni_error err = { 0 };
    if (uni_tape_status(tape, &err) < 0)
        fail_msg("%s: %s", name, err.message);
    assert_int_equal(uni_tensor_ndim(out), want.ndim);
    assert_memory_equal(uni_tensor_shape(out), want.shape, (size_t)want.ndim * sizeof(int64_t));
    for (size_t i = 0; i < want.count; i++) {
        double got = uni_tensor_dtype(out) == UNI_I64 ? (double)((int64_t *)uni_tensor_data(out))[i]
                                                      : (double)((float *)uni_tensor_data(out))[i];
        double expected = want.dtype == UNI_I64 ? (double)((const int64_t *)want.data)[i]
                                                : (double)((const float *)want.data)[i];
        if (fabs(got - expected) > 1e-5)
            fail_msg("%s: number %zu is %g, Keras has %g", name, i, got, expected);
    }
}

static uni_layer *layer_of(const char *name, const reference *file)
{
    uni_value *config = reference_json(file, "config");
    uni_layer *layer = NULL;
    uni_error err = { 0 };
    if (uni__layer_from_config(&layer, "TextVectorization", config, &err) < 0)
        fail_msg("%s: %s", name, err.message);
    if (reference_text(file, "corpus") != NULL) {
        struct strings corpus = strings_of(file, "corpus");
        uni_column data = uni_column_strings(corpus.count, corpus.data);
        if (uni_layer_adapt(layer, &data, &err) < 0)
            fail_msg("%s: %s", name, err.message);
        strings_free(&corpus);
    }
    uni_value_free(config);
    return layer;
}

/* Creates the layer again from its own config, which contains the vocabulary. */
static uni_layer *again(const uni_layer *layer)
{
    uni_value *config = NULL;
    uni_layer *copy = NULL;
    uni_error err = { 0 };
    assert_int_equal(uni__layer_get_config(layer, &config, NULL), 0);
    if (uni__layer_from_config(&copy, "TextVectorization", config, &err) < 0)
        fail_msg("%s", err.message);
    uni_value_free(config);
    return copy;
}

static void check_file(const char *name, reference *file, void *tape)
{
    struct strings strings = strings_of(file, "strings");
    uni_layer *layer = layer_of(name, file), *copy = again(layer);
    uni_model *models[] = { model_of(layer), model_of(copy) };
    for (int i = 0; i < 2; i++) {
        check_vocabulary(name, file, i == 0 ? layer : copy);
        check_output(name, file, models[i], &strings, tape);
        uni_model_free(models[i]);
    }
    strings_free(&strings);
}

static void test_equal_to_keras(void **state)
{
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    assert_int_equal(reference_each("text", check_file, tape), 16);
    uni_tape_free(tape);
}

static void expect_layer_error(uni_layer *layer, const char *part)
{
    uni_model *model = NULL;
    uni_error err = { 0 };
    assert_true(uni_sequential_new(&model, "text",
                                   UNI_LAYERS(uni_layer_input(UNI_STRING, 0, NULL), layer),
                                   &err) < 0);
    assert_null(model);
    if (strstr(err.message, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void test_vectorization_refuses(void **state)
{
    static const char *const twice[] = { "fox", "dog", "fox" };
    expect_layer_error(uni_layer_text_vectorization(&(uni_text_options){ .max_tokens = 2 }),
                       "max_tokens");
    expect_layer_error(
        uni_layer_text_vectorization(&(uni_text_options){ .output = UNI_TEXT_COUNT }), "adapt it");
    expect_layer_error(uni_layer_text_vectorization(
                           &(uni_text_options){ .vocabulary = twice, .num_vocabulary = 3 }),
                       "twice");
    expect_layer_error(
        uni_layer_text_vectorization(&(uni_text_options){ .no_split = true, .sequence_length = 4 }),
        "sequence_length");
    expect_layer_error(uni_layer_text_vectorization(&(uni_text_options){ .ngrams = 99 }), "ngrams");

    uni_layer *layer = uni_layer_text_vectorization(NULL);
    uni_error err = { 0 };
    uni_column numbers = uni_column_view(UNI_F32, 1, (const int64_t[]){ 1 }, (float[]){ 1 });
    assert_int_equal(uni_layer_adapt(layer, &numbers, &err), UNI_EDTYPE);
    assert_null(uni_layer_vocabulary(layer, NULL));
    uni_model *model = model_of(layer);
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    uni_tape_begin(tape, NULL);
    uni_string one = { "fox", 3 };
    assert_null(uni_model_call(model, tape,
                               uni_tape_input(tape, UNI_STRING, 1, (const int64_t[]){ 1 }, &one)));
    assert_true(uni_tape_status(tape, &err) < 0);
    assert_non_null(strstr(err.message, "uni_layer_adapt"));
    /* It may still adapt after the build. */
    uni_column text = uni_column_strings(1, &one);
    assert_int_equal(uni_layer_adapt(layer, &text, &err), 0);
    uni_tape_begin(tape, NULL);
    uni_tensor *out = uni_model_call(
        model, tape, uni_tape_input(tape, UNI_STRING, 1, (const int64_t[]){ 1 }, &one));
    assert_int_equal(uni_tape_status(tape, &err), 0);
    assert_int_equal(((int64_t *)uni_tensor_data(out))[0], 2);
    uni_tape_begin(tape, NULL); /* no texts at all */
    out = uni_model_call(model, tape,
                         uni_tape_input(tape, UNI_STRING, 1, (const int64_t[]){ 0 }, &one));
    assert_int_equal(uni_tape_status(tape, &err), 0);
    assert_int_equal(uni_tensor_dim(out, 0), 0);
    uni_tape_free(tape);
    uni_model_free(model);
}

/* A vocabulary given as a path would make one file open another. */
static void test_config_refuses(void **state)
{
    static const struct {
        const char *config, *part;
    } cases[] = { { "{\"vocabulary\": \"/etc/passwd\"}", "list of words" },
                  { "{\"vocabulary\": [1]}", "not text" },
                  { "{\"standardize\": {\"class_name\": \"function\"}}", "standardize" },
                  { "{\"split\": \"comma\"}", "comma" },
                  { "{\"output_mode\": \"soft\"}", "soft" },
                  { "{\"ngrams\": [1, 3]}", "ngrams" },
                  { "{\"sparse\": true}", "sparse" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_value *config = NULL;
        uni_layer *layer = NULL;
        uni_error err = { 0 };
        assert_int_equal(uni_json_read(&config, cases[i].config, strlen(cases[i].config), NULL), 0);
        assert_true(uni__layer_from_config(&layer, "TextVectorization", config, &err) < 0);
        if (strstr(err.message, cases[i].part) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].part);
        uni_value_free(config);
    }
}

/* ---- sentence embedding ---- */

static char *write_file(const char *text)
{
    char path[256];
    int fd = mkstemp(uni__temporary_name(path, sizeof path, "vectors"));
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return strdup(path);
}

static void drop_file(char *path)
{
    unlink(path);
    free(path);
}

static const float *embed(uni_model *model, uni_tape *tape, int64_t count, const uni_string *texts,
                          const uni_step *step)
{
    uni_tape_begin(tape, step);
    const int64_t shape[] = { count, 1 };
    uni_tensor *out =
        uni_model_call(model, tape, uni_tape_input(tape, UNI_STRING, 2, shape, texts));
    uni_error err = { 0 };
    if (uni_tape_status(tape, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(uni_tensor_dim(out, 0), count);
    return uni_tensor_data(out);
}

static void test_sentence_from_file(void **state)
{
    char *path = write_file("3 2\nfox 1 2\ndog 3 4\n! 9 9\nFox 5 5\nthe 10 -20\n");
    uni_model *model = model_of(uni_layer_sentence_embedding(
        2, &(uni_sentence_options){ .vectors = path, .frozen = true }));
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    const uni_string texts[] = {
        { "The FOX, the dog!", 17 }, { "", 0 }, { "unheard-of", 10 }, { "fox", 3 }
    };
    const float *out = embed(model, tape, 4, texts, NULL);
    assert_float_equal(out[0], 24 / sqrt(4), 1e-6);
    assert_float_equal(out[1], -34 / sqrt(4), 1e-6);
    /* An empty text, and a word without a vector. */
    for (int i = 2; i < 6; i++)
        assert_true(out[i] == 0);
    assert_float_equal(out[6], 1, 0);
    assert_int_equal(uni__parameters_trainable(uni_model_parameters(model), NULL, 0),
                     0); /* frozen */
    /* Without the file, from config and weights. */
    uni_value *config = NULL;
    uni_layer *copy = NULL;
    assert_int_equal(uni__layer_get_config(uni_model_layer(model, 0), &config, NULL), 0);
    drop_file(path);
    assert_int_equal(uni__layer_from_config(&copy, "SentenceEmbedding", config, NULL), 0);
    uni_model *second = model_of(copy);
    size_t size = 0;
    const float *table = uni_parameters_weights(uni_model_parameters(model), &size);
    memcpy(uni_parameters_weights(uni_model_parameters(second), NULL), table, size * sizeof *table);
    uni_tape *other = NULL;
    assert_int_equal(uni_tape_new(&other, NULL, NULL), 0);
    assert_memory_equal(embed(second, other, 4, texts, NULL), out, 8 * sizeof *out);
    uni_value_free(config);
    uni_tape_free(tape);
    uni_tape_free(other);
    uni_model_free(model);
    uni_model_free(second);
}

/* Numbers of a file have a point, whatever the program's locale has. */
static void test_sentence_in_a_locale_with_commas(void **state)
{
    if (!set_comma_locale())
        skip(); /* no such locale on this machine */
    char *path = write_file("fox 1.5 -0.25\n");
    uni_model *model =
        model_of(uni_layer_sentence_embedding(2, &(uni_sentence_options){ .vectors = path }));
    setlocale(LC_NUMERIC, "C");
    uni_tape *tape = NULL;
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    const float *out = embed(model, tape, 1, &(const uni_string){ "fox", 3 }, NULL);
    assert_float_equal(out[0], 1.5, 0);
    assert_float_equal(out[1], -0.25, 0);
    uni_tape_free(tape);
    uni_model_free(model);
    drop_file(path);
}

static void test_sentence_learns(void **state)
{
    static const char *const words[] = { "fox", "dog" };
    uni_model *model = model_of(uni_layer_sentence_embedding(
        3, &(uni_sentence_options){ .vocabulary = words, .num_vocabulary = 2, .buckets = 5 }));
    uni_parameters *store = uni_model_parameters(model);
    const uni_parameter *table = uni_parameters_at(store, 0);
    assert_int_equal(uni_parameter_info_of(table)->shape[0], 7);
    uni_gradients *gradients = NULL;
    uni_tape *tape = NULL;
    assert_int_equal(uni_gradients_new(&gradients, store, NULL), 0);
    assert_int_equal(uni_tape_new(&tape, NULL, NULL), 0);
    const uni_string texts[] = { { "fox fox dog", 11 } };
    uni_tape_begin(tape, &(uni_step){ .training = true, .gradients = gradients });
    const int64_t shape[] = { 1 };
    uni_tensor *out =
        uni_model_call(model, tape, uni_tape_input(tape, UNI_STRING, 1, shape, texts));
    uni_error err = { 0 };
    if (uni_tape_gradient(tape, uni_op_sum(tape, out), NULL, &err) < 0)
        fail_msg("%s", err.message);
    const float *gradient = uni_gradients_of(gradients, table);
    assert_float_equal(gradient[0], 2 / sqrt(3), 1e-6);
    assert_float_equal(gradient[3], 1 / sqrt(3), 1e-6);
    assert_true(gradient[6] == 0);
    uni_tape_free(tape);
    uni_gradients_free(gradients);
    uni_model_free(model);
}

static void test_sentence_refuses(void **state)
{
    char *ragged = write_file("fox 1 2\ndog 3\n"), *wide = write_file("fox 1 2 3\n"),
         *empty = write_file("");
    expect_layer_error(
        uni_layer_sentence_embedding(2, &(uni_sentence_options){ .vectors = ragged }), "line 2");
    expect_layer_error(uni_layer_sentence_embedding(2, &(uni_sentence_options){ .vectors = wide }),
                       "more than 2");
    expect_layer_error(uni_layer_sentence_embedding(2, &(uni_sentence_options){ .vectors = empty }),
                       "no word vectors");
    expect_layer_error(
        uni_layer_sentence_embedding(2, &(uni_sentence_options){ .vectors = "/nowhere/at/all" }),
        "/nowhere/at/all");
    expect_layer_error(uni_layer_sentence_embedding(0, NULL), "dim (0)");
    drop_file(ragged);
    drop_file(wide);
    drop_file(empty);
    uni_model *model = NULL;
    uni_error err = { 0 };
    assert_int_equal(
        uni_sequential_new(&model, "text",
                           UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ 3 }),
                                      uni_layer_sentence_embedding(2, NULL)),
                           &err),
        UNI_EDTYPE);
    assert_non_null(strstr(err.message, "reads text"));
}

/* Bytes that are not UTF-8, and a NUL in the middle, are ordinary text. */
static void test_any_bytes(void **state)
{
    uni_layer *layer = uni_layer_text_vectorization(&(uni_text_options){ .characters = true });
    const uni_string texts[] = { { "a\xff\0b\xc3", 5 }, { "\xc3\xa9", 2 } };
    uni_column data = uni_column_strings(2, texts);
    assert_int_equal(uni_layer_adapt(layer, &data, NULL), 0);
    size_t size = 0;
    assert_non_null(uni_layer_vocabulary(layer, &size));
    assert_int_equal(size, 2 + 6);
    uni_layer_free(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_to_keras),
        cmocka_unit_test(test_vectorization_refuses),
        cmocka_unit_test(test_config_refuses),
        cmocka_unit_test(test_sentence_from_file),
        cmocka_unit_test(test_sentence_in_a_locale_with_commas),
        cmocka_unit_test(test_sentence_learns),
        cmocka_unit_test(test_sentence_refuses),
        cmocka_unit_test(test_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
