/*
 * feed.c - the state shared by one results writer and its followers, and reading pieces of the
 * file.
 *
 * Marks are few (one per rank and attempt) and are kept only until every follower has passed them.
 * A follower that registers later starts after all existing marks.
 */
#include "track/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unisono/value.h>

#include "base/grow.h"

int uni__feed_new(uni__feed **out, const char *path, int world_size, uni_error *err)
{
    *out = NULL;
    uni__feed *feed = calloc(1, sizeof *feed);
    if (feed == NULL || (feed->path = strdup(path)) == NULL) {
        free(feed);
        return uni_error_set(err, UNI_ENOMEM, "no memory to write %s", path);
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    feed->world_size = world_size;
    feed->references = 1;
    *out = feed;
    return 0;
}

void uni__feed_unref(uni__feed *feed)
{
    if (feed == NULL)
        return;
    pthread_mutex_lock(&feed->lock);
    bool last = --feed->references == 0;
    pthread_mutex_unlock(&feed->lock);
    if (!last)
        return;
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->lock);
    free(feed->marks);
    free(feed->path);
    free(feed);
}

void uni__feed_publish(uni__feed *feed, uint64_t visible, bool closed)
{
    pthread_mutex_lock(&feed->lock);
    feed->visible = visible;
    feed->closed = feed->closed || closed;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
}

/* Drops the marks that every follower has passed. */
static void prune(uni__feed *feed)
{
    uint64_t needed = feed->first_mark + feed->num_marks;
    for (int i = 0; i < UNI__FEED_FOLLOWERS; i++)
        if (feed->followers[i] != NULL && *feed->followers[i] < needed)
            needed = *feed->followers[i];
    size_t passed = (size_t)(needed - feed->first_mark);
    if (passed == 0)
        return;
    feed->num_marks -= passed;
    memmove(feed->marks, feed->marks + passed, feed->num_marks * sizeof *feed->marks);
    feed->first_mark = needed;
}

int uni__feed_mark(uni__feed *feed, uni__mark mark, uni_error *err)
{
    int status = 0;
    pthread_mutex_lock(&feed->lock);
    prune(feed);
    uni__mark *grown =
        uni__grown(feed->marks, feed->num_marks, &feed->marks_capacity, sizeof *grown);
    if (!grown) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to follow %s", feed->path);
    } else {
        feed->marks = grown;
        feed->marks[feed->num_marks++] = mark;
        pthread_cond_broadcast(&feed->changed);
    }
    pthread_mutex_unlock(&feed->lock);
    return status;
}

/* ---- lines by offset ---- */

#define READ_AHEAD (16 * 1024)

const char *uni__slice_get(uni__slice *slice, int fd, uint64_t offset, size_t size, uint64_t limit,
                           const char *path, uni_error *err)
{
    if (offset >= slice->offset && offset + size <= slice->offset + slice->size)
        return slice->data + (offset - slice->offset);
    size_t wanted = size > READ_AHEAD ? size : READ_AHEAD;
    if (offset + wanted > limit)
        wanted = (size_t)(limit - offset);
    if (wanted < size)
        wanted = size;
    if (slice->capacity < wanted) {
        size_t capacity = wanted > READ_AHEAD ? wanted : READ_AHEAD;
        char *grown = realloc(slice->data, capacity);
        if (grown == NULL) {
            uni_error_set(err, UNI_ENOMEM, "no memory to read %s", path);
            return NULL;
        }
        slice->data = grown;
        slice->capacity = capacity;
    }
    slice->offset = offset;
    slice->size = 0;
    while (slice->size < wanted) {
        ssize_t got = pread(fd, slice->data + slice->size, wanted - slice->size,
                            (off_t)(offset + slice->size));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        slice->size += (size_t)got;
    }
    if (slice->size >= size)
        return slice->data;
    slice->size = 0;
    uni_error_set(
        err, UNI_EIO,
        "%s ends before byte %llu although more was written: was it cut short by another program?",
        path, (unsigned long long)(offset + size));
    return NULL;
}

void uni__slice_free(uni__slice *slice)
{
    free(slice->data);
    *slice = (uni__slice){ 0 };
}

int uni__results_header(int fd, const char *path, int *world_size, uint64_t *first_line,
                        uni_error *err)
{
    char line[1024];
    ssize_t got;
    do {
        got = pread(fd, line, sizeof line, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return uni_error_set_errno(err, errno, "cannot read %s", path);
    char *end = got > 0 ? memchr(line, '\n', (size_t)got) : NULL;
    if (end == NULL)
        return uni_error_set(err, UNI_EFORMAT, "%s does not start with the line of a results file",
                             path);
    uni_value *header = NULL;
    uni_error ignored = { 0 };
    int status = uni_json_read(&header, line, (size_t)(end - line), &ignored);
    const char *format = uni_dict_get_string(header, "format", "");
    int64_t version = uni_dict_get_int(header, "version", 0);
    int64_t world = uni_dict_get_int(header, "world_size", 0);
    if (status < 0 || strcmp(format, UNI__RESULTS_FORMAT) != 0 || version < 1 || world < 1 ||
        world > 1000000)
        status = uni_error_set(err, UNI_EFORMAT, "%s is not a results file of unisono", path);
    else if (version > UNI__RESULTS_VERSION)
        status = uni_error_set(err, UNI_EVERSION,
                               "%s has version %lld, this program reads up to %d: use a newer one",
                               path, (long long)version, UNI__RESULTS_VERSION);
    uni_value_free(header);
    *world_size = (int)world;
    *first_line = (uint64_t)(end - line) + 1;
    return status;
}
