/*
 * numpy.c - .npy and .npz files as indexed sources: rows are read directly into the batch's memory.
 * Any rows from any thread.
 *
 * A column is a list of parts, one per file, each a run of rows at an offset in the file. Ranges
 * are read with pread, single rows of a shuffle by scattered.h, file by file.
 */
#include <stdlib.h>
#include <string.h>
#include "data/shared.h"
#include "data/plan/dataset.h"
#include "data/sources/npy.h"
#include "data/sources/scattered.h"
#include "data/table/table.h"
#include "base/options.h"

#define MAX_COLUMNS 64
#define TAIL_BYTES 65536

struct part {
    int file;
    int64_t first, rows; /* rows of the dataset */
    int64_t offset; /* file offset of its first element */
};

struct numpy {
    uni__files *files;
    uni__scattered *scattered; /* for single rows of a shuffle */
    int num_columns, num_parts; /* num_parts: of every column */
    size_t row_bytes[MAX_COLUMNS];
    struct part *parts[MAX_COLUMNS];
    uni_table *schema; /* borrowed */
    int64_t num_rows;
};

static void numpy_free(void *self)
{
    struct numpy *numpy = self;
    if (numpy == NULL)
        return;
    for (int i = 0; i < MAX_COLUMNS; i++)
        free(numpy->parts[i]);
    uni__scattered_free(numpy->scattered);
    uni__files_free(numpy->files);
    free(numpy);
}

/* ---- reading ---- */

