/*
 * elastic.h - ranks that come and go while fit goes on.
 *
 * When a rank dies, the others keep their processes, models and readers. A new process takes the
 * dead one's rank, and all meet over a new communicator. What was under way is completed or
 * repeated, so that the run ends with the bits of an undisturbed one.
 *
 * A group may also meet with fewer or more ranks than before. Every rank then gets another part of
 * each global batch and another slice of the weights; batches and their order stay, so that the run
 * ends with the same weights to rounding. A rank that is told to leave does so between two steps,
 * and for the others it is one that died there. Before a step every rank looks whether the group
 * has changed; one that waits for another finds out as it finds out about a death.
 *
 * In a training step:
 *
 *   not all ranks have shown gradients and counts   nothing has changed: the step is repeated
 *   all have                                        the step is decided: survivors complete the
 *                                                   slice of the dead rank from its journal
 *
 * Every rank has a line in shared pages: the step that it has shown, its counts, and the journal of
 * its slice (nn/step.h). The lines of the old communicator are read only after all survivors have
 * met over the new one, when no line changes any more; so all come to the same answer.
 *
 * After the last step of an epoch (validation, callbacks, barriers) no weight changes. Every rank
 * keeps where fit stood then, and the results of the collective calls since. A call that fails is
 * repeated over the new communicator. A new rank begins where fit stood, and gets the results of
 * the calls that the others have made.
 *
 * Ranks are known by their slots, which are the ranks of the run: a communicator numbers those that
 * are there from 0.
 *
 * After the meeting, in this order on every rank:
 *   1. all_gather: slots, which are new, the step of each, and its calls since; the source is the
 *      survivor that is farthest
 *   2. broadcast by the source: is the step complete?
 *   3. new pages, filled by the source
 *   4. broadcast by the source: where fit stands, results of calls, the sums of a complete step
 *
 * A new rank also makes up for what only the dead one's callbacks were to do. Hence its line says
 * which step it had entered. A rank that died between two batches with callbacks that act there
 * cannot be replaced: the survivors fail, and the run restarts from its checkpoint.
 *
 * A rank one step behind had only missed the end of the closing barrier: its step is complete.
 *
 * A rank is replaced from another's memory, so what its callbacks remember must be there, too: once
 * an epoch the ranks compare the states of their callbacks, and a rank with a state of its own (a
 * log file of the chief) is not replaced.
 *
 * A train function may call fit several times (fits.c). A new process meets the others in its first
 * one. When they are in a later one, its earlier fits return what those of the others had returned,
 * with the model as it was then; the others wait until it has come to the fit that they are in.
 *
 * Over several hosts no rank can read what another one has: apart.c says how a step is complete or
 * repeated there, and gathers what ranks say of themselves.
 *
 * What does not fit (gradient accumulation, a fit after a loop of the user's own, the first step of
 * a fit, what lies between two fits, a death while a kernel is updated by factors, a second fit
 * over several hosts) fails as before, and the run restarts from its checkpoint. fit's thread.
 */
#ifndef UNISONO_STRATEGY_ELASTIC_H
#define UNISONO_STRATEGY_ELASTIC_H

#include "strategy/internal.h"

typedef enum uni__elastic_fixed {
    UNI__ELASTIC_NOT_FIXED,
    UNI__ELASTIC_OWN_SHARDS, /* the data is sharded by files, or by the program */
    UNI__ELASTIC_ACCUMULATES, /* gradients of several batches */
    UNI__ELASTIC_NO_ENTRY /* a new process could not come to this fit */
} uni__elastic_fixed;

/* What decides which processes are in the group: the controller of a run, or a test. */
typedef struct uni__membership_vtable {
    const char *name;
    /* Waits for a group that follows the one of number `after`, and meets it: its communicator,
     * and the slots of its ranks (malloc'ed). A group that loses a rank before all have met is
     * passed over. Negative: there will be none. */
    int (*meet)(void *context, uint32_t after, uni_comm **out, int **slots, uint32_t *number,
                uni_error *err);
    /* Never waits. Another group follows that of this number; this process is to leave it. */
    bool (*has_changed)(void *context, uint32_t number);
    bool (*leaves)(void *context);
    /* This process has left: it does not touch the group's memory any more. */
    void (*left)(void *context);
    /* Optional. Another fit follows the one whose end all have come to. */
    void (*begin_fit)(void *context);
    /* Waits until all ranks of the group of this number end their fits, after which no other group
     * follows. A loss: one does, and this process is in it. */
    int (*end_fit)(void *context, uint32_t number, uni_error *err);
    /* Whether this process can continue when another is replaced, can be replaced itself, and can
     * continue with more or fewer. */
    void (*set_replaceable)(void *context, bool others, bool itself, bool resizes);
    /* Why the number of ranks stays as it is, of a fit that cannot continue with another. */
    void (*set_fixed)(void *context, uni__elastic_fixed why);
    /* How many reports this process has made. */
    int64_t (*count_reports)(void *context);
    /* A new process has come to where the others are: until now its reports were repetitions. It
     * has made that many (-1: as many as its predecessor, or `others` without one), and does not
     * repeat those that its predecessor has made. */
    void (*caught_up)(void *context, int64_t reports, int64_t others);
} uni__membership_vtable;

