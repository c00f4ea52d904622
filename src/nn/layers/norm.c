/*
 * norm.c - BatchNormalization, LayerNormalization (both over the last axis) and Normalization,
 * which adapts to data. Calls are const: the tape's operation updates the moving statistics. adapt
 * and build run on the building thread.
 */
#include "nn/layer.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unisono/experimental/custom_layer.h>

#include "tensor/shared.h"
#include "data/preprocess/moments.h"
#include "base/options.h"

static int infer_same(const uni_layer *layer, const void *self, int num_inputs,
                      const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 2, UNI_TENSOR_MAX_DIMS, err));
    if (layer->num_slots > 0) {
        int64_t built = uni_parameter_info_of(layer->slots[0].parameter)->shape[0],
                width = inputs->dims[inputs->ndim - 1];
        char text[UNI__SHAPE_TEXT_SIZE];
        if (width >= 0 && width != built)
            return uni_error_set(
                err, UNI_ESHAPE, "%s was built for a last dimension of %lld, got %s",
                uni_layer_name(layer), (long long)built, uni__spec_text(text, inputs));
    }
    *output = inputs[0];
    output->dtype = UNI_F32;
    return 0;
}

/* ---- batch and layer normalisation ---- */

struct norm {
    float momentum, epsilon;
    bool no_center, no_scale;
    int axis; /* from the config; checked when the rank is known */
    uni_initializer gamma_initializer, beta_initializer;
    uni_regularizer gamma_regularizer, beta_regularizer;
    uni_parameter *gamma, *beta, *moving_mean, *moving_variance;
};

static int norm_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                      uni_error *err)
{
    struct norm *norm = self;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 2, UNI_TENSOR_MAX_DIMS, err));
    UNI_TRY(uni__expect_width(layer, inputs, err));
    if (norm->axis != -1 && norm->axis != inputs->ndim - 1)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "%s: normalising axis %d is not supported, only the last one",
                             uni_layer_name(layer), norm->axis);
    const int64_t *width = &inputs->dims[inputs->ndim - 1];
    if (!norm->no_scale)
        UNI_TRY(uni_layer_add_parameter(&norm->gamma, layer, "gamma", UNI_PARAMETER_WEIGHT, 1,
                                        width, &norm->gamma_initializer, "ones",
                                        &norm->gamma_regularizer, err));
    if (!norm->no_center)
        UNI_TRY(uni_layer_add_parameter(&norm->beta, layer, "beta", UNI_PARAMETER_WEIGHT, 1, width,
                                        &norm->beta_initializer, "zeros", &norm->beta_regularizer,
                                        err));
    return 0;
}

static int batch_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                       uni_error *err)
{
    struct norm *norm = self;
    UNI_TRY(norm_build(layer, self, num_inputs, inputs, err));
    const int64_t *width = &inputs->dims[inputs->ndim - 1];
    UNI_TRY(uni_layer_add_parameter(&norm->moving_mean, layer, "moving_mean", UNI_PARAMETER_STATE,
                                    1, width, NULL, "zeros", NULL, err));
    return uni_layer_add_parameter(&norm->moving_variance, layer, "moving_variance",
                                   UNI_PARAMETER_STATE, 1, width, NULL, "ones", NULL, err);
}

static uni_tensor *batch_call(const uni_layer *layer, const void *self, uni_tape *tape,
                              int num_inputs, uni_tensor *const *inputs)
{
    const struct norm *norm = self;
    return uni_op_batch_norm(tape, uni__as_float(tape, inputs[0]),
                             norm->gamma != NULL ? uni_tape_parameter(tape, norm->gamma) : NULL,
                             norm->beta != NULL ? uni_tape_parameter(tape, norm->beta) : NULL,
                             &(uni_batch_norm_options){ .momentum = norm->momentum,
                                                        .epsilon = norm->epsilon,
                                                        .moving_mean = norm->moving_mean,
                                                        .moving_variance = norm->moving_variance,
                                                        .use_moving = layer->frozen });
}

