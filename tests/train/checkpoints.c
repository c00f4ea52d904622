/* checkpoints.c - checkpoints through a whole run: policies, dictionaries, directories,
 * resuming. */
#include <math.h>
#include <sys/stat.h>

#include "scenario.h"

/* ---- train functions ---- */

static int save_losses(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *losses = uni_dict_get(uni_session_info_of(session)->config, "losses");
    for (size_t i = 0; i < uni_list_size(losses); i++) {
        uni_value *state = uni_value_dict();
        int status = uni_dict_take(state, "loss", uni_value_copy(uni_list_get(losses, i)));
        if (status == 0)
            status = uni_session_save_checkpoint(session, state, err);
        uni_value_free(state);
        UNI_TRY(status);
    }
    return 0;
}

static uni_value *state_of(int64_t epoch, int size, uni_error *err)
{
    uni_array *weights = NULL;
    uni_value *state = uni_value_dict();
    if (uni_array_new(&weights, UNI_F32, 1, (const int64_t[]){ size }, err) < 0)
        return NULL;
    for (int i = 0; i < size; i++)
        ((float *)uni_array_data(weights))[i] = (float)epoch + (float)i * 0.5f;
    int status = uni_dict_take(state, "epoch", uni_value_int(epoch));
    status |= uni_dict_take(state, "weights", uni_value_array(weights));
    uni_array_unref(weights);
    return status == 0 ? state : NULL;
}

/* Counts epochs from where the checkpoint stands; rank 0 hands over a dictionary with each
 * report. */
static int count_epochs(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    uni_value *state = NULL;
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    int64_t first = uni_dict_get_int(state, "epoch", -1) + 1;
    uni_array *weights = uni_value_as_array(uni_dict_get(state, "weights"));
    if (state && (!weights || ((float *)uni_array_data(weights))[2] != (float)(first - 1) + 1.0f))
        return uni_error_set(err, UNI_ECORRUPT, "the weights are not those of epoch %d",
                             (int)first - 1);
    uni_value_free(state);
    for (int64_t epoch = first; epoch < uni_dict_get_int(config, "epochs", 4); epoch++) {
        uni_value *metrics = uni_value_dict(),
                  *next = state_of(epoch, (int)uni_dict_get_int(config, "size", 10), err);
        int status = uni_dict_take(metrics, "epoch", uni_value_int(epoch));
        status |= uni_dict_take(metrics, "loss", uni_value_float(1.0 / (double)(epoch + 1)));
        uni_checkpoint_source source = { .dict = uni_session_info_of(session)->world_rank == 0
                                                     ? next
                                                     : NULL };
        if (status == 0)
            status = uni_session_report(session, metrics, &source, err);
        uni_value_free(metrics);
        uni_value_free(next);
        UNI_TRY(status);
    }
    *result = uni_value_int(first);
    return 0;
}

static int write_text(const char *dir, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    if (!file)
        return -1;
    fputs(text, file);
    return fclose(file);
}

/* Every rank brings a file of its own in a directory that the session made. */
static int directories(uni_session *session, uni_value **result, uni_error *err)
{
    for (int i = 0; i < 2; i++) {
        char *dir = NULL, name[64];
        UNI_TRY(uni_session_checkpoint_dir(&dir, session, err));
        snprintf(name, sizeof name, "part_%d.txt", uni_session_info_of(session)->world_rank);
        if (write_text(dir, name, i ? "second" : "first") < 0)
            return uni_error_set(err, UNI_EIO, "cannot write");
        int status =
            uni_session_report(session, NULL, &(uni_checkpoint_source){ .directory = dir }, err);
        free(dir);
        UNI_TRY(status);
    }
    return 0;
}

