/* page.h - shared by the pages (SVG, HTML): escaping text, and writing them. Thread: main. */
#ifndef UNISONO_CLI_PAGE_H
#define UNISONO_CLI_PAGE_H

#include "base/text.h"
#include "cli/command.h"

/* Escapes text for use between tags or in quotes; drops control characters. */
void cli_page_escape(uni__text *out, const char *text);
/* The outline of the mark for a point outside the axis, with its tip at x and y: SVG path data. */
void cli_page_edge_mark(uni__text *out, double x, double y, bool above);
/* Writes the page to path atomically, with permissions from the umask, and reports it. "-", a pipe,
 * a device or a link (/dev/stdout) is written to directly. */
int cli_page_write(cli_context *context, const char *path, const uni__text *page,
                   uni_error *err) UNI_MUST_USE;

#endif
