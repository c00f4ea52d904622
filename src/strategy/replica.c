/*
 * replica.c - what a replica does inside uni_strategy_run: its tape, gradients, the common update,
 * metrics and its value.
 *
 * With one replica per process, gradients are summed over processes in buckets that start while the
 * backward pass still runs. With more, the first replica does it for all of them. The update is
 * nn/step.h's: each replica of a process updates a slice of the weights, and each process all of
 * them. Called on replica threads; each touches only its own context, and its own slice of the
 * optimizer.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/shared.h"
#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/log.h"
#include "strategy/internal.h"
#include "strategy/server/internal.h"

#define MAX_SPANS 16

/* Gradients of one model, and the buckets that sum them over processes: one for each span of
 * trainable weights. */
struct uni__memory {
    uni__memory *next;
    uint64_t model; /* its id */
    int64_t steps; /* updates so far */
    uni_parameters *store;
    uni_gradients *gradients;
    size_t size;
    /* Where the gradients live when there are other processes. */
    uni_comm_buffer *buffer;
    size_t num_spans;
    uni__span spans[MAX_SPANS];
    uni__comm_buckets *buckets[MAX_SPANS];
    int *tensor_of; /* by a parameter's index in the store: its place in its span's buckets */
};

static void forget_buckets(uni__memory *memory)
{
    for (size_t i = 0; i < memory->num_spans; i++)
        uni__comm_buckets_free(memory->buckets[i]);
    free(memory->tensor_of);
    memory->tensor_of = NULL;
    memory->num_spans = 0;
}

static void forget_memory(uni__memory *memory)
{
    forget_buckets(memory);
    uni_gradients_free(memory->gradients);
    uni_comm_buffer_free(memory->buffer);
    memory->gradients = NULL;
    memory->buffer = NULL;
}

void uni__memory_free(uni__memory *memory)
{
    while (memory) {
        uni__memory *next = memory->next;
        forget_memory(memory);
        free(memory);
        memory = next;
    }
}

/* ---- buckets ---- */

static int span_buckets(uni_strategy *strategy, uni__memory *memory, size_t index, uni_error *err)
{
    uni__span span = memory->spans[index];
    size_t count = uni_parameters_count(memory->store), *counts = calloc(count + 1, sizeof *counts);
    int tensors = 0;
    if (!counts)
        return uni_error_set(err, UNI_ENOMEM, "no memory for buckets");
    size_t end = span.begin;
    for (size_t i = 0; i < count; i++) {
        const uni_parameter *parameter = uni_parameters_at(memory->store, i);
        size_t offset = uni_parameter_info_of(parameter)->offset;
        if (uni_parameter_info_of(parameter)->kind != UNI_PARAMETER_WEIGHT || offset < span.begin ||
            offset >= span.end)
            continue;
        if (tensors > 0)
            counts[tensors - 1] += offset - end; /* the gap after the previous one */
        memory->tensor_of[i] = tensors;
        counts[tensors++] = uni_parameter_info_of(parameter)->size;
        end = offset + uni_parameter_info_of(parameter)->size;
    }
    if (tensors > 0)
        counts[tensors - 1] += span.end - end;
    float *flat = uni_gradients_data(memory->gradients, NULL);
    int status = uni__comm_buckets_new(&memory->buckets[index], strategy->comm, flat + span.begin,
                                       UNI_F32, tensors, counts, NULL, err);
    free(counts);
    return status;
}

