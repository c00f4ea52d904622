/*
 * testing.h - shared by the tests of src/nn/model and src/nn/callbacks. For tests only.
 */
#ifndef UNISONO_NN_TESTING_H
#define UNISONO_NN_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/nn.h>

/* Fails the test with the error's message. */
#define OK(expr)                                                                                   \
    do {                                                                                           \
        uni_error err_ = { 0 };                                                                    \
        uni_error *err = &err_;                                                                    \
        if ((expr) < 0)                                                                            \
            fail_msg("%s:%d: %s", __FILE__, __LINE__, err_.message);                               \
    } while (0)

/* The call must fail with this code, and its message must contain both words. */
#define REFUSED(expected, word, other, expr)                                                       \
    do {                                                                                           \
        uni_error err_ = { 0 };                                                                    \
        uni_error *err = &err_;                                                                    \
        int status_ = (expr);                                                                      \
        if (status_ != (expected) || strstr(err_.message, word) == NULL ||                         \
            strstr(err_.message, other) == NULL)                                                   \
            fail_msg("%s:%d: got %d \"%s\", wanted %d with \"%s\" and \"%s\"", __FILE__, __LINE__, \
                     status_, err_.message, (expected), word, other);                              \
    } while (0)

#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (const int64_t[])                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Pseudo-random numbers that are the same everywhere. */
static inline float noise(uint32_t seed, uint32_t i)
{
    uint32_t h = i * 2654435761u ^ seed * 0x9e3779b9u;
    h ^= h >> 15;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
    return (float)h / 2147483648.0f - 1.0f;
}

/* A small two-class problem: 8 numbers, the class is the sign of a sum. */
typedef struct problem {
    int64_t samples;
    float *x, *y;
    uni_column columns[2];
} problem;

static inline problem make_problem(int64_t samples)
{
    problem p = { .samples = samples,
                  .x = calloc((size_t)samples * 8, sizeof(float)),
                  .y = calloc((size_t)samples, sizeof(float)) };
    for (int64_t i = 0; i < samples; i++) {
        float sum = 0;
        for (int64_t j = 0; j < 8; j++) {
            p.x[i * 8 + j] = noise(1, (uint32_t)(i * 8 + j));
            sum += p.x[i * 8 + j] * (j % 2 ? 1 : -1);
        }
        p.y[i] = sum > 0 ? 1 : 0;
    }
    p.columns[0] = uni_column_view(UNI_F32, SHAPE(samples, 8), p.x);
    p.columns[1] = uni_column_view(UNI_F32, SHAPE(samples, 1), p.y);
    return p;
}

static inline void free_problem(problem *p)
{
    free(p->x);
    free(p->y);
}

static inline uni_fit_options options_of(const problem *p)
{
    return (uni_fit_options){ .x = &p->columns[0],
                              .num_x = 1,
                              .y = &p->columns[1],
                              .num_y = 1,
                              .threads = 1,
                              .replicas = 1 };
}

/* 8-16-1, compiled with this optimizer. */
static inline uni_model *classifier(const char *optimizer)
{
    uni_model *model = NULL;
    OK(uni_sequential_new(
        &model, "classifier",
        UNI_LAYERS(uni_layer_input(UNI_F32, SHAPE(8)),
                   uni_layer_dense(16, &(uni_dense_options){ .activation = "relu" }),
                   uni_layer_dense(1, &(uni_dense_options){ .activation = "sigmoid" })),
        err));
    uni_model_set_seed(model, 42);
    OK(uni_model_compile(
        model,
        &(uni_compile_options){ .optimizer_name = optimizer,
                                .loss_name = "binary_crossentropy",
                                .metric_names = (const char *const[]){ "accuracy", NULL } },
        err));
    return model;
}

/* The largest difference between two lists of weights. */
static inline double distance(const uni_value *a, const uni_value *b)
{
    double worst = 0;
    assert_int_equal(uni_list_size(a), uni_list_size(b));
    for (size_t i = 0; i < uni_list_size(a); i++) {
        uni_array *left = uni_value_as_array(uni_list_get(a, i)),
                  *right = uni_value_as_array(uni_list_get(b, i));
        assert_int_equal(uni_array_count(left), uni_array_count(right));
        for (size_t j = 0; j < uni_array_count(left); j++)
            worst = fmax(worst, fabs((double)((float *)uni_array_data(left))[j] -
                                     (double)((float *)uni_array_data(right))[j]));
    }
    return worst;
}

static inline double model_distance(const uni_model *a, const uni_model *b)
{
    uni_value *left = NULL, *right = NULL;
    OK(uni_model_get_weights(&left, a, err));
    OK(uni_model_get_weights(&right, b, err));
    double worst = distance(left, right);
    uni_value_free(left);
    uni_value_free(right);
    return worst;
}

static inline double history_at(const uni_value *history, const char *name, size_t epoch)
{
    return uni_value_as_float(uni_list_get(uni_dict_get(history, name), epoch), NAN);
}

#endif
