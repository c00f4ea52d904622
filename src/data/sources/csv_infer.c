/*
 * csv_infer.c - infers names and types of columns from the head of a file. A type holds if every
 * cell of the head fits it: integers, numbers, bools, or text. A column has the same type in all
 * batches. Integers of which some are missing therefore become floating point (NaN), as in pandas,
 * if that is exact, and text otherwise; bools likewise. Types that the user gave are taken as they
 * are. Runs once, when the dataset is created.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/sources/csv.h"
#include "data/sources/decimal.h"

#define EXACT ((int64_t)1 << 53) /* integers up to here are exact as doubles */
#define DEFAULT_ROWS 1000

/* As in pandas. */
static const char *const default_nulls[] = { "",         "#N/A", "#N/A N/A", "#NA",    "-1.#IND",
                                             "-1.#QNAN", "-NaN", "-nan",     "1.#IND", "1.#QNAN",
                                             "<NA>",     "N/A",  "NA",       "NULL",   "NaN",
                                             "None",     "n/a",  "nan",      "null" };

static const char *path_of(const uni__csv *csv)
{
    return csv->files->items[csv->first].path;
}

/* What the cells of a column have been so far. */
struct guess {
    /* Still possible: int64, uint64, an integer of any size, floating point, bool. */
    bool whole, natural, digits, real, flag;
    bool any; /* some cell has a value */
    bool missing; /* some cell is missing */
    bool inexact; /* some integer is not exact as a double */
    bool known; /* the first rows had a value; later rows do not count */
};

static void look_at(const uni__csv *csv, const uni__csv_cell *cell, struct guess *guess)
{
    double real;
    int64_t whole = 0;
    uint64_t natural;
    uint8_t flag;
    if (uni__csv_is_null(csv, cell)) {
        guess->missing = true;
        return;
    }
    guess->any = true;
    guess->whole = guess->whole && uni__csv_slow_int(cell, &whole);
    guess->inexact = guess->inexact || whole > EXACT || whole < -EXACT;
    guess->natural = guess->natural && uni__csv_slow_natural(cell, &natural);
    guess->digits = guess->digits && uni__csv_is_whole(cell);
    guess->real = guess->real && uni__csv_slow_double(cell, &real);
    guess->flag = guess->flag && cell->end - cell->begin > 1 && uni__csv_bool(cell, &flag);
}

/* The same for a plain number that still fits the guess, as most cells do. Returns the end of the
 * number, or NULL to look closer. */
static const char *look_at_number(const uni__csv *csv, const char *p, const char *end,
                                  struct guess *guess)
{
    double real;
    int64_t whole = 0;
    if (csv->number_nulls[(unsigned char)*p])
        return NULL;
    const char *next = guess->whole                    ? uni__parse_int(p, &whole)
                       : guess->real && !guess->digits ? uni__parse_double(p, &real)
                                                       : NULL;
    if (next == NULL || next >= end || (*next != csv->delimiter && *next != '\n'))
        return NULL;
    guess->any = true;
    guess->flag = false;
    guess->natural = guess->natural && *p != '-';
    guess->inexact = guess->inexact || whole > EXACT || whole < -EXACT;
    return next;
}

/* A record that the user wants skipped does not affect types. */
static bool is_left_out(const uni__csv *csv, const char *p, const char *end, char *buffer)
{
    if (csv->short_rows != UNI_CSV_SKIP && csv->long_rows != UNI_CSV_SKIP)
        return false;
    int fields = 1;
    uni__csv_cell cell;
    while (uni__csv_cell_at(csv, p, end, buffer, &cell) && cell.next < end &&
           *cell.next == csv->delimiter && fields <= csv->num_columns) {
        fields++;
        p = cell.next + 1;
    }
    return (fields < csv->num_columns && csv->short_rows == UNI_CSV_SKIP) ||
           (fields > csv->num_columns && csv->long_rows == UNI_CSV_SKIP);
}

