/*
 * parallel.c - splitting loops over the threads of a tape. OpenMP's team belongs to the thread that opens the region, so
 * two replicas never wait for each other here. Pieces depend only on sizes and the thread count: same count, same bits.
 */
#include <omp.h>
#include "tensor/internal.h"

/* Below this much work (about nanoseconds) a second thread costs more than it brings. */
#define WORTH_SPLITTING 16000.0

int uni__threads_for(const uni_tape *tape, double work)
{
    return tape->threads > 1 && work >= WORTH_SPLITTING && !omp_in_parallel() ? tape->threads : 1;
}

void uni__for(uni_tape *tape, size_t n, size_t grain, double cost,
              void (*body)(void *context, size_t begin, size_t end), void *context)
{
    int threads = uni__threads_for(tape, (double)n * cost);
    size_t pieces = (n + grain - 1) / grain;
    if ((size_t)threads > pieces)
        threads = (int)pieces;
    if (threads <= 1) {
        if (n)
            body(context, 0, n);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        size_t count = (size_t)omp_get_num_threads(), index = (size_t)omp_get_thread_num();
        size_t begin = pieces * index / count * grain, end = pieces * (index + 1) / count * grain;
        if (end > n)
            end = n;
        if (begin < end)
            body(context, begin, end);
    }
}

void uni__parallel(int threads, void (*body)(void *context, int index, int count), void *context)
{
    if (threads <= 1) {
        body(context, 0, 1);
        return;
    }
#pragma omp parallel num_threads(threads)
    body(context, omp_get_thread_num(), omp_get_num_threads());
}
