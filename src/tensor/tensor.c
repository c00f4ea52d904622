/*
 * tensor.c - reads tensors and describes data: accessors, columns, shapes as text. Any thread that
 * may use the tape.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tensor/shared.h"
#include "tensor/internal.h"

const uni_tensor_info *uni_tensor_info_of(const uni_tensor *tensor)
{
    return &tensor->info;
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

const char *uni__shape_text(char out[UNI__SHAPE_TEXT_SIZE], int ndim, const int64_t *shape)
{
    size_t used = 1;
    out[0] = '(';
    for (int i = 0; i < ndim && used < UNI__SHAPE_TEXT_SIZE - 24; i++) {
        const char *separator = i ? ", " : "";
        if (shape[i] < 0)
            used += (size_t)snprintf(out + used, UNI__SHAPE_TEXT_SIZE - used, "%sNone", separator);
        else
            used += (size_t)snprintf(out + used, UNI__SHAPE_TEXT_SIZE - used, "%s%lld", separator,
                                     (long long)shape[i]);
    }
    snprintf(out + used, UNI__SHAPE_TEXT_SIZE - used, ndim == 1 ? ",)" : ")");
    return out;
}
