/* test_ids.h - a source with one column "id", 0 to rows - 1, in blocks that are read by number or
 * as a stream; for tests. */
#ifndef UNISONO_DATA_TEST_IDS_H
#define UNISONO_DATA_TEST_IDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unisono/data.h>

typedef struct test_ids {
    int64_t rows, block;
} test_ids;

/* A table of the ids [begin, begin + rows). */
static inline int test_ids_table(uni_table **out, int64_t begin, int64_t rows, uni_error *err)
{
    uni_array *ids = NULL;
    UNI_TRY(uni_array_new(&ids, UNI_I64, 1, &rows, err));
    for (int64_t i = 0; i < rows; i++)
        ((int64_t *)uni_array_data(ids))[i] = begin + i;
    int status = uni_table_new(out, rows, err);
    if (status == 0)
        status = uni_table_add_array(*out, "id", ids, err);
    uni_array_unref(ids);
    return status;
}

static inline int test_ids_block(void *context, int64_t block, uni_table **out, uni_error *err)
{
    const test_ids *ids = context;
    int64_t begin = block * ids->block, left = ids->rows - begin;
    return test_ids_table(out, begin, left < ids->block ? left : ids->block, err);
}

static inline int test_ids_open(void *context, void **cursor, uni_error *err)
{
    *cursor = calloc(1, sizeof(int64_t));
    return *cursor != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory");
}

static inline int test_ids_next(void *context, void *cursor, uni_table **out, uni_error *err)
{
    const test_ids *ids = context;
    int64_t *block = cursor;
    if (*block * ids->block >= ids->rows)
        return 0;
    UNI_TRY(test_ids_block(context, (*block)++, out, err));
    return 1;
}

static inline void test_ids_close(void *context, void *cursor)
{
    free(cursor);
}

/* `ids` must outlive the dataset. */
static inline uni_source_functions test_ids_source(test_ids *ids, bool stream)
{
    uni_source_functions source = { .name = "ids", .context = ids };
    if (stream) {
        source.open = test_ids_open;
        source.next = test_ids_next;
        source.close = test_ids_close;
    } else {
        source.num_blocks = (ids->rows + ids->block - 1) / ids->block;
        source.read_block = test_ids_block;
    }
    return source;
}

#endif
