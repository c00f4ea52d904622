/*
 * hosts.c - starting a run over several hosts (hosts_internal.h). Making and freeing on the user's
 * thread, launching on the controller's.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "group/launch.h"
#include "train/hosts_internal.h"

#define LAUNCH_BACKOFF_MS 1000 /* after the first launch that failed; doubled each time */
#define LAUNCH_BACKOFF_MAX_MS 30000
#define PATIENCE_NS 60000000000ull

extern char **environ;

/* ---- which hosts ---- */

static int slots_of(const uni__hosts *hosts)
{
    int slots = 0;
    for (int i = 0; i < hosts->num_hosts; i++)
        slots += hosts->list[i].lost ? 0 : hosts->list[i].slots;
    return slots;
}

static int list_hosts(uni__hosts *hosts, const uni_trainer_options *asked, uni_error *err)
{
    const char *nodes = getenv("SLURM_JOB_NODELIST"), *tasks = getenv("SLURM_TASKS_PER_NODE");
    if (hosts->foreign)
        return 0;
    if (asked->hosts)
        return uni__hosts_parse(asked->hosts, &hosts->list, &hosts->num_hosts, err);
    if (!hosts->launcher->has_allocation)
        return uni_error_set(
            err, UNI_EINVAL, "the launcher \"%s\" needs hosts: --hosts a:2,b:2%s",
            hosts->launcher->name,
            hosts->launcher->offers_mpi ? " (or start it with `mpirun unisono run ...`)" : "");
    if (!getenv("SLURM_JOB_ID") || !nodes)
        return uni_error_set(err, UNI_ESTATE,
                             "the launcher \"slurm\" works inside an allocation: start it with "
                             "salloc or sbatch (examples/slurm has a script)");
    return uni__hosts_parse_slurm(nodes, tasks, &hosts->list, &hosts->num_hosts, err);
}

/* A number of workers that changes: from here on num_workers is the largest. Ranks beyond the slots
 * are for hosts that come later. */
static int read_sizes(uni_trainer *trainer, const uni_trainer_options *asked, int wanted,
                      uni_error *err)
{
    int most = asked->max_workers ? asked->max_workers : wanted;
    if (asked->min_workers == 0 && asked->max_workers == 0)
        return 0;
    if (!uni__hosts_keep_ranks(trainer)) {
        if (most > wanted)
            return uni_error_set(err, UNI_EUNSUPPORTED,
                                 "max_workers %d: the number of workers can grow on one host and "
                                 "over ssh, not with the launcher %s",
                                 most, trainer->hosts->launcher->name);
        return 0; /* the group restarts with fewer when a host is lost */
    }
    if (most < wanted || most > UNI__MOST_MEMBERS)
        return uni_error_set(err, UNI_EINVAL,
                             "max_workers %d must be from the number of workers (%d) to %d", most,
                             wanted, UNI__MOST_MEMBERS);
    if (asked->lockstep)
        return 0;
    trainer->first_workers = wanted;
    trainer->min_workers = asked->min_workers ? asked->min_workers : 1;
    trainer->options.num_workers = most;
    return 0;
}

static int check_room(uni__hosts *hosts, uni_trainer *trainer, const uni_trainer_options *asked,
                      uni_error *err)
{
    int room = hosts->foreign ? hosts->launched.size : slots_of(hosts);
    /* num_workers counts the workers alone; chief, servers and evaluators need slots too. */
    int others = (asked->servers > 0) + asked->servers + asked->evaluators;
    int wanted = asked->num_workers ? asked->num_workers + others : room;
    if (hosts->foreign && wanted != room)
        return uni_error_set(err, UNI_EINVAL,
                             "mpirun or srun started %d processes here, so there are %d workers, "
                             "not %d: leave num_workers (-n) out",
                             room, room, wanted);
    if (asked->max_workers > room && wanted > room && asked->min_workers <= room)
        wanted = room; /* others join when there are hosts for them */
    if (wanted > room)
        return uni_error_set(err, UNI_ERESOURCE,
                             "%d workers are asked for, but the hosts have %d slot%s", wanted, room,
                             room == 1 ? "" : "s");
    if (asked->min_workers < 0 || asked->min_workers > wanted)
        return uni_error_set(err, UNI_EINVAL,
                             "min_workers must be between 1 and the number of workers (%d), not %d",
                             wanted, asked->min_workers);
    if (wanted <= others)
        return uni_error_set(err, UNI_ERESOURCE,
                             "the hosts have %d slot%s: none is left for a worker", room,
                             room == 1 ? "" : "s");
    trainer->options.num_workers = wanted - others;
    hosts->min_workers = asked->min_workers ? asked->min_workers : wanted;
    return others == 0 ? read_sizes(trainer, asked, wanted, err) : 0;
}

