/*
 * persist.c - completing checkpoints without stopping training.
 *
 * The controller thread decides (which parts belong together, when all live ranks have passed the
 * iteration), the persist thread (persist_thread.c) does what touches the disk. A worker gets its
 * buffer and its turn back when its part is in the staging directory. This file is the controller
 * thread's side.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/dict.h"
#include "train/persist.h"

#define ALONE_NS 1000000000ull /* that one waits for the state of other ranks */
/* Checkpoints that wait for slower ranks: always, and when they fill the disk. */
#define WAITING_MAX 1000
#define WAITING_MAX_CROWDED 2

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
    return persist->run->request.v1 ? uni__store_latest(persist->store)
                                    : uni__store_resume(persist->store);
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
                                 &(uni__store_options){ .run_dir = run->places.dir,
                                                        .policy = &run->request.policy,
                                                        .completed = uni__persist_note_completed,
                                                        .removed = uni__persist_note_removed,
                                                        .context = persist },
                                 err);
    persist->room = uni__persist_room(persist);
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
    run->places.staging_dir = strdup(staging);
    const uni__checkpoint_info *latest = uni__persist_latest(persist),
                               *best = uni__store_best(persist->store);
    snprintf(run->outcome.latest_path, sizeof run->outcome.latest_path, "%s",
             latest ? latest->path : "");
    snprintf(run->outcome.best_path, sizeof run->outcome.best_path, "%s", best ? best->path : "");
    *out = persist;
    return 0;
}

static bool add_giver(uni__persist_checkpoint *checkpoint, const uni__handed *part)
{
    struct uni__giver *grown =
        realloc(checkpoint->givers, ((size_t)checkpoint->num_givers + 1) * sizeof *grown);
    if (!grown)
        return false;
    checkpoint->givers = grown;
    grown[checkpoint->num_givers++] = (struct uni__giver){ part->rank, part->life };
    return true;
}

static bool keep_own_state(uni__persist_checkpoint *checkpoint, uni__state_section state)
{
    if (state.size == 0)
        return true;
    checkpoint->own_state = malloc(state.size);
    checkpoint->own_state_size = state.size;
    if (checkpoint->own_state)
        memcpy(checkpoint->own_state, state.bytes, state.size);
    return checkpoint->own_state != NULL;
}

void uni__persist_checkpoint_free(uni__persist_checkpoint *checkpoint)
{
    uni_value_free(checkpoint->scores);
    if (checkpoint->memory_fd >= 0)
        close(checkpoint->memory_fd);
    free(checkpoint->metrics);
    free(checkpoint->own_state);
    free(checkpoint->state);
    free(checkpoint->givers);
    free(checkpoint);
}

/* Where the checkpoint of that iteration that still gathers parts is linked, or the list's end. */
static uni__persist_checkpoint **find(uni__persist *persist, int64_t iteration)
{
    uni__persist_checkpoint **link = &persist->waiting;
    while (*link && ((*link)->alone || (*link)->iteration != iteration))
        link = &(*link)->next;
    return link;
}

static uni__persist_checkpoint *new_checkpoint(const uni__persist *persist, const uni__handed *part)
{
    uni__persist_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        return NULL;
    checkpoint->memory_fd = -1;
    checkpoint->iteration = part->iteration;
    checkpoint->attempt = persist->run->attempt.number;
    checkpoint->alone = part->alone;
    checkpoint->of_step = part->of_step;
    checkpoint->metrics_rank = part->rank;
    checkpoint->timestamp = uni__wall_seconds();
    checkpoint->since_ns = uni__monotonic_ns();
    if (add_giver(checkpoint, part) && keep_own_state(checkpoint, part->state))
        return checkpoint;
    uni__persist_checkpoint_free(checkpoint);
    return NULL;
}

/* The checkpoint of that iteration that still gathers parts, or a new one. */
static uni__persist_checkpoint *gather(uni__persist *persist, const uni__handed *part)
{
    uni__persist_checkpoint *found = part->alone ? NULL : *find(persist, part->iteration);
    if (found) {
        if (part->rank < found->metrics_rank)
            found->metrics_rank = part->rank;
        return add_giver(found, part) ? found : NULL;
    }
    uni__persist_checkpoint *checkpoint = new_checkpoint(persist, part), **link = &persist->waiting;
    if (checkpoint) {
        while (*link && (*link)->iteration <= checkpoint->iteration)
            link = &(*link)->next;
        checkpoint->next = *link;
        *link = checkpoint;
    }
    return checkpoint;
}

