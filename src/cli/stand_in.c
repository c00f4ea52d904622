/* stand_in.c - see stand_in.h. Main thread. */
#include "cli/stand_in.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int passed_on[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };
#define NUM_PASSED_ON (sizeof passed_on / sizeof passed_on[0])

static volatile pid_t controller;

static void pass_on(int number)
{
    int before = errno;
    kill(controller, number);
    errno = before;
}

/* The child's end is this process's, a signal included. */
_Noreturn static void end_like(int how)
{
    if (WIFSIGNALED(how)) {
        signal(WTERMSIG(how), SIG_DFL);
        raise(WTERMSIG(how));
        _exit(128 + WTERMSIG(how));
    }
    _exit(WEXITSTATUS(how));
}

_Noreturn static void wait_for_controller(const sigset_t *mask)
{
    int how = 0;
    for (size_t i = 0; i < NUM_PASSED_ON; i++) {
        struct sigaction before;
        if (sigaction(passed_on[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(passed_on[i],
                      &(struct sigaction){ .sa_handler = pass_on, .sa_flags = SA_RESTART }, NULL);
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    while (waitpid(controller, &how, 0) < 0 && errno == EINTR)
        ;
    end_like(how);
}

int cli_stand_in(uni_error *err)
{
    sigset_t block, before;
    pid_t parent = getpid();
    sigemptyset(&block);
    for (size_t i = 0; i < NUM_PASSED_ON; i++)
        sigaddset(&block, passed_on[i]);
    fflush(NULL);
    sigprocmask(SIG_BLOCK, &block,
                &before); /* one that comes now waits until it can be passed on */
    controller = fork();
    if (controller > 0)
        wait_for_controller(&before);
    int status =
        controller < 0 ? uni_error_set_errno(err, errno, "cannot fork the run's controller") : 0;
    if (status == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGINT);
        if (getppid() != parent)
            raise(SIGINT);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}
