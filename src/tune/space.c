/*
 * space.c - spaces: all marked values of a tree, and the configs made from them. domain.c defines
 * what one mark means.
 *
 * Random numbers are counter-based: the value of a parameter is a function of the seed, the trial's
 * number and the parameter's index in the sorted list. So trial 4711 is the same whenever it is
 * computed.
 */
#include "tune/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/shared.h"
#include "tune/shared.h"
#include "base/random.h"
#include "base/text.h"

#define MAX_NESTING 8 /* levels of domains inside chosen values */

/* ---- all parameters of a tree ---- */

static int add_parameter(uni__space *space, const char *path, const uni__domain *domain,
                         uni_error *err)
{
    uni__parameter *grown =
        uni__grown(space->items, (size_t)space->count, &space->capacity, sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the space");
    space->items = grown;
    space->items[space->count] = (uni__parameter){ .path = strdup(path), .domain = *domain };
    if (!space->items[space->count].path)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the space");
    space->count++;
    return 0;
}

static int collect(uni__space *space, const uni_value *tree, uni__text *path, int depth,
                   uni_error *err)
{
    uni__domain domain;
    int found = uni__domain_read(tree, path->data ? path->data : "", &domain, err);
    if (found < 0)
        return found;
    if (found)
        return add_parameter(space, path->data ? path->data : "", &domain, err);
    bool is_list = uni_value_type_of(tree) == UNI_TYPE_LIST;
    size_t count = is_list ? uni_list_size(tree) : uni_dict_size(tree), before = path->size;
    if (depth > UNI_VALUE_MAX_DEPTH)
        return uni_error_set(err, UNI_ELIMIT, "the space is nested too deeply");
    for (size_t i = 0; i < count; i++) {
        if (before)
            uni__text_add_char(path, '.');
        if (is_list)
            uni__text_add_int(path, (int64_t)i);
        else
            uni__text_add_string(path, uni_dict_key_at(tree, i));
        if (path->failed)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the space");
        UNI_TRY(collect(space, is_list ? uni_list_get(tree, i) : uni_dict_value_at(tree, i), path,
                        depth + 1, err));
        path->size = before;
        path->data[before] = '\0';
    }
    return 0;
}

static int by_path(const void *left, const void *right)
{
    return strcmp(((const uni__parameter *)left)->path, ((const uni__parameter *)right)->path);
}

int uni__space_read(uni__space *out, const uni_value *tree, uni_error *err)
{
    uni__text path = { 0 };
    *out = (uni__space){ .grid_size = 1 };
    int status = tree ? collect(out, tree, &path, 0, err) : 0;
    uni__text_free(&path);
    if (out->count)
        qsort(out->items, (size_t)out->count, sizeof *out->items, by_path);
    for (int i = 0; i < out->count && status == 0; i++) {
        if (i > 0 && strcmp(out->items[i - 1].path, out->items[i].path) == 0)
            status = uni_error_set(err, UNI_EINVAL,
                                   "two parameters of the space have the path \"%s\": rename the "
                                   "key that contains a dot",
                                   out->items[i].path);
        if (out->items[i].domain.kind != UNI__DOMAIN_GRID)
            continue;
        out->grid_size *= (int64_t)uni_list_size(out->items[i].domain.values);
        if (status == 0 && out->grid_size > INT32_MAX)
            status = uni_error_set(err, UNI_ELIMIT,
                                   "the grid has more than %d combinations: leave some values out",
                                   INT32_MAX);
    }
    if (status < 0)
        uni__space_clear(out);
    return status;
}

void uni__space_clear(uni__space *space)
{
    for (int i = 0; i < space->count; i++)
        free(space->items[i].path);
    free(space->items);
    *space = (uni__space){ 0 };
}

static uni_value *rebuilt(const uni_value *list, const char *path, uni_value *value);

/* Takes ownership of the value, even on failure. */
static int put_in(uni_value *tree, const char *path, uni_value *value)
{
    /* Keys may contain dots: the longest existing key wins. */
    for (const char *dot = strchr(path, '.'); dot && !uni_dict_get(tree, path);
         dot = strchr(dot + 1, '.')) {
        char *key = strndup(path, (size_t)(dot - path));
        const uni_value *below = key ? uni_dict_get(tree, key) : NULL;
        int status = UNI_ENOTFOUND;
        if (uni_value_type_of(below) == UNI_TYPE_DICT)
            status = put_in((uni_value *)below, dot + 1, value);
        else if (uni_value_type_of(below) == UNI_TYPE_LIST)
            status = uni_dict_take(tree, key, rebuilt(below, dot + 1, value));
        free(key);
        if (status != UNI_ENOTFOUND)
            return status;
    }
    return uni_dict_take(tree, path, value);
}

/* Copies the list with one item changed, because list items cannot be replaced. Takes ownership of
 * the value; NULL: out of memory. */
static uni_value *rebuilt(const uni_value *list, const char *path, uni_value *value)
{
    char *end;
    size_t index = strtoul(path, &end, 10);
    uni_value *out = uni_value_list();
    int status = index < uni_list_size(list) ? 0 : UNI_EINVAL;
    if (status < 0)
        uni_value_free(value);
    for (size_t i = 0; i < uni_list_size(list); i++) {
        const uni_value *old = uni_list_get(list, i);
        uni_value *item;
        if (i == index && !*end) {
            item = value;
        } else if (i == index && uni_value_type_of(old) == UNI_TYPE_LIST) {
            item = rebuilt(old, end + 1, value);
        } else {
            item = uni_value_copy(old);
            if (i == index)
                status |= put_in(item, end + 1, value);
        }
        status |= uni_list_take(out, item);
    }
    if (status == 0)
        return out;
    uni_value_free(out);
    return NULL;
}

int uni__space_put(uni_value *tree, const char *path, uni_value *value)
{
    return value ? put_in(tree, path, value) : UNI_ENOMEM;
}

/* ---- configs ---- */

static int call_sampler(const uni_tune_sampler *samplers, const char *name, const char *path,
                        const uni_value *config, uni_value **out, uni_error *err)
{
    for (; samplers && samplers->name; samplers++) {
        if (strcmp(samplers->name, name) != 0)
            continue;
        int status = samplers->call(samplers->context, config, out, err);
        if (status == 0 && !*out)
            status = uni_error_set(err, UNI_EINVAL, "it gave no value");
        return status < 0 ? uni_error_prefix(err, "\"%s\": sample_from %s", path, name) : 0;
    }
    return uni_error_set(err, UNI_ENOTFOUND, "\"%s\": there is no sampler \"%s\" for sample_from",
                         path, name);
}

/* Resolves domains inside a chosen value: {"$choice": [{"units": {"$randint": [1, 9]}}, ...]}. */
int uni__space_finish(uni_value *config, const uni_tune_sampler *samplers, uint64_t seed,
                      int64_t index, uni_error *err)
{
    for (uint64_t level = 1; level <= MAX_NESTING; level++) {
        uni__space inside;
        bool any = false;
        UNI_TRY(uni__space_read(&inside, config, err));
        int status = 0;
        for (int i = 0; i < inside.count && status == 0; i++) {
            if (inside.items[i].domain.kind == UNI__DOMAIN_FUNCTION)
                continue;
            any = true;
            double unit = uni__random_unit(seed, (uint64_t)index, level << 32 | (uint64_t)i);
            status = uni__space_put(config, inside.items[i].path,
                                    uni__domain_sample(&inside.items[i].domain, unit));
        }
        for (int i = 0; i < inside.count && status == 0 && !any; i++) {
            uni_value *value = NULL;
            status = call_sampler(samplers, inside.items[i].domain.function, inside.items[i].path,
                                  config, &value, err);
            if (status == 0)
                status = uni__space_put(config, inside.items[i].path, value);
        }
        bool done = inside.count == 0;
        uni__space_clear(&inside);
        if (status < 0)
            return status == UNI_ENOMEM ? uni_error_set(err, UNI_ENOMEM, "no memory for a config")
                                        : status;
        if (done)
            return 0;
    }
    return uni_error_set(err, UNI_ELIMIT, "values inside of values, more than %d deep",
                         MAX_NESTING);
}

int uni__tune_space_check(const uni_value *space, uni_error *err)
{
    uni__space all;
    if (!space)
        return 0;
    if (uni_value_type_of(space) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "a space must be a dictionary, not a %s",
                             uni__value_type_name(uni_value_type_of(space)));
    UNI_TRY(uni__space_read(&all, space, err));
    bool whole = all.count == 1 && !all.items[0].path[0];
    uni__space_clear(&all);
    return whole ? uni_error_set(err, UNI_EINVAL,
                                 "a space must be a dictionary of parameters, not one parameter")
                 : 0;
}

int uni__tune_space_size(const uni_value *space, int64_t *out, uni_error *err)
{
    uni__space all;
    UNI_TRY(uni__space_read(&all, space, err));
    *out = all.grid_size;
    uni__space_clear(&all);
    return 0;
}

int uni__tune_space_config(const uni_value *space, const uni_tune_sampler *samplers, uint64_t seed,
                           int64_t index, uni_value **out, uni_error *err)
{
    uni__space all;
    *out = NULL;
    UNI_TRY(uni__space_read(&all, space, err));
    uni_value *config = space ? uni_value_copy(space) : uni_value_dict();
    int64_t combination = index % all.grid_size;
    int status = config ? 0 : UNI_ENOMEM;
    for (int i = 0; i < all.count && status == 0; i++) {
        const uni__parameter *parameter = &all.items[i];
        uni_value *value = NULL;
        if (parameter->domain.kind == UNI__DOMAIN_FUNCTION)
            continue;
        if (parameter->domain.kind == UNI__DOMAIN_GRID) { /* the first path varies fastest */
            int64_t count = (int64_t)uni_list_size(parameter->domain.values);
            value = uni_value_copy(
                uni_list_get(parameter->domain.values, (size_t)(combination % count)));
            combination /= count;
        } else {
            value = uni__domain_sample(&parameter->domain,
                                       uni__random_unit(seed, (uint64_t)index, (uint64_t)i));
        }
        status = uni__space_put(config, parameter->path, value);
    }
    bool plain = all.count == 0;
    uni__space_clear(&all);
    if (status < 0)
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a config");
    else if (!plain)
        status = uni__space_finish(config, samplers, seed, index, err);
    if (status < 0) {
        uni_value_free(config);
        return status;
    }
    *out = config;
    return 0;
}
