/*
 * optimizer_test.c - ten steps of every optimizer against real Keras (tests/reference/optimizers),
 * including slots; the same by spans and threads; schedules; freezing; names, bad numbers, configs.
 */
#include "tensor/shared.h"
#include "nn/shared.h"
#include "nn/layers/reference.h"
#include "nn/optimizer/optimizer.h"
#include "nn/step.h"

#define TOLERANCE 2e-6

struct trial {
    uni_parameters *store;
    uni_gradients *gradients;
    uni_parameter *parameters[3];
};

static struct trial trial_new(const reference *file)
{
    struct trial trial = { 0 };
    assert_int_equal(uni_parameters_new(&trial.store, NULL), 0);
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "v%d", i);
        reference_array start = reference_get(file, "var.%d", i);
        assert_int_equal(uni_parameters_add(&trial.parameters[i], trial.store, name,
                                            UNI_PARAMETER_WEIGHT, start.ndim, start.shape, NULL),
                         0);
    }
    for (int i = 0; i < 3; i++) {
        reference_array start = reference_get(file, "var.%d", i);
        memcpy(uni_parameter_data(trial.parameters[i]), start.data, start.count * sizeof(float));
    }
    assert_int_equal(uni_gradients_new(&trial.gradients, trial.store, NULL), 0);
    return trial;
}

static void trial_free(struct trial *trial)
{
    uni_gradients_free(trial->gradients);
    uni_parameters_free(trial->store);
}

/* Adds factor * gradient of the step. */
static void add_gradients(struct trial *trial, const reference *file, int step, float factor)
{
    char key[32];
    snprintf(key, sizeof key, "grad.%d.%%d", step);
    for (int i = 0; i < 3; i++) {
        reference_array gradient = reference_get(file, key, i);
        float *to = uni_gradients_of(trial->gradients, trial->parameters[i]);
        for (size_t j = 0; j < gradient.count; j++)
            to[j] += factor * ((const float *)gradient.data)[j];
    }
}

static void check_weights(const struct trial *trial, const reference *file, const char *name,
                          int step)
{
    char key[32], what[300];
    snprintf(key, sizeof key, "after.%d.%%d", step);
    snprintf(what, sizeof what, "%s step %d", name, step);
    for (int i = 0; i < 3; i++) {
        reference_array want = reference_get(file, key, i);
        assert_close(what, uni_parameter_data(trial->parameters[i]), &want, TOLERANCE, TOLERANCE);
    }
}

/* slots: ["iteration", "learning_rate", "v0_momentum", ...] */
static void check_slots(const struct trial *trial, const reference *file, const char *name,
                        const uni_optimizer *optimizer)
{
    uni_value *names = reference_json(file, "slots");
    int checked = 0;
    for (size_t n = 0; n < uni_list_size(names); n++) {
        const char *key = uni_value_as_string(uni_list_get(names, n), "");
        if (key[0] != 'v' || strstr(key, "accumulator") == key + 3)
            if (key[0] != 'v' || strstr(name, "accumulate") != NULL)
                continue;
        int parameter = key[1] - '0';
        for (size_t slot = 0; slot < uni__optimizer_num_slots(optimizer); slot++) {
            if (strcmp(uni__optimizer_slot_name(optimizer, slot), key + 3) != 0)
                continue;
            reference_array want = reference_get(file, "slot.%d", (int)n);
            assert_close(name,
                         uni__optimizer_slot(optimizer, slot, NULL) +
                             uni_parameter_info_of(trial->parameters[parameter])->offset,
                         &want, TOLERANCE, TOLERANCE);
            checked++;
        }
    }
    if (strstr(name, "accumulate") == NULL)
        assert_int_equal(checked, 3 * uni__optimizer_num_slots(optimizer));
    uni_value_free(names);
}

enum way { WHOLE, SPANS, THREADS };

