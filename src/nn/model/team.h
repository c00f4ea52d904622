/*
 * team.h - a few threads that work on the same step: a barrier that can be aborted and a sum over
 * all of them.
 *
 * Member 0 is the thread that owns the team; the others are threads of the team's own, which wait
 * between jobs. A wait spins for some microseconds and then sleeps on a futex. When a member fails
 * it aborts the team, so that no other waits for it in the middle of a step.
 */
#ifndef UNISONO_NN_TEAM_H
#define UNISONO_NN_TEAM_H

#include <unisono/tensor.h>

typedef struct uni__team uni__team;
typedef void (*uni__team_job)(void *context, int member);

/* count >= 1 members, the caller included. */
int uni__team_new(uni__team **out, int count, uni_error *err) UNI_MUST_USE;
void uni__team_free(uni__team *team); /* ends the threads */
/* Runs job(context, member) on all members and waits for them. Allocates nothing. */
void uni__team_run(uni__team *team, uni__team_job job, void *context);
/* Inside a job: waits for all members. false when a member aborted. */
bool uni__team_barrier(uni__team *team);
void uni__team_abort(uni__team *team); /* until the next run */
/* Inside a job: values become the sums over the members, in their order, bit-equal everywhere.
 * `inner` (may be NULL) is asked by member 0 to add up with other processes. UNI_ECANCELED when a
 * member aborted. */
int uni__team_sum(uni__team *team, int member, float *values, size_t count, const uni_sync *inner,
                  uni_error *err) UNI_MUST_USE;

#endif
