/*
 * fit.c - uni_strategy_fit: the engine's own fit with the strategy's replicas, this rank's part of
 * the data, and the weights in pages that ranks share.
 */
#include <stdlib.h>

#include "nn/shared.h"
#include "strategy/elastic/elastic.h"
#include "strategy/server/internal.h"
#include "base/options.h"

/* Turns the arrays of the options into batches of the global size, cut for this rank. */
static int distribute_arrays(uni_strategy *strategy, int num_x, const uni_column *x, int num_y,
                             const uni_column *y, const uni_column *weights,
                             const uni_columns_options *how, uni_batches **whole,
                             uni_batches **part, uni_error *err)
{
    UNI_TRY(uni_batches_columns(whole, num_x, x, num_y, y, weights, how, err));
    return uni_strategy_distribute(part, strategy, *whole, err);
}

typedef struct sources {
    uni_batches *whole[2], *part[2]; /* training, validation */
} sources;

/* Uses rank 0's seed, like its weights: all ranks shuffle alike, and as without a strategy. */
static int agree_on_seed(uni_strategy *strategy, const uni_model *model, uni_fit_options *options,
                         uni_error *err)
{
    int64_t seed = (int64_t)(options->seed ? options->seed : uni__model_seed(model));
    UNI_TRY(uni_comm_broadcast(strategy->comm, &seed, 1, UNI_I64, 0, err));
    options->seed = (uint64_t)seed;
    return 0;
}

static int distribute_sources(uni_strategy *strategy, const uni_fit_options *asked,
                              uni_fit_options *options, sources *made, uni_error *err)
{
    uni_columns_options train = { .batch_size = asked->batch_size,
                                  .shuffle = !asked->no_shuffle,
                                  .seed = asked->seed };
    uni_columns_options test = { .batch_size = asked->validation_batch_size > 0
                                                   ? asked->validation_batch_size
                                                   : asked->batch_size };
    if (!asked->batches) {
        UNI_TRY(distribute_arrays(strategy, asked->num_x, asked->x, asked->num_y, asked->y,
                                  asked->sample_weight, &train, &made->whole[0], &made->part[0],
                                  err));
        options->batches = made->part[0];
        options->x = options->y = options->sample_weight = NULL;
        options->num_x = options->num_y = 0;
        options->batch_size = 0;
    } else if (!uni__is_part(strategy, asked->batches)) {
        UNI_TRY(uni_strategy_distribute(&made->part[0], strategy, asked->batches, err));
        options->batches = made->part[0];
    }
    if (asked->validation_x) {
        UNI_TRY(distribute_arrays(strategy, asked->num_x, asked->validation_x, asked->num_y,
                                  asked->validation_y, asked->validation_weight, &test,
                                  &made->whole[1], &made->part[1], err));
        options->validation_batches = made->part[1];
        options->validation_x = options->validation_y = options->validation_weight = NULL;
    } else if (asked->validation_batches && !uni__is_part(strategy, asked->validation_batches)) {
        UNI_TRY(uni_strategy_distribute(&made->part[1], strategy, asked->validation_batches, err));
        options->validation_batches = made->part[1];
    }
    return 0;
}

static int64_t known_length(const uni_batches *batches)
{
    int64_t length = batches ? uni__batches_length(batches) : 0;
    return length >= 0 ? length : UNI__NOT_KNOWN;
}

