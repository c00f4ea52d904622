/*
 * fuzz_journal.c - any file is read without a crash, or rejected. A journal that opens accepts a
 * record, and then contains that record and everything read before. See fuzz.h.
 *
 * Random bytes would never match the checksums: when the first byte is 'S', every line gets a
 * correct one. The file is a memfd, named through /proc.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/fuzz.h"
#include "base/journal.h"
#include "base/text.h"

static int count_record(void *context, const uni_value *record, uni_error *err)
{
    FUZZ_PROMISE(uni_value_type_of(record) == UNI_TYPE_DICT);
    ++*(size_t *)context;
    return 0;
}

static void add_sealed(uni__text *out, const uint8_t *data, size_t size)
{
    while (size > 0) {
        const uint8_t *lf = memchr(data, '\n', size);
        size_t length = lf ? (size_t)(lf - data) : size;
        char hash[17];
        uni__hash_bytes(data, length, hash);
        uni__text_add(out, data, length);
        uni__text_add_format(out, ",\"x\":\"%s\"}%s", hash + 8, lf ? "\n" : "");
        data += length + (lf != NULL);
        size -= length + (lf != NULL);
    }
}

static void check_append(const char *path, const uni__journal_report *before)
{
    uni__journal *journal = NULL;
    uni__journal_report after;
    uni_error err = { 0 };
    size_t seen = 0;
    uni_value *record = uni_value_dict();
    FUZZ_PROMISE(uni_dict_take(record, "event", uni_value_int(1)) == 0);
    FUZZ_PROMISE(uni__journal_open(&journal, path, "journal", &err) == 0);
    FUZZ_PROMISE(uni__journal_append(journal, record, false, &err) == 0);
    uni__journal_close(journal);
    uni_value_free(record);
    FUZZ_PROMISE(uni__journal_read(path, "journal", count_record, &seen, &after, &err) == 0);
    FUZZ_PROMISE(seen == before->records + 1 && !after.torn && after.damaged == before->damaged);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[400];
    uni__text sealed = { 0 };
    uni_error err = { 0 };
    size_t seen = 0;
    uni__journal_report report;
    if (size > 0 && data[0] == 'S')
        add_sealed(&sealed, data + 1, size - 1);
    else
        uni__text_add(&sealed, data, size);
    fuzz_file(path, "journal.jsonl", sealed.data, sealed.size);
    int status = uni__journal_read(path, "journal", count_record, &seen, &report, &err);
    FUZZ_PROMISE(seen == report.records);
    if (status == 0)
        check_append(path, &report);
    else
        FUZZ_PROMISE(err.code == status && err.message[0]);
    uni__text_free(&sealed);
    return 0;
}

FUZZ_SAMPLE_TEXT("S{\"format\":\"unisono journal\",\"version\":1\n"
                 "{\"event\":\"attempt\",\"time\":1.5\n{\"event\":\"exit\",\"rank\":0\n")
