/*
 * tensor.h - tensors, the tape that records a step, the parameter store. ops.h has the operations.
 *
 * A uni_tape is one replica's execution: an arena, a thread count, cached kernels and the record of
 * the step that is under way. Every operation takes the tape first and returns a tensor that the
 * tape owns and that lives until the next uni_tape_begin (or the tape's end): nothing to free,
 * nothing allocated in a steady state. Errors stick to the tape: an operation that fails returns
 * NULL, one that is given NULL returns NULL, and the first error (with the shapes and the name of
 * the layer) comes out of uni_tape_gradient or uni_tape_status. So forward code can be written as
 * nested calls.
 *
 * Parameters live in flat float buffers of a uni_parameters, always in Keras's own layout;
 * gradients in a uni_gradients of the same layout, one for each replica.
 *
 * Thread rule: a tape, and the gradients given to it, belong to one thread at a time. Two tapes may
 * read one parameter store at the same time. Only the owner of the store adds parameters, and not
 * during a step.
 *
 * @example
 * uni_tape *tape = NULL;
 * UNI_TRY(uni_tape_new(&tape, NULL, err));
 * uni_tape_begin(tape, NULL);
 * const float numbers[4] = { 1, 2, 3, 4 };
 * uni_tensor *x = uni_tape_input(tape, UNI_F32, 2, (const int64_t[]){ 2, 2 }, numbers);
 * uni_tensor *y = uni_op_relu(tape, uni_op_matmul(tape, x, x, false, false));
 * UNI_TRY(uni_tape_status(tape, err));
 * printf("%g\n", ((const float *)uni_tensor_data(y))[0]);
 * uni_tape_free(tape);
 * @end
 */
#ifndef UNISONO_TENSOR_H
#define UNISONO_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unisono/array.h>
#include <unisono/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UNI_TENSOR_MAX_DIMS 6

/* What a column of UNI_STRING has as its data. */
typedef struct uni_string {
    const char *data; /* UTF-8, not zero-terminated */
    size_t size;
} uni_string;

typedef struct uni_tape uni_tape;
typedef struct uni_tensor uni_tensor;
typedef struct uni_parameters uni_parameters;
typedef struct uni_parameter uni_parameter;
typedef struct uni_gradients uni_gradients;

/* ---- columns: borrowed data with a type and a shape; what fit takes and what batches are made of
 * ---- */

typedef struct uni_column {
    uni_dtype dtype; /* 0: there is no column */
    int ndim; /* at most UNI_TENSOR_MAX_DIMS; the first dimension counts samples */
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    const void *data; /* dense, row-major */
} uni_column;

/* Bytes of one element; 0 for a number that is not an element type. */
static inline size_t uni_column_element_bytes(uni_dtype dtype)
{
    return dtype == UNI_STRING ? sizeof(uni_string) : uni_dtype_size(dtype);
}
/* Borrow; a shape that is too deep gives a column with dtype 0, which its taker refuses. */
static inline uni_column uni_column_view(uni_dtype dtype, int ndim, const int64_t *shape,
                                         const void *data)
{
    uni_column column;
    memset(&column, 0, sizeof column);
    if (ndim < 0 || ndim > UNI_TENSOR_MAX_DIMS || uni_column_element_bytes(dtype) == 0)
        return column;
    column.dtype = dtype;
    column.ndim = ndim;
    column.data = data;
    for (int i = 0; i < ndim; i++)
        column.shape[i] = shape[i];
    return column;
}
static inline uni_column uni_column_array(const uni_array *array)
{
    const uni_array_info *info = uni_array_info_of(array);
    return uni_column_view(info->dtype, info->ndim, info->shape, info->data);
}
/* shape (count,) */
static inline uni_column uni_column_strings(int64_t count, const uni_string *strings)
{
    return uni_column_view(UNI_STRING, 1, &count, strings);
}
/* 0 when there are no samples. */
static inline size_t uni_column_sample_bytes(const uni_column *column)
{
    if (column->dtype == 0 || column->ndim == 0)
        return 0;
    size_t bytes = uni_column_element_bytes(column->dtype);
    for (int i = 1; i < column->ndim; i++)
        bytes *= (size_t)column->shape[i];
    return bytes;
}
/* Samples [begin, end) of a column, where they are. */
static inline uni_column uni_column_rows(const uni_column *column, int64_t begin, int64_t end)
{
    uni_column rows = *column;
    rows.data = (const char *)column->data + (size_t)begin * uni_column_sample_bytes(column);
    rows.shape[0] = end - begin;
    return rows;
}

/* ---- parameters ---- */

typedef enum uni_parameter_kind {
    UNI_PARAMETER_WEIGHT = 0, /* has a gradient; the optimizer changes it unless it is frozen */
    UNI_PARAMETER_STATE =
        1 /* moving averages, adapted statistics: changed by the forward pass or by adapt */
} uni_parameter_kind;

