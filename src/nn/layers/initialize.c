/*
 * initialize.c - Keras's initialisers by name.
 *
 * Numbers come from Philox: the key is the model's seed mixed with the initialiser's, the stream a
 * hash of the parameter's name, the counter the element. So a value depends only on seed, name and
 * position, not on the order of layers or the number of threads or workers. Pure functions;
 * building thread.
 */
#include "nn/layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unisono/experimental/custom_layer.h>

#include "base/random.h"
#include "nn/loss/names.h"
#include "tensor/update.h"

enum kind {
    CONSTANT,
    IDENTITY,
    UNIFORM,
    NORMAL,
    TRUNCATED,
    ORTHOGONAL,
    SCALED_UNIFORM,
    SCALED_NORMAL
};
enum fan { FAN_IN, FAN_AVERAGE };

static const struct entry {
    const char *name, *class_name; /* of the function and of the class */
    enum kind kind;
    double value; /* constants: the value; scaled initialisers: the scale */
    enum fan fan;
} table[] = {
    { "zeros", "Zeros", CONSTANT, 0, 0 },
    { "ones", "Ones", CONSTANT, 1, 0 },
    { "constant", "Constant", CONSTANT, 0, 0 },
    { "identity", "Identity", IDENTITY, 1, 0 },
    { "random_uniform", "RandomUniform", UNIFORM, 0, 0 },
    { "random_normal", "RandomNormal", NORMAL, 0, 0 },
    { "truncated_normal", "TruncatedNormal", TRUNCATED, 0, 0 },
    { "orthogonal", "Orthogonal", ORTHOGONAL, 0, 0 },
    { "glorot_uniform", "GlorotUniform", SCALED_UNIFORM, 1, FAN_AVERAGE },
    { "glorot_normal", "GlorotNormal", SCALED_NORMAL, 1, FAN_AVERAGE },
    { "he_uniform", "HeUniform", SCALED_UNIFORM, 2, FAN_IN },
    { "he_normal", "HeNormal", SCALED_NORMAL, 2, FAN_IN },
    { "lecun_uniform", "LecunUniform", SCALED_UNIFORM, 1, FAN_IN },
    { "lecun_normal", "LecunNormal", SCALED_NORMAL, 1, FAN_IN },
};

static const struct entry *find(const char *name)
{
    if (strcasecmp(name, "uniform") == 0)
        name = "random_uniform";
    if (strcasecmp(name, "normal") == 0)
        name = "random_normal";
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcasecmp(table[i].name, name) == 0 || strcasecmp(table[i].class_name, name) == 0)
            return &table[i];
    return NULL;
}

int uni__initializer_resolve(uni_initializer *out, const uni_initializer *given,
                             const char *default_name, uni_error *err)
{
    uni_initializer result = given != NULL ? *given : (uni_initializer){ 0 };
    const char *name = result.name != NULL ? result.name : default_name;
    const struct entry *entry = find(name);
    if (entry == NULL) {
        const char *names[sizeof table / sizeof table[0]];
        for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
            names[i] = table[i].name;
        return uni__unknown_name(err, "initializer", name, names, sizeof table / sizeof table[0]);
    }
    result.name = entry->name;
    if (entry->kind == UNIFORM && result.low == 0 && result.high == 0) {
        result.low = -0.05;
        result.high = 0.05;
    }
    if ((entry->kind == NORMAL || entry->kind == TRUNCATED) && result.stddev == 0)
        result.stddev = 0.05;
    if ((entry->kind == ORTHOGONAL || entry->kind == IDENTITY) && result.gain == 0)
        result.gain = 1;
    if (entry->kind == CONSTANT && strcmp(entry->name, "constant") != 0)
        result.value = entry->value;
    *out = result;
    return 0;
}

void uni__layer_initializer(uni_layer *layer, uni_initializer *initializer,
                            const char *default_name)
{
    uni_error err = { 0 };
    if (uni__initializer_resolve(initializer, initializer, default_name, &err) < 0)
        uni_layer_fail(layer, err.code, "%s", err.message);
}

bool uni__initializer_is_random(const uni_initializer *initializer)
{
    const struct entry *entry = initializer->name != NULL ? find(initializer->name) : NULL;
    return entry != NULL && entry->kind != CONSTANT && entry->kind != IDENTITY;
}

/* ---- random numbers ---- */

struct source {
    uint32_t key[2], stream[2];
};

static struct source source_of(const char *name, uint64_t seed, uint64_t own_seed)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    uint64_t key = seed ^ own_seed * 0x9e3779b97f4a7c15u;
    return (struct source){ { (uint32_t)key, (uint32_t)(key >> 32) },
                            { (uint32_t)hash, (uint32_t)(hash >> 32) } };
}

/* Four numbers in [0, 1) for elements 4 * block ... */
static void uniform4(const struct source *source, uint64_t block, uint32_t attempt, double out[4])
{
    uint32_t bits[4], counter[4] = { (uint32_t)block, (uint32_t)(block >> 32) ^ attempt << 16,
                                     source->stream[0], source->stream[1] };
    uni__philox(counter, source->key, bits);
    for (int i = 0; i < 4; i++)
        out[i] = bits[i] * 0x1p-32;
}

