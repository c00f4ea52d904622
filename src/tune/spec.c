/* spec.c - options to dictionary and back by one table, and what is wrong with them; see spec.h. */
#include "train/variables.h"
#include "tune/spec.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "checkpoint/shared.h"
#include "tune/shared.h"
#include "tune/experiment.h"
#include "tune/publish.h"
#include "tune/search.h"
#include "tune/stop.h"

typedef enum field_type { TEXT, WHOLE, NUMBER, SWITCH, TREE, SEED } field_type;

static const struct field {
    const char *name;
    field_type type;
    size_t offset;
    /* The options' value for a 0 in the spec, where the options use 0 for the default. */
    double zero;
} fields[] = {
#define FIELD(name, type)                                                                          \
    {                                                                                              \
#name, type, offsetof(uni_tuner_options, name), 0                                          \
    }
    FIELD(function, TEXT),
    FIELD(program, TREE),
    FIELD(num_workers, WHOLE),
    FIELD(backend, TEXT),
    FIELD(working_directory, TEXT),
    FIELD(space, TREE),
    FIELD(num_samples, WHOLE),
    FIELD(metric, TEXT),
    FIELD(mode, TEXT),
    FIELD(searcher, TREE),
    FIELD(scheduler, TREE),
    FIELD(stop, TREE),
    FIELD(sinks, TREE),
    FIELD(seed, SEED),
    FIELD(max_concurrent, WHOLE),
    FIELD(cpus_per_trial, NUMBER),
    FIELD(memory_per_trial, NUMBER),
    FIELD(gpus_per_trial, WHOLE),
    FIELD(time_budget, NUMBER),
    FIELD(max_failures, WHOLE),
    FIELD(fail_fast, SWITCH),
    FIELD(fresh_workers, SWITCH),
    { "grace_seconds", NUMBER, offsetof(uni_tuner_options, grace_seconds), UNI_GRACE_NONE },
    FIELD(name, TEXT),
    FIELD(storage_path, TEXT),
#undef FIELD
};
#define NUM_FIELDS (sizeof fields / sizeof fields[0])

/* ---- options to dictionary ---- */

static uni_value *value_of(const struct field *field, const uni_tuner_options *options)
{
    const char *at = (const char *)options + field->offset;
    switch (field->type) {
    case TEXT: {
        const char *text = *(const char *const *)at;
        return text ? uni_value_string(text) : NULL;
    }
    case WHOLE:
        return *(const int *)at ? uni_value_int(*(const int *)at) : NULL;
    case NUMBER:
        return *(const double *)at != 0 ? uni_value_float(*(const double *)at) : NULL;
    case SWITCH:
        return *(const bool *)at ? uni_value_bool(true) : NULL;
    case SEED:
        return uni_value_int((int64_t)(*(const uint64_t *)at & INT64_MAX));
    case TREE: {
        const uni_value *tree = *(const uni_value *const *)at;
        return tree ? uni_value_copy(tree) : NULL;
    }
    }
    return NULL;
}

static uni_value *policy_of(const uni_checkpoint_policy *policy)
{
    uni_value *out = uni_value_dict();
    int status = uni_dict_take(out, "num_to_keep", uni_value_int(policy->num_to_keep));
    if (policy->score_attribute)
        status |= uni_dict_take(out, "score_attribute", uni_value_string(policy->score_attribute));
    status |= uni_dict_take(out, "score_order",
                            uni_value_string(policy->score_order == UNI_SCORE_MIN ? "min" : "max"));
    if (status == 0)
        return out;
    uni_value_free(out);
    return NULL;
}

int uni__spec_of(const uni_tuner_options *options, uni_value **out, uni_error *err)
{
    const uni_checkpoint_policy *policy = options->policy;
    if (policy && (policy->every_steps != 0 || policy->every_seconds != 0))
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the policy's every_steps and every_seconds have no effect in a "
                             "search: trials keep the checkpoints that they report");
    uni_value *spec = uni_value_dict();
    int status = 0;
    for (size_t i = 0; i < NUM_FIELDS; i++) {
        uni_value *value = value_of(&fields[i], options);
        if (value)
            status |= uni_dict_take(spec, fields[i].name, value);
    }
    uni_value *environment = uni_value_list();
    for (const char *const *pair = options->environment; pair && *pair; pair++)
        status |= uni_list_take(environment, uni__variable_is_secret(*pair)
                                                 ? uni_value_string_n(*pair, strcspn(*pair, "="))
                                                 : uni_value_string(*pair));
    status |= uni_dict_take(spec, "environment", environment);
    if (options->policy)
        status |= uni_dict_take(spec, "checkpoint", policy_of(options->policy));
    if (options->own_searcher)
        status |= uni_dict_take(spec, "searcher", uni_value_string("own"));
    if (status < 0) {
        uni_value_free(spec);
        return uni_error_set(err, UNI_ENOMEM, "no memory for an experiment");
    }
    *out = spec;
    return 0;
}

/* ---- dictionary to options ---- */

static int wrong_type(const struct field *field, const char *needed, uni_error *err)
{
    return uni_error_set(err, UNI_EINVAL, "\"%s\" must be %s", field->name, needed);
}

