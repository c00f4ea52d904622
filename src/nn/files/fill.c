/*
 * fill.c - a weight file's contents into a model: everything is checked first (which layer, which
 * shapes), then copied, so that a file that does not fit changes nothing. The model's thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/log.h"
#include "nn/files/files.h"
#include "nn/optimizer/optimizer.h"
#include "nn/text/text.h"

/* ---- checks ---- */

static const char *layer_name(const uni__variable *variable)
{
    return variable->layer != NULL ? uni_layer_name(variable->layer) : "the optimizer";
}

static int check_variable(const uni__variable *variable, const uni__item *item, const char *path,
                          uni_error *err)
{
    char in_file[UNI__SHAPE_TEXT_SIZE], in_model[UNI__SHAPE_TEXT_SIZE];
    if (item == NULL)
        return uni_error_set(err, UNI_EFORMAT,
                             "\"%s\" does not fit the model: %s of layer %s (%s) is missing in it",
                             path, variable->what, layer_name(variable), variable->path);
    bool same = item->ndim == variable->ndim;
    for (int i = 0; same && i < item->ndim; i++)
        same = item->shape[i] == variable->shape[i];
    if (!same)
        return uni_error_set(err, UNI_ESHAPE,
                             "\"%s\" does not fit the model: %s of layer %s (%s) has the shape %s "
                             "in the file and %s in the model",
                             path, variable->what, layer_name(variable), variable->path,
                             item->ndim <= UNI_TENSOR_MAX_DIMS
                                 ? uni__shape_text(in_file, item->ndim, item->shape)
                                 : "of more dimensions",
                             uni__shape_text(in_model, variable->ndim, variable->shape));
    bool integer =
        variable->kind == UNI__VARIABLE_ITERATION || variable->kind == UNI__VARIABLE_COUNT;
    if (item->dtype == UNI_I64 && !integer)
        return uni_error_set(
            err, UNI_EDTYPE,
            "\"%s\": %s of layer %s (%s) has the type int64 in the file, float32 in the model",
            path, variable->what, layer_name(variable), variable->path);
    return 0;
}

/* What no layer of the model asked for is a layer that the model has not. */
static int check_unused(const uni__contents *contents, const char *path, uni_error *err)
{
    for (size_t i = 0; i < contents->count; i++) {
        const uni__item *item = &contents->items[i];
        if (item->kind == UNI__ITEM_VARIABLE && !item->used &&
            strncmp(item->path, "layers/", 7) == 0)
            return uni_error_set(
                err, UNI_EFORMAT,
                "\"%s\" is of another model: it has %s, which belongs to no layer of this one",
                path, item->path);
    }
    return 0;
}

/* ---- copies ---- */

static double number_of(const uni__item *item)
{
    float f32;
    int64_t i64;
    if (item->dtype == UNI_F32) {
        memcpy(&f32, item->data, sizeof f32);
        return (double)f32;
    }
    memcpy(&i64, item->data, sizeof i64);
    return (double)i64;
}

static int copy_variable(uni_model *model, const uni__variable *variable, const uni__item *item,
                         uni_error *err)
{
    uni_optimizer *optimizer = uni_model_optimizer(model);
    float *numbers;
    switch (variable->kind) {
    case UNI__VARIABLE_PARAMETER:
    case UNI__VARIABLE_SLOT:
        if (item->size > 0)
            memcpy(variable->data, item->data, item->size);
        return 0;
    case UNI__VARIABLE_COUNT:
        *variable->data = (float)number_of(item);
        return 0;
    case UNI__VARIABLE_ITERATION:
        uni__optimizer_set_batches(optimizer, (int64_t)number_of(item));
        return 0;
    case UNI__VARIABLE_RATE:
        return uni_optimizer_set_learning_rate(optimizer, number_of(item), err);
    case UNI__VARIABLE_IDF:
        numbers = malloc(item->size + sizeof *numbers);
        if (numbers == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the weights of %s",
                                 layer_name(variable));
        memcpy(numbers, item->data, item->size);
        int status =
            uni__text_set_idf(variable->layer, variable->count - 1, numbers + 1, numbers[0], err);
        free(numbers);
        return status;
    }
    return 0;
}

/* ---- the optimizer's part ---- */

static size_t count_optimizer(const uni__contents *contents)
{
    size_t count = 0;
    for (size_t i = 0; i < contents->count; i++)
        count += contents->items[i].kind == UNI__ITEM_VARIABLE &&
                 strncmp(contents->items[i].path, "optimizer/vars/", 15) == 0;
    return count;
}

static size_t count_trainable(const uni__file_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->num_variables; i++)
        count += plan->variables[i].kind == UNI__VARIABLE_PARAMETER &&
                 !uni_parameter_info_of(plan->variables[i].parameter)->is_frozen;
    return count;
}

/* Whether the file's optimizer state is of the model's optimizer; makes the slots when it has them.
 * 1: yes, 0: leave it out. */
