/*
 * vectorization_config.c - TextVectorization as a dictionary with Keras's names, including the
 * vocabulary. Any thread, one layer at a time.
 */
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "base/shared.h"
#include "nn/text/text.h"
#include "nn/text/vectorization.h"

static const char *const outputs[] = { "int", "multi_hot", "count",
                                       "tf_idf" }; /* by uni_text_output */

void uni__vectorization_check(uni_layer *layer)
{
    const uni__vectorization *self = layer->self;
    if (self->max_tokens < 0 ||
        (self->max_tokens > 0 && self->max_tokens <= (int64_t)uni__vectorization_specials(self)))
        uni_layer_fail(layer, UNI_EINVAL,
                       "max_tokens must be above %zu (padding and unknown words count), got %lld",
                       uni__vectorization_specials(self), (long long)self->max_tokens);
    if (self->sequence_length < 0 ||
        (self->sequence_length > 0 &&
         (self->output != UNI_TEXT_INT || self->tokenizer.split == UNI__SPLIT_NONE)))
        uni_layer_fail(layer, UNI_EINVAL,
                       "sequence_length (%lld) is for the int output of texts that are split",
                       (long long)self->sequence_length);
    if (self->tokenizer.ngrams < 1 || self->tokenizer.ngrams > UNI__MAX_NGRAMS)
        uni_layer_fail(layer, UNI_EINVAL, "ngrams must be from 1 to %d, got %d", UNI__MAX_NGRAMS,
                       self->tokenizer.ngrams);
}

static int put_vocabulary(const uni__vectorization *self, uni_value *config)
{
    uni_value *words = self->listing != NULL ? uni_value_list() : uni_value_null();
    uni_value *weights = self->idf != NULL ? uni_value_list() : uni_value_null();
    int status = words == NULL || weights == NULL ? UNI_ENOMEM : 0;
    for (size_t i = 0; status == 0 && self->listing != NULL && i < self->vocabulary.count; i++)
        status = uni_list_take(words, uni_value_string_n(self->vocabulary.words[i].text,
                                                         self->vocabulary.words[i].size));
    for (size_t i = 0; status == 0 && self->idf != NULL && i < self->vocabulary.count; i++)
        status = uni_list_take(weights, uni_value_float((double)self->idf[i + 1]));
    if (status < 0) {
        uni_value_free(words);
        uni_value_free(weights);
        return status;
    }
    status = uni_dict_take(config, "vocabulary", words);
    if (status < 0) {
        uni_value_free(weights);
        return status;
    }
    return uni_dict_take(config, "idf_weights", weights);
}

static uni_value *number_or_null(int64_t number)
{
    return number > 0 ? uni_value_int(number) : uni_value_null();
}

int uni__vectorization_get_config(const uni_layer *layer, const void *self_, uni_value *config,
                                  uni_error *err)
{
    const uni__vectorization *self = self_;
    const uni__tokenizer *tokenizer = &self->tokenizer;
    const char *standardize = tokenizer->lower && tokenizer->strip ? "lower_and_strip_punctuation"
                              : tokenizer->lower                   ? "lower"
                              : tokenizer->strip                   ? "strip_punctuation"
                                                                   : NULL;
    const char *split = tokenizer->split == UNI__SPLIT_NONE        ? NULL
                        : tokenizer->split == UNI__SPLIT_CHARACTER ? "character"
                                                                   : "whitespace";
    UNI_TRY(uni_dict_take(config, "max_tokens", number_or_null(self->max_tokens)));
    UNI_TRY(uni_dict_take(config, "standardize",
                          standardize != NULL ? uni_value_string(standardize) : uni_value_null()));
    UNI_TRY(
        uni_dict_take(config, "split", split != NULL ? uni_value_string(split) : uni_value_null()));
    UNI_TRY(
        uni_dict_take(config, "ngrams",
                      tokenizer->ngrams > 1 ? uni_value_int(tokenizer->ngrams) : uni_value_null()));
    UNI_TRY(uni_dict_take(config, "output_mode", uni_value_string(outputs[self->output])));
    UNI_TRY(uni_dict_take(config, "output_sequence_length", number_or_null(self->sequence_length)));
    UNI_TRY(uni_dict_take(config, "pad_to_max_tokens", uni_value_bool(self->pad_to_max_tokens)));
    UNI_TRY(uni_dict_take(config, "sparse", uni_value_bool(false)));
    UNI_TRY(uni_dict_take(config, "ragged", uni_value_bool(false)));
    UNI_TRY(uni_dict_take(config, "encoding", uni_value_string("utf-8")));
    return put_vocabulary(self, config);
}

