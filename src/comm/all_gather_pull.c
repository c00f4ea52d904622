/* all_gather_pull.c - every rank reads every other rank's part. Each rank reads n x b bytes. */
#include "comm/algorithm.h"

static void copy_window(uni_comm_request *request, const uni__pull *pull)
{
    const uni__call *call = &request->call;
    size_t size = uni_dtype_size(call->dtype), bytes = pull->count * size;
    int n = request->lane->members;
    /* Start with the next rank, so that the ranks do not all read the same memory at once. */
    for (int i = 1; i <= n && bytes > 0; i++) {
        int m = (request->lane->mine + i) % n;
        char *to = (char *)call->out + ((size_t)m * call->count + pull->first) * size;
        if (to != pull->views[m])
            request->comm->kernels->copy(to, pull->views[m], bytes);
    }
}

const uni__algorithm uni__all_gather_pull = {
    .name = "pull",
    .cost = "shared buffers: 2 meetings, else 1 a window and b copied; n*b read by each rank",
    .fill = uni__pull_fill,
    .step = uni__pull_step,
    .window = copy_window,
};
