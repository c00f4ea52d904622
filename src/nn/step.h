/*
 * step.h - the one interface between forward and backward (src/nn) and the update (src/strategy).
 *
 * nn runs a batch through the replicas of this process and then hands over: uni__updater.finish
 * decides when gradients are summed and weights updated. However that is arranged, weights change
 * only through a uni__update (optimizer/update.c):
 *
 *   uni__update_begin     counts the step; once per process (or once for a team of threads)
 *   uni__update_slice     each owner of a slice: sums the parts in their order and updates, piece
 *                         by piece in the cache
 *   closing meeting       every owner has updated its slice
 *   uni__update_commit    the step is complete: its weights are the weights
 *   uni__update_abandon   instead of commit: the step did not happen
 *
 * Slices are updated in place, so abandon is exact only before the first slice (nothing but the
 * count has changed then). Once all parts are there the step is decided: when the owner of a slice
 * dies, another process ends its slice from the slice's journal, and the step is complete.
 *
 * The sum of a weight's gradient depends only on the order of the parts, never on slices, pieces or
 * threads: same parts, same bits.
 */
#ifndef UNISONO_NN_STEP_H
#define UNISONO_NN_STEP_H

#include <stdatomic.h>
#include <unisono/nn.h>

#include "tensor/shared.h"
#include "tensor/descent.h"
#include "tensor/helpers.h"
#include "tensor/team.h"

/* ---- the update ---- */

/* Floats that are added up and updated at a time: what two parts and Adam need of them is in the
 * first-level cache. */
#define UNI__UPDATE_PIECE ((size_t)512)
/* With a journal: few enough that the processor waits for a piece's weights, slots and parts
 * together, not for one after the other. */
#define UNI__JOURNAL_PIECE ((size_t)128)

/*
 * How far a slice is in a step, in memory that outlives the slice's owner. When the owner is killed
 * in the middle, any process that sees the weights, the slots, the parts and this journal calls
 * uni__update_slice for the same step and slice, and the slice ends as if nothing had happened:
 * pieces that are done are passed over, the one under way is put back from `old` and done again.
 * Only one process at a time may use a journal: the owner must be dead, not merely silent.
 */
typedef struct uni__update_journal {
    _Atomic uint64_t step; /* the optimizer's count; 0: none */
    _Atomic uint64_t saved; /* 1 + the number of the piece whose values are in `old`; 0: none */
    _Atomic uint64_t done; /* pieces */
    uint64_t reserved[5];
    float old[4 * UNI__JOURNAL_PIECE]; /* weights and up to three slots */
} uni__update_journal;

typedef struct uni__update {
    uni_optimizer *optimizer;
    uni_gradients *gradients; /* what the optimizer reads when there are no parts */
    const float *const *parts; /* flat gradients to add up; slice only reads them */
    int num_parts; /* 0: `gradients` has the sum */
    /* Clipping by norm: sums of squares over all slices (uni__update_squares), one for all or one
     * per parameter. NULL: begin computes them from `gradients`. */
    const double *squares;
    uni__update_journal *journal; /* of the slice; NULL: it dies with its owner */
} uni__update;

/* Clipping by norm: how many sums of squares there are (0: it does not clip by norm), and what one
 * slice of the summed parts adds to them. Owners of slices add theirs up, in their order, before
 * begin. Does not allocate, changes nothing. */
UNI__SHARED size_t uni__optimizer_num_squares(const uni_optimizer *optimizer);
UNI__SHARED void uni__update_squares(const uni__update *update, uni__span slice, double *squares);
/* Counts the step, and computes what clipping needs; a norm needs `squares`, or the whole sum in
 * `gradients`. The gradient is divided by `samples`; 0: it is already a mean. */
UNI__SHARED int uni__update_begin(const uni__update *update, double samples,
                                  uni_error *err) UNI_MUST_USE;
/* Any thread, between begin and commit; slices do not overlap. Does not allocate, does not fail. */
UNI__SHARED void uni__update_slice(const uni__update *update, uni__span slice);
UNI__SHARED void uni__update_commit(const uni__update *update);
UNI__SHARED void uni__update_abandon(const uni__update *update);
/* Only the sum of a slice: for a norm, or before it is added up with other processes. */
UNI__SHARED void uni__update_sum(const uni__update *update, uni__span slice);
/* A kernel whose factors were kept: this replica's rows of it. Before begin, with the rate of the
 * step to come. */
UNI__SHARED int uni__update_factored(const uni__update *update, uni_tape *tape,
                                     const uni__factored *what, const uni__factors *all, int count,
                                     int index, double samples, uni_error *err) UNI_MUST_USE;

/* begin, all slices on the caller's thread and its helpers (NULL: none), commit. */
UNI__SHARED int uni__update_alone(const uni__update *update, double samples, uni__helpers *helpers,
                                  uni_error *err) UNI_MUST_USE;
/* The same by all members of a team, each for its slice, up to the closing meeting. The caller
 * waits at that meeting; then member 0 commits. They share *update: before it calls, each member
 * writes its own part, member 0 also the rest. `whole`: the sum must be complete before a weight
 * changes, for a norm or for `exchange` (may be NULL), which member 0 then calls to sum over
 * processes. */
typedef int (*uni__exchange)(void *context, uni_gradients *gradients, uni_error *err);
UNI__SHARED int uni__update_on_team(const uni__update *update, uni__team *team, int member,
                                    int members, bool whole, double samples, uni__exchange exchange,
                                    void *context, uni_error *err) UNI_MUST_USE;

