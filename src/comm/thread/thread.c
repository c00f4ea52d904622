/*
 * thread.c - the transport for threads of one process. The board is plain memory and every pointer
 * is valid everywhere, so data is staged only where that is faster.
 *
 * Shared objects (the board, buffers) count their users; the last one frees them. Called on a
 * rank's thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "comm/board.h"
#include "comm/kinds.h"
#include "base/options.h"

typedef struct keeper {
    _Atomic int users;
    void *memory;
    size_t bytes;
} keeper;

static int keeper_new(keeper **out, size_t bytes, int users, uni_error *err)
{
    keeper *made = calloc(1, sizeof *made);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *out = made;
    if (!made || memory == MAP_FAILED) {
        free(made);
        *out = NULL;
        if (memory != MAP_FAILED)
            munmap(memory, bytes);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the %zu bytes that %d ranks share",
                             bytes, users);
    }
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    *made = (keeper){ .memory = memory, .bytes = bytes };
    atomic_store(&made->users, users);
    return 0;
}

static void keeper_leave(keeper *shared, int users)
{
    if (!shared || atomic_fetch_sub(&shared->users, users) != users)
        return;
    munmap(shared->memory, shared->bytes);
    free(shared);
}

static int thread_alloc(uni_comm *comm, uni_comm_buffer *buffer, uni_error *err)
{
    keeper *shared = NULL;
    uni_error failure = { 0 };
    uint64_t size = buffer->mapped;
    int status = comm->rank == 0 ? keeper_new(&shared, buffer->mapped, comm->size, &failure) : 0;
    /* Rank 0's size is sent with the pointer, so that ranks with another size get an error. */
    uint64_t message[2] = { (uint64_t)(uintptr_t)shared, size };
    int sent = uni_comm_broadcast(comm, message, 2, UNI_U64, 0, err);
    if (sent < 0) {
        /* On a mismatch no rank has received the pointer; otherwise one may have. */
        if (sent == UNI_EMISMATCH)
            keeper_leave(shared, comm->size);
        return sent;
    }
    shared = (keeper *)(uintptr_t)message[0];
    if (!shared) {
        if (status < 0 && err)
            *err = failure;
        return status < 0 ? status
                          : uni_error_set(err, UNI_ENOMEM, "rank 0 has no memory for %zu bytes",
                                          buffer->mapped);
    }
    uint8_t same = message[1] == size, all = 0;
    UNI_TRY(uni_comm_all_reduce(comm, &same, &all, 1, UNI_U8, UNI_COMM_MIN, err));
    if (!all) {
        keeper_leave(shared, 1);
        return uni_error_set(err, UNI_EMISMATCH,
                             "uni_comm_alloc: the ranks ask for different sizes (this one %zu "
                             "bytes)",
                             buffer->bytes);
    }
    buffer->base = shared->memory;
    buffer->keeper = shared;
    return 0;
}

static void thread_release(uni_comm_buffer *buffer)
{
    keeper_leave(buffer->keeper, 1);
}

static void thread_abort(uni_comm *comm, const char *reason)
{
    uni__board_abort(comm, UNI_ECANCELED, reason);
}

static void thread_close(uni_comm *comm)
{
    keeper *shared = comm->board ? comm->board->keeper : NULL;
    uni__board_detach(comm);
    keeper_leave(shared, 1);
}

static const uni__transport thread_transport = {
    .name = "thread",
    .start = uni__board_start,
    .step = uni__board_step,
    .pause = uni__board_pause,
    .glance = uni__board_glance,
    .alloc = thread_alloc,
    .release = thread_release,
    .abort = thread_abort,
    .close = thread_close,
};

/* On success the communicator holds one reference to `shared`. */
static int open_on(uni_comm **out, const uni__rendezvous *peers, const uni_comm_options *options,
                   keeper *shared, uni_error *err)
{
    int status = uni__comm_new(out, peers, options, &thread_transport, err);
    if (status == 0) {
        status = uni__board_attach(*out, shared->memory, shared->bytes, err);
        if (status == 0) {
            (*out)->board->keeper = shared;
            return 0;
        }
        uni__board_detach(*out);
        uni__comm_free(*out);
        *out = NULL;
    }
    return status;
}

int uni_comm_open_threads(uni_comm **out, int n, const uni_comm_options *options, uni_error *err)
{
    UNI__OPTIONS(uni_comm_options, options, record_dir, err);
    keeper *shared = NULL;
    if (n < 1 || n > UNI__COMM_MAX_RANKS)
        return uni_error_set(err, UNI_EINVAL, "a communicator cannot have %d ranks (1 to %d)", n,
                             UNI__COMM_MAX_RANKS);
    for (int r = 0; r < n; r++)
        out[r] = NULL;
    UNI_TRY(keeper_new(&shared, uni__board_bytes(n), n, err));
    uni__board_format(shared->memory, n);
    for (int r = 0; r < n; r++) {
        uni__rendezvous peers = { .rank = r, .size = n };
        int status = open_on(&out[r], &peers, options, shared, err);
        if (status < 0) {
            keeper_leave(shared, n - r);
            while (r-- > 0) {
                uni_comm_close(out[r]);
                out[r] = NULL;
            }
            return status;
        }
    }
    return 0;
}
