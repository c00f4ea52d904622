/*
 * comm_bench.c - ./bench comm: all-reduce of float32 sums by two ranks, against Open MPI, gloo and
 * a plain loop.
 *
 * Every side is a pair of processes (or threads) that waits for orders, "count repetitions", and
 * answers with microseconds a call; it checks its results before it is timed. The sides take turns,
 * ten and more rounds, and a ratio is the median of the rounds' ratios. While one side is measured,
 * the others are stopped (SIGSTOP): Open MPI's ranks would otherwise poll on our cores. What they
 * do is in comm_ways.c.
 *
 * JSON lines: bench, metric, unit, unisono (the median), best, peer, peer_name, ratio (how many
 * times faster). Options: --quick; --no-peers; --size NAME (4kb, 64kb, 11mb, 100mb).
 */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm_ways.h"

#define MAX_ROUNDS 40

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
      /* Some tens of milliseconds: who was just continued needs one or two to find its core */
      20 },
    { "64kb", 16384, 4000, 50, 20 },
    { "11mb", 11u * 1000 * 1000 / 4, 10, 2, 15 },
    { "100mb", MAX_COUNT, 2, 1, 10 },
};

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

/* The interpreter that has torch: ./bench runs at the root of the project, where this tool tells
 * it. */
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
