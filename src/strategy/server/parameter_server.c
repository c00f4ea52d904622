/*
 * parameter_server.c - a member of a parameter-server run: its role, how it gets the shared memory,
 * and phases.
 *
 * The coordinator creates the board when its model is placed. Whenever it waits for something, it
 * hands the board to every member that says hello. That includes a restarted member, which begins
 * its next incarnation. Members train (fit, or a coordinator's serve) in phases, which all count in
 * the same way, so that a member that was restarted late skips those that are done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/shared.h"
#include "nn/shared.h"
#include "base/clock.h"
#include "base/log.h"
#include "strategy/internal.h"
#include "strategy/server/internal.h"

#define JOIN_TIMEOUT 120.0
#define WARN_AFTER 10.0
#define IDLE_MS 20
#define EARLY_IDLE_MS 2

/* Over hosts: how often a member checks whether the phase is over. */
#define MAIL_NS 5000000u

static const char hello_key[] = "ps.hello", board_key[] = "ps.board", phase_key[] = "ps.phase";

/* Sent with the board. Messages are addressed by rank, so an answer to a process that has died may
 * reach its successor, which sees from the token that the answer is not its own. */
typedef struct welcome {
    /* Of the hello; NOT_ASKED: for the member that is there now. */
    uint64_t token;
    uint32_t epoch, unused;
} welcome;
#define NOT_ASKED 0u

bool uni__ps_is_coordinator(const uni__ps *ps)
{
    return ps->cluster.rank == 0;
}

bool uni__ps_is_worker(const uni__ps *ps)
{
    return ps->cluster.rank >= 1 && ps->cluster.rank <= ps->cluster.workers;
}

bool uni__ps_is_synchronous(const uni__ps *ps)
{
    return ps->board.header->shape.mode == UNI_PS_SYNCHRONOUS;
}

int uni__ps_lanes(const uni__ps *ps)
{
    return uni__ps_is_synchronous(ps) ? ps->cluster.workers : 1;
}

/* ---- admitting members ---- */

static int let_in(uni__ps *ps, int rank, uint64_t token, uni_error *err)
{
    uni__server_board_member *member = &ps->board.header->members[rank];
    atomic_store(&member->left, 0);
    welcome answer = { .token = token, .epoch = atomic_fetch_add(&member->epoch, 1) + 1 };
    if (answer.epoch > 1 && rank <= ps->cluster.workers)
        uni__ps_worker_is_back(ps, rank - 1);
    return ps->cluster.vtable->send(ps->cluster.context, rank, board_key, &answer, sizeof answer,
                                    ps->board.fd, err);
}

/* Coordinator: admits all members that have said hello. */
static int look_at_mail(uni__ps *ps, uni_error *err)
{
    for (;;) {
        char key[UNI__CLUSTER_KEY_SIZE];
        uint64_t token = NOT_ASKED;
        int from = -1, fd = -1;
        size_t size = 0;
        int found = ps->cluster.vtable->receive(ps->cluster.context, hello_key, &from, key, &token,
                                                sizeof token, &size, &fd, 0, err);
        UNI_TRY(found);
        if (fd >= 0)
            close(fd);
        if (found == 0)
            return 0;
        if (from > 0 && from <= ps->cluster.workers + ps->cluster.servers)
            UNI_TRY(let_in(ps, from, token, err));
    }
}

static const char *role_of(const uni__ps *ps, int rank, char out[48])
{
    bool worker = rank <= ps->cluster.workers;
    snprintf(out, 48, "%s %d (rank %d)", worker ? "worker" : "server",
             worker ? rank - 1 : rank - 1 - ps->cluster.workers, rank);
    return out;
}

