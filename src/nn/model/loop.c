/*
 * loop.c - see loop.h.
 */
#include "nn/model/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/shared.h"
#include "base/log.h"

/* Samples [begin, end) of a column of the expected length. Any other column is left alone, and the
 * batches reject it. */
static uni_column cut(const uni_column *column, int64_t samples, int64_t begin, int64_t end)
{
    uni_column part = *column;
    if (part.ndim > 0 && part.shape[0] == samples) {
        part.data = (const char *)part.data + (size_t)begin * uni_column_sample_bytes(column);
        part.shape[0] = end - begin;
    }
    return part;
}

int uni__fit_source_open(uni__fit_source *source, const uni_fit_options *options, bool shuffle,
                         uint64_t seed, int64_t begin, int64_t end, uni_error *err)
{
    *source = (uni__fit_source){ 0 };
    if (options->batches != NULL) {
        if (options->x != NULL || options->y != NULL)
            return uni_error_set(err, UNI_EINVAL,
                                 "give the data as arrays or as batches, not both");
        if (options->batch_size > 0)
            uni__warn("batch_size is ignored: the batches that were given have their own size");
        source->batches = options->batches;
        return 0;
    }
    if (options->x == NULL || options->num_x < 1)
        return uni_error_set(err, UNI_EINVAL, "there is no data: give x (and y), or batches");
    if (options->num_x > UNI_MODEL_MAX_INPUTS || options->num_y > UNI_MODEL_MAX_INPUTS)
        return uni_error_set(err, UNI_ELIMIT, "at most %d inputs and targets, got %d and %d",
                             UNI_MODEL_MAX_INPUTS, options->num_x, options->num_y);
    uni_column x[UNI_MODEL_MAX_INPUTS], y[UNI_MODEL_MAX_INPUTS], weights = { 0 };
    int num_y = options->y != NULL ? options->num_y : 0;
    int64_t samples = options->x[0].ndim > 0 ? options->x[0].shape[0] : 0;
    for (int i = 0; i < options->num_x; i++)
        x[i] = cut(&options->x[i], samples, begin, end);
    for (int i = 0; i < num_y; i++)
        y[i] = cut(&options->y[i], samples, begin, end);
    if (options->sample_weight != NULL)
        weights = cut(options->sample_weight, samples, begin, end);
    source->own = true;
    source->batch_size = options->batch_size > 0 ? options->batch_size : 32;
    return uni_batches_columns(
        &source->batches, options->num_x, x, num_y, y, weights.dtype != 0 ? &weights : NULL,
        &(uni_columns_options){
            .batch_size = options->batch_size, .shuffle = shuffle, .seed = seed },
        err);
}

void uni__fit_source_close(uni__fit_source *source)
{
    if (source->own)
        uni_batches_free(source->batches);
    *source = (uni__fit_source){ 0 };
}

int uni__fit_source_next(uni__fit_source *source, uni_batch *out, uni_error *err)
{
    if (source->has_first) {
        *out = source->first;
        source->has_first = false;
        return 1;
    }
    return uni_batches_next(out, source->batches, err);
}

int uni__fit_source_reset(uni__fit_source *source, uint64_t epoch, uni_error *err)
{
    source->has_first = false;
    return uni_batches_reset(source->batches, epoch, err);
}

int uni__fit_source_build(uni__fit_source *source, uni_model *model, uni_error *err)
{
    int got = uni_batches_next(&source->first, source->batches, err);
    UNI_TRY(got);
    source->has_first = got == 1;
    if (got == 0)
        return uni_error_set(err, UNI_EINVAL, "model %s was given an empty dataset", model->name);
    if (source->batch_size == 0)
        source->batch_size = source->first.size;
    if (model->built)
        return 0;
    uni_spec specs[UNI_MODEL_MAX_INPUTS];
    for (int i = 0; i < source->first.num_x; i++) {
        const uni_column *x = &source->first.x[i];
        specs[i] = (uni_spec){ .dtype = x->dtype, .ndim = x->ndim };
        memcpy(specs[i].dims, x->shape, (size_t)x->ndim * sizeof *x->shape);
        specs[i].dims[0] = -1;
    }
    return uni_model_build(model, source->first.num_x, specs, err);
}

/* ---- checks ---- */

int uni__check_compiled(uni_model *model, uni_error *err)
{
    if (model->compiled == NULL)
        return uni_error_set(err, UNI_ESTATE, "model %s must be compiled first (uni_model_compile)",
                             model->name);
    if (model->compiled->num_losses == 0)
        return uni_error_set(err, UNI_ESTATE, "model %s was compiled without a loss", model->name);
    return uni__compiled_bind(model, err);
}

