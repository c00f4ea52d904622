/*
 * parallel.c - splits loops over the threads of a tape. OpenMP's team belongs to the thread that
 * opens the region, so two replicas never wait for each other here. Pieces depend only on sizes and
 * the thread count: same count, same bits.
 *
 * The thread sanitizer cannot see libgomp's barriers and would report every region as a race. In
 * such a build, a team consists of plain threads that are created and joined each time. This is
 * slow, but finds every real race in a loop.
 */
#include "tensor/internal.h"

#ifdef __SANITIZE_THREAD__
#include <pthread.h>

enum { MOST = 64 };

typedef struct member {
    void (*body)(void *context, int index, int count);
    void *context;
    int index, count;
} member;

static _Thread_local bool inside;

static void *work_as(void *argument)
{
    member *self = argument;
    inside = true;
    self->body(self->context, self->index, self->count);
    inside = false;
    return NULL;
}

static void team(int threads, void (*body)(void *context, int index, int count), void *context)
{
    pthread_t others[MOST];
    member members[MOST];
    int count = threads < MOST ? threads : MOST, begun = 1;
    for (int i = 0; i < count; i++)
        members[i] = (member){ body, context, i, count };
    while (begun < count && pthread_create(&others[begun], NULL, work_as, &members[begun]) == 0)
        begun++;
    work_as(&members[0]);
    /* Run the pieces of threads that could not be created. */
    for (int i = begun; i < count; i++)
        work_as(&members[i]);
    for (int i = 1; i < begun; i++)
        pthread_join(others[i], NULL);
}

static bool in_team(void)
{
    return inside;
}
#else
#include <omp.h>

static void team(int threads, void (*body)(void *context, int index, int count), void *context)
{
#pragma omp parallel num_threads(threads)
    body(context, omp_get_thread_num(), omp_get_num_threads());
}

static bool in_team(void)
{
    return omp_in_parallel();
}
#endif

/* Below this much work (about nanoseconds) a second thread costs more than it saves. */
#define WORTH_SPLITTING 16000.0

int uni__threads_for(const uni_tape *tape, double work)
{
    return tape->threads > 1 && work >= WORTH_SPLITTING && !in_team() ? tape->threads : 1;
}

typedef struct loop {
    size_t n, grain, pieces;
    void (*body)(void *context, size_t begin, size_t end);
    void *context;
} loop;

static void run_piece(void *context, int index, int count)
{
    const loop *self = context;
    size_t part = (size_t)index, parts = (size_t)count;
    size_t begin = self->pieces * part / parts * self->grain;
    size_t end = self->pieces * (part + 1) / parts * self->grain;
    if (end > self->n)
        end = self->n;
    if (begin < end)
        self->body(self->context, begin, end);
}

void uni__for(uni_tape *tape, size_t n, size_t grain, double cost,
              void (*body)(void *context, size_t begin, size_t end), void *context)
{
    int threads = uni__threads_for(tape, (double)n * cost);
    loop self = { n, grain, (n + grain - 1) / grain, body, context };
    if ((size_t)threads > self.pieces)
        threads = (int)self.pieces;
    if (threads > 1)
        team(threads, run_piece, &self);
    else if (n)
        body(context, 0, n);
}

void uni__parallel(int threads, void (*body)(void *context, int index, int count), void *context)
{
    if (threads > 1)
        team(threads, body, context);
    else
        body(context, 0, 1);
}
