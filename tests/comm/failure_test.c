/*
 * failure_test.c - nothing hangs: ranks that die, stop, leave, call something else or wait in a circle, and what
 * the others are told, within a second. Processes over shm, and threads for what threads can do.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "comm/shared.h"
#include "base/clock.h"
#include "base/file.h"
#include "comm/algorithm.h"
#include "comm/recorder.h"
#include "comm/table.h"
#include "harness.h"
#include "../patience.h"

enum { ROUNDS = 0, STRUCK_MS = 1 };

static uint32_t now_ms(void)
{
    return (uint32_t)(uni__monotonic_ns() / 1000000u);
}

/* What the survivors must report: this code, a sentence with all these words, within a second. */
typedef struct expectation {
    int code;
    const char *words[5];
    bool goes_on; /* the communicator works afterwards */
} expectation;

/* The next collectives are right on every rank. */
static const char *work_on(rank *me)
{
    float sum[600];
    uni_comm_request *requests[30];
    for (int i = 0; i < 40; i++) {
        for (int j = 0; j < 600; j++)
            sum[j] = (float)(me->rank + j);
        OK(uni_comm_all_reduce(me->comm, sum, sum, 600, UNI_F32, UNI_COMM_SUM, err));
        CHECK(sum[7] == (float)(me->size * 7 + me->size * (me->size - 1) / 2));
    }
    for (int i = 0; i < 30; i++) {
        sum[i] = (float)i;
        OK(uni_comm_all_reduce_start(&requests[i], me->comm, &sum[i], &sum[i], 1, UNI_F32,
                                     UNI_COMM_SUM, 1, err));
    }
    for (int i = 29; i >= 0; i--) {
        OK(uni_comm_wait(requests[i], err));
        CHECK(sum[i] == (float)(i * me->size));
    }
    return NULL;
}

static const char *judge(rank *me, const expectation *want, int code, const uni_error *err)
{
    uint32_t struck = atomic_load(&me->shared[STRUCK_MS]);
    me->result->seconds = struck ? (double)(now_ms() - struck) * 1e-3 : 0;
    me->result->code = code;
    if (code != want->code)
        return say(me, "rank %d: %s, not %s: %s", me->rank, uni_status_name(code),
                   uni_status_name(want->code), err->message);
    for (int i = 0; i < 5 && want->words[i]; i++)
        if (!strstr(err->message, want->words[i]))
            return say(me, "rank %d: no \"%s\" in: %s", me->rank, want->words[i], err->message);
    CHECK(me->result->seconds < 1.0 * test_patience());
    if (want->goes_on)
        return work_on(me);
    uni_error again = { 0 };
    CHECK(uni_comm_barrier(me->comm, &again) ==
          code); /* broken stays broken, with the first cause */
    CHECK(strcmp(again.message, err->message) == 0);
    return NULL;
}

/* All ranks reduce until something happens to one of them. */
static const char *reduce_for_ever(rank *me)
{
    size_t count = 40000;
    float *data = calloc(count, sizeof *data);
    uni_error bad = { 0 };
    int code = 0;
    for (int i = 0; code == 0; i++) {
        code = uni_comm_all_reduce(me->comm, data, data, i % 2 ? count : 10, UNI_F32, UNI_COMM_SUM,
                                   &bad);
        atomic_fetch_add(&me->shared[ROUNDS], 1);
    }
    free(data);
    return judge(me, me->context, code, &bad);
}

static void strike(const rank_result *results, _Atomic uint32_t *shared, int sig)
{
    uint32_t end = now_ms() + 10000;
    while (atomic_load(&shared[ROUNDS]) < 60 && now_ms() < end)
        usleep(300);
    atomic_store(&shared[STRUCK_MS], now_ms());
    kill(results[1].pid, sig);
}

static void kill_one(const rank_result *results, _Atomic uint32_t *shared, void *context)
{
    strike(results, shared, SIGKILL);
}

static void stop_one(const rank_result *results, _Atomic uint32_t *shared, void *context)
{
    strike(results, shared, SIGSTOP);
    usleep(1200000); /* the others have to be done by then */
    kill(results[1].pid, SIGKILL);
}

static void check_run(const run_options *options, rank_function function)
{
    const char *wrong = run_ranks(options, function, NULL);
    if (wrong)
        fail_msg("%d ranks: %s", options->size, wrong);
}

