/* safe_stream_test.c - nothing that a terminal interprets gets through, except what the command
 * sends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cli/terminal.h"

/* What the stream has written so far. */
static char *written(int fd)
{
    static char text[4096];
    ssize_t size = pread(fd, text, sizeof text - 1, 0);
    assert_true(size >= 0);
    text[size] = 0;
    return text;
}

static FILE *open_stream(cli_safe **safe, int *fd)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    *fd = dup(fileno(file));
    fclose(file);
    FILE *stream = cli_safe_open(safe, *fd, _IOFBF);
    assert_non_null(stream);
    return stream;
}

static void close_stream(FILE *stream, cli_safe *safe, int fd)
{
    fclose(stream);
    free(safe);
    close(fd);
}

static void test_text(void **state)
{
    (void)state;
    cli_safe *safe;
    int fd;
    FILE *stream = open_stream(&safe, &fd);
    fputs("a\033]0;title\007b\tc\n\xc2\x9b\x31m \xe2\x80\xae \xff\xfe \xc3\xa9 \xe2\x80\x8d\r",
          stream);
    fflush(stream);
    assert_string_equal(written(fd),
                        "a\\u001b]0;title\\u0007b\tc\n\\u009b1m \\u202e \\xff\\xfe \xc3\xa9 "
                        "\xe2\x80\x8d\\r");
    close_stream(stream, safe, fd);
}

static void test_own_sequences(void **state)
{
    (void)state;
    cli_safe *safe, *other;
    int fd, other_fd;
    FILE *stream = open_stream(&safe, &fd), *second = open_stream(&other, &other_fd);
    fprintf(stream, "%sbold%s", cli_safe_sequence(safe, "[1m"), cli_safe_sequence(safe, "[0m"));
    assert_string_equal(cli_safe_sequence(safe, "]0;"), "");
    /* The mark of another stream is plain text, and so is an incomplete one. */
    fprintf(stream, "%.3s", cli_safe_sequence(other, "[1m"));
    fflush(stream);
    assert_memory_equal(written(fd), "\033[1mbold\033[0m\\xff", 16);
    assert_null(strchr(written(fd) + 14, '\033'));
    close_stream(stream, safe, fd);
    close_stream(second, other, other_fd);
}

/* Writes may split characters and marks anywhere. */
static void test_pieces(void **state)
{
    (void)state;
    cli_safe *safe;
    int fd;
    FILE *stream = open_stream(&safe, &fd);
    char all[64];
    snprintf(all, sizeof all, "\xf0\x9f\x98\x80%sx\xe2\x80\xae", cli_safe_sequence(safe, "[2K"));
    for (const char *at = all; *at; at++) {
        fputc(*at, stream);
        fflush(stream);
    }
    assert_string_equal(written(fd), "\xf0\x9f\x98\x80\033[2Kx\\u202e");
    close_stream(stream, safe, fd);
}

static void expect_line(cli_safe *safe, const char *line, bool colour, const char *expected)
{
    uni__text out = { 0 }, shown = { 0 };
    cli_safe_add_line(safe, &out, line, strlen(line), colour);
    cli_safe_render(safe, &shown, out.data, out.size);
    assert_string_equal(shown.data, expected);
    uni__text_free(&out);
    uni__text_free(&shown);
}

/* A program's colours are kept on a colour terminal and end with the line; nothing else is. */
static void test_lines_of_programs(void **state)
{
    (void)state;
    cli_safe *safe;
    int fd;
    FILE *stream = open_stream(&safe, &fd);
    expect_line(safe, "\033[1;31mred\033[m", true, "\033[1;31mred\033[0m\033[0m");
    expect_line(safe, "a\033[8mb\033[30;40mc", true, "abc");
    expect_line(safe, "\033[31mred", false, "\\u001b[31mred");
    expect_line(safe, "\033[2J\033]52;c;eA==\007\033[3", true,
                "\\u001b[2J\\u001b]52;c;eA==\\u0007\\u001b[3");
    expect_line(safe, "\033[?1049h\033[6n", true, "\\u001b[?1049h\\u001b[6n");
    close_stream(stream, safe, fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_own_sequences),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_lines_of_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
