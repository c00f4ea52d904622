/* cause_words.h - the words for why a run ended. cause: as in run.json, NULL is allowed. */
#ifndef UNISONO_CLI_CAUSE_WORDS_H
#define UNISONO_CLI_CAUSE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <unisono/value.h>

/* "was killed by SIGKILL", "ended with exit code 3", ... : the cause's class as the end of a
 * sentence about the rank. */
void cli_cause_sentence(const uni_value *cause, char *out, size_t size);
/* What to do, or "". */
const char *cli_cause_advice(const uni_value *cause);
/* What was written last is no rank's: mpirun's or srun's. */
bool cli_cause_is_launchers(const uni_value *cause);

#endif
