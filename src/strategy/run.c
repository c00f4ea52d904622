/*
 * run.c - uni_strategy_run: runs one function on the replicas of this process, each on its own
 * thread.
 *
 * The first run creates the crew, which then stays. Its threads are a team (tensor/team.h): replica
 * 0 is the caller's thread, the others wait between runs, and the step synchronizes through the
 * team. A replica that fails aborts the team, so that no other waits for it.
 */
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/coordinator.h>

#include "nn/shared.h"
#include "strategy/elastic/elastic.h"

/* ---- one replica ---- */

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

static void take_turn(void *context, int member)
{
    uni__replica_team *crew = context;
    uni_replica_context *replica = &crew->replicas[member];
    const uni_batch *batch = crew->batch;
    int64_t n = crew->count, i = member;
    if (member > 0 && !replica->pinned)
        uni__pin(crew->strategy, crew->strategy->devices ? &crew->strategy->devices[member] : NULL,
                 NULL);
    replica->pinned = true;
    if (batch) {
        replica->part = uni__batch_part(batch, batch->size * i / n, batch->size * (i + 1) / n);
        replica->global = replica->part.global_size;
    } else {
        replica->part = (uni_batch){ 0 };
        replica->global = 0;
    }
    replica->error = (uni_error){ 0 };
    replica->status = crew->function(replica, &replica->part, crew->context, &replica->error);
    if (replica->status < 0)
        uni__team_abort(crew->team);
}

/* ---- the crew ---- */

void uni__replica_team_free(uni__replica_team *crew)
{
    if (!crew)
        return;
    uni__team_free(crew->team);
    for (int i = 0; crew->replicas && i < crew->count; i++) {
        uni_replica_context *replica = &crew->replicas[i];
        forget_run(replica);
        free(replica->counted);
        free(replica->values);
        uni__memory_free(replica->memory);
        uni_tape_free(replica->tape);
    }
    free(crew->replicas);
    free(crew->parts);
    free(crew);
}

/* Sums batch statistics over the replicas of this process; the first replica sums over all
 * processes. */
static int sum_statistics(void *context, float *values, size_t count, uni_error *err)
{
    uni_replica_context *replica = context;
    return uni__team_sum(replica->crew->team, replica->local, values, count,
                         &replica->strategy->updater.sync, err);
}

static int tape_threads(const uni_strategy *strategy)
{
    if (strategy->devices)
        return strategy->devices[0].num_cpus;
    int threads = uni__process_threads(strategy);
    return threads / strategy->replicas > 1 ? threads / strategy->replicas : 1;
}

static int fill_crew(uni__replica_team *crew, uni_error *err)
{
    uni_strategy *strategy = crew->strategy;
    crew->replicas = calloc((size_t)crew->count, sizeof *crew->replicas);
    crew->parts = calloc((size_t)crew->count, sizeof *crew->parts);
    if (!crew->replicas || !crew->parts)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d replicas", crew->count);
    for (int i = 0; i < crew->count; i++) {
        uni_replica_context *replica = &crew->replicas[i];
        *replica = (uni_replica_context){ .strategy = strategy, .crew = crew, .local = i };
        replica->sync = (uni_sync){ .context = replica, .sum = sum_statistics };
        UNI_TRY(uni_tape_new(&replica->tape,
                             &(uni_tape_options){ .threads = tape_threads(strategy) }, err));
    }
    return uni__team_new(&crew->team, crew->count, err);
}

static int make_crew(uni_strategy *strategy, uni_error *err)
{
    if (strategy->crew)
        return 0;
    uni__replica_team *crew = calloc(1, sizeof *crew);
    if (!crew)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the replicas of a strategy");
    crew->strategy = strategy;
    /* With parameter servers, each worker is one replica. */
    crew->count = strategy->server ? 1 : strategy->replicas;
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

/* The first replica that failed by itself, not because of another. */
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
            uni__metric_merge(replica->counted[m].into, replica->counted[m].mine);
    }
}

/* For a batch that belongs to this rank (sharding OFF or by files): the global batch is the
 * concatenation of all ranks' batches, in rank order. */
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

int uni_strategy_run(const uni_per_replica **values, uni_strategy *strategy,
                     uni_replica_function function, void *context, const uni_batch *batch,
                     uni_error *err)
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
    uni__elastic_note_call(strategy);
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
    uni__team_run(crew->team, take_turn, crew);
    uni__unpin(strategy, &before);
    UNI_TRY(uni__give_up(strategy, first_error(crew, err), err));
    merge_metrics(crew);
    if (crew->replicas[0].current)
        strategy->steps++;
    if (values)
        *values = &crew->values;
    return 0;
}
