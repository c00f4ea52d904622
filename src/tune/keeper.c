/* keeper.c - the thread that completes trials' checkpoints; see keeper.h. */
#include "tune/keeper.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/dict.h"
#include "checkpoint/stage.h"
#include "checkpoint/store.h"

typedef enum job_kind { KEEP, CLOSE, QUIT } job_kind;

typedef struct job {
    struct job *next;
    job_kind kind;
    int64_t trial;
    char *run_dir;
    int attempt;
    uni__crew_event *event;
    uni_value *metrics;
} job;

typedef struct opened {
    struct opened *next;
    int64_t trial;
    uni__store *store;
} opened;

struct uni__keeper {
    uni__crew *crew;
    uni_checkpoint_policy policy;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;
    pthread_cond_t more;
    job *first, *last; /* protected by the lock */
    uni__kept *done_first, *done_last; /* protected by the lock */
    opened *stores; /* used only by the keeper's thread */
};

void uni__kept_free(uni__kept *kept)
{
    if (!kept)
        return;
    free(kept->path);
    free(kept->best);
    free(kept);
}

static void job_free(job *item)
{
    uni__crew_event_free(item->event);
    uni_value_free(item->metrics);
    free(item->run_dir);
    free(item);
}

static void enqueue(uni__keeper *keeper, job request)
{
    job *item = malloc(sizeof *item);
    if (!item) {
        uni__crew_event_free(request.event);
        uni_value_free(request.metrics);
        free(request.run_dir);
        return;
    }
    *item = request;
    pthread_mutex_lock(&keeper->lock);
    if (keeper->last)
        keeper->last->next = item;
    else
        keeper->first = item;
    keeper->last = item;
    pthread_cond_signal(&keeper->more);
    pthread_mutex_unlock(&keeper->lock);
}

/* ---- the keeper's thread ---- */

static int store_of(uni__keeper *keeper, const job *item, uni__store **out, uni_error *err)
{
    for (opened *at = keeper->stores; at; at = at->next)
        if (at->trial == item->trial) {
            *out = at->store;
            return 0;
        }
    opened *entry = calloc(1, sizeof *entry);
    if (!entry)
        return uni_error_set(err, UNI_ENOMEM, "no memory for checkpoints");
    int status = uni__make_dirs(item->run_dir, 0700, err);
    if (status == 0)
        status = uni__store_open(
            &entry->store,
            &(uni__store_options){ .run_dir = item->run_dir, .policy = &keeper->policy }, err);
    if (status < 0) {
        free(entry);
        return status;
    }
    entry->trial = item->trial;
    entry->next = keeper->stores;
    keeper->stores = entry;
    *out = entry->store;
    return 0;
}

/* Staged directories are in the experiment's staging area, because the trial's own directory is
 * created only now. */
static int add_directory(uni__store *store, uni__draft *draft, uni__crew_event *event,
                         uni_error *err)
{
    const char *name = strrchr(event->path, '/');
    const char *staging = uni__store_staging_dir(store);
    if (event->copy) {
        char *copy = NULL;
        UNI_TRY(uni__stage_copy(&copy, staging, 0, event->path, err));
        int status = uni__draft_take_directory(draft, 0, copy, err);
        free(copy);
        return status;
    }
    char *there = uni__path_join(staging, name ? name + 1 : event->path, NULL);
    int status = there ? uni__make_dirs(staging, 0700, err)
                       : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    if (status == 0)
        status = uni__rename(event->path, there, err);
    if (status == 0)
        status = uni__draft_take_directory(draft, 0, there, err);
    free(there);
    return status;
}

static int complete(uni__keeper *keeper, job *item, uni__kept *out, uni_error *err)
{
    uni__store *store = NULL;
    uni__draft *draft = NULL;
    uni__crew_event *event = item->event;
    uni_value *scores = NULL;
    uni__checkpoint_info info = { 0 };
    int status = store_of(keeper, item, &store, err);
    if (status == 0)
        status = uni__draft_new(&draft, store, event->iteration, item->attempt, err);
    if (status == 0 && event->path)
        status = add_directory(store, draft, event, err);
    else if (status == 0)
        status = uni__draft_add_dict(draft, 0, event->region->memory, event->size, err);
    if (status == 0 && !event->path && keeper->policy.score_attribute &&
        uni__dict_decode(&scores, event->region->memory, event->size, NULL) < 0)
        scores = NULL;
    uni__crew_taken(keeper->crew, event);
    if (status < 0) {
        uni__draft_abandon(draft);
    } else {
        uni__draft_take_state(draft, event->state, event->state_size);
        event->state = NULL;
        status = uni__draft_commit(draft, item->metrics, scores, uni__wall_seconds(), &info, err);
    }
    uni_value_free(scores);
    if (status < 0)
        return status;
    const uni__checkpoint_info *newest = uni__store_resume(store), *best = uni__store_best(store);
    out->number = info.number;
    out->iteration = event->iteration;
    out->path = newest ? strdup(newest->path) : NULL;
    out->best = best ? strdup(best->path) : NULL;
    return 0;
}

