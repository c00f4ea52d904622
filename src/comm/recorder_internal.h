/* recorder_internal.h - the recorder file's header as a struct (recorder.h describes it), for
 * writer and reader. */
#ifndef UNISONO_COMM_RECORDER_INTERNAL_H
#define UNISONO_COMM_RECORDER_INTERNAL_H

#include <stddef.h>
#include "comm/recorder.h"

#define UNI__RECORDER_MAGIC 0x314d4d4f43494e55ull /* "UNICOMM1" */
#define UNI__RECORDER_VERSION 1u

typedef struct uni__recorder_header {
    uint64_t magic;
    uint32_t version, rank, size, capacity;
    uint32_t pid, zero;
    uint64_t begun;
    char transport[16];
    int64_t clock_offset_ns;
} uni__recorder_header;
_Static_assert(sizeof(uni__recorder_header) == 64, "the header is one cache line");

static inline size_t uni__recorder_offset(int size)
{
    return (sizeof(uni__recorder_header) + (size_t)size * sizeof(uni__late) + 63) & ~(size_t)63;
}

#endif
