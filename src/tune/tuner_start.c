/*
 * tuner_start.c - selects the next trial and starts it: its program's words, its directory, the
 * checkpoint that it begins with. Owner's thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/log.h"
#include "tune/template.h"
#include "tune/tuner_internal.h"

/* ---- the queue ---- */

static int make_room(uni_tuner *tuner, uni_error *err)
{
    int64_t *grown = uni__grown(tuner->queue, tuner->queued, &tuner->queue_room, sizeof *grown);
    if (!grown)
        return uni__no_trial_memory(err);
    tuner->queue = grown;
    return 0;
}

int uni__tuner_enqueue(uni_tuner *tuner, int64_t trial, uni_error *err)
{
    UNI_TRY(make_room(tuner, err));
    tuner->queue[tuner->queued++] = trial;
    return 0;
}

int uni__tuner_enqueue_first(uni_tuner *tuner, int64_t trial, uni_error *err)
{
    UNI_TRY(make_room(tuner, err));
    size_t at = tuner->interrupted++;
    memmove(tuner->queue + at + 1, tuner->queue + at,
            (tuner->queued++ - at) * sizeof *tuner->queue);
    tuner->queue[at] = trial;
    return 0;
}

static uni__trial *dequeue(uni_tuner *tuner)
{
    int64_t index = tuner->queue[0];
    tuner->interrupted -= tuner->interrupted > 0;
    memmove(tuner->queue, tuner->queue + 1, --tuner->queued * sizeof *tuner->queue);
    return uni__experiment_trial(&tuner->results.experiment, index);
}

/* ---- starting ---- */

static int fill_program(const uni_tuner *tuner, const uni_value *config, uni_value **argv,
                        uni_value **environment, uni_error *err)
{
    char *json = NULL, *pair = NULL;
    const uni_value *program = tuner->spec->options.program;
    *argv = uni_value_list();
    *environment = uni_value_list();
    UNI_TRY(uni_json_write(&json, NULL, config, 0, err));
    if (asprintf(&pair, "UNISONO_CONFIG=%s", json) < 0)
        pair = NULL;
    int status = pair ? 0 : UNI_ENOMEM;
    if (pair)
        status = uni_list_take(*environment, uni_value_string(pair));
    free(json);
    free(pair);
    if (status < 0)
        return uni__no_trial_memory(err);
    for (size_t i = 0; i < uni_list_size(program); i++) {
        uni_value *word = NULL;
        UNI_TRY(uni__fill_word(program, i, config, &word, err));
        if (uni_list_take(*argv, word) < 0)
            return uni__no_trial_memory(err);
    }
    return 0;
}

/* Where the trial continues: a donor's checkpoint, its own newest complete one, or the
 * beginning. */
static char *find_start(const uni_tuner *tuner, const uni__trial *trial, const char *run_dir,
                        int64_t *iteration)
{
    uni_checkpoint *newest = NULL;
    char *path = NULL;
    *iteration = 0;
    if (trial->start_checkpoint) {
        path = uni__path_join(tuner->dir, trial->start_checkpoint, NULL);
        *iteration = trial->start_iteration;
        return path;
    }
    if (!trial->attempts || trial->from_the_start)
        return NULL;
    if (tuner->groups && trial->checkpoint) {
        path = uni__path_join(tuner->dir, trial->checkpoint, NULL);
        if (path && uni_checkpoint_open(&newest, path, NULL) < 0)
            newest = NULL;
        free(path);
        path = NULL;
    } else if (uni_checkpoint_open_latest(&newest, run_dir, NULL) < 0) {
        newest = NULL;
    }
    if (newest) {
        path = strdup(uni_checkpoint_info_of(newest)->path);
        *iteration =
            tuner->groups ? trial->checkpoint_iteration : uni_checkpoint_info_of(newest)->iteration;
    }
    uni_checkpoint_close(newest);
    return path;
}

static int note_run(uni_tuner *tuner, const uni__trial *trial, int64_t iteration, uni_error *err)
{
    uni_value *record = uni__tune_record("run", trial->index);
    int status = uni_dict_take(record, "i", uni_value_int(iteration));
    status |= uni_dict_take(record, "time", uni_value_float(uni__wall_seconds()));
    if (status < 0) {
        uni_value_free(record);
        record = NULL;
    }
    return uni__tuner_note(tuner, record, err);
}

