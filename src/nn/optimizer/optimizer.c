/*
 * optimizer.c - creates optimizers, and keeps their flat state. update.c makes a step.
 */
#include "nn/optimizer/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "base/random.h"
#include "nn/loss/names.h"
#include "nn/step.h"
#include "tensor/update.h"
#include "base/options.h"

static const uni__optimizer_class *const classes[] = { &uni__optimizer_sgd, &uni__optimizer_adam,
                                                       &uni__optimizer_adamw,
                                                       &uni__optimizer_rmsprop,
                                                       &uni__optimizer_adagrad };
#define NUM_CLASSES (sizeof classes / sizeof classes[0])

/* ---- constructors ---- */

static const uni__optimizer_class *find(const char *name, uni_error *err)
{
    const char *names[NUM_CLASSES];
    for (size_t i = 0; i < NUM_CLASSES; i++) {
        names[i] = classes[i]->name;
        if (uni__same_name(name, names[i]))
            return classes[i];
    }
    uni__unknown_name(err, "optimizer", name, names, NUM_CLASSES);
    return NULL;
}

static double pick(double given, double standard)
{
    return given == UNI_EXACTLY_ZERO ? 0 : given != 0 ? given : standard;
}

static int check_range(const char *what, double value, double low, double below, uni_error *err)
{
    if (value >= low && value < below)
        return 0;
    return uni_error_set(err, UNI_EINVAL,
                         "the optimizer's %s must be at least %g and below %g, got %g", what, low,
                         below, value);
}

static int check(const uni_optimizer *optimizer, uni_error *err)
{
    UNI_TRY(check_range("learning_rate", optimizer->learning_rate, 0, INFINITY, err));
    UNI_TRY(check_range("momentum", optimizer->momentum, 0, nextafter(1, 2), err));
    UNI_TRY(check_range("beta_1", optimizer->beta_1, 0, 1, err));
    UNI_TRY(check_range("beta_2", optimizer->beta_2, 0, 1, err));
    UNI_TRY(check_range("rho", optimizer->rho, 0, 1, err));
    UNI_TRY(check_range("epsilon", optimizer->epsilon, 0, INFINITY, err));
    UNI_TRY(check_range("initial_accumulator", optimizer->initial_accumulator, 0, INFINITY, err));
    UNI_TRY(check_range("weight_decay", optimizer->weight_decay, 0, INFINITY, err));
    UNI_TRY(check_range("clip_norm", optimizer->clip_norm, 0, INFINITY, err));
    UNI_TRY(check_range("clip_value", optimizer->clip_value, 0, INFINITY, err));
    UNI_TRY(check_range("global_clip_norm", optimizer->global_clip_norm, 0, INFINITY, err));
    if ((optimizer->clip_norm != 0) + (optimizer->clip_value != 0) +
            (optimizer->global_clip_norm != 0) >
        1)
        return uni_error_set(
            err, UNI_EINVAL,
            "only one of clip_norm, clip_value and global_clip_norm can be given to an optimizer");
    return 0;
}

/* An option of another optimizer is an error, not ignored. */
static int refuse_others(const uni__optimizer_class *class_, const uni_optimizer_options *options,
                         uni_error *err)
{
    bool sgd = uni__same_name(class_->class_name, "SGD");
    bool rmsprop = uni__same_name(class_->class_name, "RMSprop");
    bool adagrad = uni__same_name(class_->class_name, "Adagrad");
    bool adam = !sgd && !rmsprop && !adagrad; /* and AdamW */
    const struct {
        const char *name;
        bool given, known;
    } all[] = {
        { "momentum", options->momentum != 0, sgd || rmsprop },
        { "nesterov", options->nesterov, sgd },
        { "beta_1", options->beta_1 != 0, adam },
        { "beta_2", options->beta_2 != 0, adam },
        { "amsgrad", options->amsgrad, adam },
        { "rho", options->rho != 0, rmsprop },
        { "centered", options->centered, rmsprop },
        { "epsilon", options->epsilon != 0, !sgd },
        { "initial_accumulator", options->initial_accumulator != 0, adagrad },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].given && !all[i].known)
            return uni_error_set(err, UNI_EINVAL, "the optimizer %s has no %s", class_->class_name,
                                 all[i].name);
    return 0;
}

static void set_numbers(uni_optimizer *optimizer, const uni_optimizer_options *options)
{
    optimizer->learning_rate = pick(options->learning_rate, optimizer->class_->learning_rate);
    optimizer->momentum = pick(options->momentum, 0);
    optimizer->nesterov = options->nesterov;
    optimizer->beta_1 = pick(options->beta_1, 0.9);
    optimizer->beta_2 = pick(options->beta_2, 0.999);
    optimizer->rho = pick(options->rho, 0.9);
    optimizer->epsilon = pick(options->epsilon, 1e-7);
    optimizer->centered = options->centered;
    optimizer->amsgrad = options->amsgrad;
    optimizer->initial_accumulator = pick(options->initial_accumulator, 0.1);
    optimizer->weight_decay = pick(options->weight_decay, optimizer->class_->weight_decay);
    optimizer->clip_norm = pick(options->clip_norm, 0);
    optimizer->clip_value = pick(options->clip_value, 0);
    optimizer->global_clip_norm = pick(options->global_clip_norm, 0);
}

