/* shapes.h - the shapes of text that the text layers accept. For src/nn/text only. */
#ifndef UNISONO_NN_TEXT_SHAPES_H
#define UNISONO_NN_TEXT_SHAPES_H

#include <unisono/tensor.h>

#include "data/preprocess/tokenize.h"

/* The number of texts of shape (batch) or (batch, 1); -1 with the error on the tape. */
int64_t uni__text_rows(uni_tape *tape, const uni_tensor *text);
/* The same for a spec at build time. */
int uni__text_expect(const char *name, uni_dtype dtype, int ndim, const int64_t *dims,
                     uni_error *err) UNI_MUST_USE;

#endif
