/*
 * parameters.c - the parameter store: two flat buffers (weights, states) and handles into them, and
 * gradients of the same layout.
 *
 * Handles keep an offset, never a pointer, so the buffers may grow while layers are built and may
 * be moved to memory that ranks share. Every parameter starts on a 64-byte boundary. The gaps
 * between are zero and stay zero under every optimizer, so one pass over the whole range is
 * correct. Only the owner's thread changes the store; tapes of several threads read it.
 */
#include <stdlib.h>
#include <string.h>
#include "base/grow.h"
#include "tensor/shared.h"
#include "tensor/internal.h"
#include "tensor/update.h"

typedef struct buffer {
    /* `data` is `own`, or the caller's memory after rehome. */
    float *data, *own;
    size_t size, capacity;
} buffer;

struct uni_parameters {
    buffer buffers[2]; /* by uni_parameter_kind */
    uni_parameter **items;
    size_t count, capacity;
};

#define FLOATS_PER_LINE (UNI__ALIGN / sizeof(float))

int uni_parameters_new(uni_parameters **out, uni_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a parameter store");
}

void uni_parameters_free(uni_parameters *store)
{
    if (!store)
        return;
    for (size_t i = 0; i < store->count; i++) {
        free((char *)store->items[i]->name);
        free(store->items[i]);
    }
    free(store->items);
    for (int i = 0; i < 2; i++)
        uni__buffer_free(store->buffers[i].own, store->buffers[i].capacity);
    free(store);
}

static int grow(buffer *flat, size_t extra, uni_error *err)
{
    if (flat->size + extra > flat->capacity) {
        size_t capacity = flat->size + extra;
        if (capacity < flat->capacity * 2)
            capacity = flat->capacity * 2;
        float *data = uni__buffer_new(capacity);
        if (!data)
            return uni_error_set(err, UNI_ENOMEM, "no memory for %zu parameters", capacity);
        if (flat->size)
            memcpy(data, flat->own, flat->size * sizeof(float));
        uni__buffer_free(flat->own, flat->capacity);
        flat->own = flat->data = data;
        flat->capacity = capacity;
    }
    flat->size += extra;
    return 0;
}

static int check_new(const uni_parameters *store, const char *name, int ndim, const int64_t *shape,
                     size_t *size, uni_error *err)
{
    if (ndim < 0 || ndim > UNI_TENSOR_MAX_DIMS)
        return uni_error_set(err, UNI_ESHAPE,
                             "parameter %s: %d dimensions, at most %d are possible", name, ndim,
                             UNI_TENSOR_MAX_DIMS);
    if (store->buffers[0].data != store->buffers[0].own)
        return uni_error_set(
            err, UNI_ESTATE,
            "parameter %s cannot be added: the weights live in memory of the caller", name);
    *size = 1;
    for (int i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(*size, (size_t)shape[i], size) ||
            *size > PTRDIFF_MAX / 16) {
            char text[UNI__SHAPE_TEXT_SIZE];
            return uni_error_set(err, UNI_ESHAPE, "parameter %s: shape %s is not possible", name,
                                 uni__shape_text(text, ndim, shape));
        }
    return 0;
}