/* Plans buckets for the trainable weights; keeps them until these change. */
static int plan_buckets(uni_strategy *strategy, uni__memory *memory, uni_error *err)
{
    uni__span spans[MAX_SPANS];
    size_t count = uni__parameters_trainable(memory->store, spans, MAX_SPANS);
    if (count > MAX_SPANS) {
        spans[0] = (uni__span){ 0, memory->size };
        count = 1;
    }
    if (count == memory->num_spans && memcmp(spans, memory->spans, count * sizeof *spans) == 0)
        return 0;
    forget_buckets(memory);
    memory->tensor_of = calloc(uni_parameters_count(memory->store) + 1, sizeof(int));
    if (!memory->tensor_of)
        return uni_error_set(err, UNI_ENOMEM, "no memory for buckets");
    memcpy(memory->spans, spans, count * sizeof *spans);
    for (size_t i = 0; i < count; i++) {
        memory->buckets[i] = NULL;
        memory->num_spans = i + 1;
        UNI_TRY(span_buckets(strategy, memory, i, err));
    }
    return 0;
}

static int gradient_ready(void *context, const uni_parameter *parameter, uni_error *err)
{
    uni__memory *memory = context;
    size_t offset = uni_parameter_info_of(parameter)->offset;
    for (size_t i = 0; i < memory->num_spans; i++)
        if (offset >= memory->spans[i].begin && offset < memory->spans[i].end)
            for (size_t p = 0; p < uni_parameters_count(memory->store); p++)
                if (uni_parameters_at(memory->store, p) == parameter)
                    return uni__comm_buckets_ready(memory->buckets[i], memory->tensor_of[p], err);
    return 0;
}

/* ---- a step ---- */

/* Allocates a model's gradients: in pages that other processes see, if there are any and this
 * replica represents its process. */
static int make_memory(uni_replica_context *replica, uni__memory *memory, uni_error *err)
{
    uni_strategy *strategy = replica->strategy;
    UNI_TRY(uni_gradients_new(&memory->gradients, memory->store, err));
    uni_gradients_data(memory->gradients, &memory->size);
    if (strategy->size == 1 || replica->local != 0 || memory->size == 0)
        return 0;
    UNI_TRY(uni_comm_alloc(&memory->buffer, strategy->comm, memory->size * sizeof(float), err));
    return uni__gradients_rehome(memory->gradients, uni_comm_buffer_data(memory->buffer), err);
}

static int find_memory(uni_replica_context *replica, const uni_model *model, uni__memory **out,
                       uni_error *err)
{
    uni__memory *found = replica->memory;
    while (found && found->model != uni__model_id(model))
        found = found->next;
    if (!found) {
        found = calloc(1, sizeof *found);
        if (!found)
            return uni_error_set(err, UNI_ENOMEM, "no memory for gradients");
        found->model = uni__model_id(model);
        found->store = uni_model_parameters(model);
        found->next = replica->memory;
        replica->memory = found;
    }
    if (!found->gradients)
        UNI_TRY(make_memory(replica, found, err));
    *out = found;
    return 0;
}

const uni_replica_info *uni_replica_info_of(const uni_replica_context *replica)
{
    const uni_strategy *strategy = replica->strategy;
    uni_replica_info *info = &((uni_replica_context *)replica)->info;
    *info = (uni_replica_info){
        .id = strategy->server ? strategy->rank - 1 /* the coordinator computes nothing */
                               : strategy->rank * strategy->replicas + replica->local,
        .num_replicas = strategy->replicas * strategy->size,
        .global_batch = replica->global,
    };
    return info;
}

uni_tape *uni_replica_begin(uni_replica_context *replica, uni_model *model, bool training,
                            uint64_t seed)
{
    uni_strategy *strategy = replica->strategy;
    uni_error error = { 0 };
    int status = 0;
    replica->current = NULL;
    if (model && !uni__placed_find(strategy, model))
        status = uni_error_set(&error, UNI_ESTATE,
                               "model %s was made outside the scope of strategy %s and cannot be "
                               "used under it: call uni_strategy_place after building it",
                               uni__model_name(model), uni_strategy_info_of(strategy)->name);
    if (status == 0 && model && training)
        status = find_memory(replica, model, &replica->current, &error);
    bool alone = strategy->kind == UNI__STRATEGY_NONE;
    uni_tape_begin(replica->tape,
                   &(uni_step){ .training = training,
                                .gradients = replica->current ? replica->current->gradients : NULL,
                                .seed = seed,
                                .number = strategy->steps,
                                .first_sample = replica->part.first_sample,
                                .sync = alone ? NULL : &replica->sync,
                                .keep_state = replica->local > 0 });
    if (status < 0)
        uni_tape_fail(replica->tape, status, "%s", error.message);
    return replica->tape;
}

