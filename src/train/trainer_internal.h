/* trainer_internal.h - what trainer.c, trainer_options.c, run_setup.c and iterator.c share. Only
 * for this module. */
#ifndef UNISONO_TRAIN_TRAINER_INTERNAL_H
#define UNISONO_TRAIN_TRAINER_INTERNAL_H

#include "train/run_internal.h"

/* trainer_options.c */
int uni__trainer_copy_options(uni_trainer *trainer, const uni_trainer_options *asked,
                              uni_error *err) UNI_MUST_USE;
void uni__trainer_drop_options(uni_trainer *trainer);
/* The file that a program's name means, as a shell would find it. */
int uni__find_program(const char *name, char **out, uni_error *err) UNI_MUST_USE;

/* run_setup.c: on the user's thread */
/* Everything of a run up to the point where workers are needed; sinks' thread is running. */
int uni__run_new(uni__run **out, uni_trainer *trainer, const uni_run_options *asked,
                 bool for_iterator, uni_error *err) UNI_MUST_USE;
/* Takes it apart: sinks are drained, checkpoints closed. The result, also of a failed run; NULL
 * only without memory. */
uni_result *uni__run_end(uni__run *run);

/* trainer.c */
int uni__trainer_begin(uni_trainer *trainer, const uni_run_options *asked, bool for_iterator,
                       uni__run **out, uni_error *err) UNI_MUST_USE;
/* After uni__run_end: the trainer may begin another run. */
void uni__trainer_ended(uni_trainer *trainer);

#endif
