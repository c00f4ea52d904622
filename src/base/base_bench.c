/*
 * base_bench.c - the three hot loops of a report, as JSON lines (docs of ./bench): a double as
 * text, a report packed, a report as a line of results.jsonl; compared with printf and jansson on
 * the same work. `--quick` is the smoke run of the tests.
 *
 * Medians of alternating rounds, in CPU time of the thread: this work never waits, and wall time on
 * a shared machine measures the neighbors. Every result is checked before it is timed.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/msgpack.h"
#include "base/random.h"

#define NUMBERS 4096
#define ROUNDS 15

static double numbers[NUMBERS];
static volatile size_t sink;

static void pack_report(uni__packer *packer, const double *at)
{
    static const char *const keys[] = { "loss", "accuracy", "val_loss", "val_accuracy" };
    packer->size = 0;
    uni__pack_map(packer, 6);
    for (int i = 0; i < 4; i++) {
        uni__pack_string(packer, keys[i], strlen(keys[i]));
        uni__pack_double(packer, at[i]);
    }
    uni__pack_string(packer, "epoch", 5);
    uni__pack_int(packer, 12);
    uni__pack_string(packer, "step", 4);
    uni__pack_int(packer, 123456);
}

static void format_ours(int i)
{
    char out[UNI__NUMBER_SIZE];
    sink += uni__format_double(out, numbers[i]);
}

static void format_printf(int i)
{
    char out[40];
    sink += (size_t)snprintf(out, sizeof out, "%.17g", numbers[i]);
}

static uint8_t ring[256];

static void pack_ours(int i)
{
    uni__packer packer = { .data = ring, .capacity = sizeof ring, .fixed = true };
    pack_report(&packer, numbers + (i & ~3));
    sink += packer.size;
}

static uni__text line;

static void json_ours(int i)
{
    uni__packer packer = { .data = ring, .capacity = sizeof ring, .fixed = true };
    pack_report(&packer, numbers + (i & ~3));
    uni__cursor cursor = { ring, ring + packer.size };
    uni__text_clear(&line);
    if (uni__cursor_to_json(&cursor, &line, NULL, NULL) == 0)
        sink += line.size;
}

static void json_jansson(int i)
{
    const double *at = numbers + (i & ~3);
    json_t *report =
        json_pack("{s:f,s:f,s:f,s:f,s:i,s:i}", "loss", at[0], "accuracy", at[1], "val_loss", at[2],
                  "val_accuracy", at[3], "epoch", 12, "step", 123456);
    char *text = json_dumps(report, JSON_COMPACT);
    sink += strlen(text);
    free(text);
    json_decref(report);
}

static double cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double time_loop(void (*work)(int i), int count)
{
    double start = cpu_ns();
    for (int i = 0; i < count; i++)
        work(i % NUMBERS);
    return (cpu_ns() - start) / count;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *metric, void (*ours)(int), void (*peer)(int), const char *peer_name,
                    int count)
{
    double mine[ROUNDS], theirs[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        mine[round] = time_loop(ours, count);
        theirs[round] = peer ? time_loop(peer, count / 8 + 1) : 0;
    }
    qsort(mine, ROUNDS, sizeof *mine, by_value);
    qsort(theirs, ROUNDS, sizeof *theirs, by_value);
    double median = mine[ROUNDS / 2], other = theirs[ROUNDS / 2];
    printf("{\"bench\":\"base\",\"metric\":\"%s\",\"unit\":\"ns\",\"unisono\":%.1f", metric,
           median);
    if (peer)
        printf(",\"peer\":%.1f,\"peer_name\":\"%s\",\"ratio\":%.2f", other, peer_name,
               other / median);
    printf(",\"spread\":[%.1f,%.1f]}\n", mine[1], mine[ROUNDS - 2]);
}

static int check_results(void)
{
    for (int i = 0; i < NUMBERS; i++) {
        char out[UNI__NUMBER_SIZE + 1];
        out[uni__format_double(out, numbers[i])] = 0;
        if (strtod(out, NULL) != numbers[i])
            return 1;
    }
    json_ours(0);
    json_t *report = json_loads(line.data, 0, NULL);
    int wrong = json_real_value(json_object_get(report, "val_loss")) != numbers[2] ||
                json_integer_value(json_object_get(report, "step")) != 123456;
    json_decref(report);
    return wrong;
}

int main(int argc, char **argv)
{
    int count = argc > 1 && strcmp(argv[1], "--quick") == 0 ? 2000 : 200000;
    /* Losses as float32 models produce them, and full doubles. */
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = i % 2 ? (double)(float)uni__random_unit(1, 0, (uint64_t)i)
                           : exp(uni__random_normal(1, 1, (uint64_t)i));
    if (check_results() != 0) {
        fprintf(stderr, "base_bench: the results are wrong, nothing was timed\n");
        return 1;
    }
    measure("format_double_ns", format_ours, format_printf, "printf %.17g", count);
    measure("pack_report_ns", pack_ours, NULL, NULL, count);
    measure("report_to_json_ns", json_ours, json_jansson, "jansson", count);
    uni__text_free(&line);
    return 0;
}
