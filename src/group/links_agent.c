/*
 * links_agent.c - the agent of this machine: its start, what it tells of processes, and its end,
 * also when it was stopped or killed. Controller thread.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/clock.h"
#include "base/dict.h"
#include "base/log.h"
#include "base/process.h"
#include "group/agent.h"
#include "group/internal.h"
#include "group/launch.h"
#include "group/remote.h"

#define KILL_ALL_MS 4000 /* the agent gives up by itself after 2 s */
#define KEEPER_MS 3000
#define AGENT_STOPPED_NS 4000000000ull
#define AGENT_LATE_NS 30000000000ull /* an agent that runs may owe an answer for so long */
#define AGENT_AGAIN_MS 1000

static void worker_exited(uni__worker_slot *worker, const uni_value *message)
{
    uni__group *group = worker->group;
    uni__exit how = {
        .pid = (int)uni_dict_get_int(message, "pid", 0),
        .exit_code = (int)uni_dict_get_int(message, "exit_code", -1),
        .signal = (int)uni_dict_get_int(message, "signal", 0),
        .core = uni_dict_get_int(message, "core", 0) != 0,
        .oom = uni__oom_from(uni_dict_get_int(message, "oom", 0)),
    };
    if (how.pid != worker->life.pid)
        return; /* of an earlier life of this rank */
    uni__links_read_rest(worker);
    (void)uni__worker_step(&worker->life, UNI__WORKER_EXIT);
    UNI__TELL(group, exited, worker->rank, &how);
    UNI__TELL(group, drained);
}

void uni__links_tell_stopped(uni__worker_slot *worker, bool stopped)
{
    worker->life.stopped_ns = stopped ? uni__monotonic_ns() : 0;
    UNI__TELL(worker->group, stopped, worker->rank, stopped);
}

/* A process that the kernel has not let go of yet counts as ended. */
static void tell_all_dead(uni__group *group, int left)
{
    for (int i = 0; i < group->num_slots; i++)
        uni__worker_ended(&group->slots[i].life);
    UNI__TELL(group, all_dead, left);
}

/* What the local agent says of mpirun or srun. */
static void launcher_frame(uni__group *group, int type, const uni_value *message)
{
    uni__exit how = { .pid = group->launcher.pid,
                      .exit_code = (int)uni_dict_get_int(message, "exit_code", 127),
                      .signal = (int)uni_dict_get_int(message, "signal", 0) };
    if (type == UNI__AGENT_SPAWNED)
        group->launcher.pid = (int)uni_dict_get_int(message, "pid", 0);
    if (type != UNI__AGENT_EXITED && type != UNI__AGENT_SPAWN_FAILED)
        return;
    group->launcher.live = false;
    group->launcher.pid = 0;
    uni__remote_launcher_exited(group, &how);
}