int uni_optimizer_new(uni_optimizer **out, const char *name, const uni_optimizer_options *options,
                      uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_optimizer_options, options, name, err);
    int status = 0;
    uni_optimizer *optimizer = NULL;
    const uni__optimizer_class *class_ = find(name != NULL ? name : "", err);
    if (class_ == NULL) {
        status = UNI_ENOTFOUND;
        goto fail;
    }
    UNI_TRY_GOTO(refuse_others(class_, options, err), fail);
    optimizer = calloc(1, sizeof *optimizer);
    char *copy = optimizer != NULL
                     ? strdup(options->name != NULL ? options->name : class_->default_name)
                     : NULL;
    if (copy == NULL) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for the optimizer %s", name);
        goto fail;
    }
    optimizer->class_ = class_;
    optimizer->name = copy;
    optimizer->id = uni__random_id(optimizer);
    set_numbers(optimizer, options);
    UNI_TRY_GOTO(check(optimizer, err), fail);
    optimizer->schedule = options->schedule;
    *out = optimizer;
    return 0;
fail:
    uni_schedule_free(options->schedule);
    uni_optimizer_free(optimizer);
    return status;
}

static void free_state(uni_optimizer *optimizer)
{
    for (int role = 0; role < UNI__OPTIMIZER_MAX_SLOTS; role++) {
        if (!optimizer->borrowed)
            uni__buffer_free(optimizer->slots[role], optimizer->size);
        optimizer->slots[role] = NULL;
    }
    optimizer->borrowed = false;
    free(optimizer->clip_factors);
    free(optimizer->spans);
    optimizer->clip_factors = NULL;
    optimizer->spans = NULL;
    optimizer->size = 0;
}

void uni_optimizer_free(uni_optimizer *optimizer)
{
    if (optimizer == NULL)
        return;
    free_state(optimizer);
    uni__helpers_free(optimizer->helpers);
    uni_schedule_free(optimizer->schedule);
    free(optimizer->name);
    free(optimizer);
}

uint64_t uni__optimizer_id(const uni_optimizer *optimizer)
{
    return optimizer->id;
}

const char *uni__optimizer_name(const uni_optimizer *optimizer)
{
    return optimizer->name;
}

/* ---- state ---- */

static int make_slots(uni_optimizer *grown, size_t old_size, float *const *old_slots)
{
    const char *names[UNI__OPTIMIZER_MAX_SLOTS] = { NULL };
    grown->class_->slots(grown, names);
    for (int role = 0; role < UNI__OPTIMIZER_MAX_SLOTS; role++) {
        if (names[role] == NULL)
            continue;
        grown->slots[role] = uni__buffer_new(grown->size);
        if (grown->slots[role] == NULL)
            return UNI_ENOMEM;
        if (grown->class_ == &uni__optimizer_adagrad)
            for (size_t i = 0; i < grown->size; i++)
                grown->slots[role][i] = (float)grown->initial_accumulator;
        if (old_size > 0) /* the store only grows at its end */
            memcpy(grown->slots[role], old_slots[role], old_size * sizeof(float));
    }
    return 0;
}

int uni__optimizer_build(uni_optimizer *optimizer, uni_parameters *store, uni_error *err)
{
    size_t size = 0, count = uni_parameters_count(store);
    uni_parameters_weights(store, &size);
    if (optimizer->store != NULL && optimizer->store != store)
        return uni_error_set(
            err, UNI_ESTATE,
            "the optimizer %s has the state of another model; make one for each model",
            optimizer->name);
    if (optimizer->store == store && optimizer->size == size && optimizer->num_parameters == count)
        return 0;
    uni_optimizer grown = *optimizer;
    memset(grown.slots, 0, sizeof grown.slots);
    grown.borrowed = false;
    grown.store = store;
    grown.size = size;
    grown.num_parameters = grown.max_spans = count;
    grown.clip_factors = calloc(count + 1, sizeof *grown.clip_factors);
    grown.spans = calloc(count + 1, sizeof *grown.spans);
    int status = grown.clip_factors == NULL || grown.spans == NULL ? UNI_ENOMEM : 0;
    if (status == 0)
        status = make_slots(&grown, optimizer->size, optimizer->slots);
    if (status < 0) {
        free_state(&grown);
        return uni_error_set(err, status,
                             "no memory for the state of the optimizer %s (%zu numbers)",
                             optimizer->name, size);
    }
    free_state(optimizer);
    *optimizer = grown;
    return 0;
}

