/*
 * write_for_readers.c - a program for tests/track_readers.py: writes the same small run with the
 * given sinks, through the sink thread as a trainer would.
 *
 *     track_write_for_readers DIR REPORTS PAUSE_MS CODE SINK...
 *
 * SINK is one of csv, json, tensorboard and mlflow.
 *
 * 2 ranks. Iteration i of rank r: see add_iteration. Iteration 3 has a NaN loss, 4 an infinite one,
 * 5 a new metric; after iteration 6 the group restarts and reports 5 and 6 again in attempt 2. CODE
 * is the run's outcome. mlflow takes its server from the environment.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/clock.h"
#include "base/file.h"
#include "track/runner.h"

#define CHECK(expr)                                                                                \
    do {                                                                                           \
        uni_error failure_ = { 0 };                                                                \
        uni_error *err = &failure_;                                                                \
        if ((expr) < 0) {                                                                          \
            fprintf(stderr, "%s: %s\n", #expr, failure_.message);                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void add_iteration(uni__results_writer *writer, int attempt, int64_t i)
{
    for (int rank = 0; rank < 2; rank++) {
        uni_value *metrics = uni_value_dict(), *nested = uni_value_dict(), *list = uni_value_list();
        double loss = i == 3 ? NAN : i == 4 ? -INFINITY : 1.0 / (double)i + 100 * rank;
        void *bytes = NULL;
        size_t size = 0;
        int failed = uni_dict_take(nested, "accuracy", uni_value_float(0.5 + 0.01 * (double)i)) |
                     uni_dict_take(nested, "count", uni_value_int(1000 * i));
        for (int k = 0; k < 50; k++)
            failed |= uni_list_take(
                list, uni_value_float(k == 49 && i == 3 ? INFINITY : k * 0.1 * (double)i));
        failed |=
            uni_dict_take(metrics, "loss", uni_value_float(loss)) |
            uni_dict_take(metrics, "eval", nested) | uni_dict_take(metrics, "weights", list) |
            uni_dict_take(metrics, "note", uni_value_string("a \"quoted\", line\nof text \u00e9")) |
            uni_dict_take(metrics, "done", uni_value_bool(i % 2 == 0)) |
            uni_dict_take(metrics, "_timestamp", uni_value_float(1700000000.25 + (double)i)) |
            uni_dict_take(metrics, "_training_iteration", uni_value_int(i));
        if (i >= 5)
            failed |= uni_dict_take(metrics, "late,column", uni_value_int(i));
        if (failed < 0)
            exit(1);
        CHECK(uni__msgpack_write(&bytes, &size, metrics, err));
        CHECK(uni__results_writer_add(writer, attempt, rank, i, bytes, size, err));
        free(bytes);
        uni_value_free(metrics);
    }
    CHECK(uni__results_writer_flush(writer, err));
}

static uni_sink *sink_named(const char *name)
{
    uni_sink *sink = NULL;
    uni_value *tags = NULL;
    if (strcmp(name, "csv") == 0)
        CHECK(uni_sink_csv(&sink, NULL, err));
    else if (strcmp(name, "json") == 0)
        CHECK(uni_sink_json(&sink, &(uni_sink_json_options){ .num_ranks = -1 }, err));
    else if (strcmp(name, "tensorboard") == 0)
        CHECK(uni_sink_tensorboard(&sink, &(uni_sink_tensorboard_options){ .prefix = "ray/train/" },
                                   err));
    else if (strcmp(name, "mlflow") == 0) {
        static uni_value *kept;
        CHECK(uni_json_read(&tags, "{\"team\":\"b/e:st\",\"purpose\":\"tests \\u00e9\"}", 42, err));
        kept = tags;
        CHECK(uni_sink_mlflow(
            &sink, &(uni_sink_mlflow_options){ .tags = kept, .save_artifact = true }, err));
    } else {
        fprintf(stderr, "no sink %s\n", name);
        exit(2);
    }
    return sink;
}

static void warned(void *context, const char *message)
{
    *(int *)context = 1;
}

static void make_checkpoint(const char *dir)
{
    char path[4000];
    snprintf(path, sizeof path, "%s/checkpoints/checkpoint_000001", dir);
    CHECK(uni__make_dirs(path, 0700, err));
    strcat(path, "/model weights.bin");
    CHECK(uni__write_file(path, "hello", 5, false, err));
}

int main(int argc, char **argv)
{
    static const char config_text[] =
        "{\"lr\":0.001,\"epochs\":10,\"model\":{\"layers\":[64,10],\"name\":\"mlp\"},"
        "\"shuffle\":true,\"nothing\":null}";
    if (argc < 6)
        return 2;
    const char *dir = argv[1];
    int reports = atoi(argv[2]), pause_ms = atoi(argv[3]), code = atoi(argv[4]),
        num_sinks = argc - 5, bad = 0;
    uni_sink *sinks[8];
    char path[4000];
    uni_value *config = NULL;
    uni__results_writer *writer = NULL;
    uni__sink_runner *runner = NULL;
    CHECK(uni__make_dirs(dir, 0700, err));
    make_checkpoint(dir);
    CHECK(uni_json_read(&config, config_text, strlen(config_text), err));
    for (int i = 0; i < num_sinks && i < 8; i++)
        sinks[i] = sink_named(argv[5 + i]);
    snprintf(path, sizeof path, "%s/results.jsonl", dir);
    CHECK(uni__results_writer_open(&writer, path, 2, false, err));
    uni_start_info info = { .run_dir = dir,
                            .name = "readers & co",
                            .run_id = "readers/run_001",
                            .world_size = 2,
                            .config = config,
                            .function = "train",
                            .total_iterations = reports };
    CHECK(uni__sink_runner_start(&runner,
                                 &(uni__sink_runner_options){ .writer = writer,
                                                              .info = &info,
                                                              .sinks = sinks,
                                                              .num_sinks = num_sinks,
                                                              .warning = warned,
                                                              .context = &bad },
                                 err));
    for (int i = 1; i <= reports; i++) {
        add_iteration(writer, i > 6 ? 2 : 1, i);
        if (i == 6) {
            CHECK(uni__results_writer_attempt(writer, 2, err));
            add_iteration(writer, 2, 5);
            add_iteration(writer, 2, 6);
        }
        usleep((useconds_t)pause_ms * 1000);
    }
    uni__results_writer_close(writer);
    uni__sink_runner_finish(runner, &(uni_finish_info){ .code = code,
                                                        .message = code < 0 ? "rank 1 died" : "",
                                                        .attempts = 2 });
    for (int i = 0; i < num_sinks; i++)
        uni_sink_free(sinks[i]);
    uni_value_free(config);
    return bad;
}
