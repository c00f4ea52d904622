/*
 * results.h - results.jsonl: the writer that the controller calls for every report, and the
 * follower that joins the ranks of one iteration for sinks and iterators. The file is the queue
 * between them.
 *
 * Line 1: {"format":"unisono results","version":1,"world_size":4}. Then one line per report:
 *   {"attempt":1,"rank":0,"iteration":3,"metrics":{...}}           and, if there are any,
 *   ,"nonfinite":{"loss":"NaN","a.b":"-Infinity"}    before the last brace (the metric is null).
 * The follower restores non-finite numbers. It waits for the rest of a torn last line if the writer
 * is alive, and drops it otherwise. If a (rank, iteration) occurs twice, readers keep that of the
 * last attempt.
 *
 * Threads: the writer belongs to the controller's thread; a follower belongs to one thread. `marks`
 * cross between them and are protected internally.
 */
#ifndef UNISONO_TRACK_RESULTS_H
#define UNISONO_TRACK_RESULTS_H

#include <unisono/track.h>

typedef struct uni__results_writer uni__results_writer;
typedef struct uni__follower uni__follower;

/* resume: append to the file of an earlier controller, after cutting off a torn last line. */
int uni__results_writer_open(uni__results_writer **out, const char *path, int world_size,
                             bool resume, uni_error *err) UNI_MUST_USE;
/* The same for the last component of `path`, in the directory `dir` (a descriptor). */
int uni__results_writer_open_at(uni__results_writer **out, int dir, const char *path,
                                int world_size, bool resume, uni_error *err) UNI_MUST_USE;
/* metrics: one msgpack map. Buffered; allocates nothing once warm. */
int uni__results_writer_add(uni__results_writer *writer, int attempt, int rank, int64_t iteration,
                            const void *metrics, size_t size, uni_error *err) UNI_MUST_USE;
/* Writes the buffer (no fsync) and makes it visible to followers. Called when the controller's loop
 * goes idle; the writer calls it itself when the buffer exceeds 256 KiB. If writing fails (disk
 * full), the file is truncated to its last whole line and the buffer is kept: a later flush tries
 * again. */
int uni__results_writer_flush(uni__results_writer *writer, uni_error *err) UNI_MUST_USE;
/* Marks reach followers in order with the lines already added. They say that this rank will not
 * report again in this attempt, or that a new attempt begins (all ranks report again; incomplete
 * joins of the old attempt are given up). They flush. */
int uni__results_writer_rank_ended(uni__results_writer *writer, int rank,
                                   uni_error *err) UNI_MUST_USE;
int uni__results_writer_attempt(uni__results_writer *writer, int attempt,
                                uni_error *err) UNI_MUST_USE;
/* Flushes; followers see the end after the last line. */
void uni__results_writer_close(uni__results_writer *writer);

/* A follower of a live writer (same process), from the point where the file is now. */
int uni__follower_new(uni__follower **out, uni__results_writer *writer,
                      uni_error *err) UNI_MUST_USE;
void uni__follower_free(uni__follower *follower);

/*
 * How long to wait for a rank. An iteration is handed out when every awaited rank has reported it
 * (or a later one). A rank is awaited until it has ended, or until it is found to be behind, which
 * is reported once per rank:
 *   - it has not reported at all in this attempt, and the oldest iteration has waited
 *     `patience_ms` (common: only rank 0 reports);
 *   - `window` iterations are waiting and the oldest has waited `window_ms`;
 *   - `most` reports of one rank are waiting (24 bytes each; the lines stay in the file).
 * A rank that catches up is awaited again. Zero means the default, -1 no limit.
 */
typedef struct uni__follower_limits {
    int patience_ms; /* default 5000; lockstep mode uses -1 */
    int window; /* default 256 */
    int window_ms; /* default 1000 */
    int most; /* default 65536 */
} uni__follower_limits;
void uni__follower_limits_set(uni__follower *follower, const uni__follower_limits *limits);

/* Returns the next joined iteration: 1 and *out (valid until the next call); 0 if nothing is ready
 * within timeout_ms (0: do not wait; -1: no limit) or if it was woken; UNI_EEND after the writer
 * closed and everything was handed out. Ranks that did not report are NULL. The first time that a
 * rank is not awaited, `missing_warning` names it (a sentence, or ""; the caller clears it after
 * reading). */
int uni__follower_next(uni__follower *follower, int timeout_ms, const uni_reports **out,
                       uni_error *err) UNI_MUST_USE;
char *uni__follower_missing_warning(uni__follower *follower);
/* What is visible now is all there will be: as if the writer had closed. */
void uni__follower_end(uni__follower *follower);
/* Returns 1 and a sentence if ranks had different numbers of reports in the last attempt (v1's
 * documented error). */
int uni__follower_uneven(uni__follower *follower, char *sentence, size_t size);
/* Wakes a waiting follower (any thread). */
void uni__follower_wake(uni__follower *follower);

/* Offline: all reports of a finished or dead run, the last attempt of each (rank, iteration),
 * ordered by iteration. */
typedef int (*uni__results_visit)(void *context, const uni_reports *reports, uni_error *err);
int uni__results_read(const char *path, uni__results_visit visit, void *context,
                      uni_error *err) UNI_MUST_USE;

#endif