/* has_seed: set by a seed. */
static int read_field(const struct field *field, void *into, const uni_value *value, bool *has_seed,
                      uni_error *err)
{
    char *at = (char *)into + field->offset;
    uni_value_type type = uni_value_type_of(value);
    double number = uni_value_as_float(value, NAN);
    switch (field->type) {
    case TEXT:
        if (type != UNI_TYPE_STRING)
            return wrong_type(field, "a string", err);
        *(const char **)at = uni_value_as_string(value, NULL);
        return 0;
    case WHOLE:
        if (type == UNI_TYPE_BOOL || number != floor(number) || fabs(number) > INT32_MAX)
            return wrong_type(field, "a whole number", err);
        *(int *)at = (int)number;
        return 0;
    case SEED:
        if (type != UNI_TYPE_INT || number < 0)
            return wrong_type(field, "a whole number that is not negative", err);
        *(uint64_t *)at = (uint64_t)uni_value_as_int(value, 0);
        *has_seed = true;
        return 0;
    case NUMBER:
        if (type == UNI_TYPE_BOOL || !isfinite(number))
            return wrong_type(field, "a number", err);
        *(double *)at = number == 0 && field->zero != 0 ? field->zero : number;
        return 0;
    case SWITCH:
        if (type != UNI_TYPE_BOOL)
            return wrong_type(field, "true or false", err);
        *(bool *)at = uni_value_as_bool(value, false);
        return 0;
    case TREE:
        *(const uni_value **)at = value;
        return 0;
    }
    return 0;
}

static int read_policy(uni__tune_spec *spec, const uni_value *dict, uni_error *err)
{
    static const char *const known[] = { "num_to_keep", "score_attribute", "score_order", NULL };
    static const struct field parts[] = {
        { "num_to_keep", WHOLE, offsetof(uni_checkpoint_policy, num_to_keep), 0 },
        { "score_attribute", TEXT, offsetof(uni_checkpoint_policy, score_attribute), 0 },
    };
    if (!dict || uni_value_type_of(dict) == UNI_TYPE_NULL)
        return 0;
    if (uni_value_type_of(dict) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL,
                             "\"checkpoint\" must be a dictionary, such as {\"num_to_keep\": 2}");
    UNI_TRY(uni__check_keys("checkpoint", dict, known, err));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const uni_value *value = uni_dict_get(dict, parts[i].name);
        if (value && uni_value_type_of(value) != UNI_TYPE_NULL)
            UNI_TRY(read_field(&parts[i], &spec->policy, value, NULL, err));
    }
    const uni_value *given = uni_dict_get(dict, "score_order");
    const char *order = given ? uni_value_as_string(given, "") : "max";
    if (strcmp(order, "min") != 0 && strcmp(order, "max") != 0)
        return uni_error_set(err, UNI_EINVAL, "score_order must be \"min\" or \"max\", not \"%s\"",
                             order);
    spec->policy.score_order = order[1] == 'i' ? UNI_SCORE_MIN : UNI_SCORE_MAX;
    spec->options.policy = &spec->policy;
    return uni__checkpoint_policy_check(&spec->policy, err);
}

static int wrong_environment(uni_error *err)
{
    return uni_error_set(err, UNI_EINVAL,
                         "\"environment\" must be a list of NAME=value, or NAME to take the value "
                         "from the environment");
}

static int read_environment(uni__tune_spec *spec, const uni_value *list, uni_error *err)
{
    uni_value_type type = list ? uni_value_type_of(list) : UNI_TYPE_NULL;
    if (type != UNI_TYPE_NULL && type != UNI_TYPE_LIST)
        return wrong_environment(err);
    spec->environment = calloc(uni_list_size(list) + 1, sizeof *spec->environment);
    if (!spec->environment)
        return uni_error_set(err, UNI_ENOMEM, "no memory for an experiment");
    for (size_t i = 0; i < uni_list_size(list); i++) {
        spec->environment[i] = uni_value_as_string(uni_list_get(list, i), NULL);
        if (!spec->environment[i] || spec->environment[i][0] == '=' || !spec->environment[i][0])
            return wrong_environment(err);
    }
    spec->options.environment = spec->environment;
    return 0;
}

/* 0 is the default of these fields in the options; in a spec, 0 means 0. */
static int check_zeros(const uni_value *dict, uni_error *err)
{
    static const char *const names[] = { "num_samples", "num_workers", "time_budget",
                                         "cpus_per_trial", NULL };
    for (const char *const *name = names; *name; name++)
        if (uni_dict_get_float(dict, *name, 1) == 0)
            return uni_error_set(err, UNI_EINVAL,
                                 "\"%s\" must not be 0: leave it out for the default", *name);
    return 0;
}

