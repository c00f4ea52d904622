/*
 * fit.c - the training loop of uni_model_fit: epochs, batches, validation, callbacks, history.
 *
 * uni__runner_run does each step; this file does the bookkeeping. Logs are arrays that are
 * allocated once: the names of the compiled losses and metrics, those of the phases' times if
 * requested, and the first group again with the prefix "val_". A step allocates nothing. The
 * model's thread.
 */
#include "nn/model/loop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/options.h"

static const char *const phase_names[UNI__PHASES] = { "input_ms", "forward_ms", "backward_ms",
                                                      "update_ms" };

struct fit {
    uni_model *model;
    const uni_fit_options *options;
    const uni__updater *updater; /* for several processes; NULL: alone */
    uni_fit_options validation_options;
    uint64_t seed;
    uni__fit_source train, validation;
    bool has_validation, exhausted, checks_nan, paused;
    uni__moment moment; /* the current position; with callbacks and history */
    uni_fit_info info;
    /* Logs: results, times, results of the validation. */
    char **names;
    double *values;
    int num_results, num_times, num_names;
    double phases[UNI__PHASES]; /* nanoseconds in this epoch */
    int64_t steps; /* in this epoch */
    uni__text trace;
    uint64_t trace_begin;
};

/* ---- setup ---- */

static int open_sources(struct fit *fit, uni_error *err)
{
    const uni_fit_options *o = fit->options;
    int64_t samples = o->batches == NULL && o->x != NULL && o->num_x > 0 && o->x[0].ndim > 0
                          ? o->x[0].shape[0]
                          : 0;
    fit->validation_options = *o;
    uni_fit_options *v = &fit->validation_options;
    v->batch_size = o->validation_batch_size > 0 ? o->validation_batch_size
                    : o->batches == NULL         ? o->batch_size
                                                 : 0;
    v->class_weight = NULL; /* as Keras: training only */
    if (o->validation_batches != NULL || o->validation_x != NULL) {
        v->batches = o->validation_batches;
        v->x = o->validation_x;
        v->y = o->validation_y;
        v->sample_weight = o->validation_weight;
        int64_t all = v->x != NULL && v->x[0].ndim > 0 ? v->x[0].shape[0] : 0;
        if (v->batches != NULL)
            v->batch_size = 0;
        UNI_TRY(uni__fit_source_open(&fit->validation, v, false, 0, 0, all, err));
    }
    fit->has_validation = fit->validation.batches != NULL;
    return uni__fit_source_open(&fit->train, o, !o->no_shuffle, fit->seed, 0, samples, err);
}

static int make_logs(struct fit *fit, uni_error *err)
{
    const uni__compiled *compiled = fit->model->compiled;
    fit->num_results = compiled->num_names;
    fit->num_times = fit->options->step_times ? UNI__PHASES : 0;
    int total = 2 * fit->num_results + fit->num_times;
    fit->names = calloc((size_t)total, sizeof *fit->names);
    fit->values = calloc((size_t)total, sizeof *fit->values);
    fit->moment.history = uni_value_dict();
    bool complete = fit->names != NULL && fit->values != NULL && fit->moment.history != NULL;
    for (int i = 0; complete && i < total; i++) {
        int validation = i - fit->num_results - fit->num_times;
        const char *name = i < fit->num_results ? compiled->names[i]
                           : validation < 0     ? phase_names[i - fit->num_results]
                                                : compiled->names[validation];
        size_t size = strlen(name) + 5;
        fit->names[i] = malloc(size);
        complete = fit->names[i] != NULL;
        if (complete)
            snprintf(fit->names[i], size, "%s%s", validation >= 0 ? "val_" : "", name);
    }
    fit->num_names = total;
    return complete ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for the logs of fit");
}

