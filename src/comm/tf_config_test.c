/* tf_config_test.c - which rank of how many a process is by TF_CONFIG, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/asserts.h"
#include "comm/shared.h"

#define CLUSTER(jobs, task) "{\"cluster\": {" jobs "}, \"task\": {" task "}}"
#define TWO "\"worker\": [\"localhost:1\", \"127.0.0.1:2\"]"

static void ranks_are_chief_first(void **state)
{
    static const struct {
        const char *text;
        int rank, size;
    } cases[] = {
        { CLUSTER(TWO, "\"type\": \"worker\", \"index\": 0"), 0, 2 },
        { CLUSTER(TWO, "\"type\": \"worker\", \"index\": 1"), 1, 2 },
        { CLUSTER("\"chief\": [\"[::1]:9\"], " TWO, "\"type\": \"chief\", \"index\": 0"), 0, 3 },
        { CLUSTER(TWO ", \"chief\": [\"LocalHost:9\"]", "\"type\": \"worker\", \"index\": 1"), 2,
          3 },
        { CLUSTER("\"worker\": [\"0.0.0.0:80\"]", "\"type\": \"worker\", \"index\": 0"), 0, 1 },
        /* One other name is allowed: it may be this host's. */
        { CLUSTER("\"worker\": [\"node7:1\", \"node7:2\", \"localhost:3\"]",
                  "\"type\": \"worker\", \"index\": 2"),
          2, 3 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int rank = -1, size = -1;
        assert_ok(uni__comm_read_tf_config(cases[i].text, &rank, &size, &failure));
        assert_int_equal(rank, cases[i].rank);
        assert_int_equal(size, cases[i].size);
    }
}

static void mistakes_are_named(void **state)
{
    static const struct {
        const char *text;
        int code;
        const char *words;
    } cases[] = {
        { "{", UNI_EFORMAT, "TF_CONFIG is not JSON" },
        { CLUSTER(TWO, "\"type\": \"worker\", \"index\": 2"), UNI_EINVAL,
          "task worker 2 is not in the cluster, which has 2" },
        { CLUSTER(TWO, "\"type\": \"worker\", \"index\": -1"), UNI_EINVAL, "task worker -1" },
        { CLUSTER(TWO, "\"type\": \"worker\", \"index\": \"0\""), UNI_EINVAL,
          "the task's index is not a number" },
        { CLUSTER(TWO, "\"type\": \"evaluator\", \"index\": 0"), UNI_EINVAL,
          "its type is \"evaluator\"" },
        { CLUSTER(TWO, ""), UNI_EINVAL, "its type is \"\"" },
        { CLUSTER(TWO ", \"ps\": [\"localhost:7\"]", "\"type\": \"worker\", \"index\": 0"),
          UNI_EUNSUPPORTED, "parameter servers" },
        { CLUSTER("\"worker\": [\"localhost\"]", "\"type\": \"worker\", \"index\": 0"), UNI_EINVAL,
          "\"localhost\" is not an address host:port" },
        { CLUSTER("\"worker\": [\":80\"]", "\"type\": \"worker\", \"index\": 0"), UNI_EINVAL,
          "\":80\" is not an address" },
        { CLUSTER("\"worker\": [\"a:x\"]", "\"type\": \"worker\", \"index\": 0"), UNI_EINVAL,
          "\"a:x\" is not an address" },
        { CLUSTER("\"worker\": [3]", "\"type\": \"worker\", \"index\": 0"), UNI_EINVAL,
          "\"\" is not an address" },
        { CLUSTER("\"worker\": [\"a:1\", \"b:1\"]", "\"type\": \"worker\", \"index\": 0"),
          UNI_EUNSUPPORTED, "several hosts (a and b)" },
        /* A prefix of a name is another name. */
        { CLUSTER("\"worker\": [\"node7:1\", \"node:1\"]", "\"type\": \"worker\", \"index\": 0"),
          UNI_EUNSUPPORTED, "several hosts (node7 and node)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int rank = -1, size = -1;
        assert_fails(uni__comm_read_tf_config(cases[i].text, &rank, &size, &failure), cases[i].code,
                     cases[i].words);
        assert_int_equal(rank, 0);
        assert_int_equal(size, 1);
    }
}

/* This host's own name does not count as the one other name. */
static void own_name_is_here(void **state)
{
    char own[256] = "", text[700];
    int rank = -1, size = -1;
    assert_int_equal(gethostname(own, sizeof own - 1), 0);
    snprintf(text, sizeof text, CLUSTER("\"worker\": [\"%s:1\", \"other:1\"]", "%s"), own,
             "\"type\": \"worker\", \"index\": 1");
    assert_ok(uni__comm_read_tf_config(text, &rank, &size, &failure));
    assert_int_equal(rank, 1);
    assert_int_equal(size, 2);
}

/* A cluster of one opens without peers. */
static void one_worker_opens(void **state)
{
    uni_comm *comm = NULL;
    float value = 3;
    assert_ok(uni_comm_open_tf_config(
        &comm, CLUSTER("\"worker\": [\"localhost:1\"]", "\"type\": \"worker\", \"index\": 0"), NULL,
        &failure));
    assert_ok(uni_comm_all_reduce(comm, &value, &value, 1, UNI_F32, UNI_COMM_SUM, &failure));
    assert_true(value == 3);
    uni_comm_close(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_chief_first),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(own_name_is_here),
        cmocka_unit_test(one_worker_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
