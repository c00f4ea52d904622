/*
 * tuner.c - the life of a tuner: creating, resuming and closing one. tuner_run.c runs it; tune.h
 * has the interface, docs/tune.md the design. Owner's thread.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unisono/run.h>
#include <unistd.h>

#include "tune/shared.h"
#include "train/shared.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/owned.h"
#include "base/random.h"
#include "group/host.h"
#include "train/run_reader.h"
#include "train/variables.h"
#include "tune/tuner_internal.h"
#include "base/options.h"

/* A reader that checks for a live tuner holds the lock for some microseconds. */
#define BUSY_TRIES 20

int uni__tuner_note(uni_tuner *tuner, uni_value *record, uni_error *err)
{
    if (!record)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the journal");
    int status = uni__commit_append(tuner->commit, record, err);
    if (status == 0)
        status = uni__experiment_apply(&tuner->results.experiment, record, err);
    uni_value_free(record);
    return status;
}

/* ---- creating ---- */

/* STORAGE/NAME/tune_NNN with the first free number. */
static int make_dir(uni_tuner *tuner, const char *name, uni_error *err)
{
    char *parent = uni__path_join(tuner->storage, name, NULL);
    int place = parent ? uni__make_owned_dir(parent, err)
                       : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    int status = place < 0 ? place : 0;
    for (int number = 1; status == 0 && !tuner->dir; number++) {
        char *dir = NULL;
        if (asprintf(&dir, "%s/tune_%03d", parent, number) < 0)
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        else if (mkdirat(place, strrchr(dir, '/') + 1, 0700) == 0)
            tuner->dir = dir;
        else {
            if (errno != EEXIST)
                status = uni_error_set_errno(err, errno, "cannot make the directory %s", dir);
            free(dir);
        }
    }
    if (place >= 0)
        close(place);
    free(parent);
    return status;
}

static int open_journal(uni_tuner *tuner, uni__journal_visit visit, uni_error *err)
{
    uni__journal *journal = NULL;
    char *path = uni__path_join(tuner->dir, UNI__TUNE_JOURNAL, NULL);
    int dir = path ? uni__open_owned_below(tuner->dir, err)
                   : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    int status = dir < 0 ? dir : UNI_EBUSY;
    for (int i = 0; status == UNI_EBUSY && i < BUSY_TRIES; i++) {
        if (i)
            nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
        status =
            uni__journal_open_read(&journal, dir, path, UNI__TUNE_KIND, visit, tuner, NULL, err);
    }
    if (dir >= 0)
        close(dir);
    free(path);
    if (status == UNI_EBUSY)
        return uni_error_set(err, UNI_EBUSY,
                             "another tuner is at work in %s: wait for its end, or look on with "
                             "`unisono tune show`",
                             tuner->dir);
    return status == 0 ? uni__commit_new(&tuner->commit, journal, err) : status;
}

static int64_t expected_trials(const uni_tuner_options *options)
{
    int64_t size = 1;
    if (options->num_samples == UNI_SAMPLES_UNLIMITED)
        return -1;
    if (uni__tune_space_size(options->space, &size, NULL) < 0)
        size = 1;
    return size * (options->num_samples > 0 ? options->num_samples : 1);
}

/* The journal's first record. Takes ownership of the spec. */
static uni_value *beginning(const uni_tuner_options *options, uni_value *spec)
{
    char date[20], name[40];
    double now = uni__wall_seconds();
    uni__format_date(now, date);
    snprintf(name, sizeof name, "tune_%s", date);
    uni_value *record = uni__tune_record("experiment", -1);
    int64_t expected = expected_trials(options);
    int status = uni_dict_take(record, "spec", spec);
    status |= uni_dict_take(record, "name", uni_value_string(options->name ? options->name : name));
    status |= uni_dict_take(record, "time", uni_value_float(now));
    if (expected >= 0)
        status |= uni_dict_take(record, "expected", uni_value_int(expected));
    if (status == 0)
        return record;
    uni_value_free(record);
    return NULL;
}

static int note_tuner(uni_tuner *tuner, uni_error *err)
{
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    uni_value *record = uni__tune_record("tuner", -1);
    int status = uni_dict_take(record, "pid", uni_value_int(getpid()));
    status |= uni_dict_take(record, "host", uni_value_string(host));
    status |= uni_dict_take(record, "time", uni_value_float(uni__wall_seconds()));
    if (status < 0) {
        uni_value_free(record);
        record = NULL;
    }
    return uni__tuner_note(tuner, record, err);
}

