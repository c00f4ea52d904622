/*
 * newest.c - answers a worker that asks for the newest checkpoint of its run
 * (session_checkpoint.c). Controller thread.
 *
 * The promise is "the most recently saved one, at once, on every rank". A rank may have learned of
 * another rank's save by means of its own (a barrier), so the answer comes after everything that
 * any rank has published by now was read, and after the persist thread has completed it. A
 * checkpoint that still waits for the report of some rank is waited for only by ranks that have
 * reported that iteration themselves, and not for ever. A rank that has called save_checkpoint
 * means rank 0's dictionary of the same call: it waits until rank 0 has called it as often. In the
 * same way a rank that is ahead of rank 0 waits for rank 0's report of its iteration, in which the
 * checkpoint may be: with Ray, report() itself would have waited.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "train/hosts_internal.h"

#define WAIT_NS 30000000000ull

void uni__newest_asked(uni__run *run, int rank, const uint8_t *payload, size_t size)
{
    uni__rank *from = &run->ranks[rank];
    uint32_t asked[2];
    if (size != sizeof asked)
        return;
    memcpy(asked, payload, sizeof asked);
    from->newest_serial = asked[0];
    from->newest_saves = asked[1];
    from->newest_until_ns = uni__monotonic_ns() + WAIT_NS;
}

void uni__newest_answer(uni__run *run, int rank, uint32_t serial, const char *text, int fd)
{
    struct {
        uni__mail_header header;
        char text[4096];
    } mail = { .header = { .rank = UNI__CONTROLLER } };
    uni_error err = { 0 };
    snprintf(mail.header.key, sizeof mail.header.key, UNI__NEWEST_KEY, serial);
    uni__rank_place place;
    if (uni__group_place(run->group, rank, &place) && !place.shares_storage && text[0] &&
        text[0] != '!')
        text = "!the checkpoint is complete, but this rank's host does not see the storage that it "
               "is in: use storage that all hosts share";
    size_t length = strnlen(text, sizeof mail.text - 1);
    memcpy(mail.text, text, length);
    if (uni__worker_is_live(run->ranks[rank].worker) &&
        uni__group_send(run->group, rank, UNI__TO_WORKER_PEER, &mail, sizeof mail.header + length,
                        fd, &err) < 0 &&
        err.code != UNI_EPEER)
        uni__run_tell(run, UNI_EVENT_WARNING, rank,
                      "rank %d was not told of the newest checkpoint: %s", rank, err.message);
}

static bool is_at_work(const uni__rank *rank)
{
    return !rank->done && !rank->failed && uni__worker_is_live(rank->worker);
}

/* What a rank waits for that asks for the newest checkpoint, as an answer to give when it takes too
 * long; false: nothing. */
static bool waits(const uni__run *run, const uni__rank *from, char sentence[256])
{
    int64_t iteration;
    int giver, missing = uni__persist_waits_for(run->persist, &iteration, &giver);
    if (missing >= 0 && iteration <= from->iteration)
        snprintf(sentence, 256,
                 "!the newest checkpoint, of iteration %lld, is not complete: rank %d has not "
                 "reported that iteration for %d s. Call report() equally often on every rank",
                 (long long)iteration, missing, (int)(WAIT_NS / 1000000000u));
    else if (from->newest_saves > run->ranks[0].saves && is_at_work(&run->ranks[0]))
        snprintf(sentence, 256,
                 "!rank 0 has called save_checkpoint %u times, and this rank %u times, for %d s. "
                 "Call save_checkpoint() equally often on every rank",
                 run->ranks[0].saves, from->newest_saves, (int)(WAIT_NS / 1000000000u));
    else
        return false;
    return true;
}

/* Rank 0 has not yet reported what this rank has. Ranks may report unequally often, so a wait in
 * vain is the only one. */
static bool is_ahead(uni__run *run, int rank, uint64_t now)
{
    uni__rank *from = &run->ranks[rank];
    if (from->newest_saves > 0 || from->uneven || from->iteration <= run->ranks[0].iteration ||
        uni__run_is_member(run, rank) || !is_at_work(&run->ranks[0]))
        return false;
    if (now < from->newest_until_ns)
        return true;
    from->uneven = true;
    uni__run_tell(
        run, UNI_EVENT_WARNING, rank,
        "rank %d asked for the newest checkpoint after iteration %lld, and rank 0 has not "
        "reported it for %d s: rank %d gets an earlier one, now and later. Call report() "
        "equally often on every rank",
        rank, (long long)from->iteration, (int)(WAIT_NS / 1000000000u), rank);
    return false;
}

/* true: it was answered, or is about to be. */
static bool answer(uni__run *run, int rank, uint64_t now)
{
    uni__rank *from = &run->ranks[rank];
    char sentence[256];
    if (!waits(run, from, sentence)) {
        if (is_ahead(run, rank, now))
            return false;
        uni__persist_newest(run->persist, rank, from->newest_serial);
        return true;
    }
    if (now < from->newest_until_ns)
        return false;
    uni__newest_answer(run, rank, from->newest_serial, sentence, -1);
    return true;
}

void uni__newest_look(uni__run *run)
{
    bool asked = false;
    for (int i = 0; i < run->num_workers; i++)
        asked |= run->ranks[i].newest_until_ns != 0;
    if (!asked || run->state != UNI__RUN_RUNNING)
        return;
    /* Rings that were read in this round before the question came may hold the save that it is
     * about. */
    for (int i = 0; i < run->num_workers; i++)
        uni__group_drain(run->group, i);
    uint64_t now = uni__monotonic_ns();
    for (int i = 0; i < run->num_workers && run->state == UNI__RUN_RUNNING; i++)
        if (run->ranks[i].newest_until_ns && answer(run, i, now))
            run->ranks[i].newest_until_ns = 0;
}