static void normal4(const struct source *source, uint64_t block, uint32_t attempt, double out[4])
{
    double unit[4];
    uniform4(source, block, attempt, unit);
    for (int i = 0; i < 4; i += 2) {
        double radius = sqrt(-2 * log(1 - unit[i])), angle = 6.283185307179586 * unit[i + 1];
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

static void fill_uniform(float *out, size_t count, const struct source *source, double low,
                         double high)
{
    uni__fill_uniform(out, count,
                      &(uni__uniform){ { source->key[0], source->key[1] },
                                       { source->stream[0], source->stream[1] },
                                       low,
                                       high });
}

static void fill_normal(float *out, size_t count, const struct source *source, double mean,
                        double stddev, bool truncated)
{
    double value[4], again[4];
    for (size_t i = 0; i < count; i += 4) {
        normal4(source, i / 4, 0, value);
        for (size_t j = 0; j < 4 && i + j < count; j++) {
            for (uint32_t attempt = 1; truncated && fabs(value[j]) > 2; attempt++) {
                normal4(source, i / 4, attempt, again);
                value[j] = again[j];
            }
            out[i + j] = (float)(mean + stddev * value[j]);
        }
    }
}

/* Makes the rows of (rows, columns) orthonormal by Gram-Schmidt, twice for accuracy; the longer
 * side is the length of the vectors. */
static int fill_orthogonal(float *out, size_t rows, size_t columns, const struct source *source,
                           double gain, uni_error *err)
{
    size_t vectors = rows < columns ? rows : columns, length = rows < columns ? columns : rows;
    double *matrix = malloc((vectors * length + 4) * sizeof *matrix);
    if (matrix == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for an orthogonal matrix of %zu x %zu",
                             rows, columns);
    for (size_t i = 0; i < vectors * length; i += 4)
        normal4(source, i / 4, 0, matrix + i);
    for (size_t v = 0; v < vectors; v++) {
        double *self = matrix + v * length, norm = 0;
        for (size_t pass = 0; pass < 2; pass++)
            for (size_t u = 0; u < v; u++) {
                const double *other = matrix + u * length;
                double product = 0;
                for (size_t i = 0; i < length; i++)
                    product += self[i] * other[i];
                for (size_t i = 0; i < length; i++)
                    self[i] -= product * other[i];
            }
        for (size_t i = 0; i < length; i++)
            norm += self[i] * self[i];
        norm = sqrt(norm);
        for (size_t i = 0; i < length; i++) {
            self[i] /= norm;
            size_t row = rows < columns ? v : i, column = rows < columns ? i : v;
            out[row * columns + column] = (float)(gain * self[i]);
        }
    }
    free(matrix);
    return 0;
}

/* Keras's compute_fans: all axes but the last two are the receptive field. */
static void fans(const uni_parameter *parameter, double *in, double *out)
{
    int ndim = uni_parameter_info_of(parameter)->ndim;
    const int64_t *shape = uni_parameter_info_of(parameter)->shape;
    double field = 1;
    for (int i = 0; i < ndim - 2; i++)
        field *= (double)shape[i];
    *in = ndim < 1 ? 1 : ndim == 1 ? (double)shape[0] : field * (double)shape[ndim - 2];
    *out = ndim < 1 ? 1 : ndim == 1 ? (double)shape[0] : field * (double)shape[ndim - 1];
}

int uni__initialize(const uni_parameter *parameter, const uni_initializer *initializer,
                    uint64_t seed, uni_error *err)
{
    const struct entry *entry = find(initializer->name);
    float *data = uni_parameter_data(parameter);
    size_t count = uni_parameter_info_of(parameter)->size;
    int ndim = uni_parameter_info_of(parameter)->ndim;
    size_t columns = ndim > 0 ? (size_t)uni_parameter_info_of(parameter)->shape[ndim - 1] : 1;
    struct source source =
        source_of(uni_parameter_info_of(parameter)->name, seed, initializer->seed);
    double fan_in, fan_out;
    fans(parameter, &fan_in, &fan_out);
    double fan = entry->fan == FAN_IN ? fan_in : (fan_in + fan_out) / 2,
           scale = entry->value / (fan > 1 ? fan : 1);
    switch (entry->kind) {
    case CONSTANT:
        for (size_t i = 0; i < count; i++)
            data[i] = (float)initializer->value;
        return 0;
    case IDENTITY:
        if (ndim != 2)
            return uni_error_set(err, UNI_ESHAPE,
                                 "the identity initializer needs a matrix, %s has %d dimensions",
                                 uni_parameter_info_of(parameter)->name, ndim);
        for (size_t i = 0; i < count; i++)
            data[i] = i / columns == i % columns ? (float)initializer->gain : 0;
        return 0;
    case UNIFORM:
        fill_uniform(data, count, &source, initializer->low, initializer->high);
        return 0;
    case SCALED_UNIFORM:
        fill_uniform(data, count, &source, -sqrt(3 * scale), sqrt(3 * scale));
        return 0;
    case NORMAL:
    case TRUNCATED:
        fill_normal(data, count, &source, initializer->mean, initializer->stddev,
                    entry->kind == TRUNCATED);
        return 0;
    case SCALED_NORMAL: /* 0.8796: standard deviation of a normal truncated at two */
        fill_normal(data, count, &source, 0, sqrt(scale) / .87962566103423978, true);
        return 0;
    case ORTHOGONAL:
        if (ndim < 2)
            return uni_error_set(
                err, UNI_ESHAPE,
                "the orthogonal initializer needs at least 2 dimensions, %s has %d",
                uni_parameter_info_of(parameter)->name, ndim);
        return count == 0 ? 0
                          : fill_orthogonal(data, count / columns, columns, &source,
                                            initializer->gain, err);
    }
    return 0;
}
