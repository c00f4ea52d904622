/*
 * persist.c - completing checkpoints without stopping training.
 *
 * The controller thread decides (which parts belong together, when all live ranks have passed the iteration), the persist
 * thread (persist_thread.c) does what touches the disk. A worker gets its buffer and its turn back when its part is in the staging directory. This file is
 * the controller thread's side.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/dict.h"
#include "train/persist.h"

static void no_memory(uni__persist *persist)
{
    uni__run_fatal(persist->run, UNI__CAUSE_INTERNAL,
                   &(uni_error){ .code = UNI_ENOMEM, .message = "no memory to keep a checkpoint" });
}

static uni__persist_job *new_job(uni__persist_job request)
{
    uni__persist_job *item = malloc(sizeof *item);
    if (item) {
        *item = request;
        item->next = NULL;
    }
    return item;
}

static void enqueue(uni__persist *persist, uni__persist_job *item)
{
    pthread_mutex_lock(&persist->lock);
    if (persist->last)
        persist->last->next = item;
    else
        persist->first = item;
    persist->last = item;
    pthread_cond_signal(&persist->more);
    pthread_mutex_unlock(&persist->lock);
}

static void ask(uni__persist *persist, uni__persist_job request)
{
    uni__persist_job *item = new_job(request);
    if (item)
        enqueue(persist, item);
    else
        no_memory(persist);
}

const uni__checkpoint_info *uni__persist_latest(const uni__persist *persist)
{
    return persist->run->v1 ? uni__store_latest(persist->store) : uni__store_resume(persist->store);
}

/* ---- for the controller thread ---- */

int uni__persist_start(uni__persist **out, uni__run *run, uni_error *err)
{
    *out = NULL;
    uni__persist *persist = calloc(1, sizeof *persist);
    if (!persist)
        return uni_error_set(err, UNI_ENOMEM, "no memory for checkpoints");
    persist->run = run;
    persist->memory_fd = -1;
    pthread_mutex_init(&persist->lock, NULL);
    pthread_cond_init(&persist->more, NULL);
    int status = uni__store_open(&persist->store,
                                 &(uni__store_options){ .run_dir = run->dir,
                                                        .policy = &run->policy,
                                                        .completed = uni__persist_note_completed,
                                                        .removed = uni__persist_note_removed,
                                                        .context = persist },
                                 err);
    int error =
        status < 0 ? 0 : pthread_create(&persist->thread, NULL, uni__persist_thread, persist);
    if (error) {
        status = uni_error_set_errno(err, error, "cannot start the checkpoint thread");
        uni__store_close(persist->store, true);
    }
    if (status < 0) {
        free(persist);
        return status;
    }
    const char *staging = uni__store_staging_dir(persist->store);
    run->staging_dir = strdup(staging);
    const uni__checkpoint_info *latest = uni__persist_latest(persist),
                               *best = uni__store_best(persist->store);
    snprintf(run->latest_path, sizeof run->latest_path, "%s", latest ? latest->path : "");
    snprintf(run->best_path, sizeof run->best_path, "%s", best ? best->path : "");
    *out = persist;
    return 0;
}

static bool add_rank(uni__persist_checkpoint *checkpoint, int rank)
{
    int *grown =
        realloc(checkpoint->ranks, ((size_t)checkpoint->num_ranks + 1) * sizeof *checkpoint->ranks);
    if (!grown)
        return false;
    checkpoint->ranks = grown;
    checkpoint->ranks[checkpoint->num_ranks++] = rank;
    return true;
}

