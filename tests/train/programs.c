/* programs.c - any program as a worker: its environment, its reports as lines, its logs, how it
 * ends; and who may look. */
#include <math.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "scenario.h"

const uni_function functions[] = { { NULL, NULL } };

static uni_result *run_shell(uni_program *program, uni_trainer_options options, const char *script,
                             int expected)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_trainer *trainer = scenario_trainer(program, options);
    int status = uni_trainer_fit(
        &result, trainer,
        &(uni_run_options){ .program = (const char *const[]){ "sh", "-c", script, NULL } }, &err);
    if (status != expected)
        fprintf(stderr, "expected %s, got %s: %s\n", uni_status_name(expected),
                uni_status_name(status), err.message);
    CHECK(status == expected && result != NULL);
    uni_trainer_free(trainer);
    return result;
}

static char *log_of(const uni_result *result, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/logs/%s", uni_result_info_of(result)->run_dir, name);
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    if (file && fread(text, 1, (1 << 20) - 1, file) == 0)
        text[0] = '\0';
    if (file)
        fclose(file);
    return text;
}

static void environment_of(uni_program *program, const char *backend, const char *script,
                           const char *expected)
{
    uni_result *result = run_shell(
        program, (uni_trainer_options){ .num_workers = 2, .backend = backend }, script, 0);
    char *log = log_of(result, "rank_1.log");
    if (!strstr(log, expected))
        fprintf(stderr, "%s printed: %s", backend, log);
    CHECK_CONTAINS(log, expected);
    free(log);
    uni_result_free(result);
}

/* The config reaches a program that knows nothing of the library. */
static void config_in_the_environment(uni_program *program)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = scenario_config("lr", 0.25, "layers", 3.0, NULL);
    uni_trainer *trainer = scenario_trainer(program, (uni_trainer_options){ .num_workers = 2 });
    const char *const words[] = { "sh", "-c",
                                  "echo \"$UNISONO_CONFIG [$UNISONO_CHECKPOINT] $UNISONO_ATTEMPT "
                                  "$UNISONO_RUN_DIR\"",
                                  NULL };
    setenv("UNISONO_CONFIG", "somebody else's", 1);
    CHECK_OK(uni_trainer_fit(&result, trainer,
                             &(uni_run_options){ .program = words, .config = config }, &err),
             &err);
    char *log = log_of(result, "rank_1.log"), expected[4300];
    snprintf(expected, sizeof expected, "{\"lr\":0.25,\"layers\":3} [] 1 %s\n",
             uni_result_info_of(result)->run_dir);
    CHECK_CONTAINS(log, expected);
    free(log);
    uni_value_free(config);
    uni_result_free(result);
    uni_trainer_free(trainer);
}

/* A program with workers of its own, started twice: each would train by itself. Once is what
 * somebody may want. */
static void copies_are_refused(uni_program *program)
{
    char self[4096] = "";
    uni_error err = { 0 };
    if (getenv("SCENARIO_COPY")) {
        uni_trainer *trainer = NULL;
        int status = uni_trainer_new(
            &trainer, &(uni_trainer_options){ .main = program, .num_workers = 2 }, &err);
        printf("%s %s\n", uni_status_name(status), err.message);
        uni_trainer_free(trainer);
        return;
    }
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const char *const words[] = { self, "copies_are_refused", NULL };
    setenv("SCENARIO_COPY", "1", 1);
    for (int workers = 1; workers <= 2; workers++) {
        uni_result *result = NULL;
        uni_trainer *trainer =
            scenario_trainer(program, (uni_trainer_options){ .num_workers = workers });
        CHECK_OK(uni_trainer_fit(&result, trainer, &(uni_run_options){ .program = words }, &err),
                 &err);
        char *log = log_of(result, "rank_0.log");
        CHECK_CONTAINS(log, workers == 1 ? "OK" : "ESTATE this program starts its own workers");
        free(log);
        uni_result_free(result);
        uni_trainer_free(trainer);
    }
}

