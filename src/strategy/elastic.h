/*
 * elastic.h - ranks of one host that are replaced while fit goes on.
 *
 * When a rank dies in a training step, the others keep their processes, models and readers. A new
 * process takes the dead one's rank, and all meet over a new communicator. The step that was under
 * way is completed or repeated, so that the run ends with the bits of an undisturbed one.
 *
 *   not all ranks have shown gradients and counts   nothing has changed: the step is repeated
 *   all have                                        the step is decided: survivors complete the
 *                                                   slice of the dead rank from its journal
 *
 * Every rank has a line in shared pages: the step that it has shown, its counts, and the journal of
 * its slice (nn/step.h). The lines of the old communicator are read only after all survivors have
 * met over the new one, when no line changes any more; so all come to the same answer.
 *
 * After the meeting, in this order on every rank:
 *   1. all_gather: which ranks are new, and the step of each; the source is the lowest survivor at
 *      the latest step
 *   2. broadcast by the source: is the step complete?
 *   3. new pages, filled by the source
 *   4. broadcast by the source: where fit stands; after the batch when the step is complete
 *
 * A rank one step behind had only missed the end of the closing barrier: its step is complete.
 * What does not fit (clipping by norm, gradient accumulation, a death outside of a step, several
 * hosts) fails as before, and the run restarts from its checkpoint. fit's thread.
 */
#ifndef UNISONO_STRATEGY_ELASTIC_H
#define UNISONO_STRATEGY_ELASTIC_H

#include "strategy/internal.h"

/* What decides which processes are in the group: the controller of a run, or a test. */
typedef struct uni__membership_vtable {
    const char *name;
    /* Waits for a group that follows the one of number `after`, and meets it: a communicator of
     * the same size in which this process has its rank. A group that loses a rank before all have
     * met is passed over. Negative: there will be none. */
    int (*meet)(void *context, uint32_t after, uni_comm **out, uint32_t *number, uni_error *err);
} uni__membership_vtable;

/* Makes a multi_worker strategy elastic. number: of the group that its communicator is of. joins:
 * this process came later than the others, which are in the first call of uni_strategy_fit. */
int uni__strategy_set_membership(uni_strategy *strategy, const uni__membership_vtable *vtable,
                                 void *context, uint32_t number, bool joins,
                                 uni_error *err) UNI_MUST_USE;

/* The updater's recover. */
int uni__elastic_recover(void *context, int status, uni_error *err);
/* Before the step's counts are summed: what this rank has is there for all. */
int uni__elastic_show(uni_strategy *strategy, const uni__trained *trained,
                      uni_error *err) UNI_MUST_USE;
/* The journal of this rank's slice; NULL: not elastic. */
uni__update_journal *uni__elastic_journal(const uni_strategy *strategy);
/* The update has been begun: it is not begun again when the step is completed. */
void uni__elastic_begun(uni_strategy *strategy);
void uni__elastic_ended(uni_strategy *strategy); /* the step */
/* New ranks still wait to be told where fit stands: all tell them after the batch. */
bool uni__elastic_owes(const uni_strategy *strategy);
int uni__elastic_tell(uni_strategy *strategy, uni_error *err) UNI_MUST_USE;
/* Is this a new rank that has not joined yet? It makes no collective call before it joins. */
bool uni__elastic_joins(const uni_strategy *strategy);
/* The seed of fit, for ranks that join later. */
void uni__elastic_set_seed(uni_strategy *strategy, uint64_t seed);
/* A new rank: gets weights, and where fit stands, from the others. */
int uni__elastic_join(uni_strategy *strategy, uni_model *model, uint64_t *seed,
                      uni_error *err) UNI_MUST_USE;
void uni__elastic_free(uni_strategy *strategy);

#endif