static int check_options(const uni_fit_options *o, uni_error *err)
{
    if ((o->epochs < 0 && o->epochs != UNI_NO_EPOCHS) || o->initial_epoch < 0 ||
        o->steps_per_epoch < 0 || o->batch_size < 0 || o->validation_freq < 0)
        return uni_error_set(err, UNI_EINVAL,
                             "epochs, initial_epoch, steps_per_epoch, batch_size and "
                             "validation_freq must not be negative");
    if (o->class_weight != NULL && o->num_classes < 1)
        return uni_error_set(err, UNI_EINVAL,
                             "class_weight needs num_classes, the number of weights");
    if (o->num_callbacks > 0 && o->callbacks == NULL)
        return uni_error_set(err, UNI_EINVAL, "num_callbacks is %d, but callbacks is NULL",
                             o->num_callbacks);
    if (o->threads < 0 || o->replicas < 0)
        return uni_error_set(err, UNI_EINVAL,
                             "threads %d and replicas %d must not be below 0 (0: chosen)",
                             o->threads, o->replicas);
    return 0;
}

static int epochs_of(const uni_fit_options *o)
{
    return o->epochs == UNI_NO_EPOCHS ? 0 : o->epochs != 0 ? o->epochs : 1;
}

/* Epochs are read in sequence if each is read to its end. */
static int begin_epoch(struct fit *fit, int epoch, uni_error *err)
{
    const uni_fit_options *o = fit->options;
    uni_batches *batches = fit->train.batches;
    if (o->steps_per_epoch == 0 || o->steps_per_epoch == uni__batches_length(batches))
        uni__batches_expect(batches, (uint64_t)epoch, (uint64_t)epochs_of(o));
    fit->moment.next = (uni__place){ .reset = epoch };
    return uni__fit_source_reset(&fit->train, (uint64_t)epoch, err);
}

static int next_batch(struct fit *fit, uni_batch *out, uni_error *err)
{
    int got = uni__fit_source_next(&fit->train, out, err);
    fit->moment.next.batch += got == 1;
    return got;
}

static int set_up(struct fit *fit, uni_error *err)
{
    const uni_fit_options *o = fit->options;
    uni_model *model = fit->model;
    UNI_TRY(check_options(o, err));
    if (model->compiled == NULL)
        return uni__check_compiled(model, err);
    fit->seed = o->seed != 0 ? o->seed : model->seed;
    UNI_TRY(open_sources(fit, err));
    UNI_TRY(begin_epoch(fit, o->initial_epoch, err));
    UNI_TRY(uni__fit_source_build(&fit->train, model, err));
    UNI_TRY(uni__check_compiled(model, err));
    UNI_TRY(uni__check_batch(model, &fit->train.first, true, err));
    int replicas = o->replicas > 0 ? o->replicas : fit->updater != NULL ? 1 : 0;
    UNI_TRY(uni__runner_prepare(model, o->threads, replicas, fit->train.batch_size, err));
    UNI_TRY(make_logs(fit, err));
    int64_t length = uni__batches_length(fit->train.batches);
    fit->info = (uni_fit_info){ .epochs = epochs_of(o),
                                .initial_epoch = o->initial_epoch,
                                .steps = o->steps_per_epoch > 0 ? o->steps_per_epoch : length,
                                .samples = uni__batches_samples(fit->train.batches),
                                .verbose = o->verbose,
                                .has_validation = fit->has_validation };
    UNI_TRY(uni__callbacks_make(&fit->moment.callbacks, o->callbacks, o->num_callbacks, o->verbose,
                                &fit->info, err));
    fit->checks_nan = !uni__callbacks_has(&fit->moment.callbacks, "TerminateOnNaN");
    if (o->trace != NULL)
        uni__text_add_string(&fit->trace, "{\"traceEvents\":[\n");
    fit->trace_begin = uni__monotonic_ns();
    return 0;
}

