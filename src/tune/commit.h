/*
 * commit.h - group commit: records are written at once, and a separate thread syncs them to disk,
 * many with one fdatasync.
 *
 * An appended record survives kill -9 of the tuner. A power cut may lose the last few milliseconds,
 * whose trials then run again. Callers that announce a final result wait for the disk first.
 * Threads: the tuner's thread calls append and wait.
 */
#ifndef UNISONO_TUNE_COMMIT_H
#define UNISONO_TUNE_COMMIT_H

#include "base/journal.h"

typedef struct uni__commit uni__commit;

/* Takes ownership of the journal. */
int uni__commit_new(uni__commit **out, uni__journal *journal, uni_error *err) UNI_MUST_USE;
int uni__commit_append(uni__commit *commit, const uni_value *record, uni_error *err) UNI_MUST_USE;
/* Waits until everything appended is on disk. */
int uni__commit_wait(uni__commit *commit, uni_error *err) UNI_MUST_USE;
void uni__commit_free(uni__commit *commit);

#endif
