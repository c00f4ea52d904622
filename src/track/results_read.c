/*
 * results_read.c - reads all reports of a run that is over or whose controller is gone.
 *
 * Two passes: first the heads of all lines go into an index of 24 bytes per line, sorted by
 * (iteration, rank, attempt); then each iteration's last attempt per rank is read by offset and
 * handed out. Only the values of one iteration are in memory at a time. A torn last line and lines
 * that are not reports are left out, the latter with a warning.
 *
 * Thread: any.
 */
#include "track/results.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/grow.h"
#include "base/log.h"
#include "track/feed.h"
#include "track/line.h"

#define MAX_PLACES UINT64_C(5000000000)

typedef struct place {
    int64_t iteration;
    uint64_t offset;
    int rank, attempt;
} place;

typedef struct reader {
    const char *path;
    int fd;
    uint64_t end; /* after the last whole line */
    int world_size;
    place *places;
    size_t count, capacity;
    bool sorted;
    size_t damaged;
    uni_value **values;
    uni__slice *slices; /* one per rank: each reads forward in its own part of the file */
} reader;

static int compare(const void *left, const void *right)
{
    const place *a = left, *b = right;
    if (a->iteration != b->iteration)
        return a->iteration < b->iteration ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->attempt != b->attempt)
        return a->attempt < b->attempt ? -1 : 1;
    return a->offset < b->offset ? -1 : 1;
}

static int add_place(reader *r, place p, uni_error *err)
{
    place *grown = uni__grown(r->places, r->count, &r->capacity, sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the %zu reports of %s", r->count,
                             r->path);
    r->places = grown;
    if (r->count > 0 && compare(&r->places[r->count - 1], &p) > 0)
        r->sorted = false;
    if (p.rank >= r->world_size)
        r->world_size = p.rank + 1; /* resumed with more workers than line 1 says */
    r->places[r->count++] = p;
    return 0;
}

/* Indexes the heads of all whole lines in block[0..size), which starts at `offset`; returns how
 * many bytes were used. */
