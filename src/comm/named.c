/*
 * named.c - a communicator for processes that know the same name and nothing else of each other:
 * started by hand with TF_CONFIG, or by another launcher.
 *
 * Processes of this user on this host find each other by the name over abstract sockets
 * (rendezvous_socket.c). Shared memory needs descriptors, which TCP cannot carry. Called on the
 * rank's thread.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/internal.h"

#define OPEN_MS 60000
#define LONGEST_NAME 40

static void release_mesh(void *mesh)
{
    uni__socket_mesh_free(mesh);
}

int uni__comm_open_named(uni_comm **out, const char *name, int rank, int size, char *const *labels,
                         const uni_comm_options *options, uni_error *err)
{
    char path[80];
    uni__socket_mesh *mesh = NULL;
    *out = NULL;
    if (size < 1 || rank < 0 || rank >= size || size > UNI__COMM_MAX_RANKS)
        return uni_error_set(err, UNI_EINVAL, "a group has 1 to %d ranks: not rank %d of %d",
                             UNI__COMM_MAX_RANKS, rank, size);
    if (strlen(name) > LONGEST_NAME)
        return uni_error_set(err, UNI_EINVAL, "a group's name has at most %d characters",
                             LONGEST_NAME);
    if (size == 1)
        return uni_comm_open_threads(out, 1, options, err);
    snprintf(path, sizeof path, "unisono-%u-%s", (unsigned)geteuid(), name);
    int limit_ms = options && options->timeout_ms > 0 ? options->timeout_ms : OPEN_MS;
    UNI_TRY(uni__socket_mesh_connect(&mesh, path, rank, size, labels, limit_ms, err));
    uni__rendezvous peers = uni__socket_mesh_rank(mesh, rank);
    int status = uni__comm_open_shm(out, &peers, options, limit_ms, err);
    if (status < 0)
        uni__socket_mesh_free(mesh);
    else
        uni__comm_take_peers(*out, release_mesh);
    return status;
}
