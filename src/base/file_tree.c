/*
 * file_tree.c - directories: make, walk, copy, remove.
 *
 * Removal uses descriptors (openat, unlinkat) and never follows a link, so a directory that is
 * replaced by a link meanwhile cannot lead us elsewhere. Walking and copying list a directory, sort
 * it, and descend by path; they use lstat. Any thread.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/file.h"

/* Deeper directories are a mistake, or an attack on the stack. */
#define TREE_DEPTH 200

static int make_dir(const char *path, mode_t mode, uni_error *err)
{
    int fault = uni__fault(UNI__FAULT_MKDIR, path, NULL);
    if (fault == 0 && mkdir(path, mode) < 0)
        fault = errno;
    if (fault == 0 || (fault == EEXIST && uni__path_is_dir(path)))
        return 0;
    if (fault == EEXIST || fault == ENOTDIR)
        return uni_error_set(err, UNI_EEXISTS,
                             "cannot make the directory \"%s\": a file is in its place", path);
    return uni_error_set_errno(err, fault, "cannot make the directory \"%s\"", path);
}

int uni__make_dirs(const char *path, mode_t mode, uni_error *err)
{
    if (!path || !path[0])
        return uni_error_set(err, UNI_EINVAL, "the path of a directory is empty");
    char *copy = strdup(path);
    if (!copy)
        return uni_error_set(err, UNI_ENOMEM, "no memory to make \"%s\"", path);
    int status = 0;
    for (char *slash = copy + 1; status == 0 && (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        /* Check first: we may not be allowed to create anything here, as in "/". */
        if (!uni__path_is_dir(copy))
            status = make_dir(copy, mode, err);
        *slash = '/';
    }
    if (status == 0 && !uni__path_is_dir(path))
        status = make_dir(path, mode, err);
    free(copy);
    return status;
}

static int remove_error(int os_error, const char *name, uni_error *err)
{
    return os_error == ENOENT ? 0
                              : uni_error_set_errno(err, os_error, "cannot remove \"%s\"", name);
}

static int remove_at(int dir, const char *name, int depth, uni_error *err);

static int remove_contents(int dir, const char *name, int depth, uni_error *err)
{
    DIR *stream = fdopendir(dir);
    if (!stream) {
        int status = uni_error_set_errno(err, errno, "cannot list \"%s\"", name);
        close(dir);
        return status;
    }
    int status = 0;
    while (status == 0) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry) {
            if (errno != 0)
                status = uni_error_set_errno(err, errno, "cannot list \"%s\"", name);
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = remove_at(dirfd(stream), entry->d_name, depth + 1, err);
    }
    closedir(stream);
    return status;
}

/* Removes name in dir. Tries it as a directory first, without following links; unlinks anything
 * else. */
static int remove_at(int dir, const char *name, int depth, uni_error *err)
{
    if (depth > TREE_DEPTH)
        return uni_error_set(err, UNI_ELIMIT, "directories nested deeper than %d at \"%s\"",
                             TREE_DEPTH, name);
    struct stat info;
    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return remove_error(errno, name, err);
    int flag = 0;
    if (S_ISDIR(info.st_mode)) {
        int inner = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner < 0)
            return remove_error(errno, name, err);
        UNI_TRY(remove_contents(inner, name, depth, err));
        flag = AT_REMOVEDIR;
    }
    int fault = uni__fault(UNI__FAULT_UNLINK, name, NULL);
    if (fault == 0 && unlinkat(dir, name, flag) < 0)
        fault = errno;
    return fault ? remove_error(fault, name, err) : 0;
}

int uni__remove_tree(const char *path, uni_error *err)
{
    int status = remove_at(AT_FDCWD, path, 0, err);
    if (status < 0)
        uni_error_prefix(err, "cannot remove \"%s\" completely", path);
    return status;
}

/* Temporary names of uni__write_file. */
static int is_temporary(const struct dirent *entry)
{
    const char *mark = strrchr(entry->d_name, '.');
    return mark && mark != entry->d_name && strncmp(mark, ".tmp-", 5) == 0 &&
           strlen(mark + 5) == 8 && strspn(mark + 5, "0123456789abcdef") == 8;
}