static int read_vocabulary(uni_layer *layer, const uni_value *config, uni_error *err)
{
    const uni_value *list = uni_dict_get(config, "vocabulary"),
                    *weights = uni_dict_get(config, "idf_weights");
    if (uni_value_type_of(list) == UNI_TYPE_NULL)
        return 0;
    /* Keras also takes a path, but a file must not make us open another. */
    if (uni_value_type_of(list) != UNI_TYPE_LIST)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "a vocabulary must be a list of words, not a %s",
                             uni__value_type_name(uni_value_type_of(list)));
    size_t count = uni_list_size(list);
    const char **words = calloc(count + 1, sizeof *words);
    size_t *sizes = calloc(count + 1, sizeof *sizes);
    float *idf = calloc(count + 1, sizeof *idf);
    int status = words == NULL || sizes == NULL || idf == NULL
                     ? uni_error_set(err, UNI_ENOMEM, "no memory for the vocabulary")
                     : 0;
    for (size_t i = 0; status == 0 && i < count; i++) {
        words[i] = uni_value_type_of(uni_list_get(list, i)) == UNI_TYPE_STRING
                       ? uni_value_as_bytes(uni_list_get(list, i), &sizes[i])
                       : NULL;
        idf[i] = (float)uni_value_as_float(uni_list_get(weights, i), 0);
        if (words[i] == NULL)
            status = uni_error_set(err, UNI_EFORMAT, "word %zu of the vocabulary is not text", i);
    }
    if (status == 0)
        status = uni__text_set_vocabulary(layer, count, words, sizes, err);
    const uni__vectorization *self = layer->self;
    if (status == 0 && self->output == UNI_TEXT_TF_IDF) {
        double sum = 0;
        size_t skipped = count - self->vocabulary.count;
        for (size_t i = skipped; i < count; i++)
            sum += (double)idf[i];
        status = uni_list_size(weights) != count
                     ? uni_error_set(err, UNI_EFORMAT,
                                     "idf_weights must have one number a word of the vocabulary")
                     : uni__text_set_idf(layer, self->vocabulary.count, idf + skipped,
                                         self->vocabulary.count > 0
                                             ? (float)(sum / (double)self->vocabulary.count)
                                             : 0,
                                         err);
    }
    free(words);
    free(sizes);
    free(idf);
    return status;
}

static int read_standardize(uni__tokenizer *tokenizer, const uni_value *config, uni_error *err)
{
    const uni_value *standardize = uni_dict_get(config, "standardize"),
                    *split = uni_dict_get(config, "split");
    const char *name = uni_value_as_string(standardize, ""),
               *split_name = uni_value_as_string(split, "");
    bool both = standardize == NULL || strcmp(name, "lower_and_strip_punctuation") == 0;
    tokenizer->lower = both || strcmp(name, "lower") == 0;
    tokenizer->strip = both || strcmp(name, "strip_punctuation") == 0;
    if (!tokenizer->lower && !tokenizer->strip && uni_value_type_of(standardize) != UNI_TYPE_NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "standardize = %.60s is not supported (functions are not)", name);
    if (split == NULL || strcmp(split_name, "whitespace") == 0)
        tokenizer->split = UNI__SPLIT_WHITESPACE;
    else if (strcmp(split_name, "character") == 0)
        tokenizer->split = UNI__SPLIT_CHARACTER;
    else if (uni_value_type_of(split) == UNI_TYPE_NULL)
        tokenizer->split = UNI__SPLIT_NONE;
    else
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "split = %.60s is not supported (functions are not)", split_name);
    return 0;
}

int uni__vectorization_set_config(uni_layer *layer, void *self_, const uni_value *config,
                                  uni_error *err)
{
    uni__vectorization *self = self_;
    UNI_TRY(uni__config_refuse(config, "sparse", NULL, err));
    UNI_TRY(uni__config_refuse(config, "ragged", NULL, err));
    UNI_TRY(uni__config_refuse(config, "encoding", "utf-8", err));
    UNI_TRY(read_standardize(&self->tokenizer, config, err));
    const uni_value *ngrams = uni_dict_get(config, "ngrams");
    if (uni_value_type_of(ngrams) != UNI_TYPE_NULL && uni_value_type_of(ngrams) != UNI_TYPE_INT)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "ngrams must be a number; lists of widths are not supported");
    int64_t width = uni_value_as_int(ngrams, 1);
    self->tokenizer.ngrams = width < 0 || width > UNI__MAX_NGRAMS ? 0 : (int)width;
    const char *output = uni_dict_get_string(config, "output_mode", "int");
    size_t mode = 0;
    while (mode < 4 && strcmp(outputs[mode], output) != 0)
        mode++;
    if (mode == 4)
        return uni_error_set(
            err, UNI_EUNSUPPORTED,
            "output_mode = %.60s is not supported; there are int, multi_hot, count and tf_idf",
            output);
    self->output = (uni_text_output)mode;
    self->max_tokens = uni_dict_get_int(config, "max_tokens", 0);
    self->sequence_length = uni_dict_get_int(config, "output_sequence_length", 0);
    self->pad_to_max_tokens = uni_dict_get_bool(config, "pad_to_max_tokens", false);
    self->expected = uni_dict_get_int(config, "vocabulary_size", 0);
    uni__vectorization_check(layer);
    UNI_TRY(uni__layer_check(layer, err));
    return read_vocabulary(layer, config, err);
}
