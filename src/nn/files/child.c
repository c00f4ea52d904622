/*
 * child.c - HDF5 and libzip run here only: in a child process that lives for one file.
 *
 * Both are large parsers with a history of crashes on bad files. The child has what it needs in
 * memory (fork copied it), one pipe to its parent, and limits: no new descriptors (so it can open
 * nothing: not a linked file, not a plug-in), no files to write, memory, processor time, no core
 * dump. What it sends ends with a trailer that has its error; without one it crashed or was killed,
 * which is an error of the file. It also keeps the libraries' state (locks, error handlers) out of
 * the user's process, whose own copy of HDF5 may be another version.
 *
 * The user's process may have threads: between fork and exit the child runs the C library's
 * allocator (which fork makes safe) and the two libraries, which only children use. If the user's
 * own threads were inside of the same HDF5 at the fork, a lock of it could be held for ever in the
 * child: then the time limit ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "nn/files/files.h"

#define MAGIC UINT64_C(0x756e69736f6e6f31)
#define SECONDS 120 /* for a file of usual size; a gigabyte more adds 30 */

struct trailer {
    uint64_t magic;
    int32_t status;
    char message[UNI_ERROR_MESSAGE_SIZE];
};

static void limit(int what, rlim_t most)
{
    struct rlimit now;
    if (getrlimit(what, &now) == 0 && now.rlim_cur > most) {
        now.rlim_cur = most;
        setrlimit(what, &now);
    }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void limit_memory(size_t more)
{
    (void)more; /* the sanitizer's shadow alone would pass any limit */
}
#else
/* Bytes of address space that the process has now; 0 when that cannot be known. */
static size_t address_space(void)
{
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    return got > 0 ? (size_t)strtoull(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

static void limit_memory(size_t more)
{
    size_t now = address_space();
    if (now > 0)
        limit(RLIMIT_AS, now + more);
}
#endif

/* Opening, connecting and starting are refused by the kernel (EPERM), in case that the file takes
 * the child over. Where the kernel has no filters the limits below have to do. */
static void deny_calls(void)
{
#define DENY(number)                                                                               \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                                             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENY(SYS_openat),
        DENY(SYS_openat2),
#if defined(SYS_open)
        DENY(SYS_open),
        DENY(SYS_creat),
        DENY(SYS_fork),
        DENY(SYS_vfork),
#endif
        DENY(SYS_clone),
        DENY(SYS_clone3),
        DENY(SYS_execve),
        DENY(SYS_execveat),
        DENY(SYS_socket),
        DENY(SYS_ptrace),
        DENY(SYS_process_vm_writev),
        DENY(SYS_kill),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
#undef DENY
    struct sock_fprog program = { .len = sizeof filter / sizeof filter[0], .filter = filter };
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void restrict_child(size_t memory, unsigned seconds)
{
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL); /* the user's handlers are not for us */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG,
          /* for the case that the parent's thread dies; a dead parent also closes the pipe */
          SIGKILL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    limit_memory(memory);
    limit(RLIMIT_CPU, seconds);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_NOFILE, 0);
    deny_calls();
}

static _Noreturn void run_in_child(uni__child_job job, void *context, int fd)
{
    struct trailer trailer = { .magic = MAGIC };
    uni_error failure = { 0 };
    trailer.status = job(context, fd, &failure);
    memcpy(trailer.message, failure.message, sizeof trailer.message);
    int written = uni__write_all(fd, &trailer, sizeof trailer, "the parent", NULL);
    _exit(written < 0 ? 1 : 0);
}

/* Until the end of the pipe. */
static int collect(int fd, uint64_t until, size_t most, const char *what, uni__text *reply,
                   uni_error *err)
{
    for (;;) {
        int64_t left = ((int64_t)until - (int64_t)uni__monotonic_ns()) / 1000000;
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        int found = left > 0 ? poll(&ready, 1, (int)(left < 1000000 ? left : 1000000)) : 0;
        if (found < 0 && errno == EINTR)
            continue;
        if (found == 0 && left <= 0)
            return uni_error_set(err, UNI_ETIMEOUT, "%s took too long and was given up", what);
        char *room = uni__text_reserve(reply, (size_t)1 << 20);
        if (room == NULL)
            return uni_error_set(err, UNI_ENOMEM, "%s: no memory for what it has", what);
        ssize_t got = read(fd, room, (size_t)1 << 20);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0)
            return uni_error_set_errno(err, errno, "%s: cannot read from the child process", what);
        if (got == 0)
            return 0;
        reply->size += (size_t)got;
        if (reply->size > most)
            return uni_error_set(err, UNI_ELIMIT, "%s: it has more data than its size allows",
                                 what);
    }
}

static int judge(uni__text *reply, int wait_status, const char *what, uni_error *err)
{
    struct trailer trailer;
    if (reply->size >= sizeof trailer) {
        memcpy(&trailer, reply->data + reply->size - sizeof trailer, sizeof trailer);
        if (trailer.magic == MAGIC) {
            reply->size -= sizeof trailer;
            trailer.message[sizeof trailer.message - 1] = '\0';
            return trailer.status < 0
                       ? uni_error_set(err, trailer.status, "%s: %s", what, trailer.message)
                       : 0;
        }
    }
    if (WIFSIGNALED(wait_status))
        return uni_error_set(err, UNI_EFORMAT,
                             "%s: the libraries for HDF5 and zip files crashed on it (signal %d)",
                             what, WTERMSIG(wait_status));
    return uni_error_set(err, UNI_EFORMAT, "%s: the libraries for HDF5 and zip files gave up on it",
                         what);
}

int uni__child_run(uni__child_job job, void *context, const char *what, size_t memory, size_t most,
                   uni__text *reply, uni_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return uni_error_set_errno(err, errno, "%s: cannot make a pipe", what);
    unsigned seconds = SECONDS + (unsigned)(memory >> 30) * 30;
    pid_t child = fork();
    if (child < 0) {
        int status = uni_error_set_errno(err, errno, "%s: cannot start a child process", what);
        close(ends[0]);
        close(ends[1]);
        return status;
    }
    if (child == 0) {
        close(ends[0]);
        restrict_child(memory, seconds);
        run_in_child(job, context, ends[1]);
    }
    close(ends[1]);
    int status = collect(ends[0], uni__monotonic_ns() + (uint64_t)seconds * UINT64_C(1000000000),
                         most + sizeof(struct trailer), what, reply, err);
    close(ends[0]);
    if (status < 0)
        kill(child, SIGKILL);
    int wait_status = 0;
    while (waitpid(child, &wait_status, 0) < 0 &&
           errno == EINTR) /* a program that reaps all children may have been faster */
        ;
    return status < 0 ? status : judge(reply, wait_status, what, err);
}
