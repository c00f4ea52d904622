/*
 * explain.h - the first cause of a run's end in plain words: printed by `unisono why`, and at the
 * end of `unisono run`. Thread: main.
 */
#ifndef UNISONO_CLI_EXPLAIN_H
#define UNISONO_CLI_EXPLAIN_H

#include "cli/command.h"

/* Prints the block: cause, location, victims, log tail, what to do next. A successful run gets a
 * short one. max_log_lines 0: none. */
void cli_explain(const cli_terminal *terminal, uni_run *run, size_t max_log_lines);
/* The same for programs: {"id", "status", "cause", "sentence", "victims", "resumable",
 * "resume_from", "advice": [...], "attempts": [...]}. */
uni_value *cli_explain_json(uni_run *run);

#endif
