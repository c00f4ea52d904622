/*
 * evaluate.c - evaluate, predict, and single batches. The same runner as fit's; the model's thread.
 */
#include "nn/model/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/log.h"
#include "base/options.h"

/* The common start of evaluate and predict, before the first batch. */
static int set_up(uni_model *model, const uni_fit_options *o, uni__fit_source *source,
                  uni__callbacks *callbacks, bool compiled, uni_error *err)
{
    if (compiled && model->compiled == NULL)
        return uni__check_compiled(model, err);
    int64_t samples = o->batches == NULL && o->x != NULL && o->num_x > 0 && o->x[0].ndim > 0
                          ? o->x[0].shape[0]
                          : 0;
    UNI_TRY(uni__fit_source_open(source, o, false, 0, 0, samples, err));
    UNI_TRY(uni__fit_source_reset(source, 0, err));
    UNI_TRY(uni__fit_source_build(source, model, err));
    if (compiled)
        UNI_TRY(uni__check_compiled(model, err));
    UNI_TRY(uni__runner_prepare(model, o->threads, o->replicas, source->batch_size, err));
    int64_t length = uni__batches_length(source->batches);
    uni_fit_info info = { .epochs = 1,
                          .steps = o->steps_per_epoch > 0 ? o->steps_per_epoch : length,
                          .samples = uni__batches_samples(source->batches),
                          .verbose = o->verbose };
    return uni__callbacks_make(callbacks, o->callbacks, o->num_callbacks, o->verbose, &info, err);
}

/* fit rejects a loss that is not finite; evaluate returns it and warns once. */
static void tell_not_finite(uni__compiled *compiled, const char *name)
{
    if (isfinite(compiled->loss) || compiled->told_not_finite)
        return;
    compiled->told_not_finite = true;
    uni__warn("evaluate: the loss of model %s is %s: a NaN or an infinity is in the data or in the "
              "weights",
              name, isnan(compiled->loss) ? "NaN" : "infinite");
}

int uni_model_evaluate(uni_value **out, uni_model *model, const uni_fit_options *options,
                       uni_error *err)
{
    UNI__OPTIONS(uni_fit_options, options, step_times, err);
    const uni_fit_options *o = options;
    uni__fit_source source = { 0 };
    uni__callbacks callbacks = { 0 };
    if (out != NULL)
        *out = NULL;
    int status = set_up(model, o, &source, &callbacks, true, err);
    if (status == 0)
        status = uni__test_source(model, &source, o, o->steps_per_epoch, NULL, &callbacks, err);
    if (status == 0)
        tell_not_finite(model->compiled, model->name);
    if (status == 0 && out != NULL)
        status = uni__results_dict(model, out, err);
    uni__callbacks_free(&callbacks);
    uni__fit_source_close(&source);
    return status;
}

/* ---- predict ---- */

/* One output of all batches; grows. */
struct collected {
    uni_dtype dtype;
    int ndim;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    char *data;
    size_t size, capacity;
};

static int collect(struct collected *into, const uni_tensor *from, size_t expected, uni_error *err)
{
    size_t bytes = uni_tensor_count(from) * uni_dtype_size(uni_tensor_dtype(from));
    int ndim = uni_tensor_ndim(from);
    const int64_t *shape = uni_tensor_shape(from);
    if (into->ndim == 0) {
        into->dtype = uni_tensor_dtype(from);
        into->ndim = ndim;
        memcpy(into->shape, shape, (size_t)ndim * sizeof *shape);
        into->shape[0] = 0;
    }
    char text[UNI__SHAPE_TEXT_SIZE], other[UNI__SHAPE_TEXT_SIZE];
    if (ndim != into->ndim ||
        memcmp(into->shape + 1, shape + 1, (size_t)(ndim - 1) * sizeof *shape) != 0)
        return uni_error_set(
            err, UNI_ESHAPE,
            "predictions of two batches differ in shape: %s and %s (the first counts "
            "samples); predict them one by one",
            uni__shape_text(other, into->ndim, into->shape), uni__shape_text(text, ndim, shape));
    if (into->size + bytes > into->capacity) {
        int64_t samples = uni_tensor_dim(from, 0);
        size_t each = samples > 0 ? bytes / (size_t)samples : bytes;
        size_t whole = each * expected, capacity = 2 * (into->size + bytes);
        capacity = whole > into->size + bytes ? whole : capacity;
        char *grown = realloc(into->data, capacity);
        if (grown == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for predictions of %zu bytes",
                                 capacity);
        into->data = grown;
        into->capacity = capacity;
    }
    if (bytes > 0)
        memcpy(into->data + into->size, uni_tensor_data(from), bytes);
    into->size += bytes;
    into->shape[0] += shape[0];
    return 0;
}

