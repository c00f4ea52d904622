/*
 * tape.c - one replica's step: begin, inputs, the record, the walk backwards, errors and profile.
 *
 * Errors stick: the first one is kept with the name of the layer that was entered, and everything after it returns NULL.
 * Gradients of intermediate tensors are arena blocks that are released as soon as the node that made the tensor has used them; gradients
 * of weights are written straight into the flat buffer. Called by the tape's thread only.
 */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tensor/internal.h"
#include "tensor/onednn.h"
#include "tensor/update.h"

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
    uni_tape *tape = calloc(1, sizeof *tape);
    if (!tape)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a tape");
    tape->reference = options && options->reference;
    tape->threads = options && options->threads > 0 ? options->threads : default_threads();
    tape->kernels = tape->reference ? &uni__kernels_reference : uni__kernels_best();
    tape->arena = uni__arena_new();
    int status = tape->arena ? uni__onednn_new(&tape->onednn, err)
                             : uni_error_set(err, UNI_ENOMEM, "no memory for a tape");
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
    uni__onednn_free(tape->onednn);
    uni__arena_free(tape->arena);
    free(tape);
}

int uni_tape_threads(const uni_tape *tape)
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

const uni_step *uni_tape_step(const uni_tape *tape)
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

void uni_tape_enter(uni_tape *tape, const char *name)
{
    if (tape->num_names < UNI__MAX_NAMES)
        tape->names[tape->num_names] = name;
    tape->num_names++;
}

void uni_tape_leave(uni_tape *tape)
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
            char text[UNI_SHAPE_TEXT_SIZE];
            return uni_tape_fail(tape, UNI_ESHAPE, "shape %s is not possible",
                                 uni_shape_text(text, ndim, shape));
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

