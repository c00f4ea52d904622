/*
 * persist_thread.c - what touches the disk when checkpoints are completed, one job after the other:
 * write a part into the staging directory, commit, look for the checkpoint to resume from. Answers
 * are posts to the controller thread, which alone touches pages and the run's state.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/dict.h"
#include "train/persist.h"

#define VERIFY_MAX_BYTES (256u << 20) /* about 0.2 s */

/* ---- answers, on the controller thread ---- */

typedef struct answer {
    uni__run *run;
    int rank, slot, attempt;
    uni__cause_class kind;
    uni_error error;
    char path[4096], best[4096], sentence[512];
    int64_t number, iteration;
    uint32_t serial;
    uint64_t life; /* of the worker that it is for */
    int fd;
    bool copied;
    uni_value *state; /* of all ranks, or NULL */
} answer;

/* tell(a copy of it), on the controller thread. */
static void post(uni__persist *persist, void (*tell)(void *reply), const answer *given)
{
    answer *reply = malloc(sizeof *reply);
    if (!reply)
        return;
    *reply = *given;
    reply->run = persist->run;
    uni__group_post(persist->run->group, tell, reply);
}

static void tell_part_done(void *argument)
{
    answer *reply = argument;
    uni__run *run = reply->run;
    uni__rank *rank = &run->ranks[reply->rank];
    if (rank->worker->life == reply->life) { /* a member may have been started again */
        rank->copies -= reply->copied && rank->copies > 0;
        uni__page_give_back(uni__group_page(run->group, reply->rank), reply->slot);
    }
    free(reply);
}

static void tell_over(void *argument)
{
    answer *reply = argument;
    if (reply->run->ranks[reply->rank].worker->life == reply->life)
        uni__page_checkpoint_over(uni__group_page(reply->run->group, reply->rank));
    free(reply);
}

static void tell_kept(void *argument)
{
    answer *reply = argument;
    reply->run->outcome.kept_in_memory = true;
    free(reply);
}

static void tell_completed(void *argument)
{
    answer *reply = argument;
    uni__run *run = reply->run;
    snprintf(run->outcome.latest_path, sizeof run->outcome.latest_path, "%s", reply->path);
    snprintf(run->outcome.best_path, sizeof run->outcome.best_path, "%s", reply->best);
    run->outcome.progress.checkpoints = reply->number;
    if (reply->number > 0)
        uni__run_tell(run, UNI_EVENT_CHECKPOINT, -1, "%s",
                      reply->path[0] ? reply->path : "taken, and not kept by the policy");
    free(reply);
}

static void tell_step(void *argument)
{
    answer *reply = argument;
    reply->run->outcome.progress.steps++;
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
    uni__run_resume_known(reply->run, reply->path, reply->fd, reply->iteration, reply->state,
                          reply->sentence);
    free(reply);
}

static void tell_newest(void *argument)
{
    answer *reply = argument;
    if (reply->attempt == reply->run->attempt.number)
        uni__newest_answer(reply->run, reply->rank, reply->serial, reply->path, reply->fd);
    if (reply->fd >= 0)
        close(reply->fd);
    free(reply);
}

static void tell_flushed(void *argument)
{
    uni__run_persisted(argument);
}

/* ---- the persist thread ---- */

static void failed(uni__persist *persist, uni__persist_checkpoint *checkpoint,
                   const uni_error *error)
{
    bool full = error->code == UNI_EDISKFULL;
    if (checkpoint)
        checkpoint->failed = true;
    post(persist, tell_fatal,
         &(answer){ .kind = full ? UNI__CAUSE_DISK_FULL : UNI__CAUSE_CHECKPOINT, .error = *error });
}

/* The scalars at the top of an encoded dictionary: where v1's policy looks for its score once the
 * buffer is the worker's again. */
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

/* A memory file of its own for every dictionary: the one before may be what workers are resuming
 * from just now. */
