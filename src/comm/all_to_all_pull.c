/* all_to_all_pull.c - rank r reads segment r of every rank. Each rank reads n x b bytes. */
#include "comm/algorithm.h"

static void copy_window(uni_comm_request *request, const uni__pull *pull)
{
    const uni__call *call = &request->call;
    size_t size = uni_dtype_size(call->dtype), bytes = pull->count * size;
    int n = request->lane->members;
    for (int i = 1; i <= n && bytes > 0; i++) {
        int m = (request->lane->mine + i) % n;
        request->comm->kernels->copy(
            (char *)call->out + ((size_t)m * call->count + pull->first) * size,
            pull->views[m] + (size_t)request->comm->rank * pull->stride, bytes);
    }
}

const uni__algorithm uni__all_to_all_pull = {
    .name = "pull",
    .cost = "shared buffers: 2 meetings, else 1 a window and n*b copied; n*b read by each rank",
    .fill = uni__pull_fill,
    .step = uni__pull_step,
    .window = copy_window,
};
