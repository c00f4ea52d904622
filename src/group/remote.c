/*
 * remote.c - the controller's side of workers on other hosts (remote.h): the launcher, the hosts
 * that connected, how they end.
 *
 * One launcher process (mpirun, srun, or our own for ssh) a run's attempt, started by the local
 * agent in a slot of its own, so that it ends with everything else. It brings up the hosts' agents;
 * they connect, name their ranks, and look for the token in the storage. When every rank has a
 * host, `placed` is told. Ending: hosts are told to end their workers and end themselves, the
 * launcher then ends by itself (and cleans up after itself); what has not ended in time is killed
 * by the local agent. All on the controller thread.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/shared.h"
#include "base/clock.h"
#include "base/dict.h"
#include "group/agent.h"
#include "group/launchers.h"
#include "group/remote_internal.h"

#define SILENT_NS 1000000000ull
/* An agent tries all our addresses, and keeps one connection. */
#define LINKS_PER_RANK 32
#define HOSTS_END_NS 3000000000ull /* for their workers and themselves */
#define LAUNCHER_ASK_NS                                                                            \
    100000000ull /* after the last host of a failed attempt: the launcher is told to end */
#define LAUNCHER_LEAVES_NS 1500000000ull /* the same when all has gone well */
#define LAUNCHER_END_NS 2000000000ull /* and is killed */

/* ---- hosts ---- */

void uni__remote_fail_launch(uni__group *group, const char *sentence)
{
    uni__remote *remote = group->remote;
    if (!remote->launched || remote->placed || remote->ending_ns)
        return;
    UNI__TELL(group, launch_failed, sentence);
}

uni__remote_host *uni__remote_host_of_link(uni__remote *remote, const uni__link *link)
{
    for (int i = 0; i < remote->num_hosts; i++)
        if (remote->hosts[i]->link == link)
            return remote->hosts[i];
    return NULL;
}

static void send_welcome(uni__remote *remote, uni__remote_host *host)
{
    uni_value *welcome = UNI__DICT(
        { "silent_timeout", uni_value_float(remote->silent_timeout) },
        { "token_path", uni_value_string(remote->token_path) },
        { "token", uni_value_string(remote->token) },
        { "tidy", uni_value_bool(remote->is_openmpi) },
        { "program", remote->program ? uni_value_copy(remote->program) : uni_value_list() });
    void *bytes = NULL;
    size_t size = 0;
    int32_t no_rank = -1;
    if (welcome && uni__msgpack_write(&bytes, &size, welcome, NULL) == 0)
        uni__link_send(host->link, UNI__REMOTE_WELCOME, &no_rank, sizeof no_rank, bytes, size);
    free(bytes);
    uni_value_free(welcome);
}

static int count_links(const uni__remote *remote, uint32_t rank)
{
    int count = 0;
    for (int i = 0; i < remote->num_hosts; i++)
        count += remote->hosts[i]->link && uni__link_rank(remote->hosts[i]->link) == rank;
    return count;
}

static void on_ready(void *context, uni__link *link)
{
    uni__group *group = context;
    uni__remote *remote = group->remote;
    if (count_links(remote, uni__link_rank(link)) >= LINKS_PER_RANK) {
        uni__remote_refuse(group, uni__link_peer(link), "its agent has too many connections");
        uni__link_close(link);
        return;
    }
    uni__remote_host **grown =
        remote->launched && !remote->ending_ns
            ? realloc(remote->hosts, (size_t)(remote->num_hosts + 1) * sizeof *grown)
            : NULL;
    uni__remote_host *host = grown ? calloc(1, sizeof *host) : NULL;
    if (grown)
        remote->hosts = grown;
    if (!host) {
        uni__link_close(link);
        return;
    }
    host->link = link;
    host->first_rank = -1;
    snprintf(host->address, sizeof host->address, "%s", uni__link_peer(link));
    snprintf(host->reached, sizeof host->reached, "%s", uni__link_own(link));
    remote->hosts[remote->num_hosts++] = host;
    send_welcome(remote, host);
}