static int predict_all(uni_model *model, const uni_fit_options *o, uni__fit_source *source,
                       const uni__callbacks *callbacks, struct collected *collected, uni_error *err)
{
    int status = 0;
    int64_t samples = uni__batches_samples(source->batches);
    UNI__CALLBACKS(status, callbacks, predict_begin, model, err);
    UNI_TRY(status);
    for (int64_t step = 0; o->steps_per_epoch == 0 || step < o->steps_per_epoch; step++) {
        uni_batch batch;
        int got = uni__fit_source_next(source, &batch, err);
        UNI_TRY(got);
        if (got == 0)
            break;
        UNI_TRY(uni__check_batch(model, &batch, false, err));
        UNI_TRY(uni__runner_run(model->runner,
                                &(uni__job){ .kind = UNI__RUN_PREDICT, .batch = &batch }, err));
        for (int part = 0; part < model->runner->active; part++)
            for (int i = 0; i < model->num_outputs; i++)
                UNI_TRY(collect(&collected[i], model->runner->shares[part].outputs[i],
                                samples > 0 ? (size_t)samples : 0, err));
        UNI__CALLBACKS(status, callbacks, predict_batch_end, model, step, err);
        UNI_TRY(status);
    }
    UNI__CALLBACKS(status, callbacks, predict_end, model, err);
    return status;
}

int uni_model_predict(uni_array **outputs, uni_model *model, const uni_fit_options *options,
                      uni_error *err)
{
    UNI__OPTIONS(uni_fit_options, options, step_times, err);
    const uni_fit_options *o = options;
    uni__fit_source source = { 0 };
    uni__callbacks callbacks = { 0 };
    struct collected collected[UNI_MODEL_MAX_INPUTS] = { 0 };
    int made = 0, num_outputs = uni__model_num_outputs(model);
    for (int i = 0; i < num_outputs; i++)
        outputs[i] = NULL;
    int status = set_up(model, o, &source, &callbacks, false, err);
    if (status == 0)
        status = predict_all(model, o, &source, &callbacks, collected, err);
    for (; status == 0 && made < num_outputs; made++) {
        struct collected *c = &collected[made];
        status = uni_array_new(&outputs[made], c->dtype, c->ndim, c->shape, err);
        if (status == 0 && c->size > 0)
            memcpy(uni_array_data(outputs[made]), c->data, c->size);
    }
    for (int i = 0; i < UNI_MODEL_MAX_INPUTS; i++)
        free(collected[i].data);
    for (int i = 0; status < 0 && i < num_outputs; i++) {
        uni_array_unref(outputs[i]);
        outputs[i] = NULL;
    }
    uni__callbacks_free(&callbacks);
    uni__fit_source_close(&source);
    return status;
}

/* ---- single batches ---- */

static int run_batch(uni_model *model, const uni_batch *batch, uni__run_kind kind, uni_value **logs,
                     uni_error *err)
{
    if (logs != NULL)
        *logs = NULL;
    if (model->compiled == NULL)
        return uni__check_compiled(model, err);
    if (!model->built) {
        const uni_column *x = &batch->x[0];
        uni_spec spec = { .dtype = x->dtype, .ndim = x->ndim };
        memcpy(spec.dims, x->shape, (size_t)x->ndim * sizeof *x->shape);
        spec.dims[0] = -1;
        UNI_TRY(uni_model_build(model, batch->num_x, &spec, err));
    }
    UNI_TRY(uni__check_compiled(model, err));
    UNI_TRY(uni__check_batch(model, batch, true, err));
    if (model->runner == NULL)
        UNI_TRY(uni__runner_prepare(model, 0, 0, batch->size, err));
    UNI_TRY(uni__runner_run(model->runner,
                            &(uni__job){ .kind = kind, .batch = batch, .seed = model->seed }, err));
    return logs != NULL ? uni__results_dict(model, logs, err) : 0;
}

int uni_model_train_on_batch(uni_value **logs, uni_model *model, const uni_batch *batch,
                             uni_error *err)
{
    return run_batch(model, batch, UNI__RUN_TRAIN, logs, err);
}

int uni_model_test_on_batch(uni_value **logs, uni_model *model, const uni_batch *batch,
                            uni_error *err)
{
    return run_batch(model, batch, UNI__RUN_TEST, logs, err);
}

int64_t uni__model_steps(const uni_model *model)
{
    return model->steps;
}

void uni__model_set_steps(uni_model *model, int64_t steps)
{
    model->steps = steps;
}

void uni_model_reset_metrics(uni_model *model)
{
    if (model->compiled != NULL)
        uni__compiled_reset(model->compiled);
}