/* The same directory of the user's own for every checkpoint, changed and removed at once. */
static int users_directory(uni_session *session, uni_value **result, uni_error *err)
{
    const char *base = getenv("TMPDIR");
    char dir[256], text[32];
    snprintf(dir, sizeof dir, "%s/unisono-user-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(dir))
        return uni_error_set(err, UNI_EIO, "cannot make a directory");
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "state %d", i);
        if (write_text(dir, "state.txt", text) < 0)
            return uni_error_set(err, UNI_EIO, "cannot write");
        UNI_TRY(
            uni_session_report(session, NULL, &(uni_checkpoint_source){ .directory = dir }, err));
        if (access(dir, F_OK) < 0)
            return uni_error_set(err, UNI_EIO, "the user's directory was moved away");
    }
    char command[300];
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command) == 0 ? 0 : uni_error_set(err, UNI_EIO, "the user's directory is gone");
}

/* One report with a checkpoint for each loss. */
static int report_losses(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *list = uni_dict_get(uni_session_info_of(session)->config, "losses");
    for (size_t i = 0; i < uni_list_size(list); i++) {
        uni_value *metrics =
            scenario_config("loss", uni_value_as_float(uni_list_get(list, i), 0), NULL);
        bool first = uni_session_info_of(session)->world_rank == 0;
        int status = uni_session_report(
            session, metrics, &(uni_checkpoint_source){ .dict = first ? metrics : NULL }, err);
        uni_value_free(metrics);
        UNI_TRY(status);
    }
    return 0;
}

static int missing_directory(uni_session *session, uni_value **result, uni_error *err)
{
    return uni_session_report(session, NULL,
                              &(uni_checkpoint_source){ .directory = "/nowhere/at/all" }, err);
}

const uni_function functions[] = { { "save_losses", save_losses },
                                   { "count_epochs", count_epochs },
                                   { "directories", directories },
                                   { "users_directory", users_directory },
                                   { "missing_directory", missing_directory },
                                   { "report_losses", report_losses },
                                   { NULL, NULL } };

/* ---- scenarios ---- */

static uni_value *losses(int count, const double *values)
{
    uni_value *list = uni_value_list(), *config = uni_value_dict();
    for (int i = 0; i < count; i++)
        CHECK(uni_list_take(list, uni_value_float(values[i])) == 0);
    CHECK(uni_dict_take(config, "losses", list) == 0);
    return config;
}

/* The newest is at hand although the policy keeps better ones; those are listed best last. */
static void newest_and_best(uni_program *program)
{
    static const double values[] = { 0.9, 0.2, 0.5, 0.2, 0.7 };
    static const char *const kept[] = { "checkpoint_000003", "checkpoint_000004",
                                        "checkpoint_000002" };
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = losses(5, values), *dict = NULL;
    uni_checkpoint *newest = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    CHECK_OK(
        uni_trainer_fit(&result, trainer,
                        &(uni_run_options){
                            .function = "report_losses",
                            .config = config,
                            .policy = &(uni_checkpoint_policy){ .num_to_keep = 3,
                                                                .score_attribute = "loss",
                                                                .score_order = UNI_SCORE_MIN } },
                        &err),
        &err);
    CHECK_CONTAINS(uni_result_info_of(result)->latest_checkpoint, "checkpoint_000005");
    CHECK_OK(uni_checkpoint_open(&newest, uni_result_info_of(result)->latest_checkpoint, &err),
             &err);
    CHECK_OK(uni_checkpoint_read_dict(&dict, newest, &err), &err);
    CHECK(uni_dict_get_float(dict, "loss", 0) == 0.7);
    uni_value_free(dict);
    uni_checkpoint_close(newest);
    CHECK_CONTAINS(uni_result_info_of(result)->best_checkpoint, kept[2]);
    CHECK(uni_result_info_of(result)->num_checkpoints == 3);
    for (int i = 0; i < 3; i++)
        CHECK_CONTAINS(uni_result_info_of(result)->checkpoints[i], kept[i]);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void golden(uni_program *program, uni_checkpoint_policy policy, int count,
                   const double *values, const char *kept, const char *best)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = losses(count, values);
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "save_losses",
                                                 .config = config,
                                                 .policy = &policy,
                                                 .v1_checkpoints = true },
                             &err),
             &err);
    char *left = scenario_list(uni_result_info_of(result)->run_dir, "checkpoints", NULL);
    if (strcmp(left, kept) != 0)
        fprintf(stderr, "kept: %s, expected: %s\n", left, kept);
    CHECK(strcmp(left, kept) == 0);
    if (best)
        CHECK_CONTAINS(uni_result_info_of(result)->best_checkpoint, best);
    else
        CHECK(uni_result_info_of(result)->best_checkpoint == NULL);
    /* The latest one is always at hand, whether it was kept or not. */
    const double latest = uni_dict_get_float(uni_result_info_of(result)->latest_dict, "loss", -1);
    CHECK(latest == values[count - 1] || (isnan(latest) && isnan(values[count - 1])));
    char *hidden = scenario_list(uni_result_info_of(result)->run_dir, NULL);
    CHECK(!strstr(hidden, ".staging") && !strstr(hidden, ".recovery"));
    free(hidden);
    free(left);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

