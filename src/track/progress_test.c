/*
 * progress_test.c - what the user sees: the progress sink on a pseudo-terminal of 80 and 40
 * columns, read through a small terminal model (cursor movement, erasing, wrapping, scrolling), and
 * its lines in a pipe.
 */
#include "track/testing.h"

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "track/progress.h"
#include "track/sink.h"

/* ---- a terminal ---- */

#define MAX_ROWS 30
#define MAX_COLUMNS 120

typedef struct screen {
    int rows, columns, row, column;
    char cells[MAX_ROWS][MAX_COLUMNS + 1];
    int scrolled;
    int wrapped; /* lines that did not fit: a progress bar must never cause one */
} screen;

static void screen_clear_from(screen *s, int row, int column)
{
    memset(s->cells[row] + column, ' ', (size_t)(s->columns - column));
}

static screen *screen_new(int rows, int columns)
{
    screen *s = calloc(1, sizeof *s);
    s->rows = rows;
    s->columns = columns;
    for (int row = 0; row < rows; row++)
        screen_clear_from(s, row, 0);
    return s;
}

static void screen_down(screen *s)
{
    if (++s->row < s->rows)
        return;
    s->row = s->rows - 1;
    s->scrolled++;
    memmove(s->cells[0], s->cells[1], sizeof s->cells[0] * (size_t)(s->rows - 1));
    screen_clear_from(s, s->row, 0);
}

static const char *screen_escape(screen *s, const char *at)
{
    assert_int_equal(*at, '['); /* nothing else is ever sent: no modes, no titles */
    int number = 0;
    for (at++; *at >= '0' && *at <= '9'; at++)
        number = number * 10 + *at - '0';
    switch (*at) {
    case 'A':
        s->row = s->row - number < 0 ? 0 : s->row - number;
        break;
    case 'K':
        screen_clear_from(s, s->row, s->column);
        break;
    case 'J':
        screen_clear_from(s, s->row, s->column);
        for (int row = s->row + 1; row < s->rows; row++)
            screen_clear_from(s, row, 0);
        break;
    case 'm':
        break;
    default:
        fail_msg("unexpected escape sequence ending in %c", *at);
    }
    return at + 1;
}

static void screen_write(screen *s, const char *text)
{
    while (*text != 0) {
        unsigned char c = (unsigned char)*text++;
        if (c == 033) {
            text = screen_escape(s, text);
        } else if (c == '\r') {
            s->column = 0;
        } else if (c == '\n') {
            screen_down(s);
        } else if ((c & 0xc0) != 0x80) { /* one cell per character: everything we draw is narrow */
            if (s->column == s->columns) {
                s->wrapped++;
                s->column = 0;
                screen_down(s);
            }
            s->cells[s->row][s->column++] = c < 0x80 ? (char)c : '#';
        }
    }
}

static const char *screen_line(screen *s, int row)
{
    int end = s->columns;
    while (end > 0 && s->cells[row][end - 1] == ' ')
        end--;
    s->cells[row][end] = 0;
    return s->cells[row];
}

/* ---- a sink on it ---- */

typedef struct rig {
    int master, slave;
    screen *screen;
    uni_sink *sink;
} rig;

static void update(rig *r)
{
    char text[20000];
    ssize_t got;
    while ((got = read(r->master, text, sizeof text - 1)) > 0) {
        text[got] = 0;
        screen_write(r->screen, text);
    }
}

static rig rig_new(int columns, int rows, double total, const char *name)
{
    rig r = { 0 };
    struct winsize size = { .ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows };
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C", 1);
    assert_int_equal(openpty(&r.master, &r.slave, NULL, NULL, &size), 0);
    assert_int_equal(fcntl(r.master, F_SETFL, O_NONBLOCK), 0);
    r.screen = screen_new(rows, columns);
    MUST(uni_sink_progress(&r.sink, &(uni_sink_progress_options){ .fd = r.slave }, err));
    uni_start_info info = { .run_id = name, .world_size = 4, .total_iterations = total };
    MUST(r.sink->class_->start(r.sink->self, &info, err));
    r.sink->class_->tick(r.sink->self);
    update(&r);
    return r;
}

