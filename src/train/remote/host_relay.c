/*
 * host_relay.c - from the workers of a host to the controller: what each says is handed on, the
 * words of the pages are kept alike (group/remote.h). The other way is host_orders.c.
 *
 * Descriptors cannot leave the host: what a worker passes to a rank of the same host is delivered
 * here; its snapshot buffers are mapped here, and their contents sent when a checkpoint speaks of
 * them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/remote/host_internal.h"

#define FULL_BYTES (8u << 20) /* queued: the rings are not read any further */

/* ---- to the controller ---- */

void host_say(host_agent *self, int slot, int type, const void *payload, size_t size)
{
    int32_t rank = slot >= 0 ? self->workers[slot].rank : -1;
    if (self->link)
        uni__link_send(self->link, type, &rank, sizeof rank, payload, size);
}

void host_say_value(host_agent *self, int type, uni_value *message)
{
    void *bytes = NULL;
    size_t size = 0;
    if (message && uni__msgpack_write(&bytes, &size, message, NULL) == 0)
        host_say(self, -1, type, bytes, size);
    free(bytes);
    uni_value_free(message);
}

void host_say_message(host_agent *self, int slot, int type, const uint8_t *payload, size_t size)
{
    struct {
        int32_t rank;
        uint8_t type, more;
    } __attribute__((packed)) head = { .rank = self->workers[slot].rank, .type = (uint8_t)type };
    do {
        size_t part = size < UNI__REMOTE_CHUNK ? size : UNI__REMOTE_CHUNK;
        head.more = size > part;
        if (self->link)
            uni__link_send(self->link, UNI__REMOTE_MESSAGE, &head, sizeof head, payload, part);
        payload += part;
        size -= part;
    } while (size > 0);
}

void host_say_words(host_agent *self, int slot, bool even_if_same)
{
    host_worker *worker = &self->workers[slot];
    uni__page *page = uni__group_page(self->group, slot);
    uni__worker_words now;
    if (!page || (!uni__worker_words_read(page, &now, &worker->said) && !even_if_same))
        return;
    worker->said = now;
    host_say(self, slot, UNI__REMOTE_WORDS, &now, sizeof now);
}

/* ---- from the workers ---- */

static void on_spawned(void *context, int slot, int pid)
{
    int32_t number = pid;
    host_say(context, slot, UNI__REMOTE_SPAWNED, &number, sizeof number);
}

void host_spawn_failed(void *context, int slot, const char *sentence)
{
    host_say(context, slot, UNI__REMOTE_SPAWN_FAILED, sentence, strlen(sentence));
}

static void on_message(void *context, int slot, int type, const uint8_t *payload, size_t size)
{
    host_agent *self = context;
    if (!host_transfer_begin(self, slot, type, payload, size))
        host_say_message(self, slot, type, payload, size);
}

int host_slot_of(const host_agent *self, int rank)
{
    for (int i = 0; i < self->num_workers; i++)
        if (self->workers[i].rank == rank)
            return i;
    return -1;
}

/* With its descriptor, to a worker of this host. */
static void deliver(host_agent *self, int from, const uni__wire_frame *frame)
{
    int32_t to, sender = self->workers[from].rank;
    uni_error err = { 0 };
    if (frame->size < sizeof to)
        return;
    memcpy(&to, frame->payload, sizeof to);
    uint8_t *copy = malloc(frame->size);
    if (!copy)
        return;
    memcpy(copy, frame->payload, frame->size);
    memcpy(copy, &sender, sizeof sender);
    int slot = host_slot_of(self, to);
    if (slot < 0)
        uni__warn("rank %d passes a descriptor to rank %d, which is on another host", sender, to);
    else if (uni__group_send(self->group, slot, UNI__TO_WORKER_PEER, copy, frame->size,
                             frame->fds[0], &err) < 0)
        uni__warn("a message from rank %d to rank %d was lost: %s", sender, to, err.message);
    free(copy);
}

static void on_mail(void *context, int slot, const uni__wire_frame *frame)
{
    host_agent *self = context;
    int32_t type = frame->type;
    uint8_t head[8];
    if (frame->num_fds > 0) {
        deliver(self, slot, frame);
    } else if (self->link) {
        int32_t rank = self->workers[slot].rank;
        memcpy(head, &rank, 4);
        memcpy(head + 4, &type, 4);
        uni__link_send(self->link, UNI__REMOTE_CHANNEL, head, sizeof head, frame->payload,
                       frame->size);
    }
}

static void on_broken(void *context, int slot, const char *sentence)
{
    host_say(context, slot, UNI__REMOTE_BROKEN, sentence, strlen(sentence));
}

