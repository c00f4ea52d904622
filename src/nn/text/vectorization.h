/* vectorization.h - the TextVectorization layer, shared by its computation (vectorization.c) and
 * its config (vectorization_config.c). For src/nn/text only. */
#ifndef UNISONO_NN_TEXT_VECTORIZATION_H
#define UNISONO_NN_TEXT_VECTORIZATION_H

#include "data/preprocess/tokenize.h"
#include "nn/layer.h"

typedef struct uni__vectorization {
    uni__tokenizer tokenizer;
    uni_text_output output;
    int64_t max_tokens, sequence_length;
    bool pad_to_max_tokens;
    int64_t expected; /* size of the vocabulary that a file's asset will bring; 0: unknown */
    uni__vocabulary vocabulary;
    const char **listing; /* with the special tokens, for uni_layer_vocabulary */
    size_t listing_size;
    float *idf; /* of the unknown word, then one per word */
} uni__vectorization;

/* Numbers before the first word: padding and unknown, or unknown only. */
static inline size_t uni__vectorization_specials(const uni__vectorization *self)
{
    return self->output == UNI_TEXT_INT ? 2 : 1;
}

/* Fails the layer if its options are incompatible. */
void uni__vectorization_check(uni_layer *layer);
int uni__vectorization_get_config(const uni_layer *layer, const void *self, uni_value *config,
                                  uni_error *err);
int uni__vectorization_set_config(uni_layer *layer, void *self, const uni_value *config,
                                  uni_error *err);

#endif
