/*
 * merge.c - layers with several inputs: Add, Subtract, Multiply, Average, Maximum (which broadcast)
 * and Concatenate. Calls are const.
 */
#include "nn/layer.h"

#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "tensor/shared.h"

/* Broadcasts two shapes, dimension by dimension from the end; an unknown dimension matches any. */
static int broadcast(const uni_layer *layer, uni_spec *into, const uni_spec *other, uni_error *err)
{
    uni_spec result = { .dtype = UNI_F32,
                        .ndim = into->ndim > other->ndim ? into->ndim : other->ndim };
    for (int i = 1; i <= result.ndim; i++) {
        int64_t a = i <= into->ndim ? into->dims[into->ndim - i] : 1;
        int64_t b = i <= other->ndim ? other->dims[other->ndim - i] : 1;
        char left[UNI__SHAPE_TEXT_SIZE], right[UNI__SHAPE_TEXT_SIZE];
        if (a != b && a > 1 && b > 1)
            return uni_error_set(err, UNI_ESHAPE, "%s: the inputs %s and %s do not fit together",
                                 uni_layer_name(layer), uni__spec_text(left, into),
                                 uni__spec_text(right, other));
        result.dims[result.ndim - i] = a == 1 ? b : b == 1 ? a : a < 0 ? b : a;
    }
    result.dims[0] = -1;
    *into = result;
    return 0;
}

static int merge_infer(const uni_layer *layer, const void *self, int num_inputs,
                       const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 2, UNI_MODEL_MAX_INPUTS, err));
    *output = inputs[0];
    for (int i = 0; i < num_inputs; i++) {
        UNI_TRY(uni__expect_rank(layer, &inputs[i], 1, UNI_TENSOR_MAX_DIMS, err));
        UNI_TRY(broadcast(layer, output, &inputs[i], err));
    }
    return 0;
}

static uni_tensor *fold(uni_tape *tape, uni_binary kind, int num_inputs, uni_tensor *const *inputs)
{
    uni_tensor *result = uni__as_float(tape, inputs[0]);
    for (int i = 1; i < num_inputs; i++)
        result = uni_op_binary(tape, kind, result, uni__as_float(tape, inputs[i]));
    return result;
}

static uni_tensor *average_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                int num_inputs, uni_tensor *const *inputs)
{
    return uni_op_scale(tape, fold(tape, UNI_BINARY_ADD, num_inputs, inputs),
                        1.0f / (float)num_inputs, 0);
}

static int no_config(const uni_layer *layer, const void *self, uni_value *config, uni_error *err)
{
    return 0;
}

static int subtract_infer(const uni_layer *layer, const void *self, int num_inputs,
                          const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 2, 2, err));
    return merge_infer(layer, self, num_inputs, inputs, output, err);
}

#define MERGE_CLASS(symbol, class_name, kind, inferrer)                                            \
    static uni_tensor *symbol##_call(const uni_layer *layer, const void *self, uni_tape *tape,     \
                                     int num_inputs, uni_tensor *const *inputs)                    \
    {                                                                                              \
        return fold(tape, kind, num_inputs, inputs);                                               \
    }                                                                                              \
    const uni_layer_class uni__class_##symbol = {                                                  \
        .name = class_name, .infer = inferrer, .call = symbol##_call, .get_config = no_config      \
    };
MERGE_CLASS(add, "Add", UNI_BINARY_ADD, merge_infer)
MERGE_CLASS(subtract, "Subtract", UNI_BINARY_SUB, subtract_infer)
MERGE_CLASS(multiply, "Multiply", UNI_BINARY_MUL, merge_infer)
MERGE_CLASS(maximum, "Maximum", UNI_BINARY_MAXIMUM, merge_infer)

const uni_layer_class uni__class_average = {
    .name = "Average", .infer = merge_infer, .call = average_call, .get_config = no_config
};

/* ---- concatenate ---- */

struct concatenate {
    int axis;
};

static int concatenate_infer(const uni_layer *layer, const void *self, int num_inputs,
                             const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, UNI_MODEL_MAX_INPUTS, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 2, UNI_TENSOR_MAX_DIMS, err));
    int rank = inputs->ndim, given = ((const struct concatenate *)self)->axis,
        axis = given < 0 ? given + rank : given;
    char left[UNI__SHAPE_TEXT_SIZE], right[UNI__SHAPE_TEXT_SIZE];
    if (axis < 1 || axis >= rank)
        return uni_error_set(err, UNI_EINVAL,
                             "%s: the inputs %s have no axis %d to join along (the batch is none)",
                             uni_layer_name(layer), uni__spec_text(left, inputs), given);
    *output = inputs[0];
    output->dtype = UNI_F32;
    for (int i = 1; i < num_inputs; i++) {
        bool fits = inputs[i].ndim == rank;
        for (int d = 1; fits && d < rank; d++)
            fits = d == axis || inputs[i].dims[d] == inputs->dims[d] || inputs[i].dims[d] < 0 ||
                   inputs->dims[d] < 0;
        if (!fits)
            return uni_error_set(err, UNI_ESHAPE,
                                 "%s: the inputs %s and %s must be equal but for axis %d",
                                 uni_layer_name(layer), uni__spec_text(left, inputs),
                                 uni__spec_text(right, &inputs[i]), given);
        int64_t more = inputs[i].dims[axis];
        output->dims[axis] = more < 0 || output->dims[axis] < 0 ? -1 : output->dims[axis] + more;
    }
    return 0;
}

static uni_tensor *concatenate_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                    int num_inputs, uni_tensor *const *inputs)
{
    uni_tensor *floats[UNI_MODEL_MAX_INPUTS];
    for (int i = 0; i < num_inputs; i++)
        floats[i] = uni__as_float(tape, inputs[i]);
    return uni_op_concat(tape, num_inputs, floats, ((const struct concatenate *)self)->axis);
}

static int concatenate_get_config(const uni_layer *layer, const void *self, uni_value *config,
                                  uni_error *err)
{
    return uni_dict_take(config, "axis", uni_value_int(((const struct concatenate *)self)->axis));
}

static int concatenate_set_config(uni_layer *layer, void *self, const uni_value *config,
                                  uni_error *err)
{
    ((struct concatenate *)self)->axis = (int)uni_dict_get_int(config, "axis", -1);
    return 0;
}

const uni_layer_class uni__class_concatenate = {
    .name = "Concatenate", UNI__LAYER_METHODS(concatenate, struct concatenate)
};

uni_layer *uni_layer_concatenate(int axis)
{
    uni_layer *layer = uni_layer_new(&uni__class_concatenate);
    if (layer != NULL)
        ((struct concatenate *)layer->self)->axis = axis;
    return layer;
}
