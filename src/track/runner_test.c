/* runner_test.c - the sink thread: order of calls, a sink that fails, lockstep, events,
 * draining. */
#include "track/testing.h"

#include <pthread.h>
#include <stdatomic.h>

#include <unisono/log.h>

#include "track/runner.h"

typedef struct log_sink {
    char text[4000]; /* one word per call */
    int fail_at; /* iteration whose result function fails, 0: none */
    int fail_start, fail_finish;
    int slow_ms;
    atomic_int ticks, results;
    pthread_t thread;
} log_sink;

static void note(log_sink *l, const char *format, ...)
{
    size_t used = strlen(l->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(l->text + used, sizeof l->text - used, format, arguments);
    va_end(arguments);
}

static int log_start(void *self, const uni_start_info *info, uni_error *err)
{
    log_sink *l = self;
    l->thread = pthread_self();
    note(l, "start(%s,%d) ", info->run_id, info->world_size);
    return l->fail_start ? uni_error_set(err, UNI_EIO, "no start today") : 0;
}

static int log_result(void *self, const uni_reports *reports, uni_error *err)
{
    log_sink *l = self;
    assert_true(pthread_equal(l->thread, pthread_self()));
    usleep((useconds_t)l->slow_ms * 1000);
    note(l, "%d.%lld ", reports->attempt, (long long)reports->iteration);
    atomic_fetch_add(&l->results, 1);
    return l->fail_at == reports->iteration
               ? uni_error_set(err, UNI_EDISKFULL, "the disk of %d", l->fail_at)
               : 0;
}

static int log_event(void *self, const uni_event *event, uni_error *err)
{
    if (event->message[0] != 0)
        note(self, "event(%s) ", event->message);
    return 0;
}

static void log_tick(void *self)
{
    atomic_fetch_add(&((log_sink *)self)->ticks, 1);
}

static int log_finish(void *self, const uni_finish_info *info, uni_error *err)
{
    log_sink *l = self;
    note(l, "finish(%d)", info->code);
    return l->fail_finish ? uni_error_set(err, UNI_EIO, "no end") : 0;
}

static const uni_sink_class log_class = { .name = "log",
                                          .start = log_start,
                                          .result = log_result,
                                          .event = log_event,
                                          .tick = log_tick,
                                          .finish = log_finish };

typedef struct rig {
    uni__results_writer *writer;
    uni__sink_runner *runner;
    log_sink logs[2];
    uni_sink *sinks[2];
    char warnings[2000];
    atomic_llong consumed;
} rig;

static void keep_warning(void *context, const char *message)
{
    rig *r = context;
    strncat(r->warnings, message, sizeof r->warnings - strlen(r->warnings) - 1);
    strncat(r->warnings, "|", sizeof r->warnings - strlen(r->warnings) - 1);
}

static void keep_consumed(void *context, int attempt, int64_t iteration)
{
    atomic_store(&((rig *)context)->consumed, iteration);
}

static void rig_start(rig *r, void **state, int world_size, bool lockstep)
{
    char path[300];
    snprintf(path, sizeof path, "%s/results.jsonl", (char *)*state);
    uni_log_level_set(UNI_LOG_OFF);
    MUST(uni__results_writer_open(&r->writer, path, world_size, false, err));
    for (int i = 0; i < 2; i++)
        MUST(uni_sink_new(&r->sinks[i], &log_class, &r->logs[i], err));
    uni_start_info info = {
        .run_dir = *state, .name = "n", .run_id = "n/run_001", .world_size = world_size
    };
    MUST(uni__sink_runner_start(&r->runner,
                                &(uni__sink_runner_options){ .writer = r->writer,
                                                             .info = &info,
                                                             .sinks = r->sinks,
                                                             .num_sinks = 2,
                                                             .lockstep = lockstep,
                                                             .consumed = keep_consumed,
                                                             .warning = keep_warning,
                                                             .context = r },
                                err));
}

static void rig_finish(rig *r, int code)
{
    uni__sink_runner_finish(r->runner, &(uni_finish_info){ .code = code, .message = "" });
    if (r->writer != NULL)
        uni__results_writer_close(r->writer);
    for (int i = 0; i < 2; i++)
        uni_sink_free(r->sinks[i]);
}

static void add_flush(rig *r, int rank, int64_t iteration)
{
    add_report(r->writer, 1, rank, iteration, 0.5);
    MUST(uni__results_writer_flush(r->writer, err));
}

static void wait_for(atomic_int *value, int wanted)
{
    for (int i = 0; i < 5000 && atomic_load(value) < wanted; i++)
        usleep(1000);
    assert_true(atomic_load(value) >= wanted);
}

static void calls_come_in_order(void **state)
{
    rig r = { 0 };
    rig_start(&r, state, 1, false);
    for (int i = 1; i <= 3; i++)
        add_flush(&r, 0, i);
    wait_for(&r.logs[1].results, 3);
    uni__sink_runner_event(r.runner, &(uni_event){ .kind = UNI_EVENT_WARNING, .message = "hello" });
    wait_for(&r.logs[1].ticks, 3); /* about ten per second, without any report */
    rig_finish(&r, 0);
    for (int i = 0; i < 2; i++)
        assert_string_equal(r.logs[i].text,
                            "start(n/run_001,1) 1.1 1.2 1.3 event(hello) finish(0)");
    assert_string_equal(r.warnings, "");
}

/* Finish right after the last report, with the writer still open: everything is handled first,
 * including incomplete joins. */
static void finish_drains(void **state)
{
    rig r = { 0 };
    r.logs[0].slow_ms = 2;
    rig_start(&r, state, 2, false);
    for (int i = 1; i <= 20; i++) {
        add_report(r.writer, 1, 0, i, 1);
        if (i <= 19)
            add_report(r.writer, 1, 1, i, 1);
    }
    MUST(uni__results_writer_flush(r.writer, err));
    uni__sink_runner_event(r.runner,
                           &(uni_event){ .kind = UNI_EVENT_FAILURE, .message = "last words" });
    rig_finish(&r, UNI_EWORKER);
    assert_int_equal(atomic_load(&r.logs[0].results), 20);
    assert_non_null(strstr(r.logs[1].text, "event(last words)"));
    assert_string_equal(r.logs[1].text + strlen(r.logs[1].text) - 11, "finish(-16)");
}

static void drain_tells_uneven_ranks(void **state)
{
    rig r = { 0 };
    char sentence[300] = "";
    rig_start(&r, state, 2, true);
    add_flush(&r, 0, 1);
    add_flush(&r, 1, 1);
    add_flush(&r, 0, 2);
    MUST(uni__results_writer_rank_ended(r.writer, 1, err));
    uni__sink_runner_drain(r.runner);
    assert_int_equal(atomic_load(&r.logs[0].results), 2);
    assert_int_equal(uni__sink_runner_uneven(r.runner, sentence, sizeof sentence), 1);
    assert_non_null(strstr(sentence, "rank 0 reported 2 times and rank 1 1 times"));
    uni__sink_runner_event(r.runner, &(uni_event){ .message = "still heard" });
    rig_finish(&r, 0);
    assert_non_null(strstr(r.logs[0].text, "event(still heard)"));
}

static void failing_sink_is_left_out(void **state)
{
    rig r = { 0 };
    r.logs[0].fail_at = 2;
    rig_start(&r, state, 1, false);
    for (int i = 1; i <= 4; i++)
        add_flush(&r, 0, i);
    wait_for(&r.logs[1].results, 4);
    rig_finish(&r, 0);
    assert_string_equal(r.logs[0].text, "start(n/run_001,1) 1.1 1.2 "); /* not even finish */
    assert_non_null(strstr(r.logs[1].text, "1.4"));
    assert_non_null(strstr(r.logs[1].text, "finish(0)"));
    /* The other sinks are told. */
    assert_non_null(strstr(r.logs[1].text, "the sink \"log\" failed on a report"));
    assert_non_null(strstr(r.warnings, "the disk of 2"));
}

static void sink_that_cannot_start_is_left_out(void **state)
{
    rig r = { 0 };
    r.logs[1].fail_start = 1;
    r.logs[0].fail_finish = 1;
    rig_start(&r, state, 1, false);
    add_flush(&r, 0, 1);
    rig_finish(&r, 0);
    assert_string_equal(r.logs[1].text, "start(n/run_001,1) ");
    assert_non_null(
        strstr(r.warnings, "failed to start and is left out from now on: no start today"));
    assert_non_null(strstr(r.warnings, "failed to finish"));
}

static void lockstep_tells_what_was_consumed(void **state)
{
    rig r = { 0 };
    r.logs[0].slow_ms = 20;
    rig_start(&r, state, 2, true);
    for (int i = 1; i <= 3; i++) {
        add_flush(&r, 0, i);
        usleep(5000);
        /* Rank 1 is awaited without limit. */
        assert_int_equal(atomic_load(&r.consumed), i - 1);
        add_flush(&r, 1, i);
        for (int wait = 0; wait < 5000 && atomic_load(&r.consumed) < i; wait++)
            usleep(1000);
        assert_int_equal(atomic_load(&r.consumed), i);
        assert_int_equal(atomic_load(&r.logs[1].results), i); /* by all sinks */
    }
    rig_finish(&r, 0);
}

/* More events than the queue holds while a sink sleeps: nothing blocks, and dropped events are
 * counted. */
static void flood_of_events_is_bounded(void **state)
{
    rig r = { 0 };
    r.logs[0].slow_ms = 200;
    rig_start(&r, state, 1, false);
    add_flush(&r, 0, 1);
    usleep(50000);
    for (int i = 0; i < 3000; i++)
        uni__sink_runner_event(r.runner, &(uni_event){ .message = "" });
    uni__results_writer_close(r.writer);
    r.writer = NULL;
    rig_finish(&r, 0);
    assert_non_null(strstr(r.logs[1].text, " more events were not shown"));
}

static void finish_of_null_is_allowed(void **state)
{
    uni__sink_runner_finish(NULL, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(calls_come_in_order),
        TEST(finish_drains),
        TEST(drain_tells_uneven_ranks),
        TEST(failing_sink_is_left_out),
        TEST(sink_that_cannot_start_is_left_out),
        TEST(lockstep_tells_what_was_consumed),
        TEST(flood_of_events_is_bounded),
        TEST(finish_of_null_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
