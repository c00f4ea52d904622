/*
 * hosts_plan.c - turns a call over hosts into a list of steps, each a call on one of the inner
 * communicators (hosts.c). Called on the rank's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/kinds.h"
#include "comm/hosts/hosts_internal.h"

uni__call uni__over_hosts_barrier(void)
{
    return (uni__call){ .kind = UNI__KIND_BARRIER, .dtype = UNI_U8, .weight = 1 };
}

int uni__over_hosts_add(uni__host_job *job, uni_comm *on, uni__call call, int after)
{
    if (!on || job->room < 0)
        return -1;
    if (job->num_steps == job->room) {
        int room = job->room ? 2 * job->room : 8;
        uni__host_step *steps = realloc(job->steps, (size_t)room * sizeof *steps);
        if (!steps) {
            job->room = -1;
            return -1;
        }
        job->steps = steps;
        job->room = room;
    }
    call.asked = job->request;
    job->steps[job->num_steps] = (uni__host_step){ .on = on, .call = call, .after = after };
    return job->num_steps++;
}

static void add(uni__host_job *job, uni_comm *on, uni__call call)
{
    (void)uni__over_hosts_add(job, on, call, UNI__ALL_BEFORE);
}

static void add_meeting(uni__over_hosts *hosts, uni__host_job *job)
{
    add(job, hosts->local, uni__over_hosts_barrier());
    add(job, hosts->leaders, uni__over_hosts_barrier());
    if (hosts->local_size > 1)
        add(job, hosts->local, uni__over_hosts_barrier());
}

/* A local send is done once it is in staging, so only a rank that needs the data waits: one message
 * to the first rank and one back. The op is sent along to detect ranks that call different ones. */
static void add_small(uni__over_hosts *hosts, uni__host_job *job, uni__call call)
{
    uni__call send = call, receive = call;
    const void *in = call.in;
    void *out = call.out;
    send.kind = UNI__KIND_SEND;
    receive.kind = UNI__KIND_RECV;
    send.root = receive.root = 0;
    if (hosts->local_rank != 0) {
        add(job, hosts->local, send);
        add(job, hosts->local, receive);
        return;
    }
    if (in != out)
        memcpy(out, in, call.count * uni_dtype_size(call.dtype));
    receive.out = hosts->scratch;
    send.in = out;
    for (receive.root = 1; receive.root < hosts->local_size; receive.root++) {
        int step = uni__over_hosts_add(job, hosts->local, receive, UNI__ALL_BEFORE);
        if (step >= 0) {
            job->steps[step].when_done = UNI__WORK_ADD;
            job->steps[step].into = out;
        }
    }
    call.kind = UNI__KIND_ALL_REDUCE;
    call.in = out;
    add(job, hosts->leaders, call);
    for (send.root = 1; send.root < hosts->local_size; send.root++)
        add(job, hosts->local, send);
}

void uni__over_hosts_plan(uni__over_hosts *hosts, uni__host_job *job, const uni__call *call)
{
    uni__call sum = *call, weight;
    sum.op = call->op == UNI_COMM_MEAN ? UNI_COMM_SUM : call->op;
    sum.weight = 1;
    job->weight = call->weight;
    switch (call->kind) {
    case UNI__KIND_ALL_REDUCE:
        weight = (uni__call){ .dtype = UNI_F64,
                              .op = UNI_COMM_SUM,
                              .count = 1,
                              .weight = 1,
                              .in = &job->weight,
                              .out = &job->weight };
        if (call->op == UNI_COMM_MEAN)
            add_small(hosts, job, weight);
        if (uni__call_bytes(call) <= UNI__HOSTS_SMALL)
            add_small(hosts, job, sum);
        else
            uni__over_hosts_add_slices(hosts, job, &sum);
        break;
    case UNI__KIND_BROADCAST:
        if (call->root == 0) {
            add(job, hosts->leaders, *call);
            add(job, hosts->local, *call);
        } else {
            add(job, hosts->world, *call);
        }
        break;
    case UNI__KIND_BARRIER:
    case UNI__KIND_FINALIZE:
        add_meeting(hosts, job);
        break;
    default:
        add(job, hosts->world, *call);
        break;
    }
}
