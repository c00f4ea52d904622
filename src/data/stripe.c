/*
 * stripe.c - columns of numbers side by side (stripe.h): in pieces of rows, so that what is read and what is written both stay in the cache.
 */
#include "data/stripe.h"

#include <math.h>
#include <string.h>

#include "data/cast.h"
#include "data/table.h"

enum { PIECE = 1024 };

size_t uni__stripe_width(const uni_field *field)
{
    return uni__field_row_bytes(field) / uni_dtype_size(field->dtype);
}

size_t uni__stripe_scratch(const uni_table_column *column, uni_dtype dtype)
{
    return PIECE * uni__stripe_width(&column->field) * uni_dtype_size(dtype) + 1;
}

int uni__stripe_gaps(const uni_table_column *column, uni_dtype dtype, void *to, size_t offset,
                     size_t total, int64_t rows, uni_error *err)
{
    const uint8_t *valid = column->valid != NULL ? uni_array_data(column->valid) : NULL;
    size_t width = uni__stripe_width(&column->field);
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

int uni__stripe_put(const uni_table_column *column, uni_dtype dtype, void *to, size_t offset,
                    size_t total, int64_t rows, char *scratch, uni_error *err)
{
    size_t width = uni__stripe_width(&column->field), size = uni_dtype_size(dtype);
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
    return uni__stripe_gaps(column, dtype, to, offset, total, rows, err);
}
