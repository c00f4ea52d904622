/*
 * internal.h - the structures of src/tensor, for its own files only.
 *
 * A tape owns an arena. Tensors and nodes are bump-allocated there and freed together at the next
 * begin. An operation with an input that needs a gradient records a node; the backward pass walks
 * the nodes in reverse order of recording.
 */
#ifndef UNISONO_TENSOR_INTERNAL_H
#define UNISONO_TENSOR_INTERNAL_H

#include <stdalign.h>
#include <unisono/tensor.h>
#include "tensor/shared.h"
#include "tensor/kernels.h"
#include "tensor/helpers.h"

#define UNI__ALIGN 64
#define UNI__MAX_NAMES 16

/* ---- arena.c: bump allocation, with reuse of released blocks inside a step ---- */

typedef struct uni__arena uni__arena;
uni__arena *uni__arena_new(void);
void uni__arena_free(uni__arena *arena);
void uni__arena_reset(uni__arena *arena);
/* 64-byte aligned, undefined contents; NULL: out of memory. */
void *uni__arena_alloc(uni__arena *arena, size_t size);
void uni__arena_release(uni__arena *arena, void *block, size_t size);
size_t uni__arena_bytes(const uni__arena *arena);

/* ---- parameters.c ---- */

struct uni_parameter {
    union {
        uni_parameter_info info; /* what users see of it: the same fields */
        struct {
            const char *name; /* owned */
            uni_parameter_kind kind;
            bool frozen;
            int ndim;
            int64_t shape[UNI_TENSOR_MAX_DIMS];
            size_t size, offset;
        };
    };
    uni_parameters *store;
    size_t index;
};

struct uni_gradients {
    uni_parameters *store;
    float *data;
    bool borrowed; /* the caller owns data */
    size_t size;
    /* Per parameter: the stamp of the last backward pass that wrote it. */
    uint32_t *stamps;
    /* The same for the last one that changed the weight itself. */
    uint32_t *descended;
    size_t num_stamps;
    uint32_t stamp;
};
/* Follows the growth of the store, and starts a new stamp. */
int uni__gradients_begin(uni_gradients *gradients, uni_error *err);

/* ---- tensors and nodes ---- */

typedef struct uni__node uni__node;

struct uni_tensor {
    union {
        uni_tensor_info info; /* what users see of it: the same fields */
        struct {
            uni_dtype dtype;
            int ndim;
            int64_t shape[UNI_TENSOR_MAX_DIMS];
            size_t count;
            void *data;
        };
    };
    float *gradient; /* of the backward pass; from the arena, NULL until the first contribution */
    const uni_parameter *parameter;
    bool needs_gradient, watched;
    /* data was allocated for this tensor, on the tape. */
    bool owned;
    /* What a sigmoid or softmax was applied to, for uni_op_loss; NULL: not made by one. */
    uni_tensor *logits;
    bool is_sigmoid; /* of logits */
};

struct uni__node {
    uni__node *previous;
    void (*backward)(uni_tape *tape, uni__node *node);
    const char *operation, *layer;
    uni_tensor *out;
    int num_inputs;
    uni_tensor **inputs;
    alignas(16) unsigned char payload[];
};

#define UNI__MAX_PROFILE 96

typedef struct uni__onednn uni__onednn;

struct uni_tape {
    uni__arena *arena;
    const uni__tensor_kernels *kernels;
    uni__onednn *onednn; /* the caches of primitives */
    int threads;
    uni__helpers *helpers; /* of these threads */
    bool reference;
    uni_step step;
    bool recording;
    uni__node *last;
    uni_error error;
    uni_tensor *added_losses;
    const char *names[UNI__MAX_NAMES];
    int num_names;
    bool gradient_done;
    bool accumulate;
    const uni__descent *descent; /* of the current backward pass */
    /* Of the last backward pass. */
    uni__factored factored[UNI__MAX_FACTORED];
    size_t num_factored;
    uint32_t said; /* bits of uni__tape_once */
    /* The losses per example that this step computed last. */
    uni_tensor *per_example;
    /* The regularization that this step computed last. */
    uni__penalty penalty;
    bool profiling;
    size_t num_profile;
    uni__profile_entry profile[UNI__MAX_PROFILE];
};

/* Data access, float32. */
static inline float *f32(const uni_tensor *tensor)
{
    return tensor->data;
}

/* ---- tape.c, tape_backward.c: building blocks of operations ---- */

