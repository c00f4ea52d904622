/* reduce_to_root.c - the root reads all inputs in rank order. The root reads n x b bytes. */
#include "comm/algorithm.h"

static void reduce_on_root(uni_comm_request *request, const uni__pull *pull)
{
    if (request->comm->rank == request->call.root)
        uni__pull_reduce(request, pull);
}

const uni__algorithm uni__reduce_to_root = {
    .name = "to_root",
    .cost = "shared buffers: 2 meetings, else 1 a window and b copied; n*b read by the root",
    .fill = uni__pull_fill,
    .step = uni__pull_step,
    .window = reduce_on_root,
};
