/*
 * run_view.h - what several commands print about a run: its status in colour, duration, command
 * line, last reports and checkpoints. Thread: main.
 */
#ifndef UNISONO_CLI_RUN_VIEW_H
#define UNISONO_CLI_RUN_VIEW_H

#include "base/text.h"
#include "cli/command.h"

int cli_status_style(uni_run_status status);
/* "✓ succeeded", "✗ failed", "● running", ... ("+", "x", "*" without Unicode). */
void cli_status_text(const cli_terminal *terminal, uni_run_status status, char *out, size_t size);
/* From start to end, to now if it is alive, or to its last sign of life. */
double cli_run_seconds(const uni_run *run, double now);
/* The last iteration that any rank reported. run.json has it only at the end; until then it comes
 * from the reports. */
int64_t cli_run_iterations(const uni_run *run);
/* Of run.json: how many there are now, where their number changes. */
int64_t cli_run_workers(const uni_value *about);
/* "python3 train.py --lr 0.1" quoted for a shell, or "function train". The caller frees the
 * text. */
void cli_run_what(const uni_run *run, uni__text *out);
/* Appends a word to a command line, in single quotes if a shell needs them. */
void cli_add_word(uni__text *out, const char *word);
/* True if `unisono run --resume` can continue it: it is over, did not succeed, and runs a
 * program. */
bool cli_run_resumable(const uni_run *run);

/* The last report of each rank, from the last 256 KiB of results.jsonl: a list of {"rank",
 * "attempt", "iteration", "metrics"} by rank; empty if there are none, NULL if out of memory. NaN
 * and infinities are restored. */
uni_value *cli_last_reports(const uni_run *run);
/* The complete checkpoints: a list of {"name", "path", "number", "iteration", "time", "bytes",
 * "metrics"}, oldest first; NULL if out of memory. Damaged ones have "error" instead. */
uni_value *cli_checkpoints(const uni_run *run);
/* The iteration after which the newest checkpoint of a step was taken; -1: there is none. */
int64_t cli_step_checkpoint(const uni_run *run);
/* run.json with the actual status, and "dir". */
uni_value *cli_run_json(const uni_run *run);
/* Metrics as "loss 0.31  accuracy 0.9", without the autofilled ones, at most `limit` of them. */
void cli_add_metrics(uni__text *out, const uni_value *metrics, size_t limit);

#endif
