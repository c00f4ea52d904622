/*
 * shapes.c - the shapes of text that layers accept (shapes.h). Any thread.
 */
#include "nn/text/shapes.h"

#include "tensor/shared.h"

int64_t uni__text_rows(uni_tape *tape, const uni_tensor *text)
{
    int ndim = uni_tensor_ndim(text);
    if (uni_tensor_dtype(text) != UNI_STRING) {
        uni_tape_fail(tape, UNI_EDTYPE, "the layer reads text, but its input is %s",
                      uni_dtype_name(uni_tensor_dtype(text)));
        return -1;
    }
    if (ndim != 1 && (ndim != 2 || uni_tensor_dim(text, 1) != 1)) {
        char shape[UNI__SHAPE_TEXT_SIZE];
        uni_tape_fail(tape, UNI_ESHAPE, "text must come as (batch,) or (batch, 1), got %s",
                      uni__shape_text(shape, ndim, uni_tensor_shape(text)));
        return -1;
    }
    return uni_tensor_dim(text, 0);
}

int uni__text_expect(const char *name, uni_dtype dtype, int ndim, const int64_t *dims,
                     uni_error *err)
{
    if (dtype != UNI_STRING)
        return uni_error_set(
            err, UNI_EDTYPE,
            "%s reads text, but its input is %s; use uni_layer_input(UNI_STRING, 0, NULL)", name,
            uni_dtype_name(dtype));
    if (ndim != 1 && (ndim != 2 || dims[1] > 1))
        return uni_error_set(err, UNI_ESHAPE,
                             "%s takes text as (batch,) or (batch, 1), got %d dimensions", name,
                             ndim);
    return 0;
}