uni__remote_host *uni__remote_host_of(uni__group *group, int rank)
{
    uni__remote *remote = group->remote;
    uni__remote_host *host =
        rank >= 0 && rank < remote->num_ranks ? remote->ranks[rank].host : NULL;
    return host && host->link ? host : NULL;
}

uint64_t uni__remote_heard_ns(const uni__group *group, int rank, uint64_t now)
{
    const uni__remote *remote = group->remote;
    const uni__remote_host *host = rank < remote->num_ranks ? remote->ranks[rank].host : NULL;
    uint64_t heard = host && host->link ? uni__link_heard_ns(host->link) : 0;
    return heard < now ? heard : now;
}

/* ---- hosts that go away ---- */

static void lose_host(uni__group *group, uni__remote_host *host, const char *why)
{
    uni__remote *remote = group->remote;
    char sentence[512], ranks[128] = "";
    if (host->link)
        uni__link_close(host->link);
    host->link = NULL;
    for (int r = 0; r < remote->num_ranks; r++)
        if (remote->ranks[r].host == host)
            snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks), "%s%d",
                     ranks[0] ? ", " : "", r);
    if (remote->ending_ns) {
        uni__remote_advance_ending(group);
        return;
    }
    if (!host->hello)
        return; /* an agent tries all our addresses and keeps the fastest */
    if (uni__remote_explains_signal(group))
        return;
    if (uni__remote_more_lost(group, host, why))
        return;
    host->lost = true;
    snprintf(sentence, sizeof sentence, "host %.100s (%.60s; rank %.120s) is lost: %.160s",
             host->name[0] ? host->name : "?", host->address, ranks[0] ? ranks : "none yet", why);
    if (!uni__remote_excuses(group, host, sentence))
        UNI__TELL(group, host_lost, host->first_rank, sentence);
}

void uni__group_give_up_host(uni__group *group, int rank, const char *why)
{
    uni__remote_host *host = uni__remote_host_of(group, rank);
    if (host)
        lose_host(group, host, why);
}

static void on_closed(void *context, uni__link *link, const char *why)
{
    uni__group *group = context;
    uni__remote_host *host = group->remote ? uni__remote_host_of_link(group->remote, link) : NULL;
    if (!host)
        return;
    host->link = NULL;
    lose_host(group, host, why);
}

static void on_refused(void *context, const char *address, const char *why)
{
    uni__group *group = context;
    if (group->remote)
        uni__remote_refuse(group, address, why);
}

static void on_look_for_keys(void *context)
{
    uni__remote_look_for_keys(context);
}

static const uni__link_events link_events = { .ready = on_ready,
                                              .frame = uni__remote_on_frame,
                                              .closed = on_closed,
                                              .refused = on_refused,
                                              .look_for_keys = on_look_for_keys };

/* ---- launching ---- */

/* What is known of them stays until the next launch: the run is still described. */
static void hang_up_all(uni__remote *remote)
{
    for (int i = 0; i < remote->num_hosts; i++) {
        uni__link_close(remote->hosts[i]->link);
        remote->hosts[i]->link = NULL;
    }
}

static void forget_hosts(uni__remote *remote)
{
    hang_up_all(remote);
    for (int r = 0; r < remote->num_ranks; r++)
        remote->ranks[r].host = NULL;
    for (int i = 0; i < remote->num_hosts; i++) {
        uni_value_free(remote->hosts[i]->program);
        free(remote->hosts[i]);
    }
    remote->num_hosts = 0;
}

static int make_remote(uni__group *group, uni_error *err)
{
    uni__remote *remote = group->remote ? group->remote : calloc(1, sizeof *remote);
    group->remote = remote;
    if (remote && !remote->ranks)
        remote->ranks = calloc((size_t)group->num_slots, sizeof *remote->ranks);
    return remote && remote->ranks ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for hosts");
}

