/*
 * fuzz_driver.c - a main for fuzz targets without libFuzzer (gcc): `fuzz_NAME_smoke [-seconds=N]
 * [-seed=N] [FILE...]`.
 *
 * Runs the given files (to repeat a finding of libFuzzer in gdb or under valgrind), then N seconds
 * (1 by default) of random changes to the files and to the target's sample. It has no coverage
 * feedback: it is a smoke test. When a target traps, the input is in fuzz-crash.bin of the current
 * directory, if the process could still write it.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/file.h"
#include "base/fuzz.h"
#include "base/random.h"

#define INPUT_SIZE 4096
#define MAX_FILES 256

typedef struct input {
    uint8_t bytes[INPUT_SIZE];
    size_t size;
} input;

static input current; /* for the signal handler */

static void save_current(int signal_number)
{
    int fd = open("fuzz-crash.bin", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd >= 0) {
        ssize_t written = write(fd, current.bytes, current.size);
        (void)written;
    }
    raise(signal_number); /* SA_RESETHAND: this time it kills us */
}

static void run(void)
{
    /* Allocate exactly, so that ASan and valgrind see a read past the end. */
    uint8_t *copy = malloc(current.size ? current.size : 1);
    if (!copy)
        return;
    memcpy(copy, current.bytes, current.size);
    LLVMFuzzerTestOneInput(copy, current.size);
    free(copy);
}

/* One to eight changes: bits, bytes, pieces removed, duplicated, or inserted from elsewhere. */
static void change(uint64_t key)
{
    int count = 1 + (int)(uni__random_u64(key, 0, 0) % 8);
    for (int i = 1; i <= count; i++) {
        uint64_t dice = uni__random_u64(key, 0, (uint64_t)i);
        size_t size = current.size, at = size ? (size_t)(dice >> 8) % size : 0;
        size_t length = 1 + (size_t)(dice >> 32) % 16;
        uint8_t *place = current.bytes + at;
        if (length > size - at)
            length = size - at;
        switch (dice % 6) {
        case 0:
            *place ^= (uint8_t)(1 << (dice >> 32) % 8);
            break;
        case 1:
            *place = (uint8_t)(dice >> 40);
            break;
        case 2:
            memmove(place, place + length, size - at - length);
            current.size -= length;
            break;
        case 3:
            if (size + length <= INPUT_SIZE) {
                memmove(place + length, place, size - at);
                current.size += length;
            }
            break;
        case 4:
            if (size > 0)
                memmove(place, current.bytes + (size_t)(dice >> 48) % (size - length + 1), length);
            break;
        default:
            current.size = at;
            break;
        }
    }
}

int main(int argc, char **argv)
{
    static input samples[MAX_FILES + 1];
    size_t samples_count = 0, runs = 0;
    double seconds = 1;
    uint64_t seed = 1;
    const struct sigaction action = { .sa_handler = save_current, .sa_flags = SA_RESETHAND };
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    samples[samples_count].size = fuzz_sample(samples[0].bytes, INPUT_SIZE);
    samples_count++;
    for (int i = 1; i < argc; i++) {
        char *text = NULL;
        size_t size = 0;
        uni_error err = { 0 };
        if (strncmp(argv[i], "-seconds=", 9) == 0) {
            seconds = atof(argv[i] + 9);
        } else if (strncmp(argv[i], "-seed=", 6) == 0) {
            seed = strtoull(argv[i] + 6, NULL, 10);
        } else if (uni__read_file(&text, &size, argv[i], INPUT_SIZE, &err) < 0) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        } else if (samples_count <= MAX_FILES) {
            memcpy(samples[samples_count].bytes, text, size);
            samples[samples_count++].size = size;
        }
        free(text);
    }
    for (size_t i = 0; i < samples_count; i++, runs++) {
        current = samples[i];
        run();
    }
    uint64_t end = uni__monotonic_ns() + (uint64_t)(seconds * 1e9);
    for (; uni__monotonic_ns() < end; runs++) {
        uint64_t key = uni__random_u64(seed, 1, runs);
        current = samples[key % samples_count];
        change(key);
        run();
    }
    printf("%zu inputs, no failure\n", runs);
    return 0;
}
