/*
 * check.c - the kinds of a layer config's values. The readers of the layers take a default where a
 * value is missing; without this check they would also take it where a value is of another kind
 * (strides 0 or 1.5, use_bias 0, momentum null). Any thread.
 */
#include "nn/shared.h"
#include "nn/layer.h"

#include <math.h>
#include <string.h>

typedef enum value_kind {
    WHOLE, /* a whole number of at least 1 */
    WHOLES, /* the same, or a list of them */
    WHOLES_OR_NULL,
    AXIS, /* a whole number */
    AXES, /* the same, or a list of them */
    NUMBER,
    POSITIVE, /* a number of at least 0 */
    NUMBER_OR_NULL,
    SWITCH, /* true or false */
    WORD,
    WORD_OR_NULL,
    COUNT_OR_NULL, /* a whole number of at least 1 */
    COUNTS, /* whole numbers of at least 0, or pairs of them */
} value_kind;

static const struct {
    const char *key;
    value_kind kind;
} rules[] = {
    { "units", WHOLE },
    { "filters", WHOLE },
    { "depth_multiplier", WHOLE },
    { "groups", WHOLE },
    { "num_heads", WHOLE },
    { "key_dim", WHOLE },
    { "input_dim", WHOLE },
    { "output_dim", WHOLE },
    { "kernel_size", WHOLES },
    { "dilation_rate", WHOLES },
    { "pool_size", WHOLES },
    { "value_dim", COUNT_OR_NULL },
    { "output_shape", WHOLES_OR_NULL },
    { "max_tokens", COUNT_OR_NULL },
    { "output_sequence_length", COUNT_OR_NULL },
    { "ngrams", COUNT_OR_NULL },
    { "momentum", NUMBER },
    { "epsilon", NUMBER },
    { "rate", NUMBER },
    { "dropout", NUMBER },
    { "threshold", NUMBER },
    { "alpha", NUMBER },
    { "l1", POSITIVE },
    { "l2", POSITIVE },
    { "negative_slope", POSITIVE },
    { "max_value", NUMBER_OR_NULL },
    { "use_bias", SWITCH },
    { "center", SWITCH },
    { "return_sequences", SWITCH },
    { "go_backwards", SWITCH },
    { "reset_after", SWITCH },
    { "unit_forget_bias", SWITCH },
    { "keepdims", SWITCH },
    { "invert", SWITCH },
    { "mask_zero", SWITCH },
    { "pad_to_max_tokens", SWITCH },
    { "data_format", WORD_OR_NULL },
    { "output_mode", WORD },
};

static bool is_whole(const uni_value *value, double least)
{
    if (!uni_value_is_number(value) || uni_value_type_of(value) == UNI_TYPE_BOOL)
        return false;
    double number = uni_value_as_float(value, NAN);
    return number == floor(number) && number >= least && fabs(number) <= INT32_MAX;
}

/* Or a list that is not empty; pairs of numbers are in lists of lists. */
static bool are_whole(const uni_value *value, double least, int depth)
{
    if (uni_value_type_of(value) != UNI_TYPE_LIST)
        return is_whole(value, least);
    for (size_t i = 0; i < uni_list_size(value); i++)
        if (depth == 0 || !are_whole(uni_list_get(value, i), least, depth - 1))
            return false;
    return uni_list_size(value) > 0;
}

static bool fits(const uni_value *value, value_kind kind)
{
    uni_value_type type = uni_value_type_of(value);
    bool number = uni_value_is_number(value) && type != UNI_TYPE_BOOL;
    switch (kind) {
    case WHOLE:
        return is_whole(value, 1);
    case WHOLES_OR_NULL:
        return type == UNI_TYPE_NULL || are_whole(value, 1, 1);
    case WHOLES:
        return are_whole(value, 1, 1);
    case AXIS:
        return is_whole(value, -INT32_MAX);
    case AXES:
        return are_whole(value, -INT32_MAX, 1);
    case NUMBER_OR_NULL:
        return type == UNI_TYPE_NULL || number;
    case NUMBER:
        return number;
    case POSITIVE:
        return number && uni_value_as_float(value, -1) >= 0;
    case SWITCH:
        return type == UNI_TYPE_BOOL;
    case WORD:
        return type == UNI_TYPE_STRING;
    case WORD_OR_NULL:
        return type == UNI_TYPE_NULL || type == UNI_TYPE_STRING;
    case COUNT_OR_NULL:
        return type == UNI_TYPE_NULL || is_whole(value, 1);
    case COUNTS:
        return are_whole(value, 0, 2);
    }
    return true;
}

static int refuse(const char *key, value_kind kind, uni_error *err)
{
    static const char *const words[] = {
        [WHOLE] = "a whole number of at least 1",
        [WHOLES] = "a whole number of at least 1, or a list of them",
        [WHOLES_OR_NULL] = "a whole number of at least 1, a list of them, or nothing",
        [AXIS] = "a whole number",
        [AXES] = "a whole number, or a list of them",
        [NUMBER] = "a number",
        [POSITIVE] = "a number of at least 0",
        [NUMBER_OR_NULL] = "a number, or nothing",
        [SWITCH] = "true or false",
        [WORD] = "a word",
        [WORD_OR_NULL] = "a word, or nothing",
        [COUNT_OR_NULL] = "a whole number of at least 1, or nothing",
        [COUNTS] = "a whole number of at least 0, or a list of them",
    };
    return uni_error_set(err, UNI_EINVAL, "%s must be %s", key, words[kind]);
}

static int check_one(const uni_value *config, const char *key, value_kind kind, uni_error *err)
{
    const uni_value *value = uni_dict_get(config, key);
    return value == NULL || fits(value, kind) ? 0 : refuse(key, kind, err);
}

/* One without the other would leave the layer as it was before adapt. */
static int check_statistics(const uni_value *config, uni_error *err)
{
    bool mean = uni_value_type_of(uni_dict_get(config, "mean")) != UNI_TYPE_NULL;
    bool variance = uni_value_type_of(uni_dict_get(config, "variance")) != UNI_TYPE_NULL;
    return mean == variance ? 0
                            : uni_error_set(err, UNI_EINVAL,
                                            "mean and variance must be given together, or neither");
}

int uni__config_check(const char *class_name, const uni_value *config, uni_error *err)
{
    bool normalizes = strstr(class_name, "Normalization") != NULL;
    bool adapts = strcmp(class_name, "Normalization") == 0; /* says more about its axis itself */
    bool pools = uni_dict_get(config, "pool_size") != NULL;
    bool pads = strncmp(class_name, "ZeroPadding", 11) == 0;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        UNI_TRY(check_one(config, rules[i].key, rules[i].kind, err));
    if (!adapts)
        UNI_TRY(check_one(config, "axis", normalizes ? AXES : AXIS, err));
    UNI_TRY(check_one(config, "padding", pads ? COUNTS : WORD, err));
    if (adapts)
        UNI_TRY(check_statistics(config, err));
    return check_one(config, "strides", pools ? WHOLES_OR_NULL : WHOLES, err);
}
