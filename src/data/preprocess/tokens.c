/*
 * tokens.c - Tokenizer: maps text to the numbers of its words, with the tokenizer and vocabulary of
 * the engine's TextVectorization. 0 is padding, 1 an unknown word. State: {"vocabulary": [words by
 * descending frequency], "length": n}.
 */
#include <stdlib.h>
#include <string.h>

#include "data/preprocess/preprocess.h"
#include "data/preprocess/tokenize.h"

#define FIRST_WORD 2

struct words {
    uni__tokenizer tokenizer;
    uni__vocabulary vocabulary;
    int64_t length; /* of the longest text, or as configured */
};

static int read_options(const uni_preprocessor *p, uni__tokenizer *out, uni_error *err)
{
    static const char *const ways[] = { "lower_and_strip_punctuation", "lower", "strip_punctuation",
                                        "none" };
    const char *standardize = uni_dict_get_string(p->options, "standardize", ways[0]),
               *split = uni_dict_get_string(p->options, "split", "whitespace");
    bool known = false;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        known = known || strcmp(standardize, ways[i]) == 0;
    if (!known)
        return uni_error_set(err, UNI_EINVAL,
                             "Tokenizer: standardize is lower_and_strip_punctuation, lower, "
                             "strip_punctuation or none, not %s",
                             standardize);
    out->lower = strncmp(standardize, "lower", 5) == 0;
    out->strip = strstr(standardize, "strip_punctuation") != NULL;
    out->split = strcmp(split, "character") == 0 ? UNI__SPLIT_CHARACTER : UNI__SPLIT_WHITESPACE;
    out->ngrams = (int)uni_dict_get_int(p->options, "ngrams", 1);
    if (out->ngrams < 1 || out->ngrams > UNI__MAX_NGRAMS ||
        (strcmp(split, "character") != 0 && strcmp(split, "whitespace") != 0))
        return uni_error_set(err, UNI_EINVAL,
                             "Tokenizer: split is whitespace or character and ngrams 1 to %d",
                             UNI__MAX_NGRAMS);
    return 0;
}

static int words_check(const uni_preprocessor *p, uni_error *err)
{
    uni__tokenizer tokenizer = { 0 };
    int64_t max = uni_dict_get_int(p->options, "max_tokens", FIRST_WORD + 1),
            length = uni_dict_get_int(p->options, "output_sequence_length", 1);
    if (max <= FIRST_WORD)
        return uni_error_set(err, UNI_EINVAL,
                             "Tokenizer: max_tokens must be at least %d (padding, unknown words, "
                             "and a word), not %lld",
                             FIRST_WORD + 1, (long long)max);
    if (length < 1 || length > INT32_MAX)
        return uni_error_set(err, UNI_EINVAL,
                             "Tokenizer: output_sequence_length must be positive, not %lld",
                             (long long)length);
    return read_options(p, &tokenizer, err);
}

static void words_free(void *self)
{
    struct words *words = self;
    if (words != NULL)
        uni__vocabulary_clear(&words->vocabulary);
    free(words);
}

static void words_free_fitting(const uni_preprocessor *p)
{
    words_free(p->fitting);
}

static int text_column(const uni_preprocessor *p, const uni_table *table, int index,
                       const uni_table_column **out, uni_error *err)
{
    UNI_TRY(uni__preprocess_column(p, table, index, false, out, err));
    if ((*out)->field.kind == UNI_FIELD_STRING)
        return 0;
    return uni_error_set(err, UNI_EDTYPE, "Tokenizer: column \"%s\" is not text",
                         p->columns[index]);
}

static int words_begin(uni_preprocessor *p, const uni_table *schema, uni_error *err)
{
    struct words *words = calloc(1, sizeof *words);
    p->fitting = words;
    if (words == NULL)
        return uni__preprocess_no_memory(err);
    for (int i = 0; i < p->num_columns; i++) {
        const uni_table_column *column = NULL;
        UNI_TRY(text_column(p, schema, i, &column, err));
    }
    return read_options(p, &words->tokenizer, err);
}

struct counting {
    struct words *words;
    int64_t tokens;
    uni_error *err;
};

static int count_token(void *context, const char *token, size_t size)
{
    struct counting *counting = context;
    struct words *words = counting->words;
    int64_t found = uni__vocabulary_find(&words->vocabulary, &words->tokenizer, token, size);
    if (found < 0) {
        UNI_TRY(
            uni__vocabulary_add(&words->vocabulary, &words->tokenizer, token, size, counting->err));
        found = (int64_t)words->vocabulary.count - 1;
    }
    words->vocabulary.words[found].count++;
    counting->tokens++;
    return 0;
}

