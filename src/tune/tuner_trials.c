/*
 * tuner_trials.c - what the reports of trials decide, and how trials end. (tuner_start.c starts
 * them.) Owner's thread.
 *
 * A report is judged (stop criteria, scheduler) and recorded together with the verdict; then the
 * worker may continue or must stop. A trial's end waits for its checkpoints, so that whatever
 * follows (a resume, another trial that takes its checkpoint) finds them complete.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/shared.h"
#include "base/shared.h"
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
    double value = uni__tune_metric(metrics, experiment->metric);
    return (uni__schedule_report){
        .trial = trial->index,
        .iteration = iteration,
        /* The scheduler ignores a report without the metric. */
        .time = uni_dict_get(metrics, experiment->metric) || !isnan(value)
                    ? uni__tune_metric(metrics, tuner->scheduler.time_attr)
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

/* Removes what the session adds, and adds what every result has. */
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

/* PBT: copies the donor's checkpoint, because the donor's own policy may remove it. */
static int take_from_donor(uni_tuner *tuner, const uni__trial *trial, int64_t iteration,
                           uni__decision *decision, uni_value *record, uni_error *err)
{
    uni__trial *donor = uni__experiment_trial(&tuner->results.experiment, decision->donor);
    if (donor)
        donor->saves_nothing = !donor->checkpoint;
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

/* Some trials save only when they are stopped: whether one does is known after the first time. */
static bool can_go_on(const uni__trial *trial)
{
    return trial->checkpoint || trial->start_checkpoint || !trial->saves_nothing;
}

static int judge(uni_tuner *tuner, uni__trial_place *place, const uni__trial *trial,
                 int64_t iteration, const uni_value *metrics, uni_error *err)
{
    uni__experiment *experiment = &tuner->results.experiment;
    uni__decision *decision = &place->decision;
    const char *criterion = NULL;
    if (tuner->scheduler.methods->decides) {
        uni__schedule_report report = uni__tuner_schedule(tuner, trial, iteration, metrics);
        size_t count = (size_t)experiment->count;
        const uni_value **configs = malloc((count + 1) * sizeof *configs);
        bool *saved = malloc(count + 1);
        for (size_t i = 0; configs && saved && i < count; i++) {
            configs[i] = experiment->trials[i]->config;
            saved[i] = can_go_on(experiment->trials[i]);
        }
        report.configs = configs;
        report.saved = saved;
        int status =
            isnan(report.time) || !configs || !saved
                ? 0
                : tuner->scheduler.methods->report(tuner->scheduler.self, &report, decision, err);
        free(configs);
        free(saved);
        UNI_TRY(status);
        if (decision->lacks_checkpoint && !tuner->warned_no_checkpoint) {
            tuner->warned_no_checkpoint = true;
            uni__warn("trial %lld has no checkpoint, so %s cannot pause it or hand it on: give "
                      "report() one at every perturbation_interval",
                      (long long)decision->lacking, tuner->scheduler.methods->name);
        }
        if (decision->verdict != UNI__GO_ON)
            snprintf(place->why, sizeof place->why, "%s", tuner->scheduler.methods->name);
    }
    if (uni__stop_reached(tuner->spec->options.stop, experiment, trial, metrics, &criterion)) {
        decision->verdict = UNI__END;
        snprintf(place->why, sizeof place->why, "reached %s", criterion);
    }
    return 0;
}

/* Recorded with the report, so that a tuner killed before the trial ends does not lose the
 * decision. */
static int note_verdict(const uni__trial_place *place, uni_value *record, uni_error *err)
{
    static const char *const names[] = {
        [UNI__END] = "end", [UNI__PAUSE] = "pause", [UNI__EXPLOIT] = "exploit"
    };
    const uni__decision *decision = &place->decision;
    if (decision->verdict == UNI__GO_ON)
        return 0;
    int failed = uni_dict_take(record, "d", uni_value_string(names[decision->verdict]));
    failed |= uni_dict_take(record, "w", uni_value_string(place->why));
    if (decision->verdict == UNI__EXPLOIT) {
        failed |= uni_dict_take(record, "donor", uni_value_int(decision->donor));
        failed |= uni_dict_take(record, "c", uni_value_copy(decision->config));
    }
    return failed ? uni__no_trial_memory(err) : 0;
}

/* The state that came with the report of a checkpoint's iteration belongs to that checkpoint. */
static void move_state(uni__crew_event *checkpoint, uni__crew_event *report)
{
    free(checkpoint->state);
    checkpoint->state = report->state;
    checkpoint->state_size = report->state_size;
    report->state = NULL;
}

static int take_report(uni_tuner *tuner, int index, uni__crew_event *event, uni_error *err)
{
    uni__trial_place *place = &tuner->places[index];
    uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, place->trial);
    uni_value *metrics = NULL;
    double seconds = 0;
    UNI_TRY(uni__msgpack_read(&metrics, event->metrics, event->metrics_size, err));
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
    /* Before the journal: a tuner killed between the two repeats the report, and does not miss
     * it. */
    if (status == 0)
        status = uni__files_report(tuner, place, event->iteration, event->metrics,
                                   event->metrics_size, err);
    if (status == 0)
        status = uni__tuner_note(tuner, record, err);
    else
        uni_value_free(record);
    if (status == 0 && place->checkpoint) {
        char *run_dir = uni__trial_path(&tuner->results.experiment, trial->index);
        place->in_flight++;
        move_state(place->checkpoint, event);
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

static bool is_reported(const uni_tuner *tuner, const char *name)
{
    return uni__experiment_metric(&tuner->results.experiment, name) >= 0;
}

/* The first stop criterion that no trial has reported, or NULL. */
static const char *missing_criterion(const uni_tuner *tuner)
{
    const uni_value *stop = tuner->spec->options.stop;
    for (size_t i = 0; i < uni_dict_size(stop); i++) {
        const char *key = uni_dict_key_at(stop, i);
        bool plateau = strcmp(key, "plateau") == 0 &&
                       uni_value_type_of(uni_dict_value_at(stop, i)) == UNI_TYPE_DICT;
        if (!plateau && !is_reported(tuner, key))
            return key;
    }
    return NULL;
}

/* A misspelled name would silently disable the searcher, the scheduler or a stop criterion. */
static void warn_no_metric(uni_tuner *tuner, const uni__trial *trial)
{
    const uni__experiment *experiment = &tuner->results.experiment;
    const char *time_attr = tuner->scheduler.methods->decides ? tuner->scheduler.time_attr : NULL;
    const char *missing = experiment->metric, *so = "no trial can be the best one";
    if (tuner->warned_no_metric || trial->status != UNI_TRIAL_TERMINATED)
        return;
    if (!missing || is_reported(tuner, missing)) {
        missing = time_attr;
        so = "the scheduler, which has it as time_attr, decides nothing";
    }
    if (!missing || is_reported(tuner, missing)) {
        missing = missing_criterion(tuner);
        so = "this stop criterion ends no trial";
    }
    if (!missing)
        return;
    tuner->warned_no_metric = true;
    uni__warn("trial %lld ended and has never reported the metric \"%s\"%s%s: %s",
              (long long)trial->index, missing, experiment->num_names ? "; it reported " : "",
              experiment->num_names ? experiment->names[0] : "", so);
}

/* The trial is over: informs the searcher and the scheduler. */
static int close_trial(uni_tuner *tuner, uni__trial *trial, uni_error *err)
{
    uni_tune_searcher *searcher = &tuner->searcher.methods;
    /* The newest checkpoint stays even if the policy does not keep it: the result names it. */
    if (tuner->keeper)
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
        trial->place_in_queue = ++tuner->replayed;
        if (tuner->replaying || trial->status != UNI_TRIAL_PAUSED)
            continue; /* it has not reached its pause yet */
        if (resume) {
            trial->wants_resume = false;
            trial->status = UNI_TRIAL_PENDING;
            UNI_TRY(uni__tuner_enqueue(tuner, index, err));
        }
    }
    if (!tuner->scheduler.methods->complete || tuner->replaying)
        return 0; /* this scheduler ends no paused trials */
    for (int64_t i = 0; i < tuner->results.experiment.count; i++) {
        uni__trial *trial = tuner->results.experiment.trials[i];
        if (trial->status != UNI_TRIAL_PAUSED || !trial->wants_end)
            continue;
        trial->wants_end = false;
        UNI_TRY(note_end(tuner, "terminated", tuner->scheduler.methods->name, NULL, false,
                         uni__tune_record("end", i), err));
        UNI_TRY(uni__files_describe(tuner, trial, err));
        UNI_TRY(close_trial(tuner, trial, err));
    }
    return 0;
}

/* PBT's trial goes on from the donor's checkpoint, or as it was when there is none. */
static int note_exploit(uni_tuner *tuner, const uni__trial *trial, const char *why,
                        uni__decision *decision, uni_error *err)
{
    uni_value *record = uni__tune_record("end", trial->index);
    if (uni_dict_take(record, "i", uni_value_int(trial->iteration)) < 0) {
        uni_value_free(record);
        return uni__no_trial_memory(err);
    }
    (void)!take_from_donor(tuner, trial, trial->iteration, decision, record, err);
    return note_end(tuner, "pending", why, NULL, false, record, err);
}

int uni__tuner_settle(uni_tuner *tuner, uni__trial *trial, uni_error *err)
{
    bool ends = trial->verdict == 'e' || trial->wants_end;
    char *why = strdup(trial->why ? trial->why : "");
    uni__decision exploit = { .donor = trial->donor, .config = trial->exploited };
    int status = trial->exploited ? note_exploit(tuner, trial, why, &exploit, err)
                                  : note_end(tuner, ends ? "terminated" : "paused", why, NULL,
                                             false, uni__tune_record("end", trial->index), err);
    trial->place_in_queue = ++tuner->replayed;
    free(why);
    if (status == 0)
        status = uni__files_describe(tuner, trial, err);
    return status == 0 && ends ? close_trial(tuner, trial, err) : status;
}

int uni__tuner_leave(uni_tuner *tuner, uni__trial *trial, uni_error *err)
{
    UNI_TRY(note_end(tuner, "terminated", "not resumed", NULL, false,
                     uni__tune_record("end", trial->index), err));
    UNI_TRY(uni__files_describe(tuner, trial, err));
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
    bool again = exploits || trial->wants_resume;
    trial->wants_resume = false;
    UNI_TRY(exploits ? note_exploit(tuner, trial, place->why, &place->decision, err)
                     : note_end(tuner, again ? "pending" : "paused", place->why, NULL, false,
                                uni__tune_record("end", trial->index), err));
    trial->saves_nothing = !trial->checkpoint && !trial->start_checkpoint;
    if (trial->saves_nothing && !tuner->warned_no_checkpoint) {
        tuner->warned_no_checkpoint = true;
        uni__warn("trial %lld was paused without a checkpoint and begins again at the start: pass "
                  "one to report() regularly",
                  (long long)trial->index);
    }
    if (again)
        return uni__tuner_enqueue(tuner, trial->index, err);
    return uni__tuner_act(tuner, err);
}

static int end_failed(uni_tuner *tuner, uni__crew_event *event, uni__trial *trial, uni_error *err)
{
    int budget = tuner->spec->options.max_failures;
    bool again = budget == UNI_UNLIMITED || trial->failures < budget;
    const char *message =
        event->message && event->message[0] ? event->message : "it failed without a message";
    UNI_TRY(note_end(tuner, again ? "pending" : "error", again ? "failed" : NULL, message, true,
                     uni__tune_record("end", trial->index), err));
    if (again)
        return uni__tuner_enqueue_first(tuner, trial->index, err);
    uni_value_free(trial->failure); /* of an earlier end, before it was resumed */
    trial->failure = event->failure;
    event->failure = NULL;
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

/* A trial that was told to end may save its last state: a report with the metric "_at_end", which
 * does not count as a result. The checkpoint belongs to the previous report. */
static int take_last_checkpoint(uni_tuner *tuner, uni__trial_place *place, uni__crew_event *event,
                                uni_error *err)
{
    uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, place->trial);
    uni_value *metrics = NULL;
    if (!place->checkpoint || tuner->groups)
        return 0;
    UNI_TRY(uni__msgpack_read(&metrics, event->metrics, event->metrics_size, err));
    bool at_end = uni_dict_get_bool(metrics, "_at_end", false);
    uni_value_free(metrics);
    char *run_dir = at_end ? uni__trial_path(&tuner->results.experiment, trial->index) : NULL;
    if (!run_dir)
        return 0;
    place->in_flight++;
    place->checkpoint->iteration = trial->iteration;
    move_state(place->checkpoint, event);
    uni__keeper_keep(tuner->keeper, trial->index, run_dir, trial->attempts, place->checkpoint,
                     trial->last ? uni_value_copy(trial->last) : NULL);
    place->checkpoint = NULL;
    free(run_dir);
    return 0;
}

/* Drops a checkpoint whose report never came. The worker gets its buffer back. */
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
    /* Without metrics: it may have been saved before or after its report. Its own dictionary has
     * its score. */
    uni__keeper_keep(tuner->keeper, trial->index, run_dir, trial->attempts, event, NULL);
    free(run_dir);
    return 0;
}

