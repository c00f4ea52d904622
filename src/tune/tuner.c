/*
 * tuner.c - the life of a tuner: making one, going on with one, running it to its end. tune.h has the interface, docs/tune.md the design. Owner's thread.
 *
 * A step takes what the places (train/crew.h) and the keeper tell, decides, writes the decision down and acts on it; then it fills free places. There is no
 * other state than the experiment's, the searcher's and the scheduler's, and all three are functions of the journal.
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

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "group/host.h"
#include "tune/publish.h"
#include "tune/stop.h"
#include "tune/tuner_internal.h"

#define BUSY_TRIES 20 /* a reader looks whether somebody has the lock for some microseconds */
#define CLOCK_NS 1000000000ull
#define PROGRESS_NS 100000000ull

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

static double used_seconds(const uni_tuner *tuner)
{
    return tuner->used_before + (double)(uni__monotonic_ns() - tuner->begun_ns) * 1e-9;
}

/* ---- making one ---- */

/* STORAGE/NAME/tune_NNN: the first number that is free. */
static int make_dir(uni_tuner *tuner, const char *name, uni_error *err)
{
    char *parent = uni__path_join(tuner->storage, name, NULL);
    int status = parent ? uni__make_dirs(parent, 0700, err)
                        : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    for (int number = 1; status == 0 && !tuner->dir; number++) {
        char *dir = NULL;
        if (asprintf(&dir, "%s/tune_%03d", parent, number) < 0)
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        else if (mkdir(dir, 0700) == 0)
            tuner->dir = dir;
        else {
            if (errno != EEXIST)
                status = uni_error_set_errno(err, errno, "cannot make the directory %s", dir);
            free(dir);
        }
    }
    free(parent);
    return status;
}

static int open_journal(uni_tuner *tuner, uni__journal_visit visit, uni_error *err)
{
    uni__journal *journal = NULL;
    char *path = uni__path_join(tuner->dir, UNI__TUNE_JOURNAL, NULL);
    int status = path ? UNI_EBUSY : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    for (int i = 0; status == UNI_EBUSY && i < BUSY_TRIES; i++) {
        if (i)
            nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
        status = uni__journal_open_read(&journal, path, UNI__TUNE_KIND, visit, tuner, NULL, err);
    }
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
    if (uni_tune_space_size(options->space, &size, NULL) < 0)
        size = 1;
    return size * (options->num_samples > 0 ? options->num_samples : 1);
}

