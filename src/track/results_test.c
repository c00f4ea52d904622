/* results_test.c - results.jsonl: what is written is read back, and the rules by which ranks are
 * joined. */
#include "track/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "base/shared.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/locale_fixture.h"

typedef struct rig {
    char path[300];
    uni__results_writer *writer;
    uni__follower *follower;
    const uni_reports *reports;
} rig;

static rig rig_new(void **state, int world_size)
{
    rig r = { 0 };
    snprintf(r.path, sizeof r.path, "%s/results.jsonl", (char *)*state);
    MUST(uni__results_writer_open(&r.writer, r.path, world_size, false, err));
    MUST(uni__follower_new(&r.follower, r.writer, err));
    return r;
}

static void rig_free(rig *r)
{
    uni__follower_free(r->follower);
    uni__results_writer_close(r->writer);
}

static int next_within(rig *r, int timeout_ms)
{
    uni_error err = { 0 };
    return uni__follower_next(r->follower, timeout_ms, &r->reports, &err);
}

/* Expects this iteration next, with loss losses[r] for rank r (NAN: that rank is missing). */
static void expect(rig *r, int attempt, int64_t iteration, int world_size, const double *losses)
{
    assert_int_equal(next_within(r, 0), 1);
    assert_int_equal(r->reports->iteration, iteration);
    assert_int_equal(r->reports->attempt, attempt);
    assert_int_equal(r->reports->world_size, world_size);
    for (int rank = 0; rank < world_size; rank++) {
        const uni_value *metrics = r->reports->by_rank[rank];
        if (isnan(losses[rank]))
            assert_null(metrics);
        else
            assert_true(uni_dict_get_float(metrics, "loss", NAN) == losses[rank]);
    }
}

static void joins_in_order(void **state)
{
    rig r = rig_new(state, 2);
    add_report(r.writer, 1, 0, 1, 0.5);
    add_report(r.writer, 1, 0, 2, 0.25);
    add_report(r.writer, 1, 1, 1, 1.5);
    assert_int_equal(next_within(&r, 0), 0); /* nothing was flushed */
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 1, 2, (double[]){ 0.5, 1.5 });
    assert_int_equal(next_within(&r, 0), 0); /* rank 1 is waited for */
    add_report(r.writer, 1, 1, 2, 1.25);
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 2, 2, (double[]){ 0.25, 1.25 });
    assert_int_equal(next_within(&r, 0), 0);
    rig_free(&r);
}

static void values_survive(void **state)
{
    rig r = rig_new(state, 1);
    const char *json =
        "{\"text\":\"a \\\"quoted\\\" \\\\ line\\nbreak \\u0001 \\u00e9 "
        "\\ud83d\\ude00\",\"empty\":{},\"none\":null,"
        "\"yes\":true,\"no\":false,\"list\":[1,2.5,[],\"x\"],\"nested\":{\"a\":{\"b\":-7}},\"\":0,"
        "\"big\":9223372036854775807,\"small\":-9223372036854775807,\"tiny\":5e-324,"
        "\"huge\":1.7976931348623157e308,\"third\":0.3333333333333333,\"minus\":-0.0}";
    add_json(r.writer, 1, 0, 1, json);
    MUST(uni__results_writer_flush(r.writer, err));
    uni_value *expected = NULL;
    MUST(uni_json_read(&expected, json, strlen(json), err));
    assert_int_equal(next_within(&r, 0), 1);
    assert_true(uni_value_equal(r.reports->by_rank[0], expected));
    assert_true(signbit(uni_dict_get_float(r.reports->by_rank[0], "minus", 1)));
    uni_value_free(expected);
    rig_free(&r);
}

/* Doubles of all magnitudes come back bit by bit: compares the fast conversion with the original
 * bits. */
