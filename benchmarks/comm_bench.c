/*
 * comm_bench.c - ./bench comm: all-reduce of float32 sums by two ranks, against Open MPI, gloo and a plain loop.
 *
 * Every side is a pair of processes (or threads) that waits for orders, "count repetitions", and answers with
 * microseconds a call; it checks its results before it is timed. The sides take turns, ten and more rounds, and a
 * ratio is the median of the rounds' ratios. While one side is measured, the others are stopped
 * (SIGSTOP): Open MPI's ranks would otherwise poll on our cores.
 *
 * JSON lines: bench, metric, unit, unisono (the median), best, peer, peer_name, ratio (how many times faster).
 * Options: --quick; --no-peers; --size NAME (4kb, 64kb, 11mb, 100mb).
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unisono/comm.h>

#include "comm/rendezvous.h"

#include "bench_numbers.h"
#include "bench_record.h"

#define MAX_ROUNDS 40
#define MAX_COUNT (100u * 1000 * 1000 / 4)

typedef enum way { SHARED, ANY, THREAD, PLAIN, OPEN_MPI, GLOO, OVER_MPI, NUM_WAYS } way;

typedef struct side {
    const char *name;
    FILE *to, *from;
    int pids[4], num_pids;
    int child; /* shm: the second rank's orders, see measure; else -1 */
    bool there;
    double us[MAX_ROUNDS];
} side;

typedef struct length {
    const char *name;
    size_t count;
    int repetitions, slow_repetitions, rounds; /* slow: for gloo */
} length;

static const length lengths[] = {
    { "4kb", 1024, 20000, 50,
      20 }, /* some tens of milliseconds: who was just continued needs one or two to find its core */
    { "64kb", 16384, 4000, 50, 20 },
    { "11mb", 11u * 1000 * 1000 / 4, 10, 2, 15 },
    { "100mb", MAX_COUNT, 2, 1, 10 },
};

static double now_us(void)
{
    return now_s() * 1e6;
}

