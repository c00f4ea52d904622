/* launchers_test.c - lists of hosts, command lines, interfaces, and paths that come from other
 * hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "group/launchers.h"
#include "group/network.h"
#include "group/page.h"
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
    assert_int_equal(uni__launcher_find("mpi")->words(&plan, &argv, NULL), 0);
    assert_true(has(argv, "a:2,c:1"));
    assert_true(has(argv, "-x") && has(argv, "UNISONO_JOIN"));
    assert_false(has(argv, "UNISONO_JOB_SECRET"));
    uni_value_free(argv);
    uni_value_free(names);
    setenv("UNISONO_MPIRUN", "/no/such/mpirun", 1);
    assert_int_equal(uni__launcher_find("mpi")->words(&plan, &argv, NULL), UNI_ENOTFOUND);
    setenv("UNISONO_SSH", "/bin/sh", 1);
    const uni__launcher *ssh = uni__launcher_find("ssh");
    assert_int_equal(ssh->words(&plan, &argv, NULL), 0);
    assert_true(has(argv, "--ssh") && has(argv, "/bin/sh") && has(argv, "a:2,c:1"));
    assert_false(uni__launcher_is_openmpi(ssh, "/x/unisono-host"));
    assert_int_equal(uni_list_size(argv), 4);
    uni_value_free(argv);
    plan.first_rank = 2; /* hosts that come later */
    plan.num_all = 6;
    assert_int_equal(ssh->words(&plan, &argv, NULL), 0);
    assert_true(has(argv, "2:6"));
    uni_value_free(argv);
    setenv("UNISONO_SSH", "/no/such/ssh", 1);
    assert_int_equal(ssh->words(&plan, &argv, NULL), UNI_ENOTFOUND);
    assert_null(argv);
    assert_null(uni__launcher_find("rsh"));
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

static void test_this_host(void **unused)
{
    char own[256] = "", longer[300];
    assert_int_equal(gethostname(own, sizeof own - 1), 0);
    snprintf(longer, sizeof longer, "%sx", own);
    assert_true(uni__network_is_this_host(own));
    assert_true(uni__network_is_this_host("localhost") && uni__network_is_this_host("127.0.1.1"));
    assert_true(uni__network_is_this_host("::1"));
    assert_false(uni__network_is_this_host(longer) || uni__network_is_this_host("128.0.0.1"));
    assert_false(uni__network_is_this_host("") || uni__network_is_this_host("localhosts"));
}

static uni__page *fresh_page(void)
{
    uni__page *page = NULL;
    int fd = -1;
    assert_int_equal(uni__page_new(&page, &fd, NULL), 0);
    close(fd);
    return page;
}

/* What a worker on another host writes into its page is in the controller's mirror of it. */
static void test_words_of_a_worker(void **unused)
{
    uni__page *page = fresh_page(), *mirror = fresh_page();
    uni__worker_words now, none = { 0 }, again;
    (void)uni__worker_words_read(page, &none, &(uni__worker_words){ 0 });
    assert_false(uni__worker_words_read(page, &now, &none)); /* nothing is sent for nothing */
    _Atomic uint32_t *const words[] = { &page->owner, &page->stop_request, &page->stop_seen,
                                        &page->loaded, &page->checkpoints_taken };
    _Atomic uint32_t *const mirrored[] = { &mirror->owner, &mirror->stop_request,
                                           &mirror->stop_seen, &mirror->loaded,
                                           &mirror->checkpoints_taken };
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t value = atomic_load(words[i]) + 7 + i;
        (void)uni__worker_words_read(page, &now, &none);
        atomic_store(words[i], value);
        assert_true(uni__worker_words_read(page, &again, &now));
        uni__worker_words_apply(mirror, &again);
        assert_int_equal(atomic_load(mirrored[i]), value);
    }
    atomic_store(&page->waited_ns, UINT64_C(1) << 40);
    atomic_store(&page->heartbeat, UINT64_C(3) << 40);
    atomic_store(&page->iteration, INT64_C(5) << 40);
    assert_true(uni__worker_words_read(page, &now, &again));
    uni__worker_words_apply(mirror, &now);
    assert_true(atomic_load(&mirror->waited_ns) == UINT64_C(1) << 40);
    assert_true(atomic_load(&mirror->heartbeat) == UINT64_C(3) << 40);
    assert_true(atomic_load(&mirror->iteration) == INT64_C(5) << 40);
    assert_false(uni__worker_words_read(page, &again, &now));
    uni__page_unmap(page);
    uni__page_unmap(mirror);
}

/* And the other way: stops, turns and the alarm. */
static void test_words_of_the_controller(void **unused)
{
    uni__page *page = fresh_page(), *mirror = fresh_page();
    uni__control_words before, now;
    uni__control_words_read(page, &before);
    atomic_store(&page->stop_at, INT64_C(9) << 40);
    atomic_store(&page->stopping, 1);
    atomic_store(&page->stop_at_known, 1);
    atomic_store(&page->released, 12);
    atomic_store(&page->checkpoints_done, 13);
    atomic_store(&page->checkpoints_over, 14);
    atomic_store(&page->suspect, 15);
    strcpy(page->alarm_reason, "rank 3 died");
    atomic_store(&page->alarm, 1);
    uni__control_words_read(page, &now);
    uni__control_words_apply(mirror, &now, &before);
    assert_true(atomic_load(&mirror->stop_at) == INT64_C(9) << 40);
    assert_int_equal(atomic_load(&mirror->stopping), 1);
    assert_int_equal(atomic_load(&mirror->stop_at_known), 1);
    assert_int_equal(atomic_load(&mirror->released), 12);
    assert_int_equal(atomic_load(&mirror->checkpoints_done), 13);
    assert_int_equal(atomic_load(&mirror->checkpoints_over), 14);
    assert_int_equal(atomic_load(&mirror->suspect), 15);
    assert_int_equal(atomic_load(&mirror->alarm), 1);
    assert_string_equal(mirror->alarm_reason, "rank 3 died");
    uni__page_unmap(page);
    uni__page_unmap(mirror);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_slurm_hosts),
        cmocka_unit_test(test_command_line),
        cmocka_unit_test(test_interfaces),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_this_host),
        cmocka_unit_test(test_words_of_a_worker),
        cmocka_unit_test(test_words_of_the_controller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
