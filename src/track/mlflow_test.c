/*
 * mlflow_test.c - what the MLflow sink leaves in a directory, file by file, and what it asks of a
 * server, request by request (fake_http_plugin.c answers). tests/track_readers.py reads both with
 * MLflow itself.
 */
#include "track/testing.h"

#include <dirent.h>

#include "base/clock.h"
#include "track/sink.h"
#include "track/trials.h"

static void text_is(const char *dir, const char *name, const char *expected)
{
    char *text = read_text(dir, name);
    assert_string_equal(text, expected);
    free(text);
}

static void has_line(const char *dir, const char *name, const char *line)
{
    char *text = read_text(dir, name), full[600];
    snprintf(full, sizeof full, "%s\n", line);
    if (!strstr(text, full))
        fail_msg("%s has no line %s:\n%s", name, line, text);
    free(text);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char *path = uni__path_join(dir, name, NULL), *slash = strrchr(path, '/');
    *slash = '\0';
    MUST(uni__make_dirs(path, 0700, err));
    *slash = '/';
    MUST(uni__write_file(path, text, strlen(text), false, err));
    free(path);
}

static int try_start(uni_sink *sink, const char *run_dir, const char *config, uni_error *failure)
{
    uni_value *value = from_json(config);
    uni_start_info info = { .run_dir = run_dir,
                            .name = "digits",
                            .run_id = "digits/run_001",
                            .world_size = 2,
                            .config = value,
                            .function = "train",
                            .started = 1700000000.25 };
    int status = sink->class_->start(sink->self, &info, failure);
    uni_value_free(value);
    return status;
}

static uni_sink *start(const char *run_dir, const uni_sink_mlflow_options *options,
                       const char *config)
{
    uni_sink *sink = NULL;
    MUST(uni_sink_mlflow(&sink, options, err));
    MUST(try_start(sink, run_dir, config, err));
    return sink;
}

static int finish(uni_sink *sink, int code, uni_error *failure)
{
    uni_finish_info info = { .code = code, .message = "", .seconds = 2.5 };
    return sink->class_->finish(sink->self, &info, failure);
}

/* ---- a directory ---- */

/* ROOT/EXPERIMENT of the only experiment. */
static char *only_folder(const char *root)
{
    char *found = NULL;
    DIR *stream = opendir(root);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        if (entry->d_name[0] != '.' && strchr(entry->d_name, '.') == NULL) {
            assert_null(found);
            found = uni__path_join(root, entry->d_name, NULL);
        }
    closedir(stream);
    assert_non_null(found);
    return found;
}