static void test_killed(void **state)
{
    static const int sizes[] = { 2, 3, 7 };
    expectation want = { UNI_EWORKER,
                         { "rank 1", "has died", "all_reduce #", "rank 0 is in #" },
                         false };
    for (int i = 0; i < 3; i++)
        check_run(&(run_options){ .transport = "shm",
                                  .size = sizes[i],
                                  .context = &want,
                                  .may_die = true,
                                  .meanwhile = kill_one },
                  reduce_for_ever);
}

/* Rank 1 dies while the others are in the last meeting. */
static const char *finalize_rank(rank *me)
{
    uni_error bad = { 0 };
    OK(uni_comm_barrier(me->comm, err));
    if (me->rank == 1) {
        usleep(100000);
        atomic_store(&me->shared[STRUCK_MS], now_ms());
        kill(getpid(), SIGKILL);
    }
    int code = uni_comm_finalize(me->comm, &bad);
    return judge(me, me->context, code, &bad);
}

static void test_killed_at_the_end(void **state)
{
    expectation want = { UNI_EWORKER, { "rank 1", "has died", "finalize #3" }, false };
    check_run(&(run_options){ .transport = "shm", .size = 3, .context = &want, .may_die = true },
              finalize_rank);
}

static void test_stopped(void **state)
{
    expectation want = { UNI_EWORKER, { "rank 1", "is stopped", "all_reduce #" }, false };
    for (int size = 2; size <= 4; size += 2)
        check_run(&(run_options){ .transport = "shm",
                                  .size = size,
                                  .context = &want,
                                  .may_die = true,
                                  .meanwhile = stop_one },
                  reduce_for_ever);
}

/* Rank 1 does something else, by number. */
static const char *disagree(rank *me)
{
    const expectation *want = me->context;
    int way = (int)atomic_load(&me->shared[5]), code = 0;
    float data[64] = { 0 };
    uni_error bad = { 0 };
    for (int i = 0; i < 20; i++) /* well at first */
        OK(uni_comm_all_reduce(me->comm, data, data, 64, UNI_F32, UNI_COMM_SUM, err));
    uint32_t none = 0;
    atomic_compare_exchange_strong(&me->shared[STRUCK_MS], &none, now_ms());
    bool odd = me->rank == 1;
    switch (way) {
    case 0: /* another kind */
        code = odd ? uni_comm_broadcast(me->comm, data, 64, UNI_F32, 0, &bad)
                   : uni_comm_all_reduce(me->comm, data, data, 64, UNI_F32, UNI_COMM_SUM, &bad);
        break;
    case 1: /* another size */
        code =
            uni_comm_all_reduce(me->comm, data, data, odd ? 63 : 64, UNI_F32, UNI_COMM_SUM, &bad);
        break;
    case 2: /* another type */
        code = uni_comm_all_reduce(me->comm, data, data, 8, odd ? UNI_F64 : UNI_F32, UNI_COMM_SUM,
                                   &bad);
        break;
    case 3: /* another operation */
        code = uni_comm_all_reduce(me->comm, data, data, 8, UNI_F32,
                                   odd ? UNI_COMM_MAX : UNI_COMM_SUM, &bad);
        break;
    case 4: /* another root */
        code = uni_comm_broadcast(me->comm, data, 8, UNI_F32, odd ? 1 : 0, &bad);
        break;
    case 5: /* the end */
        code = odd ? uni_comm_finalize(me->comm, &bad) : uni_comm_barrier(me->comm, &bad);
        break;
    case 6: /* another size, large: the others are already reducing */
        code = uni_comm_barrier(me->comm, &bad);
        for (int i = 0; i < 3 && code == 0; i++)
            code = uni_comm_all_gather(me->comm, data, data + 32, odd && i == 1 ? 3 : 2, UNI_F32,
                                       &bad);
        break;
    case 7: /* in a circle: each waits for a call that the other does not make */
        code = odd ? uni_comm_recv(me->comm, data, 8, UNI_F32, 0, &bad)
                   : uni_comm_all_reduce(me->comm, data, data, 8, UNI_F32, UNI_COMM_SUM, &bad);
        break;
    default: /* recv of another size than was sent */
        if (me->rank == 0)
            code = uni_comm_send(me->comm, data, 8, UNI_F32, 1, &bad);
        if (!odd)
            return code == 0 ? work_on(me) : say(me, "the sender failed: %s", bad.message);
        code = uni_comm_recv(me->comm, data, 9, UNI_F32, 0, &bad);
    }
    return judge(me, want, code, &bad);
}

