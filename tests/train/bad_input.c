/* bad_input.c - what is asked wrongly: a clear error before anything starts, and nothing left on
 * the disk. */
#include <sys/stat.h>

#include "scenario.h"

static int nothing(uni_session *session, uni_value **result, uni_error *err)
{
    return 0;
}

static int bad_metrics(uni_session *session, uni_value **result, uni_error *err)
{
    uni_value *list = uni_value_list();
    int status = uni_session_report(session, list, NULL, err);
    uni_value_free(list);
    return status;
}

static int no_session_of_its_own(uni_session *session, uni_value **result, uni_error *err)
{
    uni_session *second = NULL;
    UNI_TRY(uni_session_open(&second, err));
    bool alone = !uni_session_info_of(second)->is_worker;
    uni_session_close(second);
    return alone ? 0 : uni_error_set(err, UNI_EMISMATCH, "a second session in one worker");
}

const uni_function functions[] = { { "nothing", nothing },
                                   { "bad_metrics", bad_metrics },
                                   { "no_session_of_its_own", no_session_of_its_own },
                                   { NULL, NULL } };

static void refused(const uni_trainer_options *options, int code, const char *words)
{
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    int status = uni_trainer_new(&trainer, options, &err);
    if (status != code)
        fprintf(stderr, "expected %s, got %s: %s\n", uni_status_name(code), uni_status_name(status),
                err.message);
    CHECK(status == code && trainer == NULL);
    CHECK_CONTAINS(err.message, words);
}

static void trainer_options(uni_program *program)
{
    const char *storage = scenario_storage();
    char file[512], below[600];
    snprintf(file, sizeof file, "%s/file", storage);
    snprintf(below, sizeof below, "%s/file/below", storage);
    fclose(fopen(file, "w"));
    refused(&(uni_trainer_options){ .num_workers = -1, .storage_path = storage }, UNI_EINVAL,
            "num_workers");
    refused(&(uni_trainer_options){ .backend = "jax", .storage_path = storage }, UNI_EINVAL,
            "native, tensorflow, torch, horovod, none");
    refused(&(uni_trainer_options){ .launcher = "ssh", .storage_path = storage }, UNI_EINVAL,
            "ssh");
    refused(&(uni_trainer_options){ .launcher = "slurm", .storage_path = storage }, UNI_ESTATE,
            "salloc or sbatch");
    refused(&(uni_trainer_options){ .use_gpu = true, .storage_path = storage }, UNI_EUNSUPPORTED,
            "native backend computes on the CPU");
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    refused(
        &(uni_trainer_options){
            .use_gpu = true, .backend = "torch", .num_workers = 2, .storage_path = storage },
        UNI_ERESOURCE, "needs 2 GPUs, but this machine shows 1");
    refused(
        &(uni_trainer_options){ .gpus_per_worker = 1, .backend = "torch", .storage_path = storage },
        UNI_EINVAL, "use_gpu is off");
    refused(&(uni_trainer_options){ .cpus_per_worker = 100000, .storage_path = storage },
            UNI_ERESOURCE, "CPUs");
    refused(&(uni_trainer_options){ .memory_per_worker = 1e18, .storage_path = storage },
            UNI_ERESOURCE, "reserve less with memory_per_worker (--memory)");
    refused(&(uni_trainer_options){ .address_space_limit = -1, .storage_path = storage },
            UNI_EINVAL, "address_space_limit must not be negative");
    refused(&(uni_trainer_options){ .max_failures = -7, .storage_path = storage }, UNI_EINVAL,
            "max_failures");
    refused(&(uni_trainer_options){ .name = "a/b", .storage_path = storage }, UNI_EINVAL, "a/b");
    refused(&(uni_trainer_options){ .storage_path = file }, UNI_EINVAL, "is a file");
    refused(&(uni_trainer_options){ .storage_path = "" }, UNI_EINVAL, "storage path is empty");
    refused(&(uni_trainer_options){ .storage_path = below }, UNI_EIO, file);
    refused(&(uni_trainer_options){ .storage_path = "s3://bucket/runs" }, UNI_EUNSUPPORTED, "s3");
    refused(&(uni_trainer_options){ .working_directory = "/nowhere", .storage_path = storage },
            UNI_ENOTFOUND, "/nowhere");
    refused(&(uni_trainer_options){ .name = "two\nlines", .storage_path = storage }, UNI_EINVAL,
            "control character");
    CHECK(access("s3:", F_OK) < 0);
    char *left = scenario_list(storage, NULL);
    CHECK(strcmp(left, "file") == 0);
    free(left);
}

