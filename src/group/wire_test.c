/* wire_test.c - frames over sockets: pieces, descriptors, large payloads, and peers that speak
 * something else. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "group/wire.h"

typedef struct ends {
    uni__wire a, b;
} ends;

static ends connected(void)
{
    ends both;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    uni__wire_init(&both.a, fds[0]);
    uni__wire_init(&both.b, fds[1]);
    return both;
}

static void disconnect(ends *both)
{
    uni__wire_close(&both->a);
    uni__wire_close(&both->b);
}

static void round_trip(void **state)
{
    ends both = connected();
    uni__wire_frame frame;
    for (int i = 0; i < 50; i++)
        assert_int_equal(
            uni__wire_send(&both.a, 1 + i, "payload", (size_t)(i % 8), NULL, 0, 100, NULL), 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(uni__wire_receive(&both.b, &frame, 1000, NULL), 1);
        assert_int_equal(frame.type, 1 + i);
        assert_int_equal(frame.size, i % 8);
        assert_memory_equal(frame.payload, "payload", frame.size);
        uni__wire_frame_done(&frame);
    }
    assert_int_equal(uni__wire_receive(&both.b, &frame, 20, NULL), UNI_ETIMEOUT);
    disconnect(&both);
}

/* Frames without descriptors before, between and after one that has some: each gets its own. */
static void descriptors(void **state)
{
    ends both = connected();
    uni__wire_frame frame;
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(uni__wire_send(&both.a, 1, "x", 1, NULL, 0, 100, NULL), 0);
    assert_int_equal(uni__wire_send(&both.a, 2, "y", 1, pipe_ends, 2, 100, NULL), 0);
    assert_int_equal(uni__wire_send(&both.a, 3, "z", 1, NULL, 0, 100, NULL), 0);
    assert_int_equal(uni__wire_send(&both.a, 4, "w", 1, &pipe_ends[1], 1, 100, NULL), 0);
    const int expected[] = { 0, 2, 0, 1 };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(uni__wire_receive(&both.b, &frame, 1000, NULL), 1);
        assert_int_equal(frame.num_fds, expected[i]);
        if (i == 3) {
            char byte;
            assert_int_equal(write(frame.fds[0], "!", 1), 1);
            assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
        }
        uni__wire_frame_done(&frame);
    }
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    disconnect(&both);
}

static void large_payload(void **state)
{
    ends both = connected();
    uni__wire_frame frame;
    size_t size = 5u << 20;
    char *data = malloc(size);
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i * 7);
    int extra = open("/dev/null", O_RDONLY);
    /* The other end does not read yet: it must not block. */
    for (int i = 0; i < 5; i++)
        assert_int_equal(uni__wire_send(&both.a, 9, data, size, &extra, 1, 100, NULL), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(uni__wire_receive(&both.b, &frame, 1000, NULL), 1);
        assert_int_equal(frame.type, 9);
        assert_int_equal(frame.size, size);
        assert_memory_equal(frame.payload, data, size);
        assert_int_equal(frame.num_fds, 1);
        uni__wire_frame_done(&frame);
    }
    close(extra);
    free(data);
    disconnect(&both);
}

static void byte_by_byte(void **state)
{
    ends both = connected(), relay = connected();
    uni__wire_frame frame;
    char bytes[64];
    assert_int_equal(uni__wire_send(&both.a, 5, "slowly", 6, NULL, 0, 100, NULL), 0);
    ssize_t n = read(both.b.fd, bytes, sizeof bytes);
    assert_int_equal(n, 18);
    for (ssize_t i = 0; i < n; i++) {
        assert_int_equal(uni__wire_next(&relay.b, &frame, NULL), 0);
        assert_int_equal(write(relay.a.fd, bytes + i, 1), 1);
        assert_int_equal(uni__wire_fill(&relay.b, NULL), 0);
    }
    assert_int_equal(uni__wire_next(&relay.b, &frame, NULL), 1);
    assert_memory_equal(frame.payload, "slowly", 6);
    uni__wire_frame_done(&frame);
    disconnect(&both);
    disconnect(&relay);
}

static void foreign_bytes(const char *bytes, size_t size, int expected)
{
    ends both = connected();
    uni__wire_frame frame;
    uni_error err = { 0 };
    assert_int_equal(write(both.a.fd, bytes, size), (ssize_t)size);
    assert_int_equal(uni__wire_receive(&both.b, &frame, 1000, &err), expected);
    assert_true(err.message[0]);
    disconnect(&both);
}

