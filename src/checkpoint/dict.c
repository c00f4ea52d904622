/*
 * dict.c - a dictionary with arrays to bytes and back (dict.h describes the format).
 *
 * Encoding walks the tree twice with the same code: once with a packer that has no room and only
 * counts, once into the caller's buffer. The arrays are copied after it, each byte once. Decoding
 * reads tokens from a cursor and trusts nothing: depth, offsets, shapes and sizes are checked
 * before an array is made. The three readers differ only in where an array's memory comes from: a
 * copy, a borrowed buffer, or a shared mapping. Any thread.
 */
#include "checkpoint/dict.h"

#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "base/msgpack.h"
#include "checkpoint/dict_internal.h"

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "the array files are little-endian");

#define MAGIC "UNIDICT1"
#define ALIGNMENT 64
/* Large arrays begin on a page boundary. A copy whose destination is a little further into its page
 * than its source runs at a quarter of the speed: loads wait for stores of the same low address
 * bits (56 ms instead of 15 for 200 MB). malloc's large blocks begin a little into a page, so the
 * destination must not. */
#define PAGE 4096
#define LARGE (1u << 20)
#define ARRAY_KEY "__array__"

static uint64_t align_to(uint64_t size, uint64_t alignment)
{
    return (size + (alignment - 1)) & ~(alignment - 1);
}

static int too_deep(uni_error *err)
{
    return uni_error_set(err, UNI_ELIMIT,
                         "the dictionary is nested deeper than %d levels; flatten it",
                         UNI_VALUE_MAX_DEPTH);
}

/* ---- encoding ---- */

typedef struct encoder {
    uni__packer packer;
    uint64_t arrays_size; /* of those seen so far, each padded */
    /* Where to copy them; NULL while counting. */
    uint8_t *arrays;
} encoder;

static void encode_array(encoder *sink, const uni_array *array)
{
    uni__packer *packer = &sink->packer;
    size_t bytes = uni_array_bytes(array);
    uint64_t begin = bytes >= LARGE ? align_to(sink->arrays_size, PAGE) : sink->arrays_size;
    uni__pack_map(packer, 5);
    uni__pack_string(packer, ARRAY_KEY, sizeof ARRAY_KEY - 1);
    uni__pack_int(packer, 1);
    uni__pack_string(packer, "dtype", 5);
    uni__pack_int(packer, uni_array_dtype(array));
    uni__pack_string(packer, "shape", 5);
    uni__pack_list(packer, (size_t)uni_array_ndim(array));
    for (int i = 0; i < uni_array_ndim(array); i++)
        uni__pack_int(packer, uni_array_shape(array)[i]);
    uni__pack_string(packer, "offset", 6);
    uni__pack_int(packer, (int64_t)begin);
    uni__pack_string(packer, "bytes", 5);
    uni__pack_int(packer, (int64_t)bytes);
    uint64_t end = align_to(begin + bytes, ALIGNMENT);
    if (sink->arrays && bytes > 0) {
        memset(sink->arrays + sink->arrays_size, 0, begin - sink->arrays_size);
        memcpy(sink->arrays + begin, uni_array_data(array), bytes);
        memset(sink->arrays + begin + bytes, 0, end - begin - bytes);
    }
    sink->arrays_size = end;
}

static int encode_value(encoder *sink, const uni_value *value, int depth, uni_error *err);

static int encode_dict(encoder *sink, const uni_value *dict, int depth, uni_error *err)
{
    /* The user's own "__array__" must not be read back as an array. */
    if (uni_dict_get(dict, ARRAY_KEY)) {
        uni__pack_map(&sink->packer, 2);
        uni__pack_string(&sink->packer, ARRAY_KEY, sizeof ARRAY_KEY - 1);
        uni__pack_int(&sink->packer, 0);
        uni__pack_string(&sink->packer, "value", 5);
    }
    size_t count = uni_dict_size(dict);
    uni__pack_map(&sink->packer, count);
    for (size_t i = 0; i < count; i++) {
        const char *key = uni_dict_key_at(dict, i);
        uni__pack_string(&sink->packer, key, strlen(key));
        UNI_TRY(encode_value(sink, uni_dict_value_at(dict, i), depth + 1, err));
    }
    return 0;
}

static int encode_value(encoder *sink, const uni_value *value, int depth, uni_error *err)
{
    uni_value_type type = uni_value_type_of(value);
    if (depth >= UNI_VALUE_MAX_DEPTH && (type == UNI_TYPE_DICT || type == UNI_TYPE_LIST))
        return too_deep(err);
    switch (type) {
    case UNI_TYPE_DICT:
        return encode_dict(sink, value, depth, err);
    case UNI_TYPE_LIST:
        uni__pack_list(&sink->packer, uni_list_size(value));
        for (size_t i = 0; i < uni_list_size(value); i++)
            UNI_TRY(encode_value(sink, uni_list_get(value, i), depth + 1, err));
        return 0;
    case UNI_TYPE_ARRAY:
        encode_array(sink, uni_value_as_array(value));
        return 0;
    default:
        return uni__pack_value(&sink->packer, value, err);
    }
}

