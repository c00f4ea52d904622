/*
 * tpe.c - the tree-structured Parzen estimator (Bergstra et al. 2011), in its multivariate form (Falkner et al. 2018).
 *
 * After n_startup random trials the observations are split: the best gamma(n) of them and the rest. Each part becomes a density, a mixture with one
 * product kernel an observation and a wide one for the prior: truncated normals for numbers (in the logarithm where the domain says so), smoothed counts for
 * choices. Candidates are drawn from the density of the good ones, and the one with the highest ratio of the two is proposed. Kernels span all parameters at
 * once, so that valleys that run across the axes are followed. Bandwidth by Scott's rule. Failed trials count as the worst.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tune/search.h"
#include "tune/space.h"

#define DEFAULT_STARTUP 10
#define DEFAULT_CANDIDATES 24
#define GOOD_MOST 25
#define FRESH 25 /* newest bad observations with full weight */
#define SIGMA 0.1 /* 0.2 and 0.05 were worse on Branin and Rosenbrock, or on Hartmann */
#define SIGMA_LEAST 1e-3

typedef struct dimension {
    const uni__parameter *parameter;
    bool is_choice;
    int choices;
    double low, high; /* in the units of the kernel */
} dimension;

typedef struct observation {
    int64_t trial;
    double value; /* higher is better; -INFINITY: failed */
    bool told;
    double *x;
} observation;

typedef struct tpe {
    uni__search_setting setting;
    uni__space space;
    dimension *dimensions;
    int count; /* dimensions */
    observation *seen;
    size_t num_seen, room;
    int startup, candidates;
} tpe;

/* ---- numbers of a config and back ---- */

static double to_kernel(const dimension *d, double x)
{
    return d->parameter->domain.log ? log(x) : x;
}

/* The choice that a value was: domains inside of it have been replaced since. */
static bool fits(const uni_value *candidate, const uni_value *value)
{
    uni__domain domain;
    if (uni__domain_read(candidate, "", &domain, NULL) == 1)
        return true;
    if (uni_value_type_of(candidate) != UNI_TYPE_DICT)
        return uni_value_equal(candidate, value);
    if (uni_dict_size(candidate) != uni_dict_size(value))
        return false;
    for (size_t i = 0; i < uni_dict_size(candidate); i++)
        if (!fits(uni_dict_value_at(candidate, i),
                  uni_dict_get(value, uni_dict_key_at(candidate, i))))
            return false;
    return true;
}

static double read_dimension(const dimension *d, const uni_value *config)
{
    const uni_value *value = uni_value_path(config, d->parameter->path);
    if (!d->is_choice)
        return fmin(fmax(to_kernel(d, uni_value_as_float(value, d->low)), d->low), d->high);
    for (int i = 0; i < d->choices; i++)
        if (fits(uni_list_get(d->parameter->domain.values, (size_t)i), value))
            return i;
    return 0;
}

static uni_value *write_dimension(const dimension *d, double x)
{
    if (d->is_choice)
        return uni_value_copy(uni_list_get(d->parameter->domain.values, (size_t)x));
    return uni__domain_number(&d->parameter->domain, d->parameter->domain.log ? exp(x) : x);
}

/* ---- densities ---- */

typedef struct density {
    const observation **centres;
    double *weights; /* count + 1: the last is the prior's */
    size_t count;
    double sigma; /* of all numbers, as a share of their range */
} density;

static double phi(double x)
{
    return 0.5 * erfc(-x / M_SQRT2);
}

/* log of a normal density truncated to [low, high] */
static double log_kernel(const dimension *d, double x, double centre, double sigma)
{
    double z = (x - centre) / sigma;
    double mass = phi((d->high - centre) / sigma) - phi((d->low - centre) / sigma);
    return -0.5 * z * z - log(sigma) - log(fmax(mass, 1e-12));
}

static double log_choice(const dimension *d, double x, double centre, size_t count)
{
    /* One observation and a prior's share for every choice. */
    double prior = 1.0 / (double)(count + 1), total = 1 + prior * d->choices;
    return log(((int)x == (int)centre ? 1 + prior : prior) / total);
}

static double log_component(const tpe *self, const density *of, size_t which, const double *x)
{
    double sum = 0;
    for (int i = 0; i < self->count; i++) {
        const dimension *d = &self->dimensions[i];
        double range = d->high - d->low;
        if (which == of->count)
            sum += d->is_choice ? -log(d->choices)
                                : log_kernel(d, x[i], (d->low + d->high) / 2, range);
        else if (d->is_choice)
            sum += log_choice(d, x[i], of->centres[which]->x[i], of->count);
        else
            sum += log_kernel(d, x[i], of->centres[which]->x[i], of->sigma * range);
    }
    return sum;
}

