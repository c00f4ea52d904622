/*
 * model.c - the network of model.h.
 *
 * All parameters are one struct of floats, and so are their gradients and momenta: the update is one loop, and saving is one copy.
 */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 32, BATCH = 16 };

typedef struct parameters {
    float w1[HIDDEN][DIGITS_PIXELS];
    float b1[HIDDEN];
    float w2[DIGITS_CLASSES][HIDDEN];
    float b2[DIGITS_CLASSES];
} parameters;

struct digits_model {
    struct {
        parameters weights;
        parameters momentum;
    } saved; /* what a checkpoint has to hold */
    parameters gradient; /* scratch of one batch */
    uint64_t seed;
    int member;
};

/* splitmix64's finaliser over the keys: the same keys always give the same 64 bits. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t draw(const digits_model *model, uint64_t epoch, uint64_t index)
{
    return mix(mix(mix(model->seed) ^ (uint64_t)model->member) ^ mix(epoch << 32 | index));
}

/* Uniform in [-limit, limit]; stream 0 is for first weights. */
static float draw_weight(const digits_model *model, uint64_t index, float limit)
{
    return ((float)(draw(model, 0, index) >> 40) / (float)(1 << 23) - 1) * limit;
}

int digits_model_new(digits_model **out, uint64_t seed, int member, uni_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a model");
    digits_model *model = *out;
    model->seed = seed;
    model->member = member;
    uint64_t index = 0;
    for (int h = 0; h < HIDDEN; h++)
        for (int p = 0; p < DIGITS_PIXELS; p++)
            model->saved.weights.w1[h][p] =
                draw_weight(model, index++, sqrtf(6.0f / DIGITS_PIXELS));
    for (int c = 0; c < DIGITS_CLASSES; c++)
        for (int h = 0; h < HIDDEN; h++)
            model->saved.weights.w2[c][h] =
                draw_weight(model, index++, sqrtf(6.0f / (HIDDEN + DIGITS_CLASSES)));
    return 0;
}

void digits_model_free(digits_model *model)
{
    free(model);
}

/* hidden: HIDDEN activations; probabilities: DIGITS_CLASSES. */
static void forward(const parameters *w, const float *pixels, float *hidden, float *probabilities)
{
    for (int h = 0; h < HIDDEN; h++) {
        float sum = w->b1[h];
        for (int p = 0; p < DIGITS_PIXELS; p++)
            sum += w->w1[h][p] * pixels[p];
        hidden[h] = sum > 0 ? sum : 0;
    }
    float largest = -INFINITY, total = 0;
    for (int c = 0; c < DIGITS_CLASSES; c++) {
        float sum = w->b2[c];
        for (int h = 0; h < HIDDEN; h++)
            sum += w->w2[c][h] * hidden[h];
        probabilities[c] = sum;
        largest = sum > largest ? sum : largest;
    }
    for (int c = 0; c < DIGITS_CLASSES; c++) {
        probabilities[c] = expf(probabilities[c] - largest);
        total += probabilities[c];
    }
    for (int c = 0; c < DIGITS_CLASSES; c++)
        probabilities[c] /= total;
}

void digits_model_predict(const digits_model *model, const float *pixels, float *probabilities)
{
    float hidden[HIDDEN];
    forward(&model->saved.weights, pixels, hidden, probabilities);
}

/* Adds one image's gradient of the cross entropy; returns its loss. */
static double accumulate(const parameters *w, parameters *gradient, const float *pixels, int label)
{
    float hidden[HIDDEN], probabilities[DIGITS_CLASSES], back[HIDDEN] = { 0 };
    forward(w, pixels, hidden, probabilities);
    double loss = -log((double)probabilities[label] + 1e-12);
    for (int c = 0; c < DIGITS_CLASSES; c++) {
        float delta = probabilities[c] - (c == label ? 1.0f : 0.0f);
        gradient->b2[c] += delta;
        for (int h = 0; h < HIDDEN; h++) {
            gradient->w2[c][h] += delta * hidden[h];
            back[h] += delta * w->w2[c][h];
        }
    }
    for (int h = 0; h < HIDDEN; h++) {
        if (hidden[h] <= 0)
            continue;
        gradient->b1[h] += back[h];
        for (int p = 0; p < DIGITS_PIXELS; p++)
            gradient->w1[h][p] += back[h] * pixels[p];
    }
    return loss;
}

static void update(digits_model *model, int batch, double lr)
{
    float *w = (float *)&model->saved.weights, *m = (float *)&model->saved.momentum,
          *g = (float *)&model->gradient;
    for (size_t i = 0; i < sizeof(parameters) / sizeof(float); i++) {
        m[i] = 0.9f * m[i] + g[i] / (float)batch;
        w[i] -= (float)lr * m[i];
        g[i] = 0;
    }
}

double digits_model_train_epoch(digits_model *model, const digits_part *part, int epoch, double lr)
{
    /* The member's bag (drawn with replacement, the same in every epoch), in an order of this epoch's own. */
    int order[DIGITS_MAX];
    for (int i = 0; i < part->count; i++)
        order[i] = (int)(draw(model, UINT32_MAX, (uint64_t)i) % (uint64_t)part->count);
    for (int i = part->count - 1; i > 0; i--) {
        int j = (int)(draw(model, (uint64_t)epoch, (uint64_t)i) % (uint64_t)(i + 1));
        int swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    double loss = 0;
    for (int first = 0; first < part->count; first += BATCH) {
        int batch = part->count - first < BATCH ? part->count - first : BATCH;
        for (int i = first; i < first + batch; i++)
            loss += accumulate(&model->saved.weights, &model->gradient, part->pixels[order[i]],
                               part->labels[order[i]]);
        update(model, batch, lr);
    }
    return loss / part->count;
}

uni_value *digits_model_save(const digits_model *model)
{
    return uni_value_bytes(&model->saved, sizeof model->saved);
}

int digits_model_load(digits_model *model, const uni_value *saved, uni_error *err)
{
    size_t size = 0;
    const void *bytes = uni_value_as_bytes(saved, &size);
    if (!bytes || size != sizeof model->saved)
        return uni_error_set(err, UNI_EFORMAT,
                             "the saved model has %zu bytes, not %zu: it is of another network",
                             size, sizeof model->saved);
    memcpy(&model->saved, bytes, size);
    return 0;
}
