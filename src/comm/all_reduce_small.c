/*
 * all_reduce_small.c - every rank puts its input into staging and reduces all of them itself.
 *
 * This takes one synchronization instead of two, for n times the reading, and is the fastest for a
 * few KiB. All ranks add in the same order, so results are bit-equal. n ranks, b bytes: 1
 * synchronization, n x b read.
 */
#include "comm/algorithm.h"

const uni__algorithm uni__all_reduce_small = {
    .name = "small",
    .cost = "1 meeting; b copied, n*b read by each rank",
    .copy_first = true,
    .fill = uni__pull_fill,
    .step = uni__pull_step,
    .window = uni__pull_reduce,
};
