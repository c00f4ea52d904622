/*
 * file.c - single files: read, write atomically, copy, sync, hash.
 *
 * Every change of the file system calls the hook of fault.h first, so that tests can make it fail
 * or crash there. Errors name the path and keep the errno. Files are 0600 and descriptors
 * close-on-exec. Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/fault.h"
#include "base/file.h"
#include "base/random.h"
#include "base/text.h"

#define CHUNK ((size_t)256 << 10)

int uni__write_all(int fd, const void *data, size_t size, const char *path, uni_error *err)
{
    const char *at = data;
    while (size > 0) {
        size_t part = size < SSIZE_MAX ? size : SSIZE_MAX;
        int fault = uni__fault(UNI__FAULT_WRITE, path, &part);
        ssize_t written = -1;
        if (fault == 0)
            written = write(fd, at, part);
        else
            errno = fault;
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return uni_error_set_errno(err, errno, "cannot write to \"%s\"", path);
        /* This never happens for files, but an error is better than an endless loop. */
        if (written == 0)
            return uni_error_set(err, UNI_EIO, "cannot write to \"%s\": nothing was taken", path);
        at += written;
        size -= (size_t)written;
    }
    return 0;
}

static int refuse_link(const char *path, uni_error *err)
{
    return uni_error_set(err, UNI_EPERMISSION,
                         "refusing \"%s\": it is a symbolic link, and would show another file as "
                         "if it were this one; replace it by what it points to",
                         path);
}

static int open_error(const char *path, uni_error *err)
{
    return uni_error_set_errno(err, errno, "cannot open \"%s\"", path);
}

/* Regular files only: a FIFO or a device in place of a file must not block us. `flags`: O_NOFOLLOW
 * or 0. */
static int open_regular_at(int at, const char *name, const char *path, int flags, struct stat *info,
                           uni_error *err)
{
    int fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    if (fd < 0 && flags && errno == ELOOP)
        return refuse_link(path, err);
    if (fd < 0)
        return open_error(path, err);
    if (fstat(fd, info) < 0) {
        int status = uni_error_set_errno(err, errno, "cannot look at \"%s\"", path);
        close(fd);
        return status;
    }
    if (!S_ISREG(info->st_mode)) {
        close(fd);
        return uni_error_set(err, UNI_EINVAL, "\"%s\" is not a regular file", path);
    }
    return fd;
}

static int open_regular(const char *path, struct stat *info, uni_error *err)
{
    return open_regular_at(AT_FDCWD, path, path, 0, info, err);
}

/* Reading a sparse file of a terabyte without data would take an hour. */
static bool is_all_holes(const struct stat *info)
{
    return info->st_size > (off_t)1 << 30 && info->st_blocks < info->st_size / 512 / 1000;
}

static int check_holes(int fd, const struct stat *info, const char *path, uni_error *err)
{
    if (fd < 0 || !is_all_holes(info))
        return fd;
    close(fd);
    return uni_error_set(err, UNI_ELIMIT,
                         "\"%s\" claims %lld bytes, but has next to nothing on the disk", path,
                         (long long)info->st_size);
}

int uni__open_unlinked(const char *path, uni_error *err)
{
    struct stat info;
    int fd = open_regular_at(AT_FDCWD, path, path, O_NOFOLLOW, &info, err);
    return check_holes(fd, &info, path, err);
}

/* Opens the directory that contains `name`, below `dir`; *last is the last part. Modifies
 * `name`. */
static int open_parent(const char *dir, char *name, char **last, const char *path, uni_error *err)
{
    int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (char *slash; at >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
        *slash = 0;
        int next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        /* With O_DIRECTORY a link gives ENOTDIR. */
        int failed = next < 0 ? errno : 0;
        struct stat info;
        if (failed == ENOTDIR && fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISLNK(info.st_mode))
            failed = ELOOP;
        close(at);
        errno = failed;
        at = next;
    }
    *last = name;
    if (at < 0)
        return errno == ELOOP ? refuse_link(path, err) : open_error(path, err);
    return at;
}

int uni__open_below(const char *dir, const char *name, uni_error *err)
{
    struct stat info;
    char *parts = strdup(name), *path = uni__path_join(dir, name, NULL), *last = NULL;
    int fd = parts && path ? open_parent(dir, parts, &last, path, err)
                           : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    if (fd >= 0) {
        int parent = fd;
        fd = open_regular_at(parent, last, path, O_NOFOLLOW, &info, err);
        fd = check_holes(fd, &info, path, err);
        close(parent);
    }
    free(parts);
    free(path);
    return fd;
}

/* read(2) that retries after signals; a negative code on failure. */
static ssize_t read_some(int fd, void *out, size_t size, const char *path, uni_error *err)
{
    ssize_t got;
    do
        got = read(fd, out, size);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return uni_error_set_errno(err, errno, "cannot read \"%s\"", path);
    return got;
}

