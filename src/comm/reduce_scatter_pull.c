/* reduce_scatter_pull.c - rank r reads segment r of all inputs, in rank order. Each rank reads n x
 * b bytes, for segments of b bytes. */
#include "comm/algorithm.h"

static void reduce_window(uni_comm_request *request, const uni__pull *pull)
{
    const uni__call *call = &request->call;
    const void *in[UNI__COMM_MAX_RANKS];
    for (int m = 0; m < request->lane->members; m++)
        in[m] = pull->views[m] + (size_t)request->comm->rank * pull->stride;
    void *out = (char *)call->out + pull->first * uni_dtype_size(call->dtype);
    uni__reduce_many(request->comm->kernels, call->dtype, call->op, uni__divisor(request), in,
                     request->lane->members, &out, 1, pull->count);
}

const uni__algorithm uni__reduce_scatter_pull = {
    .name = "pull",
    .cost = "shared buffers: 2 meetings, else 1 a window and n*b copied; n*b read by each rank",
    .fill = uni__pull_fill,
    .step = uni__pull_step,
    .window = reduce_window,
};