/* multi_worker without a communicator, for a process that joins others in fit. */
int uni__strategy_multi_worker(uni_strategy **out, int rank, int size,
                               const uni_multi_worker_options *options,
                               uni_error *err) UNI_MUST_USE;

/* Makes a multi_worker strategy elastic. slots, number: of the group that its communicator is of;
 * the strategy frees the slots, also when this fails. apart: every rank has its own weights, as
 * over several hosts. joins: this process came later than the
 * others, which are in the first call of uni_strategy_fit. */
int uni__strategy_set_membership(uni_strategy *strategy, const uni__membership_vtable *vtable,
                                 void *context, int *slots, uint32_t number, bool apart, bool joins,
                                 uni_error *err) UNI_MUST_USE;

/* A fit has begun: from now on a rank that dies is replaced, if that is possible in this fit. All
 * ranks call it, and come to the same answer. */
void uni__elastic_begin(uni_strategy *strategy, uni_model *model);
/* At the end of a fit without an error: all ranks leave it as one group. Until then a new rank can
 * come, which gets from the others what it has missed. */
int uni__elastic_close(uni_strategy *strategy, uni_error *err) UNI_MUST_USE;
void uni__elastic_end(uni_strategy *strategy);
/* Whether fit ended because this rank alone leaves the group; and now it has no more to do with the
 * others. */
bool uni__elastic_leaves(const uni_strategy *strategy);
void uni__elastic_left(uni_strategy *strategy);
/* Between the two: whether it is possible. */
bool uni__elastic_is_active(const uni_strategy *strategy);
bool uni__elastic_is_apart(const uni_strategy *strategy);
void uni__elastic_free(uni_strategy *strategy);

/* Functions of the updater (nn/step.h). */
int uni__elastic_recover(void *context, int status, uni_error *err);
int uni__elastic_enter(void *context, double *sums, size_t count, uni_error *err);
int uni__elastic_recut(void *context, uni_batches *source, uni_batch *out, uni_error *err);
int uni__elastic_epoch_ended(void *context, uni_model *model, uni_error *err);

/* Before the step's counts are summed: what this rank has is there for all. */
int uni__elastic_show(uni_strategy *strategy, const uni__trained *trained,
                      uni_error *err) UNI_MUST_USE;
/* The journal of this rank's slice; NULL: nothing is recovered. */
uni__update_journal *uni__elastic_journal(const uni_strategy *strategy);
/* What this rank has done of the update is not done again when the step is completed: kernels by
 * their factors, counting the step, its slice. */
void uni__elastic_factored(uni_strategy *strategy);
void uni__elastic_begun(uni_strategy *strategy);
void uni__elastic_finished(uni_strategy *strategy);
void uni__elastic_ended(uni_strategy *strategy); /* the step */

/* A collective call outside of steps, in place, with the same result on all ranks. With `cut`, data
 * depends on this rank's part of the batches: UNI__STEP_RECUT when it is another one now, and the
 * call was not made. */
typedef int (*uni__elastic_call)(uni_strategy *strategy, void *data, size_t bytes, uni_error *err);
int uni__elastic_do(uni_strategy *strategy, uni__elastic_call call, bool cut, void *data,
                    size_t bytes, uni_error *err) UNI_MUST_USE;
/* A check that failed because a peer died: the next call finds out, so 0. */
int uni__elastic_forgive(const uni_strategy *strategy, int status);

/* This rank took over the others' weights after that step, and they do not compare them there. */
bool uni__elastic_skips_check(const uni_strategy *strategy, int64_t step);

/* Is this a new rank that has not joined yet? It makes no collective call before it joins. */
bool uni__elastic_joins(const uni_strategy *strategy);
/* This rank calls fit; all ranks do it equally often. */
void uni__elastic_count_fit(uni_strategy *strategy);
/* It has ended well: what a new process needs of it. */
int uni__elastic_keep_fit(uni_strategy *strategy, const uni_model *model, const uni_value *history,
                          uni_error *err) UNI_MUST_USE;
/* A collective call between fits: a new process cannot make it. */
void uni__elastic_note_call(uni_strategy *strategy);
/* The seed of fit, for ranks that join later. */
void uni__elastic_set_seed(uni_strategy *strategy, uint64_t seed);
/* A new rank: gets weights, and where fit stands, from the others. Or UNI__FIT_IS_OVER: they are in
 * a later one; model and *history (NULL: not wanted) are as after this one. */
enum { UNI__FIT_IS_OVER = 1 };
int uni__elastic_join(uni_strategy *strategy, uni_model *model, uint64_t *seed, uni_value **history,
                      uni_error *err) UNI_MUST_USE;

#endif
