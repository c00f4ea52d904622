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

#include "base/shared.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/text.h"
#include "data/sources/json_scan.h"

#define MAX_HEADER ((uint64_t)64 << 20)
#define MAX_TENSORS 200000

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
    char *header; /* the names are in it */
    size_t body, count;
    uni__safetensors_entry *entries; /* by their place in the file */
    uni__safetensors_entry **names; /* the same, by name */
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
                                 "\"%s\" is not a complete safetensors file: it is truncated",
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
        "\"%s\" is not a valid safetensors file: the entry \"%.80s\" of its header has %s",
        file->path, name, what);
}

/* The numbers of a list; how many, or -1 when it is anything but a list of at most `most` whole
 * numbers. */
static int read_numbers(uni__json_scan *scan, int64_t *out, int most)
{
    int count = 0, more;
    uni__json_token token;
    if (!uni__json_take(scan, '['))
        return -1;
    while ((more = uni__json_item(scan, count == 0)) > 0) {
        if (count == most || uni__json_next(scan, &token) != UNI__JSON_INT)
            return -1;
        out[count++] = token.integer;
    }
    return more < 0 ? -1 : count;
}

static bool is_word(const uni__json_token *token, const char *word)
{
    return token->size == strlen(word) && memcmp(token->text, word, token->size) == 0;
}

/* What an entry says, before anything is believed. Counts: -1 is another thing than a list, -2 is
 * missing. */
struct claim {
    uni_dtype dtype;
    bool has_dtype;
    int ndim, num_offsets;
    int64_t offsets[2];
};

static int read_member(uni__json_scan *scan, const uni__json_token *key,
                       uni__safetensors_entry *entry, struct claim *claim)
{
    uni__json_token token;
    if (is_word(key, "dtype") && !claim->has_dtype) {
        claim->has_dtype = true;
        if (uni__json_next(scan, &token) == UNI__JSON_STRING)
            for (size_t i = 0; i < NUM_DTYPES; i++)
                if (is_word(&token, dtypes[i].name))
                    claim->dtype = dtypes[i].dtype;
    } else if (is_word(key, "shape") && claim->ndim == -2) {
        claim->ndim = read_numbers(scan, entry->shape, UNI_MAX_DIMS);
    } else if (is_word(key, "data_offsets") && claim->num_offsets == -2) {
        claim->num_offsets = read_numbers(scan, claim->offsets, 2);
    } else if (is_word(key, "dtype") || is_word(key, "shape") || is_word(key, "data_offsets")) {
        uni__json_fail(scan, "a key that appears twice");
    } else {
        uni__json_next(scan, &token);
    }
    return scan->problem == NULL ? 0 : -1;
}

static int check_claim(const uni__safetensors *file, uni__safetensors_entry *entry,
                       const struct claim *claim, size_t room, uni_error *err)
{
    if (claim->dtype == 0)
        return bad_entry(file, entry->name, "a dtype that is not known", err);
    if (claim->ndim < 0)
        return bad_entry(file, entry->name, "no shape of at most 8 dimensions", err);
    entry->dtype = claim->dtype;
    entry->ndim = claim->ndim;
    size_t bytes = uni_dtype_size(entry->dtype);
    for (int i = 0; i < entry->ndim; i++)
        if (entry->shape[i] < 0 || __builtin_mul_overflow(bytes, (size_t)entry->shape[i], &bytes))
            return bad_entry(file, entry->name, "a shape that is negative or too large", err);
    int64_t begin = claim->offsets[0], end = claim->offsets[1];
    if (claim->num_offsets != 2 || begin < 0 || end < begin || (uint64_t)end > room)
        return bad_entry(file, entry->name, "data_offsets outside of the file", err);
    if ((size_t)(end - begin) != bytes)
        return bad_entry(file, entry->name, "data_offsets that do not fit its shape and dtype",
                         err);
    entry->begin = (size_t)begin;
    entry->size = bytes;
    return 0;
}

/* The scanner's words, or those of the entry, become the error. */
static int read_entry(const uni__safetensors *file, uni__json_scan *scan,
                      uni__safetensors_entry *entry, size_t room, uni_error *err)
{
    struct claim claim = { .ndim = -2, .num_offsets = -2 };
    uni__json_token key;
    if (!uni__json_take(scan, '{'))
        return bad_entry(file, entry->name, "something else than a dictionary", err);
    for (bool first = true; uni__json_member(scan, first, &key) > 0; first = false) {
        int status = read_member(scan, &key, entry, &claim);
        /* Another thing than a list leaves the scanner in the middle of it. */
        if (status < 0 || claim.ndim == -1 || claim.num_offsets == -1)
            break;
    }
    if (scan->problem != NULL)
        return 0; /* the caller says it, with its place */
    return check_claim(file, entry, &claim, room, err);
}

static uni__safetensors_entry *add_entry(uni__safetensors *file, size_t *capacity)
{
    uni__safetensors_entry *grown = uni__grown(file->entries, file->count, capacity, sizeof *grown);
    if (!grown)
        return NULL;
    file->entries = grown;
    uni__safetensors_entry *entry = &file->entries[file->count++];
    *entry = (uni__safetensors_entry){ 0 };
    return entry;
}

/* The key as a string of C, in its own place: what it means is never longer than what is written,
 * and its closing quote makes room for the zero. */
