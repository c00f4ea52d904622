/* door.c - what the Python door needs of runs: attachments for the workers' eyes only, fresh
 * workers for every run, an iterator that looks up now and then. */
#include "train/shared.h"
#include "scenario.h"

#define SECRET "only-for-the-workers-7f3a"

/* ---- train functions ---- */

static int attached(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *attachment = uni__session_attachment(session);
    if (!attachment)
        return uni_error_set(err, UNI_EINVAL, "there is no attachment");
    *result = uni_value_copy(attachment);
    return uni_dict_get(uni_session_info_of(session)->config, "secret")
               ? uni_error_set(err, UNI_EINVAL, "the attachment is in the config")
               : 0;
}

static int nothing_attached(uni_session *session, uni_value **result, uni_error *err)
{
    *result = uni_value_bool(uni__session_attachment(session) == NULL);
    return 0;
}

static int my_pid(uni_session *session, uni_value **result, uni_error *err)
{
    *result = uni_value_int(getpid());
    return 0;
}

/* One report at once, one after half a second. */
static int slow(uni_session *session, uni_value **result, uni_error *err)
{
    for (int i = 0; i < 2; i++) {
        if (i)
            scenario_sleep_ms(500);
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "i" },
                                           (const double[]){ i }, err));
    }
    return 0;
}

/* Fails on rank 1, with so many bytes about it. */
static int fails(uni_session *session, uni_value **result, uni_error *err)
{
    size_t size = (size_t)uni_dict_get_int(uni_session_info_of(session)->config, "size", 0);
    if (uni_session_info_of(session)->world_rank != 1)
        return 0;
    char *bytes = calloc(1, size);
    *result = bytes ? uni_value_bytes(bytes, size) : NULL;
    free(bytes);
    return uni_error_set(err, UNI_EINVAL, "it failed");
}

const uni_function functions[] = {
    { "attached", attached }, { "nothing_attached", nothing_attached },
    { "my_pid", my_pid },     { "slow", slow },
    { "fails", fails },       { NULL, NULL }
};

/* ---- scenarios ---- */

static bool file_has(const char *dir, const char *name, const char *text)
{
    char path[4096], *content = calloc(1, 1 << 20);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(content, 1, (1 << 20) - 1, file) : 0;
    if (file)
        fclose(file);
    bool found = size && memmem(content, size, text, strlen(text)) != NULL;
    free(content);
    return found;
}

/* Every rank gets it as it was given; no file of the run has it; a run without one has none. */
static void attachment(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    uni_value *given = uni_value_dict();
    CHECK(uni_dict_take(given, "secret", uni_value_string(SECRET)) == 0);
    CHECK_OK(uni_trainer_start(trainer, &err), &err);
    CHECK_OK(uni_trainer_run(&result, trainer,
                             &(uni_run_options){ .function = "attached", .attachment = given },
                             &err),
             &err);
    for (int rank = 0; rank < 2; rank++)
        CHECK_CONTAINS(
            uni_dict_get_string(uni_result_info_of(result)->returned[rank], "secret", ""), SECRET);
    const char *dir = uni_result_info_of(result)->run_dir;
    static const char *const names[] = { "run.json", "results.jsonl", "progress.csv",
                                         "logs/rank_0.log" };
    CHECK(file_has(dir, "run.json", "\"attached\""));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK(!file_has(dir, names[i], SECRET));
    uni_result_free(result);
    result = NULL;
    CHECK_OK(uni_trainer_run(&result, trainer, &(uni_run_options){ .function = "nothing_attached" },
                             &err),
             &err);
    CHECK(uni_value_as_bool(uni_result_info_of(result)->returned[0], false));
    uni_result_free(result);
    uni_value_free(given);
    uni_trainer_free(trainer);
}

/* Pids of two runs between start and shutdown: the same without fresh_workers, others with it. */
static void fresh_workers(uni_program *program)
{
    for (int fresh = 0; fresh < 2; fresh++) {
        uni_error err = { 0 };
        int64_t pids[2] = { 0 };
        uni_trainer *trainer = scenario_trainer(
            program, (uni_trainer_options){ .num_workers = 1, .fresh_workers = fresh == 1 });
        CHECK_OK(uni_trainer_start(trainer, &err), &err);
        for (int run = 0; run < 2; run++) {
            uni_result *result = NULL;
            CHECK_OK(
                uni_trainer_run(&result, trainer, &(uni_run_options){ .function = "my_pid" }, &err),
                &err);
            pids[run] = uni_value_as_int(uni_result_info_of(result)->returned[0], 0);
            uni_result_free(result);
        }
        CHECK(pids[0] > 0 && pids[1] > 0);
        CHECK((pids[0] == pids[1]) == (fresh == 0));
        uni_trainer_free(trainer);
    }
}

/* A timeout changes nothing: the report that comes later is whole, and the end is the end. */
static void next_within(uni_program *program)
{
    uni_error err = { 0 };
    uni_iterator *iterator = NULL;
    const uni_reports *reports = NULL;
    int timeouts = 0, seen = 0, status;
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    CHECK_OK(uni_trainer_start(trainer, &err), &err);
    CHECK_OK(uni_trainer_run_iterator(&iterator, trainer, &(uni_run_options){ .function = "slow" },
                                      &err),
             &err);
    while ((status = uni_iterator_next_within(&reports, iterator, 0.05, &err)) != 0) {
        if (status == UNI_ETIMEOUT) {
            timeouts++;
            CHECK(!uni_iterator_is_finished(iterator));
            continue;
        }
        CHECK_OK(status, &err);
        for (int rank = 0; rank < 2; rank++)
            CHECK(uni_dict_get_int(reports->by_rank[rank], "i", -1) == seen);
        seen++;
    }
    CHECK(seen == 2);
    CHECK(timeouts >= 3); /* half a second in slices of 50 ms */
    CHECK(uni_iterator_is_finished(iterator));
    const uni_result *result = NULL;
    CHECK_OK(uni_iterator_result(&result, iterator, false, &err), &err);
    CHECK(uni_result_info_of(result)->iterations[1] == 2);
    uni_iterator_free(iterator);
    uni_trainer_free(trainer);
}

/* What the function that failed left comes back with its rank, unless it is too large; the error
 * comes either way. */
static void failure(uni_program *program)
{
    static const size_t sizes[] = { 5, UNI_FAILURE_MAX - 5, UNI_FAILURE_MAX };
    for (int i = 0; i < 3; i++) {
        uni_error err = { 0 };
        uni_result *result = NULL;
        uni_value *config = scenario_config("size", (double)sizes[i], NULL);
        uni_trainer *trainer = scenario_trainer(
            program, (uni_trainer_options){ .num_workers = 2, .max_failures = UNI_NO_RETRIES });
        CHECK(uni_trainer_fit(&result, trainer,
                              &(uni_run_options){ .function = "fails", .config = config },
                              &err) == UNI_EFUNCTION);
        CHECK_CONTAINS(err.message, "it failed");
        size_t size = 0;
        const uni_value *left = uni_result_info_of(result)->failure;
        CHECK(uni_result_info_of(result)->failed_rank == 1);
        CHECK((left != NULL) == (i < 2));
        CHECK(!left || (uni_value_as_bytes(left, &size) && size == sizes[i]));
        uni_result_free(result);
        uni_value_free(config);
        uni_trainer_free(trainer);
    }
}

const scenario scenarios[] = { { "attachment", attachment },
                               { "fresh_workers", fresh_workers },
                               { "next_within", next_within },
                               { "failure", failure },
                               { NULL, NULL } };
