/*
 * text.h - the text layers as seen by file formats, for src/nn only.
 */
#ifndef UNISONO_NN_TEXT_H
#define UNISONO_NN_TEXT_H

#include "nn/layer.h"

/* Words without "" and "[UNK]", which are skipped at the beginning. idf (tf_idf only): one per
 * word, and `idf_unknown`. */
int uni__text_set_vocabulary(uni_layer *layer, size_t count, const char *const *words,
                             const size_t *sizes, uni_error *err) UNI_MUST_USE;
int uni__text_set_idf(uni_layer *layer, size_t count, const float *weights, float unknown,
                      uni_error *err) UNI_MUST_USE;
/* Weights of the words, the unknown one first: Keras's "idf_weights". NULL if the layer has
 * none. */
const float *uni__text_idf(const uni_layer *layer, size_t *count);

#endif
