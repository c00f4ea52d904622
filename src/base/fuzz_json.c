/* fuzz_json.c - any text is read or rejected; what was read is written and read back as the same
 * value. See fuzz.h. */
#include <stdlib.h>
#include <string.h>
#include <unisono/value.h>
#include "base/fuzz.h"

static void check_round_trip(const uni_value *value, unsigned flags)
{
    char *text = NULL;
    size_t length = 0;
    uni_value *back = NULL;
    uni_error err = { 0 };
    FUZZ_PROMISE(uni_json_write(&text, &length, value, flags, &err) == 0);
    FUZZ_PROMISE(uni_json_read(&back, text, length, &err) == 0);
    FUZZ_PROMISE(uni_value_equal(value, back));
    uni_value_free(back);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uni_value *value = NULL;
    uni_error err = { 0 };
    int status = uni_json_read(&value, (const char *)data, size, &err);
    if (status < 0) {
        FUZZ_PROMISE(!value && err.code == status && err.message[0]);
        return 0;
    }
    check_round_trip(value, 0);
    check_round_trip(value, UNI_JSON_INDENT | UNI_JSON_SORT_KEYS);
    uni_value *copy = uni_value_copy(value);
    FUZZ_PROMISE(uni_value_equal(value, copy));
    uni_value_free(copy);
    uni_value_free(value);
    return 0;
}

FUZZ_SAMPLE_TEXT("{\"lr\": 1e-3, \"n\": [1, -2.5, true, null, \"\\u00e9\\n\xC3\xA9\"],"
                 " \"a\": {\"b\": {\"c\": []}}, \"big\": 9223372036854775807}")
