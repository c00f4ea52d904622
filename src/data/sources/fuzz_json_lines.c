/*
 * fuzz_json_lines.c - JSON lines: infers the columns and reads every line. The scanner must accept
 * whatever the library's own JSON reader accepts (which also rejects duplicate keys and integers
 * beyond 64 bits), and the result must be a table that matches its schema.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "data/sources/json_infer.h"
#include "data/sources/json_scan.h"
#include "data/sources/source.h"

static void check_against_tree(const char *text, size_t size)
{
    uni_value *tree = NULL;
    uni__json_scan scan = { .at = text, .end = text + size };
    uni__json_token token;
    bool good = uni__json_next(&scan, &token) != UNI__JSON_BAD;
    uni__json_space(&scan);
    good = good && scan.at == scan.end;
    if (uni_json_read(&tree, text, size, NULL) == 0)
        FUZZ_PROMISE(good);
    uni_value_free(tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 65);
    uni_table *schema = NULL;
    int64_t rows = 0;
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    memset(text + size, 0, 65);
    check_against_tree(text, size);
    uni_json_options options = { .bad = { .skip = true } };
    if (uni__json_infer(&schema, &rows, "fuzz", text, size, &options, NULL) == 0) {
        uni__reader *reader = NULL;
        uni_table *table = NULL;
        FUZZ_PROMISE(uni__reader_new(&reader, true, NULL) == 0);
        if (uni__json_parse(reader, schema, text, size, &table, NULL) == 0)
            FUZZ_PROMISE(uni_table_num_columns(table) == uni_table_num_columns(schema) &&
                         uni_table_num_rows(table) <= rows + (int64_t)size);
        uni_table_unref(table);
        uni__reader_free(reader);
    }
    uni_table_unref(schema);
    free(text);
    return 0;
}

FUZZ_SAMPLE_TEXT(
    "{\"a\": 1, \"b\": -2.5e3, \"s\": \"x\\u00e9\\n\", \"v\": [[1, 2], [3, 4.5]], \"l\": []}\n"
    "{\"a\": null, \"b\": true, \"s\": \"\xc3\xa9\", \"v\": [[1, 2], [3, 4]], \"l\": [7]}\n")
