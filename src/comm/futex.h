/* futex.h - sleeping on the low half of a 64-bit word that other processes change. For src/comm only. */
#ifndef UNISONO_COMM_FUTEX_H
#define UNISONO_COMM_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the futex is on the word's first four bytes, which must be its low half"
#endif

/* Returns when the low half is not `value` any more, after a wake, or after timeout_ns. */
static inline void uni__comm_futex_wait(_Atomic uint64_t *word, uint64_t value, uint64_t timeout_ns)
{
    struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / 1000000000u),
                                .tv_nsec = (long)(timeout_ns % 1000000000u) };
    syscall(SYS_futex, word, FUTEX_WAIT, (uint32_t)value, &timeout, NULL, 0);
}

static inline void uni__comm_futex_wake(_Atomic uint64_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
}

#endif
