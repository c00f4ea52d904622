/*
 * results.c - the writer of results.jsonl.
 *
 * A report arrives as msgpack and is written as one line of text into a buffer of 256 KiB; nothing
 * else happens per report. The buffer is written with one call when it is full, when the
 * controller's loop is idle, and at marks. Followers may read up to what was written (feed.h), so
 * they never see a partial line. If a write fails in the middle, the file is truncated to its last
 * whole line, so that a full disk never leaves a torn line after a good one.
 *
 * Thread: the controller's.
 */
#include "track/results.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/msgpack.h"
#include "base/text.h"
#include "track/feed.h"

#define BUFFER_SIZE (256 * 1024)
#define BUFFER_LIMIT (16 * 1024 * 1024) /* how much may wait while the disk is full */

struct uni__results_writer {
    uni__feed *feed;
    int fd;
    uint64_t written; /* bytes in the file */
    uni__text buffer, nonfinite;
};

uni__feed *uni__results_writer_feed(uni__results_writer *writer)
{
    return writer->feed;
}

/* The offset after the last LF of the file. */
static int last_whole_line(int fd, uint64_t size, const char *path, uint64_t *end, uni_error *err)
{
    char block[4096];
    while (size > 0) {
        size_t length = size < sizeof block ? (size_t)size : sizeof block;
        ssize_t got = pread(fd, block, length, (off_t)(size - length));
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)length)
            return uni_error_set_errno(err, got < 0 ? errno : EIO, "cannot read %s", path);
        char *lf = memrchr(block, '\n', length);
        if (lf != NULL) {
            *end = size - length + (uint64_t)(lf - block) + 1;
            return 0;
        }
        size -= length;
    }
    *end = 0;
    return 0;
}

/* Opens an earlier controller's file: checks its format and cuts off a torn last line. An empty
 * file gets its header. */
static int open_again(uni__results_writer *writer, const char *path, bool *fresh, uni_error *err)
{
    struct stat info;
    if (fstat(writer->fd, &info) < 0)
        return uni_error_set_errno(err, errno, "cannot look at %s", path);
    uint64_t end = 0, first_line = 0;
    int world_size = 0;
    UNI_TRY(last_whole_line(writer->fd, (uint64_t)info.st_size, path, &end, err));
    if (end < (uint64_t)info.st_size && ftruncate(writer->fd, (off_t)end) < 0)
        return uni_error_set_errno(err, errno, "cannot cut the torn last line off %s", path);
    *fresh = end == 0;
    if (!*fresh)
        UNI_TRY(uni__results_header(writer->fd, path, &world_size, &first_line, err));
    if (lseek(writer->fd, (off_t)end, SEEK_SET) < 0)
        return uni_error_set_errno(err, errno, "cannot append to %s", path);
    writer->written = end;
    return 0;
}

int uni__results_writer_open(uni__results_writer **out, const char *path, int world_size,
                             bool resume, uni_error *err)
{
    return uni__results_writer_open_at(out, AT_FDCWD, path, world_size, resume, err);
}

int uni__results_writer_open_at(uni__results_writer **out, int dir, const char *path,
                                int world_size, bool resume, uni_error *err)
{
    int status = 0;
    bool fresh = true;
    *out = NULL;
    uni__results_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to write %s", path);
    writer->fd = openat(dir, uni__name_at(dir, path),
                        O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (resume ? 0 : O_TRUNC), 0600);
    if (writer->fd < 0) {
        status = uni_error_set_errno(err, errno, "cannot write the reports to %s", path);
        goto fail;
    }
    UNI_TRY_GOTO(uni__feed_new(&writer->feed, path, world_size, err), fail);
    if (uni__text_reserve(&writer->buffer, BUFFER_SIZE + 4096) == NULL) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to write %s", path);
        goto fail;
    }
    if (resume)
        UNI_TRY_GOTO(open_again(writer, path, &fresh, err), fail);
    if (fresh)
        uni__text_add_format(&writer->buffer,
                             "{\"format\":\"%s\",\"version\":%d,\"world_size\":%d}\n",
                             UNI__RESULTS_FORMAT, UNI__RESULTS_VERSION, world_size);
    UNI_TRY_GOTO(uni__results_writer_flush(writer, err), fail);
    *out = writer;
    return 0;
fail:
    uni__text_clear(&writer->buffer);
    uni__results_writer_close(writer);
    return status;
}

