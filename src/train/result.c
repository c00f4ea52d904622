/* result.c - what a run leaves for its caller. Made by the user's thread when the run is done. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/dict.h"
#include "train/run_internal.h"

struct uni_result {
    char *run_dir, *latest, *best;
    uni_value *kept; /* paths, best last */
    int world_size, attempts, exit_code;
    uni_value **metrics; /* by rank */
    uni_value **returned; /* by rank: {"result": value} or NULL */
    int64_t *iterations;
    uni_value *latest_dict;
    uni_error error;
};

static char *path_or_null(const char *path)
{
    return path[0] ? strdup(path) : NULL;
}

uni_result *uni__result_new(uni__run *run)
{
    size_t count = (size_t)run->num_workers;
    uni_result *result = calloc(1, sizeof *result);
    if (!result)
        return NULL;
    result->metrics = calloc(count, sizeof *result->metrics);
    result->returned = calloc(count, sizeof *result->returned);
    result->iterations = calloc(count, sizeof *result->iterations);
    result->run_dir = strdup(run->dir);
    if (!result->metrics || !result->returned || !result->iterations || !result->run_dir) {
        uni_result_free(result);
        return NULL;
    }
    result->world_size = run->num_workers;
    result->attempts = run->attempt;
    result->latest = path_or_null(run->latest_path);
    result->best = path_or_null(run->best_path);
    result->kept = run->kept;
    run->kept = NULL;
    result->error = run->error;
    result->exit_code = run->error.code ? uni__cause_exit_code(&run->cause) : UNI_EXIT_OK;
    for (int i = 0; i < run->num_workers; i++) {
        uni__rank *rank = &run->ranks[i];
        result->iterations[i] = rank->reported;
        if (rank->metrics_size &&
            uni_msgpack_read(&result->metrics[i], rank->metrics, rank->metrics_size, NULL) < 0)
            result->metrics[i] = NULL;
        if (rank->returned_size &&
            uni__dict_decode(&result->returned[i], rank->returned, rank->returned_size, NULL) < 0)
            result->returned[i] = NULL;
    }
    return result;
}

void uni__result_set_latest_dict(uni_result *result, uni_value *dict)
{
    uni_value_free(result->latest_dict);
    result->latest_dict = dict;
}

void uni_result_free(uni_result *result)
{
    if (!result)
        return;
    for (int i = 0; i < result->world_size; i++) {
        uni_value_free(result->metrics[i]);
        uni_value_free(result->returned[i]);
    }
    free(result->metrics);
    free(result->returned);
    free(result->iterations);
    uni_value_free(result->latest_dict);
    free(result->run_dir);
    free(result->latest);
    free(result->best);
    uni_value_free(result->kept);
    free(result);
}

const char *uni_result_run_dir(const uni_result *result)
{
    return result->run_dir;
}

int uni_result_world_size(const uni_result *result)
{
    return result->world_size;
}

const uni_value *uni_result_returned(const uni_result *result, int rank)
{
    if (rank < 0 || rank >= result->world_size)
        return NULL;
    const uni_value *value = uni_dict_get(result->returned[rank], "result");
    return uni_value_type_of(value) == UNI_TYPE_NULL ? NULL : value;
}

const uni_value *uni_result_metrics(const uni_result *result, int rank)
{
    return rank < 0 || rank >= result->world_size ? NULL : result->metrics[rank];
}

int64_t uni_result_iterations(const uni_result *result, int rank)
{
    return rank < 0 || rank >= result->world_size ? 0 : result->iterations[rank];
}

const char *uni_result_latest_checkpoint(const uni_result *result)
{
    return result->latest;
}

const char *uni_result_best_checkpoint(const uni_result *result)
{
    return result->best;
}

int uni_result_num_checkpoints(const uni_result *result)
{
    return (int)uni_list_size(result->kept);
}

const char *uni_result_checkpoint(const uni_result *result, int index)
{
    return index < 0 ? NULL : uni_value_as_string(uni_list_get(result->kept, (size_t)index), NULL);
}

const uni_value *uni_result_latest_dict(const uni_result *result)
{
    return result->latest_dict;
}

int uni_result_attempts(const uni_result *result)
{
    return result->attempts;
}

const uni_error *uni_result_error(const uni_result *result)
{
    return &result->error;
}

int uni_result_exit_code(const uni_result *result)
{
    return result->exit_code;
}
