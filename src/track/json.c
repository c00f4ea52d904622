/*
 * json.c - results.json in the form of Ray Train v1: a list with one list per report, which has the
 * dictionaries of the ranks.
 *
 *     [[{"loss": 0.5, ...}],
 *     [{"loss": 0.4, ...}]                                          ]
 *
 * The document is complete at every moment, even for a program that reads it while it is written:
 * the closing bracket is far ahead, after spaces, and reports overwrite the spaces. The kernel lets
 * a reader see a write page by page, so a write stays within one page, and a report that does not
 * fit begins on the next one. Only a report larger than a page can be seen in part, during that one
 * call. When the spaces are used up, the file is copied with half as much room again and renamed
 * over the old one. So each byte is copied about twice in all, and once more without the spaces at
 * the end.
 *
 * NaN and the infinities are written as Python's json writes and reads them. Thread: the sink
 * thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/grow.h"
#include "track/sink.h"
#include "base/options.h"

#define BUFFER_SIZE (64 * 1024)
#define PAGE 4096
#define FIRST_ROOM (4 * PAGE)

typedef struct json_sink {
    char *dir, *filename, *path, *temporary;
    int *ranks;
    int num_ranks; /* -1: all */
    int fd;
    uint64_t end; /* where the next report goes */
    /* Size of the file; its last two bytes are the closing bracket and a line feed. */
    uint64_t capacity;
    bool empty; /* no report yet, written or pending */
    uni__text pending;
    size_t *lengths; /* of the pending reports */
    size_t num_pending, lengths_capacity;
} json_sink;

/* ---- the file ---- */

static int write_at(json_sink *j, int fd, const char *data, size_t size, uint64_t offset,
                    uni_error *err)
{
    while (size > 0) {
        ssize_t wrote = pwrite(fd, data, size, (off_t)offset);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return uni_error_set_errno(err, wrote < 0 ? errno : EIO, "cannot add reports to %s",
                                       j->path);
        data += wrote;
        size -= (size_t)wrote;
        offset += (uint64_t)wrote;
    }
    return 0;
}

