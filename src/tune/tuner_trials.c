/*
 * tuner_trials.c - trials: what their reports decide, how they end. (How they begin: tuner_start.c.) Owner's thread.
 *
 * A report is judged (stop criteria, scheduler), written down together with the verdict, and then the worker may go on or not. A trial's end waits for its checkpoints, so
 * that whatever comes next (a resume, another trial that takes its checkpoint) finds them complete.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "tune/stop.h"
#include "tune/tuner_internal.h"

double uni__tuner_told(const uni_tuner *tuner, const uni__trial *trial)
{
    const uni__experiment *experiment = &tuner->results.experiment;
    int name = experiment->metric ? uni__experiment_metric(experiment, experiment->metric) : -1;
    double value;
    if (trial->status != UNI_TRIAL_TERMINATED || name < 0 ||
        !uni__trial_value(trial, name, experiment->sign, UNI_SCOPE_LAST, &value))
        return NAN;
    return value;
}

uni__schedule_report uni__tuner_schedule(const uni_tuner *tuner, const uni__trial *trial,
                                         int64_t iteration, const uni_value *metrics)
{
    const uni__experiment *experiment = &tuner->results.experiment;
    double value = uni_tune_metric(metrics, experiment->metric);
    return (uni__schedule_report){
        .trial = trial->index,
        .iteration = iteration,
        /* A report without the metric is none of the scheduler's business. */
        .time = uni_dict_get(metrics, experiment->metric) || !isnan(value)
                    ? uni_tune_metric(metrics, tuner->scheduler.time_attr)
                    : NAN,
        .value = isnan(value) ? -INFINITY : experiment->sign * value,
        .config = trial->config,
        .others_wait = tuner->queued > 0 || (!tuner->exhausted && !tuner->replaying),
    };
}

/* ---- reports ---- */

static void release(uni_tuner *tuner, int index, int64_t iteration, bool stop)
{
    uni__trial_place *place = &tuner->places[index];
    place->is_stopping |= stop;
    if (tuner->groups)
        uni__groups_release(tuner->groups, index, place->serial, stop);
    else
        uni__crew_release(tuner->crew, index, place->serial, iteration, stop);
}

void uni__tuner_end_all(uni_tuner *tuner, const char *why)
{
    for (int i = 0; i < tuner->num_places; i++) {
        uni__trial_place *place = &tuner->places[i];
        if (place->trial < 0 || place->is_stopping)
            continue;
        place->decision.verdict = UNI__END;
        snprintf(place->why, sizeof place->why, "%s", why);
        release(tuner, i, INT32_MAX / 2, true);
    }
}

/* What the session fills in goes out, what a result always has comes in. */
static int complete_metrics(const uni__trial_place *place, uni_value *metrics, int64_t iteration,
                            double *seconds, uni_error *err)
{
    *seconds = place->seconds_before + (double)(uni__monotonic_ns() - place->begun_ns) * 1e-9;
    uni_dict_remove(metrics, "_timestamp");
    uni_dict_remove(metrics, "_time_this_iter_s");
    uni_dict_remove(metrics, "_training_iteration");
    int status = uni_dict_take(metrics, "training_iteration", uni_value_int(iteration));
    status |= uni_dict_take(metrics, "time_total_s", uni_value_float(*seconds));
    return status < 0 ? uni__no_trial_memory(err) : 0;
}

/* PBT: the donor's checkpoint is copied, because the donor's own policy may remove it. */
static int take_from_donor(uni_tuner *tuner, const uni__trial *trial, int64_t iteration,
                           uni__decision *decision, uni_value *record, uni_error *err)
{
    const uni__trial *donor = uni__experiment_trial(&tuner->results.experiment, decision->donor);
    char *from =
        donor && donor->checkpoint ? uni__path_join(tuner->dir, donor->checkpoint, NULL) : NULL;
    char *relative = NULL, *to = NULL;
    int status = UNI_ENOTFOUND;
    if (from &&
        asprintf(&relative, "trial_%05lld/exploited/checkpoint_%06lld", (long long)trial->index,
                 (long long)iteration) >= 0 &&
        (to = uni__path_join(tuner->dir, relative, NULL))) {
        status = uni__make_dirs(to, 0700, err);
        if (status == 0)
            status = uni__copy_tree(from, to, err);
    }
    if (status == 0) {
        status = uni_dict_take(record, "from", uni_value_string(relative));
        status |= uni_dict_take(record, "c", uni_value_copy(decision->config));
    } else if (!tuner->warned_no_checkpoint) {
        tuner->warned_no_checkpoint = true;
        uni__warn("trial %lld cannot take over from trial %lld, which has no checkpoint: hand one "
                  "to report() at every perturbation_interval",
                  (long long)trial->index, (long long)decision->donor);
    }
    free(from);
    free(relative);
    free(to);
    return status;
}