static double log_density(const tpe *self, const density *of, const double *x)
{
    double most = -INFINITY, sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i <= of->count; i++) {
            double log_term = log(of->weights[i]) + log_component(self, of, i, x);
            if (pass == 0)
                most = fmax(most, log_term);
            else
                sum += exp(log_term - most);
        }
    return most + log(sum);
}

typedef struct dice {
    uint64_t seed, stream, next;
} dice;

static double roll(dice *d)
{
    return uni__random_unit(d->seed, d->stream, d->next++);
}

/* A truncated normal number, by turning the tables: the share of smaller ones is uniform. Bisection is exact enough and needs no inverse. */
static double draw_normal(double centre, double sigma, double low, double high, double unit)
{
    double from = phi((low - centre) / sigma), to = phi((high - centre) / sigma);
    double target = from + unit * (to - from), a = low, b = high;
    for (int i = 0; i < 40; i++) {
        double middle = (a + b) / 2;
        if (phi((middle - centre) / sigma) < target)
            a = middle;
        else
            b = middle;
    }
    return (a + b) / 2;
}

static void draw(const tpe *self, const density *from, dice *d, double *x)
{
    double pick = roll(d), sum = 0;
    size_t which = 0;
    while (which < from->count && (sum += from->weights[which]) <= pick)
        which++;
    for (int i = 0; i < self->count; i++) {
        const dimension *at = &self->dimensions[i];
        double unit = roll(d), range = at->high - at->low;
        bool prior = which == from->count;
        if (!at->is_choice) {
            x[i] = range > 0
                       ? draw_normal(prior ? (at->low + at->high) / 2 : from->centres[which]->x[i],
                                     prior ? range : from->sigma * range, at->low, at->high, unit)
                       : at->low;
            continue;
        }
        double share = 1.0 / (double)(from->count + 1), total = 1 + share * at->choices;
        double own = prior ? -1 : (1 + share) / total, rest = unit;
        x[i] = at->choices - 1;
        for (int c = 0; c < at->choices; c++) {
            double mass = prior                                  ? 1.0 / at->choices
                          : c == (int)from->centres[which]->x[i] ? own
                                                                 : share / total;
            if (rest < mass) {
                x[i] = c;
                break;
            }
            rest -= mass;
        }
    }
}

/* ---- proposing ---- */

static int best_first(const void *left, const void *right)
{
    const observation *a = *(observation *const *)left, *b = *(observation *const *)right;
    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return a->trial < b->trial ? -1 : 1;
}

static int newest_last(const void *left, const void *right)
{
    const observation *a = *(observation *const *)left, *b = *(observation *const *)right;
    return a->trial < b->trial ? -1 : a->trial > b->trial;
}

static int make_density(const tpe *self, density *out, const observation **centres, size_t count)
{
    double total = 0;
    *out = (density){ .centres = centres, .count = count };
    out->weights = malloc((count + 1) * sizeof *out->weights);
    if (!out->weights)
        return UNI_ENOMEM;
    /* Old observations of a long search fade, from 1/n on. */
    for (size_t i = 0; i <= count; i++) {
        double weight = 1;
        if (count > FRESH && i < count - FRESH)
            weight =
                (1.0 + (double)i * (double)(count - 1) / (double)(count - FRESH)) / (double)count;
        out->weights[i] = weight;
        total += weight;
    }
    for (size_t i = 0; i <= count; i++)
        out->weights[i] /= total;
    out->sigma = fmax(SIGMA * pow(fmax((double)count, 1), -1.0 / (self->count + 4)), SIGMA_LEAST);
    return 0;
}

static int propose(tpe *self, int64_t trial, double *best, uni_error *err)
{
    size_t told = 0, good;
    const observation **sorted = malloc((self->num_seen + 1) * sizeof *sorted);
    double *x = malloc((size_t)(self->count + 1) * sizeof *x), highest = -INFINITY;
    density high = { 0 }, low = { 0 };
    int status = sorted && x ? 0 : UNI_ENOMEM;
    for (size_t i = 0; status == 0 && i < self->num_seen; i++)
        if (self->seen[i].told)
            sorted[told++] = &self->seen[i];
    if (status == 0) {
        qsort(sorted, told, sizeof *sorted, best_first);
        good = (size_t)fmin(ceil(0.1 * (double)told), GOOD_MOST);
        qsort(sorted, good, sizeof *sorted, newest_last);
        qsort(sorted + good, told - good, sizeof *sorted, newest_last);
        status = make_density(self, &high, sorted, good);
        status |= make_density(self, &low, sorted + good, told - good);
    }
    dice d = { .seed = self->setting.seed, .stream = (uint64_t)trial, .next = 1u << 20 };
    for (int i = 0; status == 0 && i < self->candidates; i++) {
        draw(self, &high, &d, x);
        double score = log_density(self, &high, x) - log_density(self, &low, x);
        if (score > highest) {
            highest = score;
            memcpy(best, x, (size_t)self->count * sizeof *x);
        }
    }
    free(sorted);
    free(x);
    free(high.weights);
    free(low.weights);
    return status < 0 ? uni_error_set(err, UNI_ENOMEM, "no memory for the TPE searcher") : 0;
}

