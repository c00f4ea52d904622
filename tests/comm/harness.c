/* harness.c - see harness.h. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rendezvous.h"

typedef struct shared_memory {
    rank_result results[MAX_RANKS];
    _Atomic uint32_t words[64];
} shared_memory;

typedef struct start {
    const run_options *options;
    rank_function function;
    rank me;
} start;

const char *say(rank *me, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(me->result->text, sizeof me->result->text, format, arguments);
    va_end(arguments);
    return me->result->text;
}

static void run_one(start *s)
{
    const char *text = s->function(&s->me);
    if (text && text != s->me.result->text)
        snprintf(s->me.result->text, sizeof s->me.result->text, "%s", text);
    uni_comm_close(s->me.comm);
    atomic_store(&s->me.result->done, 1);
}

static void *thread_main(void *argument)
{
    run_one(argument);
    return NULL;
}

/* Hosts that are made up: shared memory inside of them, UCX between them. "hosts": two ranks each,
 * one on the last where their number is odd; "hosts-apart": every other rank, so that ranks of a
 * host are not neighbors; "hosts-uneven": one, and the rest. */
static int host_of(const char *transport, int r)
{
    return strcmp(transport, "hosts-apart") == 0    ? r % 2
           : strcmp(transport, "hosts-uneven") == 0 ? r > 0
                                                    : r / 2;
}

static int open_over_hosts(start *s, const uni__rendezvous *peers, uni_error *err)
{
    const char *transport = s->options->transport;
    int locals[MAX_RANKS], count = 0;
    for (int r = 0; r < s->me.size; r++)
        if (host_of(transport, r) == host_of(transport, s->me.rank))
            locals[count++] = r;
    return uni__comm_open_hosts(
        &s->me.comm, peers, locals, count, &s->options->comm,
        &(uni__between){ .ucx = true, .epoch = 1, .open_timeout_ms = 10000 }, err);
}

static int open_transport(start *s, const uni__rendezvous *peers, uni_error *err)
{
    const char *transport = s->options->transport;
    if (strncmp(transport, "hosts", 5) == 0)
        return open_over_hosts(s, peers, err);
    if (strcmp(transport, "ucx") == 0)
        return uni__comm_open_ucx(&s->me.comm, peers, &s->options->comm, 1, 10000, err);
    return uni__comm_open_shm(&s->me.comm, peers, &s->options->comm, 10000, err);
}

static void process_main(start *s, uni__socket_mesh *mesh)
{
    uni_error err = { 0 };
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    uni__rendezvous peers = uni__socket_mesh_rank(mesh, s->me.rank);
    if (open_transport(s, &peers, &err) < 0) {
        say(&s->me, "rank %d cannot open: %s", s->me.rank, err.message);
        atomic_store(&s->me.result->done, 1);
    } else {
        run_one(s);
    }
    uni__socket_mesh_free(mesh);
}

static bool all_done(const shared_memory *memory, int n)
{
    for (int r = 0; r < n; r++)
        if (!atomic_load(&memory->results[r].done))
            return false;
    return true;
}

static const char *run_threads(const run_options *options, start *starts, shared_memory *memory)
{
    pthread_t threads[MAX_RANKS];
    uni_comm *comms[MAX_RANKS];
    uni_error err = { 0 };
    if (uni_comm_open_threads(comms, options->size, &options->comm, &err) < 0)
        return "cannot open";
    uint64_t end =
        uni__monotonic_ns() + (uint64_t)(options->seconds ? options->seconds : 20) * 1000000000u;
    for (int r = 0; r < options->size; r++) {
        starts[r].me.comm = comms[r];
        if (pthread_create(&threads[r], NULL, thread_main, &starts[r]) != 0)
            return "cannot start a thread";
    }
    if (options->meanwhile)
        options->meanwhile(memory->results, memory->words, options->context);
    while (!all_done(memory, options->size))
        if (uni__monotonic_ns() > end) {
            for (int r = 0; r < options->size; r++)
                if (!atomic_load(&memory->results[r].done))
                    fprintf(stderr, "rank %d hangs\n", r);
            abort();
        } else {
            usleep(200);
        }
    for (int r = 0; r < options->size; r++)
        pthread_join(threads[r], NULL);
    return NULL;
}

static const char *run_processes(const run_options *options, start *starts, shared_memory *memory)
{
    uni__socket_mesh *mesh = NULL;
    const char *problem = NULL;
    uni_error err = { 0 };
    if (uni__socket_mesh_new(&mesh, options->size, &err) < 0)
        return "cannot make sockets";
    fflush(NULL);
    for (int r = 0; r < options->size; r++) {
        int pid = fork();
        if (pid == 0) {
            process_main(&starts[r], mesh);
            _exit(0);
        }
        memory->results[r].pid = pid;
    }
    uni__socket_mesh_free(mesh);
    if (options->meanwhile)
        options->meanwhile(memory->results, memory->words, options->context);
    uint64_t end =
        uni__monotonic_ns() + (uint64_t)(options->seconds ? options->seconds : 20) * 1000000000u;
    for (int r = 0; r < options->size; r++) {
        int status = 0, got;
        while ((got = waitpid(memory->results[r].pid, &status, WNOHANG)) == 0 &&
               uni__monotonic_ns() < end)
            usleep(200);
        if (got == 0) {
            kill(memory->results[r].pid, SIGKILL);
            waitpid(memory->results[r].pid, &status, 0);
            problem =
                options->may_die && !memory->results[r].text[0] && memory->results[r].code == -1
                    ? problem
                    : "a rank hangs";
        } else if (WIFSIGNALED(status) && !options->may_die) {
            problem = "a rank was killed";
        } else if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
            problem = "a rank ended with an error";
        }
    }
    return problem;
}

const char *run_ranks(const run_options *options, rank_function function, rank_result *results)
{
    static char problem[1600];
    shared_memory *memory =
        mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return "no memory";
    start starts[MAX_RANKS];
    for (int r = 0; r < options->size; r++)
        starts[r] = (start){ options,
                             function,
                             { r, options->size, NULL, &memory->results[r], memory->words,
                               options->context } };
    const char *wrong = strcmp(options->transport, "thread") == 0
                            ? run_threads(options, starts, memory)
                            : run_processes(options, starts, memory);
    for (int r = 0; r < options->size; r++) {
        if (results)
            results[r] = memory->results[r];
        if (memory->results[r].text[0] && (!wrong || wrong != problem)) {
            snprintf(problem, sizeof problem, "%.300s%s%s", wrong ? wrong : "", wrong ? ": " : "",
                     memory->results[r].text);
            wrong = problem;
        }
    }
    munmap(memory, sizeof *memory);
    return wrong;
}
