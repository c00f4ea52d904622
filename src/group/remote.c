/*
 * remote.c - the controller's side of workers on other hosts (remote.h): the launcher, the hosts that connected, the mirror pages.
 *
 * One launcher process (mpirun, srun) a run's attempt, started by the local agent in a slot of its own, so that it ends with everything else.
 * It brings up the hosts' agents; they connect, name their ranks, and look for the token in the storage. When every rank has a host, `placed` is told.
 * Ending: hosts are told to end their workers and end themselves, the launcher then ends by itself (and cleans up after itself); what has not ended in
 * time is killed by the local agent. All on the controller thread.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "group/agent.h"
#include "group/internal.h"
#include "group/remote.h"

#define SILENT_NS 1000000000ull
#define HOSTS_END_NS 3000000000ull /* for their workers and themselves */
#define LAUNCHER_ASK_NS 100000000ull /* after the last host: the launcher gets SIGTERM */
#define LAUNCHER_END_NS 2000000000ull /* and is killed */
#define MAX_REMARKS 8

typedef struct remote_host {
    uni__link *link; /* NULL: gone */
    int node, first_rank, num_ranks;
    char name[256], address[64], reached[64], scratch[256];
    double cpus;
    bool hello, probed, shares_storage, silent, all_dead;
} remote_host;

typedef struct remote_rank {
    remote_host *host;
    int local_rank, port;
    bool saw_stopping;
    uni__control_words sent;
    uint32_t busy[2]; /* this snapshot buffer came and was not given back */
} remote_rank;

struct uni__remote {
    uni__listener *listener;
    uni__credentials credentials;
    remote_host **hosts;
    int num_hosts, num_ranks;
    remote_rank *ranks;
    uni_value *names;
    char *token_path, *token;
    double hello_timeout, silent_timeout;
    uint64_t launched_ns, pulse_ns;
    uint64_t ending_ns, hosts_gone_ns; /* 0: not ending; 0: not yet */
    bool launched, placed, launcher_asked, agent_told;
    int remarks;
};

static void advance_ending(uni__group *group);

/* ---- hosts ---- */

static void fail_launch(uni__group *group, const char *sentence)
{
    uni__remote *remote = group->remote;
    if (!remote->launched || remote->placed || remote->ending_ns)
        return;
    group->events->launch_failed(group->context, sentence);
}

static remote_host *host_of_link(uni__remote *remote, const uni__link *link)
{
    for (int i = 0; i < remote->num_hosts; i++)
        if (remote->hosts[i]->link == link)
            return remote->hosts[i];
    return NULL;
}

static void send_welcome(uni__remote *remote, remote_host *host)
{
    uni_value *welcome = uni_value_dict();
    void *bytes = NULL;
    size_t size = 0;
    int32_t nobody = -1;
    int status = uni_dict_take(welcome, "silent_timeout", uni_value_float(remote->silent_timeout));
    status |= uni_dict_take(welcome, "token_path", uni_value_string(remote->token_path));
    status |= uni_dict_take(welcome, "token", uni_value_string(remote->token));
    if (status == 0 && uni_msgpack_write(&bytes, &size, welcome, NULL) == 0)
        uni__link_send(host->link, UNI__REMOTE_WELCOME, &nobody, sizeof nobody, bytes, size);
    free(bytes);
    uni_value_free(welcome);
}

