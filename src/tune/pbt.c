/*
 * pbt.c - population based training (Jaderberg et al. 2017).
 *
 * Every perturbation_interval a trial is compared with the last scores of all others. A trial in
 * the lowest quantile continues from the checkpoint of one in the highest, with a mutation of that
 * one's config. Each parameter of `mutations` is resampled with resample_probability; otherwise it
 * is multiplied by 0.8 or 1.2, or moved to a neighbor in its list. With more trials than places, a
 * trial yields its place at each interval, so that the population advances together. Random numbers
 * are keyed by the seed, the trial and its iteration.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/random.h"
#include "tune/schedule.h"
#include "tune/search.h"
#include "tune/space.h"

/* One comparison with the others. */
typedef struct mark {
    double time, score;
    int64_t iteration;
} mark;

/* All marks are kept: a trial that is started again from an older checkpoint goes back over
 * them. */
typedef struct individual {
    mark *marks;
    size_t count, room;
    bool paused;
} individual;

typedef struct pbt {
    const uni_value *mutations;
    double interval, quantile, resample;
    uint64_t seed;
    individual *all;
    int64_t count;
} pbt;

static void pbt_free(void *context)
{
    pbt *self = context;
    for (int64_t i = 0; i < self->count; i++)
        free(self->all[i].marks);
    free(self->all);
    free(self);
}

static const mark *last_mark(const individual *one)
{
    return one->count ? &one->marks[one->count - 1] : NULL;
}

