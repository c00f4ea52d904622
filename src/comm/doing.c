/* doing.c - what each rank is doing, as text for people. Reads the board while other ranks write to
 * it, so a number may be one behind. Any thread. */
#include <stdio.h>
#include <string.h>

#include "comm/board.h"
#include "comm/kinds.h"

#define MAX_NAMED 8

const char *uni__kind_name(int kind)
{
    switch (kind) {
#define CASE(name, number, text)                                                                   \
    case number:                                                                                   \
        return text;
        UNI__KIND_LIST(CASE)
#undef CASE
    default:
        return "?";
    }
}

const char *uni__op_name(int op)
{
    static const char *const names[] = { "",        "sum", "mean", "min", "max",
                                         "product", "and", "or",   "xor" };
    return op >= 0 && op <= UNI_COMM_XOR ? names[op] : "?";
}

void uni__describe_what(uint64_t what, uint64_t count, char *out, size_t size)
{
    int kind = (int)(what & 0xff), dtype = (int)(what >> 8 & 0xff), op = (int)(what >> 16 & 0xff);
    int used = snprintf(out, size, "%s", uni__kind_name(kind));
    bool rooted = kind == UNI__KIND_BROADCAST || kind == UNI__KIND_REDUCE;
    if (used < 0 || (size_t)used >= size || kind == UNI__KIND_BARRIER || kind == UNI__KIND_FINALIZE)
        return;
    snprintf(out + used, size - (size_t)used, "(%s%s%llu %s", uni__op_name(op), op ? " of " : "",
             (unsigned long long)count, uni_dtype_name((uni_dtype)dtype));
    used = (int)strlen(out);
    if (rooted)
        snprintf(out + used, size - (size_t)used, ", root %d)", (int)(what >> 32 & 0xffff));
    else
        snprintf(out + used, size - (size_t)used, ")");
}

static void rank_doing(uni_comm *comm, int rank, uni__text *text)
{
    uni__board *board = comm->board;
    uni__progress *progress = uni__lane_progress(&board->lane, rank);
    uint64_t started = atomic_load_explicit(&progress->started, memory_order_relaxed);
    uint64_t finished = atomic_load_explicit(&progress->finished, memory_order_relaxed);
    uint64_t waits = atomic_load_explicit(&board->header->ranks[rank].waits, memory_order_relaxed);
    char what[96] = "";
    if (started) {
        uni__slot *slot = uni__lane_slot(&board->lane, rank, started);
        uni__describe_what(atomic_load_explicit(&slot->what, memory_order_relaxed),
                           atomic_load_explicit(&slot->count, memory_order_relaxed), what,
                           sizeof what);
    }
    uni__text_add_format(text, "rank %d ", rank);
    if (!started)
        uni__text_add_string(text, "has called nothing yet");
    else if (finished > started)
        uni__text_add_format(text, "finished #%llu %s", (unsigned long long)started, what);
    else
        uni__text_add_format(text, "is in #%llu %s", (unsigned long long)started, what);
    if (waits)
        uni__text_add_format(text, ", waits for rank %d", (int)(waits >> 40 & 0xfffff));
    if (atomic_load(&board->header->ranks[rank].state) == UNI__RANK_CLOSED)
        uni__text_add_string(text, ", closed");
}

void uni__board_doing(uni_comm *comm, uni__text *text)
{
    for (int rank = 0; rank < comm->size && rank < MAX_NAMED; rank++) {
        uni__text_add_string(text, rank ? "; " : "");
        rank_doing(comm, rank, text);
    }
    if (comm->size > MAX_NAMED)
        uni__text_add_format(text, "; and %d more ranks", comm->size - MAX_NAMED);
}
