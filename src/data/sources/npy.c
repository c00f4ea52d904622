/* npy.c - see npy.h. Pure functions on untrusted bytes (fuzz_npy.c). */
#include <stdlib.h>
#include <string.h>
#include "data/sources/npy.h"

/* ---- .npy ---- */

static int damaged(uni_error *err, const char *name, const char *what)
{
    return uni_error_set(err, UNI_EFORMAT, "cannot read %s as a .npy file: %s", name, what);
}

/* Finds the value of 'key' in the header's dictionary literal, or NULL. */
static const char *value_of(const char *text, const char *end, const char *key)
{
    size_t length = strlen(key);
    for (const char *p = text; p + length + 3 < end; p++) {
        if ((*p == '\'' || *p == '"') && memcmp(p + 1, key, length) == 0 && p[length + 1] == *p) {
            p += length + 2;
            while (p < end && (*p == ' ' || *p == ':'))
                p++;
            return p < end ? p : NULL;
        }
    }
    return NULL;
}

static int parse_dtype(uni__npy *out, const char *p, const char *end, const char *name,
                       uni_error *err)
{
    static const struct {
        const char *text;
        uni_dtype dtype;
    } known[] = { { "f4", UNI_F32 }, { "f8", UNI_F64 }, { "i1", UNI_I8 }, { "i2", UNI_I16 },
                  { "i4", UNI_I32 }, { "i8", UNI_I64 }, { "u1", UNI_U8 }, { "u2", UNI_U16 },
                  { "u4", UNI_U32 }, { "u8", UNI_U64 }, { "b1", UNI_B8 }, { "f2", UNI_F16 } };
    if (p == NULL || end - p < 5 || (*p != '\'' && *p != '"'))
        return damaged(err, name, "it holds records, or its dtype is not given");
    char order = p[1];
    if (order != '<' && order != '|' && order != '=')
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "%s is big-endian; write it as array.astype(array.dtype.newbyteorder("
                             "'<'))",
                             name);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (memcmp(p + 2, known[i].text, 2) == 0 && p[4] == *p) {
            out->dtype = known[i].dtype;
            return 0;
        }
    }
    const char *quote = memchr(p + 1, *p, (size_t)(end - p - 1));
    int length = quote != NULL && quote - p < 20 ? (int)(quote - p - 1) : 4;
    return uni_error_set(err, UNI_EUNSUPPORTED,
                         "%s holds elements of type %.*s; only numbers of up to 64 bits are read "
                         "(strings, objects, dates and complex numbers are not): save the array as "
                         "such",
                         name, length, p + 1);
}

static int parse_shape(uni__npy *out, const char *p, const char *end, const char *name,
                       uni_error *err)
{
    if (p == NULL || *p != '(')
        return damaged(err, name, "its shape is not given");
    size_t elements = 1;
    for (p++; p < end && *p != ')';) {
        if (*p == ' ' || *p == ',') {
            p++;
            continue;
        }
        int64_t number = 0;
        const char *first = p;
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            if (__builtin_mul_overflow(number, 10, &number) ||
                __builtin_add_overflow(number, *p - '0', &number))
                return damaged(err, name, "its shape is too large");
        if (p == first)
            return damaged(err, name, "its shape is not one");
        if (out->ndim == UNI_MAX_DIMS)
            return uni_error_set(err, UNI_EUNSUPPORTED, "%s has more than %d dimensions", name,
                                 UNI_MAX_DIMS);
        out->shape[out->ndim++] = number;
        if (__builtin_mul_overflow(elements, (size_t)number, &elements))
            return damaged(err, name, "its shape is too large");
    }
    if (p >= end || __builtin_mul_overflow(elements, uni_dtype_size(out->dtype), &out->bytes) ||
        out->bytes > (size_t)INT64_MAX / 4)
        return damaged(err, name, "its shape is too large");
    return 0;
}

int uni__npy_parse(uni__npy *out, const uint8_t *head, size_t size, const char *name,
                   uni_error *err)
{
    *out = (uni__npy){ 0 };
    if (size < 12 || memcmp(head, "\x93NUMPY", 6) != 0)
        return damaged(err, name, "it does not begin with \\x93NUMPY");
    size_t length = (size_t)head[8] | (size_t)head[9] << 8, begin = 10;
    if (head[6] >= 2) {
        length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
        begin = 12;
    }
    if (head[6] < 1 || head[6] > 3)
        return uni_error_set(err, UNI_EVERSION, "%s has version %d of the .npy format", name,
                             head[6]);
    if (length > UNI__NPY_MAX_HEADER - begin || begin + length > size)
        return damaged(err, name, "its header is cut off");
    const char *text = (const char *)head + begin, *end = text + length;
    const char *fortran = value_of(text, end, "fortran_order");
    UNI_TRY(parse_dtype(out, value_of(text, end, "descr"), end, name, err));
    UNI_TRY(parse_shape(out, value_of(text, end, "shape"), end, name, err));
    if (fortran != NULL && *fortran == 'T' && out->ndim > 1)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "%s is in Fortran order; write it as np.ascontiguousarray(array)",
                             name);
    out->data = (int64_t)(begin + length);
    return 0;
}