/* Counts (out NULL) or writes the tree; copies arrays if `arrays` is given. */
static int encode_tree(encoder *sink, const uni_value *dict, uni_error *err)
{
    if (uni_value_type_of(dict) != UNI_TYPE_DICT)
        return uni_error_set(err, UNI_EINVAL, "a checkpoint must be a dictionary, not a %s",
                             uni__value_type_name(uni_value_type_of(dict)));
    return encode_value(sink, dict, 0, err);
}

/* Sizes of the parts by a dry run: a fixed packer without room still counts. */
static int measure(const uni_value *dict, uni__dict_header *header, uni_error *err)
{
    encoder counter = { .packer = { .fixed = true } };
    UNI_TRY(encode_tree(&counter, dict, err));
    memcpy(header->magic, MAGIC, sizeof header->magic);
    header->tree_size = counter.packer.size;
    header->arrays_offset = align_to(sizeof *header + header->tree_size, PAGE);
    header->arrays_size = counter.arrays_size;
    return 0;
}

int uni__dict_encoded_size(const uni_value *dict, size_t *size, uni_error *err)
{
    uni__dict_header header;
    UNI_TRY(measure(dict, &header, err));
    *size = header.arrays_offset + header.arrays_size;
    return 0;
}

int uni__dict_encode(const uni_value *dict, void *out, size_t size, uni_error *err)
{
    uni__dict_header header;
    UNI_TRY(measure(dict, &header, err));
    if (size < header.arrays_offset + header.arrays_size)
        return uni_error_set(err, UNI_ELIMIT, "the dictionary needs %zu bytes, the buffer has %zu",
                             (size_t)(header.arrays_offset + header.arrays_size), size);
    uint8_t *bytes = out;
    memcpy(bytes, &header, sizeof header);
    size_t tree_end = sizeof header + header.tree_size;
    memset(bytes + tree_end, 0, header.arrays_offset - tree_end);
    encoder writer = {
        .packer = { .data = bytes + sizeof header, .capacity = header.tree_size, .fixed = true },
        .arrays = bytes + header.arrays_offset,
    };
    return encode_tree(&writer, dict, err);
}

/* ---- decoding ---- */

static int bad(uni_error *err, const char *what)
{
    return uni_error_set(err, UNI_EFORMAT, "the bytes are not an encoded dictionary: %s", what);
}

int uni__dict_header_check(const uni__dict_header *header, size_t head_size, uni_error *err)
{
    if (head_size < sizeof *header || memcmp(header->magic, "UNIDICT", 7) != 0)
        return bad(err, "it does not start with UNIDICT1");
    if (header->magic[7] != MAGIC[7])
        return uni_error_set(
            err, UNI_EVERSION,
            "the dictionary has format version '%c', this program knows '%c'; "
            "read it with a newer unisono",
            header->magic[7] > ' ' && header->magic[7] < 127 ? header->magic[7] : '?', MAGIC[7]);
    if (header->tree_size > head_size - sizeof *header)
        return bad(err, "the tree is cut off");
    if (header->arrays_offset != align_to(sizeof *header + header->tree_size, PAGE))
        return bad(err, "the arrays are not where they should be");
    return 0;
}

int uni__dict_split(uni__dict_parts *parts, const void *encoded, size_t size, uni_error *err)
{
    uni__dict_header header;
    *parts = (uni__dict_parts){ 0 };
    if (size < sizeof header)
        return bad(err, "it is shorter than its header");
    memcpy(&header, encoded, sizeof header);
    UNI_TRY(uni__dict_header_check(&header, size, err));
    if (header.arrays_offset > size || header.arrays_size > size - header.arrays_offset)
        return bad(err, "the arrays are cut off");
    *parts = (uni__dict_parts){
        .head = encoded,
        .head_size = sizeof header + header.tree_size,
        .arrays = (const uint8_t *)encoded + header.arrays_offset,
        .arrays_size = header.arrays_size,
    };
    return 0;
}

/* The claims of an array's map, before they are checked. */
typedef struct array_entry {
    int64_t dtype, offset, bytes;
    int ndim;
    int64_t shape[UNI_MAX_DIMS];
} array_entry;