static void step(uni_optimizer *optimizer, struct trial *trial, enum way way, float scale)
{
    uni_error err = { 0 };
    if (way == SPANS) { /* in pieces that cut parameters */
        size_t size = 0;
        uni_gradients_data(trial->gradients, &size);
        uni__update update = { .optimizer = optimizer, .gradients = trial->gradients };
        assert_int_equal(uni__update_begin(&update, 1 / (double)scale, &err), 0);
        for (size_t begin = 0; begin < size; begin += 7)
            uni__update_slice(&update, (uni__span){ begin, begin + 7 < size ? begin + 7 : size });
        uni__update_commit(&update);
    } else if (uni_optimizer_apply(optimizer, trial->gradients, scale, way == THREADS ? 2 : 1,
                                   &err) < 0)
        fail_msg("%s", err.message);
}

static uni_optimizer *optimizer_of(const reference *file)
{
    uni_value *config = reference_json(file, "config");
    const uni_value *rate = uni_dict_get(config, "learning_rate");
    if (uni_value_type_of(rate) ==
        UNI_TYPE_DICT) { /* {"class": ..} here, {"class_name": ..} in Keras's files */
        uni_value *object = uni_value_copy(rate);
        assert_int_equal(
            uni_dict_take(object, "class_name", uni_value_copy(uni_dict_get(object, "class"))), 0);
        assert_int_equal(uni_dict_take(config, "learning_rate", object), 0);
    }
    uni_optimizer *optimizer = NULL;
    uni_error err = { 0 };
    if (uni__optimizer_from_config(&optimizer, reference_text(file, "optimizer"), config, &err) < 0)
        fail_msg("%s", err.message);
    uni_value_free(config);
    return optimizer;
}

static void check_case(const reference *file, const char *name, enum way way)
{
    struct trial trial = trial_new(file);
    uni_optimizer *optimizer = optimizer_of(file);
    bool accumulate = strstr(name, "accumulate_2") != NULL;
    for (int i = 0; i < 10; i++) {
        if (!accumulate || i % 2 == 0)
            uni_gradients_zero(trial.gradients);
        add_gradients(&trial, file, i, 4); /* the optimizer scales it back before it clips */
        if (!accumulate || i % 2 == 1)
            step(optimizer, &trial, way, accumulate ? 0.125f : 0.25f);
        check_weights(&trial, file, name, i);
    }
    check_slots(&trial, file, name, optimizer);
    assert_int_equal(uni_optimizer_iterations(optimizer), accumulate ? 5 : 10);
    uni_optimizer_free(optimizer);
    trial_free(&trial);
}

static void check_all_ways(const char *name, reference *file, void *context)
{
    for (enum way way = WHOLE; way <= THREADS; way++)
        check_case(file, name, way);
}

static void test_equal_to_keras(void **state)
{
    assert_int_equal(reference_each("optimizers", check_all_ways, NULL), 22);
}

static void check_schedule(const char *name, reference *file, void *context)
{
    uni_value *object = uni_value_dict(), *again = NULL;
    assert_int_equal(
        uni_dict_take(object, "class_name", uni_value_string(reference_text(file, "schedule"))), 0);
    assert_int_equal(uni_dict_take(object, "config", reference_json(file, "config")), 0);
    uni_schedule *schedule = NULL;
    assert_int_equal(uni__schedule_from_value(&schedule, object, NULL), 0);
    reference_array steps = reference_get(file, "step", 0),
                    values = reference_get(file, "value", 0);
    for (size_t i = 0; i < steps.count; i++) {
        double want = (double)((const float *)values.data)[i];
        double got = uni__schedule_at(schedule, ((const int64_t *)steps.data)[i], NULL);
        if (fabs(got - want) > 1e-7 + 1e-6 * want)
            fail_msg("%s at %lld: %.9g, Keras has %.9g", name,
                     (long long)((const int64_t *)steps.data)[i], got, want);
    }
    assert_int_equal(uni__schedule_to_value(schedule, &again, NULL), 0);
    assert_true(uni_value_equal(uni_dict_get(object, "config"), uni_dict_get(again, "config")));
    uni_schedule_free(schedule);
    uni_value_free(object);
    uni_value_free(again);
}

static void test_schedules_equal_to_keras(void **state)
{
    assert_int_equal(reference_each("schedules", check_schedule, NULL), 6);
}

static double thousandth(void *context, int64_t step, uni_error *err)
{
    return 0.001 * (double)step;
}

