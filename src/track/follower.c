/*
 * follower.c - follows results.jsonl while it is written, and joins the ranks of each iteration.
 *
 * Lines are scanned once, in file order, and only their heads; each is queued on the lane of its
 * rank as (iteration, offset, size). Within an attempt a rank's iterations only increase. So an
 * iteration is complete when the last iteration seen of every awaited rank has reached it. No
 * per-iteration table is needed, ranks may be far apart (the controller drains one rank's ring at a
 * time), and memory is 24 bytes per waiting report. Values are built when the iteration is handed
 * out, from the scan buffer if the line is still in it, otherwise by reading it again from the page
 * cache.
 *
 * Scanning stops at the oldest complete iteration, so a slow consumer does not fill the lanes: the
 * file is the queue.
 *
 * Thread: one; uni__follower_wake from any.
 */
#include "track/results.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "track/feed.h"
#include "track/line.h"

#define SCAN_SIZE (256 * 1024)

typedef struct entry {
    int64_t iteration;
    uint64_t offset;
    uint32_t size, metrics; /* of the line without LF; where its metrics start */
} entry;

/* What is known of one rank in the current attempt. */
typedef struct lane {
    entry *ring;
    uint32_t capacity, head, count; /* capacity is a power of two */
    int64_t last; /* highest iteration seen, 0: none */
    uint64_t reports;
    bool ended, behind, named;
    uni__slice slice;
} lane;

struct uni__follower {
    uni__feed *feed;
    int fd;
    uni__follower_limits limits;
    uint64_t next_mark; /* the next mark; read by the feed under its lock */
    bool woken; /* guarded by the feed's lock */
    bool ended; /* set by uni__follower_end */

    /* The scan: data holds file bytes from `offset`; `at` is where the next line starts in it. */
    char *data;
    size_t size, at, capacity;
    /* limit: do not scan further without asking the feed (a mark, or the visible end). */
    uint64_t offset, limit;

    int attempt;
    int64_t given; /* highest iteration handed out in this attempt */
    int blocker; /* a rank that the oldest iteration waits for; -1: not known */
    uint64_t blocked_since; /* monotonic ns, 0: not blocked */
    bool full; /* a lane is full */
    lane *lanes;
    uni_value **values;
    uni_reports reports;
    uint64_t damaged;
    char warning[512];
};

void uni__follower_limits_set(uni__follower *f, const uni__follower_limits *limits)
{
    f->limits.patience_ms = limits->patience_ms == 0 ? 5000 : limits->patience_ms;
    f->limits.window = limits->window == 0 ? 256 : limits->window;
    f->limits.window_ms = limits->window_ms == 0 ? 1000 : limits->window_ms;
    f->limits.most = limits->most == 0 ? 65536 : limits->most;
}

static int add_follower(uni__feed *feed, uni__follower *f, uni_error *err)
{
    pthread_mutex_lock(&feed->lock);
    for (int i = 0; i < UNI__FEED_FOLLOWERS && f->feed == NULL; i++) {
        if (feed->followers[i] != NULL)
            continue;
        feed->followers[i] = &f->next_mark;
        f->next_mark = feed->first_mark + feed->num_marks;
        f->offset = f->limit = feed->visible;
        feed->references++;
        f->feed = feed;
    }
    pthread_mutex_unlock(&feed->lock);
    if (f->feed != NULL)
        return 0;
    return uni_error_set(err, UNI_ELIMIT, "%s has %d followers already", feed->path,
                         UNI__FEED_FOLLOWERS);
}

