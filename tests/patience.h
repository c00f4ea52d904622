/*
 * patience.h - promises about time are for a machine that has time. Upper bounds of tests are multiplied by this: 1 where every runnable process has a
 * core, more where several share one, and more under a sanitizer. What must never happen is still found, only later.
 */
#ifndef UNISONO_TESTS_PATIENCE_H
#define UNISONO_TESTS_PATIENCE_H

#include <stdio.h>
#include <unistd.h>

static inline double test_patience(void)
{
    double minute = 0, factor;
    int now = 0;
    FILE *file = fopen("/proc/loadavg", "re");
    if (file) {
        if (fscanf(file, "%lf %*f %*f %d", &minute, &now) != 2)
            minute = now = 0;
        fclose(file);
    }
    factor = (minute > now ? minute : now) / (double)sysconf(_SC_NPROCESSORS_ONLN);
    factor = factor < 1 ? 1 : factor;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    factor *= 4;
#endif
    return factor;
}

#endif