static void on_ready(void *context, uni__link *link)
{
    uni__group *group = context;
    uni__remote *remote = group->remote;
    remote_host **grown =
        remote->launched && !remote->ending_ns
            ? realloc(remote->hosts, (size_t)(remote->num_hosts + 1) * sizeof *grown)
            : NULL;
    remote_host *host = grown ? calloc(1, sizeof *host) : NULL;
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

/* Nodes are counted in the order of their first ranks. */
static void number_nodes(uni__remote *remote)
{
    int node = 0;
    remote_host *last = NULL;
    for (int r = 0; r < remote->num_ranks; r++) {
        remote_host *host = remote->ranks[r].host;
        if (host != last && host->first_rank == r)
            host->node = node++;
        last = host;
    }
}

static void check_placed(uni__group *group)
{
    uni__remote *remote = group->remote;
    if (remote->placed || remote->ending_ns)
        return;
    for (int r = 0; r < remote->num_ranks; r++)
        if (!remote->ranks[r].host || !remote->ranks[r].host->probed)
            return;
    remote->placed = true;
    number_nodes(remote);
    uni__listener_keep_used(remote->listener);
    group->events->placed(group->context);
}

static void take_hello(uni__group *group, remote_host *host, const uni_value *hello)
{
    uni__remote *remote = group->remote;
    const uni_value *ranks = uni_dict_get(hello, "ranks"), *ports = uni_dict_get(hello, "ports");
    char sentence[512];
    snprintf(host->name, sizeof host->name, "%.200s", uni_dict_get_string(hello, "host", "?"));
    host->cpus = uni_dict_get_float(hello, "cpus", 1);
    host->num_ranks = (int)uni_list_size(ranks);
    for (int i = 0; i < host->num_ranks; i++) {
        int rank = (int)uni_value_as_int(uni_list_get(ranks, (size_t)i), -1);
        if (host->hello || rank < 0 || rank >= remote->num_ranks || remote->ranks[rank].host) {
            snprintf(sentence, sizeof sentence,
                     "host %s says that it has rank %d, which cannot be: the launcher started "
                     "another number of processes than asked for",
                     host->name, rank);
            fail_launch(group, sentence);
            return;
        }
        remote->ranks[rank] = (remote_rank){
            .host = host,
            .local_rank = i,
            .port = (int)uni_value_as_int(uni_list_get(ports, (size_t)i), 0),
        };
        if (host->first_rank < 0 || rank < host->first_rank)
            host->first_rank = rank;
    }
    host->hello = true;
    const char *known =
        host->first_rank >= 0
            ? uni_value_as_string(uni_list_get(remote->names, (size_t)host->first_rank), NULL)
            : NULL;
    if (known)
        snprintf(host->name, sizeof host->name, "%.200s", known);
    check_placed(group);
}

/* ---- what hosts say ---- */

static void take_words(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    uni__worker_words words;
    uni__slot *worker = &group->slots[rank];
    if (size != sizeof words || !worker->page)
        return;
    memcpy(&words, payload, sizeof words);
    uni__worker_words_apply(worker->page, &words);
    group->remote->ranks[rank].saw_stopping = words.saw_stopping != 0;
}

static void take_exit(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    int32_t numbers[5];
    uni__slot *worker = &group->slots[rank];
    if (size != sizeof numbers || !worker->live)
        return;
    memcpy(numbers, payload, sizeof numbers);
    uni__exit how = { .pid = numbers[0],
                      .exit_code = numbers[1],
                      .signal = numbers[2],
                      .core = numbers[3] != 0,
                      .oom = numbers[4] != 0 };
    worker->live = false;
    worker->pid = 0;
    group->events->exited(group->context, rank, &how);
    group->events->drained(group->context);
}

static void take_region(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    struct {
        int32_t slot, zero;
        uint64_t offset, total;
    } head;
    if (size < sizeof head)
        return;
    memcpy(&head, payload, sizeof head);
    size -= sizeof head;
    if (head.slot < 0 || head.slot > 1 || head.offset > head.total ||
        size > head.total - head.offset)
        return;
    group->events->region(group->context, rank, head.slot, head.offset, head.total,
                          payload + sizeof head, size);
    if (head.offset + size == head.total && group->slots[rank].page) {
        group->remote->ranks[rank].busy[head.slot] = 1;
        atomic_store(&group->slots[rank].page->slot_free[head.slot], 0);
    }
}

static void take_file(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    uni__remote_file head;
    char path[4001];
    if (size < sizeof head)
        return;
    memcpy(&head, payload, sizeof head);
    payload += sizeof head;
    size -= sizeof head;
    if (head.path_size > size || !uni__remote_path_is_safe((const char *)payload, head.path_size)) {
        group->events->broken(group->context, rank, "it sent a file with a forbidden name");
        return;
    }
    memcpy(path, payload, head.path_size);
    path[head.path_size] = '\0';
    group->events->file(group->context, rank, path, head.offset, payload + head.path_size,
                        size - head.path_size, (int)head.last);
}

static void take_message(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    if (size < 2)
        return;
    uni__links_take_frame(&group->slots[rank], payload + 2, size - 2, payload[0],
                          payload[1] ? UNI__FRAME_MORE : 0);
}

static void take_channel(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    int32_t type;
    if (size < sizeof type)
        return;
    memcpy(&type, payload, sizeof type);
    uni__wire_frame frame = { .type = type,
                              .payload = payload + sizeof type,
                              .size = size - sizeof type };
    group->events->channel(group->context, rank, &frame);
}

/* Of a rank that lives on that host. */
static void take_of_rank(uni__group *group, int type, int rank, const uint8_t *payload, size_t size)
{
    uni__slot *worker = &group->slots[rank];
    int32_t number = 0;
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%.*s", (int)(size < 500 ? size : 500),
             (const char *)payload);
    if (size >= sizeof number)
        memcpy(&number, payload, sizeof number);
    switch (type) {
    case UNI__REMOTE_SPAWNED:
        worker->pid = number;
        group->events->spawned(group->context, rank, number);
        break;
    case UNI__REMOTE_SPAWN_FAILED:
        worker->live = false;
        group->events->spawn_failed(group->context, rank, sentence);
        break;
    case UNI__REMOTE_MESSAGE:
        take_message(group, rank, payload, size);
        break;
    case UNI__REMOTE_CHANNEL:
        take_channel(group, rank, payload, size);
        break;
    case UNI__REMOTE_LINE:
        group->events->line(group->context, rank, size ? (const char *)payload : NULL, size);
        break;
    case UNI__REMOTE_BROKEN:
        group->events->broken(group->context, rank, sentence);
        break;
    case UNI__REMOTE_EXITED:
        take_exit(group, rank, payload, size);
        break;
    case UNI__REMOTE_STOPPED:
        group->events->stopped(group->context, rank, number != 0);
        break;
    case UNI__REMOTE_WORDS:
        take_words(group, rank, payload, size);
        break;
    case UNI__REMOTE_REGION:
        take_region(group, rank, payload, size);
        break;
    case UNI__REMOTE_LOG:
        group->events->log(group->context, rank, payload, size);
        break;
    case UNI__REMOTE_FILE:
        take_file(group, rank, payload, size);
        break;
    default:
        break;
    }
}