static void agent_frame(uni__group *group, const uni__wire_frame *frame)
{
    uni_value *message = NULL;
    if (uni__msgpack_read(&message, frame->payload, frame->size, NULL) < 0)
        return;
    int rank = (int)uni_dict_get_int(message, "rank", -1);
    uni__worker_slot *worker = rank >= 0 && rank < group->num_slots ? &group->slots[rank] : NULL;
    char sentence[512];
    if (rank == group->num_slots) {
        launcher_frame(group, frame->type, message);
        uni_value_free(message);
        return;
    }
    if (rank > group->num_slots && group->remote) {
        uni__exit how = { .exit_code = (int)uni_dict_get_int(message, "exit_code", 127),
                          .signal = (int)uni_dict_get_int(message, "signal", 0) };
        if (frame->type == UNI__AGENT_EXITED || frame->type == UNI__AGENT_SPAWN_FAILED)
            uni__remote_more_exited(group, rank, &how);
        uni_value_free(message);
        return;
    }
    switch (frame->type) {
    case UNI__AGENT_HELLO:
        group->agent_pid = (int)uni_dict_get_int(message, "pid", 0);
        group->keeper_pid = (int)uni_dict_get_int(message, "keeper", 0);
        break;
    case UNI__AGENT_SPAWNED:
        if (worker) {
            worker->life.pid = (int)uni_dict_get_int(message, "pid", 0);
            UNI__TELL(group, spawned, rank, worker->life.pid);
        }
        break;
    case UNI__AGENT_SPAWN_FAILED:
        if (worker) {
            snprintf(sentence, sizeof sentence, "%s: %s",
                     uni_dict_get_string(message, "what", "cannot start it"),
                     strerror((int)uni_dict_get_int(message, "errno", 0)));
            uni__worker_ended(&worker->life);
            UNI__TELL(group, spawn_failed, rank, sentence);
        }
        break;
    case UNI__AGENT_EXITED:
        if (worker && uni__worker_is_live(&worker->life))
            worker_exited(worker, message);
        break;
    case UNI__AGENT_STOPPED:
        if (worker && uni__worker_is_live(&worker->life))
            uni__links_tell_stopped(worker, uni_dict_get_int(message, "stopped", 0) != 0);
        break;
    case UNI__AGENT_ALL_DEAD:
        uv_timer_stop(&group->deaf);
        tell_all_dead(group, (int)uni_dict_get_int(message, "left", 0));
        break;
    default:
        break;
    }
    uni_value_free(message);
}

void uni__links_take_agent_frames(uni__group *group)
{
    uni__wire_frame frame;
    int found = 0;
    while (group->agent.fd >= 0 && (found = uni__wire_next(&group->agent, &frame, NULL)) > 0) {
        agent_frame(group, &frame);
        uni__wire_frame_done(&frame);
    }
    if (found < 0)
        uni__links_hang_up(group);
}

static void read_agent(uni__group *group)
{
    if (group->agent.fd < 0)
        return;
    int filled = uni__wire_fill(&group->agent, NULL);
    uni__links_take_agent_frames(group);
    if (filled < 0)
        uni__links_hang_up(group);
}

static void on_agent(uv_poll_t *handle, int status, int events)
{
    read_agent(handle->data);
}

/* The keeper is gone: nothing of the tree is left. */
static void on_alive_end(uv_poll_t *handle, int status, int events)
{
    uni__group *group = handle->data;
    uni__links_poll_end(&group->alive_poll);
    close(group->alive_fd);
    group->alive_fd = -1;
    uv_timer_stop(&group->deaf);
    if (group->agent.fd >= 0) {
        /* Read what it still said; its end of file follows, or it lost its keeper and goes on
         * without: then let it go too. */
        read_agent(group);
        if (group->agent.fd >= 0) {
            uni__links_hang_up(group);
        }
    }
    group->agent_alive = false;
    group->launcher.live = false;
    if (group->closing) {
        uv_stop(&group->loop);
        return;
    }
    if (group->remote)
        uni__remote_drop_hosts(group); /* they end their workers when the link is gone */
    for (int i = 0; i < group->num_slots; i++) {
        uni__links_read_rest(&group->slots[i]);
        uni__worker_ended(&group->slots[i].life);
    }
    UNI__TELL(group, agent_lost);
}

static void kill_agent(uni__group *group)
{
    if (group->alive_fd < 0 || group->agent_pid <= 0)
        return;
    uni__warn("unisono-agent (pid %d) does not answer, was it stopped? It is killed, and its "
              "workers with it",
              group->agent_pid);
    /* Its number cannot be another process's yet: the keeper, which waits for it, is there. */
    kill(group->agent_pid, SIGKILL);
    if (group->keeper_pid > 0)
        kill(group->keeper_pid, SIGCONT);
}