/* The journal's first record. Takes the spec. */
static uni_value *beginning(const uni_tuner_options *options, uni_value *spec)
{
    char date[20], name[40];
    double now = uni__wall_seconds();
    uni__format_date(now, date);
    snprintf(name, sizeof name, "tune_%s", date);
    uni_value *record = uni__record("experiment", -1);
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
    uni_value *record = uni__record("tuner", -1);
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

/* A framework is set up by its trainer, once a process: such trials are ordinary runs. */
static bool needs_group(const uni_tuner_options *spec)
{
    return spec->num_workers > 1 || (spec->backend && strcmp(spec->backend, "none") != 0 &&
                                     strcmp(spec->backend, "native") != 0);
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
        tuner->places[i] = (uni__place){ .trial = -1, .log_fd = -1 };
    int status = uni__remove_tree(tuner->staging, err);
    if (status == 0)
        status = uni__crew_new(
            &tuner->crew,
            &(uni_trainer_options){ .main = tuner->asked.main,
                                    .worker_program = tuner->asked.worker_program,
                                    .num_workers = tuner->num_places,
                                    .backend = alone ? spec->backend : NULL,
                                    .cpus_per_worker = alone ? spec->cpus_per_trial : 0,
                                    .memory_per_worker = alone ? spec->memory_per_trial : 0,
                                    .use_gpu = alone && spec->gpus_per_trial > 0,
                                    .gpus_per_worker = alone ? spec->gpus_per_trial : 0,
                                    .storage_path = tuner->storage,
                                    .environment = spec->environment,
                                    .working_directory = spec->working_directory,
                                    .grace_seconds = spec->grace_seconds,
                                    .handle_signals = tuner->asked.handle_signals },
            logs, err);
    free(logs);
    if (status == 0 && needs_group(spec))
        status = uni__groups_new(&tuner->groups, tuner, err);
    return status == 0 ? uni__keeper_new(&tuner->keeper, tuner->crew, spec->policy, err) : status;
}

static uni_tuner *new_tuner(const uni_tuner_options *options)
{
    uni_tuner *tuner = calloc(1, sizeof *tuner);
    if (tuner && options)
        tuner->asked = *options;
    if (tuner)
        tuner->begun_ns = uni__monotonic_ns();
    return tuner;
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

static int check_name(const char *name, uni_error *err)
{
    if (!name[0] || name[0] == '.' || strchr(name, '/'))
        return uni_error_set(err, UNI_EINVAL,
                             "the name \"%s\" cannot be a directory: leave out slashes and a "
                             "leading dot",
                             name);
    return 0;
}

int uni_tuner_new(uni_tuner **out, const uni_tuner_options *options, uni_error *err)
{
    int status;
    *out = NULL;
    uni_tuner *tuner = new_tuner(options);
    if (!tuner)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a tuner");
    uni_tuner_options asked = *options;
    uni_value *spec = NULL, *record = NULL;
    while (!(asked.seed & INT64_MAX))
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
    UNI_TRY_GOTO(uni_run_storage(options->storage_path, &tuner->storage, err), fail);
    UNI_TRY_GOTO(check_name(experiment->name, err), fail);
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
                   bool retry_failed, uni_error *err)
{
    int status;
    *out = NULL;
    uni_tuner *tuner = new_tuner(options);
    if (!tuner)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a tuner");
    uni__experiment *experiment = &tuner->results.experiment;
    UNI_TRY_GOTO(
        uni__experiment_find(dir, options ? options->storage_path : NULL, &tuner->dir, err), fail);
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
    tuner->used_before = experiment->seconds_used;
    tuner->storage = strdup(tuner->dir);
    UNI_TRY_GOTO(uni__tuner_after_replay(tuner, retry_failed, err), fail);
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
        uni__place *place = &tuner->places[i];
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
    free(tuner->queue);
    free(tuner->storage);
    free(tuner->dir);
    free(tuner->staging);
    uni_tune_spec_free(tuner->spec);
    uni__experiment_clear(&tuner->results.experiment);
    free(tuner);
}

const char *uni_tuner_dir(const uni_tuner *tuner)
{
    return tuner->dir;
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

/* ---- running ---- */

static int write_table(uni_tuner *tuner, uni_error *err)
{
    char *text = NULL, *path = uni__path_join(tuner->dir, "trials.csv", NULL);
    int status = uni_tune_csv(&tuner->results, true, &text, err);
    if (status == 0)
        status = path ? uni__write_file(path, text, strlen(text), false, err)
                      : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    free(text);
    free(path);
    return status;
}

static int finish(uni_tuner *tuner, uni_error *err)
{
    tuner->over = true;
    UNI_TRY(write_table(tuner, err));
    UNI_TRY(uni__commit_wait(tuner->commit, err)); /* the reports are read from the file */
    UNI_TRY(uni__publish(&tuner->results, err));
    uni_value *record = uni__record("finish", -1);
    if (uni_dict_take(record, "used", uni_value_float(used_seconds(tuner))) < 0) {
        uni_value_free(record);
        record = NULL;
    }
    UNI_TRY(uni__tuner_note(tuner, record, err));
    return uni__commit_wait(tuner->commit, err);
}

/* The time budget counts across tuners: how much is used is written down now and then. */
static int keep_time(uni_tuner *tuner, uni_error *err)
{
    double budget = tuner->spec->options.time_budget;
    uint64_t now = uni__monotonic_ns();
    if (budget > 0 && !tuner->finishing && used_seconds(tuner) >= budget) {
        tuner->finishing = true;
        uni__tuner_end_all(tuner, "the time budget is used up");
    }
    if (budget <= 0 || now - tuner->clock_ns < CLOCK_NS)
        return 0;
    tuner->clock_ns = now;
    uni_value *record = uni__record("clock", -1);
    if (uni_dict_take(record, "used", uni_value_float(used_seconds(tuner))) < 0) {
        uni_value_free(record);
        return 0;
    }
    return uni__tuner_note(tuner, record, err);
}

static void show_progress(uni_tuner *tuner, bool now)
{
    uint64_t time = uni__monotonic_ns();
    if (!tuner->asked.progress || (!now && time - tuner->progress_ns < PROGRESS_NS))
        return;
    tuner->progress_ns = time;
    tuner->asked.progress(tuner->asked.context, &tuner->results);
}

static double patience(const uni_tuner *tuner, double left)
{
    double budget = tuner->spec->options.time_budget;
    double most = tuner->asked.progress || budget > 0 ? 0.1 : 1.0;
    if (budget > 0)
        most = fmin(most, fmax(budget - used_seconds(tuner), 0.001));
    return fmin(most, left);
}

static int take_news(uni_tuner *tuner, double seconds, uni_error *err)
{
    uni__crew_event *event = NULL;
    int found = uni__crew_next(tuner->crew, seconds, &event);
    /* What came meanwhile is taken in one go, so that free places are filled together. */
    for (int i = 0; found && i < 256; i++) {
        UNI_TRY(uni__tuner_event(tuner, event, err));
        found = uni__crew_next(tuner->crew, 0, &event);
    }
    if (found)
        UNI_TRY(uni__tuner_event(tuner, event, err));
    for (uni__kept *kept; (kept = uni__keeper_next(tuner->keeper));)
        UNI_TRY(uni__tuner_kept(tuner, kept, err));
    return 0;
}

/* 1: more to do; 0: over */
static int step(uni_tuner *tuner, double seconds, uni_error *err)
{
    UNI_TRY(keep_time(tuner, err));
    if (!tuner->finishing)
        UNI_TRY(uni__tuner_fill(tuner, err));
    if (tuner->running == 0 && (tuner->finishing || (tuner->exhausted && tuner->queued == 0))) {
        UNI_TRY(finish(tuner, err));
        return 0;
    }
    if (tuner->running == 0 && tuner->queued == 0)
        return uni_error_set(err, UNI_ESTATE,
                             "the searcher \"%s\" has no config to give and nothing runs that it "
                             "could wait for",
                             tuner->searcher.methods.name);
    UNI_TRY(take_news(tuner, patience(tuner, seconds), err));
    if (atomic_load(&tuner->stop_asked))
        return uni_error_set(
            err, UNI_EPREEMPTED,
            "stopped with %lld of the trials done; go on with `unisono tune "
            "resume %s`",
            (long long)uni_tune_count_status(&tuner->results, UNI_TRIAL_TERMINATED), tuner->dir);
    return 1;
}

/* How it went as a whole. */
static int verdict(uni_tuner *tuner, uni_error *err)
{
    int64_t failed = uni_tune_count_status(&tuner->results, UNI_TRIAL_ERROR), first = 0;
    if (tuner->error.code < 0) {
        if (err)
            *err = tuner->error;
        return tuner->error.code;
    }
    if (failed == 0 || failed < uni_tune_count(&tuner->results))
        return 0;
    while (uni_trial_status_of(&tuner->results, first) != UNI_TRIAL_ERROR)
        first++;
    return uni_error_set(err, UNI_EFUNCTION, "all %lld trials failed; trial %lld: %.700s",
                         (long long)failed, (long long)first,
                         uni_trial_error(&tuner->results, first));
}

int uni_tuner_step(uni_tuner *tuner, double seconds, uni_error *err)
{
    if (tuner->over)
        return verdict(tuner, err);
    int status = step(tuner, seconds, err);
    show_progress(tuner, status <= 0);
    if (status < 0)
        tuner->over = true;
    if (status < 0 && err && !tuner->error.code)
        tuner->error = *err;
    return status == 0 ? verdict(tuner, err) : status;
}

int uni_tuner_fit(uni_tuner *tuner, uni_error *err)
{
    int status;
    do {
        status = uni_tuner_step(tuner, 1.0, err);
    } while (status > 0);
    return status;
}
