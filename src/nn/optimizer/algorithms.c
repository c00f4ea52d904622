/*
 * algorithms.c - the update rules, each one flat pass of tensor/update.h, with Keras's names of
 * slots and configs. Several threads call update(), each with its own range.
 */
#include <math.h>

#include "nn/optimizer/optimizer.h"
#include "tensor/update.h"

/* ---- sgd: slot 0 is the momentum ---- */

static void sgd_slots(const uni_optimizer *optimizer, const char *names[UNI__OPTIMIZER_MAX_SLOTS])
{
    names[0] = optimizer->momentum != 0 ? "momentum" : NULL;
}

static void sgd_update(const uni_optimizer *optimizer, float *weights, float *const *slots,
                       const float *gradients, size_t n, float scale)
{
    if (slots[0] == NULL)
        uni__update_sgd(weights, gradients, n, optimizer->rate, scale, optimizer->decay);
    else
        uni__update_momentum(weights, slots[0], gradients, n, optimizer->rate,
                             (float)optimizer->momentum, optimizer->nesterov, scale,
                             optimizer->decay);
}

static int sgd_put_config(const uni_optimizer *optimizer, uni_value *config)
{
    UNI_TRY(uni_dict_take(config, "momentum", uni_value_float(optimizer->momentum)));
    return uni_dict_take(config, "nesterov", uni_value_bool(optimizer->nesterov));
}

const uni__optimizer_class uni__optimizer_sgd = { "sgd", "SGD",     "sgd",      0.01,
                                                  0,     sgd_slots, sgd_update, sgd_put_config };

/* ---- adam and adamw: slots 0 momentum, 1 velocity, 2 the largest velocity so far (amsgrad) ----
 * */

static void adam_slots(const uni_optimizer *optimizer, const char *names[UNI__OPTIMIZER_MAX_SLOTS])
{
    names[0] = "momentum";
    names[1] = "velocity";
    names[2] = optimizer->amsgrad ? "velocity_hat" : NULL;
}

static void adam_update(const uni_optimizer *optimizer, float *weights, float *const *slots,
                        const float *gradients, size_t n, float scale)
{
    uni__adam adam = { .alpha = optimizer->adam_alpha,
                       .beta_1 = optimizer->beta_1,
                       .beta_2 = optimizer->beta_2,
                       .epsilon = (float)optimizer->epsilon,
                       .scale = scale,
                       .decay = optimizer->decay };
    uni__update_adam(weights, slots[0], slots[1], slots[2], gradients, n, &adam);
}

static int adam_put_config(const uni_optimizer *optimizer, uni_value *config)
{
    UNI_TRY(uni_dict_take(config, "beta_1", uni_value_float(optimizer->beta_1)));
    UNI_TRY(uni_dict_take(config, "beta_2", uni_value_float(optimizer->beta_2)));
    UNI_TRY(uni_dict_take(config, "epsilon", uni_value_float(optimizer->epsilon)));
    return uni_dict_take(config, "amsgrad", uni_value_bool(optimizer->amsgrad));
}

const uni__optimizer_class uni__optimizer_adam = {
    "adam", "Adam", "adam", 0.001, 0, adam_slots, adam_update, adam_put_config
};
const uni__optimizer_class uni__optimizer_adamw = { "adamw",     "AdamW",        "adamw",
                                                    0.001,       0.004,          adam_slots,
                                                    adam_update, adam_put_config };

/* ---- rmsprop: slots 0 velocity (the mean square), 1 momentum, 2 average_gradient (centered) ----
 * */

static void rmsprop_slots(const uni_optimizer *optimizer,
                          const char *names[UNI__OPTIMIZER_MAX_SLOTS])
{
    names[0] = "velocity";
    names[1] = optimizer->momentum != 0 ? "momentum" : NULL;
    names[2] = optimizer->centered ? "average_gradient" : NULL;
}

static void rmsprop_update(const uni_optimizer *optimizer, float *weights, float *const *slots,
                           const float *gradients, size_t n, float scale)
{
    uni__rmsprop rmsprop = { .lr = optimizer->rate,
                             .rho = optimizer->rho,
                             .momentum = (float)optimizer->momentum,
                             .epsilon = (float)optimizer->epsilon,
                             .scale = scale,
                             .decay = optimizer->decay };
    uni__update_rmsprop(weights, slots[0], slots[2], slots[1], gradients, n, &rmsprop);
}

static int rmsprop_put_config(const uni_optimizer *optimizer, uni_value *config)
{
    UNI_TRY(uni_dict_take(config, "rho", uni_value_float(optimizer->rho)));
    UNI_TRY(uni_dict_take(config, "momentum", uni_value_float(optimizer->momentum)));
    UNI_TRY(uni_dict_take(config, "epsilon", uni_value_float(optimizer->epsilon)));
    return uni_dict_take(config, "centered", uni_value_bool(optimizer->centered));
}

const uni__optimizer_class uni__optimizer_rmsprop = {
    "rmsprop", "RMSprop", "rmsprop", 0.001, 0, rmsprop_slots, rmsprop_update, rmsprop_put_config
};

/* ---- adagrad: slot 0 is the accumulator, which does not start at 0 ---- */

static void adagrad_slots(const uni_optimizer *optimizer,
                          const char *names[UNI__OPTIMIZER_MAX_SLOTS])
{
    names[0] = "accumulator";
}

static void adagrad_update(const uni_optimizer *optimizer, float *weights, float *const *slots,
                           const float *gradients, size_t n, float scale)
{
    uni__update_adagrad(weights, slots[0], gradients, n, optimizer->rate, (float)optimizer->epsilon,
                        scale, optimizer->decay);
}

static int adagrad_put_config(const uni_optimizer *optimizer, uni_value *config)
{
    UNI_TRY(uni_dict_take(config, "initial_accumulator_value",
                          uni_value_float(optimizer->initial_accumulator)));
    return uni_dict_take(config, "epsilon", uni_value_float(optimizer->epsilon));
}

const uni__optimizer_class uni__optimizer_adagrad = {
    "adagrad", "Adagrad", "adagrad", 0.001, 0, adagrad_slots, adagrad_update, adagrad_put_config
};
