/*
 * file.h - file helpers: atomic writes of whole files, and errors that name the path.
 *
 * All paths are UTF-8 C strings. Nothing here follows a symbolic link when it removes or walks.
 * Every write, sync, rename, mkdir and unlink first calls the hook of base/fault.h, through which
 * tests crash or fail at the n-th. Any thread.
 */
#ifndef UNISONO_BASE_FILE_H
#define UNISONO_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unisono/status.h>

#include "base/compiler.h"

UNI__SHARED int uni__write_all(int fd, const void *data, size_t size, const char *path,
                               uni_error *err) UNI_MUST_USE;
/* Opens a regular file for reading. Rejects anything else (a FIFO, a device), without blocking. For
 * files of a run, an experiment or a checkpoint, which may belong to another user: a symbolic link
 * in place of the file is UNI_EPERMISSION. */
int uni__open_unlinked(const char *path, uni_error *err) UNI_MUST_USE;
/* The same for `name` below `dir`, where no part of `name` may be a link ("logs/rank_0.log"). */
int uni__open_below(const char *dir, const char *name, uni_error *err) UNI_MUST_USE;
/* Reads a whole file, zero-terminated (size excludes the zero); more than limit bytes is
 * UNI_ELIMIT. */
UNI__SHARED int uni__read_file(char **out, size_t *size, const char *path, size_t limit,
                               uni_error *err) UNI_MUST_USE;
/* Opens it like uni__open_unlinked. */
int uni__read_unlinked(char **out, size_t *size, const char *path, size_t limit,
                       uni_error *err) UNI_MUST_USE;
/* The name to pass to openat for a file of the directory `dir`: the last part of the path, or all
 * of it for AT_FDCWD. */
const char *uni__name_at(int dir, const char *path);
/* openat with O_CREAT and these flags, mode 0600; `dir` may be AT_FDCWD. */
int uni__create_at(int dir, const char *path, int flags, uni_error *err) UNI_MUST_USE;
/* Writes a temporary file beside it, fsyncs (when durable), renames, fsyncs the directory (when
 * durable). */
UNI__SHARED int uni__write_file(const char *path, const void *data, size_t size, bool durable,
                                uni_error *err) UNI_MUST_USE;
/* The same in the directory `dir`, a descriptor. `path` is for messages; its last part is the
 * name. */
int uni__write_file_at(int dir, const char *path, const void *data, size_t size, bool durable,
                       uni_error *err) UNI_MUST_USE;
/* Removes what killed processes left of uni__write_file in dir (not below it): NAME.tmp- and eight
 * hex digits. Only for our own directories, while no process writes there. */
int uni__remove_temporaries(const char *dir, uni_error *err) UNI_MUST_USE;
int uni__fsync_path(const char *path, uni_error *err) UNI_MUST_USE; /* file or directory */
/* Syncs the directory that contains path. */
int uni__fsync_parent(const char *path, uni_error *err) UNI_MUST_USE;
int uni__rename(const char *from, const char *to, uni_error *err) UNI_MUST_USE;
/* Succeeds when the file does not exist. */
UNI__SHARED int uni__unlink(const char *path, uni_error *err) UNI_MUST_USE;
/* mkdir -p */
UNI__SHARED int uni__make_dirs(const char *path, mode_t mode, uni_error *err) UNI_MUST_USE;
/* rm -r, without following links; succeeds when the path does not exist. */
int uni__remove_tree(const char *path, uni_error *err) UNI_MUST_USE;
/* Reflinks where the file system can, otherwise copy_file_range, otherwise read and write. Keeps
 * the mode. On failure `to` may be incomplete. */
int uni__copy_file(const char *from, const char *to, uni_error *err) UNI_MUST_USE;
/* Recursive; regular files, directories and symbolic links (copied as links); rejects others. `to`
 * may exist: files of the same name are replaced. `to` must not be inside `from`. */
int uni__copy_tree(const char *from, const char *to, uni_error *err) UNI_MUST_USE;
/* malloc'ed "a/b"; NULL: out of memory. Joins parts up to a NULL. */
UNI__SHARED char *uni__path_join(const char *first, ...) __attribute__((sentinel));
/* malloc'ed; resolves ~ and relative paths, not links. */
char *uni__path_absolute(const char *path, uni_error *err);
/* Writes "/tmp/unisono-NAME-XXXXXX" to `out`, below TMPDIR if set, for mkdtemp and mkstemp (which
 * reject it if it was too long for `out`). Returns `out`. */
char *uni__temporary_name(char *out, size_t size, const char *name);
UNI__SHARED bool uni__path_exists(const char *path);
bool uni__path_is_dir(const char *path);

/* Calls visit for every regular file and link below dir, depth first, each directory sorted by
 * bytes, with its path relative to dir (a link: the size of its text). Ignores sockets and the
 * like. Stops at the first negative return and passes it on. */
typedef int (*uni__visit_file)(void *context, const char *relative_path, const char *full_path,
                               uint64_t size, uni_error *err);
int uni__walk_files(const char *dir, uni__visit_file visit, void *context,
                    uni_error *err) UNI_MUST_USE;

/* XXH3 64 of a file's contents as 16 hex digits (and a zero). */
int uni__hash_file(const char *path, char out[17], uint64_t *size, uni_error *err) UNI_MUST_USE;
UNI__SHARED void uni__hash_bytes(const void *data, size_t size, char out[17]);

#endif
