/* json_infer.h - infers the columns of JSON lines from the first of them. For json.c. */
#ifndef UNISONO_DATA_JSON_INFER_H
#define UNISONO_DATA_JSON_INFER_H

#include <unisono/data_readers.h>

#include "data/sources/source.h"

/* Infers the fields of all objects in the text (whole lines), in the order in which keys first
 * appear. Given types take precedence; options->columns selects. A bad line is an error unless
 * options->bad.skip. *rows: number of lines examined. */
int uni__json_infer(uni_table **schema, int64_t *rows, const char *path, const char *text,
                    size_t size, const uni_json_options *options, uni_error *err) UNI_MUST_USE;

/* json.c: parses all lines of the text, which has 64 readable bytes after it, into a table of that
 * schema. For tests and fuzz targets. */
int uni__json_parse(uni__reader *reader, const uni_table *schema, const char *text, size_t size,
                    uni_table **out, uni_error *err) UNI_MUST_USE;

#endif
