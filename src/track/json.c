/*
 * json.c - results.json in the form of Ray Train v1: a list with one list per report, which has the dictionaries of the ranks.
 *
 *     [[{"loss": 0.5, ...}],
 *     [{"loss": 0.4, ...}]]
 *
 * The document is whole after every write: new reports are written over the closing bracket together with a new one, in one
 * pwrite, on every tick. Only a program that reads during that very call can see half of it. NaN and the infinities are
 * written as Python's json writes and reads them.
 *
 * Thread: the sink thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "track/sink.h"

#define BUFFER_SIZE (64 * 1024)

typedef struct json_sink {
    char *dir, *filename, *path;
    int *ranks;
    int num_ranks; /* -1: all */
    int fd;
    uint64_t end; /* where the closing bracket stands */
    bool empty; /* no report in the file yet */
    uni__text pending;
} json_sink;

static int flush(json_sink *j, uni_error *err)
{
    if (j->pending.size == 0)
        return 0;
    size_t reports = j->pending.size;
    uni__text_add(&j->pending, "]\n", 2);
    if (j->pending.failed)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the reports of %s", j->path);
    size_t done = 0;
    while (done < j->pending.size) {
        ssize_t wrote =
            pwrite(j->fd, j->pending.data + done, j->pending.size - done, (off_t)(j->end + done));
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            int cause = wrote < 0 ? errno : EIO;
            /* Back to the document that was whole. The bracket's place is allocated, so this needs no room. */
            if (pwrite(j->fd, "]\n", 2, (off_t)j->end) == 2 &&
                ftruncate(j->fd, (off_t)j->end + 2) == 0)
                j->pending.data[j->pending.size = reports] = 0;
            return uni_error_set_errno(err, cause, "cannot add reports to %s", j->path);
        }
        done += (size_t)wrote;
    }
    j->end += reports;
    j->empty = false;
    uni__text_clear(&j->pending);
    return 0;
}

/* A document of an earlier controller ends in "]]\n" or is "[]\n"; anything else is begun anew. */
static int open_again(json_sink *j, uni_error *err)
{
    char tail[3], start[1];
    struct stat info;
    if (fstat(j->fd, &info) < 0)
        return uni_error_set_errno(err, errno, "cannot look at %s", j->path);
    j->empty = true;
    if (info.st_size >= 6 && pread(j->fd, start, 1, 0) == 1 && start[0] == '[' &&
        pread(j->fd, tail, 3, info.st_size - 3) == 3 && memcmp(tail, "]]\n", 3) == 0) {
        j->empty = false;
        j->end = (uint64_t)info.st_size - 2;
        return 0;
    }
    if (ftruncate(j->fd, 0) < 0 || pwrite(j->fd, "[]\n", 3, 0) != 3)
        return uni_error_set_errno(err, errno, "cannot write %s", j->path);
    j->end = 1;
    return 0;
}

static int json_start(void *self, const uni_run_info *info, uni_error *err)
{
    json_sink *j = self;
    UNI_TRY(uni__sink_path(&j->path, j->dir, j->filename, info->run_dir, err));
    j->fd = open(j->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (j->fd < 0)
        return uni_error_set_errno(err, errno, "cannot write the reports to %s", j->path);
    return open_again(j, err);
}

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
    uni__text_add_string(&j->pending, j->empty && j->pending.size == 0 ? "[" : ",\n[");
    for (int rank = 0; rank < reports->world_size; rank++) {
        if (reports->by_rank[rank] == NULL || !wanted(j, rank))
            continue;
        if (!first)
            uni__text_add(&j->pending, ", ", 2);
        uni__emit_json(&j->pending, reports->by_rank[rank], 0);
        first = false;
    }
    uni__text_add(&j->pending, "]", 1);
    return j->pending.size >= BUFFER_SIZE || j->pending.failed ? flush(j, err) : 0;
}

static void json_tick(void *self)
{
    uni_error err = { 0 };
    (void)!flush(self,
                 &err); /* what could not be written waits; the next result or finish says so */
}

static int json_finish(void *self, const uni_finish_info *info, uni_error *err)
{
    return flush(self, err);
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
    free(j->ranks);
    free(j);
}

static const uni_sink_vtable json_vtable = {
    .name = "json",
    .start = json_start,
    .result = json_result,
    .tick = json_tick,
    .finish = json_finish,
    .free = json_free,
};

int uni_sink_json(uni_sink **out, const uni_sink_json_options *options, uni_error *err)
{
    static const int rank_0[] = { 0 };
    static const uni_sink_json_options defaults = { 0 };
    bool failed = false;
    *out = NULL;
    if (options == NULL)
        options = &defaults;
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
                        : uni_sink_new(out, &json_vtable, j, err);
    if (status < 0)
        json_free(j);
    return status;
}