static void take_of_host(uni__group *group, remote_host *host, int type, const uint8_t *payload,
                         size_t size)
{
    uni_value *message = NULL;
    if (type == UNI__REMOTE_ALL_DEAD) {
        host->all_dead = true;
        advance_ending(group);
        return;
    }
    if (uni_msgpack_read(&message, payload, size, NULL) < 0)
        return;
    if (type == UNI__REMOTE_HELLO) {
        take_hello(group, host, message);
    } else if (type == UNI__REMOTE_PROBED) {
        host->probed = true;
        host->shares_storage = uni_dict_get_bool(message, "shared", false);
        snprintf(host->scratch, sizeof host->scratch, "%.250s",
                 uni_dict_get_string(message, "scratch", ""));
        check_placed(group);
    }
    uni_value_free(message);
}

static void on_frame(void *context, uni__link *link, int type, const uint8_t *payload, size_t size)
{
    uni__group *group = context;
    uni__remote *remote = group->remote;
    remote_host *host = host_of_link(remote, link);
    int32_t rank;
    if (!host || size < sizeof rank || type == UNI__REMOTE_PULSE)
        return;
    memcpy(&rank, payload, sizeof rank);
    payload += sizeof rank;
    size -= sizeof rank;
    if (type == UNI__REMOTE_HELLO || type == UNI__REMOTE_PROBED || type == UNI__REMOTE_ALL_DEAD)
        take_of_host(group, host, type, payload, size);
    else if (rank >= 0 && rank < remote->num_ranks && remote->ranks[rank].host == host)
        take_of_rank(group, type, rank, payload, size);
}