static void run_refused(uni_trainer *trainer, const uni_run_options *run, int code,
                        const char *words)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    int status = uni_trainer_fit(&result, trainer, run, &err);
    if (status != code)
        fprintf(stderr, "expected %s, got %s: %s\n", uni_status_name(code), uni_status_name(status),
                err.message);
    CHECK(status == code && result == NULL);
    CHECK_CONTAINS(err.message, words);
}

static void run_options(uni_program *program)
{
    uni_value *list = uni_value_list();
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    run_refused(trainer, &(uni_run_options){ .function = "nothin" }, UNI_ENOTFOUND,
                "nothing, bad_metrics");
    run_refused(trainer, &(uni_run_options){ 0 }, UNI_EINVAL, "either a function or a program");
    run_refused(trainer, &(uni_run_options){ .function = "nothing", .config = list }, UNI_EINVAL,
                "dictionary");
    run_refused(trainer, &(uni_run_options){ .function = "nothing", .time_limit = -1 }, UNI_EINVAL,
                "time_limit");
    run_refused(trainer, &(uni_run_options){ .function = "nothing", .resume_run = "/nowhere" },
                UNI_ENOTFOUND, "/nowhere");
    run_refused(
        trainer,
        &(uni_run_options){ .program = (const char *const[]){ "no-such-program-here", NULL } },
        UNI_ENOTFOUND, "no-such-program-here");
    run_refused(trainer, &(uni_run_options){ .program = (const char *const[]){ "/tmp", NULL } },
                UNI_EINVAL, "/tmp is a directory");
    uni_trainer_free(trainer);
    /* A program that never called uni_main. */
    uni_error err = { 0 };
    CHECK_OK(uni_trainer_new(&trainer, &(uni_trainer_options){ .storage_path = scenario_storage() },
                             &err),
             &err);
    run_refused(trainer, &(uni_run_options){ .function = "nothing" }, UNI_ESTATE, "uni_main");
    uni_trainer_free(trainer);
    uni_value_free(list);
    char *left = scenario_list(scenario_storage(), NULL);
    CHECK(left[0] == '\0');
    free(left);
}

static void storage_url(uni_program *program)
{
    uni_error err = { 0 };
    char url[300];
    snprintf(url, sizeof url, "file://%s/deep/er", scenario_storage());
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 1, .storage_path = url, .name = "x" });
    CHECK_OK(uni_trainer_fit(NULL, trainer, &(uni_run_options){ .function = "nothing" }, &err),
             &err);
    char *left = scenario_list(scenario_storage(), "deep", "er", "x", NULL);
    CHECK(strcmp(left, "run_001") == 0);
    free(left);
    uni_trainer_free(trainer);
}

static void in_the_worker(uni_program *program)
{
    uni_error err = { 0 };
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 1, .max_failures = UNI_NO_RETRIES });
    CHECK(uni_trainer_fit(NULL, trainer, &(uni_run_options){ .function = "bad_metrics" }, &err) ==
          UNI_EFUNCTION);
    CHECK_CONTAINS(err.message, "metrics must be a dictionary");
    CHECK_OK(uni_trainer_fit(NULL, trainer,
                             &(uni_run_options){ .function = "no_session_of_its_own" }, &err),
             &err);
    uni_trainer_free(trainer);
}

const scenario scenarios[] = { { "trainer_options", trainer_options },
                               { "run_options", run_options },
                               { "storage_url", storage_url },
                               { "in_the_worker", in_the_worker },
                               { NULL, NULL } };