static void report(uni_sink *sink, int64_t iteration, const char *json)
{
    uni_value *values[4];
    for (int rank = 0; rank < 4; rank++)
        MUST(uni_json_read(&values[rank], json, strlen(json), err));
    uni_reports reports = { iteration, 1, 4, (const uni_value *const *)values };
    MUST(sink->class_->result(sink->self, &reports, err));
    for (int rank = 0; rank < 4; rank++)
        uni_value_free(values[rank]);
}

static void event(rig *r, uni_event_kind kind, int rank, const char *message)
{
    MUST(r->sink->class_->event(
        r->sink->self, &(uni_event){ .kind = kind, .rank = rank, .message = message }, err));
    update(r);
}

static void tick(rig *r)
{
    r->sink->class_->tick(r->sink->self);
    update(r);
}

static void rig_free(rig *r)
{
    uni_sink_free(r->sink);
    close(r->master);
    close(r->slave);
    free(r->screen);
}

#define METRICS                                                                                    \
    "{\"loss\":0.123456,\"accuracy\":0.5,\"_timestamp\":1.5,\"_training_iteration\":3,\"name\":"   \
    "\"x\"}"

static void bar_at_80_columns(void **state)
{
    rig r = rig_new(80, 24, 100, "digits/run_001");
    assert_string_equal(screen_line(r.screen, 0),
                        "digits/run_001  [>                                       ]  0/100  0:00");
    assert_string_equal(screen_line(r.screen, 1), "ranks 0-3 starting");
    assert_int_equal(r.screen->row, 2); /* the cursor rests below the block, in the first column */
    assert_int_equal(r.screen->column, 0);
    event(&r, UNI_EVENT_WORKERS, -1, "4 workers started in 3 ms");
    for (int i = 1; i <= 25; i++)
        report(r.sink, i, METRICS);
    tick(&r);
    assert_string_equal(screen_line(r.screen, 0), "4 workers started in 3 ms");
    const char *bar = screen_line(r.screen, 1);
    assert_non_null(strstr(bar, "digits/run_001  ["));
    assert_non_null(strstr(bar, "25/100"));
    assert_non_null(strstr(bar, "/s  ETA 0:0"));
    assert_string_equal(screen_line(r.screen, 2), "loss 0.1235  accuracy 0.5");
    assert_string_equal(screen_line(r.screen, 3), "ranks 0-3 running");
    event(&r, UNI_EVENT_FAILURE, 2, "rank 2 (pid 77) was killed by SIGKILL");
    assert_string_equal(screen_line(r.screen, 1), "failure: rank 2 (pid 77) was killed by SIGKILL");
    assert_string_equal(screen_line(r.screen, 4), "rank 2 failed, ranks 0-1,3 running");
    event(&r, UNI_EVENT_RESTART, -1, "from checkpoint_000003");
    event(&r, UNI_EVENT_CHECKPOINT, -1, "/tmp/x/checkpoints/checkpoint_000004");
    assert_string_equal(screen_line(r.screen, 2), "restart from checkpoint_000003");
    assert_string_equal(screen_line(r.screen, 5),
                        "ranks 0-3 starting, 1 restart, checkpoint_000004");
    MUST(r.sink->class_->finish(r.sink->self, &(uni_finish_info){ .seconds = 65, .message = "" },
                                err));
    update(&r);
    assert_non_null(strstr(screen_line(r.screen, 3), "25/100  1:05"));
    assert_string_equal(screen_line(r.screen, 5), "finished, 1 restart, checkpoint_000004");
    assert_int_equal(r.screen->row, 6);
    assert_int_equal(r.screen->column, 0);
    assert_int_equal(r.screen->wrapped, 0);
    rig_free(&r);
}

static void bar_at_40_columns(void **state)
{
    rig r = rig_new(40, 24, 100000, "a_rather_long_name_of_a_run/run_001");
    for (int i = 1; i <= 5; i++) {
        report(r.sink, 99990 + i,
               "{\"loss\":0.123456,\"a_very_long_name_of_a_metric\":-1.5e-9,\"accuracy\":0.5,"
               "\"error\":7}");
        tick(&r);
    }
    const char *bar = screen_line(r.screen, 0);
    assert_true(strlen(bar) < 40);
    assert_non_null(strstr(bar, "[===="));
    assert_non_null(strstr(bar, "99995/100000"));
    assert_string_equal(screen_line(r.screen, 1),
                        "loss 0.1235  accuracy 0.5  error 7"); /* the long one is left out */
    assert_string_equal(screen_line(r.screen, 2), "ranks 0-3 running");
    assert_int_equal(r.screen->row, 3);
    assert_int_equal(r.screen->wrapped, 0);
    assert_int_equal(r.screen->scrolled, 0);
    rig_free(&r);
}

