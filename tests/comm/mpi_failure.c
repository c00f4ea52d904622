/*
 * mpi_failure.c - one rank of a failing group under mpirun: mpi_failure WAY. Each rank prints "fine" when it was
 * told the right thing in time, else what it was told. It leaves by _exit, as one must after an error.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rendezvous.h"

static _Atomic uint32_t abort_word;
static const char *way;

/* dead: the others wait for it; asked: they only ask again and again for a message of its. */
static bool is_death(void)
{
    return strcmp(way, "dead") == 0 || strcmp(way, "asked") == 0;
}

static void reason(void *context, char *why, size_t size)
{
    snprintf(why, size, "rank 1 was killed by signal 9");
}

static bool alive(void *context, int rank, char *why, size_t size)
{
    bool dead = rank == 1 && is_death() && atomic_load(&abort_word) == 2;
    if (dead)
        snprintf(why, size, "is silent since 1.0 s");
    return !dead;
}

static void *later(void *argument)
{
    usleep(300000);
    atomic_store(&abort_word, is_death() ? 2 : 1);
    return NULL;
}

static int ask(uni_comm *comm, uni_error *err)
{
    float data[1000];
    bool done = false;
    uni_comm_request *request = NULL;
    int code = uni_comm_recv_start(&request, comm, data, 1000, UNI_F32, 1, err);
    while (code == 0 && !done) {
        code = uni_comm_test(&done, request, err);
        usleep(100);
    }
    return code;
}

/* The ranks call almost the same: another count, type or operation. Without a check MPI takes what comes, as long as it is not too long. */
static int differ(uni_comm *comm, bool odd, uni_error *err)
{
    enum { MANY = 200000 };
    static float in[3 * MANY], out[3 * MANY];
    uni_comm_request *request = NULL;
    size_t few = odd ? 1000 : 2000;
    if (strcmp(way, "count") == 0)
        return uni_comm_all_reduce(comm, in, in, few, UNI_F32, UNI_COMM_SUM, err);
    if (strcmp(way, "count-many") == 0)
        return uni_comm_all_reduce(comm, in, in, odd ? MANY / 2 : MANY, UNI_F32, UNI_COMM_SUM, err);
    if (strcmp(way, "type") == 0)
        return uni_comm_all_reduce(comm, in, in, 1000, odd ? UNI_I32 : UNI_F32, UNI_COMM_SUM, err);
    if (strcmp(way, "op") == 0)
        return uni_comm_all_reduce(comm, in, in, 1000, UNI_F32, odd ? UNI_COMM_MAX : UNI_COMM_SUM,
                                   err);
    if (strcmp(way, "op-reduce") == 0)
        return uni_comm_reduce(comm, in, out, 1000, UNI_F32, odd ? UNI_COMM_MIN : UNI_COMM_SUM, 0,
                               err);
    if (strcmp(way, "mean") == 0)
        return uni_comm_all_reduce(comm, in, in, 1000, UNI_F32, odd ? UNI_COMM_MEAN : UNI_COMM_SUM,
                                   err);
    if (strcmp(way, "broadcast") == 0)
        return uni_comm_broadcast(comm, in, few, UNI_F32, 1, err);
    if (strcmp(way, "gather") == 0)
        return uni_comm_all_gather(comm, in, out, 1000, odd ? UNI_I32 : UNI_F32, err);
    if (strcmp(way, "scatter") == 0)
        return uni_comm_reduce_scatter(comm, in, out, few, UNI_F32, UNI_COMM_SUM, err);
    if (strcmp(way, "started") == 0) {
        /* The second of two that are under way at once. */
        UNI_TRY(uni_comm_all_reduce_start(&request, comm, out, out, 1000, UNI_F32, UNI_COMM_SUM, 1,
                                          err));
        int code = uni_comm_all_reduce(comm, in, in, few, UNI_F32, UNI_COMM_SUM, err);
        return code < 0 ? code : uni_comm_wait(request, err);
    }
    /* message-*: rank 1 receives, the others wait for it. */
    size_t sent = strcmp(way, "message-long") == 0    ? 2000
                  : strcmp(way, "message-short") == 0 ? 500
                                                      : 1000;
    uni_dtype type = strcmp(way, "message-type") == 0 ? UNI_I32 : UNI_F32;
    if (odd)
        return uni_comm_recv(comm, in, 1000, UNI_F32, 0, err);
    if (uni_comm_info_of(comm)->rank == 0)
        UNI_TRY(uni_comm_send(comm, in, sent, type, 1, err));
    return uni_comm_barrier(comm, err);
}