static void test_warmup_and_own(void **state)
{
    uni_schedule *warmup = NULL, *inner = NULL, *own_one = NULL;
    assert_int_equal(uni_schedule_exponential(&inner, 0.5, 10, 0.5, false, NULL), 0);
    assert_int_equal(uni_schedule_warmup(&warmup, 5, 0, inner, NULL), 0);
    assert_float_equal(uni__schedule_at(warmup, 0, NULL), 0, 1e-12);
    assert_float_equal(uni__schedule_at(warmup, 4, NULL), 0.4, 1e-12);
    assert_float_equal(uni__schedule_at(warmup, 5, NULL), 0.5, 1e-12);
    assert_float_equal(uni__schedule_at(warmup, 15, NULL), 0.25, 1e-12);
    assert_int_equal(uni_schedule_custom(&own_one, thousandth, NULL, NULL), 0);
    uni_optimizer *sgd = NULL;
    assert_int_equal(
        uni_optimizer_new(&sgd, "sgd", &(uni_optimizer_options){ .schedule = own_one }, NULL), 0);
    uni__optimizer_set_iterations(sgd, 7);
    assert_float_equal(uni_optimizer_learning_rate(sgd, NULL), 0.007, 1e-12);
    uni_error err = { 0 };
    assert_int_equal(uni_optimizer_set_learning_rate(sgd, 1, &err), UNI_ESTATE);
    assert_non_null(strstr(err.message, "schedule"));
    uni_optimizer_free(sgd);
    uni_schedule_free(warmup);
    uni_schedule *bad = NULL;
    assert_int_equal(uni_schedule_exponential(&bad, 0.1, 0, 0.5, false, NULL), UNI_EINVAL);
    assert_int_equal(uni_schedule_piecewise(&bad, 2, (const int64_t[]){ 5, 5 },
                                            (const double[]){ 1, 2, 3 }, &err),
                     UNI_EINVAL);
    assert_non_null(strstr(err.message, "rise"));
    assert_null(bad);
}

static double fails(void *context, int64_t step, uni_error *err)
{
    if (step < 1)
        return context != NULL ? INFINITY : 0.5;
    uni_error_set(err, UNI_EFUNCTION, "no rate for step %lld", (long long)step);
    return NAN;
}

/* A schedule that fails, or does not return a number, fails the step: weights and iterations
 * stay. */
static void test_a_schedule_that_fails(void **state)
{
    for (int infinite = 0; infinite < 2; infinite++) {
        reference file = reference_open("optimizers/adam.safetensors");
        struct trial trial = trial_new(&file);
        uni_schedule *schedule = NULL;
        uni_optimizer *sgd = NULL;
        uni_error err = { 0 };
        assert_int_equal(uni_schedule_custom(&schedule, fails, infinite ? &err : NULL, NULL), 0);
        assert_int_equal(uni_optimizer_new(&sgd, "sgd", NULL, NULL), 0);
        uni_optimizer_set_schedule(sgd, schedule);
        uni__optimizer_set_iterations(sgd, infinite ? 0 : 1);
        add_gradients(&trial, &file, 0, 1);
        uni__descent descent;
        assert_false(uni__optimizer_descent(sgd, 1, &descent)); /* it would not see the failure */
        assert_int_equal(uni_optimizer_apply(sgd, trial.gradients, 1, 1, &err),
                         infinite ? UNI_EINVAL : UNI_EFUNCTION);
        assert_string_equal(err.message, infinite ? "the learning-rate function returned inf for "
                                                    "step 0; a rate is a finite number"
                                                  : "no rate for step 1");
        assert_int_equal(uni_optimizer_iterations(sgd), infinite ? 0 : 1);
        reference_array start = reference_get(&file, "var.0", 0);
        assert_close("unchanged", uni_parameter_data(trial.parameters[0]), &start, 0, 0);
        uni_optimizer_free(sgd);
        trial_free(&trial);
        reference_close(&file);
    }
}

/* A frozen parameter does not change, and its slots exist when it is unfrozen later. A store that
 * grew keeps its state. */
