/* clock.c - the two clocks, and dates for directory names. Any thread. */
#include <math.h>
#include <stdio.h>
#include <time.h>
#include "base/clock.h"

uint64_t uni__monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double uni__wall_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void uni__format_date(double wall_seconds, char out[20])
{
    /* Years beyond 9999 do not fit the 20 bytes; they and NaN can come only from damaged files. */
    if (!(wall_seconds >= 0 && wall_seconds < 253370764800.0))
        wall_seconds = 0;
    time_t seconds = (time_t)floor(wall_seconds);
    struct tm parts;
    if (!localtime_r(&seconds, &parts) || strftime(out, 20, "%Y-%m-%d_%H-%M-%S", &parts) == 0)
        snprintf(out, 20, "0000-00-00_00-00-00");
}
