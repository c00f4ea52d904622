/*
 * tuner_files.c - the directory of a trial: results.jsonl with its first report, logs/rank_0.log if
 * it has printed something, run.json when it ends. A trial without any of these has no directory.
 * The files are those of a run (docs/formats.md), so `unisono show` and `plot` can read them.
 * Owner's thread.
 *
 * A member that runs many trials has one log; a trial's output is the part that was written while
 * it ran.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "tune/tuner_internal.h"

/* A member's log is emptied between two trials when it is longer. */
#define LOG_KEEP (1 << 20)

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for a trial's files");
}

int uni__files_report(uni_tuner *tuner, uni__trial_place *place, int64_t iteration,
                      const uint8_t *metrics, size_t size, uni_error *err)
{
    const uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, place->trial);
    if (tuner->groups)
        return 0; /* its trainer writes them */
    if (!place->writer) {
        char *dir = uni__trial_path(&tuner->results.experiment, place->trial);
        char *path = dir ? uni__path_join(dir, "results.jsonl", NULL) : NULL;
        int status = path ? uni__make_dirs(dir, 0700, err) : no_memory(err);
        bool there = path && trial->attempts > 1 && uni__path_exists(path);
        if (status == 0)
            status = uni__results_writer_open(&place->writer, path, 1, there, err);
        free(dir);
        free(path);
        UNI_TRY(status);
    }
    UNI_TRY(
        uni__results_writer_add(place->writer, trial->attempts, 0, iteration, metrics, size, err));
    return uni__results_writer_flush(place->writer, err);
}

void uni__files_begin(uni_tuner *tuner, int index)
{
    uni__trial_place *place = &tuner->places[index];
    struct stat info;
    if (tuner->groups || tuner->spec->options.program)
        return;
    if (place->log_fd < 0)
        place->log_fd = open(uni__crew_log(tuner->crew, index),
                             O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    place->log_offset = place->log_fd >= 0 && fstat(place->log_fd, &info) == 0 ? info.st_size : 0;
}

/* Copies what the trial printed from the member's log to its own. */
static int copy_log(uni__trial_place *place, const char *dir, uni_error *err)
{
    struct stat info;
    char buffer[65536];
    if (place->log_fd < 0 || fstat(place->log_fd, &info) < 0 || info.st_size <= place->log_offset)
        return 0;
    char *logs = uni__path_join(dir, "logs", NULL), *path = NULL;
    path = logs ? uni__path_join(logs, "rank_0.log", NULL) : NULL;
    int status = path ? uni__make_dirs(logs, 0700, err) : no_memory(err);
    int fd =
        status == 0 ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    if (status == 0 && fd < 0)
        status = uni_error_set(err, UNI_EIO, "cannot write %s", path);
    for (int64_t at = place->log_offset; status == 0 && at < info.st_size;) {
        size_t want = (size_t)(info.st_size - at) < sizeof buffer ? (size_t)(info.st_size - at)
                                                                  : sizeof buffer;
        ssize_t n = pread(place->log_fd, buffer, want, at);
        if (n <= 0)
            break;
        status = uni__write_all(fd, buffer, (size_t)n, path, err);
        at += n;
    }
    if (fd >= 0)
        close(fd);
    if (info.st_size > LOG_KEEP && ftruncate(place->log_fd, 0) < 0)
        uni__warn("a worker's log cannot be shortened");
    free(logs);
    free(path);
    return status;
}

static uni_value *describe(const uni_tuner *tuner, const uni__trial *trial)
{
    static const char *const names[] = { "interrupted", "running", "stopped", "succeeded",
                                         "failed" };
    uni_value *out = uni_value_dict();
    char id[64];
    snprintf(id, sizeof id, "trial_%05lld", (long long)trial->index);
    const char *last = strrchr(tuner->dir, '/');
    char *whole = NULL;
    if (asprintf(&whole, "%s/%s", last ? last + 1 : tuner->dir, id) < 0)
        whole = NULL;
    int status = uni_dict_take(out, "format", uni_value_string("unisono run"));
    status |= uni_dict_take(out, "version", uni_value_int(1));
    status |= uni_dict_take(out, "id", uni_value_string(whole ? whole : id));
    status |= uni_dict_take(out, "name", uni_value_string(tuner->results.experiment.name));
    status |= uni_dict_take(out, "run", uni_value_int(trial->index));
    status |= uni_dict_take(out, "status", uni_value_string(names[trial->status]));
    status |= uni_dict_take(out, "created", uni_value_float(trial->started));
    status |= uni_dict_take(out, "updated", uni_value_float(uni__wall_seconds()));
    status |= uni_dict_take(out, "finished", uni_value_float(uni__wall_seconds()));
    status |= uni_dict_take(out, "num_workers", uni_value_int(1));
    if (tuner->spec->options.function)
        status |= uni_dict_take(out, "function", uni_value_string(tuner->spec->options.function));
    else
        status |= uni_dict_take(out, "program", uni_value_copy(tuner->spec->options.program));
    status |= uni_dict_take(out, "config", uni_value_copy(trial->config));
    status |= uni_dict_take(out, "attempt", uni_value_int(trial->attempts));
    status |= uni_dict_take(out, "iterations", uni_value_int(trial->iteration));
    if (trial->error) {
        uni_value *error = uni_value_dict();
        status |= uni_dict_take(error, "code", uni_value_string("EFUNCTION"));
        status |= uni_dict_take(error, "message", uni_value_string(trial->error));
        status |= uni_dict_take(out, "error", error);
    }
    status |= uni_dict_take(out, "exit_code", uni_value_int(trial->error ? 1 : 0));
    free(whole);
    if (status == 0)
        return out;
    uni_value_free(out);
    return NULL;
}

static int write_description(uni_tuner *tuner, const uni__trial *trial, const char *dir,
                             uni_error *err)
{
    char *text = NULL, *path = uni__path_join(dir, "run.json", NULL);
    size_t length = 0;
    uni_value *description = describe(tuner, trial);
    int status = path && description
                     ? uni_json_write(&text, &length, description, UNI_JSON_INDENT, err)
                     : no_memory(err);
    if (status == 0)
        status = uni__write_file(path, text, length, false, err);
    uni_value_free(description);
    free(text);
    free(path);
    return status;
}

int uni__files_describe(uni_tuner *tuner, const uni__trial *trial, uni_error *err)
{
    if (tuner->groups || trial->iteration == 0)
        return 0;
    char *dir = uni__trial_path(&tuner->results.experiment, trial->index);
    int status = dir ? write_description(tuner, trial, dir, err) : no_memory(err);
    free(dir);
    return status;
}

int uni__files_end(uni_tuner *tuner, int index, uni_error *err)
{
    uni__trial_place *place = &tuner->places[index];
    const uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, place->trial);
    if (tuner->groups)
        return 0;
    uni__results_writer_close(place->writer);
    place->writer = NULL;
    char *dir = uni__trial_path(&tuner->results.experiment, place->trial);
    if (!dir)
        return no_memory(err);
    int status = copy_log(place, dir, err);
    free(dir);
    return status == 0 ? uni__files_describe(tuner, trial, err) : status;
}
