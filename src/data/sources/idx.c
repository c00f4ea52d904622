/*
 * idx.c - files of MNIST and similar datasets as an indexed source: one column per file.
 *
 * File format, big-endian: two zero bytes, the element type (8 uint8, 9 int8, 11 int16, 12 int32,
 * 13 float, 14 double), the number of dimensions, a u32 for each, the elements. Rows are read with
 * pread; a compressed file is unpacked once, when it is opened. Any thread.
 */
#include <unisono/data_readers.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/sources/build.h"
#include "data/sources/decompress.h"
#include "data/sources/idx.h"

#define MAX_UNPACKED ((size_t)256 << 20) /* of all columns together: the budget of a dataset */

typedef struct idx_column {
    uni__idx_header header;
    uni_array *unpacked; /* contents of a compressed file, in native byte order */
} idx_column;

typedef struct idx {
    uni__files *files;
    idx_column *columns; /* one per file */
    uni_table *schema;
    int64_t num_rows;
} idx;

int uni__idx_header_read(uni__idx_header *header, const uint8_t *bytes, size_t size)
{
    static const uni_dtype dtypes[16] = {
        [8] = UNI_U8, [9] = UNI_I8, [11] = UNI_I16, [12] = UNI_I32, [13] = UNI_F32, [14] = UNI_F64
    };
    *header = (uni__idx_header){ 0 };
    if (size < 4 || bytes[0] != 0 || bytes[1] != 0 || bytes[2] > 15 || dtypes[bytes[2]] == 0 ||
        bytes[3] < 1 || bytes[3] > UNI_MAX_DIMS || size < 4 + 4 * (size_t)bytes[3])
        return -1;
    header->dtype = dtypes[bytes[2]];
    header->ndim = bytes[3];
    header->size = 4 + 4 * header->ndim;
    header->row_bytes = (int64_t)uni_dtype_size(header->dtype);
    for (int i = 0; i < header->ndim; i++) {
        const uint8_t *at = bytes + 4 + 4 * i;
        header->shape[i] =
            (int64_t)at[0] << 24 | (int64_t)at[1] << 16 | (int64_t)at[2] << 8 | (int64_t)at[3];
        if (i > 0 &&
            __builtin_mul_overflow(header->row_bytes, header->shape[i], &header->row_bytes))
            return -1;
    }
    return __builtin_mul_overflow(header->row_bytes, header->shape[0], &header->data_bytes) ? -1
                                                                                            : 0;
}

void uni__idx_swap(void *data, uni_dtype dtype, size_t bytes)
{
    size_t width = bytes > 0 ? uni_dtype_size(dtype) : 0; /* no rows need no memory */
    if (width == 2)
        for (uint16_t *at = data, *end = at + bytes / 2; at < end; at++)
            *at = __builtin_bswap16(*at);
    else if (width == 4)
        for (uint32_t *at = data, *end = at + bytes / 4; at < end; at++)
            *at = __builtin_bswap32(*at);
    else if (width == 8)
        for (uint64_t *at = data, *end = at + bytes / 8; at < end; at++)
            *at = __builtin_bswap64(*at);
}

/* ---- reading ---- */

static int pread_rows(int fd, const char *path, const uni__idx_header *header, const int64_t *rows,
                      int64_t begin, int64_t count, char *to, uni_error *err)
{
    int64_t chunk = rows != NULL ? 1 : count; /* a range in one call */
    if (header->row_bytes == 0) /* nothing to store */
        return 0;
    for (int64_t i = 0; i < count; i += chunk) {
        int64_t row = rows != NULL ? rows[i] : begin;
        size_t size = (size_t)(header->row_bytes * chunk);
        UNI_TRY(uni__pread_all(fd, path, header->size + row * header->row_bytes,
                               to + (size_t)i * (size_t)header->row_bytes, size, err));
    }
    return 0;
}

