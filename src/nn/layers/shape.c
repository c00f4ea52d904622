/*
 * shape.c - the input layer and layers that only change shapes: Flatten, Reshape, Permute,
 * ZeroPadding2D. Calls are const and run on the tape's thread.
 */
#include "nn/layer.h"

#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "base/shared.h"
#include "tensor/shared.h"

/* ---- input ---- */

struct input {
    uni_spec spec;
};

static int input_infer(const uni_layer *layer, const void *self, int num_inputs,
                       const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    *output = ((const struct input *)self)->spec;
    return 0;
}

/* The model puts the data in place of this layer's output; called directly, it is the identity. */
static uni_tensor *input_call(const uni_layer *layer, const void *self, uni_tape *tape,
                              int num_inputs, uni_tensor *const *inputs)
{
    return num_inputs > 0 ? inputs[0] : NULL;
}

static int input_get_config(const uni_layer *layer, const void *self, uni_value *config,
                            uni_error *err)
{
    const uni_spec *spec = &((const struct input *)self)->spec;
    uni_value *shape = uni_value_list();
    for (int i = 0; i < spec->ndim; i++)
        if (uni_list_take(shape, spec->dims[i] < 0 ? uni_value_null()
                                                   : uni_value_int(spec->dims[i])) < 0) {
            uni_value_free(shape);
            return UNI_ENOMEM;
        }
    UNI_TRY(uni_dict_take(config, "batch_shape", shape));
    UNI_TRY(uni_dict_take(
        config, "dtype",
        uni_value_string(spec->dtype == UNI_STRING ? "string" : uni_dtype_name(spec->dtype))));
    UNI_TRY(uni_dict_take(config, "sparse", uni_value_bool(false)));
    return uni_dict_take(config, "ragged", uni_value_bool(false));
}

static int input_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    uni_spec *spec = &((struct input *)self)->spec;
    const char *dtype = uni_dict_get_string(config, "dtype", "float32");
    spec->dtype =
        strcmp(dtype, "string") == 0 ? UNI_STRING : (uni_dtype)uni__dtype_from_name(dtype);
    if (spec->dtype == 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the input's element type \"%s\" is not supported", dtype);
    UNI_TRY(uni__config_refuse(config, "sparse", NULL, err));
    UNI_TRY(uni__config_refuse(config, "ragged", NULL, err));
    int count = 0;
    if (uni_dict_get(config, "batch_shape") != NULL ||
        uni_dict_get(config, "batch_input_shape") != NULL) {
        const char *key =
            uni_dict_get(config, "batch_shape") != NULL ? "batch_shape" : "batch_input_shape";
        UNI_TRY(uni__config_get_ints(spec->dims, &count, UNI_TENSOR_MAX_DIMS, config, key, err));
    } else {
        UNI_TRY(uni__config_get_ints(spec->dims + 1, &count, UNI_TENSOR_MAX_DIMS - 1, config,
                                     "shape", err));
        count++;
    }
    if (count < 1)
        return uni_error_set(err, UNI_EFORMAT, "an input layer needs a batch_shape");
    spec->dims[0] = -1; /* a batch size fixed in Keras is not a limit here */
    spec->ndim = count;
    return 0;
}

const uni_layer_class uni__class_input = { .name = "InputLayer",
                                           UNI__LAYER_METHODS(input, struct input) };

uni_layer *uni_layer_input(uni_dtype dtype, int ndim, const int64_t *shape)
{
    uni_layer *layer = uni_layer_new(&uni__class_input);
    if (layer == NULL)
        return NULL;
    uni_spec *spec = &((struct input *)layer->self)->spec;
    if (ndim < 0 || ndim >= UNI_TENSOR_MAX_DIMS)
        return uni_layer_fail(layer, UNI_ELIMIT,
                              "an input has 0 to %d dimensions without the batch, got %d",
                              UNI_TENSOR_MAX_DIMS - 1, ndim);
    if (dtype != UNI_STRING && uni_dtype_size(dtype) == 0)
        return uni_layer_fail(layer, UNI_EDTYPE, "%d is not an element type", (int)dtype);
    *spec = (uni_spec){ .dtype = dtype, .ndim = ndim + 1 };
    spec->dims[0] = -1;
    for (int i = 0; i < ndim; i++) {
        spec->dims[i + 1] = shape[i];
        if (shape[i] < -1 || shape[i] == 0)
            return uni_layer_fail(layer, UNI_ESHAPE,
                                  "dimension %d of the input is %lld; it must be at least 1, or -1 "
                                  "where it is not known",
                                  i, (long long)shape[i]);
    }
    return layer;
}

