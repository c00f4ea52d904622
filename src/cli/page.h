/* page.h - what the pages (SVG, HTML) have in common: text in them, and where they are written. Thread: main. */
#ifndef UNISONO_CLI_PAGE_H
#define UNISONO_CLI_PAGE_H

#include "base/text.h"
#include "cli/command.h"

/* Text between tags or in quotes; control characters are left out. */
void cli_page_escape(uni__text *out, const char *text);
/* The outline of the mark for a point outside of the axis, its tip at x and y: SVG path data. */
void cli_page_edge_mark(uni__text *out, double x, double y, bool above);
/* Writes the page to path and says so: at once or not at all, readable as the umask allows. "-", a pipe, a device or a link
 * (/dev/stdout) is written to as it is. */
int cli_page_write(cli_context *context, const char *path, const uni__text *page,
                   uni_error *err) UNI_MUST_USE;

#endif
