/* result.c - what a run leaves for its caller. Made by the user's thread when the run is done. */
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "checkpoint/dict.h"
#include "train/run_internal.h"
#include "train/shared.h"

struct uni_result {
    uni_result_info info; /* what the caller reads; points into the fields below */
    char *run_dir, *latest, *best;
    uni_value *kept; /* paths, best last */
    const char **checkpoints; /* the strings of `kept` */
    uni_value **metrics; /* by rank */
    uni_value **answers; /* by rank: {"result": value} or NULL */
    const uni_value **returned; /* by rank: the values in `answers` */
    int64_t *iterations;
    uni_value *failure;
    uni_value *latest_dict;
    uni_error error;
    char hint[sizeof((uni__cause *)0)->hint];
};

static char *path_or_null(const char *path)
{
    return path[0] ? strdup(path) : NULL;
}

static int reserve(uni_result *result, const uni__run *run)
{
    size_t count = (size_t)run->num_workers;
    result->metrics = calloc(count, sizeof *result->metrics);
    result->answers = calloc(count, sizeof *result->answers);
    result->returned = calloc(count, sizeof *result->returned);
    result->iterations = calloc(count, sizeof *result->iterations);
    result->checkpoints = calloc(uni_list_size(run->outcome.kept) + 1, sizeof *result->checkpoints);
    result->run_dir = strdup(run->places.dir);
    bool failed = !result->metrics || !result->answers || !result->returned ||
                  !result->iterations || !result->checkpoints || !result->run_dir;
    result->info.world_size = failed ? 0 : run->num_workers;
    return failed ? UNI_ENOMEM : 0;
}

static void take_ranks(uni_result *result, const uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++) {
        const uni__rank *rank = &run->ranks[i];
        result->iterations[i] = rank->reported;
        if (rank->metrics_size &&
            uni__msgpack_read(&result->metrics[i], rank->metrics, rank->metrics_size, NULL) < 0)
            result->metrics[i] = NULL;
        if (rank->returned_size &&
            uni__dict_decode(&result->answers[i], rank->returned, rank->returned_size, NULL) < 0)
            result->answers[i] = NULL;
        const uni_value *value = uni_dict_get(result->answers[i], "result");
        result->returned[i] = uni_value_type_of(value) == UNI_TYPE_NULL ? NULL : value;
    }
}

uni_result *uni__result_new(uni__run *run)
{
    uni_result *result = calloc(1, sizeof *result);
    if (!result)
        return NULL;
    if (reserve(result, run) < 0) {
        uni_result_free(result);
        return NULL;
    }
    result->latest = path_or_null(run->outcome.latest_path);
    result->best = path_or_null(run->outcome.best_path);
    result->kept = run->outcome.kept;
    run->outcome.kept = NULL;
    size_t kept = uni_list_size(result->kept);
    for (size_t i = 0; i < kept; i++)
        result->checkpoints[i] = uni_value_as_string(uni_list_get(result->kept, i), NULL);
    result->error = run->outcome.error;
    if (result->error.code)
        memcpy(result->hint, run->outcome.cause.hint, sizeof result->hint);
    int failed = run->outcome.error.code == UNI_EFUNCTION ? run->outcome.cause.rank : -1;
    if (failed >= 0)
        result->failure = uni_value_copy(run->ranks[failed].failure);
    take_ranks(result, run);
    result->info = (uni_result_info){
        .run_dir = result->run_dir,
        .world_size = run->num_workers,
        .attempts = run->attempt.number,
        .returned = result->returned,
        .metrics = (const uni_value *const *)result->metrics,
        .iterations = result->iterations,
        .latest_checkpoint = result->latest,
        .best_checkpoint = result->best,
        .checkpoints = result->checkpoints,
        .num_checkpoints = (int)kept,
        .error = &result->error,
        .exit_code =
            run->outcome.error.code ? uni__cause_exit_code(&run->outcome.cause) : UNI_EXIT_OK,
        .failed_rank = failed,
        .failure = result->failure,
    };
    return result;
}

void uni__result_set_latest_dict(uni_result *result, uni_value *dict)
{
    uni_value_free(result->latest_dict);
    result->latest_dict = dict;
    result->info.latest_dict = dict;
}

const char *uni__result_hint(const uni_result *result)
{
    return result->hint;
}

const uni_result_info *uni_result_info_of(const uni_result *result)
{
    return &result->info;
}

void uni_result_free(uni_result *result)
{
    if (!result)
        return;
    for (int i = 0; i < result->info.world_size; i++) {
        uni_value_free(result->metrics[i]);
        uni_value_free(result->answers[i]);
    }
    free(result->metrics);
    free(result->answers);
    free(result->returned);
    free(result->checkpoints);
    free(result->iterations);
    uni_value_free(result->latest_dict);
    uni_value_free(result->failure);
    free(result->run_dir);
    free(result->latest);
    free(result->best);
    uni_value_free(result->kept);
    free(result);
}
