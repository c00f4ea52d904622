/*
 * fuzz_msgpack.c - the tree reader, the skipper and the conversion to JSON agree on whether a
 * message is valid. What was read is written and read back as the same value, and its JSON is
 * valid. See fuzz.h.
 */
#include <stdlib.h>
#include <string.h>
#include "base/shared.h"
#include "base/fuzz.h"
#include "base/msgpack.h"

static void check_json(const uint8_t *data, size_t size, bool readable)
{
    uni__text out = { 0 }, nonfinite = { 0 };
    uni__cursor cursor = { data, data + size };
    uni_error err = { 0 };
    int status = uni__cursor_to_json(&cursor, &out, &nonfinite, &err);
    FUZZ_PROMISE(cursor.at >= data && cursor.at <= cursor.end);
    /* bytes become a list there, which may be one level too deep */
    FUZZ_PROMISE(!readable || status == 0 || status == UNI_ELIMIT);
    if (status == 0 && readable) {
        uni_value *value = NULL;
        FUZZ_PROMISE(uni_json_read(&value, out.data, out.size, &err) == 0);
        uni_value_free(value);
    }
    uni__text_free(&out);
    uni__text_free(&nonfinite);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uni__cursor cursor = { data, data + size };
    uni_value *value = NULL, *back = NULL;
    uni_error err = { 0 };
    int status = uni__cursor_read_value(&cursor, &value, &err);
    FUZZ_PROMISE(cursor.at <= cursor.end);
    check_json(data, size, status == 0);
    if (status < 0) {
        FUZZ_PROMISE(!value && err.code == status && err.message[0]);
        return 0;
    }
    void *packed = NULL;
    size_t packed_size = 0;
    FUZZ_PROMISE(uni__msgpack_write(&packed, &packed_size, value, &err) == 0);
    FUZZ_PROMISE(uni__msgpack_read(&back, packed, packed_size, &err) == 0);
    FUZZ_PROMISE(uni_value_equal(value, back));
    uni_value_free(back);
    uni_value_free(value);
    free(packed);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    uni__packer packer = { .data = out, .capacity = room, .fixed = true };
    uni__pack_map(&packer, 4);
    uni__pack_string(&packer, "loss", 4);
    uni__pack_double(&packer, 0.25);
    uni__pack_string(&packer, "l", 1);
    uni__pack_list(&packer, 4);
    uni__pack_int(&packer, -70000);
    uni__pack_null(&packer);
    uni__pack_bool(&packer, true);
    uni__pack_bytes(&packer, "\0\1\2", 3);
    uni__pack_string(&packer, "m", 1);
    uni__pack_map(&packer, 1);
    uni__pack_string(&packer, "k", 1);
    uni__pack_double(&packer, 1e308 * 10);
    uni__pack_string(&packer, "a string of more than thirty-one bytes", 38);
    uni__pack_int(&packer, INT64_MAX);
    return packer.size;
}