static int read_file(char **out, size_t *size, const char *path, int flags, size_t limit,
                     uni_error *err)
{
    struct stat info;
    uni__text text = { 0 };
    *out = NULL;
    if (size)
        *size = 0;
    int status = 0, fd = open_regular_at(AT_FDCWD, path, path, flags, &info, err);
    if (fd < 0)
        return fd;
    /* The size is only a hint: /proc says 0, and the file may grow while we read. */
    size_t hint = (uint64_t)info.st_size < limit ? (size_t)info.st_size : limit;
    for (size_t extra = hint + 1;; extra = CHUNK) {
        char *at = uni__text_reserve(&text, extra);
        if (!at) {
            status = uni_error_set(err, UNI_ENOMEM, "no memory to read \"%s\"", path);
            break;
        }
        ssize_t got = read_some(fd, at, text.capacity - text.size - 1, path, err);
        if (got < 0)
            status = (int)got;
        if (got <= 0)
            break;
        text.size += (size_t)got;
        text.data[text.size] = 0;
        if (text.size > limit) {
            status = uni_error_set(err, UNI_ELIMIT, "\"%s\" has more than %zu bytes", path, limit);
            break;
        }
    }
    close(fd);
    if (status < 0) {
        uni__text_free(&text);
        return status;
    }
    *out = text.data;
    if (size)
        *size = text.size;
    return 0;
}

int uni__read_file(char **out, size_t *size, const char *path, size_t limit, uni_error *err)
{
    return read_file(out, size, path, 0, limit, err);
}

int uni__read_unlinked(char **out, size_t *size, const char *path, size_t limit, uni_error *err)
{
    return read_file(out, size, path, O_NOFOLLOW, limit, err);
}

static int sync_fd(int fd, const char *path, uni_error *err)
{
    int fault = uni__fault(UNI__FAULT_FSYNC, path, NULL);
    if (fault == 0 && fsync(fd) < 0)
        fault = errno;
    return fault ? uni_error_set_errno(err, fault, "cannot sync \"%s\" to disk", path) : 0;
}

int uni__fsync_path(const char *path, uni_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return open_error(path, err);
    int status = sync_fd(fd, path, err);
    close(fd);
    return status;
}

int uni__fsync_parent(const char *path, uni_error *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return uni__fsync_path(".", err);
    char *parent = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (!parent)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the directory of \"%s\"", path);
    int status = uni__fsync_path(parent, err);
    free(parent);
    return status;
}

const char *uni__name_at(int dir, const char *path)
{
    const char *slash = dir == AT_FDCWD ? NULL : strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int rename_at(int dir, const char *from, const char *to, uni_error *err)
{
    int fault = uni__fault(UNI__FAULT_RENAME, from, NULL);
    if (fault == 0 && renameat(dir, uni__name_at(dir, from), dir, uni__name_at(dir, to)) < 0)
        fault = errno;
    return fault ? uni_error_set_errno(err, fault, "cannot rename \"%s\" to \"%s\"", from, to) : 0;
}

int uni__rename(const char *from, const char *to, uni_error *err)
{
    return rename_at(AT_FDCWD, from, to, err);
}

static int unlink_at(int dir, const char *path, uni_error *err)
{
    int fault = uni__fault(UNI__FAULT_UNLINK, path, NULL);
    if (fault == 0 && unlinkat(dir, uni__name_at(dir, path), 0) < 0)
        fault = errno;
    if (fault == 0 || fault == ENOENT)
        return 0;
    return uni_error_set_errno(err, fault, "cannot remove \"%s\"", path);
}

int uni__unlink(const char *path, uni_error *err)
{
    return unlink_at(AT_FDCWD, path, err);
}

int uni__create_at(int dir, const char *path, int flags, uni_error *err)
{
    int fault = uni__fault(UNI__FAULT_CREATE, path, NULL);
    int fd = -1;
    if (fault == 0) {
        fd = openat(dir, uni__name_at(dir, path), O_CREAT | O_CLOEXEC | O_NOCTTY | flags, 0600);
        if (fd < 0)
            fault = errno;
    }
    return fault ? uni_error_set_errno(err, fault, "cannot create \"%s\"", path) : fd;
}

/* Writes the contents under a temporary name, complete and (when durable) synced to disk. */
static int write_temporary(int dir, const char *temporary, const void *data, size_t size,
                           bool durable, uni_error *err)
{
    int fd = uni__create_at(dir, temporary, O_WRONLY | O_EXCL, err);
    if (fd < 0)
        return fd;
    int status = uni__write_all(fd, data, size, temporary, err);
    if (status == 0 && durable)
        status = sync_fd(fd, temporary, err);
    if (close(fd) < 0 && status == 0) /* NFS reports a full disk only here */
        status = uni_error_set_errno(err, errno, "cannot close \"%s\"", temporary);
    return status;
}

int uni__write_file_at(int dir, const char *path, const void *data, size_t size, bool durable,
                       uni_error *err)
{
    uint32_t serial;
    char *temporary = NULL;
    if (uni__random_system(&serial, sizeof serial) < 0)
        return uni_error_set(err, UNI_EIO, "no random numbers for a name beside \"%s\"", path);
    if (asprintf(&temporary, "%s.tmp-%08x", path, serial) < 0)
        return uni_error_set(err, UNI_ENOMEM, "no memory to write \"%s\"", path);
    int status = write_temporary(dir, temporary, data, size, durable, err);
    if (status == 0)
        status = rename_at(dir, temporary, path, err);
    if (status < 0) {
        int ignored = unlink_at(dir, temporary, NULL); /* keep the first error */
        (void)ignored;
    } else if (durable) {
        status = dir == AT_FDCWD ? uni__fsync_parent(path, err) : sync_fd(dir, path, err);
    }
    free(temporary);
    return status;
}

int uni__write_file(const char *path, const void *data, size_t size, bool durable, uni_error *err)
{
    return uni__write_file_at(AT_FDCWD, path, data, size, durable, err);
}

static int copy_by_hand(int in, int out, const char *from, const char *to, uni_error *err)
{
    char *buffer = malloc(CHUNK);
    if (!buffer)
        return uni_error_set(err, UNI_ENOMEM, "no memory to copy \"%s\"", from);
    int status = 0;
    for (;;) {
        ssize_t got = read_some(in, buffer, CHUNK, from, err);
        if (got < 0)
            status = (int)got;
        if (got <= 0)
            break;
        status = uni__write_all(out, buffer, (size_t)got, to, err);
        if (status < 0)
            break;
    }
    free(buffer);
    return status;
}

/* Copies in the kernel as far as that works; where it refuses, reads and writes the rest. */
static int copy_contents(int in, int out, const char *from, const char *to, uni_error *err)
{
    size_t part = (size_t)1 << 30;
    int fault = uni__fault(UNI__FAULT_WRITE, to, &part);
    if (fault)
        return uni_error_set_errno(err, fault, "cannot write to \"%s\"", to);
    if (ioctl(out, FICLONE, in) == 0)
        return 0;
    for (;;) {
        ssize_t done = copy_file_range(in, NULL, out, NULL, part, 0);
        if (done < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO))
            return uni_error_set_errno(err, errno, "cannot copy \"%s\" to \"%s\"", from, to);
        if (done <= 0) /* the end, or unsupported: one read tells */
            return copy_by_hand(in, out, from, to, err);
        fault = uni__fault(UNI__FAULT_WRITE, to, &part);
        if (fault)
            return uni_error_set_errno(err, fault, "cannot write to \"%s\"", to);
    }
}

