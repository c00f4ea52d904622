/*
 * arrow.c - a record batch of the Arrow C data interface as a table.
 *
 * Numbers, large strings and large binaries are views of Arrow's own buffers. A reference-counted
 * holder owns the batch; every such array refers to it, and the last one releases the batch, on any
 * thread. Bools (bits in Arrow), 32-bit offsets and missing values are converted. The memory is
 * trusted as far as the interface requires: its producer runs in this process.
 */
#include <unisono/data_readers.h>

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/sources/arrow.h"

#include "data/shared.h"

typedef struct holder {
    struct ArrowArray array;
    atomic_int references;
} holder;

static void holder_unref(void *context)
{
    holder *held = context;
    if (atomic_fetch_sub(&held->references, 1) != 1)
        return;
    if (held->array.release != NULL)
        held->array.release(&held->array);
    free(held);
}

static int view(uni_array **out, holder *held, uni_dtype dtype, int ndim, const int64_t *shape,
                const void *data, uni_error *err)
{
    atomic_fetch_add(&held->references, 1);
    int status = uni_array_view(out, dtype, ndim, shape, (void *)data, holder_unref, held, err);
    if (status < 0)
        holder_unref(held);
    return status;
}

static bool bit(const uint8_t *bits, int64_t index)
{
    return bits == NULL || (bits[index / 8] >> (index % 8) & 1) != 0;
}

static uni_dtype dtype_of(const char *format)
{
    static const struct {
        char letter;
        uni_dtype dtype;
    } letters[] = { { 'c', UNI_I8 },  { 'C', UNI_U8 },  { 's', UNI_I16 }, { 'S', UNI_U16 },
                    { 'i', UNI_I32 }, { 'I', UNI_U32 }, { 'l', UNI_I64 }, { 'L', UNI_U64 },
                    { 'e', UNI_F16 }, { 'f', UNI_F32 }, { 'g', UNI_F64 }, { 'b', UNI_B8 } };
    if (format[0] != 0 && format[1] == 0)
        for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
            if (letters[i].letter == format[0])
                return letters[i].dtype;
    /* Timestamps and durations are 64-bit counts of their unit; dates are 32-bit days or 64-bit
     * milliseconds. */
    if (strncmp(format, "ts", 2) == 0 || strncmp(format, "tD", 2) == 0 ||
        strcmp(format, "tdm") == 0)
        return UNI_I64;
    return strcmp(format, "tdD") == 0 ? UNI_I32 : (uni_dtype)0;
}

/* `count` numbers from `begin` on: a view, or bits expanded to bytes. */
static int numbers(uni_array **out, holder *held, const struct ArrowArray *from, uni_dtype dtype,
                   int ndim, const int64_t *shape, int64_t begin, uni_error *err)
{
    const char *data = from->n_buffers > 1 ? from->buffers[1] : NULL;
    size_t count = 1;
    for (int i = 0; i < ndim; i++)
        count *= (size_t)shape[i];
    if (count == 0 || data == NULL)
        return uni_array_new(out, dtype, ndim, shape, err);
    begin += from->offset;
    if (dtype != UNI_B8)
        return view(out, held, dtype, ndim, shape, data + (size_t)begin * uni_dtype_size(dtype),
                    err);
    UNI_TRY(uni_array_new(out, dtype, ndim, shape, err));
    for (size_t i = 0; i < count; i++)
        ((uint8_t *)uni_array_data(*out))[i] = bit((const uint8_t *)data, begin + (int64_t)i);
    return 0;
}

/* NaN for floating-point numbers, `valid` for all others. */
static int missing(uni_table_column *column, const struct ArrowArray *from, int64_t rows,
                   uni_error *err)
{
    const uint8_t *bits = from->null_count != 0 && from->n_buffers > 0 ? from->buffers[0] : NULL;
    uni_dtype dtype = column->field.dtype;
    if (bits == NULL)
        return 0;
    bool any = false;
    for (int64_t i = 0; i < rows && !any; i++)
        any = !bit(bits, from->offset + i);
    if (!any)
        return 0;
    if (column->field.kind == UNI_FIELD_NUMBER && column->field.ndim == 0 &&
        (dtype == UNI_F32 || dtype == UNI_F64)) {
        uni_array *copy = NULL;
        UNI_TRY(uni_array_new(&copy, dtype, 1, &rows, err));
        memcpy(uni_array_data(copy), uni_array_data(column->values), uni_array_bytes(copy));
        for (int64_t i = 0; i < rows; i++) {
            if (bit(bits, from->offset + i))
                continue;
            if (dtype == UNI_F32)
                ((float *)uni_array_data(copy))[i] = NAN;
            else
                ((double *)uni_array_data(copy))[i] = NAN;
        }
        uni_array_unref(column->values);
        column->values = copy;
        return 0;
    }
    UNI_TRY(uni_array_new(&column->valid, UNI_B8, 1, &rows, err));
    for (int64_t i = 0; i < rows; i++)
        ((uint8_t *)uni_array_data(column->valid))[i] = bit(bits, from->offset + i);
    return 0;
}