int uni_parameters_add(uni_parameter **out, uni_parameters *store, const char *name,
                       uni_parameter_kind kind, int ndim, const int64_t *shape, uni_error *err)
{
    size_t size = 0;
    *out = NULL;
    UNI_TRY(check_new(store, name, ndim, shape, &size, err));
    uni_parameter **items = uni__grown(store->items, store->count, &store->capacity, sizeof *items);
    if (!items)
        return uni_error_set(err, UNI_ENOMEM, "no memory for parameter %s", name);
    store->items = items;
    uni_parameter *parameter = calloc(1, sizeof *parameter);
    char *copy = strdup(name);
    buffer *flat = &store->buffers[kind == UNI_PARAMETER_STATE];
    size_t offset = flat->size;
    int status =
        parameter && copy
            ? grow(flat, (size + FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE, err)
            : uni_error_set(err, UNI_ENOMEM, "no memory for parameter %s", name);
    if (status < 0) {
        free(parameter);
        free(copy);
        return status;
    }
    *parameter = (uni_parameter){ .store = store,
                                  .name = copy,
                                  .kind = kind,
                                  .frozen = kind == UNI_PARAMETER_STATE,
                                  .ndim = ndim,
                                  .size = size,
                                  .offset = offset,
                                  .index = store->count };
    for (int i = 0; i < ndim; i++)
        parameter->shape[i] = shape[i];
    store->items[store->count++] = parameter;
    *out = parameter;
    return 0;
}

size_t uni_parameters_count(const uni_parameters *store)
{
    return store->count;
}

uni_parameter *uni_parameters_at(const uni_parameters *store, size_t index)
{
    return index < store->count ? store->items[index] : NULL;
}

float *uni_parameters_weights(const uni_parameters *store, size_t *size)
{
    if (size)
        *size = store->buffers[0].size;
    return store->buffers[0].data;
}

float *uni__parameters_states(const uni_parameters *store, size_t *size)
{
    if (size)
        *size = store->buffers[1].size;
    return store->buffers[1].data;
}

int uni__parameters_rehome(uni_parameters *store, float *memory, bool adopt, uni_error *err)
{
    buffer *flat = &store->buffers[0];
    float *target = memory ? memory : flat->own;
    if ((uintptr_t)target % UNI__ALIGN)
        return uni_error_set(err, UNI_EINVAL,
                             "the new home of the parameters must be %d-byte aligned", UNI__ALIGN);
    if (target != flat->data && !adopt && flat->size)
        memcpy(target, flat->data, flat->size * sizeof(float));
    flat->data = target;
    return 0;
}

/* Finds runs of weights that are neither frozen nor done: done[i] == stamp (NULL: none is done). */
static size_t find_spans(const uni_parameters *store, const uint32_t *done, uint32_t stamp,
                         uni__span *spans, size_t max)
{
    size_t count = 0;
    bool open = false;
    for (size_t i = 0; i < store->count; i++) {
        const uni_parameter *p = store->items[i];
        if (p->kind != UNI_PARAMETER_WEIGHT)
            continue;
        if (p->frozen || (done && done[i] == stamp)) {
            open = false;
            continue;
        }
        if (!open)
            count++;
        if (count <= max) {
            if (!open)
                spans[count - 1].begin = p->offset;
            spans[count - 1].end =
                p->offset + (p->size + FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE;
        }
        open = true;
    }
    return count;
}

size_t uni__parameters_trainable(const uni_parameters *store, uni__span *spans, size_t max)
{
    return find_spans(store, NULL, 0, spans, max);
}

const uni_parameter_info *uni_parameter_info_of(const uni_parameter *parameter)
{
    return &parameter->info;
}

float *uni_parameter_data(const uni_parameter *parameter)
{
    float *data = parameter->store->buffers[parameter->kind == UNI_PARAMETER_STATE].data;
    return data != NULL ? data + parameter->offset : NULL; /* NULL when all parameters are empty */
}

void uni_parameter_freeze(uni_parameter *parameter, bool frozen)
{
    parameter->frozen = frozen || parameter->kind == UNI_PARAMETER_STATE;
}

/* ---- gradients ---- */

static void leave_memory(uni_gradients *gradients)
{
    if (!gradients->borrowed)
        uni__buffer_free(gradients->data, gradients->size);
    gradients->borrowed = false;
}

/* Grows with the store; old contents stay, new ones are zero. */
static int follow(uni_gradients *gradients, uni_error *err)
{
    size_t size = gradients->store->buffers[0].size, count = gradients->store->count;
    if (size != gradients->size || !gradients->data) {
        float *data = uni__buffer_new(size);
        if (!data)
            return uni_error_set(err, UNI_ENOMEM, "no memory for %zu gradients", size);
        if (gradients->size)
            memcpy(data, gradients->data, gradients->size * sizeof(float));
        leave_memory(gradients);
        gradients->data = data;
        gradients->size = size;
    }
    if (count != gradients->num_stamps) {
        uint32_t *stamps = calloc(2 * count + 1, sizeof *stamps);
        if (!stamps)
            return uni_error_set(err, UNI_ENOMEM, "no memory for %zu gradients", count);
        free(gradients->stamps);
        gradients->stamps = stamps;
        gradients->descended = stamps + count;
        gradients->num_stamps = count;
        gradients->stamp = 0;
    }
    return 0;
}

int uni_gradients_new(uni_gradients **out, uni_parameters *store, uni_error *err)
{
    *out = NULL;
    uni_gradients *gradients = calloc(1, sizeof *gradients);
    if (!gradients)
        return uni_error_set(err, UNI_ENOMEM, "no memory for gradients");
    gradients->store = store;
    int status = follow(gradients, err);
    if (status < 0) {
        uni_gradients_free(gradients);
        return status;
    }
    *out = gradients;
    return 0;
}

void uni_gradients_free(uni_gradients *gradients)
{
    if (!gradients)
        return;
    leave_memory(gradients);
    free(gradients->stamps);
    free(gradients);
}

uni_parameters *uni__gradients_store(const uni_gradients *gradients)
{
    return gradients->store;
}

size_t uni__gradients_trainable(const uni_gradients *gradients, uni__span *spans, size_t max)
{
    const uni_parameters *store = gradients->store;
    bool known = gradients->stamp != 0 && gradients->num_stamps == store->count;
    return find_spans(store, known ? gradients->descended : NULL, gradients->stamp, spans, max);
}

float *uni_gradients_data(uni_gradients *gradients, size_t *size)
{
    bool good = follow(gradients, NULL) == 0;
    if (size)
        *size = good ? gradients->size : 0;
    return good ? gradients->data : NULL;
}

float *uni_gradients_of(uni_gradients *gradients, const uni_parameter *parameter)
{
    if (parameter->kind != UNI_PARAMETER_WEIGHT || follow(gradients, NULL) < 0)
        return NULL;
    return gradients->data + parameter->offset;
}

/* Copies all but the gradients that the last pass did not make because it changed the weight
 * itself, which for a large kernel is most of the bytes. The gap after a weight is zero and copied
 * with it. */
static void copy_gradients(float *to, const uni_gradients *from)
{
    const uni_parameters *store = from->store;
    size_t begin = 0;
    for (size_t i = 0; i < store->count; i++) {
        const uni_parameter *p = store->items[i];
        if (p->kind != UNI_PARAMETER_WEIGHT || from->stamp == 0 ||
            from->descended[i] != from->stamp)
            continue;
        memcpy(to + begin, from->data + begin, (p->offset - begin) * sizeof(float));
        begin = p->offset + p->size;
    }
    memcpy(to + begin, from->data + begin, (from->size - begin) * sizeof(float));
}

int uni__gradients_rehome(uni_gradients *gradients, float *memory, uni_error *err)
{
    UNI_TRY(follow(gradients, err));
    if (memory == gradients->data || (!memory && !gradients->borrowed))
        return 0;
    if ((uintptr_t)memory % UNI__ALIGN)
        return uni_error_set(err, UNI_EINVAL,
                             "the new home of the gradients must be %d-byte aligned", UNI__ALIGN);
    float *data = memory ? memory : uni__buffer_new(gradients->size);
    if (!data)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %zu gradients", gradients->size);
    copy_gradients(data, gradients);
    leave_memory(gradients);
    gradients->data = data;
    gradients->borrowed = memory != NULL;
    return 0;
}

void uni_gradients_zero(uni_gradients *gradients)
{
    if (follow(gradients, NULL) == 0 && gradients->size)
        memset(gradients->data, 0, gradients->size * sizeof(float));
}

int uni__gradients_begin(uni_gradients *gradients, uni_error *err)
{
    UNI_TRY(follow(gradients, err));
    if (++gradients->stamp == 0) { /* wrapped: old stamps must not match */
        memset(gradients->stamps, 0, gradients->num_stamps * sizeof *gradients->stamps);
        gradients->stamp = 1;
    }
    return 0;
}