static int prepare_optimizer(uni_model *model, const uni__contents *contents,
                             const uni__file_plan *plan, const char *path, bool whole,
                             uni_error *err)
{
    uni_optimizer *optimizer = uni_model_optimizer(model);
    size_t found = count_optimizer(contents);
    if (optimizer == NULL || found == 0)
        return 0;
    size_t numbers = optimizer->schedule != NULL ? 1 : 2;
    size_t all = numbers + uni__optimizer_num_slots(optimizer) * count_trainable(plan);
    if (found == all) {
        UNI_TRY(uni__optimizer_build(optimizer, uni_model_parameters(model), err));
        return 1;
    }
    if (found == numbers)
        return 1;
    if (whole)
        return uni_error_set(
            err, UNI_EFORMAT,
            "\"%s\": the state of the optimizer has %zu variables, %s of this model has %zu", path,
            found, uni__optimizer_name(optimizer), all);
    uni__warn("%s: the state of the optimizer is left out: it has %zu variables, %s of this model "
              "has %zu",
              path, found, uni__optimizer_name(optimizer), all);
    return 0;
}

static bool is_optimizer(const uni__variable *variable)
{
    return variable->layer == NULL;
}

/* Slots that the optimizer has but the file has not (it was saved before its first step) start
 * again. */
static bool is_absent_slot(const uni__variable *variable, const uni__item *item)
{
    return variable->kind == UNI__VARIABLE_SLOT && item == NULL;
}

static int fill(uni_model *model, const uni__file_plan *plan, uni__contents *contents,
                const char *path, bool with_optimizer, uni_error *err)
{
    for (size_t i = 0; i < plan->num_variables; i++) {
        const uni__variable *variable = &plan->variables[i];
        uni__item *item = uni__contents_find(contents, UNI__ITEM_VARIABLE, variable->path);
        if (is_optimizer(variable) && (!with_optimizer || is_absent_slot(variable, item)))
            continue;
        UNI_TRY(check_variable(variable, item, path, err));
        item->used = true;
    }
    UNI_TRY(check_unused(contents, path, err));
    for (size_t i = 0; i < plan->num_variables; i++) {
        const uni__variable *variable = &plan->variables[i];
        const uni__item *item = uni__contents_find(contents, UNI__ITEM_VARIABLE, variable->path);
        if (item != NULL && (!is_optimizer(variable) || with_optimizer))
            UNI_TRY(copy_variable(model, variable, item, err));
    }
    return 0;
}

int uni__fill_model(uni_model *model, uni__contents *contents, const char *path, bool whole,
                    uni_error *err)
{
    uni__file_plan plan = { 0 };
    UNI_TRY(uni__file_plan_make(&plan, model, false, err));
    int status = prepare_optimizer(model, contents, &plan, path, whole, err);
    bool with_optimizer = status > 0;
    if (with_optimizer) {
        uni__file_plan_free(&plan);
        status = uni__file_plan_make(&plan, model, true, err);
    }
    if (status >= 0)
        status = fill(model, &plan, contents, path, with_optimizer, err);
    uni__file_plan_free(&plan);
    return status;
}

/* ---- vocabularies ---- */

/* One word a line; the first lines are the padding (empty) and the unknown word. */
static int read_vocabulary(uni_layer *layer, const uni__item *item, uni_error *err)
{
    size_t count = 1;
    const char *text = item->data;
    for (size_t i = 0; i < item->size; i++)
        count += text[i] == '\n';
    char *copy = malloc(item->size + 1);
    const char **words = calloc(count, sizeof *words);
    size_t *sizes = calloc(count, sizeof *sizes), number = 0;
    if (copy == NULL || words == NULL || sizes == NULL) {
        free(copy);
        free(words);
        free(sizes);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a vocabulary of %zu words", count);
    }
    memcpy(copy, text, item->size);
    copy[item->size] = '\0';
    for (char *at = copy, *end = copy + item->size; number < count; number++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        *stop = '\0';
        words[number] = at;
        sizes[number] = (size_t)(stop - at);
        at = stop < end ? stop + 1 : end;
    }
    if (count > 1 && sizes[count - 1] == 0)
        count--; /* a newline at the end */
    int status = uni__text_set_vocabulary(layer, count, words, sizes, err);
    free(copy);
    free(words);
    free(sizes);
    return status;
}

int uni__fill_assets(uni_model *model, const uni__contents *contents, uni_error *err)
{
    uni__file_plan plan = { 0 };
    UNI_TRY(uni__file_plan_make(&plan, model, false, err));
    int status = 0;
    static const char suffix[] = "/_lookup_layer/vars";
    for (size_t i = 0; status == 0 && i < plan.num_groups; i++) {
        const char *path = plan.groups[i].group.path;
        size_t length = strlen(path), end = sizeof suffix - 1;
        if (length <= end || strcmp(path + length - end, suffix) != 0)
            continue;
        uni_layer *layer = plan.groups[i].layer;
        char *asset = NULL;
        if (asprintf(&asset, "assets/%.*s/_lookup_layer/vocabulary.txt", (int)(length - end),
                     path) < 0)
            asset = NULL;
        const uni__item *item =
            asset != NULL ? uni__contents_find(contents, UNI__ITEM_MEMBER, asset) : NULL;
        if (asset == NULL)
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a vocabulary");
        else if (item != NULL && uni_layer_vocabulary(layer, NULL) == NULL)
            status = read_vocabulary(layer, item, err);
        free(asset);
    }
    uni__file_plan_free(&plan);
    return status;
}
