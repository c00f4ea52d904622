/*
 * wait.c - waits for a peer without ever hanging: spin, sleep, and check on the peer.
 *
 * A sleeping rank publishes which peer it waits for (uni__rank_line.waits), and whether that peer
 * has started the collective in question. A cycle of ranks that each wait for the next to start
 * something can never end (an all_reduce here, a recv there). It is detected within 200 ms and
 * fails on all ranks.
 *
 * Two ranks on one core spin in vain: the peer cannot run while we wait for it. On a busy machine
 * the kernel causes this by itself (it often places a woken process beside the waker) and does not
 * undo it. Hence every rank publishes its core. A rank that finds its peer on its own core sleeps
 * at once. The higher of the two ranks also steps aside: it removes that core from its affinity
 * mask for a moment, which makes the kernel move it.
 *
 * The bits of `waits`:
 *
 *   63        set
 *   62        the awaited rank has not started it
 *   60 to 61  the lane (0: all ranks, 1: from the waiting rank to the other, 2: from the other)
 *   40 to 59  the awaited rank
 *   0 to 39   the low 40 bits of the number
 *
 * A stopped rank cannot clear its word, so a rank that follows a cycle checks whether the word
 * still holds.
 *
 * Called on the rank's thread.
 */
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/spin.h"
#include "comm/board.h"
#include "comm/futex.h"
#include "comm/kinds.h"

#define LOOK_NS 20000000u /* 20 ms */
/* What costs only a few loads is looked at more often: a sleeping rank of an elastic group learns
 * from it that another one has died. */
#define GLANCE_NS 4000000u
#define WARN_NS 10000000000ull
#define CIRCLE_LOOKS 6
#define MOVE_NS 1000000u /* at most this often */

static uint64_t target_of(const uni_comm_request *request)
{
    return request->seq << 24 | request->phase;
}

static bool peer_has_begun(const uni_comm_request *request)
{
    uni__progress *progress = uni__lane_progress(request->lane, request->next_member);
    return atomic_load_explicit(&progress->started, memory_order_relaxed) >= request->seq;
}

/* A spin longer than UNI__SPIN_NS was asked for (spin_us); from there on every iteration yields the
 * core. */
static bool spin(_Atomic uint64_t *word, uint64_t target, uint64_t spin_ns)
{
    uint64_t begun = 0, waited = 0;
    for (unsigned i = 1;; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) >> 1 >= target)
            return true;
        if (spin_ns == 0)
            return false;
        uni__relax();
        if (waited >= UNI__SPIN_NS)
            sched_yield();
        if (i % 64 == 0 || waited >= UNI__SPIN_NS) {
            uint64_t now = uni__monotonic_ns();
            begun = begun ? begun : now;
            waited = now - begun;
            if (waited >= spin_ns)
                return false;
        }
    }
}