static void files_of_a_run(void **state)
{
    uni_value *tags = from_json("{\"team\":\"a\",\"n\":3}");
    uni_sink *sink = NULL;
    MUST(uni_sink_mlflow(&sink, &(uni_sink_mlflow_options){ .tags = tags }, err));
    uni_value_free(tags); /* the sink has a copy */
    MUST(try_start(sink, *state,
                   "{\"lr\":0.5,\"model\":{\"on\":true,\"off\":false,\"none\":null},"
                   "\"s\":\"text\",\"list\":[1,2],\"bad key!/../x/\":1}",
                   err));
    MUST(try_give(sink, 1,
                  "{\"loss\":0.5,\"eval\":{\"acc\":0.25},\"text\":\"x\",\"_timestamp\":5.5}",
                  "{\"loss\":9}", err));
    MUST(try_give(sink, 2, NULL, "{\"loss\":9}", err));
    sink->class_->tick(sink->self);
    char *root = uni__path_join(*state, "mlruns", NULL), *experiment = only_folder(root);
    char run[600];
    const char *id = uni__sink_mlflow_run(sink);
    assert_int_equal(strlen(id), 32);
    snprintf(run, sizeof run, "%s/%s", experiment, id);
    has_line(experiment, "meta.yaml", "name: \"digits\"");
    has_line(experiment, "meta.yaml", "lifecycle_stage: \"active\"");
    has_line(experiment, "meta.yaml", "creation_time: 1700000000250");
    has_line(experiment, "meta.yaml", "last_update_time: 1700000000250");
    has_line(run, "meta.yaml", "status: 1");
    has_line(run, "meta.yaml", "end_time: null");
    has_line(run, "meta.yaml", "start_time: 1700000000250");
    has_line(run, "meta.yaml", "run_name: \"digits/run_001\"");
    /* MLflow does not open a run without these. */
    static const char *const keys[] = {
        "artifact_uri", "entry_point_name", "experiment_id", "lifecycle_stage", "run_id",
        "run_uuid",     "source_name",      "source_type",   "source_version",  "tags",
        "user_id"
    };
    char *meta = read_text(run, "meta.yaml");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char start[40];
        snprintf(start, sizeof start, "%s%s: ", i > 0 ? "\n" : "", keys[i]);
        if (!strstr(meta, start))
            fail_msg("meta.yaml has no %s", keys[i]);
    }
    free(meta);
    text_is(run, "metrics/loss", "5500 0.5 1\n"); /* readable before the end */
    MUST(try_give(sink, 3, "{\"loss\":{\"val\":2},\"eval\":7,\"_timestamp\":6}", NULL, err));
    MUST(finish(sink, 0, err));
    text_is(run, "metrics/loss", "5500 0.5 1\n");
    text_is(run, "metrics/eval/acc", "5500 0.25 1\n");
    /* These names are taken by a file and by a folder. */
    text_is(run, "metrics/loss_val", "6000 2.0 3\n");
    text_is(run, "metrics/eval_", "6000 7.0 3\n");
    text_is(run, "params/lr", "0.5");
    text_is(run, "params/model/on", "True");
    text_is(run, "params/model/off", "False");
    text_is(run, "params/model/none", "None");
    text_is(run, "params/s", "text");
    text_is(run, "params/list", "[1, 2]");
    text_is(run, "params/bad key_/__/x_", "1");
    text_is(run, "tags/mlflow.runName", "digits/run_001");
    text_is(run, "tags/mlflow.source.name", "train");
    text_is(run, "tags/mlflow.source.type", "LOCAL");
    text_is(run, "tags/unisono.run_dir", *state);
    text_is(run, "tags/team", "a");
    text_is(run, "tags/n", "3");
    has_line(run, "meta.yaml", "status: 3");
    has_line(run, "meta.yaml", "end_time: 1700000002750");
    uni_sink_free(sink);
    free(experiment);
    free(root);
}

static void ends_of_runs(void **state)
{
    static const struct {
        int code;
        const char *line;
    } cases[] = { { 0, "status: 3" },
                  { UNI_EPEER, "status: 4" },
                  { UNI_EPREEMPTED, "status: 5" },
                  { UNI_ECANCELED, "status: 5" } };
    /* A run that saved none has no artifacts; that is not an error. */
    uni_sink *bare = start(*state, &(uni_sink_mlflow_options){ .save_artifact = true }, "{}");
    MUST(finish(bare, 0, err));
    uni_sink_free(bare);
    write_text(*state, "checkpoints/checkpoint_000001/data", "bytes");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni_sink *sink = start(*state, &(uni_sink_mlflow_options){ .save_artifact = i == 1 }, "{}");
        char *root = uni__path_join(*state, "mlruns", NULL), *experiment = only_folder(root);
        char run[600], name[700];
        snprintf(run, sizeof run, "%s/%s", experiment, uni__sink_mlflow_run(sink));
        MUST(finish(sink, cases[i].code, err));
        has_line(run, "meta.yaml", cases[i].line);
        snprintf(name, sizeof name, "%s/artifacts/checkpoints/checkpoint_000001/data", run);
        assert_int_equal(uni__path_exists(name), i == 1);
        uni_sink_free(sink);
        free(experiment); /* the same one each time */
        free(root);
    }
}

