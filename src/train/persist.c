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

/* ---- for the controller thread ---- */

int uni__persist_start(uni__persist **out, uni__run *run, uni_error *err)
{
    *out = NULL;
    uni__persist *persist = calloc(1, sizeof *persist);
    if (!persist)
        return uni_error_set(err, UNI_ENOMEM, "no memory for checkpoints");
    persist->run = run;
    persist->memory_fd = memfd_create("unisono-checkpoint", MFD_CLOEXEC);
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
        if (persist->memory_fd >= 0)
            close(persist->memory_fd);
        free(persist);
        return status;
    }
    const char *staging = uni__store_staging_dir(persist->store);
    run->staging_dir = strdup(staging);
    const uni__checkpoint_info *latest = uni__store_latest(persist->store),
                               *best = uni__store_best(persist->store);
    snprintf(run->latest_path, sizeof run->latest_path, "%s", latest ? latest->path : "");
    snprintf(run->best_path, sizeof run->best_path, "%s", best ? best->path : "");
    *out = persist;
    return 0;
}

/* The checkpoint of that iteration that still gathers parts, or a new one. */
static uni__persist_checkpoint *gather(uni__persist *persist, int rank, int64_t iteration,
                                       bool alone)
{
    for (uni__persist_checkpoint *at = persist->waiting; at && !alone; at = at->next)
        if (at->iteration == iteration && !at->alone) {
            if (rank < at->metrics_rank)
                at->metrics_rank = rank;
            return at;
        }
    uni__persist_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        return NULL;
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
        if (alone)
            free(request.checkpoint); /* has nothing yet; others are in the list */
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

static bool all_passed(const uni__run *run, int64_t iteration)
{
    for (int i = 0; i < run->num_workers; i++)
        if (run->ranks[i].state != UNI__RANK_DONE && run->ranks[i].iteration < iteration &&
            !uni__run_is_member(run, i))
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

void uni__persist_give_up(uni__persist *persist)
{
    for (uni__persist_checkpoint *checkpoint = persist->waiting; checkpoint;) {
        uni__persist_checkpoint *next = checkpoint->next;
        ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_GIVE_UP, .checkpoint = checkpoint });
        checkpoint = next;
    }
    persist->waiting = NULL;
}

void uni__persist_find_resume(uni__persist *persist)
{
    ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_FIND_RESUME });
}

void uni__persist_flush(uni__persist *persist)
{
    ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_FLUSH });
}

static uni_value *last_dict(uni__persist *persist)
{
    uni_value *dict = NULL;
    if (persist->has_memory) {
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
    *latest_dict = persist->run->v1 || persist->has_memory ? last_dict(persist) : NULL;
    uni__store_close(persist->store, keep_recovery);
    if (persist->memory_fd >= 0)
        close(persist->memory_fd);
    pthread_cond_destroy(&persist->more);
    pthread_mutex_destroy(&persist->lock);
    free(persist);
}
