/*
 * scattered.h - single rows of a large file, from anywhere in it, at the speed of memory.
 *
 * A pread for each row spends its time in the kernel's look-ups (1.3 million rows of 1 KB a second with two threads); a copy out of a mapping, with
 * the next rows asked for ahead, reaches 7 to 10 million. But a file that is cut off under a mapping kills who touches it. So rows are copied
 *
 *   1. straight from the mapping while a read lease of the file is held: the kernel makes whoever wants to write to the file or cut it off wait until the
 *      lease is given back, which is after some thousand rows;
 *   2. where no lease can be had (the file is another user's or open for writing, a file system without leases): by the kernel, from the mapping into a
 *      page of our own, 64 KiB with a call; it answers with an error where the program would have been killed (4 million rows);
 *   3. with pread: a few rows, large rows, and to learn what is wrong when 2 fails.
 *
 * A cold file is read with what lies around each row when all files fit into half of the free memory, and page by page otherwise, where that would
 * only push out other rows (120,000 rows a second to 3,400 over the first 40 s of a file of 10 GB).
 *
 * What is left: a disk that cannot read a page of a leased file, and a process stopped for longer than the kernel lets a lease be (45 s) in the middle
 * of a copy whose file is then cut off; both end in SIGBUS.
 */
#ifndef UNISONO_DATA_SCATTERED_H
#define UNISONO_DATA_SCATTERED_H

#include "data/files.h"

typedef struct uni__scattered uni__scattered;

/* One row: where it is in its file, and where it goes. */
typedef struct uni__scattered_row {
    int64_t offset;
    char *to;
} uni__scattered_row;

/* files is borrowed and must outlive it. Nothing is opened before the first copy, and no file stays open after one: there may be more files than
 * a process may have open. */
int uni__scattered_new(uni__scattered **out, const uni__files *files, uni_error *err) UNI_MUST_USE;
void uni__scattered_free(uni__scattered *scattered);
/* Copies rows of row_bytes each out of one of the files, in any order; all must lie within its size. A file that changed is an error that names
 * it. Any number of threads. */
int uni__scattered_copy(uni__scattered *scattered, int file, const uni__scattered_row *rows,
                        int64_t count, size_t row_bytes, uni_error *err) UNI_MUST_USE;

#endif
