/*
 * tensorboard_file.c - appends events to an event file (tensorboard_file.h has the format).
 * Buffered; a flush writes whole records or, if the disk is full, none. Thread: the sink thread.
 */
#include "track/tensorboard_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/file.h"

#define BUFFER_SIZE (64 * 1024)

static void put_little_endian(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

int uni__event_file_add(uni__event_file *file, const Uni__Tb__Event *event, uni_error *err)
{
    size_t size = uni__tb__event__get_packed_size(event);
    uint8_t *at = (uint8_t *)uni__text_reserve(&file->pending, size + 16);
    if (at == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for an event of %s", file->path);
    put_little_endian(at, size, 8);
    put_little_endian(at + 8, uni__crc32c_masked(at, 8), 4);
    uni__tb__event__pack(event, at + 12);
    put_little_endian(at + 12 + size, uni__crc32c_masked(at + 12, size), 4);
    file->pending.size += size + 16;
    file->pending.data[file->pending.size] = 0;
    return file->pending.size >= BUFFER_SIZE ? uni__event_file_flush(file, err) : 0;
}

int uni__event_file_flush(uni__event_file *file, uni_error *err)
{
    if (file->pending.size == 0)
        return 0;
    int status = uni__write_all(file->fd, file->pending.data, file->pending.size, file->path, err);
    if (status < 0) {
        (void)!ftruncate(file->fd, (off_t)file->size);
        return status;
    }
    file->size += file->pending.size;
    uni__text_clear(&file->pending);
    return 0;
}

int uni__event_file_open(uni__event_file *file, const char *dir, uni_error *err)
{
    char host[256] = "localhost", name[400];
    double now = uni__wall_seconds();
    if (gethostname(host, sizeof host - 1) < 0 || strchr(host, '/') != NULL)
        strcpy(host, "localhost");
    UNI_TRY(uni__make_dirs(dir, 0700, err));
    for (int number = 0; file->fd < 0; number++) {
        snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%d.%d", (long long)now, host,
                 (int)getpid(), number);
        free(file->path);
        file->path = uni__path_join(dir, name, NULL);
        if (file->path == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the path of an event file");
        file->fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
        if (file->fd < 0 && (errno != EEXIST || number == 1000))
            return uni_error_set_errno(err, errno, "cannot write the event file %s", file->path);
    }
    Uni__Tb__Event version = UNI__TB__EVENT__INIT;
    version.wall_time = now;
    version.what_case = UNI__TB__EVENT__WHAT_FILE_VERSION;
    version.file_version = "brain.Event:2";
    UNI_TRY(uni__event_file_add(file, &version, err));
    return uni__event_file_flush(file, err);
}

int uni__event_file_reopen(uni__event_file *file, const char *dir, const char *name, uint64_t size,
                           uni_error *err)
{
    struct stat info;
    if (strncmp(name, "events.out.tfevents.", 20) != 0 || strchr(name, '/') != NULL)
        return uni_error_set(err, UNI_EFORMAT, "%.200s is not the name of an event file", name);
    file->path = uni__path_join(dir, name, NULL);
    if (file->path == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the path of an event file");
    file->fd = open(file->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &info) < 0)
        return uni_error_set_errno(err, errno, "cannot write the event file %s", file->path);
    if ((uint64_t)info.st_size < size)
        return uni_error_set(err, UNI_ECORRUPT,
                             "the event file %s is shorter than when the checkpoint was taken",
                             file->path);
    if (ftruncate(file->fd, (off_t)size) < 0)
        return uni_error_set_errno(err, errno, "cannot shorten the event file %s", file->path);
    file->size = size;
    return 0;
}

void uni__event_file_close(uni__event_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    free(file->path);
    file->path = NULL;
    uni__text_free(&file->pending);
}
