/*
 * state.c - scenarios of the state channel: every rank keeps a number of its own beside the
 * checkpoints of rank 0, and after a restart finds the one that it had XX
 */
#include <signal.h>
#include <unisono/experimental/session_state.h>

#include "scenario.h"

#define WORKERS 3
#define STEPS 12

static int save(uni_session *session, int64_t step, bool alone, uni_error *err)
{
    uni_value *dict = uni_value_dict();
    bool first = uni_session_info_of(session)->world_rank == 0;
    int status = uni_dict_take(dict, "step", uni_value_int(step));
    if (status == 0)
        status = uni_session_report(
            session, NULL, &(uni_checkpoint_source){ .dict = first && !alone ? dict : NULL }, err);
    if (status == 0 && alone)
        status = uni_session_save_checkpoint(session, dict, err);
    uni_value_free(dict);
    return status;
}

/* Dies after a checkpoint is complete: load_checkpoint waits for it. */
static int die(uni_session *session, uni_error *err)
{
    uni_value *newest = NULL;
    UNI_TRY(uni_session_load_checkpoint(&newest, session, err));
    uni_value_free(newest);
    raise(SIGKILL);
    return 0;
}

/* Returns [what it had kept, or -1; the step of the checkpoint that it began with]. */
static int keep_numbers(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    bool alone = uni_dict_get_int(config, "alone", 0) != 0;
    int rank = uni_session_info_of(session)->world_rank;
    uni_value *dict = NULL;
    size_t size = 0;
    int64_t number = -1;
    UNI_TRY(uni_session_load_checkpoint(&dict, session, err));
    int64_t begun = uni_dict_get_int(dict, "step", 0);
    const void *kept = uni_session_state_get(session, "number", &size);
    uni_value_free(dict);
    if (kept && size == sizeof number)
        memcpy(&number, kept, sizeof number);
    *result = uni_value_list();
    if (uni_list_take(*result, uni_value_int(number)) < 0 ||
        uni_list_take(*result, uni_value_int(begun)) < 0)
        return UNI_ENOMEM;
    for (int64_t step = begun + 1; step <= STEPS; step++) {
        int64_t mine = rank * 1000 + step;
        /* Rank 0 keeps only what it kept once: it stays until it is set again. */
        if (rank > 0 || step == 1)
            UNI_TRY(uni_session_state_set(session, "number", &mine, sizeof mine, err));
        if (alone && rank > 0) /* rank 0 saves before the others have reported */
            scenario_sleep_ms(20);
        UNI_TRY(save(session, step, alone, err));
        if (alone || rank != 1 || uni_session_info_of(session)->attempt > 1)
            scenario_sleep_ms(alone ? 20 : 5);
        if (uni_session_info_of(session)->attempt == 1 && rank == (alone ? 0 : 2) &&
            step == uni_dict_get_int(config, "die_at", 0))
            UNI_TRY(die(session, err));
    }
    return 0;
}

static void check_numbers(const uni_result *result, int64_t *step)
{
    *step = uni_value_as_int(uni_list_get(uni_result_info_of(result)->returned[0], 1), -1);
    CHECK(*step > 0);
    for (int rank = 0; rank < WORKERS; rank++) {
        const uni_value *returned = uni_result_info_of(result)->returned[rank];
        int64_t expected = rank == 0 ? 1 : rank * 1000 + *step;
        CHECK(uni_value_as_int(uni_list_get(returned, 1), -1) == *step);
        CHECK(uni_value_as_int(uni_list_get(returned, 0), -1) == expected);
    }
}

static void run_and_die(uni_program *program, bool alone, int keep)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    int64_t step;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = WORKERS, .max_failures = 1 });
    uni_value *config = scenario_config("die_at", 6.0, "alone", (double)alone, NULL);
    uni_checkpoint_policy policy = { .num_to_keep = keep };
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){
                                 .function = "keep_numbers", .config = config, .policy = &policy },
                             &err),
             &err);
    CHECK(uni_result_info_of(result)->attempts == 2);
    check_numbers(result, &step);
    uni_result_free(result);
    uni_value_free(config);
    uni_trainer_free(trainer);
}

static void state_with_reports(uni_program *program)
{
    run_and_die(program, false, 2);
}

static void state_in_memory(uni_program *program)
{
    run_and_die(program, false, UNI_KEEP_NONE);
}

static void state_of_saved_checkpoints(uni_program *program)
{
    run_and_die(program, true, 2);
}

/* Another run, from the checkpoint of the first: with as many ranks, and with one more, which
 * has kept nothing. */
static void state_in_the_next_run(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *first = NULL, *second = NULL;
    int64_t step;
    uni_value *config = scenario_config("die_at", 0.0, NULL);
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = WORKERS });
    CHECK_OK(uni_trainer_fit(&first, trainer,
                             &(uni_run_options){ .function = "keep_numbers", .config = config },
                             &err),
             &err);
    const char *newest = uni_result_info_of(first)->latest_checkpoint;
    for (int more = 0; more < 2; more++) {
        uni_trainer *next =
            scenario_trainer(program, (uni_trainer_options){ .num_workers = WORKERS + more });
        uni_run_options run = { .function = "keep_numbers",
                                .config = config,
                                .from_checkpoint = newest };
        CHECK_OK(uni_trainer_fit(&second, next, &run, &err), &err);
        check_numbers(second, &step);
        CHECK(step == STEPS);
        if (more)
            CHECK(uni_value_as_int(uni_list_get(uni_result_info_of(second)->returned[WORKERS], 0),
                                   0) == -1);
        uni_result_free(second);
        uni_trainer_free(next);
    }
    uni_value_free(config);
    uni_result_free(first);
    uni_trainer_free(trainer);
}

static int misuse(uni_session *session, uni_value **result, uni_error *err)
{
    char name[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    bool refused = uni_session_state_set(session, "", "a", 1, NULL) == UNI_EINVAL &&
                   uni_session_state_set(session, name, "a", 1, NULL) == UNI_EINVAL &&
                   uni_session_state_set(session, "dataset/a", "a", 1, NULL) == UNI_EINVAL &&
                   uni_session_state_set(session, "a", "a", (size_t)65 << 20, NULL) == UNI_ELIMIT;
    size_t size = 9;
    UNI_TRY(uni_session_state_set(session, "a", "", 0, err));
    bool empty = uni_session_state_get(session, "a", &size) != NULL && size == 0;
    UNI_TRY(uni_session_state_set(session, "a", NULL, 0, err));
    bool gone = uni_session_state_get(session, "a", NULL) == NULL;
    *result = uni_value_bool(refused && empty && gone);
    return 0;
}

static void state_misuse(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 1 });
    CHECK_OK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "misuse" }, &err),
             &err);
    CHECK(uni_value_as_bool(uni_result_info_of(result)->returned[0], false));
    uni_result_free(result);
    uni_trainer_free(trainer);
}

const scenario scenarios[] = { { "state_with_reports", state_with_reports },
                               { "state_in_memory", state_in_memory },
                               { "state_of_saved_checkpoints", state_of_saved_checkpoints },
                               { "state_in_the_next_run", state_in_the_next_run },
                               { "state_misuse", state_misuse },
                               { NULL, NULL } };
const uni_function functions[] = { { "keep_numbers", keep_numbers },
                                   { "misuse", misuse },
                                   { NULL, NULL } };
