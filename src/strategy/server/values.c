/*
 * values.c - encodes the arguments and results of step functions in the format of checkpoint
 * dictionaries, which also supports arrays. Any thread.
 */
#include <stdlib.h>

#include "checkpoint/dict.h"
#include "strategy/server/internal.h"

static const char key[] = "value"; /* the format requires a dictionary */

int uni__ps_encode(void **out, size_t *size, const uni_value *value, uni_error *err)
{
    uni_value *wrapped = uni_value_dict();
    int status = uni_dict_take(wrapped, key, uni_value_copy(value));
    *out = NULL;
    if (status < 0)
        uni_error_set(err, status, "no memory for a value of a step function");
    if (status == 0)
        status = uni__dict_encoded_size(wrapped, size, err);
    if (status == 0 && !(*out = malloc(*size + 1)))
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a value of %zu bytes", *size);
    if (status == 0)
        status = uni__dict_encode(wrapped, *out, *size, err);
    uni_value_free(wrapped);
    if (status < 0) {
        free(*out);
        *out = NULL;
    }
    return status;
}

int uni__ps_decode(uni_value **out, const void *data, size_t size, uni_error *err)
{
    uni_value *wrapped = NULL;
    *out = NULL;
    UNI_TRY(uni__dict_decode(&wrapped, data, size, err));
    *out = uni_value_copy(uni_dict_get(wrapped, key));
    uni_value_free(wrapped);
    return *out ? 0 : uni_error_set(err, UNI_EFORMAT, "a value of a step function is not whole");
}
