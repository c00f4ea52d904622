/*
 * csv_parse.c - parses records into columns in one pass. A plain number is converted in place, and
 * its end is where the next cell begins; only other cells are looked at a second time (csv_cell.c).
 * The newlines are counted first, which bounds the rows. Any thread.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/sources/csv.h"
#include "data/sources/decimal.h"
#include "data/sources/whole.h"
#include "data/table/table.h"

/* What a cell becomes; each has a case in parse_cell. */
enum target { SKIP, FLOAT64, FLOAT32, INT64, NARROW_INT, BOOL, STRING };

struct text_cell {
    const char *begin;
    int64_t size;
};

/* A column under construction. */
struct making {
    enum target target;
    uni_dtype dtype;
    uni_array *values; /* numbers */
    void *data;
    uni_array *valid; /* created with the first missing value */
    struct text_cell *cells; /* strings: a part of parse->cells */
};

struct parse {
    const uni__csv *csv;
    uni__reader *reader;
    const uni__csv_place *place;
    const char *text, *end;
    struct making *columns; /* of the file */
    uni_array *cells; /* of all string columns: one buffer, however many there are */
    int64_t row, capacity;
    /* Unquoted cells that had doubled quotes, one after another; NULL until needed. */
    char *unquoted;
    size_t unquoted_size;
    bool ascii; /* no byte of the text is above 127 */
};

static enum target target_of(const uni__csv_column *column)
{
    if (column->out < 0)
        return SKIP;
    if (column->field.kind != UNI_FIELD_NUMBER)
        return STRING;
    switch (column->field.dtype) {
    case UNI_F64:
        return FLOAT64;
    case UNI_F32:
        return FLOAT32;
    case UNI_I64:
        return INT64;
    case UNI_B8:
        return BOOL;
    default:
        return NARROW_INT;
    }
}

/* ---- bad cells ---- */

static const char missing_words[] = "missing, which its type cannot say";

/* Returns 0 if the row is skipped. Computes the line number only for a message. */
static int bad(struct parse *parse, uni_error *err, const char *at, int column, const char *what,
               const uni__csv_cell *cell)
{
    const uni__csv_place *place = parse->place;
    int64_t line = 0;
    if (!uni__reader_skips(parse->reader)) {
        size_t before = uni__csv_scanner()->count(parse->text, (size_t)(at - parse->text), '\n');
        line = place->line > 0
                   ? place->line + (int64_t)before
                   : uni__files_line_number(parse->csv->files, place->file, place->offset) +
                         (int64_t)before;
    }
    int size = cell != NULL ? (int)(cell->end - cell->begin) : 0;
    const char *name = column < parse->csv->num_columns ? parse->csv->columns[column].name : "";
    if (cell == NULL)
        return uni__reader_bad(parse->reader, err, place->path, line, column + 1, "%s", what);
    bool guessed = parse->columns[column].target != STRING && !parse->csv->columns[column].given;
    bool missing = what == missing_words;
    return uni__reader_bad(
        parse->reader, err, place->path, line, column + 1, "\"%.*s\" in column %s is %s%s",
        size < 40 ? size : 40, cell->begin, name, what,
        guessed   ? "; the column's type was taken from the first rows: give it "
                    "(types), or let more be looked at (infer_rows)"
        : missing ? ": give the type float64, which has NaN, or text, or skip such rows"
                  : "");
}

/* ---- cells ---- */

static int set_missing(struct parse *parse, struct making *making, uni_error *err)
{
    if (making->valid == NULL) {
        UNI_TRY(uni__reader_array(parse->reader, &making->valid, UNI_B8, 1,
                                  (const int64_t[]){ parse->capacity }, err));
        memset(uni_array_data(making->valid), 1, (size_t)parse->capacity);
    }
    ((uint8_t *)uni_array_data(making->valid))[parse->row] = 0;
    return 0;
}

/* Space for an unquoted cell, at most as large as the text. */
static char *unquoting_space(struct parse *parse)
{
    if (parse->unquoted == NULL)
        parse->unquoted = uni__reader_scratch(parse->reader, UNI__SCRATCH_CSV_UNQUOTED,
                                              (size_t)(parse->end - parse->text) + 1);
    return parse->unquoted != NULL ? parse->unquoted + parse->unquoted_size : NULL;
}

/* Results of store_slow besides errors. */
enum { NO_NUMBER = 0, STORED, NO_PLACE };

/* Stores a missing number. NO_PLACE: the column's type, the same in all batches, cannot represent
 * it. */
