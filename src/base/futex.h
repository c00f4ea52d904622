/*
 * futex.h - sleeps on a 32-bit word until another thread or process changes it. The caller loops: a
 * wait also returns after a signal, a wake meant for another sleeper, or the timeout.
 */
#ifndef UNISONO_BASE_FUTEX_H
#define UNISONO_BASE_FUTEX_H

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define UNI__FUTEX_FOREVER INT64_MAX

/* Sleeps while *word is `value`, at most timeout_ns. `word` may be in memory that processes
 * share. */
static inline void uni__futex_wait_ns(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns)
{
    struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / 1000000000),
                                .tv_nsec = (long)(timeout_ns % 1000000000) };
    syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ns == UNI__FUTEX_FOREVER ? NULL : &timeout,
            NULL, 0);
}

/* timeout_ms below 0: no limit. */
static inline void uni__futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms)
{
    uni__futex_wait_ns(word, value,
                       timeout_ms < 0 ? UNI__FUTEX_FOREVER : (int64_t)timeout_ms * 1000000);
}

/* Wakes every sleeper. */
static inline void uni__futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

#endif
