/*
 * run.c - uni_strategy_run: the replicas of this process, each on a thread of its own, through one function.
 *
 * The crew is made by the first run and stays: replica 0 is the caller's thread, the others wait in a barrier of a communicator between threads
 * (src/comm/thread), whose collectives also carry the step itself. A replica that fails breaks that communicator, so nobody waits for it;
 * the crew is then given up, and the next run makes a new one.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/internal.h"

/* ---- one replica's turn ---- */

static void forget_run(uni_replica_context *replica)
{
    for (size_t i = 0; i < replica->num_counted; i++)
        uni_metric_free(replica->counted[i].mine);
    replica->num_counted = 0;
    replica->count = 0;
    replica->rows = 0;
    replica->status = 0;
    replica->current = NULL;
}

static void take_turn(uni_replica_context *replica)
{
    uni__replica_team *crew = replica->crew;
    const uni_batch *batch = crew->batch;
    int64_t n = crew->count, i = replica->local;
    if (batch) {
        replica->part = uni__batch_part(batch, batch->size * i / n, batch->size * (i + 1) / n);
        replica->global = replica->part.global_size;
    } else {
        replica->part = (uni_batch){ 0 };
        replica->global = 0;
    }
    replica->error = (uni_error){ 0 };
    replica->status = crew->function(replica, &replica->part, crew->context, &replica->error);
    if (replica->status < 0 && replica->peers)
        uni_comm_abort(replica->peers, replica->error.message);
}

static void *work(void *argument)
{
    uni_replica_context *replica = argument;
    uni_strategy *strategy = replica->strategy;
    uni__pin(strategy, strategy->devices ? &strategy->devices[replica->local] : NULL, NULL);
    for (;;) {
        if (uni_comm_barrier(replica->peers, NULL) < 0 || replica->crew->ending)
            return NULL;
        take_turn(replica);
        if (uni_comm_barrier(replica->peers, NULL) < 0)
            return NULL;
    }
}

/* ---- the crew ---- */

void uni__replica_team_free(uni__replica_team *crew)
{
    if (!crew)
        return;
    crew->ending = true;
    if (crew->started > 0 && uni_comm_barrier(crew->peers[0], NULL) < 0)
        uni_comm_abort(crew->peers[0], "the replicas end");
    for (int i = 1; i <= crew->started; i++)
        pthread_join(crew->threads[i], NULL);
    for (int i = 0; crew->peers && i < crew->count; i++)
        uni_comm_close(crew->peers[i]);
    for (int i = 0; crew->replicas && i < crew->count; i++) {
        uni_replica_context *replica = &crew->replicas[i];
        forget_run(replica);
        free(replica->counted);
        free(replica->values);
        uni__memory_free(replica->memory);
        uni_tape_free(replica->tape);
    }
    free(crew->replicas);
    free(crew->threads);
    free(crew->peers);
    free(crew);
}

/* Batch statistics over the replicas of this process, and by its first one over all processes. */
static int sum_statistics(void *context, float *values, size_t count, uni_error *err)
{
    uni_replica_context *replica = context;
    const uni_sync *outer = &replica->strategy->replica.sync;
    if (replica->peers)
        UNI_TRY(
            uni_comm_all_reduce(replica->peers, values, values, count, UNI_F32, UNI_COMM_SUM, err));
    if (!outer->sum)
        return 0;
    if (replica->local == 0)
        UNI_TRY(outer->sum(outer->context, values, count, err));
    return replica->peers ? uni_comm_broadcast(replica->peers, values, count, UNI_F32, 0, err) : 0;
}

static int tape_threads(const uni_strategy *strategy)
{
    if (strategy->devices)
        return strategy->devices[0].num_cpus;
    int threads = uni__process_threads(strategy);
    return threads / strategy->replicas > 1 ? threads / strategy->replicas : 1;
}

/* Threads of the crew take no signals: those are the program's. */
static int start_threads(uni__replica_team *crew, uni_error *err)
{
    sigset_t all, before;
    int code = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < crew->count && code == 0; i++) {
        code = pthread_create(&crew->threads[i], NULL, work, &crew->replicas[i]);
        crew->started += code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0)
        return 0;
    uni_comm_abort(crew->peers[0], "a thread could not be started");
    return uni_error_set_errno(err, code, "cannot start %d replicas", crew->count - 1);
}

static int fill_crew(uni__replica_team *crew, uni_error *err)
{
    uni_strategy *strategy = crew->strategy;
    size_t count = (size_t)crew->count;
    crew->replicas = calloc(count, sizeof *crew->replicas);
    crew->threads = calloc(count, sizeof *crew->threads);
    if (!crew->replicas || !crew->threads)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d replicas", crew->count);
    if (count > 1) {
        crew->peers = calloc(count, sizeof(uni_comm *));
        if (!crew->peers)
            return uni_error_set(err, UNI_ENOMEM, "no memory for %d replicas", crew->count);
        UNI_TRY(uni_comm_open_threads(crew->peers, crew->count, NULL, err));
    }
    for (int i = 0; i < crew->count; i++) {
        uni_replica_context *replica = &crew->replicas[i];
        *replica = (uni_replica_context){ .strategy = strategy,
                                          .crew = crew,
                                          .local = i,
                                          .peers = crew->peers ? crew->peers[i] : NULL };
        replica->sync = (uni_sync){ .context = replica, .sum = sum_statistics };
        UNI_TRY(uni_tape_new(&replica->tape,
                             &(uni_tape_options){ .threads = tape_threads(strategy) }, err));
    }
    return count > 1 ? start_threads(crew, err) : 0;
}

