/*
 * runner.h - the sink thread of a run.
 *
 * uni__sink_runner_start follows a results writer from its current position and passes every joined
 * iteration to the sinks, in order, on its own thread. If any function of a sink fails, a warning
 * names the sink, and it is disabled from then on.
 *
 *     uni__sink_runner_start(&runner, &(uni__sink_runner_options){ .writer = w, ... }, err);
 *     uni__sink_runner_event(runner, &(uni_event){ .kind = UNI_EVENT_WORKERS, ... }); any number
 *     uni__results_writer_flush(w, err);
 *     uni__sink_runner_finish(runner, &(uni_finish_info){ ... });
 *
 * Threads: start and finish by the owner; event from any.
 */
#ifndef UNISONO_TRACK_RUNNER_H
#define UNISONO_TRACK_RUNNER_H

#include "track/results.h"

typedef struct uni__sink_runner uni__sink_runner;

typedef struct uni__sink_runner_options {
    uni__results_writer
        *writer; /* may be closed before finish; what was flushed is drained either way */
    const uni_start_info *info; /* the strings are copied, the config is borrowed until finish */
    uni_sink *const *sinks; /* borrowed until finish */
    int num_sinks;
    bool lockstep; /* wait for ranks without limit, and call `consumed` */
    /* Lockstep: all sinks have handled this iteration. May be NULL. On the sink thread. */
    void (*consumed)(void *context, int attempt, int64_t iteration);
    /* Warnings (a sink that failed, a rank that is missing), for the journal. Sinks with an event
     * function get them too, or the log if there is none. On the sink thread; may be NULL. */
    void (*warning)(void *context, const char *message);
    void *context;
} uni__sink_runner_options;

int uni__sink_runner_start(uni__sink_runner **out, const uni__sink_runner_options *options,
                           uni_error *err) UNI_MUST_USE;
/* Copies and queues the event. At most 1024 wait; more are counted and reported. Never blocks on a
 * sink. */
void uni__sink_runner_event(uni__sink_runner *runner, const uni_event *event);
/* Waits until all that is visible now was handled, including joins that can no longer be completed,
 * and stops following. Call it before finish if `uneven` is needed; otherwise finish does it. */
void uni__sink_runner_drain(uni__sink_runner *runner);
/* After drain: returns 1 and a sentence if ranks had different numbers of reports in the last
 * attempt. */
int uni__sink_runner_uneven(uni__sink_runner *runner, char *sentence, size_t size);
/* Drains, calls finish on every sink, joins the thread and frees the runner (NULL is allowed). */
void uni__sink_runner_finish(uni__sink_runner *runner, const uni_finish_info *info);

#endif
