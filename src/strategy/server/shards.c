/*
 * shards.c - how a model is cut for the servers, and what all members must know about it (the
 * board's shape). Any member's thread.
 */
#include <stdio.h>

#include "tensor/shared.h"
#include "nn/shared.h"
#include "strategy/server/internal.h"

#define LARGE_SHARD ((size_t)1 << 20) /* floats; such shards have a shorter log */

/* Cuts as even as it goes, at cache lines; where the optimizer clips each parameter by its norm,
 * between parameters. */
void uni__ps_cut_shards(uni_parameters *store, int servers, bool whole_parameters, uni__span *spans)
{
    size_t size = 0, at = 0, parameter = 0, parameters = uni_parameters_count(store);
    uni_parameters_weights(store, &size);
    for (int s = 0; s < servers; s++) {
        size_t end = size * (size_t)(s + 1) / (size_t)servers / 16 * 16;
        if (whole_parameters && s < servers - 1) {
            size_t border = at;
            for (; parameter < parameters; parameter++) {
                const uni_parameter *p = uni_parameters_at(store, parameter);
                if (uni_parameter_info_of(p)->kind == UNI_PARAMETER_STATE)
                    continue;
                size_t past = uni_parameter_info_of(p)->offset + uni_parameter_info_of(p)->size;
                if (past > end && border > at)
                    break;
                border = past;
                if (past > end)
                    break;
            }
            end = border;
        }
        end = s == servers - 1 || end > size ? size : end;
        spans[s] = (uni__span){ at, end > at ? end : at };
        at = spans[s].end;
    }
}

/* The optimizer's clipping restricts how shards can be cut. */
static int check_optimizer(const uni__ps *ps, uni_optimizer *optimizer, bool *whole, uni_error *err)
{
    uni_value *config = NULL;
    UNI_TRY(uni__optimizer_get_config(optimizer, &config, err));
    bool global = uni_value_is_number(uni_dict_get(config, "global_clipnorm"));
    *whole = uni_value_is_number(uni_dict_get(config, "clipnorm"));
    uni_value_free(config);
    if (global && ps->cluster.servers > 1)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "global_clip_norm needs the whole gradient in one place: use one "
                             "server, or clip_norm (each parameter by itself)");
    return 0;
}

int uni__ps_make_shape(const uni__ps *ps, uni__server_board_shape *shape, uni_error *err)
{
    uni_optimizer *optimizer = ps->optimizer;
    uni_parameters *store = uni_model_parameters(ps->model);
    size_t weights = 0, states = 0;
    bool whole = false;
    uni_parameters_weights(store, &weights);
    uni__parameters_states(store, &states);
    UNI_TRY(check_optimizer(ps, optimizer, &whole, err));
    *shape = (uni__server_board_shape){ .workers = (uint32_t)ps->cluster.workers,
                                        .servers = (uint32_t)ps->cluster.servers,
                                        .mode = ps->options.mode,
                                        .staleness = (uint32_t)ps->options.staleness,
                                        .replica = !ps->options.no_replica,
                                        .num_slots = (uint32_t)uni__optimizer_num_slots(optimizer),
                                        .whole_parameters = whole,
                                        .num_weights = weights,
                                        .num_states = states,
                                        .seed = uni__model_seed(ps->model) };
    shape->log_length = weights / shape->servers > LARGE_SHARD ? 2 : UNI__REPLICA_LOG_MAX;
    snprintf(shape->optimizer, sizeof shape->optimizer, "%s", uni__optimizer_name(optimizer));
    return 0;
}
