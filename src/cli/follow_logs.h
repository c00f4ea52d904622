/*
 * follow_logs.h - the workers' log files as one stream of lines, each prefixed with its rank.
 *
 * Workers write to logs/rank_N.log themselves, so that no worker blocks on us and nothing is lost
 * if we die; the terminal view reads after them. Lines of different ranks are interleaved only at
 * line ends. If a file was rotated (its content moved to rank_N.log.1), the unread part is read
 * there, then the new file from its beginning.
 *
 * Thread: poll from one thread; start creates a thread that runs until stop.
 */
#ifndef UNISONO_CLI_FOLLOW_LOGS_H
#define UNISONO_CLI_FOLLOW_LOGS_H

#include <stdint.h>
#include <unisono/status.h>

#include "cli/terminal.h"

typedef struct cli_log_follower cli_log_follower;

typedef struct cli_log_options {
    const char *run_dir; /* copied */
    int num_ranks;
    const bool *wanted; /* by rank; NULL: all. Copied */
    const cli_terminal *out; /* must outlive the follower */
    /* "host:rank | " before each line, with the host that run.json has at that moment. */
    bool prefix;
    bool from_end; /* only what is written from now on */
} cli_log_options;

int cli_log_follower_new(cli_log_follower **out, const cli_log_options *options,
                         uni_error *err) UNI_MUST_USE;
/* Where the next line of that rank begins in its log. */
int64_t cli_log_follower_begin(const cli_log_follower *follower, int rank);
/* Prints complete lines; returns the number of bytes read. */
size_t cli_log_follower_poll(cli_log_follower *follower);
/* Returns the same lines as text, for the progress bar to print above itself. Valid until the next
 * call. */
const char *cli_log_follower_take(cli_log_follower *follower, size_t *size);
/* Prints all that is left, including a last line without a line feed. */
void cli_log_follower_drain(cli_log_follower *follower);
int cli_log_follower_start(cli_log_follower *follower, uni_error *err) UNI_MUST_USE;
/* Ends the thread and drains. */
void cli_log_follower_stop(cli_log_follower *follower);
void cli_log_follower_free(cli_log_follower *follower); /* stops first */

#endif
