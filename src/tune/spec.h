/* spec.h - an experiment's options as a dictionary, as in the journal and in a spec file. Any
 * thread. */
#ifndef UNISONO_TUNE_SPEC_H
#define UNISONO_TUNE_SPEC_H

#include <unisono/tune.h>
#include "tune/shared.h"

/* The options that a file can hold; keys with their default value are left out. */
int uni__spec_of(const uni_tuner_options *options, uni_value **out, uni_error *err) UNI_MUST_USE;
/* Checks a spec as far as possible without starting anything. */
int uni__spec_check(const uni_value *spec, uni_error *err) UNI_MUST_USE;

struct uni__tune_spec {
    uni_tuner_options options;
    uni_checkpoint_policy policy;
    const char **environment;
};

#endif
