/* kernels_avx2.c - the same loops for AVX2. The target is set here and not in the build, because
 * this file is also part of a library for machines without AVX2; kernels.c checks the machine. */
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "comm/kernels.h"

#define KERNELS uni__kernels_avx2
#define KERNELS_NAME "avx2"
#if defined(__x86_64__)
UNI__TARGET_BEGIN("avx2")
#include "comm/kernels_body.h"
UNI__TARGET_END
#else
#include "comm/kernels_body.h"
#endif
