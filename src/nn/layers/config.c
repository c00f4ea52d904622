/*
 * config.c - Keras's layer configs: initialisers, regularisers, paddings, numbers or lists of them,
 * and the entries that every layer's config has (name, trainable, dtype). Writers return only a
 * code, because they can only run out of memory. Any thread.
 */
#include "nn/layer.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nn/shared.h"
#include "tensor/shared.h"

/* {"module": ..., "class_name": ..., "config": {...}, "registered_name": null}: Keras's notation
 * for an object. */
static int put_object(uni_value *config, const char *key, const char *module,
                      const char *class_name, uni_value *inner)
{
    uni_value *object = uni_value_dict();
    int status = 0;
    UNI_TRY_GOTO(uni_dict_take(object, "config", inner), fail);
    UNI_TRY_GOTO(uni_dict_take(object, "module", uni_value_string(module)), fail);
    UNI_TRY_GOTO(uni_dict_take(object, "class_name", uni_value_string(class_name)), fail);
    UNI_TRY_GOTO(uni_dict_take(object, "registered_name", uni_value_null()), fail);
    return uni_dict_take(config, key, object);
fail:
    uni_value_free(object);
    return status;
}

static const struct {
    const char *name, *class_name;
} initializers[] = {
    { "zeros", "Zeros" },
    { "ones", "Ones" },
    { "constant", "Constant" },
    { "identity", "Identity" },
    { "random_uniform", "RandomUniform" },
    { "random_normal", "RandomNormal" },
    { "truncated_normal", "TruncatedNormal" },
    { "orthogonal", "Orthogonal" },
    { "glorot_uniform", "GlorotUniform" },
    { "glorot_normal", "GlorotNormal" },
    { "he_uniform", "HeUniform" },
    { "he_normal", "HeNormal" },
    { "lecun_uniform", "LecunUniform" },
    { "lecun_normal", "LecunNormal" },
};

static int put_initializer_numbers(uni_value *inner, const uni_initializer *resolved)
{
    const char *name = resolved->name;
    if (strcmp(name, "constant") == 0)
        return uni_dict_take(inner, "value", uni_value_float(resolved->value));
    if (strcmp(name, "zeros") == 0 || strcmp(name, "ones") == 0)
        return 0;
    if (strcmp(name, "identity") == 0)
        return uni_dict_take(inner, "gain", uni_value_float(uni__pick(resolved->gain, 1)));
    UNI_TRY(uni_dict_take(inner, "seed",
                          resolved->seed != 0 ? uni_value_int((int64_t)resolved->seed)
                                              : uni_value_null()));
    if (strcmp(name, "random_uniform") == 0) {
        UNI_TRY(uni_dict_take(inner, "minval", uni_value_float(uni__pick(resolved->low, 0))));
        return uni_dict_take(inner, "maxval", uni_value_float(uni__pick(resolved->high, 0)));
    }
    if (strcmp(name, "random_normal") == 0 || strcmp(name, "truncated_normal") == 0) {
        UNI_TRY(uni_dict_take(inner, "mean", uni_value_float(resolved->mean)));
        return uni_dict_take(inner, "stddev", uni_value_float(uni__pick(resolved->stddev, 0.05)));
    }
    if (strcmp(name, "orthogonal") == 0)
        return uni_dict_take(inner, "gain", uni_value_float(uni__pick(resolved->gain, 1)));
    return 0;
}

int uni__config_put_initializer(uni_value *config, const char *key,
                                const uni_initializer *initializer, const char *default_name)
{
    uni_initializer resolved;
    UNI_TRY(uni__initializer_resolve(&resolved, initializer, default_name, NULL));
    const char *class_name = "Zeros";
    for (size_t i = 0; i < sizeof initializers / sizeof initializers[0]; i++)
        if (strcmp(initializers[i].name, resolved.name) == 0)
            class_name = initializers[i].class_name;
    uni_value *inner = uni_value_dict();
    int status = put_initializer_numbers(inner, &resolved);
    if (status < 0) {
        uni_value_free(inner);
        return status;
    }
    return put_object(config, key, "keras.initializers", class_name, inner);
}

