/*
 * strategy.c - strategies as objects: creating them, and placing models and optimizers.
 *
 * There is one engine. none, one_device and mirrored are settings of its fit (replica threads).
 * multi_worker gives it a uni__updater over a communicator (multi_worker.c) and each rank's part of
 * every global batch (distribute.c). Custom loops are in run.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/shared.h"
#include "strategy/devices.h"
#include "nn/shared.h"
#include "strategy/elastic/elastic.h"
#include "strategy/server/internal.h"
#include "base/options.h"

static int seen_add(uni__seen *seen, uint64_t id, uni_error *err)
{
    if (uni__seen_has(seen, id))
        return 0;
    uint64_t *grown = realloc(seen->ids, (seen->count + 1) * sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a strategy");
    seen->ids = grown;
    seen->ids[seen->count++] = id;
    return 0;
}

bool uni__seen_has(const uni__seen *seen, uint64_t id)
{
    for (size_t i = 0; i < seen->count; i++)
        if (seen->ids[i] == id)
            return true;
    return false;
}

int uni__give_up(uni_strategy *strategy, int status, const uni_error *err)
{
    char reason[sizeof err->message];
    if (status >= 0 || (!strategy->comm && !strategy->elastic) || strategy->ended.code < 0)
        return status;
    const char *sentence = err && err->message[0] ? err->message : "it failed without a message";
    uni_error_set(&strategy->ended, status, "%s", sentence);
    if (uni__elastic_leaves(strategy) || !strategy->comm) /* the others go on, or find out */
        return status;
    /* The first reason counts: if another rank's is already known, this one is ignored. */
    snprintf(reason, sizeof reason, "rank %d failed: %.*s", strategy->rank, (int)sizeof reason - 32,
             sentence);
    uni_comm_abort(strategy->comm, reason);
    return status;
}

int uni__check_alive(const uni_strategy *strategy, uni_error *err)
{
    if (strategy->kind == UNI__STRATEGY_MULTI_WORKER && strategy->ended.code >= 0 &&
        (!strategy->comm || uni__elastic_joins(strategy)))
        return uni_error_set(err, UNI_ESTATE,
                             "this worker came later than the others: it joins them in fit, and "
                             "cannot make calls with them before");
    if (strategy->ended.code >= 0)
        return 0;
    return uni_error_set(err, strategy->ended.code,
                         "this strategy has ended by an earlier error, and its ranks cannot meet "
                         "again (a run that is restarted goes on): %.700s",
                         strategy->ended.message);
}

static int new_strategy(uni_strategy **out, uni__strategy_kind kind, int replicas, uni_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a strategy");
    (*out)->kind = kind;
    (*out)->replicas = replicas;
    (*out)->size = 1;
    return 0;
}

int uni_strategy_none(uni_strategy **out, uni_error *err)
{
    return new_strategy(out, UNI__STRATEGY_NONE, 1, err);
}

int uni_strategy_mirrored(uni_strategy **out, int devices, uni_error *err)
{
    *out = NULL;
    if (devices < 0 || devices > UNI__DEVICE_MAX_CPUS)
        return uni_error_set(err, UNI_EINVAL, "mirrored needs a positive number of devices, not %d",
                             devices);
    return new_strategy(out, UNI__STRATEGY_MIRRORED, devices ? devices : uni__devices(NULL, 0),
                        err);
}

/* Resolves the replicas' devices by name; the strategy runs on no others. */
static int take_devices(uni_strategy *strategy, const char *const *names, uni_error *err)
{
    int count = strategy->replicas;
    strategy->devices = calloc((size_t)count, sizeof *strategy->devices);
    if (!strategy->devices)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d devices", count);
    CPU_ZERO(&strategy->cpus);
    for (int i = 0; i < count; i++) {
        cpu_set_t cpus, both;
        UNI_TRY(uni__device_parse(&strategy->devices[i], names[i], err));
        uni__device_cpus(&cpus, &strategy->devices[i]);
        CPU_AND(&both, &cpus, &strategy->cpus);
        if (CPU_COUNT(&both) > 0)
            return uni_error_set(err, UNI_EINVAL,
                                 "device %s of the list has CPUs of one before it: every replica "
                                 "needs a device of its own",
                                 names[i]);
        CPU_OR(&strategy->cpus, &strategy->cpus, &cpus);
    }
    strategy->pinned = true;
    return 0;
}

static int new_pinned(uni_strategy **out, uni__strategy_kind kind, int count,
                      const char *const *devices, uni_error *err)
{
    UNI_TRY(new_strategy(out, kind, count, err));
    int status = take_devices(*out, devices, err);
    if (status < 0) {
        uni_strategy_free(*out);
        *out = NULL;
    }
    return status;
}

int uni_strategy_mirrored_on(uni_strategy **out, int count, const char *const *devices,
                             uni_error *err)
{
    *out = NULL;
    if (count < 1 || count > UNI__DEVICE_MAX_CPUS || !devices)
        return uni_error_set(err, UNI_EINVAL, "mirrored needs a list of devices, got %d", count);
    return new_pinned(out, UNI__STRATEGY_MIRRORED, count, devices, err);
}

int uni_strategy_one_device(uni_strategy **out, const char *device, uni_error *err)
{
    return new_pinned(out, UNI__STRATEGY_ONE_DEVICE, 1, &device, err);
}

int uni_strategy_multi_worker(uni_strategy **out, uni_comm *comm,
                              const uni_multi_worker_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_multi_worker_options, options, take_comm, err);
    if (!comm)
        return uni_error_set(
            err, UNI_EINVAL,
            "multi_worker needs a communicator: uni_session_comm gives that of a run");
    const uni_comm_info *info = uni_comm_info_of(comm);
    UNI_TRY(uni__strategy_multi_worker(out, info->rank, info->size, options, err));
    (*out)->comm = comm;
    return 0;
}