static int keep_in_memory(const uni__persist_job *request, uni_error *err)
{
    uni__persist_checkpoint *checkpoint = request->checkpoint;
    if (checkpoint->memory_fd >= 0 && checkpoint->memory_rank < request->rank)
        return 0;
    int fd = memfd_create("unisono-checkpoint", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ssize_t n = fd < 0 ? -1 : 0;
    for (size_t at = 0; n >= 0 && at < request->size; at += (size_t)(n > 0 ? n : 0)) {
        n = write(fd, (const char *)request->region->memory + at, request->size - at);
        n = n < 0 && errno == EINTR ? 0 : n;
    }
    if (n >= 0) /* workers get it to resume from, and we read it again */
        n = fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    if (n < 0) {
        int saved = errno;
        if (fd >= 0)
            close(fd);
        return uni_error_set_errno(err, saved, "cannot keep a checkpoint of %zu bytes in memory",
                                   request->size);
    }
    if (checkpoint->memory_fd >= 0)
        close(checkpoint->memory_fd);
    checkpoint->memory_fd = fd;
    checkpoint->memory_rank = request->rank;
    return 0;
}

static int add_part(uni__persist *persist, const uni__persist_job *request, uni_error *err)
{
    uni__persist_checkpoint *checkpoint = request->checkpoint;
    uni__run *run = persist->run;
    if (run->request.policy.num_to_keep == UNI_KEEP_NONE) {
        if (request->kind == UNI__PERSIST_ADD_DICT)
            return checkpoint->of_step ? 0 : keep_in_memory(request, err);
        return request->copy ? 0 : uni__remove_tree(request->path, err);
    }
    if (!checkpoint->draft) {
        uni__store *store = persist->store;
        if (checkpoint->of_step)
            UNI_TRY(uni__steps_store(persist, &store, err));
        UNI_TRY(uni__draft_new(&checkpoint->draft, store, checkpoint->iteration,
                               checkpoint->attempt, err));
    }
    if (request->kind == UNI__PERSIST_ADD_DICT) {
        if (run->request.v1 && !checkpoint->scores)
            checkpoint->scores = scalars_of(request->region->memory, request->size);
        return uni__draft_add_dict(checkpoint->draft, request->rank, request->region->memory,
                                   request->size, err);
    }
    if (!request->copy)
        return uni__draft_take_directory(checkpoint->draft, request->rank, request->path, err);
    char *staged = NULL;
    UNI_TRY(uni__stage_copy(&staged, run->places.staging_dir, request->rank, request->path, err));
    int status = uni__draft_take_directory(checkpoint->draft, request->rank, staged, err);
    free(staged);
    return status;
}

uint64_t uni__persist_room(const uni__persist *persist)
{
    struct statvfs room;
    if (statvfs(persist->run->places.dir, &room) < 0)
        return UINT64_MAX;
    return (uint64_t)room.f_bavail * room.f_frsize;
}

/* The part of a checkpoint that is dropped; what cannot be removed goes with the run's staging
 * directory. */
static void discard(const uni__persist_job *request)
{
    uni_error err = { 0 };
    if (request->kind == UNI__PERSIST_ADD_DIRECTORY && !request->copy &&
        uni__remove_tree(request->path, &err) < 0)
        uni__warn("%s is left behind for now: %s", request->path, err.message);
}

static void do_add(uni__persist *persist, const uni__persist_job *request)
{
    uni_error err = { 0 };
    if (request->checkpoint->failed || request->again)
        discard(request);
    else if (add_part(persist, request, &err) < 0)
        failed(persist, request->checkpoint, &err);
    persist->crowded = uni__persist_room(persist) < persist->room / 2;
    post(persist, tell_part_done,
         &(answer){ .rank = request->rank,
                    .slot = request->slot,
                    .copied = request->copy,
                    .life = request->life });
}

/* Complete, or never to be: ranks that wait for it go on. */
static void answer_over(uni__persist *persist, const uni__persist_checkpoint *checkpoint)
{
    for (int i = 0; i < checkpoint->num_givers; i++)
        post(persist, tell_over,
             &(answer){ .rank = checkpoint->givers[i].rank, .life = checkpoint->givers[i].life });
}

static void answer_completed(uni__persist *persist, const uni__checkpoint_info *info)
{
    const uni__checkpoint_info *latest = uni__persist_latest(persist),
                               *best = uni__store_best(persist->store);
    answer reply = { .number = info->number };
    snprintf(reply.path, sizeof reply.path, "%s", latest ? latest->path : "");
    snprintf(reply.best, sizeof reply.best, "%s", best ? best->path : "");
    post(persist, tell_completed, &reply);
}

/* The dictionary in memory takes the place of the one before. */
static void commit_memory(uni__persist *persist, uni__persist_checkpoint *checkpoint)
{
    if (persist->memory_fd >= 0)
        close(persist->memory_fd);
    persist->memory_fd = checkpoint->memory_fd;
    persist->memory_iteration = checkpoint->iteration;
    checkpoint->memory_fd = -1;
    free(persist->memory_state);
    persist->memory_state = checkpoint->state;
    persist->memory_state_size = checkpoint->state_size;
    checkpoint->state = NULL;
    post(persist, tell_kept, &(answer){ 0 });
}

static void commit(uni__persist *persist, uni__persist_checkpoint *checkpoint)
{
    uni_error err = { 0 };
    uni_value *metrics = NULL;
    uni__checkpoint_info info = { 0 };
    if (checkpoint->failed || !checkpoint->draft) {
        if (checkpoint->draft)
            uni__draft_abandon(checkpoint->draft);
        if (!checkpoint->failed && checkpoint->memory_fd >= 0)
            commit_memory(persist, checkpoint);
        return;
    }
    int status = checkpoint->metrics ? uni__msgpack_read(&metrics, checkpoint->metrics,
                                                         checkpoint->metrics_size, &err)
                                     : 0;
    uni__draft_take_state(checkpoint->draft, checkpoint->state, checkpoint->state_size);
    checkpoint->state = NULL;
    if (status == 0)
        status = uni__draft_commit(checkpoint->draft, metrics,
                                   persist->run->request.v1 ? checkpoint->scores : metrics,
                                   checkpoint->timestamp, &info, &err);
    else
        uni__draft_abandon(checkpoint->draft);
    uni_value_free(metrics);
    if (status < 0)
        failed(persist, NULL, &err);
    else if (checkpoint->of_step)
        post(persist, tell_step, &(answer){ 0 });
    else
        answer_completed(persist, &info);
}

static void do_commit(uni__persist *persist, uni__persist_checkpoint *checkpoint)
{
    commit(persist, checkpoint);
    answer_over(persist, checkpoint);
    uni__persist_checkpoint_free(checkpoint);
}

/* Every byte is read and compared, unless that would take longer than a restart may: what this
 * controller has completed itself was hashed when it was written, and the dictionary's reader
 * compares again. */
static int open_resume(uni__persist *persist, uni_checkpoint **out, uni_error *err)
{
    const uni__checkpoint_info *newest = uni__store_resume(persist->store);
    if (newest && newest->bytes > VERIFY_MAX_BYTES &&
        uni_checkpoint_open(out, newest->path, NULL) == 0)
        return 0;
    return uni_checkpoint_open_latest(out, persist->run->places.dir, err);
}

/* One of a step was taken after the report of its iteration, so it is newer than the checkpoint of
 * that report. */
static int open_newer(uni__persist *persist, uni_checkpoint *step, uni_checkpoint **out,
                      uni_error *err)
{
    int status = open_resume(persist, out, err);
    if (!step || (status == 0 && uni_checkpoint_info_of(*out)->iteration >
                                     uni_checkpoint_info_of(step)->iteration))
        return status;
    uni_checkpoint_close(*out);
    *out = step;
    return 0;
}

static void say_lost(answer *reply, const uni_error *err)
{
    snprintf(reply->sentence, sizeof reply->sentence,
             "the ranks go on without the state of their checkpoint: %.440s", err->message);
}

static void do_find_resume(uni__persist *persist)
{
    answer reply = { .fd = -1 };
    uni_checkpoint *latest = NULL, *step = uni__steps_newest(persist);
    uni_error err = { 0 };
    if (uni__store_clean_staging(persist->store, &err) < 0)
        uni__warn("%s", err.message);
    if (persist->memory_fd >= 0) {
        reply.fd = dup(persist->memory_fd);
        reply.iteration = persist->memory_iteration;
        if (persist->memory_state && uni__state_unpack(&reply.state, persist->memory_state,
                                                       persist->memory_state_size, &err) < 0)
            say_lost(&reply, &err);
    } else if (open_newer(persist, step, &latest, &err) == 0) {
        snprintf(reply.path, sizeof reply.path, "%s", uni_checkpoint_info_of(latest)->path);
        reply.iteration = uni_checkpoint_info_of(latest)->iteration;
        uni__store_pin(latest == step ? persist->steps : persist->store,
                       uni_checkpoint_info_of(latest)->number);
        if (uni__checkpoint_read_state(&reply.state, latest, &err) < 0)
            say_lost(&reply, &err);
        if (latest != step)
            uni_checkpoint_close(latest);
    } else if (err.code != UNI_ENOTFOUND) {
        snprintf(reply.sentence, sizeof reply.sentence, "no checkpoint could be used: %.470s",
                 err.message);
    }
    uni_checkpoint_close(step);
    post(persist, tell_resume, &reply);
}

static void do_newest(uni__persist *persist, const uni__persist_job *request)
{
    const uni__checkpoint_info *newest = uni__store_resume(persist->store);
    answer reply = {
        .rank = request->rank, .serial = request->serial, .attempt = request->attempt, .fd = -1
    };
    if (persist->memory_fd >= 0)
        reply.fd = dup(persist->memory_fd);
    else if (newest)
        snprintf(reply.path, sizeof reply.path, "%s", newest->path);
    post(persist, tell_newest, &reply);
}

static uni__persist_job *next_job(uni__persist *persist)
{
    pthread_mutex_lock(&persist->lock);
    while (!persist->first)
        pthread_cond_wait(&persist->more, &persist->lock);
    uni__persist_job *item = persist->first;
    persist->first = item->next;
    if (!persist->first)
        persist->last = NULL;
    pthread_mutex_unlock(&persist->lock);
    return item;
}

void *uni__persist_thread(void *argument)
{
    uni__persist *persist = argument;
    for (bool quit = false; !quit;) {
        uni__persist_job *item = next_job(persist);
        switch (item->kind) {
        case UNI__PERSIST_ADD_DICT:
        case UNI__PERSIST_ADD_DIRECTORY:
            do_add(persist, item);
            break;
        case UNI__PERSIST_COMMIT:
            do_commit(persist, item->checkpoint);
            break;
        case UNI__PERSIST_GIVE_UP:
            item->checkpoint->failed = true;
            do_commit(persist, item->checkpoint);
            break;
        case UNI__PERSIST_FIND_RESUME:
            do_find_resume(persist);
            break;
        case UNI__PERSIST_UNPIN:
            uni__store_pin(persist->store, 0);
            if (persist->steps)
                uni__store_pin(persist->steps, 0);
            break;
        case UNI__PERSIST_NEWEST:
            do_newest(persist, item);
            break;
        case UNI__PERSIST_FLUSH:
            uni__group_post(persist->run->group, tell_flushed, persist->run);
            break;
        case UNI__PERSIST_QUIT:
            quit = true;
            break;
        }
        uni__region_unref(item->region);
        free(item->path);
        free(item);
    }
    return NULL;
}

/* ---- the store's own news, on the persist thread ---- */

int uni__persist_note_completed(void *context, const uni__checkpoint_info *info, uni_error *err)
{
    uni__persist *persist = context;
    uni_value *record = UNI__DICT({ "number", uni_value_int(info->number) },
                                  { "iteration", uni_value_int(info->iteration) },
                                  { "score", uni_value_float(info->score) },
                                  { "bytes", uni_value_int((int64_t)info->bytes) });
    if (!record)
        return uni_error_set(err, UNI_ENOMEM, "no memory to note a checkpoint in the journal");
    uni__run_note(persist->run, "checkpoint", record, true);
    return 0;
}

void uni__persist_note_removed(void *context, int64_t number)
{
    uni__persist *persist = context;
    uni__run_note(persist->run, "checkpoint_removed",
                  UNI__DICT({ "number", uni_value_int(number) }), false);
}
