/*
 * schedule.h - decides which trials continue: FIFO, ASHA, median stopping, HyperBand, PBT.
 *
 * A scheduler sees trials being added, reporting and ending, and answers each report. Its decisions
 * depend only on these calls and their order, so replaying the journal restores its state. `forget`
 * discards what a trial reported after an iteration from which it is restarted. Values are negated
 * where needed so that higher is better; NaN is -INFINITY. Owner's thread.
 */
#ifndef UNISONO_TUNE_SCHEDULE_H
#define UNISONO_TUNE_SCHEDULE_H

#include <unisono/tune.h>

typedef enum uni__verdict {
    UNI__GO_ON,
    UNI__END, /* it is over, and counts as terminated */
    /* Ended for now; continues from its checkpoint when `act` says so. */
    UNI__PAUSE,
    /* Continues from the donor's checkpoint with another config. */
    UNI__EXPLOIT
} uni__verdict;

typedef struct uni__decision {
    uni__verdict verdict;
    int64_t donor; /* EXPLOIT */
    /* EXPLOIT: the receiver's new config; the caller frees it. */
    uni_value *config;
    /* This trial has no checkpoint, and would have been paused or taken over from. */
    bool lacks_checkpoint;
    int64_t lacking;
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
    const bool *saved; /* which of them have a checkpoint to go on from; NULL: all */
    bool others_wait; /* another trial could use this one's place */
} uni__schedule_report;

typedef struct uni__scheduler uni__scheduler;

typedef struct uni__scheduler_methods {
    const char *name;
    /* false: report always says GO_ON, so no trial needs to wait for it. */
    bool decides;
    bool new_first; /* new trials go before paused ones */
    int (*new)(void **self, const uni__schedule_setting *setting, uni_error *err);
    void (*free)(void *self);
    int (*added)(void *self, int64_t trial, uni_error *err);
    int (*report)(void *self, const uni__schedule_report *report, uni__decision *out,
                  uni_error *err);
    void (*ended)(void *self, int64_t trial);
    void (*forget)(void *self, int64_t trial, int64_t iteration);
    /* No more trials will be added. May be NULL, like act. */
    void (*complete)(void *self);
    /* Yields one action on a paused trial: true, and whether it continues or ends. Called until
     * false. */
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

/* Reads a number from the options, at least `least`. */
int uni__option_number(const uni_value *options, const char *key, double fallback, double least,
                       double *out, uni_error *err) UNI_MUST_USE;

#endif
