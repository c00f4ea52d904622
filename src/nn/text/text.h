/*
 * text.h - what files need to know of the text layers, for src/nn only.
 */
#ifndef UNISONO_NN_TEXT_H
#define UNISONO_NN_TEXT_H

#include "nn/layer.h"

/* Words without "" and "[UNK]" (they are passed over at the beginning). idf (tf_idf only): one a
 * word, and `idf_unknown`. */
int uni__text_set_vocabulary(uni_layer *layer, size_t count, const char *const *words,
                             const size_t *sizes, uni_error *err) UNI_MUST_USE;
int uni__text_set_idf(uni_layer *layer, size_t count, const float *weights, float unknown,
                      uni_error *err) UNI_MUST_USE;
/* Weights of the words, the unknown one first: what Keras has in "idf_weights"; NULL when the layer
 * has none. */
const float *uni__text_idf(const uni_layer *layer, size_t *count);

#endif