UNI_API UNI_MUST_USE int uni_parameters_new(uni_parameters **out, uni_error *err);
UNI_API void uni_parameters_free(uni_parameters *store);
/* A new float32 variable, zero-filled. `name` is copied ("dense_1/kernel"). The handle lives as
 * long as the store. Data pointers that were taken before are no longer good. */
UNI_API UNI_MUST_USE int uni_parameters_add(uni_parameter **out, uni_parameters *store,
                                            const char *name, uni_parameter_kind kind, int ndim,
                                            const int64_t *shape, uni_error *err);
UNI_API size_t uni_parameters_count(const uni_parameters *store);
UNI_API uni_parameter *uni_parameters_at(const uni_parameters *store,
                                         size_t index); /* in the order of creation */
/* The flat buffers: all weights (frozen ones too), all states. Each parameter starts on a 64-byte
 * boundary; the gaps are zero. Sizes count floats, gaps included. */
UNI_API float *uni_parameters_weights(const uni_parameters *store, size_t *size);

/* Borrowed from the store. */
typedef struct uni_parameter_info {
    const char *name;
    uni_parameter_kind kind;
    bool is_frozen; /* always true for states */
    int ndim;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    size_t size; /* elements */
    size_t offset; /* in its flat buffer, floats */
} uni_parameter_info;
UNI_API const uni_parameter_info *uni_parameter_info_of(const uni_parameter *parameter);
UNI_API float *uni_parameter_data(const uni_parameter *parameter);
UNI_API void uni_parameter_freeze(uni_parameter *parameter, bool frozen);

/* ---- zeros that are meant ---- */

/* In options 0 means the default. Where 0 itself has a meaning (a rate, momentum, epsilon,
 * threshold, patience of 0), these ask for it. */
#define UNI_EXACTLY_ZERO (-1e-300)
#define UNI_NO_EPOCHS (-1)
#define UNI_NO_PATIENCE (-1)
#define UNI_SEED_ZERO UINT64_C(0x7a65726f73656564)

/* Gradients of every weight of one store, flat, zero at first. Follows the store when that
 * grows. */
UNI_API UNI_MUST_USE int uni_gradients_new(uni_gradients **out, uni_parameters *store,
                                           uni_error *err);
UNI_API void uni_gradients_free(uni_gradients *gradients);
UNI_API float *uni_gradients_data(uni_gradients *gradients,
                                  size_t *size); /* flat, as uni_parameters_weights */
UNI_API float *uni_gradients_of(uni_gradients *gradients,
                                const uni_parameter *parameter); /* NULL for a state */
UNI_API void uni_gradients_zero(uni_gradients *gradients);

/* ---- tensors: dense, row-major, owned by the tape ---- */

/* Good as long as the tensor, until the next uni_tape_begin. */
typedef struct uni_tensor_info {
    uni_dtype dtype;
    int ndim;
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    size_t count; /* elements */
    void *data;
} uni_tensor_info;
UNI_API const uni_tensor_info *uni_tensor_info_of(const uni_tensor *tensor);

/* ---- the tape ---- */

typedef struct uni_tape_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    int threads; /* 0: the CPUs of this thread's affinity mask (OMP_NUM_THREADS when set) */
    bool
        /* run the plain version of every kernel: slow, for tests and to hunt a wrong number */
        reference;
} uni_tape_options;

/* How replicas act together inside one step; a strategy gives it. `sum` adds the values of all
 * replicas, in place and bit-equal everywhere; it is called on the tape's thread, may block, and
 * is called equally often by all. */
typedef struct uni_sync {
    void *context;
    int (*sum)(void *context, float *values, size_t count, uni_error *err);
} uni_sync;

/* What one step is. NULL or zeros: inference without a record. */
typedef struct uni_step {
    bool training; /* dropout on, batch statistics; what Keras calls training=True */
    uni_gradients *gradients; /* record for uni_tape_gradient, which fills this; NULL: no record */
    bool record; /* record without a gradient store (only uni_tensor_gradient of watched tensors) */
    uint64_t seed; /* of the random operations */
    uint64_t number; /* of the step, from 0: part of the random key */
    int64_t
        /* where this replica's first sample stands in the global batch: part of the random key */
        first_sample;
    const uni_sync *sync; /* batch statistics over all replicas; NULL: this replica only */
    bool
        /* do not update moving averages (they are then the business of another replica) */
        keep_state;
} uni_step;

UNI_API UNI_MUST_USE int uni_tape_new(uni_tape **out, const uni_tape_options *options,
                                      uni_error *err);
UNI_API void uni_tape_free(uni_tape *tape);
/* Starts a step: forgets all tensors and the error of the step before. Cheap; the memory is
 * kept. */
UNI_API void uni_tape_begin(uni_tape *tape, const uni_step *step);
/* 0, or the first error since begin. */
UNI_API UNI_MUST_USE int uni_tape_status(const uni_tape *tape, uni_error *err);
/* For operations and layers: sets the sticky error ("dense_1: ..." is put before it) and returns
 * NULL. */
