/*
 * fuzz_results.c - any line of results.jsonl is read or rejected without a crash. A line that reads
 * has the value that the strict JSON reader gives it, and survives a round trip through the writer.
 * The input is also read as a whole file. See base/fuzz.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/fuzz.h"
#include "base/msgpack.h"
#include "track/line.h"
#include "track/results.h"

#include <unisono/log.h>

/* Writes with our writer, reads with our reader. */
static void check_round_trip(const uni_value *value)
{
    uni__packer packer = { 0 };
    uni__text line = { 0 }, names = { 0 };
    uni_error err = { 0 };
    uni__line_head head;
    uni_value *again = NULL;
    FUZZ_PROMISE(uni__pack_value(&packer, value, &err) == 0);
    uni__cursor cursor = { packer.data, packer.data + packer.size };
    uni__text_add_string(&line, "{\"attempt\":1,\"rank\":0,\"iteration\":1,\"metrics\":");
    FUZZ_PROMISE(uni__cursor_to_json(&cursor, &line, &names, &err) == 0);
    if (names.size > 0)
        uni__text_add_format(&line, ",\"nonfinite\":{%s}", names.data);
    uni__text_add(&line, "}", 1);
    FUZZ_PROMISE(uni__line_head_parse(line.data, line.size, &head) == 0);
    FUZZ_PROMISE(uni__line_metrics(line.data, line.size, &head, &again, &err) == 0);
    FUZZ_PROMISE(uni_value_equal(value, again));
    uni_value_free(again);
    uni__text_free(&line);
    uni__text_free(&names);
    uni__packer_free(&packer);
}

static void check_line(const char *line, size_t size)
{
    uni__line_head head;
    uni_value *value = NULL, *strict = NULL;
    uni_error err = { 0 };
    if (uni__line_head_parse(line, size, &head) < 0)
        return;
    FUZZ_PROMISE(head.metrics < size && line[head.metrics] == '{' && head.rank >= 0);
    if (uni__line_metrics(line, size, &head, &value, &err) < 0) {
        FUZZ_PROMISE(value == NULL && err.code == UNI_EFORMAT && err.message[0]);
        return;
    }
    FUZZ_PROMISE(uni_value_type_of(value) == UNI_TYPE_DICT);
    if (uni_json_read(&strict, line + head.metrics, size - head.metrics - 1, &err) == 0)
        FUZZ_PROMISE(uni_value_equal(value, strict)); /* a line without the nonfinite part */
    check_round_trip(value);
    uni_value_free(value);
    uni_value_free(strict);
}

static int visit(void *context, const uni_reports *reports, uni_error *err)
{
    int64_t *last = context;
    FUZZ_PROMISE(reports->iteration > *last && reports->world_size >= 1);
    *last = reports->iteration;
    return 0;
}

static void check_file(const uint8_t *data, size_t size)
{
    static const char header[] =
        "{\"format\":\"unisono results\",\"version\":1,\"world_size\":2}\n";
    char path[400];
    uni__text whole = { 0 };
    uni_error err = { 0 };
    int64_t last = -1;
    uni__text_add(&whole, header, sizeof header - 1);
    uni__text_add(&whole, (const char *)data, size);
    fuzz_file(path, "results.jsonl", whole.data, whole.size);
    FUZZ_PROMISE(uni__results_read(path, visit, &last, &err) == 0);
    uni__text_free(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uni_log_level_set(UNI_LOG_OFF);
    const char *at = (const char *)data, *end = at + size;
    while (at < end) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((lf != NULL ? lf : end) - at);
        check_line(at, length);
        at += length + 1;
    }
    check_file(data, size);
    return 0;
}

FUZZ_SAMPLE_TEXT("{\"attempt\":1,\"rank\":0,\"iteration\":1,\"metrics\":{\"loss\":"
                 "0.3333333333333333,\"a\":{\"b\":[1,-2.5e-7,true]}}}\n"
                 "{\"attempt\":1,\"rank\":1,\"iteration\":1,\"metrics\":{\"loss\":"
                 "null,\"s\":\"x\\u00e9\\n\\ud83d\\ude00\",\"l\":[null,null]},"
                 "\"nonfinite\":{\"loss\":\"NaN\",\"l.1\":\"-Infinity\"}}\n"
                 "{\"attempt\":2,\"rank\":0,\"iteration\":1,\"metrics\":{}}\n")
