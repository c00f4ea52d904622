/*
 * csv_names.c - the column names of a CSV file: from its header or the user, how duplicate and
 * empty names are resolved, and which columns are wanted. Runs once, when the dataset is created.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/table/name_index.h"
#include "data/sources/csv.h"

static const char *path_of(const uni__csv *csv)
{
    return csv->files->items[csv->first].path;
}

static int add_column(uni__csv *csv, char *name, uni_error *err)
{
    size_t count = (size_t)csv->num_columns;
    uni__csv_column *columns = csv->columns;
    if (count >= UNI__CSV_MAX_COLUMNS) {
        free(name);
        return uni_error_set(err, UNI_ELIMIT,
                             "%s:1: more than %d columns; is the delimiter right ('%c')?",
                             path_of(csv), UNI__CSV_MAX_COLUMNS, csv->delimiter);
    }
    if ((count & (count - 1)) == 0) /* 0, 1, 2, 4 ...: grow to the next power of two */
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

/* Rejects cells that cannot be a column name. */
static int check_name(const uni__csv *csv, const uni__csv_cell *cell, int column, uni_error *err)
{
    size_t size = (size_t)(cell->end - cell->begin);
    if (!cell->quoted && memchr(cell->begin, '\r', size) != NULL)
        return uni_error_set(err, UNI_EFORMAT,
                             "%s:1:%d: lines end with a carriage return alone here, which is not "
                             "CSV: tr '\\r' '\\n' makes newlines of them",
                             path_of(csv), column);
    if (csv->header && !csv->named && !uni__utf8_valid(cell->begin, size))
        return uni_error_set(err, UNI_EFORMAT,
                             "%s:1:%d: a column's name is not valid UTF-8; say the encoding "
                             "(latin-1), or give names of your own (column_names)",
                             path_of(csv), column);
    return 0;
}