static void doubles_survive(void **state)
{
    rig r = rig_new(state, 1);
    const int count = 200000;
    uint64_t seed = 88172645463325252u;
    double *sent = malloc(sizeof *sent * (size_t)count);
    for (int i = 0; i < count; i++) {
        do {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            uint64_t bits = seed;
            if (i % 2 == 0) /* half of them near 1, like losses */
                bits = (bits & 0x801fffffffffffffu) | 0x3f00000000000000u |
                       (bits & 0x00e0000000000000u);
            memcpy(&sent[i], &bits, sizeof bits);
        } while (!isfinite(sent[i]));
        add_report(r.writer, 1, 0, i + 1, sent[i]);
    }
    MUST(uni__results_writer_flush(r.writer, err));
    for (int i = 0; i < count; i++) {
        assert_int_equal(next_within(&r, 0), 1);
        double got = uni_dict_get_float(r.reports->by_rank[0], "loss", NAN);
        if (memcmp(&got, &sent[i], sizeof got) != 0)
            fail_msg("%a came back as %a", sent[i], got);
    }
    free(sent);
    rig_free(&r);
}

static void nonfinite_survives(void **state)
{
    rig r = rig_new(state, 1);
    uni_value *value = uni_value_dict(), *nested = uni_value_dict(), *list = uni_value_list();
    assert_int_equal(uni_list_take(list, uni_value_null()) |
                         uni_list_take(list, uni_value_float(INFINITY)) |
                         uni_list_take(list, uni_value_float(1.5)) |
                         uni_dict_take(nested, "b.c", uni_value_float(-INFINITY)) |
                         uni_dict_take(nested, "d", uni_value_null()) |
                         uni_dict_take(value, "before", uni_value_null()) |
                         uni_dict_take(value, "loss", uni_value_float(NAN)) |
                         uni_dict_take(value, "a", nested) | uni_dict_take(value, "l", list) |
                         uni_dict_take(value, "text", uni_value_string(",\"nonfinite\":{")),
                     0);
    void *bytes = NULL;
    size_t size = 0;
    MUST(uni__msgpack_write(&bytes, &size, value, err));
    MUST(uni__results_writer_add(r.writer, 1, 0, 1, bytes, size, err));
    MUST(uni__results_writer_flush(r.writer, err));
    assert_int_equal(next_within(&r, 0), 1);
    assert_true(uni_value_equal(r.reports->by_rank[0], value)); /* NaN equals NaN there */
    free(bytes);
    uni_value_free(value);
    rig_free(&r);
}

static void rank_that_ended_is_not_waited_for(void **state)
{
    rig r = rig_new(state, 3);
    for (int rank = 0; rank < 3; rank++)
        add_report(r.writer, 1, rank, 1, rank);
    MUST(uni__results_writer_rank_ended(r.writer, 2, err));
    for (int64_t iteration = 2; iteration <= 3; iteration++)
        for (int rank = 0; rank < 2; rank++)
            add_report(r.writer, 1, rank, iteration, rank);
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 1, 3, (double[]){ 0, 1, 2 });
    expect(&r, 1, 2, 3, (double[]){ 0, 1, NAN });
    expect(&r, 1, 3, 3, (double[]){ 0, 1, NAN });
    char sentence[300];
    assert_int_equal(uni__follower_uneven(r.follower, sentence, sizeof sentence), 1);
    assert_non_null(strstr(sentence, "rank 2 1 times"));
    assert_string_equal(uni__follower_missing_warning(r.follower), "");
    rig_free(&r);
}

/* A worker that left its group and joined again. */
static void rank_that_is_back_is_waited_for(void **state)
{
    rig r = rig_new(state, 2);
    add_report(r.writer, 1, 0, 1, 1);
    MUST(uni__results_writer_rank_ended(r.writer, 1, err));
    add_report(r.writer, 1, 0, 2, 2);
    add_report(r.writer, 1, 1, 3, 30);
    add_report(r.writer, 1, 0, 3, 3);
    add_report(r.writer, 1, 0, 4, 4);
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 1, 2, (double[]){ 1, NAN });
    expect(&r, 1, 2, 2, (double[]){ 2, NAN });
    expect(&r, 1, 3, 2, (double[]){ 3, 30 });
    assert_int_equal(next_within(&r, 0), 0);
    add_report(r.writer, 1, 1, 4, 40);
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 4, 2, (double[]){ 4, 40 });
    rig_free(&r);
}