static void environments(uni_program *program)
{
    unsetenv("OMP_NUM_THREADS");
    environment_of(program, "none",
                   "echo $UNISONO_RANK $UNISONO_WORLD_SIZE $UNISONO_LOCAL_RANK "
                   "$UNISONO_LOCAL_WORLD_SIZE $UNISONO_NODE_RANK",
                   "1 2 1 2 0\n");
    environment_of(
        program, "none",
        "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE [$MASTER_PORT] $PYTHONUNBUFFERED",
        "1 2 1 2 [] 1\n");
    environment_of(program, "torch", "test \"$MASTER_PORT\" -gt 1023 && echo $MASTER_ADDR",
                   "127.0.0.1\n");
    environment_of(program, "horovod",
                   "echo $HOROVOD_RANK $HOROVOD_SIZE $HOROVOD_LOCAL_RANK $HOROVOD_CROSS_SIZE",
                   "1 2 1 1\n");
    environment_of(program, "tensorflow",
                   "echo $TF_CONFIG | sed 's/127.0.0.1:[0-9]*/A/g'; echo $TF_GRPC_REUSE_PORT",
                   "{\"cluster\": {\"worker\": [\"A\", \"A\"]}, \"task\": {\"type\": \"worker\", "
                   "\"index\": 1}}\n1\n");
    setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7", 1);
    uni_result *result =
        run_shell(program,
                  (uni_trainer_options){
                      .num_workers = 2, .backend = "torch", .use_gpu = true, .gpus_per_worker = 2 },
                  "echo gpus $CUDA_VISIBLE_DEVICES", 0);
    char *log = log_of(result, "rank_1.log");
    CHECK(strcmp(log, "gpus 6,7\n") == 0);
    free(log);
    uni_result_free(result);
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("OMP_NUM_THREADS", "17", 1);
    environment_of(program, "none", "echo threads $OMP_NUM_THREADS", "threads 17\n");
}

static int count_reports(void *context, const uni_reports *reports, uni_error *err)
{
    int *count = context;
    ++*count;
    for (int rank = 0; rank < 2; rank++) {
        CHECK(uni_dict_get_int(reports->by_rank[rank], "epoch", -1) == reports->iteration);
        CHECK(uni_dict_get_int(reports->by_rank[rank], "_training_iteration", -1) ==
              reports->iteration);
    }
    return 0;
}

static void lines(uni_program *program)
{
    uni_error err = { 0 };
    uni_run *run = NULL;
    int count = 0;
    uni_result *result = run_shell(program, (uni_trainer_options){ .num_workers = 2 },
                                   "for i in 1 2 3; do echo \"{\\\"epoch\\\": $i, \\\"loss\\\": "
                                   "0.$i}\" >&$UNISONO_REPORT_FD; done; "
                                   "echo not json >&$UNISONO_REPORT_FD",
                                   0);
    CHECK_OK(uni_run_open(&run, uni_result_info_of(result)->run_dir, NULL, &err), &err);
    CHECK_OK(uni_run_reports(run, count_reports, &count, &err), &err);
    CHECK(count == 3);
    uni_run_close(run);
    uni_result_free(result);
    /* What Python's json.dumps writes for numbers that JSON does not have. */
    result = run_shell(program, (uni_trainer_options){ .num_workers = 1 },
                       "echo '{\"nan\": NaN, \"inf\": Infinity, \"minus\": -Infinity}' "
                       ">&$UNISONO_REPORT_FD",
                       0);
    const uni_value *last = uni_result_info_of(result)->metrics[0];
    CHECK(isnan(uni_dict_get_float(last, "nan", 0)));
    CHECK(uni_dict_get_float(last, "inf", 0) == INFINITY);
    CHECK(uni_dict_get_float(last, "minus", 0) == -INFINITY);
    uni_result_free(result);
    /* With a checkpoint, which a restart finds in its environment. */
    result = run_shell(
        program, (uni_trainer_options){ .num_workers = 1 },
        "if [ -n \"$UNISONO_CHECKPOINT\" ]; then cat $UNISONO_CHECKPOINT/state; exit 0; fi; "
        "d=$(mktemp -d); echo saved > $d/state; "
        "echo \"{\\\"metrics\\\": {\\\"a\\\": 1}, \\\"checkpoint\\\": \\\"$d\\\"}\" "
        ">&$UNISONO_REPORT_FD; sleep 0.5; rm -r $d; kill -9 $$",
        0);
    CHECK(uni_result_info_of(result)->attempts == 2);
    char *log = log_of(result, "rank_0.log");
    CHECK(strcmp(log, "saved\n") == 0);
    free(log);
    uni_result_free(result);
}