/* Fails for members that never joined: all must run the same train function. */
static int check_missing(uni__ps *ps, uni_error *err)
{
    double limit = ps->options.join_timeout > 0 ? ps->options.join_timeout : JOIN_TIMEOUT;
    double waited = (double)(uni__monotonic_ns() - ps->begun_ns) * 1e-9;
    char name[48];
    if (ps->all_here || waited < WARN_AFTER)
        return 0;
    for (int rank = 1; rank <= ps->cluster.workers + ps->cluster.servers; rank++) {
        if (atomic_load(&ps->board.header->members[rank].epoch) > 0)
            continue;
        if (!ps->warned_missing)
            uni__warn("%s has not joined for %.0f s", role_of(ps, rank, name), waited);
        ps->warned_missing = true;
        if (waited < limit)
            return 0;
        return uni_error_set(err, UNI_ETIMEOUT,
                             "%s has not joined within %.0f s: every member must open the "
                             "strategy, build the model and place it",
                             role_of(ps, rank, name), waited);
    }
    ps->all_here = true;
    return 0;
}

static bool has_left(const uni__ps *ps, int rank)
{
    return atomic_load(&ps->board.header->members[rank].left) > ps->phase;
}

/* In asynchronous steps the other workers do the work of one that has left, except for the call
 * that it had. */
static bool is_missed(const uni__ps *ps, int rank)
{
    if (!has_left(ps, rank))
        return false;
    if (rank > ps->cluster.workers || uni__ps_is_synchronous(ps) ||
        uni__ps_worker_has_call(ps, rank - 1))
        return true;
    for (int other = 1; other <= ps->cluster.workers; other++)
        if (!has_left(ps, other))
            return false;
    return true;
}

/* Members that ended their part while the coordinator still needs them: they answer no more
 * questions unless they are restarted. */
static int check_left(uni__ps *ps, uni_error *err)
{
    int rank = 1, last = ps->cluster.workers + ps->cluster.servers;
    uint64_t now = uni__monotonic_ns();
    char name[48];
    while (rank <= last && !is_missed(ps, rank))
        rank++;
    if (rank > last) {
        ps->left_ns = 0;
        return 0;
    }
    if (ps->left_ns == 0)
        ps->left_ns = now;
    double limit = ps->options.join_timeout > 0 ? ps->options.join_timeout : JOIN_TIMEOUT;
    if ((double)(now - ps->left_ns) * 1e-9 < limit)
        return 0;
    return uni_error_set(err, UNI_ETIMEOUT,
                         "the coordinator waits for %s, which ended its part %.0f s ago and has "
                         "not joined again: every member must make the same calls, and end with "
                         "the coordinator",
                         role_of(ps, rank, name), limit);
}

int uni__ps_check_life(const uni__ps *ps, uni_error *err)
{
    char name[48];
    if (uni__ps_is_coordinator(ps) || ps->carrier ||
        atomic_load(&ps->board.header->members[ps->cluster.rank].epoch) == ps->epoch)
        return 0;
    return uni_error_set(err, UNI_EPEER,
                         "the coordinator has let in another process as %s since this one joined",
                         role_of(ps, ps->cluster.rank, name));
}

/* Over hosts the coordinator announces the ends of phases by message. */
static int look_for_phases(uni__ps *ps, uni_error *err)
{
    uint64_t now = uni__monotonic_ns();
    if (uni__ps_is_coordinator(ps) || now - ps->looked_ns < MAIL_NS)
        return 0;
    ps->looked_ns = now;
    for (;;) {
        char key[UNI__CLUSTER_KEY_SIZE];
        uint32_t done = 0;
        int from = -1, fd = -1;
        size_t size = 0;
        int found = ps->cluster.vtable->receive(ps->cluster.context, phase_key, &from, key, &done,
                                                sizeof done, &size, &fd, 0, err);
        UNI_TRY(found);
        if (fd >= 0)
            close(fd);
        if (found == 0)
            return 0;
        if (size == sizeof done)
            atomic_store(&ps->board.header->phases_done, done);
    }
}

