/* plot_test.c - ranges, ticks, smoothing and the drawing itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cli/plot.h"

static cli_plot plot_of(size_t count, const double *y)
{
    cli_plot plot = { .x_label = "iteration", .num_series = 1 };
    plot.series = calloc(1, sizeof *plot.series);
    snprintf(plot.title, sizeof plot.title, "loss");
    snprintf(plot.series->label, sizeof plot.series->label, "run");
    for (size_t i = 0; i < count; i++)
        assert_true(cli_series_add(plot.series, (double)i + 1, y[i]));
    return plot;
}

static void test_ranges(void **state)
{
    (void)state;
    cli_range x, y;
    cli_plot plot = plot_of(4, (double[]){ 1, NAN, -2, INFINITY });
    assert_true(cli_plot_ranges(&plot, &x, &y));
    assert_true(x.low == 1 && x.high == 3 && y.low == -2 && y.high == 1);
    plot.log_y = true; /* only the positive one is left */
    assert_true(cli_plot_ranges(&plot, &x, &y));
    assert_true(y.low == 0.5 && y.high == 2);
    cli_plot_free(&plot);
    plot = plot_of(1, (double[]){ NAN });
    assert_false(cli_plot_ranges(&plot, &x, &y));
    cli_plot_free(&plot);
}