int uni__remove_temporaries(const char *dir, uni_error *err)
{
    struct dirent **entries = NULL;
    int status = 0, count = scandir(dir, &entries, is_temporary, NULL);
    if (count < 0)
        return uni_error_set_errno(err, errno, "cannot list \"%s\"", dir);
    for (int i = 0; i < count; i++) {
        struct stat info;
        char *path = uni__path_join(dir, entries[i]->d_name, NULL);
        if (status == 0 && !path)
            status = uni_error_set(err, UNI_ENOMEM, "no memory to tidy \"%s\"", dir);
        if (status == 0 && lstat(path, &info) == 0 && S_ISREG(info.st_mode))
            status = uni__unlink(path, err);
        free(path);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static int not_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

typedef int (*visit_entry)(void *context, const char *relative, const char *full,
                           const struct stat *info, uni_error *err);

/* Calls visit for all entries below, a directory before its contents; a return of 1 skips them. */
static int walk(const char *dir, const char *relative, visit_entry visit, void *context, int depth,
                uni_error *err);

static int walk_entry(const char *dir, const char *relative, const char *name, visit_entry visit,
                      void *context, int depth, uni_error *err)
{
    char *full = uni__path_join(dir, name, NULL);
    char *below = relative[0] ? uni__path_join(relative, name, NULL) : strdup(name);
    struct stat info;
    int status;
    if (!full || !below)
        status = uni_error_set(err, UNI_ENOMEM, "no memory to walk \"%s\"", dir);
    else if (lstat(full, &info) < 0)
        status = uni_error_set_errno(err, errno, "cannot look at \"%s\"", full);
    else
        status = visit(context, below, full, &info, err);
    if (status == 0 && S_ISDIR(info.st_mode))
        status = walk(full, below, visit, context, depth + 1, err);
    free(full);
    free(below);
    return status;
}

static int walk(const char *dir, const char *relative, visit_entry visit, void *context, int depth,
                uni_error *err)
{
    if (depth > TREE_DEPTH)
        return uni_error_set(err, UNI_ELIMIT, "directories nested deeper than %d at \"%s\"",
                             TREE_DEPTH, dir);
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, not_dots, by_bytes);
    if (count < 0)
        return uni_error_set_errno(err, errno, "cannot list \"%s\"", dir);
    int status = 0;
    for (int i = 0; i < count; i++) {
        if (status == 0)
            status = walk_entry(dir, relative, entries[i]->d_name, visit, context, depth, err);
        free(entries[i]);
    }
    free(entries);
    return status;
}

typedef struct file_walk {
    uni__visit_file visit;
    void *context;
} file_walk;

static int visit_files(void *context, const char *relative, const char *full,
                       const struct stat *info, uni_error *err)
{
    const file_walk *files = context;
    if (!S_ISREG(info->st_mode) && !S_ISLNK(info->st_mode))
        return 0;
    int status = files->visit(files->context, relative, full, (uint64_t)info->st_size, err);
    return status < 0 ? status : 0;
}

int uni__walk_files(const char *dir, uni__visit_file visit, void *context, uni_error *err)
{
    return walk(dir, "", visit_files, &(file_walk){ visit, context }, 0, err);
}

typedef struct tree_copy {
    const char *to;
    /* Of the target directory, to notice when it is inside the source. */
    dev_t device;
    ino_t inode;
} tree_copy;

static int copy_link(const char *from, const char *to, uni_error *err)
{
    char target[4097];
    ssize_t length = readlink(from, target, sizeof target - 1);
    if (length < 0)
        return uni_error_set_errno(err, errno, "cannot read the link \"%s\"", from);
    target[length] = 0;
    UNI_TRY(uni__unlink(to, err));
    int fault = uni__fault(UNI__FAULT_CREATE, to, NULL);
    if (fault == 0 && symlink(target, to) < 0)
        fault = errno;
    return fault ? uni_error_set_errno(err, fault, "cannot make the link \"%s\"", to) : 0;
}

static int copy_entry(void *context, const char *relative, const char *full,
                      const struct stat *info, uni_error *err)
{
    const tree_copy *copy = context;
    int status;
    if (S_ISDIR(info->st_mode) && info->st_dev == copy->device && info->st_ino == copy->inode)
        return uni_error_set(err, UNI_EINVAL, "cannot copy a directory into itself (\"%s\")", full);
    char *to = uni__path_join(copy->to, relative, NULL);
    if (!to)
        return uni_error_set(err, UNI_ENOMEM, "no memory to copy \"%s\"", full);
    if (S_ISDIR(info->st_mode))
        status = make_dir(to, (info->st_mode & 0777) | 0700, err);
    else if (S_ISLNK(info->st_mode))
        status = copy_link(full, to, err);
    else if (S_ISREG(info->st_mode))
        status = uni__copy_file(full, to, err);
    else
        status =
            uni_error_set(err, UNI_EUNSUPPORTED,
                          "cannot copy \"%s\": only files, directories and links are copied", full);
    free(to);
    return status;
}

int uni__copy_tree(const char *from, const char *to, uni_error *err)
{
    struct stat source, target;
    if (stat(from, &source) < 0)
        return uni_error_set_errno(err, errno, "cannot copy \"%s\"", from);
    if (!S_ISDIR(source.st_mode))
        return uni_error_set(err, UNI_EINVAL, "cannot copy \"%s\": it is not a directory", from);
    UNI_TRY(make_dir(to, (source.st_mode & 0777) | 0700, err));
    if (stat(to, &target) < 0)
        return uni_error_set_errno(err, errno, "cannot look at \"%s\"", to);
    if (target.st_dev == source.st_dev && target.st_ino == source.st_ino)
        return uni_error_set(err, UNI_EINVAL, "cannot copy \"%s\" onto itself", from);
    return walk(from, "", copy_entry, &(tree_copy){ to, target.st_dev, target.st_ino }, 0, err);
}