static void experiments_by_name_and_id(void **state)
{
    char *root = uni__path_join(*state, "store", NULL), run[600];
    write_text(root, "11/meta.yaml", "experiment_id: '11'\nname: 'quoted'\n");
    write_text(root, "22/meta.yaml", "lifecycle_stage: active\nname: plain\n");
    write_text(root, "33/meta.yaml", "name: \"a \\\"b\\\"\"\nother: 'quote'\n");
    static const char *const names[][2] = { { "quoted", "11" },
                                            { "plain", "22" },
                                            { "a \"b\"", "33" } };
    for (int i = 0; i < 3; i++) {
        uni_sink *sink = start(
            *state,
            &(uni_sink_mlflow_options){ .tracking_uri = root, .experiment_name = names[i][0] },
            "{}");
        snprintf(run, sizeof run, "%s/%s/%s", root, names[i][1], uni__sink_mlflow_run(sink));
        assert_true(uni__path_is_dir(run));
        uni_sink_free(sink);
    }
    uni_sink *sink = start(
        *state, &(uni_sink_mlflow_options){ .tracking_uri = root, .experiment_id = "22" }, "{}");
    snprintf(run, sizeof run, "%s/22/%s", root, uni__sink_mlflow_run(sink));
    assert_true(uni__path_is_dir(run));
    uni_sink_free(sink);
    static const struct {
        const char *id, *part;
        int code;
    } wrong[] = { { "44", "no MLflow experiment with the id 44", UNI_ENOTFOUND },
                  { "../22", "../22", UNI_EINVAL },
                  { ".", "\".\"", UNI_EINVAL } };
    for (size_t i = 0; i < 3; i++) {
        uni_error failure = { 0 };
        MUST(uni_sink_mlflow(
            &sink, &(uni_sink_mlflow_options){ .tracking_uri = root, .experiment_id = wrong[i].id },
            err));
        assert_int_equal(try_start(sink, *state, "{}", &failure), wrong[i].code);
        assert_non_null(strstr(failure.message, wrong[i].part));
        uni_sink_free(sink);
    }
    free(root);
}

static void numbers_that_are_not_finite(void **state)
{
    uni_sink *sink = start(*state, NULL, "{}");
    static const double numbers[] = { NAN, INFINITY, -INFINITY, 1e300 };
    for (int i = 0; i < 4; i++) {
        uni_value *report = uni_value_dict();
        assert_int_equal(uni_dict_take(report, "loss", uni_value_float(numbers[i])), 0);
        assert_int_equal(uni_dict_take(report, "_timestamp", uni_value_float(1)), 0);
        uni_reports reports = { i + 1, 1, 1, (const uni_value *const *)&report };
        MUST(sink->class_->result(sink->self, &reports, err));
        uni_value_free(report);
    }
    MUST(finish(sink, 0, err));
    char *root = uni__path_join(*state, "mlruns", NULL), *experiment = only_folder(root), run[600];
    snprintf(run, sizeof run, "%s/%s", experiment, uni__sink_mlflow_run(sink));
    text_is(run, "metrics/loss", "1000 nan 1\n1000 inf 2\n1000 -inf 3\n1000 1e300 4\n");
    uni_sink_free(sink);
    free(experiment);
    free(root);
}

/* MLflow takes at most 6,000 bytes; a character is not cut in two. */
static void long_params(void **state)
{
    char config[6200], *text = config + sprintf(config, "{\"a\":\"");
    memset(text, 'x', 5999);
    strcpy(text + 5999, "\xc3\xa9yz\"}");
    uni_sink *sink = start(*state, NULL, config);
    char *root = uni__path_join(*state, "mlruns", NULL), *experiment = only_folder(root), run[600];
    snprintf(run, sizeof run, "%s/%s", experiment, uni__sink_mlflow_run(sink));
    char *param = read_text(run, "params/a");
    assert_int_equal(strlen(param), 5999);
    assert_int_equal(strspn(param, "x"), 5999);
    free(param);
    uni_sink_free(sink);
    free(experiment);
    free(root);
}

/* ---- a server ---- */

#define SERVER "http://127.0.0.1:5000/"
#define API "http://127.0.0.1:5000/api/2.0/mlflow/"
#define RUN                                                                                        \
    "200 {\"run\":{\"info\":{\"run_id\":\"r7\",\"artifact_uri\":\"mlflow-artifacts:/4/r7\"}}}\n"

