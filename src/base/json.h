/* json.h - appends JSON to an existing buffer (the public functions are in unisono/value.h). Any
 * thread. */
#ifndef UNISONO_BASE_JSON_H
#define UNISONO_BASE_JSON_H

#include <unisono/value.h>
#include "base/compiler.h"
#include "base/text.h"

/* Appends the value; flags as for uni_json_write. On failure the text may contain a part of it. */
int uni__json_add(uni__text *text, const uni_value *value, unsigned flags,
                  uni_error *err) UNI_MUST_USE;

/* Enough for a run.json of 65,536 workers or a model of 10,000 layers; some 300 MB while they are
 * read. */
#define UNI__JSON_FEW ((size_t)1 << 20)

/* As uni_json_read, of text from a file: more than `most` values are refused before a tree is made
 * of them. */
UNI__SHARED int uni__json_read_limited(uni_value **out, const char *text, size_t length,
                                       size_t most, uni_error *err) UNI_MUST_USE;

/* uni_json_read_file that refuses a symbolic link in place of the file (uni__open_unlinked), and
 * more than UNI__JSON_FEW values. */
int uni__json_read_unlinked(uni_value **out, const char *path, uni_error *err) UNI_MUST_USE;

/* Like uni_json_read, but accepts NaN, Infinity and -Infinity as numbers, as Python's json.dumps
 * writes them. */
int uni__json_read_python(uni_value **out, const char *text, size_t length,
                          uni_error *err) UNI_MUST_USE;

#endif
