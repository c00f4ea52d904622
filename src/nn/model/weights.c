/*
 * weights.c - weights in Keras's order, and the whole state of a model for checkpoints. The model's
 * thread.
 *
 * State: {"weights": [arrays], "steps": n, "seed": n, "optimizer": {"name", "iterations",
 * "learning_rate", "slots": {"momentum": [one array per weight] ...}}}; the optimizer only if the
 * model is compiled.
 */
#include "nn/model/compile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "nn/shared.h"
#include "tensor/shared.h"

static int visit_all(const uni_model *model, uni__visit_parameter visit, void *context,
                     uni_error *err)
{
    for (size_t i = 0; i < model->num_layers; i++)
        UNI_TRY(uni__layer_visit(model->layers[i], visit, context, err));
    return 0;
}

static int need_built(const uni_model *model, uni_error *err)
{
    if (model->built)
        return 0;
    return uni_error_set(
        err, UNI_ESTATE,
        "model %s has no weights yet: build it first (uni_model_build, or run data through it)",
        model->name);
}

/* ---- out ---- */

struct writer {
    uni_value *list;
    /* Reads a slot of the optimizer instead of the weights; then without states. */
    const float *slot;
};

static int append(uni_value *list, const uni_parameter *parameter, const float *data,
                  uni_error *err)
{
    uni_array *array = NULL;
    UNI_TRY(uni_array_new(&array, UNI_F32, uni_parameter_info_of(parameter)->ndim,
                          uni_parameter_info_of(parameter)->shape, err));
    if (uni_parameter_info_of(parameter)->size > 0)
        memcpy(uni_array_data(array), data, uni_parameter_info_of(parameter)->size * sizeof *data);
    int status = uni_list_take(list, uni_value_array(array));
    uni_array_unref(array);
    return status < 0 ? uni_error_set(err, status, "no memory for the weights") : 0;
}

static int write_one(void *context, const uni_layer *layer, const uni__layer_slot *slot,
                     uni_error *err)
{
    struct writer *writer = context;
    const uni_parameter *parameter = slot->parameter;
    if (writer->slot == NULL)
        return append(writer->list, parameter, uni_parameter_data(parameter), err);
    if (uni_parameter_info_of(parameter)->kind == UNI_PARAMETER_STATE)
        return 0;
    return append(writer->list, parameter, writer->slot + uni_parameter_info_of(parameter)->offset,
                  err);
}

static int write_all(const uni_model *model, uni_value **out, const float *slot, uni_error *err)
{
    struct writer writer = { .list = uni_value_list(), .slot = slot };
    *out = NULL;
    int status = writer.list == NULL ? uni_error_set(err, UNI_ENOMEM, "no memory for the weights")
                                     : visit_all(model, write_one, &writer, err);
    if (status < 0) {
        uni_value_free(writer.list);
        return status;
    }
    *out = writer.list;
    return 0;
}

int uni_model_get_weights(uni_value **out, const uni_model *model, uni_error *err)
{
    *out = NULL;
    UNI_TRY(need_built(model, err));
    return write_all(model, out, NULL, err);
}

/* ---- in ---- */

struct reader {
    const uni_value *list;
    size_t next;
    float *slot;
    bool check; /* Only checks that everything matches, so that a wrong list changes nothing. */
};

static int fits(const uni_layer *layer, const uni_parameter *parameter, const uni_array *array,
                size_t index, uni_error *err)
{
    char got[UNI__SHAPE_TEXT_SIZE], wanted[UNI__SHAPE_TEXT_SIZE];
    if (array == NULL)
        return uni_error_set(err, UNI_EINVAL, "weight %zu (%s of layer %s) is not an array", index,
                             uni_parameter_info_of(parameter)->name, uni_layer_name(layer));
    int ndim = uni_parameter_info_of(parameter)->ndim;
    bool same = uni_array_ndim(array) == ndim &&
                memcmp(uni_array_shape(array), uni_parameter_info_of(parameter)->shape,
                       (size_t)ndim * sizeof(int64_t)) == 0;
    if (!same)
        return uni_error_set(err, UNI_ESHAPE, "weight %zu: layer %s expects %s of shape %s, got %s",
                             index, uni_layer_name(layer), uni_parameter_info_of(parameter)->name,
                             uni__shape_text(wanted, ndim, uni_parameter_info_of(parameter)->shape),
                             uni__shape_text(got, uni_array_ndim(array), uni_array_shape(array)));
    uni_dtype dtype = uni_array_dtype(array);
    if (dtype != UNI_F32 && dtype != UNI_F64 && dtype != UNI_I64 && dtype != UNI_I32)
        return uni_error_set(err, UNI_EDTYPE, "weight %zu: %s is float32 and cannot be set from %s",
                             index, uni_parameter_info_of(parameter)->name, uni_dtype_name(dtype));
    return 0;
}

