/*
 * remote_more.c - hosts that come while the run is under way: one that takes the ranks of a lost
 * one, or comes back itself. One at a time: the controller listens again, a launcher of its own
 * starts the agent there, and when that has connected and looked around, `host_joined` is told. A
 * host that does not come in time is `host_missing`. Controller thread.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dict.h"
#include "group/agent.h"
#include "group/remote_internal.h"

#define JOIN_NS 15000000000ull

/* The local agent knows each of these launchers under a number of its own. */
static int number_of(const uni__group *group)
{
    return group->num_slots + 1 + (int)group->remote->more.serial;
}

void uni__group_vacate(uni__group *group, int rank)
{
    uni__worker_ended(&group->slots[rank].life);
    uni__links_empty_slot(&group->slots[rank]);
    if (group->remote && rank < group->remote->num_ranks)
        group->remote->ranks[rank] = (uni__remote_rank){ 0 };
}

int uni__group_launch_more(uni__group *group, const uni__launch *launch, int first_rank, int count,
                           const char *name, uni_error *err)
{
    uni__remote *remote = group->remote;
    struct uni__remote_more *more = &remote->more;
    if (more->waits || !remote->listener || !remote->placed || remote->ending_ns)
        return uni_error_set(err, UNI_ESTATE, "no other host can be started now");
    if (first_rank < 0 || count < 1 || first_rank + count > group->num_slots)
        return uni_error_set(err, UNI_EINVAL, "there are no ranks %d to %d", first_rank,
                             first_rank + count - 1);
    *more = (struct uni__remote_more){ .serial = more->serial + 1,
                                       .waits = true,
                                       .first_rank = first_rank,
                                       .count = count,
                                       .since_ns = uni__monotonic_ns() };
    snprintf(more->name, sizeof more->name, "%.200s", name);
    if (first_rank + count > remote->num_ranks)
        remote->num_ranks = first_rank + count;
    uni__spawn spawn = { .rank = number_of(group),
                         .exe = launch->exe,
                         .argv = launch->argv,
                         .environment = launch->environment,
                         .cwd = launch->cwd,
                         .log = launch->log };
    bool live = group->launcher.live;
    int status = uni__links_spawn_plain(group, &spawn, err);
    group->launcher.live = live; /* it is about the first one */
    if (status < 0) {
        more->waits = false;
        uni__remote_stop_listening(group);
    }
    return status;
}

static void give_up(uni__group *group, const char *sentence)
{
    group->remote->more.waits = false;
    uni__links_tell_agent(group, UNI__AGENT_KILL, number_of(group), SIGTERM);
    uni__remote_stop_listening(group);
    UNI__TELL(group, host_missing, sentence);
}

bool uni__remote_more_expects(const uni__remote *remote, const uni_value *ranks)
{
    const struct uni__remote_more *more = &remote->more;
    bool fits = more->waits && (int)uni_list_size(ranks) == more->count;
    for (int i = 0; fits && i < more->count; i++) {
        int rank = (int)uni_value_as_int(uni_list_get(ranks, (size_t)i), -1);
        fits = rank == more->first_rank + i && !remote->ranks[rank].host;
    }
    return fits;
}

void uni__remote_more_look(uni__group *group, uni__remote_host *host)
{
    uni__remote *remote = group->remote;
    struct uni__remote_more *more = &remote->more;
    if (!more->waits || !host->hello || !host->probed || host->first_rank != more->first_rank)
        return;
    for (int i = 0; i < remote->num_hosts; i++)
        if (remote->hosts[i] != host && remote->hosts[i]->node >= host->node)
            host->node = remote->hosts[i]->node + 1;
    more->waits = false;
    uni__remote_stop_listening(group);
    UNI__TELL(group, host_joined, host->first_rank);
}

bool uni__remote_more_lost(uni__group *group, uni__remote_host *host, const char *why)
{
    uni__remote *remote = group->remote;
    char sentence[512];
    if (!remote->more.waits || host->first_rank != remote->more.first_rank)
        return false;
    host->lost = true;
    for (int r = 0; r < remote->num_ranks; r++)
        if (remote->ranks[r].host == host)
            remote->ranks[r] = (uni__remote_rank){ 0 };
    snprintf(sentence, sizeof sentence, "host %.200s did not join: %.200s", remote->more.name, why);
    give_up(group, sentence);
    return true;
}

void uni__remote_more_exited(uni__group *group, int number, const uni__exit *how)
{
    const struct uni__remote_more *more = &group->remote->more;
    char sentence[512];
    if (!more->waits || number != number_of(group) || group->remote->ending_ns)
        return;
    snprintf(sentence, sizeof sentence, "host %.200s did not join: the launcher ended with %s %d",
             more->name, how->signal ? "signal" : "code",
             how->signal ? how->signal : how->exit_code);
    give_up(group, sentence);
}

void uni__remote_more_tick(uni__group *group, uint64_t now)
{
    const struct uni__remote_more *more = &group->remote->more;
    char sentence[512];
    if (!more->waits || group->remote->ending_ns || now - more->since_ns < JOIN_NS)
        return;
    snprintf(sentence, sizeof sentence, "host %.200s did not join within %d s", more->name,
             (int)(JOIN_NS / 1000000000u));
    give_up(group, sentence);
}
