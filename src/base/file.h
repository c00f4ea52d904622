/*
 * file.h - files as we need them: whole or not at all, and errors that name the path.
 *
 * All paths are UTF-8 C strings. Nothing here follows a symbolic link when it removes or walks.
 * Before every write, sync, rename, mkdir and unlink the hook of base/fault.h is asked, by which
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
/* A descriptor to read a regular file; anything else (a FIFO, a device) is refused, and does not block. */
int uni__open_regular(const char *path, uni_error *err) UNI_MUST_USE;
/* The same for files of a run, an experiment or a checkpoint, which may be another user's: a symbolic
 * link in place of the file is UNI_EPERMISSION. */
int uni__open_unlinked(const char *path, uni_error *err) UNI_MUST_USE;
/* The same for `name` below `dir`, where no part of `name` may be a link ("logs/rank_0.log"). */
int uni__open_below(const char *dir, const char *name, uni_error *err) UNI_MUST_USE;
/* Whole file, zero-terminated (size does not count the zero); more than limit bytes is
 * UNI_ELIMIT. */
UNI__SHARED int uni__read_file(char **out, size_t *size, const char *path, size_t limit,
                               uni_error *err) UNI_MUST_USE;
int uni__read_unlinked(char **out, size_t *size, const char *path, size_t limit,
                       uni_error *err) UNI_MUST_USE; /* as uni__open_unlinked */
/* What openat takes for a file of the directory `dir`: the last part of the path, or with AT_FDCWD
 * the whole of it. */
const char *uni__name_at(int dir, const char *path);
/* openat with O_CREAT and these flags, mode 0600; `dir` may be AT_FDCWD. */
int uni__create_at(int dir, const char *path, int flags, uni_error *err) UNI_MUST_USE;
/* Writes a temporary beside it, fsyncs (when durable), renames, fsyncs the directory (when
 * durable). */
UNI__SHARED int uni__write_file(const char *path, const void *data, size_t size, bool durable,
                                uni_error *err) UNI_MUST_USE;
/* The same in the directory `dir`, a descriptor; `path` is for messages, its last part the name. */
int uni__write_file_at(int dir, const char *path, const void *data, size_t size, bool durable,
                       uni_error *err) UNI_MUST_USE;
/* Removes what uni__write_file left in dir (not below it) when its process was killed: NAME.tmp-
 * and eight hex digits. Only for directories of our own in which nobody writes at the time. */
int uni__remove_temporaries(const char *dir, uni_error *err) UNI_MUST_USE;
int uni__fsync_path(const char *path, uni_error *err) UNI_MUST_USE; /* file or directory */
/* The directory that path is in. */
int uni__fsync_parent(const char *path, uni_error *err) UNI_MUST_USE;
int uni__rename(const char *from, const char *to, uni_error *err) UNI_MUST_USE;
UNI__SHARED int uni__unlink(const char *path,
                            uni_error *err) UNI_MUST_USE; /* not there is success */
UNI__SHARED int uni__make_dirs(const char *path, mode_t mode,
                               uni_error *err) UNI_MUST_USE; /* mkdir -p */
/* rm -r, without following links; a path that is not there is success. */
int uni__remove_tree(const char *path, uni_error *err) UNI_MUST_USE;
/* Reflink where the filesystem can, otherwise copy_file_range, otherwise read and write. Keeps
 * the mode. When it fails, `to` may have a part of it. */
int uni__copy_file(const char *from, const char *to, uni_error *err) UNI_MUST_USE;
/* Recursive; regular files, directories and symbolic links (copied as links); others are
 * refused. `to` may exist: files of the same name are replaced. A `to` inside of `from` is
 * refused. */
int uni__copy_tree(const char *from, const char *to, uni_error *err) UNI_MUST_USE;
/* malloc'ed "a/b"; NULL without memory. Parts are joined until a NULL. */
UNI__SHARED char *uni__path_join(const char *first, ...) __attribute__((sentinel));
/* malloc'ed; resolves ~ and relative paths, not links. */
char *uni__path_absolute(const char *path, uni_error *err);
/* "/tmp/unisono-NAME-XXXXXX" in `out`, below TMPDIR when there is one: what mkdtemp and mkstemp take (and refuse when it was too long for
 * `out`). Gives `out` back. */
char *uni__temporary_name(char *out, size_t size, const char *name);
UNI__SHARED bool uni__path_exists(const char *path);
bool uni__path_is_dir(const char *path);

/* Calls visit for every regular file and link below dir, depth first, each directory sorted by
 * bytes, with its path relative to dir (a link: the size of its text); sockets and the like are
 * passed over. Stops at the first negative return and hands it on. */
typedef int (*uni__visit_file)(void *context, const char *relative_path, const char *full_path,
                               uint64_t size, uni_error *err);
int uni__walk_files(const char *dir, uni__visit_file visit, void *context,
                    uni_error *err) UNI_MUST_USE;

/* XXH3 64 of a file's contents as 16 hex digits (and a zero). */
int uni__hash_file(const char *path, char out[17], uint64_t *size, uni_error *err) UNI_MUST_USE;
UNI__SHARED void uni__hash_bytes(const void *data, size_t size, char out[17]);

#endif