static uni_tensor *layer_call(const uni_layer *layer, const void *self, uni_tape *tape,
                              int num_inputs, uni_tensor *const *inputs)
{
    const struct norm *norm = self;
    return uni_op_layer_norm(tape, uni__as_float(tape, inputs[0]),
                             norm->gamma != NULL ? uni_tape_parameter(tape, norm->gamma) : NULL,
                             norm->beta != NULL ? uni_tape_parameter(tape, norm->beta) : NULL, 1,
                             norm->epsilon);
}

static int norm_get_config(const uni_layer *layer, const void *self, uni_value *config,
                           uni_error *err)
{
    const struct norm *norm = self;
    UNI_TRY(uni_dict_take(config, "axis", uni_value_int(-1)));
    UNI_TRY(uni_dict_take(config, "epsilon", uni_value_float((double)norm->epsilon)));
    UNI_TRY(uni_dict_take(config, "center", uni_value_bool(!norm->no_center)));
    UNI_TRY(uni_dict_take(config, "scale", uni_value_bool(!norm->no_scale)));
    UNI_TRY(
        uni__config_put_initializer(config, "beta_initializer", &norm->beta_initializer, "zeros"));
    UNI_TRY(
        uni__config_put_initializer(config, "gamma_initializer", &norm->gamma_initializer, "ones"));
    UNI_TRY(uni__config_put_regularizer(config, "beta_regularizer", &norm->beta_regularizer));
    return uni__config_put_regularizer(config, "gamma_regularizer", &norm->gamma_regularizer);
}

static int batch_get_config(const uni_layer *layer, const void *self, uni_value *config,
                            uni_error *err)
{
    UNI_TRY(norm_get_config(layer, self, config, err));
    return uni_dict_take(config, "momentum",
                         uni_value_float((double)((const struct norm *)self)->momentum));
}

/* The moving statistics start with zeros and ones; a config that wants other values is rejected. */
static int check_start(const uni_value *config, const char *key, const char *wanted, uni_error *err)
{
    uni_initializer initializer = { 0 };
    UNI_TRY(uni__config_get_initializer(&initializer, config, key, err));
    if (initializer.name == NULL || strcasecmp(initializer.name, wanted) == 0)
        return 0;
    return uni_error_set(err, UNI_EUNSUPPORTED, "the setting \"%s\" is not supported: it is %s",
                         key, wanted);
}

static int norm_set_config(uni_layer *layer, void *self, const uni_value *config, uni_error *err)
{
    struct norm *norm = self;
    int64_t axis[UNI_TENSOR_MAX_DIMS];
    int axes = 0;
    UNI_TRY(uni__config_get_ints(axis, &axes, UNI_TENSOR_MAX_DIMS, config, "axis", err));
    if (axes > 1)
        return uni_error_set(err, UNI_EUNSUPPORTED, "normalising %d axes together is not supported",
                             axes);
    norm->axis = axes == 1 ? (int)axis[0] : -1;
    norm->momentum = (float)uni_dict_get_float(config, "momentum", 0.99);
    norm->epsilon = (float)uni_dict_get_float(config, "epsilon", 0.001);
    norm->no_center = !uni_dict_get_bool(config, "center", true);
    norm->no_scale = !uni_dict_get_bool(config, "scale", true);
    UNI_TRY(uni__config_refuse(config, "rms_scaling", NULL, err));
    UNI_TRY(check_start(config, "moving_mean_initializer", "zeros", err));
    UNI_TRY(check_start(config, "moving_variance_initializer", "ones", err));
    UNI_TRY(uni__config_refuse(config, "renorm", NULL, err));
    UNI_TRY(uni__config_refuse(config, "beta_constraint", NULL, err));
    UNI_TRY(uni__config_refuse(config, "gamma_constraint", NULL, err));
    UNI_TRY(uni__config_get_initializer(&norm->beta_initializer, config, "beta_initializer", err));
    UNI_TRY(
        uni__config_get_initializer(&norm->gamma_initializer, config, "gamma_initializer", err));
    UNI_TRY(uni__config_get_regularizer(&norm->beta_regularizer, config, "beta_regularizer", err));
    return uni__config_get_regularizer(&norm->gamma_regularizer, config, "gamma_regularizer", err);
}

