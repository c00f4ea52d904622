/*
 * persist.c - completing checkpoints without stopping training.
 *
 * The controller thread decides (which parts belong together, when all live ranks have passed the iteration), the persist
 * thread does what touches the disk, one job after the other: write a part into the staging directory, commit, look for the checkpoint to
 * resume from. A worker gets its buffer and its turn back when its part is in the staging directory. Answers come back as posts to the
 * controller thread, which alone touches pages and the run's state.
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
#include "checkpoint/stage.h"
#include "checkpoint/store.h"
#include "train/run_internal.h"

#define VERIFY_MAX_BYTES (256u << 20) /* about 0.2 s */

/* One checkpoint on its way. Made by the controller thread; `draft`, `failed` and `scores` belong to the persist thread. */
typedef struct pending {
    struct pending *next; /* in the controller's list until it is committed or given up */
    int64_t iteration;
    int attempt, metrics_rank;
    bool alone;
    uint8_t *metrics; /* msgpack of metrics_rank's report, or NULL */
    size_t metrics_size;
    double timestamp;
    uni__draft *draft;
    uni_value *scores;
    bool failed;
} pending;

typedef enum job_kind {
    ADD_DICT,
    ADD_DIRECTORY,
    COMMIT,
    GIVE_UP,
    FIND_RESUME,
    FLUSH,
    QUIT
} job_kind;

typedef struct job {
    struct job *next;
    job_kind kind;
    pending *checkpoint;
    int rank, slot, attempt;
    const void *memory;
    size_t size;
    char *path;
    bool copy;
} job;

struct uni__persist {
    uni__run *run;
    uni__store *store;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    job *first, *last; /* with lock */
    pending *waiting; /* controller thread */
    int memory_fd; /* persist thread: the last dictionary when nothing is written, or -1 */
    bool has_memory;
    int64_t memory_iteration;
};

static void no_memory(uni__persist *persist)
{
    uni__run_fatal(persist->run, UNI__CAUSE_INTERNAL,
                   &(uni_error){ .code = UNI_ENOMEM, .message = "no memory to keep a checkpoint" });
}

static job *new_job(job request)
{
    job *item = malloc(sizeof *item);
    if (item) {
        *item = request;
        item->next = NULL;
    }
    return item;
}

static void enqueue(uni__persist *persist, job *item)
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

static void ask(uni__persist *persist, job request)
{
    job *item = new_job(request);
    if (item)
        enqueue(persist, item);
    else
        no_memory(persist);
}

/* ---- answers, on the controller thread ---- */

typedef struct answer {
    uni__run *run;
    int rank, slot, attempt;
    uni__cause_class kind;
    uni_error error;
    char path[4096], best[4096], sentence[512];
    int64_t number, iteration;
    int fd;
} answer;

static answer *new_answer(uni__persist *persist)
{
    answer *reply = calloc(1, sizeof *reply);
    if (reply) {
        reply->run = persist->run;
        reply->fd = -1;
    }
    return reply;
}

static void tell_part_done(void *argument)
{
    answer *reply = argument;
    uni__run *run = reply->run;
    uni__page *page = uni__group_page(run->group, reply->rank);
    if (page && reply->attempt == run->attempt) {
        if (reply->slot >= 0) {
            atomic_store(&page->slot_free[reply->slot], 1);
            uni__futex_wake(&page->slot_free[reply->slot]);
        }
        atomic_fetch_add(&page->checkpoints_done, 1);
        uni__futex_wake(&page->checkpoints_done);
    }
    free(reply);
}

static void tell_completed(void *argument)
{
    answer *reply = argument;
    uni__run *run = reply->run;
    snprintf(run->latest_path, sizeof run->latest_path, "%s", reply->path);
    snprintf(run->best_path, sizeof run->best_path, "%s", reply->best);
    run->latest_number = reply->number;
    if (reply->number > 0)
        uni__run_tell(run, UNI_EVENT_CHECKPOINT, -1, "%s",
                      reply->path[0] ? reply->path : "taken, and not kept by the policy");
    free(reply);
}

static void tell_fatal(void *argument)
{
    answer *reply = argument;
    uni__run_fatal(reply->run, reply->kind, &reply->error);
    free(reply);
}