static int which_way;

static const char *disagree_as_told(rank *me)
{
    atomic_store(&me->shared[5], (uint32_t)which_way);
    return disagree(me);
}

static void test_disagree(void **state)
{
    static const char *const words[9][3] = {
        { "broadcast(64 float32, root 0)", "all_reduce(sum of 64 float32)", "#" },
        { "63 float32", "64 float32", "all_reduce #" },
        { "8 float64", "8 float32", "all_reduce #" },
        { "max of 8", "sum of 8", "all_reduce #" },
        { "root 0", "root 1", "broadcast #" },
        { "finalize", "barrier", "#" },
        { "3 float32", "2 float32", "all_gather #" },
        { "different orders", "waits for rank", "#" },
        { "9 float32", "8 float32", "#" },
    };
    static const char *const transports[] = { "thread", "shm" };
    for (int t = 0; t < 2; t++)
        for (int size = 2; size <= 4; size += 2)
            for (which_way = 0; which_way < 9; which_way++) {
                const char *const *w = words[which_way];
                expectation want = { UNI_EMISMATCH,
                                     { w[0], w[1], w[2], "rank 1" },
                                     which_way != 7 };
                check_run(
                    &(run_options){ .transport = transports[t], .size = size, .context = &want },
                    disagree_as_told);
            }
}

/* One of many requests under way does not match: it alone fails, on every rank, and by its own error. */
static const char *disagree_in_one(rank *me)
{
    enum { MANY = 300, ODD = 150 };
    float data[MANY];
    uni_comm_request *requests[MANY];
    for (int i = 0; i < MANY; i++) {
        data[i] = (float)(i + me->rank);
        uni_comm_op op = i == ODD && me->rank == 1 ? UNI_COMM_MAX : UNI_COMM_SUM;
        OK(uni_comm_all_reduce_start(&requests[i], me->comm, &data[i], &data[i], 1, UNI_F32, op, 1,
                                     err));
    }
    for (int i = 0; i < MANY; i++) {
        uni_error bad = { 0 };
        int code = uni_comm_wait(requests[i], &bad);
        CHECK(code == (i == ODD ? UNI_EMISMATCH : 0));
        CHECK(i != ODD || (strstr(bad.message, "max of 1") && strstr(bad.message, "rank 1")));
        CHECK(i == ODD || data[i] == (float)(me->size * i + me->size * (me->size - 1) / 2));
    }
    return work_on(me);
}

/* More collectives than there is room for do not keep the messages back that the peer needs first. */
static const char *many_at_once(rank *me)
{
    enum { MANY = 1000 };
    float *data = calloc(MANY, sizeof *data), message[8] = { 0 };
    uni_comm_request *requests[MANY];
    CHECK(data != NULL);
    if (me->rank == 1)
        OK(uni_comm_recv(me->comm, message, 8, UNI_F32, 0, err));
    for (int i = 0; i < MANY; i++) {
        data[i] = (float)i;
        OK(uni_comm_all_reduce_start(&requests[i], me->comm, &data[i], &data[i], 1, UNI_F32,
                                     UNI_COMM_SUM, 1, err));
    }
    if (me->rank == 0)
        OK(uni_comm_send(me->comm, message, 8, UNI_F32, 1, err));
    for (int i = MANY - 1; i >= 0; i--)
        OK(uni_comm_wait(requests[i], err));
    for (int i = 0; i < MANY; i++)
        CHECK(data[i] == (float)(me->size * i));
    /* Messages wait for their receiver in the order in which they were sent. */
    for (int i = 0; i < MANY; i++) {
        data[i] = (float)(i + 1);
        OK(me->rank == 0 ? uni_comm_send_start(&requests[i], me->comm, &data[i], 1, UNI_F32, 1, err)
           : me->rank == 1
               ? uni_comm_recv_start(&requests[i], me->comm, &data[i], 1, UNI_F32, 0, err)
               : 0);
    }
    for (int i = 0; i < MANY && me->rank < 2; i++) {
        OK(uni_comm_wait(requests[i], err));
        CHECK(data[i] == (float)(i + 1));
    }
    free(data);
    return work_on(me);
}

