/* process.c - reading /proc/PID/stat and status; the interface is process.h. */
#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* PF_EXITING: set at the beginning of exit, before files are closed. */
#define FLAG_EXITING 0x4u

static bool read_file(int pid, const char *name, char *text, size_t room)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, text, room - 1);
    close(fd);
    text[size > 0 ? size : 0] = '\0';
    return size > 0;
}

bool uni__process_look(int pid, uni__process *out)
{
    char text[1024];
    memset(out, 0, sizeof *out);
    if (!read_file(pid, "stat", text, sizeof text))
        return false;
    /* The second field is the name in parentheses and may contain anything; the last one ends
     * it. */
    const char *rest = strrchr(text, ')');
    unsigned flags = 0;
    unsigned long long start = 0;
    if (!rest || sscanf(rest + 1,
                        " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
                        "%llu",
                        &out->state, &out->parent, &flags, &start) != 4)
        return false;
    out->start_time = start;
    out->exiting = (flags & FLAG_EXITING) || out->state == 'Z' || out->state == 'X';
    return true;
}

bool uni__process_is_ending(int pid)
{
    uni__process now;
    return !uni__process_look(pid, &now) || now.exiting;
}

uint64_t uni__process_switches(int pid)
{
    char text[4096];
    uint64_t count = 0;
    if (!read_file(pid, "status", text, sizeof text))
        return 0;
    for (const char *p = text; (p = strstr(p, "voluntary_ctxt_switches:")) != NULL;) {
        p = strchr(p, ':') + 1; /* the second line is nonvoluntary_ctxt_switches */
        count += strtoull(p, NULL, 10);
    }
    return count;
}

int uni__process_check(uni_error *err)
{
    uni__process self;
    if (uni__process_look(getpid(), &self))
        return 0;
    return uni_error_set(
        err, UNI_EUNSUPPORTED,
        "/proc is not mounted (or shows another pid namespace): unisono needs it to "
        "see which processes are alive; mount -t proc proc /proc");
}
