/*
 * evaluator.c - the sidecar evaluator: a member that trains nothing and evaluates the run's
 * checkpoints as they come (TensorFlow's SidecarEvaluator). The session's thread.
 *
 * It looks at the run directory, where the coordinator's checkpoints become complete; those that
 * came and went between two looks are passed over. It ends after the asked number of evaluations,
 * after the checkpoint of the last epoch, or with the run.
 */
#include <time.h>

#include <unisono/checkpoint.h>
#include <unisono/native.h>
#include <unisono/experimental/evaluator.h>
#include "train/shared.h"
#include "base/options.h"

#define LOOK_NS 20000000 /* between two looks for a new checkpoint */

/* 1: evaluated, 0: nothing new. */
static int evaluate_newest(uni_session *session, uni_model *model, const uni_fit_options *data,
                           int64_t *seen, uni_evaluation *out, uni_value **logs, uni_error *err)
{
    uni_checkpoint *checkpoint = NULL;
    uni_value *state = NULL;
    uni_error why = { 0 };
    int status =
        uni_checkpoint_open_latest(&checkpoint, uni_session_info_of(session)->run_dir, &why);
    if (status == UNI_ENOTFOUND)
        return 0;
    if (status < 0) {
        if (err)
            *err = why;
        return status;
    }
    *out = (uni_evaluation){ .checkpoint = uni_checkpoint_info_of(checkpoint)->number };
    if (out->checkpoint <= *seen) {
        uni_checkpoint_close(checkpoint);
        return 0;
    }
    status = uni_checkpoint_read_dict(&state, checkpoint, err);
    uni_checkpoint_close(checkpoint);
    UNI_TRY(status);
    out->epoch = (int)uni_dict_get_int(state, "epoch", -1);
    uni_dict_remove(state, "epoch");
    status = uni_model_set_state(model, state, err);
    uni_value_free(state);
    UNI_TRY(status);
    UNI_TRY(uni_model_evaluate(logs, model, data, err));
    *seen = out->checkpoint;
    out->logs = *logs;
    return 1;
}

int uni_session_evaluate(uni_session *session, uni_model *model,
                         const uni_evaluator_options *options, uni_error *err)
{
    UNI__OPTIONS(uni_evaluator_options, options, last_epoch, err);
    int64_t seen = 0;
    char why[256];
    for (int done = 0; options->max_evaluations <= 0 || done < options->max_evaluations;) {
        uni_evaluation found;
        uni_value *logs = NULL;
        int status = evaluate_newest(session, model, options->data, &seen, &found, &logs, err);
        if (status > 0 && options->each)
            status = options->each(options->context, &found, err) < 0 ? -1 : 1;
        uni_value_free(logs);
        if (status < 0)
            return err && err->code < 0 ? err->code : UNI_EFUNCTION;
        done += status;
        if (status > 0 && options->last_epoch > 0 && found.epoch >= options->last_epoch - 1)
            break;
        if (uni__session_is_over(session, why, sizeof why))
            break;
        if (status == 0)
            nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
    }
    return 0;
}
