/*
 * run_state.c - a run's side of the state channel (state.h): the ranks' state is logged as it
 * comes. [controller]
 */
#include <stdlib.h>

#include "base/shared.h"
#include "train/run_internal.h"

#define PATIENCE 8 /* entries in a log before it is worth looking at the other ranks */

int uni__run_seed_state(uni__run *run, int rank, uni_error *err)
{
    const uni_value *section = uni_list_get(run->attempt.start.state, (size_t)rank);
    void *bytes = NULL;
    size_t size = 0;
    if (uni_dict_size(section) == 0 ||
        uni_list_size(run->attempt.start.state) != (size_t)run->num_workers)
        return 0;
    int status = uni__msgpack_write(&bytes, &size, section, err);
    if (status == 0)
        status = uni__state_log_add(&run->ranks[rank].state_log, run->attempt.start.iteration,
                                    bytes, size, err);
    free(bytes);
    return status;
}

/* A checkpoint of an iteration comes before the report of its rank, so no new one is of an
 * iteration that all ranks have passed. */
static int64_t passed_by_all(const uni__run *run)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < run->num_workers; i++)
        if (!run->ranks[i].done && !uni__run_is_member(run, i) && run->ranks[i].iteration < least)
            least = run->ranks[i].iteration;
    return least;
}

void uni__run_note_state(uni__run *run, int rank, int64_t iteration, const void *section,
                         size_t size)
{
    uni__rank *from = &run->ranks[rank];
    uni_error err = { 0 };
    int status = uni__state_log_add(&from->state_log, iteration, section, size, &err);
    if (status == UNI_ELIMIT && !run->said.state_lost) {
        run->said.state_lost = true;
        uni__run_tell(
            run, UNI_EVENT_WARNING, rank,
            "rank %d is far ahead of the others: %s. A checkpoint of an earlier iteration "
            "will have no positions in datasets",
            rank, err.message);
    } else if (status < 0 && status != UNI_ELIMIT) {
        uni__run_fatal(run, UNI__CAUSE_INTERNAL, &err);
        return;
    }
    if (from->state_log.count < from->state_patience)
        return;
    /* A checkpoint that waits still needs what held at its iteration. */
    int64_t passed = passed_by_all(run), waited;
    int ignored;
    if (uni__persist_waits_for(run->persist, &waited, &ignored) >= 0 && waited < passed)
        passed = waited;
    uni__state_log_passed(&from->state_log, passed);
    from->state_patience = 2 * from->state_log.count + PATIENCE;
}