/* Looks at the cells of a record; only_new: of columns that had no value so far. */
static void look_at_record(const uni__csv *csv, const char *p, const char *end,
                           struct guess *guesses, bool only_new, char *buffer)
{
    if (is_left_out(csv, p, end, buffer))
        return;
    for (int i = 0; i < csv->num_columns; i++) {
        struct guess *guess = &guesses[i], ignored = { 0 };
        guess = only_new && guess->known ? &ignored : guess;
        uni__csv_cell cell = { .next = look_at_number(csv, p, end, guess) };
        if (cell.next == NULL && !uni__csv_cell_at(csv, p, end, buffer, &cell)) {
            *guess = (struct guess){ .any = true }; /* its end is not in the head: text */
            return;
        }
        if (cell.begin != NULL && guess != &ignored)
            look_at(csv, &cell, guess);
        if (cell.next >= end || *cell.next != csv->delimiter) {
            for (i++; i < csv->num_columns; i++) /* a short row, to be filled */
                guesses[i].missing |= csv->short_rows == UNI_CSV_FIT;
            return;
        }
        p = cell.next + 1;
    }
}

/* Looks at rows of the head and returns what follows them. Ignores a last row that is cut off,
 * unless the file ends there. */
static const char *look_at_rows(const uni__csv *csv, const char *p, const char *end, int64_t rows,
                                struct guess *guesses, bool only_new, char *buffer)
{
    int64_t seen = 0;
    while (p < end && seen < rows) {
        const char *record_end = uni__csv_record_end(csv, p, end);
        if (record_end == end && end[-1] != '\n' && seen > 0 && !csv->head_is_all)
            break;
        bool blank = *p == '\n' || (*p == '\r' && p[1] == '\n');
        if (!blank)
            look_at_record(csv, p, record_end, guesses, only_new, buffer);
        seen += !blank;
        p = record_end;
    }
    return p;
}

static const uni_field *given_type(const uni_csv_options *options, const char *name)
{
    for (int i = 0; i < options->num_types; i++) {
        if (options->types[i].name != NULL && strcmp(options->types[i].name, name) == 0)
            return &options->types[i];
    }
    return NULL;
}

/* The type that fits all cells. */
static void guess_type(uni_field *field, const struct guess *guess, const uni_csv_options *options,
                       bool all)
{
    uni_dtype real = options->float_dtype != 0 ? options->float_dtype : UNI_F64;
    bool masked = options->masks || !guess->missing; /* a mask marks missing values */
    /* Integers too large for int64 (identifiers) are not rounded to floating point. */
    bool large = !guess->whole && guess->digits;
    field->kind = UNI_FIELD_NUMBER;
    if (!guess->any && !all) /* no value seen so far: text holds any value to come */
        *field = (uni_field){ .name = field->name, .kind = UNI_FIELD_STRING, .dtype = UNI_U8 };
    else if (!guess->any || (guess->real && !guess->whole && !large))
        field->dtype = real;
    else if (guess->whole && (masked || !guess->inexact))
        field->dtype = masked ? UNI_I64 : UNI_F64;
    else if (large && guess->natural && masked)
        field->dtype = UNI_U64;
    else if (guess->flag && !large && !guess->whole && masked)
        field->dtype = UNI_B8;
    else
        *field = (uni_field){ .name = field->name, .kind = UNI_FIELD_STRING, .dtype = UNI_U8 };
}

static int set_type(uni__csv_column *column, const struct guess *guess,
                    const uni_csv_options *options, bool all, uni_error *err)
{
    const uni_field *given = given_type(options, column->name);
    column->field = (uni_field){ .name = column->name, .kind = UNI_FIELD_NUMBER };
    if (given != NULL) {
        bool text = given->kind == UNI_FIELD_STRING;
        bool number = (given->kind == UNI_FIELD_NUMBER || given->kind == 0) &&
                      uni_dtype_size(given->dtype) > 0 && given->ndim == 0 &&
                      given->dtype != UNI_F16 && given->dtype != UNI_BF16;
        if (!text && !number)
            return uni_error_set(err, UNI_EDTYPE,
                                 "column %s: a CSV cell becomes a number or a string",
                                 column->name);
        column->field.kind = text ? UNI_FIELD_STRING : UNI_FIELD_NUMBER;
        column->field.dtype = text ? UNI_U8 : given->dtype;
        column->given = true;
        return 0;
    }
    guess_type(&column->field, guess, options, all);
    return 0;
}

