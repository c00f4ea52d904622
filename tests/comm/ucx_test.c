/*
 * ucx_test.c - what the transport over UCX promises beyond the contract: a killed rank is named within a second, the survivors close and meet again in
 * the same processes, calls that differ are named on both sides, and what is sealed opens with its key only.
 */
#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/plugin.h"
#include "comm/hosts/seal.h"
#include "comm/kinds.h"
#include "comm/rendezvous.h"
#include "comm/ucx/plugin.h"
#include "harness.h"

static const char *sum_of_ranks(rank *me, uni_comm *comm, int place, int size)
{
    enum { COUNT = 300001 };
    float *data = malloc(COUNT * sizeof *data);
    for (size_t i = 0; i < COUNT; i++)
        data[i] = (float)(place + 1);
    OK(uni_comm_all_reduce(comm, data, data, COUNT, UNI_F32, UNI_COMM_SUM, err));
    for (size_t i = 0; i < COUNT; i++)
        CHECK(data[i] == (float)(size * (size + 1) / 2));
    free(data);
    return NULL;
}

static void run(const run_options *options, rank_function function)
{
    const char *wrong = run_ranks(options, function, NULL);
    if (wrong)
        fail_msg("%s", wrong);
}

/* ---- a killed rank ---- */

/* Ranks 0 and 2 of three become ranks 0 and 1 of two, over a rendezvous of their own. */
static const char *survive(rank *me)
{
    uni__rendezvous peers = uni__socket_mesh_rank(me->context, me->rank / 2);
    uni_comm_close(me->comm);
    me->comm = NULL;
    OK(uni__comm_open_ucx(&me->comm, &peers, NULL, 2, 10000, err));
    const char *wrong = sum_of_ranks(me, me->comm, me->rank / 2, 2);
    if (wrong)
        return wrong;
    OK(uni_comm_finalize(me->comm, err));
    return NULL;
}

static const char *killed_rank(rank *me)
{
    static float data[100000];
    uni_error failure = { 0 };
    CHECK(strcmp(uni_comm_info_of(me->comm)->transport, "ucx") == 0);
    OK(uni_comm_barrier(me->comm, err));
    if (me->rank == 1) {
        usleep(200000);
        kill(getpid(), SIGKILL);
    }
    uint64_t begun = uni__monotonic_ns();
    int code = uni_comm_all_reduce(me->comm, data, data, 100000, UNI_F32, UNI_COMM_SUM, &failure);
    double seconds = (double)(uni__monotonic_ns() - begun) * 1e-9 - 0.2;
    if (code != UNI_EPEER || !strstr(failure.message, "rank 1 is gone") || seconds > 1)
        return say(me, "rank %d: %s after %.3f s: %s", me->rank, uni_status_name(code), seconds,
                   failure.message);
    CHECK(uni_comm_barrier(me->comm, NULL) == UNI_EPEER);
    return survive(me);
}

static void test_killed(void **state)
{
    uni__socket_mesh *mesh = NULL;
    uni_error failure = { 0 };
    assert_int_equal(uni__socket_mesh_new(&mesh, 2, &failure), 0);
    run(&(run_options){ .transport = "ucx", .size = 3, .may_die = true, .context = mesh },
        killed_rank);
    uni__socket_mesh_free(mesh);
}

/* ---- calls that differ ---- */

typedef struct difference {
    uni_dtype dtype;
    size_t count;
    uni_comm_op op;
    const char *words;
} difference;

static const char *differing_rank(rank *me)
{
    static double data[400000];
    const difference *it = me->context;
    uni_error failure = { 0 };
    bool odd = me->rank == 1;
    int code = odd && !it->op ? uni_comm_barrier(me->comm, &failure)
                              : uni_comm_all_reduce(me->comm, data, data, odd ? it->count : 200000,
                                                    odd ? it->dtype : UNI_F32,
                                                    odd ? it->op : UNI_COMM_SUM, &failure);
    if (code != UNI_EMISMATCH || !strstr(failure.message, it->words) ||
        !strstr(failure.message, "sum of 200000 float32"))
        return say(me, "rank %d: %s: %s", me->rank, uni_status_name(code), failure.message);
    return NULL;
}