static int store_missing(struct parse *parse, struct making *making, uni_error *err)
{
    if (making->target == FLOAT64) {
        ((double *)making->data)[parse->row] = (double)NAN;
        return STORED;
    }
    if (making->target == FLOAT32) {
        ((float *)making->data)[parse->row] = NAN;
        return STORED;
    }
    if (!parse->csv->masks)
        return NO_PLACE;
    if (making->target == BOOL)
        ((uint8_t *)making->data)[parse->row] = 0;
    else if (!uni__store_whole(making->data, making->dtype, parse->row, 0))
        return NO_NUMBER;
    UNI_TRY(set_missing(parse, making, err));
    return STORED;
}

/* Stores a number cell that is not plain. */
static int store_slow(struct parse *parse, struct making *making, const uni__csv_cell *cell,
                      uni_error *err)
{
    int64_t whole = 0, row = parse->row;
    uint64_t natural = 0;
    if (uni__csv_is_null(parse->csv, cell))
        return store_missing(parse, making, err);
    switch (making->target) {
    case FLOAT64:
        return uni__csv_slow_double(cell, &((double *)making->data)[row]) ? STORED : NO_NUMBER;
    case FLOAT32:
        return uni__csv_slow_float(cell, &((float *)making->data)[row]) ? STORED : NO_NUMBER;
    case BOOL:
        return uni__csv_bool(cell, &((uint8_t *)making->data)[row]) ? STORED : NO_NUMBER;
    default:
        if (making->dtype == UNI_U64 && uni__csv_slow_natural(cell, &natural)) {
            ((uint64_t *)making->data)[row] = natural;
            return STORED;
        }
        return uni__csv_slow_int(cell, &whole) &&
                       uni__store_whole(making->data, making->dtype, row, whole)
                   ? STORED
                   : NO_NUMBER;
    }
}

static const char *const wanted_words[] = { [FLOAT64] = "not a number",
                                            [FLOAT32] = "not a number",
                                            [INT64] = "not a whole number",
                                            [NARROW_INT] = "not a whole number of its type",
                                            [BOOL] = "neither true nor false",
                                            [STRING] = ("not valid UTF-8; say the encoding, such "
                                                        "as latin-1"),
                                            [SKIP] = "" };

/* Parses the cell at p the slow way and returns what follows. NULL: a bad row that is skipped
 * (*status 0), or an error. */
static const char *slow_cell(struct parse *parse, int column, const char *p, int *status,
                             uni_error *err)
{
    struct making *making = &parse->columns[column];
    uni__csv_cell cell;
    char *space = *p == parse->csv->quote ? unquoting_space(parse) : NULL;
    if (*p == parse->csv->quote && space == NULL) {
        *status = uni_error_set(err, UNI_ENOMEM, "no memory for a cell");
        return NULL;
    }
    if (!uni__csv_cell_at(parse->csv, p, parse->end, space, &cell)) {
        *status = bad(parse, err, p, column,
                      cell.next >= parse->end ? "a quote is opened here and never closed"
                                              : "there is text behind a closing quote",
                      NULL);
        return NULL;
    }
    int stored = STORED;
    if (making->target == STRING) {
        struct text_cell *text = &making->cells[parse->row];
        *text = (struct text_cell){ .begin = cell.begin, .size = cell.end - cell.begin };
        if (cell.begin == space)
            parse->unquoted_size += (size_t)text->size;
        stored = parse->ascii || uni__utf8_valid(text->begin, (size_t)text->size);
    } else if (making->target != SKIP) {
        stored = store_slow(parse, making, &cell, err);
    }
    if (stored == STORED)
        return cell.next;
    const char *what = stored == NO_PLACE ? missing_words : wanted_words[making->target];
    *status = stored < 0 ? stored : bad(parse, err, p, column, what, &cell);
    return NULL;
}

/* A double exactly between two floats may itself have been rounded: then the text decides. */
static inline bool is_float_tie(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x1FFFFFFF) == 0x10000000;
}

static inline const char *parse_cell(struct parse *parse, int column, const char *p, int *status,
                                     uni_error *err)
{
    struct making *making = &parse->columns[column];
    const char *next = NULL;
    double real;
    int64_t whole;
    switch (making->target) {
    case FLOAT64:
        next = uni__parse_double(p, &real);
        if (next != NULL)
            ((double *)making->data)[parse->row] = real;
        break;
    case FLOAT32:
        next = uni__parse_double(p, &real);
        if (next != NULL && is_float_tie(real))
            next = NULL;
        if (next != NULL)
            ((float *)making->data)[parse->row] = (float)real;
        break;
    case INT64:
        next = uni__parse_int(p, &whole);
        if (next != NULL)
            ((int64_t *)making->data)[parse->row] = whole;
        break;
    case NARROW_INT:
        next = uni__parse_int(p, &whole);
        if (next != NULL && !uni__store_whole(making->data, making->dtype, parse->row, whole))
            next = NULL;
        break;
    default:
        break;
    }
    if (next != NULL && !parse->csv->number_nulls[(unsigned char)*p]) {
        if (*next == parse->csv->delimiter || *next == '\n')
            return next;
        if (*next == '\r' && next[1] == '\n')
            return next + 1;
    }
    return slow_cell(parse, column, p, status, err);
}

