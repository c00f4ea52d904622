/*
 * attempt.c - starting the workers of an attempt and telling them what to run. Controller thread.
 *
 * Warm workers of an earlier run are used again; what is missing is spawned. The order to run goes
 * out at once, before the worker has said hello: it finds it on its channel when it is up, so that
 * a start has no round trip.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/file.h"
#include "group/network.h"
#include "base/owned.h"
#include "train/hosts_internal.h"

void uni__start_set(uni__start *start, const char *path, int fd, uni_value *state)
{
    uni__start_clear(start);
    snprintf(start->path, sizeof start->path, "%s", path);
    start->fd = fd;
    start->state = state;
    start->data_states = state ? uni__state_merge_datasets(state) : NULL;
}

void uni__start_clear(uni__start *start)
{
    if (start->fd >= 0)
        close(start->fd);
    uni_value_free(start->state);
    uni_value_free(start->data_states);
    *start = (uni__start){ .fd = -1, .iteration = start->iteration };
}

bool uni__start_is_empty(const uni__start *start)
{
    return !start->path[0] && start->fd < 0;
}

int uni__run_workers(const uni__run *run)
{
    return run->attempt.members.count > 0 ? (int)run->attempt.members.count : run->num_workers;
}

/* What that rank is told. One that comes to others is never alone. */
static int world_size(const uni__run *run, int rank)
{
    int workers = uni__run_workers(run);
    if (run->ranks[rank].fresh)
        workers = run->target > workers + 1 ? run->target : workers + 1;
    return workers;
}

uni__world uni__run_world(const uni__run *run)
{
    return (uni__world){ .trainer = run->trainer,
                         .group = run->group,
                         .size = uni__run_workers(run),
                         .attempt = run->attempt.number,
                         .dir = run->places.dir,
                         .staging_dir = run->places.staging_dir,
                         .logs_dir = run->places.logs_dir,
                         .checkpoint = run->attempt.start.path,
                         .config = run->request.program ? run->request.config : NULL,
                         .ports = &run->ports };
}

static int spawn_rank(uni_trainer *trainer, uni__run *run, int rank, const char *log,
                      uni_error *err)
{
    /* A warm worker without a run gets the rank variables. */
    uni__world world =
        run ? uni__run_world(run)
            : (uni__world){ .trainer = trainer, .size = trainer->options.num_workers };
    if (run)
        world.size = world_size(run, rank);
    uni_value *environment = uni__world_environment(&world, rank);
    if (!environment)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the environment of rank %d", rank);
    bool own_program = run && run->request.program;
    uni__view view = { .shared = true };
    char here[4096] = "";
    if (run)
        uni__world_view(&world, rank, &view);
    /* Another host does not know where we are. */
    if (view.remote && !trainer->options.working_directory && !getcwd(here, sizeof here))
        here[0] = '\0';
    uni__spawn spawn = {
        .rank = rank,
        .runs_functions = !own_program,
        .exe = own_program ? run->request.exe : trainer->worker_exe,
        .argv = own_program ? run->request.program : trainer->worker_argv,
        .environment = environment,
        .cwd = here[0] ? here : trainer->options.working_directory,
        .log = view.remote ? view.log : log,
        .forward_log = !view.shared,
        .address_space = (uint64_t)trainer->options.address_space_limit,
    };
    int status = uni__group_spawn(trainer->group, &spawn, err);
    uni_value_free(environment);
    uni__rank *slot = &trainer->ranks[rank];
    slot->warned_silent = slot->asked_chief = slot->disk_full = false;
    slot->host_silent_ns = 0;
    slot->line_ns = 0;
    return status;
}

