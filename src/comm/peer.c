/*
 * peer.c - is a peer's process alive? A waiting rank checks every 20 ms, and asks the rendezvous
 * every 4 ms.
 *
 * The rendezvous is asked first if it can tell (the session learns of deaths from the kernel). Then
 * the kernel: on one host /proc/PID/stat shows dead, zombie and stopped processes. A process that
 * reuses the pid has a different start time. If the peer's /proc cannot be read from the beginning
 * (another pid namespace), only the rendezvous counts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "comm/board.h"

#define FROZEN_MS 400

static int check_process(uni_comm *comm, int rank, char *why, size_t size)
{
    uni__board *board = comm->board;
    uni__rank_line *line = &board->header->ranks[rank];
    int pid = (int)atomic_load(&line->pid);
    uint64_t start = atomic_load(&line->start_time);
    uni__process process;
    if (pid == 0 || pid == getpid() || start == 0)
        return 0;
    bool found = uni__process_look(pid, &process);
    char state = process.state;
    if (!found || process.start_time != start || state == 'Z' || state == 'X') {
        snprintf(why, size, "(pid %d) has died", pid);
        return 1;
    }
    uint64_t now = uni__monotonic_ns();
    int limit = comm->options.frozen_ms ? comm->options.frozen_ms : FROZEN_MS;
    if ((state != 'T' && state != 't') || limit < 0) {
        board->frozen_since[rank] = 0;
        return 0;
    }
    if (board->frozen_since[rank] == 0)
        board->frozen_since[rank] = now;
    uint64_t stopped_ms = (now - board->frozen_since[rank]) / 1000000u;
    if (stopped_ms < (uint64_t)limit)
        return 0;
    snprintf(why, size, "(pid %d) is stopped (SIGSTOP or a debugger) for %llu ms", pid,
             (unsigned long long)stopped_ms);
    return 1;
}

bool uni__peer_is_blamed(const uni_comm *comm, int rank, char *why, size_t size)
{
    const uni__rendezvous *peers = &comm->peers;
    return peers->vtable && peers->vtable->alive &&
           !peers->vtable->alive(peers->context, rank, why, size);
}

int uni__peer_check(uni_comm *comm, int rank, char *why, size_t size)
{
    if (uni__peer_is_blamed(comm, rank, why, size))
        return 1;
    if (atomic_load(&comm->board->header->ranks[rank].state) == UNI__RANK_CLOSED) {
        snprintf(why, size, "has closed its communicator");
        return 1;
    }
    return check_process(comm, rank, why, size);
}
