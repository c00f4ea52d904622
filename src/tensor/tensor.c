/*
 * tensor.c - reading tensors and describing data: accessors, columns, shapes as text. Any thread that may use the tape.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tensor/internal.h"

static size_t element_size(uni_dtype dtype)
{
    return dtype == UNI_STRING ? sizeof(uni_string) : uni_dtype_size(dtype);
}

uni_column uni_column_view(uni_dtype dtype, int ndim, const int64_t *shape, const void *data)
{
    uni_column column = { 0 };
    if (ndim < 0 || ndim > UNI_TENSOR_MAX_DIMS || element_size(dtype) == 0)
        return column;
    column.dtype = dtype;
    column.ndim = ndim;
    column.data = data;
    for (int i = 0; i < ndim; i++)
        column.shape[i] = shape[i];
    return column;
}

uni_column uni_column_array(const uni_array *array)
{
    return uni_column_view(uni_array_dtype(array), uni_array_ndim(array), uni_array_shape(array),
                           uni_array_data(array));
}

uni_column uni_column_strings(int64_t count, const uni_string *strings)
{
    return uni_column_view(UNI_STRING, 1, &count, strings);
}

size_t uni_column_sample_bytes(const uni_column *column)
{
    if (column->dtype == 0 || column->ndim == 0)
        return 0;
    size_t bytes = element_size(column->dtype);
    for (int i = 1; i < column->ndim; i++)
        bytes *= (size_t)column->shape[i];
    return bytes;
}

uni_column uni_column_rows(const uni_column *column, int64_t begin, int64_t end)
{
    uni_column rows = *column;
    rows.data = (const char *)column->data + (size_t)begin * uni_column_sample_bytes(column);
    rows.shape[0] = end - begin;
    return rows;
}

uni_dtype uni_tensor_dtype(const uni_tensor *tensor)
{
    return tensor->dtype;
}

int uni_tensor_ndim(const uni_tensor *tensor)
{
    return tensor->ndim;
}

const int64_t *uni_tensor_shape(const uni_tensor *tensor)
{
    return tensor->shape;
}

int64_t uni_tensor_dim(const uni_tensor *tensor, int axis)
{
    if (axis < 0)
        axis += tensor->ndim;
    return axis >= 0 && axis < tensor->ndim ? tensor->shape[axis] : 0;
}

size_t uni_tensor_count(const uni_tensor *tensor)
{
    return tensor->count;
}

void *uni_tensor_data(const uni_tensor *tensor)
{
    return tensor ? tensor->data : NULL;
}

double uni_tensor_scalar(const uni_tensor *tensor)
{
    if (!tensor || tensor->count == 0)
        return NAN;
    switch ((int)tensor->dtype) {
    case UNI_F32:
        return ((const float *)tensor->data)[0];
    case UNI_F64:
        return ((const double *)tensor->data)[0];
    case UNI_I32:
        return ((const int32_t *)tensor->data)[0];
    case UNI_I64:
        return (double)((const int64_t *)tensor->data)[0];
    case UNI_U8:
    case UNI_B8:
        return ((const uint8_t *)tensor->data)[0];
    default:
        return NAN;
    }
}

const float *uni_tensor_gradient(const uni_tensor *tensor)
{
    return tensor && tensor->watched ? tensor->gradient : NULL;
}

int uni_tensor_to_array(uni_array **out, const uni_tensor *tensor, uni_error *err)
{
    *out = NULL;
    if (!tensor)
        return uni_error_set(err, UNI_EINVAL,
                             "there is no tensor: the step failed before, see uni_tape_status");
    if (tensor->dtype == UNI_STRING)
        return uni_error_set(err, UNI_EDTYPE, "a tensor of text cannot become an array of numbers");
    UNI_TRY(uni_array_new(out, tensor->dtype, tensor->ndim, tensor->shape, err));
    if (tensor->count)
        memcpy(uni_array_data(*out), tensor->data, tensor->count * uni_dtype_size(tensor->dtype));
    return 0;
}

uni_column uni_tensor_column(const uni_tensor *tensor)
{
    if (!tensor)
        return (uni_column){ 0 };
    return uni_column_view(tensor->dtype, tensor->ndim, tensor->shape, tensor->data);
}

const char *uni_shape_text(char out[UNI_SHAPE_TEXT_SIZE], int ndim, const int64_t *shape)
{
    size_t used = 1;
    out[0] = '(';
    for (int i = 0; i < ndim && used < UNI_SHAPE_TEXT_SIZE - 24; i++) {
        const char *separator = i ? ", " : "";
        if (shape[i] < 0)
            used += (size_t)snprintf(out + used, UNI_SHAPE_TEXT_SIZE - used, "%sNone", separator);
        else
            used += (size_t)snprintf(out + used, UNI_SHAPE_TEXT_SIZE - used, "%s%lld", separator,
                                     (long long)shape[i]);
    }
    snprintf(out + used, UNI_SHAPE_TEXT_SIZE - used, ndim == 1 ? ",)" : ")");
    return out;
}