/* ---- hosts that go away ---- */

static void lose_host(uni__group *group, remote_host *host, const char *why)
{
    uni__remote *remote = group->remote;
    char sentence[512], ranks[128] = "";
    if (host->link)
        uni__link_close(host->link);
    host->link = NULL;
    for (int r = 0; r < remote->num_ranks; r++)
        if (remote->ranks[r].host == host) {
            group->slots[r].live = false;
            group->slots[r].pid = 0;
            snprintf(ranks + strlen(ranks), sizeof ranks - strlen(ranks), "%s%d",
                     ranks[0] ? ", " : "", r);
        }
    if (remote->ending_ns) {
        advance_ending(group);
        return;
    }
    if (!host->hello)
        return; /* an agent tries all our addresses and keeps the fastest */
    snprintf(sentence, sizeof sentence, "host %.100s (%.60s; rank %.120s) is lost: %.160s",
             host->name[0] ? host->name : "?", host->address, ranks[0] ? ranks : "none yet", why);
    if (remote->placed)
        group->events->host_lost(group->context, host->first_rank, sentence);
    else
        fail_launch(group, sentence);
}

static void on_closed(void *context, uni__link *link, const char *why)
{
    uni__group *group = context;
    remote_host *host = group->remote ? host_of_link(group->remote, link) : NULL;
    if (!host)
        return;
    host->link = NULL;
    lose_host(group, host, why);
}

static void on_refused(void *context, const char *address, const char *why)
{
    uni__group *group = context;
    char sentence[512];
    if (!group->remote || ++group->remote->remarks > MAX_REMARKS)
        return;
    snprintf(sentence, sizeof sentence, "a connection from %.64s was turned away: %.300s%s",
             address, why,
             group->remote->remarks == MAX_REMARKS ? " (further ones are not said)" : "");
    group->events->remark(group->context, sentence);
}

static const uni__link_events link_events = {
    .ready = on_ready, .frame = on_frame, .closed = on_closed, .refused = on_refused
};

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
    for (int i = 0; i < remote->num_hosts; i++)
        free(remote->hosts[i]);
    remote->num_hosts = 0;
}

int uni__group_listen(uni__group *group, const uni__launch *launch, char *text, uni_error *err)
{
    uni__remote *remote = group->remote;
    char job[2 * UNI__JOB_BYTES + 1];
    if (!remote) {
        remote = group->remote = calloc(1, sizeof *remote);
        if (!remote)
            return uni_error_set(err, UNI_ENOMEM, "no memory for hosts");
        remote->ranks = calloc((size_t)group->num_slots, sizeof *remote->ranks);
        if (!remote->ranks)
            return uni_error_set(err, UNI_ENOMEM, "no memory for hosts");
    }
    uni__listener_free(remote->listener);
    remote->listener = NULL;
    remote->credentials = *launch->credentials;
    UNI_TRY(uni__listener_new(&remote->listener, group, launch->addresses, launch->num_addresses,
                              launch->credentials, &link_events, group, err));
    sodium_bin2hex(job, sizeof job, launch->credentials->job, UNI__JOB_BYTES);
    int used = snprintf(text, 512, "1:%s:%u:%d:%d:", job, launch->credentials->attempt,
                        launch->credentials->encrypt, uni__listener_port(remote->listener));
    for (int i = 0; i < launch->num_addresses && used < 460; i++)
        used +=
            snprintf(text + used, (size_t)(512 - used), "%s%s", i ? "," : "", launch->addresses[i]);
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
    remote->remarks = 0;
    uni__spawn spawn = { .rank = group->num_slots,
                         .exe = launch->exe,
                         .argv = launch->argv,
                         .environment = launch->environment,
                         .cwd = launch->cwd,
                         .log = launch->log };
    return uni__links_spawn_plain(group, &spawn, err);
}