/* The mark keeps its position between lines: what a rank reported before it ended is joined, even
 * if the follower reads both at once. */
static void end_mark_keeps_its_place(void **state)
{
    rig r = rig_new(state, 2);
    add_report(r.writer, 1, 0, 1, 1);
    MUST(uni__results_writer_rank_ended(r.writer, 0, err));
    add_report(r.writer, 1, 1, 1, 2);
    add_report(r.writer, 1, 1, 2, 3);
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 1, 2, (double[]){ 1, 2 });
    expect(&r, 1, 2, 2, (double[]){ NAN, 3 });
    rig_free(&r);
}

static void new_attempt_gives_up_old_joins(void **state)
{
    rig r = rig_new(state, 2);
    add_report(r.writer, 1, 0, 1, 1);
    add_report(r.writer, 1, 1, 1, 2);
    add_report(r.writer, 1, 0, 2, 3); /* rank 1 dies before it reports this */
    MUST(uni__results_writer_rank_ended(r.writer, 1, err));
    MUST(uni__results_writer_attempt(r.writer, 2, err));
    add_report(r.writer, 2, 1, 2, 6); /* continues from the checkpoint of iteration 1 */
    add_report(r.writer, 2, 0, 2, 5);
    add_report(r.writer, 1, 0, 3, 99); /* late, of the old attempt */
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 1, 2, (double[]){ 1, 2 });
    /* Rank 1 ended before the new attempt began: the old join was complete without it. */
    expect(&r, 1, 2, 2, (double[]){ 3, NAN });
    expect(&r, 2, 2, 2, (double[]){ 5, 6 });
    assert_int_equal(next_within(&r, 0), 0);
    add_report(r.writer, 2, 0, 3, 7);
    MUST(uni__results_writer_attempt(r.writer, 3, err));
    add_report(r.writer, 3, 0, 3, 8);
    add_report(r.writer, 3, 1, 3, 9);
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 3, 3, 2, (double[]){ 8, 9 });
    rig_free(&r);
}

static void silent_rank_is_named_once(void **state)
{
    rig r = rig_new(state, 3);
    uni__follower_limits_set(r.follower, &(uni__follower_limits){ .patience_ms = 30 });
    add_report(r.writer, 1, 0, 1, 1);
    MUST(uni__results_writer_flush(r.writer, err));
    assert_int_equal(next_within(&r, 0), 0);
    assert_int_equal(next_within(&r, 5000), 1); /* after 30 ms */
    assert_null(r.reports->by_rank[1]);
    assert_non_null(strstr(uni__follower_missing_warning(r.follower), "ranks 1, 2 reported less"));
    uni__follower_missing_warning(r.follower)[0] = 0;
    add_report(r.writer, 1, 0, 2, 2);
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 2, 3, (double[]){ 2, NAN, NAN }); /* at once now */
    assert_string_equal(uni__follower_missing_warning(r.follower), "");
    add_report(r.writer, 1, 1, 1, 7); /* late: already handed out */
    add_report(r.writer, 1, 1, 2, 7);
    add_report(r.writer, 1, 1, 3, 7); /* caught up: awaited again */
    MUST(uni__results_writer_flush(r.writer, err));
    assert_int_equal(next_within(&r, 0), 0);
    add_report(r.writer, 1, 0, 3, 3);
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 3, 3, (double[]){ 3, 7, NAN });
    rig_free(&r);
}

static void full_window_gives_without_the_slow_rank(void **state)
{
    rig r = rig_new(state, 2);
    uni__follower_limits_set(
        r.follower, &(uni__follower_limits){ .patience_ms = -1, .window = 8, .window_ms = 20 });
    add_report(r.writer, 1, 1, 1, 50);
    for (int i = 1; i <= 8; i++)
        add_report(r.writer, 1, 0, i, i);
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 1, 2, (double[]){ 1, 50 });
    assert_int_equal(next_within(&r, 60), 0); /* 7 wait: not full */
    add_report(r.writer, 1, 0, 9, 9);
    MUST(uni__results_writer_flush(r.writer, err));
    assert_int_equal(next_within(&r, 5000), 1);
    assert_int_equal(r.reports->iteration, 2);
    assert_null(r.reports->by_rank[1]);
    assert_non_null(
        strstr(uni__follower_missing_warning(r.follower), "rank 1 reported less than iteration 2"));
    for (int i = 3; i <= 9; i++)
        expect(&r, 1, i, 2, (double[]){ i, NAN });
    rig_free(&r);
}

