/*
 * shared.h - what tune shares with our other libraries, the command and the Python extension. Not
 * installed: programs see include/unisono.
 */
#ifndef UNISONO_TUNE_SHARED_H
#define UNISONO_TUNE_SHARED_H

#include "base/compiler.h"
#include <unisono/tune.h>

/* UNI_EINVAL, with the path of the value and what is wrong with it. */
UNI__SHARED UNI_MUST_USE int uni__tune_space_check(const uni_value *space, uni_error *err);
/* Combinations of the grid values; 1 when there are none. */
UNI_MUST_USE int uni__tune_space_size(const uni_value *space, int64_t *out, uni_error *err);
/* The config of trial number `index` by grid and random search: a pure function of its
 * arguments. */
UNI__SHARED UNI_MUST_USE int uni__tune_space_config(const uni_value *space,
                                                    const uni_tune_sampler *samplers, uint64_t seed,
                                                    int64_t index, uni_value **out, uni_error *err);
/* Reads options from a dictionary (a spec file) that has the names of the fields above. The
 * struct points into the dictionary. An unknown name is an error that suggests the nearest. */
typedef struct uni__tune_spec uni__tune_spec;
UNI__SHARED UNI_MUST_USE int uni__tune_spec_read(uni__tune_spec **out, const uni_value *dict,
                                                 uni_error *err);
UNI__SHARED uni_tuner_options *uni__tune_spec_options(uni__tune_spec *spec);
UNI__SHARED void uni__tune_spec_free(uni__tune_spec *spec);
/* A number in a report by name, nested ones as "a/b"; NaN if missing. */
UNI__SHARED double uni__tune_metric(const uni_value *metrics, const char *name);
/* Names of all numbers that were reported, a list, in order of appearance; the caller frees it. */
UNI__SHARED uni_value *uni__tune_metric_names(const uni_tune_results *results);
/* A list of dictionaries: trial, status, iterations, seconds, config/..., metrics. times=false
 * omits what differs from run to run. */
UNI__SHARED uni_value *uni__tune_table(const uni_tune_results *results, bool times);

#endif
