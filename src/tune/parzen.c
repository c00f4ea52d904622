/* parzen.c - see parzen.h. */
#include "tune/parzen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* The newest trials have full weight; the weight of older ones falls linearly to 1 / n. */
#define FRESH 25
/* A kernel is never narrower than this fraction of the range. */
#define NARROWEST 0.01

struct uni__parzen {
    const uni__axis *axes;
    const double *const *rows;
    int num_axes;
    size_t num_rows;
    /* num_rows + 1 weights; the last one is the prior's. */
    double *weights;
    /* [num_rows][num_axes]: the widths of the kernels, and the logarithm of their mass within the
     * range. */
    double *widths, *masses;
};

/* ---- axes ---- */

double uni__axis_from(const uni__axis *axis, double number)
{
    double x = axis->domain->log ? log(number) : number;
    return fmin(fmax(x, axis->low), axis->high);
}

double uni__axis_to(const uni__axis *axis, double x)
{
    return axis->domain->log ? exp(x) : x;
}

static double step_of(const uni__domain *domain)
{
    return domain->q > 0 ? domain->q : domain->kind == UNI__DOMAIN_INT;
}

void uni__axis_init(uni__axis *axis, const uni__domain *domain)
{
    *axis = (uni__axis){ .domain = domain };
    if (domain->kind == UNI__DOMAIN_CHOICE || domain->kind == UNI__DOMAIN_GRID) {
        axis->choices = (int)uni_list_size(domain->values);
        return;
    }
    if (domain->kind == UNI__DOMAIN_NORMAL) { /* as wide as a uniform one of this deviation */
        axis->low = domain->low - 5 * domain->high;
        axis->high = domain->low + 5 * domain->high;
        axis->widest = sqrt(12) * domain->high;
        axis->centre = domain->low;
        axis->width = domain->high;
        return;
    }
    double half = step_of(domain) / 2;
    double low = domain->low - half, high = domain->high + half;
    if (domain->log && low <= 0) /* use a step as wide as the lower end */
        low = domain->low / 2;
    axis->low = domain->log ? log(low) : low;
    axis->high = domain->log ? log(high) : high;
    axis->widest = axis->width = axis->high - axis->low;
    axis->centre = (axis->low + axis->high) / 2;
}

/* ---- kernels ---- */

static double phi(double x)
{
    return 0.5 * erfc(-x / M_SQRT2);
}

/* log of the normal mass between a and b. Mirrored when both are in the upper tail, for
 * precision. */
static double log_mass(double a, double b)
{
    double mass = a > 0 ? phi(-a) - phi(-b) : phi(b) - phi(a);
    return log(fmax(mass, 1e-300));
}

static double log_inside(const uni__axis *axis, double centre, double width)
{
    return width > 0 ? log_mass((axis->low - centre) / width, (axis->high - centre) / width) : 0;
}

/* log of the kernel at x; with steps, of the mass of x's step. */
static double log_normal(const uni__axis *axis, double x, double centre, double width,
                         double inside)
{
    double step = step_of(axis->domain);
    if (width <= 0)
        return 0;
    if (step > 0) {
        double number = uni__axis_to(axis, x), low = number - step / 2;
        double from = axis->domain->log ? (low > 0 ? log(low) : axis->low) : low;
        double to = axis->domain->log ? log(number + step / 2) : number + step / 2;
        return log_mass((fmax(from, axis->low) - centre) / width,
                        (fmin(to, axis->high) - centre) / width) -
               inside;
    }
    double z = (x - centre) / width;
    return -0.5 * z * z - log(width) - 0.5 * log(2 * M_PI) - inside;
}

/* Of a choice: the share of the observed value, or of each other value. */
static double share(const uni__parzen *parzen, const uni__axis *axis, bool observed)
{
    double prior = 1.0 / (double)(parzen->num_rows + 1);
    return (observed ? 1 + prior : prior) / (1 + prior * axis->choices);
}

static double log_kernel(const uni__parzen *parzen, size_t row, const double *x)
{
    double sum = 0;
    for (int i = 0; i < parzen->num_axes; i++) {
        const uni__axis *axis = &parzen->axes[i];
        size_t at = row * (size_t)parzen->num_axes + (size_t)i;
        if (row == parzen->num_rows)
            sum += axis->choices
                       ? -log(axis->choices)
                       : log_normal(axis, x[i], axis->centre, axis->width, parzen->masses[at]);
        else if (axis->choices)
            sum += log(share(parzen, axis, (int)x[i] == (int)parzen->rows[row][i]));
        else
            sum += log_normal(axis, x[i], parzen->rows[row][i], parzen->widths[at],
                              parzen->masses[at]);
    }
    return sum;
}

/* ---- the estimator ---- */

typedef struct place {
    double x;
    size_t row;
} place;

static int by_x(const void *left, const void *right)
{
    const place *a = left, *b = right;
    if (a->x != b->x)
        return a->x < b->x ? -1 : 1;
    return a->row < b->row ? -1 : a->row > b->row;
}

