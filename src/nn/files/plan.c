/*
 * plan.c - the variables of a model under the names that Keras gives them in HDF5:
 * "layers/dense_1/vars/0".
 *
 * Keras numbers layers by class within each list ("dense", "dense_1"), whatever their own names;
 * the own name is an attribute of the group "vars". What Keras has as layers inside of layers (the
 * projections of attention, the cell of an LSTM) is one layer here whose parameters have the inner
 * name in the middle ("x/query/kernel"), which the table below turns into Keras's attribute. The
 * model's thread.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "nn/shared.h"
#include "nn/files/files.h"
#include "nn/optimizer/optimizer.h"
#include "nn/text/text.h"

static const struct {
    const char *name, *attribute;
} inner_layers[] = { { "query", "query_dense" }, { "key", "key_dense" },
                     { "value", "value_dense" }, { "attention_output", "output_dense" },
                     { "lstm_cell", "cell" },    { "gru_cell", "cell" } };

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory to list the variables of a model");
}

static char *format(const char *text, ...) UNI_PRINTF(1, 2);
static char *format(const char *text, ...)
{
    char *out = NULL;
    va_list arguments;
    va_start(arguments, text);
    if (vasprintf(&out, text, arguments) < 0)
        out = NULL;
    va_end(arguments);
    return out;
}

/* ---- lists that grow ---- */

/* Takes the path. */
static int add_group(uni__file_plan *plan, uni_layer *layer, char *path, const char *name,
                     uni_error *err)
{
    uni__file_plan_group *grown =
        uni__grown(plan->groups, plan->num_groups, &plan->groups_room, sizeof *grown);
    char *copy = strdup(name);
    plan->groups = grown != NULL ? grown : plan->groups;
    if (path == NULL || grown == NULL || copy == NULL) {
        free(path);
        free(copy);
        return no_memory(err);
    }
    plan->groups[plan->num_groups++] = (uni__file_plan_group){ { path, copy }, layer };
    return 0;
}

/* Takes the variable's path. */
static int add_variable(uni__file_plan *plan, uni__variable variable, uni_error *err)
{
    uni__variable *grown =
        uni__grown(plan->variables, plan->num_variables, &plan->variables_room, sizeof *grown);
    plan->variables = grown != NULL ? grown : plan->variables;
    if (variable.path == NULL || grown == NULL) {
        free(variable.path);
        return no_memory(err);
    }
    plan->variables[plan->num_variables++] = variable;
    return 0;
}

void uni__file_plan_free(uni__file_plan *plan)
{
    for (size_t i = 0; i < plan->num_groups; i++) {
        free(plan->groups[i].group.path);
        free(plan->groups[i].group.name);
    }
    for (size_t i = 0; i < plan->num_variables; i++)
        free(plan->variables[i].path);
    free(plan->groups);
    free(plan->variables);
    *plan = (uni__file_plan){ 0 };
}

static uni__variable variable_of(const uni_parameter *parameter, float *data)
{
    uni__variable variable = { .kind = UNI__VARIABLE_PARAMETER,
                               .parameter = parameter,
                               .what = uni_parameter_info_of(parameter)->name,
                               .ndim = uni_parameter_info_of(parameter)->ndim,
                               .count = uni_parameter_info_of(parameter)->size,
                               .data = data };
    for (int i = 0; i < variable.ndim; i++)
        variable.shape[i] = uni_parameter_info_of(parameter)->shape[i];
    return variable;
}

/* ---- layers ---- */

static const char *attribute_of(const char *inner, size_t size)
{
    for (size_t i = 0; i < sizeof inner_layers / sizeof inner_layers[0]; i++)
        if (strlen(inner_layers[i].name) == size && memcmp(inner_layers[i].name, inner, size) == 0)
            return inner_layers[i].attribute;
    return NULL;
}

/* Where a parameter's group is: the layer's own, or that of an inner layer, which is listed at its
 * first parameter. */
static int find_group(uni__file_plan *plan, uni_layer *layer, const char *path,
                      const char *short_name, char **out, uni_error *err)
{
    const char *slash = strrchr(short_name, '/');
    *out = NULL;
    if (slash == NULL) {
        *out = format("%s/vars", path);
        return *out != NULL ? 0 : no_memory(err);
    }
    size_t size = (size_t)(slash - short_name);
    const char *attribute = attribute_of(short_name, size);
    *out = attribute != NULL ? format("%s/%s/vars", path, attribute)
                             : format("%s/%.*s/vars", path, (int)size, short_name);
    if (*out == NULL)
        return no_memory(err);
    for (size_t i = plan->num_groups; i-- > 0;)
        if (strcmp(plan->groups[i].group.path, *out) == 0)
            return 0;
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)size, short_name);
    return add_group(plan, layer, strdup(*out), name, err);
}

