/*
 * batches_test.c - batches of arrays: every sample once per epoch, the same order for the same seed
 * and epoch, with and without prefetch; remainders, repetition, text and weights.
 */
#include "nn/shared.h"
#include "nn/model/testing.h"

enum { SAMPLES = 103 };

struct data {
    int32_t ids[SAMPLES];
    float pairs[SAMPLES][2], weights[SAMPLES];
    uni_string words[SAMPLES];
    char text[SAMPLES][8];
    uni_column x[2], y, weight;
};

static struct data *make_data(void)
{
    struct data *data = calloc(1, sizeof *data);
    for (int i = 0; i < SAMPLES; i++) {
        data->ids[i] = i;
        data->pairs[i][0] = (float)i;
        data->pairs[i][1] = (float)-i;
        data->weights[i] = (float)i / 2;
        snprintf(data->text[i], sizeof data->text[i], "w%d", i);
        data->words[i] = (uni_string){ data->text[i], strlen(data->text[i]) };
    }
    data->x[0] = uni_column_strings(SAMPLES, data->words);
    data->x[1] = uni_column_view(UNI_F32, SHAPE(SAMPLES, 2), data->pairs);
    data->y = uni_column_view(UNI_I32, SHAPE(SAMPLES), data->ids);
    data->weight = uni_column_view(UNI_F32, SHAPE(SAMPLES), data->weights);
    return data;
}

/* Collects all ids of an epoch in order; checks that the columns of a sample belong together. */
static int collect(uni_batches *batches, int *ids, int64_t batch_size, int limit)
{
    int count = 0;
    for (uni_batch batch; count < limit;) {
        int got = 0;
        OK(got = uni_batches_next(&batch, batches, err));
        if (got == 0)
            break;
        assert_true(batch.size <= batch_size && batch.size > 0);
        assert_int_equal(batch.x[0].shape[0], batch.size);
        for (int64_t i = 0; i < batch.size; i++) {
            int id = ((const int32_t *)batch.y[0].data)[i];
            char word[8];
            snprintf(word, sizeof word, "w%d", id);
            const uni_string *string = &((const uni_string *)batch.x[0].data)[i];
            assert_int_equal(string->size, strlen(word));
            assert_memory_equal(string->data, word, string->size);
            assert_true(((const float *)batch.x[1].data)[2 * i + 1] == (float)-id);
            assert_true(((const float *)batch.weights.data)[i] == (float)id / 2);
            ids[count++] = id;
        }
    }
    return count;
}

static uni_batches *open_batches(const struct data *data, const uni_columns_options *options)
{
    uni_batches *batches = NULL;
    OK(uni_batches_columns(&batches, 2, data->x, 1, &data->y, &data->weight, options, err));
    return batches;
}

static void every_sample_once(void **state)
{
    struct data *data = make_data();
    int first[1000], again[1000], next[1000], seen[SAMPLES] = { 0 };
    uni_columns_options options = { .batch_size = 10, .shuffle = true, .seed = 77 };
    uni_batches *batches = open_batches(data, &options);
    assert_int_equal(uni__batches_length(batches), 11);
    assert_int_equal(collect(batches, first, 10, 1000), SAMPLES);
    OK(uni_batches_reset(batches, 1, err));
    assert_int_equal(collect(batches, next, 10, 1000), SAMPLES);
    OK(uni_batches_reset(batches, 0, err));
    assert_int_equal(collect(batches, again, 10, 1000), SAMPLES);
    assert_memory_equal(first, again, SAMPLES * sizeof *first);
    assert_memory_not_equal(first, next, SAMPLES * sizeof *first);
    int in_place = 0;
    for (int i = 0; i < SAMPLES; i++) {
        seen[first[i]]++;
        in_place += first[i] == i;
    }
    for (int i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], 1);
    assert_true(in_place < 10);
    uni_batches_free(batches);
    free(data);
}