const uni_layer_class uni__class_batch_normalization = { .name = "BatchNormalization",
                                                         .size = sizeof(struct norm),
                                                         .build = batch_build,
                                                         .infer = infer_same,
                                                         .call = batch_call,
                                                         .get_config = batch_get_config,
                                                         .set_config = norm_set_config };
const uni_layer_class uni__class_layer_normalization = { .name = "LayerNormalization",
                                                         .size = sizeof(struct norm),
                                                         .build = norm_build,
                                                         .infer = infer_same,
                                                         .call = layer_call,
                                                         .get_config = norm_get_config,
                                                         .set_config = norm_set_config };

static uni_layer *norm_new(const uni_layer_class *class_, const uni_norm_options *options)
{
    uni_layer *layer = uni_layer_new(class_);
    if (layer == NULL)
        return NULL;
    uni_norm_options o = options != NULL ? *options : (uni_norm_options){ 0 };
    *(struct norm *)layer->self = (struct norm){ .momentum = (float)uni__pick(o.momentum, 0.99),
                                                 .epsilon = (float)uni__pick(o.epsilon, 0.001),
                                                 .no_center = o.no_center,
                                                 .no_scale = o.no_scale,
                                                 .axis = -1 };
    const struct norm *norm = layer->self;
    if (!(norm->momentum >= 0 && norm->momentum <= 1) || !(norm->epsilon >= 0))
        uni_layer_fail(layer, UNI_EINVAL,
                       "momentum must be between 0 and 1 and epsilon not negative, got %g and %g",
                       o.momentum, o.epsilon);
    return layer;
}

uni_layer *uni_layer_batch_normalization(const uni_norm_options *options)
{
    UNI__LAYER_OPTIONS(uni_norm_options, options, no_scale, &uni__class_batch_normalization);
    return norm_new(&uni__class_batch_normalization, options);
}

uni_layer *uni_layer_layer_normalization(const uni_norm_options *options)
{
    UNI__LAYER_OPTIONS(uni_norm_options, options, no_scale, &uni__class_layer_normalization);
    return norm_new(&uni__class_layer_normalization, options);
}

/* ---- Normalization: (x - mean) / max(sqrt(variance), 1e-7) ---- */

struct normalization {
    int64_t size; /* 0 until known */
    bool given; /* mean and variance are constants of the config, not weights */
    float *mean, *variance; /* Given values, or those that adapt found before build; NULL: none. */
    uni_parameter *mean_state, *variance_state, *count_state;
};

static void normalization_free(void *self)
{
    struct normalization *normalization = self;
    free(normalization->mean);
    free(normalization->variance);
}

static int normalization_build(uni_layer *layer, void *self, int num_inputs, const uni_spec *inputs,
                               uni_error *err)
{
    struct normalization *normalization = self;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(uni__expect_rank(layer, inputs, 2, UNI_TENSOR_MAX_DIMS, err));
    UNI_TRY(uni__expect_width(layer, inputs, err));
    int64_t width = inputs->dims[inputs->ndim - 1];
    char text[UNI__SHAPE_TEXT_SIZE];
    if (normalization->size != 0 && normalization->size != width)
        return uni_error_set(
            err, UNI_ESHAPE, "%s has statistics of %lld columns, but the input is %s",
            uni_layer_name(layer), (long long)normalization->size, uni__spec_text(text, inputs));
    normalization->size = width;
    if (normalization->given)
        return 0;
    UNI_TRY(uni_layer_add_parameter(&normalization->mean_state, layer, "mean", UNI_PARAMETER_STATE,
                                    1, &width, NULL, "zeros", NULL, err));
    UNI_TRY(uni_layer_add_parameter(&normalization->variance_state, layer, "variance",
                                    UNI_PARAMETER_STATE, 1, &width, NULL, "ones", NULL, err));
    UNI_TRY(uni_layer_add_parameter(&normalization->count_state, layer, "count",
                                    UNI_PARAMETER_STATE, 0, NULL, NULL, "zeros", NULL, err));
    if (normalization->mean != NULL) {
        memcpy(uni_parameter_data(normalization->mean_state), normalization->mean,
               (size_t)width * sizeof(float));
        memcpy(uni_parameter_data(normalization->variance_state), normalization->variance,
               (size_t)width * sizeof(float));
    }
    return 0;
}

