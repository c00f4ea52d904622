/*
 * remote_launcher.c - what becomes of mpirun or srun, and of its daemons on the hosts (orted,
 * hydra_pmi_proxy, slurmstepd). Controller thread.
 *
 * mpirun answers the death of one of its daemons, and a daemon the death of mpirun, with SIGTERM to
 * the processes it started. Under our own mpirun that is never a wish to stop, so a host's SIGTERM
 * only opens a short wait for the news behind it: the launcher's own end, or a host whose daemon is
 * gone. Under Slurm, and inside a launcher that unisono did not start, SIGTERM is how a job is
 * asked to stop. Before all hosts have connected the loss of one is kept back in the same way: a
 * launcher that cannot start a process on one host ends those on the others.
 */
#include <stdio.h>

#include "base/clock.h"
#include "group/launchers.h"
#include "group/remote_internal.h"

#define LOOK_NS 200000000ull /* a daemon without its mpirun kills everything after a second */
#define NEWS_NS 1000000000ull /* how long the launcher's own end is waited for */

static bool is_watched(const uni__remote *remote)
{
    return remote->launched && !remote->ending_ns;
}

/* The launcher is in trouble, or a host went away before all were there: said when nothing better
 * comes. */
static void suspect(uni__remote *remote, const char *sentence)
{
    if (remote->trouble_ns)
        return;
    remote->trouble_ns = uni__monotonic_ns();
    snprintf(remote->trouble, sizeof remote->trouble, "%s", sentence);
}

static void fail(uni__group *group, const char *sentence)
{
    if (group->remote->placed)
        UNI__TELL(group, launcher_lost, sentence);
    else
        uni__remote_fail_launch(group, sentence);
}

/* " rank 1 (b), rank 2 (c)": ranks for which no agent has connected. */
static void list_missing(const uni__remote *remote, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int r = 0; r < remote->num_ranks && used + 100 < size; r++)
        if (!remote->ranks[r].host)
            used += (size_t)snprintf(
                out + used, size - used, "%s rank %d (%.60s)", used ? "," : "", r,
                uni_value_as_string(uni_list_get(remote->names, (size_t)r), "host ?"));
}

void uni__remote_launcher_exited(uni__group *group, const uni__exit *how)
{
    uni__remote *remote = group->remote;
    char sentence[900], missing[500] = "", end[64];
    if (!remote)
        return;
    if (remote->is_openmpi)
        uni__launcher_remove_session_of(how->pid);
    if (how->signal)
        snprintf(end, sizeof end, "was killed by signal %d", how->signal);
    else
        snprintf(end, sizeof end, "ended with code %d", how->exit_code);
    list_missing(remote, missing, sizeof missing);
    if (remote->placed)
        snprintf(sentence, sizeof sentence,
                 "%.60s %s while the run was under way, and the processes that it had started on "
                 "the hosts end with it",
                 remote->launcher_name, end);
    else
        snprintf(sentence, sizeof sentence, "%.60s %s before every host had connected%s%s",
                 remote->launcher_name, end, missing[0] ? "; nothing was heard of" : "", missing);
    /* Inside a foreign launcher this is the agent of our own host: its link says the same. */
    if (is_watched(remote) && !(remote->placed && (remote->foreign || remote->is_outlived)))
        fail(group, sentence);
    uni__remote_advance_ending(group);
}

void uni__remote_signalled(uni__group *group, uni__remote_host *host, int number)
{
    uni__remote *remote = group->remote;
    char sentence[512];
    if (!remote->placed || !is_watched(remote))
        return;
    if (uni__remote_explains_signal(group))
        return;
    if (remote->term_is_stop) {
        UNI__TELL(group, host_signalled, number);
        return;
    }
    host->signalled = true;
    snprintf(sentence, sizeof sentence,
             "%.60s told the processes on host %.100s to end (signal %d), although it was not "
             "asked to",
             remote->launcher_name, host->name, number);
    suspect(remote, sentence);
}

static void lose_daemon(uni__group *group, const char *daemon, const char *host)
{
    uni__remote *remote = group->remote;
    char sentence[512];
    snprintf(sentence, sizeof sentence,
             "%.60s, which %.60s had started on host %.100s, has ended or was killed, and the "
             "launcher ends all processes of the run because of it",
             daemon, remote->foreign ? "the launcher" : remote->launcher_name, host);
    fail(group, sentence);
}

/* Inside a foreign launcher the agent of our own host is not the launcher's child: we are. */
void uni__remote_orphaned(uni__group *group, uni__remote_host *host, const char *daemon)
{
    uni__remote *remote = group->remote;
    if (is_watched(remote) && !(remote->foreign && host->first_rank == 0))
        lose_daemon(group, daemon, host->name);
}

/* The daemons of the other hosts send SIGTERM a second later: by then the cause is known. */
static void check_own_daemon(uni__group *group)
{
    uni__remote *remote = group->remote;
    if (!remote->foreign || !remote->placed || !uni__launcher_daemon_is_gone(&remote->daemon) ||
        uni__remote_explains_signal(group))
        return;
    remote->daemon.pid = 0; /* said once */
    lose_daemon(group, remote->daemon.name, remote->ranks[0].host->name);
}

/* The daemons pass on what mpirun asks for, but end their processes in the same way when it dies:
 * by signals, after a second. So their connections are looked at before. */
bool uni__remote_explains_signal(uni__group *group)
{
    uni__remote *remote = group->remote;
    char sentence[512];
    if (!remote || !remote->foreign || !remote->placed || !is_watched(remote) ||
        !uni__launcher_daemon_is_cut(&remote->daemon))
        return false;
    snprintf(sentence, sizeof sentence,
             "the launcher (mpirun) has ended or was killed: %.60s on host %.100s has lost its "
             "connection to it, and ends the processes of the run",
             remote->daemon.name, remote->ranks[0].host->name);
    remote->daemon.pid = 0; /* said once */
    fail(group, sentence);
    return true;
}

bool uni__remote_excuses(uni__group *group, const uni__remote_host *host, const char *sentence)
{
    uni__remote *remote = group->remote;
    if (remote->placed && !host->signalled)
        return false;
    if (!remote->placed)
        suspect(remote, sentence);
    return true;
}

static void check_hello(uni__group *group, uint64_t now)
{
    uni__remote *remote = group->remote;
    char sentence[900], missing[500];
    if (remote->placed || (double)(now - remote->launched_ns) * 1e-9 <= remote->hello_timeout)
        return;
    list_missing(remote, missing, sizeof missing);
    snprintf(sentence, sizeof sentence,
             "no agent connected for%s within %g s: can it reach this machine at the address shown "
             "(--interface)?",
             missing, remote->hello_timeout);
    uni__remote_fail_launch(group, sentence);
}

void uni__remote_watch_launcher(uni__group *group, uint64_t now)
{
    uni__remote *remote = group->remote;
    if (is_watched(remote) && remote->trouble_ns && now - remote->trouble_ns > NEWS_NS) {
        remote->trouble_ns = 0;
        fail(group, remote->trouble);
    }
    if (is_watched(remote))
        check_own_daemon(group);
    if (remote->foreign && now - remote->daemon_looked_ns > LOOK_NS) {
        remote->daemon_looked_ns = now;
        (void)uni__remote_explains_signal(group);
    }
    if (is_watched(remote))
        check_hello(group, now);
}
