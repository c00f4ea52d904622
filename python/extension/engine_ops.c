/*
 * engine_ops.c - operations as methods of the tape. Arguments are tensors, parameters, numbers or
 * buffers; they are cast to float32 where the engine computes in float32. Names of kinds are those
 * of ops.h in lower case.
 */
#include "tensor/shared.h"
#include "engine.h"

#include <string.h>

static uni_tensor *number_arg(PyObject *tape, PyObject *object)
{
    uni_tensor *x = engine_tensor_arg(tape, object);
    return x ? uni_op_cast(engine_tape_of(tape), x, UNI_F32) : NULL;
}

static int kind_of(const char *name, const char *const *names, const char *what)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    door_raise_text(PyExc_ValueError, "there is no %s \"%s\"", what, name);
    return -1;
}

static PyObject *finish(PyObject *tape, uni_tensor *out)
{
    return !out && PyErr_Occurred() ? NULL : engine_tensor_wrap(tape, out);
}

static int ints_from(PyObject *object, int64_t *out, int max)
{
    if (object == Py_None)
        return 0;
    Py_ssize_t count = PySequence_Size(object);
    if (count < 0)
        return -1;
    if (count > max) {
        door_raise_text(PyExc_ValueError, "at most %d numbers, got %zd", max, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        out[i] = item ? PyLong_AsLongLong(item) : 0;
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
    }
    return (int)count;
}

/* ---- elementwise ---- */

/* Arguments (name, a, b): the name's place in the list, or -1 with an exception. */
static int named_pair(PyObject *tape, PyObject *arguments, const char *const *names,
                      const char *what, uni_tensor **x, uni_tensor **y)
{
    const char *name;
    PyObject *a, *b;
    if (!PyArg_ParseTuple(arguments, "sOO", &name, &a, &b))
        return -1;
    int kind = kind_of(name, names, what);
    *x = kind < 0 ? NULL : number_arg(tape, a);
    *y = *x ? number_arg(tape, b) : NULL;
    return *y ? kind : -1;
}

static PyObject *op_binary(PyObject *tape, PyObject *arguments)
{
    static const char *const names[] = { "add", "sub",     "mul",     "div",
                                         "pow", "maximum", "minimum", "squared_difference",
                                         NULL };
    uni_tensor *x, *y;
    int kind = named_pair(tape, arguments, names, "operation", &x, &y);
    return finish(tape,
                  kind < 0 ? NULL : uni_op_binary(engine_tape_of(tape), (uni_binary)kind, x, y));
}

static PyObject *op_unary(PyObject *tape, PyObject *arguments)
{
    static const char *const names[] = { "negate", "exp",        "log",  "sqrt",  "rsqrt",
                                         "square", "abs",        "sign", "floor", "sin",
                                         "cos",    "reciprocal", NULL };
    const char *name;
    PyObject *a;
    if (!PyArg_ParseTuple(arguments, "sO", &name, &a))
        return NULL;
    int kind = kind_of(name, names, "operation");
    uni_tensor *x = kind < 0 ? NULL : number_arg(tape, a);
    return finish(tape, x ? uni_op_unary(engine_tape_of(tape), (uni_unary)kind, x) : NULL);
}

static PyObject *op_activation(PyObject *tape, PyObject *arguments)
{
    const char *name;
    PyObject *a;
    float alpha = 0;
    if (!PyArg_ParseTuple(arguments, "sO|f", &name, &a, &alpha))
        return NULL;
    int kind = uni__activation_from_name(name);
    if (kind < 0)
        return door_raise_text(PyExc_ValueError, "there is no activation \"%s\"", name);
    uni_tensor *x = number_arg(tape, a);
    return finish(tape, x ? uni_op_activation(engine_tape_of(tape), (uni_activation)kind, x, alpha)
                          : NULL);
}

static PyObject *op_compare(PyObject *tape, PyObject *arguments)
{
    static const char *const names[] = { "equal",   "not_equal",     "less", "less_equal",
                                         "greater", "greater_equal", NULL };
    uni_tensor *x, *y;
    int kind = named_pair(tape, arguments, names, "comparison", &x, &y);
    return finish(tape,
                  kind < 0 ? NULL : uni_op_compare(engine_tape_of(tape), (uni_compare)kind, x, y));
}

static PyObject *op_where(PyObject *tape, PyObject *arguments)
{
    PyObject *c, *a, *b;
    if (!PyArg_ParseTuple(arguments, "OOO", &c, &a, &b))
        return NULL;
    uni_tensor *condition = engine_tensor_arg(tape, c), *x = condition ? number_arg(tape, a) : NULL,
               *y = x ? number_arg(tape, b) : NULL;
    uni_tape *raw = engine_tape_of(tape);
    return finish(tape, y ? uni_op_where(raw, uni_op_cast(raw, condition, UNI_B8), x, y) : NULL);
}

static PyObject *op_cast(PyObject *tape, PyObject *arguments)
{
    PyObject *a;
    const char *name;
    if (!PyArg_ParseTuple(arguments, "Os", &a, &name))
        return NULL;
    int dtype = engine_dtype_from(name);
    uni_tensor *x = dtype ? engine_tensor_arg(tape, a) : NULL;
    return finish(tape, x ? uni_op_cast(engine_tape_of(tape), x, (uni_dtype)dtype) : NULL);
}

static PyObject *with_two_numbers(PyObject *tape, PyObject *arguments,
                                  uni_tensor *(*op)(uni_tape *, uni_tensor *, float, float))
{
    PyObject *a;
    float first, second;
    if (!PyArg_ParseTuple(arguments, "Off", &a, &first, &second))
        return NULL;
    uni_tensor *x = number_arg(tape, a);
    return finish(tape, x ? op(engine_tape_of(tape), x, first, second) : NULL);
}

static PyObject *op_clip(PyObject *tape, PyObject *arguments)
{
    return with_two_numbers(tape, arguments, uni_op_clip);
}

static PyObject *op_scale(PyObject *tape, PyObject *arguments)
{
    return with_two_numbers(tape, arguments, uni_op_scale);
}

static PyObject *op_dropout(PyObject *tape, PyObject *arguments)
{
    PyObject *a;
    float rate;
    unsigned int stream = 0;
    if (!PyArg_ParseTuple(arguments, "Of|I", &a, &rate, &stream))
        return NULL;
    uni_tensor *x = number_arg(tape, a);
    return finish(tape, x ? uni_op_dropout(engine_tape_of(tape), x, rate, stream, NULL) : NULL);
}

static PyObject *op_stop_gradient(PyObject *tape, PyObject *a)
{
    uni_tensor *x = engine_tensor_arg(tape, a);
    return finish(tape, x ? uni_op_stop_gradient(engine_tape_of(tape), x) : NULL);
}

/* ---- products ---- */

static PyObject *op_matmul(PyObject *tape, PyObject *arguments)
{
    PyObject *a, *b;
    int transpose_a = 0, transpose_b = 0;
    if (!PyArg_ParseTuple(arguments, "OO|pp", &a, &b, &transpose_a, &transpose_b))
        return NULL;
    uni_tensor *x = number_arg(tape, a), *y = x ? number_arg(tape, b) : NULL, *out = NULL;
    if (y) {
        uni_tape *raw = engine_tape_of(tape);
        Py_BEGIN_ALLOW_THREADS out = uni_op_matmul(raw, x, y, transpose_a, transpose_b);
        Py_END_ALLOW_THREADS
    }
    return finish(tape, out);
}

/* ---- shapes ---- */

typedef uni_tensor *(*shaper)(uni_tape *tape, uni_tensor *x, int ndim, const int64_t *shape);

/* (x, shape) */
static PyObject *shaped(PyObject *tape, PyObject *arguments, shaper apply,
                        uni_tensor *(*argument)(PyObject *tape, PyObject *object))
{
    PyObject *a, *shape_object;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    if (!PyArg_ParseTuple(arguments, "OO", &a, &shape_object))
        return NULL;
    int ndim = ints_from(shape_object, shape, UNI_TENSOR_MAX_DIMS);
    uni_tensor *x = ndim < 0 ? NULL : argument(tape, a);
    return finish(tape, x ? apply(engine_tape_of(tape), x, ndim, shape) : NULL);
}

static PyObject *op_reshape(PyObject *tape, PyObject *arguments)
{
    return shaped(tape, arguments, uni_op_reshape, engine_tensor_arg);
}

static PyObject *op_broadcast(PyObject *tape, PyObject *arguments)
{
    return shaped(tape, arguments, uni_op_broadcast, number_arg);
}

static PyObject *op_transpose(PyObject *tape, PyObject *arguments)
{
    PyObject *a, *order_object;
    int64_t wide[UNI_TENSOR_MAX_DIMS];
    int order[UNI_TENSOR_MAX_DIMS];
    if (!PyArg_ParseTuple(arguments, "OO", &a, &order_object))
        return NULL;
    int count = ints_from(order_object, wide, UNI_TENSOR_MAX_DIMS);
    uni_tensor *x = count < 0 ? NULL : engine_tensor_arg(tape, a);
    if (x && count != uni_tensor_ndim(x)) {
        door_raise_text(PyExc_ValueError, "an order of %d axes for a tensor of %d", count,
                        uni_tensor_ndim(x));
        return NULL;
    }
    for (int i = 0; x && i < count; i++)
        order[i] = (int)wide[i];
    return finish(tape, x ? uni_op_transpose(engine_tape_of(tape), x, order) : NULL);
}

enum { MAX_PARTS = 64 };

static PyObject *op_concat(PyObject *tape, PyObject *arguments)
{
    PyObject *list;
    int axis;
    uni_tensor *parts[MAX_PARTS];
    if (!PyArg_ParseTuple(arguments, "O!i", &PyList_Type, &list, &axis))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    if (count < 1 || count > MAX_PARTS)
        return door_raise_text(PyExc_ValueError, "1 to %d tensors, got %zd", MAX_PARTS, count);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!(parts[i] = number_arg(tape, PyList_GetItem(list, i))))
            return finish(tape, NULL);
    return finish(tape, uni_op_concat(engine_tape_of(tape), (int)count, parts, axis));
}

