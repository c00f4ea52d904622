/* tune_page.h - shared by the parts of an experiment's page: dimensions, axes and colours. Thread:
 * main. */
#ifndef UNISONO_CLI_TUNE_PAGE_H
#define UNISONO_CLI_TUNE_PAGE_H

#include "cli/plot.h"
#include "cli/tune_view.h"

enum {
    TUNE_WIDTH = 960,
    TUNE_HEIGHT = 420,
    TUNE_LEFT = 70,
    TUNE_RIGHT = 110,
    TUNE_TOP = 40,
    TUNE_BOTTOM = 30,
    TUNE_MOST_LINES = 1000
};
#define MAX_AXES 16

typedef struct tune_axis {
    char name[160];
    bool log, words;
    double low, high;
    char *choices[64]; /* of string parameters */
    int count;
} tune_axis;

typedef struct tune_page {
    const uni_tune_results *results;
    tune_axis axes[MAX_AXES];
    int num_axes;
    const char *metric;
    int sign;
    bool log;
    cli_range scale; /* of the metric's axis */
} tune_page;

void tune_page_begin_svg(uni__text *out);
double tune_page_y(double part);
/* From grey blue (worst) over green to orange (best). */
void tune_page_colour(uni__text *out, const tune_page *p, double value);
/* The metric's last value. */
double tune_page_value(const tune_page *p, int64_t trial);

/* tune_curves.c */
int tune_page_curves(uni__text *out, tune_page *p, uni_error *err) UNI_MUST_USE;

#endif
