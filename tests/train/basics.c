/* basics.c - runs that go well: results by rank, warm workers, iterators, sinks, limits of
 * sizes. */
#include <math.h>
#include <sys/wait.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "train/shared.h"
#include "scenario.h"

/* ---- train functions ---- */

static int report_epochs(uni_session *session, uni_value **result, uni_error *err)
{
    int64_t epochs = uni_dict_get_int(uni_session_info_of(session)->config, "num_epochs", 3);
    for (int64_t epoch = 0; epoch < epochs; epoch++)
        UNI_TRY(uni_session_report_numbers(
            session, 2, (const char *const[]){ "epoch", "loss" },
            (const double[]){ (double)epoch, 1.0 / (double)(epoch + 3) }, err));
    *result = uni_value_int(uni_session_info_of(session)->world_rank * 100 + epochs);
    return 0;
}

static int who_am_i(uni_session *session, uni_value **result, uni_error *err)
{
    *result = uni_value_dict();
    int status = uni_dict_take(*result, "pid", uni_value_int(getpid()));
    status |=
        uni_dict_take(*result, "rank", uni_value_int(uni_session_info_of(session)->world_rank));
    status |=
        uni_dict_take(*result, "size", uni_value_int(uni_session_info_of(session)->world_size));
    status |= uni_dict_take(*result, "local_rank",
                            uni_value_int(uni_session_info_of(session)->local_rank));
    status |= uni_dict_take(*result, "local_size",
                            uni_value_int(uni_session_info_of(session)->local_world_size));
    status |=
        uni_dict_take(*result, "node_rank", uni_value_int(uni_session_info_of(session)->node_rank));
    status |= uni_dict_take(*result, "name",
                            uni_value_string(uni_session_info_of(session)->experiment_name));
    status |= uni_dict_take(*result, "env_rank", uni_value_string(getenv("UNISONO_RANK")));
    status |= uni_dict_take(*result, "env_size", uni_value_string(getenv("WORLD_SIZE")));
    status |= uni_dict_take(*result, "env_threads", uni_value_string(getenv("OMP_NUM_THREADS")));
    status |=
        uni_dict_take(*result, "is_marked", uni_value_bool(getenv("UNISONO_SESSION") != NULL));
    return status;
}

static int odd_numbers(uni_session *session, uni_value **result, uni_error *err)
{
    return uni_session_report_numbers(session, 3, (const char *const[]){ "nan", "inf", "minus" },
                                      (const double[]){ NAN, INFINITY, -INFINITY }, err);
}

/* A report and a result that are larger than the ring. */
static int large(uni_session *session, uni_value **result, uni_error *err)
{
    size_t size = 6u << 20;
    char *text = malloc(size + 1);
    memset(text, 'x', size);
    text[size] = '\0';
    uni_value *metrics = uni_value_dict();
    int status = uni_dict_take(metrics, "text", uni_value_string(text));
    if (status == 0)
        status = uni_session_report(session, metrics, NULL, err);
    uni_array *array = NULL;
    if (status == 0)
        status = uni_array_new(&array, UNI_F32, 1, (const int64_t[]){ 2000000 }, err);
    if (status == 0) {
        ((float *)uni_array_data(array))[1999999] =
            (float)uni_session_info_of(session)->world_rank + 0.5f;
        *result = uni_value_array(array);
        uni_array_unref(array);
    }
    uni_value_free(metrics);
    free(text);
    return status;
}

static int uneven(uni_session *session, uni_value **result, uni_error *err)
{
    int count = uni_session_info_of(session)->world_rank == 0 ? 5 : 2;
    for (int i = 0; i < count; i++)
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "i" },
                                           (const double[]){ i }, err));
    return 0;
}

