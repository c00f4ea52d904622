/*
 * fuzz_file.c - feeds whole files of a format to its reader. Whatever the bytes are, the file is
 * read or rejected with a message, the count matches the rows, and no access is out of bounds.
 * Built once per FORMAT. Third-party libraries (zlib, zstd, SQLite, the image decoders) are the
 * installed ones; the target is the code that handles their output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unisono/data.h>
#include <unisono/data_readers.h>

#include "base/file.h"
#include "base/fuzz.h"

/* FORMAT is one of these. */
#define IDX 1
#define GZ 2
#define ZST 3
#define SQLITE 4
#define CSV 5
#define IMAGES 6
#define TFRECORDS 7
#define MAX_ROWS 20000

#if FORMAT == IDX
static const char suffix[] = "-idx1-ubyte";
#elif FORMAT == GZ
static const char suffix[] = ".jsonl.gz";
#elif FORMAT == ZST
static const char suffix[] = ".csv.zst";
#elif FORMAT == SQLITE
static const char suffix[] = ".sqlite";
#elif FORMAT == CSV
static const char suffix[] = ".csv";
#elif FORMAT == IMAGES
static const char suffix[] = ".png";
#else
static const char suffix[] = ".tfrecord";
#endif

/* `choice` selects options if the format has some. */
static int open_file(uni_dataset **out, const char *path, uint8_t choice, uni_error *err)
{
#if FORMAT == IDX
    return uni_dataset_read_idx(out, 1, (const char *const[]){ "x" }, &path, err);
#elif FORMAT == GZ
    return choice % 2 ? uni_dataset_read_json(out, 1, &path, NULL, err)
                      : uni_dataset_read_text(out, 1, &path, NULL, err);
#elif FORMAT == ZST
    return uni_dataset_read_csv(out, 1, &path, NULL, err);
#elif FORMAT == SQLITE
    return uni_dataset_read_sqlite(out, path, choice % 2 ? "t" : "SELECT * FROM v", NULL, err);
#elif FORMAT == CSV
    return uni_dataset_read_csv(
        out, 1, &path,
        &(uni_csv_options){ .delimiter = choice & 1 ? '\t' : 0,
                            .no_quotes = (choice & 2) != 0,
                            .encoding = choice & 4 ? "cp1252" : NULL,
                            .short_rows = (uni_csv_rows)(choice >> 3 & 1) * 2,
                            .long_rows = (uni_csv_rows)((choice >> 4) % 3),
                            .rename_duplicates = (choice & 64) != 0,
                            .bad.skip = (choice & 128) != 0,
                            .block_bytes = 1 + choice % 29 },
        err);
#elif FORMAT == IMAGES
    return uni_dataset_read_images(out, 1, &path,
                                   &(uni_image_options){ .height = choice % 4 ? 5 : 0,
                                                         .width = choice % 4 ? 7 : 0,
                                                         .channels = choice % 3 ? 3 : 1 },
                                   err);
#else
    return uni_dataset_read_tfrecords(
        out, 1, &path, &(uni_tfrecord_options){ .raw = choice & 1, .block_bytes = 1 + choice % 61 },
        err);
#endif
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[400], name[40];
    uni_dataset *dataset = NULL;
    uni_table *table = NULL;
    uni_error err = { 0 };
    int64_t rows = -1;
    if (size < 2)
        return 0;
    snprintf(name, sizeof name, "a%s", suffix);
    fuzz_file(path, name, data + 1, size - 1);
    int status = open_file(&dataset, path, data[0], &err);
    if (status == 0)
        status = uni_dataset_take(&table, dataset, MAX_ROWS, &err);
    FUZZ_PROMISE(status == 0 || (err.code == status && err.message[0] != 0));
    /* The plug-in is built with the target: without it nothing would be tested. */
    FUZZ_PROMISE(status != UNI_EUNSUPPORTED || strstr(err.message, "UNISONO_PLUGINS") == NULL);
    if (status == 0 && uni_table_num_rows(table) < MAX_ROWS &&
        uni_dataset_count(&rows, dataset, &err) == 0)
        FUZZ_PROMISE(rows == uni_table_num_rows(table));
    uni_table_unref(table);
    uni_dataset_unref(dataset);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
#if FORMAT == IDX
    static const uint8_t sample[] = { 0, 0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6 };
#elif FORMAT == CSV
    static const uint8_t sample[] = "\x18"
                                    "a,b,,b\n1,2,x\n3\n4,5,\"y\nz\",w,v\n\n6,\xe9,7,\n";
#else
    static const uint8_t sample[] = "\x01"
                                    "\x1f\x8b\x08\0\0\0\0\0\0\3";
#endif
    return fuzz_copy(out, room, sample, sizeof sample);
}
