/*
 * strategy.c - strategies as objects: making them, placing models, fit.
 *
 * There is one engine. none and mirrored are settings of its fit (replica threads); multi_worker gives it a uni_replica over a
 * communicator (multi_worker.c) and each rank's part of every global batch (distribute.c).
 */
#include <stdlib.h>
#include <string.h>

#include "strategy/internal.h"

#include <sched.h>

int uni__seen_add(uni__seen *seen, const void *thing, uni_error *err)
{
    if (uni__seen_has(seen, thing))
        return 0;
    const void **grown = realloc(seen->things, (seen->count + 1) * sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a strategy");
    seen->things = grown;
    seen->things[seen->count++] = thing;
    return 0;
}

bool uni__seen_has(const uni__seen *seen, const void *thing)
{
    for (size_t i = 0; i < seen->count; i++)
        if (seen->things[i] == thing)
            return true;
    return false;
}

static int new_strategy(uni_strategy **out, uni__strategy_kind kind, uni_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a strategy");
    (*out)->kind = kind;
    (*out)->size = 1;
    return 0;
}

int uni_strategy_none(uni_strategy **out, uni_error *err)
{
    UNI_TRY(new_strategy(out, UNI__STRATEGY_NONE, err));
    (*out)->replicas = 1;
    return 0;
}

int uni_strategy_mirrored(uni_strategy **out, int devices, uni_error *err)
{
    cpu_set_t mask;
    *out = NULL;
    if (devices < 0)
        return uni_error_set(err, UNI_EINVAL, "mirrored needs a positive number of devices, not %d",
                             devices);
    UNI_TRY(new_strategy(out, UNI__STRATEGY_MIRRORED, err));
    if (devices == 0)
        devices = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
    (*out)->replicas = devices;
    return 0;
}

int uni_strategy_multi_worker(uni_strategy **out, uni_comm *comm,
                              const uni_multi_worker_options *options, uni_error *err)
{
    static const uni_multi_worker_options defaults = { 0 };
    *out = NULL;
    if (!comm)
        return uni_error_set(
            err, UNI_EINVAL,
            "multi_worker needs a communicator: uni_session_comm gives that of a run");
    options = options ? options : &defaults;
    UNI_TRY(new_strategy(out, UNI__STRATEGY_MULTI_WORKER, err));
    uni_strategy *strategy = *out;
    strategy->comm = comm;
    strategy->rank = uni_comm_rank(comm);
    strategy->size = uni_comm_size(comm);
    strategy->replicas = options->replicas > 0 ? options->replicas : 1;
    strategy->check_every = options->check_every ? options->check_every : 100;
    strategy->owns_comm = options->take_comm;
    uni__multi_worker_init(strategy, options->local_statistics);
    return 0;
}

void uni_strategy_free(uni_strategy *strategy)
{
    if (!strategy)
        return;
    if (strategy->owns_comm)
        uni_comm_close(strategy->comm);
    free(strategy->placed.things);
    free(strategy->distributed.things);
    free(strategy);
}

const char *uni_strategy_name(const uni_strategy *strategy)
{
    static const char *const names[] = { "none", "mirrored", "multi_worker" };
    return names[strategy->kind];
}

int uni_strategy_num_replicas_in_sync(const uni_strategy *strategy)
{
    return strategy->replicas * strategy->size;
}

bool uni_strategy_is_chief(const uni_strategy *strategy)
{
    return strategy->rank == 0;
}

int uni_strategy_place(uni_strategy *strategy, uni_model *model, uni_error *err)
{
    uni_parameters *store = uni_model_parameters(model);
    if (!store)
        return uni_error_set(
            err, UNI_ESTATE,
            "the model has no weights yet: build it (give it its input shape) before it is placed");
    if (strategy->comm) {
        size_t weights = 0, states = 0;
        float *weight_data = uni_parameters_weights(store, &weights),
              *state_data = uni_parameters_states(store, &states);
        double sizes[2] = { (double)weights, (double)states };
        UNI_TRY(uni_comm_check_equal(strategy->comm, sizes, sizeof sizes,
                                     "the numbers of weights of the models", err));
        UNI_TRY(uni_comm_broadcast(strategy->comm, weight_data, weights, UNI_F32, 0, err));
        UNI_TRY(uni_comm_broadcast(strategy->comm, state_data, states, UNI_F32, 0, err));
    }
    return uni__seen_add(&strategy->placed, model, err);
}

/* The arrays of the options as batches of the global size, cut for this rank. */
static int distribute_arrays(uni_strategy *strategy, int num_x, const uni_column *x, int num_y,
                             const uni_column *y, const uni_column *weights,
                             const uni_fit_options *options, bool shuffle, uni_batches **whole,
                             uni_batches **part, uni_error *err)
{
    uni_columns_options how = { .batch_size = options->batch_size,
                                .shuffle = shuffle,
                                .seed = options->seed };
    UNI_TRY(uni_batches_columns(whole, num_x, x, num_y, y, weights, &how, err));
    return uni_strategy_distribute(strategy, *whole, part, err);
}

typedef struct sources {
    uni_batches *whole[2], *part[2]; /* training, validation */
} sources;

static int distribute_sources(uni_strategy *strategy, const uni_fit_options *asked,
                              uni_fit_options *options, sources *made, uni_error *err)
{
    if (asked->validation_split > 0)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "validation_split cannot be used under multi_worker: give "
                             "validation_x and validation_y instead");
    if (!asked->batches) {
        UNI_TRY(distribute_arrays(strategy, asked->num_x, asked->x, asked->num_y, asked->y,
                                  asked->sample_weight, asked, !asked->no_shuffle, &made->whole[0],
                                  &made->part[0], err));
        options->batches = made->part[0];
        options->x = options->y = options->sample_weight = NULL;
        options->num_x = options->num_y = 0;
        options->batch_size = 0;
    } else if (!uni__seen_has(&strategy->distributed, asked->batches)) {
        UNI_TRY(uni_strategy_distribute(strategy, asked->batches, &made->part[0], err));
        options->batches = made->part[0];
    }
    if (asked->validation_x) {
        UNI_TRY(distribute_arrays(strategy, asked->num_x, asked->validation_x, asked->num_y,
                                  asked->validation_y, asked->validation_weight, asked, false,
                                  &made->whole[1], &made->part[1], err));
        options->validation_batches = made->part[1];
        options->validation_x = options->validation_y = options->validation_weight = NULL;
    } else if (asked->validation_batches &&
               !uni__seen_has(&strategy->distributed, asked->validation_batches)) {
        UNI_TRY(uni_strategy_distribute(strategy, asked->validation_batches, &made->part[1], err));
        options->validation_batches = made->part[1];
    }
    return 0;
}