int uni__strategy_multi_worker(uni_strategy **out, int rank, int size,
                               const uni_multi_worker_options *options, uni_error *err)
{
    static const uni_multi_worker_options defaults = { 0 };
    *out = NULL;
    if (options && (options->replicas < 0 || options->replicas > UNI__DEVICE_MAX_CPUS))
        return uni_error_set(err, UNI_EINVAL,
                             "multi_worker needs a positive number of replicas a worker, not %d",
                             options->replicas);
    options = options ? options : &defaults;
    UNI_TRY(new_strategy(out, UNI__STRATEGY_MULTI_WORKER,
                         options->replicas > 0 ? options->replicas : 1, err));
    uni_strategy *strategy = *out;
    strategy->rank = rank;
    strategy->size = size;
    strategy->check_every = options->check_every ? options->check_every : 100;
    strategy->owns_comm = options->take_comm;
    uni__multi_worker_init(strategy, options->local_statistics);
    return 0;
}

int uni__strategy_parameter_server(uni_strategy **out, const uni__cluster *cluster,
                                   const uni_parameter_server_options *options, uni_error *err)
{
    uni__ps *ps = NULL;
    *out = NULL;
    UNI_TRY(uni__ps_new(&ps, cluster, options, err));
    bool synchronous = options && options->mode == UNI_PS_SYNCHRONOUS;
    int status =
        new_strategy(out, UNI__STRATEGY_PARAMETER_SERVER, synchronous ? cluster->workers : 1, err);
    if (status < 0) {
        uni__ps_free(ps);
        return status;
    }
    (*out)->server = ps;
    (*out)->rank = cluster->rank;
    return 0;
}

uni__ps *uni__ps_of(const uni_strategy *strategy)
{
    return strategy->server;
}

void uni_strategy_free(uni_strategy *strategy)
{
    if (!strategy)
        return;
    uni__ps_free(strategy->server);
    uni__replica_team_free(strategy->crew);
    uni__elastic_free(strategy);
    uni__fused_free(&strategy->fused);
    if (strategy->owns_comm)
        uni_comm_close(strategy->comm);
    uni__parts_forget(strategy);
    free(strategy->devices);
    free(strategy->placed);
    free(strategy->optimizers.ids);
    free(strategy);
}

const uni_strategy_info *uni_strategy_info_of(const uni_strategy *strategy)
{
    static const char *const names[] = { "none", "mirrored", "one_device", "multi_worker",
                                         "parameter_server" };
    uni_strategy_info *info = &((uni_strategy *)strategy)->info;
    *info = (uni_strategy_info){
        .name = names[strategy->kind],
        .num_replicas_in_sync = strategy->replicas * strategy->size,
        .is_chief = strategy->rank == 0,
        .num_workers = strategy->size,
        .worker_index = strategy->rank,
    };
    return info;
}

/* ---- the scope ---- */

const uni__placed *uni__placed_find(const uni_strategy *strategy, const uni_model *model)
{
    for (size_t i = 0; i < strategy->num_placed; i++)
        if (strategy->placed[i].model == uni__model_id(model))
            return &strategy->placed[i];
    return NULL;
}

static int remember(uni_strategy *strategy, const uni_model *model, uni_error *err)
{
    uni__placed *found = (uni__placed *)(uintptr_t)uni__placed_find(strategy, model);
    const uni_optimizer *optimizer = uni_model_optimizer(model);
    if (!found) {
        uni__placed *grown =
            realloc(strategy->placed, (strategy->num_placed + 1) * sizeof *strategy->placed);
        if (!grown)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a strategy");
        strategy->placed = grown;
        found = &grown[strategy->num_placed++];
    }
    *found = (uni__placed){ .model = uni__model_id(model),
                            .optimizer = optimizer ? uni__optimizer_id(optimizer) : 0 };
    return optimizer ? seen_add(&strategy->optimizers, found->optimizer, err) : 0;
}

static int place(uni_strategy *strategy, uni_model *model, uni_error *err)
{
    uni_parameters *store = uni_model_parameters(model);
    if (!store)
        return uni_error_set(
            err, UNI_ESTATE,
            "the model has no weights yet: build it (give it its input shape) before it is placed");
    if (strategy->comm && !uni__elastic_joins(strategy)) {
        size_t weights = 0, states = 0;
        float *weight_data = uni_parameters_weights(store, &weights),
              *state_data = uni__parameters_states(store, &states);
        UNI_TRY(uni__agree_on_model(strategy, model, err));
        UNI_TRY(uni_comm_broadcast(strategy->comm, weight_data, weights, UNI_F32, 0, err));
        UNI_TRY(uni_comm_broadcast(strategy->comm, state_data, states, UNI_F32, 0, err));
    }
    if (strategy->server)
        UNI_TRY(uni__ps_place(strategy->server, model, uni_model_optimizer(model), err));
    return remember(strategy, model, err);
}

int uni_strategy_place(uni_strategy *strategy, uni_model *model, uni_error *err)
{
    if (!uni__elastic_joins(strategy))
        UNI_TRY(uni__check_alive(strategy, err));
    return uni__give_up(strategy, place(strategy, model, err), err);
}

int uni_strategy_place_optimizer(uni_strategy *strategy, uni_optimizer *optimizer, uni_error *err)
{
    if (strategy->server)
        UNI_TRY(uni__ps_place(strategy->server, NULL, optimizer, err));
    return seen_add(&strategy->optimizers, uni__optimizer_id(optimizer), err);
}
