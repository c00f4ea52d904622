/*
 * losses.c - losses by name, their reductions, and two helpers for custom loops
 * (compute_average_loss, scale_regularization_loss).
 *
 * A loss is a kind of uni_op_loss with its setting, or a user function. The operation reduces
 * exactly the last axis; weights and reductions follow, with Keras's rule that weights have the
 * rank of the per-sample values (no silent broadcast of (batch) along another axis). Losses are
 * const once created: any thread, each with its own tape.
 */
#include "nn/loss/loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/log.h"
#include "tensor/update.h"
#include "base/options.h"

struct loss_class {
    uni_loss_kind kind, logits_kind;
    const char *class_name, *name, *short_name, *other_name;
    bool has_logits, has_smoothing;
};

static const struct loss_class classes[] = {
    { UNI_LOSS_MSE, UNI_LOSS_MSE, "MeanSquaredError", "mean_squared_error", "mse", NULL, false,
      false },
    { UNI_LOSS_MAE, UNI_LOSS_MAE, "MeanAbsoluteError", "mean_absolute_error", "mae", NULL, false,
      false },
    { UNI_LOSS_HUBER, UNI_LOSS_HUBER, "Huber", "huber_loss", "huber", NULL, false, false },
    { UNI_LOSS_BINARY, UNI_LOSS_BINARY_LOGITS, "BinaryCrossentropy", "binary_crossentropy", "bce",
      NULL, true, true },
    { UNI_LOSS_CATEGORICAL, UNI_LOSS_CATEGORICAL_LOGITS, "CategoricalCrossentropy",
      "categorical_crossentropy", "cce", NULL, true, true },
    { UNI_LOSS_SPARSE, UNI_LOSS_SPARSE_LOGITS, "SparseCategoricalCrossentropy",
      "sparse_categorical_crossentropy", "scce", NULL, true, false },
    { UNI_LOSS_HINGE, UNI_LOSS_HINGE, "Hinge", "hinge", NULL, NULL, false, false },
    { UNI_LOSS_SQUARED_HINGE, UNI_LOSS_SQUARED_HINGE, "SquaredHinge", "squared_hinge", NULL, NULL,
      false, false },
    { UNI_LOSS_KL, UNI_LOSS_KL, "KLDivergence", "kl_divergence", "kld",
      "kullback_leibler_divergence", false, false },
};
#define NUM_CLASSES (sizeof classes / sizeof classes[0])

struct uni_loss {
    const struct loss_class *class_; /* NULL: user-defined */
    char *name;
    uni_reduction reduction;
    bool from_logits;
    float label_smoothing, delta;
    uni_loss_function function;
    void *context;
};

/* ---- constructors ---- */

static const struct loss_class *find(const char *name)
{
    for (size_t i = 0; i < NUM_CLASSES; i++) {
        const char *names[] = { classes[i].class_name, classes[i].name, classes[i].short_name,
                                classes[i].other_name };
        for (size_t j = 0; j < sizeof names / sizeof names[0]; j++)
            if (names[j] != NULL && uni__same_name(name, names[j]))
                return &classes[i];
    }
    return NULL;
}

static int unknown(const char *name, uni_error *err)
{
    const char *names[2 * NUM_CLASSES];
    size_t count = 0;
    for (size_t i = 0; i < NUM_CLASSES; i++)
        names[count++] = classes[i].name;
    for (size_t i = 0; i < NUM_CLASSES; i++)
        if (classes[i].short_name != NULL)
            names[count++] = classes[i].short_name;
    return uni__unknown_name(err, "loss", name, names, count);
}

