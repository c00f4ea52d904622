/*
 * host_transfer.c - checkpoints and logs from a host to the controller's storage, and files the
 * other way.
 *
 * A snapshot buffer (or, where the host does not see the storage, a directory) goes in pieces
 * between all other frames, so that heartbeats and other ranks' reports do not wait for it. The
 * rank's ring is held meanwhile: what it says after its checkpoint comes after it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "train/remote/host_internal.h"

#define QUEUE_BYTES (2u << 20)
#define LOG_BYTES (64u << 10)

static void free_transfer(host_transfer *transfer)
{
    uni__region_unref(transfer->region);
    uni_value_free(transfer->files);
    free(transfer->directory);
    free(transfer->message);
    free(transfer->failure);
    if (transfer->fd >= 0 && transfer->active)
        close(transfer->fd);
    *transfer = (host_transfer){ .fd = -1 };
}

void host_worker_forget(host_worker *worker)
{
    free_transfer(&worker->transfer);
    free(worker->parts);
    worker->parts = NULL;
    worker->parts_size = 0;
    if (worker->memory_fd >= 0)
        close(worker->memory_fd);
    worker->memory_fd = -1;
    free(worker->log);
    worker->log = NULL;
    memset(&worker->said, 0, sizeof worker->said);
    memset(&worker->control, 0, sizeof worker->control);
}

/* Links are not sent (docs/hosts.md). */
static int note_file(void *context, const char *relative, const char *full, uint64_t size,
                     uni_error *err)
{
    struct stat info;
    if (lstat(full, &info) == 0 && S_ISLNK(info.st_mode))
        return 0;
    if (strlen(relative) > UNI__REMOTE_PATH_MAX)
        return uni_error_set(err, UNI_ELIMIT, "the path of %.200s... is too long", full);
    return uni_list_take(context, uni_value_string(relative));
}

/* What is said comes behind what it speaks of. */
static void begin(host_agent *self, int slot, int type, const void *message, size_t size)
{
    host_transfer *transfer = &self->workers[slot].transfer;
    transfer->message = malloc(size);
    if (transfer->message)
        memcpy(transfer->message, message, size);
    transfer->message_size = transfer->message ? size : 0;
    transfer->message_type = type;
    uni__group_hold(self->group, slot, true);
    host_transfer_pump(self);
}

static void list_directory(host_worker *worker, const char *path)
{
    host_transfer *transfer = &worker->transfer;
    uni_error err = { 0 };
    transfer->directory = strdup(path);
    transfer->files = uni_value_list();
    if (uni__walk_files(path, note_file, transfer->files, &err) < 0)
        transfer->failure = strdup(err.message);
}

bool host_transfer_begin(host_agent *self, int slot, int type, const uint8_t *payload, size_t size)
{
    host_worker *worker = &self->workers[slot];
    host_transfer *transfer = &worker->transfer;
    uni_value *message = NULL;
    if (type != UNI__SAYS_CHECKPOINT || uni__msgpack_read(&message, payload, size, NULL) < 0)
        return false;
    const char *path = uni_dict_get_string(message, "path", NULL);
    int64_t number = uni_dict_get_int(message, "slot", -1),
            bytes = uni_dict_get_int(message, "size", -1);
    uni__region *region = path ? NULL : uni__group_snapshot(self->group, slot, number, bytes);
    bool needed = path ? !self->shares_storage : region != NULL;
    *transfer = (host_transfer){ .active = needed, .region = region, .fd = -1 };
    if (needed && path) {
        list_directory(worker, path);
    } else if (needed) {
        transfer->slot = (int)number;
        transfer->size = (uint64_t)bytes;
    }
    uni_value_free(message);
    if (needed)
        begin(self, slot, type, payload, size);
    return needed;
}

/* A directory that `unisono report` staged where the controller does not see it, or that a line
 * names: a path of this host. */
bool host_transfer_begin_line(host_agent *self, int slot, const char *line, size_t size)
{
    host_worker *worker = &self->workers[slot];
    uni_value *parsed = NULL;
    if (!memmem(line, size, "\"staged\"", 8) && !memmem(line, size, "\"checkpoint\"", 12))
        return false;
    if (uni__json_read_python(&parsed, line, size, NULL) < 0)
        return false; /* the controller says so */
    const char *staged = uni_dict_get_string(parsed, "staged", NULL),
               *path = staged ? staged : uni_dict_get_string(parsed, "checkpoint", NULL);
    bool needed = path && uni_dict_get(parsed, "metrics") && !(staged && self->shares_storage);
    if (needed) {
        worker->transfer = (host_transfer){ .active = true, .fd = -1, .keep = !staged };
        list_directory(worker, path);
    }
    uni_value_free(parsed);
    if (needed)
        begin(self, slot, -1, line, size);
    return needed;
}

static bool send_region(host_agent *self, int slot, host_transfer *transfer)
{
    struct {
        int32_t rank, slot, zero;
        uint32_t offset[2], total[2];
    } head = { .rank = self->workers[slot].rank, .slot = transfer->slot };
    uint64_t left = transfer->size - transfer->offset;
    size_t part = left < UNI__REMOTE_CHUNK ? (size_t)left : UNI__REMOTE_CHUNK;
    memcpy(head.offset, &transfer->offset, sizeof head.offset);
    memcpy(head.total, &transfer->size, sizeof head.total);
    uni__link_send(self->link, UNI__REMOTE_REGION, &head, sizeof head,
                   (const uint8_t *)transfer->region->memory + transfer->offset, part);
    transfer->offset += part;
    return transfer->offset == transfer->size;
}