/* The checkpoint of that iteration that still gathers parts, or a new one. */
static uni__persist_checkpoint *gather(uni__persist *persist, int rank, int64_t iteration,
                                       bool alone)
{
    for (uni__persist_checkpoint *at = persist->waiting; at && !alone; at = at->next)
        if (at->iteration == iteration && !at->alone) {
            if (rank < at->metrics_rank)
                at->metrics_rank = rank;
            return add_rank(at, rank) ? at : NULL;
        }
    uni__persist_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint || !add_rank(checkpoint, rank)) {
        free(checkpoint);
        return NULL;
    }
    checkpoint->memory_fd = -1;
    checkpoint->iteration = iteration;
    checkpoint->attempt = persist->run->attempt;
    checkpoint->alone = alone;
    checkpoint->metrics_rank = rank;
    checkpoint->timestamp = uni__wall_seconds();
    if (!alone) {
        checkpoint->next = persist->waiting;
        persist->waiting = checkpoint;
    }
    return checkpoint;
}

static void add(uni__persist *persist, uni__persist_job request, int64_t iteration, bool alone)
{
    request.attempt = persist->run->attempt;
    request.checkpoint = gather(persist, request.rank, iteration, alone);
    uni__persist_job *part = new_job(request), *commit = NULL;
    if (alone)
        commit = new_job(
            (uni__persist_job){ .kind = UNI__PERSIST_COMMIT, .checkpoint = request.checkpoint });
    if (!request.checkpoint || !part || (alone && !commit) ||
        (request.kind == UNI__PERSIST_ADD_DIRECTORY && !request.path)) {
        no_memory(persist);
        if (alone && request.checkpoint) { /* has nothing yet; others are in the list */
            free(request.checkpoint->ranks);
            free(request.checkpoint);
        }
        free(request.path);
        free(part);
        free(commit);
        return;
    }
    enqueue(persist, part);
    if (commit)
        enqueue(persist, commit);
}

void uni__persist_add_dict(uni__persist *persist, int rank, int64_t iteration, bool alone, int slot,
                           const void *memory, size_t size)
{
    add(persist,
        (uni__persist_job){ .kind = UNI__PERSIST_ADD_DICT,
                            .rank = rank,
                            .slot = slot,
                            .memory = memory,
                            .size = size },
        iteration, alone);
}

void uni__persist_add_directory(uni__persist *persist, int rank, int64_t iteration, bool alone,
                                const char *path, bool copy)
{
    add(persist,
        (uni__persist_job){ .kind = UNI__PERSIST_ADD_DIRECTORY,
                            .rank = rank,
                            .slot = -1,
                            .path = strdup(path),
                            .copy = copy },
        iteration, alone);
}

static bool has_passed(const uni__run *run, int rank, int64_t iteration)
{
    return run->ranks[rank].state == UNI__RANK_DONE || run->ranks[rank].iteration >= iteration ||
           uni__run_is_member(run, rank);
}

static bool all_passed(const uni__run *run, int64_t iteration)
{
    for (int i = 0; i < run->num_workers; i++)
        if (!has_passed(run, i, iteration))
            return false;
    return true;
}

void uni__persist_moved(uni__persist *persist, int rank, int64_t iteration, const void *metrics,
                        size_t size)
{
    for (uni__persist_checkpoint **link = &persist->waiting; *link;) {
        uni__persist_checkpoint *checkpoint = *link;
        if (metrics && checkpoint->iteration == iteration && checkpoint->metrics_rank == rank) {
            free(checkpoint->metrics);
            checkpoint->metrics = malloc(size);
            checkpoint->metrics_size = size;
            if (checkpoint->metrics)
                memcpy(checkpoint->metrics, metrics, size);
        }
        if (!all_passed(persist->run, checkpoint->iteration)) {
            link = &checkpoint->next;
            continue;
        }
        *link = checkpoint->next;
        ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_COMMIT, .checkpoint = checkpoint });
    }
}

bool uni__persist_is_waiting(const uni__persist *persist)
{
    return persist->waiting != NULL;
}

