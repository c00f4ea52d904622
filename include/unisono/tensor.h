/*
 * tensor.h - tensors, the tape that records a step, the parameter store. ops.h has the operations.
 *
 * A uni_tape is one replica's execution: an arena, a thread count, cached kernels and the record of the step that is
 * under way. Every operation takes the tape first and returns a tensor that the tape owns and that lives until the next
 * uni_tape_begin (or the tape's end): nothing to free, nothing allocated in a steady state. Errors stick to the tape: an
 * operation that fails returns NULL, one that is given NULL returns NULL, and the first error (with the shapes and the name
 * of the layer) comes out of uni_tape_gradient or uni_tape_status. So forward code can be written as nested calls.
 *
 * Parameters live in flat float buffers of a uni_parameters, always in Keras's own layout; gradients in a uni_gradients of the same
 * layout, one for each replica.
 *
 * Thread rule: a tape, and the gradients given to it, belong to one thread at a time. Two tapes may read one parameter store at the same
 * time. Only the owner of the store adds parameters, and not during a step.
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
#include <unisono/array.h>
#include <unisono/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UNI_TENSOR_MAX_DIMS 6

/* The element type of text, for inputs only; data is an array of uni_string. Not a dtype of files. */
#define UNI_STRING ((uni_dtype)64)

typedef struct uni_string {
    const char *data; /* UTF-8, not zero-terminated */
    size_t size;
} uni_string;

typedef struct uni_tape uni_tape;
typedef struct uni_tensor uni_tensor;
typedef struct uni_parameters uni_parameters;
typedef struct uni_parameter uni_parameter;
typedef struct uni_gradients uni_gradients;

/* ---- columns: borrowed data with a type and a shape; what fit takes and what batches are made of ---- */

typedef struct uni_column {
    uni_dtype dtype; /* 0: there is no column */
    int ndim; /* at most UNI_TENSOR_MAX_DIMS; the first dimension counts samples */
    int64_t shape[UNI_TENSOR_MAX_DIMS];
    const void *data; /* dense, row-major */
} uni_column;

/* Borrow; a shape that is too deep gives a column with dtype 0, which its taker refuses. */
UNI_API uni_column uni_column_view(uni_dtype dtype, int ndim, const int64_t *shape,
                                   const void *data);
UNI_API uni_column uni_column_array(const uni_array *array);
UNI_API uni_column uni_column_strings(int64_t count,
                                      const uni_string *strings); /* shape (count,) */
UNI_API size_t uni_column_sample_bytes(const uni_column *column); /* 0 when there are no samples */
/* Samples [begin, end) of a column, where they are. */
UNI_API uni_column uni_column_rows(const uni_column *column, int64_t begin, int64_t end);

/* ---- parameters ---- */

typedef enum uni_parameter_kind {
    UNI_PARAMETER_WEIGHT = 0, /* has a gradient; the optimizer changes it unless it is frozen */
    UNI_PARAMETER_STATE =
        1 /* moving averages, adapted statistics: changed by the forward pass or by adapt */
} uni_parameter_kind;

UNI_API UNI_MUST_USE int uni_parameters_new(uni_parameters **out, uni_error *err);
UNI_API void uni_parameters_free(uni_parameters *store);
/* A new float32 variable, zero-filled. `name` is copied ("dense_1/kernel"). The handle lives as long as the store. Data pointers
 * that were taken before are no longer good. */
UNI_API UNI_MUST_USE int uni_parameters_add(uni_parameters *store, uni_parameter **out,
                                            const char *name, uni_parameter_kind kind, int ndim,
                                            const int64_t *shape, uni_error *err);
UNI_API size_t uni_parameters_count(const uni_parameters *store);
UNI_API uni_parameter *uni_parameters_at(const uni_parameters *store,
                                         size_t index); /* in the order of creation */
/* The flat buffers: all weights (frozen ones too), all states. Each parameter starts on a 64-byte boundary; the gaps are zero.
 * Sizes count floats, gaps included. */
