/*
 * feed.h - the state shared by a results writer and its followers: how much of the file may be
 * read, and the marks. For this module only. Reference-counted, so that a follower may outlive its
 * writer and vice versa. `lock` guards all fields below it.
 */
#ifndef UNISONO_TRACK_FEED_H
#define UNISONO_TRACK_FEED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "track/results.h"

typedef enum uni__mark_kind { UNI__MARK_RANK_ENDED, UNI__MARK_ATTEMPT } uni__mark_kind;

typedef struct uni__mark {
    uint64_t offset; /* in the file: applies after all lines that end at or before it */
    uni__mark_kind kind;
    int value; /* the rank, or the attempt */
} uni__mark;

#define UNI__FEED_FOLLOWERS 16

typedef struct uni__feed {
    char *path;
    int world_size;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* on the monotonic clock */
    int references;
    uint64_t visible; /* bytes of whole lines in the file */
    bool closed;
    uni__mark *marks; /* those that some follower has not passed yet */
    size_t num_marks, marks_capacity;
    uint64_t first_mark; /* number of marks[0], counted from the start */
    /* Each follower's next mark; NULL: free. */
    const uint64_t *followers[UNI__FEED_FOLLOWERS];
} uni__feed;

int uni__feed_new(uni__feed **out, const char *path, int world_size, uni_error *err) UNI_MUST_USE;
uni__feed *uni__results_writer_feed(uni__results_writer *writer); /* borrowed */
void uni__feed_unref(uni__feed *feed);
void uni__feed_publish(uni__feed *feed, uint64_t visible, bool closed);
int uni__feed_mark(uni__feed *feed, uni__mark mark, uni_error *err) UNI_MUST_USE;

/* ---- lines by offset ---- */

/* A piece of the file, read with pread and kept: the lines of one rank tend to be close
 * together. */
typedef struct uni__slice {
    char *data;
    uint64_t offset;
    size_t size, capacity;
} uni__slice;
/* Returns size bytes at offset, reading ahead up to `limit` (an offset). NULL with err set if the
 * file does not have them. */
const char *uni__slice_get(uni__slice *slice, int fd, uint64_t offset, size_t size, uint64_t limit,
                           const char *path, uni_error *err);
void uni__slice_free(uni__slice *slice);

#define UNI__RESULTS_FORMAT "unisono results"
#define UNI__RESULTS_VERSION 1
/* Checks line 1; returns the world size and the offset of line 2. */
int uni__results_header(int fd, const char *path, int *world_size, uint64_t *first_line,
                        uni_error *err) UNI_MUST_USE;

#endif