static void test_differing(void **state)
{
    static difference all[] = {
        { UNI_F32, 100000, UNI_COMM_SUM, "rank 1 calls all_reduce(sum of 100000 float32)" },
        { UNI_I32, 200000, UNI_COMM_SUM, "rank 1 calls all_reduce(sum of 200000 int32)" },
        { UNI_F32, 200000, UNI_COMM_MAX, "rank 1 calls all_reduce(max of 200000 float32)" },
        { UNI_F32, 200000, 0, "rank 1 calls barrier" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int size = 2; size <= 3; size++)
            run(&(run_options){ .transport = "ucx", .size = size, .context = &all[i] },
                differing_rank);
}

static const char *message_rank(rank *me)
{
    int32_t data[2000] = { 0 };
    uni_error failure = { 0 };
    if (me->rank == 0)
        OK(uni_comm_send(me->comm, data, 500, UNI_I32, 1, err));
    int code = me->rank == 0 ? uni_comm_barrier(me->comm, &failure)
                             : uni_comm_recv(me->comm, data, 1000, UNI_F32, 0, &failure);
    if (code != UNI_EMISMATCH ||
        !strstr(failure.message, "rank 1 calls recv(1000 float32), rank 0 calls send(500 int32)"))
        return say(me, "rank %d: %s: %s", me->rank, uni_status_name(code), failure.message);
    return NULL;
}

static void test_message(void **state)
{
    run(&(run_options){ .transport = "ucx", .size = 2 }, message_rank);
}

/* ---- abort ---- */

static const char *aborted_rank(rank *me)
{
    float data[10] = { 0 };
    uni_error failure = { 0 };
    if (me->rank == 1)
        uni_comm_abort(me->comm, "the disk of rank 1 is full");
    int code = uni_comm_all_reduce(me->comm, data, data, 10, UNI_F32, UNI_COMM_SUM, &failure);
    if (code != UNI_ECANCELED || !strstr(failure.message, "the disk of rank 1 is full"))
        return say(me, "rank %d: %s: %s", me->rank, uni_status_name(code), failure.message);
    return NULL;
}

static void test_aborted(void **state)
{
    run(&(run_options){ .transport = "ucx", .size = 3 }, aborted_rank);
}

/* ---- a rank that closes ---- */

/* Messages sent before are received, a receive that is polled stays open, one that is waited for
 * fails, as does a collective. */
static const char *closing_rank(rank *me)
{
    int32_t data[8] = { 0 };
    uni_error failure = { 0 };
    uni_comm_request *request = NULL;
    bool done = false;
    if (me->rank == 1) {
        data[0] = 7;
        OK(uni_comm_send(me->comm, data, 8, UNI_I32, 0, err));
        return NULL; /* closes */
    }
    OK(uni_comm_recv(me->comm, data, 8, UNI_I32, 1, err));
    CHECK(data[0] == 7);
    OK(uni_comm_recv_start(&request, me->comm, data, 8, UNI_I32, 1, err));
    for (uint64_t end = uni__monotonic_ns() + 300000000u; uni__monotonic_ns() < end; usleep(1000))
        OK(uni_comm_test(&done, request, err));
    CHECK(!done);
    int code =
        me->context ? uni_comm_barrier(me->comm, &failure) : uni_comm_wait(request, &failure);
    if (code != UNI_EPEER || !strstr(failure.message, "rank 1 has closed its communicator"))
        return say(me, "%s: %s", uni_status_name(code), failure.message);
    return NULL;
}

static void test_closing(void **state)
{
    run(&(run_options){ .transport = "ucx", .size = 2 }, closing_rank);
    run(&(run_options){ .transport = "ucx", .size = 2, .context = "barrier" }, closing_rank);
}

/* ---- strangers ---- */

static const uni__ucx_plugin *load(void)
{
    const uni__plugin file = { .file = UNI__UCX_PLUGIN_FILE,
                               .symbol = UNI__UCX_PLUGIN_SYMBOL,
                               .version = UNI__UCX_PLUGIN_VERSION,
                               .built = "src/comm",
                               .settings = UNI__UCX_SETTINGS };
    uni_error failure = { 0 };
    const void *table = NULL;
    assert_int_equal(uni__plugin_open(&table, &file, &failure), 0);
    return table;
}

/* In a process that has not loaded UCX yet, and a directory where another user has left settings.
 * Its exit code: of what was done with them. */
enum { LOADED = 1, WROTE = 2, REFUSED = 4 };

static int load_among_settings(bool ignores, bool later)
{
    char dir[] = "/tmp/unisono-test-XXXXXX", path[PATH_MAX];
    const uni__plugin file = { .file = UNI__UCX_PLUGIN_FILE,
                               .symbol = UNI__UCX_PLUGIN_SYMBOL,
                               .version = UNI__UCX_PLUGIN_VERSION,
                               .built = "src/comm",
                               .settings = ignores ? UNI__UCX_SETTINGS : NULL,
                               .reads_later = later };
    const void *table = NULL;
    assert_non_null(mkdtemp(dir));
    pid_t child = fork();
    if (child == 0) {
        FILE *settings = chdir(dir) == 0 ? fopen("ucx.conf", "w") : NULL;
        if (!settings || fprintf(settings, "UCX_LOG_FILE=%s/written\n", dir) < 0 ||
            fclose(settings) != 0 || chown("ucx.conf", 65534, 65534) < 0)
            _exit(100);
        int status = uni__plugin_open(&table, &file, NULL);
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here) || strcmp(here, dir) != 0)
            _exit(101);
        _exit((status == 0 ? LOADED : 0) | (access("written", F_OK) == 0 ? WROTE : 0) |
              (status == UNI_EPERMISSION ? REFUSED : 0));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    snprintf(path, sizeof path, "%s/written", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/ucx.conf", dir);
    unlink(path);
    rmdir(dir);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_settings(void **state)
{
    if (geteuid() != 0)
        skip(); /* needs another user */
    assert_int_equal(load_among_settings(false, false), LOADED | WROTE);
    assert_int_equal(load_among_settings(true, false), LOADED);
    assert_int_equal(load_among_settings(true, true), REFUSED);
}

/* Two ranks in this process. wrong: added to the token that rank 1 sends. */
static void connect_two(const uni__ucx_plugin *plugin, void *ranks[2], uint64_t wrong)
{
    char why[UNI__WHY_SIZE];
    for (int r = 0; r < 2; r++)
        assert_int_equal(plugin->open(&ranks[r], r, 2, 5, 100 + (uint64_t)r, NULL, why), 0);
    for (int r = 0; r < 2; r++) {
        const void *address;
        size_t size;
        assert_int_equal(plugin->address(ranks[!r], &address, &size, why), 0);
        assert_int_equal(
            plugin->connect(ranks[r], !r, address, 100 + (uint64_t)!r + (r == 1 ? wrong : 0), why),
            0);
    }
}

/* No memory with a name, and no socket that other users reach. */
static void test_nothing_local(void **state)
{
    const uni__ucx_plugin *plugin = load();
    void *ranks[2];
    char path[300], target[PATH_MAX];
    connect_two(plugin, ranks, 0);
    DIR *files = opendir("/proc/self/fd");
    assert_non_null(files);
    for (struct dirent *entry; (entry = readdir(files));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t size = readlink(path, target, sizeof target - 1);
        target[size > 0 ? size : 0] = '\0';
        struct sockaddr_un name = { 0 };
        socklen_t length = sizeof name;
        if (strstr(target, "/dev/shm/") ||
            (getsockname(atoi(entry->d_name), (struct sockaddr *)&name, &length) == 0 &&
             name.sun_family == AF_UNIX && length > offsetof(struct sockaddr_un, sun_path)))
            fail_msg("%s: %s @%.100s", path, target, name.sun_path + 1);
    }
    closedir(files);
    for (int r = 0; r < 2; r++)
        plugin->carrier->close(ranks[r], 0);
}

/* Rank 1 has the address of rank 0, but another token. */
static void test_token(void **state)
{
    const uni__ucx_plugin *plugin = load();
    for (uint64_t wrong = 0; wrong < 2; wrong++) {
        void *ranks[2];
        char why[UNI__WHY_SIZE];
        int met[2] = { 0, 0 };
        connect_two(plugin, ranks, wrong);
        uint64_t end = uni__monotonic_ns() + (wrong ? 300000000u : 10000000000u);
        while (!(met[0] && met[1]) && uni__monotonic_ns() < end)
            for (int r = 0; r < 2; r++)
                assert_int_equal(plugin->carrier->meet(ranks[r], &met[r], why), 0);
        assert_int_equal(met[0], !wrong);
        assert_int_equal(met[1], 1);
        for (int r = 0; r < 2; r++)
            plugin->carrier->close(ranks[r], 0);
    }
}

/* Rank 1 knows the token, as all that read the network do, but not the key of rank 0. Messages of
 * another length are not opened at all. */
enum {
    GREETS,
    GREETS_AT_LENGTH,
    MEETS_BARRIER,
    MEETS_AT_LENGTH,
    GATHERS,
    GATHERS_WITH_ANOTHER_KEY,
    GATHERS_AT_LENGTH,
    LEAVES,
    LEAVES_AT_LENGTH,
    NUM_WAYS
};

static void seal_nothing(void *context, const uni__seal_place *place, void *out, const void *in,
                         size_t size)
{
    memset(out, 1, size + ((const uni__seal *)context)->extra);
}

static bool is_at_length(int way)
{
    return way == GREETS_AT_LENGTH || way == MEETS_AT_LENGTH || way == GATHERS_AT_LENGTH ||
           way == LEAVES_AT_LENGTH;
}

static int meet_both(const uni__ucx_plugin *plugin, void *ranks[2], char *why)
{
    int met[2] = { 0, 0 }, code = 0;
    for (uint64_t end = uni__monotonic_ns() + 10000000000u;
         code == 0 && !(met[0] && met[1]) && uni__monotonic_ns() < end;) {
        code = plugin->carrier->meet(ranks[0], &met[0], why);
        (void)plugin->carrier->meet(ranks[1], &met[1], (char[UNI__WHY_SIZE]){ 0 });
    }
    return code;
}

/* What rank 0 says to a call that both make; only rank 0 with `leaves`. 1: it was done. */
static int call_both(const uni__ucx_plugin *plugin, void *ranks[2], int kind, bool leaves,
                     char *why)
{
    int32_t in[4] = { 1, 2, 3, 4 }, out[2][8];
    void *handles[2];
    uni__carrier_difference differs;
    char other[UNI__WHY_SIZE];
    int code = 0, done[2] = { 0, 0 }, ranks_left = leaves ? 1 : 2;
    for (int r = 0; r < ranks_left; r++) {
        uni__carrier_call call = { .kind = kind,
                                   .dtype = UNI_I32,
                                   .count = kind == UNI__KIND_BARRIER ? 0 : 4,
                                   .in = in,
                                   .out = out[r] };
        assert_int_equal(plugin->carrier->start(ranks[r], &call, &handles[r], other), 0);
    }
    for (uint64_t end = uni__monotonic_ns() + 10000000000u;
         code == 0 && !done[0] && uni__monotonic_ns() < end;) {
        code = plugin->carrier->test(ranks[0], handles[0], &done[0], &differs, why);
        if (!leaves && !done[1])
            (void)plugin->carrier->test(ranks[1], handles[1], &done[1], &differs, other);
    }
    return done[0] ? 1 : code;
}

static void test_forged(void **state)
{
    const uni__ucx_plugin *plugin = load();
    uni__seal *seals[2];
    const uint8_t keys[2][UNI__DATA_KEY_BYTES] = { { 1 }, { 2 } };
    for (int i = 0; i < 2; i++)
        assert_int_equal(uni__seal_new(&seals[i], keys[i], NULL), 0);
    uni__seal longer = { .context = &longer, .extra = seals[0]->extra + 1, .seal = seal_nothing };
    for (int way = 0; way < NUM_WAYS; way++) {
        void *ranks[2];
        char why[UNI__WHY_SIZE] = "";
        bool greets = way == GREETS || way == GREETS_AT_LENGTH;
        bool leaves = way == LEAVES || way == LEAVES_AT_LENGTH;
        int kind = way == MEETS_BARRIER || way == MEETS_AT_LENGTH || leaves ? UNI__KIND_BARRIER
                                                                            : UNI__KIND_ALL_GATHER;
        connect_two(plugin, ranks, 0);
        int code = greets ? 0 : meet_both(plugin, ranks, why);
        assert_int_equal(code, 0);
        plugin->carrier->protect(ranks[0], seals[0]);
        if (is_at_length(way) || way == GATHERS_WITH_ANOTHER_KEY)
            plugin->carrier->protect(ranks[1], is_at_length(way) ? &longer : seals[1]);
        if (leaves)
            plugin->carrier->close(ranks[1], 1);
        code = greets ? meet_both(plugin, ranks, why) : call_both(plugin, ranks, kind, leaves, why);
        if (code != UNI_ECORRUPT || !strstr(why, "a message of rank 1 was changed"))
            fail_msg("way %d: %d: %s", way, code, why);
        for (int r = 0; r < (leaves ? 1 : 2); r++)
            plugin->carrier->close(ranks[r], 0);
    }
    for (int i = 0; i < 2; i++)
        uni__seal_free(seals[i]);
}

/* ---- sealed ---- */

typedef struct sealing {
    uni__socket_mesh *mesh;
    bool wrong; /* rank 1 has another key */
} sealing;

static const char *moves(rank *me, uni_comm *comm)
{
    int32_t one[1000], all[3000];
    for (int i = 0; i < 1000; i++)
        one[i] = me->rank * 1000 + i;
    OK(uni_comm_all_gather(comm, one, all, 1000, UNI_I32, err));
    for (int i = 0; i < 3000; i++)
        CHECK(all[i] == i);
    OK(uni_comm_broadcast(comm, one, 1000, UNI_I32, 2, err));
    CHECK(one[0] == 2000 && one[999] == 2999);
    if (me->rank == 0)
        OK(uni_comm_send(comm, all, 3000, UNI_I32, 1, err));
    memset(all, 0, sizeof all);
    if (me->rank == 1)
        OK(uni_comm_recv(comm, all, 3000, UNI_I32, 0, err));
    CHECK(me->rank != 1 || all[2999] == 2999);
    OK(uni_comm_finalize(comm, err));
    return NULL;
}

static const char *sealed_rank(rank *me)
{
    const sealing *it = me->context;
    uint8_t key[32] = { 7 };
    uni_comm *comm = NULL;
    uni_error failure = { 0 };
    const char *wrong = NULL;
    key[1] = it->wrong && me->rank == 1;
    uni__rendezvous peers = uni__socket_mesh_rank(it->mesh, me->rank);
    peers.data_key = key;
    if (it->wrong) {
        int code = uni__comm_open_ucx(&comm, &peers, NULL, 3, 10000, &failure);
        /* The first that notices leaves, and may be gone before others hear its greeting. */
        if ((code != UNI_ECORRUPT ||
             !strstr(failure.message, "was changed, repeated or left out")) &&
            (code != UNI_EPEER || !strstr(failure.message, "is gone")))
            wrong = say(me, "rank %d: %s: %s", me->rank, uni_status_name(code), failure.message);
        return wrong;
    }
    OK(uni__comm_open_ucx(&comm, &peers, NULL, 3, 10000, err));
    OK(uni_comm_barrier(comm, err));
    wrong = sum_of_ranks(me, comm, me->rank, me->size);
    wrong = wrong ? wrong : moves(me, comm);
    uni_comm_close(comm);
    return wrong;
}

static void test_sealed(void **state)
{
    for (int wrong = 0; wrong < 2; wrong++) {
        sealing it = { .wrong = wrong };
        uni_error failure = { 0 };
        assert_int_equal(uni__socket_mesh_new(&it.mesh, 3, &failure), 0);
        run(&(run_options){ .transport = "ucx", .size = 3, .context = &it }, sealed_rank);
        uni__socket_mesh_free(it.mesh);
    }
}

int main(void)
{
    /* The last three load UCX into this process, which must not be forked after that. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings),  cmocka_unit_test(test_killed),
        cmocka_unit_test(test_differing), cmocka_unit_test(test_message),
        cmocka_unit_test(test_aborted),   cmocka_unit_test(test_closing),
        cmocka_unit_test(test_sealed),    cmocka_unit_test(test_token),
        cmocka_unit_test(test_forged),    cmocka_unit_test(test_nothing_local),
    };
    return cmocka_run_group_tests_name("ucx", tests, NULL, NULL);
}