static void test_many_requests(void **state)
{
    static const char *const transports[] = { "thread", "shm" };
    for (int t = 0; t < 2; t++)
        for (int size = 2; size <= 4; size++) {
            check_run(&(run_options){ .transport = transports[t], .size = size }, disagree_in_one);
            check_run(&(run_options){ .transport = transports[t], .size = size }, many_at_once);
        }
}

static const char *leave_early(rank *me)
{
    float data[8] = { 0 };
    uni_error bad = { 0 };
    OK(uni_comm_barrier(me->comm, err));
    if (me->rank == 1)
        return NULL; /* the harness closes */
    uint32_t none = 0;
    atomic_compare_exchange_strong(&me->shared[STRUCK_MS], &none, now_ms());
    int code = uni_comm_all_reduce(me->comm, data, data, 8, UNI_F32, UNI_COMM_SUM, &bad);
    return judge(me, me->context, code, &bad);
}

static void test_leaves(void **state)
{
    expectation want = { UNI_EWORKER, { "rank 1", "all_reduce #" }, false };
    check_run(&(run_options){ .transport = "thread", .size = 3, .context = &want }, leave_early);
    check_run(&(run_options){ .transport = "shm", .size = 3, .context = &want }, leave_early);
}

static const char *give_up_rank(rank *me)
{
    float data[8] = { 0 };
    uni_error bad = { 0 };
    OK(uni_comm_barrier(me->comm, err));
    if (me->rank == 2) {
        usleep(100000);
        atomic_store(&me->shared[STRUCK_MS], now_ms());
        uni_comm_abort(me->comm, "the disk of rank 2 is full");
    }
    int code = uni_comm_all_reduce(me->comm, data, data, 8, UNI_F32, UNI_COMM_SUM, &bad);
    return judge(me, me->context, code, &bad);
}

static void test_abort(void **state)
{
    expectation want = { UNI_ECANCELED, { "the disk of rank 2 is full" }, false };
    check_run(&(run_options){ .transport = "thread", .size = 3, .context = &want }, give_up_rank);
    check_run(&(run_options){ .transport = "shm", .size = 3, .context = &want }, give_up_rank);
}

static const char *slow_rank(rank *me)
{
    uni_error bad = { 0 };
    OK(uni_comm_barrier(me->comm, err));
    if (me->rank == 0)
        usleep(700000);
    int code = uni_comm_barrier(me->comm, &bad);
    return judge(me, me->context, code, &bad);
}

static void test_timeout(void **state)
{
    expectation want = { UNI_ETIMEOUT, { "rank 0", "barrier #2", "300 ms" }, false };
    check_run(
        &(run_options){
            .transport = "thread", .size = 2, .context = &want, .comm = { .timeout_ms = 300 } },
        slow_rank);
}

/* Wrong arguments fail on the rank that gives them and break nothing. */
static const char *wrong_arguments(rank *me)
{
    uni_error bad = { 0 };
    float data[8] = { 0 };
    CHECK(uni_comm_all_reduce(me->comm, data, data, 8, UNI_U32, UNI_COMM_SUM, &bad) == UNI_EDTYPE);
    CHECK(uni_comm_all_reduce(me->comm, data, data, 8, UNI_F32, UNI_COMM_AND, &bad) == UNI_EDTYPE);
    CHECK(uni_comm_all_reduce(me->comm, data, data, 2, UNI_I32, UNI_COMM_MEAN, &bad) == UNI_EDTYPE);
    CHECK(uni_comm_all_reduce(me->comm, NULL, data, 8, UNI_F32, UNI_COMM_SUM, &bad) == UNI_EINVAL);
    CHECK(uni_comm_all_reduce(me->comm, data, data, 8, UNI_F32, (uni_comm_op)9, &bad) ==
          UNI_EINVAL);
    CHECK(uni_comm_broadcast(me->comm, data, 8, UNI_F32, me->size, &bad) == UNI_EINVAL);
    CHECK(uni_comm_send(me->comm, data, 8, UNI_F32, me->rank, &bad) == UNI_EINVAL);
    CHECK(uni_comm_all_to_all(me->comm, data, data, 1, UNI_F32, &bad) == UNI_EINVAL);
    CHECK(strstr(bad.message, "in place") != NULL);
    OK(uni_comm_all_reduce(me->comm, data, data, 8, UNI_F32, UNI_COMM_SUM, err));
    uni_comm_buffer *buffer = NULL;
    CHECK(uni_comm_alloc(&buffer, me->comm, me->rank ? 5000 : 9000, &bad) == UNI_EMISMATCH);
    OK(uni_comm_barrier(me->comm, err));
    OK(uni_comm_finalize(me->comm, err));
    CHECK(uni_comm_barrier(me->comm, &bad) == UNI_ESTATE);
    return NULL;
}

