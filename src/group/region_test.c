/* region_test.c - only memory that cannot shrink is mapped, and the last reader unmaps it. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "group/region.h"

/* Memory that its maker could shorten is not mapped: reading it would fault. */
static void only_sealed_memory(void **state)
{
    int fd = memfd_create("snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_null(uni__region_map(fd));
    assert_int_equal(pwrite(fd, "x", 1, 8191), 1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    uni__region *region = uni__region_map(fd);
    assert_non_null(region);
    close(fd);
    assert_int_equal(region->size, 8192);
    assert_int_equal(((const char *)region->memory)[8191], 'x');
    uni__region_unref(region);
    assert_null(uni__region_map(-1));
}

/* mincore fails with ENOMEM where nothing is mapped. */
static int is_mapped(void *memory)
{
    unsigned char resident;
    return mincore(memory, 1, &resident) == 0;
}

static void last_reader_unmaps(void **state)
{
    uni__region *region = uni__region_new(10000);
    assert_non_null(region);
    assert_int_equal(region->size, 10000);
    char *memory = region->memory;
    assert_int_equal(memory[9999], 0);
    memory[0] = 'a';
    assert_ptr_equal(uni__region_ref(region), region);
    uni__region_unref(region);
    assert_true(is_mapped(memory));
    assert_int_equal(memory[0], 'a');
    uni__region_unref(region);
    assert_false(is_mapped(memory));
}

static void nothing_is_nothing(void **state)
{
    assert_null(uni__region_new(0));
    assert_null(uni__region_new(UINT64_MAX));
    assert_null(uni__region_ref(NULL));
    uni__region_unref(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(only_sealed_memory),
                                        cmocka_unit_test(last_reader_unmaps),
                                        cmocka_unit_test(nothing_is_nothing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
