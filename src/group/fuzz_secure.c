/*
 * fuzz_secure.c - any bytes on a connection between hosts are refused in the greeting, or, once it is proved, are frames or an error, and never more
 * than the bytes that came. See base/fuzz.h.
 */
#include <string.h>

#include "base/fuzz.h"
#include "group/secure.h"

static void take_frames(uni__secure *secure, size_t size)
{
    const uint8_t *payload;
    size_t length, given = 0;
    int type;
    while (uni__secure_next(secure, &type, &payload, &length, NULL) == 1) {
        given += length + 5;
        FUZZ_PROMISE(given <= size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uni__credentials credentials = { .attempt = 1 };
    uni__secure stranger, proved;
    if (uni__secure_begin(&stranger, true, &credentials, 0, NULL) < 0)
        return 0;
    /* The nonce is fresh, so no input can be a proof. */
    (void)!uni__secure_feed(&stranger, data, size, NULL);
    FUZZ_PROMISE(!uni__secure_is_ready(&stranger));
    uni__secure_end(&stranger);
    if (uni__secure_begin(&proved, true, &credentials, 0, NULL) < 0)
        return 0;
    proved.stage = UNI__SECURE_READY;
    if (uni__secure_feed(&proved, data, size, NULL) == 0)
        take_frames(&proved, size);
    uni__secure_end(&proved);
    return 0;
}

/* Two good frames. */
size_t fuzz_sample(uint8_t *out, size_t room)
{
    static const uint8_t frames[] = { 3, 0, 0, 0, 5, 'a', 'b', 1, 0, 0, 0, 6 };
    size_t size = sizeof frames < room ? sizeof frames : room;
    memcpy(out, frames, size);
    return size;
}
