/*
 * safe_text.h - makes untrusted text safe to show: on a terminal, in a page, in a log.
 *
 * Names of metrics and columns, host names, errors and lines of logs come from files and workers. A
 * terminal obeys some characters instead of showing them: control characters (escape sequences
 * begin with one), C1 controls, and marks that reverse the writing direction. They are written as
 * in JSON (\u001b, \n, \u202e), so JSON stays the same JSON; bytes that are not UTF-8 become \xff.
 * Everything that prints goes through here. Any thread.
 */
#ifndef UNISONO_BASE_SAFE_TEXT_H
#define UNISONO_BASE_SAFE_TEXT_H

#include "base/text.h"

/* Room for the longest escape (a surrogate pair) and a zero. */
#define UNI__ESCAPE_SIZE 16

/* Examines the character at the beginning of text (length > 0) and returns its bytes. If it must
 * not be shown as it is, `escape` holds the replacement; otherwise "". Characters in `keep` (of
 * "\n\t\r") are left alone. */
size_t uni__safe_step(const char *text, size_t length, const char *keep,
                      char escape[UNI__ESCAPE_SIZE]);
void uni__text_add_safe(uni__text *out, const char *text, size_t length, const char *keep);
/* Room for the longest sequence that uni__sgr_sequence keeps, and a zero. */
#define UNI__SGR_SIZE 96
/* Bytes of an SGR sequence (ESC [ digits and semicolons m) at the beginning; 0 when there is none.
 * `out` gets the part that may be sent to a terminal, without ESC: reset, bold, underline and
 * foreground colors except black and white, because the others can hide text; "" when nothing is
 * left. */
size_t uni__sgr_sequence(const char *text, size_t length, char out[UNI__SGR_SIZE]);

#endif