static int read_transport(uni__hosts *hosts, const char *name, uni_error *err)
{
    if (!name || strcmp(name, "auto") == 0)
        hosts->wanted = UNI__TRANSPORT_ANY;
    else if (strcmp(name, "ucx") == 0)
        hosts->wanted = UNI__TRANSPORT_UCX;
    else if (strcmp(name, "mpi") == 0)
        hosts->wanted = UNI__TRANSPORT_MPI;
    else
        return uni_error_set(err, UNI_EINVAL,
                             "unknown transport \"%.60s\": there are auto, ucx and mpi", name);
    if (hosts->wanted == UNI__TRANSPORT_MPI && !hosts->launcher->offers_mpi)
        return uni_error_set(err, UNI_EINVAL,
                             "the transport mpi needs processes that mpirun or srun started: use "
                             "--launcher mpi, or leave the transport out (ucx)");
    return 0;
}

static int choose_addresses(uni__hosts *hosts, uni_error *err)
{
    bool all_local = hosts->foreign ? hosts->launched.local_size == hosts->launched.size : true;
    for (int i = 0; i < hosts->num_hosts; i++)
        all_local &= uni__network_is_this_host(hosts->list[i].name);
    int count = uni__network_choose(hosts->interface, all_local, hosts->addresses, err);
    if (count < 0)
        return count;
    hosts->num_addresses = count;
    return 0;
}

int uni__hosts_new(uni_trainer *trainer, const uni_trainer_options *asked, uni_error *err)
{
    int status;
    uni__hosts *hosts = calloc(1, sizeof *hosts);
    if (!hosts)
        return uni_error_set(err, UNI_ENOMEM, "no memory for hosts");
    trainer->hosts = hosts;
    hosts->launcher = uni__launcher_find(trainer->options.launcher);
    hosts->foreign = uni__launched_look(&hosts->launched) && hosts->launched.size > 1;
    hosts->encrypt = asked->encrypt;
    hosts->seal = !asked->no_seal;
    if ((asked->interface && !(hosts->interface = strdup(asked->interface))) ||
        (asked->secret_file && !(hosts->secret_file = strdup(asked->secret_file))))
        return uni_error_set(err, UNI_ENOMEM, "no memory for hosts");
    if (hosts->foreign && asked->hosts)
        return uni_error_set(err, UNI_EINVAL,
                             "inside mpirun or srun the hosts are theirs: leave --hosts out");
    UNI_TRY_GOTO(list_hosts(hosts, asked, err), done);
    UNI_TRY_GOTO(check_room(hosts, trainer, asked, err), done);
    UNI_TRY_GOTO(read_transport(hosts, asked->transport, err), done);
    UNI_TRY_GOTO(uni__hosts_check_seal(trainer, err), done);
    UNI_TRY_GOTO(uni__find_helper("unisono-host", "UNISONO_HOST_AGENT", hosts->agent,
                                  sizeof hosts->agent, err),
                 done);
    status = choose_addresses(hosts, err);
done:
    /* MPI cannot be started twice in one process. */
    trainer->options.fresh_workers = true;
    return status;
}

void uni__hosts_free(uni_trainer *trainer)
{
    if (!trainer->hosts)
        return;
    free(trainer->hosts->list);
    free(trainer->hosts->seats);
    free(trainer->hosts->vacancies);
    free(trainer->hosts->interface);
    free(trainer->hosts->secret_file);
    sodium_memzero(trainer->hosts->data_key, sizeof trainer->hosts->data_key);
    free(trainer->hosts);
    trainer->hosts = NULL;
}