/* A child of a worker must not write into its ring; names that are filled in stay single. */
static int forked_and_filled(uni_session *session, uni_value **result, uni_error *err)
{
    pid_t child = fork();
    if (child == 0) {
        uni_error refused = { 0 };
        int status = uni_session_report_numbers(session, 1, (const char *const[]){ "x" },
                                                (const double[]){ 1 }, &refused);
        _exit(status == UNI_ESTATE && strstr(refused.message, "forked") ? 0 : 1);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return uni_error_set(err, UNI_EINVAL, "a forked child could report");
    UNI_TRY(uni_session_report_numbers(session, 2,
                                       (const char *const[]){ "x", "_training_iteration" },
                                       (const double[]){ 1, 77 }, err));
    uni_value *metrics = uni_value_dict();
    status = uni_dict_take(metrics, "_timestamp", uni_value_int(5));
    if (status == 0)
        status = uni_session_report(session, metrics, NULL, err);
    uni_value_free(metrics);
    return status;
}

static int config_length(uni_session *session, uni_value **result, uni_error *err)
{
    *result = uni_value_int(
        (int64_t)strlen(uni_dict_get_string(uni_session_info_of(session)->config, "blob", "")));
    return 0;
}

static int flood(uni_session *session, uni_value **result, uni_error *err)
{
    int64_t count = uni_dict_get_int(uni_session_info_of(session)->config, "count", 1000);
    for (int64_t i = 0; i < count; i++)
        UNI_TRY(uni_session_report_numbers(session, 2, (const char *const[]){ "i", "loss" },
                                           (const double[]){ (double)i, 0.5 / (double)(i + 1) },
                                           err));
    return 0;
}

const uni_function functions[] = { { "report_epochs", report_epochs },
                                   { "who_am_i", who_am_i },
                                   { "odd_numbers", odd_numbers },
                                   { "large", large },
                                   { "uneven", uneven },
                                   { "config_length", config_length },
                                   { "forked_and_filled", forked_and_filled },
                                   { "flood", flood },
                                   { NULL, NULL } };

/* ---- scenarios ---- */

static void fit_returns_by_rank(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 3, .name = "fit" });
    uni_value *config = scenario_config("num_epochs", 4, NULL);
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "report_epochs", .config = config },
                             &err),
             &err);
    CHECK(uni_result_info_of(result)->world_size == 3 &&
          uni_result_info_of(result)->attempts == 1 && uni_result_info_of(result)->exit_code == 0);
    for (int rank = 0; rank < 3; rank++) {
        CHECK(uni_value_as_int(uni_result_info_of(result)->returned[rank], -1) == rank * 100 + 4);
        CHECK(uni_result_info_of(result)->iterations[rank] == 4);
        CHECK(uni_dict_get_int(uni_result_info_of(result)->metrics[rank], "epoch", -1) == 3);
        CHECK(uni_dict_get_float(uni_result_info_of(result)->metrics[rank], "loss", -1) == 1.0 / 6);
        CHECK(uni_dict_get_int(uni_result_info_of(result)->metrics[rank], "_training_iteration",
                               -1) == 4);
        CHECK(uni_dict_get_int(uni_result_info_of(result)->metrics[rank], "_timestamp", -1) >
              1600000000);
        CHECK(uni_dict_get_float(uni_result_info_of(result)->metrics[rank], "_time_this_iter_s",
                                 -1) >= 0);
        CHECK(uni_dict_get(uni_result_info_of(result)->metrics[rank], "_hostname") == NULL);
    }
    CHECK_CONTAINS(uni_result_info_of(result)->run_dir, "/fit/run_001");
    uni_value *description = scenario_description(uni_result_info_of(result)->run_dir);
    CHECK(strcmp(uni_dict_get_string(description, "status", ""), "succeeded") == 0);
    CHECK(uni_dict_get_int(description, "exit_code", -1) == 0);
    char *files = scenario_list(uni_result_info_of(result)->run_dir, NULL);
    CHECK(strcmp(files, "checkpoints journal.jsonl logs progress.csv results.jsonl run.json") == 0);
    free(files);
    uni_value_free(description);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

