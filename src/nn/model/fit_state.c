/*
 * fit_state.c - the position of a fit as a value, and resuming from it. BackupAndRestore and a
 * run's checkpoints keep it beside the model's own state, so that an interrupted fit ends like an
 * uninterrupted one. The model's thread.
 *
 * {"format": 1, "first_epoch": of the history, "epoch", "batch": of the next step, "stopping",
 * "steps", "seed", "learning_rate", "history": {name: [..]}, "callbacks": {name: state}, "totals":
 * [..] of a partial epoch, "source": {"reset", "batch"}: of the next batch, "waiting": {"batches",
 * "reset", "batch", "steps"}, "length", "samples": of an epoch, negative when not known}. It may
 * come from a file: every entry is checked when it is read.
 *
 * Gradients that wait for their update (gradient_accumulation_steps) are not included: they are as
 * large as the model, and each replica and rank has its own. The weights have not changed since, so
 * fit recomputes them from the batches that "waiting" names.
 */
#include <string.h>

#include "nn/shared.h"
#include "base/log.h"
#include "nn/model/compile.h"
#include "nn/model/loop.h"

#define FORMAT 1

/* ---- totals of a partial epoch: samples, loss, loss of each output, states of the metrics ---- */

typedef int (*visit_total)(void *context, double *total);

static int visit_totals(uni_model *model, visit_total visit, void *context)
{
    uni__compiled *compiled = model->compiled;
    int status = visit(context, &compiled->samples);
    if (status == 0)
        status = visit(context, &compiled->loss);
    for (int i = 0; status == 0 && i < model->num_outputs; i++)
        status = visit(context, &compiled->output_loss[i]);
    for (int i = 0; status == 0 && i < compiled->num_metrics; i++) {
        size_t size;
        double *state = uni__metric_state(compiled->metrics[i], &size);
        for (size_t k = 0; status == 0 && k < size; k++)
            status = visit(context, &state[k]);
    }
    return status;
}

static int append_total(void *list, double *total)
{
    return uni_list_take(list, uni_value_float(*total));
}

typedef struct reader {
    const uni_value *list;
    size_t next;
} reader;

static int read_total(void *context, double *total)
{
    reader *from = context;
    *total = uni_value_as_float(uni_list_get(from->list, from->next++), 0);
    return 0;
}

static int count_total(void *context, double *total)
{
    (*(size_t *)context)++;
    return 0;
}

int uni__totals_get(uni_model *model, uni_value **out, uni_error *err)
{
    *out = uni_value_list();
    if (visit_totals(model, append_total, *out) == 0)
        return 0;
    uni_value_free(*out);
    *out = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for the totals of an epoch");
}

int uni__totals_set(uni_model *model, const uni_value *totals, uni_error *err)
{
    size_t count = 0;
    (void)visit_totals(model, count_total, &count);
    if (uni_list_size(totals) != count)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the state of a fit has totals of other metrics than model %s",
                             model->name);
    (void)visit_totals(model, read_total, &(reader){ .list = totals });
    return 0;
}

/* ---- saving ---- */

static int put_places(const uni__moment *moment, uni_value *state)
{
    uni_value *source = uni_value_dict(), *waiting = uni_value_dict();
    int status = uni_dict_take(source, "reset", uni_value_int(moment->next.reset));
    status |= uni_dict_take(source, "batch", uni_value_int(moment->next.batch));
    status |= uni_dict_take(state, "source", source);
    if (moment->waiting == 0) {
        uni_value_free(waiting);
        return status;
    }
    status |= uni_dict_take(waiting, "batches", uni_value_int(moment->waiting));
    status |= uni_dict_take(waiting, "reset", uni_value_int(moment->first_waiting.reset));
    status |= uni_dict_take(waiting, "batch", uni_value_int(moment->first_waiting.batch));
    status |= uni_dict_take(waiting, "steps", uni_value_int(moment->waiting_steps));
    return status | uni_dict_take(state, "waiting", waiting);
}

static int put_numbers(const uni_model *model, uni_value *state)
{
    const uni__moment *moment = model->moment;
    int status = uni_dict_take(state, "format", uni_value_int(FORMAT));
    status |= uni_dict_take(state, "first_epoch", uni_value_int(moment->first_epoch));
    status |= uni_dict_take(state, "epoch", uni_value_int(moment->epoch));
    status |= uni_dict_take(state, "batch", uni_value_int(moment->batch));
    status |= uni_dict_take(state, "stopping", uni_value_bool(model->stopping));
    status |= uni_dict_take(state, "steps", uni_value_int(model->steps));
    status |= uni_dict_take(state, "seed", uni_value_int((int64_t)model->seed));
    status |= uni_dict_take(state, "history", uni_value_copy(moment->history));
    status |= uni_dict_take(state, "length", uni_value_int(moment->length));
    status |= uni_dict_take(state, "samples", uni_value_int(moment->samples));
    /* Model files store it as a float. */
    double rate = uni_optimizer_learning_rate(uni_model_optimizer(model), NULL);
    if (rate >= 0)
        status |= uni_dict_take(state, "learning_rate", uni_value_float(rate));
    status |= put_places(moment, state);
    if (moment->batch == 0)
        return status;
    uni_value *totals = NULL;
    status |= uni__totals_get((uni_model *)(uintptr_t)model, &totals, NULL);
    return status | uni_dict_take(state, "totals", totals);
}

