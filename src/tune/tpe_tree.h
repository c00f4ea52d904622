/*
 * tpe_tree.h - a space as a tree: which parameters are active follows from the choices above them.
 *
 * A group holds the parameters that are always active together: those outside of any choice, or those inside one value of one choice. A trial's parameters are
 * a row with one number each, NaN where the parameter was not active. The row is read off the config alone, so that a resumed search has the same rows. Two values of
 * a choice that could both have given a config count as the first: the train function cannot tell them apart either. Owner's thread.
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
    /* The same from the beginning of the config. */
    char **paths;
    int count;
    /* Where its parameters begin in a row. */
    int first;
    /* [count][choices]: what becomes active with a choice; NULL when nothing does. */
    uni__branch ***branches;
};

/* *width becomes the number of parameters of the whole tree. The tree points into `space`. */
int uni__branch_new(uni__branch **out, const uni_value *space, int *width,
                    uni_error *err) UNI_MUST_USE;
void uni__branch_free(uni__branch *group);
/* Fills the part of a row that is this group's, and those of the groups below that are active. */
void uni__branch_read(const uni__branch *group, const uni_value *value, double *row);
/* Whether all of the group's parameters are known in this row. */
bool uni__branch_active(const uni__branch *group, const double *row);
/* Puts the row's values into a copy of the space. */
int uni__branch_write(const uni__branch *group, const double *row, uni_value *config) UNI_MUST_USE;

#endif
