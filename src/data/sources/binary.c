/*
 * binary.c - whole files as rows: an indexed source. Any thread.
 */
#include <unisono/data_readers.h>

#include <stdlib.h>
#include <string.h>

#include "data/sources/build.h"
#include "base/options.h"

#define MAX_FILE ((int64_t)2 << 30)

typedef struct binary {
    uni__files *files;
    uni_table *schema;
    bool paths;
} binary;

static int read_rows(void *self_, uni__reader *reader, const int64_t *rows, int64_t count,
                     uni_table **out, uni_error *err)
{
    const binary *self = self_;
    uni__build build;
    int64_t bytes = 0;
    int status = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += self->files->items[rows[i]].size;
    /* More than the file sizes: the columns share the room, and paths are short. */
    UNI_TRY(
        uni__build_begin(&build, reader, self->schema, count, bytes * (self->paths ? 3 : 2), err));
    for (int64_t i = 0; i < count; i++) {
        const uni__file *file = &self->files->items[rows[i]];
        void *to = NULL;
        if (file->size > MAX_FILE) {
            status = uni_error_set(err, UNI_ELIMIT, "%s is larger than 2 GiB", file->path);
            goto fail;
        }
        UNI_TRY_GOTO(uni__build_reserve(&build, 0, file->size, &to, err), fail);
        UNI_TRY_GOTO(uni__files_pread(self->files, (int)rows[i], 0, to, (size_t)file->size, err),
                     fail);
        uni__build_used(&build, 0, file->size);
        if (self->paths)
            UNI_TRY_GOTO(uni__build_put_bytes(&build, 1, file->path, strlen(file->path), err),
                         fail);
        UNI_TRY_GOTO(uni__build_end_row(&build, err), fail);
    }
    return uni__build_finish(&build, out, err);
fail:
    uni__build_free(&build);
    return status;
}

static void row_place(void *self_, int64_t index, uni__place *out)
{
    const uni__file *file = &((const binary *)self_)->files->items[index];
    *out = (uni__place){ .file = file->path, .end = file->size, .rows = 1, .unit = "bytes" };
}

static void binary_free(void *self_)
{
    binary *self = self_;
    uni__files_free(self->files);
    uni_table_unref(self->schema);
    free(self);
}

int uni_dataset_read_binary(uni_dataset **out, int num_paths, const char *const *paths,
                            const uni_binary_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_binary_options, options, include_paths, err);
    static const uni__source_class class_ = {
        .name = "binary", .read_rows = read_rows, .place = row_place, .free = binary_free
    };
    const uni_field fields[] = {
        { .name = "bytes", .kind = UNI_FIELD_BINARY, .dtype = UNI_U8 },
        { .name = "path", .kind = UNI_FIELD_STRING, .dtype = UNI_U8 },
    };
    int status = 0;
    binary *self = calloc(1, sizeof *self);
    if (self == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    self->paths = options->include_paths;
    UNI_TRY_GOTO(uni__files_open(&self->files, num_paths, paths, NULL, err), fail);
    UNI_TRY_GOTO(uni__build_schema(&self->schema, fields, self->paths ? 2 : 1, err), fail);
    uni__source source = { .class_ = &class_,
                           .self = self,
                           .kind = UNI__SOURCE_INDEXED,
                           .schema = uni_table_ref(self->schema),
                           .num_rows = self->files->count,
                           .bytes = self->files->bytes,
                           .row_bytes = self->files->bytes / self->files->count + 1 };
    return uni__dataset_from_source(out, &source, NULL, err);
fail:
    binary_free(self);
    return status;
}
