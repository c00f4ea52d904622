/*
 * digits.c - the main job of ./quickstart: four workers train on real data, one is killed half way, the run recovers.
 *
 * What the workers do together: each trains one network of an ensemble on its own resample of the images (bagging), and the driver lets the four
 * vote. There is no exchange of gradients: that needs the collectives, which are not part of this version. What the trainer does is
 * all real: ranks, reports, checkpoints with a part of every rank, the kill, the restart from the last complete checkpoint.
 *
 * The kill comes from a callback in the driver, on the sink thread, with the pid that the run's own description gives.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <unisono/unisono.h>

#include "dataset.h"
#include "model.h"

/* ---- a member's part of a checkpoint: member_R.msgpack = {"epoch", "model"} ---- */

static int write_file(const char *path, const void *data, size_t size, uni_error *err)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return uni_error_set_errno(err, errno, "cannot write %s", path);
    bool written = fwrite(data, 1, size, file) == size;
    if (fclose(file) != 0 || !written)
        return uni_error_set_errno(err, errno, "cannot write %s", path);
    return 0;
}

static int read_file(const char *path, void **data, size_t *size, uni_error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return uni_error_set_errno(err, errno, "cannot read %s", path);
    const size_t limit = 1 << 20;
    *data = malloc(limit);
    *size = *data ? fread(*data, 1, limit, file) : 0;
    fclose(file);
    return *data ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory to read %s", path);
}

static int member_write(const char *dir, int member, int epoch, const digits_model *model,
                        uni_error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/member_%d.msgpack", dir, member);
    uni_value *state = uni_value_dict();
    void *bytes = NULL;
    size_t size = 0;
    int status = 0;
    UNI_TRY_GOTO(uni_dict_take(state, "epoch", uni_value_int(epoch)), done);
    UNI_TRY_GOTO(uni_dict_take(state, "model", digits_model_save(model)), done);
    UNI_TRY_GOTO(uni_msgpack_write(&bytes, &size, state, err), done);
    UNI_TRY_GOTO(write_file(path, bytes, size, err), done);
done:
    free(bytes);
    uni_value_free(state);
    return status;
}

static int member_read(const char *dir, int member, int *epoch, digits_model *model, uni_error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/member_%d.msgpack", dir, member);
    uni_value *state = NULL;
    void *bytes = NULL;
    size_t size = 0;
    int status = 0;
    UNI_TRY_GOTO(read_file(path, &bytes, &size, err), done);
    UNI_TRY_GOTO(uni_msgpack_read(&state, bytes, size, err), done);
    UNI_TRY_GOTO(digits_model_load(model, uni_dict_get(state, "model"), err), done);
    *epoch = (int)uni_dict_get_int(state, "epoch", 0);
done:
    free(bytes);
    uni_value_free(state);
    return status;
}

/* ---- the worker ---- */

static int label_of(const float *probabilities)
{
    int best = 0;
    for (int c = 1; c < DIGITS_CLASSES; c++)
        best = probabilities[c] > probabilities[best] ? c : best;
    return best;
}

/* Share of the part's images that the average of these models gets right. */
static double accuracy(digits_model *const *models, int count, const digits_part *part)
{
    int right = 0;
    for (int i = 0; i < part->count; i++) {
        float sum[DIGITS_CLASSES] = { 0 }, one[DIGITS_CLASSES];
        for (int m = 0; m < count; m++) {
            digits_model_predict(models[m], part->pixels[i], one);
            for (int c = 0; c < DIGITS_CLASSES; c++)
                sum[c] += one[c];
        }
        right += label_of(sum) == part->labels[i];
    }
    return (double)right / part->count;
}

static int report_epoch(uni_session *session, int epoch, double loss, double right,
                        const digits_model *model, uni_error *err)
{
    uni_value *metrics = uni_value_dict();
    char *dir = NULL;
    int status = 0;
    UNI_TRY_GOTO(uni_dict_take(metrics, "epoch", uni_value_int(epoch)), done);
    UNI_TRY_GOTO(uni_dict_take(metrics, "loss", uni_value_float(loss)), done);
    UNI_TRY_GOTO(uni_dict_take(metrics, "accuracy", uni_value_float(right)), done);
    UNI_TRY_GOTO(uni_session_checkpoint_dir(session, &dir, err), done);
    UNI_TRY_GOTO(member_write(dir, uni_session_world_rank(session), epoch, model, err), done);
    UNI_TRY_GOTO(
        uni_session_report(session, metrics, &(uni_checkpoint_source){ .directory = dir }, err),
        done);
done:
    free(dir);
    uni_value_free(metrics);
    return status;
}

static void rest(double seconds)
{
    struct timespec pause = { .tv_sec = (time_t)seconds,
                              .tv_nsec = (long)(fmod(seconds, 1) * 1e9) };
    nanosleep(&pause, NULL);
}