static void tear_down(struct fit *fit)
{
    uni__fit_source_close(&fit->train);
    uni__fit_source_close(&fit->validation);
    uni__callbacks_free(&fit->moment.callbacks);
    for (int i = 0; fit->names != NULL && i < fit->num_names; i++)
        free(fit->names[i]);
    free(fit->names);
    free(fit->values);
    uni_value_free(fit->moment.history);
    uni__text_free(&fit->trace);
}

/* ---- logs ---- */

static void read_results(struct fit *fit)
{
    uni__compiled_results(fit->model->compiled, fit->model->num_outputs, fit->values);
    for (int i = 0; i < fit->num_times; i++)
        fit->values[fit->num_results + i] =
            fit->steps > 0 ? fit->phases[i] / (double)fit->steps / 1e6 : 0;
}

static uni_logs logs_of(const struct fit *fit, bool validation)
{
    int count = fit->num_results + fit->num_times + (validation ? fit->num_results : 0);
    return (uni_logs){ (size_t)count, (const char *const *)fit->names, fit->values };
}

static int remember(struct fit *fit, const uni_logs *logs, uni_error *err)
{
    for (size_t i = 0; i < logs->count; i++) {
        if (uni_dict_get(fit->moment.history, logs->names[i]) == NULL &&
            uni_dict_take(fit->moment.history, logs->names[i], uni_value_list()) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the history");
        uni_value *list = (uni_value *)(uintptr_t)uni_dict_get(fit->moment.history, logs->names[i]);
        if (uni_list_take(list, uni_value_float(logs->values[i])) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the history");
    }
    return 0;
}

/* ---- the Chrome trace ---- */

static void trace_phases(struct fit *fit, uint64_t input_begin)
{
    static const char *const names[UNI__PHASES] = { "input", "forward", "backward", "update" };
    const uni__runner *runner = fit->model->runner;
    uint64_t at = input_begin;
    for (int i = 0; i < UNI__PHASES; i++) {
        at = i == UNI__PHASE_FORWARD ? runner->began : at;
        uni__text_add_format(&fit->trace,
                             "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%.3f,"
                             "\"dur\":%.3f,\"args\":{\"step\":%lld}},\n",
                             names[i], (double)(at - fit->trace_begin) / 1e3,
                             (double)runner->phases[i] / 1e3, (long long)fit->model->steps - 1);
        at += runner->phases[i];
    }
}

static int write_trace(struct fit *fit, uni_error *err)
{
    if (fit->options->trace == NULL)
        return 0;
    uni__text_add_string(&fit->trace, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{"
                                      "\"name\":\"unisono fit\"}}\n]}\n");
    if (fit->trace.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the trace %s", fit->options->trace);
    return uni__write_file(fit->options->trace, fit->trace.data, fit->trace.size, false, err);
}

/* ---- the loop ---- */

static uni__wish wish_of(const uni_model *model)
{
    return (model->stopping ? UNI__WISH_STOP : 0) + (model->pausing ? UNI__WISH_PAUSE : 0);
}

/* Runs one step. From then on the moment records which batches wait for their update. */
static int run_batch(struct fit *fit, uni_batch *batch, uni_error *err)
{
    const uni_fit_options *o = fit->options;
    uni_model *model = fit->model;
    uni__moment *moment = &fit->moment;
    if (model->runner->pending == 0) {
        moment->first_waiting = moment->next;
        moment->first_waiting.batch--; /* it was already taken */
        moment->waiting_steps = model->steps;
        moment->knows_waiting = true;
    }
    for (int status = UNI__STEP_RECUT; status == UNI__STEP_RECUT;) {
        status = uni__runner_run(model->runner,
                                 &(uni__job){ .kind = UNI__RUN_TRAIN,
                                              .batch = batch,
                                              .seed = fit->seed,
                                              .class_weight = o->class_weight,
                                              .num_classes = o->num_classes,
                                              .updater = fit->updater,
                                              .wish = wish_of(model) },
                                 err);
        UNI_TRY(status);
        if (status == UNI__STEP_RECUT) {
            UNI_TRY(fit->updater->recut(fit->updater->context, fit->train.batches, batch, err));
            UNI_TRY(uni__check_batch(model, batch, true, err));
        }
    }
    moment->waiting = moment->knows_waiting ? model->runner->pending : 0;
    return 0;
}

static int train_batch(struct fit *fit, uni_batch *batch, uint64_t input_begin, uni_error *err)
{
    uni_model *model = fit->model;
    uni__runner *runner = model->runner;
    int status = 0;
    UNI_TRY(uni__check_batch(model, batch, true, err));
    UNI__CALLBACKS(status, &fit->moment.callbacks, batch_begin, model, fit->steps, err);
    UNI_TRY(status);
    uint64_t input = uni__monotonic_ns() - input_begin;
    UNI_TRY(run_batch(fit, batch, err));
    runner->phases[UNI__PHASE_INPUT] = input;
    for (int i = 0; i < UNI__PHASES; i++)
        fit->phases[i] += (double)runner->phases[i];
    if (fit->options->trace != NULL)
        trace_phases(fit, input_begin);
    if (fit->checks_nan && !isfinite(model->compiled->loss))
        UNI_TRY(uni__check_finite(batch, fit->steps, err));
    if (runner->stopping)
        model->stopping = true;
    fit->steps++;
    if (fit->moment.callbacks.batch_logs) {
        read_results(fit);
        uni_logs logs = logs_of(fit, false);
        UNI__CALLBACKS(status, &fit->moment.callbacks, batch_end, model, fit->steps - 1, &logs,
                       err);
        UNI_TRY(status);
    }
    fit->moment.batch = fit->steps;
    if (fit->moment.callbacks.after_batch)
        UNI__CALLBACKS(status, &fit->moment.callbacks, after_batch, model, fit->steps - 1, err);
    return status;
}

/* All processes stop in the middle of an epoch at the same step: alone at once, in a group when the
 * flag comes back with a step. */
static bool stops_now(const struct fit *fit)
{
    return fit->updater == NULL ? fit->model->stopping : fit->model->runner->stopping;
}

/* ---- resuming from a state ---- */

static int go_to(struct fit *fit, uni__place place, uni_error *err)
{
    UNI_TRY(begin_epoch(fit, (int)place.reset, err));
    for (int got = 1; got == 1 && fit->moment.next.batch < place.batch;) {
        uni_batch batch;
        got = next_batch(fit, &batch, err);
        UNI_TRY(got);
    }
    return 0;
}

static int run_waiting(struct fit *fit, uni__place from, int count, uni__place next, uni_error *err)
{
    UNI_TRY(go_to(fit, from, err));
    for (int i = 0; i < count; i++) {
        uni_batch batch;
        int got = next_batch(fit, &batch, err);
        if (got == 0) { /* the batches continue in the next epoch */
            int64_t reset =
                fit->options->steps_per_epoch > 0 ? next.reset : fit->moment.next.reset + 1;
            UNI_TRY(begin_epoch(fit, (int)reset, err));
            got = next_batch(fit, &batch, err);
        }
        UNI_TRY(got);
        if (got == 0)
            return uni_error_set(err, UNI_EMISMATCH,
                                 "the data has fewer batches than the fit that was interrupted");
        UNI_TRY(uni__check_batch(fit->model, &batch, true, err));
        UNI_TRY(run_batch(fit, &batch, err));
    }
    return 0;
}

/* Recomputes the gradients of batches that waited for their update. Totals and moving averages
 * already include them, and callbacks have seen them. */
static int repeat_waiting(struct fit *fit, uni_error *err)
{
    uni_model *model = fit->model;
    uni__moment was = fit->moment;
    size_t size = 0;
    float *states = uni__parameters_states(model->build.store, &size);
    float *copy = size > 0 ? malloc(size * sizeof *copy) : NULL;
    bool stopping = model->stopping;
    int64_t steps = model->steps;
    uni_value *totals = NULL;
    int status =
        size > 0 && copy == NULL
            ? uni_error_set(err, UNI_ENOMEM, "no memory to go on with model %s", model->name)
            : uni__totals_get(model, &totals, err);
    if (status == 0 && size > 0)
        memcpy(copy, states, size * sizeof *copy);
    model->steps = was.waiting_steps;
    if (status == 0)
        status = run_waiting(fit, was.first_waiting, was.waiting, was.next, err);
    if (status == 0 && (model->steps != steps || model->runner->pending != was.waiting))
        status = uni_error_set(err, UNI_EMISMATCH,
                               "the state of a fit has %d batches that wait for an update, which "
                               "model %s does not: compile it with the same "
                               "gradient_accumulation_steps",
                               was.waiting, model->name);
    if (status == 0)
        status = uni__totals_set(model, totals, err);
    if (status == 0 && size > 0)
        memcpy(states, copy, size * sizeof *copy);
    model->stopping = stopping;
    fit->moment.next = was.next;
    uni_value_free(totals);
    free(copy);
    return status;
}

static int go_on(struct fit *fit, uni_error *err)
{
    uni__place next = fit->moment.next;
    uni__runner_forget(fit->model->runner);
    if (fit->moment.waiting > 0)
        UNI_TRY(repeat_waiting(fit, err));
    return go_to(fit, next, err);
}

/* ---- epochs ---- */

static int train_epoch(struct fit *fit, int epoch, bool fresh, uni_error *err)
{
    const uni_fit_options *o = fit->options;
    memset(fit->phases, 0, sizeof fit->phases);
    fit->steps = fit->moment.batch; /* if > 0, trained before the interruption */
    if (fit->steps == 0)
        uni__compiled_reset(fit->model->compiled);
    for (;;) {
        uni_batch batch;
        if (o->steps_per_epoch > 0 && fit->steps >= o->steps_per_epoch)
            return 0;
        uint64_t begin = uni__monotonic_ns();
        int got = next_batch(fit, &batch, err);
        if (got == 0 && o->steps_per_epoch > 0 && fit->steps == 0 && !fresh) {
            /* The previous epoch ended with the last batch of the data. */
            UNI_TRY(begin_epoch(fit, epoch, err));
            got = next_batch(fit, &batch, err);
        }
        UNI_TRY(got);
        if (got == 0) {
            fit->exhausted = true;
            if (o->steps_per_epoch > 0)
                uni__warn("the data ended after %lld of %lld steps of epoch %d",
                          (long long)fit->steps, (long long)o->steps_per_epoch, epoch + 1);
            return 0;
        }
        UNI_TRY(train_batch(fit, &batch, begin, err));
        if (stops_now(fit) || uni__model_is_pausing(fit->model))
            return 0;
    }
}

static int validate(struct fit *fit, uni_error *err)
{
    for (int status = UNI__STEP_RECUT; status == UNI__STEP_RECUT;) {
        UNI_TRY(uni__fit_source_reset(&fit->validation, 0, err));
        status = uni__test_source(fit->model, &fit->validation, &fit->validation_options,
                                  fit->options->validation_steps, fit->updater,
                                  &fit->moment.callbacks, err);
        UNI_TRY(status);
    }
    if (fit->model->compiled->samples == 0)
        return uni_error_set(err, UNI_EINVAL, "model %s was given an empty validation dataset",
                             fit->model->name);
    uni__compiled_results(fit->model->compiled, fit->model->num_outputs,
                          fit->values + fit->num_results + fit->num_times);
    return 0;
}

/* For callbacks, an epoch that was interrupted begins again. But its learning rate was already
 * chosen: a scheduler that multiplies the current rate must not do so twice. */
static int begin_for_callbacks(struct fit *fit, int epoch, uni_error *err)
{
    int status = 0;
    uni_optimizer *optimizer = uni_model_optimizer(fit->model);
    double rate = fit->moment.batch > 0 ? uni_optimizer_learning_rate(optimizer, NULL) : NAN;
    UNI__CALLBACKS(status, &fit->moment.callbacks, epoch_begin, fit->model, epoch, err);
    UNI_TRY(status);
    if (isnan(rate))
        return 0;
    status = uni_optimizer_set_learning_rate(optimizer, rate, NULL);
    return status == UNI_ESTATE ? 0 : status; /* a schedule sets its own rate */
}

static int run_epoch(struct fit *fit, int epoch, bool fresh, uni_error *err)
{
    const uni_fit_options *o = fit->options;
    int status = 0, every = o->validation_freq > 0 ? o->validation_freq : 1;
    UNI_TRY(begin_for_callbacks(fit, epoch, err));
    UNI_TRY(train_epoch(fit, epoch, fresh, err));
    fit->paused = fit->steps > 0 && uni__model_is_pausing(fit->model);
    if (fit->paused)
        return 0;
    if (fit->updater != NULL && fit->updater->epoch_ended != NULL)
        UNI_TRY(fit->updater->epoch_ended(fit->updater->context, fit->model, err));
    if (fit->steps == 0)
        return uni_error_set(err, UNI_EINVAL, "model %s was given an empty dataset",
                             fit->model->name);
    read_results(fit);
    bool validates = fit->has_validation && (epoch + 1) % every == 0;
    if (validates)
        UNI_TRY(validate(fit, err));
    /* Prefetches the validation data while the next epoch trains. */
    if (validates && epoch + every < fit->info.epochs &&
        fit->validation.batches != fit->train.batches)
        uni__batches_expect(fit->validation.batches, 0, 1); /* read while the next epoch trains */
    uni_logs logs = logs_of(fit, validates);
    UNI_TRY(remember(fit, &logs, err));
    UNI__CALLBACKS(status, &fit->moment.callbacks, epoch_end, fit->model, epoch, &logs, err);
    UNI_TRY(status);
    if (fit->updater != NULL) { /* if one process stops at the end of an epoch, all do */
        do
            status = uni__runner_reduce_totals(
                fit->model->runner, fit->updater,
                fit->model->stopping ? UNI__WISH_STOP : UNI__WISH_NONE, err);
        while (status == UNI__STEP_RECUT);
        UNI_TRY(status);
        fit->model->stopping = fit->model->runner->stopping;
    }
    fit->moment.epoch = epoch + 1;
    fit->moment.batch = 0;
    if (o->steps_per_epoch == 0 || fit->exhausted)
        fit->moment.next = (uni__place){ .reset = epoch + 1 };
    UNI__CALLBACKS(status, &fit->moment.callbacks, after_epoch, fit->model, epoch, &logs, err);
    return status;
}

/* A resumed state carries the seed of the model that was trained before, which determines the order
 * of the samples. */
static int follow_seed(struct fit *fit, uni_error *err)
{
    uint64_t seed = fit->options->seed != 0 ? fit->options->seed : fit->model->seed;
    if (seed == fit->seed)
        return 0;
    fit->seed = seed;
    uni__fit_source_close(&fit->train);
    uni__fit_source_close(&fit->validation);
    return open_sources(fit, err); /* go_on finds the position in them */
}

/* Restores the last values of the history, for a resumed fit that has nothing left to train. */
static void recall_logs(struct fit *fit)
{
    for (int i = 0; i < fit->num_names; i++) {
        const uni_value *list = uni_dict_get(fit->moment.history, fit->names[i]);
        size_t size = uni_list_size(list);
        if (size > 0)
            fit->values[i] = uni_value_as_float(uni_list_get(list, size - 1), 0);
    }
}

static int tell_paused(const struct fit *fit, uni_error *err)
{
    const uni__moment *moment = &fit->moment;
    return uni_error_set(err, UNI_EPREEMPTED,
                         "fit stopped after %lld steps of epoch %d of %d, as the run was told to: "
                         "resume the run to go on from there",
                         (long long)moment->batch, moment->epoch + 1, fit->info.epochs);
}

static int run(struct fit *fit, uni_error *err)
{
    uni_model *model = fit->model;
    int status = 0;
    model->stopping = model->pausing = false;
    model->moment = &fit->moment;
    fit->moment.updater = fit->updater;
    fit->moment.length = fit->info.steps;
    fit->moment.samples = fit->updater == NULL ? fit->info.samples : -1;
    fit->moment.first_epoch = fit->moment.epoch = fit->info.initial_epoch;
    UNI__CALLBACKS(status, &fit->moment.callbacks, train_begin, model, &fit->info, err);
    UNI_TRY(status);
    UNI_TRY(uni__moment_resume(&fit->moment, model, fit->info.initial_epoch, err));
    UNI_TRY(follow_seed(fit, err));
    recall_logs(fit);
    int first = fit->moment.epoch;
    for (int epoch = first; epoch < fit->info.epochs && !model->stopping && !fit->paused; epoch++) {
        bool goes_on = fit->moment.resumed && epoch == first;
        bool fresh =
            fit->options->steps_per_epoch == 0 || fit->exhausted || (epoch == first && !goes_on);
        if (goes_on)
            UNI_TRY(go_on(fit, err));
        else if (fresh && !(epoch == fit->info.initial_epoch && fit->train.has_first))
            UNI_TRY(begin_epoch(fit, epoch, err));
        fit->exhausted = false;
        UNI_TRY(run_epoch(fit, epoch, fresh, err));
        fit->paused |= model->pausing && model->stopping && epoch + 1 < fit->info.epochs;
    }
    if (fit->paused) /* callbacks have not seen the end: they go on elsewhere */
        return tell_paused(fit, err);
    uni_logs logs = logs_of(fit, fit->has_validation);
    UNI__CALLBACKS(status, &fit->moment.callbacks, train_end, model, &logs, err);
    return status;
}

int uni_model_fit(uni_value **history, uni_model *model, const uni_fit_options *options,
                  uni_error *err)
{
    UNI__OPTIONS(uni_fit_options, options, step_times, err);
    return uni__model_fit(model, options, NULL, history, err);
}

int uni__model_fit(uni_model *model, const uni_fit_options *options, const uni__updater *updater,
                   uni_value **history, uni_error *err)
{
    uni_fit_options asked = options != NULL ? *options : (uni_fit_options){ 0 };
    uni__fit_halves halves;
    struct fit fit = { .model = model, .options = &asked, .updater = updater };
    int status = uni__fit_split(&asked, &halves, err);
    if (status == 0)
        status = set_up(&fit, err);
    if (history != NULL)
        *history = NULL;
    if (status == 0)
        status = run(&fit, err);
    model->moment = NULL;
    if (status == 0)
        status = write_trace(&fit, err);
    if (status == 0 && history != NULL) {
        *history = fit.moment.history;
        fit.moment.history = NULL;
    }
    tear_down(&fit);
    return status;
}

void uni_model_stop_training(uni_model *model)
{
    model->stopping = true;
}

int uni__model_epoch(const uni_model *model)
{
    return model->moment != NULL ? model->moment->epoch : 0;
}

bool uni__model_can_pause(const uni_model *model)
{
    const uni__moment *moment = model->moment;
    return moment != NULL && (moment->updater == NULL || moment->updater->pauses);
}

void uni__model_pause(uni_model *model)
{
    model->pausing = uni__model_can_pause(model);
}

bool uni__model_is_pausing(const uni_model *model)
{
    const uni__moment *moment = model->moment;
    if (moment == NULL)
        return false;
    return moment->updater == NULL ? model->pausing : model->runner->pausing;
}

bool uni__model_is_stopping(const uni_model *model)
{
    return model->stopping;
}