int uni__optimizer_rehome(uni_optimizer *optimizer, float *memory, size_t stride, bool adopt,
                          uni_error *err)
{
    float *moved[UNI__OPTIMIZER_MAX_SLOTS] = { NULL };
    size_t used = 0;
    if (memory == NULL && !optimizer->borrowed)
        return 0;
    for (int role = 0; role < UNI__OPTIMIZER_MAX_SLOTS; role++) {
        if (optimizer->slots[role] == NULL)
            continue;
        moved[role] = memory != NULL ? memory + stride * used++ : uni__buffer_new(optimizer->size);
        if (moved[role] == NULL) {
            while (role-- > 0)
                uni__buffer_free(moved[role], optimizer->size);
            return uni_error_set(err, UNI_ENOMEM,
                                 "no memory for the state of the optimizer %s (%zu numbers)",
                                 optimizer->name, optimizer->size);
        }
        if (!adopt)
            memcpy(moved[role], optimizer->slots[role], optimizer->size * sizeof(float));
    }
    for (int role = 0; role < UNI__OPTIMIZER_MAX_SLOTS; role++) {
        if (!optimizer->borrowed)
            uni__buffer_free(optimizer->slots[role], optimizer->size);
        optimizer->slots[role] = moved[role];
    }
    optimizer->borrowed = memory != NULL;
    return 0;
}

/* ---- getters and setters ---- */

bool uni__optimizer_descent(const uni_optimizer *optimizer, float scale, uni__descent *out)
{
    if (optimizer->class_ != &uni__optimizer_sgd || optimizer->momentum != 0 ||
        optimizer->clip_norm != 0 || optimizer->clip_value != 0 ||
        optimizer->global_clip_norm != 0 ||
        (optimizer->schedule != NULL && uni__schedule_is_custom(optimizer->schedule)))
        return false;
    double rate = uni_optimizer_learning_rate(optimizer, NULL);
    *out = (uni__descent){ .rate = (float)rate * (scale != 0 ? scale : 1),
                           .keep = 1.0f - (float)(rate * optimizer->weight_decay) };
    return true;
}

int64_t uni_optimizer_iterations(const uni_optimizer *optimizer)
{
    return optimizer->iterations;
}

void uni__optimizer_set_iterations(uni_optimizer *optimizer, int64_t iterations)
{
    optimizer->iterations = iterations;
}

void uni__optimizer_set_accumulation(uni_optimizer *optimizer, int steps, int waiting)
{
    optimizer->accumulation = steps;
    optimizer->waiting = waiting;
}

int64_t uni__optimizer_batches(const uni_optimizer *optimizer)
{
    int64_t each = optimizer->accumulation > 1 ? optimizer->accumulation : 1;
    return optimizer->iterations * each + optimizer->waiting;
}

void uni__optimizer_set_batches(uni_optimizer *optimizer, int64_t batches)
{
    optimizer->iterations = batches / (optimizer->accumulation > 1 ? optimizer->accumulation : 1);
}

double uni_optimizer_learning_rate(const uni_optimizer *optimizer, uni_error *err)
{
    if (optimizer->schedule == NULL)
        return optimizer->learning_rate;
    /* As in Keras, schedules count batches, also those that only add to the gradients. */
    return uni__schedule_at(optimizer->schedule, uni__optimizer_batches(optimizer), err);
}

void uni_optimizer_set_schedule(uni_optimizer *optimizer, uni_schedule *schedule)
{
    uni_schedule_free(optimizer->schedule);
    optimizer->schedule = schedule;
}

int uni_optimizer_set_learning_rate(uni_optimizer *optimizer, double rate, uni_error *err)
{
    if (optimizer->schedule != NULL)
        return uni_error_set(
            err, UNI_ESTATE,
            "the learning rate of %s comes from a schedule and cannot be set; make the optimizer "
            "with learning_rate instead",
            optimizer->name);
    UNI_TRY(check_range("learning_rate", rate, 0, INFINITY, err));
    optimizer->learning_rate = rate;
    return 0;
}

/* The n-th slot that the settings need; -1 if there are fewer. */
static int role_of(const uni_optimizer *optimizer, size_t slot, const char **name)
{
    const char *names[UNI__OPTIMIZER_MAX_SLOTS] = { NULL };
    optimizer->class_->slots(optimizer, names);
    for (int role = 0; role < UNI__OPTIMIZER_MAX_SLOTS; role++)
        if (names[role] != NULL && slot-- == 0) {
            *name = names[role];
            return role;
        }
    return -1;
}

size_t uni__optimizer_num_slots(const uni_optimizer *optimizer)
{
    const char *name;
    size_t count = 0;
    while (role_of(optimizer, count, &name) >= 0)
        count++;
    return count;
}

const char *uni__optimizer_slot_name(const uni_optimizer *optimizer, size_t slot)
{
    const char *name = NULL;
    return role_of(optimizer, slot, &name) >= 0 ? name : NULL;
}

float *uni__optimizer_slot(const uni_optimizer *optimizer, size_t slot, size_t *size)
{
    const char *name;
    int role = role_of(optimizer, slot, &name);
    float *data = role >= 0 ? optimizer->slots[role] : NULL;
    if (size != NULL)
        *size = data != NULL ? optimizer->size : 0;
    return data;
}