static bool has_passed(const uni__run *run, int rank, int64_t iteration)
{
    return run->ranks[rank].done || run->ranks[rank].away ||
           run->ranks[rank].iteration >= iteration || uni__run_is_member(run, rank);
}

/* Whether a checkpoint waits for that rank. One that is alone needs no reports, but the state of
 * ranks that have some. */
static bool awaits(const uni__run *run, const uni__persist_checkpoint *checkpoint, int rank)
{
    return !has_passed(run, rank, checkpoint->iteration) &&
           (!checkpoint->alone ||
            (run->ranks[rank].state_log.count > 0 && uni__worker_is_live(run->ranks[rank].worker)));
}

/* The first rank that it waits for; only_gone: and that will never come. -1: none. */
static int missing_rank(const uni__run *run, const uni__persist_checkpoint *checkpoint,
                        bool only_gone)
{
    for (int i = 0; i < run->num_workers; i++) {
        const uni__rank *rank = &run->ranks[i];
        bool gone = rank->failed || !rank->worker->pid || rank->worker->stopped_ns ||
                    rank->warned_silent || rank->host_silent_ns;
        if (awaits(run, checkpoint, i) && (gone || !only_gone))
            return i;
    }
    return -1;
}

/* ---- checkpoints that are dropped ---- */

static bool was_dropped(uni__persist *persist, const uni__handed *part)
{
    return !part->alone && persist->dropped.attempt == persist->run->attempt.number &&
           part->iteration >= persist->dropped.first && part->iteration <= persist->dropped.last &&
           !*find(persist, part->iteration);
}

void uni__persist_drop(uni__persist *persist, int64_t iteration)
{
    uni__persist_checkpoint **link = find(persist, iteration), *checkpoint = *link;
    if (persist->dropped.attempt != persist->run->attempt.number) {
        persist->dropped.attempt = persist->run->attempt.number;
        persist->dropped.first = persist->dropped.last = iteration;
    }
    if (iteration < persist->dropped.first)
        persist->dropped.first = iteration;
    if (iteration > persist->dropped.last)
        persist->dropped.last = iteration;
    if (!checkpoint)
        return;
    *link = checkpoint->next;
    checkpoint->failed = true;
    ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_GIVE_UP, .checkpoint = checkpoint });
}

/* A rank far ahead of the others would fill the disk with checkpoints that wait for them. The
 * oldest stay, because slower ranks reach them first, and so does the newest, which may be the
 * rank's last one. The second newest is dropped. */
static void limit_waiting(uni__persist *persist)
{
    const uni__persist_checkpoint *newest = NULL, *second = NULL;
    int count = 0, limit = persist->crowded ? WAITING_MAX_CROWDED : WAITING_MAX;
    for (const uni__persist_checkpoint *at = persist->waiting; at; at = at->next)
        if (!at->alone) {
            second = newest;
            newest = at;
            count++;
        }
    int rank = count > limit ? missing_rank(persist->run, second, false) : -1;
    if (rank < 0)
        return;
    if (!persist->dropped.said)
        uni__run_tell(persist->run, UNI_EVENT_WARNING, rank,
                      "the checkpoint of iteration %lld is dropped (said once): %d checkpoints "
                      "wait for rank %d to report their iterations%s",
                      (long long)second->iteration, count, rank,
                      persist->crowded ? ", and half of the disk's free space is used" : "");
    persist->dropped.said = true;
    uni__persist_drop(persist, second->iteration);
}

/* A process that was replaced had handed it in before it died. */
static bool was_given(const uni__persist_checkpoint *checkpoint, const uni__handed *part)
{
    for (int i = 0; checkpoint && i < checkpoint->num_givers; i++)
        if (checkpoint->givers[i].rank == part->rank && checkpoint->givers[i].life != part->life)
            return true;
    return false;
}

void uni__persist_add(uni__persist *persist, const uni__handed *given)
{
    bool dropped = was_dropped(persist, given);
    uni__persist_checkpoint *checkpoint =
        dropped ? new_checkpoint(persist, given) : gather(persist, given);
    char *path = given->path ? strdup(given->path) : NULL;
    uni__persist_job *part = new_job((uni__persist_job){
        .kind = given->path ? UNI__PERSIST_ADD_DIRECTORY : UNI__PERSIST_ADD_DICT,
        .checkpoint = checkpoint,
        .rank = given->rank,
        .again = was_given(checkpoint, given),
        .life = given->life,
        .slot = given->slot,
        .region = uni__region_ref(given->region),
        .size = given->size,
        .path = path,
        .copy = given->copy });
    if (!checkpoint || !part || (given->path && !path)) {
        no_memory(persist); /* what is in the list is given up with the attempt */
        uni__region_unref(given->region);
        if (dropped && checkpoint)
            uni__persist_checkpoint_free(checkpoint);
        free(path);
        free(part);
        return;
    }
    if (dropped)
        checkpoint->failed = true;
    enqueue(persist, part);
    if (dropped)
        ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_GIVE_UP, .checkpoint = checkpoint });
    else
        limit_waiting(persist);
    if (given->alone)
        uni__persist_moved(persist, given->rank, 0, NULL, 0);
}