static void exit_codes(uni_program *program)
{
    const uni_trainer_options once = { .num_workers = 2, .max_failures = UNI_NO_RETRIES };
    uni_result *result = run_shell(program, once, "exit 0", 0);
    CHECK(uni_result_info_of(result)->exit_code == 0);
    uni_result_free(result);
    result = run_shell(program, once, "echo last words >&2; test $RANK = 0 || exit 3; sleep 60",
                       UNI_EWORKER);
    CHECK(uni_result_info_of(result)->exit_code == 3);
    CHECK_CONTAINS(uni_result_info_of(result)->error->message, "rank 1");
    uni_result_free(result);
    result = run_shell(program, once, "test $RANK = 0 || kill -SEGV $$; sleep 60", UNI_EWORKER);
    CHECK(uni_result_info_of(result)->exit_code == 128 + SIGSEGV);
    uni_result_free(result);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void background_children_end(uni_program *program)
{
    uni_result *result =
        run_shell(program, (uni_trainer_options){ .num_workers = 2 },
                  "trap '' TERM; (trap '' TERM; setsid sleep 300) & sleep 300 & exit 0", 0);
    uni_result_free(result);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void log_cap(uni_program *program)
{
    struct stat now, older;
    char path[4300];
    uni_result *result = run_shell(
        program, (uni_trainer_options){ .num_workers = 1, .log_cap = 100000 },
        "i=0; while [ $i -lt 30 ]; do i=$((i+1)); seq 1 2000; sleep 0.03; done; echo the very end",
        0);
    snprintf(path, sizeof path, "%s/logs/rank_0.log", uni_result_info_of(result)->run_dir);
    CHECK(stat(path, &now) == 0 && now.st_size < 200000);
    snprintf(path, sizeof path, "%s/logs/rank_0.log.1", uni_result_info_of(result)->run_dir);
    CHECK(stat(path, &older) == 0 && older.st_size < 200000);
    char *log = log_of(result, "rank_0.log");
    CHECK_CONTAINS(log, "the very end");
    free(log);
    uni_result_free(result);
}

/* Another user of the machine can neither read nor stop the run. */
static void another_user(uni_program *program)
{
    struct passwd *nobody = getpwnam("nobody");
    if (geteuid() != 0 || !nobody)
        scenario_end(77);
    uni_result *result =
        run_shell(program, (uni_trainer_options){ .num_workers = 1, .name = "private" },
                  "sleep 0.2; echo secret", 0);
    char *dir = strdup(uni_result_info_of(result)->run_dir);
    uni_result_free(result);
    chmod(scenario_storage(), 0755); /* the storage may be shared; what we make in it is not */
    pid_t pid = fork();
    if (pid == 0) {
        uni_run *run = NULL;
        uni_error err = { 0 };
        char path[4300];
        if (setgid(nobody->pw_gid) < 0 || setuid(nobody->pw_uid) < 0)
            _exit(2);
        snprintf(path, sizeof path, "%s/logs/rank_0.log", dir);
        if (access(path, R_OK) == 0 || access(dir, X_OK) == 0)
            _exit(3);
        snprintf(path, sizeof path, "%s/run.json", dir);
        if (access(path, R_OK) == 0)
            _exit(4);
        int status = uni_run_open(&run, dir, NULL, &err);
        _exit(status == UNI_EPERMISSION || status == UNI_ENOTFOUND ? 0 : 5);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    if (WEXITSTATUS(status))
        fprintf(stderr, "the other user got as far as step %d\n", WEXITSTATUS(status));
    CHECK(WEXITSTATUS(status) == 0);
    free(dir);
}

/* A memory cgroup of 32 MiB, or the test is skipped. */
static void small_cgroup(char *out, size_t size)
{
    const char *limit = "memory.limit_in_bytes";
    char path[300];
    snprintf(out, size, "/sys/fs/cgroup/memory/unisono-test-%d", getpid());
    if (mkdir(out, 0755) < 0) {
        limit = "memory.max";
        snprintf(out, size, "/sys/fs/cgroup/unisono-test-%d", getpid());
        if (mkdir(out, 0755) < 0)
            scenario_end(77);
    }
    snprintf(path, sizeof path, "%s/%s", out, limit);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "33554432") < 0 || fclose(file) != 0) {
        rmdir(out);
        scenario_end(77);
    }
}

#define HOG "python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 20))'"

/* The kernel kills a worker whose cgroup is full: told apart from any other kill. Without the
 * kernel's log it can only be mentioned, because the worker moved to another cgroup. */
static void out_of_memory(uni_program *program)
{
    char cgroup[128], script[700];
    small_cgroup(cgroup, sizeof cgroup);
    snprintf(script, sizeof script, "echo $$ > %s/cgroup.procs || exit 9; exec " HOG, cgroup);
    uni_result *result = run_shell(
        program, (uni_trainer_options){ .num_workers = 1, .max_failures = UNI_NO_RETRIES }, script,
        UNI_EWORKER);
    uni_value *description = scenario_description(uni_result_info_of(result)->run_dir);
    const char *class_name = uni_dict_get_string(uni_dict_get(description, "cause"), "class", "");
    rmdir(cgroup);
    int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
    CHECK(strcmp(class_name, log >= 0 ? "oom" : "signal") == 0);
    if (log >= 0)
        close(log);
    CHECK_CONTAINS(uni_result_info_of(result)->error->message, "out-of-memory killer");
    CHECK(uni_result_info_of(result)->exit_code == 128 + SIGKILL);
    uni_value_free(description);
    uni_result_free(result);
}

/* A kill -9 right after the out-of-memory killer ended another process is not its work. */
static void killed_beside_out_of_memory(uni_program *program)
{
    char cgroup[128], script[700];
    small_cgroup(cgroup, sizeof cgroup);
    snprintf(script, sizeof script,
             "sh -c 'echo $$ > %s/cgroup.procs || exit 9; exec \"$@\"' sh " HOG "; "
             "[ $? = 137 ] || exit 8; kill -9 $$",
             cgroup);
    uni_result *result = run_shell(
        program, (uni_trainer_options){ .num_workers = 1, .max_failures = UNI_NO_RETRIES }, script,
        UNI_EWORKER);
    uni_value *description = scenario_description(uni_result_info_of(result)->run_dir);
    const uni_value *cause = uni_dict_get(description, "cause");
    rmdir(cgroup);
    CHECK(strcmp(uni_dict_get_string(cause, "class", ""), "signal") == 0);
    CHECK(uni_dict_get_int(cause, "signal", 0) == SIGKILL);
    CHECK_CONTAINS(uni_result_info_of(result)->error->message, "killed by signal 9");
    uni_value_free(description);
    uni_result_free(result);
}

const scenario scenarios[] = { { "environments", environments },
                               { "lines", lines },
                               { "exit_codes", exit_codes },
                               { "background_children_end", background_children_end },
                               { "log_cap", log_cap },
                               { "another_user", another_user },
                               { "out_of_memory", out_of_memory },
                               { "killed_beside_out_of_memory", killed_beside_out_of_memory },
                               { "config_in_the_environment", config_in_the_environment },
                               { "copies_are_refused", copies_are_refused },
                               { NULL, NULL } };
