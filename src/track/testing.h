/* testing.h - shared by the tests of this module: a temporary directory, reports as msgpack, a
 * writer with a follower. */
#ifndef UNISONO_TRACK_TESTING_H
#define UNISONO_TRACK_TESTING_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/shared.h"
#include "base/file.h"
#include "base/msgpack.h"
#include "track/results.h"
#include "track/sink.h"

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        uni_error must_ = { 0 };                                                                   \
        uni_error *err = &must_;                                                                   \
        if ((expr) < 0)                                                                            \
            fail_msg("%s: %s", #expr, must_.message);                                              \
    } while (0)

static inline int make_dir(void **state)
{
    char path[256];
    *state = mkdtemp(uni__temporary_name(path, sizeof path, "track")) ? strdup(path) : NULL;
    return *state != NULL ? 0 : -1;
}

static inline int drop_dir(void **state)
{
    uni_error err;
    int status = uni__remove_tree(*state, &err);
    free(*state);
    return status;
}

static inline uni_value *from_json(const char *json)
{
    uni_value *value = NULL;
    MUST(uni_json_read(&value, json, strlen(json), err));
    return value;
}

static inline char *read_text(const char *dir, const char *name)
{
    char *path = uni__path_join(dir, name, NULL), *text = NULL;
    size_t size;
    MUST(uni__read_file(&text, &size, path, 1 << 24, err));
    free(path);
    return text;
}

/* {"loss": loss, "_training_iteration": iteration} */
static inline void add_report(uni__results_writer *writer, int attempt, int rank, int64_t iteration,
                              double loss)
{
    uint8_t bytes[128];
    uni__packer packer = { .data = bytes, .capacity = sizeof bytes, .fixed = true };
    uni__pack_map(&packer, 2);
    uni__pack_string(&packer, "loss", 4);
    uni__pack_double(&packer, loss);
    uni__pack_string(&packer, "_training_iteration", 19);
    uni__pack_int(&packer, iteration);
    MUST(uni__results_writer_add(writer, attempt, rank, iteration, packer.data, packer.size, err));
}

/* A report from JSON text. NaN and Infinity are not JSON: use add_report. */
static inline void add_json(uni__results_writer *writer, int attempt, int rank, int64_t iteration,
                            const char *json)
{
    uni_value *value = NULL;
    void *bytes = NULL;
    size_t size = 0;
    MUST(uni_json_read(&value, json, strlen(json), err));
    MUST(uni__msgpack_write(&bytes, &size, value, err));
    MUST(uni__results_writer_add(writer, attempt, rank, iteration, bytes, size, err));
    free(bytes);
    uni_value_free(value);
}

/* Gives a sink the reports of two ranks as JSON text; NULL: that rank did not report. */
static inline int try_give(uni_sink *sink, int64_t iteration, const char *rank_0,
                           const char *rank_1, uni_error *failure)
{
    uni_value *values[2] = { rank_0 ? from_json(rank_0) : NULL, rank_1 ? from_json(rank_1) : NULL };
    uni_reports reports = { iteration, 1, 2, (const uni_value *const *)values };
    int status = sink->class_->result(sink->self, &reports, failure);
    uni_value_free(values[0]);
    uni_value_free(values[1]);
    return status;
}

#endif