int uni__attempt_spawn_idle(uni_trainer *trainer, uni_error *err)
{
    char *logs = uni__path_join(trainer->logdir, ".start", NULL);
    int place = logs ? uni__make_owned_dir(trainer->logdir, err)
                     : uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    int status = place < 0 ? place : 0;
    if (status == 0 && mkdirat(place, ".start", 0700) < 0 && errno != EEXIST)
        status = uni_error_set_errno(err, errno, "cannot make the directory %s", logs);
    if (place >= 0)
        close(place);
    for (int rank = 0; status == 0 && rank < trainer->options.num_workers; rank++) {
        char log[4096];
        if (uni__worker_is_live(trainer->ranks[rank].worker))
            continue;
        snprintf(log, sizeof log, "%s/rank_%d.log", logs, rank);
        status = spawn_rank(trainer, NULL, rank, log, err);
    }
    free(logs);
    return status;
}

/* Ranks of the same host, in the order of their local ranks. */
static int add_neighbours(const uni__run *run, uni_value *order, int node)
{
    uni_value *locals = uni_value_list();
    uni__rank_place place;
    int status = 0;
    for (int r = 0; r < run->num_workers; r++) {
        if (!uni__group_place(run->group, r, &place))
            continue;
        if (place.node == node)
            status |= uni_list_take(locals, uni_value_int(r));
    }
    return status | uni_dict_take(order, "locals", locals);
}

/* Of this machine, as others would reach it; the loopback where it has no network. */
static const char *own_address(char *out, size_t size)
{
    uni__address all[UNI__NETWORK_MAX];
    int count = uni__network_choose(NULL, false, all, NULL);
    snprintf(out, size, "%s", count > 0 ? all[0].text : "127.0.0.1");
    return out;
}

/* The keys are read in session_setup.c. */
static uni_value *run_order(uni__run *run, int rank, const char *log)
{
    const uni__request *asked = &run->request;
    const uni__start *start = &run->attempt.start;
    const uni_trainer *trainer = run->trainer;
    uni__world world = uni__run_world(run);
    uni__view view;
    uni__world_view(&world, rank, &view);
    const uni__rank_place *place = &view.place;
    const char *wanted = getenv("TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS");
    bool detailed = wanted && strcmp(wanted, "1") == 0;
    int index, local_size = view.remote ? place->local_size : world_size(run, rank);
    const char *role = uni__role_of(&trainer->roles, rank, &index);
    uni_value *order = UNI__DICT(
        { "function", uni_value_string(asked->function ? asked->function : "") },
        { "config", uni_value_copy(asked->config) }, { "rank", uni_value_int(rank) },
        { "world_size", uni_value_int(world_size(run, rank)) },
        { "local_rank", uni_value_int(view.remote ? place->local_rank : rank) },
        { "local_world_size", uni_value_int(local_size) },
        { "node_rank", uni_value_int(place->node) },
        { "nodes", uni_value_int(view.remote ? place->num_nodes : 1) },
        { "role", uni_value_string(role) }, { "role_index", uni_value_int(index) },
        { "servers", uni_value_int(trainer->roles.servers) },
        { "evaluators", uni_value_int(trainer->roles.evaluators) },
        { "attempt", uni_value_int(run->attempt.number) },
        { "iteration", uni_value_int(run->ranks[rank].iteration) },
        { "name", uni_value_string(trainer->name) },
        { "storage", uni_value_string(trainer->storage) },
        { "run_dir", uni_value_string(view.run_dir) },
        { "staging_dir", uni_value_string(view.staging_dir) },
        { "checkpoint", uni_value_string(view.checkpoint) },
        { "log", uni_value_string(view.remote ? view.log : log) },
        { "lockstep", uni_value_bool(trainer->options.lockstep) },
        { "answers", uni_value_bool(true) }, { "synchronous", uni_value_bool(asked->synchronous) },
        { "every_steps", uni_value_int(asked->policy.every_steps) },
        { "every_seconds", uni_value_float(asked->policy.every_seconds) },
        { "trial", uni_value_bool(asked->trial) }, { "detailed", uni_value_bool(detailed) },
        { "elastic", uni_value_bool(uni__run_is_elastic(run)) },
        { "resizable", uni_value_bool(uni__run_is_resizable(run)) },
        { "apart",
          uni_value_bool(view.remote && (place->num_nodes > 1 || uni__run_is_resizable(run))) },
        { "fresh", uni_value_bool(run->ranks[rank].fresh) },
        { "group", uni_value_int(run->attempt.group) },
        { "joins", uni_value_bool(run->ranks[rank].joining) });
    char address[48];
    int status =
        uni__state_add_to_order(order, start->state, start->data_states, rank, run->num_workers);
    status |= uni__hosts_add_links(trainer, view.remote ? place->address : NULL, order);
    if (asked->attachment)
        status |= uni_dict_take(order, "attachment", uni_value_copy(asked->attachment));
    if (asked->datasets)
        status |= uni_dict_take(order, "datasets", uni_value_copy(asked->datasets));
    if (view.remote && place->num_nodes > 1)
        status |= add_neighbours(run, order, place->node);
    if (detailed)
        status |= uni_dict_take(
            order, "node_ip",
            uni_value_string(view.remote ? place->address : own_address(address, sizeof address)));
    if (status == 0)
        return order;
    uni_value_free(order);
    return NULL;
}