/* ---- rows ---- */

/* Fills a column that the row lacks. Returns 1, or the result of bad(). */
static int fill_cell(struct parse *parse, int column, const char *p, uni_error *err)
{
    struct making *making = &parse->columns[column];
    if (making->target == SKIP)
        return 1;
    if (making->target == STRING) {
        making->cells[parse->row] = (struct text_cell){ .begin = p };
        UNI_TRY(set_missing(parse, making, err));
        return 1;
    }
    static const char none[] = "";
    uni__csv_cell cell = { .begin = none, .end = none };
    int stored = store_missing(parse, making, err);
    return stored == STORED ? 1
           : stored < 0     ? stored
                            : bad(parse, err, p, column, missing_words, &cell);
}

/* Handles a row that ends with field `column`, or that has more fields than columns (more). Returns
 * what follows the row; NULL: skipped, or bad. */
static const char *other_fields(struct parse *parse, int column, const char *p, const char *next,
                                bool more, int *status, uni_error *err)
{
    const uni__csv *csv = parse->csv;
    uni_csv_rows wish = more ? csv->long_rows : csv->short_rows;
    char what[120];
    if (wish == UNI_CSV_FIT && more)
        return uni__csv_record_end(csv, next, parse->end);
    if (wish == UNI_CSV_FIT) {
        for (int i = column + 1; i < csv->num_columns; i++) {
            int filled = fill_cell(parse, i, p, err);
            if (filled <= 0) {
                *status = filled;
                return NULL;
            }
        }
        return next + 1;
    }
    if (wish == UNI_CSV_SKIP) {
        uni__reader_leave_out(parse->reader);
        return NULL;
    }
    snprintf(what, sizeof what,
             more ? "more than %d fields in this row (long_rows says what to do with such)"
                  : "only %d fields in this row, %d are needed (short_rows says what to do with "
                    "such)",
             more ? csv->num_columns : column + 1, csv->num_columns);
    *status = bad(parse, err, p, column, what, NULL);
    return NULL;
}

/* Parses one record at p. Returns the next; NULL: bad, as above. */
static const char *parse_record(struct parse *parse, const char *p, int *status, uni_error *err)
{
    const uni__csv *csv = parse->csv;
    int last = csv->num_columns - 1;
    for (int column = 0;; column++) {
        const char *next = parse_cell(parse, column, p, status, err);
        if (next == NULL)
            return NULL;
        bool more = next < parse->end && *next == csv->delimiter;
        if (more != (column < last))
            return other_fields(parse, column, p, next, more, status, err);
        if (column == last)
            return next + 1;
        p = next + 1;
    }
}

static int parse_records(struct parse *parse, uni_error *err)
{
    enum { ASK_EVERY = 256 }; /* rows */
    const char *p = parse->text;
    while (p < parse->end) {
        if (parse->row % ASK_EVERY == 0)
            UNI_TRY(uni__reader_is_wanted(parse->reader, err));
        if (*p == '\n' || (*p == '\r' && p[1] == '\n')) { /* an empty line is not a row */
            p += *p == '\r' ? 2 : 1;
            continue;
        }
        int status = 0;
        size_t unquoted = parse->unquoted_size;
        const char *next = parse_record(parse, p, &status, err);
        if (status < 0)
            return status;
        if (next != NULL) {
            parse->row++;
            p = next;
        } else { /* skipped: its values are overwritten, except for missing marks */
            parse->unquoted_size = unquoted;
            for (int i = 0; i < parse->csv->num_columns; i++) {
                if (parse->columns[i].valid != NULL)
                    ((uint8_t *)uni_array_data(parse->columns[i].valid))[parse->row] = 1;
            }
            p = uni__csv_record_end(parse->csv, p, parse->end);
        }
    }
    return 0;
}

/* ---- columns ---- */

