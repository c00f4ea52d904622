/*
 * fit.c - uni_strategy_fit: the engine's own fit, with the strategy's replicas, this rank's part of the data, and the weights in pages that ranks
 * share.
 */
#include <math.h>
#include <stdlib.h>

#include "strategy/internal.h"
#include "strategy/server/internal.h"

/* The arrays of the options as batches of the global size, cut for this rank. */
static int distribute_arrays(uni_strategy *strategy, int num_x, const uni_column *x, int num_y,
                             const uni_column *y, const uni_column *weights,
                             const uni_columns_options *how, uni_batches **whole,
                             uni_batches **part, uni_error *err)
{
    UNI_TRY(uni_batches_columns(whole, num_x, x, num_y, y, weights, how, err));
    return uni_strategy_distribute(strategy, *whole, part, err);
}

typedef struct sources {
    uni_batches *whole[2], *part[2]; /* training, validation */
} sources;

/* validation_split: the last part of the arrays becomes the validation's. */
typedef struct split {
    uni_column x[2][UNI_MODEL_MAX_INPUTS], y[2][UNI_MODEL_MAX_INPUTS], weights[2];
} split;

static int split_arrays(uni_fit_options *o, split *made, uni_error *err)
{
    int64_t samples = o->x && o->num_x > 0 && o->x[0].ndim > 0 ? o->x[0].shape[0] : 0;
    int64_t middle = (int64_t)floor((double)samples * (1 - o->validation_split));
    if (o->batches || !(o->validation_split < 1) || middle < 1 || middle >= samples ||
        o->num_x > UNI_MODEL_MAX_INPUTS || o->num_y > UNI_MODEL_MAX_INPUTS)
        return uni_error_set(err, UNI_EINVAL,
                             "validation_split %g cannot be used: it is a fraction between 0 and 1 "
                             "of arrays, and both parts need samples",
                             o->validation_split);
    for (int part = 0; part < 2; part++) {
        int64_t begin = part ? middle : 0, end = part ? samples : middle;
        for (int i = 0; i < o->num_x; i++)
            made->x[part][i] = uni_column_rows(&o->x[i], begin, end);
        for (int i = 0; i < o->num_y; i++)
            made->y[part][i] = uni_column_rows(&o->y[i], begin, end);
        if (o->sample_weight)
            made->weights[part] = uni_column_rows(o->sample_weight, begin, end);
    }
    o->x = made->x[0];
    o->y = made->y[0];
    o->validation_x = made->x[1];
    o->validation_y = made->y[1];
    o->validation_weight = o->sample_weight ? &made->weights[1] : NULL;
    o->sample_weight = o->sample_weight ? &made->weights[0] : NULL;
    o->validation_split = 0;
    return 0;
}

/* Rank 0's, as its weights: all ranks shuffle alike, and as without a strategy. */
static int agree_on_seed(uni_strategy *strategy, const uni_model *model, uni_fit_options *options,
                         uni_error *err)
{
    int64_t seed = (int64_t)(options->seed ? options->seed : uni_model_seed(model));
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
        UNI_TRY(uni_strategy_distribute(strategy, asked->batches, &made->part[0], err));
        options->batches = made->part[0];
    }
    if (asked->validation_x) {
        UNI_TRY(distribute_arrays(strategy, asked->num_x, asked->validation_x, asked->num_y,
                                  asked->validation_y, asked->validation_weight, &test,
                                  &made->whole[1], &made->part[1], err));
        options->validation_batches = made->part[1];
        options->validation_x = options->validation_y = options->validation_weight = NULL;
    } else if (asked->validation_batches && !uni__is_part(strategy, asked->validation_batches)) {
        UNI_TRY(uni_strategy_distribute(strategy, asked->validation_batches, &made->part[1], err));
        options->validation_batches = made->part[1];
    }
    return 0;
}

static int64_t known_length(const uni_batches *batches)
{
    int64_t length = batches ? uni_batches_length(batches) : 0;
    return length >= 0 ? length : UNI__NOT_KNOWN;
}

/* Ranks that do not train as long as the others would leave them waiting in the middle. */
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