/* The first rank that has not reported that iteration; only_gone: and never will. -1: none. */
static int missing_rank(const uni__run *run, int64_t iteration, bool only_gone)
{
    for (int i = 0; i < run->num_workers; i++) {
        const uni__rank *rank = &run->ranks[i];
        bool gone = rank->state == UNI__RANK_GONE || rank->failed || !rank->pid ||
                    rank->stopped_ns || rank->warned_silent || rank->host_silent;
        if (!has_passed(run, i, iteration) && (gone || !only_gone))
            return i;
    }
    return -1;
}

int uni__persist_waits_for(const uni__persist *persist, int64_t *iteration, int *from)
{
    const uni__persist_checkpoint *oldest = NULL;
    for (const uni__persist_checkpoint *at = persist->waiting; at; at = at->next)
        if (!oldest || at->iteration < oldest->iteration)
            oldest = at;
    if (!oldest)
        return -1;
    *iteration = oldest->iteration;
    *from = oldest->ranks[0];
    return missing_rank(persist->run, oldest->iteration, false);
}

bool uni__persist_can_complete(const uni__persist *persist)
{
    for (uni__persist_checkpoint *at = persist->waiting; at; at = at->next)
        if (missing_rank(persist->run, at->iteration, true) < 0)
            return true;
    return false;
}

void uni__persist_give_up(uni__persist *persist)
{
    for (uni__persist_checkpoint *checkpoint = persist->waiting; checkpoint;) {
        uni__persist_checkpoint *next = checkpoint->next;
        int rank = missing_rank(persist->run, checkpoint->iteration, false);
        uni__run_tell(persist->run, UNI_EVENT_WARNING, rank,
                      "the checkpoint of iteration %lld is not complete and is dropped: rank %d "
                      "did not report that iteration",
                      (long long)checkpoint->iteration, rank);
        ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_GIVE_UP, .checkpoint = checkpoint });
        checkpoint = next;
    }
    persist->waiting = NULL;
}

void uni__persist_find_resume(uni__persist *persist)
{
    ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_FIND_RESUME });
}

void uni__persist_newest(uni__persist *persist, int rank, uint32_t serial)
{
    ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_NEWEST,
                                     .rank = rank,
                                     .serial = serial,
                                     .attempt = persist->run->attempt });
}

void uni__persist_unpin(uni__persist *persist)
{
    persist->run->pinned = false;
    ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_UNPIN });
}

void uni__persist_flush(uni__persist *persist)
{
    ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_FLUSH });
}

static uni_value *last_dict(uni__persist *persist)
{
    uni_value *dict = NULL;
    if (persist->memory_fd >= 0) {
        off_t size = lseek(persist->memory_fd, 0, SEEK_END);
        void *memory = size > 0
                           ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, persist->memory_fd, 0)
                           : MAP_FAILED;
        if (memory != MAP_FAILED) {
            if (uni__dict_decode(&dict, memory, (size_t)size, NULL) < 0)
                dict = NULL;
            munmap(memory, (size_t)size);
        }
        return dict;
    }
    const uni__checkpoint_info *newest = uni__store_resume(persist->store);
    uni_checkpoint *checkpoint = NULL;
    if (newest && uni_checkpoint_open(&checkpoint, newest->path, NULL) == 0 &&
        uni_checkpoint_is_dict(checkpoint) && uni_checkpoint_read_dict(checkpoint, &dict, NULL) < 0)
        dict = NULL;
    uni_checkpoint_close(checkpoint);
    return dict;
}

void uni__persist_end(uni__persist *persist, bool keep_recovery, uni_value **latest_dict)
{
    if (!persist)
        return;
    ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_QUIT });
    pthread_join(persist->thread, NULL);
    *latest_dict = persist->run->v1 || persist->memory_fd >= 0 ? last_dict(persist) : NULL;
    persist->run->kept = uni__store_ranking(persist->store);
    uni__store_close(persist->store, keep_recovery);
    if (persist->memory_fd >= 0)
        close(persist->memory_fd);
    pthread_cond_destroy(&persist->more);
    pthread_mutex_destroy(&persist->lock);
    free(persist);
}
