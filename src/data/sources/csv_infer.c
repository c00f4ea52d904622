/*
 * csv_infer.c - the names and types of columns, from the head of a file. A type holds when every cell of the head fits it: whole numbers, numbers,
 * true and false, or text. A column has one type in all batches, so that whole numbers of which some are missing are floating point (NaN), as pandas has them, where that is exact, and
 * text otherwise; so is true and false. Types that the user gave are taken as they are. Runs once, when the dataset is made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/sources/csv.h"
#include "data/sources/csv_number.h"

#define EXACT ((int64_t)1 << 53) /* whole numbers up to here are exact as floating point */
#define DEFAULT_ROWS 1000

static const char *const default_nulls[] = {
    "", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"
};

/* What the cells of a column have been so far. */
struct guess {
    bool whole, natural, digits, real,
        flag; /* still possible: int64, uint64, a whole number of any size ... */
    bool any; /* a cell that is not missing */
    bool missing; /* one that is */
    bool inexact; /* a whole number that a double does not hold */
};

static char *cell_copy(const uni__csv_cell *cell)
{
    return strndup(cell->begin, (size_t)(cell->end - cell->begin));
}

static int add_column(uni__csv *csv, char *name, uni_error *err)
{
    size_t count = (size_t)csv->num_columns;
    uni__csv_column *columns = csv->columns;
    if ((count & (count - 1)) == 0) /* 0, 1, 2, 4 ...: grows to the next power of two */
        columns = reallocarray(columns, count > 0 ? 2 * count : 1, sizeof *columns);
    if (columns != NULL)
        csv->columns = columns;
    if (columns == NULL || name == NULL) {
        free(name);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the columns of a CSV file");
    }
    csv->columns[csv->num_columns++] = (uni__csv_column){ .name = name, .out = -1 };
    return 0;
}

static const char *path_of(const uni__csv *csv)
{
    return csv->files->items[csv->first].path;
}

/* What the first record cannot have. */
static int check_name(const uni__csv *csv, const uni__csv_cell *cell, int column, uni_error *err)
{
    size_t size = (size_t)(cell->end - cell->begin);
    if (!cell->quoted && memchr(cell->begin, '\r', size) != NULL)
        return uni_error_set(err, UNI_EFORMAT,
                             "%s:1:%d: lines end with a carriage return alone here, which is no "
                             "CSV: tr '\\r' '\\n' makes newlines of them",
                             path_of(csv), column);
    if (csv->header && !csv->named && !uni__utf8_valid(cell->begin, size))
        return uni_error_set(err, UNI_EFORMAT,
                             "%s:1:%d: a column's name that is no valid UTF-8; give names of your "
                             "own (column_names)",
                             path_of(csv), column);
    return 0;
}

/* The first record's cells: names, or how many there are. Returns what is behind it. */
static int read_names(uni__csv *csv, const uni_csv_options *options, const char *head,
                      const char *end, const char **next, uni_error *err)
{
    char *buffer = malloc((size_t)(end - head) + 1);
    const char *p = head;
    int status = buffer != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a header");
    for (int i = 0; status == 0; i++) {
        uni__csv_cell cell;
        if (!uni__csv_cell_at(csv, p, end, buffer, &cell)) {
            status = uni_error_set(err, UNI_EFORMAT, "%s:1:%d: a quote is not closed", path_of(csv),
                                   i + 1);
            break;
        }
        char made[24];
        snprintf(made, sizeof made, "f%d", i);
        status = check_name(csv, &cell, i + 1, err);
        if (status < 0)
            break;
        status = add_column(csv, csv->header ? cell_copy(&cell) : strdup(made), err);
        p = cell.next;
        if (p >= end || *p != csv->delimiter)
            break;
        p++;
    }
    free(buffer);
    *next = p < end ? p + 1 : end;
    for (int i = 0; status == 0 && options->column_names != NULL; i++) {
        const char *given = options->column_names[i];
        if ((given == NULL) != (i == csv->num_columns))
            return uni_error_set(err, UNI_EINVAL,
                                 "%s has %d columns, and column_names gives another number of them",
                                 path_of(csv), csv->num_columns);
        if (given == NULL)
            break;
        free(csv->columns[i].name);
        csv->columns[i].name = strdup(given);
        status = csv->columns[i].name != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory");
    }
    return status;
}

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