int uni__config_put_regularizer(uni_value *config, const char *key,
                                const uni_regularizer *regularizer)
{
    if (regularizer->l1 == 0 && regularizer->l2 == 0)
        return uni_dict_take(config, key, uni_value_null());
    bool both = regularizer->l1 != 0 && regularizer->l2 != 0;
    uni_value *inner = uni_value_dict();
    int status = 0;
    if (regularizer->l1 != 0)
        UNI_TRY_GOTO(uni_dict_take(inner, "l1", uni_value_float((double)regularizer->l1)), fail);
    if (regularizer->l2 != 0)
        UNI_TRY_GOTO(uni_dict_take(inner, "l2", uni_value_float((double)regularizer->l2)), fail);
    return put_object(config, key, "keras.regularizers",
                      both                   ? "L1L2"
                      : regularizer->l1 != 0 ? "L1"
                                             : "L2",
                      inner);
fail:
    uni_value_free(inner);
    return status;
}

int uni__config_put_ints(uni_value *config, const char *key, int count, const int64_t *numbers)
{
    uni_value *list = uni_value_list();
    for (int i = 0; i < count; i++) {
        int status = uni_list_take(list, uni_value_int(numbers[i]));
        if (status < 0) {
            uni_value_free(list);
            return status;
        }
    }
    return uni_dict_take(config, key, list);
}

/* ---- reading ---- */

/* The name of a Keras object or function: a string, or a dictionary with its class. *inner is its
 * config or NULL. */
static const char *object_name(const uni_value *value, const uni_value **inner)
{
    *inner = NULL;
    if (uni_value_type_of(value) != UNI_TYPE_DICT)
        return uni_value_as_string(value, NULL);
    const uni_value *config = uni_dict_get(value, "config");
    const char *name =
        uni_dict_get_string(value, "class_name", uni_dict_get_string(value, "class", NULL));
    if (name != NULL && strcmp(name, "function") == 0) /* Keras's notation for a function */
        return uni_value_as_string(config, NULL);
    *inner = config;
    return name;
}

/* An explicit 0 is meant; a missing number is the default. */
static double exact_float(const uni_value *config, const char *key)
{
    const uni_value *value = uni_dict_get(config, key);
    double number = uni_value_as_float(value, 0);
    return uni_value_is_number(value) && number == 0 ? UNI_EXACTLY_ZERO : number;
}

int uni__config_get_initializer(uni_initializer *out, const uni_value *config, const char *key,
                                uni_error *err)
{
    const uni_value *value = uni_dict_get(config, key), *inner;
    if (uni_value_type_of(value) == UNI_TYPE_NULL)
        return 0;
    uni_initializer given = { .name = object_name(value, &inner) };
    if (given.name == NULL)
        return uni_error_set(err, UNI_EFORMAT,
                             "%s: an initializer is a name or an object with a class_name", key);
    given.value = uni_dict_get_float(inner, "value", 0);
    given.mean = uni_dict_get_float(inner, "mean", 0);
    given.stddev = exact_float(inner, "stddev");
    given.low = exact_float(inner, "minval");
    given.high = exact_float(inner, "maxval");
    given.gain = exact_float(inner, "gain");
    given.seed = (uint64_t)uni_dict_get_int(inner, "seed", 0);
    int status = uni__initializer_resolve(out, &given, "zeros", err);
    if (status < 0)
        uni_error_prefix(err, "%s", key);
    return status;
}

int uni__config_get_regularizer(uni_regularizer *out, const uni_value *config, const char *key,
                                uni_error *err)
{
    const uni_value *value = uni_dict_get(config, key), *inner;
    if (uni_value_type_of(value) == UNI_TYPE_NULL)
        return 0;
    const char *name = object_name(value, &inner);
    if (name == NULL || (strcasecmp(name, "L1") != 0 && strcasecmp(name, "L2") != 0 &&
                         strcasecmp(name, "L1L2") != 0 && strcasecmp(name, "l1_l2") != 0))
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "%s: the regularizer \"%s\" is not supported; there are L1, L2 and L1L2", key,
            name != NULL ? name : "?");
    bool has_l1 = strncasecmp(name, "L1", 2) == 0, has_l2 = strcasecmp(name, "L1") != 0;
    out->l1 = has_l1 ? (float)uni_dict_get_float(inner, "l1", has_l2 ? 0 : 0.01) : 0;
    out->l2 = has_l2 ? (float)uni_dict_get_float(inner, "l2", has_l1 ? 0 : 0.01) : 0;
    return 0;
}

