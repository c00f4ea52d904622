/*
 * host_orders.c - from the controller to the workers of a host: its identity, what to
 * start, what to hand on to them, words for their pages (group/remote.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/file.h"
#include "base/log.h"
#include "train/remote/host_internal.h"

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

/* The files' hashes: hosts with other contents under the same name are found before anything is
 * started. */
static uni_value *hash_files(const uni_value *paths)
{
    uni_value *hashes = uni_value_list();
    for (size_t i = 0; i < uni_list_size(paths); i++) {
        char hex[17] = "";
        uint64_t size = 0;
        if (uni__hash_file(uni_value_as_string(uni_list_get(paths, i), ""), hex, &size, NULL) < 0)
            hex[0] = '\0';
        if (uni_list_take(hashes, uni_value_string(hex)) < 0)
            break;
    }
    return hashes;
}

static void take_welcome(host_agent *self, const uni_value *welcome)
{
    self->silent_timeout = uni_dict_get_float(welcome, "silent_timeout", 5);
    self->tidy = uni_dict_get_bool(welcome, "tidy", false);
    if (self->by_ssh) {
        puts("unisono-host joined"); /* to the launcher: host_ssh.c */
        fflush(stdout);
    }
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
    host_say_value(self, UNI__REMOTE_PROBED,
                   UNI__DICT({ "shared", uni_value_bool(self->shares_storage) },
                             { "scratch", uni_value_string(self->scratch) },
                             { "program", hash_files(uni_dict_get(welcome, "program")) }));
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
                         .address_space = (uint64_t)uni_dict_get_int(order, "address_space", 0) };
    if (!environment || uni__group_spawn(self->group, &spawn, &err) < 0)
        host_spawn_failed(self, slot, environment ? err.message : "no memory");
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
    int slot = host_slot_of(self, rank);
    if (type == UNI__REMOTE_KILL_ALL) {
        uni__group_kill_all(self->group);
    } else if (type == UNI__REMOTE_WELCOME || type == UNI__REMOTE_SPAWN) {
        if (uni__msgpack_read(&message, payload, size, NULL) < 0)
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
    uni_value *ranks = uni_value_list(), *ports = uni_value_list();
    int status = 0;
    for (int i = 0; i < self->num_workers; i++) {
        status |= uni_list_take(ranks, uni_value_int(self->workers[i].rank));
        status |= uni_list_take(ports, uni_value_int(host_hold_port(self, uni__link_own(link))));
    }
    uni_value *hello = UNI__DICT(
        { "host", uni_value_string(name ? name : own) }, { "ranks", ranks }, { "ports", ports },
        { "cpus", uni_value_float(self->cpus) }, { "memory", uni_value_float(self->memory) },
        { "ucx", uni_value_bool(host_has_ucx()) });
    if (status == 0 && hello)
        host_say_value(self, UNI__REMOTE_HELLO, hello);
    else
        host_over(self, 1);
}

static void on_closed(void *context, uni__link *link, const char *why)
{
    host_agent *self = context;
    bool was_ready = self->link != NULL;
    self->link = NULL;
    if (!was_ready && host_connect_later(self))
        return;
    fprintf(stderr, "unisono-host: %s: %s\n",
            was_ready ? "the connection to the controller ended" : "cannot reach the controller",
            why);
    host_over(self, was_ready ? 0 : 1);
}

static void on_written(void *context, uni__link *link)
{
    host_agent *self = context;
    if (!self->link)
        return;
    host_transfer_pump(self);
    host_hold_when_full(self);
}

const uni__link_events host_link_events = {
    .ready = on_ready, .frame = on_frame, .closed = on_closed, .written = on_written
};