static int run_trial(uni_tuner *tuner, int index, uni__trial *trial, uni_error *err)
{
    uni__trial_place *place = &tuner->places[index];
    uni__experiment *experiment = &tuner->results.experiment;
    int64_t iteration = 0;
    uni_value *argv = NULL, *environment = NULL;
    char *run_dir = uni__trial_path(experiment, trial->index), *log = NULL, *logs = NULL;
    char *start = run_dir ? find_start(tuner, trial, run_dir, &iteration) : NULL;
    int status = run_dir ? 0 : uni__no_trial_memory(err);
    if (status == 0 && iteration < trial->iteration)
        tuner->scheduler.methods->forget(tuner->scheduler.self, trial->index, iteration);
    if (status == 0)
        status = note_run(tuner, trial, iteration, err);
    if (status == 0 && tuner->spec->options.program) {
        status = fill_program(tuner, trial->config, &argv, &environment, err);
        logs = uni__path_join(run_dir, "logs", NULL);
        log = uni__path_join(run_dir, "logs", "rank_0.log", NULL);
        if (status == 0)
            status = logs && log ? uni__make_dirs(logs, 0700, err) : uni__no_trial_memory(err);
    }
    uni__crew_order order = { .function = tuner->spec->options.function,
                              .program = argv,
                              .environment = environment,
                              .config = trial->config,
                              .attachment = tuner->asked.attachment,
                              .name = experiment->name,
                              .storage = tuner->storage,
                              .run_dir = run_dir,
                              .staging_dir = tuner->staging,
                              .checkpoint = start,
                              .log = log,
                              .iteration = iteration,
                              .attempt = trial->attempts,
                              .fresh = tuner->spec->options.fresh_workers,
                              .lockstep = tuner->lockstep && !argv };
    *place = (uni__trial_place){ .trial = trial->index,
                                 .begun_ns = uni__monotonic_ns(),
                                 .seconds_before = trial->seconds,
                                 .iterations_before = iteration,
                                 .log_fd = place->log_fd,
                                 .log_offset = place->log_offset };
    uni__files_begin(tuner, index);
    if (status == 0)
        status = tuner->groups ? uni__groups_run(tuner->groups, index, &order, &place->serial, err)
                               : uni__crew_run(tuner->crew, index, &order, &place->serial, err);
    tuner->running++;
    uni_value_free(argv);
    uni_value_free(environment);
    free(run_dir);
    free(start);
    free(log);
    free(logs);
    return status;
}

/* Gets a new config from the searcher: 1, or 0 when there is none now. */
static int new_trial(uni_tuner *tuner, uni__trial **out, uni_error *err)
{
    uni__experiment *experiment = &tuner->results.experiment;
    uni_tune_searcher *searcher = &tuner->searcher.methods;
    uni_value *config = NULL;
    if (tuner->exhausted)
        return 0;
    bool enough = tuner->asked.own_searcher && experiment->expected >= 0 &&
                  experiment->count >= experiment->expected;
    int found = enough ? UNI_EEND : searcher->ask(searcher->self, experiment->count, &config, err);
    if (found == UNI_EEND) {
        tuner->exhausted = true;
        return 0;
    }
    if (found <= 0)
        return found < 0 ? uni_error_prefix(err, "the searcher \"%s\"", searcher->name) : 0;
    uni_value *record = uni__tune_record("trial", experiment->count);
    if (uni_dict_take(record, "c", config) < 0) {
        uni_value_free(record);
        record = NULL;
    }
    UNI_TRY(uni__tuner_note(tuner, record, err));
    *out = experiment->trials[experiment->count - 1];
    UNI_TRY(tuner->scheduler.methods->added(tuner->scheduler.self, (*out)->index, err));
    return 1;
}

static int next_trial(uni_tuner *tuner, uni__trial **out, uni_error *err)
{
    bool new_first = tuner->scheduler.methods->new_first && tuner->interrupted == 0;
    int found = 0;
    if (new_first)
        found = new_trial(tuner, out, err);
    if (found == 0 && tuner->queued > 0) {
        *out = dequeue(tuner);
        return 1;
    }
    return found == 0 && !new_first ? new_trial(tuner, out, err) : found;
}

/* The searcher is exhausted: a scheduler need not wait for a full bracket any more. */
static int say_complete(uni_tuner *tuner, uni_error *err)
{
    if (!tuner->exhausted || tuner->complete_said || !tuner->scheduler.methods->complete)
        return 0;
    tuner->complete_said = true;
    UNI_TRY(uni__tuner_note(tuner, uni__tune_record("complete", -1), err));
    tuner->scheduler.methods->complete(tuner->scheduler.self);
    return uni__tuner_act(tuner, err);
}

int uni__tuner_fill(uni_tuner *tuner, uni_error *err)
{
    for (int i = 0; i < tuner->num_places; i++) {
        uni__trial *trial = NULL;
        if (tuner->places[i].trial >= 0)
            continue;
        int found = next_trial(tuner, &trial, err);
        UNI_TRY(found);
        if (found == 0 || !trial)
            break;
        UNI_TRY(run_trial(tuner, i, trial, err));
    }
    return say_complete(tuner, err);
}