static int judge(uni_tuner *tuner, uni__trial_place *place, const uni__trial *trial,
                 int64_t iteration, const uni_value *metrics, uni_error *err)
{
    uni__experiment *experiment = &tuner->results.experiment;
    uni__decision *decision = &place->decision;
    const char *criterion = NULL;
    if (tuner->scheduler.methods->decides) {
        uni__schedule_report report = uni__tuner_schedule(tuner, trial, iteration, metrics);
        const uni_value **configs = malloc((size_t)(experiment->count + 1) * sizeof *configs);
        for (int64_t i = 0; configs && i < experiment->count; i++)
            configs[i] = experiment->trials[i]->config;
        report.configs = configs;
        int status =
            isnan(report.time) || !configs
                ? 0
                : tuner->scheduler.methods->report(tuner->scheduler.self, &report, decision, err);
        free(configs);
        UNI_TRY(status);
        if (decision->verdict != UNI__GO_ON)
            snprintf(place->why, sizeof place->why, "%s", tuner->scheduler.methods->name);
    }
    if (uni__stop_reached(tuner->spec->options.stop, experiment, trial, metrics, &criterion)) {
        decision->verdict = UNI__END;
        snprintf(place->why, sizeof place->why, "reached %s", criterion);
    }
    return 0;
}

/* With the report, so that a tuner that is killed before the trial has ended does not lose the decision. */
static int note_verdict(const uni__trial_place *place, uni_value *record, uni_error *err)
{
    uni__verdict verdict = place->decision.verdict;
    if (verdict != UNI__END && verdict != UNI__PAUSE)
        return 0;
    int failed =
        uni_dict_take(record, "d", uni_value_string(verdict == UNI__END ? "end" : "pause"));
    failed |= uni_dict_take(record, "w", uni_value_string(place->why));
    return failed ? uni__no_trial_memory(err) : 0;
}

static int take_report(uni_tuner *tuner, int index, uni__crew_event *event, uni_error *err)
{
    uni__trial_place *place = &tuner->places[index];
    uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, place->trial);
    uni_value *metrics = NULL;
    double seconds = 0;
    UNI_TRY(uni_msgpack_read(&metrics, event->metrics, event->metrics_size, err));
    uni_value *record = uni__tune_record("report", trial->index);
    int status = complete_metrics(place, metrics, event->iteration, &seconds, err);
    if (status == 0)
        status = judge(tuner, place, trial, event->iteration, metrics, err);
    if (status == 0)
        status = note_verdict(place, record, err);
    if (status == 0 && (uni_dict_take(record, "i", uni_value_int(event->iteration)) < 0 ||
                        uni_dict_take(record, "s", uni_value_float(seconds)) < 0 ||
                        uni__record_metrics(record, metrics) < 0))
        status = uni__no_trial_memory(err);
    if (status == 0)
        status = uni__tuner_note(tuner, record, err);
    else
        uni_value_free(record);
    if (status == 0)
        status = uni__files_report(tuner, place, event->iteration, event->metrics,
                                   event->metrics_size, err);
    if (status == 0 && place->checkpoint) {
        char *run_dir = uni__trial_path(&tuner->results.experiment, trial->index);
        place->in_flight++;
        uni__keeper_keep(tuner->keeper, trial->index, run_dir, trial->attempts, place->checkpoint,
                         metrics);
        place->checkpoint = NULL;
        metrics = NULL;
        free(run_dir);
    }
    uni_value_free(metrics);
    UNI_TRY(status);
    bool stop = place->decision.verdict != UNI__GO_ON;
    if (tuner->lockstep || tuner->groups)
        release(tuner, index, event->iteration, stop);
    return uni__tuner_act(tuner, err);
}

/* ---- the end of a trial ---- */

static int note_end(uni_tuner *tuner, const char *how, const char *why, const char *error,
                    bool failed, uni_value *record, uni_error *err)
{
    int status = uni_dict_take(record, "s", uni_value_string(how));
    if (why && why[0])
        status |= uni_dict_take(record, "w", uni_value_string(why));
    if (error)
        status |= uni_dict_take(record, "error", uni_value_string(error));
    if (failed)
        status |= uni_dict_take(record, "failed", uni_value_bool(true));
    if (status < 0) {
        uni_value_free(record);
        record = NULL;
    }
    return uni__tuner_note(tuner, record, err);
}