static uni_tensor *normalization_call(const uni_layer *layer, const void *self, uni_tape *tape,
                                      int num_inputs, uni_tensor *const *inputs)
{
    const struct normalization *normalization = self;
    uni_tensor *mean, *variance;
    if (normalization->given) {
        mean = uni_tape_input(tape, UNI_F32, 1, &normalization->size, normalization->mean);
        variance = uni_tape_input(tape, UNI_F32, 1, &normalization->size, normalization->variance);
    } else {
        mean = uni_tape_parameter(tape, normalization->mean_state);
        variance = uni_tape_parameter(tape, normalization->variance_state);
    }
    uni_tensor *spread =
        uni_op_clip(tape, uni_op_unary(tape, UNI_UNARY_SQRT, variance), 1e-7f, FLT_MAX);
    return uni_op_div(tape, uni_op_sub(tape, uni__as_float(tape, inputs[0]), mean), spread);
}

static int normalization_adapt(uni_layer *layer, void *self, const uni_column *data, uni_error *err)
{
    struct normalization *normalization = self;
    char text[UNI__SHAPE_TEXT_SIZE];
    uni__shape_text(text, data->ndim, data->shape);
    if (normalization->given)
        return uni_error_set(err, UNI_ESTATE,
                             "%s was given its mean and variance; it does not adapt",
                             uni_layer_name(layer));
    if (data->dtype == UNI_STRING || !uni__dtype_is_plain(data->dtype))
        return uni_error_set(err, UNI_EDTYPE, "%s adapts to numbers of 8 to 64 bits",
                             uni_layer_name(layer));
    int64_t width = data->shape[data->ndim - 1];
    if (data->ndim < 2 || width < 1 || (normalization->size != 0 && normalization->size != width))
        return uni_error_set(
            err, UNI_ESHAPE,
            "%s cannot adapt to data of shape %s: it needs (samples, ..., %lld columns)",
            uni_layer_name(layer), text, (long long)normalization->size);
    size_t rows = 1;
    for (int i = 0; i < data->ndim - 1; i++)
        rows *= (size_t)data->shape[i];
    float *mean = calloc((size_t)width, sizeof *mean),
          *variance = calloc((size_t)width, sizeof *variance);
    uni__moments moments = { 0 };
    if (mean == NULL || variance == NULL || rows == 0 ||
        uni__moments_new(&moments, (size_t)width, NULL) < 0) {
        free(mean);
        free(variance);
        return rows == 0 ? uni_error_set(err, UNI_EINVAL, "%s cannot adapt to no samples (%s)",
                                         uni_layer_name(layer), text)
                         : uni_error_set(err, UNI_ENOMEM, "%s: no memory to adapt",
                                         uni_layer_name(layer));
    }
    uni__moments_add(&moments, data->data, data->dtype, rows, false);
    for (int64_t i = 0; i < width; i++) {
        mean[i] = (float)moments.mean[i];
        variance[i] = (float)uni__moments_variance(&moments, (size_t)i);
    }
    uni__moments_free(&moments);
    normalization_free(normalization);
    normalization->mean = mean;
    normalization->variance = variance;
    normalization->size = width;
    if (layer->built) {
        memcpy(uni_parameter_data(normalization->mean_state), mean, (size_t)width * sizeof *mean);
        memcpy(uni_parameter_data(normalization->variance_state), variance,
               (size_t)width * sizeof *variance);
    }
    return 0;
}

static int put_floats(uni_value *config, const char *key, const float *numbers, int64_t count)
{
    uni_value *list = uni_value_list();
    for (int64_t i = 0; i < count; i++)
        if (uni_list_take(list, uni_value_float((double)numbers[i])) < 0) {
            uni_value_free(list);
            return UNI_ENOMEM;
        }
    return uni_dict_take(config, key, list);
}

