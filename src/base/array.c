/*
 * array.c - dense arrays with an atomic reference count.
 *
 * Header and contents are two allocations, because the caller may own the contents. Our own
 * contents come from calloc with room to align to 64 bytes: large ones are fresh zero pages of the
 * kernel and cost nothing until they are touched. Any thread may change the count; the caller
 * protects the contents.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/array.h>
#include "base/shared.h"

#define ALIGNMENT 64

struct uni_array {
    atomic_size_t references;
    atomic_bool shared;
    uni_array_info info; /* complete when the array is given out */
    int64_t shape[UNI_MAX_DIMS]; /* what info.shape points to */
    void (*release)(void *context);
    void *context;
};

size_t uni_dtype_size(uni_dtype dtype)
{
    switch ((int)dtype) {
#define DTYPE_SIZE(name, number, size, text)                                                       \
    case number:                                                                                   \
        return size;
        UNI_DTYPE_LIST(DTYPE_SIZE)
#undef DTYPE_SIZE
    default:
        return 0;
    }
}

const char *uni_dtype_name(uni_dtype dtype)
{
    switch ((int)dtype) {
#define DTYPE_NAME(name, number, size, text)                                                       \
    case number:                                                                                   \
        return text;
        UNI_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
    default:
        return "?";
    }
}

int uni__dtype_from_name(const char *name)
{
    if (!name)
        return 0;
#define DTYPE_MATCH(id, number, size, text)                                                        \
    if (strcmp(name, text) == 0)                                                                   \
        return number;
    UNI_DTYPE_LIST(DTYPE_MATCH)
#undef DTYPE_MATCH
    return 0;
}

/* Elements of the shape, checked so that count * size fits both size_t and int64_t. */
static int checked_count(size_t *count, uni_dtype dtype, int ndim, const int64_t *shape,
                         uni_error *err)
{
    size_t size = uni_dtype_size(dtype);
    if (size == 0)
        return uni_error_set(err, UNI_EDTYPE, "array: %d is not an element type", (int)dtype);
    if (ndim < 0 || ndim > UNI_MAX_DIMS)
        return uni_error_set(err, UNI_ESHAPE, "array: %d dimensions, but 0 to %d are possible",
                             ndim, UNI_MAX_DIMS);
    if (ndim > 0 && !shape)
        return uni_error_set(err, UNI_EINVAL, "array: a shape is needed for %d dimensions", ndim);
    size_t limit = (size_t)(INT64_MAX / 2) / size, total = 1;
    bool empty = false;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return uni_error_set(err, UNI_ESHAPE, "array: dimension %d is negative (%lld)", i,
                                 (long long)shape[i]);
        if (shape[i] == 0)
            empty = true;
        else if ((uint64_t)shape[i] > limit / total)
            return uni_error_set(err, UNI_ELIMIT,
                                 "array: the shape is too large for memory (dimension %d is %lld)",
                                 i, (long long)shape[i]);
        else
            total *= (size_t)shape[i];
    }
    *count = empty ? 0 : total;
    return 0;
}

static int new_header(uni_array **out, uni_dtype dtype, int ndim, const int64_t *shape,
                      uni_error *err)
{
    *out = NULL;
    size_t count = 0;
    UNI_TRY(checked_count(&count, dtype, ndim, shape, err));
    uni_array *array = malloc(sizeof *array); /* calloc bypasses the thread's cache */
    if (!array)
        return uni_error_set(err, UNI_ENOMEM, "array: no memory for its header");
    memset(array, 0, sizeof *array);
    atomic_init(&array->references, 1);
    if (ndim > 0)
        memcpy(array->shape, shape, (size_t)ndim * sizeof *shape);
    array->info = (uni_array_info){
        .dtype = dtype,
        .ndim = ndim,
        .shape = array->shape,
        .count = count,
        .bytes = count * uni_dtype_size(dtype),
    };
    *out = array;
    return 0;
}

int uni_array_new(uni_array **out, uni_dtype dtype, int ndim, const int64_t *shape, uni_error *err)
{
    uni_array *array = NULL;
    *out = NULL;
    UNI_TRY(new_header(&array, dtype, ndim, shape, err));
    size_t bytes = uni_array_bytes(array);
    if (bytes > 0) {
        char *block = calloc(1, bytes + ALIGNMENT);
        if (!block) {
            free(array);
            return uni_error_set(err, UNI_ENOMEM, "array: no memory for %zu bytes", bytes);
        }
        array->info.data = block + (ALIGNMENT - (uintptr_t)block % ALIGNMENT) % ALIGNMENT;
        array->release = free;
        array->context = block;
    }
    *out = array;
    return 0;
}

int uni_array_view(uni_array **out, uni_dtype dtype, int ndim, const int64_t *shape, void *data,
                   void (*release)(void *context), void *context, uni_error *err)
{
    uni_array *array = NULL;
    *out = NULL;
    UNI_TRY(new_header(&array, dtype, ndim, shape, err));
    if (array->info.count > 0 && !data) {
        free(array);
        return uni_error_set(err, UNI_EINVAL, "array view: the memory is NULL but not empty");
    }
    array->info.data = array->info.count > 0 ? data : NULL;
    array->release = release;
    array->context = context;
    *out = array;
    return 0;
}

uni_array *uni_array_ref(uni_array *array)
{
    if (array)
        atomic_fetch_add_explicit(&array->references, 1, memory_order_relaxed);
    return array;
}

void uni_array_unref(uni_array *array)
{
    if (!array || atomic_fetch_sub_explicit(&array->references, 1, memory_order_acq_rel) != 1)
        return;
    if (array->release)
        array->release(array->context);
    free(array);
}

const uni_array_info *uni_array_info_of(const uni_array *array)
{
    return &array->info;
}

void uni__array_mark_shared(uni_array *array)
{
    atomic_store_explicit(&array->shared, true, memory_order_relaxed);
}

bool uni__array_is_shared(const uni_array *array)
{
    return atomic_load_explicit(&array->shared, memory_order_relaxed);
}

bool uni__array_equal(const uni_array *a, const uni_array *b)
{
    if (a == b)
        return true;
    if (!a || !b || a->info.dtype != b->info.dtype || a->info.ndim != b->info.ndim)
        return false;
    if (memcmp(a->shape, b->shape, (size_t)a->info.ndim * sizeof *a->shape) != 0)
        return false;
    return a->info.count == 0 || memcmp(a->info.data, b->info.data, uni_array_bytes(a)) == 0;
}