/* ---- flatten ---- */

static int flatten_infer(const uni_layer *layer, const void *self, int num_inputs,
                         const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    int64_t size = 1;
    for (int i = 1; i < inputs->ndim; i++)
        size = inputs->dims[i] < 0 || size < 0 ? -1 : size * inputs->dims[i];
    *output = (uni_spec){ .dtype = inputs->dtype, .ndim = 2, .dims = { -1, size } };
    return 0;
}

/* Takes the batch size from the tensor, so that an empty batch keeps the other dimension. */
static uni_tensor *reshape_samples(uni_tape *tape, uni_tensor *x, int ndim, const int64_t *sample)
{
    int64_t shape[UNI_TENSOR_MAX_DIMS] = { uni_tensor_dim(x, 0) };
    int64_t known = 1, size = 1;
    int open = -1;
    for (int i = 1; i < uni_tensor_ndim(x); i++)
        size *= uni_tensor_dim(x, i);
    for (int i = 0; i < ndim; i++) {
        shape[i + 1] = sample[i];
        if (sample[i] < 0)
            open = i + 1;
        else
            known *= sample[i];
    }
    if (open >= 0 && known > 0 && size % known == 0) {
        shape[open] = size / known;
        known *= shape[open];
    }
    if (known != size || (open >= 0 && shape[open] < 0)) {
        char from[UNI__SHAPE_TEXT_SIZE], to[UNI__SHAPE_TEXT_SIZE];
        return uni_tape_fail(tape, UNI_ESHAPE, "an input of shape %s does not fit %s",
                             uni__shape_text(from, uni_tensor_ndim(x), uni_tensor_shape(x)),
                             uni__shape_text(to, ndim + 1, shape));
    }
    return uni_op_reshape(tape, x, ndim + 1, shape);
}

static uni_tensor *flatten_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                int num_inputs, uni_tensor *const *inputs)
{
    return reshape_samples(tape, inputs[0], 1, (const int64_t[]){ -1 });
}

static int flatten_get_config(const uni_layer *layer, const void *self, uni_value *config,
                              uni_error *err)
{
    return uni_dict_take(config, "data_format", uni_value_string("channels_last"));
}

static int channels_last_only(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    return uni__config_refuse(config, "data_format", "channels_last", err);
}

const uni_layer_class uni__class_flatten = { .name = "Flatten",
                                             .infer = flatten_infer,
                                             .call = flatten_call,
                                             .get_config = flatten_get_config,
                                             .set_config = channels_last_only };

/* ---- reshape ---- */

struct reshape {
    int ndim;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
};

static int reshape_infer(const uni_layer *layer, const void *self, int num_inputs,
                         const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const struct reshape *reshape = self;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    uni_spec flat;
    UNI_TRY(flatten_infer(layer, NULL, 1, inputs, &flat, err));
    int64_t known = 1, size = flat.dims[1];
    int open = -1;
    *output = (uni_spec){ .dtype = inputs->dtype, .ndim = reshape->ndim + 1, .dims = { -1 } };
    for (int i = 0; i < reshape->ndim; i++) {
        output->dims[i + 1] = reshape->shape[i];
        if (reshape->shape[i] < 0)
            open = i + 1;
        else
            known *= reshape->shape[i];
    }
    char from[UNI__SHAPE_TEXT_SIZE], to[UNI__SHAPE_TEXT_SIZE];
    if (size >= 0 && (open >= 0 ? known == 0 || size % known != 0 : known != size))
        return uni_error_set(
            err, UNI_ESHAPE, "%s cannot turn %s into %s: the numbers of elements differ",
            uni_layer_name(layer), uni__spec_text(from, inputs), uni__spec_text(to, output));
    if (open >= 0 && size >= 0)
        output->dims[open] = size / known;
    return 0;
}

