/*
 * reference.h - reads the files of tests/reference (safetensors: 8 bytes of header length, a JSON
 * header, arrays). For tests only. UNISONO_REFERENCE names the directory; meson sets it.
 */
#ifndef UNISONO_NN_REFERENCE_H
#define UNISONO_NN_REFERENCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/tensor.h>
#include <unisono/value.h>

#include "base/file.h"

typedef struct reference {
    char *bytes;
    size_t body; /* where the arrays begin */
    uni_value *header;
} reference;

typedef struct reference_array {
    uni_dtype dtype; /* 0: not found */
    int ndim;
    int64_t shape[UNI_MAX_DIMS];
    size_t count;
    const void *data;
} reference_array;

static inline const char *reference_root(void)
{
    const char *root = getenv("UNISONO_REFERENCE");
    return root != NULL ? root : "tests/reference";
}

static inline reference reference_open(const char *path)
{
    reference file = { 0 };
    char full[1024];
    size_t size = 0;
    uni_error err = { 0 };
    snprintf(full, sizeof full, "%s/%s", reference_root(), path);
    if (uni__read_file(&file.bytes, &size, full, (size_t)1 << 30, &err) < 0)
        fail_msg("%s", err.message);
    uint64_t length = 0;
    memcpy(&length, file.bytes, 8);
    assert_true(length < size);
    file.body = 8 + (size_t)length;
    if (uni_json_read(&file.header, file.bytes + 8, (size_t)length, &err) < 0)
        fail_msg("%s: %s", path, err.message);
    return file;
}

static inline void reference_close(reference *file)
{
    uni_value_free(file->header);
    free(file->bytes);
}

/* Opens every file of a folder of the references and checks it; returns their number. */
static inline int reference_each(const char *folder,
                                 void (*check)(const char *name, reference *file, void *context),
                                 void *context)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", reference_root(), folder);
    DIR *directory = opendir(path);
    assert_non_null(directory);
    int files = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%.200s", folder, entry->d_name);
        reference file = reference_open(path);
        check(entry->d_name, &file, context);
        reference_close(&file);
        files++;
    }
    closedir(directory);
    return files;
}

static inline const char *reference_text(const reference *file, const char *key)
{
    return uni_dict_get_string(uni_dict_get(file->header, "__metadata__"), key, NULL);
}

/* A metadata entry in JSON; the caller frees it. */
static inline uni_value *reference_json(const reference *file, const char *key)
{
    const char *text = reference_text(file, key);
    uni_value *value = NULL;
    if (text == NULL || uni_json_read(&value, text, strlen(text), NULL) < 0)
        return NULL;
    return value;
}

static inline reference_array reference_get(const reference *file, const char *format, int index)
{
    char name[64];
    snprintf(name, sizeof name, format, index);
    const uni_value *entry = uni_dict_get(file->header, name);
    reference_array array = { 0 };
    if (entry == NULL)
        return array;
    const char *dtype = uni_dict_get_string(entry, "dtype", "");
    array.dtype = strcmp(dtype, "F32") == 0   ? UNI_F32
                  : strcmp(dtype, "F64") == 0 ? UNI_F64
                  : strcmp(dtype, "I32") == 0 ? UNI_I32
                  : strcmp(dtype, "I64") == 0 ? UNI_I64
                  : strcmp(dtype, "U8") == 0  ? UNI_U8
                                              : UNI_B8;
    const uni_value *shape = uni_dict_get(entry, "shape");
    array.ndim = (int)uni_list_size(shape);
    array.count = 1;
    for (int i = 0; i < array.ndim; i++) {
        array.shape[i] = uni_value_as_int(uni_list_get(shape, (size_t)i), 0);
        array.count *= (size_t)array.shape[i];
    }
    const uni_value *offsets = uni_dict_get(entry, "data_offsets");
    array.data = file->bytes + file->body + uni_value_as_int(uni_list_get(offsets, 0), 0);
    return array;
}

/* |got - want| <= absolute + relative * |want| for all elements; reports the first violation. */
static inline void assert_close(const char *what, const float *got, const reference_array *want,
                                double absolute, double relative)
{
    for (size_t i = 0; i < want->count; i++) {
        double expected = (double)((const float *)want->data)[i], have = (double)got[i];
        if (isnan(expected) != isnan(have) ||
            fabs(have - expected) > absolute + relative * fabs(expected))
            fail_msg("%s: element %zu of %zu is %.9g, Keras has %.9g", what, i, want->count, have,
                     expected);
    }
}

#endif
