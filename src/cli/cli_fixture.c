/*
 * cli_fixture.c - creates the parts of run directories that need the library's own writers, for the
 * command's tests:
 *   cli_fixture journal FILE < JSON-LINES      appends each line as a record
 *   cli_fixture checkpoint RUN-DIR ITERATION LOSS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/journal.h"
#include "checkpoint/dict.h"
#include "checkpoint/store.h"

static int add_records(const char *path, uni_error *err)
{
    uni__journal *journal = NULL;
    char *line = NULL;
    size_t capacity = 0;
    int status = uni__journal_open(&journal, path, "journal", err);
    for (ssize_t length = 0; status == 0 && (length = getline(&line, &capacity, stdin)) > 0;) {
        uni_value *record = NULL;
        status = uni_json_read(&record, line, (size_t)length, err);
        if (status == 0)
            status = uni__journal_append(journal, record, false, err);
        uni_value_free(record);
    }
    uni__journal_close(journal);
    free(line);
    return status;
}

static int add_checkpoint(const char *run_dir, int64_t iteration, double loss, uni_error *err)
{
    uni__store *store = NULL;
    uni__draft *draft = NULL;
    uni__checkpoint_info info;
    uni_value *dict = uni_value_dict();
    void *encoded = NULL;
    size_t size = 0;
    int status = uni_dict_take(dict, "loss", uni_value_float(loss));
    if (status == 0)
        status = uni__store_open(&store, &(uni__store_options){ .run_dir = run_dir }, err);
    if (status == 0)
        status = uni__draft_new(&draft, store, iteration, 1, err);
    if (status == 0)
        status = uni__dict_encoded_size(dict, &size, err);
    encoded = malloc(size + 1);
    if (status == 0)
        status = uni__dict_encode(dict, encoded, size, err);
    if (status == 0)
        status = uni__draft_add_dict(draft, 0, encoded, size, err);
    if (status == 0)
        status = uni__draft_commit(draft, dict, dict, 1.7e9 + (double)iteration, &info, err);
    uni__store_close(store, false);
    uni_value_free(dict);
    free(encoded);
    return status;
}

int main(int argc, char **argv)
{
    uni_error err = { 0 };
    int status = UNI_EINVAL;
    if (argc == 3 && strcmp(argv[1], "journal") == 0)
        status = add_records(argv[2], &err);
    else if (argc == 5 && strcmp(argv[1], "checkpoint") == 0)
        status = add_checkpoint(argv[2], atoll(argv[3]), atof(argv[4]), &err);
    if (status < 0)
        fprintf(stderr, "cli_fixture: %s\n", err.message);
    return status < 0;
}