/* Makes a tensor of the given shape with memory; NULL on failure (the tape has the error). */
uni_tensor *uni__new(uni_tape *tape, uni_dtype dtype, int ndim, const int64_t *shape);
/* The same without memory, for views; the caller provides the data. */
uni_tensor *uni__new_view(uni_tape *tape, uni_dtype dtype, int ndim, const int64_t *shape,
                          void *data);
uni_tensor *uni__new_like(uni_tape *tape, const uni_tensor *like);
/* Memory until the next begin; NULL with the error set. */
void *uni__scratch(uni_tape *tape, size_t size);
float *uni__scratch_floats(uni_tape *tape, size_t count);
void uni__release(uni_tape *tape, void *block, size_t size);
void uni__release_floats(uni_tape *tape, float *block, size_t count);

/* Records `out` as made from inputs. Returns payload_size zeroed bytes, or NULL when nothing is
 * recorded: no input needs a gradient, the tape does not record, or memory is exhausted, which
 * fails the tape. */
void *uni__tape_record(uni_tape *tape, const char *operation, uni_tensor *out, int num_inputs,
                       uni_tensor *const *inputs, void (*backward)(uni_tape *, uni__node *),
                       size_t payload_size);

/* Where the gradient of `tensor` goes; NULL when it needs none. *add: add to it, otherwise set all
 * of it. */
float *uni__gradient_target(uni_tape *tape, uni_tensor *tensor, bool *add);
/* True when the node may change the weight `tensor` instead of writing its gradient
 * (tape->descent); it must then do so. */
bool uni__descends(uni_tape *tape, const uni__node *node, const uni_tensor *tensor);
/* Passes a buffer of tensor->count floats from the arena on as the gradient (or adds it and
 * releases it). */
void uni__gradient_give(uni_tape *tape, uni_tensor *tensor, float *buffer);
/* Transfers the node's output gradient to the caller, which releases it or passes it on. */
float *uni__gradient_take(uni_tape *tape, uni__node *node);

/* Argument checks: false with the tape failed, or when an argument is NULL (it failed earlier). */
bool uni__check_f32(uni_tape *tape, const char *operation, const uni_tensor *tensor);
/* Resolves negative axes; -1 with the tape failed. */
int uni__axis(uni_tape *tape, const char *operation, const uni_tensor *tensor, int axis);
size_t uni__shape_count(int ndim, const int64_t *shape);
/* Product of shape[from .. to-1]. */
int64_t uni__shape_span(const int64_t *shape, int from, int to);
bool uni__same_shape(const uni_tensor *a, const uni_tensor *b);
/* The shape as text for messages, in the tape's memory. */
const char *uni__shape(uni_tape *tape, const uni_tensor *tensor);

/* Time of kernels, when profiling. */
double uni__clock_begin(uni_tape *tape);
void uni__clock_end(uni_tape *tape, const char *operation, double begin, double flops);

/* Threads for `work` (about nanoseconds on one thread): 1 when splitting does not pay off. */
int uni__threads_for(const uni_tape *tape, double work);
/* Calls body for pieces [begin, end) of [0, n), each a multiple of `grain` except the last, on the
 * tape's threads when n * cost (nanoseconds per item) is large enough. */
void uni__for(uni_tape *tape, size_t n, size_t grain, double cost,
              void (*body)(void *context, size_t begin, size_t end), void *context);

/* ---- shared by operation files ---- */

/* Sums x of shape `from` into the shape `to` that broadcasts to it (right-aligned); `out` has the
 * element count of `to`. */
void uni__sum_to(uni_tape *tape, const float *x, int from_ndim, const int64_t *from, int to_ndim,
                 const int64_t *to, float *out, bool add);
/* Casts x to float32 unless it is already; NULL on failure. */
uni_tensor *uni__as_f32(uni_tape *tape, uni_tensor *x);
/* Copies an index tensor as i64 into the tape's memory (floats must be integers); NULL on
 * failure. */
const int64_t *uni__indices(uni_tape *tape, const char *operation, const uni_tensor *ids);
/* True when the gradient of the activation can be computed from its result. */
bool uni__activation_from_output(uni_activation kind);
/* The same, and its argument need not be kept: dense and conv then apply the activation in place.
 * A sigmoid keeps it, because cross-entropies are computed from it. */
bool uni__activation_in_place(uni_activation kind);

/* dy[rows, cols] *= f'(y) in place, dbias[cols] (+)= its column sums (NULL: not needed), on the
 * tape's threads. */
void uni__bias_backward(uni_tape *tape, const float *y, float *dy, float *dbias, bool add,
                        size_t rows, size_t cols, uni_activation kind);

/* ---- onednn.h has the rest: products and convolutions ---- */

#endif
