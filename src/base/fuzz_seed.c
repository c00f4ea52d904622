/*
 * fuzz_seed.c - part of every libFuzzer target: with UNISONO_FUZZ_SAMPLE=FILE it writes the
 * target's own sample there and exits. tools/fuzz adds it to the corpus, because chance does not
 * find formats with checksums and headers.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static uint8_t sample[1 << 20];
    const char *path = getenv("UNISONO_FUZZ_SAMPLE");
    (void)argc;
    (void)argv;
    if (!path)
        return 0;
    size_t size = fuzz_sample(sample, sizeof sample);
    FILE *file = fopen(path, "we");
    bool written = file && fwrite(sample, 1, size, file) == size;
    if (file && fclose(file) != 0)
        written = false;
    _exit(written ? 0 : 1);
}
