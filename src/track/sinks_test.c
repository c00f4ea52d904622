/* sinks_test.c - csv, json, print, callback and TensorBoard's records on their own, and aggregation
 * over ranks. */
#include "track/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "track/sink.h" /* accesses a sink's functions like the runner does */
#include "track/tensorboard_file.h"

static void start(uni_sink *sink, void **state)
{
    uni_start_info info = {
        .run_dir = *state, .name = "n", .run_id = "n/run_001", .world_size = 2
    };
    MUST(sink->class_->start(sink->self, &info, err));
}

static void finish(uni_sink *sink)
{
    MUST(sink->class_->finish(sink->self, &(uni_finish_info){ .message = "" }, err));
    uni_sink_free(sink);
}

static void expect_file(void **state, const char *name, const char *expected)
{
    char *text = read_text(*state, name);
    assert_string_equal(text, expected);
    free(text);
}

static void csv_table(void **state)
{
    uni_sink *sink = NULL;
    MUST(uni_sink_csv(&sink, NULL, err));
    start(sink, state);
    MUST(try_give(sink, 1, "{\"loss\":0.5,\"a\":{\"b\":1,\"c\":{}},\"s\":\"x,y\"}", "{\"loss\":9}",
                  err));
    MUST(try_give(sink, 2, NULL, "{\"loss\":9}", err)); /* rank 0 did not report: no row */
    MUST(try_give(sink, 3, "{\"s\":\"he said \\\"no\\\"\",\"loss\":null}", NULL, err));
    sink->class_->tick(sink->self);
    expect_file(state, "progress.csv", "loss,a.b,s\n0.5,1,\"x,y\"\n,,\"he said \"\"no\"\"\"\n");
    MUST(try_give(sink, 4, "{\"new \\\"one\\\"\":true,\"loss\":1e300,\"l\":[1,null]}", NULL, err));
    finish(sink);
    expect_file(state, "progress.csv",
                "loss,a.b,s,\"new \"\"one\"\"\",l\n0.5,1,\"x,y\",,\n,,\"he said "
                "\"\"no\"\"\",,\n1e300,,,True,\"[1, null]\"\n");
}

static void csv_goes_on_after_a_crash(void **state)
{
    uni_sink *sink = NULL;
    char path[300];
    snprintf(path, sizeof path, "%s/progress.csv", (char *)*state);
    FILE *file = fopen(path, "w");
    fputs("loss,\"odd,name\"\n1,\"line\nbreak\"\n2,\"tor", file);
    fclose(file);
    MUST(uni_sink_csv(&sink, NULL, err));
    start(sink, state);
    MUST(try_give(sink, 3, "{\"odd,name\":\"z\",\"loss\":3}", NULL, err));
    finish(sink);
    expect_file(state, "progress.csv", "loss,\"odd,name\"\n1,\"line\nbreak\"\n3,z\n");
}

static int no_room(void *context, uni__fault_op op, const char *path, size_t *size)
{
    return op == UNI__FAULT_WRITE && strstr(path, "progress") != NULL ? ENOSPC : 0;
}

static void csv_full_disk_is_said(void **state)
{
    uni_sink *sink = NULL;
    uni_error failure = { 0 };
    int status = 0;
    MUST(uni_sink_csv(&sink, NULL, err));
    start(sink, state);
    uni__fault_hook_set(no_room, NULL);
    for (int i = 1; i < 100000 && status == 0; i++) {
        status = try_give(sink, i, "{\"loss\":1}", NULL, &failure);
        sink->class_->tick(sink->self);
    }
    uni__fault_hook_set(NULL, NULL);
    assert_int_equal(status, UNI_EDISKFULL); /* at the latest when 64 KiB wait */
    uni_sink_free(sink);
    expect_file(state, "progress.csv", "");
}

static void json_document(void **state)
{
    uni_sink *sink = NULL;
    MUST(uni_sink_json(
        &sink,
        &(uni_sink_json_options){ .filename = "r.json", .ranks = (int[]){ 1 }, .num_ranks = 1 },
        err));
    start(sink, state);
    char *text = read_text(*state, "r.json");
    uni_value *value = from_json(text);
    assert_int_equal(uni_list_size(value), 0);
    uni_value_free(value);
    free(text);
    MUST(try_give(sink, 1, "{\"loss\":1}", "{\"loss\":2.5,\"n\":[null,true,\"\\n\"]}", err));
    MUST(try_give(sink, 2, "{\"loss\":1}", NULL, err));
    finish(sink);
    expect_file(state, "r.json", "[[{\"loss\": 2.5, \"n\": [null, true, \"\\n\"]}],\n[]]\n");
    /* Another controller continues the file. */
    MUST(uni_sink_json(&sink, &(uni_sink_json_options){ .filename = "r.json", .num_ranks = -1 },
                       err));
    start(sink, state);
    MUST(try_give(sink, 3, "{\"a\":1}", "{\"b\":2}", err));
    finish(sink);
    expect_file(
        state, "r.json",
        "[[{\"loss\": 2.5, \"n\": [null, true, \"\\n\"]}],\n[],\n[{\"a\": 1}, {\"b\": 2}]]\n");
}

/* Reports of all sizes, so that they hit page ends in every way: the file parses after every
 * flush. */
