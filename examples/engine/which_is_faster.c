/*
 * which_is_faster.c - the course's exercise "Which one is faster?": the text classifier of
 * text_fit.c with fit, 20 epochs without early stopping, first mirrored on 4 devices, then on a
 * single one by pinning. Prints both times; docs/strategies.md explains them.
 *
 * --data FILE.csv with question_text,target; without it the texts of `get-data fortunes`.
 * --strategy NAME is tried in the place of mirrored:4.
 */
#include <stdio.h>
#include "text_data.h"

enum { BATCH_SIZE_PER_REPLICA = 64 };

static int compile(uni_model *model, uni_error *err)
{
    uni_optimizer *adam = NULL;
    UNI_TRY(uni_optimizer_new(&adam, "Adam",
                              UNI_OPTIONS(uni_optimizer_options, .learning_rate = 1e-4), err));
    return uni_model_compile(model,
                             UNI_OPTIONS(uni_compile_options, .optimizer = adam,
                                         .loss_name = "BinaryCrossentropy",
                                         .metric_names = (const char *const[]){ "accuracy", NULL }),
                             err);
}

static int batches_of(uni_batches **out, const text_set *set, int replicas, uint64_t seed,
                      uni_error *err)
{
    uni_column x = text_x(set, false), y = text_y(set, false);
    return uni_batches_columns(out, 1, &x, 1, &y, NULL,
                               UNI_OPTIONS(uni_columns_options,
                                           .batch_size = (int64_t)BATCH_SIZE_PER_REPLICA * replicas,
                                           .shuffle = true, .drop_remainder = true, .seed = seed),
                               err);
}

static int time_fit(const text_data *data, uni_strategy *strategy, const example_options *o,
                    double *ms, uni_error *err)
{
    uni_model *model = NULL;
    uni_batches *train = NULL;
    uni_value *history = NULL;
    int status, replicas = uni_strategy_info_of(strategy)->num_replicas_in_sync;
    UNI_TRY_GOTO(text_model(&model, "sentence_classifier", &data->train, o->seed, err), done);
    UNI_TRY_GOTO(compile(model, err), done);
    UNI_TRY_GOTO(uni_strategy_place(strategy, model, err), done);
    UNI_TRY_GOTO(batches_of(&train, &data->train, replicas, o->seed, err), done);
    double begun = example_now_ms();
    UNI_TRY_GOTO(
        uni_strategy_fit(&history, strategy, model,
                         UNI_OPTIONS(uni_fit_options, .batches = train, .epochs = o->epochs), err),
        done);
    *ms = example_now_ms() - begun;
    if (uni_strategy_info_of(strategy)->is_chief)
        printf("%s, %d device%s: Time for %.3f ms, accuracy %.4f\n",
               uni_strategy_info_of(strategy)->name, replicas, replicas == 1 ? "" : "s", *ms,
               example_last(history, "accuracy"));
done:
    uni_value_free(history);
    uni_batches_free(train);
    uni_model_free(model);
    return status;
}

static int run(const example_options *o, uni_error *err)
{
    text_data data;
    uni_strategy *mirrored = NULL, *pinned = NULL;
    double together = 0, alone = 0;
    int status;
    UNI_TRY(text_load(&data, o->data, err));
    UNI_TRY_GOTO(uni_strategy_mirrored(&mirrored, 4, err), done);
    UNI_TRY_GOTO(uni_strategy_one_device(&pinned, "cpu:0", err), done);
    UNI_TRY_GOTO(
        time_fit(&data, o->strategy_name != NULL ? o->strategy : mirrored, o, &together, err),
        done);
    if (o->strategy_name != NULL && !example_is_chief(o))
        goto done; /* the single device is the chief's */
    UNI_TRY_GOTO(time_fit(&data, pinned, o, &alone, err), done);
    printf("%s is faster, %.2f times\n", together < alone ? "the first" : "the single device",
           together < alone ? alone / together : together / alone);
done:
    uni_strategy_free(mirrored);
    uni_strategy_free(pinned);
    text_free(&data);
    return status;
}

int main(int argc, char **argv)
{
    return example_main(argc, argv,
                        (example_options){ .data = example_cache("fortunes.csv"), .epochs = 20 },
                        "Which one is faster: mirrored on 4 devices, or one that is pinned?", run);
}
