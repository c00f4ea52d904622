/* unit.c - see unit.h. */
#include <stdlib.h>
#include <string.h>
#include "data/shuffle.h"
#include "data/unit.h"

#define CHUNK_BYTES ((int64_t)256 << 10)

void uni__unit_clear(uni__unit *unit)
{
    for (int i = 0; i < unit->num_tables; i++)
        uni_table_unref(unit->tables[i]);
    uni__pool_put(unit->order);
    uni_table_unref(unit->chunk);
    unit->order = NULL;
    unit->chunk = NULL;
    unit->num_tables = 0;
    unit->rows = unit->at = unit->base = 0;
}

void uni__unit_free(uni__unit *unit)
{
    uni__unit_clear(unit);
    free(unit->tables);
    unit->tables = NULL;
    unit->capacity = 0;
}

int uni__unit_add(uni__unit *unit, uni_table *table, uni_error *err)
{
    if (unit->num_tables == unit->capacity) {
        int capacity = unit->capacity > 0 ? 2 * unit->capacity : 8;
        uni_table **tables = reallocarray(unit->tables, (size_t)capacity, sizeof(uni_table *));
        if (tables == NULL) {
            uni_table_unref(table);
            return uni_error_set(err, UNI_ENOMEM, "no memory for a window of %d tables", capacity);
        }
        unit->tables = tables;
        unit->capacity = capacity;
    }
    unit->tables[unit->num_tables++] = table;
    unit->rows += uni_table_num_rows(table);
    return 0;
}

int uni__unit_shuffle(uni__unit *unit, uni__pool *pool, bool merge, uint64_t key, uni_error *err)
{
    if (merge && unit->num_tables == 1) /* it is as it should be */
        return 0;
    if (unit->rows >= UINT32_MAX)
        return uni_error_set(err, UNI_ELIMIT, "a shuffle window of %lld rows is too large",
                             (long long)unit->rows);
    for (int i = 1; i < unit->num_tables; i++)
        UNI_TRY(uni__table_same_fields(unit->tables[0], unit->tables[i],
                                       "tables that are shuffled together", err));
    unit->order = uni__pool_get(pool, (size_t)unit->rows * sizeof *unit->order + 1);
    if (unit->order == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to shuffle %lld rows",
                             (long long)unit->rows);
    return uni__shuffle_tables(unit->order, unit->tables, unit->num_tables, merge, key, err);
}

/* Rows [at, at + count) where tables follow each other: a slice, or slices put together. */
static int take_plain(uni__unit *unit, uni__reader *reader, int64_t count, uni_table **out,
                      uni_error *err)
{
    uni_table **parts = calloc((size_t)unit->num_tables, sizeof(uni_table *));
    if (parts == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a batch");
    int64_t first = 0;
    int num_parts = 0, status = 0;
    for (int i = 0; i < unit->num_tables && status == 0; i++) {
        int64_t rows = uni_table_num_rows(unit->tables[i]);
        int64_t begin = unit->at > first ? unit->at - first : 0;
        int64_t end = unit->at + count - first < rows ? unit->at + count - first : rows;
        if (begin < end) {
            status = uni_table_slice(&parts[num_parts], unit->tables[i], begin, end, err);
            num_parts += status == 0;
        }
        first += rows;
    }
    if (status == 0)
        status = uni__table_concat(out, reader, parts, num_parts, err);
    for (int i = 0; i < num_parts; i++)
        uni_table_unref(parts[i]);
    free(parts);
    return status;
}

/* Whole batches of at most CHUNK_BYTES together, but one at least. */
static int64_t chunk_rows(const uni__unit *unit, int64_t batch)
{
    int64_t rows = uni_table_num_rows(unit->tables[0]) + 1;
    int64_t row_bytes = (int64_t)uni_table_bytes(unit->tables[0]) / rows + 1;
    int64_t most = CHUNK_BYTES / row_bytes / batch * batch;
    return unit->by_batch || most < batch ? batch : most;
}

/* The chunk with the next rows of the shuffled order. Small batches are gathered many at a time, because a gather begins with finding every column of every table. */
static int gather_chunk(uni__unit *unit, uni__reader *reader, int64_t count, uni_error *err)
{
    bool there = unit->chunk != NULL && unit->at >= unit->chunk_at &&
                 unit->at + count <= unit->chunk_at + uni_table_num_rows(unit->chunk);
    if (there)
        return 0;
    int64_t rows = chunk_rows(unit, count), left = unit->rows - unit->at;
    rows = rows < left ? rows : left;
    uni_table_unref(unit->chunk);
    unit->chunk = NULL;
    UNI_TRY(uni__table_gather(&unit->chunk, reader, unit->tables, unit->num_tables,
                              unit->order + unit->at, rows, err));
    unit->chunk_at = unit->at;
    return 0;
}

int uni__unit_view(uni__unit *unit, uni__reader *reader, int64_t count, const uni_table **table,
                   int64_t *first, uni_error *err)
{
    if (unit->order == NULL && unit->num_tables != 1)
        return 0;
    if (unit->order != NULL)
        UNI_TRY(gather_chunk(unit, reader, count, err));
    *table = unit->order != NULL ? unit->chunk : unit->tables[0];
    *first = unit->order != NULL ? unit->at - unit->chunk_at : unit->at;
    unit->at += count;
    return 1;
}

int uni__unit_take(uni__unit *unit, uni__reader *reader, int64_t count, uni_table **out,
                   uni_error *err)
{
    const uni_table *table = NULL;
    int64_t first = 0;
    *out = NULL;
    int lies = uni__unit_view(unit, reader, count, &table, &first, err);
    if (lies < 0)
        return lies;
    if (lies > 0)
        return uni_table_slice(out, (uni_table *)table, first, first + count, err);
    UNI_TRY(take_plain(unit, reader, count, out, err));
    unit->at += count;
    return 0;
}