static void json_is_whole_after_every_flush(void **state)
{
    uni_sink *sink = NULL;
    char *report = malloc(12000);
    MUST(uni_sink_json(&sink, NULL, err));
    start(sink, state);
    for (int i = 1; i <= 300; i++) {
        int length = i % 50 == 0 ? 9000 + i : (i * 37) % 1500;
        snprintf(report, 12000, "{\"i\":%d,\"pad\":\"%0*d\"}", i, length + 1, 0);
        MUST(try_give(sink, i, report, NULL, err));
        if (i % 3 != 0)
            continue;
        sink->class_->tick(sink->self);
        char *text = read_text(*state, "results.json");
        uni_value *value = from_json(text);
        assert_int_equal(uni_list_size(value), i);
        assert_int_equal(
            uni_dict_get_int(uni_list_get(uni_list_get(value, (size_t)i - 1), 0), "i", 0), i);
        uni_value_free(value);
        free(text);
    }
    finish(sink);
    free(report);
}

static void bad_file_names_are_refused(void **state)
{
    uni_sink *sink = NULL;
    uni_error failure = { 0 };
    uni_start_info info = { .run_dir = *state };
    MUST(uni_sink_csv(&sink, &(uni_sink_csv_options){ .filename = "../x.csv" }, err));
    assert_int_equal(sink->class_->start(sink->self, &info, &failure), UNI_EINVAL);
    uni_sink_free(sink);
}

static void print_is_indented(void **state)
{
    int ends[2];
    char text[2000] = "";
    uni_sink *sink = NULL;
    assert_int_equal(pipe(ends), 0);
    MUST(uni_sink_print(&sink, ends[1], err));
    MUST(try_give(sink, 1, "{\"epoch\":0,\"l\":[1],\"e\":{}}", "{\"epoch\":0}", err));
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    /* As json.dumps([{...}, {...}], indent=4). */
    assert_string_equal(text, "[\n    {\n        \"epoch\": 0,\n        \"l\": [\n            1\n  "
                              "      ],\n        \"e\": {}\n    },\n"
                              "    {\n        \"epoch\": 0\n    }\n]\n");
    uni_sink_free(sink);
    close(ends[0]);
    close(ends[1]);
}

static void missing_plugin_names_the_package(void **state)
{
    uni_sink *sink = NULL;
    uni_error failure = { 0 };
    uni_start_info info = { .run_dir = *state, .name = "n", .run_id = "r", .world_size = 1 };
    char broken[300];
    snprintf(broken, sizeof broken, "%s/libunisono-mlflow.so", (char *)*state);
    MUST(uni__write_file(broken, "no library", 10, false, err));
    setenv("UNISONO_PLUGINS", *state, 1);
    MUST(uni_sink_mlflow(&sink, &(uni_sink_mlflow_options){ .tracking_uri = "http://127.0.0.1:1" },
                         err));
    assert_int_equal(sink->class_->start(sink->self, &info, &failure), UNI_EUNSUPPORTED);
    assert_non_null(strstr(failure.message, broken));
    uni_sink_free(sink);
    unsetenv("UNISONO_PLUGINS");
    MUST(uni_sink_mlflow(&sink, &(uni_sink_mlflow_options){ .tracking_uri = "databricks://x" },
                         err));
    assert_int_equal(sink->class_->start(sink->self, &info, &failure), UNI_EUNSUPPORTED);
    uni_sink_free(sink);
}

/* ---- aggregation ---- */

static double aggregate(const uni_reports *reports, const char *metric, uni_aggregation how,
                        const char *weight)
{
    double out = -1;
    MUST(uni_reports_aggregate(&out, reports, metric, how, weight, err));
    return out;
}

static void aggregates_over_ranks(void **state)
{
    uni_value *values[4] = { from_json("{\"loss\":1,\"n\":1,\"a\":{\"b\":4},\"t\":\"x\"}"),
                             from_json("{\"loss\":4,\"n\":3}"), NULL, from_json("{\"n\":8}") };
    uni_reports reports = { 1, 1, 4, (const uni_value *const *)values };
    uni_error failure = { 0 };
    double out = 0;
    assert_int_equal(uni_dict_take(values[3], "loss", uni_value_float(NAN)), 0);
    assert_int_equal(uni_dict_take(values[3], "bad", uni_value_float(NAN)), 0);
    assert_true(aggregate(&reports, "loss", UNI_AGGREGATE_MEAN, NULL) == 2.5);
    assert_true(aggregate(&reports, "loss", UNI_AGGREGATE_WEIGHTED_MEAN, "n") == 13.0 / 4);
    assert_true(aggregate(&reports, "loss", UNI_AGGREGATE_MIN, NULL) == 1);
    assert_true(aggregate(&reports, "loss", UNI_AGGREGATE_MAX, NULL) == 4);
    assert_true(aggregate(&reports, "loss", UNI_AGGREGATE_SUM, NULL) == 5);
    assert_true(aggregate(&reports, "a.b", UNI_AGGREGATE_MEAN, NULL) == 4);
    assert_true(
        isnan(aggregate(&reports, "bad", UNI_AGGREGATE_MAX, NULL))); /* diverged, not missing */
    assert_int_equal(uni_reports_aggregate(&out, &reports, "t", UNI_AGGREGATE_MEAN, NULL, &failure),
                     UNI_ENOTFOUND);
    assert_int_equal(uni_reports_aggregate(&out, &reports, "no", UNI_AGGREGATE_SUM, NULL, &failure),
                     UNI_ENOTFOUND);
    assert_non_null(strstr(failure.message, "\"no\""));
    assert_int_equal(
        uni_reports_aggregate(&out, &reports, "loss", UNI_AGGREGATE_WEIGHTED_MEAN, NULL, &failure),
        UNI_EINVAL);
    for (int i = 0; i < 4; i++)
        uni_value_free(values[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(csv_table),
        TEST(csv_goes_on_after_a_crash),
        TEST(csv_full_disk_is_said),
        TEST(json_document),
        TEST(json_is_whole_after_every_flush),
        TEST(bad_file_names_are_refused),
        TEST(print_is_indented),
        TEST(missing_plugin_names_the_package),
        TEST(aggregates_over_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