/* Goes on after the last complete checkpoint, if there is one. */
static int load_last(uni_session *session, int *epoch, digits_model *model, uni_error *err)
{
    uni_checkpoint *last = NULL;
    UNI_TRY(uni_session_get_checkpoint(session, &last, err));
    if (!last)
        return 0;
    int status =
        member_read(uni_checkpoint_path(last), uni_session_world_rank(session), epoch, model, err);
    if (status == 0)
        printf("rank %d goes on after epoch %d, from %s\n", uni_session_world_rank(session), *epoch,
               uni_checkpoint_path(last));
    uni_checkpoint_close(last);
    return status;
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_config(session);
    int epochs = (int)uni_dict_get_int(config, "epochs", 30), epoch = 0;
    double lr = uni_dict_get_float(config, "lr", 0.05);
    double pace = uni_dict_get_float(config, "pace", 0);
    double right = 0;
    digits_dataset *data = NULL;
    digits_model *model = NULL;
    int status = 0;
    UNI_TRY_GOTO(digits_load(&data, uni_dict_get_string(config, "data", ""), err), done);
    UNI_TRY_GOTO(digits_model_new(&model, (uint64_t)uni_dict_get_int(config, "seed", 1),
                                  uni_session_world_rank(session), err),
                 done);
    UNI_TRY_GOTO(load_last(session, &epoch, model, err), done);
    while (epoch < epochs && !uni_session_should_stop(session)) {
        epoch++;
        double loss = digits_model_train_epoch(model, &data->train, epoch, lr);
        right = accuracy(&model, 1, &data->test);
        rest(pace);
        UNI_TRY_GOTO(report_epoch(session, epoch, loss, right, model, err), done);
    }
    *result = uni_value_float(right);
done:
    digits_model_free(model);
    free(data);
    return status;
}

/* ---- the driver ---- */

typedef struct job {
    int workers, epochs;
    int kill_rank; /* -1: nobody is killed */
    double pace;
    const char *data, *name, *storage, *command;
    char run_dir[4096];
    bool killed;
} job;

/* The pid of a rank as run.json has it; 0 when it is not known. */
static pid_t pid_of(const char *run_dir, int rank)
{
    uni_run *run = NULL;
    if (uni_run_open(&run, run_dir, NULL, NULL) < 0)
        return 0;
    const uni_value *workers = uni_dict_get(uni_run_description(run), "workers");
    pid_t pid = 0;
    for (size_t i = 0; i < uni_list_size(workers); i++)
        if (uni_dict_get_int(uni_list_get(workers, i), "rank", -1) == rank)
            pid = (pid_t)uni_dict_get_int(uni_list_get(workers, i), "pid", 0);
    uni_run_close(run);
    return pid;
}

static void on_start(void *context, const uni_run_info *info)
{
    job *it = context;
    snprintf(it->run_dir, sizeof it->run_dir, "%s", info->run_dir);
}

static void on_result(void *context, const uni_reports *reports)
{
    job *it = context;
    if (it->killed || it->kill_rank < 0 || reports->iteration < it->epochs / 2)
        return;
    pid_t pid = pid_of(it->run_dir, it->kill_rank);
    if (pid <= 0)
        return;
    it->killed = true;
    /* On a terminal the progress bar has three lines and draws over the last three: leave it room below this one. */
    fprintf(stderr, ">>> after epoch %d this program kills rank %d on purpose: kill -9 %d\n%s",
            (int)reports->iteration, it->kill_rank, (int)pid,
            isatty(STDERR_FILENO) ? "\n\n\n" : "");
    kill(pid, SIGKILL);
}

/* The networks of the latest checkpoint, each alone and all together. */
static int judge(const job *it, const uni_result *result, uni_error *err)
{
    const char *latest = uni_result_latest_checkpoint(result);
    if (!latest)
        return uni_error_set(err, UNI_ENOTFOUND, "the run kept no checkpoint");
    digits_dataset *data = NULL;
    digits_model **models = calloc((size_t)it->workers, sizeof *models);
    int epoch = 0, status = models ? 0 : UNI_ENOMEM;
    UNI_TRY_GOTO(status, done);
    UNI_TRY_GOTO(digits_load(&data, it->data, err), done);
    printf("\nOf the %d digits that no worker was trained on, the networks get right:\n",
           data->test.count);
    for (int m = 0; m < it->workers; m++) {
        UNI_TRY_GOTO(digits_model_new(&models[m], 0, m, err), done);
        UNI_TRY_GOTO(member_read(latest, m, &epoch, models[m], err), done);
        printf("  rank %d's alone after %d epochs: %.1f %%\n", m, epoch,
               100 * accuracy(&models[m], 1, &data->test));
    }
    printf("  all %d together: %.1f %%\n", it->workers,
           100 * accuracy(models, it->workers, &data->test));
done:
    for (int m = 0; models && m < it->workers; m++)
        digits_model_free(models[m]);
    free(models);
    free(data);
    return status;
}