static int add_mark(individual *one, mark next, uni_error *err)
{
    mark *grown = uni__grown(one->marks, one->count, &one->room, sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    one->marks = grown;
    one->marks[one->count++] = next;
    return 0;
}

static int check_mutations(pbt *self, const uni__schedule_setting *setting, uni_error *err)
{
    self->mutations = uni_dict_get(setting->options, "mutations");
    if (!self->mutations)
        self->mutations = uni_dict_get(setting->options, "hyperparam_mutations");
    if (uni_dict_size(self->mutations) == 0)
        return uni_error_set(err, UNI_EINVAL,
                             "the pbt scheduler needs mutations: a dictionary from parameters to "
                             "lists or domains, such as {\"lr\": {\"$loguniform\": [1e-4, 0.1]}}");
    for (size_t i = 0; i < uni_dict_size(self->mutations); i++) {
        const char *path = uni_dict_key_at(self->mutations, i);
        const uni_value *how = uni_dict_value_at(self->mutations, i);
        uni__domain domain;
        int found = uni__domain_read(how, path, &domain, err);
        UNI_TRY(found);
        if (!found && uni_list_size(how) == 0)
            return uni_error_set(err, UNI_EINVAL,
                                 "the mutation of \"%s\" must be a domain or a list of values",
                                 path);
    }
    return 0;
}

static int pbt_new(void **out, const uni__schedule_setting *setting, uni_error *err)
{
    static const char *const known[] = { "time_attr",
                                         "perturbation_interval",
                                         "quantile_fraction",
                                         "resample_probability",
                                         "mutations",
                                         "hyperparam_mutations",
                                         NULL };
    const uni_value *options = setting->options;
    pbt *self = calloc(1, sizeof *self);
    if (!self)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    self->seed = setting->seed;
    int status = uni__check_keys("the pbt scheduler", options, known, err);
    if (status == 0)
        status = check_mutations(self, setting, err);
    if (status == 0)
        status =
            uni__option_number(options, "perturbation_interval", 4, 1e-9, &self->interval, err);
    if (status == 0)
        status = uni__option_number(options, "quantile_fraction", 0.25, 0, &self->quantile, err);
    if (status == 0)
        status = uni__option_number(options, "resample_probability", 0.25, 0, &self->resample, err);
    if (status == 0 && self->resample > 1)
        status = uni_error_set(err, UNI_EINVAL, "resample_probability must not be above 1");
    if (status == 0 && self->quantile > 0.5)
        status = uni_error_set(err, UNI_EINVAL, "quantile_fraction must not be above 0.5");
    if (status < 0) {
        free(self);
        return status;
    }
    *out = self;
    return 0;
}

static int pbt_added(void *context, int64_t trial, uni_error *err)
{
    pbt *self = context;
    individual *grown = realloc(self->all, (size_t)(trial + 1) * sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a scheduler");
    self->all = grown;
    for (; self->count <= trial; self->count++)
        grown[self->count] = (individual){ 0 };
    return 0;
}

typedef struct ranked {
    int64_t trial;
    double score;
} ranked;

static int lowest_first(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? -1 : 1;
    return a->trial < b->trial ? -1 : 1;
}

/* The donor if this trial is among the lowest; otherwise -1. */
static int64_t find_donor(pbt *self, const uni__schedule_report *report)
{
    ranked *order = malloc((size_t)(self->count + 1) * sizeof *order);
    size_t count = 0;
    int64_t donor = -1;
    for (int64_t i = 0; order && i < self->count; i++)
        if (self->all[i].count)
            order[count++] = (ranked){ .trial = i, .score = last_mark(&self->all[i])->score };
    size_t share = (size_t)ceil((double)count * self->quantile);
    if (share > count / 2)
        share = count / 2;
    if (order && share > 0) {
        qsort(order, count, sizeof *order, lowest_first);
        for (size_t i = 0; i < share; i++)
            if (order[i].trial == report->trial)
                donor = order[count - 1 -
                              (size_t)(uni__random_unit(self->seed, (uint64_t)report->trial,
                                                        (uint64_t)report->iteration << 8) *
                                       (double)share)]
                            .trial;
    }
    free(order);
    return donor;
}

static uni_value *neighbour(const uni_value *list, const uni_value *now, bool up)
{
    size_t count = uni_list_size(list), at = 0;
    while (at < count && !uni_value_equal(uni_list_get(list, at), now) &&
           !(uni_value_is_number(now) &&
             uni_value_as_float(uni_list_get(list, at), NAN) == uni_value_as_float(now, 0)))
        at++;
    if (at == count)
        at = 0;
    at = up ? (at + 1 < count ? at + 1 : at) : (at > 0 ? at - 1 : 0);
    return uni_value_copy(uni_list_get(list, at));
}

static uni_value *mutate_one(const pbt *self, const uni_value *how, const uni_value *now,
                             double chance, double pick)
{
    uni__domain domain;
    int marked = uni__domain_read(how, "", &domain, NULL);
    const uni_value *list = marked == 1 ? domain.values : how;
    bool anew = chance < self->resample || !now; /* !now: not in the space */
    if (anew && list)
        return uni_value_copy(uni_list_get(list, (size_t)(pick * (double)uni_list_size(list))));
    if (anew)
        return uni__domain_sample(&domain, pick);
    if (list)
        return neighbour(list, now, pick >= 0.5);
    double number = uni_value_as_float(now, NAN) * (pick < 0.5 ? 0.8 : 1.2);
    return domain.kind == UNI__DOMAIN_INT ? uni_value_int((int64_t)number)
                                          : uni_value_float(number);
}

static int mutate(const pbt *self, const uni__schedule_report *report, const uni_value *from,
                  uni_value **out)
{
    uni_value *config = uni_value_copy(from);
    int status = config ? 0 : UNI_ENOMEM;
    for (size_t i = 0; i < uni_dict_size(self->mutations) && status == 0; i++) {
        const char *path = uni_dict_key_at(self->mutations, i);
        uint64_t place = (uint64_t)report->iteration << 8 | (i * 2 + 1);
        double chance = uni__random_unit(self->seed, (uint64_t)report->trial, place);
        double pick = uni__random_unit(self->seed, (uint64_t)report->trial, place + 1);
        status = uni__space_put(config, path,
                                mutate_one(self, uni_dict_value_at(self->mutations, i),
                                           uni_value_path(config, path), chance, pick));
    }
    if (status < 0) {
        uni_value_free(config);
        return status;
    }
    *out = config;
    return 0;
}

static int pbt_report(void *context, const uni__schedule_report *report, uni__decision *out,
                      uni_error *err)
{
    pbt *self = context;
    if (report->trial >= self->count)
        return 0;
    individual *mine = &self->all[report->trial];
    if (report->time - (mine->count ? last_mark(mine)->time : 0) < self->interval)
        return 0;
    UNI_TRY(add_mark(
        mine,
        (mark){ .time = report->time, .score = report->value, .iteration = report->iteration },
        err));
    int64_t donor = find_donor(self, report);
    int64_t needed = donor >= 0 ? donor : report->others_wait ? report->trial : -1;
    if (needed >= 0 && report->saved && !report->saved[needed]) {
        /* It would begin again at the start, and come to this mark again. */
        out->lacks_checkpoint = true;
        out->lacking = needed;
    } else if (donor >= 0 && report->configs) {
        if (mutate(self, report, report->configs[donor], &out->config) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a mutated config");
        out->verdict = UNI__EXPLOIT;
        out->donor = donor;
    } else if (report->others_wait) {
        out->verdict = UNI__PAUSE;
        mine->paused = true;
    }
    return 0;
}

static void pbt_ended(void *context, int64_t trial)
{
    pbt *self = context;
    if (trial < self->count) /* an ended trial's score stays in the ranking */
        self->all[trial].paused = false;
}

static void pbt_forget(void *context, int64_t trial, int64_t iteration)
{
    pbt *self = context;
    individual *mine = trial < self->count ? &self->all[trial] : NULL;
    while (mine && mine->count && last_mark(mine)->iteration > iteration)
        mine->count--;
}

static bool pbt_act(void *context, int64_t *trial, bool *resume)
{
    pbt *self = context;
    for (int64_t i = 0; i < self->count; i++)
        if (self->all[i].paused) {
            self->all[i].paused = false;
            *trial = i;
            *resume = true;
            return true;
        }
    return false;
}

const uni__scheduler_methods uni__pbt = { .name = "pbt",
                                          .decides = true,
                                          .new_first = true,
                                          .new = pbt_new,
                                          .free = pbt_free,
                                          .added = pbt_added,
                                          .report = pbt_report,
                                          .ended = pbt_ended,
                                          .forget = pbt_forget,
                                          .act = pbt_act };
