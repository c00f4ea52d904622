/* variables.c - see variables.h. Thread: the caller's. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/variables.h"

#define FILE_LIMIT (1 << 20)

bool uni__variable_is_secret(const char *word)
{
    static const char *const signs[] = { "KEY",      "TOKEN",  "SECRET",
                                         "PASSWORD", "PASSWD", "CREDENTIAL" };
    size_t length = strcspn(word, "=");
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        size_t sign = strlen(signs[i]);
        for (size_t at = 0; at + sign <= length; at++)
            if (strncasecmp(word + at, signs[i], sign) == 0)
                return true;
    }
    return false;
}

/* The name alone is in messages: what stands behind it may be secret. */
static int add_word(uni_value *list, const char *word, const char *where, uni_error *err)
{
    size_t name = strcspn(word, "=");
    char *pair = NULL;
    if (name == 0)
        return uni_error_set(err, UNI_EINVAL,
                             "%s: a variable without a name; write NAME=VALUE, or NAME to take the "
                             "value from the environment",
                             where);
    if (word[name] == '\0') {
        const char *value = getenv(word);
        if (!value)
            return uni_error_set(err, UNI_EINVAL,
                                 "%s: the variable %s is not set in the environment, so there is "
                                 "no value to hand on; set it, or write %s=VALUE",
                                 where, word, word);
        if (asprintf(&pair, "%s=%s", word, value) < 0)
            pair = NULL;
    } else {
        pair = strdup(word);
    }
    int status = pair ? uni_list_take(list, uni_value_string(pair)) : UNI_ENOMEM;
    free(pair);
    return status < 0 ? uni_error_set(err, UNI_ENOMEM, "no memory for the environment") : 0;
}

static int add_lines(uni_value *list, char *text, const char *path, uni_error *err)
{
    int number = 0, status = 0;
    for (char *rest = text, *line; status == 0 && (line = strsep(&rest, "\n"));) {
        char where[512];
        number++;
        size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\r')
            line[length - 1] = '\0';
        line += strspn(line, " \t");
        if (line[0] == '\0' || line[0] == '#')
            continue;
        snprintf(where, sizeof where, "%.400s, line %d", path, number);
        if (line[strcspn(line, "= \t")] != '=' && line[strcspn(line, " \t")] != '\0')
            return uni_error_set(err, UNI_EINVAL, "%s: write NAME=VALUE or NAME", where);
        status = add_word(list, line, where, err);
    }
    return status;
}

static int check_file(int fd, const char *path, uni_error *err)
{
    struct stat info;
    if (fstat(fd, &info) < 0)
        return uni_error_set_errno(err, errno, "cannot look at %s", path);
    if (!S_ISREG(info.st_mode))
        return uni_error_set(err, UNI_EINVAL, "the environment file %s is not a regular file",
                             path);
    if ((info.st_uid != geteuid() && info.st_uid != 0) || (info.st_mode & 077))
        return uni_error_set(err, UNI_EPERMISSION,
                             "the environment file %s can be read by others or is not yours (mode "
                             "%04o): it may hold secrets; `chmod 600` it",
                             path, (unsigned)(info.st_mode & 07777));
    if (info.st_size > FILE_LIMIT)
        return uni_error_set(err, UNI_ELIMIT, "the environment file %s is larger than %d bytes",
                             path, FILE_LIMIT);
    return 0;
}

static int add_file(uni_value *list, const char *path, uni_error *err)
{
    char *text = NULL;
    int status = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return uni_error_set_errno(err, errno, "cannot open the environment file %s", path);
    UNI_TRY_GOTO(check_file(fd, path, err), done);
    if (!(text = calloc(1, FILE_LIMIT + 1))) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for %s", path);
        goto done;
    }
    ssize_t size = read(fd, text, FILE_LIMIT);
    if (size < 0)
        status = uni_error_set_errno(err, errno, "cannot read %s", path);
    else if (strlen(text) != (size_t)size)
        status = uni_error_set(err, UNI_EINVAL, "the environment file %s has a zero byte", path);
    else
        status = add_lines(list, text, path, err);
done:
    free(text);
    close(fd);
    return status;
}

int uni__variables_read(uni_value **out, const char *const *words, const char *file, uni_error *err)
{
    uni_value *list = uni_value_list();
    int status = list ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for the environment");
    *out = NULL;
    if (status == 0 && file)
        status = add_file(list, file, err);
    for (; status == 0 && words && *words; words++)
        status = add_word(list, *words, "environment", err);
    if (status < 0) {
        uni_value_free(list);
        return status;
    }
    *out = list;
    return 0;
}
