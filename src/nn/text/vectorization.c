/*
 * vectorization.c - TextVectorization: text to word numbers, or to counts of words, like Keras.
 *
 * The vocabulary is learned by adapt, given by the user, or read from a file; it is not a
 * parameter. Calls look up tokens twice: once to count them, which gives the result's shape, and
 * once to write. Only the result on the tape is allocated. One thread adapts; calls are const.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "nn/text/shapes.h"
#include "nn/text/text.h"
#include "nn/text/vectorization.h"
#include "base/options.h"

/* Number of columns of the output modes that have one per word. */
static int64_t depth_of(const uni__vectorization *self, size_t words)
{
    return self->pad_to_max_tokens && self->max_tokens > 0
               ? self->max_tokens
               : (int64_t)(words + uni__vectorization_specials(self));
}

static int64_t depth(const uni__vectorization *self)
{
    return self->listing == NULL && self->expected > 0 && !self->pad_to_max_tokens
               ? self->expected
               : depth_of(self, self->vocabulary.count);
}

/* ---- the vocabulary ---- */

/* NULL if out of memory. */
static const char **list_words(const uni__vectorization *self, const uni__vocabulary *vocabulary)
{
    size_t before = uni__vectorization_specials(self);
    const char **listing = malloc((before + vocabulary->count) * sizeof *listing);
    if (listing == NULL)
        return NULL;
    listing[0] = "";
    listing[before - 1] = "[UNK]";
    for (size_t i = 0; i < vocabulary->count; i++)
        listing[before + i] = vocabulary->words[i].text;
    return listing;
}

const char *const *uni_layer_vocabulary(const uni_layer *layer, size_t *size)
{
    const uni__vectorization *self = layer->self;
    bool has = layer->class_ == &uni__class_text_vectorization && self->listing != NULL;
    if (size != NULL)
        *size = has ? self->listing_size : 0;
    return has ? self->listing : NULL;
}

