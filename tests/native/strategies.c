/*
 * strategies.c - the same model, seed and global batch with no strategy, mirrored and multi_worker over 1, 2, 3, 4 and 7 worker processes: the
 * same loss and weights to rounding, with dropout, synchronised batch normalisation, regularisers, an uneven last batch and ranks without data;
 * and a native run that is killed goes on from its checkpoint to the same weights.
 */
#include <math.h>
#include <signal.h>

#include <unisono/native.h>

#include "../train/scenario.h"

#define SAMPLES 101
#define FEATURES 8
#define EPOCHS 3

static int make_model(uni_model **out, uni_error *err)
{
    uni_dense_options first = { .activation = "relu", .kernel_regularizer = { .l2 = 0.01f } };
    UNI_TRY(uni_sequential_new(
        out, "noisy",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                   uni_layer_dense(16, &first), uni_layer_batch_normalization(NULL),
                   uni_layer_dropout(0.3f), uni_layer_dense(1, NULL)),
        err));
    uni_model_set_seed(*out, 11);
    return uni_model_compile(
        *out, &(uni_compile_options){ .optimizer_name = "adam", .loss_name = "mse" }, err);
}

static void make_data(float *x, float *y)
{
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = 0;
        for (int j = 0; j < FEATURES; j++) {
            x[i * FEATURES + j] = sinf((float)(i * 7 + j * 3));
            y[i] += x[i * FEATURES + j] * (float)(j + 1) * 0.1f;
        }
    }
}

/* {"weights": [...], "loss": [...]}. */
static int train(uni_session *session, uni_value **result, uni_error *err)
{
    float x[SAMPLES * FEATURES], y[SAMPLES];
    const uni_value *config = uni_session_config(session);
    uni_strategy *strategy = NULL;
    uni_model *model = NULL;
    uni_fit_callback *report = NULL;
    uni_value *history = NULL, *weights = NULL;
    int status, epoch = 0;
    make_data(x, y);
    uni_column columns[2] = { uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES },
                                              x),
                              uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y) };
    UNI_TRY_GOTO(
        uni_strategy_open(&strategy, uni_dict_get_string(config, "strategy", "none"), session, err),
        done);
    UNI_TRY_GOTO(make_model(&model, err), done);
    uni_fit_options options = { .x = &columns[0],
                                .num_x = 1,
                                .y = &columns[1],
                                .num_y = 1,
                                .batch_size = 32,
                                .epochs = EPOCHS,
                                .seed = 3,
                                .threads = 1,
                                .validation_x = &columns[0],
                                .validation_y = &columns[1] };
    if (uni_dict_get_bool(config, "not_placed", false)) {
        status = uni_strategy_fit(strategy, model, &options, NULL, err);
        goto done;
    }
    UNI_TRY_GOTO(uni_session_restore_model(session, model, &epoch, err), done);
    UNI_TRY_GOTO(uni_strategy_place(strategy, model, err), done);
    UNI_TRY_GOTO(uni_callback_report_checkpoint(&report, session, 1, err), done);
    options.callbacks = &report;
    options.num_callbacks = 1;
    options.initial_epoch = epoch;
    bool doomed = uni_dict_get_bool(config, "killed", false) && uni_session_attempt(session) == 1;
    if (doomed)
        options.epochs = 2;
    UNI_TRY_GOTO(uni_strategy_fit(strategy, model, &options, &history, err), done);
    if (doomed) {
        /* Epochs 0 and 1 are reported; rank 1 dies once their checkpoints are complete, the others wait in a collective. */
        if (uni_session_world_rank(session) == 1) {
            scenario_sleep_ms(300);
            raise(SIGKILL);
        }
        double one = 1;
        status = uni_strategy_reduce_numbers(strategy, UNI_REPLICA_SUM, &one, 1, err);
        goto done;
    }
    UNI_TRY_GOTO(uni_model_get_weights(model, &weights, err), done);
    *result = uni_value_dict();
    status = uni_dict_take(*result, "loss", uni_value_copy(uni_dict_get(history, "loss")));
    status |= uni_dict_take(*result, "val_loss", uni_value_copy(uni_dict_get(history, "val_loss")));
    status |= uni_dict_take(*result, "weights", weights);
    status |= uni_dict_take(*result, "replicas",
                            uni_value_int(uni_strategy_num_replicas_in_sync(strategy)));
    status |= uni_dict_take(*result, "epoch", uni_value_int(epoch));
done:
    uni_value_free(history);
    uni_fit_callback_free(report);
    uni_model_free(model);
    uni_strategy_free(strategy);
    return status;
}

const uni_function functions[] = { { "train", train }, { NULL, NULL } };

/* ---- scenarios ---- */

