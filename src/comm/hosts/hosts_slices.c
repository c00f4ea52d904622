/*
 * hosts_slices.c - all_reduce of large buffers over hosts: every rank of a host drives the network
 * with its own slice.
 *
 * Rank r of a host adds up slice r of the host's inputs. It all-reduces that slice with the ranks r
 * of the other hosts, and writes the result into slice r of all outputs of its host. So each byte
 * crosses the network once per host, all ranks share the sums and copies, and the ranks of a host
 * synchronize twice:
 *
 *     show               all have arrived, and see each other's buffers
 *     segments           of the slice, some under way at once: summed, all_reduce across, spread
 *     barrier            all slices are in every output
 *
 * The sums of slice r are made in local rank order, and only here, so all ranks have the same bits.
 * Between show and barrier only rank r touches slice r on its host, so no step in between has to
 * wait.
 *
 * When the hosts have different numbers of ranks, there is one slice, driven by the first ranks.
 * Buffers that the other ranks of a host cannot see go through common pages, segment by segment
 * (copy in, barrier, sum, across, spread, barrier, copy out). The traffic is the same, because the
 * other host may see its buffers. Called on the rank's thread.
 */
#include <string.h>

#include "comm/shared.h"
#include "base/slice.h"
#include "comm/kinds.h"
#include "comm/hosts/hosts_internal.h"

#define LINE 64u
#define SEGMENT_BYTES (256u << 10)
#define MAX_SEGMENTS 64 /* of this size; beyond that, larger segments */
#define LARGEST_SEGMENT (1u << 20)
/* Per rank, for buffers that are not visible. */
#define PAGES_BYTES (8u << 20)

/* The part of a flat buffer that this rank drives or updates. */
static void slice_of(const uni__over_hosts *hosts, const uni__call *call, int index, size_t *begin,
                     size_t *end)
{
    uni__slice_of(call->count, LINE / uni_dtype_size(call->dtype), index, hosts->slices, begin,
                  end);
}

