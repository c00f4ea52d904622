/*
 * fuzz_wire.c - any bytes on a channel are frames, or an error, and never more than the bytes that
 * came. See base/fuzz.h.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/shared.h"
#include "base/fuzz.h"
#include "group/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];
    uni__wire wire;
    uni__wire_frame frame;
    if (size > 100000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return 0;
    FUZZ_PROMISE(write(fds[0], data, size) == (ssize_t)size);
    close(fds[0]);
    uni__wire_init(&wire, fds[1]);
    size_t given = 0;
    while (uni__wire_fill(&wire, NULL) == 0)
        ; /* until the end that was closed above */
    while (uni__wire_next(&wire, &frame, NULL) == 1) {
        uni_value *value = NULL;
        given += frame.size + 12;
        FUZZ_PROMISE(given <= size);
        if (uni__msgpack_read(&value, frame.payload, frame.size, NULL) == 0)
            uni_value_free(value);
        uni__wire_frame_done(&frame);
    }
    uni__wire_close(&wire);
    return 0;
}

/* Two good frames. */
size_t fuzz_sample(uint8_t *out, size_t room)
{
    static const uint8_t frames[] = { 0x4e, 0x55, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0x81, 0xa0,
                                      0x4e, 0x55, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0xc0 };
    return fuzz_copy(out, room, frames, sizeof frames);
}
