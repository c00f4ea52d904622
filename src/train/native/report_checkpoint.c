/*
 * report_checkpoint.c - the session in a native worker: fit's logs as reports, the model's state as
 * checkpoint and back.
 *
 * Under multi_worker the chief's callbacks at an epoch's end run before those of the others, and in
 * lockstep mode (v1) the driver takes an iteration when all ranks have reported it: a chief that
 * waited for that inside its callback would wait for ranks that wait for the chief. So the report
 * is handed over at the epoch's end and waited for when the next one begins, or at the end of
 * the training.
 *
 * The checkpoint is taken after every callback has seen the epoch's end, with what they remember: a
 * restarted fit decides and writes as the undisturbed one.
 *
 * Between two epochs' ends the chief hands in checkpoints of steps, as often as the run wants, and
 * when all ranks are to stop: then fit pauses after a step that they agree on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <unisono/native.h>
#include "base/clock.h"
#include "base/log.h"
#include "nn/shared.h"
#include "train/shared.h"

typedef struct reporter {
    uni_session *session;
    int every;
    bool begun;
    int epochs; /* that fit will make */
    uint64_t saved_ns; /* the last checkpoint, or when training began */
    bool said; /* that there are none of steps */
} reporter;

/* ---- a death before the first checkpoint ----
 *
 * Callbacks may have written by then (a line added to a file): where they stood before the first
 * epoch is kept in the run directory, as a checkpoint of its own. */

static bool start_path(uni_session *session, char *path, size_t size)
{
    const char *dir = uni_session_info_of(session)->run_dir;
    return dir[0] && snprintf(path, size, "%s/.fit_start", dir) < (int)size;
}

static int write_start(uni_session *session, const uni_model *model, uni_error *err)
{
    uni_value *fit = NULL;
    char path[4400];
    if (!start_path(session, path, sizeof path) || access(path, F_OK) == 0)
        return 0;
    UNI_TRY(uni__model_get_fit_state(model, &fit, err));
    int status = uni_dict_size(uni_dict_get(fit, "callbacks")) > 0
                     ? uni_checkpoint_write_dict(path, fit, err)
                     : 0;
    uni_value_free(fit);
    return status;
}

static int restore_start(uni_session *session, uni_model *model, uni_error *err)
{
    uni_checkpoint *start = NULL;
    uni_value *fit = NULL;
    char path[4400];
    if (!start_path(session, path, sizeof path) || access(path, F_OK) != 0)
        return 0;
    int status = uni_checkpoint_open(&start, path, err);
    if (status == 0)
        status = uni_checkpoint_read_dict(&fit, start, err);
    if (status == 0)
        status = uni__model_set_fit_state(model, fit, err);
    uni_value_free(fit);
    uni_checkpoint_close(start);
    return status;
}

/* ---- checkpoints ---- */

/* The model and its fit, after a step or at the end of an epoch. */
static int get_state(reporter *report, const uni_model *model, int epochs_done, uni_value **out,
                     uni_error *err)
{
    uni_value *fit = NULL;
    UNI_TRY(uni_model_get_state(out, model, err));
    int status = uni__model_get_fit_state(model, &fit, err);
    if (status == 0)
        status = uni_dict_take(*out, "fit", fit);
    if (status == 0)
        status = uni_dict_take(*out, "epoch", uni_value_int(epochs_done - 1));
    report->saved_ns = uni__monotonic_ns();
    return status;
}

static bool is_due(const reporter *report, const uni_model *model)
{
    int64_t steps = uni__session_every_steps(report->session);
    double seconds = uni__session_every_seconds(report->session);
    if (steps > 0 && uni__model_steps(model) % steps == 0)
        return true;
    return seconds > 0 && (double)(uni__monotonic_ns() - report->saved_ns) * 1e-9 >= seconds;
}

/* The weights do not change here, whatever other ranks do: the next update needs this rank. */
static int keep_step(reporter *report, const uni_model *model, uni_error *err)
{
    uni_value *state = NULL;
    int status = get_state(report, model, uni__model_epoch(model), &state, err);
    if (status == 0)
        status = uni__session_keep_step(report->session, state, err);
    uni_value_free(state);
    return status;
}

