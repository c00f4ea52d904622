/*
 * fault.h - lets tests make the disk fail or the process die at the n-th change of the file system.
 *
 * file.c, file_tree.c and journal.c (and other modules for their own calls, see uni__fault) call
 * the hook before every operation that changes something. A hook counts, and then does one of
 * these:
 *
 * - it returns an errno, which the operation reports as its own failure
 * - it ends the process (_exit or SIGKILL: a crash)
 * - it shortens a write (a torn write, or a disk that fills up halfway)
 *
 * Without a hook the cost is one relaxed atomic load.
 *
 * This is process-wide state, which the house rules forbid: it exists only for tests. Product code
 * never sets it, no environment variable or option does, and it is not in the shared library's
 * symbols. A handle would have to go through every function that touches a file, only to be NULL in
 * every real program. Set it before threads start.
 */
#ifndef UNISONO_BASE_FAULT_H
#define UNISONO_BASE_FAULT_H

#include <stddef.h>

typedef enum uni__fault_op {
    UNI__FAULT_CREATE, /* open with O_CREAT, symlink */
    UNI__FAULT_WRITE, /* write, copy_file_range, reflink; *size is what will be written */
    UNI__FAULT_TRUNCATE, /* ftruncate */
    UNI__FAULT_FSYNC, /* fsync, fdatasync, of files and directories */
    UNI__FAULT_RENAME, /* path is the source */
    UNI__FAULT_MKDIR,
    UNI__FAULT_UNLINK /* unlink and rmdir */
} uni__fault_op;

/* Returns 0 to continue, otherwise the errno to fail with. size is NULL except for writes, where
 * the hook may reduce it (not to 0): this call then writes only that much, and the rest follows as
 * another one. May be called from any thread. */
typedef int (*uni__fault_hook)(void *context, uni__fault_op op, const char *path, size_t *size);

void uni__fault_hook_set(uni__fault_hook hook, void *context); /* NULL removes it */

/* For code that makes such a call itself: `if ((error = uni__fault(UNI__FAULT_RENAME, from,
 * NULL)) == 0) ...`. */
int uni__fault(uni__fault_op op, const char *path, size_t *size);

#endif