static void say_file(host_agent *self, int slot, const char *path, uint64_t offset,
                     const void *bytes, size_t size, uint32_t last)
{
    int32_t rank = self->workers[slot].rank;
    uint8_t head[sizeof rank + sizeof(uni__remote_file) + UNI__REMOTE_PATH_MAX];
    uni__remote_file about = { .offset = offset,
                               .path_size = (uint32_t)strlen(path),
                               .last = last };
    memcpy(head, &rank, sizeof rank);
    memcpy(head + sizeof rank, &about, sizeof about);
    memcpy(head + sizeof rank + sizeof about, path, about.path_size);
    uni__link_send(self->link, UNI__REMOTE_FILE, head, sizeof rank + sizeof about + about.path_size,
                   bytes, size);
}

/* A part of the next file into bytes; its size. Negative when it cannot be read: then `failure` has
 * the reason, because a checkpoint with a file cut short must not become complete. */
static ssize_t read_piece(host_transfer *transfer, const char *path, uint8_t *bytes)
{
    char *full = uni__path_join(transfer->directory, path, NULL);
    ssize_t n = -1;
    uni_error err = { 0 };
    if (full && transfer->fd < 0) {
        transfer->fd = open(full, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        transfer->offset = 0;
    }
    if (full && bytes && transfer->fd >= 0)
        n = pread(transfer->fd, bytes, UNI__REMOTE_CHUNK, (off_t)transfer->offset);
    if (n < 0) {
        (void)uni_error_set_errno(&err, errno, "cannot read %.600s", full ? full : path);
        transfer->failure = strdup(err.message);
    }
    free(full);
    return n;
}

static bool send_piece_of_file(host_agent *self, int slot, host_transfer *transfer)
{
    const char *path =
        uni_value_as_string(uni_list_get(transfer->files, transfer->next_file), NULL);
    uint8_t *bytes = path && !transfer->failure ? malloc(UNI__REMOTE_CHUNK) : NULL;
    ssize_t n = path && !transfer->failure ? read_piece(transfer, path, bytes) : 0;
    if (n < 0 || transfer->failure) {
        const char *why = transfer->failure ? transfer->failure : "out of memory";
        say_file(self, slot, "failed", 0, why, strlen(why), UNI__REMOTE_FILE_FAILED);
        if (transfer->fd >= 0)
            close(transfer->fd);
        transfer->fd = -1;
        transfer->message_size = 0; /* there is nothing that it could speak of */
        free(bytes);
        return true;
    }
    if (!path) {
        say_file(self, slot, "end", 0, NULL, 0, UNI__REMOTE_FILE_END);
        return true;
    }
    bool last = n < (ssize_t)UNI__REMOTE_CHUNK;
    say_file(self, slot, path, transfer->offset, bytes, (size_t)n, last);
    free(bytes);
    transfer->offset += (uint64_t)n;
    if (last) {
        if (transfer->fd >= 0)
            close(transfer->fd);
        transfer->fd = -1;
        transfer->next_file++;
    }
    return false;
}

void host_transfer_pump(host_agent *self)
{
    for (int slot = 0; self->link && slot < self->num_workers; slot++) {
        host_transfer *transfer = &self->workers[slot].transfer;
        bool done = false;
        while (transfer->active && !done && uni__link_queued(self->link) < QUEUE_BYTES)
            done = transfer->region ? send_region(self, slot, transfer)
                                    : send_piece_of_file(self, slot, transfer);
        if (!done)
            continue;
        if (transfer->message_size == 0)
            ; /* the run ends */
        else if (transfer->message_type < 0)
            host_say(self, slot, UNI__REMOTE_LINE, transfer->message, transfer->message_size);
        else
            host_say_message(self, slot, transfer->message_type, transfer->message,
                             transfer->message_size);
        if (transfer->directory && !transfer->keep &&
            uni__remove_tree(transfer->directory, NULL) < 0)
            uni__warn("%s could not be removed", transfer->directory);
        transfer->active = false;
        free_transfer(transfer);
        uni__group_hold(self->group, slot, false);
    }
}

void host_forward_log(host_agent *self, int slot)
{
    host_worker *worker = &self->workers[slot];
    int fd = worker->log && self->link ? uni__open_unlinked(worker->log, NULL) : -1;
    char *bytes = fd >= 0 ? malloc(LOG_BYTES) : NULL;
    ssize_t n;
    while (bytes && uni__link_queued(self->link) < QUEUE_BYTES &&
           (n = pread(fd, bytes, LOG_BYTES, (off_t)worker->log_read)) > 0) {
        host_say(self, slot, UNI__REMOTE_LOG, bytes, (size_t)n);
        worker->log_read += n;
    }
    free(bytes);
    if (fd >= 0)
        close(fd);
}

void host_take_file(host_agent *self, const uint8_t *payload, size_t size)
{
    uni__remote_file head;
    uni_error err = { 0 };
    if (size < sizeof head)
        return;
    memcpy(&head, payload, sizeof head);
    payload += sizeof head;
    size -= sizeof head;
    if (head.path_size > size || !uni__remote_path_is_safe((const char *)payload, head.path_size))
        return;
    char *name = strndup((const char *)payload, head.path_size);
    char *path = name ? uni__path_join(self->scratch, name, NULL) : NULL;
    char *folder = path ? strdup(path) : NULL;
    if (folder) {
        *strrchr(folder, '/') = '\0';
        int fd = uni__make_dirs(folder, 0700, &err) == 0
                     ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)
                     : -1;
        payload += head.path_size;
        size -= head.path_size;
        if (fd < 0 || pwrite(fd, payload, size, (off_t)head.offset) != (ssize_t)size)
            uni__warn("%s could not be written: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    free(folder);
    free(path);
    free(name);
}
