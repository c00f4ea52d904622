/* reduce_to_root.c - the root reads all inputs in the order of the ranks. n x b bytes read by the root. */
#include "comm/algorithm.h"

static void reduce_window(uni_comm_request *request, const uni__pull *pull)
{
    const uni__call *call = &request->call;
    if (request->comm->rank != call->root)
        return;
    void *out = (char *)call->out + pull->first * uni_dtype_size(call->dtype);
    uni__reduce_many(request->comm->kernels, call->dtype, call->op, uni__divisor(request),
                     (const void *const *)pull->views, request->lane->members, &out, 1,
                     pull->count);
}

static int step(uni_comm_request *request, uni_error *err)
{
    return uni__pull_step(request, reduce_window, err);
}

const uni__algorithm uni__reduce_to_root = {
    .name = "to_root",
    .cost = "shared buffers: 2 meetings, else 1 a window and b copied; n*b read by the root",
    .fill = uni__pull_fill,
    .step = step,
};