/* ---- places ---- */

static int check_room(const char *what, double each, double there, double *room, uni_error *err)
{
    if (each <= 0)
        return 0;
    if (each > there)
        return uni_error_set(err, UNI_ERESOURCE,
                             "a trial asks for %g %s, but this machine has %g: ask for fewer", each,
                             what, there);
    *room = fmin(*room, floor(there / each));
    return 0;
}

static int count_places(uni_tuner *tuner, int *out, uni_error *err)
{
    const uni_tuner_options *spec = &tuner->spec->options;
    int workers = spec->num_workers > 0 ? spec->num_workers : 1;
    double room = INFINITY;
    uni__host host;
    uni__host_look(&host);
    UNI_TRY(check_room("CPUs", spec->cpus_per_trial, host.cpus, &room, err));
    UNI_TRY(check_room("bytes of memory", spec->memory_per_trial, (double)host.memory, &room, err));
    UNI_TRY(check_room("GPUs", spec->gpus_per_trial, host.gpus, &room, err));
    if (isinf(room) && !spec->max_concurrent)
        room = fmax(floor(host.cpus / workers), 1);
    if (spec->max_concurrent > 0)
        room = fmin(room, spec->max_concurrent);
    if (tuner->results.experiment.expected > 0)
        room = fmin(room, (double)tuner->results.experiment.expected);
    *out = (int)fmin(fmax(room, 1), 512);
    return 0;
}

/* The trainer sets up a framework, once per process, so such trials are ordinary runs. */
static bool needs_group(const uni_tuner_options *spec)
{
    return spec->num_workers > 1 || (spec->backend && strcmp(spec->backend, "none") != 0 &&
                                     strcmp(spec->backend, "native") != 0);
}

/* The current request has the values that the journal does not contain. */
static int read_environment(uni_tuner *tuner, uni_error *err)
{
    UNI_TRY(uni__variables_read(&tuner->variables,
                                tuner->asked.environment ? tuner->asked.environment
                                                         : tuner->spec->options.environment,
                                NULL, err));
    size_t count = uni_list_size(tuner->variables);
    tuner->environment = calloc(count + 1, sizeof *tuner->environment);
    if (!tuner->environment)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the environment");
    for (size_t i = 0; i < count; i++)
        tuner->environment[i] = uni_value_as_string(uni_list_get(tuner->variables, i), "");
    tuner->asked.environment = NULL; /* the caller's */
    return 0;
}

static int make_places(uni_tuner *tuner, uni_error *err)
{
    const uni_tuner_options *spec = &tuner->spec->options;
    bool alone = !needs_group(spec);
    UNI_TRY(count_places(tuner, &tuner->num_places, err));
    tuner->places = calloc((size_t)tuner->num_places, sizeof *tuner->places);
    char *logs = uni__path_join(tuner->dir, ".workers", NULL);
    tuner->staging = uni__path_join(tuner->dir, ".staging", NULL);
    if (!tuner->places || !logs || !tuner->staging) {
        free(logs);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a tuner");
    }
    for (int i = 0; i < tuner->num_places; i++)
        tuner->places[i] = (uni__trial_place){ .trial = -1, .log_fd = -1 };
    int status = uni__remove_tree(tuner->staging, err);
    if (status == 0)
        status = uni__crew_new(
            &tuner->crew,
            &(uni_trainer_options){ .main = tuner->asked.main,
                                    .worker_program = tuner->asked.worker_program,
                                    .num_workers = tuner->num_places,
                                    .backend = alone ? spec->backend : NULL,
                                    .cpus_per_worker = alone ? spec->cpus_per_trial : 0,
                                    .use_gpu = alone && spec->gpus_per_trial > 0,
                                    .gpus_per_worker = alone ? spec->gpus_per_trial : 0,
                                    .storage_path = tuner->storage,
                                    .environment = tuner->environment,
                                    .working_directory = spec->working_directory,
                                    .grace_seconds = spec->grace_seconds,
                                    .handle_signals = tuner->asked.handle_signals },
            logs, err);
    free(logs);
    if (status == 0 && needs_group(spec))
        status = uni__groups_new(&tuner->groups, tuner, err);
    return status == 0 ? uni__keeper_new(&tuner->keeper, tuner->crew, spec->policy, err) : status;
}

