/*
 * msgpack.c - the writer and the cursor; trees build on both.
 *
 * Written by hand rather than with msgpack-c because the report path writes straight into a ring of
 * shared memory and must neither allocate nor trust what it reads (a count in a 6-byte message made
 * msgpack-c reserve 8 GB). The writer always uses the smallest form, and 64 bits for doubles. The
 * cursor rejects what our values cannot hold: ext types, and integers above INT64_MAX. Any thread.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include "base/msgpack.h"

/* Where to write `size` bytes, or NULL when they do not fit; counts them in any case. */
static uint8_t *room(uni__packer *packer, size_t size)
{
    size_t at = packer->size;
    if (__builtin_add_overflow(at, size, &packer->size)) {
        packer->size = SIZE_MAX;
        packer->overflow = true;
    }
    if (__builtin_expect(!packer->overflow && packer->size <= packer->capacity, 1))
        return packer->data + at;
    if (packer->overflow || packer->fixed || packer->size > SIZE_MAX / 4) {
        packer->overflow = true;
        return NULL;
    }
    size_t capacity = packer->capacity ? packer->capacity : 64;
    while (capacity < packer->size)
        capacity *= 2;
    uint8_t *data = realloc(packer->data, capacity);
    if (!data) {
        packer->overflow = true;
        return NULL;
    }
    packer->data = data;
    packer->capacity = capacity;
    return data + at;
}

void uni__packer_free(uni__packer *packer)
{
    if (!packer->fixed)
        free(packer->data);
    *packer = (uni__packer){ 0 };
}

static void put_tag(uni__packer *packer, uint8_t tag)
{
    uint8_t *at = room(packer, 1);
    if (at)
        *at = tag;
}

/* A tag and the lowest `width` bytes of a number, the highest first. */
static inline void put(uni__packer *packer, uint8_t tag, uint64_t value, size_t width)
{
    uint8_t *at = room(packer, 1 + width);
    if (!at)
        return;
    at[0] = tag;
    value = htobe64(value << (64 - 8 * width));
    memcpy(at + 1, &value, width);
}

void uni__pack_null(uni__packer *packer)
{
    put_tag(packer, 0xC0);
}

void uni__pack_bool(uni__packer *packer, bool value)
{
    put_tag(packer, value ? 0xC3 : 0xC2);
}

void uni__pack_int(uni__packer *packer, int64_t value)
{
    if (value >= -32 && value <= 127)
        put_tag(packer, (uint8_t)value);
    else if (value >= 0) {
        if (value <= UINT8_MAX)
            put(packer, 0xCC, (uint64_t)value, 1);
        else if (value <= UINT16_MAX)
            put(packer, 0xCD, (uint64_t)value, 2);
        else if (value <= UINT32_MAX)
            put(packer, 0xCE, (uint64_t)value, 4);
        else
            put(packer, 0xCF, (uint64_t)value, 8);
    } else if (value >= INT8_MIN)
        put(packer, 0xD0, (uint64_t)value, 1);
    else if (value >= INT16_MIN)
        put(packer, 0xD1, (uint64_t)value, 2);
    else if (value >= INT32_MIN)
        put(packer, 0xD2, (uint64_t)value, 4);
    else
        put(packer, 0xD3, (uint64_t)value, 8);
}

void uni__pack_double(uni__packer *packer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(packer, 0xCB, bits, 8);
}

/* The format limits lengths and counts to 32 bits. */
static void put_length(uni__packer *packer, uint8_t tag16, size_t length)
{
    if (length <= UINT16_MAX)
        put(packer, tag16, length, 2);
    else if (length <= UINT32_MAX)
        put(packer, tag16 + 1, length, 4);
    else
        packer->overflow = true;
}

static void put_bytes(uni__packer *packer, const void *data, size_t size)
{
    uint8_t *at = room(packer, size);
    if (at && size > 0)
        memcpy(at, data, size);
}

void uni__pack_raw(uni__packer *packer, const void *data, size_t size)
{
    put_bytes(packer, data, size);
}

void uni__pack_string(uni__packer *packer, const char *text, size_t length)
{
    if (length < 32)
        put_tag(packer, (uint8_t)(0xA0 | length));
    else if (length <= UINT8_MAX)
        put(packer, 0xD9, length, 1);
    else
        put_length(packer, 0xDA, length);
    put_bytes(packer, text, length);
}

void uni__pack_bytes(uni__packer *packer, const void *data, size_t size)
{
    if (size <= UINT8_MAX)
        put(packer, 0xC4, size, 1);
    else
        put_length(packer, 0xC5, size);
    put_bytes(packer, data, size);
}

void uni__pack_list(uni__packer *packer, size_t count)
{
    if (count < 16)
        put_tag(packer, (uint8_t)(0x90 | count));
    else
        put_length(packer, 0xDC, count);
}

void uni__pack_map(uni__packer *packer, size_t count)
{
    if (count < 16)
        put_tag(packer, (uint8_t)(0x80 | count));
    else
        put_length(packer, 0xDE, count);
}

static int malformed(const uni__cursor *cursor, const char *what, uni_error *err)
{
    return uni_error_set(err, UNI_EFORMAT, "msgpack: %s (%zu bytes before the end)", what,
                         (size_t)(cursor->end - cursor->at));
}

