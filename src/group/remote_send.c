/*
 * remote_send.c - what the hosts' agents are told (remote.h): workers to start and signals for
 * them, messages, files of the checkpoint to resume from, and the words of the mirror pages that
 * changed. Controller thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/clock.h"
#include "group/protocol.h"
#include "group/remote_internal.h"

/* That wait for a host: mail beyond it is lost, so that a rank that floods another one, or a host
 * that reads nothing, does not cost our memory. */
#define MAIL_MAX_BYTES (256u << 20)

int uni__remote_spawn(uni__group *group, const uni__spawn *spawn, uni_error *err)
{
    uni__worker_slot *worker = &group->slots[spawn->rank];
    uni__remote_host *host = uni__remote_host_of(group, spawn->rank);
    int32_t rank = spawn->rank;
    void *bytes = NULL;
    size_t size = 0;
    int page_fd = -1;
    uni__links_empty_slot(worker);
    if (!host)
        return uni_error_set(err, UNI_EPEER, "the host of rank %d is gone", spawn->rank);
    uni_value *order = uni__links_spawn_order(spawn);
    if (!order || uni_dict_take(order, "forward_log", uni_value_bool(spawn->forward_log)) < 0) {
        uni_value_free(order);
        return uni_error_set(err, UNI_ENOMEM, "no memory to start rank %d", spawn->rank);
    }
    int status = uni__msgpack_write(&bytes, &size, order, err);
    uni_value_free(order);
    if (status == 0)
        status = uni__page_new(&worker->page, &page_fd, err);
    if (page_fd >= 0)
        close(page_fd); /* a mirror: no other process maps it */
    if (status == 0) {
        uni__worker_spawned(&worker->life, !spawn->runs_functions, uni__monotonic_ns());
        memset(&group->remote->ranks[rank].sent, 0, sizeof(uni__control_words));
        uni__link_send(host->link, UNI__REMOTE_SPAWN, &rank, sizeof rank, bytes, size);
    }
    free(bytes);
    return status;
}

static void send_in_parts(uni__link *link, int type, int32_t rank, const uint8_t *bytes,
                          size_t size)
{
    for (size_t at = 0; at < size; at += UNI__REMOTE_CHUNK) {
        size_t part = size - at < UNI__REMOTE_CHUNK ? size - at : UNI__REMOTE_CHUNK;
        uni__link_send(link, type, &rank, sizeof rank, bytes + at, part);
    }
}

static int send_memory(uni__link *link, int32_t rank, int fd, uni_error *err)
{
    struct stat info;
    if (fstat(fd, &info) < 0 || info.st_size <= 0)
        return uni_error_set_errno(err, errno, "cannot read the memory for rank %d", rank);
    void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED)
        return uni_error_set_errno(err, errno, "cannot map the memory for rank %d", rank);
    send_in_parts(link, UNI__REMOTE_MEMORY, rank, memory, (size_t)info.st_size);
    munmap(memory, (size_t)info.st_size);
    return 0;
}

int uni__remote_send(uni__group *group, int rank, int type, const void *payload, size_t size,
                     int fd, uni_error *err)
{
    uni__remote_host *host = uni__remote_host_of(group, rank);
    struct {
        int32_t rank, type, has_fd;
    } head = { rank, type, fd >= 0 };
    if (!host)
        return uni_error_set(err, UNI_EPEER, "the host of rank %d is gone", rank);
    if (type == UNI__TO_WORKER_PEER && uni__link_queued(host->link) > MAIL_MAX_BYTES)
        return uni_error_set(err, UNI_ELIMIT,
                             "host %.100s does not take what it is sent: %zu bytes wait",
                             host->name, uni__link_queued(host->link));
    if (fd >= 0)
        UNI_TRY(send_memory(host->link, rank, fd, err));
    size_t before = size > UNI__REMOTE_CHUNK ? size - UNI__REMOTE_CHUNK : 0;
    send_in_parts(host->link, UNI__REMOTE_PART, rank, payload, before);
    uni__link_send(host->link, UNI__REMOTE_SEND, &head, sizeof head,
                   (const uint8_t *)payload + before, size - before);
    return 0;
}

int uni__group_give_file(uni__group *group, int rank, const char *path, const char *from,
                         uni_error *err)
{
    uni__remote_host *host = uni__remote_host_of(group, rank);
    int32_t to = rank;
    uint8_t head[sizeof to + sizeof(uni__remote_file) + UNI__REMOTE_PATH_MAX];
    uni__remote_file about = { .path_size = (uint32_t)strlen(path) };
    if (!host)
        return uni_error_set(err, UNI_EPEER, "the host of rank %d is gone", rank);
    if (about.path_size > UNI__REMOTE_PATH_MAX)
        return uni_error_set(err, UNI_EINVAL, "cannot send %s to host %s: its path is too long",
                             from, host->name);
    /* Links inside a checkpoint are followed; one to a FIFO must not hold up the controller. */
    int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    uint8_t *bytes = file ? malloc(UNI__REMOTE_CHUNK) : NULL;
    int status = bytes ? 0 : errno;
    while (status == 0 && !about.last) {
        size_t size = fread(bytes, 1, UNI__REMOTE_CHUNK, file);
        if (ferror(file)) { /* what was sent never gets its end, and is not taken */
            status = errno;
            break;
        }
        about.last = size < UNI__REMOTE_CHUNK;
        memcpy(head, &to, sizeof to);
        memcpy(head + sizeof to, &about, sizeof about);
        memcpy(head + sizeof to + sizeof about, path, about.path_size);
        uni__link_send(host->link, UNI__REMOTE_GIVE, head,
                       sizeof to + sizeof about + about.path_size, bytes, size);
        about.offset += size;
    }
    free(bytes);
    if (file)
        fclose(file);
    return status == 0
               ? 0
               : uni_error_set_errno(err, status, "cannot send %s to host %s", from, host->name);
}

void uni__remote_kill(uni__group *group, int rank, int signal)
{
    uni__remote *remote = group->remote;
    for (int r = 0; r < remote->num_ranks; r++) {
        uni__remote_host *host = rank < 0 || rank == r ? uni__remote_host_of(group, r) : NULL;
        int32_t words[2] = { r, signal };
        if (host)
            uni__link_send(host->link, UNI__REMOTE_KILL, words, sizeof words, NULL, 0);
    }
}

/* What the trainer wrote into the mirrors in this round goes out. */
void uni__remote_before_sleep(uni__group *group)
{
    uni__remote *remote = group->remote;
    if (remote->fresh) { /* a rank in lockstep waits until its report was written */
        remote->fresh = false;
        UNI__TELL(group, drained);
    }
    for (int r = 0; r < remote->num_ranks; r++) {
        uni__remote_host *host = uni__remote_host_of(group, r);
        uni__page *page = group->slots[r].page;
        uni__remote_rank *rank = &remote->ranks[r];
        uni__control_words now;
        int32_t to = r;
        if (!host || !page || !uni__worker_is_live(&group->slots[r].life))
            continue;
        uni__control_words_read(page, &now);
        for (int i = 0; i < 2; i++) {
            now.freed[i] = rank->sent.freed[i];
            if (rank->busy[i] && atomic_load(&page->slot_free[i])) {
                rank->busy[i] = 0;
                now.freed[i]++;
            }
        }
        if (memcmp(&now, &rank->sent, sizeof now) == 0)
            continue;
        rank->sent = now;
        uni__link_send(host->link, UNI__REMOTE_CONTROL, &to, sizeof to, &now, sizeof now);
    }
}