int uni__check_batch(const uni_model *model, const uni_batch *batch, bool targets, uni_error *err)
{
    if (batch->num_x != model->num_inputs)
        return uni_error_set(err, UNI_EINVAL, "model %s has %d input%s, the data has %d",
                             model->name, model->num_inputs, model->num_inputs == 1 ? "" : "s",
                             batch->num_x);
    if (targets && batch->num_y != model->num_outputs)
        return uni_error_set(err, UNI_EINVAL, "model %s has %d output%s, the data has %d target%s",
                             model->name, model->num_outputs, model->num_outputs == 1 ? "" : "s",
                             batch->num_y, batch->num_y == 1 ? "" : "s");
    char text[UNI__SHAPE_TEXT_SIZE];
    for (int i = 0; i < batch->num_x + (targets ? batch->num_y : 0); i++) {
        const uni_column *column = i < batch->num_x ? &batch->x[i] : &batch->y[i - batch->num_x];
        if (column->dtype == 0 || column->ndim < 1 || column->shape[0] != batch->size)
            return uni_error_set(err, UNI_ESHAPE, "a batch of %lld samples has %s %d of shape %s",
                                 (long long)batch->size, i < batch->num_x ? "input" : "target",
                                 i < batch->num_x ? i : i - batch->num_x,
                                 uni__shape_text(text, column->ndim, column->shape));
    }
    if (batch->weights.dtype != 0 &&
        (batch->weights.ndim < 1 || batch->weights.shape[0] != batch->size))
        return uni_error_set(err, UNI_ESHAPE, "a batch of %lld samples has weights of shape %s",
                             (long long)batch->size,
                             uni__shape_text(text, batch->weights.ndim, batch->weights.shape));
    return 0;
}

static int check_finite(const uni_column *column, const char *what, int index, int64_t step,
                        uni_error *err)
{
    if ((column->dtype != UNI_F32 && column->dtype != UNI_F64) || column->shape[0] == 0)
        return 0;
    size_t size = uni_dtype_size(column->dtype), each = uni_column_sample_bytes(column) / size;
    for (size_t i = 0; i < each * (size_t)column->shape[0]; i++) {
        double value = column->dtype == UNI_F32 ? (double)((const float *)column->data)[i]
                                                : ((const double *)column->data)[i];
        if (!isfinite(value))
            return uni_error_set(err, UNI_EINVAL,
                                 "batch %lld: %s %d has %s in sample %zu of the batch, element "
                                 "%zu; clean the data (or end "
                                 "training in Keras's way with the callback TerminateOnNaN)",
                                 (long long)step, what, index, isnan(value) ? "NaN" : "an infinity",
                                 i / each, i % each);
    }
    return 0;
}

int uni__check_finite(const uni_batch *batch, int64_t step, uni_error *err)
{
    for (int i = 0; i < batch->num_x; i++)
        UNI_TRY(check_finite(&batch->x[i], "input", i, step, err));
    for (int i = 0; i < batch->num_y; i++)
        UNI_TRY(check_finite(&batch->y[i], "target", i, step, err));
    return batch->weights.dtype != 0 ? check_finite(&batch->weights, "weights", 0, step, err) : 0;
}

/* ---- tests ---- */

int uni__test_source(uni_model *model, uni__fit_source *source, const uni_fit_options *options,
                     int64_t steps, const uni__updater *updater, const uni__callbacks *callbacks,
                     uni_error *err)
{
    int status = 0;
    double values[64];
    uni__compiled_reset(model->compiled);
    UNI__CALLBACKS(status, callbacks, test_begin, model, err);
    UNI_TRY(status);
    const uni_logs logs = { (size_t)model->compiled->num_names,
                            (const char *const *)model->compiled->names, values };
    bool logged = model->compiled->num_names <= 64;
    for (int64_t step = 0; steps == 0 || step < steps; step++) {
        uni_batch batch;
        int got = uni__fit_source_next(source, &batch, err);
        UNI_TRY(got);
        if (got == 0)
            break;
        UNI_TRY(uni__check_batch(model, &batch, true, err));
        UNI_TRY(uni__runner_run(model->runner,
                                &(uni__job){ .kind = UNI__RUN_TEST,
                                             .batch = &batch,
                                             .class_weight = options->class_weight,
                                             .num_classes = options->num_classes },
                                err));
        if (callbacks->batch_logs && logged) {
            uni__compiled_results(model->compiled, model->num_outputs, values);
            UNI__CALLBACKS(status, callbacks, test_batch_end, model, step, &logs, err);
            UNI_TRY(status);
        }
    }
    if (updater != NULL)
        status = uni__runner_reduce_totals(model->runner, updater, UNI__WISH_NONE, err);
    if (status != 0)
        return status;
    if (logged)
        uni__compiled_results(model->compiled, model->num_outputs, values);
    UNI__CALLBACKS(status, callbacks, test_end, model, logged ? &logs : &(uni_logs){ 0 }, err);
    return status;
}

int uni__results_dict(const uni_model *model, uni_value **out, uni_error *err)
{
    const uni__compiled *compiled = model->compiled;
    double *values = calloc((size_t)compiled->num_names, sizeof *values);
    uni_value *dict = uni_value_dict();
    int status = values == NULL || dict == NULL ? UNI_ENOMEM : 0;
    if (status == 0)
        uni__compiled_results(compiled, model->num_outputs, values);
    for (int i = 0; status == 0 && i < compiled->num_names; i++)
        status = uni_dict_take(dict, compiled->names[i], uni_value_float(values[i]));
    free(values);
    if (status < 0) {
        uni_value_free(dict);
        return uni_error_set(err, status, "no memory for the results of model %s", model->name);
    }
    *out = dict;
    return 0;
}
