/*
 * data_command.c - `unisono data`: inspects a dataset before any training: its columns, first rows
 * and row count, and which worker would read which bytes.
 */
#include <stdlib.h>
#include <string.h>
#include <unisono/data.h>
#include <unisono/data_readers.h>

#include "data/shared.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/table.h"

typedef struct data_values {
    long long workers, rows;
    bool no_header, no_quotes, json;
    const char *table, *color;
    const char *delimiter, *encoding, *short_rows, *long_rows, *bad_rows, *duplicate_names;
} data_values;

static const cli_option data_options[] = {
    { NULL, "workers", 'n', CLI_INT, offsetof(data_values, workers), "N", "1", NULL, NULL,
      "plan: number of workers" },
    { NULL, "rows", 0, CLI_INT, offsetof(data_values, rows), "N", "5", NULL, NULL,
      "head: number of rows" },
    { NULL, "no-header", 0, CLI_FLAG, offsetof(data_values, no_header), NULL, NULL, NULL, NULL,
      "CSV files have no header row; the columns are named f0, f1, ..." },
    { NULL, "delimiter", 0, CLI_STRING, offsetof(data_values, delimiter), "C", NULL, NULL, NULL,
      "CSV: field separator, a character or the word tab (default: tab for .tsv, otherwise a "
      "comma)" },
    { NULL, "no-quotes", 0, CLI_FLAG, offsetof(data_values, no_quotes), NULL, NULL, NULL, NULL,
      "CSV: treat quotes as ordinary characters" },
    { NULL, "encoding", 0, CLI_STRING, offsetof(data_values, encoding), "NAME", NULL, NULL, NULL,
      "CSV: utf-8 (default), latin-1 or windows-1252" },
    { NULL, "short-rows", 0, CLI_STRING, offsetof(data_values, short_rows), "WHAT", NULL, NULL,
      NULL, "CSV: rows with too few fields: error (default), skip or fill" },
    { NULL, "long-rows", 0, CLI_STRING, offsetof(data_values, long_rows), "WHAT", NULL, NULL, NULL,
      "CSV: rows with too many fields: error (default), skip or cut" },
    { NULL, "bad-rows", 0, CLI_STRING, offsetof(data_values, bad_rows), "WHAT", NULL, NULL, NULL,
      "CSV: rows that cannot be read: error (default) or skip" },
    { NULL, "duplicate-names", 0, CLI_STRING, offsetof(data_values, duplicate_names), "WHAT", NULL,
      NULL, NULL, "CSV: columns with duplicate or empty names: error (default) or rename (x.1)" },
    { NULL, "table", 0, CLI_STRING, offsetof(data_values, table), "NAME", NULL, NULL, NULL,
      "SQLite files: the table, or a query (SELECT ...)" },
    CLI_JSON_OPTION(data_values),
    CLI_COLOR_OPTION(data_values),
    CLI_END_OPTION,
};

/* ---- plan ---- */

/* How a rank takes rows from its pieces. */
static const char *takes_text(const char *takes)
{
    static const char *const texts[][2] = { { "rounds", ", its share of every batch" },
                                            { "scattered", ", positions in a keyed order" },
                                            { "all", ", all of it" } };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(texts[i][0], takes) == 0)
            return texts[i][1];
    }
    return "";
}

static void print_pieces(cli_table *table, const uni_value *shard)
{
    const uni_value *pieces = uni_dict_get(shard, "pieces");
    int64_t rows = uni_dict_get_int(shard, "rows", -1);
    for (size_t i = 0; i < uni_list_size(pieces); i++) {
        const uni_value *piece = uni_list_get(pieces, i);
        cli_table_cell(table, 0, "%lld", (long long)uni_dict_get_int(shard, "rank", 0));
        cli_table_cell(table, 0, "%s", uni_dict_get_string(piece, "file", "(memory)"));
        cli_table_cell(table, 0, "%s %lld to %lld%s", uni_dict_get_string(piece, "unit", ""),
                       (long long)uni_dict_get_int(piece, "begin", 0),
                       (long long)uni_dict_get_int(piece, "end", 0),
                       takes_text(uni_dict_get_string(shard, "takes", "")));
        if (rows >= 0 && i == 0)
            cli_table_cell(table, 0, "%lld", (long long)rows);
        else
            cli_table_cell(table, 0, "%s", "");
    }
}

static int call_plan(cli_context *context, uni_dataset *dataset, const data_values *values,
                     uni_error *err)
{
    static const cli_column columns[] = { { "rank", true, 0, 0 },
                                          { "file", false, 0, 20 },
                                          { "reads", false, 0, 0 },
                                          { "rows", true, 1, 0 } };
    uni_value *plan = NULL;
    char *order = NULL;
    UNI_TRY(uni_dataset_plan(&plan, dataset, (int)values->workers, err));
    if (values->json)
        return cli_print_json(context, plan);
    int status = uni__dataset_order(&order, dataset, err);
    cli_table *table = cli_table_new(columns, 4);
    for (size_t i = 0; table && i < uni_list_size(plan); i++)
        print_pieces(table, uni_list_get(plan, i));
    if (table && status == 0) {
        cli_table_print(table, &context->out, 0);
        fprintf(context->out.out, "order %s\n", order);
    }
    cli_table_free(table);
    free(order);
    uni_value_free(plan);
    return status;
}

/* ---- the others ---- */

