/*
 * datasets.c - the controller's half of datasets: where every rank stood in its data at the iteration of the checkpoint that an attempt begins from.
 *
 * A rank's reports carry the states of its iterators (session_dataset.c), so results.jsonl has them for every iteration and a checkpoint needs no
 * place of its own for them. Once in an attempt the lines of that iteration are read, from the end of the file, and merged into one state a dataset,
 * which goes to all workers with their order: what is left to read, for any number of them. [controller]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unisono/checkpoint.h>
#include <unisono/data.h>

#include "base/file.h"
#include "base/log.h"
#include "train/run_internal.h"

#define MAX_RANKS 65536

/* The states that were found at one iteration: {name: {rank as text: state}}, of the last attempt that has any. */
struct found {
    int64_t iteration, attempt;
    uni_value *names;
};

static void forget(struct found *found)
{
    uni_value_free(found->names);
    found->names = uni_value_dict();
}

/* The run directory and the iteration that a checkpoint's path stands for. */
static char *directory_of(const uni__run *run, int64_t *iteration)
{
    *iteration = run->resume_iteration;
    if (!run->resume_path[0])
        return strdup(run->dir);
    uni_checkpoint *checkpoint = NULL;
    if (uni_checkpoint_open(&checkpoint, run->resume_path, NULL) == 0) {
        *iteration = uni_checkpoint_iteration(checkpoint);
        uni_checkpoint_close(checkpoint);
    }
    /* RUN/checkpoints/checkpoint_000001, RUN/.recovery/checkpoint_000001 */
    char *dir = strdup(run->resume_path);
    for (int i = 0; dir && i < 2; i++) {
        char *slash = strrchr(dir, '/');
        if (slash)
            *slash = 0;
    }
    return dir;
}

/* One line of results.jsonl, when it is of that iteration and has states. */
static void read_line(struct found *found, const char *line, size_t size)
{
    char wanted[48];
    int length =
        snprintf(wanted, sizeof wanted, "\"iteration\":%lld,", (long long)found->iteration);
    if (!memmem(line, size < 200 ? size : 200, wanted, (size_t)length) ||
        !memmem(line, size, "\"_datasets\"", 11))
        return;
    uni_value *report = NULL, *states = NULL;
    if (uni_json_read(&report, line, size, NULL) < 0)
        return;
    const char *text = uni_dict_get_string(uni_dict_get(report, "metrics"), "_datasets", "");
    int64_t attempt = uni_dict_get_int(report, "attempt", 0);
    int64_t rank = uni_dict_get_int(report, "rank", -1);
    if (attempt >= found->attempt && rank >= 0 && rank < MAX_RANKS &&
        uni_dict_get_int(report, "iteration", -1) == found->iteration &&
        uni_json_read(&states, text, strlen(text), NULL) == 0) {
        if (attempt > found->attempt)
            forget(found);
        found->attempt = attempt;
        for (size_t i = 0; i < uni_dict_size(states); i++) {
            const char *name = uni_dict_key_at(states, i);
            char key[16];
            snprintf(key, sizeof key, "%lld", (long long)rank);
            if (!uni_dict_get(found->names, name) &&
                uni_dict_take(found->names, name, uni_value_dict()) < 0)
                break;
            /* The dictionary is our own, made a line above. */
            uni_value *ranks = (uni_value *)uni_dict_get(found->names, name);
            if (uni_dict_get(
                    ranks,
                    key)) /* a member that was started again said it again: the later line counts */
                continue;
            if (uni_dict_take(ranks, key, uni_value_copy(uni_dict_value_at(states, i))) < 0)
                break;
        }
    }
    uni_value_free(states);
    uni_value_free(report);
}

/* Whether every dataset that was found has the states of all its shards. */
static bool is_complete(const struct found *found)
{
    for (size_t i = 0; i < uni_dict_size(found->names); i++) {
        const uni_value *ranks = uni_dict_value_at(found->names, i);
        if ((int64_t)uni_dict_size(ranks) <
            uni_dict_get_int(uni_dict_value_at(ranks, 0), "shards", 0))
            return false;
    }
    return uni_dict_size(found->names) > 0;
}