static int remember(tpe *self, int64_t trial, const uni_value *config, uni_error *err)
{
    if (self->num_seen == self->room) {
        size_t room = self->room ? self->room * 2 : 64;
        observation *grown = realloc(self->seen, room * sizeof *grown);
        if (!grown)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the TPE searcher");
        self->seen = grown;
        self->room = room;
    }
    double *x = malloc((size_t)(self->count + 1) * sizeof *x);
    if (!x)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the TPE searcher");
    for (int i = 0; i < self->count; i++)
        x[i] = read_dimension(&self->dimensions[i], config);
    self->seen[self->num_seen++] = (observation){ .trial = trial, .x = x };
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
    UNI_TRY(uni_tune_space_config(self->setting.space, self->setting.samplers, self->setting.seed,
                                  trial, config, err));
    int status = 0;
    if (count_told(self) >= (size_t)self->startup && self->count > 0) {
        double *x = malloc((size_t)self->count * sizeof *x);
        uni_value_free(*config);
        *config = uni_value_copy(self->setting.space);
        status = x && *config ? propose(self, trial, x, err)
                              : uni_error_set(err, UNI_ENOMEM, "no memory for a config");
        for (int i = 0; i < self->count && status == 0; i++)
            status = uni__space_put(*config, self->dimensions[i].parameter->path,
                                    write_dimension(&self->dimensions[i], x[i]));
        free(x);
        if (status == 0)
            status =
                uni__space_finish(*config, self->setting.samplers, self->setting.seed, trial, err);
    }
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
            self->seen[i].value = isnan(value) ? -INFINITY : self->setting.sign * value;
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
        free(self->seen[i].x);
    free(self->seen);
    free(self->dimensions);
    uni__space_clear(&self->space);
    free(self);
}

static int add_dimensions(tpe *self, uni_error *err)
{
    self->dimensions = calloc((size_t)self->space.count + 1, sizeof *self->dimensions);
    if (!self->dimensions)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the TPE searcher");
    for (int i = 0; i < self->space.count; i++) {
        const uni__parameter *parameter = &self->space.items[i];
        const uni__domain *domain = &parameter->domain;
        dimension *d = &self->dimensions[self->count];
        if (domain->kind == UNI__DOMAIN_GRID)
            return uni_error_set(err, UNI_EINVAL,
                                 "\"%s\": grid_search is for the random searcher; TPE takes choice",
                                 parameter->path);
        if (domain->kind == UNI__DOMAIN_FUNCTION)
            continue;
        d->parameter = parameter;
        d->is_choice = domain->kind == UNI__DOMAIN_CHOICE;
        d->choices = d->is_choice ? (int)uni_list_size(domain->values) : 0;
        d->low = domain->kind == UNI__DOMAIN_NORMAL ? domain->low - 5 * domain->high : domain->low;
        d->high =
            domain->kind == UNI__DOMAIN_NORMAL ? domain->low + 5 * domain->high : domain->high;
        if (domain->kind == UNI__DOMAIN_INT) {
            d->low -= domain->log ? 0 : 0.499;
            d->high += 0.499;
        }
        if (!d->is_choice && domain->log) {
            d->low = log(d->low);
            d->high = log(d->high);
        }
        self->count++;
    }
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
    self->startup = (int)uni_dict_get_int(setting->options, "n_startup", DEFAULT_STARTUP);
    self->candidates = (int)uni_dict_get_int(setting->options, "n_candidates", DEFAULT_CANDIDATES);
    int status = uni__space_read(&self->space, setting->space, err);
    if (status == 0)
        status = add_dimensions(self, err);
    if (status == 0 && (self->startup < 1 || self->candidates < 1))
        status = uni_error_set(err, UNI_EINVAL, "n_startup and n_candidates must be at least 1");
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