void uni__remote_launcher_exited(uni__group *group, const uni__exit *how)
{
    uni__remote *remote = group->remote;
    char sentence[256];
    if (!remote)
        return;
    if (!remote->placed && !remote->ending_ns) {
        if (how->signal)
            snprintf(sentence, sizeof sentence,
                     "the launcher was killed by signal %d before every "
                     "host had connected",
                     how->signal);
        else
            snprintf(sentence, sizeof sentence,
                     "the launcher ended with code %d before every host had connected",
                     how->exit_code);
        fail_launch(group, sentence);
    }
    advance_ending(group);
}

/* ---- spawning and sending ---- */

static remote_host *host_of(uni__group *group, int rank)
{
    uni__remote *remote = group->remote;
    remote_host *host = rank >= 0 && rank < remote->num_ranks ? remote->ranks[rank].host : NULL;
    return host && host->link ? host : NULL;
}

int uni__remote_spawn(uni__group *group, const uni__spawn *spawn, uni_error *err)
{
    uni__slot *worker = &group->slots[spawn->rank];
    remote_host *host = host_of(group, spawn->rank);
    int32_t rank = spawn->rank;
    void *bytes = NULL;
    size_t size = 0;
    int page_fd = -1;
    uni__links_empty_slot(worker);
    if (!host)
        return uni_error_set(err, UNI_EPEER, "the host of rank %d is gone", spawn->rank);
    uni_value *order = uni__links_spawn_order(spawn);
    if (!order || uni_dict_take(order, "forward_log", uni_value_bool(spawn->forward_log)) < 0) {
        uni_value_free(order);
        return uni_error_set(err, UNI_ENOMEM, "no memory to start rank %d", spawn->rank);
    }
    int status = uni_msgpack_write(&bytes, &size, order, err);
    uni_value_free(order);
    if (status == 0)
        status = uni__page_new(&worker->page, &page_fd, err);
    if (page_fd >= 0)
        close(page_fd); /* a mirror: nobody else maps it */
    if (status == 0) {
        worker->live = true;
        worker->heartbeat = 0;
        worker->heartbeat_ns = uni__monotonic_ns();
        memset(&group->remote->ranks[rank].sent, 0, sizeof(uni__control_words));
        uni__link_send(host->link, UNI__REMOTE_SPAWN, &rank, sizeof rank, bytes, size);
    }
    free(bytes);
    return status;
}

static void send_in_parts(uni__link *link, int type, int32_t rank, const uint8_t *bytes,
                          size_t size)
{
    for (size_t at = 0; at < size; at += UNI__REMOTE_CHUNK) {
        size_t part = size - at < UNI__REMOTE_CHUNK ? size - at : UNI__REMOTE_CHUNK;
        uni__link_send(link, type, &rank, sizeof rank, bytes + at, part);
    }
}

static int send_memory(uni__link *link, int32_t rank, int fd, uni_error *err)
{
    struct stat info;
    if (fstat(fd, &info) < 0 || info.st_size <= 0)
        return uni_error_set_errno(err, errno, "cannot read the memory for rank %d", rank);
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED)
        return uni_error_set_errno(err, errno, "cannot map the memory for rank %d", rank);
    send_in_parts(link, UNI__REMOTE_MEMORY, rank, memory, (size_t)info.st_size);
    munmap(memory, (size_t)info.st_size);
    return 0;
}

int uni__remote_send(uni__group *group, int rank, int type, const void *payload, size_t size,
                     int fd, uni_error *err)
{
    remote_host *host = host_of(group, rank);
    struct {
        int32_t rank, type, has_fd;
    } head = { rank, type, fd >= 0 };
    if (!host)
        return uni_error_set(err, UNI_EPEER, "the host of rank %d is gone", rank);
    if (fd >= 0)
        UNI_TRY(send_memory(host->link, rank, fd, err));
    size_t before = size > UNI__REMOTE_CHUNK ? size - UNI__REMOTE_CHUNK : 0;
    send_in_parts(host->link, UNI__REMOTE_PART, rank, payload, before);
    uni__link_send(host->link, UNI__REMOTE_SEND, &head, sizeof head,
                   (const uint8_t *)payload + before, size - before);
    return 0;
}

