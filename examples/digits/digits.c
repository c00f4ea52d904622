/*
 * digits.c - the main job of ./quickstart: four workers train one network on real data, one is
 * killed half way, the run recovers.
 *
 * The workers are one group (strategy multi_worker): each computes the gradient of its quarter of
 * every batch, the gradients are added up over shared memory, and all make the same update. fit
 * reports every epoch with a checkpoint of the model and its optimizer; after the kill all four go
 * on from the last complete one, and end with the same weights as if nothing had happened.
 *
 * The kill comes from a callback in the driver, on the sink thread, with the pid that the run's own
 * description gives.
 */
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <unisono/native.h>
#include <unisono/unisono.h>

#include "dataset.h"

#ifndef EXAMPLE_DATA /* compiled by hand: run it in the root of the source */
#define EXAMPLE_DATA "examples/data"
#endif

/* ---- the model ---- */

static int make_model(uni_model **out, uni_error *err)
{
    uni_loss *loss = NULL;
    UNI_TRY(uni_sequential_new(
        out, "digits",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ DIGITS_PIXELS }),
                   uni_layer_dense(64, UNI_OPTIONS(uni_dense_options, .activation = "relu")),
                   uni_layer_dropout(0.2f), uni_layer_dense(DIGITS_CLASSES, NULL)),
        err));
    uni_model_set_seed(*out, 1);
    UNI_TRY(uni_loss_new(&loss, "sparse_categorical_crossentropy",
                         UNI_OPTIONS(uni_loss_options, .from_logits = true), err));
    return uni_model_compile(*out,
                             UNI_OPTIONS(uni_compile_options, .optimizer_name = "adam",
                                         .loss = loss,
                                         .metric_names = (const char *const[]){ "accuracy", NULL }),
                             err);
}

static uni_column pixels_of(const digits_part *part)
{
    return uni_column_view(UNI_F32, 2, (const int64_t[]){ part->count, DIGITS_PIXELS },
                           part->pixels);
}

static uni_column labels_of(const digits_part *part)
{
    return uni_column_view(UNI_U8, 2, (const int64_t[]){ part->count, 1 }, part->labels);
}

/* ---- the worker ---- */

/* A pause after every epoch, so that a person can watch. */
static int rest(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    double seconds = *(double *)self;
    struct timespec pause = { .tv_sec = (time_t)seconds,
                              .tv_nsec = (long)(fmod(seconds, 1) * 1e9) };
    nanosleep(&pause, NULL);
    return 0;
}

static int train(uni_session *session, uni_value **result, uni_error *err)
{
    static const uni_callback_class rest_class = { .name = "rest", .epoch_end = rest };
    const uni_value *config = uni_session_info_of(session)->config;
    /* The others wait for the one that rests. */
    double pace =
        uni_session_info_of(session)->world_rank == 0 ? uni_dict_get_float(config, "pace", 0) : 0;
    digits_dataset *data = NULL;
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_callback *callbacks[2] = { NULL, NULL };
    int status = 0, epoch = 0;
    UNI_TRY_GOTO(digits_load(&data, uni_dict_get_string(config, "data", ""), err), done);
    UNI_TRY_GOTO(uni_strategy_open(&strategy, "multi_worker", session, err), done);
    UNI_TRY_GOTO(make_model(&model, err), done);
    UNI_TRY_GOTO(uni_session_restore_model(&epoch, session, model, err), done);
    if (epoch > 0)
        printf("rank %d goes on with epoch %d\n", uni_session_info_of(session)->world_rank,
               epoch + 1);
    UNI_TRY_GOTO(uni_strategy_place(strategy, model, err), done);
    UNI_TRY_GOTO(uni_callback_report_checkpoint(&callbacks[0], session, 1, err), done);
    UNI_TRY_GOTO(uni_callback_new(&callbacks[1], &rest_class, &pace, err), done);
    uni_column x = pixels_of(&data->train), y = labels_of(&data->train);
    uni_column test_x = pixels_of(&data->test), test_y = labels_of(&data->test);
    UNI_TRY_GOTO(uni_strategy_fit(NULL, strategy, model,
                                  UNI_OPTIONS(uni_fit_options, .x = &x, .num_x = 1, .y = &y,
                                              .num_y = 1, .validation_x = &test_x,
                                              .validation_y = &test_y, .batch_size = 64,
                                              .epochs = (int)uni_dict_get_int(config, "epochs", 30),
                                              .initial_epoch = epoch, .seed = 1, .threads = 1,
                                              .callbacks = callbacks, .num_callbacks = 2),
                                  err),
                 done);
done:
    for (int i = 0; i < 2; i++)
        uni_callback_free(callbacks[i]);
    uni_model_free(model);
    uni_strategy_free(strategy);
    free(data);
    return status;
}

/* ---- the driver ---- */

typedef struct job {
    int workers, epochs;
    int kill_rank; /* -1: none is killed */
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
    const uni_value *workers = uni_dict_get(uni_run_info_of(run)->description, "workers");
    pid_t pid = 0;
    for (size_t i = 0; i < uni_list_size(workers); i++)
        if (uni_dict_get_int(uni_list_get(workers, i), "rank", -1) == rank)
            pid = (pid_t)uni_dict_get_int(uni_list_get(workers, i), "pid", 0);
    uni_run_close(run);
    return pid;
}

