/*
 * msgpack_tree.c - whole trees to msgpack and back.
 *
 * Recursive with UNI_VALUE_MAX_DEPTH levels both ways. Reading copies everything. Keys are unique
 * UTF-8 strings without a zero byte. Arrays are rejected because checkpoints keep them beside the
 * tree. Any thread.
 */
#include <stdlib.h>
#include <string.h>
#include "base/shared.h"
#include "base/msgpack.h"

static int too_deep(uni_error *err)
{
    return uni_error_set(err, UNI_ELIMIT, "msgpack: nested deeper than %d levels",
                         UNI_VALUE_MAX_DEPTH);
}

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "msgpack: out of memory");
}

static int pack(uni__packer *packer, const uni_value *value, int depth, uni_error *err)
{
    uni_value_type type = uni_value_type_of(value);
    size_t size;
    const void *data = uni_value_as_bytes(value, &size);
    if ((type == UNI_TYPE_LIST || type == UNI_TYPE_DICT) && depth >= UNI_VALUE_MAX_DEPTH)
        return too_deep(err);
    switch (type) {
    case UNI_TYPE_NULL:
        uni__pack_null(packer);
        break;
    case UNI_TYPE_BOOL:
        uni__pack_bool(packer, uni_value_as_bool(value, false));
        break;
    case UNI_TYPE_INT:
        uni__pack_int(packer, uni_value_as_int(value, 0));
        break;
    case UNI_TYPE_FLOAT:
        uni__pack_double(packer, uni_value_as_float(value, 0));
        break;
    case UNI_TYPE_STRING:
    case UNI_TYPE_BYTES:
        if (size > UINT32_MAX)
            return uni_error_set(err, UNI_ELIMIT, "msgpack: %zu bytes in one string", size);
        if (type == UNI_TYPE_STRING)
            uni__pack_string(packer, data, size);
        else
            uni__pack_bytes(packer, data, size);
        break;
    case UNI_TYPE_LIST:
        if (uni_list_size(value) > UINT32_MAX)
            return uni_error_set(err, UNI_ELIMIT, "msgpack: too many items in one list");
        uni__pack_list(packer, uni_list_size(value));
        for (size_t i = 0; i < uni_list_size(value); i++)
            UNI_TRY(pack(packer, uni_list_get(value, i), depth + 1, err));
        break;
    case UNI_TYPE_DICT:
        uni__pack_map(packer, uni_dict_size(value));
        for (size_t i = 0; i < uni_dict_size(value); i++) {
            const char *key = uni_dict_key_at(value, i);
            uni__pack_string(packer, key, strlen(key));
            UNI_TRY(pack(packer, uni_dict_value_at(value, i), depth + 1, err));
        }
        break;
    case UNI_TYPE_ARRAY:
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "msgpack: an array cannot be part of a report or message; convert it "
                             "to a list, or put it into a checkpoint");
    }
    return 0;
}

int uni__pack_value(uni__packer *packer, const uni_value *value, uni_error *err)
{
    UNI_TRY(pack(packer, value, 0, err));
    return packer->overflow && !packer->fixed ? no_memory(err) : 0;
}

static int read_value(uni__cursor *cursor, uni_value **out, int depth, uni_error *err);

static int read_list(uni__cursor *cursor, uni_value **out, size_t count, int depth, uni_error *err)
{
    uni_value *list = uni_value_list(), *item = NULL;
    int status = list ? 0 : no_memory(err);
    for (size_t i = 0; i < count && status == 0; i++) {
        status = read_value(cursor, &item, depth + 1, err);
        if (status == 0 && (status = uni_list_take(list, item)) < 0)
            no_memory(err);
    }
    if (status < 0) {
        uni_value_free(list);
        return status;
    }
    *out = list;
    return 0;
}

