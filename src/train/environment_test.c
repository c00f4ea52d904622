/* environment_test.c - what each backend's workers find in their environment (docs/environment.md),
 * on one machine and on hosts, to the last variable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "train/test_helpers.h"
#include "train/hosts_internal.h"

extern char **environ;

static uni__rank_place places[FAKE_RANKS]; /* of hosts; size 0: all on this machine */
static bool shares_storage, over_ucx;

bool uni__group_place(uni__group *group, int rank, uni__rank_place *out)
{
    *out = places[rank];
    return places[rank].local_size > 0;
}

bool uni__hosts_use_ucx(const uni_trainer *trainer)
{
    return over_ucx;
}

void uni__world_view(const uni__world *world, int rank, uni__view *out)
{
    *out = (uni__view){ .shared = shares_storage };
    out->remote = uni__group_place(NULL, rank, &out->place);
    snprintf(out->run_dir, sizeof out->run_dir, "%s", world->dir ? world->dir : "");
    snprintf(out->staging_dir, sizeof out->staging_dir, "%s",
             world->staging_dir ? world->staging_dir : "");
    snprintf(out->checkpoint, sizeof out->checkpoint, "%s",
             world->checkpoint ? world->checkpoint : "");
}

static char *kept_environment[] = { "PATH=/bin", "HOME=/home/me", NULL };

static int setup(void **state)
{
    int status = fake_setup(state);
    environ = kept_environment;
    over_ucx = false;
    shares_storage = true;
    memset(places, 0, sizeof places);
    the->trainer.options.num_workers = 4;
    the->trainer.cpus_each = 2;
    the->trainer.host = (uni__host){ .cpus = 8, .hostname = "here", .address = "127.0.0.1" };
    the->trainer.extra_environment = uni_value_list();
    return status;
}

static int teardown(void **state)
{
    uni_value_free(the->trainer.extra_environment);
    return fake_teardown(state);
}

/* The whole list, a line each, without what was there before. */
static void expect(const uni__world *world, int rank, const char *expected)
{
    char text[4096] = "";
    uni_value *list = uni__world_environment(world, rank);
    for (size_t i = 0; i < uni_list_size(list); i++) {
        const char *pair = uni_value_as_string(uni_list_get(list, i), "");
        size_t used = strlen(text);
        if (strcmp(pair, "PATH=/bin") != 0 && strcmp(pair, "HOME=/home/me") != 0)
            snprintf(text + used, sizeof text - used, "%s\n", pair);
    }
    assert_string_equal(text, expected);
    uni_value_free(list);
}

/* The value of one variable, or NULL. */
static const char *value_of(const uni__world *world, int rank, const char *name)
{
    static char value[1024];
    bool found = false;
    size_t length = strlen(name);
    uni_value *list = uni__world_environment(world, rank);
    for (size_t i = 0; i < uni_list_size(list); i++) {
        const char *pair = uni_value_as_string(uni_list_get(list, i), "");
        if (strncmp(pair, name, length) == 0 && pair[length] == '=') {
            assert_false(found); /* each name once */
            found = true;
            snprintf(value, sizeof value, "%s", pair + length + 1);
        }
    }
    uni_value_free(list);
    return found ? value : NULL;
}

static void add(const char *pair)
{
    assert_int_equal(uni_list_take(the->trainer.extra_environment, uni_value_string(pair)), 0);
}

static void on_one_machine(void **state)
{
    uni__world world = { .trainer = &the->trainer,
                         .size = 4,
                         .attempt = 2,
                         .dir = "/runs/x",
                         .staging_dir = "/runs/x/.s",
                         .checkpoint = "/runs/x/c" };
    expect(&world, 3,
           "UNISONO_RANK=3\nUNISONO_WORLD_SIZE=4\nUNISONO_LOCAL_RANK=3\n"
           "UNISONO_LOCAL_WORLD_SIZE=4\nUNISONO_NODE_RANK=0\n"
           "RANK=3\nWORLD_SIZE=4\nLOCAL_RANK=3\nLOCAL_WORLD_SIZE=4\nNODE_RANK=0\n"
           "UNISONO_ROLE=worker\nUNISONO_ROLE_INDEX=3\nUNISONO_ATTEMPT=2\n"
           "UNISONO_RUN_DIR=/runs/x\nUNISONO_STAGING=/runs/x/.s\nUNISONO_CHECKPOINT=/runs/x/c\n"
           "OMP_NUM_THREADS=2\nPYTHONUNBUFFERED=1\n");
}