static int call_schema(cli_context *context, uni_dataset *dataset, const data_values *values,
                       uni_error *err)
{
    const uni_table *schema = NULL;
    UNI_TRY(uni_dataset_schema(&schema, dataset, err));
    uni_value *answer = uni_value_dict();
    for (int i = 0; i < uni_table_num_columns(schema); i++) {
        const uni_field *field = &uni_table_column_at(schema, i)->field;
        char text[96];
        uni__field_text(text, sizeof text, field);
        if (!values->json)
            fprintf(context->out.out, "%s: %s\n", field->name, text);
        else if (uni_dict_take(answer, field->name, uni_value_string(text)) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the columns");
    }
    if (values->json)
        return cli_print_json(context, answer);
    uni_value_free(answer);
    return 0;
}

static int call_head(cli_context *context, uni_dataset *dataset, const data_values *values,
                     uni_error *err)
{
    char *text = NULL;
    UNI_TRY(uni_dataset_show(&text, dataset, values->rows, err));
    fputs(text, context->out.out);
    free(text);
    return 0;
}

static int call_count(cli_context *context, uni_dataset *dataset, const data_values *values,
                      uni_error *err)
{
    int64_t rows = 0;
    UNI_TRY(uni_dataset_count(&rows, dataset, err));
    fprintf(context->out.out, "%lld\n", (long long)rows);
    return 0;
}

static const struct action {
    const char *name;
    int (*call)(cli_context *context, uni_dataset *dataset, const data_values *values,
                uni_error *err);
} actions[] = {
    { "plan", call_plan }, { "head", call_head }, { "schema", call_schema }, { "count", call_count }
};

/* *any: an option says that the files are CSV, whatever their names. */
static int take_csv_options(const data_values *values, uni_csv_options *options, bool *any,
                            uni_error *err)
{
    const struct {
        const char *name, *word;
    } given[] = {
        { "delimiter", values->delimiter },   { "encoding", values->encoding },
        { "short_rows", values->short_rows }, { "long_rows", values->long_rows },
        { "bad_rows", values->bad_rows },     { "duplicate_names", values->duplicate_names }
    };
    *options = (uni_csv_options){ .no_header = values->no_header, .no_quotes = values->no_quotes };
    *any = values->no_header || values->no_quotes;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (!given[i].word)
            continue;
        *any = true;
        UNI_TRY(uni__csv_options_set(options, given[i].name, given[i].word, err));
    }
    return 0;
}

static int open_files(uni_dataset **out, const data_values *values, int count,
                      const char *const *paths, uni_error *err)
{
    uni_csv_options options;
    bool csv;
    UNI_TRY(take_csv_options(values, &options, &csv, err));
    if (values->table && csv)
        return uni_error_set(err, UNI_EINVAL,
                             "--table is for a SQLite file, the other options are for CSV files");
    if (values->table && count != 1)
        return uni_error_set(err, UNI_EINVAL, "--table is for one SQLite file, not for %d files",
                             count);
    if (values->table)
        return uni_dataset_read_sqlite(out, paths[0], values->table, NULL, err);
    if (csv)
        return uni_dataset_read_csv(out, count, paths, &options, err);
    return uni_dataset_read(out, count, paths, err);
}

static int call_data(cli_context *context, const cli_parsed *parsed)
{
    const data_values *values = parsed->values;
    uni_dataset *dataset = NULL;
    uni_error err = { 0 };
    const struct action *action = NULL;
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        action = strcmp(parsed->args[0], actions[i].name) == 0 ? &actions[i] : action;
    if (!action)
        uni_error_set(&err, UNI_EINVAL,
                      "unknown subcommand `data %s`: use plan, head, schema or count",
                      parsed->args[0]);
    else if (parsed->num_args < 2)
        uni_error_set(&err, UNI_EINVAL, "data %s: no files given", action->name);
    else if (values->workers < 1 || values->workers > 65536)
        uni_error_set(&err, UNI_EINVAL, "--workers %lld: must be from 1 to 65536", values->workers);
    else if (values->rows < 0)
        uni_error_set(&err, UNI_EINVAL, "--rows %lld: must be 0 or more", values->rows);
    if (err.code)
        return cli_fail(context, "data", &err);
    const char *const *paths = (const char *const *)parsed->args + 1;
    int status = open_files(&dataset, values, parsed->num_args - 1, paths, &err);
    if (status == 0)
        status = action->call(context, dataset, values, &err);
    uni_dataset_unref(dataset);
    return status < 0 ? cli_fail(context, "data", &err) : status;
}

static const cli_only data_only[] = { { "workers", "plan" }, { "rows", "head" }, { NULL, NULL } };

static const cli_example data_examples[] = {
    { "unisono data schema train.csv", "the columns and their types" },
    { "unisono data head --rows 3 train.csv", "the first rows, as JSON lines" },
    { "unisono data head --table users app.db", "the first rows of an SQLite table" },
    { "unisono data head --no-header --no-quotes --delimiter tab SMSSpamCollection",
      "labels and texts, without a header row" },
    { "unisono data schema --encoding latin-1 --duplicate-names rename spam.csv",
      "a CSV file from an older program" },
    { "unisono data plan -n 4 'parts/*.csv'", "which bytes of which file each worker reads" },
    { NULL, NULL },
};

const cli_command cli_data_command = {
    .name = "data",
    .arguments = "plan|head|schema|count FILES...",
    .summary = "inspect a dataset: columns, rows, and what each worker would read",
    .description =
        "Reads .csv, .tsv, .npy, .npz, .jsonl, .tfrecord and .txt files (also compressed as .gz or "
        ".zst), directories and glob patterns of them, folders of .jpg and .png, MNIST files "
        "(-idx3-ubyte) and SQLite tables. plan prints the files and ranges that each rank reads, "
        "and the order of the samples; head prints the first rows, schema the columns, count the "
        "number of rows. With any CSV option, files are read as CSV whatever their names.",
    .options = data_options,
    .values_size = sizeof(data_values),
    .min_args = 1,
    .max_args = -1,
    .completes = "plan|head|schema|count",
    .only = data_only,
    .examples = data_examples,
    .call = call_data,
};
