/*
 * remote_take.c - what the hosts' agents say (remote.h has every frame): their identity, and what
 * their workers do, report and save. It becomes the events that a group of this machine has, so
 * that the trainer does not know the difference. Controller thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/shared.h"
#include "base/machine_limits.h"
#include "group/remote_internal.h"

#define MAX_CPUS 65536

/* ---- identity ---- */

/* Nodes are counted in the order of their first ranks. */
static void number_nodes(uni__remote *remote)
{
    int node = 0;
    uni__remote_host *last = NULL;
    for (int r = 0; r < remote->num_ranks; r++) {
        uni__remote_host *host = remote->ranks[r].host;
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
    uni__remote_stop_listening(group);
    UNI__TELL(group, placed);
}

static const char *name_of(const uni__remote *remote, int rank)
{
    return rank >= 0 ? uni_value_as_string(uni_list_get(remote->names, (size_t)rank), NULL) : NULL;
}

/* Over ssh we have told each host its ranks. Under mpirun and srun it is the launcher that does. A
 * host that comes later has just the ranks that it is awaited for. */
static bool may_have(const uni__remote *remote, const uni__remote_host *host, int rank)
{
    if (remote->placed)
        return true;
    const char *own = name_of(remote, (int)uni__link_rank(host->link)), *of = name_of(remote, rank);
    return !remote->is_outlived || (own && of && strcmp(own, of) == 0);
}

static void take_hello(uni__group *group, uni__remote_host *host, const uni_value *hello)
{
    uni__remote *remote = group->remote;
    const uni_value *ranks = uni_dict_get(hello, "ranks"), *ports = uni_dict_get(hello, "ports");
    char sentence[512];
    if (host->hello) { /* its ranks have their places */
        snprintf(sentence, sizeof sentence, "host %s introduced itself twice", host->name);
        uni__remote_fail_launch(group, sentence);
        return;
    }
    snprintf(host->name, sizeof host->name, "%.200s", uni_dict_get_string(hello, "host", "?"));
    double cpus = uni_dict_get_float(hello, "cpus", 1);
    host->cpus = cpus >= 0 && cpus <= MAX_CPUS ? cpus : 1; /* it becomes a number of threads */
    host->memory = uni_dict_get_float(hello, "memory", 0);
    host->ucx = uni_dict_get_bool(hello, "ucx", false);
    host->num_ranks = (int)uni_list_size(ranks);
    if (remote->placed && !uni__remote_more_expects(remote, ranks)) {
        uni__remote_refuse(group, host->address, "it has ranks that no host is awaited for");
        uni__link_close(host->link);
        host->link = NULL;
        return;
    }
    for (int i = 0; i < host->num_ranks; i++) {
        int rank = (int)uni_value_as_int(uni_list_get(ranks, (size_t)i), -1);
        if (rank < 0 || rank >= remote->num_ranks || remote->ranks[rank].host ||
            !may_have(remote, host, rank)) {
            snprintf(sentence, sizeof sentence,
                     "host %s says that it has rank %d, which cannot be: the launcher started "
                     "another number of processes than asked for, or another host's agent",
                     host->name, rank);
            uni__remote_fail_launch(group, sentence);
            return;
        }
        remote->ranks[rank] = (uni__remote_rank){
            .host = host,
            .local_rank = i,
            .port = (int)uni_value_as_int(uni_list_get(ports, (size_t)i), 0),
        };
        if (host->first_rank < 0 || rank < host->first_rank)
            host->first_rank = rank;
    }
    uint32_t proved = uni__link_rank(host->link);
    if (proved >= (uint32_t)remote->num_ranks || remote->ranks[proved].host != host) {
        snprintf(sentence, sizeof sentence, "host %s does not have the rank %u that it proved",
                 host->name, proved);
        uni__remote_fail_launch(group, sentence);
        return;
    }
    host->hello = true;
    const char *known = remote->placed ? remote->more.name : name_of(remote, host->first_rank);
    if (known)
        snprintf(host->name, sizeof host->name, "%.200s", known);
    check_placed(group);
    uni__remote_more_look(group, host);
}

/* ---- what hosts say ---- */

static void take_words(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    uni__worker_words words;
    uni__worker_slot *worker = &group->slots[rank];
    if (size != sizeof words || !worker->page)
        return;
    memcpy(&words, payload, sizeof words);
    const uni__page *page = worker->page;
    /* What decides about groups is looked at in this round, not at the next tick. */
    group->remote->fresh |=
        words.awaits != atomic_load(&page->awaits) || words.ending != atomic_load(&page->ending) ||
        words.left != atomic_load(&page->left) || words.joined != atomic_load(&page->joined);
    uni__worker_words_apply(worker->page, &words);
    group->remote->ranks[rank].saw_stopping = words.saw_stopping != 0;
}

static void take_exit(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    int32_t numbers[5];
    uni__worker_slot *worker = &group->slots[rank];
    if (size != sizeof numbers || !uni__worker_is_live(&worker->life))
        return;
    memcpy(numbers, payload, sizeof numbers);
    uni__exit how = { .pid = numbers[0],
                      .exit_code = numbers[1],
                      .signal = numbers[2],
                      .core = numbers[3] != 0,
                      .oom = uni__oom_from(numbers[4]) };
    (void)uni__worker_step(&worker->life, UNI__WORKER_EXIT);
    UNI__TELL(group, exited, rank, &how);
    UNI__TELL(group, drained);
}

static void take_region(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    struct {
        int32_t slot, zero;
        uint64_t offset, total;
    } head;
    uni__worker *worker = &group->slots[rank].life;
    if (size < sizeof head)
        return;
    memcpy(&head, payload, sizeof head);
    size -= sizeof head;
    if (head.slot < 0 || head.slot >= UNI__SNAPSHOT_SLOTS || head.offset > head.total ||
        size > head.total - head.offset ||
        uni__worker_step(worker, UNI__WORKER_SNAPSHOT) != UNI__WORKER_TAKEN)
        return;
    uni__region *region = worker->snapshots[head.slot];
    if (!region || region->size < head.total) {
        if (head.total > uni__memory_available()) {
            UNI__TELL(group, broken, rank, "its checkpoint is larger than the free memory here");
            return;
        }
        region = uni__region_new(head.total);
        if (!region)
            return; /* the message that speaks of it finds no buffer, and that is said */
        uni__worker_take_snapshot(worker, head.slot, region);
    }
    memcpy((char *)region->memory + head.offset, payload + sizeof head, size);
    if (head.offset + size == head.total && group->slots[rank].page) {
        group->remote->ranks[rank].busy[head.slot] = 1;
        atomic_store(&group->slots[rank].page->slot_free[head.slot], 0);
    }
}

static void take_file(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    uni__remote_file head;
    char path[UNI__REMOTE_PATH_MAX + 1];
    if (size < sizeof head)
        return;
    memcpy(&head, payload, sizeof head);
    payload += sizeof head;
    size -= sizeof head;
    if (head.path_size > size || !uni__remote_path_is_safe((const char *)payload, head.path_size)) {
        UNI__TELL(group, broken, rank, "it sent a file with a forbidden name");
        return;
    }
    memcpy(path, payload, head.path_size);
    path[head.path_size] = '\0';
    UNI__TELL(group, file, rank, path, head.offset, payload + head.path_size, size - head.path_size,
              (int)head.last);
}

static void take_message(uni__group *group, int rank, const uint8_t *payload, size_t size)
{
    if (size < 2)
        return;
    group->remote->fresh = true;
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
    uni__links_take_channel(&group->slots[rank], &frame);
}

/* Of a rank that lives on that host. */
static void take_of_rank(uni__group *group, int type, int rank, const uint8_t *payload, size_t size)
{
    uni__worker_slot *worker = &group->slots[rank];
    int32_t number = 0;
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%.*s", (int)(size < 500 ? size : 500),
             (const char *)payload);
    if (size >= sizeof number)
        memcpy(&number, payload, sizeof number);
    switch (type) {
    case UNI__REMOTE_SPAWNED:
        if (number > 0 && worker->life.pid == 0 && uni__worker_is_live(&worker->life)) {
            worker->life.pid = number;
            UNI__TELL(group, spawned, rank, number);
        }
        break;
    case UNI__REMOTE_SPAWN_FAILED:
        uni__worker_ended(&worker->life);
        UNI__TELL(group, spawn_failed, rank, sentence);
        break;
    case UNI__REMOTE_MESSAGE:
        take_message(group, rank, payload, size);
        break;
    case UNI__REMOTE_CHANNEL:
        take_channel(group, rank, payload, size);
        break;
    case UNI__REMOTE_LINE:
        group->remote->fresh = true;
        uni__links_take_line(worker, size ? (const char *)payload : NULL, size);
        break;
    case UNI__REMOTE_BROKEN:
        UNI__TELL(group, broken, rank, sentence);
        break;
    case UNI__REMOTE_EXITED:
        take_exit(group, rank, payload, size);
        break;
    case UNI__REMOTE_STOPPED:
        uni__links_tell_stopped(worker, number != 0);
        break;
    case UNI__REMOTE_WORDS:
        take_words(group, rank, payload, size);
        break;
    case UNI__REMOTE_REGION:
        take_region(group, rank, payload, size);
        break;
    case UNI__REMOTE_LOG:
        UNI__TELL(group, log, rank, payload, size);
        break;
    case UNI__REMOTE_FILE:
        take_file(group, rank, payload, size);
        break;
    default:
        break;
    }
}