UNI_API float *uni_parameters_weights(const uni_parameters *store, size_t *size);
UNI_API float *uni_parameters_states(const uni_parameters *store, size_t *size);
/* Makes the weights live in the caller's memory (for example pages shared between ranks) of uni_parameters_weights' size,
 * 64-byte aligned; with `adopt` its contents become the values, otherwise the values are copied there. NULL: back to own memory. */
UNI_API UNI_MUST_USE int uni_parameters_rehome(uni_parameters *store, float *memory, bool adopt,
                                               uni_error *err);
/* Runs of neighbouring unfrozen weights in the flat buffer: what an optimizer updates and an all-reduce moves. Returns how many
 * there are; writes at most `max`. */
typedef struct uni_span {
    size_t begin, end; /* floats */
} uni_span;
UNI_API size_t uni_parameters_trainable(const uni_parameters *store, uni_span *spans, size_t max);

/* Names, shapes and data are borrowed from the store. */
UNI_API const char *uni_parameter_name(const uni_parameter *parameter);
UNI_API uni_parameter_kind uni_parameter_kind_of(const uni_parameter *parameter);
UNI_API int uni_parameter_ndim(const uni_parameter *parameter);
UNI_API const int64_t *uni_parameter_shape(const uni_parameter *parameter);
UNI_API size_t uni_parameter_size(const uni_parameter *parameter); /* elements */
UNI_API size_t
uni_parameter_offset(const uni_parameter *parameter); /* in its flat buffer, floats */
UNI_API float *uni_parameter_data(const uni_parameter *parameter);
UNI_API void uni_parameter_freeze(uni_parameter *parameter, bool frozen);
UNI_API bool uni_parameter_is_frozen(const uni_parameter *parameter); /* always true for states */

/* ---- zeros that are meant ---- */

/* In options 0 means the default. Where 0 itself has a meaning (a rate, momentum, epsilon, threshold, patience of 0), these ask for it. */
#define UNI_EXACTLY_ZERO (-1e-300)
#define UNI_NO_EPOCHS (-1)
#define UNI_NO_PATIENCE (-1)
#define UNI_SEED_ZERO UINT64_C(0x7a65726f73656564)

/* Gradients of every weight of one store, flat, zero at first. Follows the store when that grows. */
UNI_API UNI_MUST_USE int uni_gradients_new(uni_gradients **out, uni_parameters *store,
                                           uni_error *err);
UNI_API void uni_gradients_free(uni_gradients *gradients);
UNI_API uni_parameters *uni_gradients_store(const uni_gradients *gradients);
/* uni_parameters_trainable without the weights that the last backward pass changed itself (uni_descent). */
UNI_API size_t uni_gradients_trainable(const uni_gradients *gradients, uni_span *spans, size_t max);
UNI_API float *uni_gradients_data(uni_gradients *gradients,
                                  size_t *size); /* flat, as uni_parameters_weights */
UNI_API float *uni_gradients_of(uni_gradients *gradients,
                                const uni_parameter *parameter); /* NULL for a state */
UNI_API void uni_gradients_zero(uni_gradients *gradients);
/* As uni_parameters_rehome: contents move to the caller's memory (64-byte aligned, uni_gradients_data's size, good until the next rehome or
 * the end), or with NULL back to own memory. Own memory is given back while it is not used. */
UNI_API UNI_MUST_USE int uni_gradients_rehome(uni_gradients *gradients, float *memory,
                                              uni_error *err);

/* ---- the tape ---- */

typedef struct uni_tape_options {
    int threads; /* 0: the CPUs of this thread's affinity mask (OMP_NUM_THREADS when set) */
    bool
        reference; /* run the plain version of every kernel: slow, for tests and to hunt a wrong number */
} uni_tape_options;

/* How replicas act together inside one step; a strategy gives it. `sum` adds the values of all replicas, in place and bit-equal
 * everywhere; it is called on the tape's thread, may block, and is called equally often by all. */
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
        first_sample; /* where this replica's first sample stands in the global batch: part of the random key */
    const uni_sync *sync; /* batch statistics over all replicas; NULL: this replica only */
    bool
        keep_state; /* do not update moving averages (they are then the business of another replica) */
} uni_step;

UNI_API UNI_MUST_USE int uni_tape_new(uni_tape **out, const uni_tape_options *options,
                                      uni_error *err);
