/*
 * tuner_replay.c - rebuilds the killed tuner's state from the journal: every record changes the
 * experiment, and the searcher and the scheduler get the same calls as then. Owner's thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/shared.h"
#include "tune/tuner_internal.h"

int uni__tuner_make_brains(uni_tuner *tuner, uni_error *err)
{
    uni__experiment *experiment = &tuner->results.experiment;
    UNI_TRY(uni__tune_spec_read(&tuner->spec, experiment->spec, err));
    const uni_tuner_options *spec = &tuner->spec->options;
    if (tuner->asked.own_searcher) {
        tuner->searcher.methods = *tuner->asked.own_searcher;
    } else {
        UNI_TRY(uni__searcher_new(&tuner->searcher,
                                  &(uni__search_setting){ .options = spec->searcher,
                                                          .space = spec->space,
                                                          .samplers = tuner->asked.samplers,
                                                          .seed = spec->seed,
                                                          .total = experiment->expected,
                                                          .sign = experiment->sign },
                                  err));
    }
    UNI_TRY(uni__scheduler_new(&tuner->scheduler,
                               &(uni__schedule_setting){ .options = spec->scheduler,
                                                         .metric = experiment->metric,
                                                         .sign = experiment->sign,
                                                         .space = spec->space,
                                                         .seed = spec->seed,
                                                         .samplers = tuner->asked.samplers },
                               err));
    tuner->lockstep = tuner->scheduler.methods->decides || uni_dict_size(spec->stop) > 0;
    return 0;
}

static int replay_report(uni_tuner *tuner, const uni__trial *trial, const uni_value *record,
                         uni_error *err)
{
    uni__decision ignored = { 0 };
    if (!tuner->scheduler.methods->decides)
        return 0;
    uni_value *metrics = uni__record_read_metrics(record);
    uni__schedule_report report =
        uni__tuner_schedule(tuner, trial, uni_dict_get_int(record, "i", 0), metrics);
    int status = isnan(report.time) ? 0
                                    : tuner->scheduler.methods->report(tuner->scheduler.self,
                                                                       &report, &ignored, err);
    uni_value_free(ignored.config);
    uni_value_free(metrics);
    return status;
}

/* Runs before the record is applied, as it did then: a report is judged before it is written. */
static int tell_before(uni_tuner *tuner, const char *event, const uni__trial *trial,
                       const uni_value *record, uni_error *err)
{
    if (strcmp(event, "report") == 0)
        return replay_report(tuner, trial, record, err);
    if (strcmp(event, "run") == 0 && uni_dict_get_int(record, "i", 0) < trial->iteration)
        tuner->scheduler.methods->forget(tuner->scheduler.self, trial->index,
                                         uni_dict_get_int(record, "i", 0));
    return 0;
}

static int tell_after(uni_tuner *tuner, const char *event, uni__trial *trial, uni_error *err)
{
    uni_tune_searcher *searcher = &tuner->searcher.methods;
    if (strcmp(event, "trial") == 0) {
        if (searcher->restore)
            UNI_TRY(searcher->restore(searcher->self, trial->index, trial->config, err));
        return tuner->scheduler.methods->added(tuner->scheduler.self, trial->index, err);
    }
    if (strcmp(event, "end") == 0 && trial->status == UNI_TRIAL_PENDING)
        trial->place_in_queue = ++tuner->replayed;
    if (strcmp(event, "end") == 0 &&
        (trial->status == UNI_TRIAL_TERMINATED || trial->status == UNI_TRIAL_ERROR)) {
        trial->wants_end = false;
        tuner->scheduler.methods->ended(tuner->scheduler.self, trial->index);
        return searcher->tell(searcher->self, trial->index, trial->config,
                              uni__tuner_told(tuner, trial), err);
    }
    return 0;
}

