/* kinds.h - the collectives by number and name. Recorder files contain the numbers: never reuse
 * one. */
#ifndef UNISONO_COMM_KINDS_H
#define UNISONO_COMM_KINDS_H

#define UNI__KIND_LIST(X)                                                                          \
    X(ALL_REDUCE, 1, "all_reduce")                                                                 \
    X(REDUCE, 2, "reduce")                                                                         \
    X(BROADCAST, 3, "broadcast")                                                                   \
    X(ALL_GATHER, 4, "all_gather")                                                                 \
    X(REDUCE_SCATTER, 5, "reduce_scatter")                                                         \
    X(ALL_TO_ALL, 6, "all_to_all")                                                                 \
    X(BARRIER, 7, "barrier")                                                                       \
    X(SEND, 8, "send")                                                                             \
    X(RECV, 9, "recv")                                                                             \
    X(FINALIZE, 11, "finalize")                                                                    \
    X(ALLOC, 12, "alloc")                                                                          \
    X(SHOW, 13, "all_reduce_host")

enum {
#define UNI__KIND_ENUM(name, number, text) UNI__KIND_##name = number,
    UNI__KIND_LIST(UNI__KIND_ENUM)
#undef UNI__KIND_ENUM
};

/* Between two ranks, so not counted as a collective. */
static inline int uni__kind_is_pair(int kind)
{
    return kind == UNI__KIND_SEND || kind == UNI__KIND_RECV;
}

const char *uni__kind_name(int kind); /* "?" for an unknown one */
const char *uni__op_name(int op); /* "sum"; "" for 0 */

#endif