UNI_API void uni_tape_free(uni_tape *tape);
UNI_API int uni_tape_threads(const uni_tape *tape);
/* Starts a step: forgets all tensors and the error of the step before. Cheap; the memory is kept. */
UNI_API void uni_tape_begin(uni_tape *tape, const uni_step *step);
UNI_API const uni_step *uni_tape_step(const uni_tape *tape);
/* Whether the operations from here on run as in training, for a layer that is called with training=True or False of its own. Returns what it was before. */
UNI_API bool uni_tape_set_training(uni_tape *tape, bool training);
/* 0, or the first error since begin. */
UNI_API UNI_MUST_USE int uni_tape_status(const uni_tape *tape, uni_error *err);
/* For operations and layers: sets the sticky error ("dense_1: ..." is put before it) and returns NULL. */
UNI_API uni_tensor *uni_tape_fail(uni_tape *tape, int code, const char *format, ...)
    UNI_PRINTF(3, 4);
/* The name that errors and profiles carry, as "model/dense_1"; enter and leave in pairs. The text is borrowed until leave. */
UNI_API void uni_tape_enter(uni_tape *tape, const char *name);
UNI_API void uni_tape_leave(uni_tape *tape);

/* Tensors that come from outside; the data is borrowed until the next begin. */
UNI_API uni_tensor *uni_tape_input(uni_tape *tape, uni_dtype dtype, int ndim, const int64_t *shape,
                                   const void *data);
UNI_API uni_tensor *uni_tape_input_column(uni_tape *tape, const uni_column *column);
UNI_API uni_tensor *uni_tape_parameter(uni_tape *tape, const uni_parameter *parameter);
/* A new tensor with undefined contents, for the caller to fill, e.g. by an input layer. */
UNI_API uni_tensor *uni_tape_scratch(uni_tape *tape, uni_dtype dtype, int ndim,
                                     const int64_t *shape);
UNI_API uni_tensor *uni_tape_constant(uni_tape *tape, float value); /* shape () */

/* Losses that layers add on the way (activity regularisers): (); their sum, or NULL when there is none. */
UNI_API void uni_tape_add_loss(uni_tape *tape, uni_tensor *loss);
UNI_API uni_tensor *uni_tape_added_losses(uni_tape *tape);

/* Asks for uni_tensor_gradient of an input. */
UNI_API void uni_tape_watch(uni_tape *tape, uni_tensor *tensor);
/* The gradient of a dense layer's kernel is a product, x^T dz, of what the layer got and the gradient of what it gave. */
typedef struct uni_factors {
    const float *x, *dz;
    int64_t rows; /* x is (rows, in), dz (rows, out) */
} uni_factors;
#define UNI_DESCENT_MAX_PEERS 64
/* Replicas that share one set of weights and make the same pass at the same time. For every kernel of `least` weights and more they meet with their
 * factors, and each multiplies and changes only its rows of the kernel: no gradient is written, none is added up. */
typedef struct uni_descent_peers {
    int index, count; /* of UNI_DESCENT_MAX_PEERS at most */
    size_t least;
    void *context;
    /* Waits for all replicas; their factors, in the order of the replicas, are good until leave returns on all of them. */
    int (*meet)(void *context, const uni_factors *mine, int64_t in, int64_t out, uni_factors *all,
                uni_error *err);
    int (*leave)(void *context, uni_error *err);
} uni_descent_peers;
/* Plain gradient descent inside of the pass: w = keep * w - rate * gradient. */
typedef struct uni_descent {
    float rate, keep;
    const uni_descent_peers *peers; /* NULL: alone */
    /* Not 0: kernels of so many weights and more neither descend nor get a gradient, the pass keeps their factors (uni_tape_factored), and all others get gradients. For
     * replicas that show each other their factors after the pass; rate, keep and peers are not used. */
    size_t keep_factors;
} uni_descent;
/* The rows of a kernel that a replica changes: whole cache lines of the columns of x. */
UNI_API uni_span uni_descent_rows(int64_t in, int index, int count);
typedef struct uni_gradient_options {
    float scale; /* 0: 1 */
    bool accumulate;
    /* The step's tensors are not read afterwards: the memory of a result that the pass has gone by serves the gradients that
     * come (a quarter less for a convolution network). Watched tensors stay. */
    bool consume;
    /* The kernel of a dense layer that nothing else in the step uses goes down its gradient where that is computed: it is
     * never written out and read again. uni_gradients_trainable has the weights that are left for an optimizer. NULL: none does. */
    const uni_descent *descent;
    /* Called in the middle of the backward pass when nothing more will be added to a weight's gradient (not for those that the
     * loss does not reach); NULL: not reported. An error ends the pass. */
    int (*ready)(void *context, const uni_parameter *parameter, uni_error *err);
    void *ready_context;
} uni_gradient_options;
/* Walks the record backwards from `loss` (one element; a larger one is summed first) and fills the step's gradients: with
 * d(scale * loss)/d(parameter). Weights that the loss does not depend on get 0. With `accumulate` it adds to what is there. May be
 * called once a step; tensors stay readable until the next begin. */