static int add_parameter(uni__file_plan *plan, uni_layer *layer, const char *path,
                         const uni_parameter *parameter, uni_error *err)
{
    const char *name = uni_parameter_info_of(parameter)->name;
    size_t prefix = strlen(layer->path);
    char *group = NULL;
    UNI_TRY(find_group(plan, layer, path, strlen(name) > prefix ? name + prefix + 1 : name, &group,
                       err));
    size_t number = 0, length = strlen(group);
    for (size_t i = plan->num_variables; i-- > 0 && plan->variables[i].layer == layer;)
        number += strncmp(plan->variables[i].path, group, length) == 0;
    uni__variable variable = variable_of(parameter, uni_parameter_data(parameter));
    variable.layer = layer;
    variable.path = format("%s/%zu", group, number);
    if (layer->class_ == &uni__class_normalization && variable.ndim == 0)
        variable.kind = UNI__VARIABLE_COUNT;
    free(group);
    return add_variable(plan, variable, err);
}

/* Inner layers of Keras's that have no variables, but groups all the same. */
static int add_empty_groups(uni__file_plan *plan, uni_layer *layer, const char *path,
                            uni_error *err)
{
    if (layer->class_ == &uni__class_multi_head_attention) {
        UNI_TRY(add_group(plan, layer, format("%s/_softmax/vars", path), "softmax", err));
        UNI_TRY(add_group(plan, layer, format("%s/_dropout_layer/vars", path), "dropout", err));
    }
    if (layer->class_ != &uni__class_text_vectorization)
        return 0;
    UNI_TRY(add_group(plan, layer, format("%s/_lookup_layer/vars", path), "string_lookup", err));
    size_t count = 0;
    const float *idf = uni__text_idf(layer, &count);
    static const char *const places[] = { "vars", "_lookup_layer/vars" }; /* Keras has it in both */
    for (int i = 0; idf != NULL && i < 2; i++)
        UNI_TRY(add_variable(plan,
                             (uni__variable){ .kind = UNI__VARIABLE_IDF,
                                              .path = format("%s/%s/idf_weights", path, places[i]),
                                              .layer = layer,
                                              .what = "idf_weights",
                                              .ndim = 1,
                                              .shape = { (int64_t)count },
                                              .count = count,
                                              .data = (float *)idf },
                             err));
    return 0;
}

static int add_layers(uni__file_plan *plan, const uni_model *model, const char *path,
                      uni_error *err);

static int add_layer(uni__file_plan *plan, uni_layer *layer, const char *path, uni_error *err)
{
    UNI_TRY(add_group(plan, layer, format("%s/vars", path), uni_layer_name(layer), err));
    for (size_t i = 0; i < uni_layer_num_parameters(layer); i++)
        UNI_TRY(add_parameter(plan, layer, path, uni_layer_parameter(layer, i), err));
    UNI_TRY(add_empty_groups(plan, layer, path, err));
    const uni_model *inner = uni__layer_inner_model(layer);
    if (inner != NULL)
        return add_layers(plan, inner, path, err);
    for (size_t i = 0; i < uni__layer_num_children(layer); i++) {
        uni_layer *child = uni__layer_child(layer, i);
        char *below = format("%s/%s", path, uni_layer_name(child));
        int status = below != NULL ? add_layer(plan, child, below, err) : no_memory(err);
        free(below);
        UNI_TRY(status);
    }
    return 0;
}

/* "dense", "dense_1": numbered among the layers of the list that have the same class. */
static char *list_path(const char *path, uni_layer *const *layers, size_t index)
{
    const char *class_name = layers[index]->class_->name;
    size_t number = 0;
    for (size_t i = 0; i < index; i++)
        number += strcmp(layers[i]->class_->name, class_name) == 0;
    char *snake = uni__layer_snake_case(class_name), *out = NULL;
    const char *slash = path[0] != '\0' ? "/" : "";
    if (snake != NULL)
        out = number > 0 ? format("%s%slayers/%s_%zu", path, slash, snake, number)
                         : format("%s%slayers/%s", path, slash, snake);
    free(snake);
    return out;
}