/* Keys that were announced before this launch are none of its agents'. */
static int expect_keys(uni__remote *remote, const uni__launch *launch, uni_error *err)
{
    struct stat info;
    uni__keyring_free(remote->ring);
    free(remote->announced_in);
    free(remote->announced_by_rank);
    remote->announced_in = strdup(launch->log);
    remote->announced_by_rank = strdup(launch->announced_by_rank ? launch->announced_by_rank : "");
    UNI_TRY(uni__keyring_new(&remote->ring, (uint32_t)launch->num_workers, err));
    if (!remote->announced_in || !remote->announced_by_rank)
        return uni_error_set(err, UNI_ENOMEM, "no memory for hosts");
    remote->announced_offset = stat(launch->log, &info) == 0 ? (int64_t)info.st_size : 0;
    remote->credentials = *launch->credentials;
    remote->credentials.ring = remote->ring;
    return 0;
}

int uni__group_listen(uni__group *group, const uni__launch *launch, char text[UNI__JOIN_MAX],
                      uni_error *err)
{
    char job[2 * UNI__JOB_BYTES + 1], key[2 * UNI__KEY_BYTES + 1];
    UNI_TRY(make_remote(group, err));
    uni__remote *remote = group->remote;
    uni__remote_stop_listening(group);
    UNI_TRY(expect_keys(remote, launch, err));
    UNI_TRY(uni__listener_new(&remote->listener, group, launch->addresses, launch->num_addresses,
                              &remote->credentials, &link_events, group, err));
    sodium_bin2hex(job, sizeof job, remote->credentials.job, UNI__JOB_BYTES);
    sodium_bin2hex(key, sizeof key, remote->credentials.public_key, UNI__KEY_BYTES);
    int used = snprintf(text, UNI__JOIN_MAX, "2:%s:%u:%d:%d:%s:", job, remote->credentials.attempt,
                        remote->credentials.seal, uni__listener_port(remote->listener), key);
    for (int i = 0; i < launch->num_addresses && used < UNI__JOIN_MAX - 50; i++)
        used += snprintf(text + used, (size_t)(UNI__JOIN_MAX - used), "%s%s", i ? "," : "",
                         launch->addresses[i]);
    return 0;
}

int uni__group_launch(uni__group *group, const uni__launch *launch, uni_error *err)
{
    uni__remote *remote = group->remote;
    if (!remote || !remote->listener)
        return uni_error_set(err, UNI_ESTATE, "the controller does not listen");
    forget_hosts(remote);
    memset(remote->ranks, 0, (size_t)group->num_slots * sizeof *remote->ranks);
    remote->num_ranks = launch->num_workers;
    remote->hello_timeout = launch->hello_timeout;
    remote->silent_timeout = launch->silent_timeout;
    uni_value_free(remote->names);
    remote->names = launch->names ? uni_value_copy(launch->names) : NULL;
    uni_value_free(remote->program);
    remote->program = launch->program ? uni_value_copy(launch->program) : NULL;
    free(remote->token_path);
    free(remote->token);
    remote->token_path = strdup(launch->token_path ? launch->token_path : "");
    remote->token = strdup(launch->token ? launch->token : "");
    if (!remote->token_path || !remote->token)
        return uni_error_set(err, UNI_ENOMEM, "no memory to launch");
    for (int r = 0; r < group->num_slots; r++)
        uni__links_empty_slot(&group->slots[r]);
    remote->launched_ns = uni__monotonic_ns();
    remote->ending_ns = remote->hosts_gone_ns = 0;
    remote->placed = remote->launcher_asked = remote->agent_told = false;
    remote->launched = true;
    remote->trouble_ns = 0;
    remote->more.waits = false;
    remote->foreign = launch->foreign;
    if (launch->foreign)
        uni__launcher_daemon_find(&remote->daemon);
    remote->term_is_stop = launch->term_is_stop;
    remote->is_openmpi =
        !launch->foreign && uni__launcher_is_openmpi(launch->launcher, launch->exe);
    remote->is_outlived = launch->launcher->is_outlived;
    remote->retiring = false;
    const char *slash = strrchr(launch->exe, '/'), *name = slash ? slash + 1 : launch->exe;
    snprintf(remote->launcher_name, sizeof remote->launcher_name, "%.60s",
             remote->is_outlived ? launch->launcher->program : name);
    uni__spawn spawn = { .rank = group->num_slots,
                         .exe = launch->exe,
                         .argv = launch->argv,
                         .environment = launch->environment,
                         .cwd = launch->cwd,
                         .log = launch->log };
    return uni__links_spawn_plain(group, &spawn, err);
}

