/*
 * sentence.c - a text as one vector: the sum of its words' vectors, divided by the square root of
 * their number (or by their number), like the NNLM layers of TensorFlow Hub.
 *
 * The table has a row for each known word and `buckets` rows for all others, over which a hash
 * spreads them. Words come from a file of vectors (read when the layer is built) or from the user;
 * without either, all words are hashed. Words are lower case without punctuation. One thread
 * builds; calls are const.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/experimental/custom_layer.h>

#include "nn/text/text.h"
#include "nn/text/shapes.h"
#include "base/options.h"
#include "base/text.h"

struct sentence {
    int64_t dim, buckets;
    bool mean;
    char *path; /* vectors file; NULL: none */
    uni__vocabulary vocabulary;
    uni_parameter *table;
};

static const uni__tokenizer tokenizer = {
    .lower = true, .strip = true, .split = UNI__SPLIT_WHITESPACE, .ngrams = 1
};

/* ---- the file: one "word v1 v2 ..." per line, possibly after a line "count dim" ---- */

struct vectors {
    float *rows;
    size_t count, capacity;
};

static int add_row(struct vectors *vectors, size_t dim, const char *numbers, const char *path,
                   size_t line, uni_error *err)
{
    if (vectors->count == vectors->capacity) {
        size_t capacity = vectors->capacity > 0 ? 2 * vectors->capacity : 1024;
        float *grown = realloc(vectors->rows, capacity * dim * sizeof *grown);
        if (grown == NULL)
            return uni_error_set(err, UNI_ENOMEM, "no memory for the word vectors of \"%s\"", path);
        vectors->rows = grown;
        vectors->capacity = capacity;
    }
    float *row = vectors->rows + vectors->count * dim;
    char *end = (char *)numbers;
    for (size_t i = 0; i < dim; i++) {
        const char *at = end;
        row[i] = uni__read_float(at, &end);
        if (end == at)
            return uni_error_set(err, UNI_EFORMAT,
                                 "\"%s\" line %zu: expected %zu numbers after the word, found %zu",
                                 path, line, dim, i);
    }
    end += strspn(end, " \t\r\n");
    if (*end != '\0')
        return uni_error_set(err, UNI_EFORMAT,
                             "\"%s\" line %zu has more than %zu numbers after the word", path, line,
                             dim);
    vectors->count++;
    return 0;
}

/* word2vec's first line. */
static bool is_header(const char *text, size_t dim)
{
    unsigned long long count, width;
    int used = 0;
    return sscanf(text, "%llu %llu %n", &count, &width, &used) == 2 && text[used] == '\0' &&
           dim != 1 && width == dim;
}

static int read_line(struct sentence *self, struct vectors *vectors, char *text, size_t line,
                     uni_error *err)
{
    size_t size = strcspn(text, " \t\r\n");
    if (size == 0 || (line == 1 && is_header(text, (size_t)self->dim)))
        return 0;
    /* "Fox" after "fox": the first one counts; "!" is not a word here. */
    if (uni__vocabulary_find(&self->vocabulary, &tokenizer, text, size) >= 0 ||
        uni__token_size(&tokenizer, text, size) == 0)
        return 0;
    UNI_TRY(uni__vocabulary_add(&self->vocabulary, &tokenizer, text, size, err));
    return add_row(vectors, (size_t)self->dim, text + size, self->path, line, err);
}

static int read_vectors(struct sentence *self, struct vectors *vectors, uni_error *err)
{
    FILE *file = fopen(self->path, "re");
    if (file == NULL)
        return uni_error_set_errno(err, errno, "cannot open the word vectors \"%s\"", self->path);
    char *text = NULL;
    size_t room = 0;
    int status = 0;
    for (size_t line = 1; status == 0 && getline(&text, &room, file) >= 0; line++)
        status = read_line(self, vectors, text, line, err);
    if (status == 0 && ferror(file))
        status = uni_error_set(err, UNI_EIO, "cannot read the word vectors \"%s\"", self->path);
    if (status == 0 && vectors->count == 0)
        status = uni_error_set(err, UNI_EFORMAT, "there are no word vectors in \"%s\"", self->path);
    free(text);
    fclose(file);
    return status;
}

/* ---- build and call ---- */

