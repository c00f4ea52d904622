/*
 * pull.c - the shared code of all collectives in which ranks only read from each other.
 *
 * Each rank's input consists of segments of equal length (one, or one per rank). When all inputs
 * are visible, a single window covers everything and is read in place. A last phase tells that all
 * ranks have read.
 *
 *   phase 1  arrived     phase 2  has read everything
 *
 * Otherwise windows of the segments go through the two halves of the staging areas:
 *
 *   phase 2 + k  my window k is in half k % 2, and I have read all windows before it
 *
 * One phase per window is enough: a rank that sees all peers at 2 + k knows that all have read
 * window k - 1, so its half can be filled with k + 1. There is no last phase, because the board
 * guards the areas.
 */
#include "comm/algorithm.h"
#include "comm/kinds.h"

enum { ARRIVING = 0, READING = 1, LEAVING = 2 };

static size_t window_elements(const uni_comm_request *request)
{
    size_t segments = uni__call_segments(&request->call, request->comm->size);
    size_t size = uni_dtype_size(request->call.dtype);
    return UNI__WINDOW_BYTES / segments / size;
}

static size_t num_windows(const uni_comm_request *request)
{
    size_t each = window_elements(request);
    size_t windows = (request->call.count + each - 1) / each;
    return windows ? windows : 1;
}

static size_t window_count(const uni_comm_request *request, size_t window)
{
    size_t each = window_elements(request), first = window * each, all = request->call.count;
    return first >= all ? 0 : all - first < each ? all - first : each;
}

void uni__pull_fill(uni_comm_request *request, size_t window)
{
    const uni__call *call = &request->call;
    bool gives = !(call->kind == UNI__KIND_RECV ||
                   (call->kind == UNI__KIND_BROADCAST && call->root != request->comm->rank));
    if (!gives)
        return;
    size_t size = uni_dtype_size(call->dtype), each = window_elements(request);
    size_t segments = uni__call_segments(call, request->comm->size);
    size_t bytes = window_count(request, window) * size;
    char *half = uni__board_half(request, request->lane->mine, window);
    for (size_t s = 0; s < segments && bytes > 0; s++)
        request->comm->kernels->copy(
            half + s * each * size,
            (const char *)call->in + (s * call->count + window * each) * size, bytes);
}

static int read_in_place(uni_comm_request *request, uni_error *err)
{
    int members = request->lane->members;
    const char *views[UNI__COMM_MAX_RANKS];
    size_t bytes = uni__call_bytes(&request->call);
    size_t whole = bytes * uni__call_segments(&request->call, request->comm->size);
    for (int m = 0; m < members; m++) {
        views[m] = uni__board_in(request, m, whole);
        bool gives = request->lane->first_rank >= 0              ? m == 0
                     : request->call.kind == UNI__KIND_BROADCAST ? m == request->call.root
                                                                 : true;
        if (!views[m] && gives && whole > 0)
            return uni__board_fail(request, UNI_ECORRUPT, err,
                                   "the board names memory of rank %d that does not exist: "
                                   "its memory was overwritten",
                                   uni__lane_rank(request->lane, m));
    }
    request->algorithm->window(request, &(uni__pull){ views, bytes, 0, request->call.count });
    return 0;
}

static void read_staged(uni_comm_request *request)
{
    int members = request->lane->members;
    const char *views[UNI__COMM_MAX_RANKS];
    size_t each = window_elements(request);
    for (int m = 0; m < members; m++)
        views[m] = uni__board_half(request, m, request->window);
    request->algorithm->window(
        request, &(uni__pull){ views, each * uni_dtype_size(request->call.dtype),
                               request->window * each, window_count(request, request->window) });
}

static int arrive(uni_comm_request *request, uni_error *err)
{
    int reached = uni__board_reached(request, UNI__PHASE_ARRIVED, err);
    if (reached != 1)
        return reached;
    if (request->direct) {
        UNI_TRY(read_in_place(request, err));
        request->stage = LEAVING;
        uni__board_publish(request, 2);
        return 1;
    }
    uni__slot *mine = uni__lane_slot(request->lane, request->lane->mine, request->seq);
    if (atomic_load_explicit(&mine->what, memory_order_relaxed) >> 24 & UNI__FLAG_VISIBLE) {
        /* My buffer is visible, but that of another rank is not, so all go through staging. */
        uni__pull_fill(request, 0);
        uni__board_publish(request, 2);
    }
    request->stage = READING;
    return 1;
}

int uni__pull_step(uni_comm_request *request, uni_error *err)
{
    int reached;
    if (request->stage == ARRIVING && (reached = arrive(request, err)) != 1)
        return reached;
    if (request->stage == LEAVING)
        return uni__board_reached(request, 2, err);
    size_t windows = num_windows(request);
    for (;;) {
        if ((reached = uni__board_reached(request, 2 + request->window, err)) != 1)
            return reached;
        read_staged(request);
        if (++request->window == windows)
            return 1;
        uni__pull_fill(request, request->window);
        uni__board_publish(request, 2 + request->window);
    }
}

double uni__divisor(const uni_comm_request *request)
{
    return request->call.op == UNI_COMM_MEAN ? request->total_weight : 0;
}

void uni__pull_reduce(uni_comm_request *request, const uni__pull *pull)
{
    const uni__call *call = &request->call;
    void *out = (char *)call->out + pull->first * uni_dtype_size(call->dtype);
    uni__reduce_many(request->comm->kernels, call->dtype, call->op, uni__divisor(request),
                     (const void *const *)pull->views, request->lane->members, &out, 1,
                     pull->count);
}

void uni__pull_gather(uni_comm_request *request, const uni__pull *pull, int segment)
{
    const uni__call *call = &request->call;
    size_t size = uni_dtype_size(call->dtype), bytes = pull->count * size;
    int n = request->lane->members;
    /* Start with the next rank, so that the ranks do not all read the same memory at once. */
    for (int i = 1; i <= n && bytes > 0; i++) {
        int m = (request->lane->mine + i) % n;
        const char *from = pull->views[m] + (size_t)segment * pull->stride;
        char *to = (char *)call->out + ((size_t)m * call->count + pull->first) * size;
        if (to != from)
            request->comm->kernels->copy(to, from, bytes);
    }
}
