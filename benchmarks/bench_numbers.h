/*
 * bench_numbers.h - what the programs of ./bench share: the clock, and the middle of many
 * measurements.
 */
#ifndef UNISONO_BENCH_NUMBERS_H
#define UNISONO_BENCH_NUMBERS_H

#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct numbers {
    double median, low, high;
} numbers;

/* Sorts the values. */
static inline numbers sorted(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return (numbers){ values[count / 2], values[0], values[count - 1] };
}

/* The values stay in their order, in which they are paired with others. */
static inline numbers numbers_of(const double *values, int count)
{
    double copy[64];
    count = count < 64 ? count : 64;
    memcpy(copy, values, (size_t)count * sizeof *copy);
    return sorted(copy, count);
}

#endif