/* What this rank does wrong, or what the others do meanwhile. */
static int act(uni_comm *comm, int rank, uni_error *err)
{
    float data[4000] = { 0 };
    bool odd = rank == 1;
    if (strcmp(way, "kind") == 0)
        return odd ? uni_comm_barrier(comm, err)
                   : uni_comm_all_reduce(comm, data, data, 1000, UNI_F32, UNI_COMM_SUM, err);
    if (strcmp(way, "root") == 0)
        return uni_comm_broadcast(comm, data, 4000, UNI_F32, odd ? 1 : 0, err);
    if (!strstr("leave abort dead asked", way))
        return differ(comm, odd, err);
    if (strcmp(way, "leave") == 0 && odd) {
        usleep(100000);
        uni_comm_abort(comm, "the disk of rank 1 is full");
    } else if (odd) {
        for (;;) /* killed, for what the others know */
            pause();
    }
    if (strcmp(way, "asked") == 0)
        return ask(comm, err);
    return uni_comm_all_reduce(comm, data, data, 1000, UNI_F32, UNI_COMM_SUM, err);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *way;
        int code;
        const char *words;
    } wants[] = {
        { "kind", UNI_EMISMATCH, "do not call the same" },
        { "root", UNI_EMISMATCH, "do not call the same" },
        { "count", UNI_EMISMATCH, "rank 1 calls all_reduce(sum of 1000 float32)" },
        { "count-many", UNI_EMISMATCH, "rank 1 calls all_reduce(sum of 100000 float32)" },
        { "type", UNI_EMISMATCH, "rank 1 calls all_reduce(sum of 1000 int32)" },
        { "op", UNI_EMISMATCH, "rank 1 calls all_reduce(max of" },
        { "op-reduce", UNI_EMISMATCH, "rank 1 calls reduce(min of" },
        { "mean", UNI_EMISMATCH, "rank 1 calls all_reduce(mean of" },
        { "broadcast", UNI_EMISMATCH, "rank 1 calls broadcast(1000 float32, root 1)" },
        { "gather", UNI_EMISMATCH, "rank 1 calls all_gather(1000 int32)" },
        { "scatter", UNI_EMISMATCH, "rank 1 calls reduce_scatter(sum of 1000" },
        { "started", UNI_EMISMATCH, "rank 1 calls all_reduce(sum of 1000" },
        { "message-long", UNI_EMISMATCH,
          "rank 1 calls recv(1000 float32), rank 0 calls send(more than 1000 float32)" },
        { "message-short", UNI_EMISMATCH,
          "rank 1 calls recv(1000 float32), rank 0 calls send(500 float32)" },
        { "message-type", UNI_EMISMATCH,
          "rank 1 calls recv(1000 float32), rank 0 calls send(1000 int32)" },
        { "leave", UNI_ECANCELED, "the disk of rank 1 is full" },
        { "abort", UNI_ECANCELED, "rank 1 was killed by signal 9" },
        { "dead", UNI_EWORKER, "rank 1 is silent since 1.0 s" },
        { "asked", UNI_EWORKER, "rank 1 is silent since 1.0 s" },
    };
    static const uni__rendezvous_vtable vtable = { .name = "test",
                                                   .alive = alive,
                                                   .abort_reason = reason };
    way = argc > 1 ? argv[1] : "kind";
    /* The word of "dead" is another one, or it would be an abort too. */
    uni__rendezvous peers = { .vtable = &vtable,
                              .abort_word = strcmp(way, "abort") == 0 ? &abort_word : NULL };
    uni_comm *comm = NULL;
    uni_error err = { 0 };
    if (uni__comm_open_mpi(&comm, &peers, NULL, NULL, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.code == UNI_EUNSUPPORTED ? 77 : 1;
    }
    int rank = uni_comm_info_of(comm)->rank, code = uni_comm_barrier(comm, &err);
    pthread_t thread;
    bool victim = rank == 1 && (strcmp(way, "abort") == 0 || is_death());
    if (!victim)
        pthread_create(&thread, NULL, later, NULL);
    uint64_t begun = uni__monotonic_ns();
    if (code == 0)
        code = act(comm, rank, &err);
    double seconds = (double)(uni__monotonic_ns() - begun) * 1e-9;
    for (size_t i = 0; i < sizeof wants / sizeof wants[0]; i++)
        if (strcmp(way, wants[i].way) == 0) {
            bool fine = code == wants[i].code && strstr(err.message, wants[i].words) &&
                        strchr(err.message, '#') && seconds < 1.0 &&
                        uni_comm_barrier(comm, NULL) == code;
            if (fine)
                printf("fine\n");
            else
                printf("rank %d: %s after %.3f s: %s\n", rank, uni_status_name(code), seconds,
                       err.message);
        }
    fflush(stdout);
    usleep(
        1000000); /* the others are to be told by us: mpirun ends them when we go, however busy the machine is */
    _exit(0);
}
