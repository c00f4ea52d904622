/*
 * experiment.h - what is known of an experiment: its trials, rebuilt from tune.jsonl and changed by nothing else.
 *
 * Every change is a record (docs/formats.md, "tune.jsonl"). The tuner appends it and then applies it; a reader applies what it finds. So a tuner that was killed
 * and its successor know the same. Reports of trials that have ended are kept as sums only (last, lowest, highest, mean of every number): ten thousand trials
 * take megabytes. A trial that still runs keeps its numbers, because a restart from a checkpoint takes the later ones back.
 *
 * Threads: the owner's; a handle belongs to one.
 */
#ifndef UNISONO_TUNE_EXPERIMENT_H
#define UNISONO_TUNE_EXPERIMENT_H

#include <unisono/tune.h>

#include "base/journal.h"

#define UNI__TUNE_JOURNAL "tune.jsonl"
#define UNI__TUNE_KIND "tune"

typedef struct uni__number {
    int name; /* in the experiment's list */
    double value;
} uni__number;

typedef struct uni__aggregate {
    int name;
    int64_t count; /* finite or not */
    double last, low, high, sum; /* low, high and sum: of the finite ones; NaN without any */
    int64_t finite;
} uni__aggregate;

typedef struct uni__report {
    int64_t iteration;
    double seconds;
    uni_value *metrics; /* NULL when it is no longer needed */
    int count;
    uni__number *numbers;
} uni__report;

typedef struct uni__trial {
    int64_t index;
    uni_trial_status status;
    uni_value *config, *last; /* last report */
    int64_t iteration;
    int attempts, failures;
    double seconds, started;
    uni__aggregate *aggregates;
    int num_aggregates;
    uni__report *reports; /* while it has not ended */
    int num_reports, room;
    char *error, *why;
    int64_t checkpoint_number, checkpoint_iteration;
    char *checkpoint, *best_checkpoint; /* relative to the experiment's directory; NULL: none */
    char *start_checkpoint; /* of another trial, to begin from when it has none newer (PBT) */
    bool wants_end, wants_resume; /* what a scheduler has decided about it while it was paused */
    int64_t start_iteration; /* with start_checkpoint */
    bool from_the_start; /* restarted: older checkpoints do not count */
    char verdict; /* of the last report: 'e' it ends, 'p' it pauses; 0: it goes on */
} uni__trial;

typedef struct uni__experiment {
    char *dir, *name;
    uni_value *spec;
    char *metric; /* of the spec, or NULL */
    int sign; /* 1: max, -1: min, 0: no mode */
    int64_t expected; /* trials, -1: not known */
    uni__trial **trials;
    int64_t count, room;
    char **names; /* of metrics */
    int num_names, names_room;
    bool finished;
    int tuners; /* how often it was opened by one */
    double created, seconds_used; /* of earlier tuners, for the time budget */
} uni__experiment;

struct uni_tune_results {
    uni__experiment experiment;
};

void uni__experiment_clear(uni__experiment *experiment);
/* Changes the state as the record says. Records that are not known are passed over. */
int uni__experiment_apply(uni__experiment *experiment, const uni_value *record,
                          uni_error *err) UNI_MUST_USE;
/* Reads a directory's journal without opening it for writing. */
int uni__experiment_read(uni__experiment *experiment, const char *dir, uni_error *err) UNI_MUST_USE;
/* The directory that `name` means: a path, or NAME below storage (its newest tune_NNN). malloc'ed. */
int uni__experiment_find(const char *name, const char *storage, char **out,
                         uni_error *err) UNI_MUST_USE;

uni__trial *uni__experiment_trial(const uni__experiment *experiment, int64_t index); /* or NULL */
/* Number of the metric, -1 when no trial has reported it. "a.b" and "a/b" are the same. */
int uni__experiment_metric(const uni__experiment *experiment, const char *name);
/* false when the trial has not reported it. */
bool uni__trial_value(const uni__trial *trial, int name, int sign, uni_scope scope, double *out);
char *uni__trial_path(const uni__experiment *experiment, int64_t index);

/* Records (record.c): one call each; NULL without memory. */
uni_value *uni__tune_record(const char *event, int64_t trial); /* trial -1: none */
/* Puts the metrics into the record, numbers that JSON has not beside them. */
int uni__record_metrics(uni_value *record, const uni_value *metrics) UNI_MUST_USE;
uni_value *uni__record_read_metrics(const uni_value *record);

#endif