/* On a crowded machine the agent is late and works: whether it runs decides, not the time. */
static void on_deaf(uv_timer_t *handle)
{
    uni__group *group = handle->data;
    uni__process agent;
    uint64_t switches = group->agent_pid > 0 ? uni__process_switches(group->agent_pid) : 0;
    bool runs = group->agent_pid > 0 && uni__process_look(group->agent_pid, &agent) &&
                (agent.state == 'R' || (agent.state != 'T' && switches != group->agent_switches));
    group->agent_switches = switches;
    if (runs && uni__monotonic_ns() - group->agent_owes_ns < AGENT_LATE_NS)
        uv_timer_start(handle, on_deaf, AGENT_AGAIN_MS, 0);
    else
        kill_agent(group);
}

void uni__links_watch_agent(uni__group *group, uint64_t now)
{
    if (!group->agent_alive || group->agent_pid <= 0 || now - group->agent_looked_ns < 1000000000u)
        return;
    group->agent_looked_ns = now;
    uni__process agent;
    if (!uni__process_look(group->agent_pid, &agent) || agent.state != 'T')
        group->agent_stopped_ns = 0;
    else if (!group->agent_stopped_ns)
        group->agent_stopped_ns = now;
    else if (now - group->agent_stopped_ns > AGENT_STOPPED_NS)
        kill_agent(group); /* no message would tell of a worker's end */
}

void uni__links_expect_end(uni__group *group, int milliseconds)
{
    uv_update_time(&group->loop);
    group->agent_owes_ns = uni__monotonic_ns();
    group->agent_switches = group->agent_pid > 0 ? uni__process_switches(group->agent_pid) : 0;
    uv_timer_start(&group->deaf, on_deaf, (uint64_t)milliseconds, 0);
}

/* The agent is gone, its keeper still ends what is left of the tree: the next one starts after
 * that. */
static void wait_for_keeper(uni__group *group)
{
    struct pollfd end = { .fd = group->alive_fd, .events = POLLIN };
    if (group->alive_fd < 0)
        return;
    if (poll(&end, 1, KEEPER_MS) == 0)
        uni__warn("what is left of the last worker group takes long to end");
    uni__links_poll_end(&group->alive_poll);
    close(group->alive_fd);
    group->alive_fd = -1;
    uv_timer_stop(&group->deaf);
}

int uni__links_start_agent(uni__group *group, uni_error *err)
{
    int channel;
    wait_for_keeper(group);
    group->agent_pid = group->keeper_pid = 0;
    UNI_TRY(uni__launch_agent(group->template_fd, &channel, &group->alive_fd, err));
    uni__wire_init(&group->agent, channel);
    group->agent.fills_while_sending = true;
    group->agent_alive = true;
    UNI_TRY(uni__links_poll_begin(&group->agent_poll, group, channel, on_agent, group, err));
    return uni__links_poll_begin(&group->alive_poll, group, group->alive_fd, on_alive_end, group,
                                 err);
}

void uni__links_tell_agent(uni__group *group, int type, int rank, int signal)
{
    uni_value *order =
        UNI__DICT({ "rank", uni_value_int(rank) }, { "signal", uni_value_int(signal) });
    if (group->agent_alive && order &&
        uni__wire_send_value(&group->agent, type, order, NULL, 0, UNI__LINKS_SEND_MS, NULL) < 0)
        uni__warn("the agent does not answer; its end will be noticed");
    uni_value_free(order);
}

static void say_all_dead(void *argument)
{
    tell_all_dead(argument, 0);
}

void uni__links_kill_tree(uni__group *group)
{
    if (group->agent_alive) {
        uni__links_tell_agent(group, UNI__AGENT_KILL_ALL, -1, SIGKILL);
        uni__links_expect_end(group, KILL_ALL_MS);
    } else if (group->alive_fd < 0) {
        uni__group_post(group, say_all_dead, group);
    } /* otherwise the keeper is at it: agent_lost follows */
}

void uni__links_hang_up(uni__group *group)
{
    if (group->agent.fd < 0)
        return;
    uni__links_poll_end(&group->agent_poll);
    uni__wire_close(&group->agent);
    group->agent_alive = false;
    if (!group->closing)
        uni__links_expect_end(group, KILL_ALL_MS);
}
