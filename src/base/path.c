/* path.c - joins and completes paths. Only the queries at the end touch the file system. Any
 * thread. */
#include <errno.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/text.h"

/* Adds "part" with exactly one slash before it. */
static void add_part(uni__text *path, const char *part)
{
    if (path->size > 0) {
        if (path->data[path->size - 1] != '/')
            uni__text_add(path, "/", 1);
        part += strspn(part, "/");
    }
    uni__text_add_string(path, part);
}

char *uni__path_join(const char *first, ...)
{
    uni__text path = { 0 };
    va_list parts;
    uni__text_add_string(&path, first);
    va_start(parts, first);
    for (const char *part; (part = va_arg(parts, const char *));)
        add_part(&path, part);
    va_end(parts);
    if (path.failed)
        uni__text_free(&path);
    return path.data;
}

static int add_home(uni__text *path, uni_error *err)
{
    const char *home = getenv("HOME");
    if (home && home[0] == '/') {
        uni__text_add_string(path, home);
        return 0;
    }
    char buffer[4096];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(getuid(), &entry, buffer, sizeof buffer, &found) != 0 || !found)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "\"~\" cannot be resolved: HOME is not set and user %ld has no entry",
                             (long)getuid());
    uni__text_add_string(path, found->pw_dir);
    return 0;
}

/* Removes "//", "/." and a trailing slash. ".." stays: after a link it is not the previous
 * directory. */
static void tidy(char *path)
{
    char *out = path;
    for (const char *at = path; *at;) {
        at += strspn(at, "/");
        size_t length = strcspn(at, "/");
        if (length == 0)
            break;
        if (!(length == 1 && at[0] == '.')) {
            *out++ = '/';
            memmove(out, at, length);
            out += length;
        }
        at += length;
    }
    if (out == path)
        *out++ = '/';
    *out = 0;
}

char *uni__path_absolute(const char *path, uni_error *err)
{
    uni__text full = { 0 };
    if (!path || !path[0]) {
        uni_error_set(err, UNI_EINVAL, "a path is empty");
        return NULL;
    }
    if (path[0] == '~' && (path[1] == 0 || path[1] == '/')) {
        if (add_home(&full, err) < 0)
            goto fail;
        path++;
    } else if (path[0] != '/') {
        char *here = getcwd(NULL, 0);
        if (!here) {
            uni_error_set_errno(err, errno, "the current directory is not known");
            goto fail;
        }
        uni__text_add_string(&full, here);
        free(here);
    }
    add_part(&full, path);
    if (full.failed) {
        uni_error_set(err, UNI_ENOMEM, "no memory for a path");
        goto fail;
    }
    tidy(full.data);
    return full.data;
fail:
    uni__text_free(&full);
    return NULL;
}

char *uni__temporary_name(char *out, size_t size, const char *name)
{
    const char *base = getenv("TMPDIR");
    snprintf(out, size, "%s/unisono-%s-XXXXXX", base && base[0] ? base : "/tmp", name);
    return out;
}

bool uni__path_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

bool uni__path_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}
