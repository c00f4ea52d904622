/* format.c - see format.h. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "cli/format.h"

static double seconds_of(const char *unit, size_t length)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = { { "ms", 1e-3 }, { "s", 1 },    { "sec", 1 },  { "m", 60 },
                  { "min", 60 },  { "h", 3600 }, { "d", 86400 } };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strlen(units[i].name) == length && strncmp(units[i].name, unit, length) == 0)
            return units[i].seconds;
    return 0;
}

/* strtod without hexadecimal, "nan" and "infinity". */
static bool plain_number(const char **at, double *value)
{
    const char *text = *at;
    if (!isdigit((unsigned char)*text) && *text != '.')
        return false;
    size_t length = strspn(text, "0123456789.");
    char digits[64];
    if (length >= sizeof digits)
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    char *end = NULL;
    *value = strtod(digits, &end);
    *at = text + length;
    return *end == '\0' && end != digits;
}

bool cli_parse_duration(const char *text, double *seconds)
{
    double total = 0;
    const char *at = text;
    do {
        double value = 0;
        if (!plain_number(&at, &value))
            return false;
        size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz");
        double unit = length ? seconds_of(at, length) : at == text + strlen(text) && total == 0;
        if (unit == 0)
            return false;
        total += value * unit;
        at += length;
    } while (*at);
    *seconds = total;
    return true;
}

bool cli_parse_size(const char *text, double *bytes)
{
    double value = 0;
    if (!plain_number(&text, &value))
        return false;
    static const char letters[] = "kmgtp";
    double factor = 1;
    if (*text) {
        const char *letter = strchr(letters, tolower((unsigned char)*text));
        if (letter) {
            for (const char *at = letters; at <= letter; at++)
                factor *= 1024;
            text++;
            text += *text == 'i';
        }
        text += *text == 'B' || *text == 'b';
    }
    *bytes = value * factor;
    return *text == '\0';
}

const char *cli_duration(double seconds, char out[CLI_SHORT])
{
    if (!(seconds >= 0))
        seconds = 0;
    long long whole = seconds < 1e15 ? (long long)(seconds + 0.5) : 0;
    if (seconds < 0.9995)
        snprintf(out, CLI_SHORT, "%.*f ms", seconds < 0.00995 ? 1 : 0, seconds * 1e3);
    else if (seconds < 59.95)
        snprintf(out, CLI_SHORT, "%.1f s", seconds);
    else if (whole < 3600)
        snprintf(out, CLI_SHORT, "%lld min %02lld s", whole / 60, whole % 60);
    else if (whole < 86400)
        snprintf(out, CLI_SHORT, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
    else
        snprintf(out, CLI_SHORT, "%lld d %lld h", whole / 86400, whole / 3600 % 24);
    return out;
}

const char *cli_ago(double now, double then, char out[CLI_SHORT])
{
    double age = now - then;
    if (!(then > 0))
        snprintf(out, CLI_SHORT, "-");
    else if (age < 2)
        snprintf(out, CLI_SHORT, "just now");
    else if (age < 60)
        snprintf(out, CLI_SHORT, "%d s ago", (int)age);
    else if (age < 3600)
        snprintf(out, CLI_SHORT, "%d min ago", (int)(age / 60));
    else if (age < 48 * 3600)
        snprintf(out, CLI_SHORT, "%d h ago", (int)(age / 3600));
    else
        snprintf(out, CLI_SHORT, "%d days ago", (int)(age / 86400));
    return out;
}

const char *cli_interruptions(const uni_value *about, char out[CLI_SHORT])
{
    long long restarts = uni_dict_get_int(about, "attempt", 1) - 1,
              replaced = uni_dict_get_int(about, "replaced", 0);
    char first[CLI_SHORT] = "", second[CLI_SHORT] = "";
    if (restarts > 0)
        snprintf(first, sizeof first, "%lld restart%s", restarts, restarts == 1 ? "" : "s");
    if (replaced > 0)
        snprintf(second, sizeof second, "%lld rank%s replaced", replaced, replaced == 1 ? "" : "s");
    snprintf(out, CLI_SHORT, "%.16s%s%.18s", first, first[0] && second[0] ? " and " : "", second);
    return out;
}

const char *cli_date(double wall_seconds, char out[CLI_SHORT])
{
    time_t whole = (time_t)wall_seconds;
    struct tm parts;
    if (!(wall_seconds > 0) || !localtime_r(&whole, &parts) ||
        !strftime(out, CLI_SHORT, "%Y-%m-%d %H:%M:%S", &parts))
        snprintf(out, CLI_SHORT, "-");
    return out;
}

const char *cli_bytes(double bytes, char out[CLI_SHORT])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t unit = 0;
    while (bytes >= 1023.5 && unit < 5) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, CLI_SHORT, "%.*f %s", unit && bytes < 99.95 ? 1 : 0, bytes, units[unit]);
    return out;
}

const char *cli_number(double value, char out[CLI_SHORT])
{
    if (isnan(value))
        snprintf(out, CLI_SHORT, "NaN");
    else if (isinf(value))
        snprintf(out, CLI_SHORT, value > 0 ? "Infinity" : "-Infinity");
    else if (value == floor(value) && fabs(value) < 1e15)
        snprintf(out, CLI_SHORT, "%.0f", value == 0 ? 0.0 : value);
    else
        snprintf(out, CLI_SHORT, "%.4g", value);
    return out;
}

const char *cli_signal(int number, char out[CLI_SHORT])
{
    const char *name = sigabbrev_np(number);
    if (name)
        snprintf(out, CLI_SHORT, "SIG%s", name);
    else
        snprintf(out, CLI_SHORT, "signal %d", number);
    return out;
}
