/*
 * owned.c - checks that only this user can change a file (owned.h). Any thread.
 */
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
#include "base/owned.h"

static int refuse_owner(const char *shown, uid_t owner, uni_error *err)
{
    return uni_error_set(err, UNI_EPERMISSION,
                         "refusing %s: it belongs to another user (uid %ld, you are %ld) "
                         "that decides what is in it; use a name or a storage path of your own",
                         shown, (long)owner, (long)geteuid());
}

static int check_owned(const struct stat *info, const char *shown, uni_error *err)
{
    if (info->st_uid != geteuid())
        return refuse_owner(shown, info->st_uid, err);
    if (info->st_mode & (S_IWGRP | S_IWOTH))
        return uni_error_set(err, UNI_EPERMISSION,
                             "refusing %s: other users can write to it (mode %04o); look at what "
                             "is in it, then `chmod go-w` it",
                             shown, (unsigned)(info->st_mode & 07777));
    return 0;
}

static int refuse_open(int os_error, const char *shown, uni_error *err)
{
    /* O_NOFOLLOW reports a link as ELOOP; with O_DIRECTORY it is ENOTDIR. */
    if (os_error == ELOOP)
        return uni_error_set(err, UNI_EPERMISSION,
                             "refusing %s: it is a symbolic link; give the path of what it "
                             "points to",
                             shown);
    return uni_error_set_errno(err, os_error, "cannot open %s", shown);
}

static int open_owned(int at, const char *name, const char *shown, mode_t type, uni_error *err)
{
    struct stat info;
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return refuse_open(errno, shown, err);
    int status = 0;
    if (fstat(fd, &info) < 0)
        status = uni_error_set_errno(err, errno, "cannot look at %s", shown);
    else if ((info.st_mode & S_IFMT) != type)
        status = uni_error_set(err, UNI_EPERMISSION, "refusing %s: it is not a %s", shown,
                               type == S_IFDIR ? "directory" : "regular file");
    else
        status = check_owned(&info, shown, err);
    if (status < 0) {
        close(fd);
        return status;
    }
    return fd;
}

int uni__open_owned_dir(int at, const char *name, const char *shown, uni_error *err)
{
    return open_owned(at, name, shown, S_IFDIR, err);
}

int uni__open_owned_file(int at, const char *name, const char *shown, uni_error *err)
{
    return open_owned(at, name, shown, S_IFREG, err);
}

/* Rejects `path` because of the directory `fd`, which is `path` or above it. */
static int refuse_shared(int fd, const struct stat *info, const char *path, uni_error *err)
{
    char link[40], name[PATH_MAX] = "a directory above it";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length >= 0)
        name[length] = 0;
    if (info->st_uid == geteuid())
        return uni_error_set(err, UNI_EPERMISSION,
                             "refusing to use %s: any user can replace what is in %s (mode %04o); "
                             "set the sticky bit (chmod +t) if it is shared, or `chmod o-w` it",
                             path, name, (unsigned)(info->st_mode & 07777));
    return uni_error_set(err, UNI_EPERMISSION,
                         "refusing to use %s: any user can replace what is in %s (mode %04o), a "
                         "directory of your own below it too; have its owner (uid %ld) set the "
                         "sticky bit (chmod +t), or store runs elsewhere, such as in your home "
                         "directory",
                         path, name, (unsigned)(info->st_mode & 07777), (long)info->st_uid);
}

/* Checks a directory and those above it, up to the root. Takes ownership of dir. */
static int check_shared(int dir, const char *path, uni_error *err)
{
    struct stat info, below = { 0 };
    int status = 0;
    for (bool first = true; dir >= 0; first = false) {
        if (fstat(dir, &info) < 0)
            status = uni_error_set_errno(err, errno, "cannot look at %s", path);
        else if ((info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX))
            status = refuse_shared(dir, &info, path, err);
        bool root = !first && info.st_ino == below.st_ino && info.st_dev == below.st_dev;
        int above = status < 0 || root ? -1 : openat(dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        below = info;
        close(dir);
        dir = above;
    }
    return status;
}

int uni__open_shared_dir(const char *path, uni_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return uni_error_set_errno(err, errno, "cannot open %s", path);
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int status = copy < 0 ? uni_error_set_errno(err, errno, "cannot look at %s", path)
                          : check_shared(copy, path, err);
    if (status < 0) {
        close(fd);
        return status;
    }
    return fd;
}

/* Cuts off the last part and returns it; the rest stays in path (at least "/"). */
static const char *cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return NULL;
    *slash = 0;
    return slash + 1;
}

