/* remote_words.c - the words of a page as they travel between hosts (remote.h). Pure functions on
 * one page; any thread. */
#include <string.h>

#include "group/remote.h"

bool uni__remote_path_is_safe(const char *path, size_t size)
{
    size_t start = 0;
    if (size == 0 || size > UNI__REMOTE_PATH_MAX)
        return false;
    for (size_t i = 0; i <= size; i++) {
        if (i < size && (unsigned char)path[i] < 0x20)
            return false;
        if (i < size && path[i] != '/')
            continue;
        size_t length = i - start;
        if (length == 0 || (length == 1 && path[start] == '.') ||
            (length == 2 && path[start] == '.' && path[start + 1] == '.'))
            return false;
        start = i + 1;
    }
    return true;
}

bool uni__worker_words_read(uni__page *page, uni__worker_words *now, const uni__worker_words *old)
{
    memset(now, 0, sizeof *now);
    now->owner = atomic_load(&page->owner);
    now->stop_request = atomic_load(&page->stop_request);
    now->stop_seen = atomic_load(&page->stop_seen);
    now->loaded = atomic_load(&page->loaded);
    now->no_steps = atomic_load(&page->no_steps);
    now->replaceable = atomic_load(&page->replaceable);
    now->fixed = atomic_load(&page->fixed);
    now->joined = atomic_load(&page->joined);
    now->awaits = atomic_load(&page->awaits);
    now->ending = atomic_load(&page->ending);
    now->left = atomic_load(&page->left);
    now->checkpoints_taken = atomic_load(&page->checkpoints_taken);
    now->waited_ns = atomic_load(&page->waited_ns);
    now->heartbeat = atomic_load(&page->heartbeat);
    /* `stopping` before the iteration: a rank whose iteration is not counted here waits for stop_at
     * (train/stop.c). */
    now->saw_stopping = atomic_load(&page->stopping);
    now->iteration = atomic_load(&page->iteration);
    return memcmp(now, old, sizeof *now) != 0;
}

void uni__worker_words_apply(uni__page *page, const uni__worker_words *words)
{
    atomic_store(&page->stop_request, words->stop_request);
    atomic_store(&page->stop_seen, words->stop_seen);
    atomic_store(&page->loaded, words->loaded);
    atomic_store(&page->no_steps, words->no_steps);
    atomic_store(&page->replaceable, words->replaceable);
    atomic_store(&page->fixed, words->fixed);
    atomic_store(&page->joined, words->joined);
    atomic_store(&page->awaits, words->awaits);
    atomic_store(&page->ending, words->ending);
    atomic_store(&page->left, words->left);
    atomic_store(&page->checkpoints_taken, words->checkpoints_taken);
    atomic_store(&page->waited_ns, words->waited_ns);
    atomic_store(&page->heartbeat, words->heartbeat);
    atomic_store(&page->iteration, words->iteration);
    atomic_store(&page->owner, words->owner);
}

void uni__control_words_read(uni__page *page, uni__control_words *now)
{
    memset(now, 0, sizeof *now);
    now->stopping = atomic_load(&page->stopping);
    now->stop_at_known = atomic_load(&page->stop_at_known);
    now->stop_at = atomic_load(&page->stop_at);
    now->released = atomic_load(&page->released);
    now->checkpoints_done = atomic_load(&page->checkpoints_done);
    now->checkpoints_over = atomic_load(&page->checkpoints_over);
    now->suspect = atomic_load(&page->suspect);
    uni__members members; /* ours alone to write, so it does not change here */
    uni__page_members(page, &now->group, &members);
    now->num_members = members.count;
    memcpy(now->members, members.ranks, sizeof now->members);
    now->closed = atomic_load(&page->closed);
    now->leave = atomic_load(&page->leave);
    now->alarm = atomic_load(&page->alarm);
    if (now->alarm)
        memcpy(now->alarm_reason, page->alarm_reason, sizeof now->alarm_reason);
}

static void set_and_wake(_Atomic uint32_t *word, uint32_t value)
{
    if (atomic_exchange(word, value) != value)
        uni__futex_wake(word);
}

/* Groups may have been passed over on the way. A reader of the page expects them one by one. */
static void regroup(uni__page *page, const uni__control_words *words)
{
    uni__members members = { .count = words->num_members };
    uint32_t now = atomic_load(&page->group);
    if (words->group == now)
        return;
    if (words->group > now + 1)
        atomic_store(&page->group, words->group - 1);
    memcpy(members.ranks, words->members, sizeof members.ranks);
    uni__page_regroup(page, words->group, &members);
}

void uni__control_words_apply(uni__page *page, const uni__control_words *words,
                              const uni__control_words *before)
{
    if (words->alarm && !atomic_load(&page->alarm)) {
        memcpy(page->alarm_reason, words->alarm_reason, sizeof page->alarm_reason);
        page->alarm_reason[sizeof page->alarm_reason - 1] = '\0';
        atomic_store(&page->alarm, words->alarm);
    }
    atomic_store(&page->suspect, words->suspect);
    atomic_store(&page->leave, words->leave);
    regroup(page, words);
    set_and_wake(&page->closed, words->closed);
    atomic_store(&page->stopping, words->stopping);
    atomic_store(&page->stop_at, words->stop_at);
    set_and_wake(&page->stop_at_known, words->stop_at_known);
    set_and_wake(&page->released, words->released);
    set_and_wake(&page->checkpoints_done, words->checkpoints_done);
    set_and_wake(&page->checkpoints_over, words->checkpoints_over);
    for (int i = 0; i < 2; i++)
        if (words->freed[i] != before->freed[i])
            set_and_wake(&page->slot_free[i], 1);
}
