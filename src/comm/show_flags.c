/*
 * show_flags.c - all ranks of a host arrive and learn where the others' buffers are: 1
 * synchronization, no bytes. The caller decides what to do with them and when all are done
 * (hosts/hosts_slices.c).
 */
#include "comm/algorithm.h"

static int step(uni_comm_request *request, uni_error *err)
{
    int reached = uni__board_reached(request, UNI__PHASE_ARRIVED, err);
    uni__show *show = request->call.show;
    size_t bytes = uni__call_bytes(&request->call);
    int members = request->lane->members;
    if (reached != 1)
        return reached;
    show->seen = request->direct;
    for (int m = 0; m < members && show->seen; m++) {
        show->views[m] = uni__board_in(request, m, bytes);
        show->views[members + m] = uni__board_out(request, m, bytes);
        if (!show->views[m] || !show->views[members + m])
            return uni__board_fail(request, UNI_ECORRUPT, err,
                                   "the board names memory of rank %d that does not exist: "
                                   "its memory was overwritten",
                                   m);
    }
    return 1;
}

const uni__algorithm uni__show_flags = {
    .name = "flags",
    .cost = "1 meeting; over hosts: then each rank drives its slice",
    .step = step,
};
