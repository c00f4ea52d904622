/* json.h - JSON into a buffer that is there already (the public functions are in
 * unisono/value.h). Any thread. */
#ifndef UNISONO_BASE_JSON_H
#define UNISONO_BASE_JSON_H

#include <unisono/value.h>
#include "base/text.h"

/* Appends the value; flags as for uni_json_write. On failure the text may have a part of it. */
int uni__json_add(uni__text *text, const uni_value *value, unsigned flags,
                  uni_error *err) UNI_MUST_USE;

/* uni_json_read_file that refuses a symbolic link in place of the file (uni__open_unlinked). */
int uni__json_read_unlinked(uni_value **out, const char *path, uni_error *err) UNI_MUST_USE;

/* As uni_json_read, and takes NaN, Infinity and -Infinity as numbers, as Python's json.dumps writes them. */
int uni__json_read_python(uni_value **out, const char *text, size_t length,
                          uni_error *err) UNI_MUST_USE;

#endif