static void add_head(uni__text *out, int attempt, int rank, int64_t iteration)
{
    char *start = uni__text_reserve(out, 64 + 3 * UNI__NUMBER_SIZE);
    if (start == NULL)
        return;
    char *at = start;
    memcpy(at, "{\"attempt\":", 11);
    at += 11;
    at += uni__format_int(at, attempt);
    memcpy(at, ",\"rank\":", 8);
    at += 8;
    at += uni__format_int(at, rank);
    memcpy(at, ",\"iteration\":", 13);
    at += 13;
    at += uni__format_int(at, iteration);
    memcpy(at, ",\"metrics\":", 11);
    at += 11;
    *at = 0;
    out->size += (size_t)(at - start);
}

/* fixmap, map 16, map 32 */
static bool is_map(const void *metrics, size_t size)
{
    uint8_t first = size > 0 ? *(const uint8_t *)metrics : 0;
    return (first & 0xf0) == 0x80 || first == 0xde || first == 0xdf;
}

int uni__results_writer_add(uni__results_writer *writer, int attempt, int rank, int64_t iteration,
                            const void *metrics, size_t size, uni_error *err)
{
    uni__text *out = &writer->buffer;
    size_t before = out->size;
    if (!is_map(metrics, size))
        return uni_error_set(err, UNI_EFORMAT, "rank %d sent a report that is not a dictionary",
                             rank);
    if (before > BUFFER_LIMIT)
        return uni_error_set(err, UNI_EDISKFULL,
                             "%s cannot be written: %zu bytes of reports are waiting",
                             writer->feed->path, before);
    uni__cursor cursor = { metrics, (const uint8_t *)metrics + size };
    uni__text_clear(&writer->nonfinite);
    add_head(out, attempt, rank, iteration);
    int status = uni__cursor_to_json(&cursor, out, &writer->nonfinite, err);
    if (status == 0 && writer->nonfinite.size > 0) {
        uni__text_add(out, ",\"nonfinite\":{", 14);
        uni__text_add(out, writer->nonfinite.data, writer->nonfinite.size);
        uni__text_add(out, "}", 1);
    }
    uni__text_add(out, "}\n", 2);
    if (status == 0 && (out->failed || writer->nonfinite.failed))
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a report of rank %d", rank);
    if (status < 0) { /* as if it had not been added */
        out->size = before;
        if (out->data != NULL)
            out->data[before] = 0;
        out->failed = writer->nonfinite.failed = false;
        return uni_error_prefix(err, "report of rank %d, iteration %lld", rank,
                                (long long)iteration);
    }
    return out->size >= BUFFER_SIZE ? uni__results_writer_flush(writer, err) : 0;
}

int uni__results_writer_flush(uni__results_writer *writer, uni_error *err)
{
    if (writer->buffer.size > 0) {
        int status = uni__write_all(writer->fd, writer->buffer.data, writer->buffer.size,
                                    writer->feed->path, err);
        if (status < 0) {
            if (ftruncate(writer->fd, (off_t)writer->written) == 0)
                (void)lseek(writer->fd, (off_t)writer->written, SEEK_SET);
            return status;
        }
        writer->written += writer->buffer.size;
        uni__text_clear(&writer->buffer);
    }
    uni__feed_publish(writer->feed, writer->written, false);
    return 0;
}

int uni__results_writer_rank_ended(uni__results_writer *writer, int rank, uni_error *err)
{
    UNI_TRY(uni__results_writer_flush(writer, err));
    return uni__feed_mark(writer->feed, (uni__mark){ writer->written, UNI__MARK_RANK_ENDED, rank },
                          err);
}

int uni__results_writer_attempt(uni__results_writer *writer, int attempt, uni_error *err)
{
    UNI_TRY(uni__results_writer_flush(writer, err));
    return uni__feed_mark(writer->feed, (uni__mark){ writer->written, UNI__MARK_ATTEMPT, attempt },
                          err);
}

void uni__results_writer_close(uni__results_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->feed != NULL) {
        if (writer->buffer.size > 0) {
            uni_error ignored; /* flush before closing to learn of an error */
            (void)!uni__results_writer_flush(writer, &ignored);
        }
        uni__feed_publish(writer->feed, writer->written, true);
    }
    if (writer->fd >= 0)
        close(writer->fd);
    uni__text_free(&writer->buffer);
    uni__text_free(&writer->nonfinite);
    uni__feed_unref(writer->feed);
    free(writer);
}
