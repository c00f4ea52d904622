/*
 * template.c - agents that are forked from a process in which everything is loaded already.
 *
 * A request is one packet: the asker's working directory, and with it the agent's two descriptors.
 * There is no answer: the agent's own first frame is one, and a template that died lets the
 * descriptors go, which the asker sees as the end of the channel. So any number of threads may ask
 * at the same time.
 *
 * The template has exactly one thread, its caller's. It does not wait for its children
 * (keepers): SIGCHLD is ignored in it.
 */
#include "group/template.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
} control;

int uni__template_ask(int fd, int channel, int alive, uni_error *err)
{
    const int fds[2] = { channel, alive };
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here))
        strcpy(here, "/");
    control room = { .bytes = { 0 } };
    struct iovec part = { .iov_base = here, .iov_len = strlen(here) + 1 };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = room.bytes,
                              .msg_controllen = sizeof room.bytes };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(header), fds, sizeof fds);
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return uni_error_set_errno(err, errno, "the template takes no request");
    return 0;
}

/* 1: a request; 0: the other end is closed. Descriptors that did not come are -1. */
static int next_request(int fd, char folder[PATH_MAX], int fds[2], uni_error *err)
{
    control room;
    struct iovec part = { .iov_base = folder, .iov_len = PATH_MAX - 1 };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = room.bytes,
                              .msg_controllen = sizeof room.bytes };
    ssize_t size;
    fds[0] = fds[1] = -1;
    while ((size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        ;
    if (size < 0)
        return uni_error_set_errno(err, errno, "the template cannot read its requests");
    folder[size] = '\0';
    struct cmsghdr *header = size > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(2 * sizeof *fds))
        memcpy(fds, CMSG_DATA(header), 2 * sizeof *fds);
    return size > 0;
}

int uni__template_serve(int fd, const uni__fork_hooks *hooks, uni_error *err)
{
    int fds[2], more;
    char folder[PATH_MAX];
    signal(SIGCHLD, SIG_IGN);
    while ((more = next_request(fd, folder, fds, err)) > 0) {
        pid_t pid = -1;
        if (fds[0] >= 0) {
            fflush(NULL); /* or it would be written twice */
            pid = uni__fork(hooks);
        }
        if (pid == 0) {
            close(fd);
            int ignored = chdir(folder); /* when it is gone, the template's own must do */
            (void)ignored;
            uni__agent_keep(fds[0], fds[1], hooks);
            return 1;
        }
        for (int i = 0; i < 2; i++)
            if (fds[i] >= 0)
                close(fds[i]);
    }
    return more;
}