static int check(const struct loss_class *class_, const uni_loss_options *options, uni_error *err)
{
    if (options->from_logits && !class_->has_logits)
        return uni_error_set(err, UNI_EINVAL,
                             "the loss %s has no from_logits; the cross-entropies have",
                             class_->name);
    if (options->label_smoothing != 0 && !class_->has_smoothing)
        return uni_error_set(err, UNI_EINVAL, "the loss %s has no label_smoothing", class_->name);
    if (!(options->label_smoothing >= 0 && options->label_smoothing <= 1))
        return uni_error_set(err, UNI_EINVAL, "label_smoothing of %s must be from 0 to 1, got %g",
                             class_->name, (double)options->label_smoothing);
    if (!(options->delta >= 0 || options->delta == UNI_EXACTLY_ZERO))
        return uni_error_set(err, UNI_EINVAL, "delta of the Huber loss must be above 0, got %g",
                             options->delta);
    if (options->delta != 0 && class_->kind != UNI_LOSS_HUBER)
        return uni_error_set(err, UNI_EINVAL, "the loss %s has no delta; huber has", class_->name);
    if (options->reduction < UNI_REDUCTION_AUTO ||
        options->reduction > UNI_REDUCTION_SUM_OVER_BATCH_SIZE)
        return uni_error_set(
            err, UNI_EINVAL,
            "%d is not a reduction (UNI_REDUCTION_AUTO, _NONE, _SUM, _SUM_OVER_BATCH_SIZE)",
            (int)options->reduction);
    return 0;
}

static int make(uni_loss **out, const char *name, uni_error *err)
{
    uni_loss *loss = calloc(1, sizeof *loss);
    char *copy = loss != NULL ? strdup(name) : NULL;
    if (copy == NULL) {
        free(loss);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the loss %s", name);
    }
    loss->name = copy;
    *out = loss;
    return 0;
}

int uni_loss_new(uni_loss **out, const char *name, const uni_loss_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_loss_options, options, name, err);
    const struct loss_class *class_ = name != NULL ? find(name) : NULL;
    if (class_ == NULL)
        return unknown(name != NULL ? name : "", err);
    UNI_TRY(check(class_, options, err));
    UNI_TRY(make(out, options->name != NULL ? options->name : class_->name, err));
    uni_loss *loss = *out;
    loss->class_ = class_;
    loss->reduction = options->reduction;
    loss->from_logits = options->from_logits;
    loss->label_smoothing = options->label_smoothing;
    loss->delta = options->delta == UNI_EXACTLY_ZERO ? 0
                  : options->delta != 0              ? (float)options->delta
                                                     : 1;
    return 0;
}

int uni_loss_custom(uni_loss **out, const char *name, uni_loss_function function, void *context,
                    uni_reduction reduction, uni_error *err)
{
    *out = NULL;
    if (function == NULL)
        return uni_error_set(err, UNI_EINVAL, "a loss of one's own needs a function");
    UNI_TRY(make(out, name != NULL ? name : "loss", err));
    (*out)->function = function;
    (*out)->context = context;
    (*out)->reduction = reduction;
    return 0;
}

void uni_loss_free(uni_loss *loss)
{
    if (loss == NULL)
        return;
    free(loss->name);
    free(loss);
}

const char *uni__loss_name(const uni_loss *loss)
{
    return loss->name;
}

uni_reduction uni__loss_reduction(const uni_loss *loss)
{
    return loss->reduction;
}

const char *uni__loss_class_name(const uni_loss *loss)
{
    return loss->class_ != NULL ? loss->class_->class_name : NULL;
}

/* ---- per sample ---- */

static uni_tensor *compute(const uni_loss *loss, uni_tape *tape, uni_tensor *target,
                           uni_tensor *prediction)
{
    if (loss->function != NULL)
        return loss->function(loss->context, tape, target, prediction);
    const struct loss_class *class_ = loss->class_;
    float parameter = class_->kind == UNI_LOSS_HUBER ? loss->delta : loss->label_smoothing;
    return uni_op_loss(tape, loss->from_logits ? class_->logits_kind : class_->kind, target,
                       prediction, parameter);
}

