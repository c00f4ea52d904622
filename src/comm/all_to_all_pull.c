/* all_to_all_pull.c - rank r reads segment r of every rank. Each rank reads n x b bytes. */
#include "comm/algorithm.h"

static void copy_window(uni_comm_request *request, const uni__pull *pull)
{
    uni__pull_gather(request, pull, request->comm->rank);
}

const uni__algorithm uni__all_to_all_pull = {
    .name = "pull",
    .cost = "shared buffers: 2 meetings, else 1 a window and n*b copied; n*b read by each rank",
    .fill = uni__pull_fill,
    .step = uni__pull_step,
    .window = copy_window,
};
