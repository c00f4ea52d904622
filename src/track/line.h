/*
 * line.h - parses one line of results.jsonl (results.h has the format) into numbers and a
 * dictionary. For this module only.
 *
 * The parser is made for the lines of our own writer: the first keys in fixed order, no white space
 * between tokens. It still trusts nothing: every access is checked against the end, depth is
 * limited, and any other line is UNI_EFORMAT. The head alone (attempt, rank, iteration) is parsed
 * without looking at the metrics, so that a follower can queue lines by offset and build values
 * only when they are handed out. Any thread.
 */
#ifndef UNISONO_TRACK_LINE_H
#define UNISONO_TRACK_LINE_H

#include <unisono/value.h>

typedef struct uni__line_head {
    int attempt, rank;
    int64_t iteration;
    size_t metrics; /* offset of the metrics' opening brace in the line */
} uni__line_head;

/* line[0..size) is without its LF. Does not set an error: the caller counts damaged lines. */
int uni__line_head_parse(const char *line, size_t size, uni__line_head *head) UNI_MUST_USE;
/* Returns the dictionary of metrics with non-finite numbers restored. */
int uni__line_metrics(const char *line, size_t size, const uni__line_head *head, uni_value **out,
                      uni_error *err) UNI_MUST_USE;

#endif
