/*
 * parzen.h - Parzen estimators: a density over the parameters of one group, from the trials in
 * which that group was active.
 *
 * A density is a mixture of one product kernel per trial and a wide one, the prior. Numbers have
 * truncated normal kernels (over the logarithm if the domain says so). The width of each kernel in
 * each parameter is the distance to the farther neighbor, so that crowded regions are resolved
 * finely and sparse ones are not. Values on steps are scored by the mass of their step. Choices
 * have smoothed counts. Pure functions of their arguments; any thread.
 */
#ifndef UNISONO_TUNE_PARZEN_H
#define UNISONO_TUNE_PARZEN_H

#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

#include "tune/space.h"

/* One parameter in the units of its kernels. */
typedef struct uni__axis {
    const uni__domain *domain;
    /* 0 for a number. */
    int choices;
    /* Of a number: the ends, the widest kernel, and the prior's center and width. */
    double low, high, widest, centre, width;
} uni__axis;

void uni__axis_init(uni__axis *axis, const uni__domain *domain);
/* Converts a number of the config to the units of the kernels, and back. */
double uni__axis_from(const uni__axis *axis, double number);
double uni__axis_to(const uni__axis *axis, double x);

typedef struct uni__parzen uni__parzen;

/* rows[i][j]: trial i in order of age, parameter j. Rows and axes are borrowed. NULL: out of
 * memory. */
uni__parzen *uni__parzen_new(const uni__axis *axes, int num_axes, const double *const *rows,
                             size_t num_rows);
void uni__parzen_free(uni__parzen *parzen);

/* A stream of random numbers keyed by the trial, so that a resumed search draws the same ones. */
typedef struct uni__dice {
    uint64_t seed, stream, next;
} uni__dice;
double uni__dice_roll(uni__dice *dice);

void uni__parzen_draw(const uni__parzen *parzen, uni__dice *dice, double *x);
double uni__parzen_log(const uni__parzen *parzen, const double *x);

#endif