/* Lets the plug-in answer with these lines. */
static void serve(void **state, const char *answers)
{
    char path[600], *here = uni__path_join(*state, "libunisono-mlflow.so", NULL);
    unlink(here);
    assert_int_equal(symlink(getenv("FAKE_HTTP_PLUGIN"), here), 0);
    free(here);
    setenv("UNISONO_PLUGINS", *state, 1);
    write_text(*state, "answers", answers);
    snprintf(path, sizeof path, "%s/answers", (char *)*state);
    setenv("FAKE_HTTP_ANSWERS", path, 1);
    snprintf(path, sizeof path, "%s/requests", (char *)*state);
    setenv("FAKE_HTTP_LOG", path, 1);
    unlink(path);
}

static void requests_of_a_run(void **state)
{
    serve(state, "404 {\"message\":\"no such experiment\"}\n"
                 "200 {\"experiment_id\":\"4\"}\n" RUN "200 {}\n");
    write_text(*state, "checkpoints/c 1/data", "bytes");
    uni_sink *sink = start(*state,
                           &(uni_sink_mlflow_options){ .tracking_uri = SERVER,
                                                       .tracking_token = "secret",
                                                       .experiment_name = "azAZ09 b&c",
                                                       .save_artifact = true },
                           "{\"lr\":0.5,\"q\":\"x\\\"y\"}");
    assert_string_equal(uni__sink_mlflow_run(sink), "r7");
    MUST(try_give(sink, 3, "{\"loss\":0.25,\"acc\":1,\"_timestamp\":2.5}", NULL, err));
    MUST(finish(sink, UNI_ECANCELED, err));
    uni_sink_free(sink);
    char *text = read_text(*state, "requests"), *rest = NULL, tags[] = "\"tags\":[";
    char *line = strtok_r(text, "\n", &rest);
    assert_string_equal(line, "OPEN secret - -");
    static const char *const expected[] = {
        "GET " API "experiments/get-by-name?experiment_name=azAZ09%20b%26c ",
        "POST " API "experiments/create {\"name\":\"azAZ09 b&c\"}",
        "POST " API "runs/create {\"experiment_id\":\"4\",\"user_id\":",
        "POST " API "runs/log-batch {\"run_id\":\"r7\",\"params\":[{\"key\":\"lr\",\"value\":"
        "\"0.5\"},{\"key\":\"q\",\"value\":\"x\\\"y\"}]}",
        "POST " API "runs/log-batch {\"run_id\":\"r7\",\"tags\":[{\"key\":\"mlflow.runName\","
        "\"value\":\"digits/run_001\"}",
        "POST " API "runs/log-batch {\"run_id\":\"r7\",\"metrics\":[{\"key\":\"loss\",\"value\":"
        "0.25,\"timestamp\":2500,\"step\":3},{\"key\":\"acc\",\"value\":1.0,\"timestamp\":2500,"
        "\"step\":3},{\"key\":\"_timestamp\",\"value\":2.5,\"timestamp\":2500,\"step\":3}]}",
        "PUT http://127.0.0.1:5000/api/2.0/mlflow-artifacts/artifacts/4/r7/checkpoints/c%201/data "
        "bytes",
        "POST " API "runs/update {\"run_id\":\"r7\",\"status\":\"KILLED\",\"end_time\":"
        "1700000002750}",
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        line = strtok_r(NULL, "\n", &rest);
        bool whole = i != 2 && strstr(expected[i], tags) == NULL;
        assert_non_null(line);
        if (whole ? strcmp(line, expected[i]) != 0
                  : strncmp(line, expected[i], strlen(expected[i])) != 0)
            fail_msg("request %zu is %s", i, line);
        if (i == 2)
            assert_non_null(strstr(line, ",\"run_name\":\"digits/run_001\",\"start_time\":"
                                         "1700000000250}"));
    }
    assert_null(strtok_r(NULL, "\n", &rest));
    free(text);
}

static size_t count_of(void **state, const char *part)
{
    char *text = read_text(*state, "requests");
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        count++;
    free(text);
    return count;
}

#define EXPERIMENT "200 {\"experiment\":{\"experiment_id\":\"4\"}}\n"