/* A big-endian number of 1, 2, 4 or 8 bytes; the caller has checked that they are there. */
static uint64_t number_at(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value = value << 8 | at[i];
    return value;
}

/* Takes contents of `length` bytes after a head of `head` bytes. */
static int take_bytes(uni__cursor *cursor, uni__token *token, uni_value_type type, size_t head,
                      uint64_t length, uni_error *err)
{
    if (length > (size_t)(cursor->end - cursor->at) - head)
        return malformed(cursor, "a string is longer than the message", err);
    token->type = type;
    token->data = (const char *)cursor->at + head;
    token->size = (size_t)length;
    cursor->at += head + length;
    return 0;
}

/* Check the count against the bytes left: an item has at least one, a pair two. */
static int take_container(uni__cursor *cursor, uni__token *token, uni_value_type type, size_t head,
                          uint64_t count, uni_error *err)
{
    size_t left = (size_t)(cursor->end - cursor->at) - head;
    if (count > (type == UNI_TYPE_DICT ? left / 2 : left))
        return malformed(cursor, "a container has more items than the message has bytes", err);
    token->type = type;
    token->size = (size_t)count;
    cursor->at += head;
    return 0;
}

static int take_int(uni__cursor *cursor, uni__token *token, size_t head, int64_t value)
{
    token->type = UNI_TYPE_INT;
    token->integer = value;
    cursor->at += head;
    return 0;
}

static int take_real(uni__cursor *cursor, uni__token *token, size_t head)
{
    uint64_t bits = number_at(cursor->at + 1, head - 1);
    if (head == 5) {
        uint32_t narrow_bits = (uint32_t)bits;
        float narrow;
        memcpy(&narrow, &narrow_bits, sizeof narrow);
        token->real = narrow;
    } else {
        memcpy(&token->real, &bits, sizeof bits);
    }
    token->type = UNI_TYPE_FLOAT;
    cursor->at += head;
    return 0;
}

/* Tags 0xC0 to 0xDF: the size of the fixed part (tag and number) of each; 0 for rejected ones. */
static const uint8_t head_sizes[32] = { 1, 0, 1, 1, 2, 3, 5, 0, 0, 0, 5, 9, 2, 3, 5, 9,
                                        2, 3, 5, 9, 0, 0, 0, 0, 0, 2, 3, 5, 3, 5, 3, 5 };

static int next_tagged(uni__cursor *cursor, uni__token *token, uint8_t tag, uni_error *err)
{
    size_t head = head_sizes[tag - 0xC0];
    if (head == 0)
        return malformed(cursor, "a tag that is not data (ext types are not read)", err);
    if ((size_t)(cursor->end - cursor->at) < head)
        return malformed(cursor, "a number is cut off", err);
    uint64_t number = number_at(cursor->at + 1, head - 1);
    switch (tag) {
    case 0xC0:
        token->type = UNI_TYPE_NULL;
        cursor->at++;
        return 0;
    case 0xC2:
    case 0xC3:
        token->type = UNI_TYPE_BOOL;
        token->integer = tag == 0xC3;
        cursor->at++;
        return 0;
    case 0xC4:
    case 0xC5:
    case 0xC6:
        return take_bytes(cursor, token, UNI_TYPE_BYTES, head, number, err);
    case 0xCA:
    case 0xCB:
        return take_real(cursor, token, head);
    case 0xCF:
        if (number > INT64_MAX)
            return malformed(cursor, "a whole number above 2^63-1", err);
        return take_int(cursor, token, head, (int64_t)number);
    case 0xD0:
        return take_int(cursor, token, head, (int8_t)number);
    case 0xD1:
        return take_int(cursor, token, head, (int16_t)number);
    case 0xD2:
        return take_int(cursor, token, head, (int32_t)number);
    case 0xD9:
    case 0xDA:
    case 0xDB:
        return take_bytes(cursor, token, UNI_TYPE_STRING, head, number, err);
    case 0xDC:
    case 0xDD:
        return take_container(cursor, token, UNI_TYPE_LIST, head, number, err);
    case 0xDE:
    case 0xDF:
        return take_container(cursor, token, UNI_TYPE_DICT, head, number, err);
    default: /* 0xCC, 0xCD, 0xCE and 0xD3 */
        return take_int(cursor, token, head, (int64_t)number);
    }
}

int uni__cursor_next(uni__cursor *cursor, uni__token *token, uni_error *err)
{
    *token = (uni__token){ 0 };
    if (cursor->at >= cursor->end)
        return malformed(cursor, "the message ends too early", err);
    uint8_t tag = *cursor->at;
    if (tag == 0xCB && cursor->end - cursor->at >= 9) /* most metrics */
        return take_real(cursor, token, 9);
    if (tag < 0x80 || tag >= 0xE0)
        return take_int(cursor, token, 1, (int8_t)tag);
    if (tag < 0x90)
        return take_container(cursor, token, UNI_TYPE_DICT, 1, tag & 15, err);
    if (tag < 0xA0)
        return take_container(cursor, token, UNI_TYPE_LIST, 1, tag & 15, err);
    if (tag < 0xC0)
        return take_bytes(cursor, token, UNI_TYPE_STRING, 1, tag & 31, err);
    return next_tagged(cursor, token, tag, err);
}
