/*
 * harness.h - runs one function as n ranks: as threads, or as forked processes with shared memory.
 *
 * A rank's function returns NULL when all is well, or a sentence (a string that lives on, or from say()).
 * CHECK and OK return from it with where and why. What a rank says reaches the test through shared memory,
 * also from a process. Every run has a time limit, after which the ranks are killed and named.
 */
#ifndef UNISONO_TESTS_COMM_HARNESS_H
#define UNISONO_TESTS_COMM_HARNESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/comm.h>

#define MAX_RANKS 16

typedef struct rank_result {
    int pid; /* processes only */
    _Atomic int done; /* 1 ended by itself */
    char text[1200]; /* empty: well */
    double seconds; /* what the function measured */
    int code; /* what it wants to tell */
    uint64_t value;
} rank_result;

typedef struct rank {
    int rank, size;
    uni_comm *comm;
    rank_result *result;
    _Atomic uint32_t *shared; /* 64 words for all ranks of the run, zero at first */
    void *context;
} rank;

typedef const char *(*rank_function)(rank *me);

typedef struct run_options {
    const char *transport; /* "thread", "shm", "ucx", "hosts", "hosts-apart", "hosts-uneven" */
    int size;
    uni_comm_options comm;
    void *context;
    int seconds; /* limit; 0: 20 */
    bool may_die; /* a rank that is killed is not an error of the run */
    void (*meanwhile)(const rank_result *results, _Atomic uint32_t *shared, void *context);
} run_options;

/* results has options->size places. Returns NULL, or what was wrong with the first rank that complained. */
const char *run_ranks(const run_options *options, rank_function function, rank_result *results);

/* For rank functions. */
const char *say(rank *me, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return say(me, "rank %d of %d, line %d: %s", me->rank, me->size, __LINE__,             \
                       #condition);                                                                \
    } while (0)
#define OK(expression)                                                                             \
    do {                                                                                           \
        uni_error error_ = { 0 };                                                                  \
        uni_error *err = &error_;                                                                  \
        int code_ = (expression);                                                                  \
        if (code_ < 0)                                                                             \
            return say(me, "rank %d of %d, line %d: %s: %s %s", me->rank, me->size, __LINE__,      \
                       #expression, uni_status_name(code_), err->message);                         \
    } while (0)

#endif