int uni__model_get_fit_state(const uni_model *model, uni_value **out, uni_error *err)
{
    *out = NULL;
    if (model->moment == NULL)
        return uni_error_set(err, UNI_ESTATE,
                             "model %s is not in fit: its state is taken in a callback",
                             model->name);
    uni_value *state = uni_value_dict(), *callbacks = NULL;
    int status = uni__callbacks_get_states(&model->moment->callbacks, &callbacks, err);
    if (status == 0 &&
        ((status = uni_dict_take(state, "callbacks", callbacks)) | put_numbers(model, state)) != 0)
        status = uni_error_set(err, UNI_ENOMEM, "no memory for the state of a fit");
    if (status < 0) {
        uni_value_free(state);
        return status;
    }
    *out = state;
    return 0;
}

int uni__model_set_fit_state(uni_model *model, const uni_value *state, uni_error *err)
{
    int64_t format = uni_dict_get_int(state, "format", 0);
    if (format != FORMAT)
        return uni_error_set(err, format > FORMAT ? UNI_EVERSION : UNI_EFORMAT,
                             "the state of a fit has format %lld, this program reads %d",
                             (long long)format, FORMAT);
    uni_value *copy = uni_value_copy(state);
    if (copy == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a fit");
    uni_value_free(model->resume);
    model->resume = copy;
    model->resume_anywhere = false;
    return 0;
}

void uni__model_drop_fit_state(uni_model *model)
{
    uni_value_free(model->resume);
    model->resume = NULL;
    model->resume_anywhere = false;
}

/* Moving averages as of the same moment: those of a step that is repeated are the ones before
 * it. */
static int put_moving(const uni_model *model, uni__join where, uni_value *state)
{
    size_t size = 0;
    const float *now = uni__parameters_states(model->build.store, &size);
    bool repeat = where == UNI__JOIN_REPEAT && size > 0;
    const float *from = repeat ? model->runner->states_before : now;
    return uni_dict_take(state, "moving", uni_value_bytes(from, size * sizeof *from));
}

int uni__fit_callback_states(const uni_model *model, uni_value **out, uni_error *err)
{
    return uni__callbacks_get_states(&model->moment->callbacks, out, err);
}

bool uni__fit_has_batch_callbacks(const uni_model *model)
{
    return uni__callbacks_act_between_batches(&model->moment->callbacks);
}

int uni__model_accumulation(const uni_model *model)
{
    return model->compiled != NULL ? model->compiled->accumulation : 0;
}

int uni__fit_state_to_join(const uni_model *model, uni__join where, uni_value **out, uni_error *err)
{
    UNI_TRY(uni__model_get_fit_state(model, out, err));
    uni_value *source = uni_value_dict();
    int64_t batch = model->moment->next.batch - (where != UNI__JOIN_AFTER ? 1 : 0);
    int status = uni_dict_take(source, "reset", uni_value_int(model->moment->next.reset));
    status |= uni_dict_take(source, "batch", uni_value_int(batch));
    status |= uni_dict_take(*out, "source", source);
    status |= put_moving(model, where, *out);
    if (status == 0)
        return 0;
    uni_value_free(*out);
    *out = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a fit");
}

int uni__fit_join(uni_model *model, const uni_value *state, uni_error *err)
{
    size_t size = 0, bytes = 0;
    float *states = uni__parameters_states(model->build.store, &size);
    const void *moving = uni_value_as_bytes(uni_dict_get(state, "moving"), &bytes);
    if (bytes != size * sizeof *states)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the other ranks have %zu bytes of moving averages, model %s has %zu",
                             bytes, model->name, size * sizeof *states);
    if (size > 0)
        memcpy(states, moving, bytes);
    UNI_TRY(uni__model_set_fit_state(model, state, err));
    model->resume_anywhere = true;
    return 0;
}

/* ---- resuming ---- */

static int take_history(uni__moment *moment, const uni_value *history, uni_error *err)
{
    for (size_t i = 0; i < uni_dict_size(history); i++)
        if (uni_value_type_of(uni_dict_value_at(history, i)) != UNI_TYPE_LIST)
            return uni_error_set(err, UNI_EFORMAT, "the history of %s is not a list",
                                 uni_dict_key_at(history, i));
    uni_value *copy = history != NULL ? uni_value_copy(history) : uni_value_dict();
    if (copy == NULL || uni_value_type_of(copy) != UNI_TYPE_DICT) {
        uni_value_free(copy);
        return uni_error_set(err, UNI_EFORMAT, "the state of a fit has no history");
    }
    uni_value_free(moment->history);
    moment->history = copy;
    return 0;
}