static void prefetch_changes_nothing(void **state)
{
    struct data *data = make_data();
    int plain[1000], ahead[1000];
    uni_columns_options options = { .batch_size = 7, .shuffle = true, .seed = 3 };
    uni_batches *one = open_batches(data, &options);
    options.prefetch = 3;
    uni_batches *two = open_batches(data, &options);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        OK(uni_batches_reset(one, epoch, err));
        OK(uni_batches_reset(two, epoch, err));
        assert_int_equal(collect(one, plain, 7, 1000), SAMPLES);
        assert_int_equal(collect(two, ahead, 7, 1000), SAMPLES);
        assert_memory_equal(plain, ahead, SAMPLES * sizeof *plain);
    }
    /* A reset in the middle, and freeing before everything was read. */
    OK(uni_batches_reset(two, 0, err));
    assert_int_equal(collect(two, ahead, 7, 14), 14);
    OK(uni_batches_reset(two, 1, err));
    assert_int_equal(collect(two, ahead, 7, 14), 14);
    OK(uni_batches_reset(one, 1, err));
    assert_int_equal(collect(one, plain, 7, 14), 14);
    assert_memory_equal(plain, ahead, 14 * sizeof *plain);
    uni_batches_free(one);
    uni_batches_free(two);
    free(data);
}

static void remainders_and_repeats(void **state)
{
    struct data *data = make_data();
    int ids[1000];
    uni_batches *batches =
        open_batches(data, &(uni_columns_options){ .batch_size = 10, .drop_remainder = true });
    assert_int_equal(uni__batches_length(batches), 10);
    assert_int_equal(collect(batches, ids, 10, 1000), 100);
    /* Not shuffled: in order. */
    for (int i = 0; i < 100; i++)
        assert_int_equal(ids[i], i);
    uni_batches_free(batches);
    batches = open_batches(
        data,
        &(uni_columns_options){ .batch_size = 50, .repeat = true, .shuffle = true, .seed = 1 });
    assert_int_equal(uni__batches_length(batches), -1);
    assert_true(collect(batches, ids, 50, 250) >= 250);
    int seen[SAMPLES] = { 0 };
    for (int i = 0; i < 2 * SAMPLES; i++)
        seen[ids[i]]++;
    for (int i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], 2);
    uni_batches_free(batches);
    batches = open_batches(
        data, &(uni_columns_options){ .batch_size = 500, .drop_remainder = true, .repeat = true });
    /* No full batch, and no endless search for one. */
    assert_int_equal(collect(batches, ids, 500, 1000), 0);
    uni_batches_free(batches);
    batches = open_batches(
        data, &(uni_columns_options){ .batch_size = INT64_MAX, .shuffle = true, .seed = 1 });
    assert_int_equal(uni__batches_length(batches), 1);
    assert_int_equal(collect(batches, ids, SAMPLES, 1000), SAMPLES); /* all in one batch */
    uni_batches_free(batches);
    free(data);
}

static void bad_columns(void **state)
{
    struct data *data = make_data();
    uni_batches *batches = NULL;
    uni_column short_y = uni_column_view(UNI_I32, SHAPE(50), data->ids), none = { 0 };
    REFUSED(UNI_ESHAPE, "y 0", "(50,)",
            uni_batches_columns(&batches, 2, data->x, 1, &short_y, NULL, NULL, err));
    REFUSED(UNI_ESHAPE, "x 0", "",
            uni_batches_columns(&batches, 1, &none, 0, NULL, NULL, NULL, err));
    uni_column negative = uni_column_view(UNI_I32, SHAPE(-5, 2), data->ids);
    REFUSED(UNI_ESHAPE, "x 0", "-5",
            uni_batches_columns(&batches, 1, &negative, 0, NULL, NULL, NULL, err));
    REFUSED(UNI_EINVAL, "batch_size", "-1",
            uni_batches_columns(&batches, 2, data->x, 0, NULL, NULL,
                                &(uni_columns_options){ .batch_size = -1 }, err));
    REFUSED(UNI_EINVAL, "1 to 8 inputs", "0",
            uni_batches_columns(&batches, 0, NULL, 0, NULL, NULL, NULL, err));
    assert_null(batches);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_sample_once),
                                        cmocka_unit_test(prefetch_changes_nothing),
                                        cmocka_unit_test(remainders_and_repeats),
                                        cmocka_unit_test(bad_columns) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
