/*
 * tpe.c - the tree-structured Parzen estimator (Bergstra et al. 2011), multivariate inside each
 * group of parameters (Falkner et al. 2018).
 *
 * After n_startup random trials, the ended ones are split into the best tenth and the rest. Each
 * part becomes a density (parzen.h). Candidates are drawn from the density of the good ones, and
 * the one with the highest ratio of the two densities is proposed. Parameters inside a choice form
 * separate groups (tpe_tree.h). A group learns from the trials in which it was active, and is
 * sampled when the choice above it has made it active. Kernels span all parameters of a group, so
 * that they follow valleys that run across the axes. Failed trials count as the worst. Running ones
 * count as bad, so that parallel trials spread out.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "tune/shared.h"
#include "tune/parzen.h"
#include "tune/search.h"
#include "tune/tpe_tree.h"

#define DEFAULT_STARTUP 10
#define DEFAULT_CANDIDATES 24
#define MOST_COUNT 1000000
#define GOOD_SHARE 0.1
#define GOOD_MOST 25

typedef struct observation {
    int64_t trial;
    /* Higher is better; -INFINITY: failed. */
    double value;
    bool told;
    /* See tpe_tree.h. */
    double *row;
} observation;

typedef struct tpe {
    uni__search_setting setting;
    uni__branch *tree;
    /* Numbers in a row. */
    int width;
    observation *seen;
    size_t num_seen, room;
    int startup, candidates;
} tpe;

/* ---- proposing ---- */