/* The state of all ranks at its iteration. */
static int collect_state(const uni__run *run, uni__persist_checkpoint *checkpoint, uni_error *err)
{
    int count = run->num_workers;
    uni__state_section *sections = calloc((size_t)count, sizeof *sections);
    if (!sections)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of %d ranks", count);
    for (int i = 0; i < count; i++)
        sections[i] = uni__state_log_at(&run->ranks[i].state_log, checkpoint->iteration);
    if (checkpoint->own_state)
        sections[checkpoint->metrics_rank] =
            (uni__state_section){ checkpoint->own_state, checkpoint->own_state_size };
    int status = uni__state_pack(&checkpoint->state, &checkpoint->state_size, sections, count, err);
    free(sections);
    return status;
}

/* Takes the checkpoint out of the list, and has it completed. */
static void complete(uni__persist *persist, uni__persist_checkpoint **link)
{
    uni__persist_checkpoint *checkpoint = *link;
    uni_error err = { 0 };
    uni__persist_job_kind kind = UNI__PERSIST_COMMIT;
    *link = checkpoint->next;
    if (collect_state(persist->run, checkpoint, &err) < 0) {
        uni__run_fatal(persist->run, UNI__CAUSE_CHECKPOINT, &err);
        kind = UNI__PERSIST_GIVE_UP;
    }
    ask(persist, (uni__persist_job){ .kind = kind, .checkpoint = checkpoint });
}

void uni__persist_look(uni__persist *persist, uint64_t now)
{
    for (uni__persist_checkpoint **link = &persist->waiting; *link;)
        if ((*link)->alone && now - (*link)->since_ns > ALONE_NS)
            complete(persist, link);
        else
            link = &(*link)->next;
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
        if (missing_rank(persist->run, checkpoint, false) >= 0)
            link = &checkpoint->next;
        else
            complete(persist, link);
    }
}

bool uni__persist_is_waiting(const uni__persist *persist)
{
    return persist->waiting != NULL;
}

int uni__persist_waits_for(const uni__persist *persist, int64_t *iteration, int *from)
{
    const uni__persist_checkpoint *oldest = persist->waiting;
    if (!oldest)
        return -1;
    *iteration = oldest->iteration;
    *from = oldest->givers[0].rank;
    return missing_rank(persist->run, oldest, false);
}

bool uni__persist_can_complete(const uni__persist *persist)
{
    for (uni__persist_checkpoint *at = persist->waiting; at; at = at->next)
        if (missing_rank(persist->run, at, true) < 0)
            return true;
    return false;
}

void uni__persist_give_up(uni__persist *persist)
{
    while (persist->waiting) {
        uni__persist_checkpoint *checkpoint = persist->waiting;
        if (checkpoint->alone) { /* with what is known of the others */
            complete(persist, &persist->waiting);
            continue;
        }
        int rank = missing_rank(persist->run, checkpoint, false);
        persist->waiting = checkpoint->next;
        uni__run_tell(persist->run, UNI_EVENT_WARNING, rank,
                      "the checkpoint of iteration %lld is not complete and is dropped: rank %d "
                      "did not report that iteration",
                      (long long)checkpoint->iteration, rank);
        ask(persist, (uni__persist_job){ .kind = UNI__PERSIST_GIVE_UP, .checkpoint = checkpoint });
    }
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
                                     .attempt = persist->run->attempt.number });
}

void uni__persist_unpin(uni__persist *persist)
{
    persist->run->attempt.start.pinned = false;
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
        uni_checkpoint_info_of(checkpoint)->is_dict &&
        uni_checkpoint_read_dict(&dict, checkpoint, NULL) < 0)
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
    *latest_dict = persist->run->request.v1 || persist->memory_fd >= 0 ? last_dict(persist) : NULL;
    persist->run->outcome.kept = uni__store_ranking(persist->store);
    uni__steps_end(persist, persist->run->outcome.error.code != 0);
    uni__store_close(persist->store, keep_recovery);
    if (persist->memory_fd >= 0)
        close(persist->memory_fd);
    free(persist->memory_state);
    pthread_cond_destroy(&persist->more);
    pthread_mutex_destroy(&persist->lock);
    free(persist);
}