/* A rank that trains for fewer steps would leave the others waiting. */
static int agree_on_steps(uni_strategy *strategy, const uni_fit_options *options,
                          const uni_fit_options *asked, uni_error *err)
{
    static const char alike[] = "give fit the same options on every rank",
                      data[] = "give every rank the same data, or as many batches",
                      whole[] = "give every rank all of the data, in the same order: fit takes "
                                "each rank's part of every batch itself";
    bool counted = asked->steps_per_epoch > 0, arrays = asked->x && asked->num_x > 0;
    const uni__common rows[] = {
        { "epochs", asked->epochs, alike, false },
        { "as its initial epoch", asked->initial_epoch, alike, false },
        { "steps per epoch", asked->steps_per_epoch, alike, false },
        { "samples", arrays ? asked->x[0].shape[0] : UNI__NOT_KNOWN, data, false },
        { "batches an epoch", counted ? UNI__NOT_KNOWN : known_length(options->batches), data,
          false },
        { "batches to validate with",
          asked->validation_steps > 0 ? asked->validation_steps
                                      : known_length(options->validation_batches),
          data, false },
        { "other inputs (x)", arrays ? uni__hash_columns(asked->num_x, asked->x) : UNI__NOT_KNOWN,
          whole, true },
        { "other labels (y)", arrays ? uni__hash_columns(asked->num_y, asked->y) : UNI__NOT_KNOWN,
          whole, true },
    };
    return uni__agree(strategy, rows, sizeof rows / sizeof rows[0], err);
}

/* Puts the user's callbacks between ours. */
static int wrap_callbacks(uni_strategy *strategy, const uni_fit_options *asked,
                          uni_fit_options *options, uni_callback *own[2], uni_callback ***out,
                          uni_error *err)
{
    UNI_TRY(uni__multi_worker_callbacks(&own[0], &own[1], strategy, err));
    uni_callback **all = *out = calloc((size_t)asked->num_callbacks + 2, sizeof **out);
    if (!all)
        return uni_error_set(err, UNI_ENOMEM, "no memory for callbacks");
    options->num_callbacks = 0;
    if (own[0])
        all[options->num_callbacks++] = own[0];
    for (int i = 0; i < asked->num_callbacks; i++)
        all[options->num_callbacks++] = asked->callbacks[i];
    if (own[1])
        all[options->num_callbacks++] = own[1];
    options->callbacks = all;
    return 0;
}

/* The mean size of a global batch, rounded up; 0: not known. */
static double plan_samples(const uni_batches *whole)
{
    int64_t samples = uni__batches_samples(whole), length = known_length(whole);
    return samples > 0 && length > 0 ? (double)((samples + length - 1) / length) : 0;
}

static int fit_on_pages(uni_strategy *strategy, uni_model *model, const uni_fit_options *options,
                        bool joined, uni_value **history, uni_error *err)
{
    uni_error aside = { 0 };
    int status = joined ? 0 : uni__fused_begin(strategy, model, err);
    if (status == 0) {
        uni__elastic_begin(strategy, model);
        status = uni__model_fit(model, options, &strategy->updater, history, err);
        if (status == 0)
            status = uni__elastic_close(strategy, err);
        uni__elastic_end(strategy);
    }
    bool leaves = uni__elastic_leaves(strategy);
    bool together = status == 0 || status == UNI_EPREEMPTED; /* all ranks end after the same step */
    if (!together)
        (void)uni__give_up(strategy, status, err);
    int home = uni__fused_end(strategy, together && !leaves, status == 0 ? err : &aside);
    uni__elastic_left(strategy);
    return status < 0 ? status : home;
}

