/*
 * spec_test.c - the options of an experiment as a dictionary: every key there and back, nothing
 * that is given is dropped or becomes a default, and what is wrong is refused with its name.
 */
#include "tune/testing.h"

#include "tune/search.h"
#include "tune/spec.h"

static uni_tuner_options *read_spec(uni__tune_spec **spec, uni_value **dict, const char *text)
{
    uni_error err = { 0 };
    *dict = json(text);
    if (uni__tune_spec_read(spec, *dict, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return uni__tune_spec_options(*spec);
}

static void clear(uni__tune_spec *spec, uni_value *dict)
{
    uni__tune_spec_free(spec);
    uni_value_free(dict);
}

static void expect_json(const uni_value *value, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(uni_json_write(&text, &size, value, 0, NULL), 0);
    assert_string_equal(text, expected);
    free(text);
}

static const char every_key[] =
    "{\"function\":\"train\",\"program\":[\"a\",\"b\"],\"num_workers\":3,\"backend\":\"torch\","
    "\"working_directory\":\"/w\",\"space\":{\"lr\":1},\"num_samples\":5,\"metric\":\"loss\","
    "\"mode\":\"min\",\"searcher\":{\"type\":\"tpe\"},\"scheduler\":{\"type\":\"asha\"},"
    "\"stop\":{\"loss\":0.5},\"sinks\":[\"csv\"],\"seed\":7,\"max_concurrent\":2,"
    "\"cpus_per_trial\":1.5,\"memory_per_trial\":1000000.0,\"gpus_per_trial\":1,"
    "\"time_budget\":60.0,\"max_failures\":4,\"fail_fast\":true,\"fresh_workers\":true,"
    "\"grace_seconds\":9.5,\"name\":\"n\",\"storage_path\":\"/s\","
    "\"environment\":[\"A=1\",\"B=\"],"
    "\"checkpoint\":{\"num_to_keep\":2,\"score_attribute\":\"loss\",\"score_order\":\"min\"}}";

static void every_key_there_and_back(void **state)
{
    uni__tune_spec *spec = NULL;
    uni_value *dict = NULL, *again = NULL;
    const uni_tuner_options *read = read_spec(&spec, &dict, every_key);
    assert_string_equal(read->function, "train");
    expect_json(read->program, "[\"a\",\"b\"]");
    assert_int_equal(read->num_workers, 3);
    assert_string_equal(read->backend, "torch");
    assert_string_equal(read->working_directory, "/w");
    expect_json(read->space, "{\"lr\":1}");
    assert_int_equal(read->num_samples, 5);
    assert_string_equal(read->metric, "loss");
    assert_string_equal(read->mode, "min");
    expect_json(read->searcher, "{\"type\":\"tpe\"}");
    expect_json(read->scheduler, "{\"type\":\"asha\"}");
    expect_json(read->stop, "{\"loss\":0.5}");
    expect_json(read->sinks, "[\"csv\"]");
    assert_true(read->has_seed && read->seed == 7);
    assert_int_equal(read->max_concurrent, 2);
    assert_true(read->cpus_per_trial == 1.5 && read->memory_per_trial == 1e6);
    assert_int_equal(read->gpus_per_trial, 1);
    assert_true(read->time_budget == 60 && read->grace_seconds == 9.5);
    assert_int_equal(read->max_failures, 4);
    assert_true(read->fail_fast && read->fresh_workers);
    assert_string_equal(read->name, "n");
    assert_string_equal(read->storage_path, "/s");
    assert_string_equal(read->environment[0], "A=1");
    assert_string_equal(read->environment[1], "B=");
    assert_null(read->environment[2]);
    assert_int_equal(read->policy->num_to_keep, 2);
    assert_string_equal(read->policy->score_attribute, "loss");
    assert_int_equal(read->policy->score_order, UNI_SCORE_MIN);
    assert_int_equal(uni__spec_of(read, &again, NULL), 0);
    assert_true(uni_value_equal(again, dict));
    uni_value_free(again);
    clear(spec, dict);
}

static void what_is_left_out_is_the_default(void **state)
{
    uni__tune_spec *spec = NULL;
    uni_value *dict = NULL, *again = NULL;
    const uni_tuner_options *read = read_spec(&spec, &dict, "{\"name\": null}");
    assert_null(read->name);
    assert_null(read->policy);
    assert_null(read->environment[0]);
    assert_false(read->has_seed);
    assert_int_equal(uni__spec_of(read, &again, NULL), 0);
    expect_json(again, "{\"seed\":0,\"environment\":[]}");
    uni_value_free(again);
    clear(spec, dict);
    /* A 0 is a 0. */
    read = read_spec(&spec, &dict, "{\"grace_seconds\": 0, \"seed\": 0, \"max_failures\": 0}");
    assert_true(read->grace_seconds == UNI_GRACE_NONE);
    assert_true(read->has_seed && read->seed == 0);
    clear(spec, dict);
}

/* The value of a secret is not written. Its name is: resuming takes it from the environment. */
static void secrets_stay_out_of_files(void **state)
{
    uni_value *out = NULL;
    const char *const pairs[] = { "API_TOKEN=abc", "PLAIN=x", "db_password=", NULL };
    assert_int_equal(uni__spec_of(&(uni_tuner_options){ .environment = pairs }, &out, NULL), 0);
    expect_json(uni_dict_get(out, "environment"), "[\"API_TOKEN\",\"PLAIN=x\",\"db_password\"]");
    uni_value_free(out);
    uni_error err = { 0 };
    const uni_checkpoint_policy policies[] = { { .every_steps = 1 }, { .every_seconds = 1 } };
    for (int i = 0; i < 2; i++)
        assert_int_equal(uni__spec_of(&(uni_tuner_options){ .policy = &policies[i] }, &out, &err),
                         UNI_EUNSUPPORTED);
}

static void wrong_values(void **state)
{
    static const struct {
        const char *text, *told;
    } cases[] = {
        { "[1]", "a spec must be a dictionary, not a list" },
        { "3", "a spec must be a dictionary, not a" },
        { "{\"nme\": 1}", "nme" },
        { "{\"name\": 1}", "\"name\" must be a string" },
        { "{\"num_workers\": 1.5}", "\"num_workers\" must be a whole number" },
        { "{\"num_workers\": \"2\"}", "\"num_workers\" must be a whole number" },
        { "{\"num_workers\": true}", "\"num_workers\" must be a whole number" },
        { "{\"num_samples\": 3000000000}", "\"num_samples\" must be a whole number" },
        { "{\"seed\": -1}", "\"seed\" must be a whole number that is not negative" },
        { "{\"seed\": 1.0}", "\"seed\" must be a whole number that is not negative" },
        { "{\"time_budget\": \"1h\"}", "\"time_budget\" must be a number" },
        { "{\"time_budget\": false}", "\"time_budget\" must be a number" },
        { "{\"fail_fast\": 1}", "\"fail_fast\" must be true or false" },
        { "{\"num_samples\": 0}", "\"num_samples\" must not be 0" },
        { "{\"num_workers\": 0}", "\"num_workers\" must not be 0" },
        { "{\"time_budget\": 0}", "\"time_budget\" must not be 0" },
        { "{\"cpus_per_trial\": 0}", "\"cpus_per_trial\" must not be 0" },
        { "{\"checkpoint\": {\"keep\": 1}}", "keep" },
        { "{\"checkpoint\": {\"score_order\": \"up\"}}", "score_order must be \"min\" or \"max\"" },
        { "{\"checkpoint\": {\"score_order\": 1}}", "score_order" },
        { "{\"checkpoint\": {\"num_to_keep\": \"3\"}}", "num_to_keep" },
        { "{\"checkpoint\": {\"num_to_keep\": 1.5}}", "num_to_keep" },
        { "{\"checkpoint\": {\"num_to_keep\": 3000000000}}", "num_to_keep" },
        { "{\"checkpoint\": {\"score_attribute\": 3}}", "score_attribute" },
        { "{\"checkpoint\": 5}", "checkpoint" },
        { "{\"environment\": \"A=1\"}", "\"environment\" must be a list" },
        { "{\"environment\": {\"A\": \"1\"}}", "\"environment\" must be a list" },
        { "{\"environment\": [1]}", "\"environment\" must be a list" },
        { "{\"environment\": [\"=1\"]}", "\"environment\" must be a list" },
        { "{\"environment\": [\"\"]}", "\"environment\" must be a list" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_error err = { 0 };
        uni__tune_spec *spec = NULL;
        uni_value *dict = json(cases[i].text);
        if (uni__tune_spec_read(&spec, dict, &err) >= 0)
            fail_msg("%s was taken", cases[i].text);
        assert_null(spec);
        if (!strstr(err.message, cases[i].told))
            fail_msg("%s: %s", cases[i].text, err.message);
        uni_value_free(dict);
    }
}

static void wrong_experiments(void **state)
{
    static const struct {
        const char *text, *told; /* NULL: it is right */
    } cases[] = {
        { "{\"program\":[\"a\"]}", NULL },
        { "{\"function\":\"f\",\"metric\":\"x\",\"mode\":\"max\"}", NULL },
        { "{\"function\":\"f\",\"num_samples\":-1,\"max_failures\":-1}", NULL },
        { "{\"function\":\"f\",\"max_failures\":0}", NULL },
        { "{}", "an experiment needs either a function or a program" },
        { "{\"function\":\"f\",\"program\":[\"a\"]}", "either a function or a program" },
        { "{\"program\":[]}", "\"program\" must be a list: the program and its arguments" },
        { "{\"program\":\"a\"}", "\"program\" must be a list" },
        { "{\"program\":[\"a\",1]}", "\"program\" must be a list of strings" },
        { "{\"function\":\"f\",\"num_samples\":-2}", "num_samples must be positive" },
        { "{\"function\":\"f\",\"max_failures\":-2}", "max_failures must be 0 or more" },
        { "{\"function\":\"f\",\"max_concurrent\":-1}", "max_concurrent must not be negative" },
        { "{\"function\":\"f\",\"cpus_per_trial\":-0.5}", "cpus_per_trial must not be negative" },
        { "{\"function\":\"f\",\"memory_per_trial\":-1}", "memory_per_trial must not be" },
        { "{\"function\":\"f\",\"gpus_per_trial\":-1}", "gpus_per_trial must not be negative" },
        { "{\"function\":\"f\",\"time_budget\":-1}", "time_budget must not be negative" },
        { "{\"function\":\"f\",\"num_workers\":-1}", "num_workers must not be negative" },
        { "{\"function\":\"f\",\"metric\":\"x\",\"mode\":\"up\"}", "mode must be \"min\" or" },
        { "{\"function\":\"f\",\"metric\":\"x\"}", "the metric \"x\" has no mode" },
        { "{\"function\":\"f\",\"searcher\":\"random\",\"scheduler\":{\"type\":\"asha\"}}", NULL },
        { "{\"function\":\"f\",\"searcher\":{\"type\":\"tpe\"},\"scheduler\":\"asha\"}", NULL },
        { "{\"function\":\"f\",\"searcher\":5}", "\"searcher\" must be a name" },
        { "{\"function\":\"f\",\"searcher\":[\"tpe\"]}", "\"searcher\" must be a name" },
        { "{\"function\":\"f\",\"searcher\":{\"type\":1}}", "\"searcher\" must be a name" },
        { "{\"function\":\"f\",\"scheduler\":true}", "\"scheduler\" must be a name" },
        { "{\"function\":\"f\",\"scheduler\":{\"type\":null}}", "\"scheduler\" must be a name" },
        { "{\"function\":\"f\",\"mode\":\"min\"}", "mode \"min\" of which metric?" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_error err = { 0 };
        uni_value *spec = json(cases[i].text);
        int status = uni__spec_check(spec, &err);
        if ((status < 0) != (cases[i].told != NULL))
            fail_msg("%s: %s", cases[i].text, status < 0 ? err.message : "was taken");
        if (status < 0 && !strstr(err.message, cases[i].told))
            fail_msg("%s: %s", cases[i].text, err.message);
        uni_value_free(spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_there_and_back),
        cmocka_unit_test(what_is_left_out_is_the_default),
        cmocka_unit_test(secrets_stay_out_of_files),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(wrong_experiments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