static int next_key(uni__cursor *cursor, const char *expected, uni_error *err)
{
    uni__token token;
    UNI_TRY(uni__cursor_next(cursor, &token, err));
    if (token.type != UNI_TYPE_STRING || token.size != strlen(expected) ||
        memcmp(token.data, expected, token.size) != 0)
        return bad(err, "an array's description has other keys than expected");
    return 0;
}

static int next_int(uni__cursor *cursor, int64_t *out, uni_error *err)
{
    uni__token token;
    UNI_TRY(uni__cursor_next(cursor, &token, err));
    if (token.type != UNI_TYPE_INT || token.integer < 0)
        return bad(err, "an array's description has something else where a number should be");
    *out = token.integer;
    return 0;
}

/* Follows {"__array__": 1. Only the writer's order of keys is accepted. */
static int read_array_entry(uni__cursor *cursor, array_entry *entry, uni_error *err)
{
    UNI_TRY(next_key(cursor, "dtype", err));
    UNI_TRY(next_int(cursor, &entry->dtype, err));
    UNI_TRY(next_key(cursor, "shape", err));
    uni__token shape;
    UNI_TRY(uni__cursor_next(cursor, &shape, err));
    if (shape.type != UNI_TYPE_LIST || shape.size > UNI_MAX_DIMS)
        return bad(err, "an array's shape is not a list of at most 8 numbers");
    entry->ndim = (int)shape.size;
    for (int i = 0; i < entry->ndim; i++)
        UNI_TRY(next_int(cursor, &entry->shape[i], err));
    UNI_TRY(next_key(cursor, "offset", err));
    UNI_TRY(next_int(cursor, &entry->offset, err));
    UNI_TRY(next_key(cursor, "bytes", err));
    return next_int(cursor, &entry->bytes, err);
}

static int check_array_entry(const array_entry *entry, uint64_t arrays_size, uni_error *err)
{
    size_t element =
        entry->dtype > 0 && entry->dtype < 256 ? uni_dtype_size((uni_dtype)entry->dtype) : 0;
    if (element == 0)
        return bad(err, "an array has an unknown element type");
    uint64_t bytes = element;
    for (int i = 0; i < entry->ndim; i++)
        if (entry->shape[i] == 0)
            bytes = 0; /* even if the other dimensions overflow */
    for (int i = 0; bytes > 0 && i < entry->ndim; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)entry->shape[i], &bytes))
            return bad(err, "an array's shape is larger than memory");
    if (bytes != (uint64_t)entry->bytes)
        return bad(err, "an array's size does not fit its shape");
    if (entry->offset % ALIGNMENT != 0 || (uint64_t)entry->offset > arrays_size ||
        bytes > arrays_size - (uint64_t)entry->offset)
        return bad(err, "an array lies outside of the file");
    return 0;
}

static int read_array(const uni__dict_source *source, uni__cursor *cursor, uni_value **out,
                      uni_error *err)
{
    array_entry entry = { 0 };
    UNI_TRY(read_array_entry(cursor, &entry, err));
    UNI_TRY(check_array_entry(&entry, source->arrays_size, err));
    uni_array *array = NULL;
    uni_dtype dtype = (uni_dtype)entry.dtype;
    void *data = entry.bytes > 0 ? (uint8_t *)source->arrays + entry.offset : NULL;
    if (source->copy || !data) { /* an empty view would only hold the mapping */
        UNI_TRY(uni_array_new(&array, dtype, entry.ndim, entry.shape, err));
        if (data)
            memcpy(uni_array_data(array), data, (size_t)entry.bytes);
    } else {
        UNI_TRY(uni_array_view(&array, dtype, entry.ndim, entry.shape, data, source->release,
                               source->owner, err));
        if (source->retain)
            source->retain(source->owner);
    }
    *out = uni_value_array(array);
    uni_array_unref(array);
    return *out ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a dictionary");
}

static int read_value(const uni__dict_source *source, uni__cursor *cursor, int depth,
                      uni_value **out, uni_error *err);

static int read_list(const uni__dict_source *source, uni__cursor *cursor, size_t count, int depth,
                     uni_value **out, uni_error *err)
{
    int status = 0;
    uni_value *list = uni_value_list();
    if (!list)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dictionary");
    for (size_t i = 0; i < count; i++) {
        uni_value *item = NULL;
        UNI_TRY_GOTO(read_value(source, cursor, depth + 1, &item, err), fail);
        if (uni_list_take(list, item) < 0) {
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a dictionary");
            goto fail;
        }
    }
    *out = list;
    return 0;
fail:
    uni_value_free(list);
    return status;
}