int uni__follower_new(uni__follower **out, uni__results_writer *writer, uni_error *err)
{
    uni__feed *feed = uni__results_writer_feed(writer);
    int world_size = feed->world_size;
    int status = 0;
    *out = NULL;
    uni__follower *f = calloc(1, sizeof *f);
    if (f == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to follow %s", feed->path);
    f->blocker = -1;
    f->fd = open(feed->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (f->fd < 0) {
        status = uni_error_set_errno(err, errno, "cannot follow the reports in %s", feed->path);
        goto fail;
    }
    uni__follower_limits_set(f, &(uni__follower_limits){ 0 });
    f->lanes = calloc((size_t)world_size, sizeof *f->lanes);
    f->values = calloc((size_t)world_size, sizeof *f->values);
    f->capacity = SCAN_SIZE;
    f->data = malloc(f->capacity);
    if (f->lanes == NULL || f->values == NULL || f->data == NULL) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to follow %s", feed->path);
        goto fail;
    }
    f->reports.world_size = world_size;
    f->reports.by_rank = (const uni_value *const *)f->values;
    UNI_TRY_GOTO(add_follower(feed, f, err), fail);
    *out = f;
    return 0;
fail:
    uni__follower_free(f);
    return status;
}

static void free_values(uni__follower *f)
{
    for (int rank = 0; rank < f->reports.world_size && f->values != NULL; rank++) {
        uni_value_free(f->values[rank]);
        f->values[rank] = NULL;
    }
}

void uni__follower_free(uni__follower *f)
{
    if (f == NULL)
        return;
    if (f->feed != NULL) {
        pthread_mutex_lock(&f->feed->lock);
        for (int i = 0; i < UNI__FEED_FOLLOWERS; i++)
            if (f->feed->followers[i] == &f->next_mark)
                f->feed->followers[i] = NULL;
        pthread_mutex_unlock(&f->feed->lock);
    }
    free_values(f);
    for (int rank = 0; f->lanes != NULL && rank < f->reports.world_size; rank++) {
        free(f->lanes[rank].ring);
        uni__slice_free(&f->lanes[rank].slice);
    }
    if (f->fd >= 0)
        close(f->fd);
    uni__feed_unref(f->feed);
    free(f->lanes);
    free(f->values);
    free(f->data);
    free(f);
}

void uni__follower_wake(uni__follower *f)
{
    pthread_mutex_lock(&f->feed->lock);
    f->woken = true;
    pthread_cond_broadcast(&f->feed->changed);
    pthread_mutex_unlock(&f->feed->lock);
}

void uni__follower_end(uni__follower *f)
{
    f->ended = true;
}

char *uni__follower_missing_warning(uni__follower *f)
{
    return f->warning;
}

/* ---- lanes ---- */

static void begin_attempt(uni__follower *f, int attempt)
{
    for (int rank = 0; rank < f->reports.world_size; rank++) {
        lane *l = &f->lanes[rank];
        l->head = l->count = 0;
        l->last = 0;
        l->reports = 0;
        l->ended = l->behind = false;
    }
    f->attempt = attempt;
    f->given = 0;
    f->blocker = -1;
    f->blocked_since = 0;
    f->full = false;
}

static int lane_push(uni__follower *f, lane *l, entry e, uni_error *err)
{
    if (l->count == l->capacity) {
        uint32_t capacity = l->capacity == 0 ? 16 : 2 * l->capacity;
        entry *grown = malloc(capacity * sizeof *grown);
        if (grown == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory to join the reports of %s",
                                 f->feed->path);
        for (uint32_t i = 0; i < l->count; i++)
            grown[i] = l->ring[(l->head + i) & (l->capacity - 1)];
        free(l->ring);
        l->ring = grown;
        l->capacity = capacity;
        l->head = 0;
    }
    l->ring[(l->head + l->count++) & (l->capacity - 1)] = e;
    return 0;
}

static entry *lane_head(lane *l)
{
    return l->count == 0 ? NULL : &l->ring[l->head];
}

static void lane_pop(lane *l)
{
    l->head = (l->head + 1) & (l->capacity - 1);
    l->count--;
}

static bool waited_for(const lane *l)
{
    return !l->ended && !l->behind;
}

/* The oldest waiting iteration, 0: none. */
static int64_t oldest(uni__follower *f)
{
    int64_t found = 0;
    for (int rank = 0; rank < f->reports.world_size; rank++) {
        entry *head = lane_head(&f->lanes[rank]);
        if (head != NULL && (found == 0 || head->iteration < found))
            found = head->iteration;
    }
    return found;
}

static bool complete(uni__follower *f, int64_t iteration)
{
    if (f->blocker >= 0 && waited_for(&f->lanes[f->blocker]) &&
        f->lanes[f->blocker].last < iteration)
        return false;
    f->blocker = -1;
    for (int rank = 0; rank < f->reports.world_size; rank++) {
        if (waited_for(&f->lanes[rank]) && f->lanes[rank].last < iteration) {
            f->blocker = rank;
            return false;
        }
    }
    return true;
}

/* Names the ranks that are no longer waited for: "rank 2" or "ranks 1, 2, 5 and 60 more". */
static void name_ranks(uni__follower *f, const int *ranks, int count, int64_t iteration,
                       int64_t latest)
{
    char list[120];
    size_t used = 0;
    const int shown = count < 8 ? count : 8;
    for (int i = 0; i < shown; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, i == 0 ? "%d" : ", %d", ranks[i]);
    if (count > shown)
        snprintf(list + used, sizeof list - used, " and %d more", count - shown);
    snprintf(f->warning, sizeof f->warning,
             "rank%s %s reported less than iteration %lld while others are at %lld: reports are "
             "shown without %s "
             "until %s up (results.jsonl has every report)",
             count == 1 ? "" : "s", list, (long long)iteration, (long long)latest,
             count == 1 ? "it" : "them", count == 1 ? "it catches" : "they catch");
}

/* Stops waiting for ranks that have not reported `iteration`; with silent_only, for ranks that have
 * not reported at all. */
static bool give_up(uni__follower *f, int64_t iteration, int64_t latest, bool silent_only)
{
    int named[64], num_named = 0;
    bool any = false;
    for (int rank = 0; rank < f->reports.world_size; rank++) {
        lane *l = &f->lanes[rank];
        if (!waited_for(l) || l->last >= iteration || (silent_only && l->last > 0))
            continue;
        l->behind = any = true;
        if (!l->named && num_named < 64)
            named[num_named++] = rank;
        l->named = true;
    }
    if (num_named > 0)
        name_ranks(f, named, num_named, iteration, latest);
    if (any) {
        f->blocker = -1;
        f->blocked_since = 0;
    }
    return any;
}

/* ---- scanning ---- */

static int take_line(uni__follower *f, const char *line, size_t size, uint64_t offset,
                     uni_error *err)
{
    uni__line_head head;
    if (uni__line_head_parse(line, size, &head) < 0 || head.rank >= f->reports.world_size ||
        head.iteration < 1 || size > UINT32_MAX) {
        if (f->damaged++ == 0)
            uni__warn("%s: a line at byte %llu is not a report and is left out", f->feed->path,
                      (unsigned long long)offset);
        return 0;
    }
    if (head.attempt > f->attempt)
        begin_attempt(f, head.attempt);
    lane *l = &f->lanes[head.rank];
    if (head.attempt < f->attempt || head.iteration <= l->last)
        return 0;
    l->last = head.iteration;
    l->reports++;
    l->ended = false; /* a worker that left its group is there again */
    /* The iteration was handed out without this rank, which was named then. */
    if (head.iteration <= f->given)
        return 0;
    l->behind = false;
    UNI_TRY(lane_push(
        f, l, (entry){ head.iteration, offset, (uint32_t)size, (uint32_t)head.metrics }, err));
    if (f->limits.most > 0 && l->count >= (uint32_t)f->limits.most)
        f->full = true;
    return 0;
}

static int refill(uni__follower *f, uni_error *err)
{
    size_t left = f->size - f->at;
    memmove(f->data, f->data + f->at, left);
    f->offset += f->at;
    f->at = 0;
    f->size = left;
    if (left == f->capacity) { /* one line is longer than the buffer */
        char *grown = realloc(f->data, 2 * f->capacity);
        if (grown == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a long line of %s", f->feed->path);
        f->data = grown;
        f->capacity *= 2;
    }
    uint64_t missing = f->limit - f->offset - f->size;
    size_t wanted = f->capacity - f->size;
    if (wanted > missing)
        wanted = (size_t)missing;
    ssize_t got;
    do {
        got = pread(f->fd, f->data + f->size, wanted, (off_t)(f->offset + f->size));
    } while (got < 0 && errno == EINTR);
    if (got <= 0)
        return uni_error_set_errno(err, got < 0 ? errno : EIO, "cannot read on in %s at byte %llu",
                                   f->feed->path, (unsigned long long)(f->offset + f->size));
    f->size += (size_t)got;
    return 0;
}

/* Scans one line. Returns 1, or 0 at the limit. */
static int scan_line(uni__follower *f, uni_error *err)
{
    while (f->offset + f->at < f->limit) {
        char *start = f->data + f->at;
        char *lf = memchr(start, '\n', f->size - f->at);
        if (lf != NULL) {
            uint64_t offset = f->offset + f->at;
            f->at = (size_t)(lf - f->data) + 1;
            UNI_TRY(take_line(f, start, (size_t)(lf - start), offset, err));
            return 1;
        }
        UNI_TRY(refill(f, err));
    }
    return 0;
}

static void apply(uni__follower *f, uni__mark mark)
{
    if (mark.kind == UNI__MARK_ATTEMPT && mark.value > f->attempt)
        begin_attempt(f, mark.value);
    else if (mark.kind == UNI__MARK_RANK_ENDED && mark.value >= 0 &&
             mark.value < f->reports.world_size)
        f->lanes[mark.value].ended = true;
}

/* At the limit: applies one mark at this position (what it completes is handed out before the next
 * mark), or moves the limit. Returns 1 if there is something new, 0 if not, UNI_EEND if there never
 * will be. */
static int move_limit(uni__follower *f)
{
    uint64_t here = f->offset + f->at;
    uni__feed *feed = f->feed;
    bool marked = false;
    uni__mark mark = { 0 };
    pthread_mutex_lock(&feed->lock);
    uint64_t limit = feed->visible;
    if (f->next_mark < feed->first_mark + feed->num_marks) {
        mark = feed->marks[f->next_mark - feed->first_mark];
        marked = mark.offset <= here;
        if (marked)
            f->next_mark++;
        if (mark.offset < limit)
            limit = mark.offset;
    }
    bool over = feed->closed || f->ended;
    pthread_mutex_unlock(&feed->lock);
    f->limit = limit;
    if (marked)
        apply(f, mark);
    if (marked || limit > here)
        return 1;
    return over ? UNI_EEND : 0;
}

/* ---- handing out ---- */

static int build_value(uni__follower *f, int rank, const entry *e, uni_error *err)
{
    const char *line;
    if (e->offset >= f->offset && e->offset + e->size <= f->offset + f->size)
        line = f->data + (e->offset - f->offset);
    else
        line = uni__slice_get(&f->lanes[rank].slice, f->fd, e->offset, e->size, f->limit,
                              f->feed->path, err);
    if (line == NULL)
        return UNI_EIO;
    uni__line_head head = { f->attempt, rank, e->iteration, e->metrics };
    uni_error failure = { 0 };
    int status = uni__line_metrics(line, e->size, &head, &f->values[rank], &failure);
    if (status == UNI_EFORMAT) { /* the rank counts as missing */
        if (f->damaged++ == 0)
            uni__warn("%s: %s", f->feed->path, failure.message);
        return 0;
    }
    return status < 0 ? uni_error_set(err, status, "%s", failure.message) : 0;
}

static int hand_out(uni__follower *f, int64_t iteration, const uni_reports **out, uni_error *err)
{
    free_values(f);
    for (int rank = 0; rank < f->reports.world_size; rank++) {
        entry *head = lane_head(&f->lanes[rank]);
        if (head == NULL || head->iteration != iteration)
            continue;
        UNI_TRY(build_value(f, rank, head, err));
        lane_pop(&f->lanes[rank]);
    }
    f->given = iteration;
    f->blocked_since = 0;
    f->full = false;
    f->reports.iteration = iteration;
    f->reports.attempt = f->attempt;
    *out = &f->reports;
    return 1;
}

static int64_t newest(uni__follower *f)
{
    int64_t found = 0;
    for (int rank = 0; rank < f->reports.world_size; rank++)
        if (f->lanes[rank].last > found)
            found = f->lanes[rank].last;
    return found;
}

/* At the end of the written data, with the oldest iteration incomplete: has it waited long enough?
 * If not, *next is when to check again (monotonic ns). */
static bool out_of_patience(uni__follower *f, int64_t iteration, uint64_t now, uint64_t *next)
{
    int64_t latest = newest(f);
    if (f->blocked_since == 0)
        f->blocked_since = now;
    uint64_t silent = f->blocked_since + (uint64_t)f->limits.patience_ms * 1000000;
    uint64_t window = f->blocked_since + (uint64_t)f->limits.window_ms * 1000000;
    bool window_is_full = f->limits.window > 0 && latest - iteration + 1 >= f->limits.window;
    if (window_is_full && f->limits.window_ms >= 0) {
        if (now >= window)
            return give_up(f, iteration, latest, false);
        *next = window;
    }
    if (f->limits.patience_ms >= 0 && f->lanes[f->blocker].last == 0) {
        if (now >= silent)
            return give_up(f, iteration, latest, true);
        *next = silent < *next ? silent : *next;
    }
    return false;
}

/* Sleeps until the feed changes, a wake-up, or `until` (monotonic ns). Returns true after
 * uni__follower_wake. */
static bool sleep_until(uni__follower *f, uint64_t until)
{
    uni__feed *feed = f->feed;
    struct timespec time = { (time_t)(until / 1000000000), (long)(until % 1000000000) };
    pthread_mutex_lock(&feed->lock);
    int timed_out = 0;
    while (!f->woken && !feed->closed && feed->visible == f->limit &&
           f->next_mark == feed->first_mark + feed->num_marks && timed_out == 0)
        timed_out = until == UINT64_MAX
                        ? pthread_cond_wait(&feed->changed, &feed->lock)
                        : pthread_cond_timedwait(&feed->changed, &feed->lock, &time);
    bool woken = f->woken;
    f->woken = false;
    pthread_mutex_unlock(&feed->lock);
    return woken;
}

/* Scans until the oldest iteration is complete (1), there is no more data (0), or the end
 * (UNI_EEND). */
static int scan(uni__follower *f, int64_t *iteration, uni_error *err)
{
    for (;;) {
        *iteration = oldest(f);
        if (*iteration > 0 && complete(f, *iteration))
            return 1;
        if (*iteration > 0 && f->full && give_up(f, *iteration, newest(f), false))
            continue;
        /* Only lines of the blocking rank, or the end of the data, can change the answer. */
        int more;
        do {
            more = scan_line(f, err);
        } while (more == 1 && f->blocker >= 0 &&
                 f->lanes[f->blocker].last<*iteration && * iteration> 0 && !f->full);
        if (more < 0)
            return more;
        if (more == 0) {
            more = move_limit(f);
            if (more != 1 && oldest(f) == *iteration)
                return more;
        }
    }
}

int uni__follower_next(uni__follower *f, int timeout_ms, const uni_reports **out, uni_error *err)
{
    *out = NULL;
    uint64_t start = uni__monotonic_ns();
    uint64_t deadline = timeout_ms < 0 ? UINT64_MAX : start + (uint64_t)timeout_ms * 1000000;
    for (;;) {
        int64_t iteration = 0;
        int status = scan(f, &iteration, err);
        if (status == 1 || (status == UNI_EEND && iteration > 0))
            return hand_out(f, iteration, out, err);
        if (status < 0)
            return status;
        uint64_t now = uni__monotonic_ns(), until = deadline;
        if (iteration > 0 && out_of_patience(f, iteration, now, &until))
            continue;
        if (now >= deadline || sleep_until(f, until))
            return 0;
    }
}

int uni__follower_uneven(uni__follower *f, char *sentence, size_t size)
{
    int most = 0, least = 0;
    for (int rank = 1; rank < f->reports.world_size; rank++) {
        if (f->lanes[rank].reports > f->lanes[most].reports)
            most = rank;
        if (f->lanes[rank].reports < f->lanes[least].reports)
            least = rank;
    }
    if (f->lanes[most].reports == f->lanes[least].reports)
        return 0;
    snprintf(sentence, size,
             "rank %d reported %llu times and rank %d %llu times: in this mode every rank must "
             "call report equally often",
             most, (unsigned long long)f->lanes[most].reports, least,
             (unsigned long long)f->lanes[least].reports);
    return 1;
}