static void test_arguments(void **state)
{
    check_run(&(run_options){ .transport = "thread", .size = 2 }, wrong_arguments);
    check_run(&(run_options){ .transport = "shm", .size = 2 }, wrong_arguments);
}

/* Parameters that drifted apart are found, and by whom. */
static const char *drift(rank *me)
{
    uni_error bad = { 0 };
    float data[100] = { 0 };
    OK(uni_comm_check_equal(me->comm, data, sizeof data, "parameters", err));
    data[50] = me->rank == 2 ? 1e-30f : 0;
    CHECK(uni_comm_check_equal(me->comm, data, sizeof data, "parameters", &bad) == UNI_EMISMATCH);
    CHECK(strstr(bad.message, "rank 2 not as the others") != NULL);
    OK(uni_comm_barrier(me->comm, err));
    return NULL;
}

static void test_drift(void **state)
{
    check_run(&(run_options){ .transport = "shm", .size = 4 }, drift);
}

/* --- the recorder --- */

static const char *late_rank(rank *me)
{
    float data[10] = { 0 };
    uni_error bad = { 0 };
    int code = 0;
    for (int i = 0; code == 0; i++) {
        if (me->rank == 1)
            usleep(20000);
        code = uni_comm_all_reduce(me->comm, data, data, 10, UNI_F32, UNI_COMM_SUM, &bad);
        atomic_fetch_add(&me->shared[ROUNDS], 1);
    }
    return NULL;
}

static void kill_all(const rank_result *results, _Atomic uint32_t *shared, void *context)
{
    uint32_t end = now_ms() + 10000;
    while (atomic_load(&shared[ROUNDS]) < 45 && now_ms() < end)
        usleep(300);
    for (int r = 2; r >= 0; r--)
        kill(results[r].pid, SIGKILL);
}

static void test_recorder(void **state)
{
    char dir[256];
    assert_non_null(mkdtemp(uni__temporary_name(dir, sizeof dir, "comm")));
    check_run(&(run_options){ .transport = "shm",
                              .size = 3,
                              .may_die = true,
                              .comm = { .record_dir = dir },
                              .meanwhile = kill_all },
              late_rank);
    uni_error bad = { 0 };
    for (int r = 0; r < 3; r++) {
        char path[320];
        uni__record_file file;
        snprintf(path, sizeof path, "%s/comm_rank_%d.bin", dir, r);
        assert_int_equal(uni__record_file_read(&file, path, &bad), 0);
        assert_int_equal(file.rank, r);
        assert_int_equal(file.size, 3);
        assert_true(file.num_records >= 12);
        int by_one = 0;
        for (int i = 1; i + 1 < file.num_records; i++)
            by_one += file.records[i].late_rank == 1 && file.records[i].late_ns > 5000000;
        assert_true(by_one * 10 >= (file.num_records - 2) * 8);
        assert_true(file.late[1].times > file.late[0].times + file.late[2].times);
        uni__record_file_free(&file);
    }
    uni__text text = { 0 };
    assert_int_equal(uni__recorder_describe(&text, dir, 3, &bad), 0);
    assert_non_null(strstr(text.data, "rank 1 came last in"));
    assert_non_null(strstr(text.data, "rank 2 (pid"));
    assert_non_null(strstr(text.data, "all_reduce"));
    /* A file cut off or scribbled over is refused, not believed. */
    char path[320];
    snprintf(path, sizeof path, "%s/comm_rank_1.bin", dir);
    assert_int_equal(truncate(path, 1000), 0);
    uni__record_file file;
    assert_int_equal(uni__record_file_read(&file, path, &bad), UNI_EFORMAT);
    uni__text_free(&text);
    assert_int_equal(uni__remove_tree(dir, &bad), 0);
    assert_int_equal(uni__recorder_describe(&text, dir, 3, &bad), UNI_ENOTFOUND);
}

/* --- buckets --- */