/* A misspelled metric would make a searcher and a scheduler do nothing, silently. */
static void warn_no_metric(uni_tuner *tuner, const uni__trial *trial)
{
    const uni__experiment *experiment = &tuner->results.experiment;
    if (!experiment->metric || tuner->warned_no_metric || trial->status != UNI_TRIAL_TERMINATED ||
        uni__experiment_metric(experiment, experiment->metric) >= 0)
        return;
    tuner->warned_no_metric = true;
    uni__warn("trial %lld ended and has never reported the metric \"%s\"%s%s: no trial can be the "
              "best one",
              (long long)trial->index, experiment->metric,
              experiment->num_names ? "; it reported " : "",
              experiment->num_names ? experiment->names[0] : "");
}

/* It is over for good: those who learn from it are told. */
static int close_trial(uni_tuner *tuner, uni__trial *trial, uni_error *err)
{
    uni_tune_searcher *searcher = &tuner->searcher.methods;
    if (tuner
            ->keeper) /* the newest checkpoint stays, kept by the policy or not: the result names it */
        uni__keeper_close(tuner->keeper, trial->index);
    tuner->scheduler.methods->ended(tuner->scheduler.self, trial->index);
    warn_no_metric(tuner, trial);
    UNI_TRY(searcher->tell(searcher->self, trial->index, trial->config,
                           uni__tuner_told(tuner, trial), err));
    return uni__tuner_act(tuner, err);
}

int uni__tuner_act(uni_tuner *tuner, uni_error *err)
{
    int64_t index;
    bool resume;
    while (tuner->scheduler.methods->act &&
           tuner->scheduler.methods->act(tuner->scheduler.self, &index, &resume)) {
        uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, index);
        if (!trial)
            continue;
        trial->wants_resume = resume;
        trial->wants_end = !resume;
        if (tuner->replaying || trial->status != UNI_TRIAL_PAUSED)
            continue; /* it is still on its way to the pause */
        if (resume) {
            trial->wants_resume = false;
            trial->status = UNI_TRIAL_PENDING;
            UNI_TRY(uni__tuner_enqueue(tuner, index, err));
        }
    }
    if (!tuner->scheduler.methods->complete || tuner->replaying)
        return 0; /* nobody is given up while paused */
    for (int64_t i = 0; i < tuner->results.experiment.count; i++) {
        uni__trial *trial = tuner->results.experiment.trials[i];
        if (trial->status != UNI_TRIAL_PAUSED || !trial->wants_end)
            continue;
        trial->wants_end = false;
        UNI_TRY(note_end(tuner, "terminated", tuner->scheduler.methods->name, NULL, false,
                         uni__tune_record("end", i), err));
        UNI_TRY(close_trial(tuner, trial, err));
    }
    return 0;
}

int uni__tuner_settle(uni_tuner *tuner, uni__trial *trial, uni_error *err)
{
    bool ends = trial->verdict == 'e' || trial->wants_end;
    char *why = strdup(trial->why ? trial->why : "");
    int status = note_end(tuner, ends ? "terminated" : "paused", why, NULL, false,
                          uni__tune_record("end", trial->index), err);
    free(why);
    return status == 0 && ends ? close_trial(tuner, trial, err) : status;
}

int uni__tuner_leave(uni_tuner *tuner, uni__trial *trial, uni_error *err)
{
    UNI_TRY(note_end(tuner, "terminated", "not resumed", NULL, false,
                     uni__tune_record("end", trial->index), err));
    return close_trial(tuner, trial, err);
}

int uni__tuner_retry(uni_tuner *tuner, uni__trial *trial, bool restart, uni_error *err)
{
    uni_value *record = uni__tune_record("end", trial->index);
    if (restart && uni_dict_take(record, "restart", uni_value_bool(true)) < 0) {
        uni_value_free(record);
        record = NULL;
    }
    UNI_TRY(
        note_end(tuner, "pending", restart ? "restarted" : "resumed", NULL, false, record, err));
    return uni__tuner_enqueue(tuner, trial->index, err);
}

