/* page.c - see page.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/safe_text.h"
#include "cli/page.h"

void cli_page_escape(uni__text *out, const char *text)
{
    uni__text safe = { 0 };
    uni__text_add_safe(&safe, text, strlen(text), "");
    out->failed = out->failed || safe.failed;
    for (const char *at = safe.data ? safe.data : ""; *at; at++) {
        if (*at == '<')
            uni__text_add_string(out, "&lt;");
        else if (*at == '>')
            uni__text_add_string(out, "&gt;");
        else if (*at == '&')
            uni__text_add_string(out, "&amp;");
        else if (*at == '"')
            uni__text_add_string(out, "&quot;");
        else if (*at == '\'')
            uni__text_add_string(out, "&#39;");
        else
            uni__text_add_char(out, *at);
    }
    uni__text_free(&safe);
}

void cli_page_edge_mark(uni__text *out, double x, double y, bool above)
{
    uni__text_add_format(out, "M%.1f %.1fl4 %dh-8z", x, y, above ? 8 : -8);
}

/* Pages must be readable for others, too. Opens the file without following links, because the name
 * may have been replaced. */
static int make_readable(const char *path, uni_error *err)
{
    struct stat info;
    mode_t mask = umask(0);
    umask(mask);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool done = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 &&
                info.st_uid == geteuid() && fchmod(fd, 0666 & ~mask) == 0;
    int saved = errno;
    if (fd >= 0)
        close(fd);
    return done ? 0 : uni_error_set_errno(err, saved, "cannot make %s readable", path);
}

static int write_through(const char *path, const uni__text *page, uni_error *err)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0)
        return uni_error_set_errno(err, errno, "cannot write %s", path);
    int status = uni__write_all(fd, page->data, page->size, path, err);
    close(fd);
    return status;
}

static int check_folder(const char *path, uni_error *err)
{
    const char *slash = strrchr(path, '/');
    struct stat info;
    if (!slash || slash == path)
        return 0;
    char *folder = strndup(path, (size_t)(slash - path));
    int status = 0;
    if (!folder)
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    else if (stat(folder, &info) < 0)
        status = uni_error_set_errno(err, errno, "cannot write %s: directory %s", path, folder);
    free(folder);
    return status;
}

int cli_page_write(cli_context *context, const char *path, const uni__text *page, uni_error *err)
{
    struct stat info;
    if (page->failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the page");
    if (strcmp(path, "-") == 0) {
        fwrite(page->data, 1, page->size, context->out.out);
        return 0;
    }
    bool there = lstat(path, &info) == 0;
    if (there && S_ISDIR(info.st_mode))
        return uni_error_set(err, UNI_EINVAL, "%s is a directory: give a file name", path);
    if (there && !S_ISREG(info.st_mode))
        return write_through(path, page, err);
    UNI_TRY(check_folder(path, err));
    UNI_TRY(uni__write_file(path, page->data, page->size, false, err));
    UNI_TRY(make_readable(path, err));
    fprintf(context->out.out, "wrote %s\n", path);
    return 0;
}
