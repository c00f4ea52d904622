/*
 * common.h - what the engine's examples share: their command line with --strategy, training and
 * testing, images from CSV files.
 *
 * Every example is a main that calls example_main with a function that does the work, so that what
 * is left in its file is the training. One thread.
 */
#ifndef EXAMPLES_ENGINE_COMMON_H
#define EXAMPLES_ENGINE_COMMON_H

#include <stdbool.h>
#include <stdint.h>
#include <unisono/native.h>

#ifndef EXAMPLE_DATA /* compiled by hand: run it in the root of the source */
#define EXAMPLE_DATA "examples/data"
#endif

typedef struct example_options {
    const char *data; /* --data FILE */
    /* --strategy NAME: none, mirrored, multi_worker, parameter_server ...; none */
    const char *strategy_name;
    uni_strategy *strategy; /* opened by example_main */
    int epochs; /* --epochs N */
    uint64_t seed; /* --seed N: of initial weights, shuffling and dropout; 1 */
    const char *output; /* --output DIR: logs and models; NULL: none are written */
    int verbose; /* of fit: a bar on a terminal, otherwise a line an epoch; --quiet: 0 */
} example_options;

/* Reads the command line over the defaults, runs, prints the error; the exit code. */
int example_main(int argc, char **argv, example_options defaults, const char *about,
                 int (*run)(const example_options *options, uni_error *err));

/* Milliseconds, from any begin. */
double example_now_ms(void);
/* Only the chief of several workers prints and writes. */
bool example_is_chief(const example_options *options);
/* Puts the model under the strategy and trains it; history may be NULL. */
UNI_MUST_USE int example_fit(const example_options *options, uni_model *model,
                             const uni_fit_options *fit, uni_value **history, uni_error *err);
/* The same, and prints what the model makes of held-out data. */
UNI_MUST_USE int example_fit_and_test(const example_options *options, uni_model *model,
                                      const uni_fit_options *fit, const uni_column *test_x,
                                      const uni_column *test_y, uni_error *err);

/* With parameter servers: how many updates had 0, 1, 2 ... others between their read and their
 * own. */
void example_print_servers(const example_options *options);

/* Where get-data puts a file: $XDG_CACHE_HOME/unisono/data/NAME or ~/.cache/unisono/data/NAME.
 * Static memory. */
const char *example_cache(const char *name);

/* The loss or metric of the last epoch in a history. */
double example_last(const uni_value *history, const char *name);

/* Images with a class each; x is (count, pixels), 0 to 1. */
typedef struct image_set {
    int64_t count, pixels;
    float *x;
    int32_t *y;
} image_set;

/* A CSV file with `pixels` numbers from 0 to `white` and the class in each line; every fifth image
 * is held out in `test`. */
UNI_MUST_USE int images_load(image_set *train, image_set *test, const char *path, int64_t pixels,
                             int white, uni_error *err);
void images_free(image_set *images);
/* Columns of them, the pixels in the shape of a sample. */
uni_column images_x(const image_set *images, int ndim, const int64_t *shape);
uni_column images_y(const image_set *images);

#endif
