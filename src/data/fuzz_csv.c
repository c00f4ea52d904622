/* fuzz_csv.c - any text is read or refused as CSV, and in blocks of any size it gives the same rows. See base/fuzz.h. The first byte chooses the size. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unisono/data.h>
#include "base/file.h"
#include "base/fuzz.h"

/* Rows that a reading with this block size gives; -1 when it is refused. Everything is text, so that only the structure matters. */
static int64_t rows_in_blocks(const char *path, int64_t block_bytes)
{
    uni_dataset *dataset = NULL;
    uni_error err = { 0 };
    uni_csv_options options = { .block_bytes = block_bytes };
    int status = uni_dataset_read_csv(&dataset, 1, &path, &options, &err);
    if (status < 0) {
        FUZZ_PROMISE(dataset == NULL && err.code == status && err.message[0] != 0);
        return -1;
    }
    int64_t rows = -1;
    FUZZ_PROMISE(uni_dataset_count(dataset, &rows, &err) == 0 && rows >= 0);
    uni_dataset_unref(dataset);
    return rows;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/unisono_fuzz_XXXXXX";
    if (size < 2)
        return 0;
    int fd = mkstemp(path);
    if (fd < 0 || uni__write_all(fd, data + 1, size - 1, path, NULL) < 0)
        return 0;
    close(fd);
    int64_t whole = rows_in_blocks(path, 1 << 20);
    int64_t cut = rows_in_blocks(path, 1 + data[0] % 64);
    /* A file that keeps the rules reads the same however it is cut (csv_test.c has those with quotes). */
    FUZZ_PROMISE(whole < 0 || cut < 0 || whole == cut || memchr(data + 1, '"', size - 1) != NULL);
    (void)unlink(path);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    static const char sample[] =
        "\x07id,x,name\n1,0.5,ann\n2,-1e3,\"b,\"\"o\"\"b\"\n,nan,\"two\nlines\"\n";
    size_t size = sizeof sample - 1 < room ? sizeof sample - 1 : room;
    memcpy(out, sample, size);
    return size;
}