static void others_are_refused(void **state)
{
    foreign_bytes("GET / HTTP/1.1\r\n\r\n", 18, UNI_EFORMAT);
    foreign_bytes("\x4e\x55\x02\x01\0\0\0\0\0\0\0\0", 12, UNI_EVERSION);
    foreign_bytes("\x4e\x55\x01\x01\xff\xff\xff\x7f\0\0\0\0", 12, UNI_EFORMAT); /* 2 GB */
    foreign_bytes("\x4e\x55\x01\x01\0\0\0\0\x02\0\0\0", 12,
                  UNI_EFORMAT); /* descriptors that are not there */
    foreign_bytes("\x4e\x55\x01\x81\x08\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 20,
                  UNI_EFORMAT);
}

static void the_other_side_leaves(void **state)
{
    ends both = connected();
    uni__wire_frame frame;
    assert_int_equal(uni__wire_send(&both.a, 1, "last", 4, NULL, 0, 100, NULL), 0);
    uni__wire_close(&both.a);
    assert_int_equal(uni__wire_receive(&both.b, &frame, 1000, NULL), 1);
    uni__wire_frame_done(&frame);
    assert_int_equal(uni__wire_receive(&both.b, &frame, 1000, NULL), UNI_EPEER);
    assert_int_equal(uni__wire_send(&both.b, 1, "x", 1, NULL, 0, 100, NULL), UNI_EPEER);
    disconnect(&both);
}

/* A large message in memory that its sender can still cut off or write, or that is not memory. */
static void buffers_that_can_change(void **state)
{
    ends both = connected();
    uni__wire_frame frame;
    uint64_t size = 1u << 20;
    const int large = 9 | 0x80;
    const unsigned seals[] = { 0, F_SEAL_WRITE | F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW };
    for (int i = 0; i < 4; i++) {
        int fd = i < 3 ? memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                       : open("/dev/zero", O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        if (i < 3) {
            assert_int_equal(ftruncate(fd, (off_t)size), 0);
            assert_int_equal(fcntl(fd, F_ADD_SEALS, seals[i]), 0);
        }
        assert_int_equal(uni__wire_send(&both.a, large, &size, sizeof size, &fd, 1, 100, NULL), 0);
        close(fd);
        assert_int_equal(uni__wire_receive(&both.b, &frame, 1000, NULL), UNI_EFORMAT);
    }
    disconnect(&both);
}

/* Sends frames of that size until there is no room for another; what the last one said. */
static int fill(uni__wire *wire, size_t size)
{
    static char bytes[60000];
    int status;
    do
        status = uni__wire_send(wire, 1, bytes, size, NULL, 0, 50, NULL);
    while (status == 0);
    return status;
}

static void a_side_that_does_not_read(void **state)
{
    ends both = connected();
    uni__wire_frame frame;
    assert_int_equal(fill(&both.a, 8), UNI_ETIMEOUT);
    /* One timeout, not one for each message: with one minute each, this test would not end. */
    for (int i = 0; i < 100; i++)
        assert_int_equal(uni__wire_send(&both.a, 1, "message", 8, NULL, 0, 60000, NULL),
                         UNI_ETIMEOUT);
    while (uni__wire_receive(&both.b, &frame, 50, NULL) > 0)
        uni__wire_frame_done(&frame);
    assert_int_equal(uni__wire_send(&both.a, 2, "message", 8, NULL, 0, 1000, NULL), 0);
    assert_int_equal(uni__wire_receive(&both.b, &frame, 1000, NULL), 1);
    assert_int_equal(frame.type, 2);
    uni__wire_frame_done(&frame);
    disconnect(&both);
}

/* A frame of which only a part was sent: what follows would be taken for its rest. */
static void a_part_of_a_frame(void **state)
{
    ends both = connected();
    int room = 100000;
    uni__wire_frame frame;
    uni_error err = { 0 };
    assert_int_equal(setsockopt(both.a.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    assert_int_equal(fill(&both.a, 60000), UNI_ETIMEOUT);
    assert_true(both.a.torn);
    while (uni__wire_receive(&both.b, &frame, 50, NULL) > 0)
        uni__wire_frame_done(&frame);
    assert_int_equal(uni__wire_send(&both.a, 2, "message", 8, NULL, 0, 1000, &err), UNI_EPEER);
    assert_non_null(strstr(err.message, "only a part of a message"));
    disconnect(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(round_trip),
                                        cmocka_unit_test(descriptors),
                                        cmocka_unit_test(large_payload),
                                        cmocka_unit_test(byte_by_byte),
                                        cmocka_unit_test(others_are_refused),
                                        cmocka_unit_test(the_other_side_leaves),
                                        cmocka_unit_test(buffers_that_can_change),
                                        cmocka_unit_test(a_side_that_does_not_read),
                                        cmocka_unit_test(a_part_of_a_frame) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