int uni__hosts_describe(const uni_trainer *trainer, uni_value *out)
{
    const uni__hosts *hosts = trainer->hosts;
    int status = 0;
    if (!hosts)
        return 0;
    if (!hosts->launcher->has_allocation && !hosts->foreign && hosts->num_hosts > 0) {
        uni__text list = { 0 };
        for (int i = 0; i < hosts->num_hosts; i++)
            uni__text_add_format(&list, "%s%s:%d", i ? "," : "", hosts->list[i].name,
                                 hosts->list[i].slots);
        status |=
            list.failed ? UNI_ENOMEM : uni_dict_take(out, "hosts", uni_value_string(list.data));
        uni__text_free(&list);
    }
    if (hosts->interface)
        status |= uni_dict_take(out, "interface", uni_value_string(hosts->interface));
    if (hosts->wanted != UNI__TRANSPORT_ANY)
        status |=
            uni_dict_take(out, "transport",
                          uni_value_string(hosts->wanted == UNI__TRANSPORT_UCX ? "ucx" : "mpi"));
    if (hosts->encrypt)
        status |= uni_dict_take(out, "encrypt", uni_value_bool(true));
    if (!hosts->seal)
        status |= uni_dict_take(out, "no_seal", uni_value_bool(true));
    if (hosts->secret_file)
        status |= uni_dict_take(out, "secret_file", uni_value_string(hosts->secret_file));
    if (hosts->min_workers < trainer->roles.workers)
        status |= uni_dict_take(out, "min_workers", uni_value_int(hosts->min_workers));
    /* A run that went on with fewer is resumed with as many as were asked for, if their hosts are
     * back. */
    if (!hosts->foreign)
        status |= uni_dict_take(out, "num_workers", uni_value_int(trainer->options.num_workers));
    uni_value *lost = uni_value_list();
    for (int i = 0; i < hosts->num_hosts; i++)
        if (hosts->list[i].lost)
            status |= uni_list_take(lost, uni_value_string(hosts->list[i].name));
    if (uni_list_size(lost) > 0)
        return status | uni_dict_take(out, "lost_hosts", lost);
    uni_value_free(lost);
    return status;
}

void uni__hosts_remember_lost(uni_trainer *trainer, const uni_value *options)
{
    uni__hosts *hosts = trainer->hosts;
    const uni_value *names = uni_dict_get(options, "lost_hosts");
    for (size_t n = 0; hosts && n < uni_list_size(names); n++)
        for (int i = 0; i < hosts->num_hosts; i++)
            hosts->list[i].was_lost |=
                strcmp(hosts->list[i].name, uni_value_as_string(uni_list_get(names, n), "")) == 0;
}

bool uni__hosts_planned(const uni_trainer *trainer, int rank, int *node, int *local_rank,
                        const char **host)
{
    const uni__hosts *hosts = trainer->hosts;
    for (int i = 0; hosts && i < hosts->num_hosts; i++) {
        if (rank < hosts->list[i].slots) {
            *node = i;
            *local_rank = rank;
            *host = hosts->list[i].name;
            return true;
        }
        rank -= hosts->list[i].slots;
    }
    return false;
}

int uni__hosts_room(const uni_trainer *trainer)
{
    int room = slots_of(trainer->hosts), wanted = trainer->options.num_workers;
    return trainer->hosts->foreign || room > wanted ? wanted : room;
}

/* ---- launching ---- */

static void make_token(uni__hosts *hosts)
{
    uint8_t random[16];
    randombytes_buf(random, sizeof random);
    sodium_bin2hex(hosts->token, sizeof hosts->token, random, sizeof random);
}

