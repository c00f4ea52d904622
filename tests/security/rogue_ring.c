/*
 * rogue_ring.c - a worker that attacks what it shares with its controller: the ring, the channel
 * and the eventfd. The first argument says how. Rank 1 only waits.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>
#include <unisono/session.h>

#include "group/page.h"
#include "group/protocol.h"
#include "group/wire.h"

static uni__page *page;
static int channel, page_fd, event_fd;

/* Frames that only fill the ring's end, all the way round, and a head that is always far away. */
static void skip_without_end(void)
{
    memset((char *)page + UNI__RING_OFFSET, 0, UNI__RING_BYTES);
    for (;;) {
        uint64_t one = 1;
        atomic_store(&page->head, (atomic_load(&page->tail) | 7) + 1 + UNI__RING_BYTES / 2);
        if (write(event_fd, &one, sizeof one) < 0)
            usleep(10);
    }
}

static void report_frame(size_t size)
{
    uint8_t *at;
    while (!(at = uni__ring_reserve(page, size)))
        ;
    memset(at, 0, size);
    at[12] = 0x81; /* {"a": list of zeros} */
    at[13] = 0xa1;
    at[14] = 'a';
    at[15] = 0xdd;
    size_t count = size - 20;
    for (int i = 0; i < 4; i++)
        at[16 + i] = (uint8_t)(count >> (24 - 8 * i));
    uint64_t one = 1;
    if (uni__ring_commit(page, at, size, UNI__SAYS_REPORT, 0) &&
        write(event_fd, &one, sizeof one) < 0)
        usleep(10);
}

static void report_without_end(size_t size)
{
    for (;;)
        report_frame(size);
}

/* The worker ends, a child in a session of its own goes on. */
static void leave_a_child(void)
{
    if (fork() > 0)
        _Exit(0);
    setsid();
    report_without_end(64);
}

/* A large message whose buffer is cut off while it is read. */
static void *cut(void *memfd)
{
    for (int i = 0; i < 2000; i++) {
        usleep(100);
        if (ftruncate(*(int *)memfd, 0) < 0 || ftruncate(*(int *)memfd, 1 << 28) < 0)
            break;
    }
    return NULL;
}

static void send_large(int memfd, uint64_t size)
{
    struct {
        uint16_t magic;
        uint8_t version, type;
        uint32_t size;
        uint8_t num_fds, zero[3];
    } header = { 0x554e, UNI__WIRE_VERSION, UNI__PASSES_TO_PEER | 0x80, sizeof size, 1, { 0 } };
    char frame[sizeof header + sizeof size];
    memcpy(frame, &header, sizeof header);
    memcpy(frame + sizeof header, &size, sizeof size);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct iovec piece = { frame, sizeof frame };
    struct msghdr message = { .msg_iov = &piece,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &memfd, sizeof memfd);
    while (sendmsg(channel, &message, MSG_NOSIGNAL) < 0)
        usleep(100);
}

static void cut_messages(void)
{
    pthread_t thread;
    int memfd = memfd_create("rogue", MFD_CLOEXEC);
    if (memfd < 0 || ftruncate(memfd, 1 << 28) < 0 ||
        pthread_create(&thread, NULL, cut, &memfd) != 0)
        _Exit(70);
    for (int i = 0; i < 20; i++)
        send_large(memfd, 1 << 28);
    pthread_join(thread, NULL);
}

/* The flags of an eventfd are everybody's: it is made to wait, then emptied or filled. */
static void block_events(void)
{
    fcntl(event_fd, F_SETFL, fcntl(event_fd, F_GETFL) & ~O_NONBLOCK);
    if (fork() == 0)
        for (;;) {
            uint64_t all = UINT64_MAX - 1;
            if (write(event_fd, &all, sizeof all) < 0)
                usleep(10);
        }
    if (fork() == 0)
        for (;;) {
            uint64_t all;
            if (read(event_fd, &all, sizeof all) < 0)
                usleep(10);
        }
    report_without_end(64);
}

/* Mail for a rank that does not read it. */
static void mail_without_end(void)
{
    uni__wire wire;
    static char mail[60000];
    uni__mail_header header = { .rank = 1, .key = "rogue" };
    uni__wire_init(&wire, channel);
    memcpy(mail, &header, sizeof header);
    for (;;)
        if (uni__wire_send(&wire, UNI__PASSES_TO_PEER, mail, sizeof mail, NULL, 0, 1000, NULL) < 0)
            usleep(1000);
}

/* The dictionary to resume from is other ranks', too: 0 when it can be neither written nor cut. */
static int change_the_checkpoint(uni_session *session)
{
    char path[64], target[64];
    if (strcmp(getenv("UNISONO_ATTEMPT"), "1") == 0) {
        uni_value *dict = uni_value_dict();
        int status = uni_dict_take(dict, "step", uni_value_int(1));
        status |= uni_session_report(session, dict, &(uni_checkpoint_source){ .dict = dict }, NULL);
        return status == 0 ? 9 : 70;
    }
    for (int fd = 3; fd < 1024; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        if (strstr(target, "memfd:unisono-checkpoint"))
            return pwrite(fd, "x", 1, 0) < 0 && ftruncate(fd, 0) < 0 ? 0 : 71;
    }
    return 72;
}

/* Asks for another number of workers, and gives a reason against it that does not exist. */
static void keep_number(void)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/.scale", getenv("UNISONO_RUN_DIR"));
    atomic_store(&page->fixed, 0xffffff00u);
    FILE *request = fopen(path, "w");
    if (request) {
        fputs("3\n", request);
        fclose(request);
    }
}

int main(int argc, char **argv)
{
    uni_error err = { 0 };
    uni_session *session = NULL;
    const char *text = getenv("UNISONO_SESSION"), *how = argc > 1 ? argv[1] : "";
    if (!text || sscanf(text, "1:p:%*d:%d:%d:%d", &channel, &page_fd, &event_fd) != 3)
        return 64;
    page = mmap(NULL, UNI__PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
    if (page == MAP_FAILED || uni_session_open(&session, &err) < 0)
        return 70;
    if (strcmp(how, "resume") == 0)
        _Exit(change_the_checkpoint(session));
    if (uni_session_info_of(session)->world_rank == 1) {
        for (;;)
            pause();
    }
    if (strcmp(how, "skip") == 0)
        skip_without_end();
    else if (strcmp(how, "report") == 0)
        report_without_end(UNI__FRAME_MAX);
    else if (strcmp(how, "child") == 0)
        leave_a_child();
    else if (strcmp(how, "cut") == 0)
        cut_messages();
    else if (strcmp(how, "events") == 0)
        block_events();
    else if (strcmp(how, "mail") == 0)
        mail_without_end();
    else if (strcmp(how, "fixed") == 0)
        keep_number();
    pause();
    return 0;
}