static void keep(uni__keeper *keeper, job *item)
{
    uni__kept *kept = calloc(1, sizeof *kept);
    if (!kept)
        return;
    kept->trial = item->trial;
    kept->error.code = complete(keeper, item, kept, &kept->error);
    uni__crew_over(keeper->crew, item->event);
    pthread_mutex_lock(&keeper->lock);
    if (keeper->done_last)
        keeper->done_last->next = kept;
    else
        keeper->done_first = kept;
    keeper->done_last = kept;
    pthread_mutex_unlock(&keeper->lock);
    uni__crew_wake(keeper->crew);
}

static void close_store(uni__keeper *keeper, int64_t trial)
{
    for (opened **link = &keeper->stores; *link; link = &(*link)->next)
        if ((*link)->trial == trial) {
            opened *gone = *link;
            *link = gone->next;
            uni__store_close(gone->store, true);
            free(gone);
            return;
        }
}

static void *keeper_thread(void *context)
{
    uni__keeper *keeper = context;
    for (bool quit = false; !quit;) {
        pthread_mutex_lock(&keeper->lock);
        while (!keeper->first)
            pthread_cond_wait(&keeper->more, &keeper->lock);
        job *item = keeper->first;
        if (!(keeper->first = item->next))
            keeper->last = NULL;
        pthread_mutex_unlock(&keeper->lock);
        if (item->kind == KEEP)
            keep(keeper, item);
        else if (item->kind == CLOSE)
            close_store(keeper, item->trial);
        quit = item->kind == QUIT;
        job_free(item);
    }
    return NULL;
}

/* ---- the tuner's thread ---- */

int uni__keeper_new(uni__keeper **out, uni__crew *crew, const uni_checkpoint_policy *policy,
                    uni_error *err)
{
    *out = NULL;
    uni__keeper *keeper = calloc(1, sizeof *keeper);
    if (!keeper)
        return uni_error_set(err, UNI_ENOMEM, "no memory for checkpoints");
    keeper->crew = crew;
    if (policy)
        keeper->policy = *policy;
    pthread_mutex_init(&keeper->lock, NULL);
    pthread_cond_init(&keeper->more, NULL);
    int error = pthread_create(&keeper->thread, NULL, keeper_thread, keeper);
    keeper->runs = error == 0;
    if (error) {
        uni__keeper_free(keeper);
        return uni_error_set_errno(err, error, "cannot start the checkpoint thread");
    }
    *out = keeper;
    return 0;
}

void uni__keeper_keep(uni__keeper *keeper, int64_t trial, const char *run_dir, int attempt,
                      uni__crew_event *checkpoint, uni_value *metrics)
{
    enqueue(keeper, (job){ .kind = KEEP,
                           .trial = trial,
                           .run_dir = strdup(run_dir),
                           .attempt = attempt,
                           .event = checkpoint,
                           .metrics = metrics });
}

void uni__keeper_close(uni__keeper *keeper, int64_t trial)
{
    enqueue(keeper, (job){ .kind = CLOSE, .trial = trial });
}

uni__kept *uni__keeper_next(uni__keeper *keeper)
{
    pthread_mutex_lock(&keeper->lock);
    uni__kept *kept = keeper->done_first;
    if (kept && !(keeper->done_first = kept->next))
        keeper->done_last = NULL;
    pthread_mutex_unlock(&keeper->lock);
    return kept;
}

void uni__keeper_free(uni__keeper *keeper)
{
    if (!keeper)
        return;
    if (keeper->runs) {
        enqueue(keeper, (job){ .kind = QUIT });
        pthread_join(keeper->thread, NULL);
    }
    while (keeper->stores)
        close_store(keeper, keeper->stores->trial);
    for (uni__kept *kept; (kept = uni__keeper_next(keeper));)
        uni__kept_free(kept);
    pthread_cond_destroy(&keeper->more);
    pthread_mutex_destroy(&keeper->lock);
    free(keeper);
}