static int end_paused(uni_tuner *tuner, uni__trial_place *place, uni__trial *trial, uni_error *err)
{
    bool exploits = place->decision.verdict == UNI__EXPLOIT;
    uni_value *record = uni__tune_record("end", trial->index);
    if (exploits && uni_dict_take(record, "i", uni_value_int(trial->iteration)) == 0 &&
        take_from_donor(tuner, trial, trial->iteration, &place->decision, record, err) < 0)
        exploits = false; /* it goes on as it was, from its own checkpoint */
    bool again = exploits || place->decision.verdict == UNI__EXPLOIT || trial->wants_resume;
    trial->wants_resume = false;
    UNI_TRY(note_end(tuner, again ? "pending" : "paused", place->why, NULL, false, record, err));
    if (!trial->checkpoint && !trial->start_checkpoint && !tuner->warned_no_checkpoint) {
        tuner->warned_no_checkpoint = true;
        uni__warn("trial %lld was paused without a checkpoint and begins again at the start: hand "
                  "one to report() now and then",
                  (long long)trial->index);
    }
    if (again)
        return uni__tuner_enqueue(tuner, trial->index, err);
    return uni__tuner_act(tuner, err);
}

static int end_failed(uni_tuner *tuner, const uni__crew_event *event, uni__trial *trial,
                      uni_error *err)
{
    int budget = tuner->spec->options.max_failures;
    bool again = budget == UNI_UNLIMITED || trial->failures < budget;
    const char *message =
        event->message && event->message[0] ? event->message : "it failed without a message";
    UNI_TRY(note_end(tuner, again ? "pending" : "error", again ? "failed" : NULL, message, true,
                     uni__tune_record("end", trial->index), err));
    if (again)
        return uni__tuner_enqueue(tuner, trial->index, err);
    UNI_TRY(close_trial(tuner, trial, err));
    if (!tuner->spec->options.fail_fast || tuner->finishing)
        return 0;
    tuner->finishing = true;
    uni_error_set(&tuner->error, UNI_EFUNCTION,
                  "trial %lld failed, and fail_fast ends the experiment with it: %.700s",
                  (long long)trial->index, message);
    uni__tuner_end_all(tuner, "another trial failed (fail_fast)");
    return 0;
}

/* All its checkpoints are complete. */
static int end_trial(uni_tuner *tuner, int index, uni_error *err)
{
    uni__trial_place *place = &tuner->places[index];
    uni__crew_event *event = place->ended;
    uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, place->trial);
    bool asked = place->is_stopping || event->end == UNI__CREW_RETURNED;
    place->ended = NULL;
    tuner->running--;
    int status;
    if (asked && place->is_stopping &&
        (place->decision.verdict == UNI__PAUSE || place->decision.verdict == UNI__EXPLOIT)) {
        status = end_paused(tuner, place, trial, err);
    } else if (asked) {
        const char *why = place->is_stopping      ? place->why
                          : trial->iteration == 0 ? "returned without a report"
                                                  : "returned";
        status = note_end(tuner, "terminated", why, NULL, false,
                          uni__tune_record("end", trial->index), err);
        if (status == 0)
            status = close_trial(tuner, trial, err);
    } else {
        status = end_failed(tuner, event, trial, err);
    }
    int files = uni__files_end(tuner, index, status == 0 ? err : NULL);
    uni__crew_event_free(event);
    uni_value_free(place->decision.config);
    place->decision = (uni__decision){ 0 };
    place->trial = -1;
    return status < 0 ? status : files;
}

int uni__tuner_kept(uni_tuner *tuner, uni__kept *kept, uni_error *err)
{
    uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, kept->trial);
    int status = 0;
    size_t length = strlen(tuner->dir) + 1;
    if (kept->error.code < 0) {
        status = uni_error_set(err, kept->error.code, "a checkpoint of trial %lld: %s",
                               (long long)kept->trial, kept->error.message);
    } else if (kept->number > 0) {
        uni_value *record = uni__tune_record("checkpoint", kept->trial);
        int failed = uni_dict_take(record, "number", uni_value_int(kept->number));
        failed |= uni_dict_take(record, "i", uni_value_int(kept->iteration));
        if (kept->path)
            failed |= uni_dict_take(record, "path", uni_value_string(kept->path + length));
        if (kept->best)
            failed |= uni_dict_take(record, "best", uni_value_string(kept->best + length));
        if (failed) {
            uni_value_free(record);
            record = NULL;
        }
        status = uni__tuner_note(tuner, record, err);
    }
    for (int i = 0; i < tuner->num_places && status == 0; i++) {
        uni__trial_place *place = &tuner->places[i];
        if (place->trial != kept->trial || place->in_flight == 0)
            continue;
        place->in_flight--;
        if (place->ended && place->in_flight == 0)
            status = end_trial(tuner, i, err);
    }
    uni__kept_free(kept);
    return trial ? status : 0;
}

