/*
 * objects.c - Keras's wrapper around a serialised object: {"module", "class_name", "config",
 * "registered_name"}. Any thread.
 */
#include "nn/loss/loss.h"

int uni__object_new(uni_value **out, const char *module, const char *class_name, uni_value *config,
                    uni_error *err)
{
    *out = NULL;
    int status = 0;
    uni_value *object = uni_value_dict();
    if (object == NULL || config == NULL) {
        uni_value_free(config);
        status = UNI_ENOMEM;
        goto fail;
    }
    status = uni_dict_take(object, "config", config); /* takes ownership, even on failure */
    if (status == 0)
        status = uni_dict_take(object, "module", uni_value_string(module));
    if (status == 0)
        status = uni_dict_take(object, "class_name", uni_value_string(class_name));
    if (status == 0)
        status = uni_dict_take(object, "registered_name", uni_value_null());
    if (status < 0)
        goto fail;
    *out = object;
    return 0;
fail:
    uni_value_free(object);
    return uni_error_set(err, status, "no memory for the config of %s", class_name);
}

const char *uni__object_class(const uni_value *value, const uni_value **config)
{
    *config = NULL;
    if (uni_value_type_of(value) == UNI_TYPE_STRING)
        return uni_value_as_string(value, NULL);
    const uni_value *inner = uni_dict_get(value, "config");
    const char *class_name = uni_dict_get_string(value, "class_name", NULL);
    if (class_name != NULL && uni_value_type_of(inner) == UNI_TYPE_STRING)
        return uni_value_as_string(
            inner, NULL); /* a function: {"class_name": "function", "config": "mse"} */
    if (uni_value_type_of(inner) == UNI_TYPE_DICT)
        *config = inner;
    return class_name;
}