/* True if element `index` of the array is missing. */
static bool is_missing(const struct ArrowArray *array, int64_t index)
{
    return array->null_count != 0 && array->n_buffers > 0 && array->buffers[0] != NULL &&
           !bit(array->buffers[0], array->offset + index);
}

/* Writes NaN for missing elements inside rows that are present, if the type has NaN. A row's
 * elements in `items` are given by `offsets`, or are `width` elements each, starting at `begin`. */
static int missing_inside(uni_array **values, const struct ArrowArray *rows_of,
                          const struct ArrowArray *items, uni_dtype dtype, int64_t rows,
                          const int64_t *offsets, int64_t begin, int64_t width, uni_error *err)
{
    bool copied = false, real = dtype == UNI_F32 || dtype == UNI_F64;
    for (int64_t row = 0; row < rows && items->null_count != 0; row++) {
        int64_t at = offsets != NULL ? offsets[row] : row * width,
                end = offsets != NULL ? offsets[row + 1] : at + width;
        for (; at < end && !is_missing(rows_of, row); at++) {
            if (!is_missing(items, begin + at))
                continue;
            if (!real)
                return uni_error_set(err, UNI_EUNSUPPORTED,
                                     "lists with missing elements of %s are not read: fill them, "
                                     "or cast them to floats",
                                     uni_dtype_name(dtype));
            if (!copied) {
                uni_array *copy = NULL;
                UNI_TRY(uni_array_new(&copy, dtype, uni_array_ndim(*values),
                                      uni_array_shape(*values), err));
                memcpy(uni_array_data(copy), uni_array_data(*values), uni_array_bytes(copy));
                uni_array_unref(*values);
                *values = copy;
                copied = true;
            }
            if (dtype == UNI_F32)
                ((float *)uni_array_data(*values))[at] = NAN;
            else
                ((double *)uni_array_data(*values))[at] = NAN;
        }
    }
    return 0;
}

/* Converts offsets to 64 bits. */
static int offsets_of(uni_array **out, holder *held, const struct ArrowArray *from, bool large,
                      int64_t rows, uni_error *err)
{
    int64_t count = rows + 1;
    const void *data = from->buffers[1];
    if (data == NULL)
        return uni_array_new(out, UNI_I64, 1, &count, err);
    if (large)
        return view(out, held, UNI_I64, 1, &count, (const int64_t *)data + from->offset, err);
    UNI_TRY(uni_array_new(out, UNI_I64, 1, &count, err));
    for (int64_t i = 0; i < count; i++)
        ((int64_t *)uni_array_data(*out))[i] = ((const int32_t *)data)[from->offset + i];
    return 0;
}

static int texts(uni_table_column *column, holder *held, const struct ArrowArray *from, char letter,
                 int64_t rows, uni_error *err)
{
    UNI_TRY(offsets_of(&column->offsets, held, from, letter == 'U' || letter == 'Z', rows, err));
    int64_t size = ((const int64_t *)uni_array_data(column->offsets))[rows];
    column->field.kind = letter == 'u' || letter == 'U' ? UNI_FIELD_STRING : UNI_FIELD_BINARY;
    column->field.dtype = UNI_U8;
    if (size == 0 || from->buffers[2] == NULL)
        return uni_array_new(&column->values, UNI_U8, 1, &(int64_t){ 0 }, err);
    return view(&column->values, held, UNI_U8, 1, &size, from->buffers[2], err);
}

static int lists(uni_table_column *column, holder *held, const struct ArrowSchema *type,
                 const struct ArrowArray *from, int64_t rows, uni_error *err)
{
    uni_dtype dtype = dtype_of(type->children[0]->format);
    const struct ArrowArray *items = from->children[0];
    if (dtype == 0)
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "lists of Arrow's type \"%s\" are not read: leave the column out, or cast it",
            type->children[0]->format);
    UNI_TRY(offsets_of(&column->offsets, held, from, type->format[1] == 'L', rows, err));
    int64_t count = ((const int64_t *)uni_array_data(column->offsets))[rows];
    column->field.kind = UNI_FIELD_LIST;
    column->field.dtype = dtype;
    UNI_TRY(numbers(&column->values, held, items, dtype, 1, &count, 0, err));
    return missing_inside(&column->values, from, items, dtype, rows,
                          uni_array_data(column->offsets), 0, 0, err);
}