static int read_file(const idx *self, int file, const int64_t *rows, int64_t begin, int64_t count,
                     char *to, uni_error *err)
{
    const uni__idx_header *header = &self->columns[file].header;
    const char *path = self->files->items[file].path;
    const char *from =
        self->columns[file].unpacked != NULL ? uni_array_data(self->columns[file].unpacked) : NULL;
    if (from != NULL) {
        size_t size = (size_t)header->row_bytes;
        for (int64_t i = 0; i < count && size > 0; i++)
            memcpy(to + (size_t)i * size,
                   from + (size_t)(rows != NULL ? rows[i] : begin + i) * size, size);
        return 0;
    }
    UNI_TRY(uni__files_check(self->files, file, err));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return uni_error_set_errno(err, errno, "cannot open %s", path);
    int status = pread_rows(fd, path, header, rows, begin, count, to, err);
    close(fd);
    uni__idx_swap(to, header->dtype, (size_t)(header->row_bytes * count));
    return status;
}

static int read_some(const idx *self, uni__reader *reader, const int64_t *rows, int64_t begin,
                     int64_t count, uni_table **out, uni_error *err)
{
    uni__build build;
    int status = 0;
    UNI_TRY(uni__build_begin(&build, reader, self->schema, count, 0, err));
    for (int i = 0; i < build.num_columns; i++)
        UNI_TRY_GOTO(
            read_file(self, i, rows, begin, count, uni_array_data(build.columns[i].values), err),
            fail);
    build.num_rows = count;
    return uni__build_finish(&build, out, err);
fail:
    uni__build_free(&build);
    return status;
}

static int read_range(void *self, uni__reader *reader, int64_t begin, int64_t end, uni_table **out,
                      uni_error *err)
{
    return read_some(self, reader, NULL, begin, end - begin, out, err);
}

static int read_rows(void *self, uni__reader *reader, const int64_t *rows, int64_t count,
                     uni_table **out, uni_error *err)
{
    return read_some(self, reader, rows, 0, count, out, err);
}

static void row_place(void *self_, int64_t index, uni__place *out)
{
    const idx *self = self_;
    *out = (uni__place){
        .file = self->files->items[0].path, .begin = index, .end = index + 1, .rows = 1
    };
}

/* ---- opening ---- */

static int unpack(idx_column *column, uni__stream *stream, uni_error *err)
{
    const uni__idx_header *header = &column->header;
    size_t got = 0, size = (size_t)header->data_bytes;
    if (size > MAX_UNPACKED)
        return uni_error_set(err, UNI_ELIMIT, "%s unpacks to %zu bytes: unpack it first",
                             uni__stream_path(stream), size);
    UNI_TRY(uni_array_new(&column->unpacked, header->dtype, header->ndim, header->shape, err));
    if (size > 0)
        UNI_TRY(uni__stream_read(stream, uni_array_data(column->unpacked), size, &got, err));
    if (got < size && uni__stream_good(stream))
        return uni_error_set(err, UNI_EFORMAT, "%s has %zu bytes of data, its header says %zu",
                             uni__stream_path(stream), got, size);
    if (got < size)
        return uni__stream_read(stream, uni_array_data(column->unpacked), size, &got, err);
    /* Reading past the end verifies the checksum and that no data follows. */
    UNI_TRY(uni__stream_read(stream, &(char){ 0 }, 1, &got, err));
    if (got > 0)
        return uni_error_set(err, UNI_EFORMAT,
                             "%s has more bytes of data than its header says (%zu)",
                             uni__stream_path(stream), size);
    if (!uni__stream_good(stream))
        return uni__stream_read(stream, &(char){ 0 }, 1, &got, err);
    uni__idx_swap(uni_array_data(column->unpacked), header->dtype, size);
    return 0;
}

