/*
 * run_view.h - what several commands say about a run: its status in colour, how long it took, its
 * command line, the last reports, its checkpoints. Thread: main.
 */
#ifndef UNISONO_CLI_RUN_VIEW_H
#define UNISONO_CLI_RUN_VIEW_H

#include "base/text.h"
#include "cli/command.h"

int cli_status_style(uni_run_status status);
/* "✓ succeeded", "✗ failed", "● running", ... ("+", "x", "*" without Unicode). */
void cli_status_text(const cli_terminal *terminal, uni_run_status status, char *out, size_t size);
/* From the start to the end, or until now while it is alive, or to its last sign of life. */
double cli_run_seconds(const uni_run *run, double now);
/* The last iteration that any rank reported. run.json knows it at the end only, so the reports are
 * asked while there is none. */
int64_t cli_run_iterations(const uni_run *run);
/* "python3 train.py --lr 0.1" quoted for a shell, or "function train". The caller frees the text.
 */
void cli_run_what(const uni_run *run, uni__text *out);
/* Adds a word to a command line, in single quotes when a shell needs it. */
void cli_add_word(uni__text *out, const char *word);
/* true when `unisono run --resume` can go on with it: it is over, did not succeed, and is a
 * program's run. */
bool cli_run_resumable(const uni_run *run);

/* The last report of each rank, from the end of results.jsonl (its last 256 KiB): a list of
 * {"rank", "attempt", "iteration", "metrics"} by rank; empty when there are none, NULL without
 * memory. NaN and infinities are put back. */
uni_value *cli_last_reports(const uni_run *run);
/* The complete checkpoints: a list of {"name", "path", "number", "iteration", "time", "bytes",
 * "metrics"}, oldest first; NULL without memory. Damaged ones have "error" instead. */
uni_value *cli_checkpoints(const uni_run *run);
/* run.json with the status as it really is, and "dir". */
uni_value *cli_run_json(const uni_run *run);
/* Metrics as "loss 0.31  accuracy 0.9", without the autofilled ones, at most `limit` of them. */
void cli_add_metrics(uni__text *out, const uni_value *metrics, size_t limit);

#endif
