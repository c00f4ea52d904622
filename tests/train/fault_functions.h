/* fault_functions.h - what goes wrong in the workers of faults.c and controllers.c, and what is read of it afterwards. */
#ifndef UNISONO_TESTS_FAULT_FUNCTIONS_H
#define UNISONO_TESTS_FAULT_FUNCTIONS_H

#include "scenario.h"

/* The cause in run.json. *description owns it (NULL before the first call) and is the caller's to free. */
const uni_value *cause_of(uni_value **description, const char *run_dir);
/* Whether a message in the run's journal has these words. */
bool journal_says(const char *run_dir, const char *words);

#endif