/* A file in the storage that a host reads and answers beside: then it sees the same storage. */
static int write_token(uni__run *run, uni_error *err)
{
    uni__hosts *hosts = run->trainer->hosts;
    UNI_TRY(uni__make_dirs(run->places.staging_dir, 0700, err));
    snprintf(hosts->token_path, sizeof hosts->token_path, "%s/token_%d", run->places.staging_dir,
             run->attempt.number);
    return uni__write_file(hosts->token_path, hosts->token, 32, false, err);
}

/* Inside a foreign mpirun: where the others find us. They answer with their keys beside it, so only
 * this user may write there. */
static int write_join(uni__run *run, const char *join, uni_error *err)
{
    uni__hosts *hosts = run->trainer->hosts;
    char text[UNI__JOIN_MAX + 2];
    if (!hosts->foreign)
        return 0;
    int length = snprintf(text, sizeof text, "%s\n", join);
    return uni__write_file(hosts->join_path, text, (size_t)length, false, err);
}

static int launcher_words(const uni__hosts *hosts, int num_workers, uni_value **argv,
                          uni_value **names, uni_error *err)
{
    char subnet[64] = "";
    *argv = *names = NULL;
    if (hosts->foreign) {
        *argv = uni_value_list();
        return uni_list_take(*argv, uni_value_string(hosts->agent)) == 0
                   ? 0
                   : uni_error_set(err, UNI_ENOMEM, "no memory to launch");
    }
    if (hosts->interface)
        snprintf(subnet, sizeof subnet, "%s/%d", hosts->addresses[0].text,
                 hosts->addresses[0].prefix);
    uni__launcher_plan plan = { .hosts = hosts->list,
                                .num_hosts = hosts->num_hosts,
                                .num_workers = num_workers,
                                .agent = hosts->agent,
                                .subnet = subnet[0] ? subnet : NULL };
    *names = uni__launcher_names(&plan);
    return hosts->launcher->words(&plan, argv, err);
}

int uni__hosts_plan_command(uni_trainer *trainer, uni_value **argv, uni_error *err)
{
    uni_value *names = NULL;
    int status = launcher_words(trainer->hosts, uni__hosts_room(trainer), argv, &names, err);
    uni_value_free(names);
    return status;
}

static uni_value *launcher_environment(const uni__hosts *hosts, const char *join)
{
    uni_value *list = uni_value_list();
    char pair[UNI__JOIN_MAX + 4200];
    int status = 0;
    for (char **at = environ; *at && status == 0; at++)
        if (strncmp(*at, UNI__SECRET_FILE_VARIABLE "=", strlen(UNI__SECRET_FILE_VARIABLE "=")) != 0)
            status = uni_list_take(list, uni_value_string(*at));
    snprintf(pair, sizeof pair, UNI__JOIN_VARIABLE "=%s", join);
    status |= uni_list_take(list, uni_value_string(pair));
    snprintf(pair, sizeof pair, UNI__SECRET_FILE_VARIABLE "=%s",
             hosts->secret_file ? hosts->secret_file : "");
    status |= uni_list_take(list, uni_value_string(pair));
    if (status == 0)
        return list;
    uni_value_free(list);
    return NULL;
}