int uni__ps_attend(uni__ps *ps, uni_error *err)
{
    char why[256] = "";
    if (ps->carrier) {
        UNI_TRY(uni__carrier_status(ps->carrier, err));
        UNI_TRY(look_for_phases(ps, err));
    }
    if (ps->cluster.vtable->over(ps->cluster.context, why, sizeof why))
        return uni_error_set(err, UNI_EPEER, "the run is over: %s", why);
    if (ps->in_phase && uni__ps_phase_over(ps))
        return uni_error_set(err, UNI_ECANCELED, "the coordinator has ended this part of the run");
    if (uni__ps_is_coordinator(ps) && !ps->carrier) {
        UNI_TRY(look_at_mail(ps, err));
        UNI_TRY(check_missing(ps, err));
        return check_left(ps, err);
    }
    return uni__ps_check_life(ps, err);
}

int uni__ps_idle(uni__ps *ps, uint32_t seen, uni_error *err)
{
    UNI_TRY(uni__ps_attend(ps, err));
    bool early = ps->carrier || (uni__ps_is_coordinator(ps) && !ps->all_here);
    uni__bell_wait(&ps->board, seen, early ? EARLY_IDLE_MS : IDLE_MS);
    return 0;
}

/* Unique among all processes that ever say hello on this host. */
static uint64_t new_token(void)
{
    uint64_t token = uni__monotonic_ns() << 22 ^ (uint64_t)getpid();
    return token == NOT_ASKED ? 1 : token;
}

static void warn_alone(uni__ps *ps)
{
    if (ps->warned_missing || (double)(uni__monotonic_ns() - ps->begun_ns) * 1e-9 < WARN_AFTER)
        return;
    char name[48];
    uni__warn("%s has waited %.0f s for the coordinator (rank 0) to place its model",
              role_of(ps, ps->cluster.rank, name), WARN_AFTER);
    ps->warned_missing = true;
}

/* A member: says hello and waits for the board. */
static int join(uni__ps *ps, uni_error *err)
{
    uint64_t token = new_token();
    char why[256] = "", key[UNI__CLUSTER_KEY_SIZE];
    UNI_TRY(
        ps->cluster.vtable->send(ps->cluster.context, 0, hello_key, &token, sizeof token, -1, err));
    for (;;) {
        int from = -1, fd = -1;
        size_t size = 0;
        welcome answer = { 0 };
        int found = ps->cluster.vtable->receive(ps->cluster.context, board_key, &from, key, &answer,
                                                sizeof answer, &size, &fd, 100, err);
        UNI_TRY(found);
        if (found == 1 && fd >= 0 && size == sizeof answer &&
            (answer.token == token || answer.token == NOT_ASKED)) {
            int status = uni__server_board_map(&ps->board, fd, ps->cluster.rank, err);
            close(fd);
            ps->epoch = answer.epoch;
            return status;
        }
        if (fd >= 0)
            close(fd);
        if (ps->cluster.vtable->over(ps->cluster.context, why, sizeof why))
            return uni_error_set(err, UNI_EPEER, "the run is over: %s", why);
        warn_alone(ps);
    }
}

static int check_same_model(const uni__ps *ps, const uni__server_board_shape *mine, uni_error *err)
{
    const uni__server_board_shape *theirs = &ps->board.header->shape;
    if (mine->num_weights != theirs->num_weights || mine->num_states != theirs->num_states ||
        mine->num_slots != theirs->num_slots || strcmp(mine->optimizer, theirs->optimizer) != 0)
        return uni_error_set(
            err, UNI_EMISMATCH,
            "rank %d has a model of %llu weights and %llu states with %s, the coordinator one of "
            "%llu and %llu with %s: build and compile the same model on every member",
            ps->cluster.rank, (unsigned long long)mine->num_weights,
            (unsigned long long)mine->num_states, mine->optimizer,
            (unsigned long long)theirs->num_weights, (unsigned long long)theirs->num_states,
            theirs->optimizer);
    if (mine->mode != theirs->mode || mine->staleness != theirs->staleness)
        return uni_error_set(err, UNI_EMISMATCH,
                             "rank %d opened parameter_server in another mode than the "
                             "coordinator: give the same options on every member",
                             ps->cluster.rank);
    return 0;
}

/* ---- place ---- */

