/*
 * csv.h - the parts of the CSV reader (csv*.c), in the order in which a block goes through them:
 *
 *   csv_scan.c   bytes that mean something (quotes, newlines, delimiters), 32 at a time where the machine can (AVX2, chosen at run time)
 *   csv_block.c  which bytes of a file are whole records: byte ranges are cut anywhere, also inside of quotes
 *   csv_parse.c  records to columns, in one pass: a number is converted where it stands, nothing is tokenised first
 *   csv_cell.c   cells that are not plain: quoted, missing, inf, spaces; and what is said of bad ones
 *   csv_names.c  names of the columns, and which are wanted
 *   csv_infer.c  their types, from the head of the first file
 *   csv_options.c options by their words, encodings
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
    char *name; /* in the table */
    char *renamed; /* its name in the file, when that is another; otherwise NULL */
    uni_field field; /* kind and dtype of what it becomes */
    int out; /* which column of the table; -1: not wanted */
    bool given; /* its type, by the user */
} uni__csv_column;

#define UNI__CSV_NO_QUOTE 256
#define UNI__CSV_MAX_COLUMNS 100000
#define UNI__CSV_SLACK 64 /* numbers are read eight bytes at a time */

typedef enum uni__csv_encodings {
    UNI__CSV_UTF8,
    UNI__CSV_LATIN1,
    UNI__CSV_CP1252
} uni__csv_encodings;

typedef struct uni__csv {
    uni__files *files;
    int first; /* the first file that is not empty: names and types are from there */
    uni__block *blocks;
    int64_t num_blocks;
    char delimiter;
    int quote; /* or UNI__CSV_NO_QUOTE, which no byte is */
    uni__csv_encodings encoding; /* of the files; text is UTF-8 from uni__csv_decode on */
    uni_csv_rows short_rows, long_rows;
    bool header; /* the first record of every file is one */
    bool named; /* by the user: whatever a header says */
    int num_columns; /* of the file */
    uni__csv_column *columns;
    int num_out;
    int *chosen; /* num_out: the column of each place in the table */
    uni_table *schema; /* borrowed from the source */
    int num_nulls;
    char **nulls; /* texts of a missing value, each with UNI__CSV_SLACK bytes behind ... */
    bool number_nulls[256]; /* ... and the bytes that those begin with which look like numbers */
    bool head_is_all; /* types are taken from the whole file */
    bool unknown; /* a column had no value in the head */
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

/* The whole records that begin in the block, in the reader's scratch memory, with a newline behind the last. *offset: of text[0] in the file. */
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

/* ---- csv_options.c ---- */

/* What csv->files are read with. */
int uni__csv_take_options(uni__csv *csv, const uni_csv_options *options,
                          uni_error *err) UNI_MUST_USE;
bool uni__csv_encoding(const char *name, int *out); /* uni__csv_encodings; false: unknown */
int uni__csv_no_encoding(const char *name, uni_error *err);
bool uni__csv_is_ascii(const char *text, size_t size);
/* UTF-8 of text in the file's encoding: at most uni__csv_utf8_size bytes; returns how many. */
size_t uni__csv_utf8_size(const uni__csv *csv, size_t size);
size_t uni__csv_to_utf8(const uni__csv *csv, const char *text, size_t size, char *out);
/* The same in the reader's memory, with a newline behind; text that is UTF-8 stays where it is. */
int uni__csv_decode(const uni__csv *csv, uni__reader *reader, const char **text, size_t *size,
                    uni_error *err) UNI_MUST_USE;

/* ---- csv_names.c ---- */

/* The first record's cells: names, or how many there are. *next is what is behind it. */
int uni__csv_read_names(uni__csv *csv, const uni_csv_options *options, const char *head,
                        const char *end, const char **next, uni_error *err) UNI_MUST_USE;
/* Which columns of the file go where. */
int uni__csv_choose(uni__csv *csv, const uni_csv_options *options, uni_error *err) UNI_MUST_USE;
/* UNI_EEXISTS: a name that two columns have. */
int uni__csv_twice(const uni__csv *csv, const char *name, uni_error *err);

/* ---- csv_infer.c ---- */

/* Names and types of the columns; the head is read from the first file that is not empty. *row_text: bytes of a row there. */
int uni__csv_infer(uni__csv *csv, const uni_csv_options *options, const char *head, size_t size,
                   double *row_text, uni_error *err) UNI_MUST_USE;

#endif