static void never_wraps_at_any_width(void **state)
{
    uni__progress_state s = { .run_id = "naïve \xe6\x97\xa5\xe6\x9c\xac/run_001",
                              .world_size = 7,
                              .total = 12345,
                              .iteration = 1234,
                              .restarts = 12,
                              .ranks = (uint8_t[]){ 0, 1, 2, 3, 1, 1, 0 },
                              .num_metrics = 2,
                              .values = { NAN, -INFINITY },
                              .checkpoint = "checkpoint_000123",
                              .num_samples = 2,
                              .next_sample = 2 };
    strcpy(s.names[0], "loss");
    strcpy(s.names[1], "caf\xc3\xa9\033[2J"); /* a name that would clear the screen */
    s.samples[1].time = 0.7;
    s.samples[1].iteration = 100;
    uni__text lines[3] = { 0 };
    for (int columns = 1; columns <= 200; columns++) {
        uni__progress_render(&s, columns, columns % 2 == 0, 100, lines, 3);
        for (int i = 0; i < 3; i++) {
            assert_true(lines[i].size > 0);
            assert_true(uni__text_columns(lines[i].data, lines[i].size) <
                        (columns > 2 ? columns : 2));
            assert_null(strchr(lines[i].data, 033));
        }
    }
    assert_non_null(strstr(lines[1].data, "loss nan  caf\xc3\xa9\\u001b[2J -inf"));
    for (int i = 0; i < 3; i++)
        uni__text_free(&lines[i]);
}

/* The terminal becomes narrower: wrapped lines are erased as well, nothing is left over. */
static void narrower_terminal_leaves_nothing(void **state)
{
    rig r = rig_new(80, 24, 0, "digits/run_001");
    report(r.sink, 7, METRICS);
    tick(&r);
    assert_string_equal(screen_line(r.screen, 0), "digits/run_001  iteration 7  0:00");
    struct winsize size = { .ws_col = 20, .ws_row = 24 };
    assert_int_equal(ioctl(r.master, TIOCSWINSZ, &size), 0);
    /* What a terminal then shows: each line is broken at the new width. */
    free(r.screen);
    r.screen = screen_new(24, 20);
    screen_write(r.screen, "digits/run_001  iter\r\nation 7  0:00\r\nloss 0.1235  accurac\r\ny "
                           "0.5\r\nranks 0-3 running\r\n");
    tick(&r);
    assert_string_equal(screen_line(r.screen, 0), "iteration 7  0:00");
    assert_string_equal(screen_line(r.screen, 1), "loss 0.1235");
    assert_string_equal(screen_line(r.screen, 2), "ranks 0-3 running");
    for (int row = 3; row < 24; row++)
        assert_string_equal(screen_line(r.screen, row), "");
    rig_free(&r);
}

/* At the bottom of the terminal the block scrolls with what is printed above it and is never drawn
 * twice. */
static void events_scroll_above_the_bar(void **state)
{
    rig r = rig_new(60, 8, 10, "n/run_001");
    report(r.sink, 1, METRICS);
    for (int i = 0; i < 20; i++) {
        char message[40];
        snprintf(message, sizeof message, "number %d\nsecond line", i);
        event(&r, UNI_EVENT_WARNING, -1, message);
        tick(&r);
    }
    assert_string_equal(screen_line(r.screen, 1), "second line");
    assert_string_equal(screen_line(r.screen, 2), "warning: number 19");
    assert_string_equal(screen_line(r.screen, 3), "second line");
    assert_non_null(strstr(screen_line(r.screen, 4), "1/10"));
    assert_string_equal(screen_line(r.screen, 6), "ranks 0-3 running");
    assert_string_equal(screen_line(r.screen, 7), "");
    rig_free(&r);
}