static void golden_policies(uni_program *program)
{
    const uni_checkpoint_policy best_two = { .num_to_keep = 2,
                                             .score_attribute = "loss",
                                             .score_order = UNI_SCORE_MIN };
    golden(program, best_two, 4, (const double[]){ 2, 4, 1, 3 },
           "checkpoint_000001 checkpoint_000003", "checkpoint_000003");
    golden(program, best_two, 4, (const double[]){ NAN, 3, 7, 5 },
           "checkpoint_000002 checkpoint_000004", "checkpoint_000002");
    golden(program, (uni_checkpoint_policy){ 0 }, 3, (const double[]){ 3, 1, 2 },
           "checkpoint_000001 checkpoint_000002 checkpoint_000003", "checkpoint_000003");
    golden(program, (uni_checkpoint_policy){ .num_to_keep = 2 }, 4, (const double[]){ 2, 4, 1, 3 },
           "checkpoint_000003 checkpoint_000004", "checkpoint_000004");
    golden(program, (uni_checkpoint_policy){ .num_to_keep = UNI_KEEP_NONE }, 3,
           (const double[]){ 2, 4, 1 }, "", NULL);
}

static void policy_errors(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = losses(1, (const double[]){ 2 });
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 1 });
    const uni_checkpoint_policy missing = { .num_to_keep = 2, .score_attribute = "accuracy" },
                                negative = { .num_to_keep = -5 };
    uni_run_options run = {
        .function = "save_losses", .config = config, .policy = &missing, .v1_checkpoints = true
    };
    CHECK(uni_trainer_fit(&result, trainer, &run, &err) == UNI_EINVAL);
    CHECK_CONTAINS(err.message, "accuracy");
    CHECK(uni_result_info_of(result)->attempts == 1); /* trying again would not help */
    uni_result_free(result);
    run.policy = &negative;
    CHECK(uni_trainer_fit(&result, trainer, &run, &err) == UNI_EINVAL && result == NULL);
    uni_value_free(config);
    uni_trainer_free(trainer);
}