static int place_coordinator(uni__ps *ps, const uni__server_board_shape *shape, uni_error *err)
{
    uni__span *spans = calloc(shape->servers, sizeof *spans);
    if (!spans)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %u shards", shape->servers);
    uni__ps_cut_shards(uni_model_parameters(ps->model), (int)shape->servers,
                       shape->whole_parameters, spans);
    int status = uni__server_board_new(&ps->board, shape, spans, err);
    free(spans);
    UNI_TRY(status);
    ps->epoch = 1;
    atomic_store(&ps->board.header->members[0].epoch, 1);
    UNI_TRY(uni__server_store_publish(&ps->board, ps->model, ps->optimizer, 0, err));
    return uni__ps_open_queue(ps, err);
}

static int open_links(uni__ps *ps, uni_error *err)
{
    ps->servers = calloc((size_t)ps->cluster.servers, sizeof *ps->servers);
    if (!ps->servers)
        return uni_error_set(err, UNI_ENOMEM, "no memory for links");
    for (int s = 0; s < ps->cluster.servers; s++)
        ps->servers[s] = uni__server_board_link(&ps->board, ps->cluster.rank, s);
    if (uni__ps_is_worker(ps))
        ps->worker.link = uni__server_board_link(&ps->board, ps->cluster.rank, -1);
    return 0;
}

/* Over hosts: sends the coordinator's shape, shards, weights and optimizer state to all. */
static int send_around(uni__ps *ps, uni_comm *comm, uni_error *err)
{
    uni_parameters *store = uni_model_parameters(ps->model);
    int64_t steps = uni_optimizer_iterations(ps->optimizer);
    size_t weights = 0, states = 0;
    float *data = uni_parameters_weights(store, &weights);
    UNI_TRY(uni__optimizer_build(ps->optimizer, store, err));
    UNI_TRY(uni_comm_broadcast(comm, data, weights, UNI_F32, 0, err));
    data = uni__parameters_states(store, &states);
    UNI_TRY(uni_comm_broadcast(comm, data, states, UNI_F32, 0, err));
    for (size_t i = 0; i < uni__optimizer_num_slots(ps->optimizer); i++)
        UNI_TRY(uni_comm_broadcast(comm, uni__optimizer_slot(ps->optimizer, i, NULL), weights,
                                   UNI_F32, 0, err));
    UNI_TRY(uni_comm_broadcast(comm, &steps, 1, UNI_I64, 0, err));
    uni__optimizer_set_iterations(ps->optimizer, steps);
    return 0;
}

static int meet_over_hosts(uni__ps *ps, const uni__server_board_shape *mine, uni_error *err)
{
    uni_comm *comm = uni__carrier_comm(ps->carrier);
    uni__server_board_shape shape = *mine;
    uni__span *spans = calloc((size_t)ps->cluster.servers, sizeof *spans);
    int status;
    if (!spans)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d shards", ps->cluster.servers);
    shape.replica = 0; /* a member cannot rejoin alone */
    uni__ps_cut_shards(uni_model_parameters(ps->model), ps->cluster.servers, shape.whole_parameters,
                       spans);
    UNI_TRY_GOTO(uni_comm_broadcast(comm, &shape, sizeof shape, UNI_U8, 0, err), done);
    UNI_TRY_GOTO(uni_comm_broadcast(comm, spans, (size_t)ps->cluster.servers * sizeof *spans,
                                    UNI_U8, 0, err),
                 done);
    UNI_TRY_GOTO(uni__server_board_new_private(&ps->board, &shape, spans, ps->cluster.rank,
                                               ps->carrier, err),
                 done);
    UNI_TRY_GOTO(check_same_model(ps, mine, err), done);
    UNI_TRY_GOTO(send_around(ps, comm, err), done);
    ps->epoch = 1;
    ps->all_here = true;
    if (uni__ps_is_coordinator(ps))
        status = uni__ps_open_queue(ps, err);
    else if (!uni__ps_is_worker(ps))
        status = uni__server_store_publish(&ps->board, ps->model, ps->optimizer, 0, err);
done:
    free(spans);
    if (status < 0)
        uni_comm_abort(comm, err && err->message[0] ? err->message : "a member failed");
    return status;
}