int uni__config_get_ints(int64_t *out, int *count, int max, const uni_value *config,
                         const char *key, uni_error *err)
{
    const uni_value *value = uni_dict_get(config, key);
    *count = 0;
    if (uni_value_type_of(value) == UNI_TYPE_NULL)
        return 0;
    if (uni_value_is_number(value)) {
        out[0] = uni_value_as_int(value, 0);
        *count = 1;
        return 0;
    }
    size_t size = uni_list_size(value);
    if (uni_value_type_of(value) != UNI_TYPE_LIST || size > (size_t)max)
        return uni_error_set(err, UNI_EFORMAT,
                             "%s: expected a number or a list of at most %d numbers", key, max);
    for (size_t i = 0; i < size; i++) {
        const uni_value *item = uni_list_get(value, i);
        if (uni_value_type_of(item) != UNI_TYPE_NULL && !uni_value_is_number(item))
            return uni_error_set(err, UNI_EFORMAT, "%s: entry %zu is not a number", key, i);
        out[i] = uni_value_as_int(item, -1); /* Keras writes null where we write -1 */
    }
    *count = (int)size;
    return 0;
}

int uni__config_get_activation(const uni_value *config, const char *key, uni_activation fallback,
                               uni_error *err)
{
    const uni_value *value = uni_dict_get(config, key), *inner;
    if (uni_value_type_of(value) == UNI_TYPE_NULL) /* a written null: no activation, as in Keras */
        return value != NULL ? UNI_ACTIVATION_LINEAR : fallback;
    const char *name = object_name(value, &inner);
    int kind = name != NULL ? uni__activation_from_name(name) : -1;
    if (kind < 0)
        uni_error_set(err, UNI_EUNSUPPORTED, "%s: there is no activation \"%s\"", key,
                      name != NULL ? name : "?");
    return kind;
}

const char *uni__padding_name(uni_padding padding)
{
    return padding == UNI_PADDING_SAME     ? "same"
           : padding == UNI_PADDING_CAUSAL ? "causal"
                                           : "valid";
}

int uni__config_get_padding(uni_padding *out, const uni_value *config, uni_error *err)
{
    const char *name = uni_dict_get_string(config, "padding", "valid");
    for (int i = 0; i < 3; i++)
        if (strcasecmp(name, uni__padding_name((uni_padding)i)) == 0) {
            *out = (uni_padding)i;
            return 0;
        }
    return uni_error_set(err, UNI_EINVAL,
                         "there is no padding \"%s\"; there are valid, same and causal", name);
}

int uni__config_refuse(const uni_value *config, const char *key, const char *allowed,
                       uni_error *err)
{
    const uni_value *value = uni_dict_get(config, key);
    const char *text = uni_value_as_string(value, NULL);
    if (uni_value_type_of(value) == UNI_TYPE_NULL ||
        (text != NULL && allowed != NULL && strcmp(text, allowed) == 0) ||
        (uni_value_is_number(value) && uni_value_as_float(value, 1) == 0))
        return 0;
    return uni_error_set(err, UNI_EUNSUPPORTED, "the setting \"%s\"%s%s is not supported", key,
                         text != NULL ? " = " : "", text != NULL ? text : "");
}

/* ---- common entries ---- */

static int put_frame(const uni_layer *layer, uni_value *config)
{
    UNI_TRY(uni_dict_take(config, "name", uni_value_string(uni_layer_name(layer))));
    if (layer->class_ == &uni__class_input)
        return 0;
    UNI_TRY(uni_dict_take(config, "trainable", uni_value_bool(!layer->frozen)));
    uni_value *policy = uni_value_dict();
    int status = uni_dict_take(policy, "name", uni_value_string("float32"));
    if (status < 0) {
        uni_value_free(policy);
        return status;
    }
    return put_object(config, "dtype", "keras", "DTypePolicy", policy);
}

int uni__layer_get_config(const uni_layer *layer, uni_value **out, uni_error *err)
{
    *out = NULL;
    if (layer->class_->get_config == NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "%s: a layer of the user's own (%s) has no config; give its class "
                             "get_config and set_config",
                             uni_layer_name(layer), layer->class_->name);
    uni_value *config = uni_value_dict();
    int status = config == NULL ? UNI_ENOMEM : put_frame(layer, config);
    if (status < 0)
        uni_error_set(err, status, "no memory for the config of %s", uni_layer_name(layer));
    else
        status = layer->class_->get_config(layer, layer->self, config, err);
    if (status < 0) {
        /* Classes return codes of uni_dict_take, which have no message. */
        if (err != NULL && err->code == 0)
            uni_error_set(err, status, "no memory for the config of %s", uni_layer_name(layer));
        uni_value_free(config);
        return status;
    }
    *out = config;
    return 0;
}
