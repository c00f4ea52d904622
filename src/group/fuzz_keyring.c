/*
 * fuzz_keyring.c - whatever a launcher prints, the keyring takes whole lines of this job only, and
 * the first key of a rank stays. See base/fuzz.h.
 */
#include <stdio.h>
#include <string.h>

#include "base/fuzz.h"
#include "group/keyring.h"

#define RANKS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uni__credentials credentials = { .attempt = 1, .public_key = { 7 } };
    uni__keyring *ring = NULL;
    if (uni__keyring_new(&ring, RANKS, NULL) < 0)
        return 0;
    char line[UNI__ANNOUNCEMENT_MAX];
    uni__announcement_write(&credentials, 0, line);
    FUZZ_PROMISE(uni__keyring_read(ring, &credentials, line, strlen(line)) == strlen(line));
    FUZZ_PROMISE(uni__keyring_read(ring, &credentials, (const char *)data, size) <= size);
    FUZZ_PROMISE(uni__keyring_find(ring, 0, credentials.public_key) == 1);
    FUZZ_PROMISE(uni__keyring_find(ring, RANKS, credentials.public_key) == -1);
    uni__keyring_free(ring);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    static const uni__credentials credentials = { .attempt = 1, .public_key = { 9 } };
    char line[UNI__ANNOUNCEMENT_MAX];
    uni__announcement_write(&credentials, 1, line);
    return fuzz_copy(out, room, line, strlen(line));
}
