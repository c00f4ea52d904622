/*
 * start_run_run.c - workers that stay warm between runs (Ray Train v1's way of use).
 *
 * The same two workers run the function twice with different configs, then a second function. Each
 * run has its own directory run_001, run_002, ... below the trainer's. What a function returns
 * comes back by rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <unisono/unisono.h>

/* Returns [0, 1, ... epochs-1]. */
static int count(uni_session *session, uni_value **result, uni_error *err)
{
    int64_t epochs = uni_dict_get_int(uni_session_info_of(session)->config, "num_epochs", 1);
    *result = uni_value_list();
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        if (uni_list_take(*result, uni_value_int(epoch)) < 0)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a list of %d epochs", (int)epochs);
    }
    return 0;
}

/* Returns its process id, to show that the workers are the same ones. */
static int whoami(uni_session *session, uni_value **result, uni_error *err)
{
    (void)session;
    (void)err;
    *result = uni_value_int(getpid());
    return 0;
}

/* One run; its results by rank as one line of JSON. */
static int run_and_print(uni_trainer *trainer, const char *function, int64_t epochs, uni_error *err)
{
    uni_result *result = NULL;
    uni_value *config = uni_value_dict();
    uni_value *all = uni_value_list();
    char *text = NULL;
    int status = 0;
    UNI_TRY_GOTO(uni_dict_take(config, "num_epochs", uni_value_int(epochs)), done);
    uni_run_options run = { .function = function, .config = config };
    UNI_TRY_GOTO(uni_trainer_run(&result, trainer, &run, err), done);
    for (int rank = 0; rank < uni_result_info_of(result)->world_size; rank++)
        UNI_TRY_GOTO(uni_list_take(all, uni_value_copy(uni_result_info_of(result)->returned[rank])),
                     done);
    UNI_TRY_GOTO(uni_json_write(&text, NULL, all, 0, err), done);
    printf("%s: %s\n", function, text);
    printf("  in %s\n", uni_result_info_of(result)->run_dir);
done:
    free(text);
    uni_value_free(all);
    uni_value_free(config);
    uni_result_free(result);
    return status;
}

static int driver(uni_program *program, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    int status = 0;
    uni_trainer_options options = {
        .main = program, .num_workers = 2, .name = "start_run_run", .no_retry_errors = true
    };
    UNI_TRY_GOTO(uni_trainer_new(&trainer, &options, &err), done);
    UNI_TRY_GOTO(uni_trainer_start(trainer, &err), done);
    UNI_TRY_GOTO(run_and_print(trainer, "count", 2, &err), done);
    UNI_TRY_GOTO(run_and_print(trainer, "count", 5, &err), done);
    UNI_TRY_GOTO(run_and_print(trainer, "whoami", 0, &err), done);
    UNI_TRY_GOTO(run_and_print(trainer, "whoami", 0, &err), done);
    uni_trainer_shutdown(trainer);

    /* Start after shutdown works, with new workers; the run numbers go on. */
    UNI_TRY_GOTO(uni_trainer_start(trainer, &err), done);
    UNI_TRY_GOTO(run_and_print(trainer, "whoami", 0, &err), done);
    uni_trainer_shutdown(trainer);
done:
    if (status < 0)
        fprintf(stderr, "start_run_run: %s: %s\n", uni_status_name(status), err.message);
    uni_trainer_free(trainer);
    return status < 0;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv,
                    (uni_function[]){ { "count", count }, { "whoami", whoami }, { NULL, NULL } },
                    driver);
}
