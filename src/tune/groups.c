/*
 * groups.c - trials of several workers: each is a run of an ordinary trainer, in its own thread,
 * which talks to the tuner as a member of the crew would.
 *
 * A run counts its iterations from 1. The trial's count goes on: `before` is added to every one.
 *
 * The run is an iterator in lockstep: one report of all ranks at a time (rank 0's counts, as in
 * Ray), then the tuner's word, then the next. A trial that is ended stops all ranks at the
 * iteration after. Its directory is trial_NNNNN/run_001, a restarted trial's run_002, and the
 * trainer keeps its checkpoints there.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "base/clock.h"
#include "tune/tuner_internal.h"

typedef struct slot {
    struct uni__groups *groups;
    int index;
    pthread_t thread;
    bool runs; /* the thread must be joined */
    uint64_t serial;
    uni_trainer *trainer;
    char *function, *name, *checkpoint;
    uni_value *config, *program;
    int64_t before, iteration; /* before: the trial's iterations in earlier runs */
    /* with the lock */
    bool released, stop;
} slot;

struct uni__groups {
    uni_tuner *tuner;
    slot *slots;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t next_serial;
    bool quit; /* protected by the lock */
};

int uni__groups_new(struct uni__groups **out, uni_tuner *tuner, uni_error *err)
{
    struct uni__groups *groups = calloc(1, sizeof *groups);
    *out = groups;
    if (!groups || !(groups->slots = calloc((size_t)tuner->num_places, sizeof *groups->slots)))
        return uni_error_set(err, UNI_ENOMEM, "no memory for trials of several workers");
    groups->tuner = tuner;
    pthread_mutex_init(&groups->lock, NULL);
    pthread_cond_init(&groups->changed, NULL);
    return 0;
}

static uni__crew_event *new_event(const slot *mine, uni__crew_kind kind)
{
    uni__crew_event *event = calloc(1, sizeof *event);
    if (event) {
        event->kind = kind;
        event->member = mine->index;
        event->serial = mine->serial;
        event->slot = -1;
    }
    return event;
}

static bool wait_for_word(slot *mine)
{
    struct uni__groups *groups = mine->groups;
    pthread_mutex_lock(&groups->lock);
    while (!mine->released && !mine->stop && !groups->quit)
        pthread_cond_wait(&groups->changed, &groups->lock);
    bool go_on = !mine->stop && !groups->quit;
    mine->released = false;
    pthread_mutex_unlock(&groups->lock);
    return go_on;
}

static bool must_stop(slot *mine)
{
    pthread_mutex_lock(&mine->groups->lock);
    bool stop = mine->stop || mine->groups->quit;
    pthread_mutex_unlock(&mine->groups->lock);
    return stop;
}

/* Hands one report to the tuner; false when the trial must end. */
static bool report(slot *mine, const uni_reports *reports)
{
    const uni_value *metrics = reports->by_rank[0];
    for (int i = 1; !metrics && i < reports->world_size; i++)
        metrics = reports->by_rank[i];
    uni__crew_event *event = metrics ? new_event(mine, UNI__CREW_REPORT) : NULL;
    void *bytes = NULL;
    size_t size = 0;
    if (!event || uni__msgpack_write(&bytes, &size, metrics, NULL) < 0) {
        free(event);
        return true;
    }
    event->metrics = bytes;
    event->metrics_size = size;
    event->iteration = mine->iteration = mine->before + reports->iteration;
    uni__crew_inject(mine->groups->tuner->crew, event);
    return wait_for_word(mine);
}

static int follow(slot *mine, uni_iterator *iterator, uni_error *err)
{
    bool stopping = false;
    for (;;) {
        const uni_reports *reports = NULL;
        int found = uni_iterator_next_within(&reports, iterator, 0.2, err);
        if (found == UNI_ETIMEOUT) {
            if (must_stop(mine) && !stopping) {
                stopping = true;
                uni_trainer_stop(mine->trainer, false);
            }
            continue;
        }
        if (found <= 0)
            return found;
        if (!stopping && !report(mine, reports)) {
            stopping = true;
            uni_trainer_stop(mine->trainer, false);
        }
    }
}

/* `first`, then the list's strings, which are borrowed; NULL-terminated. */
static const char **words_of(const uni_value *list, const char *const *first)
{
    size_t count = 0, more = uni_list_size(list);
    while (first && first[count])
        count++;
    const char **out = calloc(count + more + 1, sizeof *out);
    for (size_t i = 0; out && i < count + more; i++)
        out[i] = i < count ? first[i] : uni_value_as_string(uni_list_get(list, i - count), "");
    return out;
}

