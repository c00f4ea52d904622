/* tune_view.h - how an experiment is displayed: the live table on a terminal, lines in a pipe, the
 * page. Thread: main. */
#ifndef UNISONO_CLI_TUNE_VIEW_H
#define UNISONO_CLI_TUNE_VIEW_H

#include <unisono/tune.h>

#include "base/text.h"
#include "cli/terminal.h"

typedef struct tune_view {
    const cli_terminal *terminal, *errors;
    double begun, shown;
    int lines; /* of the table on the screen */
    /* Failed trials that were reported, a byte each. */
    char *told;
    int64_t told_room;
} tune_view;

void tune_view_show(void *view, const uni_tune_results *results); /* uni_tuner_options.progress */
/* Prints the last table. Frees what the view holds. */
void tune_view_end(tune_view *view, const uni_tune_results *results);
/* most: maximum number of rows, 0: all. Returns how many lines were printed. metric and mode may be
 * NULL. */
int tune_view_table(const cli_terminal *terminal, const uni_tune_results *results,
                    const char *metric, const char *mode, int most);

typedef struct tune_page_options {
    /* NULL: those of the experiment. */
    const char *metric, *mode;
    /* Logarithmic axes for the metric. */
    bool log;
} tune_page_options;

/* tune_page.c: makes the page, and in notes one line for each kind of trial that it cannot show. */
int tune_page_make(const uni_tune_results *results, const tune_page_options *options,
                   uni__text *out, uni__text *notes, uni_error *err) UNI_MUST_USE;

#endif