static char *name_in_place(const uni__json_token *key)
{
    char *text = (char *)key->text;
    text[key->escaped ? uni__json_unescape(text, text, key->size) : key->size] = '\0';
    return text;
}

static int bad_header(const uni__safetensors *file, const uni__json_scan *scan, uni_error *err)
{
    return uni_error_set(err, UNI_EFORMAT,
                         "the header of the safetensors file \"%s\": JSON: %s (at byte %zu)",
                         file->path, scan->problem, 8 + (size_t)(scan->at - file->header));
}

/* Straight into the entries: a tree of values takes thirty times the room of its text. */
static int read_entries(uni__safetensors *file, size_t length, size_t room, uni_error *err)
{
    uni__json_scan scan = { .at = file->header, .end = file->header + length };
    uni__json_token key, metadata;
    size_t capacity = 0;
    int more = 1;
    if (!uni__json_take(&scan, '{'))
        return uni_error_set(err, UNI_EFORMAT,
                             "the header of the safetensors file \"%s\": it is not a dictionary",
                             file->path);
    for (bool first = true; (more = uni__json_member(&scan, first, &key)) > 0; first = false) {
        if (is_word(&key, "__metadata__")) {
            if (uni__json_next(&scan, &metadata) == UNI__JSON_BAD)
                break;
            continue;
        }
        if (file->count == MAX_TENSORS)
            return uni_error_set(
                err, UNI_ELIMIT,
                "the header of the safetensors file \"%s\" has more than %d arrays", file->path,
                MAX_TENSORS);
        uni__safetensors_entry *entry = add_entry(file, &capacity);
        if (entry == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory to open \"%s\"", file->path);
        entry->name = name_in_place(&key);
        UNI_TRY(read_entry(file, &scan, entry, room, err));
        if (scan.problem != NULL)
            break;
    }
    uni__json_space(&scan);
    if (more == 0 && scan.at < scan.end)
        uni__json_fail(&scan, "something behind its end");
    return scan.problem != NULL ? bad_header(file, &scan, err) : 0;
}

static int by_begin(const void *a, const void *b)
{
    const uni__safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size;
}

static int by_name(const void *a, const void *b)
{
    const uni__safetensors_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The index by name, and no name twice. */
static int index_names(uni__safetensors *file, uni_error *err)
{
    file->names = calloc(file->count + 1, sizeof *file->names);
    if (file->names == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to open \"%s\"", file->path);
    for (size_t i = 0; i < file->count; i++)
        file->names[i] = &file->entries[i];
    qsort(file->names, file->count, sizeof *file->names, by_name);
    for (size_t i = 1; i < file->count; i++)
        if (strcmp(file->names[i - 1]->name, file->names[i]->name) == 0)
            return bad_entry(file, file->names[i]->name, "a name that appears twice", err);
    return 0;
}

/* Sorted by place, and together they are the rest of the file. */
static int check_places(uni__safetensors *file, size_t room, uni_error *err)
{
    size_t at = 0;
    if (file->count > 0)
        qsort(file->entries, file->count, sizeof *file->entries, by_begin);
    for (size_t i = 0; i < file->count; at += file->entries[i++].size)
        if (file->entries[i].begin != at)
            return bad_entry(file, file->entries[i].name,
                             "data_offsets with a gap or an overlap before it", err);
    if (at != room)
        return uni_error_set(err, UNI_EFORMAT,
                             "\"%s\" is not a valid safetensors file: the offsets of its header "
                             "end at byte %zu of %zu",
                             file->path, at, room);
    return index_names(file, err);
}

static int read_header(uni__safetensors *file, uni_error *err)
{
    struct stat info;
    uint64_t length = 0;
    if (fstat(file->fd, &info) < 0)
        return uni_error_set_errno(err, errno, "cannot read \"%s\"", file->path);
    if (!S_ISREG(info.st_mode))
        return uni_error_set(err, UNI_EINVAL, "\"%s\" is not a regular file", file->path);
    uint64_t size = (uint64_t)info.st_size;
    if (size < 8)
        return uni_error_set(err, UNI_EFORMAT,
                             "\"%s\" is not a safetensors file: it has only %llu bytes", file->path,
                             (unsigned long long)size);
    UNI_TRY(read_at(file, &length, 8, 0, err));
    length = le64toh(length);
    if (length > size - 8 || length > MAX_HEADER)
        return uni_error_set(err, UNI_EFORMAT,
                             "\"%s\" is not a safetensors file: its header would have %llu bytes",
                             file->path, (unsigned long long)length);
    file->header = malloc((size_t)length + 1);
    if (file->header == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to open \"%s\"", file->path);
    UNI_TRY(read_at(file, file->header, (size_t)length, 8, err));
    file->body = 8 + (size_t)length;
    size_t room = (size_t)size - file->body;
    UNI_TRY(read_entries(file, (size_t)length, room, err));
    return check_places(file, room, err);
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
    free(file->header);
    free(file->entries);
    free(file->names);
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
    const uni__safetensors_entry key = { .name = name }, *wanted = &key;
    uni__safetensors_entry **found =
        bsearch(&wanted, file->names, file->count, sizeof *file->names, by_name);
    return found != NULL ? *found : NULL;
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

static void write_entry(uni__text *text, const uni__safetensors_entry *entry, size_t begin)
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
        write_entry(&text, &entries[i], begin);
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