int uni__hosts_launch(uni__run *run, uni_error *err)
{
    uni_trainer *trainer = run->trainer;
    uni__hosts *hosts = trainer->hosts;
    uni__credentials credentials = { 0 };
    const char *addresses[UNI__NETWORK_MAX];
    char join[UNI__JOIN_MAX];
    uni_value *argv = NULL, *names = NULL, *environment = NULL, *program = NULL;
    char *log = uni__path_join(run->places.logs_dir, "launcher.log", NULL);
    int status, ranks = hosts->foreign ? run->num_workers : uni__hosts_room(trainer);
    for (int i = 0; i < hosts->num_addresses; i++)
        addresses[i] = hosts->addresses[i].text;
    UNI_TRY_GOTO(uni__credentials_new(&credentials, err), done);
    credentials.attempt = (uint32_t)run->attempt.number;
    credentials.seal = hosts->seal;
    randombytes_buf(hosts->data_key, sizeof hosts->data_key);
    if (hosts->secret_file)
        UNI_TRY_GOTO(uni__credentials_read_secret(&credentials, hosts->secret_file, err), done);
    if (hosts->foreign)
        snprintf(hosts->join_path, sizeof hosts->join_path, "%s/.join_%s", trainer->storage,
                 hosts->launched.job);
    uni__launch launch = { .launcher = hosts->launcher,
                           .log = log,
                           .announced_by_rank = hosts->foreign ? hosts->join_path : NULL,
                           .addresses = addresses,
                           .num_addresses = hosts->num_addresses,
                           .num_workers = ranks,
                           .credentials = &credentials,
                           .hello_timeout = trainer->options.hello_timeout,
                           .silent_timeout = trainer->options.silent_timeout,
                           .token_path = hosts->token_path,
                           .token = hosts->token };
    if (!log) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to launch");
        goto done;
    }
    make_token(hosts);
    UNI_TRY_GOTO(write_token(run, err), done);
    UNI_TRY_GOTO(launcher_words(hosts, ranks, &argv, &names, err), done);
    UNI_TRY_GOTO(uni__group_listen(run->group, &launch, join, err), done);
    UNI_TRY_GOTO(write_join(run, join, err), done);
    environment = launcher_environment(hosts, join);
    if (!environment) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to launch");
        goto done;
    }
    launch.exe = uni_value_as_string(uni_list_get(argv, 0), "");
    launch.argv = argv;
    launch.names = names;
    launch.program = program = uni__hosts_program_files(run);
    launch.foreign = hosts->foreign;
    launch.term_is_stop = hosts->foreign || hosts->launcher->term_is_stop;
    launch.environment = environment;
    status = uni__group_launch(run->group, &launch, err);
done:
    sodium_memzero(&credentials, sizeof credentials);
    uni_value_free(argv);
    uni_value_free(names);
    uni_value_free(program);
    uni_value_free(environment);
    free(log);
    return status;
}

int uni__hosts_launch_more(uni__run *run, const char *name, int first_rank, int count,
                           uni_error *err)
{
    uni__hosts *hosts = run->trainer->hosts;
    uni__credentials credentials = { 0 };
    const char *addresses[UNI__NETWORK_MAX];
    char join[UNI__JOIN_MAX];
    uni__host_slots host = { .slots = count };
    uni_value *argv = NULL, *environment = NULL;
    char *log = uni__path_join(run->places.logs_dir, "launcher.log", NULL);
    int status = log ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory to launch");
    snprintf(host.name, sizeof host.name, "%s", name);
    uni__launcher_plan plan = { .hosts = &host,
                                .num_hosts = 1,
                                .num_workers = count,
                                .agent = hosts->agent,
                                .first_rank = first_rank,
                                .num_all = run->trainer->options.num_workers };
    for (int i = 0; i < hosts->num_addresses; i++)
        addresses[i] = hosts->addresses[i].text;
    UNI_TRY_GOTO(status, done);
    UNI_TRY_GOTO(uni__credentials_new(&credentials, err), done);
    credentials.attempt = (uint32_t)run->attempt.number;
    credentials.seal = hosts->seal;
    if (hosts->secret_file)
        UNI_TRY_GOTO(uni__credentials_read_secret(&credentials, hosts->secret_file, err), done);
    uni__launch launch = { .launcher = hosts->launcher,
                           .log = log,
                           .addresses = addresses,
                           .num_addresses = hosts->num_addresses,
                           .num_workers = run->trainer->options.num_workers,
                           .credentials = &credentials };
    UNI_TRY_GOTO(write_token(run, err), done);
    UNI_TRY_GOTO(hosts->launcher->words(&plan, &argv, err), done);
    UNI_TRY_GOTO(uni__group_listen(run->group, &launch, join, err), done);
    environment = launcher_environment(hosts, join);
    if (!environment) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory to launch");
        goto done;
    }
    launch.exe = uni_value_as_string(uni_list_get(argv, 0), "");
    launch.argv = argv;
    launch.environment = environment;
    status = uni__group_launch_more(run->group, &launch, first_rank, count, name, err);