/* Model and optimizer are placed: the members meet. */
static int meet(uni__ps *ps, uni_error *err)
{
    uni__server_board_shape shape;
    UNI_TRY(uni__ps_make_shape(ps, &shape, err));
    ps->begun_ns = uni__monotonic_ns();
    if (ps->carrier) {
        UNI_TRY(meet_over_hosts(ps, &shape, err));
    } else if (uni__ps_is_coordinator(ps)) {
        UNI_TRY(place_coordinator(ps, &shape, err));
        UNI_TRY(look_at_mail(ps, err)); /* admit early members */
    } else {
        UNI_TRY(join(ps, err));
        UNI_TRY(check_same_model(ps, &shape, err));
    }
    if (uni__ps_is_coordinator(ps) || uni__ps_is_worker(ps))
        UNI_TRY(open_links(ps, err));
    else
        UNI_TRY(uni__ps_open_server(ps, err));
    ps->placed = true;
    return 0;
}

int uni__ps_place(uni__ps *ps, uni_model *model, uni_optimizer *optimizer, uni_error *err)
{
    bool other_model = model && ps->model && ps->model_id != uni__model_id(model);
    bool other_optimizer =
        optimizer && ps->optimizer && ps->optimizer_id != uni__optimizer_id(optimizer);
    if (other_model || other_optimizer)
        return uni_error_set(err, UNI_ESTATE,
                             "parameter_server trains one model with one optimizer; another one is "
                             "placed already: open a strategy for each");
    if (model) {
        ps->model = model;
        ps->model_id = uni__model_id(model);
    }
    if (optimizer) {
        ps->optimizer = optimizer;
        ps->optimizer_id = uni__optimizer_id(optimizer);
    }
    return ps->placed || !ps->model || !ps->optimizer ? 0 : meet(ps, err);
}

int uni__ps_must_be_placed(const uni__ps *ps, uni_error *err)
{
    if (ps->placed)
        return 0;
    return uni_error_set(err, UNI_ESTATE,
                         "parameter_server needs the model and its optimizer, which runs on the "
                         "servers: compile the model before uni_strategy_place, or call "
                         "uni_strategy_place_optimizer, too");
}

/* ---- phases ---- */

bool uni__ps_phase_over(const uni__ps *ps)
{
    return atomic_load(&ps->board.header->phases_done) > ps->phase;
}

/* The coordinator announces the number of finished phases. */
static void tell_phases(uni__ps *ps, uint32_t done)
{
    atomic_store(&ps->board.header->phases_done, done);
    if (ps->carrier) /* on failure, the end of the run tells them */
        (void)ps->cluster.vtable->send(ps->cluster.context, -1, phase_key, &done, sizeof done, -1,
                                       NULL);
    for (int rank = 1; rank <= ps->cluster.workers + ps->cluster.servers; rank++)
        uni__bell_ring(&ps->board, rank);
}

void uni__ps_begin_phase(uni__ps *ps)
{
    ps->in_phase = true;
    ps->worker.outstanding = ps->worker.has_result = false;
    if (ps->queue)
        ps->queue->ending = false;
}

void uni__ps_end_phase(uni__ps *ps)
{
    ps->in_phase = false;
    if (uni__ps_is_coordinator(ps)) {
        uni__ps_end_calls(ps);
        ps->queue->ending = true;
        uni__ps_progress(ps); /* answers those that wait for work */
        tell_phases(ps, ps->phase + 1);
    }
    ps->phase++;
    if (!ps->carrier)
        atomic_store(&ps->board.header->members[ps->cluster.rank].left, ps->phase);
}

/* ---- life ---- */

static void free_cluster(const uni__cluster *cluster)
{
    uni_comm_close(cluster->comm);
    if (cluster->vtable->free)
        cluster->vtable->free(cluster->context);
}

/* Members whose hello was not read, because the work was done without them. They get the board now
 * and find every phase over. Without this they would wait until they were killed. */
