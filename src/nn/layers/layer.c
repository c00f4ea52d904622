/*
 * layer.c - the layer itself: life cycle, building, calling, freezing, and the walk over its
 * parameters.
 *
 * A layer is built once: the class creates parameters (in the store of the model that owns the
 * layer) and children, then determines the output's spec from the inputs. A second use of a built
 * layer only asks for the output's spec. Calling pushes the layer's name on the tape, so that an
 * error below it says where it happened. One thread builds; calls are const and may come from
 * several threads.
 */
#include "nn/layer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "nn/shared.h"
#include "tensor/shared.h"

uni_layer *uni_layer_new(const uni_layer_class *class_)
{
    uni_layer *layer = calloc(1, sizeof *layer);
    void *self = calloc(1, class_->size ? class_->size : 1);
    if (layer == NULL || self == NULL) {
        free(layer);
        free(self);
        return NULL;
    }
    layer->class_ = class_;
    layer->self = self;
    return layer;
}

static void free_children(uni_layer *layer)
{
    if (!layer->borrowed_children)
        for (size_t i = 0; i < layer->num_children; i++)
            uni_layer_free(layer->children[i]);
    free(layer->children);
    layer->children = NULL;
    layer->num_children = 0;
}

void uni_layer_free(uni_layer *layer)
{
    if (layer == NULL)
        return;
    free_children(layer);
    if (layer->class_->free != NULL)
        layer->class_->free(layer->self);
    free(layer->self);
    free(layer->slots);
    free(layer->failure);
    free(layer->path);
    free(layer->name);
    free(layer);
}

uni_layer *uni_layer_fail(uni_layer *layer, int code, const char *format, ...)
{
    if (layer == NULL || layer->failure != NULL)
        return layer;
    layer->failure = calloc(1, sizeof *layer->failure);
    /* No error is recorded; the next allocation of the owner fails in turn. */
    if (layer->failure == NULL)
        return layer;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(layer->failure->message, sizeof layer->failure->message, format, arguments);
    va_end(arguments);
    layer->failure->code = code;
    return layer;
}

int uni__layer_check(const uni_layer *layer, uni_error *err)
{
    if (layer == NULL)
        return uni_error_set(err, UNI_ENOMEM, "a layer could not be made: out of memory");
    if (layer->failure == NULL)
        return 0;
    return uni_error_set(err, layer->failure->code, "%s: %s",
                         layer->name != NULL ? layer->name : layer->class_->name,
                         layer->failure->message);
}

/* ---- building ---- */

