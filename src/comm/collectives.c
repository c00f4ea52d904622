/* collectives.c - the public collectives: each fills a uni__call and runs or starts it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/shared.h"
#include "base/file.h"
#include "comm/internal.h"
#include "comm/kinds.h"

/* Common fields of every call; op 0 when nothing is reduced, root 0 when there is none. */
static uni__call make(int kind, const void *in, void *out, size_t count, uni_dtype dtype,
                      uni_comm_op op, int root)
{
    return (uni__call){ .kind = kind,
                        .dtype = dtype,
                        .op = op,
                        .root = root,
                        .count = count,
                        .in = in,
                        .out = out,
                        .weight = 1 };
}

static int run(uni_comm *comm, uni__call call, uni_error *err)
{
    return uni__comm_run(comm, &call, NULL, err);
}

int uni_comm_all_reduce(uni_comm *comm, const void *in, void *out, size_t count, uni_dtype dtype,
                        uni_comm_op op, uni_error *err)
{
    return run(comm, make(UNI__KIND_ALL_REDUCE, in, out, count, dtype, op, 0), err);
}

int uni_comm_all_reduce_weighted(uni_comm *comm, const void *in, void *out, size_t count,
                                 uni_dtype dtype, double weight, double *total, uni_error *err)
{
    uni__call call = make(UNI__KIND_ALL_REDUCE, in, out, count, dtype, UNI_COMM_MEAN, 0);
    call.weight = weight;
    return uni__comm_run(comm, &call, total, err);
}

int uni_comm_reduce(uni_comm *comm, const void *in, void *out, size_t count, uni_dtype dtype,
                    uni_comm_op op, int root, uni_error *err)
{
    return run(comm, make(UNI__KIND_REDUCE, in, out, count, dtype, op, root), err);
}

int uni_comm_broadcast(uni_comm *comm, void *data, size_t count, uni_dtype dtype, int root,
                       uni_error *err)
{
    return run(comm, make(UNI__KIND_BROADCAST, data, data, count, dtype, 0, root), err);
}

int uni_comm_all_gather(uni_comm *comm, const void *in, void *out, size_t count, uni_dtype dtype,
                        uni_error *err)
{
    return run(comm, make(UNI__KIND_ALL_GATHER, in, out, count, dtype, 0, 0), err);
}

int uni_comm_reduce_scatter(uni_comm *comm, const void *in, void *out, size_t count,
                            uni_dtype dtype, uni_comm_op op, uni_error *err)
{
    return run(comm, make(UNI__KIND_REDUCE_SCATTER, in, out, count, dtype, op, 0), err);
}

int uni_comm_all_to_all(uni_comm *comm, const void *in, void *out, size_t count, uni_dtype dtype,
                        uni_error *err)
{
    return run(comm, make(UNI__KIND_ALL_TO_ALL, in, out, count, dtype, 0, 0), err);
}

int uni_comm_barrier(uni_comm *comm, uni_error *err)
{
    return run(comm, make(UNI__KIND_BARRIER, NULL, NULL, 0, UNI_U8, 0, 0), err);
}

static uni__call send_call(const void *data, size_t count, uni_dtype dtype, int to)
{
    return make(UNI__KIND_SEND, data, NULL, count, dtype, 0, to);
}

static uni__call recv_call(void *data, size_t count, uni_dtype dtype, int from)
{
    return make(UNI__KIND_RECV, NULL, data, count, dtype, 0, from);
}

int uni_comm_send(uni_comm *comm, const void *data, size_t count, uni_dtype dtype, int to,
                  uni_error *err)
{
    return run(comm, send_call(data, count, dtype, to), err);
}

int uni_comm_recv(uni_comm *comm, void *data, size_t count, uni_dtype dtype, int from,
                  uni_error *err)
{
    return run(comm, recv_call(data, count, dtype, from), err);
}

int uni_comm_send_start(uni_comm_request **out_request, uni_comm *comm, const void *data,
                        size_t count, uni_dtype dtype, int to, uni_error *err)
{
    uni__call call = send_call(data, count, dtype, to);
    return uni__comm_start(comm, &call, out_request, err);
}

int uni_comm_recv_start(uni_comm_request **out_request, uni_comm *comm, void *data, size_t count,
                        uni_dtype dtype, int from, uni_error *err)
{
    uni__call call = recv_call(data, count, dtype, from);
    return uni__comm_start(comm, &call, out_request, err);
}

int uni_comm_all_reduce_start(uni_comm_request **out_request, uni_comm *comm, const void *in,
                              void *out, size_t count, uni_dtype dtype, uni_comm_op op,
                              double weight, uni_error *err)
{
    uni__call call = make(UNI__KIND_ALL_REDUCE, in, out, count, dtype, op, 0);
    call.weight = weight;
    return uni__comm_start(comm, &call, out_request, err);
}

int uni__comm_begin(uni_comm_request **out, uni_comm *comm, const uni__comm_what *what,
                    uni_error *err)
{
    uni__call call =
        make(what->kind, what->in, what->out, what->count, what->dtype, what->op, what->root);
    return uni__comm_start(comm, &call, out, err);
}

/* The value that most ranks have; on a tie, the lowest rank's. */
static uint64_t most_common(const uint64_t *values, int n)
{
    int best = 0, best_count = 0;
    for (int i = 0; i < n; i++) {
        int count = 0;
        for (int j = 0; j < n; j++)
            count += values[j] == values[i];
        if (count > best_count) {
            best = i;
            best_count = count;
        }
    }
    return values[best];
}

int uni_comm_check_equal(uni_comm *comm, const void *data, size_t bytes, const char *what,
                         uni_error *err)
{
    char hex[17];
    uni__hash_bytes(data, bytes, hex);
    uint64_t mine = strtoull(hex, NULL, 16) ^ bytes;
    uint64_t *all = calloc((size_t)comm->size, sizeof *all);
    if (!all)
        return uni_error_set(err, UNI_ENOMEM, "no memory to compare %s", what);
    int status = uni_comm_all_gather(comm, &mine, all, 1, UNI_U64, err);
    if (status == 0) {
        uint64_t common = most_common(all, comm->size);
        char ranks[160] = "";
        for (int r = 0; r < comm->size; r++) {
            size_t used = strlen(ranks);
            if (all[r] != common && used < sizeof ranks - 16)
                snprintf(ranks + used, sizeof ranks - used, "%s%d", used ? ", " : "", r);
        }
        if (ranks[0])
            status = uni_error_set(err, UNI_EMISMATCH,
                                   "%s differ between the ranks after collective #%llu: rank %s "
                                   "not as the others (drifted apart; hosts with different "
                                   "instruction sets?)",
                                   what, (unsigned long long)comm->count, ranks);
    }
    free(all);
    return status;
}