static int copy_reports(json_sink *j, int to, uni_error *err)
{
    char block[16 * 1024];
    for (uint64_t at = 0; at < j->end;) {
        size_t wanted = j->end - at < sizeof block ? (size_t)(j->end - at) : sizeof block;
        ssize_t got = pread(j->fd, block, wanted, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return uni_error_set_errno(err, got < 0 ? errno : EIO, "cannot read %s", j->path);
        UNI_TRY(write_at(j, to, block, (size_t)got, at, err));
        at += (uint64_t)got;
    }
    return 0;
}

/* Copies the reports into a file of this size (the rest is spaces), which replaces the old one. */
static int resize(json_sink *j, uint64_t capacity, uni_error *err)
{
    char spaces[PAGE];
    int status = 0;
    int fd = open(j->temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return uni_error_set_errno(err, errno, "cannot write %s", j->temporary);
    memset(spaces, ' ', sizeof spaces);
    if (j->fd >= 0)
        UNI_TRY_GOTO(copy_reports(j, fd, err), fail);
    for (uint64_t at = j->end; at < capacity - 2;) {
        size_t size = capacity - 2 - at < PAGE ? (size_t)(capacity - 2 - at) : PAGE;
        UNI_TRY_GOTO(write_at(j, fd, spaces, size, at, err), fail);
        at += size;
    }
    if (j->end == 1)
        UNI_TRY_GOTO(write_at(j, fd, "[", 1, 0, err), fail);
    UNI_TRY_GOTO(write_at(j, fd, "]\n", 2, capacity - 2, err), fail);
    if (rename(j->temporary, j->path) < 0) {
        status = uni_error_set_errno(err, errno, "cannot replace %s", j->path);
        goto fail;
    }
    if (j->fd >= 0)
        close(j->fd);
    j->fd = fd;
    j->capacity = capacity;
    return 0;
fail:
    close(fd);
    unlink(j->temporary);
    return status;
}

/* How many of the pending reports from `first` on fit into one write, their bytes, and where they
 * go. */
static size_t next_write(json_sink *j, size_t first, size_t *bytes)
{
    size_t count = 0, room = PAGE - (size_t)(j->end % PAGE);
    *bytes = 0;
    if (j->lengths[first] > room && room < PAGE) {
        j->end += room; /* already spaces */
        room = PAGE;
    }
    do {
        *bytes += j->lengths[first + count++];
    } while (first + count < j->num_pending && *bytes + j->lengths[first + count] <= room);
    return count;
}

static int flush(json_sink *j, uni_error *err)
{
    size_t done = 0, written = 0;
    int status = 0;
    if (j->pending.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the reports of %s", j->path);
    while (done < j->num_pending && status == 0) {
        uint64_t before = j->end;
        size_t bytes, count = next_write(j, done, &bytes);
        if (j->end + bytes + 2 > j->capacity) {
            uint64_t start = j->end;
            j->end = before; /* what gets copied; the spaces up to start are written anew */
            status = resize(j, (start + bytes + FIRST_ROOM) * 3 / 2 / PAGE * PAGE, err);
            if (status == 0)
                j->end = start;
        }
        if (status == 0)
            status = write_at(j, j->fd, j->pending.data + written, bytes, j->end, err);
        if (status < 0) {
            j->end = before;
            break;
        }
        j->end += bytes;
        written += bytes;
        done += count;
    }
    /* What could not be written is kept for next time. (Without anything pending there are no
     * arrays.) */
    if (done > 0) {
        memmove(j->lengths, j->lengths + done, (j->num_pending - done) * sizeof *j->lengths);
        j->num_pending -= done;
        j->pending.size -= written;
        memmove(j->pending.data, j->pending.data + written, j->pending.size);
        j->pending.data[j->pending.size] = 0;
    }
    return status;
}

/* Continues a document of an earlier controller if it ends like ours; otherwise starts a new
 * one. */
static int open_again(json_sink *j, uni_error *err)
{
    char *text = NULL;
    size_t size = 0;
    uni_error ignored;
    j->end = 1;
    j->empty = true;
    if (uni__read_file(&text, &size, j->path, SIZE_MAX / 4, &ignored) == 0 && size >= 3 &&
        text[0] == '[' && memcmp(text + size - 2, "]\n", 2) == 0) {
        size_t end = size - 2;
        while (end > 1 && text[end - 1] == ' ')
            end--;
        if (end > 1 && text[end - 1] == ']') {
            j->fd = open(j->path, O_RDWR | O_CLOEXEC);
            j->end = end;
            j->empty = false;
        }
    }
    free(text);
    return resize(j, (j->end + FIRST_ROOM) / PAGE * PAGE, err);
}

static int json_start(void *self, const uni_start_info *info, uni_error *err)
{
    json_sink *j = self;
    UNI_TRY(uni__sink_path(&j->path, j->dir, j->filename, info->run_dir, err));
    if (asprintf(&j->temporary, "%s.tmp", j->path) < 0) {
        j->temporary = NULL;
        return uni_error_set(err, UNI_ENOMEM, "no memory for the json sink");
    }
    return open_again(j, err);
}

/* ---- reports ---- */

static bool wanted(const json_sink *j, int rank)
{
    for (int i = 0; i < j->num_ranks; i++)
        if (j->ranks[i] == rank)
            return true;
    return j->num_ranks < 0;
}

static int json_result(void *self, const uni_reports *reports, uni_error *err)
{
    json_sink *j = self;
    bool first = true;
    size_t before = j->pending.size;
    size_t *grown = uni__grown(j->lengths, j->num_pending, &j->lengths_capacity, sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the reports of %s", j->path);
    j->lengths = grown;
    uni__text_add_string(&j->pending, j->empty ? "[" : ",\n[");
    for (int rank = 0; rank < reports->world_size; rank++) {
        if (reports->by_rank[rank] == NULL || !wanted(j, rank))
            continue;
        if (!first)
            uni__text_add(&j->pending, ", ", 2);
        uni__emit_json(&j->pending, reports->by_rank[rank], 0);
        first = false;
    }
    uni__text_add(&j->pending, "]", 1);
    j->empty = false;
    j->lengths[j->num_pending++] = j->pending.size - before;
    return j->pending.size >= BUFFER_SIZE || j->pending.failed ? flush(j, err) : 0;
}

static void json_tick(void *self)
{
    uni_error err = { 0 };
    /* What could not be written waits; the next result or finish reports it. */
    (void)!flush(self, &err);
}

static int json_finish(void *self, const uni_finish_info *info, uni_error *err)
{
    json_sink *j = self;
    UNI_TRY(flush(j, err));
    return resize(j, j->end + 2, err); /* without the spaces */
}

static void json_free(void *self)
{
    json_sink *j = self;
    if (j->fd >= 0)
        close(j->fd);
    uni__text_free(&j->pending);
    free(j->dir);
    free(j->filename);
    free(j->path);
    free(j->temporary);
    free(j->lengths);
    free(j->ranks);
    free(j);
}

static const uni_sink_class json_class = {
    .name = "json",
    .start = json_start,
    .result = json_result,
    .tick = json_tick,
    .finish = json_finish,
    .free = json_free,
};

int uni_sink_json(uni_sink **out, const uni_sink_json_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_sink_json_options, options, num_ranks, err);
    static const int rank_0[] = { 0 };
    bool failed = false;
    bool chosen = options->ranks != NULL && options->num_ranks > 0;
    json_sink *j = calloc(1, sizeof *j);
    if (j == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the json sink");
    j->fd = -1;
    j->num_ranks = options->num_ranks == -1 ? -1 : chosen ? options->num_ranks : 1;
    j->dir = uni__sink_copy(options->dir, &failed);
    j->filename =
        uni__sink_copy(options->filename != NULL ? options->filename : "results.json", &failed);
    if (j->num_ranks > 0) {
        j->ranks = malloc((size_t)j->num_ranks * sizeof *j->ranks);
        if (j->ranks == NULL)
            failed = true;
        else
            memcpy(j->ranks, chosen ? options->ranks : rank_0,
                   (size_t)j->num_ranks * sizeof *j->ranks);
    }
    int status = failed ? uni_error_set(err, UNI_ENOMEM, "no memory for the json sink")
                        : uni_sink_new(out, &json_class, j, err);
    if (status < 0)
        json_free(j);
    return status;
}