int uni__tune_spec_read(uni__tune_spec **out, const uni_value *dict, uni_error *err)
{
    const char *known[NUM_FIELDS + 3];
    *out = NULL;
    for (size_t i = 0; i < NUM_FIELDS; i++)
        known[i] = fields[i].name;
    known[NUM_FIELDS] = "checkpoint";
    known[NUM_FIELDS + 1] = "environment";
    known[NUM_FIELDS + 2] = NULL;
    if (uni_value_type_of(dict) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "a spec must be a dictionary, not a %s",
                             uni__value_type_name(uni_value_type_of(dict)));
    UNI_TRY(uni__check_keys("a spec", dict, known, err));
    uni__tune_spec *spec = calloc(1, sizeof *spec);
    int status = spec ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for an experiment");
    for (size_t i = 0; i < NUM_FIELDS && status == 0; i++) {
        const uni_value *value = uni_dict_get(dict, fields[i].name);
        if (value && uni_value_type_of(value) != UNI_TYPE_NULL)
            status = read_field(&fields[i], &spec->options, value, &spec->options.has_seed, err);
    }
    if (status == 0)
        status = check_zeros(dict, err);
    if (status == 0)
        status = read_policy(spec, uni_dict_get(dict, "checkpoint"), err);
    if (status == 0)
        status = read_environment(spec, uni_dict_get(dict, "environment"), err);
    if (status < 0) {
        uni__tune_spec_free(spec);
        return status;
    }
    *out = spec;
    return 0;
}

uni_tuner_options *uni__tune_spec_options(uni__tune_spec *spec)
{
    return &spec->options;
}

void uni__tune_spec_free(uni__tune_spec *spec)
{
    if (!spec)
        return;
    free(spec->environment);
    free(spec);
}

/* ---- checking ---- */

static int check_numbers(const uni_value *spec, uni_error *err)
{
    static const char *const not_negative[] = { "max_concurrent",   "cpus_per_trial",
                                                "memory_per_trial", "gpus_per_trial",
                                                "time_budget",      "grace_seconds",
                                                "num_workers",      NULL };
    for (const char *const *name = not_negative; *name; name++)
        if (uni_dict_get_float(spec, *name, 0) < 0)
            return uni_error_set(err, UNI_EINVAL, "%s must not be negative", *name);
    int64_t samples = uni_dict_get_int(spec, "num_samples", 1);
    if (samples < UNI_SAMPLES_UNLIMITED)
        return uni_error_set(err, UNI_EINVAL,
                             "num_samples must be positive, or -1 for as many as the time allows");
    if (uni_dict_get_int(spec, "max_failures", 0) < UNI_UNLIMITED)
        return uni_error_set(err, UNI_EINVAL, "max_failures must be 0 or more, or -1 for ever");
    return 0;
}

/* A searcher or a scheduler: its name, or a dictionary with the name as its type. */
static int check_named(const uni_value *spec, const char *key, uni_error *err)
{
    const uni_value *named = uni_dict_get(spec, key);
    uni_value_type type = named ? uni_value_type_of(named) : UNI_TYPE_NULL;
    if (type == UNI_TYPE_NULL || type == UNI_TYPE_STRING)
        return 0;
    const uni_value *name = uni_dict_get(named, "type");
    if (type != UNI_TYPE_DICT || (name && uni_value_type_of(name) != UNI_TYPE_STRING))
        return uni_error_set(err, UNI_EINVAL,
                             "\"%s\" must be a name or a dictionary with a \"type\"", key);
    return 0;
}

static int check_program(const uni_value *spec, uni_error *err)
{
    const uni_value *program = uni_dict_get(spec, "program");
    if (!program == !uni_dict_get(spec, "function"))
        return uni_error_set(err, UNI_EINVAL, "an experiment needs either a function or a program");
    for (size_t i = 0; i < uni_list_size(program); i++)
        if (uni_value_type_of(uni_list_get(program, i)) != UNI_TYPE_STRING)
            return uni_error_set(err, UNI_EINVAL, "\"program\" must be a list of strings");
    if (program && uni_list_size(program) == 0)
        return uni_error_set(err, UNI_EINVAL,
                             "\"program\" must be a list: the program and its arguments");
    return 0;
}

int uni__spec_check(const uni_value *spec, uni_error *err)
{
    const char *metric = uni_dict_get_string(spec, "metric", NULL),
               *mode = uni_dict_get_string(spec, "mode", NULL);
    UNI_TRY(check_program(spec, err));
    UNI_TRY(uni__tune_space_check(uni_dict_get(spec, "space"), err));
    UNI_TRY(check_numbers(spec, err));
    UNI_TRY(check_named(spec, "searcher", err));
    UNI_TRY(check_named(spec, "scheduler", err));
    if (mode && strcmp(mode, "min") != 0 && strcmp(mode, "max") != 0)
        return uni_error_set(err, UNI_EINVAL, "mode must be \"min\" or \"max\", not \"%s\"", mode);
    if (metric && !mode)
        return uni_error_set(err, UNI_EINVAL,
                             "the metric \"%s\" has no mode: is a low value better (\"min\") or a "
                             "high one (\"max\")?",
                             metric);
    if (mode && !metric)
        return uni_error_set(err, UNI_EINVAL, "mode \"%s\" of which metric? Give one", mode);
    UNI_TRY(uni__sinks_check(uni_dict_get(spec, "sinks"), err));
    return uni__stop_check(uni_dict_get(spec, "stop"), metric, err);
}