static void on_hosts(void **state)
{
    places[2] = (uni__rank_place){ .node = 1,
                                   .num_nodes = 2,
                                   .local_rank = 0,
                                   .local_size = 2,
                                   .host = "there",
                                   .address = "10.0.0.2",
                                   .cpus = 6 };
    the->trainer.options.backend = "horovod";
    uni__world world = { .trainer = &the->trainer, .size = 4 };
    expect(&world, 2,
           "UNISONO_RANK=2\nUNISONO_WORLD_SIZE=4\nUNISONO_LOCAL_RANK=0\n"
           "UNISONO_LOCAL_WORLD_SIZE=2\nUNISONO_NODE_RANK=1\n"
           "RANK=2\nWORLD_SIZE=4\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=2\nNODE_RANK=1\n"
           "UNISONO_ROLE=worker\nUNISONO_ROLE_INDEX=2\nUNISONO_ATTEMPT=0\n"
           "HOROVOD_RANK=2\nHOROVOD_SIZE=4\nHOROVOD_LOCAL_RANK=0\nHOROVOD_LOCAL_SIZE=2\n"
           "HOROVOD_CROSS_RANK=1\nHOROVOD_CROSS_SIZE=2\nHOROVOD_HOSTNAME=there\n"
           "OMP_NUM_THREADS=3\nPYTHONUNBUFFERED=1\n");
    places[2].local_size = 0; /* here */
    assert_string_equal(value_of(&world, 2, "HOROVOD_LOCAL_RANK"), "2");
    assert_string_equal(value_of(&world, 2, "HOROVOD_LOCAL_SIZE"), "4");
    assert_string_equal(value_of(&world, 2, "HOROVOD_CROSS_SIZE"), "1");
    assert_string_equal(value_of(&world, 2, "HOROVOD_HOSTNAME"), "here");
}

/* TensorFlow's own layout: chief, worker, ps; an evaluator sees itself, and no other sees it. */
static void tensorflow(void **state)
{
    int numbers[] = { 5001, 5002, 5003, 5004 };
    uni__ports ports = { .numbers = numbers, .count = 4 };
    uni__world world = { .trainer = &the->trainer, .size = 4, .ports = &ports };
    the->trainer.options.backend = "tensorflow";
    assert_string_equal(value_of(&world, 2, "TF_CONFIG"),
                        "{\"cluster\": {\"worker\": [\"127.0.0.1:5001\", \"127.0.0.1:5002\", "
                        "\"127.0.0.1:5003\", \"127.0.0.1:5004\"]}, \"task\": {\"type\": "
                        "\"worker\", \"index\": 2}}");
    assert_string_equal(value_of(&world, 2, "TF_GRPC_REUSE_PORT"), "1");
    the->trainer.roles = (uni__roles){ .workers = 1, .servers = 1, .evaluators = 1 };
    assert_string_equal(value_of(&world, 2, "TF_CONFIG"),
                        "{\"cluster\": {\"chief\": [\"127.0.0.1:5001\"], \"worker\": "
                        "[\"127.0.0.1:5002\"], \"ps\": [\"127.0.0.1:5003\"]}, \"task\": {\"type\": "
                        "\"ps\", \"index\": 0}}");
    assert_string_equal(value_of(&world, 2, "UNISONO_ROLE"), "ps");
    assert_string_equal(value_of(&world, 3, "TF_CONFIG"),
                        "{\"cluster\": {\"chief\": [\"127.0.0.1:5001\"], \"worker\": "
                        "[\"127.0.0.1:5002\"], \"ps\": [\"127.0.0.1:5003\"], \"evaluator\": "
                        "[\"127.0.0.1:5004\"]}, \"task\": {\"type\": \"evaluator\", \"index\": "
                        "0}}");
    /* A rank without a port is in no cluster. */
    ports.count = 2;
    assert_string_equal(value_of(&world, 0, "TF_CONFIG"),
                        "{\"cluster\": {\"chief\": [\"127.0.0.1:5001\"], \"worker\": "
                        "[\"127.0.0.1:5002\"]}, \"task\": {\"type\": \"chief\", \"index\": 0}}");
    world.ports = NULL;
    assert_string_equal(value_of(&world, 0, "TF_CONFIG"),
                        "{\"cluster\": {}, \"task\": {\"type\": \"chief\", \"index\": 0}}");
}