static const struct part *part_of(const struct numpy *numpy, int column, int64_t row)
{
    int low = 0, high = numpy->num_parts - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (numpy->parts[column][middle].first <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return &numpy->parts[column][low];
}

/* Reads rows [begin, end), across files if necessary. */
static int read_run(const struct numpy *numpy, int column, int64_t begin, int64_t end, char *to,
                    uni_error *err)
{
    size_t bytes = numpy->row_bytes[column];
    while (begin < end && bytes > 0) {
        const struct part *part = part_of(numpy, column, begin);
        int64_t stop = part->first + part->rows < end ? part->first + part->rows : end;
        size_t size = (size_t)(stop - begin) * bytes;
        UNI_TRY(uni__files_pread(numpy->files, part->file,
                                 part->offset + (begin - part->first) * (int64_t)bytes, to, size,
                                 err));
        to += size;
        begin = stop;
    }
    return 0;
}

static int new_column(const struct numpy *numpy, uni__reader *reader, int column, int64_t rows,
                      uni_array **out, uni_error *err)
{
    const uni_field *field = &uni_table_column_at(numpy->schema, column)->field;
    int64_t shape[UNI_MAX_DIMS] = { rows };
    for (int i = 0; i < field->ndim; i++)
        shape[i + 1] = field->shape[i];
    return uni__reader_array(reader, out, field->dtype, field->ndim + 1, shape, err);
}

/* One row, and its position in the output. */
struct wanted {
    int64_t row, place;
};

static int compare_rows(const void *a, const void *b)
{
    int64_t x = ((const struct wanted *)a)->row, y = ((const struct wanted *)b)->row;
    return x < y ? -1 : x > y;
}

/* Reads rows, sorted by file, to their positions. */
static int read_scattered(const struct numpy *numpy, uni__reader *reader, int column,
                          const struct wanted *list, int64_t count, char *to, uni_error *err)
{
    size_t bytes = numpy->row_bytes[column];
    uni__scattered_row *rows =
        uni__reader_scratch(reader, UNI__SCRATCH_NUMPY_SCATTERED, (size_t)count * sizeof *rows);
    if (rows == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read rows");
    for (int64_t i = 0; i < count;) {
        const struct part *part = part_of(numpy, column, list[i].row);
        int64_t n = 0, end = part->first + part->rows;
        for (; i + n < count && list[i + n].row >= part->first && list[i + n].row < end; n++)
            rows[n] =
                (uni__scattered_row){ .offset = part->offset +
                                                (list[i + n].row - part->first) * (int64_t)bytes,
                                      .to = to + (size_t)list[i + n].place * bytes };
        UNI_TRY(uni__scattered_copy(numpy->scattered, part->file, rows, n, bytes, err));
        i += n;
    }
    return 0;
}

/* list NULL: rows [begin, begin + count). */
static int read_columns(const struct numpy *numpy, uni__reader *reader, int64_t begin,
                        const struct wanted *list, int64_t count, uni_table **out, uni_error *err)
{
    uni_table *table = NULL;
    uni_array *array = NULL;
    int status = 0;
    *out = NULL;
    UNI_TRY(uni_table_new(&table, count, err));
    for (int i = 0; i < numpy->num_columns && status == 0; i++) {
        const char *name = uni_table_column_at(numpy->schema, i)->field.name;
        status = new_column(numpy, reader, i, count, &array, err);
        if (status == 0 && list == NULL)
            status = read_run(numpy, i, begin, begin + count, uni_array_data(array), err);
        else if (status == 0)
            status = read_scattered(numpy, reader, i, list, count, uni_array_data(array), err);
        if (status == 0)
            status = uni_table_add_array(table, name, array, err);
        uni_array_unref(array);
        array = NULL;
    }
    if (status < 0) {
        uni_table_unref(table);
        return status;
    }
    *out = table;
    return 0;
}

static int numpy_range(void *self, uni__reader *reader, int64_t begin, int64_t end, uni_table **out,
                       uni_error *err)
{
    return read_columns(self, reader, begin, NULL, end - begin, out, err);
}

static int numpy_rows(void *self, uni__reader *reader, const int64_t *rows, int64_t count,
                      uni_table **out, uni_error *err)
{
    const struct numpy *numpy = self;
    struct wanted *list =
        uni__reader_scratch(reader, UNI__SCRATCH_NUMPY_WANTED, (size_t)count * sizeof *list);
    if (list == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld rows", (long long)count);
    for (int64_t i = 0; i < count; i++)
        list[i] = (struct wanted){ .row = rows[i], .place = i };
    if (numpy->num_parts > 1) /* group the rows by file */
        qsort(list, (size_t)count, sizeof *list, compare_rows);
    return read_columns(numpy, reader, 0, list, count, out, err);
}

static void numpy_place(void *self, int64_t index, uni__place *out)
{
    const struct numpy *numpy = self;
    const struct part *part = part_of(numpy, 0, index);
    *out = (uni__place){ .file = numpy->files->items[part->file].path,
                         .begin = index - part->first,
                         .end = index - part->first + 1,
                         .rows = 1 };
}

static const uni__source_class numpy_class = { .name = "numpy",
                                               .read_range = numpy_range,
                                               .read_rows = numpy_rows,
                                               .place = numpy_place,
                                               .free = numpy_free };

/* ---- opening ---- */

static int read_header(const struct numpy *numpy, int file, int64_t offset, int64_t size,
                       uni__npy *out, uni_error *err)
{
    const char *path = numpy->files->items[file].path;
    size_t head_size = size < UNI__NPY_MAX_HEADER ? (size_t)size : UNI__NPY_MAX_HEADER;
    uint8_t *head = malloc(head_size + 1);
    if (head == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the header of %s", path);
    int status = uni__files_pread(numpy->files, file, offset, head, head_size, err);
    if (status == 0)
        status = uni__npy_parse(out, head, head_size, path, err);
    free(head);
    UNI_TRY(status);
    if (out->ndim < 1)
        return uni_error_set(err, UNI_ESHAPE, "%s holds one number; rows need an axis", path);
    if (out->data + (int64_t)out->bytes > size)
        return uni_error_set(err, UNI_EFORMAT, "%s is cut off: %lld bytes, its shape needs %lld",
                             path, (long long)size, (long long)(out->data + (int64_t)out->bytes));
    return 0;
}

/* Adds an array as part number `part` of a column; the first part creates the column. */
static int add_part(struct numpy *numpy, uni_table *schema, int column, int part, const char *name,
                    int file, int64_t offset, const uni__npy *npy, uni_error *err)
{
    uni_field field = {
        .name = name, .kind = UNI_FIELD_NUMBER, .dtype = npy->dtype, .ndim = npy->ndim - 1
    };
    for (int i = 1; i < npy->ndim; i++)
        field.shape[i - 1] = npy->shape[i];
    if (part == 0) {
        numpy->parts[column] = calloc((size_t)numpy->num_parts, sizeof(struct part));
        if (numpy->parts[column] == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
        UNI_TRY(uni__table_add_field(schema, &field, err));
        numpy->row_bytes[column] = uni__field_row_bytes(&field);
    } else if (!uni__field_equal(&field, &uni_table_column_at(schema, column)->field)) {
        char one[96], other[96];
        return uni_error_set(
            err, UNI_EDTYPE, "%s has rows of %s, the files before have %s",
            numpy->files->items[file].path, uni__field_text(one, sizeof one, &field),
            uni__field_text(other, sizeof other, &uni_table_column_at(schema, column)->field));
    }
    const struct part *before = part > 0 ? &numpy->parts[column][part - 1] : NULL;
    numpy->parts[column][part] =
        (struct part){ .file = file,
                       .first = before != NULL ? before->first + before->rows : 0,
                       .rows = npy->shape[0],
                       .offset = offset + npy->data };
    return 0;
}

static int open_npy(struct numpy *numpy, uni_table *schema, const char *name, uni_error *err)
{
    numpy->num_columns = 1;
    numpy->num_parts = numpy->files->count;
    for (int i = 0; i < numpy->files->count; i++) {
        uni__npy npy = { 0 };
        UNI_TRY(read_header(numpy, i, 0, numpy->files->items[i].size, &npy, err));
        UNI_TRY(add_part(numpy, schema, 0, i, name, i, 0, &npy, err));
    }
    return 0;
}

static int read_directory(const struct numpy *numpy, uni__npz_member *members, int *count,
                          uni_error *err)
{
    const uni__file *file = &numpy->files->items[0];
    int64_t begin = file->size > TAIL_BYTES ? file->size - TAIL_BYTES : 0, need = -1;
    int status = 0;
    do {
        uint8_t *tail = malloc((size_t)(file->size - begin) + 1);
        if (tail == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the directory of %s", file->path);
        status = uni__files_pread(numpy->files, 0, begin, tail, (size_t)(file->size - begin), err);
        if (status == 0)
            status = uni__npz_parse(members, MAX_COLUMNS, tail, (size_t)(file->size - begin), begin,
                                    &need, file->path, err);
        free(tail);
        begin = need;
    } while (status == 0 && need >= 0);
    *count = status;
    return status < 0 ? status : 0;
}

static int open_npz(struct numpy *numpy, uni_table *schema, uni_error *err)
{
    uni__npz_member *members = calloc(MAX_COLUMNS, sizeof *members);
    int status = members != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for an archive");
    if (status == 0 && numpy->files->count > 1)
        status = uni_error_set(err, UNI_EUNSUPPORTED,
                               "one .npz at a time; put several together with union");
    if (status == 0)
        status = read_directory(numpy, members, &numpy->num_columns, err);
    numpy->num_parts = 1;
    for (int i = 0; status == 0 && i < numpy->num_columns; i++) {
        const uni__file *file = &numpy->files->items[0];
        uint8_t head[30];
        int64_t skip = 0;
        uni__npy npy = { 0 };
        status = uni__files_pread(numpy->files, 0, members[i].header, head, sizeof head, err);
        if (status == 0)
            status = uni__npz_local(head, &skip, file->path, err);
        skip += members[i].header;
        if (status == 0)
            status = read_header(numpy, 0, skip, file->size - skip, &npy, err);
        if (status == 0)
            status = add_part(numpy, schema, i, 0, members[i].name, 0, skip, &npy, err);
        if (status == 0 && numpy->parts[i][0].rows != numpy->parts[0][0].rows)
            status = uni_error_set(err, UNI_ESHAPE, "%s: %s has %lld rows, %s has %lld", file->path,
                                   members[i].name, (long long)numpy->parts[i][0].rows,
                                   members[0].name, (long long)numpy->parts[0][0].rows);
    }
    free(members);
    return status;
}

int uni_dataset_read_numpy(uni_dataset **out, int num_paths, const char *const *paths,
                           const uni_numpy_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_numpy_options, options, column, err);
    static const char *const suffixes[] = { ".npy", ".npz", NULL };
    const char *column = options->column != NULL ? options->column : "data";
    struct numpy *numpy = calloc(1, sizeof *numpy);
    uni__source source = { .class_ = &numpy_class, .self = numpy, .kind = UNI__SOURCE_INDEXED };
    int status = 0;
    if (numpy == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset");
    UNI_TRY_GOTO(uni__files_open(&numpy->files, num_paths, paths, suffixes, err), fail);
    UNI_TRY_GOTO(uni__scattered_new(&numpy->scattered, numpy->files, err), fail);
    UNI_TRY_GOTO(uni_table_new(&source.schema, 0, err), fail);
    numpy->schema = source.schema;
    const char *path = numpy->files->items[0].path;
    size_t length = strlen(path);
    bool archive = length > 4 && strcmp(path + length - 4, ".npz") == 0;
    UNI_TRY_GOTO(archive ? open_npz(numpy, source.schema, err)
                         : open_npy(numpy, source.schema, column, err),
                 fail);
    const struct part *last = &numpy->parts[0][numpy->num_parts - 1];
    source.num_rows = last->first + last->rows;
    source.bytes = numpy->files->bytes;
    for (int i = 0; i < numpy->num_columns; i++)
        source.row_bytes += (int64_t)numpy->row_bytes[i];
    return uni__dataset_from_source(out, &source, NULL, err);
fail:
    uni__source_free(&source);
    return status;
}
