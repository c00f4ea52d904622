/*
 * fuzz.h - the interface of a fuzz target. One target per program; two ways to run it:
 *
 * - fuzz_NAME: libFuzzer with ASan and UBSan, for real campaigns. Needs clang:
 *     tools/fuzz --minutes 10 json
 * - fuzz_NAME_smoke: fuzz_driver.c, any compiler, in every build with tests. The tests include a
 *   second of random changes to the target's own sample.
 *
 * For fuzz_*.c only. A target stops the process (__builtin_trap) when a promise is broken.
 */
#ifndef UNISONO_BASE_FUZZ_H
#define UNISONO_BASE_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* A valid input to start from, at most `room` bytes; returns its size. */
size_t fuzz_sample(uint8_t *out, size_t room);

/* Copies an existing sample; returns its size. */
static inline size_t fuzz_copy(uint8_t *out, size_t room, const void *sample, size_t size)
{
    size = size < room ? size : room;
    memcpy(out, sample, size);
    return size;
}

/* A target whose sample is text. */
#define FUZZ_SAMPLE_TEXT(text)                                                                     \
    size_t fuzz_sample(uint8_t *out, size_t room)                                                  \
    {                                                                                              \
        return fuzz_copy(out, room, text, sizeof(text) - 1);                                       \
    }

/* A private directory of this process, removed when the process ends. */
static char fuzz__directory[256];

static inline void fuzz__remove_directory(void)
{
    int ignored = uni__remove_tree(fuzz__directory, NULL);
    (void)ignored;
}

static inline const char *fuzz_directory(void)
{
    if (!fuzz__directory[0]) {
        if (!mkdtemp(uni__temporary_name(fuzz__directory, sizeof fuzz__directory, "fuzz")))
            __builtin_trap();
        atexit(fuzz__remove_directory);
    }
    return fuzz__directory;
}

/* Writes the bytes to the file `name` in that directory; returns `path`. */
static inline const char *fuzz_file(char path[400], const char *name, const void *data, size_t size)
{
    snprintf(path, 400, "%s/%s", fuzz_directory(), name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        __builtin_trap();
    return path;
}

#define FUZZ_PROMISE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            __builtin_trap();                                                                      \
    } while (0)

#endif
