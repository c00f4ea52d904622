/*
 * hash.c - reads and writes files and computes their XXH3-64 along the way, so that no byte is read
 * only for its checksum.
 *
 * Pieces of 1 MiB stay in the second-level cache between the copy from the page cache and the hash.
 * Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/file.h"
#include "checkpoint/seal.h"

#define PIECE ((size_t)1 << 20)

static void to_hex(XXH64_hash_t sum, char out[17])
{
    snprintf(out, 17, "%016" PRIx64, (uint64_t)sum);
}

int uni__write_hashed(const char *path, const void *data, size_t size, char xxh3[17],
                      uni_error *err)
{
    int status = 0;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return uni_error_set(err, UNI_ENOMEM, "no memory to write %s", path);
    XXH3_64bits_reset(state);
    int fd = -1, failure = uni__fault(UNI__FAULT_CREATE, path, NULL);
    if (failure == 0) {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        failure = fd < 0 ? errno : 0;
    }
    if (failure) {
        status = failure == EEXIST ? uni_error_set(err, UNI_EEXISTS, "%s exists already", path)
                                   : uni_error_set_errno(err, failure, "cannot create %s", path);
        goto done;
    }
    const char *at = data;
    for (size_t left = size; left > 0;) {
        size_t piece = left < PIECE ? left : PIECE;
        XXH3_64bits_update(state, at, piece);
        UNI_TRY_GOTO(uni__write_all(fd, at, piece, path, err), done);
        at += piece;
        left -= piece;
    }
    to_hex(XXH3_64bits_digest(state), xxh3);
done:
    if (fd >= 0 && close(fd) < 0 && status == 0) /* quota and NFS errors may appear only here */
        status = uni_error_set_errno(err, errno, "cannot write %s", path);
    XXH3_freeState(state);
    return status;
}

int uni__hash_descriptor(int fd, const char *path, char xxh3[17], uint64_t *size, uni_error *err)
{
    int status = 0;
    XXH3_state_t *state = XXH3_createState();
    char *piece = malloc(PIECE);
    *size = 0;
    if (!state || !piece) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to read %s", path);
        goto done;
    }
    XXH3_64bits_reset(state);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* only advice: may fail */
    for (;;) {
        ssize_t got = read(fd, piece, PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = uni_error_set_errno(err, errno, "cannot read %s", path);
            goto done;
        }
        if (got == 0)
            break;
        XXH3_64bits_update(state, piece, (size_t)got);
        *size += (uint64_t)got;
    }
    to_hex(XXH3_64bits_digest(state), xxh3);
done:
    free(piece);
    XXH3_freeState(state);
    return status;
}

int uni__open_beneath(int *fd, const char *dir, const char *relative, uni_error *err)
{
    *fd = -1;
    int here = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *part = relative;
    while (here >= 0) {
        char name[NAME_MAX + 1];
        size_t length = strcspn(part, "/");
        bool last = part[length] == '\0';
        if (length > NAME_MAX) {
            close(here);
            errno = ENAMETOOLONG;
            here = -1;
            break;
        }
        memcpy(name, part, length);
        name[length] = '\0';
        /* O_NONBLOCK: a pipe in its place must not block the reader; its type is rejected later. */
        int next = openat(
            here, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (last ? 0 : O_DIRECTORY));
        int saved = errno;
        close(here);
        errno = saved;
        here = next;
        if (last)
            break;
        part += length + 1;
    }
    if (here < 0)
        return uni_error_set_errno(err, errno, "cannot open %s/%s", dir, relative);
    *fd = here;
    return 0;
}

static int damaged(const char *dir, const uni__manifest_file *file, const char *how, uni_error *err)
{
    return uni_error_set(err, UNI_ECORRUPT, "the checkpoint %s is damaged: %s %s", dir, file->path,
                         how);
}

/* The link's own text, without following it or any link on the way to it. */
static ssize_t read_link(const char *dir, const char *relative, char *out, size_t room)
{
    const char *slash = strrchr(relative, '/');
    char *parent = slash ? strndup(relative, (size_t)(slash - relative)) : NULL;
    int fd = -1;
    ssize_t length = -1;
    if (!slash)
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    else if (!parent || uni__open_beneath(&fd, dir, parent, NULL) < 0)
        fd = -1;
    if (fd >= 0) {
        length = readlinkat(fd, slash ? slash + 1 : relative, out, room);
        close(fd);
    }
    free(parent);
    return length;
}

static int check_link(const char *dir, const uni__manifest_file *file, uni_error *err)
{
    char target[PATH_MAX], sum[17];
    ssize_t length = read_link(dir, file->path, target, sizeof target);
    if (length < 0)
        return damaged(dir, file, "is missing or no link any more", err);
    uni__hash_bytes(target, (size_t)length, sum);
    if ((uint64_t)length != file->size || strcmp(sum, file->xxh3) != 0)
        return damaged(dir, file, "points to something else than when it was saved", err);
    return 0;
}

int uni__check_file(const char *dir, const uni__manifest_file *file, bool contents, uni_error *err)
{
    if (file->link)
        return check_link(dir, file, err);
    int fd = -1;
    int status = uni__open_beneath(&fd, dir, file->path, err);
    if (status == UNI_EPERMISSION || status == UNI_ENOMEM)
        return status;
    if (status < 0)
        return damaged(dir, file, "is missing", err);
    struct stat info;
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        status = damaged(dir, file, "is not a file any more", err);
    else if ((uint64_t)info.st_size != file->size)
        status = damaged(dir, file, "has another size than when it was saved", err);
    if (status == 0 && contents) {
        char sum[17];
        uint64_t size = 0;
        status = uni__hash_descriptor(fd, file->path, sum, &size, err);
        if (status == 0 && (size != file->size || strcmp(sum, file->xxh3) != 0))
            status = damaged(dir, file, "has other bytes than when it was saved (checksum)", err);
    }
    close(fd);
    return status;
}
