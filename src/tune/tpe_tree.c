/* tpe_tree.c - see tpe_tree.h. */
#include "tune/tpe_tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LEVELS 8
/* Steps are multiples of a binary fraction: a number this close to one counts as on it. */
#define CLOSE 1e-6

/* ---- building ---- */

static int add_group(uni__branch **out, const uni_value *inside, const char *path, int *width,
                     int level, uni_error *err);

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for the TPE searcher");
}

static int add_branches(uni__branch *group, int which, int *width, int level, uni_error *err)
{
    const uni_value *values = group->parameters[which]->domain.values;
    int choices = group->axes[which].choices;
    group->branches[which] = calloc((size_t)choices, sizeof *group->branches[which]);
    if (!group->branches[which])
        return no_memory(err);
    for (int i = 0; i < choices; i++)
        UNI_TRY(add_group(&group->branches[which][i], uni_list_get(values, (size_t)i),
                          group->paths[which], width, level + 1, err));
    return 0;
}

static char *joined(const char *path, const char *below)
{
    char *out = NULL;
    return asprintf(&out, "%s%s%s", path, path[0] && below[0] ? "." : "", below) < 0 ? NULL : out;
}

static int add_axes(uni__branch *group, const char *path, int level, uni_error *err)
{
    size_t room = (size_t)group->space.count + 1;
    group->axes = calloc(room, sizeof *group->axes);
    group->parameters = calloc(room, sizeof *group->parameters);
    group->branches = calloc(room, sizeof *group->branches);
    group->paths = calloc(room, sizeof *group->paths);
    if (!group->axes || !group->parameters || !group->branches || !group->paths)
        return no_memory(err);
    for (int i = 0; i < group->space.count; i++) {
        uni__parameter *parameter = &group->space.items[i];
        if (parameter->domain.kind == UNI__DOMAIN_FUNCTION)
            continue;
        if (parameter->domain.kind == UNI__DOMAIN_GRID && level == 0)
            return uni_error_set(err, UNI_EINVAL,
                                 "\"%s\": grid_search is for the random searcher; TPE takes choice",
                                 parameter->path);
        group->parameters[group->count] = parameter;
        group->paths[group->count] = joined(path, parameter->path);
        uni__axis_init(&group->axes[group->count++], &parameter->domain);
        if (!group->paths[group->count - 1])
            return no_memory(err);
    }
    return 0;
}

/* *out stays NULL when there is nothing to choose inside. */
static int add_group(uni__branch **out, const uni_value *inside, const char *path, int *width,
                     int level, uni_error *err)
{
    if (level > MOST_LEVELS)
        return uni_error_set(err, UNI_ELIMIT, "choices inside of choices, more than %d deep",
                             MOST_LEVELS);
    uni__branch *group = calloc(1, sizeof *group);
    if (!group)
        return no_memory(err);
    group->first = *width;
    int status = uni__space_read(&group->space, inside, err);
    if (status == 0)
        status = add_axes(group, path, level, err);
    *width += group->count;
    for (int i = 0; i < group->count && status == 0; i++)
        if (group->axes[i].choices)
            status = add_branches(group, i, width, level, err);
    if (status < 0 || (group->count == 0 && level > 0)) {
        uni__branch_free(group);
        return status;
    }
    *out = group;
    return 0;
}

int uni__branch_new(uni__branch **out, const uni_value *space, int *width, uni_error *err)
{
    *out = NULL;
    *width = 0;
    return add_group(out, space, "", width, 0, err);
}

void uni__branch_free(uni__branch *group)
{
    if (!group)
        return;
    for (int i = 0; group->branches && i < group->count; i++) {
        for (int c = 0; group->branches[i] && c < group->axes[i].choices; c++)
            uni__branch_free(group->branches[i][c]);
        free(group->branches[i]);
    }
    for (int i = 0; group->paths && i < group->count; i++)
        free(group->paths[i]);
    free(group->branches);
    free(group->paths);
    free(group->parameters);
    free(group->axes);
    uni__space_clear(&group->space);
    free(group);
}