static void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("comm_bench: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

/* --- one rank of unisono --- */

typedef struct place {
    uni_comm *comm;
    float *data; /* where the gradients are */
} place;

static double reduce_times(place *at, size_t count, int repetitions)
{
    uni_error err = { 0 };
    int rank = uni_comm_rank(at->comm), n = uni_comm_size(at->comm);
    for (size_t i = 0; i < count; i++)
        at->data[i] = (float)(i % 1000 + (size_t)rank);
    int status =
        uni_comm_all_reduce(at->comm, at->data, at->data, count, UNI_F32, UNI_COMM_SUM, &err);
    for (size_t i = 0; i < count && status == 0; i++)
        if (at->data[i] != (float)((size_t)n * (i % 1000) + (size_t)(n * (n - 1) / 2)))
            give_up("wrong sum at %zu of %zu: %g", i, count, (double)at->data[i]);
    memset(at->data, 0, count * sizeof *at->data);
    for (int i = 0; i < 3 && status == 0; i++)
        status =
            uni_comm_all_reduce(at->comm, at->data, at->data, count, UNI_F32, UNI_COMM_SUM, &err);
    if (status == 0)
        status = uni_comm_barrier(at->comm, &err);
    double begun = now_us();
    for (int i = 0; i < repetitions && status == 0; i++)
        status =
            uni_comm_all_reduce(at->comm, at->data, at->data, count, UNI_F32, UNI_COMM_SUM, &err);
    if (status < 0)
        give_up("%s", err.message);
    return (now_us() - begun) / repetitions;
}

/* --- the plain loop: two threads, a flag each, half of the sums each --- */

typedef struct plain {
    _Alignas(64) _Atomic unsigned flags[2][16];
    float *data[2];
    size_t count;
    int repetitions;
    double us;
} plain;

static void plain_meet(plain *p, int me, unsigned *turn)
{
    atomic_store_explicit(&p->flags[me][0], ++*turn, memory_order_release);
    for (unsigned spins = 0; atomic_load_explicit(&p->flags[!me][0], memory_order_acquire) < *turn;
         spins++)
        if (spins % 4096 == 4095)
            sched_yield();
}

__attribute__((optimize("O3"))) static void plain_add(float *restrict a, float *restrict b,
                                                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

typedef struct plain_thread {
    plain *shared;
    int me;
} plain_thread;

static void *plain_main(void *argument)
{
    plain_thread *t = argument;
    plain *p = t->shared;
    size_t half = p->count / 2 / 16 * 16, begin = t->me ? half : 0;
    size_t n = t->me ? p->count - half : half;
    unsigned turn = 0;
    double begun = 0;
    /* A core for each, or the plain loop is at the mercy of where the kernel puts it. */
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(t->me, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
    for (int i = -3; i < p->repetitions; i++) {
        plain_meet(p, t->me, &turn);
        if (i == 0)
            begun = now_us();
        plain_add(p->data[0] + begin, p->data[1] + begin, n);
        plain_meet(p, t->me, &turn);
    }
    if (t->me == 0)
        p->us = (now_us() - begun) / p->repetitions;
    return NULL;
}

static double plain_times(float *data[2], size_t count, int repetitions)
{
    plain *p = aligned_alloc(64, sizeof *p);
    pthread_t other;
    if (!p)
        give_up("no memory");
    memset(p, 0, sizeof *p);
    p->data[0] = data[0];
    p->data[1] = data[1];
    p->count = count;
    p->repetitions = repetitions;
    plain_thread threads[2] = { { p, 0 }, { p, 1 } };
    pthread_create(&other, NULL, plain_main, &threads[1]);
    plain_main(&threads[0]);
    pthread_join(other, NULL);
    double us = p->us;
    free(p);
    return us;
}

/* --- one rank over MPI: comm_bench --mpi-rank, started by mpirun; rank 0 reads orders and hands them on, by a socket: in a collective the other would
 * wait while both stand still, and complain of it --- */

static int mpi_rank(void)
{
    uni_error err = { 0 };
    place at = { 0 };
    int64_t pids[2] = { 0 }, pid = getpid(), order[2];
    uni__socket_mesh *mesh = NULL;
    char name[64];
    if (uni__comm_open_mpi(&at.comm, NULL, NULL, NULL, &err) < 0 || uni_comm_size(at.comm) != 2 ||
        uni_comm_all_gather(at.comm, &pid, pids, 1, UNI_I64, &err) < 0)
        give_up("%s", err.message);
    bool first = uni_comm_rank(at.comm) == 0;
    snprintf(name, sizeof name, "unisono-comm-bench-%d", (int)pids[0]);
    if (uni__socket_mesh_connect(&mesh, name, first ? 0 : 1, 2, NULL, 10000, &err) < 0)
        give_up("%s", err.message);
    uni__rendezvous peers = uni__socket_mesh_rank(mesh, first ? 0 : 1);
    at.data = malloc(MAX_COUNT * sizeof(float));
    if (first)
        printf("pid %d\npid %d\n", (int)pids[0], (int)pids[1]);
    fflush(stdout);
    for (;;) {
        char line[64];
        long count = -1, repetitions = 0;
        if (first && (!fgets(line, sizeof line, stdin) ||
                      sscanf(line, "%ld %ld", &count, &repetitions) != 2))
            count = -1;
        order[0] = count;
        order[1] = repetitions;
        size_t size = sizeof order;
        int status = first ? peers.vtable->put(peers.context, "order", order, sizeof order, &err)
                           : peers.vtable->get(peers.context, 0, "order", order, sizeof order,
                                               &size, -1, &err);
        if (status < 0 || order[0] < 0)
            break;
        double us = reduce_times(&at, (size_t)order[0], (int)order[1]);
        if (first)
            printf("%.3f\n", us);
        fflush(stdout);
    }
    if (uni_comm_finalize(at.comm, &err) < 0)
        _exit(1);
    uni_comm_close(at.comm);
    uni__socket_mesh_free(mesh);
    free(at.data);
    return 0;
}

/* --- the recorder (./bench strategies has its cost in a training step): in the smallest step there is, the fused one of the NNLM head's 49,000 parameters with
 * no forward and backward pass at all --- */

#define HEAD_PARAMETERS 49000

typedef struct step_rank {
    uni_comm *comm;
    float *parameters;
    double us;
} step_rank;

static int descend(void *context, const void *gradient, size_t begin, size_t end, uni_error *err)
{
    step_rank *me = context;
    const float *g = gradient;
    for (size_t i = begin; i < end; i++)
        me->parameters[i] -= 0.01f * g[i];
    return 0;
}

static void *step_main(void *argument)
{
    enum { STEPS = 2000 };
    step_rank *me = argument;
    uni_error err = { 0 };
    uni_comm_buffer *parameters = NULL, *gradients = NULL;
    int status =
        uni_comm_alloc_shared(me->comm, HEAD_PARAMETERS * sizeof(float), &parameters, &err);
    if (status == 0)
        status = uni_comm_alloc(me->comm, HEAD_PARAMETERS * sizeof(float), &gradients, &err);
    if (status < 0)
        give_up("%s", err.message);
    me->parameters = uni_comm_buffer_data(parameters);
    double begun = now_us();
    for (int i = 0; i < STEPS && status == 0; i++)
        status = uni_comm_reduce_apply(me->comm, uni_comm_buffer_data(gradients), HEAD_PARAMETERS,
                                       UNI_F32, UNI_COMM_SUM, 1, descend, me, &err);
    if (status < 0)
        give_up("%s", err.message);
    me->us = (now_us() - begun) / STEPS;
    return NULL;
}

static void run_recorder(void)
{
    uni_comm *comms[2];
    uni_error err = { 0 };
    if (uni_comm_open_threads(comms, 2, NULL, &err) < 0)
        give_up("%s", err.message);
    step_rank ranks[2] = { { comms[0], NULL, 0 }, { comms[1], NULL, 0 } };
    pthread_t other;
    pthread_create(&other, NULL, step_main, &ranks[1]);
    step_main(&ranks[0]);
    pthread_join(other, NULL);
    double ns = record_ns();
    printf("{\"bench\": \"comm\", \"metric\": \"recorder_overhead_bare_step\", \"unit\": "
           "\"fraction\", "
           "\"unisono\": "
           "%.5f, \"peer\": null, \"peer_name\": \"none: no peer has one\", \"ratio\": null, "
           "\"record_ns\": %.1f, \"records_per_step\": 1, \"step_us\": %.2f, \"step\": \"fused "
           "reduce and "
           "update of 49,000 parameters, nothing else\"}\n",
           ns * 1e-3 / ranks[0].us, ns, ranks[0].us);
    fflush(stdout);
    uni_comm_close(comms[0]);
    uni_comm_close(comms[1]);
}

/* --- sides: processes that answer orders --- */

typedef struct order {
    size_t count;
    int repetitions;
} order;

static bool next_order(FILE *from, order *o)
{
    char line[64];
    return fgets(line, sizeof line, from) &&
           sscanf(line, "%zu %d", &o->count, &o->repetitions) == 2;
}

/* A shm rank; rank 0 answers. Orders come to each rank through its own pipe. */
static void shm_rank(uni__socket_mesh *mesh, int rank, way w, FILE *orders, FILE *answers)
{
    uni_error err = { 0 };
    uni__rendezvous peers = uni__socket_mesh_rank(mesh, rank);
    place at = { 0 };
    uni_comm_buffer *buffer = NULL;
    int status = uni__comm_open_shm(&at.comm, &peers, NULL, 0, &err);
    if (status == 0 && w == SHARED)
        status = uni_comm_alloc(at.comm, MAX_COUNT * sizeof(float), &buffer, &err);
    if (status < 0)
        give_up("%s", err.message);
    at.data = w == SHARED ? uni_comm_buffer_data(buffer) : malloc(MAX_COUNT * sizeof(float));
    for (order o; next_order(orders, &o);) {
        double us = reduce_times(&at, o.count, o.repetitions);
        if (rank == 0) {
            fprintf(answers, "%.3f\n", us);
            fflush(answers);
        }
    }
    _exit(0);
}

typedef struct thread_rank {
    place at;
    order o;
    double us;
} thread_rank;

static void *thread_main(void *argument)
{
    thread_rank *t = argument;
    t->us = reduce_times(&t->at, t->o.count, t->o.repetitions);
    return NULL;
}

/* Threads of a process of their own, so that they can be stopped like all others. */
static void thread_side(way w, FILE *orders, FILE *answers)
{
    uni_error err = { 0 };
    uni_comm *comms[2];
    float *data[2];
    for (int r = 0; r < 2; r++)
        data[r] = mmap(NULL, MAX_COUNT * sizeof(float), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (uni_comm_open_threads(comms, 2, NULL, &err) < 0 || data[0] == MAP_FAILED ||
        data[1] == MAP_FAILED)
        give_up("%s", err.message);
    for (order o; next_order(orders, &o);) {
        double us;
        if (w == PLAIN) {
            us = plain_times(data, o.count, o.repetitions);
        } else {
            thread_rank ranks[2] = { { { comms[0], data[0] }, o, 0 },
                                     { { comms[1], data[1] }, o, 0 } };
            pthread_t other;
            pthread_create(&other, NULL, thread_main, &ranks[1]);
            thread_main(&ranks[0]);
            pthread_join(other, NULL);
            us = ranks[0].us;
        }
        fprintf(answers, "%.3f\n", us);
        fflush(answers);
    }
    _exit(0);
}

static void open_shm_side(side *s, way w)
{
    int answers[2], orders[2][2];
    uni__socket_mesh *mesh = NULL;
    if (uni__socket_mesh_new(&mesh, 2, NULL) < 0 || pipe(answers) < 0)
        give_up("cannot open pipes");
    for (int r = 0; r < 2; r++) {
        if (pipe(orders[r]) < 0)
            give_up("cannot open pipes");
        s->pids[r] = fork();
        if (s->pids[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* a bench that is killed leaves nobody behind */
            for (int o = 0; o <= r; o++)
                close(orders[o][1]);
            shm_rank(mesh, r, w, fdopen(orders[r][0], "r"), fdopen(answers[1], "w"));
        }
    }
    uni__socket_mesh_free(mesh);
    close(answers[1]);
    s->num_pids = 2;
    s->from = fdopen(answers[0], "r");
    /* One stream for both: a copy of each order is written to the second pipe. */
    s->to = fdopen(orders[0][1], "w");
    s->child = orders[1][1]; /* kept as a number, see give_order */
    s->there = true;
}

static void open_thread_side(side *s, way w)
{
    int answers[2], orders[2];
    if (pipe(answers) < 0 || pipe(orders) < 0)
        give_up("cannot open pipes");
    s->pids[0] = fork();
    if (s->pids[0] == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(orders[1]);
        thread_side(w, fdopen(orders[0], "r"), fdopen(answers[1], "w"));
    }
    close(answers[1]);
    close(orders[0]);
    s->num_pids = 1;
    s->from = fdopen(answers[0], "r");
    s->to = fdopen(orders[1], "w");
    s->child = -1;
    s->there = true;
}

/* A peer is a command that prints "pid N" for its two ranks, then answers orders. */
static void open_peer(side *s, char *const command[], int when_we_die)
{
    int answers[2], orders[2], unused = 0;
    char line[256];
    s->child = -1;
    if (pipe(answers) < 0 || pipe(orders) < 0)
        give_up("cannot open pipes");
    int pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, when_we_die);
        dup2(orders[0], 0);
        dup2(answers[1], 1);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execvp(command[0], command);
        _exit(127);
    }
    close(answers[1]);
    close(orders[0]);
    s->from = fdopen(answers[0], "r");
    s->to = fdopen(orders[1], "w");
    while (s->num_pids < 2 && fgets(line, sizeof line, s->from))
        if (sscanf(line, "pid %d%n", &s->pids[s->num_pids], &unused) == 1)
            s->num_pids++;
    s->there = s->num_pids == 2;
}

static void signal_side(const side *s, int sig)
{
    for (int i = 0; i < s->num_pids; i++)
        kill(s->pids[i], sig);
}

/* Microseconds a call; a side that does not answer is not there any more. */
static double measure(side *s, size_t count, int repetitions)
{
    char line[256], text[64];
    double us = -1;
    if (!s->there)
        return us;
    signal_side(s, SIGCONT);
    int used = snprintf(text, sizeof text, "%zu %d\n", count, repetitions);
    fputs(text, s->to);
    fflush(s->to);
    if (s->child >= 0 && write(s->child, text, (size_t)used) != used)
        give_up("cannot give an order");
    while (us < 0 && fgets(line, sizeof line, s->from))
        if (sscanf(line, "%lf", &us) != 1)
            us = -1;
    signal_side(s, SIGSTOP);
    s->there = us > 0;
    return us;
}

static void print_pair(const char *metric, const side *ours, const side *peer, int rounds)
{
    double ratios[MAX_ROUNDS];
    numbers us = numbers_of(ours->us, rounds);
    printf("{\"bench\": \"comm\", \"metric\": \"%s\", \"unit\": \"us\", \"unisono\": %.3f, ",
           metric, us.median);
    if (peer->there) {
        numbers theirs = numbers_of(peer->us, rounds);
        for (int i = 0; i < rounds; i++)
            ratios[i] = peer->us[i] / ours->us[i];
        printf("\"peer\": %.3f, \"peer_name\": \"%s\", \"ratio\": %.4g, \"peer_best\": %.3f, ",
               theirs.median, peer->name, sorted(ratios, rounds).median, theirs.low);
    } else {
        printf("\"peer\": null, \"peer_name\": \"%s: missing\", \"ratio\": null, ", peer->name);
    }
    printf("\"best\": %.3f, \"pairs\": %d}\n", us.low, rounds);
    fflush(stdout);
}

static void run_length(side *sides, const length *l, bool quick, bool peers)
{
    static const char *const suffix[] = { "", "_any", "_thread" };
    int rounds = quick ? 3 : l->rounds;
    int repetitions = quick && l->repetitions > 20 ? l->repetitions / 20 : l->repetitions;
    int slow = quick ? (l->slow_repetitions + 9) / 10 : l->slow_repetitions;
    for (int i = -1; i < rounds; i++) /* the first round warms up */
        for (int w = 0; w < NUM_WAYS; w++) {
            double us = measure(&sides[w], l->count, w == GLOO ? slow : repetitions);
            if (i >= 0)
                sides[w].us[i] = us;
        }
    char metric[64];
    if (sides[OVER_MPI].there) {
        snprintf(metric, sizeof metric, "allreduce_%s_us_mpi", l->name);
        print_pair(metric, &sides[OVER_MPI], &sides[OPEN_MPI], rounds);
    }
    for (int w = SHARED; w <= THREAD; w++) {
        snprintf(metric, sizeof metric, "allreduce_%s_us%s", l->name, suffix[w]);
        if (!sides[w].there)
            give_up("%s did not answer", sides[w].name);
        if (peers) {
            print_pair(metric, &sides[w], &sides[OPEN_MPI], rounds);
            print_pair(metric, &sides[w], &sides[GLOO], rounds);
        }
        print_pair(metric, &sides[w], &sides[PLAIN], rounds);
    }
}

/* The interpreter that has torch: ./bench runs at the root of the project, where this tool tells it. */
static void find_python(char *out, size_t size)
{
    const char *given = getenv("UNISONO_BENCH_PYTHON");
    snprintf(out, size, "%s", given ? given : "python3");
    FILE *tool = given ? NULL : popen("tools/python-env torch 2>/dev/null", "r");
    char line[512] = "";
    if (tool && fgets(line, sizeof line, tool) && line[0] == '/') {
        line[strcspn(line, "\n")] = 0;
        snprintf(out, size, "%s", line);
    }
    if (tool)
        pclose(tool);
}

/* mpirun as root must be told to; for others an option that changes nothing. */
static char *as_root_option(void)
{
    static char root[] = "--allow-run-as-root", quiet[] = "--quiet";
    return geteuid() == 0 ? root : quiet;
}

/* The plug-in for MPI lies in the build directory. */
static void name_plugins(const char *program)
{
    char *path = realpath(program, NULL), *slash = path ? strrchr(path, '/') : NULL;
    char dir[600];
    if (slash) {
        *slash = 0;
        snprintf(dir, sizeof dir, "%s/../src/comm", path);
        setenv("UNISONO_PLUGINS", dir, 0);
    }
    free(path);
}

static void open_peers(side *sides, const char *program)
{
    char mpi[512], script[] = UNI_PEERS_DIR "/comm_gloo.py";
    const char *slash = strrchr(program, '/');
    char python[512];
    find_python(python, sizeof python);
    snprintf(mpi, sizeof mpi, "%.*s/comm_mpi", slash ? (int)(slash - program) : 1,
             slash ? program : ".");
    char *mpirun[] = { "mpirun", "--oversubscribe", "-n", "2", as_root_option(), mpi, NULL };
    char *ours[] = { "mpirun",         "--oversubscribe",          "-n",         "2",
                     as_root_option(), (char *)(uintptr_t)program, "--mpi-rank", NULL };
    char *gloo[] = { python, script, NULL };
    if (access(mpi, X_OK) == 0) {
        open_peer(&sides[OPEN_MPI], mpirun, SIGTERM); /* it then ends its ranks */
        name_plugins(program);
        open_peer(&sides[OVER_MPI], ours, SIGTERM);
    }
    open_peer(&sides[GLOO], gloo, SIGKILL); /* it may stand still then */
}

/* Without orders they end by themselves; who does not within some seconds is ours to kill. */
static void end_sides(side *sides)
{
    for (int w = 0; w < NUM_WAYS; w++) {
        if (sides[w].to)
            fclose(sides[w].to);
        if (w == SHARED || w == ANY)
            close(sides[w].child);
        signal_side(&sides[w], SIGCONT);
    }
    double deadline = now_us() + 5e6;
    int left;
    while ((left = waitpid(-1, NULL, WNOHANG)) >= 0 && now_us() < deadline)
        if (left == 0)
            usleep(10000);
    for (int w = 0; w < NUM_WAYS && left >= 0; w++)
        signal_side(&sides[w], SIGKILL);
    while (wait(NULL) > 0)
        ;
}

int main(int argc, char **argv)
{
    bool quick = false, peers = true;
    const char *only = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--mpi-rank") == 0)
            return mpi_rank();
        if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (strcmp(argv[i], "--no-peers") == 0)
            peers = false;
        else if (strcmp(argv[i], "--size") == 0 && i + 1 < argc)
            only = argv[++i];
        else
            give_up("comm_bench [--quick] [--no-peers] [--size 4kb|64kb|11mb|100mb]");
    }
    signal(SIGPIPE, SIG_IGN);
    static side sides[NUM_WAYS] = { { .name = "shm" },        { .name = "shm_any" },
                                    { .name = "thread" },     { .name = "plain_threads" },
                                    { .name = "openmpi" },    { .name = "gloo" },
                                    { .name = "unisono_mpi" } };
    open_shm_side(&sides[SHARED], SHARED);
    open_shm_side(&sides[ANY], ANY);
    open_thread_side(&sides[THREAD], THREAD);
    open_thread_side(&sides[PLAIN], PLAIN);
    if (peers)
        open_peers(sides, argv[0]);
    for (int w = 0; w < NUM_WAYS; w++)
        signal_side(&sides[w], SIGSTOP);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        if (!only || strcmp(only, lengths[i].name) == 0)
            run_length(sides, &lengths[i], quick, peers);
    if (!only)
        run_recorder();
    end_sides(sides);
    return 0;
}