int uni__copy_file(const char *from, const char *to, uni_error *err)
{
    struct stat source, target;
    int in = open_regular(from, &source, err);
    if (in < 0)
        return in;
    int status, out = uni__create_at(AT_FDCWD, to, O_WRONLY | O_NOFOLLOW, err);
    if (out < 0) {
        status = out;
        goto done;
    }
    if (fstat(out, &target) == 0 && target.st_dev == source.st_dev &&
        target.st_ino == source.st_ino) {
        status = uni_error_set(err, UNI_EINVAL, "cannot copy \"%s\" onto itself", from);
        goto done;
    }
    int fault = uni__fault(UNI__FAULT_TRUNCATE, to, NULL);
    if (fault == 0 && ftruncate(out, 0) < 0)
        fault = errno;
    if (fault) {
        status = uni_error_set_errno(err, fault, "cannot empty \"%s\"", to);
        goto done;
    }
    UNI_TRY_GOTO(copy_contents(in, out, from, to, err), done);
    if (fchmod(out, source.st_mode & 0777) < 0)
        status = uni_error_set_errno(err, errno, "cannot set the mode of \"%s\"", to);
done:
    close(in);
    if (out >= 0 && close(out) < 0 && status == 0)
        status = uni_error_set_errno(err, errno, "cannot close \"%s\"", to);
    return status;
}

static void print_hash(uint64_t hash, char out[17])
{
    static const char hex[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++)
        out[i] = hex[hash >> (60 - 4 * i) & 15];
    out[16] = 0;
}

void uni__hash_bytes(const void *data, size_t size, char out[17])
{
    print_hash(XXH3_64bits(data, size), out);
}

int uni__hash_file(const char *path, char out[17], uint64_t *size, uni_error *err)
{
    struct stat info;
    uint64_t total = 0;
    char *buffer = NULL;
    XXH3_state_t *state = NULL;
    int status = 0, fd = open_regular(path, &info, err);
    if (fd < 0)
        return fd;
    buffer = malloc(CHUNK);
    state = XXH3_createState();
    if (!buffer || !state) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to hash \"%s\"", path);
        goto done;
    }
    XXH3_64bits_reset(state);
    for (;;) {
        ssize_t got = read_some(fd, buffer, CHUNK, path, err);
        if (got < 0)
            status = (int)got;
        if (got <= 0)
            break;
        XXH3_64bits_update(state, buffer, (size_t)got);
        total += (uint64_t)got;
    }
    if (status == 0) {
        print_hash(XXH3_64bits_digest(state), out);
        if (size)
            *size = total;
    }
done:
    XXH3_freeState(state);
    free(buffer);
    close(fd);
    return status;
}
