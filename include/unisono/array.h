/*
 * array.h - numbers in memory: an element type, a shape and a buffer.
 *
 * Arrays are what checkpoints, datasets and values carry. They have no gradients or devices (those
 * are in tensor.h), so a TensorFlow or PyTorch worker that uses them never loads the engine.
 * Storage is always dense, row-major and 64-byte aligned when the library made it.
 *
 * Thread rule: the reference count is atomic; the caller must protect the contents.
 *
 * @example
 * uni_array *weights = NULL;
 * if (uni_array_new(&weights, UNI_F32, 2, (const int64_t[]){ 28 * 28, 10 }, err) < 0)
 *     return err->code;
 * float *first = uni_array_data(weights);
 * first[0] = 1.0f;
 * uni_array_unref(weights);
 * @end
 */
#ifndef UNISONO_ARRAY_H
#define UNISONO_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, number (stored in files: never reuse one), bytes per element, NumPy's name */
#define UNI_DTYPE_LIST(X)                                                                          \
    X(F32, 1, 4, "float32")                                                                        \
    X(F64, 2, 8, "float64")                                                                        \
    X(I8, 3, 1, "int8")                                                                            \
    X(I16, 4, 2, "int16")                                                                          \
    X(I32, 5, 4, "int32")                                                                          \
    X(I64, 6, 8, "int64")                                                                          \
    X(U8, 7, 1, "uint8")                                                                           \
    X(U16, 8, 2, "uint16")                                                                         \
    X(U32, 9, 4, "uint32")                                                                         \
    X(U64, 10, 8, "uint64")                                                                        \
    X(B8, 11, 1, "bool")                                                                           \
    X(F16, 12, 2, "float16")                                                                       \
    X(BF16, 13, 2, "bfloat16")

typedef enum uni_dtype {
#define UNI_DTYPE_ENUM(name, number, size, text) UNI_##name = number,
    UNI_DTYPE_LIST(UNI_DTYPE_ENUM)
#undef UNI_DTYPE_ENUM
    /* Text, only for the columns of tensor.h: never in an array or a file. */
    UNI_STRING = 64
} uni_dtype;

#define UNI_MAX_DIMS 8

typedef struct uni_array uni_array;

/* 0 for a number that is not a dtype. */
UNI_API size_t uni_dtype_size(uni_dtype dtype);
/* "float32"; "?" for a number that is not a dtype. */
UNI_API const char *uni_dtype_name(uni_dtype dtype);

/* Zero-filled. ndim may be 0 (one element); a dimension may be 0 (no elements). Overflow is an
 * error. */
UNI_API UNI_MUST_USE int uni_array_new(uni_array **out, uni_dtype dtype, int ndim,
                                       const int64_t *shape, uni_error *err);
/* Borrows the caller's memory; `release(context)` (may be NULL) is called when the last
 * reference is released. */
UNI_API UNI_MUST_USE int uni_array_view(uni_array **out, uni_dtype dtype, int ndim,
                                        const int64_t *shape, void *data,
                                        void (*release)(void *context), void *context,
                                        uni_error *err);
/* Adds (and returns) or releases a reference; the last release frees the array. Both accept
 * NULL. */
UNI_API uni_array *uni_array_ref(uni_array *array);
UNI_API void uni_array_unref(uni_array *array);

/* The array must not be NULL. Everything is borrowed from it and does not change. */
typedef struct uni_array_info {
    uni_dtype dtype;
    int ndim;
    const int64_t *shape; /* ndim numbers */
    size_t count; /* elements */
    size_t bytes;
    void *data; /* NULL only if there are no elements */
} uni_array_info;
UNI_API const uni_array_info *uni_array_info_of(const uni_array *array);
/* Short forms. */
static inline uni_dtype uni_array_dtype(const uni_array *array)
{
    return uni_array_info_of(array)->dtype;
}
static inline int uni_array_ndim(const uni_array *array)
{
    return uni_array_info_of(array)->ndim;
}
static inline const int64_t *uni_array_shape(const uni_array *array)
{
    return uni_array_info_of(array)->shape;
}
static inline size_t uni_array_count(const uni_array *array)
{
    return uni_array_info_of(array)->count;
}
static inline size_t uni_array_bytes(const uni_array *array)
{
    return uni_array_info_of(array)->bytes;
}
static inline void *uni_array_data(const uni_array *array)
{
    return uni_array_info_of(array)->data;
}

#ifdef __cplusplus
}
#endif
#endif