static int run_group(slot *mine, uni__crew_event *end, uni_error *err)
{
    uni_iterator *iterator = NULL;
    const uni_result *result = NULL;
    const uni_tuner *tuner = mine->groups->tuner;
    UNI_TRY(uni_trainer_start(mine->trainer, err));
    const char **program = words_of(mine->program, NULL);
    if (!program)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a trial's program");
    int status = uni_trainer_run_iterator(
        &iterator, mine->trainer,
        &(uni_run_options){ .function = mine->program ? NULL : mine->function,
                            .program = mine->program ? program : NULL,
                            .config = mine->config,
                            .attachment = tuner->asked.attachment,
                            .policy = tuner->spec->options.policy,
                            .from_checkpoint = mine->checkpoint,
                            .trial = true },
        err);
    free(program);
    UNI_TRY(status);
    status = follow(mine, iterator, err);
    /* A trial that failed or was stopped has checkpoints, too: it goes on from them. */
    (void)!uni_iterator_result(&result, iterator, false, NULL);
    if (result) {
        const uni_value *failure = uni_result_info_of(result)->failure;
        end->failure = failure ? uni_value_copy(failure) : NULL;
        const char *latest = uni_result_info_of(result)->latest_checkpoint,
                   *best = uni_result_info_of(result)->best_checkpoint;
        end->path = latest ? strdup(latest) : NULL;
        end->best = best ? strdup(best) : NULL;
    }
    uni_iterator_free(iterator);
    return status;
}

static void *slot_thread(void *argument)
{
    slot *mine = argument;
    uni_error err = { 0 };
    uni__crew_event *event = new_event(mine, UNI__CREW_ENDED);
    if (!event)
        return NULL;
    int status = run_group(mine, event, &err);
    event->end = status < 0 ? UNI__CREW_FAILED : UNI__CREW_RETURNED;
    event->error_code = status;
    event->iteration = mine->iteration;
    event->message = status < 0 ? strdup(err.message) : NULL;
    uni_trainer_free(mine->trainer);
    mine->trainer = NULL;
    uni__crew_inject(mine->groups->tuner->crew, event);
    return NULL;
}

static void empty_slot(slot *mine)
{
    if (mine->runs)
        pthread_join(mine->thread, NULL);
    free(mine->function);
    free(mine->name);
    free(mine->checkpoint);
    uni_value_free(mine->config);
    uni_value_free(mine->program);
    *mine = (slot){ 0 };
}

int uni__groups_run(struct uni__groups *groups, int place, const uni__crew_order *order,
                    uint64_t *serial, uni_error *err)
{
    const uni_tuner *tuner = groups->tuner;
    const uni_tuner_options *spec = &tuner->spec->options;
    int workers = spec->num_workers > 0 ? spec->num_workers : 1;
    slot *mine = &groups->slots[place];
    empty_slot(mine);
    const char *name = strrchr(order->run_dir, '/');
    *mine = (slot){ .groups = groups,
                    .index = place,
                    .serial = ++groups->next_serial,
                    .before = order->iteration,
                    .iteration = order->iteration };
    mine->function = order->function ? strdup(order->function) : NULL;
    mine->name = strdup(name ? name + 1 : order->run_dir);
    mine->checkpoint = order->checkpoint ? strdup(order->checkpoint) : NULL;
    mine->config = uni_value_copy(order->config);
    mine->program = order->program ? uni_value_copy(order->program) : NULL;
    *serial = mine->serial;
    /* A framework's addresses are valid only for processes that start with the run. */
    bool frames =
        spec->backend && strcmp(spec->backend, "none") != 0 && strcmp(spec->backend, "native") != 0;
    const char **environment = words_of(order->environment, groups->tuner->environment);
    if (!environment)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a trial's environment");
    int status = uni_trainer_new(
        &mine->trainer,
        &(uni_trainer_options){ .main = tuner->asked.main,
                                .worker_program = tuner->asked.worker_program,
                                .num_workers = workers,
                                .backend = spec->backend,
                                .cpus_per_worker = spec->cpus_per_trial / workers,
                                .use_gpu = spec->gpus_per_trial > 0,
                                .gpus_per_worker = spec->gpus_per_trial / workers,
                                .name = mine->name,
                                .storage_path = tuner->dir,
                                .environment = environment,
                                .working_directory = spec->working_directory,
                                .max_failures =
                                    UNI_NO_RETRIES, /* the tuner budgets a trial's failures */
                                .grace_seconds = spec->grace_seconds,
                                .lockstep = true,
                                .fresh_workers = spec->fresh_workers || frames },
        err);
    free(environment);
    UNI_TRY(status);
    int error = pthread_create(&mine->thread, NULL, slot_thread, mine);
    if (error) {
        uni_trainer_free(mine->trainer);
        mine->trainer = NULL;
        return uni_error_set_errno(err, error, "cannot start a trial's thread");
    }
    mine->runs = true;
    return 0;
}

void uni__groups_release(struct uni__groups *groups, int place, uint64_t serial, bool stop)
{
    slot *mine = &groups->slots[place];
    if (mine->serial != serial)
        return;
    pthread_mutex_lock(&groups->lock);
    mine->released = true;
    mine->stop |= stop;
    pthread_cond_broadcast(&groups->changed);
    pthread_mutex_unlock(&groups->lock);
}

void uni__groups_free(struct uni__groups *groups)
{
    if (!groups)
        return;
    pthread_mutex_lock(&groups->lock);
    groups->quit = true;
    pthread_cond_broadcast(&groups->changed);
    pthread_mutex_unlock(&groups->lock);
    for (int i = 0; groups->slots && i < groups->tuner->num_places; i++)
        empty_slot(&groups->slots[i]);
    pthread_cond_destroy(&groups->changed);
    pthread_mutex_destroy(&groups->lock);
    free(groups->slots);
    free(groups);
}