/* An address of this machine, and the loopback only where there is no other. */
static void check_address(const char *text)
{
    struct ifaddrs *all = NULL;
    bool found = false, others = false;
    CHECK(getifaddrs(&all) == 0);
    for (struct ifaddrs *one = all; one; one = one->ifa_next) {
        char own[INET6_ADDRSTRLEN] = "";
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET)
            continue;
        inet_ntop(AF_INET, &((struct sockaddr_in *)one->ifa_addr)->sin_addr, own, sizeof own);
        found |= strcmp(own, text) == 0;
        others |= !(one->ifa_flags & IFF_LOOPBACK) && (one->ifa_flags & IFF_RUNNING);
    }
    freeifaddrs(all);
    CHECK(others ? found && strncmp(text, "127.", 4) != 0 : text[0] != '\0');
}

static void detailed_metrics(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    setenv("TRAIN_RESULT_ENABLE_DETAILED_AUTOFILLED_METRICS", "1", 1);
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 1 });
    CHECK_OK(
        uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "report_epochs" }, &err),
        &err);
    const uni_value *metrics = uni_result_info_of(result)->metrics[0];
    const char *date = uni_dict_get_string(metrics, "_date", "");
    CHECK(strlen(date) == 19 && date[10] == '_' && date[13] == '-');
    CHECK(uni_dict_get_string(metrics, "_hostname", NULL));
    check_address(uni_dict_get_string(metrics, "_node_ip", ""));
    CHECK(uni_dict_get_int(metrics, "_pid", 0) > 1 &&
          uni_dict_get_float(metrics, "_time_total_s", -1) >= 0);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void ranks_and_environment(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    unsetenv("OMP_NUM_THREADS");
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .name = "who" });
    CHECK_OK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "who_am_i" }, &err),
             &err);
    for (int rank = 0; rank < 2; rank++) {
        const uni_value *me = uni_result_info_of(result)->returned[rank];
        CHECK(uni_dict_get_int(me, "rank", -1) == rank && uni_dict_get_int(me, "size", -1) == 2);
        CHECK(uni_dict_get_int(me, "local_rank", -1) == rank &&
              uni_dict_get_int(me, "local_size", -1) == 2);
        CHECK(uni_dict_get_int(me, "node_rank", -1) == 0);
        CHECK(strcmp(uni_dict_get_string(me, "name", ""), "who") == 0);
        CHECK(atoi(uni_dict_get_string(me, "env_rank", "-1")) == rank &&
              atoi(uni_dict_get_string(me, "env_size", "-1")) == 2);
        CHECK(atoi(uni_dict_get_string(me, "env_threads", "0")) >= 1);
        CHECK(!uni_dict_get_bool(me, "is_marked", true)); /* children of a worker are not workers */
    }
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void warm_workers(uni_program *program)
{
    uni_error err = { 0 };
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .name = "warm" });
    uni_result *first = NULL, *second = NULL, *third = NULL;
    CHECK(uni_trainer_run(&first, trainer, &(uni_run_options){ .function = "who_am_i" }, &err) ==
          UNI_ESTATE);
    CHECK_CONTAINS(err.message, "not active");
    CHECK_OK(uni_trainer_start(trainer, &err), &err);
    CHECK_OK(uni_trainer_run(&first, trainer, &(uni_run_options){ .function = "who_am_i" }, &err),
             &err);
    CHECK_OK(uni_trainer_run(&second, trainer, &(uni_run_options){ .function = "who_am_i" }, &err),
             &err);
    for (int rank = 0; rank < 2; rank++)
        CHECK(uni_dict_get_int(uni_result_info_of(first)->returned[rank], "pid", 1) ==
              uni_dict_get_int(uni_result_info_of(second)->returned[rank], "pid", 2));
    CHECK_CONTAINS(uni_result_info_of(second)->run_dir, "/warm/run_002");
    uni_trainer_shutdown(trainer);
    CHECK(uni_trainer_run(&third, trainer, &(uni_run_options){ .function = "who_am_i" }, &err) ==
          UNI_ESTATE);
    CHECK_OK(uni_trainer_start(trainer, &err), &err);
    CHECK_OK(uni_trainer_run(&third, trainer, &(uni_run_options){ .function = "who_am_i" }, &err),
             &err);
    CHECK(uni_dict_get_int(uni_result_info_of(third)->returned[0], "pid", 1) !=
          uni_dict_get_int(uni_result_info_of(second)->returned[0], "pid", 2));
    CHECK_CONTAINS(uni_trainer_latest_run_dir(trainer), "/warm/run_003");
    char *runs = scenario_list(uni__trainer_logdir(trainer), NULL);
    CHECK(strcmp(runs, ".start run_001 run_002 run_003") == 0);
    free(runs);
    uni_result_free(first);
    uni_result_free(second);
    uni_result_free(third);
    uni_trainer_free(trainer);
}