static void take_of_host(uni__group *group, uni__remote_host *host, int type,
                         const uint8_t *payload, size_t size)
{
    uni_value *message = NULL;
    if (type == UNI__REMOTE_ALL_DEAD) {
        host->all_dead = true;
        uni__remote_advance_ending(group);
        return;
    }
    if (type == UNI__REMOTE_SIGNALLED) {
        int32_t number = 0;
        if (size == sizeof number)
            memcpy(&number, payload, sizeof number);
        uni__remote_signalled(group, host, number);
        return;
    }
    if (type == UNI__REMOTE_ORPHANED) {
        char daemon[64];
        snprintf(daemon, sizeof daemon, "%.*s", (int)(size < 60 ? size : 60),
                 (const char *)payload);
        uni__remote_orphaned(group, host, daemon);
        return;
    }
    if (uni__msgpack_read(&message, payload, size, NULL) < 0)
        return;
    if (type == UNI__REMOTE_HELLO) {
        take_hello(group, host, message);
    } else if (type == UNI__REMOTE_PROBED) {
        host->probed = true;
        host->shares_storage = uni_dict_get_bool(message, "shared", false);
        snprintf(host->scratch, sizeof host->scratch, "%.250s",
                 uni_dict_get_string(message, "scratch", ""));
        if (!host->program && uni_dict_get(message, "program"))
            host->program = uni_value_copy(uni_dict_get(message, "program"));
        check_placed(group);
        uni__remote_more_look(group, host);
    }
    uni_value_free(message);
}

void uni__remote_on_frame(void *context, uni__link *link, int type, const uint8_t *payload,
                          size_t size)
{
    uni__group *group = context;
    uni__remote *remote = group->remote;
    uni__remote_host *host = uni__remote_host_of_link(remote, link);
    int32_t rank;
    if (!host || size < sizeof rank || type == UNI__REMOTE_PULSE)
        return;
    memcpy(&rank, payload, sizeof rank);
    payload += sizeof rank;
    size -= sizeof rank;
    if (type == UNI__REMOTE_HELLO || type == UNI__REMOTE_PROBED || type == UNI__REMOTE_ALL_DEAD ||
        type == UNI__REMOTE_SIGNALLED || type == UNI__REMOTE_ORPHANED)
        take_of_host(group, host, type, payload, size);
    else if (rank >= 0 && rank < remote->num_ranks && remote->ranks[rank].host == host)
        take_of_rank(group, type, rank, payload, size);
}
