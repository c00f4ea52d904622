/*
 * domain.c - one marked value: the domain that its mark means, and a number or a value from it. The
 * marks are those of tune.h; {"grid_search": [...]} without the dollar is Ray's own form. The
 * functions at the end make such marks for users in C. Pure functions; any thread.
 */
#include "tune/space.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum shape { VALUES, LOW_HIGH, LOW_HIGH_Q, MEAN_DEVIATION, MEAN_DEVIATION_Q, NAME } shape;

static const struct mark {
    const char *name;
    uni__domain_kind kind;
    shape shape;
    bool log, whole, exclusive;
} marks[] = {
    { "$grid_search", UNI__DOMAIN_GRID, VALUES, false, false, false },
    { "grid_search", UNI__DOMAIN_GRID, VALUES, false, false, false },
    { "$choice", UNI__DOMAIN_CHOICE, VALUES, false, false, false },
    { "$uniform", UNI__DOMAIN_UNIFORM, LOW_HIGH, false, false, false },
    { "$quniform", UNI__DOMAIN_UNIFORM, LOW_HIGH_Q, false, false, false },
    { "$loguniform", UNI__DOMAIN_UNIFORM, LOW_HIGH, true, false, false },
    { "$qloguniform", UNI__DOMAIN_UNIFORM, LOW_HIGH_Q, true, false, false },
    { "$randint", UNI__DOMAIN_INT, LOW_HIGH, false, true, true },
    { "$qrandint", UNI__DOMAIN_INT, LOW_HIGH_Q, false, true, false },
    { "$lograndint", UNI__DOMAIN_INT, LOW_HIGH, true, true, true },
    { "$qlograndint", UNI__DOMAIN_INT, LOW_HIGH_Q, true, true, false },
    { "$normal", UNI__DOMAIN_NORMAL, MEAN_DEVIATION, false, false, false },
    { "$qnormal", UNI__DOMAIN_NORMAL, MEAN_DEVIATION_Q, false, false, false },
    { "$sample_from", UNI__DOMAIN_FUNCTION, NAME, false, false, false },
};

/* ---- reading marks ---- */

static int read_numbers(const struct mark *mark, const uni_value *list, const char *path,
                        uni__domain *out, uni_error *err)
{
    bool has_q = mark->shape == LOW_HIGH_Q || mark->shape == MEAN_DEVIATION_Q;
    size_t count = has_q ? 3 : 2;
    double numbers[3] = { 0 };
    if (uni_list_size(list) != count)
        return uni_error_set(err, UNI_EINVAL, "\"%s\": %s needs a list of %zu numbers", path,
                             mark->name, count);
    for (size_t i = 0; i < count; i++) {
        const uni_value *item = uni_list_get(list, i);
        numbers[i] = uni_value_as_float(item, NAN);
        if (!isfinite(numbers[i]) || (mark->whole && numbers[i] != floor(numbers[i])))
            return uni_error_set(err, UNI_EINVAL, "\"%s\": %s needs %s numbers", path, mark->name,
                                 mark->whole ? "whole" : "finite");
    }
    out->low = numbers[0];
    out->high = numbers[1];
    out->q = has_q ? numbers[2] : 0;
    return 0;
}

static int check_numbers(const struct mark *mark, const char *path, uni__domain *out,
                         uni_error *err)
{
    if (out->kind == UNI__DOMAIN_NORMAL && out->high < 0)
        return uni_error_set(err, UNI_EINVAL,
                             "\"%s\": the deviation of %s must not be negative, but is %g", path,
                             mark->name, out->high);
    if (out->q < 0 || ((mark->shape == LOW_HIGH_Q || mark->shape == MEAN_DEVIATION_Q) && !out->q))
        return uni_error_set(err, UNI_EINVAL, "\"%s\": the step of %s must be positive", path,
                             mark->name);
    if (out->kind == UNI__DOMAIN_NORMAL)
        return 0;
    if (out->low > out->high)
        return uni_error_set(err, UNI_EINVAL,
                             "\"%s\": the lower end of %s, %g, is above the upper end, %g", path,
                             mark->name, out->low, out->high);
    if (out->log && out->low <= 0)
        return uni_error_set(err, UNI_EINVAL,
                             "\"%s\": %s from %g: a logarithm needs a lower end above 0", path,
                             mark->name, out->low);
    if (mark->exclusive && out->low == out->high)
        return uni_error_set(err, UNI_EINVAL,
                             "\"%s\": %s from %g to %g has no number (the upper end is not "
                             "included)",
                             path, mark->name, out->low, out->high);
    if (mark->exclusive)
        out->high -= 1;
    if (out->q > 0 && floor(out->high / out->q) < ceil(out->low / out->q))
        return uni_error_set(err, UNI_EINVAL, "\"%s\": %s has no multiple of %g between %g and %g",
                             path, mark->name, out->q, out->low, out->high);
    return 0;
}