static void on_start(void *context, const uni_start_info *info)
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
    /* On a terminal the progress bar has three lines and draws over the last three: leave it room
     * below this one. */
    fprintf(stderr, ">>> after epoch %d this program kills rank %d on purpose: kill -9 %d\n%s",
            (int)reports->iteration, it->kill_rank, (int)pid,
            isatty(STDERR_FILENO) ? "\n\n\n" : "");
    kill(pid, SIGKILL);
}

/* The network of the latest checkpoint, on the images that no rank trained on. */
static int judge(const job *it, const uni_result *result, uni_error *err)
{
    digits_dataset *data = NULL;
    uni_checkpoint *latest = NULL;
    uni_value *state = NULL, *measured = NULL;
    uni_model *model = NULL;
    int status = 0;
    if (!uni_result_info_of(result)->latest_checkpoint)
        return uni_error_set(err, UNI_ENOTFOUND, "the run kept no checkpoint");
    UNI_TRY_GOTO(digits_load(&data, it->data, err), done);
    UNI_TRY_GOTO(make_model(&model, err), done);
    UNI_TRY_GOTO(uni_checkpoint_open(&latest, uni_result_info_of(result)->latest_checkpoint, err),
                 done);
    UNI_TRY_GOTO(uni_checkpoint_read_dict(&state, latest, err), done);
    int epochs = (int)uni_dict_get_int(state, "epoch", 0) + 1;
    uni_dict_remove(state, "epoch");
    UNI_TRY_GOTO(uni_model_set_state(model, state, err), done);
    uni_column x = pixels_of(&data->test), y = labels_of(&data->test);
    UNI_TRY_GOTO(uni_model_evaluate(
                     &measured, model,
                     UNI_OPTIONS(uni_fit_options, .x = &x, .num_x = 1, .y = &y, .num_y = 1), err),
                 done);
    printf("\nOf the %d digits that no worker was trained on, the network gets %.1f %% right after "
           "%d epochs.\n",
           data->test.count, 100 * uni_dict_get_float(measured, "accuracy", 0), epochs);
done:
    uni_value_free(measured);
    uni_value_free(state);
    uni_checkpoint_close(latest);
    uni_model_free(model);
    free(data);
    return status;
}

static void say_what_next(const job *it, const uni_result *result)
{
    const char *dir = uni_result_info_of(result)->run_dir;
    int attempts = uni_result_info_of(result)->attempts;
    printf("\nattempts: %d%s\nresults: %s\n", attempts,
           !it->killed    ? ""
           : attempts > 1 ? " (one worker was killed; the group restarted from its checkpoint)"
                          : " (one worker was killed and replaced; the others kept training)",
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
        { "plot -m val_accuracy", "a metric over the epochs" },
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
    const char *const shown[] = { "loss", "val_accuracy", NULL };
    UNI_TRY_GOTO(
        uni_sink_progress(&sinks[0], UNI_OPTIONS(uni_sink_progress_options, .metrics = shown), err),
        done);
    UNI_TRY_GOTO(uni_sink_csv(&sinks[1], NULL, err), done);
    uni_sink_functions callback = { .on_start = on_start, .on_result = on_result, .context = it };
    UNI_TRY_GOTO(uni_sink_from_functions(&sinks[2], &callback, err), done);
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
    UNI_TRY_GOTO(uni_trainer_fit(&result, trainer, &run, err), done);
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
    "digits [options]: four workers train one network for handwritten digits\n"
    "  --workers N       4\n"
    "  --epochs N        30\n"
    "  --pace SECONDS    wait that long in every epoch, to have time to look (0)\n"
    "  --kill RANK       kill this rank with SIGKILL half way, once\n"
    "  --data FILE       the digits of examples/data\n"
    "  --name NAME       of the run's directory (digits)\n"
    "  --storage DIR     ~/unisono_results\n"
    "  --command PATH    of the unisono command, to say what to try next\n";

typedef enum asked { RUN, HELP, WRONG } asked;

static asked read_options(job *it, int argc, char **argv)
{
    static const struct option long_options[] = {
        { "help", no_argument, NULL, 'h' },          { "workers", required_argument, NULL, 'w' },
        { "epochs", required_argument, NULL, 'e' },  { "pace", required_argument, NULL, 'p' },
        { "kill", required_argument, NULL, 'k' },    { "data", required_argument, NULL, 'd' },
        { "name", required_argument, NULL, 'n' },    { "storage", required_argument, NULL, 's' },
        { "command", required_argument, NULL, 'c' }, { NULL, 0, NULL, 0 },
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
            return option == 'h' ? HELP : WRONG;
        }
    }
    return optind == argc ? RUN : WRONG;
}

static int driver(uni_program *program, int argc, char **argv)
{
    job it = { .workers = 4,
               .epochs = 30,
               .kill_rank = -1,
               .data = EXAMPLE_DATA "/digits.csv",
               .name = "digits" };
    asked what = read_options(&it, argc, argv);
    if (what != RUN) {
        fputs(usage, what == HELP ? stdout : stderr);
        return what == HELP ? 0 : UNI_EXIT_USAGE;
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