static uni_tensor *reshape_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                int num_inputs, uni_tensor *const *inputs)
{
    const struct reshape *reshape = self;
    return reshape_samples(tape, inputs[0], reshape->ndim, reshape->shape);
}

static int reshape_get_config(const uni_layer *layer, const void *self, uni_value *config,
                              uni_error *err)
{
    const struct reshape *reshape = self;
    return uni__config_put_ints(config, "target_shape", reshape->ndim, reshape->shape);
}

static void reshape_check(uni_layer *layer)
{
    const struct reshape *reshape = layer->self;
    int open = 0;
    for (int i = 0; i < reshape->ndim; i++) {
        open += reshape->shape[i] == -1;
        if (reshape->shape[i] < -1 || open > 1)
            uni_layer_fail(layer, UNI_ESHAPE,
                           "a target shape has at most one -1 and no smaller number");
    }
}

static int reshape_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    struct reshape *reshape = self;
    UNI_TRY(uni__config_get_ints(reshape->shape, &reshape->ndim, UNI_TENSOR_MAX_DIMS - 1, config,
                                 "target_shape", err));
    reshape_check(layer);
    return 0;
}

const uni_layer_class uni__class_reshape = { .name = "Reshape",
                                             UNI__LAYER_METHODS(reshape, struct reshape) };

uni_layer *uni_layer_reshape(int ndim, const int64_t *shape)
{
    uni_layer *layer = uni_layer_new(&uni__class_reshape);
    if (layer == NULL)
        return NULL;
    if (ndim < 0 || ndim >= UNI_TENSOR_MAX_DIMS)
        return uni_layer_fail(layer, UNI_ELIMIT, "a target shape has at most %d dimensions, got %d",
                              UNI_TENSOR_MAX_DIMS - 1, ndim);
    struct reshape *reshape = layer->self;
    reshape->ndim = ndim;
    for (int i = 0; i < ndim; i++)
        reshape->shape[i] = shape[i];
    reshape_check(layer);
    return layer;
}

/* ---- permute ---- */

static int permute_infer(const uni_layer *layer, const void *self, int num_inputs,
                         const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const struct reshape *permute = self;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, permute->ndim + 1, permute->ndim + 1, err));
    *output = inputs[0];
    output->dtype = UNI_F32;
    for (int i = 0; i < permute->ndim; i++)
        output->dims[i + 1] = inputs->dims[permute->shape[i]];
    return 0;
}

static uni_tensor *permute_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                int num_inputs, uni_tensor *const *inputs)
{
    const struct reshape *permute = self;
    int order[UNI_TENSOR_MAX_DIMS] = { 0 };
    for (int i = 0; i < permute->ndim; i++)
        order[i + 1] = (int)permute->shape[i];
    return uni_op_transpose(tape, uni__as_float(tape, inputs[0]), order);
}

static int permute_get_config(const uni_layer *layer, const void *self, uni_value *config,
                              uni_error *err)
{
    const struct reshape *permute = self;
    return uni__config_put_ints(config, "dims", permute->ndim, permute->shape);
}

static void permute_check(uni_layer *layer)
{
    const struct reshape *permute = layer->self;
    unsigned seen = 0;
    for (int i = 0; i < permute->ndim; i++)
        seen |= permute->shape[i] >= 1 && permute->shape[i] <= permute->ndim
                    ? 1u << permute->shape[i]
                    : 0;
    if (permute->ndim < 1 || seen != (1u << (permute->ndim + 1)) - 2)
        uni_layer_fail(layer, UNI_EINVAL, "dims must have each of 1 to %d once", permute->ndim);
}

static int permute_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    struct reshape *permute = self;
    UNI_TRY(uni__config_get_ints(permute->shape, &permute->ndim, UNI_TENSOR_MAX_DIMS - 1, config,
                                 "dims", err));
    permute_check(layer);
    return 0;
}