/* The user's callbacks between ours. */
static int wrap_callbacks(uni_strategy *strategy, const uni_fit_options *asked,
                          uni_fit_options *options, uni_fit_callback *own[2],
                          uni_fit_callback ***out, uni_error *err)
{
    UNI_TRY(uni__multi_worker_callbacks(&own[0], &own[1], strategy, err));
    uni_fit_callback **all = *out = calloc((size_t)asked->num_callbacks + 2, sizeof **out);
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

static int fit_on_pages(uni_strategy *strategy, uni_model *model, const uni_fit_options *options,
                        uni_value **history, uni_error *err)
{
    uni_error aside = { 0 };
    int status = uni__fused_begin(strategy, model, err);
    if (status == 0)
        status = uni_model_fit(model, options, history, err);
    (void)uni__give_up(strategy, status, err);
    int home = uni__fused_end(strategy, status == 0, status == 0 ? err : &aside);
    return status < 0 ? status : home;
}

static int fit_together(uni_strategy *strategy, uni_model *model, const uni_fit_options *asked,
                        uni_value **history, uni_error *err)
{
    uni_fit_options options = *asked, cut = *asked;
    split halves;
    sources made = { 0 };
    uni_fit_callback *own[2] = { NULL, NULL }, **callbacks = NULL;
    int status;
    UNI_TRY_GOTO(agree_on_seed(strategy, model, &cut, err), done);
    if (asked->validation_split != 0)
        UNI_TRY_GOTO(split_arrays(&cut, &halves, err), done);
    asked = &cut;
    options = cut;
    UNI_TRY_GOTO(distribute_sources(strategy, asked, &options, &made, err), done);
    UNI_TRY_GOTO(agree_on_steps(strategy, &options, asked, err), done);
    UNI_TRY_GOTO(wrap_callbacks(strategy, asked, &options, own, &callbacks, err), done);
    options.replica = &strategy->replica;
    options.replicas = strategy->replicas;
    if (options.threads == 0)
        options.threads = uni__process_threads(strategy);
    if (!uni_strategy_is_chief(strategy))
        options.verbose = 0;
    status = fit_on_pages(strategy, model, &options, history, err);
done:
    free(callbacks);
    for (int i = 0; i < 2; i++) {
        uni_fit_callback_free(own[i]);
        uni_batches_free(made.part[i]);
        uni_batches_free(made.whole[i]);
    }
    return status;
}

static int fit_on_servers(uni_strategy *strategy, uni_model *model, const uni_fit_options *asked,
                          uni_value **history, uni_error *err)
{
    uni_fit_options cut = *asked;
    split halves;
    if (asked->validation_split != 0)
        UNI_TRY(split_arrays(&cut, &halves, err));
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
                             uni_model_name(model), uni_strategy_name(strategy));
    if (optimizer && uni_optimizer_id(optimizer) != placed->optimizer)
        return uni_error_set(err, UNI_ESTATE,
                             "the optimizer of model %s was made outside the scope of strategy "
                             "%s: compile the model before uni_strategy_place (or place it again)",
                             uni_model_name(model), uni_strategy_name(strategy));
    return 0;
}

int uni_strategy_fit(uni_strategy *strategy, uni_model *model, const uni_fit_options *asked,
                     uni_value **history, uni_error *err)
{
    if (history)
        *history = NULL;
    UNI_TRY(uni__check_alive(strategy, err));
    int status = check_scope(strategy, model, err);
    if (strategy->kind == UNI__STRATEGY_MULTI_WORKER) {
        if (status == 0)
            status = fit_together(strategy, model, asked, history, err);
        return uni__give_up(strategy, status, err); /* an error of one is everybody's */
    }
    UNI_TRY(status);
    if (strategy->server)
        return fit_on_servers(strategy, model, asked, history, err);
    uni_fit_options options = *asked;
    cpu_set_t before;
    options.replicas = strategy->replicas;
    if (strategy->kind == UNI__STRATEGY_MIRRORED && options.threads == 0)
        options.threads = uni__process_threads(strategy); /* each replica has its share of them */
    if (strategy->kind == UNI__STRATEGY_MIRRORED && options.threads < strategy->replicas)
        options.threads = strategy->replicas;
    if (strategy->kind == UNI__STRATEGY_ONE_DEVICE)
        options.threads = strategy->devices[0].num_cpus;
    uni__pin(strategy, NULL, &before);
    status = uni_model_fit(model, &options, history, err);
    uni__unpin(strategy, &before);
    return status;
}