static void tell_resume(void *argument)
{
    answer *reply = argument;
    uni__run_resume_known(reply->run, reply->path, reply->fd, reply->iteration, reply->sentence);
    free(reply);
}

static void tell_flushed(void *argument)
{
    uni__run_persisted(argument);
}

/* ---- the persist thread ---- */

static void failed(uni__persist *persist, pending *checkpoint, const uni_error *error)
{
    answer *reply = new_answer(persist);
    if (checkpoint)
        checkpoint->failed = true;
    if (!reply)
        return;
    reply->kind = error->code == UNI_EDISKFULL ? UNI__CAUSE_DISK_FULL : UNI__CAUSE_CHECKPOINT;
    reply->error = *error;
    uni__group_post(persist->run->group, tell_fatal, reply);
}

/* The scalars at the top of an encoded dictionary: where v1's policy looks for its score once the buffer is the worker's again. */
static uni_value *scalars_of(const void *encoded, size_t size)
{
    uni_value *out = uni_value_dict(), *view = NULL;
    if (uni__dict_view(&view, encoded, size, NULL) < 0)
        return out;
    for (size_t i = 0; i < uni_dict_size(view); i++) {
        const uni_value *entry = uni_dict_value_at(view, i);
        uni_value_type type = uni_value_type_of(entry);
        bool scalar =
            uni_value_is_number(entry) || type == UNI_TYPE_STRING || type == UNI_TYPE_NULL;
        if (uni_dict_take(out, uni_dict_key_at(view, i),
                          scalar ? uni_value_copy(entry) : uni_value_null()) < 0)
            break;
    }
    uni_value_free(view);
    return out;
}

static int keep_in_memory(uni__persist *persist, const job *request, uni_error *err)
{
    if (ftruncate(persist->memory_fd, 0) < 0 ||
        ftruncate(persist->memory_fd, (off_t)request->size) < 0)
        return uni_error_set_errno(err, errno, "cannot keep a checkpoint of %zu bytes in memory",
                                   request->size);
    for (size_t at = 0; at < request->size;) {
        ssize_t n = pwrite(persist->memory_fd, (const char *)request->memory + at,
                           request->size - at, (off_t)at);
        if (n < 0 && errno != EINTR)
            return uni_error_set_errno(
                err, errno, "cannot keep a checkpoint of %zu bytes in memory", request->size);
        at += n > 0 ? (size_t)n : 0;
    }
    persist->has_memory = true;
    persist->memory_iteration = request->checkpoint->iteration;
    return 0;
}

static int add_part(uni__persist *persist, const job *request, uni_error *err)
{
    pending *checkpoint = request->checkpoint;
    uni__run *run = persist->run;
    if (run->policy.num_to_keep == UNI_KEEP_NONE) {
        if (request->kind == ADD_DICT)
            return keep_in_memory(persist, request, err);
        return 0; /* .staging is removed with the run */
    }
    if (!checkpoint->draft)
        UNI_TRY(uni__draft_new(&checkpoint->draft, persist->store, checkpoint->iteration,
                               checkpoint->attempt, err));
    if (request->kind == ADD_DICT) {
        if (run->v1 && !checkpoint->scores)
            checkpoint->scores = scalars_of(request->memory, request->size);
        return uni__draft_add_dict(checkpoint->draft, request->rank, request->memory, request->size,
                                   err);
    }
    if (!request->copy)
        return uni__draft_take_directory(checkpoint->draft, request->rank, request->path, err);
    char *staged = NULL;
    UNI_TRY(uni__stage_copy(&staged, run->staging_dir, request->rank, request->path, err));
    int status = uni__draft_take_directory(checkpoint->draft, request->rank, staged, err);
    free(staged);
    return status;
}

static void do_add(uni__persist *persist, const job *request)
{
    uni_error err = { 0 };
    if (!request->checkpoint->failed && add_part(persist, request, &err) < 0)
        failed(persist, request->checkpoint, &err);
    answer *reply = new_answer(persist);
    if (!reply)
        return;
    reply->rank = request->rank;
    reply->slot = request->slot;
    reply->attempt = request->attempt;
    uni__group_post(persist->run->group, tell_part_done, reply);
}