static void on_line(void *context, int slot, const char *line, size_t size)
{
    host_agent *self = context;
    /* Only the last lines of a worker that has ended come while a checkpoint is on its way. */
    if (self->link && self->workers[slot].transfer.active) {
        host_transfer_pump(self);
        uni__link_flush_all(self->group);
        host_transfer_pump(self);
    }
    if (self->workers[slot].transfer.active)
        uni__warn("a report of rank %d is lost: it ended while its checkpoint was being sent",
                  self->workers[slot].rank);
    else if (!line || !host_transfer_begin_line(self, slot, line, size))
        host_say(self, slot, UNI__REMOTE_LINE, line, line ? size : 0);
}

static void on_exited(void *context, int slot, const uni__exit *how)
{
    host_agent *self = context;
    int32_t numbers[5] = { how->pid, how->exit_code, how->signal, how->core, how->oom };
    /* MPI ends a process that has lost its daemon: the daemon's end is the cause. */
    host_check_parent(self);
    /* What it had said before its end comes first. A checkpoint that is on its way is finished. */
    while (self->link && self->workers[slot].transfer.active) {
        host_transfer_pump(self);
        uni__link_flush_all(self->group);
        /* the network is slower than that: it goes on behind the exit, and is given up */
        if (self->workers[slot].transfer.active)
            break;
        uni__group_drain(self->group, slot);
    }
    host_say_words(self, slot, true);
    host_forward_log(self, slot);
    host_say(self, slot, UNI__REMOTE_EXITED, numbers, sizeof numbers);
}

static void on_stopped(void *context, int slot, bool stopped)
{
    int32_t number = stopped;
    host_say(context, slot, UNI__REMOTE_STOPPED, &number, sizeof number);
}

static void on_all_dead(void *context, int left)
{
    host_agent *self = context;
    int32_t number = left;
    for (int i = 0; i < self->num_workers; i++)
        host_forward_log(self, i);
    /* Before it is said: then the controller ends mpirun, and its daemon this process. */
    host_tidy(self);
    host_say(self, -1, UNI__REMOTE_ALL_DEAD, &number, sizeof number);
    uni__link_flush_all(self->group);
    host_over(self, 0);
}

static void on_agent_lost(void *context)
{
    uni__warn("unisono-agent was killed, and the workers of this host with it");
    host_over(context, 1);
}

void host_hold_when_full(host_agent *self)
{
    bool full = self->link && uni__link_queued(self->link) > FULL_BYTES;
    for (int i = 0; i < self->num_workers; i++)
        if (!self->workers[i].transfer.active)
            uni__group_hold(self->group, i, full);
}

static void on_drained(void *context)
{
    host_agent *self = context;
    for (int i = 0; i < self->num_workers; i++)
        host_say_words(self, i, false);
    host_hold_when_full(self);
}

static void on_tick(void *context)
{
    host_agent *self = context;
    uint64_t now = uni__monotonic_ns();
    if (!self->link)
        return;
    host_check_parent(self);
    for (int i = 0; i < self->num_workers; i++) {
        host_say_words(self, i, false);
        host_forward_log(self, i);
    }
    host_hold_when_full(self);
    host_transfer_pump(self);
    if (now - self->pulse_ns > UNI__REMOTE_PULSE_NS) {
        self->pulse_ns = now;
        host_say(self, -1, UNI__REMOTE_PULSE, NULL, 0);
    }
    double quiet = (double)(now - uni__link_heard_ns(self->link)) * 1e-9;
    if (self->silent_timeout > 0 && quiet < 1e9 && quiet > 2 * self->silent_timeout) {
        fprintf(stderr,
                "unisono-host: nothing was heard of the controller for %.1f s: the workers "
                "of this host are ended\n",
                quiet);
        host_over(self, 1);
    }
}

void host_check_parent(host_agent *self)
{
    if (self->orphaned || !self->link || !uni__launcher_daemon_is_gone(&self->daemon))
        return;
    self->orphaned = true;
    host_say(self, -1, UNI__REMOTE_ORPHANED, self->daemon.name, strlen(self->daemon.name));
}

/* Whether SIGTERM is a wish to stop or the launcher's own trouble is the controller's to say. A
 * second one ends this host. */
static void on_signalled(void *context, int number)
{
    host_agent *self = context;
    int32_t said = number;
    if (self->ending)
        host_over(self, 128 + number);
    self->ending = true;
    host_check_parent(self);
    host_say(self, -1, UNI__REMOTE_SIGNALLED, &said, sizeof said);
}

const uni__group_events host_group_events = {
    .spawned = on_spawned,
    .spawn_failed = host_spawn_failed,
    .message = on_message,
    .mail = on_mail,
    .broken = on_broken,
    .line = on_line,
    .exited = on_exited,
    .stopped = on_stopped,
    .all_dead = on_all_dead,
    .agent_lost = on_agent_lost,
    .drained = on_drained,
    .tick = on_tick,
    .signalled = on_signalled,
};