/* Copies the key as a C string into `key`. */
static int read_key(uni__cursor *cursor, uni__text *key, uni_error *err)
{
    uni__token token;
    UNI_TRY(uni__cursor_next(cursor, &token, err));
    if (token.type != UNI_TYPE_STRING)
        return uni_error_set(err, UNI_EFORMAT, "msgpack: a key is a %s, but must be a string",
                             uni__value_type_name(token.type));
    if (memchr(token.data, 0, token.size) || !uni__utf8_valid(token.data, token.size))
        return uni_error_set(err, UNI_EFORMAT, "msgpack: a key is not UTF-8 text");
    uni__text_clear(key);
    uni__text_add(key, token.data, token.size);
    return key->failed ? no_memory(err) : 0;
}

static int read_dict(uni__cursor *cursor, uni_value **out, size_t count, int depth, uni_error *err)
{
    uni_value *dict = uni_value_dict(), *item = NULL;
    uni__text key = { 0 };
    int status = dict ? 0 : no_memory(err);
    for (size_t i = 0; i < count && status == 0; i++) {
        UNI_TRY_GOTO(read_key(cursor, &key, err), done);
        if (uni_dict_get(dict, key.data)) {
            status =
                uni_error_set(err, UNI_EFORMAT, "msgpack: the key \"%s\" is there twice", key.data);
            goto done;
        }
        UNI_TRY_GOTO(read_value(cursor, &item, depth + 1, err), done);
        if ((status = uni_dict_take(dict, key.data, item)) < 0)
            no_memory(err);
    }
done:
    uni__text_free(&key);
    if (status < 0) {
        uni_value_free(dict);
        return status;
    }
    *out = dict;
    return 0;
}

static int read_value(uni__cursor *cursor, uni_value **out, int depth, uni_error *err)
{
    uni__token token;
    *out = NULL;
    UNI_TRY(uni__cursor_next(cursor, &token, err));
    if ((token.type == UNI_TYPE_LIST || token.type == UNI_TYPE_DICT) &&
        depth >= UNI_VALUE_MAX_DEPTH)
        return too_deep(err);
    switch (token.type) {
    case UNI_TYPE_LIST:
        return read_list(cursor, out, token.size, depth, err);
    case UNI_TYPE_DICT:
        return read_dict(cursor, out, token.size, depth, err);
    case UNI_TYPE_BOOL:
        *out = uni_value_bool(token.integer != 0);
        break;
    case UNI_TYPE_INT:
        *out = uni_value_int(token.integer);
        break;
    case UNI_TYPE_FLOAT:
        *out = uni_value_float(token.real);
        break;
    case UNI_TYPE_STRING:
        *out = uni_value_string_n(token.data, token.size);
        break;
    case UNI_TYPE_BYTES:
        *out = uni_value_bytes(token.data, token.size);
        break;
    default:
        *out = uni_value_null();
        break;
    }
    return *out ? 0 : no_memory(err);
}

int uni__cursor_read_value(uni__cursor *cursor, uni_value **out, uni_error *err)
{
    return read_value(cursor, out, 0, err);
}

int uni__msgpack_read(uni_value **out, const void *data, size_t size, uni_error *err)
{
    *out = NULL;
    if (!data)
        return uni_error_set(err, UNI_EINVAL, "msgpack: the data is NULL");
    uni__cursor cursor = { data, (const uint8_t *)data + size };
    UNI_TRY(read_value(&cursor, out, 0, err));
    if (cursor.at == cursor.end)
        return 0;
    uni_value_free(*out);
    *out = NULL;
    return uni_error_set(err, UNI_EFORMAT, "msgpack: %zu bytes are left after the value",
                         (size_t)(cursor.end - cursor.at));
}

int uni__msgpack_write(void **out, size_t *size, const uni_value *value, uni_error *err)
{
    uni__packer packer = { 0 };
    *out = NULL;
    *size = 0;
    int status = uni__pack_value(&packer, value, err);
    if (status < 0) {
        uni__packer_free(&packer);
        return status;
    }
    *out = packer.data;
    *size = packer.size;
    return 0;
}