/* The same on all hosts: computed for the longest slice, so that every slice has equally many. */
static int num_segments(const uni__over_hosts *hosts, const uni__call *call)
{
    size_t bytes = uni__call_bytes(call) / (size_t)hosts->slices + LINE, most = LARGEST_SEGMENT;
    if (bytes <= (size_t)MAX_SEGMENTS * SEGMENT_BYTES)
        return (int)((bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES);
    while (most > LINE && most * (size_t)hosts->slices > PAGES_BYTES)
        most /= 2;
    return (int)((bytes + most - 1) / most);
}

/* Segment k of slice r. */
static void segment_of(const uni__over_hosts *hosts, const uni__call *call, int slice, int k,
                       size_t *begin, size_t *end)
{
    size_t first, last, from, to;
    slice_of(hosts, call, slice, &first, &last);
    uni__slice_of(last - first, LINE / uni_dtype_size(call->dtype), k, num_segments(hosts, call),
                  &from, &to);
    *begin = first + from;
    *end = first + to;
}

/* Room for one segment of any slice in the common pages. */
static size_t place_bytes(const uni__over_hosts *hosts, const uni__call *call)
{
    size_t bytes = uni__call_bytes(call) / (size_t)hosts->slices + 2 * LINE;
    return (bytes / (size_t)num_segments(hosts, call) + 2 * LINE) & ~(size_t)(LINE - 1);
}

void uni__over_hosts_add_slices(uni__over_hosts *hosts, uni__host_job *job, const uni__call *call)
{
    uni__call show = *call;
    job->call = *call;
    show.kind = UNI__KIND_SHOW;
    show.show = &job->show;
    int step = uni__over_hosts_add(job, hosts->local, show, UNI__ALL_BEFORE);
    if (step >= 0)
        job->steps[step].when_done = UNI__WORK_LOOK;
}

/* ---- after all have shown their buffers ---- */

/* at: bytes from the beginning of the views. */
static void add_segment(uni__over_hosts *hosts, uni__host_job *job, int k, size_t at, int after)
{
    const uni__call *call = &job->call;
    uni__call between = *call;
    size_t begin, end;
    if (!hosts->across)
        return;
    segment_of(hosts, call, hosts->local_rank, k, &begin, &end);
    if (begin == end)
        return;
    between.kind = UNI__KIND_ALL_REDUCE;
    between.count = end - begin;
    between.out = (char *)job->views[hosts->local_size + hosts->local_rank] + at;
    between.in = between.out;
    int step = uni__over_hosts_add(job, hosts->across, between, after);
    if (step < 0)
        return;
    job->steps[step].at = at;
    job->steps[step].before = UNI__WORK_SUM;
    job->steps[step].when_done = UNI__WORK_SPREAD;
}

static void add_seen(uni__over_hosts *hosts, uni__host_job *job)
{
    const uni__call *call = &job->call;
    size_t size = uni_dtype_size(call->dtype), begin, end;
    for (int k = 0; k < num_segments(hosts, call) && hosts->across; k++) {
        segment_of(hosts, call, hosts->local_rank, k, &begin, &end);
        add_segment(hosts, job, k, begin * size, -1);
    }
    (void)uni__over_hosts_add(job, hosts->local, uni__over_hosts_barrier(), UNI__ALL_BEFORE);
}

static void add_unseen(uni__over_hosts *hosts, uni__host_job *job)
{
    size_t place = place_bytes(hosts, &job->call);
    for (int k = 0; k < num_segments(hosts, &job->call); k++) {
        int in = uni__over_hosts_add(job, hosts->local, uni__over_hosts_barrier(), UNI__ALL_BEFORE);
        add_segment(hosts, job, k, place * (size_t)hosts->local_rank, UNI__ALL_BEFORE);
        int out =
            uni__over_hosts_add(job, hosts->local, uni__over_hosts_barrier(), UNI__ALL_BEFORE);
        if (in < 0 || out < 0)
            return;
        job->steps[in].before = UNI__WORK_COPY_IN;
        job->steps[out].when_done = UNI__WORK_COPY_OUT;
        job->steps[in].at = job->steps[out].at = (size_t)k;
    }
}

/* Common pages for buffers that are not visible. Collective on this host, where all ranks agree
 * that they are needed. */
static int take_pages(uni__over_hosts *hosts, uni__host_job *job, uni_error *err)
{
    size_t bytes = place_bytes(hosts, &job->call) * (size_t)hosts->slices;
    if (bytes > hosts->pages_bytes) {
        uni_comm_buffer_free(hosts->pages);
        hosts->pages = NULL;
        hosts->pages_bytes = 0;
        bytes = bytes < PAGES_BYTES ? PAGES_BYTES : bytes;
        UNI_TRY(uni_comm_alloc(&hosts->pages, hosts->local, bytes, err));
        hosts->pages_bytes = bytes;
    }
    for (int m = 0; m < hosts->local_size; m++)
        job->views[m] = job->views[hosts->local_size + m] = uni__comm_buffer_peer(hosts->pages, m);
    return 0;
}

static int look(uni__over_hosts *hosts, uni__host_job *job, uni_error *err)
{
    if (hosts->local_size == 1) {
        job->views[0] = (void *)(uintptr_t)job->call.in;
        job->views[1] = job->call.out;
    } else if (!job->show.seen) {
        UNI_TRY(take_pages(hosts, job, err));
        add_unseen(hosts, job);
        return 0;
    }
    add_seen(hosts, job);
    return 0;
}

/* ---- what steps do to memory ---- */

static void sum(const uni_comm *comm, const uni__over_hosts *hosts, const uni__host_job *job,
                const uni__host_step *step)
{
    const void *in[UNI__COMM_MAX_RANKS];
    void *out = step->call.out;
    for (int m = 0; m < hosts->local_size; m++)
        in[m] = (const char *)job->views[m] + step->at;
    uni__reduce_many(comm->kernels, step->call.dtype, step->call.op, 0, in, hosts->local_size, &out,
                     1, step->call.count);
}

static void spread(const uni_comm *comm, const uni__over_hosts *hosts, const uni__host_job *job,
                   const uni__host_step *step)
{
    size_t bytes = uni__call_bytes(&step->call);
    for (int m = 0; m < hosts->local_size; m++)
        if (m != hosts->local_rank)
            comm->kernels->copy((char *)job->views[hosts->local_size + m] + step->at,
                                step->call.out, bytes);
}

/* Segment `at` of all slices, into this rank's common pages or out of them. */
static void copy_segment(const uni_comm *comm, const uni__over_hosts *hosts,
                         const uni__host_job *job, const uni__host_step *step, bool in)
{
    const uni__call *call = &job->call;
    size_t size = uni_dtype_size(call->dtype), place = place_bytes(hosts, call), begin, end;
    for (int r = 0; r < hosts->slices; r++) {
        char *page = (char *)job->views[hosts->local_rank] + place * (size_t)r;
        segment_of(hosts, call, r, (int)step->at, &begin, &end);
        if (in)
            comm->kernels->copy(page, (const char *)call->in + begin * size, (end - begin) * size);
        else
            comm->kernels->copy((char *)call->out + begin * size, page, (end - begin) * size);
    }
}

int uni__over_hosts_work(uni_comm *comm, uni__host_job *job, int index, bool ended, uni_error *err)
{
    uni__over_hosts *hosts = comm->state;
    const uni__host_step *step = &job->steps[index];
    const void *both[2] = { step->into, step->call.out };
    void *into = step->into;
    switch (ended ? step->when_done : step->before) {
    case UNI__WORK_ADD:
        uni__reduce_many(comm->kernels, step->call.dtype, step->call.op, 0, both, 2, &into, 1,
                         step->call.count);
        break;
    case UNI__WORK_LOOK:
        return look(hosts, job, err);
    case UNI__WORK_SUM:
        sum(comm, hosts, job, step);
        break;
    case UNI__WORK_SPREAD:
        spread(comm, hosts, job, step);
        break;
    case UNI__WORK_COPY_IN:
        copy_segment(comm, hosts, job, step, true);
        break;
    case UNI__WORK_COPY_OUT:
        copy_segment(comm, hosts, job, step, false);
        break;
    default:
        break;
    }
    return 0;
}
