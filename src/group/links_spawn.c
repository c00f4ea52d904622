/*
 * links_spawn.c - starting workers, sending to them and killing them; on other hosts it is handed
 * on to remote_send.c. Controller thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dict.h"
#include "group/agent.h"
#include "group/internal.h"
#include "group/remote.h"

uni_value *uni__links_spawn_order(const uni__spawn *spawn)
{
    return UNI__DICT({ "rank", uni_value_int(spawn->rank) },
                     { "mode", uni_value_string(spawn->runs_functions ? "f" : "p") },
                     { "exe", uni_value_string(spawn->exe) },
                     { "cwd", uni_value_string(spawn->cwd ? spawn->cwd : "") },
                     { "log", uni_value_string(spawn->log) },
                     { "address_space", uni_value_int((int64_t)spawn->address_space) },
                     { "argv", uni_value_copy(spawn->argv) },
                     { "env", uni_value_copy(spawn->environment) });
}

int uni__group_spawn(uni__group *group, const uni__spawn *spawn, uni_error *err)
{
    uni__worker_slot *worker = &group->slots[spawn->rank];
    int pair[2] = { -1, -1 }, pipe_ends[2] = { -1, -1 }, page_fd = -1, status;
    if (group->remote)
        return uni__remote_spawn(group, spawn, err);
    uni_value *order = uni__links_spawn_order(spawn);
    uni__links_empty_slot(worker);
    if (!order)
        return uni_error_set(err, UNI_ENOMEM, "no memory to start rank %d", spawn->rank);
    if (!group->agent_alive)
        UNI_TRY_GOTO(uni__links_start_agent(group, err), fail);
    UNI_TRY_GOTO(uni__page_new(&worker->page, &page_fd, err), fail);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
        pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        status =
            uni_error_set_errno(err, errno, "cannot make the connection to rank %d", spawn->rank);
        goto fail;
    }
    /* Only our end is non-blocking: a program that writes lines waits for room. */
    fcntl(pipe_ends[1], F_SETFL, fcntl(pipe_ends[1], F_GETFL) & ~O_NONBLOCK);
    const int fds[] = { pair[1], page_fd, group->event_fd, pipe_ends[1] };
    UNI_TRY_GOTO(uni__wire_send_value(&group->agent, UNI__AGENT_SPAWN, order, fds, 4,
                                      UNI__LINKS_SEND_MS, err),
                 fail);
    uni__wire_init(&worker->wire, pair[0]);
    worker->report_fd = pipe_ends[0];
    uni__worker_spawned(&worker->life, !spawn->runs_functions, uni__monotonic_ns());
    pair[0] = pipe_ends[0] = -1;
    status = uni__links_watch_worker(worker, err);
fail:
    uni_value_free(order);
    if (page_fd >= 0)
        close(page_fd);
    for (int i = 0; i < 2; i++) {
        if (pair[i] >= 0)
            close(pair[i]);
        if (pipe_ends[i] >= 0)
            close(pipe_ends[i]);
    }
    return status < 0 ? status : 0;
}

int uni__links_spawn_plain(uni__group *group, const uni__spawn *spawn, uni_error *err)
{
    uni_value *order = uni__links_spawn_order(spawn);
    if (!order)
        return uni_error_set(err, UNI_ENOMEM, "no memory to start %s", spawn->exe);
    int status = group->agent_alive ? 0 : uni__links_start_agent(group, err);
    if (status == 0)
        status = uni__wire_send_value(&group->agent, UNI__AGENT_SPAWN, order, NULL, 0,
                                      UNI__LINKS_SEND_MS, err);
    uni_value_free(order);
    group->launcher.live = status == 0;
    return status;
}

int uni__group_send(uni__group *group, int rank, int type, const void *payload, size_t size, int fd,
                    uni_error *err)
{
    uni__worker_slot *worker = &group->slots[rank];
    uni__worker after = worker->life;
    int input = type == UNI__TO_WORKER_RUN        ? UNI__WORKER_ORDER
                : type == UNI__TO_WORKER_SHUTDOWN ? UNI__WORKER_SHUTDOWN
                                                  : UNI__WORKER_MAIL;
    if (uni__worker_step(&after, input) != UNI__WORKER_TAKEN) {
        char sentence[128];
        uni__worker_say_refused(&worker->life, input, sentence, sizeof sentence);
        return uni_error_set(err, uni__worker_is_live(&after) ? UNI_ESTATE : UNI_EPEER,
                             "nothing is sent to rank %d: %s", rank, sentence);
    }
    /* A warm worker begins its next order like a new one. */
    if (input == UNI__WORKER_ORDER && worker->life.state == UNI__WORKER_GREETED)
        uni__page_refresh(worker->page);
    int status = group->remote ? uni__remote_send(group, rank, type, payload, size, fd, err)
                               : uni__wire_send(&worker->wire, type, payload, size, &fd, fd >= 0,
                                                UNI__LINKS_SEND_MS, err);
    if (status == 0)
        worker->life.state = after.state;
    return status;
}

void uni__group_kill(uni__group *group, int rank, int signal)
{
    if (group->remote)
        uni__remote_kill(group, rank, signal);
    else
        uni__links_tell_agent(group, UNI__AGENT_KILL, rank, signal);
}

void uni__group_kill_all(uni__group *group)
{
    if (group->remote)
        uni__remote_kill_all(group);
    else
        uni__links_kill_tree(group);
}