/* The score of a checkpoint by the experiment's policy; NAN without one. */
static double score_of(const uni_tuner *tuner, const char *path)
{
    const uni_checkpoint_policy *policy = tuner->spec->options.policy;
    uni_checkpoint *checkpoint = NULL;
    if (!policy || !policy->score_attribute || !path ||
        uni_checkpoint_open(&checkpoint, path, NULL) < 0)
        return NAN;
    double score =
        uni__tune_metric(uni_checkpoint_info_of(checkpoint)->metrics, policy->score_attribute);
    uni_checkpoint_close(checkpoint);
    return policy->score_order == UNI_SCORE_MIN ? -score : score;
}

/* The best checkpoint of a trial whose earlier runs may have had a better one, relative to the
 * experiment's directory. */
static char *find_best(const uni_tuner *tuner, int64_t index, const uni__crew_event *event)
{
    const uni__trial *trial = uni__experiment_trial(&tuner->results.experiment, index);
    const char *best = event->best ? event->best : event->path;
    const char *earlier = trial ? trial->best_checkpoint : NULL;
    char *before = earlier ? uni__path_join(tuner->dir, earlier, NULL) : NULL;
    bool stays = before && score_of(tuner, before) > score_of(tuner, best);
    free(before);
    return strdup(stays ? earlier : best + strlen(tuner->dir) + 1);
}