/* ---- .npz ---- */

static uint64_t number(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << 8 * i;
    return value;
}

static int no_archive(uni_error *err, const char *name)
{
    return uni_error_set(err, UNI_EFORMAT, "cannot read %s as a .npz archive", name);
}

/* ZIP64: values that do not fit their field (all ones there) are in extra field 1, in this order:
 * size, stored size, header offset. Returns false if it is missing. */
static bool large_numbers(const uint8_t *p, size_t name_length, uint64_t *size, uint64_t *stored,
                          uint64_t *header)
{
    const uint8_t *extra = p + 46 + name_length, *end = extra + number(p + 30, 2);
    uint64_t *const fields[] = { size, stored, header };
    while (end - extra >= 4 && number(extra, 2) != 1) {
        size_t length = 4 + number(extra + 2, 2);
        if ((size_t)(end - extra) < length)
            return false;
        extra += length;
    }
    const uint8_t *last = end - extra >= 4 ? extra + 4 + number(extra + 2, 2) : extra;
    last = last > end ? end : last;
    extra += end - extra >= 4 ? 4 : 0;
    for (int i = 0; i < 3; i++) {
        if (*fields[i] != UINT32_MAX)
            continue;
        if (last - extra < 8)
            return false;
        *fields[i] = number(extra, 8);
        extra += 8;
    }
    return true;
}

static int parse_member(uni__npz_member *out, const uint8_t *p, const uint8_t *end,
                        int64_t file_size, size_t *length, const char *name, uni_error *err)
{
    if (end - p < 46 || memcmp(p, "PK\x01\x02", 4) != 0)
        return no_archive(err, name);
    size_t name_length = number(p + 28, 2);
    *length = 46 + name_length + number(p + 30, 2) + number(p + 32, 2);
    if ((size_t)(end - p) < *length || name_length < 5 || name_length >= sizeof out->name)
        return no_archive(err, name);
    if (number(p + 10, 2) != 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "%s is compressed; write it with np.savez instead of "
                             "np.savez_compressed, so that rows can be read on their own",
                             name);
    uint64_t size = number(p + 24, 4), stored = number(p + 20, 4), header = number(p + 42, 4);
    if (!large_numbers(p, name_length, &size, &stored, &header) || size > (uint64_t)file_size ||
        header > (uint64_t)file_size)
        return no_archive(err, name);
    memcpy(out->name, p + 46, name_length);
    out->name[name_length - 4] = 0; /* ".npy" */
    out->size = (int64_t)size;
    out->header = (int64_t)header;
    return 0;
}

/* Finds where the directory begins and how many members it has. ZIP64 keeps these in a separate
 * record; a locator before the end record points to it. */
static bool find_directory(const uint8_t *tail, size_t at, int64_t tail_offset, uint64_t *begin,
                           uint64_t *count)
{
    *count = number(tail + at + 10, 2);
    *begin = number(tail + at + 16, 4);
    if (*count != UINT16_MAX && *begin != UINT32_MAX)
        return true;
    if (at < 20 || memcmp(tail + at - 20, "PK\x06\x07", 4) != 0)
        return false;
    uint64_t record = number(tail + at - 20 + 8, 8) - (uint64_t)tail_offset;
    if (at < 76 || record > at - 76 || memcmp(tail + record, "PK\x06\x06", 4) != 0)
        return false;
    *count = number(tail + record + 32, 8);
    *begin = number(tail + record + 48, 8);
    return true;
}

int uni__npz_parse(uni__npz_member *out, int room, const uint8_t *tail, size_t size,
                   int64_t tail_offset, int64_t *need, const char *name, uni_error *err)
{
    *need = -1;
    size_t at = size >= 22 ? size - 22 : 0;
    uint64_t begin = 0, count = 0;
    while (size >= 22 && at > 0 && memcmp(tail + at, "PK\x05\x06", 4) != 0)
        at--;
    if (size < 22 || memcmp(tail + at, "PK\x05\x06", 4) != 0 ||
        !find_directory(tail, at, tail_offset, &begin, &count))
        return no_archive(err, name);
    if (begin > (uint64_t)tail_offset + at)
        return no_archive(err, name);
    if (begin < (uint64_t)tail_offset) {
        *need = (int64_t)begin;
        return 0;
    }
    if (count < 1 || count > (uint64_t)room)
        return uni_error_set(err, UNI_EUNSUPPORTED, "%s has %llu arrays, 1 to %d can be read", name,
                             (unsigned long long)count, room);
    const uint8_t *p = tail + (begin - (uint64_t)tail_offset), *end = tail + at;
    for (uint64_t i = 0; i < count; i++) {
        size_t length = 0;
        UNI_TRY(parse_member(&out[i], p, end, tail_offset + (int64_t)size, &length, name, err));
        p += length;
    }
    return (int)count;
}

int uni__npz_local(const uint8_t head[30], int64_t *skip, const char *name, uni_error *err)
{
    if (memcmp(head, "PK\x03\x04", 4) != 0)
        return no_archive(err, name);
    *skip = 30 + (int64_t)number(head + 26, 2) + (int64_t)number(head + 28, 2);
    return 0;
}
