/*
 * experiment.h - the state of an experiment: its trials, rebuilt from tune.jsonl and changed by
 * nothing else.
 *
 * Every change is a record (docs/formats.md, "tune.jsonl"). The tuner appends it and then applies
 * it; a reader applies what it finds. So a tuner that was killed and its successor have the same
 * state. Reports of trials that have ended are kept only as aggregates (last, lowest, highest, mean
 * of every number): ten thousand trials take megabytes. A running trial keeps its numbers, because
 * a restart from a checkpoint discards the later ones.
 *
 * Threads: only the owner's; a handle belongs to one thread.
 */
#ifndef UNISONO_TUNE_EXPERIMENT_H
#define UNISONO_TUNE_EXPERIMENT_H

#include <unisono/tune.h>

#include "base/journal.h"

#define UNI__TUNE_JOURNAL "tune.jsonl"
#define UNI__TUNE_KIND "tune"

typedef struct uni__number {
    int name; /* index in the experiment's list */
    double value;
} uni__number;

typedef struct uni__aggregate {
    int name;
    int64_t count; /* finite or not */
    /* low, high and sum: of the finite values; NaN if there are none. */
    double last, low, high, sum;
    int64_t finite;
} uni__aggregate;

typedef struct uni__report {
    int64_t iteration;
    double seconds;
    uni_value *metrics; /* NULL once it is not needed any more */
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
    uni__report *reports; /* until the trial ends */
    int num_reports;
    size_t room;
    char *error, *why;
    /* What the function left behind; only in the process that ran the trial. */
    uni_value *failure;
    int64_t checkpoint_number, checkpoint_iteration;
    /* Relative to the experiment's directory; NULL: none. */
    char *checkpoint, *best_checkpoint;
    /* Of another trial, to begin from when it has no newer one (PBT). */
    char *start_checkpoint;
    /* A scheduler's decisions while the trial was paused. */
    bool wants_end, wants_resume;
    /* Was paused, or asked for its checkpoint, and had none. Not in the journal. */
    bool saves_nothing;
    int64_t start_iteration; /* with start_checkpoint */
    bool from_the_start; /* restarted: older checkpoints do not count */
    /* of the last report: 'e' it ends, 'p' it pauses, 'x' it exploits; 0: it goes on */
    char verdict;
    uni_trial_info info; /* filled by uni_trial_info_of */
    int64_t donor; /* with `exploited` */
    uni_value *exploited; /* the last report's verdict is to exploit: its config from then on */
    bool was_interrupted; /* pending because it failed */
    int64_t place_in_queue; /* which of the waiting ones comes first, after a replay */
} uni__trial;

typedef struct uni__experiment {
    char *dir, *name;
    uni_value *spec;
    char *metric; /* from the spec, or NULL */
    int sign; /* 1: max, -1: min, 0: no mode */
    int64_t expected; /* number of trials; -1: not known */
    uni__trial **trials;
    int64_t count;
    size_t room;
    char **names; /* of metrics */
    int num_names;
    size_t names_room;
    bool finished;
    int tuners; /* how many tuners have opened it */
    /* seconds_used: by earlier tuners, for the time budget. */
    double created, seconds_used;
} uni__experiment;

struct uni_tune_results {
    uni__experiment experiment;
    uni_tune_info info; /* filled by uni_tune_info_of */
};

void uni__experiment_clear(uni__experiment *experiment);
/* Applies the record to the state. Unknown records are ignored. */
int uni__experiment_apply(uni__experiment *experiment, const uni_value *record,
                          uni_error *err) UNI_MUST_USE;
/* Reads a directory's journal without opening it for writing. */
int uni__experiment_read(uni__experiment *experiment, const char *dir, uni_error *err) UNI_MUST_USE;
/* The directory that `name` means: a path, or NAME below storage (its newest tune_NNN).
 * malloc'ed. */
int uni__experiment_find(const char *name, const char *storage, char **out,
                         uni_error *err) UNI_MUST_USE;

uni__trial *uni__experiment_trial(const uni__experiment *experiment, int64_t index); /* or NULL */
/* Index of the metric, -1 when no trial has reported it. "a.b" and "a/b" are the same. */
int uni__experiment_metric(const uni__experiment *experiment, const char *name);
/* false when the trial has not reported it. */
bool uni__trial_value(const uni__trial *trial, int name, int sign, uni_scope scope, double *out);
char *uni__trial_path(const uni__experiment *experiment, int64_t index);

/* Records (record.c): one call each; NULL when out of memory. */
uni_value *uni__tune_record(const char *event, int64_t trial); /* trial -1: none */
/* Puts the metrics into the record; numbers that JSON cannot express go beside them. */
int uni__record_metrics(uni_value *record, const uni_value *metrics) UNI_MUST_USE;
uni_value *uni__record_read_metrics(const uni_value *record);

#endif