static int normalization_get_config(const uni_layer *layer, const void *self, uni_value *config,
                                    uni_error *err)
{
    const struct normalization *normalization = self;
    UNI_TRY(uni__config_put_ints(config, "axis", 1, (const int64_t[]){ -1 }));
    UNI_TRY(uni_dict_take(config, "invert", uni_value_bool(false)));
    if (!normalization->given) {
        UNI_TRY(uni_dict_take(config, "mean", uni_value_null()));
        return uni_dict_take(config, "variance", uni_value_null());
    }
    UNI_TRY(put_floats(config, "mean", normalization->mean, normalization->size));
    return put_floats(config, "variance", normalization->variance, normalization->size);
}

static void set_given(uni_layer *layer, int64_t size)
{
    struct normalization *normalization = layer->self;
    normalization->given = true;
    normalization->size = size;
    normalization->mean = calloc((size_t)size, sizeof *normalization->mean);
    normalization->variance = calloc((size_t)size, sizeof *normalization->variance);
    if (normalization->mean == NULL || normalization->variance == NULL)
        uni_layer_fail(layer, UNI_ENOMEM, "no memory for %lld means", (long long)size);
}

static int normalization_set_config(uni_layer *layer, void *self, const uni_value *config,
                                    uni_error *err)
{
    struct normalization *normalization = self;
    int64_t axis[UNI_TENSOR_MAX_DIMS] = { -1 };
    int axes = 0;
    UNI_TRY(uni__config_refuse(config, "invert", NULL, err));
    const uni_value *given = uni_dict_get(config, "axis");
    if (given != NULL && uni_value_type_of(given) == UNI_TYPE_NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "axis=None is not supported: a mean and a variance are of one place "
                             "on the last axis; use Rescaling with one scale and offset");
    UNI_TRY(uni__config_get_ints(axis, &axes, UNI_TENSOR_MAX_DIMS, config, "axis", err));
    if (axes > 1 || (axes == 1 && axis[0] != -1))
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "Normalization of an axis other than the last is not supported");
    const uni_value *mean = uni_dict_get(config, "mean"),
                    *variance = uni_dict_get(config, "variance");
    if (uni_value_type_of(mean) == UNI_TYPE_NULL)
        return 0;
    size_t size = uni_list_size(mean);
    if (size == 0 || uni_list_size(variance) != size)
        return uni_error_set(err, UNI_EFORMAT,
                             "mean and variance must be lists of the same length, got %zu and %zu",
                             size, uni_list_size(variance));
    set_given(layer, (int64_t)size);
    UNI_TRY(uni__layer_check(layer, err));
    for (size_t i = 0; i < size; i++) {
        normalization->mean[i] = (float)uni_value_as_float(uni_list_get(mean, i), 0);
        normalization->variance[i] = (float)uni_value_as_float(uni_list_get(variance, i), 1);
    }
    return 0;
}

const uni_layer_class uni__class_normalization = { .name = "Normalization",
                                                   .size = sizeof(struct normalization),
                                                   .build = normalization_build,
                                                   .infer = infer_same,
                                                   .call = normalization_call,
                                                   .get_config = normalization_get_config,
                                                   .set_config = normalization_set_config,
                                                   .adapt = normalization_adapt,
                                                   .free = normalization_free };

uni_layer *uni_layer_normalization(int64_t size, const float *mean, const float *variance)
{
    uni_layer *layer = uni_layer_new(&uni__class_normalization);
    if (layer == NULL)
        return NULL;
    struct normalization *normalization = layer->self;
    if (size < 0 || (mean != NULL) != (variance != NULL) || (mean != NULL && size < 1))
        return uni_layer_fail(layer, UNI_EINVAL,
                              "give both mean and variance with their size, or neither");
    if (mean == NULL) {
        normalization->size = size;
        return layer;
    }
    set_given(layer, size);
    if (layer->failure == NULL) {
        memcpy(normalization->mean, mean, (size_t)size * sizeof *mean);
        memcpy(normalization->variance, variance, (size_t)size * sizeof *variance);
    }
    return layer;
}