static int make_crew(uni_strategy *strategy, uni_error *err)
{
    if (strategy->crew)
        return 0;
    uni__replica_team *crew = calloc(1, sizeof *crew);
    if (!crew)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the replicas of a strategy");
    crew->strategy = strategy;
    crew->count = strategy->server ? 1 : strategy->replicas; /* its replicas are its workers */
    crew->values.crew = crew;
    int status = fill_crew(crew, err);
    if (status < 0) {
        uni__replica_team_free(crew);
        return status;
    }
    strategy->crew = crew;
    return 0;
}

/* ---- a run ---- */

/* The first replica that failed by itself, not because another one did. */
static int first_error(const uni__replica_team *crew, uni_error *err)
{
    const uni_replica_context *found = NULL;
    for (int i = 0; i < crew->count; i++) {
        const uni_replica_context *replica = &crew->replicas[i];
        if (replica->status < 0 &&
            (!found || (found->status == UNI_ECANCELED && replica->status != UNI_ECANCELED)))
            found = replica;
    }
    if (!found)
        return 0;
    return uni_error_set(err, found->status, "%s",
                         found->error.message[0] ? found->error.message
                                                 : "a replica's function failed");
}

static void merge_metrics(uni__replica_team *crew)
{
    for (int i = 0; i < crew->count; i++) {
        uni_replica_context *replica = &crew->replicas[i];
        for (size_t m = 0; m < replica->num_counted; m++)
            uni_metric_merge(replica->counted[m].into, replica->counted[m].mine);
    }
}

/* All replicas, and the meetings around them. The threads are gone when it fails. */
static int run_crew(uni__replica_team *crew, uni_error *err)
{
    int status = crew->peers ? uni_comm_barrier(crew->peers[0], err) : 0;
    if (status < 0)
        return status;
    take_turn(&crew->replicas[0]);
    if (crew->peers)
        status = uni_comm_barrier(crew->peers[0], err);
    if (status < 0)
        for (; crew->started > 0; crew->started--)
            pthread_join(crew->threads[crew->started], NULL);
    int failed = first_error(crew, err);
    return failed < 0 ? failed : status;
}

/* A batch that is a rank's own (sharding OFF or by files): the global one is what all ranks have, in their order. */
static int find_place(uni_strategy *strategy, uni_batch *batch, uni_error *err)
{
    int64_t *sizes = calloc((size_t)strategy->size, sizeof *sizes);
    if (!sizes)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d ranks", strategy->size);
    int status = uni_comm_all_gather(strategy->comm, &batch->size, sizes, 1, UNI_I64, err);
    batch->first_sample = batch->global_size = 0;
    for (int rank = 0; rank < strategy->size; rank++) {
        batch->first_sample += rank < strategy->rank ? sizes[rank] : 0;
        batch->global_size += sizes[rank];
    }
    free(sizes);
    return status;
}

int uni_strategy_run(uni_strategy *strategy, uni_replica_function function, void *context,
                     const uni_batch *batch, const uni_per_replica **values, uni_error *err)
{
    if (!strategy->server)
        return uni__run_replicas(strategy, function, context, batch, values, err);
    if (values)
        *values = NULL;
    return uni_error_set(
        err, UNI_ESTATE,
        "under parameter_server steps are scheduled by the coordinator: use "
        "uni_strategy_pass, which runs the same function, or uni_coordinator_schedule");
}

int uni__run_replicas(uni_strategy *strategy, uni_replica_function function, void *context,
                      const uni_batch *batch, const uni_per_replica **values, uni_error *err)
{
    cpu_set_t before;
    uni_batch placed;
    if (values)
        *values = NULL;
    UNI_TRY(uni__check_alive(strategy, err));
    UNI_TRY(make_crew(strategy, err));
    if (batch && strategy->size > 1 && batch->global_size <= 0) {
        placed = *batch;
        UNI_TRY(uni__give_up(strategy, find_place(strategy, &placed, err), err));
        batch = &placed;
    }
    uni__replica_team *crew = strategy->crew;
    for (int i = 0; i < crew->count; i++)
        forget_run(&crew->replicas[i]);
    crew->function = function;
    crew->context = context;
    crew->batch = batch;
    uni__pin(strategy, strategy->devices, &before);
    int status = run_crew(crew, err);
    uni__unpin(strategy, &before);
    if (status < 0) {
        (void)uni__give_up(strategy, status, err);
        if (crew->peers) {
            uni__replica_team_free(crew);
            strategy->crew = NULL;
        }
        return status;
    }
    merge_metrics(crew);
    if (crew->replicas[0].current)
        strategy->steps++;
    if (values)
        *values = &crew->values;
    return 0;
}
