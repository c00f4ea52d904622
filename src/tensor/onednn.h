/*
 * onednn.h - products and convolutions: oneDNN behind a few functions, and the plain versions that
 * tests compare with.
 *
 * Only onednn.c (cache, products) and onednn_conv.c call oneDNN, because 3.x renames much of the
 * interface. Only for src/tensor.
 */
#ifndef UNISONO_TENSOR_ONEDNN_H
#define UNISONO_TENSOR_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include "tensor/internal.h"

int uni__onednn_new(uni__onednn **out, uni_error *err);
void uni__onednn_free(uni__onednn *onednn);
/* A new step: the inline caches restart from the first call. */
void uni__onednn_begin(uni__onednn *onednn);
size_t uni__onednn_bytes(const uni__onednn *onednn);

/* Runs on the tape's threads; false with the tape failed. */
bool uni__gemm(uni_tape *tape, const uni__product *product);
/* Runs on this thread only, for use inside a parallel region; 0 or a oneDNN status. */
int uni__gemm_here(bool reference, const uni__product *product);

/* y = conv(x, kernel) + bias; bias may be NULL. */
bool uni__conv_forward(uni_tape *tape, const uni__conv *conv, const float *x, const float *kernel,
                       const float *bias, float *y);
/* Sets dx. */
bool uni__conv_backward_data(uni_tape *tape, const uni__conv *conv, const float *kernel,
                             const float *dy, float *dx);
/* Sets dkernel and dbias (which may be NULL). */
bool uni__conv_backward_weights(uni_tape *tape, const uni__conv *conv, const float *x,
                                const float *dy, float *dkernel, float *dbias);
/* winograd.c: the same by our own kernels, where they fit. uni__own_products: whether they can be
 * faster, which takes AVX2 and nothing wider that oneDNN would use. */
bool uni__own_products(const uni_tape *tape);
bool uni__winograd_fits(const uni_tape *tape, const uni__conv *conv);
bool uni__winograd_forward(uni_tape *tape, const uni__conv *conv, const float *x,
                           const float *kernel, const float *bias, float *y);
bool uni__winograd_backward_data(uni_tape *tape, const uni__conv *conv, const float *kernel,
                                 const float *dy, float *dx);
bool uni__winograd_backward_weights(uni_tape *tape, const uni__conv *conv, const float *x,
                                    const float *dy, float *dkernel);
/* thin.c: for images with few channels. The backward pass takes dy unmodified and applies the slope
 * of relu if conv->relu is set; dkernel and dbias may be NULL. */
bool uni__thin_fits(const uni_tape *tape, const uni__conv *conv);
bool uni__thin_forward(uni_tape *tape, const uni__conv *conv, const float *x, const float *kernel,
                       const float *bias, float *y);
bool uni__thin_backward(uni_tape *tape, const uni__conv *conv, const float *x, const float *y,
                        const float *dy, float *dkernel, bool add_kernel, float *dbias,
                        bool add_bias);
/* The plain versions, conv_reference.c. */
void uni__conv_forward_reference(const uni__conv *conv, const float *x, const float *kernel,
                                 const float *bias, float *y);
void uni__conv_backward_data_reference(const uni__conv *conv, const float *kernel, const float *dy,
                                       float *dx);
void uni__conv_backward_weights_reference(const uni__conv *conv, const float *x, const float *dy,
                                          float *dkernel, float *dbias);

#endif