/* Ranks far apart in the file (one ring is drained after the other) are still joined completely,
 * read back by offset. */
static void far_apart_ranks_are_joined(void **state)
{
    rig r = rig_new(state, 2);
    const int count = 20000;
    for (int rank = 0; rank < 2; rank++)
        for (int i = 1; i <= count; i++)
            add_report(r.writer, 1, rank, i, rank * 1000000 + i);
    MUST(uni__results_writer_flush(r.writer, err));
    for (int i = 1; i <= count; i++)
        expect(&r, 1, i, 2, (double[]){ i, 1000000 + i });
    /* Memory stays bounded: more than `most` waiting reports of one rank end the wait. */
    uni__follower_limits_set(
        r.follower, &(uni__follower_limits){ .patience_ms = -1, .window = -1, .most = 100 });
    for (int i = count + 1; i <= count + 150; i++)
        add_report(r.writer, 1, 0, i, i);
    MUST(uni__results_writer_flush(r.writer, err));
    assert_int_equal(next_within(&r, 0), 1);
    assert_int_equal(r.reports->iteration, count + 1);
    assert_null(r.reports->by_rank[1]);
    rig_free(&r);
}

static void close_gives_the_rest_and_ends(void **state)
{
    rig r = rig_new(state, 2);
    add_report(r.writer, 1, 0, 1, 1);
    add_report(r.writer, 1, 0, 2, 2);
    add_report(r.writer, 1, 1, 2, 5); /* a rank that skipped one */
    uni__results_writer_close(r.writer);
    expect(&r, 1, 1, 2, (double[]){ 1, NAN });
    expect(&r, 1, 2, 2, (double[]){ 2, 5 });
    assert_int_equal(next_within(&r, -1), UNI_EEND);
    assert_int_equal(next_within(&r, -1), UNI_EEND);
    uni__follower_free(r.follower);
}

static void follower_starts_where_the_file_is(void **state)
{
    rig r = rig_new(state, 1);
    uni__follower *late = NULL;
    add_report(r.writer, 1, 0, 1, 1);
    MUST(uni__results_writer_flush(r.writer, err));
    MUST(uni__follower_new(&late, r.writer, err));
    add_report(r.writer, 1, 0, 2, 2);
    MUST(uni__results_writer_flush(r.writer, err));
    const uni_reports *reports = NULL;
    MUST(uni__follower_next(late, 0, &reports, err));
    assert_int_equal(reports->iteration, 2);
    expect(&r, 1, 1, 1, (double[]){ 1 });
    uni__follower_free(late);
    rig_free(&r);
}

static void *wake_later(void *follower)
{
    usleep(30000);
    uni__follower_wake(follower);
    return NULL;
}

static void wake_ends_a_wait(void **state)
{
    rig r = rig_new(state, 1);
    pthread_t thread;
    uint64_t start = uni__monotonic_ns();
    assert_int_equal(pthread_create(&thread, NULL, wake_later, r.follower), 0);
    assert_int_equal(next_within(&r, 60000), 0);
    assert_true(uni__monotonic_ns() - start < 10000000000u);
    pthread_join(thread, NULL);
    rig_free(&r);
}

/* A follower that has nothing to give sleeps: it must not take a core from the training. */
static void waiting_costs_no_time(void **state)
{
    rig r = rig_new(state, 2);
    struct timespec before, after;
    add_report(r.writer, 1, 0, 1, 1);
    MUST(uni__results_writer_flush(r.writer, err));
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before), 0);
    assert_int_equal(next_within(&r, 400), 0);
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after), 0);
    int64_t used = (after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec;
    assert_true(used < 100000000);
    rig_free(&r);
}