/* Accepts weights of the values' rank (dimensions equal or 1), (), or with one extra axis of 1. */
static uni_tensor *apply_weights(uni_tape *tape, uni_tensor *values, uni_tensor *weights)
{
    if (weights == NULL || values == NULL)
        return values;
    int ndim = uni_tensor_ndim(values), weights_ndim = uni_tensor_ndim(weights);
    const int64_t *shape = uni_tensor_shape(values), *weights_shape = uni_tensor_shape(weights);
    bool column = weights_ndim == ndim + 1 && weights_shape[ndim] == 1;
    bool fits = weights_ndim == 0 || weights_ndim == ndim || column;
    for (int i = 0; fits && weights_ndim > 0 && i < ndim; i++)
        fits = weights_shape[i] == shape[i] || weights_shape[i] == 1;
    if (!fits) {
        char a[UNI__SHAPE_TEXT_SIZE], b[UNI__SHAPE_TEXT_SIZE];
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "sample weights %s do not fit losses %s: give them the same number of "
                             "axes, with 1 where one weight is for all",
                             uni__shape_text(a, weights_ndim, weights_shape),
                             uni__shape_text(b, ndim, shape));
    }
    weights = uni_op_cast(tape, weights, UNI_F32);
    if (column)
        weights = uni_op_reshape(tape, weights, ndim, weights_shape);
    return uni_op_mul(tape, values, weights);
}

uni_tensor *uni_loss_per_example(const uni_loss *loss, uni_tape *tape, uni_tensor *target,
                                 uni_tensor *prediction, uni_tensor *weights)
{
    if (target == NULL || prediction == NULL)
        return NULL;
    uni__tape_enter(tape, loss->name);
    uni_tensor *values = apply_weights(tape, compute(loss, tape, target, prediction), weights);
    uni__tape_leave(tape);
    *uni__tape_per_example(tape) = values;
    return values;
}

/* ---- reductions ---- */

uni_tensor *uni_loss_call(const uni_loss *loss, uni_tape *tape, uni_tensor *target,
                          uni_tensor *prediction, uni_tensor *weights)
{
    bool averages = loss->reduction == UNI_REDUCTION_AUTO ||
                    loss->reduction == UNI_REDUCTION_SUM_OVER_BATCH_SIZE;
    if (averages && uni__tape_step(tape)->sync != NULL)
        return uni_tape_fail(
            tape, UNI_EINVAL,
            "%s: under a strategy the reduction %s is refused, because it would divide by this "
            "replica's batch only; use "
            "UNI_REDUCTION_NONE and uni_compute_average_loss with the global batch size, or "
            "UNI_REDUCTION_SUM",
            loss->name, loss->reduction == UNI_REDUCTION_AUTO ? "AUTO" : "SUM_OVER_BATCH_SIZE");
    uni_tensor *values = uni_loss_per_example(loss, tape, target, prediction, weights);
    if (values == NULL || loss->reduction == UNI_REDUCTION_NONE)
        return values;
    size_t count = uni_tensor_count(values);
    uni_tensor *sum = uni_op_sum(tape, values);
    return averages && count > 1 ? uni_op_scale(tape, sum, 1.0f / (float)count, 0) : sum;
}

uni_tensor *uni_compute_average_loss(uni_tape *tape, uni_tensor *per_example, uni_tensor *weights,
                                     int64_t global_batch_size)
{
    if (per_example == NULL)
        return NULL;
    char text[UNI__SHAPE_TEXT_SIZE];
    int ndim = uni_tensor_ndim(per_example);
    const int64_t *shape = uni_tensor_shape(per_example);
    if (ndim == 0)
        return uni_tape_fail(tape, UNI_ESHAPE,
                             "compute_average_loss wants one loss per example, got one number; "
                             "make the loss with UNI_REDUCTION_NONE");
    if (global_batch_size < 0)
        return uni_tape_fail(
            tape, UNI_EINVAL,
            "compute_average_loss: the global batch size must be positive, got %lld",
            (long long)global_batch_size);
    if (ndim > 1 && uni__tape_once(tape, UNI__ONCE_AVERAGE_LOSS)) {
        long long elements = 1;
        for (int i = 1; i < ndim; i++)
            elements *= shape[i];
        uni__warn("compute_average_loss: the per-example loss is %s, so the sum over each example "
                  "is not divided by its %lld elements; "
                  "divide the loss by %lld first to average over them",
                  uni__shape_text(text, ndim, shape), elements, elements);
    }
    uni_tensor *weighted = apply_weights(tape, per_example, weights);
    *uni__tape_per_example(tape) = weighted;
    uni_tensor *sum = uni_op_sum(tape, weighted);
    int64_t divisor = global_batch_size > 0 ? global_batch_size : shape[0] > 0 ? shape[0] : 1;
    return uni_op_scale(tape, sum, (float)(1.0 / (double)divisor), 0);
}

