/* kernels_avx2.c - the same loops for AVX2. The target is said here and not to the build, because this
 * file is also part of a library for machines without it; kernels.c asks the machine. */
#if defined(__x86_64__)
#pragma GCC target("avx2")
#endif
#define KERNELS uni__kernels_avx2
#define KERNELS_NAME "avx2"
#include "comm/kernels_body.h"