static void terminal_is_left_as_it_was(void **state)
{
    struct termios before, after;
    rig r = rig_new(80, 24, 10, "n/run_001");
    assert_int_equal(tcgetattr(r.slave, &before), 0);
    report(r.sink, 1, METRICS);
    tick(&r);
    MUST(r.sink->class_->finish(
        r.sink->self,
        &(uni_finish_info){ .code = UNI_EWORKER, .message = "rank 1\033[31m died", .seconds = 2 },
        err));
    update(&r); /* screen_escape knows only movement, erasing and colours */
    assert_int_equal(tcgetattr(r.slave, &after), 0);
    assert_int_equal(before.c_lflag, after.c_lflag);
    assert_int_equal(before.c_oflag, after.c_oflag);
    assert_string_equal(screen_line(r.screen, 0), "failed after 0:02: rank 1\\u001b[31m died");
    rig_free(&r);
}

/* The bar is filled by what was done of the whole: as many cells as characters, rounded. */
static void the_bar_is_a_share(void **state)
{
    uni__progress_state s = {
        .run_id = "n/run_001", .total = 8, .finished = true, .seconds = 3725, .ranks = NULL
    };
    static const char *const bars[] = { "[>         ]", "[=>        ]", "[===>      ]",
                                        "[====>     ]", "[=====>    ]", "[======>   ]",
                                        "[========> ]", "[=========>]", "[==========]",
                                        "[==========]" };
    for (int done = 0; done < 10; done++) {
        char expected[80];
        uni__text lines[1] = { 0 };
        s.iteration = done;
        uni__progress_render(&s, 11 + 12 + 2 + 3 + 2 + 7 + 1, false, 0, lines, 1);
        snprintf(expected, sizeof expected, "n/run_001  %s  %d/8  1:02:05", bars[done], done);
        assert_string_equal(lines[0].data, expected);
        uni__text_free(&lines[0]);
    }
}

/* The rate is that of the last samples, not of the whole run, and the time left comes from it. */
static void rate_and_time_left(void **state)
{
    uni__progress_state s = { .run_id = "n/run_001", .total = 1000, .iteration = 100 };
    assert_true(uni__progress_rate(&s) == 0);
    for (int i = 0; i < UNI__RATE_SAMPLES + 5; i++) { /* at first ten times as fast */
        s.samples[s.next_sample].time = i < 5 ? i * 0.1 : i;
        s.samples[s.next_sample].iteration = 2 * i;
        s.next_sample = (s.next_sample + 1) % UNI__RATE_SAMPLES;
        s.num_samples += s.num_samples < UNI__RATE_SAMPLES;
        if (i == 0)
            assert_true(uni__progress_rate(&s) == 0);
        if (i == 4)
            assert_true(fabs(uni__progress_rate(&s) - 20) < 1e-9);
    }
    assert_true(fabs(uni__progress_rate(&s) - 2) < 1e-9);
    uni__text lines[1] = { 0 };
    uni__progress_render(&s, 80, false, 0, lines, 1);
    assert_non_null(strstr(lines[0].data, "100/1000  2/s  ETA 7:30"));
    uni__text_free(&lines[0]);
}

