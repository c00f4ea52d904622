/*
 * asha.c - asynchronous successive halving (Li et al. 2018), in the form that ends trials instead
 * of pausing them.
 *
 * Rungs are at grace_period * reduction_factor^k iterations. A trial that reaches a rung is
 * compared with all that reached it before, and ends if it is below their top 1/reduction_factor.
 * At max_t every trial ends. With several brackets the later ones leave out the first rungs, and
 * trials take turns between them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "tune/schedule.h"
#include "tune/search.h"

#define MAX_RUNGS 64

typedef struct entry {
    int64_t trial, iteration;
    double value;
} entry;

typedef struct rung {
    double milestone;
    entry *entries; /* lowest value first */
    size_t count, room;
} rung;

typedef struct bracket {
    rung rungs[MAX_RUNGS]; /* highest first */
    int count;
} bracket;

typedef struct asha {
    bracket *brackets;
    int num_brackets;
    double factor, max_t;
} asha;

static void asha_free(void *context)
{
    asha *self = context;
    for (int b = 0; b < self->num_brackets; b++)
        for (int i = 0; i < self->brackets[b].count; i++)
            free(self->brackets[b].rungs[i].entries);
    free(self->brackets);
    free(self);
}

static int read_options(asha *self, const uni_value *options, double *grace, uni_error *err)
{
    static const char *const known[] = { "time_attr",        "grace_period", "max_t",
                                         "reduction_factor", "brackets",     NULL };
    double brackets;
    UNI_TRY(uni__check_keys("the asha scheduler", options, known, err));
    UNI_TRY(uni__option_number(options, "grace_period", 1, 1e-9, grace, err));
    UNI_TRY(uni__option_number(options, "max_t", 100, *grace, &self->max_t, err));
    UNI_TRY(uni__option_number(options, "reduction_factor", 4, 1.000001, &self->factor, err));
    UNI_TRY(uni__option_number(options, "brackets", 1, 1, &brackets, err));
    self->num_brackets = (int)fmin(brackets, MAX_RUNGS);
    return 0;
}

static int asha_new(void **out, const uni__schedule_setting *setting, uni_error *err)
{
    double grace = 1;
    asha *self = calloc(1, sizeof *self);
    int status = self ? read_options(self, setting->options, &grace, err)
                      : uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    if (status == 0 &&
        !(self->brackets = calloc((size_t)self->num_brackets, sizeof *self->brackets)))
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    if (status < 0) {
        free(self);
        return status;
    }
    for (int b = 0; b < self->num_brackets; b++) {
        bracket *at = &self->brackets[b];
        double first = grace * pow(self->factor, b);
        int rungs = (int)(floor(log(self->max_t / first) / log(self->factor) + 1e-9)) + 1;
        rungs = rungs < 1 ? 0 : rungs > MAX_RUNGS ? MAX_RUNGS : rungs;
        for (int k = rungs - 1; k >= 0; k--)
            at->rungs[at->count++].milestone = first * pow(self->factor, k);
    }
    *out = self;
    return 0;
}

static int asha_added(void *context, int64_t trial, uni_error *err)
{
    return 0;
}

/* The value that the top 1/factor of a rung reach, interpolated between neighbors; NaN for an empty
 * rung. */
static double cutoff(const rung *at, double factor)
{
    if (!at->count)
        return NAN;
    double place = (1 - 1 / factor) * (double)(at->count - 1);
    size_t below = (size_t)floor(place), above = below + 1 < at->count ? below + 1 : below;
    double low = at->entries[below].value, high = at->entries[above].value;
    return isinf(low) ? low : low + (place - (double)below) * (high - low);
}

static bool was_there(const rung *at, int64_t trial)
{
    for (size_t i = at->count; i-- > 0;)
        if (at->entries[i].trial == trial)
            return true;
    return false;
}

static int enter(rung *at, const uni__schedule_report *report, uni_error *err)
{
    entry *grown = uni__grown(at->entries, at->count, &at->room, sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    at->entries = grown;
    size_t from = 0, to = at->count;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (at->entries[middle].value <= report->value)
            from = middle + 1;
        else
            to = middle;
    }
    memmove(at->entries + from + 1, at->entries + from, (at->count - from) * sizeof *at->entries);
    at->entries[from] =
        (entry){ .trial = report->trial, .iteration = report->iteration, .value = report->value };
    at->count++;
    return 0;
}

static int asha_report(void *context, const uni__schedule_report *report, uni__decision *out,
                       uni_error *err)
{
    asha *self = context;
    bracket *mine = &self->brackets[report->trial % self->num_brackets];
    for (int i = 0; i < mine->count; i++) {
        rung *at = &mine->rungs[i];
        if (report->time < at->milestone)
            continue;
        if (was_there(at, report->trial))
            break;
        double least = cutoff(at, self->factor);
        UNI_TRY(enter(at, report, err));
        if (report->value < least)
            out->verdict = UNI__END;
        break;
    }
    if (report->time >= self->max_t)
        out->verdict = UNI__END;
    return 0;
}

static void asha_ended(void *context, int64_t trial) {}

static void asha_forget(void *context, int64_t trial, int64_t iteration)
{
    asha *self = context;
    bracket *mine = &self->brackets[trial % self->num_brackets];
    for (int i = 0; i < mine->count; i++) {
        rung *at = &mine->rungs[i];
        size_t kept = 0;
        for (size_t n = 0; n < at->count; n++)
            if (at->entries[n].trial != trial || at->entries[n].iteration <= iteration)
                at->entries[kept++] = at->entries[n];
        at->count = kept;
    }
}

const uni__scheduler_methods uni__asha = { .name = "asha",
                                           .decides = true,
                                           .new = asha_new,
                                           .free = asha_free,
                                           .added = asha_added,
                                           .report = asha_report,
                                           .ended = asha_ended,
                                           .forget = asha_forget };
