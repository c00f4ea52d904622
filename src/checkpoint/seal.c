/*
 * seal.c - completes a directory (seal.h). The order is essential:
 *
 *   1. every file is hashed and fsynced, and its directories are fsynced
 *   2. the manifest is written under a temporary name, fsynced, renamed into place, and its
 *      directory is fsynced
 *   3. the caller renames the directory to where readers look, and fsyncs that parent
 *
 * A crash before the publishing rename leaves only staging, one after it a complete checkpoint.
 * Writeback of a file starts before it is hashed, so that the disk is busy meanwhile. Any thread.
 */
#include "checkpoint/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "checkpoint/store.h"

typedef struct sealing {
    const char *dir;
    uni__manifest *manifest;
    /* Number of files at the start of the manifest that need no hashing. */
    size_t known;
    /* Directory of the previous file, to fsync each directory about once. */
    char *last_dir;
} sealing;

static const uni__manifest_file *find_known(const sealing *state, const char *relative)
{
    for (size_t i = 0; i < state->known; i++)
        if (strcmp(state->manifest->files[i].path, relative) == 0)
            return &state->manifest->files[i];
    return NULL;
}

/* Fsyncs the directories from that of `relative` up to the root (exclusive) that the previous file
 * did not share. */
static int sync_parents(sealing *state, const char *relative, uni_error *err)
{
    const char *slash = strrchr(relative, '/');
    size_t length = slash ? (size_t)(slash - relative) : 0;
    if (length == 0 || (state->last_dir && strlen(state->last_dir) == length &&
                        memcmp(state->last_dir, relative, length) == 0))
        return 0;
    char *parent = strndup(relative, length);
    if (!parent)
        return uni_error_set(err, UNI_ENOMEM, "no memory to complete the checkpoint %s",
                             state->dir);
    free(state->last_dir);
    state->last_dir = strdup(parent);
    int status = state->last_dir ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory");
    for (char *end = parent + length; status == 0 && end; end = strrchr(parent, '/')) {
        *end = '\0';
        char *full = uni__path_join(state->dir, parent, NULL);
        status = full ? uni__fsync_path(full, err) : uni_error_set(err, UNI_ENOMEM, "no memory");
        free(full);
    }
    free(parent);
    return status;
}

static int seal_link(sealing *state, const char *relative, const char *full, uni_error *err)
{
    char target[PATH_MAX], sum[17];
    ssize_t length = readlink(full, target, sizeof target);
    if (length < 0)
        return uni_error_set_errno(err, errno, "cannot read the link %s", full);
    uni__hash_bytes(target, (size_t)length, sum);
    return uni__manifest_add(state->manifest, relative, (uint64_t)length, sum, true, err);
}

static int sync_descriptor(int fd, const char *full, uni_error *err)
{
    int failure = uni__fault(UNI__FAULT_FSYNC, full, NULL);
    if (failure == 0 && fsync(fd) < 0)
        failure = errno;
    return failure ? uni_error_set_errno(err, failure, "cannot sync %s to disk", full) : 0;
}

static int seal_regular(sealing *state, const char *relative, const char *full, uni_error *err)
{
    const uni__manifest_file *known = find_known(state, relative);
    int fd = open(full, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return uni_error_set_errno(err, errno, "cannot read %s", full);
    int status = 0;
    if (!known) {
        char sum[17];
        uint64_t size = 0;
        /* Only an early start; the fsync is what counts. */
        (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
        status = uni__hash_descriptor(fd, full, sum, &size, err);
        if (status == 0)
            status = uni__manifest_add(state->manifest, relative, size, sum, false, err);
    }
    if (status == 0)
        status = sync_descriptor(fd, full, err);
    close(fd);
    return status;
}

static int seal_one(void *context, const char *relative, const char *full, uint64_t size,
                    uni_error *err)
{
    sealing *state = context;
    struct stat info;
    if (strcmp(relative, UNI__MANIFEST_NAME) == 0)
        return uni_error_set(err, UNI_ESTATE, "%s has a manifest already", state->dir);
    if (lstat(full, &info) < 0)
        return uni_error_set_errno(err, errno, "cannot look at %s", full);
    if (S_ISLNK(info.st_mode))
        UNI_TRY(seal_link(state, relative, full, err));
    else
        UNI_TRY(seal_regular(state, relative, full, err));
    return sync_parents(state, relative, err);
}

int uni__seal(const char *dir, uni__manifest *manifest, uni_error *err)
{
    int status;
    char *text = NULL, *path = NULL;
    size_t size = 0;
    sealing state = { .dir = dir, .manifest = manifest, .known = manifest->file_count };
    UNI_TRY_GOTO(uni__walk_files(dir, seal_one, &state, err), done);
    uni__manifest_sort(manifest);
    UNI_TRY_GOTO(uni__manifest_write(&text, &size, manifest, err), done);
    path = uni__path_join(dir, UNI__MANIFEST_NAME, NULL);
    if (!path) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to complete the checkpoint %s", dir);
        goto done;
    }
    UNI_TRY_GOTO(uni__write_file(path, text, size, true, err), done);
done:
    free(path);
    free(text);
    free(state.last_dir);
    return status;
}

int uni__rename_new(const char *from, const char *to, uni_error *err)
{
    int failure = uni__fault(UNI__FAULT_RENAME, from, NULL);
    if (failure == 0 && renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) < 0)
        failure = errno;
    /* A file system without the flag (NFS): nearly as good. */
    if (failure == EINVAL || failure == ENOSYS)
        failure = access(to, F_OK) == 0 ? EEXIST : rename(from, to) < 0 ? errno : 0;
    if (failure == EEXIST || failure == ENOTEMPTY)
        return uni_error_set(err, UNI_EEXISTS, "cannot rename %s: %s exists already", from, to);
    return failure ? uni_error_set_errno(err, failure, "cannot rename %s to %s", from, to) : 0;
}
