/*
 * seal.h - turns a directory of files into a complete checkpoint. Only this module includes it.
 *
 * Sealing hashes and fsyncs every file, fsyncs the directories, and writes the manifest last (also
 * fsynced). The caller then renames the directory to its place and fsyncs the parent. Before that
 * rename no reader can take it for a checkpoint. Any thread.
 */
#ifndef UNISONO_CHECKPOINT_SEAL_H
#define UNISONO_CHECKPOINT_SEAL_H

#include "checkpoint/manifest.h"

/* manifest->files on entry: those that were hashed while they were written (they are fsynced, but
 * not read again). On success it has all files, sorted, and everything below dir is durable. Links
 * must have been resolved (stage.h). */
int uni__seal(const char *dir, uni__manifest *manifest, uni_error *err) UNI_MUST_USE;
/* rename(2) through the tests' fault hook, without replacing anything. */
int uni__rename_new(const char *from, const char *to, uni_error *err) UNI_MUST_USE;

/* Creates path (mode 0600, UNI_EEXISTS when it exists), writes the bytes and hashes them along the
 * way; no fsync. */
int uni__write_hashed(const char *path, const void *data, size_t size, char xxh3[17],
                      uni_error *err) UNI_MUST_USE;
/* Hashes the rest of fd in large pieces; path is for messages. */
int uni__hash_descriptor(int fd, const char *path, char xxh3[17], uint64_t *size,
                         uni_error *err) UNI_MUST_USE;
/* Opens dir/relative for reading. No component of relative may be a link, so that a manifest cannot
 * lead outside. */
int uni__open_beneath(int *fd, const char *dir, const char *relative, uni_error *err) UNI_MUST_USE;
/* Compares one file of the checkpoint with its entry: its size, and with `contents` every byte.
 * UNI_ECORRUPT names it. */
int uni__check_file(const char *dir, const uni__manifest_file *file, bool contents,
                    uni_error *err) UNI_MUST_USE;

#endif
