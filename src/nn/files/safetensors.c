/*
 * safetensors.c - see safetensors.h. A file from elsewhere is not trusted: the header's length is
 * checked against the file's, every range against its shape, and together they must fill the rest
 * of the file exactly (which also excludes overlaps).
 */
#include "nn/files/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

#define MAX_HEADER ((uint64_t)64 << 20)

static const struct {
    const char *name;
    uni_dtype dtype;
} dtypes[] = { { "F32", UNI_F32 },  { "F64", UNI_F64 }, { "I8", UNI_I8 },   { "I16", UNI_I16 },
               { "I32", UNI_I32 },  { "I64", UNI_I64 }, { "U8", UNI_U8 },   { "U16", UNI_U16 },
               { "U32", UNI_U32 },  { "U64", UNI_U64 }, { "BOOL", UNI_B8 }, { "F16", UNI_F16 },
               { "BF16", UNI_BF16 } };
#define NUM_DTYPES (sizeof dtypes / sizeof dtypes[0])

struct uni__safetensors {
    int fd;
    char *path;
    uni_value *header; /* the names are its */
    size_t body, count;
    uni__safetensors_entry *entries;
};

/* ---- reading ---- */

static int read_at(const uni__safetensors *file, void *into, size_t size, size_t offset,
                   uni_error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(file->fd, (char *)into + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return uni_error_set_errno(err, errno, "cannot read \"%s\"", file->path);
        if (got == 0)
            return uni_error_set(err, UNI_EFORMAT,
                                 "\"%s\" is no whole safetensors file: it ends in the middle",
                                 file->path);
        done += (size_t)got;
    }
    return 0;
}

static int bad_entry(const uni__safetensors *file, const char *name, const char *what,
                     uni_error *err)
{
    return uni_error_set(
        err, UNI_EFORMAT,
        "\"%s\" is no good safetensors file: the entry \"%.80s\" of its header has %s", file->path,
        name, what);
}

static int read_shape(const uni__safetensors *file, uni__safetensors_entry *entry,
                      const uni_value *shape, size_t *bytes, uni_error *err)
{
    size_t rank = uni_list_size(shape), count = uni_dtype_size(entry->dtype);
    if (uni_value_type_of(shape) != UNI_TYPE_LIST || rank > UNI_MAX_DIMS)
        return bad_entry(file, entry->name, "no shape of at most 8 dimensions", err);
    entry->ndim = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const uni_value *item = uni_list_get(shape, i);
        entry->shape[i] = uni_value_as_int(item, -1);
        if (uni_value_type_of(item) != UNI_TYPE_INT || entry->shape[i] < 0 ||
            __builtin_mul_overflow(count, (size_t)entry->shape[i], &count))
            return bad_entry(file, entry->name, "a shape that is negative or too large", err);
    }
    *bytes = count;
    return 0;
}

static int read_entry(const uni__safetensors *file, uni__safetensors_entry *entry,
                      const uni_value *value, size_t room, uni_error *err)
{
    const char *dtype = uni_dict_get_string(value, "dtype", "");
    for (size_t i = 0; i < NUM_DTYPES; i++)
        if (strcmp(dtypes[i].name, dtype) == 0)
            entry->dtype = dtypes[i].dtype;
    if (entry->dtype == 0)
        return bad_entry(file, entry->name, "a dtype that is not known", err);
    size_t bytes = 0;
    UNI_TRY(read_shape(file, entry, uni_dict_get(value, "shape"), &bytes, err));
    const uni_value *offsets = uni_dict_get(value, "data_offsets");
    int64_t begin = uni_value_as_int(uni_list_get(offsets, 0), -1),
            end = uni_value_as_int(uni_list_get(offsets, 1), -1);
    if (uni_list_size(offsets) != 2 || begin < 0 || end < begin || (uint64_t)end > room)
        return bad_entry(file, entry->name, "data_offsets outside of the file", err);
    if ((size_t)(end - begin) != bytes)
        return bad_entry(file, entry->name, "data_offsets that do not fit its shape and dtype",
                         err);
    entry->begin = (size_t)begin;
    entry->size = bytes;
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const uni__safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

static int read_entries(uni__safetensors *file, size_t room, uni_error *err)
{
    size_t size = uni_dict_size(file->header);
    file->entries = calloc(size + 1, sizeof *file->entries);
    if (file->entries == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to open \"%s\"", file->path);
    for (size_t i = 0; i < size; i++) {
        const char *name = uni_dict_key_at(file->header, i);
        if (strcmp(name, "__metadata__") == 0)
            continue;
        uni__safetensors_entry *entry = &file->entries[file->count++];
        entry->name = name;
        UNI_TRY(read_entry(file, entry, uni_dict_value_at(file->header, i), room, err));
    }
    qsort(file->entries, file->count, sizeof *file->entries, by_begin);
    size_t at = 0;
    for (size_t i = 0; i < file->count; at += file->entries[i++].size)
        if (file->entries[i].begin != at)
            return bad_entry(file, file->entries[i].name,
                             "data_offsets with a gap or an overlap before it", err);
    if (at != room)
        return uni_error_set(
            err, UNI_EFORMAT,
            "\"%s\" is no good safetensors file: the offsets of its header end at byte %zu of %zu",
            file->path, at, room);
    return 0;
}

static int read_header(uni__safetensors *file, uni_error *err)
{
    struct stat info;
    uint64_t length = 0;
    if (fstat(file->fd, &info) < 0)
        return uni_error_set_errno(err, errno, "cannot read \"%s\"", file->path);
    if (!S_ISREG(info.st_mode))
        return uni_error_set(err, UNI_EINVAL, "\"%s\" is no regular file", file->path);
    uint64_t size = (uint64_t)info.st_size;
    if (size < 8)
        return uni_error_set(err, UNI_EFORMAT,
                             "\"%s\" is no safetensors file: it has only %llu bytes", file->path,
                             (unsigned long long)size);
    UNI_TRY(read_at(file, &length, 8, 0, err));
    length = le64toh(length);
    if (length > size - 8 || length > MAX_HEADER)
        return uni_error_set(err, UNI_EFORMAT,
                             "\"%s\" is no safetensors file: its header would have %llu bytes",
                             file->path, (unsigned long long)length);
    char *text = malloc((size_t)length + 1);
    if (text == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to open \"%s\"", file->path);
    int status = read_at(file, text, (size_t)length, 8, err);
    if (status == 0) {
        status = uni_json_read(&file->header, text, (size_t)length, err);
        if (status == 0 && uni_value_type_of(file->header) != UNI_TYPE_DICT)
            status = uni_error_set(err, UNI_EFORMAT, "it is a %s, not a dictionary",
                                   uni_value_type_name(uni_value_type_of(file->header)));
        if (status < 0)
            uni_error_prefix(err, "the header of the safetensors file \"%s\"", file->path);
    }
    free(text);
    file->body = 8 + (size_t)length;
    return status < 0 ? status : read_entries(file, (size_t)size - file->body, err);
}

int uni__safetensors_open(uni__safetensors **out, const char *path, uni_error *err)
{
    *out = NULL;
    uni__safetensors *file = calloc(1, sizeof *file);
    char *copy = file != NULL ? strdup(path) : NULL;
    if (copy == NULL) {
        free(file);
        return uni_error_set(err, UNI_ENOMEM, "no memory to open \"%s\"", path);
    }
    file->path = copy;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int status = file->fd < 0 ? uni_error_set_errno(err, errno, "cannot open \"%s\"", path)
                              : read_header(file, err);
    if (status < 0) {
        uni__safetensors_close(file);
        return status;
    }
    *out = file;
    return 0;
}

void uni__safetensors_close(uni__safetensors *file)
{
    if (file == NULL)
        return;
    if (file->fd >= 0)
        close(file->fd);
    uni_value_free(file->header);
    free(file->entries);
    free(file->path);
    free(file);
}

size_t uni__safetensors_count(const uni__safetensors *file)
{
    return file->count;
}

const uni__safetensors_entry *uni__safetensors_at(const uni__safetensors *file, size_t index)
{
    return index < file->count ? &file->entries[index] : NULL;
}

const uni__safetensors_entry *uni__safetensors_find(const uni__safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->entries[i].name, name) == 0)
            return &file->entries[i];
    return NULL;
}

