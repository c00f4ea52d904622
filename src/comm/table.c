/*
 * table.c - selects the algorithm by collective, size and number of ranks. The first row that fits
 * counts.
 *
 * All ranks must choose the same, so only what all of them know may decide: kind, bytes, ranks. The
 * algorithm itself finds out after the arrival whether the buffers are in shared memory. The sizes
 * are measured: docs/collectives.md.
 */
#include <stdio.h>
#include <stdint.h>

#include "comm/algorithm.h"
#include "comm/kinds.h"
#include "comm/table.h"

typedef struct row {
    int kind;
    size_t max_bytes; /* of one segment; SIZE_MAX: any */
    int max_ranks; /* INT32_MAX: any */
    const uni__algorithm *algorithm;
} row;

#define ANY_SIZE SIZE_MAX
#define ANY_RANKS INT32_MAX

static const row rows[] = {
    { UNI__KIND_ALL_REDUCE, 512, 2, &uni__all_reduce_small },
    { UNI__KIND_ALL_REDUCE, 2048, ANY_RANKS, &uni__all_reduce_small },
    { UNI__KIND_ALL_REDUCE, ANY_SIZE, ANY_RANKS, &uni__all_reduce_slices },
    { UNI__KIND_REDUCE, ANY_SIZE, ANY_RANKS, &uni__reduce_to_root },
    { UNI__KIND_BROADCAST, ANY_SIZE, ANY_RANKS, &uni__broadcast_pull },
    { UNI__KIND_ALL_GATHER, ANY_SIZE, ANY_RANKS, &uni__all_gather_pull },
    { UNI__KIND_REDUCE_SCATTER, ANY_SIZE, ANY_RANKS, &uni__reduce_scatter_pull },
    { UNI__KIND_ALL_TO_ALL, ANY_SIZE, ANY_RANKS, &uni__all_to_all_pull },
    { UNI__KIND_SHOW, ANY_SIZE, ANY_RANKS, &uni__show_flags },
    { UNI__KIND_SEND, UNI__WINDOW_BYTES, ANY_RANKS, &uni__send_small },
    { UNI__KIND_SEND, ANY_SIZE, ANY_RANKS, &uni__send_pull },
};
#define NUM_ROWS (sizeof rows / sizeof rows[0])

const uni__algorithm *uni__table_choose(int kind, size_t bytes, int size)
{
    if (kind == UNI__KIND_RECV)
        kind = UNI__KIND_SEND;
    for (size_t i = 0; i < NUM_ROWS; i++)
        if (rows[i].kind == kind && bytes <= rows[i].max_bytes && size <= rows[i].max_ranks)
            return rows[i].algorithm;
    return &uni__barrier_flags; /* barrier, finalize, alloc */
}

void uni__table_print(uni__text *text)
{
    uni__text_add_format(text, "%-15s %-12s %-8s %-8s %s\n", "collective", "bytes up to", "ranks",
                         "way", "cost (n ranks, b bytes)");
    for (size_t i = 0; i < NUM_ROWS; i++) {
        char bytes[24] = "any", ranks[16] = "any";
        if (rows[i].max_bytes != ANY_SIZE)
            snprintf(bytes, sizeof bytes, "%zu", rows[i].max_bytes);
        if (rows[i].max_ranks != ANY_RANKS)
            snprintf(ranks, sizeof ranks, "%d", rows[i].max_ranks);
        uni__text_add_format(text, "%-15s %-12s %-8s %-8s %s\n", uni__kind_name(rows[i].kind),
                             bytes, ranks, rows[i].algorithm->name, rows[i].algorithm->cost);
    }
    uni__text_add_format(text, "%-15s %-12s %-8s %-8s %s\n", "barrier", "0", "any",
                         uni__barrier_flags.name, uni__barrier_flags.cost);
}
