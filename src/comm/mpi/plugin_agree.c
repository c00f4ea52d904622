/*
 * plugin_agree.c - do all ranks make the same call? MPI does not check: a rank that expects more
 * than was sent gets only a part, a float becomes an int, and a maximum is added to a sum.
 *
 * Every collective is accompanied by an MPI_Iallreduce of 32 bytes on a separate communicator,
 * where each call has exactly one. It computes the largest and (by complement) the smallest of the
 * ranks' calls. It runs along with the data, so it adds no round trip, and a call is not done
 * before it is. When the two differ, all ranks know, and gather what each of them called. Errors in
 * the data are held back until then, because the mismatch causes them.
 *
 * A message carries its dtype as its tag, and the receiver checks tag and length. Called on the
 * communicator's thread.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "comm/kinds.h"
#include "comm/mpi/plugin_internal.h"

int uni__agree_start(state *s, const uni__carrier_call *call, uni__agreement *it)
{
    it->request = MPI_REQUEST_NULL;
    it->mine = call->said;
    it->agreed = s->size == 1 || uni__kind_is_pair(call->kind);
    if (it->agreed)
        return MPI_SUCCESS;
    it->most[0] = it->mine.what;
    it->most[1] = ~it->mine.what;
    it->most[2] = it->mine.count;
    it->most[3] = ~it->mine.count;
    return MPI_Iallreduce(MPI_IN_PLACE, it->most, 4, MPI_UINT64_T, MPI_MAX, s->checks,
                          &it->request);
}

/* Uses the notes' communicator: on the other one a rank may already have started its next
 * call's. */
static int ask_all(state *s, uni__agreement *it)
{
    const int words = sizeof it->mine / sizeof(uint64_t);
    it->said = calloc((size_t)s->size, sizeof *it->said);
    if (!it->said)
        return MPI_ERR_NO_MEM;
    it->said[s->rank] = it->mine;
    return MPI_Iallgather(MPI_IN_PLACE, words, MPI_UINT64_T, it->said, words, MPI_UINT64_T,
                          s->notes, &it->request);
}

/* The first rank whose call differs. When only the numbers differ, a rank with another number. */
static int who_differs(const state *s, const uni__agreement *it)
{
    int other = -1;
    for (int r = s->size - 1; r >= 0; r--) {
        const uni__said *said = &it->said[r];
        bool differs = said->what != it->mine.what || said->count != it->mine.count;
        if (differs || (other < 0 && said->number != it->mine.number))
            other = r;
    }
    return other;
}

int uni__agree_step(state *s, uni__agreement *it)
{
    int there = 0;
    if (it->agreed || it->differs.rank >= 0)
        return MPI_SUCCESS;
    int code = MPI_Test(&it->request, &there, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS || !there)
        return code;
    if (!it->said) {
        it->agreed = it->most[0] == ~it->most[1] && it->most[2] == ~it->most[3];
        return it->agreed ? MPI_SUCCESS : ask_all(s, it);
    }
    int rank = who_differs(s, it);
    it->differs = (uni__carrier_difference){ .rank = rank < 0 ? s->rank : rank };
    it->differs.said = it->said[it->differs.rank];
    return MPI_SUCCESS;
}

void uni__agree_on_message(const state *s, const uni__carrier_call *call, const MPI_Status *status,
                           bool truncated, uni__agreement *it)
{
    MPI_Count bytes = 0;
    int mine = 1, theirs = 1;
    size_t extra = uni__sealed_is_needed(s, call) ? s->seal->extra : 0;
    MPI_Type_size(uni__mpi_type_of(call->dtype), &mine);
    MPI_Type_size(uni__mpi_type_of(status->MPI_TAG), &theirs);
    MPI_Get_elements_x(status, MPI_BYTE, &bytes);
    size_t expected = call->count * (size_t)mine + extra, came = (size_t)bytes;
    if (truncated)
        came = expected;
    else if (status->MPI_TAG == call->dtype && came == expected)
        return;
    it->differs = (uni__carrier_difference){ .rank = call->root, .more = truncated };
    it->differs.said.what = UNI__KIND_SEND | (uint64_t)status->MPI_TAG << 8;
    it->differs.said.count = came < extra ? 0 : (came - extra) / (size_t)theirs;
}