/* ---- the update ---- */

static void check_division(uni_replica_context *replica, const uni_tensor *loss)
{
    uni_strategy *strategy = replica->strategy;
    if (strategy->kind == UNI__STRATEGY_NONE || uni_replica_info_of(replica)->id != 0)
        return;
    uni__loss_division how = uni__loss_check_division(replica->tape, loss, replica->global,
                                                      uni_replica_info_of(replica)->num_replicas);
    if (how == UNI__LOSS_DIVISION_TWICE && !strategy->warned_twice) {
        strategy->warned_twice = true;
        uni__warn("the loss was divided twice: it is the sum over the examples divided by the "
                  "global batch of %lld and then once more; gradients of the replicas are summed, "
                  "so divide by the global batch once (uni_compute_average_loss does)",
                  (long long)replica->global);
    }
    if (how == UNI__LOSS_DIVISION_BY_REPLICA && !strategy->warned_mean) {
        strategy->warned_mean = true;
        uni__warn("the loss is the mean over this replica's %lld examples, but gradients are "
                  "summed over %d replicas: divide by the global batch of %lld instead "
                  "(uni_compute_average_loss does)",
                  (long long)replica->part.size, uni_replica_info_of(replica)->num_replicas,
                  (long long)replica->global);
    }
    if (how == UNI__LOSS_PENALTY_UNSCALED && !strategy->warned_penalty) {
        strategy->warned_penalty = true;
        uni__warn("the regularisation is counted %d times, once by each replica: divide it by the "
                  "replicas (uni_scale_regularization_loss does)",
                  uni_replica_info_of(replica)->num_replicas);
    }
}

/* One replica per process: waits for the remaining sums. */
static int update_alone(uni_replica_context *replica, const uni__update *update, uni_error *err)
{
    uni__memory *memory = replica->current;
    for (size_t i = 0; replica->strategy->size > 1 && i < memory->num_spans; i++)
        UNI_TRY(uni__comm_buckets_finish(memory->buckets[i], err));
    return uni__update_alone(update, 0, uni__tape_helpers(replica->tape), err);
}

static int exchange(void *context, uni_gradients *gradients, uni_error *err)
{
    return uni__sum_gradients(context, gradients, err);
}

/* Several replicas: each sums and updates its slice. The sum goes into the first replica's
 * gradients. */
static int update_together(uni_replica_context *replica, uni_optimizer *optimizer, uni_error *err)
{
    uni__replica_team *crew = replica->crew;
    uni_strategy *strategy = replica->strategy;
    crew->parts[replica->local] = uni_gradients_data(replica->current->gradients, NULL);
    if (replica->local == 0)
        crew->update = (uni__update){ .optimizer = optimizer,
                                      .gradients = replica->current->gradients,
                                      .parts = crew->parts,
                                      .num_parts = crew->count };
    bool others = strategy->size > 1;
    UNI_TRY(uni__update_on_team(&crew->update, crew->team, replica->local, crew->count,
                                others || uni__optimizer_clips_by_norm(optimizer), 0,
                                others ? exchange : NULL, strategy, err));
    UNI_TRY(uni__team_meet(crew->team, replica->local, err)); /* every slice is done */
    if (replica->local == 0)
        uni__update_commit(&crew->update);
    return 0;
}

