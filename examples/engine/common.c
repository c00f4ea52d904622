/* common.c - see common.h. */
#include "common.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <unisono/run.h>
#include <unisono/experimental/coordinator.h>

/* ---- the command line ---- */

typedef enum asked { RUN, HELP, WRONG } asked;

static asked read_options(example_options *options, int argc, char **argv)
{
    static const struct option names[] = {
        { "help", no_argument, NULL, 'h' },           { "data", required_argument, NULL, 'd' },
        { "epochs", required_argument, NULL, 'e' },   { "seed", required_argument, NULL, 's' },
        { "output", required_argument, NULL, 'o' },   { "quiet", no_argument, NULL, 'q' },
        { "strategy", required_argument, NULL, 't' }, { NULL, 0, NULL, 0 },
    };
    int option;
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (option == 'd')
            options->data = optarg;
        else if (option == 'e')
            options->epochs = atoi(optarg);
        else if (option == 's')
            options->seed = strtoull(optarg, NULL, 10);
        else if (option == 'o')
            options->output = optarg;
        else if (option == 'q')
            options->verbose = 0;
        else if (option == 't')
            options->strategy_name = optarg;
        else
            return option == 'h' ? HELP : WRONG;
    }
    return optind == argc && options->epochs > 0 && options->seed > 0 ? RUN : WRONG;
}

/* The strategy by its name, over the workers of `unisono run` (or of TF_CONFIG) where it has
 * any. */
static int run_under_strategy(example_options *options,
                              int (*run)(const example_options *options, uni_error *err),
                              int *exit_code, uni_error *err)
{
    uni_session *session = NULL;
    const char *name = options->strategy_name;
    bool workers = name != NULL && (strncmp(name, "multi_worker", 12) == 0 ||
                                    strncmp(name, "parameter_server", 16) == 0);
    if (workers)
        UNI_TRY(uni_session_open(&session, err));
    int status = uni_strategy_open(&options->strategy, name != NULL ? name : "none", session, err);
    if (status == UNI_EINVAL) /* `unisono run` does not start a program again that says so */
        *exit_code = UNI_EXIT_USAGE;
    if (status == 0 && name != NULL && example_is_chief(options)) {
        printf("Number of devices: %d\n",
               uni_strategy_info_of(options->strategy)->num_replicas_in_sync);
        fflush(stdout); /* fit writes its lines itself */
    }
    if (status == 0)
        status = run(options, err);
    if (status == 0)
        example_print_servers(options);
    uni_strategy_free(options->strategy);
    uni_session_close(session);
    return status;
}

int example_main(int argc, char **argv, example_options defaults, const char *about,
                 int (*run)(const example_options *options, uni_error *err))
{
    uni_error err = { 0 };
    int exit_code = UNI_EXIT_FAILURE;
    example_options options = defaults;
    options.seed = options.seed > 0 ? options.seed : 1;
    options.verbose = isatty(1) ? 1 : 2;
    asked what = read_options(&options, argc, argv);
    if (what != RUN) {
        fprintf(
            what == HELP ? stdout : stderr,
            "%s\nusage: %s [--epochs N] [--seed N] [--data FILE] [--output DIR] [--quiet]\n"
            "       [--strategy none|mirrored[:DEVICES]|one_device:DEVICE|multi_worker[:N]|\n"
            "                   parameter_server[:async|:bounded=N|:sync]]\n"
            "multi_worker and parameter_server run under `unisono run -n 2` (and --servers 1).\n",
            about, argv[0]);
        return what == HELP ? 0 : UNI_EXIT_USAGE;
    }
    if (run_under_strategy(&options, run, &exit_code, &err) < 0) {
        fprintf(stderr, "%s: %s\n", argv[0], err.message);
        return exit_code;
    }
    return 0;
}

/* ---- training ---- */

double example_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

bool example_is_chief(const example_options *options)
{
    return uni_strategy_info_of(options->strategy)->is_chief;
}

int example_fit(const example_options *options, uni_model *model, const uni_fit_options *fit,
                uni_value **history, uni_error *err)
{
    uni_fit_options mine = *fit;
    mine.seed = mine.seed != 0 ? mine.seed : options->seed;
    /* Without --strategy fit chooses itself how many threads share a step. */
    if (options->strategy_name == NULL)
        return uni_model_fit(history, model, fit, err);
    UNI_TRY(uni_strategy_place(options->strategy, model, err));
    return uni_strategy_fit(history, options->strategy, model, &mine, err);
}