static void let_in_the_late(uni__ps *ps)
{
    if (ps->carrier)
        return;
    (void)look_at_mail(ps, NULL);
    for (int rank = 1; rank <= ps->cluster.workers + ps->cluster.servers; rank++)
        if (atomic_load(&ps->board.header->members[rank].epoch) == 0)
            (void)let_in(ps, rank, NOT_ASKED, NULL);
}

void uni__ps_free(uni__ps *ps)
{
    if (!ps)
        return;
    if (uni__ps_is_coordinator(ps) && ps->board.header) {
        /* Nothing follows: members that expect more continue alone. */
        tell_phases(ps, UINT32_MAX);
        let_in_the_late(ps);
    } else if (ps->board.header && !ps->carrier) {
        atomic_store(&ps->board.header->members[ps->cluster.rank].left, UINT32_MAX);
    }
    uni__ps_close_queue(ps);
    uni__ps_close_server(ps);
    free(ps->servers);
    free(ps->worker.arguments);
    free(ps->worker.result);
    /* MPI may still write into memory of requests under way, so it is left to the end of the
     * process. */
    if (uni__carrier_free(ps->carrier))
        uni__server_board_close(&ps->board);
    free_cluster(&ps->cluster);
    free(ps);
}

int uni__ps_stats_value(const uni__ps *ps, uni_value **out, uni_error *err)
{
    const uni__ps_stats *stats = &ps->stats;
    int last = UNI__PS_HISTOGRAM - 1, status = 0;
    double restored = 0;
    for (int rank = 1 + ps->cluster.workers; rank <= ps->cluster.workers + ps->cluster.servers;
         rank++)
        restored += atomic_load(&ps->board.header->members[rank].restores);
    uni_value *histogram = uni_value_list();
    while (last > 0 && stats->staleness[last] == 0)
        last--;
    for (int i = 0; i <= last; i++)
        status |= uni_list_take(histogram, uni_value_int((int64_t)stats->staleness[i]));
    *out = uni_value_dict();
    status |= uni_dict_take(*out, "updates", uni_value_int((int64_t)stats->updates));
    status |= uni_dict_take(*out, "duplicates", uni_value_int((int64_t)stats->duplicates));
    status |= uni_dict_take(*out, "restored", uni_value_int((int64_t)restored));
    status |=
        uni_dict_take(*out, "rescheduled", uni_value_int(ps->queue ? ps->queue->rescheduled : 0));
    status |= uni_dict_take(*out, "staleness", histogram);
    if (status == 0)
        return 0;
    uni_value_free(*out);
    *out = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for statistics");
}

static int check_options(const uni__cluster *cluster, const uni_parameter_server_options *options,
                         uni_error *err)
{
    if (cluster->servers < 1)
        return uni_error_set(err, UNI_EINVAL,
                             "parameter_server needs at least one server: set .servers in the "
                             "trainer's options, or run with `unisono run --servers 1`");
    if (cluster->workers < 1)
        return uni_error_set(err, UNI_EINVAL, "parameter_server needs at least one worker");
    if (options->staleness < 0)
        return uni_error_set(err, UNI_EINVAL, "staleness must not be negative, but is %d",
                             options->staleness);
    if (options->mode == UNI_PS_SYNCHRONOUS && options->no_replica)
        return uni_error_set(err, UNI_EINVAL,
                             "synchronous mode loses no update, so its servers need their replica: "
                             "leave no_replica out");
    return 0;
}

int uni__ps_new(uni__ps **out, const uni__cluster *cluster,
                const uni_parameter_server_options *options, uni_error *err)
{
    static const uni_parameter_server_options defaults = { 0 };
    options = options ? options : &defaults;
    *out = NULL;
    int status = check_options(cluster, options, err);
    uni__ps *ps = status == 0 ? calloc(1, sizeof *ps) : NULL;
    if (status == 0 && !ps)
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a strategy");
    if (status == 0 && cluster->comm)
        status = uni__carrier_new(&ps->carrier, cluster->comm, err);
    if (status < 0) {
        free_cluster(cluster);
        free(ps);
        return status;
    }
    ps->cluster = *cluster;
    ps->options = *options;
    ps->board.fd = -1;
    *out = ps;
    return 0;
}