/* Moves off this core, if the rank may run on another. */
void uni__board_step_aside(uni_comm *comm, int cpu)
{
    uint64_t now = uni__monotonic_ns();
    cpu_set_t all, others;
    if (now - comm->board->moved_ns < MOVE_NS || sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    comm->board->moved_ns = now;
    others = all;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        (void)sched_setaffinity(0, sizeof all, &all);
    atomic_store_explicit(&comm->board->header->ranks[comm->rank].cpu, sched_getcpu(),
                          memory_order_relaxed);
}

/* How long to spin for a peer: not at all when it needs our core. */
static uint64_t spin_for(uni_comm *comm, int rank)
{
    uint64_t spin_ns = comm->board->spin_ns;
    int cpu = spin_ns ? sched_getcpu() : -1;
    if (spin_ns == 0 ||
        atomic_load_explicit(&comm->board->header->ranks[rank].cpu, memory_order_relaxed) != cpu)
        return spin_ns;
    if (comm->rank < rank)
        return 0;
    uni__board_step_aside(comm, cpu);
    return sched_getcpu() != cpu ? spin_ns : 0;
}

static void say_wait(uni_comm_request *request)
{
    uni_comm *comm = request->comm;
    uint64_t rank = (uint64_t)uni__lane_rank(request->lane, request->next_member);
    uint64_t hard = peer_has_begun(request) ? 0 : 1;
    uint64_t lane = request->lane->first_rank < 0 ? 0 : request->lane->mine == 0 ? 1 : 2;
    atomic_store_explicit(&comm->board->header->ranks[comm->rank].waits,
                          1ull << 63 | hard << 62 | lane << 60 | rank << 40 |
                              (request->seq & 0xffffffffffull),
                          memory_order_relaxed);
}

/* The rank that `rank` still waits for to start something, or -1. */
static int waits_for(uni_comm *comm, int rank, uint64_t waits)
{
    int other = (int)(waits >> 40 & 0xfffff), lane = (int)(waits >> 60 & 3);
    if ((waits >> 62) != 3 || other >= comm->size || lane == 3)
        return -1;
    uni__progress *progress = lane == 0   ? uni__lane_progress(&comm->board->lane, other)
                              : lane == 1 ? uni__pair_progress(comm, rank, other, 1)
                                          : uni__pair_progress(comm, other, rank, 0);
    uint64_t started = atomic_load_explicit(&progress->started, memory_order_relaxed);
    return (started & 0xffffffffffull) < (waits & 0xffffffffffull) ? other : -1;
}

/* A cycle of ranks that each wait for the next to start something, unchanged for several looks. */
static bool in_circle(uni_comm *comm, uni__watch *seen)
{
    uni__rank_line *ranks = comm->board->header->ranks;
    uint64_t sum = 0;
    int rank = comm->rank;
    for (int steps = 0; steps < comm->size; steps++) {
        uint64_t waits = atomic_load_explicit(&ranks[rank].waits, memory_order_relaxed);
        sum += waits * (uint64_t)(rank + 1);
        rank = waits_for(comm, rank, waits);
        if (rank < 0)
            break;
        if (rank == comm->rank) {
            seen->circle_looks = sum == seen->circle ? seen->circle_looks + 1 : 0;
            seen->circle = sum;
            return seen->circle_looks >= CIRCLE_LOOKS;
        }
    }
    seen->circle_looks = 0;
    return false;
}

/* Checks what may be wrong with the awaited peers. */
static int look(uni_comm_request *request, uni__watch *seen, bool asleep, uni_error *err)
{
    uni_comm *comm = request->comm;
    UNI_TRY(uni__board_aborted(comm, err));
    char why[200];
    int rank = uni__lane_rank(request->lane, request->next_member);
    if (uni__peer_check(comm, rank, why, sizeof why) != 0)
        return uni__board_fail(request, UNI_EWORKER, err, "rank %d %s", uni__comm_name(comm, rank),
                               why);
    if (request->phase != 0)
        for (int m = 0; m < request->lane->members; m++)
            if (m != request->lane->mine)
                UNI_TRY(uni__board_compare(request, m, err));
    uint64_t now = uni__monotonic_ns(), waited = now - seen->begun;
    if (in_circle(comm, seen))
        return uni__board_fail(request, UNI_EMISMATCH, err,
                               "rank %d waits for rank %d, which waits for a call that rank %d "
                               "does not make: the ranks call in different orders",
                               uni__comm_name(comm, comm->rank), uni__comm_name(comm, rank),
                               uni__comm_name(comm, comm->rank));
    if (comm->options.timeout_ms > 0 && waited > (uint64_t)comm->options.timeout_ms * 1000000u)
        return uni__board_fail(request, UNI_ETIMEOUT, err,
                               "rank %d did not come within %d ms (timeout_ms)",
                               uni__comm_name(comm, rank), comm->options.timeout_ms);
    if (asleep && now - seen->warned > WARN_NS) {
        seen->warned = now;
        uni__warn("%s #%llu: rank %d waits for rank %d since %.0f s",
                  uni__kind_name(request->call.kind), (unsigned long long)request->number,
                  uni__comm_name(comm, comm->rank), uni__comm_name(comm, rank),
                  (double)waited * 1e-9);
    }
    return 0;
}

/* What the controller or another rank has said. */
static int glance(uni_comm_request *request, uni_error *err)
{
    uni_comm *comm = request->comm;
    char why[200];
    int rank = uni__lane_rank(request->lane, request->next_member);
    UNI_TRY(uni__board_aborted(comm, err));
    if (!uni__peer_is_blamed(comm, rank, why, sizeof why))
        return 0;
    return uni__board_fail(request, UNI_EWORKER, err, "rank %d %s", uni__comm_name(comm, rank),
                           why);
}

/* The watch restarts when the request waits for something else. */
static uni__watch *watch_of(uni_comm_request *request, uint64_t now)
{
    uni__watch *seen = &request->watch;
    if (seen->target != target_of(request))
        *seen = (uni__watch){
            .target = target_of(request), .begun = now, .warned = now, .looked = now
        };
    return seen;
}

int uni__board_glance(uni_comm_request *request, uni_error *err)
{
    if (request->phase == 0 || request->next_member >= request->lane->members)
        return 0;
    uint64_t now = uni__monotonic_ns();
    uni__watch *seen = watch_of(request, now);
    if (now - seen->looked < LOOK_NS)
        return 0;
    seen->looked = now;
    return look(request, seen, false, err);
}

/* Sleeps until the peer moves or limit_ns have passed. */
static void sleep_on(_Atomic uint64_t *word, uint64_t target, uint64_t limit_ns)
{
    uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
    while (seen >> 1 < target) {
        if ((seen & 1) || atomic_compare_exchange_weak(word, &seen, seen | 1)) {
            uni__futex_wait_ns(uni__low_half(word), (uint32_t)(seen | 1), (int64_t)limit_ns);
            return;
        }
    }
}

/* There is no room for the request yet: a peer has not finished an old one. */
static int nap(uni_comm_request *request, uni_error *err)
{
    struct timespec moment = { .tv_nsec = 50000 };
    nanosleep(&moment, NULL);
    uni_comm *comm = request->comm;
    UNI_TRY(uni__board_aborted(comm, err));
    char why[200];
    int rank = uni__lane_rank(request->lane, request->next_member);
    if (rank != comm->rank && uni__peer_check(comm, rank, why, sizeof why) != 0)
        return uni__board_fail(request, UNI_EWORKER, err, "rank %d %s", uni__comm_name(comm, rank),
                               why);
    return 0;
}

int uni__board_pause(uni_comm_request *request, uint64_t limit_ns, uni_error *err)
{
    uni_comm *comm = request->comm;
    if (request->phase == 0)
        return nap(request, err);
    if (request->next_member >= request->lane->members)
        return 0;
    _Atomic uint64_t *word =
        &uni__lane_slot(request->lane, request->next_member, request->seq)->word;
    uint64_t target = target_of(request);
    if (spin(word, target, 0) ||
        spin(word, target, spin_for(comm, uni__lane_rank(request->lane, request->next_member))))
        return 0;
    uint64_t entered = uni__monotonic_ns(), now = entered;
    uni__watch *seen = watch_of(request, now);
    int status = 0;
    while (status == 0 && atomic_load_explicit(word, memory_order_acquire) >> 1 < target) {
        say_wait(request);
        sleep_on(word, target, limit_ns && limit_ns < GLANCE_NS ? limit_ns : GLANCE_NS);
        if (atomic_load_explicit(word, memory_order_acquire) >> 1 >= target)
            break;
        now = uni__monotonic_ns();
        if (now - seen->looked >= LOOK_NS) {
            seen->looked = now;
            status = look(request, seen, true, err);
        } else {
            status = glance(request, err);
        }
        if (limit_ns && now - entered >= limit_ns)
            break;
    }
    atomic_store_explicit(&comm->board->header->ranks[comm->rank].waits, 0, memory_order_relaxed);
    return status;
}
