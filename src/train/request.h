/*
 * request.h - what a run was asked for: copies of the caller's options, checked before anything is
 * started. Made by the user's thread; nothing changes it afterwards.
 */
#ifndef UNISONO_TRAIN_REQUEST_H
#define UNISONO_TRAIN_REQUEST_H

#include <unisono/trainer.h>

typedef struct uni__request {
    char *function, *exe;
    uni_value *program; /* argv, or NULL */
    uni_value *config;
    uni_value *attachment; /* in memory only; or NULL */
    uni_value *datasets; /* descriptions by name, or NULL */
    uni_checkpoint_policy policy; /* with a score_attribute of its own */
    char *from_checkpoint; /* verified path, or NULL */
    uni_value *from_state; /* of all ranks at that checkpoint, a list by rank; or NULL */
    int from_fd; /* a dictionary in memory to start from, or -1 */
    double time_limit, progress_timeout;
    bool v1, trial;
    bool synchronous; /* report() returns when its checkpoint is complete */
} uni__request;

/* functions: those that workers know, or NULL when that is not known here. */
int uni__request_read(uni__request *out, const uni_run_options *asked, bool has_workers,
                      const uni_function *functions, uni_error *err) UNI_MUST_USE;
void uni__request_clear(uni__request *request);

#endif
