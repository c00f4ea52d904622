/* barrier_flags.c - each rank raises its flag and polls all others: 1 synchronization, no bytes. */
#include "comm/algorithm.h"

static int step(uni_comm_request *request, uni_error *err)
{
    return uni__board_reached(request, UNI__PHASE_ARRIVED, err);
}

const uni__algorithm uni__barrier_flags = {
    .name = "flags",
    .cost = "1 meeting; n cache lines read by each rank",
    .step = step,
};