static PyObject *op_slice(PyObject *tape, PyObject *arguments)
{
    PyObject *a;
    int axis;
    long long begin, size;
    if (!PyArg_ParseTuple(arguments, "OiLL", &a, &axis, &begin, &size))
        return NULL;
    uni_tensor *x = engine_tensor_arg(tape, a);
    return finish(tape, x ? uni_op_slice(engine_tape_of(tape), x, axis, begin, size) : NULL);
}

static PyObject *op_gather(PyObject *tape, PyObject *arguments)
{
    PyObject *a, *b;
    int axis;
    if (!PyArg_ParseTuple(arguments, "OOi", &a, &b, &axis))
        return NULL;
    uni_tensor *x = number_arg(tape, a), *indices = x ? engine_tensor_arg(tape, b) : NULL;
    return finish(tape, indices ? uni_op_gather(engine_tape_of(tape), x, indices, axis) : NULL);
}

static PyObject *op_one_hot(PyObject *tape, PyObject *arguments)
{
    PyObject *a;
    long long depth;
    if (!PyArg_ParseTuple(arguments, "OL", &a, &depth))
        return NULL;
    uni_tensor *x = engine_tensor_arg(tape, a);
    return finish(tape, x ? uni_op_one_hot(engine_tape_of(tape), x, depth) : NULL);
}