static void test_sides(void **state)
{
    (void)state;
    static const struct {
        bool log;
        double value;
        cli_side side;
    } cases[] = { { false, 1, CLI_INSIDE },    { false, 0.999, CLI_BELOW },
                  { false, 3, CLI_INSIDE },    { false, 3.001, CLI_ABOVE },
                  { false, 0, CLI_BELOW },     { false, -1, CLI_BELOW },
                  { true, 0, CLI_GAP },        { true, -1, CLI_GAP },
                  { true, 1e-300, CLI_BELOW }, { true, 1, CLI_INSIDE },
                  { false, NAN, CLI_GAP },     { false, INFINITY, CLI_GAP },
                  { true, -INFINITY, CLI_GAP } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(cli_side_of((cli_range){ 1, 3 }, cases[i].log, cases[i].value),
                         cases[i].side);
}

/* One value far away does not hide the others; on a logarithmic axis nothing is left out. */
static void test_axes(void **state)
{
    (void)state;
    static const struct {
        double values[8], low, high;
        size_t count;
        bool log;
    } cases[] = {
        { { 1, 2, 3, 4, 5, 6, 7, 1e6 }, 1, 7, 8, false },
        { { 1, 2, 3, 4, 5, 6, 7, 100 }, 1, 100, 8, false }, /* not that far */
        { { -1e9, 2, 3, 4, 5, 6, 7, 8 }, 2, 8, 8, false },
        { { 1, 2, 3, 4, 5, 6, 7, 1e6 }, 1, 1e6, 8, true },
        { { 5 }, 2.5, 7.5, 1, false },
        { { 0 }, -1, 1, 1, false },
        { { -4 }, -6, -2, 1, false },
        { { 8 }, 4, 16, 1, true },
        { { 3, 3, 3, 3 }, 1.5, 4.5, 4, false },
        { { NAN, 2, INFINITY, 1 }, 1, 2, 4, false },
        { { -1, 0, 2, 4 }, 2, 4, 4, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cli_range range;
        double values[8];
        memcpy(values, cases[i].values, sizeof values);
        assert_true(cli_axis_range(values, cases[i].count, NULL, cases[i].log, &range));
        if (range.low != cases[i].low || range.high != cases[i].high)
            fail_msg("case %zu: %g to %g", i, range.low, range.high);
    }
    cli_range range, keep = { 1, 1e6 }; /* what must stay visible */
    double values[] = { 1, 2, 3, 4, 5, 6, 7, 1e6 };
    assert_true(cli_axis_range(values, 8, &keep, false, &range));
    assert_true(range.high == 1e6);
    double none[] = { NAN, -INFINITY, 0 };
    assert_false(cli_axis_range(none, 3, NULL, true, &range));
    assert_false(cli_axis_range(none, 0, NULL, false, &range));
}

static void test_places(void **state)
{
    (void)state;
    assert_true(cli_place((cli_range){ 2, 6 }, false, 3) == 0.25);
    assert_true(cli_place((cli_range){ 2, 6 }, false, 1) == 0);
    assert_true(cli_place((cli_range){ 2, 6 }, false, 7) == 1);
    assert_true(fabs(cli_place((cli_range){ 1, 100 }, true, 10) - 0.5) < 1e-12);
    assert_true(fabs(cli_place((cli_range){ -1.5e308, 1.5e308 }, false, 0) - 0.5) < 1e-12);
}

static void test_ticks(void **state)
{
    (void)state;
    double ticks[16];
    assert_int_equal(cli_ticks((cli_range){ 0, 1 }, false, 5, ticks), 6);
    assert_true(fabs(ticks[1] - 0.2) < 1e-12 && fabs(ticks[5] - 1) < 1e-12);
    assert_int_equal(cli_ticks((cli_range){ -1, 1 }, false, 4, ticks), 5);
    assert_true(ticks[0] == -1 && ticks[2] == 0 && ticks[4] == 1);
    assert_int_equal(cli_ticks((cli_range){ 0.001, 100 }, true, 8, ticks), 6);
    assert_true(fabs(ticks[0] - 0.001) < 1e-12 && fabs(ticks[5] - 100) < 1e-9);
    assert_true(cli_ticks((cli_range){ 1e-300, 1e300 }, true, 8, ticks) <= 9);
    assert_true(cli_ticks((cli_range){ -1e308, 1e308 }, false, 8, ticks) <= 9);
    char text[CLI_SHORT]; /* short enough for the margin, never cut off */
    assert_string_equal(cli_tick(1000000, text), "1000000");
    assert_string_equal(cli_tick(1e13, text), "1e+13");
    assert_string_equal(cli_tick(-0.25, text), "-0.25");
    assert_true(strlen(cli_tick(-1.0 / 3 * 1e-300, text)) <= 9);
}

static void test_smoothing_is_tensorboards(void **state)
{
    (void)state;
    cli_plot plot = plot_of(4, (double[]){ 1, 2, NAN, 4 });
    cli_series_smooth(plot.series, 0.5);
    const double *y = plot.series->y;
    assert_true(y[0] == 1); /* debiased: the first point stays where it is */
    assert_true(fabs(y[1] - 5.0 / 3) < 1e-12);
    assert_true(isnan(y[2]));
    assert_true(fabs(y[3] - 21.0 / 7) < 1e-12);
    cli_plot_free(&plot);
}

static char *drawn(const cli_plot *plot, bool unicode, int width, int height)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cli_terminal terminal = { .out = out, .unicode = unicode, .width = width };
    cli_plot_text(plot, &terminal, width, height);
    fclose(out);
    return text;
}

static void test_a_falling_line_falls(void **state)
{
    (void)state;
    double y[20];
    for (int i = 0; i < 20; i++)
        y[i] = 20 - i;
    cli_plot plot = plot_of(20, y);
    char *text = drawn(&plot, false, 40, 6);
    int last = 0, rows = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *mark = strchr(line, '*');
        if (!mark || line[2] == '*')
            continue;
        rows++;
        /* Each row begins further right than the one above. */
        assert_true(mark - line > last);
        last = (int)(mark - line);
    }
    assert_int_equal(rows, 6);
    free(text);
    cli_plot_free(&plot);
}

static void test_lines_are_no_wider_than_asked(void **state)
{
    (void)state;
    cli_plot plot = plot_of(3, (double[]){ 1e-9, 123456.789, -5 });
    char *text = drawn(&plot, true, 60, 10);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(cli_width(line) <= 60 || strstr(line, "last"));
    free(text);
    cli_plot_free(&plot);
}

/* 21 points that fall from 2 to 1, one of them replaced by `odd`. */
static cli_plot plot_with(double odd)
{
    double y[21];
    for (int i = 0; i < 21; i++)
        y[i] = i == 12 ? odd : 2 - i / 20.0;
    return plot_of(21, y);
}

