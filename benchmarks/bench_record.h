/*
 * bench_record.h - nanoseconds that one record of the flight recorder takes.
 */
#ifndef UNISONO_BENCH_RECORD_H
#define UNISONO_BENCH_RECORD_H

#include "base/clock.h"
#include "comm/recorder.h"

#include "bench_numbers.h"

/* Negative when there is no recorder. */
static inline double record_ns(void)
{
    enum { RECORDS = 200000 };
    uni__recorder *recorder = NULL;
    if (uni__recorder_new(&recorder, NULL, 0, 2, "bench", NULL) < 0)
        return -1;
    double begun = now_s();
    for (int i = 0; i < RECORDS; i++) {
        uni__record *record = uni__recorder_begin(recorder, uni__monotonic_ns());
        record->number = (uint64_t)i;
        record->ended_ns = uni__monotonic_ns();
        uni__recorder_late(recorder, i & 1, 10);
    }
    double ns = (now_s() - begun) * 1e9 / RECORDS;
    uni__recorder_free(recorder);
    return ns;
}

#endif
