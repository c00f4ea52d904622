/*
 * onednn.h - products and convolutions: oneDNN behind a few functions, and the plain versions that tests compare with.
 *
 * All calls of oneDNN are in onednn.c (cache, products) and onednn_conv.c: 3.x renames much of the interface. Only for src/tensor.
 */
#ifndef UNISONO_TENSOR_ONEDNN_H
#define UNISONO_TENSOR_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include "tensor/internal.h"

int uni__onednn_new(uni__onednn **out, uni_error *err);
void uni__onednn_free(uni__onednn *onednn);
void uni__onednn_begin(
    uni__onednn *onednn); /* a new step: inline caches start from the first call again */
size_t uni__onednn_bytes(const uni__onednn *onednn);

/* On the tape's threads; false with the tape failed. */
bool uni__gemm(uni_tape *tape, const uni__product *product);
/* On this thread only, for use inside a parallel region; 0 or a oneDNN status. */
int uni__gemm_here(bool reference, const uni__product *product);

/* y = conv(x, kernel) + bias; bias may be NULL. */
bool uni__conv_forward(uni_tape *tape, const uni__conv *conv, const float *x, const float *kernel,
                       const float *bias, float *y);
/* dx is set. */
bool uni__conv_backward_data(uni_tape *tape, const uni__conv *conv, const float *kernel,
                             const float *dy, float *dx);
/* dkernel and dbias (may be NULL) are set. */
bool uni__conv_backward_weights(uni_tape *tape, const uni__conv *conv, const float *x,
                                const float *dy, float *dkernel, float *dbias);
/* winograd.c: the same by our own kernels, for what fits. */
bool uni__own_products(
    const uni_tape
        *tape); /* are ours worth asking: AVX2, and nothing wider, which oneDNN would use */
bool uni__winograd_fits(const uni_tape *tape, const uni__conv *conv);
bool uni__winograd_forward(uni_tape *tape, const uni__conv *conv, const float *x,
                           const float *kernel, const float *bias, float *y);
bool uni__winograd_backward_data(uni_tape *tape, const uni__conv *conv, const float *kernel,
                                 const float *dy, float *dx);
bool uni__winograd_backward_weights(uni_tape *tape, const uni__conv *conv, const float *x,
                                    const float *dy, float *dkernel);
/* thin.c: for images of few channels. The backward pass takes dy as it is, with the slope of relu when conv->relu says so; dkernel and dbias may be NULL. */
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
