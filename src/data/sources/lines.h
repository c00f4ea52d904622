/*
 * lines.h - sources whose rows are lines of text: one place for byte ranges of plain files (kind split) and for streams of compressed ones.
 * A format says how lines become a table; everything else is here. For this folder only.
 */
#ifndef UNISONO_DATA_LINES_H
#define UNISONO_DATA_LINES_H

#include <unisono/data.h>

#include "data/source.h"

/* Where a piece of text is from, for messages. */
typedef struct uni__lines_place {
    const char *path;
    int64_t line; /* of the first byte; 0: not known yet, and then files, file and offset find it */
    const uni__files *files;
    int file;
    int64_t offset;
} uni__lines_place;

typedef struct uni__lines_format {
    const char *name; /* "json" */
    /* All rows of the text, which is whole lines (the last may lack its newline). */
    int (*parse)(const void *format, uni__reader *reader, const uni_table *schema,
                 const uni__lines_place *place, const char *text, size_t size, uni_table **out,
                 uni_error *err);
    /* How many rows that is when no line is bad. */
    int64_t (*count)(const void *format, const char *text, size_t size);
    void (*free)(void *format);
} uni__lines_format;

/* The number of the line that text[at] is in. Reads the file up to there when it must. */
int64_t uni__lines_number(const uni__lines_place *place, const char *text, size_t at);
/* Lines that are not empty (but for a CR and, with `blank`, white space). */
int64_t uni__lines_count(const char *text, size_t size, bool empty_too);

/* The first lines of the first file that has any: about `want` bytes of them, in a buffer of the caller's to free. No bytes at all is size 0. */
int uni__lines_head(const uni__files *files, size_t want, char **text, size_t *size,
                    const char **path, uni_error *err) UNI_MUST_USE;

/* Takes files, schema and format, also when it fails. row_bytes: decoded, estimated. */
int uni__lines_dataset(uni_dataset **out, const uni__lines_format *kind, void *format,
                       uni__files *files, uni_table *schema, int64_t block_bytes, int64_t row_bytes,
                       const uni_bad_data *bad, uni_error *err) UNI_MUST_USE;

#endif