/* An operation along one axis. */
static PyObject *along_axis(PyObject *tape, PyObject *arguments,
                            uni_tensor *(*op)(uni_tape *, uni_tensor *, int))
{
    PyObject *a;
    int axis;
    if (!PyArg_ParseTuple(arguments, "Oi", &a, &axis))
        return NULL;
    uni_tensor *x = number_arg(tape, a);
    return finish(tape, x ? op(engine_tape_of(tape), x, axis) : NULL);
}

static PyObject *op_argmax(PyObject *tape, PyObject *arguments)
{
    return along_axis(tape, arguments, uni_op_argmax);
}

/* ---- reductions ---- */

static PyObject *op_reduce(PyObject *tape, PyObject *arguments)
{
    static const char *const names[] = { "sum", "mean", "max", "min", NULL };
    const char *name;
    PyObject *a, *axes_object;
    int keep_dims, axes[UNI_TENSOR_MAX_DIMS];
    int64_t wide[UNI_TENSOR_MAX_DIMS];
    if (!PyArg_ParseTuple(arguments, "sOOp", &name, &a, &axes_object, &keep_dims))
        return NULL;
    int kind = kind_of(name, names, "reduction");
    int count = kind < 0 ? -1 : ints_from(axes_object, wide, UNI_TENSOR_MAX_DIMS);
    for (int i = 0; i < count; i++)
        axes[i] = (int)wide[i];
    uni_tensor *x = count < 0 ? NULL : number_arg(tape, a);
    return finish(
        tape, x ? uni_op_reduce(engine_tape_of(tape), (uni_reduce)kind, x, count, axes, keep_dims)
                : NULL);
}

