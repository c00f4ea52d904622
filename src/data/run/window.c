/* window.c - see window.h. */
#include <stdlib.h>
#include <string.h>
#include "data/table/shuffle.h"
#include "data/run/window.h"

#include "data/shared.h"

#define CHUNK_BYTES ((int64_t)256 << 10)

void uni__window_clear(uni__window *window)
{
    for (int i = 0; i < window->num_tables; i++)
        uni_table_unref(window->tables[i]);
    uni__pool_put(window->order);
    uni_table_unref(window->chunk);
    window->order = NULL;
    window->chunk = NULL;
    window->num_tables = 0;
    window->rows = window->at = window->base = 0;
}

void uni__window_free(uni__window *window)
{
    uni__window_clear(window);
    free(window->tables);
    window->tables = NULL;
    window->capacity = 0;
}

int uni__window_add(uni__window *window, uni_table *table, uni_error *err)
{
    if (window->num_tables == window->capacity) {
        int capacity = window->capacity > 0 ? 2 * window->capacity : 8;
        uni_table **tables = reallocarray(window->tables, (size_t)capacity, sizeof(uni_table *));
        if (tables == NULL) {
            uni_table_unref(table);
            return uni_error_set(err, UNI_ENOMEM, "no memory for a window of %d tables", capacity);
        }
        window->tables = tables;
        window->capacity = capacity;
    }
    window->tables[window->num_tables++] = table;
    window->rows += uni_table_num_rows(table);
    return 0;
}

int uni__window_shuffle(uni__window *window, uni__pool *pool, bool merge, uint64_t key,
                        uni_error *err)
{
    if (merge && window->num_tables == 1) /* already in order */
        return 0;
    if (window->rows >= UINT32_MAX)
        return uni_error_set(err, UNI_ELIMIT, "a shuffle window of %lld rows is too large",
                             (long long)window->rows);
    for (int i = 1; i < window->num_tables; i++)
        UNI_TRY(uni__table_same_fields(window->tables[0], window->tables[i],
                                       "tables that are shuffled together", err));
    window->order = uni__pool_get(pool, (size_t)window->rows * sizeof *window->order + 1);
    if (window->order == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to shuffle %lld rows",
                             (long long)window->rows);
    return uni__shuffle_tables(window->order, window->tables, window->num_tables, merge, key, err);
}

/* Takes rows [at, at + count) of consecutive tables: a slice, or several slices joined. */
static int take_plain(uni__window *window, uni__reader *reader, int64_t count, uni_table **out,
                      uni_error *err)
{
    uni_table **parts = calloc((size_t)window->num_tables, sizeof(uni_table *));
    if (parts == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a batch");
    int64_t first = 0;
    int num_parts = 0, status = 0;
    for (int i = 0; i < window->num_tables && status == 0; i++) {
        int64_t rows = uni_table_num_rows(window->tables[i]);
        int64_t begin = window->at > first ? window->at - first : 0;
        int64_t end = window->at + count - first < rows ? window->at + count - first : rows;
        if (begin < end) {
            status = uni_table_slice(&parts[num_parts], window->tables[i], begin, end, err);
            num_parts += status == 0;
        }
        first += rows;
    }
    return uni__table_join(out, reader, parts, num_parts, status, err);
}

/* Whole batches that fit into CHUNK_BYTES, but at least one. */
static int64_t chunk_rows(const uni__window *window, int64_t batch)
{
    int64_t rows = uni_table_num_rows(window->tables[0]) + 1;
    int64_t row_bytes = (int64_t)uni__table_bytes(window->tables[0]) / rows + 1;
    int64_t most = CHUNK_BYTES / row_bytes / batch * batch;
    return most < batch ? batch : most;
}

/* Ensures that the chunk holds the next rows of the shuffled order. Small batches are gathered many
 * at a time, because every gather first looks up each column of each table. */
static int gather_chunk(uni__window *window, uni__reader *reader, int64_t count, uni_error *err)
{
    bool there = window->chunk != NULL && window->at >= window->chunk_at &&
                 window->at + count <= window->chunk_at + uni_table_num_rows(window->chunk);
    if (there)
        return 0;
    int64_t rows = chunk_rows(window, count), left = window->rows - window->at;
    rows = rows < left ? rows : left;
    uni_table_unref(window->chunk);
    window->chunk = NULL;
    UNI_TRY(uni__table_gather(&window->chunk, reader, window->tables, window->num_tables,
                              window->order + window->at, rows, err));
    window->chunk_at = window->at;
    return 0;
}

int uni__window_view(uni__window *window, uni__reader *reader, int64_t count,
                     const uni_table **table, int64_t *first, uni_error *err)
{
    if (window->order == NULL && window->num_tables != 1)
        return 0;
    if (window->order != NULL)
        UNI_TRY(gather_chunk(window, reader, count, err));
    *table = window->order != NULL ? window->chunk : window->tables[0];
    *first = window->order != NULL ? window->at - window->chunk_at : window->at;
    window->at += count;
    return 1;
}

int uni__window_take(uni__window *window, uni__reader *reader, int64_t count, uni_table **out,
                     uni_error *err)
{
    const uni_table *table = NULL;
    int64_t first = 0;
    *out = NULL;
    int lies = uni__window_view(window, reader, count, &table, &first, err);
    if (lies < 0)
        return lies;
    if (lies > 0)
        return uni_table_slice(out, (uni_table *)table, first, first + count, err);
    UNI_TRY(take_plain(window, reader, count, out, err));
    window->at += count;
    return 0;
}