static int open_columns(struct parse *parse, uni_error *err)
{
    int64_t strings = 0, next = 0;
    for (int i = 0; i < parse->csv->num_columns; i++)
        strings += target_of(&parse->csv->columns[i]) == STRING;
    if (strings > 0)
        UNI_TRY(uni__reader_array(parse->reader, &parse->cells, UNI_I64, 3,
                                  (const int64_t[]){ strings, parse->capacity, 2 }, err));
    for (int i = 0; i < parse->csv->num_columns; i++) {
        struct making *making = &parse->columns[i];
        making->target = target_of(&parse->csv->columns[i]);
        making->dtype = parse->csv->columns[i].field.dtype;
        if (making->target == SKIP)
            continue;
        if (making->target == STRING) {
            making->cells =
                (struct text_cell *)uni_array_data(parse->cells) + next++ * parse->capacity;
        } else {
            UNI_TRY(uni__reader_array(parse->reader, &making->values, making->dtype, 1,
                                      (const int64_t[]){ parse->capacity }, err));
            making->data = uni_array_data(making->values);
        }
    }
    return 0;
}

static int finish_strings(struct parse *parse, struct making *making, uni_table_column *column,
                          uni_error *err)
{
    int64_t total = 0, rows = parse->row;
    UNI_TRY(uni__reader_array(parse->reader, &column->offsets, UNI_I64, 1,
                              (const int64_t[]){ rows + 1 }, err));
    int64_t *offsets = uni_array_data(column->offsets);
    for (int64_t i = 0; i < rows; i++) {
        offsets[i] = total;
        total += making->cells[i].size;
    }
    offsets[rows] = total;
    UNI_TRY(uni__reader_array(parse->reader, &column->values, UNI_U8, 1, (const int64_t[]){ total },
                              err));
    char *to = uni_array_data(column->values);
    for (int64_t i = 0; i < rows; i++) {
        if (making->cells[i].size > 0)
            memcpy(to + offsets[i], making->cells[i].begin, (size_t)making->cells[i].size);
    }
    return 0;
}

static int finish_column(struct parse *parse, int index, uni_table *out, uni_error *err)
{
    const uni__csv_column *wanted = &parse->csv->columns[index];
    struct making *making = &parse->columns[index];
    uni_table_column column = { .field =
                                    uni_table_column_at(parse->csv->schema, wanted->out)->field };
    int status = 0;
    if (making->target == STRING) {
        UNI_TRY_GOTO(finish_strings(parse, making, &column, err), done);
    } else {
        UNI_TRY_GOTO(uni__reader_trim(parse->reader, &making->values, parse->row, err), done);
        column.values = uni_array_ref(making->values);
    }
    if (making->valid != NULL) {
        UNI_TRY_GOTO(uni__reader_trim(parse->reader, &making->valid, parse->row, err), done);
        column.valid = uni_array_ref(making->valid);
    }
    status = uni_table_add(out, &column, err);
done:
    uni_array_unref(column.values);
    uni_array_unref(column.offsets);
    uni_array_unref(column.valid);
    return status;
}

static int make_table(struct parse *parse, uni_table **out, uni_error *err)
{
    uni_table *table = NULL;
    UNI_TRY(uni_table_new(&table, parse->row, err));
    for (int place = 0; place < parse->csv->num_out; place++) {
        int status = finish_column(parse, parse->csv->chosen[place], table, err);
        if (status < 0) {
            uni_table_unref(table);
            return status;
        }
    }
    *out = table;
    return 0;
}

int uni__csv_parse(const uni__csv *csv, uni__reader *reader, const uni__csv_place *place,
                   const char *text, size_t size, uni_table **out, uni_error *err)
{
    *out = NULL;
    if (size == 0 && csv->schema != NULL) { /* no row begins in this block */
        *out = uni_table_ref(csv->schema);
        return 0;
    }
    struct parse parse = { .csv = csv,
                           .reader = reader,
                           .place = place,
                           .text = text,
                           .end = text + size,
                           .ascii = uni__csv_is_ascii(text, size) };
    parse.capacity = (int64_t)uni__csv_scanner()->count(text, size, '\n') + 1;
    parse.columns = calloc((size_t)csv->num_columns, sizeof *parse.columns);
    if (parse.columns == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d columns", csv->num_columns);
    int status = 0;
    UNI_TRY_GOTO(open_columns(&parse, err), done);
    UNI_TRY_GOTO(parse_records(&parse, err), done);
    status = make_table(&parse, out, err);
done:
    for (int i = 0; i < csv->num_columns; i++) {
        uni_array_unref(parse.columns[i].values);
        uni_array_unref(parse.columns[i].valid);
    }
    uni_array_unref(parse.cells);
    free(parse.columns);
    return status;
}