static void resume_from(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *first = NULL, *second = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    uni_value *four = scenario_config("epochs", 4.0, NULL),
              *six = scenario_config("epochs", 6.0, NULL);
    CHECK_OK(uni_trainer_fit(&first, trainer,
                             &(uni_run_options){ .function = "count_epochs", .config = four },
                             &err),
             &err);
    CHECK(uni_value_as_int(uni_result_info_of(first)->returned[1], -1) == 0);
    CHECK_CONTAINS(uni_result_info_of(first)->latest_checkpoint, "checkpoint_000004");
    uni_checkpoint *checkpoint = NULL;
    CHECK_OK(uni_checkpoint_open(&checkpoint, uni_result_info_of(first)->latest_checkpoint, &err),
             &err);
    CHECK(uni_checkpoint_info_of(checkpoint)->iteration == 4 &&
          uni_dict_get_int(uni_checkpoint_info_of(checkpoint)->metrics, "epoch", -1) == 3);
    uni_checkpoint_close(checkpoint);
    /* By checkpoint, by run directory, by dictionary. */
    for (int way = 0; way < 3; way++) {
        uni_value *dict = scenario_config("epoch", 3.0, NULL);
        uni_array *weights = NULL;
        CHECK_OK(uni_array_new(&weights, UNI_F32, 1, (const int64_t[]){ 3 }, &err), &err);
        ((float *)uni_array_data(weights))[2] = 4.0f;
        CHECK(uni_dict_take(dict, "weights", uni_value_array(weights)) == 0);
        uni_array_unref(weights);
        uni_run_options run = { .function = "count_epochs", .config = six };
        if (way == 2)
            run.from_dict = dict;
        else
            run.from_checkpoint = way ? uni_result_info_of(first)->run_dir
                                      : uni_result_info_of(first)->latest_checkpoint;
        CHECK_OK(uni_trainer_fit(&second, trainer, &run, &err), &err);
        CHECK(uni_value_as_int(uni_result_info_of(second)->returned[0], -1) == 4 &&
              uni_value_as_int(uni_result_info_of(second)->returned[1], -1) == 4);
        CHECK(uni_result_info_of(second)->iterations[0] == 2);
        uni_result_free(second);
        uni_value_free(dict);
    }
    /* A damaged one is refused before anything starts. */
    char path[4200];
    snprintf(path, sizeof path, "%s/arrays.bin", uni_result_info_of(first)->latest_checkpoint);
    FILE *file = fopen(path, "r+");
    CHECK(file != NULL);
    fputc('!', file);
    fclose(file);
    uni_run_options run = { .function = "count_epochs",
                            .from_checkpoint = uni_result_info_of(first)->latest_checkpoint };
    CHECK(uni_trainer_fit(&second, trainer, &run, &err) == UNI_ECORRUPT && second == NULL);
    run.from_checkpoint = "/nowhere";
    CHECK(uni_trainer_fit(&second, trainer, &run, &err) == UNI_ENOTFOUND && second == NULL);
    uni_value_free(four);
    uni_value_free(six);
    uni_result_free(first);
    uni_trainer_free(trainer);
}

static void directory_parts(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 3 });
    CHECK_OK(
        uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "directories" }, &err),
        &err);
    char *files = scenario_list(uni_result_info_of(result)->run_dir, "checkpoints",
                                "checkpoint_000002", NULL);
    CHECK(strcmp(files, ".unisono-manifest.json part_0.txt part_1.txt part_2.txt") == 0);
    free(files);
    uni_result_free(result);
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .function = "users_directory", .num_sinks = -1 },
                             &err),
             &err);
    uni_result_free(result);
    uni_trainer_free(trainer);
    trainer = scenario_trainer(program,
                               (uni_trainer_options){ .num_workers = 1, .no_retry_errors = true });
    CHECK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .function = "missing_directory" },
                          &err) == UNI_EFUNCTION);
    CHECK_CONTAINS(err.message, "/nowhere/at/all");
    uni_result_free(result);
    uni_trainer_free(trainer);
}

/* A warm worker's heart makes the second buffer when the run that made the first one is over. The
 * next run uses both. */
static void buffer_between_runs(uni_program *program)
{
    uni_error err = { 0 };
    uni_value *one = losses(1, (const double[]){ 1 }),
              *many = losses(5, (const double[]){ 2, 4, 1, 3, 5 });
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 1 });
    uni_result *result = NULL;
    CHECK_OK(uni_trainer_start(trainer, &err), &err);
    CHECK_OK(uni_trainer_run(&result, trainer,
                             &(uni_run_options){ .function = "save_losses", .config = one }, &err),
             &err);
    uni_result_free(result);
    scenario_sleep_ms(700); /* two beats and more */
    CHECK_OK(uni_trainer_run(&result, trainer,
                             &(uni_run_options){ .function = "save_losses", .config = many }, &err),
             &err);
    CHECK(uni_result_info_of(result)->attempts == 1);
    uni_result_free(result);
    uni_trainer_free(trainer);
    uni_value_free(one);
    uni_value_free(many);
}

const scenario scenarios[] = { { "golden_policies", golden_policies },
                               { "policy_errors", policy_errors },
                               { "resume_from", resume_from },
                               { "directory_parts", directory_parts },
                               { "buffer_between_runs", buffer_between_runs },
                               { "newest_and_best", newest_and_best },
                               { NULL, NULL } };
