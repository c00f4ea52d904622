/*
 * attempt.c - starting the workers of an attempt and telling them what to run. Controller thread.
 *
 * Warm workers of an earlier run are used again; what is missing is spawned. The order to run goes out at once, before the
 * worker has said hello: it finds it on its channel when it is up, so that a start has no round trip.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "group/network.h"
#include "base/owned.h"
#include "train/hosts_internal.h"

static int spawn_rank(uni_trainer *trainer, uni__run *run, int rank, const char *log,
                      uni_error *err)
{
    /* Without a run (warm workers) a bare one stands in, for the rank variables. */
    uni__run bare = { .trainer = trainer, .num_workers = trainer->options.num_workers };
    uni_value *environment = uni__worker_environment(trainer, run ? run : &bare, rank);
    if (!environment)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the environment of rank %d", rank);
    bool own_program = run && run->program;
    uni__view view = { .shared = true };
    char here[4096] = "";
    if (run)
        uni__rank_view(run, rank, &view);
    /* Another host does not know where we are. */
    if (view.remote && !trainer->options.working_directory && !getcwd(here, sizeof here))
        here[0] = '\0';
    uni__spawn spawn = {
        .rank = rank,
        .runs_functions = !own_program,
        .exe = own_program ? run->exe : trainer->worker_exe,
        .argv = own_program ? run->program : trainer->worker_argv,
        .environment = environment,
        .cwd = here[0] ? here : trainer->options.working_directory,
        .log = view.remote ? view.log : log,
        .forward_log = !view.shared,
        .memory = (uint64_t)trainer->options.memory_per_worker,
    };
    int status = uni__group_spawn(trainer->group, &spawn, err);
    uni_value_free(environment);
    uni__rank *slot = &trainer->ranks[rank];
    slot->state = status == 0 ? UNI__RANK_STARTED : UNI__RANK_GONE;
    slot->hello = slot->session_closed = slot->warned_silent = slot->host_silent = false;
    slot->asked_chief = false;
    slot->pid = 0;
    slot->stopped_ns = 0;
    slot->spawned_ns = uni__monotonic_ns();
    slot->disk_full = false;
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
        if (trainer->ranks[rank].state != UNI__RANK_GONE)
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
    uni_value *order = uni_value_dict();
    int status = 0;
    status |=
        uni_dict_take(order, "function", uni_value_string(run->function ? run->function : ""));
    status |= uni_dict_take(order, "config", uni_value_copy(run->config));
    if (run->attachment)
        status |= uni_dict_take(order, "attachment", uni_value_copy(run->attachment));
    if (run->datasets)
        status |= uni_dict_take(order, "datasets", uni_value_copy(run->datasets));
    status |= uni_dict_take(order, "data_states", uni__run_data_states(run));
    status |= uni_dict_take(order, "rank", uni_value_int(rank));
    status |= uni_dict_take(order, "world_size", uni_value_int(run->num_workers));
    uni__view view;
    uni__rank_view(run, rank, &view);
    const uni__rank_place *place = &view.place;
    status |=
        uni_dict_take(order, "local_rank", uni_value_int(view.remote ? place->local_rank : rank));
    status |= uni_dict_take(order, "local_world_size",
                            uni_value_int(view.remote ? place->local_size : run->num_workers));
    status |= uni_dict_take(order, "node_rank", uni_value_int(place->node));
    status |= uni_dict_take(order, "nodes", uni_value_int(view.remote ? place->num_nodes : 1));
    if (view.remote && place->num_nodes > 1)
        status |= add_neighbours(run, order, place->node);
    status |= uni__hosts_add_seal(run->trainer, order);
    const uni__roles *roles = &run->trainer->roles;
    int index;
    status |= uni_dict_take(order, "role", uni_value_string(uni__role_of(roles, rank, &index)));
    status |= uni_dict_take(order, "role_index", uni_value_int(index));
    status |= uni_dict_take(order, "servers", uni_value_int(roles->servers));
    status |= uni_dict_take(order, "evaluators", uni_value_int(roles->evaluators));
    status |= uni_dict_take(order, "attempt", uni_value_int(run->attempt));
    status |= uni_dict_take(order, "iteration", uni_value_int(run->resume_iteration));
    status |= uni_dict_take(order, "name", uni_value_string(run->trainer->name));
    status |= uni_dict_take(order, "storage", uni_value_string(run->trainer->storage));
    status |= uni_dict_take(order, "run_dir", uni_value_string(view.run_dir));
    status |= uni_dict_take(order, "staging_dir", uni_value_string(view.staging_dir));
    status |= uni_dict_take(order, "checkpoint", uni_value_string(view.checkpoint));
    status |= uni_dict_take(order, "log", uni_value_string(view.remote ? view.log : log));
    status |= uni_dict_take(order, "lockstep", uni_value_bool(run->trainer->options.lockstep));
    status |= uni_dict_take(order, "answers", uni_value_bool(true));
    status |= uni_dict_take(order, "synchronous", uni_value_bool(run->synchronous));
    status |= uni_dict_take(order, "trial", uni_value_bool(run->trial));
    const char *asked = getenv("TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS");
    bool detailed = asked && strcmp(asked, "1") == 0;
    char address[48];
    status |= uni_dict_take(order, "detailed", uni_value_bool(detailed));
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
    int status = uni_msgpack_write(&bytes, &size, order, err);
    uni_value_free(order);
    if (status == 0)
        status =
            uni__group_send(run->group, rank, UNI__TO_WORKER_RUN, bytes, size, run->resume_fd, err);
    free(bytes);
    if (status == UNI_EPEER)
        return 0; /* it has ended already: its exit is on the way and says why */
    return status < 0 ? uni_error_prefix(err, "the order to rank %d", rank) : 0;
}

