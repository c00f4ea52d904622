/*
 * csv.h - the parts of the CSV reader (csv*.c), in the order in which a block goes through them:
 *
 *   csv_scan.c   bytes that mean something (quotes, newlines, delimiters), 32 at a time where the machine can (AVX2, chosen at run time)
 *   csv_block.c  which bytes of a file are whole records: byte ranges are cut anywhere, also inside of quotes
 *   csv_parse.c  records to columns, in one pass: a number is converted where it stands, nothing is tokenised first
 *   csv_cell.c   cells that are not plain: quoted, missing, inf, spaces; and what is said of bad ones
 *   csv_infer.c  header and types from the head of the first file
 *   csv.c        the source: options, files, streams
 *
 * Everything but the reader's memory and the blocks' states (under a lock) is read only after the opening, so that blocks are read by several threads at once.
 */
#ifndef UNISONO_DATA_CSV_H
#define UNISONO_DATA_CSV_H

#include <pthread.h>
#include <unisono/data.h>
#include "data/source.h"

typedef struct uni__csv_column {
    char *name; /* in the file */
    uni_field field; /* kind and dtype of what it becomes */
    int out; /* which column of the table; -1: not wanted */
    bool given; /* its type, by the user */
} uni__csv_column;

typedef struct uni__csv {
    uni__files *files;
    int first; /* the first file that is not empty: names and types are from there */
    uni__block *blocks;
    int64_t num_blocks;
    char delimiter, quote;
    bool header; /* the first record of every file is one */
    bool named; /* by the user: whatever a header says */
    int num_columns; /* of the file */
    uni__csv_column *columns;
    int num_out;
    int *chosen; /* num_out: the column of each place in the table */
    uni_table *schema; /* borrowed from the source */
    int num_nulls;
    char **nulls; /* texts of a missing value ... */
    bool null_begins[256]; /* ... and the bytes that they begin with; "" begins with 0 */
    bool masks; /* whole numbers, true and false may be missing */
    bool
        widens; /* numbers of all rows of the head are looked at, and become wider than those of the first rows: whole numbers floating point */
    pthread_mutex_t lock; /* of states */
    uint8_t *states; /* csv_block.c: what is known of the blocks' beginnings */
} uni__csv;

/* ---- csv_scan.c: chosen once for the machine ---- */

typedef struct uni__csv_scan {
    const char *name;
    size_t (*count)(const char *text, size_t size, char c);
    /* The first byte that is one of the four, or end. */
    const char *(*find)(const char *text, const char *end, char a, char b, char c, char d);
} uni__csv_scan;
const uni__csv_scan *uni__csv_scanner(void);
extern const uni__csv_scan uni__csv_scan_base;

/* ---- csv_block.c ---- */

/* The whole records that begin in the block, in the reader's scratch slot 0, with a newline behind the last. *offset: of text[0] in the file. */
int uni__csv_read_block(uni__csv *csv, int64_t index, uni__reader *reader, char **text,
                        size_t *size, int64_t *offset, uni_error *err) UNI_MUST_USE;
/* Behind what a file may have before its first record: a byte order mark, and empty lines before a header. */
const char *uni__csv_head(const uni__csv *csv, const char *p, const char *end);
/* The end of the record at p (behind its newline), or end. */
const char *uni__csv_record_end(const uni__csv *csv, const char *p, const char *end);

/* ---- csv_parse.c ---- */

/* Where a text is from, for messages: lines are counted only when something is wrong. */
typedef struct uni__csv_place {
    const char *path;
    int64_t line; /* of the text's first byte; 0: to be counted from offset */
    int file;
    int64_t offset;
} uni__csv_place;

/* text[size] is a newline of the caller's when the last record has none, and 64 bytes behind are readable. */
int uni__csv_parse(const uni__csv *csv, uni__reader *reader, const uni__csv_place *place,
                   const char *text, size_t size, uni_table **out, uni_error *err) UNI_MUST_USE;

/* ---- csv_cell.c ---- */

typedef struct uni__csv_cell {
    const char *begin, *end; /* the text, without its quotes; in the source or in `buffer` */
    const char *next; /* the delimiter, newline or end behind it */
    bool quoted;
} uni__csv_cell;

/* The cell at p; doubled quotes are undone into buffer (as large as the cell). false: its quote is not closed. */
bool uni__csv_cell_at(const uni__csv *csv, const char *p, const char *end, char *buffer,
                      uni__csv_cell *out);
bool uni__csv_is_null(const uni__csv *csv, const uni__csv_cell *cell);
/* Numbers that are not plain; false when it is none. */
bool uni__csv_slow_double(const uni__csv_cell *cell, double *out);
bool uni__csv_slow_float(const uni__csv_cell *cell, float *out);
bool uni__csv_slow_int(const uni__csv_cell *cell, int64_t *out);
bool uni__csv_slow_natural(const uni__csv_cell *cell, uint64_t *out);
bool uni__csv_is_whole(const uni__csv_cell *cell); /* digits, however many */
bool uni__csv_bool(const uni__csv_cell *cell, uint8_t *out);

/* ---- csv_infer.c ---- */

/* Names and types of the columns; the head is read from the first file that is not empty. *row_text: bytes of a row there. */
int uni__csv_infer(uni__csv *csv, const uni_csv_options *options, const char *head, size_t size,
                   double *row_text, uni_error *err) UNI_MUST_USE;

#endif