UNI_API uni_tensor *uni_tape_fail(uni_tape *tape, int code, const char *format, ...)
    UNI_PRINTF(3, 4);

/* Tensors that come from outside; the data is borrowed until the next begin. */
UNI_API uni_tensor *uni_tape_input(uni_tape *tape, uni_dtype dtype, int ndim, const int64_t *shape,
                                   const void *data);
static inline uni_tensor *uni_tape_input_column(uni_tape *tape, const uni_column *column)
{
    return uni_tape_input(tape, column->dtype, column->ndim, column->shape, column->data);
}
UNI_API uni_tensor *uni_tape_parameter(uni_tape *tape, const uni_parameter *parameter);
/* A new tensor with undefined contents, for the caller to fill, e.g. by an input layer. */
UNI_API uni_tensor *uni_tape_scratch(uni_tape *tape, uni_dtype dtype, int ndim,
                                     const int64_t *shape);
static inline uni_tensor *uni_tape_constant(uni_tape *tape, float value) /* shape () */
{
    uni_tensor *tensor = uni_tape_scratch(tape, UNI_F32, 0, NULL);
    if (tensor)
        *(float *)uni_tensor_info_of(tensor)->data = value;
    return tensor;
}

/* A loss that a layer adds on the way (activity regularisers): (). */
UNI_API void uni_tape_add_loss(uni_tape *tape, uni_tensor *loss);

/* Asks for uni_tensor_gradient of an input. */
UNI_API void uni_tape_watch(uni_tape *tape, uni_tensor *tensor);
typedef struct uni_gradient_options {
    size_t size; /* UNI_OPTIONS sets it; 0: the fields of 0.1 */
    float scale; /* 0: 1 */
    bool accumulate;
    /* The step's tensors are not read afterwards: the memory of a result that the pass has gone by
     * serves the gradients that come (a quarter less for a convolution network). Watched tensors
     * stay. */
    bool consume;
    /* Called in the middle of the backward pass when nothing more will be added to a weight's
     * gradient (not for those that the loss does not reach); NULL: not reported. An error ends the
     * pass. */
    int (*ready)(void *context, const uni_parameter *parameter, uni_error *err);
    void *ready_context;
} uni_gradient_options;
/* Walks the record backwards from `loss` (one element; a larger one is summed first) and fills the
 * step's gradients: with d(scale * loss)/d(parameter). Weights that the loss does not depend on
 * get 0. With `accumulate` it adds to what is there. May be called once a step; tensors stay
 * readable until the next begin. */
UNI_API UNI_MUST_USE int uni_tape_gradient(uni_tape *tape, uni_tensor *loss,
                                           const uni_gradient_options *options, uni_error *err);

/* ---- reading tensors ---- */

static inline uni_dtype uni_tensor_dtype(const uni_tensor *tensor)
{
    return uni_tensor_info_of(tensor)->dtype;
}
static inline int uni_tensor_ndim(const uni_tensor *tensor)
{
    return uni_tensor_info_of(tensor)->ndim;
}
static inline const int64_t *uni_tensor_shape(const uni_tensor *tensor)
{
    return uni_tensor_info_of(tensor)->shape;
}
/* Negative axes count from the end; 0 when there is no such axis. */
static inline int64_t uni_tensor_dim(const uni_tensor *tensor, int axis)
{
    const uni_tensor_info *info = uni_tensor_info_of(tensor);
    int at = axis < 0 ? axis + info->ndim : axis;
    return at >= 0 && at < info->ndim ? info->shape[at] : 0;
}
static inline size_t uni_tensor_count(const uni_tensor *tensor)
{
    return uni_tensor_info_of(tensor)->count;
}
static inline void *uni_tensor_data(const uni_tensor *tensor) /* NULL gives NULL */
{
    return tensor ? uni_tensor_info_of(tensor)->data : NULL;
}
/* The first element as a number; NaN for NULL, strings and empty tensors. */
UNI_API double uni_tensor_scalar(const uni_tensor *tensor);
/* After uni_tape_gradient: of a watched input or of the loss' ancestors that were watched; NULL
 * when none came. */
UNI_API const float *uni_tensor_gradient(const uni_tensor *tensor);
/* A copy that outlives the step; the caller's reference. */
UNI_API UNI_MUST_USE int uni_tensor_to_array(uni_array **out, const uni_tensor *tensor,
                                             uni_error *err);
/* The tensor's data as a column; NULL gives dtype 0. */
static inline uni_column uni_tensor_column(const uni_tensor *tensor)
{
    static const uni_tensor_info none = { (uni_dtype)0, 0, { 0 }, 0, NULL };
    const uni_tensor_info *info = tensor ? uni_tensor_info_of(tensor) : &none;
    return uni_column_view(info->dtype, info->ndim, info->shape, info->data);
}

#ifdef __cplusplus
}
#endif
#include <unisono/ops.h>
#endif