static int after_batch(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    reporter *report = self;
    if (report->every < 0)
        return 0;
    if (uni__session_stops_at_step(report->session))
        uni__model_pause(model);
    bool pauses = uni__model_is_pausing(model);
    if (pauses)
        uni__session_stopped(report->session);
    if (uni_session_info_of(report->session)->world_rank != 0)
        return 0;
    bool due = is_due(report, model);
    if (due && !uni__model_can_pause(model)) {
        if (!report->said)
            uni__warn("there are no checkpoints of steps: under this strategy the weights are not "
                      "here between the ends of epochs");
        report->said = true;
        return 0;
    }
    return due || pauses ? keep_step(report, model, err) : 0;
}

static int after_epoch(void *self, uni_model *model, int epoch, const uni_logs *logs,
                       uni_error *err)
{
    reporter *report = self;
    uni_value *metrics = uni_value_dict(), *state = NULL;
    bool save = report->every > 0 && (epoch + 1) % report->every == 0 &&
                uni_session_info_of(report->session)->world_rank == 0;
    int status = uni_dict_take(metrics, "epoch", uni_value_int(epoch));
    for (size_t i = 0; i < logs->count && status == 0; i++)
        status = uni_dict_take(metrics, logs->names[i], uni_value_float(logs->values[i]));
    if (status == 0 && save)
        status = get_state(report, model, epoch + 1, &state, err);
    if (status == 0)
        status = uni__session_report_start(report->session, metrics,
                                           &(uni_checkpoint_source){ .dict = state }, err);
    uni_value_free(metrics);
    uni_value_free(state);
    /* All ranks are told the same at the same report, so all stop after the same epoch. */
    /* After the last epoch there is nothing to stop: the run succeeds. */
    if (status == 0 && epoch + 1 < report->epochs && uni_session_should_stop(report->session)) {
        uni_model_stop_training(model);
        if (uni__session_stops_at_step(report->session))
            uni__model_pause(model); /* fit says that it is not done */
    }
    return status;
}

static int before_training(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    ((reporter *)self)->epochs = info->epochs;
    return 0;
}

static int before_epoch(void *self, uni_model *model, int epoch, uni_error *err)
{
    reporter *report = self;
    if (!report->begun && report->every > 0 && uni_session_info_of(report->session)->attempt == 1 &&
        uni_session_info_of(report->session)->world_rank == 0)
        UNI_TRY(write_start(report->session, model, err));
    if (!report->begun)
        report->saved_ns = uni__monotonic_ns();
    report->begun = true;
    return uni__session_report_wait(report->session, err);
}

static int after_training(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    return uni__session_report_wait(((reporter *)self)->session, err);
}

int uni_callback_report_checkpoint(uni_callback **out, uni_session *session, int every,
                                   uni_error *err)
{
    static const uni_callback_class class_ = { .name = "ReportCheckpoint",
                                               .train_begin = before_training,
                                               .epoch_begin = before_epoch,
                                               .train_end = after_training,
                                               .after_epoch = after_epoch,
                                               .after_batch = after_batch,
                                               .only_looks = true,
                                               .free = free };
    *out = NULL;
    reporter *report = calloc(1, sizeof *report);
    if (!report)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a callback");
    *report = (reporter){ .session = session, .every = every ? every : 1 };
    int status = uni_callback_new(out, &class_, report, err);
    if (status < 0)
        free(report);
    else if (every >= 0)
        uni__session_keeps_steps(session);
    return status;
}

int uni_session_restore_model(int *epoch, uni_session *session, uni_model *model, uni_error *err)
{
    uni_value *state = NULL;
    *epoch = 0;
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    if (!state)
        return uni_session_info_of(session)->attempt > 1 ? restore_start(session, model, err) : 0;
    int64_t last = uni_dict_get_int(state, "epoch", -1);
    int status = 0;
    if (last < -1 || last >= INT32_MAX)
        status = uni_error_set(err, UNI_EFORMAT, "the checkpoint is of epoch %lld: it is damaged",
                               (long long)last);
    else
        *epoch = (int)last + 1;
    uni_dict_remove(state, "epoch");
    if (status == 0)
        status = uni_model_set_state(model, state, err);
    const uni_value *fit = uni_dict_get(state, "fit"); /* not there: a loop of the user's own */
    if (status == 0 && fit)
        status = uni__model_set_fit_state(model, fit, err);
    uni_value_free(state);
    return status;
}
