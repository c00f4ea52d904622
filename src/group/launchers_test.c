/* launchers_test.c - lists of hosts, command lines, interfaces, and paths that come from other
 * hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "group/launchers.h"
#include "group/network.h"
#include "group/remote.h"

static void test_hosts(void **unused)
{
    uni__host_slots *list = NULL;
    int count = 0;
    uni_error err = { 0 };
    assert_int_equal(uni__hosts_parse("a:2,b,node-3.example:16", &list, &count, &err), 0);
    assert_int_equal(count, 3);
    assert_string_equal(list[2].name, "node-3.example");
    assert_int_equal(list[0].slots, 2);
    assert_int_equal(list[1].slots, 1);
    assert_int_equal(list[2].slots, 16);
    free(list);
    const char *const bad[] = {
        "", "a:0", "a:x", "a:2:3", ":2", "-x:1", "a b", "a,a:2", "a:99999"
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(uni__hosts_parse(bad[i], &list, &count, &err), UNI_EINVAL);
        assert_null(list);
    }
}

static void test_slurm_hosts(void **unused)
{
    uni__host_slots *list = NULL;
    int count = 0;
    assert_int_equal(
        uni__hosts_parse_slurm("n[09-11,20],gpu1,m[3]", "2(x3),1(x2),4", &list, &count, NULL), 0);
    const char *const names[] = { "n09", "n10", "n11", "n20", "gpu1", "m3" };
    const int slots[] = { 2, 2, 2, 1, 1, 4 };
    assert_int_equal(count, 6);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(list[i].name, names[i]);
        assert_int_equal(list[i].slots, slots[i]);
    }
    free(list);
    assert_int_equal(uni__hosts_parse_slurm("n[x]", "1", &list, &count, NULL), UNI_EFORMAT);
}

static bool has(const uni_value *argv, const char *word)
{
    for (size_t i = 0; i < uni_list_size(argv); i++)
        if (strcmp(uni_value_as_string(uni_list_get(argv, i), ""), word) == 0)
            return true;
    return false;
}

/* The lost host is left out, the spare one takes its place; no secret is in the words. */
static void test_command_line(void **unused)
{
    uni__host_slots hosts[] = { { .name = "a", .slots = 2 },
                                { .name = "b", .slots = 2, .lost = true },
                                { .name = "c", .slots = 4 } };
    uni__launcher_plan plan = {
        .hosts = hosts, .num_hosts = 3, .num_workers = 3, .agent = "/x/unisono-host"
    };
    uni_value *argv = NULL, *names = uni__launcher_names(&plan);
    assert_int_equal(uni_list_size(names), 3);
    assert_string_equal(uni_value_as_string(uni_list_get(names, 2), ""), "c");
    setenv("UNISONO_MPIRUN", "/bin/sh", 1); /* anything that can be executed */
    assert_int_equal(uni__launcher_mpi(&plan, &argv, NULL), 0);
    assert_true(has(argv, "a:2,c:1"));
    assert_true(has(argv, "-x") && has(argv, "UNISONO_JOIN"));
    assert_false(has(argv, "UNISONO_JOB_SECRET"));
    uni_value_free(argv);
    uni_value_free(names);
    setenv("UNISONO_MPIRUN", "/no/such/mpirun", 1);
    assert_int_equal(uni__launcher_mpi(&plan, &argv, NULL), UNI_ENOTFOUND);
}

static void test_interfaces(void **unused)
{
    uni__address out[UNI__NETWORK_MAX];
    uni_error err = { 0 };
    assert_int_equal(uni__network_choose(NULL, true, out, &err), 1);
    assert_string_equal(out[0].text, "127.0.0.1");
    assert_int_equal(uni__network_choose("127.0.0.0/8", false, out, &err), 1);
    assert_int_equal(uni__network_choose("no_such0", false, out, &err), UNI_ENOTFOUND);
    assert_non_null(strstr(err.message, "127.0.0.1/8")); /* says what there is */
    assert_true(uni__network_is_this_host("localhost"));
    assert_false(uni__network_is_this_host("surely-not-this-host"));
}

static void test_paths(void **unused)
{
    const char *const good[] = { "a", "a/b.txt", "..a/b", ".hidden" };
    const char *const bad[] = { "", "/a", "a//b", "../a", "a/..", "a/./b", "a/\nb", "a/" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(uni__remote_path_is_safe(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(uni__remote_path_is_safe(bad[i], strlen(bad[i])));
    assert_false(uni__remote_path_is_safe("a\0b", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),        cmocka_unit_test(test_slurm_hosts),
        cmocka_unit_test(test_command_line), cmocka_unit_test(test_interfaces),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