/* ---- ending ---- */

/* Whatever the attempt's cause was: the next one would wait for these in vain. */
static void name_unreachable(uni__group *group, uint64_t now)
{
    uni__remote *remote = group->remote;
    for (int i = 0; i < remote->num_hosts && remote->placed; i++) {
        const uni__remote_host *host = remote->hosts[i];
        if (host->link && !host->all_dead && now - uni__link_heard_ns(host->link) > SILENT_NS)
            UNI__TELL(group, host_unreachable, host->first_rank);
    }
}

/* Open MPI takes 2 s to end a job whose processes were killed, and crashes on a SIGTERM meanwhile;
 * there is nothing left for it to do. */
static void press_launcher(uni__group *group, uint64_t waited)
{
    uni__remote *remote = group->remote;
    uint64_t patience = remote->retiring     ? LAUNCHER_LEAVES_NS
                        : remote->is_openmpi ? 0
                                             : LAUNCHER_ASK_NS;
    if (remote->launcher_asked || waited < patience)
        return;
    remote->launcher_asked = true;
    uni__links_tell_agent(group, UNI__AGENT_KILL, group->num_slots,
                          remote->is_openmpi ? SIGKILL : SIGTERM);
}

void uni__remote_advance_ending(uni__group *group)
{
    uni__remote *remote = group->remote;
    uint64_t now = uni__monotonic_ns();
    if (!remote->ending_ns || remote->agent_told)
        return;
    int left = 0;
    for (int i = 0; i < remote->num_hosts; i++)
        left += remote->hosts[i]->link && !remote->hosts[i]->all_dead;
    if (left > 0 && now - remote->ending_ns < HOSTS_END_NS)
        return;
    if (!remote->hosts_gone_ns) {
        remote->hosts_gone_ns = now;
        name_unreachable(group, now);
    }
    if (group->launcher.live && now - remote->hosts_gone_ns < LAUNCHER_END_NS) {
        press_launcher(group, now - remote->hosts_gone_ns);
        return;
    }
    remote->agent_told = true;
    remote->launched = false;
    hang_up_all(remote);
    for (int r = 0; r < group->num_slots; r++)
        uni__worker_ended(&group->slots[r].life);
    uni__links_kill_tree(group);
}

void uni__remote_kill_all(uni__group *group)
{
    uni__remote *remote = group->remote;
    int32_t no_rank = -1;
    if (remote->ending_ns)
        return;
    remote->ending_ns = uni__monotonic_ns();
    uni__remote_stop_listening(group);
    for (int i = 0; i < remote->num_hosts; i++)
        if (remote->hosts[i]->link)
            uni__link_send(remote->hosts[i]->link, UNI__REMOTE_KILL_ALL, &no_rank, sizeof no_rank,
                           NULL, 0);
    uni__link_flush_all(group);
    if (remote->num_hosts == 0)
        remote->hosts_gone_ns = remote->ending_ns;
    uni__remote_advance_ending(group);
}

static void begin_retiring(void *argument)
{
    uni__group *group = argument;
    if (!group->remote || !group->remote->launched)
        return;
    group->remote->retiring = true;
    uni__remote_kill_all(group);
}

typedef struct retiring {
    uni__group *group;
    bool done;
} retiring;

static void look_retired(void *argument)
{
    retiring *call = argument;
    call->done = !call->group->launcher.live || call->group->remote->agent_told;
}

void uni__group_retire(uni__group *group)
{
    retiring call = { .group = group };
    if (!group->remote)
        return;
    uni__group_call(group, begin_retiring, group);
    uint64_t deadline = uni__monotonic_ns() + HOSTS_END_NS + LAUNCHER_END_NS;
    while (!call.done && uni__monotonic_ns() < deadline) {
        uni__group_call(group, look_retired, &call);
        if (!call.done)
            nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    }
}