/* True if the optimizer must see the whole sum before it changes a weight. */
UNI__SHARED bool uni__optimizer_clips_by_norm(const uni_optimizer *optimizer);
/* True for descent without momentum and clipping, which a backward pass can apply itself for the
 * next step. The update of the other weights must follow, with the same scale. */
UNI__SHARED bool uni__optimizer_descent(const uni_optimizer *optimizer, float scale,
                                        uni__descent *out);

/* ---- from nn to the strategy ---- */

/* A batch after the backward pass. */
typedef struct uni__trained {
    uni_tape *tape; /* has the factors that the pass kept (uni__tape_factored) */
    uni_optimizer *optimizer;
    /* The sum over this process's replicas. NULL: nothing to update now (a batch that waits for its
     * update, or only counts of a validation or an epoch). */
    uni_gradients *gradients;
    /* Counts; become the sums over all processes. [0]: wishes (model/runner.h), [1]: samples,
     * then losses and metric states. */
    double *sums;
    size_t num_sums;
    /* Gradients of earlier batches wait for the same update: their samples, and how many of this
     * batch's samples count as one of theirs. */
    double waiting, factor;
} uni__trained;

/* What the sum of the gradients is divided by, once `sums` covers all processes. */
static inline double uni__trained_samples(const uni__trained *trained)
{
    return trained->waiting + trained->sums[1] * trained->factor;
}

/* How several processes train one model. All processes call these functions equally often, on fit's
 * thread; they may block. */
typedef struct uni__updater {
    const char *name;
    int index, count; /* this process among those that have a part of every batch */
    void *context;
    /* During a pass: batch statistics over all processes. sum NULL: only of this process. */
    uni_sync sync;
    /* Before a pass that is followed by plain descent: kernels of dense layers with at least this
     * many weights keep their factors instead of a gradient; 0: none. Every process gets the same
     * answer. NULL: 0. */
    size_t (*keep_factors)(void *context);
    /* After a pass: sums counts and gradients over all processes and, if there are gradients, has
     * the weights updated. When it returns 0, every process (or wherever the strategy keeps them)
     * has the new weights. On failure the step is over for this process, and the strategy has told
     * the others. */
    int (*finish)(void *context, const uni__trained *trained, uni_error *err);
    /* Optional. A pass or finish failed with `status`, maybe because a process died. 0: other
     * processes have come instead and the step is complete, `sums` included; UNI__STEP_REPEAT: it
     * did not happen, and is repeated; UNI__STEP_RECUT: the same, but there are more or fewer
     * processes now, so that this one has another part of the batch; negative: it failed. May block
     * until the group is whole. */
    int (*recover)(void *context, int status, uni_error *err);
    /* Needed with recover. A training step begins. UNI__STEP_DONE, once: it was complete before
     * this process joined the others, with these sums; 0, UNI__STEP_RECUT or negative. */
    int (*enter)(void *context, double *sums, size_t count, uni_error *err);
    /* Needed with recover, after UNI__STEP_RECUT: the present part of the batch that `source` gave
     * last. */
    int (*recut)(void *context, uni_batches *source, uni_batch *out, uni_error *err);
    /* The processes may agree to leave fit after a step (uni__model_pause). */
    bool pauses;
    /* Optional. The last step of an epoch is complete; validation and callbacks follow. */
    int (*epoch_ended)(void *context, uni_model *model, uni_error *err);
} uni__updater;
/* finish, outside of steps, may say UNI__STEP_RECUT: a validation must be counted again. */
enum { UNI__STEP_REPEAT = 1, UNI__STEP_RECUT, UNI__STEP_DONE };

/* Where a fit stands that a new process is to join: what uni__model_get_fit_state says. */
typedef enum uni__join {
    UNI__JOIN_AFTER, /* after the last step */
    UNI__JOIN_REPEAT, /* in a step that is repeated */
    UNI__JOIN_COMPLETE /* in a step whose weights are updated */
} uni__join;
UNI__SHARED int uni__fit_state_to_join(const uni_model *model, uni__join where, uni_value **out,
                                       uni_error *err) UNI_MUST_USE;
/* What the callbacks of the fit under way remember, by name. */
UNI__SHARED int uni__fit_callback_states(const uni_model *model, uni_value **out,
                                         uni_error *err) UNI_MUST_USE;
/* Whether the user's callbacks act between two batches. */
UNI__SHARED bool uni__fit_has_batch_callbacks(const uni_model *model);
/* gradient_accumulation_steps; 0: not compiled. */
UNI__SHARED int uni__model_accumulation(const uni_model *model);
/* The next fit of this model begins there, whatever its initial_epoch. */
UNI__SHARED int uni__fit_join(uni_model *model, const uni_value *state,
                              uni_error *err) UNI_MUST_USE;

/* uni_model_fit as one of several processes; updater NULL: alone. */
UNI__SHARED int uni__model_fit(uni_model *model, const uni_fit_options *options,
                               const uni__updater *updater, uni_value **history,
                               uni_error *err) UNI_MUST_USE;

/* ---- validation_split ---- */

/* Columns of both parts: training, validation. */
typedef struct uni__fit_halves {
    uni_column x[2][UNI_MODEL_MAX_INPUTS], y[2][UNI_MODEL_MAX_INPUTS], weights[2];
} uni__fit_halves;

/* With validation_split, changes the options to two sets of arrays, which point into *made. */
UNI__SHARED int uni__fit_split(uni_fit_options *options, uni__fit_halves *made,
                               uni_error *err) UNI_MUST_USE;

#endif
