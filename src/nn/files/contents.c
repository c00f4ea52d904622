/*
 * contents.c - a file's contents as the child process read them: a list of variables, groups and
 * archive members, sorted by path. The child is not trusted (the file may have taken it over):
 * every size and number of its records is checked here. One thread at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "nn/files/files.h"

#define MAX_FILE ((size_t)1 << 40)

/* The next record at *at into an item; 0 at the end. */
static int next_item(uni__contents *contents, size_t *at, uni__item *item, uni_error *err)
{
    uni__file_record record;
    size_t left = contents->bytes.size - *at;
    if (left == 0)
        return 0;
    if (left < sizeof record)
        return uni_error_set(err, UNI_EFORMAT, "the child process sent half a record");
    memcpy(&record, contents->bytes.data + *at, sizeof record);
    left -= sizeof record;
    if (record.kind < UNI__ITEM_VARIABLE || record.kind > UNI__ITEM_MEMBER ||
        record.ndim > UNI_MAX_DIMS || record.path_size == 0 ||
        record.path_size > UNI__MAX_PATH_SIZE || record.path_size > left ||
        record.size > left - record.path_size)
        return uni_error_set(err, UNI_EFORMAT,
                             "the child process sent a record that makes no sense");
    char *path = contents->bytes.data + *at + sizeof record;
    *item = (uni__item){ .kind = (enum uni__item_kind)record.kind,
                         .dtype = (uni_dtype)record.dtype,
                         .ndim = (int)record.ndim,
                         .path = path,
                         .data = path + record.path_size,
                         .size = (size_t)record.size };
    size_t count = 1;
    for (int i = 0; i < item->ndim; i++) {
        item->shape[i] = record.shape[i];
        if (record.shape[i] < 0 || __builtin_mul_overflow(count, (size_t)record.shape[i], &count))
            return uni_error_set(err, UNI_EFORMAT,
                                 "the child process sent a shape that makes no sense");
    }
    if (path[record.path_size - 1] != '\0' || strlen(path) != record.path_size - 1 ||
        (item->kind == UNI__ITEM_VARIABLE &&
         ((item->dtype != UNI_F32 && item->dtype != UNI_I64) ||
          __builtin_mul_overflow(count, uni_dtype_size(item->dtype), &count) ||
          count != item->size)))
        return uni_error_set(err, UNI_EFORMAT,
                             "the child process sent a record that makes no sense");
    *at += sizeof record + record.path_size + record.size;
    return 1;
}

static int compare(const void *a, const void *b)
{
    const uni__item *x = a, *y = b;
    return x->kind != y->kind ? (x->kind > y->kind) - (x->kind < y->kind)
                              : strcmp(x->path, y->path);
}

int uni__contents_list(uni__contents *contents, uni_error *err)
{
    size_t room = 0;
    for (size_t at = 0;;) {
        if (contents->count == room) {
            room = room > 0 ? 2 * room : 64;
            uni__item *grown = contents->count < UNI__MAX_ITEMS
                                   ? realloc(contents->items, room * sizeof *grown)
                                   : NULL;
            if (grown == NULL)
                return uni_error_set(err, UNI_ELIMIT, "no memory for a list of %zu variables",
                                     contents->count);
            contents->items = grown;
        }
        int found = next_item(contents, &at, &contents->items[contents->count], err);
        if (found <= 0) {
            qsort(contents->items, contents->count, sizeof *contents->items, compare);
            return found;
        }
        contents->count++;
    }
}

struct reading {
    const uni__keras_plugin *plugin;
    const void *bytes;
    size_t size;
    bool archive;
};

static int read_in_child(void *context, int fd, uni_error *err)
{
    const struct reading *reading = context;
    return (reading->archive ? reading->plugin->read_archive : reading->plugin->read_weights)(
        fd, reading->bytes, reading->size, err);
}

int uni__contents_read(uni__contents *contents, const char *path, bool archive, uni_error *err)
{
    *contents = (uni__contents){ 0 };
    struct reading reading = { .archive = archive };
    char *bytes = NULL, *what = NULL;
    int status = 0;
    UNI_TRY(uni__keras_plugin_load(&reading.plugin, err));
    UNI_TRY(uni__read_file(&bytes, &reading.size, path, MAX_FILE, err));
    reading.bytes = bytes;
    if (asprintf(&what, "the Keras file \"%s\"", path) < 0) {
        what = NULL;
        status = uni_error_set(err, UNI_ENOMEM, "no memory to read \"%s\"", path);
    }
    /* Nothing that is stored without compression can be more than the file; archives may be
     * deflated. */
    size_t most = (archive ? 100 : 2) * reading.size + ((size_t)64 << 20);
    if (status == 0)
        status = uni__child_run(read_in_child, &reading, what, 2 * most + ((size_t)256 << 20), most,
                                &contents->bytes, err);
    free(bytes);
    if (status == 0) {
        status = uni__contents_list(contents, err);
        if (status < 0)
            uni_error_prefix(err, "%s", what);
    }
    free(what);
    if (status < 0)
        uni__contents_free(contents);
    return status;
}

uni__item *uni__contents_find(const uni__contents *contents, enum uni__item_kind kind,
                              const char *path)
{
    uni__item key = { .kind = kind, .path = path };
    return contents->count > 0
               ? bsearch(&key, contents->items, contents->count, sizeof key, compare)
               : NULL;
}

void uni__contents_free(uni__contents *contents)
{
    uni__text_free(&contents->bytes);
    free(contents->items);
    *contents = (uni__contents){ 0 };
}