/* ---- the file ---- */

static void append_raw(const char *path, const char *text)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

typedef struct seen {
    int count;
    int64_t iteration[20];
    int attempt[20];
    double loss[20][2];
} seen;

static int remember(void *context, const uni_reports *reports, uni_error *err)
{
    seen *s = context;
    s->iteration[s->count] = reports->iteration;
    s->attempt[s->count] = reports->attempt;
    for (int rank = 0; rank < 2 && rank < reports->world_size; rank++)
        s->loss[s->count][rank] = uni_dict_get_float(reports->by_rank[rank], "loss", NAN);
    return ++s->count == 20 ? uni_error_set(err, UNI_ELIMIT, "enough") : 0;
}

static void torn_line_is_cut_off_on_resume(void **state)
{
    rig r = rig_new(state, 1);
    add_report(r.writer, 1, 0, 1, 1);
    rig_free(&r);
    append_raw(r.path, "{\"attempt\":1,\"rank\":0,\"iteration\":2,\"metr");
    seen before = { 0 };
    MUST(uni__results_read(r.path, remember, &before, err));
    assert_int_equal(before.count, 1);
    MUST(uni__results_writer_open(&r.writer, r.path, 1, true, err));
    add_report(r.writer, 2, 0, 2, 2);
    uni__results_writer_close(r.writer);
    seen after = { 0 };
    MUST(uni__results_read(r.path, remember, &after, err));
    assert_int_equal(after.count, 2);
    assert_int_equal(after.iteration[1], 2);
    assert_int_equal(after.attempt[1], 2);
}

static void reader_keeps_the_last_attempt(void **state)
{
    rig r = rig_new(state, 2);
    add_report(r.writer, 1, 0, 1, 10);
    add_report(r.writer, 1, 1, 1, 11);
    add_report(r.writer, 1, 0, 2, 12);
    add_report(r.writer, 1, 0, 3, 13);
    add_report(r.writer, 2, 1, 2, 21);
    add_report(r.writer, 2, 0, 2, 20);
    MUST(uni__results_writer_flush(r.writer, err));
    append_raw(r.path, "this is not a report\n");
    rig_free(&r);
    seen s = { 0 };
    MUST(uni__results_read(r.path, remember, &s, err));
    assert_int_equal(s.count, 3);
    assert_true(s.loss[0][0] == 10 && s.loss[0][1] == 11 && s.attempt[0] == 1);
    assert_true(s.loss[1][0] == 20 && s.loss[1][1] == 21 && s.attempt[1] == 2);
    assert_true(s.loss[2][0] == 13 && isnan(s.loss[2][1]) && s.attempt[2] == 1);
}