static void idle_death_is_replaced(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
    CHECK_OK(uni_trainer_start(trainer, &err), &err);
    CHECK_OK(uni_trainer_run(&result, trainer, &(uni_run_options){ .function = "who_am_i" }, &err),
             &err);
    int pid = (int)uni_dict_get_int(uni_result_info_of(result)->returned[1], "pid", 0);
    uni_result_free(result);
    char command[64];
    snprintf(command, sizeof command, "kill -9 %d", pid);
    CHECK(system(command) == 0);
    scenario_sleep_ms(200);
    CHECK_OK(uni_trainer_run(&result, trainer, &(uni_run_options){ .function = "who_am_i" }, &err),
             &err);
    CHECK(uni_dict_get_int(uni_result_info_of(result)->returned[1], "pid", 0) != pid &&
          uni_result_info_of(result)->attempts == 1);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void iterate(uni_program *program, bool lockstep)
{
    uni_error err = { 0 };
    uni_iterator *iterator = NULL;
    const uni_reports *reports;
    const uni_result *result;
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .lockstep = lockstep });
    uni_value *config = scenario_config("num_epochs", 5, NULL);
    CHECK_OK(uni_trainer_start(trainer, &err), &err);
    CHECK_OK(uni_trainer_run_iterator(
                 &iterator, trainer,
                 &(uni_run_options){ .function = "report_epochs", .config = config }, &err),
             &err);
    CHECK(uni_iterator_result(&result, iterator, false, &err) == UNI_ESTATE && result == NULL);
    for (int i = 1; i <= 5; i++) {
        CHECK(uni_iterator_next(&reports, iterator, &err) == 1);
        CHECK(reports->iteration == i && reports->world_size == 2);
        for (int rank = 0; rank < 2; rank++)
            CHECK(uni_dict_get_int(reports->by_rank[rank], "epoch", -1) == i - 1);
    }
    CHECK_OK(uni_iterator_next(&reports, iterator, &err), &err);
    CHECK(uni_iterator_is_finished(iterator));
    CHECK_OK(uni_iterator_result(&result, iterator, false, &err), &err);
    CHECK(uni_value_as_int(uni_result_info_of(result)->returned[1], -1) == 105);
    uni_iterator_free(iterator);
    /* The same trainer goes on; force drains what was not taken. */
    CHECK_OK(uni_trainer_run_iterator(
                 &iterator, trainer,
                 &(uni_run_options){ .function = "report_epochs", .config = config }, &err),
             &err);
    CHECK(uni_iterator_next(&reports, iterator, &err) == 1);
    CHECK_OK(uni_iterator_result(&result, iterator, true, &err), &err);
    CHECK(uni_value_as_int(uni_result_info_of(result)->returned[0], -1) == 5);
    uni_iterator_free(iterator);
    /* One that is left in the middle stops its run. */
    CHECK_OK(uni_trainer_run_iterator(
                 &iterator, trainer,
                 &(uni_run_options){ .function = "report_epochs", .config = config }, &err),
             &err);
    uni_iterator_free(iterator);
    uni_value_free(config);
    uni_trainer_free(trainer);
}