static uni_result *run(uni_program *program, int workers, const char *strategy, bool killed)
{
    uni_error err = { 0 };
    uni_result *result = NULL;
    uni_value *config = uni_value_dict();
    uni_log_level_set(UNI_LOG_ERROR);
    CHECK(uni_dict_take(config, "strategy", uni_value_string(strategy)) == 0);
    CHECK(uni_dict_take(config, "killed", uni_value_bool(killed)) == 0);
    uni_trainer *trainer =
        scenario_trainer(program, (uni_trainer_options){ .num_workers = workers });
    CHECK_OK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "train", .config = config },
                             &result, &err),
             &err);
    uni_value_free(config);
    uni_trainer_free(trainer);
    return result;
}

static double worst_difference(const uni_value *a, const uni_value *b)
{
    double worst = 0;
    const uni_value *wa = uni_dict_get(a, "weights"), *wb = uni_dict_get(b, "weights");
    CHECK(uni_list_size(wa) > 0 && uni_list_size(wa) == uni_list_size(wb));
    for (size_t i = 0; i < uni_list_size(wa); i++) {
        uni_array *x = uni_value_as_array(uni_list_get(wa, i)),
                  *y = uni_value_as_array(uni_list_get(wb, i));
        CHECK(x && y && uni_array_count(x) == uni_array_count(y));
        for (size_t j = 0; j < uni_array_count(x); j++)
            worst = fmax(worst, fabs((double)((float *)uni_array_data(x))[j] -
                                     (double)((float *)uni_array_data(y))[j]));
    }
    for (size_t i = 0; i < EPOCHS; i++) {
        double la = uni_value_as_float(uni_list_get(uni_dict_get(a, "loss"), i), -1),
               lb = uni_value_as_float(uni_list_get(uni_dict_get(b, "loss"), i), -2);
        double va = uni_value_as_float(uni_list_get(uni_dict_get(a, "val_loss"), i), -1);
        double vb = uni_value_as_float(uni_list_get(uni_dict_get(b, "val_loss"), i), -2);
        worst = fmax(worst, fmax(fabs(la - lb), fabs(va - vb)));
    }
    return worst;
}

static void same_for_any_number(uni_program *program)
{
    static const int counts[] = { 1, 2, 3, 4, 7 };
    uni_result *alone = run(program, 1, "none", false);
    uni_result *mirrored = run(program, 1, "mirrored", false);
    CHECK(worst_difference(uni_result_returned(alone, 0), uni_result_returned(mirrored, 0)) < 2e-5);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        uni_result *together = run(program, counts[i], "multi_worker", false);
        double worst =
            worst_difference(uni_result_returned(alone, 0), uni_result_returned(together, 0));
        if (worst >= 2e-5)
            fprintf(stderr, "%d workers differ from one by %g\n", counts[i], worst);
        CHECK(worst < 2e-5);
        CHECK(uni_dict_get_int(uni_result_returned(together, 0), "replicas", 0) == counts[i]);
        for (int rank = 1; rank < counts[i]; rank++)
            CHECK(worst_difference(uni_result_returned(together, 0),
                                   uni_result_returned(together, rank)) == 0); /* bit-equal */
        uni_result_free(together);
    }
    uni_result_free(mirrored);
    uni_result_free(alone);
}

static void killed_and_resumed(uni_program *program)
{
    uni_result *undisturbed = run(program, 2, "multi_worker", false),
               *disturbed = run(program, 2, "multi_worker", true);
    CHECK(uni_result_attempts(disturbed) == 2);
    const uni_value *a = uni_result_returned(undisturbed, 0),
                    *b = uni_result_returned(disturbed, 0);
    CHECK(uni_dict_get_int(b, "epoch", -1) == 2);
    /* The last epoch was trained once more from the checkpoint: same weights. */
    const uni_value *wa = uni_dict_get(a, "weights"), *wb = uni_dict_get(b, "weights");
    for (size_t i = 0; i < uni_list_size(wa); i++) {
        uni_array *x = uni_value_as_array(uni_list_get(wa, i)),
                  *y = uni_value_as_array(uni_list_get(wb, i));
        for (size_t j = 0; j < uni_array_count(x); j++)
            CHECK(fabsf(((float *)uni_array_data(x))[j] - ((float *)uni_array_data(y))[j]) < 1e-6f);
    }
    uni_result_free(undisturbed);
    uni_result_free(disturbed);
    CHECK(scenario_nothing_left(scenario_storage()));
}

static void not_placed_is_refused(uni_program *program)
{
    uni_error err = { 0 };
    uni_value *config = uni_value_dict();
    CHECK(uni_dict_take(config, "not_placed", uni_value_bool(true)) == 0);
    uni_trainer *trainer = scenario_trainer(
        program, (uni_trainer_options){ .num_workers = 1, .max_failures = UNI_NO_RETRIES });
    CHECK(uni_trainer_fit(trainer, &(uni_run_options){ .function = "train", .config = config },
                          NULL, &err) == UNI_EFUNCTION);
    CHECK_CONTAINS(err.message, "uni_strategy_place");
    uni_value_free(config);
    uni_trainer_free(trainer);
}

const scenario scenarios[] = { { "same_for_any_number", same_for_any_number },
                               { "killed_and_resumed", killed_and_resumed },
                               { "not_placed_is_refused", not_placed_is_refused },
                               { NULL, NULL } };