static int add_layers(uni__file_plan *plan, const uni_model *model, const char *path,
                      uni_error *err)
{
    uni_layer **layers = NULL;
    size_t count = 0;
    UNI_TRY(uni__keras_order(model, &layers, &count, err));
    int status = 0;
    for (size_t i = 0; status == 0 && i < count; i++) {
        char *below = list_path(path, layers, i);
        status = below != NULL ? add_layer(plan, layers[i], below, err) : no_memory(err);
        free(below);
    }
    free(layers);
    return status;
}

/* ---- the optimizer ---- */

static int add_number(uni__file_plan *plan, enum uni__variable_kind kind, const char *what,
                      size_t *next, uni_error *err)
{
    return add_variable(plan,
                        (uni__variable){ .kind = kind,
                                         .path = format("optimizer/vars/%zu", (*next)++),
                                         .what = what,
                                         .count = 1 },
                        err);
}

static int add_slot(uni__file_plan *plan, const uni_optimizer *optimizer, size_t slot,
                    const uni_parameter *parameter, size_t *next, uni_error *err)
{
    uni__variable variable = variable_of(parameter, uni__optimizer_slot(optimizer, slot, NULL) +
                                                        uni_parameter_info_of(parameter)->offset);
    variable.kind = UNI__VARIABLE_SLOT;
    variable.path = format("optimizer/vars/%zu", (*next)++);
    return add_variable(plan, variable, err);
}

struct trainable {
    const uni_parameter **parameters;
    size_t count;
};

/* The trainable weights in the order of the layers: those of the plan that are not frozen. */
static int list_trainable(struct trainable *trainable, const uni__file_plan *plan, uni_error *err)
{
    trainable->count = 0;
    trainable->parameters = calloc(plan->num_variables + 1, sizeof *trainable->parameters);
    if (trainable->parameters == NULL)
        return no_memory(err);
    for (size_t i = 0; i < plan->num_variables; i++) {
        const uni_parameter *parameter = plan->variables[i].parameter;
        if (parameter != NULL && !uni_parameter_info_of(parameter)->is_frozen)
            trainable->parameters[trainable->count++] = parameter;
    }
    return 0;
}

/* Adam and AdamW have momentum and velocity of a variable side by side; all else is slot by slot.
 * */
static int add_slots(uni__file_plan *plan, const uni_optimizer *optimizer,
                     const struct trainable *trainable, size_t *next, uni_error *err)
{
    bool adam =
        optimizer->class_ == &uni__optimizer_adam || optimizer->class_ == &uni__optimizer_adamw;
    size_t together = adam ? 2 : 1, slots = uni__optimizer_num_slots(optimizer);
    for (size_t slot = 0; slot < slots; slot += slot == 0 ? together : 1)
        for (size_t i = 0; i < trainable->count; i++)
            for (size_t j = slot; j < slot + (slot == 0 ? together : 1) && j < slots; j++)
                UNI_TRY(add_slot(plan, optimizer, j, trainable->parameters[i], next, err));
    return 0;
}

static int add_optimizer(uni__file_plan *plan, const uni_optimizer *optimizer, uni_error *err)
{
    size_t next = 0;
    UNI_TRY(add_group(plan, NULL, strdup("optimizer/vars"), uni__optimizer_name(optimizer), err));
    UNI_TRY(add_number(plan, UNI__VARIABLE_ITERATION, "iteration", &next, err));
    if (optimizer->schedule == NULL)
        UNI_TRY(add_number(plan, UNI__VARIABLE_RATE, "learning_rate", &next, err));
    if (uni__optimizer_num_slots(optimizer) == 0 || uni__optimizer_slot(optimizer, 0, NULL) == NULL)
        return 0;
    struct trainable trainable = { 0 };
    int status = list_trainable(&trainable, plan, err);
    if (status == 0)
        status = add_slots(plan, optimizer, &trainable, &next, err);
    free(trainable.parameters);
    return status;
}

int uni__file_plan_make(uni__file_plan *plan, const uni_model *model, bool with_optimizer,
                        uni_error *err)
{
    *plan = (uni__file_plan){ 0 };
    int status = add_group(plan, NULL, strdup("vars"), uni__model_name(model), err);
    if (status == 0)
        status = add_layers(plan, model, "", err);
    const uni_optimizer *optimizer = uni_model_optimizer(model);
    if (status == 0 && with_optimizer && optimizer != NULL)
        status = add_optimizer(plan, optimizer, err);
    if (status < 0)
        uni__file_plan_free(plan);
    return status;
}