static void iterator_runs(uni_program *program)
{
    iterate(program, false);
}

static void iterator_lockstep(uni_program *program)
{
    iterate(program, true);
}

static void lockstep_with_sinks(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = 2, .lockstep = true });
    CHECK_OK(
        uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "report_epochs" }, &err),
        &err);
    CHECK(uni_result_info_of(result)->iterations[1] == 3);
    uni_result_free(result);
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "report_epochs", .num_sinks = -1 },
                             &err),
             &err);
    CHECK(uni_result_info_of(result)->iterations[1] == 3);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static int check_odd(void *context, const uni_reports *reports, uni_error *err)
{
    const uni_value *metrics = reports->by_rank[0];
    CHECK(isnan(uni_dict_get_float(metrics, "nan", 0)) &&
          uni_dict_get_float(metrics, "inf", 0) == INFINITY);
    CHECK(uni_dict_get_float(metrics, "minus", 0) == -INFINITY);
    ++*(int *)context;
    return 0;
}

static void nan_survives(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_run *run = NULL;
    int seen = 0;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 1 });
    CHECK_OK(
        uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "odd_numbers" }, &err),
        &err);
    CHECK(isnan(uni_dict_get_float(uni_result_info_of(result)->metrics[0], "nan", 0)));
    CHECK_OK(uni_run_open(&run, uni_result_info_of(result)->run_dir, NULL, &err), &err);
    CHECK_OK(uni_run_reports(run, check_odd, &seen, &err), &err);
    CHECK(seen == 1);
    uni_run_close(run);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void large_messages(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    CHECK_OK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "large" }, &err),
             &err);
    CHECK(strlen(uni_dict_get_string(uni_result_info_of(result)->metrics[1], "text", "")) ==
          6u << 20);
    uni_array *array = uni_value_as_array(uni_result_info_of(result)->returned[1]);
    CHECK(array && uni_array_count(array) == 2000000 &&
          ((float *)uni_array_data(array))[1999999] == 1.5f);
    uni_result_free(result);
    char *blob = malloc(500001);
    memset(blob, 'b', 500000);
    blob[500000] = '\0';
    uni_value *config = uni_value_dict();
    CHECK(uni_dict_take(config, "blob", uni_value_string(blob)) == 0);
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "config_length", .config = config },
                             &err),
             &err);
    CHECK(uni_value_as_int(uni_result_info_of(result)->returned[1], 0) == 500000);
    free(blob);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void uneven_reports(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    CHECK_OK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "uneven" }, &err),
             &err);
    CHECK(uni_result_info_of(result)->iterations[0] == 5 &&
          uni_result_info_of(result)->iterations[1] == 2);
    uni_result_free(result);
    CHECK(uni_trainer_fit(&result, trainer,
                          &(uni_run_options){ .function = "uneven", .v1_checkpoints = true },
                          &err) == UNI_EMISMATCH);
    CHECK_CONTAINS(err.message, "rank");
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static int check_filled(void *context, const uni_reports *reports, uni_error *err)
{
    CHECK(uni_dict_get_int(reports->by_rank[0], "_training_iteration", -1) == reports->iteration);
    CHECK(uni_dict_get_int(reports->by_rank[0], "_timestamp", -1) > 1600000000);
    ++*(int *)context;
    return 0;
}

static void forks_and_names(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_run *run = NULL;
    int seen = 0;
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 1, .max_failures = UNI_NO_RETRIES });
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "forked_and_filled" }, &err),
             &err);
    CHECK_OK(uni_run_open(&run, uni_result_info_of(result)->run_dir, NULL, &err), &err);
    CHECK_OK(uni_run_reports(run, check_filled, &seen, &err), &err);
    CHECK(seen == 2);
    uni_run_close(run);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

