/* broadcast_pull.c - every rank reads from the root. Each rank reads b bytes. send and recv use the
 * same code within a pair, with the sender as the root. */
#include "comm/algorithm.h"
#include "comm/kinds.h"

static void copy_window(uni_comm_request *request, const uni__pull *pull)
{
    const uni__call *call = &request->call;
    bool pair = request->lane->first_rank >= 0;
    int root = pair ? 0 : call->root;
    size_t size = uni_dtype_size(call->dtype);
    if (request->lane->mine != root && pull->count > 0)
        request->comm->kernels->copy((char *)call->out + pull->first * size, pull->views[root],
                                     pull->count * size);
}

/* A message that fits one window is sent once it is in staging, so the sender does not wait. Two
 * ranks that both send first therefore do not deadlock. A mismatched recv then fails on the
 * receiver, and here at the next call. */
static int send_step(uni_comm_request *request, uni_error *err)
{
    bool small = uni__call_bytes(&request->call) <= UNI__WINDOW_BYTES;
    uni__slot *mine = uni__lane_slot(request->lane, request->lane->mine, request->seq);
    bool staged =
        !(atomic_load_explicit(&mine->what, memory_order_relaxed) >> 24 & UNI__FLAG_VISIBLE);
    if (request->call.kind == UNI__KIND_SEND && small && staged)
        return 1;
    return uni__pull_step(request, err);
}

const uni__algorithm uni__broadcast_pull = {
    .name = "pull",
    .cost = "shared buffers: 2 meetings, else 1 a window and b copied by the root; b read by each",
    .fill = uni__pull_fill,
    .step = uni__pull_step,
    .window = copy_window,
};

const uni__algorithm uni__send_small = {
    .name = "small",
    .cost = "the sender copies b and goes on; b read",
    .copy_first = true,
    .fill = uni__pull_fill,
    .step = send_step,
    .window = copy_window,
};

const uni__algorithm uni__send_pull = {
    .name = "pull",
    .cost = "shared buffer: 2 meetings of the two, else 1 a window and b copied; b read",
    .fill = uni__pull_fill,
    .step = uni__pull_step,
    .window = copy_window,
};