static int check_apply(const uni_replica_context *replica, const uni_optimizer *optimizer,
                       uni_error *err)
{
    UNI_TRY(uni_tape_status(replica->tape, err));
    if (!replica->current)
        return uni_error_set(err, UNI_ESTATE,
                             "apply_gradients without a training step: begin it by "
                             "uni_replica_begin with the model and training true");
    if (!uni__seen_has(&replica->strategy->optimizers, uni__optimizer_id(optimizer)))
        return uni_error_set(err, UNI_ESTATE,
                             "the optimizer %s was made outside the scope of strategy %s: call "
                             "uni_strategy_place_optimizer first",
                             uni__optimizer_name(optimizer),
                             uni_strategy_info_of(replica->strategy)->name);
    return 0;
}

int uni_replica_apply_gradients(uni_replica_context *replica, uni_tensor *loss,
                                uni_optimizer *optimizer, uni_error *err)
{
    uni_strategy *strategy = replica->strategy;
    uni__memory *memory = replica->current;
    UNI_TRY(check_apply(replica, optimizer, err));
    check_division(replica, loss);
    bool alone = replica->crew->count == 1, buckets = strategy->size > 1 && alone;
    if (buckets) {
        UNI_TRY(plan_buckets(strategy, memory, err));
        for (size_t i = 0; i < memory->num_spans; i++)
            UNI_TRY(uni__comm_buckets_begin(memory->buckets[i], 1, err));
    }
    UNI_TRY(uni_tape_gradient(replica->tape, loss,
                              &(uni_gradient_options){ .ready = buckets ? gradient_ready : NULL,
                                                       .ready_context = memory },
                              err));
    if (strategy->server)
        return uni__ps_keep_gradients(strategy->server, memory->gradients, err);
    uni__update update = { .optimizer = optimizer, .gradients = memory->gradients };
    UNI_TRY(alone ? update_alone(replica, &update, err) : update_together(replica, optimizer, err));
    bool check = strategy->size > 1 && replica->local == 0 && strategy->check_every > 0 &&
                 ++memory->steps % strategy->check_every == 0;
    return check ? uni__check_drift(strategy, memory->store, err) : 0;
}

/* ---- metrics and values ---- */

int uni_replica_update_metric(uni_replica_context *replica, uni_metric *metric,
                              const uni_tensor *target, const uni_tensor *prediction,
                              const uni_tensor *weights, uni_error *err)
{
    UNI_TRY(uni_tape_status(replica->tape, err));
    if (replica->crew->count == 1)
        return uni_metric_update(metric, target, prediction, weights, err);
    size_t at = 0;
    while (at < replica->num_counted && replica->counted[at].into != metric)
        at++;
    if (at == replica->num_counted) {
        uni__counted *grown = realloc(replica->counted, (at + 1) * sizeof *grown);
        if (grown)
            replica->counted = grown;
        uni_metric *mine = grown ? uni__metric_copy(metric) : NULL;
        if (!mine)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a replica's metric");
        grown[at] = (uni__counted){ .into = metric, .mine = mine };
        replica->num_counted++;
    }
    return uni_metric_update(replica->counted[at].mine, target, prediction, weights, err);
}

int uni_replica_return(uni_replica_context *replica, const uni_tensor *value, uni_error *err)
{
    UNI_TRY(uni_tape_status(replica->tape, err));
    if (!value || uni_tensor_dtype(value) != UNI_F32)
        return uni_error_set(err, UNI_EDTYPE,
                             "a replica returns float32 numbers, such as its loss");
    size_t count = uni_tensor_count(value);
    if (count > replica->capacity) {
        double *grown = realloc(replica->values, count * sizeof *grown);
        if (!grown)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a replica's value");
        replica->values = grown;
        replica->capacity = count;
    }
    for (size_t i = 0; i < count; i++)
        replica->values[i] = (double)((const float *)uni_tensor_data(value))[i];
    replica->count = count;
    replica->rows = uni_tensor_ndim(value) > 0 ? uni_tensor_dim(value, 0) : -1;
    return 0;
}
