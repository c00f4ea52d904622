/*
 * parallel.c - splits loops over the threads of a tape (helpers.h). Pieces depend only on sizes and
 * the thread count, never on the threads that compute them: same count, same bits.
 */
#include "tensor/internal.h"

/* Below this much work (about nanoseconds) a second thread costs more than it saves. */
#define WORTH_SPLITTING 16000.0

uni__helpers *uni__tape_helpers(const uni_tape *tape)
{
    return tape->helpers;
}

int uni__threads_for(const uni_tape *tape, double work)
{
    return tape->threads > 1 && work >= WORTH_SPLITTING && !uni__helpers_busy(tape->helpers)
               ? tape->threads
               : 1;
}

typedef struct loop {
    size_t n, grain, pieces, parts;
    void (*body)(void *context, size_t begin, size_t end);
    void *context;
} loop;

static void run_piece(void *context, int index)
{
    const loop *self = context;
    size_t part = (size_t)index;
    size_t begin = self->pieces * part / self->parts * self->grain;
    size_t end = self->pieces * (part + 1) / self->parts * self->grain;
    if (end > self->n)
        end = self->n;
    if (begin < end)
        self->body(self->context, begin, end);
}

void uni__for(uni_tape *tape, size_t n, size_t grain, double cost,
              void (*body)(void *context, size_t begin, size_t end), void *context)
{
    int threads = uni__threads_for(tape, (double)n * cost);
    loop self = { n, grain, (n + grain - 1) / grain, 0, body, context };
    self.parts = (size_t)threads < self.pieces ? (size_t)threads : self.pieces;
    if (self.parts > 1)
        uni__helpers_run(tape->helpers, (int)self.parts, run_piece, &self);
    else if (n)
        body(context, 0, n);
}