static int take_given_names(uni__csv *csv, const char *const *given, uni_error *err)
{
    for (int i = 0; given != NULL; i++) {
        if ((given[i] == NULL) != (i == csv->num_columns))
            return uni_error_set(err, UNI_EINVAL,
                                 "%s has %d columns, and column_names gives another number of them",
                                 path_of(csv), csv->num_columns);
        if (given[i] == NULL)
            break;
        free(csv->columns[i].name);
        csv->columns[i].name = strdup(given[i]);
        if (csv->columns[i].name == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a name");
    }
    return 0;
}

/* ---- duplicate names ---- */

/* All names of the file, and those already made up. */
struct names {
    const char **list;
    size_t count;
    uni__name_index index;
};

static bool has(const struct names *names, const char *name)
{
    return uni__name_index_find(&names->index, names->list, sizeof *names->list, names->count,
                                name) >= 0;
}

static int add_name(struct names *names, const char *name, uni_error *err)
{
    names->list[names->count++] = name;
    if (uni__name_index_grow(&names->index, names->list, sizeof *names->list, names->count) < 0)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the names of columns");
    return 0;
}

/* "x.1", or with the next free number. */
static int rename_column(uni__csv_column *column, const struct names *file,
                         const struct names *taken, uni_error *err)
{
    size_t room = strlen(column->name) + 16;
    char *name = malloc(room);
    if (name == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a name");
    for (int number = 1;; number++) {
        snprintf(name, room, "%s.%d", column->name, number);
        if (!has(file, name) && !has(taken, name))
            break;
    }
    free(column->name);
    column->name = name;
    return 0;
}

/* As in pandas: an empty name becomes "Unnamed: 3", the second x becomes x.1. */
static int rename_duplicates(uni__csv *csv, uni_error *err)
{
    size_t room = (size_t)csv->num_columns + 1;
    struct names file = { .list = calloc(room, sizeof(char *)) };
    struct names taken = { .list = calloc(room, sizeof(char *)) };
    char **originals = calloc(room, sizeof(char *)); /* the names in file.list */
    int status = file.list != NULL && taken.list != NULL && originals != NULL
                     ? 0
                     : uni_error_set(err, UNI_ENOMEM, "no memory for the names of columns");
    for (int i = 0; status == 0 && i < csv->num_columns; i++) {
        char made[32];
        snprintf(made, sizeof made, "Unnamed: %d", i);
        char *name = csv->columns[i].name[0] == 0 ? strdup(made) : strdup(csv->columns[i].name);
        originals[i] = name;
        if (name == NULL)
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a name");
        else if (!has(&file, name))
            status = add_name(&file, name, err);
    }
    for (int i = 0; status == 0 && i < csv->num_columns; i++) {
        uni__csv_column *column = &csv->columns[i];
        column->renamed = column->name;
        column->name = strdup(originals[i]);
        if (column->name == NULL)
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a name");
        else if (has(&taken, column->name))
            status = rename_column(column, &file, &taken, err);
        if (status == 0)
            status = add_name(&taken, column->name, err);
    }
    for (int i = 0; originals != NULL && i < csv->num_columns; i++)
        free(originals[i]);
    free(originals);
    free(file.list);
    free(taken.list);
    uni__name_index_free(&file.index);
    uni__name_index_free(&taken.index);
    return status;
}

int uni__csv_read_names(uni__csv *csv, const uni_csv_options *options, const char *head,
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
        status = add_column(
            csv, csv->header ? strndup(cell.begin, (size_t)(cell.end - cell.begin)) : strdup(made),
            err);
        p = cell.next;
        if (p >= end || *p != csv->delimiter)
            break;
        p++;
    }
    free(buffer);
    *next = p < end ? p + 1 : end;
    if (status == 0)
        status = take_given_names(csv, options->column_names, err);
    if (status == 0 && options->rename_duplicates)
        status = rename_duplicates(csv, err);
    return status;
}

/* ---- selected columns ---- */

/* Returns the column's position; -1: not found, -2: ambiguous. */
static int find_column(const uni__csv *csv, const char *name)
{
    int found = -1;
    for (int i = 0; i < csv->num_columns; i++) {
        if (strcmp(csv->columns[i].name, name) == 0)
            found = found == -1 ? i : -2;
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

int uni__csv_choose(uni__csv *csv, const uni_csv_options *options, uni_error *err)
{
    for (int i = 0; options->columns == NULL && i < csv->num_columns; i++)
        csv->columns[i].out = csv->num_out++;
    for (int i = 0; options->columns != NULL && options->columns[i] != NULL; i++) {
        int found = find_column(csv, options->columns[i]);
        if (found == -1)
            return no_column(csv, options->columns[i], err);
        if (found == -2)
            return uni__csv_twice(csv, options->columns[i], err);
        if (csv->columns[found].out >= 0)
            return uni_error_set(err, UNI_EEXISTS, "column %s is asked for twice",
                                 options->columns[i]);
        csv->columns[found].out = csv->num_out++;
    }
    for (int i = 0; i < options->num_types; i++) {
        if (options->types[i].name != NULL && find_column(csv, options->types[i].name) == -1)
            return no_column(csv, options->types[i].name, err);
    }
    return 0;
}

int uni__csv_twice(const uni__csv *csv, const char *name, uni_error *err)
{
    int column = 0, seen = 0;
    while (column < csv->num_columns &&
           (strcmp(csv->columns[column].name, name) != 0 || ++seen < 2))
        column++;
    if (csv->named)
        return uni_error_set(
            err, UNI_EEXISTS,
            "column_names calls two columns of %s \"%s\", the second is column %d; "
            "give each a name of its own",
            path_of(csv), name, column + 1);
    return uni_error_set(err, UNI_EEXISTS,
                         "%s:1:%d: two columns are called \"%s\"; rename them as pandas does "
                         "(duplicate_names rename: %s), give names of your own (column_names), or "
                         "say that there is no header (no_header; header=None in Python)",
                         path_of(csv), column + 1, name,
                         *name == 0 ? "\"Unnamed: 2\"" : "x, x.1 ...");
}
