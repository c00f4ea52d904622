/* comm.c - creating and closing communicators, and the memory that ranks share. */
#include <stdlib.h>
#include <string.h>

#include "comm/shared.h"
#include "comm/internal.h"
#include "comm/kinds.h"

int uni__comm_new(uni_comm **out, const uni__rendezvous *peers, const uni_comm_options *options,
                  const uni__transport *transport, uni_error *err)
{
    *out = NULL;
    if (peers->size < 1 || peers->size > UNI__COMM_MAX_RANKS || peers->rank < 0 ||
        peers->rank >= peers->size)
        return uni_error_set(err, UNI_EINVAL,
                             "a communicator for rank %d of %d cannot be; there may be 1 to %d "
                             "ranks",
                             peers->rank, peers->size, UNI__COMM_MAX_RANKS);
    uni_comm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    comm->transport = transport;
    comm->peers = *peers;
    comm->rank = peers->rank;
    comm->size = peers->size;
    if (options)
        comm->options = *options;
    comm->kernels = uni__kernels_best();
    int status =
        uni__recorder_new(&comm->recorder, comm->options.record_dir,
                          uni__comm_name(comm, comm->rank), comm->size, transport->name, err);
    comm->options.record_dir = NULL; /* not copied: valid only during the call */
    if (status < 0) {
        free(comm);
        return status;
    }
    *out = comm;
    return 0;
}

void uni__comm_take_peers(uni_comm *comm, void (*release)(void *context))
{
    comm->release_peers = release;
}

void uni__comm_free(uni_comm *comm)
{
    if (!comm)
        return;
    if (comm->release_peers)
        comm->release_peers(comm->peers.context);
    uni__recorder_free(comm->recorder);
    uni__requests_free(comm);
    free(comm);
}

int uni__comm_break(uni_comm *comm, const uni_error *err)
{
    if (comm->broken.code == 0)
        comm->broken = *err;
    return comm->broken.code;
}

int uni_comm_finalize(uni_comm *comm, uni_error *err)
{
    if (comm->under_way > 0 && !comm->broken.code)
        return uni_error_set(err, UNI_ESTATE,
                             "finalize: %d requests are still under way; wait for them first",
                             comm->under_way);
    uni__call call = { .kind = UNI__KIND_FINALIZE, .dtype = UNI_U8 };
    UNI_TRY(uni__comm_run(comm, &call, NULL, err));
    comm->finalized = true;
    return 0;
}

void uni_comm_close(uni_comm *comm)
{
    if (!comm)
        return;
    for (int i = 0; i < UNI__COMM_SEGMENTS; i++)
        uni_comm_buffer_free(comm->segments[i]);
    comm->transport->close(comm);
    uni__comm_free(comm);
}

void uni_comm_abort(uni_comm *comm, const char *reason)
{
    comm->transport->abort(comm, reason ? reason : "the communicator was aborted");
}

const uni_comm_info *uni_comm_info_of(const uni_comm *comm)
{
    uni_comm_info *info = &((uni_comm *)comm)->info;
    *info = (uni_comm_info){
        .rank = comm->rank,
        .size = comm->size,
        .transport = comm->transport->name,
    };
    return info;
}

uint64_t uni__comm_count(const uni_comm *comm)
{
    return comm->count;
}

/* --- memory --- */

static int alloc(uni_comm *comm, size_t bytes, bool shared, uni_comm_buffer **out, uni_error *err)
{
    *out = NULL;
    int index = 0;
    while (index < UNI__COMM_SEGMENTS && comm->segments[index])
        index++;
    if (index == UNI__COMM_SEGMENTS)
        return uni_error_set(
            err, UNI_ELIMIT,
            "a communicator has at most %d buffers; free one, or ask for one large "
            "buffer",
            UNI__COMM_SEGMENTS);
    if (bytes == 0 || bytes > (size_t)1 << 44)
        return uni_error_set(err, UNI_EINVAL, "uni_comm_alloc of %zu bytes", bytes);
    uni_comm_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a buffer");
    size_t page = 4096;
    *buffer = (uni_comm_buffer){ .comm = comm, .index = index, .shared = shared, .bytes = bytes };
    buffer->stride = shared ? 0 : (bytes + page - 1) & ~(page - 1);
    buffer->mapped =
        shared ? (bytes + page - 1) & ~(page - 1) : buffer->stride * (size_t)comm->size;
    int status = comm->transport->alloc(comm, buffer, err);
    if (status < 0) {
        free(buffer);
        return status;
    }
    comm->segments[index] = buffer;
    *out = buffer;
    return 0;
}

int uni_comm_alloc(uni_comm_buffer **out, uni_comm *comm, size_t bytes, uni_error *err)
{
    return alloc(comm, bytes, false, out, err);
}

int uni__comm_alloc_shared(uni_comm *comm, size_t bytes, uni_comm_buffer **out, uni_error *err)
{
    return alloc(comm, bytes, true, out, err);
}

void uni_comm_buffer_free(uni_comm_buffer *buffer)
{
    if (!buffer)
        return;
    buffer->comm->segments[buffer->index] = NULL;
    buffer->comm->transport->release(buffer);
    free(buffer);
}

void *uni_comm_buffer_data(const uni_comm_buffer *buffer)
{
    return uni__comm_buffer_peer(buffer, buffer->comm->rank);
}

void *uni__comm_buffer_peer(const uni_comm_buffer *buffer, int rank)
{
    if (rank < 0 || rank >= buffer->comm->size || !buffer->base ||
        (buffer->own_only && rank != buffer->comm->rank))
        return NULL;
    return buffer->base + (size_t)rank * buffer->stride;
}
