/* kernels_base.c - the reductions for any machine; the loops are in kernels_body.h. */
#define KERNELS uni__kernels_base
#define KERNELS_NAME "base"
#include "comm/kernels_body.h"
