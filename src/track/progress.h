/* progress.h - what is known about a run for display, and drawing it as a block of lines. For this
 * module only. */
#ifndef UNISONO_TRACK_PROGRESS_H
#define UNISONO_TRACK_PROGRESS_H

#include <unisono/track.h>

#include "base/text.h"

#define UNI__SHOWN_METRICS 4
#define UNI__RATE_SAMPLES 32
#define UNI__BLOCK_LINES 3

typedef enum uni__progress_rank {
    UNI__RANK_STARTING,
    UNI__RANK_RUNNING,
    UNI__RANK_BEHIND,
    UNI__RANK_FAILED
} uni__progress_rank;

typedef struct uni__progress_state {
    char *run_id;
    int world_size;
    bool resizes;
    double total; /* iterations, 0: unknown */
    double started, attempt_started;
    int64_t iteration;
    int attempt, restarts;
    uint64_t reports; /* joined iterations seen */
    uint8_t *ranks; /* uni__progress_rank */
    int num_metrics;
    char names[UNI__SHOWN_METRICS][48];
    double values[UNI__SHOWN_METRICS]; /* mean over the ranks */
    char checkpoint[48]; /* name of the last one, or "" */
    bool stopping, finished;
    int code;
    double seconds; /* once finished */
    /* For the rate: (time, iteration), the oldest is overwritten. */
    struct {
        double time;
        int64_t iteration;
    } samples[UNI__RATE_SAMPLES];
    int num_samples, next_sample;
} uni__progress_state;

/* Iterations per second over the last samples; 0: not known yet. */
double uni__progress_rate(const uni__progress_state *state);
/* "0:05", "1:02:03"; out has 24 bytes. */
void uni__format_duration(char *out, double seconds);
/* "0.1235", "12", "nan", "-inf": out has 24 bytes. */
void uni__format_metric(char *out, double value);
/* "12.3/s", "1 per 20 s"; out has 24 bytes. */
void uni__format_rate(char *out, double rate);

/* Columns that text takes on a terminal (UTF-8; wide characters are two). */
int uni__text_columns(const char *text, size_t size);
/* Appends text with control characters replaced, so that a worker's text cannot control the
 * terminal. Keeps line feeds if `lines` is set. At most max_columns (0: no limit). */
void uni__add_clean(uni__text *out, const char *text, int max_columns, bool lines);

/* The block: `lines` lines (up to UNI__BLOCK_LINES), each without LF and narrower than `columns`.
 * utf8: block characters for the bar. */
void uni__progress_render(const uni__progress_state *state, int columns, bool utf8, double now,
                          uni__text *lines, int num_lines);

#endif
