/*
 * names.c - layer names as Keras makes them, shapes as text, and the checks shared by build and
 * infer. Pure functions except for uni_layer_named; building thread.
 */
#include "nn/layer.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "tensor/shared.h"

uni_layer *uni_layer_named(uni_layer *layer, const char *name)
{
    if (layer == NULL)
        return NULL;
    if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL)
        return uni_layer_fail(layer, UNI_EINVAL,
                              "a layer's name has at least one character and no '/', got \"%s\"",
                              name != NULL ? name : "NULL");
    char *copy = strdup(name);
    if (copy == NULL)
        return uni_layer_fail(layer, UNI_ENOMEM, "no memory for the name \"%s\"", name);
    free(layer->name);
    layer->name = copy;
    return layer;
}

/* Keras's two substitutions: "(.)([A-Z][a-z]+)" and "([a-z])([A-Z])" to "\1_\2", then lower case.
 * */
char *uni__layer_snake_case(const char *class_name)
{
    size_t length = strlen(class_name);
    char *out = malloc(2 * length + 1);
    if (out == NULL)
        return NULL;
    size_t size = 0;
    for (size_t i = 0; i < length; i++) {
        char c = class_name[i], before = i > 0 ? class_name[i - 1] : '\0',
             after = class_name[i + 1];
        if (isupper((unsigned char)c) && before != '\0' && before != '_' &&
            (islower((unsigned char)after) || islower((unsigned char)before)))
            out[size++] = '_';
        out[size++] = (char)tolower((unsigned char)c);
    }
    out[size] = '\0';
    return out;
}

static bool is_taken(const char *name, uni_layer *const *others, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (others[i]->name != NULL && strcmp(others[i]->name, name) == 0)
            return true;
    return false;
}

int uni__layer_make_name(uni_layer *layer, uni_layer *const *others, size_t count, uni_error *err)
{
    if (layer->name != NULL) {
        if (is_taken(layer->name, others, count))
            return uni_error_set(
                err, UNI_EEXISTS,
                "two layers of the model have the name \"%s\"; names must be unique", layer->name);
        return 0;
    }
    char *stem = uni__layer_snake_case(layer->class_->name);
    size_t size = stem != NULL ? strlen(stem) + 24 : 0;
    char *name = stem != NULL ? malloc(size) : NULL;
    if (name == NULL) {
        free(stem);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the name of a layer");
    }
    snprintf(name, size, "%s", stem);
    for (unsigned number = 1; is_taken(name, others, count); number++)
        snprintf(name, size, "%s_%u", stem, number);
    free(stem);
    layer->name = name;
    return 0;
}

const char *uni__spec_text(char out[UNI__SHAPE_TEXT_SIZE], const uni_spec *spec)
{
    size_t size = 0;
    out[size++] = '(';
    for (int i = 0; i < spec->ndim; i++) {
        const char *comma = i > 0 ? ", " : "";
        int written = spec->dims[i] < 0
                          ? snprintf(out + size, UNI__SHAPE_TEXT_SIZE - size, "%sNone", comma)
                          : snprintf(out + size, UNI__SHAPE_TEXT_SIZE - size, "%s%lld", comma,
                                     (long long)spec->dims[i]);
        size += (size_t)written; /* six numbers of 20 digits fit */
    }
    snprintf(out + size, UNI__SHAPE_TEXT_SIZE - size, "%s)", spec->ndim == 1 ? "," : "");
    return out;
}

int uni__expect_inputs(const uni_layer *layer, int num_inputs, int least, int most, uni_error *err)
{
    if (num_inputs >= least && num_inputs <= most)
        return 0;
    if (least == most)
        return uni_error_set(err, UNI_EINVAL, "%s takes %d input%s, got %d", uni_layer_name(layer),
                             least, least == 1 ? "" : "s", num_inputs);
    return uni_error_set(err, UNI_EINVAL, "%s takes %d to %d inputs, got %d", uni_layer_name(layer),
                         least, most, num_inputs);
}

int uni__expect_rank(const uni_layer *layer, const uni_spec *input, int least, int most,
                     uni_error *err)
{
    if (input->ndim >= least && input->ndim <= most && input->dtype != UNI_STRING)
        return 0;
    char text[UNI__SHAPE_TEXT_SIZE];
    if (input->dtype == UNI_STRING)
        return uni_error_set(err, UNI_EDTYPE,
                             "%s computes with numbers, but its input %s is text; put a "
                             "TextVectorization or sentence embedding layer before it",
                             uni_layer_name(layer), uni__spec_text(text, input));
    char ranks[32];
    if (least == most)
        snprintf(ranks, sizeof ranks, "%d dimensions", least);
    else if (most >= UNI_TENSOR_MAX_DIMS)
        snprintf(ranks, sizeof ranks, "at least %d dimensions", least);
    else
        snprintf(ranks, sizeof ranks, "%d to %d dimensions", least, most);
    return uni_error_set(err, UNI_ESHAPE, "%s expects an input with %s, the batch included, got %s",
                         uni_layer_name(layer), ranks, uni__spec_text(text, input));
}

int uni__expect_width(const uni_layer *layer, const uni_spec *input, uni_error *err)
{
    if (input->ndim > 0 && input->dims[input->ndim - 1] >= 0)
        return 0;
    char text[UNI__SHAPE_TEXT_SIZE];
    return uni_error_set(err, UNI_ESHAPE,
                         "%s needs to know the last dimension of its input to be built, got %s",
                         uni_layer_name(layer), uni__spec_text(text, input));
}
