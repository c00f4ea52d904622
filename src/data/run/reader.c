/*
 * reader.c - the memory of one reading thread: arrays from the pool, persistent scratch buffers,
 * and the handling of bad rows.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "data/run/pool.h"

struct uni__reader {
    uni__pool *pool;
    uni__bad *bad;
    bool owns; /* owns pool and bad (uni__reader_new) */
    const atomic_int *cancelled; /* NULL: never cancelled */
    void *scratch[UNI__SCRATCH_COUNT];
    size_t sizes[UNI__SCRATCH_COUNT];
};

int uni__reader_of(uni__reader **out, uni__pool *pool, uni__bad *bad, uni_error *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a reader");
    (*out)->pool = pool;
    (*out)->bad = bad;
    return 0;
}

int uni__reader_new(uni__reader **out, bool skip_bad, uni_error *err)
{
    uni__pool *pool = NULL;
    *out = NULL;
    uni__bad *bad = calloc(1, sizeof *bad);
    if (bad == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a reader");
    bad->skip = skip_bad;
    int status = 0;
    UNI_TRY_GOTO(uni__pool_new(&pool, (size_t)256 << 20, err), fail);
    UNI_TRY_GOTO(uni__reader_of(out, pool, bad, err), fail);
    (*out)->owns = true;
    return 0;
fail:
    uni__pool_unref(pool);
    free(bad);
    return status;
}

void uni__reader_free(uni__reader *reader)
{
    if (reader == NULL)
        return;
    for (int i = 0; i < UNI__SCRATCH_COUNT; i++)
        uni__pool_put(reader->scratch[i]);
    if (reader->owns) {
        uni__pool_unref(reader->pool);
        free(reader->bad);
    }
    free(reader);
}

int uni__reader_array(uni__reader *reader, uni_array **out, uni_dtype dtype, int ndim,
                      const int64_t *shape, uni_error *err)
{
    *out = NULL;
    size_t bytes = uni_dtype_size(dtype);
    for (int i = 0; i < ndim; i++) {
        if (__builtin_mul_overflow(bytes, (size_t)shape[i], &bytes))
            return uni_error_set(err, UNI_ELIMIT, "a column is too large for memory");
    }
    if (bytes == 0)
        return uni_array_new(out, dtype, ndim, shape, err);
    void *memory = uni__pool_get(reader->pool, bytes);
    if (memory == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a column of %zu bytes", bytes);
    int status = uni_array_view(out, dtype, ndim, shape, memory, uni__pool_put, memory, err);
    if (status < 0)
        uni__pool_put(memory);
    return status;
}

static void release_parent(void *context)
{
    uni_array_unref(context);
}

int uni__reader_trim(uni__reader *reader, uni_array **array, int64_t first_dimension,
                     uni_error *err)
{
    int64_t shape[UNI_MAX_DIMS] = { 0 };
    uni_array *whole = *array, *part = NULL;
    int ndim = uni_array_ndim(whole);
    for (int i = 0; i < ndim; i++)
        shape[i] = uni_array_shape(whole)[i];
    if (shape[0] == first_dimension)
        return 0;
    shape[0] = first_dimension;
    if (first_dimension == 0) { /* an empty array does not pin a buffer */
        UNI_TRY(uni_array_new(&part, uni_array_dtype(whole), ndim, shape, err));
        uni_array_unref(whole);
        *array = part;
        return 0;
    }
    UNI_TRY(uni_array_view(&part, uni_array_dtype(whole), ndim, shape, uni_array_data(whole),
                           release_parent, whole, err));
    *array = part;
    return 0;
}

void *uni__reader_scratch(uni__reader *reader, uni__scratch owner, size_t size)
{
    if (reader->sizes[owner] < size || reader->scratch[owner] == NULL) {
        uni__pool_put(reader->scratch[owner]);
        reader->scratch[owner] = uni__pool_get(reader->pool, size);
        reader->sizes[owner] = reader->scratch[owner] != NULL ? size : 0;
    }
    return reader->scratch[owner];
}

void uni__reader_release(uni__reader *reader, uni__scratch owner)
{
    uni__pool_put(reader->scratch[owner]);
    reader->scratch[owner] = NULL;
    reader->sizes[owner] = 0;
}

void uni__reader_watch(uni__reader *reader, const atomic_int *cancelled)
{
    reader->cancelled = cancelled;
}

int uni__reader_is_wanted(const uni__reader *reader, uni_error *err)
{
    if (reader->cancelled == NULL || !atomic_load_explicit(reader->cancelled, memory_order_relaxed))
        return 0;
    return uni_error_set(err, UNI_ECANCELED, "the reader of these rows is gone");
}

bool uni__reader_skips(const uni__reader *reader)
{
    return reader->bad->skip;
}

void uni__reader_leave_out(uni__reader *reader)
{
    atomic_fetch_add(&reader->bad->skipped, 1);
}

int64_t uni__reader_skipped(const uni__reader *reader)
{
    return atomic_load(&reader->bad->skipped);
}

int uni__reader_bad(uni__reader *reader, uni_error *err, const char *file, int64_t line,
                    int64_t column, const char *format, ...)
{
    char sentence[512], place[64] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    if (line > 0 && column > 0)
        snprintf(place, sizeof place, ":%lld:%lld", (long long)line, (long long)column);
    else if (line > 0)
        snprintf(place, sizeof place, ":%lld", (long long)line);
    const char *name = file != NULL ? file : "data";
    if (!reader->bad->skip)
        return uni_error_set(err, UNI_EFORMAT, "%s%s: %s", name, place, sentence);
    int64_t skipped = atomic_fetch_add(&reader->bad->skipped, 1) + 1;
    if (reader->bad->limit > 0 && skipped > reader->bad->limit)
        return uni_error_set(
            err, UNI_EFORMAT,
            "%s%s: %s (%lld bad rows were skipped before, and no more are allowed)", name, place,
            sentence, (long long)skipped - 1);
    return 0;
}
