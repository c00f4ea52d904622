/*
 * template.h - workers that are forked from a process which has loaded what they need.
 *
 * A program that takes seconds to load (an interpreter with a large framework) is started once, as a template, by the user's program; the
 * workers of all later runs are forked from it. It must be a process with one thread in which nothing is at work yet: the process that becomes a template
 * vouches for that. Workers are children of an agent as always (the agent is forked from the template, too), with their own
 * descriptors, process group, limits, directory and environment; only exec is left out.
 *
 * The two ends are a pair of SOCK_SEQPACKET sockets. Closing the user's end ends the template. A template that does not answer is passed by: workers are then
 * started from worker_program as always.
 *
 * Thread rule: as for trainers. Any number of trainers may use one template.
 *
 * @example
 * int served = uni_template_serve(3, NULL, err); // in the template
 * if (served == 0)
 *     exit(0); // the user's program is gone
 * if (served == 1)
 *     printf("a worker: now call uni_worker_serve\n");
 * @end
 */
#ifndef UNISONO_TEMPLATE_H
#define UNISONO_TEMPLATE_H

#include <stdbool.h>
#include <unisono/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an interpreter wants done around fork. Both are optional. */
typedef struct uni_template_hooks {
    void (*before_fork)(void *context);
    void (*after_fork)(void *context, bool in_child);
    void *context;
} uni_template_hooks;

/* In the template. Returns 0 when the other end of fd was closed: end the process. Returns 1 in each forked worker, whose environment, directory and
 * standard descriptors are set: go on with uni_worker_serve. */
UNI_API UNI_MUST_USE int uni_template_serve(int fd, const uni_template_hooks *hooks,
                                            uni_error *err);

/* From now on the workers that run functions come from the template at the other end of fd (a copy of it is kept; -1: none). Not during a run, and
 * for local workers only. The template's environment should be what uni_trainer_plan shows: what is read while loading cannot be changed
 * by a worker's own. */
UNI_API UNI_MUST_USE int uni_trainer_use_template(uni_trainer *trainer, int fd, uni_error *err);

#ifdef __cplusplus
}
#endif

#endif