typedef struct counts {
    int started, results, finished, code;
} counts;

static void on_start(void *context, const uni_start_info *info)
{
    ((counts *)context)->started += info->world_size;
}

static void on_result(void *context, const uni_reports *reports)
{
    ((counts *)context)->results++;
    scenario_sleep_ms(2); /* a slow callback delays nobody but itself and loses nothing */
}

static void on_finish(void *context, const uni_finish_info *info)
{
    ((counts *)context)->finished++;
    ((counts *)context)->code = info->code;
}

static void callbacks_get_everything(uni_program *program)
{
    uni_error err = { 0 };
    uni_sink *sink = NULL;
    counts seen = { 0 };
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    uni_value *config = scenario_config("count", 300, NULL);
    CHECK_OK(uni_sink_from_functions(&sink,
                                     &(uni_sink_functions){ .on_start = on_start,
                                                            .on_result = on_result,
                                                            .on_finish = on_finish,
                                                            .context = &seen },
                                     &err),
             &err);
    CHECK_OK(
        uni_trainer_fit(NULL, trainer,
                        &(uni_run_options){
                            .function = "flood", .config = config, .sinks = &sink, .num_sinks = 1 },
                        &err),
        &err);
    CHECK(seen.started == 2 && seen.results == 300 && seen.finished == 1 && seen.code == 0);
    uni_sink_free(sink);
    uni_value_free(config);
    uni_trainer_free(trainer);
}

static void sixty_four_workers(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_log_level_set(UNI_LOG_ERROR);
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 64 });
    CHECK_OK(
        uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "report_epochs" }, &err),
        &err);
    CHECK(uni_value_as_int(uni_result_info_of(result)->returned[63], -1) == 6303);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

/* More than the socket between controller and agent holds at once, in either direction. */
static void five_hundred_workers(uni_program *program)
{
    uni_error err = { 0 };
    uni_log_level_set(UNI_LOG_ERROR);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 500, .max_failures = UNI_NO_RETRIES });
    CHECK_OK(uni_trainer_fit(NULL, trainer,
                             &(uni_run_options){ .program = (const char *const[]){ "true", NULL } },
                             &err),
             &err);
    uni_trainer_free(trainer);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void alone(uni_program *program)
{
    uni_error err = { 0 };
    uni_session *session = NULL;
    uni_value *state = NULL;
    uni_log_level_set(UNI_LOG_OFF);
    CHECK_OK(uni_session_open(&session, &err), &err);
    CHECK(!uni_session_info_of(session)->is_worker &&
          uni_session_info_of(session)->world_size == 1 &&
          uni_session_info_of(session)->world_rank == 0);
    CHECK_OK(uni_session_report_numbers(session, 1, (const char *const[]){ "x" },
                                        (const double[]){ 1 }, &err),
             &err);
    CHECK_OK(uni_session_load_checkpoint(&state, session, &err), &err);
    CHECK(state == NULL && !uni_session_should_stop(session));
    uni_session_close(session);
}

const scenario scenarios[] = { { "fit_returns_by_rank", fit_returns_by_rank },
                               { "detailed_metrics", detailed_metrics },
                               { "ranks_and_environment", ranks_and_environment },
                               { "warm_workers", warm_workers },
                               { "idle_death_is_replaced", idle_death_is_replaced },
                               { "iterator_runs", iterator_runs },
                               { "iterator_lockstep", iterator_lockstep },
                               { "lockstep_with_sinks", lockstep_with_sinks },
                               { "nan_survives", nan_survives },
                               { "large_messages", large_messages },
                               { "uneven_reports", uneven_reports },
                               { "callbacks_get_everything", callbacks_get_everything },
                               { "sixty_four_workers", sixty_four_workers },
                               { "five_hundred_workers", five_hundred_workers },
                               { "forks_and_names", forks_and_names },
                               { "alone", alone },
                               { NULL, NULL } };
