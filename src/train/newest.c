/*
 * newest.c - answers a worker that asks for the newest checkpoint of its run (session_checkpoint.c). Controller thread.
 *
 * The promise is "the most recently saved one, at once, on every rank". A rank may have learned of another rank's save by means of its own (a barrier), so
 * the answer comes after everything that any rank has published by now was read, and after the persist thread has completed it. A checkpoint that still
 * waits for the report of some rank is waited for only by ranks that have reported that iteration themselves, and not for ever.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "train/hosts_internal.h"

#define WAIT_NS 30000000000ull

void uni__newest_asked(uni__run *run, int rank, const uint8_t *payload, size_t size)
{
    uni__rank *from = &run->ranks[rank];
    if (size != sizeof from->newest_serial)
        return;
    memcpy(&from->newest_serial, payload, sizeof from->newest_serial);
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
    uni__view view;
    uni__rank_view(run, rank, &view);
    if (view.remote && !view.shared && text[0] && text[0] != '!')
        text = "!the checkpoint is complete, but this rank's host does not see the storage that it "
               "is in: use storage that all hosts share";
    size_t length = strnlen(text, sizeof mail.text - 1);
    memcpy(mail.text, text, length);
    if (run->ranks[rank].state != UNI__RANK_GONE &&
        uni__group_send(run->group, rank, UNI__TO_WORKER_PEER, &mail, sizeof mail.header + length,
                        fd, &err) < 0 &&
        err.code != UNI_EPEER)
        uni__run_tell(run, UNI_EVENT_WARNING, rank,
                      "rank %d was not told of the newest checkpoint: %s", rank, err.message);
}

/* true: it was answered, or is about to be. */
static bool answer(uni__run *run, int rank, uint64_t now)
{
    uni__rank *from = &run->ranks[rank];
    int64_t iteration;
    int giver, missing = uni__persist_waits_for(run->persist, &iteration, &giver);
    if (missing < 0 || iteration > from->iteration) {
        uni__persist_newest(run->persist, rank, from->newest_serial);
        return true;
    }
    if (now < from->newest_until_ns)
        return false;
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "!the newest checkpoint, of iteration %lld, is not complete: rank %d has not reported "
             "that iteration for %d s. Call report() equally often on every rank",
             (long long)iteration, missing, (int)(WAIT_NS / 1000000000u));
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
    /* Rings that were read in this round before the question came may hold the save that it is about. */
    for (int i = 0; i < run->num_workers; i++)
        uni__group_drain(run->group, i);
    uint64_t now = uni__monotonic_ns();
    for (int i = 0; i < run->num_workers && run->state == UNI__RUN_RUNNING; i++)
        if (run->ranks[i].newest_until_ns && answer(run, i, now))
            run->ranks[i].newest_until_ns = 0;
}