static void free_pending(pending *checkpoint)
{
    uni_value_free(checkpoint->scores);
    free(checkpoint->metrics);
    free(checkpoint);
}

static void answer_completed(uni__persist *persist, const uni__checkpoint_info *info)
{
    answer *reply = new_answer(persist);
    if (!reply)
        return;
    const uni__checkpoint_info *latest = uni__store_latest(persist->store),
                               *best = uni__store_best(persist->store);
    reply->number = info ? info->number : 0;
    reply->iteration = info ? info->iteration : 0;
    snprintf(reply->path, sizeof reply->path, "%s", latest ? latest->path : "");
    snprintf(reply->best, sizeof reply->best, "%s", best ? best->path : "");
    uni__group_post(persist->run->group, tell_completed, reply);
}

static void do_commit(uni__persist *persist, pending *checkpoint)
{
    uni_error err = { 0 };
    uni_value *metrics = NULL;
    uni__checkpoint_info info = { 0 };
    if (checkpoint->failed || !checkpoint->draft) {
        if (checkpoint->draft)
            uni__draft_abandon(checkpoint->draft);
        free_pending(checkpoint);
        return;
    }
    int status = checkpoint->metrics ? uni_msgpack_read(&metrics, checkpoint->metrics,
                                                        checkpoint->metrics_size, &err)
                                     : 0;
    if (status == 0)
        status = uni__draft_commit(checkpoint->draft, metrics,
                                   persist->run->v1 ? checkpoint->scores : metrics,
                                   checkpoint->timestamp, &info, &err);
    else
        uni__draft_abandon(checkpoint->draft);
    uni_value_free(metrics);
    if (status < 0)
        failed(persist, NULL, &err);
    else
        answer_completed(persist, &info);
    free_pending(checkpoint);
}

/* Every byte is read and compared, unless that would take longer than a restart may: what this controller has completed itself was hashed
 * when it was written, and the dictionary's reader compares again. */
static int open_resume(uni__persist *persist, uni_checkpoint **out, uni_error *err)
{
    const uni__checkpoint_info *newest = uni__store_resume(persist->store);
    if (newest && newest->bytes > VERIFY_MAX_BYTES &&
        uni_checkpoint_open(out, newest->path, NULL) == 0)
        return 0;
    return uni_checkpoint_open_latest(out, persist->run->dir, err);
}

static void do_find_resume(uni__persist *persist)
{
    answer *reply = new_answer(persist);
    uni_checkpoint *latest = NULL;
    uni_error err = { 0 };
    if (!reply)
        return;
    if (uni__store_clean_staging(persist->store, &err) < 0)
        uni__warn("%s", err.message);
    if (persist->has_memory) {
        reply->fd = dup(persist->memory_fd);
        reply->iteration = persist->memory_iteration;
    } else if (open_resume(persist, &latest, &err) == 0) {
        snprintf(reply->path, sizeof reply->path, "%s", uni_checkpoint_path(latest));
        reply->iteration = uni_checkpoint_iteration(latest);
        uni_checkpoint_close(latest);
    } else if (err.code != UNI_ENOTFOUND) {
        snprintf(reply->sentence, sizeof reply->sentence, "%.500s", err.message);
    }
    uni__group_post(persist->run->group, tell_resume, reply);
}

static job *next_job(uni__persist *persist)
{
    pthread_mutex_lock(&persist->lock);
    while (!persist->first)
        pthread_cond_wait(&persist->more, &persist->lock);
    job *item = persist->first;
    persist->first = item->next;
    if (!persist->first)
        persist->last = NULL;
    pthread_mutex_unlock(&persist->lock);
    return item;
}

static void *persist_thread(void *argument)
{
    uni__persist *persist = argument;
    for (bool quit = false; !quit;) {
        job *item = next_job(persist);
        switch (item->kind) {
        case ADD_DICT:
        case ADD_DIRECTORY:
            do_add(persist, item);
            break;
        case COMMIT:
            do_commit(persist, item->checkpoint);
            break;
        case GIVE_UP:
            item->checkpoint->failed = true;
            do_commit(persist, item->checkpoint);
            break;
        case FIND_RESUME:
            do_find_resume(persist);
            break;
        case FLUSH:
            uni__group_post(persist->run->group, tell_flushed, persist->run);
            break;
        case QUIT:
            quit = true;
            break;
        }
        free(item->path);
        free(item);
    }
    return NULL;
}