static int fit_together(uni_strategy *strategy, uni_model *model, const uni_fit_options *asked,
                        uni_value **history, uni_error *err)
{
    uni_fit_options options = *asked, cut = *asked;
    uni__fit_halves halves;
    sources made = { 0 };
    uni_callback *own[2] = { NULL, NULL }, **callbacks = NULL;
    uni_value *kept = NULL;
    int status;
    bool joins = uni__elastic_joins(strategy);
    uni__elastic_count_fit(strategy);
    UNI_TRY_GOTO(joins ? uni__elastic_join(strategy, model, &cut.seed, history, err)
                       : agree_on_seed(strategy, model, &cut, err),
                 done);
    if (joins && status == UNI__FIT_IS_OVER)
        return 0;
    uni__elastic_set_seed(strategy, cut.seed);
    UNI_TRY_GOTO(uni__fit_split(&cut, &halves, err), done);
    asked = &cut;
    options = cut;
    UNI_TRY_GOTO(distribute_sources(strategy, asked, &options, &made, err), done);
    strategy->planned_samples = plan_samples(made.whole[0] ? made.whole[0] : asked->batches);
    if (!joins)
        UNI_TRY_GOTO(agree_on_steps(strategy, &options, asked, err), done);
    UNI_TRY_GOTO(wrap_callbacks(strategy, asked, &options, own, &callbacks, err), done);
    options.replicas = strategy->replicas;
    if (options.threads == 0)
        options.threads = uni__process_threads(strategy);
    if (!uni_strategy_info_of(strategy)->is_chief)
        options.verbose = 0;
    if (!history && strategy->elastic)
        history = &kept;
    UNI_TRY_GOTO(fit_on_pages(strategy, model, &options, joins, history, err), done);
    status = uni__elastic_keep_fit(strategy, model, history ? *history : NULL, err);
done:
    uni_value_free(kept);
    free(callbacks);
    for (int i = 0; i < 2; i++) {
        uni_callback_free(own[i]);
        uni_batches_free(made.part[i]);
        uni_batches_free(made.whole[i]);
    }
    return status;
}

static int fit_on_servers(uni_strategy *strategy, uni_model *model, const uni_fit_options *asked,
                          uni_value **history, uni_error *err)
{
    uni_fit_options cut = *asked;
    uni__fit_halves halves;
    UNI_TRY(uni__fit_split(&cut, &halves, err));
    return uni__ps_fit(strategy->server, model, &cut, history, err);
}

/* Was the model built and compiled in the strategy's scope? */
static int check_scope(const uni_strategy *strategy, const uni_model *model, uni_error *err)
{
    const uni__placed *placed = uni__placed_find(strategy, model);
    const uni_optimizer *optimizer = uni_model_optimizer(model);
    if (!placed)
        return uni_error_set(err, UNI_ESTATE,
                             "model %s was made outside the scope of strategy %s and cannot be "
                             "trained under it: call uni_strategy_place after building and "
                             "compiling it, so that all replicas begin with the same weights",
                             uni__model_name(model), uni_strategy_info_of(strategy)->name);
    if (optimizer && uni__optimizer_id(optimizer) != placed->optimizer)
        return uni_error_set(err, UNI_ESTATE,
                             "the optimizer of model %s was made outside the scope of strategy "
                             "%s: compile the model before uni_strategy_place (or place it again)",
                             uni__model_name(model), uni_strategy_info_of(strategy)->name);
    return 0;
}

int uni_strategy_fit(uni_value **history, uni_strategy *strategy, uni_model *model,
                     const uni_fit_options *asked, uni_error *err)
{
    UNI__OPTIONS(uni_fit_options, asked, step_times, err);
    if (history)
        *history = NULL;
    if (!uni__elastic_joins(strategy))
        UNI_TRY(uni__check_alive(strategy, err));
    int status = check_scope(strategy, model, err);
    if (strategy->kind == UNI__STRATEGY_MULTI_WORKER) {
        if (status == 0)
            status = fit_together(strategy, model, asked, history, err);
        return uni__give_up(strategy, status, err); /* one rank's error ends the call on all */
    }
    UNI_TRY(status);
    if (strategy->server)
        return fit_on_servers(strategy, model, asked, history, err);
    uni_fit_options options = *asked;
    cpu_set_t before;
    options.replicas = strategy->replicas;
    if (strategy->kind == UNI__STRATEGY_MIRRORED && options.threads == 0)
        /* The replicas share these threads. */
        options.threads = uni__process_threads(strategy);
    if (strategy->kind == UNI__STRATEGY_MIRRORED && options.threads < strategy->replicas)
        options.threads = strategy->replicas;
    if (strategy->kind == UNI__STRATEGY_ONE_DEVICE)
        options.threads = strategy->devices[0].num_cpus;
    uni__pin(strategy, NULL, &before);
    status = uni_model_fit(history, model, &options, err);
    uni__unpin(strategy, &before);
    return status;
}
