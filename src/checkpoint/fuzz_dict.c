/* fuzz_dict.c - any bytes are an encoded dictionary or rejected; what was decoded is encoded and
 * decoded again as the same. See base/fuzz.h. */
#include <stdlib.h>
#include <string.h>
#include "base/fuzz.h"
#include "checkpoint/dict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uni_value *copy = NULL, *view = NULL, *again = NULL;
    uni_error err = { 0 };
    int status = uni__dict_decode(&copy, data, size, &err);
    if (status < 0) {
        FUZZ_PROMISE(err.code == status && err.message[0] && !copy);
        return 0;
    }
    FUZZ_PROMISE(uni__dict_view(&view, data, size, &err) == 0);
    FUZZ_PROMISE(uni_value_equal(copy, view));
    uni_value_free(view);
    size_t length = 0;
    FUZZ_PROMISE(uni__dict_encoded_size(copy, &length, &err) == 0);
    void *bytes = malloc(length);
    if (bytes) {
        FUZZ_PROMISE(uni__dict_encode(copy, bytes, length, &err) == 0);
        FUZZ_PROMISE(uni__dict_decode(&again, bytes, length, &err) == 0);
        FUZZ_PROMISE(uni_value_equal(copy, again));
    }
    free(bytes);
    uni_value_free(again);
    uni_value_free(copy);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    uni_error err = { 0 };
    uni_array *weights = NULL;
    uni_value *dict = uni_value_dict(), *own = uni_value_dict(), *list = uni_value_list();
    if (uni_array_new(&weights, UNI_F32, 2, (const int64_t[]){ 2, 3 }, &err) < 0 ||
        uni_dict_take(own, "__array__", uni_value_float(0.5)) < 0 || uni_list_take(list, own) < 0 ||
        uni_list_take(list, uni_value_string("text")) < 0 ||
        uni_dict_take(dict, "list", list) < 0 ||
        uni_dict_take(dict, "w", uni_value_array(weights)) < 0 ||
        uni_dict_take(dict, "n", uni_value_int(-7)) < 0)
        return 0;
    size_t size = 0;
    if (uni__dict_encoded_size(dict, &size, &err) < 0 || size > room ||
        uni__dict_encode(dict, out, size, &err) < 0)
        size = 0;
    uni_array_unref(weights);
    uni_value_free(dict);
    return size;
}