static int index_block(reader *r, const char *block, size_t size, uint64_t offset, size_t *used,
                       uni_error *err)
{
    const char *at = block, *end = block + size, *lf;
    while ((lf = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        uni__line_head head;
        if (uni__line_head_parse(at, (size_t)(lf - at), &head) == 0 && head.rank < 1000000)
            UNI_TRY(add_place(
                r,
                (place){ head.iteration, offset + (uint64_t)(at - block), head.rank, head.attempt },
                err));
        else
            r->damaged++;
        at = lf + 1;
    }
    *used = (size_t)(at - block);
    return 0;
}

static int index_file(reader *r, uint64_t offset, uni_error *err)
{
    size_t capacity = 256 * 1024, have = 0, used = 0;
    char *block = malloc(capacity);
    int status =
        block == NULL ? uni_error_set(err, UNI_ENOMEM, "no memory to read %s", r->path) : 0;
    while (status == 0) {
        if (have == capacity) { /* a long line */
            char *grown = realloc(block, 2 * capacity);
            if (grown == NULL) {
                status = uni_error_set(err, UNI_ENOMEM, "no memory to read %s", r->path);
                break;
            }
            block = grown;
            capacity *= 2;
        }
        ssize_t got = pread(r->fd, block + have, capacity - have, (off_t)(offset + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = uni_error_set_errno(err, errno, "cannot read %s", r->path);
        if (got <= 0)
            break;
        have += (size_t)got;
        status = index_block(r, block, have, offset, &used, err);
        if (status == 0) {
            memmove(block, block + used, have - used);
            have -= used;
            offset += used;
        }
    }
    r->end = offset;
    free(block);
    return status;
}

static int read_value(reader *r, const place *p, uni_error *err)
{
    uni__line_head head;
    uni__slice *slice = &r->slices[p->rank];
    size_t size = 512;
    for (;;) { /* the length is not in the index: look for the LF in ever larger pieces */
        if (size > r->end - p->offset)
            size = (size_t)(r->end - p->offset);
        const char *line = uni__slice_get(slice, r->fd, p->offset, size, r->end, r->path, err);
        if (line == NULL)
            return UNI_EIO;
        size_t have = slice->size - (size_t)(line - slice->data);
        const char *lf = memchr(line, '\n', have);
        if (lf == NULL) {
            /* The file changed meanwhile. */
            if (size >= r->end - p->offset)
                return 0;
            size = 2 * have;
            continue;
        }
        size_t length = (size_t)(lf - line);
        int status = uni__line_head_parse(line, length, &head);
        if (status == 0)
            status = uni__line_metrics(line, length, &head, &r->values[p->rank], err);
        if (status == UNI_EFORMAT)
            r->damaged++;
        return status == UNI_EFORMAT ? 0 : status;
    }
}

/* One iteration: places[first..last). */
static int visit_iteration(reader *r, size_t first, size_t last, uni__results_visit visit,
                           void *context, uni_error *err)
{
    uni_reports reports = { .iteration = r->places[first].iteration,
                            .world_size = r->world_size,
                            .by_rank = (const uni_value *const *)r->values };
    int status = 0;
    for (size_t i = first; i < last && status == 0; i++) {
        if (i + 1 < last && r->places[i + 1].rank == r->places[i].rank)
            continue; /* a later attempt of the same rank follows */
        if (r->places[i].attempt > reports.attempt)
            reports.attempt = r->places[i].attempt;
        status = read_value(r, &r->places[i], err);
    }
    if (status == 0)
        status = visit(context, &reports, err);
    for (size_t i = first; i < last; i++) {
        uni_value_free(r->values[r->places[i].rank]);
        r->values[r->places[i].rank] = NULL;
    }
    return status;
}

/* Each iteration is shown with a place for every rank. A million iterations of 4,096 ranks are
 * fine; a file in which each of 60,000 ranks has an iteration of its own takes minutes. */
static int check_work(const reader *r, uni_error *err)
{
    uint64_t iterations = r->count > 0;
    for (size_t i = 1; i < r->count; i++)
        iterations += r->places[i].iteration != r->places[i - 1].iteration;
    if (iterations * (uint64_t)r->world_size <= MAX_PLACES + 16 * (uint64_t)r->count)
        return 0;
    return uni_error_set(
        err, UNI_ELIMIT,
        "%s has %llu iterations of %d ranks, but only %zu reports: too many places "
        "to show",
        r->path, (unsigned long long)iterations, r->world_size, r->count);
}

static int visit_all(reader *r, uni__results_visit visit, void *context, uni_error *err)
{
    if (!r->sorted)
        qsort(r->places, r->count, sizeof *r->places, compare);
    UNI_TRY(check_work(r, err));
    r->values = calloc((size_t)r->world_size, sizeof *r->values);
    r->slices = calloc((size_t)r->world_size, sizeof *r->slices);
    if (r->values == NULL || r->slices == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to read %s", r->path);
    for (size_t first = 0, last; first < r->count; first = last) {
        for (last = first + 1;
             last < r->count && r->places[last].iteration == r->places[first].iteration;)
            last++;
        UNI_TRY(visit_iteration(r, first, last, visit, context, err));
    }
    return 0;
}

int uni__results_read(const char *path, uni__results_visit visit, void *context, uni_error *err)
{
    reader r = { .path = path, .sorted = true };
    uint64_t first_line = 0;
    int status = 0;
    r.fd = uni__open_unlinked(path, err);
    if (r.fd < 0)
        return uni_error_prefix(err, "cannot read the reports");
    UNI_TRY_GOTO(uni__results_header(r.fd, path, &r.world_size, &first_line, err), done);
    UNI_TRY_GOTO(index_file(&r, first_line, err), done);
    UNI_TRY_GOTO(visit_all(&r, visit, context, err), done);
done:
    if (r.damaged > 0)
        uni__warn("%s: %zu lines are not reports and were left out", path, r.damaged);
    for (int rank = 0; r.slices != NULL && rank < r.world_size; rank++)
        uni__slice_free(&r.slices[rank]);
    close(r.fd);
    free(r.slices);
    free(r.values);
    free(r.places);
    return status < 0 ? status : 0;
}
