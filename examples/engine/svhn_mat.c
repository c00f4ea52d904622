/* svhn_mat.c - see svhn_mat.h. A file is a header of 128 bytes and elements: type, size, data,
 * padded to 8; a variable is a compressed element with one matrix: flags, dimensions, name,
 * data. */
#include "svhn_mat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    MI_INT8 = 1,
    MI_UINT8 = 2,
    MI_INT32 = 5,
    MI_UINT32 = 6,
    MI_DOUBLE = 9,
    MI_MATRIX = 14,
    MI_COMPRESSED = 15
};
#define MAX_BYTES ((size_t)4 << 30)
#define PIXELS 3072

typedef struct bytes {
    const unsigned char *at;
    size_t left;
} bytes;

typedef struct element {
    uint32_t type;
    bytes data;
} element;

typedef struct matrix {
    char name[16];
    int64_t dims[4];
    int num_dims;
    element values;
} matrix;

static uint32_t number_at(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The next element; small ones have type and size in one word. */
static bool next_element(bytes *from, element *out)
{
    if (from->left < 8)
        return false;
    uint32_t word = number_at(from->at), size = number_at(from->at + 4);
    bool small = word >> 16 != 0;
    size_t head = small ? 4 : 8;
    out->type = small ? word & 0xffff : word;
    size = small ? word >> 16 : size;
    if (size > from->left - head || (small && size > 4))
        return false;
    out->data = (bytes){ from->at + head, size };
    size_t whole = small ? 8 : head + size;
    if (out->type != MI_COMPRESSED)
        whole = (whole + 7) / 8 * 8;
    whole = whole < from->left ? whole : from->left;
    from->at += whole;
    from->left -= whole;
    return true;
}

static bool read_matrix(bytes from, matrix *out)
{
    element flags, dims, name;
    memset(out, 0, sizeof *out);
    if (!next_element(&from, &flags) || flags.type != MI_UINT32 || !next_element(&from, &dims) ||
        dims.type != MI_INT32 || !next_element(&from, &name) || name.type != MI_INT8 ||
        !next_element(&from, &out->values))
        return false;
    out->num_dims = (int)(dims.data.left / 4);
    if (out->num_dims < 2 || out->num_dims > 4 || name.data.left >= sizeof out->name)
        return false;
    memcpy(out->name, name.data.at, name.data.left);
    for (int i = 0; i < out->num_dims; i++)
        out->dims[i] = (int64_t)number_at(dims.data.at + (size_t)i * 4);
    return true;
}

/* A compressed element's contents; grows with what really comes out. */
static unsigned char *inflate_all(bytes from, size_t *size)
{
    z_stream stream = { .next_in = (unsigned char *)(uintptr_t)from.at,
                        .avail_in = (unsigned)from.left };
    size_t capacity = 1 << 20;
    unsigned char *data = malloc(capacity);
    int code = data != NULL ? inflateInit(&stream) : Z_MEM_ERROR;
    *size = 0;
    while (code == Z_OK) {
        if (*size == capacity) {
            unsigned char *grown = capacity < MAX_BYTES ? realloc(data, 2 * capacity) : NULL;
            if (grown == NULL)
                break;
            data = grown;
            capacity *= 2;
        }
        size_t room = capacity - *size < (1u << 30) ? capacity - *size : (1u << 30);
        stream.next_out = data + *size;
        stream.avail_out = (unsigned)room;
        code = inflate(&stream, Z_NO_FLUSH);
        *size += room - stream.avail_out;
    }
    inflateEnd(&stream);
    if (code == Z_STREAM_END)
        return data;
    free(data);
    return NULL;
}

typedef struct variables {
    matrix x, y;
    unsigned char *memory[2]; /* of both, when they were compressed */
    int count;
} variables;

static bool take_variable(variables *all, element one)
{
    matrix found;
    unsigned char *memory = NULL;
    if (one.type == MI_COMPRESSED) {
        size_t size = 0;
        memory = inflate_all(one.data, &size);
        bytes inside = { memory, size };
        if (memory == NULL || !next_element(&inside, &one)) {
            free(memory);
            return false;
        }
    }
    matrix *place = NULL;
    if (one.type == MI_MATRIX && read_matrix(one.data, &found))
        place = strcmp(found.name, "X") == 0   ? &all->x
                : strcmp(found.name, "y") == 0 ? &all->y
                                               : NULL;
    if (place == NULL || place->num_dims != 0 || all->count == 2) {
        free(memory);
        return true; /* something else */
    }
    *place = found;
    all->memory[all->count++] = memory;
    return true;
}

static bool right_shapes(const variables *all)
{
    const matrix *x = &all->x, *y = &all->y;
    int64_t n = x->dims[3];
    size_t each = y->values.type == MI_DOUBLE ? 8 : 1;
    return x->num_dims == 4 && x->dims[0] == 32 && x->dims[1] == 32 && x->dims[2] == 3 && n > 4 &&
           n < 1000000 && x->values.type == MI_UINT8 && x->values.data.left == (size_t)n * PIXELS &&
           y->num_dims == 2 && y->dims[0] * y->dims[1] == n &&
           (y->values.type == MI_UINT8 || y->values.type == MI_DOUBLE) &&
           y->values.data.left == (size_t)n * each;
}

static int label_at(const matrix *y, int64_t i)
{
    double number = y->values.data.at[i];
    if (y->values.type == MI_DOUBLE)
        memcpy(&number, y->values.data.at + 8 * i, sizeof number);
    return number >= 1 && number <= 10 ? (int)number % 10 : -1;
}

/* Columns first in the file, rows first here. */
static int take_images(const variables *all, image_set *train, image_set *test, int64_t limit)
{
    int64_t n = limit > 0 && limit < all->x.dims[3] ? limit : all->x.dims[3];
    image_set *sets[2] = { train, test };
    for (int s = 0; s < 2; s++) {
        *sets[s] = (image_set){ .pixels = PIXELS };
        sets[s]->x = malloc((size_t)n * PIXELS * sizeof *sets[s]->x);
        sets[s]->y = malloc((size_t)n * sizeof *sets[s]->y);
        if (sets[s]->x == NULL || sets[s]->y == NULL)
            return UNI_ENOMEM;
    }
    for (int64_t i = 0; i < n; i++) {
        image_set *set = sets[i % 5 == 4];
        const unsigned char *from = all->x.values.data.at + (size_t)i * PIXELS;
        float *to = set->x + set->count * PIXELS;
        int label = label_at(&all->y, i);
        if (label < 0)
            return UNI_EFORMAT;
        for (int row = 0; row < 32; row++)
            for (int column = 0; column < 32; column++)
                for (int color = 0; color < 3; color++)
                    to[(row * 32 + column) * 3 + color] =
                        (float)from[row + 32 * column + 1024 * color] / 255.0f;
        set->y[set->count++] = label;
    }
    return 0;
}

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "re");
    unsigned char *data = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        long length = ftell(file);
        rewind(file);
        data = length > 0 && (size_t)length < MAX_BYTES ? malloc((size_t)length) : NULL;
        *size = data != NULL ? fread(data, 1, (size_t)length, file) : 0;
    }
    if (file != NULL)
        fclose(file);
    return data;
}

int svhn_load_mat(image_set *train, image_set *test, const char *path, int64_t limit,
                  uni_error *err)
{
    size_t size = 0;
    *train = *test = (image_set){ 0 };
    unsigned char *file = read_file(path, &size);
    if (file == NULL)
        return uni_error_set_errno(err, errno, "cannot read %s", path);
    variables all = { 0 };
    element one;
    bool good =
        size > 128 && memcmp(file, "MATLAB 5.0", 10) == 0 && memcmp(file + 126, "IM", 2) == 0;
    bytes rest = { file + 128, size > 128 ? size - 128 : 0 };
    while (good && all.count < 2 && next_element(&rest, &one))
        good = take_variable(&all, one);
    int status = good && right_shapes(&all) ? take_images(&all, train, test, limit) : UNI_EFORMAT;
    free(all.memory[0]);
    free(all.memory[1]);
    free(file);
    if (status == 0)
        return 0;
    images_free(train);
    images_free(test);
    return uni_error_set(err, status,
                         "%s is not as SVHN's files are: MATLAB 5 with X, uint8 (32, 32, 3, n), "
                         "and y, numbers from 1 to 10",
                         path);
}
