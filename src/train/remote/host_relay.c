/*
 * host_relay.c - between the workers of a host and the controller: what each says is handed on, the words of the pages are kept alike (group/remote.h).
 *
 * Descriptors cannot leave the host: what a worker passes to a rank of the same host is delivered here; its snapshot buffers are mapped here, and their
 * contents sent when a checkpoint speaks of them.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
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

static void say_value(host_agent *self, int type, uni_value *message)
{
    void *bytes = NULL;
    size_t size = 0;
    if (message && uni_msgpack_write(&bytes, &size, message, NULL) == 0)
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

static void on_spawn_failed(void *context, int slot, const char *sentence)
{
    host_say(context, slot, UNI__REMOTE_SPAWN_FAILED, sentence, strlen(sentence));
}

static void on_message(void *context, int slot, int type, const uint8_t *payload, size_t size)
{
    host_agent *self = context;
    if (!host_transfer_begin(self, slot, type, payload, size))
        host_say_message(self, slot, type, payload, size);
}

static int slot_of(const host_agent *self, int rank)
{
    for (int i = 0; i < self->num_workers; i++)
        if (self->workers[i].rank == rank)
            return i;
    return -1;
}

static void take_snapshot(host_worker *worker, int number, int fd)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) < 0 || info.st_size <= 0)
        return;
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return;
    if (worker->snapshots[number].memory)
        munmap(worker->snapshots[number].memory, worker->snapshots[number].size);
    worker->snapshots[number].memory = memory;
    worker->snapshots[number].size = (size_t)info.st_size;
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
    int slot = slot_of(self, to);
    if (slot < 0)
        uni__warn("rank %d passes a descriptor to rank %d, which is on another host", sender, to);
    else if (uni__group_send(self->group, slot, UNI__TO_WORKER_PEER, copy, frame->size,
                             frame->fds[0], &err) < 0)
        uni__warn("a message from rank %d to rank %d was lost: %s", sender, to, err.message);
    free(copy);
}

static void on_channel(void *context, int slot, uni__wire_frame *frame)
{
    host_agent *self = context;
    int32_t type = frame->type;
    uint8_t head[8];
    if (frame->num_fds > 0 && type >= 1 && type <= UNI__SNAPSHOT_SLOTS) {
        take_snapshot(&self->workers[slot], type - 1, frame->fds[0]);
    } else if (frame->num_fds > 0) {
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
    host_say(context, slot, UNI__REMOTE_LINE, line, line ? size : 0);
}

static void on_exited(void *context, int slot, const uni__exit *how)
{
    host_agent *self = context;
    int32_t numbers[5] = { how->pid, how->exit_code, how->signal, how->core, how->oom };
    /* What it had said before its end comes first. A checkpoint that is on its way is finished. */
    while (self->link && self->workers[slot].transfer.active) {
        host_transfer_pump(self);
        uni__link_flush_all(self->group);
        if (self->workers[slot].transfer.active)
            break; /* the network is slower than that: it goes on behind the exit, and is given up */
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

static void on_silent(void *context, int slot, double seconds)
{
    /* The controller sees the same heartbeats, and decides. */
}

static void on_all_dead(void *context, int left)
{
    host_agent *self = context;
    int32_t number = left;
    for (int i = 0; i < self->num_workers; i++)
        host_forward_log(self, i);
    host_say(self, -1, UNI__REMOTE_ALL_DEAD, &number, sizeof number);
    uni__link_flush_all(self->group);
    host_over(self, 0);
}

static void on_agent_lost(void *context)
{
    uni__warn("unisono-agent was killed, and the workers of this host with it");
    host_over(context, 1);
}

static void hold_when_full(host_agent *self)
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
    hold_when_full(self);
}