int uni__group_give_file(uni__group *group, int rank, const char *path, const char *from,
                         uni_error *err)
{
    remote_host *host = host_of(group, rank);
    int32_t to = rank;
    uint8_t head[sizeof to + sizeof(uni__remote_file) + 4096];
    uni__remote_file about = { .path_size = (uint32_t)strlen(path) };
    if (!host)
        return uni_error_set(err, UNI_EPEER, "the host of rank %d is gone", rank);
    FILE *file = fopen(from, "re");
    uint8_t *bytes = file ? malloc(UNI__REMOTE_CHUNK) : NULL;
    if (!bytes || about.path_size > 4000) {
        int saved = errno;
        if (file)
            fclose(file);
        return uni_error_set_errno(err, saved, "cannot send %s to host %s", from, host->name);
    }
    while (!about.last) {
        size_t size = fread(bytes, 1, UNI__REMOTE_CHUNK, file);
        about.last = size < UNI__REMOTE_CHUNK;
        memcpy(head, &to, sizeof to);
        memcpy(head + sizeof to, &about, sizeof about);
        memcpy(head + sizeof to + sizeof about, path, about.path_size);
        uni__link_send(host->link, UNI__REMOTE_GIVE, head,
                       sizeof to + sizeof about + about.path_size, bytes, size);
        about.offset += size;
    }
    free(bytes);
    fclose(file);
    return 0;
}

void uni__remote_kill(uni__group *group, int rank, int signal)
{
    uni__remote *remote = group->remote;
    for (int r = 0; r < remote->num_ranks; r++) {
        remote_host *host = rank < 0 || rank == r ? host_of(group, r) : NULL;
        int32_t words[2] = { r, signal };
        if (host)
            uni__link_send(host->link, UNI__REMOTE_KILL, words, sizeof words, NULL, 0);
    }
}

/* ---- ending ---- */

static void advance_ending(uni__group *group)
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
    if (!remote->hosts_gone_ns)
        remote->hosts_gone_ns = now;
    if (group->launcher.live && now - remote->hosts_gone_ns < LAUNCHER_END_NS) {
        if (!remote->launcher_asked && now - remote->hosts_gone_ns > LAUNCHER_ASK_NS) {
            remote->launcher_asked = true;
            uni__links_tell_agent(group, UNI__AGENT_KILL, group->num_slots, SIGTERM);
        }
        return;
    }
    remote->agent_told = true;
    remote->launched = false;
    hang_up_all(remote);
    for (int r = 0; r < group->num_slots; r++) {
        group->slots[r].live = false;
        group->slots[r].pid = 0;
    }
    uni__links_kill_tree(group);
}

void uni__remote_kill_all(uni__group *group)
{
    uni__remote *remote = group->remote;
    int32_t nobody = -1;
    if (remote->ending_ns)
        return;
    remote->ending_ns = uni__monotonic_ns();
    for (int i = 0; i < remote->num_hosts; i++)
        if (remote->hosts[i]->link)
            uni__link_send(remote->hosts[i]->link, UNI__REMOTE_KILL_ALL, &nobody, sizeof nobody,
                           NULL, 0);
    uni__link_flush_all(group);
    if (remote->num_hosts == 0)
        remote->hosts_gone_ns = remote->ending_ns;
    advance_ending(group);
}

