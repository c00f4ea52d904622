/*
 * dataset.h - the 1,797 handwritten digits in memory (examples/data/README.md says where they come
 * from).
 *
 * Every fifth image is held out: no worker trains on it.
 */
#ifndef DIGITS_DATASET_H
#define DIGITS_DATASET_H

#include <stdint.h>
#include <unisono/status.h>

enum { DIGITS_PIXELS = 64, DIGITS_CLASSES = 10, DIGITS_MAX = 1797 };

typedef struct digits_part {
    float pixels[DIGITS_MAX][DIGITS_PIXELS]; /* 0 to 1 */
    uint8_t labels[DIGITS_MAX];
    int count;
} digits_part;

typedef struct digits_dataset {
    digits_part train;
    digits_part test;
} digits_dataset;

/* About 1 MB: the caller frees it with free(). */
UNI_MUST_USE int digits_load(digits_dataset **out, const char *path, uni_error *err);

#endif