static int fit_together(uni_strategy *strategy, uni_model *model, const uni_fit_options *asked,
                        uni_value **history, uni_error *err)
{
    uni_fit_options options = *asked;
    sources made = { 0 };
    uni_fit_callback *checker = NULL, **callbacks = NULL;
    int status;
    UNI_TRY_GOTO(distribute_sources(strategy, asked, &options, &made, err), done);
    callbacks = calloc((size_t)asked->num_callbacks + 1, sizeof *callbacks);
    if (!callbacks) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for callbacks");
        goto done;
    }
    for (int i = 0; i < asked->num_callbacks; i++)
        callbacks[i] = asked->callbacks[i];
    if (strategy->check_every > 0) {
        UNI_TRY_GOTO(uni__multi_worker_checker(&checker, strategy, err), done);
        callbacks[options.num_callbacks++] = checker;
    }
    options.callbacks = callbacks;
    options.replica = &strategy->replica;
    options.replicas = strategy->replicas;
    if (!uni_strategy_is_chief(strategy))
        options.verbose = 0;
    status = uni_model_fit(model, &options, history, err);
    if (status < 0)
        uni_comm_abort(strategy->comm, err ? err->message : "a rank failed in fit");
done:
    free(callbacks);
    uni_fit_callback_free(checker);
    for (int i = 0; i < 2; i++) {
        uni_batches_free(made.part[i]);
        uni_batches_free(made.whole[i]);
    }
    return status;
}

int uni_strategy_fit(uni_strategy *strategy, uni_model *model, const uni_fit_options *asked,
                     uni_value **history, uni_error *err)
{
    if (!uni__seen_has(&strategy->placed, model))
        return uni_error_set(err, UNI_ESTATE,
                             "this model is not under the strategy: call uni_strategy_place after "
                             "building and compiling it, so that all "
                             "replicas begin with the same weights");
    if (strategy->kind == UNI__STRATEGY_MULTI_WORKER)
        return fit_together(strategy, model, asked, history, err);
    uni_fit_options options = *asked;
    options.replicas = strategy->replicas;
    if (strategy->kind == UNI__STRATEGY_MIRRORED && options.threads < strategy->replicas)
        options.threads = strategy->replicas;
    return uni_model_fit(model, &options, history, err);
}

int uni_strategy_reduce(uni_strategy *strategy, uni_replica_op op, double *values, size_t count,
                        uni_error *err)
{
    if (strategy->comm)
        UNI_TRY(
            uni_comm_all_reduce(strategy->comm, values, values, count, UNI_F64, UNI_COMM_SUM, err));
    for (size_t i = 0; op == UNI_REPLICA_MEAN && i < count; i++)
        values[i] /= strategy->size;
    return 0;
}

int uni_strategy_reduce_gradients(uni_strategy *strategy, uni_gradients *gradients, uni_error *err)
{
    size_t size = 0;
    float *data = uni_gradients_data(gradients, &size);
    return strategy->comm
               ? uni_comm_all_reduce(strategy->comm, data, data, size, UNI_F32, UNI_COMM_SUM, err)
               : 0;
}

const uni_sync *uni_strategy_sync(const uni_strategy *strategy)
{
    return strategy->replica.sync.sum ? &strategy->replica.sync : NULL;
}
