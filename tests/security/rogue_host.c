/*
 * rogue_host.c - a host that an attacker has taken over. It stands in for unisono-host: announces
 * a key as a real agent does, proves itself to the controller, and then sends the frames that a
 * test asks for over a Unix socket, the first argument.
 *
 * A request is u8 type, u32 times, u32 size, payload: so many frames of that type. Type 0 is for
 * this program: 'q' reads nothing more from the controller, 'c' opens `times` more connections.
 * What the controller sends goes to the test as u8 type, u32 size, payload.
 *
 * Over ssh its order comes on standard input, as a real agent's does.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "group/keyring.h"
#include "group/launchers.h"
#include "group/remote.h"

#define PULSE_MS 200

typedef struct __attribute__((packed)) request {
    uint8_t type;
    uint32_t times, size;
} request;

static uni__credentials credentials;
static struct sockaddr_in controller = { .sin_family = AF_INET };
static uint32_t rank;

static void end(const char *why)
{
    fprintf(stderr, "rogue_host: %s\n", why);
    exit(1);
}

static void send_all(int fd, const void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = send(fd, (const char *)data + at, size - at, MSG_NOSIGNAL);
        if (n <= 0)
            exit(0); /* the other side has ended */
        at += (size_t)n;
    }
}

static void receive_all(int fd, void *data, size_t size)
{
    if (size > 0 && recv(fd, data, size, MSG_WAITALL) != (ssize_t)size)
        exit(0);
}

static void flush(uni__secure *secure, int fd)
{
    send_all(fd, secure->out.data, secure->out.size);
    uni__text_clear(&secure->out);
}

static void read_order(void)
{
    char line[4096];
    while (fgets(line, sizeof line, stdin) && line[0] != '\n') {
        char *equals = strchr(line, '=');
        line[strcspn(line, "\n")] = '\0';
        if (equals) {
            *equals = '\0';
            setenv(line, equals + 1, 1);
        }
    }
}

static bool find_rank(void)
{
    const char *ranks = getenv(UNI__RANKS_VARIABLE);
    uni__launched launched;
    if (ranks)
        return sscanf(ranks, "%u:", &rank) == 1;
    bool found = uni__launched_look(&launched);
    rank = (uint32_t)launched.rank;
    return found;
}

/* launchers.h has its form; the first address is enough. */
static void look_around(void)
{
    const char *join = getenv(UNI__JOIN_VARIABLE);
    char job[33], key[65], address[48];
    int seal = 0, port = 0;
    if (!join || sscanf(join, "2:%32[0-9a-f]:%u:%d:%d:%64[0-9a-f]:%47[0-9.]", job,
                        &credentials.attempt, &seal, &port, key, address) != 6)
        end("no place to join");
    if (!find_rank() || uni__credentials_make_pair(&credentials, NULL) < 0)
        end("no launcher");
    sodium_hex2bin(credentials.job, UNI__JOB_BYTES, job, 32, NULL, NULL, NULL);
    sodium_hex2bin(credentials.controller_key, UNI__KEY_BYTES, key, 64, NULL, NULL, NULL);
    credentials.seal = seal != 0;
    controller.sin_port = htons((uint16_t)port);
    inet_pton(AF_INET, address, &controller.sin_addr);
}

static int prove(uni__secure *secure)
{
    char bytes[4096];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&controller, sizeof controller) < 0 ||
        uni__secure_begin(secure, false, &credentials, rank, NULL) < 0)
        end("cannot connect");
    while (!uni__secure_is_ready(secure)) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0 || uni__secure_feed(secure, bytes, (size_t)n, NULL) < 0)
            end("the controller did not let us in");
        flush(secure, fd);
    }
    return fd;
}

static void connect_more(uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        uni__secure *secure = calloc(1, sizeof *secure);
        if (secure)
            (void)prove(secure); /* left open */
    }
}

/* What the test asks for; true: to read nothing any more. */
static bool take_request(uni__secure *secure, int fd, int test)
{
    request asked;
    receive_all(test, &asked, sizeof asked);
    uint8_t *payload = malloc(asked.size + 1u);
    if (!payload)
        end("no memory");
    receive_all(test, payload, asked.size);
    bool quiet = asked.type == 0 && asked.size > 0 && payload[0] == 'q';
    if (asked.type == 0 && !quiet)
        connect_more(asked.times);
    for (uint32_t i = 0; asked.type != 0 && i < asked.times; i++) {
        if (uni__secure_pack(secure, asked.type, NULL, 0, payload, asked.size, NULL) < 0)
            end("cannot pack");
        if (secure->out.size > 1u << 16 || i + 1 == asked.times)
            flush(secure, fd);
    }
    free(payload);
    return quiet;
}

static void hand_over(uni__secure *secure, int fd, int test)
{
    char bytes[65536];
    const uint8_t *payload;
    size_t size;
    int type;
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n <= 0 || uni__secure_feed(secure, bytes, (size_t)n, NULL) < 0)
        exit(0);
    while (uni__secure_next(secure, &type, &payload, &size, NULL) == 1) {
        struct __attribute__((packed)) {
            uint8_t type;
            uint32_t size;
        } head = { (uint8_t)type, (uint32_t)size };
        send_all(test, &head, sizeof head);
        send_all(test, payload, size);
    }
}

int main(int argc, char **argv)
{
    static uni__secure secure;
    char line[UNI__ANNOUNCEMENT_MAX];
    struct sockaddr_un place = { .sun_family = AF_UNIX };
    int test = socket(AF_UNIX, SOCK_STREAM, 0), no_rank = -1;
    if (argc < 2 || sodium_init() < 0)
        return 64;
    if (argc > 2 && strcmp(argv[2], "--order") == 0)
        read_order();
    look_around();
    snprintf(place.sun_path, sizeof place.sun_path, "%s", argv[1]);
    if (connect(test, (struct sockaddr *)&place, sizeof place) < 0)
        end("the test does not listen");
    uni__announcement_write(&credentials, rank, line);
    fputs(line, stdout);
    fflush(stdout);
    int fd = prove(&secure);
    struct pollfd both[2] = { { .fd = test, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
    for (;;) {
        if (poll(both, 2, PULSE_MS) == 0) {
            if (uni__secure_pack(&secure, UNI__REMOTE_PULSE, &no_rank, 4, NULL, 0, NULL) < 0)
                end("cannot pack");
            flush(&secure, fd);
        }
        if (both[1].revents)
            hand_over(&secure, fd, test);
        if (both[0].revents && take_request(&secure, fd, test))
            both[1].fd = -1;
    }
}
