/*
 * hdf5_read_test.c - what a file of many small things costs to read. The time is the process's
 * own, so that a busy machine changes little.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nn/keras/internal.h"

/* Link by link, each found by its number, these took 22 s and over two minutes. */
#define NUM_LINKS 30000
#define NUM_GROUPS 60000
#define MAX_SECONDS 5.0

static hid_t new_file(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_core(access, (size_t)1 << 20, 0);
    hid_t file = H5Fcreate("weights", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    assert_true(file >= 0);
    return file;
}

/* Reads the file from memory and closes it; seconds of processor time. */
static double read_time(hid_t file, int expected)
{
    assert_true(H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0);
    ssize_t size = H5Fget_file_image(file, NULL, 0);
    void *image = malloc((size_t)size);
    assert_non_null(image);
    assert_int_equal(H5Fget_file_image(file, image, (size_t)size), size);
    H5Fclose(file);
    int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
    uni_error err = { 0 };
    clock_t begin = clock();
    int status = uni__hdf5_read(sink, image, (size_t)size, &err);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (status != expected)
        fail_msg("%d: %s", status, err.message);
    close(sink);
    free(image);
    return seconds;
}

static void test_many_hard_links(void **state)
{
    hid_t file = new_file(), space = H5Screate(H5S_SCALAR);
    hid_t data =
        H5Dcreate2(file, "data", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    float zero = 0;
    assert_true(H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, &zero) >= 0);
    for (int i = 0; i < NUM_LINKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "link_%d", i);
        assert_true(H5Lcreate_hard(file, "data", file, name, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    }
    H5Dclose(data);
    H5Sclose(space);
    double seconds = read_time(file, 0);
    if (seconds > MAX_SECONDS)
        fail_msg("%d hard links took %.1f s", NUM_LINKS, seconds);
}

/* A group that knows the order of its links has the newer of HDF5's two formats. */
static void many_groups(bool ordered)
{
    hid_t file = new_file(), how = H5Pcreate(H5P_GROUP_CREATE);
    if (ordered)
        H5Pset_link_creation_order(how, H5P_CRT_ORDER_TRACKED);
    hid_t top = H5Gcreate2(file, "layers", H5P_DEFAULT, how, H5P_DEFAULT);
    for (int i = 0; i < NUM_GROUPS; i++) {
        char name[32];
        snprintf(name, sizeof name, "group_%d", i);
        hid_t group = H5Gcreate2(top, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(group >= 0);
        H5Gclose(group);
    }
    H5Gclose(top);
    H5Pclose(how);
    double seconds = read_time(file, 0);
    if (seconds > MAX_SECONDS)
        fail_msg("%d groups took %.1f s", NUM_GROUPS, seconds);
}

static void test_many_groups(void **state)
{
    many_groups(false);
}

static void test_many_groups_of_the_new_format(void **state)
{
    many_groups(true);
}

/* A few links a level are millions of paths below. */
static void test_links_that_multiply(void **state)
{
    hid_t file = new_file();
    for (int level = 0; level < 24; level++) {
        char name[32], below[32], link[64];
        snprintf(name, sizeof name, "level_%d", level);
        snprintf(below, sizeof below, "level_%d", level - 1);
        H5Gclose(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        for (int i = 0; level > 0 && i < 4; i++) {
            snprintf(link, sizeof link, "%s/%d", name, i);
            assert_true(H5Lcreate_hard(file, below, file, link, H5P_DEFAULT, H5P_DEFAULT) >= 0);
        }
    }
    double seconds = read_time(file, UNI_ELIMIT);
    if (seconds > 2 * MAX_SECONDS)
        fail_msg("links that multiply took %.1f s", seconds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_hard_links),
        cmocka_unit_test(test_many_groups),
        cmocka_unit_test(test_many_groups_of_the_new_format),
        cmocka_unit_test(test_links_that_multiply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