/* Metrics may be secret: only the owner may read them. */
static void the_file_is_private(void **state)
{
    struct stat info;
    mode_t before = umask(0);
    rig r = rig_new(state, 1);
    umask(before);
    assert_int_equal(stat(r.path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    rig_free(&r);
}

/* The controller may die before it wrote anything. */
static void an_empty_file_is_resumed(void **state)
{
    rig r = { 0 };
    seen s = { 0 };
    snprintf(r.path, sizeof r.path, "%s/results.jsonl", (char *)*state);
    append_raw(r.path, "");
    MUST(uni__results_writer_open(&r.writer, r.path, 1, true, err));
    add_report(r.writer, 1, 0, 1, 10);
    uni__results_writer_close(r.writer);
    MUST(uni__results_read(r.path, remember, &s, err));
    assert_int_equal(s.count, 1);
}

static int count_in_order(void *context, const uni_reports *reports, uni_error *err)
{
    int64_t *last = context;
    double loss = uni_dict_get_float(reports->by_rank[0], "loss", NAN);
    if (reports->iteration != *last + 1 || loss != (double)reports->iteration / 4)
        return uni_error_set(err, UNI_EFORMAT, "iteration %lld", (long long)reports->iteration);
    *last = reports->iteration;
    return 0;
}

/* More than the reader takes at once. */
static void long_files_are_read(void **state)
{
    rig r = rig_new(state, 1);
    int64_t last = 0;
    struct stat info;
    for (int i = 1; i <= 20000; i++)
        add_report(r.writer, 1, 0, i, i / 4.0);
    rig_free(&r);
    assert_int_equal(stat(r.path, &info), 0);
    assert_true(info.st_size > 4 * 256 * 1024);
    MUST(uni__results_read(r.path, count_in_order, &last, err));
    assert_int_equal(last, 20000);
}

static int compare_text(void *context, const uni_reports *reports, uni_error *err)
{
    assert_string_equal(uni_dict_get_string(reports->by_rank[0], "text", ""), context);
    return 0;
}

/* Programs write escapes where the library writes UTF-8: characters of one to four bytes. */
static void escapes_of_other_writers(void **state)
{
    rig r = rig_new(state, 1);
    rig_free(&r);
    append_raw(r.path, "{\"attempt\":1,\"rank\":0,\"iteration\":1,\"metrics\":{\"text\":\"\\u0041 "
                       "\\u00e9 \\u20ac \\ud83d\\ude00 \\b\\f\\n\\r\\t\\/\"}}\n");
    MUST(uni__results_read(r.path, compare_text,
                           "A \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \b\f\n\r\t/", err));
}

/* A program with a decimal comma reads the same reports. */
static void reports_in_a_locale_with_commas(void **state)
{
    seen s = { 0 };
    rig r = rig_new(state, 1);
    add_report(r.writer, 1, 0, 1, 5e-324);
    add_report(r.writer, 1, 0, 2, 1.7976931348623157e308);
    add_report(r.writer, 1, 0, 3, 0.1);
    rig_free(&r);
    if (!set_comma_locale())
        skip(); /* no such locale on this machine */
    int status = uni__results_read(r.path, remember, &s, NULL);
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(status, 0);
    assert_int_equal(s.count, 3);
    assert_true(s.loss[0][0] == 5e-324 && s.loss[1][0] == 1.7976931348623157e308);
    assert_true(s.loss[2][0] == 0.1);
}

/* A line whose metrics are damaged costs that rank's values, not the file. */
static void damaged_metrics_are_left_out(void **state)
{
    rig r = rig_new(state, 1);
    add_report(r.writer, 1, 0, 1, 10);
    rig_free(&r);
    append_raw(r.path, "{\"attempt\":1,\"rank\":0,\"iteration\":2,\"metrics\":{\"loss\":}}\n");
    MUST(uni__results_writer_open(&r.writer, r.path, 1, true, err));
    add_report(r.writer, 1, 0, 3, 30);
    uni__results_writer_close(r.writer);
    seen s = { 0 };
    MUST(uni__results_read(r.path, remember, &s, err));
    assert_int_equal(s.iteration[s.count - 1], 3);
    assert_true(s.loss[0][0] == 10 && s.loss[s.count - 1][0] == 30);
}

static void other_files_are_refused(void **state)
{
    char path[300];
    uni_error failure = { 0 };
    snprintf(path, sizeof path, "%s/other", (char *)*state);
    assert_int_equal(uni__results_read(path, remember, NULL, &failure), UNI_ENOTFOUND);
    append_raw(path, "hello\nworld\n");
    assert_int_equal(uni__results_read(path, remember, NULL, &failure), UNI_EFORMAT);
    assert_non_null(strstr(failure.message, path));
    unlink(path);
    append_raw(path, "{\"format\":\"unisono results\",\"version\":2,\"world_size\":1}\n");
    assert_int_equal(uni__results_read(path, remember, NULL, &failure), UNI_EVERSION);
    uni__results_writer *writer = NULL;
    assert_int_equal(uni__results_writer_open(&writer, path, 1, true, &failure), UNI_EVERSION);
    assert_null(writer);
}

static int full_disk(void *context, uni__fault_op op, const char *path, size_t *size)
{
    int *writes = context;
    if (op != UNI__FAULT_WRITE)
        return 0;
    if ((*writes)++ == 0) {
        *size = 20; /* a torn line, then no more room */
        return 0;
    }
    return ENOSPC;
}

static void full_disk_leaves_whole_lines(void **state)
{
    rig r = rig_new(state, 1);
    uni_error failure = { 0 };
    int writes = 0;
    add_report(r.writer, 1, 0, 1, 1);
    uni__fault_hook_set(full_disk, &writes);
    assert_int_equal(uni__results_writer_flush(r.writer, &failure), UNI_EDISKFULL);
    uni__fault_hook_set(NULL, NULL);
    assert_int_equal(next_within(&r, 0), 0);
    seen s = { 0 };
    MUST(uni__results_read(r.path, remember, &s, err));
    assert_int_equal(s.count, 0);
    add_report(r.writer, 1, 0, 2, 2);
    MUST(uni__results_writer_flush(r.writer, err)); /* there is room again: nothing was lost */
    expect(&r, 1, 1, 1, (double[]){ 1 });
    expect(&r, 1, 2, 1, (double[]){ 2 });
    rig_free(&r);
}

static void bad_messages_leave_no_trace(void **state)
{
    rig r = rig_new(state, 1);
    uni_error failure = { 0 };
    add_report(r.writer, 1, 0, 1, 1);
    assert_int_equal(uni__results_writer_add(r.writer, 1, 0, 2,
                                             "\x82\xa1"
                                             "a\x01\xa1",
                                             5, &failure),
                     UNI_EFORMAT);
    assert_int_equal(uni__results_writer_add(r.writer, 1, 0, 2, "\x01", 1, &failure), UNI_EFORMAT);
    assert_int_equal(uni__results_writer_add(r.writer, 1, 0, 2, "", 0, &failure), UNI_EFORMAT);
    add_report(r.writer, 1, 0, 2, 2);
    MUST(uni__results_writer_flush(r.writer, err));
    expect(&r, 1, 1, 1, (double[]){ 1 });
    expect(&r, 1, 2, 1, (double[]){ 2 });
    rig_free(&r);
}

static void long_lines_pass(void **state)
{
    rig r = rig_new(state, 1);
    size_t length = 1500000;
    char *text = malloc(length + 1);
    memset(text, 'x', length);
    text[length] = 0;
    uni_value *value = uni_value_dict();
    assert_int_equal(uni_dict_take(value, "text", uni_value_string(text)), 0);
    void *bytes = NULL;
    size_t size = 0;
    MUST(uni__msgpack_write(&bytes, &size, value, err));
    for (int i = 1; i <= 3; i++)
        MUST(uni__results_writer_add(r.writer, 1, 0, i, bytes, size, err));
    MUST(uni__results_writer_flush(r.writer, err));
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(next_within(&r, 0), 1);
        assert_int_equal(strlen(uni_dict_get_string(r.reports->by_rank[0], "text", "")), length);
    }
    free(bytes);
    free(text);
    uni_value_free(value);
    rig_free(&r);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(joins_in_order),
        TEST(values_survive),
        TEST(doubles_survive),
        TEST(nonfinite_survives),
        TEST(rank_that_ended_is_not_waited_for),
        TEST(rank_that_is_back_is_waited_for),
        TEST(end_mark_keeps_its_place),
        TEST(new_attempt_gives_up_old_joins),
        TEST(silent_rank_is_named_once),
        TEST(full_window_gives_without_the_slow_rank),
        TEST(far_apart_ranks_are_joined),
        TEST(close_gives_the_rest_and_ends),
        TEST(follower_starts_where_the_file_is),
        TEST(wake_ends_a_wait),
        TEST(waiting_costs_no_time),
        TEST(damaged_metrics_are_left_out),
        TEST(the_file_is_private),
        TEST(reports_in_a_locale_with_commas),
        TEST(an_empty_file_is_resumed),
        TEST(long_files_are_read),
        TEST(escapes_of_other_writers),
        TEST(torn_line_is_cut_off_on_resume),
        TEST(reader_keeps_the_last_attempt),
        TEST(other_files_are_refused),
        TEST(full_disk_leaves_whole_lines),
        TEST(bad_messages_leave_no_trace),
        TEST(long_lines_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