int uni__safetensors_read(const uni__safetensors *file, const uni__safetensors_entry *entry,
                          void *into, uni_error *err)
{
    return read_at(file, into, entry->size, file->body + entry->begin, err);
}

/* ---- writing ---- */

static size_t entry_bytes(const uni__safetensors_entry *entry)
{
    size_t size = uni_dtype_size(entry->dtype);
    for (int i = 0; i < entry->ndim; i++)
        size *= (size_t)entry->shape[i];
    return size;
}

static void add_metadata(uni__text *text, const uni_value *metadata)
{
    if (uni_dict_size(metadata) == 0)
        return;
    uni__text_add_string(text, "\"__metadata__\":{");
    for (size_t i = 0; i < uni_dict_size(metadata); i++) {
        const char *key = uni_dict_key_at(metadata, i),
                   *value = uni_value_as_string(uni_dict_value_at(metadata, i), "");
        if (i > 0)
            uni__text_add_char(text, ',');
        uni__text_add_json_string(text, key, strlen(key));
        uni__text_add_char(text, ':');
        uni__text_add_json_string(text, value, strlen(value));
    }
    uni__text_add_char(text, '}');
}

static void add_entry(uni__text *text, const uni__safetensors_entry *entry, size_t begin)
{
    const char *dtype = "?";
    for (size_t i = 0; i < NUM_DTYPES; i++)
        if (dtypes[i].dtype == entry->dtype)
            dtype = dtypes[i].name;
    if (text->data[text->size - 1] != '{')
        uni__text_add_char(text, ',');
    uni__text_add_json_string(text, entry->name, strlen(entry->name));
    uni__text_add_format(text, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    for (int i = 0; i < entry->ndim; i++)
        uni__text_add_format(text, "%s%lld", i > 0 ? "," : "", (long long)entry->shape[i]);
    uni__text_add_format(text, "],\"data_offsets\":[%zu,%zu]}", begin, begin + entry_bytes(entry));
}

/* The whole file in memory, so that it can go to the disk as one and be renamed. */
int uni__safetensors_write(const char *path, size_t count, const uni__safetensors_entry *entries,
                           const void *const *data, const uni_value *metadata, uni_error *err)
{
    uni__text text = { 0 };
    size_t begin = 0;
    uni__text_add(&text, "\0\0\0\0\0\0\0\0{", 9);
    add_metadata(&text, metadata);
    for (size_t i = 0; !text.failed && i < count; begin += entry_bytes(&entries[i++]))
        add_entry(&text, &entries[i], begin);
    uni__text_add_char(&text, '}');
    while (!text.failed && text.size % 8 != 0)
        uni__text_add_char(&text, ' ');
    uint64_t length = text.failed ? 0 : htole64(text.size - 8);
    if (!text.failed)
        memcpy(text.data, &length, 8);
    for (size_t i = 0; i < count; i++)
        uni__text_add(&text, data[i], entry_bytes(&entries[i]));
    int status = text.failed ? uni_error_set(err, UNI_ENOMEM, "no memory to write \"%s\"", path)
                             : uni__write_file(path, text.data, text.size, true, err);
    uni__text_free(&text);
    return status;
}
