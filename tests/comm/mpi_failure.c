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
    int code = uni_comm_recv_start(comm, data, 1000, UNI_F32, 1, &request, err);
    while (code == 0 && !done) {
        code = uni_comm_test(request, &done, err);
        usleep(100);
    }
    return code;
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
    int rank = uni_comm_rank(comm), code = uni_comm_barrier(comm, &err);
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
