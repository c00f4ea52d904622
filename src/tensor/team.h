/*
 * team.h - a few threads that work on the same step: a barrier that can be aborted, and a sum over
 * all members. The replicas of fit (src/nn) and of custom training loops (src/strategy) are such
 * teams.
 *
 * Member 0 is the thread that owns the team; the others are the team's own threads, which wait
 * between jobs. A waiting member spins for some microseconds and then sleeps on a futex. It sleeps
 * at once when a member it may wait for is on the same core. A member that fails aborts the team,
 * so that no other waits for it in the middle of a step. A barrier also fails when a member has
 * ended its job without reaching it, because it could never complete.
 */
#ifndef UNISONO_TENSOR_TEAM_H
#define UNISONO_TENSOR_TEAM_H

#include <unisono/tensor.h>

#include "base/compiler.h"

typedef struct uni__team uni__team;
typedef void (*uni__team_job)(void *context, int member);

/* count >= 1 members, including the caller. */
UNI__SHARED int uni__team_new(uni__team **out, int count, uni_error *err) UNI_MUST_USE;
UNI__SHARED void uni__team_free(uni__team *team); /* ends the threads */
/* Runs job(context, member) on all members and waits for them. Allocates nothing. */
UNI__SHARED void uni__team_run(uni__team *team, uni__team_job job, void *context);
/* Inside a job: waits for all members. false when a member aborted, or ended its job. */
bool uni__team_barrier(uni__team *team, int member);
/* uni__team_barrier as a status: UNI_ECANCELED with a message for either case. */
UNI__SHARED int uni__team_meet(uni__team *team, int member, uni_error *err) UNI_MUST_USE;
UNI__SHARED void uni__team_abort(uni__team *team); /* lasts until the next run */
/* Inside a job: replaces values by their sums over the members, in member order, bit-equal
 * everywhere. Member 0 calls `inner` (may be NULL) to sum over other processes. UNI_ECANCELED when
 * a member aborted. */
UNI__SHARED int uni__team_sum(uni__team *team, int member, float *values, size_t count,
                              const uni_sync *inner, uni_error *err) UNI_MUST_USE;

#endif