static void torch(void **state)
{
    int numbers[] = { 5001 };
    uni__ports ports = { .numbers = numbers, .count = 1 };
    uni__world world = { .trainer = &the->trainer, .size = 4, .ports = &ports };
    the->trainer.options.backend = "torch";
    assert_string_equal(value_of(&world, 3, "MASTER_ADDR"), "127.0.0.1");
    assert_string_equal(value_of(&world, 3, "MASTER_PORT"), "5001");
    assert_null(value_of(&world, 3, "TF_CONFIG"));
    assert_null(value_of(&world, 3, "HOROVOD_RANK"));
    /* On hosts: rank 0's own, at the port that is held there. */
    the->run.group = world.group = (uni__group *)the; /* only its presence counts */
    for (int i = 0; i < 4; i++)
        places[i] = (uni__rank_place){ .local_size = 1, .address = "10.0.0.7", .port = 600 + i };
    assert_string_equal(value_of(&world, 3, "MASTER_ADDR"), "10.0.0.7");
    assert_string_equal(value_of(&world, 3, "MASTER_PORT"), "600");
    places[0].port = 0;
    assert_null(value_of(&world, 3, "MASTER_PORT"));
}

/* What the user has set, in the environment or for the workers, is the user's. */
static void threads(void **state)
{
    static const struct {
        double cpus, each;
        const char *threads;
        bool passive;
    } cases[] = { { 8, 2, "2", false },
                  { 4, 1, "1", false },
                  { 3.9, 1.9, "1", true },
                  { 2, 0.5, "1", true },
                  { 8, 2.9, "2", false } };
    uni__world world = { .trainer = &the->trainer, .size = 4 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        the->trainer.host.cpus = cases[i].cpus;
        the->trainer.cpus_each = cases[i].each;
        assert_string_equal(value_of(&world, 0, "OMP_NUM_THREADS"), cases[i].threads);
        const char *policy = value_of(&world, 0, "OMP_WAIT_POLICY");
        assert_int_equal(policy != NULL, cases[i].passive);
    }
    the->trainer.host.cpus = 1;
    add("OMP_NUM_THREADS=7");
    add("OMP_WAIT_POLICY=active");
    add("PYTHONUNBUFFERED=");
    assert_string_equal(value_of(&world, 0, "OMP_NUM_THREADS"), "7");
    assert_string_equal(value_of(&world, 0, "OMP_WAIT_POLICY"), "active");
    assert_string_equal(value_of(&world, 0, "PYTHONUNBUFFERED"), "");
    static char *mine[] = { "PATH=/bin", "OMP_WAIT_POLICY=passive", NULL };
    environ = mine;
    uni_value_free(the->trainer.extra_environment);
    the->trainer.extra_environment = uni_value_list();
    the->trainer.host.cpus = 8;
    assert_string_equal(value_of(&world, 0, "OMP_WAIT_POLICY"), "passive");
    add("OMP_NUM_THREADS_X=7"); /* another name */
    assert_string_equal(value_of(&world, 0, "OMP_NUM_THREADS"), "2");
    /* On a host: what was asked for, or its share of that host. */
    places[1] = (uni__rank_place){ .local_size = 2, .cpus = 10, .address = "a", .host = "b" };
    assert_string_equal(value_of(&world, 1, "OMP_NUM_THREADS"), "5");
    the->trainer.options.cpus_per_worker = 3;
    the->trainer.cpus_each = 3;
    assert_string_equal(value_of(&world, 1, "OMP_NUM_THREADS"), "3");
}

static void over_ucx_signals_stay_the_programs(void **state)
{
    uni__world world = { .trainer = &the->trainer, .size = 4 };
    assert_null(value_of(&world, 0, "UCX_HANDLE_ERRORS"));
    over_ucx = true;
    assert_string_equal(value_of(&world, 0, "UCX_HANDLE_ERRORS"), "none");
    add("UCX_HANDLE_ERRORS=bt");
    assert_string_equal(value_of(&world, 0, "UCX_HANDLE_ERRORS"), "bt");
}