/* ---- at every tick ---- */

static void look_at_host(uni__group *group, uni__remote_host *host, uint64_t now)
{
    uni__remote *remote = group->remote;
    uint64_t quiet = now - uni__link_heard_ns(host->link);
    bool silent = quiet > SILENT_NS && quiet < (1ull << 62);
    if (silent) /* its workers' heartbeats prove nothing */
        for (int r = 0; r < remote->num_ranks; r++)
            if (remote->ranks[r].host == host)
                group->slots[r].life.heartbeat_ns = now;
    if (silent != host->silent && remote->placed)
        UNI__TELL(group, host_silent, host->first_rank, silent ? (double)quiet * 1e-9 : 0);
    host->silent = silent;
    if (silent && (double)quiet * 1e-9 >= remote->silent_timeout)
        lose_host(group, host,
                  "nothing was heard of it in time, not even a pulse: it is down, "
                  "frozen, or the network between drops what it sends");
}

void uni__remote_tick(uni__group *group, uint64_t now, bool late)
{
    uni__remote *remote = group->remote;
    for (int i = 0; i < remote->num_hosts; i++)
        if (remote->hosts[i]->link && !remote->ending_ns && !late)
            look_at_host(group, remote->hosts[i], now);
    uni__remote_watch_launcher(group, now);
    uni__remote_more_tick(group, now);
    if (now - remote->pulse_ns > UNI__REMOTE_PULSE_NS) {
        int32_t no_rank = -1;
        remote->pulse_ns = now;
        for (int i = 0; i < remote->num_hosts; i++)
            if (remote->hosts[i]->link)
                uni__link_send(remote->hosts[i]->link, UNI__REMOTE_PULSE, &no_rank, sizeof no_rank,
                               NULL, 0);
    }
    uni__remote_advance_ending(group);
}

bool uni__group_saw_stopping(uni__group *group)
{
    uni__remote *remote = group->remote;
    for (int r = 0; remote && r < remote->num_ranks; r++)
        if (uni__worker_is_live(&group->slots[r].life) && uni__remote_host_of(group, r) &&
            !remote->ranks[r].saw_stopping)
            return false;
    return true;
}

bool uni__group_place(uni__group *group, int rank, uni__rank_place *out)
{
    uni__remote *remote = group->remote;
    uni__remote_host *host =
        remote && rank >= 0 && rank < remote->num_ranks ? remote->ranks[rank].host : NULL;
    if (!host)
        return false;
    *out = (uni__rank_place){ .node = host->node,
                              .local_rank = remote->ranks[rank].local_rank,
                              .local_size = host->num_ranks,
                              .host = host->name,
                              .address = host->address,
                              .reached = host->reached,
                              .scratch = host->scratch,
                              .program = host->program,
                              .port = remote->ranks[rank].port,
                              .cpus = host->cpus,
                              .memory = host->memory,
                              .shares_storage = host->shares_storage,
                              .ucx = host->ucx };
    for (int i = 0; i < remote->num_hosts; i++)
        out->num_nodes += remote->hosts[i]->hello && !remote->hosts[i]->lost;
    return true;
}

void uni__remote_drop_hosts(uni__group *group)
{
    hang_up_all(group->remote);
    group->remote->launched = false;
}

void uni__remote_free(uni__group *group)
{
    uni__remote *remote = group->remote;
    if (!remote)
        return;
    forget_hosts(remote);
    uni__listener_free(remote->listener);
    uni_value_free(remote->names);
    uni_value_free(remote->program);
    free(remote->hosts);
    free(remote->ranks);
    free(remote->token_path);
    free(remote->token);
    free(remote->announced_in);
    free(remote->announced_by_rank);
    uni__keyring_free(remote->ring);
    sodium_memzero(&remote->credentials, sizeof remote->credentials);
    free(remote);
    group->remote = NULL;
}
