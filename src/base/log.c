/*
 * log.c - the library's warnings, to stderr or to the program's function.
 *
 * The level and the function are the process-wide state that the design allows. The level is atomic
 * and starts as "not asked yet": the first message reads UNISONO_LOG. The function is set before
 * threads start (unisono/log.h), so it needs no lock. A message is one write(2) to stderr, so that
 * lines of several processes do not mix.
 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/log.h"

#include "base/shared.h"
#include "base/safe_text.h"

#define NOT_ASKED (-1)

static atomic_int current_level = NOT_ASKED;
static uni_log_function current_function;
static void *current_context;

static uni_log_level level_of_environment(void)
{
    static const char *const names[] = { "off", "error", "warn", "info", "debug" };
    const char *asked = getenv("UNISONO_LOG");
    for (size_t i = 0; asked && i < sizeof names / sizeof *names; i++)
        if (strcasecmp(asked, names[i]) == 0)
            return (uni_log_level)i;
    return UNI_LOG_WARN;
}

void uni_log_level_set(uni_log_level level)
{
    atomic_store(&current_level, (int)level);
}

uni_log_level uni__log_level_get(void)
{
    int level = atomic_load(&current_level);
    if (level == NOT_ASKED) {
        int expected = NOT_ASKED;
        level = (int)level_of_environment();
        /* If the program has set it in between, its level wins. */
        if (!atomic_compare_exchange_strong(&current_level, &expected, level))
            level = expected;
    }
    return (uni_log_level)level;
}

void uni_log_function_set(uni_log_function function, void *context)
{
    current_function = function;
    current_context = context;
}

void uni__log(uni_log_level level, const char *format, ...)
{
    if (level == UNI_LOG_OFF || level > uni__log_level_get())
        return;
    static const char prefix[] = "unisono: ";
    char message[UNI_ERROR_MESSAGE_SIZE + 256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    if (current_function) {
        current_function(current_context, level, message);
        return;
    }
    /* Messages contain names from files and workers; stderr may be a terminal. */
    uni__text safe = { 0 };
    uni__text_add_string(&safe, prefix);
    uni__text_add_safe(&safe, message, strlen(message), "\n\t");
    uni__text_add_char(&safe, '\n');
    /* A failure to write a warning cannot be reported anywhere. */
    ssize_t written = safe.failed ? 0 : write(STDERR_FILENO, safe.data, safe.size);
    (void)written;
    uni__text_free(&safe);
}
