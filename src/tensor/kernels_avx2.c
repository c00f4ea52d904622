/*
 * kernels_avx2.c - the fast inner loops for processors with AVX2 and FMA. Nothing in here may run
 * before uni__tensor_kernels_best has checked the processor. All functions compiled with these
 * instructions are static; none comes from another header.
 */
#if defined(__x86_64__)
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/kernels.h"
UNI__TARGET_BEGIN("avx2,fma")
#define KERNELS uni__tensor_kernels_avx2
#define KERNELS_NAME "avx2"
#define KERNELS_PRODUCTS
#define SIMD_BLEND
#include "tensor/kernels_simd.h"
#include "tensor/kernels_rows.h"
#include "tensor/kernels_gemm.h"
#include "tensor/kernels_winograd.h"
#include "tensor/kernels_thin.h"
#include "tensor/kernels_step.h"
UNI__TARGET_END
#else
typedef int uni__no_avx2_here;
#endif
