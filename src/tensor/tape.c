/*
 * tape.c - one replica's step: begin, inputs, errors and profile. Recording and the backward walk
 * are in tape_backward.c.
 *
 * Errors are sticky: the first one is kept with the name of the layer that was entered, and
 * everything after it returns NULL. Called only by the tape's thread.
 */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tensor/shared.h"
#include "tensor/internal.h"
#include "tensor/onednn.h"
#include "tensor/update.h"
#include "base/options.h"

static int default_threads(void)
{
    const char *given = getenv("OMP_NUM_THREADS");
    if (given && atoi(given) > 0)
        return atoi(given);
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0 && CPU_COUNT(&mask) > 0)
        return CPU_COUNT(&mask);
    return 1;
}

int uni_tape_new(uni_tape **out, const uni_tape_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_tape_options, options, reference, err);
    uni_tape *tape = calloc(1, sizeof *tape);
    if (!tape)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a tape");
    tape->reference = options->reference;
    tape->threads = options->threads > 0 ? options->threads : default_threads();
    tape->kernels = tape->reference ? &uni__tensor_kernels_reference : uni__tensor_kernels_best();
    tape->arena = uni__arena_new();
    int status = tape->arena ? uni__onednn_new(&tape->onednn, err)
                             : uni_error_set(err, UNI_ENOMEM, "no memory for a tape");
    if (status == 0)
        status = uni__helpers_new(&tape->helpers, tape->threads, err);
    if (status < 0) {
        uni_tape_free(tape);
        return status;
    }
    uni_tape_begin(tape, NULL);
    *out = tape;
    return 0;
}

void uni_tape_free(uni_tape *tape)
{
    if (!tape)
        return;
    uni__helpers_free(tape->helpers);
    uni__onednn_free(tape->onednn);
    uni__arena_free(tape->arena);
    free(tape);
}

int uni__tape_threads(const uni_tape *tape)
{
    return tape->threads;
}

void uni_tape_begin(uni_tape *tape, const uni_step *step)
{
    uni__arena_reset(tape->arena);
    tape->step = step ? *step : (uni_step){ 0 };
    tape->recording = step && (step->gradients || step->record);
    tape->last = NULL;
    tape->error.code = 0;
    tape->added_losses = NULL;
    tape->num_names = 0;
    tape->gradient_done = false;
    tape->num_factored = 0;
    tape->per_example = NULL;
    tape->penalty = (uni__penalty){ 0 };
    uni__onednn_begin(tape->onednn);
}

bool uni__tape_set_training(uni_tape *tape, bool training)
{
    bool before = tape->step.training;
    tape->step.training = training;
    return before;
}

const uni_step *uni__tape_step(const uni_tape *tape)
{
    return &tape->step;
}

int uni_tape_status(const uni_tape *tape, uni_error *err)
{
    if (tape->error.code && err)
        *err = tape->error;
    return tape->error.code;
}