/* rounding: of the number that a was computed from. */
static bool near(double a, double b, double rounding)
{
    return fabs(a - b) <= 1e-5 * fabs(b) + rounding;
}

/* What the loss per example was divided by, when `value` is what came of it. */
static uni__loss_division division_of(double value, double sum, double mine, double global,
                                      int num_replicas, double rounding)
{
    double replicas = num_replicas;
    if (near(value, sum / global, rounding))
        return UNI__LOSS_DIVISION_RIGHT;
    if (near(value, sum / mine, rounding))
        return UNI__LOSS_DIVISION_BY_REPLICA;
    bool twice = near(value, sum / global / global, rounding) ||
                 near(value, sum / global / mine, rounding) ||
                 (num_replicas > 1 && near(value, sum / global / replicas, rounding));
    return twice ? UNI__LOSS_DIVISION_TWICE : UNI__LOSS_DIVISION_UNKNOWN;
}

uni__loss_division uni__loss_check_division(uni_tape *tape, const uni_tensor *loss,
                                            int64_t global_batch_size, int num_replicas)
{
    const uni_tensor *each = *uni__tape_per_example(tape);
    if (each == NULL || loss == NULL || uni_tensor_ndim(each) == 0 || global_batch_size < 2)
        return UNI__LOSS_DIVISION_UNKNOWN;
    double sum = 0, global = (double)global_batch_size, value = uni_tensor_scalar(loss);
    double mine = (double)uni_tensor_dim(each, 0);
    for (size_t i = 0; i < uni_tensor_count(each); i++)
        sum += (double)((const float *)uni_tensor_data(each))[i];
    if (sum == 0 || mine < 1)
        return UNI__LOSS_DIVISION_UNKNOWN;
    uni__loss_division how = division_of(value, sum, mine, global, num_replicas, 0);
    const uni__penalty *penalty = uni__tape_penalty(tape);
    if (how != UNI__LOSS_DIVISION_UNKNOWN || penalty->value == NULL)
        return how;
    /* With regularisation: what remains without it. */
    double rest = value - uni_tensor_scalar(penalty->value);
    how = division_of(rest, sum, mine, global, num_replicas, 3e-7 * fabs(value));
    bool often = how == UNI__LOSS_DIVISION_RIGHT && !penalty->scaled && num_replicas > 1;
    return often ? UNI__LOSS_PENALTY_UNSCALED : how;
}

uni_tensor *uni_scale_regularization_loss(uni_tape *tape, uni_tensor *loss, int num_replicas)
{
    if (num_replicas < 1)
        return uni_tape_fail(tape, UNI_EINVAL,
                             "scale_regularization_loss: there is at least 1 replica, got %d",
                             num_replicas);
    uni_tensor *scaled = uni_op_scale(tape, loss, 1.0f / (float)num_replicas, 0);
    *uni__tape_penalty(tape) = (uni__penalty){ .value = scaled, .scaled = true };
    return scaled;
}

/* ---- configs ---- */

static const char *reduction_name(uni_reduction reduction)
{
    return reduction == UNI_REDUCTION_NONE  ? NULL
           : reduction == UNI_REDUCTION_SUM ? "sum"
                                            : "sum_over_batch_size";
}

