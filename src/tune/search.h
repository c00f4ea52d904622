/*
 * search.h - proposes configs: grid and random, TPE, or the user's own (tune.h). All have the form
 * of uni_tune_searcher. restore and tell, called in journal order, rebuild their state, and their
 * random numbers are keyed by the trial's number. So a resumed searcher proposes what the killed
 * one would have. Owner's thread.
 */
#ifndef UNISONO_TUNE_SEARCH_H
#define UNISONO_TUNE_SEARCH_H

#include <unisono/tune.h>

typedef struct uni__search_setting {
    const uni_value *options; /* {"type": ...} or NULL */
    const uni_value *space;
    const uni_tune_sampler *samplers;
    uint64_t seed;
    int64_t total; /* number of trials; -1: unlimited */
    int sign; /* of the metric, 0: none */
} uni__search_setting;

typedef struct uni__searcher {
    uni_tune_searcher methods; /* .self is what free gets */
    void (*free)(void *self);
} uni__searcher;

/* Strings of the setting are borrowed while the searcher lives. */
int uni__searcher_new(uni__searcher *out, const uni__search_setting *setting,
                      uni_error *err) UNI_MUST_USE;
void uni__searcher_clear(uni__searcher *searcher);

/* tpe.c */
int uni__tpe_new(uni__searcher *out, const uni__search_setting *setting,
                 uni_error *err) UNI_MUST_USE;

/* Rejects keys that are not in the NULL-terminated list; "type" is always allowed. */
int uni__check_keys(const char *what, const uni_value *options, const char *const *known,
                    uni_error *err) UNI_MUST_USE;

#endif