/* ---- the store's own news, on the persist thread ---- */

static int note_completed(void *context, const uni__checkpoint_info *info, uni_error *err)
{
    uni__persist *persist = context;
    uni_value *record = uni_value_dict();
    int status = 0;
    status |= uni_dict_take(record, "number", uni_value_int(info->number));
    status |= uni_dict_take(record, "iteration", uni_value_int(info->iteration));
    status |= uni_dict_take(record, "score", uni_value_float(info->score));
    status |= uni_dict_take(record, "bytes", uni_value_int((int64_t)info->bytes));
    if (status < 0) {
        uni_value_free(record);
        return uni_error_set(err, UNI_ENOMEM, "no memory to note a checkpoint in the journal");
    }
    uni__run_note(persist->run, "checkpoint", record, true);
    return 0;
}

static void note_removed(void *context, int64_t number)
{
    uni__persist *persist = context;
    uni_value *record = uni_value_dict();
    if (uni_dict_take(record, "number", uni_value_int(number)) == 0)
        uni__run_note(persist->run, "checkpoint_removed", record, false);
    else
        uni_value_free(record);
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
                                                        .completed = note_completed,
                                                        .removed = note_removed,
                                                        .context = persist },
                                 err);
    int error = status < 0 ? 0 : pthread_create(&persist->thread, NULL, persist_thread, persist);
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
static pending *gather(uni__persist *persist, int rank, int64_t iteration, bool alone)
{
    for (pending *at = persist->waiting; at && !alone; at = at->next)
        if (at->iteration == iteration && !at->alone) {
            if (rank < at->metrics_rank)
                at->metrics_rank = rank;
            return at;
        }
    pending *checkpoint = calloc(1, sizeof *checkpoint);
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

static void add(uni__persist *persist, job request, int64_t iteration, bool alone)
{
    request.attempt = persist->run->attempt;
    request.checkpoint = gather(persist, request.rank, iteration, alone);
    job *part = new_job(request), *commit = NULL;
    if (alone)
        commit = new_job((job){ .kind = COMMIT, .checkpoint = request.checkpoint });
    if (!request.checkpoint || !part || (alone && !commit) ||
        (request.kind == ADD_DIRECTORY && !request.path)) {
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
        (job){ .kind = ADD_DICT, .rank = rank, .slot = slot, .memory = memory, .size = size },
        iteration, alone);
}

void uni__persist_add_directory(uni__persist *persist, int rank, int64_t iteration, bool alone,
                                const char *path, bool copy)
{
    add(persist,
        (job){
            .kind = ADD_DIRECTORY, .rank = rank, .slot = -1, .path = strdup(path), .copy = copy },
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
    for (pending **link = &persist->waiting; *link;) {
        pending *checkpoint = *link;
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
        ask(persist, (job){ .kind = COMMIT, .checkpoint = checkpoint });
    }
}

bool uni__persist_is_waiting(const uni__persist *persist)
{
    return persist->waiting != NULL;
}

void uni__persist_give_up(uni__persist *persist)
{
    for (pending *checkpoint = persist->waiting; checkpoint;) {
        pending *next = checkpoint->next;
        ask(persist, (job){ .kind = GIVE_UP, .checkpoint = checkpoint });
        checkpoint = next;
    }
    persist->waiting = NULL;
}

void uni__persist_find_resume(uni__persist *persist)
{
    ask(persist, (job){ .kind = FIND_RESUME });
}

void uni__persist_flush(uni__persist *persist)
{
    ask(persist, (job){ .kind = FLUSH });
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
    ask(persist, (job){ .kind = QUIT });
    pthread_join(persist->thread, NULL);
    *latest_dict = persist->run->v1 || persist->has_memory ? last_dict(persist) : NULL;
    uni__store_close(persist->store, keep_recovery);
    if (persist->memory_fd >= 0)
        close(persist->memory_fd);
    pthread_cond_destroy(&persist->more);
    pthread_mutex_destroy(&persist->lock);
    free(persist);
}