done:
    sodium_memzero(&credentials, sizeof credentials);
    uni_value_free(argv);
    uni_value_free(environment);
    free(log);
    return status;
}

const char *uni__hosts_verdict(uni__run *run, char *sentence, size_t size)
{
    const uni__hosts *hosts = run->trainer->hosts;
    if (!hosts || !hosts->foreign)
        return NULL;
    const char *name = strrchr(run->outcome.latest_path, '/');
    snprintf(sentence, size,
             " (inside a foreign %s there is no restart; the last complete checkpoint is %.200s)",
             strcmp(hosts->launched.launcher, "slurm") == 0 ? "srun" : "mpirun",
             name ? name + 1 : "none");
    return sentence;
}

bool uni__hosts_is_patient(const uni__run *run)
{
    const uni__hosts *hosts = run->trainer->hosts;
    return hosts && !hosts->foreign && hosts->was_placed &&
           run->outcome.cause.kind == UNI__CAUSE_LAUNCH &&
           run->trainer->options.max_failures != UNI_NO_RETRIES &&
           uni__monotonic_ns() - hosts->lost_ns < PATIENCE_NS;
}

int uni__hosts_backoff_ms(const uni__run *run)
{
    int failed = run->trainer->hosts->failed_launches;
    int backoff = failed > 0 ? LAUNCH_BACKOFF_MS << (failed < 6 ? failed - 1 : 5) : 0;
    return backoff < LAUNCH_BACKOFF_MAX_MS ? backoff : LAUNCH_BACKOFF_MAX_MS;
}

/* ---- what a rank sees ---- */

/* For a plan, before anything is started. */
static bool plan_place(const uni_trainer *trainer, int rank, uni__rank_place *out)
{
    const uni__hosts *hosts = trainer->hosts;
    int node = 0, local_rank = 0, used = 0, ranks = trainer->options.num_workers;
    const char *host = NULL;
    if (!uni__hosts_planned(trainer, rank, &node, &local_rank, &host))
        return false;
    *out = (uni__rank_place){ .node = node,
                              .local_rank = local_rank,
                              .host = host,
                              .cpus = trainer->host.cpus,
                              .shares_storage = true };
    for (int i = 0; i < hosts->num_hosts && used < ranks; i++) {
        int left = ranks - used, slots = hosts->list[i].slots;
        if (i == node)
            out->local_size = slots < left ? slots : left;
        used += slots;
        out->num_nodes++;
    }
    return true;
}

static const char *or_empty(const char *path)
{
    return path ? path : "";
}

void uni__world_view(const uni__world *world, int rank, uni__view *out)
{
    *out = (uni__view){ .shared = true };
    out->remote = world->group ? uni__group_place(world->group, rank, &out->place)
                               : plan_place(world->trainer, rank, &out->place);
    out->shared = !out->remote || out->place.shares_storage;
    if (out->shared) {
        snprintf(out->run_dir, sizeof out->run_dir, "%s", or_empty(world->dir));
        snprintf(out->staging_dir, sizeof out->staging_dir, "%s", or_empty(world->staging_dir));
        snprintf(out->checkpoint, sizeof out->checkpoint, "%s", or_empty(world->checkpoint));
        snprintf(out->log, sizeof out->log, "%s/rank_%d.log", or_empty(world->logs_dir), rank);
        return;
    }
    snprintf(out->run_dir, sizeof out->run_dir, "%s", out->place.scratch);
    snprintf(out->staging_dir, sizeof out->staging_dir, "%s/staging", out->place.scratch);
    if (or_empty(world->checkpoint)[0])
        snprintf(out->checkpoint, sizeof out->checkpoint, "%s/resume", out->place.scratch);
    snprintf(out->log, sizeof out->log, "%s/rank_%d.log", out->place.scratch, rank);
}

const char *uni__rank_host(const uni__run *run, int rank)
{
    uni__rank_place place;
    if (rank >= 0 && run->ranks[rank].homeless)
        return "(none)";
    return run->group && rank >= 0 && uni__group_place(run->group, rank, &place)
               ? place.host
               : run->trainer->host.hostname;
}