/* From the last line to the first: a checkpoint is near the end of the file, so the time does not grow with the run. */
static void read_lines(struct found *found, const char *text, size_t size)
{
    while (size > 0 && !is_complete(found)) {
        const char *newline = memrchr(text, '\n', size - 1);
        size_t begin = newline ? (size_t)(newline + 1 - text) : 0;
        read_line(found, text + begin, size - begin);
        size = begin;
    }
}

static void read_results(struct found *found, const char *path)
{
    struct stat info;
    int fd = uni__open_unlinked(path, NULL);
    if (fd < 0)
        return;
    if (fstat(fd, &info) == 0 && info.st_size > 0) {
        size_t size = (size_t)info.st_size;
        void *text = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (text != MAP_FAILED) {
            read_lines(found, text, size);
            munmap(text, size);
        }
    }
    close(fd);
}

/* The states of one dataset as a list by rank. Where all ranks share one state, one of them speaks for those that did not report. */
static uni_value *by_rank(const uni_value *ranks)
{
    const uni_value *any = uni_dict_value_at(ranks, 0);
    int64_t shards = uni_dict_get_int(any, "shards", 0);
    bool shared = uni_dict_get_int(any, "rounds", 0) != 0;
    uni_value *list = uni_value_list();
    for (int64_t i = 0; list && i < shards && i < MAX_RANKS; i++) {
        char key[16];
        snprintf(key, sizeof key, "%lld", (long long)i);
        const uni_value *state = uni_dict_get(ranks, key);
        if ((!state && !shared) || uni_list_take(list, uni_value_copy(state ? state : any)) < 0) {
            uni_value_free(list);
            return NULL;
        }
    }
    return list;
}

int uni__run_check_datasets(const uni_value *datasets, uni_error *err)
{
    if (datasets && uni_value_type_of(datasets) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL,
                             "datasets must be a dictionary of descriptions, not a %s",
                             uni_value_type_name(uni_value_type_of(datasets)));
    for (size_t i = 0; i < uni_dict_size(datasets); i++) {
        uni_dataset *dataset = NULL;
        int status = uni_dataset_from_config(&dataset, uni_dict_value_at(datasets, i), err);
        uni_dataset_unref(dataset);
        if (status < 0)
            return uni_error_prefix(err, "dataset %s", uni_dict_key_at(datasets, i));
    }
    return 0;
}

static uni_value *find_states(const uni__run *run)
{
    struct found found = { .names = uni_value_dict() };
    uni_value *out = uni_value_dict();
    bool resumes = run->resume_iteration > 0 || run->resume_path[0];
    char *dir = resumes ? directory_of(run, &found.iteration) : NULL;
    char *path = dir ? uni__path_join(dir, "results.jsonl", NULL) : NULL;
    if (path && found.names && found.iteration > 0)
        read_results(&found, path);
    for (size_t i = 0; out && i < uni_dict_size(found.names); i++) {
        const char *name = uni_dict_key_at(found.names, i);
        uni_value *states = by_rank(uni_dict_value_at(found.names, i)), *merged = NULL;
        uni_error err = { 0 };
        if (!states || uni_dataset_merge_states(&merged, states, &err) < 0 ||
            uni_dict_take(out, name, merged) < 0)
            uni__log(UNI_LOG_WARN,
                     "the dataset %s begins its epoch again: not all ranks said at iteration %lld "
                     "where they stood %s",
                     name, (long long)found.iteration, err.message);
        uni_value_free(states);
    }
    free(path);
    free(dir);
    uni_value_free(found.names);
    return out;
}

uni_value *uni__run_data_states(uni__run *run)
{
    if (!run->data_states || run->data_states_attempt != run->attempt) {
        uni_value_free(run->data_states);
        run->data_states = find_states(run);
        run->data_states_attempt = run->attempt;
    }
    return run->data_states ? uni_value_copy(run->data_states) : NULL;
}
