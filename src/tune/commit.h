/*
 * commit.h - group commit: records are written at once and synced to the disk by a thread of its own, many with one fdatasync.
 *
 * A record that was appended survives kill -9 of the tuner. A power cut may take the last few milliseconds, whose trials then run again. Whoever tells the
 * world that something is final waits for the disk first. Threads: append and wait by the tuner's.
 */
#ifndef UNISONO_TUNE_COMMIT_H
#define UNISONO_TUNE_COMMIT_H

#include "base/journal.h"

typedef struct uni__commit uni__commit;

/* Takes the journal. */
int uni__commit_new(uni__commit **out, uni__journal *journal, uni_error *err) UNI_MUST_USE;
int uni__commit_append(uni__commit *commit, const uni_value *record, uni_error *err) UNI_MUST_USE;
/* Until all that was appended is on the disk. */
int uni__commit_wait(uni__commit *commit, uni_error *err) UNI_MUST_USE;
void uni__commit_free(uni__commit *commit);

#endif
