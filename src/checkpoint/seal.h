/*
 * seal.h - from a directory full of files to a complete checkpoint in its place. Only this module
 * includes it.
 *
 * Sealing hashes and fsyncs every file, fsyncs the directories, and writes the manifest last
 * (fsynced too). The caller then renames the directory to its place and fsyncs the parent. Until
 * that rename nobody can take it for a checkpoint. Any thread.
 */
#ifndef UNISONO_CHECKPOINT_SEAL_H
#define UNISONO_CHECKPOINT_SEAL_H

#include "checkpoint/manifest.h"

/* manifest->files on entry: those that were hashed as they were written (they are fsynced, but
 * not read again). On success it has all of them, sorted, and everything below dir is durable.
 * Links must have been settled (stage.h). */
int uni__seal(const char *dir, uni__manifest *manifest, uni_error *err) UNI_MUST_USE;
/* rename(2) through the fault hook of the tests, without replacing anything. */
int uni__rename_new(const char *from, const char *to, uni_error *err) UNI_MUST_USE;

/* Creates path (mode 0600, UNI_EEXISTS when it is there), writes the bytes and hashes them on
 * the way; no fsync. */
int uni__write_hashed(const char *path, const void *data, size_t size, char xxh3[17],
                      uni_error *err) UNI_MUST_USE;
/* Hashes what is left to read of fd in large pieces; path is for messages. */
int uni__hash_descriptor(int fd, const char *path, char xxh3[17], uint64_t *size,
                         uni_error *err) UNI_MUST_USE;
/* Opens dir/relative for reading; no component of relative may be a link, so that a manifest
 * cannot lead out. */
int uni__open_beneath(int *fd, const char *dir, const char *relative, uni_error *err) UNI_MUST_USE;
/* Compares one file of the checkpoint with its entry: its size, and with `contents` every
 * byte. UNI_ECORRUPT names it. */
int uni__check_file(const char *dir, const uni__manifest_file *file, bool contents,
                    uni_error *err) UNI_MUST_USE;

#endif