UNI_API UNI_MUST_USE int uni_tape_gradient(uni_tape *tape, uni_tensor *loss,
                                           const uni_gradient_options *options, uni_error *err);

#define UNI_MAX_FACTORED 15 /* kernels a pass; further ones get gradients */
/* A kernel (in, out) whose gradient was not computed (keep_factors). */
typedef struct uni_factored {
    const uni_parameter *kernel;
    int64_t in, out;
    uni_factors factors;
} uni_factored;
/* Those of the last backward pass, the same on every replica; good until the next begin. */
UNI_API size_t uni_tape_factored(const uni_tape *tape, const uni_factored **out);
/* Takes the products of `count` replicas' factors off this replica's rows of the kernel (uni_descent_rows), in their order. */
UNI_API UNI_MUST_USE int uni_tape_descend(uni_tape *tape, const uni_factored *what,
                                          const uni_factors *all, int count, int index,
                                          const uni_descent *descent, uni_error *err);

/* Time in kernels since profiling began, by operation. */
typedef struct uni_profile_entry {
    const char *operation; /* "dense", "conv backward weights" ... */
    uint64_t calls;
    double seconds;
    double flops; /* floating-point operations, 0 where it makes no sense */
} uni_profile_entry;
UNI_API void uni_tape_profile(uni_tape *tape, bool on); /* clears */
UNI_API size_t uni_tape_profile_read(const uni_tape *tape, uni_profile_entry *entries, size_t max);
UNI_API size_t uni_tape_bytes(const uni_tape *tape); /* memory that the tape holds */

/* ---- tensors: dense, row-major, owned by the tape ---- */

/* Pointers are good as long as the tensor, until the next uni_tape_begin. */
UNI_API uni_dtype uni_tensor_dtype(const uni_tensor *tensor);
UNI_API int uni_tensor_ndim(const uni_tensor *tensor);
UNI_API const int64_t *uni_tensor_shape(const uni_tensor *tensor);
UNI_API int64_t uni_tensor_dim(const uni_tensor *tensor,
                               int axis); /* negative axes count from the end; 0 when none */
UNI_API size_t uni_tensor_count(const uni_tensor *tensor); /* elements */
UNI_API void *uni_tensor_data(const uni_tensor *tensor);
/* The first element as a number; NaN for NULL, strings and empty tensors. */
UNI_API double uni_tensor_scalar(const uni_tensor *tensor);
/* After uni_tape_gradient: of a watched input or of the loss' ancestors that were watched; NULL when none came. */
UNI_API const float *uni_tensor_gradient(const uni_tensor *tensor);
/* A copy that outlives the step; the caller's reference. */
UNI_API UNI_MUST_USE int uni_tensor_to_array(uni_array **out, const uni_tensor *tensor,
                                             uni_error *err);
UNI_API uni_column uni_tensor_column(const uni_tensor *tensor);
/* "(64, 128)" into out, always terminated; returns out. */
#define UNI_SHAPE_TEXT_SIZE 160
UNI_API const char *uni_shape_text(char out[UNI_SHAPE_TEXT_SIZE], int ndim, const int64_t *shape);

#ifdef __cplusplus
}
#endif
#include <unisono/ops.h>
#endif