uni_tensor *uni_tape_fail(uni_tape *tape, int code, const char *format, ...)
{
    if (tape->error.code)
        return NULL;
    char message[UNI_ERROR_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (tape->num_names > 0) {
        int top = tape->num_names < UNI__MAX_NAMES ? tape->num_names : UNI__MAX_NAMES;
        uni_error_set(&tape->error, code, "%s: %s", tape->names[top - 1], message);
    } else {
        uni_error_set(&tape->error, code, "%s", message);
    }
    return NULL;
}

void uni__tape_enter(uni_tape *tape, const char *name)
{
    if (tape->num_names < UNI__MAX_NAMES)
        tape->names[tape->num_names] = name;
    tape->num_names++;
}

void uni__tape_leave(uni_tape *tape)
{
    if (tape->num_names > 0)
        tape->num_names--;
}

/* ---- memory ---- */

void *uni__scratch(uni_tape *tape, size_t size)
{
    void *block = uni__arena_alloc(tape->arena, size);
    if (!block)
        uni_tape_fail(tape, UNI_ENOMEM, "no memory for %zu bytes in this step", size);
    return block;
}

float *uni__scratch_floats(uni_tape *tape, size_t count)
{
    return uni__scratch(tape, count * sizeof(float));
}

void uni__release(uni_tape *tape, void *block, size_t size)
{
    uni__arena_release(tape->arena, block, size);
}

void uni__release_floats(uni_tape *tape, float *block, size_t count)
{
    uni__arena_release(tape->arena, block, count * sizeof(float));
}

uni_tensor *uni__new_view(uni_tape *tape, uni_dtype dtype, int ndim, const int64_t *shape,
                          void *data)
{
    size_t count = 1;
    if (ndim < 0 || ndim > UNI_TENSOR_MAX_DIMS)
        return uni_tape_fail(tape, UNI_ESHAPE, "a tensor of %d dimensions; at most %d are possible",
                             ndim, UNI_TENSOR_MAX_DIMS);
    for (int i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(count, (size_t)shape[i], &count) ||
            count > PTRDIFF_MAX / 32) {
            char text[UNI__SHAPE_TEXT_SIZE];
            return uni_tape_fail(tape, UNI_ESHAPE, "shape %s is not possible",
                                 uni__shape_text(text, ndim, shape));
        }
    uni_tensor *tensor = uni__scratch(tape, sizeof *tensor);
    if (!tensor)
        return NULL;
    *tensor = (uni_tensor){ .dtype = dtype, .ndim = ndim, .count = count, .data = data };
    for (int i = 0; i < ndim; i++)
        tensor->shape[i] = shape[i];
    return tensor;
}

uni_tensor *uni__new(uni_tape *tape, uni_dtype dtype, int ndim, const int64_t *shape)
{
    if (tape->error.code)
        return NULL;
    uni_tensor *tensor = uni__new_view(tape, dtype, ndim, shape, NULL);
    if (!tensor)
        return NULL;
    size_t size = dtype == UNI_STRING ? sizeof(uni_string) : uni_dtype_size(dtype);
    tensor->data = uni__scratch(tape, tensor->count * size);
    tensor->owned = dtype == UNI_F32;
    return tensor->data ? tensor : NULL;
}

uni_tensor *uni__new_like(uni_tape *tape, const uni_tensor *like)
{
    return uni__new(tape, UNI_F32, like->ndim, like->shape);
}

/* ---- inputs ---- */

uni_tensor *uni_tape_input(uni_tape *tape, uni_dtype dtype, int ndim, const int64_t *shape,
                           const void *data)
{
    if (tape->error.code)
        return NULL;
    if (dtype != UNI_STRING && uni_dtype_size(dtype) == 0)
        return uni_tape_fail(tape, UNI_EDTYPE, "an input of element type %d, which does not exist",
                             (int)dtype);
    return uni__new_view(tape, dtype, ndim, shape, (void *)data);
}

uni_tensor *uni_tape_parameter(uni_tape *tape, const uni_parameter *parameter)
{
    if (tape->error.code)
        return NULL;
    uni_tensor *tensor = uni__new_view(tape, UNI_F32, parameter->ndim, parameter->shape,
                                       uni_parameter_data(parameter));
    if (!tensor)
        return NULL;
    tensor->parameter = parameter;
    tensor->needs_gradient = !parameter->frozen && tape->step.gradients &&
                             tape->step.gradients->store == parameter->store;
    return tensor;
}

uni_tensor *uni_tape_scratch(uni_tape *tape, uni_dtype dtype, int ndim, const int64_t *shape)
{
    return uni__new(tape, dtype, ndim, shape);
}

void uni_tape_add_loss(uni_tape *tape, uni_tensor *loss)
{
    if (loss)
        tape->added_losses = tape->added_losses ? uni_op_add(tape, tape->added_losses, loss) : loss;
}

uni_tensor *uni__tape_added_losses(uni_tape *tape)
{
    return tape->error.code ? NULL : tape->added_losses;
}

void uni_tape_watch(uni_tape *tape, uni_tensor *tensor)
{
    if (tensor && tensor->dtype == UNI_F32) {
        /* A parameter that this step does not train has no place in the gradient store: the tensor
         * keeps its gradient, like any input. */
        if (!tensor->needs_gradient)
            tensor->parameter = NULL;
        tensor->watched = true;
        tensor->needs_gradient = tape->recording;
    }
}

/* ---- checks ---- */

bool uni__check_f32(uni_tape *tape, const char *operation, const uni_tensor *tensor)
{
    if (!tensor || tape->error.code)
        return false;
    if (tensor->dtype == UNI_F32)
        return true;
    uni_tape_fail(tape, UNI_EDTYPE, "%s works on float32, but got %s of shape %s; use uni_op_cast",
                  operation, tensor->dtype == UNI_STRING ? "text" : uni_dtype_name(tensor->dtype),
                  uni__shape(tape, tensor));
    return false;
}

int uni__axis(uni_tape *tape, const char *operation, const uni_tensor *tensor, int axis)
{
    int wanted = axis < 0 ? axis + tensor->ndim : axis;
    if (wanted >= 0 && wanted < tensor->ndim)
        return wanted;
    uni_tape_fail(tape, UNI_ESHAPE, "%s: there is no axis %d in shape %s", operation, axis,
                  uni__shape(tape, tensor));
    return -1;
}

size_t uni__shape_count(int ndim, const int64_t *shape)
{
    size_t count = 1;
    for (int i = 0; i < ndim; i++)
        count *= (size_t)shape[i];
    return count;
}

int64_t uni__shape_span(const int64_t *shape, int from, int to)
{
    int64_t product = 1;
    for (int i = from; i < to; i++)
        product *= shape[i];
    return product;
}

bool uni__same_shape(const uni_tensor *a, const uni_tensor *b)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return true;
}

