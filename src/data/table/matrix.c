/*
 * matrix.c - columns of numbers side by side (matrix.h). Works on blocks of rows, so that both
 * input and output stay in the cache.
 */
#include "data/table/matrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/table/cast.h"
#include "data/table/table.h"

enum { PIECE = 1024 };

size_t uni__matrix_width(const uni_field *field)
{
    return uni__field_row_bytes(field) / uni_dtype_size(field->dtype);
}

int uni__matrix_gaps(const uni_table_column *column, uni_dtype dtype, void *to, size_t offset,
                     size_t total, int64_t rows, uni_error *err)
{
    const uint8_t *valid = column->valid != NULL ? uni_array_data(column->valid) : NULL;
    size_t width = uni__matrix_width(&column->field);
    for (int64_t row = 0; valid != NULL && row < rows; row++) {
        size_t first = (size_t)row * total + offset;
        if (!valid[row] && dtype != UNI_F32 && dtype != UNI_F64)
            return uni_error_set(
                err, UNI_EDTYPE,
                "column %s has missing values, which %s cannot hold; take float32, "
                "or fill them first (SimpleImputer)",
                column->field.name, uni_dtype_name(dtype));
        for (size_t i = first; !valid[row] && i < first + width; i++) {
            if (dtype == UNI_F32)
                ((float *)to)[i] = NAN;
            else
                ((double *)to)[i] = NAN;
        }
    }
    return 0;
}

/* Casts the column into `to`: rows of `total` elements, starting at element `offset` of each. */
static int put_column(const uni_table_column *column, uni_dtype dtype, void *to, size_t offset,
                      size_t total, int64_t rows, char *scratch, uni_error *err)
{
    size_t width = uni__matrix_width(&column->field), size = uni_dtype_size(dtype);
    const char *from = uni_array_data(column->values);
    for (int64_t first = 0; first < rows; first += PIECE) {
        size_t count = rows - first < PIECE ? (size_t)(rows - first) : PIECE;
        int status =
            uni__cast(scratch, dtype, from + (size_t)first * uni__field_row_bytes(&column->field),
                      column->field.dtype, count * width, err);
        if (status < 0)
            return uni_error_prefix(err, "column %s", column->field.name);
        char *row = (char *)to + ((size_t)first * total + offset) * size;
        if (width == 1 && size == 4) {
            for (size_t i = 0; i < count; i++)
                memcpy(row + i * total * 4, scratch + i * 4, 4);
        } else if (width == 1 && size == 8) {
            for (size_t i = 0; i < count; i++)
                memcpy(row + i * total * 8, scratch + i * 8, 8);
        } else {
            for (size_t i = 0; i < count; i++)
                memcpy(row + i * total * size, scratch + i * width * size, width * size);
        }
    }
    return uni__matrix_gaps(column, dtype, to, offset, total, rows, err);
}

int uni__matrix_width_of(const uni_table *table, const char *const *names, int count, size_t *out,
                         uni_error *err)
{
    *out = 0;
    for (int i = 0; i < count; i++) {
        const uni_field *field = &uni_table_find(table, names[i])->field;
        if (field->kind != UNI_FIELD_NUMBER)
            return uni_error_set(err, UNI_EDTYPE, "column %s holds no numbers", field->name);
        *out += uni__matrix_width(field);
    }
    return 0;
}

int uni__matrix_fill(const uni_table *table, const char *const *names, int count, uni_array *out,
                     uni_error *err)
{
    size_t total = (size_t)uni_array_shape(out)[1], offset = 0;
    uni_dtype dtype = uni_array_dtype(out);
    char *scratch = malloc(PIECE * total * uni_dtype_size(dtype) + 1);
    int status =
        scratch != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory to put columns together");
    for (int i = 0; i < count && status == 0; i++) {
        const uni_table_column *column = uni_table_find(table, names[i]);
        status = put_column(column, dtype, uni_array_data(out), offset, total,
                            uni_array_shape(out)[0], scratch, err);
        offset += uni__matrix_width(&column->field);
    }
    free(scratch);
    return status;
}