static int best_first(const void *left, const void *right)
{
    const observation *a = *(observation *const *)left, *b = *(observation *const *)right;
    if (a->told != b->told)
        return a->told ? -1 : 1;
    if (a->told && a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return a->trial < b->trial ? -1 : 1;
}

static int oldest_first(const void *left, const void *right)
{
    const observation *a = *(observation *const *)left, *b = *(observation *const *)right;
    return a->trial < b->trial ? -1 : a->trial > b->trial;
}

/* The observations in which the group was active: the good ones first, each part in order of age.
 * Good is defined among all trials, not among those of the group: a branch that is bad as a whole
 * has no good ones, and its prior explores it. */
static size_t split(const tpe *self, const uni__branch *group, const observation **sorted,
                    size_t *good)
{
    size_t told = 0, count = 0;
    for (size_t i = 0; i < self->num_seen; i++) {
        sorted[i] = &self->seen[i];
        told += self->seen[i].told;
    }
    qsort(sorted, self->num_seen, sizeof *sorted, best_first);
    size_t best = (size_t)fmin(ceil(GOOD_SHARE * (double)told), GOOD_MOST);
    for (size_t i = 0; i < self->num_seen; i++) {
        if (i == best)
            *good = count;
        if (uni__branch_active(group, sorted[i]->row))
            sorted[count++] = sorted[i];
    }
    if (best >= self->num_seen)
        *good = count;
    qsort(sorted, *good, sizeof *sorted, oldest_first);
    qsort(sorted + *good, count - *good, sizeof *sorted, oldest_first);
    return count;
}

/* Puts the candidate with the best ratio into the group's part of `best`. */
static int choose(const tpe *self, const uni__branch *group, const double *const *rows, size_t good,
                  size_t count, uni__dice *dice, double *best)
{
    double *x = malloc((size_t)group->count * sizeof *x), highest = -INFINITY;
    uni__parzen *high = uni__parzen_new(group->axes, group->count, rows, good);
    uni__parzen *low = uni__parzen_new(group->axes, group->count, rows + good, count - good);
    bool ready = x && high && low;
    for (int i = 0; ready && i < self->candidates; i++) {
        uni__parzen_draw(high, dice, x);
        double score = uni__parzen_log(high, x) - uni__parzen_log(low, x);
        if (score > highest || i == 0) {
            highest = score;
            memcpy(best + group->first, x, (size_t)group->count * sizeof *x);
        }
    }
    uni__parzen_free(high);
    uni__parzen_free(low);
    free(x);
    return ready ? 0 : UNI_ENOMEM;
}

static int propose(const tpe *self, const uni__branch *group, uni__dice *dice, double *best)
{
    size_t good = 0;
    const observation **sorted = malloc((self->num_seen + 1) * sizeof *sorted);
    const double **rows = malloc((self->num_seen + 1) * sizeof *rows);
    int status = sorted && rows ? 0 : UNI_ENOMEM;
    if (status == 0) {
        size_t count = split(self, group, sorted, &good);
        for (size_t i = 0; i < count; i++)
            rows[i] = sorted[i]->row + group->first;
        status = choose(self, group, rows, good, count, dice, best);
    }
    free(sorted);
    free(rows);
    for (int i = 0; i < group->count && status == 0; i++) {
        if (!group->axes[i].choices)
            continue;
        const uni__branch *branch = group->branches[i][(int)best[group->first + i]];
        if (branch)
            status = propose(self, branch, dice, best);
    }
    return status;
}

static int propose_config(const tpe *self, int64_t trial, uni_value **config, uni_error *err)
{
    double *best = malloc((size_t)self->width * sizeof *best);
    uni__dice dice = { .seed = self->setting.seed, .stream = (uint64_t)trial, .next = 1u << 20 };
    *config = uni_value_copy(self->setting.space);
    int status = best && *config ? propose(self, self->tree, &dice, best) : UNI_ENOMEM;
    if (status == 0)
        status = uni__branch_write(self->tree, best, *config);
    free(best);
    if (status < 0)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a config");
    return uni__space_finish(*config, self->setting.samplers, self->setting.seed, trial, err);
}

/* ---- ask and tell ---- */

static int remember(tpe *self, int64_t trial, const uni_value *config, uni_error *err)
{
    observation *grown = uni__grown(self->seen, self->num_seen, &self->room, sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the TPE searcher");
    self->seen = grown;
    double *row = malloc((size_t)(self->width + 1) * sizeof *row);
    if (!row)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the TPE searcher");
    for (int i = 0; i < self->width; i++)
        row[i] = NAN;
    uni__branch_read(self->tree, config, row);
    self->seen[self->num_seen++] = (observation){ .trial = trial, .row = row };
    return 0;
}

static size_t count_told(const tpe *self)
{
    size_t told = 0;
    for (size_t i = 0; i < self->num_seen; i++)
        told += self->seen[i].told;
    return told;
}

static int tpe_ask(void *context, int64_t trial, uni_value **config, uni_error *err)
{
    tpe *self = context;
    if (self->setting.total >= 0 && trial >= self->setting.total)
        return UNI_EEND;
    bool random = count_told(self) < (size_t)self->startup || self->width == 0;
    int status = random ? uni__tune_space_config(self->setting.space, self->setting.samplers,
                                                 self->setting.seed, trial, config, err)
                        : propose_config(self, trial, config, err);
    if (status == 0)
        status = remember(self, trial, *config, err);
    if (status < 0) {
        uni_value_free(*config);
        *config = NULL;
        return status;
    }
    return 1;
}

static int tpe_tell(void *context, int64_t trial, const uni_value *config, double value,
                    uni_error *err)
{
    tpe *self = context;
    for (size_t i = self->num_seen; i-- > 0;)
        if (self->seen[i].trial == trial) {
            self->seen[i].value = isfinite(value) ? self->setting.sign * value : -INFINITY;
            self->seen[i].told = true;
            break;
        }
    return 0;
}

static int tpe_restore(void *context, int64_t trial, const uni_value *config, uni_error *err)
{
    return remember(context, trial, config, err);
}

static void tpe_free(void *context)
{
    tpe *self = context;
    for (size_t i = 0; i < self->num_seen; i++)
        free(self->seen[i].row);
    free(self->seen);
    uni__branch_free(self->tree);
    free(self);
}

static int read_count(const uni_value *options, const char *name, int otherwise, int *out,
                      uni_error *err)
{
    const uni_value *given = uni_dict_get(options, name);
    int64_t count = uni_value_as_int(given, -1);
    if (given && (uni_value_type_of(given) != UNI_TYPE_INT || count < 1 || count > MOST_COUNT))
        return uni_error_set(err, UNI_EINVAL,
                             "the TPE searcher: %s must be a whole number from 1 to %d", name,
                             MOST_COUNT);
    *out = given ? (int)count : otherwise;
    return 0;
}

int uni__tpe_new(uni__searcher *out, const uni__search_setting *setting, uni_error *err)
{
    static const char *const known[] = { "n_startup", "n_candidates", NULL };
    UNI_TRY(uni__check_keys("the TPE searcher", setting->options, known, err));
    if (!setting->sign)
        return uni_error_set(err, UNI_EINVAL,
                             "the TPE searcher needs a metric and a mode (\"min\" or \"max\")");
    tpe *self = calloc(1, sizeof *self);
    if (!self)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the TPE searcher");
    self->setting = *setting;
    int status = read_count(setting->options, "n_startup", DEFAULT_STARTUP, &self->startup, err);
    if (status == 0)
        status = read_count(setting->options, "n_candidates", DEFAULT_CANDIDATES, &self->candidates,
                            err);
    if (status == 0)
        status = uni__branch_new(&self->tree, setting->space, &self->width, err);
    if (status < 0) {
        tpe_free(self);
        return status;
    }
    *out = (uni__searcher){ .methods = { .name = "tpe",
                                         .self = self,
                                         .ask = tpe_ask,
                                         .tell = tpe_tell,
                                         .restore = tpe_restore },
                            .free = tpe_free };
    return 0;
}