static void test_frozen_and_grown(void **state)
{
    reference file = reference_open("optimizers/adam.safetensors");
    struct trial trial = trial_new(&file);
    uni_optimizer *adam = NULL;
    assert_int_equal(uni_optimizer_new(&adam, "Adam", NULL, NULL), 0);
    uni_parameter_freeze(trial.parameters[1], true);
    add_gradients(&trial, &file, 0, 1);
    step(adam, &trial, WHOLE, 1);
    reference_array start = reference_get(&file, "var.1", 0),
                    after = reference_get(&file, "after.0.0", 0);
    assert_close("frozen", uni_parameter_data(trial.parameters[1]), &start, 0, 0);
    assert_close("not frozen", uni_parameter_data(trial.parameters[0]), &after, TOLERANCE,
                 TOLERANCE);
    float momentum = uni__optimizer_slot(adam, 0, NULL)[1];
    assert_true(momentum != 0);
    uni_parameter *more = NULL;
    assert_int_equal(uni_parameters_add(&more, trial.store, "more", UNI_PARAMETER_WEIGHT, 1,
                                        (const int64_t[]){ 100 }, NULL),
                     0);
    assert_int_equal(uni__optimizer_build(adam, trial.store, NULL), 0);
    assert_true(uni__optimizer_slot(adam, 0, NULL)[1] == momentum);
    struct trial other = trial_new(&file);
    uni_error err = { 0 };
    assert_int_equal(uni_optimizer_apply(adam, other.gradients, 1, 1, &err), UNI_ESTATE);
    assert_non_null(strstr(err.message, "another model"));
    trial_free(&other);
    uni_optimizer_free(adam);
    trial_free(&trial);
    reference_close(&file);
}

