/* shuffle.c - see shuffle.h. Fisher-Yates; position i draws the i-th number of the key. */
#include "data/table/shuffle.h"

#include <stdlib.h>
#include "base/random.h"

/* Random numbers of a key, four at a time. */
struct draws {
    uint32_t words[2], random[4];
};

static inline int64_t draw(struct draws *draws, int64_t i, int64_t count)
{
    if (i % 4 == 0)
        uni__philox((const uint32_t[4]){ (uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), 0, 0 },
                    draws->words, draws->random);
    return i + (int64_t)((uint64_t)draws->random[i % 4] * (uint64_t)(count - i) >> 32);
}

static struct draws draws_of(uint64_t key)
{
    return (struct draws){ .words = { (uint32_t)key, (uint32_t)(key >> 32) } };
}

static void shuffle_rows(uni__row *rows, int64_t count, uint64_t key)
{
    struct draws draws = draws_of(key);
    for (int64_t i = 0; i + 1 < count; i++) {
        int64_t other = draw(&draws, i, count);
        uni__row swap = rows[other];
        rows[other] = rows[i];
        rows[i] = swap;
    }
}

/* Shuffles only which table comes next; each table gives its rows in order. */
static int merge_rows(uni__row *rows, int64_t count, int num_tables, uint64_t key, uni_error *err)
{
    struct draws draws = draws_of(key);
    int32_t *next = calloc((size_t)num_tables + 1, sizeof *next);
    if (next == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to shuffle %lld rows", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        int64_t other = i + 1 < count ? draw(&draws, i, count) : i;
        int32_t table = rows[other].table;
        rows[other].table = rows[i].table;
        rows[i] = (uni__row){ .table = table, .row = next[table]++ };
    }
    free(next);
    return 0;
}

int uni__shuffle_tables(uni__row *order, uni_table *const *tables, int num_tables, bool merge,
                        uint64_t key, uni_error *err)
{
    int64_t at = 0;
    for (int i = 0; i < num_tables; i++) {
        int64_t rows = uni_table_num_rows(tables[i]);
        for (int64_t row = 0; row < rows; row++)
            order[at++] = (uni__row){ .table = i, .row = (int32_t)row };
    }
    if (merge)
        return merge_rows(order, at, num_tables, key, err);
    shuffle_rows(order, at, key);
    return 0;
}

int uni__shuffle_table(uni_table **table, uni__reader *reader, uint64_t key, uni_error *err)
{
    int64_t count = uni_table_num_rows(*table);
    uni_table *shuffled = NULL;
    if (count < 2)
        return 0;
    if (count > INT32_MAX)
        return uni_error_set(err, UNI_ELIMIT, "a block of %lld rows is too large to be shuffled",
                             (long long)count);
    uni__row *order =
        uni__reader_scratch(reader, UNI__SCRATCH_SHUFFLED_ROWS, (size_t)count * sizeof *order);
    if (order == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to shuffle %lld rows", (long long)count);
    UNI_TRY(uni__shuffle_tables(order, table, 1, false, key, err));
    UNI_TRY(uni__table_gather(&shuffled, reader, table, 1, order, count, err));
    uni_table_unref(*table);
    *table = shuffled;
    return 0;
}
