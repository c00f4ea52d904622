/*
 * explain.h - the first cause of a run's end in plain words: what `unisono why` prints, and the
 * last thing that `unisono run` says. Thread: main.
 */
#ifndef UNISONO_CLI_EXPLAIN_H
#define UNISONO_CLI_EXPLAIN_H

#include "cli/command.h"

/* The block: cause, place, victims, log tail, what to do next. A run that ended well gets a short
 * one. max_log_lines 0: none. */
void cli_explain(const cli_terminal *terminal, uni_run *run, size_t max_log_lines);
/* The same for programs: {"id", "status", "cause", "sentence", "victims", "resumable",
 * "resume_from", "advice": [...], "attempts": [...]}. */
uni_value *cli_explain_json(uni_run *run);

#endif
