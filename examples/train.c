/*
 * train.c - a model trained by several processes, in one file of C: a CSV file is read in shards,
 * the network of Keras's names learns from it, every epoch is a checkpoint, and a worker that dies
 * costs an epoch at most.
 *
 *   cc -o train examples/train.c $(pkg-config --cflags --libs unisono-native)
 *   ./train examples/data/digits.csv 2 300      two workers, 300 epochs; kill -9 one of them
 *                                               meanwhile
 *
 * The file has 64 pixels of a handwritten digit (0 to 16) and the digit in each row, and no header.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unisono/native.h>
#include <unisono/nn_dataset.h>
#include <unisono/unisono.h>

enum { PIXELS = 64 };

/* Rows of the file as batches of two columns: the pixels side by side, and the digit. Each worker
 * reads its own rows only. */
static int open_batches(uni_batches **out, const char *path, uni_error *err)
{
    uni_dataset *rows = NULL, *wide = NULL, *shuffled = NULL;
    char names[PIXELS + 1][8];
    const char *pixels[PIXELS + 1] = { NULL };
    int status = 0;
    for (int i = 0; i <= PIXELS; i++)
        snprintf(names[i], sizeof names[i], "f%d",
                 i); /* what columns without a header are called */
    for (int i = 0; i < PIXELS; i++)
        pixels[i] = names[i];
    const uni_csv_options plain = { .no_header = true };
    const uni_dataset_columns columns = { .x = (const char *const[]){ "pixels", NULL },
                                          .y = (const char *const[]){ names[PIXELS], NULL },
                                          .data = { .batch_size = 32 } };
    UNI_TRY_GOTO(uni_dataset_read_csv(&rows, 1, &path, &plain, err), done);
    UNI_TRY_GOTO(uni_dataset_concat_columns(&wide, rows, pixels, "pixels", UNI_F32, err), done);
    UNI_TRY_GOTO(uni_dataset_shuffle(&shuffled, wide, 0, 7, err), done);
    UNI_TRY_GOTO(uni_batches_dataset(out, shuffled, &columns, err), done);
done:
    uni_dataset_unref(shuffled);
    uni_dataset_unref(wide);
    uni_dataset_unref(rows);
    return status;
}

static int make_model(uni_model **out, uni_error *err)
{
    UNI_TRY(uni_sequential_new(
        out, "digits",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ PIXELS }),
                   uni_layer_rescaling(1.0 / 16, 0),
                   uni_layer_dense(64, UNI_OPTIONS(uni_dense_options, .activation = "relu")),
                   uni_layer_dense(10, UNI_OPTIONS(uni_dense_options, .activation = "softmax"))),
        err));
    return uni_model_compile(*out,
                             UNI_OPTIONS(uni_compile_options, .optimizer_name = "adam",
                                         .loss_name = "sparse_categorical_crossentropy",
                                         .metric_names = (const char *const[]){ "accuracy", NULL }),
                             err);
}

/* Runs in every worker. The batch of 32 is the global one: the workers share it, so any number of
 * them learns the same. */
static int train(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    const char *path = uni_dict_get_string(config, "data", "");
    int epochs = (int)uni_dict_get_int(config, "epochs", 15);
    uni_strategy *strategy = NULL;
    uni_batches *batches = NULL;
    uni_model *model = NULL;
    uni_callback *report = NULL;
    int epoch = 0, status = 0;
    UNI_TRY_GOTO(uni_strategy_open(&strategy, "multi_worker", session, err), done);
    UNI_TRY_GOTO(open_batches(&batches, path, err), done);
    UNI_TRY_GOTO(make_model(&model, err), done);
    UNI_TRY_GOTO(uni_session_restore_model(&epoch, session, model, err), done); /* after a death */
    UNI_TRY_GOTO(uni_strategy_place(strategy, model, err), done);
    UNI_TRY_GOTO(uni_callback_report_checkpoint(&report, session, 1, err), done);
    UNI_TRY_GOTO(
        uni_strategy_fit(NULL, strategy, model,
                         UNI_OPTIONS(uni_fit_options, .batches = batches, .initial_epoch = epoch,
                                     .epochs = epochs, .callbacks = &report, .num_callbacks = 1),
                         err),
        done);
    if (uni_session_info_of(session)->world_rank == 0)
        status = uni_model_save(model, "digits.keras", err); /* Keras opens it */
done:
    uni_callback_free(report);
    uni_model_free(model);
    uni_batches_free(batches);
    uni_strategy_free(strategy);
    return status;
}

static int driver(uni_program *program, int argc, char **argv)
{
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    uni_result *result = NULL;
    uni_sink *progress = NULL;
    uni_value *config = uni_value_dict();
    int status = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE.csv [WORKERS [EPOCHS]]\n", argv[0]);
        uni_value_free(config);
        return 64;
    }
    UNI_TRY_GOTO(uni_dict_take(config, "data", uni_value_string(argv[1])), done);
    UNI_TRY_GOTO(uni_dict_take(config, "epochs", uni_value_int(argc > 3 ? atoi(argv[3]) : 15)),
                 done);
    UNI_TRY_GOTO(uni_sink_progress(&progress, NULL, &err), done);
    const uni_trainer_options group = { .main = program,
                                        .num_workers = argc > 2 ? atoi(argv[2]) : 2,
                                        .backend = "native",
                                        .name = "train",
                                        .handle_signals = true };
    const uni_checkpoint_policy policy = { .num_to_keep = 2 };
    const uni_run_options run = {
        .function = "train", .config = config, .policy = &policy, .sinks = &progress, .num_sinks = 1
    };
    UNI_TRY_GOTO(uni_trainer_new(&trainer, &group, &err), done);
    UNI_TRY_GOTO(uni_trainer_fit(&result, trainer, &run, &err), done);
    printf("the model is digits.keras, the run is in %s\n", uni_result_info_of(result)->run_dir);
done:
    if (status < 0)
        fprintf(stderr, "train: %s\n", err.message);
    uni_result_free(result);
    uni_trainer_free(trainer);
    uni_sink_free(progress);
    uni_value_free(config);
    return status < 0;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv, (uni_function[]){ { "train", train }, { NULL, NULL } }, driver);
}