/* The same of a plain number that still fits the guess, which most cells are. Returns what is behind it; NULL: look closer. */
static const char *look_at_number(const uni__csv *csv, const char *p, const char *end,
                                  struct guess *guess)
{
    double real;
    int64_t whole = 0;
    if (csv->null_begins[(unsigned char)*p])
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

/* The cells of a record. */
static void look_at_record(const uni__csv *csv, const char *p, const char *end,
                           struct guess *guesses, char *buffer)
{
    for (int i = 0; i < csv->num_columns; i++) {
        uni__csv_cell cell = { .next = look_at_number(csv, p, end, &guesses[i]) };
        if (cell.next == NULL && !uni__csv_cell_at(csv, p, end, buffer, &cell)) {
            guesses[i] = (struct guess){ .any = true }; /* its end is not here: text */
            return;
        }
        if (cell.begin != NULL)
            look_at(csv, &cell, &guesses[i]);
        if (cell.next >= end || *cell.next != csv->delimiter)
            return;
        p = cell.next + 1;
    }
}

/* Rows of the head; a last one that is cut off by its end is not looked at. Returns what is behind them. */
static const char *look_at_rows(const uni__csv *csv, const char *p, const char *end, int64_t rows,
                                struct guess *guesses, char *buffer)
{
    int64_t seen = 0;
    while (p < end && seen < rows) {
        const char *record_end = uni__csv_record_end(csv, p, end);
        if (record_end == end && end[-1] != '\n' && seen > 0)
            break;
        bool blank = *p == '\n' || (*p == '\r' && p[1] == '\n');
        if (!blank)
            look_at_record(csv, p, record_end, guesses, buffer);
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

/* The type that all cells have. */
static void guess_type(uni_field *field, const struct guess *guess, const uni_csv_options *options)
{
    uni_dtype real = options->float_dtype != 0 ? options->float_dtype : UNI_F64;
    bool masked = options->masks || !guess->missing; /* what is missing has a place beside it */
    /* Whole numbers that no int64 holds (identifiers) are not rounded to floating point. */
    bool large = !guess->whole && guess->digits;
    field->kind = UNI_FIELD_NUMBER;
    if (!guess->any || (guess->real && !guess->whole && !large))
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
                    const uni_csv_options *options, uni_error *err)
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
    guess_type(&column->field, guess, options);
    return 0;
}

static int set_nulls(uni__csv *csv, const uni_csv_options *options, uni_error *err)
{
    const char *const *list = options->null_values;
    int count = (int)(sizeof default_nulls / sizeof default_nulls[0]);
    if (list != NULL) {
        for (count = 0; list[count] != NULL;)
            count++;
    } else {
        list = default_nulls;
    }
    csv->nulls = calloc((size_t)count + 1, sizeof(char *));
    for (; csv->nulls != NULL && csv->num_nulls < count; csv->num_nulls++) {
        csv->nulls[csv->num_nulls] = strdup(list[csv->num_nulls]);
        if (csv->nulls[csv->num_nulls] == NULL)
            break;
        csv->null_begins[(unsigned char)list[csv->num_nulls][0]] = true;
    }
    return csv->nulls != NULL && csv->num_nulls == count
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for a CSV file");
}

static int find_column(const uni__csv *csv, const char *name)
{
    int found = -1;
    for (int i = 0; i < csv->num_columns; i++) {
        if (strcmp(csv->columns[i].name, name) == 0)
            found = i;
    }
    return found;
}

static int no_column(const uni__csv *csv, const char *name, uni_error *err)
{
    char list[200] = "";
    size_t size = 0;
    for (int i = 0; i < csv->num_columns && size < sizeof list; i++)
        size += (size_t)snprintf(list + size, sizeof list - size, "%s%s", i > 0 ? ", " : "",
                                 csv->columns[i].name);
    return uni_error_set(err, UNI_ENOTFOUND, "%s has no column %s; its columns are %s%s",
                         path_of(csv), name, list, size < sizeof list ? "" : " ...");
}

/* Which columns of the file go where. */
static int choose_columns(uni__csv *csv, const uni_csv_options *options, uni_error *err)
{
    for (int i = 0; options->columns == NULL && i < csv->num_columns; i++)
        csv->columns[i].out = csv->num_out++;
    for (int i = 0; options->columns != NULL && options->columns[i] != NULL; i++) {
        int found = find_column(csv, options->columns[i]);
        if (found < 0)
            return no_column(csv, options->columns[i], err);
        if (csv->columns[found].out >= 0)
            return uni_error_set(err, UNI_EEXISTS, "column %s is asked for twice",
                                 options->columns[i]);
        csv->columns[found].out = csv->num_out++;
    }
    for (int i = 0; i < options->num_types; i++) {
        if (options->types[i].name != NULL && find_column(csv, options->types[i].name) < 0)
            return no_column(csv, options->types[i].name, err);
    }
    return 0;
}

/* Types of the first rows, of which numbers may become wider by those behind. */
static int widen(uni__csv *csv, const uni_csv_options *options, const struct guess *guesses,
                 uni_error *err)
{
    for (int i = 0; i < csv->num_columns; i++) {
        uni__csv_column wider = csv->columns[i];
        UNI_TRY(set_type(&wider, &guesses[i], options, err));
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
    rows = look_at_rows(csv, rows, end, most, guesses, buffer);
    for (int i = 0; i < csv->num_columns; i++)
        UNI_TRY_GOTO(set_type(&csv->columns[i], &guesses[i], options, err), done);
    if (csv->widens) {
        (void)look_at_rows(csv, rows, end, INT64_MAX, guesses, buffer);
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
    UNI_TRY(set_nulls(csv, options, err));
    while (!csv->header && p < end && (*p == '\n' || *p == '\r'))
        p++;
    if (p >= end)
        return uni_error_set(err, UNI_EFORMAT, "%s is empty: a CSV file has a header or rows",
                             path_of(csv));
    const char *rows = p;
    UNI_TRY(read_names(csv, options, p, end, &rows, err));
    if (!csv->header)
        rows = p;
    size_t lines = uni__csv_scanner()->count(rows, (size_t)(end - rows), '\n');
    *row_text = lines > 0 ? (double)(end - rows) / (double)lines : (double)(end - rows);
    UNI_TRY(find_types(csv, options, rows, end, err));
    return choose_columns(csv, options, err);
}
