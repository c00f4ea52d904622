/*
 * tpe_tree.h - a space as a tree: the choices above a parameter decide whether it is active.
 *
 * A group holds the parameters that are always active together: those outside any choice, or those
 * inside one value of one choice. A trial's parameters are a row with one number each, NaN for an
 * inactive parameter. The row is derived from the config alone, so that a resumed search has the
 * same rows. If two values of a choice could both have produced a config, the first one counts: the
 * train function cannot tell them apart either. Owner's thread.
 */
#ifndef UNISONO_TUNE_TPE_TREE_H
#define UNISONO_TUNE_TPE_TREE_H

#include "tune/parzen.h"

typedef struct uni__branch uni__branch;
struct uni__branch {
    uni__space space;
    uni__axis *axes;
    /* Without functions. Their paths begin at the chosen value; "" is that value itself. */
    uni__parameter **parameters;
    /* The same, from the root of the config. */
    char **paths;
    int count;
    /* Index of its first parameter in a row. */
    int first;
    /* [count][choices]: the group that a choice makes active; NULL: none. */
    uni__branch ***branches;
};

/* Sets *width to the number of parameters of the whole tree. The tree points into `space`. */
int uni__branch_new(uni__branch **out, const uni_value *space, int *width,
                    uni_error *err) UNI_MUST_USE;
void uni__branch_free(uni__branch *group);
/* Fills this group's part of a row, and those of the active groups below it. */
void uni__branch_read(const uni__branch *group, const uni_value *value, double *row);
/* Whether all of the group's parameters are known in this row. */
bool uni__branch_active(const uni__branch *group, const double *row);
/* Writes the row's values into a copy of the space. */
int uni__branch_write(const uni__branch *group, const double *row, uni_value *config) UNI_MUST_USE;

#endif
