/*
 * fit_state.c - where a fit stands, as a value, and going on from it: what BackupAndRestore and a run's checkpoints keep besides the model's own state, so
 * that a fit that was interrupted ends like one that was not. The model's thread.
 *
 * {"format": 1, "first_epoch": of the history, "epoch", "batch": of the next step, "stopping", "steps", "seed", "learning_rate", "history": {name: [..]}, "callbacks": {name: state}, "totals": [..] of a half
 * epoch}. It may come from a file: every entry is checked where it is taken.
 */
#include "base/log.h"
#include "nn/model/compile.h"
#include "nn/model/loop.h"

#define FORMAT 1

/* ---- totals of a half epoch: samples, loss, loss of each output, states of the metrics ---- */

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
        double *state = uni_metric_state(compiled->metrics[i], &size);
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

/* ---- taking ---- */

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
    /* Model files have it as a float. */
    double rate = uni_optimizer_learning_rate(uni_model_optimizer(model), NULL);
    if (rate >= 0)
        status |= uni_dict_take(state, "learning_rate", uni_value_float(rate));
    if (moment->batch == 0)
        return status;
    uni_value *totals = uni_value_list();
    status |= visit_totals((uni_model *)(uintptr_t)model, append_total, totals);
    return status | uni_dict_take(state, "totals", totals);
}

int uni_model_get_fit_state(const uni_model *model, uni_value **out, uni_error *err)
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

int uni_model_set_fit_state(uni_model *model, const uni_value *state, uni_error *err)
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

/* ---- going on ---- */

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

static int take_totals(uni_model *model, const uni_value *totals, uni_error *err)
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
        UNI_TRY(take_totals(model, uni_dict_get(state, "totals"), err));
    moment->first_epoch = (int)uni_dict_get_int(state, "first_epoch", 0);
    moment->epoch = (int)epoch;
    moment->batch = batch;
    model->stopping = uni_dict_get_bool(state, "stopping", false);
    model->steps = uni_dict_get_int(state, "steps", model->steps);
    uint64_t seed = (uint64_t)uni_dict_get_int(state, "seed", 0);
    if (seed != 0)
        model->seed = model->build.seed = seed;
    const uni_value *rate = uni_dict_get(state, "learning_rate");
    uni_error why = { 0 };
    if (rate != NULL &&
        uni_optimizer_set_learning_rate(uni_model_optimizer(model), uni_value_as_float(rate, -1),
                                        &why) < 0 &&
        why.code != UNI_ESTATE) /* with a schedule it follows from the step */
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