int uni__tuner_replay(void *context, const uni_value *record, uni_error *err)
{
    uni_tuner *tuner = context;
    uni__experiment *experiment = &tuner->results.experiment;
    const char *event = uni_dict_get_string(record, "e", "");
    int64_t index = uni_dict_get_int(record, "t", -1);
    if (strcmp(event, "experiment") == 0) {
        if (tuner->spec)
            return uni_error_set(err, UNI_ECORRUPT, "%s has two beginnings", tuner->dir);
        UNI_TRY(uni__experiment_apply(experiment, record, err));
        return uni__tuner_make_brains(tuner, err);
    }
    if (!tuner->spec)
        return 0;
    uni__trial *trial = uni__experiment_trial(experiment, index);
    if (trial)
        UNI_TRY(tell_before(tuner, event, trial, record, err));
    UNI_TRY(uni__experiment_apply(experiment, record, err));
    trial = uni__experiment_trial(experiment, index);
    if (trial)
        UNI_TRY(tell_after(tuner, event, trial, err));
    if (strcmp(event, "complete") == 0) {
        tuner->complete_said = true;
        if (tuner->scheduler.methods->complete)
            tuner->scheduler.methods->complete(tuner->scheduler.self);
    }
    return uni__tuner_act(tuner, err);
}

static int by_place(const void *left, const void *right)
{
    const uni__trial *a = *(uni__trial *const *)left, *b = *(uni__trial *const *)right;
    if (a->place_in_queue != b->place_in_queue)
        return a->place_in_queue < b->place_in_queue ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* As the killed tuner's queue was. */
static int fill_queue(uni_tuner *tuner, uni__trial **waiting, size_t count, uni_error *err)
{
    qsort(waiting, count, sizeof *waiting, by_place);
    for (size_t i = 0; i < count; i++) {
        uni__trial *trial = waiting[i];
        bool first = trial->place_in_queue == 0;
        trial->status = UNI_TRIAL_PENDING;
        trial->wants_resume = false;
        UNI_TRY(first ? uni__tuner_enqueue_first(tuner, trial->index, err)
                      : uni__tuner_enqueue(tuner, trial->index, err));
    }
    return 0;
}

static int find_waiting(uni_tuner *tuner, unsigned resume, uni__trial **waiting, size_t *count,
                        uni_error *err)
{
    uni__experiment *experiment = &tuner->results.experiment;
    for (int64_t i = 0; i < experiment->count; i++) {
        uni__trial *trial = experiment->trials[i];
        if (trial->status == UNI_TRIAL_RUNNING && trial->verdict)
            UNI_TRY(uni__tuner_settle(tuner, trial, err));
        bool waits = trial->status == UNI_TRIAL_PENDING || trial->status == UNI_TRIAL_RUNNING;
        /* A scheduler that pauses only for the others' sake has no more to decide about it. */
        waits |= trial->status == UNI_TRIAL_PAUSED && !tuner->scheduler.methods->complete;
        waits |= trial->status == UNI_TRIAL_PAUSED && trial->wants_resume;
        if (trial->status == UNI_TRIAL_ERROR && (resume & (UNI_RESUME_FAILED | UNI_RESTART_FAILED)))
            UNI_TRY(uni__tuner_retry(tuner, trial, resume & UNI_RESTART_FAILED, err));
        else if (waits && (resume & UNI_LEAVE_UNFINISHED))
            UNI_TRY(uni__tuner_leave(tuner, trial, err));
        if (!waits || (resume & UNI_LEAVE_UNFINISHED))
            continue;
        /* A trial that was running, had just begun or had failed gets its place back. */
        if (trial->status == UNI_TRIAL_RUNNING || !trial->attempts || trial->was_interrupted)
            trial->place_in_queue = 0;
        waiting[(*count)++] = trial;
    }
    return 0;
}

int uni__tuner_after_replay(uni_tuner *tuner, unsigned resume, uni_error *err)
{
    uni__experiment *experiment = &tuner->results.experiment;
    uni__trial **waiting = calloc((size_t)experiment->count + 1, sizeof *waiting);
    size_t count = 0;
    int status = waiting ? 0 : uni__no_trial_memory(err);
    if (status == 0)
        status = find_waiting(tuner, resume, waiting, &count, err);
    if (status == 0)
        status = fill_queue(tuner, waiting, count, err);
    free(waiting);
    return status == 0 ? uni__tuner_act(tuner, err) : status;
}
