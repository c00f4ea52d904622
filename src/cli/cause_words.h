/* cause_words.h - the words for why a run ended. cause: as in run.json; may be NULL. */
#ifndef UNISONO_CLI_CAUSE_WORDS_H
#define UNISONO_CLI_CAUSE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <unisono/value.h>

/* "was killed by SIGKILL", "ended with exit code 3", ...: the class of the cause as the end of a
 * sentence about the rank. */
void cli_cause_sentence(const uni_value *cause, char *out, size_t size);
/* Advice, or "". */
const char *cli_cause_advice(const uni_value *cause);
/* True if the last output came from mpirun or srun, not from a rank. */
bool cli_cause_is_launchers(const uni_value *cause);

#endif
