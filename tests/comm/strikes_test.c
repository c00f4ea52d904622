/*
 * strikes_test.c - a rank is killed or stopped in the middle of any collective, again and again: every survivor has an error within a second that names the
 * rank, the collective's number and what each rank was doing, and nobody is left behind.
 *
 * Each round draws the number of ranks, the victim, the moment and a sequence of collectives from its number, so a round that fails can be run
 * again: strikes_test FIRST COUNT. Processes over shm.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../patience.h"
#include "base/clock.h"
#include "harness.h"

enum { ROUNDS = 0, STRUCK_US = 1 };
#define MAX_COUNT 60000u
#define KINDS 11

typedef struct strike {
    uint32_t number;
    int size, victim, sig;
    unsigned after_us;
} strike;

static uint32_t now_us(void)
{
    return (uint32_t)(uni__monotonic_ns() / 1000u);
}

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* All ranks draw the same collective. out has room for all ranks' parts. */
static int any_collective(rank *me, uint32_t *state, float *shared, float *in, float *out,
                          uni_error *err)
{
    static const size_t counts[] = { 1, 100, 4000, MAX_COUNT };
    uint32_t kind = draw(state) % KINDS;
    size_t count = counts[draw(state) % 4];
    int root = (int)(draw(state) % (uint32_t)me->size), next = (me->rank + 1) % me->size;
    uni_comm_request *request = NULL;
    switch (kind) {
    case 0:
        return uni_comm_all_reduce(me->comm, in, in, count, UNI_F32, UNI_COMM_SUM, err);
    case 1:
        return uni_comm_all_reduce(me->comm, shared, shared, count, UNI_F32, UNI_COMM_MAX, err);
    case 2:
        return uni_comm_reduce(me->comm, in, out, count, UNI_F32, UNI_COMM_SUM, root, err);
    case 3:
        return uni_comm_broadcast(me->comm, in, count, UNI_F32, root, err);
    case 4:
        return uni_comm_all_gather(me->comm, in, out, count, UNI_F32, err);
    case 5:
        return uni_comm_reduce_scatter(me->comm, out, in, count, UNI_F32, UNI_COMM_SUM, err);
    case 6:
        return uni_comm_all_to_all(me->comm, out, in, count / (size_t)me->size, UNI_F32, err);
    case 7:
        return uni_comm_barrier(me->comm, err);
    case 8:
        return uni_comm_all_reduce(me->comm, in, in, count, UNI_F32, UNI_COMM_MIN, err);
    case 9: /* round the ring */
        UNI_TRY(uni_comm_send(me->comm, in, 200, UNI_F32, next, err));
        return uni_comm_recv(me->comm, out, 200, UNI_F32, (me->rank + me->size - 1) % me->size,
                             err);
    default: /* two at once */
        UNI_TRY(uni_comm_all_reduce_start(&request, me->comm, in, in, count, UNI_F32, UNI_COMM_SUM,
                                          1, err));
        UNI_TRY(uni_comm_broadcast(me->comm, out, count, UNI_F32, root, err));
        return uni_comm_wait(request, err);
    }
}

static const char *judge(rank *me, const strike *s, int code, const uni_error *err)
{
    char name[32];
    me->result->seconds = (double)(now_us() - atomic_load(&me->shared[STRUCK_US])) * 1e-6;
    me->result->code = code;
    if (code != UNI_EWORKER || !strstr(err->message, " #") ||
        !strstr(err->message, s->sig == SIGKILL ? "has died" : "is stopped"))
        return say(me, "round %u, rank %d: %s %s", s->number, me->rank, uni_status_name(code),
                   err->message);
    snprintf(name, sizeof name, ": rank %d ", s->victim); /* the cause */
    if (!strstr(err->message, name))
        return say(me, "round %u: the cause is not%s: %s", s->number, name, err->message);
    const char *doing = strstr(err->message, ". ");
    for (int r = 0; r < me->size; r++) {
        snprintf(name, sizeof name, "rank %d ", r);
        if (!doing || !strstr(doing, name))
            return say(me, "round %u: not said what rank %d did: %s", s->number, r, err->message);
    }
    CHECK(me->result->seconds < 1.0 * test_patience());
    return NULL;
}

static const char *collect_for_ever(rank *me)
{
    strike *s = me->context;
    uint32_t state = s->number * 2654435761u + 1;
    float *in = calloc(MAX_COUNT, sizeof *in), *out = calloc(MAX_COUNT * MAX_RANKS, sizeof *out);
    uni_comm_buffer *buffer = NULL;
    uni_error bad = { 0 };
    int code = 0;
    OK(uni_comm_alloc(&buffer, me->comm, MAX_COUNT * sizeof(float), err));
    while (code == 0) {
        code = any_collective(me, &state, uni_comm_buffer_data(buffer), in, out, &bad);
        atomic_fetch_add(&me->shared[ROUNDS], 1);
    }
    free(in);
    free(out);
    return judge(me, s, code, &bad);
}

/* The survivors have to be done before the victim goes on, or dies. */
static void strike_one(const rank_result *results, _Atomic uint32_t *shared, void *context)
{
    const strike *s = context;
    uint32_t begun = now_us();
    while (atomic_load(&shared[ROUNDS]) < 20 && now_us() - begun < 10000000u)
        usleep(300);
    usleep(s->after_us);
    atomic_store(&shared[STRUCK_US], now_us());
    kill(results[s->victim].pid, s->sig);
    begun = now_us();
    for (int r = 0; r < s->size && s->sig == SIGSTOP; r++)
        while (r != s->victim && !atomic_load(&results[r].done) && now_us() - begun < 5000000u)
            usleep(300);
    kill(results[s->victim].pid, SIGKILL);
}

static uint32_t first_round, num_rounds = 100;

static void strike_often(int sig, double *slowest)
{
    *slowest = 0;
    for (uint32_t i = first_round; i < first_round + num_rounds; i++) {
        rank_result results[MAX_RANKS];
        uint32_t state = i * 40503u + (uint32_t)sig;
        strike s = { .number = i, .size = 2 + (int)(draw(&state) % 3), .sig = sig };
        s.victim = (int)(draw(&state) % (uint32_t)s.size);
        s.after_us = draw(&state) % 4000;
        const char *wrong = run_ranks(&(run_options){ .transport = "shm",
                                                      .size = s.size,
                                                      .context = &s,
                                                      .may_die = true,
                                                      .meanwhile = strike_one },
                                      collect_for_ever, results);
        if (wrong)
            fail_msg("%s of rank %d of %d after %u us: %s", sig == SIGKILL ? "kill" : "stop",
                     s.victim, s.size, s.after_us, wrong);
        for (int r = 0; r < s.size; r++) {
            if (r != s.victim)
                assert_int_equal(results[r].code, UNI_EWORKER);
            if (r != s.victim && results[r].seconds > *slowest)
                *slowest = results[r].seconds;
        }
    }
}

static void test_killed_anywhere(void **state)
{
    double slowest;
    strike_often(SIGKILL, &slowest);
    print_message("%u kills, the last survivor knew after %.3f s at most\n", num_rounds, slowest);
}

static void test_stopped_anywhere(void **state)
{
    double slowest;
    strike_often(SIGSTOP, &slowest);
    print_message("%u stops, the last survivor knew after %.3f s at most\n", num_rounds, slowest);
}

int main(int argc, char **argv)
{
    first_round = argc > 1 ? (uint32_t)atoi(argv[1]) : 0;
    num_rounds = argc > 2 ? (uint32_t)atoi(argv[2]) : num_rounds;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_anywhere),
        cmocka_unit_test(test_stopped_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
