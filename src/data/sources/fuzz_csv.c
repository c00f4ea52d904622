/* fuzz_csv.c - any text is read or rejected as CSV, and blocks of any size give the same rows. See
 * base/fuzz.h. The first byte chooses the size. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unisono/data.h>
#include "base/file.h"
#include "base/fuzz.h"

/* Reads all rows in blocks of this size; NULL if the text is rejected. */
static uni_table *read_in_blocks(const char *path, int64_t block_bytes)
{
    uni_dataset *dataset = NULL;
    uni_table *table = NULL;
    uni_error err = { 0 };
    uni_csv_options options = { .block_bytes = block_bytes };
    int64_t rows = -1;
    int status = uni_dataset_read_csv(&dataset, 1, &path, &options, &err);
    if (status == 0)
        status = uni_dataset_take(&table, dataset, 1 << 20, &err);
    if (status < 0) {
        FUZZ_PROMISE(table == NULL && err.code == status && err.message[0] != 0);
    } else {
        /* Counting reads no cells, and comes to the same. */
        FUZZ_PROMISE(uni_dataset_count(&rows, dataset, &err) == 0);
        FUZZ_PROMISE(rows == uni_table_num_rows(table));
    }
    uni_dataset_unref(dataset);
    return table;
}

static bool same_array(const uni_array *a, const uni_array *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    size_t size = uni_array_bytes(a);
    return size == uni_array_bytes(b) &&
           (size == 0 || memcmp(uni_array_data(a), uni_array_data(b), size) == 0);
}

static bool same_table(const uni_table *a, const uni_table *b)
{
    bool same = uni_table_num_rows(a) == uni_table_num_rows(b) &&
                uni_table_num_columns(a) == uni_table_num_columns(b);
    for (int i = 0; same && uni_table_num_rows(a) > 0 && i < uni_table_num_columns(a); i++) {
        const uni_table_column *x = uni_table_column_at(a, i), *y = uni_table_column_at(b, i);
        same = same_array(x->values, y->values) && same_array(x->offsets, y->offsets) &&
               same_array(x->valid, y->valid);
    }
    return same;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[256];
    if (size < 2)
        return 0;
    int fd = mkstemp(uni__temporary_name(path, sizeof path, "fuzz"));
    if (fd < 0 || uni__write_all(fd, data + 1, size - 1, path, NULL) < 0)
        return 0;
    close(fd);
    uni_table *whole = read_in_blocks(path, 1 << 20);
    uni_table *cut = read_in_blocks(path, 1 + data[0] % 64);
    /* Text that can be read gives the same rows however it is cut. Text that cannot is rejected,
     * but the message may depend on the cut. */
    FUZZ_PROMISE(whole == NULL || (cut != NULL && same_table(whole, cut)));
    uni_table_unref(whole);
    uni_table_unref(cut);
    (void)unlink(path);
    return 0;
}

FUZZ_SAMPLE_TEXT("\x07id,x,name\n1,0.5,ann\n2,-1e3,\"b,\"\"o\"\"b\"\n,nan,\"two\nlines\"\n")