static int add_table(uni_layer *layer, struct sentence *self, const struct vectors *vectors,
                     uni_error *err)
{
    const int64_t shape[] = { (int64_t)self->vocabulary.count + self->buckets, self->dim };
    uni_initializer normal = { .name = "random_normal", .stddev = 0.1 };
    UNI_TRY(uni_layer_add_parameter(&self->table, layer, "embeddings", UNI_PARAMETER_WEIGHT, 2,
                                    shape, self->path != NULL ? NULL : &normal, "zeros", NULL,
                                    err));
    if (self->path != NULL && vectors->rows != NULL)
        memcpy(uni_parameter_data(self->table), vectors->rows,
               vectors->count * (size_t)self->dim * sizeof(float));
    return 0;
}

static int sentence_build(uni_layer *layer, void *self_, int num_inputs, const uni_spec *inputs,
                          uni_error *err)
{
    struct sentence *self = self_;
    struct vectors vectors = { 0 };
    UNI_TRY(uni__expect_inputs(layer, num_inputs, 1, 1, err));
    UNI_TRY(
        uni__text_expect(uni_layer_name(layer), inputs->dtype, inputs->ndim, inputs->dims, err));
    int status = 0;
    if (self->path != NULL) {
        uni__vocabulary_clear(&self->vocabulary);
        status = read_vectors(self, &vectors, err);
    }
    if (status == 0)
        status = add_table(layer, self, &vectors, err);
    free(vectors.rows);
    return status;
}

static int sentence_infer(const uni_layer *layer, const void *self, int num_inputs,
                          const uni_spec *inputs, uni_spec *output, uni_error *err)
{
    UNI_TRY(
        uni__text_expect(uni_layer_name(layer), inputs->dtype, inputs->ndim, inputs->dims, err));
    *output = (uni_spec){ UNI_F32, 2, { inputs->dims[0], ((const struct sentence *)self)->dim } };
    return 0;
}

struct filling {
    const struct sentence *self;
    int32_t *ids; /* NULL: count only */
    int64_t count;
};

static int fill(void *context, const char *token, size_t size)
{
    struct filling *filling = context;
    const struct sentence *self = filling->self;
    if (filling->ids != NULL) {
        int64_t number = uni__vocabulary_find(&self->vocabulary, &tokenizer, token, size);
        if (number < 0)
            number = (int64_t)(self->vocabulary.count +
                               uni__token_hash(&tokenizer, token, size) % (uint64_t)self->buckets);
        filling->ids[filling->count] = (int32_t)number;
    }
    filling->count++;
    return 0;
}

static uni_tensor *sentence_call(const uni_layer *layer, const void *self_, uni_tape *tape,
                                 int num_inputs, uni_tensor *const *inputs)
{
    const struct sentence *self = self_;
    int64_t rows = uni__text_rows(tape, inputs[0]);
    if (rows < 0)
        return NULL;
    const uni_string *texts = uni_tensor_data(inputs[0]);
    uni_tensor *offsets = uni_tape_scratch(tape, UNI_I64, 1, (const int64_t[]){ rows + 1 });
    if (offsets == NULL)
        return NULL;
    int64_t *begins = uni_tensor_data(offsets);
    struct filling filling = { .self = self };
    int ignored = 0; /* the visitor never fails */
    for (int64_t row = 0; row < rows; row++) {
        begins[row] = filling.count;
        ignored = uni__tokenize(&tokenizer, texts[row].data, texts[row].size, fill, &filling);
    }
    begins[rows] = filling.count;
    uni_tensor *ids = uni_tape_scratch(tape, UNI_I32, 1, &filling.count);
    if (ids == NULL)
        return NULL;
    filling.ids = uni_tensor_data(ids);
    filling.count = 0;
    for (int64_t row = 0; row < rows; row++)
        ignored = uni__tokenize(&tokenizer, texts[row].data, texts[row].size, fill, &filling);
    (void)ignored;
    return uni_op_embedding_bag(tape, uni_tape_parameter(tape, self->table), ids, offsets,
                                self->mean ? UNI_COMBINER_MEAN : UNI_COMBINER_SQRTN);
}

/* ---- constructors and configs ---- */

static void check(uni_layer *layer)
{
    const struct sentence *self = layer->self;
    if (self->dim < 1 || self->dim > 1000000 || self->buckets < 1 || self->buckets > 100000000)
        uni_layer_fail(
            layer, UNI_EINVAL,
            "dim (%lld) and buckets (%lld) of a sentence embedding must be positive (and sensible)",
            (long long)self->dim, (long long)self->buckets);
}

