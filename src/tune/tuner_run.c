/*
 * tuner_run.c - runs a tuner to its end, step by step. Owner's thread.
 *
 * A step takes the events of the places (train/crew.h) and of the keeper, decides, records the
 * decision and acts on it; then it fills free places. The only state is that of the experiment, the
 * searcher and the scheduler, and all three are functions of the journal.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "tune/publish.h"
#include "tune/tuner_internal.h"

#define CLOCK_NS 1000000000ull
#define PROGRESS_NS 100000000ull

static double used_seconds(const uni_tuner *tuner)
{
    return tuner->used_before + (double)(uni__monotonic_ns() - tuner->begun_ns) * 1e-9;
}

static int write_table(uni_tuner *tuner, uni_error *err)
{
    char *text = NULL, *path = uni__path_join(tuner->dir, "trials.csv", NULL);
    int status = uni_tune_csv(&text, &tuner->results, true, err);
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
    /* The export reads the reports from the file. */
    UNI_TRY(uni__commit_wait(tuner->commit, err));
    UNI_TRY(uni__publish(&tuner->results, err));
    uni_value *record = uni__tune_record("finish", -1);
    if (uni_dict_take(record, "used", uni_value_float(used_seconds(tuner))) < 0) {
        uni_value_free(record);
        record = NULL;
    }
    UNI_TRY(uni__tuner_note(tuner, record, err));
    return uni__commit_wait(tuner->commit, err);
}

/* The time budget spans tuners, so the time used is recorded periodically. */
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
    uni_value *record = uni__tune_record("clock", -1);
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
    /* Take all pending events at once, so that free places are filled together. */
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

/* The overall outcome. */
static int verdict(uni_tuner *tuner, uni_error *err)
{
    int64_t failed = uni_tune_count_status(&tuner->results, UNI_TRIAL_ERROR), first = 0;
    if (tuner->error.code < 0) {
        if (err)
            *err = tuner->error;
        return tuner->error.code;
    }
    if (failed == 0 || failed < uni_tune_info_of(&tuner->results)->num_trials)
        return 0;
    while (uni_trial_info_of(&tuner->results, first)->status != UNI_TRIAL_ERROR)
        first++;
    return uni_error_set(err, UNI_EFUNCTION, "all %lld trials failed; trial %lld: %.700s",
                         (long long)failed, (long long)first,
                         uni_trial_info_of(&tuner->results, first)->error);
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