uni_tensor *uni_tape_input_column(uni_tape *tape, const uni_column *column)
{
    return uni_tape_input(tape, column->dtype, column->ndim, column->shape, column->data);
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

uni_tensor *uni_tape_constant(uni_tape *tape, float value)
{
    uni_tensor *tensor = uni__new(tape, UNI_F32, 0, NULL);
    if (tensor)
        f32(tensor)[0] = value;
    return tensor;
}

void uni_tape_add_loss(uni_tape *tape, uni_tensor *loss)
{
    if (loss)
        tape->added_losses = tape->added_losses ? uni_op_add(tape, tape->added_losses, loss) : loss;
}

uni_tensor *uni_tape_added_losses(uni_tape *tape)
{
    return tape->error.code ? NULL : tape->added_losses;
}

void uni_tape_watch(uni_tape *tape, uni_tensor *tensor)
{
    if (tensor && tensor->dtype == UNI_F32) {
        /* A parameter that this step does not learn has no place in the gradient store: its gradient
         * is kept with the tensor, as of any input. */
        if (!tensor->needs_gradient)
            tensor->parameter = NULL;
        tensor->watched = true;
        tensor->needs_gradient = tape->recording;
    }
}

/* ---- the record ---- */

void *uni__record(uni_tape *tape, const char *operation, uni_tensor *out, int num_inputs,
                  uni_tensor *const *inputs, void (*backward)(uni_tape *, uni__node *),
                  size_t payload_size)
{
    if (!tape->recording || !out)
        return NULL;
    bool needed = false;
    for (int i = 0; i < num_inputs; i++)
        needed |= inputs[i] && inputs[i]->needs_gradient;
    if (!needed)
        return NULL;
    size_t payload = (payload_size + 15) & ~(size_t)15;
    uni__node *node =
        uni__scratch(tape, sizeof *node + payload + (size_t)num_inputs * sizeof(uni_tensor *));
    if (!node)
        return NULL;
    *node = (uni__node){ .previous = tape->last,
                         .backward = backward,
                         .operation = operation,
                         .out = out,
                         .num_inputs = num_inputs };
    node->inputs = (uni_tensor **)(void *)(node->payload + payload);
    memset(node->payload, 0, payload);
    for (int i = 0; i < num_inputs; i++)
        node->inputs[i] = inputs[i];
    tape->last = node;
    out->needs_gradient = true;
    return node->payload;
}

float *uni__gradient_target(uni_tape *tape, uni_tensor *tensor, bool *add)
{
    if (!tensor || !tensor->needs_gradient)
        return NULL;
    if (tensor->parameter) {
        uni_gradients *gradients = tape->step.gradients;
        uint32_t *stamp = &gradients->stamps[tensor->parameter->index];
        *add = tape->accumulate || *stamp == gradients->stamp;
        *stamp = gradients->stamp;
        return gradients->data + tensor->parameter->offset;
    }
    *add = tensor->gradient != NULL;
    if (!tensor->gradient)
        tensor->gradient = uni__scratch_floats(tape, tensor->count);
    return tensor->gradient;
}

void uni__gradient_give(uni_tape *tape, uni_tensor *tensor, float *buffer)
{
    if (!buffer)
        return;
    if (tensor->needs_gradient && !tensor->parameter && !tensor->gradient) {
        tensor->gradient = buffer;
        return;
    }
    bool add = false;
    float *target = uni__gradient_target(tape, tensor, &add);
    if (target && add)
        tape->kernels->add_in_place(target, buffer, tensor->count);
    else if (target)
        memcpy(target, buffer, tensor->count * sizeof(float));
    uni__release_floats(tape, buffer, tensor->count);
}

float *uni__gradient_take(uni_tape *tape, uni__node *node)
{
    uni_tensor *out = node->out;
    float *gradient = out->gradient;
    if (!out->watched) {
        out->gradient = NULL;
        return gradient;
    }
    float *copy = uni__scratch_floats(tape, out->count);
    if (copy)
        memcpy(copy, gradient, out->count * sizeof(float));
    return copy;
}

/* True when no node recorded before `node` uses the weight. */
static bool is_first_use(const uni__node *node, const uni_parameter *parameter)
{
    for (const uni__node *n = node->previous; n; n = n->previous)
        for (int j = 0; j < n->num_inputs; j++)
            if (n->inputs[j] && n->inputs[j]->parameter == parameter)
                return false;
    return true;
}

bool uni__descends(uni_tape *tape, const uni__node *node, const uni_tensor *tensor)
{
    const uni_parameter *parameter = tensor->needs_gradient ? tensor->parameter : NULL;
    const uni_descent *descent = tape->descent;
    if (!descent || !parameter || (descent->peers && parameter->size < descent->peers->least) ||
        (descent->keep_factors &&
         (parameter->size < descent->keep_factors || tape->num_factored == UNI_MAX_FACTORED)))
        return false;
    uni_gradients *gradients = tape->step.gradients;
    uint32_t stamp = gradients->stamp;
    if (gradients->stamps[parameter->index] == stamp || !is_first_use(node, parameter))
        return false;
    gradients->stamps[parameter->index] = gradients->descended[parameter->index] = stamp;
    return true;
}

/* Weights that no node wrote have gradient 0. */
static void zero_unwritten(uni_gradients *gradients)
{
    for (size_t i = 0; i < gradients->num_stamps; i++) {
        const uni_parameter *parameter = uni_parameters_at(gradients->store, i);
        if (parameter->kind == UNI_PARAMETER_WEIGHT && gradients->stamps[i] != gradients->stamp)
            memset(gradients->data + parameter->offset, 0, parameter->size * sizeof(float));
    }
}

static int check_gradient(uni_tape *tape, const uni_tensor *loss, uni_error *err)
{
    UNI_TRY(uni_tape_status(tape, err));
    if (!loss)
        return uni_error_set(err, UNI_EINVAL, "gradients were asked of no tensor (NULL)");
    if (loss->dtype != UNI_F32)
        return uni_error_set(err, UNI_EDTYPE, "gradients of a %s tensor; a loss is float32",
                             uni_dtype_name(loss->dtype));
    if (!tape->recording)
        return uni_error_set(
            err, UNI_ESTATE,
            "this step records nothing: give uni_step.gradients to uni_tape_begin");
    if (tape->gradient_done)
        return uni_error_set(err, UNI_ESTATE, "uni_tape_gradient was called before in this step");
    return 0;
}

/* After the node that used a weight first, which the backward pass comes to last, its gradient is final. */
static int tell_ready(const uni__node *node, const uni_gradient_options *options, uni_error *err)
{
    for (int i = 0; i < node->num_inputs; i++) {
        const uni_tensor *input = node->inputs[i];
        bool more = !input || !input->parameter || !input->needs_gradient;
        for (int j = 0; j < i && !more; j++)
            more = node->inputs[j] && node->inputs[j]->parameter == input->parameter;
        if (!more && is_first_use(node, input->parameter))
            UNI_TRY(options->ready(options->ready_context, input->parameter, err));
    }
    return 0;
}

/* Is it part of a factor that is wanted after the pass? */
static bool is_kept(const uni_tape *tape, const uni_tensor *tensor)
{
    const float *begin = f32(tensor), *end = begin + tensor->count;
    for (size_t i = 0; i < tape->num_factored; i++)
        if (tape->factored[i].factors.x >= begin && tape->factored[i].factors.x < end)
            return true;
    return false;
}

static int walk_back(uni_tape *tape, const uni_gradient_options *options, uni_error *err)
{
    for (uni__node *node = tape->last; node && !tape->error.code; node = node->previous) {
        uni_tensor *out = node->out;
        if (!out->gradient)
            continue;
        node->backward(tape, node);
        if (options && options->ready && !tape->error.code)
            UNI_TRY(tell_ready(node, options, err));
        if (out->gradient && !out->watched) {
            uni__release_floats(tape, out->gradient, out->count);
            out->gradient = NULL;
        }
        if (options && options->consume && out->owned && !out->watched && !is_kept(tape, out)) {
            uni__release_floats(tape, out->data, out->count);
            out->data = NULL;
        }
    }
    return 0;
}

int uni_tape_gradient(uni_tape *tape, uni_tensor *loss, const uni_gradient_options *options,
                      uni_error *err)
{
    UNI_TRY(check_gradient(tape, loss, err));
    uni_gradients *gradients = tape->step.gradients;
    tape->gradient_done = true;
    tape->accumulate = options && options->accumulate;
    tape->descent = options && gradients && !tape->accumulate ? options->descent : NULL;
    if (gradients)
        UNI_TRY(uni__gradients_begin(gradients, err));
    if (loss->needs_gradient) {
        bool add = false;
        float *seed = uni__gradient_target(tape, loss, &add);
        float scale = options && options->scale != 0 ? options->scale : 1.0f;
        for (size_t i = 0; seed && i < loss->count; i++)
            seed[i] = add ? seed[i] + scale : scale;
        UNI_TRY(walk_back(tape, options, err));
    }
    if (gradients && !tape->accumulate)
        zero_unwritten(gradients);
    return uni_tape_status(tape, err);
}

size_t uni_tape_factored(const uni_tape *tape, const uni_factored **out)
{
    *out = tape->factored;
    return tape->num_factored;
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
    char *text = uni__arena_alloc(tape->arena, UNI_SHAPE_TEXT_SIZE);
    return text ? uni_shape_text(text, tensor->ndim, tensor->shape) : "(?)";
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
        tape->profile[tape->num_profile++] = (uni_profile_entry){ .operation = operation };
    tape->profile[i].calls++;
    tape->profile[i].seconds += seconds;
    tape->profile[i].flops += flops;
}

void uni_tape_profile(uni_tape *tape, bool on)
{
    tape->profiling = on;
    tape->num_profile = 0;
}

size_t uni_tape_profile_read(const uni_tape *tape, uni_profile_entry *entries, size_t max)
{
    for (size_t i = 0; i < tape->num_profile && i < max; i++)
        entries[i] = tape->profile[i];
    return tape->num_profile;
}

size_t uni_tape_bytes(const uni_tape *tape)
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