static void on_tick(void *context)
{
    host_agent *self = context;
    uint64_t now = uni__monotonic_ns();
    if (!self->link)
        return;
    for (int i = 0; i < self->num_workers; i++) {
        host_say_words(self, i, false);
        host_forward_log(self, i);
    }
    hold_when_full(self);
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

/* SIGTERM from the launcher is preemption: all ranks stop together. A second one ends this host. */
static void on_signalled(void *context, int number)
{
    host_agent *self = context;
    if (self->ending)
        host_over(self, 128 + number);
    self->ending = true;
    for (int i = 0; i < self->num_workers; i++) {
        uni__page *page = uni__group_page(self->group, i);
        uint32_t none = UNI__STOP_NONE;
        if (page)
            atomic_compare_exchange_strong(&page->stop_request, &none, UNI__STOP_PREEMPTED);
        host_say_words(self, i, false);
    }
}

const uni__group_events host_group_events = {
    .spawned = on_spawned,
    .spawn_failed = on_spawn_failed,
    .message = on_message,
    .channel = on_channel,
    .broken = on_broken,
    .line = on_line,
    .exited = on_exited,
    .stopped = on_stopped,
    .silent = on_silent,
    .all_dead = on_all_dead,
    .agent_lost = on_agent_lost,
    .drained = on_drained,
    .tick = on_tick,
    .signalled = on_signalled,
};

/* ---- from the controller ---- */

static bool token_is_there(const char *path, const char *token, int rank)
{
    char *text = NULL, *answer = NULL;
    size_t size = 0;
    bool same = path[0] && uni__read_file(&text, &size, path, 4096, NULL) == 0 &&
                strcmp(text, token) == 0 && asprintf(&answer, "%s.%d", path, rank) > 0 &&
                uni__write_file(answer, token, strlen(token), false, NULL) == 0;
    free(text);
    free(answer);
    return same;
}

static void take_welcome(host_agent *self, const uni_value *welcome)
{
    self->silent_timeout = uni_dict_get_float(welcome, "silent_timeout", 5);
    self->shares_storage =
        token_is_there(uni_dict_get_string(welcome, "token_path", ""),
                       uni_dict_get_string(welcome, "token", ""), self->workers[0].rank);
    /* A place for what cannot be put into the storage. */
    uni_error err = { 0 };
    if (!self->shares_storage && host_make_scratch(self, &err) < 0) {
        fprintf(stderr, "unisono-host: %s\n", err.message);
        host_over(self, 1);
        return;
    }
    uni_value *answer = uni_value_dict();
    int status = uni_dict_take(answer, "shared", uni_value_bool(self->shares_storage));
    status |= uni_dict_take(answer, "scratch", uni_value_string(self->scratch));
    if (status == 0)
        say_value(self, UNI__REMOTE_PROBED, answer);
    else
        uni_value_free(answer);
}

/* The controller's environment, with what the launcher made for this rank here. */
static uni_value *environment_of(const host_worker *worker, const uni_value *order)
{
    const uni_value *given = uni_dict_get(order, "env");
    uni_value *all = uni_value_list();
    int status = 0;
    for (size_t i = 0; i < uni_list_size(given); i++) {
        const char *pair = uni_value_as_string(uni_list_get(given, i), "");
        if (!host_is_launchers(pair))
            status |= uni_list_take(all, uni_value_string(pair));
    }
    for (size_t i = 0; i < uni_list_size(worker->variables); i++)
        status |= uni_list_take(all, uni_value_copy(uni_list_get(worker->variables, i)));
    if (status == 0)
        return all;
    uni_value_free(all);
    return NULL;
}

static void take_spawn(host_agent *self, int slot, const uni_value *order)
{
    host_worker *worker = &self->workers[slot];
    uni_error err = { 0 };
    host_worker_forget(worker);
    uni_value *environment = environment_of(worker, order);
    const char *log = uni_dict_get_string(order, "log", "/dev/null");
    if (uni_dict_get_bool(order, "forward_log", false)) {
        worker->log = strdup(log);
        worker->log_read = 0;
    }
    uni__spawn spawn = { .rank = slot,
                         .runs_functions =
                             strcmp(uni_dict_get_string(order, "mode", "p"), "f") == 0,
                         .exe = uni_dict_get_string(order, "exe", ""),
                         .argv = uni_dict_get(order, "argv"),
                         .environment = environment,
                         .cwd = uni_dict_get_string(order, "cwd", ""),
                         .log = log,
                         .memory = (uint64_t)uni_dict_get_int(order, "memory", 0) };
    if (!environment || uni__group_spawn(self->group, &spawn, &err) < 0)
        on_spawn_failed(self, slot, environment ? err.message : "no memory");
    uni_value_free(environment);
}

static void take_part(host_worker *worker, const uint8_t *bytes, size_t size)
{
    uint8_t *grown = realloc(worker->parts, worker->parts_size + size + 1);
    if (!grown)
        return;
    memcpy(grown + worker->parts_size, bytes, size);
    worker->parts = grown;
    worker->parts_size += size;
}

static void take_memory(host_worker *worker, const uint8_t *bytes, size_t size)
{
    if (worker->memory_fd < 0)
        worker->memory_fd = memfd_create("unisono-resume", MFD_CLOEXEC);
    if (worker->memory_fd >= 0 && write(worker->memory_fd, bytes, size) != (ssize_t)size)
        uni__warn("no memory for what rank %d is to resume from", worker->rank);
}

static void take_send(host_agent *self, int slot, const uint8_t *payload, size_t size)
{
    host_worker *worker = &self->workers[slot];
    int32_t head[2];
    uni_error err = { 0 };
    if (size < sizeof head)
        return;
    memcpy(head, payload, sizeof head);
    take_part(worker, payload + sizeof head, size - sizeof head);
    int status = uni__group_send(self->group, slot, head[0], worker->parts, worker->parts_size,
                                 head[1] ? worker->memory_fd : -1, &err);
    if (status < 0 && status != UNI_EPEER)
        uni__warn("a message to rank %d was lost: %s", worker->rank, err.message);
    free(worker->parts);
    worker->parts = NULL;
    worker->parts_size = 0;
    if (head[1] && worker->memory_fd >= 0) {
        close(worker->memory_fd);
        worker->memory_fd = -1;
    }
}

static void take_control(host_agent *self, int slot, const uint8_t *payload, size_t size)
{
    host_worker *worker = &self->workers[slot];
    uni__page *page = uni__group_page(self->group, slot);
    uni__control_words words;
    if (!page || size != sizeof words)
        return;
    memcpy(&words, payload, sizeof words);
    words.alarm_reason[sizeof words.alarm_reason - 1] = '\0';
    bool stops = words.stopping && !worker->control.stopping;
    uni__control_words_apply(page, &words, &worker->control);
    worker->control = words;
    if (stops)
        host_say_words(self, slot, true);
}

static void take_of_worker(host_agent *self, int type, int slot, const uint8_t *payload,
                           size_t size)
{
    int32_t number = 0;
    if (size >= sizeof number)
        memcpy(&number, payload, sizeof number);
    if (type == UNI__REMOTE_PART)
        take_part(&self->workers[slot], payload, size);
    else if (type == UNI__REMOTE_MEMORY)
        take_memory(&self->workers[slot], payload, size);
    else if (type == UNI__REMOTE_SEND)
        take_send(self, slot, payload, size);
    else if (type == UNI__REMOTE_KILL)
        uni__group_kill(self->group, slot, number);
    else if (type == UNI__REMOTE_CONTROL)
        take_control(self, slot, payload, size);
    else if (type == UNI__REMOTE_GIVE)
        host_take_file(self, payload, size);
}

static void on_frame(void *context, uni__link *link, int type, const uint8_t *payload, size_t size)
{
    host_agent *self = context;
    uni_value *message = NULL;
    int32_t rank;
    if (size < sizeof rank || type == UNI__REMOTE_PULSE)
        return;
    memcpy(&rank, payload, sizeof rank);
    payload += sizeof rank;
    size -= sizeof rank;
    int slot = slot_of(self, rank);
    if (type == UNI__REMOTE_KILL_ALL) {
        uni__group_kill_all(self->group);
    } else if (type == UNI__REMOTE_WELCOME || type == UNI__REMOTE_SPAWN) {
        if (uni_msgpack_read(&message, payload, size, NULL) < 0)
            return;
        if (type == UNI__REMOTE_WELCOME)
            take_welcome(self, message);
        else if (slot >= 0)
            take_spawn(self, slot, message);
        uni_value_free(message);
    } else if (slot >= 0) {
        take_of_worker(self, type, slot, payload, size);
    }
}

static void on_ready(void *context, uni__link *link)
{
    host_agent *self = context;
    const char *name = getenv("SLURMD_NODENAME");
    char own[256] = "?";
    self->link = link;
    gethostname(own, sizeof own - 1);
    if (!name)
        name = getenv("PMIX_HOSTNAME");
    uni_value *hello = uni_value_dict(), *ranks = uni_value_list(), *ports = uni_value_list();
    int status = uni_dict_take(hello, "host", uni_value_string(name ? name : own));
    for (int i = 0; i < self->num_workers; i++) {
        status |= uni_list_take(ranks, uni_value_int(self->workers[i].rank));
        status |= uni_list_take(ports, uni_value_int(host_hold_port(self, uni__link_own(link))));
    }
    status |= uni_dict_take(hello, "ranks", ranks);
    status |= uni_dict_take(hello, "ports", ports);
    status |= uni_dict_take(hello, "cpus", uni_value_float(self->cpus));
    if (status == 0)
        say_value(self, UNI__REMOTE_HELLO, hello);
    else
        host_over(self, 1);
}

static void on_closed(void *context, uni__link *link, const char *why)
{
    host_agent *self = context;
    bool was_ready = self->link != NULL;
    self->link = NULL;
    if (!was_ready)
        fprintf(stderr, "unisono-host: the controller cannot be reached: %s\n", why);
    host_over(self, was_ready ? 0 : 1);
}

static void on_written(void *context, uni__link *link)
{
    host_agent *self = context;
    if (!self->link)
        return;
    host_transfer_pump(self);
    hold_when_full(self);
}

const uni__link_events host_link_events = {
    .ready = on_ready, .frame = on_frame, .closed = on_closed, .written = on_written
};
