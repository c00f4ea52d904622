/*
 * shm.c - the transport for processes of one host. The board and the buffers are memfds that rank 0
 * creates and passes by descriptor, so they have no name in the file system and leave nothing
 * behind.
 *
 * A memfd is sealed against shrinking before it is passed, so no rank can make another one fault.
 * Buffers of uni_comm_alloc are one mapping with all ranks' parts, which all read and write in
 * place. Any other memory goes through the board's staging areas. Called on the rank's thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/board.h"
#include "comm/shm/pages.h"

#define OPEN_MS 60000

static int make_memory(size_t bytes, const char *name, int *fd, uni_error *err)
{
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0 &&
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        return 0;
    int saved = errno;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return uni_error_set_errno(err, saved, "cannot make %zu bytes of shared memory", bytes);
}

/* `joined`: in huge pages. The board is not: most of its staging areas are never touched. */
static int map_memory(int fd, size_t bytes, bool joined, void **out, uni_error *err)
{
    struct stat info;
    *out = NULL;
    if (fstat(fd, &info) < 0 || info.st_size < (off_t)bytes)
        return uni_error_set(err, UNI_EMISMATCH,
                             "shared memory of %lld bytes came where %zu were expected: the ranks "
                             "ask for different sizes",
                             (long long)info.st_size, bytes);
    void *memory = joined ? uni__pages_map(fd, bytes)
                          : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return uni_error_set_errno(err, errno, "cannot map %zu bytes of shared memory", bytes);
    *out = memory;
    return 0;
}

/* Rank 0 passes its fd, the others receive theirs. The caller owns the fd, even on failure. */
static int hand_out(const uni__rendezvous *peers, int *fd, int timeout_ms, uni_error *err)
{
    if (peers->rank != 0)
        return peers->vtable->receive(peers->context, 0, fd, timeout_ms, err);
    for (int r = 1; r < peers->size; r++)
        UNI_TRY(peers->vtable->pass(peers->context, r, *fd, err));
    return 0;
}

static int compare_sizes(uni_comm *comm, const uni_comm_buffer *buffer, uni_error *err)
{
    int64_t mine[2] = { (int64_t)buffer->mapped, -(int64_t)buffer->mapped }, largest[2];
    UNI_TRY(uni_comm_all_reduce(comm, mine, largest, 2, UNI_I64, UNI_COMM_MAX, err));
    if (largest[0] != -largest[1])
        return uni_error_set(err, UNI_EMISMATCH,
                             "uni_comm_alloc: the ranks ask for different sizes (this one %zu "
                             "bytes)",
                             buffer->bytes);
    return 0;
}

/* Did every rank succeed? The lowest code counts. */
static int agree(uni_comm *comm, int status, const char *what, uni_error *err)
{
    int32_t mine = status, worst = 0;
    int met =
        uni_comm_all_reduce(comm, &mine, &worst, 1, UNI_I32, UNI_COMM_MIN, status < 0 ? NULL : err);
    if (status < 0 || met < 0)
        return status < 0 ? status : met;
    return worst == 0 ? 0
                      : uni_error_set(err, worst, "another rank could not %s: %s", what,
                                      uni_status_sentence(worst));
}

static int shm_alloc(uni_comm *comm, uni_comm_buffer *buffer, uni_error *err)
{
    int fd = -1, status = 0;
    void *memory = NULL;
    buffer->mapped = uni__pages_room(buffer->mapped);
    UNI_TRY(compare_sizes(comm, buffer, err));
    if (comm->rank == 0)
        status = make_memory(buffer->mapped, "unisono-memory", &fd, err);
    status = agree(comm, status, "make shared memory", err);
    if (status == 0)
        status = hand_out(&comm->peers, &fd, OPEN_MS, err);
    if (status == 0)
        status = map_memory(fd, buffer->mapped, true, &memory, err);
    if (fd >= 0)
        close(fd);
    status = agree(comm, status, "map shared memory", err);
    if (status < 0 && memory)
        munmap(memory, buffer->mapped);
    buffer->base = status < 0 ? NULL : memory;
    return status;
}

static void shm_release(uni_comm_buffer *buffer)
{
    if (buffer->base)
        munmap(buffer->base, buffer->mapped);
}

static void shm_abort(uni_comm *comm, const char *reason)
{
    uni__board_abort(comm, UNI_ECANCELED, reason);
}

static void shm_close(uni_comm *comm)
{
    if (!comm->board)
        return;
    void *memory = comm->board->header;
    size_t bytes = comm->board->bytes;
    uni__board_detach(comm);
    munmap(memory, bytes);
}

static const uni__transport shm_transport = {
    .name = "shm",
    .start = uni__board_start,
    .step = uni__board_step,
    .pause = uni__board_pause,
    .glance = uni__board_glance,
    .alloc = shm_alloc,
    .release = shm_release,
    .abort = shm_abort,
    .close = shm_close,
};

static int share_board(const uni__rendezvous *peers, size_t bytes, int timeout_ms, void **out,
                       uni_error *err)
{
    int fd = -1, status = 0;
    if (peers->rank == 0) {
        UNI_TRY(make_memory(bytes, "unisono-board", &fd, err));
        status = map_memory(fd, bytes, false, out, err);
        if (status == 0)
            uni__board_format(*out, peers->size);
    }
    if (status == 0)
        status = hand_out(peers, &fd, timeout_ms, err);
    if (status == 0 && peers->rank != 0)
        status = map_memory(fd, bytes, false, out, err);
    if (fd >= 0)
        close(fd);
    if (status < 0 && *out)
        munmap(*out, bytes);
    return status;
}

int uni__comm_open_shm(uni_comm **out, const uni__rendezvous *peers,
                       const uni_comm_options *options, int open_timeout_ms, uni_error *err)
{
    int status, timeout = open_timeout_ms > 0 ? open_timeout_ms : OPEN_MS;
    size_t bytes = uni__board_bytes(peers->size);
    void *memory = NULL;
    uni_comm *comm = NULL;
    *out = NULL;
    UNI_TRY(uni__comm_new(&comm, peers, options, &shm_transport, err));
    UNI_TRY_GOTO(share_board(peers, bytes, timeout, &memory, err), fail);
    status = uni__board_attach(comm, memory, bytes, err);
    if (status < 0 && !comm->board)
        munmap(memory, bytes);
    if (status < 0)
        goto fail;
    /* Wait until all ranks are here; a rank that never arrives is named. */
    int user_timeout = comm->options.timeout_ms;
    comm->options.timeout_ms = timeout;
    UNI_TRY_GOTO(uni_comm_barrier(comm, err), fail);
    comm->options.timeout_ms = user_timeout;
    *out = comm;
    return 0;
fail:
    uni_comm_close(comm);
    return status;
}