static int set_nulls(uni__csv *csv, const uni_csv_options *options, uni_error *err)
{
    const char *const *given = options->null_values;
    int known = given == NULL || options->default_nulls
                    ? (int)(sizeof default_nulls / sizeof default_nulls[0])
                    : 0;
    int count = known;
    for (int i = 0; given != NULL && given[i] != NULL; i++)
        count++;
    csv->nulls = calloc((size_t)count + 1, sizeof(char *));
    for (; csv->nulls != NULL && csv->num_nulls < count; csv->num_nulls++) {
        const char *text =
            csv->num_nulls < known ? default_nulls[csv->num_nulls] : given[csv->num_nulls - known];
        char *copy = calloc(strlen(text) + UNI__CSV_SLACK, 1);
        double real;
        csv->nulls[csv->num_nulls] = copy;
        if (copy == NULL)
            break;
        strcpy(copy, text);
        const char *end = uni__parse_double(copy, &real);
        if (end != NULL && *end == 0)
            csv->number_nulls[(unsigned char)*text] = true;
    }
    return csv->nulls != NULL && csv->num_nulls == count
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for a CSV file");
}

/* Starts with the types of the first rows and widens numbers by the rows after them. */
static int widen(uni__csv *csv, const uni_csv_options *options, const struct guess *guesses,
                 uni_error *err)
{
    for (int i = 0; i < csv->num_columns; i++) {
        uni__csv_column wider = csv->columns[i];
        UNI_TRY(set_type(&wider, &guesses[i], options, csv->head_is_all, err));
        if (wider.field.kind == UNI_FIELD_NUMBER && wider.field.dtype != UNI_B8)
            csv->columns[i] = wider;
    }
    return 0;
}

static int find_types(uni__csv *csv, const uni_csv_options *options, const char *rows,
                      const char *end, uni_error *err)
{
    struct guess *guesses = calloc((size_t)csv->num_columns + 1, sizeof *guesses);
    char *buffer = malloc((size_t)(end - rows) + 1);
    int status = guesses != NULL && buffer != NULL
                     ? 0
                     : uni_error_set(err, UNI_ENOMEM, "no memory to look at a CSV file");
    if (status < 0)
        goto done;
    for (int i = 0; i < csv->num_columns; i++)
        guesses[i] = (struct guess){
            .whole = true, .natural = true, .digits = true, .real = true, .flag = true
        };
    int64_t most = options->infer_rows > 0 ? options->infer_rows : DEFAULT_ROWS;
    rows = look_at_rows(csv, rows, end, most, guesses, false, buffer);
    bool new = false; /* columns without a value so far: look until there is one */
    for (int i = 0; i < csv->num_columns; i++) {
        guesses[i].known = guesses[i].any || given_type(options, csv->columns[i].name) != NULL;
        new = new || !guesses[i].known;
    }
    if (new)
        (void)look_at_rows(csv, rows, end, INT64_MAX, guesses, true, buffer);
    csv->unknown = false;
    for (int i = 0; i < csv->num_columns; i++) {
        UNI_TRY_GOTO(set_type(&csv->columns[i], &guesses[i], options, csv->head_is_all, err), done);
        csv->unknown |= !guesses[i].known && !guesses[i].any;
    }
    if (csv->widens) {
        (void)look_at_rows(csv, rows, end, INT64_MAX, guesses, false, buffer);
        status = widen(csv, options, guesses, err);
    }
done:
    free(guesses);
    free(buffer);
    return status;
}

int uni__csv_infer(uni__csv *csv, const uni_csv_options *options, const char *head, size_t size,
                   double *row_text, uni_error *err)
{
    const char *end = head + size, *p = uni__csv_head(csv, head, end);
    if (csv->nulls == NULL)
        UNI_TRY(set_nulls(csv, options, err));
    if (size >= 2 && (memcmp(head, "\xff\xfe", 2) == 0 || memcmp(head, "\xfe\xff", 2) == 0))
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "%s is UTF-16, which is not supported: iconv -f UTF-16 -t UTF-8 "
                             "converts it",
                             path_of(csv));
    while (!csv->header && p < end && (*p == '\n' || *p == '\r'))
        p++;
    if (p >= end)
        return uni_error_set(err, UNI_EFORMAT, "%s is empty: a CSV file has a header or rows",
                             path_of(csv));
    const char *rows = p;
    UNI_TRY(uni__csv_read_names(csv, options, p, end, &rows, err));
    if (!csv->header)
        rows = p;
    size_t lines = uni__csv_scanner()->count(rows, (size_t)(end - rows), '\n');
    *row_text = lines > 0 ? (double)(end - rows) / (double)lines : (double)(end - rows);
    UNI_TRY(find_types(csv, options, rows, end, err));
    return uni__csv_choose(csv, options, err);
}