static const char *buckets_rank(rank *me)
{
    enum { TENSORS = 40 };
    size_t counts[TENSORS], total = 0;
    for (int t = 0; t < TENSORS; t++)
        total += counts[t] = (size_t)(t * 37 % 50) * 10;
    uni_comm_buffer *buffer = NULL;
    uni__comm_buckets *buckets = NULL;
    OK(uni_comm_alloc(&buffer, me->comm, total * sizeof(float), err));
    float *flat = uni_comm_buffer_data(buffer);
    OK(uni__comm_buckets_new(
        &buckets, me->comm, flat, UNI_F32, TENSORS, counts,
        &(uni__comm_bucket_options){ .bucket_bytes = 1200, .op = UNI_COMM_MEAN }, err));
    CHECK(uni__comm_buckets_count(buckets) > 16); /* more than can be under way */
    for (int step = 0; step < 5; step++) {
        for (size_t i = 0; i < total; i++)
            flat[i] = (float)((size_t)(me->rank + 1) * (i % 100 + (size_t)step));
        OK(uni__comm_buckets_begin(buckets, 2, err));
        for (int t = 0; t < TENSORS; t++) { /* each rank in an order of its own; some never said */
            int which = (t * 7 + me->rank * 11) % TENSORS;
            if (which != 3)
                OK(uni__comm_buckets_ready(buckets, which, err));
        }
        uni_error bad = { 0 };
        CHECK(uni__comm_buckets_ready(buckets, 5, &bad) == UNI_ESTATE);
        OK(uni__comm_buckets_finish(buckets, err));
        int n = me->size;
        for (size_t i = 0; i < total; i++)
            CHECK(flat[i] ==
                  (float)((size_t)(n * (n + 1) / 2) * (i % 100 + (size_t)step)) / (float)(2 * n));
    }
    uni__comm_buckets_free(buckets);
    return NULL;
}

static void test_buckets(void **state)
{
    for (int size = 1; size <= 4; size++) {
        check_run(&(run_options){ .transport = "thread", .size = size }, buckets_rank);
        check_run(&(run_options){ .transport = "shm", .size = size }, buckets_rank);
    }
}

/* --- opening --- */

/* Rank 1 dies before it opens: the others are told by their sockets or their time limit, and quickly. */
static void test_dies_before_open(void **state)
{
    uni__socket_mesh *mesh = NULL;
    uint32_t begun = now_ms();
    assert_int_equal(uni__socket_mesh_new(&mesh, 3, NULL), 0);
    int pids[3], status;
    for (int r = 0; r < 3; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            uni__rendezvous peers = uni__socket_mesh_rank(mesh, r);
            uni_comm *comm = NULL;
            if (r == 1)
                _exit(9);
            usleep(50000);
            int code = uni__comm_open_shm(&comm, &peers, NULL, 700, NULL);
            _exit(code < 0 && comm == NULL ? 0 : 1);
        }
    }
    uni__socket_mesh_free(mesh);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, r == 1 ? 9 << 8 : 0);
    }
    assert_true(now_ms() - begun < 3000 * test_patience());
}

/* Whichever rank cannot be opened, no communicator is left and nothing is freed twice (ASan). */
static void test_cannot_open(void **state)
{
    for (int n = 1; n <= 3; n++) {
        uni_comm *comms[3];
        uni_error err = { 0 };
        uni_comm_options options = { .record_dir = "/dev/null/missing" };
        assert_true(uni_comm_open_threads(comms, n, &options, &err) < 0);
        assert_non_null(strstr(err.message, "/dev/null/missing"));
        for (int r = 0; r < n; r++)
            assert_null(comms[r]);
    }
}

static void test_table(void **state)
{
    uni__text text = { 0 };
    uni__table_print(&text);
    assert_non_null(strstr(text.data, "all_reduce"));
    assert_non_null(strstr(text.data, "slices"));
    assert_string_equal(uni__table_choose(1, 100, 2)->name, "small");
    assert_string_equal(uni__table_choose(1, 1 << 20, 2)->name, "slices");
    uni__text_free(&text);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),        cmocka_unit_test(test_killed_at_the_end),
        cmocka_unit_test(test_stopped),       cmocka_unit_test(test_disagree),
        cmocka_unit_test(test_many_requests), cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_abort),         cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_arguments),     cmocka_unit_test(test_drift),
        cmocka_unit_test(test_recorder),      cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_table),         cmocka_unit_test(test_dies_before_open),
        cmocka_unit_test(test_cannot_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
