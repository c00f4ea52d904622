/* devices_test.c - the cores of this process as devices, their names, and what is refused. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/asserts.h"
#include "strategy/internal.h"

static cpu_set_t mask;
static int lowest;

static int enter(void **state)
{
    if (sched_getaffinity(0, sizeof mask, &mask) < 0)
        return -1;
    for (lowest = 0; !CPU_ISSET((size_t)lowest, &mask);)
        lowest++;
    return 0;
}

/* Each CPU of the mask is in exactly one device, and they are numbered. */
static void devices_divide_the_mask(void **state)
{
    uni__device all[UNI__DEVICE_MAX_CPUS];
    int count = uni__devices(all, UNI__DEVICE_MAX_CPUS), cpus = 0;
    cpu_set_t seen, one;
    CPU_ZERO(&seen);
    assert_in_range(count, 1, CPU_COUNT(&mask));
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "cpu:%d", i);
        assert_string_equal(all[i].name, name);
        assert_int_equal(uni__device_cpus(&one, &all[i]), all[i].num_cpus);
        CPU_OR(&seen, &seen, &one);
        cpus += all[i].num_cpus;
    }
    assert_true(CPU_EQUAL(&seen, &mask));
    assert_int_equal(cpus, CPU_COUNT(&mask));
    uni__device few[2] = { 0 };
    assert_int_equal(uni__devices(few, 1), count); /* writes one, counts all */
    assert_string_equal(few[0].name, "cpu:0");
    assert_string_equal(few[1].name, "");
}

/* A thread that may use one CPU has one device. */
static void the_mask_counts(void **state)
{
    cpu_set_t one;
    uni__device device[2] = { 0 };
    CPU_ZERO(&one);
    CPU_SET((size_t)lowest, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int count = uni__devices(device, 2);
    uni_error refused = { 0 };
    int status = uni__device_parse(&device[1], "cpu:1", &refused);
    assert_int_equal(sched_setaffinity(0, sizeof mask, &mask), 0);
    assert_int_equal(count, 1);
    assert_int_equal(device[0].num_cpus, 1);
    assert_int_equal(status, UNI_ENOTFOUND);
    assert_non_null(strstr(refused.message, "this process may use 1 (cpu:0 to cpu:0)"));
}

static void names(void **state)
{
    static const char *const first[] = { "cpu:0", "CPU:0", "/cpu:0", "/device:CPU:0", "cpu:00" };
    uni__device all[1], device;
    char text[32];
    uni__devices(all, 1);
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) {
        memset(&device, 0, sizeof device);
        assert_ok(uni__device_parse(&device, first[i], &failure));
        assert_memory_equal(&device, all, sizeof device);
    }
    cpu_set_t cpus;
    snprintf(text, sizeof text, "/CPUS:%d", lowest);
    assert_ok(uni__device_parse(&device, text, &failure));
    assert_string_equal(device.name, text + 1);
    assert_int_equal(uni__device_cpus(&cpus, &device), 1);
    assert_true(CPU_ISSET((size_t)lowest, &cpus));
}

static void refused(void **state)
{
    static const struct {
        const char *text;
        int code;
        const char *words;
    } cases[] = {
        { "gpu:0", UNI_EUNSUPPORTED, "there are no GPUs" },
        { "/device:GPU:1", UNI_EUNSUPPORTED, "there are no GPUs" },
        { "cpu:1023", UNI_ENOTFOUND, "there is no device cpu:1023" },
        { "cpu:", UNI_EINVAL, "is not a device" },
        { "cpu:-1", UNI_EINVAL, "is not a device" },
        { "cpu:1x", UNI_EINVAL, "is not a device" },
        { "cpus:", UNI_EINVAL, "is not a device" },
        { "cpus:2-1", UNI_EINVAL, "is not a device" },
        { "cpus:x", UNI_EINVAL, "is not a device" },
        { "cpus:1023", UNI_ENOTFOUND, "CPUs that this process may not use" },
        { "tpu:0", UNI_EINVAL, "is not a device" },
        { "", UNI_EINVAL, "is not a device" },
    };
    uni__device device;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(uni__device_parse(&device, cases[i].text, &failure), cases[i].code,
                     cases[i].words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_divide_the_mask),
        cmocka_unit_test(the_mask_counts),
        cmocka_unit_test(names),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, enter, NULL);
}
