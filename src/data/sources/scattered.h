/*
 * scattered.h - reads single rows from anywhere in a large file at memory speed.
 *
 * A pread per row spends its time in kernel lookups: 1.3 million rows of 1 KB per second with two
 * threads. Copying from a mapping, with the next rows prefetched, reaches 7 to 10 million. But if a
 * mapped file is truncated, touching it kills the process. So rows are copied
 *
 *   1. directly from the mapping while holding a read lease on the file: the kernel makes any
 *      process that wants to write to or truncate the file wait until the lease is released,
 *      which is after a few thousand rows;
 *   2. if no lease is available (the file belongs to another user or is open for writing, or the
 *      file system has no leases): by the kernel, from the mapping into a page of our own, 64 KiB
 *      per call; it returns an error where the process would have been killed (4 million rows);
 *   3. with pread: for a few rows, for large rows, and to find the reason when 2 fails.
 *
 * If all files fit into half of the free memory, a cold file is read together with what surrounds
 * each row. Otherwise it is read page by page, because reading around would only evict other rows
 * (120,000 rows per second against 3,400 over the first 40 s of a 10 GB file).
 *
 * Two cases remain that end in SIGBUS: a disk that cannot read a page of a leased file, and a
 * process that is stopped in the middle of a copy for longer than the kernel grants a lease (45 s)
 * while the file is truncated.
 */
#ifndef UNISONO_DATA_SCATTERED_H
#define UNISONO_DATA_SCATTERED_H

#include "data/sources/files.h"

typedef struct uni__scattered uni__scattered;

/* One row: its file offset and destination. */
typedef struct uni__scattered_row {
    int64_t offset;
    char *to;
} uni__scattered_row;

/* Borrows files, which must outlive it. Opens nothing before the first copy, and keeps no file open
 * after one: there may be more files than a process may have open. */
int uni__scattered_new(uni__scattered **out, const uni__files *files, uni_error *err) UNI_MUST_USE;
void uni__scattered_free(uni__scattered *scattered);
/* Copies rows of row_bytes each out of one file, in any order; all must lie within its size. A file
 * that changed is an error that names it. Any number of threads. */
int uni__scattered_copy(uni__scattered *scattered, int file, const uni__scattered_row *rows,
                        int64_t count, size_t row_bytes, uni_error *err) UNI_MUST_USE;

#endif
