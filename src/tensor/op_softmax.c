/*
 * op_softmax.c - softmax and log-softmax over one axis. An axis other than the last is transposed
 * there, so that the loops run over rows. Called by the tape's thread.
 */
#include "tensor/internal.h"

typedef struct payload {
    bool log;
} payload;

typedef struct task {
    const uni__tensor_kernels *kernels;
    const float *x, *dy;
    float *y;
    size_t cols;
    bool log;
} task;

static void run(void *context, size_t begin, size_t end)
{
    const task *t = context;
    size_t at = begin * t->cols;
    (t->log ? t->kernels->log_softmax : t->kernels->softmax)(t->x + at, t->y + at, end - begin,
                                                             t->cols);
}

static void run_backward(void *context, size_t begin, size_t end)
{
    const task *t = context;
    size_t at = begin * t->cols;
    (t->log ? t->kernels->log_softmax_backward
            : t->kernels->softmax_backward)(t->x + at, t->dy + at, t->y + at, end - begin, t->cols);
}

static void backward(uni_tape *tape, uni__node *node)
{
    float *dy = uni__gradient_take(tape, node);
    size_t cols = (size_t)node->out->shape[node->out->ndim - 1];
    if (!dy || cols == 0)
        return;
    task t = { tape->kernels, f32(node->out), dy, dy, cols, ((const payload *)node->payload)->log };
    double begin = uni__clock_begin(tape);
    uni__for(tape, node->out->count / cols, 1, (double)cols, run_backward, &t);
    uni__clock_end(tape, "softmax backward", begin, 0);
    uni__gradient_give(tape, node->inputs[0], dy);
}

static uni_tensor *softmax(uni_tape *tape, uni_tensor *x, int axis, bool log)
{
    const char *name = log ? "log_softmax" : "softmax";
    if (!uni__check_f32(tape, name, x))
        return NULL;
    int at = uni__axis(tape, name, x, axis);
    if (at < 0)
        return NULL;
    if (at != x->ndim - 1) {
        int order[UNI_TENSOR_MAX_DIMS];
        for (int i = 0; i < x->ndim; i++)
            order[i] = i;
        order[at] = x->ndim - 1;
        order[x->ndim - 1] = at;
        uni_tensor *back =
            uni_op_transpose(tape, softmax(tape, uni_op_transpose(tape, x, order), -1, log), order);
        if (back && !log)
            back->logits = x;
        return back;
    }
    uni_tensor *out = uni__new_like(tape, x);
    if (!out)
        return NULL;
    size_t cols = (size_t)x->shape[at];
    task t = { tape->kernels, f32(x), NULL, f32(out), cols, log };
    double begin = uni__clock_begin(tape);
    if (x->count)
        uni__for(tape, x->count / cols, 1, (double)cols, run, &t);
    uni__clock_end(tape, name, begin, 0);
    out->logits = log ? NULL : x;
    payload *data = uni__tape_record(tape, name, out, 1, &x, backward, sizeof *data);
    if (data)
        data->log = log;
    return out;
}

uni_tensor *uni_op_softmax(uni_tape *tape, uni_tensor *x, int axis)
{
    return softmax(tape, x, axis, false);
}

uni_tensor *uni_op_log_softmax(uni_tape *tape, uni_tensor *x, int axis)
{
    return softmax(tape, x, axis, true);
}