/* Except in int mode, the width of a built layer's output depends on the vocabulary. */
static int take_vocabulary(uni_layer *layer, uni__vocabulary *vocabulary, uni_error *err)
{
    uni__vectorization *self = layer->self;
    int64_t before = depth(self), after = depth_of(self, vocabulary->count);
    if (self->max_tokens > 0 &&
        (int64_t)(vocabulary->count + uni__vectorization_specials(self)) > self->max_tokens)
        return uni_error_set(err, UNI_EINVAL,
                             "%s: the vocabulary has %zu words, more than max_tokens %lld allows",
                             uni_layer_name(layer), vocabulary->count, (long long)self->max_tokens);
    if (layer->built && self->output != UNI_TEXT_INT && after != before)
        return uni_error_set(err, UNI_ESTATE,
                             "%s is built for %lld columns, but the new vocabulary has %lld; "
                             "adapt before the model is built",
                             uni_layer_name(layer), (long long)before, (long long)after);
    const char **listing = list_words(self, vocabulary);
    if (listing == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the vocabulary");
    free(self->listing);
    self->listing = listing;
    self->listing_size = uni__vectorization_specials(self) + vocabulary->count;
    uni__vocabulary old = self->vocabulary;
    self->vocabulary = *vocabulary;
    *vocabulary = old; /* the caller clears it */
    return 0;
}

/* Zeros until the weights of the new words are set. */
static int clear_idf(uni_layer *layer, uni_error *err)
{
    uni__vectorization *self = layer->self;
    if (self->output != UNI_TEXT_TF_IDF)
        return 0;
    float *zeros = calloc(self->vocabulary.count + 1, sizeof *zeros);
    if (zeros == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the vocabulary");
    free(self->idf);
    self->idf = zeros;
    return 0;
}

int uni__text_set_vocabulary(uni_layer *layer, size_t count, const char *const *words,
                             const size_t *sizes, uni_error *err)
{
    uni__vocabulary vocabulary = { 0 };
    int status = 0;
    size_t first = 0;
    if (first < count && words[first][0] == '\0')
        first++;
    if (first < count && strcmp(words[first], "[UNK]") == 0)
        first++;
    for (size_t i = first; status == 0 && i < count; i++)
        status = uni__vocabulary_add_word(&vocabulary, words[i],
                                          sizes != NULL ? sizes[i] : strlen(words[i]), err);
    if (status == 0)
        status = take_vocabulary(layer, &vocabulary, err);
    uni__vocabulary_clear(&vocabulary);
    return status < 0 ? status : clear_idf(layer, err);
}

int uni__text_set_idf(uni_layer *layer, size_t count, const float *weights, float unknown,
                      uni_error *err)
{
    uni__vectorization *self = layer->self;
    if (self->output != UNI_TEXT_TF_IDF || count != self->vocabulary.count)
        return uni_error_set(err, UNI_EINVAL,
                             "%s: %zu inverse document frequencies for %zu words%s",
                             uni_layer_name(layer), count, self->vocabulary.count,
                             self->output != UNI_TEXT_TF_IDF ? " of a layer that has none" : "");
    float *idf = malloc((count + 1) * sizeof *idf);
    if (idf == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the vocabulary");
    idf[0] = unknown;
    if (count > 0)
        memcpy(idf + 1, weights, count * sizeof *idf);
    free(self->idf);
    self->idf = idf;
    return 0;
}

const float *uni__text_idf(const uni_layer *layer, size_t *count)
{
    const uni__vectorization *self = layer->self;
    bool has = layer->class_ == &uni__class_text_vectorization && self->idf != NULL;
    if (count != NULL)
        *count = has ? self->vocabulary.count + 1 : 0;
    return has ? self->idf : NULL;
}

/* ---- adapt ---- */

struct counting {
    const uni__tokenizer *tokenizer;
    uni__vocabulary *vocabulary;
    int64_t document;
    uni_error *err;
};

static int count_token(void *context, const char *token, size_t size)
{
    struct counting *counting = context;
    /* An empty text is padding, not a word. */
    if (uni__token_size(counting->tokenizer, token, size) == 0)
        return 0;
    int64_t number = uni__vocabulary_find(counting->vocabulary, counting->tokenizer, token, size);
    if (number < 0) {
        UNI_TRY(uni__vocabulary_add(counting->vocabulary, counting->tokenizer, token, size,
                                    counting->err));
        number = (int64_t)counting->vocabulary->count - 1;
    }
    uni__word *word = &counting->vocabulary->words[number];
    word->count++;
    word->documents += word->last_document != counting->document;
    word->last_document = counting->document;
    return 0;
}

/* log(1 + documents / (1 + documents with the word)); an unknown word gets the average. */
static int learn_idf(uni_layer *layer, int64_t documents, uni_error *err)
{
    uni__vectorization *self = layer->self;
    size_t count = self->vocabulary.count;
    float *weights = malloc((count + 1) * sizeof *weights);
    if (weights == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the vocabulary");
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        weights[i] =
            (float)log(1 + (double)documents / (1 + (double)self->vocabulary.words[i].documents));
        sum += (double)weights[i];
    }
    int status =
        uni__text_set_idf(layer, count, weights, count > 0 ? (float)(sum / (double)count) : 0, err);
    free(weights);
    return status;
}

static int vectorization_adapt(uni_layer *layer, void *self_, const uni_column *data,
                               uni_error *err)
{
    uni__vectorization *self = self_;
    uni__vocabulary vocabulary = { 0 };
    struct counting counting = { &self->tokenizer, &vocabulary, 0, err };
    UNI_TRY(uni__text_expect(uni_layer_name(layer), data->dtype, data->ndim, data->shape, err));
    int status = 0;
    const uni_string *texts = data->data;
    for (; status == 0 && counting.document < data->shape[0]; counting.document++)
        status = uni__tokenize(&self->tokenizer, texts[counting.document].data,
                               texts[counting.document].size, count_token, &counting);
    if (status == 0)
        status = uni__vocabulary_sort(
            &vocabulary,
            self->max_tokens > 0 ? (size_t)self->max_tokens - uni__vectorization_specials(self) : 0,
            err);
    if (status == 0)
        status = take_vocabulary(layer, &vocabulary, err);
    if (status == 0 && self->output == UNI_TEXT_TF_IDF)
        status = learn_idf(layer, data->shape[0], err);
    uni__vocabulary_clear(&vocabulary);
    return status;
}

/* ---- build and call ---- */

static int vectorization_build(uni_layer *layer, void *self_, int num_inputs,
                               const uni_spec *inputs, uni_error *err)
{
    const uni__vectorization *self = self_;
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(
        uni__text_expect(uni_layer_name(layer), inputs->dtype, inputs->ndim, inputs->dims, err));
    if (self->output != UNI_TEXT_INT && self->listing == NULL && self->expected == 0)
        return uni_error_set(err, UNI_ESTATE,
                             "%s: its output has a column a word, so adapt it (or give it a "
                             "vocabulary) before the model is built",
                             uni_layer_name(layer));
    return 0;
}

static int vectorization_infer(const uni_layer *layer, const void *self_, int num_inputs,
                               const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    const uni__vectorization *self = self_;
    UNI_TRY(
        uni__text_expect(uni_layer_name(layer), inputs->dtype, inputs->ndim, inputs->dims, err));
    *output = inputs[0];
    output->dtype = self->output == UNI_TEXT_INT ? UNI_I64 : UNI_F32;
    /* One number per text, in the text's own shape. */
    if (self->output == UNI_TEXT_INT && self->tokenizer.split == UNI__SPLIT_NONE)
        return 0;
    output->ndim = 2;
    output->dims[1] = self->output != UNI_TEXT_INT ? depth(self)
                      : self->sequence_length > 0  ? self->sequence_length
                                                   : -1;
    return 0;
}

struct writing {
    const uni__vectorization *self;
    int64_t count, limit;
    int64_t *numbers; /* int mode; NULL: count only */
    float *columns; /* the other modes */
};

static int count_only(void *context, const char *token, size_t size)
{
    ((struct writing *)context)->count++;
    return 0;
}

static int write_number(void *context, const char *token, size_t size)
{
    struct writing *writing = context;
    const uni__vectorization *self = writing->self;
    /* Truncated: the rest does not matter. */
    if (writing->count >= writing->limit)
        return UNI_EEND;
    int64_t number = uni__vocabulary_find(&self->vocabulary, &self->tokenizer, token, size);
    if (number < 0 && self->tokenizer.split == UNI__SPLIT_NONE &&
        uni__token_size(&self->tokenizer, token, size) == 0)
        number = -2; /* an empty text is padding */
    writing->numbers[writing->count++] = number + 2;
    return 0;
}

static int write_column(void *context, const char *token, size_t size)
{
    struct writing *writing = context;
    const uni__vectorization *self = writing->self;
    int64_t number = uni__vocabulary_find(&self->vocabulary, &self->tokenizer, token, size) + 1;
    if (number == 0 && uni__token_size(&self->tokenizer, token, size) == 0)
        return 0;
    float *column = &writing->columns[number];
    *column = self->output == UNI_TEXT_MULTI_HOT
                  ? 1
                  : *column + (self->output == UNI_TEXT_TF_IDF ? self->idf[number] : 1);
    return 0;
}

static uni_tensor *call_columns(const uni__vectorization *self, uni_tape *tape,
                                const uni_string *texts, int64_t rows)
{
    int64_t width = depth(self);
    uni_tensor *out = uni_tape_scratch(tape, UNI_F32, 2, (const int64_t[]){ rows, width });
    if (out == NULL)
        return NULL;
    float *data = uni_tensor_data(out);
    if (rows * width > 0)
        memset(data, 0, (size_t)(rows * width) * sizeof *data);
    for (int64_t row = 0; row < rows; row++) {
        struct writing writing = { .self = self, .columns = data + row * width };
        int ignored = uni__tokenize(&self->tokenizer, texts[row].data, texts[row].size,
                                    write_column, &writing); /* never fails */
        (void)ignored;
    }
    return out;
}

static uni_tensor *call_numbers(const uni__vectorization *self, uni_tape *tape,
                                const uni_tensor *text, int64_t rows)
{
    const uni_string *texts = uni_tensor_data(text);
    bool whole = self->tokenizer.split == UNI__SPLIT_NONE;
    int64_t width = whole ? 1 : self->sequence_length;
    for (int64_t row = 0; !whole && self->sequence_length == 0 && row < rows; row++) {
        struct writing counting = { .self = self };
        int ignored = uni__tokenize(&self->tokenizer, texts[row].data, texts[row].size, count_only,
                                    &counting);
        (void)ignored;
        width = counting.count > width ? counting.count : width;
    }
    uni_tensor *out =
        whole ? uni_tape_scratch(tape, UNI_I64, uni_tensor_ndim(text), uni_tensor_shape(text))
              : uni_tape_scratch(tape, UNI_I64, 2, (const int64_t[]){ rows, width });
    if (out == NULL)
        return NULL;
    int64_t *data = uni_tensor_data(out);
    if (rows * width > 0)
        memset(data, 0, (size_t)(rows * width) * sizeof *data);
    for (int64_t row = 0; row < rows; row++) {
        struct writing writing = { .self = self, .limit = width, .numbers = data + row * width };
        int ignored = uni__tokenize(&self->tokenizer, texts[row].data, texts[row].size,
                                    write_number, &writing);
        (void)ignored;
    }
    return out;
}

static uni_tensor *vectorization_call(const uni_layer *layer, const void *self_, uni_tape *tape,
                                      int num_inputs, uni_tensor *const *inputs)
{
    const uni__vectorization *self = self_;
    int64_t rows = uni__text_rows(tape, inputs[0]);
    if (rows < 0)
        return NULL;
    if (self->listing == NULL)
        return uni_tape_fail(tape, UNI_ESTATE,
                             "the layer has no vocabulary; call uni_layer_adapt or give it one");
    return self->output == UNI_TEXT_INT
               ? call_numbers(self, tape, inputs[0], rows)
               : call_columns(self, tape, uni_tensor_data(inputs[0]), rows);
}

/* ---- constructors ---- */

static void vectorization_free(void *self_)
{
    uni__vectorization *self = self_;
    uni__vocabulary_clear(&self->vocabulary);
    free(self->listing);
    free(self->idf);
}

const uni_layer_class uni__class_text_vectorization = { .name = "TextVectorization",
                                                        .size = sizeof(uni__vectorization),
                                                        .build = vectorization_build,
                                                        .infer = vectorization_infer,
                                                        .call = vectorization_call,
                                                        .get_config = uni__vectorization_get_config,
                                                        .set_config = uni__vectorization_set_config,
                                                        .adapt = vectorization_adapt,
                                                        .free = vectorization_free };

uni_layer *uni_layer_text_vectorization(const uni_text_options *options)
{
    UNI__LAYER_OPTIONS(uni_text_options, options, num_vocabulary, &uni__class_text_vectorization);
    uni_layer *layer = uni_layer_new(&uni__class_text_vectorization);
    if (layer == NULL)
        return NULL;
    uni__vectorization *self = layer->self;
    self->tokenizer = (uni__tokenizer){ .lower = !options->keep_case,
                                        .strip = !options->keep_punctuation,
                                        .split = options->no_split     ? UNI__SPLIT_NONE
                                                 : options->characters ? UNI__SPLIT_CHARACTER
                                                                       : UNI__SPLIT_WHITESPACE,
                                        .ngrams = options->ngrams != 0 ? options->ngrams : 1 };
    self->output = options->output;
    self->max_tokens = options->max_tokens;
    self->sequence_length = options->sequence_length;
    uni__vectorization_check(layer);
    if (options->output > UNI_TEXT_TF_IDF)
        uni_layer_fail(layer, UNI_EINVAL, "%d is not an output mode of a TextVectorization layer",
                       (int)options->output);
    else if (options->vocabulary != NULL && options->output == UNI_TEXT_TF_IDF)
        uni_layer_fail(
            layer, UNI_EINVAL,
            "the tf_idf output learns its weights by adapt; a vocabulary alone is not enough");
    else if (options->vocabulary != NULL) {
        uni_error err = { 0 };
        if (uni__text_set_vocabulary(layer, options->num_vocabulary, options->vocabulary, NULL,
                                     &err) < 0)
            uni_layer_fail(layer, err.code, "%s", err.message);
    }
    return layer;
}