static void copy_numbers(float *to, const uni_array *from)
{
    size_t count = uni_array_count(from);
    const void *data = uni_array_data(from);
    switch (uni_array_dtype(from)) {
    case UNI_F64:
        for (size_t i = 0; i < count; i++)
            to[i] = (float)((const double *)data)[i];
        break;
    case UNI_I64:
        for (size_t i = 0; i < count; i++)
            to[i] = (float)((const int64_t *)data)[i];
        break;
    case UNI_I32:
        for (size_t i = 0; i < count; i++)
            to[i] = (float)((const int32_t *)data)[i];
        break;
    default:
        if (count > 0)
            memcpy(to, data, count * sizeof *to);
    }
}

static int read_one(void *context, const uni_layer *layer, const uni__layer_slot *slot,
                    uni_error *err)
{
    struct reader *reader = context;
    const uni_parameter *parameter = slot->parameter;
    if (reader->slot != NULL && uni_parameter_info_of(parameter)->kind == UNI_PARAMETER_STATE)
        return 0;
    size_t index = reader->next++;
    if (index >= uni_list_size(reader->list))
        return uni_error_set(err, UNI_EINVAL,
                             "there are only %zu weights; layer %s with %s needs one more",
                             uni_list_size(reader->list), uni_layer_name(layer),
                             uni_parameter_info_of(parameter)->name);
    const uni_array *array = uni_value_as_array(uni_list_get(reader->list, index));
    if (reader->check)
        return fits(layer, parameter, array, index, err);
    copy_numbers(reader->slot != NULL ? reader->slot + uni_parameter_info_of(parameter)->offset
                                      : uni_parameter_data(parameter),
                 array);
    return 0;
}

static int read_all(uni_model *model, const uni_value *list, float *slot, uni_error *err)
{
    struct reader reader = { .list = list, .slot = slot, .check = true };
    if (uni_value_type_of(list) != UNI_TYPE_LIST)
        return uni_error_set(err, UNI_EINVAL, "weights are a list of arrays, got a %s",
                             uni__value_type_name(uni_value_type_of(list)));
    UNI_TRY(visit_all(model, read_one, &reader, err));
    if (reader.next != uni_list_size(list))
        return uni_error_set(err, UNI_EINVAL, "model %s has %zu weights, but the list has %zu",
                             model->name, reader.next, uni_list_size(list));
    reader.check = false;
    reader.next = 0;
    return visit_all(model, read_one, &reader, err);
}

int uni_model_set_weights(uni_model *model, const uni_value *weights, uni_error *err)
{
    UNI_TRY(need_built(model, err));
    int status = read_all(model, weights, NULL, err);
    if (status < 0)
        uni_error_prefix(err, "cannot set the weights of model %s", model->name);
    return status;
}

/* ---- the whole state ---- */

static int put(uni_value *dict, const char *key, uni_value *value, uni_error *err)
{
    int status = uni_dict_take(dict, key, value);
    return status < 0 ? uni_error_set(err, status, "no memory for the state of a model") : 0;
}

static int get_slots(const uni_model *model, uni_value *state, uni_error *err)
{
    const uni_optimizer *optimizer = model->compiled->optimizer;
    uni_value *slots = uni_value_dict();
    int status =
        slots == NULL ? uni_error_set(err, UNI_ENOMEM, "no memory for the state of a model") : 0;
    for (size_t i = 0; status == 0 && i < uni__optimizer_num_slots(optimizer); i++) {
        const float *slot = uni__optimizer_slot(optimizer, i, NULL);
        uni_value *list = NULL;
        if (slot == NULL) /* before the first step */
            continue;
        status = write_all(model, &list, slot, err);
        if (status == 0)
            status = put(slots, uni__optimizer_slot_name(optimizer, i), list, err);
    }
    if (status < 0) {
        uni_value_free(slots);
        return status;
    }
    return put(state, "slots", slots, err);
}