/* A trial that was told to end may hand over its last state: a report with the metric "_at_end", which is no result. The checkpoint belongs to the report before. */
static int take_last_checkpoint(uni_tuner *tuner, uni__trial_place *place,
                                const uni__crew_event *event, uni_error *err)
{
    uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, place->trial);
    uni_value *metrics = NULL;
    if (!place->checkpoint || tuner->groups)
        return 0;
    UNI_TRY(uni_msgpack_read(&metrics, event->metrics, event->metrics_size, err));
    bool at_end = uni_dict_get_bool(metrics, "_at_end", false);
    uni_value_free(metrics);
    char *run_dir = at_end ? uni__trial_path(&tuner->results.experiment, trial->index) : NULL;
    if (!run_dir)
        return 0;
    place->in_flight++;
    place->checkpoint->iteration = trial->iteration;
    uni__keeper_keep(tuner->keeper, trial->index, run_dir, trial->attempts, place->checkpoint,
                     trial->last ? uni_value_copy(trial->last) : NULL);
    place->checkpoint = NULL;
    free(run_dir);
    return 0;
}

/* One whose report never came. The worker gets its buffer back. */
static void drop_checkpoint(uni_tuner *tuner, uni__trial_place *place)
{
    if (place->checkpoint && !tuner->groups) {
        uni__crew_taken(tuner->crew, place->checkpoint);
        uni__crew_over(tuner->crew, place->checkpoint);
    }
    uni__crew_event_free(place->checkpoint);
    place->checkpoint = NULL;
}

static int take_checkpoint(uni_tuner *tuner, uni__trial_place *place, uni__crew_event *event)
{
    if (!event->alone) {
        drop_checkpoint(tuner, place);
        place->checkpoint = event;
        return 0;
    }
    uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, place->trial);
    char *run_dir = uni__trial_path(&tuner->results.experiment, trial->index);
    place->in_flight++;
    /* Without metrics: it may have been saved before or after the report that it belongs to. Its own dictionary has its score. */
    uni__keeper_keep(tuner->keeper, trial->index, run_dir, trial->attempts, event, NULL);
    free(run_dir);
    return 0;
}

/* A group's trainer kept them; the newest is what counts. */
static int note_group_checkpoint(uni_tuner *tuner, int64_t trial, const uni__crew_event *event,
                                 uni_error *err)
{
    uni_checkpoint *newest = NULL;
    size_t length = strlen(tuner->dir) + 1;
    if (uni_checkpoint_open(&newest, event->path, NULL) < 0)
        return 0;
    uni_value *record = uni__tune_record("checkpoint", trial);
    int failed = uni_dict_take(record, "number", uni_value_int(uni_checkpoint_number(newest)));
    failed |= uni_dict_take(record, "i", uni_value_int(uni_checkpoint_iteration(newest)));
    failed |= uni_dict_take(record, "path", uni_value_string(event->path + length));
    failed |= uni_dict_take(record, "best",
                            uni_value_string((event->best ? event->best : event->path) + length));
    uni_checkpoint_close(newest);
    if (failed) {
        uni_value_free(record);
        record = NULL;
    }
    return uni__tuner_note(tuner, record, err);
}

int uni__tuner_event(uni_tuner *tuner, uni__crew_event *event, uni_error *err)
{
    int status = 0;
    if (event->kind == UNI__CREW_SIGNAL) { /* nobody's in particular */
        atomic_store(&tuner->stop_asked, true);
        uni__crew_event_free(event);
        return 0;
    }
    uni__trial_place *place = &tuner->places[event->member];
    if (place->trial < 0 || event->serial != place->serial) {
        uni__crew_event_free(event);
        return 0;
    }
    switch (event->kind) {
    case UNI__CREW_CHECKPOINT:
        return take_checkpoint(tuner, place, event);
    case UNI__CREW_REPORT:
        /* What it still says after its end was decided counts no more. */
        if (!place->is_stopping) {
            status = take_report(tuner, event->member, event, err);
        } else {
            status = take_last_checkpoint(tuner, place, event, err);
            release(tuner, event->member, event->iteration, true);
        }
        uni__crew_event_free(event);
        return status;
    case UNI__CREW_ENDED:
        place->ended = event;
        if (tuner->groups && event->path)
            status = note_group_checkpoint(tuner, place->trial, event, err);
        if (status < 0)
            return status;
        drop_checkpoint(tuner, place);
        return place->in_flight == 0 ? end_trial(tuner, event->member, err) : 0;
    default:
        uni__crew_event_free(event);
        return 0;
    }
}
