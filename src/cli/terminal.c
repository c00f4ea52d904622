/* terminal.c - see terminal.h. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/safe_text.h"
#include "cli/terminal.h"
#include "unisono/run.h"

/* Checks the locale's variables in their order; if none is set, assumes UTF-8, like today's
 * terminals. */
static bool speaks_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && value[0])
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return true;
}

static void measure(cli_terminal *terminal)
{
    struct winsize size = { 0 };
    const char *columns = getenv("COLUMNS");
    terminal->width = 80;
    terminal->height = 24;
    if (terminal->is_terminal && ioctl(fileno(terminal->out), TIOCGWINSZ, &size) == 0 &&
        size.ws_col > 0) {
        terminal->width = size.ws_col;
        terminal->height = size.ws_row;
    } else if (columns && atoi(columns) > 0) {
        terminal->width = atoi(columns);
    }
    if (terminal->width < 40)
        terminal->width = 40;
    if (terminal->width > 400)
        terminal->width = 400;
}

void cli_terminal_colour(cli_terminal *terminal, const char *when)
{
    const char *no_colour = getenv("NO_COLOR"), *kind = getenv("TERM");
    bool dumb = !kind || strcmp(kind, "dumb") == 0;
    terminal->colour = false;
    if (when && strcmp(when, "always") == 0)
        terminal->colour = true;
    else if (!when || strcmp(when, "auto") == 0)
        terminal->colour = terminal->is_terminal && !dumb && !(no_colour && no_colour[0]);
}

cli_terminal cli_terminal_of(FILE *out, const char *when)
{
    cli_terminal terminal = { .out = out, .is_terminal = isatty(fileno(out)) == 1 };
    cli_terminal_colour(&terminal, when);
    terminal.unicode = speaks_utf8();
    measure(&terminal);
    return terminal;
}

void cli_terminal_protect(cli_terminal *terminal)
{
    int fd = fileno(terminal->out);
    int buffering = terminal->is_terminal || fd == STDERR_FILENO ? _IOLBF : _IOFBF;
    FILE *stream = cli_safe_open(&terminal->safe, fd, buffering);
    /* Out of memory, even for a safe message. */
    if (!stream)
        _exit(UNI_EXIT_INTERNAL);
    terminal->out = stream;
}

const char *cli_sequence(const cli_terminal *terminal, const char *sequence)
{
    static const char *const plain[] = {
        "\033[0m",  "\033[1m",  "\033[2m",  "\033[31m", "\033[32m",
        "\033[33m", "\033[34m", "\033[35m", "\033[36m", "\033[95m",
        "\033[96m", "\033[H",   "\033[2J",  "\033[1A",  "\033[2K"
    };
    if (terminal->safe)
        return cli_safe_sequence(terminal->safe, sequence);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(plain[i] + 1, sequence) == 0)
            return plain[i];
    return "";
}

const char *cli_begin(const cli_terminal *terminal, int style)
{
    static const char *const styles[] = { "", "[1m", "[2m", "[32m", "[31m", "[33m", "[36m" };
    /* Distinct on dark and light backgrounds and, in this order, for most colour-blind people. */
    static const char *const series[] = { "[36m", "[33m", "[35m", "[32m",
                                          "[34m", "[31m", "[96m", "[95m" };
    if (!terminal->colour || style == CLI_PLAIN)
        return "";
    return cli_sequence(terminal,
                        style >= CLI_SERIES ? series[(style - CLI_SERIES) % 8] : styles[style]);
}

const char *cli_end(const cli_terminal *terminal, int style)
{
    return terminal->colour && style != CLI_PLAIN ? cli_sequence(terminal, "[0m") : "";
}

void cli_styled(const cli_terminal *terminal, int style, const char *text)
{
    fprintf(terminal->out, "%s%s%s", cli_begin(terminal, style), text, cli_end(terminal, style));
}

/* Reads one character: its bytes and code point. A byte that is not UTF-8 counts as one column. */
static size_t next_character(const char *text, unsigned *code)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t length = bytes[0] < 0x80   ? 1
                    : bytes[0] < 0xc2 ? 0
                    : bytes[0] < 0xe0 ? 2
                    : bytes[0] < 0xf0 ? 3
                    : bytes[0] < 0xf5 ? 4
                                      : 0;
    *code = length <= 1 ? bytes[0] : bytes[0] & (0x7fu >> length);
    if (length == 0) {
        *code = '?';
        return 1;
    }
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            *code = '?';
            return 1;
        }
        *code = *code << 6 | (bytes[i] & 0x3f);
    }
    return length;
}

static int columns_of(unsigned code)
{
    if ((code >= 0x300 && code <= 0x36f) || (code >= 0x200b && code <= 0x200f) ||
        (code >= 0x20d0 && code <= 0x20ff) || (code >= 0xfe00 && code <= 0xfe0f))
        return 0;
    if ((code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf) ||
        (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) ||
        (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60) ||
        (code >= 0x1f300 && code <= 0x1faff) || (code >= 0x20000 && code <= 0x3fffd))
        return 2;
    return 1;
}

int cli_width(const char *text)
{
    int width = 0;
    while (*text) {
        unsigned code = 0;
        text += next_character(text, &code);
        width += columns_of(code);
    }
    return width;
}

size_t cli_fit(const char *text, int width)
{
    const char *at = text;
    while (*at) {
        unsigned code = 0;
        size_t length = next_character(at, &code);
        width -= columns_of(code);
        if (width < 0)
            break;
        at += length;
    }
    return (size_t)(at - text);
}

void cli_wrap(FILE *out, int width, int indent, int at, const char *text)
{
    bool first = true; /* no space before the first word of a line */
    while (*text) {
        if (*text == '\n') {
            fprintf(out, "\n%*s", text[1] == '\n' || !text[1] ? 0 : indent, "");
            at = indent;
            first = true;
            text++;
            continue;
        }
        if (*text == ' ') {
            text++;
            continue;
        }
        char word[512];
        size_t length = strcspn(text, " \n");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        int columns = cli_width(word);
        if (!first && at + 1 + columns > width) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", (int)length, text);
        at += columns + !first;
        first = false;
        text += length;
    }
    fputc('\n', out);
}

void cli_print_clean(FILE *out, const char *text)
{
    uni__text safe = { 0 };
    uni__text_add_safe(&safe, text, strlen(text), "");
    if (safe.size)
        fwrite(safe.data, 1, safe.size, out);
    uni__text_free(&safe);
}