static int send_order(uni__run *run, int rank, const char *log, uni_error *err)
{
    uni_value *order = run_order(run, rank, log);
    void *bytes = NULL;
    size_t size = 0;
    if (!order)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the order to rank %d", rank);
    int status = uni__msgpack_write(&bytes, &size, order, err);
    uni_value_free(order);
    if (status == 0)
        status = uni__group_send(run->group, rank, UNI__TO_WORKER_RUN, bytes, size,
                                 run->attempt.start.fd, err);
    free(bytes);
    if (status == UNI_EPEER)
        return 0; /* it has ended already: its exit is on the way and says why */
    return status < 0 ? uni_error_prefix(err, "the order to rank %d", rank) : 0;
}

static int start_process(uni__run *run, int rank, uni_error *err)
{
    uni__rank *slot = &run->ranks[rank];
    struct stat info;
    char *log = uni__places_log(&run->places, rank);
    if (!log)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    slot->log_start = stat(log, &info) == 0 ? info.st_size : 0;
    int status = 0;
    if (!uni__worker_is_live(slot->worker) || run->request.program)
        status = spawn_rank(run->trainer, run, rank, log, err);
    if (status == 0)
        status = send_order(run, rank, log, err);
    if (status == 0) /* after the order, which makes a warm worker's page a new one */
        uni__page_regroup(uni__group_page(run->group, rank), run->attempt.group,
                          &run->attempt.members);
    free(log);
    return status;
}

int uni__attempt_start_rank(uni__run *run, int rank, uni_error *err)
{
    uni__rank *slot = &run->ranks[rank];
    uni__rank_forget(slot, run->attempt.number > 1 ? run->attempt.start.iteration : 0);
    slot->iteration = run->attempt.start.iteration;
    slot->joining = slot->fresh = false;
    if (run->outcome.cause.kind == UNI__CAUSE_NONE)
        slot->reported =
            run->attempt.start.iteration; /* a run that is resumed: its ranks reported that */
    UNI_TRY(uni__run_seed_state(run, rank, err));
    return start_process(run, rank, err);
}

int uni__attempt_replace_rank(uni__run *run, int rank, uni_error *err)
{
    uni__rank *slot = &run->ranks[rank];
    slot->newest_until_ns = 0;
    slot->joining = true;
    return start_process(run, rank, err);
}

int uni__attempt_start(uni__run *run, uni_error *err)
{
    UNI_TRY(uni__members_begin(run, err));
    if (run->trainer->hosts)
        return uni__hosts_launch(run, err); /* the ranks follow when all hosts are there */
    for (int rank = 0; rank < run->num_workers; rank++) {
        if (run->ranks[rank].away)
            UNI_TRY(uni__results_writer_rank_ended(run->writer, rank, err));
        else
            UNI_TRY(uni__attempt_start_rank(run, rank, err));
    }
    return 0;
}