static int open_column(idx *self, int file, uni_error *err)
{
    idx_column *column = &self->columns[file];
    const uni__file *item = &self->files->items[file];
    uni__stream *stream = NULL;
    uint8_t bytes[4 + 4 * UNI_MAX_DIMS];
    size_t got = 0, rest = 0;
    UNI_TRY(uni__stream_open(&stream, item->path, err));
    int status = uni__stream_read(stream, bytes, 4, &got, err);
    if (status == 0 && got == 4 && bytes[3] <= UNI_MAX_DIMS)
        status = uni__stream_read(stream, bytes + 4, 4 * (size_t)bytes[3], &rest, err);
    if (status == 0 && uni__idx_header_read(&column->header, bytes, got + rest) < 0)
        status = uni_error_set(err, UNI_EFORMAT,
                               "%s is not an idx file: it does not begin with an idx header",
                               item->path);
    if (status == 0 && uni__is_compressed(item->path))
        status = unpack(column, stream, err);
    else if (status == 0 && item->size - column->header.size != column->header.data_bytes)
        status = uni_error_set(err, UNI_EFORMAT, "%s has %lld bytes of data, its header says %lld",
                               item->path, (long long)(item->size - column->header.size),
                               (long long)column->header.data_bytes);
    uni__stream_close(stream);
    return status;
}

static void idx_free(void *self_)
{
    idx *self = self_;
    for (int i = 0; self->columns != NULL && i < self->files->count; i++)
        uni_array_unref(self->columns[i].unpacked);
    free(self->columns);
    uni__files_free(self->files);
    uni_table_unref(self->schema);
    free(self);
}

static int open_all(idx *self, int count, const char *const *names, uni_error *err)
{
    uni_field *fields = calloc((size_t)count, sizeof *fields);
    int status = 0;
    if (fields == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    for (int i = 0; i < count; i++) {
        UNI_TRY_GOTO(open_column(self, i, err), done);
        const uni__idx_header *header = &self->columns[i].header;
        fields[i] = (uni_field){ .name = names[i],
                                 .kind = UNI_FIELD_NUMBER,
                                 .dtype = header->dtype,
                                 .ndim = header->ndim - 1 };
        memcpy(fields[i].shape, header->shape + 1, sizeof fields[i].shape);
        if (header->shape[0] != self->columns[0].header.shape[0]) {
            status = uni_error_set(err, UNI_ESHAPE, "%s has %lld rows, %s has %lld",
                                   self->files->items[i].path, (long long)header->shape[0],
                                   self->files->items[0].path,
                                   (long long)self->columns[0].header.shape[0]);
            goto done;
        }
    }
    self->num_rows = self->columns[0].header.shape[0];
    status = uni__build_schema(&self->schema, fields, count, err);
done:
    free(fields);
    return status;
}

int uni_dataset_read_idx(uni_dataset **out, int count, const char *const *names,
                         const char *const *paths, uni_error *err)
{
    static const uni__source_class class_ = { .name = "idx",
                                              .read_range = read_range,
                                              .read_rows = read_rows,
                                              .place = row_place,
                                              .free = idx_free };
    int status = 0;
    int64_t row_bytes = 0;
    *out = NULL;
    idx *self = calloc(1, sizeof *self);
    if (self == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    UNI_TRY_GOTO(uni__files_open(&self->files, count, paths, NULL, err), fail);
    if (self->files->count != count) {
        status = uni_error_set(err, UNI_EINVAL,
                               "read_idx needs one file for each of its %d columns, and the paths "
                               "name %d",
                               count, self->files->count);
        goto fail;
    }
    self->columns = calloc((size_t)count, sizeof *self->columns);
    if (self->columns == NULL) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
        goto fail;
    }
    UNI_TRY_GOTO(open_all(self, count, names, err), fail);
    for (int i = 0; i < count; i++)
        row_bytes += self->columns[i].header.row_bytes;
    uni__source source = { .class_ = &class_,
                           .self = self,
                           .kind = UNI__SOURCE_INDEXED,
                           .schema = uni_table_ref(self->schema),
                           .num_rows = self->num_rows,
                           .bytes = self->num_rows * row_bytes,
                           .row_bytes = row_bytes };
    return uni__dataset_from_source(out, &source, NULL, err);
fail:
    if (self->files != NULL)
        idx_free(self);
    else
        free(self);
    return status;
}
