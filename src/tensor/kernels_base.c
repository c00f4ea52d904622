/* kernels_base.c - the fast inner loops for the compiler's target processor (x86-64: SSE2), and the
 * selection of the table. */
#define KERNELS uni__tensor_kernels_base
#define KERNELS_NAME "base"
#include "tensor/kernels_simd.h"
#include "tensor/kernels_rows.h"
#include "tensor/kernels_step.h"

const uni__tensor_kernels *uni__tensor_kernels_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &uni__tensor_kernels_avx2;
#endif
    return &uni__tensor_kernels_base;
}
