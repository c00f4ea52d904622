/*
 * tape_backward.c - the record of a step, and the backward walk over it.
 *
 * Gradients of intermediate tensors are arena blocks that are released as soon as the node that
 * made the tensor has used them; gradients of weights are written straight into the flat buffer.
 * Called only by the tape's thread.
 */
#include <string.h>
#include "tensor/internal.h"
#include "base/options.h"

void *uni__tape_record(uni_tape *tape, const char *operation, uni_tensor *out, int num_inputs,
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
    const uni__descent *descent = tape->descent;
    if (!descent || !parameter || (descent->peers && parameter->size < descent->peers->least) ||
        (descent->keep_factors &&
         (parameter->size < descent->keep_factors || tape->num_factored == UNI__MAX_FACTORED)))
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

/* A weight's gradient is final after the node that used it first, which the backward pass reaches
 * last. */
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

/* Is the tensor part of a factor that is needed after the pass? */
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
    UNI__OPTIONS(uni_gradient_options, options, ready_context, err);
    return uni__tape_gradient(tape, loss, options, NULL, err);
}

int uni__tape_gradient(uni_tape *tape, uni_tensor *loss, const uni_gradient_options *options,
                       const uni__descent *descent, uni_error *err)
{
    UNI_TRY(check_gradient(tape, loss, err));
    uni_gradients *gradients = tape->step.gradients;
    tape->gradient_done = true;
    tape->accumulate = options && options->accumulate;
    tape->descent = gradients && !tape->accumulate ? descent : NULL;
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

size_t uni__tape_factored(const uni_tape *tape, const uni__factored **out)
{
    *out = tape->factored;
    return tape->num_factored;
}