static void test_a_diverged_value_does_not_stretch_the_axis(void **state)
{
    (void)state;
    const double odd[] = { 1e30, -1e30, 1e308, -1e308 };
    for (int i = 0; i < 4; i++) {
        cli_range x, y;
        cli_plot plot = plot_with(odd[i]);
        assert_true(cli_plot_ranges(&plot, &x, &y));
        assert_true(y.low == 1 && y.high == 2 && x.low == 1 && x.high == 21);
        assert_int_equal(cli_side_of(y, false, odd[i]), odd[i] > 0 ? CLI_ABOVE : CLI_BELOW);
        assert_true(cli_place(y, false, odd[i]) == (odd[i] > 0));
        cli_series_stats stats = cli_series_stats_of(&plot, 0, y);
        assert_true(stats.outside == 1 && stats.gaps == 0 && stats.last == 1);
        assert_true(stats.high == (odd[i] > 0 ? odd[i] : 2)); /* the legend still shows it */
        cli_plot_free(&plot);
    }
}

static void test_usual_values_stay_on_the_axis(void **state)
{
    (void)state;
    cli_range x, y;
    double falling[1000], step[20] = { 0 };
    for (int i = 0; i < 1000; i++) /* most values are nearly 0, and it is still seen to fall */
        falling[i] = 2.3 * exp(-i / 10.0);
    cli_plot plot = plot_of(1000, falling);
    assert_true(cli_plot_ranges(&plot, &x, &y) && y.high == 2.3);
    cli_plot_free(&plot);
    step[19] = 1;
    plot = plot_of(20, step);
    assert_true(cli_plot_ranges(&plot, &x, &y) && y.low == 0 && y.high == 1);
    cli_plot_free(&plot);
    plot = plot_with(50); /* far, but the others are not yet a flat line */
    assert_true(cli_plot_ranges(&plot, &x, &y) && y.high == 50);
    cli_plot_free(&plot);
    plot = plot_with(1e30);
    plot.log_y = true; /* as requested: everything */
    assert_true(cli_plot_ranges(&plot, &x, &y) && cli_side_of(y, true, 1e30) == CLI_INSIDE);
    assert_int_equal(cli_series_stats_of(&plot, 0, y).outside, 0);
    cli_plot_free(&plot);
}

static void test_points_outside_are_marked_and_counted(void **state)
{
    (void)state;
    uni__text svg = { 0 };
    cli_plot plot = plot_with(1e30);
    char *text = drawn(&plot, false, 60, 8);
    assert_non_null(strstr(text, "^"));
    assert_non_null(strstr(text, "1 outside the axis"));
    int rows = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        rows += strchr(line, '*') != NULL;
    assert_int_equal(rows, 8 + 1); /* every row of the drawing, and the legend */
    free(text);
    cli_plot_svg(&plot, &svg);
    assert_non_null(strstr(svg.data, "1 point outside the axis"));
    assert_non_null(
        strstr(svg.data, "d=\"M532.0 44.0l4 8h-8z\"")); /* x: 12 of 20 parts; y: the top */
    assert_null(strstr(svg.data, "inf"));
    uni__text_free(&svg);
    cli_plot_free(&plot);
    plot = plot_with(-3);
    plot.log_y = true;
    text = drawn(&plot, true, 60, 8);
    assert_non_null(strstr(text, "1 not above 0"));
    free(text);
    cli_plot_free(&plot);
}

static void test_pages_hide_nothing(void **state)
{
    (void)state;
    cli_plot plot = plot_of(3, (double[]){ 1, NAN, 2 });
    uni__text text = { 0 };
    snprintf(plot.series->label, sizeof plot.series->label, "</script><b>\"x\"&");
    cli_plot_html(&plot, &text);
    assert_false(text.failed);
    assert_null(strstr(text.data, "</script><b>"));
    assert_non_null(strstr(text.data, "&lt;/script&gt;"));
    assert_non_null(strstr(text.data, "y:[1.0,null,2.0]"));
    uni__text_free(&text);
    cli_plot_free(&plot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_sides),
        cmocka_unit_test(test_axes),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_ticks),
        cmocka_unit_test(test_smoothing_is_tensorboards),
        cmocka_unit_test(test_a_falling_line_falls),
        cmocka_unit_test(test_lines_are_no_wider_than_asked),
        cmocka_unit_test(test_a_diverged_value_does_not_stretch_the_axis),
        cmocka_unit_test(test_usual_values_stay_on_the_axis),
        cmocka_unit_test(test_points_outside_are_marked_and_counted),
        cmocka_unit_test(test_pages_hide_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