static void devices(void **state)
{
    static const struct {
        const char *ids;
        int each, rank, share;
        const char *mine;
    } cases[] = {
        { "0,1,2,3", 1, 2, 0, "2" },         { "0,1,2,3", 2, 1, 0, "2,3" },
        { "0,1,2,3", 2, 0, 1, "2,3" },       { "0,1", 1, 3, 0, "" },
        { "GPU-7,GPU-9", 1, 1, 0, "GPU-9" }, { "5,7,9", 3, 0, 0, "5,7,9" },
    };
    uni__world world = { .trainer = &the->trainer, .size = 4 };
    assert_null(value_of(&world, 0, "CUDA_VISIBLE_DEVICES"));
    the->trainer.options.use_gpu = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(the->trainer.host.gpu_ids, sizeof the->trainer.host.gpu_ids, "%s", cases[i].ids);
        the->trainer.options.gpus_per_worker = cases[i].each;
        world.share = cases[i].share;
        assert_string_equal(value_of(&world, cases[i].rank, "CUDA_VISIBLE_DEVICES"), cases[i].mine);
    }
}

/* What a surrounding worker was told is not true for ours; the user's variables win over all. */
static void surroundings(void **state)
{
    static char *outer[] = { "UNISONO_SESSION=3",
                             "UNISONO_REPORT_FD=4",
                             "UNISONO_CHECKPOINT=/c",
                             "UNISONO_CONFIG={}",
                             "UNISONO_RUN_DIR=/r",
                             "UNISONO_STAGING=/s",
                             "TF_CONFIG={}",
                             "RANK=9",
                             "KEPT=a=b",
                             "=odd",
                             "ODD",
                             NULL };
    static const char *const gone[] = { "UNISONO_SESSION",    "UNISONO_REPORT_FD",
                                        "UNISONO_CHECKPOINT", "UNISONO_CONFIG",
                                        "UNISONO_RUN_DIR",    "UNISONO_STAGING",
                                        "TF_CONFIG",          "ODD" };
    uni__world world = { .trainer = &the->trainer, .size = 4 };
    environ = outer;
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        assert_null(value_of(&world, 1, gone[i]));
    assert_string_equal(value_of(&world, 1, "RANK"), "1");
    assert_string_equal(value_of(&world, 1, "KEPT"), "a=b");
    add("RANK=of the user");
    add("KEPT=");
    assert_string_equal(value_of(&world, 1, "RANK"), "of the user");
    assert_string_equal(value_of(&world, 1, "KEPT"), "");
}

/* Held: no other socket can be bound there, until they are released. */
static void ports_are_held(void **state)
{
    uni__ports ports = { 0 };
    assert_int_equal(uni__ports_hold(&ports, 3, false, NULL), 0);
    assert_int_equal(ports.count, 3);
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)ports.numbers[2]) };
    int other = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    assert_int_not_equal(bind(other, (struct sockaddr *)&address, sizeof address), 0);
    /* PyTorch's store, with SO_REUSEADDR, may have it. */
    assert_int_equal(setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(other, (struct sockaddr *)&address, sizeof address), 0);
    close(other);
    uni__ports_release(&ports);
    assert_int_equal(ports.count, 0);
    assert_int_equal(uni__ports_hold(&ports, 1, true, NULL), 0);
    address.sin_port = htons((uint16_t)ports.numbers[0]);
    other = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_not_equal(bind(other, (struct sockaddr *)&address, sizeof address), 0);
    close(other);
    /* TensorFlow's server, with SO_REUSEPORT. */
    other = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(setsockopt(other, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
    assert_int_equal(bind(other, (struct sockaddr *)&address, sizeof address), 0);
    close(other);
    uni__ports_release(&ports);
    assert_int_equal(uni__ports_plan(&ports, 2, NULL), 0);
    assert_int_equal(ports.count, 2);
    assert_int_equal(ports.numbers[0] + ports.numbers[1], 0);
    uni__ports_release(&ports);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(on_one_machine), TEST(on_hosts),       TEST(tensorflow),
        TEST(torch),          TEST(threads),        TEST(devices),
        TEST(surroundings),   TEST(ports_are_held), TEST(over_ucx_signals_stay_the_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