static void numbers_as_text(void **state)
{
    static const struct {
        double value;
        const char *duration, *metric, *rate;
    } cases[] = {
        { -1, "0:00", "-1", "-1/s" },
        { 0, "0:00", "0", "0/s" },
        { 0.5, "0:01", "0.5", "2 s each" },
        { 1, "0:01", "1", "1/s" },
        { 59.4, "0:59", "59.4", "59.4/s" },
        { 3599.4, "59:59", "3599", "3.599k/s" },
        { 3600, "1:00:00", "3600", "3.6k/s" },
        { 999, "16:39", "999", "999/s" },
        { 1000, "16:40", "1000", "1k/s" },
        { 359999, "99:59:59", "359999", "360k/s" },
        { 360000, "4 days", "360000", "360k/s" },
        { 1e9, "11574 days", "1e+09", "1e+06k/s" },
        { NAN, "0:00", "nan", NULL },
        { -INFINITY, "0:00", "-inf", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[24];
        uni__format_duration(text, cases[i].value);
        assert_string_equal(text, cases[i].duration);
        uni__format_metric(text, cases[i].value);
        assert_string_equal(text, cases[i].metric);
        if (cases[i].rate == NULL)
            continue;
        uni__format_rate(text, cases[i].value);
        assert_string_equal(text, cases[i].rate);
    }
}

/* A line that is taken for narrower than it is would wrap and leave pieces behind. */
static void columns_of_text(void **state)
{
    static const struct {
        const char *text;
        int columns;
    } cases[] = {
        { "", 0 },
        { "abc", 3 },
        { "caf\xc3\xa9", 4 },
        { "cafe\xcc\x81", 4 }, /* a combining accent */
        { "\xe6\x97\xa5\xe6\x9c\xac", 4 }, /* two wide characters */
        { "\xf0\x9f\x98\x80", 2 }, /* an emoji */
        { "\xe2\x96\x88", 1 }, /* a block of the bar */
        { "\xe2\x80\x8b", 0 }, /* a space without width */
        { "\x80\x80", 2 }, /* what is not UTF-8 takes a column for each byte */
        { "\xc1\xbf", 2 },
        { "\xf5\x80\x80\x80", 4 },
        { "\xff", 1 },
        { "\xe6\x97", 2 }, /* cut off */
        { "\xe6\x97z", 3 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (uni__text_columns(cases[i].text, strlen(cases[i].text)) != cases[i].columns)
            fail_msg("case %zu: %d columns", i,
                     uni__text_columns(cases[i].text, strlen(cases[i].text)));
}

/* A terminal that has no room for the block and a line above it shows the bar alone. */
static void low_terminals(void **state)
{
    for (int rows = 2; rows <= 6; rows++) {
        rig r = rig_new(60, rows, 10, "n/run_001");
        report(r.sink, 1, METRICS);
        tick(&r);
        tick(&r);
        int shown = 0;
        for (int row = 0; row < rows; row++)
            shown += screen_line(r.screen, row)[0] != 0;
        assert_int_equal(shown, rows > 4 ? 3 : 1);
        assert_int_equal(r.screen->scrolled, 0);
        rig_free(&r);
    }
}

/* ---- in a pipe ---- */

static void lines_in_a_pipe(void **state)
{
    int ends[2];
    char text[4000] = "";
    uni_sink *sink = NULL;
    assert_int_equal(pipe(ends), 0);
    MUST(uni_sink_progress(&sink, &(uni_sink_progress_options){ .fd = ends[1] }, err));
    uni_start_info info = { .run_id = "n/run_001", .world_size = 4, .total_iterations = 10 };
    MUST(sink->class_->start(sink->self, &info, err));
    MUST(sink->class_->event(
        sink->self,
        &(uni_event){ .kind = UNI_EVENT_WORKERS, .message = "4 workers started in 3 ms" }, err));
    report(sink, 1, METRICS);
    report(sink, 9, "{\"loss\":12.5,\"accuracy\":0.25}");
    report(sink, 10, "{\"loss\":1,\"accuracy\":0.5}");
    MUST(sink->class_->finish(sink->self, &(uni_finish_info){ .message = "", .seconds = 61 }, err));
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    char *line[8], *rest = text;
    for (int i = 0; i < 5; i++)
        line[i] = strsep(&rest, "\n");
    assert_string_equal(line[0], "4 workers started in 3 ms");
    assert_string_equal(line[1], "[ 1/10]  loss 0.1235     accuracy 0.5");
    assert_memory_equal(line[2], "[ 9/10]  loss 12.5       accuracy 0.25", 38);
    assert_memory_equal(line[3], "[10/10]  loss 1          accuracy 0.5", 37);
    assert_string_equal(line[4], "finished: 10 iterations in 1:01");
    assert_null(strchr(text, 033));
    uni_sink_free(sink);
    close(ends[0]);
    close(ends[1]);
}

/* The command prints a summary of its own. */
static void no_summary(void **state)
{
    for (int without = 0; without < 2; without++) {
        int ends[2];
        char text[4000] = "";
        uni_sink *sink = NULL;
        assert_int_equal(pipe(ends), 0);
        MUST(uni_sink_progress(
            &sink, &(uni_sink_progress_options){ .fd = ends[1], .no_summary = without == 1 }, err));
        uni_start_info info = { .run_id = "n/run_001", .world_size = 4 };
        MUST(sink->class_->start(sink->self, &info, err));
        report(sink, 1, METRICS);
        MUST(sink->class_->finish(sink->self, &(uni_finish_info){ .message = "" }, err));
        assert_true(read(ends[0], text, sizeof text - 1) > 0);
        assert_non_null(strstr(text, "loss 0.1235"));
        assert_int_equal(strstr(text, "finished") == NULL, without);
        uni_sink_free(sink);
        close(ends[0]);
        close(ends[1]);
    }
}

/* Blocks are drawn only where the locale says that the terminal shows them. */
static void locales(void **state)
{
    static const struct {
        const char *all, *ctype, *lang;
        bool blocks;
    } cases[] = { { NULL, NULL, NULL, false },        { NULL, NULL, "de_DE.UTF-8", true },
                  { "", "", "en_US.utf8", true },     { "C", NULL, "en_US.UTF-8", false },
                  { NULL, "C.UTF-8", "POSIX", true }, { "C.UTF-8", "C", "C", true } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
        const char *const values[] = { cases[i].all, cases[i].ctype, cases[i].lang };
        rig r = rig_new(60, 24, 0, "n/run_001"); /* sets LC_ALL */
        uni_sink_free(r.sink);
        for (int name = 0; name < 3; name++)
            assert_int_equal(
                values[name] ? setenv(names[name], values[name], 1) : unsetenv(names[name]), 0);
        MUST(uni_sink_progress(&r.sink, &(uni_sink_progress_options){ .fd = r.slave }, err));
        uni_start_info info = { .run_id = "n/run_001", .world_size = 4, .total_iterations = 4 };
        MUST(r.sink->class_->start(r.sink->self, &info, err));
        report(r.sink, 2, METRICS);
        tick(&r);
        bool blocks = false;
        for (int row = 0; row < 24; row++)
            blocks |= strchr(screen_line(r.screen, row), '#') != NULL;
        assert_int_equal(blocks, cases[i].blocks);
        rig_free(&r);
    }
}

/* The line of an iteration that only rank 1 of 2 has reported. */
static void check_missing(bool resizes, const char *expected)
{
    int ends[2];
    char text[4000] = "";
    uni_sink *sink = NULL;
    uni_value *value = NULL;
    assert_int_equal(pipe(ends), 0);
    MUST(uni_sink_progress(
        &sink,
        &(uni_sink_progress_options){ .fd = ends[1],
                                      .metrics = (const char *const[]){ "a.b", "none", NULL } },
        err));
    uni_start_info info = { .run_id = "n/run_001", .world_size = 2, .resizes = resizes };
    MUST(sink->class_->start(sink->self, &info, err));
    MUST(uni_json_read(&value, "{\"x\":1,\"a\":{\"b\":2}}", 19, err));
    const uni_value *values[2] = { NULL, value };
    MUST(sink->class_->result(sink->self, &(uni_reports){ 3, 1, 2, values }, err));
    sink->class_->tick(sink->self);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    assert_string_equal(text, expected);
    uni_value_free(value);
    uni_sink_free(sink);
    close(ends[0]);
    close(ends[1]);
}

static void missing_ranks_are_shown(void **state)
{
    check_missing(false, "[    3]  a.b 2          without rank 0\n");
    check_missing(true, "[    3]  a.b 2          1 worker\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bar_at_80_columns),
        cmocka_unit_test(bar_at_40_columns),
        cmocka_unit_test(never_wraps_at_any_width),
        cmocka_unit_test(narrower_terminal_leaves_nothing),
        cmocka_unit_test(events_scroll_above_the_bar),
        cmocka_unit_test(terminal_is_left_as_it_was),
        cmocka_unit_test(the_bar_is_a_share),
        cmocka_unit_test(rate_and_time_left),
        cmocka_unit_test(numbers_as_text),
        cmocka_unit_test(columns_of_text),
        cmocka_unit_test(low_terminals),
        cmocka_unit_test(lines_in_a_pipe),
        cmocka_unit_test(no_summary),
        cmocka_unit_test(locales),
        cmocka_unit_test(missing_ranks_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