const uni_layer_class uni__class_permute = { .name = "Permute",
                                             UNI__LAYER_METHODS(permute, struct reshape) };

uni_layer *uni_layer_permute(int ndim, const int *dims)
{
    uni_layer *layer = uni_layer_new(&uni__class_permute);
    if (layer == NULL)
        return NULL;
    struct reshape *permute = layer->self;
    permute->ndim = ndim < 0 || ndim >= UNI_TENSOR_MAX_DIMS ? 0 : ndim;
    for (int i = 0; i < permute->ndim; i++)
        permute->shape[i] = dims[i];
    permute_check(layer);
    return layer;
}

/* ---- zero padding ---- */

struct padding {
    int64_t top, bottom, left, right;
};

static int padding_infer(const uni_layer *layer, const void *self, int num_inputs,
                         const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const struct padding *padding = self;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 4, 4, err));
    *output = inputs[0];
    output->dtype = UNI_F32;
    if (inputs->dims[1] >= 0)
        output->dims[1] += padding->top + padding->bottom;
    if (inputs->dims[2] >= 0)
        output->dims[2] += padding->left + padding->right;
    return 0;
}

static uni_tensor *padding_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                int num_inputs, uni_tensor *const *inputs)
{
    const struct padding *padding = self;
    return uni_op_pad(tape, uni__as_float(tape, inputs[0]),
                      (const int64_t[]){ 0, padding->top, padding->left, 0 },
                      (const int64_t[]){ 0, padding->bottom, padding->right, 0 }, 0);
}

static int padding_get_config(const uni_layer *layer, const void *self, uni_value *config,
                              uni_error *err)
{
    const struct padding *padding = self;
    uni_value *pairs = uni_value_list();
    const int64_t numbers[2][2] = { { padding->top, padding->bottom },
                                    { padding->left, padding->right } };
    for (int i = 0; i < 2; i++) {
        uni_value *pair = uni_value_list();
        int status = uni_list_take(pair, uni_value_int(numbers[i][0]));
        status = status < 0 ? status : uni_list_take(pair, uni_value_int(numbers[i][1]));
        if (status < 0)
            uni_value_free(pair);
        status = status < 0 ? status : uni_list_take(pairs, pair);
        if (status < 0) {
            uni_value_free(pairs);
            return status;
        }
    }
    UNI_TRY(uni_dict_take(config, "padding", pairs));
    return uni_dict_take(config, "data_format", uni_value_string("channels_last"));
}

static void padding_check(uni_layer *layer)
{
    const struct padding *padding = layer->self;
    if (padding->top < 0 || padding->bottom < 0 || padding->left < 0 || padding->right < 0)
        uni_layer_fail(layer, UNI_EINVAL, "the padding must not be negative");
}

static int padding_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    struct padding *padding = self;
    UNI_TRY(uni__config_refuse(config, "data_format", "channels_last", err));
    const uni_value *value = uni_dict_get(config, "padding");
    int64_t each[2][2];
    for (size_t i = 0; i < 2; i++) {
        const uni_value *one =
            uni_value_type_of(value) == UNI_TYPE_LIST ? uni_list_get(value, i) : value;
        bool pair = uni_value_type_of(one) == UNI_TYPE_LIST;
        each[i][0] = uni_value_as_int(pair ? uni_list_get(one, 0) : one, 1);
        each[i][1] = uni_value_as_int(pair ? uni_list_get(one, 1) : one, 1);
    }
    *padding = (struct padding){ each[0][0], each[0][1], each[1][0], each[1][1] };
    padding_check(layer);
    return 0;
}

const uni_layer_class uni__class_zero_padding2d = { .name = "ZeroPadding2D",
                                                    UNI__LAYER_METHODS(padding, struct padding) };

uni_layer *uni_layer_zero_padding2d(int vertical, int horizontal)
{
    uni_layer *layer = uni_layer_new(&uni__class_zero_padding2d);
    if (layer == NULL)
        return NULL;
    *(struct padding *)layer->self = (struct padding){ vertical, vertical, horizontal, horizontal };
    padding_check(layer);
    return layer;
}