/* What certainly was not received is sent again; the request that makes a run only then. */
static void requests_again(void **state)
{
    uni_sink *sink = NULL;
    uni_sink_mlflow_options options = { .tracking_uri = SERVER };
    uni_error failure = { 0 };
    serve(state, "0\n1\n500 {}\n" EXPERIMENT "0\n429 {}\n" RUN "200 {}\n");
    sink = start(*state, &options, "{}");
    assert_int_equal(count_of(state, "get-by-name"), 4);
    assert_int_equal(count_of(state, "runs/create"), 3);
    uni_sink_free(sink);
    static const struct {
        const char *answers, *part;
        int code;
        size_t creations;
    } cases[] = {
        { EXPERIMENT "1\n", "cannot reach the MLflow server at http://127.0.0.1:5000: it is not",
          UNI_EPEER, 1 },
        { EXPERIMENT "500 {\"message\":\"broken\"}\n", "answered 500", UNI_EPEER, 1 },
        { EXPERIMENT "403 {\"message\":\"no\"}\n", "(check MLFLOW_TRACKING_TOKEN)", UNI_EPERMISSION,
          1 },
        { EXPERIMENT "200 {}\n", "gave no id for the run", UNI_EPEER, 1 },
        { EXPERIMENT "200 no json\n", "the answer of the MLflow server", UNI_EFORMAT, 1 },
        { "200 {}\n", "gave no id for the experiment \"digits\"", UNI_EPEER, 0 },
        { "0\n", "cannot reach", UNI_EPEER, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        serve(state, cases[i].answers);
        MUST(uni_sink_mlflow(&sink, &options, err));
        int code = try_start(sink, *state, "{}", &failure);
        if (code != cases[i].code || !strstr(failure.message, cases[i].part))
            fail_msg("case %zu: %d, %s", i, code, failure.message);
        assert_int_equal(count_of(state, "runs/create"), cases[i].creations);
        uni_sink_free(sink);
    }
}

static void batches_for_the_server(void **state)
{
    serve(state, EXPERIMENT RUN "200 {}\n");
    uni_sink *sink = start(*state, &(uni_sink_mlflow_options){ .tracking_uri = SERVER }, "{}");
    assert_int_equal(count_of(state, "\"metrics\":["), 0);
    for (int i = 1; i <= 999; i++)
        MUST(try_give(sink, i, "{\"loss\":1}", NULL, err));
    assert_int_equal(count_of(state, "\"metrics\":["), 0);
    MUST(try_give(sink, 1000, "{\"loss\":1}", NULL, err));
    assert_int_equal(count_of(state, "\"metrics\":["), 1); /* 1,000 is the server's limit */
    MUST(try_give(sink, 1001, "{\"loss\":1}", NULL, err));
    assert_int_equal(count_of(state, "\"metrics\":["), 1);
    MUST(finish(sink, 0, err));
    assert_int_equal(count_of(state, "\"metrics\":["), 2);
    assert_int_equal(count_of(state, "\"status\":\"FINISHED\""), 1);
    uni_sink_free(sink);
}

/* A request has at most 100 params; each is sent once. */
static void many_params(void **state)
{
    char config[8000] = "{";
    for (int i = 0; i < 250; i++)
        sprintf(config + strlen(config), "%s\"p%03d\":%d", i > 0 ? "," : "", i, i);
    strcat(config, "}");
    serve(state, EXPERIMENT RUN "200 {}\n");
    uni_sink_free(start(*state, &(uni_sink_mlflow_options){ .tracking_uri = SERVER }, config));
    assert_int_equal(count_of(state, "\"params\":["), 3);
    for (int i = 0; i < 250; i++) {
        char key[32];
        snprintf(key, sizeof key, "\"key\":\"p%03d\"", i);
        assert_int_equal(count_of(state, key), 1);
    }
}

/* However often the sink is asked, the server gets at most one request a second until the end. */
static void requests_are_rare(void **state)
{
    serve(state, EXPERIMENT RUN "200 {}\n");
    uint64_t begun = uni__monotonic_ns();
    uni_sink *sink = start(*state, &(uni_sink_mlflow_options){ .tracking_uri = SERVER }, "{}");
    for (int i = 1; i <= 20; i++) {
        MUST(try_give(sink, i, "{\"loss\":1}", NULL, err));
        sink->class_->tick(sink->self);
    }
    uint64_t seconds = (uni__monotonic_ns() - begun) / 1000000000u;
    assert_true(count_of(state, "\"metrics\":[") <= 1 + seconds);
    MUST(finish(sink, 0, err));
    assert_int_equal(count_of(state, "\"step\":20"), 1);
    uni_sink_free(sink);
}

/* An end that cannot be written is an error with a sentence, also when there were no artifacts. */
static void the_end_cannot_be_written(void **state)
{
    uni_error failure = { 0 };
    uni_sink *sink = start(*state, NULL, "{}");
    char *root = uni__path_join(*state, "mlruns", NULL), *experiment = only_folder(root), run[600];
    snprintf(run, sizeof run, "%s/%s", experiment, uni__sink_mlflow_run(sink));
    MUST(uni__remove_tree(run, err));
    assert_true(finish(sink, 0, &failure) < 0);
    assert_non_null(strstr(failure.message, run));
    uni_sink_free(sink);
    free(experiment);
    free(root);
}

/* The outcome is sent even if the last metrics or the artifacts cannot be. */
static void the_end_is_said(void **state)
{
    uni_error failure = { 0 };
    serve(state, EXPERIMENT RUN "200 {}\n403 {}\n200 {}\n");
    uni_sink *sink = start(*state, &(uni_sink_mlflow_options){ .tracking_uri = SERVER }, "{}");
    MUST(try_give(sink, 1, "{\"loss\":1}", NULL, err));
    assert_int_equal(finish(sink, UNI_EPEER, &failure), UNI_EPERMISSION);
    assert_int_equal(count_of(state, "\"status\":\"FAILED\""), 1);
    uni_sink_free(sink);
    serve(
        state, EXPERIMENT
        "200 {\"run\":{\"info\":{\"run_id\":\"r7\",\"artifact_uri\":\"s3://bucket\"}}}\n200 {}\n");
    write_text(*state, "checkpoints/c/data", "bytes");
    sink = start(*state,
                 &(uni_sink_mlflow_options){ .tracking_uri = SERVER, .save_artifact = true }, "{}");
    assert_int_equal(finish(sink, 0, &failure), UNI_EUNSUPPORTED);
    assert_non_null(strstr(failure.message, "keeps artifacts in s3://bucket"));
    assert_int_equal(count_of(state, "\"status\":\"FINISHED\""), 1);
    uni_sink_free(sink);
}

static void environment_names_the_server(void **state)
{
    serve(state, RUN "200 {}\n");
    setenv("MLFLOW_TRACKING_URI", SERVER, 1);
    setenv("MLFLOW_TRACKING_USERNAME", "me", 1);
    setenv("MLFLOW_TRACKING_PASSWORD", "pass", 1);
    setenv("MLFLOW_EXPERIMENT_ID", "17", 1);
    uni_sink *sink = start(*state, NULL, "{}");
    assert_int_equal(count_of(state, "OPEN - me pass"), 1);
    assert_int_equal(count_of(state, "{\"experiment_id\":\"17\""), 1);
    assert_int_equal(count_of(state, "get-by-name"), 0);
    uni_sink_free(sink);
    unsetenv("MLFLOW_TRACKING_URI");
    unsetenv("MLFLOW_TRACKING_USERNAME");
    unsetenv("MLFLOW_TRACKING_PASSWORD");
    unsetenv("MLFLOW_EXPERIMENT_ID");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_of_a_run),
        TEST(ends_of_runs),
        TEST(experiments_by_name_and_id),
        TEST(numbers_that_are_not_finite),
        TEST(long_params),
        TEST(requests_of_a_run),
        TEST(requests_again),
        TEST(batches_for_the_server),
        TEST(many_params),
        TEST(requests_are_rare),
        TEST(the_end_is_said),
        TEST(the_end_cannot_be_written),
        TEST(environment_names_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