/* A copy of a NULL-terminated list and its strings, in one piece of memory. */
static const char *const *copy_strings(const char *const *list)
{
    size_t count = 0, bytes = 0;
    for (; list[count]; count++)
        bytes += strlen(list[count]) + 1;
    const char **copy = malloc((count + 1) * sizeof *copy + bytes);
    char *to = copy ? (char *)(copy + count + 1) : NULL;
    for (size_t i = 0; copy && i < count; i++, to += strlen(to) + 1)
        copy[i] = strcpy(to, list[i]);
    if (copy)
        copy[count] = NULL;
    return copy;
}

/* The caller's options may go once the tuner is made. `environment` is read before that. */
static int copy_asked(uni_tuner *tuner, const uni_tuner_options *options, uni_error *err)
{
    uni_tuner_options *asked = &tuner->asked;
    *asked = (uni_tuner_options){ .main = options->main,
                                  .environment = options->environment,
                                  .samplers = options->samplers,
                                  .handle_signals = options->handle_signals,
                                  .progress = options->progress,
                                  .context = options->context };
    if (options->worker_program)
        asked->worker_program = copy_strings(options->worker_program);
    if (options->attachment)
        asked->attachment = uni_value_copy(options->attachment);
    if (options->own_searcher) {
        tuner->own_searcher = *options->own_searcher;
        asked->own_searcher = &tuner->own_searcher;
    }
    if (!asked->worker_program == !options->worker_program &&
        !asked->attachment == !options->attachment)
        return 0;
    return uni_error_set(err, UNI_ENOMEM, "no memory for a tuner");
}

static int new_tuner(uni_tuner **out, const uni_tuner_options *options, uni_error *err)
{
    uni_tuner *tuner = *out = calloc(1, sizeof *tuner);
    if (!tuner)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a tuner");
    tuner->begun_ns = uni__monotonic_ns();
    return copy_asked(tuner, options, err);
}

static int check_function(const uni_tuner *tuner, uni_error *err)
{
    if (tuner->spec->options.program || tuner->asked.main ||
        (tuner->asked.worker_program && tuner->asked.worker_program[0]))
        return 0;
    return uni_error_set(err, UNI_ESTATE,
                         "the function \"%s\" cannot run in workers, because this tuner does not "
                         "know the program: let main be `return uni_main(...)` and give the tuner "
                         "the program that the driver gets",
                         tuner->spec->options.function);
}

int uni_tuner_new(uni_tuner **out, const uni_tuner_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_tuner_options, options, context, err);
    int status;
    uni_tuner *tuner = NULL;
    uni_tuner_options asked = *options;
    uni_value *spec = NULL, *record = NULL;
    UNI_TRY_GOTO(new_tuner(&tuner, options, err), fail);
    while (!asked.has_seed && !(asked.seed & INT64_MAX))
        if (uni__random_system(&asked.seed, sizeof asked.seed) < 0)
            asked.seed = uni__monotonic_ns();
    uni__experiment *experiment = &tuner->results.experiment;
    UNI_TRY_GOTO(uni__spec_of(&asked, &spec, err), fail);
    status = uni__spec_check(spec, err);
    if (status < 0)
        uni_value_free(spec);
    else if (!(record = beginning(&asked, spec)))
        status = uni_error_set(err, UNI_ENOMEM, "no memory for an experiment");
    if (status == 0)
        status = uni__experiment_apply(experiment, record, err);
    if (status < 0)
        goto fail;
    UNI_TRY_GOTO(uni__tuner_make_brains(tuner, err), fail);
    UNI_TRY_GOTO(check_function(tuner, err), fail);
    UNI_TRY_GOTO(read_environment(tuner, err), fail);
    UNI_TRY_GOTO(uni__run_storage(&tuner->storage, options->storage_path, err), fail);
    UNI_TRY_GOTO(uni__run_check_name(experiment->name, err), fail);
    UNI_TRY_GOTO(make_dir(tuner, experiment->name, err), fail);
    if (!(experiment->dir = strdup(tuner->dir))) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        goto fail;
    }
    UNI_TRY_GOTO(open_journal(tuner, NULL, err), fail);
    UNI_TRY_GOTO(uni__commit_append(tuner->commit, record, err), fail);
    uni_value_free(record);
    record = NULL;
    UNI_TRY_GOTO(note_tuner(tuner, err), fail);
    UNI_TRY_GOTO(make_places(tuner, err), fail);
    *out = tuner;
    return 0;
