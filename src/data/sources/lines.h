/*
 * lines.h - sources whose rows are lines of text: byte ranges of plain files (kind split) and
 * streams of compressed ones. A format says how lines become a table; everything else is here. For
 * this folder only.
 */
#ifndef UNISONO_DATA_LINES_H
#define UNISONO_DATA_LINES_H

#include <unisono/data.h>

#include "data/sources/source.h"

/* Where a piece of text comes from, for messages. */
typedef struct uni__lines_place {
    const char *path;
    /* Line of the first byte; 0: not known yet; files, file and offset then locate it. */
    int64_t line;
    const uni__files *files;
    int file;
    int64_t offset;
} uni__lines_place;

typedef struct uni__lines_format {
    const char *name; /* "json" */
    /* Parses all rows of the text, which is whole lines; the last may lack its newline. */
    int (*parse)(const void *format, uni__reader *reader, const uni_table *schema,
                 const uni__lines_place *place, const char *text, size_t size, uni_table **out,
                 uni_error *err);
    /* Row count of the text if no line is bad. */
    int64_t (*count)(const void *format, const char *text, size_t size);
    void (*free)(void *format);
} uni__lines_format;

/* The line number of text[at]. Reads the file up to there if necessary. */
int64_t uni__lines_number(const uni__lines_place *place, const char *text, size_t at);
/* Counts lines. Without `empty_too`, ignores those that are empty or only a CR. */
int64_t uni__lines_count(const char *text, size_t size, bool empty_too);

/* Reads about `want` bytes of the first lines of the first file that has any, into a buffer that
 * the caller frees. Size 0: no bytes at all. */
int uni__lines_head(const uni__files *files, size_t want, char **text, size_t *size,
                    const char **path, uni_error *err) UNI_MUST_USE;

/* Takes ownership of files, schema and format, even on failure. row_bytes: decoded, estimated. */
int uni__lines_dataset(uni_dataset **out, const uni__lines_format *kind, void *format,
                       uni__files *files, uni_table *schema, int64_t block_bytes, int64_t row_bytes,
                       const uni_bad_data *bad, uni_error *err) UNI_MUST_USE;

#endif
