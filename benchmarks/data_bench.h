/* data_bench.h - what the files of data_bench share: lines of measurements, and the part that runs
 * under a memory limit. */
#ifndef UNISONO_BENCH_DATA_BENCH_H
#define UNISONO_BENCH_DATA_BENCH_H

#include <stdbool.h>
#include <unisono/data.h>

void bench_line(const char *metric, const char *unit, double value);
void bench_pair(const char *metric, const char *unit, double ours, double peer,
                const char *peer_name, double ratio);
uni_dataset *bench_open(const char *path, bool shuffle);

/* data_limited.c: 8 GB of npy, CSV and TFRecord within 512 MB; `self` is this program. */
void bench_limited(const char *self, bool quick);

#endif