/* A group's trainer kept them; the newest is what counts. */
static int note_group_checkpoint(uni_tuner *tuner, const uni__trial_place *place,
                                 const uni__crew_event *event, uni_error *err)
{
    uni_checkpoint *newest = NULL;
    size_t length = strlen(tuner->dir) + 1;
    if (uni_checkpoint_open(&newest, event->path, NULL) < 0)
        return 0;
    uni_value *record = uni__tune_record("checkpoint", place->trial);
    int failed =
        uni_dict_take(record, "number", uni_value_int(uni_checkpoint_info_of(newest)->number));
    failed |= uni_dict_take(
        record, "i",
        uni_value_int(place->iterations_before + uni_checkpoint_info_of(newest)->iteration));
    failed |= uni_dict_take(record, "path", uni_value_string(event->path + length));
    char *best = find_best(tuner, place->trial, event);
    failed |= !best || uni_dict_take(record, "best", uni_value_string(best)) < 0;
    free(best);
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
    if (event->kind == UNI__CREW_SIGNAL) { /* not for a particular trial */
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
        /* Reports after the decision to end do not count any more. */
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
            status = note_group_checkpoint(tuner, place, event, err);
        if (status < 0)
            return status;
        drop_checkpoint(tuner, place);
        return place->in_flight == 0 ? end_trial(tuner, event->member, err) : 0;
    default:
        uni__crew_event_free(event);
        return 0;
    }
}
