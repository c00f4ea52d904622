/*
 * fuzz.h - what a fuzz target gives. One target a program; two ways to run it:
 *
 * - fuzz_NAME: libFuzzer with ASan and UBSan, for real campaigns. Needs clang:
 *     tools/fuzz --minutes 10 json
 * - fuzz_NAME_smoke: fuzz_driver.c, any compiler, in every build with tests; a second of random
 *   changes to the target's own sample is part of the tests.
 *
 * For fuzz_*.c only. A target stops the process (__builtin_trap) when a promise is broken.
 */
#ifndef UNISONO_BASE_FUZZ_H
#define UNISONO_BASE_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* A valid input to begin with, at most `room` bytes; returns its size. */
size_t fuzz_sample(uint8_t *out, size_t room);

#define FUZZ_PROMISE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            __builtin_trap();                                                                      \
    } while (0)

#endif