static void say_what_next(const job *it, const uni_result *result)
{
    const char *dir = uni_result_run_dir(result);
    printf("\nattempts: %d%s\nresults: %s\n", uni_result_attempts(result),
           it->killed
               ? " (one worker was killed; the group went on from the last complete checkpoint)"
               : "",
           dir);
    if (!it->command)
        return;
    /* The run's short name is the last two parts of its path. */
    const char *id = strrchr(dir, '/');
    while (id > dir && id[-1] != '/')
        id--;
    printf("\nTry next:\n");
    static const struct {
        const char *words, *what;
    } next[] = {
        { "show", "what was asked and what came out" },
        { "why", "what happened to the worker that was killed" },
        { "plot -m accuracy", "a metric over the epochs" },
        { "logs", "what the workers printed" },
    };
    for (size_t i = 0; i < sizeof next / sizeof next[0]; i++) {
        char line[4096];
        snprintf(line, sizeof line, "%s %s %s", it->command, next[i].words, id);
        printf("  %-64s  %s\n", line, next[i].what);
    }
}

static int run_job(uni_program *program, job *it, uni_error *err)
{
    uni_value *config = uni_value_dict();
    uni_sink *sinks[3] = { NULL };
    uni_trainer *trainer = NULL;
    uni_result *result = NULL;
    int status = 0;
    UNI_TRY_GOTO(uni_dict_take(config, "epochs", uni_value_int(it->epochs)), done);
    UNI_TRY_GOTO(uni_dict_take(config, "pace", uni_value_float(it->pace)), done);
    UNI_TRY_GOTO(uni_dict_take(config, "data", uni_value_string(it->data)), done);
    const char *const shown[] = { "loss", "accuracy", NULL };
    UNI_TRY_GOTO(
        uni_sink_progress(&sinks[0], &(uni_sink_progress_options){ .metrics = shown }, err), done);
    UNI_TRY_GOTO(uni_sink_csv(&sinks[1], NULL, err), done);
    uni_callback callback = { .on_start = on_start, .on_result = on_result, .context = it };
    UNI_TRY_GOTO(uni_sink_callback(&sinks[2], &callback, err), done);
    uni_trainer_options options = { .main = program,
                                    .num_workers = it->workers,
                                    .name = it->name,
                                    .storage_path = it->storage,
                                    .max_failures = 3,
                                    .handle_signals = true };
    UNI_TRY_GOTO(uni_trainer_new(&trainer, &options, err), done);
    uni_checkpoint_policy policy = { .num_to_keep = 3 };
    uni_run_options run = {
        .function = "train", .config = config, .sinks = sinks, .num_sinks = 3, .policy = &policy
    };
    UNI_TRY_GOTO(uni_trainer_fit(trainer, &run, &result, err), done);
    UNI_TRY_GOTO(judge(it, result, err), done);
    say_what_next(it, result);
done:
    uni_result_free(result);
    uni_trainer_free(trainer);
    for (int i = 0; i < 3; i++)
        uni_sink_free(sinks[i]);
    uni_value_free(config);
    return status;
}

static const char usage[] =
    "digits [options]: four workers train networks for handwritten digits\n"
    "  --workers N       4\n"
    "  --epochs N        30\n"
    "  --pace SECONDS    wait that long in every epoch, to have time to look (0)\n"
    "  --kill RANK       kill this rank with SIGKILL half way, once\n"
    "  --data FILE       examples/data/digits.csv\n"
    "  --name NAME       of the run's directory (digits)\n"
    "  --storage DIR     ~/unisono_results\n"
    "  --command PATH    of the unisono command, to say what to try next\n";

static bool read_options(job *it, int argc, char **argv)
{
    static const struct option long_options[] = {
        { "workers", required_argument, NULL, 'w' },
        { "epochs", required_argument, NULL, 'e' },
        { "pace", required_argument, NULL, 'p' },
        { "kill", required_argument, NULL, 'k' },
        { "data", required_argument, NULL, 'd' },
        { "name", required_argument, NULL, 'n' },
        { "storage", required_argument, NULL, 's' },
        { "command", required_argument, NULL, 'c' },
        { NULL, 0, NULL, 0 },
    };
    int option;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (option) {
        case 'w':
            it->workers = atoi(optarg);
            break;
        case 'e':
            it->epochs = atoi(optarg);
            break;
        case 'p':
            it->pace = atof(optarg);
            break;
        case 'k':
            it->kill_rank = atoi(optarg);
            break;
        case 'd':
            it->data = optarg;
            break;
        case 'n':
            it->name = optarg;
            break;
        case 's':
            it->storage = optarg;
            break;
        case 'c':
            it->command = optarg;
            break;
        default:
            return false;
        }
    }
    return optind == argc;
}

static int driver(uni_program *program, int argc, char **argv)
{
    job it = { .workers = 4,
               .epochs = 30,
               .kill_rank = -1,
               .data = "examples/data/digits.csv",
               .name = "digits" };
    if (!read_options(&it, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    uni_error err = { 0 };
    /* Workers may have another working directory. */
    char *data = realpath(it.data, NULL);
    if (data)
        it.data = data;
    int status = run_job(program, &it, &err);
    if (status < 0)
        fprintf(stderr, "digits: %s: %s\n", uni_status_name(status), err.message);
    free(data);
    return status < 0;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv, (uni_function[]){ { "train", train }, { NULL, NULL } }, driver);
}
