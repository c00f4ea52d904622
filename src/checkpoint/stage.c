/*
 * stage.c - staged directories (stage.h): created empty, or copied from a user's directory with its
 * links resolved.
 *
 * A link inside the copied directory keeps its meaning when the directory moves, so it stays. One
 * that leads outside would make a checkpoint that is complete only as long as something else on the
 * disk is (typically a cache whose files are links to blobs), so it is replaced by its target. Any
 * thread; the names are random, so that ranks never collide.
 */
#include "checkpoint/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/random.h"

#define HOSTS_LEAVE_BYTES ((uint64_t)1 << 30)

int uni__stage_new(char **out, const char *staging_dir, int rank, uni_error *err)
{
    *out = NULL;
    UNI_TRY(uni__make_dirs(staging_dir, 0700, err));
    for (unsigned serial = 0; serial < 1000; serial++) {
        char name[80];
        uint64_t random = 0;
        if (uni__random_system(&random, sizeof random) < 0)
            return uni_error_set(err, UNI_EIO, "the system gives no random numbers");
        snprintf(name, sizeof name, "rank_%d.%u.%016" PRIx64, rank, serial, random);
        char *path = uni__path_join(staging_dir, name, NULL);
        if (!path)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a staged checkpoint");
        int failure = uni__fault(UNI__FAULT_MKDIR, path, NULL);
        if (failure == 0 && mkdir(path, 0700) == 0) {
            *out = path;
            return 0;
        }
        failure = failure ? failure : errno;
        free(path);
        if (failure != EEXIST)
            return uni_error_set_errno(err, failure, "cannot make a directory in %s", staging_dir);
    }
    return uni_error_set(err, UNI_EEXISTS, "cannot find a free name in %s", staging_dir);
}

/* Whether a link at `relative` with that target leads outside the directory that relative starts
 * from. Decides by text alone. */
static bool leads_out(const char *relative, const char *target)
{
    if (target[0] == '/')
        return true;
    long depth = 0;
    for (const char *at = relative; (at = strchr(at, '/')); at++)
        depth++;
    for (const char *part = target; *part;) {
        size_t length = strcspn(part, "/");
        if (length == 2 && part[0] == '.' && part[1] == '.')
            depth--;
        else if (length > 0 && !(length == 1 && part[0] == '.'))
            depth++;
        if (depth < 0)
            return true;
        part += length + (part[length] == '/');
    }
    return false;
}

/* Replaces the link `full` by a copy of what `source` (a link) points to. */
static int replace_by_copy(const char *full, const char *source, const char *target, uni_error *err)
{
    char *resolved = realpath(source, NULL);
    struct stat info;
    if (!resolved || stat(resolved, &info) < 0) {
        int failure = errno;
        free(resolved);
        return uni_error_set_errno(err, failure,
                                   "%s is a link to %s, which cannot be read; a checkpoint must be "
                                   "complete by itself",
                                   source, target);
    }
    int status;
    if (unlink(full) < 0)
        status = uni_error_set_errno(err, errno, "cannot replace the link %s", full);
    else if (S_ISREG(info.st_mode))
        status = uni__copy_file(resolved, full, err);
    else if (S_ISDIR(info.st_mode))
        status = uni__copy_tree(resolved, full, err);
    else
        status = uni_error_set(err, UNI_EUNSUPPORTED,
                               "%s is a link to %s, which is neither a file nor a directory",
                               source, target);
    free(resolved);
    return status;
}

typedef struct settling {
    const char *origin;
    /* A directory was copied, which may contain links of its own. */
    bool replaced_tree;
} settling;

static int settle_one(void *context, const char *relative, const char *full, uint64_t size,
                      uni_error *err)
{
    settling *state = context;
    char target[PATH_MAX];
    ssize_t length = readlink(full, target, sizeof target - 1);
    if (length < 0)
        return 0; /* not a link */
    target[length] = '\0';
    if (!leads_out(relative, target))
        return 0;
    char *source = uni__path_join(state->origin, relative, NULL);
    if (!source)
        return uni_error_set(err, UNI_ENOMEM, "no memory to copy a checkpoint");
    int status = replace_by_copy(full, source, target, err);
    free(source);
    if (status == 0 && uni__path_is_dir(full))
        state->replaced_tree = true;
    return status;
}