static int read_pairs(const uni__dict_source *source, uni__cursor *cursor, size_t count, int depth,
                      uni_value **out, uni_error *err)
{
    if (depth >= UNI_VALUE_MAX_DEPTH)
        return too_deep(err);
    int status = 0;
    char *key = NULL;
    uni_value *dict = uni_value_dict();
    if (!dict)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dictionary");
    for (size_t i = 0; i < count; i++) {
        uni__token token;
        uni_value *value = NULL;
        UNI_TRY_GOTO(uni__cursor_next(cursor, &token, err), fail);
        if (token.type != UNI_TYPE_STRING || memchr(token.data, '\0', token.size)) {
            status = bad(err, "a key is not text");
            goto fail;
        }
        key = strndup(token.data, token.size);
        if (!key) {
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a dictionary");
            goto fail;
        }
        UNI_TRY_GOTO(read_value(source, cursor, depth + 1, &value, err), fail);
        if (uni_dict_take(dict, key, value) < 0) {
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a dictionary");
            goto fail;
        }
        free(key);
        key = NULL;
    }
    *out = dict;
    return 0;
fail:
    free(key);
    uni_value_free(dict);
    return status;
}

/* A map is an array, an escaped dictionary or a plain one. The first key tells, so read it, and go
 * back for a plain one. */
static int read_map(const uni__dict_source *source, uni__cursor *cursor, size_t count, int depth,
                    uni_value **out, uni_error *err)
{
    uni__cursor ahead = *cursor;
    uni__token key, marker, inner;
    if (count == 0)
        return read_pairs(source, cursor, count, depth, out, err);
    UNI_TRY(uni__cursor_next(&ahead, &key, err));
    if (key.type != UNI_TYPE_STRING || key.size != sizeof ARRAY_KEY - 1 ||
        memcmp(key.data, ARRAY_KEY, key.size) != 0)
        return read_pairs(source, cursor, count, depth, out, err);
    UNI_TRY(uni__cursor_next(&ahead, &marker, err));
    *cursor = ahead;
    if (marker.type == UNI_TYPE_INT && marker.integer == 1 && count == 5)
        return read_array(source, cursor, out, err);
    if (marker.type != UNI_TYPE_INT || marker.integer != 0 || count != 2)
        return bad(err, "\"" ARRAY_KEY "\" is used in a way that no writer does");
    UNI_TRY(next_key(cursor, "value", err));
    UNI_TRY(uni__cursor_next(cursor, &inner, err));
    if (inner.type != UNI_TYPE_DICT)
        return bad(err, "an escaped dictionary holds something else");
    return read_pairs(source, cursor, inner.size, depth, out, err);
}

static int read_value(const uni__dict_source *source, uni__cursor *cursor, int depth,
                      uni_value **out, uni_error *err)
{
    uni__cursor start = *cursor;
    uni__token token;
    UNI_TRY(uni__cursor_next(cursor, &token, err));
    /* An array's description is also a map, but not a level of the tree; read_map tells them
     * apart. */
    if (depth >= UNI_VALUE_MAX_DEPTH && token.type == UNI_TYPE_LIST)
        return too_deep(err);
    if (token.type == UNI_TYPE_DICT)
        return read_map(source, cursor, token.size, depth, out, err);
    if (token.type == UNI_TYPE_LIST)
        return read_list(source, cursor, token.size, depth, out, err);
    *cursor = start;
    return uni__cursor_read_value(cursor, out, err);
}

int uni__dict_decode_tree(uni_value **out, const void *tree, size_t tree_size,
                          const uni__dict_source *source, uni_error *err)
{
    uni__cursor cursor = { tree, (const uint8_t *)tree + tree_size };
    uni_value *value = NULL;
    *out = NULL;
    UNI_TRY(read_value(source, &cursor, 0, &value, err));
    if (uni_value_type_of(value) != UNI_TYPE_DICT || cursor.at != cursor.end) {
        uni_value_free(value);
        return bad(err, "the tree is not exactly one dictionary");
    }
    *out = value;
    return 0;
}

static int decode(uni_value **out, const void *encoded, size_t size, bool copy, uni_error *err)
{
    uni__dict_parts parts;
    *out = NULL;
    UNI_TRY(uni__dict_split(&parts, encoded, size, err));
    uni__dict_source source = { .arrays = parts.arrays,
                                .arrays_size = parts.arrays_size,
                                .copy = copy };
    return uni__dict_decode_tree(out, (const uint8_t *)parts.head + sizeof(uni__dict_header),
                                 parts.head_size - sizeof(uni__dict_header), &source, err);
}

int uni__dict_decode(uni_value **out, const void *encoded, size_t size, uni_error *err)
{
    return decode(out, encoded, size, true, err);
}

int uni__dict_view(uni_value **out, const void *encoded, size_t size, uni_error *err)
{
    return decode(out, encoded, size, false, err);
}