/* Each gives its reset, and how many batches came before. */
static int take_place(uni__place *out, const uni_value *place, uni__place otherwise, uni_error *err)
{
    out->reset = uni_dict_get_int(place, "reset", otherwise.reset);
    out->batch = uni_dict_get_int(place, "batch", otherwise.batch);
    if (out->reset >= 0 && out->reset <= INT32_MAX && out->batch >= 0)
        return 0;
    return uni_error_set(err, UNI_EFORMAT, "the state of a fit is of epoch %lld, batch %lld",
                         (long long)out->reset, (long long)out->batch);
}

static int take_places(uni__moment *moment, const uni_value *state, uni_error *err)
{
    const uni_value *waiting = uni_dict_get(state, "waiting");
    uni__place here = { moment->epoch, moment->batch };
    UNI_TRY(take_place(&moment->next, uni_dict_get(state, "source"), here, err));
    UNI_TRY(take_place(&moment->first_waiting, waiting, here, err));
    int64_t batches = uni_dict_get_int(waiting, "batches", 0);
    moment->waiting_steps = uni_dict_get_int(waiting, "steps", 0);
    if (batches < 0 || batches > INT32_MAX || moment->waiting_steps < 0)
        return uni_error_set(err, UNI_EFORMAT, "the state of a fit has %lld batches that wait",
                             (long long)batches);
    moment->waiting = (int)batches;
    return 0;
}

/* In the middle of an epoch the place only holds for the same batches. */
static int check_same_data(const uni__moment *moment, const uni_value *state, uni_error *err)
{
    int64_t length = uni_dict_get_int(state, "length", -1),
            samples = uni_dict_get_int(state, "samples", -1);
    bool other = length >= 0 && moment->length >= 0 && length != moment->length;
    bool others = samples >= 0 && moment->samples >= 0 && samples != moment->samples;
    if (other)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the fit was interrupted inside of an epoch of %lld batches, and now "
                             "it has %lld: resume it with the same data and batch_size",
                             (long long)length, (long long)moment->length);
    if (others)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the fit was interrupted inside of an epoch of %lld samples, and now "
                             "it has %lld: resume it with the same data",
                             (long long)samples, (long long)moment->samples);
    return 0;
}

static int resume(uni__moment *moment, uni_model *model, const uni_value *state, uni_error *err)
{
    int64_t epoch = uni_dict_get_int(state, "epoch", 0),
            batch = uni_dict_get_int(state, "batch", 0);
    if (epoch < 0 || epoch > INT32_MAX || batch < 0)
        return uni_error_set(err, UNI_EFORMAT, "the state of a fit is of epoch %lld, batch %lld",
                             (long long)epoch, (long long)batch);
    UNI_TRY(take_history(moment, uni_dict_get(state, "history"), err));
    UNI_TRY(uni__callbacks_set_states(&moment->callbacks, uni_dict_get(state, "callbacks"), err));
    if (batch > 0)
        UNI_TRY(check_same_data(moment, state, err));
    if (batch > 0)
        UNI_TRY(uni__totals_set(model, uni_dict_get(state, "totals"), err));
    moment->first_epoch = (int)uni_dict_get_int(state, "first_epoch", 0);
    moment->epoch = (int)epoch;
    moment->batch = batch;
    moment->resumed = true;
    UNI_TRY(take_places(moment, state, err));
    model->stopping = uni_dict_get_bool(state, "stopping", false);
    model->steps = uni_dict_get_int(state, "steps", model->steps);
    uint64_t seed = (uint64_t)uni_dict_get_int(state, "seed", 0);
    if (seed != 0)
        model->seed = model->build.seed = seed;
    const uni_value *rate = uni_dict_get(state, "learning_rate");
    uni_error why = { 0 };
    /* A schedule computes the rate from the step. */
    if (rate != NULL &&
        uni_optimizer_set_learning_rate(uni_model_optimizer(model), uni_value_as_float(rate, -1),
                                        &why) < 0 &&
        why.code != UNI_ESTATE)
        return uni_error_set(err, why.code, "%s", why.message);
    return 0;
}

int uni__moment_resume(uni__moment *moment, uni_model *model, int initial_epoch, uni_error *err)
{
    uni_value *state = model->resume;
    bool anywhere = model->resume_anywhere;
    model->resume = NULL;
    model->resume_anywhere = false;
    if (state == NULL)
        return 0;
    int64_t epoch = uni_dict_get_int(state, "epoch", 0);
    int status = 0;
    if (anywhere || epoch == initial_epoch)
        status = resume(moment, model, state, err);
    else
        uni__warn("fit begins with epoch %d, but the state that was restored is of epoch %lld: "
                  "callbacks and history begin anew. Give fit initial_epoch = %lld",
                  initial_epoch, (long long)epoch, (long long)epoch);
    uni_value_free(state);
    return status;
}