int uni__stage_settle_links(const char *dir, const char *origin, uni_error *err)
{
    /* Each pass may add links with a copied directory; a link to a parent would never end. */
    for (int pass = 0; pass < 4; pass++) {
        settling state = { .origin = origin };
        UNI_TRY(uni__walk_files(dir, settle_one, &state, err));
        if (!state.replaced_tree)
            return 0;
    }
    return uni_error_set(err, UNI_ELIMIT,
                         "the links in %s lead to directories with links out of them, again and "
                         "again; put the files themselves into the checkpoint",
                         origin);
}

int uni__stage_copy(char **out, const char *staging_dir, int rank, const char *user_dir,
                    uni_error *err)
{
    int status;
    char *staged = NULL;
    *out = NULL;
    if (!uni__path_exists(user_dir))
        return uni_error_set(err, UNI_ENOTFOUND,
                             "the checkpoint directory %s does not exist (was it removed before "
                             "the report?)",
                             user_dir);
    if (!uni__path_is_dir(user_dir))
        return uni_error_set(err, UNI_EINVAL, "the checkpoint %s is not a directory", user_dir);
    UNI_TRY(uni__stage_new(&staged, staging_dir, rank, err));
    UNI_TRY_GOTO(uni__copy_tree(user_dir, staged, err), fail);
    if (chmod(staged, 0700) < 0) { /* the user's mode may not allow writing */
        status = uni_error_set_errno(err, errno, "cannot prepare %s", staged);
        goto fail;
    }
    UNI_TRY_GOTO(uni__stage_settle_links(staged, user_dir, err), fail);
    *out = staged;
    return 0;
fail:
    uni_error_prefix(err, "cannot copy the checkpoint directory %s", user_dir);
    /* What remains is in .staging, which the store empties. */
    int ignored = uni__remove_tree(staged, NULL);
    (void)ignored;
    free(staged);
    return status;
}

/* Other hosts cannot take the last of the disk: 1 GiB of it, or a twentieth if that is less. */
static bool has_room(int fd, size_t size)
{
    struct statvfs room;
    if (fstatvfs(fd, &room) < 0)
        return true;
    uint64_t kept = (uint64_t)room.f_blocks * room.f_frsize / 20;
    kept = kept < HOSTS_LEAVE_BYTES ? kept : HOSTS_LEAVE_BYTES;
    return (uint64_t)room.f_bavail * room.f_frsize >= kept + size;
}

static int write_piece(const char *full, uint64_t offset, const void *data, size_t size,
                       uni_error *err)
{
    struct stat info;
    int fd = open(full, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return uni_error_set_errno(err, errno, "cannot write %s", full);
    int status = 0;
    if (fstat(fd, &info) < 0)
        status = uni_error_set_errno(err, errno, "cannot look at %s", full);
    else if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != offset)
        status = uni_error_set(err, UNI_EFORMAT,
                               "a piece of %s does not follow the one before it (byte %" PRIu64
                               " of a file of %" PRIu64 ")",
                               full, offset, (uint64_t)info.st_size);
    else if (size > 0 && !has_room(fd, size))
        status = uni_error_set(err, UNI_EDISKFULL,
                               "cannot write %s: the disk is nearly full, and files from other "
                               "hosts leave 1 GiB of it free (or 5 %%, if that is less)",
                               full);
    else if (pwrite(fd, data, size, (off_t)offset) != (ssize_t)size)
        status = uni_error_set_errno(err, errno, "cannot write %s", full);
    close(fd);
    return status;
}

int uni__stage_write(const char *staged, const char *path, uint64_t offset, const void *data,
                     size_t size, uni_error *err)
{
    char *full = uni__path_join(staged, path, NULL), *folder = full ? strdup(full) : NULL;
    int status = folder ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    if (status == 0) {
        *strrchr(folder, '/') = '\0';
        status = uni__make_dirs(folder, 0700, err);
    }
    if (status == 0)
        status = write_piece(full, offset, data, size, err);
    free(folder);
    free(full);
    return status;
}

bool uni__stage_owns(const char *staging_dir, const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return false;
    size_t length = strlen(copy);
    while (length > 1 && copy[length - 1] == '/')
        copy[--length] = '\0';
    char *slash = strrchr(copy, '/');
    const char *name = slash ? slash + 1 : copy;
    bool owns = slash && slash != copy && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    if (owns) {
        struct stat info, parent, staging;
        bool real_directory = lstat(copy, &info) < 0 || S_ISDIR(info.st_mode);
        *slash = '\0';
        owns = real_directory && stat(copy, &parent) == 0 && stat(staging_dir, &staging) == 0 &&
               parent.st_dev == staging.st_dev && parent.st_ino == staging.st_ino;
    }
    free(copy);
    return owns;
}