int uni__domain_read(const uni_value *value, const char *path, uni__domain *out, uni_error *err)
{
    if (uni_value_type_of(value) != UNI_TYPE_DICT || uni_dict_size(value) != 1)
        return 0;
    const char *name = uni_dict_key_at(value, 0);
    const uni_value *inside = uni_dict_value_at(value, 0);
    const struct mark *mark = NULL;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0] && !mark; i++)
        if (strcmp(marks[i].name, name) == 0)
            mark = &marks[i];
    for (size_t i = 0; i < sizeof marks / sizeof marks[0] && !mark; i++)
        if (strcmp(marks[i].name + 1, name) == 0 && uni_value_type_of(inside) == UNI_TYPE_LIST)
            return uni_error_set(err, UNI_EINVAL,
                                 "\"%s\": {\"%s\": [...]} would be a constant in every trial; "
                                 "for a parameter write {\"%s\": [...]}",
                                 path, name, marks[i].name);
    if (!mark && name[0] == '$')
        return uni_error_set(err, UNI_EINVAL,
                             "\"%s\": \"%s\" is not a kind of parameter; there are grid_search, "
                             "choice, uniform, quniform, loguniform, qloguniform, randint, "
                             "qrandint, lograndint, qlograndint, normal, qnormal, sample_from",
                             path, name);
    if (!mark)
        return 0;
    *out = (uni__domain){ .kind = mark->kind, .log = mark->log };
    if (mark->shape == NAME) {
        out->function = uni_value_as_string(inside, NULL);
        return out->function
                   ? 1
                   : uni_error_set(err, UNI_EINVAL,
                                   "\"%s\": sample_from needs the name of a function", path);
    }
    if (mark->shape == VALUES) {
        out->values = inside;
        if (uni_value_type_of(inside) != UNI_TYPE_LIST)
            return uni_error_set(err, UNI_EINVAL, "\"%s\": %s needs a list of values", path,
                                 mark->name);
        if (uni_list_size(inside) == 0)
            return uni_error_set(err, UNI_EINVAL, "\"%s\": %s has no values: the space is empty",
                                 path, mark->name);
        return 1;
    }
    UNI_TRY(read_numbers(mark, inside, path, out, err));
    UNI_TRY(check_numbers(mark, path, out, err));
    return 1;
}

/* ---- sampling ---- */

uni_value *uni__domain_number(const uni__domain *domain, double x)
{
    if (domain->q > 0) {
        x = nearbyint(x / domain->q) * domain->q;
        if (domain->kind != UNI__DOMAIN_NORMAL) {
            if (x < domain->low)
                x += domain->q;
            if (x > domain->high)
                x -= domain->q;
        }
    }
    if (domain->kind == UNI__DOMAIN_UNIFORM || domain->kind == UNI__DOMAIN_INT) {
        x = fmax(x, domain->low);
        x = fmin(x, domain->high);
    }
    return domain->kind == UNI__DOMAIN_INT ? uni_value_int((int64_t)nearbyint(x))
                                           : uni_value_float(x);
}

/* The quantile u of the normal distribution (Acklam's rational approximation, 1e-9; then one step
 * of Halley). */
static double normal_of(double u)
{
    static const double a[] = { -39.69683028665376, 220.9460984245205,  -275.9285104469687,
                                138.3577518672690,  -30.66479806614716, 2.506628277459239 };
    static const double b[] = { -54.47609879822406, 161.5858368580409, -155.6989798598866,
                                66.80131188771972, -13.28068155288572 };
    static const double c[] = { -0.007784894002430293, -0.3223964580411365, -2.400758277161838,
                                -2.549732539343734,    4.374664141464968,   2.938163982698783 };
    static const double d[] = { 0.007784695709041462, 0.3224671290700398, 2.445134137142996,
                                3.754408661907416 };
    double p = fmin(fmax(u, 1e-300), 1 - 1e-16), x;
    if (p < 0.02425 || p > 1 - 0.02425) {
        double q = sqrt(-2 * log(p < 0.5 ? p : 1 - p));
        x = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
            ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
        x = p < 0.5 ? x : -x;
    } else {
        double q = p - 0.5, r = q * q;
        x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
            (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
    }
    double e = 0.5 * erfc(-x / M_SQRT2) - p, step = e * sqrt(2 * M_PI) * exp(x * x / 2);
    return x - step / (1 + x * step / 2);
}

uni_value *uni__domain_sample(const uni__domain *domain, double unit)
{
    double low = domain->low, high = domain->high;
    switch (domain->kind) {
    case UNI__DOMAIN_GRID:
    case UNI__DOMAIN_CHOICE: {
        size_t count = uni_list_size(domain->values), at = (size_t)(unit * (double)count);
        return uni_value_copy(uni_list_get(domain->values, at < count ? at : count - 1));
    }
    case UNI__DOMAIN_NORMAL:
        return uni__domain_number(domain, low + high * normal_of(unit));
    case UNI__DOMAIN_INT:
        if (domain->log)
            return uni__domain_number(domain,
                                      floor(exp(log(low) + unit * (log(high + 1) - log(low)))));
        if (domain->q > 1) {
            double first = ceil(low / domain->q), last = floor(high / domain->q);
            return uni_value_int((int64_t)((first + floor(unit * (last - first + 1))) * domain->q));
        }
        return uni__domain_number(domain, low + floor(unit * (high - low + 1)));
    case UNI__DOMAIN_UNIFORM:
        if (domain->log)
            return uni__domain_number(domain, exp(log(low) + unit * (log(high) - log(low))));
        return uni__domain_number(domain, low + unit * (high - low));
    default:
        return NULL;
    }
}

/* ---- making marks ---- */

uni_value *uni_tune_domain(const char *name, int count, uni_value **values)
{
    uni_value *inside = count == 1 ? values[0] : uni_value_list(), *out = uni_value_dict();
    int status = 0;
    for (int i = 0; count != 1 && i < count; i++)
        status |= uni_list_take(inside, values[i]);
    char mark[32];
    snprintf(mark, sizeof mark, "$%s", name);
    if ((uni_dict_take(out, mark, inside) | status) == 0)
        return out;
    uni_value_free(out);
    return NULL;
}