static void expect_error(const char *name, const uni_optimizer_options *options, int code,
                         const char *part)
{
    uni_error err = { 0 };
    uni_optimizer *optimizer = (uni_optimizer *)&err;
    assert_int_equal(uni_optimizer_new(&optimizer, name, options, &err), code);
    assert_null(optimizer);
    if (strstr(err.message, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void test_names_and_numbers(void **state)
{
    uni_optimizer *optimizer = NULL;
    assert_int_equal(uni_optimizer_new(&optimizer, "RMSprop", NULL, NULL), 0);
    assert_float_equal(uni_optimizer_learning_rate(optimizer, NULL), 0.001, 0);
    assert_int_equal(uni_optimizer_set_learning_rate(optimizer, 0.5, NULL), 0);
    assert_float_equal(uni_optimizer_learning_rate(optimizer, NULL), 0.5, 0);
    uni_optimizer_free(optimizer);
    expect_error("adm", NULL, UNI_ENOTFOUND, "\"adam\"");
    expect_error("adamm", NULL, UNI_ENOTFOUND, "\"adam\"");
    expect_error("lion", NULL, UNI_ENOTFOUND, "there are sgd, adam, adamw, rmsprop, adagrad");
    expect_error("sgd", &(uni_optimizer_options){ .learning_rate = -1 }, UNI_EINVAL,
                 "learning_rate");
    expect_error("sgd", &(uni_optimizer_options){ .learning_rate = NAN }, UNI_EINVAL,
                 "learning_rate");
    expect_error("adam", &(uni_optimizer_options){ .beta_1 = 1 }, UNI_EINVAL, "beta_1");
    expect_error("adam", &(uni_optimizer_options){ .momentum = 0.5 }, UNI_EINVAL, "no momentum");
    expect_error("sgd", &(uni_optimizer_options){ .epsilon = 0.5 }, UNI_EINVAL, "no epsilon");
    expect_error("adagrad", &(uni_optimizer_options){ .centered = true }, UNI_EINVAL,
                 "no centered");
    expect_error("sgd", &(uni_optimizer_options){ .clip_norm = 1, .clip_value = 1 }, UNI_EINVAL,
                 "only one of");
    uni_schedule *schedule = NULL; /* ownership passes even on failure (the sanitizer would tell) */
    assert_int_equal(uni_schedule_exponential(&schedule, 1, 1, 1, false, NULL), 0);
    expect_error("unknown", &(uni_optimizer_options){ .schedule = schedule }, UNI_ENOTFOUND,
                 "unknown");
}

/* ---- configs ---- */

static void expect_same(const char *text)
{
    uni_value *value = NULL, *again = NULL;
    uni_optimizer *optimizer = NULL;
    uni_error err = { 0 };
    assert_int_equal(uni_json_read(&value, text, strlen(text), NULL), 0);
    if (uni__optimizer_from_value(&optimizer, value, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    assert_int_equal(uni__optimizer_to_value(optimizer, &again, NULL), 0);
    if (!uni_value_equal(value, again)) {
        char *got = NULL;
        assert_int_equal(uni_json_write(&got, NULL, again, 0, NULL), 0);
        fail_msg("%s became %s", text, got);
    }
    uni_optimizer_free(optimizer);
    uni_value_free(value);
    uni_value_free(again);
}

/* As Keras 3.15 writes them. */
static void test_configs(void **state)
{
#define OBJECT(class_name, config)                                                                 \
    "{\"module\": \"keras.optimizers\", \"class_name\": \"" class_name                             \
    "\", \"registered_name\": null, \"config\": {\"use_ema\": false, "                             \
    "\"ema_momentum\": 0.99, \"ema_overwrite_frequency\": null, \"loss_scale_factor\": null, "     \
    "\"gradient_accumulation_steps\": null, " config "}}"
    expect_same(OBJECT("SGD", "\"name\": \"sgd_1\", \"learning_rate\": 0.25, \"weight_decay\": "
                              "null, \"clipnorm\": 1.0, \"global_clipnorm\": null, "
                              "\"clipvalue\": null, \"momentum\": 0.5, \"nesterov\": true"));
    expect_same(OBJECT("AdamW", "\"name\": \"a\", \"learning_rate\": 0.0, \"weight_decay\": null, "
                                "\"clipnorm\": null, \"global_clipnorm\": 2.0, "
                                "\"clipvalue\": null, \"beta_1\": 0.0, \"beta_2\": 0.5, "
                                "\"epsilon\": 0.0001, \"amsgrad\": true"));
    expect_same(OBJECT(
        "RMSprop", "\"name\": \"r\", \"learning_rate\": {\"module\": "
                   "\"keras.optimizers.schedules\", \"class_name\": \"CosineDecay\", \"config\": "
                   "{\"initial_learning_rate\": 0.5, \"decay_steps\": 4, \"alpha\": 0.0, \"name\": "
                   "\"CosineDecay\", \"warmup_target\": null, "
                   "\"warmup_steps\": 0}, \"registered_name\": null}, \"weight_decay\": 0.5, "
                   "\"clipnorm\": null, \"global_clipnorm\": null, "
                   "\"clipvalue\": 0.5, \"rho\": 0.5, \"momentum\": 0.0, \"epsilon\": 0.5, "
                   "\"centered\": true"));
    expect_same(OBJECT(
        "Adagrad", "\"name\": \"g\", \"learning_rate\": 0.5, \"weight_decay\": null, \"clipnorm\": "
                   "null, \"global_clipnorm\": null, "
                   "\"clipvalue\": null, \"initial_accumulator_value\": 0.0, \"epsilon\": 0.5"));
    static const char *const refused[] = {
        "{\"class_name\": \"Adam\", \"config\": {\"use_ema\": true}}",
        "{\"class_name\": \"Adam\", \"config\": {\"learning_rate\": \"fast\"}}",
        "{\"class_name\": \"Adam\", \"config\": {\"beta_1\": [1]}}",
        ("{\"class_name\": \"Adam\", \"config\": {\"learning_rate\": {\"class_name\": \"Evil\", "
         "\"config\": {}}}}"),
        "{\"config\": {}}",
        "3"
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        uni_value *value = NULL;
        uni_optimizer *optimizer = NULL;
        uni_error err = { 0 };
        assert_int_equal(uni_json_read(&value, refused[i], strlen(refused[i]), NULL), 0);
        if (uni__optimizer_from_value(&optimizer, value, &err) >= 0 || err.message[0] == '\0')
            fail_msg("%s was taken", refused[i]);
        uni_value_free(value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_to_keras),
        cmocka_unit_test(test_schedules_equal_to_keras),
        cmocka_unit_test(test_warmup_and_own),
        cmocka_unit_test(test_frozen_and_grown),
        cmocka_unit_test(test_names_and_numbers),
        cmocka_unit_test(test_configs),
        cmocka_unit_test(test_a_schedule_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
