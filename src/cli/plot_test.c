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

static void test_ticks(void **state)
{
    (void)state;
    double ticks[16];
    assert_int_equal(cli_ticks((cli_range){ 0, 1 }, false, 5, ticks), 6 - 1);
    assert_true(fabs(ticks[1] - 0.2) < 1e-12);
    assert_int_equal(cli_ticks((cli_range){ -1, 1 }, false, 4, ticks), 4);
    assert_true(ticks[0] == -1 && ticks[2] == 0);
    assert_int_equal(cli_ticks((cli_range){ 0.001, 100 }, true, 8, ticks), 6);
    assert_true(fabs(ticks[0] - 0.001) < 1e-12 && fabs(ticks[5] - 100) < 1e-9);
    assert_true(cli_ticks((cli_range){ 1e-300, 1e300 }, true, 8, ticks) <= 8);
    assert_true(cli_ticks((cli_range){ -1e308, 1e308 }, false, 8, ticks) <= 8);
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
        assert_true(mark - line >
                    last); /* each row begins further to the right than the one above */
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
        cmocka_unit_test(test_ticks),
        cmocka_unit_test(test_smoothing_is_tensorboards),
        cmocka_unit_test(test_a_falling_line_falls),
        cmocka_unit_test(test_lines_are_no_wider_than_asked),
        cmocka_unit_test(test_pages_hide_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