int uni__loss_get_config(const uni_loss *loss, uni_value **out, uni_error *err)
{
    *out = NULL;
    if (loss->class_ == NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the loss %s is a function of the program and cannot be saved",
                             loss->name);
    uni_value *config = uni_value_dict();
    const char *reduction = reduction_name(loss->reduction);
    int status =
        config == NULL ? UNI_ENOMEM : uni_dict_take(config, "name", uni_value_string(loss->name));
    if (status == 0)
        status = uni_dict_take(config, "reduction",
                               reduction != NULL ? uni_value_string(reduction) : uni_value_null());
    if (status == 0 && loss->class_->kind == UNI_LOSS_HUBER)
        status = uni_dict_take(config, "delta", uni_value_float((double)loss->delta));
    if (status == 0 && loss->class_->has_logits)
        status = uni_dict_take(config, "from_logits", uni_value_bool(loss->from_logits));
    if (status == 0 && loss->class_->has_smoothing)
        status = uni_dict_take(config, "label_smoothing",
                               uni_value_float((double)loss->label_smoothing));
    if (status < 0) {
        uni_value_free(config);
        return uni_error_set(err, status, "no memory for the config of the loss %s", loss->name);
    }
    *out = config;
    return 0;
}

int uni__loss_to_value(const uni_loss *loss, uni_value **out, uni_error *err)
{
    uni_value *config = NULL;
    *out = NULL;
    UNI_TRY(uni__loss_get_config(loss, &config, err));
    return uni__object_new(out, "keras.losses", loss->class_->class_name, config, err);
}

/* Options that are not supported must have their default. */
static int refuse_others(const char *class_name, const uni_value *config, uni_error *err)
{
    int64_t axis = uni_dict_get_int(config, "axis", -1);
    if (axis != -1)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the loss %s over axis %lld is not supported, only over the last",
                             class_name, (long long)axis);
    if (uni_value_type_of(uni_dict_get(config, "ignore_class")) != UNI_TYPE_NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the loss %s with ignore_class is not supported", class_name);
    return 0;
}

int uni__loss_from_config(uni_loss **out, const char *class_name, const uni_value *config,
                          uni_error *err)
{
    *out = NULL;
    UNI_TRY(refuse_others(class_name, config, err));
    const uni_value *reduction = uni_dict_get(config, "reduction");
    uni_loss_options options = {
        .from_logits = uni_dict_get_bool(config, "from_logits", false),
        .label_smoothing = (float)uni_dict_get_float(config, "label_smoothing", 0),
        .delta = uni_value_is_number(uni_dict_get(config, "delta")) &&
                         uni_dict_get_float(config, "delta", 1) == 0
                     ? UNI_EXACTLY_ZERO
                     : uni_dict_get_float(config, "delta", 0),
        .name = uni_dict_get_string(config, "name", NULL),
    };
    const char *name = uni_value_as_string(reduction, "none");
    if (reduction == NULL || uni__same_name(name, "sum_over_batch_size") ||
        uni__same_name(name, "mean"))
        options.reduction = UNI_REDUCTION_SUM_OVER_BATCH_SIZE;
    else if (uni__same_name(name, "sum"))
        options.reduction = UNI_REDUCTION_SUM;
    else if (uni__same_name(name, "none"))
        options.reduction = UNI_REDUCTION_NONE;
    else if (!uni__same_name(name, "auto"))
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "the loss %s with the reduction \"%s\" is not supported", class_name,
                             name);
    return uni_loss_new(out, class_name, &options, err);
}

int uni__loss_from_value(uni_loss **out, const uni_value *value, uni_error *err)
{
    const uni_value *config;
    const char *name = uni__object_class(value, &config);
    *out = NULL;
    if (name == NULL)
        return uni_error_set(err, UNI_EFORMAT,
                             "a loss must be a name or an object with a class_name");
    return config != NULL ? uni__loss_from_config(out, name, config, err)
                          : uni_loss_new(out, name, NULL, err);
}