int uni__open_owned_below(const char *dir, uni_error *err)
{
    char *copy = strdup(dir), *parent = NULL;
    const char *name = copy ? cut_last(copy) : NULL;
    int status = 0, shared = -1, above = -1;
    if (!copy || !(parent = strdup(copy))) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        goto done;
    }
    const char *base = name ? cut_last(copy) : NULL;
    if (!base) {
        status = uni_error_set(err, UNI_EPERMISSION,
                               "refusing %s: it is not in a directory of yours", dir);
        goto done;
    }
    if ((status = shared = uni__open_shared_dir(copy, err)) < 0 ||
        (status = above = uni__open_owned_dir(shared, base, parent, err)) < 0)
        goto done;
    status = uni__open_owned_dir(above, name, dir, err);
done:
    if (shared >= 0)
        close(shared);
    if (above >= 0)
        close(above);
    free(parent);
    free(copy);
    return status;
}

int uni__make_owned_in(int at, const char *name, const char *shown, uni_error *err)
{
    struct stat info;
    int fault = uni__fault(UNI__FAULT_MKDIR, shown, NULL);
    if (fault == 0 && mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        fault = errno;
    if (fault)
        return uni_error_set_errno(err, fault, "cannot make the directory \"%s\"", shown);
    if (fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(info.st_mode))
        return uni_error_set(err, UNI_EPERMISSION,
                             "refusing to write to %s: it is a symbolic link or a file; give the "
                             "storage path of what it points to, or another name",
                             shown);
    return uni__open_owned_dir(at, name, shown, err);
}

int uni__make_owned_dir(const char *dir, uni_error *err)
{
    char *storage = strdup(dir);
    const char *name = storage ? cut_last(storage) : NULL;
    int status = 0, shared = -1;
    if (!storage)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    if (!name)
        status =
            uni_error_set(err, UNI_EINVAL, "%s has no directory above it to store runs in", dir);
    if (status == 0)
        status = uni__make_dirs(storage, 0700, err);
    if (status == 0)
        status = shared = uni__open_shared_dir(storage, err);
    if (status >= 0)
        status = uni__make_owned_in(shared, name, dir, err);
    if (shared >= 0)
        close(shared);
    free(storage);
    return status;
}

int uni__check_owned_place(const char *dir, uni_error *err)
{
    int place = uni__open_owned_dir(AT_FDCWD, dir, dir, err);
    if (place < 0)
        return place;
    close(place);
    return 0;
}

static int refuse_foreign_link(const char *path, uni_error *err)
{
    struct stat info;
    if (lstat(path, &info) < 0 || !S_ISLNK(info.st_mode) || info.st_uid == geteuid() ||
        info.st_uid == 0)
        return 0;
    return uni_error_set(err, UNI_EPERMISSION,
                         "refusing %s: it is a symbolic link of another user (uid %ld); give the "
                         "path of what it points to",
                         path, (long)info.st_uid);
}

int uni__check_foreign_links(const char *dir, uni_error *err)
{
    char *parent = strdup(dir);
    if (!parent)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    int status = refuse_foreign_link(dir, err);
    if (status == 0 && cut_last(parent))
        status = refuse_foreign_link(parent, err);
    free(parent);
    return status;
}

bool uni__may_run(const char *path, const char *own)
{
    struct stat file, self;
    if (stat(path, &file) < 0 || !S_ISREG(file.st_mode) || (file.st_mode & S_IWOTH))
        return false;
    return file.st_uid == 0 || file.st_uid == geteuid() ||
           (own && stat(own, &self) == 0 && file.st_uid == self.st_uid);
}
