/*
 * json_scan.h - JSON values one after the other out of text, without trees and without allocation,
 * for JSON lines and headers. Strict (RFC 8259): UTF-8, escapes, numbers and nesting are checked,
 * also in what is stepped over. One thread a scanner.
 */
#ifndef UNISONO_DATA_JSON_SCAN_H
#define UNISONO_DATA_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

typedef enum uni__json_kind {
    UNI__JSON_BAD = -1, /* scan->problem says what is wrong at scan->at */
    UNI__JSON_NULL,
    UNI__JSON_BOOL,
    UNI__JSON_INT,
    UNI__JSON_FLOAT,
    UNI__JSON_STRING,
    UNI__JSON_LIST,
    UNI__JSON_OBJECT
} uni__json_kind;

typedef struct uni__json_scan {
    const char *at, *end;
    const char *problem;
} uni__json_scan;

typedef struct uni__json_token {
    int64_t integer; /* bool and int */
    double real; /* int and float */
    const char *text; /* as written; strings without their quotes */
    size_t size;
    bool escaped; /* a string with backslashes: uni__json_unescape */
} uni__json_token;

#define UNI__JSON_MAX_DEPTH 30

/* One whole value; lists and objects are stepped over (and checked) to their end. A number without
 * '.' and exponent that does not fit 64 bits is a FLOAT. */
UNI__SHARED uni__json_kind uni__json_next(uni__json_scan *scan, uni__json_token *token);
/* What the value is, without reading it; BAD at the end. */
uni__json_kind uni__json_peek(uni__json_scan *scan);
UNI__SHARED void uni__json_space(uni__json_scan *scan);
/* Steps over the character when it comes next (after white space). */
UNI__SHARED bool uni__json_take(uni__json_scan *scan, char c);
/* false, with the problem noted. */
UNI__SHARED bool uni__json_fail(uni__json_scan *scan, const char *problem);

/* Containers: open with take('[') or take('{'), then before each item: 1 there is one, 0 the end
 * (which is stepped over), -1 bad. `first` is true for the first call. Members of objects: their
 * key is read, too, up to behind the colon. */
UNI__SHARED int uni__json_item(uni__json_scan *scan, bool first);
UNI__SHARED int uni__json_member(uni__json_scan *scan, bool first, uni__json_token *key);

/* Unescapes a key into `buffer`, which grows (realloc). Returns false if out of memory or, with a
 * problem set, if the key cannot be a column name. */
typedef struct uni__json_names {
    char *buffer;
    size_t room;
} uni__json_names;
bool uni__json_name(uni__json_scan *scan, uni__json_names *names, uni__json_token *key);
/* At most `size` bytes into out, which may be the text; returns how many. The text was checked by
 * the scanner. */
UNI__SHARED size_t uni__json_unescape(char *out, const char *text, size_t size);

#endif