static int words_observe(uni_preprocessor *p, const uni_table *table, uni_error *err)
{
    struct words *words = p->fitting;
    for (int i = 0; i < p->num_columns; i++) {
        const uni_table_column *column = NULL;
        UNI_TRY(text_column(p, table, i, &column, err));
        const int64_t *offsets = uni_array_data(column->offsets);
        const char *text = uni_array_data(column->values);
        for (int64_t row = 0; row < uni_table_num_rows(table); row++) {
            struct counting counting = { words, 0, err };
            UNI_TRY(uni__tokenize(&words->tokenizer, text != NULL ? text + offsets[row] : "",
                                  (size_t)(offsets[row + 1] - offsets[row]), count_token,
                                  &counting));
            words->length = counting.tokens > words->length ? counting.tokens : words->length;
        }
    }
    return 0;
}

static int words_finish(uni_preprocessor *p, uni_error *err)
{
    struct words *words = p->fitting;
    int64_t max = uni_dict_get_int(p->options, "max_tokens", 0);
    int64_t length = uni_dict_get_int(p->options, "output_sequence_length", 0);
    UNI_TRY(uni__vocabulary_sort(&words->vocabulary, max > 0 ? (size_t)max - FIRST_WORD : 0, err));
    uni_value *list = uni_value_list();
    int status = 0;
    for (size_t i = 0; i < words->vocabulary.count && status == 0; i++)
        status = uni_list_take(list, uni_value_string_n(words->vocabulary.words[i].text,
                                                        words->vocabulary.words[i].size));
    if (status < 0) {
        uni_value_free(list);
        return uni__preprocess_no_memory(err);
    }
    p->state = uni_value_dict();
    if (p->state == NULL || uni_dict_take(p->state, "vocabulary", list) < 0 ||
        uni_dict_take(p->state, "length", uni_value_int(length > 0 ? length : words->length)) < 0)
        return uni__preprocess_no_memory(err);
    return 0;
}

static int words_prepare(uni_preprocessor *p, uni_error *err)
{
    const uni_value *list = uni_dict_get(p->state, "vocabulary");
    struct words *words = calloc(1, sizeof *words);
    p->ready = words;
    if (words == NULL)
        return uni__preprocess_no_memory(err);
    UNI_TRY(read_options(p, &words->tokenizer, err));
    words->length = uni_dict_get_int(p->state, "length", 0);
    if (words->length < 0 || words->length > INT32_MAX)
        return uni_error_set(err, UNI_EFORMAT, "the saved Tokenizer has no length");
    for (size_t i = 0; i < uni_list_size(list); i++) {
        size_t size = 0;
        const char *word = uni_value_as_bytes(uni_list_get(list, i), &size);
        if (word == NULL)
            return uni_error_set(err, UNI_EFORMAT, "the saved Tokenizer has a word that is none");
        UNI_TRY(uni__vocabulary_add_word(&words->vocabulary, word, size, err));
    }
    return 0;
}

struct writing {
    const struct words *words;
    int64_t *to;
    int64_t written;
};

static int write_token(void *context, const char *token, size_t size)
{
    struct writing *writing = context;
    const struct words *words = writing->words;
    if (writing->written < words->length)
        writing->to[writing->written++] =
            uni__vocabulary_find(&words->vocabulary, &words->tokenizer, token, size) + FIRST_WORD;
    return 0;
}

static int tokenize_column(const uni_preprocessor *p, int index, const uni_table *in,
                           const void *context, uni_table_column *out, uni_error *err)
{
    const struct words *words = p->ready;
    const uni_table_column *column = NULL;
    int64_t rows = uni_table_num_rows(in);
    UNI_TRY(text_column(p, in, index, &column, err));
    const int64_t *offsets = uni_array_data(column->offsets);
    const char *text = uni_array_data(column->values);
    out->field = (uni_field){
        .kind = UNI_FIELD_NUMBER, .dtype = UNI_I64, .ndim = 1, .shape = { words->length }
    };
    UNI_TRY(uni_array_new(&out->values, UNI_I64, 2, (const int64_t[]){ rows, words->length }, err));
    for (int64_t row = 0; row < rows; row++) {
        struct writing writing = { words,
                                   (int64_t *)uni_array_data(out->values) + row * words->length,
                                   0 };
        UNI_TRY(uni__tokenize(&words->tokenizer, text != NULL ? text + offsets[row] : "",
                              (size_t)(offsets[row + 1] - offsets[row]), write_token, &writing));
    }
    return 0;
}

static int words_apply(const uni_preprocessor *p, uni_table *in, uni_table **out, uni_error *err)
{
    return uni__preprocess_each(p, in, tokenize_column, NULL, out, err);
}

const uni__preprocess_class uni__tokenizer_class = { .name = "Tokenizer",
                                                     .options =
                                                         "columns output_columns max_tokens "
                                                         "output_sequence_length standardize "
                                                         "split ngrams ",
                                                     .check = words_check,
                                                     .needs_fit = true,
                                                     .begin = words_begin,
                                                     .observe = words_observe,
                                                     .finish = words_finish,
                                                     .prepare = words_prepare,
                                                     .apply = words_apply,
                                                     .free_fitting = words_free_fitting,
                                                     .free_ready = words_free };
