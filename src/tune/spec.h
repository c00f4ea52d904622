/* spec.h - an experiment's options as a dictionary: what the journal keeps and what a spec file has. Any thread. */
#ifndef UNISONO_TUNE_SPEC_H
#define UNISONO_TUNE_SPEC_H

#include <unisono/tune.h>

/* What of the options a file can hold; keys with their default are left out. */
int uni__spec_of(const uni_tuner_options *options, uni_value **out, uni_error *err) UNI_MUST_USE;
/* All that can be said about a spec without starting anything. */
int uni__spec_check(const uni_value *spec, uni_error *err) UNI_MUST_USE;

struct uni_tune_spec {
    uni_tuner_options options;
    uni_checkpoint_policy policy;
    const char **environment;
};

#endif
