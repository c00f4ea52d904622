/*
 * median.c - the median stopping rule (Golovin et al. 2017): a trial ends when its best value so
 * far is below the median of the others' running means at the same time. As in Ray, running means
 * begin with the grace period. The rule applies after grace_period, once min_samples_required other
 * trials have got that far.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "tune/schedule.h"
#include "tune/search.h"

typedef struct point {
    int64_t iteration;
    double time, best;
    /* Mean and number of the reports from the grace period on. */
    double mean, count;
} point;

typedef struct history {
    point *points;
    size_t count, room;
} history;

typedef struct median {
    history *trials;
    size_t count;
    double grace, samples;
} median;

static void median_free(void *context)
{
    median *self = context;
    for (size_t i = 0; i < self->count; i++)
        free(self->trials[i].points);
    free(self->trials);
    free(self);
}

static int median_new(void **out, const uni__schedule_setting *setting, uni_error *err)
{
    static const char *const known[] = { "time_attr", "grace_period", "min_samples_required",
                                         NULL };
    const uni_value *options = setting->options;
    median *self = calloc(1, sizeof *self);
    if (!self)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    int status = uni__check_keys("the median scheduler", options, known, err);
    if (status == 0)
        status = uni__option_number(options, "grace_period", 1, 0, &self->grace, err);
    if (status == 0)
        status = uni__option_number(options, "min_samples_required", 3, 1, &self->samples, err);
    if (status < 0) {
        free(self);
        return status;
    }
    *out = self;
    return 0;
}

static int median_added(void *context, int64_t trial, uni_error *err)
{
    median *self = context;
    history *grown = realloc(self->trials, ((size_t)trial + 1) * sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    self->trials = grown;
    for (; self->count <= (size_t)trial; self->count++)
        grown[self->count] = (history){ 0 };
    return 0;
}

static int add_point(history *mine, const uni__schedule_report *report, double grace,
                     uni_error *err)
{
    point *grown = uni__grown(mine->points, mine->count, &mine->room, sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    mine->points = grown;
    const point *before = mine->count ? &mine->points[mine->count - 1] : NULL;
    double count = before ? before->count : 0, mean = before ? before->mean : NAN;
    bool counts = report->time >= grace;
    if (counts)
        mean = count > 0 ? (mean * count + report->value) / (count + 1) : report->value;
    mine->points[mine->count++] =
        (point){ .iteration = report->iteration,
                 .time = report->time,
                 .best = before ? fmax(before->best, report->value) : report->value,
                 .mean = mean,
                 .count = count + counts };
    return 0;
}

/* The trial's running mean at that time; NaN when it did not get there. */
static double mean_at(const history *of, double time)
{
    if (!of->count || of->points[of->count - 1].time < time)
        return NAN;
    for (size_t i = of->count; i-- > 0;)
        if (of->points[i].time <= time)
            return of->points[i].mean;
    return NAN;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static int median_report(void *context, const uni__schedule_report *report, uni__decision *out,
                         uni_error *err)
{
    median *self = context;
    if (report->trial >= (int64_t)self->count)
        return 0;
    history *mine = &self->trials[report->trial];
    UNI_TRY(add_point(mine, report, self->grace, err));
    if (report->time < self->grace)
        return 0;
    double *means = malloc(self->count * sizeof *means);
    if (!means)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    size_t count = 0;
    for (size_t i = 0; i < self->count; i++) {
        double mean = i == (size_t)report->trial ? NAN : mean_at(&self->trials[i], report->time);
        if (isfinite(mean)) /* ignore diverged trials */
            means[count++] = mean;
    }
    if ((double)count >= self->samples) {
        qsort(means, count, sizeof *means, by_value);
        double middle =
            count % 2 ? means[count / 2] : (means[count / 2 - 1] + means[count / 2]) / 2;
        if (mine->points[mine->count - 1].best < middle)
            out->verdict = UNI__END;
    }
    free(means);
    return 0;
}

static void median_ended(void *context, int64_t trial) {}

static void median_forget(void *context, int64_t trial, int64_t iteration)
{
    median *self = context;
    history *mine = trial < (int64_t)self->count ? &self->trials[trial] : NULL;
    while (mine && mine->count && mine->points[mine->count - 1].iteration > iteration)
        mine->count--;
}

const uni__scheduler_methods uni__median = { .name = "median",
                                             .decides = true,
                                             .new = median_new,
                                             .free = median_free,
                                             .added = median_added,
                                             .report = median_report,
                                             .ended = median_ended,
                                             .forget = median_forget };
