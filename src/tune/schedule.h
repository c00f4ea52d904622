/*
 * schedule.h - who decides which trials go on: FIFO, ASHA, median stopping, HyperBand, PBT.
 *
 * A scheduler sees trials come, report and end, and answers each report. It decides by nothing but what it is told, in that order, so that telling it the
 * journal again brings it to the same state. `forget` takes back what a trial reported after an iteration: it is started again from there. Values
 * are turned so that higher is better; NaN is -INFINITY. Owner's thread.
 */
#ifndef UNISONO_TUNE_SCHEDULE_H
#define UNISONO_TUNE_SCHEDULE_H

#include <unisono/tune.h>

typedef enum uni__verdict {
    UNI__GO_ON,
    UNI__END, /* it is over, and counts as terminated */
    UNI__PAUSE, /* ended for now; goes on from its checkpoint when act says so */
    UNI__EXPLOIT /* goes on from the donor's checkpoint with another config */
} uni__verdict;

typedef struct uni__decision {
    uni__verdict verdict;
    int64_t donor; /* EXPLOIT */
    uni_value *config; /* EXPLOIT: the receiver's new one, the caller's to free */
} uni__decision;

typedef struct uni__schedule_setting {
    const uni_value *options; /* {"type": ...} or NULL */
    const char *metric; /* or NULL */
    int sign;
    const uni_value *space;
    uint64_t seed;
    const uni_tune_sampler *samplers;
} uni__schedule_setting;

typedef struct uni__schedule_report {
    int64_t trial, iteration;
    double time, value; /* time: the scheduler's time_attr */
    const uni_value *config;
    const uni_value *const *configs; /* of all trials, by number (PBT's donors) */
    bool others_wait; /* somebody could use this trial's place */
} uni__schedule_report;

typedef struct uni__scheduler uni__scheduler;

typedef struct uni__scheduler_methods {
    const char *name;
    bool decides; /* false: report always says GO_ON, so nobody needs to wait for it */
    bool new_first; /* new trials before those that were paused */
    int (*new)(void **self, const uni__schedule_setting *setting, uni_error *err);
    void (*free)(void *self);
    int (*added)(void *self, int64_t trial, uni_error *err);
    int (*report)(void *self, const uni__schedule_report *report, uni__decision *out,
                  uni_error *err);
    void (*ended)(void *self, int64_t trial);
    void (*forget)(void *self, int64_t trial, int64_t iteration);
    /* No more trials will be added. May be NULL, like act. */
    void (*complete)(void *self);
    /* One thing to do with a paused trial: true and whether it goes on or ends. Called until false. */
    bool (*act)(void *self, int64_t *trial, bool *resume);
} uni__scheduler_methods;

struct uni__scheduler {
    const uni__scheduler_methods *methods;
    void *self;
    const char *time_attr; /* borrowed from the options */
};

extern const uni__scheduler_methods uni__asha, uni__median, uni__hyperband, uni__pbt;

int uni__scheduler_new(uni__scheduler *out, const uni__schedule_setting *setting,
                       uni_error *err) UNI_MUST_USE;
void uni__scheduler_clear(uni__scheduler *scheduler);

/* Numbers of options, checked: at least `least`. */
int uni__option_number(const uni_value *options, const char *key, double fallback, double least,
                       double *out, uni_error *err) UNI_MUST_USE;

#endif
