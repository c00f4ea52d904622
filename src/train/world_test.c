/* world_test.c - the environment of a worker from a world without a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/run_internal.h"

static uni_trainer *trainer_for(const char *backend, int workers)
{
    uni_trainer *trainer = NULL;
    uni_error err = { 0 };
    int status = uni_trainer_new(&trainer,
                                 &(uni_trainer_options){ .num_workers = workers,
                                                         .backend = backend,
                                                         .storage_path = getenv("TEST_STORAGE") },
                                 &err);
    if (status < 0)
        fail_msg("%s", err.message);
    return trainer;
}

/* The value of a variable, or NULL. The list's. */
static const char *value_of(const uni_value *list, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < uni_list_size(list); i++) {
        const char *pair = uni_value_as_string(uni_list_get(list, i), "");
        if (strncmp(pair, name, length) == 0 && pair[length] == '=')
            return pair + length + 1;
    }
    return NULL;
}

static void without_a_run(void **state)
{
    uni_trainer *trainer = trainer_for("native", 3);
    setenv("UNISONO_RUN_DIR", "/of/a/surrounding/worker", 1);
    setenv("UNISONO_CHECKPOINT", "/of/it", 1);
    uni__world world = { .trainer = trainer, .size = 3 };
    uni_value *list = uni__world_environment(&world, 2);
    assert_string_equal(value_of(list, "RANK"), "2");
    assert_string_equal(value_of(list, "UNISONO_WORLD_SIZE"), "3");
    assert_string_equal(value_of(list, "LOCAL_RANK"), "2");
    assert_string_equal(value_of(list, "UNISONO_ATTEMPT"), "0");
    assert_null(value_of(list, "UNISONO_RUN_DIR"));
    assert_null(value_of(list, "UNISONO_STAGING"));
    assert_null(value_of(list, "UNISONO_CHECKPOINT"));
    assert_null(value_of(list, "UNISONO_CONFIG"));
    uni_value_free(list);
    uni_trainer_free(trainer);
}

static void of_an_attempt(void **state)
{
    uni_trainer *trainer = trainer_for("native", 1);
    uni_value *config = uni_value_dict();
    assert_int_equal(uni_dict_take(config, "lr", uni_value_int(3)), 0);
    uni__world world = { .trainer = trainer,
                         .size = 1,
                         .attempt = 4,
                         .dir = "/runs/x",
                         .staging_dir = "/runs/x/.staging",
                         .checkpoint = "/runs/x/checkpoints/7",
                         .config = config };
    uni_value *list = uni__world_environment(&world, 0);
    assert_string_equal(value_of(list, "UNISONO_ATTEMPT"), "4");
    assert_string_equal(value_of(list, "UNISONO_RUN_DIR"), "/runs/x");
    assert_string_equal(value_of(list, "UNISONO_STAGING"), "/runs/x/.staging");
    assert_string_equal(value_of(list, "UNISONO_CHECKPOINT"), "/runs/x/checkpoints/7");
    assert_string_equal(value_of(list, "UNISONO_CONFIG"), "{\"lr\":3}");
    assert_true(uni__config_fits(config));
    uni_value_free(list);
    char *large = calloc(1, UNI__CONFIG_VARIABLE_MAX + 1);
    memset(large, 'x', UNI__CONFIG_VARIABLE_MAX);
    assert_int_equal(uni_dict_take(config, "text", uni_value_string(large)), 0);
    assert_false(uni__config_fits(config));
    list = uni__world_environment(&world, 0);
    assert_null(value_of(list, "UNISONO_CONFIG"));
    uni_value_free(list);
    free(large);
    uni_value_free(config);
    uni_trainer_free(trainer);
}

static void planned_ports(void **state)
{
    uni_trainer *trainer = trainer_for("torch", 2);
    uni__ports ports = { 0 };
    uni__world world = { .trainer = trainer, .size = 2, .attempt = 1 };
    uni_value *list = uni__world_environment(&world, 1);
    assert_non_null(value_of(list, "MASTER_ADDR"));
    assert_null(value_of(list, "MASTER_PORT")); /* none is held */
    uni_value_free(list);
    assert_int_equal(uni__ports_plan(&ports, 1, NULL), 0);
    world.ports = &ports;
    list = uni__world_environment(&world, 1);
    assert_string_equal(value_of(list, "MASTER_PORT"), "0");
    uni_value_free(list);
    uni__ports_release(&ports);
    assert_int_equal(uni__ports_hold(&ports, 2, true, NULL), 0);
    assert_int_not_equal(ports.numbers[0], ports.numbers[1]);
    uni__ports_release(&ports);
    uni_trainer_free(trainer);
}

int main(void)
{
    char storage[] = "/tmp/unisono-world-XXXXXX";
    if (!mkdtemp(storage))
        return 1;
    setenv("TEST_STORAGE", storage, 1);
    const struct CMUnitTest tests[] = { cmocka_unit_test(without_a_run),
                                        cmocka_unit_test(of_an_attempt),
                                        cmocka_unit_test(planned_ports) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(storage) == 0 ? failed : 1;
}
