/*
 * space.h - marked values of a space: reading and sampling them, and the list of a searcher's
 * choices. Pure functions; any thread.
 */
#ifndef UNISONO_TUNE_SPACE_H
#define UNISONO_TUNE_SPACE_H

#include <unisono/tune.h>

typedef enum uni__domain_kind {
    UNI__DOMAIN_GRID,
    UNI__DOMAIN_CHOICE,
    UNI__DOMAIN_UNIFORM, /* low, high, q or 0, log */
    UNI__DOMAIN_INT, /* low, high inclusive, q, log */
    UNI__DOMAIN_NORMAL, /* low: mean, high: deviation, q or 0 */
    UNI__DOMAIN_FUNCTION
} uni__domain_kind;

typedef struct uni__domain {
    uni__domain_kind kind;
    double low, high, q;
    bool log;
    const uni_value *values; /* GRID, CHOICE */
    const char *function;
} uni__domain;

/* Returns 1 and *out when the value is marked, 0 when it is ordinary, and negative when the mark is
 * invalid; `path` is for the message. */
int uni__domain_read(const uni_value *value, const char *path, uni__domain *out,
                     uni_error *err) UNI_MUST_USE;
/* unit: uniform in [0, 1); for NORMAL it is converted to a normal number. */
uni_value *uni__domain_sample(const uni__domain *domain, double unit);
/* The domain's number nearest to x, in its own units (not the logarithm), with its steps and
 * type. */
uni_value *uni__domain_number(const uni__domain *domain, double x);

/* All marked values of a space, sorted by path. Paths are dotted. */
typedef struct uni__parameter {
    char *path;
    uni__domain domain;
} uni__parameter;
typedef struct uni__space {
    uni__parameter *items;
    int count;
    size_t capacity;
    int64_t grid_size;
} uni__space;
int uni__space_read(uni__space *out, const uni_value *tree, uni_error *err) UNI_MUST_USE;
void uni__space_clear(uni__space *space);
/* Stores a value at the path, whose dictionaries must exist. Takes ownership. */
int uni__space_put(uni_value *tree, const char *path, uni_value *value) UNI_MUST_USE;
/* Calls the functions of a config whose other values are chosen, and resolves domains inside chosen
 * values. */
int uni__space_finish(uni_value *config, const uni_tune_sampler *samplers, uint64_t seed,
                      int64_t index, uni_error *err) UNI_MUST_USE;

#endif