fail:
    uni_value_free(record);
    uni_tuner_free(tuner);
    return status;
}

int uni_tuner_open(uni_tuner **out, const char *dir, const uni_tuner_options *options,
                   unsigned resume, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_tuner_options, options, context, err);
    int status;
    if ((resume & UNI_RESUME_FAILED) && (resume & UNI_RESTART_FAILED))
        return uni_error_set(err, UNI_EINVAL,
                             "failed trials can be resumed or restarted, not both: give one of "
                             "UNI_RESUME_FAILED and UNI_RESTART_FAILED");
    uni_tuner *tuner = NULL;
    UNI_TRY_GOTO(new_tuner(&tuner, options, err), fail);
    uni__experiment *experiment = &tuner->results.experiment;
    UNI_TRY_GOTO(
        uni__experiment_find(dir, options ? options->storage_path : NULL, &tuner->dir, err), fail);
    UNI_TRY_GOTO(uni__run_check_owner(tuner->dir, err), fail); /* it names a program to start */
    experiment->dir = strdup(tuner->dir);
    tuner->replaying = true;
    UNI_TRY_GOTO(open_journal(tuner, uni__tuner_replay, err), fail);
    tuner->replaying = false;
    if (!experiment->spec) {
        status = uni_error_set(err, UNI_EFORMAT,
                               "%s has no experiment: its tuner was killed before it began; start "
                               "it anew",
                               tuner->dir);
        goto fail;
    }
    UNI_TRY_GOTO(check_function(tuner, err), fail);
    UNI_TRY_GOTO(read_environment(tuner, err), fail);
    tuner->used_before = experiment->seconds_used;
    tuner->storage = strdup(tuner->dir);
    UNI_TRY_GOTO(uni__tuner_after_replay(tuner, resume, err), fail);
    UNI_TRY_GOTO(note_tuner(tuner, err), fail);
    UNI_TRY_GOTO(make_places(tuner, err), fail);
    *out = tuner;
    return 0;
fail:
    uni_tuner_free(tuner);
    return status;
}

void uni_tuner_free(uni_tuner *tuner)
{
    if (!tuner)
        return;
    uni__groups_free(tuner->groups);
    uni__keeper_free(tuner->keeper);
    for (int i = 0; tuner->places && i < tuner->num_places; i++) {
        uni__trial_place *place = &tuner->places[i];
        uni__crew_event_free(place->checkpoint);
        uni__crew_event_free(place->ended);
        uni__results_writer_close(place->writer);
        uni_value_free(place->decision.config);
        if (place->log_fd >= 0)
            close(place->log_fd);
    }
    uni__crew_free(tuner->crew);
    uni__commit_free(tuner->commit);
    uni__searcher_clear(&tuner->searcher);
    uni__scheduler_clear(&tuner->scheduler);
    char *logs = tuner->dir ? uni__path_join(tuner->dir, ".workers", NULL) : NULL;
    if (logs && tuner->crew && uni__remove_tree(logs, NULL) < 0)
        uni__warn("%s could not be removed", logs);
    if (tuner->staging && tuner->crew && uni__remove_tree(tuner->staging, NULL) < 0)
        uni__warn("%s could not be removed", tuner->staging);
    free(logs);
    free(tuner->places);
    free((void *)tuner->asked.worker_program);
    uni_value_free((uni_value *)tuner->asked.attachment);
    free(tuner->environment);
    uni_value_free(tuner->variables);
    free(tuner->queue);
    free(tuner->storage);
    free(tuner->dir);
    free(tuner->staging);
    uni__tune_spec_free(tuner->spec);
    uni__experiment_clear(&tuner->results.experiment);
    free(tuner);
}

const uni_tune_results *uni_tuner_results(const uni_tuner *tuner)
{
    return &tuner->results;
}

void uni_tuner_stop(uni_tuner *tuner)
{
    atomic_store(&tuner->stop_asked, true);
    uni__crew_wake(tuner->crew);
}
