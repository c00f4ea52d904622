/*
 * agent_child.c - see agent_child.h. What a worker is given lies between fork and exec: its process
 * group, log, descriptors, memory limit and directory. A step that fails there is told through a
 * pipe that a successful exec closes.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "group/agent_child.h"

static const char *const step_sentences[] = {
    [UNI__CHILD_LOG] = "cannot open its log file",
    [UNI__CHILD_DIRECTORY] = "cannot enter its working directory",
    [UNI__CHILD_MEMORY] = "cannot limit its address space",
    [UNI__CHILD_DESCRIPTORS] = "cannot pass its descriptors",
    [UNI__CHILD_EXEC] = "cannot execute it",
};

const char *uni__child_step(int step)
{
    return step_sentences[step];
}

static void child_fail(int failure, int step)
{
    int words[2] = { step, errno };
    ssize_t ignored = write(failure, words, sizeof words);
    (void)ignored;
    _exit(127);
}

/* What exec would have put in the place of the old. */
static int take_environment(char *const *env)
{
    bool failed = false;
    clearenv();
    for (; *env && !failed; env++) {
        char *name = strdup(*env), *equals = name ? strchr(name, '=') : NULL;
        if (equals)
            *equals = '\0';
        failed = !name || (equals && equals > name && setenv(name, equals + 1, 1) != 0);
        free(name);
    }
    return failed ? -1 : 0;
}

int uni__child_high_fd(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, UNI__WORKER_FIRST_FD + UNI__WIRE_MAX_FDS);
    if (high >= 0)
        close(fd);
    return high;
}

/* In the forked child, until exec: only system calls. Says on `failure` which step failed with
 * which errno. Returns only in a worker that is forked and goes on without exec. */
static void child_run(const uni__child *plan, int failure)
{
    sigset_t none;
    sigemptyset(&none);
    failure = uni__child_high_fd(failure);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != plan->agent)
        _exit(127); /* the agent died between fork and prctl */
    const int reset[] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGTSTP };
    for (size_t i = 0; i < sizeof reset / sizeof reset[0]; i++)
        signal(reset[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);

    int null = open("/dev/null", O_RDONLY);
    /* The agent waits for us: a FIFO that an earlier worker put in place of its log must not block
     * us. */
    int log = open(plan->log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (log < 0 || fcntl(log, F_SETFL, O_APPEND) < 0)
        child_fail(failure, UNI__CHILD_LOG);
    if (dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        child_fail(failure, UNI__CHILD_DESCRIPTORS);
    if (null > 2)
        close(null);
    if (log > 2)
        close(log);
    for (int i = 0; i < plan->wire->num_fds; i++)
        close(plan->wire->fds[i]);
    plan->wire->num_fds = 0;
    /* First all above the target numbers, then down: no order of the originals can collide. */
    int high[UNI__WIRE_MAX_FDS];
    for (int i = 0; i < plan->num_fds; i++)
        if ((high[i] = uni__child_high_fd(plan->fds[i])) < 0)
            child_fail(failure, UNI__CHILD_DESCRIPTORS);
    for (int i = 0; i < plan->num_fds; i++)
        if (dup2(high[i], i < 3 ? UNI__WORKER_FIRST_FD + i : UNI__WORKER_REPORT_FD) < 0)
            child_fail(failure, UNI__CHILD_DESCRIPTORS);
    if (plan->address_space > 0) {
        struct rlimit limit = { .rlim_cur = plan->address_space, .rlim_max = plan->address_space };
        if (setrlimit(RLIMIT_AS, &limit) < 0)
            child_fail(failure, UNI__CHILD_MEMORY);
    }
    if (plan->cwd && plan->cwd[0] && chdir(plan->cwd) < 0)
        child_fail(failure, UNI__CHILD_DIRECTORY);
    if (!plan->hooks) {
        execve(plan->exe, plan->argv, plan->env);
        child_fail(failure, UNI__CHILD_EXEC);
    }
    for (int i = 0; i < plan->num_fds; i++)
        close(high[i]);
    if (take_environment(plan->env) < 0)
        child_fail(failure, UNI__CHILD_EXEC);
    close(failure);
}

pid_t uni__fork(const uni__fork_hooks *hooks)
{
    if (!hooks)
        return fork();
    hooks->before(hooks->context);
    pid_t pid = fork();
    int error = errno;
    hooks->after(hooks->context, pid == 0);
    errno = error;
    return pid;
}

pid_t uni__child_start(const uni__child *plan, int *step, int *error)
{
    int failure[2], words[2] = { 0, 0 };
    *step = UNI__CHILD_EXEC;
    if (pipe2(failure, O_CLOEXEC) < 0) {
        *error = errno;
        return -1;
    }
    pid_t pid = uni__fork(plan->hooks);
    if (pid == 0) {
        close(failure[0]);
        child_run(plan, failure[1]);
        return 0;
    }
    *error = pid < 0 ? errno : 0;
    close(failure[1]);
    /* End of file means that exec closed it (or the child, when there is none): the program
     * runs. */
    if (pid > 0 && read(failure[0], words, sizeof words) == (ssize_t)sizeof words) {
        *step = words[0];
        *error = words[1];
        waitpid(pid, NULL, 0);
        pid = -1;
    } else if (pid > 0) {
        setpgid(pid, pid);
    }
    close(failure[0]);
    return pid;
}
