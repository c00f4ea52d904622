/* tune_common.h - what the scenarios of tune share: train functions ("square", "dies", "silent") and tuners made of a spec's text. */
#ifndef UNISONO_TESTS_TUNE_COMMON_H
#define UNISONO_TESTS_TUNE_COMMON_H

#include "../train/scenario.h"

uni_value *tune_json(const char *text);
/* With the program's own functions, below the scenario's storage; the spec lives as long as the process. */
uni_tuner *tune_tuner(uni_program *program, const char *spec_text);
uni_tuner *tune_fitted(uni_program *program, const char *spec_text);

#endif
