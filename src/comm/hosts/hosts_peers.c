/* hosts_peers.c - the inner communicators of the transport "hosts": their members, and the outer
 * rendezvous restricted to them. Called on the rank's thread. */
#include <stdlib.h>
#include <string.h>

#include "comm/hosts/hosts_internal.h"

static int mapped_put(void *context, const char *key, const void *data, size_t size, uni_error *err)
{
    const uni__rendezvous *outer = &((uni__mapped *)context)->outer;
    return outer->vtable->put(outer->context, key, data, size, err);
}

static int mapped_get(void *context, int rank, const char *key, void *data, size_t capacity,
                      size_t *size, int timeout_ms, uni_error *err)
{
    const uni__mapped *to = context;
    return to->outer.vtable->get(to->outer.context, to->ranks[rank], key, data, capacity, size,
                                 timeout_ms, err);
}

static int mapped_pass(void *context, int rank, int fd, uni_error *err)
{
    const uni__mapped *to = context;
    return to->outer.vtable->pass(to->outer.context, to->ranks[rank], fd, err);
}

static int mapped_receive(void *context, int from, int *fd, int timeout_ms, uni_error *err)
{
    const uni__mapped *to = context;
    return to->outer.vtable->receive(to->outer.context, to->ranks[from], fd, timeout_ms, err);
}

static bool mapped_alive(void *context, int rank, char *why, size_t size)
{
    const uni__mapped *to = context;
    return !to->outer.vtable->alive ||
           to->outer.vtable->alive(to->outer.context, to->ranks[rank], why, size);
}

static void mapped_reason(void *context, char *why, size_t size)
{
    const uni__mapped *to = context;
    if (to->outer.vtable->abort_reason)
        to->outer.vtable->abort_reason(to->outer.context, why, size);
}

const uni__rendezvous_vtable uni__mapped_vtable = { .name = "mapped",
                                                    .put = mapped_put,
                                                    .get = mapped_get,
                                                    .pass = mapped_pass,
                                                    .receive = mapped_receive,
                                                    .alive = mapped_alive,
                                                    .abort_reason = mapped_reason };

int uni__mapped_set(uni__mapped *to, const uni__rendezvous *peers, const int *ranks, int count,
                    uni_error *err)
{
    to->outer = *peers;
    to->ranks = calloc((size_t)count + 1, sizeof *to->ranks);
    if (!to->ranks)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    memcpy(to->ranks, ranks, (size_t)count * sizeof *ranks);
    return 0;
}

int uni__over_hosts_find_across(uni__over_hosts *hosts, int *ranks, int *count, uni_error *err)
{
    uni_comm *world = hosts->world;
    int32_t mine[2] = { hosts->local_rank, hosts->local_size };
    int32_t *all = calloc((size_t)world->size, sizeof mine);
    *count = 0;
    if (!all)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a communicator");
    int status = uni_comm_all_gather(world, mine, all, 2, UNI_I32, err);
    hosts->slices = hosts->local_size;
    for (int r = 0; r < world->size && status == 0; r++)
        if (all[2 * r + 1] != hosts->local_size)
            hosts->slices = 1;
    for (int r = 0; r < world->size && status == 0 && hosts->local_rank < hosts->slices; r++)
        if (all[2 * r] == hosts->local_rank)
            ranks[(*count)++] = r;
    free(all);
    return status;
}