static void begin_retiring(void *argument)
{
    uni__group *group = argument;
    if (group->remote && group->remote->launched)
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

/* ---- now and then ---- */

static void look_at_host(uni__group *group, remote_host *host, uint64_t now)
{
    uni__remote *remote = group->remote;
    uint64_t quiet = now - uni__link_heard_ns(host->link);
    bool silent = quiet > SILENT_NS && quiet < (1ull << 62);
    if (silent) /* its workers' heartbeats prove nothing */
        for (int r = 0; r < remote->num_ranks; r++)
            if (remote->ranks[r].host == host)
                group->slots[r].heartbeat_ns = now;
    if (silent != host->silent && remote->placed)
        group->events->host_silent(group->context, host->first_rank,
                                   silent ? (double)quiet * 1e-9 : 0);
    host->silent = silent;
    if (silent && (double)quiet * 1e-9 >= remote->silent_timeout)
        lose_host(group, host,
                  "nothing was heard of it in time, not even a pulse: it is down, "
                  "frozen, or the network between drops what it sends");
}

void uni__remote_tick(uni__group *group, uint64_t now)
{
    uni__remote *remote = group->remote;
    char sentence[640] = "";
    for (int i = 0; i < remote->num_hosts; i++)
        if (remote->hosts[i]->link && !remote->ending_ns)
            look_at_host(group, remote->hosts[i], now);
    if (remote->launched && !remote->placed && !remote->ending_ns &&
        (double)(now - remote->launched_ns) * 1e-9 > remote->hello_timeout) {
        snprintf(sentence, sizeof sentence, "no agent connected for");
        for (int r = 0; r < remote->num_ranks && strlen(sentence) < 500; r++)
            if (!remote->ranks[r].host)
                snprintf(sentence + strlen(sentence), sizeof sentence - strlen(sentence),
                         "%s rank %d (%.60s)", strchr(sentence, '(') ? "," : "", r,
                         uni_value_as_string(uni_list_get(remote->names, (size_t)r), "host ?"));
        snprintf(sentence + strlen(sentence), sizeof sentence - strlen(sentence),
                 " within %g s: can it reach this machine at the address shown (--interface)?",
                 remote->hello_timeout);
        fail_launch(group, sentence);
    }
    if (now - remote->pulse_ns > UNI__REMOTE_PULSE_NS) {
        int32_t nobody = -1;
        remote->pulse_ns = now;
        for (int i = 0; i < remote->num_hosts; i++)
            if (remote->hosts[i]->link)
                uni__link_send(remote->hosts[i]->link, UNI__REMOTE_PULSE, &nobody, sizeof nobody,
                               NULL, 0);
    }
    advance_ending(group);
}

/* What the trainer wrote into the mirrors in this round goes out. */
void uni__remote_before_sleep(uni__group *group)
{
    uni__remote *remote = group->remote;
    for (int r = 0; r < remote->num_ranks; r++) {
        remote_host *host = host_of(group, r);
        uni__page *page = group->slots[r].page;
        remote_rank *rank = &remote->ranks[r];
        uni__control_words now;
        int32_t to = r;
        if (!host || !page || !group->slots[r].live)
            continue;
        uni__control_words_read(page, &now);
        for (int i = 0; i < 2; i++) {
            now.freed[i] = rank->sent.freed[i];
            if (rank->busy[i] && atomic_load(&page->slot_free[i])) {
                rank->busy[i] = 0;
                now.freed[i]++;
            }
        }
        if (memcmp(&now, &rank->sent, sizeof now) == 0)
            continue;
        rank->sent = now;
        uni__link_send(host->link, UNI__REMOTE_CONTROL, &to, sizeof to, &now, sizeof now);
    }
}

bool uni__group_saw_stopping(uni__group *group)
{
    uni__remote *remote = group->remote;
    for (int r = 0; remote && r < remote->num_ranks; r++)
        if (group->slots[r].live && host_of(group, r) && !remote->ranks[r].saw_stopping)
            return false;
    return true;
}

bool uni__group_place(uni__group *group, int rank, uni__place *out)
{
    uni__remote *remote = group->remote;
    remote_host *host =
        remote && rank >= 0 && rank < remote->num_ranks ? remote->ranks[rank].host : NULL;
    if (!host)
        return false;
    *out = (uni__place){ .node = host->node,
                         .local_rank = remote->ranks[rank].local_rank,
                         .local_size = host->num_ranks,
                         .host = host->name,
                         .address = host->address,
                         .reached = host->reached,
                         .scratch = host->scratch,
                         .port = remote->ranks[rank].port,
                         .cpus = host->cpus,
                         .shares_storage = host->shares_storage };
    for (int i = 0; i < remote->num_hosts; i++)
        out->num_nodes += remote->hosts[i]->hello;
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
    free(remote->hosts);
    free(remote->ranks);
    free(remote->token_path);
    free(remote->token);
    sodium_memzero(&remote->credentials, sizeof remote->credentials);
    free(remote);
    group->remote = NULL;
}