/* ---- reading a config ---- */

static bool is_number_of(const uni__domain *domain, const uni_value *value)
{
    bool is_int = uni_value_type_of(value) == UNI_TYPE_INT;
    double x = uni_value_as_float(value, NAN);
    if (!isfinite(x) || (domain->kind == UNI__DOMAIN_INT && !is_int))
        return false;
    if (domain->q > 0 && fabs(x / domain->q - nearbyint(x / domain->q)) > CLOSE)
        return false;
    double slack = CLOSE * (domain->high - domain->low);
    return domain->kind == UNI__DOMAIN_NORMAL ||
           (x >= domain->low - slack && x <= domain->high + slack);
}

/* Whether the value may come from the candidate, whose inner domains have been resolved since. */
static bool fits(const uni_value *candidate, const uni_value *value)
{
    uni__domain domain;
    uni_value_type type = uni_value_type_of(candidate);
    if (!value)
        return false;
    if (uni__domain_read(candidate, "", &domain, NULL) == 1) {
        if (domain.kind == UNI__DOMAIN_FUNCTION)
            return true;
        bool found = domain.values == NULL && is_number_of(&domain, value);
        for (size_t i = 0; domain.values && !found && i < uni_list_size(domain.values); i++)
            found = fits(uni_list_get(domain.values, i), value);
        return found;
    }
    if (type != uni_value_type_of(value) || (type != UNI_TYPE_DICT && type != UNI_TYPE_LIST))
        return uni_value_equal(candidate, value);
    bool is_list = type == UNI_TYPE_LIST;
    size_t count = is_list ? uni_list_size(candidate) : uni_dict_size(candidate);
    if (count != (is_list ? uni_list_size(value) : uni_dict_size(value)))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!fits(is_list ? uni_list_get(candidate, i) : uni_dict_value_at(candidate, i),
                  is_list ? uni_list_get(value, i)
                          : uni_dict_get(value, uni_dict_key_at(candidate, i))))
            return false;
    return true;
}

static int choice_of(const uni__domain *domain, const uni_value *value)
{
    for (size_t i = 0; i < uni_list_size(domain->values); i++)
        if (fits(uni_list_get(domain->values, i), value))
            return (int)i;
    return -1;
}

void uni__branch_read(const uni__branch *group, const uni_value *value, double *row)
{
    for (int i = 0; i < group->count; i++) {
        const uni__parameter *parameter = group->parameters[i];
        const uni_value *own = parameter->path[0] ? uni_value_path(value, parameter->path) : value;
        double *x = &row[group->first + i];
        if (!group->axes[i].choices) {
            if (is_number_of(&parameter->domain, own))
                *x = uni__axis_from(&group->axes[i], uni_value_as_float(own, NAN));
            continue;
        }
        int choice = choice_of(&parameter->domain, own);
        if (choice < 0)
            continue;
        *x = choice;
        if (group->branches[i][choice])
            uni__branch_read(group->branches[i][choice], own, row);
    }
}

bool uni__branch_active(const uni__branch *group, const double *row)
{
    for (int i = 0; i < group->count; i++)
        if (isnan(row[group->first + i]))
            return false;
    return true;
}

/* ---- making a config ---- */

int uni__branch_write(const uni__branch *group, const double *row, uni_value *config)
{
    for (int i = 0; i < group->count; i++) {
        const uni__axis *axis = &group->axes[i];
        double x = row[group->first + i];
        uni_value *value = axis->choices
                               ? uni_value_copy(uni_list_get(axis->domain->values, (size_t)x))
                               : uni__domain_number(axis->domain, uni__axis_to(axis, x));
        UNI_TRY(uni__space_put(config, group->paths[i], value));
        if (axis->choices && group->branches[i][(int)x])
            UNI_TRY(uni__branch_write(group->branches[i][(int)x], row, config));
    }
    return 0;
}
