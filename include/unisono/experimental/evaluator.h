/*
 * experimental/evaluator.h - a process that evaluates each checkpoint while the others train.
 *
 * Experimental: this header may change in any release, and the ABI policy of docs/c.md does not
 * cover its functions (version node UNISONO_EXPERIMENTAL).
 *
 * Thread rule: as the session, one thread at a time. In libunisono-native.so.
 *
 * @example
 * uni_model *model = NULL;
 * uni_fit_options data = { .batch_size = 64 };
 * UNI_TRY(uni_model_load(&model, "model.keras", err));
 * UNI_TRY(uni_session_evaluate(session, model, &(uni_evaluator_options){ .data = &data }, err));
 * uni_model_free(model);
 * @end
 */
#ifndef UNISONO_EXPERIMENTAL_EVALUATOR_H
#define UNISONO_EXPERIMENTAL_EVALUATOR_H

#include <unisono/native.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The role evaluator (`unisono run --servers S --evaluators 1`, .evaluators; uni_session_role
 * tells a worker its role): does not train or open a strategy. It loads each new checkpoint that
 * the coordinator writes into a model compiled the same way, and evaluates it. */
typedef struct uni_evaluation {
    int64_t checkpoint; /* its number */
    int epoch; /* after which it was made, from 0; UNI_UNKNOWN */
    const uni_value *logs; /* {"loss", metrics}: as uni_model_evaluate; borrowed */
} uni_evaluation;
typedef struct uni_evaluator_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    const uni_fit_options *data; /* as for uni_model_evaluate */
    int (*each)(void *context, const uni_evaluation *evaluation, uni_error *err); /* may be NULL */
    void *context;
    int max_evaluations; /* 0: any number */
    /* Number of training epochs: ends after the last one's checkpoint; 0: ends with the run */
    int last_epoch;
} uni_evaluator_options;
UNI_API UNI_MUST_USE int uni_session_evaluate(uni_session *session, uni_model *model,
                                              const uni_evaluator_options *options, uni_error *err);

#ifdef __cplusplus
}
#endif
#endif