static int sentence_get_config(const uni_layer *layer, const void *self_, uni_value *config,
                               uni_error *err)
{
    const struct sentence *self = self_;
    uni_value *words = uni_value_list();
    int status = words == NULL ? UNI_ENOMEM : 0;
    for (size_t i = 0; status == 0 && i < self->vocabulary.count; i++)
        status = uni_list_take(words, uni_value_string_n(self->vocabulary.words[i].text,
                                                         self->vocabulary.words[i].size));
    if (status < 0) {
        uni_value_free(words);
        return status;
    }
    UNI_TRY(uni_dict_take(config, "vocabulary", words)); /* the vectors are among the weights */
    UNI_TRY(uni_dict_take(config, "output_dim", uni_value_int(self->dim)));
    UNI_TRY(uni_dict_take(config, "buckets", uni_value_int(self->buckets)));
    return uni_dict_take(config, "combiner", uni_value_string(self->mean ? "mean" : "sqrtn"));
}

static int sentence_set_config(uni_layer *layer, void *self_, const uni_value *config,
                               uni_error *err)
{
    struct sentence *self = self_;
    self->dim = uni_dict_get_int(config, "output_dim", 0);
    self->buckets = uni_dict_get_int(config, "buckets", 0);
    self->mean = strcmp(uni_dict_get_string(config, "combiner", "sqrtn"), "mean") == 0;
    const uni_value *words = uni_dict_get(config, "vocabulary");
    for (size_t i = 0; i < uni_list_size(words); i++) {
        size_t size = 0;
        const void *word = uni_value_as_bytes(uni_list_get(words, i), &size);
        if (word == NULL)
            return uni_error_set(err, UNI_EFORMAT, "word %zu of the vocabulary is not text", i);
        UNI_TRY(uni__vocabulary_add_word(&self->vocabulary, word, size, err));
    }
    check(layer);
    return 0;
}

static void sentence_free(void *self_)
{
    struct sentence *self = self_;
    uni__vocabulary_clear(&self->vocabulary);
    free(self->path);
}

const uni_layer_class uni__class_sentence_embedding = { .name = "SentenceEmbedding",
                                                        UNI__LAYER_METHODS(sentence,
                                                                           struct sentence),
                                                        .build = sentence_build,
                                                        .free = sentence_free };

uni_layer *uni_layer_sentence_embedding(int64_t dim, const uni_sentence_options *options)
{
    UNI__LAYER_OPTIONS(uni_sentence_options, options, mean, &uni__class_sentence_embedding);
    uni_layer *layer = uni_layer_new(&uni__class_sentence_embedding);
    if (layer == NULL)
        return NULL;
    struct sentence *self = layer->self;
    bool hashed = options->vectors == NULL && options->vocabulary == NULL;
    self->dim = dim;
    self->mean = options->mean;
    self->buckets = options->buckets != 0 ? options->buckets : hashed ? 20000 : 1;
    check(layer);
    if (options->vectors != NULL && options->vocabulary != NULL)
        uni_layer_fail(
            layer, UNI_EINVAL,
            "a sentence embedding has its words from vectors or from vocabulary, not from both");
    if (options->vectors != NULL && (self->path = strdup(options->vectors)) == NULL)
        uni_layer_fail(layer, UNI_ENOMEM, "no memory for the name of the word vectors");
    if (options->vocabulary == NULL && options->num_vocabulary > 0)
        uni_layer_fail(layer, UNI_EINVAL,
                       "a sentence embedding has num_vocabulary but no vocabulary");
    uni_error err = { 0 };
    size_t words =
        options->vectors == NULL && options->vocabulary != NULL ? options->num_vocabulary : 0;
    for (size_t i = 0; err.code == 0 && i < words; i++) {
        const char *word = options->vocabulary[i];
        if (uni__vocabulary_find(&self->vocabulary, &tokenizer, word, strlen(word)) < 0 &&
            uni__token_size(&tokenizer, word, strlen(word)) > 0 &&
            uni__vocabulary_add(&self->vocabulary, &tokenizer, word, strlen(word), &err) < 0)
            uni_layer_fail(layer, err.code, "%s", err.message);
    }
    if (options->frozen)
        uni_layer_trainable(layer, false);
    return layer;
}