static int get_optimizer(const uni_model *model, uni_value *state, uni_error *err)
{
    const uni_optimizer *optimizer = model->compiled->optimizer;
    UNI_TRY(put(state, "name", uni_value_string(uni__optimizer_name(optimizer)), err));
    UNI_TRY(put(state, "iterations", uni_value_int(uni_optimizer_iterations(optimizer)), err));
    double rate = uni_optimizer_learning_rate(optimizer, err);
    if (isnan(rate))
        return UNI_EFUNCTION;
    UNI_TRY(put(state, "learning_rate", uni_value_float(rate), err));
    return get_slots(model, state, err);
}

static int get_state(const uni_model *model, uni_value *state, uni_error *err)
{
    uni_value *weights = NULL;
    UNI_TRY(uni_model_get_weights(&weights, model, err));
    UNI_TRY(put(state, "weights", weights, err));
    UNI_TRY(put(state, "steps", uni_value_int(model->steps), err));
    UNI_TRY(put(state, "seed", uni_value_int((int64_t)model->seed), err));
    if (model->compiled == NULL)
        return 0;
    uni_value *optimizer = uni_value_dict();
    if (optimizer == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a model");
    int status = get_optimizer(model, optimizer, err);
    if (status < 0) {
        uni_value_free(optimizer);
        return status;
    }
    return put(state, "optimizer", optimizer, err);
}

int uni_model_get_state(uni_value **out, const uni_model *model, uni_error *err)
{
    *out = NULL;
    uni_value *state = uni_value_dict();
    if (state == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of model %s", model->name);
    int status = get_state(model, state, err);
    if (status < 0) {
        uni_value_free(state);
        return status;
    }
    *out = state;
    return 0;
}

static int set_optimizer(uni_model *model, const uni_value *state, uni_error *err)
{
    uni_optimizer *optimizer = model->compiled->optimizer;
    const char *name = uni_dict_get_string(state, "name", "?");
    if (strcmp(name, uni__optimizer_name(optimizer)) != 0)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the state is of the optimizer %s, but model %s is compiled with %s",
                             name, model->name, uni__optimizer_name(optimizer));
    const uni_value *slots = uni_dict_get(state, "slots");
    if (uni_dict_size(slots) > 0) /* before the first update it has none */
        UNI_TRY(uni__optimizer_build(optimizer, model->build.store, err));
    for (size_t i = 0; i < uni__optimizer_num_slots(optimizer); i++) {
        const uni_value *list = uni_dict_get(slots, uni__optimizer_slot_name(optimizer, i));
        float *slot = uni__optimizer_slot(optimizer, i, NULL);
        if (list != NULL && slot != NULL)
            UNI_TRY(read_all(model, list, slot, err));
    }
    uni__optimizer_set_iterations(optimizer, uni_dict_get_int(state, "iterations", 0));
    const uni_value *rate = uni_dict_get(state, "learning_rate");
    if (uni_value_is_number(rate)) {
        int status = uni_optimizer_set_learning_rate(optimizer, uni_value_as_float(rate, 0), err);
        /* A schedule computes its rate from the iterations. */
        if (status < 0 && status != UNI_ESTATE)
            return status;
    }
    return 0;
}

int uni_model_set_state(uni_model *model, const uni_value *state, uni_error *err)
{
    UNI_TRY(uni_model_set_weights(model, uni_dict_get(state, "weights"), err));
    model->steps = uni_dict_get_int(state, "steps", model->steps);
    uint64_t seed = (uint64_t)uni_dict_get_int(state, "seed", 0);
    if (seed != 0)
        model->seed = model->build.seed = seed;
    const uni_value *optimizer = uni_dict_get(state, "optimizer");
    if (model->compiled == NULL || optimizer == NULL)
        return 0;
    return set_optimizer(model, optimizer, err);
}

/* ---- counting ---- */

struct count {
    size_t trainable, others;
};

static int count_one(void *context, const uni_layer *layer, const uni__layer_slot *slot,
                     uni_error *err)
{
    struct count *count = context;
    *(uni_parameter_info_of(slot->parameter)->is_frozen ? &count->others : &count->trainable) +=
        uni_parameter_info_of(slot->parameter)->size;
    return 0;
}

void uni__model_count(const uni_model *model, size_t *trainable, size_t *others)
{
    struct count count = { 0 };
    if (visit_all(model, count_one, &count, NULL) == 0) {
        *trainable = count.trainable;
        *others = count.others;
    }
}
