/*
 * host_join_test.c - the processes of one host find each other, and take nothing from other users
 * that know their meeting place (its name is in /proc/net/unix for all to read).
 */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "train/remote/host_internal.h"

#define STRANGER 65534
#define ALARM_SECONDS 25

static host_agent self;

/* Rank 3 and its neighbour on a host of their own. */
static int setup(void **state)
{
    static host_worker workers[2];
    self = (host_agent){ .launched = { .rank = 3 }, .workers = workers, .num_workers = 2 };
    memset(workers, 0, sizeof workers);
    randombytes_buf(self.credentials.job, sizeof self.credentials.job);
    return 0;
}

static pid_t fork_child(void)
{
    pid_t child = fork();
    if (child == 0)
        alarm(ALARM_SECONDS);
    return child;
}

/* The first process of the host; its exit code is the rank of the one that came. */
static pid_t gather(void)
{
    pid_t child = fork_child();
    if (child == 0)
        _exit(host_gather(&self, NULL) == 0 ? self.workers[1].rank : 100);
    return child;
}

static pid_t donate(int rank)
{
    pid_t child = fork_child();
    if (child == 0) {
        self.launched.rank = rank;
        _exit(host_donate(&self));
    }
    return child;
}

static bool has_socket(pid_t pid, unsigned long inode)
{
    char path[300], target[64], wanted[64];
    bool found = false;
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    if (dir)
        closedir(dir);
    return found;
}

/* Where that process listens. */
static socklen_t find_place(pid_t pid, struct sockaddr_un *out)
{
    char line[300], name[108];
    unsigned long inode;
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    for (int tries = 0; tries < 10000; tries++) {
        FILE *file = fopen("/proc/net/unix", "re");
        while (file && fgets(line, sizeof line, file))
            if (sscanf(line, "%*s %*s %*s %*s %*s %*s %lu @%107s", &inode, name) == 2 &&
                has_socket(pid, inode)) {
                fclose(file);
                memcpy(out->sun_path + 1, name, strlen(name));
                return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
            }
        if (file)
            fclose(file);
        usleep(1000);
    }
    return 0;
}

static int code_of(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Says that it is rank 7, and waits until that is taken or turned away. */
static pid_t visit(const struct sockaddr_un *place, socklen_t length)
{
    pid_t child = fork_child();
    if (child != 0)
        return child;
    struct {
        int32_t rank;
        uint32_t size;
        uint8_t list;
    } __attribute__((packed)) words = { 7, 1, 0x90 };
    char byte;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (setuid(STRANGER) < 0)
        _exit(1);
    /* The name is there before it is listened to. */
    while (connect(fd, (const struct sockaddr *)place, length) < 0)
        usleep(1000);
    /* It may be turned away before it has said a word. */
    (void)send(fd, &words, sizeof words, MSG_NOSIGNAL);
    _exit(read(fd, &byte, 1) > 0);
}

static void donations_of_strangers(void **state)
{
    struct sockaddr_un place;
    if (geteuid() != 0)
        skip();
    pid_t first = gather();
    socklen_t length = find_place(first, &place);
    assert_true(length > 0);
    assert_int_equal(code_of(visit(&place, length)), 0);
    pid_t second = donate(5);
    assert_int_equal(code_of(first), 5);
    assert_int_equal(code_of(second), 0);
}

/* In the place of the first process; its exit code: 0 when it was told nothing. */
static pid_t occupy(const struct sockaddr_un *place, socklen_t length, int ready)
{
    pid_t child = fork_child();
    if (child != 0)
        return child;
    char byte = 1;
    int door = socket(AF_UNIX, SOCK_STREAM, 0);
    if (setuid(STRANGER) < 0 || bind(door, (const struct sockaddr *)place, length) < 0 ||
        listen(door, 1) < 0 || write(ready, &byte, 1) != 1)
        _exit(2);
    int fd = accept(door, NULL, NULL);
    _exit(read(fd, &byte, 1) != 0);
}

static void meeting_place_of_a_stranger(void **state)
{
    struct sockaddr_un place;
    int ready[2];
    char byte;
    if (geteuid() != 0)
        skip();
    pid_t first = gather();
    socklen_t length = find_place(first, &place);
    assert_true(length > 0);
    kill(first, SIGKILL);
    assert_int_equal(waitpid(first, NULL, 0), first);
    assert_int_equal(pipe(ready), 0);
    pid_t thief = occupy(&place, length, ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(code_of(donate(5)), 1);
    assert_int_equal(code_of(thief), 0);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(donations_of_strangers, setup),
        cmocka_unit_test_setup(meeting_place_of_a_stranger, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