static PyObject *op_softmax(PyObject *tape, PyObject *arguments)
{
    return along_axis(tape, arguments, uni_op_softmax);
}

static PyObject *op_log_softmax(PyObject *tape, PyObject *arguments)
{
    return along_axis(tape, arguments, uni_op_log_softmax);
}

/* ---- losses ---- */

/* average_loss(per_example, weights or None, global_batch_size) */
static PyObject *op_average_loss(PyObject *tape, PyObject *arguments)
{
    PyObject *a, *w;
    long long size;
    if (!PyArg_ParseTuple(arguments, "OOL", &a, &w, &size))
        return NULL;
    uni_tensor *x = number_arg(tape, a), *weights = NULL;
    if (!x || (w != Py_None && !(weights = number_arg(tape, w))))
        return finish(tape, NULL);
    return finish(tape, uni_compute_average_loss(engine_tape_of(tape), x, weights, size));
}

PyMethodDef engine_op_methods[] = {
    { "binary", op_binary, METH_VARARGS, "binary(kind, a, b)" },
    { "unary", op_unary, METH_VARARGS, "unary(kind, x)" },
    { "activation", op_activation, METH_VARARGS, "activation(name, x, alpha=0)" },
    { "compare", op_compare, METH_VARARGS, "compare(kind, a, b)" },
    { "where", op_where, METH_VARARGS, "where(condition, a, b)" },
    { "cast", op_cast, METH_VARARGS, "cast(x, dtype)" },
    { "clip", op_clip, METH_VARARGS, "clip(x, low, high)" },
    { "scale", op_scale, METH_VARARGS, "scale(x, multiply, add)" },
    { "dropout", op_dropout, METH_VARARGS, "dropout(x, rate, stream=0)" },
    { "stop_gradient", op_stop_gradient, METH_O, NULL },
    { "matmul", op_matmul, METH_VARARGS, "matmul(a, b, transpose_a, transpose_b)" },
    { "reshape", op_reshape, METH_VARARGS, "reshape(x, shape)" },
    { "broadcast", op_broadcast, METH_VARARGS, "broadcast(x, shape)" },
    { "transpose", op_transpose, METH_VARARGS, "transpose(x, order)" },
    { "concat", op_concat, METH_VARARGS, "concat(list, axis)" },
    { "slice", op_slice, METH_VARARGS, "slice(x, axis, begin, size)" },
    { "gather", op_gather, METH_VARARGS, "gather(x, indices, axis)" },
    { "one_hot", op_one_hot, METH_VARARGS, "one_hot(ids, depth)" },
    { "argmax", op_argmax, METH_VARARGS, "argmax(x, axis)" },
    { "reduce", op_reduce, METH_VARARGS, "reduce(kind, x, axes or None, keep_dims)" },
    { "softmax", op_softmax, METH_VARARGS, "softmax(x, axis)" },
    { "log_softmax", op_log_softmax, METH_VARARGS, "log_softmax(x, axis)" },
    { "average_loss", op_average_loss, METH_VARARGS, "average_loss(per_example, weights, size)" },
    { NULL, NULL, 0, NULL },
};