/* A warm worker begins like a new one. It is idle, so nobody else writes its page. */
static void refresh_page(uni__page *page)
{
    atomic_store(&page->stop_request, UNI__STOP_NONE);
    atomic_store(&page->alarm, 0);
    atomic_store(&page->suspect, 0);
    atomic_store(&page->stopping, 0);
    atomic_store(&page->stop_at_known, 0);
    atomic_store(&page->stop_seen, 0);
    atomic_store(&page->loaded, 0);
    atomic_store(&page->released, 0);
    atomic_store(&page->iteration, 0);
}

int uni__attempt_start_rank(uni__run *run, int rank, uni_error *err)
{
    uni__rank *slot = &run->ranks[rank];
    struct stat info;
    char *log = uni__run_log_path(run, rank);
    if (!log)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a path");
    uni__rank_forget(slot, run->attempt > 1 ? run->resume_iteration : 0);
    slot->iteration = run->resume_iteration;
    if (run->cause.kind == UNI__CAUSE_NONE)
        slot->reported = run->resume_iteration; /* a run that is resumed: its ranks reported that */
    slot->log_start = stat(log, &info) == 0 ? info.st_size : 0;
    int status = 0;
    if (slot->state == UNI__RANK_GONE || run->program)
        status = spawn_rank(run->trainer, run, rank, log, err);
    else
        refresh_page(uni__group_page(run->group, rank));
    if (status == 0)
        status = send_order(run, rank, log, err);
    free(log);
    if (status == 0 && slot->hello)
        slot->state = UNI__RANK_RUNNING;
    return status;
}

int uni__attempt_start(uni__run *run, uni_error *err)
{
    UNI_TRY(uni__members_begin(run, err));
    if (run->trainer->hosts)
        return uni__hosts_launch(run, err); /* the ranks follow when all hosts are there */
    for (int rank = 0; rank < run->num_workers; rank++)
        UNI_TRY(uni__attempt_start_rank(run, rank, err));
    return 0;
}