/* Nested fixed-size lists of numbers: tensors. */
static int tensors(uni_table_column *column, holder *held, const struct ArrowSchema *type,
                   const struct ArrowArray *from, int64_t rows, uni_error *err)
{
    int64_t shape[UNI_MAX_DIMS] = { rows }, begin = from->offset, width = 1;
    const struct ArrowArray *outer = from;
    int ndim = 1;
    while (strncmp(type->format, "+w:", 3) == 0 && ndim < UNI_MAX_DIMS) {
        int64_t size = strtoll(type->format + 3, NULL, 10);
        if (size < 1)
            return uni_error_set(err, UNI_EUNSUPPORTED, "lists of no elements");
        column->field.shape[ndim - 1] = size;
        shape[ndim++] = size;
        begin *= size;
        width *= size;
        type = type->children[0];
        from = from->children[0];
        if (strncmp(type->format, "+w:", 3) != 0)
            break;
        begin += from->offset;
        if (from->null_count != 0)
            return uni_error_set(err, UNI_EUNSUPPORTED, "tensors with missing parts");
    }
    uni_dtype dtype = dtype_of(type->format);
    if (dtype == 0)
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "tensors of Arrow's type \"%s\" are not read: leave the column out, or cast it",
            type->format);
    column->field.kind = UNI_FIELD_NUMBER;
    column->field.dtype = dtype;
    column->field.ndim = ndim - 1;
    UNI_TRY(numbers(&column->values, held, from, dtype, ndim, shape, begin, err));
    return missing_inside(&column->values, outer, from, dtype, rows, NULL, begin, width, err);
}

static int read_column(uni_table *table, holder *held, const struct ArrowSchema *type,
                       const struct ArrowArray *from, int64_t rows, uni_error *err)
{
    uni_table_column column = { .field = { .name = type->name != NULL ? type->name : "" } };
    const char *format = type->format;
    int status = 0;
    if (type->dictionary != NULL)
        status =
            uni_error_set(err, UNI_EUNSUPPORTED, "dictionary-encoded columns; decode them first");
    else if (strchr("uUzZ", format[0]) != NULL && format[1] == 0)
        status = texts(&column, held, from, format[0], rows, err);
    else if (strcmp(format, "+l") == 0 || strcmp(format, "+L") == 0)
        status = lists(&column, held, type, from, rows, err);
    else if (strncmp(format, "+w:", 3) == 0)
        status = tensors(&column, held, type, from, rows, err);
    else if ((column.field.dtype = dtype_of(format)) != 0) {
        column.field.kind = UNI_FIELD_NUMBER;
        status = numbers(&column.values, held, from, column.field.dtype, 1, &rows, 0, err);
    } else
        status = uni_error_set(err, UNI_EUNSUPPORTED,
                               "Arrow's type \"%s\" is not read: leave the column out, or cast it",
                               format);
    if (status == 0)
        status = missing(&column, from, rows, err);
    if (status == 0)
        status = uni_table_add(table, &column, err);
    uni_array_unref(column.values);
    uni_array_unref(column.offsets);
    uni_array_unref(column.valid);
    return status < 0 ? uni_error_prefix(err, "column \"%s\"", column.field.name) : 0;
}

int uni__table_from_arrow(uni_table **out, const struct ArrowSchema *schema,
                          struct ArrowArray *array, uni_error *err)
{
    int status = 0;
    *out = NULL;
    holder *held = calloc(1, sizeof *held);
    if (held == NULL) {
        array->release(array);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a record batch");
    }
    held->array = *array;
    array->release = NULL; /* moved */
    atomic_init(&held->references, 1);
    if (strcmp(schema->format, "+s") != 0 || held->array.offset != 0 ||
        held->array.n_children != schema->n_children) {
        status = uni_error_set(err, UNI_EINVAL, "not an Arrow record batch");
        goto done;
    }
    UNI_TRY_GOTO(uni_table_new(out, held->array.length, err), done);
    for (int64_t i = 0; i < schema->n_children && status == 0; i++)
        status = read_column(*out, held, schema->children[i], held->array.children[i],
                             held->array.length, err);
    if (status < 0) {
        uni_table_unref(*out);
        *out = NULL;
    }
done:
    holder_unref(held);
    return status;
}
