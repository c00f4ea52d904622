/*
 * common.h - what the engine's examples share: their command line, and images from CSV files.
 *
 * Every example is a main that calls example_main with a function that does the work, so that what is left in its file is
 * the training. One thread.
 */
#ifndef EXAMPLES_ENGINE_COMMON_H
#define EXAMPLES_ENGINE_COMMON_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/nn.h>

typedef struct example_options {
    const char *data; /* --data FILE */
    int epochs; /* --epochs N */
    uint64_t seed; /* --seed N: of initial weights, shuffling and dropout; 1 */
    const char *output; /* --output DIR: logs and models; NULL: none are written */
    int verbose; /* of fit: a bar on a terminal, otherwise a line an epoch; --quiet: 0 */
} example_options;

/* Reads the command line over the defaults, runs, prints the error; the exit code. */
int example_main(int argc, char **argv, example_options defaults, const char *about,
                 int (*run)(const example_options *options, uni_error *err));

/* Where get-data puts a file: $XDG_CACHE_HOME/unisono/data/NAME or ~/.cache/unisono/data/NAME. Static memory. */
const char *example_cache(const char *name);

/* The loss or metric of the last epoch in a history. */
double example_last(const uni_value *history, const char *name);

/* Images with a class each; x is (count, pixels), 0 to 1. */
typedef struct image_set {
    int64_t count, pixels;
    float *x;
    int32_t *y;
} image_set;

/* A CSV file with `pixels` numbers from 0 to `white` and the class in each line; every fifth image is held out in `test`. */
UNI_MUST_USE int images_load(image_set *train, image_set *test, const char *path, int64_t pixels,
                             int white, uni_error *err);
void images_free(image_set *images);
/* Columns of them, the pixels in the shape of a sample. */
uni_column images_x(const image_set *images, int ndim, const int64_t *shape);
uni_column images_y(const image_set *images);

#endif
