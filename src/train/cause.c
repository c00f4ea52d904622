/* cause.c - why a run failed, in plain words. Pure functions; any thread. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "train/run_internal.h"

static const char *cause_name(uni__cause_class kind)
{
    static const char *const names[] = {
#define NAME(name, text, exit_code) [UNI__CAUSE_##name] = text,
        UNI__CAUSE_LIST(NAME)
#undef NAME
    };
    return kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}

uni__cause uni__cause_new(const uni__run *run, uni__cause_class kind, int rank, int error_code,
                          const char *format, ...)
{
    va_list arguments;
    uni__cause cause = { .kind = kind,
                         .rank = rank,
                         .pid = rank >= 0 ? run->ranks[rank].worker->pid : 0,
                         .exit_code = -1,
                         .error_code = error_code,
                         .time = uni__wall_seconds() };
    va_start(arguments, format);
    vsnprintf(cause.message, sizeof cause.message, format, arguments);
    va_end(arguments);
    return cause;
}

int uni__cause_exit_code(const uni__cause *cause)
{
    static const int codes[] = {
#define CODE(name, text, exit_code) [UNI__CAUSE_##name] = exit_code,
        UNI__CAUSE_LIST(CODE)
#undef CODE
    };
    if (codes[cause->kind])
        return codes[cause->kind];
    if (cause->signal)
        return UNI_EXIT_SIGNAL_BASE + cause->signal;
    return cause->exit_code > 0 ? cause->exit_code : UNI_EXIT_FAILURE;
}

static const char *advice_for(const uni__exit *how)
{
    switch (how->signal) {
    case SIGBUS:
        return " (a file that it had mapped was cut off or could not be read from the disk, or a "
               "crash in "
               "its own code: look at its log and at dmesg)";
    case SIGSEGV:
    case SIGILL:
    case SIGFPE:
        return " (a crash in its own code or in a library: look at its log, or run that rank under "
               "gdb)";
    case SIGABRT:
        return " (it aborted itself: its log says why)";
    case SIGKILL:
        return how->oom == UNI__OOM_NEAR
                   ? " (killed from outside, or by the kernel's out-of-memory killer, which ended "
                     "a "
                     "process on this machine at that time: dmesg names it)"
                   : " (killed from outside, or by the kernel for lack of memory where no counter "
                     "tells)";
    default:
        return "";
    }
}

void uni__cause_of_exit(uni__cause *cause, int rank, const uni__exit *how, bool runs_functions,
                        bool had_returned)
{
    cause->rank = rank;
    cause->pid = how->pid;
    cause->exit_code = how->exit_code;
    cause->signal = how->signal;
    cause->time = uni__wall_seconds();
    cause->error_code = UNI_EWORKER;
    if (how->oom == UNI__OOM_YES) {
        cause->kind = UNI__CAUSE_OOM;
        snprintf(cause->message, sizeof cause->message,
                 "rank %d (pid %d) was killed by the kernel's out-of-memory killer (the memory "
                 "limit of its cgroup or the memory of the machine was reached): give it more "
                 "memory, use fewer workers or smaller batches",
                 rank, how->pid);
    } else if (how->signal == SIGTERM) {
        cause->kind = UNI__CAUSE_PREEMPTED;
        snprintf(cause->message, sizeof cause->message,
                 "rank %d (pid %d) was told to end by SIGTERM and did", rank, how->pid);
    } else if (how->signal) {
        cause->kind = UNI__CAUSE_SIGNAL;
        snprintf(cause->message, sizeof cause->message,
                 "rank %d (pid %d) was killed by signal %d, %s%s%s", rank, how->pid, how->signal,
                 strsignal(how->signal), how->core ? ", core dumped" : "", advice_for(how));
    } else {
        cause->kind = UNI__CAUSE_EXIT;
        snprintf(cause->message, sizeof cause->message, "rank %d (pid %d) exited with code %d%s",
                 rank, how->pid, how->exit_code,
                 runs_functions && !had_returned ? " before its train function returned" : "");
    }
}

void uni__cause_name_limit(uni__cause *cause, double address_space)
{
    bool own = (cause->kind == UNI__CAUSE_EXIT && cause->exit_code > 0) ||
               (cause->kind == UNI__CAUSE_SIGNAL &&
                (cause->signal == SIGABRT || cause->signal == SIGSEGV || cause->signal == SIGBUS));
    size_t used = strlen(cause->message);
    if (own && address_space > 0)
        snprintf(cause->message + used, sizeof cause->message - used,
                 "; its address space is limited to %.1f GiB (address_space_limit, "
                 "--address-space), and allocations and libraries beyond that fail",
                 address_space / (1024.0 * 1024 * 1024));
}

uni_value *uni__cause_to_value(const uni__cause *cause)
{
    if (cause->kind == UNI__CAUSE_NONE)
        return uni_value_null();
    uni_value *tail = uni_value_list();
    uni_value *out =
        UNI__DICT({ "class", uni_value_string(cause_name(cause->kind)) },
                  { "rank", uni_value_int(cause->rank) }, { "host", uni_value_string(cause->host) },
                  { "pid", uni_value_int(cause->pid) });
    int status = 0;
    if (cause->signal)
        status |= uni_dict_take(out, "signal", uni_value_int(cause->signal));
    else if (cause->exit_code >= 0)
        status |= uni_dict_take(out, "exit_code", uni_value_int(cause->exit_code));
    for (const char *line = cause->log_tail; line && *line;) {
        size_t length = strcspn(line, "\n");
        char *shown = strndup(line, length);
        size_t size = shown ? uni__settle_line(shown, length) : 0;
        status |= uni_list_take(tail, shown ? uni_value_string_n(shown, size) : NULL);
        free(shown);
        line += length + (line[length] == '\n');
    }
    status |= UNI__DICT_ADD(out, { "attempt", uni_value_int(cause->attempt) },
                            { "iteration", uni_value_int(cause->iteration) },
                            { "time", uni_value_float(cause->time) },
                            { "message", uni_value_string(cause->message) }, { "log_tail", tail });
    if (status == 0)
        return out;
    uni_value_free(out);
    return NULL;
}

void uni__cause_clear(uni__cause *cause)
{
    free(cause->log_tail);
    memset(cause, 0, sizeof *cause);
    cause->rank = -1;
    cause->exit_code = -1;
}