static int set_path(uni_layer *layer, const char *parent, uni_error *err)
{
    const char *name = layer->name != NULL ? layer->name : layer->class_->name;
    size_t size = (parent != NULL ? strlen(parent) + 1 : 0) + strlen(name) + 1;
    char *path = malloc(size);
    if (path == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to build layer %s", name);
    snprintf(path, size, "%s%s%s", parent != NULL ? parent : "", parent != NULL ? "/" : "", name);
    free(layer->path);
    layer->path = path;
    return 0;
}

static int build_first(uni_layer *layer, uni__build_context *build, const char *parent,
                       int num_inputs, const uni_spec *inputs, uni_error *err)
{
    UNI_TRY(set_path(layer, parent, err));
    layer->build = build;
    layer->stream = ++build->next_stream;
    layer->num_inputs = num_inputs;
    memcpy(layer->inputs, inputs, (size_t)num_inputs * sizeof *inputs);
    if (layer->class_->build != NULL)
        UNI_TRY(layer->class_->build(layer, layer->self, num_inputs, inputs, err));
    if (layer->frozen)
        uni_layer_trainable(layer, false);
    return 0;
}

int uni__layer_build(uni_layer *layer, uni__build_context *build, const char *parent_path,
                     int num_inputs, const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    UNI_TRY(uni__layer_check(layer, err));
    const char *name = layer->name != NULL ? layer->name : layer->class_->name;
    if (num_inputs > UNI_MODEL_MAX_INPUTS)
        return uni_error_set(err, UNI_ELIMIT, "%s: %d inputs, but a layer has at most %d", name,
                             num_inputs, UNI_MODEL_MAX_INPUTS);
    int status = 0;
    if (!layer->built)
        UNI_TRY_GOTO(build_first(layer, build, parent_path, num_inputs, inputs, err), fail);
    uni_spec result = { 0 };
    UNI_TRY_GOTO(layer->class_->infer(layer, layer->self, num_inputs, inputs, &result, err), fail);
    if (!layer->built)
        layer->output = result;
    layer->built = true;
    *output = result;
    return 0;
fail:
    /* Classes need not name themselves in their errors: the prefix is added here, once. */
    if (err != NULL && strncmp(err->message, name, strlen(name)) != 0)
        uni_error_prefix(err, "%s", name);
    return status;
}

void uni__layer_unbuild(uni_layer *layer)
{
    if (!layer->borrowed_children)
        free_children(layer);
    free(layer->slots);
    layer->slots = NULL;
    layer->num_slots = 0;
    layer->built = false;
    layer->build = NULL;
}

static int add_slot(uni_layer *layer, const uni__layer_slot *slot, uni_parameter_kind kind,
                    uni_error *err)
{
    uni__layer_slot *grown = realloc(layer->slots, (layer->num_slots + 1) * sizeof *grown);
    if (grown == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory to build layer %s", layer->path);
    layer->slots = grown;
    size_t place = layer->num_slots;
    if (kind == UNI_PARAMETER_WEIGHT)
        while (place > 0 &&
               uni_parameter_info_of(grown[place - 1].parameter)->kind == UNI_PARAMETER_STATE)
            place--;
    memmove(grown + place + 1, grown + place, (layer->num_slots - place) * sizeof *grown);
    grown[place] = *slot;
    layer->num_slots++;
    return 0;
}

/* A file's config may ask for any size: do not allocate more than the file has numbers for. */
static int check_room(const uni_layer *layer, const char *name, int ndim, const int64_t *shape,
                      uni_error *err)
{
    size_t weights = 0, states = 0, count = 1;
    if (layer->max_weights == 0)
        return 0;
    uni_parameters_weights(layer->build->store, &weights);
    uni__parameters_states(layer->build->store, &states);
    bool fits = weights + states <= layer->max_weights;
    for (int i = 0; fits && i < ndim; i++)
        fits = shape[i] >= 0 && !__builtin_mul_overflow(count, (size_t)shape[i], &count);
    if (fits && count <= layer->max_weights - weights - states)
        return 0;
    char text[UNI__SHAPE_TEXT_SIZE];
    return uni_error_set(err, UNI_ESHAPE,
                         "%s: its %s would have the shape %s, more numbers than the file has",
                         uni_layer_name(layer), name, uni__shape_text(text, ndim, shape));
}

int uni_layer_add_parameter(uni_parameter **out, uni_layer *layer, const char *name,
                            uni_parameter_kind kind, int ndim, const int64_t *shape,
                            const uni_initializer *initializer, const char *default_initializer,
                            const uni_regularizer *regularizer, uni_error *err)
{
    *out = NULL;
    if (layer->build == NULL || layer->built)
        return uni_error_set(err, UNI_ESTATE,
                             "%s: parameter %s: parameters are added while the layer is built",
                             uni_layer_name(layer), name);
    uni__layer_slot slot = { .regularizer =
                                 regularizer != NULL ? *regularizer : (uni_regularizer){ 0 } };
    UNI_TRY(uni__initializer_resolve(&slot.initializer, initializer, default_initializer, err));
    char full[256];
    int length = snprintf(full, sizeof full, "%s/%s", layer->path, name);
    if (length < 0 || (size_t)length >= sizeof full)
        return uni_error_set(err, UNI_ELIMIT,
                             "the parameter name %s/%s is too long (255 bytes at most)",
                             layer->path, name);
    UNI_TRY(check_room(layer, name, ndim, shape, err));
    UNI_TRY(uni_parameters_add(&slot.parameter, layer->build->store, full, kind, ndim, shape, err));
    UNI_TRY(uni__initialize(slot.parameter, &slot.initializer, layer->build->seed, err));
    UNI_TRY(add_slot(layer, &slot, kind, err));
    *out = slot.parameter;
    return 0;
}

int uni__layer_add_child(uni_layer *layer, uni_layer *child, const char *name, int num_inputs,
                         const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    if (child == NULL)
        return uni__layer_check(child, err);
    uni_layer **grown = realloc(layer->children, (layer->num_children + 1) * sizeof *grown);
    if (grown == NULL) {
        uni_layer_free(child);
        return uni_error_set(err, UNI_ENOMEM, "no memory to build layer %s", uni_layer_name(layer));
    }
    layer->children = grown;
    grown[layer->num_children++] = child;
    child->owned = true;
    if (name != NULL && uni_layer_named(child, name)->name == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the name of a layer");
    if (layer->build == NULL)
        return uni_error_set(err, UNI_ESTATE, "%s: children are added while the layer is built",
                             uni_layer_name(layer));
    UNI_TRY(uni__layer_make_name(child, layer->children, layer->num_children - 1, err));
    child->frozen |= layer->frozen;
    uni_spec ignored;
    return uni__layer_build(child, layer->build, layer->path, num_inputs, inputs,
                            output != NULL ? output : &ignored, err);
}

/* ---- calling ---- */

static uni_tensor *add_penalty(uni_tape *tape, uni_tensor *sum, uni_tensor *x,
                               uni_regularizer regularizer)
{
    uni_tensor *parts[2] = { NULL, NULL };
    if (regularizer.l1 != 0)
        parts[0] = uni_op_scale(tape, uni_op_sum(tape, uni_op_unary(tape, UNI_UNARY_ABS, x)),
                                regularizer.l1, 0);
    if (regularizer.l2 != 0)
        parts[1] = uni_op_scale(tape, uni_op_sum(tape, uni_op_unary(tape, UNI_UNARY_SQUARE, x)),
                                regularizer.l2, 0);
    for (int i = 0; i < 2; i++)
        if (parts[i] != NULL)
            sum = sum == NULL ? parts[i] : uni_op_add(tape, sum, parts[i]);
    return sum;
}

uni_tensor *uni__layer_call(const uni_layer *layer, uni_tape *tape, int num_inputs,
                            uni_tensor *const *inputs)
{
    uni__tape_enter(tape, uni_layer_name(layer));
    uni_tensor *output = NULL;
    bool complete = true;
    for (int i = 0; i < num_inputs; i++)
        complete = complete && inputs[i] != NULL;
    if (!layer->built)
        uni_tape_fail(tape, UNI_ESTATE,
                      "the layer is not built; build the model first (uni_model_build)");
    else if (complete)
        output = layer->class_->call(layer, layer->self, tape, num_inputs, inputs);
    if (output != NULL && (layer->activity.l1 != 0 || layer->activity.l2 != 0)) {
        /* Keras 3 divides the activity penalty by the batch size. */
        int64_t batch = uni_tensor_dim(output, 0);
        uni_tensor *penalty = add_penalty(tape, NULL, output, layer->activity);
        uni_tape_add_loss(tape,
                          uni_op_scale(tape, penalty, 1.0f / (float)(batch > 0 ? batch : 1), 0));
    }
    uni__tape_leave(tape);
    return output;
}

uni_tensor *uni__layer_regularization(const uni_layer *layer, uni_tape *tape, uni_tensor *sum)
{
    for (size_t i = 0; i < layer->num_slots; i++) {
        const uni__layer_slot *slot = &layer->slots[i];
        bool has = slot->regularizer.l1 != 0 || slot->regularizer.l2 != 0;
        if (has &&
            !uni_parameter_info_of(slot->parameter)->is_frozen) /* as Keras: only what trains */
            sum = add_penalty(tape, sum, uni_tape_parameter(tape, slot->parameter),
                              slot->regularizer);
    }
    for (size_t i = 0; i < layer->num_children; i++)
        sum = uni__layer_regularization(layer->children[i], tape, sum);
    return sum;
}

bool uni__layer_has_regularizer(const uni_layer *layer)
{
    for (size_t i = 0; i < layer->num_slots; i++)
        if (layer->slots[i].regularizer.l1 != 0 || layer->slots[i].regularizer.l2 != 0)
            return true;
    for (size_t i = 0; i < layer->num_children; i++)
        if (uni__layer_has_regularizer(layer->children[i]))
            return true;
    return false;
}

uni_tensor *uni__as_float(uni_tape *tape, uni_tensor *x)
{
    if (x == NULL || uni_tensor_dtype(x) == UNI_F32)
        return x;
    if (uni_tensor_dtype(x) == UNI_STRING)
        return uni_tape_fail(tape, UNI_EDTYPE,
                             "the input is text, but the layer computes with numbers; put a "
                             "TextVectorization or sentence embedding layer before it");
    return uni_op_cast(tape, x, UNI_F32);
}

/* ---- queries ---- */

int uni_layer_adapt(uni_layer *layer, const uni_column *data, uni_error *err)
{
    UNI_TRY(uni__layer_check(layer, err));
    if (layer->class_->adapt == NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "%s has nothing to adapt; Normalization and TextVectorization have",
                             uni_layer_name(layer));
    if (data == NULL || data->dtype == 0 || data->ndim < 1 || data->shape[0] == 0)
        return uni_error_set(err, UNI_EINVAL, "%s cannot adapt to an empty dataset",
                             uni_layer_name(layer));
    return layer->class_->adapt(layer, layer->self, data, err);
}

uni_layer *uni_layer_trainable(uni_layer *layer, bool trainable)
{
    if (layer == NULL)
        return NULL;
    layer->frozen = !trainable;
    for (size_t i = 0; i < layer->num_slots; i++)
        uni_parameter_freeze(layer->slots[i].parameter, !trainable);
    for (size_t i = 0; i < layer->num_children; i++)
        uni_layer_trainable(layer->children[i], trainable);
    return layer;
}

int uni__layer_visit(const uni_layer *layer, uni__visit_parameter visit, void *context,
                     uni_error *err)
{
    for (size_t i = 0; i < layer->num_slots; i++)
        UNI_TRY(visit(context, layer, &layer->slots[i], err));
    for (size_t i = 0; i < layer->num_children; i++)
        UNI_TRY(uni__layer_visit(layer->children[i], visit, context, err));
    return 0;
}

void *uni_layer_self(const uni_layer *layer)
{
    return layer->self;
}

const uni_layer_class *uni__layer_class_of(const uni_layer *layer)
{
    return layer->class_;
}

const char *uni_layer_name(const uni_layer *layer)
{
    return layer->name != NULL ? layer->name : layer->class_->name;
}

uint32_t uni_layer_stream(const uni_layer *layer)
{
    return layer->stream;
}

bool uni__layer_is_built(const uni_layer *layer)
{
    return layer->built;
}

bool uni__layer_is_trainable(const uni_layer *layer)
{
    return !layer->frozen;
}

size_t uni_layer_num_parameters(const uni_layer *layer)
{
    return layer->num_slots;
}

uni_parameter *uni_layer_parameter(const uni_layer *layer, size_t index)
{
    return index < layer->num_slots ? layer->slots[index].parameter : NULL;
}

size_t uni__layer_num_children(const uni_layer *layer)
{
    return layer->num_children;
}

uni_layer *uni__layer_child(const uni_layer *layer, size_t index)
{
    return index < layer->num_children ? layer->children[index] : NULL;
}

const uni_spec *uni__layer_output(const uni_layer *layer)
{
    return layer->built ? &layer->output : NULL;
}
