/*
 * csv.h - the parts of the CSV reader (csv*.c), in the order in which a block passes through them:
 *
 *   csv_scan.c     finds quotes, newlines and delimiters, 32 bytes at a time with AVX2 (chosen at
 *                  run time)
 *   csv_block.c    finds the whole records of a byte range, which may be cut anywhere, even inside
 *                  quotes
 *   csv_parse.c    parses records into columns in one pass: converts numbers in place, without
 *                  tokenising first
 *   csv_cell.c     handles cells that are not plain numbers: quoted, missing, inf, spaces
 *   csv_names.c    column names, and which columns are wanted
 *   csv_infer.c    column types, from the head of the first file
 *   csv_options.c  parses options; encodings
 *   csv.c          the source: options, files, streams
 *
 * After opening, everything is read-only except for the reader's memory and the states of the
 * blocks, which a lock guards. So several threads can read blocks at once.
 */
#ifndef UNISONO_DATA_CSV_H
#define UNISONO_DATA_CSV_H

#include <pthread.h>
#include <unisono/data.h>
#include "data/sources/source.h"

typedef struct uni__csv_column {
    char *name; /* in the table */
    char *renamed; /* its name in the file if different, otherwise NULL */
    uni_field field; /* kind and dtype in the table */
    int out; /* column in the table; -1: not wanted */
    bool given; /* the user gave its type */
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
    int first; /* first file that is not empty; names and types come from it */
    uni__block *blocks;
    int64_t num_blocks;
    char delimiter;
    int quote; /* or UNI__CSV_NO_QUOTE, which no byte equals */
    uni__csv_encodings encoding; /* of the files; text is UTF-8 after uni__csv_decode */
    uni_csv_rows short_rows, long_rows;
    bool header; /* every file begins with a header */
    bool named; /* the user gave the names, whatever the header says */
    int num_columns; /* in the file */
    uni__csv_column *columns;
    int num_out;
    int *chosen; /* num_out entries: the file column of each table column */
    uni_table *schema; /* borrowed from the source */
    int num_nulls;
    char **nulls; /* texts of a missing value, each followed by UNI__CSV_SLACK bytes */
    bool number_nulls[256]; /* first bytes of those texts that look like numbers */
    bool head_is_all; /* types come from the whole file */
    bool unknown; /* a column had no value in the head */
    bool masks; /* integers and bools may be missing */
    /* Looks at all rows of the head and widens the types of the first rows: integers may become
     * floating point. */
    bool widens;
    pthread_mutex_t lock; /* guards states */
    uint8_t *states; /* csv_block.c: what is known of each block's beginning */
} uni__csv;

/* ---- csv_scan.c: chosen once for the CPU ---- */

typedef struct uni__csv_scan {
    const char *name;
    size_t (*count)(const char *text, size_t size, char c);
    /* Finds the first byte that is one of the four, or returns end. */
    const char *(*find)(const char *text, const char *end, char a, char b, char c, char d);
} uni__csv_scan;
const uni__csv_scan *uni__csv_scanner(void);
extern const uni__csv_scan uni__csv_scan_base;

/* ---- csv_block.c ---- */

/* Reads the whole records that begin in the block into the reader's scratch memory, with a newline
 * after the last. *offset: file offset of text[0]. */
int uni__csv_read_block(uni__csv *csv, int64_t index, uni__reader *reader, char **text,
                        size_t *size, int64_t *offset, uni_error *err) UNI_MUST_USE;
/* Skips what may precede the first record of a file: a byte order mark, and empty lines before a
 * header. */
const char *uni__csv_head(const uni__csv *csv, const char *p, const char *end);
/* The end of the record at p, after its newline, or end. */
const char *uni__csv_record_end(const uni__csv *csv, const char *p, const char *end);

/* ---- csv_parse.c ---- */

/* Where a text comes from, for messages. Lines are counted only for an error. */
typedef struct uni__csv_place {
    const char *path;
    int64_t line; /* line of the text's first byte; 0: count from offset */
    int file;
    int64_t offset;
} uni__csv_place;

/* If the last record has no newline, the caller has put one at text[size]. 64 bytes after the text
 * are readable. */
int uni__csv_parse(const uni__csv *csv, uni__reader *reader, const uni__csv_place *place,
                   const char *text, size_t size, uni_table **out, uni_error *err) UNI_MUST_USE;

/* ---- csv_cell.c ---- */

typedef struct uni__csv_cell {
    const char *begin, *end; /* the text without its quotes, in the source or in `buffer` */
    const char *next; /* the delimiter or newline after it, or the end */
    bool quoted;
} uni__csv_cell;

/* Reads the cell at p. Undoubles quotes into `buffer`, which is as large as the cell. Returns false
 * if the quote is not closed. */
bool uni__csv_cell_at(const uni__csv *csv, const char *p, const char *end, char *buffer,
                      uni__csv_cell *out);
bool uni__csv_is_null(const uni__csv *csv, const uni__csv_cell *cell);
/* Parse numbers that are not plain; return false if the cell is not a number. */
bool uni__csv_slow_double(const uni__csv_cell *cell, double *out);
bool uni__csv_slow_float(const uni__csv_cell *cell, float *out);
bool uni__csv_slow_int(const uni__csv_cell *cell, int64_t *out);
bool uni__csv_slow_natural(const uni__csv_cell *cell, uint64_t *out);
bool uni__csv_is_whole(const uni__csv_cell *cell); /* digits only, however many */
bool uni__csv_bool(const uni__csv_cell *cell, uint8_t *out);

/* ---- csv_options.c ---- */

/* Takes the options for csv->files. */
int uni__csv_take_options(uni__csv *csv, const uni_csv_options *options,
                          uni_error *err) UNI_MUST_USE;
bool uni__csv_encoding(const char *name, int *out); /* uni__csv_encodings; false: unknown */
int uni__csv_no_encoding(const char *name, uni_error *err);
bool uni__csv_is_ascii(const char *text, size_t size);
/* Converts text from the file's encoding to UTF-8: at most uni__csv_utf8_size bytes. Returns the
 * size. */
size_t uni__csv_utf8_size(const uni__csv *csv, size_t size);
size_t uni__csv_to_utf8(const uni__csv *csv, const char *text, size_t size, char *out);
/* The same into the reader's memory, with a newline appended. Text that is already UTF-8 stays in
 * place. */
int uni__csv_decode(const uni__csv *csv, uni__reader *reader, const char **text, size_t *size,
                    uni_error *err) UNI_MUST_USE;

/* ---- csv_names.c ---- */

/* Reads the cells of the first record: the names, or just their number. *next is what follows. */
int uni__csv_read_names(uni__csv *csv, const uni_csv_options *options, const char *head,
                        const char *end, const char **next, uni_error *err) UNI_MUST_USE;
/* Decides which columns of the file go where. */
int uni__csv_choose(uni__csv *csv, const uni_csv_options *options, uni_error *err) UNI_MUST_USE;
/* Returns UNI_EEXISTS for a name that two columns have. */
int uni__csv_twice(const uni__csv *csv, const char *name, uni_error *err);

/* ---- csv_infer.c ---- */

/* Infers names and types of the columns from the head of the first file that is not empty.
 * *row_text: bytes per row there. */
int uni__csv_infer(uni__csv *csv, const uni_csv_options *options, const char *head, size_t size,
                   double *row_text, uni_error *err) UNI_MUST_USE;

#endif