const char *uni__shape(uni_tape *tape, const uni_tensor *tensor)
{
    char *text = uni__arena_alloc(tape->arena, UNI__SHAPE_TEXT_SIZE);
    return text ? uni__shape_text(text, tensor->ndim, tensor->shape) : "(?)";
}

/* ---- profile ---- */

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double uni__clock_begin(uni_tape *tape)
{
    return tape->profiling ? seconds_now() : 0;
}

void uni__clock_end(uni_tape *tape, const char *operation, double begin, double flops)
{
    if (!tape->profiling)
        return;
    double seconds = seconds_now() - begin;
    size_t i = 0;
    while (i < tape->num_profile && strcmp(tape->profile[i].operation, operation) != 0)
        i++;
    if (i == UNI__MAX_PROFILE)
        return;
    if (i == tape->num_profile)
        tape->profile[tape->num_profile++] = (uni__profile_entry){ .operation = operation };
    tape->profile[i].calls++;
    tape->profile[i].seconds += seconds;
    tape->profile[i].flops += flops;
}

void uni__tape_profile(uni_tape *tape, bool on)
{
    tape->profiling = on;
    tape->num_profile = 0;
}

size_t uni__tape_profile_read(const uni_tape *tape, uni__profile_entry *entries, size_t max)
{
    for (size_t i = 0; i < tape->num_profile && i < max; i++)
        entries[i] = tape->profile[i];
    return tape->num_profile;
}

size_t uni__tape_bytes(const uni_tape *tape)
{
    return sizeof *tape + uni__arena_bytes(tape->arena) + uni__onednn_bytes(tape->onednn);
}

uni_tensor **uni__tape_per_example(uni_tape *tape)
{
    return &tape->per_example;
}

uni__penalty *uni__tape_penalty(uni_tape *tape)
{
    return &tape->penalty;
}

bool uni__tape_once(uni_tape *tape, unsigned what)
{
    uint32_t bit = UINT32_C(1) << what;
    bool first = (tape->said & bit) == 0;
    tape->said |= bit;
    return first;
}