/* The width is the distance to the farther neighbor; the outermost ones have only one. */
static void set_widths(uni__parzen *parzen, int which, place *order)
{
    const uni__axis *axis = &parzen->axes[which];
    size_t count = parzen->num_rows;
    double least = axis->widest * fmax(NARROWEST, 1.0 / (double)(count + 2));
    for (size_t i = 0; i < count; i++)
        order[i] = (place){ .x = parzen->rows[i][which], .row = i };
    qsort(order, count, sizeof *order, by_x);
    for (size_t i = 0; i < count; i++) {
        bool first = i == 0, last = i == count - 1, alone = count == 1;
        double before = first ? (alone ? order[i].x - axis->low : 0) : order[i].x - order[i - 1].x;
        double after = last ? (alone ? axis->high - order[i].x : 0) : order[i + 1].x - order[i].x;
        size_t at = order[i].row * (size_t)parzen->num_axes + (size_t)which;
        parzen->widths[at] = fmin(fmax(fmax(before, after), least), axis->widest);
        parzen->masses[at] = log_inside(axis, order[i].x, parzen->widths[at]);
    }
    parzen->masses[count * (size_t)parzen->num_axes + (size_t)which] =
        log_inside(axis, axis->centre, axis->width);
}

static void set_weights(uni__parzen *parzen)
{
    size_t count = parzen->num_rows, ramp = count > FRESH ? count - FRESH : 0;
    double total = 0, least = 1.0 / (double)(count ? count : 1);
    for (size_t i = 0; i <= count; i++) {
        double share_of = ramp > 1 ? (double)i / (double)(ramp - 1) : 0;
        parzen->weights[i] = i < ramp ? least + (1 - least) * share_of : 1;
        total += parzen->weights[i];
    }
    for (size_t i = 0; i <= count; i++)
        parzen->weights[i] /= total;
}

uni__parzen *uni__parzen_new(const uni__axis *axes, int num_axes, const double *const *rows,
                             size_t num_rows)
{
    size_t cells = (num_rows + 1) * (size_t)num_axes;
    uni__parzen *parzen = calloc(1, sizeof *parzen);
    place *order = malloc((num_rows + 1) * sizeof *order);
    if (parzen) {
        *parzen =
            (uni__parzen){ .axes = axes, .rows = rows, .num_axes = num_axes, .num_rows = num_rows };
        parzen->weights = malloc((num_rows + 1) * sizeof *parzen->weights);
        parzen->widths = calloc(cells, sizeof *parzen->widths);
        parzen->masses = calloc(cells, sizeof *parzen->masses);
    }
    if (!parzen || !order || !parzen->weights || !parzen->widths || !parzen->masses) {
        free(order);
        uni__parzen_free(parzen);
        return NULL;
    }
    set_weights(parzen);
    for (int i = 0; i < num_axes; i++)
        if (!axes[i].choices)
            set_widths(parzen, i, order);
    free(order);
    return parzen;
}

void uni__parzen_free(uni__parzen *parzen)
{
    if (!parzen)
        return;
    free(parzen->weights);
    free(parzen->widths);
    free(parzen->masses);
    free(parzen);
}

double uni__parzen_log(const uni__parzen *parzen, const double *x)
{
    double most = -INFINITY, sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i <= parzen->num_rows; i++) {
            double term = log(parzen->weights[i]) + log_kernel(parzen, i, x);
            if (pass == 0)
                most = fmax(most, term);
            else
                sum += exp(term - most);
        }
    return most + log(sum);
}

/* ---- drawing ---- */

double uni__dice_roll(uni__dice *dice)
{
    return uni__random_unit(dice->seed, dice->stream, dice->next++);
}

/* The number below which a share `unit` of the truncated normal lies. Bisection is accurate enough
 * and needs no inverse. */
static double draw_normal(const uni__axis *axis, double centre, double width, double unit)
{
    double a = axis->low, b = axis->high;
    if (width <= 0)
        return centre;
    double from = phi((a - centre) / width), to = phi((b - centre) / width);
    double target = from + unit * (to - from);
    for (int i = 0; i < 40; i++) {
        double middle = (a + b) / 2;
        if (phi((middle - centre) / width) < target)
            a = middle;
        else
            b = middle;
    }
    return (a + b) / 2;
}

/* Rounds to the number that the config will have: on its step. */
static double snapped(const uni__axis *axis, double x)
{
    if (step_of(axis->domain) <= 0)
        return x;
    uni_value *number = uni__domain_number(axis->domain, uni__axis_to(axis, x));
    double on_step = uni__axis_from(axis, uni_value_as_float(number, uni__axis_to(axis, x)));
    uni_value_free(number);
    return on_step;
}

static double draw_choice(const uni__parzen *parzen, const uni__axis *axis, const double *observed,
                          double unit)
{
    for (int i = 0; i < axis->choices - 1; i++) {
        unit -= observed ? share(parzen, axis, i == (int)*observed) : 1.0 / axis->choices;
        if (unit < 0)
            return i;
    }
    return axis->choices - 1;
}

void uni__parzen_draw(const uni__parzen *parzen, uni__dice *dice, double *x)
{
    double pick = uni__dice_roll(dice), sum = 0;
    size_t row = 0;
    while (row < parzen->num_rows && (sum += parzen->weights[row]) <= pick)
        row++;
    bool prior = row == parzen->num_rows;
    for (int i = 0; i < parzen->num_axes; i++) {
        const uni__axis *axis = &parzen->axes[i];
        double unit = uni__dice_roll(dice);
        size_t at = row * (size_t)parzen->num_axes + (size_t)i;
        if (axis->choices)
            x[i] = draw_choice(parzen, axis, prior ? NULL : &parzen->rows[row][i], unit);
        else
            x[i] = snapped(axis, draw_normal(axis, prior ? axis->centre : parzen->rows[row][i],
                                             prior ? axis->width : parzen->widths[at], unit));
    }
}