int example_fit_and_test(const example_options *options, uni_model *model,
                         const uni_fit_options *fit, const uni_column *test_x,
                         const uni_column *test_y, uni_error *err)
{
    uni_value *result = NULL;
    UNI_TRY(example_fit(options, model, fit, NULL, err));
    if (!example_is_chief(options))
        return 0;
    UNI_TRY(uni_model_evaluate(
        &result, model,
        UNI_OPTIONS(uni_fit_options, .x = test_x, .num_x = 1, .y = test_y, .num_y = 1), err));
    printf("test loss: %.4f, test accuracy: %.2f %%\n", uni_dict_get_float(result, "loss", 0),
           100 * uni_dict_get_float(result, "accuracy", 0));
    uni_value_free(result);
    return 0;
}

const char *example_cache(const char *name)
{
    static char path[1024];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL && cache[0] != '\0')
        snprintf(path, sizeof path, "%s/unisono/data/%s", cache, name);
    else
        snprintf(path, sizeof path, "%s/.cache/unisono/data/%s", home != NULL ? home : "", name);
    return path;
}

double example_last(const uni_value *history, const char *name)
{
    const uni_value *values = uni_dict_get(history, name);
    size_t count = uni_list_size(values);
    return count > 0 ? uni_value_as_float(uni_list_get(values, count - 1), 0) : 0;
}

void example_print_servers(const example_options *options)
{
    uni_value *stats = NULL;
    if (!example_is_chief(options) ||
        uni_strategy_server_stats(&stats, options->strategy, NULL) < 0)
        return; /* no parameter servers */
    const uni_value *histogram = uni_dict_get(stats, "staleness");
    printf("%lld updates; staleness", (long long)uni_dict_get_int(stats, "updates", 0));
    for (size_t i = 0; i < uni_list_size(histogram); i++)
        printf("%s %zu: %lld", i > 0 ? "," : "", i,
               (long long)uni_value_as_int(uni_list_get(histogram, i), 0));
    printf("\n");
    uni_value_free(stats);
}

/* ---- images ---- */

static int add_image(image_set *images, const char *line, int64_t pixels, int white)
{
    if ((images->count & (images->count - 1)) == 0) { /* room for the next power of two */
        size_t room = images->count > 0 ? 2 * (size_t)images->count : 1;
        float *x = realloc(images->x, room * (size_t)pixels * sizeof *x);
        images->x = x != NULL ? x : images->x;
        int32_t *y = realloc(images->y, room * sizeof *y);
        images->y = y != NULL ? y : images->y;
        if (x == NULL || y == NULL)
            return UNI_ENOMEM;
    }
    float *x = images->x + images->count * pixels;
    for (int64_t i = 0; i <= pixels; i++) {
        char *end = NULL;
        double number = strtod(line, &end);
        if (end == line || !(number >= 0 && number <= (i < pixels ? white : 1000)))
            return UNI_EFORMAT; /* NaN, too */
        if (i < pixels)
            x[i] = (float)(number / white);
        else
            images->y[images->count] = (int32_t)number;
        line = end + (*end == ',');
    }
    images->count++;
    return 0;
}

int images_load(image_set *train, image_set *test, const char *path, int64_t pixels, int white,
                uni_error *err)
{
    *train = *test = (image_set){ .pixels = pixels };
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return uni_error_set_errno(err, errno,
                                   "cannot open the images in %s (examples/engine/get-data fetches "
                                   "them; --data FILE is another place)",
                                   path);
    char *line = NULL;
    size_t size = 0;
    int status = 0, row = 0;
    for (; status == 0 && getline(&line, &size, file) > 0; row++)
        status = add_image(row % 5 == 4 ? test : train, line, pixels, white);
    free(line);
    fclose(file);
    bool few = status == 0 && test->count == 0;
    if (status < 0 || few) {
        images_free(train);
        images_free(test);
        if (few)
            return uni_error_set(err, UNI_EFORMAT, "%s has fewer than five images", path);
        return uni_error_set(err, status,
                             "line %d of %s is not an image: %lld numbers from 0 to %d and a class "
                             "were expected",
                             row, path, (long long)pixels, white);
    }
    return 0;
}

void images_free(image_set *images)
{
    free(images->x);
    free(images->y);
    images->x = NULL;
    images->y = NULL;
    images->count = 0;
}

uni_column images_x(const image_set *images, int ndim, const int64_t *shape)
{
    int64_t dims[UNI_TENSOR_MAX_DIMS] = { images->count };
    memcpy(dims + 1, shape, (size_t)ndim * sizeof *shape);
    return uni_column_view(UNI_F32, ndim + 1, dims, images->x);
}

uni_column images_y(const image_set *images)
{
    return uni_column_view(UNI_I32, 1, &images->count, images->y);
}
